//! `--hot`: the functions in which a program spends its time, and matching options for
//! `mgz-instrument`.
//!
//! A time profile by the kernel's software clock, which every machine has (no PMU is needed), of
//! user code only, with all threads and child processes. Any program can be profiled, also one that
//! is not instrumented or has no symbols. Functions are named as `mgz-instrument --functions` knows
//! them: by symbol, or `fn_ADDRESS` where there is none. Generated code has the names that its
//! compiler tells ([`mgz_generated_code`]).

pub(crate) mod report;

use crate::options::args::{Cli, OutputFormat};
use crate::program::path_search;
use crate::target::signals::Signals;
use crate::util::clock::monotonic_ns;
use crate::util::failure::Failure;
use mgz_generated_code::watch::GeneratedCodeWatch;
use mgz_perf::clock_sampler::Sampler;
use mgz_perf::proc_maps;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;
use std::time::{Duration, Instant};

/// Time between two reads of the rings. Source: Chosen.
const READ_INTERVAL: Duration = Duration::from_millis(50);
/// Time between two looks at the mappings of processes with generated code. Source: Chosen.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// Runs the program under the clock; returns its exit status.
pub fn run_under_clock(cli: &Cli) -> Result<i32, Failure> {
    let own = |message: String| Failure {
        status: 125,
        message,
    };
    let name = cli
        .program
        .first()
        .ok_or_else(|| own("no program is given; see `mgz-record --help`".into()))?;
    let program = path_search::resolve(name, std::env::var_os("PATH").as_deref())?;
    let mut sampler =
        Sampler::open(mgz_perf::clock_sampler::PERIOD_NS).map_err(|e| own(e.to_string()))?;
    let mut generated_code = Looks::default();
    let signals = Signals::install().map_err(|e| own(format!("setting up signals: {e}")))?;
    let inherited = signals.inherited();
    let mut command = Command::new(&program);
    command.arg0(name).args(&cli.program[1..]);
    // SAFETY: `restore` makes system calls only.
    unsafe { command.pre_exec(move || inherited.restore()) };
    let began = Instant::now();
    let started = command.spawn();
    let mut child = started.map_err(|e| Failure {
        status: 126,
        message: format!("{}: cannot be executed: {e}", program.display()),
    })?;
    let status = loop {
        if let Some(status) = child
            .try_wait()
            .map_err(|e| own(format!("waiting for the program: {e}")))?
        {
            break status;
        }
        for signal in signals.to_forward() {
            // SAFETY: our own child, not yet waited for.
            unsafe { libc::kill(child.id() as libc::pid_t, signal) };
        }
        sampler.drain();
        generated_code.tick(&sampler);
        // The first reads come sooner, so that a short program is not delayed.
        std::thread::sleep(READ_INTERVAL.min(began.elapsed() / 8 + Duration::from_millis(1)));
    };
    let wall = began.elapsed();
    let names = generated_code.watch.finish();
    let profile = report::Profile::new(sampler.finish(), &names, &program);
    let text = match cli.format {
        OutputFormat::Text => profile.text(&program, wall),
        OutputFormat::Json => profile.json(&program, wall),
    };
    use std::io::Write;
    // The program may have closed the standard error that we share with it.
    let _ = std::io::stderr().write_all(text.as_bytes());
    Ok(status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(libc::SIGKILL)))
}

/// Time and number of processes of the last look at processes with generated code.
#[derive(Default)]
struct Looks {
    watch: GeneratedCodeWatch,
    seen: usize,
    last: Option<Instant>,
}

impl Looks {
    /// Looks at all processes if one is new, or some time has passed.
    fn tick(&mut self, sampler: &Sampler) {
        let processes = sampler.unnamed_processes();
        let is_due = (self.last).is_none_or(|last| last.elapsed() >= LOOK_INTERVAL);
        if processes.len() == self.seen && !is_due {
            return;
        }
        (self.seen, self.last) = (processes.len(), Some(Instant::now()));
        for &process in processes {
            // The mappings of a process that has ended cannot be read.
            if let Ok(maps) = proc_maps::read_process_maps(process) {
                self.watch.look(process, &maps, monotonic_ns());
            }
        }
    }
}
