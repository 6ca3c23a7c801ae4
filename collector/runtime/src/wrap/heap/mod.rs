//! Heap blocks: the allocator's functions, wrapped so that the recorder can log blocks. Only the
//! runtime that is preloaded for `--heap` exports them.
//!
//! The wrappers are in [`functions`], the choice of blocks in [`sampling`] and [`pace`]. Nothing is
//! allocated here, and errno does not change.

pub(crate) mod functions;
pub(crate) mod named;
pub(crate) mod pace;
mod params;
pub(crate) mod sampling;

pub(crate) use functions::real;

use crate::record::python_frames;
use crate::record::time_mark::mark_time;
use crate::sys::syscall::{map, nr};
use crate::sys::{clock, process, syscall};
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use functions::FROM;
use mgz_abi::heap_log;
use mgz_abi::heap_log::HEAP_PYTHON_FRAMES;
use mgz_abi::heap_log::{ALLOC, BEGIN, BUDGET, FORK, FREE, Head, HeapEvent, STACK, UNIT, UNITS};
use mgz_abi::python_frames::PythonFrame;
use mgz_abi::shared_memory::{Header, PAGE_SIZE};
use pace::HeapAccount;

/// The log, or null.
static LOG: AtomicPtr<Head> = AtomicPtr::new(core::ptr::null_mut());
/// A page with the process id, which the kernel clears in forked children.
static PROCESS_PAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(core::ptr::null_mut());
/// Selection of logged blocks: [`heap_log::SAMPLE`], [`heap_log::ALL`] or [`BUDGET`].
static WHICH: AtomicU32 = AtomicU32::new(heap_log::SAMPLE);
/// Time stamp when the log was opened.
static BEGAN: AtomicU64 = AtomicU64::new(0);
/// Blocks are marked in the record streams of their threads.
static MARKS: AtomicBool = AtomicBool::new(false);
/// Id of this process. A forked child reads its parent's id here.
static PARENT: AtomicU32 = AtomicU32::new(0);
/// Process id of the recorder.
static RECORDER: AtomicU32 = AtomicU32::new(0);

/// Length of one sleep of a waiting thread, nanoseconds. Source: Chosen.
const NAP_NS: u64 = 100_000;
/// Maximum number of sleeps until an event has room, or until the recorder has read the mappings of
/// a new process. Source: Chosen.
const MAX_NAPS: usize = 30_000;

/// Opens the log, if the recorder keeps one, and logs the process.
pub fn attach_heap_log(header: &Header) {
    if header.heap_path[0] == 0 {
        return;
    }
    let fd = syscall::open_file(header.heap_path.as_ptr(), true);
    if fd < 0 {
        return;
    }
    // SAFETY: a new mapping; the file has this length.
    let log = unsafe {
        syscall::mmap(
            0,
            heap_log::FILE_BYTES,
            map::READ | map::WRITE,
            map::SHARED | map::NORESERVE,
            fd,
            0,
        )
    };
    syscall::close(fd);
    let (Ok(log), Ok(page)) = (log, syscall::new_memory(4096)) else {
        return;
    };
    // SAFETY: our own page; and the log's first word.
    unsafe {
        if syscall::call(nr::MADVISE, page, 4096, map::WIPEONFORK, 0, 0, 0) != 0
            || (*(log as *const Head)).magic != heap_log::MAGIC
        {
            return;
        }
    }
    let pid = syscall::getpid();
    RECORDER.store(header.recorder, Ordering::Relaxed);
    PARENT.store(pid, Ordering::Relaxed);
    PROCESS_PAGE.store(page as *mut AtomicU32, Ordering::Relaxed);
    // SAFETY: mapped above.
    unsafe { &*(page as *const AtomicU32) }.store(pid, Ordering::Relaxed);
    // SAFETY: the log's head.
    let head = unsafe { &*(log as *const Head) };
    let which = head.which.load(Ordering::Relaxed);
    WHICH.store(which, Ordering::Relaxed);
    BEGAN.store(clock::ticks(), Ordering::Relaxed);
    MARKS.store(head.marks.load(Ordering::Relaxed) != 0, Ordering::Relaxed);
    if which != heap_log::ALL {
        sampling::seed(syscall::now_ns() ^ u64::from(pid) << 40);
        keep_addresses(which);
    }
    LOG.store(log as *mut Head, Ordering::Release);
    functions::begin(which);
    let begin = Event {
        kind: BEGIN,
        pid,
        ns: next_time(head),
        ..Event::default()
    };
    if let Some(at) = log_event(&begin) {
        wait_for_look_at_mappings(head, at);
    }
}

