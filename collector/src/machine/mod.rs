//! What this machine can record and what it costs.

pub mod backend;
pub mod caches;
pub mod capabilities;
pub mod counters;
pub mod signal_cost;
pub mod trigger;
