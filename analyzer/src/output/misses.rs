//! Predicted misses as text and as a flat table.

use crate::misses::{LevelMisses, Misses, Range, WatchedReuses, is_vague};
use crate::output::names;
use crate::output::text_table::{Style, head, heading, push, row, tail, text_table};
use crate::report::Analysis;
use crate::util::human::{bytes, counted};
use serde::Serialize;

/// A share from which on it counts as all.
const ALL: f64 = 0.995;
/// Minimum misses per load that a finding mentions. Source: Chosen.
const MIN_NAMED_MISSES: f64 = 1e-3;
/// Minimum share of the misses of some level for a row of the table. Source: Chosen.
const MIN_ROW_SHARE: f64 = 0.01;

/// A row at a level, as files have it.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Flat {
    /// `run`, `function`, `line`, `loop` or `object`.
    pub(crate) kind: String,
    pub(crate) function: String,
    pub(crate) module: String,
    pub(crate) file: String,
    pub(crate) line: u32,
    pub(crate) object: String,
    pub(crate) level: String,
    pub(crate) size: u64,
    pub(crate) miss_ratio: Option<f64>,
    pub(crate) miss_ratio_lo: Option<f64>,
    pub(crate) miss_ratio_hi: Option<f64>,
    pub(crate) miss_share: Option<f64>,
    pub(crate) miss_share_lo: Option<f64>,
    pub(crate) miss_share_hi: Option<f64>,
    pub(crate) misses_hat: Option<f64>,
    pub(crate) prefetchable: Option<f64>,
    pub(crate) stall_ns: Option<f64>,
    pub(crate) memory_bound_pct: Option<f64>,
}

/// All rows at all levels.
pub(crate) fn flat(analysis: &Analysis) -> Vec<Flat> {
    let mut all = Vec::new();
    let mut add = |like: Flat, misses: &Option<Misses>| {
        for of in misses
            .iter()
            .flat_map(|m| m.levels.iter().map(move |l| (m, l)))
        {
            let (misses, level) = of;
            let end = |range: Option<Range>, at: usize| range.map(|r| r[at]);
            all.push(Flat {
                level: level.level.clone(),
                size: level.size,
                miss_ratio: end(level.ratio, 1),
                miss_ratio_lo: end(level.ratio, 0),
                miss_ratio_hi: end(level.ratio, 2),
                miss_share: end(level.share, 1),
                miss_share_lo: end(level.share, 0),
                miss_share_hi: end(level.share, 2),
                misses_hat: end(level.count, 1),
                prefetchable: level.prefetchable,
                stall_ns: end(misses.stall_ns, 1),
                memory_bound_pct: end(misses.memory_bound_pct, 1),
                ..like.clone()
            });
        }
    };
    let kind = |kind: &str| Flat {
        kind: kind.into(),
        ..Flat::default()
    };
    add(kind("run"), &analysis.summary.misses);
    for of in &analysis.functions {
        let like = Flat {
            function: of.function.clone(),
            module: of.module.clone(),
            ..kind("function")
        };
        add(like, &of.loads.misses);
    }
    for of in &analysis.lines {
        let like = Flat {
            function: of.function.clone(),
            module: of.module.clone(),
            file: of.file.clone(),
            line: of.line,
            ..kind("line")
        };
        add(like, &of.loads.misses);
    }
    for of in &analysis.loops {
        let like = Flat {
            function: of.function.clone(),
            module: of.module.clone(),
            file: of.file.clone(),
            line: of.line,
            ..kind("loop")
        };
        add(like, &of.loads.misses);
    }
    for of in &analysis.objects {
        let like = Flat {
            object: of.object.clone(),
            module: of.module.clone(),
            ..kind("object")
        };
        add(like, &of.misses);
    }
    all
}

/// A part as percent.
fn pct(part: f64) -> String {
    let pct = 100.0 * part;
    match pct {
        ..0.095 => format!("{pct:.2}"),
        ..9.95 => format!("{pct:.1}"),
        _ => format!("{pct:.0}"),
    }
}

fn within(range: Option<Range>) -> String {
    match range {
        None => "–".into(),
        Some([lo, value, hi]) if hi - lo < 1e-6 => pct(value),
        Some([lo, value, hi]) => format!("{} ({}–{})", pct(value), pct(lo), pct(hi)),
    }
}

/// One line of the summary: misses of the whole run.
pub(crate) fn summary(misses: &Misses) -> String {
    let levels: Vec<String> = misses
        .levels
        .iter()
        .map(|l| format!("{} {} {}", l.level, l.size_in_words(), known(l.ratio)))
        .collect();
    let bound = misses.memory_bound_pct.map_or(String::new(), |b| {
        format!("; waits for memory ≈ {:.0} % of the time", b[1])
    });
    let how = how(misses);
    let seen = misses.watched.as_ref().and_then(watched);
    let seen = seen.map_or(String::new(), |seen| format!("; {seen}"));
    format!("{} of the loads miss{how}{bound}{seen}", levels.join(", "))
}

/// Sources of the prediction, if watchpoints caught reuses as well.
pub(crate) fn watched(seen: &WatchedReuses) -> Option<String> {
    if seen.pairs == 0 {
        return None;
    }
    let windows = counted(seen.windows, "window", "windows");
    let reuses = counted(seen.reused, "reuse", "reuses");
    let text = match seen.used {
        0 => format!(
            "from {windows}; of {} none is used (too few of one kind, or the speed of the code is not known)",
            counted(seen.pairs, "watchpoint", "watchpoints")
        ),
        _ => format!("from {windows} and {reuses} seen by watchpoints"),
    };
    Some(text)
}

