//! `--exit-after`: the end of a program that is completely recorded.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Time that a program has to end by itself. Source: Chosen.
const MAX_WAIT_FOR_END: Duration = Duration::from_secs(2);

/// Progress of the end.
#[derive(Default)]
pub(crate) struct Ending {
    asked: Option<Instant>,
}

impl Ending {
    /// True if the program was asked to end.
    pub(crate) fn begun(&self) -> bool {
        self.asked.is_some()
    }

    /// Asks the program and the recorded processes to end. Kills them if they have not ended in
    /// time.
    pub(crate) fn tick(&mut self, program: u32, recorded: &BTreeSet<u32>) {
        let signal = match self.asked {
            None => libc::SIGTERM,
            Some(asked) if asked.elapsed() >= MAX_WAIT_FOR_END => libc::SIGKILL,
            Some(_) => return,
        };
        self.asked.get_or_insert_with(Instant::now);
        // The program is our child and not yet waited for, so its id is valid. The other ids are
        // from the shared memory. An invalid one must not select a process group, or the recorder
        // itself.
        let own = std::process::id();
        let others = recorded
            .iter()
            .copied()
            .filter(|&p| p != program && p != own && p > 1 && p <= i32::MAX as u32);
        for process in std::iter::once(program).chain(others) {
            // SAFETY: a call with plain numbers.
            unsafe { libc::kill(process as libc::pid_t, signal) };
        }
    }
}
