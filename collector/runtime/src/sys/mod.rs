//! Services of the kernel and the processor, without a C library.

#[cfg(not(test))]
pub mod begin;
#[cfg(not(test))]
pub mod clock;
pub mod decode;
#[cfg(not(test))]
pub mod dispatch;
#[cfg(not(test))]
pub mod environment;
#[cfg(not(test))]
pub mod errno;
#[cfg(not(test))]
pub mod flags;
#[cfg(not(test))]
pub mod libc_symbols;
#[cfg(not(test))]
pub(crate) mod loader_list;
pub mod mapping_list;
#[cfg(all(not(test), mgz_cdylib))]
pub(crate) mod mem_builtins;
#[cfg(not(test))]
pub mod own_memory;
#[cfg(not(test))]
pub mod process;
#[cfg(not(test))]
pub mod program_headers;
#[cfg(not(test))]
pub mod rseq_area;
#[cfg(not(test))]
pub mod seccomp_state;
pub mod signal_frame;
#[cfg(not(test))]
pub mod syscall;
#[cfg(not(test))]
pub mod vdso;
