//! System calls, made directly: the runtime shares no state (errno, cancellation, locks) with the
//! program's C library.

use crate::sys::errno::{EFAULT, ESRCH};
use core::arch::asm;
use mgz_abi::shared_memory::PAGE_SIZE;

/// System call numbers of x86-64 Linux.
pub mod nr {
    #![allow(missing_docs, reason = "the kernel's own names")]
    pub const READ: usize = 0;
    pub const WRITE: usize = 1;
    pub const OPEN: usize = 2;
    pub const CLOSE: usize = 3;
    pub const FSTAT: usize = 5;
    pub const MMAP: usize = 9;
    pub const MPROTECT: usize = 10;
    pub const MUNMAP: usize = 11;
    pub const RT_SIGACTION: usize = 13;
    pub const RT_SIGPROCMASK: usize = 14;
    pub const RT_SIGRETURN: usize = 15;
    pub const IOCTL: usize = 16;
    pub const PREAD64: usize = 17;
    pub const ACCESS: usize = 21;
    pub const SCHED_YIELD: usize = 24;
    pub const MREMAP: usize = 25;
    pub const MADVISE: usize = 28;
    pub const GETPID: usize = 39;
    pub const CLONE: usize = 56;
    pub const FORK: usize = 57;
    pub const VFORK: usize = 58;
    pub const EXECVE: usize = 59;
    pub const KILL: usize = 62;
    pub const FCNTL: usize = 72;
    pub const READLINK: usize = 89;
    pub const GETUID: usize = 102;
    pub const GETGID: usize = 104;
    pub const RT_SIGTIMEDWAIT: usize = 128;
    pub const RT_SIGQUEUEINFO: usize = 129;
    pub const SIGALTSTACK: usize = 131;
    pub const PRCTL: usize = 157;
    pub const ARCH_PRCTL: usize = 158;
    pub const GETTID: usize = 186;
    pub const FGETXATTR: usize = 193;
    pub const FUTEX: usize = 202;
    pub const GETDENTS64: usize = 217;
    pub const TIMER_CREATE: usize = 222;
    pub const TIMER_SETTIME: usize = 223;
    pub const TIMER_DELETE: usize = 226;
    pub const CLOCK_GETTIME: usize = 228;
    pub const EXIT_GROUP: usize = 231;
    pub const TGKILL: usize = 234;
    pub const OPENAT: usize = 257;
    pub const DUP3: usize = 292;
    pub const RT_TGSIGQUEUEINFO: usize = 297;
    pub const PERF_EVENT_OPEN: usize = 298;
    pub const PRLIMIT64: usize = 302;
    pub const SECCOMP: usize = 317;
    pub const MEMFD_CREATE: usize = 319;
    pub const EXECVEAT: usize = 322;
    pub const RSEQ: usize = 334;
    pub const CLONE3: usize = 435;
    pub const OPENAT2: usize = 437;
}

