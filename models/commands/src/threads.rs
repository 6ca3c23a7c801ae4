//! All accesses of a trace in memory, by thread, and their orders: recorded, interleaved, or mimicked.

use mgz_analyzer::commands::ensure_accesses;
use mgz_analyzer::commands::stream::{AccessSegment, Accesses};
use mgz_analyzer::commands::visit;
use mgz_analyzer::input::{ColumnSet, Trace};
use mgz_analyzer::output::document::Document;
use mgz_analyzer::util::due::Due;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// One thread.
#[derive(Default)]
pub struct Thread {
    /// System process id.
    pub process: u32,
    /// System thread id.
    pub thread: u32,
    /// Accesses in order.
    pub accesses: Accesses,
    /// Points with a known recorded time: (access, time), ascending.
    pub marks: Vec<(usize, u64)>,
}

impl Thread {
    /// When an access ran, at the earliest.
    pub fn earliest(&self, access: usize) -> u64 {
        let behind = self.marks.partition_point(|m| m.0 <= access);
        behind.checked_sub(1).map_or(0, |at| self.marks[at].1)
    }

    /// When an access ran, at the latest.
    pub fn latest(&self, access: usize) -> u64 {
        let behind = self.marks.partition_point(|m| m.0 < access);
        self.marks.get(behind).map_or(u64::MAX, |m| m.1)
    }
}

/// Most accesses that are taken into memory (16 bytes each).
const MOST: u64 = 1 << 30;

/// Reads all accesses. Also gives the implied Constant loads, and whether something could not be read.
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
            if count > MOST || view.is_empty() {
                return;
            }
            if let Some(thread) = threads.last_mut() {
                thread
                    .marks
                    .push((thread.accesses.address.len(), run.first_time));
                thread.accesses.extend(view);
                thread
                    .marks
                    .push((thread.accesses.address.len() - 1, run.last_time));
            }
        },
    );
    ensure_accesses(count, trace)?;
    anyhow::ensure!(
        count <= MOST,
        "{}: {count} accesses are more than the {MOST} that are taken into memory; record a shorter run",
        trace.folder.display()
    );
    Ok((threads, implied, damaged))
}

/// Calls `next(thread, access)` for all accesses in the order of their recorded times (linear
/// between known ones).
pub fn recorded(threads: &[Thread], mut next: impl FnMut(usize, usize)) {
    let time = |thread: usize, access: usize, mark: &mut usize| -> f64 {
        let marks = &threads[thread].marks;
        while *mark + 1 < marks.len() && marks[*mark + 1].0 < access {
            *mark += 1;
        }
        let (from, start) = marks[*mark];
        let (to, end) = marks.get(*mark + 1).copied().unwrap_or((from, start));
        let part = if to > from {
            (access - from) as f64 / (to - from) as f64
        } else {
            0.0
        };
        start as f64 + (end.saturating_sub(start)) as f64 * part
    };
    let mut marks = vec![0usize; threads.len()];
    let mut done = vec![0usize; threads.len()];
    let mut waiting: BinaryHeap<Reverse<Due>> = (0..threads.len())
        .filter(|&t| !threads[t].accesses.address.is_empty())
        .map(|t| Reverse(Due(time(t, 0, &mut marks[t]), t)))
        .collect();
    while let Some(Reverse(Due(_, thread))) = waiting.pop() {
        // The thread that is due goes on until another one is.
        let limit = waiting.peek().map_or(f64::INFINITY, |w| w.0.0);
        let length = threads[thread].accesses.address.len();
        loop {
            next(thread, done[thread]);
            done[thread] += 1;
            if done[thread] == length {
                break;
            }
            let due = time(thread, done[thread], &mut marks[thread]);
            if due > limit {
                waiting.push(Reverse(Due(due, thread)));
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_times_order_the_threads() {
        let thread = |addresses: &[u64], times: (u64, u64)| Thread {
            accesses: Accesses {
                address: addresses.to_vec(),
                size: vec![1; addresses.len()],
                group: vec![0; addresses.len()],
            },
            marks: vec![(0, times.0), (addresses.len() - 1, times.1)],
            ..Thread::default()
        };
        // Thread 0 at times 0, 10, 20, 30; thread 1 at 5, 15; thread 2 at 100.
        let threads = [
            thread(&[1, 2, 3, 4], (0, 30)),
            thread(&[11, 12], (5, 15)),
            thread(&[21], (100, 100)),
        ];
        let mut order = Vec::new();
        recorded(&threads, |t, i| order.push(threads[t].accesses.address[i]));
        assert_eq!(order, [1, 11, 2, 12, 3, 4, 21]);
    }
}
