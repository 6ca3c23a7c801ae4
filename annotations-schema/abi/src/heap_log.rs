//! The log of heap blocks: a ring in memory that the recorder and the traced processes share (a
//! memfd of its own).
//!
//! This crate is compiled twice: for the recorder, and by `collector/build.rs` without the standard
//! library for the runtime. So this file uses `core` only.
//!
//! The ring has [`Head::units`] units of 64 bytes. A process claims as many units as it needs by
//! moving [`Head::head`], writes them, and marks them as complete by storing [`tag`] of the
//! position in the first unit's first word. The recorder reads them in order and moves
//! [`Head::tail`]. A process that dies in between leaves units without a tag, which the recorder
//! skips one by one after a while. Units of the previous lap have other tags.

use crate::python_frames::{PythonFrame, PythonTable};
use core::sync::atomic::{AtomicU32, AtomicU64};

/// First word of the file.
pub const MAGIC: u64 = 0x3150_4145_485a_474d;
/// Bytes of a unit.
pub const UNIT: usize = 64;
/// Units of the ring.
pub const UNITS: usize = 1 << 20;
/// Bytes before the first unit.
pub const HEAD_BYTES: usize = 4096;
/// Bytes of the file.
pub const FILE_BYTES: usize = HEAD_BYTES + UNITS * UNIT;
/// Maximum length of a copied stack, bytes.
pub const STACK: usize = 1024;

/// Maximum number of Python frames logged per allocation, innermost first: as many as fit into a
/// unit.
pub const HEAP_PYTHON_FRAMES: usize = UNIT / size_of::<PythonFrame>();
/// Maximum number of Python processes at a time whose frames are logged.
pub const HEAP_PYTHON_ROWS: usize = 16;

/// Number of functions that replace allocators with other names: [`HOOKS`] / 6 of each kind, in the
/// order of [`HOOK_KINDS`].
pub const HOOKS: usize = 24;
/// Maximum length of the name of such a function, including the terminating zero, bytes.
pub const HOOK_NAME: usize = 64;
/// Kinds of hooked functions. They return a block whose size is the first argument, the second, or
/// the product of both; resize the first argument to the second; or free the first or the second
/// argument.
pub const HOOK_KINDS: [&str; 6] = ["alloc", "alloc2", "calloc", "realloc", "free", "free2"];

/// A process has begun or has executed a new program: its earlier blocks are gone.
pub const BEGIN: u32 = 1;
/// A process was forked by the process [`HeapEvent::address`], and has that process's blocks.
pub const FORK: u32 = 2;
/// A block was allocated.
pub const ALLOC: u32 = 3;
/// A block was freed.
pub const FREE: u32 = 4;

/// [`Head::which`]: blocks of 4 KiB and more, and a sample of smaller ones.
pub const SAMPLE: u32 = 0;
/// [`Head::which`]: all blocks.
pub const ALL: u32 = 1;
/// [`Head::which`]: a sample of all blocks, as large as a share of the CPU time allows.
pub const BUDGET: u32 = 2;

/// Start of the file.
#[repr(C)]
pub struct Head {
    /// [`MAGIC`].
    pub magic: u64,
    /// Units that were claimed since the beginning.
    pub head: AtomicU64,
    /// Units that were read.
    pub tail: AtomicU64,
    /// Events that were dropped after seconds without room.
    pub dropped: AtomicU64,
    /// 1: nothing is logged any more.
    pub over: AtomicU32,
    /// Selection of the logged blocks: [`SAMPLE`], [`ALL`] or [`BUDGET`].
    pub which: AtomicU32,
    /// 1: allocations and ends of blocks are marked in the record streams of their threads
    /// ([`MARK_TIME`](crate::slot::MARK_TIME)).
    pub marks: AtomicU32,
    /// Time of the latest event. Each event takes a later one, so that times show the order of
    /// events.
    pub last_ns: AtomicU64,
    /// Number of used units, a power of two, at most [`UNITS`].
    pub units: AtomicU64,
    /// Futex: incremented when a process begins, which then waits for the recorder.
    pub bell: AtomicU32,
    /// `BUDGET`: blocks that were logged.
    pub blocks: AtomicU64,
    /// `BUDGET`: bytes that were allocated, as the logged blocks represent them.
    pub bytes: AtomicU64,
    /// `BUDGET`: allocating calls, as the logged blocks represent them.
    pub calls: AtomicU64,
    /// `BUDGET`: nanoseconds that logging took.
    pub spent: AtomicU64,
    /// Layouts of the Python frames in each process.
    pub python: PythonTable<HEAP_PYTHON_ROWS>,
}

/// An event: the first unit of a record. `stack` bytes of the stack follow in units of their own, and
/// then a unit with `python` frames, if there are any.
#[repr(C)]
pub struct HeapEvent {
    /// [`tag`] of the position once the record is complete.
    pub tag: AtomicU64,
    /// `BEGIN` to `FREE`.
    pub kind: u32,
    /// Process.
    pub pid: u32,
    /// CLOCK_MONOTONIC, ns: for an allocation after the allocator's return, for an end before its
    /// call. All events have different times.
    pub ns: u64,
    /// The block.
    pub address: u64,
    /// Length of the block, bytes.
    pub bytes: u64,
    /// The stack pointer at the allocator's entry: where the return address is.
    pub sp: u64,
    /// The frame pointer at the allocator's entry.
    pub bp: u64,
    /// Bytes of stack from `sp` on that follow.
    pub stack: u16,
    /// Python frames that follow.
    pub python: u16,
    /// Number of blocks that this one represents, as the bits of a 32-bit floating-point number.
    pub weight: u32,
}

const _: () = assert!(size_of::<HeapEvent>() == UNIT && size_of::<Head>() <= HEAD_BYTES);
const _: () = assert!(STACK <= u16::MAX as usize);

/// First word of a complete record at a position.
pub const fn tag(position: u64) -> u64 {
    MAGIC ^ position.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Offset in the file of the unit at a position, if `units` are used. It is inside the file for
/// any value of `units`.
pub const fn offset(position: u64, units: u64) -> usize {
    HEAD_BYTES + (position & units.wrapping_sub(1) & (UNITS as u64 - 1)) as usize * UNIT
}
