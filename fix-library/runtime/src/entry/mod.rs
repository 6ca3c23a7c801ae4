//! The functions that the program calls.

mod allocator;
mod next;
mod operators;
mod start;
mod stubs;
