//! Phases: the recorded parts of a run, and the messages about them between runtime and recorder.
//!
//! A process records while three conditions hold: the *gate* is open, which the recorder (by time)
//! or the runtime (by loads) moves from [`GATE_WAITS`] to [`GATE_OPEN`] to [`GATE_OVER`]; a
//! requested function has been entered; and the last marker that the program has reached is not a
//! stop marker. Markers are probes of provider `mgz` (`.note.stapsdt`): instructions that do
//! nothing, listed in [`ModuleNote::markers`](crate::module_note::ModuleNote::markers).

use core::sync::atomic::{AtomicU32, AtomicU64};

/// [`Marker::what`]: recording begins.
pub const START: u8 = 1;
/// [`Marker::what`]: recording pauses.
pub const STOP: u8 = 2;

/// An instruction of the original that does nothing and marks the begin or the end of a phase.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marker {
    /// Link-time address.
    pub at: u32,
    /// Length of the instruction, bytes.
    pub length: u8,
    /// [`START`] or [`STOP`].
    pub what: u8,
    /// Zero.
    pub unused: u16,
}

/// [`Phases::gate`]: records are made if the other conditions allow it.
pub const GATE_OPEN: u32 = 0;
/// [`Phases::gate`]: nothing is recorded yet.
pub const GATE_WAITS: u32 = 1;
/// [`Phases::gate`]: nothing is recorded any more.
pub const GATE_OVER: u32 = 2;

/// [`PhaseEvent::what`]: a program has begun, and records.
pub const BEGINS_ON: u32 = 1;
/// [`PhaseEvent::what`]: a program has begun, and does not record yet.
pub const BEGINS_OFF: u32 = 2;
/// [`PhaseEvent::what`]: a process has reached a start marker, and records from here on.
pub const TURNED_ON: u32 = 3;
/// [`PhaseEvent::what`]: a process has reached a stop marker, and no longer records.
pub const TURNED_OFF: u32 = 4;
/// [`PhaseEvent::what`]: the requested function was entered, and the process records from here on.
pub const ENTERED: u32 = 5;
/// [`PhaseEvent::what`]: the gate has opened by loads.
pub const GATE_OPENED: u32 = 6;
/// [`PhaseEvent::what`]: the gate is closed for good by loads.
pub const GATE_CLOSED: u32 = 7;

/// Rows of [`Phases::events`].
pub const EVENTS: usize = 4096;
/// Rows of [`Phases::functions`].
pub const FUNCTIONS: usize = 4096;
/// Maximum number of pending switches in a stretch of a ring.
pub const BOUNDARIES: usize = 24;

/// An event that changes whether a process records.
#[repr(C)]
pub struct PhaseEvent {
    /// Number of the row + 1 once it is complete; 0 while it is written.
    pub ready: AtomicU64,
    /// System process id.
    pub pid: AtomicU32,
    /// Kind of the event: one of the constants above.
    pub what: AtomicU32,
    /// CLOCK_MONOTONIC, ns.
    pub ns: AtomicU64,
    /// CPU time of the process so far, nanoseconds.
    pub cpu_ns: AtomicU64,
}

/// A function at whose entry recording begins.
#[repr(C)]
pub struct FunctionRow {
    /// First eight bytes of the identity of its file's sidecar.
    pub sidecar: AtomicU64,
    /// Link-time address of its entry.
    pub at: AtomicU64,
}

