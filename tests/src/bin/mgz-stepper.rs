//! Runs a program one instruction at a time and writes the loads of the watched code to a file.
//!
//! `mgz-stepper WATCH EVENTS PROGRAM [--from-start] [--fixed] -- COMMAND…`

use anyhow::{Context, Result, bail};
use mgz_tests::events::WatchedCode;
use mgz_tests::stepper::{Stepper, StepperOptions};
use std::io::BufWriter;

/// Keeps tracer and tracee on one CPU. Each step takes two switches between them, and a switch that
/// wakes another CPU costs many times as much as one on the same CPU.
fn stay_on_one_cpu() {
    // SAFETY: the set is a plain bit array that the calls read or write within its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) != 0 {
            return;
        }
        let allowed: Vec<usize> = (0..libc::CPU_SETSIZE as usize)
            .filter(|&cpu| libc::CPU_ISSET(cpu, &set))
            .collect();
        if allowed.is_empty() {
            return;
        }
        libc::CPU_ZERO(&mut set);
        libc::CPU_SET(
            allowed[std::process::id() as usize % allowed.len()],
            &mut set,
        );
        // Without it everything works, but more slowly.
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

fn main() -> Result<()> {
    stay_on_one_cpu();
    let all: Vec<String> = std::env::args().skip(1).collect();
    let split = all
        .iter()
        .position(|a| a == "--")
        .context("no -- before the command")?;
    let (ours, command) = (&all[..split], all[split + 1..].to_vec());
    let [watch, events, program, flags @ ..] = ours else {
        bail!("usage: mgz-stepper WATCH EVENTS PROGRAM [--from-start] [--fixed] -- COMMAND…")
    };
    let text = std::fs::read_to_string(watch).with_context(|| watch.clone())?;
    let options = StepperOptions {
        command,
        program: program.into(),
        watches: WatchedCode::parse(&text)?,
        fixed_layout: flags.iter().any(|f| f == "--fixed"),
        from_start: flags.iter().any(|f| f == "--from-start"),
        max_steps: 60_000_000,
    };
    let out = BufWriter::new(std::fs::File::create(events).with_context(|| events.clone())?);
    let outcome = Stepper::new(options, out)?.run()?;
    eprintln!(
        "mgz-stepper: status {} steps {} loads {}",
        outcome.status, outcome.steps, outcome.loads
    );
    let code = if libc::WIFEXITED(outcome.status) {
        libc::WEXITSTATUS(outcome.status)
    } else {
        128 + libc::WTERMSIG(outcome.status)
    };
    std::process::exit(code);
}
