//! The tables of threads and processes.
//!
//! They need a separate pass, in which the rows of each thread are a bucket. The threads with the
//! most rows have rows in the table; the other threads of a process share one.

use crate::data::chunk::Chunk;
use crate::data::code_map::CodeMap;
use crate::data::counts::Metrics;
use crate::data::group::Group;
use crate::data::samples::SampleInfo;
use crate::engine::{
    Aids, BucketOutcome, Collect, EngineOptions, EngineOutcome, ReuseTotals, analyse_with,
};
use crate::estimate::row_estimates::{Hats, RegionEstimator};
use crate::estimate::time_shares::TimeShare;
use crate::estimate::{Design, Estimate, Grouped, ReplicateLoads, executed_loads, loads_by_speed};
use crate::filter::{names, process_name};
use crate::input::source::ChunkSource;
use crate::report::Summary;
use crate::stages::footprint::{FootprintSet, add_counts};
use crate::util::fast_hash::Mixed;
use crate::views::context::Basis;
use crate::views::whole_counts;
use mgz_annotations_schema::TraceMode;
use mgz_annotations_schema::lock::locked;
use mgz_annotations_schema::manifest::Manifest;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

/// Source: Chosen.
const MAX_THREAD_ROWS: usize = 256;

/// Numbers of the loads of a thread or process.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ByThread {
    /// Samples.
    pub samples: u64,
    /// Share of the time, if windows are triggered by time.
    #[serde(flatten)]
    pub time: TimeShare,
    /// Share of the executed loads, percent; unknown unless those of all threads are known.
    #[serde(rename = "A_pct")]
    pub share: Option<f64>,
    /// Metrics.
    #[serde(flatten)]
    pub metrics: Metrics,
    /// Estimates for the whole run.
    #[serde(flatten)]
    pub hats: Hats,
}

impl ByThread {
    /// True if a filter has removed all of it.
    fn is_empty(&self) -> bool {
        self.metrics.accesses + self.metrics.implied + self.metrics.stores.unwrap_or(0) == 0
    }

    fn weight(&self) -> f64 {
        self.time.value.or(self.share).unwrap_or(0.0)
    }
}

/// A thread.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ThreadRow {
    /// Its process.
    pub process: u32,
    /// System thread id; none for the combined row of a process's threads without their own rows.
    pub thread: Option<u32>,
    /// Its name, if it was recorded; for a combined row, the number of threads.
    pub name: String,
    /// Its loads.
    #[serde(flatten)]
    pub loads: ByThread,
}

/// A process.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ProcessRow {
    /// System process id.
    pub process: u32,
    /// Name of its first thread, if it was recorded.
    pub name: String,
    /// Threads with samples.
    pub threads: u64,
    /// Its loads.
    #[serde(flatten)]
    pub loads: ByThread,
}

/// The rows of a trace, each in the bucket of its thread.
struct Dealt<'a> {
    source: &'a dyn ChunkSource,
    buckets: Mutex<Buckets>,
}

/// Numbers of buckets.
#[derive(Default)]
struct Buckets {
    /// Buckets of threads with their own bucket.
    own: BTreeMap<(u32, u32), u32>,
    /// Buckets of the other threads of a process.
    rest: BTreeMap<u32, u32>,
    /// Process and thread of each.
    list: Vec<(u32, Option<u32>)>,
}

impl Buckets {
    /// Assigns a bucket to each of the threads with the most rows.
    fn new(manifest: &Manifest) -> Buckets {
        let mut buckets = Buckets::default();
        let mut threads: Vec<_> = manifest.threads.iter().collect();
        threads.sort_by_key(|t| (std::cmp::Reverse(t.rows), t.process, t.thread));
        for t in threads.into_iter().take(MAX_THREAD_ROWS) {
            buckets.add(t.process, t.thread);
        }
        buckets
    }

    fn add(&mut self, process: u32, thread: u32) -> u32 {
        let next = self.list.len() as u32;
        let list = &mut self.list;
        *self.own.entry((process, thread)).or_insert_with(|| {
            list.push((process, Some(thread)));
            next
        })
    }

    fn of(&mut self, process: u32, thread: u32) -> u32 {
        if let Some(&bucket) = self.own.get(&(process, thread)) {
            return bucket;
        }
        if self.own.len() < MAX_THREAD_ROWS {
            return self.add(process, thread);
        }
        let next = self.list.len() as u32;
        let list = &mut self.list;
        *self.rest.entry(process).or_insert_with(|| {
            list.push((process, None));
            next
        })
    }
}

