//! Interception of system calls that make threads and programs, or set the `%gs` base
//! ([`gs_base`]), at their `syscall` instructions.
//!
//! Wrappers of the C library's functions are called only by code that asks the loader for these
//! functions by name and in the usual order. A function that `dlsym` has found on a handle, a
//! library that is opened with `RTLD_DEEPBIND` or in a namespace of its own, a copy of the C
//! library inside another library, the C library itself (`system`, `popen`, helper threads) and
//! inline assembly bypass them. All of these end at a `syscall` instruction whose number is set
//! right before it.
//!
//! So the code of each loaded module is searched for these places, and the instruction that sets
//! the number becomes a jump to a *detour*: it runs the replaced instruction, calls [`before`],
//! makes the system call, calls [`after`], and jumps back. There a new thread gets its ring, before
//! any code of the program runs in it, a forked child its trigger, and an executed program the
//! runtime's environment. A call that came through a wrapper is intercepted a second time, when
//! nothing is left to be done.
//!
//! In C libraries, calls about signals are intercepted as well. Handlers that are installed past
//! the wrappers are the program's like any other; and masks that the C library sets itself must not
//! block the signals that the runtime needs: some of its threads run with all signals blocked.
//!
//! This is safe since no other thread runs the code: the runtime's constructor precedes all others,
//! and modules that are loaded later are searched before their own constructors run. The jump
//! replaces one instruction, so that a branch to the next instruction still finds it unchanged.
//!
//! Not found: calls whose number is not set right before (`syscall(2)`, which has a wrapper), code
//! that is generated at run time, and libraries without instrumentation larger than
//! [`MAX_LIBRARY_CODE_BYTES`]. The recorder sees such threads by their ids, and reports their
//! number.

use crate::record::modules::notes;
use crate::record::{entry_patches, signals, thread_ring, trigger};
use crate::sys::decode::{NumberedCall, numbered_call};
use crate::sys::errno::ENOMEM;
use crate::sys::program_headers::{PhdrInfo, ProgramHeader, headers};
use crate::sys::syscall::{map, nr};
use crate::sys::{dispatch, libc_symbols, process, syscall};
use crate::wrap::raw_syscalls::{OnProgramStack, REST, SavedRegisters, hook};
use crate::wrap::{exec, gs_base, prctl_calls, proc_files, seccomp, signal_calls, threads};
use core::arch::naked_asm;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use mgz_abi::module_note::ModuleNote;
use mgz_abi::shared_memory::{PAGE_SIZE, count};

/// Calls that make threads, children and programs, set the bases of segments, or change the
/// process's permissions.
const MAKERS: [u32; 9] = [
    nr::CLONE as u32,
    nr::FORK as u32,
    nr::VFORK as u32,
    nr::EXECVE as u32,
    nr::EXECVEAT as u32,
    nr::CLONE3 as u32,
    nr::ARCH_PRCTL as u32,
    nr::PRCTL as u32,
    nr::SECCOMP as u32,
];
/// These calls, and those that change signals. The latter are intercepted only in C libraries,
/// which are recognized by the former.
const NUMBERS: [u32; 15] = [
    MAKERS[0],
    MAKERS[1],
    MAKERS[2],
    MAKERS[3],
    MAKERS[4],
    MAKERS[5],
    MAKERS[6],
    MAKERS[7],
    MAKERS[8],
    nr::RT_SIGACTION as u32,
    nr::RT_SIGPROCMASK as u32,
    nr::SIGALTSTACK as u32,
    OPENS[0],
    OPENS[1],
    OPENS[2],
];
/// Calls that open files ([`proc_files`]).
const OPENS: [u32; 3] = [nr::OPEN as u32, nr::OPENAT as u32, nr::OPENAT2 as u32];

