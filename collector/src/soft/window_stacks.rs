//! Reads the copies of stacks that windows begin with, while the program runs.

use crate::paths::{Collector, Paths, StackCopy};
use crate::soft::shared_memory::Arena;
use crate::soft::shared_memory::stacks::Found;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A copy that its writer has claimed and not completed for so long is passed over.
const PATIENCE: Duration = Duration::from_secs(1);
/// Shortest and longest time between two looks.
const SHORT: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_millis(10);

/// Reads until it is over.
pub fn collect(arena: &Arena, over: &AtomicBool) -> Paths {
    let mut collector = Collector::default();
    let mut copy = StackCopy::default();
    let (mut at, mut lost) = (0, 0);
    let mut stuck: Option<Instant> = None;
    let mut pause = SHORT;
    loop {
        let last = over.load(Ordering::Acquire);
        let before = at;
        loop {
            match arena.stack_copy(at, &mut copy) {
                Found::Nothing => break,
                Found::Copy => {
                    collector.take(&copy);
                    arena.want_stacks(collector.wanted());
                }
                Found::Unfinished => {
                    let since = stuck.get_or_insert_with(Instant::now);
                    if !last && since.elapsed() < PATIENCE {
                        break;
                    }
                    lost += 1;
                }
            }
            stuck = None;
            at += 1;
            arena.stack_copies_read(at);
        }
        if last {
            return collector.finish(lost + arena.stack_copies_dropped());
        }
        pause = if at > before {
            SHORT
        } else {
            (pause * 2).min(LONG)
        };
        std::thread::sleep(pause);
    }
}
