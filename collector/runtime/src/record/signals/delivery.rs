//! Start and end of a handler of the program: its view of the interrupted thread, and the thread's
//! state after its return.

use crate::record::probe_cursor::commit_region;
use crate::record::signals::actions::burst;
use crate::record::signals::entry::choose_way_back;
use crate::record::signals::{actions, *};
use crate::record::thread_ring::Ring;
use crate::record::{modules, publish, thread_ring, transfer_hooks, trigger, window};
use crate::sys::errno::EINTR;
use crate::sys::signal_frame::{Context, FLAGS, Info, RAX, REGISTERS, RIP, RSP};
use crate::sys::syscall::KernelAction;
use crate::sys::{flags, process, rseq_area, syscall};
use mgz_abi::shared_memory::count;
use mgz_abi::slot::RingSlot;

/// State that is kept while a handler of the program runs.
pub(crate) struct Delivery {
    signal: i32,
    /// The thread was recording.
    recording: bool,
    /// The ring and place in the clone that were interrupted.
    interrupted: Option<(Ring, modules::ClonePoint)>,
    /// Registers as the clone had them, and as the handler sees them.
    before: [u64; REGISTERS],
    shown: [u64; REGISTERS],
    spill: [u64; mgz_abi::probe::SPILL_SLOTS],
    /// Shield of the thread before this handler.
    outer: Shield,
    /// Content of the slot that the interrupted probe may have begun to write; see [`begun`].
    begun: RingSlot,
}

/// Signals with the address of a failed instruction or access: SIGILL, SIGTRAP, SIGBUS, SIGFPE,
/// SIGSEGV, and SIGSYS (for the system call that a filter refused).
const FAULTS: u64 = 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8 | 1 << 11 | 1 << 31;
const SIGTRAP: usize = 5;
/// `si_code` of a step of the trap flag.
const TRAP_TRACE: i32 = 2;
/// SIGABRT, whose handlers report crashes like those of faults.
const ABORTS: u64 = 1 << 6;
/// Result of [`deliver`]: the handler returns to the kernel itself.
pub(crate) const DIRECT: usize = 2;
/// Result of [`deliver`]: the handler is called from code of the file, which unwinders know.
pub(crate) const THROUGH_FILE: usize = 3;

/// The addresses to enter: the program's handler, and the file's code that calls it
/// (`mgz_abi::probe::HANDLER_CALL`); then the signals to block.
pub(crate) type Entered = [usize; 3];

/// The calling thread's ring, unless it is still its creator's: that of a thread that a system call
/// has just created.
fn own_ring() -> Option<Ring> {
    let sealed = crate::sys::seccomp_state::is_sealed();
    thread_ring::current().filter(|ring| {
        syscall::gs() != ring.address || sealed || ring.control().tid.get() == syscall::gettid()
    })
}

