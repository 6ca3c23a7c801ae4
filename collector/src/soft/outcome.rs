//! Messages during a run, and its outcome.

use crate::objects::heap::Heap;
use crate::objects::stacks::StackSeen;
use crate::soft::drain::ThreadSeen;
use crate::soft::drain::count::CountsByProcess;
use crate::soft::shared_memory::{ModuleTableRow, Outside};
use crate::soft::window_log::WindowLog;
use mgz_annotations_schema::manifest::RunCounter;
use mgz_annotations_schema::{ProgramStatus, TriggerEvent};
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

/// A module that a traced process has loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleSeen {
    /// `shared_memory::MODULE_*`: 0 if it is recorded.
    pub result: u32,
    /// Process id.
    pub pid: u32,
    /// Its path.
    pub path: PathBuf,
    /// Run-time address minus link-time address.
    pub bias: u64,
    /// First record id.
    pub id_first: u32,
    /// Number of record ids.
    pub id_count: u32,
    /// Path of its sidecar.
    pub sidecar: PathBuf,
    /// Identity of its sidecar.
    pub sidecar_id: [u8; 16],
}

impl From<ModuleTableRow> for ModuleSeen {
    fn from(row: ModuleTableRow) -> Self {
        let path = |bytes: Vec<u8>| PathBuf::from(OsString::from_vec(bytes));
        let ModuleTableRow {
            result,
            pid,
            id_first,
            id_count,
            bias,
            sidecar_id,
            ..
        } = row;
        ModuleSeen {
            result,
            pid,
            path: path(row.path),
            bias,
            id_first,
            id_count,
            sidecar: path(row.sidecar),
            sidecar_id,
        }
    }
}

/// Something that happened while the program runs.
#[derive(Debug)]
pub enum RunEvent {
    /// A module was loaded.
    Module(ModuleSeen),
    /// A thread has begun and reports its stack.
    Thread(StackSeen),
    /// Threads that exist now, as process and thread.
    Living(HashSet<(u32, u32)>),
    /// Sent many times a second.
    Progress {
        /// Slots kept so far.
        slots: u64,
        /// Bytes of the spill folder.
        bytes: u64,
        /// `burst`: windows that were begun.
        windows: u64,
        /// `burst`: triggers that came outside of instrumented code.
        outside: u64,
    },
}

/// Outcome of a run.
#[derive(Clone, Debug)]
pub struct RunOutcome {
    /// Exit status or signal of the program.
    pub status: ProgramStatus,
    /// True if it was ended because everything requested had been recorded.
    pub ended_early: bool,
    /// Threads that recorded.
    pub threads: Vec<ThreadSeen>,
    /// `count`: how often records were written.
    pub counts: CountsByProcess,
    /// Modules in the order in which they were seen.
    pub modules: Vec<ModuleSeen>,
    /// `burst`: triggers, by outcome.
    pub triggers: BTreeMap<String, u64>,
    /// `burst`: triggers that came in code without a clone.
    pub outside: Outside,
    /// `burst`: event that began windows, with its description.
    pub trigger: Option<(TriggerEvent, String)>,
    /// Losses, by cause.
    pub dropped: BTreeMap<String, u64>,
    /// Segments shorter than requested, by cause (in `full` only where something is missing).
    pub truncated: BTreeMap<String, u64>,
    /// Counters of the processor over the run; empty if it has none.
    pub counters: Vec<RunCounter>,
    /// Sentences for the user.
    pub problems: Vec<String>,
    /// From the program's start to its end.
    pub wall: Duration,
    /// CPU time of the program and of the children that it waited for.
    pub cpu: Duration,
    /// Memory that the processes had mapped, each at its peak, bytes; None if unknown.
    pub mapped: Option<u64>,
    /// From the program's start to the moment when the last record was in its spill file.
    pub spill_done: Duration,
    /// Bytes of the spill folder.
    pub spill_bytes: u64,
    /// True if the recorder was asked to end (Ctrl-C, SIGTERM, …).
    pub interrupted: bool,
    /// Heap blocks, if they were logged.
    pub heap: Option<Heap>,
    /// Log of windows, if one was requested.
    pub window_log: Option<WindowLog>,
    /// Number of programs in which the runtime started.
    pub programs: u64,
    /// `burst` by CPU time: nanoseconds that recording took of the program's time, as measured by
    /// the runtime.
    pub spent_ns: u64,
    /// The recorded parts of the run, if not all of it.
    pub phases: Option<mgz_annotations_schema::manifest::Phases>,
}

/// Why a program could not be run.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// There is no such file, or no such interpreter. Exit status 127.
    #[error("{program}: not found")]
    NotFound {
        /// The program.
        program: String,
    },
    /// The kernel refuses to execute it. Exit status 126.
    #[error("{program}: cannot be executed: {error}")]
    CannotExecute {
        /// The program.
        program: String,
        /// Why.
        error: io::Error,
    },
    /// The process cannot be attached to. Exit status 125.
    #[error(transparent)]
    Attach(#[from] crate::soft::attach::Refused),
    /// The recorder itself failed. Exit status 125.
    #[error("{what}: {error}")]
    Own {
        /// The action that failed.
        what: String,
        /// The reason.
        error: io::Error,
    },
}

impl DriverError {
    /// The exit status by the convention of `env` and `timeout`.
    pub fn exit_status(&self) -> i32 {
        match self {
            DriverError::NotFound { .. } => 127,
            DriverError::CannotExecute { .. } => 126,
            DriverError::Attach(_) | DriverError::Own { .. } => 125,
        }
    }
}

/// An error of the recorder's own.
pub(crate) fn recorder_error(what: impl Into<String>) -> impl FnOnce(io::Error) -> DriverError {
    let what = what.into();
    move |error| DriverError::Own { what, error }
}
