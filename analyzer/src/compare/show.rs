//! A comparison as text, Markdown, JSON, JUnit, and for github-action-benchmark.

use crate::compare::change::{Change, Verdict};
use crate::compare::entries::{Cell, EntryKind, Metric};
use crate::compare::gate::GateOutcome;
use crate::compare::judge::Comparison;
use crate::compare::words;
use crate::output::text_table::unruled_table;
use crate::util::elided::elided;
use comfy_table::CellAlignment;
use serde::Serialize;
use serde_json::{Value, json};

/// Name of the JSON.
pub const FORMAT: &str = "mgz-comparison";
/// Its version.
pub const COMPARISON_VERSION: u32 = 1;

fn verdict_word(change: &Change) -> &'static str {
    match change.verdict {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::Same => "same",
        Verdict::Unclear => "?",
    }
}

fn cells(change: &Change) -> [String; 6] {
    [
        words::change_name(change),
        change.metric.name(),
        words::cell(&change.metric, &change.base),
        words::cell(&change.metric, &change.new),
        words::change(change),
        verdict_word(change).into(),
    ]
}

const HEAD: [&str; 6] = ["what", "number", "base", "new", "change", ""];

const TABLE_RULE: &str = "|---|---|---:|---:|---:|---|";

/// Sentences below the table.
pub(crate) fn remarks(comparison: &Comparison) -> Vec<String> {
    let mut out = Vec::new();
    for (list, side) in [
        (&comparison.only_base, "base"),
        (&comparison.only_new, "new build"),
    ] {
        if !list.is_empty() {
            let names: Vec<String> = list
                .iter()
                .take(8)
                .map(|a| format!("{} {} ({:.1}%)", a.kind.name(), elided(&a.name), a.weight))
                .collect();
            let more = list.len().saturating_sub(8);
            let more = if more > 0 {
                format!(" and {more} more")
            } else {
                String::new()
            };
            out.push(format!("Only in the {side}: {}{more}.", names.join(", ")));
        }
    }
    // Smallest changes of the whole run that could have been detected.
    let blind: Vec<String> = comparison
        .changes
        .iter()
        .filter(|c| c.verdict == Verdict::Unclear && c.kind == EntryKind::Run)
        .filter_map(|c| {
            let wide = (c.change_hi? - c.change_lo?) / 2.0;
            Some(format!("{} below {wide:.0}%", c.metric.name()))
        })
        .collect();
    if !blind.is_empty() {
        let more_runs = match comparison.narrowing {
            Some(_) => "",
            None => "more runs a side, ",
        };
        out.push(format!(
            "Of the run, changes of {} cannot be told from chance; {more_runs}longer runs or mgz run --overhead 3% narrow that.",
            blind.join(", ")
        ));
    }
    out.extend(comparison.narrowing.clone());
    if comparison.too_few_runs {
        out.push(format!(
            "Ranks of so few runs can tell nothing over {} comparisons: the intervals of the traces and how much runs differ decide. With six runs a side or more ranks do.",
            comparison.tests
        ));
    }
    out
}

/// A result of a condition.
#[derive(Serialize)]
pub(crate) struct GateLine {
    failed: bool,
    text: String,
}

/// Results of the conditions.
pub(crate) fn gate_lines(outcomes: &[GateOutcome]) -> Vec<GateLine> {
    let passed = |o: &GateOutcome| match (o.compared, o.unclear) {
        (0, _) => format!(
            "passed {} (cannot be told: one side does not know that number)",
            o.condition
        ),
        (_, 0) => format!("passed {}", o.condition),
        (all, n) => format!("passed {} ({n} of {all} cannot be told)", o.condition),
    };
    let lines = outcomes.iter().flat_map(|o| match o.violations.is_empty() {
        true => vec![(false, passed(o))],
        false => {
            let failed = |v: &String| (true, format!("FAILED {}: {v}", o.condition));
            o.violations.iter().map(failed).collect()
        }
    });
    let line = |(failed, text)| GateLine { failed, text };
    lines.map(line).collect()
}

