//! Profiles on their way to servers. Each server has a queue and a thread of its own, so that one
//! that hangs delays neither recordings nor other servers. What a server cannot take now is sent
//! again later, as long as the recording is kept.

use crate::agent::metrics::Metrics;
use crate::agent::push::{Collector, Protocol, Sent, SentProfile};
use mgz_annotations_schema::lock::locked;
use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Wait after the first failure; it doubles with each further one. Source: Chosen.
pub const FIRST_WAIT: Duration = Duration::from_secs(5);
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

/// The world around the deliveries.
#[derive(Clone)]
pub struct Surroundings {
    /// The file of a recording in the format of a protocol.
    pub file: fn(&Path, Protocol) -> PathBuf,
    /// Numbers about the agent.
    pub metrics: Arc<Mutex<Metrics>>,
    /// Takes messages for the user.
    pub say: Arc<dyn Fn(&str) + Send + Sync>,
    /// Wait after the first failure.
    pub first_wait: Duration,
}

/// The profiles that wait for one server.
struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

struct QueueState {
    /// The oldest first.
    waiting: VecDeque<Waiting>,
    /// Time from which on the server is asked again.
    due: Instant,
    /// A profile was taken out and is being sent.
    is_sending: bool,
    /// The agent ends: nothing is sent again later.
    is_ending: bool,
}

