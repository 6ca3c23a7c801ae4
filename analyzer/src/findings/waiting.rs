//! Measured waits: the share of the time in which the interrupt of a trigger occurred right after a
//! load of a cause.
//!
//! An interrupt lets the oldest instruction finish. So it occurs right after a load that was waited
//! for, but also after one that hit. The share includes the time of loads that hit.

use crate::data::samples::Waited;
use crate::estimate::time_shares::TimeShares;
use serde::Serialize;
use std::collections::HashSet;

/// A share of the time in percent, and its 95 % interval. None if the trace does not have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct WaitingShare {
    /// The estimate.
    #[serde(rename = "waiting_pct")]
    pub value: Option<f64>,
    /// Lower end.
    #[serde(rename = "waiting_pct_lo")]
    pub lo: Option<f64>,
    /// Upper end.
    #[serde(rename = "waiting_pct_hi")]
    pub hi: Option<f64>,
}

impl WaitingShare {
    /// The share of load instructions. `times` are windows by time, if there are any. `waited` is
    /// the load right before each window's trigger.
    pub(super) fn of_sites(
        sites: &[u32],
        times: Option<&TimeShares>,
        waited: &Waited,
    ) -> WaitingShare {
        let Some(times) = times.filter(|_| waited.has_loads()) else {
            return WaitingShare::default();
        };
        let sites: HashSet<u32> = sites.iter().copied().collect();
        let is_behind = |sample: u32| waited.load(sample).is_some_and(|s| sites.contains(&s));
        let share = times.of_spots(|sample, _| is_behind(sample));
        WaitingShare {
            value: share.value,
            lo: share.lo,
            hi: share.hi,
        }
    }

    /// The lower end, the estimate and the upper end. Infinite without a measurement.
    pub(super) fn ends(&self) -> [f64; 3] {
        [self.lo, self.value, self.hi].map(|end| end.unwrap_or(f64::INFINITY))
    }

    /// The combined share of two disjoint sets of load instructions.
    pub(super) fn and(self, other: WaitingShare) -> WaitingShare {
        let sum = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| (a + b).min(100.0));
        WaitingShare {
            value: sum(self.value, other.value),
            lo: sum(self.lo, other.lo),
            hi: sum(self.hi, other.hi),
        }
    }
}
