//! Runs the stages over a trace, on all cores.
//!
//! Rows come in batches of pieces. While one batch is analysed, the next is decoded. Inside a
//! batch, the footprint stage takes chunks in any order. Reuse and window stages take samples: many
//! short ones at a time, and long ones individually. A sample that is not complete when its batch
//! ends keeps its engines until the next batch. Parallelism is over samples and stages, never
//! inside one stage of one sample. Results are kept by *worker* and merged at the end; merging is
//! associative and commutative.

mod batch;
mod census;
pub(crate) mod outcome;
pub mod partial;
mod task_runner;

use crate::data::chunk::Chunk;
use crate::data::object_map::Resolver;
use crate::data::reuse_pairs::{ReusePair, ReusePairs};
use crate::data::rows::Run;
use crate::data::samples::SampleInfo;
use crate::input::source::ChunkSource;
use crate::input::weights::Weights;
use crate::stages::fetches::Fetches;
use crate::stages::footprint::{Budget, Footprints, Store};
use crate::stages::incidence::Incidence;
use crate::stages::line_visits::LineVisits;
use crate::stages::pages::BlockStore;
use crate::stages::reuse::SampleReuse;
use crate::stages::reuse::by_page::{Wanted, ZoomSums};
use crate::stages::reuse::by_region::HeatRegions;
use crate::stages::set_conflicts::{LEVELS, Sets};
use crate::stages::strides::Strides;
use crate::stages::windows::WindowEngine;
use batch::{Handover, SampleRows, Span};
use mgz_annotations_schema::lock::locked;
use std::sync::{Arc, Mutex};
use task_runner::TaskRunner;

pub use crate::stages::reuse::{REUSE_LEVELS, ReuseTotals};
pub use census::Census;
pub use outcome::{BucketOutcome, EngineOutcome};

/// Use of the incidence of addresses in samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collect {
    /// Nothing.
    Nothing,
    /// Marks for estimates, see [`Incidence::fold`].
    ForEstimates,
    /// Marks for estimates, which the caller folds ([`EngineOutcome::unfolded`]) in parallel with
    /// other work.
    Unfolded,
    /// Marks for estimates of the merged whole, see [`Incidence::gather`].
    ForMerging,
}

/// Options of a pass.
#[derive(Clone, Copy, Debug)]
pub struct EngineOptions {
    /// Log2 of the block size of reuse distance.
    pub block_shift: u32,
    /// If set, reuse is also counted by unit of memory, for the location zoom and objects.
    pub zoom: Option<Wanted>,
    /// If set, metrics by window size are computed.
    pub windows: bool,
    /// If set, all samples are listed, for the time zoom.
    pub samples: bool,
    /// Incidence of addresses in samples, for estimates of unseen data.
    pub incidence: Collect,
    /// Caches to predict misses for. If set, the lines that samples visit are collected.
    pub lines: Option<[Sets; LEVELS]>,
    /// Only `lines` and `samples` are computed. Samples that span batches also have reuse.
    pub lines_alone: bool,
    /// Number of sites whose strides are counted.
    pub sites: u32,
    /// Rows per thread and batch.
    pub batch_rows: u64,
    /// Bytes of memory that footprints may take before they go to a file.
    pub footprint_bytes: usize,
}

impl EngineOptions {
    /// Options for the summary.
    pub fn new(block_shift: u32) -> EngineOptions {
        EngineOptions {
            block_shift,
            zoom: None,
            windows: true,
            samples: false,
            incidence: Collect::Nothing,
            lines: None,
            lines_alone: false,
            sites: 0,
            batch_rows: 1 << 18,
            footprint_bytes: usize::MAX,
        }
    }
}

/// State of one bucket.
struct Bucket {
    footprints: Footprints,
    reuse: ReuseTotals,
}

/// Results of one worker, and its engines.
struct Worker {
    buckets: Vec<Bucket>,
    budget: Arc<Budget>,
    stores: Arc<Mutex<Vec<Arc<Store>>>>,
    units: Arc<BlockStore>,
    zoom: Option<Wanted>,
    windows: WindowEngine,
    strides: Strides,
    fetches: Fetches,
    incidence: Incidence,
    lines: LineVisits,
    sample: SampleReuse,
}

