//! Python frames at the start of windows: their location in a process, and the data logged for
//! each.
//!
//! CPython keeps the frames of a thread as a linked list, whose layout differs between versions.
//! The recorder finds the interpreter of a process and writes its [`FrameLayout`] into a
//! [`PythonRow`]. The runtime follows the list and logs two words per frame. It does not depend on
//! the version.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Maximum number of frames logged per window, innermost first.
pub const PYTHON_FRAMES: usize = 128;
/// Maximum number of Python processes at a time. Frames of others are not logged.
pub const PYTHON_ROWS: usize = 64;
/// The value of an offset in [`FrameLayout`] if the version lacks the field.
pub const NO_FIELD: u64 = u64::MAX;
/// Bit of [`PythonFrame::instruction`]: C code has entered the interpreter through this frame.
pub const ENTRY_FRAME: u64 = 1 << 63;

/// A Python frame.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PythonFrame {
    /// Address of the frame's code object.
    pub code: u64,
    /// The instruction in the frame's format: an address, or an index in 32 bits; perhaps with
    /// [`ENTRY_FRAME`].
    pub instruction: u64,
}

/// Offsets of the fields that lead to the frames of a thread.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameLayout {
    /// Address of the pointer to the first interpreter.
    pub interpreters: u64,
    /// Interpreter: offset of the next one.
    pub next_interpreter: u64,
    /// Interpreter: offset of its first thread.
    pub threads: u64,
    /// Thread: offset of the next one.
    pub next_thread: u64,
    /// Thread: offset of its `pthread_t`.
    pub thread_id: u64,
    /// Thread: offset of the pointer to its frame, or to the holder of that.
    pub frame: u64,
    /// Holder: offset of the pointer to the frame; [`NO_FIELD`]: there is no holder.
    pub held_frame: u64,
    /// Frame: offset of its caller.
    pub previous: u64,
    /// Frame: offset of the code object's address, whose low bits may be a tag.
    pub code: u64,
    /// Frame: offset of the instruction.
    pub instruction: u64,
    /// Bytes of the instruction: 4 or 8.
    pub instruction_bytes: u64,
    /// Frame: offset of the byte that is set if C code has entered through it; [`NO_FIELD`]: there
    /// is none.
    pub is_entry: u64,
    /// Frame: offset of the byte that names its owner; [`NO_FIELD`]: there is none.
    pub owner: u64,
}

/// Fields of [`FrameLayout`].
const FIELDS: usize = size_of::<FrameLayout>() / 8;

impl FrameLayout {
    /// Frames with this or a greater owner are not Python: C code enters the interpreter through
    /// them.
    pub const ENTRY_OWNER: u8 = 3;
    /// Low bits of a code object's address that may be a tag.
    pub const TAG_BITS: u64 = 7;

    fn words(&self) -> [u64; FIELDS] {
        // SAFETY: the struct consists of `FIELDS` numbers of 64 bits, laid out as in C.
        unsafe { core::mem::transmute(*self) }
    }

    fn from_words(words: [u64; FIELDS]) -> FrameLayout {
        // SAFETY: see `words`. Each field may have any value.
        unsafe { core::mem::transmute(words) }
    }
}

/// The layout of a process. The recorder writes it, the process reads it.
#[repr(C)]
#[derive(Default)]
pub struct PythonRow {
    /// System process id; 0: the row is free.
    pub pid: AtomicU32,
    words: [AtomicU64; FIELDS],
}

impl PythonRow {
    /// Sets the row.
    pub fn set(&self, pid: u32, layout: &FrameLayout) {
        self.pid.store(0, Ordering::Release);
        for (word, value) in self.words.iter().zip(layout.words()) {
            word.store(value, Ordering::Relaxed);
        }
        self.pid.store(pid, Ordering::Release);
    }

    /// Frees the row.
    pub fn clear(&self) {
        self.pid.store(0, Ordering::Release);
    }

    /// The layout, if the row belongs to this process.
    pub fn of(&self, pid: u32) -> Option<FrameLayout> {
        if self.pid.load(Ordering::Acquire) != pid {
            return None;
        }
        let mut words = [0; FIELDS];
        for (value, word) in words.iter_mut().zip(&self.words) {
            *value = word.load(Ordering::Acquire);
        }
        // The recorder may have given the row to another process in between.
        (self.pid.load(Ordering::Relaxed) == pid).then(|| FrameLayout::from_words(words))
    }
}

/// The layouts of several processes.
#[repr(C)]
pub struct PythonTable<const ROWS: usize> {
    /// Number of rows used so far, from the first on. Without Python it is 0, so lookups are fast.
    used: AtomicU32,
    rows: [PythonRow; ROWS],
}

impl<const ROWS: usize> PythonTable<ROWS> {
    /// The layout of a process.
    pub fn of(&self, pid: u32) -> Option<FrameLayout> {
        let used = self.used.load(Ordering::Acquire) as usize;
        self.rows.iter().take(used).find_map(|row| row.of(pid))
    }

    /// Sets the layout of a process in a row, or frees the row.
    pub fn set(&self, row: usize, pid: u32, layout: Option<&FrameLayout>) {
        let Some(at) = self.rows.get(row) else {
            return;
        };
        match layout {
            Some(layout) => at.set(pid, layout),
            None => at.clear(),
        }
        self.used.fetch_max(row as u32 + 1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_gives_its_layout_to_its_process_alone() {
        let row = PythonRow::default();
        let layout = FrameLayout {
            interpreters: 0x1000,
            previous: 48,
            owner: NO_FIELD,
            ..FrameLayout::default()
        };
        assert_eq!(row.of(7), None);
        row.set(7, &layout);
        assert_eq!((row.of(7), row.of(8)), (Some(layout), None));
        row.clear();
        assert_eq!(row.of(7), None);
    }
}
