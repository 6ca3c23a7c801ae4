//! Functions and their control-flow graphs.

pub(crate) mod code_or_data;
pub(crate) mod flag_writes;
pub(crate) mod gs_base;
pub mod jump_tables;
pub(crate) mod memory_files;
pub mod recover;
pub(crate) mod restartable;
pub mod scan;
pub mod self_reads;
pub(crate) mod state_calls;
pub mod symbolic_values;
