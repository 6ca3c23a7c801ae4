//! A comparison in words.

use crate::compare::change::{Change, Test, Verdict};
use crate::compare::entries::{Cell, EntryKind, Metric};
use crate::compare::judge::Comparison;
use crate::util::elided::elided;
use crate::util::human::{bytes, counted, number};

/// Source: Chosen.
const MAX_SENTENCES: usize = 5;
/// A difference of the CPU times of single runs from which on it is always mentioned, percent.
/// Source: Chosen.
const MIN_RUN_DIFFERENCE_PCT: f64 = 10.0;
/// Exact numbers that differ by less are not mentioned, percent. Source: Chosen.
const MIN_NEWS_PCT: f64 = 1.0;

/// A number with few digits.
pub fn amount(x: f64) -> String {
    number(Some(x))
}

fn percent(x: f64) -> String {
    if x.abs() < 9.95 && x.fract().abs() > 1e-9 {
        format!("{x:.1}")
    } else {
        format!("{x:.0}")
    }
}

/// A number with its interval.
pub fn cell(metric: &Metric, cell: &Cell) -> String {
    let (write, sign): (&dyn Fn(f64) -> String, &str) = match metric {
        metric if metric.is_share() => (&percent, "%"),
        Metric::Size => (&|x| bytes(x as u64), ""),
        _ => (&amount, ""),
    };
    let value = format!("{}{sign}", write(cell.value));
    match (cell.lo, cell.hi) {
        _ if cell.is_exact() => value,
        (Some(lo), Some(hi)) => format!("{value} [{}, {}]", write(lo), write(hi)),
        _ => format!("{value} [?]"),
    }
}

/// The change in percent.
pub fn change(change: &Change) -> String {
    match change.change_pct {
        _ if change.base.value == change.new.value => "0%".into(),
        Some(pct) if pct.abs() < 0.05 => format!("{pct:+.3}%"),
        Some(pct) if pct.abs() < 9.95 => format!("{pct:+.1}%"),
        Some(pct) => format!("{pct:+.0}%"),
        None => "new".into(),
    }
}

/// Name of a comparison's entry.
pub fn change_name(change: &Change) -> String {
    let short = |name: &str| match change.kind {
        // Names of objects contain source paths.
        EntryKind::Object if !name.contains('<') => name.to_string(),
        _ => elided(name),
    };
    let renamed = |name: &str| match &change.new_name {
        Some(new) if short(new) != short(name) => format!("{} (now {})", short(name), short(new)),
        _ => short(name),
    };
    let place = |place: &str| match &change.new_place {
        new if new.is_empty() || new == place => place.to_string(),
        new if place.is_empty() => new.clone(),
        new => format!("{place} (now {new})"),
    };
    match change.kind {
        EntryKind::Run => "the run".into(),
        EntryKind::Function | EntryKind::Object => renamed(&change.name),
        EntryKind::Line | EntryKind::Loop
            if change.place.is_empty() && change.new_place.is_empty() =>
        {
            renamed(&change.name)
        }
        EntryKind::Line | EntryKind::Loop => {
            format!("{} in {}", place(&change.place), renamed(&change.name))
        }
    }
}

fn subject(change: &Change) -> String {
    match change.kind {
        EntryKind::Run => "the run".into(),
        EntryKind::Function => format!("`{}`", change_name(change)),
        kind => format!("{} `{}`", kind.name(), change_name(change)),
    }
}

