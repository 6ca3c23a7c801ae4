//! Older functions about signal masks and actions. The C library's versions do not call the newer
//! functions through their wrappers.

use crate::record::signals::actions::change;
use crate::record::signals::*;
use crate::sys::errno::EINVAL;
use crate::sys::libc_symbols::{fail, library};
use crate::sys::syscall::KernelAction;
use crate::wrap::interrupting::INTERRUPTING;
use crate::wrap::signal_calls::{change_mask, suspend};
use core::sync::atomic::Ordering;

/// The signal's bit. `None`, and errno set, if there is no such signal.
fn bit(signal: i32) -> Option<u64> {
    if !(1..=64).contains(&signal) || signal == 32 || signal == 33 {
        fail(EINVAL);
        return None;
    }
    Some(1 << (signal - 1))
}

/// Changes the mask (`how`: 0 block, 1 unblock, 2 set) and returns the old one.
fn mask(how: i32, set: u64) -> Result<u64, i32> {
    let mut old = 0;
    match change_mask(how, Some(set), INTERNAL, &mut old) {
        0 => Ok(old),
        r => Err(fail(-r)),
    }
}

/// The C function.
#[unsafe(no_mangle)]
pub extern "C" fn siginterrupt(signal: i32, interrupt: i32) -> i32 {
    ask_stand_in!(
        c"siginterrupt",
        unsafe extern "C" fn(i32, i32) -> i32,
        signal,
        interrupt
    );
    let Some(bit) = bit(signal) else { return -1 };
    let mut action = KernelAction::default();
    let r = change(signal, None, Some(&mut action));
    if r < 0 {
        return fail(-r);
    }
    if interrupt != 0 {
        INTERRUPTING.fetch_or(bit, Ordering::Relaxed);
        action.flags &= !SA_RESTART;
    } else {
        INTERRUPTING.fetch_and(!bit, Ordering::Relaxed);
        action.flags |= SA_RESTART;
    }
    let r = change(signal, Some(&action), None);
    if r < 0 { fail(-r) } else { 0 }
}

/// The C function.
#[unsafe(no_mangle)]
pub extern "C" fn sighold(signal: i32) -> i32 {
    ask_stand_in!(c"sighold", unsafe extern "C" fn(i32) -> i32, signal);
    let Some(bit) = bit(signal) else { return -1 };
    mask(0, bit).map_or_else(|failed| failed, |_| 0)
}

/// The C function.
#[unsafe(no_mangle)]
pub extern "C" fn sigrelse(signal: i32) -> i32 {
    ask_stand_in!(c"sigrelse", unsafe extern "C" fn(i32) -> i32, signal);
    let Some(bit) = bit(signal) else { return -1 };
    mask(1, bit).map_or_else(|failed| failed, |_| 0)
}

/// The C function.
#[unsafe(no_mangle)]
pub extern "C" fn sigignore(signal: i32) -> i32 {
    ask_stand_in!(c"sigignore", unsafe extern "C" fn(i32) -> i32, signal);
    if bit(signal).is_none() {
        return -1;
    }
    let r = change(
        signal,
        Some(&KernelAction {
            handler: SIG_IGN,
            ..KernelAction::default()
        }),
        None,
    );
    if r < 0 { fail(-r) } else { 0 }
}

/// The C function, for the first 32 signals.
#[unsafe(no_mangle)]
pub extern "C" fn sigblock(signals: u32) -> i32 {
    ask_stand_in!(c"sigblock", unsafe extern "C" fn(u32) -> i32, signals);
    block(signals)
}

/// `sigblock`.
fn block(signals: u32) -> i32 {
    mask(0, signals.into()).map_or_else(|failed| failed, |old| old as i32)
}

/// The C function.
#[unsafe(no_mangle)]
pub extern "C" fn sigsetmask(signals: u32) -> i32 {
    ask_stand_in!(c"sigsetmask", unsafe extern "C" fn(u32) -> i32, signals);
    mask(2, signals.into()).map_or_else(|failed| failed, |old| old as i32)
}

/// The C function.
#[unsafe(no_mangle)]
pub extern "C" fn siggetmask() -> i32 {
    ask_stand_in!(c"siggetmask", unsafe extern "C" fn() -> i32);
    block(0)
}

/// The C function as BSD has it: waits with a mask. C libraries without `__xpg_sigpause` use this
/// name for the X/Open function.
#[unsafe(no_mangle)]
pub extern "C" fn sigpause(signals: u32) -> i32 {
    ask_stand_in!(c"sigpause", unsafe extern "C" fn(u32) -> i32, signals);
    if library!(c"__xpg_sigpause", unsafe extern "C" fn(i32) -> i32).is_none() {
        return pause_but_for(signals as i32);
    }
    let set = [
        u64::from(signals),
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
    ];
    // SAFETY: a whole sigset_t.
    unsafe { suspend(set.as_ptr()) }
}

/// The C function as X/Open has it: waits with the present mask, except for one signal.
#[unsafe(no_mangle)]
pub extern "C" fn __xpg_sigpause(signal: i32) -> i32 {
    ask_stand_in!(c"__xpg_sigpause", unsafe extern "C" fn(i32) -> i32, signal);
    pause_but_for(signal)
}

/// `__xpg_sigpause`.
fn pause_but_for(signal: i32) -> i32 {
    let Some(bit) = bit(signal) else { return -1 };
    let mut set = [0u64; 16];
    let r = change_mask(0, None, INTERNAL, &mut set[0]);
    if r < 0 {
        return fail(-r);
    }
    set[0] &= !bit;
    // SAFETY: a whole sigset_t.
    unsafe { suspend(set.as_ptr()) }
}
