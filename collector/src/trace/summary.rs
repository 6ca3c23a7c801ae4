//! The line at the end: the recorded data, the losses, and the size.

use crate::util::text::{bytes, count};
use mgz_annotations_schema::TraceMode;
use mgz_annotations_schema::coverage;
use mgz_annotations_schema::manifest::{Manifest, Module, Phases, within};
use std::fmt::Write;

fn pairs(map: &std::collections::BTreeMap<String, u64>) -> String {
    let all: Vec<String> = map
        .iter()
        .filter(|(_, n)| **n > 0)
        .map(|(what, n)| format!("{} {}", count(*n as f64), what.replace('_', " ")))
        .collect();
    all.join(", ")
}

/// The same for people who see the analysis next.
pub fn brief(manifest: &Manifest) -> String {
    let t = &manifest.totals;
    let how = if manifest.program_status.is_empty() {
        &manifest.state
    } else {
        &manifest.program_status
    };
    let windows = match (manifest.mode.has_all_loads(), t.samples) {
        (true, _) => String::new(),
        (_, 1) => " in 1 window".into(),
        (_, n) => format!(" in {} windows", count(n as f64)),
    };
    let cost = match slowdown(manifest) {
        Some(share) => format!(
            ", recording cost about {:.1}% of the CPU time",
            100.0 * share
        ),
        None => String::new(),
    };
    let heap = heap_off(manifest);
    format!(
        "mgz-record: {how} after {:.2} s: {} loads recorded{windows}{cost}{heap}",
        manifest.wall_seconds,
        count(t.rows.saturating_sub(t.stores.unwrap_or(0)) as f64),
    )
}

/// One line, without its end.
pub fn summary_line(manifest: &Manifest, trace: &str) -> String {
    let t = &manifest.totals;
    let how = if manifest.program_status.is_empty() {
        &manifest.state
    } else {
        &manifest.program_status
    };
    let mut line = format!("mgz-record: {how}: {}", content(manifest));
    let truncated = pairs(&t.truncated_windows);
    if !truncated.is_empty() {
        let _ = write!(line, " (shorter than asked: {truncated})");
    }
    let dropped = pairs(&t.dropped);
    let _ = write!(
        line,
        ", dropped: {}",
        if dropped.is_empty() { "none" } else { &dropped }
    );
    let size = if manifest.data == "spill" {
        t.spill_bytes
    } else {
        t.sample_bytes
    };
    let _ = write!(line, ", {} in {trace}", bytes(size));
    if !manifest.program_status.is_empty() {
        let _ = write!(line, ", {:.2} s{}", manifest.wall_seconds, cost(manifest));
    }
    line.push_str(&heap_off(manifest));
    if let Some(phases) = &manifest.phases {
        let _ = write!(line, ", {}", of_phases(phases, manifest.cpu_seconds));
    }
    line
}

/// Executed and recorded loads, windows, and memory samples.
fn content(manifest: &Manifest) -> String {
    let samples = manifest.totals.samples;
    let windows = format!(
        "{}, {} sample{}",
        recorded(manifest),
        count(samples as f64),
        if samples == 1 { "" } else { "s" }
    );
    let measured = manifest.measured.as_ref().map(|measured| {
        format!(
            "{} memory samples ({} of loads)",
            count(measured.samples as f64),
            count(measured.loads as f64)
        )
    });
    match (measured, executed(manifest)) {
        // There was nothing else to record.
        (Some(measured), _) if manifest.backend == "perf" => measured,
        (measured, executed) => {
            let parts = executed.into_iter().chain([windows]).chain(measured);
            parts.collect::<Vec<_>>().join(", ")
        }
    }
}

/// Reason that no heap blocks were logged, behind a comma.
fn heap_off(manifest: &Manifest) -> String {
    match manifest.heap.off.as_str() {
        "" => String::new(),
        why => format!(", heap off ({why})"),
    }
}