/// Largest code of a library that is searched, bytes. The C library, the executable and
/// instrumented files are searched regardless of their size. Source: Chosen.
const MAX_LIBRARY_CODE_BYTES: u64 = 4 << 20;
/// Maximum amount of code that is searched in the whole process, bytes. Source: Chosen.
const MAX_SEARCHED_BYTES: u64 = 64 << 20;
/// Maximum number of calls in one module, and then of detours in a page.
const SITES: usize = 96;
const IN_A_PAGE: usize = 28;

/// Modules that were searched, by [`key`]; 0 ends the list.
static SEARCHED: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];
/// See [`are_met`].
static MET: AtomicBool = AtomicBool::new(false);
/// Number of bytes searched so far.
static BYTES: AtomicU64 = AtomicU64::new(0);

/// Pages for detours in the runtime itself, so that they need no addresses of the program.
const ROOM_PAGES: usize = 4;
/// Number of these pages that are in use.
static ROOM_USED: AtomicUsize = AtomicUsize::new(0);

/// The recorder finds this by its name: it is the only code of the runtime that changes.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn mgz_room() {
    naked_asm!(".p2align 12", ".skip {bytes}, 0xcc", ".p2align 12, 0xcc", bytes = const ROOM_PAGES * PAGE_SIZE)
}

/// Maximum length of a detour, bytes.
const DETOUR: usize = 144;
/// A page of detours begins with the addresses of [`before`], [`after`] and [`before_mask`].
const POINTERS: usize = 24;
const _: () = assert!(POINTERS + IN_A_PAGE * DETOUR <= PAGE_SIZE);

hook!(
    /// Called before such a system call, whose address is in rcx. Continues there, or behind the
    /// call if it is already done.
    before, prepare, before_plain, prepare_plain
);
hook!(
    /// Called after the system call. rcx: the address at which the program continues.
    after, settle, after_plain, settle
);

unsafe extern "C" fn prepare(registers: *mut SavedRegisters, below: *const OnProgramStack) {
    // SAFETY: what `before` has just saved.
    unsafe { prepare_by(registers, below.as_ref()) }
}

unsafe extern "C" fn prepare_plain(registers: *mut SavedRegisters) {
    // SAFETY: the registers that `before` has just saved.
    unsafe { prepare_by(registers, None) }
}

/// `below`: see [`OnProgramStack`].
unsafe fn prepare_by(registers: *mut SavedRegisters, below: Option<&OnProgramStack>) {
    const CLONE_VM: u64 = 0x100;
    // SAFETY: the registers that `before` has just pushed.
    let r = unsafe { &mut *registers };
    let awake = process::header().is_some();
    let result = match r.rax as usize {
        nr::RT_SIGACTION if awake => match action(r) {
            Some(result) => result,
            None => return,
        },
        nr::SIGALTSTACK if awake => match stack(r, below) {
            Some(result) => result,
            None => return,
        },
        nr::CLONE if awake && r.rdi & CLONE_VM != 0 && !thread_ring::provide() => -ENOMEM,
        // (The kernel reports an error to a caller that passes no arguments.)
        nr::CLONE3 if awake && r.rdi != 0 && !thread_ring::provide() => -ENOMEM,
        nr::VFORK => {
            // A fork is noticed now, since the child of a vfork cannot take a ring over.
            thread_ring::notice_fork();
            return;
        }
        nr::EXECVE | nr::EXECVEAT if below.is_some() => return exec::prepare(r),
        // SAFETY: the kernel's contract for these calls.
        nr::EXECVE | nr::EXECVEAT => unsafe { exec::execute_saved(r) },
        number @ (nr::OPEN | nr::OPENAT | nr::OPENAT2) if awake => {
            let arguments = [r.rdi, r.rsi, r.rdx, r.r10].map(|a| a as usize);
            match proc_files::open_by_number(number, arguments) {
                Some(result) => result,
                None => return,
            }
        }
        nr::ARCH_PRCTL if awake => return gs_base::met(r.rdi as usize),
        number @ (nr::PRCTL | nr::SECCOMP) if awake => {
            let [first, second, third] = [r.rdi, r.rsi, r.rdx].map(|a| a as usize);
            // Recording ends even if the kernel does not install the filter, since the result is
            // not checked. (A call through a wrapper was already prepared there.)
            if let Some(prepared) = seccomp::prepare_by_number(number, first, second, third) {
                seccomp::settle_filter(prepared, true);
            }
            if number == nr::SECCOMP {
                return;
            }
            return prctl_calls::met(
                [r.rdi as u32 as u64, r.rsi, r.rdx, r.r10, r.r8].map(|w| w as usize),
            );
        }
        _ => return,
    };
    r.rax = result as u64;
    r.rcx += REST;
}

