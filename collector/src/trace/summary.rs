//! The line at the end: the recorded amount, the time, the cost, the size and the losses. The
//! manifest and `--format json` have the rest.

use crate::util::text::{bytes, count};
use mgz_annotations_schema::coverage;
use mgz_annotations_schema::manifest::{Manifest, Module, Phases};
use mgz_annotations_schema::{ProgramStatus, RowsIn, TraceBackend, TraceMode};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Lost data at the edges of windows, which every trace of windows has.
const EDGES: [&str; 2] = ["torn_loads", "cut_loads"];

/// Lost data by cause, without the edges of windows.
fn lost(dropped: &BTreeMap<String, u64>) -> String {
    let all: Vec<String> = dropped
        .iter()
        .filter(|(what, n)| **n > 0 && !EDGES.contains(&what.as_str()))
        .map(|(what, n)| format!("{} {}", count(*n as f64), what.replace('_', " ")))
        .collect();
    all.join(", ")
}

/// The line of a run whose analysis follows.
pub fn brief(manifest: &Manifest) -> String {
    format!(
        "mgz-record: {}{}",
        recorded_in(manifest),
        heap_off(manifest)
    )
}

/// One line, without its end.
pub fn summary_line(manifest: &Manifest, trace: &str) -> String {
    let t = &manifest.totals;
    let size = match manifest.data {
        RowsIn::Spill => t.spill_bytes,
        RowsIn::Samples | RowsIn::Watch | RowsIn::Unknown(_) => t.sample_bytes,
    };
    let mut line = format!(
        "mgz-record: {}, {} in {trace}",
        recorded_in(manifest),
        bytes(size)
    );
    let lost = lost(&t.dropped);
    if !lost.is_empty() {
        let _ = write!(line, ", lost: {lost}");
    }
    line.push_str(&heap_off(manifest));
    if let Some(phases) = &manifest.phases {
        let _ = write!(line, ", {}", of_phases(phases, manifest.cpu_seconds));
    }
    line
}

/// The recorded amount, the time of the run and the cost, after the program's status if that is
/// unusual.
fn recorded_in(manifest: &Manifest) -> String {
    let mut text = match &manifest.program_status {
        ProgramStatus::Exited(0) => String::new(),
        ProgramStatus::Running => format!("{}: ", manifest.state),
        ProgramStatus::RunsOn => "the program runs on; ".into(),
        ProgramStatus::Ended => "the program ended; ".into(),
        by @ ProgramStatus::EndedBy(_) => format!("the program was {by}; "),
        status @ (ProgramStatus::Exited(_)
        | ProgramStatus::Signaled(_)
        | ProgramStatus::Unknown(_)) => format!("the program ended with {status}; "),
    };
    text.push_str(&recorded(manifest));
    if manifest.program_status != ProgramStatus::Running {
        let _ = write!(text, " in {:.2} s", manifest.wall_seconds);
    }
    if let Some(share) = slowdown(manifest) {
        let _ = write!(text, " (cost about {:.1} %)", 100.0 * share);
    }
    text
}

/// Reason that no heap blocks were logged, after a comma.
fn heap_off(manifest: &Manifest) -> String {
    match manifest.heap.off.as_str() {
        "" => String::new(),
        why => format!(", heap off ({why})"),
    }
}

/// The recorded amount, with memory samples of the processor.
fn recorded(manifest: &Manifest) -> String {
    let measured = manifest.measured.as_ref().map(|measured| {
        format!(
            "{} memory samples ({} of loads)",
            count(measured.samples as f64),
            count(measured.loads as f64)
        )
    });
    match measured {
        None => recorded_loads(manifest),
        // There was nothing else to record.
        Some(measured) if manifest.backend == TraceBackend::Perf => format!("recorded {measured}"),
        Some(measured) => format!("{} and {measured}", recorded_loads(manifest)),
    }
}

/// The recorded amount: windows, or loads where all of them are recorded.
fn recorded_loads(manifest: &Manifest) -> String {
    let t = &manifest.totals;
    let loads = t.rows.saturating_sub(t.stores.unwrap_or(0)) + t.implied_const;
    if manifest.mode == TraceMode::Count {
        return match t.loads_executed {
            Some(loads) if is_complete(manifest) => format!("counted {}", counted(loads, "load")),
            Some(loads) => format!("counted at least {}", counted(loads, "load")),
            None => "counted loads, not all of them".into(),
        };
    }
    if manifest.data == RowsIn::Spill {
        return format!("kept {}", counted(t.records_kept, "record"));
    }
    let mut text = match manifest.mode.has_all_loads() {
        true => format!("recorded {}", counted(loads, "load")),
        false => format!("recorded {}", counted(t.samples, "window")),
    };
    if let (false, Some(all)) = (manifest.mode.has_all_loads(), executed(manifest)) {
        let _ = write!(
            text,
            " ({} of about {} loads)",
            count(loads as f64),
            count(all)
        );
    }
    if let Some(stores) = t.stores.filter(|n| *n > 0) {
        let _ = write!(text, " and {}", counted(stores, "store"));
    }
    if manifest.mode.has_all_loads() && !is_complete(manifest) {
        text.push_str(" (not all that were executed)");
    }
    text
}

