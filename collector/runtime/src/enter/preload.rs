//! The constructor, and the hook in the loader that finds modules loaded later.

use crate::record::{entry_patches, modules, phases, signals, stack_copy, thread_ring, trigger};
use crate::sys::syscall::map;
use crate::sys::{begin, loader_list, process, syscall};
use crate::wrap::raw_syscalls;
use core::arch::naked_asm;
use core::sync::atomic::{AtomicUsize, Ordering};
use mgz_abi::shared_memory::{
    MODE_BURST, MODULE_LATE, MODULE_PLAIN, MODULE_SHADOW_STACK, PAGE_SIZE, count,
};

#[cfg_attr(mgz_cdylib, used)]
#[cfg_attr(mgz_cdylib, unsafe(link_section = ".init_array"))]
#[cfg_attr(
    not(mgz_cdylib),
    allow(dead_code, reason = "only the shared object has a constructor")
)]
static CONSTRUCTOR: unsafe extern "C" fn(i32, *const *const u8, *mut *mut u8) = construct;

/// Entries of the auxiliary vector.
const AT_PHDR: u64 = 3;
const AT_PHNUM: u64 = 5;
const AT_HWCAP2: u64 = 26;
const AT_SYSINFO_EHDR: u64 = 33;
const AT_EXECFN: u64 = 31;

/// The highest known address in the stack of the first thread: the program's path, which is above
/// all arguments.
static STACK_TOP: AtomicUsize = AtomicUsize::new(0);

/// Runs before all other constructors (`-z initfirst`). Its caller is the loader.
#[unsafe(naked)]
unsafe extern "C" fn construct(_argc: i32, _argv: *const *const u8, envp: *mut *mut u8) {
    naked_asm!("mov rdi, rdx", "mov rsi, [rsp]", "jmp {then}", then = sym construct_from)
}

/// [`construct`], called from code at `caller`.
unsafe extern "C" fn construct_from(envp: *mut *mut u8, caller: usize) {
    if !begin::is_first() {
        return;
    }
    loader_list::know_loader(caller);
    // musl passes nothing to constructors, but has already set `environ`. C libraries that have not
    // set it yet pass the environment.
    let known = crate::sys::libc_symbols::environ() as *mut *mut u8;
    start(if known.is_null() { envp } else { known });
}

/// The constructor ([`construct`]) under an exported name.
#[unsafe(no_mangle)]
unsafe extern "C" fn mgz_start(envp: *mut *mut u8) {
    start(envp)
}

fn start(envp: *mut *mut u8) {
    crate::sys::libc_symbols::find_all();
    // SAFETY: the process is single-threaded, and no other code has seen the environment yet.
    let Some(vectors) = (unsafe { attach_to_recorder(envp) }) else {
        return;
    };
    hook_loader(vectors.phdr, vectors.phnum);
    if !modules::any_instrumented() {
        process::fall_asleep();
        modules::tell_this_program(MODULE_PLAIN);
    } else if begin_recording() {
        modules::scan();
        phases::begin_phases(false);
    }
    crate::wrap::call_sites::meet_calls();
    if let Some(ring) = thread_ring::current() {
        trigger::start_trigger(ring);
    }
}

/// Facts that the kernel passes about the executable.
pub struct Vectors {
    /// Address of its program headers.
    pub phdr: u64,
    /// Number of these headers.
    pub phnum: u64,
}

/// Attaches this process to the recorder. `None` if there is none.
///
/// # Safety
/// `envp` must be the environment as the kernel has made it; nothing else may run yet.
pub unsafe fn attach_to_recorder(envp: *mut *mut u8) -> Option<Vectors> {
    // The environment is compacted below; the auxiliary vector is behind its original end.
    let mut end = envp;
    // SAFETY: the environment ends with a null pointer; the auxiliary vector follows, and ends with
    // type 0.
    let (hwcap2, phdr, phnum, vdso) = unsafe {
        while !(*end).is_null() {
            end = end.add(1);
        }
        let mut entry = end.add(1) as *const [u64; 2];
        let (mut hwcap2, mut phdr, mut phnum, mut vdso) = (0, 0, 0, 0);
        while (*entry)[0] != 0 {
            match (*entry)[0] {
                AT_HWCAP2 => hwcap2 = (*entry)[1],
                AT_PHDR => phdr = (*entry)[1],
                AT_PHNUM => phnum = (*entry)[1],
                AT_SYSINFO_EHDR => vdso = (*entry)[1],
                AT_EXECFN => STACK_TOP.store((*entry)[1] as usize, Ordering::Relaxed),
                _ => {}
            }
            entry = entry.add(1);
        }
        (hwcap2, phdr, phnum, vdso)
    };
    // SAFETY: the caller's contract.
    if !unsafe { process::attach_process(envp) } {
        return None;
    }
    syscall::init_gs(hwcap2);
    // SAFETY: the kernel's own image, or 0.
    unsafe { crate::sys::vdso::init(vdso as usize) };
    crate::sys::clock::check_counter_access();
    process::count(count::PROGRAMS, 1);
    Some(Vectors { phdr, phnum })
}

