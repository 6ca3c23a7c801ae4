//! Filters: only some of the rows of a trace are analysed, as if no others had been recorded.
//!
//! Threads, processes and times select samples; functions, objects and addresses select rows. All
//! tables and views are computed from the remaining rows. The time that a window represents is
//! determined before rows are left out ([`Beginning`]): a window that begins in other code, or at
//! another object, represents none of the remaining time.

mod conditions;
mod narrowing;

use crate::data::chunk::Chunk;
use crate::data::code_map::CodeMap;
use crate::data::group::Group;
use crate::data::object_map::{Recent, Resolver};
use crate::data::rows::Run;
use crate::data::samples::{Beginning, SampleInfo};
use crate::estimate::time_shares::{TimeShare, TimeShares, counts_for};
use crate::input::selection;
use crate::input::source::ChunkSource;
use crate::input::weights::Weights;
use mgz_annotations_schema::TraceMode;
use mgz_annotations_schema::lock::locked;
use mgz_annotations_schema::manifest::Manifest;
use narrowing::Narrowing;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

pub use conditions::{Condition, Conditions, FilterError};
pub(crate) use conditions::{names, process_name, shortened};

/// Rows that pass the conditions.
pub(crate) struct Filter {
    conditions: Vec<Condition>,
    threads: Option<HashSet<(u32, u32)>>,
    /// `time_ns`.
    from: u64,
    to: u64,
    /// Begin of the first sample and end of the last one; 0 if no time was requested.
    ends: (u64, u64),
    /// True for each selected piece of code.
    code: Option<Vec<bool>>,
    /// True for each selected object.
    objects: Option<Vec<bool>>,
    /// First and last addresses of ranges; empty for all of memory.
    addresses: Vec<(u64, u64)>,
}

/// Description of the remaining rows, as in JSON.
#[derive(Clone, Debug, Serialize)]
pub struct FilterRow {
    /// Conditions given by the user.
    pub conditions: Vec<Condition>,
    /// Share of the run's time that is left, if windows are triggered by time.
    #[serde(flatten)]
    pub time: TimeShare,
    /// Share of the run's loads that is left, percent; unknown if windows are triggered by time.
    #[serde(rename = "A_pct")]
    pub share: Option<f64>,
    /// Recorded loads that are left.
    #[serde(rename = "A")]
    pub loads: u64,
    /// All recorded loads.
    #[serde(rename = "A_all")]
    pub all_loads: u64,
    /// True if rows were left out inside samples: distances and first touches are those among the
    /// remaining rows.
    pub inside_samples: bool,
}

impl Filter {
    /// Resolves `conditions` for a trace.
    pub(crate) fn new(
        conditions: &Conditions,
        manifest: &Manifest,
        code: &CodeMap,
        objects: Option<&Resolver>,
        source: &dyn ChunkSource,
    ) -> Result<Filter, FilterError> {
        let timed = conditions.from.is_some() || conditions.to.is_some();
        let samples = if timed || manifest.threads.is_empty() {
            selection::list(source)
        } else {
            Vec::new()
        };
        let first = samples.iter().map(|s| s.first_time).min().unwrap_or(0);
        let last = samples.iter().map(|s| s.last_time).max().unwrap_or(0);
        let after = |seconds: f64| first.saturating_add((seconds * 1e9) as u64);
        let mut told = Vec::new();
        let threads = conditions.threads_of(manifest, &samples, &mut told)?;
        let code = conditions.code_of(code, &mut told);
        let objects = conditions.objects_of(objects, &mut told)?;
        conditions.places_and_times(&mut told);
        Ok(Filter {
            conditions: told,
            threads,
            from: conditions.from.map_or(0, after),
            to: conditions.to.map_or(u64::MAX, after),
            ends: (first, last),
            code,
            objects,
            addresses: conditions.addresses.clone(),
        })
    }

    /// True if rows inside samples are checked one by one.
    fn inside_samples(&self) -> bool {
        self.code.is_some() || self.objects.is_some() || !self.addresses.is_empty()
    }

    fn has_thread(&self, process: u32, thread: u32) -> bool {
        let threads = self.threads.as_ref();
        threads.is_none_or(|t| t.contains(&(process, thread)))
    }

    fn has_time(&self, time: u64) -> bool {
        (self.from..=self.to).contains(&time)
    }

    fn has_group(&self, group: Group) -> bool {
        self.has_piece(group.piece() as usize)
    }

    fn has_piece(&self, piece: usize) -> bool {
        let code = self.code.as_ref();
        code.is_none_or(|c| c.get(piece).copied().unwrap_or(false))
    }

