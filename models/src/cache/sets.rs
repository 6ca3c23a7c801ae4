//! Distances inside the sets of a cache.
//!
//! [`crate::cache::hit_probability`] assumes that the D blocks between a use and its reuse fall
//! into sets at random. Real programs differ. Strides by powers of two crowd blocks into few sets.
//! Data that fill a cache exactly spread evenly. Columns of a matrix fill each set to its last way,
//! and one more block certainly evicts them. No model of D alone can distinguish these cases, so
//! the condition itself is measured here. The *set distance* of an access is the number of distinct
//! blocks *of its own set* since the block's last use (Mattson et al. 1970, Hill and Smith 1989).
//! An LRU set of A ways hits if and only if the set distance is below A, so one pass gives the hit
//! rates for every number of ways.
//!
//! Sets are independent of each other. In a cache with many sets, only a sample is followed: runs
//! of adjacent sets, one drawn at random from each of several equal parts of the cache. The model
//! with random sets gives a prediction for *all* accesses. Its error in the runs corrects the
//! prediction (a difference estimate, which is unbiased, and better the closer the model is). The
//! variance between runs gives a 95% interval. If all sets are followed, there is no error, and the
//! rate is that of a simulation.

use crate::cache::{Shape, hit_probability};
use crate::statistics::distributions::student_widening;
use crate::util::random::SplitMix;

/// Number of adjacent sets that are drawn together, so that most accesses to two lines touch two
/// followed sets.
const ADJACENT_SETS: u64 = 8;
/// Greatest set distance that is counted separately.
const MAX_DEPTH: u64 = 128;
/// A set that is not followed.
const NOT_FOLLOWED: u32 = u32::MAX;

/// Hits by set distances.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SetHits {
    /// Hits of all accesses, exact or estimated.
    pub hits: f64,
    /// Variance of the estimate, scaled so that ±1.96 deviations are the 95% interval even for few
    /// runs; 0 if all sets were followed.
    pub variance: f64,
}

/// See the module's text.
pub struct SetDistances {
    sets: u64,
    ways: usize,
    depth: usize,
    /// By set: index of its stack, or [`NOT_FOLLOWED`].
    place: Vec<u32>,
    /// By followed set: the run for which it counts, or [`NOT_FOLLOWED`]. (The set after a run is
    /// followed for accesses that reach into it.)
    run: Vec<u32>,
    /// Most recent blocks of each followed set, `depth` each.
    stacks: Vec<u64>,
    used: Vec<u32>,
    /// By run and set distance. The last count is for deeper and new blocks.
    counts: Vec<u64>,
    runs: usize,
    /// Number of runs in the whole cache.
    all_runs: f64,
    /// Accesses by distance for each run, and for all accesses. The last bin is for first touches.
    distances: Vec<u32>,
    all_distances: Vec<u64>,
    // State of the current access.
    begun: bool,
    home: u32,
    greatest: usize,
}

/// Log2 of the bins per octave of distances.
const FINE_BITS: u32 = 3;
/// Bins of distances, and one for first touches.
const BINS: usize = ((64 - FINE_BITS as usize + 1) << FINE_BITS) + 1;

/// Bin of a distance.
fn bin(distance: u64) -> usize {
    let shift = (64 - distance.leading_zeros()).saturating_sub(FINE_BITS + 1);
    ((shift as usize) << FINE_BITS) + (distance >> shift) as usize
}

/// A distance in the middle of a bin.
fn middle(bin: usize) -> f64 {
    let shift = (bin >> FINE_BITS).saturating_sub(1);
    ((bin - (shift << FINE_BITS)) as f64 + 0.5) * (2.0f64).powi(shift as i32) - 0.5
}

