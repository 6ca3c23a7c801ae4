//! The analysis as text tables.

use crate::estimate::row_estimates::Hats;
use crate::output::names;
use crate::output::text_table::{
    Meaning, Style, code_text, error_bar, head, heading, metric_cells, push, row, tail, text_table,
};
use crate::report::Analysis;
use crate::stages::observed_class::ClassPair;
use crate::util::human::{bytes, count, number, percent};
use crate::views::location::{CodePart, LocationZoom, Region};
use crate::views::time_tree::{Node, NodeKind, TimeZoom};
use comfy_table::{Cell, Table};

/// The text of the whole analysis: findings, then every table.
pub fn render(analysis: &Analysis, style: Style) -> String {
    let mut out = String::new();
    crate::output::text_summary::summary(analysis, &mut out);
    if let Some(row) = &analysis.filter {
        crate::output::text_threads::filter(row, &mut out);
    }
    // Data that was not measured is not shown as zero.
    if analysis.summary.metrics.accesses == 0 {
        crate::output::generated::table(analysis, style, &mut out);
        crate::output::measured::tables(analysis, style, &mut out);
        return out;
    }
    out.insert(0, '\n');
    out.insert_str(
        0,
        &crate::output::findings::all_findings(analysis, style.width),
    );
    let meaning = Meaning::of(analysis);
    crate::output::text_threads::processes(&analysis.processes, meaning, style, &mut out);
    crate::output::text_threads::threads(&analysis.threads, meaning, style, &mut out);
    if style.misses {
        crate::output::misses::miss_tables(analysis, style, &mut out);
    } else {
        crate::output::measured::tables(analysis, style, &mut out);
    }
    functions(analysis, style, &mut out);
    crate::output::generated::table(analysis, style, &mut out);
    lines(analysis, style, &mut out);
    crate::output::python::python(analysis, meaning, style, &mut out);
    loops(analysis, style, &mut out);
    windows(analysis, style, &mut out);
    distances(analysis, style, &mut out);
    crate::output::text_parts::growth(
        &analysis.growth,
        analysis.inter_sample.as_ref(),
        style,
        &mut out,
    );
    out.push_str(&asked(analysis, style));
    notes(analysis, meaning, &mut out);
    out
}

/// The tables that are made only on request: objects, time, memory.
pub fn asked(analysis: &Analysis, style: Style) -> String {
    let mut out = String::new();
    let meaning = Meaning::of(analysis);
    if style.misses {
        crate::output::misses::miss_tables(analysis, style, &mut out);
        crate::output::measured::tables(analysis, style, &mut out);
    }
    if style.call_paths {
        crate::output::call_paths::call_paths(&analysis.call_paths, meaning, style, &mut out);
    }
    if style.by_path {
        let rows = analysis.by_path.as_deref().unwrap_or_default();
        crate::output::by_path::by_path(rows, &analysis.call_paths, meaning, style, &mut out);
    }
    crate::output::text_parts::object_table(&analysis.objects, meaning, style, &mut out);
    crate::output::fields::fields(&analysis.objects, style, &mut out);
    if let Some(zoom) = &analysis.time_zoom {
        time_zoom(zoom, meaning, style, &mut out);
    }
    if let Some(zoom) = &analysis.location_zoom {
        location_zoom(zoom, meaning, style, &mut out);
    }
    if let Some(map) = &analysis.heat_map {
        crate::output::text_parts::heat(map, &mut out);
    }
    out
}

/// Explains signs in the tables, if there are any.
fn notes(analysis: &Analysis, meaning: Meaning, out: &mut String) {
    let vague = |hats: &Hats| hats.footprint_undersampled;
    let rows = (analysis.functions.iter().map(|r| &r.loads))
        .chain(analysis.lines.iter().map(|r| &r.loads))
        .chain(analysis.loops.iter().map(|r| &r.loads));
    if rows.map(|l| &l.hats).any(vague) || analysis.objects.iter().any(|o| vague(&o.hats)) {
        heading(
            out,
            "? F_hat is a lower bound: the memory that no window has accessed may be more than twice as large, or is unknown. More windows (a higher --rate, a longer run) give a better estimate.",
        );
    }
    if meaning.by_time {
        heading(
            out,
            "time% is the share of the windows that began at a load of the row, with its 95 % interval. A_hat is the number of executed loads, with its possible error; – where the speed of the code was not measured.",
        );
    }
}

