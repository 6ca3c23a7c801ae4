//! Speed of a window's code. Samples are taken by time, so an estimate of loads needs the loads per
//! nanosecond.
//!
//! The time of the window itself is a poor measure: it is short, and spent with cold caches in code
//! that records. So after a few windows a second the thread is measured a little longer, in one of
//! two ways.
//!
//! *Watched*: if an address among the window's last records advances by a constant stride, a
//! hardware watchpoint is set to the address of a later iteration, and the thread continues in the
//! original code. The watchpoint's signal gives the time of these iterations at the program's own
//! speed.
//!
//! *Lap*: every second time, and whenever no address advances so, the thread stays in the clone for
//! another [`RECORDS_OF_LAP`] records, which are written to unused memory. The time is that of code
//! that records, with warm caches: an upper bound.
//!
//! Some measurements span few records (`PACE_WATCHED_NEAR`, `PACE_LAP_NEAR`): they show the cost of
//! the measurement itself.

use crate::record::params::{
    BYTES_OF_PLACE_LOG2, MAX_BYTES_TO_WATCHED_INSTRUCTION, MAX_DOUBLINGS_OF_WATCH,
    MAX_HALVINGS_OF_WATCH, MAX_NS_OF_WATCH, MAX_SLOTS_PER_ITERATION, MAX_STRIDE_BYTES,
    MEASUREMENT_DISTANCE_NS, MEASUREMENTS_AT_ONCE, MEASUREMENTS_OF_NEW_PLACE,
    MEASUREMENTS_PER_NEAR_ONE, MIN_ITERATIONS_OF_STRIDE, PLACES_OF_THREAD, RECORDS_OF_LAP,
    RECORDS_OF_NEAR_LAP, RECORDS_OF_NEAR_WATCH, RECORDS_OF_WATCH, RECORDS_TRIED_FOR_STRIDE,
    WINDOWS_PER_MEASUREMENT_OF_NEW_PLACE,
};
use crate::record::thread_ring::Ring;
use crate::record::watchpoint::Watchpoint;
use crate::sys::signal_frame::{Context, RIP};
use crate::sys::syscall;
use core::cell::Cell;
use mgz_abi::shared_memory::*;
use mgz_abi::slot::RingSlot;

/// Measurements of one place in the code.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CodeSpot {
    begun: u16,
    /// Log2 of the factor by which its watches are longer than [`RECORDS_OF_WATCH`].
    longer: i8,
    /// The last watch was not hit: the next measurement is a lap.
    failed: bool,
}

/// State of a thread's measurements; is in [`crate::record::thread_ring::Private`]. Zero: no
/// measurement yet.
#[repr(C)]
pub struct Pace {
    watchpoint: Watchpoint,
    begun: Cell<u32>,
    /// Full windows since the last measurement.
    unmeasured: Cell<u32>,
    /// Index of the place of the current measurement.
    place: Cell<u32>,
    /// The places, by the index of [`place_of`].
    places: [Cell<CodeSpot>; PLACES_OF_THREAD],
    /// Records that lie between the window's end and the watchpoint.
    records: Cell<u32>,
    /// `PACE_*` of the current measurement.
    kind: Cell<u32>,
    /// Time at which it was set.
    since: Cell<u64>,
    /// Address at which the thread continued in the original code.
    from: Cell<u64>,
    /// Earliest time of the next measurement.
    due: Cell<u64>,
    /// The latest result, not yet published.
    result: Cell<u64>,
}

impl Pace {
    /// Forgets all measurements.
    pub fn reset(&self) {
        self.watchpoint.forget();
        self.begun.set(0);
        self.unmeasured.set(0);
        self.place.set(0);
        self.places
            .iter()
            .for_each(|place| place.set(CodeSpot::default()));
        self.records.set(0);
        self.kind.set(0);
        self.since.set(0);
        self.from.set(0);
        self.due.set(0);
        self.result.set(0);
    }

    /// The place of the current measurement.
    fn here(&self) -> &Cell<CodeSpot> {
        &self.places[self.place.get() as usize % PLACES_OF_THREAD]
    }
}