/// Sets up recording and gives the calling thread its ring. Returns false, after reporting the
/// reason to the recorder, if the program cannot be recorded.
pub fn begin_recording() -> bool {
    if shadow_stack() {
        modules::tell_this_program(MODULE_SHADOW_STACK);
        process::fall_asleep_for_good();
        return false;
    }
    take_in_heap();
    process::header().inspect(|h| stack_copy::begin_process(h));
    tell_hooks();
    thread_ring::set_up_scrap();
    thread_ring::set_up();
    if thread_ring::current().is_none() {
        process::fall_asleep_for_good();
        return false;
    }
    thread_ring::tell_stack(first_stack(), 0);
    signals::install();
    true
}

/// The stack that the kernel has made for the first thread. It grows downwards, and nothing else is
/// mapped within 8 MiB below it, whatever its limit is (the kernel's `MIN_GAP` is 128 MiB).
fn first_stack() -> thread_ring::Stack {
    const USUAL_STACK_BYTES: usize = 8 << 20;
    match STACK_TOP
        .load(Ordering::Relaxed)
        .next_multiple_of(PAGE_SIZE)
    {
        0 => thread_ring::Stack::UNKNOWN,
        top => thread_ring::Stack {
            low: top.saturating_sub(USUAL_STACK_BYTES),
            bytes: USUAL_STACK_BYTES,
        },
    }
}

/// Sets, for all rings, the functions that are called around the system calls of programs without a
/// loader.
pub fn tell_hooks() {
    thread_ring::set_system_hooks([
        raw_syscalls::before as *const () as u64,
        raw_syscalls::after as *const () as u64,
    ]);
}

/// Starts the log of heap blocks if the recorder asks for one.
fn take_in_heap() {
    #[cfg(mgz_cdylib)]
    process::header().inspect(|h| crate::wrap::heap::attach_heap_log(h));
}

/// Starts recording in a program without instrumentation that has loaded an instrumented library.
/// Installed signal handlers are wrapped. Existing threads get their rings when they meet their
/// first probe or trigger ([`thread_join::join`](crate::record::thread_join::join)).
fn wake() {
    let burst = process::recorder().is_some_and(|h| h.mode == MODE_BURST);
    // The kernel kills a thread that faults while SIGSEGV is blocked. (In `burst` no thread meets a
    // probe before it has a ring.)
    let late = !burst && !crate::record::thread_join::all_can_join();
    if late || shadow_stack() {
        modules::tell_this_program(if late {
            MODULE_LATE
        } else {
            MODULE_SHADOW_STACK
        });
        return process::fall_asleep_for_good();
    }
    if !process::wake() {
        return;
    }
    take_in_heap();
    process::header().inspect(|h| stack_copy::begin_process(h));
    tell_hooks();
    thread_ring::set_up_scrap();
    crate::record::thread_join::join_here();
    if let Some(ring) = thread_ring::current() {
        trigger::start_trigger(ring);
    }
    if burst {
        crate::record::thread_join::others(|tid, _| trigger::arm_for(tid));
    }
}

/// True if the kernel has given this thread a shadow stack, which moved code would violate.
pub fn shadow_stack() -> bool {
    const ARCH_SHSTK_STATUS: usize = 0x5005;
    let mut features = 0u64;
    // SAFETY: writes eight bytes, or fails on kernels without shadow stacks.
    let r = unsafe {
        syscall::call(
            syscall::nr::ARCH_PRCTL,
            ARCH_SHSTK_STATUS,
            &raw mut features as usize,
            0,
            0,
            0,
            0,
        )
    };
    r == 0 && features & 1 != 0
}

