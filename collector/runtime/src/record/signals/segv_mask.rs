//! Handlers that run with SIGSEGV blocked, as the program believes: a fault there ends the process,
//! and asking for the mask shows it.
//!
//! The signal is never really blocked. So the mask that a handler's frame would have restored is
//! noted with the thread, until the handler returns or is left otherwise: by a jump that restores a
//! mask, by a context, or by anything else that takes the stack pointer out of its frame.

use crate::record::signals::SEGV_BIT;
use crate::record::thread_ring;
use crate::record::thread_ring::Private;
use crate::sys::libc_symbols::next;
use crate::sys::syscall;
use core::arch::naked_asm;
use core::sync::atomic::{AtomicBool, Ordering};

/// True if this process has ever had state that a jump may leave. Most programs jump more often
/// than they wait or block SIGSEGV in a handler.
static MAY_LEAVE: AtomicBool = AtomicBool::new(false);

/// From now on jumps are looked at.
pub(crate) fn expect_jumps() {
    MAY_LEAVE.store(true, Ordering::Relaxed);
}

/// The innermost handler that blocks SIGSEGV. Zero is "none".
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Shield {
    /// Address of its frame: the handler uses the stack below.
    frame: usize,
    /// True if the program had the signal blocked when the handler began.
    before: bool,
    /// Somebody has sent the signal while it was blocked.
    pending: bool,
}

impl Shield {
    /// True if a thread with this stack pointer is in the handler.
    fn covers(self, private: &Private, sp: usize) -> bool {
        let [address, flags, size] = private.stack.get();
        let on_alternate =
            |at: usize| flags & thread_ring::SS_DISABLE == 0 && at.wrapping_sub(address) < size;
        // A handler on the alternate stack is left by whoever is on another one; from one on the
        // thread's own stack a second one may have come there.
        self.frame != 0
            && if on_alternate(self.frame) {
                on_alternate(sp) && sp < self.frame
            } else {
                on_alternate(sp) || sp < self.frame
            }
    }
}

/// True if SIGSEGV is blocked in the program's own view, with its stack pointer at `sp`.
pub(crate) fn is_blocked(private: &Private, sp: usize) -> bool {
    private.segv_blocked.get() || private.shield.get().covers(private, sp)
}

/// A handler begins, whose frame begins at `frame` and which blocks these signals. Returns the
/// shield for [`lower`].
pub(crate) fn raise(private: &Private, frame: usize, mask: u64) -> Shield {
    let outer = private.shield.get();
    if mask & SEGV_BIT != 0 {
        expect_jumps();
        private.shield.set(Shield {
            frame,
            before: private.segv_blocked.get(),
            ..outer
        });
    }
    outer
}

/// That handler has returned. `blocked`: true if the mask that it returns to blocks the signal.
pub(crate) fn lower(private: &Private, outer: Shield, sp: usize, blocked: bool) {
    private.shield.set(Shield {
        pending: private.shield.get().pending,
        ..outer
    });
    // An outer handler's block is noted in its shield.
    if !blocked || !outer.covers(private, sp) {
        private.segv_blocked.set(blocked);
    }
    send(private, sp);
}

/// The program's mask is set, with or without SIGSEGV: that holds until the handler returns.
pub(crate) fn set(private: &Private, blocked: bool) {
    private.shield.set(Shield {
        pending: private.shield.get().pending,
        ..Shield::default()
    });
    private.segv_blocked.set(blocked);
    send(private, 0);
}

/// Somebody has sent SIGSEGV while the program had it blocked: it waits.
pub(crate) fn keep(private: &Private) {
    private.shield.set(Shield {
        pending: true,
        ..private.shield.get()
    });
}

/// Sends the thread a signal that has waited, if it is not blocked any more.
fn send(private: &Private, sp: usize) {
    if private.shield.get().pending && !is_blocked(private, sp) {
        private.shield.set(Shield {
            pending: false,
            ..private.shield.get()
        });
        syscall::tgkill(
            syscall::getpid(),
            syscall::gettid(),
            crate::record::signals::SIGSEGV,
        );
    }
}

/// The thread leaves a handler, if it is in one, by a jump: with the mask of before if that
/// `restores` one, else with the handler's.
fn leave(restores: bool) {
    if !MAY_LEAVE.load(Ordering::Relaxed) {
        return;
    }
    let Some(private) = thread_ring::current()
        .filter(|_| !thread_ring::borrows_memory())
        .map(|r| r.private())
    else {
        return;
    };
    // A handler that came right before or behind a call that waits leaves that as well.
    private.waiting.set(None);
    let here = core::ptr::from_ref(&restores) as usize;
    if private.shield.get().covers(private, here) {
        let before = private.shield.get().before;
        set(private, before || !restores);
    }
}

/// Before a jump to a buffer of the C library.
extern "C" fn before_jump(buffer: *const u64) {
    /// Eight registers, then whether a mask follows.
    const RESTORES: usize = 8;
    // SAFETY: the program's buffer.
    leave(unsafe { *buffer.add(RESTORES) } as u32 != 0);
}

/// Before a change to a context (`ucontext_t`): its mask comes with it, and must not block the
/// signals that the runtime needs. (It is not noted that the program believes it blocked: a context
/// may be left by ways that nobody sees, and a fault would end the process wrongly.)
extern "C" fn before_context(context: *mut crate::sys::signal_frame::Context) {
    leave(true);
    let kept = SEGV_BIT | crate::record::trigger::bit();
    // SAFETY: the program's context; the C library's begins as the kernel's, and the mask lies
    // where that has it. (It may be read only: few have such a mask.)
    unsafe {
        if (*context).mask & kept != 0 && thread_ring::current().is_some() {
            (*context).mask &= !kept;
        }
    }
}

/// Functions that never come back, or come back to their caller's frame: they are entered by a
/// jump.
macro_rules! jumps {
    ($($name:ident, $c:literal, $before:ident, $argument:literal;)*) => {$(
        /// # Safety
        /// As the C function.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            extern "C" fn real() -> usize {
                next!($c, unsafe extern "C" fn()).map_or(0, |real| real as usize)
            }
            naked_asm!(
                "push rdi", "push rsi", "sub rsp, 8",
                concat!("mov rdi, ", $argument),
                "call {before}",
                "call {real}",
                "add rsp, 8", "pop rsi", "pop rdi",
                "jmp rax",
                before = sym $before, real = sym real)
        }
    )*};
}

jumps! {
    longjmp, c"longjmp", before_jump, "rdi";
    _longjmp, c"_longjmp", before_jump, "rdi";
    siglongjmp, c"siglongjmp", before_jump, "rdi";
    __longjmp_chk, c"__longjmp_chk", before_jump, "rdi";
    setcontext, c"setcontext", before_context, "rdi";
    swapcontext, c"swapcontext", before_context, "rsi";
}
