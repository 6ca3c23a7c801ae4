//! Runs a program under the software backend, from the start of the process to the last record on disk.
//!
//! Guarantees: the program's standard streams, signals, process group and status are its own; the
//! recorder never blocks it for good; when the recorder dies, the program goes on unrecorded. Processes
//! that outlive the program (daemons, background children) are recorded up to a short grace after its end, and
//! that they were cut is told.

pub mod attach;
pub mod drain;
pub mod runtime_image;
pub mod shared_memory;
pub mod static_image;
pub(crate) mod subject;
pub(crate) mod unseen;

use crate::machine::trigger::Trigger;
use crate::objects::heap::hooks::Hook;
use crate::objects::heap::{Collector, Heap};
use crate::objects::stacks::StackSeen;
use crate::soft::attach::Candidate;
use crate::soft::drain::{Drainer, KnownProcess, Tally};
use crate::soft::runtime_image::RuntimeImage;
use crate::soft::shared_memory::{Arena, MAX_WINDOW, Row, Settings};
use crate::target::signals::{FileSizesLifted, Signals};
use crate::target::spawn;
use crate::target::status::ProgramStatus;
use mgz_abi::shared_memory::{CLOSING, LIVE, STACK_ROWS, count};
use mgz_annotations_schema::manifest::ANNOTATIONS_DIR;
use mgz_annotations_schema::spill::{EncodedSegment, cause};
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
pub(crate) use subject::Subject;
use unseen::Unseen;

pub use crate::program::note::instrumented_note;
pub use crate::soft::drain::ThreadSeen;

/// How often signals, modules and dead threads are looked for.
const TICK: Duration = Duration::from_millis(20);
/// How long processes that outlive the program are recorded.
const GRACE: Duration = Duration::from_millis(200);
/// How long a worker that has just been busy looks for more work before it sleeps.
const SPIN: Duration = Duration::from_micros(30);
/// Longest sleep of a worker.
const NAP: Duration = Duration::from_millis(20);
/// More workers than this do not help: they all write to one disk.
const MAX_WORKERS: usize = 16;

/// What is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Nothing, with the runtime in place: the address layout is that of the other modes.
    Off,
    /// Every record.
    Full,
    /// The last records of each period.
    Ring,
    /// A window of records whenever a thread has used so much CPU time.
    Burst,
}

/// A run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// What is recorded.
    pub mode: Mode,
    /// `ring`: records from window end to window end.
    pub period: u64,
    /// `ring` and `burst`: records in a window.
    pub window: u64,
    /// `burst`: what begins windows.
    pub trigger: Option<Trigger>,
    /// `burst`: number of the trigger's signal.
    pub signal: u32,
    /// Ends recording after this time; the program goes on.
    pub duration: Option<Duration>,
    /// Folder for the spill files; must exist.
    pub spill_dir: PathBuf,
    /// The file to execute; `PATH` is not searched.
    pub program: PathBuf,
    /// Its arguments, `argv[0]` included.
    pub argv: Vec<OsString>,
    /// Turn address randomization off for it.
    pub no_aslr: bool,
    /// Bound on the spill folder, bytes.
    pub max_bytes: Option<u64>,
    /// Log heap blocks, of these functions as well.
    pub heap: Option<Vec<Hook>>,
    /// Libraries of the program that stand in for functions of the C library themselves, and what comes before them: the runtime comes behind these.
    pub before_runtime: Vec<String>,
    /// Where the runtime comes among preloaded libraries if it stands in for an allocator that is in one of them, bytes of the list before it.
    pub heap_place: Option<usize>,
}

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

