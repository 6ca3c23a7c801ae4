//! A trace in the making: the manifest collects facts while a program runs.

use crate::convert;
use crate::convert::Begun;
use crate::convert::convert_error::ConvertError;
use crate::convert::early_sidecars::EarlySidecars;
use crate::convert::online::Carried;
use crate::objects::Objects;
use crate::objects::heap::Heap;
use crate::options::args::{Cli, OutputFormat};
use crate::program::modules;
use crate::soft::drain::count::CountsByProcess;
use crate::soft::outcome::{ModuleSeen, RunEvent, RunOutcome};
use crate::soft::shared_memory::Outside;
use crate::soft::window_log::WindowLog;
use crate::trace::dir::Folder;
use crate::trace::objects_to_write::ObjectsToWrite;
use crate::trace::progress::Ticker;
use crate::trace::thread_names::ThreadNames;
use crate::trace::{counted, coverage, dir, summary};
use crate::util::clock::monotonic_ns;
use crate::util::failure::Failure;
use mgz_abi::shared_memory;
use mgz_annotations_schema::coverage::sentences;
use mgz_annotations_schema::expand::{ModuleMap, Placement};
use mgz_annotations_schema::manifest::{
    Manifest, Module, ModuleLoad, NotInstrumented, SPILL_DIR, Thread,
};
use mgz_annotations_schema::sidecar::{Header, Sidecar};
use mgz_annotations_schema::spill::ThreadKey;
use mgz_annotations_schema::{PathRecording, ProgramStatus, RowsIn, TraceMode, TraceState};
use mgz_generated_code::watch::NamedProcesses;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The program that is started.
pub(crate) struct Started {
    pub(crate) program: PathBuf,
    /// True if it is not instrumented itself.
    pub(crate) starts_others: bool,
    /// Other instrumented files that it may start.
    pub(crate) beside: Vec<modules::Instrumented>,
}

