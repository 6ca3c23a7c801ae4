//! `mgz-record --mode watch`: the trace folder around a watched run.

use crate::machine::counters::CounterSearch;
use crate::options::args::{Cli, OutputFormat};
use crate::options::request::WatchRequest;
use crate::trace::dir;
use crate::trace::dir::Folder;
use crate::util::failure::Failure;
use crate::watch::events::WatchTrigger;
use crate::watch::run::{Ended, Job};
use crate::watch::sampler::{Accesses, CountingStreams, SampleOutcome};
use crate::watch::{run, write};
use mgz_annotations_schema::manifest::Manifest;
use mgz_annotations_schema::tell;
use mgz_annotations_schema::{
    ProgramStatus, RowsIn, SamplingUnit, TraceBackend, TraceMode, TriggerEvent,
};
use std::path::PathBuf;

fn own(message: impl std::fmt::Display) -> Failure {
    Failure {
        status: 125,
        message: message.to_string(),
    }
}

/// Events that count accesses on this machine.
fn counters() -> CounterSearch {
    crate::machine::counters::here(&mut |counter| {
        let trigger = WatchTrigger {
            period: 1 << 40,
            signal: 0,
            counters: Some([counter.clone(), counter.clone()]),
        };
        crate::watch::events::Events::open(&trigger, 0, 0).map(|_| ())
    })
}

/// Watches a program; returns the exit status to pass on.
pub fn watch_program(request: WatchRequest, program: PathBuf) -> Result<i32, Failure> {
    let cli = request.cli;
    let found = counters();
    let counted = found.counters.is_some();
    request.settle(counted)?;
    let period = if counted {
        cli.records()
    } else {
        (1e9 / cli.rate()) as u64
    };
    let job = Job {
        program,
        argv: cli.argv(),
        no_aslr: cli.no_aslr,
        trigger: WatchTrigger {
            period,
            signal: cli.signal as i32,
            counters: found.counters,
        },
        watchpoints: cli.watchpoints as usize,
        near: cli.near,
        duration: cli.duration.map(std::time::Duration::from_secs_f64),
    };
    let folder = Folder::create(&cli.output, cli.force)?;
    let _lock = folder.lock().map_err(own)?;
    let command = cli
        .program
        .iter()
        .map(|a| a.to_string_lossy().into_owned())
        .collect();
    let (event, unit, trigger) = match counted {
        true => (
            TriggerEvent::Loads,
            SamplingUnit::Loads,
            "loads (PMU, user space only)",
        ),
        false => (
            TriggerEvent::CpuTime,
            SamplingUnit::CpuTime,
            "cpu time (perf_event, user space only)",
        ),
    };
    let mut m = Manifest {
        backend: TraceBackend::Watchpoints,
        backend_why: found.why,
        trigger: trigger.into(),
        trigger_event: Some(event),
        unit,
        rate: if counted { 0.0 } else { cli.rate() },
        data: RowsIn::Watch,
        ..dir::begin_manifest(command, TraceMode::Watch, period, 0)
    };
    let started = folder.write(&m).map_err(|e| {
        own(format!(
            "{}: the manifest cannot be written: {e}",
            folder.path().display()
        ))
    });
    let mut ended = match started.and_then(|()| {
        run::run_watched(&job).map_err(|e| Failure {
            status: e.exit_status(),
            message: e.to_string(),
        })
    }) {
        Ok(ended) => ended,
        Err(failure) => {
            folder.remove();
            return Err(failure);
        }
    };
    fill(&mut m, &ended);
    let generated = ended.maps.generated_names();
    if let Err(error) = write::write_watch_samples(
        folder.path(),
        &ended.rows,
        (&ended.maps, &generated),
        &ended.paths.named(&generated),
    ) {
        m.problems.push(format!(
            "{}: the samples could not be written: {error:#}",
            folder.path().display()
        ));
    }
    m.state = m.state_at_end();
    folder.release_reserve();
    let _ = folder.remove_spill();
    if let Err(error) = folder.write(&m) {
        tell!(
            "mgz-record: {}: the manifest could not be written: {error}; free space there and record again",
            folder.path().display()
        );
    }
    tell(&m, &ended, cli);
    Ok(ended.status.exit_status())
}