impl From<Row> for ModuleSeen {
    fn from(row: Row) -> Self {
        let path = |bytes: Vec<u8>| PathBuf::from(OsString::from_vec(bytes));
        let Row {
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
pub enum Event {
    /// A module was loaded.
    Module(ModuleSeen),
    /// A thread has begun, and tells of its stack.
    Thread(StackSeen),
    /// The threads that are there, as process and thread.
    Living(HashSet<(u32, u32)>),
    /// About every [`TICK`].
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

/// What a run came to.
#[derive(Clone, Debug)]
pub struct RunOutcome {
    /// How the program ended.
    pub status: ProgramStatus,
    /// Threads that recorded.
    pub threads: Vec<ThreadSeen>,
    /// Modules in the order in which they were met.
    pub modules: Vec<ModuleSeen>,
    /// `burst`: triggers, by what became of them.
    pub triggers: BTreeMap<String, u64>,
    /// `burst`: addresses of code without a clone that the last triggers came in.
    pub elsewhere: Vec<u64>,
    /// `burst`: what the triggers were.
    pub trigger: String,
    /// What was lost, by cause.
    pub dropped: BTreeMap<String, u64>,
    /// Segments shorter than asked, by cause (in `full` only where something is missing).
    pub truncated: BTreeMap<String, u64>,
    /// Sentences for the user.
    pub problems: Vec<String>,
    /// From the program's start to its end.
    pub wall: Duration,
    /// CPU time of the program and of the children that it waited for.
    pub cpu: Duration,
    /// From the program's start to the moment when the last record was in its spill file.
    pub spill_done: Duration,
    /// Bytes of the spill folder.
    pub spill_bytes: u64,
    /// Whether the recorder was asked to end (Ctrl-C, SIGTERM, …).
    pub interrupted: bool,
    /// Heap blocks, if they were logged.
    pub heap: Option<Heap>,
    /// Programs in which the runtime began.
    pub programs: u64,
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
        /// What was tried.
        what: String,
        /// Why it failed.
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

fn own(what: impl Into<String>) -> impl FnOnce(io::Error) -> DriverError {
    let what = what.into();
    move |error| DriverError::Own { what, error }
}

fn settings(options: &RunOptions) -> Result<Settings, DriverError> {
    match options.mode {
        Mode::Off => Ok(Settings::off()),
        Mode::Full => Ok(Settings::full()),
        Mode::Burst => options
            .trigger
            .and_then(|trigger| Settings::burst(options.window, trigger, options.signal))
            .ok_or_else(|| DriverError::Own {
                what: format!("a window of {} records", options.window),
                error: io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("a window has 1 to {MAX_WINDOW} records"),
                ),
            }),
        Mode::Ring => {
            Settings::ring(options.period, options.window).ok_or_else(|| DriverError::Own {
                what: format!(
                    "a window of {} records in a period of {}",
                    options.window, options.period
                ),
                error: io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!(
                        "a window has 1 to {MAX_WINDOW} records and is not longer than the period"
                    ),
                ),
            })
        }
    }
}

fn start(
    options: &RunOptions,
    image: &RuntimeImage,
    arena: &Arena,
    signals: &Signals,
) -> Result<Child, DriverError> {
    if options.no_aslr && !spawn::can_turn_aslr_off() {
        return Err(own(
            "address randomization cannot be turned off here (a container's seccomp filter may forbid `personality`)",
        )(io::ErrorKind::PermissionDenied.into()));
    }
    let program = options.program.display().to_string();
    let preload = spawn::Preload {
        runtime: image.path(),
        before: options.before_runtime.clone(),
        at: options.heap_place,
    };
    let started = spawn::spawn(
        &options.program,
        &options.argv,
        options.no_aslr,
        &preload,
        &arena.path(),
        signals.inherited(),
    );
    started.map_err(|error| match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENOTDIR) => DriverError::NotFound { program },
        // These come from fork.
        Some(libc::EAGAIN | libc::ENOMEM) => own(format!("starting {program}"))(error),
        _ => DriverError::CannotExecute { program, error },
    })
}

/// Runs a program to its end and records it.
///
/// One at a time per process, since signal settings are per process.
pub fn run(
    options: &RunOptions,
    on_event: &mut dyn FnMut(&Event),
) -> Result<RunOutcome, DriverError> {
    record(options, on_event, |image, arena, signals| {
        start(options, image, arena, signals).map(Subject::Child)
    })
}

/// Records a process that runs already, until it ends, or [`RunOptions::duration`] is over, or somebody asks the recorder to end.
/// `program` and `argv` of the options are not looked at.
pub fn run_attached(
    options: &RunOptions,
    candidate: Candidate,
    on_event: &mut dyn FnMut(&Event),
) -> Result<RunOutcome, DriverError> {
    record(options, on_event, |image, arena, _| {
        Ok(Subject::Attached(
            attach::attach(candidate, arena, image, options.signal)?.into(),
        ))
    })
}

fn record(
    options: &RunOptions,
    on_event: &mut dyn FnMut(&Event),
    begin: impl FnOnce(&RuntimeImage, &Arena, &Signals) -> Result<Subject, DriverError>,
) -> Result<RunOutcome, DriverError> {
    let settings = settings(options)?;
    // First, or a limit on file sizes would be a deadly signal and not an error.
    let signals = Signals::install().map_err(own("setting up signals"))?;
    let lifted = FileSizesLifted::new().map_err(own("lifting the limit on file sizes"))?;
    let arena =
        Arena::new(settings).map_err(own("making the shared memory (is `ulimit -f` very low?)"))?;
    let image = RuntimeImage::new(options.heap.as_deref())
        .map_err(own("preparing the runtime (is `ulimit -f` very low?)"))?;
    let collector = options
        .heap
        .is_some()
        .then(Collector::new)
        .transpose()
        .map_err(own("making the log of heap blocks"))?;
    if let Some(collector) = &collector {
        arena.set_heap(&collector.path());
    }
    drop(lifted);
    let sidecars = options.spill_dir.with_file_name(ANNOTATIONS_DIR);
    if let Ok(folder) = std::fs::canonicalize(sidecars) {
        arena.set_sidecars(&folder);
    }
    let drainer = Drainer::new(&arena, &options.spill_dir, options.max_bytes);
    let began = Instant::now();
    let mut subject = begin(&image, &arena, &signals)?;
    let watcher = subject.watcher().map_err(own("watching the process"))?;
    let crew = Crew::new(&drainer, &arena);
    let mut session = Session {
        arena: &arena,
        drainer: &drainer,
        signals: &signals,
        modules: Vec::new(),
        rows: 0,
        unfinished: None,
        threads: Vec::new(),
        stacks: 0,
        waited_for: None,
        problems: Vec::new(),
        segment: EncodedSegment::default(),
        until: options.duration.map(|d| began + d),
        unseen: Unseen::new(),
    };
    let (over, left) = (AtomicBool::new(false), AtomicBool::new(false));
    let (status, wall, heap) = std::thread::scope(|scope| {
        let heap = collector.as_ref().map(|c| scope.spawn(|| c.collect(&over)));
        let end_of_heap = Set(&over);
        for number in 0..crew.size {
            let crew = &crew;
            scope.spawn(move || {
                if number == 0 {
                    crew.lead()
                } else {
                    crew.help()
                }
            });
        }
        // Whatever happens below, the workers must end, or the scope waits for ever.
        let _end = EndOfShift {
            crew: &crew,
            arena: &arena,
        };
        let (sender, ended) = channel();
        let (gone, end_of_watch) = (&left, Set(&left));
        scope.spawn(move || {
            watcher.wait(gone);
            // The session may have gone already.
            let _ = sender.send(());
        });
        let result = session.watch(&mut subject, &ended, on_event);
        drop(end_of_watch);
        let wall = began.elapsed();
        let status = result.map_err(own("waiting for the program"))?;
        session.wind_up(subject.id(), status, on_event);
        drop(end_of_heap);
        let heap = heap.map(|h| {
            h.join()
                .map_err(|_| own("reading the log of heap blocks")(io::Error::other("it panicked")))
        });
        Ok::<_, DriverError>((status, wall, heap.transpose()?))
    })?;
    let Session {
        modules,
        mut problems,
        unseen,
        ..
    } = session;
    let mut dropped: BTreeMap<String, u64> = BTreeMap::new();
    for &(number, name) in &count::NAMES {
        let value = arena.counter(number);
        if value != 0 {
            dropped.insert((*name).to_owned(), value);
        }
    }
    // Those without room are no secret.
    let unseen = unseen
        .count()
        .saturating_sub(arena.counter(count::THREADS_WITHOUT_RING));
    if unseen > 0 {
        dropped.insert("threads_unseen".to_owned(), unseen);
    }
    let triggers = count::TRIGGER_NAMES
        .iter()
        .map(|&(number, name)| (name.to_owned(), arena.counter(number)))
        .filter(|(_, n)| *n > 0)
        .collect();
    let trigger = match arena.trigger_kind() {
        mgz_abi::shared_memory::TRIGGER_EVENT => {
            "cpu time (perf_event, user space only)".to_owned()
        }
        mgz_abi::shared_memory::TRIGGER_TIMER if options.trigger.is_some_and(|t| t.tick != 0) => {
            "cpu time (POSIX timers, at the kernel's tick)".to_owned()
        }
        mgz_abi::shared_memory::TRIGGER_TIMER => format!("cpu time (POSIX timers, {AT_MOST})"),
        mgz_abi::shared_memory::TRIGGER_LOADS => {
            options.trigger.map_or_else(String::new, |t| t.source())
        }
        _ => String::new(),
    };
    problems.extend(without_trigger(
        arena.counter(count::THREADS_WITHOUT_TRIGGER),
        options.trigger.is_some_and(|t| t.by_loads()),
    ));
    let interrupted = signals.interrupted();
    let tally: Tally = drainer.tally();
    dropped.extend(tally.dropped);
    problems.extend(tally.problems);
    Ok(RunOutcome {
        status,
        threads: tally.threads,
        modules,
        triggers,
        elsewhere: arena.elsewhere(),
        trigger,
        dropped,
        truncated: tally.truncated,
        problems,
        wall,
        cpu: subject.cpu(),
        spill_done: tally
            .last_write
            .map_or(Duration::ZERO, |t| t.saturating_duration_since(began)),
        spill_bytes: tally.bytes,
        interrupted,
        heap,
        programs: arena.counter(count::PROGRAMS),
    })
}

/// What `trigger` of the manifest says of timers that may have been asked for more often than the kernel looks at them.
pub const AT_MOST: &str = "at most at the kernel's tick";

/// What is to be said of threads that could not be sampled in `burst`.
fn without_trigger(threads: u64, by_loads: bool) -> Option<String> {
    (threads > 0).then(|| match by_loads {
        true => format!(
            "{threads} threads were not sampled: the kernel refuses the event that counts loads (a seccomp filter, the limit on open files, or other users of the counters, perhaps; remedy: allow it, or let CPU time begin windows with --trigger cpu-time)"
        ),
        false => format!(
            "{threads} threads were not sampled: the kernel refuses both perf_event_open and timers on a thread's CPU clock (a seccomp filter, perhaps, or the limit on open files; remedy: allow one of them, or record with --mode ring)"
        ),
    })
}

/// What the coordinating thread does while the workers drain.
struct Session<'a> {
    arena: &'a Arena,
    drainer: &'a Drainer<'a>,
    signals: &'a Signals,
    modules: Vec<ModuleSeen>,
    /// Rows of the module table that were read, and since when the next one is being written.
    rows: usize,
    unfinished: Option<Instant>,
    /// Process and thread that were seen last in each thread slot.
    threads: Vec<(u32, u32)>,
    /// Rows of the threads' stacks that were read, and the one that was not complete at the last look.
    stacks: u64,
    waited_for: Option<u64>,
    problems: Vec<String>,
    segment: EncodedSegment,
    /// When recording is to end, if not with the program.
    until: Option<Instant>,
    unseen: Unseen,
}

