//! A trial on a child of our own: it checks that watchpoints work here, and measures the cost of a
//! stop and of a hit.

use crate::watch::events::{Events, WatchTrigger};
use crate::watch::ptrace;
use crate::watch::sampler::{Clock, Costs, WORD};
use mgz_models::statistics::upper_median;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// Why threads cannot be watched here, as sentences with remedies.
#[derive(Debug, thiserror::Error)]
pub enum Obstacle {
    /// Tracing.
    #[error(
        "this machine does not let a process trace its children ({0}): a container's seccomp filter may forbid ptrace, or kernel.yama.ptrace_scope is 3; allow it, or record with --mode ring and use `mgz-analyze reuse --rdx` on a full trace"
    )]
    Trace(io::Error),
    /// Events.
    #[error(
        "this machine refuses the perf event that stops threads ({0}): set kernel.perf_event_paranoid to 2 or less, or allow perf_event_open in the container"
    )]
    Trigger(io::Error),
    /// Watchpoints.
    #[error(
        "this machine refuses hardware watchpoints ({0}): the hypervisor or a debugger may have taken the debug registers; record with --mode full and use `mgz-analyze reuse --rdx` on the trace"
    )]
    Watchpoint(io::Error),
    /// Watchpoints are accepted but never fire.
    #[error(
        "hardware watchpoints are accepted here and never fire (some hypervisors do not pass debug registers on); record with --mode full and use `mgz-analyze reuse --rdx` on the trace"
    )]
    Silent,
    /// Something else.
    #[error("the trial of watchpoints failed: {0}")]
    Other(#[from] io::Error),
}

static WATCHED: AtomicU64 = AtomicU64::new(0);
/// Stops and hits that are timed. Source: Chosen.
const CALIBRATION_ROUNDS: usize = 24;

/// Measures the cost of stops and of hits.
pub fn calibrate(trigger: &WatchTrigger) -> Result<Costs, Obstacle> {
    let child = Child::start(trigger.signal)?;
    ptrace::seize(child.0).map_err(Obstacle::Trace)?;
    // The trial is too short to reach this period.
    let quiet = WatchTrigger {
        period: 1 << 40,
        ..trigger.clone()
    };
    let mut events = Events::open(&quiet, child.0, 1).map_err(Obstacle::Trigger)?;
    let (mut stops, mut hits, mut hit_stops) = (Vec::new(), Vec::new(), Vec::new());
    let mut before: Option<Clock> = None;
    let mut round = 0;
    while round < 2 * CALIBRATION_ROUNDS {
        let (_, status) = ptrace::wait(child.0)?;
        if !libc::WIFSTOPPED(status) {
            return Err(io::Error::other("the child ended").into());
        }
        let begin = events.clock()?;
        let since = |now: Clock| before.map(|before| now.cpu_ns.saturating_sub(before.cpu_ns));
        let hit = events.hits().into_iter().next();
        events.unwatch(0);
        match hit {
            Some((_, hit)) => {
                hits.extend(since(hit.clock));
                hit_stops.extend(since(begin));
            }
            None => {
                if round <= CALIBRATION_ROUNDS {
                    stops.extend(since(begin));
                }
                // Stops by hits also come between rounds.
                round += 1;
                if round > CALIBRATION_ROUNDS {
                    events
                        .watch(0, WATCHED.as_ptr() as u64, WORD)
                        .map_err(Obstacle::Watchpoint)?;
                }
            }
        }
        before = Some(events.clock()?);
        ptrace::resume(child.0, 0);
    }
    if hits.len() < CALIBRATION_ROUNDS / 2 {
        return Err(Obstacle::Silent);
    }
    Ok(Costs {
        hit_ns: median(&mut hits),
        hit_stop_ns: median(&mut hit_stops),
        stop_ns: median(&mut stops),
    })
}

fn median(list: &mut [u64]) -> u64 {
    upper_median(list, u64::cmp).unwrap_or(0)
}

/// A child that sends itself the signal and touches the word in an endless loop. Killed when
/// dropped.
struct Child(i32);

impl Child {
    fn start(signal: i32) -> io::Result<Child> {
        // SAFETY: the child makes system calls and touches a static only, and never returns.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above. A tracer sees a signal even if it is ignored.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::signal(signal, libc::SIG_IGN);
                let own = libc::getpid();
                loop {
                    libc::syscall(libc::SYS_tgkill, own, own, signal);
                    WATCHED.store(
                        WATCHED.load(Ordering::Relaxed).wrapping_add(1),
                        Ordering::Relaxed,
                    );
                }
            }
        }
        if child < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(Child(child))
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: our own child, not yet waited for.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
        while let Ok((_, status)) = ptrace::wait(self.0) {
            if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_and_hits_cost_microseconds_where_they_work() {
        let trigger = WatchTrigger {
            period: 10_000_000,
            signal: 61,
            counters: None,
        };
        match calibrate(&trigger) {
            Ok(costs) => assert!(
                costs.hit_ns <= costs.hit_stop_ns
                    && costs.hit_stop_ns < 1_000_000
                    && (100..1_000_000).contains(&costs.stop_ns),
                "{costs:?}"
            ),
            Err(obstacle) => eprintln!("left out: {obstacle}"),
        }
    }
}
