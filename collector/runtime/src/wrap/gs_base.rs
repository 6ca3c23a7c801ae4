//! Programs that set the `%gs` base by a call: `arch_prctl`, `syscall` with its number, or the
//! instruction (`call_sites`). `mgz-instrument` declines files that visibly do so; this module
//! handles libraries, and numbers that are computed.
//!
//! From then on the base belongs to the program, and the thread can run no clone. In `burst` clones
//! run only in an open window: it ends, and the thread continues unrecorded. In `full` and `ring`
//! the stack has return addresses of clones and the code has entry jumps, so the process ends
//! before the base changes, with the recorder's status for unsupported programs.

use crate::record::{modules, thread_ring, window};
use crate::sys::libc_symbols::fail;
use crate::sys::syscall::{GET_GS, SET_GS};
use crate::sys::{process, syscall};
use mgz_abi::shared_memory::{MODE_BURST, count};

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arch_prctl(operation: i32, address: usize) -> i32 {
    crate::wrap::ask_stand_in!(
        c"arch_prctl",
        unsafe extern "C" fn(i32, usize) -> i32,
        operation,
        address
    );
    // SAFETY: the caller's arguments.
    unsafe { by_number(0, operation as u32 as usize, address) as i32 }
}

/// `arch_prctl` called through `syscall`.
///
/// # Safety
/// As the system call.
pub unsafe extern "C" fn by_number(_number: usize, operation: usize, address: usize) -> isize {
    let operation = operation as u32 as usize;
    // SAFETY: the caller's arguments.
    let result = unsafe { system_arch_prctl(operation, address) };
    if result < 0 {
        fail(-result) as isize
    } else {
        result
    }
}

/// Handles a system call that code without a clone makes directly.
pub fn met(operation: usize) {
    if operation as u32 as usize == SET_GS
        && let Some(ring) = thread_ring::ring_at(syscall::gs())
    {
        give_way(ring);
    }
}

/// Handles a system call of a clone, which cannot continue.
pub fn met_in_clone(operation: usize) {
    if operation as u32 as usize == SET_GS && thread_ring::ring_at(syscall::gs()).is_some() {
        end();
    }
}

/// The system call, with the base as the program sees it.
///
/// # Safety
/// As the system call.
unsafe fn system_arch_prctl(operation: usize, address: usize) -> isize {
    if let Some(ring) = thread_ring::ring_at(syscall::gs()) {
        match operation {
            SET_GS => give_way(ring),
            // The program has not set the base, so it is 0 in its view.
            GET_GS if syscall::is_writable(address) => {
                // SAFETY: checked above.
                unsafe { (address as *mut u64).write_unaligned(0) };
                return 0;
            }
            _ => {}
        }
    }
    // SAFETY: the caller's contract; the thread runs no clone.
    unsafe { syscall::call(syscall::nr::ARCH_PRCTL, operation, address, 0, 0, 0, 0) }
}

/// Ensures that the thread runs no clone any more.
fn give_way(ring: thread_ring::Ring) {
    let mode = process::header().map(|header| header.mode);
    if mode == Some(MODE_BURST) {
        process::count(count::GS_TAKEN, 1);
        return window::leave_for_good(ring);
    }
    if mode.is_some() && modules::any_instrumented() {
        end();
    }
}

fn end() {
    process::count(count::GS_TAKEN, 1);
    syscall::end_process();
}
