//! `mgz-analyze spectra`: reuse distance at several block sizes at once (Cabrera, Chamberlain, Beard 2019).

use super::owners::Owners;
use super::document::{Column, Document, Table, Unit, maybe, value};
use super::stream::{Accesses, Segment, View};
use super::{Common, block_size, open, require_full, visit, warn_of_gaps};
use crate::input::ColumnSet;
use clap::Args;
use mgz_models::emd;
use mgz_models::reuse::{ReuseEngine, ReuseSink};
use serde_json::Value;
use std::collections::HashMap;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  mgz-analyze spectra trace                              64 B, 4 KiB and 2 MiB
  mgz-analyze spectra trace --granularity 64,4K,64K,2M   other block sizes
  mgz-analyze spectra trace --format json | jq .advice

docs/models.md says what the advice rests on.";

/// Arguments of `spectra`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct SpectraArguments {
    /// The folder that mgz-record wrote.
    pub trace: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
    /// Block sizes, powers of two.
    #[arg(long, value_delimiter = ',', default_value = "64,4K,2M", value_parser = block_size)]
    pub granularity: Vec<u64>,
    /// Counts recorded stores as accesses too.
    #[arg(long)]
    pub stores: bool,
}

/// Accesses that stay in the cache while each band goes over them.
const PIECE: usize = 4096;
/// Bits of the chunks by which regions are told apart.
const CHUNK: u32 = 21;
/// Log bins of the paper: [0,4), [4,8), [8,16) …
const BINS: usize = 48;
type Signature = [u64; BINS];

#[inline(always)]
fn bin(distance: u64) -> usize {
    ((64 - (distance >> 2).leading_zeros()) as usize).min(BINS - 1)
}

/// One block size.
struct Band {
    shift: u32,
    engine: ReuseEngine,
    counts: BandCounts,
    recent: Recent,
    kept: Accesses,
}

/// Signatures by 2 MiB chunk of the address space.
struct BandCounts {
    shift: u32,
    chunks: HashMap<(u32, u64), usize>,
    signatures: Vec<Signature>,
    /// Signatures by object.
    objects: Vec<Signature>,
    /// First touches of a thread's run, as (process, block): the union over threads is the footprint.
    touched: Vec<(u32, u64)>,
    /// Objects that touched blocks first, where asked for.
    owned: Option<Vec<(u32, u32, u64)>>,
    memo: (u64, usize),
    process: u32,
}

impl BandCounts {
    #[inline(always)]
    fn at(&mut self, block: u64) -> &mut Signature {
        let chunk = if self.shift <= CHUNK { block >> (CHUNK - self.shift) } else { block << (self.shift - CHUNK) };
        if self.memo.0 != chunk {
            self.memo = (chunk, self.find(chunk));
        }
        &mut self.signatures[self.memo.1]
    }

    /// A reuse of a block by an access to an object.
    #[inline(always)]
    fn count(&mut self, block: u64, object: u32, bin: usize) {
        self.at(block)[bin] += 1;
        if object as usize >= self.objects.len() {
            self.objects.resize(object as usize + 1, [0; BINS]);
        }
        self.objects[object as usize][bin] += 1;
    }

    #[inline(never)]
    fn find(&mut self, chunk: u64) -> usize {
        let next = self.signatures.len();
        let at = *self.chunks.entry((self.process, chunk)).or_insert(next);
        if at == next {
            self.signatures.push([0; BINS]);
        }
        at
    }
}

impl ReuseSink for BandCounts {
    #[inline(always)]
    fn first(&mut self, _row: u64, block: u64, tag: u32) {
        self.touched.push((self.process, block));
        if let Some(owned) = &mut self.owned {
            owned.push((tag, self.process, block));
        }
    }

    #[inline(always)]
    fn reuse(&mut self, _row: u64, block: u64, tag: u32, distance: u64, _interval: u64) {
        if tag != SILENT {
            self.count(block, tag, bin(distance));
        }
    }

