//! Types and helpers that every stage uses.

pub mod io;
pub mod skip_reason;
