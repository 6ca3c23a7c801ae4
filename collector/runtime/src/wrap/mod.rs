//! The program's calls that the runtime stands in for.

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
pub(crate) mod legacy_signals;
#[cfg(not(test))]
pub mod locked_memory;
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
// Of the wrappers this alone can be tried outside of a traced process.
#[cfg(test)]
#[path = "heap/sampling.rs"]
mod sampling;
