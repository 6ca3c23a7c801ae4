//! New threads and processes: each thread gets its ring before it runs code of the program.

use crate::record::thread_ring;
use crate::record::thread_ring::Stack;
use crate::sys::errno::{EAGAIN, ENOMEM, ENOSYS};
use crate::sys::flags::PlainFlags;
use crate::sys::libc_symbols::{fail, library, next, place_behind_wrappers};
use crate::sys::{process, syscall};
use core::arch::naked_asm;
use core::sync::atomic::{AtomicU32, Ordering};
use mgz_abi::shared_memory::PAGE_SIZE;

/// Function and argument of a new thread, passed in an entry of a fixed pool or, if all are in use,
/// in a page of its own.
struct Start {
    used: AtomicU32,
    function: usize,
    argument: usize,
    segv_blocked: bool,
    trigger_blocked: bool,
    stack: Stack,
}

const POOL: usize = 256;
#[allow(
    clippy::declare_interior_mutable_const,
    reason = "only initialises the pool"
)]
const FREE_START: Start = Start {
    used: AtomicU32::new(0),
    function: 0,
    argument: 0,
    segv_blocked: false,
    trigger_blocked: false,
    stack: Stack::UNKNOWN,
};
static mut STARTS: [Start; POOL] = [FREE_START; POOL];

/// Takes an entry for a thread whose stack is not known. 0 if there is no memory for one.
extern "C" fn prepare(function: usize, argument: usize) -> usize {
    prepare_on(function, argument, Stack::UNKNOWN)
}

/// Takes an entry for a thread. 0 if there is no memory for one.
fn prepare_on(function: usize, argument: usize, stack: Stack) -> usize {
    if process::header().is_some() && !thread_ring::provide() {
        return 0;
    }
    let ring = thread_ring::current();
    let segv_blocked = ring.is_some_and(|r| r.private().segv_blocked.get());
    let trigger_blocked = ring.is_some_and(|r| r.private().trigger_blocked.get());
    let new = Start {
        used: AtomicU32::new(1),
        function,
        argument,
        segv_blocked,
        trigger_blocked,
        stack,
    };
    // SAFETY: `used` guards the entries of the pool; a new page is used by this thread alone.
    unsafe {
        for start in (0..POOL).map(|i| &raw mut STARTS[i]) {
            if (*start)
                .used
                .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
            {
                start.write(new);
                return start as usize;
            }
        }
        let Ok(page) = syscall::new_memory(PAGE_SIZE) else {
            return 0;
        };
        (page as *mut Start).write(new);
        page
    }
}

/// Frees an entry.
extern "C" fn release(start: usize) {
    // SAFETY: made by `prepare`, and no longer used.
    unsafe {
        if start.is_multiple_of(PAGE_SIZE) && !in_pool(start) {
            syscall::munmap(start, PAGE_SIZE);
        } else {
            // (A leak checker would take a remaining value for a reference.)
            (*(start as *mut Start)).argument = 0;
            (*(start as *mut Start)).used.store(0, Ordering::Release);
        }
    }
}

fn in_pool(start: usize) -> bool {
    start.wrapping_sub(&raw const STARTS as usize) < size_of::<[Start; POOL]>()
}

/// A pair that is returned in rax and rdx.
#[repr(C)]
pub struct Call {
    /// Function to call.
    pub function: usize,
    /// Its argument.
    pub argument: usize,
}

/// First step of a new thread.
extern "C" fn begin(start: *mut Start) -> Call {
    // SAFETY: made by `prepare` for this thread alone.
    let (call, blocked, trigger_blocked, stack) = unsafe {
        let call = Call {
            function: (*start).function,
            argument: (*start).argument,
        };
        let blocked = ((*start).segv_blocked, (*start).trigger_blocked);
        (call, blocked.0, blocked.1, (*start).stack)
    };
    release(start as usize);
    come_into_being(blocked, trigger_blocked, stack);
    call
}

/// Sets up a thread or process that a system call has just created, which shares its creator's
/// memory and %gs base.
pub fn begin_raw(parents: thread_ring::Ring) {
    come_into_being(
        parents.private().segv_blocked.get(),
        parents.private().trigger_blocked.get(),
        Stack::UNKNOWN,
    );
}

