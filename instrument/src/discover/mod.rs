//! Functions and their control-flow graphs.

pub(crate) mod code_or_data;
pub(crate) mod gs_base;
pub(crate) mod gs_calls;
pub mod jump_tables;
pub mod recover;
pub mod scan;
pub mod self_reads;
pub mod symbolic_values;
