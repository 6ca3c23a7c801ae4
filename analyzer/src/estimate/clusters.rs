//! Clusters of rare blocks: for each sample (or pair of samples), the number of blocks that only it
//! has seen, summed over parts of a list of blocks.

use crate::estimate::recapture::Block;
use mgz_models::util::hash::spread;
use std::hint::select_unpredictable;

/// A block that one, two or three samples have seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rare {
    /// Index in the list.
    at: u32,
    /// Number of the sample or pair, in order of appearance. All blocks of three samples share the
    /// last number. They are counted like the others, because a branch on the kind of block could
    /// not be predicted.
    key: u32,
    /// See [`Block::stands`]; 0 if it does not count.
    stands: u32,
    /// Number of samples that saw it, less one.
    kind: u8,
    /// True if the block counts as irregular.
    irregular: bool,
}

/// Sums over some blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClusterSums {
    /// Blocks seen in one sample, in two.
    pub(crate) singles: u64,
    pub(crate) pairs: u64,
    /// Blocks seen in three samples.
    pub(crate) triples: u64,
    /// Sum of the relative loads of the singletons' samples ([`Block::stands`]).
    pub(crate) stands: u64,
    /// Sums of the squared numbers of singletons by sample, of doubletons by pair of samples.
    pub(crate) single_squares: u64,
    pub(crate) pair_squares: u64,
    /// Blocks of one or two samples that an Irregular load has touched.
    pub(crate) irregular: u64,
}

/// A sample or pair of samples: the number of its blocks in the current part, and the number still
/// to come.
#[derive(Clone, Copy, Default)]
struct Key {
    all: u32,
    rest: u32,
}

/// The rare blocks of a list, and the counts by key, which are all zero between calls.
pub(crate) struct RareBlocks {
    rare: Vec<Rare>,
    keys: Vec<Key>,
}

/// Running counts over successive blocks, for singles, pairs and triples. For triples only the
/// count has a meaning.
#[derive(Clone, Copy, Default)]
struct Running {
    count: [u64; 3],
    stands: u64,
    /// Sum of the squared counts of the blocks so far.
    squares: [u64; 3],
    /// Sum of (count in the whole part) × (count so far).
    cross: [u64; 3],
    irregular: u64,
}

/// Numbers of samples and of pairs of samples, in the order of their first blocks.
struct Numbers {
    /// Numbers of single samples if there are many blocks, looked up directly: number plus one, 0
    /// is free.
    direct: Vec<u32>,
    /// Numbers of other samples and of pairs: key, and number plus one.
    index: Vec<(u64, u32)>,
    shift: u32,
    count: u32,
}

impl Numbers {
    /// Numbers with room for the rare blocks of a list, and the number of these blocks.
    fn new(blocks: &[Block]) -> (Numbers, usize) {
        let (mut rare, mut singles, mut pairs, mut samples) = (0, 0, 0, 0);
        for block in blocks {
            rare += usize::from(matches!(block.samples, 1..=3));
            singles += usize::from(block.samples == 1);
            pairs += usize::from(block.samples == 2);
            samples = samples.max(if block.samples == 1 {
                block.first[0] as usize + 1
            } else {
                0
            });
        }
        let is_direct = samples <= rare;
        let hashed = pairs + if is_direct { 0 } else { singles };
        let size = (hashed * 2).next_power_of_two().max(16);
        let direct = vec![0; if is_direct { samples } else { 0 }];
        (
            Numbers {
                direct,
                index: vec![(0, 0); size],
                shift: 64 - size.trailing_zeros(),
                count: 0,
            },
            rare,
        )
    }

    /// The number of the sample or pair that has seen a block. The block must be a rare one of the
    /// list given to [`Numbers::new`].
    #[inline(always)]
    fn of(&mut self, block: &Block) -> u32 {
        let [first, second] = block.first;
        // A pair never has the same sample twice.
        let key =
            u64::from(first) << 32 | u64::from(if block.samples == 1 { first } else { second });
        if block.samples == 1
            && let Some(number) = self.direct.get_mut(first as usize)
        {
            if *number == 0 {
                self.count += 1;
                *number = self.count;
            }
            return *number - 1;
        }
        let mask = self.index.len() - 1;
        let mut place = (spread(key) >> self.shift) as usize & mask;
        loop {
            let (there, number) = self.index[place];
            let new = number == 0;
            let entry = (
                select_unpredictable(new, key, there),
                select_unpredictable(new, self.count + 1, number),
            );
            self.index[place] = entry;
            if entry.0 == key {
                self.count += u32::from(new);
                return entry.1 - 1;
            }
            place = (place + 1) & mask;
        }
    }
}

impl ClusterSums {
    /// Sums over all blocks of a list, as in [`RareBlocks::sides`], but without collecting the rare
    /// blocks.
    pub(crate) fn new(blocks: &[Block]) -> ClusterSums {
        let (mut numbers, _) = Numbers::new(blocks);
        let mut counts: Vec<u64> = Vec::new();
        let mut sums = Running::default();
        for block in blocks {
            match block.samples {
                1 | 2 => {
                    let kind = block.samples as usize - 1;
                    let number = numbers.of(block) as usize;
                    if number == counts.len() {
                        counts.push(0);
                    }
                    sums.count[kind] += 1;
                    sums.stands += if kind == 0 { block.stands.into() } else { 0 };
                    sums.squares[kind] += 2 * counts[number] + 1;
                    sums.irregular += u64::from(block.irregular);
                    counts[number] += 1;
                }
                3 => sums.count[2] += 1,
                _ => {}
            }
        }
        sums.sums()
    }
}