/// Gives the calling thread, which is new, a ring. Its mask is its creator's.
pub fn come_into_being(segv_blocked: bool, trigger_blocked: bool, stack: Stack) {
    crate::sys::dispatch::forget_dispatch();
    let _flags = PlainFlags::hold();
    let old = syscall::sigprocmask(0, Some(!0));
    let gs = syscall::gs();
    if let Some(ring) = own_ring(gs) {
        // The thread was already set up at the system call that created it.
        ring.private().segv_blocked.set(segv_blocked);
        ring.private().trigger_blocked.set(trigger_blocked);
        // At that point its stack was not known.
        thread_ring::tell_stack(stack, 0);
        if let Ok(old) = old {
            // (The C library starts some threads with all signals blocked.)
            let _ = syscall::sigprocmask(2, Some(old & !(1 << 10 | crate::record::trigger::bit())));
        }
        return;
    }
    let borrows = process::borrows_memory();
    if borrows && has_signal_stack() {
        // As after `vfork`, the creator waits for it.
        if let Some(ring) = thread_ring::ring_at(gs).filter(|r| r.address == gs) {
            crate::record::publish::give_up(ring);
        }
    } else {
        thread_ring::forget_parents(gs);
        // SAFETY: the %gs base is inherited from the creator; without a ring of its own this thread
        // must not use it.
        unsafe { syscall::set_gs(0) };
        if borrows {
            thread_ring::set_up_borrower()
        } else {
            thread_ring::set_up()
        }
        if let Some(ring) = thread_ring::current() {
            ring.private().segv_blocked.set(segv_blocked);
            ring.private().trigger_blocked.set(trigger_blocked);
            thread_ring::tell_stack(stack, 0);
        }
    }
    if let Ok(old) = old {
        let _ = syscall::sigprocmask(2, Some(old & !(1 << 10 | crate::record::trigger::bit())));
    }
}

/// The calling thread's ring, if it has one of its own.
fn own_ring(gs: usize) -> Option<thread_ring::Ring> {
    // (In a new child the parent's control page is not mapped.)
    thread_ring::ring_at(gs).filter(|ring| {
        !process::is_forked()
            && ring.control().tid.get() == syscall::gettid()
            // (A filter may refuse `getpid`.)
            && (crate::sys::seccomp_state::is_sealed()
                || ring.control().pid.get() == syscall::getpid())
    })
}

/// True if the calling thread has an alternate stack. A new thread that shares memory has its
/// creator's stack only if the creator waits for it (`CLONE_VFORK`).
fn has_signal_stack() -> bool {
    let mut stack = [0usize; 3];
    // SAFETY: fills the three words of a stack_t.
    unsafe {
        syscall::call(
            syscall::nr::SIGALTSTACK,
            0,
            stack.as_mut_ptr() as usize,
            0,
            0,
            0,
            0,
        )
    };
    stack[1] & thread_ring::SS_DISABLE == 0
}

/// Start routine of wrapped threads: sets the ring up, then becomes the program's start routine, so
/// that no frame of the runtime stays on the stack (cancellation unwinds through it).
#[unsafe(naked)]
unsafe extern "C" fn enter() {
    naked_asm!("sub rsp, 8", "call {begin}", "add rsp, 8", "mov rdi, rdx", "jmp rax", begin = sym begin)
}

/// The stack that a thread with these attributes gets; 0: without attributes. The C library
/// computes it only from the attributes and its own defaults. (For threads that it does not create,
/// nothing is known.)
///
/// # Safety
/// `attributes` must be 0 or the address of thread attributes.
unsafe fn asked_for(attributes: usize) -> Stack {
    type Get = unsafe extern "C" fn(usize, *mut usize) -> i32;
    type GetBoth = unsafe extern "C" fn(usize, *mut usize, *mut usize) -> i32;
    if crate::sys::libc_symbols::stand_in(const { place_behind_wrappers(c"pthread_create") })
        .is_some()
    {
        return Stack::UNKNOWN;
    }
    let Some(get_size) = library!(c"pthread_attr_getstacksize", Get) else {
        return Stack::UNKNOWN;
    };
    // Larger than the attributes of any C library.
    let mut own = [0u64; 32];
    let mut from = attributes;
    if attributes == 0 {
        from = own.as_mut_ptr() as usize;
        let Some(init) = library!(c"pthread_attr_init", unsafe extern "C" fn(usize) -> i32) else {
            return Stack::UNKNOWN;
        };
        // SAFETY: `from` has room for attributes.
        if unsafe { init(from) } != 0 {
            return Stack::UNKNOWN;
        }
    } else if let Some(get) = library!(c"pthread_attr_getstack", GetBoth) {
        let (mut low, mut bytes) = (0, 0);
        // SAFETY: the caller's attributes, and two words for the results.
        let got = unsafe { get(from, &raw mut low, &raw mut bytes) };
        // For attributes without a stack, glibc shows one that ends at address 0.
        if got == 0 && low != 0 && low.wrapping_add(bytes) != 0 {
            return Stack { low, bytes };
        }
    }
    let mut bytes = 0;
    // SAFETY: the attributes, and a word for the result.
    if unsafe { get_size(from, &raw mut bytes) } != 0 {
        return Stack::UNKNOWN;
    }
    Stack { low: 0, bytes }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: usize,
    attributes: usize,
    function: usize,
    argument: usize,
) -> i32 {
    crate::sys::begin::early();
    match next!(c"pthread_create", Create) {
        // SAFETY: the caller's arguments.
        Some(real) => unsafe { create_by(real, thread, attributes, function, argument) },
        None => EAGAIN as i32,
    }
}