/// A sentence without its full stop.
pub fn sentence(of: &Change) -> String {
    let (old, new) = (cell(&of.metric, &of.base), cell(&of.metric, &of.new));
    let subject = subject(of);
    let pct = match of.change_pct {
        Some(_) => format!(" ({})", change(of)),
        None => String::new(),
    };
    match &of.metric {
        Metric::Time => format!("{subject} takes {new} of the time instead of {old}"),
        Metric::Share => format!("{subject} has {new} of the loads instead of {old}"),
        Metric::Seconds | Metric::Cpu => {
            format!("{subject} takes {new} CPU seconds instead of {old}{pct}")
        }
        Metric::Loads if of.kind == EntryKind::Object => {
            format!("{subject} is loaded {new} times instead of {old}{pct}")
        }
        Metric::Loads => format!("{subject} executes {new} loads instead of {old}{pct}"),
        Metric::Footprint => format!("{subject} touches {new} addresses instead of {old}{pct}"),
        Metric::Growth => {
            format!("{subject} touches {new} new addresses per load instead of {old}{pct}")
        }
        Metric::Distance(p) => {
            format!("{p}% of the reuses of {subject} are within {new} blocks instead of {old}{pct}")
        }
        Metric::Size => format!("{subject} is {new} large instead of {old}{pct}"),
        Metric::Misses(level) => format!(
            "{subject} has {new} {} of {level} instead of {old}{pct}",
            of.unit
        ),
    }
}

/// True if a comparison is a change that deserves a sentence.
pub fn is_news(change: &Change) -> bool {
    let changed = matches!(change.verdict, Verdict::Better | Verdict::Worse);
    let small = change.test == Test::Exact
        && change
            .change_pct
            .is_some_and(|pct| pct.abs() < MIN_NEWS_PCT);
    changed && !small
}

/// Importance of a change: the entry's part of the run, times the change.
fn importance(change: &Change) -> f64 {
    let size = change
        .change_pct
        .map_or(2.0, |pct| (1.0 + pct / 100.0).max(0.01).ln().abs());
    let of = match (change.kind, &change.metric) {
        // All other entries are parts of the run.
        (EntryKind::Run, Metric::Cpu) => return f64::INFINITY,
        (_, Metric::Seconds | Metric::Time | Metric::Share) => {
            return 1000.0 + (change.new.value - change.base.value).abs();
        }
        (EntryKind::Run, Metric::Growth | Metric::Distance(_)) => 1.0,
        (EntryKind::Run, _) => 10.0,
        (_, Metric::Growth | Metric::Distance(_)) => 0.1 * change.weight / 100.0,
        _ => change.weight / 100.0,
    };
    of * size
}

/// The verdict in words.
pub fn verdict(comparison: &Comparison) -> Vec<String> {
    // A line or loop is mentioned only if its function is not.
    let mut told: Vec<&Change> = Vec::new();
    let mut news: Vec<&Change> = comparison.changes.iter().filter(|c| is_news(c)).collect();
    news.sort_by(|a, b| {
        importance(b)
            .total_cmp(&importance(a))
            .then_with(|| a.name.cmp(&b.name))
    });
    let mut more = 0;
    for &change in &news {
        let small = matches!(change.kind, EntryKind::Line | EntryKind::Loop);
        let known = news.iter().any(|c| {
            c.kind == EntryKind::Function && c.name == change.name && c.metric == change.metric
        });
        if small && known {
            continue;
        }
        if told.len() < MAX_SENTENCES {
            told.push(change);
        } else {
            more += 1;
        }
    }
    let unclear = comparison
        .changes
        .iter()
        .filter(|c| c.verdict == Verdict::Unclear)
        .count();
    let mut lines: Vec<String> = told.iter().map(|c| sentence(c)).collect();
    // A large change of the CPU time comes first: shares of the time mean little if the run takes
    // half as long.
    let cpu = comparison.changes.iter().find(|c| {
        c.kind == EntryKind::Run && c.metric == Metric::Cpu && c.verdict == Verdict::Unclear
    });
    if let Some(cpu) = cpu.filter(|c| {
        c.change_pct
            .is_some_and(|pct| pct.abs() >= MIN_RUN_DIFFERENCE_PCT)
    }) {
        let sentence = sentence(cpu);
        lines.insert(
            0,
            format!("{sentence} (chance or not: several runs a side tell)"),
        );
    }
    for (list, what) in [
        (&comparison.only_new, "is new"),
        (&comparison.only_base, "is gone"),
    ] {
        let functions = list.iter().filter(|a| a.kind == EntryKind::Function);
        for alone in functions.take(MAX_SENTENCES) {
            let told = told.iter().any(|c| c.name == alone.name);
            if !told {
                lines.push(format!(
                    "`{}` {what} ({}%)",
                    elided(&alone.name),
                    percent(alone.weight)
                ));
            }
        }
    }
    lines.extend(comparison.findings.sentences());
    let rest = if unclear > 0 {
        format!(
            "{} cannot be told",
            counted(unclear as u64, "comparison", "comparisons")
        )
    } else {
        String::new()
    };
    let end = match (lines.is_empty(), more) {
        (true, _) if rest.is_empty() => "nothing changed".to_string(),
        (true, _) => format!("no change was found ({rest})"),
        (false, 0) if rest.is_empty() => "nothing else changed".into(),
        (false, 0) => format!("no other change was found ({rest})"),
        (false, more) if rest.is_empty() => {
            format!("{}, below", counted(more, "more change", "more changes"))
        }
        (false, more) => format!(
            "{}, below ({rest})",
            counted(more, "more change", "more changes")
        ),
    };
    lines.push(end);
    if let Some(fix) = &comparison.fix {
        lines.insert(0, fix.sentence());
    }
    lines
}

