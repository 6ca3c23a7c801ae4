//! `mgz-analyze affinity`: which hot lines, pages or regions are accessed together.

use clap::Args;
use mgz_analyzer::cli::trace;
use mgz_analyzer::columns;
use mgz_analyzer::commands::ensure_accesses;
use mgz_analyzer::commands::stream::Accesses;
use mgz_analyzer::commands::{Common, block_size, open_trace, require_full, visit, warn_of_gaps};
use mgz_analyzer::data::group::Group;
use mgz_analyzer::data::memory_units::PAGE_BYTES;
use mgz_analyzer::input::{ColumnSet, Trace};
use mgz_analyzer::output::document::{ColumnUnit, Document, DocumentTable, maybe, value};
use mgz_models::affinity::Affinity;
use mgz_models::affinity_groups::{groups, signature, signature_distance};
use mgz_models::histogram::Fine;
use mgz_models::reuse::{ReuseEngine, ReuseSink};
use serde_json::Value;
use std::collections::HashMap;
use std::path::PathBuf;

const EXAMPLES_HELP: &str = "\
Examples:
  mgz-analyze affinity trace                  the 16 hottest cache lines
  mgz-analyze affinity trace --block 4K       pages
  mgz-analyze affinity trace --regions
      runs of neighbouring pages
  mgz-analyze affinity trace --hot 64 --reach 256 --format json";

/// Arguments of `affinity`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES_HELP)]
pub struct AffinityArguments {
    /// The folder that mgz-record or mgz run wrote.
    #[arg(value_parser = trace())]
    pub trace: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
    /// Bytes of a place: a power of two.
    #[arg(long, default_value = "64", value_parser = block_size)]
    pub block: u64,
    /// Take regions as places: runs of touched 4 KiB pages whose gaps are below 64 KiB.
    #[arg(long, conflicts_with = "block")]
    pub regions: bool,
    /// Number of hot places.
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=512))]
    pub hot: u64,
    /// Maximum number of accesses between two accesses that count as near.
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub reach: u64,
    /// Count recorded stores as accesses too.
    #[arg(long)]
    pub stores: bool,
}

/// Pages of a gap that does not end a region.
const GAP_PAGES: u64 = 16;

/// Relative resolution of reuse distances, in bits.
const DISTANCE_BITS: u32 = 8;
/// Share of the accesses to two places that must have the other one within reach for a link. The
/// definition requires all accesses. Here the begin and the end of a loop may differ.
const LINKED: f64 = 0.95;

/// A hot place.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hot {
    process: u32,
    first: u64,
    bytes: u64,
    accesses: u64,
}

/// Runs the command. The flag is true if a part of the trace could not be read.
pub fn run_affinity(arguments: &AffinityArguments) -> anyhow::Result<(Document, bool)> {
    let mut document = Document::new("affinity");
    let trace = open_trace(&arguments.trace, &arguments.common, &mut document)?;
    require_full(&trace, "affinity", "")?;
    warn_of_gaps(&trace, &mut document);
    let shift = if arguments.regions {
        12
    } else {
        arguments.block.trailing_zeros()
    };
    let mut counts: HashMap<(u32, u64), u64> = HashMap::new();
    let mut buffer = Accesses::default();
    let mut accesses = 0u64;
    let damaged = visit(
        &trace,
        ColumnSet::default(),
        &mut document,
        &mut |segment| {
            let view = segment.accesses(arguments.stores, &mut buffer);
            accesses += view.len() as u64;
            let mut at = 0;
            while at < view.len() {
                // Consecutive accesses to one block are counted at once.
                let block = view.address[at] >> shift;
                let same = view.address[at..]
                    .iter()
                    .take_while(|&&a| a >> shift == block)
                    .count();
                *counts.entry((segment.run.process, block)).or_default() += same as u64;
                at += same;
            }
        },
    );
    ensure_accesses(accesses, &trace)?;
    let hot = hottest(&counts, shift, arguments);
    let mut index = Index::new();
    for (number, place) in hot.iter().enumerate() {
        for block in place.first >> shift..(place.first + place.bytes) >> shift {
            index.insert((place.process, block), number as u32);
        }
    }
    let counted = Counted::of(&trace, arguments, &index, hot.len(), shift);
    document.put("A", ColumnUnit::Count, accesses);
    document.put("reach", ColumnUnit::Count, arguments.reach);
    document.put(
        "hot_share",
        ColumnUnit::Share,
        value(hot.iter().map(|h| h.accesses).sum::<u64>() as f64 / accesses as f64),
    );
    tables(&hot, &counted.affinity, &mut document);
    let groups = groups_table(&hot, &counted, arguments.reach as f64);
    document.tables.push(groups);
    Ok((document, damaged))
}

/// Numbers of hot places by process and block.
type Index = HashMap<(u32, u64), u32>;

