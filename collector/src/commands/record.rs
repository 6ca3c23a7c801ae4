//! A recording from beginning to end: folder, program, conversion, manifest.

use crate::commands::intel_pt::{IntelPt, PtRun, absent};
use crate::commands::{calibrate, record_watch};
use crate::convert;
use crate::convert::online::{Carried, Online};
use crate::machine::backend::Chosen;
use crate::machine::{backend, capabilities, trigger};
use crate::objects::heap;
use crate::objects::heap::blocks::HeapBlocks;
use crate::options::amount::Amount;
use crate::options::args::{Cli, Mode, OutputFormat};
use crate::options::effect;
use crate::options::request::{AttachRequest, RecordRequest, RunRequest};
use crate::program::refusal::Refusal;
use crate::program::{modules, path_search};
use crate::soft;
use crate::soft::attach::Candidate;
use crate::soft::outcome::{DriverError, RunEvent, RunOutcome};
use crate::soft::run_options::RunOptions;
use crate::soft::window_log::OfWindows;
use crate::trace::dir::Folder;
use crate::trace::progress::Ticker;
use crate::trace::recording::{Recording, Started, hex, report};
use crate::trace::{dir, no_samples};
use crate::util::failure::Failure;
use mgz_abi::module_note::{
    FEATURE_BURST_ONLY, FEATURE_COUNTS, FEATURE_READS_CODE, FEATURE_TRANSLATED,
};
use mgz_annotations_schema::manifest::{HeapLogging, Manifest, SPILL_DIR, Thread};
use mgz_annotations_schema::spill::ThreadKey;
use mgz_annotations_schema::tell;
use mgz_annotations_schema::{ProgramStatus, RowsIn, TraceMode, TraceState};
use std::ffi::OsStr;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        Failure {
            status: refusal.status(),
            message: refusal.to_string(),
        }
    }
}

impl From<DriverError> for Failure {
    fn from(error: DriverError) -> Failure {
        Failure {
            status: error.exit_status(),
            message: error.to_string(),
        }
    }
}

impl From<crate::trace::dir::FolderError> for Failure {
    fn from(error: crate::trace::dir::FolderError) -> Failure {
        Failure::own(error)
    }
}

/// The parts of windows that are logged.
fn of_windows(cli: &Cli) -> OfWindows {
    OfWindows {
        stacks: !cli.no_stacks,
        reuses: !cli.no_reuse_pairs,
    }
}

/// The mode of the runtime, and that of the trace if there is to be one.
fn driver_mode(mode: Mode) -> (soft::run_options::Mode, Option<TraceMode>) {
    match mode {
        Mode::Full => (soft::run_options::Mode::Full, Some(TraceMode::Full)),
        Mode::Count => (soft::run_options::Mode::Count, Some(TraceMode::Count)),
        Mode::Ring => (soft::run_options::Mode::Ring, Some(TraceMode::Ring)),
        Mode::Burst => (soft::run_options::Mode::Burst, Some(TraceMode::Burst)),
        // `watch` does not get here: it has no runtime.
        Mode::Off | Mode::Watch => (soft::run_options::Mode::Off, None),
    }
}

/// Carries out the request; returns the exit status to pass on. `pt`: none in a build without
/// Intel PT.
pub fn record_program(request: RecordRequest, pt: Option<IntelPt>) -> Result<i32, Failure> {
    match request {
        RecordRequest::Attach(request) => attach(request),
        RecordRequest::Watch(request) => {
            let program = find_program(request.cli)?;
            record_watch::watch_program(request, program)
        }
        RecordRequest::Run(request) if request.cli.calibrate => {
            let program = resolve(request.cli)?;
            let files = modules::check_program(&program, &request.cli.program[1..])?;
            no_counts_only(&files.instrumented)?;
            calibrate::record_calibrated(request.cli, |cli| run(RunRequest { cli }, pt))
        }
        RecordRequest::Run(request) => run(request, pt),
    }
}

/// The file of the requested program.
fn find_program(cli: &Cli) -> Result<PathBuf, Failure> {
    if let (Some(sentence), OutputFormat::Text) = (effect::behind_program(cli), cli.format) {
        tell!("mgz-record: {sentence}");
    }
    resolve(cli)
}

