//! Functions and their control-flow graphs.

pub(crate) mod code_or_data;
mod entries;
pub(crate) mod flag_writes;
mod function_ranges;
pub(crate) mod gs_base;
pub mod jump_tables;
pub(crate) mod memory_files;
pub mod recover;
pub(crate) mod restartable;
pub mod scan;
pub(crate) mod scanner;
pub mod self_reads;
pub(crate) mod state_calls;
pub mod symbolic_values;
