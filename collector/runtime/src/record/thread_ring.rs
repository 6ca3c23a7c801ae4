//! Rings: the memory for a thread's records, and how a thread gets one.
//!
//! Each thread has one *reservation* in low memory:
//!
//! ```text
//! environment | kept handlers | hook stack | signal stack | spare control page | spare ring | guard | control page | full: chunk, guard, chunk, guard, …
//!                                                                                                                  | ring: lap (mirrored), guard, chunks
//! ```
//!
//! `%gs` points at the control page. The *spare* control page and ring are private memory that is
//! never read: `%gs` points there while records must not count (between `vfork` and `exec`, after
//! the recorder is gone), because a probe always writes somewhere.
//!
//! The control page and everything behind it belong to the recorder's file and are not inherited by
//! forked children: their first probe faults, and the handler gives them a slot of their own at the
//! same addresses.

pub use crate::record::ring_memory::{
    free_place, in_guard, lap_end, next_lap, place_of, provide, set_up_scrap, spare_end,
};

use crate::record::ring_memory::{
    SCRAP, claim, lap_bytes, private_page, provision, reserve_private, reserve_slot,
};
use crate::record::transfer_hooks::Hooks;
use crate::record::{counters, transfer_hooks};
use crate::sys::errno::{EPERM, ESRCH};
use crate::sys::flags::PlainFlags;
use crate::sys::{process, syscall};
use core::cell::Cell;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use mgz_abi::shared_memory::*;

/// Bytes of the stack on which the guard page's handler runs.
pub const SIGNAL_STACK: usize = 64 * 1024;
/// Bytes of the stack on which hooks run. The lowest bytes hold the far tables of the hooks.
pub const HOOK_STACK: usize = 16 * 1024 + crate::record::target_cache::BYTES;
/// Bytes for the state that is kept while handlers of the program run
/// ([`signals::kept`](crate::record::signals)).
pub const KEPT_BYTES: usize = 3 * PAGE_SIZE;
/// Bytes for the environment of a program that is executed.
pub const ENVIRONMENT_BYTES: usize = 4 * PAGE_SIZE;
/// Bytes of the spare ring.
pub const SPARE_RING: usize = 64 * 1024;
/// From a control page back to its spare control page.
pub const SPARE_OFFSET: usize = SPARE_RING + 2 * PAGE_SIZE;
/// [`Control::state`] of a page that is not in the recorder's file: the recorder is gone or has no
/// slot left. Its thread's probes write into the spare ring.
pub(crate) const PRIVATE: u32 = 3;
/// [`Control::index`] of such a page that [`set_up_borrower`] has made.
const BORROWERS: u32 = u32::MAX;
/// Least length of a lap, slots.
pub(crate) const LAP_SLOTS: u64 = 1 << 18;

/// State of a thread, among it the signal settings in the program's view; is in the second half
/// of the spare control page.
#[repr(C)]
pub struct Private {
    /// True if the program has SIGSEGV blocked. The kernel never blocks it.
    pub segv_blocked: Cell<bool>,
    /// The handler of the program that blocks SIGSEGV while it runs, see
    /// [`crate::record::signals`].
    pub shield: Cell<crate::record::signals::Shield>,
    /// The signal mask of the call in which the thread waits for signals, if it is in one.
    pub waiting: Cell<Option<u64>>,
    /// True if the program has the trigger's signal blocked. The kernel never blocks that signal
    /// either.
    pub trigger_blocked: Cell<bool>,
    /// The thread's window in `burst`.
    pub window: Cell<crate::record::window::ThreadWindow>,
    /// The thread's trigger of windows.
    pub trigger: Cell<crate::record::trigger::ThreadTrigger>,
    /// Measurements of the code's speed.
    pub pace: crate::record::speed_probe::Pace,
    /// The thread's watches for reuses.
    pub reuse: crate::record::reuse_watch::ReuseWatches,
    /// `burst`: places of the queue that are mapped, by bit.
    pub mapped: Cell<u32>,
    /// The program's alternate stack: address, flags, size.
    pub stack: Cell<[usize; 3]>,
    /// State to undo if the execution of a new program fails: presence of a trigger, and address
    /// and length of a piece of memory.
    pub executing: Cell<(bool, usize, usize)>,
    /// Preparations for the seccomp filter that the thread is about to install.
    pub restricting: Cell<Option<crate::sys::seccomp_state::Prepared>>,
    /// Saved states of the program's running handlers.
    pub kept: Cell<crate::record::signals::KeptPlaces>,
    /// Known bounds of the thread's own stack.
    pub own_stack: Cell<Stack>,
    /// The thread's state in CPython ([`python_frames`](crate::record::python_frames)).
    pub python: Cell<u64>,
    /// The thread's trigger, for other threads: kind, and descriptor or number; 0: none.
    pub handle: AtomicU64,
    /// Rest of the period of a paused timer, and its interval, nanoseconds.
    pub left: [AtomicU64; 2],
    /// `ring`: true if the distance to the end of the next window was drawn.
    pub drawn: Cell<bool>,
    /// Next entry to replace in the tables of hooks.
    pub noted: Cell<u32>,
    /// Address of the reservation's area of counters; 0: none. It stays when a new thread takes the
    /// reservation over.
    pub counters: Cell<usize>,
}

