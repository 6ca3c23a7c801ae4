//! Tests of two sets of numbers for a difference by ranks (Mann and Whitney 1947), and Holm's
//! correction (1979) for many tests at once.

/// Two-sided p of the rank test, exact for any ties: the share of all assignments of the numbers to
/// the two sides whose rank sum is at least as far from its mean. `None` without numbers.
pub fn mann_whitney(a: &[f64], b: &[f64]) -> Option<f64> {
    if a.is_empty() || b.is_empty() || a.iter().chain(b).any(|x| !x.is_finite()) {
        return None;
    }
    let mut all: Vec<f64> = a.iter().chain(b).copied().collect();
    all.sort_by(f64::total_cmp);
    // Twice the mean rank, so that tied ranks are whole numbers.
    let rank = |x: f64| -> usize {
        let below = all.partition_point(|&y| y < x);
        let upto = all.partition_point(|&y| y <= x);
        below + upto + 1
    };
    let ranks: Vec<usize> = all.iter().map(|&x| rank(x)).collect();
    let (n, total) = (a.len(), ranks.iter().sum::<usize>());
    // ways[k][s]: shares of choices of k numbers with the rank sum s. They are floating-point
    // numbers, since there are too many choices to count.
    let mut ways = vec![vec![0.0f64; total + 1]; n + 1];
    ways[0][0] = 1.0;
    for (done, &rank) in ranks.iter().enumerate() {
        for k in (1..=n.min(done + 1)).rev() {
            for sum in (rank..=total).rev() {
                ways[k][sum] += ways[k - 1][sum - rank];
            }
        }
    }
    let every: f64 = ways[n].iter().sum();
    let mean = total as f64 * n as f64 / all.len() as f64;
    let seen: usize = a.iter().map(|&x| rank(x)).sum();
    let far = (seen as f64 - mean).abs() - 1e-9;
    let as_far: f64 = ways[n]
        .iter()
        .enumerate()
        .filter(|(sum, _)| (*sum as f64 - mean).abs() >= far)
        .map(|(_, w)| w)
        .sum();
    Some((as_far / every).min(1.0))
}

/// The smallest p that the rank test can give for these numbers of values.
pub fn smallest_p(n: usize, m: usize) -> f64 {
    let ways = (1..=n).fold(1.0, |ways, k| ways * (m + k) as f64 / k as f64);
    (2.0 / ways).min(1.0)
}

/// Holm's correction: p values that bound the probability of any false change among them.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&i, &j| p[i].total_cmp(&p[j]));
    let mut out = vec![1.0; p.len()];
    let mut highest = 0.0f64;
    for (done, &at) in order.iter().enumerate() {
        highest = highest.max(p[at] * (p.len() - done) as f64).min(1.0);
        out[at] = highest;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-9 * b.abs().max(1.0), "{a} {b}");
    }

    /// Values of scipy 1.17: `mannwhitneyu(a, b, method="exact").pvalue`.
    #[test]
    fn exact_p_values_of_ranks() {
        let p = |a: &[f64], b: &[f64]| mann_whitney(a, b).unwrap();
        close(p(&[1.0, 2.0, 3.0, 4.0], &[5.0, 6.0, 7.0, 8.0]), 2.0 / 70.0);
        close(p(&[1.0, 2.0, 3.0, 5.0], &[4.0, 6.0, 7.0, 8.0]), 4.0 / 70.0);
        close(
            p(&[1.0, 4.0, 6.0, 7.0, 9.0], &[2.0, 3.0, 5.0, 8.0]),
            0.7301587301587302,
        );
        close(
            p(&[1.1, 2.2, 3.3, 4.4, 5.5, 6.6], &[4.0, 5.0, 6.0, 7.0, 8.0]),
            0.12554112554112554,
        );
        assert!(mann_whitney(&[], &[1.0]).is_none());
        assert!(mann_whitney(&[f64::NAN], &[1.0]).is_none());
    }

    /// All assignments of the numbers to the two sides, one by one.
    #[test]
    fn ties_are_exact_too() {
        for (a, b) in [
            (vec![1.0, 1.0, 2.0, 3.0], vec![2.0, 3.0, 3.0, 4.0]),
            (vec![5.0, 5.0, 5.0], vec![5.0, 5.0, 5.0, 5.0]),
            (vec![0.0, 0.0, 0.0, 0.0, 1.0], vec![0.0, 2.0, 2.0, 3.0]),
        ] {
            let all: Vec<f64> = a.iter().chain(&b).copied().collect();
            let rank = |x: f64| {
                all.iter().filter(|&&y| y < x).count() as f64
                    + (all.iter().filter(|&&y| y == x).count() as f64 + 1.0) / 2.0
            };
            let mean =
                all.iter().map(|&x| rank(x)).sum::<f64>() * a.len() as f64 / all.len() as f64;
            let far = (a.iter().map(|&x| rank(x)).sum::<f64>() - mean).abs();
            let (mut hits, mut ways) = (0.0, 0.0);
            for mask in 0u32..1 << all.len() {
                if mask.count_ones() as usize != a.len() {
                    continue;
                }
                let chosen = (0..all.len()).filter(|i| mask >> i & 1 == 1);
                let sum: f64 = chosen.map(|i| rank(all[i])).sum();
                ways += 1.0;
                hits += f64::from((sum - mean).abs() >= far - 1e-9);
            }
            close(mann_whitney(&a, &b).unwrap(), hits / ways);
        }
    }

    #[test]
    fn what_ranks_can_tell_at_best() {
        close(smallest_p(4, 4), 2.0 / 70.0);
        close(smallest_p(5, 5), 2.0 / 252.0);
        close(smallest_p(1, 1), 1.0);
    }

    #[test]
    fn holm_steps_down() {
        let p = holm(&[0.01, 0.04, 0.03, 0.005]);
        for (got, want) in p.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            close(*got, want);
        }
        assert_eq!(holm(&[]), Vec::<f64>::new());
        close(holm(&[0.9, 0.8])[0], 1.0);
    }
}
