//! The trace folder: manifest types and the names of files and columns.

use crate::memory_costs::MemoryCosts;
use crate::{
    PathRecording, PhaseBegin, ProgramStatus, RowsIn, SamplePopulation, SamplingUnit, TraceBackend,
    TraceMode, TraceState, TriggerEvent,
};
use serde::{Deserialize, Serialize};

/// Version of the trace format, in `manifest.json` as `version`.
pub const TRACE_VERSION: u32 = 1;
/// `format` in `manifest.json`.
pub const TRACE_FORMAT: &str = "mgz-trace";
/// File that makes a folder a trace.
pub const MANIFEST: &str = "manifest.json";
/// Folder of the sample rows.
pub const SAMPLES_DIR: &str = "samples";
/// Folder for the record streams written while the program runs.
pub const SPILL_DIR: &str = "spill";
/// File beside the trace folder of `mgz run` with the user's command line, as a JSON list. (The
/// manifest has that of the instrumented file.)
pub const COMMAND_OF_RUN: &str = "command.json";
/// Folder of the sidecars.
pub const ANNOTATIONS_DIR: &str = "annotations";

/// File of the data objects; `docs/reference/trace.md` has its columns.
pub const OBJECTS: &str = "objects.parquet";
/// Executed loads by site (mode `count`); `docs/reference/trace.md` has its columns.
pub const COUNTS: &str = "counts.parquet";
/// Folder of another trace of the same command, whose load counts are the weights for this one
/// (`mgz-record --calibrate`).
pub const CALIBRATION_DIR: &str = "calibration";
/// Call paths, as a tree; `docs/reference/trace.md` has its columns.
pub const CALL_PATHS: &str = "call_paths.parquet";
/// The call in which each window began.
pub const WINDOW_PATHS: &str = "window_paths.parquet";
/// Words that windows of `burst` have accessed, and the times of their next accesses.
pub const REUSE_PAIRS: &str = "reuse_pairs.parquet";
/// Memory samples of the processor (imports); `docs/reference/trace.md` has its columns.
pub const MEASURED: &str = "measured.parquet";
/// Samples and their reuses (mode `watch`).
pub const WATCH: &str = "watch.parquet";

/// Columns of `samples/*.parquet`, in order, with their Arrow types. Rows are sorted by process,
/// thread, seq.
pub const COLUMNS: [(&str, &str); 13] = [
    ("process", "u32"),
    ("thread", "u32"),
    ("seq", "u64"),
    ("sample", "u32"),
    ("time_ns", "u64"),
    ("module", "u16"),
    ("ip", "u64"),
    ("site", "u32"),
    ("address", "u64"),
    ("size", "u32"),
    ("class", "u8"),
    ("store", "bool"),
    ("implied_const", "u16"),
];

/// An estimate's error as text. Its 95 % interval reaches from 1 / (1 + `error`) to (1 + `error`)
/// times its value.
pub fn within(error: f64) -> String {
    match error {
        ..0.01 => format!("±{:.1}%", 100.0 * error),
        ..0.5 => format!("±{:.0}%", 100.0 * error),
        _ => format!("within a factor of {:.1}", 1.0 + error),
    }
}

/// Storage of a column by the recorder. Readers accept any encoding of Parquet; these encodings
/// make files small and fast to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// `DELTA_BINARY_PACKED`: numbers that stay the same or advance by equal steps need almost no
    /// space, and are not unpacked one by one.
    Differences,
    /// `BYTE_STREAM_SPLIT`: the bytes of numbers, grouped by rank. High bytes are mostly equal, so
    /// any codec packs and unpacks them at the speed of memory.
    Split,
    /// `PLAIN`: Boolean columns.
    Plain,
}

/// Storage of a column of [`COLUMNS`].
pub fn stored(column: &str) -> Stored {
    match column {
        "process" | "thread" | "seq" | "sample" | "time_ns" | "module" => Stored::Differences,
        "store" => Stored::Plain,
        _ => Stored::Split,
    }
}

