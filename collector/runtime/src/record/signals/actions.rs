//! The program's view of each signal's action, and the actions that the kernel gets instead.

use crate::record::signals::entry::{
    RETURNS_ALONE, on_segv, on_signal, on_trigger, restorer_address,
};
use crate::record::signals::*;
use crate::record::thread_ring::Ring;
use crate::record::{thread_ring, trigger};
use crate::sys::errno::EINVAL;
use crate::sys::syscall::KernelAction;
use crate::sys::{process, syscall};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use mgz_abi::shared_memory::MODE_BURST;

/// The program's view of each signal's action; valid where `KNOWN` has the bit.
static mut ACTIONS: [KernelAction; 65] = [KernelAction {
    handler: 0,
    flags: 0,
    restorer: 0,
    mask: 0,
}; 65];
static mut KNOWN: u64 = 0;
static LOCK: AtomicU32 = AtomicU32::new(0);
/// True if the runtime handles signals. If not, nothing is recorded, and the kernel gets exactly
/// the program's own requests.
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// The signals that the runtime needs and that are therefore never blocked in the kernel; 0 if it
/// handles no signals.
pub(crate) static NEVER_BLOCKED: AtomicU64 = AtomicU64::new(0);

/// In a new child: no other thread holds the lock.
pub fn unlock_actions() {
    LOCK.store(0, Ordering::Relaxed);
}

/// Installs the handler for guard pages (SIGSEGV). Called once, before any instrumented code runs.
pub fn install() {
    // SAFETY: `on_segv` is a signal handler; single-threaded.
    unsafe {
        let mut old = KernelAction::default();
        syscall::sigaction(SIGSEGV, None, Some(&mut old));
        (&raw mut ACTIONS[SIGSEGV]).write(old);
        KNOWN |= SEGV_BIT;
        syscall::sigaction(SIGSEGV, Some(&segv_action()), None);
    }
    INSTALLED.store(true, Ordering::Relaxed);
    install_trigger();
    NEVER_BLOCKED.store(SEGV_BIT | trigger::bit(), Ordering::Relaxed);
    // A blocked SIGSEGV may be inherited; the program's view of the mask keeps it.
    if let (Ok(old), Some(ring)) = (
        syscall::sigprocmask(1, Some(SEGV_BIT)),
        thread_ring::current(),
    ) {
        ring.private().segv_blocked.set(old & SEGV_BIT != 0);
    }
}

/// Installs the trigger's handler, and for the signal that the kernel may send instead, if the
/// program does not use that one.
fn install_trigger() {
    let signal = trigger::signal();
    if signal == 0 {
        return;
    }
    // SAFETY: `on_trigger` is a signal handler; single-threaded.
    unsafe {
        let mut old = KernelAction::default();
        syscall::sigaction(signal, Some(&trigger_action()), Some(&mut old));
        (&raw mut ACTIONS[signal]).write(old);
        KNOWN |= trigger::bit();
        syscall::sigaction(trigger::SIGIO, None, Some(&mut old));
        if old.handler == SIG_DFL {
            syscall::sigaction(trigger::SIGIO, Some(&trigger_action()), None);
            (&raw mut ACTIONS[trigger::SIGIO]).write(old);
            KNOWN |= 1 << (trigger::SIGIO - 1);
        }
    }
    if let (Ok(old), Some(ring)) = (
        syscall::sigprocmask(1, Some(trigger::bit())),
        thread_ring::current(),
    ) {
        ring.private()
            .trigger_blocked
            .set(old & trigger::bit() != 0);
    }
}

/// As [`install`], in a process that is already running: its handlers are wrapped as if they had
/// been installed through the runtime.
pub fn adopt() {
    install();
    for signal in 1..=64 {
        let mut now = KernelAction::default();
        // SAFETY: only reads the action.
        let known = unsafe { syscall::sigaction(signal, None, Some(&mut now)) } == 0;
        let ours = [
            on_segv as *const () as usize,
            on_trigger as *const () as usize,
        ]
        .contains(&now.handler);
        if ours
            || !known
            || INTERNAL & 1 << (signal - 1) != 0
            || matches!(now.handler, SIG_DFL | SIG_IGN)
        {
            continue;
        }
        now.flags &= !SA_RESTORER;
        change(signal as i32, Some(&now), None);
    }
}

