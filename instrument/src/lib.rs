//! Rewrites x86-64 ELF files so that they record the addresses they load from.
//!
//! The task is hard because a stripped, optimized binary says little about itself. Code and data
//! mix, indirect jumps go where a register says, exceptions and debuggers read tables that describe
//! every instruction, and a single wrong guess changes a program.
//!
//! The solution moves and removes nothing of the original. Every function that can be analysed is
//! copied, with its probes, into a *clone* in a new segment. The original stays and still works, so
//! other code runs as original code: lost coverage, never a changed program. See ARCHITECTURE.md
//! for the parts and the decisions behind them.
//!
//! Guarantees: no panic on any input bytes; output files appear whole or not at all; the input is
//! never written. Not done: 32-bit code, relocatable objects, V8.

pub mod analyze;
pub mod cli;
pub mod common;
pub mod discover;
pub mod dump;
pub mod emit;
pub mod ir;
pub mod link;
pub mod patch;
pub mod pipeline;
pub mod plan;
pub mod prefetch;
pub mod program;
pub mod report;
pub mod sidecar;
pub mod signals;
mod text_report;
pub mod unwind;
pub mod util;
pub mod x86;