type Create = unsafe extern "C" fn(usize, usize, usize, usize) -> i32;

/// The C library's own `pthread_create`, even if a library replaces it.
///
/// # Safety
/// As the C function.
pub unsafe fn create_thread(
    thread: usize,
    attributes: usize,
    function: usize,
    argument: usize,
) -> i32 {
    match library!(c"pthread_create", Create) {
        // SAFETY: the caller's arguments.
        Some(real) => unsafe { create_by(real, thread, attributes, function, argument) },
        None => EAGAIN as i32,
    }
}

/// `pthread_create` by one of its definitions.
///
/// # Safety
/// As the C function.
unsafe fn create_by(
    real: Create,
    thread: usize,
    attributes: usize,
    function: usize,
    argument: usize,
) -> i32 {
    if process::header().is_none() {
        // SAFETY: the caller's arguments.
        return unsafe { real(thread, attributes, function, argument) };
    }
    // SAFETY: the caller's attributes.
    let start = prepare_on(function, argument, unsafe { asked_for(attributes) });
    if start == 0 {
        return EAGAIN as i32;
    }
    // SAFETY: the caller's arguments, with our start routine in front of its own.
    let r = unsafe { real(thread, attributes, enter as *const () as usize, start) };
    if r != 0 {
        release(start);
    }
    r
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thrd_create(thread: usize, function: usize, argument: usize) -> i32 {
    const THRD_ERROR: i32 = 2;
    const THRD_NOMEM: i32 = 3;
    crate::sys::begin::early();
    let Some(real) = next!(
        c"thrd_create",
        unsafe extern "C" fn(usize, usize, usize) -> i32
    ) else {
        return THRD_ERROR;
    };
    if process::header().is_none() {
        // SAFETY: the caller's arguments.
        return unsafe { real(thread, function, argument) };
    }
    // SAFETY: there are no attributes.
    let start = prepare_on(function, argument, unsafe { asked_for(0) });
    if start == 0 {
        return THRD_NOMEM;
    }
    // SAFETY: as above; both kinds of start routine take one pointer.
    let r = unsafe { real(thread, enter as *const () as usize, start) };
    if r != 0 {
        release(start);
    }
    r
}

/// `clone` with shared memory starts a thread or a concurrent process, which no other wrapper sees.
///
/// # Safety
/// As the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clone() {
    // (fn rdi, stack rsi, flags edx, arg rcx, parent_tid r8, tls r9, [child_tid]): only fn and arg
    // are replaced, the rest passes through.
    naked_asm!(
        "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "sub rsp, 8",
        "call {real}",
        "add rsp, 8", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
        "mov r11, rax",
        "xor eax, eax",
        "test edx, 0x100", // CLONE_VM
        "je 1f",
        "test rdi, rdi", // the C library refuses these
        "je 1f",
        "test rsi, rsi",
        "je 1f",
        "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "push r11",
        "mov rsi, rcx",
        "call {prepare}",
        "pop r11", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
        "test rax, rax",
        "je 3f",
        // The child runs on its own stack, so it does not return here.
        "mov r10, [rsp + 8]",
        "push rax", "sub rsp, 8", "push r10",
        "mov rcx, rax",
        "lea rdi, [rip + {enter}]",
        "xor eax, eax",
        "call r11",
        "add rsp, 16", "pop rdi",
        "test eax, eax",
        "jns 2f",
        "push rax",
        "call {release}",
        "pop rax",
        "2:",
        "ret",
        "1:",
        "jmp r11",
        "3:",
        "sub rsp, 8",
        "call {full}",
        "add rsp, 8",
        "ret",
        prepare = sym prepare, release = sym release, enter = sym enter_clone, real = sym real_clone, full = sym no_memory)
}

