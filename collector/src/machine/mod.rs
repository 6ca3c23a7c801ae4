//! Capabilities of this machine for recording, and the cost of recording.

pub mod backend;
pub mod caches;
pub mod capabilities;
pub mod counters;
pub mod facts;
pub mod identity;
pub mod memory_costs;
pub mod missing;
pub mod pt_facts;
pub mod run_counters;
pub mod signal_cost;
pub mod trigger;
