//! Cost of a trigger by CPU time for a thread (kernel timer, signal there and back), and the time
//! from a watched access to its handler.

use crate::watch::events::{breakpoint, counting, signals};
use mgz_models::statistics::upper_median;
use mgz_perf::attr::{Attr, SW_TASK_CLOCK, TYPE_SOFTWARE};
use mgz_perf::open::{IOC_DISABLE, IOC_ENABLE, open_perf_event, syscall_result};
use std::os::fd::AsRawFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// From signal to signal, nanoseconds. Source: Chosen.
const SIGNAL_PERIOD_NS: u64 = 200_000;
/// Maximum number of signals of a measurement.
const SIGNALS: usize = 9;
/// Source: Chosen.
const MAX_MEASURING_TIME: Duration = Duration::from_millis(40);

/// Signal actions belong to the process, so measurements run one at a time.
static ALONE: Mutex<()> = Mutex::new(());
static CAME: AtomicU32 = AtomicU32::new(0);
/// CPU time of the thread at the last signal, nanoseconds.
static CAME_AT: AtomicU64 = AtomicU64::new(0);

extern "C" fn came(_signal: libc::c_int) {
    CAME_AT.store(cpu_ns(), Ordering::Relaxed);
    CAME.fetch_add(1, Ordering::Relaxed);
}

/// CPU time of the calling thread, nanoseconds.
fn cpu_ns() -> u64 {
    // SAFETY: zero is a valid value; it lives across the call.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time);
        time
    };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A signal that is counted while this lives. Its former action is restored afterwards.
struct Counted {
    signal: libc::c_int,
    before: libc::sigaction,
}

impl Counted {
    fn new(signal: libc::c_int) -> Option<Counted> {
        // SAFETY: zero is a valid value of both; they live across the calls; the handler only adds
        // to a number.
        unsafe {
            let (mut action, mut before): (libc::sigaction, libc::sigaction) = std::mem::zeroed();
            action.sa_sigaction = came as *const () as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigfillset(&mut action.sa_mask);
            syscall_result(libc::sigaction(signal, &action, &mut before)).ok()?;
            Some(Counted { signal, before })
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // SAFETY: all live across the calls; nothing is asked back. A pending signal must not reach
        // the old action, which may end the process.
        unsafe {
            let (mut set, mut old, none): (libc::sigset_t, libc::sigset_t, libc::timespec) =
                std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, self.signal);
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut old);
            while libc::sigtimedwait(&set, std::ptr::null_mut(), &none) > 0 {}
            libc::sigaction(self.signal, &self.before, std::ptr::null_mut());
            libc::pthread_sigmask(libc::SIG_SETMASK, &old, std::ptr::null_mut());
        }
    }
}

/// Cost of a signal of the task clock for the calling thread, nanoseconds: the median gap that
/// signals leave in a loop that reads the time for about 2 ms. `None` if the event does not exist,
/// or no signal comes. `signal` must not be in use.
pub fn toll(signal: i32) -> Option<u64> {
    let _alone = ALONE.lock();
    // The kernel sends SIGIO if there is no room for the signal.
    let _counted = [Counted::new(signal)?, Counted::new(libc::SIGIO)?];
    let attr = Attr {
        sample_period: SIGNAL_PERIOD_NS,
        read_format: 0,
        ..counting(TYPE_SOFTWARE, SW_TASK_CLOCK)
    };
    let event = open_perf_event(&attr, 0, -1, -1).ok()?;
    // SAFETY: no arguments.
    signals(&event, unsafe { libc::gettid() }, signal).ok()?;
    let mut gaps = Vec::with_capacity(SIGNALS);
    let (began, mut seen) = (Instant::now(), CAME.load(Ordering::Relaxed));
    let mut last = began;
    while gaps.len() < SIGNALS && last.duration_since(began) < MAX_MEASURING_TIME {
        let mut now = Instant::now();
        let count = CAME.load(Ordering::Relaxed);
        if count != seen {
            // The signal may have come after the time was read.
            now = Instant::now();
            gaps.push(now.duration_since(last).as_nanos() as u64);
            seen = count;
        }
        last = now;
    }
    drop(event);
    upper_median(&mut gaps, u64::cmp)
}