impl Queue {
    fn new() -> Queue {
        Queue {
            state: Mutex::new(QueueState {
                waiting: VecDeque::new(),
                due: Instant::now(),
                is_sending: false,
                is_ending: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// Waits for a change, or until a time.
    fn wait<'a>(
        &self,
        state: MutexGuard<'a, QueueState>,
        until: Instant,
    ) -> MutexGuard<'a, QueueState> {
        let left = until.saturating_duration_since(Instant::now());
        let waited = self.changed.wait_timeout(state, left);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Adds a profile. Returns the number of profiles that are given up for it.
    fn add(&self, profile: Waiting) -> u64 {
        let mut state = locked(&self.state);
        state.waiting.push_back(profile);
        let is_full = state.waiting.len() > MAX_WAITING;
        if is_full {
            state.waiting.pop_front();
        }
        self.changed.notify_all();
        u64::from(is_full)
    }

    /// Waits for a profile, and until the server may be asked. `None`: the agent ends, and nothing
    /// is due.
    fn take(&self) -> Option<Waiting> {
        let mut state = locked(&self.state);
        loop {
            let now = Instant::now();
            if state.due <= now
                && let Some(profile) = state.waiting.pop_front()
            {
                state.is_sending = true;
                return Some(profile);
            }
            if state.is_ending {
                return None;
            }
            let until = match state.waiting.is_empty() {
                true => now + LONGEST_WAIT,
                false => state.due,
            };
            state = self.wait(state, until);
        }
    }

    /// Ends the sending of the profile that was taken. If the server does not have it, it is the
    /// first one again, and sent at that time.
    fn finish(&self, again: Option<(Waiting, Instant)>) {
        let mut state = locked(&self.state);
        state.is_sending = false;
        if let Some((profile, due)) = again {
            state.waiting.push_front(profile);
            state.due = due;
        }
        self.changed.notify_all();
    }

    /// Ends the queue: what is due is sent until `end`. Returns the number of profiles that the
    /// server does not have then.
    fn end(&self, end: Instant) -> u64 {
        let mut state = locked(&self.state);
        state.is_ending = true;
        self.changed.notify_all();
        loop {
            let now = Instant::now();
            let is_idle = state.waiting.is_empty() || now < state.due;
            if end <= now || (!state.is_sending && is_idle) {
                return state.waiting.len() as u64 + u64::from(state.is_sending);
            }
            state = self.wait(state, end);
        }
    }
}

/// A server and what waits for it.
struct Destination {
    protocol: Protocol,
    queue: Arc<Queue>,
}

/// Everything that waits.
pub struct Deliveries {
    destinations: Vec<Destination>,
    metrics: Arc<Mutex<Metrics>>,
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
    /// Deliveries to these servers, each by a thread that begins now.
    pub fn start(collectors: &[Collector], surroundings: &Surroundings) -> Deliveries {
        let destination = |collector: &Collector| {
            let queue = Arc::new(Queue::new());
            let sender = Sender {
                collector: collector.clone(),
                queue: queue.clone(),
                failures: 0,
                said: BTreeSet::new(),
                surroundings: surroundings.clone(),
            };
            // The threads end with the agent, which does not wait for a server that hangs.
            std::thread::spawn(move || sender.run());
            Destination {
                protocol: collector.protocol,
                queue,
            }
        };
        Deliveries {
            destinations: collectors.iter().map(destination).collect(),
            metrics: surroundings.metrics.clone(),
        }
    }

    /// True if some server gets this protocol.
    pub fn speak(&self, protocol: Protocol) -> bool {
        self.destinations.iter().any(|to| to.protocol == protocol)
    }

    /// Adds a profile, for all servers.
    pub fn add(&self, profile: &Waiting) {
        for to in &self.destinations {
            locked(&self.metrics).pushes_waiting += 1;
            let given_up = to.queue.add(profile.clone());
            let mut metrics = locked(&self.metrics);
            metrics.pushes_given_up += given_up;
            metrics.pushes_waiting -= given_up;
        }
    }

    /// Ends the deliveries, after `patience` at the latest. Returns the number of profiles that were
    /// not sent.
    pub fn end(&self, patience: Duration) -> u64 {
        let end = Instant::now() + patience;
        let each = self.destinations.iter();
        each.map(|to| to.queue.end(end)).sum()
    }
}

/// The thread of a server.
struct Sender {
    collector: Collector,
    queue: Arc<Queue>,
    failures: u32,
    /// Messages that were given before.
    said: BTreeSet<String>,
    surroundings: Surroundings,
}

impl Sender {
    fn run(mut self) {
        while let Some(profile) = self.queue.take() {
            let again = self.send(&profile);
            self.queue.finish(again.map(|due| (profile, due)));
        }
    }

    fn note(&self, change: fn(&mut Metrics)) {
        change(&mut locked(&self.surroundings.metrics));
    }

    /// Gives a message, once.
    fn say(&mut self, message: String) {
        if self.said.insert(message.clone()) {
            (self.surroundings.say)(&message);
        }
    }

    /// Sends a profile. Returns the time at which it is to be sent again, if the server does not have
    /// it.
    fn send(&mut self, profile: &Waiting) -> Option<Instant> {
        let file = (self.surroundings.file)(&profile.recording, self.collector.protocol);
        let Ok(bytes) = std::fs::read(file) else {
            // The recording was removed.
            self.note(|metrics| {
                metrics.pushes_given_up += 1;
                metrics.pushes_waiting -= 1;
            });
            return None;
        };
        let sent = self.collector.send(&SentProfile {
            name: &profile.name,
            times: profile.times,
            bytes: &bytes,
        });
        let shown = self.collector.to_string();
        match sent {
            Sent::Accepted(remark) => {
                self.note(|metrics| metrics.pushes_accepted += 1);
                if let Some(text) = remark {
                    self.say(format!("{shown} remarks: {text}"));
                }
            }
            Sent::Refused(why) => {
                self.note(|metrics| metrics.pushes_refused += 1);
                self.say(format!("{shown}: not pushed: {why}"));
            }
            Sent::Later(why, requested) => {
                self.failures += 1;
                let wait = wait_after(self.failures, self.surroundings.first_wait, spread());
                let requested = requested.map(|time| time.min(LONGEST_REQUESTED_WAIT));
                self.note(|metrics| metrics.push_retries += 1);
                self.say(format!("{shown}: not pushed, and tried again later: {why}"));
                return Some(Instant::now() + requested.unwrap_or(wait));
            }
        }
        self.note(|metrics| metrics.pushes_waiting -= 1);
        self.failures = 0;
        None
    }
}

#[cfg(test)]
mod tests;
