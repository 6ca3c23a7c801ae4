//! Options of a recording.

use crate::convert::online::Online;
use crate::machine::trigger::WindowTrigger;
use crate::objects::heap::blocks::HeapBlocks;
use crate::objects::heap::hooks::Hook;
use crate::options::amount::Wanted;
use crate::soft::window_log::OfWindows;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Records to collect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Nothing, with the runtime in place: the address layout is that of the other modes.
    Off,
    /// Every record.
    Full,
    /// The number of times that each record is written.
    Count,
    /// The last records of each period.
    Ring,
    /// A window of records after each interval of a thread's CPU time.
    Burst,
}

/// A run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Records to collect.
    pub mode: Mode,
    /// `ring`: records from window end to window end.
    pub period: u64,
    /// `ring` and `burst`: records in a window.
    pub window: u64,
    /// `burst`: source of windows.
    pub trigger: Option<WindowTrigger>,
    /// `burst`: number of the trigger's signal.
    pub signal: u32,
    /// Ends recording after this time; the program continues.
    pub duration: Option<Duration>,
    /// Folder for the spill files; must exist.
    pub spill_dir: PathBuf,
    /// The file to execute; `PATH` is not searched.
    pub program: PathBuf,
    /// Its arguments, `argv[0]` included.
    pub argv: Vec<OsString>,
    /// Turn address randomization off for it.
    pub no_aslr: bool,
    /// The requested part of the run.
    pub phases: Wanted,
    /// Bound on the spill folder, bytes.
    pub max_bytes: Option<u64>,
    /// Kinds of logs of windows.
    pub of_windows: OfWindows,
    /// Heap blocks to log, including those of these functions.
    pub heap: Option<(HeapBlocks, Vec<Hook>)>,
    /// Libraries of the program that wrap functions of the C library themselves, and all libraries
    /// before these. The runtime comes after them.
    pub before_runtime: Vec<String>,
    /// Position of the runtime in the list of preloaded libraries if it wraps an allocator in one
    /// of them: bytes of the list before it.
    pub heap_place: Option<usize>,
    /// `full`: an analysis that takes records while the program runs.
    pub online: Option<Arc<Online>>,
    /// Count loads and misses of the program, if the processor has counters for them.
    pub counters: bool,
}
