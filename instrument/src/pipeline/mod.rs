//! The rewriter's passes in their order.

pub mod analysis_input;
mod finish;
pub mod function_pass;
pub mod prefetched;
pub mod rewrite;
pub mod rewritten;
pub mod settings;
pub mod understand;
