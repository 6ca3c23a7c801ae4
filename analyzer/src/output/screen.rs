//! The text that is printed unless `--all` asks for every table: findings first, then the tables
//! that matter, on one screen.

use crate::output::elided::elided;
use crate::output::findings;
use crate::output::text::{Style, head, short_path};
use crate::report::{Analysis, LoadMetrics};
use crate::util::human::{bytes, count, counted, number, percent};
use std::collections::{BTreeMap, BTreeSet};

/// Lines of a screen.
const LINES: usize = 40;
/// Lines that tables take at least: a heading each, some rows, what is empty, and what columns mean.
const TABLES: usize = 16;
/// The same where findings are left that cost this much, percent.
const FEWER: usize = 11;
const MUCH: f64 = 10.0;
/// Rows of a table at most: half of the lines.
pub const ROWS: usize = LINES / 2;
/// Lines about what is not recorded at most.
const MISSING: usize = 6;
/// Greatest number of findings that are shown in full.
const IN_FULL: usize = 3;
/// Explanation of the columns of the tables.
const LEGEND: &str = "first%: loads of a line that is new in their window. D: other lines between two uses of one. memory: what is loaded.";

/// The screen. `has_report`: the tables that are left out can be looked at elsewhere.
pub fn screen(analysis: &Analysis, style: Style, has_report: bool) -> String {
    let width = usize::from(style.width.unwrap_or(110)).clamp(80, 120);
    let mut lines = run(analysis, width);
    lines.push(String::new());
    let room = |tables: usize| (LINES - tables).saturating_sub(lines.len());
    let rooms = (room(TABLES), room(FEWER));
    lines.extend(findings(analysis, width, rooms));
    lines.extend(unnamed(analysis, width, has_report));
    if analysis.summary.metrics.accesses > 0 {
        let legend = findings::hanging("", LEGEND, width);
        let left = LINES.saturating_sub(lines.len() + legend.len() + 2);
        let rows = style.rows.min(left.saturating_sub(4) / 2);
        lines.extend(functions(analysis, width, rows));
        lines.extend(source(analysis, width, rows));
        lines.extend(legend);
    }
    if !has_report {
        lines.push(String::new());
        lines.push("Every table: --all. Objects, time and memory regions: --zoom. For programs: --format json.".into());
    }
    let cut: Vec<String> = lines.iter().map(|l| head(l.trim_end(), width)).collect();
    format!("{}\n", cut.join("\n"))
}

/// Hint how to get names for data, if the first findings lack them.
fn unnamed(analysis: &Analysis, width: usize, has_report: bool) -> Vec<String> {
    let is_unnamed = |object: &str| object.starts_with("0x") || object == "[heap]";
    let first = analysis.findings.list.iter().take(IN_FULL);
    let has_heap = analysis.objects.iter().any(|o| !o.stack.is_empty());
    if has_heap || !first.into_iter().any(|f| is_unnamed(&f.object)) {
        return Vec::new();
    }
    let command = if has_report { "mgz run" } else { "mgz-record" };
    let text =
        format!("Data without a name are named by where they were allocated: {command} --heap");
    findings::hanging("", &text, width)
}

/// The run and its recording.
fn run(analysis: &Analysis, width: usize) -> Vec<String> {
    let s = &analysis.summary;
    let t = &s.trace;
    let mut lines = vec![head(&format!("command   {}", t.command.join(" ")), width)];
    let loads = match (t.loads_executed, t.loads_executed_estimate) {
        (Some(n), _) => format!("; {} executed", counted(n, "load", "loads")),
        (None, Some(n)) => {
            let within = t.loads_executed_error.map_or_else(String::new, |error| {
                format!(", within a factor of {:.1}", 1.0 + error)
            });
            format!("; ≈ {} loads in all{within}", number(Some(n)))
        }
        _ => String::new(),
    };
    let mut recorded = format!(
        "{} ({}), {}",
        if t.mode.has_all_loads() {
            counted(s.metrics.accesses, "load", "loads")
        } else {
            format!(
                "{} of {} loads",
                counted(s.samples, "window", "windows"),
                number(s.sample_mean)
            )
        },
        t.mode,
        counted(s.threads, "thread", "threads"),
    );
    if s.processes != 1 {
        recorded.push_str(&format!(", {} processes", count(s.processes)));
    }
    if t.state != "complete" {
        recorded.push_str(&format!(", {}", t.state));
    }
    lines.extend(findings::hanging(
        "recorded  ",
        &format!("{recorded}{loads}"),
        width,
    ));
    if let Some(filter) = &analysis.filter {
        let mut text = String::new();
        crate::output::text_threads::filter(filter, &mut text);
        lines.extend(text.lines().filter(|l| !l.is_empty()).map(str::to_string));
    }
    let mut missing = Vec::new();
    for sentence in &t.not_recorded {
        missing.extend(findings::wrapped(&format!("Missing: {sentence}"), width));
    }
    if missing.len() > MISSING {
        missing.truncate(MISSING - 1);
        missing.push("    … more: --all".into());
    }
    lines.extend(missing);
    if !t.dropped.is_empty() {
        let lost: u64 = t.dropped.values().sum();
        let loads = t.dropped.keys().all(|what| what.ends_with("_loads"));
        let what = if loads { "loads" } else { "items" };
        lines.push(format!(
            "dropped   {} {what} (--all tells why)",
            count(lost)
        ));
    }
    if s.metrics.accesses > 0 {
        lines.extend(findings::hanging("memory    ", &memory(analysis), width));
        if let Some(misses) = &s.misses {
            let text = crate::output::misses::of_run(misses);
            lines.extend(findings::hanging("misses    ", &text, width));
        }
    } else {
        lines.push("loads     none recorded: there is nothing to measure".into());
    }
    lines
}

