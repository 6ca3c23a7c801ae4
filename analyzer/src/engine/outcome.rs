//! Result of a pass over a trace, merged from the results of the workers.

use crate::data::counts::AccessCounts;
use crate::data::group::Group;
use crate::data::reuse_pairs::ReusePairs;
use crate::data::samples::SampleInfo;
use crate::engine::{Census, Collect, Driver};
use crate::input::weights::Weights;
use crate::stages::fetches::{self, Fetched};
use crate::stages::footprint::{FootprintSet, Footprints, GroupCount};
use crate::stages::incidence::Incidence;
use crate::stages::line_visits::LineVisits;
use crate::stages::observed_class::FarStep;
use crate::stages::reuse::ReuseTotals;
use crate::stages::strides::Strides;
use crate::stages::windows::WindowEngine;
use std::sync::Arc;

/// Result for the rows of one bucket.
pub struct BucketOutcome {
    /// Footprint entries.
    pub footprint: FootprintSet,
    /// Counts by group.
    pub counts: Vec<GroupCount>,
    /// Reuse inside samples.
    pub reuse: ReuseTotals,
}

/// Result of a pass over a trace.
pub struct EngineOutcome {
    /// By [`Run::bucket`](crate::data::rows::Run::bucket); at least one. Rows of a trace as it is
    /// read are all in bucket 0.
    pub buckets: Vec<BucketOutcome>,
    /// All samples in the order of the trace, if requested.
    pub samples: Vec<SampleInfo>,
    /// Window metrics.
    pub windows: WindowEngine,
    /// Observed strides: site, bin, count.
    pub strides: Vec<(u32, u32, u64)>,
    /// Fetched lines, by group.
    pub fetches: Vec<Fetched>,
    /// Large strides equal to the previous one, by site.
    pub far_steps: Vec<(u32, FarStep)>,
    /// The samples that saw each address, if requested.
    pub incidence: Incidence,
    /// The incidence by worker, if it is not folded yet ([`Collect::Unfolded`]).
    pub unfolded: Vec<Incidence>,
    /// Lines that samples visited, if requested.
    pub lines: LineVisits,
    /// Samples and rows.
    pub census: Census,
    /// Parts of the run, if buckets were parts of one run
    /// ([`Wanted::parts`](crate::stages::reuse::by_page::Wanted::parts)). Their footprints are in
    /// the whole ([`EngineOutcome::unite`]).
    pub parts: Vec<BucketOutcome>,
    /// Weights of samples, unless all have the same.
    pub weights: Option<Arc<Weights>>,
    /// Words that were watched after samples.
    pub pairs: Option<Arc<ReusePairs>>,
    /// Process ids by address space number.
    pub spaces: Vec<u32>,
    /// Pieces that were skipped, and why.
    pub damage: Vec<String>,
    /// Bytes of footprints written to a file. `None` if they exceeded memory and no file could be
    /// written.
    pub spilled: Option<usize>,
}

impl EngineOutcome {
    /// Moves the footprints of the parts into the whole, and drops the parts.
    pub fn unite(&mut self) {
        let parts = std::mem::take(&mut self.parts);
        if let Some(whole) = self.buckets.first_mut().filter(|_| !parts.is_empty()) {
            whole.footprint = FootprintSet::union(parts.into_iter().map(|p| p.footprint).collect());
        }
    }
}