    #[inline(always)]
    fn done(&mut self, _row: u64, _tag: u32) {}
}

/// No block has this number.
const NONE: u64 = u64::MAX;
/// Blocks from this size on go through the filter of recent blocks; smaller ones change too often for it to pay.
const FILTERED: u32 = 10;
/// Tag of touches that only bring the engine's order up to date; others have the number of an object.
const SILENT: u32 = u32::MAX;

/// The most recent blocks. A block among them has as distance its place in their order, and the engine need not know of it, as
/// long as blocks leave in the right order: before one leaves, those that the engine has as older, though they were accessed since, are
/// touched once more.
struct Recent {
    /// Most recent first.
    blocks: [u64; 4],
    /// When the engine was told of each.
    told: [u64; 4],
    used: usize,
    next: u64,
}

impl Recent {
    fn new() -> Recent {
        Recent { blocks: [NONE; 4], told: [0; 4], used: 0, next: 0 }
    }

    /// Place of a block, which moves to the front.
    #[inline(always)]
    fn hit(&mut self, block: u64) -> Option<usize> {
        if self.blocks[0] == block && self.used > 0 {
            return Some(0);
        }
        let at = self.blocks[..self.used].iter().position(|&b| b == block)?;
        self.blocks[..=at].rotate_right(1);
        self.told[..=at].rotate_right(1);
        Some(at)
    }

    /// A new block comes in; `touch` is told what the engine must be told before.
    #[inline(always)]
    fn enter(&mut self, block: u64, mut touch: impl FnMut(u64)) {
        if self.used == self.blocks.len() {
            let last = self.used - 1;
            for at in (0..last).rev() {
                if self.told[at] < self.told[last] {
                    touch(self.blocks[at]);
                    self.told[at] = self.next;
                    self.next += 1;
                }
            }
        } else {
            self.used += 1;
        }
        self.blocks[..self.used].rotate_right(1);
        self.told[..self.used].rotate_right(1);
        (self.blocks[0], self.told[0]) = (block, self.next);
        self.next += 1;
    }

    /// Forgets all, oldest first.
    fn clear(&mut self, mut touch: impl FnMut(u64)) {
        self.blocks[..self.used].iter().rev().for_each(|&b| touch(b));
        *self = Recent::new();
    }
}

impl Band {
    fn new(shift: u32) -> Band {
        let counts = BandCounts { shift, chunks: HashMap::new(), signatures: Vec::new(), objects: Vec::new(), touched: Vec::new(), owned: None, memo: (NONE, 0), process: 0 };
        Band { shift, engine: ReuseEngine::new(shift), counts, recent: Recent::new(), kept: Accesses::default() }
    }

    fn begin(&mut self, process: u32) {
        self.engine.begin();
        self.recent = Recent::new();
        self.counts.process = process;
        self.counts.memo = (NONE, 0);
        if self.counts.touched.len() > 1 << 24 {
            self.counts.touched.sort_unstable();
            self.counts.touched.dedup();
        }
        if let Some(owned) = self.counts.owned.as_mut().filter(|o| o.len() > 1 << 24) {
            owned.sort_unstable();
            owned.dedup();
        }
    }

    /// Takes in accesses to objects.
    fn run(&mut self, accesses: View<'_>, objects: &[u32]) {
        let shift = self.shift;
        if shift < FILTERED {
            self.engine.run(accesses.address, accesses.size, objects, &mut self.counts);
            return;
        }
        let Band { recent, counts, kept, engine, .. } = self;
        kept.clear();
        let mut tell = |address: u64, size: u32, tag: u32| {
            kept.address.push(address);
            kept.size.push(size);
            kept.group.push(tag);
        };
        for ((&address, &size), &object) in accesses.address.iter().zip(accesses.size).zip(objects) {
            let block = address >> shift;
            if address.saturating_add(u64::from(size.max(1)) - 1) >> shift != block {
                recent.clear(|b| tell(b << shift, 1, SILENT));
                tell(address, size, object);
            } else if let Some(distance) = recent.hit(block) {
                counts.count(block, object, bin(distance as u64));
            } else {
                recent.enter(block, |b| tell(b << shift, 1, SILENT));
                tell(address, 1, object);
            }
        }
        engine.run(&kept.address, &kept.size, &kept.group, counts);
    }
}