/// Allocates the table of the addresses of logged blocks.
fn keep_addresses(which: u32) {
    let places = if which == BUDGET { 1 << 16 } else { 1 << 20 };
    // SAFETY: a new mapping, which is never removed.
    unsafe {
        if let Ok(memory) = syscall::mmap(
            0,
            8 * places,
            map::READ | map::WRITE,
            map::PRIVATE | map::ANONYMOUS | map::NORESERVE,
            -1,
            0,
        ) {
            sampling::keep_in(memory as *mut u64, places);
        }
    }
}

/// Waits until the recorder has read the event at `at` and with it the process's mappings: after
/// the program's end it would be too late.
fn wait_for_look_at_mappings(head: &Head, at: u64) {
    head.bell.fetch_add(1, Ordering::Release);
    syscall::futex_wake(head.bell.as_ptr());
    for _ in 0..MAX_NAPS {
        if head.tail.load(Ordering::Acquire) > at || !recorder_lives() {
            break;
        }
        nap();
    }
}

fn nap() {
    static NEVER: AtomicU32 = AtomicU32::new(0);
    syscall::futex_wait(NEVER.as_ptr(), 0, NAP_NS);
}

fn recorder_lives() -> bool {
    syscall::process_exists(RECORDER.load(Ordering::Relaxed))
}

/// Id of this process. After a fork, logs the fork first.
fn process() -> Option<u32> {
    // SAFETY: null or a page that is never removed.
    let word = unsafe { PROCESS_PAGE.load(Ordering::Relaxed).as_ref() }?;
    let pid = word.load(Ordering::Relaxed);
    if pid != 0 {
        return Some(pid);
    }
    let pid = syscall::getpid();
    word.store(pid, Ordering::Relaxed);
    let parent = PARENT.swap(pid, Ordering::Relaxed);
    // SAFETY: a mapping that is never removed, since there is a page.
    let head = unsafe { LOG.load(Ordering::Acquire).as_ref() }?;
    log_event(&Event {
        kind: FORK,
        pid,
        ns: next_time(head),
        address: u64::from(parent),
        ..Event::default()
    });
    Some(pid)
}

/// Called in a forked child, so that the parent's later blocks are not taken for the child's.
pub fn forked() {
    process();
}

/// Number of readable bytes from `at` on, at most [`STACK`].
fn readable(at: usize) -> usize {
    let next = (at | (PAGE_SIZE - 1)) + 1;
    if at + STACK <= next {
        return STACK;
    }
    if syscall::is_readable(next, 8) {
        STACK
    } else {
        next - at
    }
}

/// An event to log, as [`HeapEvent`].
#[derive(Default)]
struct Event {
    kind: u32,
    pid: u32,
    ns: u64,
    address: u64,
    bytes: u64,
    sp: usize,
    bp: usize,
    weight: f32,
}

/// The current time, made later than that of each earlier event.
fn next_time(head: &Head) -> u64 {
    let now = syscall::now_ns();
    let later = |last: u64| now.max(last.saturating_add(1));
    let mut last = head.last_ns.load(Ordering::Relaxed);
    while let Err(other) =
        head.last_ns
            .compare_exchange_weak(last, later(last), Ordering::Relaxed, Ordering::Relaxed)
    {
        last = other;
    }
    later(last)
}

/// [`next_time`] for an event of a block. It is also marked in the calling thread's records.
fn block_time() -> u64 {
    // SAFETY: null or a mapping that is never removed.
    let Some(head) = (unsafe { LOG.load(Ordering::Acquire).as_ref() }) else {
        return 0;
    };
    if MARKS.load(Ordering::Relaxed) {
        mark_time(|| next_time(head))
    } else {
        next_time(head)
    }
}

