//! Statistics: distributions, intervals, medians, and tests of two sets of numbers.
//!
//! [`distributions`] has the special functions, [`rank_test`] compares two sets of numbers. All
//! functions are pure, and none of them allocates more than its input.

pub mod distributions;
pub mod rank_test;

use std::cmp::Ordering;

/// The 97.5 % quantile of the standard normal distribution: a 95 % interval reaches this many
/// standard deviations to either side.
pub const NORMAL_QUANTILE_OF_95_PCT: f64 = 1.959_964;
/// The 97.5 % quantile rounded as in textbooks, for margins whose standard deviation is rough.
pub const ROUNDED_NORMAL_QUANTILE_OF_95_PCT: f64 = 1.96;
/// Standard deviations of a normal distribution in its median absolute deviation: 1 / Φ⁻¹(3/4).
pub const DEVIATIONS_PER_MEDIAN_DEVIATION: f64 = 1.4826;

/// Median. It is the mean of the middle two if the number of values is even, and NaN without
/// values.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n => (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0,
    }
}

/// Median that is one of the values: the lower one of the middle two. Reorders the values. `None`
/// without values.
pub fn lower_median<T: Copy>(values: &mut [T], order: impl FnMut(&T, &T) -> Ordering) -> Option<T> {
    let middle = values.len().checked_sub(1)? / 2;
    Some(*values.select_nth_unstable_by(middle, order).1)
}

/// As [`lower_median`], with the upper one of the middle two.
pub fn upper_median<T: Copy>(values: &mut [T], order: impl FnMut(&T, &T) -> Ordering) -> Option<T> {
    let middle = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable_by(middle, order).1)
}

/// The least value such that more than half of the weight has values up to it. The list has (value,
/// weight).
pub fn weighted_median(list: &mut [(f64, f64)]) -> Option<f64> {
    list.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let half = list.iter().map(|m| m.1).sum::<f64>() / 2.0;
    let mut below = 0.0;
    let at = list.iter().find(|m| {
        below += m.1;
        below > half
    });
    Some(at.or(list.last())?.0)
}

/// Variance of a statistic by the delete-a-group jackknife (Efron and Tibshirani 1993, chapter 11):
/// (n − 1) / n · Σ (x − mean)². Each value is the statistic without one of the n groups.
pub fn jackknife_variance(without_one: &[f64]) -> f64 {
    let n = without_one.len() as f64;
    let mean = without_one.iter().sum::<f64>() / n;
    (n - 1.0) / n * without_one.iter().map(|x| (x - mean).powi(2)).sum::<f64>()
}

/// Interval of a share `p` that was found in `n` independent trials (Wilson 1927), for the quantile
/// `z`. It contains `p`.
pub fn wilson_interval(p: f64, n: f64, z: f64) -> (f64, f64) {
    let square = z * z / n;
    let middle = (p + square / 2.0) / (1.0 + square);
    let half = z / (1.0 + square) * (p * (1.0 - p) / n + square / (4.0 * n)).sqrt();
    ((middle - half).clamp(0.0, p), (middle + half).clamp(p, 1.0))
}

/// 95 % bounds of the mean of a Poisson variable whose observed value is `n` (Garwood 1936, by the
/// approximation of Wilson and Hilferty; error below 0.03).
pub fn poisson_bounds(n: f64) -> (f64, f64) {
    let z = NORMAL_QUANTILE_OF_95_PCT;
    let low = if n < 0.5 {
        0.0
    } else {
        n * (1.0 - 1.0 / (9.0 * n) - z / (3.0 * n.sqrt()))
            .max(0.0)
            .powi(3)
    };
    let m = n + 1.0;
    (
        low,
        m * (1.0 - 1.0 / (9.0 * m) + z / (3.0 * m.sqrt())).powi(3),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_numbers() {
        assert_eq!(median(&[5.0, 1.0, 3.0]), 3.0);
        assert_eq!(median(&[4.0, 1.0, 3.0, 9.0]), 3.5);
        assert!(median(&[]).is_nan());
        for (mut values, lower, upper) in [
            (vec![], None, None),
            (vec![7u64], Some(7), Some(7)),
            (vec![9, 1], Some(1), Some(9)),
            (vec![3, 9, 1], Some(3), Some(3)),
            (vec![4, 9, 1, 3], Some(3), Some(4)),
        ] {
            assert_eq!(lower_median(&mut values, u64::cmp), lower);
            assert_eq!(upper_median(&mut values, u64::cmp), upper);
        }
        assert_eq!(weighted_median(&mut [(9.0, 1.0), (1.0, 5.0)]), Some(1.0));
        assert_eq!(weighted_median(&mut []), None);
    }

    /// The mean's jackknife variance is s² / n.
    #[test]
    fn jackknife_of_a_mean() {
        let values = [2.0, 4.0, 4.0, 5.0, 10.0f64];
        let without_one: Vec<f64> = values
            .iter()
            .map(|x| (values.iter().sum::<f64>() - x) / 4.0)
            .collect();
        assert!((jackknife_variance(&without_one) - 9.0 / 5.0).abs() < 1e-12);
    }

    #[test]
    fn wilson_intervals_agree_with_tables() {
        let (lo, hi) = wilson_interval(0.0, 10.0, NORMAL_QUANTILE_OF_95_PCT);
        assert!(lo == 0.0 && (hi - 0.2775).abs() < 1e-3, "{hi}");
        let (lo, hi) = wilson_interval(0.25, 400.0, NORMAL_QUANTILE_OF_95_PCT);
        assert!((lo - 0.210).abs() < 1e-3 && (hi - 0.2946).abs() < 1e-3);
    }

    #[test]
    fn poisson_bounds_are_garwoods() {
        // Exact limits from tables: 0 → (0, 3.69), 5 → (1.62, 11.67), 20 → (12.22, 30.89), 100 →
        // (81.36, 121.63).
        for (n, low, high) in [
            (0.0, 0.0, 3.69),
            (5.0, 1.62, 11.67),
            (20.0, 12.22, 30.89),
            (100.0, 81.36, 121.63),
        ] {
            let (l, h) = poisson_bounds(n);
            assert!(
                (l - low).abs() < 0.03 && (h - high).abs() < 0.03,
                "{n}: {l} to {h}"
            );
        }
    }
}
