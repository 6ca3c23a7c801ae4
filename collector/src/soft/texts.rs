//! Messages about a run, in words.

use crate::machine::trigger::WindowTrigger;
use mgz_abi::shared_memory::{TRIGGER_EVENT, TRIGGER_LOADS, TRIGGER_TIMER};
use std::time::Duration;

/// Source of windows for `trigger` of the manifest: from the request, and from the source that the
/// kernel gave the runtime. Empty if nothing begins windows.
pub fn trigger_source(got: u32, asked: Option<WindowTrigger>) -> String {
    match got {
        TRIGGER_EVENT => "cpu time (perf_event, user space only)".to_owned(),
        TRIGGER_TIMER if asked.is_some_and(|t| t.budget.is_some() && t.costs.has_events()) => {
            "cpu time (perf_event, user space only, then POSIX timers at the kernel's tick)"
                .to_owned()
        }
        TRIGGER_TIMER if asked.is_some_and(|t| t.tick != 0) => {
            "cpu time (POSIX timers, at the kernel's tick)".to_owned()
        }
        TRIGGER_TIMER => format!("cpu time (POSIX timers, {AT_MOST})"),
        TRIGGER_LOADS => asked.map_or_else(String::new, |t| t.source()),
        _ => String::new(),
    }
}

/// Message about threads whose processes outlived the program by more than the grace.
pub fn outlived(threads: u64, grace: Duration) -> String {
    format!(
        "{threads} threads of processes that outlived the program were recorded only until {} ms after its end; they run on unrecorded (remedy: let the program wait for its children)",
        grace.as_millis()
    )
}

/// Text in `trigger` of the manifest for timers whose requested rate may exceed that of the
/// kernel's checks.
pub const AT_MOST: &str = "at most at the kernel's tick";

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
