//! Helpers that are independent of traces.

pub(crate) mod adaptive;
pub mod due;
pub(crate) mod elided;
pub mod fast_hash;
pub mod hex_address;
pub mod human;
pub(crate) mod key_index;
pub mod memory_limit;
pub mod progress;
pub(crate) mod radix;
