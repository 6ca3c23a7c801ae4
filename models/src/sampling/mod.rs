//! Locality from samples (RDX).

pub mod rdx;
pub mod time_to_stack;
