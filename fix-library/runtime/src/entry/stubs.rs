//! The exported functions that allocate.
//!
//! A stub jumps to the next definition at once if the return address is known to have no site.
//! Otherwise it calls a function of this library, and jumps to the next definition if that function
//! has not done the work. So the next definition sees the program's own call, and its C++
//! exceptions pass no frame in between.

use super::allocator::{
    on_aligned_alloc, on_calloc, on_malloc, on_memalign, on_posix_memalign, on_pvalloc, on_realloc,
    on_reallocarray, on_valloc,
};
use super::next::{NEXT, place};
use super::operators::{on_new, on_new_aligned};
use crate::params::REMEMBERED;
use crate::sites::SEEN;
use core::arch::global_asm;
use core::ffi::CStr;

/// The result of a stub's function: `block` is the program's result if `done` is not 0.
#[repr(C)]
pub(super) struct Answer {
    block: usize,
    done: usize,
}

impl Answer {
    /// The next definition is to be called.
    pub(super) const FORWARD: Answer = Answer { block: 0, done: 0 };

    pub(super) fn done(block: usize) -> Answer {
        Answer { block, done: 1 }
    }

    pub(super) fn is_done(&self) -> bool {
        self.done != 0
    }

    /// A block, or 0: the next definition is to be called.
    pub(super) fn block(block: usize) -> Answer {
        Answer { block, done: block }
    }
}

/// A name as a C string.
const fn name(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!(),
    }
}

/// Defines a function. `$known`: code that jumps to label 2 unless the next definition can be
/// called at once. `$ask` gets the program's first three arguments, the address of the return
/// address, and the function's index in `NAMES`.
macro_rules! define {
    ($name:literal, $ask:path, [$($known:literal),*], $($operands:tt)*) => {
        global_asm!(
            ".pushsection .text.mgz_stubs, \"ax\", @progbits",
            ".p2align 5",
            concat!(".globl ", $name),
            concat!(".type ", $name, ", @function"),
            concat!($name, ":"),
            ".cfi_startproc",
            $($known,)*
            "2:",
            "push rdi",
            ".cfi_adjust_cfa_offset 8",
            "push rsi",
            ".cfi_adjust_cfa_offset 8",
            "push rdx",
            ".cfi_adjust_cfa_offset 8",
            "lea rcx, [rsp + 24]",
            "mov r8d, {place}",
            "call {ask}",
            "mov r11, rdx",
            "pop rdx",
            ".cfi_adjust_cfa_offset -8",
            "pop rsi",
            ".cfi_adjust_cfa_offset -8",
            "pop rdi",
            ".cfi_adjust_cfa_offset -8",
            "test r11, r11",
            "jz 3f",
            "ret",
            "3:",
            "jmp qword ptr [rip + {next} + {offset}]",
            ".cfi_endproc",
            concat!(".size ", $name, ", . - ", $name),
            ".popsection",
            next = sym NEXT,
            offset = const 8 * place(name(concat!($name, "\0"))),
            place = const place(name(concat!($name, "\0"))),
            ask = sym $ask,
            $($operands)*
        );
    };
}

/// A function that makes a block.
macro_rules! allocating {
    ($name:literal, $ask:path) => {
        define!(
            $name,
            $ask,
            [
                "mov rax, qword ptr [rsp]",
                "mov r11d, eax",
                "and r11d, {mask}",
                "lea r10, [rip + {seen}]",
                "cmp qword ptr [r10 + 8 * r11], rax",
                "jne 2f",
                "mov r11, qword ptr [rip + {next} + {offset}]",
                "test r11, r11",
                "jz 2f",
                "jmp r11"
            ],
            seen = sym SEEN,
            mask = const REMEMBERED - 1,
        );
    };
}

allocating!("malloc", on_malloc);
allocating!("calloc", on_calloc);
allocating!("posix_memalign", on_posix_memalign);
allocating!("aligned_alloc", on_aligned_alloc);
allocating!("memalign", on_memalign);
allocating!("valloc", on_valloc);
allocating!("pvalloc", on_pvalloc);
// These functions may free a block of this library from any call site.
define!("realloc", on_realloc, [],);
define!("reallocarray", on_reallocarray, [],);

allocating!("_Znwm", on_new);
allocating!("_Znam", on_new);
allocating!("_ZnwmRKSt9nothrow_t", on_new);
allocating!("_ZnamRKSt9nothrow_t", on_new);
allocating!("_ZnwmSt11align_val_t", on_new_aligned);
allocating!("_ZnamSt11align_val_t", on_new_aligned);
allocating!("_ZnwmSt11align_val_tRKSt9nothrow_t", on_new_aligned);
allocating!("_ZnamSt11align_val_tRKSt9nothrow_t", on_new_aligned);
