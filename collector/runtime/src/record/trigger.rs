//! Trigger of windows: a signal to each thread whenever it has executed a number of loads, or used
//! an amount of CPU time.
//!
//! The source is a counter or the task clock of one thread, opened by `perf_event_open` with the
//! kernel excluded. It sends signals at any rate, and only while the thread runs user code, so no
//! system call is interrupted. If the clock is refused, or the recorder has found that its signals
//! are expensive, the source is a POSIX timer on the thread's CPU clock, which the kernel checks
//! once per tick (250 Hz on most systems). The tick happens anyway, so this costs only the signal.
//! It may arrive during a system call. Kernels before Linux 5.10 may then end the call as if the
//! program had received a signal; later ones delay the signal until the call is over. Such signals
//! begin no windows ([`is_behind_call`]). Periods are drawn again and again, so that samples are
//! not in step with the program.
//!
//! Signals cost time themselves, on some machines 50 µs each. At a higher rate they would leave the
//! program no time: signals of this kind queue up, and if the queue is full (`RLIMIT_SIGPENDING`,
//! shared by all processes of a user) the kernel sends SIGIO instead, which kills the process by
//! default. So queued signals are removed from the queue, triggers that find the thread without
//! progress become rarer ([`left_over`]), and such a SIGIO counts as a trigger (`signals`).

use crate::record::params::{
    MAX_PERIOD_LOG2, MAX_TIME_OF_QUEUED_SIGNALS_NS, PERIOD_WHILE_WAITING_NS,
    RENEWALS_UNTIL_SHORTER_PERIOD, SIGNALS_PER_PERIOD, SIGNALS_WITHOUT_PROGRESS,
};
use crate::record::thread_ring::Ring;
use crate::record::{budget, phases, reuse_watch, signals, speed_probe};
use crate::sys::errno::EBADF;
use crate::sys::signal_frame::{Context, Info, RIP};
use crate::sys::syscall::nr;
use crate::sys::{clock, process, syscall};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use mgz_abi::phases::{GATE_OPEN, GATE_OVER, GATE_WAITS};
use mgz_abi::shared_memory::*;

/// A thread's source of signals; is in [`crate::record::thread_ring::Private`]. Zero is "none".
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct ThreadTrigger {
    /// Kind of the trigger: `TRIGGER_*`.
    kind: u32,
    /// Descriptor of the event, or number of the timer.
    handle: i32,
    /// Signals until the next period is drawn.
    left: u32,
    /// Id of the thread.
    tid: u32,
    /// Signals in a row that found the thread without progress.
    in_a_row: u16,
    /// Log2 of the factor by which the period is longer than requested.
    slower: u8,
    /// Renewals of the period since `slower` last changed.
    calm: u8,
    /// Address at which the last signal found the thread.
    seen: u64,
    /// Average time or number of loads between two signals.
    period: u64,
}

const IOC_PERIOD: usize = 0x4008_2404;
pub(crate) const IOC_ENABLE: usize = 0x2400;
pub(crate) const IOC_DISABLE: usize = 0x2401;
/// The code of a timer's signal.
const SI_TIMER: i32 = -2;

/// True if threads are to be sampled: from the end of the constructor on.
static READY: AtomicBool = AtomicBool::new(false);
/// State of the generator of periods, shared by all threads: races only make it less regular.
static RANDOM: AtomicU64 = AtomicU64::new(0x2545_f491_4f6c_dd1d);

/// Signal that the kernel sends instead if the queue of signals is full.
pub const SIGIO: usize = 29;

/// Number of the trigger's signal, or 0 if this process is not sampled.
pub fn signal() -> usize {
    match process::header() {
        Some(header) if header.mode == MODE_BURST => header.signal as usize,
        _ => 0,
    }
}

/// The signal's bit in a mask, or 0.
pub fn bit() -> u64 {
    match signal() {
        0 => 0,
        signal => 1 << (signal - 1),
    }
}

/// True if the trigger counts loads, and not time.
pub fn by_loads(header: &Header) -> bool {
    (header.trigger_type, header.trigger_config) != CPU_TIME
}