impl SetDistances {
    /// Follows at most about `most` sets of a cache, or all if it has no more.
    pub fn new(shape: &Shape, most: u64, seed: u64) -> SetDistances {
        let (sets, ways) = (shape.sets(), shape.ways);
        let depth = (4 * ways).min(MAX_DEPTH).max(ways) as usize;
        let mut place = vec![NOT_FOLLOWED; sets as usize];
        let mut run = Vec::new();
        let whole = sets <= most.max(ADJACENT_SETS);
        let runs = if whole {
            1
        } else {
            most.max(ADJACENT_SETS) / ADJACENT_SETS
        };
        if whole {
            (0..sets).for_each(|s| place[s as usize] = s as u32);
            run.resize(sets as usize, 0);
        } else {
            let mut random = SplitMix::new(seed);
            for r in 0..runs {
                // Parts of equal size, up to one set. Each is at least as long as a run.
                let (from, to) = (r * sets / runs, (r + 1) * sets / runs);
                let start = from + random.below(to - from - ADJACENT_SETS + 1);
                for (k, set) in (start..=start + ADJACENT_SETS).enumerate() {
                    let set = (set % sets) as usize;
                    let counts_for = if k as u64 == ADJACENT_SETS {
                        NOT_FOLLOWED
                    } else {
                        r as u32
                    };
                    match place[set] {
                        NOT_FOLLOWED => {
                            place[set] = run.len() as u32;
                            run.push(counts_for);
                        }
                        // The set after the previous run is the first one of this run.
                        at if counts_for != NOT_FOLLOWED => run[at as usize] = counts_for,
                        _ => {}
                    }
                }
            }
        }
        let followed = run.len();
        SetDistances {
            sets,
            ways: ways as usize,
            depth,
            place,
            run,
            stacks: vec![0; followed * depth],
            used: vec![0; followed],
            counts: vec![0; runs as usize * (depth + 1)],
            runs: runs as usize,
            all_runs: if whole {
                1.0
            } else {
                sets as f64 / ADJACENT_SETS as f64
            },
            distances: if whole {
                Vec::new()
            } else {
                vec![0; runs as usize * BINS]
            },
            all_distances: vec![0; BINS],
            begun: false,
            home: NOT_FOLLOWED,
            greatest: 0,
        }
    }

    /// Share of the sets that is followed.
    pub fn followed(&self) -> f64 {
        self.runs as f64 / self.all_runs
    }

    /// Touches a line of the current access. An access to several lines has the greatest of their
    /// set distances, and belongs to the set of the first line.
    #[inline(always)]
    pub fn touch(&mut self, block: u64) {
        let place = self.place[(block % self.sets) as usize];
        if !self.begun {
            self.begun = true;
            self.home = if place == NOT_FOLLOWED {
                NOT_FOLLOWED
            } else {
                self.run[place as usize]
            };
        }
        if place != NOT_FOLLOWED {
            self.greatest = self.greatest.max(self.renew(place as usize, block));
        }
    }

    /// Ends the access after all its lines were touched. `distance` is its reuse distance among all
    /// blocks, `None` if a line is new.
    #[inline(always)]
    pub fn done(&mut self, distance: Option<u64>) {
        let bin = distance.map_or(BINS - 1, bin);
        self.all_distances[bin] += 1;
        if self.home != NOT_FOLLOWED {
            self.counts[self.home as usize * (self.depth + 1) + self.greatest] += 1;
            if let Some(count) = self.distances.get_mut(self.home as usize * BINS + bin) {
                *count = count.saturating_add(1);
            }
        }
        (self.begun, self.home, self.greatest) = (false, NOT_FOLLOWED, 0);
    }

    /// Set distance of a block, which becomes the most recent of its set.
    #[inline]
    fn renew(&mut self, place: usize, block: u64) -> usize {
        let used = self.used[place] as usize;
        let stack = &mut self.stacks[place * self.depth..(place + 1) * self.depth];
        let found = stack[..used].iter().position(|&b| b == block);
        let end = match found {
            Some(at) => at,
            None if used < self.depth => {
                self.used[place] += 1;
                used
            }
            None => self.depth - 1,
        };
        stack.copy_within(..end, 1);
        stack[0] = block;
        found.unwrap_or(self.depth)
    }

    /// Maximum number of ways for [`SetDistances::hits_with`].
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Hits of all accesses in a cache of this shape.
    pub fn hits(&self) -> SetHits {
        self.hits_with(self.ways)
    }

