//! The trace folder: manifest types and the names of files and columns.

use crate::TraceMode;
use crate::memory_costs::MemoryCosts;
use serde::{Deserialize, Serialize};

/// Version of the trace format, in `manifest.json` as `version`.
pub const TRACE_VERSION: u32 = 1;
/// `format` in `manifest.json`.
pub const TRACE_FORMAT: &str = "mgz-trace";
/// File that makes a folder a trace.
pub const MANIFEST: &str = "manifest.json";
/// Folder of the sample rows.
pub const SAMPLES_DIR: &str = "samples";
/// Folder for the files that `full` writes while the program runs.
pub const SPILL_DIR: &str = "spill";
/// Folder of the sidecars.
pub const ANNOTATIONS_DIR: &str = "annotations";

/// File of the data objects; `docs/reference/trace.md` has its columns.
pub const OBJECTS: &str = "objects.parquet";
/// Executed loads by site (mode `count`); `docs/reference/trace.md` has its columns.
pub const COUNTS: &str = "counts.parquet";
/// Folder of another trace of the same command, whose numbers of loads are weights for this one
/// (`mgz-record --calibrate`).
pub const CALIBRATION_DIR: &str = "calibration";
/// Calls by way of others, as a tree; `docs/reference/trace.md` has its columns.
pub const CALL_PATHS: &str = "call_paths.parquet";
/// The call in which each window began.
pub const WINDOW_PATHS: &str = "window_paths.parquet";
/// Its table of words that windows of `burst` have accessed, and when they were accessed again.
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

/// An estimate's error in words. Its 95 % interval reaches from 1 / (1 + `error`) to (1 + `error`)
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
    /// `DELTA_BINARY_PACKED`: numbers that stay the same or advance by even steps take next to
    /// nothing, and need not be unpacked one by one.
    Differences,
    /// `BYTE_STREAM_SPLIT`: the bytes of numbers by their rank. High bytes are mostly alike, which
    /// any codec packs and unpacks at the speed of memory.
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
    /// Number of this process in a job of many ranks, as its launcher told it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// Ranks of the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub world_size: Option<u32>,
    /// Its number among the job's ranks on the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_rank: Option<u32>,
    /// CPU model name.
    pub cpu: String,
    /// Its data caches as the kernel tells them, first level first; empty if it does not.
    pub caches: Vec<Cache>,
    /// Latencies and bandwidths of these caches and of memory, if they were measured on the machine
    /// before the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_costs: Option<MemoryCosts>,
    /// `soft` or `pt`; `watchpoints` in mode `watch`.
    pub backend: String,
    /// Reason for that backend; empty in imports.
    pub backend_why: String,
    /// `full`, `count`, `ring`, `burst` or `watch`; of imports also `samples` or `snapshot`.
    pub mode: TraceMode,
    /// Trigger of a sample: `records`, or `loads` or `cpu time` with its source.
    pub trigger: String,
    /// `burst`: why that one.
    pub trigger_why: String,
    /// Unit of `period` and `window`: `records`, `loads`, or a time.
    pub unit: String,
    /// Records from one window's end to the next window's end (w + z); 0 in `full`. `burst`: loads
    /// from trigger to trigger, if these begin windows.
    pub period: u64,
    /// Records in a window (w); 0 in `full`.
    pub window: u64,
    /// `burst` by CPU time with a fixed rate (`--rate`): triggers asked for per second of a
    /// thread's CPU time; else 0.
    pub rate: f64,
    /// `burst` by CPU time with a budget: percent of the CPU time that recording may cost; else 0.
    /// Windows begin as it allows: how often when each began is in `windows.parquet`.
    pub overhead: f64,
    /// `burst` by CPU time: cost of recording to the program, seconds of CPU time, estimated from
    /// the time spent in it; 0 if unknown.
    pub recording_seconds: f64,
    /// `burst` by CPU time: nanoseconds that a trigger's signal costs a thread, measured by the
    /// recorder before the run; 0 if not measured.
    pub trigger_ns: u64,
    /// `running` while the program runs, then `complete`, `interrupted` (the recorder was stopped
    /// or died) or `partial` (something is missing; see `problems`).
    pub state: String,
    /// Place of the rows: `samples` (then `spill/` is to be ignored if it exists), or `spill` (then
    /// `samples/` is to be ignored because it is missing or incomplete). Empty means `samples`.
    pub data: String,
    /// End of the program, for example `exit 0` or `signal 9`; empty while it runs.
    pub program_status: String,
    /// Wall-clock time of the run, seconds.
    pub wall_seconds: f64,
    /// CPU time of the program and of the children that it waited for, seconds; 0 if unknown.
    pub cpu_seconds: f64,
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
    /// Parts of the run that were recorded, if that was limited; all else refers to these.
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
    /// Value.
    pub value: u64,
    /// Time for which the event was enabled, of all threads, ns.
    pub enabled_ns: u64,
    /// Part of it in which it had a counter, ns. Events take turns if there are too few counters.
    pub running_ns: u64,
}

