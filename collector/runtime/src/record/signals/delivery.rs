//! A handler of the program runs: what it sees of the interrupted thread, and how that goes on
//! behind it.

use crate::record::signals::actions::burst;
use crate::record::signals::{actions, *};
use crate::record::thread_ring::Ring;
use crate::record::{modules, publish, thread_ring, transfer_hooks, trigger, window};
use crate::sys::signal_frame::{Context, Info, RAX, REGISTERS, RIP, RSP};
use crate::sys::syscall::KernelAction;
use crate::sys::{process, signal_frame, syscall};
use mgz_abi::shared_memory::count;
use mgz_abi::slot::RingSlot;

/// What is to be remembered while a handler of the program runs. Lies on the stack, in the frame of
/// `entry::on_signal`.
#[repr(C)]
pub(crate) struct Delivery {
    /// Address of the program's handler.
    handler: usize,
    /// Where the runtime goes on if the handler is called from the file's code, and that code
    /// (`mgz_abi::probe::HANDLER_CALL`).
    back: usize,
    call: usize,
    signal: i32,
    /// It was recording.
    recording: bool,
    /// The ring and place in the clone that were interrupted.
    interrupted: Option<(Ring, modules::ClonePoint)>,
    /// Registers as the clone had them, and as the handler sees them.
    before: [u64; REGISTERS],
    shown: [u64; REGISTERS],
    spill: [u64; mgz_abi::probe::SPILL_SLOTS],
    /// What the thread was in before.
    outer: Shield,
    /// What stood in the slot that the interrupted probe may have begun to write; see [`begun`].
    begun: RingSlot,
}

/// Signals with the address of what failed: SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV, and SIGSYS
/// (of the system call that a filter refused).
const FAULTS: u64 = 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8 | 1 << 11 | 1 << 31;
/// Of [`deliver`]: the handler returns to the kernel itself.
pub(crate) const DIRECT: usize = 2;
/// Of [`deliver`]: the handler is called from code of the file, which unwinders know.
pub(crate) const THROUGH_FILE: usize = 3;

/// Prepares the frame for the program's handler. Returns 0 if none is to run, 1 if `delivery` names
/// it, [`DIRECT`] if it names it and nothing is to be done behind it, [`THROUGH_FILE`] if it is to
/// be called from there, or the address of a moved frame on which to start again.
pub(crate) unsafe extern "C" fn deliver(
    signal: i32,
    info: *mut Info,
    context: *mut Context,
    delivery: *mut Delivery,
) -> usize {
    // SAFETY: the kernel's frame.
    let c = unsafe { &mut *context };
    let s = signal as usize & 127;
    let ring = thread_ring::current();
    let action = actions::of(s);
    let came = c.registers[RIP];
    if let Some(ring) = ring {
        let here = context as usize;
        if here.wrapping_sub(ring.hook_stack())
            < thread_ring::HOOK_STACK + thread_ring::SIGNAL_STACK
        {
            transfer_hooks::settle(c);
            return move_frame(context, &action);
        }
    }
    if action.flags & SA_RESETHAND != 0 {
        actions::reset(s);
    }
    if action.handler == SIG_DFL || action.handler == SIG_IGN {
        // Changed by another thread since the kernel chose this handler.
        return 0;
    }
    if ring.is_some() {
        transfer_hooks::settle(c);
    }
    if let Some(ring) = ring
        && burst()
        && syscall::gs() == ring.address
    {
        window::leave(ring, c, window::Why::Signal);
    }
    let rip = c.registers[RIP];
    // In the spare ring nothing counts, but what a probe has borrowed must come back all the same.
    let recording = ring.is_some_and(|r| syscall::gs() == r.address);
    let interrupted = match ring {
        Some(ring) if modules::in_clone(rip) => {
            let place = modules::place(rip);
            if place.is_none() {
                process::count(count::LOST_STATES, 1);
            }
            place.map(|p| (ring, p))
        }
        _ => None,
    };
    let mut before = [0u64; REGISTERS];
    before.copy_from_slice(&c.registers[..REGISTERS]);
    let mut spill = [0u64; mgz_abi::probe::SPILL_SLOTS];
    let mut shown = before;
    let mut begun = RingSlot::default();
    if let Some((ring, place)) = &interrupted {
        let control = if recording {
            ring.control()
        } else {
            ring.spare()
        };
        spill = control.spilled();
        commit(control, c, &place.state);
        if recording {
            begun = self::begun(control);
            commit_half(control, place);
            append(
                *ring,
                RingSlot {
                    payload: place.orig,
                    id: mgz_abi::slot::MARK_SIGNAL_ENTER,
                    aux: mgz_abi::slot::mark_aux(signal as u32, place.clone),
                },
            );
        }
        for [register, slot] in place.state.saved {
            if register != mgz_abi::address_map::NO_REG {
                *c.register(register) = spill[slot as usize % mgz_abi::probe::SPILL_SLOTS];
            }
        }
        take_back(c, &place.state);
        c.registers[RIP] = place.orig;
        shown.copy_from_slice(&c.registers[..REGISTERS]);
    }
    modules::show(c.registers[RIP]);
    // SAFETY: the kernel's frame.
    let info = unsafe { &mut *info };
    if FAULTS >> signal & 1 == 1 && info.code > 0 && info.address == came {
        // The address is the instruction's own.
        info.address = c.registers[RIP];
    }
    let own = if action.flags & SA_NODEFER != 0 {
        0
    } else {
        1u64 << (s - 1)
    };
    let came_from = ring.and_then(|r| waiting(r, c)).unwrap_or(c.mask);
    let mut mask = came_from | action.mask | own;
    // Of a runtime that no loader knows, unwinders find no frames: it must leave none behind.
    // (Executables without a loader have code to call handlers from.)
    let direct = crate::record::attachment::is_attached() && interrupted.is_none();
    let mut outer = Shield::default();
    if let Some(ring) = ring {
        let private = ring.private();
        if !direct {
            if segv_mask::is_blocked(private, c.registers[RSP] as usize) {
                c.mask |= SEGV_BIT;
            }
            if private.trigger_blocked.get() {
                c.mask |= trigger::bit();
            }
            outer = segv_mask::raise(private, delivery as usize, mask);
        }
        mask &= !(SEGV_BIT | trigger::bit());
    }
    let call = modules::handler_call();
    // SAFETY: room that the caller has made on its stack.
    unsafe {
        delivery.write(Delivery {
            handler: action.handler,
            back: 0,
            call: call.unwrap_or(0) as usize,
            signal,
            recording,
            interrupted,
            before,
            shown,
            spill,
            outer,
            begun,
        })
    };
    let _ = syscall::sigprocmask(2, Some(mask));
    match call {
        _ if direct => DIRECT,
        Some(_) => THROUGH_FILE,
        None => 1,
    }
}

