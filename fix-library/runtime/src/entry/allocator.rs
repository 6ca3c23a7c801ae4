//! C's allocation functions: the functions behind the stubs, and the functions with a block as
//! argument.

use super::next::next;
use super::start;
use super::stubs::Answer;
use crate::heap::{self, Owner};
use crate::plan_format::SiteRecord;
use crate::sites;

const PAGE: usize = 4096;
/// Alignment of every block.
const USUAL: usize = 16;
/// Blocks of at most this many bytes are not made smaller.
const SMALL: usize = 64;
const ENOMEM: i32 = 12;

type One = unsafe extern "C" fn(usize) -> usize;
type Two = unsafe extern "C" fn(usize, usize) -> usize;
type Free = unsafe extern "C" fn(usize);

/// Address of a return address on the stack, with the caller's frame above it.
pub(super) type ReturnSlot = *const usize;

/// The site of a call, if the plan has one. The library is started first if necessary.
pub(super) fn site(slot: ReturnSlot) -> Option<&'static SiteRecord> {
    start::ensure();
    sites::site(slot)
}

/// A block for a call, or 0: the next allocator is to be called.
pub(super) fn allocate(slot: ReturnSlot, bytes: usize, align: usize, zero: bool) -> usize {
    match site(slot) {
        Some(site) => heap::allocate(site, bytes, align, zero),
        None => 0,
    }
}

pub(super) unsafe extern "C" fn on_malloc(
    bytes: usize,
    _: usize,
    _: usize,
    slot: ReturnSlot,
) -> Answer {
    Answer::block(allocate(slot, bytes, USUAL, false))
}

pub(super) unsafe extern "C" fn on_calloc(
    count: usize,
    each: usize,
    _: usize,
    slot: ReturnSlot,
) -> Answer {
    match count.checked_mul(each) {
        Some(bytes) => Answer::block(allocate(slot, bytes, USUAL, true)),
        None => {
            start::ensure();
            Answer::FORWARD
        }
    }
}

pub(super) unsafe extern "C" fn on_posix_memalign(
    out: *mut usize,
    align: usize,
    bytes: usize,
    slot: ReturnSlot,
) -> Answer {
    let site = site(slot);
    if !align.is_multiple_of(size_of::<usize>()) {
        return Answer::FORWARD;
    }
    let block = site.map_or(0, |site| {
        heap::allocate(site, bytes, align.max(USUAL), false)
    });
    if block == 0 {
        return Answer::FORWARD;
    }
    // SAFETY: the caller's pointer.
    unsafe { *out = block };
    Answer::done(0)
}

pub(super) unsafe extern "C" fn on_aligned_alloc(
    align: usize,
    bytes: usize,
    _: usize,
    slot: ReturnSlot,
) -> Answer {
    let site = site(slot);
    // C libraries differ in how they take other alignments.
    if !align.is_power_of_two() {
        return Answer::FORWARD;
    }
    Answer::block(site.map_or(0, |site| {
        heap::allocate(site, bytes, align.max(USUAL), false)
    }))
}

pub(super) unsafe extern "C" fn on_memalign(
    align: usize,
    bytes: usize,
    third: usize,
    slot: ReturnSlot,
) -> Answer {
    // SAFETY: the caller's contract.
    unsafe { on_aligned_alloc(align, bytes, third, slot) }
}

pub(super) unsafe extern "C" fn on_valloc(
    bytes: usize,
    _: usize,
    _: usize,
    slot: ReturnSlot,
) -> Answer {
    Answer::block(allocate(slot, bytes, PAGE, false))
}

pub(super) unsafe extern "C" fn on_pvalloc(
    bytes: usize,
    _: usize,
    _: usize,
    slot: ReturnSlot,
) -> Answer {
    let site = site(slot);
    match bytes.checked_next_multiple_of(PAGE) {
        Some(bytes) => {
            Answer::block(site.map_or(0, |site| heap::allocate(site, bytes, PAGE, false)))
        }
        None => Answer::FORWARD,
    }
}

pub(super) unsafe extern "C" fn on_realloc(
    block: usize,
    bytes: usize,
    _: usize,
    slot: ReturnSlot,
) -> Answer {
    let site = site(slot);
    if block == 0 {
        let new = site.map_or(0, |site| heap::allocate(site, bytes, USUAL, false));
        return Answer::block(new);
    }
    match heap::owner(block) {
        Some(owner) => Answer::done(resize(owner, block, bytes)),
        None => Answer::block(site.map_or(0, |site| take_over(site, block, bytes))),
    }
}

