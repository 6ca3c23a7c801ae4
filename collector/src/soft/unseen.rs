//! Threads of recorded processes that have no ring: the runtime does not know of them, so none of
//! their records exist.
//!
//! The runtime sees new threads at the system calls that make them. Where it cannot (code that is
//! generated at run time or cannot be changed), the kernel's list of threads still shows them. A
//! thread counts if several looks in a row find it without a ring, and it has used more CPU time
//! than the setup of a ring takes. So threads that live for a few looks only, or do nothing, are
//! missed. In a process that is recorded since it loaded an instrumented library, earlier threads
//! get their rings when they need them. They do not count.

use crate::target::proc_stat::ProcStat;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// First and longest time between two looks.
const FIRST_LOOK: Duration = Duration::from_millis(20);
const LAST_LOOK: Duration = Duration::from_millis(200);
/// Source: Chosen.
const MAX_PROCESSES: usize = 256;
/// Source: Chosen.
const LOOKS_IN_A_ROW: u32 = 3;
/// CPU time of a thread that could have got a ring, nanoseconds. Source: Chosen.
const MIN_CPU_NS: u64 = 10_000_000;

type Thread = (u32, u32);

/// See the module.
pub(crate) struct Unseen {
    last: Instant,
    pause: Duration,
    /// All threads that ever had a ring.
    known: BTreeSet<Thread>,
    /// Processes that began unrecorded, and true once their earlier threads are known.
    late: BTreeMap<u32, bool>,
    /// Number of looks at each thread without a ring.
    suspects: BTreeMap<Thread, u32>,
    found: BTreeSet<Thread>,
}

impl Unseen {
    pub(crate) fn new() -> Unseen {
        Unseen {
            last: Instant::now(),
            pause: FIRST_LOOK,
            known: BTreeSet::new(),
            late: BTreeMap::new(),
            suspects: BTreeMap::new(),
            found: BTreeSet::new(),
        }
    }

    /// A process has begun that is not recorded yet.
    pub(crate) fn begins_unrecorded(&mut self, pid: u32) {
        self.late.insert(pid, false);
    }

    /// Looks at the processes that have rings, if it is time. `rings`: the threads with rings.
    pub(crate) fn look(&mut self, rings: impl Iterator<Item = Thread>) {
        self.known.extend(rings.filter(|r| r.0 != 0));
        if self.last.elapsed() < self.pause {
            return;
        }
        self.last = Instant::now();
        self.pause = (self.pause + self.pause / 8).min(LAST_LOOK);
        let processes: BTreeSet<u32> = self.known.iter().map(|t| t.0).collect();
        let now: BTreeMap<u32, Vec<u32>> = processes
            .iter()
            .rev()
            .take(MAX_PROCESSES)
            .map(|&pid| (pid, tasks(pid)))
            .collect();
        for (pid, tasks) in &now {
            if let Some(known) = self.late.get_mut(pid).filter(|known| !**known) {
                *known = true;
                self.known.extend(tasks.iter().map(|&tid| (*pid, tid)));
            }
        }
        self.compare(&now);
        // Processes that are gone are not asked about again.
        self.known
            .retain(|t| now.get(&t.0).is_none_or(|tasks| tasks.contains(&t.1)));
    }

    fn compare(&mut self, now: &BTreeMap<u32, Vec<u32>>) {
        let without = now
            .iter()
            .flat_map(|(&pid, tasks)| tasks.iter().map(move |&tid| (pid, tid)))
            .filter(|t| !self.known.contains(t) && !self.found.contains(t));
        let suspects: BTreeMap<Thread, u32> = without
            .map(|t| (t, self.suspects.get(&t).map_or(1, |n| n + 1)))
            .collect();
        let long = suspects
            .iter()
            .filter(|(_, looks)| **looks >= LOOKS_IN_A_ROW);
        let found: Vec<Thread> = long
            .map(|(t, _)| *t)
            .filter(|t| run_time(t.0, t.1) >= MIN_CPU_NS)
            .collect();
        self.found.extend(found);
        self.suspects = suspects;
    }

    /// Number of these threads.
    pub(crate) fn count(&self) -> u64 {
        self.found.len() as u64
    }
}

fn tasks(pid: u32) -> Vec<u32> {
    let Ok(list) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    list.flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// CPU time of a thread, nanoseconds; 0 if it has ended (a process's first thread stays in the
/// list).
fn run_time(pid: u32, tid: u32) -> u64 {
    let Some(stat) = ProcStat::of_thread(pid, tid).ok().filter(|s| !s.has_ended) else {
        return 0;
    };
    let scheduled = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok();
    let precise = scheduled
        .as_deref()
        .and_then(|text| text.split_whitespace().next()?.parse().ok())
        .filter(|&ns: &u64| ns > 0);
    // A tick is usually 10 ms.
    precise.unwrap_or_else(|| 10_000_000 * stat.cpu_ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_count_when_they_run_for_several_looks_without_a_ring() {
        let own = std::process::id();
        let main = std::thread::spawn(move || {
            // SAFETY: no arguments.
            let here = unsafe { libc::gettid() } as u32;
            let now = BTreeMap::from([(own, vec![own, here])]);
            let looks = |unseen: &mut Unseen, n| (0..n).for_each(|_| unseen.compare(&now));
            let mut idle = Unseen::new();
            idle.known.insert((own, own));
            looks(&mut idle, 5);
            assert_eq!(idle.count(), 0, "it has done nothing");
            let mut sum = 0u64;
            while run_time(own, here) < 2 * MIN_CPU_NS {
                sum = sum.wrapping_mul(31).wrapping_add(7);
            }
            let mut unseen = Unseen::new();
            unseen.known.insert((own, own));
            looks(&mut unseen, LOOKS_IN_A_ROW - 1);
            assert_eq!(unseen.count(), 0);
            looks(&mut unseen, 3);
            assert_eq!(unseen.count(), 1, "{sum}");
            // A thread that gets its ring between two looks does not count.
            let mut late = Unseen::new();
            late.known.insert((own, own));
            looks(&mut late, LOOKS_IN_A_ROW - 1);
            late.known.insert((own, here));
            looks(&mut late, 3);
            assert_eq!(late.count(), 0);
        });
        main.join().unwrap();
    }

    #[test]
    fn dead_threads_use_no_time() {
        assert_eq!(run_time(std::process::id(), u32::MAX), 0);
    }
}