impl Worker {
    fn bucket(&mut self, number: u32) -> &mut Bucket {
        while self.buckets.len() <= number as usize {
            // All reuse of the parts of one run is counted in the first bucket.
            let zoom = self.zoom.filter(|_| self.buckets.is_empty());
            let zoom =
                zoom.map(|wanted| ZoomSums::new(wanted, self.units.clone(), self.budget.clone()));
            let mut stores = locked(&self.stores);
            while stores.len() <= self.buckets.len() {
                stores.push(Store::new(self.budget.clone()));
            }
            let footprints = Footprints::of(stores[self.buckets.len()].clone());
            self.buckets.push(Bucket {
                footprints,
                reuse: ReuseTotals::new(zoom),
            });
        }
        &mut self.buckets[number as usize]
    }
}

/// The sample that continues in the next batch.
struct Open {
    run: Run,
    rows: u64,
    reuse: SampleReuse,
    windows: WindowEngine,
    strides: Strides,
    fetches: Fetches,
    lines: LineVisits,
}

/// Runs all stages. `progress` receives the number of rows done.
pub fn analyse(
    source: &dyn ChunkSource,
    options: EngineOptions,
    progress: &(dyn Fn(u64) + Sync),
) -> EngineOutcome {
    analyse_with(source, options, Aids::default(), progress)
}

/// Data that is looked up while rows are counted.
#[derive(Clone, Default)]
pub struct Aids {
    /// Distinguishes objects that share a block; used if blocks are counted.
    pub objects: Option<Arc<Resolver>>,
    /// Regions of a heat map; used if blocks are not counted.
    pub heat: Option<Arc<HeatRegions>>,
    /// Weights of samples, unless all have the same.
    pub weights: Option<Arc<Weights>>,
    /// Words that were watched after samples; used if the lines that samples visit are collected.
    pub pairs: Option<Arc<ReusePairs>>,
}

/// As [`analyse`], with aids.
pub fn analyse_with(
    source: &dyn ChunkSource,
    options: EngineOptions,
    Aids {
        objects,
        heat,
        weights,
        pairs,
    }: Aids,
    progress: &(dyn Fn(u64) + Sync),
) -> EngineOutcome {
    let threads = rayon::current_num_threads().max(1);
    let mut driver = Driver {
        options,
        objects,
        heat,
        weights,
        pairs,
        budget: Arc::new(Budget::new(options.footprint_bytes)),
        stores: Arc::default(),
        units: BlockStore::new(),
        workers: Mutex::new(Vec::new()),
        open: None,
        census: Census {
            sample_min: u64::MAX,
            ..Census::default()
        },
        spaces: Vec::new(),
        last: None,
        samples: Vec::new(),
    };
    let mut damage = Vec::new();
    let mut next = 0;
    let mut batch = read_batch(
        source,
        &mut next,
        options.batch_rows.saturating_mul(threads as u64),
    );
    while !batch.is_empty() {
        let mut chunks = Vec::with_capacity(batch.len());
        let mut gap = false;
        for piece in batch {
            match piece {
                Ok(mut chunk) => {
                    chunk.gap_before |= std::mem::take(&mut gap);
                    damage.append(&mut chunk.damage);
                    driver.census.unread += chunk.lost;
                    chunks.push(chunk);
                }
                Err((text, rows)) => {
                    damage.push(text);
                    driver.census.unread += rows;
                    gap = true;
                }
            }
        }
        if gap {
            // The unreadable part is at the end of the batch: the next chunk starts a new sample.
            chunks.push(Chunk {
                gap_before: true,
                ..Chunk::default()
            });
        }
        let (following, ()) = rayon::join(
            || {
                read_batch(
                    source,
                    &mut next,
                    options.batch_rows.saturating_mul(threads as u64),
                )
            },
            || driver.batch(&chunks, progress),
        );
        batch = following;
    }
    driver.finish(damage)
}

