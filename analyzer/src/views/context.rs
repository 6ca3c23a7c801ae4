//! What rows of places (regions, objects, intervals of the run) are made from, besides their own sums.

use crate::data::code_map::CodeMap;
use crate::engine::Outcome;
use crate::estimate::row_estimates::Places;
use crate::estimate::sample_shares::Shares;
use crate::input::weights::UNIT;
use crate::stages::footprint::FootprintSet;
use crate::stages::incidence::Incidence;
use crate::stages::strides::ByGroup;

/// Strides shown per row.
pub(crate) const STRIDES: usize = 4;

/// See the module's text.
pub struct Basis<'a> {
    /// What was touched in the whole trace.
    pub footprint: &'a FootprintSet,
    /// Which samples saw what.
    pub incidence: &'a Incidence,
    /// How estimates are made.
    pub places: Places,
    /// What samples stand for, where that is not the same for all.
    pub shares: Option<Shares>,
    /// Strides of the code.
    pub strides: ByGroup,
    /// By group of code: executed loads that each recorded or implied one stands for; none if that is not known.
    stands_for: Option<Vec<f64>>,
}

impl<'a> Basis<'a> {
    /// From what a pass has found.
    pub fn new(outcome: &'a Outcome, code: &CodeMap, places: Places) -> Basis<'a> {
        let bucket = &outcome.buckets[0];
        let loads = |group: u32| bucket.counts.get(group as usize).map_or(0, |c| c.rows);
        let stands_for = places.design.map(|design| {
            let of = |group: usize| {
                let replicates = bucket
                    .reuse
                    .replicates
                    .get(group)
                    .and_then(|r| r.as_deref())
                    .filter(|_| design.weights.is_some());
                let (touches, weighted) = replicates
                    .into_iter()
                    .flatten()
                    .fold((0u64, 0u64), |(t, w), r| (t + r.touches, w + r.weighted));
                if touches > 0 {
                    weighted as f64 / touches as f64 / UNIT as f64
                } else {
                    1.0 / design.share
                }
            };
            (0..bucket.counts.len()).map(of).collect()
        });
        Basis {
            footprint: &bucket.footprint,
            incidence: &outcome.incidence,
            places,
            shares: Shares::new(outcome),
            strides: ByGroup::new(&outcome.strides, |site| code.site_group(site), loads),
            stands_for,
        }
    }

    /// Executed loads of a place, estimated. `parts`: groups, and their recorded and implied loads there.
    pub(crate) fn executed(&self, parts: impl Iterator<Item = (u32, u64)>) -> Option<f64> {
        let stands_for = self.stands_for.as_ref()?;
        let mut parts: Vec<(u32, u64)> = parts.collect();
        // Sums of fractions depend on their order.
        parts.sort_unstable();
        Some(
            parts
                .into_iter()
                .map(|(group, loads)| {
                    loads as f64 * stands_for.get(group as usize).copied().unwrap_or(1.0)
                })
                // (The sum of nothing is -0.)
                .fold(0.0, |sum, executed| sum + executed),
        )
    }
}

#[cfg(test)]
impl Default for Basis<'static> {
    fn default() -> Basis<'static> {
        use std::sync::LazyLock;
        static NOTHING: LazyLock<(FootprintSet, Incidence)> = LazyLock::new(Default::default);
        let places = Places {
            design: None,
            estimator: crate::estimate::row_estimates::Estimator::Recapture,
            resonant: false,
        };
        Basis {
            footprint: &NOTHING.0,
            incidence: &NOTHING.1,
            places,
            shares: None,
            strides: ByGroup::default(),
            stands_for: None,
        }
    }
}
