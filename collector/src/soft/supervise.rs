//! From the program's start until its last record is in a spill file.

use crate::objects::heap::Heap;
use crate::objects::stacks::StackSeen;
use crate::soft::drain::{Drainer, KnownProcess};
use crate::soft::ending::Ending;
use crate::soft::mapped_memory::MappedMemory;
use crate::soft::outcome::{DriverError, ModuleSeen, RunEvent, recorder_error};
use crate::soft::phases::Tracker;
use crate::soft::setup::Setup;
use crate::soft::shared_memory::{ModuleTableRow, SharedMemory};
use crate::soft::subject::Subject;
use crate::soft::texts;
use crate::soft::unseen::Unseen;
use crate::soft::window_log::{self, OfWindows, WindowLog};
use crate::soft::workers::{Crew, EndOfShift};
use crate::target::signals::Signals;
use mgz_abi::shared_memory::{
    ELSEWHERE_ENTRIES, MODULE_OK, MODULE_PLAIN, STACK_ROWS, STATE_CLOSING, STATE_LIVE, count,
};
use mgz_annotations_schema::ProgramStatus;
use mgz_annotations_schema::spill::{EncodedSegment, cause};
use mgz_perf::code_samples::CodeSamples;
use std::collections::{BTreeSet, HashSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Time between two looks for signals, modules and dead threads. Source: Chosen.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Time for which processes that outlive the program are recorded. Source: Chosen.
const RECORDING_AFTER_END: Duration = Duration::from_millis(200);
/// Results of supervising a run.
pub struct Supervised {
    /// Exit status or signal of the program.
    pub status: ProgramStatus,
    /// True if it was ended because everything requested had been recorded.
    pub ended_early: bool,
    /// From its start to its end.
    pub wall: Duration,
    /// Heap blocks, if they were logged.
    pub heap: Option<Heap>,
    /// Log of windows, if one was requested.
    pub window_log: Option<WindowLog>,
    /// Modules in the order in which they were seen.
    pub modules: Vec<ModuleSeen>,
    /// Sentences for the user.
    pub problems: Vec<String>,
    /// Number of threads that existed and never had a ring.
    pub unseen: u64,
    /// Memory that the processes had mapped.
    pub(crate) mapped: MappedMemory,
    /// `burst`: triggers that met code without a clone.
    pub outside: CodeSamples,
}

/// Watches the subject that was started at `began`, for at most `duration`, with the workers beside
/// it.
pub fn supervise(
    setup: &Setup,
    drainer: &Drainer,
    subject: &mut Subject,
    began: Instant,
    (duration, wanted): (Option<Duration>, OfWindows),
    phases: &mut Tracker,
    on_event: &mut dyn FnMut(&RunEvent),
) -> Result<Supervised, DriverError> {
    let shared = &setup.shared;
    let watcher = subject
        .watcher()
        .map_err(recorder_error("watching the process"))?;
    let crew = Crew::new(drainer, shared);
    let mut supervisor = Supervisor {
        shared,
        drainer,
        signals: &setup.signals,
        modules: Vec::new(),
        rows: 0,
        unfinished: None,
        threads: Vec::new(),
        stacks: 0,
        waited_for: None,
        outside: CodeSamples::default(),
        outside_read: 0,
        problems: Vec::new(),
        segment: EncodedSegment::default(),
        until: duration.map(|d| began + d),
        unseen: Unseen::new(),
        mapped: MappedMemory::default(),
        ending: Ending::default(),
    };
    let (over, left) = (AtomicBool::new(false), AtomicBool::new(false));
    let (status, wall, heap, window_log) = std::thread::scope(|scope| {
        let heap = setup
            .heap
            .as_ref()
            .map(|c| scope.spawn(|| c.collect(&over)));
        let is_logged = wanted.any() && shared.settings().windows();
        let log = is_logged.then(|| scope.spawn(|| window_log::collect(shared, wanted, &over)));
        let end_of_logs = Set(&over);
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
        // The workers must end on every path, or the scope waits for ever.
        let _end = EndOfShift(&crew);
        let (sender, ended) = channel();
        let (gone, end_of_watch) = (&left, Set(&left));
        scope.spawn(move || {
            watcher.wait(gone);
            // The supervisor may have ended already.
            let _ = sender.send(());
        });
        let result = supervisor.watch(subject, &ended, phases, on_event);
        drop(end_of_watch);
        let wall = began.elapsed();
        let status = result.map_err(recorder_error("waiting for the program"))?;
        supervisor.wind_up(subject.id(), &status, phases, on_event);
        drop(end_of_logs);
        let heap = heap.map(|h| {
            h.join().map_err(|_| {
                recorder_error("reading the log of heap blocks")(io::Error::other("it panicked"))
            })
        });
        let log = log.and_then(|log| match log.join() {
            Ok(log) => Some(log),
            Err(_) => {
                supervisor.problems.push(texts::NO_PATHS.into());
                None
            }
        });
        Ok::<_, DriverError>((status, wall, heap.transpose()?, log))
    })?;
    Ok(Supervised {
        status,
        ended_early: supervisor.ending.begun(),
        wall,
        heap,
        window_log,
        modules: supervisor.modules,
        problems: supervisor.problems,
        unseen: supervisor.unseen.count(),
        mapped: supervisor.mapped,
        outside: supervisor.outside,
    })
}

/// Sets a flag when it is dropped.
struct Set<'a>(&'a AtomicBool);