/// `manifest.json`. Unknown keys are ignored on reading, so that minor additions keep the version.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Manifest {
    /// [`TRACE_FORMAT`].
    pub format: String,
    /// [`TRACE_VERSION`].
    pub version: u32,
    /// Name and version of the program that wrote the trace.
    pub tool: String,
    /// The traced command line.
    pub command: Vec<String>,
    /// Start of the run: RFC 3339, UTC.
    pub started: String,
    /// Host name.
    pub host: String,
    /// Number of this process in a job of many ranks, according to its launcher.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// Number of ranks of the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub world_size: Option<u32>,
    /// Its number among the job's ranks on the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_rank: Option<u32>,
    /// CPU model name.
    pub cpu: String,
    /// The CPU's data caches according to the kernel, first level first; empty if unknown.
    pub caches: Vec<Cache>,
    /// Latencies and bandwidths of these caches and of memory, if they were measured on the machine
    /// before the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_costs: Option<MemoryCosts>,
    /// `soft` or `pt`; `watchpoints` in mode `watch`.
    pub backend: TraceBackend,
    /// Reason for that backend; empty in imports.
    pub backend_why: String,
    /// `full`, `count`, `ring`, `burst` or `watch`; for imports also `samples` or `snapshot`.
    pub mode: TraceMode,
    /// Description of the trigger of a sample, for the user: `records`, or `loads` or `cpu time` with
    /// its source.
    pub trigger: String,
    /// The event that triggers samples, for programs; see [`Manifest::trigger_event`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger_event: Option<TriggerEvent>,
    /// `burst`: reason for that trigger.
    pub trigger_why: String,
    /// Unit of `period` and `window`: `records`, `loads`, or a time.
    pub unit: SamplingUnit,
    /// Records from one window's end to the next window's end (w + z); 0 in `full`. `burst`: loads
    /// between triggers, if loads trigger windows.
    pub period: u64,
    /// Records in a window (w); 0 in `full`.
    pub window: u64,
    /// `burst` by CPU time with a fixed rate (`--rate`): requested triggers per second of a
    /// thread's CPU time; else 0.
    pub rate: f64,
    /// `burst` by CPU time with a budget: percent of the CPU time that recording may cost; else 0.
    /// The budget determines the rate of windows: `windows.parquet` has the rate at the begin of
    /// each.
    pub overhead: f64,
    /// `burst` by CPU time: cost of recording to the program, seconds of CPU time, estimated from
    /// the time spent recording; 0 if unknown.
    pub recording_seconds: f64,
    /// `burst` by CPU time: nanoseconds that a trigger's signal costs a thread, measured by the
    /// recorder before the run; 0 if not measured.
    pub trigger_ns: u64,
    /// `running` while the program runs, then `complete`, `interrupted` (the recorder was stopped
    /// or died) or `partial` (something is missing; see `problems`).
    pub state: TraceState,
    /// Location of the rows: `samples` (then `spill/` is to be ignored if it exists), or `spill`
    /// (then `samples/` is to be ignored because it is missing or incomplete). Empty means
    /// `samples`.
    pub data: RowsIn,
    /// End of the program, for example `exit 0` or `signal 9`; empty while it runs.
    pub program_status: ProgramStatus,
    /// Wall-clock time of the run, seconds.
    pub wall_seconds: f64,
    /// CPU time of the program and of the children that it waited for, seconds; 0 if unknown.
    pub cpu_seconds: f64,
    /// Memory that the traced processes had mapped, each at its peak, bytes. None if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mapped_bytes: Option<u64>,
    /// Traced files.
    pub modules: Vec<Module>,
    /// Traced threads.
    pub threads: Vec<Thread>,
    /// Windows whose callers are known.
    pub call_paths: CallPaths,
    /// The log of heap blocks.
    pub heap: HeapLogging,
    /// Counts over all threads.
    pub totals: Totals,
    /// Sentences for the user about missing data and the reasons.
    pub problems: Vec<String>,
    /// The one of `problems` about records that could not be converted to columns. A later
    /// conversion removes it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub not_converted: String,
    /// Reason why there are no samples, with the command that would make some; empty if there are.
    pub no_samples: String,
    /// Code that ran, and the part of it that was recorded. Empty in traces of earlier versions and
    /// in imports.
    pub coverage: crate::coverage::Coverage,
    /// Imports: memory samples of the processor, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
    /// `burst`: counters of the processor over the whole run, if it has any. They count all user code
    /// of the program and of the programs that it started.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub counters: Vec<RunCounter>,
    /// Recorded parts of the run, if recording was limited to parts; all other values refer to
    /// these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phases: Option<Phases>,
}

