//! Copies of the stack's top for the recorder, which finds the call path of a window from them: one
//! at the start of each window of `burst`, and one at the end of each of `ring`.
//!
//! This module does not unwind, allocate or wait: if the log is full, the copy is counted as lost.
//! The kernel is asked page by page whether memory above the stack pointer is readable, since the
//! stack may be an alternate stack, that of a coroutine, or a small one at the end of a mapping.

use crate::record::thread_ring::Ring;
use crate::record::{modules, python_frames};
use crate::sys::signal_frame::{Context, RIP, RSP};
use crate::sys::{clock, process, seccomp_state, syscall};
use core::sync::atomic::{AtomicU32, Ordering};
use mgz_abi::address_map::NO_REG;
use mgz_abi::probe::SPILL_SLOTS;
use mgz_abi::shared_memory::{Control, Header, PAGE_SIZE};
use mgz_abi::stack_log::{BEGIN, CELLS, FORK, STACK_BYTES, StackCell, StackLog, WINDOW};

/// Hardware number of the frame pointer's register.
pub const RBP: u8 = 5;

/// Id of this process. A forked child reads its parent's id here.
static PARENT: AtomicU32 = AtomicU32::new(0);

/// Position of a thread, in terms of the original code.
#[derive(Clone, Copy)]
pub struct ThreadPosition {
    /// Address of the next instruction.
    pub ip: u64,
    /// Stack pointer.
    pub sp: u64,
    /// Value of the frame pointer's register.
    pub bp: u64,
}

impl ThreadPosition {
    /// Position of a thread in a clone, where a probe may have borrowed the register. `None` if the
    /// probe's state is not known.
    pub fn in_clone(context: &mut Context, control: &Control) -> Option<ThreadPosition> {
        let place = modules::clone_point_at(context.registers[RIP])?;
        let mut bp = *context.register(RBP);
        for [register, slot] in place.state.saved {
            if register == RBP && register != NO_REG {
                bp = control.spill[slot as usize % SPILL_SLOTS].get();
            }
        }
        Some(ThreadPosition {
            ip: place.orig,
            sp: context.registers[RSP],
            bp,
        })
    }
}

/// Logs that a process has begun or has executed a new program, so that facts about its files are
/// out of date.
pub fn begin_process(header: &Header) {
    let pid = syscall::getpid();
    PARENT.store(pid, Ordering::Relaxed);
    tell(&header.stack_log, BEGIN, pid, 0);
}

/// Called in a forked child, which has the files of its parent.
pub fn forked() {
    // The id of its only thread is that of the process.
    let pid = syscall::gettid();
    let parent = PARENT.swap(pid, Ordering::Relaxed);
    if let Some(header) = process::recorder() {
        tell(&header.stack_log, FORK, pid, parent);
    }
}

/// Copies the stack of a window that begins at `first_slot`. Returns the time taken, nanoseconds.
pub fn copy_stack(header: &Header, ring: Ring, first_slot: u64, at: ThreadPosition) -> u64 {
    let control = ring.control();
    let log = &header.stack_log;
    let wanted = log.wanted.load(Ordering::Relaxed);
    if wanted == 0 || seccomp_state::is_sealed() {
        return 0;
    }
    let begun = clock::ticks();
    if let Some((position, cell)) = claim(log) {
        let bytes = readable(at.sp as usize, (wanted as usize).min(STACK_BYTES));
        // SAFETY: the cell was claimed by this thread alone, and is large enough; `readable` has
        // found these bytes of the stack readable.
        unsafe {
            core::ptr::copy_nonoverlapping(at.sp as *const u8, cell.stack.get().cast::<u8>(), bytes)
        };
        cell.kind.set(WINDOW);
        cell.python_frames
            .set(python_frames(log, ring, cell) as u16);
        cell.pid.set(control.pid.get());
        cell.tid.set(control.tid.get());
        cell.bytes.set(bytes as u32);
        cell.time.set(syscall::now_ns());
        cell.first_slot.set(first_slot);
        cell.ip.set(at.ip);
        cell.sp.set(at.sp);
        cell.bp.set(at.bp);
        cell.ready.store(position + 1, Ordering::Release);
    }
    clock::since(begun)
}

/// Writes the thread's Python frames into a cell; returns their number.
fn python_frames(log: &StackLog, ring: Ring, cell: &StackCell) -> usize {
    let pid = ring.control().pid.get();
    let Some(layout) = log.python.of(pid) else {
        return 0;
    };
    // SAFETY: the cell was claimed by this thread alone.
    let out = unsafe { &mut *cell.python.get() };
    let id = python_frames::own_thread_id();
    python_frames::thread_frames(&layout, &ring.private().python, id, out)
}

/// Logs an event without a stack.
fn tell(log: &StackLog, kind: u16, pid: u32, parent: u32) {
    if log.wanted.load(Ordering::Relaxed) == 0 {
        return;
    }
    if let Some((position, cell)) = claim(log) {
        cell.kind.set(kind);
        cell.python_frames.set(0);
        cell.pid.set(pid);
        cell.tid.set(0);
        cell.bytes.set(0);
        cell.time.set(syscall::now_ns());
        cell.first_slot.set(parent.into());
        cell.ready.store(position + 1, Ordering::Release);
    }
}

/// Writes another kind of cell to the log, or counts it as lost.
pub fn write_stack_cell(log: &StackLog, write: impl FnOnce(&StackCell)) {
    if let Some((position, cell)) = claim(log) {
        write(cell);
        cell.ready.store(position + 1, Ordering::Release);
    }
}

/// A cell for the caller to write, with its position. If all cells wait for the recorder, counts a
/// loss and returns `None`.
fn claim(log: &StackLog) -> Option<(u64, &StackCell)> {
    loop {
        let at = log.head.load(Ordering::Relaxed);
        // Other processes can write to both counters, so neither is trusted.
        if at.wrapping_sub(log.tail.load(Ordering::Acquire)) >= CELLS as u64 {
            log.dropped.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        if log
            .head
            .compare_exchange_weak(at, at.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
        {
            return Some((at, &log.cells[at as usize % CELLS]));
        }
    }
}

/// Number of readable bytes from `at` on, at most `most`.
fn readable(at: usize, most: usize) -> usize {
    let Some(end) = at.checked_add(most) else {
        return 0;
    };
    let mut readable = at;
    while readable < end {
        if !syscall::is_readable(readable, 1) {
            break;
        }
        readable = ((readable | (PAGE_SIZE - 1)) + 1).min(end);
    }
    readable - at
}
