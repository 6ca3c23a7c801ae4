//! General data structures.

pub mod bit_set;
pub mod byte_buf;
pub mod fast_hash;
pub mod range_index;
pub mod ranges;
