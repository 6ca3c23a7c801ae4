//! Prices of loads: predicted misses times latencies.
//!
//! The misses are those of the tables ([`crate::misses`]). A group's misses are divided among its
//! load instructions by their first touches. Without a prediction, each first touch of a window may
//! miss all levels, and the price is an upper bound.

use crate::data::group::Group;
use crate::findings::params;
use crate::findings::sites::SiteFacts;
use crate::findings::time_account::Wait;
use crate::misses::{Hierarchy, Misses, Predicted, Range, caches, is_vague};
use crate::util::fast_hash::Mixed;
use mgz_models::statistics::NORMAL_QUANTILE_OF_95_PCT;
use std::collections::HashMap;

/// Misses of load instructions in the rows that were read.
pub struct Prices<'a> {
    /// Caches and latencies.
    pub hierarchy: Hierarchy,
    predicted: Option<&'a Predicted>,
    misses: HashMap<u32, SiteMisses, Mixed>,
}

/// Misses of a load instruction.
struct SiteMisses {
    rows: u64,
    /// By level.
    misses: Vec<f64>,
    /// True if its steps are too long for the processor's prefetchers.
    has_long_steps: bool,
}

/// The price of some loads.
#[derive(Clone, Debug, Default)]
pub struct Price {
    /// Predicted misses of the loads. None if misses are not predicted.
    pub misses: Option<Misses>,
    /// Number of the level whose misses cost most.
    pub level: Option<usize>,
    /// Nanoseconds that the rows wait: lower end, estimate, upper end.
    pub wait_ns: Range,
    /// The estimate in parts.
    pub(crate) wait: Wait,
    /// The estimate if a prefetcher had fetched all lines, some of them with long steps.
    pub(crate) streamed_ns: f64,
}

