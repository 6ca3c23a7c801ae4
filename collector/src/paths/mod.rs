//! Call paths of windows: the callers at the start of a window.
//!
//! The runtime copies the stack's top ([`mgz_abi::stack_log`]). A thread of the recorder unwinds
//! the copies while the program runs, since mappings go with the process, and keeps call stacks as
//! a tree ([`tree`]). Names come at the end ([`names`]), each address once, and with them inlined
//! functions. [`mod@write`] makes tables of it.
//!
//! Imported recordings have the kernel's call chains in place of copies (`crate::import::paths`).
//!
//! The recorder does not guess callers that a copy does not hold (the outer part of a deep stack),
//! or callers of code without unwind tables. Such a path begins at "callers unknown", and is
//! counted.

pub mod merge;
pub mod names;
pub mod tree;
pub mod waiting;
pub mod write;

use crate::objects::heap::unwind::{Top, Unwinders};
use crate::python::stacks::PythonStacks;
use crate::python::{PythonProcesses, RowChange};
use mgz_abi::python_frames::PythonFrame;
use mgz_abi::stack_log::{BEGIN, FORK, STACK_BYTES, WINDOW};
use std::collections::BTreeSet;
use std::path::PathBuf;
use tree::{NONE, Tree};

const MAX_FRAMES: usize = mgz_perf::records::MAX_CALL_CHAIN;
/// Bytes of a stack that are requested at first.
pub const FIRST_BYTES: usize = 4096 - 64;
/// Number of windows that decide if this is enough: it is not if the copies of more than a quarter
/// end too early. Source: Chosen.
const TRIAL_WINDOWS: u32 = 16;

/// Content of a cell of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StackCopy {
    /// `stack_log::WINDOW`, `BEGIN` or `FORK`.
    pub kind: u16,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// CLOCK_MONOTONIC.
    pub time: u64,
    /// Number of the window's first slot; of `FORK` the parent.
    pub first_slot: u64,
    /// The instruction that comes next.
    pub ip: u64,
    /// Stack pointer.
    pub sp: u64,
    /// The frame pointer's register.
    pub bp: u64,
    /// The stack from `sp` on, in words.
    pub stack: Vec<u64>,
    /// Python frames, innermost first.
    pub python: Vec<PythonFrame>,
}

/// The path of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WindowPath {
    /// Process.
    pub process: u32,
    /// Thread.
    pub thread: u32,
    /// CLOCK_MONOTONIC when its stack was copied, which is before its end.
    pub time: u64,
    /// Number of its first slot among all that its thread has written.
    pub first_slot: u64,
    /// Its innermost call in the tree; [`NONE`] if nothing was found.
    pub node: u32,
    /// The instruction that came next, where the process had it.
    pub ip: u64,
    /// Its innermost Python frame; [`NO_FRAME`](crate::python::stacks::NO_FRAME) if it has none.
    pub python: u32,
}

/// The recorded paths.
#[derive(Clone, Debug, Default)]
pub struct Paths {
    /// All calls.
    pub tree: Tree,
    /// All Python frames.
    pub python: PythonStacks,
    /// In the order of process, thread and time.
    pub windows: Vec<WindowPath>,
    /// Copies that found no room, or that their writer did not complete.
    pub lost: u64,
    /// True if a thread's slot numbers never repeat, so that they alone identify windows (imports,
    /// whose times may be unknown).
    pub numbered: bool,
    /// Files that are missing or have changed: only their sidecars name functions.
    pub elsewhere: BTreeSet<PathBuf>,
    /// Windows whose path ends at an address that follows no call.
    pub odd: u64,
    /// Windows whose path ends in a missing file.
    pub absent: u64,
}

impl Paths {
    /// The window with this first slot that ended then, if its stack was copied.
    pub fn of(&self, process: u32, thread: u32, first_slot: u64, end: u64) -> Option<&WindowPath> {
        let behind = match self.numbered {
            true => self.windows.partition_point(|w| {
                (w.process, w.thread, w.first_slot) <= (process, thread, first_slot)
            }),
            false => self
                .windows
                .partition_point(|w| (w.process, w.thread, w.time) <= (process, thread, end)),
        };
        let last = behind.checked_sub(1).and_then(|at| self.windows.get(at));
        last.filter(|w| (w.process, w.thread, w.first_slot) == (process, thread, first_slot))
    }
}

