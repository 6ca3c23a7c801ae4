//! The C library's functions about signal actions, masks and alternate stacks, acting on the
//! program's view of them.

use crate::record::signals::actions::change;
use crate::record::signals::{program_stack, segv_mask, *};
use crate::record::thread_ring::Ring;
use crate::record::{thread_ring, trigger};
use crate::sys::errno::EINVAL;
use crate::sys::libc_symbols::{fail, library, next};
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

type Act = unsafe extern "C" fn(i32, *const LibcAction, *mut LibcAction) -> i32;

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(
    signal: i32,
    new: *const LibcAction,
    old: *mut LibcAction,
) -> i32 {
    ask_stand_in!(c"sigaction", Act, signal, new, old);
    // SAFETY: the caller's arguments.
    unsafe { change_action(signal, new, old) }
}

/// Sets and gets the program's view of an action, with the types of the C library's `sigaction`.
///
/// # Safety
/// As the C function.
unsafe fn change_action(signal: i32, new: *const LibcAction, old: *mut LibcAction) -> i32 {
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
    ask_stand_in!(c"__sigaction", Act, signal, new, old);
    // SAFETY: the same function.
    unsafe { change_action(signal, new, old) }
}

type Handle = unsafe extern "C" fn(i32, usize) -> usize;

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
    ask_stand_in!(c"signal", Handle, number, handler);
    handle(number, handler)
}

/// `signal` as BSD has it.
fn handle(number: i32, handler: usize) -> usize {
    if handler == usize::MAX || !(1..=64).contains(&number) {
        return fail(EINVAL) as isize as usize;
    }
    simple(
        number,
        handler,
        crate::wrap::interrupting::restart(number),
        1 << (number - 1),
    )
}

/// The C function.
#[unsafe(no_mangle)]
pub extern "C" fn bsd_signal(number: i32, handler: usize) -> usize {
    ask_stand_in!(c"bsd_signal", Handle, number, handler);
    handle(number, handler)
}

/// The C function.
#[unsafe(no_mangle)]
pub extern "C" fn __bsd_signal(number: i32, handler: usize) -> usize {
    ask_stand_in!(c"__bsd_signal", Handle, number, handler);
    handle(number, handler)
}

/// The C function (System V semantics).
#[unsafe(no_mangle)]
pub extern "C" fn sysv_signal(number: i32, handler: usize) -> usize {
    ask_stand_in!(c"sysv_signal", Handle, number, handler);
    handle_once(number, handler)
}

/// `signal` as System V has it.
fn handle_once(number: i32, handler: usize) -> usize {
    if handler == usize::MAX {
        return fail(EINVAL) as isize as usize;
    }
    simple(number, handler, SA_NODEFER | SA_RESETHAND, 0)
}

/// The C function.
#[unsafe(no_mangle)]
pub extern "C" fn __sysv_signal(number: i32, handler: usize) -> usize {
    ask_stand_in!(c"__sysv_signal", Handle, number, handler);
    handle_once(number, handler)
}

