//! Recorder threads that write published chunks to the spill files.

use crate::soft::drain::Drainer;
use crate::soft::shared_memory::{Settings, SharedMemory};
use mgz_annotations_schema::lock::locked;
use mgz_annotations_schema::spill::EncodedSegment;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// Time for which a worker that has just been busy looks for more work before it sleeps. Source:
/// Chosen.
const SPIN_TIME: Duration = Duration::from_micros(30);
/// Source: Chosen.
const MAX_SLEEP: Duration = Duration::from_millis(20);
/// Maximum number of workers: more do not help, since all write to one disk.
const MAX_WORKERS: usize = 16;

/// Longest sleep of the leading worker. In `burst`, threads do not call it, since a call would cost
/// them as much as a small window. Instead it wakes often enough that few windows wait. More
/// waiting windows would push the program's data out of the shared caches.
fn nap(settings: &Settings) -> Duration {
    const MIN_NAP: Duration = Duration::from_micros(500);
    const WAITING_WINDOWS: u64 = 4;
    match settings.mode {
        mgz_abi::shared_memory::MODE_BURST => Duration::from_nanos(
            settings
                .trigger
                .map_or(0, |t| t.least_ns())
                .saturating_mul(WAITING_WINDOWS),
        )
        .clamp(MIN_NAP, MAX_SLEEP),
        _ => MAX_SLEEP,
    }
}

/// The workers: one waits at the doorbell, the others help when more than one chunk waits.
pub struct Crew<'a> {
    drainer: &'a Drainer<'a>,
    shared: &'a SharedMemory,
    /// Number of workers.
    pub size: usize,
    over: AtomicBool,
    sleepers: Mutex<()>,
    help: Condvar,
}

/// Working state of a worker.
#[derive(Default)]
struct Hands {
    /// Thread slots with something to drain.
    ready: Vec<usize>,
    segment: EncodedSegment,
}

impl<'a> Crew<'a> {
    /// The workers of a run, as many as there are processors.
    pub fn new(drainer: &'a Drainer<'a>, shared: &'a SharedMemory) -> Self {
        let size = std::thread::available_parallelism()
            .map_or(1, |n| n.get())
            .min(MAX_WORKERS);
        Crew {
            drainer,
            shared,
            size,
            over: AtomicBool::new(false),
            sleepers: Mutex::default(),
            help: Condvar::new(),
        }
    }

    /// True for `burst`, where windows come one by one at long intervals. A worker that spins, or
    /// wakes others for few windows, takes CPU time from the program.
    fn sparing(&self) -> bool {
        self.size == 1 || self.shared.settings().mode == mgz_abi::shared_memory::MODE_BURST
    }

    /// The first worker's work.
    pub fn lead(&self) {
        let nap = nap(self.shared.settings());
        let mut hands = Hands::default();
        let mut busy = Instant::now();
        while !self.over.load(Ordering::Acquire) {
            let seen = self.shared.doorbell();
            if self.work(&mut hands, false) {
                busy = Instant::now();
            } else if !self.sparing() && busy.elapsed() < SPIN_TIME {
                std::hint::spin_loop();
            } else {
                self.shared.wait_doorbell(seen, nap);
            }
        }
    }

    /// The others' work.
    pub fn help(&self) {
        let mut hands = Hands::default();
        while !self.over.load(Ordering::Acquire) {
            // The others work from the other end and meet the leader in the middle.
            if !self.work(&mut hands, true) {
                let sleepers = locked(&self.sleepers);
                let _ = self.help.wait_timeout(sleepers, MAX_SLEEP);
            }
        }
    }

    /// Takes the waiting chunks, from the first thread slot to the last or the other way around.
    /// Returns true if there were any. A helper checks by itself if it is needed.
    fn work(&self, hands: &mut Hands, backwards: bool) -> bool {
        let Hands { ready, segment } = hands;
        self.drainer.ready(ready);
        if ready.len() > 1 && self.size > 1 {
            self.help.notify_all();
        }
        if backwards {
            ready.reverse();
        }
        let mut taken = false;
        for &index in ready.iter() {
            // At most as many as fit into the queue, so that a fast thread does not occupy a
            // worker.
            for _ in 0..self.shared.settings().places {
                let more = || {
                    if !self.sparing() {
                        self.help.notify_one()
                    }
                };
                if !self.drainer.drain(index, segment, more) {
                    break;
                }
                taken = true;
            }
        }
        taken
    }
}

/// Lets the workers end when it is dropped.
pub struct EndOfShift<'a>(pub &'a Crew<'a>);

impl Drop for EndOfShift<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Release);
        self.0.help.notify_all();
        self.0.shared.ring_doorbell();
    }
}
