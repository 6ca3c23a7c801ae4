//! Copies of the stack's top at the start of windows, from which the recorder finds call paths, and
//! hits of watchpoints.
//!
//! The log is a ring of [`CELLS`] cells in the shared memory's header. A thread claims a cell by
//! moving [`StackLog::head`], writes it, and marks it as complete by storing its position + 1 in
//! [`StackCell::ready`]. The recorder reads cells in order and moves [`StackLog::tail`]. Threads
//! never wait: if the ring is full, the copy is counted as lost. A process that dies in between
//! leaves a cell that is never complete, which the recorder skips after a while.

use crate::python_frames::{PYTHON_FRAMES, PYTHON_ROWS, PythonFrame, PythonTable};
use core::cell::{Cell, UnsafeCell};
use core::sync::atomic::AtomicU64;

/// Number of cells of the ring: more than the windows between two polls of the recorder.
pub const CELLS: usize = 128;
/// Bytes of a cell.
pub const CELL_BYTES: usize = 32 << 10;
/// Maximum length of the stack in a cell, bytes.
pub const STACK_BYTES: usize = CELL_BYTES - 64 - size_of::<[PythonFrame; PYTHON_FRAMES]>();

/// [`StackCell::kind`]: a window begins (in `ring` mode: ends).
pub const WINDOW: u16 = 1;
/// [`StackCell::kind`]: a process has begun, or has executed a new program.
pub const BEGIN: u16 = 2;
/// [`StackCell::kind`]: a process was forked by the process [`StackCell::first_slot`].
pub const FORK: u16 = 3;

/// [`StackCell::kind`]: a word that a window has accessed was accessed again, or the watch for it
/// has ended ([`StackCell::bytes`] is 0). `first_slot` is that of the window, `sp` the word, `bp`
/// nanoseconds of the thread's CPU time since the window's end, `ip` the instruction behind the
/// access; the copy holds a [`WatchedAccess`].
pub const REUSE: u16 = 4;

/// Data on the access that hit a watchpoint.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WatchedAccess {
    /// General registers after the access, by hardware number.
    pub registers: [u64; 16],
    /// The code before `ip`; zeros where it cannot be read.
    pub code: [u8; 16],
}

/// The log of stack copies.
#[repr(C)]
pub struct StackLog {
    /// Requested length of the copies, bytes, at most [`STACK_BYTES`]; 0: no copies. The recorder
    /// increases it until the copies contain the outer callers.
    pub wanted: AtomicU64,
    /// Cells that were claimed since the beginning.
    pub head: AtomicU64,
    /// Cells that were read.
    pub tail: AtomicU64,
    /// Copies that were dropped for lack of room.
    pub dropped: AtomicU64,
    /// One in this many windows of `burst` is followed by a watch for a reuse; 0: none.
    pub watch_every: AtomicU64,
    /// Layouts of the Python frames in each process.
    pub python: PythonTable<PYTHON_ROWS>,
    /// The cells.
    pub cells: [StackCell; CELLS],
}

/// A copy of a stack, or another entry of the log.
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
    /// CLOCK_MONOTONIC, ns.
    pub time: Cell<u64>,
    /// Number of the window's first slot among all slots of its thread.
    pub first_slot: Cell<u64>,
    /// Address of the next instruction, in the original code.
    pub ip: Cell<u64>,
    /// The stack pointer, at which the copy begins.
    pub sp: Cell<u64>,
    /// The frame pointer's register.
    pub bp: Cell<u64>,
    /// The stack from `sp` on.
    pub stack: UnsafeCell<[u8; STACK_BYTES]>,
    /// The thread's Python frames, innermost first.
    pub python: UnsafeCell<[PythonFrame; PYTHON_FRAMES]>,
}

const _: () = assert!(size_of::<StackCell>() == CELL_BYTES);