/// Wraps the handlers that the C library has installed for its own signals.
pub fn wrap_internal() {
    for signal in (1..=64).filter(|s| INTERNAL & 1 << (s - 1) != 0) {
        let mut now = KernelAction::default();
        // SAFETY: only reads the action.
        let known = unsafe { syscall::sigaction(signal, None, Some(&mut now)) } == 0;
        if known
            && !matches!(now.handler, SIG_DFL | SIG_IGN)
            && now.handler != on_signal as *const () as usize
        {
            now.flags &= !SA_RESTORER;
            change(signal as i32, Some(&now), None);
        }
    }
}

/// Reinstalls the runtime's handler of SIGSEGV if the program has bypassed the wrappers and
/// installed its own, and remembers the program's action.
pub fn take_segv_back() {
    let mut now = KernelAction::default();
    // SAFETY: `on_segv` is a signal handler.
    unsafe {
        syscall::sigaction(SIGSEGV, None, Some(&mut now));
        if now.handler == on_segv as *const () as usize {
            return;
        }
        thread_ring::exclusively(&LOCK, || {
            (&raw mut ACTIONS[SIGSEGV]).write(now);
            syscall::sigaction(SIGSEGV, Some(&segv_action()), None);
        });
    }
}

/// Lets the handler of SIGSEGV return without a system call if `on`, because a seccomp filter
/// forbids the usual return. The handler then blocks no signals, since it could not restore the
/// mask.
pub fn return_without_kernel(on: bool) {
    let mut action = segv_action();
    if on {
        action.flags |= SA_NODEFER;
        action.mask = 0;
    }
    // SAFETY: the runtime's own handler.
    unsafe { syscall::sigaction(SIGSEGV, Some(&action), None) };
    RETURNS_ALONE.store(on, Ordering::Relaxed);
}

fn segv_action() -> KernelAction {
    let flags = SA_SIGINFO | SA_ONSTACK | SA_RESTORER;
    KernelAction {
        handler: on_segv as *const () as usize,
        flags,
        restorer: restorer_address(),
        mask: !0,
    }
}

fn trigger_action() -> KernelAction {
    let flags = SA_SIGINFO | SA_ONSTACK | SA_RESTORER | SA_RESTART;
    KernelAction {
        handler: on_trigger as *const () as usize,
        flags,
        restorer: restorer_address(),
        mask: !0,
    }
}

/// The kernel's action for a signal that the program handles by `wanted`.
fn wrapped(wanted: &KernelAction) -> KernelAction {
    // All signals stay blocked until `deliver` has noted the interrupted state; it then sets the
    // mask that the program asked for.
    let keep = SA_NOCLDSTOP | 2 /* SA_NOCLDWAIT */ | SA_ONSTACK | SA_RESTART | SA_RESETHAND;
    let flags = (wanted.flags & keep) | SA_SIGINFO | SA_RESTORER;
    KernelAction {
        handler: on_signal as *const () as usize,
        flags,
        restorer: restorer_address(),
        mask: !0,
    }
}

/// The kernel's action for a signal that the program does not handle.
fn unhandled(signal: usize, wanted: &KernelAction) -> KernelAction {
    if signal == trigger::SIGIO && wanted.handler == SIG_DFL && trigger::signal() != 0 {
        return trigger_action();
    }
    KernelAction {
        flags: wanted.flags & !SA_RESTORER | SA_RESTORER,
        restorer: restorer_address(),
        ..*wanted
    }
}

/// The program's view of a signal's action, read without the lock: this thread has all signals
/// blocked, and a torn read would require the program to race `sigaction` against its own signal.
pub(crate) fn seen(signal: usize) -> KernelAction {
    // SAFETY: a copy of plain numbers.
    unsafe { (&raw const ACTIONS[signal.min(64)]).read() }
}

/// As [`seen`], under the lock.
pub(crate) fn action_of_signal(signal: usize) -> KernelAction {
    thread_ring::exclusively(&LOCK, || seen(signal))
}

/// Resets the action of a one-shot handler (`SA_RESETHAND`) that begins. The kernel has reset its
/// own action, but for SIGSEGV kept the runtime's.
pub(crate) fn reset(signal: usize) {
    thread_ring::exclusively(&LOCK, || {
        // SAFETY: the table is changed under the lock; `on_trigger` is a signal handler.
        unsafe {
            (&raw mut ACTIONS[signal.min(64)]).write(KernelAction::default());
            if signal == trigger::SIGIO {
                syscall::sigaction(
                    signal,
                    Some(&unhandled(signal, &KernelAction::default())),
                    None,
                );
            }
        }
    });
}

/// True if the program handles a signal, or waits for it.
pub fn is_used(ring: Ring, signal: usize) -> bool {
    ring.private().trigger_blocked.get() || seen(signal).handler != SIG_DFL
}