/// Runs the command. Also tells whether something could not be read.
pub fn run(arguments: &SpectraArguments) -> anyhow::Result<(Document, bool)> {
    let mut document = Document::new("spectra");
    let mut sizes = arguments.granularity.clone();
    sizes.sort_unstable();
    sizes.dedup();
    let trace = open(&arguments.trace, &arguments.common, &mut document)?;
    require_full(&trace, "a reuse signature", "")?;
    warn_of_gaps(&trace, &mut document);
    let mut bands: Vec<Band> = sizes.iter().map(|s| Band::new(s.trailing_zeros())).collect();
    let mut accesses = 0u64;
    let mut buffer = Accesses::default();
    let mut owners = Owners::open(&trace, &mut document);
    let known = owners.known();
    if let Some(finest) = bands.first_mut().filter(|_| known) {
        finest.counts.owned = Some(Vec::new());
    }
    let mut objects = Vec::new();
    let mut each = |segment: &Segment<'_>| {
        if segment.starts {
            bands.iter_mut().for_each(|b| b.begin(segment.run.process));
        }
        let view = segment.accesses(arguments.stores, &mut buffer);
        accesses += view.len() as u64;
        objects.clear();
        owners.fill(segment.run.process, view.address, (segment.run.first_time, segment.run.last_time), &mut objects);
        let mut at = 0;
        while at < view.len() {
            let end = (at + PIECE).min(view.len());
            bands.iter_mut().for_each(|b| b.run(view.slice(at..end), &objects[at..end]));
            at = end;
        }
    };
    let damaged = visit(&trace, ColumnSet { time: known }, &mut document, &mut each);
    anyhow::ensure!(accesses > 0, "{}: the trace has no accesses to measure", arguments.trace.display());
    for band in &mut bands {
        band.counts.touched.sort_unstable();
        band.counts.touched.dedup();
    }
    document.put("A", Unit::Number, accesses);
    results(&sizes, &bands, &owners, &mut document);
    Ok((document, damaged))
}

/// Where something lies: all, or a range of chunks of a process.
#[derive(Clone, Copy)]
struct Place {
    process: u32,
    first: u64,
    last: u64,
    all: bool,
}

impl Place {
    fn holds(&self, process: u32, chunk: u64) -> bool {
        self.all || (self.process == process && (self.first..=self.last).contains(&chunk))
    }

    fn signature(&self, band: &Band) -> Vec<f64> {
        let mut sum = vec![0.0; BINS];
        for (&(process, chunk), &at) in &band.counts.chunks {
            if self.holds(process, chunk) {
                sum.iter_mut().zip(&band.counts.signatures[at]).for_each(|(s, &n)| *s += n as f64);
            }
        }
        sum
    }

    fn blocks(&self, band: &Band) -> u64 {
        let chunk = |block: u64| if band.shift <= CHUNK { block >> (CHUNK - band.shift) } else { block << (band.shift - CHUNK) };
        band.counts.touched.iter().filter(|t| self.holds(t.0, chunk(t.1))).count() as u64
    }
}

/// Maximal runs of touched 2 MiB chunks.
fn regions(bands: &[Band]) -> Vec<Place> {
    let mut chunks: Vec<(u32, u64)> = bands.first().map(|b| b.counts.touched.iter().map(|&(p, block)| (p, (block << b.shift) >> CHUNK)).collect()).unwrap_or_default();
    chunks.dedup();
    let mut out: Vec<Place> = Vec::new();
    for (process, chunk) in chunks {
        match out.last_mut() {
            Some(last) if last.process == process && last.last + 1 == chunk => last.last = chunk,
            _ => out.push(Place { process, first: chunk, last: chunk, all: false }),
        }
    }
    out
}

