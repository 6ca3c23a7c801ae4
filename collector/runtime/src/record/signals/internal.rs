//! The runtime's own signals: faults of probes (a full ring, a full window, a new child) and
//! triggers. All other signals are the program's.

use crate::record::probe_cursor::commit_region;
use crate::record::signals::actions::burst;
use crate::record::signals::delivery::{append, commit_half};
use crate::record::signals::entry::{choose_way_back, restorer_address};
use crate::record::signals::program_stack::move_frame;
use crate::record::signals::{actions, *};
use crate::record::stack_copy::ThreadPosition;
use crate::record::thread_ring::Ring;
use crate::record::{modules, publish, thread_ring, trigger, window};
use crate::sys::signal_frame::{Context, Info, RIP, RSP};
use crate::sys::syscall::{KernelAction, nr};
use crate::sys::{process, syscall};
use core::sync::atomic::{AtomicUsize, Ordering};
use mgz_abi::shared_memory::{MODE_BURST, PAGE_SIZE};
use mgz_abi::slot::RingSlot;

/// At that instruction this register holds the address of the system call.
const RCX: u8 = 1;

/// Instruction at which the runtime reads a mask of the program, which may not be mapped; 0: no
/// read yet.
pub(crate) static READS_MASK: AtomicUsize = AtomicUsize::new(0);

/// Handles SIGSEGV. Returns 0 if the fault is handled, or the address of a copy of the frame for
/// the program's handler.
pub(crate) unsafe extern "C" fn segv(
    _signal: i32,
    info: *mut Info,
    context: *mut Context,
) -> usize {
    // SAFETY: the kernel's frame.
    let (i, c) = unsafe { (&*info, &mut *context) };
    // SAFETY: as above.
    unsafe { choose_way_back(context) };
    if i.code > 0 {
        if c.registers[RIP] == READS_MASK.load(Ordering::Relaxed) as u64 {
            // The fault is reported at the system call, to the code that made it.
            c.registers[RIP] = *c.register(RCX);
            return 0;
        }
        let gs = syscall::gs();
        if gs == 0
            && i.address < PAGE_SIZE as u64
            && modules::in_clone(c.registers[RIP])
            && crate::record::thread_join::join(c)
        {
            return 0;
        }
        if let Some(ring) = thread_ring::ring_at(gs)
            && own_fault(ring, gs, i.address, c)
        {
            return 0;
        }
        if crate::record::phases::hit(c) {
            return 0;
        }
        if let Some(clone) = modules::caught_call(c.registers[RIP]) {
            if let Some(ring) = thread_ring::ring_at(syscall::gs())
                && syscall::gs() == ring.address
                && window::is_open(ring)
            {
                // The thread runs original code although its window is open, so the loads of that
                // code are missing.
                window::leave(ring, c, window::Why::NoClone);
            }
            c.registers[RIP] = clone;
            return 0;
        }
    }
    let action = actions::seen(SIGSEGV);
    let ring = thread_ring::current();
    let blocked =
        ring.is_some_and(|r| segv_mask::is_blocked(r.private(), c.registers[RSP] as usize));
    let synchronous = i.code > 0;
    if let Some(ring) = ring.filter(|_| blocked && !synchronous) {
        segv_mask::keep(ring.private());
        return 0;
    }
    if action.handler == SIG_IGN && !synchronous {
        return 0;
    }
    if action.handler == SIG_DFL || action.handler == SIG_IGN || (blocked && synchronous) {
        die(c, synchronous);
        return 0;
    }
    move_frame(context, &action)
}

/// Dies as the program would have, with the default action: by repeating the fault (`again`), or by
/// SIGSEGV sent to the thread.
pub(crate) fn die(context: &mut Context, again: bool) {
    let default = KernelAction {
        restorer: restorer_address(),
        flags: SA_RESTORER,
        ..KernelAction::default()
    };
    note_death(context);
    // SAFETY: the default action.
    unsafe { syscall::sigaction(SIGSEGV, Some(&default), None) };
    if !again {
        syscall::tgkill(syscall::getpid(), syscall::gettid(), SIGSEGV);
    }
}

/// Makes the original instruction the place of death, and keeps the records of the current region.
fn note_death(context: &mut Context) {
    let Some(ring) = thread_ring::current() else {
        return;
    };
    if burst() {
        return window::leave(ring, context, window::Why::Signal);
    }
    if let Some(place) = modules::clone_point_at(context.registers[RIP])
        && syscall::gs() == ring.address
    {
        commit_region(ring.control(), context, &place.state);
        commit_half(ring.control(), &place);
        append(
            ring,
            RingSlot {
                payload: place.orig,
                id: mgz_abi::slot::MARK_CUT,
                aux: mgz_abi::slot::mark_aux(SIGSEGV as u32, place.clone),
            },
        );
    }
}

