//! The text that is printed unless `--all` asks for every table: the run, the findings and the
//! hottest functions, on one screen.

use crate::data::code_map::is_function_address;
use crate::data::memory_units::LINE_BYTES;
use crate::findings::Finding;
use crate::misses::{LevelMisses, is_vague};
use crate::output::findings::{self, with_module};
use crate::output::generated;
use crate::output::headline::{HeadlineLayout, headline, is_named, reasons};
use crate::output::measured;
use crate::output::names;
use crate::output::paint::Paint;
use crate::output::python;
use crate::output::readable::{clauses, seconds, size, thousands, within};
use crate::output::text_table::{Style, head, short_files, short_path};
use crate::report::{Analysis, FunctionRow, LoadMetrics};
use crate::util::human::{count, counted, percent};
use mgz_annotations_schema::{TraceMode, TraceState};

/// Lines of a screen. With the lines that `mgz run` prints before and after it, these are 24.
const SCREEN_LINES: usize = 21;
/// Maximum number of rows of the table of functions.
pub const ROWS: usize = 3;
/// Maximum number of sentences on missing code. Source: Chosen.
const MAX_COVERAGE_SENTENCES: usize = 2;
/// Maximum number of files without instrumentation that are named.
const NAMED: usize = 2;
/// A recording with a greater share of the time counts as whole. Source: Chosen.
const WHOLE_RUN_SHARE: f64 = 0.95;
/// Minimum share of the time for mentioning a name.
const WORTH_A_NAME: f64 = 0.01;
/// Minimum cost of a finding after the first one to be shown, percent of the time.
const MIN_COST_PCT: f64 = 5.0;
/// Functions with a smaller share are left out, percent. Source: Chosen.
const MIN_FUNCTION_PCT: f64 = 0.5;
/// Maximum columns of the names of source files.
const FILE: usize = 28;
/// Maximum columns of a hottest line with the name of an inlined function. Source: Chosen.
const MAX_LINE_COLUMNS: usize = 36;
/// The heading of functions.
const FUNCTIONS: &str = "Hottest functions";
/// Memory whose interval has ends of a greater ratio is marked as rough. Source: Chosen, as for the
/// costs of findings.
const MAX_RATIO_OF_KNOWN_MEMORY: f64 = 3.0;

/// The screen. `has_report` is true if a report shows the tables that are left out.
pub fn screen(analysis: &Analysis, style: Style, has_report: bool) -> String {
    let width = usize::from(style.width.unwrap_or(110)).clamp(80, 120);
    let mut lines = run(analysis, width);
    lines.push(String::new());
    let mut rows = functions(analysis, width, style);
    rows.extend(python::on_screen(analysis, width, style));
    let room = SCREEN_LINES.saturating_sub(lines.len() + rows.len() + usize::from(!has_report));
    lines.extend(findings(analysis, (width, room), style.paint, has_report));
    lines.extend(rows);
    if !has_report {
        lines.push("Every table: --all. Objects, time and memory regions: --zoom. For programs: --format json.".into());
    }
    let ends: Vec<&str> = lines.iter().map(|l| l.trim_end()).collect();
    format!("{}\n", ends.join("\n"))
}

/// The run and its recording.
fn run(analysis: &Analysis, width: usize) -> Vec<String> {
    let s = &analysis.summary;
    let t = &s.trace;
    let mut lines = vec![head(&format!("command   {}", t.command.join(" ")), width)];
    let mut add = |label: &str, text: &str| {
        lines.extend(findings::hanging(&format!("{label:<10}"), text, width));
    };
    add("recorded", &recorded(analysis));
    if let Some(filter) = &analysis.filter {
        let mut text = String::new();
        crate::output::text_threads::filter(filter, &mut text);
        add("only", text.trim_start().trim_start_matches("only").trim());
    }
    if s.metrics.accesses == 0 {
        add("loads", "none recorded: there is nothing to measure");
        if let Some(text) = generated::on_screen(&t.coverage) {
            add("generated", &text);
        }
        return lines;
    }
    add("memory", &memory(analysis));
    if let Some(misses) = &s.misses {
        let levels: Vec<String> = misses.levels.iter().map(missed).collect();
        let how = match t.mode.has_all_loads() {
            true => "",
            false => " (predicted)",
        };
        add(
            "misses",
            &format!("{} of the loads{how}", levels.join(", ")),
        );
    }
    if let Some(counted) = &analysis.counters {
        add("counted", &measured::counted_on_screen(counted));
    }
    if let Some(measured) = &analysis.measured {
        add("measured", &measured::on_screen(measured));
        if let Some(text) = measured::beside(&measured.loads) {
            add("", &text);
        }
    }
    if let Some(text) = unrecorded(analysis) {
        add("time", &text);
    }
    if let Some(text) = generated::on_screen(&t.coverage) {
        add("generated", &text);
    }
    for sentence in t.for_screen.iter().take(MAX_COVERAGE_SENTENCES) {
        add("missing", &clauses(sentence, width - 10));
    }
    lines
}

