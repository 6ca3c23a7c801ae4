//! Trigger of windows: a signal to each thread whenever it has executed so many loads, or used a
//! certain CPU time.
//!
//! A counter or the task clock of one thread, by `perf_event_open` and with the kernel excluded,
//! sends it at any rate, and only while the thread runs code of its own: no system call is ever
//! interrupted. Where the clock is refused, or the recorder has found that its signals are dear, a
//! POSIX timer on the thread's CPU clock does it, which the kernel looks at once per tick (250 Hz
//! on most systems). The tick comes anyhow, so that this costs a signal and nothing else.
//! It may come while a system call is at work. Kernels before Linux 5.10 may end the call as if the
//! program had got a signal; since then, the signal waits until the call is over. Such signals
//! begin no windows ([`is_behind_call`]). Periods are drawn anew all the time, so that samples do
//! not march in step with the program.
//!
//! Signals cost time themselves, on some machines 50 µs each. Asked for more often than that, they
//! would follow one another and leave the program none: their kind queues up, and if the queue is
//! full (`RLIMIT_SIGPENDING`, which all processes of a user share) the kernel sends SIGIO instead,
//! whose default is death. So queued signals are taken off the queue, triggers that find the thread
//! at its last place are made fewer ([`left_over`]), and such a SIGIO is a trigger like others
//! (`signals`).

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
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use mgz_abi::phases::{GATE_OPEN, GATE_OVER, GATE_WAITS};
use mgz_abi::shared_memory::*;

