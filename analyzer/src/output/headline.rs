//! A finding on the screen: two lines of headline, one of evidence, one of remedy.

use crate::data::object_map::{HEAP, is_address};
use crate::findings::{Finding, Observation};
use crate::misses::is_vague;
use crate::output::findings::{cost, gain, object_of, with_module};
use crate::output::paint::Paint;
use crate::output::readable::{clauses, size, whole_clauses, within};
use crate::output::text_table::head;
use crate::report::LineRow;
use std::collections::BTreeMap;

/// Columns of the indentation after the first line.
const INDENT: usize = 3;
/// Minimum cost for a warning, percent. Source: Chosen.
const MIN_WARNING_PCT: f64 = 10.0;
/// Minimum misses per load that count as evidence, percent. Source: Chosen.
const MIN_EVIDENCE_PCT: f64 = 1.0;
/// Minimum columns for a function and for an object.
const NAME: usize = 24;

/// Layout of the findings.
#[derive(Clone, Copy)]
pub(crate) struct HeadlineLayout<'a> {
    pub(crate) width: usize,
    pub(crate) paint: Paint,
    /// Short names of source files.
    pub(crate) files: &'a BTreeMap<&'a str, String>,
}

impl HeadlineLayout<'_> {
    fn indented(&self, label: &str, text: &str) -> String {
        let text = head(text, self.width - INDENT - label.chars().count());
        let label = match label {
            "Try: " => self.paint.good(label),
            label => self.paint.dim(label),
        };
        format!("{:INDENT$}{label}{text}", "")
    }
}

/// The mechanism, its cost, its place and its data.
pub(crate) fn headline(
    number: usize,
    lines: &[LineRow],
    finding: &Finding,
    layout: HeadlineLayout<'_>,
) -> Vec<String> {
    let costs = cost(finding);
    let begin = format!("{number}. {}", finding.title);
    let room = layout.width.saturating_sub(costs.chars().count() + 2);
    let title = format!(
        "{}: {}",
        layout.paint.bold(&head(&begin, room)),
        layout.paint.cost(&costs, finding.score >= MIN_WARNING_PCT)
    );
    let line = match (finding.line, layout.files.get(finding.file.as_str())) {
        (0, _) | (_, None) => String::new(),
        (line, Some(file)) => format!(", {file}:{line}"),
    };
    let takes = takes(lines, finding);
    // Code without a name is called code already.
    let takes = match finding.function.starts_with("[0x") {
        true => takes.trim_start_matches("code "),
        false => &takes,
    };
    let fixed = INDENT + line.chars().count() + takes.chars().count() + 2;
    let room = layout.width.saturating_sub(fixed).max(NAME);
    let whole = data(finding, usize::MAX);
    // The name of the function is shortened first.
    let most = room.saturating_sub(whole.chars().count()).max(NAME);
    let function = with_module(&finding.function, &finding.module, most);
    let left = room.saturating_sub(function.chars().count());
    let data = match whole.chars().count() <= left {
        true => whole,
        false if left >= NAME => data(finding, left),
        false => String::new(),
    };
    let text = format!("{function}{line}, {takes}{data}");
    vec![title, layout.indented("", &text)]
}

/// Evidence, remedy, and the remedy's gain, if it is certain.
pub(crate) fn reasons(finding: &Finding, layout: HeadlineLayout<'_>) -> Vec<String> {
    let room = layout.width - INDENT - "Why: ".len();
    let mut lines = vec![
        layout.indented("Why: ", &evidence(finding, room)),
        layout.indented("Try: ", &clauses(&finding.advice, room)),
    ];
    lines.extend(gain(finding, room).map(|gain| layout.indented("Gain: ", &gain)));
    lines
}

/// Time share of a finding's code: that of its line, if the line is large enough for the cost.
fn takes(lines: &[LineRow], finding: &Finding) -> String {
    let of = |time: crate::estimate::time_shares::TimeShare| {
        Some(within(time.value?, time.lo.zip(time.hi)))
    };
    let Some(of_code) = of(finding.time) else {
        return format!("has {} of the loads", within(finding.loads, None));
    };
    let line = lines.iter().find(|l| {
        l.line > 0
            && (&l.function, &l.file, l.line) == (&finding.function, &finding.file, finding.line)
    });
    let line = line.map(|l| l.loads.time).filter(|time| {
        let (own, all) = (time.value.unwrap_or(0.0), finding.time.value.unwrap_or(0.0));
        own >= finding.score && own < all
    });
    match line.and_then(of) {
        Some(share) => format!("a line with {share} of the time"),
        None => format!("code with {of_code} of the time"),
    }
}

/// Object of a finding in at most `most` columns, or the size of an object without a name.
fn data(finding: &Finding, most: usize) -> String {
    const BEGIN: &str = "; data: ";
    let object = object_of(finding, most.saturating_sub(BEGIN.len()));
    if is_named(finding) {
        return format!("{BEGIN}{object}");
    }
    match (object.as_str(), finding.object_bytes) {
        ("", _) => String::new(),
        (HEAP, _) => "; data: on the heap".into(),
        (_, 0) => "; data without a name".into(),
        (_, bytes) => format!("; data: {} without a name", size(bytes)),
    }
}

