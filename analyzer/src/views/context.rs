//! Data for rows of parts (regions, objects, intervals of the run), in addition to their own sums.

use crate::data::code_map::CodeMap;
use crate::data::counts::AccessCounts;
use crate::data::group::Group;
use crate::engine::EngineOutcome;
use crate::estimate::row_estimates::RegionEstimator;
use crate::estimate::sample_shares::Shares;
use crate::estimate::time_shares::{TimeShare, TimeShares};
use crate::input::weights::UNIT;
use crate::misses::{Misses, Predicted};
use crate::stages::fetches::Fetched;
use crate::stages::footprint::FootprintSet;
use crate::stages::incidence::Incidence;
use crate::stages::strides::ByGroup;

/// Strides shown per row.
pub(crate) const STRIDES: usize = 4;

/// See the module's text.
pub struct Basis<'a> {
    /// Footprint of the whole trace.
    pub footprint: &'a FootprintSet,
    /// The addresses that each sample saw.
    pub incidence: &'a Incidence,
    /// Estimator for parts of memory or of the run.
    pub places: RegionEstimator,
    /// Weights of samples, unless all have the same.
    pub shares: Option<Shares>,
    /// Strides of the code.
    pub strides: ByGroup,
    /// The windows, if they come by time.
    pub times: Option<TimeShares>,
    /// By group of code: executed loads that each recorded or implied one represents, or its time
    /// if windows are triggered by time; `None` if unknown.
    stands_for: Option<Vec<f64>>,
    /// By group: executed loads that each recorded or implied one represents, if another run
    /// counted them.
    counted: Option<Vec<f64>>,
    /// By group: loads, and the lines that they fetched.
    fetches: Vec<(u64, Fetched)>,
    predicted: Option<&'a Predicted>,
}

impl<'a> Basis<'a> {
    /// Adds predicted misses.
    pub(crate) fn with_misses(self, predicted: Option<&'a Predicted>) -> Basis<'a> {
        Basis { predicted, ..self }
    }

    /// Predicted misses of an object with these loads of each group.
    pub(crate) fn misses(
        &self,
        object: u32,
        loads: impl Iterator<Item = (Group, u64)>,
    ) -> Option<Misses> {
        let all = |group: Group| self.fetches.get(group.index()).map_or(0, |f| f.0);
        self.predicted?.of_object(object, loads, all)
    }

    /// From the results of a pass.
    pub fn new(
        outcome: &'a EngineOutcome,
        code: &CodeMap,
        places: RegionEstimator,
        times: Option<TimeShares>,
    ) -> Basis<'a> {
        let bucket = &outcome.buckets[0];
        let loads = |group: Group| bucket.counts.get(group.index()).map_or(0, |c| c.rows);
        let weighted = outcome.weights.is_some();
        let share = places.design.map(|design| design.share);
        let stands_for = share.or(weighted.then_some(1.0)).map(|share| {
            let of = |group: usize| {
                let replicates = bucket
                    .reuse
                    .replicates
                    .get(group)
                    .and_then(|r| r.as_deref())
                    .filter(|_| weighted);
                let (touches, weighted) = replicates
                    .into_iter()
                    .flatten()
                    .fold((0u64, 0u64), |(t, w), r| (t + r.touches, w + r.weighted));
                if touches > 0 {
                    weighted as f64 / touches as f64 / UNIT as f64
                } else {
                    1.0 / share
                }
            };
            (0..bucket.counts.len()).map(of).collect::<Vec<f64>>()
        });
        let fetched = |group: usize| outcome.fetches.get(group).copied().unwrap_or_default();
        let fetches = bucket.counts.iter().enumerate();
        let fetches = fetches.map(|(g, c)| (c.rows, fetched(g))).collect();
        Basis {
            fetches,
            counted: counted(outcome),
            predicted: None,
            times,
            footprint: &bucket.footprint,
            incidence: &outcome.incidence,
            places,
            shares: Shares::new(outcome),
            strides: ByGroup::new(&outcome.strides, |site| code.site_group(site), loads),
            stands_for,
        }
    }