fn time_zoom(zoom: &TimeZoom, meaning: Meaning, style: Style, out: &mut String) {
    let path = if zoom.path.is_empty() {
        "the run is too short to divide".into()
    } else {
        zoom.path.join(" → ")
    };
    heading(
        out,
        &format!("Time zoom (▶ the path to the hottest interval with the worst locality: {path})"),
    );
    let mut names = vec!["interval", "", "samples"];
    names.extend(meaning.share());
    names.extend(["A", "F", "ΔF", "ΔF_str%"]);
    names.extend(meaning.distance());
    names.extend(["D max", "functions", "loops"]);
    let mut t = text_table(style, &names, 2);
    let mut at = &zoom.root;
    time_row(&mut t, at, meaning);
    // Each node of the path is followed by all its children.
    while !at.children.is_empty() {
        let mut next = None;
        for child in &at.children {
            time_row(&mut t, child, meaning);
            if child.on_path {
                next = Some(child);
            }
        }
        let Some(child) = next else { break };
        at = child;
    }
    push(out, &t);
}

fn time_row(t: &mut Table, node: &Node, meaning: Meaning) {
    let kind = match (node.kind, node.sample, node.first_load) {
        (NodeKind::Run, ..) => "run".into(),
        (NodeKind::Interval, ..) => "interval".into(),
        (NodeKind::Sample, Some(s), _) => format!("sample {s}"),
        (NodeKind::Window, Some(s), Some(from)) => {
            format!("sample {s}, loads from {}", count(from))
        }
        _ => "sample".into(),
    };
    let m = &node.metrics;
    let name = format!(
        "{} {}",
        if node.on_path { "▶" } else { " " },
        if node.id.is_empty() { "all" } else { &node.id }
    );
    let mut cells = vec![name, kind, count(node.samples)];
    cells.extend(meaning.share_cells(node.time, node.share));
    cells.extend([
        count(m.accesses),
        count(m.footprint),
        number(m.growth),
        percent(m.growth_strided_pct),
    ]);
    cells.extend(meaning.distance_cells(m));
    cells.push(m.distance_max.map_or("–".into(), count));
    let mut cells = row(cells, 2);
    cells.push(Cell::new(code_text(
        node.functions
            .iter()
            .map(|f| (f.function.as_str(), f.share)),
        3,
    )));
    let places: Vec<String> = node
        .loops
        .iter()
        .map(|l| {
            if l.line == 0 {
                format!("[{}]", l.address)
            } else {
                format!("{}:{}", tail(&l.file, 20), l.line)
            }
        })
        .collect();
    cells.push(Cell::new(code_text(
        places
            .iter()
            .map(String::as_str)
            .zip(node.loops.iter().map(|l| l.share)),
        2,
    )));
    t.add_row(cells);
}

fn location_zoom(zoom: &LocationZoom, meaning: Meaning, style: Style, out: &mut String) {
    heading(
        out,
        &format!(
            "Location zoom (contiguous regions with at least {} % of their parent's loads; ▶ the worst locality)",
            number(Some(zoom.tau_pct))
        ),
    );
    let mut names = vec!["region", "addresses", "size"];
    names.extend(meaning.share());
    names.extend(["A", "F", "F_hat", "±", "B/line", "ΔF", "ΔF_irr%"]);
    names.extend(["blocks", "A/block"]);
    names.extend(meaning.distance());
    names.extend(["D max", "objects", "functions", "lines"]);
    let mut t = text_table(style, &names, 2);
    region_rows(&mut t, &zoom.root, zoom.worst.as_deref(), meaning, 0);
    push(out, &t);
}

