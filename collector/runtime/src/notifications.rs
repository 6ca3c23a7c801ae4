//! Functions of the program that the C library calls in threads of its own (`SIGEV_THREAD`): when a timer expires, a message or data has come, a name is known. Nobody tells of
//! these threads, which have the `%gs` base of whoever made them; so the functions are entered through a trampoline that gives them a ring.

use crate::next::{fail, next};
use crate::process;
use crate::shared::PAGE;
use crate::sys::{self, map};
use crate::thread;
use crate::threads::{Call, come_into_being};
use core::arch::naked_asm;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

const EAGAIN: isize = 11;
const ENOMEM: isize = 12;
const ENOSYS: isize = 38;

/// What a notification calls. It may come as often as it likes, and one more when its timer is gone: places are never given back, but notifications that are
/// alike share one if they were made one shortly after the other.
struct Notifications {
    /// The page in which places are taken, and the next one in it.
    page: AtomicUsize,
    next: AtomicUsize,
}

static NOTIFICATIONS: Notifications = Notifications { page: AtomicUsize::new(0), next: AtomicUsize::new(0) };
static NOTIFICATIONS_LOCK: AtomicU32 = AtomicU32::new(0);

/// In a new child: no other thread holds the lock.
pub fn unlock() {
    NOTIFICATIONS_LOCK.store(0, Ordering::Relaxed);
}

/// A place for a notification. `None` if there is no memory for one.
fn place_of_notification(function: usize, argument: usize) -> Option<*const Call> {
    const IN_PAGE: usize = PAGE / size_of::<Call>();
    thread::exclusively(&NOTIFICATIONS_LOCK, || {
        let Notifications { page, next } = &NOTIFICATIONS;
        let (mut at, mut n) = (page.load(Ordering::Relaxed) as *mut Call, next.load(Ordering::Relaxed));
        // SAFETY: places below `n` of the page are complete.
        if let Some(known) = (0..n).map(|i| unsafe { at.add(i) }).find(|&call| unsafe { (*call).function == function && (*call).argument == argument }) {
            return Some(known.cast_const());
        }
        if at.is_null() || n == IN_PAGE {
            // SAFETY: a new mapping.
            at = unsafe { sys::mmap(0, PAGE, map::READ | map::WRITE, map::PRIVATE | map::ANONYMOUS, -1, 0) }.ok()? as *mut Call;
            n = 0;
            page.store(at as usize, Ordering::Relaxed);
        }
        // SAFETY: the page has room for it.
        unsafe { at.add(n).write(Call { function, argument }) };
        next.store(n + 1, Ordering::Relaxed);
        // SAFETY: as above.
        Some(unsafe { at.add(n) })
    })
}

/// A copy of a `struct sigevent` (64 bytes: value, signal and kind, function, attributes) whose function is entered through a trampoline that gives its thread a
/// ring. `Ok(None)` if the event starts no thread, an error if there is no memory.
///
/// # Safety
/// `event` must be null or valid.
unsafe fn by_thread(event: *const [usize; 8]) -> Result<Option<[usize; 8]>, ()> {
    const SIGEV_THREAD: u32 = 2;
    // SAFETY: the caller's contract.
    let Some(event) = unsafe { event.as_ref() }.filter(|e| (e[1] >> 32) as u32 == SIGEV_THREAD && process::header().is_some()) else { return Ok(None) };
    let mut changed = *event;
    changed[0] = place_of_notification(event[2], event[0]).ok_or(())? as usize;
    changed[2] = notify as *const () as usize;
    Ok(Some(changed))
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn timer_create(clock: i32, event: *const [usize; 8], timer: usize) -> i32 {
    let Some(real) = next!(c"timer_create", unsafe extern "C" fn(i32, *const [usize; 8], usize) -> i32) else { return fail(ENOSYS) };
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
    let Some(real) = next!(c"mq_notify", unsafe extern "C" fn(i32, *const [usize; 8]) -> i32) else { return fail(ENOSYS) };
    // SAFETY: the caller's arguments.
    match unsafe { by_thread(event) } {
        // SAFETY: as above.
        Ok(changed) => unsafe { real(queue, changed.as_ref().map_or(event, |e| e)) },
        Err(()) => fail(ENOMEM),
    }
}

/// As `begin`, for a start that is used again.
extern "C" fn begin_notification(place: *const Call) -> Call {
    // SAFETY: made by `place_of_notification`, never released.
    let call = unsafe { Call { function: (*place).function, argument: (*place).argument } };
    come_into_being(false, false);
    call
}

#[unsafe(naked)]
unsafe extern "C" fn notify() {
    naked_asm!("sub rsp, 8", "call {begin}", "add rsp, 8", "mov rdi, rdx", "jmp rax", begin = sym begin_notification)
}

/// Changes the event of a `struct aiocb` in place: it is looked at when the data have come. An event that was changed before stays.
///
/// # Safety
/// Null or valid.
unsafe fn change_block(block: usize) -> Result<(), ()> {
    /// Descriptor, operation, priority, buffer and length come first.
    const EVENT: usize = 32;
    if block == 0 {
        return Ok(());
    }
    let event = (block + EVENT) as *mut [usize; 8];
    // SAFETY: the caller's contract.
    unsafe {
        if (*event)[2] != notify as *const () as usize
            && let Some(changed) = by_thread(event)?
        {
            event.write(changed);
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
lists! {
    lio_listio, c"lio_listio", Some(change_block), fail(EAGAIN);
    lio_listio64, c"lio_listio64", Some(change_block), fail(EAGAIN);
    getaddrinfo_a, c"getaddrinfo_a", None, EAI_MEMORY;
}
