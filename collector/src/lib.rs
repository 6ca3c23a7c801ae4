//! Runs instrumented programs and collects their memory accesses into a trace: the library behind
//! `mgz-record`.
//!
//! Two halves that meet in the spill files. While the program runs, [`soft`] takes what its threads
//! publish and writes it there, compactly and without waiting. Afterwards [`convert`] expands the
//! records to load addresses and writes the columns that other tools read. [`commands`] put the two
//! together.
//!
//! The command is the crate `mgz-record`. It also has [`commands::intel_pt`], whose functions are
//! in `mgz-intel-pt`, unless it is built without them.

pub mod commands;
pub mod convert;
pub mod machine;
pub mod objects;
pub mod options;
pub mod pairs;
pub mod paths;
pub mod program;
pub mod python;
pub mod soft;
pub mod target;
pub mod trace;
pub mod util;
pub mod watch;