fn region_rows(
    t: &mut Table,
    region: &Region,
    worst: Option<&str>,
    meaning: Meaning,
    depth: usize,
) {
    let mark = if worst == Some(region.id.as_str()) {
        "▶"
    } else {
        " "
    };
    let name = if region.id.is_empty() {
        "all"
    } else {
        &region.id
    };
    let m = &region.metrics;
    let mut cells = vec![
        format!("{mark} {}{name}", "  ".repeat(depth)),
        if region.id.is_empty() {
            String::new()
        } else {
            format!("{}–{}", region.start, region.end)
        },
        if region.id.is_empty() {
            String::new()
        } else {
            bytes(region.bytes)
        },
    ];
    cells.extend(meaning.share_cells(region.time, region.share));
    cells.extend([
        count(m.accesses),
        count(m.footprint),
        number(region.hats.footprint),
        error_bar(&region.hats),
        number(m.line_bytes),
        number(m.growth),
        percent(m.growth_irregular_pct),
        count(region.blocks),
        number(region.accesses_per_block),
    ]);
    cells.extend(meaning.distance_cells(m));
    cells.push(m.distance_max.map_or("–".into(), count));
    let mut cells = row(cells, 2);
    cells.push(Cell::new(code_text(
        region.objects.iter().map(|o| (o.object.as_str(), o.share)),
        1,
    )));
    cells.push(Cell::new(code_text(
        region
            .functions
            .iter()
            .map(|f| (f.function.as_str(), f.share)),
        2,
    )));
    let place = |l: &CodePart| {
        l.line
            .filter(|&n| n > 0)
            .map(|n| format!("{}:{n}", tail(&l.file, 20)))
    };
    cells.push(Cell::new(
        region
            .lines
            .iter()
            .filter_map(place)
            .take(2)
            .collect::<Vec<_>>()
            .join(", "),
    ));
    t.add_row(cells);
    for child in &region.children {
        region_rows(t, child, worst, meaning, depth + 1);
    }
}

fn functions(analysis: &Analysis, style: Style, out: &mut String) {
    let meaning = Meaning::of(analysis);
    let all = analysis.functions.len();
    heading(
        out,
        &format!(
            "Functions ({} of {all}, {} first)",
            all.min(style.rows),
            meaning.first()
        ),
    );
    let names = meaning.heads(&["function", "module"]);
    let mut t = text_table(style, &names, 2);
    for f in analysis.functions.iter().take(style.rows) {
        let mut cells = vec![names::short_function(&f.function, 40), head(&f.module, 20)];
        cells.extend(metric_cells(&f.loads, meaning));
        t.add_row(row(cells, 2));
    }
    push(out, &t);
}

fn lines(analysis: &Analysis, style: Style, out: &mut String) {
    let meaning = Meaning::of(analysis);
    if analysis.lines.iter().all(|l| l.line == 0) {
        heading(out, "Lines: the traced files have no line information.");
        return;
    }
    let all = analysis.lines.len();
    heading(
        out,
        &format!(
            "Lines ({} of {all}, {} first; ΔF_str% and ΔF_irr% by static class)",
            all.min(style.rows),
            meaning.first()
        ),
    );
    let mut names = meaning.heads(&["line", "function", "inlined into"]);
    names.push("class → observed");
    let mut t = text_table(style, &names, 3);
    for l in analysis.lines.iter().take(style.rows) {
        let place = if l.line == 0 {
            format!("[{}]", l.module)
        } else {
            format!("{}:{}", tail(&l.file, 28), l.line)
        };
        let into = match l.inlined_into.as_slice() {
            [] => String::new(),
            [one] => names::short_function(one, 40),
            [first, rest @ ..] => format!(
                "{} and {} more",
                names::short_function(first, 32),
                rest.len()
            ),
        };
        let mut cells = vec![place, names::short_function(&l.function, 32), into];
        cells.extend(metric_cells(&l.loads, meaning));
        let mut cells = row(cells, 3);
        cells.push(Cell::new(classes_text(&l.loads.observed.classes)));
        t.add_row(cells);
    }
    push(out, &t);
}

