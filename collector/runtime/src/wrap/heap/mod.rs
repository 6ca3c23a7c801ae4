//! Heap blocks: the allocator's functions, wrapped so that the recorder hears of each block. Only
//! the runtime that is preloaded for `--heap` exports them.
//!
//! The wrappers are entered by a jump-like stub that hands over stack and frame pointer: the word
//! at the stack pointer is the return address, from which the recorder unwinds in the copy of the
//! stack. No frame of ours stands in between, nothing is allocated, and errno stays.

pub(crate) mod named;
pub(crate) mod sampling;

use crate::record::time_mark::mark_time;
use crate::sys::errno::ENOMEM;
use crate::sys::libc_symbols::{fail, next_definition};
use crate::sys::syscall;
use crate::sys::syscall::{map, nr};
use core::arch::naked_asm;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use mgz_abi::heap_log;
use mgz_abi::heap_log::{ALLOC, BEGIN, FORK, FREE, Head, HeapEvent, STACK, UNIT, UNITS};
use mgz_abi::shared_memory::Header;

/// The log, or null.
static LOG: AtomicPtr<Head> = AtomicPtr::new(core::ptr::null_mut());
/// A page with the process id, which the kernel clears in forked children.
static PAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(core::ptr::null_mut());
/// All blocks are logged.
static ALL: AtomicBool = AtomicBool::new(false);
/// Blocks are marked in the record streams of their threads.
static MARKS: AtomicBool = AtomicBool::new(false);
/// The process before the last fork.
static PARENT: AtomicU32 = AtomicU32::new(0);
/// The recorder.
static RECORDER: AtomicU32 = AtomicU32::new(0);

/// Milliseconds that an event waits for room, or a new process for the recorder to have looked at
/// its mappings.
const PATIENCE: usize = 3000;

