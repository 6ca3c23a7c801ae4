//! Signals: what the program asks for, what the kernel is told, and what the program's handlers see.
//!
//! The guard page needs SIGSEGV: it is never really blocked, and its action is always the runtime's; the
//! program keeps its own view of both. Every handler of the program is entered through [`deliver`], which shows it the
//! original instruction and registers if a clone was interrupted, and puts things back afterwards.

use crate::abi::{self, Slot};
use crate::context::{self, Context, Info, REGISTERS, RIP};
use crate::next::{fail, next};
use crate::shared::{MODE_BURST, count};
use crate::sys::{self, KernelAction};
use crate::thread::{self, Ring};
use crate::{guard, hooks, modules, process, trigger, window};
use core::arch::naked_asm;
use core::sync::atomic::{AtomicU32, Ordering};

const SIGSEGV: usize = 11;
/// The guard page's signal.
pub const SEGV_BIT: u64 = 1 << (SIGSEGV - 1);
/// glibc's own two signals: programs may neither catch nor block them.
const INTERNAL: u64 = 3 << 31;
const EINVAL: isize = 22;

const SA_NOCLDSTOP: u64 = 1;
const SA_SIGINFO: u64 = 4;
const SA_RESTORER: u64 = 0x0400_0000;
const SA_ONSTACK: u64 = 0x0800_0000;
const SA_RESTART: u64 = 0x1000_0000;
const SA_NODEFER: u64 = 0x4000_0000;
const SA_RESETHAND: u64 = 0x8000_0000;
const SIG_DFL: usize = 0;
const SIG_IGN: usize = 1;

/// The program's view of each signal's action; valid where `KNOWN` has the bit.
static mut ACTIONS: [KernelAction; 65] = [KernelAction { handler: 0, flags: 0, restorer: 0, mask: 0 }; 65];
static mut KNOWN: u64 = 0;
static LOCK: AtomicU32 = AtomicU32::new(0);

/// Returns from a handler: `rt_sigreturn`, in the very bytes by which unwinders know a signal frame. They look the
/// byte before a return address up, so that must not belong to a function with unwind data: hence the `nop`,
/// see [`restorer_address`].
#[unsafe(naked)]
unsafe extern "C" fn restorer() {
    naked_asm!("nop", ".byte 0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0", "syscall", "ud2")
}

/// Where handlers return to.
fn restorer_address() -> usize {
    restorer as *const () as usize + 1
}

/// Installs the guard page's handler. Called once, before any instrumented code runs.
pub fn install() {
    // SAFETY: `on_segv` is a signal handler; single-threaded.
    unsafe {
        let mut old = KernelAction::default();
        sys::sigaction(SIGSEGV, None, Some(&mut old));
        (&raw mut ACTIONS[SIGSEGV]).write(old);
        KNOWN |= SEGV_BIT;
        sys::sigaction(SIGSEGV, Some(&segv_action()), None);
    }
    install_trigger();
    // A blocked SIGSEGV may be inherited; the thread's view keeps it.
    if let (Ok(old), Some(ring)) = (sys::sigprocmask(1, Some(SEGV_BIT)), thread::current()) {
        ring.private().segv_blocked = old & SEGV_BIT != 0;
    }
}

/// As [`install`], in a process that runs already: its handlers are wrapped as if they had been installed with the runtime in place.
pub fn adopt() {
    install();
    for signal in 1..=64 {
        let ours = signal == SIGSEGV || signal == trigger::signal();
        let mut now = KernelAction::default();
        // SAFETY: asks only.
        let known = unsafe { sys::sigaction(signal, None, Some(&mut now)) } == 0;
        if ours || !known || INTERNAL & 1 << (signal - 1) != 0 || matches!(now.handler, SIG_DFL | SIG_IGN) {
            continue;
        }
        now.flags &= !SA_RESTORER;
        change(signal as i32, Some(&now), None);
    }
}

/// If the program has got past the wrappers and handles SIGSEGV itself: takes it back, and remembers what it wanted.
pub fn take_segv_back() {
    let mut now = KernelAction::default();
    // SAFETY: `on_segv` is a signal handler.
    unsafe {
        sys::sigaction(SIGSEGV, None, Some(&mut now));
        if now.handler == on_segv as *const () as usize {
            return;
        }
        thread::exclusively(&LOCK, || {
            (&raw mut ACTIONS[SIGSEGV]).write(now);
            sys::sigaction(SIGSEGV, Some(&segv_action()), None);
        });
    }
}

fn segv_action() -> KernelAction {
    let flags = SA_SIGINFO | SA_ONSTACK | SA_RESTORER;
    KernelAction { handler: on_segv as *const () as usize, flags, restorer: restorer_address(), mask: !0 }
}

/// The kernel's action for a signal that the program handles by `wanted`.
fn wrapped(wanted: &KernelAction) -> KernelAction {
    // All signals stay blocked until `deliver` has noted the interrupted state; it then sets the mask
    // that the program asked for.
    let keep = SA_NOCLDSTOP | 2 /* SA_NOCLDWAIT */ | SA_ONSTACK | SA_RESTART | SA_RESETHAND;
    let flags = (wanted.flags & keep) | SA_SIGINFO | SA_RESTORER;
    KernelAction { handler: on_signal as *const () as usize, flags, restorer: restorer_address(), mask: !0 }
}

