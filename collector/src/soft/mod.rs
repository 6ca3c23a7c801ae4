//! Runs a program under the software backend, from the start of the process to the last record on
//! disk.
//!
//! Guarantees: the program's standard streams, signals, process group and status are its own; the
//! recorder never blocks it for good; when the recorder dies, the program continues unrecorded.
//! Processes that outlive the program (daemons, background children) are recorded up to a short
//! grace after its end, and the cut is reported.

pub mod attach;
pub mod drain;
mod ending;
pub(crate) mod mapped_memory;
pub mod outcome;
pub mod phases;
pub mod run;
pub mod run_options;
pub mod runtime_image;
mod setup;
pub mod shared_memory;
pub mod static_image;
pub(crate) mod subject;
mod supervise;
pub mod texts;
pub(crate) mod unseen;
pub mod window_log;
mod workers;
