//! Phases, seen from the recorder: the start and end of recording, the reports of traced processes
//! about them, and the recorded share of the run.

use crate::options::amount::{Amount, Wanted};
use crate::soft::shared_memory::SharedMemory;
use crate::util::clock::monotonic_ns;
use mgz_abi::phases as abi;
use mgz_annotations_schema::PhaseBegin;
use mgz_annotations_schema::manifest::{Phase, Phases};
use mgz_annotations_schema::sidecar::{NONE, Sidecar};
use mgz_elf::demangle::readable;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Further phases are only counted. Source: Chosen.
const MAX_LISTED_PHASES: usize = 1000;

/// Passes the requested phases to the runtime, before the first process starts.
pub fn tell(wanted: &Wanted, shared: &SharedMemory) {
    let loads = |amount: Option<Amount>| match amount {
        Some(Amount::Loads(n)) => n,
        _ => 0,
    };
    // With a time, processes must report when they begin.
    let stop = match wanted.stop {
        Some(Amount::Time(_)) => u64::MAX,
        stop => loads(stop),
    };
    shared.set_phases(
        wanted.start.is_some(),
        wanted.function.is_some(),
        wanted.ignore_markers,
        [loads(wanted.start), stop],
    );
}

/// State that a process has reported so far.
#[derive(Clone, Copy, Debug, Default)]
struct Process {
    /// True if it would record with the gate open.
    on: bool,
    /// CPU time at the last switch of the process or the gate.
    since_cpu: u64,
    /// Last known CPU time.
    cpu: u64,
    /// CPU time in phases up to `since_cpu`.
    covered: u64,
    /// Index of its current phase in the list.
    listed: Option<usize>,
}

/// Tracks phases while a program runs.
pub struct Tracker<'a> {
    shared: &'a SharedMemory,
    wanted: &'a Wanted,
    /// Time when recording first began.
    first: Option<Instant>,
    /// Times when recording is to begin and to end.
    start: Option<Instant>,
    stop: Option<Instant>,
    gate: u32,
    /// Number of events read, and of those overwritten before that.
    read: u64,
    missed: u64,
    processes: BTreeMap<u32, Process>,
    phases: u64,
    list: Vec<Phase>,
    used: bool,
    /// True if all processes have left a phase.
    left: bool,
    /// Number of functions found.
    functions: u64,
    problems: Vec<String>,
}

impl<'a> Tracker<'a> {
    /// A tracker for a program that began at `began`.
    pub fn new(shared: &'a SharedMemory, wanted: &'a Wanted, began: Instant) -> Self {
        let start = match wanted.start {
            Some(Amount::Time(time)) => Some(began + time),
            _ => None,
        };
        Tracker {
            shared,
            wanted,
            first: None,
            start,
            stop: None,
            gate: if wanted.start.is_some() {
                abi::GATE_WAITS
            } else {
                abi::GATE_OPEN
            },
            read: 0,
            missed: 0,
            processes: BTreeMap::new(),
            phases: 0,
            list: Vec::new(),
            used: false,
            left: false,
            functions: 0,
            problems: Vec::new(),
        }
    }

    /// True if everything has been recorded and the program is to end then.
    pub fn over(&self) -> bool {
        self.wanted.exit && (self.gate == abi::GATE_OVER || self.left || self.shared.stopped())
    }

    /// Time that the supervisor may sleep.
    pub fn patience(&self, tick: Duration) -> Duration {
        let next = [self.start, self.stop].into_iter().flatten().min();
        next.map_or(tick, |at| {
            at.saturating_duration_since(Instant::now()).min(tick)
        })
    }

    /// A process has loaded a module: looks for the functions in it.
    pub fn module(&mut self, sidecar: &Path, id: &[u8; 16]) {
        let Some(wanted) = &self.wanted.function else {
            return;
        };
        let Ok(sidecar) = Sidecar::read(sidecar) else {
            return;
        };
        for function in &sidecar.functions {
            let name = if function.name == NONE {
                ""
            } else {
                sidecar.string(function.name)
            };
            let fits =
                !name.is_empty() && (wanted.is_match(name) || wanted.is_match(&readable(name)));
            if !fits {
                continue;
            }
            if !self.shared.add_function(id, function.start) {
                self.problem("--from-function: more functions match than can be watched; only the first 4096 are; give a narrower expression".into());
                break;
            }
            self.functions += 1;
        }
    }