/// Prepares the frame for the program's handler. Returns 0 if none is to run, 1 if `entered` holds
/// the handler, [`DIRECT`] if the handler in `entered` needs no work after its return,
/// [`THROUGH_FILE`] if it is to be called from the file's code, or the address of a moved frame on
/// which to start again.
pub(crate) unsafe extern "C" fn deliver(
    signal: i32,
    info: *mut Info,
    context: *mut Context,
    entered: *mut Entered,
) -> usize {
    // SAFETY: the kernel's frame.
    let c = unsafe { &mut *context };
    let s = signal as usize & 127;
    // SAFETY: as above.
    unsafe { choose_way_back(context) };
    // SAFETY: as above.
    let is_step = s == SIGTRAP && unsafe { (*info).code } == TRAP_TRACE;
    if is_step {
        flags::program_steps_itself();
        // The runtime's replacement of a function of the C library, or its entry stub, is not code
        // of the program.
        if process::is_own_code(c.registers[RIP]) {
            return 0;
        }
    }
    #[cfg(mgz_cdylib)]
    crate::record::time_mark::back_out(c);
    let frame = context as usize - 8;
    let ring = own_ring();
    let action = actions::action_of_signal(s);
    let came = c.registers[RIP];
    const OWN_STACKS: usize = thread_ring::HOOK_STACK + thread_ring::SIGNAL_STACK;
    if ring.is_some_and(|r| (context as usize).wrapping_sub(r.hook_stack()) < OWN_STACKS) {
        transfer_hooks::settle_interrupted_hook(c);
        return program_stack::move_frame(context, &action);
    }
    if action.flags & SA_RESETHAND != 0 {
        actions::reset(s);
    }
    if action.handler == SIG_DFL || action.handler == SIG_IGN {
        // Another thread has changed the action since the kernel chose this handler.
        return 0;
    }
    if let Some(ring) = ring {
        transfer_hooks::settle_interrupted_hook(c);
        leave_window(ring, c);
    }
    if is_step && modules::in_clone(c.registers[RIP]) {
        process::count(count::STEPS_IN_CLONES, 1);
    }
    // Records in the spare ring do not count, but registers that a probe has borrowed must still be
    // restored.
    let recording = ring.is_some_and(|r| syscall::gs() == r.address);
    let interrupted = interrupted(ring, c.registers[RIP]);
    let mut before = [0u64; REGISTERS];
    before.copy_from_slice(&c.registers[..REGISTERS]);
    let mut clone = InClone::default();
    if let Some((ring, place)) = &interrupted {
        clone = show_original(signal, *ring, place, recording, c);
    }
    let mut shown = [0u64; REGISTERS];
    shown.copy_from_slice(&c.registers[..REGISTERS]);
    modules::show(c.registers[RIP]);
    // SAFETY: the kernel's frame.
    show_fault_address(signal, unsafe { &mut *info }, came, c.registers[RIP]);
    let mut mask = handler_mask(ring, c, &action, s);
    // Unwinders find no frames for a runtime that no loader knows, so it must not be on the
    // handler's stack. (Executables without a loader have code that calls handlers.) A handler of a
    // thread without a ring needs no work after its return either.
    let direct =
        ring.is_none() || crate::record::attachment::is_attached() && interrupted.is_none();
    if let Some(ring) = ring {
        if !direct {
            let outer = show_program(ring, c, mask);
            kept::keep(
                ring,
                frame,
                Delivery {
                    signal,
                    recording,
                    interrupted,
                    before,
                    shown,
                    spill: clone.spill,
                    outer,
                    begun: clone.begun,
                },
            );
        }
        mask &= !(SEGV_BIT | trigger::bit());
    }
    if let Some(ring) = ring.filter(|_| !direct && (FAULTS | ABORTS) >> signal & 1 == 1) {
        rseq_area::fault_begins(ring.control().tid.get(), frame);
    }
    let call = modules::handler_call();
    // SAFETY: the caller's room.
    unsafe { entered.write([action.handler, call.unwrap_or(0) as usize, mask as usize]) };
    match call {
        _ if direct => DIRECT,
        Some(_) => THROUGH_FILE,
        None => 1,
    }
}

/// Replaces the address of a fault that is the address of the instruction itself.
fn show_fault_address(signal: i32, info: &mut Info, came: u64, shown: u64) {
    if FAULTS >> signal & 1 == 1 && info.code > 0 && info.address == came {
        info.address = shown;
    }
}

/// Leaves the window of a thread that records one.
#[inline(always)]
fn leave_window(ring: Ring, c: &mut Context) {
    if !burst() || syscall::gs() != ring.address {
        return;
    }
    if window::keeps_out(c.registers[FLAGS]) {
        // The window must not return to a clone later.
        window::leave_for_good(ring);
    }
    window::leave(ring, c, window::Why::Signal);
}

/// The point in a clone at which the thread was interrupted.
#[inline(always)]
fn interrupted(ring: Option<Ring>, rip: u64) -> Option<(Ring, modules::ClonePoint)> {
    let ring = ring.filter(|_| modules::in_clone(rip))?;
    let place = modules::clone_point_at(rip);
    if place.is_none() {
        process::count(count::LOST_STATES, 1);
    }
    place.map(|p| (ring, p))
}

/// State of a probe in an interrupted clone.
#[derive(Default)]
struct InClone {
    spill: [u64; mgz_abi::probe::SPILL_SLOTS],
    begun: RingSlot,
}

/// Changes the registers to those of the original. Returns the state of the clone's probe.
#[inline(always)]
fn show_original(
    signal: i32,
    ring: Ring,
    place: &modules::ClonePoint,
    recording: bool,
    c: &mut Context,
) -> InClone {
    let control = if recording {
        ring.control()
    } else {
        ring.spare()
    };
    let mut clone = InClone {
        spill: control.spilled(),
        begun: RingSlot::default(),
    };
    commit_region(control, c, &place.state);
    if recording {
        clone.begun = begun(control);
        commit_half(control, place);
        append(
            ring,
            RingSlot {
                payload: place.orig,
                id: mgz_abi::slot::MARK_SIGNAL_ENTER,
                aux: mgz_abi::slot::mark_aux(signal as u32, place.clone),
            },
        );
    }
    for [register, slot] in place.state.saved {
        if register != mgz_abi::address_map::NO_REG {
            *c.register(register) = clone.spill[slot as usize % mgz_abi::probe::SPILL_SLOTS];
        }
    }
    take_back(c, &place.state);
    c.registers[RIP] = place.orig;
    clone
}

