//! Groups of places that are used together, after Zhong, Orlovich, Shen and Ding 2004.
//!
//! *Reference affinity*: places are in one group if a chain of places links them, and neighbours in
//! the chain are nearly always accessed within reach of each other
//! ([`crate::affinity::Affinity::together`]). *k-distance*: places are linked if their reuse
//! signatures differ by at most k. A signature is the sorted reuse distances of a place, divided
//! into parts of equal number, each with its mean; two differ by the mean difference of the parts.
//! Places with reference affinity have similar signatures, but similar signatures can belong to
//! places that are never used together.

use crate::histogram::Fine;

/// Parts of a signature.
pub const SIGNATURE_PARTS: usize = 20;

/// Groups of at least two of `n` places: the connected components of the links. Members ascend.
pub fn groups(n: usize, linked: impl Fn(usize, usize) -> bool) -> Vec<Vec<usize>> {
    let mut group_of: Vec<usize> = (0..n).collect();
    for x in 0..n {
        for y in x + 1..n {
            let (a, b) = (group_of[x], group_of[y]);
            if a != b && linked(x, y) {
                group_of
                    .iter_mut()
                    .filter(|g| **g == b)
                    .for_each(|g| *g = a);
            }
        }
    }
    let members = |group: usize| (0..n).filter(|&x| group_of[x] == group).collect();
    let found = (0..n).map(members);
    found
        .filter(|members: &Vec<usize>| members.len() > 1)
        .collect()
}

/// The signature of reuse distances; `None` without any.
pub fn signature(distances: &Fine) -> Option<Vec<f64>> {
    if distances.count() == 0 {
        return None;
    }
    let part = distances.count() as f64 / SIGNATURE_PARTS as f64;
    let mut means = vec![0.0; SIGNATURE_PARTS];
    let mut done = 0.0;
    for bin in distances.bins() {
        let mut left = bin.count;
        while left > 1e-9 * part {
            let at = (done / part + 1e-9) as usize;
            let here = match at + 1 < SIGNATURE_PARTS {
                true => left.min((at + 1) as f64 * part - done),
                false => left,
            };
            means[at.min(SIGNATURE_PARTS - 1)] += here / part * bin.mean();
            done += here;
            left -= here;
        }
    }
    Some(means)
}

/// Mean difference of the parts of two signatures.
pub fn signature_distance(a: &[f64], b: &[f64]) -> f64 {
    let sum: f64 = a.iter().zip(b).map(|(a, b)| (a - b).abs()).sum();
    sum / a.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn links_chain_places_into_groups() {
        let links = [(0, 3), (3, 4), (1, 5)];
        let linked = |x, y| links.contains(&(x, y));
        assert_eq!(groups(7, linked), [vec![0, 3, 4], vec![1, 5]]);
        assert_eq!(groups(7, |_, _| true), [vec![0, 1, 2, 3, 4, 5, 6]]);
        assert_eq!(groups(3, |_, _| false), Vec::<Vec<usize>>::new());
        assert_eq!(groups(0, |_, _| true), Vec::<Vec<usize>>::new());
    }

    proptest! {
        #[test]
        fn parts_of_a_signature_have_the_means_of_the_sorted_distances(
            values in prop::collection::vec(0u64..200, 1..9), times in 1usize..4,
        ) {
            // The number is a multiple of the parts, so that no value is divided.
            let mut all: Vec<u64> = values.iter().flat_map(|&v| vec![v; times * SIGNATURE_PARTS]).collect();
            let mut fine = Fine::new(13);
            all.iter().for_each(|&v| fine.add(v));
            all.sort_unstable();
            let part = all.len() / SIGNATURE_PARTS;
            let got = signature(&fine).unwrap();
            for (got, part) in got.iter().zip(all.chunks(part)) {
                let want = part.iter().sum::<u64>() as f64 / part.len() as f64;
                prop_assert!((got - want).abs() < 1e-6, "{} {}", got, want);
            }
            let moved: Vec<f64> = got.iter().map(|v| v + 3.0).collect();
            prop_assert!((signature_distance(&got, &moved) - 3.0).abs() < 1e-9);
        }
    }

    #[test]
    fn no_distances_no_signature() {
        assert_eq!(signature(&Fine::new(8)), None);
    }
}
