//! Slots left by a dead thread of which only parts belong to phases.

use crate::soft::drain::Drainer;
use crate::soft::drain::leftover::{Rest, describe};
use crate::soft::drain::queue::Outlet;
use crate::soft::shared_memory::{SLOT, ThreadSlot};
use mgz_abi::phases::phase_pieces;
use mgz_abi::shared_memory::Snapshot;
use mgz_annotations_schema::spill::EncodedSegment;

impl Drainer<'_> {
    /// Keeps the parts that belong to phases. `None` if everything belongs to phases; false as for
    /// [`Drainer::take_rest`].
    pub(super) fn take_parts(
        &self,
        slot: ThreadSlot<'_>,
        outlet: &mut Outlet,
        numbers: &Snapshot,
        found: &Rest,
        cause: u8,
        segment: &mut EncodedSegment,
    ) -> Option<bool> {
        let boundaries = slot.boundaries();
        let outside = numbers.outside != 0;
        if !outside && boundaries.is_empty() {
            return None;
        }
        let settings = self.shared.settings();
        let known = describe(settings, numbers, cause, 0);
        match *found {
            Rest::Nonsense => None,
            Rest::Nothing => Some(true),
            // No slot of a lap is kept, but those in phases count as executed.
            Rest::Window { .. } => {
                let slots = numbers.cursor.saturating_sub(numbers.base) / SLOT;
                let inside: u64 = phase_pieces(numbers.base, slots, outside, &boundaries)
                    .map(|(from, to)| to - from)
                    .sum();
                let info = mgz_abi::shared_memory::ChunkInfo {
                    first_slot: numbers.slots_before + inside,
                    executed: numbers.slots_before + inside,
                    ..known
                };
                self.keep(outlet, &info, Ok(segment));
                Some(true)
            }
            Rest::Chunk {
                place,
                offset,
                slots,
            } => {
                let mut number = numbers.slots_before;
                let parts: Vec<(u64, u64)> =
                    phase_pieces(numbers.base, slots, outside, &boundaries).collect();
                for (n, &(from, to)) in parts.iter().enumerate() {
                    number += u64::from(number != numbers.slots_before || from != 0);
                    let info = mgz_abi::shared_memory::ChunkInfo {
                        slots: (to - from) as u32,
                        first_slot: number,
                        executed: number + (to - from),
                        // The last part ends the thread's records.
                        cause: if n + 1 < parts.len() {
                            mgz_annotations_schema::spill::cause::PHASE.into()
                        } else {
                            known.cause
                        },
                        ..known
                    };
                    number += to - from;
                    let offset = offset + from * SLOT;
                    if let Some(counter) = &self.counter {
                        let mut left = Vec::new();
                        if !slot.read_slots(place, offset, to - from, &mut |slots| {
                            left.extend_from_slice(slots)
                        }) {
                            return Some(false);
                        }
                        counter.with(info.pid, |table| table.add(&left));
                        self.keep(outlet, &info, Ok(segment));
                        continue;
                    }
                    segment.begin(info.slots as usize);
                    if !slot.read_chunk(place, offset, to - from, &mut |records| {
                        segment.push(records)
                    }) {
                        return Some(false);
                    }
                    let ended = segment.finish(&self.header(&info));
                    self.keep(outlet, &info, ended.map(|_| &*segment));
                }
                Some(true)
            }
        }
    }
}