/// Amount of recorded data, and how the run ended if not normally.
fn recorded(analysis: &Analysis) -> String {
    let s = &analysis.summary;
    let t = &s.trace;
    let loads = match t.mode.has_all_loads() {
        true => counted(s.metrics.accesses, "load", "loads"),
        false => format!(
            "{} of {} loads",
            counted(s.samples, "window", "windows"),
            thousands(s.sample_mean.unwrap_or(0.0).round() as u64)
        ),
    };
    let mut text = match t.mode {
        TraceMode::Burst => loads,
        _ => format!("{loads} (mode {})", t.mode),
    };
    if t.wall_seconds > 0.0 {
        text.push_str(&format!(" in {}", seconds(t.wall_seconds)));
    }
    text.push_str(&format!(", {}", counted(s.threads, "thread", "threads")));
    if s.processes != 1 {
        text.push_str(&format!(", {} processes", count(s.processes)));
    }
    if t.state != TraceState::Complete {
        text.push_str(&format!(", {}", t.state));
    }
    if !t.program_status.is_usual() {
        text.push_str(&format!("; the program ended with {}", t.program_status));
    }
    text
}

/// Amount of memory that is read.
fn memory(analysis: &Analysis) -> String {
    let s = &analysis.summary;
    let of = |lines: f64| size((lines * LINE_BYTES as f64) as u64);
    let seen = of(s.metrics.lines64 as f64);
    if s.trace.mode.has_all_loads() {
        return format!("{seen} are read, in lines of 64 bytes");
    }
    let hats = &s.hats;
    match (hats.lines64, hats.lines64_lo, hats.lines64_hi) {
        (Some(lines), Some(lo), Some(hi)) => format!(
            "about {} are read in the whole run ({} to {})",
            of(lines),
            of(lo),
            of(hi)
        ),
        (_, Some(lo), None) => format!("at least {} are read in the whole run", of(lo)),
        (Some(lines), ..) => format!("about {} are read in the whole run", of(lines)),
        _ => format!("{seen} were read in the windows; the amount of the whole run is not known"),
    }
}

/// Misses of the run in one level of the cache.
fn missed(level: &LevelMisses) -> String {
    let text = match level
        .ratio
        .map(|ratio| (ratio, ratio.map(|part| 100.0 * part)))
    {
        None => "not known".into(),
        Some((ratio, [lo, _, hi])) if is_vague(ratio) => format!("not known ({lo:.0}–{hi:.0} %)"),
        Some((_, [lo, value, hi])) => within(value, Some((lo, hi))),
    };
    format!("{} {text}", level.level)
}

/// Share of the time that was recorded, to which all shares refer, and the rest with its remedy.
fn unrecorded(analysis: &Analysis) -> Option<String> {
    let t = &analysis.summary.trace;
    let share = t
        .coverage
        .recorded_share()
        .filter(|s| *s < WHOLE_RUN_SHARE)?;
    let rest = t.coverage.unrecorded();
    let named: Vec<String> = (rest.iter())
        .filter(|(_, share)| *share >= WORTH_A_NAME)
        .take(NAMED)
        .map(|(name, share)| format!("{name} {:.0} %", 100.0 * share))
        .collect();
    let of = match t.by_time {
        true => "; shares are of that",
        false => "",
    };
    let remedy = match t.missing_libraries.as_slice() {
        [] => String::new(),
        libraries => format!(" (add --libs={})", libraries.join(",")),
    };
    Some(format!(
        "{:.0} % was recorded{of}. The rest: {}{remedy}",
        100.0 * share,
        named.join(", ")
    ))
}

