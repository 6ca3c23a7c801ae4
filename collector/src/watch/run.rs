//! A program from its start to its end, watched.

use crate::target::signals::Signals;
use crate::target::spawn;
use crate::watch::calibrate::{Obstacle, calibrate};
use crate::watch::call_paths::CallPaths;
use crate::watch::code_names::{CodeOffset, Maps};
use crate::watch::events::{Events, WatchTrigger};
use crate::watch::pin::Recorder;
use crate::watch::ptrace;
use crate::watch::ptrace::StoppedThread;
use crate::watch::sampler::{Accesses, Costs, Pair, Sampler, SamplerPlan, SamplerSums};
use mgz_annotations_schema::ProgramStatus;
use mgz_models::util::random::SplitMix;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Interval of rounds that pass signals on and check for the end of recording. Source: Chosen.
const ROUND_INTERVAL: Duration = Duration::from_millis(20);
/// Lengths of periods, as shares of the mean one. Source: Chosen.
const PERIOD_SHARES: std::ops::Range<f64> = 0.875..1.125;

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct Job {
    /// The file to execute; `PATH` is not searched.
    pub program: PathBuf,
    /// Its arguments, `argv[0]` included.
    pub argv: Vec<OsString>,
    /// Turn address randomization off for it.
    pub no_aslr: bool,
    /// The trigger that stops threads.
    pub trigger: WatchTrigger,
    /// Watchpoints of a thread.
    pub watchpoints: usize,
    /// Instructions to step behind a use.
    pub near: u64,
    /// Time after which watching ends; the program continues.
    pub duration: Option<Duration>,
}

/// A sample and its reuse, with code positions.
#[derive(Clone, Copy, Debug)]
pub struct WatchRow {
    /// Process.
    pub process: i32,
    /// Thread.
    pub thread: i32,
    /// The observed pair.
    pub pair: Pair,
    /// Place of the use.
    pub used: CodeOffset,
    /// Place of the reuse.
    pub reused: CodeOffset,
}

/// Result of a run.
pub struct Ended {
    /// Exit status of the program.
    pub status: ProgramStatus,
    /// From its start to its end.
    pub wall: Duration,
    /// CPU time of the watched threads, stops left out, seconds.
    pub cpu_seconds: f64,
    /// Time that the threads were stopped or stepped, seconds.
    pub stopped_seconds: f64,
    /// Number of accesses, if they were counted.
    pub accesses: Option<Accesses>,
    /// Samples.
    pub rows: Vec<WatchRow>,
    /// Mappings of the code positions.
    pub maps: Maps,
    /// Call paths of uses and reuses.
    pub paths: CallPaths,
    /// Threads seen.
    pub threads: u64,
    /// Sums over threads.
    pub counts: SamplerSums,
    /// Hits that the kernel had no room for.
    pub lost_hits: u64,
    /// Cost of a stop.
    pub costs: Costs,
    /// Sentences for the user.
    pub problems: Vec<String>,
}

