//! Groups of similar points by k-means; the number of groups is chosen by the Bayesian information
//! criterion, as SimPoint 3.0 does (Hamerly et al. 2005).

use crate::util::hash::spread;
use crate::util::random::SplitMix;

/// Dimensions of a point. Source: SimPoint 3.0.
pub const DIMENSIONS: usize = 15;
/// Random starts, of which the one with the least distortion is kept. Source: SimPoint 3.0.
const STARTS: u64 = 5;
/// Rounds of k-means at most. Source: SimPoint 3.0.
const MAX_ROUNDS: usize = 100;
/// The least number of groups is chosen whose score reaches this share of the range of all scores.
/// Source: SimPoint 3.0.
const SHARE_OF_SCORES: f64 = 0.9;
/// The variance in each dimension at least: windows that differ in 4 % of their loads count as
/// equal. Otherwise, if a program repeats itself exactly, each change of phase gets a group of its
/// own. Source: Chosen.
const MIN_VARIANCE: f64 = 1e-3;

/// A point.
pub type Point = [f64; DIMENSIONS];

/// Projects a vector with many dimensions, given as keys and shares, onto a point. Equal seeds give
/// equal projections.
pub fn project(shares: impl IntoIterator<Item = (u64, f64)>, seed: u64) -> Point {
    let mut point = [0.0; DIMENSIONS];
    for (key, share) in shares {
        let mut random = SplitMix::new(seed ^ spread(key));
        for x in &mut point {
            *x += share * (2.0 * unit(&mut random) - 1.0);
        }
    }
    point
}

/// A number from 0 to 1, without 1.
fn unit(random: &mut SplitMix) -> f64 {
    (random.bits() >> 11) as f64 / (1u64 << 53) as f64
}

fn squared_distance(a: &Point, b: &Point) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

/// Groups of points.
#[derive(Clone, Debug, PartialEq)]
pub struct Clusters {
    /// Centers of the groups.
    pub centers: Vec<Point>,
    /// Bayesian information criterion; greater is better.
    pub score: f64,
}

impl Clusters {
    /// The group with the nearest center, and the squared distance from it.
    pub fn nearest(&self, point: &Point) -> (usize, f64) {
        let distances = self.centers.iter().map(|c| squared_distance(c, point));
        let nearest = distances.enumerate().min_by(|a, b| a.1.total_cmp(&b.1));
        nearest.unwrap_or((0, 0.0))
    }

    /// Groups of points with weights, `count` at most. Equal seeds give equal groups.
    pub fn of(points: &[(Point, f64)], count: usize, seed: u64) -> Clusters {
        let starts = (0..STARTS).map(|start| {
            let mut random = SplitMix::new(seed ^ spread((count as u64) << 8 | start));
            k_means(points, count, &mut random)
        });
        let best = starts.min_by(|a, b| a.1.total_cmp(&b.1));
        let (centers, distortion) = best.unwrap_or_default();
        let mut found = Clusters {
            centers,
            score: 0.0,
        };
        found.score = score(&found, points, distortion);
        found
    }
}

/// Index of the groups to take, of candidates with ascending numbers of groups.
pub fn choose(candidates: &[Clusters]) -> usize {
    let scores = candidates.iter().map(|c| c.score);
    let (low, high) = scores.fold((f64::MAX, f64::MIN), |(low, high), score| {
        (low.min(score), high.max(score))
    });
    let enough = low + SHARE_OF_SCORES * (high - low);
    let first = candidates.iter().position(|c| c.score >= enough);
    first.unwrap_or(0)
}