/// What is known of a place: its name, process, signatures by block size, and footprints in bytes.
struct Found {
    name: Value,
    process: Value,
    signatures: Vec<Vec<f64>>,
    bytes: Vec<u64>,
}

/// Objects, each with its signatures. A block of the smallest size belongs to the object that touched it first.
fn of_objects(sizes: &[u64], bands: &[Band], owners: &Owners) -> Vec<Found> {
    let Some(finest) = bands.first() else { return Vec::new() };
    let mut owned = finest.counts.owned.clone().unwrap_or_default();
    owned.sort_unstable();
    owned.dedup();
    let most = bands.iter().map(|b| b.counts.objects.len()).max().unwrap_or(0) as u32;
    let mut out = Vec::new();
    for number in 0..most {
        let signatures: Vec<Vec<f64>> = bands.iter().map(|b| b.counts.objects.get(number as usize).map_or_else(|| vec![0.0; BINS], |s| s.iter().map(|&n| n as f64).collect())).collect();
        let mine = &owned[owned.partition_point(|o| o.0 < number)..owned.partition_point(|o| o.0 <= number)];
        if mine.is_empty() && signatures.iter().flatten().all(|&n| n == 0.0) {
            continue;
        }
        let blocks = |band: &Band| {
            let mut last = None;
            // Sorted: blocks of a larger size follow each other.
            mine.iter().filter(|&&(_, process, block)| last.replace((process, block >> (band.shift - finest.shift))) != Some((process, block >> (band.shift - finest.shift)))).count() as u64
        };
        let bytes = bands.iter().zip(sizes).map(|(b, size)| blocks(b) * size).collect();
        let object = owners.object(number);
        out.push(Found { name: Value::from(format!("{} {}", object.kind, object.name)), process: Value::Null, signatures, bytes });
    }
    out
}

