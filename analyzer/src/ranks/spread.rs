//! Spread of a number over ranks: minimum and maximum with their ranks, sum, and quantiles.
//!
//! A few values are kept as they are. Many values become a histogram with 16 bins per doubling, so
//! that quantiles are wrong by at most a 32nd. The number of values alone decides between the two.
//! So the content depends only on the values, not on their order.

use crate::ranks::RankName;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Maximum number of values that are kept as they are. Source: Chosen.
const MAX_EXACT_VALUES: usize = 64;
/// Source: Chosen.
const BINS_PER_DOUBLING: u64 = 16;

/// Values by rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankSpread {
    /// Number of ranks that have a value.
    pub ranks: u64,
    /// Sum of the values.
    pub sum: u64,
    /// Least value, and the first rank that has it.
    pub min: Option<(u64, RankName)>,
    /// Greatest value, and the first rank that has it.
    pub max: Option<(u64, RankName)>,
    /// The values, ascending, if they are few.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    values: Vec<u64>,
    /// Values by bin, if they are many.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    bins: BTreeMap<u32, u64>,
}

/// The bin of a value.
fn bin(value: u64) -> u32 {
    if value < BINS_PER_DOUBLING {
        return value as u32;
    }
    let octave = value.ilog2();
    let within = (value >> (octave - BINS_PER_DOUBLING.ilog2())) - BINS_PER_DOUBLING;
    (u64::from(octave - BINS_PER_DOUBLING.ilog2() + 1) * BINS_PER_DOUBLING + within) as u32
}

/// The middle of a bin.
fn middle(bin: u32) -> u64 {
    let (octave, within) = (
        u64::from(bin) / BINS_PER_DOUBLING,
        u64::from(bin) % BINS_PER_DOUBLING,
    );
    if octave == 0 {
        return within;
    }
    let width = 1_u64 << (octave - 1);
    (BINS_PER_DOUBLING + within) * width + width / 2
}

impl RankSpread {
    /// Spread of one rank.
    pub fn of(value: u64, rank: &RankName) -> RankSpread {
        RankSpread {
            ranks: 1,
            sum: value,
            min: Some((value, rank.clone())),
            max: Some((value, rank.clone())),
            values: vec![value],
            bins: BTreeMap::new(),
        }
    }

    /// The value, if it comes from one rank.
    fn single(&self) -> Option<(u64, &RankName)> {
        let (value, name) = self.max.as_ref()?;
        (self.ranks == 1).then_some((*value, name))
    }

    fn with(&mut self, other: RankSpread, value: impl Fn(u64, u64) -> u64) {
        match (self.single(), other.single()) {
            (Some((a, name)), Some((b, _))) => *self = RankSpread::of(value(a, b), name),
            (None, Some(_)) => *self = other,
            _ => {}
        }
    }

    /// Adds another value of the same rank to the value of one rank.
    pub(crate) fn add(&mut self, other: RankSpread) {
        self.with(other, u64::saturating_add);
    }

    /// Raises the value of one rank to another value of the same rank, if that is greater.
    pub(crate) fn raise(&mut self, other: RankSpread) {
        self.with(other, u64::max);
    }

    /// Adds other ranks' values.
    pub fn merge(&mut self, other: RankSpread) {
        self.ranks += other.ranks;
        self.sum = self.sum.saturating_add(other.sum);
        self.min = [self.min.take(), other.min].into_iter().flatten().min();
        self.max = [self.max.take(), other.max]
            .into_iter()
            .flatten()
            .min_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        self.values.extend(other.values);
        for (bin, count) in other.bins {
            *self.bins.entry(bin).or_default() += count;
        }
        if self.ranks > MAX_EXACT_VALUES as u64 {
            for value in self.values.drain(..) {
                *self.bins.entry(bin(value)).or_default() += 1;
            }
        } else {
            self.values.sort_unstable();
        }
    }

