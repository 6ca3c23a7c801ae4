//! Common parts of rows by code, and the construction of their tables.

use crate::data::counts::{AccessCounts, Metrics};
use crate::data::detail::Detail;
use crate::data::group::Group;
use crate::data::log_histogram::Bin;
use crate::estimate::Estimate;
use crate::estimate::row_estimates::{Hats, Maker, Shown};
use crate::estimate::time_shares::TimeShare;
use crate::misses::{Misses, Predicted};
use crate::report::sums::RowSums;
use crate::stages::observed_class::ObservedRow;
use rayon::prelude::*;
use serde::Serialize;

/// Numbers of the loads of a piece of code.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LoadMetrics {
    /// Share of the time, if windows are triggered by time.
    #[serde(flatten)]
    pub time: TimeShare,
    /// Share of the executed loads, percent. If windows are triggered by time, it is the share of
    /// the measured loads, and unknown unless all are measured.
    #[serde(rename = "A_pct")]
    pub share: Option<f64>,
    /// Metrics.
    #[serde(flatten)]
    pub metrics: Metrics,
    /// Estimates for the whole run.
    #[serde(flatten)]
    pub hats: Hats,
    /// Histogram of D.
    #[serde(rename = "D_hist")]
    pub distances: Vec<Bin>,
    /// Classes that were observed.
    #[serde(flatten)]
    pub observed: ObservedRow,
    /// The most frequent strides of its load instructions.
    pub strides: Vec<crate::stages::strides::Stride>,
    /// Predicted cache misses.
    pub misses: Option<Misses>,
}

impl LoadMetrics {
    /// Share by which rows are ranked, percent: of the time if windows are triggered by time, else
    /// of the loads.
    pub fn weight(&self) -> f64 {
        self.time.value.or(self.share).unwrap_or(0.0)
    }

    /// True if its share is large enough for a row of a screen.
    pub(crate) fn is_worth(&self, by_time: bool) -> bool {
        let share = if by_time { self.time.value } else { self.share };
        share.is_none_or(|s| s >= MIN_SHARE_PCT)
    }
}

/// Rows with a smaller share are left out of screens, percent: they would show 0.0.
const MIN_SHARE_PCT: f64 = 0.05;

/// Strides shown per row.
const STRIDES: usize = 4;

/// Data for the rows of one table.
pub(crate) struct Facts<'a> {
    pub(crate) sums: &'a RowSums,
    /// Samples that have seen each row.
    pub(crate) seen: &'a [u64],
    pub(crate) maker: Maker<'a>,
    /// Shares of time, if windows are triggered by time.
    pub(crate) by_time: Option<ByTime>,
    /// Executed loads, if another run counted them.
    pub(crate) counted: Option<Vec<Option<Estimate>>>,
    /// Bytes of the objects that each row has touched, if all are known.
    pub(crate) bounds: Option<&'a [Option<u64>]>,
    /// Recorded and implied loads of the whole.
    pub(crate) all: u64,
    /// Executed loads of the whole, if shares refer to them.
    pub(crate) of_whole: Option<f64>,
    /// Observed classes of each row's loads.
    pub(crate) observed: Vec<ObservedRow>,
    /// Misses of groups, the groups of each row, and nanoseconds of the run.
    pub(crate) misses: Option<(&'a Predicted, Vec<Vec<Group>>, f64)>,
    pub(crate) detail: Detail,
}

/// Shares of time for the rows of a table.
#[derive(Default)]
pub(crate) struct ByTime {
    pub(crate) shares: Vec<TimeShare>,
    /// Executed loads, if they were measured.
    pub(crate) executed: Vec<Option<Estimate>>,
}