/// Cost of two signals that a thread sends to itself, including their handler, in nanoseconds. A
/// window takes two: its trigger and the fault at its end.
pub fn handled() -> u64 {
    const SIGNAL_ROUNDS: u32 = 16;
    let _alone = ALONE.lock();
    let Some(_counted) = Counted::new(libc::SIGIO) else {
        return 0;
    };
    let mut rounds = [0u64; SIGNAL_ROUNDS as usize];
    for took in &mut rounds {
        let began = Instant::now();
        // SAFETY: a signal to this thread, which is handled.
        unsafe {
            libc::raise(libc::SIGIO);
            libc::raise(libc::SIGIO);
        }
        *took = began.elapsed().as_nanos() as u64;
    }
    upper_median(&mut rounds, u64::cmp).unwrap_or(0)
}

/// Nanoseconds of CPU time from an access to a watched word until the handler of its signal reads
/// the time, as a median. `None` where there are no watchpoints. `signal` must not be in use.
pub fn watched(signal: i32) -> Option<u64> {
    const WATCH_ROUNDS: usize = 9;
    let _alone = ALONE.lock();
    let _counted = [Counted::new(signal)?, Counted::new(libc::SIGIO)?];
    let word = AtomicU64::new(0);
    let attr = Attr {
        read_format: 0,
        sample_type: 0,
        sample_regs_user: 0,
        ..breakpoint(word.as_ptr() as u64, 8)
    };
    let event = open_perf_event(&attr, 0, -1, -1).ok()?;
    // SAFETY: no arguments.
    signals(&event, unsafe { libc::gettid() }, signal).ok()?;
    let mut took = Vec::with_capacity(WATCH_ROUNDS);
    for _ in 0..WATCH_ROUNDS {
        let before = CAME.load(Ordering::Relaxed);
        // SAFETY: integers only.
        syscall_result(unsafe { libc::ioctl(event.as_raw_fd(), IOC_ENABLE, 0) }).ok()?;
        let began = cpu_ns();
        word.load(Ordering::SeqCst);
        // (The signal comes before this thread's next instruction completes.)
        let came = CAME.load(Ordering::SeqCst) != before;
        // SAFETY: integers only.
        syscall_result(unsafe { libc::ioctl(event.as_raw_fd(), IOC_DISABLE, 0) }).ok()?;
        if came {
            took.push(CAME_AT.load(Ordering::Relaxed).saturating_sub(began));
        }
    }
    upper_median(&mut took, u64::cmp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_that_are_handled_cost_something() {
        let ns = handled();
        assert!((100..10_000_000).contains(&ns), "{ns} ns");
    }

    #[test]
    fn a_watched_access_takes_a_while_to_its_handler() {
        let Some(ns) = watched(48) else {
            return eprintln!("SKIPPED: no watchpoints here");
        };
        assert!((100..10_000_000).contains(&ns), "{ns} ns");
    }

    #[test]
    fn a_signal_costs_something_and_leaves_nothing_behind() {
        const SIGNAL: i32 = 47;
        let action = |signal| {
            // SAFETY: zero is a valid value; asks only.
            unsafe {
                let mut now: libc::sigaction = std::mem::zeroed();
                libc::sigaction(signal, std::ptr::null(), &mut now);
                now.sa_sigaction
            }
        };
        let Some(ns) = toll(SIGNAL) else {
            return eprintln!("SKIPPED: no signals of a task clock here");
        };
        // A call into the kernel takes 100 ns.
        assert!((100..10_000_000).contains(&ns), "{ns} ns");
        let _alone = ALONE.lock();
        assert_eq!(
            (action(SIGNAL), action(libc::SIGIO)),
            (libc::SIG_DFL, libc::SIG_DFL)
        );
    }
}