/// The first finding, and as many others as fit. `width` is the number of columns, and `room` the
/// number of lines for all findings.
fn findings(
    analysis: &Analysis,
    (width, room): (usize, usize),
    paint: Paint,
    has_report: bool,
) -> Vec<String> {
    let list = &analysis.findings.list;
    if list.is_empty() {
        let mut lines = vec![paint.bold(findings::HEADING)];
        lines.extend(findings::hanging("   ", &findings::none(analysis), width));
        return lines;
    }
    let places = list.iter().map(|f| f.file.as_str());
    let files = short_files(places, FILE);
    let layout = HeadlineLayout {
        width,
        paint,
        files: &files,
    };
    let mut lines = Vec::new();
    let mut shown = 0;
    for (at, finding) in list.iter().enumerate() {
        let left = room.saturating_sub(1 + lines.len());
        let next = headline(at + 1, &analysis.lines, finding, layout);
        let why = reasons(finding, layout);
        if at > 0 && (finding.score < MIN_COST_PCT || next.len() + why.len() > left) {
            break;
        }
        lines.extend(next);
        lines.extend(why);
        shown += 1;
    }
    let remarks = remarks(analysis, shown, has_report);
    let heading = format!("{}{}", paint.bold(findings::HEADING), paint.dim(&remarks));
    lines.insert(0, heading);
    lines
}

/// Findings that are left out, and the option that names data, in parentheses.
fn remarks(analysis: &Analysis, shown: usize, has_report: bool) -> String {
    let list = &analysis.findings.list;
    let mut remarks = Vec::new();
    match list.len() - shown {
        0 => {}
        more if has_report => remarks.push(format!("{more} more in the report")),
        more => remarks.push(format!("{more} more: --all")),
    }
    let has_heap = analysis.objects.iter().any(|o| !o.stack.is_empty());
    let can_log = analysis.summary.trace.heap_impossible.is_empty();
    let is_unnamed = |f: &Finding| !f.object.is_empty() && !is_named(f);
    if !has_heap && can_log && list.iter().take(shown).any(is_unnamed) {
        let command = if has_report { "mgz run" } else { "mgz-record" };
        remarks.push(format!("{command} --heap names the data"));
    }
    match remarks.is_empty() {
        true => String::new(),
        false => format!(" ({})", remarks.join("; ")),
    }
}

/// The hottest functions, each with its hottest line.
fn functions(analysis: &Analysis, width: usize, style: Style) -> Vec<String> {
    let by_time = analysis.summary.trace.by_time;
    let share = |f: &FunctionRow| match by_time {
        true => f.loads.time.value,
        false => f.loads.share,
    };
    let is_worth = |f: &&FunctionRow| share(f).is_none_or(|s| s >= MIN_FUNCTION_PCT);
    let rows = analysis.functions.iter().filter(is_worth);
    let rows: Vec<&FunctionRow> = rows.take(style.rows.min(ROWS)).collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let share = match by_time {
        true => "time (95 %)",
        false => "loads",
    };
    let lines: Vec<String> = rows.iter().map(|f| hottest_line(analysis, f)).collect();
    let last = match lines.iter().all(String::is_empty) {
        true => "",
        false => "hottest line",
    };
    let heads = format!("{share:>20}{:>11}   ", "memory");
    let ends = lines.iter().map(|l| l.chars().count()).max().unwrap_or(0);
    let name = (width - heads.chars().count()).saturating_sub(ends.max(last.len()));
    let title = heading_of_functions(&rows, name);
    let title = format!("{title:<name$}{heads}{last}");
    let mut out = vec![String::new(), style.paint.bold(&title)];
    for (f, line) in rows.iter().zip(lines) {
        let text = with_module(&f.function, &f.module, name - 1);
        out.push(format!("{text:<name$}{}  {line}", cells(&f.loads, by_time)));
    }
    out
}

