//! Tables as text: their layout, the cells that several have in common, and shortened texts.

use crate::data::counts::Metrics;
use crate::estimate::row_estimates::Hats;
use crate::estimate::time_shares::TimeShare;
use crate::output::names;
use crate::output::paint::Paint;
use crate::report::{Analysis, LoadMetrics};
use crate::util::human::{bytes, count, number, percent};
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};
use std::collections::{BTreeMap, BTreeSet};

/// Layout and choice of tables.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Maximum width in columns; `None` if unlimited.
    pub width: Option<u16>,
    /// Maximum number of rows of the function and line tables.
    pub rows: usize,
    /// True if the table of misses is shown.
    pub misses: bool,
    /// True if the table of call paths is shown.
    pub call_paths: bool,
    /// True if the tables by call path are shown.
    pub by_path: bool,
    /// Colors of the screen.
    pub paint: Paint,
}

/// A table without lines that fits the terminal, if there is one.
pub(crate) fn unruled_table(width: Option<u16>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    if let Some(width) = width {
        table.set_content_arrangement(ContentArrangement::Dynamic);
        table.set_width(width);
    }
    table
}

pub(crate) fn text_table(style: Style, head: &[&str], left: usize) -> Table {
    let mut table = unruled_table(style.width);
    table.set_header(
        head.iter()
            .enumerate()
            .map(|(i, h)| align(Cell::new(h), i < left)),
    );
    table
}

pub(super) fn align(cell: Cell, left: bool) -> Cell {
    cell.set_alignment(if left {
        CellAlignment::Left
    } else {
        CellAlignment::Right
    })
}

pub(crate) fn row(cells: Vec<String>, left: usize) -> Vec<Cell> {
    cells
        .into_iter()
        .enumerate()
        .map(|(i, c)| align(Cell::new(c), i < left))
        .collect()
}

/// The whole to which a trace's shares and distances refer.
#[derive(Clone, Copy)]
pub(crate) struct Meaning {
    /// True if windows are triggered by time: shares are of time.
    pub(crate) by_time: bool,
    /// True if distances are inside windows.
    pub(super) windows: bool,
}

impl Meaning {
    pub(crate) fn of(analysis: &Analysis) -> Meaning {
        let trace = &analysis.summary.trace;
        Meaning {
            by_time: trace.by_time,
            windows: !trace.mode.has_all_loads(),
        }
    }

