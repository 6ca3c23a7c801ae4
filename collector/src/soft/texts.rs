//! Messages about a run, in words.

use crate::machine::trigger::WindowTrigger;
use mgz_abi::shared_memory::{TRIGGER_EVENT, TRIGGER_LOADS, TRIGGER_TIMER};
use mgz_annotations_schema::TriggerEvent;
use std::time::Duration;

/// The event that begins windows, and its description for the manifest: from the request, and from
/// the source that the kernel gave the runtime. `None` if nothing begins windows.
pub fn trigger_source(got: u32, asked: Option<WindowTrigger>) -> Option<(TriggerEvent, String)> {
    let has = |property: fn(&WindowTrigger) -> bool| asked.as_ref().is_some_and(property);
    let (event, description) = match got {
        TRIGGER_EVENT => (
            TriggerEvent::CpuTime,
            "cpu time (perf_event, user space only)",
        ),
        TRIGGER_TIMER if has(|t| t.budget.is_some() && t.costs.has_events()) => (
            TriggerEvent::CpuTimeAtTicks,
            "cpu time (perf_event, user space only, then POSIX timers at the kernel's tick)",
        ),
        TRIGGER_TIMER if has(|t| t.tick != 0) => (
            TriggerEvent::CpuTimeAtTicks,
            "cpu time (POSIX timers, at the kernel's tick)",
        ),
        TRIGGER_TIMER => (
            TriggerEvent::CpuTimeByTimers,
            "cpu time (POSIX timers, at most at the kernel's tick)",
        ),
        TRIGGER_LOADS => return asked.map(|t| t.source()),
        _ => return None,
    };
    Some((event, description.to_owned()))
}

/// Message about threads whose processes outlived the program by more than the grace.
pub fn outlived(threads: u64, grace: Duration) -> String {
    format!(
        "{threads} threads of processes that outlived the program were recorded only until {} ms after its end; they run on unrecorded (remedy: let the program wait for its children)",
        grace.as_millis()
    )
}

/// Message about threads that could not be sampled in `burst`.
pub fn without_trigger(threads: u64, by_loads: bool) -> Option<String> {
    (threads > 0).then(|| match by_loads {
        true => format!(
            "{threads} threads were not sampled: the kernel refuses the event that counts loads (a seccomp filter, the limit on open files, or other users of the counters, perhaps; remedy: allow it, or let CPU time begin windows with --trigger cpu-time)"
        ),
        false => format!(
            "{threads} threads were not sampled: the kernel refuses both perf_event_open and timers on a thread's CPU clock (a seccomp filter, perhaps, or the limit on open files; remedy: allow one of them, or record with --mode ring)"
        ),
    })
}

/// Message that the thread that unwinds stacks has failed.
pub(crate) const NO_PATHS: &str = "call paths are missing: unwinding the copies of stacks failed in the recorder; --no-stacks records without them";