fn resolve(cli: &Cli) -> Result<PathBuf, Failure> {
    let name = cli.program.first().map_or(OsStr::new(""), |name| name);
    Ok(path_search::resolve(
        name,
        std::env::var_os("PATH").as_deref(),
    )?)
}

/// Runs a program and records it.
fn run(request: RunRequest, pt: Option<IntelPt>) -> Result<i32, Failure> {
    let cli = request.cli;
    let program = find_program(cli)?;
    let modules::Checked {
        instrumented,
        starts_others,
        beside,
    } = modules::check_program(&program, &cli.program[1..])?;
    if instrumented.is_empty() && cli.format == OutputFormat::Text {
        tell!(
            "mgz-record: {}: not instrumented; programs that it starts are recorded if they are instrumented",
            program.display()
        );
    }
    let request = request.with_mode(if backend::serves_burst(&instrumented) {
        Mode::Burst
    } else {
        Mode::Ring
    })?;
    let asked = request.mode;
    let mut probed = None;
    let choice = backend::choose_backend(cli.backend, &instrumented, || {
        let facts = pt.map(|pt| (pt.facts)());
        probed.insert(capabilities::probe(facts)).clone()
    })?;
    if choice.backend == Chosen::Pt {
        let windows = request.by_pt()?;
        let probe = probed.unwrap_or_default();
        let pt = pt.ok_or_else(|| absent("--backend pt"))?;
        return (pt.record)(PtRun {
            cli,
            windows,
            program,
            modules: &instrumented,
            choice: &choice,
            probe: &probe,
        });
    }
    request.by_software()?;
    check_files(asked, &instrumented)?;
    let impossible = heap_impossible(&program, &instrumented);
    let heap_off = heap_off(cli, asked, &program, impossible.as_ref())?;
    let subject = Started {
        program: program.clone(),
        starts_others,
        beside,
    };
    let triggers = trigger_of(cli, asked)?;
    if let Some(chosen) = &triggers {
        request.with_trigger(chosen.trigger.by_loads())?;
        counts_loads(cli, chosen.trigger.by_loads())?;
    }
    say_if_slower(cli, triggers.as_ref());
    let heap_blocks = cli.heap.filter(|_| heap_off.is_none());
    let mut options = RunOptions {
        trigger: triggers.as_ref().map(|t| t.trigger),
        // In other modes most loads are the probes' own. A trigger by loads needs its counter
        // always.
        counters: asked == Mode::Burst && triggers.as_ref().is_some_and(|t| !t.trigger.by_loads()),
        ..run_options(cli, asked, program, &instrumented, heap_blocks)
    };
    let Some(trace_mode) = driver_mode(asked).1 else {
        options.spill_dir = std::env::temp_dir();
        return Ok(soft::run::run_recorded(&options, &mut |_| {})?
            .status
            .exit_status());
    };
    let command = cli
        .program
        .iter()
        .map(|a| a.to_string_lossy().into_owned())
        .collect();
    let manifest = Manifest {
        backend_why: choice.why,
        heap: HeapLogging {
            blocks: heap_blocks.map_or("", HeapBlocks::name).into(),
            off: heap_off.unwrap_or_default().into(),
            impossible: impossible.map_or("", |i| i.in_short).into(),
            ..HeapLogging::default()
        },
        ..dir::begin_manifest(command, trace_mode, options.period, options.window)
    };
    let manifest = triggers.into_iter().fold(manifest, with_trigger);
    into_trace(cli, manifest, &instrumented, Some(&subject), |on_event| {
        soft::run::run_recorded(&options, on_event)
    })
}