/// A thread's source of signals; lies in [`crate::record::thread_ring::Private`]. Zero is "none".
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct ThreadTrigger {
    /// `TRIGGER_*`.
    kind: u32,
    /// Descriptor of the event, or number of the timer.
    handle: i32,
    /// Signals until the period is drawn anew.
    left: u32,
    /// The thread.
    tid: u32,
    /// Signals in a row that found the thread no further.
    in_a_row: u16,
    /// Log2 of the factor by which the period is longer than requested.
    slower: u8,
    /// Renewals of the period since it was last changed, without such signals.
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

/// The signal, or 0 if this process is not sampled.
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

/// Wanted average distance between two signals, and source of the signals: timers at the tick or
/// not.
fn wanted(header: &Header) -> budget::WindowPlan {
    match budget::account(header).filter(|_| !by_loads(header)) {
        // Nothing is recorded yet: a trigger now and then looks whether that has changed.
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

/// Setting of a timer that the kernel checks once per tick: ±1/2 around the requested period, since
/// few ticks make one, and half a tick less. The kernel finds such a timer expired half a tick too
/// late on average. (If the recorder has not chosen the tick, more signals were requested than
/// there are ticks, and each one begins a window.)
fn ticks(wanted: u64, tick: u64) -> u64 {
    (wanted / 2 + random() % wanted.max(1))
        .saturating_sub(tick / 2)
        .max(1)
}

/// Called once, when all is set up.
pub fn start_trigger(ring: Ring) {
    if signal() != 0 {
        get_ready();
        arm(ring);
    }
}

/// From now on threads get triggers when they are set up.
pub fn get_ready() {
    RANDOM.fetch_xor(
        syscall::now_ns() << 8 ^ u64::from(syscall::getpid()),
        Ordering::Relaxed,
    );
    READY.store(true, Ordering::Relaxed);
}

/// Starts the calling thread's signals.
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
    // The first signal may come before it is noted whose it is; its handler would take it for the
    // program's.
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
            // While another thread may be switching the process.
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

/// Makes a thread's trigger: as is wanted, else as can be had.
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

/// A ring has this trigger from now on.
fn set(ring: Ring, trigger: ThreadTrigger) {
    let handle = match trigger.kind {
        0 => 0,
        kind => for_other(kind, trigger.handle),
    };
    ring.private().trigger.set(trigger);
    ring.private().handle.store(handle, Ordering::SeqCst);
}

/// Nothing is recorded for a while: a ring's trigger stands still, with the rest of its period. The
/// ring may be another thread's.
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

/// Recording goes on: so does a ring's trigger.
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

/// Threads without a ring for which another one has made a trigger: kind, and descriptor or number.
/// 0 is free.
static FOR_OTHERS: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];

fn for_other(kind: u32, handle: i32) -> u64 {
    u64::from(kind) << 32 | u64::from(handle as u32)
}

/// Makes a trigger for another thread of this process, which has no ring yet and gets it at the
/// first signal ([`was_for_other`]).
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

/// True if a signal that has come to a thread without a ring was made by [`arm_for`]: that trigger
/// ends, since the thread makes its own now.
pub fn was_for_other(info: &Info) -> bool {
    let (kind, handle) = match info.code {
        SI_TIMER if info.value == VALUE => (TRIGGER_TIMER, info.address as u32 as i32),
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

/// Ends the signals of a ring's thread.
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

/// Before `exec`: the new program must not get the signal. Returns whether there was a trigger.
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

/// Number of a ring's event, if that is its trigger.
pub fn descriptor(ring: Ring) -> Option<i32> {
    let trigger = ring.private().trigger.get();
    (trigger.kind == TRIGGER_EVENT).then_some(trigger.handle)
}

/// The program may have closed the calling thread's event: then it gets a new one.
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

/// In a forked child: the parent's trigger is not this process's.
pub fn renew(ring: Ring) {
    // Whoever held it is no thread of this process.
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

/// A thread of the process has raised the limit on descriptors for a moment.
static RAISED: AtomicBool = AtomicBool::new(false);

/// Tries for a while to be the only thread that changes that limit. The time is bounded: a handler
/// that calls this may have interrupted the holder.
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

/// Gives a descriptor a number that the program does not meet: one above its soft limit, which is
/// raised for that moment, or, where that is as high as the hard one, a high number below it.
/// `None`, and the descriptor closed, if there is none.
fn out_of_sight(fd: isize) -> Option<isize> {
    const RLIMIT_NOFILE: usize = 7;
    const F_DUPFD_CLOEXEC: usize = 1030;
    // Sets the limits if there are new ones; returns those before.
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
    // If two threads did this at once, one would find the limit lowered by the other, or take the
    // raised one for the program's.
    let alone = only_one();
    let before = limits(None).unwrap_or_default();
    let mut high = -1;
    if before[0] < before[1]
        && let raised = [before[1], before[1]]
        && let Some(before) = limits(Some(&raised))
    {
        // Not the very next number: a limit may be lowered to what was open before. (The kernel's
        // table grows with the number.)
        high = copy(before[0].max((before[1] - before[1] / 4).min(1 << 14)) as usize);
        // Another thread may have set limits in the meantime: its own ones stay.
        if let Some(now) = limits(Some(&before)).filter(|now| *now != raised) {
            limits(Some(&now));
        }
    }
    if alone {
        RAISED.store(false, Ordering::Release);
    }
    if high < 0 {
        // No more than a quarter of its limit.
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

/// Sets a timer to so many nanoseconds from now, and again and again should its signal be lost.
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

/// True if a timer's signal, which found the thread at this instruction of an instrumented file,
/// came while the kernel was at work for it. (The clock leaves that time out by itself.)
pub fn is_behind_call(ring: Ring, rip: u64) -> bool {
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
    // The page before may not be mapped; a call that reaches into it counts as no call.
    ring.private().trigger.get().kind == TRIGGER_TIMER && rip % PAGE_SIZE as u64 >= 2
        // SAFETY: the two bytes lie on the page of an instruction that the thread is about to execute.
        && unsafe { *((rip - 2) as *const [u8; 2]) } == SYSCALL
}

/// True for the signal that the kernel sends if there is no room for the requested one. (The
/// program's own handler gets a signal of the program, which has the same code.)
fn is_overflow(info: &Info) -> bool {
    const SI_KERNEL: i32 = 0x80;
    info.signal == SIGIO as i32 && info.code == SI_KERNEL
}

/// True if a descriptor is that of one of this thread's watchpoints.
fn is_watchpoint(ring: Ring, descriptor: i32) -> bool {
    speed_probe::is_ours(ring, descriptor) || reuse_watch::is_ours(ring, descriptor)
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
        TRIGGER_TIMER => info.code == SI_TIMER && info.value == VALUE,
        // One that was still under way when its thread's trigger was given up.
        _ => info.code > 0 || (info.code == SI_TIMER && info.value == VALUE),
    }
}

/// The signal has come. All signals are blocked.
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
        // The thread goes on as if it had never been recorded.
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
            // (It was under way when another thread met the marker.)
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
    // Last: the window's time begins.
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

/// A signal says that a thread has used the time of a period, and costs some itself.
fn charge(trigger: ThreadTrigger) {
    let Some(header) = process::header().filter(|h| !by_loads(h)) else {
        return;
    };
    budget::ran(header, trigger.period);
    if trigger.kind == TRIGGER_EVENT {
        budget::spend(header, header.trigger_toll);
    }
}

/// Draws a new period, and changes to another kind of trigger where that is wanted.
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

/// The other kind of trigger for the calling thread, in place of this one. (Where events are
/// refused there are timers alone.)
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

/// A signal that began no window: those that came in the meantime would not either. If this goes
/// on, there are too many of them.
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

/// Takes queued signals of this thread's events off the queue, unless the program uses the signal
/// as well: it would miss its own, or see them in another order. Returns false if that took so long
/// that they come faster than a thread can take them.
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
        } else {
            // SAFETY: the structure lives across the call; a thread may send itself any.
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

/// Takes one of the trigger's signals off the queue, if there is one. It must be blocked.
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

/// True if recording is over for good: then nothing shall interrupt the thread any more.
pub fn is_over(header: &Header) -> bool {
    header.stop.load(Ordering::Relaxed) != 0
}