/// Why a program could not be watched.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// There is no such file, or no such interpreter. Exit status 127.
    #[error("{0}: not found")]
    NotFound(String),
    /// The kernel refuses to execute it. Exit status 126.
    #[error("{0}: cannot be executed: {1}")]
    CannotExecute(String, io::Error),
    /// An obstacle on this machine. Exit status 125.
    #[error(transparent)]
    Obstacle(#[from] Obstacle),
    /// A failure of the recorder itself. Exit status 125.
    #[error("{0}: {1}")]
    Own(&'static str, io::Error),
}

impl WatchError {
    /// The exit status by the convention of `env` and `timeout`.
    pub fn exit_status(&self) -> i32 {
        match self {
            WatchError::NotFound(_) => 127,
            WatchError::CannotExecute(..) => 126,
            WatchError::Obstacle(_) | WatchError::Own(..) => 125,
        }
    }
}

fn own(what: &'static str) -> impl FnOnce(io::Error) -> WatchError {
    move |error| WatchError::Own(what, error)
}

/// Runs a program to its end and watches it. One at a time per process, since signal settings are
/// per process.
pub fn run_watched(job: &Job) -> Result<Ended, WatchError> {
    let costs = calibrate(&job.trigger)?;
    let signals = Signals::install().map_err(own("setting up signals"))?;
    if job.no_aslr && !spawn::can_turn_aslr_off() {
        return Err(own(
            "address randomization cannot be turned off here (a container's seccomp filter may forbid `personality`)",
        )(io::ErrorKind::PermissionDenied.into()));
    }
    let held = spawn::hold(&job.program, &job.argv, job.no_aslr, signals.inherited())
        .map_err(own("starting a process"))?;
    let root = held.pid() as i32;
    ptrace::seize(root).map_err(Obstacle::Trace)?;
    let mut session = WatchLoop {
        job,
        root,
        costs,
        random: SplitMix::new(u64::from(held.pid()) << 20 ^ job.trigger.period),
        tasks: BTreeMap::new(),
        maps: Maps::default(),
        paths: CallPaths::default(),
        rows: Vec::new(),
        sums: RunSums::default(),
        problems: Vec::new(),
        status: None,
        executed: false,
        until: None,
        recorder: Recorder::default(),
    };
    session.tasks.insert(
        root,
        Task {
            process: root,
            watched: None,
        },
    );
    let program = job.program.display().to_string();
    let over = AtomicBool::new(false);
    let began = Instant::now();
    session.until = job.duration.map(|d| began + d);
    std::thread::scope(|scope| {
        // The flag is set on every path out of this function.
        let _end = SetOnDrop(&over);
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                for signal in signals.to_forward() {
                    // SAFETY: integer arguments. The program may have been reaped, but at most one
                    // round ago.
                    unsafe { libc::kill(root, signal) };
                }
                std::thread::sleep(ROUND_INTERVAL);
            }
        });
        // The release runs in another thread, so that this one can handle the stops during the
        // execution.
        let release = scope.spawn(move || held.release());
        session.follow().map_err(own("waiting for the program"))?;
        match release.join() {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(match error.raw_os_error() {
                Some(libc::ENOENT | libc::ENOTDIR) => WatchError::NotFound(program),
                _ => WatchError::CannotExecute(program, error),
            }),
            Err(_) => Err(own("starting the program")(io::ErrorKind::Other.into())),
        }
    })?;
    let wall = began.elapsed();
    let WatchLoop {
        maps,
        paths,
        rows,
        sums,
        problems,
        status,
        ..
    } = session;
    Ok(Ended {
        status: status.unwrap_or(ProgramStatus::Exited(0)),
        wall,
        cpu_seconds: sums.cpu_ns as f64 * 1e-9,
        stopped_seconds: sums.stopped.as_secs_f64(),
        accesses: sums.accesses,
        rows,
        maps,
        paths,
        threads: sums.threads,
        counts: sums.counts,
        lost_hits: sums.lost_hits,
        costs,
        problems,
    })
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct RunSums {
    threads: u64,
    cpu_ns: u64,
    stopped: Duration,
    accesses: Option<Accesses>,
    counts: SamplerSums,
    lost_hits: u64,
}

/// A thread of the program.
struct Task {
    process: i32,
    watched: Option<Watched>,
}

struct Watched {
    events: Events,
    sampler: Sampler,
}

struct WatchLoop<'a> {
    job: &'a Job,
    root: i32,
    costs: Costs,
    random: SplitMix,
    tasks: BTreeMap<i32, Task>,
    maps: Maps,
    paths: CallPaths,
    rows: Vec<WatchRow>,
    sums: RunSums,
    problems: Vec<String>,
    status: Option<ProgramStatus>,
    /// True once the program itself runs instead of the recorder's copy.
    executed: bool,
    until: Option<Instant>,
    recorder: Recorder,
}

