//! Memory from the kernel, aligned to chunks.

use crate::params::{CHUNK, ROOM_TO_GROW};
use crate::sys::syscall;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Hint for the address of the next memory: behind the previous one.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Maps whole chunks of zeros.
pub(crate) fn map_chunks(bytes: usize) -> Option<usize> {
    let hint = NEXT.load(Ordering::Relaxed);
    if hint != 0 {
        let at = syscall::map(hint, bytes)?;
        if at.is_multiple_of(CHUNK) {
            NEXT.store(at + bytes, Ordering::Relaxed);
            return Some(at);
        }
        // SAFETY: just mapped.
        unsafe { syscall::unmap(at, bytes) };
    }
    let room = bytes.checked_add(CHUNK)?;
    let start = syscall::map(0, room)?;
    let at = start.next_multiple_of(CHUNK);
    // SAFETY: the unused ends of the mapping.
    unsafe {
        syscall::unmap(start, at - start);
        syscall::unmap(at + bytes, start + room - at - bytes);
    }
    let next = if hint == 0 {
        at.saturating_sub(ROOM_TO_GROW).max(CHUNK)
    } else {
        at + bytes
    };
    NEXT.store(next, Ordering::Relaxed);
    Some(at)
}
