//! System calls, made directly: they do not change the program's errno.

use core::arch::asm;

/// System call numbers of x86-64 Linux.
pub(crate) mod nr {
    pub(crate) const WRITE: usize = 1;
    pub(crate) const OPEN: usize = 2;
    pub(crate) const CLOSE: usize = 3;
    pub(crate) const MMAP: usize = 9;
    pub(crate) const MUNMAP: usize = 11;
    pub(crate) const RT_SIGPROCMASK: usize = 14;
    pub(crate) const PREAD64: usize = 17;
    pub(crate) const SCHED_YIELD: usize = 24;
    pub(crate) const MADVISE: usize = 28;
    pub(crate) const GETPID: usize = 39;
    pub(crate) const KILL: usize = 62;
    pub(crate) const READLINK: usize = 89;
    pub(crate) const FUTEX: usize = 202;
    pub(crate) const MBIND: usize = 237;
    pub(crate) const GET_MEMPOLICY: usize = 239;
}

/// A system call. Returns the kernel's value: −errno on failure.
///
/// # Safety
/// As the system call itself.
#[inline]
pub(crate) unsafe fn call(number: usize, arguments: [usize; 6]) -> isize {
    let result: isize;
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the x86-64 system call convention; the instruction clobbers rcx and r11.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result, in("rdi") a, in("rsi") b,
             in("rdx") c, in("r10") d, in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _,
             options(nostack));
    }
    result
}

/// Maps private memory of zeros. `hint`: a preferred address, or 0.
pub(crate) fn map(hint: usize, bytes: usize) -> Option<usize> {
    const READ_WRITE: usize = 3;
    const PRIVATE_ANONYMOUS: usize = 0x2 | 0x20;
    const NO_FILE: usize = usize::MAX;
    let arguments = [hint, bytes, READ_WRITE, PRIVATE_ANONYMOUS, NO_FILE, 0];
    // SAFETY: the kernel chooses free memory.
    let result = unsafe { call(nr::MMAP, arguments) };
    (!(-4095..0).contains(&result)).then_some(result as usize)
}

/// Unmaps memory.
///
/// # Safety
/// The range must be this library's memory, and unused from now on.
pub(crate) unsafe fn unmap(at: usize, bytes: usize) {
    if bytes != 0 {
        // SAFETY: the caller's contract.
        unsafe { call(nr::MUNMAP, [at, bytes, 0, 0, 0, 0]) };
    }
}

/// Requests large pages.
///
/// # Safety
/// The range must be whole pages of the process.
pub(crate) unsafe fn advise_huge(at: usize, bytes: usize) {
    const MADV_HUGEPAGE: usize = 14;
    // SAFETY: the advice changes no content.
    unsafe { call(nr::MADVISE, [at, bytes, MADV_HUGEPAGE, 0, 0, 0]) };
}

/// Waits until `*word` may no longer be `value`.
pub(crate) fn futex_wait(word: *const u32, value: u32) {
    const WAIT_PRIVATE: usize = 128;
    // SAFETY: the kernel checks the address.
    unsafe {
        call(
            nr::FUTEX,
            [word as usize, WAIT_PRIVATE, value as usize, 0, 0, 0],
        )
    };
}

/// Wakes one thread that waits at `word`.
pub(crate) fn futex_wake_one(word: *const u32) {
    const WAKE_PRIVATE: usize = 129;
    // SAFETY: the kernel uses the address only as a key.
    unsafe { call(nr::FUTEX, [word as usize, WAKE_PRIVATE, 1, 0, 0, 0]) };
}

/// Lets another thread run.
pub(crate) fn yield_now() {
    // SAFETY: no memory is involved.
    unsafe { call(nr::SCHED_YIELD, [0; 6]) };
}

/// Opens a file; `path` is zero-terminated.
pub(crate) fn open_file(path: *const u8, write: bool) -> isize {
    const O_CLOEXEC: usize = 0o2_000_000;
    const O_RDWR: usize = 2;
    let flags = O_CLOEXEC | if write { O_RDWR } else { 0 };
    // SAFETY: the kernel checks the pointer.
    unsafe { call(nr::OPEN, [path as usize, flags, 0, 0, 0, 0]) }
}

/// Closes a descriptor.
pub(crate) fn close(fd: isize) {
    // SAFETY: no memory is involved.
    unsafe { call(nr::CLOSE, [fd as usize, 0, 0, 0, 0, 0]) };
}

/// Reads from an offset. Returns the number of bytes or −errno.
pub(crate) fn pread(fd: isize, into: &mut [u8], offset: u64) -> isize {
    let (at, bytes) = (into.as_mut_ptr() as usize, into.len());
    // SAFETY: the buffer is ours and its length is passed.
    unsafe { call(nr::PREAD64, [fd as usize, at, bytes, offset as usize, 0, 0]) }
}

/// Writes to a descriptor.
pub(crate) fn write(fd: usize, text: &[u8]) {
    // SAFETY: the buffer is ours and its length is passed.
    unsafe { call(nr::WRITE, [fd, text.as_ptr() as usize, text.len(), 0, 0, 0]) };
}

/// Reads a link; `path` is zero-terminated. Returns the number of bytes or −errno.
pub(crate) fn read_link(path: *const u8, into: &mut [u8]) -> isize {
    let (at, bytes) = (into.as_mut_ptr() as usize, into.len());
    // SAFETY: the buffer is ours and its length is passed.
    unsafe { call(nr::READLINK, [path as usize, at, bytes, 0, 0, 0]) }
}

/// Ends the process by SIGABRT.
pub(crate) fn abort() -> ! {
    const SIGABRT: usize = 6;
    loop {
        // SAFETY: the process ends, or a handler of the program runs.
        unsafe {
            let pid = call(nr::GETPID, [0; 6]) as usize;
            call(nr::KILL, [pid, SIGABRT, 0, 0, 0, 0]);
        }
    }
}

/// True if all of the memory can be read.
pub(crate) fn is_readable(at: usize, bytes: usize) -> bool {
    const PAGE: usize = 4096;
    const NO_SUCH_HOW: usize = 99;
    const EFAULT: isize = 14;
    let Some(end) = at.checked_add(bytes) else {
        return false;
    };
    let first = at & !7;
    let mut places = core::iter::once(first).chain((first / PAGE * PAGE + PAGE..end).step_by(PAGE));
    places.all(|place| {
        // SAFETY: the kernel reads eight bytes there and does nothing else: it returns EFAULT or
        // EINVAL.
        let result = unsafe { call(nr::RT_SIGPROCMASK, [NO_SUCH_HOW, place, 0, 8, 0, 0]) };
        result != -EFAULT
    })
}