/// Options of a run in a mode, without its trigger.
fn run_options(
    cli: &Cli,
    mode: Mode,
    program: PathBuf,
    instrumented: &[modules::Instrumented],
    heap_blocks: Option<HeapBlocks>,
) -> RunOptions {
    let mut before_runtime = modules::before_runtime(&program, instrumented);
    let heap_place = heap_blocks
        .is_some()
        .then(|| modules::place_for_heap(&program, &cli.heap_hook, &mut before_runtime));
    RunOptions {
        mode: driver_mode(mode).0,
        period: if mode == Mode::Ring { cli.records() } else { 0 },
        window: if matches!(mode, Mode::Ring | Mode::Burst) {
            cli.window
        } else {
            0
        },
        trigger: None,
        counters: false,
        signal: cli.signal,
        duration: cli.duration.map(std::time::Duration::from_secs_f64),
        spill_dir: cli.output.join(SPILL_DIR),
        program,
        argv: cli.argv(),
        no_aslr: cli.no_aslr,
        phases: cli.phases(),
        max_bytes: cli.max_size,
        of_windows: of_windows(cli),
        heap: heap_blocks.map(|blocks| (blocks, cli.heap_hook.clone())),
        before_runtime,
        heap_place,
        online: cli.online.clone().filter(|_| mode == Mode::Full),
    }
}

/// Refuses phases by loads where loads are not counted.
fn counts_loads(cli: &Cli, by_loads: bool) -> Result<(), Failure> {
    let asked = [
        ("--start-after", cli.start_after),
        ("--stop-after", cli.stop_after),
    ];
    let by = |amount: &Option<Amount>| matches!(amount, Some(Amount::Loads(_)));
    let timed = |amount: &Option<Amount>| matches!(amount, Some(Amount::Time(_)));
    if let Some((option, _)) = asked
        .iter()
        .find(|(_, amount)| cli.calibrate && timed(amount))
    {
        return Err(Failure::own(format!(
            "{option}: with --calibrate the program runs twice, at two speeds, so that a time selects different parts of the runs; mark the part by mgz_start() and mgz_stop(), or use --from-function"
        )));
    }
    match asked.iter().find(|(_, amount)| by(amount) && !by_loads) {
        Some((option, _)) => Err(Failure::own(format!(
            "{option}: loads are not counted here, since windows begin by CPU time; give a time (as in 2s), or record with --mode ring or full"
        ))),
        None => Ok(()),
    }
}

/// Refuses files that are instrumented only to count executions.
fn no_counts_only(instrumented: &[modules::Instrumented]) -> Result<(), Failure> {
    let counts = instrumented
        .iter()
        .find(|m| m.note.features & FEATURE_COUNTS != 0);
    counts.map_or(Ok(()), |counts| {
        Err(Failure::own(format!(
            "{}: made by `mgz-instrument --for count`, it counts loads and records no addresses; record it with --count, or run mgz-instrument without --for count",
            counts.path.display()
        )))
    })
}

/// Refuses files that cannot be recorded in this mode.
fn check_files(asked: Mode, instrumented: &[modules::Instrumented]) -> Result<(), Failure> {
    if asked != Mode::Count {
        no_counts_only(instrumented)?;
    }
    if asked == Mode::Burst && !backend::serves_burst(instrumented) {
        let not = instrumented
            .iter()
            .find(|m| m.note.features & FEATURE_TRANSLATED == 0);
        let path = not.map_or_else(String::new, |m| m.path.display().to_string());
        return Err(Failure::own(format!(
            "{path}: not instrumented for burst mode; run `mgz-instrument --for burst` on the original, or record with --mode ring"
        )));
    }
    if matches!(asked, Mode::Full | Mode::Ring | Mode::Count)
        && let Some(reader) = instrumented
            .iter()
            .find(|m| m.note.features & FEATURE_READS_CODE != 0)
    {
        return Err(Failure::own(format!(
            "{}: it reads its own code as data (a checksum, code that it copies, or /proc/self/mem), and would find the entry jumps there that full and ring write into it; record with --mode burst, which leaves the code as it is",
            reader.path.display()
        )));
    }
    if matches!(asked, Mode::Full | Mode::Ring | Mode::Count)
        && let Some(only) = instrumented
            .iter()
            .find(|m| m.note.features & FEATURE_BURST_ONLY != 0)
    {
        return Err(Failure::own(format!(
            "{}: it single-steps itself by the trap flag, checks the alignment of its accesses, has its system calls handed back to it, or has a runtime that walks stacks (Go, OCaml; see the message of mgz-instrument), so that it would notice its clones or they would fail; record with --mode burst, where such threads run the original",
            only.path.display()
        )));
    }
    Ok(())
}

