//! Divides the time of a region among waits and other work.
//!
//! The model of prices gives both: loads that hit take `others` nanoseconds, and misses wait. How
//! much of a wait overlaps with other work, and how long other work takes, differs among loops by
//! large factors. If the time per load was measured, it limits both: with unknown factors f of the
//! waits and g of other work, `g·others + f·waits` is the measured time. The
//! logarithms of f and g have normal priors around 0, and that of the measured time has a normal
//! error. The posterior is summed on a grid.

use crate::estimate::time_shares::TimeShares;
use crate::findings::params;
use crate::findings::users::Users;
use crate::input::weights::Weights;
use crate::util::fast_hash::Mixed;
use mgz_annotations_schema::window_loads::loads_of_windows;
use mgz_models::statistics::NORMAL_QUANTILE_OF_95_PCT;
use std::collections::HashMap;

/// A function with an outermost loop.
pub(crate) type RegionKey = (u32, Option<u32>);

/// Predicted wait of some loads, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Wait {
    /// For lines that a prefetcher has fetched.
    pub(crate) prefetched: f64,
    /// For lines that a prefetcher has fetched, if their steps are long.
    pub(crate) prefetched_most: f64,
    /// For other lines, as the mean loop waits for them.
    pub(crate) exposed: f64,
    /// The exposed share of a latency in `exposed`.
    pub(crate) exposed_share: f64,
    /// The part of `exposed` that the change hides.
    pub(crate) hidden: f64,
    /// The remaining wait for this part, at most.
    pub(crate) hidden_most: f64,
}

impl Wait {
    /// The wait if the loop waits longer than the mean loop, by a factor. No load waits for more
    /// than its latency.
    pub(crate) fn at(&self, factor: f64) -> f64 {
        let longest = 1.0 / self.exposed_share.max(f64::MIN_POSITIVE);
        let exposed = factor.min(longest);
        (factor * self.prefetched).min(self.prefetched_most.max(self.prefetched))
            + exposed * (self.exposed - self.hidden)
            + (exposed * self.hidden).min(self.hidden_most)
    }

    /// A part of the wait.
    pub(crate) fn times(self, part: f64) -> Wait {
        Wait {
            prefetched: part * self.prefetched,
            prefetched_most: part * self.prefetched_most,
            exposed: part * self.exposed,
            exposed_share: self.exposed_share,
            hidden: part * self.hidden,
            hidden_most: part * self.hidden_most,
        }
    }
}

/// Measured time per row of regions.
#[derive(Debug, Default)]
pub(crate) struct Paces(HashMap<RegionKey, Pace, Mixed>);

/// Nanoseconds per row, and the standard deviation of their logarithm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pace {
    pub(crate) ns: f64,
    pub(crate) deviation: f64,
    /// Number of loads that the region executed.
    pub(crate) loads: f64,
}

impl Paces {
    /// The paces of the regions in which windows by time begin, if the recorder measured the speed
    /// of nearly all their code.
    pub(crate) fn new(times: &TimeShares, weights: &Weights, users: &Users) -> Paces {
        let mut windows: HashMap<RegionKey, Vec<u32>, Mixed> = HashMap::default();
        for (sample, spot) in times.spots() {
            let region = users.region(spot.group.piece());
            windows.entry(region).or_default().push(*sample);
        }
        let pace = |(region, windows): (RegionKey, Vec<u32>)| {
            let time = |&sample: &u32| weights.time(sample) as f64;
            let each = windows.iter().map(|s| (time(s), weights.executed(*s)));
            let (loads, error) = loads_of_windows(each)?;
            let ns = windows.iter().map(time).sum::<f64>() / loads;
            let deviation = error.ln_1p() / NORMAL_QUANTILE_OF_95_PCT;
            (ns > 0.0).then_some((
                region,
                Pace {
                    ns,
                    deviation,
                    loads,
                },
            ))
        };
        Paces(windows.into_iter().filter_map(pace).collect())
    }

    /// The pace of a region, if it was measured.
    pub(crate) fn of(&self, region: RegionKey) -> Option<Pace> {
        self.0.get(&region).copied()
    }
}

/// Factors of a region's exposed waits and of its other work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Factors {
    pub(crate) exposed: f64,
    pub(crate) others: f64,
}

/// The model as it is.
const UNCHANGED: Factors = Factors {
    exposed: 1.0,
    others: 1.0,
};

/// Possible factors of a region.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Account {
    /// The estimate.
    pub(crate) value: Factors,
    /// Pairs of ends of 95 % intervals, lower and upper waits, whose errors are independent.
    pub(crate) ends: [[Factors; 2]; 2],
}

/// Time of the rows of a region by the model.
pub(crate) struct Modelled<'a> {
    /// Number of rows.
    pub(crate) rows: f64,
    /// Nanoseconds of other work.
    pub(crate) others: f64,
    /// Waits of its causes.
    pub(crate) waits: &'a [Wait],
    /// Standard deviation of the logarithm of the waits.
    pub(crate) deviation: f64,
}

