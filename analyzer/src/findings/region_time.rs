//! The time of the rows of a region, with the waits of the causes in it.

use crate::findings::context::Context;
use crate::findings::params;
use crate::findings::time_account::{Account, Factors, Modelled, Pace, RegionKey, Wait};
use crate::util::fast_hash::Mixed;
use std::collections::{BTreeMap, HashMap};

/// Rows of a region, their measured time, and the causes in it.
pub(crate) struct RegionTime {
    pub(crate) key: RegionKey,
    /// Number of its rows.
    rows: f64,
    /// The measured time per row.
    pace: Option<Pace>,
    /// Causes in the region, each with the share of its waits in this region.
    pub(crate) causes: Vec<(usize, f64)>,
}

/// Predicted wait of the rows of a cause, and the standard deviation of its logarithm.
pub(crate) type WaitOfCause = (Wait, f64);

impl RegionTime {
    /// The regions with causes. `of_causes` are the regions of each cause.
    pub(crate) fn all<'a>(
        context: &Context,
        of_causes: impl Iterator<Item = &'a [RegionKey]>,
    ) -> Vec<RegionTime> {
        let mut rows: HashMap<RegionKey, u64, Mixed> = HashMap::default();
        for facts in context.sites.values() {
            let key = context.users.region(facts.group.piece());
            *rows.entry(key).or_default() += facts.rows;
        }
        let mut causes: BTreeMap<RegionKey, Vec<(usize, f64)>> = BTreeMap::new();
        for (number, regions) in of_causes.enumerate() {
            let part = 1.0 / regions.len() as f64;
            for region in regions {
                causes.entry(*region).or_default().push((number, part));
            }
        }
        let region = |(key, causes)| RegionTime {
            key,
            rows: rows.get(&key).copied().unwrap_or(0) as f64,
            pace: context.paces.of(key),
            causes,
        };
        causes.into_iter().map(region).collect()
    }

    /// True if the time per row was measured.
    pub(crate) fn is_measured(&self) -> bool {
        self.pace.is_some()
    }

    /// The waits of its causes in this region.
    pub(crate) fn waits(&self, of_causes: &[Wait]) -> Vec<Wait> {
        let of = |&(cause, part): &(usize, f64)| of_causes[cause].times(part);
        self.causes.iter().map(of).collect()
    }

    /// The factors of waits and of other work that agree with the measured time.
    pub(crate) fn account(&self, of_causes: &[WaitOfCause]) -> Account {
        let of = |&(cause, part): &(usize, f64)| of_causes[cause].0.times(part);
        let waits: Vec<Wait> = self.causes.iter().map(of).collect();
        let all: f64 = waits.iter().map(|w| w.at(1.0)).sum();
        let deviations: f64 = (self.causes.iter().zip(&waits))
            .map(|(&(cause, _), wait)| of_causes[cause].1 * wait.at(1.0))
            .sum();
        let deviation = deviations / all.max(f64::MIN_POSITIVE);
        self.modelled(&waits, deviation).account(self.pace)
    }

    /// Nanoseconds of all rows with these waits of the region.
    pub(crate) fn ns(&self, waits: &[Wait], factors: Factors) -> f64 {
        let modelled = self.modelled(waits, 0.0);
        factors.others * modelled.others + modelled.waits_at(factors.exposed)
    }

    fn modelled<'a>(&self, waits: &'a [Wait], deviation: f64) -> Modelled<'a> {
        Modelled {
            rows: self.rows,
            others: self.rows * params::NS_OF_HITTING_LOAD,
            waits,
            deviation,
        }
    }
}