/// Counts of the second pass.
struct Counted {
    affinity: Affinity,
    /// Reuse distances of each place, in blocks.
    distances: Vec<Fine>,
}

/// Reuse distances of hot places.
struct Distances<'a> {
    index: &'a Index,
    process: u32,
    /// The last block, and the index of its place.
    memo: (u64, Option<u32>),
    of: &'a mut [Fine],
}

impl ReuseSink for Distances<'_> {
    fn first(&mut self, _row: u64, _block: u64, _tag: u32) {}

    #[inline]
    fn reuse(&mut self, _row: u64, block: u64, _tag: u32, distance: u64, _interval: u64) {
        if self.memo.0 != block {
            self.memo = (block, self.index.get(&(self.process, block)).copied());
        }
        if let Some(place) = self.memo.1 {
            self.of[place as usize].add(distance);
        }
    }

    fn done(&mut self, _row: u64, _tag: u32) {}
}

impl Counted {
    /// Reads all accesses again. The first pass has already reported everything about the trace.
    fn of(
        trace: &Trace,
        arguments: &AffinityArguments,
        index: &Index,
        hot: usize,
        shift: u32,
    ) -> Counted {
        let mut affinity = Affinity::new(hot, arguments.reach);
        let mut distances = vec![Fine::new(DISTANCE_BITS); hot];
        let mut engine = ReuseEngine::new(shift);
        let mut buffer = Accesses::default();
        let mut again = Document::new("affinity");
        visit(trace, ColumnSet::default(), &mut again, &mut |segment| {
            let process = segment.run.process;
            if segment.starts {
                affinity.cut();
                engine.begin();
            }
            let view = segment.accesses(arguments.stores, &mut buffer);
            let mut memo = (u64::MAX, None);
            for &address in view.address {
                let block = address >> shift;
                if memo.0 != block {
                    memo = (block, index.get(&(process, block)).copied());
                }
                match memo.1 {
                    Some(place) => affinity.access(place),
                    None => affinity.other(),
                }
            }
            let mut sink = Distances {
                index,
                process,
                memo: (u64::MAX, None),
                of: &mut distances,
            };
            let tags = Group::raw_slice(view.group);
            engine.run(view.address, view.size, tags, &mut sink);
        });
        Counted {
            affinity,
            distances,
        }
    }
}

fn hottest(
    counts: &HashMap<(u32, u64), u64>,
    shift: u32,
    arguments: &AffinityArguments,
) -> Vec<Hot> {
    let mut places: Vec<Hot> = counts
        .iter()
        .map(|(&(process, block), &accesses)| Hot {
            process,
            first: block << shift,
            bytes: 1 << shift,
            accesses,
        })
        .collect();
    if arguments.regions {
        places.sort_by_key(|p| (p.process, p.first));
        let mut merged: Vec<Hot> = Vec::new();
        for page in places {
            match merged.last_mut() {
                Some(last)
                    if last.process == page.process
                        && page.first - (last.first + last.bytes) < GAP_PAGES * PAGE_BYTES =>
                {
                    last.bytes = page.first + page.bytes - last.first;
                    last.accesses += page.accesses;
                }
                _ => merged.push(page),
            }
        }
        places = merged;
    }
    places.sort_by(|a, b| {
        b.accesses
            .cmp(&a.accesses)
            .then((a.process, a.first).cmp(&(b.process, b.first)))
    });
    places.truncate(arguments.hot as usize);
    places
}

fn tables(hot: &[Hot], affinity: &Affinity, document: &mut Document) {
    document.tables.extend([
        places_table(hot, affinity),
        pairs_table(hot, affinity),
        matrix_table(hot, affinity),
    ]);
}

/// Lists the places, each with its counts as a pair with itself.
fn places_table(hot: &[Hot], affinity: &Affinity) -> DocumentTable {
    let places = hot.iter().enumerate().map(|(i, h)| {
        vec![
            Value::from(i),
            Value::from(h.process),
            Value::from(h.first),
            Value::from(h.bytes),
            Value::from(h.accesses),
            maybe(affinity.affinity(i, i)),
            maybe(affinity.interval(i, i)),
            maybe(affinity.density(i, i)),
        ]
    });
    DocumentTable {
        name: "places",
        title: "Hot places (SA, SI, SD of a place with itself: reuse, interval, density)".into(),
        columns: columns![
            place: Id, process: Id, address: Address, bytes: Bytes, A: Count, SA: Number,
            SI: Number, SD: Number,
        ]
        .to_vec(),
        rows: places.collect(),
        text_rows: usize::MAX,
    }
}

/// A pair of places, and what placing them next to each other would save.
struct Pair {
    x: usize,
    y: usize,
    saved: u64,
    by_chance: f64,
}

impl Pair {
    fn of(x: usize, y: usize, affinity: &Affinity) -> Pair {
        Pair {
            x,
            y,
            saved: affinity.pair(x, y).saved + affinity.pair(y, x).saved,
            by_chance: affinity.by_chance(x, y) + affinity.by_chance(y, x),
        }
    }

