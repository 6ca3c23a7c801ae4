//! Live recording with Intel PT, by `perf_event_open`, into a perf.data file.
//!
//! Three facts make this hard: no two processors and kernels offer the same, there is hardly a
//! machine to try it on, and every loss must be reported. So the kernel stands behind a trait
//! ([`mgz_perf::kernel::Kernel`]), and the events follow from the request and sysfs by a pure
//! function ([`plan`]). The file is the one that `perf record` would have written, so that one path
//! leads from a capture to a trace, and perf can check it.
//!
//! * [`plan`]: which events, with which attributes, on which CPUs.
//! * [`known`]: kernels and processors with errors.
//! * [`open`]: opening and mapping, with the possible concessions.
//! * [`synth`]: records that the kernel does not write.
//! * [`capture`]: emptying rings into the file.
//! * [`run`]: a program from its start to its end under all of this.
//! * [`filter`]: which functions the command line asks for.
//!
//! The kernel's side, its events, rings and files are `mgz-perf`'s; the command is
//! [`crate::commands::record`].
//!
//! Guarantees: records keep their order within a ring; loss is counted; the file is valid after
//! every round, also when the recorder is killed; an error of the file does not end the program.
//! Not done: attaching to processes that run already, tracing the kernel.

pub mod capture;
pub mod filter;
pub mod known;
pub mod open;
pub mod plan;
pub mod run;
#[cfg(test)]
pub(crate) mod scenario_tests;
pub mod synth;
#[cfg(test)]
pub(crate) mod tests;
#[cfg(test)]
pub(crate) mod trace_tests;
