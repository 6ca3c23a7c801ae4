//! Names of threads, as the kernel has them.
//!
//! A thread may name itself some time after its start, so each is read again, at growing intervals.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

/// Time between the first looks at a thread. Source: Chosen.
const FIRST_LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// Source: Chosen.
const MAX_LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// The known state of a thread's name.
struct Known {
    name: String,
    looked: Instant,
    pause: Duration,
}

/// Names by process and thread.
#[derive(Default)]
pub(crate) struct ThreadNames(BTreeMap<(u32, u32), Known>);

impl ThreadNames {
    /// These threads are there now.
    pub(crate) fn living(&mut self, threads: &HashSet<(u32, u32)>) {
        for &(process, thread) in threads {
            self.look(process, thread);
        }
    }

    /// Looks at a thread whose turn it is.
    pub(crate) fn look(&mut self, process: u32, thread: u32) {
        let now = Instant::now();
        let known = self.0.entry((process, thread)).or_insert_with(|| Known {
            name: String::new(),
            looked: now,
            pause: Duration::ZERO,
        });
        if now.duration_since(known.looked) < known.pause {
            return;
        }
        known.looked = now;
        known.pause = (known.pause * 2).clamp(FIRST_LOOK_INTERVAL, MAX_LOOK_INTERVAL);
        // A thread that has ended keeps the last name seen.
        if let Ok(name) = std::fs::read(format!("/proc/{process}/task/{thread}/comm")) {
            let name = String::from_utf8_lossy(&name);
            known.name = name.trim_end_matches('\n').to_string();
        }
    }

    /// The name of a thread; empty if unknown.
    pub(crate) fn of(&self, process: u32, thread: u32) -> String {
        let known = self.0.get(&(process, thread));
        known.map_or_else(String::new, |k| k.name.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_that_a_thread_gives_itself_is_seen() {
        let mut names = ThreadNames::default();
        let named = std::thread::Builder::new().name("number seven".into());
        let (tell, told) = std::sync::mpsc::channel();
        let (release, wait) = std::sync::mpsc::channel::<()>();
        let thread = named.spawn(move || {
            // SAFETY: the call has no arguments.
            let id = unsafe { libc::syscall(libc::SYS_gettid) };
            tell.send(id as u32).unwrap();
            let _ = wait.recv();
        });
        let id = told.recv().unwrap();
        names.look(std::process::id(), id);
        assert_eq!(names.of(std::process::id(), id), "number seven");
        assert_eq!(names.of(1, u32::MAX), "");
        drop(release);
        thread.unwrap().join().unwrap();
    }
}