fn random() -> u64 {
    let mut x = RANDOM.load(Ordering::Relaxed);
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    RANDOM.store(x, Ordering::Relaxed);
    x
}

/// Requested average distance between two signals, and their source: timers at the tick or not.
fn wanted(header: &Header) -> budget::WindowPlan {
    match budget::account(header).filter(|_| !by_loads(header)) {
        // Nothing is recorded yet: an occasional trigger checks whether that has changed.
        Some(_) | None
            if !by_loads(header) && header.phases.gate.load(Ordering::Relaxed) == GATE_WAITS =>
        {
            budget::WindowPlan {
                period: PERIOD_WHILE_WAITING_NS,
                at_ticks: header.trigger_tick != 0,
            }
        }
        Some(account) => budget::plan_windows(&account),
        None => budget::WindowPlan {
            period: header.trigger_period.max(8),
            at_ticks: header.trigger_tick != 0,
        },
    }
}

/// A period of ±1/8 around the wanted one.
fn period(wanted: u64) -> u64 {
    wanted - wanted / 8 + random() % (wanted / 4).max(1)
}

/// Setting of a timer that the kernel checks once per tick: ±1/2 around the requested period, which
/// is only a few ticks long, minus half a tick, since the kernel notices such a timer's end half a
/// tick late on average. (If the recorder has not chosen the tick, more signals were requested than
/// there are ticks, and each one begins a window.)
fn ticks(wanted: u64, tick: u64) -> u64 {
    (wanted / 2 + random() % wanted.max(1))
        .saturating_sub(tick / 2)
        .max(1)
}

/// Starts the first trigger. Called once, after everything is set up.
pub fn start_trigger(ring: Ring) {
    if signal() != 0 {
        get_ready();
        arm(ring);
    }
}

/// Lets threads get triggers from now on when they are set up.
pub fn get_ready() {
    RANDOM.fetch_xor(
        syscall::now_ns() << 8 ^ u64::from(syscall::getpid()),
        Ordering::Relaxed,
    );
    READY.store(true, Ordering::Relaxed);
}

/// Creates the calling thread's trigger.
pub fn arm(ring: Ring) {
    let Some(header) = process::header() else {
        return;
    };
    if !READY.load(Ordering::Relaxed)
        || is_over(header)
        || syscall::gs() != ring.address
        || ring.private().trigger.get().kind != 0
    {
        return;
    }
    // The first signal could arrive before the trigger is stored, and the handler would take it for
    // the program's.
    let old = syscall::sigprocmask(0, Some(bit()));
    let by_loads = by_loads(header);
    match made(header, syscall::gettid()) {
        Some(trigger) => {
            header.trigger_kind.store(
                if by_loads {
                    TRIGGER_LOADS
                } else {
                    trigger.kind
                },
                Ordering::Relaxed,
            );
            set(ring, trigger);
            // Another thread may be switching the process at the same time.
            if phases::is_waiting() {
                freeze(ring);
                if !phases::is_waiting() {
                    thaw(ring);
                }
            }
        }
        None => process::count(count::THREADS_WITHOUT_TRIGGER, 1),
    }
    if let Ok(old) = old {
        let _ = syscall::sigprocmask(2, Some(old));
    }
}

/// Makes a thread's trigger: of the requested kind, else of the other.
fn made(header: &Header, tid: u32) -> Option<ThreadTrigger> {
    let budget::WindowPlan { period, at_ticks } = wanted(header);
    if by_loads(header) {
        event(header, tid, period)
    } else if at_ticks {
        timer(header, tid, period).or_else(|| event(header, tid, period))
    } else {
        event(header, tid, period).or_else(|| timer(header, tid, period))
    }
}

/// Stores a ring's trigger.
fn set(ring: Ring, trigger: ThreadTrigger) {
    let handle = match trigger.kind {
        0 => 0,
        kind => for_other(kind, trigger.handle),
    };
    ring.private().trigger.set(trigger);
    ring.private().handle.store(handle, Ordering::SeqCst);
}