/// False if loads of instrumented files may have run unseen.
fn is_complete(manifest: &Manifest) -> bool {
    let late = |m: &Module| m.not_instrumented.entered_late + m.not_instrumented.functions > 0;
    let unseen = |cause: &str| manifest.totals.dropped.get(cause).is_some_and(|n| *n > 0);
    let causes = ["jumps_unseen", "entries_taken_back"];
    !manifest.modules.iter().any(late) && !causes.into_iter().any(unseen)
}

/// Number of executed loads, unless it depends on the speed of code, which is known only within a
/// factor.
fn executed(manifest: &Manifest) -> Option<f64> {
    let is_by_speed = manifest.mode == TraceMode::Burst && !manifest.triggers_by_loads();
    let estimate = manifest.totals.loads_executed_estimate;
    estimate.filter(|_| !is_by_speed)
}

fn counted(n: u64, one: &str) -> String {
    format!("{} {one}{}", count(n as f64), if n == 1 { "" } else { "s" })
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
        "only in {} phase{} with {:.3} s of CPU time{share}",
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

/// All of it as one line of JSON.
pub fn json(manifest: &Manifest, trace: &str) -> String {
    serde_json::json!({
        "trace": trace,
        "state": manifest.state,
        "program_status": manifest.program_status,
        "mode": manifest.mode,
        "backend": manifest.backend,
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
    use mgz_annotations_schema::TraceState;
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
    fn the_line_says_what_was_recorded() {
        let mut m = Manifest {
            mode: TraceMode::Full,
            program_status: ProgramStatus::Exited(0),
            wall_seconds: 1.25,
            data: RowsIn::Samples,
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
        let line = |m: &Manifest| summary_line(m, "trace");
        assert_eq!(
            line(&m),
            "mgz-record: recorded 1,200 loads in 1.25 s, 4.00 KiB in trace"
        );
        m.totals.dropped = [("torn_loads".into(), 3), ("no_space".into(), 7)].into();
        assert!(line(&m).ends_with(" in trace, lost: 7 no space"));
        m.totals.dropped.clear();

        m.mode = TraceMode::Ring;
        m.totals.loads_executed = None;
        m.totals.loads_executed_estimate = Some(1_250_000.0);
        m.totals.stores = Some(100);
        assert!(
            line(&m).contains(
                ": recorded 1 window (1,100 of about 1.25M loads) and 100 stores in 1.25 s"
            )
        );

        // The speed of code is known only within a factor.
        m.mode = TraceMode::Burst;
        (m.totals.samples, m.totals.stores) = (782, None);
        (m.cpu_seconds, m.recording_seconds) = (1.212, 0.018);
        assert_eq!(
            brief(&m),
            "mgz-record: recorded 782 windows in 1.25 s (cost about 1.5 %)"
        );
        m.program_status = ProgramStatus::Signaled(11);
        assert!(line(&m).starts_with("mgz-record: the program ended with signal 11; recorded 782"));

        (m.mode, m.totals.loads_executed) = (TraceMode::Count, Some(1200));
        assert!(line(&m).contains("; counted 1,200 loads in 1.25 s"));
    }

    #[test]
    fn nothing_is_said_of_an_end_that_nobody_saw() {
        let mut m = Manifest {
            mode: TraceMode::Burst,
            state: TraceState::Interrupted,
            data: RowsIn::Samples,
            ..Manifest::default()
        };
        m.totals.rows = 1000;
        m.totals.samples = 2;
        assert_eq!(
            summary_line(&m, "trace"),
            "mgz-record: interrupted: recorded 2 windows, 0 B in trace"
        );
        m.data = RowsIn::Spill;
        m.totals.records_kept = 500;
        assert!(summary_line(&m, "trace").contains("interrupted: kept 500 records, "));
        let value: serde_json::Value = serde_json::from_str(&json(&m, "trace")).unwrap();
        assert_eq!(value["totals"]["rows"], 1000);
    }
}