/// Writes the innermost Python frames of the current thread, and returns their number.
fn note_python(head: &Head, pid: u32, out: &mut [PythonFrame]) -> usize {
    let Some(layout) = head.python.of(pid) else {
        return 0;
    };
    let id = python_frames::own_thread_id();
    python_frames::thread_frames(&layout, &Cell::new(0), id, out)
}

/// Writes an event and returns its position. `None` if there was no room for seconds or nothing is
/// logged.
fn log_event(event: &Event) -> Option<u64> {
    let &Event { sp, bp, .. } = event;
    let log = LOG.load(Ordering::Acquire);
    // SAFETY: null or a mapping that is never removed.
    let head = unsafe { log.as_ref() }?;
    if head.over.load(Ordering::Relaxed) != 0 {
        return None;
    }
    let size = head.units.load(Ordering::Relaxed);
    let stack = if sp == 0 { 0 } else { readable(sp) & !7 };
    let mut frames = [PythonFrame::default(); HEAP_PYTHON_FRAMES];
    let python = if sp == 0 {
        0
    } else {
        note_python(head, event.pid, &mut frames)
    };
    let python_at = 1 + stack.div_ceil(UNIT) as u64;
    let units = python_at + u64::from(python > 0);
    let mut waited = 0;
    let at = loop {
        let at = head.head.load(Ordering::Relaxed);
        if at + units - head.tail.load(Ordering::Acquire) > size.min(UNITS as u64) {
            waited += 1;
            if waited > MAX_NAPS || !recorder_lives() {
                head.dropped.fetch_add(1, Ordering::Relaxed);
                head.over
                    .store(u32::from(!recorder_lives()), Ordering::Relaxed);
                return None;
            }
            nap();
            continue;
        }
        if head
            .head
            .compare_exchange_weak(at, at + units, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
        {
            break at;
        }
    };
    let base = log as usize;
    for unit in 0..stack.div_ceil(UNIT) {
        let (from, to) = (
            sp + unit * UNIT,
            base + heap_log::offset(at + 1 + unit as u64, size),
        );
        // Stack pointers are multiples of eight, so that whole words are there.
        for word in (0..(stack - unit * UNIT).min(UNIT)).step_by(8) {
            // SAFETY: the unit was claimed and is in the mapping; `readable` has found these
            // bytes of the stack readable. Volatile, or the loop would become a call of memcpy,
            // which is slow for so few bytes.
            unsafe {
                ((to + word) as *mut u64)
                    .write_volatile(((from + word) as *const u64).read_volatile())
            };
        }
    }
    if python > 0 {
        let to = (base + heap_log::offset(at + python_at, size)) as *mut PythonFrame;
        for (place, frame) in frames.iter().enumerate() {
            // SAFETY: as above; the frames fill the unit.
            unsafe { to.add(place).write_volatile(*frame) };
        }
    }
    let to = (base + heap_log::offset(at, size)) as *mut HeapEvent;
    // SAFETY: as above.
    unsafe {
        (*to).kind = event.kind;
        (*to).pid = event.pid;
        (*to).ns = event.ns;
        (*to).address = event.address;
        (*to).bytes = event.bytes;
        (*to).sp = sp as u64;
        (*to).bp = bp as u64;
        (*to).stack = stack as u16;
        (*to).python = python as u16;
        (*to).weight = event.weight.to_bits();
        (*to).tag.store(heap_log::tag(at), Ordering::Release);
    }
    Some(at)
}

/// Handles a block from a call that no stub has counted.
fn allocated(block: usize, bytes: usize, sp: usize, bp: usize) -> usize {
    if bytes < FROM.load(Ordering::Relaxed) {
        functions::count_bytes(bytes);
    }
    counted(block, bytes, sp, bp)
}

/// Handles a block that the thread's counter includes.
fn counted(block: usize, bytes: usize, sp: usize, bp: usize) -> usize {
    // SAFETY: null or a mapping that is never removed.
    if block != 0
        && let Some(head) = unsafe { LOG.load(Ordering::Relaxed).as_ref() }
    {
        if bytes >= FROM.load(Ordering::Relaxed) {
            log_block(block, bytes, sp, bp, 1.0);
        } else {
            sample(head, block, bytes, sp, bp);
        }
    }
    block
}

/// Logs a block if the thread's counter has come to zero.
fn sample(head: &Head, block: usize, bytes: usize, sp: usize, bp: usize) {
    let left = functions::left();
    if left.bytes.get() > 0 {
        return;
    }
    let Some(taken) = sampling::take(left, bytes, mean(head)) else {
        return;
    };
    if WHICH.load(Ordering::Relaxed) != BUDGET {
        return log_block(block, bytes, sp, bp, taken.weight);
    }
    head.blocks.fetch_add(1, Ordering::Relaxed);
    head.bytes.fetch_add(taken.mean, Ordering::Relaxed);
    head.calls.fetch_add(taken.weight as u64, Ordering::Relaxed);
    let began = clock::ticks();
    log_block(block, bytes, sp, bp, taken.weight);
    let took = clock::since(began).min(MAX_LOGGING_NS);
    head.spent.fetch_add(took, Ordering::Relaxed);
}

/// Time to log a block counts at most as this, since in longer ones another thread had the
/// processor. Source: Chosen.
const MAX_LOGGING_NS: u64 = 20_000;

/// Average number of allocated bytes per logged block.
fn mean(head: &Head) -> u64 {
    if WHICH.load(Ordering::Relaxed) == BUDGET {
        pace::mean(&account(head))
    } else {
        sampling::growing_mean()
    }
}

/// The budget's account. CPU time is known if triggers count it; otherwise the elapsed time is
/// used.
fn account(head: &Head) -> HeapAccount {
    let cpu = process::header().map_or(0, |h| h.cpu.load(Ordering::Relaxed));
    HeapAccount {
        cpu: match cpu {
            0 => clock::since(BEGAN.load(Ordering::Relaxed)),
            cpu => cpu,
        },
        spent: head.spent.load(Ordering::Relaxed),
        blocks: head.blocks.load(Ordering::Relaxed),
        bytes: head.bytes.load(Ordering::Relaxed),
    }
}

/// Logs a block, unless the table of addresses has no room for it.
#[inline(never)]
fn log_block(block: usize, bytes: usize, sp: usize, bp: usize, weight: f32) {
    if !functions::in_nursery(block)
        && let Some(pid) = process()
    {
        if WHICH.load(Ordering::Relaxed) != heap_log::ALL && !sampling::insert(block) {
            return count_unlogged();
        }
        log_event(&Event {
            kind: ALLOC,
            pid,
            ns: block_time(),
            address: block as u64,
            bytes: bytes as u64,
            sp,
            bp,
            weight,
        });
    }
}

#[cold]
fn count_unlogged() {
    // SAFETY: null or a mapping that is never removed.
    if let Some(head) = unsafe { LOG.load(Ordering::Relaxed).as_ref() } {
        head.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

/// Logs a block again that could not be resized: its end was logged, but it still exists.
#[cold]
fn still_there(block: usize, bytes: usize, sp: usize, bp: usize) {
    // SAFETY: null or a mapping that is never removed.
    if let Some(head) = unsafe { LOG.load(Ordering::Relaxed).as_ref() } {
        let weight = if bytes >= FROM.load(Ordering::Relaxed) {
            1.0
        } else {
            sampling::weight(bytes, mean(head))
        };
        log_block(block, bytes, sp, bp, weight);
    }
}

/// Logs the end of a block, if the block was logged. Returns true if so.
#[inline]
fn freed(block: usize) -> bool {
    let ends = block != 0
        && !LOG.load(Ordering::Relaxed).is_null()
        && (WHICH.load(Ordering::Relaxed) == heap_log::ALL || sampling::remove(block));
    if ends {
        log_end(block);
    }
    ends
}

#[inline(never)]
fn log_end(block: usize) {
    if let Some(pid) = process() {
        log_event(&Event {
            kind: FREE,
            pid,
            ns: block_time(),
            address: block as u64,
            ..Event::default()
        });
    }
}