/// Shows the handler the program's own signal mask and stack. Returns the previous shield.
#[inline(always)]
fn show_program(ring: Ring, c: &mut Context, mask: u64) -> Shield {
    let private = ring.private();
    let frame = &raw const *c as usize - 8;
    if segv_mask::is_blocked(private, c.registers[RSP] as usize) {
        c.mask |= SEGV_BIT;
    }
    if private.trigger_blocked.get() {
        c.mask |= trigger::bit();
    }
    // (A handler begins with the frame's first word as its return address.)
    let outer = segv_mask::raise(private, frame + 8, mask);
    program_stack::show_stack(ring, c);
    outer
}

/// Signals to block while the handler runs.
#[inline(always)]
fn handler_mask(ring: Option<Ring>, c: &Context, action: &KernelAction, signal: usize) -> u64 {
    let own = if action.flags & SA_NODEFER != 0 {
        0
    } else {
        1u64 << (signal - 1)
    };
    let came_from = ring.and_then(|r| waiting(r, c)).unwrap_or(c.mask);
    came_from | action.mask | own
}

/// The signal mask of an interrupted call that waits with its own mask. It applies to the handler,
/// not after it.
fn waiting(ring: Ring, context: &Context) -> Option<u64> {
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
    let mask = ring.private().waiting.get()?;
    // Before and after the call, the frame's own mask is right. SAFETY: the thread has just
    // executed these two bytes or will.
    let interrupted = context.registers[RAX] == (-EINTR) as u64
        && unsafe { ((context.registers[RIP] - 2) as *const [u8; 2]).read() } == SYSCALL;
    if !interrupted {
        return None;
    }
    ring.private().waiting.set(None);
    Some(mask)
}

/// Called when the program's handler has returned. All signals are blocked.
pub(crate) unsafe extern "C" fn returned(context: *mut Context) {
    let frame = context as usize - 8;
    // SAFETY: the kernel's frame, whose first word is the return address.
    let c = unsafe {
        (frame as *mut usize).write(crate::record::signals::entry::restorer_address());
        choose_way_back(context);
        &mut *context
    };
    rseq_area::fault_ends(frame);
    let Some(ring) = own_ring() else {
        return;
    };
    let private = ring.private();
    let delivery = kept::take_delivery(ring, frame);
    let sp = c.registers[RSP] as usize;
    let outer = delivery.map_or_else(Shield::default, |delivery| delivery.outer);
    segv_mask::lower(private, outer, sp, c.mask & SEGV_BIT != 0);
    private.trigger_blocked.set(c.mask & trigger::bit() != 0);
    c.mask &= !(SEGV_BIT | trigger::bit());
    program_stack::restore_stack(ring, c);
    match delivery {
        Some(delivery) => {
            settle(delivery, c);
            if c.registers[RIP] != delivery.before[RIP] {
                avoid_patch(c);
            }
        }
        None => {
            process::count(count::CUT_REGIONS, 1);
            avoid_patch(c);
        }
    }
}

/// Restores the interrupted state of the clone, if the thread continues there.
fn settle(delivery: &Delivery, c: &mut Context) {
    let Delivery {
        signal,
        shown,
        before,
        spill,
        begun,
        ..
    } = delivery;
    let Some((ring, place)) = delivery.interrupted else {
        return;
    };
    let mark = |id| RingSlot {
        payload: place.orig,
        id,
        aux: mgz_abi::slot::mark_aux(*signal as u32, place.clone),
    };
    let recording = || delivery.recording && syscall::gs() == ring.address;
    if c.registers[..REGISTERS] != *shown {
        if recording() {
            process::count(count::CUT_REGIONS, 1);
            append(ring, mark(mgz_abi::slot::MARK_CUT));
        }
        return;
    }
    if recording() {
        append(ring, mark(mgz_abi::slot::MARK_SIGNAL_RETURN));
    }
    if recording() && half(&place).is_some() {
        // The first of the two records was already committed before the handler's records.
        append(ring, SECOND_ONLY_MARK);
    }
    if recording() {
        go_on_with(ring, *begun);
    }
    // If recording has ended, perhaps just now, the region continues in the spare ring.
    let control = if recording() {
        ring.control()
    } else {
        ring.spare()
    };
    resume(control, c, before, &place.state);
    place.counting.resume(control, c);
    control.set_spilled(*spill);
}

/// Mark before a slot that holds two records, the first of which is not valid.
pub const SECOND_ONLY_MARK: RingSlot = RingSlot {
    payload: 0,
    aux: 0,
    id: mgz_abi::slot::MARK_REPEAT,
};

/// Id of a record that is already written while the slot that it shares is incomplete.
fn half(place: &modules::ClonePoint) -> Option<u32> {
    if place.state.flags & mgz_abi::address_map::STATE_HALF == 0 {
        None
    } else {
        modules::half_id(place)
    }
}

