//! Recording of a program from its start to its end.
//!
//! The child is created and held back, the events are opened on it, and only then may it execute
//! its program, at which point they begin to count. The recorder empties rings until the program
//! has ended, and a little longer for processes that outlive it. Signals are treated as in the
//! software backend: Ctrl-C is left to the program.

use crate::pt::capture::{Capture, Finished};
use crate::pt::open::{OpenError, Sizes, open};
use crate::pt::plan::{Machine, Request};
use mgz_annotations_schema::ProgramStatus;
use mgz_collector::target::signals::Signals;
use mgz_collector::target::spawn;
use mgz_collector::target::spawn::HeldChild;
use mgz_perf::kernel::Kernel;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest time between rounds. Source: Chosen.
const MAX_TIME_BETWEEN_ROUNDS: Duration = Duration::from_millis(50);
/// Time for which processes that outlive the program are recorded. Source: Chosen.
const RECORDING_AFTER_END: Duration = Duration::from_millis(200);

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct Job {
    /// The file to execute; `PATH` is not searched.
    pub program: PathBuf,
    /// The program's arguments, including `argv[0]`.
    pub argv: Vec<OsString>,
    /// Turn off address randomization for the program.
    pub no_aslr: bool,
    /// The events to record.
    pub request: Request,
    /// The perf.data file to write.
    pub file: PathBuf,
    /// Maximum size of the file, bytes.
    pub limit: Option<u64>,
    /// Any amount of memory may be locked for buffers.
    pub unlimited: bool,
}

/// Result of a run.
#[derive(Debug)]
pub struct Ended {
    /// Exit status of the program.
    pub status: ProgramStatus,
    /// Elapsed time from the program's start to its end.
    pub wall: Duration,
    /// The recording.
    pub finished: Finished,
    /// Names of the events.
    pub events: Vec<String>,
    /// Some processes were still alive when the recording ended.
    pub outlived: bool,
}

/// Reason why a program could not be recorded.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// There is no such file, or no such interpreter. Exit status 127.
    #[error("{0}: not found")]
    NotFound(String),
    /// The kernel refuses to execute it. Exit status 126.
    #[error("{program}: cannot be executed: {error}")]
    CannotExecute {
        /// The program.
        program: String,
        /// Why.
        error: io::Error,
    },
    /// The events could not be opened. Exit status 125.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The recorder itself failed. Exit status 125.
    #[error("{what}: {error}")]
    Own {
        /// The operation that failed.
        what: String,
        /// Why it failed.
        error: io::Error,
    },
}

impl RunError {
    /// The exit status by the convention of `env` and `timeout`.
    pub fn exit_status(&self) -> i32 {
        match self {
            RunError::NotFound(_) => 127,
            RunError::CannotExecute { .. } => 126,
            RunError::Open(_) | RunError::Own { .. } => 125,
        }
    }
}

fn own(what: impl Into<String>) -> impl FnOnce(io::Error) -> RunError {
    let what = what.into();
    move |error| RunError::Own { what, error }
}

/// Runs a program to its end and records it. One at a time per process, since signal settings are
/// per process.
///
/// If there is an error, the program has not run, and there is no file.
pub fn run(kernel: &mut dyn Kernel, machine: &Machine, job: &Job) -> Result<Ended, RunError> {
    let signals = Signals::install().map_err(own("setting up signals"))?;
    if job.no_aslr && !spawn::can_turn_aslr_off() {
        let why = "address randomization cannot be turned off here (a container's seccomp filter may forbid `personality`)";
        return Err(own(why)(io::ErrorKind::PermissionDenied.into()));
    }
    let held = spawn::hold(&job.program, &job.argv, job.no_aslr, signals.inherited())
        .map_err(own("starting a process"))?;
    let result = record(kernel, machine, job, &signals, held);
    if result.is_err() {
        let _ = std::fs::remove_file(&job.file);
    }
    result
}

fn record(
    kernel: &mut dyn Kernel,
    machine: &Machine,
    job: &Job,
    signals: &Signals,
    held: HeldChild,
) -> Result<Ended, RunError> {
    let pid = held.pid();
    let opened = open(
        kernel,
        machine,
        &job.request,
        pid,
        Sizes::wanted(&job.request, job.unlimited),
    )?;
    let events = opened.plan.events.iter().map(|e| e.name.clone()).collect();
    let begun = Capture::begin(
        kernel,
        opened,
        machine.pt.as_ref(),
        &job.request.filter,
        pid,
        &job.file,
        job.limit,
    );
    let mut capture = begun.map_err(own(job.file.display().to_string()))?;
    let program = job.program.display().to_string();
    let began = Instant::now();
    held.release().map_err(|error| match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENOTDIR) => RunError::NotFound(program.clone()),
        _ => RunError::CannotExecute {
            program: program.clone(),
            error,
        },
    })?;
    let mut tasks_left = true;
    let status = loop {
        if let Some(status) = reap(pid).map_err(own("waiting for the program"))? {
            break status;
        }
        for signal in signals.to_forward() {
            // SAFETY: our own child, not yet waited for, so the id is still its own.
            unsafe { libc::kill(pid as libc::pid_t, signal) };
        }
        // Short programs end soon; long ones are polled less often.
        let pause = MAX_TIME_BETWEEN_ROUNDS.min(began.elapsed() / 8 + Duration::from_millis(1));
        if tasks_left {
            tasks_left = capture.wait(pause).unwrap_or(false);
        } else {
            std::thread::sleep(pause);
        }
        capture.round();
    };
    let wall = began.elapsed();
    let ended = Instant::now();
    while tasks_left && ended.elapsed() < RECORDING_AFTER_END {
        tasks_left = capture.wait(Duration::from_millis(5)).unwrap_or(false);
        capture.round();
    }
    let command = job
        .argv
        .iter()
        .map(|a| a.to_string_lossy().into_owned())
        .collect();
    Ok(Ended {
        status,
        wall,
        finished: capture.finish(command),
        events,
        outlived: tasks_left,
    })
}

/// The child's status, if it has ended.
fn reap(pid: u32) -> io::Result<Option<ProgramStatus>> {
    let mut status = 0;
    // SAFETY: our own child; `status` outlives the call.
    match unsafe { libc::waitpid(pid as libc::pid_t, &raw mut status, libc::WNOHANG) } {
        0 => Ok(None),
        -1 => {
            let error = io::Error::last_os_error();
            if error.kind() == io::ErrorKind::Interrupted {
                Ok(None)
            } else {
                Err(error)
            }
        }
        _ if libc::WIFEXITED(status) => Ok(Some(ProgramStatus::Exited(libc::WEXITSTATUS(status)))),
        _ => Ok(Some(ProgramStatus::Signaled(libc::WTERMSIG(status)))),
    }
}

/// Path of the capture for a trace until the import is done: beside the trace.
pub fn capture_path(trace: &Path) -> PathBuf {
    let mut name = trace.as_os_str().to_owned();
    // `trace/` names the same folder.
    while name.len() > 1 && std::os::unix::ffi::OsStrExt::as_bytes(name.as_os_str()).ends_with(b"/")
    {
        let bytes = std::os::unix::ffi::OsStringExt::into_vec(name);
        name = std::os::unix::ffi::OsStringExt::from_vec(bytes[..bytes.len() - 1].to_vec());
    }
    name.push(".perf.data");
    PathBuf::from(name)
}
