//! Handling of a full ring: the chunk or window is passed to the recorder, and the probe that hit
//! the guard page continues in the next one.

use crate::record::phases;
use crate::record::phases::PhaseSplit;
use crate::record::stack_copy::ThreadPosition;
use crate::record::thread_ring::Ring;
use crate::record::{stack_copy, thread_ring};
use crate::sys::{process, syscall};
use core::sync::atomic::Ordering;
use mgz_abi::shared_memory::*;

/// Longest wait for the recorder before its health is checked. Source: Chosen.
const WAIT_FOR_RECORDER_NS: u64 = 50_000_000;

/// Sets cursor, base and guard for the next chunk or lap. The place must be free.
pub fn begin_stretch(header: &Header, ring: Ring) {
    let control = ring.control();
    if header.mode == MODE_RING {
        if control.period_before.get() == 0 {
            control.begin_ns.set(syscall::now_ns());
            // (A distance that was drawn before stays unchanged while nothing is recorded.)
            if !ring.private().drawn.replace(true) {
                draw(header, control);
            }
        }
        control.guard.set(thread_ring::lap_end(header, ring));
        control.base.set(
            control.guard.get()
                - 16 * match control.outside.get() {
                    0 => thread_ring::next_lap(
                        header,
                        control.stretch.get(),
                        control.period_before.get(),
                    ),
                    // Nothing is counted, so the lap is as long as possible.
                    _ => thread_ring::next_lap(header, 1 << 18, 0),
                },
        );
    } else {
        let place = control.published.load(Ordering::Relaxed) as usize % CHUNKS;
        control.begin_ns.set(syscall::now_ns());
        control.base.set(ring.chunk(place, header) as u64);
        control.guard.set(control.base.get() + header.chunk_bytes);
    }
    control.cursor.set(control.base.get());
}