    fn has_address(&self, address: u64) -> bool {
        let ranges = &self.addresses;
        ranges.is_empty() || ranges.iter().any(|&(a, b)| (a..=b).contains(&address))
    }

    fn has_object(&self, object: u32) -> bool {
        let objects = self.objects.as_ref();
        objects.is_none_or(|o| o.get(object as usize).copied().unwrap_or(false))
    }
}

/// Numbers of loads and stores.
#[derive(Clone, Copy, Default)]
struct Sum {
    loads: u64,
    implied: u64,
    stores: u64,
    /// Loads, weighted by the number of loads that each represents.
    weighted: u128,
}

impl Sum {
    fn add(&mut self, other: &Sum) {
        self.loads += other.loads;
        self.implied += other.implied;
        self.stores += other.stores;
        self.weighted += other.weighted;
    }

    fn all(&self) -> u64 {
        self.loads + self.implied + self.stores
    }
}

/// Counts of a piece of the trace.
#[derive(Default)]
struct Met {
    all: Sum,
    kept: Sum,
    /// Rows by function and by object, before any are left out.
    functions: HashMap<u32, u64>,
    objects: HashMap<u32, u64>,
    /// Samples with their begin, and true if the load that they count for is left.
    windows: Vec<(SampleInfo, bool)>,
}

/// A source of the remaining rows.
pub(crate) struct Filtered<'a> {
    source: &'a dyn ChunkSource,
    filter: &'a Filter,
    code: &'a CodeMap,
    objects: Option<Arc<Resolver>>,
    weights: Option<Arc<Weights>>,
    /// Counts by piece.
    met: Mutex<BTreeMap<usize, Met>>,
}

