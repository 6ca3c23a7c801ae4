//! Several predictions as one (not in the paper).
//!
//! The best method depends on the program. Training shows the accuracy of each: every run is
//! predicted from the others, and a method has the weight 1/(ε + ¹⁄₁₀₀)², where ε is its mean error
//! (1 − accuracy). The combined histogram is the weighted mean of the histograms. Errors of
//! different methods partly cancel, since only the parts on which they agree add up.

use crate::histogram::Bin;
use crate::predict::{HistogramSegment, Profile, accuracy, collect};

/// A method: a function of training runs and a size that returns a histogram.
pub type Method<'a> = &'a dyn Fn(&[Profile], f64) -> Vec<Bin>;

/// Smallest error that weights distinguish. Source: Chosen.
const MIN_WEIGHTED_ERROR: f64 = 0.01;

/// Weights of methods, with the sum 1. `None` with fewer than three runs, since none can be left
/// out.
pub fn weights(runs: &[Profile], methods: &[Method<'_>]) -> Option<Vec<f64>> {
    if runs.len() < 3 || methods.is_empty() {
        return None;
    }
    let mut errors = vec![0.0; methods.len()];
    for out in 0..runs.len() {
        let rest: Vec<Profile> = runs
            .iter()
            .enumerate()
            .filter(|(i, _)| *i != out)
            .map(|(_, run)| run.clone())
            .collect();
        for (error, method) in errors.iter_mut().zip(methods) {
            *error += 1.0 - accuracy(&method(&rest, runs[out].size), &runs[out].bins);
        }
    }
    let raw: Vec<f64> = errors
        .iter()
        .map(|e| (e / runs.len() as f64 + MIN_WEIGHTED_ERROR).powi(-2))
        .collect();
    let sum: f64 = raw.iter().sum();
    Some(raw.into_iter().map(|w| w / sum).collect())
}

/// The weighted mean of histograms; counts are shares of the reuses.
pub fn combine(parts: &[(f64, Vec<Bin>)]) -> Vec<Bin> {
    let pieces = parts.iter().flat_map(|(weight, bins)| {
        let total: f64 = bins.iter().map(|b| b.count).sum();
        bins.iter()
            .map(move |b| HistogramSegment::new(b.from, b.to, weight * b.count / total.max(1e-300)))
    });
    collect(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::{Scale, shares};
    use crate::predict::tests::bins;
    use proptest::prelude::*;

    #[test]
    fn a_method_that_predicts_its_training_runs_has_nearly_all_weight() {
        let run = |size: f64| Profile {
            size,
            bins: bins(&[(size, size * 1.5, 1.0)]),
            cold: 0.0,
        };
        let runs = [run(100.0), run(1000.0), run(10_000.0)];
        let right = |_: &[Profile], size: f64| run(size).bins;
        let wrong = |_: &[Profile], _: f64| run(3.0).bins;
        let got = weights(&runs, &[&wrong, &right]).unwrap();
        assert!(
            got[1] > 0.999 && (got[0] + got[1] - 1.0).abs() < 1e-12,
            "{got:?}"
        );
        // Methods get only the other runs.
        let cheat = |rest: &[Profile], size: f64| {
            rest.iter()
                .find(|r| r.size == size)
                .map_or(run(3.0), Clone::clone)
                .bins
        };
        let got = weights(&runs, &[&cheat, &wrong]).unwrap();
        assert!((got[0] - 0.5).abs() < 1e-12);
        assert!(weights(&runs[..2], &[&right]).is_none());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// Bin by bin it is the mean of the shares.
        #[test]
        fn a_combination_is_the_mean(parts in prop::collection::vec((0.01f64..1.0, prop::collection::vec((0u32..20, 0.0f64..5.0), 1..6)), 1..5)) {
            let sum: f64 = parts.iter().map(|p| p.0).sum();
            let octave = |k: u32| if k == 0 { (0.0, 1.0) } else { (f64::from(k - 1).exp2(), f64::from(k).exp2()) };
            let parts: Vec<(f64, Vec<Bin>)> = parts
                .into_iter()
                .map(|(w, list)| {
                    let mut list: Vec<(f64, f64, f64)> = list.into_iter().map(|(k, n)| (octave(k).0, octave(k).1, n + 0.01)).collect();
                    list.sort_by(|a, b| a.0.total_cmp(&b.0));
                    (w / sum, bins(&list))
                })
                .collect();
            let got = shares(combine(&parts).into_iter(), &Scale::Log);
            let each: Vec<Vec<f64>> = parts.iter().map(|p| shares(p.1.iter().copied(), &Scale::Log)).collect();
            for i in 0..24 {
                let want: f64 = parts.iter().zip(&each).map(|(p, s)| p.0 * s.get(i).copied().unwrap_or(0.0)).sum();
                prop_assert!((got.get(i).copied().unwrap_or(0.0) - want).abs() < 1e-9, "{}", i);
            }
        }
    }
}
