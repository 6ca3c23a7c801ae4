//! `mgz-analyze spectra`: reuse distance at several block sizes at once (Cabrera, Chamberlain, Beard 2019).

mod bands;
mod verdict;

use super::document::{Column, Document, Table, Unit, maybe, value};
use super::owners::Owners;
use super::stream::{Accesses, Segment};
use super::{Common, block_size, open, require_full, visit, warn_of_gaps};
use crate::input::ColumnSet;
use bands::{BINS, Band, CHUNK};
use clap::Args;
use mgz_models::emd;
use serde_json::Value;
use std::path::PathBuf;
use verdict::judge;

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
/// Runs the command. Also tells whether something could not be read.
pub fn run(arguments: &SpectraArguments) -> anyhow::Result<(Document, bool)> {
    let mut document = Document::new("spectra");
    let mut sizes = arguments.granularity.clone();
    sizes.sort_unstable();
    sizes.dedup();
    let trace = open(&arguments.trace, &arguments.common, &mut document)?;
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
    let mut objects = Vec::new();
    let mut each = |segment: &Segment<'_>| {
        if segment.starts {
            bands.iter_mut().for_each(|b| b.begin(segment.run.process));
        }
        let view = segment.accesses(arguments.stores, &mut buffer);
        accesses += view.len() as u64;
        objects.clear();
        owners.fill(
            segment.run.process,
            view.address,
            (segment.run.first_time, segment.run.last_time),
            &mut objects,
        );
        let mut at = 0;
        while at < view.len() {
            let end = (at + PIECE).min(view.len());
            bands
                .iter_mut()
                .for_each(|b| b.run(view.slice(at..end), &objects[at..end]));
            at = end;
        }
    };
    let damaged = visit(&trace, ColumnSet { time: known }, &mut document, &mut each);
    anyhow::ensure!(
        accesses > 0,
        "{}: the trace has no accesses to measure",
        arguments.trace.display()
    );
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
                sum.iter_mut()
                    .zip(&band.counts.signatures[at])
                    .for_each(|(s, &n)| *s += n as f64);
            }
        }
        sum
    }

    fn blocks(&self, band: &Band) -> u64 {
        let chunk = |block: u64| {
            if band.shift <= CHUNK {
                block >> (CHUNK - band.shift)
            } else {
                block << (band.shift - CHUNK)
            }
        };
        band.counts
            .touched
            .iter()
            .filter(|t| self.holds(t.0, chunk(t.1)))
            .count() as u64
    }
}

