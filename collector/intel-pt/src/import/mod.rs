//! `mgz-record --import perf.data`: a recording made with perf becomes a trace folder: Intel PT,
//! memory samples of the processor, or both.
//!
//! One fact makes this hard: a `ptwrite` contains only a run-time address and a number. Its record
//! is found by the mappings of the program's files. The known gaps between records decide which of
//! them may be joined.
//!
//! * [`modules`]: address to record, by mappings and sidecars.
//! * [`resolve`]: `ptwrite`s to slots, cut into slices of one thread.
//! * [`parts`]: records that several `ptwrite`s write.
//! * [`threads`]: slices to spill files, one for each thread, in the order in which it ran.
//! * [`paths`]: call chains of samples, for the stretches that end in them.
//! * [`measured`]: memory samples of the processor.
//! * [`account`]: kept and lost data, for the manifest.
//!
//! The spill files are those of the software backend, so that expansion, columns and analysis are
//! the same. Slices of one thread that directly follow each other form one sample; where records
//! may be missing, the next sample begins.

pub mod account;
pub mod dump;
pub mod measured;
pub mod modules;
pub mod parts;
pub mod paths;
pub mod resolve;
pub mod threads;

use crate::import::dump::{Input, WITHOUT_PTW};
use measured::generated::GeneratedNames;
use mgz_annotations_schema::manifest::{
    MEASURED, Manifest, Measured, Module, ModuleLoad, SPILL_DIR, Thread,
};
use mgz_annotations_schema::spill::ThreadKey;
use mgz_collector::options::args::Cli;
use mgz_collector::soft::window_log::WindowLog;
use mgz_collector::trace::dir::Folder;
use mgz_collector::trace::recording::Recording;
use mgz_collector::trace::{coverage, dir};
use mgz_collector::util::failure::Failure;
use mgz_perf_data::events::Totals;
use mgz_perf_data::{PerfDataError, Session, events};
use modules::Modules;
use parts::RecordJoiner;
use resolve::Slices;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use threads::{Kept, Spilled, Stretch, Threads};

/// Result of an import from PT data.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Counts of the PT data.
    pub totals: Totals,
    /// `ptwrite`s without an address.
    pub without_ip: u64,
    /// `ptwrite`s at addresses that are in no sidecar.
    pub unresolved: u64,
    /// `ptwrite`s of files that two sidecars fit equally well.
    pub doubtful: u64,
    /// Records that lacked one of several `ptwrite`s.
    pub torn_records: u64,
    /// Kept records by thread.
    pub threads: BTreeMap<ThreadKey, Kept>,
    /// Stretches of records that threads have written without a gap.
    pub stretches: Vec<Stretch>,
    /// Mappings with records: process id and number of the mapping.
    pub met: BTreeSet<(u32, usize)>,
    /// Bytes of the spill files.
    pub spill_bytes: u64,
}

fn failure(message: impl std::fmt::Display) -> Failure {
    Failure {
        status: 125,
        message: message.to_string(),
    }
}

/// Imports a file into the folder `cli.output`. Returns the exit status.
pub fn run(cli: &Cli, file: &Path) -> Result<i32, Failure> {
    run_with(cli, file, &mut |_| {})
}

