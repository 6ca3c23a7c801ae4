//! `--exit-after`: the end of a program of which all has been recorded.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Time that a program has for its own end. Source: Chosen.
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

    /// Asks the program and the processes that are recorded to end; makes them, if they have not
    /// done it in time.
    pub(crate) fn tick(&mut self, program: u32, recorded: &BTreeSet<u32>) {
        let signal = match self.asked {
            None => libc::SIGTERM,
            Some(asked) if asked.elapsed() >= MAX_WAIT_FOR_END => libc::SIGKILL,
            Some(_) => return,
        };
        self.asked.get_or_insert_with(Instant::now);
        // The program is our child, not yet waited for, so that its number is its own. The others
        // are threads' owners that were just seen in the shared memory; nonsense there must not
        // make it a group, or us.
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