/// The C function: SIG_HOLD (2) blocks the signal.
#[unsafe(no_mangle)]
pub extern "C" fn sigset(number: i32, handler: usize) -> usize {
    ask_stand_in!(c"sigset", Handle, number, handler);
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

/// Changes the calling thread's mask as the program sees it, except for the signals in `kept`.
/// Returns 0 or −errno.
pub(crate) fn change_mask(how: i32, set: Option<u64>, kept: u64, old: &mut u64) -> isize {
    let here = (&raw const *old) as usize;
    change_mask_by(how, set, kept, old, here, syscall::sigprocmask)
}

/// [`change_mask`], where the program's stack pointer is `here`. `apply` changes the kernel's mask
/// and returns the mask before.
fn change_mask_by(
    how: i32,
    set: Option<u64>,
    kept: u64,
    old: &mut u64,
    here: usize,
    apply: impl FnOnce(usize, Option<u64>) -> Result<u64, isize>,
) -> isize {
    crate::sys::begin::early();
    let ring = thread_ring::current();
    /// `SIG_UNBLOCK`.
    const UNBLOCK: i32 = 1;
    let real = match &ring {
        // (While the program's own trigger signal is pending, the kernel really blocks it.)
        Some(_) if how == UNBLOCK => set.map(|s| s & !kept),
        Some(_) => set.map(|s| s & !(SEGV_BIT | trigger::bit() | kept)),
        None => set.map(|s| s & !kept),
    };
    if !(0..=2).contains(&how) && set.is_some() {
        return -EINVAL;
    }
    let asked = set.filter(|_| ring.is_some() && !thread_ring::borrows_memory());
    let change = |was: bool, asked: bool| match how {
        0 => was || asked,
        1 => was && !asked,
        _ => asked,
    };
    let had_trigger = ring.is_some_and(|r| r.private().trigger_blocked.get());
    if let (Some(ring), Some(set)) = (ring, asked) {
        // This is set before the system call, which may deliver a pending signal.
        let blocks = change(had_trigger, set & trigger::bit() != 0);
        ring.private().trigger_blocked.set(blocks);
    }
    match apply(how as usize, real) {
        Err(errno) => -errno,
        Ok(before) => {
            *old = before;
            if let Some(ring) = ring {
                let private = ring.private();
                let segv_blocked = segv_mask::is_blocked(private, here);
                if segv_blocked {
                    *old |= SEGV_BIT;
                }
                *old &= !trigger::bit();
                if had_trigger {
                    *old |= trigger::bit();
                }
                if let Some(set) = asked {
                    let blocks = change(segv_blocked, set & SEGV_BIT != 0);
                    if blocks != segv_blocked {
                        segv_mask::set(private, blocks);
                    }
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
    let here = (&raw const how) as usize;
    // SAFETY: the caller's contract.
    unsafe { sigprocmask_by(how, set, old, here, syscall::sigprocmask) }
}

/// [`system_sigprocmask`], where the program's stack pointer is `here`. `apply` changes the
/// kernel's mask and returns the mask before.
///
/// # Safety
/// As the system call: null or valid pointers.
pub unsafe fn sigprocmask_by(
    how: i32,
    set: *const u64,
    old: *mut u64,
    here: usize,
    apply: impl FnOnce(usize, Option<u64>) -> Result<u64, isize>,
) -> isize {
    let mut before = 0;
    // SAFETY: the caller's contract.
    let set = unsafe { set.as_ref() }.copied();
    let r = change_mask_by(how, set, 0, &mut before, here, apply);
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
    ask_stand_in!(c"pthread_sigmask", Mask, how, set, old);
    // SAFETY: the caller's arguments.
    unsafe { change_set(how, set, old) }
}

type Mask = unsafe extern "C" fn(i32, *const u64, *mut u64) -> i32;

/// `pthread_sigmask`.
///
/// # Safety
/// As the C function.
unsafe fn change_set(how: i32, set: *const u64, old: *mut u64) -> i32 {
    let mut before = 0;
    // SAFETY: null or a valid sigset_t, of which the kernel uses the first eight bytes.
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
    ask_stand_in!(c"sigprocmask", Mask, how, set, old);
    // SAFETY: the same contract.
    match unsafe { change_set(how, set, old) } {
        0 => 0,
        errno => fail(errno as isize),
    }
}

/// A call that waits with its own mask. Handlers that interrupt it run with that mask, but the
/// kernel's frame only shows the mask after the call.
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

/// `sigsuspend`, as the C library's own functions call it.
///
/// # Safety
/// As the C function.
pub(crate) unsafe fn suspend(set: *const u64) -> i32 {
    let Some(real) = library!(c"sigsuspend", unsafe extern "C" fn(*const u64) -> i32) else {
        return fail(38);
    };
    // SAFETY: the caller's arguments.
    unsafe {
        let waiting = Waiting::new(set);
        real(waiting.mask())
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

/// Sets and gets the program's alternate stack, which is stored and used for its handlers. The
/// kernel keeps the runtime's own stack. Returns 0 or −errno.
///
/// # Safety
/// As the C function: null or valid pointers.
pub unsafe fn alternate_stack(new: *const [usize; 3], old: *mut [usize; 3]) -> isize {
    let here = (&raw const new) as usize;
    // SAFETY: the caller's contract.
    unsafe { alternate_stack_at(new, old, here) }
}

/// [`alternate_stack`], where the program's stack pointer is `here`.
///
/// # Safety
/// As the C function: null or valid pointers.
pub unsafe fn alternate_stack_at(
    new: *const [usize; 3],
    old: *mut [usize; 3],
    here: usize,
) -> isize {
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
    let before = ring.private().stack.get();
    // SAFETY: null or valid.
    if let Some(wanted) = unsafe { new.as_ref() }.copied() {
        let result = program_stack::set_stack(ring, wanted, here);
        if result < 0 {
            return result;
        }
    }
    // SAFETY: null or valid.
    if let Some(old) = unsafe { old.as_mut() } {
        *old = before;
        if program_stack::counts_as_on(before, here) {
            old[1] |= program_stack::SS_ONSTACK;
        }
    }
    0
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaltstack(new: *const [usize; 3], old: *mut [usize; 3]) -> i32 {
    ask_stand_in!(
        c"sigaltstack",
        unsafe extern "C" fn(*const [usize; 3], *mut [usize; 3]) -> i32,
        new,
        old
    );
    // SAFETY: the same contract.
    match unsafe { alternate_stack(new, old) } {
        0 => 0,
        r => fail(-r),
    }
}