/// Centers, each with the chance of a point to be the next one by its distance from those before
/// (k-means++), and the distortion: the sum of weighted squared distances.
fn k_means(points: &[(Point, f64)], count: usize, random: &mut SplitMix) -> (Vec<Point>, f64) {
    let mut chances: Vec<f64> = points.iter().map(|p| p.1).collect();
    let mut found = Clusters {
        centers: Vec::new(),
        score: 0.0,
    };
    while found.centers.len() < count {
        let mut left = unit(random) * chances.iter().sum::<f64>();
        let next = chances.iter().position(|&chance| {
            left -= chance;
            left < 0.0
        });
        // All other points are at a center.
        let Some(next) = next else { break };
        found.centers.push(points[next].0);
        for (chance, (point, weight)) in chances.iter_mut().zip(points) {
            *chance = weight * found.nearest(point).1;
        }
    }
    let mut distortion = f64::MAX;
    for _ in 0..MAX_ROUNDS {
        let mut sums = vec![([0.0; DIMENSIONS], 0.0); found.centers.len()];
        let mut now = 0.0;
        for (point, weight) in points {
            let (group, distance) = found.nearest(point);
            now += weight * distance;
            let (sum, total) = &mut sums[group];
            *total += weight;
            for (sum, x) in sum.iter_mut().zip(point) {
                *sum += weight * x;
            }
        }
        if now >= distortion {
            break;
        }
        distortion = now;
        for (center, (sum, total)) in found.centers.iter_mut().zip(sums) {
            if total > 0.0 {
                *center = sum.map(|x| x / total);
            }
        }
    }
    (found.centers, distortion)
}

/// The logarithm of the likelihood of points that lie around their centers with one variance
/// (Pelleg and Moore 2000), less what the number of parameters costs.
fn score(found: &Clusters, points: &[(Point, f64)], distortion: f64) -> f64 {
    let count = points.len() as f64;
    let groups = found.centers.len() as f64;
    let dimensions = DIMENSIONS as f64;
    let total: f64 = points.iter().map(|p| p.1).sum();
    let mut sizes = vec![0.0; found.centers.len()];
    for (point, weight) in points {
        sizes[found.nearest(point).0] += weight / total * count;
    }
    let freedom = (count - groups).max(1.0);
    let variance = (distortion / total * count / (dimensions * freedom)).max(MIN_VARIANCE);
    let shares = sizes.iter().filter(|s| **s > 0.0);
    let likelihood = shares.map(|s| s * (s / count).ln()).sum::<f64>()
        - count * dimensions / 2.0 * (std::f64::consts::TAU * variance).ln()
        - freedom * dimensions / 2.0;
    likelihood - (groups * (dimensions + 1.0)) / 2.0 * count.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Points of `groups` groups in turn, with noise.
    fn points(groups: u64, noise: f64) -> Vec<(Point, f64)> {
        let mut random = SplitMix::new(7);
        let of = |number: u64, random: &mut SplitMix| {
            let mut point = project([(number % groups, 1.0)], 1);
            point.iter_mut().for_each(|x| *x += noise * unit(random));
            point
        };
        (0..200).map(|n| (of(n, &mut random), 1.0)).collect()
    }

    fn chosen(points: &[(Point, f64)]) -> Clusters {
        let all: Vec<Clusters> = (1..=12).map(|k| Clusters::of(points, k, 42)).collect();
        all[choose(&all)].clone()
    }

    #[test]
    fn the_number_of_groups_is_found() {
        for groups in [1, 2, 5, 8] {
            for noise in [0.0, 0.1] {
                let points = points(groups, noise);
                let found = chosen(&points);
                assert_eq!(found.centers.len() as u64, groups, "noise {noise}");
                let of = |at: usize| found.nearest(&points[at].0).0;
                for at in 0..points.len() {
                    assert_eq!(of(at), of(at % groups as usize));
                }
            }
        }
    }

    #[test]
    fn equal_seeds_give_equal_groups_and_weights_move_centers() {
        let mut points = points(3, 0.2);
        assert_eq!(Clusters::of(&points, 3, 5), Clusters::of(&points, 3, 5));
        points[0].1 = 1e9;
        let heavy = Clusters::of(&points, 1, 5);
        assert!(heavy.nearest(&points[0].0).1 < 1e-9);
    }

    #[test]
    fn few_points_have_a_finite_score() {
        let point = project([(1, 1.0)], 0);
        for points in [vec![(point, 1.0)], vec![(point, 2.0), (point, 1.0)]] {
            let found = chosen(&points);
            assert_eq!(found.centers.len(), 1);
            assert!(found.nearest(&point).1 < 1e-20);
            assert!(found.score.is_finite());
        }
    }
}