/// The mask with which the thread waited, if the signal has ended such a call: it holds for the
/// handler, and not behind it.
fn waiting(ring: Ring, context: &Context) -> Option<u64> {
    const EINTR: u64 = 4;
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
    let mask = ring.private().waiting.get()?;
    // Before the call, or behind it, the frame's own mask is right.
    // SAFETY: code that has just been executed, two bytes of it at least.
    let interrupted = context.registers[RAX] == EINTR.wrapping_neg()
        && unsafe { ((context.registers[RIP] - 2) as *const [u8; 2]).read() } == SYSCALL;
    if !interrupted {
        return None;
    }
    ring.private().waiting.set(None);
    Some(mask)
}

/// The program's handler has returned.
pub(crate) unsafe extern "C" fn returned(delivery: *const Delivery, context: *mut Context) {
    let _ = syscall::sigprocmask(0, Some(!0));
    // SAFETY: what `deliver` wrote, and the kernel's frame.
    let (delivery, c) = unsafe { (&*delivery, &mut *context) };
    let before = &delivery.before;
    if let Some(ring) = thread_ring::current() {
        segv_mask::lower(
            ring.private(),
            delivery.outer,
            c.registers[RSP] as usize,
            c.mask & SEGV_BIT != 0,
        );
        ring.private()
            .trigger_blocked
            .set(c.mask & trigger::bit() != 0);
        c.mask &= !(SEGV_BIT | trigger::bit());
    }
    settle(delivery, c);
    if c.registers[RIP] != before[RIP] {
        avoid_patch(c);
    }
}

/// Puts the interrupted clone back, if that is where the thread goes on.
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
        // The first of two records stands before the handler's already.
        append(ring, REPEAT);
    }
    if recording() {
        go_on_with(ring, *begun);
    }
    // If recording has ended, perhaps just now, the region goes on in the spare ring.
    let control = if recording() {
        ring.control()
    } else {
        ring.spare()
    };
    resume(control, c, before, &place.state);
    place.counting.resume(control, c);
    control.set_spilled(*spill);
}

/// What stands before a slot of whose two records the first is none.
pub const REPEAT: RingSlot = RingSlot {
    payload: 0,
    aux: 0,
    id: mgz_abi::slot::MARK_REPEAT,
};

/// Id of a record that is written while the slot that it shares is not.
fn half(place: &modules::ClonePoint) -> Option<u32> {
    if place.state.flags & mgz_abi::address_map::STATE_HALF == 0 {
        None
    } else {
        modules::half_id(place)
    }
}