/// Prints the problems and the line at the end. `for_run`: `mgz run` reports missing data.
pub fn report(manifest: &Manifest, trace: &Path, format: OutputFormat, for_run: bool) {
    use std::io::Write;
    let shown = trace.display().to_string();
    let mut text = String::new();
    match format {
        OutputFormat::Text => {
            for problem in &manifest.problems {
                text.push_str(&format!("mgz-record: {problem}\n"));
            }
            if for_run {
                text.push_str(&summary::brief(manifest));
            } else {
                add_for_recorder(manifest, &shown, &mut text);
            }
        }
        OutputFormat::Json => text.push_str(&summary::json(manifest, &shown)),
    }
    text.push('\n');
    // The program may have closed the standard error that we share with it.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Adds the sentences that `mgz-record` prints and `mgz run` does not.
fn add_for_recorder(manifest: &Manifest, shown: &str, text: &mut String) {
    if let Some(times) = manifest.totals.triggers.get("slowed") {
        text.push_str(&format!("mgz-record: triggers took all the time of a thread, so their number was halved {times} times; ask for fewer (--rate)\n"));
    }
    if !manifest.no_samples.is_empty() {
        text.push_str(&format!("mgz-record: {}\n", manifest.no_samples));
    }
    for sentence in sentences(manifest) {
        text.push_str(&format!("mgz-record: {sentence}\n"));
    }
    text.push_str(&summary::summary_line(manifest, shown));
}

/// A trace in the making.
pub struct Recording {
    /// Its folder.
    pub folder: Folder,
    /// The manifest so far.
    pub manifest: Manifest,
    /// Data objects, only while a program runs.
    pub(crate) objects: Objects,
    /// Code that runs but is not recorded, only while a program runs.
    pub(crate) watch: coverage::CoverageWatch,
    /// The names of generated code, after the program's end.
    pub(crate) generated_code: NamedProcesses,
    /// Names of threads, only while a program runs.
    pub(crate) names: ThreadNames,
    /// Sidecars for the conversion, only while a program runs.
    early: EarlySidecars,
}

/// Picoseconds that the stubs in front of the allocator take for a block, from its allocation to
/// its end ([decision 78](../../../docs/decisions/0078-heap-blocks-on-a-budget.md)).
const STUBS_PS: u64 = 1_500;

impl Recording {
    /// A trace in `folder` that has its manifest alone.
    pub fn new(folder: Folder, manifest: Manifest) -> Recording {
        Recording {
            folder,
            manifest,
            objects: Objects::default(),
            watch: coverage::CoverageWatch::default(),
            generated_code: NamedProcesses::default(),
            names: ThreadNames::default(),
            early: EarlySidecars::default(),
        }
    }

    /// Copies the needed files while they exist, and marks the recording as running.
    pub(crate) fn start(&mut self, instrumented: &[modules::Instrumented]) -> Result<(), Failure> {
        for module in instrumented {
            let id = hex(&module.note.sidecar_id);
            self.folder.add_sidecar(&module.sidecar, &id).map_err(|e| {
                Failure::own(format!(
                    "{}: cannot be copied into {}: {e}",
                    module.sidecar.display(),
                    self.folder.path().display()
                ))
            })?;
        }
        self.folder.write(&self.manifest).map_err(|e| {
            Failure::own(format!(
                "{}: the manifest cannot be written: {e}",
                self.folder.path().display()
            ))
        })
    }

    pub(crate) fn event(&mut self, event: &RunEvent, ticker: &Ticker) {
        match event {
            RunEvent::Module(module) if is_program(module.result) => self.program(module),
            RunEvent::Module(module) => {
                self.objects.met(module.pid);
                self.watch.met(module.pid);
                self.module(module);
            }
            RunEvent::Thread(seen) => self.objects.thread(seen),
            RunEvent::Living(threads) => {
                self.names.living(threads);
                self.objects.living(threads);
            }
            RunEvent::Progress {
                slots,
                bytes,
                windows,
                outside,
            } => {
                self.objects.tick();
                self.watch.tick();
                ticker.tell(*slots, *bytes, *windows, *outside);
            }
        }
    }

    pub(crate) fn problem(&mut self, sentence: String) {
        if !self.manifest.problems.contains(&sentence) {
            self.manifest.problems.push(sentence);
        }
    }

    /// Adds a program that is not recorded, although programs that it starts may be.
    pub(crate) fn program(&mut self, seen: &ModuleSeen) {
        let shown = seen.path.display();
        match seen.result {
            shared_memory::MODULE_LATE => self.problem(format!(
                "{shown}: not recorded in process {}: it has loaded an instrumented library when a thread had SIGSEGV blocked, which recording needs; instrument the program as well, so that it is recorded from its start, or record with --mode burst",
                seen.pid
            )),
            shared_memory::MODULE_SHADOW_STACK => self.problem(format!(
                "{shown}: not recorded in process {}: it has a shadow stack, which moved code would violate; start it with GLIBC_TUNABLES=glibc.cpu.hwcaps=-SHSTK",
                seen.pid
            )),
            result => self.watch.program(&seen.path, result),
        }
    }

    /// The failure to report if the program ran but nothing instrumented did. It replaces all other
    /// output.
    pub(crate) fn nothing_ran(&self, subject: &Started, outcome: &RunOutcome) -> Option<Failure> {
        let m = &self.manifest;
        if !m.modules.is_empty() || !m.problems.is_empty() || !outcome.threads.is_empty() {
            return None;
        }
        let shown = subject.program.display();
        let why = if outcome.programs == 0 {
            format!(
                "{shown}: nothing was recorded: the loader has not loaded the recorder's library into it (it gains rights when it is executed, its loader does not support LD_PRELOAD, or it ended before: is a library missing?); record a copy that gains no rights, or instrument a static build"
            )
        } else if subject.starts_others {
            let mut names = self.watch.plain_programs();
            let own = std::fs::canonicalize(&subject.program).unwrap_or_default();
            let alone = names.len() == 1 && names[0] == own.display().to_string();
            if alone && !outcome.dropped.contains_key("forbidden") {
                return Some(Failure {
                    status: nothing_recorded(outcome),
                    message: format!(
                        "{shown}: nothing was recorded: it is not instrumented and has started no other program; {} (the program's own end: {})",
                        modules::instrument_it(&subject.program),
                        outcome.status
                    ),
                });
            }
            names.truncate(5);
            format!(
                "{shown}: nothing was recorded, since no instrumented program has run; without instrumentation ran {}; run `mgz-instrument -o PROGRAM.inst PROGRAM` on the one that is meant and let {shown} start that{}",
                names.join(", "),
                self.beyond_reach(outcome)
            )
        } else {
            return None;
        };
        Some(Failure {
            status: nothing_recorded(outcome),
            message: format!("{why} (the program's own end: {})", outcome.status),
        })
    }

    /// A possible reason that a program was not recorded although it should have been.
    pub(crate) fn beyond_reach(&self, outcome: &RunOutcome) -> String {
        match outcome.dropped.get("forbidden") {
            Some(n) => format!(
                "; {n} threads or programs ran where the recorder cannot be reached (as another user, in another root or process namespace, or behind a filter of system calls): run mgz-record there as well"
            ),
            None => String::new(),
        }
    }

    pub(crate) fn module(&mut self, seen: &ModuleSeen) {
        if let Some(why) = refused_module(seen.result) {
            return self.problem(format!(
                "{}: not recorded in process {}: {why}",
                seen.path.display(),
                seen.pid
            ));
        }
        let id = hex(&seen.sidecar_id);
        let sidecar = match self.folder.add_sidecar(&seen.sidecar, &id) {
            Ok(sidecar) => sidecar,
            Err(error) => {
                self.problem(format!("{}: the sidecar could not be copied into the trace: {error}; its loads cannot be expanded", seen.sidecar.display()));
                String::new()
            }
        };
        let path = self.folder.path().join(&sidecar);
        if !sidecar.is_empty() && self.manifest.mode != TraceMode::Count {
            self.early.read(&id, path.clone());
        }
        let header =
            Sidecar::read_header(&path).map_or_else(|_| Header::default(), |(_, header)| header);
        let module = Module {
            path: seen.path.display().to_string(),
            build_id: header.input.build_id,
            bias: seen.bias,
            sidecar,
            sidecar_id: id,
            loads: Vec::new(),
            not_instrumented: NotInstrumented::of_report(&header.report),
        };
        dir::add_module(
            &mut self.manifest,
            module,
            ModuleLoad {
                process: seen.pid,
                begin_ns: monotonic_ns(),
            },
        );
        // A failure here appears again, as an error, when the recording ends.
        let _ = self.folder.write(&self.manifest);
    }

    /// Enters the counts of the driver.
    pub(crate) fn ended(&mut self, outcome: &RunOutcome) {
        let m = &mut self.manifest;
        m.program_status = outcome.status.clone();
        m.wall_seconds = outcome.wall.as_secs_f64();
        m.cpu_seconds = outcome.cpu.as_secs_f64();
        m.mapped_bytes = outcome.mapped;
        m.recording_seconds = outcome.spent_ns as f64 / 1e9;
        m.counters = outcome.counters.clone();
        m.totals.spill_bytes = outcome.spill_bytes;
        m.totals.dropped = outcome.dropped.clone();
        m.totals.truncated_windows = outcome.truncated.clone();
        m.totals.triggers = outcome.triggers.clone();
        let Outside {
            periods,
            periods_outside,
            ..
        } = &outcome.outside;
        m.totals.trigger_periods = periods.saturating_sub(*periods_outside);
        m.phases = outcome.phases.clone();
        if let (TraceMode::Burst, Some((event, description))) = (&m.mode, &outcome.trigger) {
            m.trigger.clone_from(description);
            m.trigger_event = Some(event.clone());
        }
        let windows = m.mode.has_windows();
        for t in &outcome.threads {
            // Records between the windows of `burst` are not counted.
            let executed = if m.mode == TraceMode::Burst {
                0
            } else {
                t.slots_executed
            };
            m.totals.records_executed += executed;
            m.totals.records_kept += t.slots_kept;
            m.totals.samples += if windows {
                t.segments
            } else {
                u64::from(t.segments > 0)
            };
            m.threads.push(Thread {
                process: t.process,
                thread: t.thread,
                name: self.names.of(t.process, t.thread),
                records_executed: executed,
                records_kept: t.slots_kept,
                rows: 0,
                samples: if windows {
                    t.segments
                } else {
                    u64::from(t.segments > 0)
                },
            });
        }
        let sentences: Vec<String> = outcome
            .dropped
            .iter()
            .filter_map(|(what, &n)| drop_sentence(what, n))
            .collect();
        outcome
            .problems
            .iter()
            .cloned()
            .chain(sentences)
            .for_each(|p| self.problem(p));
    }

    /// The known data objects, to be named and written. Names the files in which triggers came
    /// elsewhere, and reports losses of heap blocks.
    pub(crate) fn objects_to_write<'h>(
        &mut self,
        heap: Option<&'h Heap>,
        outside: &Outside,
    ) -> ObjectsToWrite<'h> {
        let placed = ModuleMap::new(&self.manifest.modules, |_| Some(0));
        let processes: BTreeSet<u32> = self.manifest.threads.iter().map(|t| t.process).collect();
        let mut modules = Vec::new();
        let mut list = Vec::new();
        for process in processes {
            placed.at(process, u64::MAX, &mut list);
            let at = |p: &Placement| {
                let module = self.manifest.modules.get(usize::from(p.module))?;
                Some((process, self.file_of(module), p.bias))
            };
            modules.extend(list.iter().filter_map(at));
        }
        let (instances, problems) = std::mem::take(&mut self.objects).finish(&modules);
        problems.into_iter().for_each(|p| self.problem(p));
        self.manifest.totals.outside = self.watch.place_outside(outside);
        if let Some(heap) = heap {
            self.account_heap(heap);
        }
        ObjectsToWrite {
            folder: self.folder.path().to_owned(),
            modules: self.manifest.modules.clone(),
            instances,
            heap,
        }
    }

    /// The file that holds a module's symbols. A copy that the program has made (in a memfd, say)
    /// may be gone; then this is the original of the copy.
    pub(crate) fn file_of(&self, module: &Module) -> PathBuf {
        let gone = |m: &&Module| !Path::new(&m.path).exists();
        let original = Some(module).filter(gone).and_then(|gone| {
            self.manifest
                .modules
                .iter()
                .find(|m| m.sidecar_id == gone.sidecar_id && Path::new(&m.path).exists())
        });
        PathBuf::from(&original.unwrap_or(module).path)
    }

    /// Enters the code that ran but was not recorded.
    pub(crate) fn cover(&mut self) {
        let watch = std::mem::take(&mut self.watch);
        (self.manifest.coverage, self.generated_code) = watch.finish(&self.manifest);
    }

    /// Reports losses of heap blocks, and the cost of their log.
    fn account_heap(&mut self, heap: &Heap) {
        for (what, n) in [("heap_events", heap.lost), ("heap_lives", heap.forgotten)] {
            if n > 0 {
                *self
                    .manifest
                    .totals
                    .dropped
                    .entry(what.to_owned())
                    .or_default() += n;
            }
        }
        if heap.lost > 0 {
            self.problem(format!("{} calls of the allocator were not logged: loads of their heap blocks count for other blocks or for none", heap.lost));
        }
        if heap.forgotten > 0 {
            self.problem(format!(
                "{} heap blocks are beyond the limit of the log: their loads count for the heap as a whole",
                heap.forgotten
            ));
        }
        if let Some(spent) = heap.spent {
            let log = &mut self.manifest.heap;
            (log.logged, log.calls) = (spent.blocks, spent.calls);
            log.ns = spent.ns + spent.calls * STUBS_PS / 1000;
            self.manifest.recording_seconds += log.ns as f64 / 1e9;
        } else if heap.allocations == 0 && heap.lost == 0 {
            self.problem("no heap blocks were logged: the program allocates none, brings its own allocator, or is static".into());
        }
    }

    /// Turns the spill files into columns, unless they are to stay.
    pub fn convert(&mut self, cli: &Cli, log: Option<&WindowLog>, carried: Option<Carried>) {
        let has_windows = self.manifest.mode.has_windows();
        if has_windows && cli.no_stacks {
            self.manifest.call_paths.state = PathRecording::Off;
        }
        if cli.keep_spill {
            return;
        }
        // There is no second try in memory: columns replace records, and the bound on the sum of
        // both is that of the records.
        let options = convert::ConvertOptions {
            compression: cli.compress,
            max_bytes: cli.max_size.filter(|_| cli.analyze.is_none()),
            release: cli.analyze.is_some(),
            ..convert::ConvertOptions::default()
        };
        self.expand(&options, log, carried);
    }

    /// Divides the counts by site and writes them.
    pub(crate) fn count(&mut self, counts: &CountsByProcess) {
        let folder = self.folder.path().to_owned();
        let mut sidecars = BTreeMap::new();
        for module in &self.manifest.modules {
            if let Ok(sidecar) = Sidecar::read(&folder.join(&module.sidecar)) {
                sidecars.insert(module.sidecar_id.clone(), sidecar);
            }
        }
        let loads = counted::divide(&self.manifest, &sidecars, counts);
        for (what, n) in [
            ("unknown_ids", loads.unknown),
            ("ambiguous_ids", loads.ambiguous),
        ] {
            if n > 0 {
                *self.manifest.totals.dropped.entry(what.into()).or_default() += n;
                self.problem(format!(
                    "{n} records belong to no module, or to several that one process has run one after the other; their loads are not counted (instrument them together)"
                ));
            }
        }
        self.manifest.totals.loads_counted_at_most = loads.bounds;
        match counted::write_counted_loads(&folder, &loads) {
            Ok(()) => {
                self.manifest.data = RowsIn::Samples;
                let t = &mut self.manifest.totals;
                let lost = t.dropped.keys().any(|what| what != "cut_regions");
                t.loads_executed = (!lost).then_some(loads.loads);
            }
            Err(error) => self.problem(format!(
                "{}: the counts could not be written: {error:#}",
                folder.display()
            )),
        }
    }

    pub(crate) fn expand(
        &mut self,
        options: &convert::ConvertOptions,
        log: Option<&WindowLog>,
        carried: Option<Carried>,
    ) {
        let path = self.folder.path().to_owned();
        let begun = Begun {
            carried,
            sidecars: self.early.take(),
        };
        match convert::convert_rest(&path, &self.manifest, options, begun) {
            Ok(outcome) => {
                self.converted(&outcome);
                let places = outcome.places.as_ref();
                if let Some(paths) = log.and_then(|log| log.paths.as_ref()) {
                    self.write_paths(paths, &outcome.samples, places);
                }
                if let Some(log) = log {
                    self.write_reuse_pairs(&log.watches, &outcome.samples, places);
                }
                self.manifest.data = RowsIn::Samples;
            }
            Err(error) if options.release => {
                self.problem(format!("the records could not be converted to columns and are lost in part: {error} (free memory, or record with -o)"));
            }
            Err(error) => {
                let again = format!("run `mgz-record --recover {}`", path.display());
                let remedy = match &error {
                    ConvertError::TooLarge { .. } => "mgz-analyze reads the spill files as well; record with a larger --max-size for columns".to_owned(),
                    ConvertError::OtherVersion { .. } => "convert them with the mgz-record that wrote them".to_owned(),
                    error if error.no_space() => format!("the disk is full: free space there and {again}; mgz-analyze reads the spill files as well"),
                    _ => format!("mgz-analyze may be able to read the spill files; once the cause is gone, {again}"),
                };
                let problem = format!(
                    "the records stay in {SPILL_DIR}/ and were not converted to columns: {error} ({remedy})"
                );
                self.manifest.not_converted.clone_from(&problem);
                self.problem(problem);
            }
        }
    }

    pub(crate) fn converted(&mut self, outcome: &convert::ConvertOutcome) {
        let m = &mut self.manifest;
        let c = &outcome.counters;
        m.totals.rows = c.rows;
        m.totals.stores = Some(outcome.stores);
        m.totals.implied_const = c.implied;
        m.totals.samples = c.samples;
        m.totals.sample_bytes = outcome.bytes;
        for (what, n) in [
            ("unknown_ids", c.unknown),
            ("torn_loads", c.torn),
            ("cut_loads", c.cut),
            ("implied_const_unplaced", c.implied_unplaced),
            ("damaged_segments", outcome.damaged_segments),
            ("torn_spill_files", outcome.torn_files),
        ] {
            if n > 0 {
                *m.totals.dropped.entry(what.into()).or_default() += n;
            }
        }
        for thread in &mut m.threads {
            let key = ThreadKey {
                process: thread.process,
                thread: thread.thread,
            };
            if let Some(rows) = outcome.threads.get(&key) {
                (thread.rows, thread.samples) = (rows.rows, rows.samples);
            }
        }
        let loads = c.rows - outcome.stores + c.implied + c.implied_unplaced;
        let whole = m.totals.records_kept == m.totals.records_executed
            && c.unknown == 0
            && outcome.damaged_segments == 0
            && outcome.torn_files == 0;
        if m.mode == TraceMode::Burst {
            let convert::ExecutedLoads { known, assumed } = outcome.loads_executed;
            m.totals.loads_executed_estimate = known.map(|e| e.loads);
            m.totals.loads_executed_error = known.map(|e| e.error);
            m.totals.loads_executed_assumed = assumed.map(|e| e.loads);
            m.totals.loads_executed_assumed_error = assumed.map(|e| e.error);
        } else if m.state == TraceState::Interrupted {
            // If the recorder was killed, later loads are unknown.
        } else if m.mode.has_all_loads() && whole {
            m.totals.loads_executed = Some(loads);
        } else if m.totals.records_kept > 0 && m.totals.records_executed > 0 {
            m.totals.loads_executed_estimate = Some(
                loads as f64 / m.totals.records_kept as f64 * m.totals.records_executed as f64,
            );
        }
        if c.unknown > 0 {
            self.problem(format!(
                "{} record slots have ids that no module of the trace has; their loads are missing",
                c.unknown
            ));
        }
        outcome
            .problems
            .iter()
            .cloned()
            .for_each(|p| self.problem(p));
    }

    /// Writes the last manifest and removes files that are no longer needed.
    pub fn finish(&mut self) -> std::io::Result<()> {
        if self.manifest.state == TraceState::Running {
            self.manifest.state = self.manifest.state_at_end();
        }
        self.folder.release_reserve();
        self.folder.write(&self.manifest)?;
        if self.manifest.data == RowsIn::Samples {
            // The manifest now states that the columns are complete.
            self.folder.remove_spill()?;
        }
        Ok(())
    }
}

