//! Weights of windows such that the functions' loads add up to counted numbers (raking).
//!
//! Windows by time show how long code runs, not how much it executes. If another run has counted
//! the loads L_f of each function f, window w with n_wf loads in f gets a weight x_w (executed
//! loads for each of its own) such that Σ x_w·n_wf = L_f for all f, and that is otherwise as close
//! as possible to the weights by time. The method is generalized iterative scaling: x_w ← x_w · Π
//! (L_f / S_f)^(n_wf / n_w), where S_f is the sum with the current weights. All windows of a single
//! function get the same factor; windows of several functions get factors in between.

use crate::estimate::params;

/// The loads of one window by function.
#[derive(Clone, Debug, Default)]
pub struct WindowLoads {
    /// Sample number.
    pub sample: u32,
    /// Function and loads, each function once.
    pub loads: Vec<(u32, f64)>,
    /// Time that the window represents, in any unit.
    pub time: f64,
}

impl WindowLoads {
    /// All its loads.
    fn all(&self) -> f64 {
        self.loads.iter().map(|l| l.1).sum()
    }
}

/// The weights of windows for given loads of the functions (0: unknown), and the share of these
/// loads that is in functions without any window.
pub fn rake(windows: &[WindowLoads], functions: &[f64]) -> (Vec<f64>, f64) {
    let total: f64 = functions.iter().sum();
    let mut weights: Vec<f64> = windows
        .iter()
        .map(|w| w.time.max(f64::MIN_POSITIVE) / w.all().max(1.0))
        .collect();
    let sums = |weights: &[f64]| {
        let mut sums = vec![0.0; functions.len()];
        for (window, weight) in windows.iter().zip(weights) {
            for &(function, loads) in &window.loads {
                if let Some(sum) = sums.get_mut(function as usize) {
                    *sum += weight * loads;
                }
            }
        }
        sums
    };
    // Scales the weights to the right total first. This also applies to windows of code that was
    // not counted.
    let first: f64 = sums(&weights).iter().sum();
    if first > 0.0 && total > 0.0 {
        weights.iter_mut().for_each(|w| *w *= total / first);
    }
    let mut unseen = 0.0;
    for round in 0..params::MAX_RAKING_ROUNDS {
        let sums = sums(&weights);
        if round == 0 {
            let missing = functions.iter().zip(&sums).filter(|(_, sum)| **sum == 0.0);
            // (An empty sum is -0.)
            unseen =
                (missing.map(|(loads, _)| loads).sum::<f64>() + 0.0) / total.max(f64::MIN_POSITIVE);
        }
        let ratios: Vec<f64> = functions
            .iter()
            .zip(&sums)
            .map(|(&loads, &sum)| {
                if loads > 0.0 && sum > 0.0 {
                    (loads / sum).ln()
                } else {
                    0.0
                }
            })
            .collect();
        if ratios
            .iter()
            .all(|r| r.abs() < params::MAX_RAKING_LOG_ERROR)
        {
            break;
        }
        for (window, weight) in windows.iter().zip(&mut weights) {
            let all = window.all();
            let log: f64 = window
                .loads
                .iter()
                .map(|&(f, loads)| ratios.get(f as usize).copied().unwrap_or(0.0) * loads / all)
                .sum();
            *weight *= log.exp();
        }
    }
    (weights, unseen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(sample: u32, loads: &[(u32, f64)]) -> WindowLoads {
        WindowLoads {
            sample,
            loads: loads.to_vec(),
            time: 1.0,
        }
    }

    #[test]
    fn windows_stand_for_what_was_counted_of_their_functions() {
        // The first function takes most of the time and executes a quarter of the counted loads.
        let mut windows: Vec<WindowLoads> = (0..95).map(|s| window(s, &[(0, 1000.0)])).collect();
        windows.push(window(95, &[(0, 500.0), (1, 500.0)]));
        windows.extend((96..100).map(|s| window(s, &[(1, 1000.0)])));
        let (weights, unseen) = rake(&windows, &[1e6, 3e6, 1e6]);
        let sum = |f: u32| -> f64 {
            let loads = |w: &WindowLoads| {
                w.loads
                    .iter()
                    .filter(|l| l.0 == f)
                    .map(|l| l.1)
                    .sum::<f64>()
            };
            windows
                .iter()
                .zip(&weights)
                .map(|(w, x)| x * loads(w))
                .sum()
        };
        assert!((sum(0) / 1e6 - 1.0).abs() < 1e-3, "{}", sum(0));
        assert!((sum(1) / 3e6 - 1.0).abs() < 1e-3, "{}", sum(1));
        assert!((unseen - 0.2).abs() < 1e-9);
        // Windows with equal times have equal weights; windows with both functions lie in between.
        assert!((weights[0] / weights[94] - 1.0).abs() < 1e-9);
        assert!(weights[0] < weights[95] && weights[95] < weights[99]);
    }

    #[test]
    fn code_that_was_not_counted_keeps_its_weight_by_time() {
        let windows = [window(0, &[(0, 100.0)]), window(1, &[(7, 100.0)])];
        let (weights, unseen) = rake(&windows, &[1e5]);
        assert!((weights[0] - 1e3).abs() < 1.0 && weights[1] > 0.0 && unseen == 0.0);
        assert_eq!(rake(&[], &[1.0]).1, 1.0);
    }
}
