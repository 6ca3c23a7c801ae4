//! Counts of a unit and an owner in one cache line, and a single touch in a quarter of one.

use crate::data::reuse_counts::GroupReuse;
use crate::stages::pages::touch::Touch;

/// Bits of a key that hold the owner; the others hold the unit. 41 bits for units of 64 bytes cover
/// the user space of x86-64 without five-level paging.
const OWNER_BITS: u32 = 23;

/// The key of a unit and an owner; `None` if they do not fit into one. It is never `u64::MAX`.
#[inline(always)]
pub(crate) fn pack_slot_key(unit: u64, owner: u32) -> Option<u64> {
    (unit >> (64 - OWNER_BITS) == 0 && owner < (1 << OWNER_BITS) - 1)
        .then_some(unit << OWNER_BITS | u64::from(owner))
}

/// The unit of a key.
#[inline(always)]
pub(crate) fn unit(key: u64) -> u64 {
    key >> OWNER_BITS
}

/// The owner of a key.
#[inline(always)]
pub(crate) fn owner_of_key(key: u64) -> u32 {
    key as u32 & ((1 << OWNER_BITS) - 1)
}

/// The counts of a unit and an owner.
#[repr(align(64))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) key: u64,
    pub(crate) blocks: u64,
    starts: u64,
    reuses: u64,
    distance: u64,
    interval: u64,
    /// The lower halves of first touches and of implied loads.
    firsts: u32,
    implied: u32,
    /// Greatest D. The number of blocks always fits.
    distance_max: u32,
    /// Bits 32 to 47 of first touches and of implied loads. No run has more.
    more: [u16; 2],
}

impl Slot {
    #[inline(always)]
    pub(crate) fn new(key: u64) -> Slot {
        Slot {
            key,
            ..Slot::default()
        }
    }

    /// Counts touches.
    #[inline(always)]
    pub(crate) fn add(&mut self, reuse: &GroupReuse, touch: Touch) {
        self.blocks |= touch.blocks;
        self.starts += touch.starts;
        self.reuses += reuse.reuses;
        self.distance += reuse.distance;
        self.interval += reuse.interval;
        self.distance_max = self
            .distance_max
            .max(reuse.distance_max.min(u64::from(u32::MAX)) as u32);
        let (firsts, implied) = (
            u64::from(self.firsts) + reuse.firsts,
            u64::from(self.implied) + touch.implied,
        );
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
    pub(crate) fn merge(&mut self, other: &Slot) {
        let (reuse, touch) = other.counts();
        self.add(&reuse, touch);
    }

    /// Counts of the slot.
    #[inline(always)]
    pub(crate) fn counts(&self) -> (GroupReuse, Touch) {
        let [firsts, implied] = [(self.firsts, self.more[0]), (self.implied, self.more[1])]
            .map(|(low, high)| u64::from(low) | u64::from(high) << 32);
        let Slot {
            blocks,
            starts,
            reuses,
            distance,
            interval,
            ..
        } = *self;
        (
            GroupReuse {
                reuses,
                firsts,
                distance,
                distance_max: u64::from(self.distance_max),
                interval,
            },
            Touch {
                blocks,
                starts,
                implied,
            },
        )
    }

    /// Accesses that start here, touches that are reuses, their sum of D.
    #[inline(always)]
    pub(crate) fn heat(&self) -> (u64, u64, u64) {
        (self.starts, self.reuses, self.distance)
    }
}

/// Layout of a record's counts: number of the block, a bit for an access that starts with it, its
/// implied loads, and its interval, which is 0 for a first touch. The other bits hold D.
const STARTS_AT: u32 = 6;
const IMPLIED_AT: u32 = STARTS_AT + 1;
const INTERVAL_AT: u32 = IMPLIED_AT + 5;
const DISTANCE_AT: u32 = INTERVAL_AT + 27;

/// One touch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TouchRecord {
    pub(crate) key: u64,
    counts: u64,
}

