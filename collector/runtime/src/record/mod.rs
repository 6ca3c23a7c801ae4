//! Rings, windows and the signals that recording needs.

#[cfg(not(test))]
pub mod attachment;
pub mod budget;
#[cfg(not(test))]
pub mod counters;
#[cfg(not(test))]
pub mod entry_patches;
#[cfg(not(test))]
pub mod modules;
#[cfg(not(test))]
pub(crate) mod own_stack;
mod params;
#[cfg(not(test))]
pub mod phases;
#[cfg(not(test))]
pub mod probe_cursor;
#[cfg(not(test))]
pub mod publish;
pub mod python_frames;
#[cfg(not(test))]
pub mod reuse_watch;
#[cfg(not(test))]
pub(crate) mod ring_memory;
#[cfg(not(test))]
pub mod signals;
#[cfg(not(test))]
pub mod speed_probe;
#[cfg(not(test))]
pub mod stack_copy;
pub mod table_carry;
pub mod target_cache;
#[cfg(not(test))]
pub mod thread_join;
#[cfg(not(test))]
pub mod thread_ring;
#[cfg(all(not(test), mgz_cdylib))]
pub mod time_mark;
#[cfg(not(test))]
pub mod transfer_hooks;
#[cfg(not(test))]
pub mod trigger;
#[cfg(not(test))]
pub mod watchpoint;
#[cfg(not(test))]
pub mod window;
