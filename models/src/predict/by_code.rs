//! Prediction by code (Barai et al. 2019, equation 1): Pr(D) = Σ P(BB) · P(D|BB). The behaviour of
//! each piece of code is scaled to a larger input.
//!
//! Each piece has its own single-model for P(D|BB). Its number of executions and its number of
//! first touches grow by powers of the input size.

use crate::histogram::Bin;
use crate::predict::single::{self, SingleModel};
use crate::predict::{HistogramSegment, Profile, collect};
use std::collections::BTreeMap;

/// Behaviour of a piece of code in a run.
#[derive(Clone, Debug, Default)]
pub struct CodeProfile {
    /// Reuse distances.
    pub bins: Vec<Bin>,
    /// Touches that are not reuses.
    pub cold: f64,
}

/// A run.
#[derive(Clone, Debug, Default)]
pub struct CodeRun {
    /// Input size.
    pub size: f64,
    /// By piece of code.
    pub pieces: BTreeMap<u32, CodeProfile>,
}

/// Growth of a number: factor · s^exponent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    factor: f64,
    exponent: f64,
}

/// Upper bound of the exponent: no reasonable loop nest grows faster. Source: Chosen.
const MAX_GROWTH_EXPONENT: f64 = 4.0;

impl Growth {
    /// The line through (ln s, ln n) with least squares; numbers that are 0 are left out.
    pub fn fit(points: &[(f64, f64)]) -> Growth {
        let logs: Vec<(f64, f64)> = points
            .iter()
            .filter(|p| p.0 > 0.0 && p.1 > 0.0)
            .map(|p| (p.0.ln(), p.1.ln()))
            .collect();
        let n = logs.len() as f64;
        if logs.is_empty() {
            return Growth {
                factor: 0.0,
                exponent: 0.0,
            };
        }
        let (x, y) = logs
            .iter()
            .fold((0.0, 0.0), |s, p| (s.0 + p.0 / n, s.1 + p.1 / n));
        let (above, below) = logs.iter().fold((0.0, 0.0), |s, p| {
            (s.0 + (p.0 - x) * (p.1 - y), s.1 + (p.0 - x).powi(2))
        });
        let exponent = if below > 1e-12 {
            (above / below).clamp(-MAX_GROWTH_EXPONENT, MAX_GROWTH_EXPONENT)
        } else {
            0.0
        };
        Growth {
            factor: (y - exponent * x).exp(),
            exponent,
        }
    }

    /// The number at a size.
    pub fn at(&self, size: f64) -> f64 {
        self.factor * size.max(1e-300).powf(self.exponent)
    }
}

struct PieceModel {
    distances: SingleModel,
    reuses: Growth,
    cold: Growth,
}

/// A trained model.
pub struct CodeModel {
    pieces: BTreeMap<u32, PieceModel>,
}

/// A predicted run.
#[derive(Clone, Debug, Default)]
pub struct CodePrediction {
    /// Reuse distances; counts are reuses.
    pub bins: Vec<Bin>,
    /// First touches.
    pub cold: f64,
}

/// Trains on two or more runs of different inputs. A piece that occurs in only one run keeps its
/// behaviour there.
pub fn train(runs: &[CodeRun], partitions: usize) -> CodeModel {
    let mut keys: Vec<u32> = runs.iter().flat_map(|r| r.pieces.keys().copied()).collect();
    keys.sort_unstable();
    keys.dedup();
    let of = |key: u32| {
        let met = runs
            .iter()
            .filter_map(|run| Some((run.size, run.pieces.get(&key)?)));
        let (mut profiles, mut reuses, mut cold) = (Vec::new(), Vec::new(), Vec::new());
        for (size, piece) in met {
            let count: f64 = piece.bins.iter().map(|b| b.count).sum();
            reuses.push((size, count));
            cold.push((size, piece.cold));
            if count > 0.0 {
                profiles.push(Profile {
                    size,
                    bins: piece.bins.clone(),
                    cold: piece.cold,
                });
            }
        }
        PieceModel {
            distances: single::train(&profiles, partitions),
            reuses: Growth::fit(&reuses),
            cold: Growth::fit(&cold),
        }
    };
    CodeModel {
        pieces: keys.into_iter().map(|key| (key, of(key))).collect(),
    }
}

impl CodeModel {
    /// The predicted run for an input size. `weights`, if given, has the number of touches of each
    /// piece (equation 1 with a P(BB) from another run); pieces that are missing in it do not run.
    pub fn predict(&self, size: f64, weights: Option<&BTreeMap<u32, f64>>) -> CodePrediction {
        let mut cold = 0.0;
        let mut pieces = Vec::new();
        for (key, model) in &self.pieces {
            let (mut reuses, mut first) = (model.reuses.at(size), model.cold.at(size));
            if let Some(weights) = weights {
                let scale = weights.get(key).copied().unwrap_or(0.0) / (reuses + first).max(1e-300);
                reuses *= scale;
                first *= scale;
            }
            cold += first;
            pieces.extend(
                model
                    .distances
                    .predict(size)
                    .into_iter()
                    .map(move |b| HistogramSegment::new(b.from, b.to, b.count * reuses)),
            );
        }
        CodePrediction {
            bins: collect(pieces.into_iter()),
            cold,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bin(at: f64, count: f64) -> Bin {
        Bin {
            from: at,
            to: at + 1.0,
            count,
            sum: at * count,
        }
    }

    /// A loop over n elements that are reused a whole pass later, and a loop with distance 3 that
    /// runs n² times.
    fn run(n: f64) -> CodeRun {
        let pass = CodeProfile {
            bins: vec![bin(n, 9.0 * n)],
            cold: n,
        };
        let near = CodeProfile {
            bins: vec![bin(3.0, n * n)],
            cold: 1.0,
        };
        CodeRun {
            size: n,
            pieces: [(1, pass), (2, near)].into(),
        }
    }

    #[test]
    fn pieces_that_grow_differently_are_told_apart() {
        let model = train(&[run(1000.0), run(4000.0)], 100);
        let got = model.predict(400_000.0, None);
        let sum = |from: f64, to: f64| -> f64 {
            got.bins
                .iter()
                .filter(|b| b.from >= from && b.from < to)
                .map(|b| b.count)
                .sum()
        };
        let (near, far) = (sum(0.0, 10.0), sum(300_000.0, 500_000.0));
        assert!((near / 1.6e11 - 1.0).abs() < 1e-6, "{near}");
        assert!((far / 3.6e6 - 1.0).abs() < 1e-6, "{far}");
        assert!((got.cold / 400_001.0 - 1.0).abs() < 1e-6, "{}", got.cold);
        // With the counts of another run, which has only the first piece.
        let got = model.predict(400_000.0, Some(&[(1, 1000.0)].into()));
        let all: f64 = got.bins.iter().map(|b| b.count).sum();
        assert!((all - 900.0).abs() < 1e-6 && (got.cold - 100.0).abs() < 1e-6);
    }

    proptest! {
        #[test]
        fn powers_are_found(factor in 0.1f64..1e6, exponent in -2.0f64..3.0, sizes in prop::collection::vec(1.0f64..1e5, 2..6)) {
            let points: Vec<(f64, f64)> = sizes.iter().map(|&s| (s, factor * s.powf(exponent))).collect();
            let growth = Growth::fit(&points);
            for (size, want) in points {
                prop_assert!((growth.at(size) / want - 1.0).abs() < 1e-6);
            }
        }
    }
}
