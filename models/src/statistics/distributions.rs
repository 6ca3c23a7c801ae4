//! Functions of the gamma, beta, normal and Student distributions.
//!
//! Survival curves evaluate one incomplete gamma function with the same parameter many times, so ln
//! Γ of the parameter is an argument. For this and other reasons, crates with such functions are
//! not used (decision 77).

use crate::statistics::NORMAL_QUANTILE_OF_95_PCT;

/// ln Γ(x) for x > 0: Stirling's series (Abramowitz and Stegun 6.1.41) after shifting x above 10.
/// Error below 1e-12 of the value or of 1.
pub fn ln_gamma(x: f64) -> f64 {
    let (mut x, mut shift) = (x, 0.0);
    while x < 10.0 {
        shift += x.ln();
        x += 1.0;
    }
    let i = 1.0 / x;
    let i2 = i * i;
    (x - 0.5) * x.ln() - x
        + 0.5 * (2.0 * std::f64::consts::PI).ln()
        + i * (1.0 / 12.0 - i2 * (1.0 / 360.0 - i2 * (1.0 / 1260.0 - i2 / 1680.0)))
        - shift
}

/// Regularized lower incomplete gamma function P(a, x), by its series or its continued fraction
/// (Press et al., *Numerical Recipes*, 6.2). `ln_gamma` is ln Γ(a). Error below 1e-9.
pub fn gamma_below(a: f64, x: f64, ln_gamma: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    let scale = (a * x.ln() - x - ln_gamma).exp();
    if x < a + 1.0 {
        let (mut term, mut sum, mut n) = (1.0 / a, 1.0 / a, a);
        for _ in 0..1000 {
            n += 1.0;
            term *= x / n;
            sum += term;
            if term < sum * 1e-12 {
                break;
            }
        }
        return (sum * scale).min(1.0);
    }
    let mut b = x + 1.0 - a;
    let (mut c, mut d) = (1.0 / LENTZ_ZERO, 1.0 / b);
    let mut h = d;
    for i in 1..1000 {
        let an = -f64::from(i) * (f64::from(i) - a);
        b += 2.0;
        d = 1.0 / not_zero(an * d + b);
        c = not_zero(b + an / c);
        let change = d * c;
        h *= change;
        if (change - 1.0).abs() < 1e-12 {
            break;
        }
    }
    (1.0 - scale * h).clamp(0.0, 1.0)
}

/// Replacement of zeros in continued fractions by Lentz's method.
const LENTZ_ZERO: f64 = 1e-300;

fn not_zero(x: f64) -> f64 {
    if x.abs() < LENTZ_ZERO { LENTZ_ZERO } else { x }
}

/// Regularized incomplete beta function, by its continued fraction (Press et al., *Numerical
/// Recipes*, 6.4). Error below 1e-9.
pub fn beta_below(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - beta_below(1.0 - x, b, a);
    }
    let front =
        (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp() / a;
    let (mut c, mut d) = (1.0, 1.0 / not_zero(1.0 - (a + b) * x / (a + 1.0)));
    let mut fraction = d;
    for m in 1..1000 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let before = fraction;
        for term in [even, odd] {
            d = 1.0 / not_zero(1.0 + term * d);
            c = not_zero(1.0 + term / c);
            fraction *= c * d;
        }
        if (fraction / before - 1.0).abs() < 1e-14 {
            break;
        }
    }
    front * fraction
}

/// Distribution function Φ(x) of the standard normal distribution (Abramowitz and Stegun 7.1.26;
/// error below 1.5e-7).
pub fn normal_below(x: f64) -> f64 {
    let z = x.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * z);
    let tail = t
        * (0.254_829_592
            + t * (-0.284_496_736
                + t * (1.421_413_741 + t * (-1.453_152_027 + t * 1.061_405_429))))
        * (-z * z).exp();
    if x >= 0.0 {
        1.0 - 0.5 * tail
    } else {
        0.5 * tail
    }
}