impl WatchLoop<'_> {
    /// Handles all stops until the program has ended.
    fn follow(&mut self) -> io::Result<()> {
        loop {
            let (thread, status) = match ptrace::wait(-1) {
                Ok(found) => found,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.raw_os_error() == Some(libc::ECHILD) => return Ok(()),
                Err(error) => return Err(error),
            };
            let mut next = Some(status);
            while let Some(status) = next {
                next = self.handle(thread, status);
            }
            if self.status.is_some() {
                self.abandon();
                return Ok(());
            }
        }
    }

    /// Handles one stop or end. Returns a further one of the same thread, if one occurred.
    fn handle(&mut self, thread: i32, status: i32) -> Option<i32> {
        if !libc::WIFSTOPPED(status) {
            self.close(thread);
            self.tasks.remove(&thread);
            if thread == self.root {
                self.status = Some(if libc::WIFEXITED(status) {
                    ProgramStatus::Exited(libc::WEXITSTATUS(status))
                } else {
                    ProgramStatus::Signaled(libc::WTERMSIG(status))
                });
            }
            return None;
        }
        let signal = libc::WSTOPSIG(status);
        match status >> 16 {
            0 if ptrace::is_trigger(thread, signal, self.job.trigger.signal) => {
                return self.timed_stop(thread);
            }
            0 => ptrace::resume(thread, signal),
            libc::PTRACE_EVENT_EXEC => {
                // All other threads are gone, and this one now has the process's number.
                let former = ptrace::message(thread);
                self.close(former);
                self.close(thread);
                if former != thread {
                    self.tasks.remove(&former);
                }
                self.maps.forget(thread);
                self.paths.forget(thread);
                self.executed |= thread == self.root;
                self.open(thread);
                ptrace::resume(thread, 0);
            }
            libc::PTRACE_EVENT_STOP if signal != libc::SIGTRAP => ptrace::listen(thread),
            libc::PTRACE_EVENT_STOP => {
                if self.executed && !self.tasks.contains_key(&thread) {
                    self.open(thread);
                }
                ptrace::resume(thread, 0);
            }
            // A new thread or process stops by itself.
            _ => ptrace::resume(thread, 0),
        }
        None
    }

    /// Begins to watch a thread that stands still.
    fn open(&mut self, thread: i32) {
        let process = thread_group(thread).unwrap_or(thread);
        let watched = if self.until.is_some_and(|until| Instant::now() >= until) {
            None
        } else {
            match Events::open(&self.job.trigger, thread, self.job.watchpoints) {
                Ok(events) => {
                    events.next_period(self.share());
                    self.sums.threads += 1;
                    let plan = SamplerPlan {
                        watchpoints: self.job.watchpoints,
                        near: self.job.near,
                        seed: self.random.bits(),
                        costs: self.costs,
                    };
                    Some(Watched {
                        events,
                        sampler: Sampler::new(plan),
                    })
                }
                Err(error) => {
                    let sentence = format!(
                        "some threads were not watched: the kernel refused their events ({error}); too many open files, or kernel.perf_event_mlock_kb is too low for so many threads"
                    );
                    if !self.problems.contains(&sentence) {
                        self.problems.push(sentence);
                    }
                    None
                }
            }
        };
        self.tasks.insert(thread, Task { process, watched });
    }

    /// The length of the next period as a share of the mean one: random and uniform in
    /// [`PERIOD_SHARES`], so that samples are not in step with the program.
    fn share(&mut self) -> f64 {
        let random = self.random.below(1 << 20) as f64 / f64::from(1 << 20);
        PERIOD_SHARES.start + random * (PERIOD_SHARES.end - PERIOD_SHARES.start)
    }

    /// Handles a stop by the trigger or by a hit, and adds its duration to the sums.
    fn timed_stop(&mut self, thread: i32) -> Option<i32> {
        let began = Instant::now();
        let next = self.handle_trigger_or_hit(thread);
        self.sums.stopped += began.elapsed();
        next
    }

    /// Handles the hit of a watchpoint, or takes a sample.
    fn handle_trigger_or_hit(&mut self, thread: i32) -> Option<i32> {
        let by = ptrace::cause(thread).map(|(_, descriptor)| descriptor);
        match self.tasks.get_mut(&thread) {
            Some(Task {
                process,
                watched: Some(watched),
            }) if by != Some(watched.events.descriptor()) => {
                let process = *process;
                let mut held = StoppedThread {
                    thread,
                    events: &mut watched.events,
                    signal: self.job.trigger.signal,
                    unhandled: None,
                    process,
                    paths: &mut self.paths,
                };
                watched.sampler.stopped(&mut held);
                let pairs = watched.sampler.take_pairs();
                self.add(process, thread, pairs);
                ptrace::resume(thread, 0);
                None
            }
            _ => self.take_sample(thread),
        }
    }

    fn take_sample(&mut self, thread: i32) -> Option<i32> {
        let share = self.share();
        if self.until.is_some_and(|until| Instant::now() >= until) {
            self.close(thread);
            ptrace::resume(thread, 0);
            return None;
        }
        let alone = self.tasks.len() == 1;
        let Some(Task {
            process,
            watched: Some(watched),
        }) = self.tasks.get_mut(&thread)
        else {
            ptrace::resume(thread, 0);
            return None;
        };
        let process = *process;
        let Watched { events, sampler } = watched;
        events.next_period(share);
        // Dropped before the thread runs on, so that the processor is free again.
        let bound = match events.processor() {
            Some(processor) if alone => self.recorder.join(thread, processor),
            _ => {
                self.recorder.leave();
                None
            }
        };
        let mut held = StoppedThread {
            thread,
            events,
            signal: self.job.trigger.signal,
            unhandled: None,
            process,
            paths: &mut self.paths,
        };
        // If the thread is gone, the next wait reports it.
        let _ = sampler.sample(&mut held);
        drop(bound);
        let unhandled = held.unhandled;
        let pairs = sampler.take_pairs();
        self.add(process, thread, pairs);
        if unhandled.is_none() {
            ptrace::resume(thread, 0);
        }
        unhandled
    }

    /// Ends the watching of a thread.
    fn close(&mut self, thread: i32) {
        let Some(task) = self.tasks.get_mut(&thread) else {
            return;
        };
        let process = task.process;
        let Some(Watched {
            mut events,
            mut sampler,
        }) = task.watched.take()
        else {
            return;
        };
        let mut held = StoppedThread {
            thread,
            events: &mut events,
            signal: self.job.trigger.signal,
            unhandled: None,
            process,
            paths: &mut self.paths,
        };
        sampler.end(&mut held);
        if let Ok(clock) = events.clock() {
            let counts = sampler.sums();
            self.sums.cpu_ns += clock.cpu_ns.saturating_sub(
                counts.stops * self.costs.stop_ns + counts.hits * self.costs.hit_stop_ns,
            );
            if let Some(n) = clock.accesses {
                let sum = self.sums.accesses.get_or_insert_default();
                sum.loads += n.loads;
                sum.stores += n.stores;
            }
        }
        self.sums.lost_hits += events.lost();
        let pairs = sampler.take_pairs();
        let counts = sampler.sums();
        self.add(process, thread, pairs);
        let sum = &mut self.sums.counts;
        sum.stops += counts.stops;
        sum.hits += counts.hits;
        sum.other_hits += counts.other_hits;
        sum.unclear += counts.unclear;
        sum.no_access += counts.no_access;
        sum.refused += counts.refused;
        sum.steps += counts.steps;
    }

    fn add(&mut self, process: i32, thread: i32, pairs: Vec<Pair>) {
        for pair in pairs {
            let used = self.maps.place(process, pair.use_ip);
            let reused = if pair.reuse_ip == 0 {
                CodeOffset::default()
            } else {
                self.maps.place(process, pair.reuse_ip)
            };
            self.rows.push(WatchRow {
                process,
                thread,
                pair,
                used,
                reused,
            });
        }
    }

    /// Detaches from processes that outlive the program.
    fn abandon(&mut self) {
        let left: Vec<i32> = self.tasks.keys().copied().collect();
        if left.is_empty() {
            return;
        }
        self.problems.push(format!("{} threads of processes that outlived the program were watched only until its end; they run on (remedy: let the program wait for its children)", left.len()));
        for thread in left {
            self.close(thread);
            ptrace::interrupt(thread);
            while let Ok((_, status)) = ptrace::wait(thread) {
                if !libc::WIFSTOPPED(status) {
                    break;
                }
                let signal = libc::WSTOPSIG(status);
                let ours = status >> 16 != 0
                    || ptrace::is_trigger(thread, signal, self.job.trigger.signal);
                if status >> 16 == libc::PTRACE_EVENT_STOP {
                    if ptrace::is_pending(thread, self.job.trigger.signal) {
                        // A last trigger is pending. The program must not get it, so the thread is
                        // resumed to receive it here.
                        ptrace::resume(thread, 0);
                        ptrace::interrupt(thread);
                        continue;
                    }
                    ptrace::detach(thread, 0);
                    break;
                }
                ptrace::resume(thread, if ours { 0 } else { signal });
            }
        }
    }
}

/// The process of a thread.
fn thread_group(thread: i32) -> Option<i32> {
    let text = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix("Tgid:"))?
        .trim()
        .parse()
        .ok()
}