impl ChunkSource for Dealt<'_> {
    fn pieces(&self) -> usize {
        self.source.pieces()
    }

    fn piece_rows(&self, piece: usize) -> u64 {
        self.source.piece_rows(piece)
    }

    fn read(&self, pieces: &[usize]) -> Vec<Result<Chunk, (String, u64)>> {
        let mut buckets = locked(&self.buckets);
        let mut chunks = self.source.read(pieces);
        for run in chunks.iter_mut().flatten().flat_map(|c| &mut c.runs) {
            run.bucket = buckets.of(run.process, run.thread);
        }
        chunks
    }
}

struct Maker<'a> {
    manifest: &'a Manifest,
    code: &'a CodeMap,
    basis: &'a Basis<'a>,
    outcome: &'a EngineOutcome,
}

impl Maker<'_> {
    /// The row of some threads. `bucket` has their counts, `has` selects their samples, and `seen`
    /// has the addresses that these saw.
    fn row(
        &self,
        bucket: &BucketOutcome,
        has: &dyn Fn(u32) -> bool,
        threads: &dyn Fn(u32, u32) -> bool,
        seen: Option<&crate::estimate::Kinds>,
    ) -> ByThread {
        let basis = self.basis;
        let counts = whole_counts(bucket, self.code);
        let samples: u64 = bucket.reuse.samples.iter().sum();
        let marked = (self.outcome.samples.iter())
            .map(|s| s.sample)
            .filter(|&s| has(s) && basis.incidence.has(s));
        let windows = basis.shares.as_ref().map(|shares| shares.windows(marked));
        let design = basis.places.design.map(|d| Design {
            samples,
            windows,
            share: self.kept(threads).unwrap_or(d.share),
            ..d
        });
        let time = basis.times.as_ref().map(|t| t.of_spots(|s, _| has(s)));
        let loads = match (time, &basis.times, self.outcome.weights.as_deref()) {
            (Some(time), Some(times), Some(weights)) => {
                let of = times.spots().iter().map(|s| s.0).filter(|&s| has(s));
                loads_by_speed(&of.collect::<Vec<u32>>(), weights, time)
            }
            (Some(_), ..) => None,
            _ => design.and_then(|design| self.executed(bucket, design)),
        };
        let hats = RegionEstimator {
            design,
            ..basis.places
        }
        .make(
            seen,
            basis.incidence.scale(),
            &counts,
            loads.map(|e| e.hi),
            None,
        );
        let hats = Hats {
            samples_seen: Some(samples),
            accesses: loads.map(|e| e.value),
            accesses_lo: loads.map(|e| e.lo),
            accesses_hi: loads.map(|e| e.hi),
            ..hats
        };
        ByThread {
            samples,
            time: time.unwrap_or_default(),
            share: None,
            metrics: counts
                .metrics()
                .with_distances(&bucket.reuse.all_distances()),
            hats: match time {
                Some(time) => hats.marked_by(time),
                None => hats,
            },
        }
    }

    /// Share of these threads' records that was kept, from the counters of each thread.
    fn kept(&self, threads: &dyn Fn(u32, u32) -> bool) -> Option<f64> {
        let of = self.manifest.threads.iter();
        let of = of.filter(|t| threads(t.process, t.thread));
        let (executed, kept) = of.fold((0u64, 0u64), |(e, k), t| {
            (e + t.records_executed, k + t.records_kept)
        });
        (self.manifest.mode == TraceMode::Ring && kept > 0 && executed >= kept)
            .then(|| kept as f64 / executed as f64)
    }

    fn executed(&self, bucket: &BucketOutcome, design: Design) -> Option<Estimate> {
        let mut sums = ReplicateLoads::default();
        for (group, replicates) in bucket.reuse.replicates.iter().enumerate() {
            let rows = bucket.counts.get(group).copied().unwrap_or_default();
            if let Some(replicates) = replicates
                && !Group::from_index(group).is_store()
            {
                sums.add(replicates, rows.rows + rows.implied);
            }
        }
        executed_loads(&sums, &bucket.reuse.samples, design)
    }
}