/// True if a probe caused the fault: the ring is full, or this is a new child.
fn own_fault(ring: Ring, gs: usize, address: u64, context: &mut Context) -> bool {
    let page = ring.address as u64;
    let Some(header) = process::header() else {
        return false;
    };
    if gs != ring.address {
        let spare = ring.spare();
        if address < spare.guard.get()
            || address >= spare.guard.get() + mgz_abi::shared_memory::PAGE_SIZE as u64
        {
            return false;
        }
        thread_ring::begin_spare(ring);
        let start = ring.spare().base.get();
        return go_on(ring.spare(), start, context);
    }
    let at_guard = |address| {
        thread_ring::in_guard(header, ring, address)
            || address.wrapping_sub(thread_ring::spare_end(ring))
                < mgz_abi::shared_memory::PAGE_SIZE as u64
    };
    if header.mode == MODE_BURST && at_guard(address) && modules::in_clone(context.registers[RIP]) {
        window::full(header, ring, context);
        return true;
    }
    if process::is_forked() {
        if address < page || address >= page + (1 << 30) {
            return false;
        }
        return thread_ring::adopt_after_fork(ring);
    }
    let guard = ring.control().guard.get();
    if address < guard || address >= guard + mgz_abi::shared_memory::PAGE_SIZE as u64 {
        return false;
    }
    #[cfg(mgz_cdylib)]
    if crate::record::time_mark::is_interrupted(context) {
        if !publish::turn(header, ring, || None) {
            publish::give_up(ring);
        }
        crate::record::time_mark::back_out(context);
        return true;
    }
    if !modules::in_clone(context.registers[RIP]) {
        return false;
    }
    let at = || ThreadPosition::in_clone(context, ring.control());
    if publish::turn(header, ring, at) {
        let start = ring.control().base.get();
        go_on(ring.control(), start, context)
    } else {
        publish::give_up(ring);
        let start = ring.spare().base.get();
        go_on(ring.spare(), start, context)
    }
}

/// Lets the interrupted store write its slot at `start`: moves the region's base there.
pub fn go_on(control: &mgz_abi::shared_memory::Control, start: u64, context: &mut Context) -> bool {
    let mut code = [0u8; 16];
    // SAFETY: the faulting instruction was just executed from there; a clone is followed by other
    // parts of its segment.
    unsafe {
        core::ptr::copy_nonoverlapping(context.registers[RIP] as *const u8, code.as_mut_ptr(), 16)
    };
    let Some(store) = crate::sys::decode::decode_store(&code) else {
        return false;
    };
    let base = start.wrapping_sub(16 * u64::from(store.slot));
    control.cursor.set(base);
    *context.register(store.base) = base;
    true
}

/// Sends the program's own signal again and blocks it in the kernel, because the program has it
/// blocked: it stays pending there until the mask changes. No trigger arrives meanwhile. Returns
/// true if the signal was sent.
fn wait_for_program(info: *mut Info, context: &mut Context) -> bool {
    const SI_TKILL: i32 = -6;
    // SAFETY: the kernel's frame.
    let (signal, code) = unsafe { ((*info).signal as usize, (*info).code) };
    let (pid, tid) = (syscall::getpid() as usize, syscall::gettid() as usize);
    // SAFETY: the kernel's own structure; a thread may send itself any signal.
    let to_process = code != SI_TKILL
        && unsafe { syscall::call(nr::RT_SIGQUEUEINFO, pid, signal, info as usize, 0, 0, 0) } == 0;
    let sent = to_process
        // SAFETY: as above.
        || unsafe { syscall::call(nr::RT_TGSIGQUEUEINFO, pid, tid, signal, info as usize, 0, 0) } == 0;
    if sent {
        context.mask |= trigger::bit();
    }
    sent
}

/// Handles the trigger's signal. Returns 0 if the signal is handled, or the address of a copy of
/// the frame for the program's handler: the program may use the signal for itself as well.
pub(crate) unsafe extern "C" fn triggered(
    signal: i32,
    info: *mut Info,
    context: *mut Context,
) -> usize {
    // SAFETY: the kernel's frame.
    let (i, c) = unsafe { (&*info, &mut *context) };
    // SAFETY: as above.
    unsafe { choose_way_back(context) };
    // (Not `thread_ring::current`: a child has no trigger before it has a ring.)
    match thread_ring::ring_at(syscall::gs()) {
        Some(ring) if trigger::is_ours(ring, i) => {
            trigger::came(ring, i, c);
            return 0;
        }
        // A signal that the trigger of an earlier attachment sent before it ended.
        Some(_) if i.code > 0 && crate::record::attachment::is_attached() => return 0,
        None if syscall::gs() == 0 && trigger::was_for_other(i) => {
            crate::record::thread_join::join(c);
            return 0;
        }
        None if i.code > 0 => return 0,
        _ if trigger::is_of_runtime(i) => return 0,
        _ => {}
    }
    let s = signal as usize & 63;
    let blocks = thread_ring::current().is_some_and(|r| r.private().trigger_blocked.get());
    if blocks && trigger::bit() == 1 << (s - 1) && wait_for_program(info, c) {
        return 0;
    }
    let action = actions::seen(s);
    match action.handler {
        SIG_IGN => 0,
        SIG_DFL => {
            let default = KernelAction {
                restorer: restorer_address(),
                flags: SA_RESTORER,
                ..KernelAction::default()
            };
            // SAFETY: the default action, which ends the process.
            unsafe { syscall::sigaction(s, Some(&default), None) };
            syscall::tgkill(syscall::getpid(), syscall::gettid(), s);
            0
        }
        _ => move_frame(context, &action),
    }
}