pub(crate) fn hex(id: &[u8; 16]) -> String {
    id.iter().map(|b| format!("{b:02x}")).collect()
}

/// True if a row of the module table is about a program, not a module.
pub(crate) fn is_program(result: u32) -> bool {
    matches!(
        result,
        shared_memory::MODULE_PLAIN
            | shared_memory::MODULE_PRIVILEGED
            | shared_memory::MODULE_32_BIT
            | shared_memory::MODULE_LATE
            | shared_memory::MODULE_SHADOW_STACK
    )
}

/// Why the runtime did not record a module.
pub(crate) fn refused_module(result: u32) -> Option<&'static str> {
    Some(match result {
        shared_memory::MODULE_OK => return None,
        shared_memory::MODULE_VERSION => {
            "instrumented by another version of mgz (run mgz-instrument again)"
        }
        shared_memory::MODULE_FLAVOUR => {
            "instrumented for Intel PT (run `mgz-instrument --backend soft`)"
        }
        shared_memory::MODULE_NO_SIDECAR => {
            "its sidecar is missing (put it back, or run mgz-instrument again)"
        }
        shared_memory::MODULE_OTHER_SIDECAR => {
            "its sidecar belongs to another build (run mgz-instrument again)"
        }
        shared_memory::MODULE_OVERLAP => {
            "its record numbers overlap with those of another module (instrument both together)"
        }
        shared_memory::MODULE_NOT_TRANSLATED => {
            "not instrumented for burst mode (run `mgz-instrument --for burst`)"
        }
        shared_memory::MODULE_TOO_MANY => "too many instrumented files in one process",
        shared_memory::MODULE_UNPATCHED => {
            "its code could not be changed (the system refuses to execute memory that was written to), or its patch table is damaged"
        }
        shared_memory::MODULE_READS_CODE => {
            "it reads its own code, which these modes change (record with --mode burst)"
        }
        shared_memory::MODULE_BURST_ONLY => {
            "the program steps through itself, checks alignment, has its system calls handed back, or has a runtime that walks stacks (Go, OCaml), which leaves no room for its clones in these modes (record with --mode burst)"
        }
        shared_memory::MODULE_COUNTS => {
            "made by `mgz-instrument --for count`, which serves --count alone (record a file made without that)"
        }
        shared_memory::MODULE_NO_COUNTERS => {
            "the process may not have the address space that counters take (lift `ulimit -v`, or count with a file made without --for count)"
        }
        _ => "the runtime refused it",
    })
}

