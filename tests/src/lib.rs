//! End-to-end tests of mgz and the independent reference that they compare with.
//!
//! Nothing here uses code of the rewriter, the recorder or the analyzer: the reference computes
//! load addresses by [stepping](stepper) a program under ptrace with its own [rules](loads), and
//! the tests run the binaries as a user would.

pub mod age;
pub mod compare;
pub mod events;
pub mod fix_folder;
pub mod forms;
pub mod inputs;
pub mod loads;
pub mod nop;
pub mod programs;
pub mod protobuf;
pub mod rows;
pub mod session;
pub mod stepper;
pub mod tools;
pub mod tracee;
pub mod ways;