pub(super) unsafe extern "C" fn on_reallocarray(
    block: usize,
    count: usize,
    each: usize,
    slot: ReturnSlot,
) -> Answer {
    match count.checked_mul(each) {
        // SAFETY: the caller's contract.
        Some(bytes) => match unsafe { on_realloc(block, bytes, 0, slot) } {
            answer if answer.is_done() => answer,
            // In a library without the function, `realloc` is used.
            _ => Answer::done(next_realloc(block, bytes)),
        },
        None => {
            start::ensure();
            fail();
            Answer::done(0)
        }
    }
}

fn next_realloc(block: usize, bytes: usize) -> usize {
    // SAFETY: the caller's arguments.
    next!(c"realloc", Two).map_or(0, |next| unsafe { next(block, bytes) })
}

/// Copies a block of another allocator to its site's own memory. 0: the block was not moved.
fn take_over(site: &'static SiteRecord, block: usize, bytes: usize) -> usize {
    let (Some(size), Some(free)) = (next!(c"malloc_usable_size", One), next!(c"free", Free)) else {
        return 0;
    };
    if bytes == 0 {
        return 0;
    }
    let new = heap::allocate(site, bytes, USUAL, false);
    if new != 0 {
        // SAFETY: the caller's block, which has as many bytes, and a new one.
        unsafe {
            copy(block, new, size(block).min(bytes));
            free(block);
        }
    }
    new
}

/// `realloc` for a block of this library.
fn resize(owner: Owner, block: usize, bytes: usize) -> usize {
    let Some(old) = owner.bytes(block) else {
        heap::damaged(b"realloc(): no block that is in use\n");
    };
    if bytes == 0 {
        owner.free(block);
        return 0;
    }
    if bytes <= old && (bytes >= old / 2 || old <= SMALL) {
        return block;
    }
    let mut new = heap::allocate(owner.site(), bytes, USUAL, false);
    if new == 0 {
        // SAFETY: the function's type.
        new = next!(c"malloc", One).map_or(0, |next| unsafe { next(bytes) });
    }
    if new != 0 {
        // SAFETY: both blocks have as many bytes.
        unsafe { copy(block, new, old.min(bytes)) };
        owner.free(block);
    }
    new
}

/// # Safety
/// Both blocks must have `bytes` bytes and must not overlap.
unsafe fn copy(from: usize, to: usize, bytes: usize) {
    // SAFETY: the caller's contract.
    unsafe { core::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes) };
}

/// Sets the C library's errno.
fn fail() {
    let location = start::errno_location();
    if location != 0 {
        // SAFETY: the function's type; it returns the address of the calling thread's errno.
        unsafe {
            *core::mem::transmute::<usize, extern "C" fn() -> *mut i32>(location)() = ENOMEM;
        }
    }
}

/// Frees an own block, or passes it on by `forward`.
#[inline(always)]
pub(super) fn release(block: usize, forward: impl FnOnce()) {
    match heap::owner(block) {
        Some(owner) => owner.free(block),
        None => forward(),
    }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
unsafe extern "C" fn free(block: usize) {
    release(block, || {
        if let Some(next) = next!(c"free", Free) {
            // SAFETY: the caller's argument.
            unsafe { next(block) };
        } else if block != 0 {
            start::ensure();
            // SAFETY: as above.
            unsafe { free(block) };
        }
    });
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cfree(block: usize) {
    start::ensure();
    release(block, || {
        if let Some(next) = next!(c"cfree", Free) {
            // SAFETY: the caller's argument.
            unsafe { next(block) };
        }
    });
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
unsafe extern "C" fn free_sized(block: usize, bytes: usize) {
    start::ensure();
    release(block, || {
        if let Some(next) = next!(c"free_sized", unsafe extern "C" fn(usize, usize)) {
            // SAFETY: the caller's arguments.
            unsafe { next(block, bytes) };
        }
    });
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
unsafe extern "C" fn free_aligned_sized(block: usize, align: usize, bytes: usize) {
    start::ensure();
    release(block, || {
        if let Some(next) = next!(
            c"free_aligned_sized",
            unsafe extern "C" fn(usize, usize, usize)
        ) {
            // SAFETY: the caller's arguments.
            unsafe { next(block, align, bytes) };
        }
    });
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
unsafe extern "C" fn malloc_usable_size(block: usize) -> usize {
    start::ensure();
    match heap::owner(block) {
        Some(owner) => owner.bytes(block).unwrap_or(0),
        // SAFETY: the caller's argument.
        None => next!(c"malloc_usable_size", One).map_or(0, |next| unsafe { next(block) }),
    }
}
