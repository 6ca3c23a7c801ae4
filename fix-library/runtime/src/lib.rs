//! The shared object that places heap blocks of chosen allocation sites.
//!
//! It comes before the C library in the loader's order and defines the allocator's functions. Each
//! looks up its return address in the plan ([`sites`]). Blocks of sites in the plan come from the
//! library's memory ([`heap`]); all other calls are passed to the next allocator by a jump, with
//! their arguments, stack and return address unchanged (`entry`).
//!
//! Guarantees: a block is freed by the allocator that it came from; with a damaged plan, another
//! allocator or a loader without a list, only the jumps remain; if the library's memory is
//! exhausted, the next allocator is called.
//!
//! The code has no standard library and no thread-local variables, makes its own system calls, and
//! imports no symbol: the first call may come before any constructor.

#![cfg_attr(not(test), no_std)]
#![cfg_attr(
    not(mgz_cdylib),
    allow(
        dead_code,
        unused_imports,
        reason = "most of it is reached from the exported functions only"
    )
)]

pub mod plan_format;
pub mod size_class;

#[cfg(mgz_cdylib)]
mod entry;
#[cfg(not(test))]
mod heap;
#[cfg(not(test))]
mod params;
#[cfg(not(test))]
mod sites;
#[cfg(not(test))]
mod sys;