/// The loader's `struct r_debug`.
static DEBUG: AtomicUsize = AtomicUsize::new(0);

/// Called by the loader, in place of its empty function, whenever its list of modules changes.
extern "C" fn on_change() {
    const RT_CONSISTENT: u32 = 0;
    // SAFETY: the loader's structure lives as long as the process: version, map, brk, state.
    let state = unsafe { ((DEBUG.load(Ordering::Relaxed) + 24) as *const u32).read_volatile() };
    if state != RT_CONSISTENT {
        return;
    }
    if process::is_asleep() && modules::any_instrumented() {
        wake();
    }
    if thread_ring::current().is_some() || crate::record::attachment::is_attached() {
        modules::scan();
    }
    crate::wrap::call_sites::meet_calls();
}

#[unsafe(naked)]
unsafe extern "C" fn changed() {
    naked_asm!("sub rsp, 8", "call {on_change}", "add rsp, 8", "ret", on_change = sym on_change)
}

/// Puts a jump into the loader's debugger hook, an empty function that it calls after mapping
/// modules and before their constructors run.
fn hook_loader(phdr: u64, phnum: u64) {
    const PT_DYNAMIC: u32 = 2;
    const PT_PHDR: u32 = 6;
    const DT_DEBUG: u64 = 21;
    if phdr == 0 {
        return;
    }
    let word = |at: u64| {
        // SAFETY: the executable's program headers and dynamic section are mapped.
        unsafe { (at as *const u64).read_unaligned() }
    };
    let headers = (0..phnum).map(|i| phdr + i * 56);
    let kind = |h: u64| word(h) as u32;
    let bias = headers
        .clone()
        .find(|&h| kind(h) == PT_PHDR)
        .map_or(0, |h| phdr.wrapping_sub(word(h + 16)));
    let Some(dynamic) = headers.clone().find(|&h| kind(h) == PT_DYNAMIC) else {
        return;
    };
    let mut entry = bias.wrapping_add(word(dynamic + 16));
    while word(entry) != 0 && word(entry) != DT_DEBUG {
        entry += 16;
    }
    if word(entry) == DT_DEBUG {
        hook(word(entry + 8));
    }
}

/// As [`hook_loader`], for a known address of the loader's `r_debug`.
pub fn hook(debug: u64) {
    if debug == 0 {
        return;
    }
    DEBUG.store(debug as usize, Ordering::Relaxed);
    // SAFETY: version, list of modules, address of the empty function.
    let empty = unsafe { ((debug + 16) as *const u64).read_unaligned() } as usize;
    if empty != 0 {
        patch_empty(empty);
    }
}

/// Overwrites a function that only returns, and the padding behind it, with a jump to `changed`.
fn patch_empty(at: usize) {
    const JUMP: usize = 14;
    // SAFETY: functions are aligned to 16 bytes, so these lie in the same page of code.
    let code = unsafe { core::slice::from_raw_parts(at as *const u8, 20) };
    let body = if code.starts_with(&[0xf3, 0x0f, 0x1e, 0xfa]) {
        4
    } else {
        0
    };
    let rest = &code[body..body + JUMP];
    let empty = rest[0] == 0xc3 && crate::sys::decode::is_padding(&rest[1..]);
    if !empty || !at.is_multiple_of(16) {
        return;
    }
    let start = (at + body) & !(PAGE_SIZE - 1);
    let length = (at + body + JUMP).next_multiple_of(PAGE_SIZE) - start;
    let mut jump = [0u8; JUMP];
    jump[..6].copy_from_slice(&[0xff, 0x25, 0, 0, 0, 0]);
    jump[6..].copy_from_slice(&(changed as *const () as u64).to_le_bytes());
    if !entry_patches::can_be_executed() {
        return;
    }
    // SAFETY: the process is single-threaded, and the loader is not inside this function.
    unsafe {
        if syscall::mprotect(start, length, map::READ | map::WRITE) == 0 {
            core::ptr::copy_nonoverlapping(jump.as_ptr(), (at + body) as *mut u8, JUMP);
            syscall::mprotect(start, length, map::READ | map::EXEC);
        }
    }
}
