//! Copies of the stack's top at the start of windows, from which the recorder finds call paths, and
//! the hits of watchpoints.
//!
//! The log is a ring of [`CELLS`] cells in the shared memory's header. A thread claims a cell by
//! moving [`StackLog::head`], writes it, and says that it is complete by storing its position + 1
//! as [`StackCell::ready`]. The recorder reads cells in order and moves [`StackLog::tail`]. Nobody
//! waits: where the ring is full the copy is counted as lost. A process that dies in between leaves
//! a cell that is never complete, which the recorder passes over after a while.

use crate::python_frames::{PYTHON_FRAMES, PYTHON_ROWS, PythonFrame, PythonTable};
use core::cell::{Cell, UnsafeCell};
use core::sync::atomic::AtomicU64;

/// Cells of the ring: more windows than begin between two looks of the recorder.
pub const CELLS: usize = 128;
/// Bytes of a cell.
pub const CELL_BYTES: usize = 32 << 10;
/// Bytes of stack in a cell at most.
pub const STACK_BYTES: usize = CELL_BYTES - 64 - size_of::<[PythonFrame; PYTHON_FRAMES]>();

/// [`StackCell::kind`]: a window begins (in `ring` mode: ends).
pub const WINDOW: u16 = 1;
/// [`StackCell::kind`]: a process has begun, or has executed a new program.
pub const BEGIN: u16 = 2;
/// [`StackCell::kind`]: a process was forked by [`StackCell::first_slot`].
pub const FORK: u16 = 3;

/// [`StackCell::kind`]: a word that a window has accessed was accessed again, or the watch for that
/// has ended ([`StackCell::bytes`] is 0). `first_slot` is that of the window, `sp` the word, `bp`
/// nanoseconds of the thread's CPU time since the window's end, `ip` the instruction behind the
/// access; the copy holds a [`WatchedAccess`].
pub const REUSE: u16 = 4;

/// Data on the access that a watchpoint has seen.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WatchedAccess {
    /// General registers behind it, by hardware number.
    pub registers: [u64; 16],
    /// The code before `ip`; zeros where it cannot be read.
    pub code: [u8; 16],
}

/// The log.
#[repr(C)]
pub struct StackLog {
    /// Bytes of each stack that are to be copied, at most [`STACK_BYTES`]; 0: none. The recorder
    /// asks for more while the copies do not hold the outer callers.
    pub wanted: AtomicU64,
    /// Cells that were claimed since the beginning.
    pub head: AtomicU64,
    /// Cells that were read.
    pub tail: AtomicU64,
    /// Copies that found no room.
    pub dropped: AtomicU64,
    /// One in so many windows of `burst` is followed by a watch for a reuse; 0: none.
    pub watch_every: AtomicU64,
    /// Places of the frames of Python in each process.
    pub python: PythonTable<PYTHON_ROWS>,
    /// The cells.
    pub cells: [StackCell; CELLS],
}

/// A copy.
#[repr(C)]
pub struct StackCell {
    /// Position in the log + 1 once the cell is complete.
    pub ready: AtomicU64,
    /// `WINDOW`, `BEGIN`, `FORK` or `REUSE`.
    pub kind: Cell<u16>,
    /// Python frames in `python`.
    pub python_frames: Cell<u16>,
    /// System process id.
    pub pid: Cell<u32>,
    /// System thread id.
    pub tid: Cell<u32>,
    /// Bytes of the copy.
    pub bytes: Cell<u32>,
    /// CLOCK_MONOTONIC.
    pub time: Cell<u64>,
    /// Number of the window's first slot among all that its thread has written.
    pub first_slot: Cell<u64>,
    /// The instruction that comes next, in the original code.
    pub ip: Cell<u64>,
    /// The stack pointer: where the copy begins.
    pub sp: Cell<u64>,
    /// The frame pointer's register.
    pub bp: Cell<u64>,
    /// The stack from there on.
    pub stack: UnsafeCell<[u8; STACK_BYTES]>,
    /// The thread's Python frames, innermost first.
    pub python: UnsafeCell<[PythonFrame; PYTHON_FRAMES]>,
}

const _: () = assert!(size_of::<StackCell>() == CELL_BYTES);
