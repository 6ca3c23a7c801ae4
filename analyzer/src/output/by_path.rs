//! The tables by call path as text.

use crate::output::names;
use crate::output::text_table::{Meaning, Style, head, heading, push, row, tail, text_table};
use crate::util::elided::elided;
use crate::util::human::{count, percent};
use crate::views::by_path::ByPathRow;
use crate::views::call_paths::CallPathTable;

/// Maximum columns of a path.
const PATH: usize = 90;

/// Appends the tables, or why there are none.
pub(crate) fn by_path(
    rows: &[ByPathRow],
    paths: &CallPathTable,
    meaning: Meaning,
    style: Style,
    out: &mut String,
) {
    if rows.is_empty() {
        // The table of call paths gives the reason.
        return crate::output::call_paths::call_paths(paths, meaning, style, out);
    }
    for (kind, title) in [
        ("function", "Functions by call path"),
        ("line", "Lines by call path"),
        ("loop", "Loops by call path"),
        ("object", "Objects by call path"),
    ] {
        let of: Vec<&ByPathRow> = rows.iter().filter(|r| r.kind == kind).collect();
        if of.is_empty() {
            continue;
        }
        heading(
            out,
            &format!(
                "{title} (loads in the analysed rows; →: the window began there and continued into it)"
            ),
        );
        let is_code = kind != "object";
        let mut names = vec![kind, "path"];
        names.extend(meaning.share().iter().filter(|_| is_code));
        names.extend(["A", "A%", "windows"]);
        let mut t = text_table(style, &names, 2);
        let mut last = None;
        let mut shown = 0;
        for r in of {
            let place = (&r.function, &r.module, &r.file, r.line, &r.object);
            let is_new = last != Some(place);
            if is_new {
                shown += 1;
                if shown > style.rows {
                    break;
                }
                last = Some(place);
            }
            let name = match kind {
                _ if !is_new => String::new(),
                "function" => names::short_function(&r.function, 40),
                "object" => head(&r.object, 40),
                _ if r.file.is_empty() => names::short_function(&r.function, 40),
                _ => format!("{}:{}", tail(&r.file, 32), r.line),
            };
            let calls: Vec<String> = r.path.iter().map(|c| elided(c)).collect();
            let arrow = if r.later { " →" } else { "" };
            let path = format!("{}{arrow}", tail(&calls.join(" > "), PATH));
            let mut cells = vec![name, path];
            // The last columns are the path's part of the loads.
            cells.extend(
                meaning
                    .share_cells(r.time, None)
                    .into_iter()
                    .filter(|_| is_code),
            );
            cells.extend([count(r.loads), percent(Some(r.share)), count(r.windows)]);
            t.add_row(row(cells, 2));
        }
        push(out, &t);
    }
}
