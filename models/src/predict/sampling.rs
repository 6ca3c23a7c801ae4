//! Distance-based sampling (section 3.5): the input size, estimated early in a run from long reuse
//! distances.
//!
//! A block that is reused at a distance of at least the *qualification threshold*, at least the
//! *spatial threshold* away from all samples so far, becomes a *data sample*; its reuses beyond the
//! *temporal threshold* are its *access samples*. A *peak* is an access sample greater than its
//! neighbours. The first peaks of the first data samples are candidates for the input size;
//! training chooses among them (and among thresholds: samplers for all powers of two run in
//! parallel).

use serde::{Deserialize, Serialize};

/// Source: Chosen.
const MAX_DATA_SAMPLES: usize = 12;
/// Maximum number of peaks per sample. Source: Chosen.
const MAX_PEAKS: usize = 3;
/// Maximum number of access samples that are searched for peaks.
const ACCESSES: usize = 64;

/// The peak that represents the input size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// Qualification and temporal threshold: `1 << threshold` blocks.
    pub threshold: u32,
    /// Data sample, from 0.
    pub sample: usize,
    /// Peak, from 0.
    pub peak: usize,
}

#[derive(Clone, Debug, Default)]
struct DataSample {
    block: u64,
    /// Access samples: (time, distance).
    seen: Vec<(u64, u64)>,
}

/// One sampler.
#[derive(Clone, Debug)]
struct Sampler {
    threshold: u32,
    samples: Vec<DataSample>,
}

/// Samplers for all powers of two.
#[derive(Clone, Debug)]
pub struct Samplers {
    spatial: u64,
    samplers: Vec<Sampler>,
}

impl Samplers {
    /// Samplers with a spatial threshold in blocks.
    pub fn new(spatial: u64) -> Samplers {
        Samplers {
            spatial,
            samplers: (8..40)
                .map(|threshold| Sampler {
                    threshold,
                    samples: Vec::new(),
                })
                .collect(),
        }
    }

    /// A reuse of `block` at `time` with its distance.
    #[inline(always)]
    pub fn reuse(&mut self, time: u64, block: u64, distance: u64) {
        if distance >= 256 {
            self.long(time, block, distance);
        }
    }

    #[inline(never)]
    fn long(&mut self, time: u64, block: u64, distance: u64) {
        let spatial = self.spatial;
        for sampler in &mut self.samplers {
            if distance >> sampler.threshold == 0 {
                return;
            }
            if let Some(sample) = sampler.samples.iter_mut().find(|s| s.block == block) {
                if sample.seen.len() < ACCESSES {
                    sample.seen.push((time, distance));
                }
            } else if sampler.samples.len() < MAX_DATA_SAMPLES
                && sampler
                    .samples
                    .iter()
                    .all(|s| s.block.abs_diff(block) >= spatial)
            {
                sampler.samples.push(DataSample {
                    block,
                    seen: vec![(time, distance)],
                });
            }
        }
    }

    /// All candidates: their position, their value, and the time at which they are known.
    pub fn candidates(&self) -> Vec<(Choice, u64, u64)> {
        let mut out = Vec::new();
        for sampler in &self.samplers {
            for (number, sample) in sampler.samples.iter().enumerate() {
                let choice = |peak| Choice {
                    threshold: sampler.threshold,
                    sample: number,
                    peak,
                };
                out.extend(
                    peaks(&sample.seen)
                        .into_iter()
                        .enumerate()
                        .map(|(i, (value, known))| (choice(i), value, known)),
                );
            }
        }
        out
    }

    /// The value of one candidate, and the time at which it is known.
    pub fn value(&self, choice: &Choice) -> Option<(u64, u64)> {
        let sampler = self
            .samplers
            .iter()
            .find(|s| s.threshold == choice.threshold)?;
        peaks(&sampler.samples.get(choice.sample)?.seen)
            .get(choice.peak)
            .copied()
    }
}

