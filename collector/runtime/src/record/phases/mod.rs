//! Phases: which parts of a run are recorded ([`mgz_abi::phases`]).
//!
//! Markers and requested functions are detected by traps ([`traps`]). The thread that hits one
//! switches its whole process. In `burst`, the triggers of all threads are paused while nothing is
//! recorded and keep the rest of their periods, so that a short phase has its share of windows. In
//! `full` and `ring` the probes continue writing: slots that were written outside of phases are
//! dropped when a chunk or lap is full. The thread that hits the marker begins a new chunk or lap
//! at once; the positions of the others are stored ([`Control::boundaries`]).

pub mod traps;

use crate::record::modules;
use crate::record::probe_cursor::commit_region;
use crate::record::thread_ring::{Ring, exclusively, ring_at};
use crate::record::{publish, thread_ring, trigger, window};
use crate::sys::signal_frame::{Context, RIP};
use crate::sys::{process, syscall};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use mgz_abi::module_note::ModuleNote;
use mgz_abi::phases::*;
use mgz_abi::shared_memory::*;

/// Bit set of the reasons why the process does not record: [`FOR_MARKER`], [`FOR_FUNCTION`].
static WAITS: AtomicU32 = AtomicU32::new(0);
/// The process waits for a start marker.
const FOR_MARKER: u32 = 1;
/// The process waits for one of the functions.
const FOR_FUNCTION: u32 = 2;
/// Held by the thread that switches.
static LOCK: AtomicU32 = AtomicU32::new(0);
/// The process has reported its phases to the recorder.
static TELLS: AtomicBool = AtomicBool::new(false);
/// Number of markers of modules so far, by kind.
static STARTS: AtomicU32 = AtomicU32::new(0);
static STOPS: AtomicU32 = AtomicU32::new(0);

/// In a new child: no other thread holds the lock.
pub fn unlock_phases() {
    LOCK.store(0, Ordering::Relaxed);
}

/// Reports a new child, which starts in the state of its parent.
pub fn forked() {
    if TELLS.load(Ordering::Relaxed)
        && let Some(header) = process::header()
    {
        tell(header, if is_waiting() { BEGINS_OFF } else { BEGINS_ON });
    }
}

/// True if the process waits for a marker or a function.
pub fn is_waiting() -> bool {
    WAITS.load(Ordering::Relaxed) != 0
}

/// True if the threads' present work is to be recorded.
pub fn is_on(header: &Header) -> bool {
    !is_waiting() && header.phases.gate.load(Ordering::Relaxed) == GATE_OPEN
}

/// Handles a newly loaded module, none of whose code has run yet.
pub fn take_in(place: &traps::LoadedModule) {
    let Some(header) = process::header().filter(|h| h.mode != MODE_OFF) else {
        return;
    };
    let phases = &header.phases;
    if phases.ignore_markers.load(Ordering::Relaxed) == 0 {
        let markers = markers(place.bias, place.note);
        let of = |what| markers.iter().filter(|m| m.what == what).count();
        STARTS.fetch_add(of(START) as u32, Ordering::Relaxed);
        STOPS.fetch_add(of(STOP) as u32, Ordering::Relaxed);
        phases
            .markers
            .fetch_add(markers.len() as u64, Ordering::Relaxed);
        let left = traps::at_markers(header, place, markers);
        phases.unplaced.fetch_add(left, Ordering::Relaxed);
    }
}

/// Handles a module in which the recorder has looked for functions. None of its code has run yet.
pub fn take_in_functions(place: &traps::LoadedModule) {
    if let Some(header) = process::header().filter(|h| h.mode != MODE_OFF)
        && !entered_before()
    {
        let left = traps::at_functions(header, place, &header.phases);
        header.phases.unplaced.fetch_add(left, Ordering::Relaxed);
    }
}

/// True if the process has already entered such a function.
fn entered_before() -> bool {
    TELLS.load(Ordering::Relaxed) && WAITS.load(Ordering::Relaxed) & FOR_FUNCTION == 0
}

