//! The rewriter's passes in their order.

mod finish;
pub mod function_pass;
pub mod prefetched;
pub mod rewrite;
pub mod understand;
