//! Time slots that belong to one access: a bitmap that finds the end of a run of set bits without
//! walking over it.
//!
//! Bit `s` is set if slots `s` and `s + 1` were taken by the same access. Accesses to millions of
//! blocks make runs of millions of bits, and each of their blocks needs the end of its run. So the
//! next level has one bit for each word that is all ones, and so on: a search goes up as long as
//! words are full, and down again.

/// See the module's text. It takes no memory until an access touches several blocks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Joined {
    /// Bits of slots; then, by level, bits of the full words of the previous level. Empty if
    /// nothing is joined.
    levels: Vec<Vec<u64>>,
}

impl Joined {
    /// True if nothing is joined.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }

    /// A bitmap for slots below `slots`, none of them joined.
    fn with_room(slots: usize) -> Joined {
        let mut words = slots.div_ceil(64).max(1);
        let mut levels = vec![vec![0; words]];
        while words > 1 {
            words = words.div_ceil(64);
            levels.push(vec![0; words]);
        }
        Joined { levels }
    }

    /// Joins the slots from `first` to `last`, which is below `slots`, since one access has taken
    /// them.
    #[inline(always)]
    pub(crate) fn join(&mut self, first: u32, last: u32, slots: usize) {
        if first < last {
            self.join_several(first as usize, last as usize, slots);
        }
    }

    #[cold]
    fn join_several(&mut self, first: usize, last: usize, slots: usize) {
        if self.is_empty() {
            *self = Joined::with_room(slots);
        }
        // At each level, bits from `from` to `to` (exclusive).
        let (mut from, mut to) = (first, last);
        for level in &mut self.levels {
            if from >= to {
                return;
            }
            let (begin, end) = (from / 64, (to - 1) / 64);
            let (head, tail) = (!0 << (from % 64), !0 >> (63 - (to - 1) % 64));
            if begin == end {
                level[begin] |= head & tail;
            } else {
                level[begin] |= head;
                level[begin + 1..end].fill(!0);
                level[end] |= tail;
            }
            // Words that are full now: those in between, and perhaps the first and the last one.
            from = begin + usize::from(level[begin] != !0);
            to = end + usize::from(level[end] == !0);
        }
    }

    /// The last slot of the access that `slot` belongs to.
    #[inline(always)]
    pub(crate) fn end(&self, slot: u32) -> u32 {
        let Some(bits) = self.levels.first() else {
            return slot;
        };
        let rest = !bits[slot as usize / 64] >> (slot % 64);
        if rest != 0 {
            return slot + rest.trailing_zeros();
        }
        self.far_end(slot)
    }

    /// As `end`, if the rest of the slot's word is full.
    #[inline(never)]
    fn far_end(&self, slot: u32) -> u32 {
        // The first word that may have a free bit, and its level. (There is one: the last slot of
        // an access is never joined.)
        let (mut word, mut level) = (slot as usize / 64 + 1, 0);
        let mut bit = loop {
            let bits = self.levels[level][word];
            if bits != !0 {
                break word * 64 + bits.trailing_ones() as usize;
            }
            // The rest of this word is full. The next level finds a word that is not.
            level += 1;
            let above = &self.levels[level];
            let rest = !above[word / 64] >> (word % 64);
            if rest != 0 {
                break word + rest.trailing_zeros() as usize;
            }
            word = word / 64 + 1;
        };
        for words in self.levels[..level].iter().rev() {
            bit = bit * 64 + words[bit].trailing_ones() as usize;
        }
        bit as u32
    }

    /// The bitmap for `slots` slots after the `live` slots below `end` were renumbered in order: a
    /// live slot is joined to the next live one of its access.
    #[cold]
    pub(crate) fn renumbered(&self, end: u32, slots: usize, live: impl Fn(u32) -> bool) -> Joined {
        let mut joined = Joined::default();
        let (mut new, mut old) = (0, 0);
        while old < end {
            let last = self.end(old);
            let count = (old..=last).filter(|&slot| live(slot)).count() as u32;
            if count > 0 {
                joined.join(new, new + count - 1, slots);
            }
            new += count;
            old = last + 1;
        }
        joined
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Ends of all slots below `slots`, if accesses have taken slots of these lengths one after the
    /// other.
    fn ends(lengths: &[u32]) -> Vec<u32> {
        let mut out = Vec::new();
        for &length in lengths {
            let last = out.len() as u32 + length - 1;
            out.extend(std::iter::repeat_n(last, length as usize));
        }
        out
    }

    fn made(lengths: &[u32], slots: usize) -> Joined {
        let mut joined = Joined::default();
        let mut first = 0;
        for &length in lengths {
            joined.join(first, first + length - 1, slots);
            first += length;
        }
        joined
    }

    #[test]
    fn runs_that_end_at_every_place_of_a_word_and_of_the_levels_above_have_their_ends() {
        for length in [
            1, 2, 63, 64, 65, 66, 127, 128, 129, 4095, 4096, 4097, 4160, 262_143, 262_144, 262_145,
            266_305,
        ] {
            for before in [0u32, 1, 63, 64, 4000, 4096] {
                let lengths: Vec<u32> = [before, length, 70, 1]
                    .into_iter()
                    .filter(|&l| l > 0)
                    .collect();
                let all = ends(&lengths);
                let joined = made(&lengths, all.len().next_power_of_two());
                for (slot, &end) in all.iter().enumerate() {
                    assert_eq!(joined.end(slot as u32), end, "{before} {length} {slot}");
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn ends_agree_with_a_plain_list_also_after_renumbering(
            lengths in prop::collection::vec(prop_oneof![4 => 1u32..4, 2 => 50u32..150, 1 => 4000u32..9000], 1..40), seed: u64, share in 0u64..5,
        ) {
            let all = ends(&lengths);
            let slots = all.len().next_power_of_two();
            let joined = made(&lengths, slots);
            for (slot, &end) in all.iter().enumerate() {
                prop_assert_eq!(joined.end(slot as u32), end);
            }
            // About `share` of four slots stay live.
            let live: Vec<bool> = (0..all.len() as u64).map(|s| (s ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 62 < share).collect();
            let mut at = 0;
            let left: Vec<u32> = lengths.iter().map(|&l| {
                let count = live[at..at + l as usize].iter().filter(|&&l| l).count() as u32;
                at += l as usize;
                count
            }).filter(|&l| l > 0).collect();
            let after = joined.renumbered(all.len() as u32, slots, |slot| live[slot as usize]);
            for (slot, &end) in ends(&left).iter().enumerate() {
                prop_assert_eq!(after.end(slot as u32), end);
            }
        }
    }
}