fn markers(bias: u64, note: &ModuleNote) -> &'static [Marker] {
    // SAFETY: the table is part of the module's own loaded segment, which is looked at only while
    // it is loaded.
    unsafe {
        core::slice::from_raw_parts(
            (bias + note.markers) as *const Marker,
            note.marker_count as usize,
        )
    }
}

/// Called when all modules of a new program are known and none of its code has run yet. A program
/// that has start markers waits for the first one, but not if it ran before it was `attached` to.
pub fn begin_phases(attached: bool) {
    let Some(header) = process::header().filter(|h| h.mode != MODE_OFF) else {
        return;
    };
    let phases = &header.phases;
    let by_function = phases.by_function.load(Ordering::Relaxed) != 0;
    let starts = STARTS.load(Ordering::Relaxed) != 0;
    let mut waits = 0;
    if starts && !attached {
        waits |= FOR_MARKER;
    }
    if by_function {
        waits |= FOR_FUNCTION;
    }
    WAITS.store(waits, Ordering::Relaxed);
    let gated = phases.gate.load(Ordering::Relaxed) != GATE_OPEN
        || phases.stop_loads.load(Ordering::Relaxed) != 0;
    if waits != 0 || gated || STOPS.load(Ordering::Relaxed) != 0 {
        TELLS.store(true, Ordering::Relaxed);
        tell(header, if waits != 0 { BEGINS_OFF } else { BEGINS_ON });
    }
    if let Some(ring) = thread_ring::current()
        && !is_on(header)
        && header.mode != MODE_BURST
    {
        ring.control().outside.set(1);
    }
}

/// Reports a change to the recorder.
fn tell(header: &Header, what: u32) {
    const PROCESS_CPU: usize = 2;
    let mut time = [0u64; 2];
    // SAFETY: struct timespec has 16 bytes.
    unsafe {
        syscall::call(
            syscall::nr::CLOCK_GETTIME,
            PROCESS_CPU,
            time.as_mut_ptr() as usize,
            0,
            0,
            0,
            0,
        )
    };
    let number = header.phases.event_count.fetch_add(1, Ordering::Relaxed);
    let row = &header.phases.events[number as usize % EVENTS];
    row.ready.store(0, Ordering::SeqCst);
    row.pid.store(syscall::getpid(), Ordering::Relaxed);
    row.what.store(what, Ordering::Relaxed);
    row.ns.store(syscall::now_ns(), Ordering::Relaxed);
    row.cpu_ns
        .store(time[0] * 1_000_000_000 + time[1], Ordering::Relaxed);
    row.ready.store(number + 1, Ordering::Release);
}

/// Switches the process if a fault is that of a trap, and lets the thread continue. All signals are
/// blocked.
pub fn hit(context: &mut Context) -> bool {
    let Some((what, length)) = traps::at(context.registers[RIP]) else {
        return false;
    };
    if let Some(header) = process::header()
        && !process::borrows_memory()
    {
        let (waits, told) = match what {
            traps::FUNCTION => (WAITS.load(Ordering::Relaxed) & !FOR_FUNCTION, ENTERED),
            START => (WAITS.load(Ordering::Relaxed) & !FOR_MARKER, TURNED_ON),
            _ => (WAITS.load(Ordering::Relaxed) | FOR_MARKER, TURNED_OFF),
        };
        if waits != WAITS.load(Ordering::Relaxed) {
            switch(header, context, waits, told);
        }
        if what == traps::FUNCTION {
            exclusively(&LOCK, traps::take_functions_back);
        }
    } else if what == traps::FUNCTION {
        traps::take_functions_back();
    }
    if what != traps::FUNCTION {
        context.registers[RIP] += u64::from(length);
    }
    true
}

