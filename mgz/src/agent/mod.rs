//! `mgz agent`: short recordings of running services, again and again.
//!
//! Recording, conversion and export are the work of `mgz-record` and `mgz-analyze`. The agent
//! decides when they run and what is kept. It records one process at a time, so that its cost does
//! not grow with their number.

mod deliveries;
mod find;
mod http;
mod metrics;
mod pressure;
pub mod push;
mod store;
#[cfg(test)]
mod test_server;

use crate::cli::Agent as Options;
use crate::{report, signals, tools};
use anyhow::{Context, bail};
use deliveries::{Deliveries, FIRST_WAIT, Surroundings, Waiting};
use find::Found;
use metrics::{Metrics, Skip};
use mgz_annotations_schema::lock::locked;
use mgz_annotations_schema::tell;
use mgz_collector::machine::trigger::LEAST_SPENT;
use mgz_collector::util::clock::utc_now;
use push::Protocol;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use store::Store;

/// Interval at which the agent looks for reasons to end. Source: Chosen.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// Time that a recorder gets beyond the recording, to attach and to convert. Source: Chosen.
const MAX_OVERTIME: Duration = Duration::from_secs(120);
/// Longest time for the export of a profile. Source: Chosen.
const MAX_EXPORT: Duration = Duration::from_secs(600);
/// The same after a signal: service managers kill a process that does not end. Source: Chosen, below
/// systemd's default of 90 s.
const MAX_EXPORT_AT_END: Duration = Duration::from_secs(30);
/// Time for the sending of profiles that are due when the agent ends. Source: Chosen.
const MAX_PUSH_AT_END: Duration = Duration::from_secs(3);
/// A recording may cost so many times its budget, which the recorder keeps on average only, before
/// the next turn is left out. Source: Chosen.
const MAX_COST_BY_BUDGET: f64 = 1.5;
/// With this pressure as the limit, turns are never left out.
const NO_LIMIT: f64 = 100.0;
/// `nice`'s largest value.
const LOWEST_PRIORITY: i32 = 19;
/// Part of --keep that one recording may take. Source: Chosen.
const PARTS_OF_KEEP: u64 = 4;

/// A way to wait for a command.
type Wait = fn(&mut Command, Option<Duration>) -> std::io::Result<Option<signals::EndedCommand>>;

/// A running agent.
struct Agent<'a> {
    options: &'a Options,
    recorder: PathBuf,
    analyzer: PathBuf,
    store: Store,
    metrics: Arc<Mutex<Metrics>>,
    deliveries: Deliveries,
    /// Messages that were given before.
    told: BTreeSet<String>,
    /// Turn of the last recording of each process.
    recorded: BTreeMap<i32, u64>,
    turn: u64,
    is_dear: bool,
}

/// Runs the command.
pub fn command(options: &Options) -> anyhow::Result<i32> {
    if options.duration >= options.every {
        bail!("--for must be shorter than --every, so that the processes also run unrecorded");
    }
    let exe = options.exe.as_ref();
    let exe = exe.map(|exe| std::fs::canonicalize(exe).unwrap_or_else(|_| exe.clone()));
    let options = &Options {
        exe,
        ..options.clone()
    };
    let metrics: Arc<Mutex<Metrics>> = Arc::default();
    let surroundings = Surroundings {
        file: profile_file,
        metrics: metrics.clone(),
        say: Arc::new(|message: &str| tell!("mgz: {message}")),
        first_wait: FIRST_WAIT,
    };
    let mut agent = Agent {
        options,
        recorder: tools::find_tool("mgz-record")?,
        analyzer: tools::find_tool("mgz-analyze")?,
        store: Store::open(&options.output)?,
        metrics,
        deliveries: Deliveries::start(&options.push, &surroundings),
        told: BTreeSet::new(),
        recorded: BTreeMap::new(),
        turn: 0,
        is_dear: false,
    };
    if let Some(address) = &options.listen {
        metrics::serve(address, agent.metrics.clone())?;
    }
    signals::note_stop();
    tell!(
        "mgz: recordings of {} s every {} s go to {}; Ctrl-C or SIGTERM ends the agent",
        options.duration.as_secs_f64(),
        options.every.as_secs_f64(),
        options.output.display()
    );
    agent.report()?;
    let mut next = Instant::now();
    loop {
        if let Some(why) = agent.end() {
            let waiting = agent.deliveries.end(MAX_PUSH_AT_END);
            agent.report()?;
            if waiting > 0 {
                tell!("mgz: {waiting} profiles have not been pushed; the recordings are kept");
            }
            tell!("mgz: the agent has ended: {why}");
            return Ok(0);
        }
        if Instant::now() >= next {
            next = (next + options.every).max(Instant::now());
            let done = agent.take_turn().and_then(|()| agent.report());
            // Space on the disk, say, may be there in the next turn.
            if let Err(error) = done {
                agent.tell_once(format!("{error:#}"));
            }
        } else {
            std::thread::sleep(LOOK_INTERVAL.min(next - Instant::now()));
        }
    }
}