/// Meaning of a count of the runtime or the drain, for the user. `None` if nothing is missing, or
/// another sentence reports it.
pub(crate) fn drop_sentence(what: &str, n: u64) -> Option<String> {
    Some(match what {
        "threads_without_ring" => format!(
            "{n} threads were not recorded: no room for their rings (too many threads at once)"
        ),
        "foreign_threads" => {
            format!("{n} times a thread met the ring of another and stopped recording")
        }
        "threads_unseen" => format!(
            "{n} threads were not recorded: the program creates them where the recorder does not find them (by system calls in code that it generates, or in a large library without instrumentation); instrument the library that creates them (`mgz-instrument --libs`), or use --mode burst, where they run unrecorded but unchanged"
        ),
        "lost_probe_states" => format!(
            "{n} signals interrupted probes in an unknown state; the records around them may be missing"
        ),
        "modules_untold" => format!(
            "{n} modules could not be reported to the recorder in time; their loads are missing"
        ),
        "forbidden" => format!(
            "{n} threads or programs were not recorded: the program runs them where the recorder cannot be reached (a filter of system calls, another user, another root or process namespace; with --heap, programs of a sanitizer)"
        ),
        "gs_base_taken" => format!(
            "{n} threads set the %gs base, which the soft backend needs: in full and ring their process ended there with status 125, in burst they went on unrecorded; record with --mode burst, or with --backend pt"
        ),
        "memory_opened" => format!(
            "{n} processes opened their memory as a file (/proc/self/mem): with --mode burst they were not recorded from then on if they may write there; in full and ring they find entry jumps in their code, and clones go on as they were, so record with --mode burst"
        ),
        "calls_dispatched" => format!(
            "{n} threads have their system calls handed back to the program (PR_SET_SYSCALL_USER_DISPATCH): in full and ring their process ended there with status 125, in burst they went on unrecorded; record with --mode burst"
        ),
        "steps_in_clones" => format!(
            "{n} times the program stepped through its own code by the trap flag and saw the steps of a clone, which differ from the original's; record with --mode burst, where such threads run the original"
        ),
        "damaged_chunks" => {
            format!("{n} chunks of records were damaged by the program and are missing")
        }
        _ => return None,
    })
}

/// The exit status if nothing was recorded: that of a failure, unless the program was killed.
pub(crate) fn nothing_recorded(outcome: &RunOutcome) -> i32 {
    match outcome.status {
        ProgramStatus::Signaled(_) => outcome.status.exit_status(),
        _ => 125,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A library that reads its own code once counted as a program without instrumentation, since
    /// both had the same number.
    #[test]
    fn each_result_is_of_a_program_or_has_its_own_reason() {
        let reasons: Vec<&str> = shared_memory::MODULE_RESULTS
            .into_iter()
            .filter(|&result| !is_program(result))
            .filter_map(refused_module)
            .collect();
        let distinct: std::collections::BTreeSet<&str> = reasons.iter().copied().collect();
        // Every result except those of programs and of recorded modules has a reason.
        assert_eq!((reasons.len(), distinct.len()), (12, 12));
        assert!(!distinct.contains("the runtime refused it"));
    }
}
