//! Predictions of misses from samples. They share a table of the samples' visits.

use crate::data::detail::Detail;
use crate::data::group::Group;
use crate::data::memory_units::LINE_BYTES;
use crate::data::object_map::Recent;
use crate::data::reuse_pairs::ReusePairs;
use crate::data::samples::SampleInfo;
use crate::engine::EngineOutcome;
use crate::misses::Hierarchy;
use crate::misses::cell_misses::ByGroup;
use crate::misses::load_weights::LoadWeights;
use crate::misses::pace_bias::{self, SpeedFactors};
use crate::misses::params;
use crate::misses::row_misses::{Predicted, sizes};
use crate::misses::visit_table::VisitTable;
use crate::misses::watched_reuses::{self, Code};
use crate::stages::line_visits::{LineVisits, PARTS, Visit};
use crate::stages::set_conflicts::{LEVELS, Sets};
use crate::util::fast_hash::Mixed;
use rayon::prelude::*;
use std::collections::HashMap;

/// Use of the reuses that were watched after samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watches {
    /// They correct the prediction, if there are any.
    Used,
    /// They are left out.
    LeftOut,
}

/// See the module's text.
pub(crate) struct Predictor<'a> {
    /// The loads, without misses.
    loads: Predicted,
    /// Visits by thread.
    private: VisitTable<'a>,
    /// Levels that several threads fill, and visits by process.
    shared: Option<(Vec<usize>, VisitTable<'a>)>,
    slower: SpeedFactors,
}

impl<'a> Predictor<'a> {
    /// Prepares predictions. None if there are no samples. `lines` are those of the outcome.
    /// `by_time` is true if windows were taken by time. `function` returns the function of a group,
    /// `object` the object of a visited line.
    pub(crate) fn new(
        (outcome, lines, pairs): (&EngineOutcome, &'a LineVisits, Option<&ReusePairs>),
        hierarchy: Hierarchy,
        by_time: bool,
        function: impl Fn(Group) -> u32,
        object: impl Fn(&Visit, &SampleInfo, &mut Recent) -> u32 + Sync,
    ) -> Option<Predictor<'a>> {
        if lines.samples.is_empty() {
            return None;
        }
        let by_number: HashMap<u32, &SampleInfo, Mixed> =
            outcome.samples.iter().map(|s| (s.sample, s)).collect();
        let object = |visit: &Visit, recent: &mut Recent| {
            by_number
                .get(&visit.sample)
                .map_or(0, |sample| object(visit, sample, recent))
        };
        let mut sets = [Sets::default(); LEVELS];
        for (to, of) in sets.iter_mut().zip(&hierarchy.caches) {
            *to = Sets::new(of.size, of.ways);
        }
        let weights = LoadWeights::new(outcome, by_time);
        let (watches, mut seen) = match pairs {
            Some(pairs) => {
                let (watches, seen) = watched_reuses::timed(lines, pairs, &weights);
                (watches, Some(seen))
            }
            None => (Vec::new(), None),
        };
        let code = |group: Group| -> Code { (function(group), group.class()) };
        let table = |by_process: bool| {
            let watched: (_, &dyn Fn(Group) -> Code) = (&watches[..], &code);
            VisitTable::new(lines, &outcome.samples, &sets, by_process, watched, object)
        };
        let private = table(false);
        if let Some(seen) = &mut seen {
            seen.used = private.used;
        }
        // All threads of a process fill a shared level.
        let shared: Vec<usize> = (0..hierarchy.caches.len().min(LEVELS))
            .filter(|&c| hierarchy.caches[c].shared_by > 1 && outcome.census.threads > 1)
            .collect();
        let slower = match by_time && !weights.are_counted() {
            true => pace_bias::speed_factors(&private, &weights, &function),
            false => HashMap::default(),
        };
        let mut loads = Predicted::of_loads(hierarchy, seen);
        loads.weigh(lines, &weights, &function);
        loads.add_sequences(&private);
        Some(Predictor {
            loads,
            shared: (!shared.is_empty()).then(|| (shared, table(true))),
            private,
            slower,
        })
    }

    /// Predicts misses. Curves are computed if `detail` asks for them.
    pub(crate) fn predict(&self, detail: Detail, watches: Watches) -> Option<Predicted> {
        let curve = if detail.is_all() {
            params::POINTS_OF_MISS_CURVE
        } else {
            0
        };
        let caches = &self.loads.hierarchy.caches;
        let capacities: Vec<f64> = sizes(caches, curve)
            .iter()
            .map(|&s| (s / LINE_BYTES) as f64)
            .collect();
        let levels: Vec<usize> = (0..caches.len().min(LEVELS)).collect();
        let mut estimates = with_replicates(&self.private, &capacities, &levels, watches);
        if let Some((shared, table)) = &self.shared {
            let of: Vec<f64> = shared.iter().map(|&c| capacities[c]).collect();
            let others = with_replicates(table, &of, shared, watches);
            for (mine, theirs) in estimates.iter_mut().zip(&others) {
                replace_levels(mine, theirs, shared);
            }
        }
        self.loads
            .with_misses(estimates, &self.slower, (curve, watches))
    }
}

/// Estimates from all samples, then with one replicate left out each.
fn with_replicates(
    table: &VisitTable<'_>,
    capacities: &[f64],
    levels: &[usize],
    watches: Watches,
) -> Vec<ByGroup> {
    (0..=PARTS)
        .into_par_iter()
        .map(|p| table.estimate(capacities, levels, p.checked_sub(1), watches))
        .collect()
}

/// Replaces the misses of these levels by those of another estimate, which has no other levels.
fn replace_levels(mine: &mut ByGroup, theirs: &ByGroup, levels: &[usize]) {
    for (group, of_group) in mine.iter_mut() {
        let Some(other) = theirs.get(group) else {
            continue;
        };
        for (from, &to) in levels.iter().enumerate() {
            of_group.ratio[to] = other.ratio[from];
            of_group.least[to] = other.least[from];
            of_group.most[to] = other.most[from];
        }
        for (object, ratios) in &mut of_group.objects {
            if let Some((_, other)) = other.objects.iter().find(|o| o.0 == *object) {
                let levels = levels.iter().enumerate();
                levels.for_each(|(from, &to)| ratios[to] = other[from]);
            }
        }
    }
}
