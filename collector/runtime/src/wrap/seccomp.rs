//! Programs that install filters of system calls for themselves (`seccomp`). The runtime makes some
//! system calls of its own, and most refusals kill the process. So before a filter that would
//! refuse them is installed, recording ends without further calls, and the thread's probes continue
//! in the spare ring.

use crate::record::{entry_patches, reuse_watch, signals, thread_ring, trigger, window};
use crate::sys::errno::{EFAULT, EINVAL, ENOSYS};
use crate::sys::libc_symbols::{fail, library, next};
use crate::sys::seccomp_state::{
    FILTERED, NO_RECORDING, NO_RINGS, Prepared, is_filtered, is_sealed,
};
use crate::sys::syscall::{map, nr};
use crate::sys::{clock, process, seccomp_state};
use crate::wrap::raw_syscalls::REST;
use crate::wrap::{call_sites, gs_base, prctl_calls};
use core::arch::naked_asm;
use core::sync::atomic::Ordering;
use mgz_abi::seccomp::{Instruction, allows, call};
use mgz_abi::shared_memory::{PAGE_SIZE, count};

/// Maximum length of a filter. Source: the kernel's `BPF_MAXINSNS`.
const MAX_FILTER_INSTRUCTIONS: u16 = 4096;
/// Operations of `seccomp`. The modes of `prctl` are greater by one.
const SET_MODE_STRICT: usize = 0;
const SET_MODE_FILTER: usize = 1;
const SECCOMP: usize = nr::SECCOMP;
const PRCTL: usize = nr::PRCTL;
const PR_SET_SECCOMP: usize = 22;

/// Abilities of the runtime once a filter is installed.
#[derive(Clone, Copy)]
struct Foreseen {
    /// Recording continues.
    recording: bool,
    /// New threads and children can get rings.
    rings: bool,
    /// Code can be changed ([`entry_patches`]).
    code: bool,
    /// Handlers can return through the kernel (`rt_sigreturn`).
    returns: bool,
}

const NOTHING_CHANGES: Foreseen = Foreseen {
    recording: true,
    rings: true,
    code: true,
    returns: true,
};

fn foresee(operation: usize, program: *const Program) -> Foreseen {
    if operation == SET_MODE_STRICT {
        return Foreseen {
            recording: false,
            rings: false,
            code: false,
            returns: true,
        };
    }
    if program.is_null() {
        return NOTHING_CHANGES;
    }
    // The kernel refuses a filter that is too short, too long or unreadable. (Some programs test in
    // this way if the kernel supports filters.)
    if !crate::sys::syscall::is_readable(program as usize, size_of::<Program>()) {
        return NOTHING_CHANGES;
    }
    // SAFETY: checked above.
    let Program { length, filter } = unsafe { program.read() };
    if !(1..=MAX_FILTER_INSTRUCTIONS).contains(&length)
        || !crate::sys::syscall::is_readable(
            filter as usize,
            usize::from(length) * size_of::<Instruction>(),
        )
    {
        return NOTHING_CHANGES;
    }
    // SAFETY: as above; the kernel is about to read it as well.
    let instructions = unsafe { core::slice::from_raw_parts(filter, length.into()) };
    let allows = |number, arguments| allows(instructions, &call(number, arguments));
    let header = process::header();
    let doorbell = header.map_or(0, |h| h.doorbell.as_ptr() as usize);
    let recorder = header.map_or(0, |h| h.recorder as usize);
    let recording = allows(nr::FUTEX, [doorbell, 1, i32::MAX as usize])
        && allows(nr::FUTEX, [doorbell, 0, 0])
        && allows(nr::GETTID, [0; 3])
        && allows(nr::RT_SIGPROCMASK, [2, 0, 0])
        && allows(nr::KILL, [recorder, 0, 0])
        && (crate::record::trigger::signal() == 0 || allows(nr::IOCTL, [1 << 14, 0x4008_2404, 0]));
    // Calls for occasional work, and for the end of handlers.
    let recording = recording
        && [
            nr::CLOSE,
            nr::MMAP,
            nr::MADVISE,
            nr::RT_SIGRETURN,
            nr::CLOCK_GETTIME,
            nr::GETPID,
        ]
        .into_iter()
        .all(|n| allows(n, [0; 3]));
    const READ_WRITE_CLOEXEC: usize = 0o2_000_002;
    // Calls that make threads' triggers and find the caller's identity.
    let triggers = [
        nr::RT_SIGACTION,
        nr::SIGALTSTACK,
        nr::FCNTL,
        nr::TGKILL,
        nr::PERF_EVENT_OPEN,
    ];
    let rings = allows(nr::OPEN, [0, READ_WRITE_CLOEXEC, 0])
        && triggers.into_iter().all(|n| allows(n, [0; 3]));
    // The arguments matter, too: some filters refuse memory that is both writable and executable.
    let protections = [map::READ | map::WRITE | map::EXEC, map::READ | map::EXEC];
    let code = allows(
        nr::FUTEX,
        [PAGE_SIZE, crate::sys::syscall::WAKE_OP_PRIVATE, 0],
    ) && protections
        .into_iter()
        .all(|p| allows(nr::MPROTECT, [PAGE_SIZE, PAGE_SIZE, p]));
    Foreseen {
        recording,
        rings: recording && rings,
        code: recording && code,
        returns: allows(nr::RT_SIGRETURN, [0; 3]),
    }
}