impl Private {
    /// Resets the state for a new thread. (Mappings stay.)
    fn reset(&self) {
        self.segv_blocked.set(false);
        self.shield.set(Default::default());
        self.waiting.set(None);
        self.trigger_blocked.set(false);
        self.window.set(Default::default());
        self.trigger.set(Default::default());
        self.handle.store(0, Ordering::Relaxed);
        self.pace.reset();
        self.reuse.reset();
        self.stack.set([0, SS_DISABLE, 0]);
        self.kept.set(Default::default());
        self.executing.set(Default::default());
        self.restricting.set(None);
        self.own_stack.set(Stack::UNKNOWN);
        self.python.set(0);
        self.noted.set(0);
    }
}

/// Control pages of this process's reservations; 0 ends the list.
pub(crate) static RESERVATIONS: [AtomicUsize; MAX_RESERVATIONS] =
    [const { AtomicUsize::new(0) }; MAX_RESERVATIONS];
/// Greater than the number of thread slots, since threads without a slot need a reservation as
/// well.
pub(crate) const MAX_RESERVATIONS: usize = 1 << 16;
/// Number of reservations that a new thread checks for one to take over. Successive threads check
/// successive ones. Source: Chosen.
const MAX_RESERVATION_LOOKS: usize = 64;
static NEXT_LOOK: AtomicUsize = AtomicUsize::new(0);
/// Reservations before this one were made for an earlier recorder, whose rings had another size.
static FIRST: AtomicUsize = AtomicUsize::new(0);
static LOCK: AtomicU32 = AtomicU32::new(0);

/// Longest sleep before a lock is checked again, nanoseconds.
const LOCK_PATIENCE: u64 = 100_000_000;

/// Runs `work` under a lock between the threads of this process, with all signals blocked.
pub fn exclusively<R>(lock: &AtomicU32, work: impl FnOnce() -> R) -> R {
    // A thread of the parent may have held the lock when this process was forked.
    notice_fork();
    let _flags = PlainFlags::hold();
    let old = syscall::sigprocmask(0, Some(!0));
    // 0: free, 1: taken, 2: taken and another thread may be waiting.
    if lock
        .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
        .is_err()
    {
        while lock.swap(2, Ordering::Acquire) != 0 {
            syscall::futex_wait(lock.as_ptr(), 2, LOCK_PATIENCE);
        }
    }
    let result = work();
    if lock.swap(0, Ordering::Release) == 2 {
        syscall::futex_wake_one(lock.as_ptr());
    }
    if let Ok(old) = old {
        let _ = syscall::sigprocmask(2, Some(old));
    }
    result
}

/// A thread's control page, by its address in this process.
///
/// Shared references to three pieces of memory are made from the address. Everything mutable in
/// them is a cell or atomic, so references of a function may coexist with those of a signal handler
/// that interrupts it and of functions that it calls. The right to change cells depends on the
/// owner of the reservation:
///
/// * reservation of a living thread: that thread alone, with signals blocked, in a handler, or if
///   no handler of the runtime uses the field; its probes change `cursor` and `spill` between two
///   instructions of the program;
/// * reservation of a thread that has ended, or of none: the thread that holds [`LOCK`], or that
///   has changed [`Control::state`] from STATE_FREE;
/// * `hooks` and the tables of known targets: any thread that unloads a module ([`forget_code`]),
///   by volatile writes.
///
/// Others may read cells of a living thread (`pid`, `tid`, `index`), which then do not change.
#[derive(Clone, Copy)]
pub struct Ring {
    /// Address of the control page.
    pub address: usize,
}

