//! Handlers that run with SIGSEGV blocked in the program's view: a fault there ends the process,
//! and the program sees the signal in its mask.
//!
//! The kernel never blocks the signal. So the mask that a handler's frame would have restored is
//! stored per thread, until the handler returns or is left otherwise: by a jump that restores a
//! mask, by a context switch, or by anything else that moves the stack pointer out of its frame.

use crate::record::signals::SEGV_BIT;
use crate::record::thread_ring;
use crate::record::thread_ring::Private;
use crate::sys::libc_symbols::next;
use crate::sys::syscall;
use core::arch::naked_asm;
use core::sync::atomic::{AtomicBool, Ordering};

/// True if this process has ever had state that a jump may have to undo. Most programs jump more
/// often than they wait or block SIGSEGV in a handler.
static MAY_LEAVE: AtomicBool = AtomicBool::new(false);

/// Makes jumps check for state to undo from now on.
pub(crate) fn expect_jumps() {
    MAY_LEAVE.store(true, Ordering::Relaxed);
}

/// The innermost handler that blocks SIGSEGV. Zero is "none".
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Shield {
    /// Address of the handler's frame: the handler uses the stack below.
    frame: usize,
    /// True if the program had the signal blocked when the handler began.
    before: bool,
    /// The signal was sent while it was blocked.
    pending: bool,
}

impl Shield {
    /// True if a thread with this stack pointer is in the handler.
    fn covers(self, private: &Private, sp: usize) -> bool {
        let [address, flags, size] = private.stack.get();
        let on_alternate =
            |at: usize| flags & thread_ring::SS_DISABLE == 0 && at.wrapping_sub(address) < size;
        // On another stack, the thread has left a handler on the alternate stack. A handler on the
        // thread's own stack may have been interrupted by one on the alternate stack.
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

/// Begins a handler whose frame is at `frame` and which blocks the signals in `mask`. Returns the
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

/// Ends the handler of [`raise`], which has returned. `blocked`: true if the mask that it returns
/// to blocks the signal.
pub(crate) fn lower(private: &Private, outer: Shield, sp: usize, blocked: bool) {
    private.shield.set(Shield {
        pending: private.shield.get().pending,
        ..outer
    });
    // If an outer handler blocks the signal, its shield reports that.
    if !blocked || !outer.covers(private, sp) {
        private.segv_blocked.set(blocked);
    }
    send(private, sp);
}

/// Sets the program's mask, with SIGSEGV `blocked` or not. It applies until the handler returns.
pub(crate) fn set(private: &Private, blocked: bool) {
    private.shield.set(Shield {
        pending: private.shield.get().pending,
        ..Shield::default()
    });
    private.segv_blocked.set(blocked);
    send(private, 0);
}

/// Keeps a SIGSEGV pending that was sent while the program had it blocked.
pub(crate) fn keep(private: &Private) {
    private.shield.set(Shield {
        pending: true,
        ..private.shield.get()
    });
}

/// Sends the thread a pending signal, if it is no longer blocked.
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

/// Called when the thread jumps, perhaps out of a handler. If the jump `restores` a mask, the
/// previous one applies, else the handler's.
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
    // If the handler interrupted a waiting call, the jump leaves that call as well.
    private.waiting.set(None);
    let here = core::ptr::from_ref(&restores) as usize;
    if private.shield.get().covers(private, here) {
        let before = private.shield.get().before;
        set(private, before || !restores);
    }
}

/// Called before a jump to a `jmp_buf` of the C library.
extern "C" fn before_jump(buffer: *const u64) {
    /// Index of the flag that says if a mask follows: behind eight registers.
    const RESTORES: usize = 8;
    // SAFETY: the program's buffer.
    leave(unsafe { *buffer.add(RESTORES) } as u32 != 0);
}

/// Called before a switch to a context (`ucontext_t`), whose mask must not block the signals that
/// the runtime needs. (The program's view does not record them as blocked: a context may be left
/// unnoticed, and a later fault would then end the process wrongly.)
extern "C" fn before_context(context: *mut crate::sys::signal_frame::Context) {
    leave(true);
    let kept = SEGV_BIT | crate::record::trigger::bit();
    // SAFETY: the program's context; the C library's structure begins like the kernel's, with the
    // mask at the same offset. (It is written only if necessary, since it may be read-only.)
    unsafe {
        if (*context).mask & kept != 0 && thread_ring::current().is_some() {
            (*context).mask &= !kept;
        }
    }
}

/// Functions that never return, or return into their caller's frame. They are entered by a jump.
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