/// `struct sock_fprog`.
#[repr(C)]
struct Program {
    length: u16,
    filter: *const Instruction,
}

/// Prepares for a filter before the kernel installs it, perhaps for all threads at once. (Children
/// inherit both the filter and this state.)
fn prepare(operation: usize, program: *const Program) -> Prepared {
    let ring = thread_ring::current();
    let foreseen = if is_sealed() {
        NOTHING_CHANGES
    } else {
        foresee(operation, program)
    };
    if !foreseen.code {
        entry_patches::give_up();
    }
    let Foreseen {
        recording,
        rings,
        returns,
        ..
    } = if ring.is_some() {
        foreseen
    } else {
        NOTHING_CHANGES
    };
    if let Some(ring) = ring.filter(|r| !recording && r.address == crate::sys::syscall::gs()) {
        window::close_in_hook(ring, window::Why::Outside);
    }
    // Watches need calls that are not required for recording.
    if let Some(ring) = ring.filter(|_| !is_filtered()) {
        reuse_watch::end(ring);
    }
    FILTERED.store(true, Ordering::Relaxed);
    let sealed = !recording && !is_sealed();
    // A stopped trigger's signals need no handler.
    let quiet = ring.is_some_and(|ring| sealed && trigger::quiet(ring));
    if sealed {
        if !returns {
            signals::return_without_kernel(true);
        }
        if operation == SET_MODE_STRICT {
            // The kernel forbids the time stamp counter as well.
            clock::forbid();
        }
        seccomp_state::seal();
    }
    Prepared {
        sealed,
        quiet,
        rings,
        returns,
    }
}

/// Completes the preparations. Makes no system calls if the filter is `installed`.
pub fn settle_filter(prepared: Prepared, installed: bool) {
    if installed {
        if prepared.sealed {
            process::count(count::FORBIDDEN, 1);
        }
        if !prepared.rings {
            NO_RINGS.store(true, Ordering::Relaxed);
        }
    } else if prepared.sealed {
        NO_RECORDING.store(false, Ordering::Relaxed);
        if !prepared.returns {
            signals::return_without_kernel(false);
        }
        if let Some(ring) = thread_ring::current().filter(|_| prepared.quiet) {
            trigger::arm(ring);
        }
    }
}

/// Prepares for a filter that a system call with this number and these arguments will install.
pub fn prepare_by_number(
    number: usize,
    first: usize,
    second: usize,
    third: usize,
) -> Option<Prepared> {
    match (number, first as u32 as usize) {
        (PRCTL, PR_SET_SECCOMP) if matches!(second, 1 | 2) => {
            Some(prepare(second - 1, third as *const Program))
        }
        (SECCOMP, operation @ (SET_MODE_STRICT | SET_MODE_FILTER)) => {
            Some(prepare(operation, third as *const Program))
        }
        _ => None,
    }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(option: i32, a: usize, b: usize, c: usize, d: usize) -> i32 {
    match next!(c"prctl", Prctl) {
        // SAFETY: the caller's arguments.
        Some(real) => unsafe { prctl_by(real, option, a, b, c, d) },
        None => fail(ENOSYS),
    }
}

type Prctl = unsafe extern "C" fn(i32, usize, usize, usize, usize) -> i32;

/// `prctl` by one of its definitions.
///
/// # Safety
/// As the C function.
unsafe fn prctl_by(real: Prctl, option: i32, a: usize, b: usize, c: usize, d: usize) -> i32 {
    // SAFETY: the caller's arguments.
    let call = || unsafe { real(option, a, b, c, d) };
    prctl_calls::met([option as u32 as usize, a, b, c, d]);
    let Some(prepared) = prepare_by_number(PRCTL, option as usize, a, b) else {
        return call();
    };
    let result = call();
    settle_filter(prepared, result != -1);
    result
}

/// `syscall` for the calls that the runtime must see: filters, calls that make threads and
/// programs, calls that open files, signal handlers, masks and alternate stacks, segment bases. All
/// others are passed on unchanged.
///
/// # Safety
/// As the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall() {
    naked_asm!(
        "cmp rdi, {number}",
        "je {seccomp}",
        "cmp rdi, {prctl_number}",
        "je {prctl_by_number}",
        "cmp rdi, {action_number}",
        "je {signals_by_number}",
        "cmp rdi, {mask_number}",
        "je {signals_by_number}",
        "cmp rdi, {stack_number}",
        "je {signals_by_number}",
        "cmp rdi, {bases}",
        "je {bases_by_number}",
        "cmp rdi, {open}", "je 2f",
        "cmp rdi, {openat}", "je 2f",
        "cmp rdi, {openat2}", "je 2f",
        "cmp rdi, {clone}", "je 2f",
        "cmp rdi, {fork}", "je 2f",
        "cmp rdi, {execve}", "je 2f",
        "cmp rdi, {execveat}", "je 2f",
        "cmp rdi, {clone3}", "je 2f",
        "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "sub rsp, 8",
        "call {real}",
        "add rsp, 8", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
        "jmp rax",
        // Calls that make threads and programs are handled as elsewhere (`call_sites`). A new
        // thread continues at the return address on its own stack.
        "2:",
        "mov rax, rdi", "mov rdi, rsi", "mov rsi, rdx", "mov rdx, rcx", "mov r10, r8", "mov r8, r9", "mov r9, [rsp + 8]",
        "lea rcx, [rip + 3f]",
        "jmp {before}",
        "3:",
        "syscall",
        "lea rcx, [rip + 4f]",
        "jmp {after}",
        // `before` continues here if it has made the call.
        ".skip {rest} - (. - 3b), 0x90",
        "4:",
        "cmp rax, -4095",
        "jae 5f",
        "ret",
        "5:",
        "neg rax",
        "mov rdi, rax",
        "sub rsp, 8",
        "call {failed}",
        "add rsp, 8",
        "movsxd rax, eax",
        "ret",
        number = const SECCOMP, seccomp = sym seccomp, prctl_number = const PRCTL, prctl_by_number = sym prctl_by_number, real = sym real,
        action_number = const nr::RT_SIGACTION, mask_number = const nr::RT_SIGPROCMASK, stack_number = const nr::SIGALTSTACK, signals_by_number = sym signals_by_number,
        bases = const nr::ARCH_PRCTL, bases_by_number = sym gs_base::by_number,
        open = const nr::OPEN, openat = const nr::OPENAT, openat2 = const nr::OPENAT2,
        clone = const nr::CLONE, fork = const nr::FORK, execve = const nr::EXECVE, execveat = const nr::EXECVEAT, clone3 = const nr::CLONE3,
        before = sym call_sites::before, after = sym call_sites::after, rest = const REST, failed = sym failed)
}