/// Opens the log, if the recorder keeps one, and tells of the process.
pub fn attach_heap_log(header: &Header) {
    if header.heap_path[0] == 0 {
        return;
    }
    let fd = syscall::open_file(header.heap_path.as_ptr(), true);
    if fd < 0 {
        return;
    }
    // SAFETY: new mappings; the file has this length.
    let (log, page) = unsafe {
        (
            syscall::mmap(
                0,
                heap_log::FILE_BYTES,
                map::READ | map::WRITE,
                map::SHARED | map::NORESERVE,
                fd,
                0,
            ),
            syscall::mmap(
                0,
                4096,
                map::READ | map::WRITE,
                map::PRIVATE | map::ANONYMOUS,
                -1,
                0,
            ),
        )
    };
    syscall::close(fd);
    let (Ok(log), Ok(page)) = (log, page) else {
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
    PAGE.store(page as *mut AtomicU32, Ordering::Relaxed);
    // SAFETY: mapped above.
    unsafe { &*(page as *const AtomicU32) }.store(pid, Ordering::Relaxed);
    // SAFETY: the log's head.
    let head = unsafe { &*(log as *const Head) };
    let all = head.all.load(Ordering::Relaxed) != 0;
    MARKS.store(head.marks.load(Ordering::Relaxed) != 0, Ordering::Relaxed);
    if !all {
        sampling::seed(syscall::now_ns() ^ u64::from(pid) << 40);
        // SAFETY: a new mapping, which is never removed.
        unsafe {
            if let Ok(memory) = syscall::mmap(
                0,
                sampling::MEMORY,
                map::READ | map::WRITE,
                map::PRIVATE | map::ANONYMOUS | map::NORESERVE,
                -1,
                0,
            ) {
                sampling::keep_in(memory as *mut u8);
            }
        }
    }
    ALL.store(all, Ordering::Relaxed);
    LOG.store(log as *mut Head, Ordering::Release);
    let begin = Event {
        kind: BEGIN,
        pid,
        ns: next_time(head),
        ..Event::default()
    };
    let Some(at) = log_event(&begin) else {
        return;
    };
    // The recorder looks at the mappings now: at the program's end it would be too late.
    for _ in 0..PATIENCE {
        if head.tail.load(Ordering::Acquire) > at || !recorder_lives() {
            break;
        }
        nap();
    }
}

fn nap() {
    static NEVER: AtomicU32 = AtomicU32::new(0);
    syscall::futex_wait(NEVER.as_ptr(), 0, 1_000_000);
}

fn recorder_lives() -> bool {
    syscall::process_exists(RECORDER.load(Ordering::Relaxed))
}

/// This process; tells the recorder first if it has just come into being by a fork.
fn process() -> Option<u32> {
    // SAFETY: null or a page that is never removed.
    let word = unsafe { PAGE.load(Ordering::Relaxed).as_ref() }?;
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

/// Bytes from `at` on that can be read, at most [`STACK`].
fn readable(at: usize) -> usize {
    const PAGE_BYTES: usize = 4096;
    let next = (at | (PAGE_BYTES - 1)) + 1;
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

/// The present time, later than that of each event before.
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

/// The same for an event of a block, at which the calling thread's records are marked.
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

/// Writes an event; gives its position. `None` if there was no room for seconds or nothing is
/// logged.
fn log_event(event: &Event) -> Option<u64> {
    let &Event { sp, bp, .. } = event;
    let log = LOG.load(Ordering::Acquire);
    // SAFETY: null or a mapping that is never removed.
    let head = unsafe { log.as_ref() }?;
    if head.over.load(Ordering::Relaxed) != 0 {
        return None;
    }
    let stack = if sp == 0 { 0 } else { readable(sp) & !7 };
    let units = 1 + stack.div_ceil(UNIT) as u64;
    let mut waited = 0;
    let at = loop {
        let at = head.head.load(Ordering::Relaxed);
        if at + units - head.tail.load(Ordering::Acquire) > UNITS as u64 {
            waited += 1;
            if waited > PATIENCE || !recorder_lives() {
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
            base + heap_log::offset(at + 1 + unit as u64),
        );
        // Stack pointers are multiples of eight, so that whole words are there.
        for word in (0..(stack - unit * UNIT).min(UNIT)).step_by(8) {
            // SAFETY: the unit was claimed and lies in the mapping; `readable` has found these
            // bytes of the stack to be there. Volatile, or the loop would become a call
            // of memcpy, which is slow for so few bytes.
            unsafe {
                ((to + word) as *mut u64)
                    .write_volatile(((from + word) as *const u64).read_volatile())
            };
        }
    }
    let to = (base + heap_log::offset(at)) as *mut HeapEvent;
    // SAFETY: as above.
    unsafe {
        (*to).kind = event.kind;
        (*to).pid = event.pid;
        (*to).ns = event.ns;
        (*to).address = event.address;
        (*to).bytes = event.bytes;
        (*to).sp = sp as u64;
        (*to).bp = bp as u64;
        (*to).stack = stack as u32;
        (*to).weight = event.weight.to_bits();
        (*to).tag.store(heap_log::tag(at), Ordering::Release);
    }
    Some(at)
}

#[inline]
fn allocated(block: usize, bytes: usize, sp: usize, bp: usize) -> usize {
    if block != 0 && !LOG.load(Ordering::Relaxed).is_null() {
        let all = ALL.load(Ordering::Relaxed);
        if let Some(weight) = if all {
            Some(1.0)
        } else {
            sampling::sample_block(bytes)
        } {
            log_block(block, bytes, sp, bp, weight, !all);
        }
    }
    block
}

#[inline(never)]
fn log_block(block: usize, bytes: usize, sp: usize, bp: usize, weight: f32, keep: bool) {
    if !in_nursery(block)
        && let Some(pid) = process()
    {
        if keep {
            sampling::insert(block);
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

/// A block ends. Returns whether it was logged.
#[inline]
fn freed(block: usize) -> bool {
    let ends = block != 0
        && !LOG.load(Ordering::Relaxed).is_null()
        && (ALL.load(Ordering::Relaxed) || sampling::remove(block));
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

/// Memory for allocations of the C library during the look-up of the real functions.
const NURSERY: usize = 1 << 16;
#[repr(align(16))]
struct Nursery(core::cell::UnsafeCell<[u8; NURSERY]>);
// SAFETY: parts are handed out once each, by an atomic.
unsafe impl Sync for Nursery {}
static NURSERY_MEMORY: Nursery = Nursery(core::cell::UnsafeCell::new([0; NURSERY]));
static NURSERY_USED: AtomicUsize = AtomicUsize::new(0);
static RESOLVING: AtomicU32 = AtomicU32::new(0);

fn in_nursery(block: usize) -> bool {
    let start = NURSERY_MEMORY.0.get() as usize;
    (start..start + NURSERY).contains(&block)
}

fn from_nursery(bytes: usize) -> usize {
    let at = NURSERY_USED.fetch_add(bytes.saturating_add(15) & !15, Ordering::Relaxed);
    if at.saturating_add(bytes) > NURSERY {
        0
    } else {
        NURSERY_MEMORY.0.get() as usize + at
    }
}

/// The next definition of a function. `None` while it is being looked up, and where there is none.
fn real(cache: &AtomicUsize, name: &core::ffi::CStr) -> Option<usize> {
    let known = cache.load(Ordering::Relaxed);
    if known != 0 {
        return Some(known);
    }
    if RESOLVING.swap(1, Ordering::Acquire) != 0 {
        return None;
    }
    let found = next_definition(cache, name);
    RESOLVING.store(0, Ordering::Release);
    (found != 0).then_some(found)
}

macro_rules! real {
    ($name:literal, $ty:ty) => {{
        static CACHE: AtomicUsize = AtomicUsize::new(0);
        // SAFETY: the symbol's documented type.
        real(&CACHE, $name).map(|address| unsafe { core::mem::transmute::<usize, $ty>(address) })
    }};
}

fn none() -> usize {
    fail(ENOMEM);
    0
}

type One = unsafe extern "C" fn(usize) -> usize;
type Two = unsafe extern "C" fn(usize, usize) -> usize;
type Three = unsafe extern "C" fn(usize, usize, usize) -> usize;

/// A function of the C library that hands its stack and frame pointer to `$then` behind its own
/// arguments.
macro_rules! stub {
    ($name:ident, $sp:literal, $bp:literal, $then:path) => {
        /// # Safety
        /// As the C function.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(concat!("mov ", $sp, ", rsp"), concat!("mov ", $bp, ", rbp"), "jmp {then}", then = sym $then)
        }
    };
}

stub!(malloc, "rsi", "rdx", on_malloc);
stub!(calloc, "rdx", "rcx", on_calloc);
stub!(realloc, "rdx", "rcx", on_realloc);
stub!(reallocarray, "rcx", "r8", on_reallocarray);
stub!(posix_memalign, "rcx", "r8", on_posix_memalign);
stub!(aligned_alloc, "rdx", "rcx", on_aligned_alloc);
stub!(memalign, "rdx", "rcx", on_memalign);
stub!(valloc, "rsi", "rdx", on_valloc);
stub!(pvalloc, "rsi", "rdx", on_pvalloc);

unsafe extern "C" fn on_malloc(bytes: usize, sp: usize, bp: usize) -> usize {
    let Some(real) = real!(c"malloc", One) else {
        return from_nursery(bytes);
    };
    // SAFETY: the caller's arguments, here and below.
    allocated(unsafe { real(bytes) }, bytes, sp, bp)
}

unsafe extern "C" fn on_calloc(count: usize, each: usize, sp: usize, bp: usize) -> usize {
    // The nursery's memory is zero, and none of it is used twice.
    let Some(real) = real!(c"calloc", Two) else {
        return from_nursery(count.saturating_mul(each));
    };
    // SAFETY: as above.
    allocated(
        unsafe { real(count, each) },
        count.saturating_mul(each),
        sp,
        bp,
    )
}

unsafe extern "C" fn on_realloc(block: usize, bytes: usize, sp: usize, bp: usize) -> usize {
    if in_nursery(block) {
        // SAFETY: as above. The nursery has no sizes: what lies behind the block is copied with it.
        let new = unsafe { on_malloc(bytes, sp, bp) };
        let length = bytes.min(NURSERY_MEMORY.0.get() as usize + NURSERY - block);
        if new != 0 {
            // SAFETY: `length` bytes lie in the nursery and in the new block.
            unsafe { core::ptr::copy_nonoverlapping(block as *const u8, new as *mut u8, length) };
        }
        return new;
    }
    let Some(real) = real!(c"realloc", Two) else {
        return if block == 0 {
            from_nursery(bytes)
        } else {
            none()
        };
    };
    let was_logged = freed(block);
    // SAFETY: as above.
    let new = unsafe { real(block, bytes) };
    if new == 0 && bytes != 0 && was_logged {
        still_there(block, sp, bp);
    }
    allocated(new, bytes, sp, bp)
}

unsafe extern "C" fn on_reallocarray(
    block: usize,
    count: usize,
    each: usize,
    sp: usize,
    bp: usize,
) -> usize {
    let Some(real) = real!(c"reallocarray", Three) else {
        return none();
    };
    let was_logged = freed(block);
    // SAFETY: as above.
    let new = unsafe { real(block, count, each) };
    if new == 0 && count != 0 && each != 0 && was_logged {
        still_there(block, sp, bp);
    }
    allocated(new, count.saturating_mul(each), sp, bp)
}

/// A block could not be resized: it was said to be freed, but lives on.
#[cold]
fn still_there(block: usize, sp: usize, bp: usize) {
    if block != 0
        && let Some(size) = real!(c"malloc_usable_size", One)
    {
        // SAFETY: a block of the allocator.
        let bytes = unsafe { size(block) };
        let all = ALL.load(Ordering::Relaxed);
        let weight = if all { 1.0 } else { sampling::weight(bytes) };
        log_block(block, bytes, sp, bp, weight, !all);
    }
}

unsafe extern "C" fn on_posix_memalign(
    out: *mut usize,
    align: usize,
    bytes: usize,
    sp: usize,
    bp: usize,
) -> i32 {
    let Some(real) = real!(
        c"posix_memalign",
        unsafe extern "C" fn(*mut usize, usize, usize) -> i32
    ) else {
        return ENOMEM as i32;
    };
    // SAFETY: as above; on success the pointer was written.
    unsafe {
        let result = real(out, align, bytes);
        if result == 0 {
            allocated(*out, bytes, sp, bp);
        }
        result
    }
}

unsafe extern "C" fn on_aligned_alloc(align: usize, bytes: usize, sp: usize, bp: usize) -> usize {
    let Some(real) = real!(c"aligned_alloc", Two) else {
        return none();
    };
    // SAFETY: as above.
    allocated(unsafe { real(align, bytes) }, bytes, sp, bp)
}

unsafe extern "C" fn on_memalign(align: usize, bytes: usize, sp: usize, bp: usize) -> usize {
    let Some(real) = real!(c"memalign", Two) else {
        return none();
    };
    // SAFETY: as above.
    allocated(unsafe { real(align, bytes) }, bytes, sp, bp)
}

unsafe extern "C" fn on_valloc(bytes: usize, sp: usize, bp: usize) -> usize {
    let Some(real) = real!(c"valloc", One) else {
        return none();
    };
    // SAFETY: as above.
    allocated(unsafe { real(bytes) }, bytes, sp, bp)
}

unsafe extern "C" fn on_pvalloc(bytes: usize, sp: usize, bp: usize) -> usize {
    let Some(real) = real!(c"pvalloc", One) else {
        return none();
    };
    // SAFETY: as above.
    allocated(unsafe { real(bytes) }, bytes, sp, bp)
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(block: usize) {
    if block == 0 || in_nursery(block) {
        return;
    }
    let Some(real) = real!(c"free", unsafe extern "C" fn(usize)) else {
        return;
    };
    // Told first: another thread may get the block at once.
    freed(block);
    // SAFETY: the caller's argument.
    unsafe { real(block) };
}