/// Part of [`Header`](crate::shared_memory::Header).
#[repr(C)]
pub struct Phases {
    /// `GATE_*`.
    pub gate: AtomicU32,
    /// 1 if recording begins at functions: a process waits until the recorder has searched each
    /// loaded module for them.
    pub by_function: AtomicU32,
    /// 1 if markers are to be ignored.
    pub ignore_markers: AtomicU32,
    /// Zero.
    pub reserved: u32,
    /// The gate opens after this many recorded loads; 0: not by loads.
    pub start_loads: AtomicU64,
    /// The gate closes after this many recorded loads in phases; 0: not by loads.
    pub stop_loads: AtomicU64,
    /// Recorded loads so far, outside of phases and in them, if the gate moves by loads.
    pub loads: [AtomicU64; 2],
    /// Slots that were written outside of phases, and dropped.
    pub outside: AtomicU64,
    /// Slots in phases that were dropped, because a thread had more than [`BOUNDARIES`] switches
    /// since it last published its slots.
    pub lost: AtomicU64,
    /// Markers and functions at which no trap could be set.
    pub unplaced: AtomicU64,
    /// Number of markers in loaded modules.
    pub markers: AtomicU64,
    /// Rows of `functions` that are complete.
    pub function_count: AtomicU64,
    /// Requested functions.
    pub functions: [FunctionRow; FUNCTIONS],
    /// Rows of `events` that were claimed: row k replaces row k − [`EVENTS`].
    pub event_count: AtomicU64,
    /// Events so far.
    pub events: [PhaseEvent; EVENTS],
}

/// Position in a stretch of a thread's ring at which another thread switched the process on or off:
/// see [`phase_pieces`].
pub const fn boundary(base: u64, cursor: u64, on: bool) -> u32 {
    let slots = cursor.saturating_sub(base) / 16;
    let slots = if slots < SLOTS { slots } else { SLOTS };
    (on as u32) << 31 | stretch(base) << 20 | slots as u32
}

/// Maximum number of slots in a boundary.
const SLOTS: u64 = 0xf_ffff;

/// Distinguishes a stretch from the previous and next one, by its base.
const fn stretch(base: u64) -> u32 {
    ((base >> 4) ^ (base >> 16)) as u32 & 0x7ff
}

/// The parts of a stretch that belong to phases, as slot numbers from its start: it has `slots`
/// slots from address `base` on, began `outside` of a phase, and has these boundaries. A boundary
/// of an earlier stretch counts as at the start.
pub fn phase_pieces<'a>(
    base: u64,
    slots: u64,
    outside: bool,
    boundaries: &'a [u32],
) -> impl Iterator<Item = (u64, u64)> + 'a {
    let mut rest = boundaries.iter();
    let (mut at, mut on, mut over) = (0, !outside, false);
    core::iter::from_fn(move || {
        while !over {
            let from = at;
            let was_on = on;
            match rest.next() {
                Some(&b) => {
                    let here = b >> 20 & 0x7ff == stretch(base);
                    let place = if here { u64::from(b) & SLOTS } else { 0 };
                    at = place.clamp(from, slots);
                    on = b >> 31 != 0;
                }
                None => {
                    at = slots;
                    over = true;
                }
            }
            if was_on && at > from {
                return Some((from, at));
            }
        }
        None
    })
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    fn all(slots: u64, outside: bool, boundaries: &[u32]) -> Vec<(u64, u64)> {
        phase_pieces(0x1000, slots, outside, boundaries).collect()
    }

    #[test]
    fn stretches_are_cut_where_switches_found_them() {
        let at = |slot: u64, on| boundary(0x1000, 0x1000 + 16 * slot, on);
        assert_eq!(all(9, false, &[]), [(0, 9)]);
        assert_eq!(all(9, true, &[]), []);
        assert_eq!(all(9, false, &[at(4, false)]), [(0, 4)]);
        assert_eq!(all(9, true, &[at(4, true)]), [(4, 9)]);
        let twice = [at(2, true), at(4, false), at(4, true), at(7, false)];
        assert_eq!(all(9, true, &twice), [(2, 4), (4, 7)]);
        // Boundaries before the stretch, or beyond its end.
        assert_eq!(all(9, false, &[boundary(0x2000, 0x2040, false)]), []);
        assert_eq!(all(9, true, &[boundary(0x2000, 0x2040, true)]), [(0, 9)]);
        assert_eq!(all(3, false, &[at(7, false)]), [(0, 3)]);
        assert_eq!(
            all(9, false, &[at(7, false), at(3, true)]),
            [(0, 7), (7, 9)]
        );
        assert_eq!(all(u64::MAX, true, &[u32::MAX, 0, u32::MAX]).len(), 1);
    }
}
