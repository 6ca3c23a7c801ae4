//! Speed of pieces of code, from measurements and from the frequency of windows that lead from one
//! piece to another.
//!
//! Triggers come by time, so windows begin too often in slow code, but the code that follows a
//! beginning does not depend on that. If windows are weighted by the speed of the code that they
//! begin in, the weight of windows that lead out of a piece of code equals the weight of those that
//! lead into it: a program that goes on for long cannot pile up anywhere. (The beginnings are then
//! a stationary distribution of the Markov chain from a window's beginning to its end.) Where code
//! alternates within some tens of thousands of records this gives the ratio of speeds better than
//! any measurement. Where phases are longer, no window leads from one to the other, and nothing
//! changes.
//!
//! Both sources are combined by maximum likelihood: the measured logarithms have normal errors, and
//! the difference between windows in and out has the variance of independent draws.
//!
//! Some windows contradict this. If most of them begin in one piece of code and none ends there, no
//! speeds bring ways in and out into balance: the search would make that piece ever slower. Speeds
//! then stay as measured.

use crate::convert::speed::params::{
    MAX_BALANCE_SHIFT_IN_ERRORS, MAX_LOG_CHANGE_AT_END, MAX_ROUNDS_OF_BALANCE,
    WINDOWS_WITHOUT_RETURN,
};

/// The speed of a piece of code.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rate {
    /// Logarithm of records per nanosecond.
    pub log: f64,
    /// Its standard error.
    pub sigma: f64,
}

/// The speeds of maximum likelihood. `moves`: for each window, the indices in `rates` of the code
/// that it begins and ends in. Rates are returned unchanged if they
/// are not finite, or if no balance is near them.
pub(crate) fn balanced(moves: &[(usize, usize)], rates: &[Rate]) -> Vec<Rate> {
    let n = rates.len();
    if moves.iter().all(|m| m.0 == m.1)
        || !rates
            .iter()
            .all(|r| r.log.is_finite() && r.sigma.is_finite() && r.sigma > 0.0)
    {
        return rates.to_vec();
    }
    let mut count = vec![0.0; n * n];
    moves
        .iter()
        .filter(|m| m.0 != m.1)
        .for_each(|m| count[m.0 * n + m.1] += 1.0);
    // Only the ratio of speeds matters to the balance, so numbers near 1 are used.
    let middle = rates.iter().map(|r| r.log).sum::<f64>() / n as f64;
    let mut logs: Vec<f64> = rates.iter().map(|r| r.log).collect();
    let mut factor = vec![0.0; n * n];
    let mut is_found = false;
    for _ in 0..MAX_ROUNDS_OF_BALANCE {
        let speed: Vec<f64> = logs.iter().map(|x| (x - middle).exp()).collect();
        let way = |from: usize, to: usize| count[from * n + to] * speed[from];
        let out: Vec<f64> = (0..n).map(|c| (0..n).map(|d| way(c, d)).sum()).collect();
        let surplus: Vec<f64> = (0..n)
            .map(|c| out[c] - (0..n).map(|d| way(d, c)).sum::<f64>())
            .collect();
        let variance = |c: usize| {
            let each = (0..n)
                .map(|d| way(c, d) * speed[c] + way(d, c) * speed[d])
                .sum::<f64>();
            each + WINDOWS_WITHOUT_RETURN * speed[c].powi(2)
        };
        let weight: Vec<f64> = (0..n).map(|c| 1.0 / variance(c)).collect();
        // Derivative of the surplus of c by the logarithm of d's speed.
        let slope = |c: usize, d: usize| if c == d { out[c] } else { -way(d, c) };
        let mut gradient: Vec<f64> = (0..n)
            .map(|d| (logs[d] - rates[d].log) / rates[d].sigma.powi(2))
            .collect();
        for d in 0..n {
            for c in 0..n {
                gradient[d] += slope(c, d) * weight[c] * surplus[c];
            }
            for e in 0..=d {
                let sum: f64 = (0..n).map(|c| slope(c, d) * weight[c] * slope(c, e)).sum();
                factor[d * n + e] = sum + if d == e { rates[d].sigma.powi(-2) } else { 0.0 };
            }
        }
        cholesky(&mut factor, n);
        solve(&factor, n, &mut gradient);
        let most = gradient
            .iter()
            .fold(0.0f64, |most, step| most.max(step.abs()));
        if !most.is_finite() {
            return rates.to_vec();
        }
        // Steps are limited, since the balance is exponential in the logarithms.
        let share = 1.0 / most.max(1.0);
        logs.iter_mut()
            .zip(&gradient)
            .for_each(|(log, step)| *log -= share * step);
        if most < MAX_LOG_CHANGE_AT_END {
            is_found = true;
            break;
        }
    }
    let shift = |&(from, _): &(usize, usize)| (logs[from] - rates[from].log) / rates[from].sigma;
    let squares: f64 = moves.iter().map(|m| shift(m).powi(2)).sum();
    let is_near = squares <= MAX_BALANCE_SHIFT_IN_ERRORS.powi(2) * moves.len() as f64;
    if !is_found || !is_near {
        return rates.to_vec();
    }
    let sigma = |c: usize| {
        let mut unit = vec![0.0; n];
        unit[c] = 1.0;
        solve(&factor, n, &mut unit);
        unit[c].max(0.0).sqrt().min(rates[c].sigma)
    };
    (0..n)
        .map(|c| Rate {
            log: logs[c],
            sigma: sigma(c),
        })
        .collect()
}