impl Driver {
    /// Ends the pass: merges the results of the workers.
    pub(crate) fn finish(mut self, damage: Vec<String>) -> EngineOutcome {
        self.close_open();
        if self.census.samples == 0 {
            self.census.sample_min = 0;
        }
        self.census.processes = self.spaces.len() as u64;
        let workers = self
            .workers
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut windows = WindowEngine::new();
        let (mut strides, mut incidence) = (Vec::new(), Vec::new());
        let mut fetches = Vec::new();
        let mut lines = Vec::new();
        let mut tables: Vec<Vec<Footprints>> = vec![Vec::new()];
        let mut reuse: Vec<ReuseTotals> = vec![ReuseTotals::new(None)];
        for worker in workers {
            windows.merge(&worker.windows);
            fetches::add_fetches(&mut fetches, worker.fetches.counts());
            strides.push(worker.strides);
            incidence.push(worker.incidence);
            lines.push(worker.lines);
            for (number, bucket) in worker.buckets.into_iter().enumerate() {
                if tables.len() <= number {
                    tables.push(Vec::new());
                    reuse.push(ReuseTotals::new(None));
                }
                tables[number].push(bucket.footprints);
                reuse[number].merge(bucket.reuse);
            }
        }
        let mut lines = LineVisits::merged(lines);
        lines.sort();
        reuse
            .iter_mut()
            .filter_map(|r| r.zoom.as_mut())
            .for_each(|z| z.finish());
        let spilled = (!self.budget.failed()).then(|| self.budget.spilled());
        // Single-threaded work runs in parallel with the work that all threads share.
        let merged = |all: Vec<Strides>| {
            let mut whole = Strides::default();
            all.into_iter().for_each(|one| whole.merge(one));
            (whole.counts(), whole.far_steps().list())
        };
        let unfolded = match self.options.incidence {
            Collect::Unfolded => std::mem::take(&mut incidence),
            _ => Vec::new(),
        };
        let collected = if self.options.incidence == Collect::ForMerging {
            Incidence::gather
        } else {
            Incidence::fold
        };
        let (sets, (incidence, (strides, far_steps))) = rayon::join(
            || FootprintSet::of_buckets(tables),
            || rayon::join(|| collected(incidence), || merged(strides)),
        );
        let (buckets, parts) = if self.options.zoom.is_some_and(|z| z.parts) {
            let whole = reuse.into_iter().next();
            let (whole, parts) = in_parts(whole.unwrap_or_else(|| ReuseTotals::new(None)), sets);
            (vec![whole], parts)
        } else {
            let of = |((footprint, counts), reuse)| BucketOutcome {
                footprint,
                counts,
                reuse,
            };
            (sets.into_iter().zip(reuse).map(of).collect(), Vec::new())
        };
        EngineOutcome {
            buckets,
            parts,
            samples: self.samples,
            windows,
            strides,
            fetches,
            far_steps,
            incidence,
            unfolded,
            lines,
            census: self.census,
            weights: self.weights,
            pairs: self.pairs,
            spaces: self.spaces,
            damage,
            spilled,
        }
    }
}

/// Builds the whole run and its parts, whose reuse the whole has counted. `sets` are footprints and
/// counts of the parts.
fn in_parts(
    reuse: ReuseTotals,
    sets: Vec<(FootprintSet, Vec<GroupCount>)>,
) -> (BucketOutcome, Vec<BucketOutcome>) {
    let mut whole = BucketOutcome {
        footprint: FootprintSet::default(),
        counts: Vec::new(),
        reuse,
    };
    let zoom = whole.reuse.zoom.as_mut();
    let taken = zoom.map(|z| {
        let groups = std::mem::take(&mut z.parts);
        (groups, std::mem::take(&mut z.part_distances))
    });
    let (groups, distances) = taken.unwrap_or_default();
    let (mut groups, mut distances) = (groups.into_iter(), distances.into_iter());
    let mut parts = Vec::new();
    for (footprint, counts) in sets {
        crate::stages::footprint::add_counts(&mut whole.counts, &counts);
        parts.push(BucketOutcome {
            footprint,
            counts,
            reuse: ReuseTotals {
                groups: groups.next().unwrap_or_default(),
                // Parts have distances for all groups together.
                distances: vec![distances.next().unwrap_or_default()],
                ..ReuseTotals::new(None)
            },
        });
    }
    (whole, parts)
}

/// Counts of each group, from the stages.
pub(crate) fn group_counts(outcome: &BucketOutcome, group: Group) -> AccessCounts {
    let rows = outcome
        .counts
        .get(group.index())
        .copied()
        .unwrap_or_default();
    let reuse = outcome
        .reuse
        .groups
        .get(group.index())
        .copied()
        .unwrap_or_default();
    let store = group.is_store();
    AccessCounts {
        accesses: if store { 0 } else { rows.rows },
        stores: if store { rows.rows } else { 0 },
        implied: rows.implied,
        reuses: reuse.reuses,
        first_touches: reuse.firsts,
        distance_sum: reuse.distance,
        distance_max: reuse.distance_max,
        interval_sum: reuse.interval,
        ..AccessCounts::default()
    }
}
