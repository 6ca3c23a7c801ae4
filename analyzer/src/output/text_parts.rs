//! Tables and charts of objects, growth, heat maps and findings.

use crate::estimate::growth_tables::{GrowthRow, InterSample};
use crate::output::text_table::{Meaning, Style, head, heading, push, row, text_table};
use crate::util::human::{bytes, count, counted, number, percent};
use crate::views::heat_map::{HeatMap, shades};
use crate::views::object_row::ObjectRow;
use comfy_table::Cell;

/// Columns of the longest bar.
const BAR: f64 = 24.0;

pub(crate) fn bar(value: Option<f64>, most: f64) -> String {
    "█".repeat(
        (value.unwrap_or(0.0) / most.max(1e-300) * BAR)
            .round()
            .clamp(0.0, BAR) as usize,
    )
}

pub(crate) fn growth(
    rows: &[GrowthRow],
    inter: Option<&InterSample>,
    style: Style,
    out: &mut String,
) {
    if rows.is_empty() {
        return;
    }
    heading(
        out,
        "Footprint against window size, whole run (~ estimated, ? undersampled; bar: ΔF, new addresses per load)",
    );
    let mut t = text_table(
        style,
        &["W", "F", "from", "to", "F_str", "F_irr", "pages", "ΔF", ""],
        0,
    );
    let growth = |r: &GrowthRow| r.footprint.map(|f| f / r.size as f64);
    let most = rows.iter().filter_map(growth).fold(0.0, f64::max);
    let marked = |value: Option<f64>, undersampled: bool| {
        format!("{}{}", number(value), if undersampled { "?" } else { "" })
    };
    for r in rows {
        let mut cells = row(
            vec![
                format!(
                    "{}{}",
                    if r.measured { "" } else { "~" },
                    if r.size < 1 << 20 {
                        r.size.to_string()
                    } else {
                        count(r.size)
                    }
                ),
                marked(r.footprint, r.footprint_undersampled),
                number(r.footprint_lo),
                number(r.footprint_hi),
                marked(r.strided, r.strided_undersampled),
                marked(r.irregular, r.irregular_undersampled),
                number(r.pages),
                number(growth(r)),
            ],
            0,
        );
        cells.push(Cell::new(bar(growth(r), most)));
        t.add_row(cells);
    }
    push(out, &t);
    if let Some(i) = inter {
        out.push_str(&format!(
            "Pages of {} between samples of a thread: {}, {}; mean interval {} loads, mean D ≈ {} pages ({} by growth inside samples)\n",
            bytes(i.block),
            counted(i.reuses, "reuse", "reuses"),
            counted(i.first_touches, "first touch", "first touches"),
            number(i.interval_mean),
            number(i.distance_mean),
            number(i.distance_memgaze)
        ));
    }
}