/// Static and observed classes with the most steps: `irregular → strided 16`.
fn classes_text(classes: &[ClassPair]) -> String {
    let texts = classes.iter().filter(|c| c.pct >= 20.0).take(2).map(|c| {
        let step = c.step.map_or(String::new(), |step| format!(" {step}"));
        format!("{} → {}{step}", c.claimed, c.observed)
    });
    texts.collect::<Vec<_>>().join(", ")
}

fn loops(analysis: &Analysis, style: Style, out: &mut String) {
    let meaning = Meaning::of(analysis);
    let all = analysis.loops.len();
    if all == 0 {
        return;
    }
    heading(
        out,
        &format!(
            "Loops ({} of {all}, {} first; each with the loops inside it; depth 1: outermost)",
            all.min(style.rows),
            meaning.first()
        ),
    );
    let names = meaning.heads(&["loop", "function", "depth"]);
    let mut t = text_table(style, &names, 2);
    for l in analysis.loops.iter().take(style.rows) {
        let place = if l.line == 0 {
            format!("[{}]", l.address)
        } else {
            format!("{}:{}", tail(&l.file, 28), l.line)
        };
        let mut cells = vec![
            place,
            names::short_function(&l.function, 32),
            l.depth.to_string(),
        ];
        cells.extend(metric_cells(&l.loads, meaning));
        t.add_row(row(cells, 2));
    }
    push(out, &t);
}

fn windows(analysis: &Analysis, style: Style, out: &mut String) {
    if analysis.windows.is_empty() {
        heading(out, "Window sizes: no sample has 16 loads.");
        return;
    }
    heading(
        out,
        "Window sizes (means per window of W loads, inside samples)",
    );
    let mut t = text_table(
        style,
        &[
            "W", "windows", "F", "F_str", "F_irr", "ΔF", "ΔF_str%", "ΔF_irr%", "C", "S", "D", "ΔF",
        ],
        0,
    );
    let most = analysis
        .windows
        .iter()
        .filter_map(|w| w.growth)
        .fold(0.0, f64::max);
    for w in &analysis.windows {
        let mut cells = row(
            vec![
                w.size.to_string(),
                count(w.windows),
                number(w.footprint),
                number(w.strided),
                number(w.irregular),
                number(w.growth),
                percent(w.growth_strided_pct),
                percent(w.growth_irregular_pct),
                number(w.captures),
                number(w.survivals),
                number(w.distance_mean),
            ],
            0,
        );
        cells.push(Cell::new(crate::output::text_parts::bar(w.growth, most)));
        t.add_row(cells);
    }
    push(out, &t);
}

fn distances(analysis: &Analysis, style: Style, out: &mut String) {
    let bins = &analysis.summary.distances;
    let total: u64 = bins.iter().map(|b| b.count).sum();
    if total == 0 {
        return;
    }
    heading(
        out,
        &format!(
            "Reuse distance D (blocks of {}, inside samples)",
            bytes(analysis.summary.block)
        ),
    );
    let mut t = text_table(style, &["D", "reuses", "%", "cumulative %", ""], 0);
    let mut sum = 0;
    for bin in bins {
        sum += bin.count;
        let share = bin.count as f64 * 100.0 / total as f64;
        let range = if bin.from == bin.to {
            bin.from.to_string()
        } else {
            format!("{}–{}", bin.from, bin.to)
        };
        let mut cells = row(
            vec![
                range,
                count(bin.count),
                percent(Some(share)),
                percent(Some(sum as f64 * 100.0 / total as f64)),
            ],
            0,
        );
        cells.push(Cell::new("█".repeat((share / 2.5).round() as usize)));
        t.add_row(cells);
    }
    push(out, &t);
}