/// True if threads are moved into clones and back.
pub(crate) fn burst() -> bool {
    process::header().is_some_and(|h| h.mode == MODE_BURST)
}

/// SIGKILL and SIGSTOP, which the kernel removes from the masks of actions.
const NEVER_IN_MASKS: u64 = 1 << 8 | 1 << 18;

/// Sets and gets the program's view of a signal's action. Returns 0 or −errno.
pub(crate) fn change(
    signal: i32,
    new: Option<&KernelAction>,
    old: Option<&mut KernelAction>,
) -> isize {
    if !(1..=64).contains(&signal) || (new.is_some() && (signal == 9 || signal == 19)) {
        return -EINVAL;
    }
    crate::sys::begin::early();
    let s = signal as usize;
    if !INSTALLED.load(Ordering::Relaxed) || process::header().is_none() {
        return change_unrecorded(s, new, old);
    }
    if thread_ring::borrows_memory() && new.is_none_or(|n| matches!(n.handler, SIG_DFL | SIG_IGN)) {
        return change_of_borrower(s, new, old);
    }
    thread_ring::exclusively(&LOCK, || {
        let bit = 1u64 << (s - 1);
        // SAFETY: the table is changed under the lock; handlers read it under the lock as well.
        unsafe {
            let mut before = KernelAction::default();
            let known = KNOWN & bit != 0;
            if known {
                before = (&raw const ACTIONS[s]).read();
            } else {
                syscall::sigaction(s, None, Some(&mut before));
            }
            if let Some(new) = new {
                let new = &KernelAction {
                    mask: new.mask & !NEVER_IN_MASKS,
                    ..*new
                };
                let handled = new.handler != SIG_DFL && new.handler != SIG_IGN;
                let real = if handled {
                    wrapped(new)
                } else {
                    unhandled(s, new)
                };
                (&raw mut ACTIONS[s]).write(*new);
                KNOWN |= bit;
                if s != SIGSEGV && s != trigger::signal() {
                    let r = syscall::sigaction(s, Some(&real), None);
                    if r < 0 {
                        (&raw mut ACTIONS[s]).write(before);
                        return r;
                    }
                }
            }
            if let Some(old) = old {
                *old = before;
            }
            0
        }
    })
}

/// Passes the program's request to the kernel unchanged, because nothing is recorded.
#[inline(never)]
fn change_unrecorded(
    s: usize,
    new: Option<&KernelAction>,
    old: Option<&mut KernelAction>,
) -> isize {
    let new = new.map(|new| KernelAction {
        flags: new.flags | SA_RESTORER,
        restorer: restorer_address(),
        ..*new
    });
    // SAFETY: the program's handler, or none.
    unsafe { syscall::sigaction(s, new.as_ref(), old) }
}

/// The child of a `vfork` drops handlers before `exec`. The table belongs to its parent and does
/// not change.
#[inline(never)]
fn change_of_borrower(
    s: usize,
    new: Option<&KernelAction>,
    old: Option<&mut KernelAction>,
) -> isize {
    let ours = s == SIGSEGV || s == trigger::signal();
    let mut before = KernelAction::default();
    // SAFETY: no handler of the program is installed; the table is read under the lock.
    unsafe {
        if let Some(new) = new.filter(|_| !ours) {
            let real = KernelAction {
                flags: new.flags & !SA_RESTORER | SA_RESTORER,
                restorer: restorer_address(),
                ..*new
            };
            let r = syscall::sigaction(s, Some(&real), Some(&mut before));
            if r < 0 {
                return r;
            }
        } else {
            syscall::sigaction(s, None, Some(&mut before));
        }
        if let Some(old) = old {
            let wrapped = ours || before.handler == on_signal as *const () as usize;
            *old = if wrapped {
                thread_ring::exclusively(&LOCK, || (&raw const ACTIONS[s]).read())
            } else {
                before
            };
        }
    }
    0
}

/// The system call. Returns 0 or −errno.
///
/// # Safety
/// As the system call: null or valid pointers.
pub unsafe fn system_sigaction(
    signal: i32,
    new: *const KernelAction,
    old: *mut KernelAction,
) -> isize {
    // SAFETY: the caller's contract.
    let wanted = unsafe { new.as_ref() }.copied();
    let mut before = KernelAction::default();
    let r = change(
        signal,
        wanted.as_ref(),
        (!old.is_null()).then_some(&mut before),
    );
    // SAFETY: the caller's contract.
    if let Some(old) = unsafe { old.as_mut() }.filter(|_| r == 0) {
        *old = before;
    }
    r
}