/// Maximal runs of touched 2 MiB chunks.
fn regions(bands: &[Band]) -> Vec<Place> {
    let mut chunks: Vec<(u32, u64)> = bands
        .first()
        .map(|b| {
            b.counts
                .touched
                .iter()
                .map(|&(p, block)| (p, (block << b.shift) >> CHUNK))
                .collect()
        })
        .unwrap_or_default();
    chunks.dedup();
    let mut out: Vec<Place> = Vec::new();
    for (process, chunk) in chunks {
        match out.last_mut() {
            Some(last) if last.process == process && last.last + 1 == chunk => last.last = chunk,
            _ => out.push(Place {
                process,
                first: chunk,
                last: chunk,
                all: false,
            }),
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
    let Some(finest) = bands.first() else {
        return Vec::new();
    };
    let mut owned = finest.counts.owned.clone().unwrap_or_default();
    owned.sort_unstable();
    owned.dedup();
    let most = bands
        .iter()
        .map(|b| b.counts.objects.len())
        .max()
        .unwrap_or(0) as u32;
    let mut out = Vec::new();
    for number in 0..most {
        let signatures: Vec<Vec<f64>> = bands
            .iter()
            .map(|b| {
                b.counts.objects.get(number as usize).map_or_else(
                    || vec![0.0; BINS],
                    |s| s.iter().map(|&n| n as f64).collect(),
                )
            })
            .collect();
        let mine = &owned
            [owned.partition_point(|o| o.0 < number)..owned.partition_point(|o| o.0 <= number)];
        if mine.is_empty() && signatures.iter().flatten().all(|&n| n == 0.0) {
            continue;
        }
        let blocks = |band: &Band| {
            let mut last = None;
            // Sorted: blocks of a larger size follow each other.
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

fn results(sizes: &[u64], bands: &[Band], owners: &Owners, document: &mut Document) {
    let whole = Place {
        process: 0,
        first: 0,
        last: 0,
        all: true,
    };
    let mut places = vec![(Value::from("program"), whole)];
    places.extend(regions(bands).into_iter().map(|r| {
        (
            Value::from(format!(
                "{:#x}-{:#x}",
                r.first << CHUNK,
                (r.last + 1) << CHUNK
            )),
            r,
        )
    }));
    let mut all: Vec<Found> = places
        .into_iter()
        .map(|(name, place)| Found {
            name,
            process: if place.all {
                Value::Null
            } else {
                Value::from(place.process)
            },
            signatures: bands.iter().map(|b| place.signature(b)).collect(),
            bytes: bands
                .iter()
                .zip(sizes)
                .map(|(b, size)| place.blocks(b) * size)
                .collect(),
        })
        .collect();
    if owners.known() {
        all.extend(of_objects(sizes, bands, owners));
    }
    let mut signatures = Vec::new();
    let mut footprints = Vec::new();
    let mut moves = Vec::new();
    let mut advice = Vec::new();
    for Found {
        name,
        process,
        signatures: found,
        bytes,
    } in &all
    {
        let reuses: f64 = found.first().map_or(0.0, |s| s.iter().sum());
        for ((signature, &size), &footprint) in found.iter().zip(sizes).zip(bytes) {
            let total: f64 = signature.iter().sum();
            let last = signature
                .iter()
                .rposition(|&n| n > 0.0)
                .map_or(0, |l| l + 1);
            for (i, n) in signature.iter().enumerate().take(last) {
                let from = if i == 0 { 0u64 } else { 2 << i };
                signatures.push(vec![
                    name.clone(),
                    process.clone(),
                    Value::from(size),
                    Value::from(from),
                    Value::from(4u64 << i),
                    value(*n),
                    value(n / total),
                ]);
            }
            let normalised = footprint as f64 / bytes[0].max(1) as f64;
            footprints.push(vec![
                name.clone(),
                process.clone(),
                Value::from(size),
                Value::from(footprint / size),
                Value::from(footprint),
                value(normalised),
                value(1.0 / normalised.max(1e-300)),
            ]);
        }
        for i in 1..found.len() {
            moves.push(vec![
                name.clone(),
                process.clone(),
                Value::from(sizes[i - 1]),
                Value::from(sizes[i]),
                maybe(emd::distance(&found[i - 1], &found[i])),
                maybe(emd::shift(&found[i - 1], &found[i])),
            ]);
        }
        if reuses > 0.0 {
            let verdict = judge(sizes, found, bytes);
            let cells = [
                Value::from(verdict.prototype),
                Value::from(verdict.page),
                value(verdict.utilisation),
                Value::from(verdict.text),
            ];
            advice.push(
                [
                    vec![
                        name.clone(),
                        process.clone(),
                        value(reuses),
                        Value::from(bytes[0]),
                    ],
                    cells.to_vec(),
                ]
                .concat(),
            );
        }
    }
    // Hottest regions first; the program stays on top.
    advice[1..].sort_by(|a, b| {
        b[2].as_f64()
            .unwrap_or(0.0)
            .total_cmp(&a[2].as_f64().unwrap_or(0.0))
    });
    let whose = [Column("where", Unit::Text), Column("process", Unit::Text)];
    let table = |name, title: &str, columns: &[Column], rows: Vec<Vec<Value>>, text_rows| Table {
        name,
        title: title.into(),
        columns: whose.iter().chain(columns).copied().collect(),
        rows,
        text_rows,
    };
    document.tables.push(table(
        "advice",
        "Advice (footprint in the smallest blocks; utilisation of the page size advised)",
        &[
            Column("reuses", Unit::Number),
            Column("footprint", Unit::Bytes),
            Column("prototype", Unit::Text),
            Column("page", Unit::Bytes),
            Column("utilisation", Unit::Share),
            Column("advice", Unit::Text),
        ],
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
        &[
            Column("granularity", Unit::Bytes),
            Column("blocks", Unit::Number),
            Column("bytes", Unit::Bytes),
            Column("normalised", Unit::Number),
            Column("utilisation", Unit::Share),
        ],
        footprints,
        usize::MAX,
    ));
    document.tables.push(table(
        "signatures",
        "Reuse signatures (distances in blocks)",
        &[
            Column("granularity", Unit::Bytes),
            Column("from", Unit::Number),
            Column("to", Unit::Number),
            Column("count", Unit::Number),
            Column("share", Unit::Share),
        ],
        signatures,
        96,
    ));
}
