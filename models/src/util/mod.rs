//! Helpers: memory, random numbers, interned keys.

pub mod hash;
pub mod interner;
pub mod memory;
pub mod memory_units;
pub mod random;