/// Reason that the heap blocks of a program cannot be logged.
struct HeapImpossible {
    in_short: &'static str,
    /// The error for a user who asks for a log.
    error: String,
}

fn heap_impossible(
    program: &Path,
    instrumented: &[modules::Instrumented],
) -> Option<HeapImpossible> {
    if modules::is_static(program) {
        return Some(HeapImpossible {
            in_short: "static program",
            error: format!(
                "{}: --heap needs an executable with a dynamic loader, since it wraps the allocator by a preloaded library, and this one is static; link it dynamically, or record without --heap",
                program.display()
            ),
        });
    }
    let path = modules::own_allocator(program, instrumented)?;
    Some(HeapImpossible {
        in_short: "sanitizer",
        error: format!(
            "{path}: --heap wraps the allocator, and a sanitizer's runtime has its own allocator, which must come first; build the program without -fsanitize, or record without --heap"
        ),
    })
}

/// Reason that no heap blocks are logged, in a few words. Only `--heap=budget` accepts one.
fn heap_off(
    cli: &Cli,
    mode: Mode,
    program: &Path,
    impossible: Option<&HeapImpossible>,
) -> Result<Option<&'static str>, Failure> {
    let Some(blocks) = cli.heap else {
        return Ok(None);
    };
    let by_budget = blocks == HeapBlocks::Budget;
    if by_budget && matches!(mode, Mode::Count | Mode::Off) {
        return Ok(Some("loads are only counted"));
    }
    match impossible {
        Some(why) if by_budget => return Ok(Some(why.in_short)),
        Some(why) => return Err(Failure::own(why.error.clone())),
        None => {}
    }
    match cli
        .heap_hook
        .iter()
        .find_map(|hook| heap::hooks::refusal(program, hook))
    {
        Some(refusal) => Err(Failure::own(refusal)),
        None => Ok(None),
    }
}

/// The trigger of windows, with the reason; for `burst` alone.
fn trigger_of(cli: &Cli, mode: Mode) -> Result<Option<trigger::Chosen>, Failure> {
    if mode == Mode::Burst {
        return trigger::choose_here(&cli.triggers(), cli.signal)
            .map(Some)
            .map_err(Failure::own);
    }
    Ok(None)
}

/// (In JSON the manifest says it.)
fn say_if_slower(cli: &Cli, chosen: Option<&trigger::Chosen>) {
    if let (Some(slower), OutputFormat::Text) = (chosen.and_then(|c| c.slower.as_ref()), cli.format)
    {
        tell!("mgz-record: windows begin {slower}");
    }
}

fn with_trigger(manifest: Manifest, chosen: trigger::Chosen) -> Manifest {
    let trigger::Chosen {
        trigger,
        why,
        slower,
        toll,
    } = chosen;
    let by_loads = trigger.by_loads();
    let (event, description) = match by_loads.then(|| trigger.source()) {
        Some((event, description)) => (Some(event), description),
        None => (manifest.trigger_event, manifest.trigger),
    };
    Manifest {
        rate: trigger.rate(),
        overhead: trigger.budget.map_or(0.0, |b| b.percent()),
        trigger_ns: toll,
        period: if by_loads { trigger.period } else { 0 },
        trigger: description,
        trigger_event: event,
        trigger_why: slower
            .into_iter()
            .fold(why, |why, slower| format!("{why}; {slower}")),
        ..manifest
    }
}

/// Records a process that runs already.
fn attach(request: AttachRequest) -> Result<i32, Failure> {
    let AttachRequest { cli, pid } = request;
    let chosen = trigger::choose_here(&cli.triggers(), cli.signal).map_err(Failure::own)?;
    request.settle(chosen.trigger.by_loads())?;
    counts_loads(cli, chosen.trigger.by_loads())?;
    say_if_slower(cli, Some(&chosen));
    let candidate = Candidate::new(pid).map_err(Failure::own)?;
    let options = RunOptions {
        mode: soft::run_options::Mode::Burst,
        period: 0,
        window: cli.window,
        trigger: Some(chosen.trigger),
        signal: cli.signal,
        duration: cli.duration.map(std::time::Duration::from_secs_f64),
        spill_dir: cli.output.join(SPILL_DIR),
        program: PathBuf::new(),
        argv: Vec::new(),
        no_aslr: false,
        phases: cli.phases(),
        max_bytes: cli.max_size,
        of_windows: of_windows(cli),
        heap: None,
        before_runtime: Vec::new(),
        heap_place: None,
        online: None,
        counters: false,
    };
    let why = format!("attached to process {pid}, which ran already");
    let manifest = Manifest {
        backend_why: why,
        ..dir::begin_manifest(candidate.command(), TraceMode::Burst, 0, options.window)
    };
    let manifest = with_trigger(manifest, chosen);
    let instrumented = candidate.instrumented.clone();
    into_trace(cli, manifest, &instrumented, None, |on_event| {
        soft::run::run_attached(&options, candidate, on_event)
    })
}

