//! A lock without thread-local data. It costs nothing while the process has one thread.

use crate::params::ATTEMPTS;
use crate::sys::syscall;
use core::arch::asm;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering};

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// Taken, and a thread is sleeping.
const AWAITED: u32 = 2;

static SEVERAL_THREADS: AtomicU8 = AtomicU8::new(0);
/// The C library's `__libc_single_threaded`: not zero while there is one thread.
static SINGLE: AtomicPtr<AtomicU8> = AtomicPtr::new((&raw const SEVERAL_THREADS).cast_mut());
/// The thread that holds all locks during a fork, by its number from [`thread`], or 0.
static FORKING: AtomicUsize = AtomicUsize::new(0);

/// Stores the address of the C library's variable.
pub(crate) fn know_single(at: usize) {
    SINGLE.store(at as *mut AtomicU8, Ordering::Relaxed);
}

pub(crate) fn is_single() -> bool {
    // SAFETY: our own variable or the C library's, both of which live forever.
    unsafe { (*SINGLE.load(Ordering::Relaxed)).load(Ordering::Relaxed) != 0 }
}

/// A number that distinguishes the calling thread from all other living ones.
pub(crate) fn thread() -> usize {
    let at: usize;
    // SAFETY: the first word of a thread's own area holds the area's address (System V ABI).
    unsafe {
        asm!("mov {}, qword ptr fs:[0]", out(reg) at, options(nostack, readonly, preserves_flags))
    };
    at
}

pub(crate) struct Lock(AtomicU32);

/// The lock is released when this is dropped.
pub(crate) struct Guard<'a> {
    lock: Option<&'a Lock>,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if let Some(lock) = self.lock {
            lock.release();
        }
    }
}

impl Lock {
    pub(crate) const fn new() -> Lock {
        Lock(AtomicU32::new(FREE))
    }

    fn attempt(&self) -> bool {
        self.0
            .compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Takes the lock unless another thread holds it for longer than a moment.
    pub(crate) fn take_soon(&self) -> Option<Guard<'_>> {
        if is_single() {
            return Some(Guard { lock: None });
        }
        for _ in 0..ATTEMPTS {
            if self.0.load(Ordering::Relaxed) == FREE && self.attempt() {
                return Some(Guard { lock: Some(self) });
            }
            core::hint::spin_loop();
        }
        (FORKING.load(Ordering::Relaxed) == thread()).then_some(Guard { lock: None })
    }

    pub(crate) fn take(&self) -> Guard<'_> {
        self.take_soon().unwrap_or_else(|| {
            self.acquire();
            Guard { lock: Some(self) }
        })
    }

    /// Takes the lock, even while there is only one thread.
    fn acquire(&self) {
        if self.attempt() {
            return;
        }
        while self.0.swap(AWAITED, Ordering::Acquire) != FREE {
            syscall::futex_wait(self.0.as_ptr(), AWAITED);
        }
    }

    fn release(&self) {
        if self.0.swap(FREE, Ordering::Release) == AWAITED {
            syscall::futex_wake_one(self.0.as_ptr());
        }
    }
}

/// Takes all these locks for a fork. The calling thread may still allocate.
pub(crate) fn take_all<'a>(locks: impl Iterator<Item = &'a Lock>) {
    locks.for_each(Lock::acquire);
    FORKING.store(thread(), Ordering::Relaxed);
}

/// Releases the locks in the parent.
pub(crate) fn release_all<'a>(locks: impl Iterator<Item = &'a Lock>) {
    FORKING.store(0, Ordering::Relaxed);
    locks.for_each(Lock::release);
}

/// Releases the locks in the child, where no thread waits.
pub(crate) fn forget_all<'a>(locks: impl Iterator<Item = &'a Lock>) {
    FORKING.store(0, Ordering::Relaxed);
    locks.for_each(|lock| lock.0.store(FREE, Ordering::Relaxed));
}
