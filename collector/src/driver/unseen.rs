//! Threads of recorded processes that have no ring: nobody has told the runtime of them, so nothing of what they do is recorded.
//!
//! The runtime meets new threads at the system calls that make them. Where it cannot (code that is generated at run time, code that cannot be changed) the kernel's list of threads still shows
//! them. A thread counts when two looks in a row find it without a ring, so one that lives for less than the time between two looks is missed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// First and longest time between two looks.
const FIRST_LOOK: Duration = Duration::from_millis(20);
const LAST_LOOK: Duration = Duration::from_millis(200);
/// Processes that are looked at.
const MOST: usize = 256;

type Thread = (u32, u32);

/// See the module.
pub(super) struct Unseen {
    last: Instant,
    pause: Duration,
    /// All that ever had a ring.
    known: BTreeSet<Thread>,
    suspects: BTreeSet<Thread>,
    found: BTreeSet<Thread>,
}

impl Unseen {
    pub(super) fn new() -> Unseen {
        Unseen {
            last: Instant::now(),
            pause: FIRST_LOOK,
            known: BTreeSet::new(),
            suspects: BTreeSet::new(),
            found: BTreeSet::new(),
        }
    }

    /// Looks at the processes that have rings, if it is time: `rings` are the threads whose they are.
    pub(super) fn look(&mut self, rings: impl Iterator<Item = Thread>) {
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
            .take(MOST)
            .map(|&pid| (pid, tasks(pid)))
            .collect();
        self.compare(&now);
        // Of processes that are gone nothing will be asked.
        self.known
            .retain(|t| now.get(&t.0).is_none_or(|tasks| tasks.contains(&t.1)));
    }

    fn compare(&mut self, now: &BTreeMap<u32, Vec<u32>>) {
        let without: BTreeSet<Thread> = now
            .iter()
            .flat_map(|(&pid, tasks)| tasks.iter().map(move |&tid| (pid, tid)))
            .filter(|t| !self.known.contains(t) && !self.found.contains(t))
            .collect();
        let again = without.intersection(&self.suspects);
        self.found
            .extend(again.copied().filter(|t| is_running(t.0, t.1)));
        self.suspects = without;
    }

    /// How many there were.
    pub(super) fn count(&self) -> u64 {
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

/// Whether a thread has not ended: a process's first one stays in the list.
fn is_running(pid: u32, tid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).is_ok_and(|text| {
        let state = text
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.trim_start().chars().next());
        state.is_some_and(|s| !matches!(s, 'Z' | 'X' | 'x'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_count_when_they_are_found_twice_without_a_ring() {
        let own = std::process::id();
        let main = std::thread::spawn(move || {
            // SAFETY: no arguments.
            let here = unsafe { libc::gettid() } as u32;
            let mut unseen = Unseen::new();
            unseen.known.insert((own, own));
            let now = BTreeMap::from([(own, vec![own, here])]);
            unseen.compare(&now);
            assert_eq!(unseen.count(), 0);
            unseen.compare(&now);
            unseen.compare(&now);
            assert_eq!(unseen.count(), 1);
            // One that gets its ring between two looks is none.
            let mut late = Unseen::new();
            late.known.insert((own, own));
            late.compare(&now);
            late.known.insert((own, here));
            late.compare(&now);
            assert_eq!(late.count(), 0);
        });
        main.join().unwrap();
    }

    #[test]
    fn dead_threads_are_none() {
        assert!(is_running(std::process::id(), std::process::id()));
        assert!(!is_running(std::process::id(), u32::MAX));
    }
}
