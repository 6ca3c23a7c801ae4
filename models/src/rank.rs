//! A bitmap over time slots that counts its set bits behind a position in a few cache lines.
//!
//! Slots are handed out in ascending order. A leaf has 512 bits, one cache line. Above it stand *prefix*
//! counters: 32 leaves share one line of 16-bit counters, and 16 entries of each level share one line of
//! 32-bit counters of the level above. A count reads one line per level; a clear changes one line per
//! level (every counter behind the bit goes down by one); a set at the end changes only the bitmap,
//! because no counter stands behind the last slot. Counters of leaves that are not open yet hold rubbish
//! and are written when the first slot of the leaf is handed out.

const LEAF_BITS: usize = 512;
const LEAF_WORDS: usize = LEAF_BITS / 64;
/// Leaves per line of 16-bit counters: at most 32 × 512 = 16,384, which fits.
const FAN1: usize = 32;
/// Entries per line of 32-bit counters.
const FAN: usize = 16;

/// One cache line of 16-bit prefix counters.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line16([u16; FAN1]);

/// One cache line of 32-bit prefix counters.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line32([u32; FAN]);

/// One leaf.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Leaf([u64; LEAF_WORDS]);

/// See the module's text.
pub(crate) struct Rank {
    leaves: Vec<Leaf>,
    level1: Vec<Line16>,
    /// `upper[0]` counts lines of `level1`, each further level lines of the one below.
    upper: Vec<Vec<Line32>>,
    live: u32,
}

impl Rank {
    /// Room for `slots` slots, none set.
    pub(crate) fn new(slots: usize) -> Rank {
        let leaves = slots.div_ceil(LEAF_BITS).max(1);
        let level1 = leaves.div_ceil(FAN1);
        let mut upper = Vec::new();
        let mut entries = level1;
        while entries > 1 {
            let lines = entries.div_ceil(FAN);
            upper.push(vec![Line32([0; FAN]); lines]);
            entries = lines;
        }
        Rank { leaves: crate::large_vec(Leaf([0; LEAF_WORDS]), leaves), level1: vec![Line16([0; FAN1]); level1], upper, live: 0 }
    }

    /// Number of slots that fit.
    pub(crate) fn capacity(&self) -> usize {
        self.leaves.len() * LEAF_BITS
    }

    /// Number of set slots.
    pub(crate) fn live(&self) -> u32 {
        self.live
    }

    /// Clears the slots below `used`; nothing at or behind it may be set.
    pub(crate) fn reset(&mut self, used: usize) {
        let leaves = used.div_ceil(LEAF_BITS).min(self.leaves.len());
        self.leaves[..leaves].fill(Leaf([0; LEAF_WORDS]));
        self.live = 0;
    }

    /// Brings the leaf of `slot` into the cache.
    #[inline(always)]
    pub(crate) fn prefetch(&self, slot: u32) {
        if let Some(leaf) = self.leaves.get(slot as usize / LEAF_BITS) {
            crate::prefetch(leaf);
        }
    }

    /// Sets `slot`, which must be above every slot set before since the last reset, and the next one
    /// whenever a leaf begins (slots are handed out without holes).
    #[inline(always)]
    pub(crate) fn append(&mut self, slot: u32) {
        let slot = slot as usize;
        if slot.is_multiple_of(LEAF_BITS) {
            self.open(slot / LEAF_BITS);
        }
        self.leaves[slot / LEAF_BITS].0[slot / 64 % LEAF_WORDS] |= 1 << (slot % 64);
        self.live += 1;
    }

    /// Writes the prefix counters of a leaf that begins.
    #[inline(never)]
    fn open(&mut self, leaf: usize) {
        if leaf == 0 {
            self.level1[0].0[0] = 0;
            for level in &mut self.upper {
                level[0].0[0] = 0;
            }
            return;
        }
        let before: u32 = self.leaves[leaf - 1].0.iter().map(|w| w.count_ones()).sum();
        if !leaf.is_multiple_of(FAN1) {
            let line = &mut self.level1[leaf / FAN1].0;
            line[leaf % FAN1] = line[leaf % FAN1 - 1] + before as u16;
            return;
        }
        let mut entry = leaf / FAN1;
        self.level1[entry].0[0] = 0;
        let mut total = u32::from(self.level1[entry - 1].0[FAN1 - 1]) + before;
        for level in &mut self.upper {
            if !entry.is_multiple_of(FAN) {
                let line = &mut level[entry / FAN].0;
                line[entry % FAN] = line[entry % FAN - 1] + total;
                return;
            }
            let line = entry / FAN;
            level[line].0[0] = 0;
            total += level[line - 1].0[FAN - 1];
            entry = line;
        }
    }

