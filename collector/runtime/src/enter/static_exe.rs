//! Executables without a loader: how the runtime gets into them.

use crate::enter::preload;
use crate::record::{modules, thread_ring, trigger};
use crate::sys::environment::ENVIRONMENT;
use crate::sys::syscall::map;
use crate::sys::{process, syscall};
use core::arch::naked_asm;
use mgz_abi::shared_memory::StaticImage;

/// Target of the rewritten entry point's jump. rbx holds the image's address, rcx the offset of its
/// list of relocations, rdi the initial stack, rsi the program's own entry point, rdx its load
/// bias. Relocates the image, starts the runtime and begins the program as the kernel would have.
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn mgz_enter() {
    naked_asm!(
        "lea r8, [rbx + rcx]",
        "mov r9d, [r8]",
        "2:",
        "test r9d, r9d",
        "je 3f",
        "mov eax, [r8 + 4*r9]",
        "add [rbx + rax], rbx",
        "dec r9d",
        "jmp 2b",
        "3:",
        "mov r12, rdi",
        "mov r13, rsi",
        "mov rsi, rdx",
        "mov rdx, rbx",
        "and rsp, -16",
        "call {begin}",
        "mov rsp, r12",
        "mov [rsp - 8], r13",
        "xor eax, eax", "xor ebx, ebx", "xor ecx, ecx", "xor edx, edx", "xor esi, esi", "xor edi, edi", "xor ebp, ebp", "xor r8d, r8d",
        "xor r9d, r9d", "xor r10d, r10d", "xor r11d, r11d", "xor r12d, r12d", "xor r13d, r13d", "xor r14d, r14d", "xor r15d, r15d",
        "jmp [rsp - 8]",
        begin = sym begin)
}

/// Starts the runtime: `stack` is the initial stack, `image` the address of the runtime.
unsafe extern "C" fn begin(stack: *mut usize, bias: u64, image: usize) {
    // SAFETY: the kernel puts argc, the arguments, null, and the environment there.
    let envp = unsafe { stack.add(2 + *stack) } as *mut *mut u8;
    // SAFETY: single-threaded, at the very start.
    unsafe { ENVIRONMENT = envp.cast() };
    // SAFETY: as above.
    let length = unsafe { entries(envp) };
    // SAFETY: as above.
    let vectors = unsafe { preload::attach_to_recorder(envp) };
    // SAFETY: as above; the environment ended there.
    unsafe { move_vector(envp, length) };
    let Some(vectors) = vectors else {
        return;
    };
    if !preload::begin_recording() {
        return;
    }
    if let Some(header) = process::header() {
        let StaticImage {
            text_start,
            text_end,
            ..
        } = header.image;
        // SAFETY: the image's own pages; its code needs no writing any more.
        unsafe {
            syscall::mprotect(
                image + text_start as usize,
                (text_end - text_start) as usize,
                map::READ | map::EXEC,
            )
        };
    }
    modules::add_executable(bias, vectors.phdr, vectors.phnum);
    crate::record::phases::begin_phases(false);
    if let Some(ring) = thread_ring::current() {
        trigger::start_trigger(ring);
    }
}

/// Number of entries before the null pointer.
///
/// # Safety
/// `list` must end with a null pointer.
unsafe fn entries(list: *mut *mut u8) -> usize {
    // SAFETY: the caller's contract.
    (0..)
        .take_while(|&i| unsafe { !(*list.add(i)).is_null() })
        .count()
}

/// Moves the auxiliary vector directly behind the environment, which is now shorter: the C library
/// looks for it there. (In programs with a loader the vector stays where it is, since the loader
/// has already read its address.)
///
/// # Safety
/// `envp` must be the environment on the initial stack, and `length` the number of entries that it
/// began with.
unsafe fn move_vector(envp: *mut *mut u8, length: usize) {
    // SAFETY: the caller's contract: the vector is behind the null pointer, and ends with type 0.
    // It moves to lower addresses.
    unsafe {
        let from = envp.add(length + 1) as *mut [u64; 2];
        let to = envp.add(entries(envp) + 1) as *mut [u64; 2];
        if from == to {
            return;
        }
        for k in 0.. {
            let entry = from.add(k).read();
            to.add(k).write(entry);
            if entry[0] == 0 {
                break;
            }
        }
    }
}
