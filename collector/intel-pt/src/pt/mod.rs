//! Live recording with Intel PT, by `perf_event_open`, into a perf.data file.
//!
//! Three facts make this hard: processors and kernels differ in their features, few machines are
//! available for tests, and every loss must be reported. So the kernel is behind a trait
//! ([`mgz_perf::kernel::Kernel`]), and the events follow from the request and sysfs by a pure
//! function ([`plan`]). The file has the format of `perf record`, so that captures and perf's
//! recordings are imported alike, and perf can check it.
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
//! every round, even if the recorder is killed; a write error does not end the program. Not
//! supported: attaching to running processes, tracing the kernel.

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
