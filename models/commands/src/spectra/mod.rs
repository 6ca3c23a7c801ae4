//! `mgz-analyze spectra`: reuse distance at several block sizes at once (Cabrera, Chamberlain,
//! Beard 2019).

mod bands;
mod parts;
mod tables;
mod verdict;

use bands::{BINS, Band, CHUNK, Signature, chunk_of};
use clap::Args;
use mgz_analyzer::cli::trace;
use mgz_analyzer::commands::ensure_accesses;
use mgz_analyzer::commands::owners::Owners;
use mgz_analyzer::commands::stream::{AccessSegment, Accesses};
use mgz_analyzer::commands::{Common, block_size, open_trace, require_full, visit, warn_of_gaps};
use mgz_analyzer::data::code_map::CodeMap;
use mgz_analyzer::input::ColumnSet;
use mgz_analyzer::output::document::{ColumnUnit, Document};
use parts::{NO_FUNCTION, Part, Parts, SegmentPlace};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use tables::SpectraRows;

const EXAMPLES_HELP: &str = "\
Examples:
  mgz-analyze spectra trace                              64 B, 4 KiB and 2 MiB
  mgz-analyze spectra trace --granularity 64,4K,64K,2M   other block sizes
  mgz-analyze spectra trace --functions --intervals 8
      by function, and by eighths of the run
  mgz-analyze spectra trace --format json | jq .advice

docs/reference/models.md explains how the advice is found.";

/// Arguments of `spectra`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES_HELP)]
pub struct SpectraArguments {
    /// The folder that mgz-record or mgz run wrote.
    #[arg(value_parser = trace())]
    pub trace: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
    /// Block sizes, powers of two.
    #[arg(long, value_delimiter = ',', default_value = "64,4K,2M", value_parser = block_size)]
    pub granularity: Vec<u64>,
    /// Also by function: the signature of the reuses by its accesses, and the bytes that it
    /// touches.
    #[arg(long)]
    pub functions: bool,
    /// Also by interval: N parts of each thread's run with the same number of rows.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub intervals: Option<u32>,
    /// Count recorded stores as accesses too.
    #[arg(long)]
    pub stores: bool,
}

/// Accesses that stay in the cache while each block size processes them. Source: Chosen.
const ACCESSES_PER_PIECE: usize = 4096;
/// Runs the command. The flag is true if a part of the trace could not be read.
pub fn run_spectra(arguments: &SpectraArguments) -> anyhow::Result<(Document, bool)> {
    let mut document = Document::new("spectra");
    let mut sizes = arguments.granularity.clone();
    sizes.sort_unstable();
    sizes.dedup();
    let trace = open_trace(&arguments.trace, &arguments.common, &mut document)?;
    require_full(&trace, "a reuse signature", "")?;
    warn_of_gaps(&trace, &mut document);
    let mut bands: Vec<Band> = sizes
        .iter()
        .map(|s| Band::new(s.trailing_zeros()))
        .collect();
    let mut accesses = 0u64;
    let mut buffer = Accesses::default();
    let mut owners = Owners::open(&trace, &mut document);
    let known = owners.known();
    if let Some(finest) = bands.first_mut().filter(|_| known) {
        finest.counts.owned = Some(Vec::new());
    }
    let mut parts = Parts::new(
        arguments.functions,
        arguments.intervals.unwrap_or(0),
        bands.first().map_or(0, |b| b.shift),
    );
    let rows_of: HashMap<(u32, u32), u64> = trace
        .manifest
        .threads
        .iter()
        .map(|t| ((t.process, t.thread), t.rows))
        .collect();
    anyhow::ensure!(
        arguments.intervals.is_none() || rows_of.values().any(|&rows| rows > 0),
        "{}: the manifest does not have the number of rows of each thread, so the run cannot be cut into intervals; leave out --intervals, or record again",
        arguments.trace.display()
    );
    let mut rows_seen: HashMap<(u32, u32), u64> = HashMap::new();
    let mut objects = Vec::new();
    let mut each = |segment: &AccessSegment<'_>| {
        if segment.starts {
            bands.iter_mut().for_each(|b| b.begin(segment.run.process));
        }
        let view = segment.accesses(arguments.stores, &mut buffer);
        accesses += view.len() as u64;
        objects.clear();
        owners.fill(
            (segment.run.process, segment.run.thread),
            view.address,
            (segment.run.first_time, segment.run.last_time),
            &mut objects,
        );
        if parts.wanted() {
            let thread = (segment.run.process, segment.run.thread);
            let rows = (segment.loads.len() + segment.stores.len()) as u64;
            let seen = rows_seen.entry(thread).or_default();
            let place = SegmentPlace {
                process: thread.0,
                before: *seen,
                rows,
                all: rows_of.get(&thread).copied().unwrap_or(0),
            };
            *seen += rows;
            parts.tag(&trace.code, place, view, &mut objects);
        }
        let mut at = 0;
        while at < view.len() {
            let end = (at + ACCESSES_PER_PIECE).min(view.len());
            bands
                .iter_mut()
                .for_each(|b| b.run(view.slice(at..end), &objects[at..end]));
            at = end;
        }
    };
    let damaged = visit(&trace, ColumnSet { time: known }, &mut document, &mut each);
    ensure_accesses(accesses, &trace)?;
    for band in &mut bands {
        band.counts.touched.sort_unstable();
        band.counts.touched.dedup();
    }
    document.put("A", ColumnUnit::Count, accesses);
    let mut rows = SpectraRows::default();
    for found in &places(&sizes, &bands, &owners, &parts, &trace.code) {
        rows.add(found, &sizes);
    }
    rows.put(&sizes, &mut document);
    Ok((document, damaged))
}

