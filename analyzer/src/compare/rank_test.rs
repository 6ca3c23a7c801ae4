//! Tests of two sets of numbers for a difference: ranks (Mann and Whitney 1947), Student's t, and
//! Holm's correction (1979) for many tests at once.

/// Two-sided p of the rank test, exact for any ties: the share of all assignments of the numbers to
/// the two sides whose rank sum is at least as far from its mean. `None` without numbers.
pub fn mann_whitney(a: &[f64], b: &[f64]) -> Option<f64> {
    if a.is_empty() || b.is_empty() || a.iter().chain(b).any(|x| !x.is_finite()) {
        return None;
    }
    let mut all: Vec<f64> = a.iter().chain(b).copied().collect();
    all.sort_by(f64::total_cmp);
    // Twice the mean rank, so that ranks of ties are whole.
    let rank = |x: f64| -> usize {
        let below = all.partition_point(|&y| y < x);
        let upto = all.partition_point(|&y| y <= x);
        below + upto + 1
    };
    let ranks: Vec<usize> = all.iter().map(|&x| rank(x)).collect();
    let (n, total) = (a.len(), ranks.iter().sum::<usize>());
    // ways[k][s]: shares of choices of k numbers with the rank sum s. As floating point: there are
    // too many to count.
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

/// The smallest p that the rank test can give for so many numbers.
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

/// The two-sided p of Student's t; infinite `freedom` is the normal distribution.
pub fn student(t: f64, freedom: f64) -> f64 {
    if !t.is_finite() {
        return if t.is_nan() { 1.0 } else { 0.0 };
    }
    // Beyond, the two are alike to four digits.
    if freedom > 1e6 {
        return student(t, 1e6);
    }
    beta(freedom / (freedom + t * t), freedom / 2.0, 0.5)
}

/// The regularised incomplete beta function, by its continued fraction (Lentz's way to evaluate it).
fn beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - beta(1.0 - x, b, a);
    }
    let front = (log_gamma(a + b) - log_gamma(a) - log_gamma(b) + a * x.ln() + b * (1.0 - x).ln())
        .exp()
        / a;
    let safe = |v: f64| if v.abs() < 1e-300 { 1e-300 } else { v };
    let (mut c, mut d) = (1.0, 1.0 / safe(1.0 - (a + b) * x / (a + 1.0)));
    let mut fraction = d;
    for m in 1..1000 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let before = fraction;
        for term in [even, odd] {
            d = 1.0 / safe(1.0 + term * d);
            c = safe(1.0 + term / c);
            fraction *= c * d;
        }
        if (fraction / before - 1.0).abs() < 1e-14 {
            break;
        }
    }
    front * fraction
}

/// ln Γ by Stirling's series, shifted to where it is exact.
fn log_gamma(x: f64) -> f64 {
    let (mut shift, mut y) = (0.0, x);
    while y < 12.0 {
        shift += y.ln();
        y += 1.0;
    }
    let series = 1.0 / (12.0 * y) - 1.0 / (360.0 * y.powi(3)) + 1.0 / (1260.0 * y.powi(5));
    (y - 0.5) * y.ln() - y + 0.5 * (2.0 * std::f64::consts::PI).ln() + series - shift
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

    /// All ways to deal the numbers, one by one.
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

    /// Tables of the distribution.
    #[test]
    fn quantiles_of_student() {
        for (t, freedom) in [
            (12.7062047, 1.0),
            (2.77644511, 4.0),
            (2.22813885, 10.0),
            (1.95996398, 1e9),
        ] {
            assert!((student(t, freedom) - 0.05).abs() < 1e-6, "{t} {freedom}");
        }
        close(student(0.0, 3.0), 1.0);
        close(student(f64::INFINITY, 3.0), 0.0);
    }
}