/// Pauses a ring's trigger and keeps the rest of its period. The ring may be another thread's.
pub fn freeze(ring: Ring) {
    let handle = ring.private().handle.load(Ordering::SeqCst);
    match (handle >> 32) as u32 {
        TRIGGER_EVENT => {
            // SAFETY: integers only.
            unsafe { syscall::call(nr::IOCTL, handle as u32 as usize, IOC_DISABLE, 0, 0, 0, 0) };
        }
        TRIGGER_TIMER => {
            // Interval and rest.
            let [mut before, still] = [[0u64; 4]; 2];
            // SAFETY: the times live across the call.
            unsafe {
                syscall::call(
                    nr::TIMER_SETTIME,
                    handle as u32 as usize,
                    0,
                    still.as_ptr() as usize,
                    before.as_mut_ptr() as usize,
                    0,
                    0,
                )
            };
            let ns = |at: usize| before[at] * 1_000_000_000 + before[at + 1];
            if ns(2) != 0 {
                for (place, ns) in ring.private().left.iter().zip([ns(2), ns(0)]) {
                    place.store(ns, Ordering::SeqCst);
                }
            }
        }
        _ => {}
    }
}

/// Continues a ring's paused trigger.
pub fn thaw(ring: Ring) {
    let handle = ring.private().handle.load(Ordering::SeqCst);
    match (handle >> 32) as u32 {
        TRIGGER_EVENT => {
            // SAFETY: integers only.
            unsafe { syscall::call(nr::IOCTL, handle as u32 as usize, IOC_ENABLE, 0, 0, 0, 0) };
        }
        TRIGGER_TIMER => {
            let [left, interval] = ring
                .private()
                .left
                .each_ref()
                .map(|place| place.swap(0, Ordering::SeqCst));
            if left != 0 {
                let parts = |ns: u64| [ns / 1_000_000_000, ns % 1_000_000_000];
                let time = [parts(interval), parts(left)];
                // SAFETY: the times live across the call.
                unsafe {
                    syscall::call(
                        nr::TIMER_SETTIME,
                        handle as u32 as usize,
                        0,
                        time.as_ptr() as usize,
                        0,
                        0,
                        0,
                    )
                };
            }
        }
        _ => {}
    }
}

/// Triggers made for threads without a ring by another thread: kind, and descriptor or number. 0 is
/// free.
static FOR_OTHERS: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];

fn for_other(kind: u32, handle: i32) -> u64 {
    u64::from(kind) << 32 | u64::from(handle as u32)
}