impl<'a> Prices<'a> {
    /// Divides the predicted misses among the load instructions of `sites`.
    pub fn new(
        hierarchy: Hierarchy,
        predicted: Option<&'a Predicted>,
        sites: &HashMap<u32, SiteFacts, Mixed>,
    ) -> Prices<'a> {
        let mut groups: HashMap<Group, (u64, u64), Mixed> = HashMap::default();
        for facts in sites.values() {
            let sums = groups.entry(facts.group).or_default();
            *sums = (sums.0 + facts.rows, sums.1 + facts.firsts);
        }
        let of = |facts: &SiteFacts| {
            let (rows, firsts) = groups[&facts.group];
            let part = match firsts {
                0 => facts.rows as f64 / rows.max(1) as f64,
                _ => facts.firsts as f64 / firsts as f64,
            };
            let misses = match predicted {
                Some(predicted) => (predicted.per_access(facts.group).iter())
                    .take(hierarchy.caches.len())
                    .map(|ratio| ratio * rows as f64 * part)
                    .collect(),
                None => vec![(facts.firsts as f64).min(facts.rows as f64); hierarchy.caches.len()],
            };
            let step = facts.regular_step().map_or(0, i64::unsigned_abs);
            let of_site = SiteMisses {
                rows: facts.rows,
                misses,
                has_long_steps: step > params::MAX_STEP_OF_PREFETCHER,
            };
            (facts.site, of_site)
        };
        Prices {
            misses: sites.values().map(of).collect(),
            hierarchy,
            predicted,
        }
    }

    /// True if misses are predicted.
    pub fn are_predicted(&self) -> bool {
        self.predicted.is_some()
    }

    /// Name of a level.
    pub fn name(&self, level: usize) -> String {
        (self.hierarchy.caches)
            .get(level)
            .map_or_else(String::new, caches::name)
    }

    /// Nanoseconds that the rows of a load instruction wait if no two loads overlap.
    pub fn of_site(&self, site: u32) -> f64 {
        let misses = self.misses.get(&site).into_iter().flat_map(|m| &m.misses);
        let wait = |(level, misses): (usize, &f64)| misses * self.hierarchy.wait_ns(level)[1];
        misses.enumerate().map(wait).sum()
    }

    /// Share of the time that is lost to a wait, with the ends of its interval. `others` is the
    /// time of other work in nanoseconds.
    pub fn lost(&self, wait: Range, others: f64) -> Range {
        let factor = match self.hierarchy.is_measured() {
            true => params::OTHER_WORK_FACTOR,
            false => 1.0,
        };
        lost(wait, others, factor)
    }

    /// Each object's part of the misses of some groups.
    pub fn of_objects(&self, groups: &[Group]) -> HashMap<u32, f64, Mixed> {
        self.predicted
            .map(|p| p.waits_by_object(groups))
            .unwrap_or_default()
    }

    /// The price of some load instructions of these groups. `chained` is true if each load waits
    /// for the previous one.
    pub fn of(&self, sites: &[u32], groups: &[Group], chained: bool) -> Price {
        let mut misses = (self.predicted).and_then(|p| p.of_groups(groups.iter().copied()));
        if let Some(misses) = &mut misses {
            misses.curve.clear();
        }
        let levels = misses.as_ref().map_or(&[][..], |m| &m.levels);
        let ahead = levels.last().and_then(|l| l.prefetchable).unwrap_or(0.0)
            * self.part_of_short_steps(sites);
        let alone = exposed_alone(chained, self.hierarchy.overlap());
        let mut parts = Wait {
            exposed_share: alone[1],
            ..Wait::default()
        };
        let (mut wait, mut most, mut level, mut streamed_ns) = ([0.0; 3], 0.0, None, 0.0);
        let mut counts = [f64::INFINITY; 3];
        for at in 0..self.hierarchy.caches.len() {
            let known = || sites.iter().filter_map(|s| self.misses.get(s));
            let value: f64 = known().filter_map(|m| m.misses.get(at)).sum();
            let rows: u64 = known().map(|m| m.rows).sum();
            let ratio = levels.get(at).and_then(|l| l.ratio);
            counts = misses_at(counts, (value, rows as f64), ratio);
            let latency = self.hierarchy.wait_ns(at);
            let prefetched = self.prefetched_share(at);
            let exposed: Range =
                std::array::from_fn(|end| ahead * prefetched[end] + (1.0 - ahead) * alone[end]);
            let each = match ratio {
                Some(ratio) if at == 0 && !chained => {
                    ratio.map(|r| exposed[1] * (latency[1] - hidden_ns(r)).max(0.0))
                }
                _ => [exposed[1] * latency[1]; 3],
            };
            let by_misses: Range = std::array::from_fn(|end| counts[end] * each[end]);
            let ends = match self.hierarchy.is_measured() {
                true => {
                    let of_latency = latency.map(|ns| counts[1] * exposed[1] * ns);
                    let of_exposed = exposed.map(|share| counts[1] * share * latency[1]);
                    widened(by_misses, [of_latency, of_exposed])
                }
                false => by_misses,
            };
            wait.iter_mut().zip(ends).for_each(|(sum, end)| *sum += end);
            let likely = match ratio {
                Some(ratio) if is_vague(ratio) => (counts[0] + counts[2]) / 2.0,
                _ => counts[1],
            };
            let all = likely * each[1];
            let of_prefetched = ahead * prefetched[1] / exposed[1].max(f64::MIN_POSITIVE);
            parts.prefetched += of_prefetched * all;
            parts.prefetched_most += likely * ahead * alone[1] * latency[1];
            parts.exposed += (1.0 - of_prefetched) * all;
            streamed_ns += likely * (prefetched[1] * prefetched[2]).sqrt() * latency[1];
            if all > most {
                (most, level) = (all, Some(at));
            }
        }
        Price {
            misses,
            level,
            wait_ns: wait,
            wait: parts,
            streamed_ns,
        }
    }

    /// Part of the first-level misses of some load instructions whose steps are short.
    fn part_of_short_steps(&self, sites: &[u32]) -> f64 {
        let known = || sites.iter().filter_map(|s| self.misses.get(s));
        let misses = |m: &SiteMisses| m.misses.first().copied().unwrap_or(0.0);
        let all: f64 = known().map(misses).sum();
        let long: f64 = known().filter(|m| m.has_long_steps).map(misses).sum();
        1.0 - long / all.max(f64::MIN_POSITIVE)
    }

    /// Share of a latency that delays the program if a prefetcher has fetched the line, with the
    /// ends of its interval.
    fn prefetched_share(&self, level: usize) -> Range {
        let latency = self.hierarchy.wait_ns(level)[1];
        match self.hierarchy.prefetched_ns(level) {
            Some(ns) if latency > 0.0 => {
                let is_memory = level + 1 == self.hierarchy.caches.len();
                let least = match is_memory {
                    true => 0.0,
                    false => params::MIN_EXPOSED_LATENCY_SHARE_PREFETCHED,
                };
                let [near, far] = ns.map(|ns| (ns / latency).clamp(least, 1.0));
                [near, near, far]
            }
            _ => params::EXPOSED_LATENCY_SHARE_PREFETCHED,
        }
    }
}