/// The heading of functions, with the meaning of marks in the rows if there is room.
fn heading_of_functions(rows: &[&FunctionRow], room: usize) -> String {
    let has_addresses = rows.iter().any(|f| is_function_address(&f.function));
    let has_rough = rows.iter().any(|f| is_rough(&f.loads));
    let marks: Vec<&str> = [
        (has_addresses, "0x…: without symbols"),
        (has_rough, "?: rough"),
    ]
    .into_iter()
    .filter_map(|(is_there, meaning)| is_there.then_some(meaning))
    .collect();
    let heading = format!("{FUNCTIONS} ({})", marks.join("; "));
    match marks.is_empty() || heading.chars().count() >= room {
        true => FUNCTIONS.into(),
        false => heading,
    }
}

/// True if the amount of memory that a row reads is vague.
fn is_rough(loads: &LoadMetrics) -> bool {
    let ends = loads.hats.lines64_lo.zip(loads.hats.lines64_hi);
    ends.is_some_and(|(lo, hi)| hi > MAX_RATIO_OF_KNOWN_MEMORY * lo)
}

/// Share and memory of a function. Vague memory has a mark.
fn cells(loads: &LoadMetrics, by_time: bool) -> String {
    let share = match (by_time, loads.time.value) {
        (true, Some(value)) => within(value, loads.time.lo.zip(loads.time.hi)),
        (true, None) => "–".into(),
        (false, _) => format!("{} %", percent(loads.share)),
    };
    let lines = loads.hats.lines64.unwrap_or(loads.metrics.lines64 as f64);
    let memory = size((lines * LINE_BYTES as f64) as u64);
    let mark = if is_rough(loads) { '?' } else { ' ' };
    format!("{share:>20}{memory:>11}{mark}")
}

/// The hottest source line of a function, inlined ones included; empty if none is known. A line
/// that is also inlined elsewhere has no share.
fn hottest_line(analysis: &Analysis, function: &FunctionRow) -> String {
    let by_time = analysis.summary.trace.by_time;
    let outer = format!("{} at ", function.function);
    let is_in = |chain: &String| {
        let last = chain.rsplit(" < ").next().unwrap_or(chain);
        last.starts_with(&outer)
    };
    let share = |loads: &LoadMetrics| match by_time {
        true => loads.time.value,
        false => loads.share,
    };
    let mut own = analysis.lines.iter().filter(|l| {
        let is_inlined = !l.inlined_into.is_empty();
        l.line > 0
            && l.module == function.module
            && l.loads.is_worth(by_time)
            && match is_inlined {
                // The hottest caller comes first.
                true => l.inlined_into.first().is_some_and(is_in),
                false => l.function == function.function,
            }
    });
    let Some(line) = own.next() else {
        return String::new();
    };
    let file = line.file.rsplit('/').next().unwrap_or(&line.file);
    let own = share(&line.loads).filter(|own| Some(*own) <= share(&function.loads));
    let own = own.map_or_else(String::new, |s| format!(" {}", within(s, None)));
    let text = format!("{}:{}{own}", short_path(file, FILE), line.line);
    let inlined = format!("{} {text}", names::last_part(&line.function));
    match line.inlined_into.is_empty() || inlined.chars().count() > MAX_LINE_COLUMNS {
        true => text,
        false => inlined,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::row_estimates::Hats;

    fn loads(lo: f64, hi: f64) -> LoadMetrics {
        LoadMetrics {
            hats: Hats {
                lines64: Some(32768.0),
                lines64_lo: Some(lo),
                lines64_hi: Some(hi),
                ..Hats::default()
            },
            ..LoadMetrics::default()
        }
    }

    #[test]
    fn vague_memory_is_marked() {
        let known = loads(30000.0, 40000.0);
        let rough = loads(20000.0, 90000.0);
        assert!(
            cells(&known, true).ends_with(" 2.0MiB "),
            "{:?}",
            cells(&known, true)
        );
        assert!(cells(&rough, true).ends_with(" 2.0MiB?"));
        let row = |loads| FunctionRow {
            loads,
            ..FunctionRow::default()
        };
        let (known, rough) = (row(known), row(rough));
        assert_eq!(heading_of_functions(&[&known], 40), "Hottest functions");
        let both = [&known, &rough];
        assert_eq!(
            heading_of_functions(&both, 40),
            "Hottest functions (?: rough)"
        );
        assert_eq!(heading_of_functions(&both, 20), "Hottest functions");
    }
}
