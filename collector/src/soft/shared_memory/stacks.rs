//! The log of stacks in the shared memory.

use crate::paths::StackCopy;
use crate::python::RowChange;
use crate::soft::shared_memory::SharedMemory;
use mgz_abi::python_frames::{PYTHON_FRAMES, PythonFrame};
use mgz_abi::stack_log::{CELLS, STACK_BYTES, StackCell, StackLog};
use std::sync::atomic::Ordering;

/// State of a position of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackLogEntry {
    /// No entry yet.
    Nothing,
    /// An entry that is being written.
    Unfinished,
    /// A copy.
    Copy,
}

impl SharedMemory {
    fn stack_log(&self) -> *mut StackLog {
        // SAFETY: a field of the header in the mapping; no reference is made.
        unsafe { &raw mut (*self.header()).stack_log }
    }

    /// Requests copies of this many bytes of each stack; to be called before the first process
    /// starts.
    pub fn want_stacks(&self, bytes: usize) {
        // SAFETY: an atomic in the mapping.
        unsafe { &(*self.stack_log()).wanted }.store(bytes as u64, Ordering::Relaxed);
    }

    /// Requests a watch after one in `every` windows; to be called before the first process starts.
    pub fn want_reuses(&self, every: u64) {
        // SAFETY: an atomic in the mapping.
        unsafe { &(*self.stack_log()).watch_every }.store(every, Ordering::Relaxed);
    }

    /// Tells processes where they keep their Python frames.
    pub fn set_python(&self, changes: &[RowChange]) {
        // SAFETY: atomics in the mapping.
        let table = unsafe { &(*self.stack_log()).python };
        for change in changes {
            table.set(change.row, change.pid, change.layout.as_ref());
        }
    }

    /// Reads the copy at a position, if it is there.
    pub fn stack_copy(&self, at: u64, out: &mut StackCopy) -> StackLogEntry {
        let log = self.stack_log();
        // SAFETY: an atomic in the mapping.
        let head = unsafe { &(*log).head }.load(Ordering::Acquire);
        // The program may have overwritten either.
        if at >= head || head - at > CELLS as u64 {
            return StackLogEntry::Nothing;
        }
        // SAFETY: a cell in the mapping; no reference is made but to its atomic.
        let cell = unsafe { &raw mut (*log).cells[(at % CELLS as u64) as usize] };
        // SAFETY: an atomic in the mapping.
        let ready = || unsafe { &(*cell).ready }.load(Ordering::Acquire);
        if ready() != at + 1 {
            return StackLogEntry::Unfinished;
        }
        // SAFETY: plain integers in the mapping, for which every bit pattern is valid. They may
        // change while they are read, so each is read once.
        let (bytes, frames) = unsafe {
            out.kind = (&raw const (*cell).kind).cast::<u16>().read_volatile();
            out.pid = (&raw const (*cell).pid).cast::<u32>().read_volatile();
            out.tid = (&raw const (*cell).tid).cast::<u32>().read_volatile();
            out.time = (&raw const (*cell).time).cast::<u64>().read_volatile();
            out.first_slot = (&raw const (*cell).first_slot)
                .cast::<u64>()
                .read_volatile();
            out.ip = (&raw const (*cell).ip).cast::<u64>().read_volatile();
            out.sp = (&raw const (*cell).sp).cast::<u64>().read_volatile();
            out.bp = (&raw const (*cell).bp).cast::<u64>().read_volatile();
            let frames = (&raw const (*cell).python_frames).cast::<u16>();
            let bytes = (&raw const (*cell).bytes).cast::<u32>();
            (bytes.read_volatile(), frames.read_volatile())
        };
        out.stack.clear();
        out.stack.extend(words(cell, bytes as usize));
        out.python.clear();
        out.python.extend(python_frames(cell, frames.into()));
        StackLogEntry::Copy
    }

    /// Frees the places of all copies before this one for writers.
    pub fn stack_copies_read(&self, at: u64) {
        // SAFETY: an atomic in the mapping.
        unsafe { &(*self.stack_log()).tail }.store(at, Ordering::Release);
    }

    /// Copies that found no room.
    pub fn stack_copies_dropped(&self) -> u64 {
        // SAFETY: an atomic in the mapping.
        unsafe { &(*self.stack_log()).dropped }.load(Ordering::Relaxed)
    }
}

/// The words of a copy of this many bytes, at most those of a cell.
fn words(cell: *const StackCell, bytes: usize) -> impl Iterator<Item = u64> {
    // SAFETY: a field of a cell in the mapping; no reference is made.
    let first = unsafe { (&raw const (*cell).stack).cast::<u64>() };
    // SAFETY: the word lies in the cell, which holds STACK_BYTES; their place is a multiple of 8.
    (0..bytes.min(STACK_BYTES) / 8).map(move |word| unsafe { first.add(word).read_volatile() })
}

/// This many Python frames of a cell, at most those that it has.
fn python_frames(cell: *const StackCell, frames: usize) -> impl Iterator<Item = PythonFrame> {
    // SAFETY: a field of a cell in the mapping; no reference is made.
    let first = unsafe { (&raw const (*cell).python).cast::<PythonFrame>() };
    // SAFETY: the frame lies in the cell, which holds PYTHON_FRAMES.
    (0..frames.min(PYTHON_FRAMES)).map(move |at| unsafe { first.add(at).read_volatile() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::soft::shared_memory::Settings;

    /// Writes as the runtime does; without `complete`, as if its writer had died.
    fn write(shared: &SharedMemory, sp: u64, bytes: u32, complete: bool) {
        let log = shared.stack_log();
        // SAFETY: the test's own mapping.
        unsafe {
            let at = (*log).head.fetch_add(1, Ordering::Relaxed);
            let cell = &(*log).cells[at as usize % CELLS];
            cell.sp.set(sp);
            cell.bytes.set(bytes);
            cell.python_frames
                .set(if bytes == u32::MAX { u16::MAX } else { 1 });
            cell.stack.get().cast::<u64>().write(sp ^ 7);
            if complete {
                cell.ready.store(at + 1, Ordering::Release);
            }
        }
    }

    #[test]
    fn copies_come_out_in_order_over_many_laps_and_no_length_is_believed() {
        let shared = SharedMemory::new(Settings::ring(100_000, 1000).unwrap()).unwrap();
        let mut copy = StackCopy::default();
        assert_eq!(shared.stack_copy(0, &mut copy), StackLogEntry::Nothing);
        for at in 0..5 * CELLS as u64 {
            let bytes = if at % 3 == 0 { u32::MAX } else { 24 };
            write(&shared, at * 8, bytes, true);
            assert_eq!(shared.stack_copy(at, &mut copy), StackLogEntry::Copy);
            assert_eq!((copy.sp, copy.stack[0]), (at * 8, (at * 8) ^ 7));
            let words = if at % 3 == 0 { STACK_BYTES / 8 } else { 3 };
            assert_eq!(copy.stack.len(), words);
            let frames = if at % 3 == 0 { PYTHON_FRAMES } else { 1 };
            assert_eq!(copy.python.len(), frames);
            assert_eq!(shared.stack_copy(at + 1, &mut copy), StackLogEntry::Nothing);
        }
        write(&shared, 0, 8, false);
        assert_eq!(
            shared.stack_copy(5 * CELLS as u64, &mut copy),
            StackLogEntry::Unfinished
        );
    }
}