fn results(sizes: &[u64], bands: &[Band], owners: &Owners, document: &mut Document) {
    let whole = Place { process: 0, first: 0, last: 0, all: true };
    let mut places = vec![(Value::from("program"), whole)];
    places.extend(regions(bands).into_iter().map(|r| (Value::from(format!("{:#x}-{:#x}", r.first << CHUNK, (r.last + 1) << CHUNK)), r)));
    let mut all: Vec<Found> = places
        .into_iter()
        .map(|(name, place)| Found {
            name,
            process: if place.all { Value::Null } else { Value::from(place.process) },
            signatures: bands.iter().map(|b| place.signature(b)).collect(),
            bytes: bands.iter().zip(sizes).map(|(b, size)| place.blocks(b) * size).collect(),
        })
        .collect();
    if owners.known() {
        all.extend(of_objects(sizes, bands, owners));
    }
    let mut signatures = Vec::new();
    let mut footprints = Vec::new();
    let mut moves = Vec::new();
    let mut advice = Vec::new();
    for Found { name, process, signatures: found, bytes } in &all {
        let reuses: f64 = found.first().map_or(0.0, |s| s.iter().sum());
        for ((signature, &size), &footprint) in found.iter().zip(sizes).zip(bytes) {
            let total: f64 = signature.iter().sum();
            let last = signature.iter().rposition(|&n| n > 0.0).map_or(0, |l| l + 1);
            for (i, n) in signature.iter().enumerate().take(last) {
                let from = if i == 0 { 0u64 } else { 2 << i };
                signatures.push(vec![name.clone(), process.clone(), Value::from(size), Value::from(from), Value::from(4u64 << i), value(*n), value(n / total)]);
            }
            let normalised = footprint as f64 / bytes[0].max(1) as f64;
            footprints.push(vec![name.clone(), process.clone(), Value::from(size), Value::from(footprint / size), Value::from(footprint), value(normalised), value(1.0 / normalised.max(1e-300))]);
        }
        for i in 1..found.len() {
            moves.push(vec![name.clone(), process.clone(), Value::from(sizes[i - 1]), Value::from(sizes[i]), maybe(emd::distance(&found[i - 1], &found[i])), maybe(emd::shift(&found[i - 1], &found[i]))]);
        }
        if reuses > 0.0 {
            let verdict = judge(sizes, found, bytes);
            let cells = [Value::from(verdict.prototype), Value::from(verdict.page), value(verdict.utilisation), Value::from(verdict.text)];
            advice.push([vec![name.clone(), process.clone(), value(reuses), Value::from(bytes[0])], cells.to_vec()].concat());
        }
    }
    // Hottest regions first; the program stays on top.
    advice[1..].sort_by(|a, b| b[2].as_f64().unwrap_or(0.0).total_cmp(&a[2].as_f64().unwrap_or(0.0)));
    let whose = [Column("where", Unit::Text), Column("process", Unit::Text)];
    let table = |name, title: &str, columns: &[Column], rows: Vec<Vec<Value>>, text_rows| Table { name, title: title.into(), columns: whose.iter().chain(columns).copied().collect(), rows, text_rows };
    document.tables.push(table(
        "advice",
        "Advice (footprint in the smallest blocks; utilisation of the page size advised)",
        &[Column("reuses", Unit::Number), Column("footprint", Unit::Bytes), Column("prototype", Unit::Text), Column("page", Unit::Bytes), Column("utilisation", Unit::Share), Column("advice", Unit::Text)],
        advice,
        usize::MAX,
    ));
    document.tables.push(table(
        "emd",
        "Earth Mover's Distance between neighbouring block sizes, in bins (shift: signed; negative is towards short distances)",
        &[Column("from", Unit::Bytes), Column("to", Unit::Bytes), Column("emd", Unit::Number), Column("shift", Unit::Number)],
        moves,
        usize::MAX,
    ));
    document.tables.push(table(
        "footprints",
        "Footprint by block size (normalised to the smallest)",
        &[Column("granularity", Unit::Bytes), Column("blocks", Unit::Number), Column("bytes", Unit::Bytes), Column("normalised", Unit::Number), Column("utilisation", Unit::Share)],
        footprints,
        usize::MAX,
    ));
    document.tables.push(table(
        "signatures",
        "Reuse signatures (distances in blocks)",
        &[Column("granularity", Unit::Bytes), Column("from", Unit::Number), Column("to", Unit::Number), Column("count", Unit::Number), Column("share", Unit::Share)],
        signatures,
        96,
    ));
}

/// What is advised.
struct Verdict {
    prototype: &'static str,
    page: u64,
    utilisation: f64,
    text: &'static str,
}

/// Bins that mass must move on average for a shift.
const SHIFT: f64 = 0.5;
/// Share in the first bin from which a signature counts as local already.
const LOCAL: f64 = 0.85;
/// Share of a page that must be used for it to be advised.
const USED: f64 = 0.5;

