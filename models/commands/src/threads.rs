//! All accesses of a trace in memory, by thread, and orders of them: recorded, interleaved, or
//! mimicked.

use mgz_analyzer::commands::ensure_accesses;
use mgz_analyzer::commands::stream::{AccessSegment, Accesses};
use mgz_analyzer::commands::visit;
use mgz_analyzer::input::{ColumnSet, Trace};
use mgz_analyzer::output::document::Document;
use mgz_analyzer::util::due::Due;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// One thread.
#[derive(Default)]
pub struct Thread {
    /// System process id.
    pub process: u32,
    /// System thread id.
    pub thread: u32,
    /// Accesses in order.
    pub accesses: Accesses,
    /// Recorded time of each access; empty if the accesses were not recorded.
    pub time: Vec<u64>,
    /// Ranges of accesses that were recorded together.
    pub stretches: Vec<Range<usize>>,
}

impl Thread {
    /// Bounds of the time when accesses ran: those of the stretches that contain the first and the
    /// last of them, since times inside a stretch are interpolated.
    pub fn time_around(&self, accesses: &Range<usize>) -> (u64, u64) {
        let stretch = |access: usize| {
            let behind = self.stretches.partition_point(|s| s.end <= access);
            self.stretches.get(behind)
        };
        let first = stretch(accesses.start).and_then(|s| self.time.get(s.start));
        let last = accesses.end.checked_sub(1).and_then(stretch);
        let last = last.and_then(|s| self.time.get(s.end - 1));
        (
            first.copied().unwrap_or(0),
            last.copied().unwrap_or(u64::MAX),
        )
    }
}

/// Maximum number of accesses in memory, of 24 bytes each. Source: Chosen.
const MAX_ACCESSES_IN_MEMORY: u64 = 1 << 30;

/// Reads all accesses. Also returns the number of implied Constant loads, and true if a part of the
/// trace could not be read.
pub fn load(
    trace: &Trace,
    stores: bool,
    document: &mut Document,
) -> anyhow::Result<(Vec<Thread>, u64, bool)> {
    let mut threads: Vec<Thread> = Vec::new();
    let mut buffer = Accesses::default();
    let (mut implied, mut count) = (0, 0u64);
    let damaged = visit(
        trace,
        ColumnSet { time: true },
        document,
        &mut |segment: &AccessSegment<'_>| {
            let run = segment.run;
            if threads
                .last()
                .is_none_or(|t| (t.process, t.thread) != (run.process, run.thread))
            {
                threads.push(Thread {
                    process: run.process,
                    thread: run.thread,
                    ..Thread::default()
                });
            }
            implied += segment.implied();
            let view = segment.accesses(stores, &mut buffer);
            count += view.len() as u64;
            if count > MAX_ACCESSES_IN_MEMORY || view.is_empty() {
                return;
            }
            if let Some(thread) = threads.last_mut() {
                let from = thread.accesses.address.len();
                thread.stretches.push(from..from + view.len());
                thread.accesses.extend(view);
                segment.times(stores, &mut thread.time);
            }
        },
    );
    ensure_accesses(count, trace)?;
    anyhow::ensure!(
        count <= MAX_ACCESSES_IN_MEMORY,
        "{}: {count} accesses are more than the {MAX_ACCESSES_IN_MEMORY} that are taken into memory; record a shorter run",
        trace.folder.display()
    );
    Ok((threads, implied, damaged))
}

/// Calls `next(thread, access)` for all accesses in the order of their recorded times. At equal
/// times the running thread continues, as in [`crate::ordered`].
pub fn recorded(threads: &[Thread], mut next: impl FnMut(usize, usize)) {
    let mut done = vec![0usize; threads.len()];
    let mut waiting: BinaryHeap<Reverse<Due>> = threads
        .iter()
        .enumerate()
        .filter_map(|(t, thread)| Some(Reverse(Due(*thread.time.first()? as f64, t))))
        .collect();
    while let Some(Reverse(Due(_, thread))) = waiting.pop() {
        // The thread that is due continues until another one is due.
        let limit = waiting.peek().map_or(f64::INFINITY, |w| w.0.0);
        loop {
            next(thread, done[thread]);
            done[thread] += 1;
            let Some(&due) = threads[thread].time.get(done[thread]) else {
                break;
            };
            if due as f64 > limit {
                waiting.push(Reverse(Due(due as f64, thread)));
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mgz_analyzer::data::group::Group;

    #[test]
    fn recorded_times_order_the_threads() {
        // Thread 0 runs in two bursts, and thread 1 between them.
        let thread = |addresses: &[u64], times: &[u64]| Thread {
            accesses: Accesses {
                address: addresses.to_vec(),
                size: vec![1; addresses.len()],
                group: vec![Group::default(); addresses.len()],
            },
            time: times.to_vec(),
            ..Thread::default()
        };
        let threads = [
            thread(&[1, 2, 3, 4], &[0, 1, 2, 30]),
            thread(&[11, 12], &[5, 15]),
            thread(&[21], &[100]),
        ];
        let mut order = Vec::new();
        recorded(&threads, |t, i| order.push(threads[t].accesses.address[i]));
        assert_eq!(order, [1, 2, 3, 11, 12, 4, 21]);
    }
}
