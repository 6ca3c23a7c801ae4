//! Reads the runtime's log of windows while the program runs: copies of the stacks that they begin
//! with, and the ends of watches for reuse behind them.

use crate::pairs::{self, WatchEnd};
use crate::paths::{self, Paths, StackCopy};
use crate::soft::shared_memory::SharedMemory;
use crate::soft::shared_memory::stacks::StackLogEntry;
use mgz_abi::stack_log::REUSE;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A copy that is claimed but not complete is skipped after this time. Source: Chosen.
const MAX_WAIT_FOR_WRITER: Duration = Duration::from_secs(1);
/// Source: Chosen.
const MIN_LOOK_INTERVAL: Duration = Duration::from_millis(1);
/// Source: Chosen.
const MAX_LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// Kinds of logs of windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OfWindows {
    /// Call stacks when windows begin.
    pub stacks: bool,
    /// Watches for the next access to words of the windows.
    pub reuses: bool,
}

impl OfWindows {
    /// True if there is a log at all.
    pub fn any(self) -> bool {
        self.stacks || self.reuses
    }
}

/// Contents of the log.
#[derive(Clone, Debug, Default)]
pub struct WindowLog {
    /// Call paths of windows, if they were requested.
    pub paths: Option<Paths>,
    /// Results of watches.
    pub watches: Vec<WatchEnd>,
    /// Entries that found no room, or that their writer did not complete.
    pub lost: u64,
}

/// Reads until it is over.
pub fn collect(shared: &SharedMemory, wanted: OfWindows, over: &AtomicBool) -> WindowLog {
    let mut stacks = paths::PathCollector::default();
    let mut watches = pairs::PairCollector::default();
    let mut copy = StackCopy::default();
    let (mut at, mut lost) = (0, 0);
    let mut stuck: Option<Instant> = None;
    let mut pause = MIN_LOOK_INTERVAL;
    loop {
        let last = over.load(Ordering::Acquire);
        let before = at;
        loop {
            match shared.stack_copy(at, &mut copy) {
                StackLogEntry::Nothing => break,
                StackLogEntry::Copy if copy.kind == REUSE => watches.take(&copy),
                StackLogEntry::Copy => {
                    stacks.take(&copy);
                    shared.set_python(&stacks.python_changes());
                    if wanted.stacks {
                        shared.want_stacks(stacks.wanted());
                    }
                }
                StackLogEntry::Unfinished => {
                    let since = stuck.get_or_insert_with(Instant::now);
                    if !last && since.elapsed() < MAX_WAIT_FOR_WRITER {
                        break;
                    }
                    lost += 1;
                }
            }
            stuck = None;
            at += 1;
            shared.stack_copies_read(at);
        }
        if last {
            let lost = lost + shared.stack_copies_dropped();
            return WindowLog {
                paths: wanted.stacks.then(|| stacks.finish(lost)),
                watches: watches.finish(),
                lost,
            };
        }
        pause = if at > before {
            MIN_LOOK_INTERVAL
        } else {
            (pause * 2).min(MAX_LOOK_INTERVAL)
        };
        std::thread::sleep(pause);
    }
}
