//! A bitmap over time slots that counts its set bits up to a position in a few cache lines.
//!
//! All slots are set initially, even those that are not assigned yet. So assigning a slot changes
//! nothing, and callers know the number of marks so far. A leaf has 512 bits, one cache line. Above
//! it are *prefix* counters: 32 leaves share one line of 16-bit counters, and 16 entries of each
//! level share one line of 32-bit counters of the level above. A count reads one line per level. A
//! clear changes one line per level: every counter after the bit decreases by one. No branch
//! depends on the position of a slot. The loops have fixed lengths, so the compiler turns them into
//! a few vector instructions, with masks from small tables ([`around`]).

const LEAF_BITS: usize = 512;
const LEAF_WORDS: usize = LEAF_BITS / 64;
/// Leaves per line of 16-bit counters: at most 31 × 512 marks come before one, which fits.
const FAN1: usize = 32;
/// Slots per line of 16-bit counters.
const LINE_BITS: usize = LEAF_BITS * FAN1;
/// 32-bit counters in a cache line.
const COUNTERS_PER_LINE: usize = 16;

/// One cache line of 16-bit prefix counters.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line16([u16; FAN1]);

/// One cache line of 32-bit prefix counters.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line32([u32; COUNTERS_PER_LINE]);

/// One leaf.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Leaf([u64; LEAF_WORDS]);

/// Counters of a line whose slots are all set.
const FULL16: Line16 = {
    let mut line = [0; FAN1];
    let mut k = 0;
    while k < FAN1 {
        line[k] = (k * LEAF_BITS) as u16;
        k += 1;
    }
    Line16(line)
};

/// Counters of a line whose entries have `slots` slots each, all of them set.
fn full32(slots: usize) -> Line32 {
    Line32(std::array::from_fn(|k| (k * slots) as u32))
}

/// A line of `N` values that are equal before the position `at`, and equal after it: a window of an
/// array of twice the length.
#[inline(always)]
fn around<T, const N: usize>(both: &[[T; N]; 2], at: usize) -> &[T; N] {
    let both = both.as_flattened();
    both[N - 1 - at % N..]
        .first_chunk()
        .expect("at least half is left")
}

/// For [`around`]: selects all words except that at the position.
const OTHER_WORDS: [[u64; LEAF_WORDS]; 2] = [[!0, !0, !0, !0, !0, !0, !0, 0], [!0; LEAF_WORDS]];
/// For [`around`]: selects the words before the position.
const WORDS_BEFORE: [[u64; LEAF_WORDS]; 2] = [[!0, !0, !0, !0, !0, !0, !0, 0], [0; LEAF_WORDS]];
/// For [`around`]: one for each counter after the position.
const BEHIND16: [[u16; FAN1]; 2] = [[0; FAN1], [1; FAN1]];
const BEHIND32: [[u32; COUNTERS_PER_LINE]; 2] = [[0; COUNTERS_PER_LINE], [1; COUNTERS_PER_LINE]];

/// See the module's text.
pub(crate) struct Rank {
    leaves: Vec<Leaf>,
    level1: Vec<Line16>,
    /// `upper[0]` counts lines of `level1`; each further level counts lines of the previous one.
    upper: Vec<Vec<Line32>>,
}

impl Rank {
    /// A bitmap for `slots` slots, all set.
    pub(crate) fn new(slots: usize) -> Rank {
        let leaves = slots.div_ceil(LEAF_BITS).max(1);
        let level1 = leaves.div_ceil(FAN1);
        let mut upper = Vec::new();
        let (mut entries, mut each) = (level1, LINE_BITS);
        while entries > 1 {
            let lines = entries.div_ceil(COUNTERS_PER_LINE);
            upper.push(vec![full32(each); lines]);
            (entries, each) = (lines, each * COUNTERS_PER_LINE);
        }
        Rank {
            leaves: crate::large_vec(Leaf([!0; LEAF_WORDS]), leaves),
            level1: vec![FULL16; level1],
            upper,
        }
    }

