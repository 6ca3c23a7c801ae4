//! `--mode watch`: RDX live. Hardware watchpoints wait for the reuse of sampled addresses, in
//! programs as they are.
//!
//! | module | what |
//! |---|---|
//! | [`access`] | memory that an instruction accesses |
//! | [`trap_decode`] | the instruction before a watchpoint's trap, and its access to the word |
//! | [`sampler`] | from a sample to its reuse, for one thread, behind a trait |
//! | [`events`] | perf events: trigger, counters, watchpoints |
//! | [`ptrace`] | stopping, stepping and reading threads |
//! | [`calibrate`] | a test of watchpoints here, and their cost |
//! | [`crate::machine::counters`] | events that count accesses on this machine |
//! | [`pin`] | recorder and thread on one processor while it is stepped |
//! | [`run`] | a program from its start to its end |
//! | [`call_paths`] | the callers that led to uses and reuses |
//! | [`code_names`] | code addresses to functions and lines |
//! | [`mod@write`] | `watch.parquet` |
//! | [`crate::commands::record_watch`] | the trace folder around it |
//!
//! The program need not be instrumented: the one load that a sample needs is found by stepping the
//! original code.

pub mod access;
pub mod calibrate;
pub mod call_paths;
pub mod code_names;
pub mod events;
pub mod pin;
pub mod ptrace;
pub mod run;
pub mod sampler;
#[cfg(test)]
mod tests;
pub mod trap_decode;
pub mod write;
