//! The allocator's functions. The image for heap blocks exports them, so that the program calls
//! them instead of the allocator's own.
//!
//! Each is entered by a stub. For most blocks the stub only counts bytes, or checks the filter of
//! logged blocks, and jumps to the real function. Otherwise it passes on the stack and frame
//! pointer: the word at the stack pointer is the return address, from which the recorder unwinds in
//! the copy of the stack. No frame of the runtime is in between.

use super::params::MIN_ALWAYS_LOGGED_BYTES;
use super::sampling::{self, KNOWN, Left};
use super::{allocated, counted, freed};
use crate::sys::errno::ENOMEM;
use crate::sys::libc_symbols::{fail, next_definition};
use core::arch::{asm, global_asm, naked_asm};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use mgz_abi::heap_log::{ALL, BUDGET};

/// Blocks of at least this size bypass the thread's counter and are all logged. 0: the stubs do not
/// filter.
pub(super) static FROM: AtomicUsize = AtomicUsize::new(0);
static MALLOC: AtomicUsize = AtomicUsize::new(0);
static CALLOC: AtomicUsize = AtomicUsize::new(0);
static REALLOC: AtomicUsize = AtomicUsize::new(0);
static FREE: AtomicUsize = AtomicUsize::new(0);
/// Function for freed blocks that are not in the filter; 0: each freed block is checked.
static FREE_UNKNOWN: AtomicUsize = AtomicUsize::new(0);

// A thread's `Left`. The image is preloaded, so it is at a constant distance from the thread
// pointer.
global_asm!(
    ".pushsection .tbss.mgz_heap_left, \"awT\", @nobits",
    ".p2align 4",
    ".local mgz_heap_left",
    ".type mgz_heap_left, @object",
    "mgz_heap_left:",
    ".skip {bytes}",
    ".size mgz_heap_left, {bytes}",
    ".popsection",
    bytes = const size_of::<Left>()
);

/// The calling thread's counter.
pub(super) fn left() -> &'static Left {
    let at: usize;
    // SAFETY: the first word of a thread's own area holds the area's address (System V ABI), and is
    // set before any allocation.
    unsafe {
        asm!(
            "mov {at}, qword ptr fs:[0]",
            "add {at}, qword ptr [rip + mgz_heap_left@GOTTPOFF]",
            at = out(reg) at,
            options(nostack, readonly)
        );
        // SAFETY: zero at first; only this thread uses it while it lives.
        &*(at as *const Left)
    }
}

/// Counts a block that no stub has counted.
pub(super) fn count_bytes(bytes: usize) {
    let left = &left().bytes;
    left.set(left.get().wrapping_sub(bytes as i64));
}

/// Lets the stubs filter from now on, since the log is open.
pub(super) fn begin(which: u32) {
    if which == ALL {
        return;
    }
    let functions = [
        (&MALLOC, c"malloc"),
        (&CALLOC, c"calloc"),
        (&REALLOC, c"realloc"),
        (&FREE, c"free"),
    ];
    if functions
        .iter()
        .all(|(cache, name)| real(cache, name).is_some())
    {
        FREE_UNKNOWN.store(FREE.load(Ordering::Relaxed), Ordering::Release);
        let from = if which == BUDGET {
            usize::MAX
        } else {
            MIN_ALWAYS_LOGGED_BYTES
        };
        FROM.store(from, Ordering::Release);
    }
}

/// Memory for allocations of the C library during the look-up of the real functions. Source:
/// Chosen.
const NURSERY_BYTES: usize = 1 << 16;
#[repr(align(16))]
struct Nursery(core::cell::UnsafeCell<[u8; NURSERY_BYTES]>);
// SAFETY: each part is given out once, by an atomic.
unsafe impl Sync for Nursery {}
static NURSERY_MEMORY: Nursery = Nursery(core::cell::UnsafeCell::new([0; NURSERY_BYTES]));
static NURSERY_USED: AtomicUsize = AtomicUsize::new(0);
static RESOLVING: AtomicU32 = AtomicU32::new(0);

pub(super) fn in_nursery(block: usize) -> bool {
    let start = NURSERY_MEMORY.0.get() as usize;
    (start..start + NURSERY_BYTES).contains(&block)
}

fn from_nursery(bytes: usize) -> usize {
    let at = NURSERY_USED.fetch_add(bytes.saturating_add(15) & !15, Ordering::Relaxed);
    if at.saturating_add(bytes) > NURSERY_BYTES {
        return 0;
    }
    let block = NURSERY_MEMORY.0.get() as usize + at;
    sampling::always_look(block);
    block
}

/// The next definition of a function. `None` while it is being looked up, or if there is none.
pub(crate) fn real(cache: &AtomicUsize, name: &core::ffi::CStr) -> Option<usize> {
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
        real!(CACHE, $name, $ty)
    }};
    ($cache:path, $name:literal, $ty:ty) => {{
        // SAFETY: the symbol's documented type.
        real(&$cache, $name).map(|address| unsafe { core::mem::transmute::<usize, $ty>(address) })
    }};
}

fn none() -> usize {
    fail(ENOMEM);
    0
}

type One = unsafe extern "C" fn(usize) -> usize;
type Two = unsafe extern "C" fn(usize, usize) -> usize;
type Three = unsafe extern "C" fn(usize, usize, usize) -> usize;

/// A function of the C library that passes its stack and frame pointer to `$then` after its own
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