    /// Number of slots.
    pub(crate) fn capacity(&self) -> usize {
        self.leaves.len() * LEAF_BITS
    }

    /// Sets all slots; those from `used` on must still be set.
    pub(crate) fn reset(&mut self, used: usize) {
        let lines = used.div_ceil(LEAF_BITS).min(self.leaves.len());
        self.leaves[..lines].fill(Leaf([!0; LEAF_WORDS]));
        let mut lines = used.div_ceil(LINE_BITS).min(self.level1.len());
        self.level1[..lines].fill(FULL16);
        let mut each = LINE_BITS;
        for level in &mut self.upper {
            lines = lines.div_ceil(COUNTERS_PER_LINE).min(level.len());
            level[..lines].fill(full32(each));
            each *= COUNTERS_PER_LINE;
        }
    }

    /// Prefetches the leaf of `slot`.
    #[inline(always)]
    pub(crate) fn prefetch(&self, slot: u32) {
        if let Some(leaf) = self.leaves.get(slot as usize / LEAF_BITS) {
            crate::prefetch(leaf);
        }
    }

    /// Clears `slot`, which must be set.
    #[inline(always)]
    pub(crate) fn clear(&mut self, slot: u32) {
        let slot = slot as usize;
        let leaf = slot / LEAF_BITS;
        // Whole vectors are written, because they will be read as vectors: a vector load after
        // narrower stores would wait until these are in the cache.
        let kept = !(1 << (slot % 64));
        let others = around(&OTHER_WORDS, slot / 64 % LEAF_WORDS);
        self.leaves[leaf]
            .0
            .iter_mut()
            .zip(others)
            .for_each(|(word, other)| *word &= other | kept);
        let line = &mut self.level1[leaf / FAN1].0;
        line.iter_mut()
            .zip(around(&BEHIND16, leaf % FAN1))
            .for_each(|(counter, less)| *counter = counter.wrapping_sub(*less));
        let mut entry = leaf / FAN1;
        for level in &mut self.upper {
            let line = &mut level[entry / COUNTERS_PER_LINE].0;
            line.iter_mut()
                .zip(around(&BEHIND32, entry % COUNTERS_PER_LINE))
                .for_each(|(counter, less)| *counter = counter.wrapping_sub(*less));
            entry /= COUNTERS_PER_LINE;
        }
    }

    /// Clears the slots from `first` to `last`, all of which must be set.
    pub(crate) fn clear_range(&mut self, first: u32, last: u32) {
        let (first, last) = (first as usize, last as usize);
        if first == last {
            return self.clear(first as u32);
        }
        for word in first / 64..=last / 64 {
            let from = if word == first / 64 { first % 64 } else { 0 };
            let to = if word == last / 64 { last % 64 } else { 63 };
            let gone = (!0 << from) & (!0 >> (63 - to));
            self.leaves[word / LEAF_WORDS].0[word % LEAF_WORDS] &= !gone;
        }
        // Number of the cleared slots in an entry for `each` slots.
        let inside = |entry: usize, each: usize| {
            (last + 1)
                .min((entry + 1) * each)
                .saturating_sub(first.max(entry * each))
        };
        for line in first / LINE_BITS..=last / LINE_BITS {
            let mut less = 0;
            for (k, counter) in self.level1[line].0.iter_mut().enumerate() {
                *counter = counter.wrapping_sub(less);
                less += inside(line * FAN1 + k, LEAF_BITS) as u16;
            }
        }
        let mut each = LINE_BITS;
        for level in &mut self.upper {
            for line in first / (each * COUNTERS_PER_LINE)..=last / (each * COUNTERS_PER_LINE) {
                let mut less = 0;
                for (k, counter) in level[line].0.iter_mut().enumerate() {
                    *counter = counter.wrapping_sub(less);
                    less += inside(line * COUNTERS_PER_LINE + k, each) as u32;
                }
            }
            each *= COUNTERS_PER_LINE;
        }
    }