extern "C" fn failed(errno: isize) -> i32 {
    fail(errno)
}

/// The calls about signals, which act on the program's view of them ([`crate::record::signals`]).
unsafe extern "C" fn signals_by_number(
    number: usize,
    first: usize,
    second: usize,
    third: usize,
    size: usize,
) -> isize {
    /// Bytes of a set of signals.
    const SET: usize = 8;
    let (read, written, bytes) = match number {
        nr::RT_SIGACTION => (
            second,
            third,
            size_of::<crate::sys::syscall::KernelAction>(),
        ),
        nr::RT_SIGPROCMASK => (second, third, SET),
        _ => (first, second, size_of::<[usize; 3]>()),
    };
    let result = if number != nr::SIGALTSTACK && size != SET {
        -EINVAL
    } else if read != 0 && !crate::sys::syscall::is_readable(read, bytes)
        || written != 0
            && !(crate::sys::syscall::is_readable(written, bytes)
                && crate::sys::syscall::is_writable(written & !3))
    {
        -EFAULT
    } else {
        // SAFETY: null, or readable memory.
        unsafe {
            match number {
                nr::RT_SIGACTION => {
                    signals::system_sigaction(first as i32, second as *const _, third as *mut _)
                }
                nr::RT_SIGPROCMASK => crate::wrap::signal_calls::system_sigprocmask(
                    first as i32,
                    second as *const _,
                    third as *mut _,
                ),
                _ => {
                    crate::wrap::signal_calls::alternate_stack(first as *const _, second as *mut _)
                }
            }
        }
    };
    if result < 0 {
        fail(-result) as isize
    } else {
        result
    }
}

unsafe extern "C" fn prctl_by_number(
    _number: usize,
    option: usize,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
) -> isize {
    match library!(c"prctl", Prctl) {
        // SAFETY: the caller's arguments.
        Some(real) => unsafe { prctl_by(real, option as i32, a, b, c, d) as isize },
        None => missing(),
    }
}

extern "C" fn real() -> usize {
    next!(c"syscall", unsafe extern "C" fn())
        .map_or(missing as *const () as usize, |real| real as usize)
}

extern "C" fn missing() -> isize {
    fail(ENOSYS) as isize
}

unsafe extern "C" fn seccomp(
    number: usize,
    operation: usize,
    flags: usize,
    arguments: usize,
) -> isize {
    // SAFETY: the symbol's type, or that of `missing`, which ignores its arguments.
    let real = unsafe {
        core::mem::transmute::<usize, unsafe extern "C" fn(usize, usize, usize, usize) -> isize>(
            real(),
        )
    };
    // SAFETY: the caller's arguments.
    let call = || unsafe { real(number, operation, flags, arguments) };
    let Some(prepared) = prepare_by_number(SECCOMP, operation, flags, arguments) else {
        return call();
    };
    let result = call();
    settle_filter(prepared, result != -1);
    result
}