/// As [`run`]; `amend` adds the caller's facts to the manifest.
pub fn run_with(
    cli: &Cli,
    file: &Path,
    amend: &mut dyn FnMut(&mut Manifest),
) -> Result<i32, Failure> {
    let shown = file.display();
    let in_file = |error: PerfDataError| failure(format!("{shown}: {error}"));
    Folder::check(&cli.output, cli.force)?;
    let input = Input::open(file).map_err(in_file)?;
    let session = Session::read_to_import(&input.files()).map_err(in_file)?;
    let mut without_pt = None;
    let modules = match find_modules(&session, cli) {
        Ok(modules) => modules,
        Err(why) if session.memory.list.is_empty() => {
            return Err(failure(format!("{shown}: {why}")));
        }
        // The memory samples are imported nevertheless.
        Err(why) => {
            without_pt = session
                .holds_pt()
                .then(|| format!("the PT data was left out: {why}"));
            Modules::none()
        }
    };
    let folder = Folder::create(&cli.output, cli.force)?;
    let _lock = folder.lock().map_err(failure)?;
    let mut trace = Recording::new(folder, account::begin_import(&session));
    let done = spill(&session, &modules, &cli.output.join(SPILL_DIR)).and_then(|outcome| {
        enter_modules(&mut trace, &session, &modules, &outcome.met)?;
        let generated = GeneratedNames::read(&session, file);
        trace.manifest.measured = enter_measured(&session, &modules, &generated, &cli.output)?;
        Ok((outcome, generated))
    });
    let (outcome, generated) = match done {
        Ok(done) => done,
        Err(failure) => {
            trace.folder.remove();
            return Err(failure);
        }
    };
    account::enter(&mut trace.manifest, &session, &outcome, generated);
    trace.manifest.problems.extend(without_pt);
    if outcome.doubtful > 0 {
        let doubt = modules.doubt(session.spaces.mappings());
        trace.manifest.problems.extend(doubt);
    }
    if session.holds_pt() {
        let mappings = session.spaces.mappings().iter();
        trace.manifest.coverage = coverage::of_mappings(
            &trace.manifest,
            mappings.map(|m| (m.path.as_str(), m.end - m.start)),
        );
    }
    amend(&mut trace.manifest);
    let executed = account::executed(&session);
    let paths = (!cli.no_stacks && !cli.keep_spill)
        .then(|| paths::of_stretches(&session, &modules, &outcome.stretches))
        .flatten();
    // The file's pages are no longer needed.
    drop(session);
    drop(input);
    trace.folder.write(&trace.manifest).map_err(|e| {
        failure(format!(
            "{}: the manifest cannot be written: {e}",
            cli.output.display()
        ))
    })?;
    let log = paths.map(|paths| WindowLog {
        paths: Some(paths),
        ..WindowLog::default()
    });
    trace.convert(cli, log.as_ref(), None);
    account::settle(&mut trace.manifest, executed);
    let written = trace.finish();
    mgz_collector::trace::recording::report(&trace.manifest, &cli.output, cli.format, false);
    written.map_err(|e| {
        failure(format!(
            "{}: the manifest could not be written: {e}",
            cli.output.display()
        ))
    })?;
    Ok(0)
}

/// The sidecars of a recording with `ptwrite`s, and none of a recording without. An error is a
/// sentence for the user.
fn find_modules(session: &Session<'_>, cli: &Cli) -> Result<Modules, String> {
    if session.ptwrites_on == Some(false) {
        return Err(WITHOUT_PTW.to_owned());
    }
    match session.holds_pt() {
        true => Modules::find(session, &cli.annotations).map_err(|e| e.to_string()),
        false => Ok(Modules::none()),
    }
}

/// Writes the memory samples.
fn enter_measured(
    session: &Session<'_>,
    modules: &Modules,
    generated: &GeneratedNames,
    folder: &Path,
) -> Result<Option<Measured>, Failure> {
    let path = folder.join(MEASURED);
    measured::write(session, modules, generated, folder)
        .map_err(|e| failure(format!("{}: cannot be written: {e:#}", path.display())))
}