    fn problem(&mut self, sentence: String) {
        if !self.problems.contains(&sentence) {
            self.problems.push(sentence);
        }
    }

    /// Called at intervals: moves the gate, and reads the events of processes.
    pub fn tick(&mut self) {
        let now = Instant::now();
        self.events();
        if self.start.is_some_and(|at| now >= at) {
            self.start = None;
            self.move_gate(abi::GATE_OPEN);
        }
        // The time counts from the beginning of recording.
        if let Some(Amount::Time(time)) = self.wanted.stop
            && self.stop.is_none()
            && self.gate == abi::GATE_OPEN
            && let Some(first) = self.first
        {
            self.stop = Some(first + time);
        }
        if self.gate == abi::GATE_OPEN && self.stop.is_some_and(|at| now >= at) {
            self.stop = None;
            self.move_gate(abi::GATE_OVER);
        }
        if self.wanted.exit && self.left && self.gate == abi::GATE_OPEN {
            self.move_gate(abi::GATE_OVER);
        }
        if self.used {
            self.look();
        }
    }

    /// Reads the CPU time of the processes.
    fn look(&mut self) {
        for (&pid, process) in &mut self.processes {
            if let Some(cpu) = cpu_of(pid) {
                process.cpu = process.cpu.max(cpu);
            }
        }
    }

    fn move_gate(&mut self, to: u32) {
        self.shared.set_gate(to);
        self.gate_moved(to, monotonic_ns());
    }

    fn gate_moved(&mut self, to: u32, ns: u64) {
        self.look();
        let pids: Vec<u32> = self.processes.keys().copied().collect();
        for pid in pids {
            let process = self.processes[&pid];
            if process.on {
                self.settle(pid, process.cpu, ns);
            }
        }
        self.gate = to;
        let pids: Vec<u32> = self.processes.keys().copied().collect();
        for pid in pids {
            let process = self.processes[&pid];
            if process.on {
                self.begin(pid, process.cpu, ns, PhaseBegin::StartAfter);
            }
        }
    }

    /// A process begins to record, if the gate is open.
    fn begin(&mut self, pid: u32, cpu: u64, ns: u64, by: PhaseBegin) {
        let process = self.processes.entry(pid).or_default();
        process.since_cpu = cpu;
        process.listed = None;
        if self.gate != abi::GATE_OPEN {
            return;
        }
        self.first.get_or_insert_with(|| {
            let ago = Duration::from_nanos(monotonic_ns().saturating_sub(ns));
            let now = Instant::now();
            now.checked_sub(ago).unwrap_or(now)
        });
        self.phases += 1;
        if self.list.len() < MAX_LISTED_PHASES {
            process.listed = Some(self.list.len());
            self.list.push(Phase {
                process: pid,
                by,
                begin_ns: ns,
                end_ns: None,
                cpu_seconds: 0.0,
            });
        }
    }

    /// A process stops recording: its CPU time since the last switch counts if the gate was open.
    fn settle(&mut self, pid: u32, cpu: u64, ns: u64) {
        let process = self.processes.entry(pid).or_default();
        process.cpu = process.cpu.max(cpu);
        let used = cpu.saturating_sub(process.since_cpu);
        process.since_cpu = cpu;
        let listed = process.listed.take();
        if self.gate != abi::GATE_OPEN {
            return;
        }
        process.covered += used;
        if let Some(phase) = listed.and_then(|at| self.list.get_mut(at)) {
            phase.end_ns = Some(ns);
            phase.cpu_seconds = used as f64 / 1e9;
        }
    }

    fn events(&mut self) {
        loop {
            let claimed = self.shared.phase_events();
            let oldest = claimed.saturating_sub(abi::EVENTS as u64);
            self.missed += oldest.saturating_sub(self.read);
            self.read = self.read.max(oldest);
            if self.read >= claimed {
                return;
            }
            let Some([pid, what, ns, cpu]) = self.shared.phase_event(self.read) else {
                // The event is still being written. (If its writer was killed, it is skipped once
                // later events exist.)
                if claimed - self.read > 1 {
                    self.read += 1;
                    self.missed += 1;
                    continue;
                }
                return;
            };
            self.read += 1;
            self.used = true;
            self.event(pid as u32, what as u32, ns, cpu);
        }
    }