    /// True if its greatest value comes before the other's: it is greater, or belongs to an earlier
    /// rank.
    pub fn is_headed_before(&self, other: &RankSpread) -> bool {
        match (&self.max, &other.max) {
            (Some(a), Some(b)) => a.0 > b.0 || (a.0 == b.0 && a.1 < b.1),
            (a, b) => a.is_some() && b.is_none(),
        }
    }

    /// The lower median over `all` ranks. Ranks without a value count as 0.
    pub fn median(&self, all: u64) -> Option<u64> {
        let all = all.max(self.ranks);
        let wanted = all.div_ceil(2);
        let zeros = all - self.ranks;
        if all == 0 {
            return None;
        }
        if wanted <= zeros {
            return Some(0);
        }
        let at = wanted - zeros;
        if self.bins.is_empty() {
            return self.values.get(at as usize - 1).copied();
        }
        let mut before = 0;
        let found = self.bins.iter().find(|(_, count)| {
            before += **count;
            before >= at
        });
        let (least, most) = (self.min.as_ref()?.0, self.max.as_ref()?.0);
        found.map(|(&bin, _)| middle(bin).clamp(least, most))
    }

    /// The mean over `all` ranks.
    pub fn mean(&self, all: u64) -> Option<f64> {
        let all = all.max(self.ranks);
        (all > 0).then(|| self.sum as f64 / all as f64)
    }

    /// The greatest value divided by the mean of all ranks: 1 if all are equal.
    pub fn imbalance(&self, all: u64) -> Option<f64> {
        let mean = self.mean(all).filter(|&mean| mean > 0.0)?;
        Some(self.max.as_ref()?.0 as f64 / mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(rank: u32) -> RankName {
        RankName {
            rank: Some(rank),
            ..RankName::default()
        }
    }

    fn of(values: &[u64]) -> RankSpread {
        let mut all = RankSpread::default();
        for (rank, &value) in (0..).zip(values) {
            all.merge(RankSpread::of(value, &name(rank)));
        }
        all
    }

    #[test]
    fn bins_are_a_sixteenth_wide() {
        let mut last = 0;
        for value in (0..2000).chain([u64::MAX / 3, u64::MAX]) {
            let at = bin(value);
            assert!(at >= last);
            last = at;
            let off = middle(at).abs_diff(value) as f64;
            assert!(off <= value as f64 / 32.0 + 0.5, "{value}: {}", middle(at));
        }
    }

    #[test]
    fn extremes_know_their_rank_and_ranks_without_value_are_zero() {
        let all = of(&[5, 9, 2, 9]);
        assert_eq!(all.max.as_ref().unwrap(), &(9, name(1)));
        assert_eq!(all.min.as_ref().unwrap(), &(2, name(2)));
        assert_eq!(all.median(4), Some(5));
        assert_eq!(all.median(8), Some(0));
        assert_eq!(all.imbalance(4), Some(9.0 / 6.25));
        assert_eq!(RankSpread::default().median(0), None);
    }

    proptest! {
        #[test]
        fn order_and_grouping_change_nothing(
            values in prop::collection::vec(0u64..1_000_000, 1..200),
            cut in 0usize..200,
        ) {
            let cut = cut.min(values.len());
            let whole = of(&values);
            let single = |at: usize| RankSpread::of(values[at], &name(at as u32));
            let (mut a, mut b) = (RankSpread::default(), RankSpread::default());
            (0..cut).rev().for_each(|at| a.merge(single(at)));
            (cut..values.len()).for_each(|at| b.merge(single(at)));
            b.merge(a);
            prop_assert_eq!(&b, &whole);
            let mut sorted = values.clone();
            sorted.sort_unstable();
            let exact = sorted[values.len().div_ceil(2) - 1];
            let found = whole.median(values.len() as u64).unwrap();
            prop_assert!(found.abs_diff(exact) as f64 <= exact as f64 / 16.0 + 0.5);
        }
    }
}