/// The two-sided p of Student's t; infinite `freedom` is the normal distribution.
pub fn student_p(t: f64, freedom: f64) -> f64 {
    if !t.is_finite() {
        return if t.is_nan() { 1.0 } else { 0.0 };
    }
    // The distributions with more degrees of freedom agree to six digits.
    let freedom = freedom.min(1e6);
    beta_below(freedom / (freedom + t * t), freedom / 2.0, 0.5)
}

/// The 97.5 % quantile of Student's distribution, for three degrees of freedom or more (Cornish and
/// Fisher's expansion, Abramowitz and Stegun 26.7.5, to 1/ν³; 0.8 % below the quantile for three,
/// 0.1 % for six).
pub fn student_quantile(freedom: f64) -> f64 {
    let (n, z) = (freedom.max(1.0), NORMAL_QUANTILE_OF_95_PCT);
    let g1 = (z.powi(3) + z) / 4.0;
    let g2 = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let g3 = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
    z + g1 / n + g2 / n.powi(2) + g3 / n.powi(3)
}

/// Ratio of a 95 % interval from an estimated variance with this number of degrees of freedom to
/// one from a known variance: Student's 97.5 % quantile over 1.96. The quantiles below ten are from
/// tables, because expansions are too small for one and two. Error below 0.2 %.
pub fn student_widening(freedom: f64) -> f64 {
    const QUANTILES: [f64; 9] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262,
    ];
    let quantile = QUANTILES
        .get((freedom - 1.0).max(0.0) as usize)
        .copied()
        .unwrap_or(1.96 + 2.372 / freedom + 2.82 / (freedom * freedom));
    quantile / 1.96
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9 * b.abs().max(1.0)
    }

    #[test]
    fn gamma_functions_agree_with_tables() {
        assert!((ln_gamma(5.0) - 24f64.ln()).abs() < 1e-12);
        assert!((ln_gamma(0.5) - std::f64::consts::PI.sqrt().ln()).abs() < 1e-12);
        // ln 170!.
        assert!((ln_gamma(171.0) - 706.573_062_245_787_5).abs() < 1e-9);
        // 1 − e^−x for a = 1; χ² with 10 degrees: P(5, 5) = 0.559507.
        let below = |a: f64, x: f64| gamma_below(a, x, ln_gamma(a));
        assert!((below(1.0, 2.0) - (1.0 - (-2f64).exp())).abs() < 1e-9);
        assert!((below(5.0, 5.0) - 0.559_507).abs() < 1e-5);
        assert!((below(100.0, 50.0)) < 1e-6 && below(100.0, 200.0) > 0.999_999);
    }

    /// Probabilities agree with tables of the distribution.
    #[test]
    fn probabilities_of_student() {
        for (t, freedom) in [
            (12.7062047, 1.0),
            (2.77644511, 4.0),
            (2.22813885, 10.0),
            (1.95996398, 1e9),
        ] {
            assert!((student_p(t, freedom) - 0.05).abs() < 1e-6, "{t} {freedom}");
        }
        assert!(is_close(student_p(0.0, 3.0), 1.0));
        assert!(is_close(student_p(f64::INFINITY, 3.0), 0.0));
    }

    /// Quantiles of the functions for intervals have the tabulated probabilities.
    #[test]
    fn quantiles_of_student() {
        for (freedom, t) in [
            (1.0, 12.706),
            (3.0, 3.182),
            (5.0, 2.571),
            (9.0, 2.262),
            (10.0, 2.228),
            (15.0, 2.131),
            (30.0, 2.042),
            (120.0, 1.980),
            (1e6, 1.960),
        ] {
            let (expanded, wide) = (student_quantile(freedom), 1.96 * student_widening(freedom));
            assert!((wide - t).abs() < 2e-3 * t, "{freedom}: {wide}");
            assert!(
                freedom < 3.0 || (expanded - t).abs() < 8e-3 * t,
                "{freedom}: {expanded}"
            );
        }
    }

    #[test]
    fn probabilities_of_the_normal_distribution() {
        for (x, p) in [(0.0, 0.5), (1.0, 0.841_344_746), (-1.959_964, 0.025)] {
            assert!((normal_below(x) - p).abs() < 2e-7, "{x}");
        }
    }
}
