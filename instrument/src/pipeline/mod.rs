//! The rewriter's passes in their order.

pub mod function_pass;
pub mod rewrite;