/// The verdict as one text: sentences on lines of their own.
pub fn verdict_text(comparison: &Comparison) -> String {
    let mut lines = verdict(comparison);
    let last = lines.len() - 1;
    for (at, line) in lines.iter_mut().enumerate() {
        line.push_str(if at == last { "." } else { ";" });
    }
    // The sentence begins with a capital letter.
    if let Some(first) = lines.first_mut()
        && first.starts_with(|c: char| c.is_ascii_lowercase())
    {
        first[..1].make_ascii_uppercase();
    }
    lines.join("\n")
}

/// Changes for tables that people read: lines and loops only if they changed.
pub fn shown(comparison: &Comparison) -> Vec<&Change> {
    let mut all = ordered(comparison);
    all.retain(|c| is_news(c) || !matches!(c.kind, EntryKind::Line | EntryKind::Loop));
    all
}

/// Changes in the order of the tables: changes that deserve a sentence by importance, then equal
/// numbers, then uncertain ones.
pub fn ordered(comparison: &Comparison) -> Vec<&Change> {
    let mut all: Vec<&Change> = comparison.changes.iter().collect();
    let class = |c: &Change| match c.verdict {
        _ if is_news(c) => 0,
        Verdict::Better | Verdict::Worse => 1,
        Verdict::Unclear => 2,
        Verdict::Same => 3,
    };
    all.sort_by(|a, b| {
        (class(a).cmp(&class(b)))
            .then_with(|| importance(b).total_cmp(&importance(a)))
            .then_with(|| (a.kind, &a.name, &a.place).cmp(&(b.kind, &b.name, &b.place)))
    });
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_begins_with_the_share_of_time() {
        let cell = |value: f64, lo: f64, hi: f64| Cell {
            value,
            lo: Some(lo),
            hi: Some(hi),
        };
        let change = |kind, metric: Metric, base: Cell, new: Cell, verdict| Change {
            kind,
            name: if kind == EntryKind::Run {
                String::new()
            } else {
                "kernel".into()
            },
            new_name: None,
            place: String::new(),
            new_place: String::new(),
            unit: metric.unit(false),
            metric,
            change_pct: Some((new.value / base.value - 1.0) * 100.0),
            base,
            new,
            change_lo: None,
            change_hi: None,
            p: Some(0.001),
            test: Test::Intervals,
            verdict,
            weight: 45.0,
        };
        let mut comparison = Comparison {
            changes: vec![
                change(
                    EntryKind::Run,
                    Metric::Loads,
                    Cell::exact(5.0),
                    Cell::exact(5.0),
                    Verdict::Same,
                ),
                change(
                    EntryKind::Function,
                    Metric::Time,
                    cell(45.0, 42.0, 48.0),
                    cell(31.0, 28.0, 34.0),
                    Verdict::Better,
                ),
            ],
            ..Comparison::default()
        };
        assert_eq!(
            verdict_text(&comparison),
            "`kernel` takes 31% [28, 34] of the time instead of 45% [42, 48];\nnothing else changed."
        );
        comparison.changes.remove(1);
        assert_eq!(verdict_text(&comparison), "Nothing changed.");
    }
}