    fn beyond_chance(&self) -> f64 {
        self.saved as f64 - self.by_chance
    }
}

/// Lists the pairs of a process by the savings beyond chance.
fn pairs_table(hot: &[Hot], affinity: &Affinity) -> DocumentTable {
    let mut pairs = Vec::new();
    for x in 0..hot.len() {
        for y in x + 1..hot.len() {
            if hot[x].process == hot[y].process {
                pairs.push(Pair::of(x, y, affinity));
            }
        }
    }
    pairs.retain(|p| p.saved > 0);
    pairs.sort_by(|a, b| {
        let order = b.beyond_chance().total_cmp(&a.beyond_chance());
        order.then((a.x, a.y).cmp(&(b.x, b.y)))
    });
    let total: u64 = hot.iter().map(|h| h.accesses).sum();
    let rows = pairs.iter().map(|pair| {
        let (x, y) = (pair.x, pair.y);
        vec![
            Value::from(x),
            Value::from(y),
            Value::from(hot[x].first),
            Value::from(hot[y].first),
            Value::from(pair.saved),
            value(pair.by_chance),
            value(pair.saved as f64 / total.max(1) as f64),
            maybe(affinity.affinity(x, y)),
            maybe(affinity.affinity(y, x)),
            maybe(affinity.interval(x, y)),
            maybe(affinity.interval(y, x)),
        ]
    });
    DocumentTable {
        name: "pairs",
        title: "Pairs by what lying together would save beyond chance (saved: accesses that would find their place at hand)"
            .into(),
        columns: columns![
            x: Id, y: Id, address_x: Address, address_y: Address, saved: Count,
            saved_by_chance: Number, saved_share: Share, SA_xy: Number, SA_yx: Number,
            SI_xy: Number, SI_yx: Number,
        ].to_vec(),
        rows: rows.collect(),
        text_rows: usize::MAX,
    }
}

/// Lists the groups, by reference affinity and by k-distance.
fn groups_table(hot: &[Hot], counted: &Counted, k: f64) -> DocumentTable {
    let same = |x: usize, y: usize| hot[x].process == hot[y].process;
    let signatures: Vec<_> = counted.distances.iter().map(signature).collect();
    let apart = |x: usize, y: usize| match (&signatures[x], &signatures[y]) {
        (Some(a), Some(b)) => signature_distance(a, b),
        _ => f64::INFINITY,
    };
    let together = |x: usize, y: usize| counted.affinity.together(x, y);
    let by_use = groups(hot.len(), |x, y| same(x, y) && together(x, y) >= LINKED);
    let by_distance = groups(hot.len(), |x, y| same(x, y) && apart(x, y) <= k);
    let methods = [("reference affinity", by_use), ("k-distance", by_distance)];
    let mut rows = Vec::new();
    for (method, found) in &methods {
        for members in found {
            let pairs = members
                .iter()
                .flat_map(|&x| members.iter().map(move |&y| (x, y)));
            let pairs: Vec<_> = pairs.filter(|(x, y)| x < y).collect();
            let least = pairs
                .iter()
                .map(|&(x, y)| together(x, y))
                .fold(1.0, f64::min);
            let most = pairs.iter().map(|&(x, y)| apart(x, y)).fold(0.0, f64::max);
            let names: Vec<String> = members.iter().map(usize::to_string).collect();
            let accesses: u64 = members.iter().map(|&x| hot[x].accesses).sum();
            rows.push(vec![
                Value::from(*method),
                Value::from(names.join(" ")),
                Value::from(members.len()),
                Value::from(accesses),
                value(least),
                maybe(most.is_finite().then_some(most)),
            ]);
        }
    }
    DocumentTable {
        name: "groups",
        title: "Groups of places (together: least share of accesses to one of two places that have the other one within reach)".into(),
        columns: columns![
            method: Text, places: Text, count: Count, A: Count, together: Share,
            signatures_apart: Number,
        ].to_vec(),
        rows,
        text_rows: usize::MAX,
    }
}

/// Lists all pairs.
fn matrix_table(hot: &[Hot], affinity: &Affinity) -> DocumentTable {
    let mut matrix = Vec::new();
    for x in 0..hot.len() {
        for y in 0..hot.len() {
            matrix.push(vec![
                Value::from(x),
                Value::from(y),
                maybe(affinity.affinity(x, y)),
                maybe(affinity.interval(x, y)),
                maybe(affinity.density(x, y)),
                Value::from(affinity.pair(x, y).saved),
            ]);
        }
    }
    let columns = columns![x: Id, y: Id, SA: Number, SI: Number, SD: Number, saved: Count].to_vec();
    DocumentTable {
        name: "matrix",
        title: String::new(),
        columns,
        rows: matrix,
        text_rows: 0,
    }
}