/// The number of loads that were executed, as far as it is known. `None`: windows by time do not
/// show it.
fn executed(manifest: &Manifest) -> Option<String> {
    let t = &manifest.totals;
    let is_count = manifest.mode == TraceMode::Count;
    let is_burst = manifest.mode == TraceMode::Burst;
    let unknown = "loads executed unknown";
    Some(match (t.loads_executed, t.loads_executed_estimate) {
        (Some(exact), _) => {
            let at_least = match is_complete(manifest) {
                true => "",
                false => "at least ",
            };
            let how = if is_count { "counted" } else { "executed" };
            format!("{at_least}{} loads {how}", count(exact as f64))
        }
        (None, None) if is_count => unknown.into(),
        (None, Some(estimate)) => estimated(manifest, estimate),
        (None, None) if is_burst && manifest.data != "spill" && t.rows > 0 => return None,
        (None, None) if t.records_executed == 0 && t.records_kept > 0 => unknown.into(),
        (None, None) => format!(
            "{} records written by probes",
            count(t.records_executed as f64)
        ),
    })
}

/// The estimated number of loads that were executed, with its basis.
fn estimated(manifest: &Manifest, estimate: f64) -> String {
    let t = &manifest.totals;
    let loads = format!("~{} loads executed", count(estimate));
    if manifest.mode == TraceMode::Burst {
        let error = t
            .loads_executed_error
            .map_or(String::new(), |e| format!(", {}", within(e)));
        let basis = if manifest.triggers_by_loads() {
            "by the number of triggers"
        } else {
            "by how fast the code of the windows runs"
        };
        return format!("{loads} ({basis}{error})");
    }
    // An import knows only how often a sample was taken.
    if t.records_executed == 0 {
        let every = match manifest.period {
            0 => manifest.trigger_why.clone(),
            period => format!("a sample every {} of them", count(period as f64)),
        };
        return format!("{loads} in all code ({every})");
    }
    format!(
        "{loads} ({} records × the {:.2} loads per record in the windows)",
        count(t.records_executed as f64),
        estimate / t.records_executed as f64
    )
}

/// The number of loads and stores that were recorded.
fn recorded(manifest: &Manifest) -> String {
    let t = &manifest.totals;
    if manifest.data == "spill" {
        return format!("{} records kept", count(t.records_kept as f64));
    }
    let stores = t.stores.unwrap_or(0);
    let loads = t.rows.saturating_sub(stores);
    let mut text = format!("{} recorded", count(loads as f64));
    if t.implied_const > 0 {
        let _ = write!(
            text,
            " (+ {} implied constant)",
            count(t.implied_const as f64)
        );
    }
    if stores > 0 {
        let _ = write!(text, ", {} stores recorded", count(stores as f64));
    }
    text
}

/// True if no load of an instrumented file's functions can have been executed unseen.
fn is_complete(manifest: &Manifest) -> bool {
    let late = |m: &Module| m.not_instrumented.entered_late + m.not_instrumented.functions > 0;
    let unseen = |cause: &str| manifest.totals.dropped.get(cause).is_some_and(|n| *n > 0);
    !manifest.modules.iter().any(late)
        && !["jumps_unseen", "entries_taken_back"]
            .into_iter()
            .any(unseen)
}

/// The part of the run that all numbers cover.
fn of_phases(phases: &Phases, whole: f64) -> String {
    let share = if whole > 0.0 {
        format!(
            " ({:.0}% of the program's)",
            100.0 * (phases.cpu_seconds / whole).min(1.0)
        )
    } else {
        String::new()
    };
    format!(
        "only in {} phase{} of {:.3} s CPU time{share}",
        count(phases.count as f64),
        if phases.count == 1 { "" } else { "s" },
        phases.cpu_seconds
    )
}

/// Share of the program's CPU time that recording took, if that is known. It is an estimate, from
/// the time that the runtime spent.
fn slowdown(manifest: &Manifest) -> Option<f64> {
    let own = manifest.cpu_seconds - manifest.recording_seconds;
    (manifest.recording_seconds > 0.0 && own > 0.0).then(|| manifest.recording_seconds / own)
}

/// Cost of the recording, if it was measured, behind a comma.
fn cost(manifest: &Manifest) -> String {
    match slowdown(manifest) {
        Some(share) => format!(
            ", recording cost about {:.1}% ({:.0} ms of CPU time, estimated)",
            100.0 * share,
            1e3 * manifest.recording_seconds
        ),
        None => String::new(),
    }
}

