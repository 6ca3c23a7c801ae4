//! Tables and pictures of objects, growth, heat maps and findings.

use crate::estimate::growth_tables::{GrowthRow, InterSample};
use crate::output::text::{Meaning, Style, head, heading, push, row, table, tail};
use crate::report::diagnose::Diagnosis;
use crate::util::human::{bytes, count, number, percent};
use crate::views::heat_map::{HeatMap, shades};
use crate::views::objects::ObjectRow;
use comfy_table::Cell;

/// Length of the longest bar.
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
    let mut t = table(
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
            "Pages of {} between samples of a thread: {} reuses, {} first touches; mean interval {} loads, mean D ≈ {} pages ({} by growth inside samples)\n",
            bytes(i.block),
            count(i.reuses),
            count(i.first_touches),
            number(i.interval_mean),
            number(i.distance_mean),
            number(i.distance_memgaze)
        ));
    }
}

pub(crate) fn objects(rows: &[ObjectRow], meaning: Meaning, style: Style, out: &mut String) {
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
    // Speeds are measured of code, so in windows by time nothing is known of the loads of objects.
    let known = rows.iter().any(|o| o.hats.accesses_hi.is_some());
    names.extend(meaning.executed().iter().filter(|_| known));
    names.extend(["F", "F_hat", "±", "B/line", "ΔF", "A_irr%"]);
    names.extend(["blocks", "A/block"]);
    names.extend(meaning.distance());
    names.extend(["D max", "functions"]);
    let mut t = table(style, &names, 2);
    let shown = &rows[..rows.len().min(style.rows)];
    for (o, name) in shown.iter().zip(crate::output::names::objects(shown, 48)) {
        let mut cells = vec![
            name,
            o.kind.clone(),
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
            crate::output::text::error_bar(&o.hats),
            number(o.metrics.line_bytes),
            number(o.metrics.growth),
            percent(o.irregular_share),
            count(o.blocks),
            number(o.accesses_per_block),
        ]);
        cells.extend(meaning.distance_cells(&o.metrics));
        cells.push(o.metrics.distance_max.map_or("–".into(), count));
        let mut cells = row(cells, 2);
        cells.push(Cell::new(crate::output::text::code_text(
            o.functions.iter().map(|f| (f.function.as_str(), f.share)),
            2,
        )));
        t.add_row(cells);
    }
    push(out, &t);
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

pub(crate) fn diagnoses(list: &[Diagnosis], out: &mut String) {
    if list.is_empty() {
        return;
    }
    heading(out, "Findings, the most important first");
    for (i, d) in list.iter().enumerate() {
        let place = match (d.line, d.function.as_str()) {
            (0, "") => "the whole run".to_string(),
            (0, function) => function.to_string(),
            (line, function) => format!("{function}, {}:{line}", tail(&d.file, 40)),
        };
        let object = if d.object.is_empty() {
            String::new()
        } else {
            format!(", object {}", head(&d.object, 48))
        };
        out.push_str(&format!(
            "{:>2}. {place}{object}: {}.\n    Try: {}.\n",
            i + 1,
            d.finding,
            d.advice
        ));
    }
}