impl Session<'_> {
    /// Until the program's end, or that of the recording of a process that runs on.
    fn watch(
        &mut self,
        subject: &mut Subject,
        ended: &Receiver<()>,
        on_event: &mut dyn FnMut(&Event),
    ) -> io::Result<ProgramStatus> {
        let pid = subject.id();
        loop {
            match ended.recv_timeout(TICK) {
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return subject.take_status(),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let out_of_time = self.until.is_some_and(|until| Instant::now() >= until);
            if let Subject::Attached(attached) = subject {
                if out_of_time || self.signals.interrupted() {
                    self.arena.stop();
                    // Windows that are open now end.
                    std::thread::sleep(TICK);
                    return Ok(ProgramStatus::RunsOn);
                }
                attached.tick(
                    &|thread| self.has_ring(thread),
                    self.arena.settings().signal,
                );
                self.problems.append(&mut attached.problems);
            }
            for signal in self.signals.to_forward() {
                // SAFETY: our own child, not yet waited for, so that the id is its own.
                unsafe { libc::kill(pid as libc::pid_t, signal) };
            }
            self.drainer
                .sweep(&KnownProcess { pid, ended: None }, &mut self.segment);
            if out_of_time {
                self.until = None;
                self.arena.stop();
            }
            self.report(false, on_event);
            if matches!(subject, Subject::Child(_)) && !self.arena.stopped() {
                self.unseen.look(self.threads.iter().copied());
            }
        }
    }

    /// Whether a thread has claimed a slot.
    fn has_ring(&self, thread: i32) -> bool {
        (0..self.arena.slots_tried())
            .any(|index| self.arena.slot(index).snapshot().tid as i32 == thread)
    }

    /// After the program's end: takes what is left, and waits a little for processes that outlive it.
    fn wind_up(&mut self, pid: u32, status: ProgramStatus, on_event: &mut dyn FnMut(&Event)) {
        let cause = match status {
            ProgramStatus::Exited(_) | ProgramStatus::Ended => cause::END_OF_PROCESS,
            ProgramStatus::Signaled(_) => cause::KILLED,
            ProgramStatus::RunsOn => {
                self.drainer.abandon(&mut self.segment);
                return self.report(true, on_event);
            }
        };
        let known = KnownProcess {
            pid,
            ended: Some(cause),
        };
        let until = Instant::now() + GRACE;
        let mut pause = Duration::from_millis(1);
        while self.drainer.sweep(&known, &mut self.segment) > 0 {
            if Instant::now() >= until {
                self.arena.stop();
                let threads = self.drainer.abandon(&mut self.segment);
                if threads > 0 {
                    self.problems.push(format!(
                        "{threads} threads of processes that outlived the program were recorded only until {} ms after its end; they run on unrecorded (remedy: let the program wait for its children)",
                        GRACE.as_millis()
                    ));
                }
                break;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(TICK);
        }
        self.report(true, on_event);
    }

    /// The next row of the module table. One whose process was killed while it wrote is left out: at once if all are `over`.
    fn next_row(&mut self, over: bool) -> Option<crate::soft::shared_memory::Row> {
        const LONGEST: Duration = Duration::from_secs(2);
        while self.rows < self.arena.modules_claimed() {
            let mut row = self.arena.module(self.rows);
            if row.is_none() {
                if !over && self.unfinished.get_or_insert_with(Instant::now).elapsed() < LONGEST {
                    return None;
                }
                row = self.arena.skip_module(self.rows);
            }
            self.rows += 1;
            self.unfinished = None;
            if row.is_some() {
                return row;
            }
        }
        None
    }

    /// The next row of the threads' stacks. Rows that others have taken the place of are left out, and so is one whose thread was killed while it wrote.
    fn next_stack(&mut self) -> Option<StackSeen> {
        loop {
            let claimed = self.arena.stacks_claimed();
            self.stacks = self.stacks.max(claimed.saturating_sub(STACK_ROWS as u64));
            if self.stacks >= claimed {
                return None;
            }
            let number = self.stacks;
            let row = self.arena.stack(number);
            if row.is_none() && self.arena.stacks_claimed() - number <= STACK_ROWS as u64 {
                // It is being written; that takes less than the time between two looks.
                if self.waited_for != Some(number) {
                    self.waited_for = Some(number);
                    return None;
                }
            }
            self.stacks += 1;
            if row.is_some() {
                return row;
            }
        }
    }

    /// Tells of new modules and of the progress; `over`: for the last time.
    fn report(&mut self, over: bool, on_event: &mut dyn FnMut(&Event)) {
        while let Some(row) = self.next_row(over) {
            let module = ModuleSeen::from(row);
            if module.result == mgz_abi::shared_memory::MODULE_PLAIN {
                self.unseen.begins_unrecorded(module.pid);
            }
            self.modules.push(module.clone());
            on_event(&Event::Module(module));
        }
        self.arena.modules_read(self.rows);
        // First who has begun: of those who begin from now on nobody expects that they are there.
        while let Some(seen) = self.next_stack() {
            on_event(&Event::Thread(seen));
        }
        let mut living = HashSet::new();
        for index in 0..self.arena.slots_tried() {
            let slot = self.arena.slot(index);
            let seen = slot.snapshot();
            if self.threads.len() <= index {
                self.threads.resize(index + 1, (0, 0));
            }
            if seen.tid != 0 {
                self.threads[index] = (seen.pid, seen.tid);
            }
            if matches!(slot.state(), LIVE | CLOSING) {
                living.insert((seen.pid, seen.tid));
            }
        }
        on_event(&Event::Living(living));
        let (slots, bytes) = self.drainer.progress();
        let (windows, outside) = (
            self.arena.counter(count::WINDOWS),
            self.arena.counter(count::TRIGGERS_OUTSIDE),
        );
        on_event(&Event::Progress {
            slots,
            bytes,
            windows,
            outside,
        });
    }
}

/// How long the leading worker sleeps at most. In `burst` threads do not call it, which would cost them as much as a small window: it looks
/// often enough that a few windows wait at most: more of them would push the program's own data out of the caches that both share.
fn nap(settings: &Settings) -> Duration {
    const LEAST: Duration = Duration::from_micros(500);
    const WAITING: u64 = 4;
    match settings.mode {
        mgz_abi::shared_memory::MODE_BURST => Duration::from_nanos(
            settings
                .trigger
                .map_or(0, |t| t.least_ns())
                .saturating_mul(WAITING),
        )
        .clamp(LEAST, NAP),
        _ => NAP,
    }
}

/// The workers: one waits at the doorbell, the others help when more than one chunk waits.
struct Crew<'a> {
    drainer: &'a Drainer<'a>,
    arena: &'a Arena,
    /// Number of workers.
    size: usize,
    over: AtomicBool,
    sleepers: Mutex<()>,
    help: Condvar,
}