/// A range of chunks of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Region {
    process: u32,
    first: u64,
    last: u64,
}

/// Counts of a block size, in the order of addresses.
struct Sorted<'a> {
    band: &'a Band,
    /// Process, first chunk of the block or blocks, signature.
    signatures: Vec<(u32, u64, &'a Signature)>,
}

impl<'a> Sorted<'a> {
    fn new(band: &'a Band) -> Sorted<'a> {
        let counts = &band.counts;
        let mut signatures: Vec<_> = counts
            .chunks
            .iter()
            .map(|(&(process, chunk), &at)| (process, chunk, &counts.signatures[at]))
            .collect();
        signatures.sort_unstable_by_key(|s| (s.0, s.1));
        Sorted { band, signatures }
    }

    /// The entries of a region in a list that is sorted by process and chunk. If blocks are larger
    /// than a chunk, it includes those that reach into the region.
    fn within<'l, T>(
        &self,
        list: &'l [T],
        region: Region,
        at: impl Fn(&T) -> (u32, u64),
    ) -> &'l [T] {
        let larger = self.band.shift.saturating_sub(CHUNK);
        let first = region.first >> larger << larger;
        let from = list.partition_point(|e| at(e) < (region.process, first));
        let to = list.partition_point(|e| at(e) <= (region.process, region.last));
        &list[from..to.max(from)]
    }

    /// The signature of a region, or of all memory without one.
    fn signature(&self, region: Option<Region>) -> Vec<f64> {
        let list = region.map_or(&self.signatures[..], |r| {
            self.within(&self.signatures, r, |s| (s.0, s.1))
        });
        let mut sum = vec![0.0; BINS];
        for (.., signature) in list {
            sum.iter_mut()
                .zip(signature.iter())
                .for_each(|(s, &n)| *s += n as f64);
        }
        sum
    }

    /// Number of blocks touched in a region, or in all memory without one.
    fn blocks(&self, region: Option<Region>) -> u64 {
        let touched = &self.band.counts.touched;
        let list = region.map_or(&touched[..], |r| {
            self.within(touched, r, |t| (t.0, chunk_of(t.1, self.band.shift)))
        });
        list.len() as u64
    }
}