/// Index of the place that an address belongs to.
fn place_of(address: u64) -> u32 {
    ((address >> BYTES_OF_PLACE_LOG2) as u32).wrapping_mul(0x9e37_79b1)
        >> (32 - PLACES_OF_THREAD.trailing_zeros())
}

/// Removes and returns the latest result, in the format of [`ChunkInfo::pace`].
pub fn take_pace(ring: Ring) -> u64 {
    ring.private().pace.result.take()
}

/// Measurement to make after a full window.
pub enum SpeedPlan {
    /// No measurement now.
    Nothing,
    /// A watchpoint.
    Watch {
        /// Address of the watchpoint.
        address: u64,
        /// Records until the program accesses that address.
        records: u32,
        /// `PACE_*` constant of the measurement.
        kind: u32,
    },
    /// A lap of this many slots.
    Lap(u64),
}

/// Chooses the measurement after a window whose slots end at `end`, for a thread at `address`.
pub fn plan_measurement(ring: Ring, address: u64, end: u64, slots: u64, now: u64) -> SpeedPlan {
    let pace = &ring.private().pace;
    if pace.watchpoint.is_armed() {
        return SpeedPlan::Nothing;
    }
    pace.place.set(place_of(address));
    let mut place = pace.here().get();
    pace.unmeasured.set(pace.unmeasured.get().saturating_add(1));
    let early = pace.begun.get() < MEASUREMENTS_AT_ONCE
        || (place.begun < MEASUREMENTS_OF_NEW_PLACE
            && pace.unmeasured.get() >= WINDOWS_PER_MEASUREMENT_OF_NEW_PLACE);
    if !early && now < pace.due.get() {
        return SpeedPlan::Nothing;
    }
    pace.begun.set(pace.begun.get().saturating_add(1));
    pace.unmeasured.set(0);
    pace.due.set(now + MEASUREMENT_DISTANCE_NS);
    place.begun = place.begun.wrapping_add(1).max(1);
    let near = place.begun % MEASUREMENTS_PER_NEAR_ONE == 2;
    // Watches are unbiased but noisy, laps the other way round. So both are made in turns, and a
    // lap after a watch that was not hit.
    let watched = !pace.watchpoint.is_refused()
        && !core::mem::take(&mut place.failed)
        && place.begun.is_multiple_of(2);
    pace.here().set(place);
    if watched && let Some((last, stride, between, seen)) = stride(end, slots) {
        let records = if near {
            RECORDS_OF_NEAR_WATCH
        } else {
            u64::from(
                RECORDS_OF_WATCH << (i32::from(place.longer) + MAX_HALVINGS_OF_WATCH)
                    >> MAX_HALVINGS_OF_WATCH,
            )
        };
        let iterations = (seen * records / between).max(1);
        return SpeedPlan::Watch {
            address: last.wrapping_add(stride.wrapping_mul(iterations)) & !7,
            records: (iterations * between / seen) as u32,
            kind: if near {
                PACE_WATCHED_NEAR
            } else {
                PACE_WATCHED
            },
        };
    }
    SpeedPlan::Lap(if near {
        RECORDS_OF_NEAR_LAP
    } else {
        RECORDS_OF_LAP
    })
}

