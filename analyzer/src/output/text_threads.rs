//! Tables of threads and processes, and the description of a filter.

use crate::filter::FilterRow;
use crate::output::executed_text::executed_text;
use crate::output::text_table::{Meaning, Style, error_bar, head, heading, push, row, text_table};
use crate::report::threads::ByThread;
use crate::report::{ProcessRow, ThreadRow};
use crate::util::human::{bytes, count, number, percent};

/// Description of a filter, for the head of the text.
pub(crate) fn filter(row: &FilterRow, out: &mut String) {
    let conditions: Vec<String> = row
        .conditions
        .iter()
        .map(|c| match c.matched.as_slice() {
            [] => c.to_string(),
            // A single match that equals the value is not repeated.
            [one] if *one == c.value => c.to_string(),
            list => {
                let names = crate::filter::shortened(list.iter().map(|n| head(n, 40)));
                format!("{c} ({names})")
            }
        })
        .collect();
    let left = match (row.time.value, row.time.lo, row.time.hi, row.share) {
        (Some(value), Some(lo), Some(hi), _) => format!(
            "{} % ({}–{}) of the run's time, an unknown part of its loads",
            percent(Some(value)),
            percent(Some(lo)),
            percent(Some(hi))
        ),
        (.., share) => format!("{} % of the run's loads", percent(share)),
    };
    out.push_str(&format!(
        "{:<16}{}: {left} ({} of the {} recorded ones). Everything below is about these alone{}\n",
        "only",
        conditions.join(", "),
        count(row.loads),
        count(row.all_loads),
        if row.inside_samples {
            ", D and first% included: other loads in between are not counted"
        } else {
            ""
        }
    ));
}

/// Headers after the names.
fn heads(meaning: Meaning, names: &[&'static str]) -> Vec<&'static str> {
    let mut heads = names.to_vec();
    heads.push("samples");
    heads.extend(meaning.share());
    heads.extend([
        "A", "A_hat", "A_const%", "F", "F_hat", "±", "F_bytes", "ΔF", "ΔF_str%", "ΔF_irr%",
    ]);
    heads.extend(meaning.distance());
    heads.push("D max");
    heads
}

fn cells(loads: &ByThread, meaning: Meaning) -> Vec<String> {
    let (m, hats) = (&loads.metrics, &loads.hats);
    let mut cells = vec![count(loads.samples)];
    cells.extend(meaning.share_cells(loads.time, loads.share));
    cells.extend([
        count(m.accesses),
        executed_text(hats),
        percent(m.implied_pct),
        count(m.footprint),
        number(hats.footprint),
        error_bar(hats),
        bytes(m.bytes),
        number(m.growth),
        percent(m.growth_strided_pct),
        percent(m.growth_irregular_pct),
    ]);
    cells.extend(meaning.distance_cells(m));
    cells.push(m.distance_max.map_or("–".into(), count));
    cells
}

/// The table of processes, if there are several.
pub(crate) fn processes(rows: &[ProcessRow], meaning: Meaning, style: Style, out: &mut String) {
    if rows.len() < 2 {
        return;
    }
    let text = format!(
        "Processes ({} of {}, {} first)",
        rows.len().min(style.rows),
        rows.len(),
        meaning.first()
    );
    heading(out, &text);
    let mut t = text_table(style, &heads(meaning, &["process", "name", "threads"]), 2);
    for p in rows.iter().take(style.rows) {
        let mut texts = vec![p.process.to_string(), head(&p.name, 24), count(p.threads)];
        texts.extend(cells(&p.loads, meaning));
        t.add_row(row(texts, 2));
    }
    push(out, &t);
}

/// The table of threads, if there are several.
pub(crate) fn threads(rows: &[ThreadRow], meaning: Meaning, style: Style, out: &mut String) {
    if rows.len() < 2 {
        return;
    }
    let text = format!(
        "Threads ({} of {}, {} first)",
        rows.len().min(style.rows),
        rows.len(),
        meaning.first()
    );
    heading(out, &text);
    let mut t = text_table(style, &heads(meaning, &["thread", "name", "process"]), 2);
    for r in rows.iter().take(style.rows) {
        let mut texts = vec![
            r.thread.map_or("–".into(), |id| id.to_string()),
            head(&r.name, 24),
            r.process.to_string(),
        ];
        texts.extend(cells(&r.loads, meaning));
        t.add_row(row(texts, 2));
    }
    push(out, &t);
}