/// Maximal runs of touched 2 MiB chunks.
fn regions(bands: &[Band]) -> Vec<Region> {
    let mut out: Vec<Region> = Vec::new();
    let Some(finest) = bands.first() else {
        return out;
    };
    // Sorted.
    for &(process, block) in &finest.counts.touched {
        let first = chunk_of(block, finest.shift);
        let last = first + (1 << finest.shift.saturating_sub(CHUNK)) - 1;
        match out.last_mut() {
            Some(before) if before.process == process && before.last + 1 >= first => {
                before.last = before.last.max(last);
            }
            _ => out.push(Region {
                process,
                first,
                last,
            }),
        }
    }
    out
}

/// Data of one row: its name, process, signatures by block size, and footprints in bytes.
struct Found {
    name: Value,
    process: Value,
    signatures: Vec<Vec<f64>>,
    bytes: Vec<u64>,
}

/// The summed signatures of some tags, by block size.
fn by_tags(bands: &[Band], tags: impl Iterator<Item = u32> + Clone) -> Vec<Vec<f64>> {
    let of = |band: &Band| {
        let mut sum = vec![0.0; BINS];
        for signature in tags
            .clone()
            .filter_map(|t| band.counts.objects.get(t as usize))
        {
            sum.iter_mut()
                .zip(signature)
                .for_each(|(s, &n)| *s += n as f64);
        }
        sum
    };
    bands.iter().map(of).collect()
}

/// Objects, each with its signatures. A block of the smallest size belongs to the object that
/// touched it first.
fn of_objects(sizes: &[u64], bands: &[Band], owners: &Owners, parts: &Parts) -> Vec<Found> {
    let Some(finest) = bands.first() else {
        return Vec::new();
    };
    let mut owned = finest.counts.owned.clone().unwrap_or_default();
    owned.iter_mut().for_each(|o| o.0 = parts.object(o.0));
    owned.sort_unstable();
    owned.dedup();
    let most = bands
        .iter()
        .map(|b| b.counts.objects.len())
        .max()
        .unwrap_or(0) as u32;
    let mut tags: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for tag in 0..most {
        tags.entry(parts.object(tag)).or_default().push(tag);
    }
    for &(object, ..) in &owned {
        tags.entry(object).or_default();
    }
    let mut out = Vec::new();
    for (number, tags) in tags {
        let signatures = by_tags(bands, tags.iter().copied());
        let mine = &owned
            [owned.partition_point(|o| o.0 < number)..owned.partition_point(|o| o.0 <= number)];
        if mine.is_empty() && signatures.iter().flatten().all(|&n| n == 0.0) {
            continue;
        }
        let blocks = |band: &Band| {
            let mut last = None;
            // The list is sorted: small blocks of a larger one are adjacent.
            mine.iter()
                .filter(|&&(_, process, block)| {
                    last.replace((process, block >> (band.shift - finest.shift)))
                        != Some((process, block >> (band.shift - finest.shift)))
                })
                .count() as u64
        };
        let bytes = bands
            .iter()
            .zip(sizes)
            .map(|(b, size)| blocks(b) * size)
            .collect();
        let object = owners.object(number);
        out.push(Found {
            name: Value::from(format!("{} {}", object.kind, object.name)),
            process: Value::Null,
            signatures,
            bytes,
        });
    }
    out
}

/// Functions and intervals.
fn of_parts(sizes: &[u64], bands: &[Band], parts: &Parts, code: &CodeMap) -> Vec<Found> {
    let finest = bands.first().map_or(0, |b| b.shift);
    let found = |(part, tags, blocks): (Part, Vec<u32>, &parts::BlockSet)| Found {
        name: Value::from(match part {
            Part::Function(f) => {
                let known = code.functions.get(f as usize).filter(|_| f != NO_FUNCTION);
                let name = known.map_or("[unknown]", |f| f.function.as_str());
                format!("function {name}")
            }
            Part::Interval(n) => format!("interval {n}"),
        }),
        process: Value::Null,
        signatures: by_tags(bands, tags.iter().copied()),
        bytes: bands
            .iter()
            .zip(sizes)
            .map(|(b, size)| blocks.count(b.shift - finest) * size)
            .collect(),
    };
    parts.list().into_iter().map(found).collect()
}

