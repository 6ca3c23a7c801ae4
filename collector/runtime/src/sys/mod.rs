//! What the kernel and the processor offer, without a C library.

#[cfg(not(test))]
pub mod begin;
#[cfg(not(test))]
pub mod clock;
pub mod decode;
#[cfg(not(test))]
pub mod environment;
#[cfg(not(test))]
pub mod libc_symbols;
#[cfg(all(not(test), mgz_cdylib))]
pub(crate) mod mem_builtins;
#[cfg(not(test))]
pub mod process;
pub mod seccomp_eval;
#[cfg(not(test))]
pub mod seccomp_state;
pub mod signal_frame;
#[cfg(not(test))]
pub mod syscall;
#[cfg(not(test))]
pub mod vdso;