impl Ring {
    /// The control page's fields.
    pub fn control(self) -> &'static Control {
        // SAFETY: a Ring is only made from the address of a control page in one of this process's
        // reservations, which are never unmapped; zero is a valid value of all fields.
        unsafe { &*(self.address as *const Control) }
    }

    /// The spare control page's fields (cursor, base and guard are used).
    pub fn spare(self) -> &'static Control {
        // SAFETY: as above; every reservation has one.
        unsafe { &*((self.address - SPARE_OFFSET) as *const Control) }
    }

    /// The program's view of this thread's signal settings.
    pub fn private(self) -> &'static Private {
        // SAFETY: the second half of the spare page is reserved for it; zero is a valid value.
        unsafe { &*((self.address - SPARE_OFFSET + PAGE_SIZE / 2) as *const Private) }
    }

    /// Bottom of the stack of hooks; the stack of handlers is above it.
    pub fn hook_stack(self) -> usize {
        self.signal_stack() - HOOK_STACK
    }

    /// Start of [`KEPT_BYTES`], below the stack of hooks.
    pub fn kept_handlers(self) -> usize {
        self.hook_stack() - KEPT_BYTES
    }

    /// Start of [`ENVIRONMENT_BYTES`], below [`KEPT_BYTES`].
    pub fn environment_place(self) -> usize {
        self.kept_handlers() - ENVIRONMENT_BYTES
    }

    /// Bottom of the handler's stack.
    pub fn signal_stack(self) -> usize {
        self.address - SPARE_OFFSET - SIGNAL_STACK
    }

    /// The handler's stack as the kernel's `stack_t`: address, flags, size.
    pub fn handler_stack(self) -> [usize; 3] {
        [self.signal_stack(), 0, SIGNAL_STACK]
    }

    /// Address of chunk place `place`.
    pub fn chunk(self, place: usize, header: &Header) -> usize {
        let chunk = header.chunk_bytes as usize;
        match header.mode {
            MODE_RING => self.address + PAGE_SIZE + lap_bytes(header) + PAGE_SIZE + place * chunk,
            _ => self.address + PAGE_SIZE + place * (chunk + PAGE_SIZE),
        }
    }
}

/// The ring whose control page or spare control page is at `gs`.
pub fn ring_at(gs: usize) -> Option<Ring> {
    if gs == 0 {
        return None;
    }
    for entry in &RESERVATIONS {
        match entry.load(Ordering::Acquire) {
            0 => return None,
            address if gs == address || gs + SPARE_OFFSET == address => {
                return Some(Ring { address });
            }
            _ => {}
        }
    }
    None
}

/// The calling thread's ring. A child that has just been forked gets its own here.
pub fn current() -> Option<Ring> {
    let gs = syscall::gs();
    let ring = ring_at(gs)?;
    // A vfork child shares its parent's memory, and uses the spare page.
    if gs == ring.address {
        adopt_after_fork(ring);
        if crate::record::attachment::is_attached() && ring.control().tid.get() != syscall::gettid()
        {
            // A thread that no wrapper has seen has the `%gs` base of its creator.
            return None;
        }
    }
    Some(ring)
}

/// True if the caller is the child of a `vfork`, which shares its creator's memory: its signal
/// handlers and mask are its own.
pub fn borrows_memory() -> bool {
    let gs = syscall::gs();
    ring_at(gs).is_some_and(|ring| gs != ring.address) && process::borrows_memory()
}

/// Notices that this process is a new child: the calling thread is its only one, and no other
/// thread holds a lock.
#[inline]
pub fn notice_fork() {
    if process::is_forked() {
        notice_child();
    }
}

