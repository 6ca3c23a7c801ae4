//! What is counted of a unit and an owner, in one cache line, and one touch in less than half of one.

use super::Touch;
use crate::totals::GroupReuse;

/// Bits of a key that hold the owner; the others hold the unit. 41 bits of units of 64 bytes are all the addresses that a user-space program on x86-64 has without five-level paging.
const OWNER_BITS: u32 = 23;

/// The key of a unit and an owner; `None` if they do not fit into one. It is never `u64::MAX`.
#[inline(always)]
pub(super) fn pack(unit: u64, owner: u32) -> Option<u64> {
    (unit >> (64 - OWNER_BITS) == 0 && owner < (1 << OWNER_BITS) - 1).then_some(unit << OWNER_BITS | u64::from(owner))
}

/// The unit of a key.
#[inline(always)]
pub(super) fn unit(key: u64) -> u64 {
    key >> OWNER_BITS
}

/// The owner of a key.
#[inline(always)]
pub(super) fn owner(key: u64) -> u32 {
    key as u32 & ((1 << OWNER_BITS) - 1)
}

/// The counts of a unit and an owner.
#[repr(align(64))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(super) key: u64,
    pub(super) blocks: u64,
    starts: u64,
    reuses: u64,
    distance: u64,
    interval: u64,
    /// The lower halves of first touches and of implied loads.
    firsts: u32,
    implied: u32,
    /// Greatest D; there are never as many blocks as would not fit.
    distance_max: u32,
    /// Bits 32 to 47 of first touches and of implied loads, which is more than a run can have.
    more: [u16; 2],
}

impl Slot {
    #[inline(always)]
    pub(super) fn new(key: u64) -> Slot {
        Slot { key, ..Slot::default() }
    }

    /// Counts touches.
    #[inline(always)]
    pub(super) fn add(&mut self, reuse: &GroupReuse, touch: Touch) {
        self.blocks |= touch.blocks;
        self.starts += touch.starts;
        self.reuses += reuse.reuses;
        self.distance += reuse.distance;
        self.interval += reuse.interval;
        self.distance_max = self.distance_max.max(reuse.distance_max.min(u64::from(u32::MAX)) as u32);
        let (firsts, implied) = (u64::from(self.firsts) + reuse.firsts, u64::from(self.implied) + touch.implied);
        (self.firsts, self.implied) = (firsts as u32, implied as u32);
        if (firsts | implied) >> 32 != 0 {
            self.carry([firsts >> 32, implied >> 32]);
        }
    }

    #[cold]
    fn carry(&mut self, more: [u64; 2]) {
        for (mine, more) in self.more.iter_mut().zip(more) {
            *mine = u16::try_from(u64::from(*mine) + more).unwrap_or(u16::MAX);
        }
    }

    /// Adds another one.
    #[inline(always)]
    pub(super) fn merge(&mut self, other: &Slot) {
        let (reuse, touch) = other.counts();
        self.add(&reuse, touch);
    }

    /// What was counted.
    #[inline(always)]
    pub(super) fn counts(&self) -> (GroupReuse, Touch) {
        let [firsts, implied] = [(self.firsts, self.more[0]), (self.implied, self.more[1])].map(|(low, high)| u64::from(low) | u64::from(high) << 32);
        let Slot { blocks, starts, reuses, distance, interval, .. } = *self;
        (GroupReuse { reuses, firsts, distance, distance_max: u64::from(self.distance_max), interval }, Touch { blocks, starts, implied })
    }

    /// Accesses that start here, touches that are reuses, their sum of D.
    #[inline(always)]
    pub(crate) fn heat(&self) -> (u64, u64, u64) {
        (self.starts, self.reuses, self.distance)
    }
}

/// Bits of a record's counts that hold the number of the block, whether an access starts with it, whether it is a first touch, and what it implies; the others hold D.
const BLOCK_BITS: u32 = 6;
const STARTS: u64 = 1 << BLOCK_BITS;
const FIRST: u64 = STARTS << 1;
const IMPLIED_AT: u32 = BLOCK_BITS + 2;
const DISTANCE_AT: u32 = 32;

/// One touch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) key: u64,
    counts: u64,
    interval: u64,
}

impl Record {
    /// `None` if it is not one touch of one block, or has numbers that are too large.
    #[inline(always)]
    pub(super) fn new(key: u64, reuse: &GroupReuse, touch: Touch) -> Option<Record> {
        let fits = reuse.distance >> DISTANCE_AT == 0 && touch.implied >> 16 == 0 && touch.starts <= 1 && reuse.reuses + reuse.firsts == 1 && touch.blocks.is_power_of_two();
        let flags = if touch.starts > 0 { STARTS } else { 0 } | if reuse.firsts > 0 { FIRST } else { 0 };
        let counts = reuse.distance << DISTANCE_AT | touch.implied << IMPLIED_AT | flags | u64::from(touch.blocks.trailing_zeros() & 63);
        fits.then_some(Record { key, counts, interval: reuse.interval })
    }

    /// What it counts.
    #[inline(always)]
    pub(super) fn counts(&self) -> (GroupReuse, Touch) {
        let (distance, firsts) = (self.counts >> DISTANCE_AT, u64::from(self.counts & FIRST != 0));
        let touch = Touch { blocks: 1 << (self.counts & 63), starts: u64::from(self.counts & STARTS != 0), implied: self.counts >> IMPLIED_AT & 0xffff };
        (GroupReuse { reuses: 1 - firsts, firsts, distance, distance_max: distance, interval: self.interval }, touch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_slot_is_a_cache_line_that_counts_more_than_half_of_it_could() {
        assert_eq!(size_of::<Slot>(), 64);
        let most = u64::from(u32::MAX);
        let mut slot = Slot::new(7);
        (0..5).for_each(|_| slot.add(&GroupReuse { firsts: most, ..GroupReuse::default() }, Touch { blocks: 1, starts: 1, implied: most - 1 }));
        let mut all = Slot::new(7);
        (0..3).for_each(|_| all.merge(&slot));
        let (reuse, touch) = all.counts();
        assert_eq!((reuse.firsts, touch.implied, touch.starts), (15 * most, 15 * (most - 1), 15));
    }

    #[test]
    fn keys_are_of_units_and_owners_that_fit() {
        for (at, number) in [(0, 0), (5, 9), ((1 << 41) - 1, (1 << 23) - 2)] {
            let key = pack(at, number).unwrap();
            assert_eq!((unit(key), owner(key)), (at, number));
            assert_ne!(key, u64::MAX);
        }
        assert!(pack(1 << 41, 0).is_none() && pack(0, (1 << 23) - 1).is_none() && pack(0, u32::MAX).is_none());
    }

    proptest! {
        #[test]
        fn a_record_counts_what_its_touch_does(first in any::<bool>(), distance in prop_oneof![0u64..9, 0u64..1 << 34], interval in any::<u64>(), bit in 0u32..64, starts in 0u64..3, implied in 0u64..70_000) {
            let reuse = if first { GroupReuse { firsts: 1, ..GroupReuse::default() } } else { GroupReuse { reuses: 1, firsts: 0, distance, distance_max: distance, interval } };
            let touch = Touch { blocks: 1 << bit, starts, implied };
            let found = Record::new(3, &reuse, touch);
            prop_assert_eq!(found.is_some(), starts < 2 && implied < 1 << 16 && (first || distance < 1 << 32));
            if let Some(found) = found {
                prop_assert_eq!(found.counts(), (reuse, touch));
            }
        }
    }
}
