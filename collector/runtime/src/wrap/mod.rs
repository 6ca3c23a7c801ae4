//! The program's calls that the runtime intercepts.

/// Calls a library of the program that replaces the function, if there is one, and returns its
/// result: the wrapper's caller would have called that library. Its calls to the C library are
/// intercepted at their system calls; if these are not, the wrapper does the work itself.
#[cfg(not(test))]
macro_rules! ask_stand_in {
    ($name:literal, $ty:ty $(, $argument:expr)*) => {
        if let Some(to) = $crate::wrap::stand_in(const { $crate::sys::libc_symbols::place_behind_wrappers($name) }) {
            // SAFETY: the function's type, and the caller's arguments.
            #[allow(unused_unsafe, reason = "some wrappers are unsafe functions")]
            return unsafe { core::mem::transmute::<usize, $ty>(to)($($argument),*) };
        }
    };
}
#[cfg(not(test))]
pub(crate) use ask_stand_in;

/// The library function that replaces one of the C library's, if it may be called.
#[cfg(not(test))]
pub(crate) fn stand_in(place: usize) -> Option<usize> {
    if !call_sites::are_met() {
        return None;
    }
    crate::sys::libc_symbols::stand_in(place)
}

#[cfg(not(test))]
pub mod call_sites;
#[cfg(not(test))]
pub mod cancel;
#[cfg(not(test))]
pub mod close_fds;
#[cfg(not(test))]
pub mod exec;
#[cfg(not(test))]
pub mod gs_base;
#[cfg(all(not(test), mgz_cdylib))]
pub mod heap;
#[cfg(not(test))]
pub(crate) mod interrupting;
#[cfg(not(test))]
pub(crate) mod legacy_signals;
#[cfg(not(test))]
pub mod locked_memory;
#[cfg(not(test))]
pub mod prctl_calls;
#[cfg(not(test))]
pub mod proc_files;
#[cfg(not(test))]
pub mod raw_syscalls;
#[cfg(not(test))]
pub mod seccomp;
#[cfg(not(test))]
pub mod sigev_thread;
#[cfg(not(test))]
pub(crate) mod signal_calls;
#[cfg(not(test))]
pub mod threads;
// These are the only wrappers that tests can call outside of a traced process.
#[cfg(test)]
#[path = "heap/pace.rs"]
mod pace;
#[cfg(test)]
#[path = "heap/params.rs"]
mod params;
#[cfg(test)]
#[path = "heap/sampling.rs"]
mod sampling;