    /// Number of set slots up to and including `slot`.
    #[inline(always)]
    pub(crate) fn upto(&self, slot: u32) -> u32 {
        let slot = slot as usize;
        let leaf = slot / LEAF_BITS;
        let words = &self.leaves[leaf].0;
        let last = slot / 64 % LEAF_WORDS;
        let before: u64 = words
            .iter()
            .zip(around(&WORDS_BEFORE, last))
            .map(|(word, mask)| u64::from((word & mask).count_ones()))
            .sum();
        let part = words[last] & !0u64 >> (63 - slot % 64);
        let mut count =
            before as u32 + part.count_ones() + u32::from(self.level1[leaf / FAN1].0[leaf % FAN1]);
        let mut entry = leaf / FAN1;
        for level in &self.upper {
            count += level[entry / COUNTERS_PER_LINE].0[entry % COUNTERS_PER_LINE];
            entry /= COUNTERS_PER_LINE;
        }
        count
    }

    /// True if `slot` is set.
    #[inline(always)]
    pub(crate) fn is_set(&self, slot: u32) -> bool {
        let slot = slot as usize;
        self.leaves[slot / LEAF_BITS].0[slot / 64 % LEAF_WORDS] >> (slot % 64) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_agree_with_a_plain_bitmap_through_all_levels() {
        // Enough slots for two upper levels (16,384 per level-1 line, 262,144 per upper line).
        let slots = 600_000u32;
        let mut rank = Rank::new(slots as usize);
        let mut plain = vec![true; slots as usize];
        let mut random = 12345u64;
        let mut next = || {
            random = random
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (random >> 33) as u32
        };
        for turn in 0..slots {
            let victim = next() % slots;
            if std::mem::replace(&mut plain[victim as usize], false) {
                rank.clear(victim);
            }
            if turn % 100_003 == 100_002 || turn + 1 == slots {
                let mut upto = 0;
                for (slot, &set) in plain.iter().enumerate() {
                    upto += u32::from(set);
                    if slot % 97 == 0 || slot % 512 < 2 {
                        assert_eq!(rank.upto(slot as u32), upto, "up to {slot} after {turn}");
                        assert_eq!(rank.is_set(slot as u32), set);
                    }
                }
            }
        }
    }

    #[test]
    fn ranges_are_cleared_as_their_slots_one_by_one() {
        let slots = 600_000u32;
        let (mut whole, mut single) = (Rank::new(slots as usize), Rank::new(slots as usize));
        let mut random = 777u64;
        let mut at = 0;
        while at < slots - 1 {
            random = random
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            // Ranges inside a word, inside a leaf, inside a line of counters, and across many of
            // them.
            let most = [3u64, 700, 20_000, 150_000][(random >> 60) as usize % 4];
            let first = at + (random >> 40) as u32 % 70;
            let last = (first + ((random >> 20) % most) as u32).min(slots - 1);
            if first <= last {
                whole.clear_range(first, last);
                (first..=last).for_each(|slot| single.clear(slot));
            }
            at = last + 1;
        }
        for slot in 0..slots {
            assert_eq!(
                (whole.upto(slot), whole.is_set(slot)),
                (single.upto(slot), single.is_set(slot)),
                "{slot}"
            );
        }
    }

    #[test]
    fn a_reset_bitmap_is_like_new() {
        for used in [1u32, 511, 513, 16_384, 16_385, 300_000] {
            let mut rank = Rank::new(300_000);
            (0..used).for_each(|slot| rank.clear(slot));
            rank.reset(used as usize);
            for slot in (0..300_000).step_by(61).chain(0..2000) {
                assert_eq!(rank.upto(slot), slot + 1, "{used} were used");
            }
        }
    }
}