/// Makes a system call with up to six arguments. Returns the kernel's value: −errno on failure.
///
/// # Safety
/// As the system call itself: pointers must be valid for what the kernel does with them.
#[inline]
pub unsafe fn call(n: usize, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
    let result: isize;
    let _allowed = crate::sys::dispatch::allow();
    // SAFETY: the x86-64 system call convention; rcx and r11 are clobbered by the instruction.
    unsafe {
        asm!("syscall", inlateout("rax") n as isize => result, in("rdi") a, in("rsi") b, in("rdx") c,
             in("r10") d, in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// `PROT_*`, `MAP_*` and `MREMAP_*` bits, and `MADV_*` values, that the runtime uses.
pub mod map {
    #![allow(missing_docs, reason = "the kernel's own names")]
    pub const NONE: usize = 0;
    pub const READ: usize = 1;
    pub const WRITE: usize = 2;
    pub const EXEC: usize = 4;
    pub const SHARED: usize = 1;
    pub const PRIVATE: usize = 2;
    pub const FIXED: usize = 0x10;
    pub const ANONYMOUS: usize = 0x20;
    pub const LOW: usize = 0x40;
    pub const NORESERVE: usize = 0x4000;
    pub const POPULATE: usize = 0x8000;
    pub const FIXED_NOREPLACE: usize = 0x10_0000;
    pub const DONTFORK: usize = 10;
    pub const DONTDUMP: usize = 16;
    pub const WIPEONFORK: usize = 18;
    pub const POPULATE_WRITE: usize = 23;
    pub const MAYMOVE: usize = 1;
    pub const MOVE_FIXED: usize = 2;
}

/// New memory, readable and writable, wherever the kernel puts it.
pub fn new_memory(bytes: usize) -> Result<usize, isize> {
    let (access, flags) = (map::READ | map::WRITE, map::PRIVATE | map::ANONYMOUS);
    // SAFETY: a new mapping.
    unsafe { mmap(0, bytes, access, flags, -1, 0) }
}

/// Maps memory; `fd` is ignored for anonymous maps.
///
/// # Safety
/// With `map::FIXED` the range must be the runtime's own.
pub unsafe fn mmap(
    addr: usize,
    len: usize,
    prot: usize,
    flags: usize,
    fd: isize,
    offset: u64,
) -> Result<usize, isize> {
    // SAFETY: the caller's contract.
    let r = unsafe {
        call(
            nr::MMAP,
            addr,
            len,
            prot,
            flags,
            fd as usize,
            offset as usize,
        )
    };
    if (-4095..0).contains(&r) {
        Err(-r)
    } else {
        Ok(r as usize)
    }
}

/// Unmaps memory.
///
/// # Safety
/// The range must be the runtime's own and unused from now on.
pub unsafe fn munmap(addr: usize, len: usize) {
    // SAFETY: the caller's contract.
    unsafe { call(nr::MUNMAP, addr, len, 0, 0, 0, 0) };
}

/// Changes the protection of pages.
///
/// # Safety
/// Nothing may rely on the old protection.
pub unsafe fn mprotect(addr: usize, len: usize, prot: usize) -> isize {
    // SAFETY: the caller's contract.
    unsafe { call(nr::MPROTECT, addr, len, prot, 0, 0, 0) }
}

/// Opens a file for reading (or reading and writing); `path` is zero-terminated.
pub fn open_file(path: *const u8, write: bool) -> isize {
    const O_RDWR: usize = 2;
    const O_CLOEXEC: usize = 0o2_000_000;
    // SAFETY: the kernel checks the pointer.
    unsafe {
        call(
            nr::OPEN,
            path as usize,
            O_CLOEXEC | if write { O_RDWR } else { 0 },
            0,
            0,
            0,
            0,
        )
    }
}

/// Opens the file at a path for reading, without blocking and without acquiring a controlling
/// terminal.
pub fn open_quietly(path: *const u8) -> isize {
    const FLAGS: usize = 0o2_000_000 | 0o4000 | 0o400; // O_CLOEXEC, O_NONBLOCK, O_NOCTTY
    // SAFETY: the kernel checks the pointer.
    unsafe { call(nr::OPEN, path as usize, FLAGS, 0, 0, 0, 0) }
}

/// `AT_EMPTY_PATH`.
pub const EMPTY_PATH: usize = 0x1000;

/// As [`open_quietly`], relative to a folder's descriptor. With [`EMPTY_PATH`] and an empty path it
/// opens the file of the descriptor itself, however that was opened.
#[allow(
    clippy::not_unsafe_ptr_arg_deref,
    reason = "the kernel is asked first whether it is readable"
)]
pub fn open_at(dir: i32, path: *const u8, flags: usize) -> isize {
    const FLAGS: usize = 0o2_000_000 | 0o4000 | 0o400;
    const NO_FOLLOW: usize = 0o400_000;
    const SYMLINK_NOFOLLOW: usize = 0x100;
    let empty = is_readable(path as usize, 1) && {
        // SAFETY: checked before.
        unsafe { *path == 0 }
    };
    if empty && flags & EMPTY_PATH != 0 {
        return open_quietly(link_of_descriptor(dir).as_ptr());
    }
    let flags = FLAGS
        | if flags & SYMLINK_NOFOLLOW != 0 {
            NO_FOLLOW
        } else {
            0
        };
    // SAFETY: the kernel checks the pointer.
    unsafe {
        call(
            nr::OPENAT,
            dir as isize as usize,
            path as usize,
            flags,
            0,
            0,
            0,
        )
    }
}

/// `/proc/self/fd/N`, zero-terminated.
pub fn link_of_descriptor(fd: i32) -> [u8; 32] {
    const START: &[u8] = b"/proc/self/fd/";
    let mut link = [0u8; 32];
    link[..START.len()].copy_from_slice(START);
    let (mut number, mut digits) = (fd.max(0) as u32, 1);
    while digits < 10 && number / 10u32.pow(digits) != 0 {
        digits += 1;
    }
    for place in (START.len()..START.len() + digits as usize).rev() {
        link[place] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    link
}

/// Mode, owner and group of an open file.
pub fn file_owner(fd: isize) -> Option<(u32, u32, u32)> {
    let mut stat = [0u64; 18];
    // SAFETY: struct stat has 144 bytes; mode, owner and group lie at offsets 24, 28 and 32.
    let r = unsafe {
        call(
            nr::FSTAT,
            fd as usize,
            stat.as_mut_ptr() as usize,
            0,
            0,
            0,
            0,
        )
    };
    (r == 0).then_some((stat[3] as u32, (stat[3] >> 32) as u32, stat[4] as u32))
}

/// True if all of the memory can be read.
pub fn is_readable(at: usize, bytes: usize) -> bool {
    const NO_SUCH_HOW: usize = 99;
    let Some(end) = at.checked_add(bytes) else {
        return false;
    };
    let first = at & !7;
    let mut places = core::iter::once(first)
        .chain((first / PAGE_SIZE * PAGE_SIZE + PAGE_SIZE..end).step_by(PAGE_SIZE));
    // SAFETY: the kernel reads eight bytes there and does nothing else: it returns EFAULT or
    // EINVAL.
    places
        .all(|place| unsafe { call(nr::RT_SIGPROCMASK, NO_SUCH_HOW, place, 0, 8, 0, 0) } != -EFAULT)
}

/// `CLOCK_THREAD_CPUTIME_ID`.
pub const CLOCK_THREAD_CPUTIME: usize = 3;

/// `FUTEX_WAKE_OP` among the threads of a process.
pub const WAKE_OP_PRIVATE: usize = 5 | 128;

/// True if memory can be written to; `at` is a multiple of 4.
pub fn is_writable(at: usize) -> bool {
    /// An `or` with 0, which leaves the word unchanged.
    const OR_NOTHING: usize = 2 << 28;
    // SAFETY: no thread waits there; the kernel writes the word's own value back, or returns
    // EFAULT.
    unsafe { call(nr::FUTEX, at, WAKE_OP_PRIVATE, 0, 0, at, OR_NOTHING) >= 0 }
}

/// Closes a descriptor of the runtime.
pub fn close(fd: isize) {
    // SAFETY: no memory is involved.
    unsafe { call(nr::CLOSE, fd as usize, 0, 0, 0, 0, 0) };
}

/// Reads from an offset. Returns the number of bytes or −errno.
pub fn pread(fd: isize, into: &mut [u8], offset: u64) -> isize {
    // SAFETY: the buffer is ours and its length is passed.
    unsafe {
        call(
            nr::PREAD64,
            fd as usize,
            into.as_mut_ptr() as usize,
            into.len(),
            offset as usize,
            0,
            0,
        )
    }
}

/// Size of an open file, or `None`.
pub fn file_size(fd: isize) -> Option<u64> {
    let mut stat = [0u64; 18];
    // SAFETY: struct stat has 144 bytes; st_size is at offset 48.
    let r = unsafe {
        call(
            nr::FSTAT,
            fd as usize,
            stat.as_mut_ptr() as usize,
            0,
            0,
            0,
            0,
        )
    };
    (r == 0).then(|| stat[6])
}

/// Ends the process, which cannot continue as the program intended.
pub fn end_process() {
    /// Status of such a process.
    const COULD_NOT_GO_ON: usize = 125;
    // SAFETY: all of the process ends.
    unsafe { call(nr::EXIT_GROUP, COULD_NOT_GO_ON, 0, 0, 0, 0, 0) };
}

/// Process id.
pub fn getpid() -> u32 {
    // SAFETY: no memory is involved.
    unsafe { call(nr::GETPID, 0, 0, 0, 0, 0, 0) as u32 }
}

/// Thread id.
pub fn gettid() -> u32 {
    // SAFETY: no memory is involved.
    unsafe { call(nr::GETTID, 0, 0, 0, 0, 0, 0) as u32 }
}

/// Sends a signal to a thread; signal 0 only checks that the thread exists. Returns 0 or −errno.
pub fn tgkill(pid: u32, tid: u32, signal: usize) -> isize {
    // SAFETY: no memory is involved.
    unsafe { call(nr::TGKILL, pid as usize, tid as usize, signal, 0, 0, 0) }
}

/// Makes `stack` (address, flags, size) the alternate stack of the calling thread, also while it
/// runs on another one: the kernel checks only the stack pointer, which is moved for the call.
/// Returns 0 or −errno.
///
/// # Safety
/// Nothing may run on `stack`, and all signals must be blocked.
pub unsafe fn set_signal_stack(stack: &[usize; 3]) -> isize {
    let mut result = nr::SIGALTSTACK as isize;
    let _allowed = crate::sys::dispatch::allow();
    // SAFETY: the caller's contract; nothing is pushed.
    unsafe {
        asm!(
            "xchg rsp, {top}",
            "syscall",
            "xchg rsp, {top}",
            top = inout(reg) stack[0] + stack[2] => _,
            inout("rax") result,
            in("rdi") stack.as_ptr(), in("rsi") 0,
            out("rcx") _, out("r11") _,
        );
    }
    result
}

/// True if a process exists.
pub fn process_exists(pid: u32) -> bool {
    // SAFETY: signal 0 sends nothing.
    unsafe { call(nr::KILL, pid as usize, 0, 0, 0, 0, 0) != -ESRCH }
}

/// CLOCK_MONOTONIC, nanoseconds.
pub fn now_ns() -> u64 {
    if let Some(then) = crate::sys::seccomp_state::sealed_ns() {
        return then;
    }
    let mut time = [0u64; 2];
    if crate::sys::vdso::monotonic(&mut time) {
        return time[0] * 1_000_000_000 + time[1];
    }
    // SAFETY: struct timespec has 16 bytes.
    unsafe { call(nr::CLOCK_GETTIME, 1, time.as_mut_ptr() as usize, 0, 0, 0, 0) };
    time[0] * 1_000_000_000 + time[1]
}

/// Waits until `*word` is no longer `value`, or the time has passed, or a signal arrives.
pub fn futex_wait(word: *const u32, value: u32, nanoseconds: u64) {
    let timeout = [nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000];
    // SAFETY: the kernel checks the word's address; the timeout lives across the call.
    unsafe {
        call(
            nr::FUTEX,
            word as usize,
            0,
            value as usize,
            timeout.as_ptr() as usize,
            0,
            0,
        )
    };
}

/// Wakes all threads that wait at `word`.
pub fn futex_wake(word: *const u32) {
    // SAFETY: the kernel only uses the address as a key.
    unsafe { call(nr::FUTEX, word as usize, 1, i32::MAX as usize, 0, 0, 0) };
}

/// Wakes one thread that waits at `word`.
pub fn futex_wake_one(word: *const u32) {
    // SAFETY: the kernel only uses the address as a key.
    unsafe { call(nr::FUTEX, word as usize, 1, 1, 0, 0, 0) };
}

/// Changes the calling thread's signal mask (`how`: 0 block, 1 unblock, 2 set) and returns the old
/// one, or −errno.
pub fn sigprocmask(how: usize, set: Option<u64>) -> Result<u64, isize> {
    let mut old = 0u64;
    let pointer = set.as_ref().map_or(0, |s| s as *const u64 as usize);
    // SAFETY: both masks live across the call and have the 8 bytes that are passed as their length.
    let r = unsafe {
        call(
            nr::RT_SIGPROCMASK,
            how,
            pointer,
            &mut old as *mut u64 as usize,
            8,
            0,
            0,
        )
    };
    if r < 0 { Err(-r) } else { Ok(old) }
}

/// The kernel's `struct sigaction`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelAction {
    /// Handler, or 0 (default) or 1 (ignore).
    pub handler: usize,
    /// `SA_*`.
    pub flags: u64,
    /// Address of the code that returns from the handler.
    pub restorer: usize,
    /// Signals blocked while the handler runs.
    pub mask: u64,
}

/// Changes the action of a signal.
///
/// # Safety
/// The handler must be a signal handler.
pub unsafe fn sigaction(
    signal: usize,
    new: Option<&KernelAction>,
    old: Option<&mut KernelAction>,
) -> isize {
    let new = new.map_or(0, |a| a as *const KernelAction as usize);
    let old = old.map_or(0, |a| a as *mut KernelAction as usize);
    // SAFETY: the caller's contract; both structs have the kernel's layout.
    unsafe { call(nr::RT_SIGACTION, signal, new, old, 8, 0, 0) }
}

/// True if `rdgsbase` may be used, see [`init_gs`].
pub(crate) static FSGSBASE: core::sync::atomic::AtomicBool =
    core::sync::atomic::AtomicBool::new(false);

/// Stores whether the kernel lets user space read and write the `%gs` base (AT_HWCAP2 bit 1).
pub fn init_gs(hwcap2: u64) {
    FSGSBASE.store(hwcap2 & 2 != 0, core::sync::atomic::Ordering::Relaxed);
}

/// `ARCH_SET_GS`.
pub(crate) const SET_GS: usize = 0x1001;
/// `ARCH_GET_GS`.
pub(crate) const GET_GS: usize = 0x1004;

/// True if [`gs`] and [`fs`] make no system call.
pub fn reads_bases_quickly() -> bool {
    FSGSBASE.load(core::sync::atomic::Ordering::Relaxed)
}

/// The calling thread's `%gs` base.
pub fn gs() -> usize {
    let mut base: usize = 0;
    if FSGSBASE.load(core::sync::atomic::Ordering::Relaxed) {
        // SAFETY: allowed, see `init_gs`; changes nothing.
        unsafe { asm!("rdgsbase {}", out(reg) base, options(nomem, nostack)) };
    } else {
        // SAFETY: ARCH_GET_GS writes eight bytes.
        unsafe {
            call(
                nr::ARCH_PRCTL,
                GET_GS,
                &mut base as *mut usize as usize,
                0,
                0,
                0,
                0,
            )
        };
    }
    base
}

/// The calling thread's `%fs` base.
pub fn fs() -> usize {
    let mut base: usize = 0;
    if FSGSBASE.load(core::sync::atomic::Ordering::Relaxed) {
        // SAFETY: allowed, see `init_gs`; changes nothing.
        unsafe { asm!("rdfsbase {}", out(reg) base, options(nomem, nostack)) };
    } else {
        // SAFETY: ARCH_GET_FS writes eight bytes.
        unsafe {
            call(
                nr::ARCH_PRCTL,
                0x1003,
                &mut base as *mut usize as usize,
                0,
                0,
                0,
                0,
            )
        };
    }
    base
}

/// Sets the calling thread's `%gs` base.
///
/// # Safety
/// No code of the program may use `%gs`, and instrumented code of this thread will use `base` as
/// its control page.
pub unsafe fn set_gs(base: usize) {
    if FSGSBASE.load(core::sync::atomic::Ordering::Relaxed) {
        // SAFETY: the caller's contract.
        unsafe { asm!("wrgsbase {}", in(reg) base, options(nostack)) };
    } else {
        // SAFETY: the caller's contract; ARCH_SET_GS.
        unsafe { call(nr::ARCH_PRCTL, 0x1001, base, 0, 0, 0, 0) };
    }
}