/// The samples of the threads and processes that have rows in the tables.
struct Places {
    buckets: Buckets,
    processes: Vec<u32>,
    /// By sample: its bucket and its process.
    of_sample: HashMap<u32, (u32, u32), Mixed>,
    /// By thread: its bucket.
    threads: HashMap<(u32, u32), u32>,
}

impl Places {
    fn new(buckets: Buckets, samples: &[SampleInfo]) -> Places {
        let mut processes: Vec<u32> = buckets.list.iter().map(|b| b.0).collect();
        processes.sort_unstable();
        processes.dedup();
        let mut of_sample: HashMap<u32, (u32, u32), Mixed> = HashMap::default();
        let mut threads: HashMap<(u32, u32), u32> = HashMap::new();
        for sample in samples {
            let key = (sample.process, sample.thread);
            let own = buckets.own.get(&key);
            let Some(&bucket) = own.or_else(|| buckets.rest.get(&sample.process)) else {
                continue;
            };
            let process = processes.binary_search(&sample.process).unwrap_or(0) as u32;
            of_sample.insert(sample.sample, (bucket, process));
            threads.insert(key, bucket);
        }
        Places {
            buckets,
            processes,
            of_sample,
            threads,
        }
    }

    fn of(&self, sample: u32) -> Option<(u32, u32)> {
        self.of_sample.get(&sample).copied()
    }

    /// Addresses that the samples of each bucket, or of each process, have seen.
    fn seen(&self, basis: &Basis<'_>, of: fn((u32, u32)) -> u32) -> Grouped {
        let all: Vec<u32> = (0..self.buckets.list.len() as u32).collect();
        Grouped::by_mark(basis.incidence, basis.shares.as_ref(), |_, mark| {
            let place = self.of(mark.sample);
            place.map_or(&[][..], |p| std::slice::from_ref(&all[of(p) as usize]))
        })
    }
}

type Names = BTreeMap<(u32, u32), String>;

impl Maker<'_> {
    /// Makes the rows of threads. `seen` has addresses by bucket.
    fn thread_rows(
        &self,
        places: &Places,
        found: &[BucketOutcome],
        seen: &Grouped,
        names: &Names,
    ) -> Vec<ThreadRow> {
        let mut rows = Vec::new();
        for (number, (bucket, &(process, thread))) in
            (0..).zip(found.iter().zip(&places.buckets.list))
        {
            let of = places.threads.values().filter(|&&b| b == number).count();
            if of == 0 {
                continue;
            }
            let loads = self.row(
                bucket,
                &|s| places.of(s).is_some_and(|p| p.0 == number),
                &|p, t| places.threads.get(&(p, t)) == Some(&number),
                seen.of(number),
            );
            if loads.is_empty() {
                continue;
            }
            rows.push(ThreadRow {
                process,
                thread,
                name: match thread {
                    Some(thread) => names.get(&(process, thread)).cloned().unwrap_or_default(),
                    None => format!("{of} other threads"),
                },
                loads,
            });
        }
        rows
    }

    /// Makes the rows of processes. `seen` has addresses by process.
    fn process_rows(
        &self,
        places: &Places,
        found: Vec<BucketOutcome>,
        seen: &Grouped,
        names: &Names,
    ) -> Vec<ProcessRow> {
        let processes = &places.processes;
        let mut of_processes: Vec<Vec<BucketOutcome>> = Vec::new();
        of_processes.resize_with(processes.len(), Vec::new);
        for (bucket, &(process, _)) in found.into_iter().zip(&places.buckets.list) {
            if let Ok(at) = processes.binary_search(&process) {
                of_processes[at].push(bucket);
            }
        }
        let mut rows = Vec::new();
        for (number, (of, &process)) in (0..).zip(of_processes.into_iter().zip(processes)) {
            let count = places.threads.keys().filter(|t| t.0 == process).count();
            if count == 0 {
                continue;
            }
            let loads = self.row(
                &united(of),
                &|s| places.of(s).is_some_and(|p| p.1 == number),
                &|p, t| p == process && places.threads.contains_key(&(p, t)),
                seen.of(number),
            );
            if loads.is_empty() {
                continue;
            }
            rows.push(ProcessRow {
                process,
                name: process_name(names, process).to_string(),
                threads: count as u64,
                loads,
            });
        }
        rows
    }
}

