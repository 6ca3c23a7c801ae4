//! Findings as text.

use crate::findings::Finding;
use crate::output::elided::elided;
use crate::output::misses;
use crate::output::text::{head, tail};
use crate::report::Analysis;
use crate::util::human::percent;

/// Columns that a text is indented by.
const INDENT: usize = 4;

/// A text in lines of at most so many columns, indented.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        let long = INDENT + line.chars().count() + 1 + word.chars().count() > width;
        if long && !line.is_empty() {
            lines.push(format!("{:INDENT$}{line}", ""));
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if !line.is_empty() {
        lines.push(format!("{:INDENT$}{line}", ""));
    }
    lines
}

/// What a finding is and what it costs, in one line.
fn title(number: usize, finding: &Finding, width: usize) -> String {
    let mut share = format!("{}% of the loads", percent(Some(finding.loads)));
    if let (Some(lo), Some(hi)) = (finding.time.lo, finding.time.hi) {
        share = format!(
            "{}% of the time ({}–{})",
            percent(finding.time.value),
            percent(Some(lo)),
            percent(Some(hi))
        );
    }
    head(&format!("{number}. {}: {share}", finding.title), width)
}

/// Where it is and of what.
fn place(finding: &Finding, width: usize) -> Vec<String> {
    let function = elided(&finding.function);
    let place = match finding.line {
        0 => function,
        line => format!("{function}, {}:{line}", tail(&finding.file, 48)),
    };
    let object = match (finding.object.as_str(), finding.allocated.as_str()) {
        ("", _) => String::new(),
        (object, "") => format!("; object {}", head(&elided_object(object), 60)),
        (object, at) => {
            let first = at.split(" < ").next().unwrap_or(at);
            let object = elided_object(object);
            match object.contains(first) {
                true => format!("; object {}", head(&object, 60)),
                false => format!(
                    "; object {}, allocated by {}",
                    head(&object, 40),
                    head(&elided(first), 60)
                ),
            }
        }
    };
    wrapped(&format!("{place}{object}"), width)
}

/// Objects may have names of sources, which stay.
fn elided_object(name: &str) -> String {
    match name.contains('<') {
        true => elided(name),
        false => name.to_string(),
    }
}

/// All that is said of a finding.
pub(crate) fn full(number: usize, finding: &Finding, width: usize) -> Vec<String> {
    let mut lines = vec![title(number, finding, width)];
    lines.extend(place(finding, width));
    lines.extend(wrapped(&format!("{}.", finding.finding), width));
    if let Some(misses) = finding.misses.as_ref().and_then(misses::in_words) {
        lines.extend(wrapped(&misses, width));
    }
    lines.extend(wrapped(&format!("Try: {}.", finding.advice), width));
    lines
}

/// One or two lines.
pub(crate) fn short(number: usize, finding: &Finding, width: usize) -> Vec<String> {
    let mut lines = vec![title(number, finding, width)];
    lines.extend(place(finding, width).into_iter().take(1));
    lines
}

/// The heading of the findings.
pub(crate) const HEADING: &str = "What is slow about memory, and what to try";

/// All findings in full.
pub(crate) fn all(analysis: &Analysis, width: Option<u16>) -> String {
    let width = usize::from(width.unwrap_or(110)).clamp(60, 120);
    let mut out = format!("{HEADING}\n");
    if analysis.diagnoses.is_empty() {
        for line in wrapped(&none(analysis), width) {
            out.push_str(&format!("{line}\n"));
        }
    }
    for (number, finding) in analysis.diagnoses.iter().enumerate() {
        for line in full(number + 1, finding, width) {
            out.push_str(&format!("{line}\n"));
        }
        if !finding.path.is_empty() {
            let path = format!(
                "Called by way of: {} ({}% of the windows that began there)",
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
            let also = format!("Also: {}", finding.also.join(", "));
            wrapped(&also, width)
                .iter()
                .for_each(|l| out.push_str(&format!("{l}\n")));
        }
    }
    out
}

/// Why there are none.
pub(crate) fn none(analysis: &Analysis) -> String {
    let mut text = analysis.no_diagnosis.clone();
    if let Some(first) = text.get(..1) {
        let upper = first.to_uppercase();
        text.replace_range(..1, &upper);
    }
    format!("{text}.")
}

#[cfg(test)]
mod tests {
    use super::*;

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
            finding: "x ".repeat(100),
            advice: "y ".repeat(100),
            ..Finding::default()
        };
        let lines = full(1, &finding, 80);
        assert!(lines.iter().all(|l| l.chars().count() <= 80), "{lines:#?}");
        assert!(lines[1].contains("std::vector<…>::at"));
    }
}