/// A counter of the processor over a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunCounter {
    /// `loads`, `l1_misses`, `lines_on_their_way` (loads of a line on its way to the first level),
    /// `l2_misses`, `last_level_misses`, `tlb_misses`.
    pub what: String,
    /// Type and config of `perf_event_attr`, as in `4:0x81d0`.
    pub event: String,
    /// Counted events.
    pub value: u64,
    /// Time for which the event was enabled, summed over all threads, ns.
    pub enabled_ns: u64,
    /// Part of `enabled_ns` in which the event was counting, ns. Events are multiplexed if there
    /// are too few counters.
    pub running_ns: u64,
}

impl RunCounter {
    /// The value scaled to the whole enabled time; `None` if the event never counted.
    pub fn estimate(&self) -> Option<f64> {
        let share = self.running_ns as f64 / self.enabled_ns as f64;
        (share > 0.0 && share.is_finite()).then(|| self.value as f64 / share.min(1.0))
    }
}

/// Memory samples of the processor, in [`MEASURED`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Measured {
    /// Number of samples in the table.
    pub samples: u64,
    /// Number of samples of loads.
    pub loads: u64,
    /// Number of samples of stores.
    pub stores: u64,
    /// Number of samples without a known level.
    pub unknown_level: u64,
    /// Number of samples in code without a name: its file is missing or has changed, or there is
    /// none.
    pub unnamed: u64,
    /// Number of samples of instructions that access no memory; they are not in the table.
    pub of_no_access: u64,
    /// Number of samples of an access that another event has also sampled; they are not in the
    /// table.
    pub repeated: u64,
    /// The events that took the samples.
    pub events: Vec<MeasuredEvent>,
}

/// An event that took memory samples.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MeasuredEvent {
    /// Its name; empty if unknown.
    pub name: String,
    /// The population from which its samples are drawn.
    pub drawn: SamplePopulation,
    /// Number of its samples.
    pub samples: u64,
}

/// Recorded parts of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Phases {
    /// Number of phases in all processes.
    pub count: u64,
    /// CPU time of the processes in phases, seconds.
    pub cpu_seconds: f64,
    /// `full` and `ring`: records (pairs count once) that probes wrote outside of phases, and that
    /// were dropped.
    pub outside_slots: u64,
    /// Number of markers in loaded files.
    pub markers: u64,
    /// The first phases.
    pub list: Vec<Phase>,
}

impl Phases {
    /// Sentence of a report on the phases.
    pub fn sentence(&self) -> String {
        format!(
            "only {} phase{} of the run {} recorded, {:.3} s of CPU time; all numbers are of {}",
            self.count,
            if self.count == 1 { "" } else { "s" },
            if self.count == 1 { "was" } else { "were" },
            self.cpu_seconds,
            if self.count == 1 { "it" } else { "these" },
        )
    }
}

/// A recorded part of a run, in one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Phase {
    /// System process id.
    pub process: u32,
    /// Begin of the phase: `marker`, `from-function`, `start-after`, or `start` of the program.
    pub by: PhaseBegin,
    /// CLOCK_MONOTONIC at its begin, ns.
    pub begin_ns: u64,
    /// CLOCK_MONOTONIC at its end, ns; `None` if it lasted to the end of the program.
    pub end_ns: Option<u64>,
    /// CPU time of the process in the phase, seconds.
    pub cpu_seconds: f64,
}