    fn event(&mut self, pid: u32, what: u32, ns: u64, cpu: u64) {
        let was_on = self.processes.get(&pid).is_some_and(|p| p.on);
        let process = self.processes.entry(pid).or_default();
        process.cpu = process.cpu.max(cpu);
        match what {
            abi::GATE_OPENED => self.gate_moved(abi::GATE_OPEN, ns),
            abi::GATE_CLOSED => self.gate_moved(abi::GATE_OVER, ns),
            abi::BEGINS_OFF | abi::TURNED_OFF => {
                process.on = false;
                if was_on {
                    self.settle(pid, cpu, ns);
                }
                // (Processes that ended in a phase send no event.)
                self.left |= was_on
                    && self.phases > 0
                    && !self.processes.iter().any(|(&p, of)| of.on && is_there(p));
            }
            abi::BEGINS_ON | abi::TURNED_ON | abi::ENTERED => {
                process.on = true;
                if was_on {
                    self.settle(pid, cpu, ns);
                }
                let by = match what {
                    abi::TURNED_ON => PhaseBegin::Marker,
                    abi::ENTERED => PhaseBegin::FromFunction,
                    _ => PhaseBegin::Start,
                };
                self.begin(pid, cpu, ns, by);
            }
            _ => {}
        }
    }

    /// Ends tracking once the program has ended. `cpu`: its CPU time with its children. Returns its
    /// phases; `None` if the whole run was to be recorded.
    pub fn finish(mut self, cpu: Duration, ns: u64) -> (Option<Phases>, Vec<String>) {
        self.events();
        if !self.used && self.wanted.start.is_none() && self.wanted.stop.is_none() {
            self.functions_missing(false);
            return (None, self.problems);
        }
        // With a single process, the program's total gives the CPU time since the last look.
        if self.processes.len() == 1
            && let Some(process) = self.processes.values_mut().next()
        {
            process.cpu = process.cpu.max(cpu.as_nanos() as u64);
        }
        let open: Vec<(u32, u64)> = self
            .processes
            .iter()
            .filter(|(_, p)| p.on)
            .map(|(&pid, p)| (pid, p.cpu))
            .collect();
        for (pid, cpu) in open {
            self.settle(pid, cpu, ns);
        }
        let told = self.shared.phases();
        if told.lost > 0 {
            self.problem(format!(
                "{} records in phases were dropped: a thread passed more switches than it can keep until it delivers its records; record with --mode burst",
                told.lost
            ));
        }
        if self.missed > 0 {
            self.problem(format!(
                "{} starts and ends of phases were not seen: the CPU time in phases comes only from the others",
                self.missed
            ));
        }
        if told.unplaced > 0 {
            self.problem(format!(
                "{} markers or functions at which recording was to begin or end could not be watched: their code may not be changed here (it reads itself, or the kernel refuses), or it lies under an entry jump; record with --mode burst, or use --start-after",
                told.unplaced
            ));
        }
        let entered = self.list.iter().any(|p| p.by == PhaseBegin::FromFunction);
        self.functions_missing(entered);
        let covered: u64 = self.processes.values().map(|p| p.covered).sum();
        let phases = Phases {
            count: self.phases,
            cpu_seconds: covered as f64 / 1e9,
            outside_slots: told.outside,
            markers: told.markers,
            list: self.list,
        };
        (Some(phases), self.problems)
    }

    fn functions_missing(&mut self, entered: bool) {
        let Some(wanted) = &self.wanted.function else {
            return;
        };
        let wanted = wanted.to_string();
        if self.functions == 0 {
            self.problem(format!(
                "--from-function {wanted}: no function of the instrumented files has such a name, so nothing was recorded (one that is inlined everywhere has no entry); `mgz-record --hot` shows names"
            ));
        } else if !entered {
            self.problem(format!(
                "--from-function {wanted}: none of the {} functions with such a name was entered, so nothing was recorded",
                self.functions
            ));
        }
    }
}

/// True if the process exists.
fn is_there(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// CPU time of a process, nanoseconds; `None` if it is gone.
fn cpu_of(pid: u32) -> Option<u64> {
    let mut clock: libc::clockid_t = 0;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: both live across the calls.
    let known = unsafe {
        libc::clock_getcpuclockid(pid as libc::pid_t, &raw mut clock) == 0
            && libc::clock_gettime(clock, &raw mut time) == 0
    };
    known.then_some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
