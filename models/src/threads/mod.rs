//! Accesses of several threads in one order.

pub mod interleave;
pub mod schedule;
