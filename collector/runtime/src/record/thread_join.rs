//! Rings for threads that existed before their process was recorded.

use crate::record::{signals, thread_ring};
use crate::sys::signal_frame::Context;
use crate::sys::syscall::nr;
use crate::sys::{process, syscall};
use core::sync::atomic::AtomicU32;

/// Gives the calling thread a ring in a process in which no thread had one so far, and wraps the
/// process's signal handlers.
pub fn join_here() {
    let Ok(mask) = syscall::sigprocmask(0, Some(!0)) else {
        return;
    };
    let mut alternate = [0usize; 3];
    // SAFETY: fills the three words of a stack_t.
    unsafe {
        syscall::call(
            nr::SIGALTSTACK,
            0,
            alternate.as_mut_ptr() as usize,
            0,
            0,
            0,
            0,
        )
    };
    signals::adopt();
    thread_ring::set_up();
    note_stack_and_mask(alternate, mask);
    let kept = signals::SEGV_BIT | crate::record::trigger::bit();
    let _ = syscall::sigprocmask(2, Some(mask & !kept));
}

/// Called in a handler of the runtime: gives a ring to a thread that started before its process was
/// recorded. Returns true if the thread now has one.
pub fn join(context: &mut Context) -> bool {
    if process::header().is_none() || syscall::gs() != 0 {
        return false;
    }
    thread_ring::set_up();
    let Some(ring) = thread_ring::ring_at(syscall::gs()) else {
        return false;
    };
    note_stack_and_mask(context.stack.map(|word| word as usize), context.mask);
    // The kernel restores this stack and mask when the handler returns.
    context.stack = ring.handler_stack().map(|word| word as u64);
    context.mask &= !(signals::SEGV_BIT | crate::record::trigger::bit());
    true
}

/// Stores the alternate stack and mask that the calling thread had before it got its ring.
pub(crate) fn note_stack_and_mask(alternate: [usize; 3], mask: u64) {
    if let Some(ring) = thread_ring::ring_at(syscall::gs()) {
        let private = ring.private();
        private.stack.set([
            alternate[0],
            alternate[1] & (thread_ring::SS_DISABLE | thread_ring::SS_AUTODISARM),
            alternate[2],
        ]);
        private.segv_blocked.set(mask & signals::SEGV_BIT != 0);
        private
            .trigger_blocked
            .set(mask & crate::record::trigger::bit() != 0);
    }
}

/// True if all threads of this process can get their rings by [`join`]. The C library blocks all
/// signals briefly while it creates a thread and while one ends, so the check is repeated for a
/// while.
pub fn all_can_join() -> bool {
    const MAX_ATTEMPTS: usize = 50;
    const ATTEMPT_INTERVAL_NS: u64 = 1_000_000;
    static NEVER: AtomicU32 = AtomicU32::new(0);
    for attempt in 0..MAX_ATTEMPTS {
        if attempt > 0 {
            syscall::futex_wait(NEVER.as_ptr(), 0, ATTEMPT_INTERVAL_NS);
        }
        let mut all = true;
        others(|_, blocked| all &= blocked & signals::SEGV_BIT == 0);
        if all {
            return true;
        }
    }
    false
}

/// Calls `tell` for each other thread of this process, with its id and its blocked signals (all, if
/// they cannot be read).
pub fn others(mut tell: impl FnMut(u32, u64)) {
    const DIRECTORY: usize = 0o2_200_000; // O_DIRECTORY, O_CLOEXEC
    // SAFETY: a zero-terminated path.
    let fd = unsafe {
        let path = c"/proc/self/task".as_ptr() as usize;
        syscall::call(nr::OPEN, path, DIRECTORY, 0, 0, 0, 0)
    };
    if fd < 0 {
        return;
    }
    let own = syscall::gettid();
    let mut buffer = [0u64; 256];
    loop {
        let bytes = size_of_val(&buffer);
        // SAFETY: the kernel writes at most the buffer's length.
        let read = unsafe {
            let at = buffer.as_mut_ptr() as usize;
            syscall::call(nr::GETDENTS64, fd as usize, at, bytes, 0, 0, 0)
        };
        if read <= 0 {
            break;
        }
        let mut at = buffer.as_ptr() as usize;
        let end = at + read as usize;
        while at < end {
            // SAFETY: struct linux_dirent64: inode, offset, length of the entry (u16), type,
            // zero-terminated name.
            let (length, name) = unsafe {
                (
                    ((at + 16) as *const u16).read_unaligned() as usize,
                    process::c_bytes((at + 19) as *const u8),
                )
            };
            let id = name.iter().try_fold(0u32, |n, c| {
                c.is_ascii_digit()
                    .then(|| n.wrapping_mul(10).wrapping_add(u32::from(c - b'0')))
            });
            if let Some(id) = id.filter(|&id| id != own) {
                tell(id, blocked_by(name));
            }
            at += length.max(1);
        }
    }
    syscall::close(fd);
}

/// The signals that a thread has blocked.
pub(crate) fn blocked_by(id: &[u8]) -> u64 {
    const BLOCKED_PREFIX: &[u8] = b"\nSigBlk:\t";
    let mut path = [0u8; 64];
    let mut at = 0;
    for part in [b"/proc/self/task/", id, b"/status"] {
        path[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    let mut text = [0u8; 4096];
    let fd = syscall::open_file(path.as_ptr(), false);
    if fd < 0 {
        return !0;
    }
    let read = syscall::pread(fd, &mut text, 0).max(0) as usize;
    syscall::close(fd);
    let text = &text[..read];
    let Some(place) = text
        .windows(BLOCKED_PREFIX.len())
        .position(|w| w == BLOCKED_PREFIX)
    else {
        return !0;
    };
    let digits = text[place + BLOCKED_PREFIX.len()..]
        .iter()
        .map(|&c| (c as char).to_digit(16));
    digits
        .map_while(|d| d)
        .fold(0, |mask, d| mask << 4 | u64::from(d))
}
