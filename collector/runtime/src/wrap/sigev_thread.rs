//! Functions of the program that the C library calls in threads of its own (`SIGEV_THREAD`): when a
//! timer expires, a message or data has arrived, or a name is resolved. No wrapper sees the
//! creation of these threads, which have the `%gs` base of their creator. So the functions are
//! entered through stubs that give the threads a ring.
//!
//! A stub belongs to a function, regardless of its argument: a program may change the argument of
//! an event that it reuses, and a program with many timers has few functions. Stubs are never
//! freed, since a notification may arrive after its timer was deleted.

use crate::record::thread_ring::Stack;
use crate::sys::errno::{EAGAIN, ENOMEM, ENOSYS};
use crate::sys::libc_symbols::{fail, next};
use crate::sys::process;
use crate::wrap::threads::come_into_being;
use core::arch::naked_asm;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Maximum number of functions with a stub.
const STUBS: usize = 1024;
/// Length of a stub, which is one call instruction, bytes.
const STUB: usize = 5;

/// The function of each stub; unused stubs come last.
static FUNCTIONS: [AtomicUsize; STUBS] = [const { AtomicUsize::new(0) }; STUBS];

#[unsafe(naked)]
unsafe extern "C" fn stubs() {
    naked_asm!(".rept {stubs}", "call {notify}", ".endr", stubs = const STUBS, notify = sym notify)
}

/// Target of all stubs. The return address of the call identifies the stub.
#[unsafe(naked)]
unsafe extern "C" fn notify() {
    naked_asm!("pop rax", "push rdi", "mov rdi, rax", "call {begin}", "pop rdi", "jmp rax", begin = sym begin_notification)
}

/// Gives the thread a ring. Returns the function that it is to run.
extern "C" fn begin_notification(behind: usize) -> usize {
    come_into_being(false, false, Stack::UNKNOWN);
    FUNCTIONS[(behind - stubs as *const () as usize) / STUB - 1].load(Ordering::Acquire)
}

/// The stub of a function. `None` if all are in use.
fn stub_of(function: usize) -> Option<usize> {
    let first = stubs as *const () as usize;
    // An event that already has a stub stays unchanged.
    if function == 0 || function.wrapping_sub(first) < STUBS * STUB {
        return Some(function);
    }
    let place = FUNCTIONS
        .iter()
        .position(|f| match f.load(Ordering::Acquire) {
            0 => f
                .compare_exchange(0, function, Ordering::AcqRel, Ordering::Acquire)
                .map_or_else(|other| other == function, |_| true),
            known => known == function,
        });
    place.map(|place| first + STUB * place)
}

/// A copy of a `struct sigevent` (64 bytes: value, signal and kind, function, attributes) whose
/// function is entered through a stub. `Ok(None)` if the event starts no thread, an error if there
/// is no stub.
///
/// # Safety
/// `event` must be null or valid.
unsafe fn by_thread(event: *const [usize; 8]) -> Result<Option<[usize; 8]>, ()> {
    const SIGEV_THREAD: u32 = 2;
    // SAFETY: the caller's contract.
    let Some(event) = unsafe { event.as_ref() }
        .filter(|e| (e[1] >> 32) as u32 == SIGEV_THREAD && process::header().is_some())
    else {
        return Ok(None);
    };
    let mut changed = *event;
    changed[2] = stub_of(event[2]).ok_or(())?;
    Ok(Some(changed))
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn timer_create(clock: i32, event: *const [usize; 8], timer: usize) -> i32 {
    crate::sys::begin::early();
    let Some(real) = next!(
        c"timer_create",
        unsafe extern "C" fn(i32, *const [usize; 8], usize) -> i32
    ) else {
        return fail(ENOSYS);
    };
    // SAFETY: the caller's arguments.
    match unsafe { by_thread(event) } {
        // SAFETY: as above.
        Ok(changed) => unsafe { real(clock, changed.as_ref().map_or(event, |e| e), timer) },
        Err(()) => fail(EAGAIN),
    }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mq_notify(queue: i32, event: *const [usize; 8]) -> i32 {
    crate::sys::begin::early();
    let Some(real) = next!(
        c"mq_notify",
        unsafe extern "C" fn(i32, *const [usize; 8]) -> i32
    ) else {
        return fail(ENOSYS);
    };
    // SAFETY: the caller's arguments.
    match unsafe { by_thread(event) } {
        // SAFETY: as above.
        Ok(changed) => unsafe { real(queue, changed.as_ref().map_or(event, |e| e)) },
        Err(()) => fail(ENOMEM),
    }
}

/// Changes the event of a `struct aiocb` in place: the C library reads it when the data have
/// arrived.
///
/// # Safety
/// Null or valid.
unsafe fn change_block(block: usize) -> Result<(), ()> {
    /// Offset of the event: descriptor, operation, priority, buffer and length come first.
    const EVENT: usize = 32;
    if block == 0 {
        return Ok(());
    }
    let event = (block + EVENT) as *mut [usize; 8];
    // SAFETY: the caller's contract.
    unsafe {
        if let Some(changed) = by_thread(event)? {
            (*event)[2] = changed[2];
        }
    }
    Ok(())
}

macro_rules! transfers {
    ($($name:ident, $c:literal, ($($before:ident),*);)*) => {$(
        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($before: usize,)* block: usize) -> i32 {
            let Some(real) = next!($c, unsafe extern "C" fn($(transfers!(@type $before),)* usize) -> i32) else { return fail(ENOSYS) };
            // SAFETY: the caller's arguments.
            match unsafe { change_block(block) } {
                // SAFETY: as above.
                Ok(()) => unsafe { real($($before,)* block) },
                Err(()) => fail(EAGAIN),
            }
        }
    )*};
    (@type $argument:ident) => { usize };
}

transfers! {
    aio_read, c"aio_read", ();
    aio_read64, c"aio_read64", ();
    aio_write, c"aio_write", ();
    aio_write64, c"aio_write64", ();
    aio_fsync, c"aio_fsync", (operation);
    aio_fsync64, c"aio_fsync64", (operation);
}

macro_rules! lists {
    ($($name:ident, $c:literal, $each:expr, $failed:expr;)*) => {$(
        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(mode: i32, list: *const usize, n: i32, event: *const [usize; 8]) -> i32 {
            let Some(real) = next!($c, unsafe extern "C" fn(i32, *const usize, i32, *const [usize; 8]) -> i32) else { return fail(ENOSYS) };
            // SAFETY: the caller's arguments.
            unsafe {
                // A caller that waits need not pass an event.
                let event = if mode == NO_WAIT { event } else { core::ptr::null() };
                let each: Option<unsafe fn(usize) -> Result<(), ()>> = $each;
                let done = each.is_none_or(|each| (0..n.max(0) as usize).all(|i| each(*list.add(i)).is_ok()));
                match by_thread(event) {
                    Ok(changed) if done => real(mode, list, n, changed.as_ref().map_or(event, |e| e)),
                    _ => $failed,
                }
            }
        }
    )*};
}

const EAI_MEMORY: i32 = -10;
/// `LIO_NOWAIT`, `GAI_NOWAIT`.
const NO_WAIT: i32 = 1;
lists! {
    lio_listio, c"lio_listio", Some(change_block), fail(EAGAIN);
    lio_listio64, c"lio_listio64", Some(change_block), fail(EAGAIN);
    getaddrinfo_a, c"getaddrinfo_a", None, EAI_MEMORY;
}
