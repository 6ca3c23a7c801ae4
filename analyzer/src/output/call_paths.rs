//! The table of call paths as text: a tree, indented.

use crate::data::memory_units::LINE_BYTES;
use crate::output::text_table::{Meaning, Style, head, heading, push, row, tail, text_table};
use crate::util::elided::elided;
use crate::util::human::{bytes, count, counted, number, percent};
use crate::views::call_paths::{CallPathRow, CallPathTable};

/// Source: Chosen.
const MIN_SHARE_PCT: f64 = 0.5;

/// Maximum columns of a name.
const NAME: usize = 60;

/// Appends the table, or why there is none.
pub(crate) fn call_paths(of: &CallPathTable, meaning: Meaning, style: Style, out: &mut String) {
    if of.state == "off" {
        return heading(
            out,
            "Call paths: unknown (recorded with --no-stacks; record without it)",
        );
    }
    if of.calls.is_empty() {
        return heading(
            out,
            "Call paths: unknown (modes burst and ring record them where windows begin in instrumented code)",
        );
    }
    heading(
        out,
        &format!(
            "Call paths ({}: {} with all callers, {} with the inner ones, {} unknown)",
            counted(of.whole + of.partial + of.unknown, "window", "windows"),
            count(of.whole),
            count(of.partial),
            count(of.unknown)
        ),
    );
    let mut names = vec!["function", "called at"];
    names.extend(meaning.share());
    names.extend(["self%", "windows", "A", "F", "memory", "ΔF"]);
    let mut t = text_table(style, &names, 2);
    let weight = |r: &CallPathRow| r.time.value.unwrap_or(r.share);
    let shown: Vec<&CallPathRow> = of
        .calls
        .iter()
        .filter(|r| weight(r) >= MIN_SHARE_PCT)
        .collect();
    for r in shown.iter().take(style.rows.max(1) * 2) {
        let indent = (r.depth as usize).min(24);
        let name = format!(
            "{}{}{}",
            " ".repeat(indent),
            elided(&r.function),
            if r.inlined { " (inlined)" } else { "" }
        );
        let at = match r.call_line {
            0 => String::new(),
            line => format!("{}:{line}", tail(&r.call_file, 24)),
        };
        let mut cells = vec![head(&name, NAME), at];
        cells.extend(meaning.share_cells(r.time, Some(r.share)));
        cells.extend([
            percent(r.self_pct),
            count(r.windows),
            count(r.loads),
            r.footprint.map_or("–".into(), count),
            r.lines64.map_or("–".into(), |n| bytes(n * LINE_BYTES)),
            number(r.growth),
        ]);
        t.add_row(row(cells, 2));
    }
    push(out, &t);
    let more = shown.len().saturating_sub(style.rows.max(1) * 2);
    if more > 0 {
        out.push_str(&format!("… {more} more\n"));
    }
}
