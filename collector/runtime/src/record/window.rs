//! Windows of `burst`: a thread that a trigger has interrupted in original code continues in the
//! clone until its records fill a window, and is then moved back.
//!
//! A window is a chunk of the thread's queue, filled such that it ends at the guard page: the first
//! store behind the window faults, and the fault's handler moves the thread to the original
//! instruction. While no window is open, the cursor is at the guard page, so that clone code that
//! is entered nevertheless (such as a landing pad of a closed window) is left at its first record.
//!
//! A window holds a gap-free part of the thread's execution in clones. If control goes to code
//! without a clone ([`goes_away`]), it must soon return to the same address ([`comes_back`]);
//! otherwise the window ends where control left the clone.

use crate::record::params::{MAX_PREFETCHED_BYTES, MAX_STAY_NS};
use crate::record::speed_probe::SpeedPlan;
use crate::record::thread_ring::Ring;
use crate::record::transfer_hooks::Hooks;
use crate::record::{
    modules, reuse_watch, speed_probe, stack_copy, thread_ring, transfer_hooks, trigger as triggers,
};
use crate::sys::flags::{ALIGNMENT, PlainFlags, TRAP};
use crate::sys::signal_frame::{Context, FLAGS, RIP, RSP};
use crate::sys::{clock, process, syscall};
use core::sync::atomic::Ordering;
use mgz_abi::shared_memory::*;

/// Why a window ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The window has all its records.
    Full,
    /// A signal arrived that the program handles.
    Signal,
    /// Control went to code without a clone and did not return soon, or not to the same address.
    Outside,
    /// Control returned to code without a clone.
    Returned,
    /// Code without a clone received the address of a function, which it might call.
    Callback,
    /// The code that follows has no clone.
    NoClone,
    /// A recorded phase is over.
    Phase,
}

impl Why {
    fn cause(self) -> u32 {
        match self {
            Why::Full => CAUSE_WHOLE,
            Why::Signal => CAUSE_SIGNAL,
            Why::Outside => CAUSE_OUTSIDE,
            Why::Returned => CAUSE_RETURNED,
            Why::Callback => CAUSE_CALLBACK,
            Why::NoClone => CAUSE_NO_CLONE,
            Why::Phase => CAUSE_PHASE,
        }
    }
}

/// A thread's window; is in [`crate::record::thread_ring::Private`]. Zero is "closed".
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct ThreadWindow {
    open: bool,
    /// Control is in code without a clone.
    away: bool,
    /// Address of the stack slot with the return address into the clone.
    slot: u64,
    /// Value of that slot.
    back: u64,
    /// The cursor when control left the clone.
    cursor: u64,
    /// The time stamp counter at that moment.
    since: u64,
    /// Time of the window spent in code without a clone, nanoseconds.
    outside: u64,
    /// Slots of the lap, if this is a lap of `speed_probe` instead of a window; else 0.
    lap: u64,
    /// Period of the triggers when this window was opened.
    period: u64,
    /// Duration of the copy of the stack, nanoseconds.
    copy: u64,
}

/// True if the thread has an open window.
pub fn is_open(ring: Ring) -> bool {
    ring.private().window.get().open
}

/// True if the thread is in a lap, whose slots are not kept.
pub fn is_lap(ring: Ring) -> bool {
    ring.private().window.get().lap != 0
}

/// Period of the triggers when the thread's window was opened.
pub fn period(ring: Ring) -> u64 {
    ring.private().window.get().period
}

/// Puts the thread's control page in the state between windows.
pub fn rest(header: &Header, ring: Ring) {
    let control = ring.control();
    let guard = ring.chunk(0, header) as u64 + header.chunk_bytes;
    control.base.set(guard);
    control.guard.set(guard);
    control.cursor.set(guard);
    ring.private().window.set(ThreadWindow::default());
    transfer_hooks::set(control, Hooks::Closed);
}

/// True if a thread with these flags must not run a clone: its probes make unaligned accesses and
/// would be single-stepped.
pub fn keeps_out(flags: u64) -> bool {
    flags & (ALIGNMENT | TRAP) != 0
}

