//! Programs that close all possible descriptors, as daemons do at their start: among them is the
//! event that triggers a thread's windows (`burst`).

use crate::record::{thread_ring, trigger};
use crate::sys::errno::{EBADF, ENOSYS};
use crate::sys::libc_symbols::{fail, next};
use crate::sys::syscall;
use core::arch::naked_asm;

/// The calling thread's ring, if it may have an event.
fn ring() -> Option<thread_ring::Ring> {
    if trigger::signal() == 0 {
        return None;
    }
    let gs = syscall::gs();
    thread_ring::ring_at(gs).filter(|r| r.address == gs)
}

/// # Safety
/// As the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close() {
    // The last step is a jump: a thread that is cancelled in the function has no frame of the
    // runtime.
    naked_asm!("push rdi", "call {which}", "pop rdi", "jmp rax", which = sym which)
}

/// The function to jump to: the C library's, or for the runtime's own descriptor one that fails
/// with EBADF.
extern "C" fn which(fd: i32) -> usize {
    if ring().is_some_and(|r| trigger::descriptor(r) == Some(fd)) {
        return unknown as *const () as usize;
    }
    next!(c"close", unsafe extern "C" fn(i32) -> i32)
        .map_or(missing as *const () as usize, |real| real as usize)
}

extern "C" fn unknown() -> i32 {
    fail(EBADF)
}

extern "C" fn missing() -> i32 {
    fail(ENOSYS)
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: u32, last: u32, flags: i32) -> i32 {
    let Some(real) = next!(c"close_range", unsafe extern "C" fn(u32, u32, i32) -> i32) else {
        return fail(ENOSYS);
    };
    // SAFETY: the caller's arguments.
    let result = unsafe { real(first, last, flags) };
    ring().inspect(|&r| trigger::replace_if_closed(r));
    result
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: i32) {
    let Some(real) = next!(c"closefrom", unsafe extern "C" fn(i32)) else {
        return;
    };
    // SAFETY: the caller's argument.
    unsafe { real(first) };
    ring().inspect(|&r| trigger::replace_if_closed(r));
}
