//! Places for entry jumps in the original code.

pub mod faulting;
pub mod space;