/// Reads pieces until there is enough work for all threads.
fn read_batch(
    source: &dyn ChunkSource,
    next: &mut usize,
    most: u64,
) -> Vec<Result<Chunk, (String, u64)>> {
    let first = *next;
    let mut rows = 0;
    while *next < source.pieces() && rows < most {
        rows += source.piece_rows(*next).max(1);
        *next += 1;
    }
    let numbers: Vec<usize> = (first..*next).collect();
    let chunks = source.read(&numbers).into_iter().zip(first..*next);
    chunks
        .map(|(read, piece)| read.map(|chunk| Chunk { piece, ..chunk }))
        .collect()
}

struct Driver {
    options: EngineOptions,
    objects: Option<Arc<Resolver>>,
    heat: Option<Arc<HeatRegions>>,
    weights: Option<Arc<Weights>>,
    pairs: Option<Arc<ReusePairs>>,
    budget: Arc<Budget>,
    /// Footprints of each bucket.
    stores: Arc<Mutex<Vec<Arc<Store>>>>,
    /// Store of counts by unit of memory, for the zooms.
    units: Arc<BlockStore>,
    workers: Mutex<Vec<Worker>>,
    open: Option<Open>,
    census: Census,
    spaces: Vec<u32>,
    /// Process and thread of the last row.
    last: Option<(u32, u32)>,
    samples: Vec<SampleInfo>,
}

impl Driver {
    fn worker(&self) -> Worker {
        let pooled = locked(&self.workers).pop();
        pooled.unwrap_or_else(|| Worker {
            buckets: Vec::new(),
            budget: self.budget.clone(),
            stores: self.stores.clone(),
            units: self.units.clone(),
            zoom: self.options.zoom,
            windows: WindowEngine::new(),
            strides: Strides::default(),
            fetches: Fetches::default(),
            incidence: Incidence::default(),
            lines: LineVisits::default(),
            sample: SampleReuse::new(self.options.block_shift, self.weights.clone()),
        })
    }

    /// The weight of a sample; `None` if all have the same.
    fn weight(&self, sample: u32) -> Option<u64> {
        self.weights.as_ref().map(|w| w.of_loads(sample))
    }

    /// Words that were watched after a sample.
    fn watched(&self, sample: u32) -> &[ReusePair] {
        self.pairs.as_ref().map_or(&[], |pairs| pairs.of(sample))
    }

    /// True if buckets are parts of one run.
    fn parts(&self) -> bool {
        self.options.zoom.is_some_and(|z| z.parts)
    }

    /// The bucket in which reuse of a run is counted.
    fn home(&self, run: &Run) -> u32 {
        if self.parts() { 0 } else { run.bucket }
    }

    fn give_back(&self, worker: Worker) {
        locked(&self.workers).push(worker);
    }

    fn space(&mut self, process: u32) -> u32 {
        // Rows are sorted by process, so it is nearly always the last one.
        match self.spaces.iter().rposition(|&p| p == process) {
            Some(space) => space as u32,
            None => {
                self.spaces.push(process);
                self.spaces.len() as u32 - 1
            }
        }
    }

    /// Cuts a batch into samples.
    fn spans(&mut self, chunks: &[Chunk]) -> Vec<Span> {
        let mut spans: Vec<Span> = Vec::new();
        let mut gap = false;
        for (number, chunk) in chunks.iter().enumerate() {
            gap |= chunk.gap_before;
            for (at, run) in chunk.runs.iter().enumerate() {
                let before = spans
                    .last()
                    .map(|s| &s.run)
                    .or(self.open.as_ref().map(|o| &o.run));
                let same = before.is_some_and(|b| {
                    b.same_sample(run)
                        || self.parts()
                            && b.same_sample(&Run {
                                bucket: b.bucket,
                                ..run.clone()
                            })
                });
                if let Some(before) = before
                    && (before.process, before.thread) == (run.process, run.thread)
                    && run.first_seq <= before.last_seq
                    && run.loads.start + run.stores.start == 0
                    && !chunk.ordered
                {
                    self.census.out_of_order += 1;
                }
                if self.options.samples {
                    SampleInfo::append(
                        &mut self.samples,
                        run,
                        chunk.begin(at),
                        chunk.piece,
                        same && !gap,
                    );
                }
                if same
                    && !gap
                    && let Some(span) = spans.last_mut()
                {
                    span.parts.push(SampleRows::of(number, run));
                    span.rows += run.loads.len();
                    span.run = run.clone();
                    continue;
                }
                if let Some(span) = spans.last_mut() {
                    span.open = false;
                }
                let continues = same && !gap && spans.is_empty();
                gap = false;
                let space = self.space(run.process);
                spans.push(Span {
                    parts: vec![SampleRows::of(number, run)],
                    rows: run.loads.len(),
                    space,
                    continues,
                    open: true,
                    run: run.clone(),
                });
            }
        }
        if gap {
            // No rows follow the unreadable part in this batch.
            if let Some(span) = spans.last_mut() {
                span.open = false;
            } else {
                self.close_open();
            }
        }
        spans
    }