/// Amount of memory that is loaded from.
fn memory(analysis: &Analysis) -> String {
    let s = &analysis.summary;
    let of = |lines: f64| bytes((lines * 64.0) as u64);
    let seen = of(s.metrics.lines64 as f64);
    if s.trace.mode.has_all_loads() {
        return format!("{seen} are loaded from, in lines of 64 bytes");
    }
    let hats = &s.hats;
    let range = match (hats.lines64_lo, hats.lines64_hi) {
        (Some(lo), Some(hi)) => format!(" ({} to {})", of(lo), of(hi)),
        (Some(lo), None) => format!(" (at least {})", of(lo)),
        _ => String::new(),
    };
    match hats.lines64 {
        Some(lines) => format!(
            "about {}{range} are loaded from in the whole run; {seen} of it was seen",
            of(lines)
        ),
        None => format!("{seen} was seen; the whole run's is not known"),
    }
}

/// Findings: the first in full, as far as there is room, the others in short. `rooms`: lines for
/// all findings, and for the costly ones.
fn findings(analysis: &Analysis, width: usize, rooms: (usize, usize)) -> Vec<String> {
    let mut lines = vec![findings::HEADING.to_string()];
    if analysis.findings.list.is_empty() {
        lines.extend(findings::wrapped(&findings::none(analysis), width));
        return lines;
    }
    let all = analysis.findings.list.len();
    for (number, finding) in analysis.findings.list.iter().enumerate() {
        let full = findings::full(number + 1, finding, width);
        let medium = findings::medium(number + 1, finding, width);
        let short = findings::short(number + 1, finding, width);
        let room = match finding.score >= MUCH {
            true => rooms.1,
            false => rooms.0,
        };
        let fits = |text: &Vec<String>| number < IN_FULL && lines.len() + text.len() < room;
        let next = [full, medium].into_iter().find(fits).unwrap_or(short);
        if lines.len() + next.len() > room {
            lines.push(format!("… {} more: --all", all - number));
            break;
        }
        lines.extend(next);
    }
    lines
}

/// The cells that tables of the screen have.
fn cells(loads: &LoadMetrics, by_time: bool) -> String {
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

/// Files by their last part, or by as much as tells them apart.
fn short_files<'a>(files: impl Iterator<Item = &'a str>, most: usize) -> BTreeMap<&'a str, String> {
    let all: BTreeSet<&str> = files.collect();
    let last = |file: &'a str| file.rsplit('/').next().unwrap_or(file);
    let name = |&file: &&'a str| {
        let alike = all.iter().filter(|f| last(f) == last(file)).count();
        let short = match alike {
            1 => short_path(last(file), most),
            _ => short_path(file, most),
        };
        (file, short)
    };
    all.iter().map(name).collect()
}

fn functions(analysis: &Analysis, width: usize, rows: usize) -> Vec<String> {
    let by_time = analysis.summary.trace.by_time;
    let heads = heads(by_time);
    let name = width - heads.chars().count() - 1;
    let mut lines = vec![String::new(), format!("{:<name$}{heads}", "Functions")];
    let worth = analysis
        .functions
        .iter()
        .filter(|f| f.loads.is_worth(by_time));
    for f in worth.take(rows) {
        let function = findings::with_module(&f.function, &f.module);
        let text = head(&function, name - 1);
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
    // Code without lines is listed among the functions.
    let worth = (analysis.lines.iter()).filter(|l| l.line > 0 && l.loads.is_worth(by_time));
    let shown: Vec<_> = worth.take(rows).collect();
    if shown.is_empty() {
        return Vec::new();
    }
    let files = short_files(shown.iter().map(|l| l.file.as_str()), 28);
    for l in shown {
        let file = files.get(l.file.as_str()).map_or("", String::as_str);
        let place = format!("{file}:{}", l.line);
        let text = head(&format!("{place} {}", elided(&l.function)), name - 1);
        lines.push(format!("{text:<name$}{}", cells(&l.loads, by_time)));
    }
    lines
}
