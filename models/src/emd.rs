//! Earth Mover's Distance of one-dimensional histograms, as used by Cabrera et al. (section III-C):
//! the least work to turn one into the other, where moving a unit of mass from bin i to bin j has
//! the cost |j − i|.
//!
//! In one dimension this is exact and needs no linear program: Σ |A(i) − B(i)| over the cumulative
//! sums A and B.

/// The distance of two histograms, each normalised to sum 1. `None` if one of them is empty.
pub fn earth_movers_distance(a: &[f64], b: &[f64]) -> Option<f64> {
    let (total_a, total_b) = (a.iter().sum::<f64>(), b.iter().sum::<f64>());
    if !(total_a > 0.0 && total_b > 0.0) {
        return None;
    }
    let at = |s: &[f64], i: usize| s.get(i).copied().unwrap_or(0.0);
    let mut carried = 0.0;
    let mut work = 0.0;
    for i in 0..a.len().max(b.len()) {
        carried += at(a, i) / total_a - at(b, i) / total_b;
        work += f64::abs(carried);
    }
    Some(work)
}

/// As `earth_movers_distance`, with a sign: mass that moves to lower bins counts as negative. It
/// equals the difference of the means.
pub fn shift(a: &[f64], b: &[f64]) -> Option<f64> {
    let mean = |s: &[f64]| {
        let total = s.iter().sum::<f64>();
        (total > 0.0).then(|| s.iter().enumerate().map(|(i, v)| i as f64 * v).sum::<f64>() / total)
    };
    Some(mean(b)? - mean(a)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Scale;
    use proptest::prelude::*;

    #[test]
    fn the_ground_distance_of_the_paper() {
        // "the distance between bin [0,4) in one histogram and bin [32,64) in the other": 4.
        let scale = Scale::Octaves { first: 4, bins: 0 };
        let mut far = vec![0.0; 5];
        far[scale.index(32.0)] = 1.0;
        let mut near = vec![0.0; 5];
        near[scale.index(0.0)] = 1.0;
        assert_eq!(earth_movers_distance(&near, &far), Some(4.0));
        assert_eq!(shift(&far, &near), Some(-4.0));
        assert_eq!(earth_movers_distance(&far, &far), Some(0.0));
        assert_eq!(earth_movers_distance(&[], &far), None);
    }

    /// The least cost of moving whole units. A transport problem of equal units is an assignment.
    /// On sorted points the sorted assignment is the best; here all permutations are tried.
    fn by_assignment(a: &[usize], b: &[usize]) -> usize {
        fn best(a: &[usize], b: &mut Vec<usize>) -> usize {
            let Some((&first, rest)) = a.split_first() else {
                return 0;
            };
            (0..b.len())
                .map(|i| {
                    let to = b.remove(i);
                    let cost = first.abs_diff(to) + best(rest, b);
                    b.insert(i, to);
                    cost
                })
                .min()
                .unwrap()
        }
        best(a, &mut b.to_vec())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn agrees_with_the_best_assignment(pairs in prop::collection::vec((0usize..9, 0usize..9), 1..7)) {
            let (a, b): (Vec<usize>, Vec<usize>) = pairs.into_iter().unzip();
            let histogram = |s: &[usize]| {
                let mut h = vec![0.0; 9];
                s.iter().for_each(|&i| h[i] += 1.0);
                h
            };
            let want = by_assignment(&a, &b) as f64 / a.len() as f64;
            prop_assert!((earth_movers_distance(&histogram(&a), &histogram(&b)).unwrap() - want).abs() < 1e-9);
            prop_assert!(shift(&histogram(&a), &histogram(&b)).unwrap().abs() <= want + 1e-9);
        }
    }
}