/// The paper's reading, sections IV-A and IV-B: mass that shifts to short distances means spatially dense accesses, which larger
/// pages serve, unless much of those pages is never used.
fn judge(sizes: &[u64], signatures: &[Vec<f64>], bytes: &[u64]) -> Verdict {
    let share_first = |s: &[f64]| s[0] / s.iter().sum::<f64>().max(1e-300);
    let total = emd::distance(&signatures[0], &signatures[signatures.len() - 1]).unwrap_or(0.0);
    let used = |i: usize| bytes[0] as f64 / bytes[i].max(1) as f64;
    let base = sizes.iter().position(|&s| s >= 4096).unwrap_or(sizes.len() - 1);
    let largest = (base..sizes.len()).rev().find(|&i| used(i) >= USED).unwrap_or(base);
    if share_first(&signatures[0]) >= LOCAL {
        return Verdict {
            prototype: "shape stays: local at every size",
            page: sizes[base],
            utilisation: used(base),
            text: "reuse is local in the smallest blocks already; page size matters little for locality",
        };
    }
    if total < SHIFT {
        let text = if used(sizes.len() - 1) >= USED {
            "larger pages do not shorten reuses, though all of them is used in the end: a candidate for another data layout"
        } else {
            "larger pages neither shorten reuses nor are used: keep small pages"
        };
        return Verdict { prototype: "shape stays", page: sizes[base], utilisation: used(base), text };
    }
    let text = if largest > base {
        "reuses move to short distances and the larger pages are used: large pages pay"
    } else if used(base) >= USED {
        "reuses move to short distances, but most of larger pages would stay unused: keep small pages"
    } else {
        "reuses move to short distances, but even small pages are mostly unused: pack the data"
    };
    Verdict { prototype: "mass shifts", page: sizes[largest], utilisation: used(largest), text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_those_of_the_paper() {
        assert_eq!([0, 3, 4, 7, 8, 16, 32, 63].map(bin), [0, 0, 1, 1, 2, 3, 4, 4]);
        assert_eq!(bin(u64::MAX), BINS - 1);
    }

    #[test]
    fn the_filter_changes_no_distance() {
        // Against an engine without it, over streams that stay on few pages, move on, and straddle.
        struct Log(Vec<u64>);
        impl ReuseSink for Log {
            fn first(&mut self, _: u64, _: u64, _: u32) {}
            fn reuse(&mut self, _: u64, _: u64, _: u32, distance: u64, _: u64) {
                self.0.push(distance);
            }
            fn done(&mut self, _: u64, _: u32) {}
        }
        let mut x = 5u64;
        for round in 0..300u64 {
            let (mut address, mut size) = (Vec::new(), Vec::new());
            for i in 0..400u64 {
                x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let page = (x >> 33) % (2 + round % 9) + if (x >> 50).is_multiple_of(16) { i / 40 } else { 0 };
                address.push(page * 4096 + (x >> 20) % 4096);
                size.push(if (x >> 55).is_multiple_of(8) { 64 } else { 1 });
            }
            let mut band = Band::new(12);
            band.begin(0);
            let cut = (round % 400) as usize;
            for range in [0..cut, cut..400] {
                band.run(View { address: &address[range.clone()], size: &size[range], group: &[] }, &[0; 400]);
            }
            let mut log = Log(Vec::new());
            ReuseEngine::new(12).run(&address, &size, &[0; 400], &mut log);
            let mut want = vec![0u64; BINS];
            log.0.iter().for_each(|&d| want[bin(d)] += 1);
            let mut got = vec![0u64; BINS];
            band.counts.signatures.iter().for_each(|s| got.iter_mut().zip(s).for_each(|(g, n)| *g += n));
            assert_eq!(got, want, "round {round}");
        }
    }

    #[test]
    fn prototypes_are_told_apart() {
        let sizes = [64, 4096, 2 << 20];
        let at = |bin: usize| { let mut s = vec![0.0; BINS]; s[bin] = 100.0; s };
        // A blocked array: all mass moves to the first bin, pages are full.
        let dense = judge(&sizes, &[at(6), at(1), at(0)], &[4 << 20, 4 << 20, 4 << 20]);
        assert_eq!((dense.prototype, dense.page), ("mass shifts", 2 << 20));
        // The same on a heap of which each large page is used by a tenth.
        let sparse = judge(&sizes, &[at(6), at(1), at(0)], &[4 << 20, 5 << 20, 40 << 20]);
        assert_eq!((sparse.prototype, sparse.page), ("mass shifts", 4096));
        // Streams side by side: mega-stream.
        let streams = judge(&sizes, &[at(1), at(1), at(1)], &[4 << 20, 4 << 20, 4 << 20]);
        assert_eq!((streams.prototype, streams.page), ("shape stays", 4096));
        assert!(streams.text.contains("layout"));
        assert_eq!(judge(&sizes, &[at(0), at(0), at(0)], &[4096, 4096, 2 << 20]).prototype, "shape stays: local at every size");
    }
}
