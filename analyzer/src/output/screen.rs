//! The text that is printed unless `--all` asks for every table: verdicts first, then the tables that matter, on one screen.

use crate::output::elided::elided;
use crate::output::text::{Style, head, tail};
use crate::output::verdicts;
use crate::report::{Analysis, Loads};
use crate::util::human::{bytes, count, counted, number, percent};

/// Lines of a screen.
const LINES: usize = 40;
/// Lines that tables take at least: two headings each, a row or more, and what is empty.
const TABLES: usize = 12;
/// Lines about what is not recorded at most.
const MISSING: usize = 6;
/// Findings that are told in full at most.
const IN_FULL: usize = 3;

/// The screen. `has_report`: the tables that are left out can be looked at elsewhere.
pub fn screen(analysis: &Analysis, style: Style, has_report: bool) -> String {
    let width = usize::from(style.width.unwrap_or(110)).clamp(80, 120);
    let mut lines = run(analysis, width);
    lines.push(String::new());
    let room = LINES - TABLES - lines.len();
    lines.extend(findings(analysis, width, room));
    if analysis.summary.metrics.accesses > 0 {
        let left = LINES.saturating_sub(lines.len() + 2);
        let rows = style.rows.min(left.saturating_sub(4) / 2);
        lines.extend(functions(analysis, width, rows));
        lines.extend(source(analysis, width, rows));
    }
    if !has_report {
        lines.push(String::new());
        lines.push("Every table: --all. Objects, time and memory regions: --zoom. For programs: --format json.".into());
    }
    let cut: Vec<String> = lines.iter().map(|l| head(l.trim_end(), width)).collect();
    format!("{}\n", cut.join("\n"))
}

/// What ran and how it was recorded.
fn run(analysis: &Analysis, width: usize) -> Vec<String> {
    let s = &analysis.summary;
    let t = &s.trace;
    let mut lines = vec![head(&format!("command   {}", t.command.join(" ")), width)];
    let loads = match (t.loads_executed, t.loads_executed_estimate) {
        (Some(n), _) => format!("; {} executed", counted(n, "load", "loads")),
        (None, Some(n)) => format!("; ≈ {} loads executed", number(Some(n))),
        _ => String::new(),
    };
    lines.push(format!(
        "recorded  {}, mode {}, {}, {}, {}{loads}",
        if t.mode == "full" {
            counted(s.metrics.accesses, "load", "loads")
        } else {
            format!(
                "{} of {} loads",
                counted(s.samples, "window", "windows"),
                number(s.sample_mean)
            )
        },
        t.mode,
        t.state,
        counted(s.threads, "thread", "threads"),
        if s.processes == 1 {
            "1 process".to_string()
        } else {
            format!("{} processes", count(s.processes))
        },
    ));
    if let Some(filter) = &analysis.filter {
        let mut text = String::new();
        crate::output::text_threads::filter(filter, &mut text);
        lines.extend(text.lines().filter(|l| !l.is_empty()).map(str::to_string));
    }
    let mut missing = Vec::new();
    for sentence in &t.not_recorded {
        missing.extend(verdicts::wrapped(&format!("Missing: {sentence}"), width));
    }
    if missing.len() > MISSING {
        missing.truncate(MISSING - 1);
        missing.push("    … more: --all".into());
    }
    lines.extend(missing);
    if !t.dropped.is_empty() {
        let lost: u64 = t.dropped.values().sum();
        lines.push(format!("dropped   {} (--all tells why)", count(lost)));
    }
    if s.metrics.accesses > 0 {
        let hats = &s.hats;
        lines.push(format!(
            "memory    about {} {} in use in the whole run{}, {} of 64 bytes seen",
            number(hats.footprint),
            if hats.footprint == Some(1.0) {
                "address"
            } else {
                "addresses"
            },
            if hats.footprint_undersampled {
                " (too vague to act on)"
            } else {
                ""
            },
            counted(s.metrics.lines64, "line", "lines"),
        ));
        if let Some(misses) = &s.misses {
            lines.push(format!(
                "misses    {}",
                crate::output::misses::of_run(misses)
            ));
        }
    } else {
        lines.push("loads     none recorded: there is nothing to measure".into());
    }
    lines
}

/// Findings: the first in full, as far as there is room, the others in short.
fn findings(analysis: &Analysis, width: usize, room: usize) -> Vec<String> {
    let mut lines = vec![verdicts::HEADING.to_string()];
    if analysis.diagnoses.is_empty() {
        lines.extend(verdicts::wrapped(&verdicts::none(analysis), width));
        return lines;
    }
    let all = analysis.diagnoses.len();
    for (number, finding) in analysis.diagnoses.iter().enumerate() {
        let full = verdicts::full(number + 1, finding, width);
        let short = verdicts::short(number + 1, finding, width);
        let next = if number < IN_FULL && lines.len() + full.len() < room {
            full
        } else {
            short
        };
        if lines.len() + next.len() > room {
            lines.push(format!("… {} more: --all", all - number));
            break;
        }
        lines.extend(next);
    }
    lines
}

/// The cells that tables of the screen have.
fn cells(loads: &Loads, by_time: bool) -> String {
    let share = if by_time {
        let range = match (loads.time.lo, loads.time.hi) {
            (Some(lo), Some(hi)) => format!("{}–{}", percent(Some(lo)), percent(Some(hi))),
            _ => "–".into(),
        };
        format!("{:>6}{range:>12}", percent(loads.time.value))
    } else {
        format!("{:>6}", percent(loads.share))
    };
    let lines = loads.hats.lines64.unwrap_or(loads.metrics.lines64 as f64);
    format!(
        "{share}{:>8}{:>8}{:>9}",
        percent(loads.metrics.first_pct),
        number(loads.metrics.distance_mean),
        bytes((lines * 64.0) as u64),
    )
}

fn heads(by_time: bool) -> String {
    let share = if by_time {
        format!("{:>6}{:>12}", "time%", "95 %")
    } else {
        format!("{:>6}", "loads%")
    };
    format!("{share}{:>8}{:>8}{:>9}", "first%", "D", "memory")
}

fn functions(analysis: &Analysis, width: usize, rows: usize) -> Vec<String> {
    let by_time = analysis.summary.trace.by_time;
    let heads = heads(by_time);
    let name = width - heads.chars().count() - 1;
    let mut lines = vec![String::new(), format!("{:<name$}{heads}", "Functions")];
    for f in analysis.functions.iter().take(rows) {
        let text = head(&elided(&f.function), name - 1);
        lines.push(format!("{text:<name$}{}", cells(&f.loads, by_time)));
    }
    lines
}

fn source(analysis: &Analysis, width: usize, rows: usize) -> Vec<String> {
    if analysis.lines.iter().all(|l| l.line == 0) {
        return Vec::new();
    }
    let by_time = analysis.summary.trace.by_time;
    let heads = heads(by_time);
    let name = width - heads.chars().count() - 1;
    let mut lines = vec![String::new(), format!("{:<name$}{heads}", "Lines")];
    for l in analysis.lines.iter().take(rows) {
        let place = match l.line {
            0 => format!("[{}]", l.module),
            line => format!("{}:{line}", tail(&l.file, 28)),
        };
        let text = head(&format!("{place} {}", elided(&l.function)), name - 1);
        lines.push(format!("{text:<name$}{}", cells(&l.loads, by_time)));
    }
    lines
}
