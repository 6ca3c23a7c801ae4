//! A histogram with bins fine enough for percentiles: eight bins per octave.
//!
//! Values below 16 have bins of their own; above, a bin is at most an eighth of its values wide, so
//! a percentile is within 12.5 % of the exact one (6.25 % on average). Bins never straddle a power
//! of two, so that coarser histograms over powers of two are exact. Merging is addition:
//! associative and commutative.

use crate::data::log_histogram::{Bin, LogHistogram};

/// Values below this have a bin each.
const EXACT_VALUES: u64 = 16;
/// Log2 of the bins per octave.
const SUB: u32 = 3;

/// Number of the bin of a value. It has no branch, because a branch on small values is hard to
/// predict.
#[inline(always)]
fn bin(value: u64) -> usize {
    // For values below eight, which have a bin each, the formula is eight too large.
    let top = 63 - (value | 8).leading_zeros();
    let below = usize::from(value < 8) << SUB;
    ((top as usize - 2) << SUB) + ((value >> (top - SUB)) as usize & ((1 << SUB) - 1)) - below
}

/// Smallest and greatest value in a bin.
fn range(bin: usize) -> (u64, u64) {
    if bin < EXACT_VALUES as usize {
        return (bin as u64, bin as u64);
    }
    let rest = (bin - EXACT_VALUES as usize) as u32;
    let (top, sub) = ((rest >> SUB) + 4, u64::from(rest & ((1 << SUB) - 1)));
    let width = 1u64 << (top - SUB);
    let from = (1u64 << top) + sub * width;
    (from, from + (width - 1))
}

/// See the module's text. It grows with the greatest value counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: Vec<u64>,
}

impl Histogram {
    /// Counts a value.
    #[inline(always)]
    pub fn add(&mut self, value: u64) {
        let at = bin(value);
        match self.counts.get_mut(at) {
            Some(count) => *count += 1,
            None => self.grow(at, 1),
        }
    }

    /// Number of the bin of a value.
    #[inline(always)]
    pub(crate) fn bin(value: u64) -> usize {
        bin(value)
    }

    /// Prefetches the count of a bin.
    #[inline(always)]
    pub(crate) fn prefetch(&self, bin: usize) {
        if let Some(count) = self.counts.get(bin) {
            crate::prefetch(count);
        }
    }

    /// Counts a value whose bin is known.
    #[inline(always)]
    pub(crate) fn add_to_bin(&mut self, bin: usize) {
        match self.counts.get_mut(bin) {
            Some(count) => *count += 1,
            None => self.grow(bin, 1),
        }
    }

    /// Counts a value several times.
    #[inline(always)]
    pub fn add_many(&mut self, value: u64, times: u64) {
        let at = bin(value);
        match self.counts.get_mut(at) {
            Some(count) => *count += times,
            None => self.grow(at, times),
        }
    }

    #[cold]
    fn grow(&mut self, at: usize, times: u64) {
        self.counts.resize((at + 1).next_multiple_of(8), 0);
        self.counts[at] = times;
    }

    /// Adds another one.
    pub fn merge(&mut self, other: &Histogram) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
    }

    /// Adds another one and empties that one, which keeps its memory.
    pub fn take(&mut self, other: &mut Histogram) {
        self.merge(other);
        other.counts.fill(0);
    }

    /// Number of values.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The counts by bin, for storage.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// The histogram with these counts.
    pub fn from_counts(mut counts: Vec<u64>) -> Histogram {
        counts.truncate(bin(u64::MAX) + 1);
        Histogram { counts }
    }

    /// The value at or below which the share `p` (0 to 1) of the values lies. It is exact below 16,
    /// and above it the middle of its bin. `None` without values.
    pub fn percentile(&self, p: f64) -> Option<f64> {
        let total = self.total();
        let rank = ((p * total as f64).ceil() as u64).clamp(1, total.max(1));
        let mut sum = 0;
        for (at, &count) in self.counts.iter().enumerate() {
            sum += count;
            if sum >= rank {
                let (from, to) = range(at);
                return Some(from as f64 / 2.0 + to as f64 / 2.0);
            }
        }
        None
    }

    /// Number of values of at least `value`: exact at the least value of a bin, otherwise
    /// interpolated.
    pub fn at_least(&self, value: u64) -> f64 {
        let at = bin(value);
        let above: u64 = self.counts.iter().skip(at + 1).sum();
        let (from, to) = range(at);
        let inside = self.counts.get(at).copied().unwrap_or(0) as f64;
        above as f64 + inside * ((to - value) as f64 + 1.0) / ((to - from) as f64 + 1.0)
    }

    /// The counts in bins of powers of two.
    pub fn coarse(&self) -> LogHistogram {
        let mut coarse = LogHistogram::default();
        for (at, &count) in self.counts.iter().enumerate().filter(|(_, c)| **c > 0) {
            coarse.add_many(range(at).0, count);
        }
        coarse
    }

    /// Bins that are not empty.
    pub fn bins(&self) -> Vec<Bin> {
        let used = self.counts.iter().enumerate().filter(|(_, c)| **c > 0);
        used.map(|(at, &count)| Bin {
            from: range(at).0,
            to: range(at).1,
            count,
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bins_follow_each_other_without_gaps_up_to_the_greatest_value() {
        let mut next = 0u64;
        for at in 0..=bin(u64::MAX) {
            let (from, to) = range(at);
            assert_eq!(from, next, "bin {at}");
            assert_eq!((bin(from), bin(to)), (at, at));
            assert!(
                from < EXACT_VALUES || (to - from + 1) * 8 <= from,
                "bin {at} is too wide"
            );
            next = to.wrapping_add(1);
        }
        assert_eq!(next, 0, "the last bin ends with the greatest value");
    }

    proptest! {
        #[test]
        fn percentiles_are_within_an_eighth_of_the_sorted_values(mut values in prop::collection::vec((0u32..40).prop_flat_map(|b| 0u64..(2 << b)), 1..300), p in 0.01f64..1.0) {
            let mut histogram = Histogram::default();
            values.iter().for_each(|&v| histogram.add(v));
            values.sort_unstable();
            let exact = values[((p * values.len() as f64).ceil() as usize).clamp(1, values.len()) - 1] as f64;
            let found = histogram.percentile(p).unwrap();
            prop_assert!((found - exact).abs() <= exact / 8.0, "{} for {}", found, exact);
            prop_assert_eq!(histogram.total(), values.len() as u64);
            let mut coarse = LogHistogram::default();
            values.iter().for_each(|&v| coarse.add(v));
            prop_assert_eq!(histogram.coarse(), coarse);
        }
    }
}