/// Bytes of a set of signals.
const SET: u64 = 8;

/// Handles a `sigaction` call that bypasses the wrappers. `None`: the call may go to the kernel
/// unchanged.
fn action(r: &SavedRegisters) -> Option<isize> {
    /// The C library's own two signals.
    const OWN: core::ops::RangeInclusive<u64> = 32..=33;
    let bytes = size_of::<syscall::KernelAction>();
    let valid = |at: u64| at == 0 || syscall::is_readable(at as usize, bytes);
    if r.r10 != SET || OWN.contains(&r.rdi) || !valid(r.rsi) || !valid(r.rdx) {
        return None;
    }
    // SAFETY: null, or readable memory.
    Some(unsafe { signals::system_sigaction(r.rdi as i32, r.rsi as *const _, r.rdx as *mut _) })
}

/// Handles a `sigaltstack` call that bypasses the wrappers.
fn stack(r: &SavedRegisters, below: Option<&OnProgramStack>) -> Option<isize> {
    let valid = |at: u64| at == 0 || syscall::is_readable(at as usize, size_of::<[usize; 3]>());
    if !valid(r.rdi) || !valid(r.rsi) {
        return None;
    }
    let here = below.map_or((&raw const *r) as usize, OnProgramStack::stack_pointer);
    // SAFETY: null, or readable memory.
    Some(unsafe { signal_calls::alternate_stack_at(r.rdi as *const _, r.rsi as *mut _, here) })
}

/// As [`before`], for masks that are set past the wrappers. The stored mask of the program stays
/// unchanged, since most of these masks are only set temporarily. Signals that the runtime needs
/// are unblocked again at once.
///
/// The C library sets a mask at every jump out of a handler, which may be at the very end of an
/// alternate stack. So nothing is pushed unless the mask has such a signal. (The C library's
/// functions use no flags across a system call.)
#[unsafe(naked)]
unsafe extern "C" fn before_mask() {
    // (how edi, set rsi, old rdx, bytes r10); rcx is the address of the call.
    naked_asm!(
        "cmp qword ptr [rip + {kept}], 0",
        "je 9f",
        "cmp byte ptr [rip + {any_dispatched}], 0",
        "jne 9f",
        "cmp r10, 8",
        "jne 9f",
        "cmp edi, {unblock}",
        "je 9f",
        "test rsi, rsi",
        "je 9f",
        // After a fault here the thread continues at the call, which then fails as without the
        // runtime.
        "mgz_mask_read:",
        "mov r11, [rsi]",
        "test r11, [rip + {kept}]",
        "jne 2f",
        "9:",
        "jmp rcx",
        "2:",
        "lea rsp, [rsp - 128]",
        "push rcx", "push rdi", "push rsi", "push rdx",
        "syscall",
        "push rax",
        "mov eax, {sigprocmask}",
        "mov edi, {unblock}",
        "lea rsi, [rip + {kept}]",
        "xor edx, edx",
        "syscall",
        "pop rax", "pop rdx", "pop rsi", "pop rdi", "pop rcx",
        "lea rsp, [rsp + 128]",
        "add rcx, {rest}",
        "jmp rcx",
        kept = sym signals::NEVER_BLOCKED,
        any_dispatched = sym dispatch::ANY,
        unblock = const UNBLOCK,
        sigprocmask = const nr::RT_SIGPROCMASK,
        rest = const REST)
}

/// `SIG_UNBLOCK`.
const UNBLOCK: usize = 1;

