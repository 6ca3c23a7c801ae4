//! The summary of an analysis as text, a line for each topic.

use crate::report::{Analysis, Summary, TraceInfo};
use crate::util::human::{bytes, count, counted, number, percent};
use mgz_annotations_schema::manifest::within;
use mgz_annotations_schema::{ProgramStatus, SamplingUnit, TraceMode};
use std::collections::BTreeMap;

/// `, 95 % interval 1.2M to 3.4M`.
fn interval(lo: Option<f64>, hi: Option<f64>) -> String {
    match (lo, hi) {
        (Some(lo), Some(hi)) if lo == hi => ", exact".into(),
        (Some(lo), None) => format!(", at least {}, upper end unknown", number(Some(lo))),
        (Some(lo), Some(hi)) => format!(
            ", 95 % interval {} to {}",
            number(Some(lo)),
            number(Some(hi))
        ),
        _ => ", without interval".into(),
    }
}

/// Writes the summary.
pub(crate) fn summary(analysis: &Analysis, out: &mut String) {
    let s = &analysis.summary;
    let t = &s.trace;
    let mut line = |name: &str, text: String| out.push_str(&format!("{name:<16}{text}\n"));
    line("command", t.command.join(" "));
    line("recording", recording(t));
    for sentence in &t.not_recorded {
        line("not recorded", sentence.clone());
    }
    line("samples", samples(s));
    line("loads  A", loads(s));
    line("executed", executed(s));
    if is_measured(s) {
        line("footprint  F", footprint(s));
        line("growth  ΔF", growth(s));
        line("C and S", reused(s));
        line("distance  D", distance(s));
    }
    if let Some(misses) = &s.misses {
        line("misses", crate::output::misses::summary(misses));
    }
    if let Some(stores) = &s.store_footprint {
        line(
            "stores",
            format!(
                "{} recorded, F {}, {}",
                count(stores.rows),
                counted(stores.footprint, "address", "addresses"),
                bytes(stores.bytes)
            ),
        );
    }
    if !t.dropped.is_empty() {
        line("dropped", by_cause(&t.dropped));
    }
    if !t.truncated_windows.is_empty() {
        line("short windows", by_cause(&t.truncated_windows));
    }
}

/// Numbers by cause: `lost 12, torn 3`.
fn by_cause(counts: &BTreeMap<String, u64>) -> String {
    let texts = counts.iter().map(|(k, v)| format!("{k} {}", count(*v)));
    texts.collect::<Vec<_>>().join(", ")
}

/// True if there are loads to measure.
fn is_measured(s: &Summary) -> bool {
    s.metrics.accesses > 0
}

/// Backend, mode and end of the recording.
fn recording(t: &TraceInfo) -> String {
    let sampling = sampling(t);
    format!(
        "{} backend, mode {}{sampling}, {}; program: {}",
        t.backend,
        t.mode,
        t.state,
        match &t.program_status {
            ProgramStatus::Running => "?".to_owned(),
            ended => ended.to_string(),
        }
    )
}

/// Size and period of the windows, with a comma before them; empty if there are no windows.
fn sampling(t: &TraceInfo) -> String {
    match (t.period, t.window) {
        (0, _) => String::new(),
        // Windows with a size in bytes hold any number of records.
        (period, 0) => format!(
            ", a window every {} {}",
            count(period),
            match &t.unit {
                SamplingUnit::CpuClock => "ns of CPU time",
                unit => unit.as_str(),
            }
        ),
        (period, window) if t.mode == TraceMode::Burst => format!(
            ", a window of {} records every {} loads",
            count(window),
            count(period)
        ),
        (period, window) => format!(
            ", window {} of every {} records",
            count(window),
            count(period)
        ),
    }
}

/// Number and size of the samples, and of threads and processes.
fn samples(s: &Summary) -> String {
    format!(
        "{}{}, {}, {}",
        count(s.samples),
        match (s.sample_min, s.sample_max) {
            _ if s.samples == 0 => String::new(),
            (least, most) if least == most => format!(" of {}", counted(most, "load", "loads")),
            (least, most) => format!(" of {} to {} loads", count(least), count(most)),
        },
        counted(s.threads, "thread", "threads"),
        counted(s.processes, "process", "processes")
    )
}