impl Facts<'_> {
    fn time(&self, row: usize) -> Option<TimeShare> {
        self.by_time.as_ref().map(|t| t.shares[row])
    }

    /// Executed loads of a row, if they were measured or counted.
    fn executed(&self, row: usize) -> Option<Option<Estimate>> {
        match &self.counted {
            Some(counted) => Some(counted.get(row).copied().flatten()),
            None => (self.by_time.as_ref()).map(|t| t.executed.get(row).copied().flatten()),
        }
    }

    /// Shares of a row, before memory is estimated.
    fn shares(&self, row: usize) -> LoadMetrics {
        let counts = &self.sums.counts[row];
        let accesses = (self.maker).accesses(row as u32, counts, self.executed(row));
        LoadMetrics {
            time: self.time(row).unwrap_or_default(),
            share: self.share(counts, accesses),
            ..LoadMetrics::default()
        }
    }

    fn loads(&self, row: usize) -> LoadMetrics {
        let counts = &self.sums.counts[row];
        let (time, executed) = (self.time(row), self.executed(row));
        let bound = self.bounds.and_then(|b| b[row]);
        let hats = (self.maker).make(row as u32, counts, self.seen[row], executed, bound);
        if !self.detail.is_all() {
            return LoadMetrics {
                metrics: counts.metrics(),
                hats,
                ..self.shares(row)
            };
        }
        let hats = match time {
            Some(time) => hats.marked_by(time),
            None => hats,
        };
        let misses = self.misses.as_ref().and_then(|(predicted, groups, ns)| {
            let of = predicted.of_groups(groups[row].iter().copied())?;
            let spent = time.and_then(|t| Some([t.lo?, t.value?, t.hi?]));
            let spent = spent
                .filter(|_| *ns > 0.0)
                .map(|t| t.map(|pct| pct / 100.0 * ns));
            Some(of.of_run(hats.executed(), spent))
        });
        LoadMetrics {
            time: time.unwrap_or_default(),
            share: self.share(counts, hats.accesses),
            metrics: counts.metrics().with_distances(&self.sums.distances[row]),
            hats,
            distances: self.sums.distances[row].coarse().bins(),
            observed: self.observed[row].clone(),
            strides: crate::stages::strides::top(self.sums.strides[row].iter().copied(), STRIDES),
            misses,
        }
    }

    /// Share of the executed loads if samples represent different numbers of them, else of the
    /// recorded ones.
    fn share(&self, counts: &AccessCounts, accesses: Option<f64>) -> Option<f64> {
        let recorded = || {
            let part = (counts.accesses + counts.implied) as f64;
            (self.all > 0).then(|| part * 100.0 / self.all as f64)
        };
        match (self.of_whole, accesses) {
            (Some(all), Some(part)) => Some(part * 100.0 / all),
            _ if self.by_time.is_some() || self.counted.is_some() => None,
            _ => recorded(),
        }
    }
}

/// Rows of a table that have loads or stores, the greatest share first. Among equal ones, the order
/// is by more recorded loads, more stores, a smaller `tie` and a smaller number.
pub(crate) fn order(facts: &Facts<'_>, tie: impl Fn(usize) -> u32) -> Vec<usize> {
    let counts = &facts.sums.counts;
    let used: Vec<usize> = (0..counts.len())
        .filter(|&i| counts[i].accesses + counts[i].implied + counts[i].stores > 0)
        .collect();
    let ranked = facts.by_time.is_some() || facts.of_whole.is_some();
    let weight = |&i: &usize| facts.shares(i).weight();
    let weights: Vec<f64> = match ranked {
        true => used.par_iter().map(weight).collect(),
        false => vec![0.0; used.len()],
    };
    let key = |(&i, weight): (&usize, f64)| {
        let counts = &counts[i];
        (
            weight,
            counts.accesses + counts.implied,
            counts.stores,
            tie(i),
        )
    };
    let keys: Vec<RankKey> = used.iter().zip(weights).map(key).collect();
    let order = rank(&keys);
    order.into_iter().map(|at| used[at]).collect()
}

/// Weight, loads, stores and tie of a row.
type RankKey = (f64, u64, u64, u32);

/// Numbers of rows in the order of their keys: greater ones first, but smaller ties. Equal rows
/// keep their order.
fn rank(keys: &[RankKey]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..keys.len()).collect();
    order.sort_by(|&a, &b| {
        let (a, b) = (&keys[a], &keys[b]);
        (b.0.total_cmp(&a.0))
            .then_with(|| (b.1, b.2).cmp(&(a.1, a.2)))
            .then_with(|| a.3.cmp(&b.3))
    });
    order
}

/// Flags the rows with an estimate of their memory. `order` is the order of the rows, and
/// `may_stand` tells which of them a screen may show.
pub(crate) fn shown(
    facts: &Facts<'_>,
    order: &[usize],
    may_stand: impl Fn(usize) -> bool,
) -> Shown {
    let mut shown = vec![facts.detail.is_all(); facts.sums.counts.len()];
    if let Detail::Screen(rows) = facts.detail {
        let by_time = facts.by_time.is_some();
        let stands = |row: &&usize| may_stand(**row) && facts.shares(**row).is_worth(by_time);
        let first = order.iter().filter(stands).take(rows);
        first.for_each(|&row| shown[row] = true);
    }
    shown
}

/// Rows of a table, in this order.
pub(crate) fn rows_by<R: Send>(
    facts: &Facts<'_>,
    order: &[usize],
    row: impl Fn(usize, LoadMetrics) -> R + Sync,
) -> Vec<R> {
    let of = |&number: &usize| row(number, facts.loads(number));
    order.par_iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_ranked_by_several_keys_and_equal_ones_stay() {
        let keys = [
            (1.0, 5, 0, 2),
            (3.0, 1, 0, 1),
            (1.0, 5, 0, 1),
            (1.0, 5, 7, 9),
            (3.0, 1, 0, 1),
            (1.0, 6, 0, 9),
        ];
        assert_eq!(rank(&keys), [1, 4, 5, 3, 2, 0]);
    }
}
