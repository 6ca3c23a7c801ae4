//! Counters of loads and misses of a run. They are optional: reports show them beside predictions.

use mgz_annotations_schema::manifest::RunCounter;
use mgz_perf::kernel_linux::Linux;
use mgz_perf::run_counters::RunCounters;

/// Counts the next program that this thread starts. `None` where the machine or the kernel does not
/// let it.
pub fn open() -> Option<RunCounters<Linux>> {
    RunCounters::open(Linux::default()).ok()
}

/// The values at the end of the run.
pub fn finish(counters: RunCounters<Linux>) -> Vec<RunCounter> {
    let found = counters.finish().into_iter();
    let row = found.map(|(event, counted)| RunCounter {
        what: event.what.name().into(),
        event: format!("{}:{:#x}", event.kind, event.config),
        value: counted.value,
        enabled_ns: counted.enabled_ns,
        running_ns: counted.running_ns,
    });
    row.collect()
}

/// A line for users: what is counted on this machine, or why nothing is.
pub fn describe() -> String {
    match RunCounters::open(Linux::default()) {
        Ok(counters) => {
            let kinds = counters.kinds();
            let names: Vec<String> = kinds
                .iter()
                .map(|kind| kind.name().replace('_', " "))
                .collect();
            names.join(", ")
        }
        Err(why) => format!("none: {why}"),
    }
}