/// Misses of some rows at a level, with the ends of their interval. `value` is the estimate, and
/// `ratio` that of misses per load. Levels are predicted separately, but no level has more misses than
/// the one before.
fn misses_at(before: Range, (value, rows): (f64, f64), ratio: Option<Range>) -> Range {
    let alone = match ratio {
        Some([lo, middle, hi]) if middle > 0.0 => [lo, middle, hi].map(|r| value * r / middle),
        Some([_, _, hi]) => [0.0, value, rows * hi],
        None => [0.0, value, value],
    };
    std::array::from_fn(|end| before[end].min(alone[end]))
}

/// Share of a latency that delays the program if no prefetcher has fetched the line, with the ends
/// of its interval. `overlap` is the measured share that remains if eight loads overlap.
fn exposed_alone(chained: bool, overlap: Option<f64>) -> Range {
    match chained {
        true => params::EXPOSED_LATENCY_SHARE_IN_CHASE,
        false => exposed_overlapping(overlap),
    }
}

/// Share of a latency that delays the program if several loads overlap, with the ends of its
/// interval.
fn exposed_overlapping(overlap: Option<f64>) -> Range {
    let [least, assumed, most] = params::EXPOSED_LATENCY_SHARE_OVERLAPPING;
    [least, overlap.unwrap_or(assumed).clamp(least, most), most]
}

/// Share of a wait in the sum of the wait and of other work. The errors of both are independent.
/// `factor` is the error of the other work.
fn lost(wait: Range, others: f64, factor: f64) -> Range {
    let share = |wait: f64, others: f64| wait / (wait + others).max(f64::MIN_POSITIVE);
    let value = share(wait[1], others);
    let off = |end: usize, others_there: f64| {
        let (by_wait, by_others) = (share(wait[end], others), share(wait[1], others_there));
        (by_wait - value).hypot(by_others - value)
    };
    match factor > 1.0 {
        true => [
            (value - off(0, others * factor)).max(0.0),
            value,
            (value + off(2, others / factor)).min(1.0),
        ],
        false => wait.map(|ns| share(ns, others)),
    }
}

/// Widens an interval by independent errors, which are combined as the root of the sum of their
/// squares. The ends of the intervals `others` give these errors.
fn widened([lo, value, hi]: Range, others: [Range; 2]) -> Range {
    let off = |end: usize, own: f64| {
        let distances = others.iter().map(|other| other[end] - other[1]);
        distances.fold(own, f64::hypot)
    };
    [
        (value - off(0, value - lo)).max(0.0),
        value,
        value + off(2, hi - value),
    ]
}

/// Nanoseconds of hits between two misses. They overlap with the miss, so they hide this part of
/// its latency. `ratio`: misses per load.
fn hidden_ns(ratio: f64) -> f64 {
    params::NS_OF_HITTING_LOAD / ratio.max(f64::MIN_POSITIVE)
}

impl Price {
    /// Standard deviation of the logarithm of the waits, from the overlap of loads and from the
    /// interval of the misses.
    pub(crate) fn deviation(&self) -> f64 {
        let levels = self.misses.as_ref().map_or(&[][..], |m| &m.levels);
        let ratio = self.level.and_then(|at| levels.get(at)?.ratio);
        let [lo, _, hi] = ratio.unwrap_or([1.0; 3]);
        let ends = (hi / lo).clamp(1.0, params::MAX_RATIO_OF_MISS_ENDS).ln();
        params::EXPOSED_WAIT_DEVIATION.hypot(ends / 2.0 / NORMAL_QUANTILE_OF_95_PCT)
    }

    /// For example `12 % (9–15) of the loads miss the L2 of 2 MiB`.
    pub fn in_words(&self, prices: &Prices) -> String {
        let of = |misses: &Misses| {
            let at = self.level?;
            let level = misses.levels.get(at)?;
            let of = format!(
                "of the loads miss the {} of {}",
                level.level,
                level.size_in_words()
            );
            let ratio = level.ratio?;
            let [lo, _, hi] = ratio.map(|part| 100.0 * part);
            Some(match is_vague(ratio) {
                true => format!("how many {of} is not known ({lo:.0}–{hi:.0} %)"),
                false => format!("{} {of}", share(ratio)),
            })
        };
        match self.misses.as_ref().and_then(of) {
            Some(text) => text,
            None if prices.are_predicted() => "few of the loads miss".into(),
            None => "the number of misses is not known".into(),
        }
    }
}