/// Commits the first of two records where the second has not been written: its load may have been
/// executed. The cursor is behind what else is committed.
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

/// What stands at the cursor. Between the stores of a record its slot is not committed: the
/// handler's records are written over it.
fn begun(control: &mgz_abi::shared_memory::Control) -> RingSlot {
    if control.cursor.get() >= control.guard.get() {
        return RingSlot::default();
    }
    // SAFETY: below the guard, in this thread's ring.
    unsafe { (control.cursor.get() as *const RingSlot).read_volatile() }
}

/// Puts what [`begun`] gave where the interrupted record's slot is now.
fn go_on_with(ring: Ring, begun: RingSlot) {
    if make_room(ring) {
        // SAFETY: below the guard, in this thread's ring.
        unsafe { (ring.control().cursor.get() as *mut RingSlot).write(begun) };
    }
}

/// A handler has sent the thread to an instruction that a patch overwrites (it has skipped the one
/// before): it goes on in the clone, as if it had come there with nothing recorded yet.
fn avoid_patch(context: &mut Context) {
    let Some(ring) = thread_ring::current() else {
        return;
    };
    let Some((clone, state, counting)) = modules::behind_patch(context.registers[RIP]) else {
        return;
    };
    if state.flags & mgz_abi::address_map::STATE_HALF != 0 && syscall::gs() == ring.address {
        append(ring, REPEAT);
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
    let base = control
        .cursor
        .get()
        .wrapping_sub(16 * u64::from(state.slots_done));
    control.cursor.set(base);
    if state.base_reg != mgz_abi::address_map::NO_REG {
        *context.register(state.base_reg) =
            base.wrapping_add(16 * u64::from(state.base_ahead)) & 0xffff_ffff;
    }
    context.registers[RIP] = clone;
    counting.resume(control, context);
}

/// Puts the clone's registers back, with the region's base where the ring now is.
fn resume(
    control: &mgz_abi::shared_memory::Control,
    context: &mut Context,
    before: &[u64; REGISTERS],
    state: &mgz_abi::address_map::ProbeState,
) {
    context.registers[..REGISTERS].copy_from_slice(before);
    let in_flight = state.slots_done > 0 || state.base_reg != mgz_abi::address_map::NO_REG;
    if in_flight {
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
}

/// Copies the frame from the runtime's stack to where the program's handler shall run: the
/// program's alternate stack, or the interrupted one. The runtime's stack is free again at once,
/// even if the handler never returns.
pub(crate) fn move_frame(context: *mut Context, action: &KernelAction) -> usize {
    // SAFETY: the kernel's frame.
    let c = unsafe { &mut *context };
    // SAFETY: as above.
    let bytes = unsafe { signal_frame::frame_bytes(context) };
    let start = context as usize - 8;
    let interrupted = c.registers[RSP] as usize;
    let mut top = interrupted - 128;
    if action.flags & SA_ONSTACK != 0
        && let Some(ring) = thread_ring::current()
    {
        let [address, flags, size] = ring.private().stack.get();
        if flags & thread_ring::SS_DISABLE == 0 && interrupted.wrapping_sub(address) >= size {
            top = address + size;
        }
    }
    // The extended state keeps its alignment of 64.
    let target = ((top - bytes - 64) & !63) | (start & 63);
    let shift = target.wrapping_sub(start);
    // SAFETY: the target is free stack below everything in use; if it is not mapped, the program's
    // own handler could not have run there either, and this fault ends it.
    unsafe { core::ptr::copy_nonoverlapping(start as *const u8, target as *mut u8, bytes) };
    // SAFETY: the copy has the same layout.
    let copy = unsafe { &mut *((context as usize).wrapping_add(shift) as *mut Context) };
    if copy.extended != 0 {
        copy.extended = (copy.extended as usize).wrapping_add(shift) as u64;
    }
    target
}

/// Takes back what the clone has done of the original instruction so far.
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

/// Commits the slots of the region in flight to the page that %gs points at.
pub fn commit(
    control: &mgz_abi::shared_memory::Control,
    context: &mut Context,
    state: &mgz_abi::address_map::ProbeState,
) {
    if state.base_reg != mgz_abi::address_map::NO_REG {
        control.cursor.set(
            context
                .register(state.base_reg)
                .wrapping_sub(16 * u64::from(state.base_ahead))
                & 0xffff_ffff,
        );
    }
    control
        .cursor
        .set(control.cursor.get() + 16 * u64::from(state.slots_done));
}

/// Whether there is a free slot at the cursor; if not, recording ends here. All signals are
/// blocked.
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
