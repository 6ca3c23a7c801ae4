//! Memory samples of the processor as text and as a flat table.

use crate::measured::counters::CountedRun;
use crate::measured::{Measured, MeasuredLoads, MeasuredMisses, MeasuredRow, ServedShare};
use crate::misses::Range;
use crate::output::names;
use crate::output::text_table::{Style, head, heading, push, row, tail, text_table};
use crate::report::Analysis;
use crate::util::human::{count, counted};
use mgz_annotations_schema::SamplePopulation;
use serde::Serialize;

/// Rows with a smaller share of the loads are left out of the text, percent. Source: Chosen.
const MIN_SHARE_PCT: f64 = 0.5;

/// A row at a level, as files have it.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct MeasuredFlat {
    /// `run`, `function`, `line` or `object`.
    pub(crate) kind: String,
    pub(crate) function: String,
    pub(crate) module: String,
    pub(crate) file: String,
    pub(crate) line: u32,
    pub(crate) object: String,
    /// Samples of the row.
    pub(crate) row_samples: u64,
    /// Mean latency of the row, cycles.
    pub(crate) latency: Option<f64>,
    pub(crate) latency_lo: Option<f64>,
    pub(crate) latency_hi: Option<f64>,
    pub(crate) level: String,
    /// Samples that the level served.
    pub(crate) samples: u64,
    pub(crate) served_pct: Option<f64>,
    pub(crate) served_pct_lo: Option<f64>,
    pub(crate) served_pct_hi: Option<f64>,
    pub(crate) miss_ratio: Option<f64>,
    pub(crate) miss_ratio_lo: Option<f64>,
    pub(crate) miss_ratio_hi: Option<f64>,
    pub(crate) predicted: Option<f64>,
    pub(crate) predicted_lo: Option<f64>,
    pub(crate) predicted_hi: Option<f64>,
    pub(crate) differs: Option<bool>,
}

/// All rows at all levels: those that served loads, and the caches.
pub(crate) fn flat(measured: &Measured) -> Vec<MeasuredFlat> {
    let mut all = Vec::new();
    let kind = |kind: &str| MeasuredFlat {
        kind: kind.into(),
        ..MeasuredFlat::default()
    };
    add_levels(kind("run"), &measured.loads, &mut all);
    let tables = [
        ("function", &measured.functions),
        ("line", &measured.lines),
        ("object", &measured.objects),
    ];
    for (what, rows) in tables {
        for of in rows {
            let like = MeasuredFlat {
                function: of.function.clone(),
                module: of.module.clone(),
                file: of.file.clone(),
                line: of.line,
                object: of.object.clone(),
                ..kind(what)
            };
            add_levels(like, &of.loads, &mut all);
        }
    }
    all
}

/// The levels of a row.
fn add_levels(like: MeasuredFlat, loads: &MeasuredLoads, all: &mut Vec<MeasuredFlat>) {
    let end = |range: Option<Range>, at: usize| range.map(|r| r[at]);
    let like = MeasuredFlat {
        row_samples: loads.samples,
        latency: end(loads.latency, 1),
        latency_lo: end(loads.latency, 0),
        latency_hi: end(loads.latency, 2),
        ..like
    };
    let caches = loads.misses.iter().map(|m| m.level.as_str());
    let served = loads.levels.iter().map(|l| l.level.as_str());
    let others = served.filter(|level| loads.misses.iter().all(|m| m.level != *level));
    for level in caches.chain(others) {
        let served = loads.levels.iter().find(|l| l.level == level);
        let share = served.map(|l| l.share_pct);
        let misses = loads.misses.iter().find(|m| m.level == level);
        let (measured, predicted) = (misses.map(|m| m.measured), misses.and_then(|m| m.predicted));
        all.push(MeasuredFlat {
            level: level.to_owned(),
            samples: served.map_or(0, |l| l.samples),
            served_pct: end(share, 1),
            served_pct_lo: end(share, 0),
            served_pct_hi: end(share, 2),
            miss_ratio: end(measured, 1),
            miss_ratio_lo: end(measured, 0),
            miss_ratio_hi: end(measured, 2),
            predicted: end(predicted, 1),
            predicted_lo: end(predicted, 0),
            predicted_hi: end(predicted, 2),
            differs: misses.and_then(|m| m.differs),
            ..like.clone()
        });
    }
}