/// Makes the tables of threads and processes, the greatest share first.
pub(crate) fn thread_tables(
    (source, options): (&dyn ChunkSource, EngineOptions),
    manifest: &Manifest,
    (code, basis): (&CodeMap, &Basis<'_>),
    (outcome, summary): (&EngineOutcome, &Summary),
    aids: Aids,
) -> (Vec<ThreadRow>, Vec<ProcessRow>) {
    if outcome.census.threads <= 1 {
        return alone(manifest, outcome, summary, basis.times.is_some());
    }
    let dealt = Dealt {
        source,
        buckets: Mutex::new(Buckets::new(manifest)),
    };
    let names = names(manifest, &[]);
    let options = EngineOptions {
        windows: false,
        samples: true,
        incidence: Collect::Nothing,
        ..options
    };
    let found = analyse_with(&dealt, options, aids, &|_| ());
    let buckets = dealt
        .buckets
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    let maker = Maker {
        manifest,
        code,
        basis,
        outcome,
    };
    let places = Places::new(buckets, &found.samples);
    let (by_thread, by_process) = rayon::join(
        || places.seen(basis, |p| p.0),
        || places.seen(basis, |p| p.1),
    );
    let mut rows = maker.thread_rows(&places, &found.buckets, &by_thread, &names);
    let mut process_rows = maker.process_rows(&places, found.buckets, &by_process, &names);
    shares(rows.iter_mut().map(|r| &mut r.loads).collect());
    shares(process_rows.iter_mut().map(|r| &mut r.loads).collect());
    let rank = |a: &ByThread, b: &ByThread| {
        let loads = |l: &ByThread| l.metrics.accesses + l.metrics.implied;
        (b.weight().total_cmp(&a.weight())).then_with(|| loads(b).cmp(&loads(a)))
    };
    rows.sort_by(|a, b| {
        rank(&a.loads, &b.loads).then((a.process, a.thread).cmp(&(b.process, b.thread)))
    });
    process_rows.sort_by(|a, b| rank(&a.loads, &b.loads).then(a.process.cmp(&b.process)));
    (rows, process_rows)
}

/// The row of a single thread, which has the numbers of the whole.
fn alone(
    manifest: &Manifest,
    outcome: &EngineOutcome,
    summary: &Summary,
    by_time: bool,
) -> (Vec<ThreadRow>, Vec<ProcessRow>) {
    let of_samples = outcome.samples.first().map(|s| (s.process, s.thread));
    let of_manifest = || {
        let mut with_rows = manifest.threads.iter().filter(|t| t.rows > 0);
        with_rows.next().map(|t| (t.process, t.thread))
    };
    let Some((process, thread)) = of_samples.or_else(of_manifest) else {
        return (Vec::new(), Vec::new());
    };
    let names = names(manifest, &[]);
    let loads = ByThread {
        samples: summary.samples,
        time: if by_time {
            TimeShare::ALL
        } else {
            TimeShare::default()
        },
        share: summary.hats.accesses.map(|_| 100.0),
        metrics: summary.metrics.clone(),
        hats: summary.hats.clone(),
    };
    let row = ThreadRow {
        process,
        thread: Some(thread),
        name: names.get(&(process, thread)).cloned().unwrap_or_default(),
        loads: loads.clone(),
    };
    let of_process = ProcessRow {
        process,
        name: process_name(&names, process).to_string(),
        threads: 1,
        loads,
    };
    (vec![row], vec![of_process])
}

/// Joins buckets to one.
fn united(buckets: Vec<BucketOutcome>) -> BucketOutcome {
    let mut counts = Vec::new();
    let mut reuse = ReuseTotals::new(None);
    let mut footprints = Vec::new();
    for bucket in buckets {
        add_counts(&mut counts, &bucket.counts);
        reuse.merge(bucket.reuse);
        footprints.push(bucket.footprint);
    }
    BucketOutcome {
        footprint: FootprintSet::union(footprints),
        counts,
        reuse,
    }
}

/// Sets the shares of executed loads, if those of all rows are known.
fn shares(rows: Vec<&mut ByThread>) {
    let all: Option<f64> = rows.iter().map(|r| r.hats.accesses).sum();
    for row in rows {
        row.share = row
            .hats
            .accesses
            .zip(all.filter(|&a| a > 0.0))
            .map(|(part, all)| part * 100.0 / all);
    }
}