extern "C" fn no_memory() -> i32 {
    fail(ENOMEM)
}

extern "C" fn real_clone() -> usize {
    crate::sys::begin::early();
    match next!(c"clone", unsafe extern "C" fn() -> i32) {
        Some(real) => real as usize,
        None => no_clone as *const () as usize,
    }
}

extern "C" fn no_clone() -> i32 {
    fail(ENOSYS)
}

/// As `enter`; the function is entered with the stack as the C library's `clone` leaves it.
#[unsafe(naked)]
unsafe extern "C" fn enter_clone() {
    naked_asm!("push rbp", "mov rbp, rsp", "and rsp, -16", "call {begin}", "mov rsp, rbp", "pop rbp", "mov rdi, rdx", "jmp rax", begin = sym begin)
}

macro_rules! forks {
    ($(#[$doc:meta])* $name:ident, $c:literal, ($($argument:ident),*), $failed:expr) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: usize),*) -> i32 {
            crate::sys::begin::early();
            let Some(real) = next!($c, unsafe extern "C" fn($(forks!(@type $argument)),*) -> i32) else { return $failed };
            // SAFETY: the C library's function with the caller's arguments.
            let child = unsafe { real($($argument),*) };
            if child == 0 {
                in_child();
            }
            child
        }
    };
    (@type $argument:ident) => { usize };
}

forks!(
    /// The child gets a ring and a trigger of its own.
    fork, c"fork", (), fail(ENOSYS)
);
forks!(
    /// As `fork`, without the handlers of `pthread_atfork`.
    _Fork, c"_Fork", (), fail(ENOSYS)
);
forks!(
    /// Only the child returns, with 0.
    daemon, c"daemon", (stay, open), fail(ENOSYS)
);
forks!(
    /// As `fork`, with a terminal for the child.
    forkpty, c"forkpty", (master, name, settings, size), fail(ENOSYS)
);

/// Called in a child of `fork`, perhaps twice: at the system call, and by the wrapper.
pub fn in_child() {
    static LAST: AtomicU32 = AtomicU32::new(0);
    if LAST.swap(syscall::getpid(), Ordering::Relaxed) == syscall::getpid() {
        return;
    }
    #[cfg(mgz_cdylib)]
    crate::wrap::heap::forked();
    crate::record::stack_copy::forked();
    if process::header().is_none() {
        return;
    }
    if crate::record::trigger::signal() == 0 {
        // A ring costs a millisecond, and many children only start a program.
        return thread_ring::hold_place();
    }
    thread_ring::notice_fork();
    if let Some(ring) = thread_ring::current() {
        crate::record::trigger::renew(ring);
    }
}

/// In the child, records go to the spare ring until `exec` or `_exit`: it shares its parent's
/// memory.
///
/// # Safety
/// As the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfork() {
    naked_asm!(
        // A fork is noticed now, since the child of a vfork cannot take a ring over.
        "sub rsp, 8",
        "call {notice}",
        "add rsp, 8",
        // The function of a library that replaces `vfork`, if any.
        "test rax, rax",
        "jne 3f",
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
        "3:",
        "jmp rax",
        notice = sym notice_fork, child = sym vfork_child, failed = sym vfork_failed)
}

/// # Safety
/// As the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __vfork() {
    naked_asm!("jmp {vfork}", vfork = sym vfork)
}

extern "C" fn notice_fork() -> usize {
    crate::sys::begin::early();
    thread_ring::notice_fork();
    crate::wrap::stand_in(const { place_behind_wrappers(c"vfork") }).unwrap_or(0)
}

extern "C" fn vfork_failed(errno: isize) -> i32 {
    fail(errno)
}

extern "C" fn vfork_child() {
    let gs = syscall::gs();
    if let Some(ring) = thread_ring::ring_at(gs)
        && gs == ring.address
    {
        crate::record::publish::give_up(ring);
    }
}
