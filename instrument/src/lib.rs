//! Rewrites x86-64 ELF files so that they record the addresses they load from.
//!
//! What makes this hard: a stripped, optimised binary says little about itself. Code and data mix, indirect
//! jumps go where a register says, exceptions and debuggers read tables that describe every instruction,
//! and a single wrong guess changes a program.
//!
//! How it is dealt with: nothing of the original is moved or removed. Every function that is understood is
//! copied, with its probes, into a *clone* in a new segment; the original stays and still works, so that
//! whatever was not understood ends in original code: lost coverage, never a changed program. See
//! ARCHITECTURE.md for the parts and the decisions behind them.
//!
//! Guarantees: no panic on any input bytes; output files appear whole or not at all; the input is never
//! written. Not done: 32-bit code, relocatable objects, runtimes that look up return addresses in tables of
//! their own (Go, OCaml).

pub mod analyze;
pub mod annotate;
pub mod bits;
pub mod cfg;
pub mod cli;
pub mod columns;
pub mod consumed;
pub mod dataflow;
pub mod disasm;
pub mod discover;
mod doubt;
pub mod elf;
pub mod emit;
pub mod facts;
pub mod faults;
pub mod files;
pub mod frame;
pub mod freestanding;
pub mod functions;
mod gs;
pub mod handlers;
pub mod hash;
pub mod induction;
pub mod ir;
mod irregular;
pub mod layout;
pub mod libs;
pub mod lines;
pub mod liveness;
pub mod loops;
pub mod names;
pub mod needs;
pub mod offsets;
pub mod operands;
mod packed;
pub mod plan;
pub mod preserved;
pub mod reads;
pub mod regs;
pub mod report;
pub mod rewrite;
pub mod risk;
pub mod room;
pub mod sanitizers;
pub mod skim;
pub mod starts;
pub mod stay;
pub mod symbolic;
pub mod tables;
pub mod unwind;
pub mod values;
