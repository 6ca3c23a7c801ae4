//! Allocators under names that the user gives (`mgz-record --heap-hook`): spare functions that
//! stand in for them.
//!
//! The image exports some functions under placeholder names. Before a run the recorder writes the
//! user's names over those in a copy of the image and rebuilds its symbol table, so that the loader
//! finds the spare functions first. Each passes all six integer arguments to the next definition of
//! its name.

use crate::wrap::heap::{allocated, freed, real};
use core::arch::naked_asm;
use core::ffi::CStr;
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use mgz_abi::heap_log::{HOOK_NAME, HOOKS};

#[allow(
    clippy::declare_interior_mutable_const,
    reason = "the start of an array"
)]
const LETTER: AtomicU8 = AtomicU8::new(b'?');
#[allow(
    clippy::declare_interior_mutable_const,
    reason = "the start of an array"
)]
const NAME: [AtomicU8; HOOK_NAME] = [LETTER; HOOK_NAME];
/// Names of the functions that the spare functions replace, zero-terminated. They are atomics, so
/// that the compiler does not assume their values: the recorder writes them into the file.
#[used]
#[unsafe(no_mangle)]
pub static mgz_heap_hook_names: [[AtomicU8; HOOK_NAME]; HOOKS] = [NAME; HOOKS];
static REAL: [AtomicUsize; HOOKS] = [const { AtomicUsize::new(0) }; HOOKS];

/// Kinds of functions, by the use of their first arguments.
const ALLOC: usize = 0;
const ALLOC2: usize = 1;
const CALLOC: usize = 2;
const REALLOC: usize = 3;
const FREE: usize = 4;
const FREE2: usize = 5;

type Six = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize) -> usize;

#[allow(
    clippy::too_many_arguments,
    reason = "as many as registers hold, and where the caller is"
)]
unsafe extern "C" fn stand_in<const HOOK: usize>(
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
    sp: usize,
    bp: usize,
) -> usize {
    let mut name = [0u8; HOOK_NAME];
    for (to, from) in name.iter_mut().zip(&mgz_heap_hook_names[HOOK]) {
        *to = from.load(Ordering::Relaxed);
    }
    let Some(next) = CStr::from_bytes_until_nul(&name)
        .ok()
        .and_then(|name| real(&REAL[HOOK], name))
    else {
        return 0;
    };
    let kind = HOOK / (HOOKS / 6);
    // Logged before the block is freed, since another thread may get it at once.
    match kind {
        REALLOC | FREE => {
            freed(a);
        }
        FREE2 => {
            freed(b);
        }
        _ => {}
    }
    // SAFETY: the next definition of the function, with the program's arguments; more than six
    // arguments or floating-point ones are excluded by the option's description.
    let block = unsafe { core::mem::transmute::<usize, Six>(next)(a, b, c, d, e, f) };
    let bytes = match kind {
        ALLOC => a,
        ALLOC2 | REALLOC => b,
        CALLOC => a.saturating_mul(b),
        _ => return block,
    };
    allocated(block, bytes, sp, bp)
}

macro_rules! stand_in {
    ($name:ident, $hook:literal) => {
        /// # Safety
        /// As the function that it replaces.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            // Stack and frame pointer are the seventh and the eighth argument; the stack is aligned at the call.
            naked_asm!("mov rax, rsp", "sub rsp, 8", "push rbp", "push rax", "call {then}", "add rsp, 24", "ret", then = sym stand_in::<$hook>)
        }
    };
}

stand_in!(
    mgz_heap_hook_alloc_0__________________________________________,
    0
);
stand_in!(
    mgz_heap_hook_alloc_1__________________________________________,
    1
);
stand_in!(
    mgz_heap_hook_alloc_2__________________________________________,
    2
);
stand_in!(
    mgz_heap_hook_alloc_3__________________________________________,
    3
);
stand_in!(
    mgz_heap_hook_alloc2_0_________________________________________,
    4
);
stand_in!(
    mgz_heap_hook_alloc2_1_________________________________________,
    5
);
stand_in!(
    mgz_heap_hook_alloc2_2_________________________________________,
    6
);
stand_in!(
    mgz_heap_hook_alloc2_3_________________________________________,
    7
);
stand_in!(
    mgz_heap_hook_calloc_0_________________________________________,
    8
);
stand_in!(
    mgz_heap_hook_calloc_1_________________________________________,
    9
);
stand_in!(
    mgz_heap_hook_calloc_2_________________________________________,
    10
);
stand_in!(
    mgz_heap_hook_calloc_3_________________________________________,
    11
);
stand_in!(
    mgz_heap_hook_realloc_0________________________________________,
    12
);
stand_in!(
    mgz_heap_hook_realloc_1________________________________________,
    13
);
stand_in!(
    mgz_heap_hook_realloc_2________________________________________,
    14
);
stand_in!(
    mgz_heap_hook_realloc_3________________________________________,
    15
);
stand_in!(
    mgz_heap_hook_free_0___________________________________________,
    16
);
stand_in!(
    mgz_heap_hook_free_1___________________________________________,
    17
);
stand_in!(
    mgz_heap_hook_free_2___________________________________________,
    18
);
stand_in!(
    mgz_heap_hook_free_3___________________________________________,
    19
);
stand_in!(
    mgz_heap_hook_free2_0__________________________________________,
    20
);
stand_in!(
    mgz_heap_hook_free2_1__________________________________________,
    21
);
stand_in!(
    mgz_heap_hook_free2_2__________________________________________,
    22
);
stand_in!(
    mgz_heap_hook_free2_3__________________________________________,
    23
);