/// The same as one line of JSON.
pub fn json(manifest: &Manifest, trace: &str) -> String {
    serde_json::json!({
        "trace": trace,
        "state": manifest.state,
        "program_status": manifest.program_status,
        "mode": manifest.mode,
        "backend": manifest.backend,
        "measured": manifest.measured,
        "backend_why": manifest.backend_why,
        "wall_seconds": manifest.wall_seconds,
        "slowdown": slowdown(manifest).map(|share| 1.0 + share),
        "recording_seconds": (manifest.recording_seconds > 0.0).then_some(manifest.recording_seconds),
        "data": manifest.data,
        "totals": manifest.totals,
        "phases": manifest.phases,
        "problems": manifest.problems,
        "no_samples": manifest.no_samples,
        "coverage": manifest.coverage,
        "not_recorded": coverage::sentences(manifest),
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mgz_annotations_schema::manifest::Totals;

    #[test]
    fn numbers_read_well() {
        assert_eq!(count(0.0), "0");
        assert_eq!(count(99_999.0), "99,999");
        assert_eq!(count(123_456.0), "123k");
        assert_eq!(count(1_234_567.0), "1.23M");
        assert_eq!(count(999_999.0), "1.00M");
        assert_eq!(count(45_600_000_000.0), "45.6G");
        assert_eq!(bytes(17), "17 B");
        assert_eq!(bytes(2048), "2.00 KiB");
        assert_eq!(bytes(5 << 30), "5.00 GiB");
    }

    #[test]
    fn the_line_says_what_is_exact_and_what_is_estimated() {
        let mut m = Manifest {
            program_status: "exit 0".into(),
            wall_seconds: 1.25,
            data: "samples".into(),
            ..Manifest::default()
        };
        m.totals = Totals {
            records_executed: 500,
            loads_executed: Some(1200),
            rows: 1000,
            implied_const: 200,
            samples: 1,
            sample_bytes: 4096,
            ..Totals::default()
        };
        assert_eq!(
            summary_line(&m, "trace"),
            "mgz-record: exit 0: 1,200 loads executed, 1,000 recorded (+ 200 implied constant), 1 sample, dropped: none, 4.00 KiB in trace, 1.25 s"
        );
        m.modules = vec![Module::default()];
        m.modules[0].not_instrumented.functions = 1;
        assert!(summary_line(&m, "trace").contains("at least 1,200 loads executed"));
        m.modules.clear();
        (m.cpu_seconds, m.recording_seconds) = (1.212, 0.012);
        assert!(
            summary_line(&m, "trace")
                .ends_with(", 1.25 s, recording cost about 1.0% (12 ms of CPU time, estimated)")
        );
        m.recording_seconds = 0.0;
        m.totals.loads_executed = None;
        m.totals.loads_executed_estimate = Some(1250.0);
        m.totals.dropped.insert("no_space".into(), 7);
        m.totals.truncated_windows.insert("end_of_thread".into(), 2);
        let line = summary_line(&m, "trace");
        assert!(
            line.contains(
                "~1,250 loads executed (500 records × the 2.50 loads per record in the windows)"
            ),
            "{line}"
        );
        assert!(
            line.contains("(shorter than asked: 2 end of thread), dropped: 7 no space"),
            "{line}"
        );
        m.totals.records_executed = 0;
        m.totals.records_kept = 500;
        m.period = 100;
        assert!(summary_line(&m, "trace").contains(
            "~1,250 loads executed in all code (a sample every 100 of them), 1,000 recorded"
        ));
        (m.period, m.trigger_why) = (0, "3 samples every 100 loads".into());
        assert!(
            summary_line(&m, "trace")
                .contains("loads executed in all code (3 samples every 100 loads), ")
        );
        m.totals.loads_executed_estimate = None;
        assert!(summary_line(&m, "trace").contains("loads executed unknown, 1,000 recorded"));
        m.mode = TraceMode::Burst;
        assert!(summary_line(&m, "trace").contains("exit 0: 1,000 recorded"));
        m.program_status.clear();
        m.state = "interrupted".into();
        assert!(
            summary_line(&m, "trace").starts_with("mgz-record: interrupted: ")
                && summary_line(&m, "trace").ends_with("4.00 KiB in trace"),
            "nothing is known of the program's end"
        );
        let value: serde_json::Value = serde_json::from_str(&json(&m, "trace")).unwrap();
        assert_eq!(value["totals"]["rows"], 1000);
    }
}
