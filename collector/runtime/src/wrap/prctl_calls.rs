//! Requests of a program by `prctl` that the runtime must know before they take effect: no reads of
//! the time stamp counter, no new executable memory, and dispatch of system calls to the program.
//!
//! After the last one, a thread can run no clone. In `burst` an open window ends, and the thread
//! continues unrecorded. In `full` and `ring` the stack has return addresses of clones and the code
//! has entry jumps, so the process ends before the call, with the recorder's status for unsupported
//! programs; files that visibly make this call are refused before they run.

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

/// The first words of a `prctl` call: option and arguments.
pub type PrctlWords = [usize; 5];

/// Handles a call that original code is about to make.
pub fn met(words: PrctlWords) {
    if let [SET_DISPATCH, kind, start, length, selector] = words {
        return met_dispatch(kind, start, length, selector);
    }
    met_other(words);
}

/// Handles a call that a clone is about to make, at `call`. If the clone must be left, makes the
/// call and returns its result and the address at which the original continues.
///
/// # Safety
/// As the system call.
pub unsafe fn met_in_clone(words: PrctlWords, call: u64) -> Option<(isize, u64)> {
    /// Length of the `syscall` instruction, bytes.
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
    // (A call through a wrapper is intercepted again in the C library.)
    if !dispatch::is_begun() {
        process::count(count::CALLS_DISPATCHED, 1);
    }
    if !dispatch::begin_dispatch(allowed, selector) {
        syscall::end_process();
    }
}

/// Ends the process, which cannot continue as the program intended.
fn end() {
    process::count(count::CALLS_DISPATCHED, 1);
    syscall::end_process();
}