impl Manifest {
    /// True if windows begin at ticks of CPU time. Then each represents the same time, regardless
    /// of the code.
    pub fn triggers_by_time(&self) -> bool {
        self.mode == TraceMode::Burst && !self.triggers_by_loads()
            || self.unit == SamplingUnit::CpuClock
    }

    /// CPU time of the parts to be recorded, seconds: of the phases, or of the whole run; 0 if
    /// unknown.
    pub fn recorded_cpu_seconds(&self) -> f64 {
        match &self.phases {
            Some(phases) => phases.cpu_seconds.min(self.cpu_seconds),
            None => self.cpu_seconds,
        }
    }

    /// State of the trace of a recording that has ended by itself.
    pub fn state_at_end(&self) -> TraceState {
        match self.problems.is_empty() {
            true => TraceState::Complete,
            false => TraceState::Partial,
        }
    }

    /// Removes the problem that the records could not be converted. Traces of earlier releases do
    /// not say which one it is.
    pub fn forget_not_converted(&mut self) {
        let problem = std::mem::take(&mut self.not_converted);
        self.problems.retain(|p| match problem.is_empty() {
            true => !p.starts_with("the records stay in "),
            false => *p != problem,
        });
    }

    /// True if loads trigger windows. Then each represents the same number of loads.
    pub fn triggers_by_loads(&self) -> bool {
        self.trigger_event().is_loads()
    }

    /// The event that triggers samples. Traces of earlier releases have only a description of it.
    pub fn trigger_event(&self) -> TriggerEvent {
        let stated = self.trigger_event.clone();
        stated.unwrap_or_else(|| TriggerEvent::of_description(&self.trigger))
    }
}

/// Call paths of windows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CallPaths {
    /// `recorded`, or `off` (`--no-stacks`). Empty if windows have none: in other modes, in imports
    /// without call chains, and in traces of earlier versions.
    pub state: PathRecording,
    /// Number of windows whose callers are known up to the thread's first function.
    pub whole: u64,
    /// Number of windows whose outer callers are unknown.
    pub partial: u64,
    /// Number of windows without a known call.
    pub unknown: u64,
    /// Number of windows with Python frames.
    #[serde(skip_serializing_if = "is_zero")]
    pub python: u64,
    /// Imports: number of windows whose call chain continues with an entry that is not a call in
    /// user code.
    #[serde(skip_serializing_if = "is_zero")]
    pub odd: u64,
    /// Imports: number of windows whose call chain continues in a file that is missing or has
    /// changed.
    #[serde(skip_serializing_if = "is_zero")]
    pub absent: u64,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// The log of heap blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HeapLogging {
    /// `sampled`, `all` or `budget`. Empty: no log was kept.
    pub blocks: String,
    /// Reason why no log was kept although `--heap=budget` requested one.
    pub off: String,
    /// Reason why no log of this program can be kept, requested or not. Empty if it can.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub impossible: String,
    /// `budget`: blocks that were logged.
    pub logged: u64,
    /// `budget`: calls that allocated, as the logged blocks represent them.
    pub calls: u64,
    /// `budget`: CPU time of the program that logging took, including calls of the wrapped
    /// functions, nanoseconds.
    pub ns: u64,
}

/// A data cache of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cache {
    /// 1 for the first level.
    pub level: u32,
    /// Size, bytes.
    pub size: u64,
    /// Associativity, lines per set.
    pub ways: u64,
    /// Bytes of a line.
    pub line: u64,
    /// Logical CPUs that share it.
    pub shared_by: u32,
}