/// Collects paths while a program runs.
#[derive(Default)]
pub struct PathCollector {
    unwinders: Unwinders,
    python: PythonProcesses,
    tree: Tree,
    windows: Vec<WindowPath>,
    /// Counts of the last windows: all of them, and those whose copy ended too early.
    lesson: (u32, u32),
    /// Bytes requested; 0: [`FIRST_BYTES`].
    asked: usize,
}

impl PathCollector {
    /// Bytes of a stack that are to be copied from now on.
    pub fn wanted(&self) -> usize {
        self.asked.max(FIRST_BYTES)
    }

    fn learn(&mut self, short: bool) {
        self.lesson.0 += 1;
        self.lesson.1 += u32::from(short);
        if self.lesson.0 == TRIAL_WINDOWS {
            if self.lesson.1 * 4 > TRIAL_WINDOWS {
                self.asked = (self.wanted() * 2).min(STACK_BYTES);
            }
            self.lesson = (0, 0);
        }
    }

    /// Takes the runtime's reports.
    pub fn take(&mut self, copy: &StackCopy) {
        match copy.kind {
            BEGIN => {
                self.unwinders.begin(copy.pid);
                self.python.begin(copy.pid);
            }
            FORK => {
                let parent = copy.first_slot as u32;
                self.unwinders.fork(parent, copy.pid);
                self.python.fork(parent, copy.pid);
            }
            WINDOW => self.window(copy),
            // The program may have overwritten the log.
            _ => {}
        }
    }

    /// Rows of the runtime's table of Python processes that are to change.
    pub fn python_changes(&mut self) -> Vec<RowChange> {
        self.python.take_changes()
    }

    fn window(&mut self, copy: &StackCopy) {
        self.python.look_again(copy.pid);
        let top = Top {
            pid: copy.pid,
            ip: copy.ip,
            sp: copy.sp,
            bp: copy.bp,
            stack: &copy.stack,
        };
        let node = match self.unwinders.unwind(&top, MAX_FRAMES) {
            Some(found) => {
                self.learn(found.short);
                self.tree.add(&found)
            }
            None => NONE,
        };
        self.windows.push(WindowPath {
            process: copy.pid,
            thread: copy.tid,
            time: copy.time,
            first_slot: copy.first_slot,
            node,
            ip: copy.ip,
            python: self.python.node(copy.pid, &copy.python),
        });
    }

    /// All paths. `lost`: number of copies that were lost.
    pub fn finish(mut self, lost: u64) -> Paths {
        self.windows.sort_unstable();
        Paths {
            tree: self.tree,
            python: self.python.stacks,
            windows: self.windows,
            lost,
            ..Paths::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::python::stacks::NO_FRAME;

    #[test]
    fn more_is_asked_for_where_copies_end_too_early() {
        let mut collector = PathCollector::default();
        (0..100).for_each(|n| collector.learn(n % 8 == 0));
        assert_eq!(collector.wanted(), FIRST_BYTES);
        (0..16).for_each(|_| collector.learn(true));
        assert!(collector.wanted() > FIRST_BYTES);
        (0..1000).for_each(|_| collector.learn(true));
        assert_eq!(collector.wanted(), STACK_BYTES);
    }

    #[test]
    fn a_window_has_the_last_copy_before_its_end_if_that_is_its_own() {
        let window = |thread, time, first_slot, node| WindowPath {
            process: 1,
            thread,
            time,
            first_slot,
            node,
            ip: 0,
            python: NO_FRAME,
        };
        let paths = Paths {
            windows: vec![
                window(1, 10, 0, 4),
                window(1, 20, 1001, 5),
                window(1, 30, 2002, 6),
                // The same slot numbers come again after `exec`.
                window(1, 50, 0, 7),
                window(2, 15, 0, 8),
            ],
            ..Paths::default()
        };
        let of = |paths: &Paths, process, thread, slot, end| {
            paths
                .of(process, thread, slot, end)
                .map_or(NONE, |w| w.node)
        };
        assert_eq!(of(&paths, 1, 1, 0, 15), 4);
        assert_eq!(of(&paths, 1, 1, 1001, 25), 5);
        assert_eq!(of(&paths, 1, 1, 0, 60), 7);
        assert_eq!(of(&paths, 1, 2, 0, 90), 8);
        // Its copy was lost.
        assert_eq!(of(&paths, 1, 1, 3003, 45), NONE);
        assert_eq!(of(&paths, 1, 1, 0, 5), NONE);
        assert_eq!(of(&paths, 1, 3, 0, 90), NONE);
        assert_eq!(of(&Paths::default(), 1, 1, 0, 9), NONE);
    }
}
