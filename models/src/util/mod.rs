//! Helpers: memory, random numbers, interned keys, sizes.

pub mod hash;
pub mod interner;
pub mod memory;
pub mod memory_units;
pub mod random;
pub mod size;