/// Commits the first of two records if the second has not been written: its load may have been
/// executed. The cursor is behind all other committed slots.
pub(crate) fn commit_half(control: &mgz_abi::shared_memory::Control, place: &modules::ClonePoint) {
    let Some(id) = half(place).filter(|_| control.cursor.get() < control.guard.get()) else {
        return;
    };
    let slot = control.cursor.get() as *mut RingSlot;
    // SAFETY: below the guard, in this thread's ring.
    unsafe {
        let payload = slot.read_volatile().short();
        slot.write(RingSlot {
            payload,
            aux: 0,
            id,
        });
    }
    control.cursor.set(control.cursor.get() + 16);
}

/// Content of the slot at the cursor. Between the stores of a record its slot is not committed, so
/// the handler's records overwrite it.
fn begun(control: &mgz_abi::shared_memory::Control) -> RingSlot {
    if control.cursor.get() >= control.guard.get() {
        return RingSlot::default();
    }
    // SAFETY: below the guard, in this thread's ring.
    unsafe { (control.cursor.get() as *const RingSlot).read_volatile() }
}

/// Writes the result of [`begun`] back into the slot at the cursor, where the interrupted record
/// continues.
fn go_on_with(ring: Ring, begun: RingSlot) {
    if make_room(ring) {
        // SAFETY: below the guard, in this thread's ring.
        unsafe { (ring.control().cursor.get() as *mut RingSlot).write(begun) };
    }
}

/// If a handler has sent the thread to an instruction that a patch overwrites (by skipping the one
/// before), the thread continues in the clone, with nothing recorded yet.
fn avoid_patch(context: &mut Context) {
    let Some(ring) = thread_ring::current() else {
        return;
    };
    let Some((clone, state, counting)) = modules::behind_patch(context.registers[RIP]) else {
        return;
    };
    if state.flags & mgz_abi::address_map::STATE_HALF != 0 && syscall::gs() == ring.address {
        append(ring, SECOND_ONLY_MARK);
    }
    // Recording may have ended just now.
    let control = if syscall::gs() == ring.address {
        ring.control()
    } else {
        ring.spare()
    };
    for [register, slot] in state.saved {
        if register != mgz_abi::address_map::NO_REG {
            control.spill[slot as usize % mgz_abi::probe::SPILL_SLOTS]
                .set(*context.register(register));
        }
    }
    rebase(control, context, &state);
    context.registers[RIP] = clone;
    counting.resume(control, context);
}

/// Restores the clone's registers, with the region's base in the current ring.
fn resume(
    control: &mgz_abi::shared_memory::Control,
    context: &mut Context,
    before: &[u64; REGISTERS],
    state: &mgz_abi::address_map::ProbeState,
) {
    context.registers[..REGISTERS].copy_from_slice(before);
    let in_flight = state.slots_done > 0 || state.base_reg != mgz_abi::address_map::NO_REG;
    if in_flight {
        rebase(control, context, state);
    }
}

/// Gives the interrupted region its base in the current ring: the cursor without its slots that are
/// written.
fn rebase(
    control: &mgz_abi::shared_memory::Control,
    context: &mut Context,
    state: &mgz_abi::address_map::ProbeState,
) {
    let base = control
        .cursor
        .get()
        .wrapping_sub(16 * u64::from(state.slots_done));
    control.cursor.set(base);
    if state.base_reg != mgz_abi::address_map::NO_REG {
        *context.register(state.base_reg) =
            base.wrapping_add(16 * u64::from(state.base_ahead)) & 0xffff_ffff;
    }
}

/// Undoes the changes that the clone has made so far for the current original instruction.
pub fn take_back(context: &mut Context, state: &mgz_abi::address_map::ProbeState) {
    const RCX: u8 = 1;
    const RSP: u8 = 4;
    if state.flags & mgz_abi::address_map::STATE_PUSHED != 0 {
        *context.register(RSP) += 8;
    }
    if state.flags & mgz_abi::address_map::STATE_COUNTED != 0 {
        let rcx = context.register(RCX);
        *rcx = rcx.wrapping_add(1);
    }
}

/// Ensures that there is a free slot at the cursor. Otherwise recording ends for this thread, and
/// the result is false. All signals are blocked.
fn make_room(ring: Ring) -> bool {
    let control = ring.control();
    if control.cursor.get() < control.guard.get() {
        return true;
    }
    let Some(header) = process::header() else {
        return false;
    };
    let turned = publish::turn(header, ring, || None);
    if !turned {
        publish::give_up(ring);
    }
    turned
}

/// Writes a marker. All signals are blocked.
pub(crate) fn append(ring: Ring, slot: RingSlot) {
    if !make_room(ring) {
        return;
    }
    let control = ring.control();
    // SAFETY: below the guard, in this thread's ring.
    unsafe { (control.cursor.get() as *mut RingSlot).write(slot) };
    control.cursor.set(control.cursor.get() + 16);
}