/// An address that advances steadily in the last slots of a window: its last value, its stride, the
/// number of slots of its last iterations, and the number of these iterations. They are followed
/// back as far as possible, since the minimum of three says little about loops whose iterations
/// differ.
fn stride(end: u64, slots: u64) -> Option<(u64, u64, u64, u64)> {
    let count = slots as usize;
    // SAFETY: the slots were just written by this thread; the memory is its own until it is
    // published.
    let window =
        unsafe { core::slice::from_raw_parts((end - 16 * slots) as *const RingSlot, count) };
    // In a slot that two records share, either payload may advance.
    let tried = (count.saturating_sub(RECORDS_TRIED_FOR_STRIDE)..count)
        .rev()
        .flat_map(|at| [(at, false), (at, true)]);
    for (first, second) in tried.filter(|&(at, second)| !second || window[at].is_pair()) {
        let id = window[first].id;
        let payload = |at: usize| {
            if second {
                window[at].second()
            } else {
                window[at].first()
            }
        };
        let (mut before, mut step, mut seen, mut from) = (payload(first), 0i64, 0u64, first);
        while let Some(at) = (from.saturating_sub(MAX_SLOTS_PER_ITERATION)..from)
            .rev()
            .find(|&at| window[at].id == id)
        {
            let difference = before.wrapping_sub(payload(at)) as i64;
            if difference == 0
                || difference.abs() > MAX_STRIDE_BYTES
                || (seen > 0 && difference != step)
            {
                break;
            }
            (step, before, from) = (difference, payload(at), at);
            seen += 1;
        }
        if seen >= MIN_ITERATIONS_OF_STRIDE {
            return Some((payload(first), step as u64, (first - from) as u64, seen));
        }
    }
    None
}

/// Sets the watchpoint for a thread that is about to continue in the original code at `context`.
pub fn watch(
    header: &Header,
    ring: Ring,
    context: &Context,
    address: u64,
    records: u32,
    kind: u32,
) {
    let pace = &ring.private().pace;
    if !pace.watchpoint.set(header, address) {
        return;
    }
    pace.records.set(records);
    pace.kind.set(kind);
    pace.from.set(context.registers[RIP]);
    pace.since.set(syscall::now_ns());
}

/// True if a signal is that of the watchpoint.
pub fn is_ours(ring: Ring, descriptor: i32) -> bool {
    ring.private().pace.watchpoint.is_ours(descriptor)
}

/// Handles an access to the watched address. All signals are blocked.
pub fn hit(ring: Ring, context: &Context) {
    let now = syscall::now_ns();
    let pace = &ring.private().pace;
    if !pace.watchpoint.clear() {
        return;
    }
    if let Some(header) = crate::sys::process::header() {
        crate::record::budget::spend(header, header.trigger_toll.max(header.signal_ns));
    }
    let took = now.saturating_sub(pace.since.get());
    let records = pace.records.get();
    if took < MAX_NS_OF_WATCH[0] + MAX_NS_OF_WATCH[1] * u64::from(records)
        && context.registers[RIP].abs_diff(pace.from.get()) < MAX_BYTES_TO_WATCHED_INSTRUCTION
    {
        let kind = pace.kind.get();
        pace.result
            .set(mgz_abi::shared_memory::pace(kind, records, took));
        if kind == PACE_WATCHED {
            let mut place = pace.here().get();
            place.longer = (place.longer + 1).min(MAX_DOUBLINGS_OF_WATCH);
            pace.here().set(place);
        }
    } else {
        in_vain(pace);
    }
}

fn in_vain(pace: &Pace) {
    let mut place = pace.here().get();
    place.failed = true;
    place.longer = (place.longer - 1).max(-MAX_HALVINGS_OF_WATCH as i8);
    pace.here().set(place);
}

/// Gives up the current watch, because a window begins or the thread leaves its code.
pub fn give_up(ring: Ring) {
    let pace = &ring.private().pace;
    if pace.watchpoint.clear() {
        in_vain(pace);
    }
}

/// Handles the end of a lap after `slots` of `wanted` slots.
pub fn lapped(ring: Ring, slots: u64, wanted: u64, ns: u64) {
    if slots >= wanted {
        let kind = if wanted == RECORDS_OF_LAP {
            PACE_LAP
        } else {
            PACE_LAP_NEAR
        };
        let result = mgz_abi::shared_memory::pace(kind, slots as u32, ns);
        ring.private().pace.result.set(result);
    }
}

/// Releases the watchpoint.
pub fn end(ring: Ring) {
    give_up(ring);
    forget_parent_event(ring);
}

/// Forgets the parent's event in a forked child.
pub fn forget_parent_event(ring: Ring) {
    let pace = &ring.private().pace;
    let event = pace.watchpoint.forget();
    pace.reset();
    if let Some(event) = event {
        syscall::close(event as isize);
    }
}