/// Peaks of a series: (value, time at which the next access sample shows it). The first access
/// sample counts as higher than its missing predecessor. The last one is no peak, since no later
/// sample shows that it is one.
fn peaks(seen: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut out = Vec::new();
    for i in 0..seen.len().saturating_sub(1) {
        let before = if i == 0 { 0 } else { seen[i - 1].1 };
        if seen[i].1 > before && seen[i].1 >= seen[i + 1].1 && (i == 0 || seen[i].1 > seen[i + 1].1)
        {
            out.push((seen[i].1, seen[i + 1].0));
            if out.len() == MAX_PEAKS {
                break;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_pass_shows_its_size_at_its_second_reuse() {
        let n = 1000u64;
        let mut samplers = Samplers::new(64);
        for time in n..4 * n {
            samplers.reuse(time, time % n, n - 1);
        }
        let first = Choice {
            threshold: 9,
            sample: 0,
            peak: 0,
        };
        // All distances are equal: the first is a peak because the next is not greater.
        assert_eq!(samplers.value(&first), Some((n - 1, 2 * n)));
        assert_eq!(
            samplers.value(&Choice {
                threshold: 10,
                ..first
            }),
            None
        );
        assert!(samplers.candidates().iter().all(|c| c.1 == n - 1));
    }

    #[test]
    fn peaks_are_greater_than_their_neighbours() {
        let series: Vec<(u64, u64)> = [5, 9, 7, 8, 8, 3, 6, 2]
            .iter()
            .enumerate()
            .map(|(i, &v)| (i as u64 * 10, v))
            .collect();
        assert_eq!(peaks(&series), [(9, 20), (6, 70)]);
        assert_eq!(peaks(&series[..1]), []);
    }

    #[test]
    fn samples_keep_their_distance_in_space() {
        let mut samplers = Samplers::new(100);
        for block in [0, 50, 100, 150, 260] {
            samplers.reuse(1, block, 300);
            samplers.reuse(2, block, 290);
        }
        assert_eq!(
            samplers
                .candidates()
                .iter()
                .filter(|c| c.0.threshold == 8)
                .count(),
            3
        );
    }

    /// The paper's procedure, implemented by its definitions: each data sample is searched in the
    /// whole stream.
    fn by_definition(stream: &[(u64, u64, u64)], spatial: u64) -> Vec<(Choice, u64, u64)> {
        let mut out = Vec::new();
        for threshold in 8..40 {
            let long: Vec<&(u64, u64, u64)> =
                stream.iter().filter(|r| r.2 >= 1 << threshold).collect();
            let mut blocks: Vec<u64> = Vec::new();
            for number in 0..MAX_DATA_SAMPLES {
                // The first long reuse of a block that is far from all earlier data samples, and
                // later than them.
                let Some(at) = long.iter().position(|r| {
                    blocks
                        .iter()
                        .all(|&b| r.1.abs_diff(b) >= spatial && r.1 != b)
                }) else {
                    break;
                };
                let block = long[at].1;
                blocks.push(block);
                let seen: Vec<(u64, u64)> = long[at..]
                    .iter()
                    .filter(|r| r.1 == block)
                    .map(|r| (r.0, r.2))
                    .take(ACCESSES)
                    .collect();
                let mut peak = 0;
                for i in 0..seen.len() {
                    let after = seen.get(i + 1).map(|s| s.1);
                    // The first sample has no predecessor, and an equal successor does not exceed
                    // it.
                    let is = match (i, after) {
                        (_, None) => false,
                        (0, Some(after)) => seen[0].1 >= after,
                        (i, Some(after)) => seen[i].1 > seen[i - 1].1 && seen[i].1 > after,
                    };
                    if is && peak < MAX_PEAKS {
                        out.push((
                            Choice {
                                threshold,
                                sample: number,
                                peak,
                            },
                            seen[i].1,
                            seen[i + 1].0,
                        ));
                        peak += 1;
                    }
                }
            }
        }
        out
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(3000))]

        #[test]
        fn candidates_are_those_of_the_definition(
            reuses in proptest::collection::vec((0u64..200, 0u64..8000), 0..400), spatial in 1u64..60, many: bool,
        ) {
            let stream: Vec<(u64, u64, u64)> = reuses.iter().enumerate().map(|(i, &(block, d))| (3 * i as u64, if many { block * 50 } else { block }, d)).collect();
            let mut samplers = Samplers::new(spatial);
            stream.iter().for_each(|r| samplers.reuse(r.0, r.1, r.2));
            let want = by_definition(&stream, spatial);
            proptest::prop_assert_eq!(&samplers.candidates(), &want);
            for (choice, value, known) in want {
                proptest::prop_assert_eq!(samplers.value(&choice), Some((value, known)));
            }
        }
    }
}
