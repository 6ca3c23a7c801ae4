//! A run in three steps: [`Setup`], [`supervise`], [`RunOutcome`].

use crate::machine::run_counters;
use crate::soft::attach;
use crate::soft::attach::Candidate;
use crate::soft::drain::{Drainer, Tally};
use crate::soft::outcome::{DriverError, RunEvent, RunOutcome};
use crate::soft::phases::Tracker;
use crate::soft::run_options::RunOptions;
use crate::soft::setup::{Setup, start_program};
use crate::soft::shared_memory::SharedMemory;
use crate::soft::subject::Subject;
use crate::soft::supervise::{Supervised, supervise};
use crate::soft::texts;
use crate::util::clock::monotonic_ns;
use mgz_abi::shared_memory::count;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Runs a program to its end and records it.
///
/// One at a time per process, since signal settings are per process.
pub fn run_recorded(
    options: &RunOptions,
    on_event: &mut dyn FnMut(&RunEvent),
) -> Result<RunOutcome, DriverError> {
    let mut counters = None;
    let mut outcome = record(options, on_event, |setup| {
        counters = options.counters.then(run_counters::open).flatten();
        start_program(options, setup).map(Subject::Child)
    })?;
    outcome.counters = counters.map_or_else(Vec::new, run_counters::finish);
    Ok(outcome)
}

/// Records a running process until it ends, [`RunOptions::duration`] is over, or the recorder is
/// asked to end. `program` and `argv` of the options are ignored.
pub fn run_attached(
    options: &RunOptions,
    candidate: Candidate,
    on_event: &mut dyn FnMut(&RunEvent),
) -> Result<RunOutcome, DriverError> {
    record(options, on_event, |setup| {
        let attached =
            attach::attach_to_process(candidate, &setup.shared, &setup.image, options.signal)?;
        Ok(Subject::Attached(attached.into()))
    })
}

fn record(
    options: &RunOptions,
    on_event: &mut dyn FnMut(&RunEvent),
    begin: impl FnOnce(&Setup) -> Result<Subject, DriverError>,
) -> Result<RunOutcome, DriverError> {
    let setup = Setup::new(options)?;
    let drainer = Drainer::new(&setup.shared, &options.spill_dir, options.max_bytes)
        .feeding(options.online.clone());
    let began = Instant::now();
    let mut subject = begin(&setup)?;
    let mut tracker = Tracker::new(&setup.shared, &options.phases, began);
    let supervised = supervise(
        &setup,
        &drainer,
        &mut subject,
        began,
        (options.duration, options.of_windows),
        &mut tracker,
        on_event,
    )?;
    let cpu = subject.cpu();
    let (phases, problems) = tracker.finish(cpu, monotonic_ns());
    let mut outcome = outcome(options, &setup, drainer.tally(), supervised, began, cpu);
    outcome.phases = phases;
    outcome.problems.extend(problems);
    Ok(outcome)
}

/// Puts together the results of all parts.
fn outcome(
    options: &RunOptions,
    setup: &Setup,
    tally: Tally,
    supervised: Supervised,
    began: Instant,
    cpu: Duration,
) -> RunOutcome {
    let shared = &setup.shared;
    let mut dropped = dropped(shared, supervised.unseen);
    dropped.extend(tally.dropped);
    let mut problems = supervised.problems;
    problems.extend(texts::without_trigger(
        shared.counter(count::THREADS_WITHOUT_TRIGGER),
        options.trigger.is_some_and(|t| t.by_loads()),
    ));
    problems.extend(tally.problems);
    let triggers = count::TRIGGER_NAMES
        .iter()
        .map(|&(number, name)| (name.to_owned(), shared.counter(number)))
        .filter(|(_, n)| *n > 0)
        .collect();
    RunOutcome {
        status: supervised.status,
        ended_early: supervised.ended_early,
        mapped: supervised
            .mapped
            .sum(tally.threads.iter().map(|t| t.process)),
        threads: tally.threads,
        counts: tally.counts,
        modules: supervised.modules,
        triggers,
        outside: shared.outside(supervised.outside),
        trigger: texts::trigger_source(shared.trigger_kind(), options.trigger),
        dropped,
        truncated: tally.truncated,
        problems,
        wall: supervised.wall,
        cpu,
        spill_done: tally
            .last_write
            .map_or(Duration::ZERO, |t| t.saturating_duration_since(began)),
        spill_bytes: tally.bytes,
        interrupted: setup.signals.interrupted(),
        heap: supervised.heap,
        window_log: supervised.window_log,
        programs: shared.counter(count::PROGRAMS),
        spent_ns: shared.account().1,
        phases: None,
        counters: Vec::new(),
    }
}

/// Losses that the runtime has counted, by cause.
fn dropped(shared: &SharedMemory, unseen: u64) -> BTreeMap<String, u64> {
    let mut dropped: BTreeMap<String, u64> = BTreeMap::new();
    for &(number, name) in &count::NAMES {
        let value = shared.counter(number);
        if value != 0 {
            dropped.insert((*name).to_owned(), value);
        }
    }
    // Threads without room for a ring are reported separately.
    let unseen = unseen.saturating_sub(shared.counter(count::THREADS_WITHOUT_RING));
    if unseen > 0 {
        dropped.insert("threads_unseen".to_owned(), unseen);
    }
    dropped
}