impl<'a> Filtered<'a> {
    pub(crate) fn new(
        source: &'a dyn ChunkSource,
        filter: &'a Filter,
        code: &'a CodeMap,
        objects: Option<Arc<Resolver>>,
        weights: Option<Arc<Weights>>,
    ) -> Filtered<'a> {
        Filtered {
            source,
            filter,
            code,
            objects,
            weights,
            met: Mutex::default(),
        }
    }

    fn met(&self) -> MutexGuard<'_, BTreeMap<usize, Met>> {
        locked(&self.met)
    }

    /// The object of a row.
    fn object(&self, run: &Run, address: u64, time: u64, recent: &mut Recent) -> u32 {
        let Some(resolver) = &self.objects else {
            return 0;
        };
        let stack = resolver.own_stack(run.process, run.thread, run.first_time);
        stack
            .at(address)
            .unwrap_or_else(|| resolver.find_recent(recent, run.process, address, time))
    }

    /// True if the load that a window counts for is left.
    fn begins(&self, run: &Run, begin: Beginning, recent: &mut Recent) -> bool {
        let filter = self.filter;
        let spot = counts_for(begin, self.code);
        filter.has_thread(run.process, run.thread)
            && filter.has_time(run.first_time)
            && filter.has_group(spot.group)
            && filter.has_address(spot.address)
            && (filter.objects.is_none()
                || filter.has_object(self.object(run, spot.address, run.first_time, recent)))
    }

    /// Leaves out rows of a piece.
    fn narrow(&self, chunk: Chunk, piece: usize) -> Chunk {
        let mut narrowing = Narrowing::new(self, &chunk, piece);
        (0..chunk.runs.len()).for_each(|at| narrowing.run(at));
        let (met, left) = narrowing.finish();
        self.met().insert(piece, met);
        left.of(chunk)
    }

    /// Description of the remaining rows after a pass over all pieces.
    pub(crate) fn row(&self, manifest: &Manifest) -> FilterRow {
        let met = self.met();
        let (mut all, mut kept) = (Sum::default(), Sum::default());
        let mut windows: BTreeMap<u32, &(SampleInfo, bool)> = BTreeMap::new();
        for met in met.values() {
            all.add(&met.all);
            kept.add(&met.kept);
            for window in &met.windows {
                windows.entry(window.0.sample).or_insert(window);
            }
        }
        let by_time = manifest.triggers_by_time();
        let time = if by_time {
            let samples: Vec<SampleInfo> = windows.values().map(|w| w.0.clone()).collect();
            TimeShares::of_samples(&samples, self.weights.as_deref(), self.code)
                .of_spots(|sample, _| windows.get(&sample).is_some_and(|w| w.1))
        } else {
            TimeShare::default()
        };
        FilterRow {
            conditions: self.filter.conditions.clone(),
            time,
            share: (!by_time && all.weighted > 0)
                .then(|| kept.weighted as f64 * 100.0 / all.weighted as f64),
            loads: kept.loads,
            all_loads: all.loads,
            inside_samples: self.filter.inside_samples(),
        }
    }

    /// The manifest as if only those rows had been recorded.
    pub(crate) fn manifest(&self, manifest: &Manifest) -> Manifest {
        let (mut all, mut kept) = (Sum::default(), Sum::default());
        for met in self.met().values() {
            all.add(&met.all);
            kept.add(&met.kept);
        }
        let part = kept.all() as f64 / all.all().max(1) as f64;
        let mut narrowed = manifest.clone();
        let totals = &mut narrowed.totals;
        totals.loads_executed = totals.loads_executed.map(|n| {
            if kept.all() == all.all() {
                n
            } else {
                ((n as f64 * part).round() as u64).max(kept.loads + kept.implied)
            }
        });
        totals.loads_executed_estimate = totals.loads_executed_estimate.map(|n| n * part);
        let of = manifest
            .threads
            .iter()
            .filter(|t| self.filter.has_thread(t.process, t.thread));
        let (executed, records) = of.fold((0u64, 0u64), |(e, k), t| {
            (e + t.records_executed, k + t.records_kept)
        });
        if self.filter.threads.is_some() && records > 0 && executed >= records {
            (totals.records_executed, totals.records_kept) = (executed, records);
            // Each thread's ring keeps a different share of its records.
            if manifest.mode == TraceMode::Ring {
                totals.loads_executed_estimate = totals
                    .loads_executed_estimate
                    .map(|_| kept.all() as f64 * executed as f64 / records as f64);
            }
        }
        narrowed
    }

    /// Returns an error if rows existed and none is left.
    pub(crate) fn check(&self) -> Result<(), FilterError> {
        let met = self.met();
        if met.values().any(|m| m.kept.loads + m.kept.stores > 0)
            || met.values().all(|m| m.all.loads + m.all.stores == 0)
        {
            return Ok(());
        }
        let sum = |of: fn(&Met) -> &HashMap<u32, u64>| {
            let mut sums: HashMap<u32, u64> = HashMap::new();
            for (&key, &rows) in met.values().flat_map(&of) {
                *sums.entry(key).or_default() += rows;
            }
            let mut sums: Vec<(u32, u64)> = sums.into_iter().collect();
            sums.sort_by_key(|&(key, rows)| (std::cmp::Reverse(rows), key));
            sums.into_iter().map(|s| s.0)
        };
        let Filter { conditions, .. } = self.filter;
        let told: Vec<String> = conditions.iter().map(|c| c.to_string()).collect();
        let functions = sum(|m| &m.functions);
        let has_code = |function: u32| {
            let pieces = self.code.pieces.iter().enumerate();
            pieces
                .filter(|(_, p)| p.function == function)
                .any(|(at, _)| self.filter.has_piece(at))
        };
        let mut there = Vec::new();
        if self.filter.code.is_some() && !functions.clone().any(has_code) {
            let names = functions.map(|f| self.code.functions[f as usize].function.clone());
            there.push(format!("functions with loads: {}", shortened(names)));
        }
        let objects = sum(|m| &m.objects);
        if self.filter.objects.is_some() && !objects.clone().any(|o| self.filter.has_object(o)) {
            let name = |o: u32| Some(self.objects.as_ref()?.objects.get(o as usize)?.name.clone());
            let names = objects.filter_map(name).filter(|n| !n.is_empty());
            there.push(format!("objects with loads: {}", shortened(names)));
        }
        let (first, last) = self.filter.ends;
        if self.filter.from > last || self.filter.to < first {
            there.push(format!(
                "the samples go from 0 to {} s after the first",
                last.saturating_sub(first) as f64 / 1e9
            ));
        }
        Err(FilterError::Nothing {
            conditions: told.join(" "),
            there: if there.is_empty() {
                "each condition is met by some loads, but no load meets all of them".into()
            } else {
                there.join("; ")
            },
        })
    }
}

impl ChunkSource for Filtered<'_> {
    fn pieces(&self) -> usize {
        self.source.pieces()
    }

    fn piece_rows(&self, piece: usize) -> u64 {
        self.source.piece_rows(piece)
    }

    fn read(&self, pieces: &[usize]) -> Vec<Result<Chunk, (String, u64)>> {
        let chunks = self.source.read(pieces);
        chunks
            .into_iter()
            .zip(pieces)
            .map(|(read, &piece)| read.map(|chunk| self.narrow(chunk, piece)))
            .collect()
    }

    fn notes(&self) -> Vec<String> {
        self.source.notes()
    }
}