/// Recorded and implied loads.
fn loads(s: &Summary) -> String {
    let m = &s.metrics;
    if is_measured(s) {
        format!(
            "{} recorded + {} implied Constant ({} %), κ {}",
            count(m.accesses),
            count(m.implied),
            percent(m.implied_pct),
            number(m.kappa)
        )
    } else {
        "none recorded: there is nothing to measure".into()
    }
}

/// Executed loads of the run.
fn executed(s: &Summary) -> String {
    let (t, measured) = (&s.trace, is_measured(s));
    match (t.loads_executed, t.loads_executed_estimate, s.rho) {
        (Some(n), _, _) if !measured => counted(n, "load", "loads"),
        (Some(n), _, _) => format!("{}, ρ {}", counted(n, "load", "loads"), number(s.rho)),
        (None, Some(n), _) if let Some(from) = &t.weights_from => {
            let how = if from.exact {
                "counted"
            } else {
                "by a sample of each thread's records"
            };
            let error = match t.loads_executed_error {
                Some(e) if e >= 0.001 => format!(", {}", within(e)),
                _ => String::new(),
            };
            format!(
                "{} loads ({how} in {}, mode {}{error}), ρ {}",
                number(Some(n)),
                from.trace,
                from.mode,
                number(s.rho)
            )
        }
        (None, Some(n), _) => {
            let error = t
                .loads_executed_error
                .map_or(String::new(), |e| format!(", {}", within(e)));
            format!(
                "≈ {} loads (estimate{error}), ρ {}",
                number(Some(n)),
                number(s.rho)
            )
        }
        (None, None, None) if t.mode == TraceMode::Burst => {
            "unknown: the speed of some code was not measured, so shares are of the time; mgz-record --calibrate counts the loads"
                .into()
        }
        (None, None, _) if !measured => "unknown".into(),
        (None, None, _) => format!("unknown, ρ {} (from {})", number(s.rho), s.rho_source),
    }
}

/// Footprint of the samples and of the whole run.
fn footprint(s: &Summary) -> String {
    let m = &s.metrics;
    let vague = if s.hats.footprint_undersampled {
        "; too vague to act on"
    } else {
        ""
    };
    format!(
        "{}, {} in {} of 64 B; in the whole run ≈ {} ({} estimator{}){vague}",
        counted(m.footprint, "address", "addresses"),
        bytes(m.bytes),
        counted(m.lines64, "line", "lines"),
        number(s.hats.footprint),
        s.estimator,
        interval(s.hats.footprint_lo, s.hats.footprint_hi)
    )
}

/// Footprint growth, and its parts by class.
fn growth(s: &Summary) -> String {
    let m = &s.metrics;
    format!(
        "{} new addresses per load; {} % Strided, {} % Irregular",
        number(m.growth),
        percent(m.growth_strided_pct),
        percent(m.growth_irregular_pct)
    )
}

/// Addresses with reuse and without.
fn reused(s: &Summary) -> String {
    let m = &s.metrics;
    format!(
        "{} with reuse, {} without",
        counted(m.captures, "address", "addresses"),
        count(m.survivals)
    )
}

/// Reuse distance inside samples.
fn distance(s: &Summary) -> String {
    let m = &s.metrics;
    format!(
        "{} ({}, {}, inside samples)",
        match m.distance_max {
            Some(most) => format!(
                "mean {}, max {} blocks of {}; mean interval {} loads",
                number(m.distance_mean),
                count(most),
                bytes(s.block),
                number(m.interval_mean)
            ),
            None => format!("none: no block of {} was used twice", bytes(s.block)),
        },
        counted(m.reuses, "reuse", "reuses"),
        counted(
            m.first_touches,
            "first touch of a block",
            "first touches of blocks"
        )
    )
}
