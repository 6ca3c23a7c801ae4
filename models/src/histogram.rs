//! Histograms of distances, from one fine count: log, linear, log-linear and reference histograms.
//!
//! Values are counted in [`Fine`]. Its bins are log-linear: values below `2 << bits` have a bin
//! each, above that every power of two is cut into `1 << bits` bins, so a bin is never wider than
//! `2^-bits` of its values. Each bin keeps the sum of its values, so means are exact. Coarser
//! histograms are views ([`Fine::cut`]): where a fine bin straddles an edge, its count is divided
//! in proportion, as if its values were evenly spread. Edges at powers of two are never straddled.

use serde::{Deserialize, Serialize};

/// Bits of a histogram of a whole trace: exact below 8,192, else within 0.025%.
pub const TRACE_BITS: u32 = 12;
/// Bits of a histogram of one function, line or thread: exact below 64, else within 3.2%.
pub const PART_BITS: u32 = 5;

/// A bin of a histogram: values from `from` (inclusive) to `to` (exclusive).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bin {
    /// Smallest value.
    pub from: f64,
    /// First value after the bin; infinite in the last bin of an open scale.
    pub to: f64,
    /// Number of values; a fraction if a finer bin was divided.
    pub count: f64,
    /// Sum of the values.
    pub sum: f64,
}

impl Bin {
    /// Mean of the values; the bin's middle if it has none.
    pub fn mean(&self) -> f64 {
        if self.count > 0.0 {
            self.sum / self.count
        } else {
            0.5 * (self.from + self.to - 1.0)
        }
    }
}

/// One bin of a [`Fine`] histogram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cell {
    count: u64,
    sum: u64,
}

/// The fine count, see the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fine {
    bits: u32,
    cells: Vec<Cell>,
    count: u64,
    greatest: u64,
}

impl Fine {
    /// An empty histogram with `bits` of relative resolution (at most 20).
    pub fn new(bits: u32) -> Fine {
        Fine {
            bits: bits.min(20),
            cells: Vec::new(),
            count: 0,
            greatest: 0,
        }
    }

    /// Index of the bin of a value.
    #[inline(always)]
    fn index(&self, value: u64) -> usize {
        let shift = (64 - value.leading_zeros()).saturating_sub(self.bits + 1);
        ((shift as usize) << self.bits) + (value >> shift) as usize
    }

    /// First value of a bin, and the number of values it spans.
    fn bounds(&self, index: usize) -> (u64, u64) {
        let shift = (index >> self.bits).saturating_sub(1);
        let first = (index - (shift << self.bits)) as u64;
        (first << shift, 1 << shift)
    }

    /// Counts a value.
    #[inline(always)]
    pub fn add(&mut self, value: u64) {
        self.add_many(value, 1);
    }

    /// Counts a value `times` times.
    #[inline(always)]
    pub fn add_many(&mut self, value: u64, times: u64) {
        let index = self.index(value);
        if index >= self.cells.len() {
            self.grow(index);
        }
        let cell = &mut self.cells[index];
        cell.count += times;
        cell.sum = cell.sum.wrapping_add(value.wrapping_mul(times));
        self.count += times;
        self.greatest = self.greatest.max(value);
    }

    #[cold]
    fn grow(&mut self, index: usize) {
        let len = (index + 1).next_multiple_of(1 << self.bits.min(8));
        self.cells.resize(len, Cell::default());
    }

    /// Adds another histogram of the same resolution.
    ///
    /// # Panics
    /// If the resolutions differ.
    pub fn merge(&mut self, other: &Fine) {
        assert_eq!(self.bits, other.bits, "histograms of different resolution");
        if self.cells.len() < other.cells.len() {
            self.cells.resize(other.cells.len(), Cell::default());
        }
        for (mine, theirs) in self.cells.iter_mut().zip(&other.cells) {
            mine.count += theirs.count;
            mine.sum = mine.sum.wrapping_add(theirs.sum);
        }
        self.count += other.count;
        self.greatest = self.greatest.max(other.greatest);
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The bins that have values, ascending.
    pub fn bins(&self) -> impl DoubleEndedIterator<Item = Bin> + '_ {
        self.cells
            .iter()
            .enumerate()
            .filter(|(_, cell)| cell.count > 0)
            .map(|(index, cell)| {
                let (first, span) = self.bounds(index);
                Bin {
                    from: first as f64,
                    to: first as f64 + span as f64,
                    count: cell.count as f64,
                    sum: cell.sum as f64,
                }
            })
    }