/// Removes the traps at functions, because the process can no longer change its code. Recording
/// then cannot begin at functions that were not entered before.
pub fn give_up() {
    if WAITS.load(Ordering::Relaxed) & FOR_FUNCTION != 0 {
        exclusively(&LOCK, traps::take_functions_back);
        if let Some(header) = process::header() {
            header.phases.unplaced.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The calling thread's ring, if the thread records into it.
fn own_ring() -> Option<Ring> {
    let gs = syscall::gs();
    ring_at(gs).filter(|ring| ring.address == gs && ring.control().tid.get() == syscall::gettid())
}

fn switch(header: &Header, context: &mut Context, waits: u32, told: u32) {
    let own = own_ring();
    exclusively(&LOCK, || {
        let was_on = is_on(header);
        let changes = is_waiting() != (waits != 0);
        let will_be_on = waits == 0 && header.phases.gate.load(Ordering::Relaxed) == GATE_OPEN;
        if was_on != will_be_on && header.mode != MODE_BURST {
            others(own, |ring| note(ring, will_be_on));
        }
        WAITS.store(waits, Ordering::SeqCst);
        if changes {
            tell(header, told);
        }
        if header.mode == MODE_BURST && changes {
            let set = if waits == 0 {
                trigger::thaw
            } else {
                trigger::freeze
            };
            others(own, set);
            own.into_iter().for_each(set);
        }
    });
    let Some(ring) = own else {
        return;
    };
    if header.mode == MODE_BURST {
        if is_waiting() {
            window::leave(ring, context, window::Why::Phase);
        }
    } else if (ring.control().outside.get() == 0) != is_on(header) {
        turn_here(header, ring, context);
    }
}

/// Calls `work` with the rings of the process's other threads.
fn others(own: Option<Ring>, mut work: impl FnMut(Ring)) {
    let pid = syscall::getpid();
    thread_ring::each(|ring| {
        let control = ring.control();
        if own.is_none_or(|own| own.address != ring.address)
            && control.state.load(Ordering::Relaxed) == STATE_LIVE
            && control.pid.get() == pid
        {
            work(ring)
        }
    });
}

/// Stores the position of another thread as a phase boundary.
fn note(ring: Ring, on: bool) {
    let control = ring.control();
    // SAFETY: words of the control page, which the other thread may change.
    let read = |cell: &core::cell::Cell<u64>| unsafe { cell.as_ptr().read_volatile() };
    let (mut base, mut cursor) = (read(&control.base), read(&control.cursor));
    for _ in 0..3 {
        let now = read(&control.base);
        if now == base {
            break;
        }
        (base, cursor) = (now, read(&control.cursor));
    }
    let number = control.boundary_count.load(Ordering::Relaxed);
    if let Some(place) = control.boundaries.get(number as usize) {
        place.store(boundary(base, cursor, on), Ordering::Relaxed);
    }
    control
        .boundary_count
        .store(number.saturating_add(1), Ordering::Release);
}

/// Ends the chunk or lap of the calling thread, which is at a marker or at the entry of a function,
/// so that slots before and after are kept apart.
fn turn_here(header: &Header, ring: Ring, context: &mut Context) {
    let control = ring.control();
    let place = modules::clone_point_at(context.registers[RIP]);
    if let Some(place) = &place {
        commit_region(control, context, &place.state);
    }
    control.guard.set(
        control
            .cursor
            .get()
            .clamp(control.base.get(), control.guard.get()),
    );
    let control = if publish::turn(header, ring, || None) {
        control
    } else {
        publish::give_up(ring);
        ring.spare()
    };
    if let Some(place) = place {
        window::set_out(control, context, &place.state, control.base.get());
    }
}

/// Parts of an ending chunk or lap that belong to phases.
pub struct PhaseSplit {
    count: usize,
    parts: [(u64, u64); BOUNDARIES + 1],
    /// Number of slots in all parts.
    pub slots: u64,
    /// The next chunk or lap begins outside of phases.
    pub outside: bool,
}

impl PhaseSplit {
    /// First slot and end of each part, counted from the base.
    pub fn all(&self) -> &[(u64, u64)] {
        &self.parts[..self.count]
    }
}

/// Parts of the `slots` from the base on that belong to phases. `None` if all of them do and the
/// next slots do as well. Consumes the boundaries.
pub fn split_by_phase(header: &Header, ring: Ring, slots: u64) -> Option<PhaseSplit> {
    let control = ring.control();
    let began_outside = control.outside.get() != 0;
    if control.boundary_count.load(Ordering::Acquire) == 0 && !began_outside && is_on(header) {
        return None;
    }
    Some(exclusively(&LOCK, || {
        let number = control.boundary_count.swap(0, Ordering::Relaxed) as usize;
        let mut boundaries = [0; BOUNDARIES];
        for (to, from) in boundaries.iter_mut().zip(&control.boundaries) {
            *to = from.load(Ordering::Relaxed);
        }
        let known = &boundaries[..number.min(BOUNDARIES)];
        let mut parts = PhaseSplit {
            count: 0,
            parts: [(0, 0); BOUNDARIES + 1],
            slots: 0,
            outside: !is_on(header),
        };
        for part in phase_pieces(control.base.get(), slots, began_outside, known) {
            // Slots behind the last stored boundary cannot be assigned to phases.
            if number > BOUNDARIES && part.1 == slots {
                header
                    .phases
                    .lost
                    .fetch_add(part.1 - part.0, Ordering::Relaxed);
                continue;
            }
            parts.parts[parts.count] = part;
            parts.count += 1;
            parts.slots += part.1 - part.0;
        }
        header
            .phases
            .outside
            .fetch_add(slots - parts.slots, Ordering::Relaxed);
        parts
    }))
}

/// Counts the loads of a stretch, if their number opens or closes the gate: `all` slots from the
/// base on, of which `inside` belong to phases.
pub fn count_loads(header: &Header, ring: Ring, all: u64, inside: u64) {
    let phases = &header.phases;
    let (start, stop) = (
        phases.start_loads.load(Ordering::Relaxed),
        phases.stop_loads.load(Ordering::Relaxed),
    );
    if start == 0 && matches!(stop, 0 | u64::MAX) {
        return;
    }
    let base = ring.control().base.get() as *const mgz_abi::slot::RingSlot;
    let records = |slot: u64| {
        // SAFETY: a slot of this thread's stretch.
        1 + u64::from(unsafe { base.add(slot as usize).read() }.is_pair())
    };
    let loads: u64 = (0..all).map(records).sum();
    // (Stretches in parts are rare; their loads are assumed to be spread evenly.)
    let in_phases = (u128::from(loads) * u128::from(inside) / u128::from(all.max(1))) as u64;
    let before = phases.loads[0].fetch_add(loads - in_phases, Ordering::Relaxed);
    let recorded = phases.loads[1].fetch_add(in_phases, Ordering::Relaxed);
    move_gate(header, before + loads + recorded, recorded + in_phases);
}

/// `burst`: counts the `loads` that a trigger stands for.
pub fn count_trigger(header: &Header, loads: u64) {
    let phases = &header.phases;
    if phases.start_loads.load(Ordering::Relaxed) == 0
        && phases.stop_loads.load(Ordering::Relaxed) == 0
    {
        return;
    }
    let inside = if is_on(header) { loads } else { 0 };
    let before = phases.loads[0].fetch_add(loads - inside, Ordering::Relaxed);
    let recorded = phases.loads[1].fetch_add(inside, Ordering::Relaxed);
    move_gate(header, before + recorded + loads, recorded + inside);
}

fn move_gate(header: &Header, all: u64, inside: u64) {
    let phases = &header.phases;
    let (start, stop) = (
        phases.start_loads.load(Ordering::Relaxed),
        phases.stop_loads.load(Ordering::Relaxed),
    );
    let change = |from, to, told| {
        if phases
            .gate
            .compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed)
            .is_ok()
        {
            tell(header, told);
        }
    };
    if start != 0 && all >= start {
        change(GATE_WAITS, GATE_OPEN, GATE_OPENED);
    }
    if stop != 0 && inside >= stop {
        change(GATE_OPEN, GATE_OVER, GATE_CLOSED);
    }
}