    /// The headers of the share that rows are ranked by.
    pub(crate) fn share(self) -> &'static [&'static str] {
        if self.by_time {
            &["time%", "95 %"]
        } else {
            &["loads%"]
        }
    }

    /// The cells below these headers.
    pub(crate) fn share_cells(self, time: TimeShare, loads: Option<f64>) -> Vec<String> {
        if !self.by_time {
            return vec![percent(loads)];
        }
        let range = match (time.lo, time.hi) {
            (Some(lo), Some(hi)) => format!("{}–{}", percent(Some(lo)), percent(Some(hi))),
            _ => "–".into(),
        };
        vec![percent(time.value), range]
    }

    /// Header of the executed loads. In complete traces these are the recorded ones.
    pub(crate) fn executed(self) -> &'static [&'static str] {
        if self.windows { &["A_hat"] } else { &[] }
    }

    pub(crate) fn executed_cells(self, hats: &Hats) -> Vec<String> {
        if self.windows {
            vec![crate::output::executed_text::executed_text(hats)]
        } else {
            Vec::new()
        }
    }

    /// Header of the mean distance. In windows, the share of first touches, which have no distance,
    /// comes before it.
    pub(crate) fn distance(self) -> &'static [&'static str] {
        if self.windows {
            &["first%", "D in window"]
        } else {
            &["D"]
        }
    }

    pub(crate) fn distance_cells(self, m: &Metrics) -> Vec<String> {
        let mean = number(m.distance_mean);
        if self.windows {
            vec![percent(m.first_pct), mean]
        } else {
            vec![mean]
        }
    }

    /// Column by which rows are ranked.
    pub(crate) fn first(self) -> &'static str {
        if self.by_time {
            "most time"
        } else {
            "most loads"
        }
    }

    /// Headers of tables by code.
    pub(super) fn heads(self, names: &[&'static str]) -> Vec<&'static str> {
        let mut heads = names.to_vec();
        heads.extend(self.share());
        heads.push("A");
        heads.extend(self.executed());
        heads.extend(["A_const%", "F", "F_hat", "±", "F_bytes", "B/line", "ΔF"]);
        heads.extend(["ΔF_str%", "ΔF_irr%"]);
        heads.extend(self.distance());
        heads.extend(["D p90", "D max"]);
        heads
    }
}

/// Error of an estimate: `12%`, or `?` if its upper end is unknown or more than twice the lower
/// one.
pub(crate) fn error_bar(hats: &Hats) -> String {
    match (
        hats.footprint_undersampled,
        hats.footprint,
        hats.footprint_lo,
        hats.footprint_hi,
    ) {
        (true, ..) => "?".into(),
        (_, Some(value), Some(lo), Some(hi)) if value > 0.0 => {
            match (hi - lo) / 2.0 / value * 100.0 {
                0.0 => "0".into(),
                half if half < 1.0 => "<1%".into(),
                half => format!("{half:.0}%"),
            }
        }
        _ => "–".into(),
    }
}

pub(super) fn metric_cells(loads: &LoadMetrics, meaning: Meaning) -> Vec<String> {
    let (m, hats) = (&loads.metrics, &loads.hats);
    let mut cells = meaning.share_cells(loads.time, loads.share);
    cells.push(count(m.accesses));
    cells.extend(meaning.executed_cells(hats));
    cells.extend([
        percent(m.implied_pct),
        count(m.footprint),
        number(hats.footprint),
        error_bar(hats),
        bytes(m.bytes),
        number(m.line_bytes),
        number(m.growth),
        percent(m.growth_strided_pct),
        percent(m.growth_irregular_pct),
    ]);
    cells.extend(meaning.distance_cells(m));
    cells.extend([
        number(m.distance_p90),
        m.distance_max.map_or("–".into(), count),
    ]);
    cells
}

/// Shortens from the left, since the end is the most informative part.
pub(crate) fn tail(text: &str, most: usize) -> String {
    let length = text.chars().count();
    if length <= most {
        return text.into();
    }
    format!(
        "…{}",
        text.chars().skip(length + 1 - most).collect::<String>()
    )
}

/// Files by their last part, or by as many parts as make them distinct.
pub(crate) fn short_files<'a>(
    files: impl Iterator<Item = &'a str>,
    most: usize,
) -> BTreeMap<&'a str, String> {
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

/// A path of at most `most` characters: whole, or as many of its last folders as fit.
pub(crate) fn short_path(path: &str, most: usize) -> String {
    if path.chars().count() <= most {
        return path.into();
    }
    let parts: Vec<&str> = path.split('/').collect();
    let fitting = (1..parts.len())
        .map(|from| format!("…/{}", parts[from..].join("/")))
        .find(|short| short.chars().count() <= most);
    fitting.unwrap_or_else(|| tail(parts.last().unwrap_or(&path), most))
}

pub(crate) fn head(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.into();
    }
    format!("{}…", text.chars().take(most - 1).collect::<String>())
}

/// Text of a region's or node's hottest code: `name 62 %, other 30 %`.
pub(crate) fn code_text<'a>(
    parts: impl Iterator<Item = (&'a str, Option<f64>)>,
    most: usize,
) -> String {
    parts
        .take(most)
        .map(|(name, share)| format!("{} {}%", names::short_function(name, 28), percent(share)))
        .collect::<Vec<_>>()
        .join(", ")
}

pub(crate) fn heading(out: &mut String, text: &str) {
    out.push_str(&format!("\n{text}\n"));
}

/// Appends a table. A table without rows is left out.
pub(crate) fn push(out: &mut String, table: &Table) {
    if table.row_count() == 0 {
        return;
    }
    for line in table.lines() {
        out.push_str(line.trim_end());
        out.push('\n');
    }
}