impl Drop for Set<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The coordinating thread, which does everything else while the workers drain.
struct Supervisor<'a> {
    shared: &'a SharedMemory,
    drainer: &'a Drainer<'a>,
    signals: &'a Signals,
    modules: Vec<ModuleSeen>,
    /// Number of rows of the module table read, and the time since which the next one is
    /// incomplete.
    rows: usize,
    unfinished: Option<Instant>,
    mapped: MappedMemory,
    /// Last process and thread seen in each thread slot.
    threads: Vec<(u32, u32)>,
    /// Number of rows of the threads' stacks read, and the row that was incomplete at the last
    /// look.
    stacks: u64,
    waited_for: Option<u64>,
    /// Triggers that hit code without a clone, and the number of the next one to read.
    outside: CodeSamples,
    outside_read: u64,
    problems: Vec<String>,
    segment: EncodedSegment,
    /// Time at which recording is to end, if before the program.
    until: Option<Instant>,
    unseen: Unseen,
    ending: Ending,
}

impl Supervisor<'_> {
    /// Watches until the program's end, or until the recording of a running process ends.
    fn watch(
        &mut self,
        subject: &mut Subject,
        ended: &Receiver<()>,
        phases: &mut Tracker,
        on_event: &mut dyn FnMut(&RunEvent),
    ) -> io::Result<ProgramStatus> {
        let pid = subject.id();
        loop {
            match ended.recv_timeout(phases.patience(LOOK_INTERVAL)) {
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return subject.take_status(),
                Err(RecvTimeoutError::Timeout) => {}
            }
            phases.tick();
            let out_of_time = self.until.is_some_and(|until| Instant::now() >= until);
            if let Subject::Attached(attached) = subject {
                if out_of_time || self.signals.interrupted() {
                    self.shared.stop();
                    // Open windows end during this time.
                    std::thread::sleep(LOOK_INTERVAL);
                    return Ok(ProgramStatus::RunsOn);
                }
                attached.tick(
                    &|thread| self.has_ring(thread),
                    self.shared.settings().signal,
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
                self.shared.stop();
            }
            if phases.over() {
                self.ending.tick(pid, &self.recorded_processes());
            }
            self.report(false, phases, on_event);
            self.mapped.look(self.threads.iter().map(|t| t.0));
            if matches!(subject, Subject::Child(_)) && !self.shared.stopped() {
                self.unseen.look(self.threads.iter().copied());
            }
        }
    }

    /// Processes that have threads with rings now.
    fn recorded_processes(&self) -> BTreeSet<u32> {
        let slots = (0..self.shared.slots_tried()).map(|index| self.shared.slot(index));
        slots
            .filter(|slot| slot.state() == STATE_LIVE)
            .map(|slot| slot.snapshot().pid)
            .collect()
    }

    /// True if a thread has claimed a slot.
    fn has_ring(&self, thread: i32) -> bool {
        (0..self.shared.slots_tried())
            .any(|index| self.shared.slot(index).snapshot().tid as i32 == thread)
    }

    /// After the program's end: drains the rest, and waits a little for processes that outlive it.
    fn wind_up(
        &mut self,
        pid: u32,
        status: &ProgramStatus,
        phases: &mut Tracker,
        on_event: &mut dyn FnMut(&RunEvent),
    ) {
        let cause = match status {
            ProgramStatus::RunsOn => {
                self.drainer.abandon(&mut self.segment);
                return self.report(true, phases, on_event);
            }
            ProgramStatus::Signaled(_) if !self.ending.begun() => cause::KILLED,
            _ => cause::END_OF_PROCESS,
        };
        let known = KnownProcess {
            pid,
            ended: Some(cause),
        };
        let until = Instant::now() + RECORDING_AFTER_END;
        let mut pause = Duration::from_millis(1);
        while self.drainer.sweep(&known, &mut self.segment) > 0 {
            if Instant::now() >= until {
                self.shared.stop();
                let threads = self.drainer.abandon(&mut self.segment);
                if threads > 0 {
                    self.problems
                        .push(texts::outlived(threads, RECORDING_AFTER_END));
                }
                break;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LOOK_INTERVAL);
        }
        self.report(true, phases, on_event);
    }

    /// The next row of the module table. A row whose process was killed while it wrote is skipped
    /// after a time, or at once if `over`.
    fn next_row(&mut self, over: bool) -> Option<ModuleTableRow> {
        const MAX_WAIT_FOR_ROW: Duration = Duration::from_secs(2);
        while self.rows < self.shared.modules_claimed() {
            let mut row = self.shared.module(self.rows);
            if row.is_none() {
                if !over
                    && self.unfinished.get_or_insert_with(Instant::now).elapsed() < MAX_WAIT_FOR_ROW
                {
                    return None;
                }
                row = self.shared.skip_module(self.rows);
            }
            self.rows += 1;
            self.unfinished = None;
            if row.is_some() {
                return row;
            }
        }
        None
    }

    /// The next row of the threads' stacks. Skips rows that are overwritten, or whose thread was
    /// killed while it wrote.
    fn next_stack(&mut self) -> Option<StackSeen> {
        loop {
            let claimed = self.shared.stacks_claimed();
            self.stacks = self.stacks.max(claimed.saturating_sub(STACK_ROWS as u64));
            if self.stacks >= claimed {
                return None;
            }
            let number = self.stacks;
            let row = self.shared.stack(number);
            if row.is_none() && self.shared.stacks_claimed() - number <= STACK_ROWS as u64 {
                // The row is being written, which takes less time than the interval of looks.
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

    /// Reads triggers that hit code without a clone. Skips entries that are being written or
    /// overwritten.
    fn take_outside(&mut self) {
        let claimed = self.shared.elsewhere_claimed();
        let first = claimed.saturating_sub(ELSEWHERE_ENTRIES as u64);
        for number in self.outside_read.max(first)..claimed {
            if let Some(sample) = self.shared.elsewhere(number) {
                self.outside.push(sample);
            }
        }
        self.outside_read = self.outside_read.max(claimed);
    }

    /// Reports new modules and the progress. `over`: for the last time.
    fn report(&mut self, over: bool, phases: &mut Tracker, on_event: &mut dyn FnMut(&RunEvent)) {
        while let Some(row) = self.next_row(over) {
            let module = ModuleSeen::from(row);
            if module.result == MODULE_PLAIN {
                self.unseen.begins_unrecorded(module.pid);
            }
            if module.result == MODULE_OK {
                phases.module(&module.sidecar, &module.sidecar_id);
            }
            self.modules.push(module.clone());
            on_event(&RunEvent::Module(module));
        }
        self.shared.modules_read(self.rows);
        self.drainer.modules_told(self.rows);
        // Stacks of new threads come first, so that the list of living threads includes these
        // threads.
        while let Some(seen) = self.next_stack() {
            on_event(&RunEvent::Thread(seen));
        }
        self.take_outside();
        let mut living = HashSet::new();
        for index in 0..self.shared.slots_tried() {
            let slot = self.shared.slot(index);
            let seen = slot.snapshot();
            if self.threads.len() <= index {
                self.threads.resize(index + 1, (0, 0));
            }
            if seen.tid != 0 {
                self.threads[index] = (seen.pid, seen.tid);
            }
            if matches!(slot.state(), STATE_LIVE | STATE_CLOSING) {
                living.insert((seen.pid, seen.tid));
            }
        }
        on_event(&RunEvent::Living(living));
        let (slots, bytes) = self.drainer.progress();
        let (windows, outside) = (
            self.shared.counter(count::WINDOWS),
            self.shared.counter(count::TRIGGERS_OUTSIDE),
        );
        on_event(&RunEvent::Progress {
            slots,
            bytes,
            windows,
            outside,
        });
    }
}