/// What a worker works with.
#[derive(Default)]
struct Hands {
    /// Thread slots with something to drain.
    ready: Vec<usize>,
    segment: EncodedSegment,
}

impl<'a> Crew<'a> {
    fn new(drainer: &'a Drainer<'a>, arena: &'a Arena) -> Self {
        let size = std::thread::available_parallelism()
            .map_or(1, |n| n.get())
            .min(MAX_WORKERS);
        Crew {
            drainer,
            arena,
            size,
            over: AtomicBool::new(false),
            sleepers: Mutex::default(),
            help: Condvar::new(),
        }
    }

    /// Windows of `burst` come one by one, long after each other: who waits for the next one on the processor, or wakes others for a few, takes it from the program.
    fn sparing(&self) -> bool {
        self.size == 1 || self.arena.settings().mode == mgz_abi::shared_memory::MODE_BURST
    }

    fn lead(&self) {
        let nap = nap(self.arena.settings());
        let mut hands = Hands::default();
        let mut busy = Instant::now();
        while !self.over.load(Ordering::Acquire) {
            let seen = self.arena.doorbell();
            if self.work(&mut hands, false) {
                busy = Instant::now();
            } else if !self.sparing() && busy.elapsed() < SPIN {
                std::hint::spin_loop();
            } else {
                self.arena.wait_doorbell(seen, nap);
            }
        }
    }

