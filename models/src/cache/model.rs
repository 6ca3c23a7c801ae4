//! The stack-distance cache model: blocks fall into sets at random.

use crate::cache::Shape;
use crate::histogram::Bin;
use crate::statistics::distributions::ln_gamma;

/// P(h|D) of the stack-distance cache model (Brehob and Enbody; Barai et al., equation 2): the
/// probability that an access with D distinct blocks in between hits in a cache of `sets` sets with
/// A ways, if blocks fall into sets at random: if fewer than A of the D fall into its set, Σ_{a<A}
/// C(D,a) (1/sets)^a (1 − 1/sets)^(D−a). D may be a fraction (the mean of a bin).
pub fn hit_probability(distance: f64, ways: u64, sets: u64) -> f64 {
    if distance < ways as f64 {
        return 1.0;
    }
    if sets == 1 {
        return 0.0;
    }
    below(ways, distance, 1.0 / sets as f64)
}

/// P(a < `ways`) for a binomial a of `n` trials with probability `p`; n may be a fraction.
fn below(ways: u64, n: f64, p: f64) -> f64 {
    if n < ways as f64 || p <= 0.0 {
        return 1.0;
    }
    if p >= 1.0 {
        return 0.0;
    }
    let (distance, mean) = (n, n * p);
    let ways = ways as f64;
    // Far from the threshold the sum is 1 or 0 in floating point.
    let deviation = (mean * (1.0 - p)).sqrt();
    if ways > mean + 10.0 * deviation + 30.0 {
        return 1.0;
    }
    if ways < mean - 12.0 * deviation - 30.0 {
        return 0.0;
    }
    // Sums from the largest term outward on both sides, as long as terms matter.
    let odds = p / (1.0 - p);
    let mode = (((distance + 1.0) * p).floor()).min(ways - 1.0).max(0.0);
    let log_mode = ln_choose(distance, mode) + mode * p.ln() + (distance - mode) * (-p).ln_1p();
    let top = log_mode.exp();
    let (mut sum, mut term, mut a) = (top, top, mode);
    while a > 0.0 && term > sum * 1e-17 {
        term *= a / ((distance - a + 1.0) * odds);
        sum += term;
        a -= 1.0;
    }
    let (mut term, mut a) = (top, mode);
    while a + 1.0 < ways && term > sum * 1e-17 {
        term *= (distance - a) / (a + 1.0) * odds;
        sum += term;
        a += 1.0;
    }
    sum.min(1.0)
}

/// ln C(n, k) for n that may be a fraction.
fn ln_choose(n: f64, k: f64) -> f64 {
    ln_gamma(n + 1.0) - ln_gamma(k + 1.0) - ln_gamma(n - k + 1.0)
}

/// Expected hits of accesses whose distances (in lines of the cache) are given, in one cache that
/// sees them all.
pub fn expected_hits(bins: impl Iterator<Item = Bin>, shape: &Shape) -> f64 {
    bins.map(|bin| {
        let width = bin.to - bin.from;
        if width <= 1.0 || bin.to <= shape.ways as f64 {
            return bin.count * hit_probability(bin.mean(), shape.ways, shape.sets());
        }
        // Wide bins: Simpson's rule over the values.
        let at = |d: f64| hit_probability(d, shape.ways, shape.sets());
        bin.count * (at(bin.from) + 4.0 * at(0.5 * (bin.from + bin.to - 1.0)) + at(bin.to - 1.0))
            / 6.0
    })
    .fold(0.0, |sum, hits| sum + hits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Cache;
    use crate::histogram::{Fine, TRACE_BITS};
    use proptest::prelude::*;

    #[test]
    fn full_associativity_is_a_step_and_direct_mapping_a_power() {
        // A = B: hit if and only if D < A.
        assert_eq!(
            (hit_probability(15.0, 16, 1), hit_probability(16.0, 16, 1)),
            (1.0, 0.0)
        );
        // A = 1: none of the D blocks may fall into the set.
        for d in [1.0f64, 10.0, 1000.0] {
            assert!((hit_probability(d, 1, 64) - (63.0 / 64.0f64).powf(d)).abs() < 1e-12);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn hit_probability_agrees_with_equation_2(distance in 0u64..3000, ways in 1u64..40, sets_log in 0u32..9) {
            let sets = 1u64 << sets_log;
            // The terms of the equation, from logarithms of exact products.
            let (a_over_b, rest) = (1.0 / sets as f64, 1.0 - 1.0 / sets as f64);
            let mut sum = 0.0;
            let mut ln_choose = 0.0;
            for a in 0..ways.min(distance + 1) {
                let b = distance - a;
                let tail = if b == 0 { 0.0 } else { b as f64 * rest.ln() };
                sum += (ln_choose + a as f64 * a_over_b.ln() + tail).exp();
                ln_choose += ((distance - a) as f64).ln() - ((a + 1) as f64).ln();
            }
            prop_assert!((hit_probability(distance as f64, ways, sets) - sum.min(1.0)).abs() < 1e-9);
        }
    }

    #[test]
    fn the_model_predicts_random_accesses() {
        let shape = Shape::new(8 * 64 * 64, 8, 64).unwrap();
        let mut cache = Cache::new(&shape);
        let mut fine = Fine::new(TRACE_BITS);
        let mut stack: Vec<u64> = Vec::new();
        let (mut x, mut hits) = (3u64, 0u32);
        for _ in 0..100_000 {
            x = x
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let unit = (x >> 11) as f64 / (1u64 << 53) as f64;
            let block = (unit * unit * 1500.0) as u64;
            hits += u32::from(cache.access(block));
            if let Some(at) = stack.iter().rposition(|&b| b == block) {
                fine.add((stack.len() - 1 - at) as u64);
                stack.remove(at);
            }
            stack.push(block);
        }
        let expected = expected_hits(fine.bins(), &shape);
        assert!(
            (expected - f64::from(hits)).abs() < 1000.0,
            "{expected} {hits}"
        );
    }
}