pub(crate) fn object_table(rows: &[ObjectRow], meaning: Meaning, style: Style, out: &mut String) {
    if rows.is_empty() {
        return;
    }
    heading(
        out,
        &format!(
            "Objects ({} of {}, {} first)",
            rows.len().min(style.rows),
            rows.len(),
            meaning.first()
        ),
    );
    let mut names = vec!["object", "kind", "lives", "size"];
    names.extend(meaning.share());
    names.push("A");
    // Speeds are measured only for code, so with windows by time the executed loads of objects are
    // unknown.
    let known = rows.iter().any(|o| o.hats.accesses_hi.is_some());
    names.extend(meaning.executed().iter().filter(|_| known));
    names.extend(["F", "F_hat", "±", "B/line", "ΔF", "A_irr%"]);
    names.extend(["blocks", "A/block"]);
    names.extend(meaning.distance());
    names.extend(["D max", "functions"]);
    let mut t = text_table(style, &names, 2);
    let shown = &rows[..rows.len().min(style.rows)];
    for (o, name) in shown
        .iter()
        .zip(crate::output::names::object_names(shown, 48))
    {
        let mut cells = vec![
            name,
            o.kind.to_string(),
            if o.instances == 0 {
                "–".into()
            } else {
                count(o.instances)
            },
            if o.bytes == 0 {
                "–".into()
            } else {
                bytes(o.bytes)
            },
        ];
        cells.extend(meaning.share_cells(o.time, o.share));
        cells.push(count(o.metrics.accesses));
        cells.extend(
            meaning
                .executed_cells(&o.hats)
                .into_iter()
                .filter(|_| known),
        );
        cells.extend([
            count(o.metrics.footprint),
            number(o.hats.footprint),
            crate::output::text_table::error_bar(&o.hats),
            number(o.metrics.line_bytes),
            number(o.metrics.growth),
            percent(o.irregular_share),
            count(o.blocks),
            number(o.accesses_per_block),
        ]);
        cells.extend(meaning.distance_cells(&o.metrics));
        cells.push(o.metrics.distance_max.map_or("–".into(), count));
        let mut cells = row(cells, 2);
        cells.push(Cell::new(crate::output::text_table::code_text(
            o.functions.iter().map(|f| (f.function.as_str(), f.share)),
            2,
        )));
        t.add_row(cells);
    }
    push(out, &t);
    out.push_str(&of_samples(rows, meaning.by_time));
}

/// Estimates for sites whose blocks were logged only as a sample. `by_time`: the table has them as
/// shares of the time.
fn of_samples(rows: &[ObjectRow], by_time: bool) -> String {
    const MAX_SITES: usize = 5;
    let mut sites: Vec<(&ObjectRow, [f64; 3])> = rows
        .iter()
        .filter_map(|row| {
            let all = row.sampled.as_ref()?;
            Some((row, all.ends()?))
        })
        .collect();
    if rows.iter().all(|row| row.sampled.is_none()) {
        return String::new();
    }
    const LOGGED: &str = "(mgz-record --heap=all logs each.)\n";
    if by_time && !sites.is_empty() {
        return format!(
            "Small heap blocks are a sample. Loads of the other blocks count for the heap as a whole; time% and misses of a site include an estimate of them. {LOGGED}"
        );
    }
    sites.sort_by(|a, b| b.1[1].total_cmp(&a.1[1]));
    let listed: Vec<String> = sites
        .iter()
        .take(MAX_SITES)
        .map(|(row, [low, value, high])| {
            format!(
                "{} {value:.1}% [{low:.1}–{high:.1}%]",
                head(&row.object, 60)
            )
        })
        .collect();
    let what = if listed.is_empty() {
        "too few loads of logged blocks for an estimate by site".to_owned()
    } else {
        format!("with the others, estimated: {}", listed.join(", "))
    };
    format!(
        "Small heap blocks are a sample, and loads of the others count for the heap as a whole; {what}. {LOGGED}"
    )
}

pub(crate) fn heat(map: &HeatMap, out: &mut String) {
    let most = map
        .rows
        .iter()
        .flat_map(|r| &r.accesses)
        .copied()
        .max()
        .unwrap_or(0);
    let farthest = map
        .rows
        .iter()
        .flat_map(|r| &r.distances)
        .flatten()
        .copied()
        .fold(0.0, f64::max);
    let right = if map
        .rows
        .iter()
        .flat_map(|r| &r.distances)
        .any(Option::is_some)
    {
        format!("Right: mean D, █ = {}", number(Some(farthest)))
    } else {
        "No block was used twice, so there is no D".into()
    };
    heading(
        out,
        &format!(
            "Heat maps: regions by time (left to right). Left: loads, █ = {}. {right}",
            count(most)
        ),
    );
    for r in &map.rows {
        out.push_str(&format!(
            "{:<8}{:>16}  {}  {}  {}\n",
            r.region,
            r.start,
            shades(
                r.accesses.iter().map(|&a| (a > 0).then_some(a as f64)),
                most as f64
            ),
            shades(r.distances.iter().copied(), farthest),
            head(&r.label, 32)
        ));
    }
}