    /// Sum of all values.
    pub fn sum(&self) -> f64 {
        self.bins().map(|b| b.sum).sum()
    }

    /// Mean of all values.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum() / self.count as f64)
    }

    /// Greatest value.
    pub fn max(&self) -> Option<u64> {
        (self.count > 0).then_some(self.greatest)
    }

    /// The histogram on another scale, from its first to its last non-empty bin.
    pub fn cut(&self, scale: &Scale) -> Vec<Bin> {
        cut(self.bins(), scale)
    }

    /// The least value in a bin that an edge of a scale divides, and the number of values in such
    /// bins. There the scale is finer than the count.
    pub fn divided(&self, scale: &Scale) -> Option<(u64, u64)> {
        let divides = |b: &Bin| scale.index(b.from) != scale.index((b.to - 1.0).max(b.from));
        let mut bins = self.bins().filter(divides);
        let first = bins.next()?;
        let count: f64 = first.count + bins.map(|b| b.count).sum::<f64>();
        Some((first.from as u64, count as u64))
    }

    /// Reference histogram: the values, sorted, in `partitions` groups of equal size. See
    /// [`reference()`].
    pub fn reference(&self, partitions: usize) -> Vec<Partition> {
        reference(self.bins(), partitions)
    }
}

/// Edges of a histogram.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// `[0,1) [1,2) [2,4) [4,8) …`, Zhong's logarithmic scale.
    Log,
    /// `[0,w) [w,2w) …`.
    Linear {
        /// Width of a bin.
        width: u64,
    },
    /// Logarithmic below `width`, then linear bins of that width; `width` is a power of two (Zhong:
    /// 2,048).
    LogLinear {
        /// Value at which the scale changes, and width of the bins above it.
        width: u64,
    },
    /// `[0,first) [first,2·first) [2·first,4·first) …`; with `bins`, the last one is open. Cabrera:
    /// first = 4; RDX: first = 4,096, 20 bins.
    Octaves {
        /// Width of the first bin, a power of two.
        first: u64,
        /// Number of bins; 0 for as many as necessary.
        bins: u32,
    },
}

impl Scale {
    /// The scale of RDX's figures.
    pub const RDX: Scale = Scale::Octaves {
        first: 4096,
        bins: 20,
    };

    /// Index of the bin that contains `value`.
    pub fn index(&self, value: f64) -> usize {
        let octave = |v: f64| {
            if v < 1.0 {
                0
            } else {
                v.log2().floor() as usize + 1
            }
        };
        match *self {
            Scale::Log => octave(value),
            Scale::Linear { width } => (value / width as f64) as usize,
            Scale::LogLinear { width } => {
                let width = width as f64;
                if value < width {
                    octave(value)
                } else {
                    octave(width) + (value / width) as usize - 1
                }
            }
            Scale::Octaves { first, bins } => {
                let index = octave(value / first as f64);
                if bins > 0 {
                    index.min(bins as usize - 1)
                } else {
                    index
                }
            }
        }
    }

    /// First value of bin `index`.
    pub fn edge(&self, index: usize) -> f64 {
        let octave = |k: usize| if k == 0 { 0.0 } else { (k as f64 - 1.0).exp2() };
        match *self {
            Scale::Log => octave(index),
            Scale::Linear { width } => width as f64 * index as f64,
            Scale::LogLinear { width } => {
                let logs = width.trailing_zeros() as usize + 1;
                if index < logs {
                    octave(index)
                } else {
                    width as f64 * (index - logs + 1) as f64
                }
            }
            Scale::Octaves { first, bins } => {
                if bins > 0 && index >= bins as usize {
                    f64::INFINITY
                } else {
                    octave(index) * first as f64
                }
            }
        }
    }
}