impl Agent<'_> {
    /// Reason to end.
    fn end(&self) -> Option<String> {
        let file = self.options.stop_file.as_ref().filter(|file| file.exists());
        match file {
            _ if signals::is_stopped() => Some("a signal came".into()),
            file => Some(format!("{} exists", file?.display())),
        }
    }

    fn metrics(&self) -> MutexGuard<'_, Metrics> {
        locked(&self.metrics)
    }

    /// Prints a message, unless it was printed before.
    fn tell_once(&mut self, message: String) {
        if self.told.insert(message.clone()) {
            tell!("mgz: {message}");
        }
    }

    fn skip(&mut self, why: Skip) {
        self.metrics().skipped[why as usize] += 1;
    }

    /// Removes old recordings, and writes the metrics.
    fn report(&mut self) -> anyhow::Result<()> {
        let bytes = self
            .store
            .rotate(self.options.keep, self.options.keep_for)
            .with_context(|| format!("{}: cannot be read", self.options.output.display()))?;
        self.metrics().bytes = bytes;
        match &self.options.metrics {
            Some(file) => self.metrics().write(file),
            None => Ok(()),
        }
    }

    fn take_turn(&mut self) -> anyhow::Result<()> {
        let began = Instant::now();
        self.turn += 1;
        if std::mem::take(&mut self.is_dear) {
            self.skip(Skip::Cost);
            return Ok(());
        }
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let pressure = pressure::cpu_pressure(Path::new("/proc"), processors).unwrap_or(0.0);
        self.metrics().pressure = pressure;
        let limit = self.options.max_pressure;
        if limit < NO_LIMIT && pressure >= limit {
            self.skip(Skip::Pressure);
            return Ok(());
        }
        let due = self.due();
        if due.is_empty() {
            self.skip(Skip::Nothing);
        }
        for process in due {
            // The others come first in the next turn.
            let is_over = began.elapsed() + self.options.duration > self.options.every;
            if self.end().is_some() || is_over || self.is_dear {
                break;
            }
            self.recorded.insert(process.pid, self.turn);
            self.record(&process)?;
        }
        Ok(())
    }

    /// The processes that can be recorded, those first whose last recording is the oldest.
    fn due(&mut self) -> Vec<Found> {
        let (mut due, others): (Vec<Found>, Vec<Found>) = find::find(self.options)
            .into_iter()
            .partition(|found| found.obstacle.is_none());
        self.metrics().processes = [due.len() as u64, others.len() as u64];
        for other in others {
            let why = other.obstacle.unwrap_or_default();
            self.tell_once(format!("{}: is not recorded: {why}", other.name));
        }
        self.recorded
            .retain(|pid, _| due.iter().any(|d| d.pid == *pid));
        due.sort_by_key(|found| (self.recorded.get(&found.pid).copied(), found.pid));
        due
    }

    /// Records a process and writes its profile.
    fn record(&mut self, process: &Found) -> anyhow::Result<()> {
        let (options, name) = (self.options, plain(&process.name));
        let no_folder = || format!("{}: cannot be written", options.output.display());
        let new = self.store.begin().with_context(no_folder)?;
        let trace = new.path().join(store::TRACE);
        let mut recorder = Command::new(&self.recorder);
        recorder
            .args(["--attach", &process.pid.to_string()])
            .args(["--duration", &options.duration.as_secs_f64().to_string()])
            .args(["--overhead", &options.overhead.to_string()])
            .args(["--max-size", &(options.keep / PARTS_OF_KEEP).to_string()])
            .arg("-o")
            .arg(&trace);
        let (stamp, from) = (utc_now().replace(['-', ':'], ""), now());
        let limit = options.duration + MAX_OVERTIME;
        if let Err(why) = run(signals::wait_in_session, &mut recorder, limit) {
            // A recording that a signal has ended before it began has not failed.
            if signals::is_stopped() {
                return Ok(());
            }
            self.metrics().failures += 1;
            self.tell_once(format!("{name}: not recorded: {why}"));
            return Ok(());
        }
        let until = now();
        let cost = cost(&trace)?;
        self.is_dear = cost.is_above(options.overhead);
        if self.is_dear {
            self.tell_once(format!(
                "{name}: a recording cost {:.1} % of its CPU time, above --overhead; the turn behind such a recording is left out",
                100.0 * cost.share()
            ));
        }
        let made = self.profiles(&trace, new.path());
        let is_made = made.is_ok();
        if let Err(why) = made {
            self.metrics().profile_failures += 1;
            let is_removed = signals::is_stopped();
            let note = if is_removed {
                "; the recording is removed"
            } else {
                ""
            };
            self.tell_once(format!("{name}: {why:#}{note}"));
            if is_removed {
                return Ok(());
            }
        }
        let kept = format!("{stamp}-{name}-{}", process.pid);
        let recording = self.store.keep(new, &kept).with_context(no_folder)?;
        let mut metrics = self.metrics();
        metrics.recordings += 1;
        (metrics.last, metrics.cost) = (until, cost.share());
        drop(metrics);
        if is_made {
            self.deliveries.add(&Waiting {
                recording,
                name,
                times: [from, until],
            });
        }
        Ok(())
    }

    /// Writes the profiles of a trace into the folder of the recording.
    fn profiles(&self, trace: &Path, recording: &Path) -> anyhow::Result<()> {
        self.profile(trace, "pprof", &recording.join(store::PROFILE))?;
        if self.deliveries.speak(Protocol::Otlp) {
            self.profile(trace, "otlp", &recording.join(store::OTLP_PROFILE))?;
        }
        Ok(())
    }

    fn profile(&self, trace: &Path, format: &str, profile: &Path) -> anyhow::Result<()> {
        let mut export = Command::new(&self.analyzer);
        export.arg("export").arg(std::path::absolute(trace)?);
        export.args(["--to", format, "-o"]).arg(profile);
        // SAFETY: only a call that is safe after a fork.
        unsafe {
            export.pre_exec(|| {
                libc::setpriority(libc::PRIO_PROCESS, 0, LOWEST_PRIORITY);
                Ok(())
            });
        }
        let limit = match signals::is_stopped() {
            true => MAX_EXPORT_AT_END,
            false => MAX_EXPORT,
        };
        // A signal ends the agent behind this recording, so the profile is still made.
        if let Err(why) = run(signals::finish_in_session, &mut export, limit) {
            let _ = std::fs::remove_file(profile);
            bail!("no profile: {why}");
        }
        Ok(())
    }
}