/// Runs after the call: in a new thread, in a child, or in the caller.
unsafe extern "C" fn settle(_: *mut SavedRegisters) {
    exec::has_failed();
    if process::header().is_none() {
        return;
    }
    if process::is_forked() {
        // (The ring is not accessed, since it is not mapped yet and SIGSEGV may be blocked.)
        return threads::in_child();
    }
    let gs = syscall::gs();
    let Some(ring) = thread_ring::ring_at(gs) else {
        return;
    };
    if process::borrows_memory() {
        if gs == ring.address {
            threads::begin_raw(ring);
        }
    } else if ring.control().tid.get() != syscall::gettid() {
        threads::begin_raw(ring);
    } else if !trigger::is_of_this_thread(ring) {
        trigger::renew(ring);
    }
}

/// Hash that distinguishes a module from another one that is loaded in its place.
fn key(bias: u64, headers: &[ProgramHeader], name: &[u8]) -> u64 {
    let mut key = mgz_abi::shared_memory::name_hash(name) ^ bias.rotate_left(17);
    key ^= (headers.as_ptr() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    key.max(1)
}

/// Adds a key. Returns true if it is new.
fn enter(key: u64) -> bool {
    for place in &SEARCHED {
        match place.compare_exchange(0, key, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return true,
            Err(known) if known == key => return false,
            Err(_) => {}
        }
    }
    false
}

/// Intercepts the calls of a module that has just been loaded. Only this thread may have run its
/// code.
pub fn meet(bias: u64, headers: &[ProgramHeader], name: &[u8], instrumented: bool) {
    if process::recorder().is_none_or(|h| h.mode == mgz_abi::shared_memory::MODE_OFF)
        || !enter(key(bias, headers, name))
    {
        return;
    }
    let holds = |address: usize| {
        headers
            .iter()
            .filter(|h| h.is_code())
            .any(|h| (address as u64).wrapping_sub(bias + h.vaddr) < h.filesz)
    };
    if holds(mgz_room as *const () as usize) {
        for code in headers.iter().filter(|h| h.is_code()) {
            process::note_own_code(bias + code.vaddr..bias + code.vaddr + code.filesz);
        }
        return;
    }
    let bytes: u64 = headers
        .iter()
        .filter(|h| h.is_code())
        .map(|h| h.filesz)
        .sum();
    // The executable has no name.
    let always = instrumented
        || name.is_empty()
        || holds(libc_symbols::in_library(
            libc_symbols::place_behind_wrappers(c"execve"),
        ));
    if (bytes > MAX_LIBRARY_CODE_BYTES && !always)
        || BYTES.fetch_add(bytes, Ordering::Relaxed) > MAX_SEARCHED_BYTES
    {
        return;
    }
    let mut found = [(0u64, NumberedCall { room: 0, before: 0 }); SITES];
    let mut number = 0;
    for segment in headers.iter().filter(|h| h.is_code()) {
        // SAFETY: code of a loaded module, which can be read as well (checked here).
        if !syscall::is_readable((bias + segment.vaddr) as usize, 8) {
            continue;
        }
        // SAFETY: as above.
        let code = unsafe {
            core::slice::from_raw_parts(
                (bias + segment.vaddr) as *const u8,
                segment.filesz as usize,
            )
        };
        search(code, |at, call| {
            if number < SITES && !sets_another_base(code, at, &call) {
                found[number] = (bias + segment.vaddr + at as u64, call);
                number += 1;
            }
        });
    }
    // SAFETY: code of the module, in which all bytes up to the system call were decoded.
    let is_one_of = |at: u64, numbers: &[u32]| numbers.contains(&unsafe { number_at(at) });
    let is_c_library = holds(libc_symbols::in_library(
        libc_symbols::place_behind_wrappers(c"execve"),
    ));
    let found = &mut found[..number];
    let makes = found.iter().any(|f| is_one_of(f.0, &MAKERS));
    // Calls about signals are intercepted only in a C library, recognized by its calls that make
    // threads and programs. Its calls that open files are not: threads may be cancelled in them,
    // and wrappers handle them.
    let is_wanted = |at: u64| match is_one_of(at, &OPENS) {
        true => !is_c_library && (!makes || always),
        false => makes,
    };
    let mut wanted = 0;
    for at in 0..found.len() {
        if is_wanted(found[at].0) {
            found.swap(at, wanted);
            wanted += 1;
        }
    }
    let found = &found[..wanted];
    if found.is_empty() {
        return;
    }
    let mut all = true;
    for found in found.chunks(IN_A_PAGE) {
        if !lead(found) {
            all = false;
            process::count(count::CALLS_UNSEEN, found.len() as u64);
        }
    }
    if is_c_library && all {
        MET.store(true, Ordering::Relaxed);
    }
}

/// The number that the code at an address sets, in one of the forms of [`numbered_call`].
///
/// # Safety
/// [`numbered_call`] must have decoded the code there.
unsafe fn number_at(at: u64) -> u32 {
    // SAFETY: the caller's contract.
    let number = |skip: u64| unsafe { ((at + skip) as *const u32).read_unaligned() };
    // SAFETY: as above.
    match unsafe { *(at as *const u8) } {
        0xb8 => number(1),
        0x48 => number(3),
        _ => number(3) & 0xff,
    }
}

/// True if the calls of the C library are intercepted, so that wrappers need not do the same.
pub fn are_met() -> bool {
    MET.load(Ordering::Relaxed)
}

/// Longest distance from an instruction that sets a number to the end of the system call, bytes.
const MAX_BYTES: usize = 50;

/// Finds system calls with these numbers in code.
fn search(code: &[u8], mut tell: impl FnMut(usize, NumberedCall)) {
    let mut from = 0;
    while let Some(at) = find(code, from) {
        from = at + 2;
        // The nearest instruction that sets the number.
        let starts = (at.saturating_sub(MAX_BYTES - 2)..at.saturating_sub(3)).rev();
        for start in starts {
            // The bytes could be the rest of an instruction with a prefix.
            let prefixed = start > 0 && matches!(code[start - 1], 0x40..=0x4f | 0x66);
            if prefixed {
                continue;
            }
            let end = (at + 2).min(code.len());
            if let Some(call) = numbered_call(&code[start..end], &NUMBERS)
                && start + call.before == at
            {
                tell(start, call);
                break;
            }
        }
    }
}

/// True for `arch_prctl` if its operation is known not to set `%gs` (the loader sets `%fs`).
fn sets_another_base(code: &[u8], at: usize, call: &NumberedCall) -> bool {
    /// Number of bytes before the call that are examined.
    const BYTES_BEFORE_CALL: usize = 12;
    const NUMBER: [u8; 2] = [(nr::ARCH_PRCTL & 0xff) as u8, 0];
    const MOV_EDI: u8 = 0xbf;
    const SET_GS: [u8; 4] = (syscall::SET_GS as u32).to_le_bytes();
    let around = &code[at.saturating_sub(BYTES_BEFORE_CALL)..at + call.before];
    let is_it = code[at..at + call.before].windows(2).take(4).any(|w| {
        // (`mov eax`, `mov rax`, or `mov al` behind `xor eax, eax`.)
        w == NUMBER || w[1] == NUMBER[0] && w[0] == 0xb0
    });
    let mut set = around
        .windows(5)
        .filter(|w| w[0] == MOV_EDI && w[3..] == [0, 0]);
    is_it && set.next().is_some_and(|w| w[1..] != SET_GS)
}

/// The next `syscall` instruction, or bytes that look like one.
fn find(code: &[u8], from: usize) -> Option<usize> {
    use core::arch::x86_64::*;
    const WIDTH: usize = 16;
    let mut at = from;
    // SAFETY: loads from inside the slice; the instructions are those of every x86-64 processor.
    unsafe {
        let first = _mm_set1_epi8(0x0f);
        let second = _mm_set1_epi8(0x05);
        while at + WIDTH < code.len() {
            let here = _mm_loadu_si128(code.as_ptr().add(at).cast());
            let behind = _mm_loadu_si128(code.as_ptr().add(at + 1).cast());
            let both = _mm_and_si128(_mm_cmpeq_epi8(here, first), _mm_cmpeq_epi8(behind, second));
            let bits = _mm_movemask_epi8(both) as u32;
            if bits != 0 {
                return Some(at + bits.trailing_zeros() as usize);
            }
            at += WIDTH;
        }
    }
    (at..code.len().saturating_sub(1)).find(|&i| code[i] == 0x0f && code[i + 1] == 0x05)
}

/// A page for detours that can be reached from `address`.
fn page_near(address: u64) -> Option<usize> {
    // Largest distance from `address` to the page, such that all of the module's code reaches all
    // of the page.
    const MAX_PAGE_DISTANCE: u64 = (1 << 31) - (64 << 20);
    const SEARCH_STEP: usize = 1 << 20;
    let near = |page: usize| (page as u64).abs_diff(address) < MAX_PAGE_DISTANCE;
    let own = mgz_room as *const () as usize;
    if near(own) {
        let used = ROOM_USED.fetch_add(1, Ordering::Relaxed);
        if used < ROOM_PAGES {
            return Some(own + used * PAGE_SIZE);
        }
    }
    let flags = map::PRIVATE | map::ANONYMOUS | map::FIXED_NOREPLACE;
    let start = address as usize & !(SEARCH_STEP - 1);
    for step in 1..=512 {
        for place in [
            start.checked_sub(step * SEARCH_STEP),
            start.checked_add(step * SEARCH_STEP),
        ] {
            let Some(place) = place.filter(|&p| p >= SEARCH_STEP && near(p)) else {
                continue;
            };
            // SAFETY: a new mapping, never over another one.
            match unsafe { syscall::mmap(place, PAGE_SIZE, map::READ | map::WRITE, flags, -1, 0) } {
                Ok(page) if page == place => return Some(page),
                // A kernel that does not know the flag has put it elsewhere.
                // SAFETY: the mapping that was just made.
                Ok(page) => unsafe {
                    syscall::munmap(page, PAGE_SIZE);
                },
                Err(_) => {}
            }
        }
    }
    None
}

/// Redirects calls of one module to detours. Returns false if nothing was changed.
fn lead(found: &[(u64, NumberedCall)]) -> bool {
    if !entry_patches::can_be_executed() {
        return false;
    }
    let Some(page) = page_near(found[0].0) else {
        return false;
    };
    let reachable = |at: u64| i32::try_from(at.wrapping_sub(page as u64) as i64).is_ok();
    if !found.iter().all(|f| reachable(f.0)) {
        return false;
    }
    // SAFETY: a page for this alone; its code is complete before any jump leads there.
    unsafe {
        if syscall::mprotect(page, PAGE_SIZE, map::READ | map::WRITE) != 0 {
            return false;
        }
        (page as *mut [u64; 3]).write([
            before as *const () as u64,
            after as *const () as u64,
            before_mask as *const () as u64,
        ]);
        let read: usize;
        core::arch::asm!("lea {}, [rip + mgz_mask_read]", out(reg) read, options(nomem, nostack, preserves_flags));
        signals::READS_MASK.store(read, Ordering::Relaxed);
        for (number, (at, call)) in found.iter().enumerate() {
            write(page, page + POINTERS + number * DETOUR, *at, call);
        }
        if syscall::mprotect(page, PAGE_SIZE, map::READ | map::EXEC) != 0 {
            return false;
        }
    }
    let mut all = true;
    for (number, (at, call)) in found.iter().enumerate() {
        all &= divert(*at, call, page + POINTERS + number * DETOUR);
    }
    all
}

/// Writes a detour.
///
/// # Safety
/// The page must be writable, and the module's code at `at` readable.
unsafe fn write(page: usize, detour: usize, at: u64, call: &NumberedCall) {
    let mut to = detour;
    let mut put = |bytes: &[u8]| {
        // SAFETY: the caller's contract; the page has room for a detour.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), to as *mut u8, bytes.len()) };
        to += bytes.len();
        to
    };
    // SAFETY: code of the module.
    put(unsafe { core::slice::from_raw_parts(at as *const u8, call.before) });
    let behind = at + call.before as u64 + 2;
    let distance =
        |from: usize, target: u64| (target.wrapping_sub(from as u64) as i32).to_le_bytes();
    // lea rcx, [rip + address behind the jump]; jmp [before]
    let end = put(&[0x48, 0x8d, 0x0d, 6, 0, 0, 0]);
    put(&[0xff, 0x25]);
    // SAFETY: `at` is a decoded call.
    let is_mask = unsafe { number_at(at) } == nr::RT_SIGPROCMASK as u32;
    let entry = if is_mask { page + 16 } else { page };
    put(&distance(end + 6, entry as u64));
    // syscall; lea rcx, [rip + the program's next instruction]; jmp [after]: REST bytes. Other
    // calls than those of [`MAKERS`] need no work afterwards.
    let start = put(&[0x0f, 0x05]) - 2;
    // SAFETY: as above.
    let number = unsafe { number_at(at) };
    // `prctl` and `seccomp` need no work afterwards, and a filter may then forbid every call.
    let restricts = [nr::PRCTL as u32, nr::SECCOMP as u32].contains(&number);
    let end = if MAKERS.contains(&number) && !restricts {
        put(&[0x48, 0x8d, 0x0d]);
        put(&distance(start + 9, behind));
        put(&[0xff, 0x25]);
        put(&distance(start + 15, page as u64 + 8))
    } else {
        put(&[0xe9]);
        put(&distance(start + 7, behind))
    };
    let filled = end - start;
    put(&[0x90; REST as usize][..REST as usize - filled]);
    // Target of `before` if it has made the call itself.
    let end = put(&[0xe9]);
    put(&distance(end + 4, behind));
}

/// Redirects a call to its detour.
fn divert(at: u64, call: &NumberedCall, detour: usize) -> bool {
    let start = at as usize & !(PAGE_SIZE - 1);
    let length = (at as usize + call.room).next_multiple_of(PAGE_SIZE) - start;
    // SAFETY: code that no other thread runs, see the module's documentation.
    unsafe {
        if syscall::mprotect(start, length, map::READ | map::WRITE) != 0 {
            return false;
        }
        let distance = (detour as u64).wrapping_sub(at + 5) as i32;
        core::ptr::write_bytes(at as *mut u8, 0x90, call.room);
        (at as *mut u8).write(0xe9);
        ((at + 1) as *mut i32).write_unaligned(distance);
        syscall::mprotect(start, length, map::READ | map::EXEC);
    }
    true
}

/// Intercepts the system calls of new modules. (In executables without a loader the clones have
/// hooks for that.)
pub fn meet_calls() {
    if let Some(iterate) = crate::sys::libc_symbols::dl_iterate_phdr() {
        // SAFETY: the C library's function with a callback of its type.
        unsafe { iterate(visit_calls, core::ptr::null_mut()) };
    }
}

extern "C" fn visit_calls(info: *const PhdrInfo, _size: usize, _data: *mut u8) -> i32 {
    // SAFETY: the C library passes a valid description, with a zero-terminated name.
    let (info, name) = unsafe { (&*info, process::c_bytes((*info).name)) };
    let instrumented = notes(info).next().is_some();
    let inside =
        |note: ModuleNote| note.features & mgz_abi::module_note::FEATURE_SANITIZER_INSIDE != 0;
    if mgz_abi::shared_memory::is_any_sanitizer(name) || notes(info).any(inside) {
        // Sanitizers make these calls where nothing may be changed (with all threads stopped, in
        // another process's memory), and not on behalf of the program.
        return 0;
    }
    crate::wrap::call_sites::meet(info.addr, headers(info), name, instrumented);
    0
}
