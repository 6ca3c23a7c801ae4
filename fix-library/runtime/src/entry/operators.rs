//! C++'s operators new and delete. The image for plans with sites of C++ exports them, so that the
//! return address is the caller's and not the C++ library's.

use super::allocator::{ReturnSlot, allocate, release};
use super::next::{find_operator, next, place};
use super::start;
use super::stubs::Answer;
use core::ffi::CStr;

/// Alignment of blocks without a stated one.
const USUAL: usize = 16;

fn block(slot: ReturnSlot, bytes: usize, align: usize, place: usize) -> Answer {
    start::ensure();
    let block = if start::operators_are_own() {
        allocate(slot, bytes, align, false)
    } else {
        0
    };
    if block == 0 {
        find_operator(place);
    }
    Answer::block(block)
}

pub(super) unsafe extern "C" fn on_new(
    bytes: usize,
    _: usize,
    _: usize,
    slot: ReturnSlot,
    place: usize,
) -> Answer {
    block(slot, bytes, USUAL, place)
}

pub(super) unsafe extern "C" fn on_new_aligned(
    bytes: usize,
    align: usize,
    _: usize,
    slot: ReturnSlot,
    place: usize,
) -> Answer {
    block(slot, bytes, align.max(USUAL), place)
}

/// Aligned `new` in a process without a C++ library.
pub(super) unsafe extern "C" fn aligned_new(bytes: usize, align: usize) -> usize {
    type Two = unsafe extern "C" fn(usize, usize) -> usize;
    let bytes = bytes
        .checked_next_multiple_of(align.max(1))
        .unwrap_or(bytes);
    // SAFETY: the function's type.
    next!(c"aligned_alloc", Two).map_or(0, |next| unsafe { next(align, bytes) })
}

fn delete(name: &'static CStr, block: usize, second: usize, third: usize) {
    release(block, || {
        let place = place(name);
        start::ensure();
        find_operator(place);
        let next = super::next::NEXT[place].load(core::sync::atomic::Ordering::Relaxed);
        if next != 0 {
            // SAFETY: the operators take up to three integers or pointers.
            unsafe {
                type Delete = unsafe extern "C" fn(usize, usize, usize);
                core::mem::transmute::<usize, Delete>(next)(block, second, third);
            }
        }
    });
}

/// Defines an operator delete.
macro_rules! delete {
    ($function:ident, $name:literal) => {
        #[unsafe(export_name = $name)]
        unsafe extern "C" fn $function(block: usize, second: usize, third: usize) {
            const NAME: &CStr = match CStr::from_bytes_with_nul(concat!($name, "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!(),
            };
            delete(NAME, block, second, third);
        }
    };
}

delete!(delete_one, "_ZdlPv");
delete!(delete_array, "_ZdaPv");
delete!(delete_one_sized, "_ZdlPvm");
delete!(delete_array_sized, "_ZdaPvm");
delete!(delete_one_nothrow, "_ZdlPvRKSt9nothrow_t");
delete!(delete_array_nothrow, "_ZdaPvRKSt9nothrow_t");
delete!(delete_one_aligned, "_ZdlPvSt11align_val_t");
delete!(delete_array_aligned, "_ZdaPvSt11align_val_t");
delete!(delete_one_aligned_sized, "_ZdlPvmSt11align_val_t");
delete!(delete_array_aligned_sized, "_ZdaPvmSt11align_val_t");
delete!(
    delete_one_aligned_nothrow,
    "_ZdlPvSt11align_val_tRKSt9nothrow_t"
);
delete!(
    delete_array_aligned_nothrow,
    "_ZdaPvSt11align_val_tRKSt9nothrow_t"
);
