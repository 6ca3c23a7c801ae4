//! Single-model prediction (section 3.3): each partition of the reference histogram follows one
//! pattern.

use crate::histogram::{Bin, Partition, reference};
use crate::predict::{DIMENSIONS, HistogramSegment, Pattern, Profile, collect};
use serde::{Deserialize, Serialize};

/// d = c + e·f(s) of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    /// f.
    pub pattern: Pattern,
    /// c.
    pub constant: f64,
    /// e.
    pub factor: f64,
    /// Least value over mean, in the largest training run: it keeps the partition's width in
    /// proportion.
    low: f64,
    /// Greatest value over mean.
    high: f64,
}

/// A trained model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SingleModel {
    /// By partition, shortest distances first.
    pub fits: Vec<Fit>,
    /// Number of dimensions that fitted best: 1, 2 or 3.
    pub dimensions: u32,
    /// Mean relative error of the fits on the training runs.
    pub residual: f64,
}

/// Trains on two or more runs.
pub fn train(runs: &[Profile], partitions: usize) -> SingleModel {
    let references: Vec<Vec<Partition>> = runs
        .iter()
        .map(|r| reference(r.bins.iter().copied(), partitions))
        .collect();
    let sizes: Vec<f64> = runs.iter().map(|r| r.size).collect();
    let largest = (0..runs.len())
        .max_by(|&a, &b| sizes[a].total_cmp(&sizes[b]))
        .unwrap_or(0);
    let count = references.iter().map(Vec::len).min().unwrap_or(0);
    let mut best: Option<SingleModel> = None;
    for (dimension, patterns) in DIMENSIONS.iter().enumerate() {
        let mut fits = Vec::with_capacity(count);
        let mut residual = 0.0;
        for i in 0..count {
            let distances: Vec<f64> = references.iter().map(|r| r[i].mean).collect();
            let (pattern, constant, factor, error) = fit(&sizes, &distances, patterns);
            residual += error;
            let part = &references[largest][i];
            let mean = part.mean.max(1e-9);
            let (low, high) = if part.to - part.from <= 1.0 {
                (1.0, 1.0)
            } else {
                (part.from / mean, part.to / mean)
            };
            fits.push(Fit {
                pattern,
                constant,
                factor,
                low,
                high,
            });
        }
        let residual = residual / count.max(1) as f64;
        // More patterns always fit slightly better, so more dimensions must improve the fit
        // clearly.
        if best
            .as_ref()
            .is_none_or(|b| residual < 0.95 * b.residual - 1e-6)
        {
            best = Some(SingleModel {
                fits,
                dimensions: dimension as u32 + 1,
                residual,
            });
        }
    }
    best.unwrap_or(SingleModel {
        fits: Vec::new(),
        dimensions: 1,
        residual: 0.0,
    })
}

/// Best pattern of one partition: (pattern, c, e, relative error).
///
/// With two runs c and e fit any pattern exactly, so the pattern is the one whose growth f(ŝ)/f(s)
/// is closest to the growth of the distance, as in the paper. With more runs it is the one with the
/// least squares. e is not negative, since distances do not shrink as data grow. c has any sign: a
/// row of a square matrix is used again after 2n − 1 other elements.
fn fit(sizes: &[f64], distances: &[f64], patterns: &[Pattern]) -> (Pattern, f64, f64, f64) {
    let mut best = (Pattern::Constant, 0.0, 0.0, f64::INFINITY);
    for &pattern in patterns {
        let values: Vec<f64> = sizes.iter().map(|&s| pattern.of(s)).collect();
        let (constant, factor) = regress(pattern, &values, distances);
        let error = if sizes.len() == 2 {
            // Growth of the distance and growth of the pattern, in logarithms. Adding 1 permits
            // distances of 0.
            (((distances[1] + 1.0) / (distances[0] + 1.0)).ln() - (values[1] / values[0]).ln())
                .abs()
        } else {
            let squares = values
                .iter()
                .zip(distances)
                .map(|(f, d)| ((constant + factor * f - d) / (d + 1.0)).powi(2))
                .sum::<f64>();
            (squares / sizes.len() as f64).sqrt()
        };
        // A simpler pattern (they are in order) is kept unless its fit is clearly worse.
        if error < 0.98 * best.3 - 1e-4 || best.3.is_infinite() {
            best = (pattern, constant, factor, error);
        }
    }
    best
}

/// Weighted least squares of d = c + e·f with e ≥ 0; weights 1/(d+1)², so that errors count in
/// proportion.
fn regress(pattern: Pattern, values: &[f64], distances: &[f64]) -> (f64, f64) {
    let weights: Vec<f64> = distances.iter().map(|d| (d + 1.0).powi(-2)).collect();
    let total: f64 = weights.iter().sum();
    let mean = |v: &[f64]| v.iter().zip(&weights).map(|(x, w)| x * w).sum::<f64>() / total;
    if pattern == Pattern::Constant {
        return (mean(distances), 0.0);
    }
    let (f, d) = (mean(values), mean(distances));
    let mut above = 0.0;
    let mut below = 0.0;
    for ((x, y), w) in values.iter().zip(distances).zip(&weights) {
        above += w * (x - f) * (y - d);
        below += w * (x - f) * (x - f);
    }
    let factor = if below > 0.0 { above / below } else { 0.0 };
    if factor < 0.0 {
        return (d, 0.0);
    }
    (d - factor * f, factor)
}