/// Replaces the lower triangle of a symmetric positive definite matrix of n rows by its factor L,
/// where L·Lᵀ is the matrix.
fn cholesky(matrix: &mut [f64], n: usize) {
    for d in 0..n {
        for e in 0..=d {
            let sum: f64 = (0..e).map(|k| matrix[d * n + k] * matrix[e * n + k]).sum();
            let rest = matrix[d * n + e] - sum;
            matrix[d * n + e] = if d == e {
                rest.max(f64::MIN_POSITIVE).sqrt()
            } else {
                rest / matrix[e * n + e]
            };
        }
    }
}

/// Solves L·Lᵀ·x = right, in place.
fn solve(factor: &[f64], n: usize, right: &mut [f64]) {
    for d in 0..n {
        let sum: f64 = (0..d).map(|k| factor[d * n + k] * right[k]).sum();
        right[d] = (right[d] - sum) / factor[d * n + d];
    }
    for d in (0..n).rev() {
        let sum: f64 = (d + 1..n).map(|k| factor[k * n + d] * right[k]).sum();
        right[d] = (right[d] - sum) / factor[d * n + d];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG_ERROR: f64 = 0.7;

    fn rate(log: f64, sigma: f64) -> Rate {
        Rate { log, sigma }
    }

    /// Moves of windows that begin by time: a walk through three pieces of code that take `ns` a
    /// record and are left after `stay` windows' lengths on average, for the next of them.
    fn windows(ns: [f64; 3], stay: [f64; 3], number: usize) -> Vec<(usize, usize)> {
        let mut state = 5u64;
        let mut uniform = || {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        let time: Vec<f64> = (0..3).map(|c| ns[c] * stay[c]).collect();
        let all: f64 = time.iter().sum();
        let mut one = || {
            let at = uniform() * all;
            let first = if at < time[0] {
                0
            } else if at < time[0] + time[1] {
                1
            } else {
                2
            };
            let (mut last, mut left) = (first, 1.0);
            loop {
                left -= -stay[last] * uniform().max(1e-12).ln();
                if left < 0.0 {
                    return (first, last);
                }
                last = (last + 1) % 3;
            }
        };
        (0..number).map(|_| one()).collect()
    }

    #[test]
    fn code_that_alternates_has_the_speeds_at_which_ways_in_and_out_are_even() {
        let ns = [0.5, 2.0, 8.0];
        let moves = windows(ns, [3.0, 1.5, 0.6], 20_000);
        let same = [rate(0.0, LOG_ERROR); 3];
        let found = balanced(&moves, &same);
        for (a, b) in [(0, 1), (1, 2), (0, 2)] {
            let ratio = (found[a].log - found[b].log).exp() / (ns[b] / ns[a]);
            assert!((0.9..1.1).contains(&ratio), "{a} {b}: {ratio}; {found:?}");
        }
        // Windows do not determine the overall speed.
        assert!(
            found.iter().all(|r| (0.3..=LOG_ERROR).contains(&r.sigma)),
            "{found:?}"
        );
    }

    #[test]
    fn what_is_known_better_counts_for_more() {
        let ns = [1.0, 4.0, 4.0];
        let moves = windows(ns, [1.0; 3], 5_000);
        let rates = [rate(0.0, 0.01), rate(0.0, 1.0), rate(0.0, 1.0)];
        let found = balanced(&moves, &rates);
        assert!(
            found[0].log.abs() < 0.01
                && (found[1].log - 0.25f64.ln()).abs() < 0.15
                && found[1].sigma < 0.15,
            "{found:?}"
        );
        // Few windows change firm measurements only a little.
        let firm = [rate(0.0, 0.05); 3];
        assert!(
            balanced(&moves[..20], &firm)
                .iter()
                .all(|r| r.log.abs() < 0.2)
        );
    }

    #[test]
    fn phases_that_no_window_joins_stay_as_measured() {
        let rates = [rate(0.3, 0.2), rate(-1.0, 0.9)];
        assert_eq!(balanced(&[(0, 0), (1, 1), (1, 1)], &rates), rates);
        assert_eq!(balanced(&[], &[]), []);
        // A single move without a return is a change of phase.
        let mut moves = vec![(0, 0); 500];
        moves.extend(vec![(1, 1); 500]);
        moves.push((0, 1));
        let found = balanced(&moves, &rates);
        assert!(
            (found[0].log - 0.3).abs() < 0.1 && (found[1].log + 1.0).abs() < 0.5,
            "{found:?}"
        );
    }

    /// Windows begin in one function, and end in a hundred others. No speeds balance them.
    #[test]
    fn code_that_no_window_returns_to_keeps_its_speed() {
        for (returns, log_error) in [(0, 0.6), (0, 1.0), (30, 0.6), (30, 1.0)] {
            let moves: Vec<(usize, usize)> = (0..340)
                .map(|k| (0, if k < returns { 0 } else { 1 + k % 100 }))
                .collect();
            let rates = vec![rate(-1.0, log_error); 101];
            assert_eq!(balanced(&moves, &rates), rates);
        }
    }

    #[test]
    fn what_cannot_be_is_left_alone() {
        let rates = [rate(f64::NAN, 0.2), rate(1.0, 0.0)];
        let found = balanced(&[(0, 1), (1, 0)], &rates);
        assert!(found[0].log.is_nan() && found[1] == rates[1]);
        let wild = [rate(700.0, 1.0), rate(-700.0, 1.0)];
        assert!(
            balanced(&[(0, 1), (1, 0), (0, 1)], &wild)
                .iter()
                .all(|r| r.log.is_finite() && r.sigma.is_finite())
        );
    }
}
