//! Runs a program one instruction at a time and writes the loads of the code under watch to a file.
//!
//! `mgz-stepper WATCH EVENTS PROGRAM [--from-start] [--fixed] -- COMMAND…`

use anyhow::{Context, Result, bail};
use mgz_tests::events::Watch;
use mgz_tests::stepper::{Options, Stepper};
use std::io::BufWriter;

fn main() -> Result<()> {
    let all: Vec<String> = std::env::args().skip(1).collect();
    let split = all.iter().position(|a| a == "--").context("no -- before the command")?;
    let (ours, command) = (&all[..split], all[split + 1..].to_vec());
    let [watch, events, program, flags @ ..] = ours else { bail!("usage: mgz-stepper WATCH EVENTS PROGRAM [--from-start] [--fixed] -- COMMAND…") };
    let text = std::fs::read_to_string(watch).with_context(|| watch.clone())?;
    let options = Options {
        command,
        program: program.into(),
        watches: Watch::parse(&text)?,
        fixed_layout: flags.iter().any(|f| f == "--fixed"),
        from_start: flags.iter().any(|f| f == "--from-start"),
        max_steps: 60_000_000,
    };
    let out = BufWriter::new(std::fs::File::create(events).with_context(|| events.clone())?);
    let outcome = Stepper::new(options, out)?.run()?;
    eprintln!("mgz-stepper: status {} steps {} loads {}", outcome.status, outcome.steps, outcome.loads);
    let code = if libc::WIFEXITED(outcome.status) { libc::WEXITSTATUS(outcome.status) } else { 128 + libc::WTERMSIG(outcome.status) };
    std::process::exit(code);
}
