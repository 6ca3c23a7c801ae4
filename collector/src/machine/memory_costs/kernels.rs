//! Loops that are timed. They are safe code: an element of a chain holds the index of the next one,
//! and the check of bounds is not on the path of dependent loads. Loops have no iterators, so that
//! they are the same at each level of optimization.

use std::hint::black_box;

/// Words of a line of 64 bytes.
pub const LINE_WORDS: usize = 8;
/// Chains that run at a time in [`parallel`]. Source: Chosen.
pub const PARALLEL_CHAINS: usize = 8;

/// Pseudo-random numbers (xorshift).
pub struct Random(pub u64);

impl Random {
    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * bound as u128) >> 64) as usize
    }
}

/// Numbers below `count` in random order.
pub fn shuffled(count: usize, random: &mut Random) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for at in (1..count).rev() {
        order.swap(at, random.below(at + 1));
    }
    order
}

/// Lets each of these words hold the index of the next one, and the last one that of the first.
pub fn link(words: &mut [usize], order: &[usize]) {
    for pair in order.windows(2) {
        words[pair[0]] = pair[1];
    }
    if let (Some(&first), Some(&last)) = (order.first(), order.last()) {
        words[last] = first;
    }
}

/// Follows a chain for some steps. Returns the index that it has come to.
#[inline(never)]
pub fn chase(words: &[usize], from: usize, steps: usize) -> usize {
    let (mut at, mut left) = (from, steps);
    while left > 0 {
        at = words[at];
        left -= 1;
    }
    black_box(at)
}

/// Follows several chains at a time, for some steps each.
#[inline(never)]
pub fn parallel(
    words: &[usize],
    from: [usize; PARALLEL_CHAINS],
    steps: usize,
) -> [usize; PARALLEL_CHAINS] {
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = from;
    let mut left = steps;
    while left > 0 {
        (a, b, c, d) = (words[a], words[b], words[c], words[d]);
        (e, f, g, h) = (words[e], words[f], words[g], words[h]);
        left -= 1;
    }
    black_box([a, b, c, d, e, f, g, h])
}

/// Loads all words, one after the other, in loads that do not depend on each other.
#[inline(never)]
pub fn stream(words: &[usize]) -> usize {
    let (mut a, mut b, mut c, mut d, mut at) = (0, 0, 0, 0, 0);
    while at + LINE_WORDS <= words.len() {
        (a, b) = (a ^ words[at], b ^ words[at + 1]);
        (c, d) = (c ^ words[at + 2], d ^ words[at + 3]);
        (a, b) = (a ^ words[at + 4], b ^ words[at + 5]);
        (c, d) = (c ^ words[at + 6], d ^ words[at + 7]);
        at += LINE_WORDS;
    }
    black_box(a ^ b ^ c ^ d)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_random_chain_is_one_cycle() {
        for count in [1, 2, 3, 64, 1000] {
            let mut random = Random(7);
            let order: Vec<usize> = (shuffled(count, &mut random).into_iter())
                .map(|line| line * LINE_WORDS)
                .collect();
            let mut words = vec![usize::MAX; count * LINE_WORDS];
            link(&mut words, &order);
            let (mut at, mut seen) = (order[0], vec![false; count]);
            for _ in 0..count {
                assert!(!seen[at / LINE_WORDS]);
                seen[at / LINE_WORDS] = true;
                at = words[at];
            }
            assert_eq!(at, order[0]);
            assert_eq!(chase(&words, order[0], count), order[0]);
        }
    }

    #[test]
    fn orders_are_random() {
        let order = shuffled(1000, &mut Random(3));
        let next = order.windows(2).filter(|p| p[0] + 1 == p[1]).count();
        assert!(next < 10, "{next}");
        let mut sorted = order;
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..1000));
    }

    #[test]
    fn chains_run_side_by_side_and_streams_read_all() {
        let mut words: Vec<usize> = vec![0; 64];
        link(&mut words, &(0..64).collect::<Vec<usize>>());
        let ends = parallel(&words, std::array::from_fn(|chain| 8 * chain), 10);
        assert_eq!(ends, std::array::from_fn(|chain| (8 * chain + 10) % 64));
        let all = words.iter().fold(0, |all, word| all ^ word);
        assert_eq!(stream(&words), all);
        words[17] ^= 1 << 40;
        assert_eq!(stream(&words), all ^ 1 << 40);
    }
}
