//! `mgz-record`: see `mgz-record --help`.

use mgz_annotations_schema::tell;
use mgz_collector::commands::intel_pt::{IntelPt, absent};
use mgz_collector::commands::{analyze, enter, hot, probe, record};
use mgz_collector::machine::identity;
use mgz_collector::options::args;
use mgz_collector::options::args::Cli;
use mgz_collector::options::launcher;
use mgz_collector::options::ranks;
use mgz_collector::options::request::Request;
use mgz_collector::program::modules;
use mgz_collector::util::failure::Failure;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;

/// The commands of Intel PT, unless the build lacks them.
#[cfg(feature = "intel-pt")]
const INTEL_PT: Option<IntelPt> = Some(mgz_intel_pt::INTEL_PT);
#[cfg(not(feature = "intel-pt"))]
const INTEL_PT: Option<IntelPt> = None;

fn main() {
    std::process::exit(run());
}

fn run() -> i32 {
    let mut cli = match Cli::read(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            // By the convention of `env` and `timeout`; statuses below belong to the program.
            return if error.use_stderr() { 125 } else { 0 };
        }
    };
    match enter::enter_container(&mut cli) {
        Ok(None) => {}
        Ok(Some(status)) => return status,
        Err(failure) => return tell(&failure),
    }
    if !cli.program.is_empty() {
        if let Some(launcher) = launcher_of_recorders(&cli) {
            return execute(&launcher);
        }
        match ranks::settle_rank(&mut cli, &identity::host()) {
            Ok(true) => {}
            Ok(false) => return execute(&cli.program),
            Err(failure) => return tell(&failure),
        }
    }
    let done = Request::new(&cli).and_then(|request| match request {
        Request::Completions(shell) => {
            args::completions(shell, &mut std::io::stdout());
            Ok(0)
        }
        Request::Man => {
            // A reader that has gone is no failure.
            let _ = args::man(&mut std::io::stdout());
            Ok(0)
        }
        Request::Probe => probe::probe(&cli, INTEL_PT),
        Request::Import(file) => match INTEL_PT {
            Some(pt) => (pt.import)(&cli, file),
            None => Err(absent("--import")),
        },
        Request::Recover(trace) => record::recover(&cli, trace),
        Request::Hot => hot::run_under_clock(&cli),
        Request::Record(_) if cli.analyze.is_some() => analyze::record_and_analyze(&cli, INTEL_PT),
        Request::Record(request) => record::record_program(request, INTEL_PT),
    });
    done.unwrap_or_else(|failure| tell(&failure))
}

/// The command line of a launcher of ranks, if the program is one, that starts a recorder for each.
fn launcher_of_recorders(cli: &Cli) -> Option<Vec<OsString>> {
    let own = std::env::current_exe().ok()?;
    let line: Vec<OsString> = std::env::args_os().collect();
    launcher::with_recorders(own.as_os_str(), &line, cli, modules::is_recorded)
}

fn tell(failure: &Failure) -> i32 {
    tell!("mgz-record: {}", failure.message);
    failure.status
}

/// Becomes the program, which is not to be recorded. Returns only if that fails.
fn execute(program: &[OsString]) -> i32 {
    let error = std::process::Command::new(&program[0])
        .args(&program[1..])
        .exec();
    let missing = error.kind() == std::io::ErrorKind::NotFound;
    tell(&Failure {
        status: if missing { 127 } else { 126 },
        ..Failure::own(format!(
            "{}: cannot be executed: {error}",
            program[0].display()
        ))
    })
}