#[cold]
#[inline(never)]
fn notice_child() {
    let gs = syscall::gs();
    match ring_at(gs) {
        Some(ring) if gs == ring.address => {
            adopt_after_fork(ring);
        }
        Some(_) => forget_parents(gs),
        None => forget_others(None),
    }
}

/// As [`notice_fork`], but the ring is taken over when it is first needed. Until then its addresses
/// are reserved against the child's mappings.
pub fn hold_place() {
    let gs = syscall::gs();
    match (ring_at(gs), process::header()) {
        (Some(ring), Some(header)) if gs == ring.address && process::is_forked() => {
            crate::record::ring_memory::hold(header, ring)
        }
        _ => notice_fork(),
    }
}

/// If this process is a new child, gives the calling (only) thread a slot of its own in place of
/// the parent's, which is not mapped here. Returns true if it is one.
#[inline]
pub fn adopt_after_fork(ring: Ring) -> bool {
    process::is_forked() && adopt_in_child(ring)
}

// (A separate function, so that frequent callers need less stack, which may be small.)
#[cold]
#[inline(never)]
fn adopt_in_child(ring: Ring) -> bool {
    // A handler would use the ring while its memory is missing.
    let _flags = PlainFlags::hold();
    let old = syscall::sigprocmask(0, Some(!0));
    let new = process::is_forked();
    if new {
        forget_others(Some(ring));
        if let Some(header) = process::header() {
            if !claim(header, ring) {
                process::count(count::THREADS_WITHOUT_RING, 1);
                use_private_page(ring);
            }
            begin(header, ring);
            // The thread continues on its parent's stack.
            tell_stack(ring.private().own_stack.get(), 0);
        }
    }
    if let Ok(old) = old {
        let _ = syscall::sigprocmask(2, Some(old));
    }
    new
}

/// To be called in a new thread with the %gs base of its creator. If this process is the child of a
/// thread without a ring, the fork was not noticed yet: forgets the reservations of the parent's
/// other threads, which do not exist here.
pub fn forget_parents(gs: usize) {
    let Some(ring) = ring_at(gs).filter(|r| r.address != gs && process::is_forked()) else {
        return;
    };
    let _flags = PlainFlags::hold();
    let old = syscall::sigprocmask(0, Some(!0));
    if process::is_forked() {
        forget_others(Some(ring));
        private_page(ring);
        // The thread that forked is the only one in the child.
        let pid = syscall::gettid();
        ring.control().pid.set(pid);
        ring.control().tid.set(pid);
    }
    if let Ok(old) = old {
        let _ = syscall::sigprocmask(2, Some(old));
    }
}

/// Frees the reservations and locks of the parent's other threads, which do not exist in this
/// child. `ring` is that of the calling thread.
fn forget_others(ring: Option<Ring>) {
    LOCK.store(0, Ordering::Relaxed);
    crate::record::signals::unlock_actions();
    crate::record::modules::unlock_modules();
    crate::record::phases::unlock_phases();
    // The list ends with its first 0: pages behind it were never touched, and should stay so.
    for entry in RESERVATIONS
        .iter()
        .take_while(|e| e.load(Ordering::Relaxed) != 0)
    {
        entry.store(0, Ordering::Relaxed);
    }
    if let Some(ring) = ring {
        RESERVATIONS[0].store(ring.address, Ordering::Relaxed);
    }
    FIRST.store(0, Ordering::Relaxed);
    NEXT_LOOK.store(0, Ordering::Relaxed);
    process::take_ownership();
    crate::record::phases::forked();
}

/// Gives the calling thread a ring. Without one (no low memory, recorder gone) its records are
/// dropped and not counted as kept.
pub fn set_up() {
    set_up_with(|header| {
        reuse(header, MAX_RESERVATION_LOOKS)
            .or_else(|| list(|| reserve_slot(header).or_else(reserve_private)))
            .or_else(|| reuse(header, MAX_RESERVATIONS))
    });
}

/// As `set_up`, for the first thread of a process that runs beside its creator and shares its
/// memory: the recorder knows only its creator, so its records are dropped.
pub fn set_up_borrower() {
    set_up_with(|_| {
        let ring = reuse_borrowers().or_else(|| list(reserve_private))?;
        ring.control().index.set(BORROWERS);
        Some(ring)
    });
}