/// A sentence of a finding; none if almost nothing misses.
pub(crate) fn in_words(misses: &Misses) -> Option<String> {
    let worth = |l: &&LevelMisses| {
        l.ratio
            .is_some_and(|r| r[1] >= MIN_NAMED_MISSES || is_vague(r))
    };
    let levels: Vec<&LevelMisses> = misses.levels.iter().filter(worth).collect();
    let last = levels.last()?;
    if levels.iter().all(|l| l.ratio.is_some_and(is_vague)) {
        let text = "Misses: unknown; no window shows when its lines are used again.";
        return Some(text.to_owned());
    }
    let said: Vec<String> = (levels.iter())
        .map(|l| format!("{} {}", l.level, known(l.ratio)))
        .collect();
    let share = match last.share {
        Some(share) if is_vague(share) => String::new(),
        Some(share) if share[0] >= ALL => format!("; all {} misses", last.level),
        Some(share) => format!("; {} % of all {} misses", within(Some(share)), last.level),
        None => String::new(),
    };
    let text = format!("Misses: {}{}{share}.", said.join(", "), how(misses));
    Some(text)
}

/// A ratio in percent; unknown if its interval has almost no information.
fn known(ratio: Option<Range>) -> String {
    match ratio {
        Some(ratio @ [lo, _, hi]) if is_vague(ratio) => {
            format!("not known ({}–{} %)", pct(lo), pct(hi))
        }
        ratio => format!("{} %", within(ratio)),
    }
}

/// A word that tells predicted misses from counted ones, which have no interval.
fn how(misses: &Misses) -> &'static str {
    let range = |l: &LevelMisses| l.ratio.is_some_and(|r| r[2] > r[0]);
    if misses.levels.iter().any(range) {
        " (predicted)"
    } else {
        ""
    }
}

fn cells(misses: &Misses) -> Vec<String> {
    let mut cells = Vec::new();
    for level in &misses.levels {
        cells.push(within(level.ratio));
        cells.push(level.share.map_or("–".into(), |s| pct(s[1])));
    }
    let prefetchable = misses.last().and_then(|l| l.prefetchable);
    cells.push(prefetchable.map_or("–".into(), pct));
    cells.push(
        misses
            .stall_ns
            .map_or("–".into(), |s| format!("{:.1}", s[1])),
    );
    cells.push(
        misses
            .memory_bound_pct
            .map_or("–".into(), |b| format!("{:.0}", b[1])),
    );
    cells
}

fn matters(misses: &Option<Misses>) -> bool {
    let share = |l: &LevelMisses| l.share.map_or(0.0, |s| s[1]);
    misses
        .iter()
        .flat_map(|m| &m.levels)
        .any(|l| share(l) >= MIN_ROW_SHARE)
}

/// The table of misses by function, line, loop and object (`--misses`).
pub(crate) fn miss_tables(analysis: &Analysis, style: Style, out: &mut String) {
    let Some(whole) = &analysis.summary.misses else {
        heading(
            out,
            "Misses: unknown for partial results, full traces with --block other than 64, and traces without whole windows.",
        );
        return;
    };
    heading(
        out,
        "Predicted misses (per load and share of the run's, percent; 95 % interval; seq: those in the order of memory, which prefetchers see ahead; wait: ns per load, an estimate)",
    );
    let mut names = vec!["where".to_string(), "what".to_string()];
    for level in &whole.levels {
        names.push(format!("{} {}", level.level, bytes(level.size)));
        names.push("share".into());
    }
    names.extend(["seq", "wait", "time%"].map(String::from));
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut t = text_table(style, &names, 2);
    let mut add = |place: String, what: &str, misses: &Option<Misses>| {
        if let Some(of) = misses {
            let mut all = vec![place, what.to_string()];
            all.extend(cells(of));
            t.add_row(row(all, 2));
        }
    };
    add("the run".into(), "", &analysis.summary.misses);
    let by_share = |misses: &Option<Misses>| {
        let last = misses.as_ref().and_then(Misses::last);
        last.and_then(|l| l.share).map_or(0.0, |s| s[1])
    };
    let mut rows: Vec<(String, &str, &Option<Misses>)> = Vec::new();
    for of in &analysis.functions {
        rows.push((
            names::short_function(&of.function, 40),
            "function",
            &of.loads.misses,
        ));
    }
    for of in &analysis.lines {
        let place = format!("{}:{}", tail(&of.file, 36), of.line);
        rows.push((place, "line", &of.loads.misses));
    }
    for of in &analysis.loops {
        let place = format!("{}:{}", tail(&of.file, 36), of.line);
        rows.push((place, "loop", &of.loads.misses));
    }
    for of in &analysis.objects {
        rows.push((head(&of.object, 40), "object", &of.misses));
    }
    rows.retain(|r| matters(r.2));
    for what in ["function", "line", "loop", "object"] {
        let mut of: Vec<_> = rows.iter().filter(|r| r.1 == what).collect();
        of.sort_by(|a, b| by_share(b.2).total_cmp(&by_share(a.2)));
        for (place, what, misses) in of.into_iter().take(style.rows) {
            add(place.clone(), what, misses);
        }
    }
    push(out, &t);
    if let Some(seen) = whole.watched.as_ref().and_then(watched) {
        out.push_str(&format!("Predicted {seen}.\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percents_are_as_fine_as_they_are_small() {
        assert_eq!([0.0004, 0.012, 0.5].map(pct), ["0.04", "1.2", "50"]);
        assert_eq!(within(Some([0.1, 0.2, 0.3])), "20 (10–30)");
        assert_eq!(within(Some([0.2; 3])), "20");
    }
}