    /// Executed loads of a place, estimated. `parts` has groups, and their recorded and implied
    /// loads there.
    pub(crate) fn executed(&self, parts: impl Iterator<Item = (Group, u64)>) -> Option<f64> {
        match &self.counted {
            Some(counted) => Some(sum(counted, parts)),
            None => self.stands_for(parts).filter(|_| self.times.is_none()),
        }
    }

    /// Share of the time of the windows whose load satisfies `has`, if windows are triggered by
    /// time. Its arguments are the sample and the address of the load.
    pub(crate) fn time(&self, has: impl Fn(u32, u64) -> bool) -> TimeShare {
        self.times.as_ref().map_or_else(Default::default, |times| {
            times.of_spots(|sample, spot| has(sample, spot.address))
        })
    }

    /// Adds the lines that were fetched for a place: each group of code contributes the share of
    /// its loads there. This is exact for code that loads only from one place.
    pub(crate) fn add_fetches(
        &self,
        counts: &mut AccessCounts,
        parts: impl Iterator<Item = (Group, u64)>,
    ) {
        let (mut lines, mut bytes) = (0.0, 0.0);
        for (group, starts) in parts {
            let Some(&(loads, fetched)) = self.fetches.get(group.index()) else {
                continue;
            };
            let share = starts as f64 / loads.max(1) as f64;
            lines += fetched.lines as f64 * share;
            bytes += fetched.bytes as f64 * share;
        }
        // Floating-point sums depend on the order, so they are rounded to whole numbers.
        counts.fetches += lines.round() as u64;
        counts.fetched_bytes += bytes.round() as u64;
    }

    /// Adds all lines that were fetched.
    pub(crate) fn add_all_fetches(&self, counts: &mut AccessCounts) {
        for (_, fetched) in &self.fetches {
            counts.fetches += fetched.lines;
            counts.fetched_bytes += fetched.bytes;
        }
    }

    fn stands_for(&self, parts: impl Iterator<Item = (Group, u64)>) -> Option<f64> {
        Some(sum(self.stands_for.as_ref()?, parts))
    }
}

/// Sum over parts, given the weight of each load of a group.
fn sum(stands_for: &[f64], parts: impl Iterator<Item = (Group, u64)>) -> f64 {
    let mut parts: Vec<(Group, u64)> = parts.collect();
    // Floating-point sums depend on the order.
    parts.sort_unstable();
    parts
        .into_iter()
        .map(|(group, loads)| loads as f64 * stands_for.get(group.index()).copied().unwrap_or(1.0))
        // (An empty sum is -0.)
        .fold(0.0, |sum, executed| sum + executed)
}

/// See [`Basis::counted`]. All classes of a piece of code have the same value.
fn counted(outcome: &EngineOutcome) -> Option<Vec<f64>> {
    let counted = outcome.weights.as_deref()?.counted()?;
    let counts = &outcome.buckets[0].counts;
    let each = counts.chunks(4).enumerate().flat_map(|(piece, classes)| {
        let recorded: u64 = classes.iter().map(|c| c.rows + c.implied).sum();
        let each = counted.piece(piece) / recorded.max(1) as f64;
        std::iter::repeat_n(each, classes.len())
    });
    Some(each.collect())
}

#[cfg(test)]
impl Default for Basis<'static> {
    fn default() -> Basis<'static> {
        use std::sync::LazyLock;
        static NOTHING: LazyLock<(FootprintSet, Incidence)> = LazyLock::new(Default::default);
        let places = RegionEstimator {
            design: None,
            estimator: crate::estimate::row_estimates::Estimator::Recapture,
            resonant: false,
            mapped: None,
        };
        Basis {
            footprint: &NOTHING.0,
            incidence: &NOTHING.1,
            places,
            shares: None,
            strides: ByGroup::default(),
            times: None,
            stands_for: None,
            counted: None,
            fetches: Vec::new(),
            predicted: None,
        }
    }
}