    /// Hits of all accesses in a cache with as many sets but `ways` ways, at most
    /// [`SetDistances::depth`].
    pub fn hits_with(&self, ways: usize) -> SetHits {
        let runs = self
            .counts
            .chunks_exact(self.depth + 1)
            .map(|run| run[..ways.min(self.depth)].iter().sum::<u64>() as f64);
        if self.followed() >= 1.0 {
            return SetHits {
                hits: runs.sum(),
                variance: 0.0,
            };
        }
        // Prediction with random sets, by bin.
        let model: Vec<f64> = (0..BINS)
            .map(|b| {
                if b == BINS - 1 {
                    0.0
                } else {
                    hit_probability(middle(b), ways as u64, self.sets)
                }
            })
            .collect();
        let all: f64 = self
            .all_distances
            .iter()
            .zip(&model)
            .map(|(&n, p)| n as f64 * p)
            .sum();
        let total = self.all_distances.iter().sum::<u64>() as f64;
        // Error of the prediction in each run.
        let off: Vec<f64> = runs
            .zip(self.distances.chunks_exact(BINS))
            .map(|(hits, seen)| {
                hits - seen
                    .iter()
                    .zip(&model)
                    .map(|(&n, p)| f64::from(n) * p)
                    .sum::<f64>()
            })
            .collect();
        let n = off.len() as f64;
        let mean = off.iter().sum::<f64>() / n;
        let squares: f64 = off.iter().map(|x| (x - mean).powi(2)).sum();
        let rest = 1.0 - self.followed();
        let variance = if n > 1.0 {
            rest * squares / (n - 1.0) / n * (self.all_runs * student_widening(n - 1.0)).powi(2)
        } else {
            total * total
        };
        SetHits {
            hits: (all + mean * self.all_runs).clamp(0.0, total),
            variance,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{Hierarchy, expected_hits};
    use crate::histogram::{Fine, TRACE_BITS};
    use crate::reuse::{ReuseEngine, ReuseSink};
    use proptest::prelude::*;

    const ALL: u64 = 1 << 20;

    fn simulated(accesses: &[(u64, u32)], shape: &Shape) -> u64 {
        let mut cache = Hierarchy::new(std::slice::from_ref(shape));
        accesses
            .iter()
            .for_each(|&(address, size)| cache.access(address, size));
        let counts = cache.counts()[0];
        counts.accesses - counts.misses
    }

    fn followed(accesses: &[(u64, u32)], shape: &Shape, most: u64, seed: u64) -> SetDistances {
        struct Sink(SetDistances, Option<u64>, bool);
        impl ReuseSink for Sink {
            fn first(&mut self, _: u64, block: u64, _: u32) {
                self.0.touch(block);
                self.2 = true;
            }
            fn reuse(&mut self, _: u64, block: u64, _: u32, distance: u64, _: u64) {
                self.0.touch(block);
                self.1 = self.1.max(Some(distance));
            }
            fn done(&mut self, _: u64, _: u32) {
                let distance = self.1.take();
                self.0.done(if std::mem::take(&mut self.2) {
                    None
                } else {
                    distance
                });
            }
        }
        let mut sink = Sink(SetDistances::new(shape, most, seed), None, false);
        let (address, size): (Vec<u64>, Vec<u32>) = accesses.iter().copied().unzip();
        ReuseEngine::new(6).run(&address, &size, &vec![0; size.len()], &mut sink);
        sink.0
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// The simulator agrees with lists. One pass agrees exactly with it for every number of
        /// ways.
        #[test]
        fn one_pass_tells_the_hits_of_every_number_of_ways(
            accesses in prop::collection::vec((prop_oneof![0u64..8192, (0u64..40).prop_map(|k| k * 1024)], prop_oneof![9 => 1u32..9, 1 => 60u32..300]), 1..300),
            ways in 1u64..6, sets in 1u64..20,
        ) {
            let got = followed(&accesses, &Shape::new(ways * sets * 64, ways, 64).unwrap(), ALL, 1);
            for other in 1..=4 * ways {
                let shape = Shape::new(other * sets * 64, other, 64).unwrap();
                let hits = got.hits_with(other as usize);
                prop_assert_eq!((hits.hits, hits.variance), (simulated(&accesses, &shape) as f64, 0.0));
            }
        }
    }

    #[test]
    fn runs_are_apart_and_in_range() {
        for sets in [9u64, 17, 100, 1000, 4096, 49_152] {
            for most in [1u64, 8, 16, 64, 512] {
                for seed in 0..20 {
                    let got = SetDistances::new(&Shape::new(sets * 64, 1, 64).unwrap(), most, seed);
                    let counted = got.run.iter().filter(|&&r| r != NOT_FOLLOWED).count() as u64;
                    let want = if sets <= most.max(ADJACENT_SETS) {
                        sets
                    } else {
                        most.max(ADJACENT_SETS) / ADJACENT_SETS * ADJACENT_SETS
                    };
                    assert_eq!(counted, want, "{sets} {most}");
                    assert_eq!(
                        got.place.iter().filter(|&&p| p != NOT_FOLLOWED).count(),
                        got.run.len()
                    );
                }
            }
        }
    }

    /// Streams that use their sets very differently.
    fn streams() -> Vec<Vec<(u64, u32)>> {
        let mut random = SplitMix::new(5);
        let mut zipf = || {
            let unit = random.below(1 << 30) as f64 / (1u64 << 30) as f64;
            (unit.powi(3) * 200_000.0) as u64 * 64
        };
        vec![
            (0..150_000).map(|_| (zipf(), 8)).collect(),
            // Columns of a matrix with lines of 1,600 bytes.
            (0..4u64)
                .flat_map(|_| {
                    (0..200u64).flat_map(|x| (0..200u64).map(move |y| (y * 1600 + x * 8, 8)))
                })
                .collect(),
            (0..150_000u64)
                .map(|i| ((i * 24) % 3_000_000, 16))
                .collect(),
        ]
    }

    #[test]
    fn intervals_of_samples_hold_the_truth() {
        let (mut inside, mut count) = (0, 0);
        for stream in streams() {
            for (size, ways) in [(256u64 << 10, 8u64), (1 << 20, 16), (768 << 10, 12)] {
                let shape = Shape::new(size, ways, 64).unwrap();
                let exact = simulated(&stream, &shape) as f64 / stream.len() as f64;
                for seed in 0..20 {
                    let got = followed(&stream, &shape, 256, seed).hits();
                    let (rate, error) = (
                        got.hits / stream.len() as f64,
                        1.96 * got.variance.sqrt() / stream.len() as f64,
                    );
                    inside += usize::from((rate - exact).abs() <= error + 1e-3);
                    count += 1;
                    assert!(
                        (rate - exact).abs() < 0.05 && error < 0.08,
                        "{rate} ± {error}, {exact}"
                    );
                }
            }
        }
        assert!(inside as f64 >= 0.9 * count as f64, "{inside} of {count}");
    }

    #[test]
    fn what_random_sets_cannot_tell_is_told() {
        // The cache filled exactly, by a quarter too much, and with half of the touches in one set.
        let mut random = SplitMix::new(3);
        let crowded: Vec<u64> = (0..100_000)
            .map(|_| {
                if random.below(2) == 0 {
                    random.below(16) * 64
                } else {
                    random.below(256)
                }
            })
            .collect();
        let cyclic = |n: u64| (0..n * 20).map(|i| i % n).collect::<Vec<_>>();
        let shape = Shape::new(8 * 64 * 64, 8, 64).unwrap();
        for (lines, least) in [(cyclic(512), 0.05), (cyclic(640), 0.05), (crowded, 0.1)] {
            let accesses: Vec<(u64, u32)> = lines.iter().map(|l| (l * 64, 8)).collect();
            let exact = simulated(&accesses, &shape) as f64;
            assert_eq!(followed(&accesses, &shape, ALL, 1).hits().hits, exact);
            let mut counted = Fine::new(TRACE_BITS);
            let mut stack: Vec<u64> = Vec::new();
            for line in &lines {
                if let Some(at) = stack.iter().rposition(|l| l == line) {
                    counted.add((stack.len() - 1 - at) as u64);
                    stack.remove(at);
                }
                stack.push(*line);
            }
            let random_sets = expected_hits(counted.bins(), &shape);
            assert!(
                (random_sets - exact).abs() > least * lines.len() as f64,
                "the model with random sets is far off: {random_sets} {exact}"
            );
        }
    }

    #[test]
    fn bins_of_distances_are_in_order() {
        let mut last = 0;
        for distance in (0..5000).chain((13..64).map(|b| 1 << b)).chain([u64::MAX]) {
            let bin = bin(distance);
            assert!(bin >= last && bin < BINS - 1, "{distance} {bin}");
            assert!(
                (middle(bin) - distance as f64).abs() <= 0.08 * distance as f64,
                "{distance} {}",
                middle(bin)
            );
            last = bin;
        }
    }

    #[test]
    fn nothing_seen_is_nothing_known() {
        let shape = Shape::new(1 << 20, 1, 64).unwrap();
        let hits = SetDistances::new(&shape, 64, 1).hits();
        assert_eq!((hits.hits, hits.variance), (0.0, 0.0));
    }
}