/// Moves a thread that was interrupted in original code into the clone. `period`: that of the
/// triggers. Returns the outcome as an index of [`count`].
pub fn open_window(header: &Header, ring: Ring, context: &mut Context, period: u64) -> usize {
    if keeps_out(context.registers[FLAGS]) {
        return count::TRIGGERS_OUTSIDE;
    }
    let control = ring.control();
    crate::record::table_carry::carry_out(context, modules::code(context.registers[RIP]));
    let Some((clone, state)) = modules::first_clone_instruction(context.registers[RIP]) else {
        tell_elsewhere(header, ring, context.registers[RIP], period);
        return count::TRIGGERS_OUTSIDE;
    };
    if triggers::is_behind_call(ring, context.registers[RIP]) {
        return count::TRIGGERS_OUTSIDE;
    }
    let Some(place) = thread_ring::free_place(header, ring) else {
        if !syscall::process_exists(header.recorder) {
            // The recorder is gone, so no place will become free: the next trigger is the last.
            header.stop.store(1, Ordering::Relaxed);
        }
        return count::TRIGGERS_NO_ROOM;
    };
    let copy = stack_copy::copy_stack(
        header,
        ring,
        control.slots_before.get(),
        stack_copy::ThreadPosition {
            ip: context.registers[RIP],
            sp: context.registers[RSP],
            bp: *context.register(stack_copy::RBP),
        },
    );
    control
        .guard
        .set(ring.chunk(place, header) as u64 + header.chunk_bytes);
    control.base.set(control.guard.get() - 16 * header.window);
    control
        .filling
        .set(control.published.load(Ordering::Relaxed));
    prefetch(control.base.get(), control.guard.get());
    for [register, place] in state.saved {
        if register != mgz_abi::address_map::NO_REG {
            control.spill[place as usize % mgz_abi::probe::SPILL_SLOTS]
                .set(*context.register(register));
        }
    }
    set_out(control, context, &state, control.base.get());
    context.registers[RIP] = clone;
    transfer_hooks::set(control, Hooks::Window);
    ring.private().window.set(ThreadWindow {
        open: true,
        period,
        copy,
        ..ThreadWindow::default()
    });
    control.begin_ns.set(clock::now_ns());
    count::WINDOWS
}

/// Sets the control page so that the thread's records from a point in a clone on begin at `base`,
/// which is a free slot.
pub fn set_out(
    control: &Control,
    context: &mut Context,
    state: &mgz_abi::address_map::ProbeState,
    base: u64,
) {
    // Slots of the region before the present point lie before the base and are never written.
    let mut start = base - 16 * u64::from(state.slots_done);
    if state.flags & mgz_abi::address_map::STATE_HALF != 0 {
        // SAFETY: a slot in this thread's ring.
        unsafe {
            (base as *mut mgz_abi::slot::RingSlot).write(crate::record::signals::SECOND_ONLY_MARK)
        };
        start += 16;
    }
    control.cursor.set(start);
    if state.base_reg != mgz_abi::address_map::NO_REG {
        *context.register(state.base_reg) = start + 16 * u64::from(state.base_ahead);
    }
}

/// Reports that a trigger found a thread in code without a clone at this address, so that the user
/// learns which code that is.
fn tell_elsewhere(header: &Header, ring: Ring, address: u64, period: u64) {
    let number = header.elsewhere_count.fetch_add(1, Ordering::Relaxed);
    let entry = &header.elsewhere[number as usize % ELSEWHERE_ENTRIES];
    entry.ready.store(0, Ordering::SeqCst);
    entry.address.store(address, Ordering::Relaxed);
    entry.period.store(period, Ordering::Relaxed);
    entry.time_ns.store(clock::now_ns(), Ordering::Relaxed);
    let process = u64::from(ring.control().pid.get());
    entry.process.store(process, Ordering::Relaxed);
    entry.ready.store(number + 1, Ordering::Release);
}

/// Prefetches the memory of a window, which the recorder has read on another processor, while the
/// entry into the clone is prepared. Only the first bytes are prefetched, since the processor keeps
/// few requests in flight.
fn prefetch(from: u64, to: u64) {
    for line in (from..to.min(from + MAX_PREFETCHED_BYTES)).step_by(64) {
        // SAFETY: a hint, which cannot fault.
        unsafe {
            core::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags))
        };
    }
}