/// Bins on another scale. The bins are ascending. Empty ones in between are left out on linear
/// scales (there may be millions), and kept on the others.
pub fn cut(bins: impl Iterator<Item = Bin>, scale: &Scale) -> Vec<Bin> {
    let mut out: Vec<(usize, Bin)> = Vec::new();
    let mut put = |index: usize, count: f64, sum: f64| match out.last_mut() {
        Some((last, bin)) if *last == index => {
            bin.count += count;
            bin.sum += sum;
        }
        _ => out.push((
            index,
            Bin {
                from: scale.edge(index),
                to: scale.edge(index + 1),
                count,
                sum,
            },
        )),
    };
    for bin in bins {
        let last = scale.index((bin.to - 1.0).max(bin.from));
        let mut index = scale.index(bin.from);
        if index == last {
            put(index, bin.count, bin.sum);
            continue;
        }
        // Its values are assumed to be evenly spread.
        let width = bin.to - bin.from;
        let shift = bin.mean() - 0.5 * (bin.from + bin.to - 1.0);
        while index <= last {
            let (from, to) = (
                scale.edge(index).max(bin.from),
                scale.edge(index + 1).min(bin.to),
            );
            let count = bin.count * (to - from) / width;
            put(index, count, count * (0.5 * (from + to - 1.0) + shift));
            index += 1;
        }
    }
    if matches!(scale, Scale::Linear { .. } | Scale::LogLinear { .. }) {
        return out.into_iter().map(|(_, bin)| bin).collect();
    }
    let mut full = Vec::new();
    for (index, bin) in out {
        while full.len() < index {
            let at = full.len();
            full.push(Bin {
                from: scale.edge(at),
                to: scale.edge(at + 1),
                count: 0.0,
                sum: 0.0,
            });
        }
        full.push(bin);
    }
    full
}

/// A partition of a reference histogram: an equal share of the sorted values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Partition {
    /// Least value.
    pub from: f64,
    /// First value after the greatest one.
    pub to: f64,
    /// Mean of the partition's values (that of its bins' values, if a bin is divided).
    pub mean: f64,
    /// Number of values.
    pub count: f64,
}

/// Partitions of a reference histogram. Source: Chosen.
pub const REFERENCE_PARTITIONS: usize = 1000;

/// Divides sorted bins into `partitions` groups of equal count (Zhong et al., section 3.1: "sort
/// all reuse distances, divide them into equal-size partitions"). A bin that two partitions share
/// is divided; its values are assumed to be evenly spread between its edges. Empty if there are no
/// values.
pub fn reference(bins: impl Iterator<Item = Bin>, partitions: usize) -> Vec<Partition> {
    let bins: Vec<Bin> = bins.filter(|b| b.count > 0.0).collect();
    let total: f64 = bins.iter().map(|b| b.count).sum();
    if total <= 0.0 || partitions == 0 {
        return Vec::new();
    }
    let size = total / partitions as f64;
    let mut out = Vec::with_capacity(partitions);
    let (mut at, mut used) = (0, 0.0);
    for _ in 0..partitions {
        let (mut need, mut sum, mut from, mut to) = (size, 0.0, f64::NAN, f64::NAN);
        while need > size * 1e-9 && at < bins.len() {
            let bin = &bins[at];
            let take = need.min(bin.count - used);
            let width = bin.to - bin.from;
            // The part of the bin between the shares `used` and `used + take` of its values.
            let low = bin.from + width * used / bin.count;
            let high = bin.from + width * (used + take) / bin.count;
            // A whole bin has its exact mean.
            let mean = if take >= bin.count {
                bin.mean()
            } else if width <= 1.0 {
                bin.from
            } else {
                0.5 * (low + high) - 0.5
            };
            sum += take * mean;
            if from.is_nan() {
                from = if width <= 1.0 { bin.from } else { low };
            }
            to = if width <= 1.0 { bin.to } else { high };
            used += take;
            need -= take;
            if used >= bin.count * (1.0 - 1e-12) {
                at += 1;
                used = 0.0;
            }
        }
        let count = size - need.max(0.0);
        if count > 0.0 {
            out.push(Partition {
                from,
                to,
                mean: sum / count,
                count,
            });
        }
    }
    out
}

/// Similarity of two histograms whose bins are given as shares of the whole: 1 − Σ|a − b| / 2. This
/// is RDX's S (equation 1) and Zhong's accuracy; a missing bin counts as empty.
pub fn similarity(a: &[f64], b: &[f64]) -> f64 {
    let at = |s: &[f64], i: usize| s.get(i).copied().unwrap_or(0.0);
    1.0 - 0.5
        * (0..a.len().max(b.len()))
            .map(|i| (at(a, i) - at(b, i)).abs())
            .sum::<f64>()
}

