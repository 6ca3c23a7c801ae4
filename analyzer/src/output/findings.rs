//! Findings as text.

use crate::findings::{Finding, SourceLine};
use crate::misses::LatencySource;
use crate::output::misses;
use crate::output::names;
use crate::output::text_table::{head, short_path};
use crate::report::Analysis;
use crate::util::elided::elided;
use crate::util::human::percent;
use mgz_annotations_schema::NamedRemedy;

/// Columns of a text's indentation.
const INDENT: usize = 4;
/// Maximum columns of a function's name.
const FUNCTION: usize = 80;
/// Maximum columns of an object's name.
const OBJECT: usize = 100;
/// A smaller cost is shown as "a few", percent. Source: Chosen.
const FEW_PCT: f64 = 5.0;

/// A text in indented lines of at most `width` columns.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    hanging(&" ".repeat(INDENT), text, width)
}

/// A text in lines of at most `width` columns after a label. The other lines are indented by the
/// label's width.
pub(crate) fn hanging(label: &str, text: &str, width: usize) -> Vec<String> {
    let indent = label.chars().count();
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    let mut end = |line: &mut String| {
        let begin = if lines.is_empty() { label } else { "" };
        lines.push(format!("{begin:indent$}{line}"));
        line.clear();
    };
    for word in text.split_whitespace() {
        let long = indent + line.chars().count() + 1 + word.chars().count() > width;
        if long && !line.is_empty() {
            end(&mut line);
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if !line.is_empty() {
        end(&mut line);
    }
    lines
}

/// A finding's title and its cost, in one line.
fn title(number: usize, finding: &Finding, width: usize) -> String {
    head(
        &format!("{number}. {}: {}", finding.title, cost(finding)),
        width,
    )
}

/// The cost of a finding, never more than the share of its code. With assumed latencies it is
/// rounded, and its ends are shown only if the misses themselves are very uncertain.
pub(crate) fn cost(finding: &Finding) -> String {
    // Without windows by time, the cost comes from a model of the loads alone.
    let of = match finding.time.value {
        Some(_) => " of the time",
        None => "",
    };
    let most = finding.time.value.unwrap_or(f64::INFINITY);
    let ends = (finding.score_lo.min(most), finding.score_hi.min(most));
    let cost = match finding.is_upper_bound {
        true => format!("up to {}", roughly(finding.score_hi, most)),
        false if finding.is_vague() && ends.0 < 0.5 => format!("up to {:.0} %", ends.1.max(1.0)),
        false if finding.is_vague() => between(ends.0, ends.1),
        false if finding.has_measured_latencies() => {
            let [lo, value, hi] = [ends.0, finding.score.min(most), ends.1].map(whole);
            match lo == hi {
                true => format!("{value} %"),
                false => format!("{value} % ({lo}–{hi})"),
            }
        }
        false => roughly(finding.score, most),
    };
    format!("predicted cost {cost}{of}")
}

/// A function in at most `most` columns; code without a name by its address and file.
pub(crate) fn with_module(function: &str, module: &str, most: usize) -> String {
    let file = names::module(module);
    let inner = function.strip_prefix('[').and_then(|f| f.strip_suffix(']'));
    match inner.filter(|_| !file.is_empty()) {
        Some(address) if address.starts_with("0x") => {
            head(&format!("code at {address} of {file}"), most)
        }
        Some(_) => head(&format!("{function} of {file}"), most),
        None => names::short_function(function, most),
    }
}

fn whole(percent: f64) -> String {
    format!("{percent:.0}")
}

/// A rounded cost; the report rounds in the same way. It does not exceed `most`.
fn roughly(share: f64, most: f64) -> String {
    let rounded = (share / 5.0).round() * 5.0;
    match share {
        few if few < FEW_PCT => "a few %".into(),
        _ if rounded > most => format!("{} %", (share / 5.0).floor() * 5.0),
        _ => format!("{rounded} %"),
    }
}

/// An uncertain cost, given by its ends.
fn between(lo: f64, hi: f64) -> String {
    let ends = [lo, hi].map(whole);
    match ends[0] == ends[1] {
        true => roughly(hi, f64::INFINITY),
        false => format!("{} to {} %", ends[0], ends[1]),
    }
}

/// Place of a finding, and the share of its code.
fn code(finding: &Finding) -> String {
    let function = with_module(&finding.function, &finding.module, FUNCTION);
    let place = match finding.line {
        0 => function,
        line => format!("{function}, {}:{line}", short_path(&finding.file, 40)),
    };
    let mut share = format!("{}% of the loads", percent(Some(finding.loads)));
    if let (Some(lo), Some(hi)) = (finding.time.lo, finding.time.hi) {
        share = format!(
            "in code with {}% of the time, {}–{}",
            percent(finding.time.value),
            percent(Some(lo)),
            percent(Some(hi))
        );
    }
    format!("{place} ({share})")
}

/// Place and object of a finding.
fn place(finding: &Finding, width: usize) -> Vec<String> {
    let object = match object_of(finding, OBJECT) {
        none if none.is_empty() => none,
        object => format!("; object {object}"),
    };
    wrapped(&format!("{}{object}", code(finding)), width)
}

/// Name of the object of a finding in at most `most` columns, with the place of its allocation if
/// there is room; empty if it has none.
pub(crate) fn object_of(finding: &Finding, most: usize) -> String {
    match (finding.object.as_str(), finding.allocated.as_str()) {
        ("", _) => String::new(),
        (object, "") => names::object(object, most),
        (object, at) => {
            let first = at.split(" < ").next().unwrap_or(at);
            let short = names::object(object, most);
            if object.contains(first) || short.contains(&elided(first)) {
                return short;
            }
            let by = format!(", allocated by {}", names::short_function(first, 60));
            match short.chars().count() + by.chars().count() <= most {
                true => short + &by,
                false => short,
            }
        }
    }
}

/// Source of the cost's latencies, and the measured wait.
fn basis(finding: &Finding) -> Option<String> {
    let latencies = match finding.latencies? {
        LatencySource::Measured => "measured latencies",
        LatencySource::Assumed => "assumed latencies (mgz doctor --measure measures them)",
    };
    let waiting = &finding.waiting;
    let known = waiting.value.zip(waiting.lo.zip(waiting.hi));
    let waits = known.map_or_else(String::new, |(value, (lo, hi))| {
        let [value, lo, hi] = [value, lo, hi].map(|share| percent(Some(share)));
        format!("; measured: {value}% of the time ({lo}–{hi}) directly after these loads")
    });
    Some(format!("Cost predicted with {latencies}{waits}."))
}

/// All parts of a finding.
pub(crate) fn full(number: usize, finding: &Finding, width: usize) -> Vec<String> {
    let mut lines = vec![title(number, finding, width)];
    lines.extend(place(finding, width));
    lines.extend(wrapped(&format!("{}.", finding.finding), width));
    if let Some(basis) = basis(finding) {
        lines.extend(wrapped(&basis, width));
    }
    if let Some(misses) = finding.misses.as_ref().and_then(misses::in_words) {
        lines.extend(wrapped(&misses, width));
    }
    lines.extend(wrapped(&format!("Try: {}.", finding.advice), width));
    if let Some(gain) = gain(finding, usize::MAX) {
        lines.extend(wrapped(&format!("Gain: {gain}."), width));
    }
    lines
}

/// Predicted gain of the finding's remedy in at most `room` columns, if it is known and certain.
pub(crate) fn gain(finding: &Finding, room: usize) -> Option<String> {
    if finding.saved.words.is_empty() {
        return None;
    }
    let words = format!("{} (predicted)", finding.saved.words);
    let left = room.saturating_sub(words.chars().count() + 1);
    Some(format!("{} {words}", short_remedy(&finding.remedy, left)))
}

/// A remedy whose target has a short name: a source file without its folders, or an object.
fn short_remedy(remedy: &str, room: usize) -> String {
    let Some(NamedRemedy { kind, target }) = NamedRemedy::read(remedy) else {
        return remedy.to_owned();
    };
    let target = match target.starts_with('/') {
        true => target.rsplit('/').next().unwrap_or(target).to_owned(),
        false => names::object(target, room.saturating_sub(kind.len() + 4)),
    };
    format!("{kind} of {target}")
}

/// The heading of the findings.
pub(crate) const HEADING: &str = "What is slow about memory, and what to try";

/// All findings in full.
pub(crate) fn all_findings(analysis: &Analysis, width: Option<u16>) -> String {
    let width = usize::from(width.unwrap_or(110)).clamp(60, 120);
    let mut out = format!("{HEADING}\n");
    if analysis.findings.list.is_empty() {
        for line in wrapped(&none(analysis), width) {
            out.push_str(&format!("{line}\n"));
        }
    }
    for (number, finding) in analysis.findings.list.iter().enumerate() {
        for line in full(number + 1, finding, width) {
            out.push_str(&format!("{line}\n"));
        }
        if !finding.path.is_empty() {
            let path = format!(
                "Called through: {} ({}% of the windows that began there)",
                finding
                    .path
                    .iter()
                    .map(|c| elided(c))
                    .collect::<Vec<_>>()
                    .join(" → "),
                percent(finding.path_pct)
            );
            wrapped(&path, width)
                .iter()
                .for_each(|l| out.push_str(&format!("{l}\n")));
        }
        if !finding.also.is_empty() {
            let also: Vec<String> = finding.also.iter().map(SourceLine::to_string).collect();
            let also = format!("Also: {}", also.join(", "));
            wrapped(&also, width)
                .iter()
                .for_each(|l| out.push_str(&format!("{l}\n")));
        }
    }
    out
}

/// Why there are none.
pub(crate) fn none(analysis: &Analysis) -> String {
    let mut text = analysis.findings.none.clone();
    if let Some(first) = text.get(..1) {
        let upper = first.to_uppercase();
        text.replace_range(..1, &upper);
    }
    format!("{text}.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::Observation;

    #[test]
    fn lines_fit() {
        let text = "word ".repeat(60);
        assert!(wrapped(&text, 80).iter().all(|l| l.chars().count() <= 80));
        let finding = Finding {
            title: "pointer chase along a list".into(),
            function: "std::vector<int, std::allocator<int> >::at(unsigned long)".into(),
            file: "/very/long/path/to/a/source/file/of/the/program/list.cpp".into(),
            line: 23,
            object: "build at list.cpp:12".into(),
            finding: Observation {
                mechanism: "x ".repeat(100),
                ..Observation::default()
            },
            advice: "y ".repeat(100),
            ..Finding::default()
        };
        let lines = full(1, &finding, 80);
        assert!(lines.iter().all(|l| l.chars().count() <= 80), "{lines:#?}");
        assert!(lines[1].contains("std::vector<…>::at"));
        assert_eq!(
            with_module("[0x4f0]", "/lib/libz.so.1", 40),
            "code at 0x4f0 of libz.so.1"
        );
        let numpy = "_multiarray_umath.cpython-311-x86_64-linux-gnu.so";
        assert_eq!(
            with_module("[0x19c490]", numpy, 60),
            "code at 0x19c490 of _multiarray_umath"
        );
        assert_eq!(with_module("inflate", "/lib/libz.so.1", 40), "inflate");
        assert!(lines[0].starts_with("1. pointer chase along a list: predicted cost a few %"));
    }

    #[test]
    fn costs_have_their_interval_if_latencies_were_measured() {
        let mut finding = Finding {
            score: 38.2,
            score_lo: 30.6,
            score_hi: 44.4,
            latencies: Some(LatencySource::Measured),
            ..Finding::default()
        };
        finding.time.value = Some(42.0);
        assert_eq!(cost(&finding), "predicted cost 38 % (31–42) of the time");
        finding.latencies = Some(LatencySource::Assumed);
        assert_eq!(cost(&finding), "predicted cost 40 % of the time");
        finding.score_lo = 3.0;
        assert_eq!(cost(&finding), "predicted cost 3 to 42 % of the time");
        finding.is_upper_bound = true;
        assert_eq!(cost(&finding), "predicted cost up to 40 % of the time");
        finding.waiting.value = Some(35.0);
        (finding.waiting.lo, finding.waiting.hi) = (Some(33.0), Some(37.0));
        let text = basis(&finding).unwrap();
        assert!(text.contains("assumed latencies"), "{text}");
        assert!(
            text.contains("measured: 35.0% of the time (33.0–37.0) directly after"),
            "{text}"
        );
    }

    #[test]
    fn lines_hang_behind_their_label() {
        let lines = hanging("memory    ", &"word ".repeat(30), 80);
        assert!(lines[0].starts_with("memory    word"));
        assert!(lines[1].starts_with("          word"));
        assert!(lines.iter().all(|l| l.chars().count() <= 80));
    }

    #[test]
    fn costs_are_rounded_as_in_the_report() {
        let said: Vec<String> = [2.4, 5.0, 14.0, 52.8, 97.0]
            .map(|share| roughly(share, 100.0))
            .to_vec();
        assert_eq!(said, ["a few %", "5 %", "15 %", "55 %", "95 %"]);
        // No more than the code takes.
        assert_eq!(roughly(92.6, 93.0), "90 %");
    }
}
