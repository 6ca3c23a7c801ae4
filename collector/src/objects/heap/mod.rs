//! Heap blocks by allocation site, for `objects.parquet`.
//!
//! The runtime that is preloaded for `--heap` writes each call of the allocator into a ring
//! ([`log`]), with a copy of the stack's top. A thread of the recorder reads it, unwinds the copies
//! by the unwind tables of the mapped files ([`unwind`]), and keeps the lives of blocks
//! ([`lives`]). Names come at the end ([`names`]), for each call stack once, and the types of the
//! blocks ([`allocated`]).
//!
//! Two facts make this hard. The processes run on while the log is read, so mappings may be gone.
//! And programs allocate millions of times a second. So each different stack is unwound once, and
//! blocks that follow one another at the same place from the same stack are one life with a count.

pub mod allocated;
pub mod blocks;
pub mod call_frame;
mod flow;
pub mod generated_frames;
pub mod hooks;
pub mod lives;
pub mod log;
pub mod names;
mod scope;
pub mod unwind;

use crate::python::PythonProcesses;
use crate::python::stacks::NO_FRAME;
use blocks::HeapBlocks;
use lives::Lives;
use log::{HeapLogRecord, HeapSpent, Log};
use mgz_abi::heap_log::HEAP_PYTHON_FRAMES;
use mgz_abi::heap_log::{ALL, ALLOC, BEGIN, BUDGET, FORK, FREE, SAMPLE};
use mgz_abi::python_frames::PythonFrame;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use unwind::{Stacks, Unwinders};

/// A call site: a file and an address as linked.
pub use crate::objects::heap::call_frame::CallFrame;

/// Maximum age of the names of Python frames in a process. Source: Chosen; code that is freed is
/// seldom replaced within this time.
const MAX_AGE: Duration = Duration::from_millis(100);
/// Maximum number of recent look-ups. Source: Chosen.
const MAX_RECENT: usize = 1 << 16;

/// Blocks, and the call stacks that made them.
#[derive(Clone, Debug, Default)]
pub struct Heap {
    /// The blocks at each address over time.
    pub lives: Vec<lives::Life>,
    /// Call stacks, from the inside out; lives name them by number.
    pub stacks: Vec<Vec<CallFrame>>,
    /// True if small blocks are a sample.
    pub sampled: bool,
    /// Number of allocations reported.
    pub allocations: u64,
    /// Number of events lost: there was no room for seconds, or the process died while it wrote.
    pub lost: u64,
    /// Number of lives given up because there were too many.
    pub forgotten: u64,
    /// Spending of the budget, if logging had one.
    pub spent: Option<HeapSpent>,
}

/// The log, and the data read from it.
pub struct HeapCollector {
    log: Log,
    which: u32,
}

impl HeapCollector {
    /// Makes the log for these blocks. `marks`: events are marked in the record streams of their
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
                self.log.set_python(&state.python.take_changes());
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
    python: PythonProcesses,
    /// Nodes of Python frames by process and frames, and when they were looked up.
    recent: HashMap<(u32, NotedFrames), (u32, Instant)>,
    /// Call stacks with Python frames, by the number of the machine's stack and the node.
    with_python: HashMap<(u32, u32), u32>,
}

/// Python frames of an allocation, the rest of them empty.
type NotedFrames = [PythonFrame; HEAP_PYTHON_FRAMES];

impl State {
    fn take(&mut self, record: &HeapLogRecord<'_>) {
        match record.kind {
            BEGIN => {
                self.lives.begin(record.pid, record.ns);
                self.unwinders.begin(record.pid);
                self.python.begin(record.pid);
            }
            FORK => {
                let parent = record.address as u32;
                self.lives.fork(parent, record.pid, record.ns);
                self.unwinders.fork(parent, record.pid);
                self.python.fork(parent, record.pid);
            }
            ALLOC => {
                self.allocations += 1;
                let stack = self.unwinders.stack(record, &mut self.stacks);
                let stack = self.with_python(stack, record);
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
            // The program may have overwritten the log.
            _ => {}
        }
    }

    /// Number of the call stack with the Python frames of an allocation appended.
    fn with_python(&mut self, stack: u32, record: &HeapLogRecord<'_>) -> u32 {
        self.python.look_again(record.pid);
        let node = self.node(record);
        if node == NO_FRAME {
            return stack;
        }
        if let Some(&number) = self.with_python.get(&(stack, node)) {
            return number;
        }
        let mut frames = self.stacks.list[stack as usize].clone();
        let found = &self.python.stacks;
        frames.extend(found.outwards(node).map(|frame| CallFrame {
            address: frame.line.into(),
            python: Some(Arc::new(found.codes[frame.code as usize].clone())),
            ..CallFrame::default()
        }));
        let number = self.stacks.number(frames);
        self.with_python.insert((stack, node), number);
        number
    }

    fn node(&mut self, record: &HeapLogRecord<'_>) -> u32 {
        if record.python.is_empty() {
            return NO_FRAME;
        }
        let mut frames = NotedFrames::default();
        for (place, frame) in frames.iter_mut().zip(record.python) {
            *place = *frame;
        }
        let now = Instant::now();
        let key = (record.pid, frames);
        if let Some(&(node, looked)) = self.recent.get(&key)
            && now.duration_since(looked) < MAX_AGE
        {
            return node;
        }
        let node = self.python.node(record.pid, record.python);
        if self.recent.len() >= MAX_RECENT {
            self.recent.clear();
        }
        self.recent.insert(key, (node, now));
        node
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