/// The text form; `rows` bounds the table, `width` is that of the terminal.
pub fn comparison_text(
    comparison: &Comparison,
    outcomes: &[GateOutcome],
    rows: usize,
    width: Option<u16>,
) -> String {
    let mut out = words::verdict_text(comparison);
    out.push('\n');
    for line in gate_lines(outcomes) {
        out.push_str(&format!("{}\n", line.text));
    }
    let shown = words::shown(comparison);
    if !shown.is_empty() && rows > 0 {
        let mut table = unruled_table(width);
        table.set_header(HEAD);
        for change in shown.iter().take(rows) {
            table.add_row(cells(change));
        }
        for column in 2..5 {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        out.push_str(&format!("\n{table}\n"));
        if shown.len() > rows {
            out.push_str(&format!("… {} more\n", shown.len() - rows));
        }
    }
    let remarks = remarks(comparison);
    if !remarks.is_empty() {
        out.push_str(&format!("\n{}\n", remarks.join("\n")));
    }
    out
}

/// Markdown, for summaries and comments.
pub fn markdown(comparison: &Comparison, outcomes: &[GateOutcome], rows: usize) -> String {
    let escape = |text: &str| text.replace('|', "\\|").replace('<', "&lt;");
    let mut out = String::from("### Memory\n\n");
    for line in words::verdict_text(comparison).lines() {
        out.push_str(&format!("{line}  \n"));
    }
    if !outcomes.is_empty() {
        out.push('\n');
        for line in gate_lines(outcomes) {
            out.push_str(&format!("- {}\n", escape(&line.text)));
        }
    }
    let shown = words::shown(comparison);
    if !shown.is_empty() && rows > 0 {
        out.push_str(&format!("\n| {} |\n{TABLE_RULE}\n", HEAD.join(" | ")));
        for change in shown.iter().take(rows) {
            let row = cells(change).map(|c| escape(&c));
            out.push_str(&format!("| {} |\n", row.join(" | ")));
        }
        if shown.len() > rows {
            out.push_str(&format!("\n… {} more\n", shown.len() - rows));
        }
    }
    for remark in remarks(comparison) {
        out.push_str(&format!("\n{}\n", escape(&remark)));
    }
    out
}

/// The JSON form; docs/reference/compare.md has its keys.
pub fn json(comparison: &Comparison, outcomes: &[GateOutcome]) -> serde_json::Result<Value> {
    let mut value = json!({
        "format": FORMAT,
        "version": COMPARISON_VERSION,
        "verdict": words::verdict(comparison),
        "conditions": serde_json::to_value(outcomes)?,
    });
    if let (Value::Object(all), Value::Object(rest)) =
        (&mut value, serde_json::to_value(comparison)?)
    {
        all.extend(rest);
    }
    Ok(value)
}

fn xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push_str("&#10;"),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// JUnit: a test case for each condition, or, without conditions, for each comparison of the run,
/// functions and objects (none of which fails).
pub fn junit(comparison: &Comparison, outcomes: &[GateOutcome]) -> String {
    let mut cases = String::new();
    let (mut tests, mut failures, mut skipped) = (0, 0, 0);
    for outcome in outcomes {
        tests += 1;
        let name = xml(&outcome.condition);
        if outcome.violations.is_empty() {
            let unclear = outcome.unclear == outcome.compared;
            if unclear {
                skipped += 1;
                cases.push_str(&format!(
                    "    <testcase classname=\"mgz.compare\" name=\"{name}\"><skipped message=\"cannot be told\"/></testcase>\n"
                ));
            } else {
                cases.push_str(&format!(
                    "    <testcase classname=\"mgz.compare\" name=\"{name}\"/>\n"
                ));
            }
            continue;
        }
        failures += 1;
        let (first, all) = (
            xml(&outcome.violations[0]),
            xml(&outcome.violations.join("\n")),
        );
        cases.push_str(&format!(
            "    <testcase classname=\"mgz.compare\" name=\"{name}\"><failure type=\"worse\" message=\"{first}\">{all}</failure></testcase>\n"
        ));
    }
    if outcomes.is_empty() {
        for change in words::ordered(comparison) {
            if matches!(change.kind, EntryKind::Line | EntryKind::Loop) {
                continue;
            }
            tests += 1;
            let name = xml(&format!(
                "{} of {}",
                change.metric.name(),
                words::change_name(change)
            ));
            let unclear = change.verdict == Verdict::Unclear;
            skipped += usize::from(unclear);
            let body = if unclear {
                "<skipped message=\"cannot be told\"/>".to_string()
            } else {
                format!(
                    "<system-out>{}: {}</system-out>",
                    verdict_word(change),
                    xml(&words::sentence(change))
                )
            };
            cases.push_str(&format!(
                "    <testcase classname=\"mgz.compare\" name=\"{name}\">{body}</testcase>\n"
            ));
        }
    }
    let verdict = xml(&words::verdict_text(comparison));
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"mgz compare\" tests=\"{tests}\" failures=\"{failures}\" errors=\"0\" skipped=\"{skipped}\">\n{cases}    <system-out>{verdict}</system-out>\n  </testsuite>\n</testsuites>\n"
    )
}

/// Input of `github-action-benchmark`: the numbers of the new build, for the run, functions and
/// objects.
pub fn smaller_is_better(comparison: &Comparison) -> Value {
    let range = |cell: &Cell| {
        let half = (cell.hi? - cell.lo?) / 2.0;
        (half > 0.0).then(|| format!("± {}", words::amount(half)))
    };
    let rows = comparison.changes.iter().filter_map(|change| {
        let wanted = match (&change.metric, change.kind) {
            (_, EntryKind::Line | EntryKind::Loop) => false,
            (
                Metric::Seconds
                | Metric::Time
                | Metric::Loads
                | Metric::Footprint
                | Metric::Cpu
                | Metric::Misses(_),
                _,
            ) => true,
            (_, kind) => kind == EntryKind::Run,
        };
        let mut row = json!({
            "name": format!("{} of {}", change.metric.name(), words::change_name(change)),
            "unit": change.unit,
            "value": change.new.value,
            "extra": words::sentence(change),
        });
        if let (Some(range), Value::Object(row)) = (range(&change.new), &mut row) {
            row.insert("range".into(), range.into());
        }
        wanted.then_some(row)
    });
    Value::Array(rows.collect())
}