impl RunCounter {
    /// The value, as if it had counted all the time; `None` if it never counted.
    pub fn estimate(&self) -> Option<f64> {
        let share = self.running_ns as f64 / self.enabled_ns as f64;
        (share > 0.0 && share.is_finite()).then(|| self.value as f64 / share.min(1.0))
    }
}

/// Memory samples of the processor, in [`MEASURED`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Measured {
    /// Samples in the table.
    pub samples: u64,
    /// Those of loads.
    pub loads: u64,
    /// Those of stores.
    pub stores: u64,
    /// Those without a level that is known.
    pub unknown_level: u64,
    /// Those of code that has no name: its file is not here or is another by now, or it has none.
    pub unnamed: u64,
    /// Samples of instructions that access no memory; they are left out.
    pub of_no_access: u64,
    /// Samples that a second event has taken of one access; they are left out.
    pub repeated: u64,
    /// The events that took them.
    pub events: Vec<MeasuredEvent>,
}

/// An event that took memory samples.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MeasuredEvent {
    /// Its name; empty if unknown.
    pub name: String,
    /// The accesses that its samples are drawn from: `loads`, `stores`, `operations`, `cycles`,
    /// `loads of N cycles or more`, or `unknown`.
    pub drawn: String,
    /// Its samples.
    pub samples: u64,
}

/// Parts of a run that were recorded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Phases {
    /// Number of phases in all processes.
    pub count: u64,
    /// CPU time of the processes in them, seconds.
    pub cpu_seconds: f64,
    /// `full` and `ring`: records (pairs count once) that probes wrote outside of them, and that
    /// were dropped.
    pub outside_slots: u64,
    /// Markers in the files that were loaded.
    pub markers: u64,
    /// The first of them.
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

/// A part of a run that was recorded, of one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Phase {
    /// System process id.
    pub process: u32,
    /// Begin of the phase: `marker`, `from-function`, `start-after`, or `start` of the program.
    pub by: String,
    /// CLOCK_MONOTONIC.
    pub begin_ns: u64,
    /// The same; none if it lasted to the end of the program.
    pub end_ns: Option<u64>,
    /// CPU time of the process in it, seconds.
    pub cpu_seconds: f64,
}

impl Manifest {
    /// True if windows begin at ticks of CPU time. Then each represents the same time, regardless
    /// of the code.
    pub fn triggers_by_time(&self) -> bool {
        self.mode == TraceMode::Burst && !self.triggers_by_loads() || self.unit == "cpu-clock"
    }

    /// CPU time of the parts to be recorded, seconds: of the phases, or of the whole run; 0 if
    /// unknown.
    pub fn recorded_cpu_seconds(&self) -> f64 {
        match &self.phases {
            Some(phases) => phases.cpu_seconds.min(self.cpu_seconds),
            None => self.cpu_seconds,
        }
    }

    /// True if windows begin every so many loads. Then each represents the same number of loads.
    pub fn triggers_by_loads(&self) -> bool {
        self.trigger.starts_with("loads")
    }
}

/// Call paths of windows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CallPaths {
    /// `recorded`, or `off` (`--no-stacks`). Empty where windows have none: in other modes, in imports
    /// without call chains, and in traces of earlier versions.
    pub state: String,
    /// Windows whose callers are known up to the thread's first function.
    pub whole: u64,
    /// Windows whose outer callers are not known.
    pub partial: u64,
    /// Windows of which no call is known.
    pub unknown: u64,
    /// Windows with Python frames.
    #[serde(skip_serializing_if = "is_zero")]
    pub python: u64,
    /// Imports: windows whose call chain goes on with an entry that is no call of the user's.
    #[serde(skip_serializing_if = "is_zero")]
    pub odd: u64,
    /// Imports: windows whose call chain goes on in a file that is not here, or is another by now.
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
    /// Reason that no log was kept although `--heap=budget` asked for one.
    pub off: String,
    /// `budget`: blocks that were logged.
    pub logged: u64,
    /// `budget`: calls that allocated, as the logged blocks represent them.
    pub calls: u64,
    /// `budget`: nanoseconds of the program's CPU time that it took, calls of the wrapped functions
    /// included.
    pub ns: u64,
}

