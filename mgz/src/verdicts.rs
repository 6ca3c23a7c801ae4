//! What was found, on one screen of text.

use serde_json::Value;
use std::fmt::Write;

/// Findings and rows shown.
const MOST: usize = 5;
/// Characters of a name.
const NAME: usize = 44;

/// The text: one line on the run, the findings, the functions.
pub fn text(analysis: &Value) -> String {
    let mut out = String::new();
    let summary = &analysis["summary"];
    let samples = summary["samples"].as_u64().unwrap_or(0);
    let _ = writeln!(
        out,
        "\n{} loads in {samples} windows, of {}; footprint {}",
        count(&summary["A"]),
        match summary["A_hat"].as_f64() {
            Some(_) => format!("{} executed", within(summary, "A")),
            None => "an unknown number executed".into(),
        },
        within(summary, "F_64") + " lines of 64 bytes"
    );
    findings(&mut out, analysis);
    functions(&mut out, analysis);
    for warning in strings(&analysis["warnings"]) {
        let _ = writeln!(out, "warning: {warning}");
    }
    out
}

fn findings(out: &mut String, analysis: &Value) {
    let list = rows(&analysis["diagnoses"]);
    if list.is_empty() {
        let why = word(&analysis["no_diagnosis"]);
        if !why.is_empty() {
            let _ = writeln!(out, "\nNo findings: {why}");
            return;
        }
        let few = analysis["summary"]["undersampled"] == true
            || analysis["summary"]["samples"].as_u64().unwrap_or(0) < 30;
        out.push_str(match few {
            true => "\nNo findings: too few windows to be sure of any; more come by: mgz run --overhead 5%\n",
            false => "\nNo findings: no line of code that matters shows one of the patterns that are known\n",
        });
        return;
    }
    let _ = writeln!(out, "\nFindings, the most important first");
    for (n, row) in list.iter().take(MOST).enumerate() {
        let mut place = word(&row["function"]);
        if let Some(line) = row["line"].as_u64().filter(|&l| l > 0) {
            let file = word(&row["file"]);
            let file = file.rsplit('/').next().unwrap_or_default();
            let _ = write!(place, ", {file}:{line}");
        }
        let object = word(&row["object"]);
        if !object.is_empty() {
            let _ = write!(place, ", data {object}");
        }
        let title = word(&row["title"]);
        if title.is_empty() {
            let _ = writeln!(out, " {}. {place}: {}", n + 1, word(&row["finding"]));
        } else {
            let _ = writeln!(out, " {}. {title}: {place}", n + 1);
            let _ = writeln!(out, "    {}", word(&row["finding"]));
        }
        let _ = writeln!(out, "    Try: {}", word(&row["advice"]));
    }
    if list.len() > MOST {
        let _ = writeln!(out, "    … {} more in the report", list.len() - MOST);
    }
}

fn functions(out: &mut String, analysis: &Value) {
    let list = rows(&analysis["functions"]);
    if list.is_empty() {
        let why = word(&analysis["no_diagnosis"]);
        if !why.is_empty() {
            let _ = writeln!(out, "\nNo findings: {why}");
            return;
        }
        return;
    }
    let by_time = analysis["summary"]["trace"]["by_time"] == true;
    let (key, head) = match by_time {
        true => ("time_pct", "time%"),
        false => ("A_pct", "loads%"),
    };
    let _ = writeln!(out, "\n{:NAME$} {head:>18} {:>8}", "Function", "B/line");
    for row in list.iter().take(MOST) {
        let share = match (
            row[key].as_f64(),
            row["time_pct_lo"].as_f64(),
            row["time_pct_hi"].as_f64(),
        ) {
            (None, ..) => "–".into(),
            (Some(x), Some(lo), Some(hi)) if by_time => format!("{x:.1} ({lo:.0} to {hi:.0})"),
            (Some(x), ..) => format!("{x:.1}"),
        };
        let used = row["line_bytes"]
            .as_f64()
            .map_or("–".into(), |x| format!("{x:.1}"));
        let name: String = word(&row["function"]).chars().take(NAME).collect();
        let _ = writeln!(out, "{name:NAME$} {share:>18} {used:>8}");
    }
}

fn rows(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn strings(value: &Value) -> impl Iterator<Item = String> {
    rows(value).iter().map(word)
}

/// A text of a trace on a terminal: control characters could move its cursor.
fn word(value: &Value) -> String {
    let text = value.as_str().unwrap_or_default();
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

/// An estimate with its interval.
fn within(row: &Value, name: &str) -> String {
    let part = |suffix: &str| row[format!("{name}_{suffix}")].as_f64();
    match (part("hat"), part("lo"), part("hi")) {
        (None, ..) => count(&row[name]),
        (Some(x), Some(lo), Some(hi)) if lo < hi => {
            format!("{} ({} to {})", human(x), human(lo), human(hi))
        }
        (Some(x), Some(lo), None) => format!("{} (at least {})", human(x), human(lo)),
        (Some(x), ..) => human(x),
    }
}

fn count(value: &Value) -> String {
    value.as_f64().map_or("–".into(), human)
}

/// Three digits and a power of 1,000.
fn human(x: f64) -> String {
    const UNITS: [&str; 6] = ["", "K", "M", "G", "T", "P"];
    let mut x = x;
    let mut unit = 0;
    while x >= 999.5 && unit + 1 < UNITS.len() {
        x /= 1000.0;
        unit += 1;
    }
    match (unit, x) {
        (0, _) => format!("{x:.0}"),
        (_, x) if x < 9.995 => format!("{x:.2}{}", UNITS[unit]),
        (_, x) if x < 99.95 => format!("{x:.1}{}", UNITS[unit]),
        _ => format!("{x:.0}{}", UNITS[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_have_three_digits() {
        let shown = [0.0, 7.0, 999.4, 999.6, 12_345.0, 4_190_000.0, 5e11];
        let expected = ["0", "7", "999", "1.00K", "12.3K", "4.19M", "500G"];
        assert_eq!(shown.map(human), expected);
    }

    #[test]
    fn findings_come_first_and_control_characters_do_not() {
        let analysis = json!({
            "summary": {"A": 5, "samples": 40, "A_hat": 1e6, "A_lo": 5e5, "A_hi": 2e6, "F_64": 3, "F_64_hat": 10.0, "F_64_lo": 5.0, "F_64_hi": null, "trace": {"by_time": true}},
            "diagnoses": [{"function": "f\u{1b}[2J", "file": "/src/a.c", "line": 3, "object": "heap", "finding": "found", "advice": "try"}],
            "functions": [{"function": "f", "time_pct": 50.0, "time_pct_lo": 40.0, "time_pct_hi": 60.0, "line_bytes": 8.0}],
            "warnings": ["doubt"],
        });
        let text = text(&analysis);
        assert!(!text.contains('\u{1b}'), "{text}");
        for part in [
            "1.00M (500K to 2.00M) executed",
            "10 (at least 5)",
            "a.c:3, data heap: found",
            "50.0 (40 to 60)",
            "warning: doubt",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn nothing_found_is_said_with_the_reason() {
        let few = text(&json!({"summary": {"samples": 3}}));
        assert!(few.contains("--overhead"), "{few}");
        let many = text(&json!({"summary": {"samples": 300}}));
        assert!(many.contains("patterns") && !many.contains("--overhead"));
    }
}