impl Modelled<'_> {
    /// All waits with a factor.
    pub(crate) fn waits_at(&self, factor: f64) -> f64 {
        self.waits.iter().map(|w| w.at(factor)).sum()
    }

    /// The factors that agree with a measured pace.
    pub(crate) fn account(&self, pace: Option<Pace>) -> Account {
        let [exposed_error, others_error] = [self.deviation, params::OTHER_WORK_DEVIATION];
        let Some(pace) = pace.filter(|_| self.waits_at(1.0) > 0.0) else {
            let end = |deviation: f64| (NORMAL_QUANTILE_OF_95_PCT * deviation).exp();
            let waits = [1.0 / end(exposed_error), end(exposed_error)];
            let others = [end(others_error), 1.0 / end(others_error)];
            return Account {
                value: UNCHANGED,
                ends: [
                    waits.map(|exposed| Factors {
                        exposed,
                        ..UNCHANGED
                    }),
                    others.map(|others| Factors {
                        others,
                        ..UNCHANGED
                    }),
                ],
            };
        };
        let measured = (pace.ns * self.rows).max(f64::MIN_POSITIVE);
        let error = pace.deviation.max(params::MIN_PACE_DEVIATION);
        // By factor of the waits: its weight, and the mean logarithm of the factor of other work.
        let cells: Vec<(f64, f64, f64)> = (grid())
            .map(|z| {
                let waits = self.waits_at((z * exposed_error).exp());
                let (mut sum, mut logarithms) = (0.0, 0.0);
                for y in grid() {
                    let others = self.others * (y * others_error).exp();
                    let off = ((others + waits) / measured).ln() / error;
                    let weight = (-(z * z + y * y + off * off) / 2.0).exp();
                    sum += weight;
                    logarithms += weight * y * others_error;
                }
                (z * exposed_error, sum, logarithms)
            })
            .collect();
        let all: f64 = cells.iter().map(|c| c.1).sum();
        let factors = |part: f64| {
            let mut sum = 0.0;
            let cell = cells.iter().find(|cell| {
                sum += cell.1;
                sum >= part * all
            });
            cell.map_or(UNCHANGED, |&(logarithm, weight, others)| Factors {
                exposed: logarithm.exp(),
                others: (others / weight.max(f64::MIN_POSITIVE)).exp(),
            })
        };
        let ends = [factors(0.025), factors(0.975)];
        Account {
            value: factors(0.5),
            ends: [ends, ends],
        }
    }
}

/// Standard deviations of a prior at which it is summed.
fn grid() -> impl Iterator<Item = f64> {
    (-params::GRID_HALF..=params::GRID_HALF).map(|step| f64::from(step) * params::GRID_STEP)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(exposed: f64, exposed_share: f64) -> Wait {
        Wait {
            exposed,
            exposed_share,
            ..Wait::default()
        }
    }

    fn waiting_share(modelled: &Modelled, factors: Factors) -> f64 {
        let waits = modelled.waits_at(factors.exposed);
        waits / (waits + factors.others * modelled.others)
    }

    #[test]
    fn slow_code_waits_longer_than_the_model_predicts_and_fast_code_less() {
        let waits = [wait(100.0, 0.1)];
        let modelled = Modelled {
            rows: 100.0,
            others: 50.0,
            waits: &waits,
            deviation: params::EXPOSED_WAIT_DEVIATION,
        };
        let share = |ns: f64| {
            let account = modelled.account(Some(Pace {
                ns,
                deviation: 0.1,
                loads: 1e6,
            }));
            [account.ends[0][0], account.value, account.ends[0][1]]
                .map(|factors| waiting_share(&modelled, factors))
        };
        let (fast, as_modelled, slow) = (share(0.3), share(1.5), share(9.0));
        assert!((as_modelled[1] - 2.0 / 3.0).abs() < 0.05, "{as_modelled:?}");
        assert!(
            fast[1] < as_modelled[1] && slow[1] > 0.85,
            "{fast:?} {slow:?}"
        );
        for [lo, value, hi] in [fast, as_modelled, slow] {
            assert!(lo <= value && value <= hi, "{lo} {value} {hi}");
        }
        // A short measured time excludes long waits.
        let unknown = modelled.account(None);
        let [lo, hi] = unknown.ends[0].map(|f| waiting_share(&modelled, f));
        assert!(
            hi - lo > fast[2] - fast[0] && hi > fast[2],
            "{lo} {hi} {fast:?}"
        );
        assert_eq!(unknown.value, UNCHANGED);
    }

    #[test]
    fn a_load_waits_at_most_for_its_latency() {
        let chase = wait(100.0, 1.0);
        assert_eq!((chase.at(5.0), chase.at(0.5)), (100.0, 50.0));
        let overlapping = wait(100.0, 0.25);
        assert_eq!((overlapping.at(2.0), overlapping.at(9.0)), (200.0, 400.0));
        let hidden = Wait {
            hidden: 100.0,
            hidden_most: 32.0,
            ..overlapping
        };
        assert_eq!((hidden.at(9.0), hidden.at(0.1)), (32.0, 10.0));
        let prefetched = Wait {
            prefetched: 10.0,
            prefetched_most: 15.0,
            ..Wait::default()
        };
        assert_eq!((prefetched.at(0.5), prefetched.at(9.0)), (5.0, 15.0));
        assert_eq!(overlapping.times(0.5).at(2.0), 100.0);
    }
}