    /// Clears `slot`, which must be set.
    #[inline(always)]
    pub(crate) fn clear(&mut self, slot: u32) {
        let slot = slot as usize;
        let leaf = slot / LEAF_BITS;
        self.leaves[leaf].0[slot / 64 % LEAF_WORDS] &= !(1 << (slot % 64));
        self.live -= 1;
        let at = (leaf % FAN1) as u16;
        for (k, counter) in self.level1[leaf / FAN1].0.iter_mut().enumerate() {
            *counter = counter.wrapping_sub(u16::from(k as u16 > at));
        }
        let mut entry = leaf / FAN1;
        for level in &mut self.upper {
            let at = (entry % FAN) as u32;
            for (k, counter) in level[entry / FAN].0.iter_mut().enumerate() {
                *counter = counter.wrapping_sub(u32::from(k as u32 > at));
            }
            entry /= FAN;
        }
    }

    /// Number of set slots below `slot`. `slot` must have been handed out.
    #[inline(always)]
    pub(crate) fn below(&self, slot: u32) -> u32 {
        let slot = slot as usize;
        let leaf = slot / LEAF_BITS;
        let words = &self.leaves[leaf].0;
        let last = slot / 64 % LEAF_WORDS;
        let mut count = (words[last] & ((1u64 << (slot % 64)) - 1)).count_ones();
        for (k, word) in words.iter().enumerate() {
            count += if k < last { word.count_ones() } else { 0 };
        }
        count += u32::from(self.level1[leaf / FAN1].0[leaf % FAN1]);
        let mut entry = leaf / FAN1;
        for level in &self.upper {
            count += level[entry / FAN].0[entry % FAN];
            entry /= FAN;
        }
        count
    }

    /// Number of set slots above `slot`; `end` is the next slot to be handed out.
    #[inline(always)]
    pub(crate) fn above(&self, slot: u32, end: u32) -> u32 {
        let (at, last) = (slot as usize / 64, (end as usize - 1) / 64);
        if last - at < LEAF_WORDS {
            // Short reuses, the common ones: look at the words in between.
            let word = |w: usize| self.leaves[w / LEAF_WORDS].0[w % LEAF_WORDS];
            let mut count = (word(at) & (!1u64 << (slot % 64))).count_ones();
            for w in at + 1..=last {
                count += word(w).count_ones();
            }
            return count;
        }
        self.live - self.below(slot) - u32::from(self.is_set(slot))
    }

    /// Whether `slot` is set.
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
        let mut plain = vec![false; slots as usize];
        let mut random = 12345u64;
        let mut next = || {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (random >> 33) as u32
        };
        for end in 0..slots {
            rank.append(end);
            plain[end as usize] = true;
            let victim = next() % (end + 1);
            if plain[victim as usize] {
                plain[victim as usize] = false;
                rank.clear(victim);
            }
            if end % 60_007 == 60_006 || end + 1 == slots {
                let mut below = 0;
                for (slot, &set) in plain.iter().enumerate().take(end as usize + 1) {
                    if slot % 97 == 0 || slot % 512 < 2 {
                        assert_eq!(rank.below(slot as u32), below, "below {slot} of {end}");
                        assert_eq!(rank.above(slot as u32, end + 1), rank.live() - below - u32::from(set), "above {slot} of {end}");
                    }
                    below += u32::from(set);
                }
            }
        }
    }

    #[test]
    fn a_reset_bitmap_is_like_new() {
        let mut rank = Rank::new(5000);
        for slot in 0..3000 {
            rank.append(slot);
        }
        rank.reset(3000);
        assert_eq!(rank.live(), 0);
        for slot in 0..1000 {
            rank.append(slot);
        }
        assert_eq!(rank.below(999), 999);
        assert_eq!(rank.above(10, 1000), 989);
    }
}