/// Decodes all PT data into spill files in `dir`.
pub fn spill(session: &Session<'_>, modules: &Modules, dir: &Path) -> Result<Outcome, Failure> {
    let mut order: Vec<usize> = (0..session.windows.len()).collect();
    if session.windows.iter().all(|w| w.identity.time.is_some()) {
        // The sort is stable: windows of one stream with equal times keep their order.
        order.sort_by_key(|&n| session.windows[n].identity.time);
    }
    let mut threads = Threads::new(dir.to_owned(), session.is_full());
    let mut parts: HashMap<ThreadKey, RecordJoiner> = HashMap::new();
    let has_parts = modules.has_parts();
    let mut outcome = Outcome::default();
    let work =
        |events: Vec<events::PtwriteEvent>| resolve::slices(&session.spaces, modules, &events);
    let totals = events::for_each_unit(session, &order, &work, &mut |unit| {
        threads.begin_unit(unit.stream, unit.continues);
        let Slices {
            list,
            without_ip,
            unresolved,
            doubtful,
            lost_after,
        } = unit.data;
        outcome.without_ip += without_ip;
        outcome.unresolved += unresolved;
        outcome.doubtful += doubtful;
        for slice in list {
            outcome
                .met
                .extend(slice.mappings.iter().map(|&mapping| (slice.pid, mapping)));
            if has_parts {
                let key = ThreadKey {
                    process: slice.pid,
                    thread: slice.tid,
                };
                let met = outcome.met.range((slice.pid, 0)..=(slice.pid, usize::MAX));
                let used = modules.used(met.map(|&(_, mapping)| mapping));
                let ptwrites = |id| {
                    modules.slots(id, &used).map_or(1, |slots| {
                        mgz_annotations_schema::sidecar::ptwrites(slots) as usize
                    })
                };
                for joined in parts.entry(key).or_default().join(ptwrites, slice) {
                    threads.push(unit.stream, &joined)?;
                }
            } else {
                threads.push(unit.stream, &slice)?;
            }
        }
        if unit.lost_after || lost_after {
            threads.lose(unit.stream);
        }
        Ok(())
    });
    outcome.totals = totals.map_err(|e| failure(format!("{}: {e}", dir.display())))?;
    modules.check(&outcome.met).map_err(failure)?;
    for part in parts.values_mut() {
        part.tear();
        outcome.torn_records += part.torn;
    }
    Spilled {
        threads: outcome.threads,
        stretches: outcome.stretches,
        bytes: outcome.spill_bytes,
    } = threads
        .finish()
        .map_err(|e| failure(format!("{}: {e}", dir.display())))?;
    Ok(outcome)
}

/// Copies the used sidecars, and adds the modules with records to the manifest.
fn enter_modules(
    trace: &mut Recording,
    session: &Session<'_>,
    modules: &Modules,
    met: &BTreeSet<(u32, usize)>,
) -> Result<(), Failure> {
    for &(process, number) in met {
        let Some((placed, mapping)) = modules
            .placed(number)
            .zip(session.spaces.mappings().get(number))
        else {
            continue;
        };
        let Some(sidecar) = modules.sidecar(placed.sidecar) else {
            continue;
        };
        let copied = trace.folder.add_sidecar(&sidecar.path, &sidecar.id_hex);
        let relative = copied.map_err(|e| {
            failure(format!(
                "{}: cannot be copied into {}: {e}",
                sidecar.path.display(),
                trace.folder.path().display()
            ))
        })?;
        let module = Module {
            path: mapping.path.clone(),
            build_id: sidecar.build_id.clone(),
            bias: placed.bias,
            sidecar: relative,
            sidecar_id: sidecar.id_hex.clone(),
            loads: Vec::new(),
            not_instrumented: sidecar.not_instrumented,
        };
        let load = ModuleLoad {
            process,
            begin_ns: session.spaces.appeared(number).unwrap_or(0),
        };
        dir::add_module(&mut trace.manifest, module, load);
    }
    Ok(())
}

/// The threads of the manifest.
fn threads_of(outcome: &Outcome) -> Vec<Thread> {
    let entry = |(key, kept): (&ThreadKey, &Kept)| Thread {
        process: key.process,
        thread: key.thread,
        name: String::new(),
        records_executed: 0,
        records_kept: kept.slots,
        rows: 0,
        samples: kept.stretches,
    };
    outcome.threads.iter().map(entry).collect()
}