/// True if the data of a finding have a name that the user knows.
pub(crate) fn is_named(finding: &Finding) -> bool {
    let object = finding.object.as_str();
    !object.is_empty() && object != HEAP && !is_address(object)
}

/// The mechanism, and the deepest cache that its loads miss, or else the share of new lines.
fn evidence(finding: &Finding, room: usize) -> String {
    let Observation {
        mechanism,
        evidence,
    } = &finding.finding;
    let length = |text: &str| text.chars().count();
    let Some(misses) = missed(finding) else {
        let left = room.saturating_sub(length(mechanism) + 2);
        return match whole_clauses(evidence, left).filter(|whole| !whole.is_empty()) {
            Some(whole) => format!("{mechanism}; {whole}"),
            None => clauses(mechanism, room),
        };
    };
    let begin = clauses(mechanism, room.saturating_sub(length(&misses) + 2));
    if begin.ends_with('…') {
        return clauses(mechanism, room);
    }
    format!("{begin}; {misses}")
}

/// The deepest cache that the loads certainly miss, or else the deepest one with a useful
/// prediction.
fn missed(finding: &Finding) -> Option<String> {
    let levels = finding.misses.as_ref()?.levels.iter().rev();
    let known: Vec<(&str, [f64; 3])> = levels
        .filter_map(|l| Some((l.level.as_str(), l.ratio.filter(|ratio| !is_vague(*ratio))?)))
        .map(|(level, ratio)| (level, ratio.map(|part| 100.0 * part)))
        .filter(|(_, [_, value, _])| *value >= MIN_EVIDENCE_PCT)
        .collect();
    let certain = known.iter().find(|(_, range)| range[0] >= MIN_EVIDENCE_PCT);
    let (level, [lo, value, hi]) = certain.or(known.first())?;
    let share = within(*value, Some((*lo, *hi)));
    let text = format!("{share} of these loads miss the {level}");
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::time_shares::TimeShare;
    use crate::report::LoadMetrics;

    fn share(value: f64, lo: f64, hi: f64) -> TimeShare {
        TimeShare {
            value: Some(value),
            lo: Some(lo),
            hi: Some(hi),
            of_runs: None,
        }
    }

    fn walk() -> Finding {
        Finding {
            title: "pointer chase along a list".into(),
            score: 31.0,
            time: share(96.3, 94.0, 98.0),
            function: "list<int, std::allocator<int> >::walk(int)".into(),
            file: "/src/list.cpp".into(),
            line: 23,
            object: "build list.cpp:12".into(),
            finding: Observation {
                mechanism: "each load waits for the one before, which has its address".into(),
                evidence: "50 % of the loads come to a new line".into(),
            },
            advice: "keep the elements in an array (a vector, or indices into one), or several per node; at least allocate nodes in the order in which they are walked".into(),
            ..Finding::default()
        }
    }

    fn layout<'a>(width: usize, files: &'a BTreeMap<&'a str, String>) -> HeadlineLayout<'a> {
        HeadlineLayout {
            width,
            paint: Paint::default(),
            files,
        }
    }

    #[test]
    fn four_lines_tell_a_finding() {
        let files = BTreeMap::from([("/src/list.cpp", "list.cpp".to_string())]);
        let finding = walk();
        let mut text = headline(1, &[], &finding, layout(110, &files));
        text.extend(reasons(&finding, layout(110, &files)));
        assert_eq!(
            text,
            [
                "1. pointer chase along a list: predicted cost 30 % of the time",
                "   list<…>::walk, list.cpp:23, code with 96 % (94–98) of the time; data: build list.cpp:12",
                "   Why: each load waits for the one before, which has its address; 50 % of the loads come to a new line",
                "   Try: keep the elements in an array (a vector, or indices into one), or several per node",
            ]
        );
        for width in 80..=120 {
            let mut text = headline(1, &[], &finding, layout(width, &files));
            text.extend(reasons(&finding, layout(width, &files)));
            assert_eq!(text.len(), 4);
            assert!(text.iter().all(|l| l.chars().count() <= width), "{text:#?}");
        }
    }

    #[test]
    fn the_share_is_that_of_the_line_if_this_can_have_the_cost() {
        let finding = walk();
        let line = |time| LineRow {
            function: finding.function.clone(),
            file: finding.file.clone(),
            line: 23,
            loads: LoadMetrics {
                time,
                ..LoadMetrics::default()
            },
            ..LineRow::default()
        };
        let inner = takes(&[line(share(35.2, 32.0, 38.5))], &finding);
        assert_eq!(inner, "a line with 35 % (32–38) of the time");
        let outer = takes(&[line(share(12.0, 10.0, 14.0))], &finding);
        assert_eq!(outer, "code with 96 % (94–98) of the time");
    }

    #[test]
    fn data_without_a_name_have_a_size() {
        let of = |object: &str| {
            let finding = Finding {
                object: object.into(),
                object_bytes: 72 << 20,
                ..Finding::default()
            };
            data(&finding, 60)
        };
        assert_eq!(of("0x7f00 (72.0 MiB)"), "; data: 72MiB without a name");
        assert_eq!(of("[heap]"), "; data: on the heap");
        assert_eq!((of("grid"), of("")), ("; data: grid".into(), String::new()));
    }
}
