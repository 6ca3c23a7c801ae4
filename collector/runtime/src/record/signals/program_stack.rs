//! The program's alternate stack. The kernel uses the runtime's stack instead, so this module
//! stores the program's request, and puts its handlers' frames where the kernel would.

use crate::record::signals::{SA_ONSTACK, internal};
use crate::record::thread_ring;
use crate::record::thread_ring::Ring;
use crate::sys::errno::{EINVAL, ENOMEM, EPERM};
use crate::sys::signal_frame;
use crate::sys::signal_frame::{Context, RSP};
use crate::sys::syscall::KernelAction;

/// `ss_flags`: the thread runs on that stack.
pub(crate) const SS_ONSTACK: usize = 1;

/// True if a stack pointer is on an alternate stack, as the kernel sees it.
fn is_on(stack: [usize; 3], sp: usize) -> bool {
    let [address, flags, size] = stack;
    flags & thread_ring::SS_DISABLE == 0 && sp > address && sp - address <= size
}

/// True if a thread with this stack pointer counts as being on that alternate stack. It never does
/// for a stack that is disabled while handlers run.
pub(crate) fn counts_as_on(stack: [usize; 3], sp: usize) -> bool {
    stack[1] & thread_ring::SS_AUTODISARM == 0 && is_on(stack, sp)
}

/// Sets the program's alternate stack, where its stack pointer is `sp`. Returns 0 or −errno.
pub(crate) fn set_stack(ring: Ring, wanted: [usize; 3], sp: usize) -> isize {
    const MIN_STACK_BYTES: usize = 2048;
    let [address, flags, size] = wanted;
    // The flags are an int; the other half of the word is padding.
    let flags = flags & 0xffff_ffff;
    let mode = flags & !thread_ring::SS_AUTODISARM;
    if counts_as_on(ring.private().stack.get(), sp) {
        return -EPERM;
    }
    if ![0, SS_ONSTACK, thread_ring::SS_DISABLE].contains(&mode) {
        return -EINVAL;
    }
    if mode != thread_ring::SS_DISABLE && size < MIN_STACK_BYTES {
        return -ENOMEM;
    }
    let disarms = flags & thread_ring::SS_AUTODISARM;
    ring.private()
        .stack
        .set(if mode == thread_ring::SS_DISABLE {
            [0, thread_ring::SS_DISABLE, 0]
        } else {
            [address, disarms, size]
        });
    0
}

/// Replaces the runtime's alternate stack in a handler's frame by the program's.
pub(crate) fn show_stack(ring: Ring, c: &mut Context) {
    let stack = &ring.private().stack;
    let [address, flags, size] = stack.get();
    // The kernel sets no other flags here for a disabled stack.
    c.stack = if flags & thread_ring::SS_DISABLE != 0 {
        [0; 3]
    } else {
        [address as u64, flags as u64, size as u64]
    };
    if flags & thread_ring::SS_AUTODISARM != 0 {
        stack.set([0, thread_ring::SS_DISABLE, 0]);
    }
}

/// Restores the program's alternate stack from a returning handler's frame, as the kernel would.
/// The kernel keeps the runtime's stack.
pub(crate) fn restore_stack(ring: Ring, c: &mut Context) {
    let shown = c.stack.map(|word| word as usize);
    let wanted = if shown[2] == 0 {
        [0, thread_ring::SS_DISABLE, 0]
    } else {
        shown
    };
    if ring.private().stack.get() != wanted {
        let sp = c.registers[RSP] as usize;
        // An invalid stack leaves the old one in place without an error, as in the kernel.
        let _ = set_stack(ring, wanted, sp);
    }
    c.stack = ring.handler_stack().map(|word| word as u64);
}

/// Copies the frame from the runtime's stack to the stack for the program's handler: the program's
/// alternate stack or the interrupted one, at the same address where the kernel would have put it.
/// The runtime's stack is free again at once, even if the handler never returns. Returns 0 if the
/// program has died, as it would have.
pub(crate) fn move_frame(context: *mut Context, action: &KernelAction) -> usize {
    /// Bytes below the stack pointer that belong to the running function (System V ABI).
    const RED_ZONE: usize = 128;
    // SAFETY: the kernel's frame.
    let c = unsafe { &mut *context };
    // SAFETY: as above.
    let bytes = unsafe { signal_frame::frame_bytes(context) };
    let start = context as usize - 8;
    let interrupted = c.registers[RSP] as usize;
    let mut top = interrupted.wrapping_sub(RED_ZONE);
    let mut alternate = None;
    if let Some(ring) = thread_ring::current() {
        let stack = ring.private().stack.get();
        alternate = Some(stack).filter(|&stack| counts_as_on(stack, interrupted));
        let enters = action.flags & SA_ONSTACK != 0 && stack[1] & thread_ring::SS_DISABLE == 0;
        if enters && !counts_as_on(stack, top) {
            top = stack[0] + stack[2];
            alternate = Some(stack);
        }
    }
    // The extended state is aligned to 64, and the part before it keeps its length.
    let extended = c.extended as usize;
    let before = extended.wrapping_sub(start);
    let target = if before < bytes {
        (top.wrapping_sub(bytes - before) & !63).wrapping_sub(before)
    } else {
        (top.wrapping_sub(bytes) & !15).wrapping_sub(8)
    };
    if alternate.is_some_and(|stack| !is_on(stack, target)) {
        internal::die(c, false);
        return 0;
    }
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