    /// The open sample is complete.
    fn close_open(&mut self) {
        let Some(mut open) = self.open.take() else {
            return;
        };
        self.count_sample(open.rows);
        let mut worker = self.worker();
        let home = self.home(&open.run);
        open.reuse.finish(&mut worker.bucket(home).reuse);
        worker.windows.merge(&open.windows);
        worker.strides.merge(open.strides);
        worker.fetches.merge(open.fetches);
        open.lines.finish();
        worker.lines.merge(open.lines);
        self.give_back(worker);
    }

    fn count_sample(&mut self, rows: u64) {
        self.census.samples += 1;
        self.census.sample_min = self.census.sample_min.min(rows);
        self.census.sample_max = self.census.sample_max.max(rows);
    }

    fn batch(&mut self, chunks: &[Chunk], progress: &(dyn Fn(u64) + Sync)) {
        for chunk in chunks {
            self.census.loads += chunk.loads.rows().len() as u64;
            self.census.stores += chunk.stores.rows().len() as u64;
            self.census.out_of_order += chunk.out_of_order;
            self.census.unknown_site += chunk.unknown_site;
            self.census.unknown_module += chunk.unknown_module;
            self.census.unknown_class += chunk.unknown_class;
            for run in &chunk.runs {
                if self.last != Some((run.process, run.thread)) {
                    self.last = Some((run.process, run.thread));
                    self.census.threads += 1;
                }
            }
        }
        let spans = self.spans(chunks);
        if spans.first().is_some_and(|s| !s.continues) {
            self.close_open();
        }
        if spans.is_empty() {
            return;
        }
        // The engines of the sample that was open before this batch, and of the one that is open
        // after it.
        let (before, after) = (Handover::default(), Handover::default());
        let mut rows_before = 0;
        if let Some(open) = self.open.take() {
            rows_before = open.rows;
            before.reuse.put(open.reuse);
            before.windows.put(open.windows);
            before.strides.put(open.strides);
            before.fetches.put(open.fetches);
            before.lines.put(open.lines);
        }
        let tasks = self.tasks(chunks, &spans);
        let runner = &TaskRunner {
            driver: self,
            chunks,
            before: &before,
            after: &after,
        };
        rayon::scope_fifo(|scope| {
            for task in tasks {
                scope.spawn_fifo(move |_| runner.run(task, progress));
            }
        });

        for (i, span) in spans.iter().enumerate() {
            let rows = span.rows as u64
                + if i == 0 && span.continues {
                    rows_before
                } else {
                    0
                };
            if span.open {
                rows_before = rows;
            } else {
                self.count_sample(rows);
            }
        }
        if let Some(span) = spans.last().filter(|s| s.open)
            && let (Some(reuse), Some(windows), Some(strides), Some(fetches)) = (
                after.reuse.take(),
                after.windows.take(),
                after.strides.take(),
                after.fetches.take(),
            )
            && let Some(lines) = after.lines.take()
        {
            self.open = Some(Open {
                run: span.run.clone(),
                rows: rows_before,
                reuse,
                windows,
                strides,
                fetches,
                lines,
            });
        }
    }
}