/// Ends the window, if one is open, and publishes its committed slots.
fn close(ring: Ring, why: Why, now: u64) {
    let Some(header) = process::header() else {
        return;
    };
    let window = ring.private().window.get();
    if !window.open {
        return;
    }
    let control = ring.control();
    let mut end = control.cursor.get();
    let mut why = why;
    let mut end_ns = now;
    if window.away {
        end_ns = now.saturating_sub(clock::since(window.since));
        // Records after that cursor were not reached through the expected return.
        end = end.min(window.cursor);
        if why == Why::Full {
            why = Why::Outside;
        }
    }
    let mut slots = end.clamp(control.base.get(), control.guard.get()) - control.base.get();
    let repeats = || {
        let first = control.base.get() as *const mgz_abi::slot::RingSlot;
        // SAFETY: the window's first slot, in this thread's ring.
        unsafe { first.read_volatile() }.id == mgz_abi::slot::MARK_REPEAT
    };
    if slots == 16 && repeats() {
        // The record that the mark belongs to was not completed.
        slots = 0;
    }
    let inside = end_ns.saturating_sub(control.begin_ns.get() + window.outside);
    if window.lap != 0 {
        crate::record::budget::spend(header, crate::record::budget::added(inside, window.lap));
        speed_probe::lapped(ring, slots / 16, window.lap, inside);
        return rest(header, ring);
    }
    crate::record::budget::window(header, inside, slots / 16, window.copy);
    control.cursor.set(control.base.get() + slots);
    // Time spent outside of clones is not part of the window.
    control
        .begin_ns
        .set((control.begin_ns.get() + window.outside).min(end_ns));
    crate::record::publish::publish_burst(
        header,
        ring,
        slots / 16,
        why.cause(),
        end_ns,
        window.period,
    );
    rest(header, ring);
}

/// [`close`] for code that signals may interrupt.
pub fn close_in_hook(ring: Ring, why: Why) {
    if !is_open(ring) {
        return;
    }
    let _flags = PlainFlags::hold();
    let old = syscall::sigprocmask(0, Some(!0));
    close(ring, why, syscall::now_ns());
    if let Ok(old) = old {
        let _ = syscall::sigprocmask(2, Some(old));
    }
}

/// Ends the window of a thread in code without a clone that must not return into one: it returns to
/// the original.
pub fn leave_for_good(ring: Ring) {
    let window = ring.private().window.get();
    let slot = window.slot as *mut u64;
    if window.open && window.away {
        // SAFETY: a slot on the thread's own stack, changed only if it still holds that return
        // address.
        unsafe {
            if syscall::is_readable(slot as usize, 8)
                && slot.read() == window.back
                && let Some(original) = modules::original_of_back(window.back)
            {
                slot.write(original);
            }
        }
    }
    close_in_hook(ring, Why::Outside);
}

/// Ends the window of a thread interrupted at `context`, and moves it to the original if it is in a
/// clone. All signals are blocked.
pub fn leave(ring: Ring, context: &mut Context, why: Why) {
    leave_at(ring, context, why, syscall::now_ns());
}

/// [`leave`], at the time `now`.
fn leave_at(ring: Ring, context: &mut Context, why: Why, now: u64) {
    let rip = context.registers[RIP];
    if modules::in_clone(rip) {
        let Some(place) = modules::clone_point_at(rip) else {
            process::count(count::LOST_STATES, 1);
            return;
        };
        let control = ring.control();
        if is_open(ring) {
            crate::record::probe_cursor::commit_region(control, context, &place.state);
        }
        for [register, slot] in place.state.saved {
            if register != mgz_abi::address_map::NO_REG {
                *context.register(register) =
                    control.spill[slot as usize % mgz_abi::probe::SPILL_SLOTS].get();
            }
        }
        crate::record::signals::take_back(context, &place.state);
        context.registers[RIP] = place.orig;
    }
    close(ring, why, now);
}

/// Called when a probe of the clone has hit the guard page: the window (or lap) is full. The thread
/// continues in the original code, unless the speed of the clone is to be measured.
pub fn full(header: &Header, ring: Ring, context: &mut Context) {
    let control = ring.control();
    let window = ring.private().window.get();
    let whole = header.stop.load(Ordering::Relaxed) == 0
        && window.open
        && window.lap == 0
        && control.guard.get() - control.base.get() == 16 * header.window;
    let now = syscall::now_ns();
    // With triggers by loads no speeds are needed.
    let plan = if whole && !triggers::by_loads(header) {
        speed_probe::plan_measurement(
            ring,
            context.registers[RIP],
            control.guard.get(),
            header.window,
            now,
        )
    } else {
        SpeedPlan::Nothing
    };
    if let SpeedPlan::Lap(slots) = plan
        && ring.address < 1 << 32
        && let Some(place) = modules::clone_point_at(context.registers[RIP])
    {
        crate::record::probe_cursor::commit_region(control, context, &place.state);
        close(ring, Why::Full, now);
        return begin_lap(header, ring, slots, context);
    }
    let used = whole
        .then(|| reuse_watch::plan_watch(header, ring, context, control.guard.get(), header.window))
        .flatten();
    leave_at(ring, context, Why::Full, now);
    if let Some(used) = used {
        reuse_watch::begin_watch(header, ring, used);
    }
    if let SpeedPlan::Watch {
        address,
        records,
        kind,
    } = plan
    {
        speed_probe::watch(header, ring, context, address, records, kind);
    }
}

