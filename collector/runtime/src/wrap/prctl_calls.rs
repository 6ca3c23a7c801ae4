//! Requests of a program to the kernel about itself by `prctl`, of which the runtime must know
//! before they take effect: no reading of the time stamp counter, no new executable memory, and
//! system calls that the kernel hands back to the program.
//!
//! For the last, a thread runs no clone any more. In `burst` an open window ends, and the thread
//! goes on unrecorded. In `full` and `ring` clones stand on the stack and entry jumps in the code,
//! so the process ends before, with the recorder's status for unsupported programs; files that are
//! seen to ask for it are refused before they run.

use crate::record::{entry_patches, modules, thread_ring, trigger, window};
use crate::sys::{clock, dispatch, process, syscall};
use mgz_abi::shared_memory::{MODE_BURST, count};

const SET_TSC: usize = 26;
/// `PR_TSC_SIGSEGV`.
const TSC_FORBIDDEN: usize = 2;
const SET_DISPATCH: usize = 59;
/// `PR_SYS_DISPATCH_ON`, and the value for the opposite range in newer kernels.
const DISPATCH_KINDS: core::ops::RangeInclusive<usize> = 1..=2;
/// `PR_SYS_DISPATCH_ON`.
const DISPATCH_OUTSIDE: usize = 1;
const SET_MDWE: usize = 65;
/// `PR_MDWE_REFUSE_EXEC_GAIN`.
const REFUSE_EXEC_GAIN: usize = 1;

/// The first words of such a call: option and arguments.
pub type PrctlWords = [usize; 5];

/// A call that original code is about to make.
pub fn met(words: PrctlWords) {
    if let [SET_DISPATCH, kind, start, length, selector] = words {
        return met_dispatch(kind, start, length, selector);
    }
    met_other(words);
}

/// One that a clone is about to make, at `call`. If the clone must be left: makes it, and returns its
/// result and where the original goes on.
///
/// # Safety
/// As the system call.
pub unsafe fn met_in_clone(words: PrctlWords, call: u64) -> Option<(isize, u64)> {
    /// Bytes of the instruction.
    const SYSCALL: u64 = 2;
    if words[0] != SET_DISPATCH || !DISPATCH_KINDS.contains(&words[1]) {
        met(words);
        return None;
    }
    let original = modules::clone_point_at(call).filter(|place| {
        let mut saved = place.state.saved.iter();
        let borrows = saved.any(|saved| saved[0] != mgz_abi::address_map::NO_REG);
        !borrows && place.state.base_reg == mgz_abi::address_map::NO_REG
    });
    let Some(original) = original else {
        end();
        return None;
    };
    met(words);
    let [option, a, b, c, d] = words;
    // SAFETY: the caller's contract.
    let result = unsafe { syscall::call(syscall::nr::PRCTL, option, a, b, c, d, 0) };
    Some((result, original.orig + SYSCALL))
}

fn met_other(words: PrctlWords) {
    match words {
        [SET_TSC, TSC_FORBIDDEN, ..] => clock::forbid(),
        [SET_MDWE, how, ..] if how & REFUSE_EXEC_GAIN != 0 => entry_patches::give_up(),
        _ => {}
    }
}

fn met_dispatch(kind: usize, start: usize, length: usize, selector: usize) {
    if !DISPATCH_KINDS.contains(&kind) {
        return dispatch::forget_dispatch();
    }
    let Some(header) = process::header() else {
        return;
    };
    let Some(ring) = thread_ring::ring_at(syscall::gs()) else {
        return;
    };
    if header.mode != MODE_BURST {
        if modules::any_instrumented() {
            end();
        }
        return;
    }
    window::leave_for_good(ring);
    trigger::quiet(ring);
    let allowed = if kind == DISPATCH_OUTSIDE {
        start..start.saturating_add(length)
    } else {
        0..0
    };
    // (A wrapper's call is met again where the C library makes it.)
    if !dispatch::is_begun() {
        process::count(count::CALLS_DISPATCHED, 1);
    }
    if !dispatch::begin_dispatch(allowed, selector) {
        syscall::end_process();
    }
}

/// Ends the process, which cannot go on as it was made.
fn end() {
    process::count(count::CALLS_DISPATCHED, 1);
    syscall::end_process();
}
