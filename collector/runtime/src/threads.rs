//! New threads and processes: each thread gets its ring before it runs code of the program.

use crate::next::{fail, next};
use crate::sys;
use crate::thread;
use core::arch::naked_asm;
use core::sync::atomic::{AtomicU32, Ordering};

/// What a new thread shall run, handed over in a place of a fixed pool.
struct Start {
    used: AtomicU32,
    function: usize,
    argument: usize,
    segv_blocked: bool,
    trigger_blocked: bool,
}

const POOL: usize = 1024;
static mut STARTS: [Start; POOL] = [const { Start { used: AtomicU32::new(0), function: 0, argument: 0, segv_blocked: false, trigger_blocked: false } }; POOL];

/// Takes a place of the pool. Waits if a thousand threads are being started at once.
extern "C" fn prepare(function: usize, argument: usize) -> usize {
    let segv_blocked = thread::current().is_some_and(|r| r.private().segv_blocked);
    let trigger_blocked = thread::current().is_some_and(|r| r.private().trigger_blocked);
    loop {
        for i in 0..POOL {
            // SAFETY: `used` guards the place.
            unsafe {
                let start = &raw mut STARTS[i];
                if (*start).used.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    (*start).function = function;
                    (*start).argument = argument;
                    (*start).segv_blocked = segv_blocked;
                    (*start).trigger_blocked = trigger_blocked;
                    return start as usize;
                }
            }
        }
        sys::futex_wait(core::ptr::null(), 0, 1_000_000);
    }
}

/// A pair that is returned in rax and rdx.
#[repr(C)]
struct Call {
    function: usize,
    argument: usize,
}

/// First step of a new thread.
extern "C" fn begin(start: *mut Start) -> Call {
    // SAFETY: made by `prepare` for this thread alone.
    let (call, blocked, trigger_blocked) = unsafe {
        let call = Call { function: (*start).function, argument: (*start).argument };
        let (blocked, trigger_blocked) = ((*start).segv_blocked, (*start).trigger_blocked);
        (*start).used.store(0, Ordering::Release);
        (call, blocked, trigger_blocked)
    };
    come_into_being(blocked, trigger_blocked);
    call
}

/// A thread that has just come into being by a system call, with the %gs base of its creator.
pub fn begin_raw(parents: thread::Ring) {
    come_into_being(parents.private().segv_blocked, parents.private().trigger_blocked);
}

/// Gives the calling thread, which is new, a ring. What the program has blocked is its creator's.
fn come_into_being(segv_blocked: bool, trigger_blocked: bool) {
    let old = sys::sigprocmask(0, Some(!0));
    thread::forget_parents(sys::gs());
    // SAFETY: the %gs base is inherited from the creator; without a ring of its own this thread must not use it.
    unsafe { sys::set_gs(0) };
    thread::set_up();
    if let Some(ring) = thread::current() {
        ring.private().segv_blocked = segv_blocked;
        ring.private().trigger_blocked = trigger_blocked;
    }
    if let Ok(old) = old {
        let _ = sys::sigprocmask(2, Some(old & !(1 << 10 | crate::trigger::bit())));
    }
}