/// Lets the thread continue in the clone with the interrupted store, in unused memory.
fn begin_lap(header: &Header, ring: Ring, slots: u64, context: &mut Context) {
    let control = ring.control();
    let end = thread_ring::spare_end(ring);
    control.guard.set(end);
    control.base.set(end - 16 * slots);
    for page in (control.base.get()..end).step_by(PAGE_SIZE) {
        // SAFETY: the spare ring, which is never read. Its pages are touched now, so that no page
        // fault is timed.
        unsafe { (page as *mut u64).write_volatile(0) };
    }
    // If the thread is killed, the recorder must not take the lap for a window.
    control
        .filling
        .set(control.published.load(Ordering::Relaxed).wrapping_sub(1));
    if !crate::record::signals::go_on(control, control.base.get(), context) {
        return rest(header, ring);
    }
    transfer_hooks::set(control, Hooks::Window);
    ring.private().window.set(ThreadWindow {
        open: true,
        lap: slots,
        ..ThreadWindow::default()
    });
    control.begin_ns.set(syscall::now_ns());
}

/// Handles a call of code without a clone. Returns false if the window had to be closed.
pub fn goes_away(ring: Ring, slot: u64, back: u64) -> bool {
    let cursor = ring.control().cursor.get();
    let window = ring.private().window.get();
    if window.away {
        close_in_hook(ring, Why::Outside);
        return false;
    }
    ring.private().window.set(ThreadWindow {
        away: true,
        slot,
        back,
        cursor,
        since: clock::ticks(),
        ..window
    });
    true
}

/// Handles a return from code without a clone. Returns true if the window may continue: the return
/// address and the time are as expected.
pub fn comes_back(ring: Ring, slot: u64, back: u64) -> bool {
    let mut window = ring.private().window.get();
    if !window.away || window.slot != slot || window.back != back {
        return false;
    }
    let stay = clock::since(window.since);
    if stay < MAX_STAY_NS {
        window.away = false;
        window.outside += stay;
        ring.private().window.set(window);
    }
    stay < MAX_STAY_NS
}

/// Handles a trigger: opens a window, or checks the open one. `period`: that of the triggers. All
/// signals are blocked. Returns the outcome as an index of [`count`].
pub fn trigger(ring: Ring, context: &mut Context, period: u64) -> usize {
    let Some(header) = process::header() else {
        return count::TRIGGERS_BUSY;
    };
    process::count(count::TRIGGERS, 1);
    if syscall::gs() != ring.address || header.stop.load(Ordering::Relaxed) != 0 {
        return count::TRIGGERS_BUSY;
    }
    let rip = context.registers[RIP];
    if modules::in_clone(rip) || transfer_hooks::interrupted(rip) {
        return count::TRIGGERS_BUSY;
    }
    speed_probe::give_up(ring);
    let window = ring.private().window.get();
    if window.open && window.away {
        if modules::first_clone_instruction(rip).is_some() {
            // Code with a clone was called through a pointer that was not among the arguments, or
            // reached by another path. Its loads are missing, so the window ended when control left
            // the clone.
            close(ring, Why::Callback, syscall::now_ns());
            return open_window(header, ring, context, period);
        }
        if clock::since(window.since) < MAX_STAY_NS {
            return count::TRIGGERS_BUSY;
        }
        close(ring, Why::Outside, syscall::now_ns());
        if let Some(header) = process::header() {
            tell_elsewhere(header, ring, rip, period);
        }
        return count::TRIGGERS_OUTSIDE;
    }
    if window.open {
        // The thread has left the clone unnoticed: it was moved there between the read of a jump
        // table and the jump, which led to the original code.
        close(ring, Why::NoClone, syscall::now_ns());
    }
    open_window(header, ring, context, period)
}
