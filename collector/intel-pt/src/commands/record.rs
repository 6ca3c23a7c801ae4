//! `mgz-record --backend pt`: capture, then import.
//!
//! The capture is a perf.data file beside the trace folder, which is deleted when the trace is
//! made. If that fails, or if the recorder is killed, the file stays, and `mgz-record --import`
//! makes the trace of it.

use crate::import;
use crate::pt::capture::Stopped;
use crate::pt::filter;
use crate::pt::plan::{Machine, Request};
use crate::pt::run::{Ended, Job, RunError, capture_path, run};
use crate::settings;
use mgz_annotations_schema::TraceMode;
use mgz_annotations_schema::manifest::Manifest;
use mgz_annotations_schema::tell;
use mgz_collector::commands::intel_pt::PtRun;
use mgz_collector::machine::backend::Choice;
use mgz_collector::trace::dir::Folder;
use mgz_collector::util::failure::Failure;
use mgz_perf::kernel_linux::Linux;

impl From<RunError> for Failure {
    fn from(error: RunError) -> Failure {
        Failure {
            status: error.exit_status(),
            message: error.to_string(),
        }
    }
}

fn own(message: impl std::fmt::Display) -> Failure {
    Failure {
        status: 125,
        message: message.to_string(),
    }
}

/// Records a program; returns the exit status to pass on.
pub fn record_with_pt(asked: PtRun<'_>) -> Result<i32, Failure> {
    let PtRun {
        cli,
        windows,
        program,
        modules,
        choice,
        probe,
    } = asked;
    Folder::check(&cli.output, cli.force)?;
    let mut kernel = Linux::default();
    let machine =
        Machine::read(&kernel).map_err(|e| own(format!("looking at the machine: {e}")))?;
    let filters = machine.pt.as_ref().map_or(0, |pt| pt.address_filters);
    let mut notes = Vec::new();
    let filter = match &cli.functions {
        None => String::new(),
        Some(pattern) => {
            let (filter, beside) = filter::for_functions(pattern, modules, filters).map_err(own)?;
            if beside > 0 {
                notes.push(format!("the processor has {filters} address filters, so that {beside} bytes of other functions' code are recorded too"));
            }
            filter
        }
    };
    let file = capture_path(&cli.output);
    if file.exists() && !cli.force {
        return Err(own(format!(
            "{}: there is a capture of an earlier recording; make a trace of it (`mgz-record --import`) or remove it, or use --force",
            file.display()
        )));
    }
    let settings = cli.pt.unwrap_or_default();
    let job = Job {
        program,
        argv: cli.argv(),
        no_aslr: cli.no_aslr,
        request: Request {
            stacks: !cli.no_stacks,
            ..settings::request(&settings, windows, filter)
        },
        file: file.clone(),
        limit: cli.max_size,
        unlimited: probe.rights.ipc_lock || probe.kernel.paranoid.is_some_and(|level| level < 0),
    };
    let ended = run(&mut kernel, &machine, &job)?;
    notes.extend(sentences(&ended, &file.display().to_string()));
    let made = import::run_with(cli, &file, &mut |manifest| {
        enter(manifest, &ended, choice, &notes, cli.window)
    });
    match made {
        Ok(_) if settings.keep => tell!("mgz-record: the capture is {}", file.display()),
        Ok(_) => {
            let _ = std::fs::remove_file(&file);
        }
        Err(failure) => {
            for note in &notes {
                tell!("mgz-record: {note}");
            }
            tell!(
                "mgz-record: no trace was made: {}; the capture stays in {}",
                failure.message,
                file.display()
            );
        }
    }
    Ok(ended.status.exit_status())
}

/// Sentences for the user about the capture. Losses are not among them: the import reports them
/// from the file itself.
fn sentences(ended: &Ended, file: &str) -> Vec<String> {
    let mut list = ended.finished.notes.clone();
    match &ended.finished.stopped {
        Some(Stopped::Full) => {
            list.push("the capture reached --max-size; the program ran on unrecorded".into())
        }
        Some(Stopped::Failed(error)) => {
            list.push(format!("{file}: {error}; the program ran on unrecorded"))
        }
        None => {}
    }
    if ended.outlived {
        list.push(
            "processes outlived the program; what they did after its end is not recorded".into(),
        );
    }
    if ended.finished.tally.malformed > 0 {
        list.push(format!(
            "{} bytes in the kernel's rings were no records",
            ended.finished.tally.malformed
        ));
    }
    list
}

/// Adds facts to the manifest that only the recorder knows.
fn enter(manifest: &mut Manifest, ended: &Ended, choice: &Choice, notes: &[String], window: u64) {
    let fresh = mgz_collector::trace::dir::begin_manifest(
        manifest.command.clone(),
        TraceMode::default(),
        0,
        0,
    );
    (manifest.host, manifest.cpu) = (fresh.host, fresh.cpu);
    manifest.backend_why.clone_from(&choice.why);
    manifest.program_status = ended.status.clone();
    manifest.wall_seconds = ended.wall.as_secs_f64();
    if manifest.mode == TraceMode::Samples {
        manifest.window = window;
    }
    // Sentences on the recorder's changes to the request come first.
    let known = std::mem::take(&mut manifest.problems);
    manifest.problems = notes.to_vec();
    let others = known.into_iter().filter(|problem| !notes.contains(problem));
    manifest.problems.extend(others);
}
