//! Types and helpers that every stage uses.

pub mod io;
pub mod prefetch;
pub mod skip_reason;