/// A traced file at one address in one process. Its index in [`Manifest::modules`] is the `module`
/// column. The same file loaded at the same address by several processes is one entry.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Module {
    /// Path of the instrumented file.
    pub path: String,
    /// GNU build id, hex; empty if there is none.
    pub build_id: String,
    /// Load bias: run-time address minus link-time address.
    pub bias: u64,
    /// Sidecar, relative to the trace folder (`annotations/….mgza`).
    pub sidecar: String,
    /// [`mgz_abi::module_note::Prelude::id`] in hex.
    pub sidecar_id: String,
    /// Processes that loaded it there, with the times. Forked children without entries have their
    /// parent's modules.
    pub loads: Vec<ModuleLoad>,
    /// Its code whose loads are neither recorded nor counted.
    pub not_instrumented: NotInstrumented,
}

/// Code of an instrumented file whose loads are neither recorded nor counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NotInstrumented {
    /// Functions that could not be instrumented.
    pub functions: u64,
    /// Bytes of these functions.
    pub function_bytes: u64,
    /// Functions that the user did not select.
    pub not_selected: u64,
    /// Bytes that may be code and are in no known function, without padding.
    pub stray_bytes: u64,
    /// Bytes of linkage tables: each call of an imported function through one reads a word of the
    /// global offset table.
    pub linkage_bytes: u64,
    /// Functions that the loader calls before recording begins (resolvers of indirect functions;
    /// soft backend).
    pub before_start: u64,
    /// Functions with loads before the first entry jump on some path: calls from code without a
    /// clone, or through a linkage table, execute these loads unrecorded (PT backend: also calls
    /// and jumps through pointers).
    pub entered_late: u64,
}

impl NotInstrumented {
    /// Reads the numbers from the instrumentation report in a file's sidecar.
    pub fn of_report(report: &serde_json::Value) -> NotInstrumented {
        let part = report.get("not_instrumented").cloned().unwrap_or_default();
        serde_json::from_value(part).unwrap_or_default()
    }
}

/// One process's loading of a module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModuleLoad {
    /// System process id.
    pub process: u32,
    /// CLOCK_MONOTONIC when it was reported to the recorder, ns; 0 if unknown.
    pub begin_ns: u64,
}

/// A traced thread.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Thread {
    /// System process id.
    pub process: u32,
    /// System thread id.
    pub thread: u32,
    /// The thread's last known name; empty if unknown.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Records that its probes wrote (in `ring`, also those that were overwritten).
    pub records_executed: u64,
    /// Records that were kept.
    pub records_kept: u64,
    /// Rows in `samples/`.
    pub rows: u64,
    /// Number of samples (windows).
    pub samples: u64,
}

/// `burst`: the table of windows in a trace folder.
pub const WINDOWS: &str = "windows.parquet";