fn fill(m: &mut Manifest, ended: &Ended) {
    m.program_status = ended.status.clone();
    m.wall_seconds = ended.wall.as_secs_f64();
    m.cpu_seconds = ended.cpu_seconds;
    // A sample may have two rows, one for loads alone.
    m.totals.samples = ended
        .rows
        .iter()
        .filter(|r| r.pair.counts != CountingStreams::Loads)
        .count() as u64;
    m.totals.loads_executed = ended.accesses.map(|a| a.loads);
    m.totals.accesses_executed = ended.accesses.map(Accesses::all);
    let c = ended.counts;
    let mut count = |name: &str, n: u64| {
        if n > 0 {
            m.totals.triggers.insert(name.into(), n);
        }
    };
    count("stops", c.stops);
    count("without_access", c.no_access);
    count("watchpoints_refused", c.refused);
    count("steps", c.steps);
    count("hits", c.hits);
    count("hits_without_reuse", c.other_hits);
    count("hits_unclear", c.unclear);
    count("hits_lost", ended.lost_hits);
    for outcome in [
        SampleOutcome::Near,
        SampleOutcome::Watched,
        SampleOutcome::Replaced,
        SampleOutcome::Skipped,
        SampleOutcome::Crowded,
        SampleOutcome::Ended,
    ] {
        count(
            outcome.name(),
            ended
                .rows
                .iter()
                .filter(|r| r.pair.outcome == outcome && r.pair.counts != CountingStreams::Loads)
                .count() as u64,
        );
    }
    m.problems = ended.problems.clone();
    if ended.lost_hits > 0 {
        m.problems.push(format!("the kernel had no room for {} hits of watchpoints; reuses may have been missed then (remedy: a lower --rate)", ended.lost_hits));
    }
    if c.refused > 0 {
        m.problems.push(format!("the kernel refused {} watchpoints (a debugger may hold some of them); their samples count as given up", c.refused));
    }
}

/// The lines at the end, on standard error.
fn tell(m: &Manifest, ended: &Ended, cli: &Cli) {
    use std::io::Write;
    let of = |name: &str| m.totals.triggers.get(name).copied().unwrap_or(0);
    let trace = cli.output.display();
    let mut text = String::new();
    match cli.format {
        OutputFormat::Json => {
            let value = serde_json::json!({
                "trace": trace.to_string(), "program_status": m.program_status, "mode": m.mode, "samples": m.totals.samples, "triggers": m.totals.triggers,
                "accesses": m.totals.accesses_executed, "counting": m.backend_why, "cpu_seconds": m.cpu_seconds, "stopped_seconds": ended.stopped_seconds,
                "hit_ns": ended.costs.hit_ns, "hit_stop_ns": ended.costs.hit_stop_ns, "stop_ns": ended.costs.stop_ns, "threads": ended.threads, "problems": m.problems,
            });
            text.push_str(&value.to_string());
        }
        OutputFormat::Text => {
            for problem in &m.problems {
                text.push_str(&format!("mgz-record: {problem}\n"));
            }
            if m.totals.accesses_executed.is_none() {
                text.push_str(&format!(
                    "mgz-record: {}; distances beyond {} instructions are in CPU time; `mgz-analyze reuse --rdx --accesses-from TRACE` takes the rate of accesses from a full or ring trace of the same run\n",
                    m.backend_why, cli.near
                ));
            }
            let seconds = m.cpu_seconds + ended.stopped_seconds;
            text.push_str(&format!(
                "mgz-record: recorded {} samples in {seconds:.2} s ({:.0} % of it in stops): {} came to a reuse, {} did not by the end, {} were given up, in {trace}",
                m.totals.samples,
                100.0 * ended.stopped_seconds / seconds.max(1e-9),
                of("near") + of("watched"),
                of("ended"),
                of("replaced") + of("skipped") + of("crowded"),
            ));
            if m.program_status != ProgramStatus::Exited(0) {
                text.push_str(&format!("; the program ended with {}", m.program_status));
            }
        }
    }
    text.push('\n');
    // The program may have closed the standard error that we share with it.
    let _ = std::io::stderr().write_all(text.as_bytes());
}