/// RDX's Ŝ (equation 2): the same with sliding averages of two neighbouring bins, which tolerate
/// values just beyond an edge.
pub fn similarity_sliding(a: &[f64], b: &[f64]) -> f64 {
    let at = |s: &[f64], i: usize| s.get(i).copied().unwrap_or(0.0);
    let n = a.len().max(b.len());
    let pair = |s: &[f64], i: usize| 0.5 * (at(s, i) + at(s, i + 1));
    1.0 - 0.5
        * (0..n.saturating_sub(1))
            .map(|i| (pair(a, i) - pair(b, i)).abs())
            .sum::<f64>()
}

/// Shares of the whole by bin number of `scale`.
pub fn shares(bins: impl Iterator<Item = Bin>, scale: &Scale) -> Vec<f64> {
    let mut out: Vec<f64> = Vec::new();
    let mut total = 0.0;
    for bin in cut(bins, scale) {
        let index = scale.index(bin.from);
        if out.len() <= index {
            out.resize(index + 1, 0.0);
        }
        out[index] += bin.count;
        total += bin.count;
    }
    if total > 0.0 {
        out.iter_mut().for_each(|v| *v /= total);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_that_an_edge_divides_are_counted() {
        let counted = fine(&[1, 8191, 8192, 8193, 20_000], TRACE_BITS);
        assert_eq!(
            counted.divided(&Scale::Linear { width: 1 }),
            Some((8192, 3))
        );
        assert_eq!(counted.divided(&Scale::Linear { width: 2048 }), None);
        assert_eq!(counted.divided(&Scale::Log), None);
        assert_eq!(
            fine(&[8191], TRACE_BITS).divided(&Scale::Linear { width: 1 }),
            None
        );
    }

    fn fine(values: &[u64], bits: u32) -> Fine {
        let mut fine = Fine::new(bits);
        values.iter().for_each(|&v| fine.add(v));
        fine
    }

    #[test]
    fn log_bins_are_those_of_the_paper() {
        // Zhong et al., section 3.1: [0,1) [1,2) [2,4) [4,8).
        let bins = fine(&[0, 1, 1, 2, 3, 4, 7, 7], 4).cut(&Scale::Log);
        let got: Vec<(f64, f64, f64)> = bins.iter().map(|b| (b.from, b.to, b.count)).collect();
        assert_eq!(
            got,
            [
                (0.0, 1.0, 1.0),
                (1.0, 2.0, 2.0),
                (2.0, 4.0, 2.0),
                (4.0, 8.0, 3.0)
            ]
        );
    }

    #[test]
    fn log_linear_bins_are_logarithmic_below_2048_and_2048_wide_above() {
        let scale = Scale::LogLinear { width: 2048 };
        let bins = fine(&[1023, 1024, 2047, 2048, 4095, 4096, 8191, 8192], 12).cut(&scale);
        let got: Vec<(f64, f64, f64)> = bins.iter().map(|b| (b.from, b.to, b.count)).collect();
        assert_eq!(
            got,
            [
                (512.0, 1024.0, 1.0),
                (1024.0, 2048.0, 2.0),
                (2048.0, 4096.0, 2.0),
                (4096.0, 6144.0, 1.0),
                (6144.0, 8192.0, 1.0),
                (8192.0, 10240.0, 1.0)
            ]
        );
    }

    #[test]
    fn the_scales_of_rdx_and_cabrera() {
        // RDX: [0,4K) [4K,8K) … [1G,2G), 20 bins. The last bin has all larger values.
        assert_eq!(
            (
                Scale::RDX.index(0.0),
                Scale::RDX.index(4095.0),
                Scale::RDX.index(4096.0),
                Scale::RDX.index(8192.0)
            ),
            (0, 0, 1, 2)
        );
        assert_eq!(Scale::RDX.index(1.5 * 1024f64.powi(3)), 19);
        assert_eq!(Scale::RDX.index(1e15), 19);
        assert_eq!(
            (Scale::RDX.edge(19), Scale::RDX.edge(20)),
            (1024f64.powi(3), f64::INFINITY)
        );
        // Cabrera: index([0,4)) = 0, index([4,8)) = 1, index([8,16)) = 2, index([32,64)) = 4.
        let cabrera = Scale::Octaves { first: 4, bins: 0 };
        let index = |v: f64| cabrera.index(v);
        assert_eq!(
            (
                index(0.0),
                index(3.0),
                index(4.0),
                index(8.0),
                index(32.0),
                index(63.0)
            ),
            (0, 0, 1, 2, 4, 4)
        );
    }

    #[test]
    fn similarity_of_equal_disjoint_and_shifted_histograms() {
        // Two equal histograms: 1; nothing in common: 0 (RDX's example under equation 1).
        assert_eq!(similarity(&[1.0, 0.0], &[1.0]), 1.0);
        assert_eq!(similarity(&[1.0, 0.0], &[0.0, 1.0]), 0.0);
        // If the values are off by one bin in the middle, the sliding window tolerates half of
        // them.
        assert_eq!(
            similarity(&[0.0, 1.0, 0.0, 0.0], &[0.0, 0.0, 1.0, 0.0]),
            0.0
        );
        assert_eq!(
            similarity_sliding(&[0.0, 1.0, 0.0, 0.0], &[0.0, 0.0, 1.0, 0.0]),
            0.5
        );
    }

    #[test]
    fn a_reference_histogram_of_distinct_values_is_their_sorted_list() {
        let parts = fine(&[9, 3, 3, 7, 1, 1, 1, 5], 12).reference(8);
        assert_eq!(
            parts.iter().map(|p| p.mean).collect::<Vec<_>>(),
            [1.0, 1.0, 1.0, 3.0, 3.0, 5.0, 7.0, 9.0]
        );
        let parts = fine(&[9, 3, 3, 7, 1, 1, 1, 5], 12).reference(2);
        assert_eq!(parts.iter().map(|p| p.mean).collect::<Vec<_>>(), [1.5, 6.0]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn fine_bins_hold_their_values_and_views_keep_count_and_sum(
            values in prop::collection::vec(prop_oneof![0u64..100, 0u64..100_000, 0u64..1 << 45], 1..60),
            bits in 1u32..14, width in prop_oneof![Just(1u64), Just(64), Just(2048)], partitions in 1usize..50,
        ) {
            let fine = fine(&values, bits);
            for &v in &values {
                let (first, span) = fine.bounds(fine.index(v));
                prop_assert!(first <= v && v - first < span);
                prop_assert!(span == 1 || span as f64 <= first as f64 / f64::from(1u32 << bits));
            }
            let sum: f64 = values.iter().map(|&v| v as f64).sum();
            prop_assert!((fine.sum() - sum).abs() <= sum * 1e-9);
            prop_assert_eq!(fine.max(), values.iter().max().copied());
            for scale in [Scale::Log, Scale::Octaves { first: 4, bins: 0 }, Scale::RDX] {
                let bins = fine.cut(&scale);
                prop_assert_eq!(bins.iter().map(|b| b.count).sum::<f64>() as usize, values.len());
                // Powers of two are edges of fine bins: these views are exact.
                for b in &bins {
                    let want = values.iter().filter(|&&v| v as f64 >= b.from && (v as f64) < b.to).count();
                    prop_assert_eq!(b.count as usize, want);
                }
            }
            if values.iter().all(|&v| v < 1 << 24) {
                for scale in [Scale::Linear { width }, Scale::LogLinear { width }] {
                    let bins = fine.cut(&scale);
                    prop_assert!((bins.iter().map(|b| b.count).sum::<f64>() - values.len() as f64).abs() < 1e-6);
                    if values.iter().all(|&v| v < 2 << bits) {
                        for b in &bins {
                            let want = values.iter().filter(|&&v| v as f64 >= b.from && (v as f64) < b.to).count();
                            prop_assert_eq!(b.count as usize, want);
                        }
                    }
                }
            }
            let parts = fine.reference(partitions);
            let total: f64 = parts.iter().map(|p| p.count).sum();
            prop_assert!((total - values.len() as f64).abs() < 1e-6);
            prop_assert!(parts.windows(2).all(|w| w[0].mean <= w[1].mean * (1.0 + 1e-9) + 1e-9));
        }
    }
}