/// Counts over the whole trace.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Totals {
    /// Records that probes wrote, kept or not.
    pub records_executed: u64,
    /// Records that were kept.
    pub records_kept: u64,
    /// Executed loads (rows plus implied Constants), if known: in `full` and `count`.
    pub loads_executed: Option<u64>,
    /// The number of executed loads, estimated from the kept windows.
    pub loads_executed_estimate: Option<f64>,
    /// `burst`: the 95 % interval of that estimate, as far as it follows from the speed of the
    /// code, reaches from 1 / (1 + this) to (1 + this) times its value.
    pub loads_executed_error: Option<f64>,
    /// `burst` by CPU time: the value of `loads_executed_estimate` under the assumption that code
    /// without a measured speed runs like other code. It serves to judge the sampled share of the
    /// run. As a number of loads, it may have a larger error than stated.
    pub loads_executed_assumed: Option<f64>,
    /// The error of `loads_executed_assumed`, as far as it follows from measured values.
    pub loads_executed_assumed_error: Option<f64>,
    /// `count`: the part of `loads_executed` from gathers and repeated string instructions, which
    /// are counted as if all lanes were active and no count were 0.
    pub loads_counted_at_most: u64,
    /// `watch`: loads and stores executed, if the PMU counted them.
    pub accesses_executed: Option<u64>,
    /// Rows in `samples/`.
    pub rows: u64,
    /// Stores among the `rows`. `None` in traces whose `loads_executed` includes stores.
    pub stores: Option<u64>,
    /// Sum of `implied_const` over all rows.
    pub implied_const: u64,
    /// Number of samples (windows).
    pub samples: u64,
    /// `burst`: triggers by outcome: `windows` began, `outside` instrumented code, `busy` (a window
    /// was open, or the recorder had not yet read the last ones); `empty` are windows that ended
    /// before their first record; `threads_without` threads got no trigger; `slowed` times the rate
    /// of a thread's triggers was halved, since they left it no time.
    pub triggers: std::collections::BTreeMap<String, u64>,
    /// `burst`: sum of the periods of the triggers in instrumented code, loads or nanoseconds; 0 if
    /// unknown. A thread's period is longer while its triggers are `slowed`.
    pub trigger_periods: u64,
    /// `burst`: files of the code in which the last triggers `outside` occurred, with their
    /// numbers, at most 256. `""`: code outside of files.
    pub outside: std::collections::BTreeMap<String, u64>,
    /// Windows that are shorter than requested, by cause (`end_of_thread`, `killed`, …).
    pub truncated_windows: std::collections::BTreeMap<String, u64>,
    /// Lost data by cause, in records or loads according to the key.
    pub dropped: std::collections::BTreeMap<String, u64>,
    /// Bytes of `samples/`.
    pub sample_bytes: u64,
    /// Bytes of `spill/` when the program ended.
    pub spill_bytes: u64,
}

impl Totals {
    /// Number of loads in rows, including implied Constants.
    pub fn loads_recorded(&self) -> u64 {
        self.rows - self.stores.unwrap_or(0).min(self.rows) + self.implied_const
    }

    /// Number of executed stores: that of the rows, scaled to all records that probes wrote.
    pub fn stores_executed(&self) -> f64 {
        let records = self.records_executed.max(self.records_kept) as f64;
        let stores = self.stores.unwrap_or(0) as f64;
        if self.records_kept == 0 {
            stores
        } else {
            stores / self.records_kept as f64 * records
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_costs::{LevelCosts, Spread};

    #[test]
    fn a_later_conversion_removes_the_problem_of_an_earlier_one() {
        let kept = "the records stay in memory of the user";
        let problem = "the disk was full";
        let mut manifest = Manifest {
            problems: vec![kept.into(), problem.into()],
            not_converted: problem.into(),
            ..Manifest::default()
        };
        manifest.forget_not_converted();
        assert_eq!(manifest.problems, [kept]);
        assert_eq!(manifest.not_converted, "");
    }

    #[test]
    fn a_failed_conversion_of_an_earlier_release_is_known_by_its_text() {
        let mut manifest = Manifest {
            problems: vec![
                "the records stay in spill/ and were not converted to columns: full".into(),
                "7 threads were not sampled".into(),
            ],
            ..Manifest::default()
        };
        manifest.forget_not_converted();
        assert_eq!(manifest.problems, ["7 threads were not sampled"]);
    }

    #[test]
    fn memory_costs_are_read_as_they_were_written() {
        let level = LevelCosts {
            level: 1,
            size: 48 << 10,
            latency_ns: Spread::of(&[1.6, 1.7, 1.8]),
            ..LevelCosts::default()
        };
        let costs = MemoryCosts {
            huge_pages: "madvise".into(),
            levels: vec![level],
            ..MemoryCosts::default()
        };
        let manifest = Manifest {
            memory_costs: Some(costs.clone()),
            ..Manifest::default()
        };
        let text = serde_json::to_string(&manifest).unwrap();
        let read: Manifest = serde_json::from_str(&text).unwrap();
        assert_eq!(read.memory_costs, Some(costs));
        // Older traces lack the field.
        let old = serde_json::to_string(&Manifest::default()).unwrap();
        assert!(!old.contains("memory_costs"));
        let read: Manifest = serde_json::from_str(&old).unwrap();
        assert_eq!(read.memory_costs, None);
    }
}
