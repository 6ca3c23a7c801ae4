//! What rows by code have in common, and how tables of them are made.

use crate::data::counts::{Bin, Counts, Metrics};
use crate::data::frame;
use crate::estimate::Estimate;
use crate::estimate::row_estimates::{Hats, Maker};
use crate::estimate::time_shares::TimeShare;
use crate::report::sums::RowSums;
use crate::stages::observed_class::ObservedRow;
use polars::prelude::{Column, NamedFrom, Series};
use rayon::prelude::*;
use serde::Serialize;

/// What the loads of a piece of code did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Loads {
    /// Share of the time, where windows come by time.
    #[serde(flatten)]
    pub time: TimeShare,
    /// Share of the executed loads, percent. Where windows come by time, of the measured ones, and unknown unless all are.
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
}

impl Loads {
    /// The share that rows are ranked by, percent: of the time, where windows come by time, else of the loads.
    pub fn weight(&self) -> f64 {
        self.time.value.or(self.share).unwrap_or(0.0)
    }
}

/// Strides shown per row.
const STRIDES: usize = 4;

/// What the rows of one table are made of.
pub(crate) struct Facts<'a> {
    pub(crate) sums: &'a RowSums,
    /// Samples that have seen each row.
    pub(crate) seen: &'a [u64],
    pub(crate) maker: &'a Maker<'a>,
    /// Where windows come by time.
    pub(crate) by_time: Option<ByTime>,
    /// Executed loads, where another run has counted them.
    pub(crate) counted: Option<Vec<Option<Estimate>>>,
    /// Bytes of the objects that each row has touched, where they are all known.
    pub(crate) bounds: Option<&'a [Option<u64>]>,
    /// Recorded and implied loads of the whole.
    pub(crate) all: u64,
    /// Executed loads of the whole, where rows are shares of these.
    pub(crate) executed: Option<f64>,
    /// Classes that each row's loads were observed to have.
    pub(crate) observed: Vec<ObservedRow>,
}

/// What windows by time tell of the rows of a table.
#[derive(Default)]
pub(crate) struct ByTime {
    pub(crate) shares: Vec<TimeShare>,
    /// Executed loads, where they were measured.
    pub(crate) executed: Vec<Option<Estimate>>,
}

impl Facts<'_> {
    fn loads(&self, row: usize) -> Loads {
        let counts = &self.sums.counts[row];
        let time = self.by_time.as_ref().map(|t| t.shares[row]);
        let executed = match &self.counted {
            Some(counted) => Some(counted.get(row).copied().flatten()),
            None => self
                .by_time
                .as_ref()
                .map(|t| t.executed.get(row).copied().flatten()),
        };
        let bound = self.bounds.and_then(|b| b[row]);
        let hats = self
            .maker
            .make(row as u32, counts, self.seen[row], executed, bound);
        let hats = match time {
            Some(time) => hats.marked_by(time),
            None => hats,
        };
        Loads {
            time: time.unwrap_or_default(),
            share: self.share(counts, &hats),
            metrics: counts.metrics().with_distances(&self.sums.distances[row]),
            hats,
            distances: self.sums.distances[row].coarse().bins(),
            observed: self.observed[row].clone(),
            strides: crate::stages::strides::top(self.sums.strides[row].iter().copied(), STRIDES),
        }
    }

    /// Of executed loads where samples stand for different numbers of them, else of recorded ones.
    fn share(&self, counts: &Counts, hats: &Hats) -> Option<f64> {
        let recorded = || {
            let part = (counts.accesses + counts.implied) as f64;
            (self.all > 0).then(|| part * 100.0 / self.all as f64)
        };
        match (self.executed, hats.accesses) {
            (Some(all), Some(part)) => Some(part * 100.0 / all),
            _ if self.by_time.is_some() || self.counted.is_some() => None,
            _ => recorded(),
        }
    }
}

/// The rows of a table that have loads or stores, the greatest share first. Of equal ones that with more recorded loads, more stores, a smaller `tie` and a smaller number is first.
pub(crate) fn rows_by<R: Send>(
    facts: &Facts<'_>,
    tie: impl Fn(usize) -> u32,
    row: impl Fn(usize, Loads) -> R + Sync,
) -> Vec<R> {
    let counts = &facts.sums.counts;
    let used: Vec<usize> = (0..counts.len())
        .filter(|&i| counts[i].accesses + counts[i].implied + counts[i].stores > 0)
        .collect();
    let loads: Vec<Loads> = used.par_iter().map(|&i| facts.loads(i)).collect();
    let column = |name: &str, value: &dyn Fn(usize) -> u64| {
        let cells: Vec<u64> = used.iter().map(|&i| value(i)).collect();
        Column::from(Series::new(name.into(), cells))
    };
    let ranked = facts.by_time.is_some() || facts.executed.is_some();
    let weights: Vec<f64> = loads
        .iter()
        .map(|l| if ranked { l.weight() } else { 0.0 })
        .collect();
    let keys = vec![
        Column::from(Series::new("weight".into(), weights)),
        column("loads", &|i| counts[i].accesses + counts[i].implied),
        column("stores", &|i| counts[i].stores),
        column("tie", &|i| tie(i).into()),
    ];
    let order = frame::order(keys, vec![true, true, true, false])
        .unwrap_or_else(|_| (0..used.len()).collect());
    let mut loads: Vec<Option<Loads>> = loads.into_iter().map(Some).collect();
    let ordered: Vec<(usize, Loads)> = order
        .into_iter()
        .filter_map(|at| Some((used[at], loads[at].take()?)))
        .collect();
    ordered
        .into_par_iter()
        .map(|(number, loads)| row(number, loads))
        .collect()
}
