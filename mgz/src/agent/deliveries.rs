//! Profiles on their way to servers. What a server cannot take now is sent again later, as long as
//! the recording is kept.

use crate::agent::metrics::Metrics;
use crate::agent::push::{Collector, Protocol, Sent, SentProfile};
use mgz_annotations_schema::lock::locked;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Wait after the first failure; it doubles with each further one. Source: Chosen.
const FIRST_WAIT: Duration = Duration::from_secs(5);
/// Longest wait. Source: Chosen.
const LONGEST_WAIT: Duration = Duration::from_secs(600);
/// Longest time that a server can ask to be left alone. Source: Chosen.
const LONGEST_REQUESTED_WAIT: Duration = Duration::from_secs(3600);
/// Profiles that wait for one server, at most; the oldest are given up. Source: Chosen.
const MAX_WAITING: usize = 1000;

/// A profile that waits.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// Folder of the recording.
    pub recording: PathBuf,
    /// Name of the program.
    pub name: String,
    /// Times of begin and end, seconds since 1970.
    pub times: [u64; 2],
}

/// A server and what waits for it, the oldest first.
struct Destination {
    collector: Collector,
    waiting: VecDeque<Waiting>,
    failures: u32,
    due: Instant,
}

/// Everything that waits.
pub struct Deliveries {
    destinations: Vec<Destination>,
    first_wait: Duration,
}

/// The wait after a number of failures, at least one. `spread` is a number from 0 to 1: servers are
/// not asked by all agents at once.
fn wait_after(failures: u32, first: Duration, spread: f64) -> Duration {
    let doubled = first.saturating_mul(1 << (failures - 1).min(16));
    doubled.min(LONGEST_WAIT).mul_f64(0.75 + 0.5 * spread)
}

/// A number from 0 to 1 that differs between agents and calls.
fn spread() -> f64 {
    let passed = SystemTime::now().duration_since(UNIX_EPOCH);
    let microseconds = passed.map_or(0, |passed| passed.subsec_micros());
    f64::from(microseconds % 1000) / 1000.0
}

impl Deliveries {
    /// Deliveries to these servers.
    pub fn new(collectors: &[Collector]) -> Deliveries {
        let destination = |collector: &Collector| Destination {
            collector: collector.clone(),
            waiting: VecDeque::new(),
            failures: 0,
            due: Instant::now(),
        };
        Deliveries {
            destinations: collectors.iter().map(destination).collect(),
            first_wait: FIRST_WAIT,
        }
    }

    /// True if some server gets this protocol.
    pub fn speak(&self, protocol: Protocol) -> bool {
        let mut all = self.destinations.iter();
        all.any(|to| to.collector.protocol == protocol)
    }

    /// Adds a profile, for all servers.
    pub fn add(&mut self, profile: &Waiting, metrics: &mut Metrics) {
        for to in &mut self.destinations {
            to.waiting.push_back(profile.clone());
            if to.waiting.len() > MAX_WAITING {
                to.waiting.pop_front();
                metrics.pushes_given_up += 1;
            }
        }
        metrics.pushes_waiting = self.waiting();
    }

    /// Number of deliveries that wait.
    pub fn waiting(&self) -> u64 {
        let each = self.destinations.iter().map(|to| to.waiting.len() as u64);
        each.sum()
    }

    /// Sends one profile to each server that is due. `file` is the file of a recording in the format
    /// of a protocol. Returns messages for the user.
    pub fn send_due(
        &mut self,
        file: impl Fn(&Path, Protocol) -> PathBuf,
        metrics: &Mutex<Metrics>,
    ) -> Vec<String> {
        let note = |change: fn(&mut Metrics)| {
            change(&mut locked(metrics));
        };
        let mut messages = Vec::new();
        for to in &mut self.destinations {
            if Instant::now() < to.due {
                continue;
            }
            let Some(next) = to.waiting.front().cloned() else {
                continue;
            };
            let Ok(bytes) = std::fs::read(file(&next.recording, to.collector.protocol)) else {
                // The recording was removed, or no profile could be made of it.
                to.waiting.pop_front();
                note(|metrics| metrics.pushes_given_up += 1);
                continue;
            };
            let sent = to.collector.send(&SentProfile {
                name: &next.name,
                times: next.times,
                bytes: &bytes,
            });
            let shown = &to.collector;
            match sent {
                Sent::Accepted(remark) => {
                    note(|metrics| metrics.pushes_accepted += 1);
                    messages.extend(remark.map(|text| format!("{shown} remarks: {text}")));
                }
                Sent::Refused(why) => {
                    note(|metrics| metrics.pushes_refused += 1);
                    messages.push(format!("{shown}: not pushed: {why}"));
                }
                Sent::Later(why, requested) => {
                    to.failures += 1;
                    let wait = wait_after(to.failures, self.first_wait, spread());
                    let requested = requested.map(|time| time.min(LONGEST_REQUESTED_WAIT));
                    to.due = Instant::now() + requested.unwrap_or(wait);
                    note(|metrics| metrics.push_retries += 1);
                    messages.push(format!("{shown}: not pushed, and tried again later: {why}"));
                    continue;
                }
            }
            to.waiting.pop_front();
            to.failures = 0;
        }
        let mut metrics = locked(metrics);
        metrics.pushes_waiting = self.waiting();
        messages
    }
}

#[cfg(test)]
mod tests;
