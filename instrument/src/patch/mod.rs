//! Where an entry jump may lie in the original code.

pub mod faulting;
pub mod space;