/// Draws the distance to the end of the next window. There is one window in each period, anywhere
/// in it, so that samples cannot be in step with the program; the distance depends on the thread
/// slot and the number of the window alone, so that runs can be repeated.
fn draw(header: &Header, control: &Control) {
    let most = header.period.saturating_sub(header.window);
    // splitmix64 (Steele, Lea and Flood 2014).
    let mut x = (u64::from(control.index.get()) << 40 ^ control.windows.get())
        .wrapping_add(1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^= x >> 31;
    let late = ((u128::from(x) * (u128::from(most) + 1)) >> 64) as u64;
    control.stretch.set(if control.windows.get() == 0 {
        header.window + late
    } else {
        header.period + late - control.late.get()
    });
    control.late.set(late);
    control.windows.set(control.windows.get() + 1);
}

/// Passes the slots from `base` to the guard to the recorder, and begins the next stretch. `at`:
/// the thread's position, if known. Returns false if recording is over for this thread.
pub fn turn(header: &Header, ring: Ring, at: impl FnOnce() -> Option<ThreadPosition>) -> bool {
    if crate::sys::seccomp_state::is_sealed() {
        return false;
    }
    let control = ring.control();
    if control.tid.get() != syscall::gettid() {
        process::count(count::FOREIGN_THREADS, 1);
        return false;
    }
    let slots = (control.guard.get() - control.base.get()) / 16;
    if let Some(parts) = phases::split_by_phase(header, ring, slots) {
        phases::count_loads(header, ring, slots, parts.slots);
        if !publish_parts(header, ring, slots, &parts) {
            return false;
        }
        begin_stretch(header, ring);
        return true;
    }
    phases::count_loads(header, ring, slots, slots);
    if header.mode == MODE_RING {
        if control.period_before.get() + slots >= control.stretch.get() {
            if !wait_for_place(header, ring) {
                return false;
            }
            let window = header.window.min(slots);
            if let Some(at) = at() {
                let first_slot = control.slots_before.get() + slots - window;
                stack_copy::copy_stack(header, ring, first_slot, at);
            }
            publish_window(
                header,
                ring,
                control.guard.get(),
                window,
                slots,
                CAUSE_WHOLE,
            );
            control.period_before.set(0);
            ring.private().drawn.set(false);
        } else {
            control
                .period_before
                .set(control.period_before.get() + slots);
        }
        control.slots_before.set(control.slots_before.get() + slots);
    } else {
        publish_chunk(header, ring, slots, CAUSE_WHOLE);
        control.slots_before.set(control.slots_before.get() + slots);
        if !wait_for_place(header, ring) {
            return false;
        }
    }
    if header.stop.load(Ordering::Relaxed) != 0 {
        process::count(count::STOPPED, 1);
        return false;
    }
    begin_stretch(header, ring);
    true
}

/// Publishes the parts of a chunk that belong to phases, and drops the others. The parts of a lap
/// are counted, and nothing is published. The next slots do not follow directly in the program, so
/// one slot number is left out.
fn publish_parts(header: &Header, ring: Ring, slots: u64, parts: &PhaseSplit) -> bool {
    let control = ring.control();
    let before = control.slots_before.get();
    if header.mode == MODE_RING {
        control
            .period_before
            .set(control.period_before.get() + parts.slots);
        control.slots_before.set(before + parts.slots);
        if control.period_before.get() >= control.stretch.get() {
            // The window at this lap's end would be incomplete.
            control.period_before.set(0);
            ring.private().drawn.set(false);
        }
    } else {
        let base = control.base.get();
        let place = control.published.load(Ordering::Relaxed) as usize % CHUNKS;
        let mut number = before;
        for &(from, to) in parts.all() {
            // Each part takes a place in the queue; the recorder counts more waiting chunks than
            // there are places as damage.
            if !wait_for_place(header, ring) {
                return false;
            }
            number += u64::from(number != before || from != 0);
            control.base.set(base + 16 * from);
            control.slots_before.set(number);
            // (After a whole chunk the recorder clears the ids, see below.)
            let cause = if to == slots {
                CAUSE_WHOLE
            } else {
                CAUSE_PHASE
            };
            let end = syscall::now_ns();
            announce(
                header,
                control,
                describe(header, ring, place, to - from, cause, end),
            );
            number += to - from;
        }
        control.base.set(base);
        control.slots_before.set(number + 1);
        // If a thread is killed, the recorder takes the content behind its cursor for slots, unless
        // the ids are cleared.
        match *parts.all() {
            [] => clear_ids(base, slots),
            [(from, to)] if to == slots => clear_ids(base, from),
            // All parts lie in one place, which is free once the recorder has read all of them.
            _ if !wait_for(header, ring, 1) => return false,
            _ => clear_ids(base, slots),
        }
        if !wait_for_place(header, ring) {
            return false;
        }
    }
    control.outside.set(parts.outside.into());
    if header.stop.load(Ordering::Relaxed) != 0 {
        process::count(count::STOPPED, 1);
        return false;
    }
    true
}

fn clear_ids(base: u64, slots: u64) {
    let end = base + 16 * slots;
    for line in (base & !(CACHE_LINE as u64 - 1)..end).step_by(CACHE_LINE) {
        for slot in (line..line + CACHE_LINE as u64)
            .step_by(16)
            .filter(|s| (base..end).contains(s))
        {
            // SAFETY: a slot of this thread's chunk.
            unsafe { (*(slot as *mut mgz_abi::slot::RingSlot)).id = 0 };
        }
    }
}

/// Publishes the ring's content although the ring is not full (the thread has ended, `exec`
/// follows), and leaves the ring ready for a new stream.
pub fn publish_rest(header: &Header, ring: Ring, cause: u32) {
    let control = ring.control();
    let slots = (control.cursor.get() - control.base.get()) / 16;
    if header.mode == MODE_BURST {
        if crate::record::window::is_lap(ring) {
            // The slots of a lap belong to no window.
            return crate::record::window::rest(header, ring);
        }
        let period = crate::record::window::period(ring);
        publish_burst(header, ring, slots, cause, syscall::now_ns(), period);
        return crate::record::window::rest(header, ring);
    }
    if let Some(parts) = phases::split_by_phase(header, ring, slots) {
        publish_parts(header, ring, slots, &parts);
        control.period_before.set(0);
        ring.private().drawn.set(false);
        return begin_stretch(header, ring);
    }
    if header.mode == MODE_RING {
        if wait_for_place(header, ring) {
            publish_window(
                header,
                ring,
                control.cursor.get(),
                header.window.min(slots),
                slots,
                cause,
            );
        }
    } else {
        publish_chunk(header, ring, slots, cause);
        wait_for_place(header, ring);
    }
    control.slots_before.set(control.slots_before.get() + slots);
    control.period_before.set(0);
    ring.private().drawn.set(false);
    begin_stretch(header, ring);
}

fn publish_chunk(header: &Header, ring: Ring, slots: u64, cause: u32) {
    let control = ring.control();
    let place = control.published.load(Ordering::Relaxed) as usize % CHUNKS;
    announce(
        header,
        control,
        describe(header, ring, place, slots, cause, syscall::now_ns()),
    );
}

/// Description of the slots from `base` on, in the current chunk.
fn describe(
    header: &Header,
    ring: Ring,
    place: usize,
    slots: u64,
    cause: u32,
    end_ns: u64,
) -> ChunkInfo {
    let control = ring.control();
    ChunkInfo {
        pid: control.pid.get(),
        tid: control.tid.get(),
        cause: cause as u16,
        slots: slots as u32,
        offset: (control.base.get() - ring.chunk(place, header) as u64) as u32,
        place: place as u16,
        first_slot: control.slots_before.get(),
        executed: control.slots_before.get() + slots,
        begin_ns: control.begin_ns.get(),
        end_ns,
        ..ChunkInfo::default()
    }
}

/// Publishes a window of `burst`. The thread was in clones from `begin_ns` to `end_ns`; the
/// window's triggers come one per `period`.
pub fn publish_burst(
    header: &Header,
    ring: Ring,
    slots: u64,
    cause: u32,
    end_ns: u64,
    period: u64,
) {
    let control = ring.control();
    if slots == 0 {
        return process::count(count::EMPTY_WINDOWS, 1);
    }
    let place = thread_ring::place_of(header, ring, control.base.get());
    let info = ChunkInfo {
        pace: crate::record::speed_probe::take_pace(ring),
        period: ChunkInfo::period_bits(period),
        ..describe(header, ring, place, slots, cause, end_ns)
    };
    control.chunks[(control.published.load(Ordering::Relaxed) % QUEUE as u64) as usize].set(info);
    // The slots of the next window do not follow directly, so one slot number is left out.
    control
        .slots_before
        .set(control.slots_before.get() + slots + 1);
    let published = control.published.fetch_add(1, Ordering::Release) + 1;
    header.doorbell.fetch_add(1, Ordering::Release);
    // At the requested rate the recorder polls often enough; it is woken only if the queue fills up
    // anyway.
    let waiting = (published as u32).wrapping_sub(control.drained.load(Ordering::Relaxed));
    if waiting > header.places / 4 * 3 {
        syscall::futex_wake(header.doorbell.as_ptr());
    }
}

/// Copies the last `window` slots before `end` into the queue.
fn publish_window(header: &Header, ring: Ring, end: u64, window: u64, stretch: u64, cause: u32) {
    let control = ring.control();
    let place = control.published.load(Ordering::Relaxed) as usize % CHUNKS;
    let window = window.min(header.chunk_bytes / 16);
    // SAFETY: the window is inside the lap, and a chunk place holds a window; both are mapped,
    // and the recorder does not touch a place that is not published.
    unsafe {
        core::ptr::copy_nonoverlapping(
            (end - 16 * window) as *const u8,
            ring.chunk(place, header) as *mut u8,
            16 * window as usize,
        );
    }
    let now = syscall::now_ns();
    let period = (control.period_before.get() + stretch).max(1);
    let begin = now
        - (u128::from(now - control.begin_ns.get().min(now)) * u128::from(window)
            / u128::from(period)) as u64;
    let executed = control.slots_before.get() + stretch;
    let info = ChunkInfo {
        pid: control.pid.get(),
        tid: control.tid.get(),
        cause: cause as u16,
        slots: window as u32,
        offset: 0,
        place: place as u16,
        first_slot: executed - window,
        executed,
        begin_ns: begin,
        end_ns: now,
        ..ChunkInfo::default()
    };
    announce(header, control, info);
}

fn announce(header: &Header, control: &Control, info: ChunkInfo) {
    control.chunks[(control.published.load(Ordering::Relaxed) % QUEUE as u64) as usize].set(info);
    control.published.fetch_add(1, Ordering::Release);
    header.doorbell.fetch_add(1, Ordering::Release);
    syscall::futex_wake(header.doorbell.as_ptr());
}

/// Waits until the queue has a free place. Nothing is dropped while the recorder lives. Returns
/// false if it does not.
fn wait_for_place(header: &Header, ring: Ring) -> bool {
    wait_for(header, ring, CHUNKS as u32)
}

/// Waits until fewer than `most` chunks are waiting.
fn wait_for(header: &Header, ring: Ring, most: u32) -> bool {
    let control = ring.control();
    loop {
        let drained = control.drained.load(Ordering::Acquire);
        let published = control.published.load(Ordering::Relaxed);
        if (published as u32).wrapping_sub(drained) < most {
            return true;
        }
        syscall::futex_wait(control.drained.as_ptr(), drained, WAIT_FOR_RECORDER_NS);
        if control.drained.load(Ordering::Acquire) == drained
            && !syscall::process_exists(header.recorder)
        {
            process::count(count::STOPPED, 1);
            return false;
        }
    }
}

/// Lets the calling thread's probes write into the spare ring from now on.
pub fn give_up(ring: Ring) {
    thread_ring::begin_spare(ring);
    // The probe that hit the guard page restores its borrowed registers from the page at %gs.
    ring.spare().set_spilled(ring.control().spilled());
    // SAFETY: the spare control page is set up.
    unsafe { syscall::set_gs(core::ptr::from_ref(ring.spare()) as usize) };
}