impl RareBlocks {
    /// Finds the rare blocks of a list.
    pub(crate) fn new(blocks: &[Block]) -> RareBlocks {
        let (mut numbers, count) = Numbers::new(blocks);
        let mut rare = Vec::with_capacity(count);
        for (at, block) in blocks.iter().enumerate() {
            let key = match block.samples {
                1 | 2 => numbers.of(block),
                3 => u32::MAX,
                _ => continue,
            };
            let stands = if block.samples == 1 { block.stands } else { 0 };
            rare.push(Rare {
                at: at as u32,
                key,
                stands,
                kind: block.samples as u8 - 1,
                irregular: block.irregular && block.samples < 3,
            });
        }
        rare.iter_mut()
            .for_each(|r| r.key = r.key.min(numbers.count));
        RareBlocks {
            rare,
            keys: vec![Key::default(); numbers.count as usize + 1],
        }
    }

    /// For each of some ascending positions in the blocks `from..to`, the sums over the blocks
    /// before and after it.
    ///
    /// One pass is enough for both sides: for a key with n blocks, m of them before the position,
    /// the blocks after it give (n − m)² = n² − 2nm + m².
    pub(crate) fn sides<const N: usize>(
        &mut self,
        from: usize,
        to: usize,
        places: &[usize; N],
    ) -> [(ClusterSums, ClusterSums); N] {
        let find = |place: usize| self.rare.partition_point(|r| (r.at as usize) < place);
        let (start, end) = (find(from), find(to));
        let stops = places.map(find);
        let keys = &mut self.keys[..];
        for r in &self.rare[start..end] {
            let key = &mut keys[r.key as usize];
            key.all += 1;
            key.rest += 1;
        }
        let mut at = start;
        let mut sums = Running::default();
        let rare = &self.rare;
        let mut upto = |stop: usize| {
            for r in &rare[at..stop] {
                let kind = usize::from(r.kind.min(2));
                sums.count[kind] += 1;
                sums.stands += u64::from(r.stands);
                let key = &mut keys[r.key as usize];
                sums.squares[kind] += 2 * u64::from(key.all - key.rest) + 1;
                sums.cross[kind] += u64::from(key.all);
                sums.irregular += u64::from(r.irregular);
                key.rest -= 1;
                // The last block of a key resets its count to zero for the next call.
                key.all = if key.rest == 0 { 0 } else { key.all };
            }
            at = stop;
            sums
        };
        let before = stops.map(&mut upto);
        let all = upto(end);
        before.map(|before| (before.sums(), all.without(&before)))
    }
}

impl Running {
    fn sums(&self) -> ClusterSums {
        ClusterSums {
            singles: self.count[0],
            pairs: self.count[1],
            triples: self.count[2],
            stands: self.stands,
            single_squares: self.squares[0],
            pair_squares: self.squares[1],
            irregular: self.irregular,
        }
    }

    /// Sums over the blocks that `before` does not include. `self` holds the sums over all blocks.
    fn without(&self, before: &Running) -> ClusterSums {
        let squares =
            |kind: usize| self.squares[kind] + before.squares[kind] - 2 * before.cross[kind];
        ClusterSums {
            singles: self.count[0] - before.count[0],
            pairs: self.count[1] - before.count[1],
            triples: self.count[2] - before.count[2],
            stands: self.stands - before.stands,
            single_squares: squares(0),
            pair_squares: squares(1),
            irregular: self.irregular - before.irregular,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::sample_shares::EVEN_SHARE;
    use std::collections::HashMap;

    fn by_definition(list: &[Block]) -> ClusterSums {
        let squares = |samples: u32, of: fn(&Block) -> (u32, u32)| {
            let mut counts: HashMap<(u32, u32), u64> = HashMap::new();
            list.iter()
                .filter(|b| b.samples == samples)
                .for_each(|b| *counts.entry(of(b)).or_default() += 1);
            (
                counts.values().sum::<u64>(),
                counts.values().map(|n| n * n).sum::<u64>(),
            )
        };
        let ((singles, single_squares), (pairs, pair_squares)) = (
            squares(1, |b| (b.first[0], 0)),
            squares(2, |b| (b.first[0], b.first[1])),
        );
        let triples = list.iter().filter(|b| b.samples == 3).count() as u64;
        let stands = list
            .iter()
            .filter(|b| b.samples == 1)
            .map(|b| u64::from(b.stands))
            .sum();
        ClusterSums {
            singles,
            pairs,
            triples,
            stands,
            single_squares,
            pair_squares,
            irregular: list.iter().filter(|b| b.samples < 3 && b.irregular).count() as u64,
        }
    }

    #[test]
    fn sums_of_both_sides_are_those_of_their_definition() {
        let mut state = 1u64;
        let mut random = |n: u64| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            ((state >> 33) % n) as u32
        };
        for blocks in [1usize, 2, 7, 500, 3000, 40] {
            let list: Vec<Block> = (0..blocks as u64)
                .map(|number| {
                    let first = random(20);
                    Block {
                        number,
                        samples: 1 + random(4),
                        first: [first, first + 1 + random(5)],
                        irregular: random(2) == 1,
                        stands: random(3) * EVEN_SHARE,
                    }
                })
                .collect();
            let mut table = RareBlocks::new(&list);
            assert_eq!(ClusterSums::new(&list), by_definition(&list));
            for _ in 0..20 {
                let mut cuts: [usize; 5] =
                    std::array::from_fn(|_| random(blocks as u64 + 1) as usize);
                cuts.sort_unstable();
                let [from, a, b, c, to] = cuts;
                let sides = table.sides(from, to, &[a, b, c]);
                for (place, side) in [a, b, c].into_iter().zip(sides) {
                    assert_eq!(
                        side,
                        (
                            by_definition(&list[from..place]),
                            by_definition(&list[place..to])
                        ),
                        "{cuts:?} of {blocks}"
                    );
                }
            }
        }
    }
}
