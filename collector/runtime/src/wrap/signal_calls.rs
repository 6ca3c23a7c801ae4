//! What the program calls: the C library's functions about actions, masks and alternate stacks, for
//! its own view of them.

use crate::record::signals::actions::change;
use crate::record::signals::{segv_mask, *};
use crate::record::thread_ring::Ring;
use crate::record::{thread_ring, trigger};
use crate::sys::libc_symbols::{fail, next};
use crate::sys::syscall;
use crate::sys::syscall::KernelAction;

/// glibc's `struct sigaction`.
#[repr(C)]
pub struct LibcAction {
    handler: usize,
    mask: [u64; 16],
    flags: i32,
    restorer: usize,
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(
    signal: i32,
    new: *const LibcAction,
    old: *mut LibcAction,
) -> i32 {
    // SAFETY: the caller passes null or valid pointers.
    let wanted = unsafe { new.as_ref() }.map(|a| KernelAction {
        handler: a.handler,
        flags: a.flags as u32 as u64,
        restorer: a.restorer,
        mask: a.mask[0] & !INTERNAL,
    });
    let mut before = KernelAction::default();
    if signal == 32 || signal == 33 {
        return fail(EINVAL);
    }
    let r = change(
        signal,
        wanted.as_ref(),
        (!old.is_null()).then_some(&mut before),
    );
    if r < 0 {
        return fail(-r);
    }
    // SAFETY: as above.
    if let Some(old) = unsafe { old.as_mut() } {
        old.handler = before.handler;
        old.mask = [0; 16];
        old.mask[0] = before.mask;
        old.flags = (before.flags & !SA_RESTORER) as i32;
        old.restorer = before.restorer;
    }
    0
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __sigaction(
    signal: i32,
    new: *const LibcAction,
    old: *mut LibcAction,
) -> i32 {
    // SAFETY: the same function.
    unsafe { sigaction(signal, new, old) }
}

fn simple(number: i32, handler: usize, flags: u64, mask: u64) -> usize {
    let mut before = KernelAction::default();
    let r = change(
        number,
        Some(&KernelAction {
            handler,
            flags,
            restorer: 0,
            mask,
        }),
        Some(&mut before),
    );
    if r < 0 {
        fail(-r) as isize as usize
    } else {
        before.handler
    }
}

/// The C function (BSD semantics).
#[unsafe(no_mangle)]
pub extern "C" fn signal(number: i32, handler: usize) -> usize {
    if handler == usize::MAX || !(1..=64).contains(&number) {
        return fail(EINVAL) as isize as usize;
    }
    simple(
        number,
        handler,
        crate::wrap::legacy_signals::restart(number),
        1 << (number - 1),
    )
}

/// The C function.
#[unsafe(no_mangle)]
pub extern "C" fn bsd_signal(number: i32, handler: usize) -> usize {
    signal(number, handler)
}

/// The C function.
#[unsafe(no_mangle)]
pub extern "C" fn __bsd_signal(number: i32, handler: usize) -> usize {
    signal(number, handler)
}

/// The C function (System V semantics).
#[unsafe(no_mangle)]
pub extern "C" fn sysv_signal(number: i32, handler: usize) -> usize {
    if handler == usize::MAX {
        return fail(EINVAL) as isize as usize;
    }
    simple(number, handler, SA_NODEFER | SA_RESETHAND, 0)
}

/// The C function.
#[unsafe(no_mangle)]
pub extern "C" fn __sysv_signal(number: i32, handler: usize) -> usize {
    sysv_signal(number, handler)
}

/// The C function: SIG_HOLD (2) blocks the signal.
#[unsafe(no_mangle)]
pub extern "C" fn sigset(number: i32, handler: usize) -> usize {
    const SIG_HOLD: usize = 2;
    if !(1..=64).contains(&number) || handler == usize::MAX {
        return fail(EINVAL) as isize as usize;
    }
    let bit = 1u64 << (number - 1);
    let mut was = 0u64;
    change_mask(
        if handler == SIG_HOLD { 0 } else { 1 },
        Some(bit),
        INTERNAL,
        &mut was,
    );
    let mut before = KernelAction::default();
    let new = KernelAction {
        handler,
        flags: 0,
        restorer: 0,
        mask: 0,
    };
    let r = change(
        number,
        (handler != SIG_HOLD).then_some(&new),
        Some(&mut before),
    );
    if r < 0 {
        return fail(-r) as isize as usize;
    }
    if was & bit != 0 {
        SIG_HOLD
    } else {
        before.handler
    }
}

/// Changes the calling thread's mask as the program sees it, but for the signals in `kept`. Returns
/// 0 or −errno.
pub(crate) fn change_mask(how: i32, set: Option<u64>, kept: u64, old: &mut u64) -> isize {
    crate::sys::begin::early();
    let ring = thread_ring::current();
    let here = core::ptr::from_ref(&ring) as usize;
    let real = match &ring {
        Some(_) => set.map(|s| s & !(SEGV_BIT | trigger::bit() | kept)),
        None => set.map(|s| s & !kept),
    };
    if !(0..=2).contains(&how) && set.is_some() {
        return -EINVAL;
    }
    match syscall::sigprocmask(how as usize, real) {
        Err(errno) => -errno,
        Ok(before) => {
            *old = before;
            if let Some(ring) = ring {
                let private = ring.private();
                let segv_blocked = segv_mask::is_blocked(private, here);
                if segv_blocked {
                    *old |= SEGV_BIT;
                }
                if private.trigger_blocked.get() {
                    *old |= trigger::bit();
                }
                if let Some(set) = set.filter(|_| !thread_ring::borrows_memory()) {
                    let change = |was: bool, asked: bool| match how {
                        0 => was || asked,
                        1 => was && !asked,
                        _ => asked,
                    };
                    let blocks = change(segv_blocked, set & SEGV_BIT != 0);
                    if blocks != segv_blocked {
                        segv_mask::set(private, blocks);
                    }
                    private.trigger_blocked.set(change(
                        private.trigger_blocked.get(),
                        set & trigger::bit() != 0,
                    ));
                }
            }
            0
        }
    }
}

/// The system call. Returns 0 or −errno.
///
/// # Safety
/// As the system call: null or valid pointers.
pub unsafe fn system_sigprocmask(how: i32, set: *const u64, old: *mut u64) -> isize {
    let mut before = 0;
    // SAFETY: the caller's contract.
    let r = change_mask(how, unsafe { set.as_ref() }.copied(), 0, &mut before);
    // SAFETY: the caller's contract.
    if let Some(old) = unsafe { old.as_mut() }.filter(|_| r == 0) {
        *old = before;
    }
    r
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_sigmask(how: i32, set: *const u64, old: *mut u64) -> i32 {
    let mut before = 0;
    // SAFETY: null or a valid sigset_t, of which the kernel knows the first eight bytes.
    let r = change_mask(how, unsafe { set.as_ref() }.copied(), INTERNAL, &mut before);
    if r < 0 {
        return -r as i32;
    }
    if !old.is_null() {
        // SAFETY: a valid sigset_t (128 bytes); the C library, too, writes only the kernel's eight.
        unsafe { *old = before };
    }
    0
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigprocmask(how: i32, set: *const u64, old: *mut u64) -> i32 {
    // SAFETY: the same contract.
    match unsafe { pthread_sigmask(how, set, old) } {
        0 => 0,
        errno => fail(errno as isize),
    }
}

/// A call that waits with another mask. Handlers that end it run with that one, which they cannot
/// be shown by the kernel: it tells of the mask behind the call.
struct Waiting {
    set: [u64; 16],
    null: bool,
    ring: Option<Ring>,
}

impl Waiting {
    /// # Safety
    /// `set` must be null or a valid sigset_t, of which the kernel reads eight bytes.
    unsafe fn new(set: *const u64) -> Waiting {
        // SAFETY: the caller's contract.
        let mask = unsafe { set.as_ref() }.copied();
        let ring = mask
            .and_then(|_| thread_ring::current())
            .filter(|_| !thread_ring::borrows_memory());
        if let Some(ring) = ring {
            segv_mask::expect_jumps();
            ring.private().waiting.set(mask);
        }
        let mut space = [0; 16];
        let kept = if ring.is_some() { SEGV_BIT } else { 0 };
        space[0] = mask.unwrap_or(0) & !kept;
        Waiting {
            set: space,
            null: set.is_null(),
            ring,
        }
    }

    /// The mask for the kernel, without SIGSEGV.
    fn mask(&self) -> *const u64 {
        if self.null {
            core::ptr::null()
        } else {
            self.set.as_ptr()
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(ring) = self.ring {
            ring.private().waiting.set(None);
        }
    }
}

macro_rules! waits {
    ($($name:ident, $c:literal, ($($argument:ident: $ty:ty),*);)*) => {$(
        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $ty,)* set: *const u64) -> i32 {
            let Some(real) = next!($c, unsafe extern "C" fn($($ty,)* *const u64) -> i32) else { return fail(38) };
            // SAFETY: the caller's arguments.
            unsafe {
                let waiting = Waiting::new(set);
                real($($argument,)* waiting.mask())
            }
        }
    )*};
}

waits! {
    sigsuspend, c"sigsuspend", ();
    ppoll, c"ppoll", (fds: usize, n: usize, timeout: usize);
    pselect, c"pselect", (n: i32, r: usize, w: usize, e: usize, timeout: usize);
    epoll_pwait, c"epoll_pwait", (fd: i32, events: usize, n: i32, timeout: i32);
    epoll_pwait2, c"epoll_pwait2", (fd: i32, events: usize, n: i32, timeout: usize);
}

/// The kernel is told of the runtime's own stack; the program's is remembered and used for its
/// handlers. Returns 0 or −errno.
///
/// # Safety
/// As the C function: null or valid pointers.
pub unsafe fn alternate_stack(new: *const [usize; 3], old: *mut [usize; 3]) -> isize {
    const MINIMUM: usize = 2048;
    const SS_ONSTACK: usize = 1;
    const EPERM: isize = 1;
    const ENOMEM: isize = 12;
    crate::sys::begin::early();
    let Some(ring) = thread_ring::current() else {
        // SAFETY: the caller's pointers, as for the C function.
        return unsafe {
            syscall::call(
                syscall::nr::SIGALTSTACK,
                new as usize,
                old as usize,
                0,
                0,
                0,
                0,
            )
        };
    };
    let private = ring.private();
    let here = (&raw const private) as usize;
    let before = private.stack.get();
    let on_it =
        before[1] & thread_ring::SS_DISABLE == 0 && here.wrapping_sub(before[0]) < before[2];
    // SAFETY: null or valid.
    let wanted = unsafe { new.as_ref() }.copied();
    if let Some([address, flags, size]) = wanted {
        // The flags are an int; the other half of the word is padding.
        let flags = flags & 0xffff_ffff;
        if on_it {
            return -EPERM;
        }
        if flags & !(0x8000_0000 | SS_ONSTACK) > thread_ring::SS_DISABLE {
            return -EINVAL;
        }
        if flags & thread_ring::SS_DISABLE == 0 && size < MINIMUM {
            return -ENOMEM;
        }
        private.stack.set(if flags & thread_ring::SS_DISABLE != 0 {
            [0, thread_ring::SS_DISABLE, 0]
        } else {
            [address, 0, size]
        });
    }
    // SAFETY: null or valid.
    if let Some(old) = unsafe { old.as_mut() } {
        *old = before;
        if on_it {
            old[1] |= SS_ONSTACK;
        }
    }
    0
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaltstack(new: *const [usize; 3], old: *mut [usize; 3]) -> i32 {
    // SAFETY: the same contract.
    match unsafe { alternate_stack(new, old) } {
        0 => 0,
        r => fail(-r),
    }
}
