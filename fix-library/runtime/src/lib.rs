//! The shared object that places heap blocks of chosen allocation sites.
//!
//! It stands before the C library in the loader's order and defines the allocator's functions. Each
//! looks its return address up in the plan ([`sites`]). Blocks of sites in the plan come from own
//! memory ([`heap`]); all other calls go on to the next allocator by a jump, with their arguments,
//! stack and return address unchanged (`entry`).
//!
//! Guarantees: a block is freed by the allocator that it came from; a damaged plan, another allocator
//! or a loader without a list leaves only the jumps; where own memory ends, the next allocator is
//! asked.
//!
//! The code has no standard library and no thread-local variables, makes its own system calls, and
//! asks the loader for no symbol: the first call may come before any constructor.

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