/// The kernel's action for a signal that the program does not handle.
fn unhandled(signal: usize, wanted: &KernelAction) -> KernelAction {
    if signal == trigger::SIGIO && wanted.handler == SIG_DFL && trigger::signal() != 0 {
        return trigger_action();
    }
    KernelAction { flags: wanted.flags & !SA_RESTORER | SA_RESTORER, restorer: restorer_address(), ..*wanted }
}

/// Whether the program handles a signal, or waits for it.
pub fn is_used(ring: Ring, signal: usize) -> bool {
    // SAFETY: as in `segv`.
    ring.private().trigger_blocked || unsafe { (&raw const ACTIONS[signal]).read() }.handler != SIG_DFL
}

/// Whether threads are moved into clones and back.
fn burst() -> bool {
    process::header().is_some_and(|h| h.mode == MODE_BURST)
}

// ---- what the program calls ---------------------------------------------------------------------

/// glibc's `struct sigaction`.
#[repr(C)]
pub struct LibcAction {
    handler: usize,
    mask: [u64; 16],
    flags: i32,
    restorer: usize,
}

/// Sets and gets the program's view of a signal's action. Returns 0 or −errno.
fn change(signal: i32, new: Option<&KernelAction>, old: Option<&mut KernelAction>) -> isize {
    if !(1..=64).contains(&signal) || (new.is_some() && (signal == 9 || signal == 19)) {
        return -EINVAL;
    }
    let s = signal as usize;
    if thread::borrows_memory() && new.is_none_or(|n| matches!(n.handler, SIG_DFL | SIG_IGN)) {
        return change_of_borrower(s, new, old);
    }
    thread::exclusively(&LOCK, || {
        let bit = 1u64 << (s - 1);
        // SAFETY: the table is changed under the lock; handlers read it under the lock as well.
        unsafe {
            let mut before = KernelAction::default();
            let known = KNOWN & bit != 0;
            if known {
                before = (&raw const ACTIONS[s]).read();
            } else {
                sys::sigaction(s, None, Some(&mut before));
            }
            if let Some(new) = new {
                let handled = new.handler != SIG_DFL && new.handler != SIG_IGN;
                let real = if handled { wrapped(new) } else { unhandled(s, new) };
                (&raw mut ACTIONS[s]).write(*new);
                KNOWN |= bit;
                if s != SIGSEGV && s != trigger::signal() {
                    let r = sys::sigaction(s, Some(&real), None);
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

/// The child of a `vfork` drops handlers before `exec`: the table, which is its parent's, stays as it is.
fn change_of_borrower(s: usize, new: Option<&KernelAction>, old: Option<&mut KernelAction>) -> isize {
    let ours = s == SIGSEGV || s == trigger::signal();
    let mut before = KernelAction::default();
    // SAFETY: no handler of the program is installed; the table is read under the lock.
    unsafe {
        if let Some(new) = new.filter(|_| !ours) {
            let real = KernelAction { flags: new.flags & !SA_RESTORER | SA_RESTORER, restorer: restorer_address(), ..*new };
            let r = sys::sigaction(s, Some(&real), Some(&mut before));
            if r < 0 {
                return r;
            }
        } else {
            sys::sigaction(s, None, Some(&mut before));
        }
        if let Some(old) = old {
            let wrapped = ours || before.handler == on_signal as *const () as usize;
            *old = if wrapped { thread::exclusively(&LOCK, || (&raw const ACTIONS[s]).read()) } else { before };
        }
    }
    0
}

/// The system call. Returns 0 or −errno.
///
/// # Safety
/// As the system call: null or valid pointers.
pub unsafe fn system_sigaction(signal: i32, new: *const KernelAction, old: *mut KernelAction) -> isize {
    // SAFETY: the caller's contract.
    let wanted = unsafe { new.as_ref() }.copied();
    let mut before = KernelAction::default();
    let r = change(signal, wanted.as_ref(), (!old.is_null()).then_some(&mut before));
    // SAFETY: the caller's contract.
    if let Some(old) = unsafe { old.as_mut() }.filter(|_| r == 0) {
        *old = before;
    }
    r
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
pub unsafe extern "C" fn sigaction(signal: i32, new: *const LibcAction, old: *mut LibcAction) -> i32 {
    // SAFETY: the caller passes null or valid pointers.
    let wanted = unsafe { new.as_ref() }.map(|a| KernelAction { handler: a.handler, flags: a.flags as u32 as u64, restorer: a.restorer, mask: a.mask[0] & !INTERNAL });
    let mut before = KernelAction::default();
    if signal == 32 || signal == 33 {
        return fail(EINVAL);
    }
    let r = change(signal, wanted.as_ref(), (!old.is_null()).then_some(&mut before));
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
pub unsafe extern "C" fn __sigaction(signal: i32, new: *const LibcAction, old: *mut LibcAction) -> i32 {
    // SAFETY: the same function.
    unsafe { sigaction(signal, new, old) }
}

fn simple(number: i32, handler: usize, flags: u64, mask: u64) -> usize {
    let mut before = KernelAction::default();
    let r = change(number, Some(&KernelAction { handler, flags, restorer: 0, mask }), Some(&mut before));
    if r < 0 { fail(-r) as isize as usize } else { before.handler }
}

/// The C function (BSD semantics).
#[unsafe(no_mangle)]
pub extern "C" fn signal(number: i32, handler: usize) -> usize {
    if handler == usize::MAX || !(1..=64).contains(&number) {
        return fail(EINVAL) as isize as usize;
    }
    simple(number, handler, SA_RESTART, 1 << (number - 1))
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
    change_mask(if handler == SIG_HOLD { 0 } else { 1 }, Some(bit), INTERNAL, &mut was);
    let mut before = KernelAction::default();
    let new = KernelAction { handler, flags: 0, restorer: 0, mask: 0 };
    let r = change(number, (handler != SIG_HOLD).then_some(&new), Some(&mut before));
    if r < 0 {
        return fail(-r) as isize as usize;
    }
    if was & bit != 0 { SIG_HOLD } else { before.handler }
}

/// Changes the calling thread's mask as the program sees it, but for the signals in `kept`. Returns 0 or −errno.
fn change_mask(how: i32, set: Option<u64>, kept: u64, old: &mut u64) -> isize {
    let ring = thread::current();
    let real = match &ring {
        Some(_) => set.map(|s| s & !(SEGV_BIT | trigger::bit() | kept)),
        None => set.map(|s| s & !kept),
    };
    if !(0..=2).contains(&how) && set.is_some() {
        return -EINVAL;
    }
    match sys::sigprocmask(how as usize, real) {
        Err(errno) => -errno,
        Ok(before) => {
            *old = before;
            if let Some(ring) = ring {
                let private = ring.private();
                if private.segv_blocked {
                    *old |= SEGV_BIT;
                }
                if private.trigger_blocked {
                    *old |= trigger::bit();
                }
                if let Some(set) = set.filter(|_| !thread::borrows_memory()) {
                    let change = |was: bool, asked: bool| match how {
                        0 => was || asked,
                        1 => was && !asked,
                        _ => asked,
                    };
                    private.segv_blocked = change(private.segv_blocked, set & SEGV_BIT != 0);
                    private.trigger_blocked = change(private.trigger_blocked, set & trigger::bit() != 0);
                }
            }
            0
        }
    }
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

/// A mask for a waiting call, without SIGSEGV.
fn waiting_mask(set: *const u64, space: &mut [u64; 16]) -> *const u64 {
    if set.is_null() {
        return set;
    }
    // SAFETY: a valid sigset_t; the kernel reads eight bytes of it.
    space[0] = unsafe { *set } & !SEGV_BIT;
    space.as_ptr()
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigsuspend(set: *const u64) -> i32 {
    let mut space = [0; 16];
    match next!(c"sigsuspend", unsafe extern "C" fn(*const u64) -> i32) {
        // SAFETY: the C library's function with a valid mask.
        Some(real) => unsafe { real(waiting_mask(set, &mut space)) },
        None => fail(38),
    }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ppoll(fds: usize, n: usize, timeout: usize, set: *const u64) -> i32 {
    let mut space = [0; 16];
    match next!(c"ppoll", unsafe extern "C" fn(usize, usize, usize, *const u64) -> i32) {
        // SAFETY: as above.
        Some(real) => unsafe { real(fds, n, timeout, waiting_mask(set, &mut space)) },
        None => fail(38),
    }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pselect(n: i32, r: usize, w: usize, e: usize, timeout: usize, set: *const u64) -> i32 {
    let mut space = [0; 16];
    match next!(c"pselect", unsafe extern "C" fn(i32, usize, usize, usize, usize, *const u64) -> i32) {
        // SAFETY: as above.
        Some(real) => unsafe { real(n, r, w, e, timeout, waiting_mask(set, &mut space)) },
        None => fail(38),
    }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_pwait(fd: i32, events: usize, n: i32, timeout: i32, set: *const u64) -> i32 {
    let mut space = [0; 16];
    match next!(c"epoll_pwait", unsafe extern "C" fn(i32, usize, i32, i32, *const u64) -> i32) {
        // SAFETY: as above.
        Some(real) => unsafe { real(fd, events, n, timeout, waiting_mask(set, &mut space)) },
        None => fail(38),
    }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_pwait2(fd: i32, events: usize, n: i32, timeout: usize, set: *const u64) -> i32 {
    let mut space = [0; 16];
    match next!(c"epoll_pwait2", unsafe extern "C" fn(i32, usize, i32, usize, *const u64) -> i32) {
        // SAFETY: as above.
        Some(real) => unsafe { real(fd, events, n, timeout, waiting_mask(set, &mut space)) },
        None => fail(38),
    }
}

/// The kernel is told of the runtime's own stack; the program's is remembered and used for its handlers. Returns 0 or −errno.
///
/// # Safety
/// As the C function: null or valid pointers.
pub unsafe fn alternate_stack(new: *const [usize; 3], old: *mut [usize; 3]) -> isize {
    const MINIMUM: usize = 2048;
    const SS_ONSTACK: usize = 1;
    const EPERM: isize = 1;
    const ENOMEM: isize = 12;
    let Some(ring) = thread::current() else {
        // SAFETY: the caller's pointers, as for the C function.
        return unsafe { sys::call(sys::nr::SIGALTSTACK, new as usize, old as usize, 0, 0, 0, 0) };
    };
    let private = ring.private();
    let here = (&raw const private) as usize;
    let on_it = private.stack[1] & thread::SS_DISABLE == 0 && here.wrapping_sub(private.stack[0]) < private.stack[2];
    let before = private.stack;
    // SAFETY: null or valid.
    let wanted = unsafe { new.as_ref() }.copied();
    if let Some([address, flags, size]) = wanted {
        // The flags are an int; the other half of the word is padding.
        let flags = flags & 0xffff_ffff;
        if on_it {
            return -EPERM;
        }
        if flags & !(0x8000_0000 | SS_ONSTACK) > thread::SS_DISABLE {
            return -EINVAL;
        }
        if flags & thread::SS_DISABLE == 0 && size < MINIMUM {
            return -ENOMEM;
        }
        private.stack = if flags & thread::SS_DISABLE != 0 { [0, thread::SS_DISABLE, 0] } else { [address, 0, size] };
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

// ---- what the kernel calls ----------------------------------------------------------------------

/// Entry for SIGSEGV, on the runtime's stack: a full ring, a new child, or the program's own fault.
#[unsafe(naked)]
unsafe extern "C" fn on_segv() {
    naked_asm!(
        "push rbx",
        "mov rbx, rsp",
        "and rsp, -16",
        "call {segv}",
        // 0: done. Else the stack pointer of a copy of the frame, on which the program's handler shall run.
        "test rax, rax",
        "jne 2f",
        "mov rsp, rbx",
        "pop rbx",
        "ret",
        "2:",
        "mov rsp, rax",
        "mov edi, 11",
        "lea rdx, [rsp + 8]",
        "lea rsi, [rsp + 8 + {context}]",
        "jmp {deliver}",
        segv = sym segv,
        deliver = sym on_signal,
        context = const size_of::<Context>(),
    )
}

/// Offset of register number `n` of [`Context::registers`] from rsp in [`on_signal`] after its `sub`.
const fn saved(n: usize) -> usize {
    DELIVERY_BYTES + 8 + 40 + 8 * n
}

/// Low and high byte of such an offset in the DWARF encoding of signed numbers.
const fn low(n: usize) -> usize {
    saved(n) & 0x7f | 0x80
}

const fn high(n: usize) -> usize {
    // One byte more would be needed from here on.
    assert!(saved(n) < 0x2000);
    saved(n) >> 7
}

/// Room for a [`Delivery`] below the kernel's frame, which begins 8 bytes below a multiple of 16.
const DELIVERY_BYTES: usize = size_of::<Delivery>().next_multiple_of(16) + 8;

/// Entry for every signal that the program handles: `(signal, info, context)`, with all signals blocked.
///
/// The handler is called from here, so that unwinders find a signal frame right behind it: the call frame information says that this function's
/// caller is the interrupted code, with its registers where the kernel has saved them.
#[unsafe(naked)]
unsafe extern "C" fn on_signal() {
    // rsp is at the frame's first word (the restorer's address), as after a call: the kernel has aligned it.
    naked_asm!(
        ".cfi_startproc",
        ".cfi_signal_frame",
        "sub rsp, {bytes}",
        ".cfi_remember_state",
        // DW_CFA_def_cfa_expression: what is saved as rsp. Then one DW_CFA_expression each: saved at rsp + offset.
        ".cfi_escape 0x0f, 4, 0x77, {rsp_low}, {rsp_high}, 6",
        ".cfi_escape 0x10, 8, 3, 0x77, {r8_low}, {r8_high}",
        ".cfi_escape 0x10, 9, 3, 0x77, {r9_low}, {r9_high}",
        ".cfi_escape 0x10, 10, 3, 0x77, {r10_low}, {r10_high}",
        ".cfi_escape 0x10, 11, 3, 0x77, {r11_low}, {r11_high}",
        ".cfi_escape 0x10, 12, 3, 0x77, {r12_low}, {r12_high}",
        ".cfi_escape 0x10, 13, 3, 0x77, {r13_low}, {r13_high}",
        ".cfi_escape 0x10, 14, 3, 0x77, {r14_low}, {r14_high}",
        ".cfi_escape 0x10, 15, 3, 0x77, {r15_low}, {r15_high}",
        ".cfi_escape 0x10, 5, 3, 0x77, {rdi_low}, {rdi_high}",
        ".cfi_escape 0x10, 4, 3, 0x77, {rsi_low}, {rsi_high}",
        ".cfi_escape 0x10, 6, 3, 0x77, {rbp_low}, {rbp_high}",
        ".cfi_escape 0x10, 3, 3, 0x77, {rbx_low}, {rbx_high}",
        ".cfi_escape 0x10, 1, 3, 0x77, {rdx_low}, {rdx_high}",
        ".cfi_escape 0x10, 0, 3, 0x77, {rax_low}, {rax_high}",
        ".cfi_escape 0x10, 2, 3, 0x77, {rcx_low}, {rcx_high}",
        ".cfi_escape 0x10, 7, 3, 0x77, {rsp_low}, {rsp_high}",
        ".cfi_escape 0x10, 16, 3, 0x77, {rip_low}, {rip_high}",
        "mov rcx, rsp",
        "call {deliver}",
        "cmp rax, {direct}",
        "je 4f",
        "cmp rax, 1",
        "jb 3f",
        "ja 2f",
        "lea rdx, [rsp + {bytes} + 8]",
        "lea rsi, [rdx + {context}]",
        "mov edi, [rsi]",
        "xor eax, eax",
        "call [rsp]",
        "mov rdi, rsp",
        "lea rsi, [rsp + {bytes} + 8]",
        "call {returned}",
        "3:",
        "add rsp, {bytes}",
        ".cfi_restore_state",
        "ret",
        "2:",
        "mov rsp, rax",
        "lea rdx, [rsp + 8]",
        "lea rsi, [rsp + 8 + {context}]",
        "mov edi, [rsi]",
        "jmp {again}",
        "4:",
        "mov r11, [rsp]",
        "lea rdx, [rsp + {bytes} + 8]",
        "lea rsi, [rdx + {context}]",
        "mov edi, [rsi]",
        "xor eax, eax",
        "add rsp, {bytes}",
        "jmp r11",
        ".cfi_endproc",
        direct = const DIRECT,
        deliver = sym deliver,
        returned = sym returned,
        again = sym on_signal,
        context = const size_of::<Context>(),
        bytes = const DELIVERY_BYTES,
        r8_low = const low(0),
        r8_high = const high(0),
        r9_low = const low(1),
        r9_high = const high(1),
        r10_low = const low(2),
        r10_high = const high(2),
        r11_low = const low(3),
        r11_high = const high(3),
        r12_low = const low(4),
        r12_high = const high(4),
        r13_low = const low(5),
        r13_high = const high(5),
        r14_low = const low(6),
        r14_high = const high(6),
        r15_low = const low(7),
        r15_high = const high(7),
        rdi_low = const low(8),
        rdi_high = const high(8),
        rsi_low = const low(9),
        rsi_high = const high(9),
        rbp_low = const low(10),
        rbp_high = const high(10),
        rbx_low = const low(11),
        rbx_high = const high(11),
        rdx_low = const low(12),
        rdx_high = const high(12),
        rax_low = const low(13),
        rax_high = const high(13),
        rcx_low = const low(14),
        rcx_high = const high(14),
        rsp_low = const low(15),
        rsp_high = const high(15),
        rip_low = const low(16),
        rip_high = const high(16),
    )
}

/// Handles SIGSEGV. Returns 0 when the fault is dealt with, or the address of a copy of the frame for
/// the program's handler.
unsafe extern "C" fn segv(_signal: i32, info: *mut Info, context: *mut Context) -> usize {
    // SAFETY: the kernel's frame.
    let (i, c) = unsafe { (&*info, &mut *context) };
    if i.code > 0 {
        let gs = sys::gs();
        if let Some(ring) = thread::ring_at(gs) {
            if own_fault(ring, gs, i.address, c) {
                return 0;
            }
        }
        if let Some(clone) = modules::caught_call(c.registers[RIP]) {
            if let Some(ring) = thread::ring_at(sys::gs())
                && sys::gs() == ring.address
                && window::is_open(ring)
            {
                // It is in the original code although its window is open: what was loaded there is missing.
                window::leave(ring, c, window::Why::NoClone);
            }
            c.registers[RIP] = clone;
            return 0;
        }
    }
    // SAFETY: read under no lock: all signals are blocked in this thread, and a torn read would need the program to race
    // sigaction against its own fault.
    let action = unsafe { (&raw const ACTIONS[SIGSEGV]).read() };
    let blocked = thread::current().is_some_and(|r| r.private().segv_blocked);
    let synchronous = i.code > 0;
    if action.handler == SIG_IGN && !synchronous {
        return 0;
    }
    if action.handler == SIG_DFL || action.handler == SIG_IGN || (blocked && synchronous) {
        // Die as the program would have: with the default action, by the same fault or the same signal.
        let default = KernelAction { restorer: restorer_address(), flags: SA_RESTORER, ..KernelAction::default() };
        note_death(c);
        // SAFETY: the default action.
        unsafe { sys::sigaction(SIGSEGV, Some(&default), None) };
        if !synchronous {
            sys::tgkill(sys::getpid(), sys::gettid(), SIGSEGV);
        }
        return 0;
    }
    move_frame(context, &action)
}

/// Shows the interrupted instruction where the program would have died, and keeps the records of the region in flight.
fn note_death(context: &mut Context) {
    let Some(ring) = thread::current() else { return };
    if burst() {
        return window::leave(ring, context, window::Why::Signal);
    }
    if let Some(place) = modules::place(context.registers[RIP]) {
        if sys::gs() == ring.address {
            commit(ring.control(), context, &place.state);
            append(ring, Slot { payload: place.orig, id: abi::MARK_CUT, aux: abi::mark_aux(SIGSEGV as u32, place.clone) });
        }
    }
}

/// Copies the frame from the runtime's stack to where the program's handler shall run: the program's alternate
/// stack, or the interrupted one. The runtime's stack is free again at once, even if the handler never returns.
fn move_frame(context: *mut Context, action: &KernelAction) -> usize {
    // SAFETY: the kernel's frame.
    let c = unsafe { &mut *context };
    // SAFETY: as above.
    let bytes = unsafe { context::frame_bytes(context) };
    let start = context as usize - 8;
    let interrupted = c.registers[15] as usize;
    let mut top = interrupted - 128;
    if action.flags & SA_ONSTACK != 0 {
        if let Some(ring) = thread::current() {
            let [address, flags, size] = ring.private().stack;
            if flags & thread::SS_DISABLE == 0 && interrupted.wrapping_sub(address) >= size {
                top = address + size;
            }
        }
    }
    // The extended state keeps its alignment of 64.
    let target = ((top - bytes - 64) & !63) | (start & 63);
    let shift = target.wrapping_sub(start);
    // SAFETY: the target is free stack below everything in use; if it is not mapped, the program's own
    // handler could not have run there either, and this fault ends it.
    unsafe { core::ptr::copy_nonoverlapping(start as *const u8, target as *mut u8, bytes) };
    // SAFETY: the copy has the same layout.
    let copy = unsafe { &mut *((context as usize).wrapping_add(shift) as *mut Context) };
    if copy.extended != 0 {
        copy.extended = (copy.extended as usize).wrapping_add(shift) as u64;
    }
    target
}

/// Whether the fault was a probe's: the ring is full, or this is a new child.
fn own_fault(ring: Ring, gs: usize, address: u64, context: &mut Context) -> bool {
    let page = ring.address as u64;
    let Some(header) = process::header() else { return false };
    if gs != ring.address {
        let spare = ring.spare();
        if address < spare.guard || address >= spare.guard + crate::shared::PAGE as u64 {
            return false;
        }
        thread::begin_spare(ring);
        let start = ring.spare().base;
        return go_on(ring.spare(), start, context);
    }
    let at_guard = |address| thread::in_guard(header, ring, address) || address.wrapping_sub(thread::spare_end(ring)) < crate::shared::PAGE as u64;
    if header.mode == MODE_BURST && at_guard(address) && modules::in_clone(context.registers[RIP]) {
        window::full(header, ring, context);
        return true;
    }
    if sys::getpid() != process::OWNER.load(Ordering::Relaxed) {
        if address < page || address >= page + (1 << 30) {
            return false;
        }
        return thread::adopt_after_fork(ring);
    }
    let guard = ring.control().guard;
    if address < guard || address >= guard + crate::shared::PAGE as u64 || !modules::in_clone(context.registers[RIP]) {
        return false;
    }
    if guard::turn(header, ring) {
        let start = ring.control().base;
        go_on(ring.control(), start, context)
    } else {
        guard::give_up(ring);
        let start = ring.spare().base;
        go_on(ring.spare(), start, context)
    }
}

/// Lets the interrupted store write its slot at `start`: moves the region's base there.
pub fn go_on(control: &mut crate::shared::Control, start: u64, context: &mut Context) -> bool {
    let mut code = [0u8; 16];
    // SAFETY: the faulting instruction was just executed from there; a clone is followed by other parts of its segment.
    unsafe { core::ptr::copy_nonoverlapping(context.registers[RIP] as *const u8, code.as_mut_ptr(), 16) };
    let Some(store) = crate::code::decode_store(&code) else { return false };
    let base = start.wrapping_sub(16 * u64::from(store.slot));
    control.cursor = base;
    *context.register(store.base) = base;
    true
}

/// Entry for the trigger's signal, on the runtime's stack.
#[unsafe(naked)]
unsafe extern "C" fn on_trigger() {
    naked_asm!(
        "push rbx",
        "mov rbx, rsp",
        "and rsp, -16",
        "call {triggered}",
        "test rax, rax",
        "jne 2f",
        "mov rsp, rbx",
        "pop rbx",
        "ret",
        "2:",
        "mov rsp, rax",
        "lea rdx, [rsp + 8]",
        "lea rsi, [rsp + 8 + {context}]",
        "mov edi, [rsi]",
        "jmp {deliver}",
        triggered = sym triggered,
        deliver = sym on_signal,
        context = const size_of::<Context>(),
    )
}

/// Handles the trigger's signal. Returns 0 when all is done, or the address of a copy of the frame for the program's handler:
/// the program may use the signal for itself as well.
unsafe extern "C" fn triggered(signal: i32, info: *mut Info, context: *mut Context) -> usize {
    // SAFETY: the kernel's frame.
    let (i, c) = unsafe { (&*info, &mut *context) };
    // (Not `thread::current`: a child has no trigger before it has a ring.)
    match thread::ring_at(sys::gs()) {
        Some(ring) if trigger::is_ours(ring, i) => {
            trigger::came(ring, i, c);
            return 0;
        }
        // One that an earlier attachment's trigger had sent when it ended.
        Some(_) if i.code > 0 && crate::attach::is_attached() => return 0,
        None if i.code > 0 => return 0,
        _ => {}
    }
    let s = signal as usize & 63;
    // SAFETY: as in `segv`.
    let action = unsafe { (&raw const ACTIONS[s]).read() };
    match action.handler {
        SIG_IGN => 0,
        SIG_DFL => {
            let default = KernelAction { restorer: restorer_address(), flags: SA_RESTORER, ..KernelAction::default() };
            // SAFETY: the default action, which ends the process.
            unsafe { sys::sigaction(s, Some(&default), None) };
            sys::tgkill(sys::getpid(), sys::gettid(), s);
            0
        }
        _ => move_frame(context, &action),
    }
}

fn trigger_action() -> KernelAction {
    let flags = SA_SIGINFO | SA_ONSTACK | SA_RESTORER | SA_RESTART;
    KernelAction { handler: on_trigger as *const () as usize, flags, restorer: restorer_address(), mask: !0 }
}

/// Installs the trigger's handler, for what the kernel may send in its place as well, if the program does not use that.
fn install_trigger() {
    let signal = trigger::signal();
    if signal == 0 {
        return;
    }
    // SAFETY: `on_trigger` is a signal handler; single-threaded.
    unsafe {
        let mut old = KernelAction::default();
        sys::sigaction(signal, Some(&trigger_action()), Some(&mut old));
        (&raw mut ACTIONS[signal]).write(old);
        KNOWN |= trigger::bit();
        sys::sigaction(trigger::SIGIO, None, Some(&mut old));
        if old.handler == SIG_DFL {
            sys::sigaction(trigger::SIGIO, Some(&trigger_action()), None);
            (&raw mut ACTIONS[trigger::SIGIO]).write(old);
            KNOWN |= 1 << (trigger::SIGIO - 1);
        }
    }
    if let (Ok(old), Some(ring)) = (sys::sigprocmask(1, Some(trigger::bit())), thread::current()) {
        ring.private().trigger_blocked = old & trigger::bit() != 0;
    }
}

/// Commits the slots of the region in flight to the page that %gs points at.
pub fn commit(control: &mut crate::shared::Control, context: &mut Context, state: &abi::ProbeState) {
    if state.base_reg != abi::NO_REG {
        control.cursor = context.register(state.base_reg).wrapping_sub(16 * u64::from(state.base_ahead)) & 0xffff_ffff;
    }
    control.cursor += 16 * u64::from(state.slots_done);
}

/// Writes a marker. All signals are blocked.
fn append(ring: Ring, slot: Slot) {
    let control = ring.control();
    if control.cursor >= control.guard {
        let Some(header) = process::header() else { return };
        if !guard::turn(header, ring) {
            guard::give_up(ring);
            return;
        }
    }
    let control = ring.control();
    // SAFETY: below the guard, in this thread's ring.
    unsafe { (control.cursor as *mut Slot).write(slot) };
    control.cursor += 16;
}

/// What is to be remembered while a handler of the program runs. Lies on the stack, in the frame of [`on_signal`].
#[repr(C)]
struct Delivery {
    /// Address of the program's handler.
    handler: usize,
    signal: i32,
    /// It was recording.
    recording: bool,
    /// The ring and place in the clone that were interrupted.
    interrupted: Option<(Ring, modules::Place)>,
    /// Registers as the clone had them, and as the handler sees them.
    before: [u64; REGISTERS],
    shown: [u64; REGISTERS],
    spill: [u64; abi::SPILL_SLOTS],
}

/// Of [`deliver`]: the handler returns to the kernel itself.
const DIRECT: usize = 2;

/// Prepares the frame for the program's handler. Returns 0 if none is to run, 1 if `delivery` names it, [`DIRECT`] if it names it and nothing is to be
/// done behind it, or the address of a moved frame on which to start again.
unsafe extern "C" fn deliver(signal: i32, _info: *mut Info, context: *mut Context, delivery: *mut Delivery) -> usize {
    // SAFETY: the kernel's frame.
    let c = unsafe { &mut *context };
    let s = signal as usize & 127;
    let ring = thread::current();
    // SAFETY: the table is read under its lock.
    let action = thread::exclusively(&LOCK, || unsafe { (&raw const ACTIONS[s.min(64)]).read() });
    if let Some(ring) = ring {
        let here = context as usize;
        if here.wrapping_sub(ring.hook_stack()) < thread::HOOK_STACK + thread::SIGNAL_STACK {
            hooks::settle(c);
            return move_frame(context, &action);
        }
    }
    if action.flags & SA_RESETHAND != 0 {
        // The kernel has reset its own action; for SIGSEGV it kept ours.
        // SAFETY: under the lock.
        thread::exclusively(&LOCK, || unsafe { (&raw mut ACTIONS[s.min(64)]).write(KernelAction::default()) });
        if s == trigger::SIGIO {
            // SAFETY: `on_trigger` is a signal handler.
            unsafe { sys::sigaction(s, Some(&unhandled(s, &KernelAction::default())), None) };
        }
    }
    if action.handler == SIG_DFL || action.handler == SIG_IGN {
        // Changed by another thread since the kernel chose this handler.
        return 0;
    }
    if ring.is_some() {
        hooks::settle(c);
    }
    if let Some(ring) = ring
        && burst()
        && sys::gs() == ring.address
    {
        window::leave(ring, c, window::Why::Signal);
    }
    let rip = c.registers[RIP];
    // In the spare ring nothing counts, but what a probe has borrowed must come back all the same.
    let recording = ring.is_some_and(|r| sys::gs() == r.address);
    let interrupted = match ring {
        Some(ring) if modules::in_clone(rip) => {
            let place = modules::place(rip);
            if place.is_none() {
                process::count(count::LOST_STATES, 1);
            }
            place.map(|p| (ring, p))
        }
        _ => None,
    };
    let mut before = [0u64; REGISTERS];
    before.copy_from_slice(&c.registers[..REGISTERS]);
    let mut spill = [0u64; abi::SPILL_SLOTS];
    let mut shown = before;
    if let Some((ring, place)) = &interrupted {
        let control = if recording { ring.control() } else { ring.spare() };
        spill = control.spill;
        commit(control, c, &place.state);
        if recording {
            append(*ring, Slot { payload: place.orig, id: abi::MARK_SIGNAL_ENTER, aux: abi::mark_aux(signal as u32, place.clone) });
        }
        for [register, slot] in place.state.saved {
            if register != abi::NO_REG {
                *c.register(register) = spill[slot as usize % abi::SPILL_SLOTS];
            }
        }
        if place.state.flags & abi::STATE_PUSHED != 0 {
            c.registers[15] += 8;
        }
        c.registers[RIP] = place.orig;
        shown.copy_from_slice(&c.registers[..REGISTERS]);
    }
    let own = if action.flags & SA_NODEFER != 0 { 0 } else { 1u64 << (s - 1) };
    let mut mask = c.mask | action.mask | own;
    // Of a runtime that no loader knows, unwinders find no frames: it must leave none behind.
    let direct = (crate::attach::is_attached() || crate::freestanding::is_static() && burst()) && interrupted.is_none();
    if let Some(ring) = ring {
        if !direct && ring.private().segv_blocked {
            c.mask |= SEGV_BIT;
        }
        if !direct && ring.private().trigger_blocked {
            c.mask |= trigger::bit();
        }
        mask &= !(SEGV_BIT | trigger::bit());
    }
    // SAFETY: room that the caller has made on its stack.
    unsafe { delivery.write(Delivery { handler: action.handler, signal, recording, interrupted, before, shown, spill }) };
    let _ = sys::sigprocmask(2, Some(mask));
    if direct { DIRECT } else { 1 }
}

/// The program's handler has returned.
unsafe extern "C" fn returned(delivery: *const Delivery, context: *mut Context) {
    let _ = sys::sigprocmask(0, Some(!0));
    // SAFETY: what `deliver` wrote, and the kernel's frame.
    let (delivery, c) = unsafe { (&*delivery, &mut *context) };
    let before = &delivery.before;
    if let Some(ring) = thread::current() {
        ring.private().segv_blocked = c.mask & SEGV_BIT != 0;
        ring.private().trigger_blocked = c.mask & trigger::bit() != 0;
        c.mask &= !(SEGV_BIT | trigger::bit());
    }
    settle(delivery, c);
    if c.registers[RIP] != before[RIP] {
        avoid_patch(c);
    }
}

/// Puts the interrupted clone back, if that is where the thread goes on.
fn settle(delivery: &Delivery, c: &mut Context) {
    let Delivery { signal, shown, before, spill, .. } = delivery;
    let Some((ring, place)) = delivery.interrupted else { return };
    let mark = |id| Slot { payload: place.orig, id, aux: abi::mark_aux(*signal as u32, place.clone) };
    if !delivery.recording || sys::gs() != ring.address {
        // Recording has ended, perhaps just now: the region goes on in the spare ring.
        resume(ring.spare(), c, shown, before, &place.state);
        ring.spare().spill = *spill;
    } else if c.registers[..REGISTERS] == *shown {
        append(ring, mark(abi::MARK_SIGNAL_RETURN));
        resume(ring.control(), c, shown, before, &place.state);
        ring.control().spill = *spill;
    } else {
        process::count(count::CUT_REGIONS, 1);
        append(ring, mark(abi::MARK_CUT));
    }
}

/// A handler has sent the thread to an instruction that a patch overwrites (it has skipped the one before): it goes on in the clone, as if it had come
/// there with nothing recorded yet.
fn avoid_patch(context: &mut Context) {
    let Some(ring) = thread::current() else { return };
    let Some((clone, state)) = modules::behind_patch(context.registers[RIP]) else { return };
    let control = if sys::gs() == ring.address { ring.control() } else { ring.spare() };
    for [register, slot] in state.saved {
        if register != abi::NO_REG {
            control.spill[slot as usize % abi::SPILL_SLOTS] = *context.register(register);
        }
    }
    let base = control.cursor.wrapping_sub(16 * u64::from(state.slots_done));
    control.cursor = base;
    if state.base_reg != abi::NO_REG {
        *context.register(state.base_reg) = base.wrapping_add(16 * u64::from(state.base_ahead)) & 0xffff_ffff;
    }
    context.registers[RIP] = clone;
}

/// Puts the clone's registers back, with the region's base where the ring now is.
fn resume(control: &mut crate::shared::Control, context: &mut Context, shown: &[u64; REGISTERS], before: &[u64; REGISTERS], state: &abi::ProbeState) {
    if context.registers[..REGISTERS] != *shown {
        return;
    }
    context.registers[..REGISTERS].copy_from_slice(before);
    let in_flight = state.slots_done > 0 || state.base_reg != abi::NO_REG;
    if in_flight {
        let base = control.cursor.wrapping_sub(16 * u64::from(state.slots_done));
        control.cursor = base;
        if state.base_reg != abi::NO_REG {
            *context.register(state.base_reg) = base.wrapping_add(16 * u64::from(state.base_ahead)) & 0xffff_ffff;
        }
    }
}