fn set_up_with(take: impl FnOnce(&Header) -> Option<Ring>) {
    let Some(header) = process::header() else {
        return;
    };
    let ring = exclusively(&LOCK, || {
        let ring = take(header).or_else(|| list(provision))?;
        // Under the lock, so that no thread sees a ring of this process that still names its dead
        // owner.
        begin(header, ring);
        Some(ring)
    });
    let Some(ring) = ring else {
        process::count(count::THREADS_WITHOUT_RING, 1);
        return;
    };
    let gs = if ring.control().state.load(Ordering::Relaxed) == PRIVATE {
        process::count(count::THREADS_WITHOUT_RING, 1);
        ring.address - SPARE_OFFSET
    } else {
        ring.address
    };
    if header.mode == MODE_BURST {
        // Ends the trigger of the thread that had this reservation before.
        crate::record::trigger::disarm(ring);
    }
    ring.private().reset();
    install_signal_stack(ring);
    // SAFETY: the control page is set up; modules that use %gs themselves are never instrumented.
    unsafe { syscall::set_gs(gs) };
    crate::record::trigger::arm(ring);
}

/// `ss_flags`: no alternate stack.
pub const SS_DISABLE: usize = 2;
/// `ss_flags`: no alternate stack while a handler runs.
pub const SS_AUTODISARM: usize = 0x8000_0000;

fn install_signal_stack(ring: Ring) {
    let stack = ring.handler_stack();
    // SAFETY: struct stack_t is address, flags, size; the stack is part of the reservation, and
    // nothing runs on it yet. (Only a handler, with all signals blocked, can be running on the
    // thread's present one.)
    unsafe {
        let set = syscall::call(
            syscall::nr::SIGALTSTACK,
            stack.as_ptr() as usize,
            0,
            0,
            0,
            0,
            0,
        );
        if set == -EPERM {
            syscall::set_signal_stack(&stack);
        }
    }
}

