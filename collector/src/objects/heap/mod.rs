//! Heap blocks by allocation site, for `objects.parquet`.
//!
//! The runtime that is preloaded for `--heap` writes each call of the allocator into a ring
//! ([`log`]), with a copy of the stack's top. A thread of the recorder reads it, unwinds the copies
//! by the unwind tables of the mapped files ([`unwind`]), and keeps the lives of blocks
//! ([`lives`]). Names come at the end ([`names`]), for each call stack once, and the types of the
//! blocks ([`allocated`]).
//!
//! Two facts make this hard. Everything is read while the processes go on, so mappings may be gone.
//! And programs allocate millions of times a second. So the same stack is unwound once, and blocks
//! that follow one another at the same place from the same stack are one life with a count.

pub mod allocated;
pub mod blocks;
mod flow;
pub mod generated_frames;
pub mod hooks;
pub mod lives;
pub mod log;
pub mod names;
mod scope;
pub mod unwind;

use blocks::HeapBlocks;
use lives::Lives;
use log::{HeapLogRecord, HeapSpent, Log};
use mgz_abi::heap_log::{ALL, ALLOC, BEGIN, BUDGET, FORK, FREE, SAMPLE};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use unwind::{Stacks, Unwinders};

/// A call site: a file and an address as linked.
pub use unwind::CallFrame;

/// Blocks, and the call stacks that made them.
#[derive(Clone, Debug, Default)]
pub struct Heap {
    /// The blocks at each address over time.
    pub lives: Vec<lives::Life>,
    /// Call stacks, from the inside out; lives name them by number.
    pub stacks: Vec<Vec<CallFrame>>,
    /// Small blocks are a sample.
    pub sampled: bool,
    /// Allocations that were told.
    pub allocations: u64,
    /// Events that were lost: no room for seconds, or the process died while it wrote.
    pub lost: u64,
    /// Lives that were given up since there were too many.
    pub forgotten: u64,
    /// The account, where logging had a budget.
    pub spent: Option<HeapSpent>,
}

/// The log, and the data read from it.
pub struct HeapCollector {
    log: Log,
    which: u32,
}

impl HeapCollector {
    /// Makes the log of these blocks. `marks`: events are marked in the record streams of their
    /// threads.
    pub fn new(blocks: HeapBlocks, marks: bool) -> io::Result<HeapCollector> {
        let which = match blocks {
            HeapBlocks::Sampled => SAMPLE,
            HeapBlocks::All => ALL,
            HeapBlocks::Budget => BUDGET,
        };
        Ok(HeapCollector {
            log: Log::new(which, marks)?,
            which,
        })
    }

    /// The path by which traced processes open it.
    pub fn path(&self) -> String {
        self.log.path()
    }

    /// Reads until it is over.
    pub fn collect(&self, over: &AtomicBool) -> Heap {
        let mut state = State::default();
        state.lives.joins_certain = self.which != BUDGET;
        let mut reader = self.log.reader();
        let patience = Duration::from_micros(if self.which == BUDGET { 2000 } else { 200 });
        loop {
            let last = over.load(Ordering::Acquire);
            if last {
                self.log.close();
            }
            let mut any = false;
            while let Some(record) = reader.next(last) {
                any = true;
                state.take(&record);
                reader.done();
            }
            if last {
                let mut heap = state.finish(reader.lost() + self.log.dropped());
                heap.sampled = self.which != ALL;
                heap.spent = (self.which == BUDGET).then(|| self.log.spent());
                return heap;
            }
            if !any {
                self.log.wait(patience);
            }
        }
    }
}

#[derive(Default)]
struct State {
    unwinders: Unwinders,
    stacks: Stacks,
    lives: Lives,
    allocations: u64,
}

impl State {
    fn take(&mut self, record: &HeapLogRecord<'_>) {
        match record.kind {
            BEGIN => {
                self.lives.begin(record.pid, record.ns);
                self.unwinders.begin(record.pid);
            }
            FORK => {
                let parent = record.address as u32;
                self.lives.fork(parent, record.pid, record.ns);
                self.unwinders.fork(parent, record.pid);
            }
            ALLOC => {
                self.allocations += 1;
                let stack = self.unwinders.stack(record, &mut self.stacks);
                self.lives.alloc(
                    record.pid,
                    record.address,
                    record.bytes,
                    record.ns,
                    stack,
                    record.weight,
                );
            }
            FREE => self.lives.free(record.pid, record.address, record.ns),
            // The program can scribble over the log.
            _ => {}
        }
    }

    fn finish(self, lost: u64) -> Heap {
        let (lives, forgotten) = self.lives.finish();
        Heap {
            lives,
            sampled: false,
            stacks: self.stacks.list,
            allocations: self.allocations,
            lost,
            forgotten,
            spent: None,
        }
    }
}