impl SingleModel {
    /// The predicted histogram for another input size; counts are shares of the reuses.
    pub fn predict(&self, size: f64) -> Vec<Bin> {
        let share = 1.0 / self.fits.len().max(1) as f64;
        collect(self.fits.iter().map(|fit| {
            let mean = (fit.constant + fit.factor * fit.pattern.of(size)).max(0.0);
            let (from, to) = (mean * fit.low, mean * fit.high);
            if to - from <= 1.0 {
                HistogramSegment::new(mean.round(), mean.round() + 1.0, share)
            } else {
                HistogramSegment::new(from, to, share)
            }
        }))
    }

    /// Share of the reuses by pattern.
    pub fn patterns(&self) -> Vec<(Pattern, f64)> {
        let mut shares = std::collections::BTreeMap::new();
        for fit in &self.fits {
            *shares.entry(fit.pattern).or_insert(0.0) += 1.0 / self.fits.len() as f64;
        }
        shares.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::accuracy;
    use crate::predict::tests::bins;
    use proptest::prelude::*;

    /// A run whose reuses are 40% at 2, 30% at s^½, 30% at s.
    fn run(size: f64) -> Profile {
        let at = |d: f64, n: f64| (d, d + 1.0, n);
        Profile {
            size,
            bins: bins(&[at(2.0, 40.0), at(size.sqrt().round(), 30.0), at(size, 30.0)]),
            cold: size,
        }
    }

    #[test]
    fn constant_square_root_and_linear_parts_are_found_from_two_and_three_runs() {
        for runs in [vec![run(1e4), run(4e4)], vec![run(1e4), run(4e4), run(9e4)]] {
            let model = train(&runs, 1000);
            assert_eq!(model.dimensions, 2);
            let shares = model.patterns();
            assert_eq!(
                shares.iter().map(|p| p.0).collect::<Vec<_>>(),
                [Pattern::Constant, Pattern::SquareRoot, Pattern::Linear]
            );
            assert!((shares[1].1 - 0.3).abs() < 0.01);
            for size in [1e6, 64e6, 1.1e3] {
                assert!(
                    accuracy(&model.predict(size), &run(size).bins) > 0.99,
                    "{size}"
                );
            }
        }
    }

    /// The product of two n×n matrices: an element of a row is used again after 2n − 1 others, one of
    /// a column after n² + n.
    fn product(n: f64) -> Profile {
        let at = |d: f64| (d, d + 1.0, 50.0);
        Profile {
            size: 2.0 * n * n,
            bins: bins(&[at(2.0 * n - 1.0), at(n * n + n)]),
            cold: 2.0 * n * n,
        }
    }

    #[test]
    fn a_negative_constant_is_found() {
        for sides in [&[14.0, 16.0][..], &[12.0, 14.0, 16.0]] {
            let runs: Vec<Profile> = sides.iter().map(|&n| product(n)).collect();
            let model = train(&runs, 1000);
            let row = model.fits[0];
            assert_eq!(row.pattern, Pattern::SquareRoot);
            assert!((row.constant + 1.0).abs() < 1e-6, "{row:?}");
            assert!((row.factor - 2f64.sqrt()).abs() < 1e-6, "{row:?}");
            let got = accuracy(&model.predict(product(160.0).size), &product(160.0).bins);
            assert!(got > 0.99, "{got}");
            // Below the sizes of training no distance is negative.
            assert!(model.predict(0.1).iter().all(|bin| bin.from >= 0.0));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        /// Distances that follow one pattern with c and e are predicted exactly at every size.
        #[test]
        fn exact_data_are_fitted(c in -20.0f64..50.0, e in 0.01f64..1.0, which in 0usize..2, sizes in prop::collection::vec(1e3f64..1e6, 3..6)) {
            let pattern = [Pattern::SquareRoot, Pattern::Linear][which];
            let distances: Vec<f64> = sizes.iter().map(|&s| c + e * pattern.of(s)).collect();
            let values: Vec<f64> = sizes.iter().map(|&s| pattern.of(s)).collect();
            let spread = sizes.iter().cloned().fold(0.0, f64::max) / sizes.iter().cloned().fold(f64::INFINITY, f64::min);
            prop_assume!(spread > 1.5 && distances.iter().all(|&d| d >= 0.0));
            let (constant, factor) = regress(pattern, &values, &distances);
            for &s in &[500.0, 1e5, 1e7] {
                let (got, want) = (constant + factor * pattern.of(s), c + e * pattern.of(s));
                prop_assert!((got - want).abs() < 1e-3 * want.abs().max(1.0), "{got} {want}");
            }
        }
    }
}
