//! Runs instrumented programs and collects their memory accesses into a trace: the library behind `mgz-record`.
//!
//! Two halves that meet in the spill files. While the program runs, [`driver`] takes what its threads
//! publish and writes it there, compactly and without waiting. Afterwards [`convert`] expands the records to
//! load addresses and writes the columns that other tools read. [`record`] puts the two together.

pub mod arena;
pub mod attach;
pub mod backend;
pub mod child;
pub mod cli;
pub mod convert;
pub mod coverage;
pub mod drain;
pub mod driver;
pub mod heap;
#[path = "../runtime/src/heaplog.rs"]
pub mod heaplog;
pub mod hot;
pub mod import;
pub mod live;
pub mod liveness;
pub mod manifest;
pub mod modules;
pub mod no_samples;
pub mod note;
pub mod objects;
pub mod offline;
pub mod options;
pub mod perfdata;
pub mod probe;
pub mod pt;
pub mod record;
pub mod runtime_image;
#[path = "../runtime/src/shared.rs"]
pub mod shared;
pub mod signals;
pub mod static_image;
pub mod summary;
pub mod ticker;
pub mod trigger;
pub mod watch;
