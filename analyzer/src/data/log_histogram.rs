//! A histogram over powers of two.

use serde::Serialize;

/// Histogram over powers of two: bin 0 holds the value 0, bin k > 0 the values from `2^(k-1)` to
/// `2^k - 1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogHistogram {
    bins: [u64; 65],
}

impl Default for LogHistogram {
    fn default() -> LogHistogram {
        LogHistogram { bins: [0; 65] }
    }
}

/// A bin of a histogram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Bin {
    /// Smallest value.
    pub from: u64,
    /// Greatest value.
    pub to: u64,
    /// Number of values.
    pub count: u64,
}

impl LogHistogram {
    /// Counts a value.
    #[inline(always)]
    pub fn add(&mut self, value: u64) {
        self.add_many(value, 1);
    }

    /// Counts a value several times.
    #[inline(always)]
    pub fn add_many(&mut self, value: u64, times: u64) {
        self.bins[(64 - value.leading_zeros()) as usize] += times;
    }

    /// Adds another one.
    pub fn merge(&mut self, other: &LogHistogram) {
        for (a, b) in self.bins.iter_mut().zip(&other.bins) {
            *a += b;
        }
    }

    /// The counts by bin.
    pub fn counts(&self) -> &[u64] {
        &self.bins
    }

    /// The histogram with these counts; bins that are missing are empty.
    pub fn from_counts(counts: &[u64]) -> LogHistogram {
        let mut histogram = LogHistogram::default();
        histogram
            .bins
            .iter_mut()
            .zip(counts)
            .for_each(|(bin, &count)| *bin = count);
        histogram
    }

    /// The bins up to the last one that is not empty.
    pub fn bins(&self) -> Vec<Bin> {
        let used = self
            .bins
            .iter()
            .rposition(|&n| n != 0)
            .map_or(0, |last| last + 1);
        let from = |k: usize| if k == 0 { 0 } else { 1u64 << (k - 1) };
        let to = |k: usize| if k == 64 { u64::MAX } else { (1u64 << k) - 1 };
        (0..used)
            .map(|k| Bin {
                from: from(k),
                to: to(k),
                count: self.bins[k],
            })
            .collect()
    }
}