/// # Safety
/// As the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc() {
    naked_asm!(
        "cmp rdi, qword ptr [rip + {from}]",
        "jae 2f",
        "mov rax, qword ptr [rip + mgz_heap_left@GOTTPOFF]",
        "sub qword ptr fs:[rax], rdi",
        "jle 2f",
        "jmp qword ptr [rip + {real}]",
        "2:",
        "mov rsi, rsp",
        "mov rdx, rbp",
        "jmp {then}",
        from = sym FROM,
        real = sym MALLOC,
        then = sym on_malloc
    )
}

/// # Safety
/// As the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calloc() {
    naked_asm!(
        "mov rax, rdi",
        "imul rax, rsi",
        "cmp rax, qword ptr [rip + {from}]",
        "jae 2f",
        "mov rcx, qword ptr [rip + mgz_heap_left@GOTTPOFF]",
        "sub qword ptr fs:[rcx], rax",
        "jle 2f",
        "jmp qword ptr [rip + {real}]",
        "2:",
        "mov rdx, rsp",
        "mov rcx, rbp",
        "jmp {then}",
        from = sym FROM,
        real = sym CALLOC,
        then = sym on_calloc
    )
}

/// # Safety
/// As the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc() {
    naked_asm!(
        "cmp rsi, qword ptr [rip + {from}]",
        "jae 2f",
        "mov rax, qword ptr [rip + mgz_heap_left@GOTTPOFF]",
        "sub qword ptr fs:[rax], rsi",
        "jle 2f",
        "mov rax, rdi",
        "shr rax, 4",
        "movzx eax, ax",
        "lea rcx, [rip + {known}]",
        "cmp byte ptr [rcx + rax], 0",
        "jne 2f",
        "jmp qword ptr [rip + {real}]",
        "2:",
        "mov rdx, rsp",
        "mov rcx, rbp",
        "jmp {then}",
        from = sym FROM,
        known = sym KNOWN,
        real = sym REALLOC,
        then = sym on_realloc
    )
}

/// # Safety
/// As the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free() {
    naked_asm!(
        "mov rax, rdi",
        "shr rax, 4",
        "movzx eax, ax",
        "lea rcx, [rip + {known}]",
        "cmp byte ptr [rcx + rax], 0",
        "jne 2f",
        "mov rax, qword ptr [rip + {real}]",
        "test rax, rax",
        "je 2f",
        "jmp rax",
        "2:",
        "jmp {then}",
        known = sym KNOWN,
        real = sym FREE_UNKNOWN,
        then = sym on_free
    )
}

const _: () = assert!(KNOWN.len() == 1 << u16::BITS);

stub!(reallocarray, "rcx", "r8", on_reallocarray);
stub!(posix_memalign, "rcx", "r8", on_posix_memalign);
stub!(aligned_alloc, "rdx", "rcx", on_aligned_alloc);
stub!(memalign, "rdx", "rcx", on_memalign);
stub!(valloc, "rsi", "rdx", on_valloc);
stub!(pvalloc, "rsi", "rdx", on_pvalloc);

unsafe extern "C" fn on_malloc(bytes: usize, sp: usize, bp: usize) -> usize {
    let Some(real) = real!(MALLOC, c"malloc", One) else {
        return from_nursery(bytes);
    };
    // SAFETY: the caller's arguments, here and below.
    counted(unsafe { real(bytes) }, bytes, sp, bp)
}

unsafe extern "C" fn on_calloc(count: usize, each: usize, sp: usize, bp: usize) -> usize {
    // The nursery's memory is zero, and none of it is used twice.
    let Some(real) = real!(CALLOC, c"calloc", Two) else {
        return from_nursery(count.saturating_mul(each));
    };
    // SAFETY: as above.
    counted(
        unsafe { real(count, each) },
        count.wrapping_mul(each),
        sp,
        bp,
    )
}

unsafe extern "C" fn on_realloc(block: usize, bytes: usize, sp: usize, bp: usize) -> usize {
    if in_nursery(block) {
        // SAFETY: as above. The nursery stores no sizes, so bytes behind the block are copied as
        // well.
        let new = unsafe { on_malloc(bytes, sp, bp) };
        let length = bytes.min(NURSERY_MEMORY.0.get() as usize + NURSERY_BYTES - block);
        if new != 0 {
            // SAFETY: `length` bytes lie in the nursery and in the new block.
            unsafe { core::ptr::copy_nonoverlapping(block as *const u8, new as *mut u8, length) };
        }
        return new;
    }
    let Some(real) = real!(REALLOC, c"realloc", Two) else {
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
    counted(new, bytes, sp, bp)
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

/// Logs a block again that could not be resized: its end was logged, but it still exists.
#[cold]
fn still_there(block: usize, sp: usize, bp: usize) {
    if block != 0
        && let Some(size) = real!(c"malloc_usable_size", One)
    {
        // SAFETY: a block of the allocator.
        let bytes = unsafe { size(block) };
        super::still_there(block, bytes, sp, bp);
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

unsafe extern "C" fn on_free(block: usize) {
    if block == 0 || in_nursery(block) {
        return;
    }
    let Some(real) = real!(FREE, c"free", unsafe extern "C" fn(usize)) else {
        return;
    };
    // Logged first, since another thread may get the block at once.
    freed(block);
    // SAFETY: the caller's argument.
    unsafe { real(block) };
}