    fn help(&self) {
        let mut hands = Hands::default();
        while !self.over.load(Ordering::Acquire) {
            // From the other end, so as to meet the leader in the middle.
            if !self.work(&mut hands, true) {
                let sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
                let _ = self.help.wait_timeout(sleepers, NAP);
            }
        }
    }

    /// Takes what waits, from the first thread slot to the last or the other way around; tells whether there was anything. Who is called sees for itself whether it is needed.
    fn work(&self, hands: &mut Hands, backwards: bool) -> bool {
        let Hands { ready, segment } = hands;
        self.drainer.ready(ready);
        if ready.len() > 1 && self.size > 1 {
            self.help.notify_all();
        }
        if backwards {
            ready.reverse();
        }
        let mut taken = false;
        for &index in ready.iter() {
            // At most what fits into the queue, so that a fast thread does not keep a worker for itself.
            for _ in 0..self.arena.settings().places {
                let more = || {
                    if !self.sparing() {
                        self.help.notify_one()
                    }
                };
                if !self.drainer.drain(index, segment, more) {
                    break;
                }
                taken = true;
            }
        }
        taken
    }
}

/// Sets a flag when it is dropped.
struct Set<'a>(&'a AtomicBool);

impl Drop for Set<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

struct EndOfShift<'a> {
    crew: &'a Crew<'a>,
    arena: &'a Arena,
}

impl Drop for EndOfShift<'_> {
    fn drop(&mut self) {
        self.crew.over.store(true, Ordering::Release);
        self.crew.help.notify_all();
        self.arena.ring_doorbell();
    }
}