/// Start routine of wrapped threads: sets the ring up, then becomes the program's start routine, so that
/// no frame of the runtime stays on the stack (cancellation unwinds through it).
#[unsafe(naked)]
unsafe extern "C" fn enter() {
    naked_asm!("sub rsp, 8", "call {begin}", "add rsp, 8", "mov rdi, rdx", "jmp rax", begin = sym begin)
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(thread: usize, attributes: usize, function: usize, argument: usize) -> i32 {
    const EAGAIN: i32 = 11;
    let Some(real) = next!(c"pthread_create", unsafe extern "C" fn(usize, usize, usize, usize) -> i32) else { return EAGAIN };
    if crate::process::header().is_none() {
        // SAFETY: the caller's arguments.
        return unsafe { real(thread, attributes, function, argument) };
    }
    let start = prepare(function, argument);
    // SAFETY: the caller's arguments, with our start routine in front of its own.
    let r = unsafe { real(thread, attributes, enter as *const () as usize, start) };
    if r != 0 {
        release(start);
    }
    r
}

fn release(start: usize) {
    // SAFETY: made by `prepare`, and no thread was started with it.
    unsafe { (*(start as *mut Start)).used.store(0, Ordering::Release) };
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thrd_create(thread: usize, function: usize, argument: usize) -> i32 {
    const THRD_ERROR: i32 = 2;
    let Some(real) = next!(c"thrd_create", unsafe extern "C" fn(usize, usize, usize) -> i32) else { return THRD_ERROR };
    if crate::process::header().is_none() {
        // SAFETY: the caller's arguments.
        return unsafe { real(thread, function, argument) };
    }
    let start = prepare(function, argument);
    // SAFETY: as above; both kinds of start routine take one pointer.
    let r = unsafe { real(thread, enter as *const () as usize, start) };
    if r != 0 {
        release(start);
    }
    r
}

/// `SIGEV_THREAD` notifications run in threads that the C library makes for itself: the function they
/// call is entered through a trampoline that gives them a ring.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn timer_create(clock: i32, event: *const [usize; 8], timer: usize) -> i32 {
    const SIGEV_THREAD: u32 = 2;
    let Some(real) = next!(c"timer_create", unsafe extern "C" fn(i32, *const [usize; 8], usize) -> i32) else { return fail(38) };
    // SAFETY: null or a valid struct sigevent of 64 bytes: value, signal and kind, function, attributes.
    let by_thread = unsafe { event.as_ref() }.filter(|e| (e[1] >> 32) as u32 == SIGEV_THREAD && crate::process::header().is_some());
    let Some(event) = by_thread else {
        // SAFETY: the caller's arguments.
        return unsafe { real(clock, event, timer) };
    };
    // The place is used by every expiry, so it is never given back.
    let start = prepare(event[2], event[0]);
    let mut changed = *event;
    changed[0] = start;
    changed[2] = notify as *const () as usize;
    // SAFETY: as above.
    let r = unsafe { real(clock, &changed, timer) };
    if r != 0 {
        release(start);
    }
    r
}

/// As `begin`, for a start that is used again.
extern "C" fn begin_notification(start: *mut Start) -> Call {
    // SAFETY: made by `prepare`, never released.
    let call = unsafe { Call { function: (*start).function, argument: (*start).argument } };
    let old = sys::sigprocmask(0, Some(!0));
    thread::forget_parents(sys::gs());
    // SAFETY: as in `begin`.
    unsafe { sys::set_gs(0) };
    thread::set_up();
    if let Ok(old) = old {
        let _ = sys::sigprocmask(2, Some(old & !(1 << 10 | crate::trigger::bit())));
    }
    call
}

#[unsafe(naked)]
unsafe extern "C" fn notify() {
    naked_asm!("sub rsp, 8", "call {begin}", "add rsp, 8", "mov rdi, rdx", "jmp rax", begin = sym begin_notification)
}

/// `clone` with shared memory starts a thread that nobody else tells of.
///
/// # Safety
/// As the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clone() {
    // (fn rdi, stack rsi, flags edx, arg rcx, parent_tid r8, tls r9, [child_tid]): only fn and arg are
    // replaced, the rest passes through.
    naked_asm!(
        "test edx, 0x100", // CLONE_VM
        "je 1f",
        "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "sub rsp, 8",
        "mov rsi, rcx",
        "call {prepare}",
        "add rsp, 8", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
        "mov rcx, rax",
        "lea rdi, [rip + {enter}]",
        "1:",
        "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "sub rsp, 8",
        "call {real}",
        "add rsp, 8", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
        "jmp rax",
        prepare = sym prepare, enter = sym enter_clone, real = sym real_clone)
}

extern "C" fn real_clone() -> usize {
    match next!(c"clone", unsafe extern "C" fn() -> i32) {
        Some(real) => real as usize,
        None => no_clone as *const () as usize,
    }
}

extern "C" fn no_clone() -> i32 {
    fail(38)
}

/// As `enter`; a clone's function is entered with the stack as the C library's `clone` leaves it.
#[unsafe(naked)]
unsafe extern "C" fn enter_clone() {
    naked_asm!("push rbp", "mov rbp, rsp", "and rsp, -16", "call {begin}", "mov rsp, rbp", "pop rbp", "mov rdi, rdx", "jmp rax", begin = sym begin)
}

/// The child gets a trigger of its own.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fork() -> i32 {
    let Some(real) = next!(c"fork", unsafe extern "C" fn() -> i32) else { return fail(38) };
    // SAFETY: the C library's function.
    let child = unsafe { real() };
    #[cfg(mgz_cdylib)]
    if child == 0 {
        crate::heap::forked();
    }
    if child == 0 {
        // Of a thread without a ring: this is no child of `vfork`.
        thread::forget_parents(sys::gs());
    }
    if child == 0
        && crate::trigger::signal() != 0
        && let Some(ring) = thread::current()
    {
        crate::trigger::renew(ring);
    }
    child
}

/// In the child, records go to the spare ring until `exec` or `_exit`: it shares its parent's memory.
///
/// # Safety
/// As the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfork() {
    naked_asm!(
        "pop rdi", // the return address: the child would overwrite it
        "mov eax, 58",
        "syscall",
        "push rdi",
        "test rax, rax",
        "js 2f",
        "jne 1f",
        "call {child}",
        "xor eax, eax",
        "1:",
        "ret",
        "2:",
        "neg rax",
        "mov rdi, rax",
        "sub rsp, 8",
        "call {failed}",
        "add rsp, 8",
        "movsxd rax, eax",
        "ret",
        child = sym vfork_child, failed = sym vfork_failed)
}

/// # Safety
/// As the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __vfork() {
    naked_asm!("jmp {vfork}", vfork = sym vfork)
}

extern "C" fn vfork_failed(errno: isize) -> i32 {
    fail(errno)
}

extern "C" fn vfork_child() {
    let gs = sys::gs();
    if let Some(ring) = thread::ring_at(gs)
        && gs == ring.address
    {
        crate::guard::give_up(ring);
    }
}