/// Makes the folder, records into it and completes it; returns the exit status to pass on.
fn into_trace(
    cli: &Cli,
    manifest: Manifest,
    instrumented: &[modules::Instrumented],
    subject: Option<&Started>,
    run: impl FnOnce(&mut dyn FnMut(&RunEvent)) -> Result<RunOutcome, DriverError>,
) -> Result<i32, Failure> {
    let folder = Folder::create(&cli.output, cli.force)?;
    let _lock = folder.lock().map_err(Failure::own)?;
    let mut session = Recording::new(folder, manifest);
    if matches!(
        session.manifest.mode,
        TraceMode::Full | TraceMode::Ring | TraceMode::Count
    ) {
        session.watch.sample_time();
    }
    let ticker = Ticker::new(cli.progress);
    for module in subject.iter().flat_map(|s| &s.beside) {
        // (A missing sidecar is reported when it is needed.)
        let id = hex(&module.note.sidecar_id);
        let _ = session.folder.add_sidecar(&module.sidecar, &id);
    }
    let started = session
        .start(instrumented)
        .and_then(|()| match &cli.online {
            Some(online) => run_beside(online, &mut session, &ticker, run),
            None => Ok((run(&mut |event| session.event(event, &ticker))?, None)),
        });
    drop(ticker);
    let (outcome, carried) = match started {
        Ok(done) => done,
        Err(failure) => {
            session.folder.remove();
            return Err(failure);
        }
    };
    if let Some(failure) = subject.and_then(|s| session.nothing_ran(s, &outcome)) {
        session.folder.remove();
        return Err(failure);
    }
    session.ended(&outcome);
    if outcome.ended_early {
        session.manifest.program_status = ProgramStatus::EndedBy("--exit-after".into());
    }
    let objects = session.objects_to_write(outcome.heap.as_ref(), &outcome.outside);
    let convert = |session: &mut Recording| {
        session.cover();
        if session.manifest.mode == TraceMode::Count {
            session.count(&outcome.counts);
        } else {
            session.convert(cli, outcome.window_log.as_ref(), carried);
        }
    };
    if let Err(problem) = beside(|| objects.write(), || convert(&mut session)) {
        session.problem(problem);
    }
    let nothing = no_samples::why(&session.manifest, &cli.output, cli);
    session.manifest.no_samples = nothing.unwrap_or_default();
    let written = session.finish();
    report(
        &session.manifest,
        cli.shown_output(),
        cli.format,
        cli.for_run,
    );
    if let Err(error) = written {
        tell!(
            "mgz-record: {}: the manifest could not be written: {error}; free space there and run `mgz-record --recover {}`",
            cli.shown_output().display(),
            cli.shown_output().display()
        );
    }
    Ok(if outcome.ended_early {
        0
    } else {
        outcome.status.exit_status()
    })
}

/// Runs `other` in a thread beside `main`, or behind it if the system has no more threads.
fn beside<T: Send>(other: impl Fn() -> T + Sync, main: impl FnOnce()) -> T {
    std::thread::scope(|scope| {
        let begun = std::thread::Builder::new().spawn_scoped(scope, &other);
        main();
        match begun {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(_) => other(),
        }
    })
}