/// A data cache of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cache {
    /// 1 for the first level.
    pub level: u32,
    /// Bytes.
    pub size: u64,
    /// Associativity.
    pub ways: u64,
    /// Bytes of a line.
    pub line: u64,
    /// Logical CPUs that share it.
    pub shared_by: u32,
}

/// A traced file at one place in one process. Its index in [`Manifest::modules`] is the `module`
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
    /// Processes that loaded it there, with the times. Forked children that are not named have
    /// their parent's.
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
    /// Their bytes.
    pub function_bytes: u64,
    /// Functions that the user did not select.
    pub not_selected: u64,
    /// Bytes that may be code and are in no known function; filler is left out.
    pub stray_bytes: u64,
    /// Bytes of linkage tables: each call of an imported function through one reads a word of the
    /// global offset table.
    pub linkage_bytes: u64,
    /// Functions that the loader calls before recording begins (resolvers of indirect functions;
    /// soft backend).
    pub before_start: u64,
    /// Functions with loads before the first entry jump on a way in: whoever calls them from code
    /// without a clone, or by way of a linkage table, executes these unseen (PT backend: whoever
    /// calls or jumps there through a pointer, too).
    pub entered_late: u64,
}

impl NotInstrumented {
    /// Reads the code of a file that is not instrumented from the report in its sidecar.
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
    /// CLOCK_MONOTONIC when the recorder was told, ns; 0 if unknown.
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
    /// Its name, as it was last seen; empty if unknown.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Records that its probes wrote (in `ring`, also those that were overwritten).
    pub records_executed: u64,
    /// Records that were kept.
    pub records_kept: u64,
    /// Rows in `samples/`.
    pub rows: u64,
    /// Samples (windows).
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
    /// The same where it is only an estimate from the kept windows.
    pub loads_executed_estimate: Option<f64>,
    /// `burst`: the 95 % interval of that estimate, as far as it comes from how fast the code
    /// runs, reaches from 1 / (1 + this) to (1 + this) times its value.
    pub loads_executed_error: Option<f64>,
    /// `burst` by CPU time: the value of `loads_executed_estimate` under the assumption that code
    /// without a measured speed runs like other code. It serves to judge the sampled share of the
    /// run. As a number of loads, it may have a larger error than stated.
    pub loads_executed_assumed: Option<f64>,
    /// The error of that, as far as it comes from measured values.
    pub loads_executed_assumed_error: Option<f64>,
    /// `count`: of `loads_executed`, those of gathers and repeated string instructions, which are
    /// counted as if all lanes were active and no count were 0.
    pub loads_counted_at_most: u64,
    /// `watch`: loads and stores executed, where the PMU counted them.
    pub accesses_executed: Option<u64>,
    /// Rows in `samples/`.
    pub rows: u64,
    /// Stores among the `rows`. `None` in traces whose `loads_executed` includes stores.
    pub stores: Option<u64>,
    /// Sum of `implied_const` over all rows.
    pub implied_const: u64,
    /// Samples (windows).
    pub samples: u64,
    /// `burst`: triggers by outcome: `windows` began, `outside` instrumented code, `busy` (a window
    /// was open, or the recorder had not yet taken the last ones); `empty` are windows that ended
    /// before their first record; `threads_without` threads got no trigger; `slowed` times a
    /// thread's were made half as many, since they left it no time.
    pub triggers: std::collections::BTreeMap<String, u64>,
    /// `burst`: sum of the periods of the triggers in instrumented code, loads or nanoseconds; 0 if
    /// unknown. A thread's period is longer while its triggers are `slowed`.
    pub trigger_periods: u64,
    /// `burst`: files of the code that the last of the triggers `outside` came in, at most 256 of
    /// them, by how many. `""`: no file's.
    pub outside: std::collections::BTreeMap<String, u64>,
    /// Windows that are shorter than asked, by cause (`end_of_thread`, `killed`, …).
    pub truncated_windows: std::collections::BTreeMap<String, u64>,
    /// Data that was lost, by cause; records or loads as the key says.
    pub dropped: std::collections::BTreeMap<String, u64>,
    /// Bytes of `samples/`.
    pub sample_bytes: u64,
    /// Bytes of `spill/` when the program ended.
    pub spill_bytes: u64,
}

impl Totals {
    /// Loads that rows tell of, implied Constants among them.
    pub fn loads_recorded(&self) -> u64 {
        self.rows - self.stores.unwrap_or(0).min(self.rows) + self.implied_const
    }

    /// Stores that were executed: those of the rows, for all records that probes wrote.
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
        // Older traces have none.
        let old = serde_json::to_string(&Manifest::default()).unwrap();
        assert!(!old.contains("memory_costs"));
        let read: Manifest = serde_json::from_str(&old).unwrap();
        assert_eq!(read.memory_costs, None);
    }
}