/// The file of a recording in the format of a protocol.
fn profile_file(recording: &Path, protocol: Protocol) -> PathBuf {
    recording.join(match protocol {
        Protocol::Pyroscope => store::PROFILE,
        Protocol::Otlp => store::OTLP_PROFILE,
    })
}

/// A name for files and addresses.
fn plain(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._".contains(c);
    name.replace(|c| !is_plain(c), "_")
}

fn now() -> u64 {
    let passed = SystemTime::now().duration_since(UNIX_EPOCH);
    passed.map_or(0, |passed| passed.as_secs())
}

/// Runs a command in a way of [`signals`]. The error is its last message.
fn run(wait: Wait, command: &mut Command, limit: Duration) -> Result<(), String> {
    let said = || tempfile::tempfile().and_then(|file| Ok((file.try_clone()?, file)));
    let (errors, mut said) = said().map_err(|error| format!("no temporary file: {error}"))?;
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(errors);
    match wait(command, Some(limit)) {
        Err(error) => Err(error.to_string()),
        Ok(None) => Err(format!("it did not end within {} s", limit.as_secs())),
        Ok(Some(ended)) if ended.status.success() => Ok(()),
        Ok(Some(_)) => {
            use std::io::{Read, Seek};
            let mut text = String::new();
            let read = said.rewind().and_then(|()| said.read_to_string(&mut text));
            let last = text.lines().last().filter(|_| read.is_ok());
            Err(last.unwrap_or("no reason was given").to_owned())
        }
    }
}

/// Cost of a recording to the process, seconds.
struct Cost {
    recording: f64,
    cpu: f64,
}

fn cost(trace: &Path) -> anyhow::Result<Cost> {
    let manifest = report::manifest(trace)?;
    let number = |key: &str| manifest[key].as_f64().unwrap_or(0.0);
    Ok(Cost {
        recording: number("recording_seconds"),
        cpu: number("cpu_seconds"),
    })
}

impl Cost {
    /// As a part of the process's own CPU time.
    fn share(&self) -> f64 {
        let own = self.cpu - self.recording;
        if own > 0.0 { self.recording / own } else { 0.0 }
    }

    /// True if it is above a budget in percent. (Every recording may use a little more at its
    /// start.)
    fn is_above(&self, percent: f64) -> bool {
        let budget = percent / 100.0 * MAX_COST_BY_BUDGET * self.cpu;
        self.recording > budget + LEAST_SPENT as f64 / 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recordings_above_their_budget_are_dear() {
        let of = |recording, cpu| Cost { recording, cpu };
        assert!(!of(0.1, 10.0).is_above(1.0));
        assert!(of(0.2, 10.0).is_above(1.0) && !of(0.2, 10.0).is_above(2.0));
        // An idle process.
        assert!(!of(0.02, 0.05).is_above(1.0));
        assert!((of(0.2, 10.2).share() - 0.02).abs() < 1e-9);
    }

    #[test]
    fn names_of_files_are_plain() {
        assert_eq!(plain("a b/../c-d.x_1"), "a_b_.._c_d.x_1");
    }
}