impl TouchRecord {
    /// `None` if it is not a single touch of one block, or if a number is too large.
    #[inline(always)]
    pub(crate) fn new(key: u64, reuse: &GroupReuse, touch: Touch) -> Option<TouchRecord> {
        let small = reuse.distance >> (64 - DISTANCE_AT)
            | reuse.interval >> (DISTANCE_AT - INTERVAL_AT)
            | touch.implied >> (INTERVAL_AT - IMPLIED_AT)
            | touch.starts >> 1;
        let one = reuse.reuses + reuse.firsts == 1
            && touch.blocks.is_power_of_two()
            && (reuse.interval == 0) == (reuse.reuses == 0);
        let block = u64::from(touch.blocks.trailing_zeros() & 63);
        let counts = reuse.distance << DISTANCE_AT
            | reuse.interval << INTERVAL_AT
            | touch.implied << IMPLIED_AT
            | touch.starts << STARTS_AT
            | block;
        (one && small == 0).then_some(TouchRecord { key, counts })
    }

    /// Counts of the record.
    #[inline(always)]
    pub(crate) fn counts(&self) -> (GroupReuse, Touch) {
        let part = |from: u32, to: u32| self.counts >> from & ((1 << (to - from)) - 1);
        let (distance, interval) = (self.counts >> DISTANCE_AT, part(INTERVAL_AT, DISTANCE_AT));
        let firsts = u64::from(interval == 0);
        let touch = Touch {
            blocks: 1 << part(0, STARTS_AT),
            starts: part(STARTS_AT, IMPLIED_AT),
            implied: part(IMPLIED_AT, INTERVAL_AT),
        };
        (
            GroupReuse {
                reuses: 1 - firsts,
                firsts,
                distance,
                distance_max: distance,
                interval,
            },
            touch,
        )
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
        (0..5).for_each(|_| {
            slot.add(
                &GroupReuse {
                    firsts: most,
                    ..GroupReuse::default()
                },
                Touch {
                    blocks: 1,
                    starts: 1,
                    implied: most - 1,
                },
            )
        });
        let mut all = Slot::new(7);
        (0..3).for_each(|_| all.merge(&slot));
        let (reuse, touch) = all.counts();
        assert_eq!(
            (reuse.firsts, touch.implied, touch.starts),
            (15 * most, 15 * (most - 1), 15)
        );
    }

    #[test]
    fn keys_are_of_units_and_owners_that_fit() {
        for (at, number) in [(0, 0), (5, 9), ((1 << 41) - 1, (1 << 23) - 2)] {
            let key = pack_slot_key(at, number).unwrap();
            assert_eq!((unit(key), owner_of_key(key)), (at, number));
            assert_ne!(key, u64::MAX);
        }
        assert!(
            pack_slot_key(1 << 41, 0).is_none()
                && pack_slot_key(0, (1 << 23) - 1).is_none()
                && pack_slot_key(0, u32::MAX).is_none()
        );
    }

    proptest! {
        #[test]
        fn a_record_counts_what_its_touch_does(first in any::<bool>(), distance in prop_oneof![0u64..9, 0u64..1 << 26], interval in prop_oneof![0u64..9, 0u64..1 << 28, any::<u64>()], bit in 0u32..64, starts in 0u64..3, implied in 0u64..40) {
            let reuse = if first { GroupReuse { firsts: 1, ..GroupReuse::default() } } else { GroupReuse { reuses: 1, firsts: 0, distance, distance_max: distance, interval } };
            let touch = Touch { blocks: 1 << bit, starts, implied };
            let found = TouchRecord::new(3, &reuse, touch);
            prop_assert_eq!(found.is_some(), starts < 2 && implied < 1 << 5 && (first || distance < 1 << 25 && (1..1 << 27).contains(&interval)));
            if let Some(found) = found {
                prop_assert_eq!(found.counts(), (reuse, touch));
            }
        }
    }
}
