//! A small table before the partitions. Touches of a unit by the same code in short succession are
//! counted in one slot. If there are few of these, the table is not used for a while.

use crate::data::reuse_counts::GroupReuse;
use crate::stages::pages::slot::Slot;
use crate::stages::pages::touch::Touch;
use crate::util::adaptive::Trial;
use mgz_models::util::hash::spread;

/// Initial and greatest number of slots: a share of the second-level cache. (There may be many
/// tables with few slots.) Source: Chosen.
const MIN_SLOTS: usize = 1 << 6;
/// Source: Chosen.
const MAX_SLOTS: usize = 1 << 12;
/// The table is too small if more than one touch in this many finds another slot. An evicted slot
/// is four times as long as a record.
const TOO_MANY: usize = 4;
/// A free slot: [`crate::stages::pages::slot::pack_slot_key`] never returns this key.
const FREE_KEY: u64 = u64::MAX;

#[derive(Default)]
pub(crate) struct Front {
    slots: Vec<Slot>,
    /// Number of evictions since the table was resized.
    left: usize,
    /// Counts touches that evicted other slots.
    trial: Trial,
}

impl Front {
    /// True if the next touches should be added to the table.
    pub(crate) fn pays(&mut self, touches: usize) -> bool {
        if !self
            .trial
            .goes_on(touches, |all, left| left * TOO_MANY > all)
        {
            return false;
        }
        if self.slots.is_empty() {
            self.slots = vec![Slot::new(FREE_KEY); MIN_SLOTS];
        }
        true
    }

    /// Counts touches, after [`Front::pays`]. Returns the evicted slot, if there is one.
    #[inline(always)]
    pub(crate) fn add(&mut self, key: u64, reuse: &GroupReuse, touch: Touch) -> Option<Slot> {
        let at = (spread(key) >> 40) as usize & (self.slots.len() - 1);
        let slot = &mut self.slots[at];
        if slot.key == key {
            slot.add(reuse, touch);
            return None;
        }
        let before = std::mem::replace(slot, Slot::new(key));
        slot.add(reuse, touch);
        (before.key != FREE_KEY).then_some(before)
    }

    /// Counts an eviction. True if the table is too small.
    #[inline(always)]
    pub(crate) fn has_left(&mut self) -> bool {
        self.trial.count(1);
        self.left += 1;
        self.left > self.slots.len() * 2 && self.slots.len() < MAX_SLOTS
    }

    /// Enlarges the table, which must be empty.
    #[cold]
    pub(crate) fn grow(&mut self) {
        self.slots = vec![Slot::new(FREE_KEY); (self.slots.len() * 4).min(MAX_SLOTS)];
        self.left = 0;
    }

    /// Evicts all slots.
    pub(crate) fn leave(&mut self) -> impl Iterator<Item = Slot> {
        self.slots
            .iter_mut()
            .map(|slot| std::mem::replace(slot, Slot::new(FREE_KEY)))
            .filter(|slot| slot.key != FREE_KEY)
    }
}