/// Runs the program with an analysis beside it, which takes all possible rows while the program
/// runs.
fn run_beside(
    online: &Online,
    session: &mut Recording,
    ticker: &Ticker,
    run: impl FnOnce(&mut dyn FnMut(&RunEvent)) -> Result<RunOutcome, DriverError>,
) -> Result<(RunOutcome, Option<Carried>), Failure> {
    struct Close<'a>(&'a Online);
    impl Drop for Close<'_> {
        fn drop(&mut self) {
            self.0.close();
        }
    }
    let trace = session.folder.path().to_owned();
    let (outcome, carried) = std::thread::scope(|scope| {
        let taking = scope.spawn(|| online.run(&trace));
        // The queue is closed on every path. Otherwise the scope would wait for ever.
        let end = Close(online);
        let outcome = run(&mut |event| {
            session.event(event, ticker);
            if matches!(event, RunEvent::Module(_)) {
                online.know(&session.manifest.modules);
            }
        });
        drop(end);
        (outcome, taking.join())
    });
    let carried = match carried {
        Ok(Ok(carried)) => carried,
        Ok(Err(why)) => {
            session.problem(format!("records could not be given to the analysis: {why}"));
            None
        }
        Err(_) => {
            session.problem("giving records to the analysis failed: it panicked".into());
            None
        }
    };
    Ok((outcome?, carried))
}

/// Converts the files that a recording has left behind.
pub fn recover(cli: &Cli, trace: &Path) -> Result<i32, Failure> {
    let mut m = dir::read_manifest(trace).map_err(|e| Failure::own(format!("{e:#}")))?;
    let folder = Folder::existing(trace);
    let _lock = folder.lock().map_err(Failure::own)?;
    if m.data != RowsIn::Spill {
        return Err(Failure::own(format!(
            "{}: nothing to recover: its columns are complete ({} rows)",
            trace.display(),
            m.totals.rows
        )));
    }
    if m.state == TraceState::Running {
        m.state = TraceState::Interrupted;
        m.problems.push("the recorder was killed while the program ran; what it had not written by then is missing".into());
    }
    let mut session = Recording::new(folder, m);
    session.manifest.forget_not_converted();
    recount(&mut session.manifest, &trace.join(SPILL_DIR))
        .map_err(|e| Failure::own(format!("{}: {e}", trace.join(SPILL_DIR).display())))?;
    let options = convert::ConvertOptions {
        compression: cli.compress,
        max_bytes: cli.max_size,
        ..convert::ConvertOptions::default()
    };
    session.expand(&options, None, None);
    if session.manifest.data != RowsIn::Samples {
        let why = session
            .manifest
            .problems
            .last()
            .cloned()
            .unwrap_or_default();
        return Err(Failure::own(format!("{}: {why}", trace.display())));
    }
    if session.manifest.state == TraceState::Partial && session.manifest.problems.is_empty() {
        session.manifest.state = TraceState::Complete;
    }
    session
        .finish()
        .map_err(|e| Failure::own(format!("{}: {e}", trace.display())))?;
    report(&session.manifest, trace, cli.format, cli.for_run);
    Ok(0)
}

/// Counts kept records anew from the spill files, where the manifest of a killed recorder has none.
fn recount(m: &mut Manifest, spill: &Path) -> std::io::Result<()> {
    if !m.threads.is_empty() {
        return Ok(());
    }
    let mut threads: std::collections::BTreeMap<ThreadKey, Thread> =
        std::collections::BTreeMap::new();
    for (key, path) in mgz_annotations_schema::spill::list(spill)? {
        // A file that cannot be read is reported by the conversion.
        let Ok(file) = mgz_annotations_schema::spill::SpillFile::open(&path) else {
            continue;
        };
        let thread = threads.entry(key).or_insert(Thread {
            process: key.process,
            thread: key.thread,
            ..Thread::default()
        });
        let ends = file
            .segments()
            .iter()
            .map(|s| s.header.first_slot + s.header.written());
        thread.records_executed += ends.max().unwrap_or(0);
        thread.records_kept += file
            .segments()
            .iter()
            .map(|s| s.header.written())
            .sum::<u64>();
    }
    m.threads = threads.into_values().collect();
    m.totals.records_executed = m.threads.iter().map(|t| t.records_executed).sum();
    m.totals.records_kept = m.threads.iter().map(|t| t.records_kept).sum();
    Ok(())
}