/// Makes a trigger for another thread of this process, which gets its ring at the first signal
/// ([`was_for_other`]).
pub fn arm_for(tid: u32) {
    let Some(header) = process::header().filter(|h| !is_over(h)) else {
        return;
    };
    let noted = made(header, tid).is_some_and(|made| {
        let entry = for_other(made.kind, made.handle);
        FOR_OTHERS.iter().any(|place| {
            place
                .compare_exchange(0, entry, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        })
    });
    if !noted {
        process::count(count::THREADS_WITHOUT_TRIGGER, 1);
    }
}

/// True if a signal to a thread without a ring is of a trigger by [`arm_for`]. That trigger is
/// ended, since the thread now makes its own.
pub fn was_for_other(info: &Info) -> bool {
    let (kind, handle) = match info.code {
        _ if is_of_timer(info) => (TRIGGER_TIMER, info.address as u32 as i32),
        code if code > 0 => (TRIGGER_EVENT, info.value as u32 as i32),
        _ => return false,
    };
    let entry = for_other(kind, handle);
    let noted = FOR_OTHERS.iter().any(|place| {
        place
            .compare_exchange(entry, 0, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    });
    if noted {
        end(kind, handle);
    }
    noted
}

/// Ends a ring's trigger.
pub fn disarm(ring: Ring) {
    speed_probe::end(ring);
    reuse_watch::end(ring);
    ring.private().handle.store(0, Ordering::SeqCst);
    let trigger = ring.private().trigger.take();
    end(trigger.kind, trigger.handle);
}

fn end(kind: u32, handle: i32) {
    match kind {
        TRIGGER_EVENT => {
            // SAFETY: integers only; the event is the runtime's own (if the program has not closed
            // it).
            unsafe { syscall::call(nr::IOCTL, handle as usize, IOC_DISABLE, 0, 0, 0, 0) };
            syscall::close(handle as isize);
        }
        // SAFETY: integers only; the runtime's own timer.
        TRIGGER_TIMER => unsafe {
            syscall::call(nr::TIMER_DELETE, handle as usize, 0, 0, 0, 0, 0);
        },
        _ => {}
    }
}

/// Ends a ring's trigger and its pending signals before `exec`, since the new program must not get
/// one. Returns true if there was a trigger.
pub fn quiet(ring: Ring) -> bool {
    if ring.private().trigger.get().kind == 0 {
        return false;
    }
    let old = syscall::sigprocmask(0, Some(bit()));
    disarm(ring);
    while next_queued(None) {}
    if let Ok(old) = old {
        let _ = syscall::sigprocmask(2, Some(old));
    }
    true
}

/// True if a ring's trigger, if there is one, is that of the calling thread.
pub fn is_of_this_thread(ring: Ring) -> bool {
    let trigger = ring.private().trigger.get();
    trigger.kind == 0 || trigger.tid == syscall::gettid()
}

/// Descriptor of a ring's event, if its trigger is one.
pub fn descriptor(ring: Ring) -> Option<i32> {
    let trigger = ring.private().trigger.get();
    (trigger.kind == TRIGGER_EVENT).then_some(trigger.handle)
}

/// Gives the calling thread a new trigger if the program has closed its event.
pub fn replace_if_closed(ring: Ring) {
    const F_GETFD: usize = 1;
    let is_closed = |fd| {
        // SAFETY: integers only.
        unsafe { syscall::call(nr::FCNTL, fd as usize, F_GETFD, 0, 0, 0, 0) == -EBADF }
    };
    if descriptor(ring).is_some_and(is_closed) {
        speed_probe::forget_parent_event(ring);
        reuse_watch::forget_events(ring);
        set(ring, ThreadTrigger::default());
        arm(ring);
    }
}

/// Replaces the parent's trigger in a forked child.
pub fn renew(ring: Ring) {
    // The thread that held the lock does not exist in this process.
    RAISED.store(false, Ordering::Relaxed);
    speed_probe::forget_parent_event(ring);
    reuse_watch::forget_events(ring);
    ring.private().handle.store(0, Ordering::SeqCst);
    let inherited = ring.private().trigger.take();
    if inherited.kind == TRIGGER_EVENT {
        syscall::close(inherited.handle as isize);
    }
    arm(ring);
}

fn event(header: &Header, tid: u32, wanted: u64) -> Option<ThreadTrigger> {
    const BYTES: usize = 64;
    // struct perf_event_attr, first version: type, size, config, period.
    let mut attributes = [0u64; BYTES / 8];
    attributes[0] = u64::from(header.trigger_type) | (BYTES as u64) << 32;
    attributes[1] = header.trigger_config;
    attributes[2] = period(wanted);
    // exclude_kernel, exclude_hv.
    attributes[5] = 1 << 5 | 1 << 6;
    open_event(header, &attributes, tid).map(|fd| ThreadTrigger {
        kind: TRIGGER_EVENT,
        handle: fd as i32,
        left: SIGNALS_PER_PERIOD,
        tid,
        period: wanted,
        ..ThreadTrigger::default()
    })
}

/// Opens an event of a thread of this process that sends it the trigger's signal. `attributes` is a
/// `struct perf_event_attr`.
pub fn open_event(header: &Header, attributes: &[u64], tid: u32) -> Option<isize> {
    const CLOEXEC: usize = 8;
    const F_SETFL: usize = 4;
    const F_SETSIG: usize = 10;
    const F_SETOWN_EX: usize = 15;
    const O_ASYNC_NONBLOCK: usize = 0o20000 | 0o4000;
    // SAFETY: the attributes live across the call.
    let fd = unsafe {
        syscall::call(
            nr::PERF_EVENT_OPEN,
            attributes.as_ptr() as usize,
            if tid == syscall::gettid() {
                0
            } else {
                tid as usize
            },
            usize::MAX,
            usize::MAX,
            CLOEXEC,
            0,
        )
    };
    if fd < 0 {
        return None;
    }
    let fd = out_of_sight(fd)?;
    LOWEST_EVENT.fetch_min(fd as u32, Ordering::Relaxed);
    // F_OWNER_TID.
    let owner = [0u32, tid];
    // SAFETY: the owner lives across the call.
    let asked = unsafe {
        syscall::call(
            nr::FCNTL,
            fd as usize,
            F_SETOWN_EX,
            owner.as_ptr() as usize,
            0,
            0,
            0,
        ) == 0
            && syscall::call(
                nr::FCNTL,
                fd as usize,
                F_SETSIG,
                header.signal as usize,
                0,
                0,
                0,
            ) == 0
            && syscall::call(nr::FCNTL, fd as usize, F_SETFL, O_ASYNC_NONBLOCK, 0, 0, 0) == 0
    };
    if !asked {
        syscall::close(fd);
        return None;
    }
    Some(fd)
}

/// Lock: a thread of the process has temporarily raised the limit on descriptors.
static RAISED: AtomicBool = AtomicBool::new(false);

/// Tries for a bounded time to take the lock on the limit: the calling handler may have interrupted
/// the holder.
fn only_one() -> bool {
    (0..1000).any(|_| {
        let free = !RAISED.swap(true, Ordering::Acquire);
        if !free {
            // SAFETY: it has no arguments.
            unsafe { syscall::call(nr::SCHED_YIELD, 0, 0, 0, 0, 0, 0) };
        }
        free
    })
}

/// Moves a descriptor to a number that the program does not use: one above its soft limit, which is
/// raised temporarily, or, if that equals the hard limit, a high number below it. If there is none,
/// the descriptor is closed and the result is `None`.
fn out_of_sight(fd: isize) -> Option<isize> {
    const RLIMIT_NOFILE: usize = 7;
    const F_DUPFD_CLOEXEC: usize = 1030;
    // Sets new limits, if given. Returns the previous ones.
    let limits = |new: Option<&[u64; 2]>| {
        let mut old = [0u64; 2];
        let new = new.map_or(0, |n| core::ptr::from_ref(n) as usize);
        // SAFETY: both pairs live across the call.
        let done = unsafe {
            syscall::call(
                nr::PRLIMIT64,
                0,
                RLIMIT_NOFILE,
                new,
                old.as_mut_ptr() as usize,
                0,
                0,
            )
        };
        (done == 0).then_some(old)
    };
    // SAFETY: integers only.
    let copy = |least: usize| unsafe {
        syscall::call(nr::FCNTL, fd as usize, F_DUPFD_CLOEXEC, least, 0, 0, 0)
    };
    // If two threads did this at once, one could find the limit lowered by the other, or take the
    // raised limit for the program's.
    let alone = only_one();
    let before = limits(None).unwrap_or_default();
    let mut high = -1;
    if before[0] < before[1]
        && let raised = [before[1], before[1]]
        && let Some(before) = limits(Some(&raised))
    {
        // Not the next number, since the program may lower its limit to just above its open
        // descriptors. (The kernel's table grows with the number.)
        high = copy(before[0].max((before[1] - before[1] / 4).min(1 << 14)) as usize);
        // If another thread has set limits in the meantime, those stay.
        if let Some(now) = limits(Some(&before)).filter(|now| *now != raised) {
            limits(Some(&now));
        }
    }
    if alone {
        RAISED.store(false, Ordering::Release);
    }
    if high < 0 {
        // At most a quarter of the program's numbers are above it.
        high = copy((before[0] - before[0] / 4).min(1 << 20) as usize);
    }
    syscall::close(fd);
    (high >= 0).then_some(high)
}

/// Marks the signals of [`timer`].
const VALUE: u64 = 0x6d67_7a62_7572_7374;

fn timer(header: &Header, tid: u32, wanted: u64) -> Option<ThreadTrigger> {
    // The clock of another thread is the id's complement, with the bits that mark a thread's
    // scheduler clock.
    let clock = if tid == syscall::gettid() {
        syscall::CLOCK_THREAD_CPUTIME
    } else {
        (!tid << 3 | 6) as i32 as isize as usize
    };
    const SIGEV_THREAD_ID: u64 = 4;
    let mut event = [0u64; 8];
    event[0] = VALUE;
    event[1] = u64::from(header.signal) | SIGEV_THREAD_ID << 32;
    event[2] = u64::from(tid);
    let mut number = 0i32;
    // SAFETY: both live across the call.
    let made = unsafe {
        syscall::call(
            nr::TIMER_CREATE,
            clock,
            event.as_ptr() as usize,
            &raw mut number as usize,
            0,
            0,
            0,
        )
    };
    if made < 0 {
        return None;
    }
    set_timer(number, ticks(wanted, header.trigger_tick));
    Some(ThreadTrigger {
        kind: TRIGGER_TIMER,
        handle: number,
        left: 1,
        tid,
        period: wanted,
        ..ThreadTrigger::default()
    })
}

/// Sets a timer to `ns` nanoseconds, repeatedly, in case its signal is lost.
fn set_timer(number: i32, ns: u64) {
    let time = [
        ns / 1_000_000_000,
        ns % 1_000_000_000,
        ns / 1_000_000_000,
        ns % 1_000_000_000,
    ];
    // SAFETY: the times live across the call.
    unsafe {
        syscall::call(
            nr::TIMER_SETTIME,
            number as usize,
            0,
            time.as_ptr() as usize,
            0,
            0,
            0,
        )
    };
}

/// True if a timer's signal, which interrupted this instruction of an instrumented file, arrived
/// during a system call. (The event clock does not count that time.)
pub fn is_behind_call(ring: Ring, rip: u64) -> bool {
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
    // The page before may not be mapped, so a call that begins there is ignored.
    ring.private().trigger.get().kind == TRIGGER_TIMER && rip % PAGE_SIZE as u64 >= 2
        // SAFETY: the two bytes lie on the page of an instruction that the thread is about to execute.
        && unsafe { *((rip - 2) as *const [u8; 2]) } == SYSCALL
}

/// True for the signal that the kernel sends if the queue is full. (A signal of the program with
/// the same code is passed to the program's handler.)
fn is_overflow(info: &Info) -> bool {
    const SI_KERNEL: i32 = 0x80;
    info.signal == SIGIO as i32 && info.code == SI_KERNEL
}

/// True if a descriptor is that of one of this thread's watchpoints.
fn is_watchpoint(ring: Ring, descriptor: i32) -> bool {
    speed_probe::is_ours(ring, descriptor) || reuse_watch::is_ours(ring, descriptor)
}

fn is_of_timer(info: &Info) -> bool {
    info.code == SI_TIMER && info.value == VALUE
}

/// The lowest descriptor of an event so far. Those of the program are below
/// ([`out_of_sight`]).
static LOWEST_EVENT: AtomicU32 = AtomicU32::new(u32::MAX);

/// True for a signal of a timer or an event of the runtime, also of one that has ended: its signal
/// may have been pending, or it came before [`arm_for`] noted the trigger.
pub fn is_of_runtime(info: &Info) -> bool {
    let is_event = info.code > 0 && info.value as u32 >= LOWEST_EVENT.load(Ordering::Relaxed);
    is_event || is_of_timer(info)
}

/// True if a signal came from this thread's trigger or a watchpoint.
pub fn is_ours(ring: Ring, info: &Info) -> bool {
    let trigger = ring.private().trigger.get();
    if info.code > 0 && is_watchpoint(ring, info.value as u32 as i32) {
        return true;
    }
    match trigger.kind {
        TRIGGER_EVENT => {
            info.code > 0 && (info.value as u32 as i32 == trigger.handle || is_overflow(info))
        }
        TRIGGER_TIMER => is_of_timer(info),
        // A signal that was still pending when its thread's trigger was ended.
        _ => info.code > 0 || is_of_timer(info),
    }
}

/// Handles the trigger's signal. All signals are blocked.
pub fn came(ring: Ring, info: &Info, context: &mut Context) {
    let descriptor = info.value as u32 as i32;
    if info.code > 0 && speed_probe::is_ours(ring, descriptor) {
        return speed_probe::hit(ring, context);
    }
    if info.code > 0 && reuse_watch::is_ours(ring, descriptor) {
        return reuse_watch::hit(ring, descriptor, context);
    }
    if crate::sys::seccomp_state::is_sealed() {
        return process::count(count::TRIGGERS_BUSY, 1);
    }
    if process::header().is_some_and(is_over) || crate::sys::own_memory::may_code_change() {
        // The thread continues as if it had never been recorded.
        return disarm(ring);
    }
    if !crate::record::attachment::is_ready(ring, context) {
        return process::count(count::TRIGGERS_BUSY, 1);
    }
    let mut trigger = ring.private().trigger.get();
    let period = trigger.period;
    if let Some(header) = process::header() {
        if by_loads(header) {
            phases::count_trigger(header, period);
        }
        match header.phases.gate.load(Ordering::Relaxed) {
            GATE_OVER => return disarm(ring),
            // (The signal was already pending when another thread hit the marker.)
            GATE_OPEN if phases::is_waiting() => {
                freeze(ring);
                if !phases::is_waiting() {
                    thaw(ring);
                }
                return process::count(count::TRIGGERS_OUTSIDE_PHASES, 1);
            }
            GATE_OPEN => {}
            _ => {
                trigger.left = 1;
                set(ring, with_new_period(trigger));
                return process::count(count::TRIGGERS_OUTSIDE_PHASES, 1);
            }
        }
    }
    charge(trigger);
    trigger.left = trigger.left.wrapping_sub(1);
    if trigger.left == 0 {
        trigger.left = if trigger.kind == TRIGGER_TIMER {
            1
        } else {
            SIGNALS_PER_PERIOD
        };
        trigger.calm = trigger.calm.saturating_add(1);
        if trigger.calm >= RENEWALS_UNTIL_SHORTER_PERIOD {
            (trigger.calm, trigger.slower) = (0, trigger.slower.saturating_sub(1));
        }
        trigger = with_new_period(trigger);
    }
    set(ring, trigger);
    // This comes last, since the window's time begins here.
    let outcome = crate::record::window::trigger(ring, context, period);
    process::count(outcome, 1);
    if let Some(header) = process::header() {
        header.periods.fetch_add(period, Ordering::Relaxed);
        if outcome == count::TRIGGERS_OUTSIDE {
            header.periods_outside.fetch_add(period, Ordering::Relaxed);
        }
    }
    if outcome == count::WINDOWS {
        ring.private().trigger.set(ThreadTrigger {
            in_a_row: 0,
            ..ring.private().trigger.get()
        });
    } else {
        left_over(ring, context, outcome);
    }
}

/// Charges a signal to the budget: the thread has used the time of a period, and the signal itself
/// costs some.
fn charge(trigger: ThreadTrigger) {
    let Some(header) = process::header().filter(|h| !by_loads(h)) else {
        return;
    };
    budget::ran(header, trigger.period);
    if trigger.kind == TRIGGER_EVENT {
        budget::spend(header, header.trigger_toll);
    }
}

/// Draws a new period, and changes to the other kind of trigger if necessary.
fn with_new_period(trigger: ThreadTrigger) -> ThreadTrigger {
    let Some(header) = process::header() else {
        return trigger;
    };
    let wanted = wanted(header);
    if budget::account(header).is_some()
        && !by_loads(header)
        && wanted.at_ticks != (trigger.kind == TRIGGER_TIMER)
        && let Some(other) = of_other_kind(header, trigger, wanted)
    {
        return other;
    }
    match trigger.kind {
        TRIGGER_EVENT => {
            let long = wanted.period << trigger.slower;
            let next = period(long);
            // SAFETY: the number lives across the call.
            unsafe {
                syscall::call(
                    nr::IOCTL,
                    trigger.handle as usize,
                    IOC_PERIOD,
                    &raw const next as usize,
                    0,
                    0,
                    0,
                )
            };
            ThreadTrigger {
                period: long,
                ..trigger
            }
        }
        TRIGGER_TIMER => {
            set_timer(trigger.handle, ticks(wanted.period, header.trigger_tick));
            ThreadTrigger {
                period: wanted.period,
                ..trigger
            }
        }
        _ => trigger,
    }
}

/// The other kind of trigger for the calling thread, in place of this one. (If events are refused,
/// only timers are used.)
fn of_other_kind(
    header: &Header,
    before: ThreadTrigger,
    wanted: budget::WindowPlan,
) -> Option<ThreadTrigger> {
    static REFUSED: AtomicBool = AtomicBool::new(false);
    if REFUSED.load(Ordering::Relaxed) {
        return None;
    }
    let made = if wanted.at_ticks {
        timer(header, before.tid, wanted.period)
    } else {
        event(header, before.tid, wanted.period)
    };
    let Some(made) = made else {
        REFUSED.store(true, Ordering::Relaxed);
        return None;
    };
    end(before.kind, before.handle);
    header.trigger_kind.store(made.kind, Ordering::Relaxed);
    Some(ThreadTrigger {
        seen: before.seen,
        ..made
    })
}

/// Handles a signal that began no window: signals queued in the meantime would not either and are
/// removed. If this happens too often, the period is doubled.
fn left_over(ring: Ring, context: &Context, outcome: usize) {
    if ring.private().trigger.get().kind != TRIGGER_EVENT {
        return;
    }
    let in_time = take_queued(ring);
    let mut trigger = ring.private().trigger.get();
    let here = context.registers[RIP];
    let stuck = outcome == count::TRIGGERS_BUSY || here == trigger.seen;
    trigger.seen = here;
    trigger.in_a_row = if stuck { trigger.in_a_row + 1 } else { 0 };
    if !in_time || trigger.in_a_row >= SIGNALS_WITHOUT_PROGRESS {
        (trigger.in_a_row, trigger.calm) = (0, 0);
        if trigger.slower < MAX_PERIOD_LOG2 {
            trigger.slower += 1;
            process::count(count::TRIGGERS_SLOWED, 1);
            trigger = with_new_period(trigger);
        }
    }
    set(ring, trigger);
}

/// Removes queued signals of this thread's events from the queue, unless the program uses the
/// signal as well: it could miss its own, or see them in another order. Returns false if signals
/// arrive faster than they can be removed.
fn take_queued(ring: Ring) -> bool {
    if signals::is_used(ring, signal()) {
        return true;
    }
    let began = clock::ticks();
    let mut info = [0u64; 16];
    while next_queued(Some(&mut info)) {
        // SAFETY: the kernel has filled it in; `Info` is its beginning.
        let what = unsafe { &*info.as_ptr().cast::<Info>() };
        let descriptor = what.value as u32 as i32;
        if what.code > 0 && speed_probe::is_ours(ring, descriptor) {
            speed_probe::give_up(ring);
        } else if what.code > 0 && reuse_watch::is_ours(ring, descriptor) {
            reuse_watch::missed(ring, descriptor);
        } else if is_ours(ring, what) {
            process::count(count::TRIGGERS, 1);
            process::count(count::TRIGGERS_BUSY, 1);
            if let Some(header) = process::header() {
                let period = ring.private().trigger.get().period;
                header.periods.fetch_add(period, Ordering::Relaxed);
            }
        } else if !is_of_runtime(what) {
            // SAFETY: the structure lives across the call; a thread may send itself any signal.
            unsafe {
                syscall::call(
                    nr::RT_TGSIGQUEUEINFO,
                    syscall::getpid() as usize,
                    syscall::gettid() as usize,
                    signal(),
                    info.as_ptr() as usize,
                    0,
                    0,
                )
            };
            return true;
        }
        if clock::since(began) > MAX_TIME_OF_QUEUED_SIGNALS_NS {
            return false;
        }
    }
    true
}

/// Removes one of the trigger's signals from the queue, if there is one. It must be blocked.
fn next_queued(info: Option<&mut [u64; 16]>) -> bool {
    let (set, none) = (bit(), [0u64; 2]);
    let info = info.map_or(0, |i| i.as_mut_ptr() as usize);
    // SAFETY: set, time and the structure, which has the kernel's 128 bytes, live across the call.
    unsafe {
        syscall::call(
            nr::RT_SIGTIMEDWAIT,
            &raw const set as usize,
            info,
            none.as_ptr() as usize,
            8,
            0,
            0,
        ) > 0
    }
}

/// True if recording is over for good, so that the thread must not be interrupted any more.
pub fn is_over(header: &Header) -> bool {
    header.stop.load(Ordering::Relaxed) != 0
}