/// A percentage, with more digits if it is small.
fn pct(value: f64) -> String {
    match value {
        ..0.095 => format!("{value:.2}"),
        ..9.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// A percentage with its interval.
fn within([lo, value, hi]: Range) -> String {
    format!("{} ({}–{})", pct(value), pct(lo), pct(hi))
}

fn percent(range: Range) -> Range {
    range.map(|end| 100.0 * end)
}

/// Source of the samples: `12.3K sampled loads of 30 cycles or more`.
fn source(measured: &Measured) -> String {
    let samples = measured.loads.samples;
    let what = counted(samples, "sampled load", "sampled loads");
    match measured.drawn {
        SamplePopulation::Loads | SamplePopulation::Operations => what,
        SamplePopulation::SlowLoads(cycles) => format!("{what} of {cycles} cycles or more"),
        SamplePopulation::Cycles => {
            format!("{what}, sampled by cycles: slow loads are sampled more often")
        }
        SamplePopulation::Mixed => format!("{what}, sampled in several ways"),
        SamplePopulation::Stores | SamplePopulation::Unknown => {
            format!("{what}; it is unknown how they were sampled")
        }
    }
}

/// Levels that served loads, the largest share first.
fn by_share(loads: &MeasuredLoads) -> Vec<&ServedShare> {
    let mut levels: Vec<&ServedShare> = loads.levels.iter().collect();
    levels.sort_by(|a, b| b.share_pct[1].total_cmp(&a.share_pct[1]));
    levels
}

/// Counters of the run in one line, for the screen.
pub(crate) fn counted_on_screen(run: &CountedRun) -> String {
    let levels = run.misses.iter().map(|m| {
        let predicted = m.predicted.map(|p| within(percent(p)));
        let predicted = predicted.map_or_else(String::new, |p| format!(", {p} % predicted"));
        format!(
            "{} {} % measured{predicted}",
            m.level,
            within(percent(m.counted))
        )
    });
    let tlb = run.tlb_miss_pct.map(|tlb| format!("TLB {} %", pct(tlb)));
    let all: Vec<String> = levels.chain(tlb).collect();
    format!(
        "{} loads of all code: {}",
        count(run.loads.round() as u64),
        all.join("; ")
    )
}

/// One line for the screen.
pub(crate) fn on_screen(measured: &Measured) -> String {
    let levels = by_share(&measured.loads).into_iter().take(4);
    let levels: Vec<String> = levels
        .map(|l| format!("{} {} %", l.level, pct(l.share_pct[1])))
        .collect();
    let latency = measured
        .loads
        .latency
        .map_or_else(String::new, |l| format!("; {:.0} cycles on average", l[1]));
    format!("{} of {}{latency}", levels.join(", "), source(measured))
}

/// A sentence on the misses of a row that were measured and predicted; `None` without both.
pub(crate) fn beside(loads: &MeasuredLoads) -> Option<String> {
    let texts = loads.misses.iter().filter_map(|m| {
        let predicted = m.predicted?;
        let differs = match m.differs {
            Some(true) => ", they differ",
            _ => "",
        };
        Some(format!(
            "{} {} % measured, {} % predicted{differs}",
            m.level,
            within(percent(m.measured)),
            within(percent(predicted))
        ))
    });
    let texts: Vec<String> = texts.collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

/// Columns of the levels that serve a large enough share of all loads.
fn columns(measured: &Measured) -> Vec<String> {
    let worth = |l: &&ServedShare| l.share_pct[1] >= MIN_SHARE_PCT;
    let levels = measured.loads.levels.iter().filter(worth);
    levels.map(|l| l.level.clone()).collect()
}

fn cells(loads: &MeasuredLoads, share: Option<Range>, columns: &[String]) -> Vec<String> {
    let optional = |range: Option<Range>| range.map_or("–".into(), |r| pct(r[1]));
    let mut cells = vec![share.map_or("–".into(), within), loads.samples.to_string()];
    cells.extend(columns.iter().map(|level| {
        let served = loads.levels.iter().find(|l| l.level == *level);
        served.map_or("0".into(), |l| within(l.share_pct))
    }));
    cells.push(loads.latency.map_or("–".into(), |[lo, mean, hi]| {
        format!("{mean:.0} ({lo:.0}–{hi:.0})")
    }));
    cells.push(optional(loads.tlb_miss_pct));
    cells.push(optional(loads.hitm_pct));
    cells.push(optional(loads.remote_pct));
    cells
}

/// Place of a row as text.
fn place(what: &str, row: &MeasuredRow) -> String {
    let unknown = |text: String| {
        if text.is_empty() {
            "[unknown]".into()
        } else {
            text
        }
    };
    match what {
        "function" => unknown(names::short_function(&row.function, 40)),
        "line" if row.line == 0 => unknown(names::short_function(&row.function, 40)),
        "line" => format!("{}:{}", tail(&row.file, 36), row.line),
        _ => unknown(head(&row.object, 40)),
    }
}

/// Counters, and the tables of memory samples.
pub(crate) fn tables(analysis: &Analysis, style: Style, out: &mut String) {
    if let Some(counted) = &analysis.counters {
        heading(
            out,
            "Counted by the processor over the run (percent of the loads; lines on their way are hits at the lower end, misses at the upper)",
        );
        out.push_str(&format!("{}\n", counted_on_screen(counted)));
    }
    let Some(measured) = &analysis.measured else {
        return;
    };
    heading(
        out,
        &format!(
            "Measured by the processor: {} (percent of the row's loads by the level that served them, 95 % interval; latency in cycles; TLB: pages that no level had; HITM: lines that another cache had modified; remote: served by another core or node)",
            source(measured)
        ),
    );
    let columns = columns(measured);
    let mut heads = vec!["where", "what", "loads%", "samples"];
    heads.extend(columns.iter().map(String::as_str));
    heads.extend(["latency", "TLB%", "HITM%", "remote%"]);
    let mut t = text_table(style, &heads, 2);
    let mut add = |place: String, what: &str, loads: &MeasuredLoads, share: Option<Range>| {
        let mut all = vec![place, what.to_owned()];
        all.extend(cells(loads, share, &columns));
        t.add_row(row(all, 2));
    };
    add("all".into(), "", &measured.loads, None);
    let tables = [
        ("function", &measured.functions),
        ("line", &measured.lines),
        ("object", &measured.objects),
    ];
    for (what, rows) in tables {
        let worth = rows
            .iter()
            .filter(|r| r.share_pct.is_some_and(|s| s[1] >= MIN_SHARE_PCT));
        for of in worth.take(style.rows) {
            add(place(what, of), what, &of.loads, of.share_pct);
        }
    }
    push(out, &t);
    compared(measured, style, out);
    for node in &measured.loads.nodes {
        out.push_str(&format!(
            "Node {}: {} % of the loads whose node is known.\n",
            node.node,
            within(node.share_pct)
        ));
    }
}

/// Misses per load, measured and predicted.
fn compared(measured: &Measured, style: Style, out: &mut String) {
    let both = |m: &&MeasuredMisses| m.predicted.is_some();
    let has_both = |loads: &MeasuredLoads| loads.misses.iter().any(|m| both(&m));
    let tables = [
        ("function", &measured.functions),
        ("line", &measured.lines),
        ("object", &measured.objects),
    ];
    let any = tables
        .iter()
        .any(|(_, rows)| rows.iter().any(|r| has_both(&r.loads)));
    if !any && !has_both(&measured.loads) {
        return;
    }
    let note = match measured.of_all_loads {
        true => "",
        false => "; the samples are not of all loads, so the two are not comparable",
    };
    heading(
        out,
        &format!("Misses per load, measured and predicted (percent; 95 % interval{note})"),
    );
    let mut t = text_table(
        style,
        &["where", "what", "level", "measured", "predicted", ""],
        3,
    );
    let mut add = |place: String, what: &str, loads: &MeasuredLoads| {
        for m in loads.misses.iter().filter(both) {
            let verdict = match m.differs {
                Some(true) => "differ",
                Some(false) => "agree",
                None => "",
            };
            t.add_row(row(
                vec![
                    place.clone(),
                    what.to_owned(),
                    m.level.clone(),
                    within(percent(m.measured)),
                    m.predicted.map_or("–".into(), |p| within(percent(p))),
                    verdict.into(),
                ],
                3,
            ));
        }
    };
    add("the recorded code".into(), "", &measured.loads);
    for (what, rows) in tables {
        let worth = rows
            .iter()
            .filter(|r| r.share_pct.is_some_and(|s| s[1] >= MIN_SHARE_PCT));
        for of in worth.filter(|r| has_both(&r.loads)).take(style.rows) {
            add(place(what, of), what, &of.loads);
        }
    }
    push(out, &t);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::counters::CountedMisses;

    #[test]
    fn counts_stand_beside_predictions() {
        let level = |level: &str, predicted| CountedMisses {
            level: level.into(),
            counted: [0.05, 0.1, 0.2],
            predicted,
        };
        let run = CountedRun {
            loads: 12_345_678.4,
            misses: vec![level("L1", Some([0.1, 0.3, 0.5])), level("L2", None)],
            tlb_miss_pct: Some(0.24),
        };
        assert_eq!(
            counted_on_screen(&run),
            "12.3M loads of all code: L1 10 (5.0–20) % measured, 30 (10–50) % predicted; L2 10 (5.0–20) % measured; TLB 0.2 %"
        );
    }
}