/// A ratio as percent with its interval; without a value if the ends differ by much.
fn share([lo, value, hi]: [f64; 3]) -> String {
    let pct = |part: f64| match 100.0 * part {
        few if few < 9.95 => format!("{few:.1}"),
        more => format!("{more:.0}"),
    };
    match (pct(lo), pct(hi)) {
        (lo, hi) if lo == hi => format!("{lo} %"),
        (low, high) if hi > params::MAX_RATIO_OF_KNOWN_ENDS * lo => format!("{low} to {high} %"),
        (lo, hi) => format!("{} % ({lo}–{hi})", pct(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(site: u32, rows: u64, firsts: u64) -> (u32, SiteFacts) {
        let mut facts = SiteFacts::default();
        (facts.site, facts.group) = (site, Group::from_raw(4));
        (facts.rows, facts.firsts) = (rows, firsts);
        (site, facts)
    }

    #[test]
    fn an_unknown_price_is_an_upper_bound() {
        let sites: HashMap<u32, SiteFacts, Mixed> =
            [site(1, 100, 50), site(2, 100, 0)].into_iter().collect();
        let prices = Prices::new(Hierarchy::new(caches::typical(), None), None, &sites);
        let of = |site: u32| prices.of(&[site], &[Group::from_raw(4)], true);
        assert_eq!(of(1).wait_ns, [0.0, 4650.0, 4650.0]);
        assert_eq!((of(2).wait_ns, of(2).level), ([0.0; 3], None));
        assert_eq!(of(1).in_words(&prices), "the number of misses is not known");
        assert!(prices.of_site(1) > prices.of_site(2));
    }

    #[test]
    fn no_level_has_more_misses_than_the_one_before() {
        let all = [f64::INFINITY; 3];
        let first = misses_at(all, (10.0, 100.0), Some([0.05, 0.1, 0.2]));
        assert_eq!(first, [5.0, 10.0, 20.0]);
        let second = misses_at(first, (36.0, 100.0), Some([0.0, 0.36, 0.9]));
        assert_eq!(second, [0.0, 10.0, 20.0]);
        assert_eq!(
            misses_at(second, (0.0, 100.0), Some([0.0, 0.0, 1.0])),
            [0.0, 0.0, 20.0]
        );
        assert_eq!(misses_at(all, (7.0, 100.0), None), [0.0, 7.0, 7.0]);
    }

    #[test]
    fn lost_shares_have_the_errors_of_wait_and_of_other_work() {
        let assumed = lost([1.0, 2.0, 6.0], 2.0, 1.0);
        assert_eq!(assumed, [1.0 / 3.0, 0.5, 0.75]);
        let [lo, value, hi] = lost([1.0, 2.0, 6.0], 2.0, 2.0);
        assert!(value == 0.5 && lo < assumed[0] && hi > assumed[2] && hi <= 1.0);
        assert_eq!(lost([0.0; 3], 0.0, 2.0), [0.0; 3]);
    }

    #[test]
    fn errors_of_factors_add_to_those_of_misses() {
        let [lo, value, hi] = widened([8.0, 10.0, 13.0], [[5.0, 10.0, 14.0], [0.5; 3]]);
        assert_eq!(value, 10.0);
        assert!((lo - (10.0 - 29f64.sqrt())).abs() < 1e-9, "{lo}");
        assert!((hi - 15.0).abs() < 1e-9, "{hi}");
        // A value of zero can have an upper end.
        assert_eq!(
            widened([0.0; 3], [[0.0, 0.0, 3.0], [0.0; 3]]),
            [0.0, 0.0, 3.0]
        );
        let [_, measured, most] = exposed_alone(false, Some(0.1));
        assert_eq!((measured, most), (0.1, 0.5));
        assert_eq!(exposed_alone(true, Some(0.1))[1], 1.0);
    }

    #[test]
    fn wide_intervals_have_no_value() {
        assert_eq!(share([0.1, 0.12, 0.15]), "12 % (10–15)");
        assert_eq!(share([0.0, 0.12, 0.15]), "0.0 to 15 %");
        assert_eq!(share([1.0; 3]), "100 %");
    }
}