/// Takes over the reservation of a thread of this process that has ended, if there is one among the
/// next `looks`.
fn reuse(header: &Header, looks: usize) -> Option<Ring> {
    let pid = syscall::getpid();
    for _ in 0..looks {
        let first = FIRST.load(Ordering::Relaxed);
        let mut at = first + NEXT_LOOK.fetch_add(1, Ordering::Relaxed) % (MAX_RESERVATIONS - first);
        if RESERVATIONS[at].load(Ordering::Acquire) == 0 {
            // Past the last one, start again at the first.
            at = first;
            NEXT_LOOK.store(1, Ordering::Relaxed);
        }
        let address = RESERVATIONS[at].load(Ordering::Acquire);
        if address == 0 {
            return None;
        }
        let ring = Ring { address };
        let control = ring.control();
        match control.state.load(Ordering::Acquire) {
            STATE_LIVE
                if control.pid.get() == pid
                    && syscall::tgkill(pid, control.tid.get(), 0) == -ESRCH =>
            {
                let dead = control.tid.get();
                if control
                    .state
                    .compare_exchange(
                        STATE_LIVE,
                        STATE_CLOSING,
                        Ordering::AcqRel,
                        Ordering::Relaxed,
                    )
                    .is_ok()
                {
                    // SAFETY: the page is mapped in this process; other processes may write to it.
                    let now = unsafe {
                        [
                            control.pid.as_ptr().read_volatile(),
                            control.tid.as_ptr().read_volatile(),
                        ]
                    };
                    if now != [pid, dead] {
                        // The recorder was faster, and the slot already belongs to another thread.
                        control.state.store(STATE_LIVE, Ordering::Release);
                        continue;
                    }
                    close(header, ring, CAUSE_END_OF_THREAD);
                    // The id is set before the state, or the recorder would take the new owner for
                    // the dead one.
                    control.tid.set(syscall::gettid());
                    control.state.store(STATE_LIVE, Ordering::Release);
                    return Some(ring);
                }
            }
            PRIVATE
                if control.index.get() != BORROWERS
                    && syscall::tgkill(pid, control.tid.get(), 0) == -ESRCH =>
            {
                return Some(ring);
            }
            STATE_FREE
                if control
                    .state
                    .compare_exchange(STATE_FREE, STATE_LIVE, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok() =>
            {
                return Some(ring);
            }
            _ => {}
        }
    }
    None
}

/// As [`reuse`], for [`set_up_borrower`].
fn reuse_borrowers() -> Option<Ring> {
    let made = RESERVATIONS
        .iter()
        .map(|e| e.load(Ordering::Acquire))
        .take_while(|&address| address != 0);
    made.skip(FIRST.load(Ordering::Relaxed))
        .map(|address| Ring { address })
        .find(|ring| {
            let control = ring.control();
            control.state.load(Ordering::Acquire) == PRIVATE
                && control.index.get() == BORROWERS
                && syscall::tgkill(control.pid.get(), control.tid.get(), 0) == -ESRCH
        })
}

/// Publishes the slots that a dead thread left in its ring.
fn close(header: &Header, ring: Ring, cause: u32) {
    let control = ring.control();
    if control.cursor.get() > control.base.get() && control.cursor.get() <= control.guard.get() {
        crate::record::publish::publish_rest(header, ring, cause);
    }
}

/// Forgets the reservations made for the previous recorder, because another one comes. Threads that
/// have one need a new one.
pub fn forget_reservations() {
    let made = RESERVATIONS
        .iter()
        .position(|e| e.load(Ordering::Relaxed) == 0);
    for entry in &RESERVATIONS[FIRST.load(Ordering::Relaxed)..made.unwrap_or(MAX_RESERVATIONS)] {
        let ring = Ring {
            address: entry.load(Ordering::Relaxed),
        };
        // Triggers of dead threads are ended here; living threads end their own.
        if syscall::tgkill(syscall::getpid(), ring.control().tid.get(), 0) == -ESRCH {
            crate::record::trigger::disarm(ring);
        }
    }
    // (At least one entry stays, so that the list is not empty.)
    FIRST.store(
        made.unwrap_or(MAX_RESERVATIONS).min(MAX_RESERVATIONS - 1),
        Ordering::Relaxed,
    );
    NEXT_LOOK.store(0, Ordering::Relaxed);
}

/// Clears the known targets of all threads of this process, because a module was unloaded.
pub fn forget_code() {
    for entry in &RESERVATIONS {
        match entry.load(Ordering::Acquire) {
            0 => return,
            address => {
                let ring = Ring { address };
                // A child whose fork was not noticed yet has none of its parent's pages.
                if !process::is_forked() && ring.control().state.load(Ordering::Relaxed) != PRIVATE
                {
                    transfer_hooks::forget_targets(ring);
                }
            }
        }
    }
}

/// Calls `work` with every ring of this process, including those of threads that have ended.
pub fn each(mut work: impl FnMut(Ring)) {
    RESERVATIONS[FIRST.load(Ordering::Relaxed)..]
        .iter()
        .map(|entry| entry.load(Ordering::Acquire))
        .take_while(|&address| address != 0)
        .for_each(|address| work(Ring { address }));
}

/// Makes a reservation and adds it to the list.
fn list(make: impl FnOnce() -> Option<Ring>) -> Option<Ring> {
    let place = RESERVATIONS
        .iter()
        .find(|e| e.load(Ordering::Relaxed) == 0)?;
    let ring = make()?;
    place.store(ring.address, Ordering::Release);
    Some(ring)
}

/// Puts a private page in place of a thread slot: a thread without a slot still needs memory to
/// write to. This page has no ring with a guard page behind it, so only the spare ring may be
/// written.
fn use_private_page(ring: Ring) {
    private_page(ring);
    begin_spare(ring);
    // SAFETY: the spare page is set up.
    unsafe { syscall::set_gs(core::ptr::from_ref(ring.spare()) as usize) };
}

/// Addresses of the functions that are called around the system calls of a program that has no
/// loader.
static SYSTEM_HOOKS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Sets the functions that are called before and after system calls of a program without a loader.
/// To be called before the first ring is made.
pub fn set_system_hooks(hooks: [u64; 2]) {
    for (place, hook) in SYSTEM_HOOKS.iter().zip(hooks) {
        place.store(hook, Ordering::Relaxed);
    }
}

/// Content of [`Control::system_hooks`].
fn system_hooks() -> [u64; 2] {
    SYSTEM_HOOKS
        .each_ref()
        .map(|hook| hook.load(Ordering::Relaxed))
}

/// Resets the cursor of the spare ring to its start.
pub fn begin_spare(ring: Ring) {
    let spare = ring.spare();
    transfer_hooks::set(spare, Hooks::Closed);
    spare.hook_top.set(ring.signal_stack() as u64);
    spare.in_hook.set(0);
    spare.system_hooks.set(system_hooks());
    spare.counters.set(counters::scrap());
    // Probes treat addresses of slots as 32-bit numbers.
    let low = ring.address < 1 << 32;
    let start = if low {
        ring.address - SPARE_OFFSET + PAGE_SIZE
    } else {
        SCRAP.load(Ordering::Relaxed)
    } as u64;
    spare.self_addr.set((ring.address - SPARE_OFFSET) as u64);
    spare.base.set(start);
    spare.cursor.set(start);
    spare.guard.set(start + SPARE_RING as u64);
}

/// Memory of a thread's stack, as far as known from its creation.
#[derive(Clone, Copy)]
pub struct Stack {
    /// Lowest address, if the program provided the memory; else 0.
    pub low: usize,
    /// Length without the guard, bytes; 0 if unknown.
    pub bytes: usize,
}

impl Stack {
    /// An unknown stack.
    pub const UNKNOWN: Stack = Stack { low: 0, bytes: 0 };
}

/// Reports the calling thread's stack to the recorder. `at`: an address in it; 0: use this
/// function's frame. Threads whose records are dropped are not reported.
pub fn tell_stack(stack: Stack, at: usize) {
    let (Some(header), Some(ring)) = (process::header(), current()) else {
        return;
    };
    if ring.control().state.load(Ordering::Relaxed) == PRIVATE {
        return;
    }
    ring.private().own_stack.set(stack);
    let here = 0u8;
    let at = if at == 0 {
        &raw const here as usize
    } else {
        at
    };
    let number = header.stack_count.fetch_add(1, Ordering::Relaxed);
    let row = &header.stacks[number as usize % STACK_ROWS];
    row.ready.store(0, Ordering::SeqCst);
    row.pid.store(ring.control().pid.get(), Ordering::Relaxed);
    row.tid.store(ring.control().tid.get(), Ordering::Relaxed);
    row.at.store(at as u64, Ordering::Relaxed);
    row.thread_area
        .store(syscall::fs() as u64, Ordering::Relaxed);
    row.low.store(stack.low as u64, Ordering::Relaxed);
    row.bytes.store(stack.bytes as u64, Ordering::Relaxed);
    row.begin_ns.store(syscall::now_ns(), Ordering::Relaxed);
    row.ready.store(number + 1, Ordering::Release);
}

/// Starts the calling thread's record stream in a ring.
fn begin(header: &Header, ring: Ring) {
    let control = ring.control();
    control.self_addr.set(ring.address as u64);
    control.system_hooks.set(system_hooks());
    control
        .counters
        .set(match control.state.load(Ordering::Relaxed) {
            PRIVATE => counters::scrap(),
            _ => counters::counters_address(ring),
        });
    control.pid.set(syscall::getpid());
    control.tid.set(syscall::gettid());
    control.slots_before.set(0);
    control.period_before.set(0);
    control.stretch.set(0);
    control.windows.set(0);
    control.late.set(0);
    let outside = !crate::record::phases::is_on(header);
    control.outside.set(outside.into());
    control.boundary_count.store(0, Ordering::Relaxed);
    ring.private().drawn.set(false);
    control.ring_start.set(if header.mode == MODE_RING {
        (ring.address + PAGE_SIZE) as u64
    } else {
        0
    });
    control.hook_top.set(ring.signal_stack() as u64);
    control.in_hook.set(0);
    begin_spare(ring);
    if control.state.load(Ordering::Relaxed) != PRIVATE {
        transfer_hooks::forget_targets(ring);
    }
    if header.mode == MODE_BURST {
        crate::record::window::rest(header, ring);
        control.begin_ns.set(syscall::now_ns());
        return;
    }
    transfer_hooks::set(control, Hooks::Always);
    crate::record::publish::begin_stretch(header, ring);
}
