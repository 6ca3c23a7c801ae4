//! The tables of Python's functions and lines as text.

use crate::data::memory_units::LINE_BYTES;
use crate::output::names;
use crate::output::readable::within;
use crate::output::text_table::{
    Meaning, Style, heading, push, row, short_files, short_path, tail, text_table,
};
use crate::report::Analysis;
use crate::util::human::{bytes, count, counted, percent};
use crate::views::python::PythonRow;

/// Maximum number of lines on the first screen.
const SCREEN_ROWS: usize = 3;
/// Lines with a smaller share are left out there, percent. Source: Chosen.
const MIN_SCREEN_PCT: f64 = 1.0;
/// Columns of a function, of a share and of a function of machine code on the first screen.
const FUNCTION: usize = 24;
const SHARE: usize = 20;
const MACHINE: usize = 26;

/// Appends both tables, if windows began in Python.
pub(crate) fn python(analysis: &Analysis, meaning: Meaning, style: Style, out: &mut String) {
    let Some(tables) = &analysis.python else {
        return;
    };
    let windows = counted(tables.windows, "window", "windows");
    for (what, rows) in [("functions", &tables.functions), ("lines", &tables.lines)] {
        let began: Vec<&PythonRow> = rows.iter().filter(|r| r.windows > 0).collect();
        heading(
            out,
            &format!(
                "Python {what} ({} of {}; {windows} began in Python)",
                began.len().min(style.rows),
                began.len()
            ),
        );
        let mut names = match what {
            "lines" => vec!["line", "function"],
            _ => vec!["function", "file"],
        };
        names.extend(meaning.share());
        names.extend([
            "with calls%",
            "windows",
            "A",
            "irr%",
            "memory",
            "machine code",
        ]);
        let mut t = text_table(style, &names, 2);
        for r in began.iter().take(style.rows) {
            let function = names::short_function(&r.function, 40);
            let file = tail(&r.file, 32);
            let mut cells = match what {
                "lines" => vec![place(r, 32), function],
                _ => vec![function, file],
            };
            cells.extend(meaning.share_cells(r.time, Some(r.share)));
            cells.extend([
                percent(r.with_calls_pct),
                count(r.windows),
                count(r.loads),
                percent(r.irregular),
                r.lines64.map_or("–".into(), |n| bytes(n * LINE_BYTES)),
                names::short_function(&r.machine_function, 32),
            ]);
            t.add_row(row(cells, 2));
        }
        push(out, &t);
    }
}

fn place(row: &PythonRow, most: usize) -> String {
    match row.line {
        0 => format!("{}:?", short_path(&row.file, most)),
        line => format!("{}:{line}", short_path(&row.file, most)),
    }
}

/// The hottest lines of the user's own code for the first screen.
pub(crate) fn on_screen(analysis: &Analysis, width: usize, style: Style) -> Vec<String> {
    let by_time = analysis.summary.trace.by_time;
    let share = |r: &PythonRow| match by_time {
        true => r.time.value.unwrap_or(0.0),
        false => r.share,
    };
    let lines = analysis.python.iter().flat_map(|tables| &tables.own_lines);
    let rows: Vec<&PythonRow> = lines
        .filter(|r| share(r) >= MIN_SCREEN_PCT)
        .take(SCREEN_ROWS)
        .collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let name = width
        .saturating_sub(SHARE + 3 + FUNCTION + 2 + MACHINE)
        .max(20);
    let head = if by_time { "time (95 %)" } else { "loads" };
    let title = format!(
        "{:<name$}{head:>SHARE$}   {:<FUNCTION$}  mostly in",
        "Hottest Python lines", "function"
    );
    let mut out = vec![String::new(), style.paint.bold(&title)];
    let files = short_files(rows.iter().map(|r| r.file.as_str()), name - 8);
    for r in rows {
        let place = match r.line {
            0 => format!("{}:?", files[r.file.as_str()]),
            line => format!("{}:{line}", files[r.file.as_str()]),
        };
        let share = match (by_time, r.time.value) {
            (true, Some(value)) => within(value, r.time.lo.zip(r.time.hi)),
            _ => format!("{} %", percent(Some(r.share))),
        };
        out.push(format!(
            "{place:<name$}{share:>SHARE$}   {:<FUNCTION$}  {}",
            names::short_function(&r.function, FUNCTION),
            names::short_function(&r.machine_function, MACHINE)
        ));
    }
    out
}