/// All rows that have signatures: the program, its regions, objects, functions and intervals.
fn places(
    sizes: &[u64],
    bands: &[Band],
    owners: &Owners,
    parts: &Parts,
    code: &CodeMap,
) -> Vec<Found> {
    let name = |r: &Region| {
        // The end of the address space does not fit into 64 bits.
        let end = u128::from(r.last + 1) << CHUNK;
        format!("{:#x}-{end:#x}", r.first << CHUNK)
    };
    let places = regions(bands)
        .into_iter()
        .map(|r| (Value::from(name(&r)), Some(r)));
    let sorted: Vec<Sorted<'_>> = bands.iter().map(Sorted::new).collect();
    let mut all: Vec<Found> = std::iter::once((Value::from("program"), None))
        .chain(places)
        .map(|(name, region)| Found {
            name,
            process: region.map_or(Value::Null, |r| Value::from(r.process)),
            signatures: sorted.iter().map(|b| b.signature(region)).collect(),
            bytes: sorted
                .iter()
                .zip(sizes)
                .map(|(b, size)| b.blocks(region) * size)
                .collect(),
        })
        .collect();
    if owners.known() {
        all.extend(of_objects(sizes, bands, owners, parts));
    }
    all.extend(of_parts(sizes, bands, parts, code));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_of_thousands_of_places_have_what_lies_in_them() {
        // Blocks of 64 bytes in every third chunk, of two processes, and one run of chunks; each is
        // touched twice.
        let mut bands: Vec<Band> = [6, 12, 21, 24].map(Band::new).into();
        for process in [1, 2] {
            bands.iter_mut().for_each(|b| b.begin(process));
            let far = (0..2000u64).map(|i| (1 << 40) + i * (3 << CHUNK));
            let close = (0..64u64).map(|i| (1 << 44) + i * (1 << 19));
            let address: Vec<u64> = far.chain(close).flat_map(|a| [a, a]).collect();
            let view = mgz_analyzer::commands::stream::View {
                address: &address,
                size: &vec![8; address.len()],
                group: &[],
            };
            bands
                .iter_mut()
                .for_each(|b| b.run(view, &vec![0; address.len()]));
        }
        for band in &mut bands {
            band.counts.touched.sort_unstable();
            band.counts.touched.dedup();
        }
        let found = regions(&bands);
        assert_eq!(found.len(), 2 * 2001);
        let sorted: Vec<Sorted<'_>> = bands.iter().map(Sorted::new).collect();
        let reuses = |band: &Sorted<'_>, region| band.signature(region).iter().sum::<f64>();
        for region in &found {
            let many = region.first == 1 << (44 - CHUNK);
            let (lines, chunks) = if many { (64, 16) } else { (1, 1) };
            assert_eq!(region.last - region.first + 1, chunks);
            let blocks: Vec<u64> = sorted.iter().map(|b| b.blocks(Some(*region))).collect();
            // Regions share blocks of 16 MiB that reach into several of them.
            assert_eq!(blocks, [lines, lines, chunks, if many { 2 } else { 1 }]);
            assert_eq!(reuses(&sorted[0], Some(*region)), lines as f64);
        }
        assert_eq!(sorted[0].blocks(None), 2 * 2064);
        assert_eq!(reuses(&sorted[0], None), 2.0 * 2064.0);
    }

    #[test]
    fn regions_of_large_blocks_reach_to_the_end_of_these() {
        let mut bands = vec![Band::new(24)];
        bands[0].begin(1);
        let view = mgz_analyzer::commands::stream::View {
            address: &[u64::MAX, 0],
            size: &[1, 1],
            group: &[],
        };
        bands[0].run(view, &[0, 0]);
        bands[0].counts.touched.sort_unstable();
        let region = |first, last| Region {
            process: 1,
            first,
            last,
        };
        let most = u64::MAX >> CHUNK;
        assert_eq!(regions(&bands), [region(0, 7), region(most - 7, most)]);
    }
}
