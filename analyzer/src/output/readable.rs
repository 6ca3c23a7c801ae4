//! Numbers and sentences in the short forms of a screen.

use crate::util::human::bytes;

/// A percentage, with decimals only if they are significant.
fn plain(pct: f64, is_fine: bool) -> String {
    match pct {
        ..0.05 => "0".into(),
        99.95.. => "100".into(),
        ..9.95 => format!("{pct:.1}"),
        _ if is_fine => format!("{pct:.1}"),
        _ => format!("{pct:.0}"),
    }
}

/// `58 % (52–63)`: a percentage with its interval, if it has one.
pub(crate) fn within(value: f64, ends: Option<(f64, f64)>) -> String {
    let is_fine = value >= 99.0 && ends.is_none_or(|(lo, hi)| hi - lo < 1.0);
    let of = |pct: f64| plain(pct, is_fine);
    match ends.map(|(lo, hi)| (of(lo), of(hi))) {
        _ if value > 0.0 && value < 0.05 => "below 0.1 %".into(),
        _ if value <= 0.0 && ends.is_some_and(|(_, hi)| hi < 0.1) => "0 %".into(),
        Some((lo, hi)) if lo != hi => format!("{} % ({lo}–{hi})", of(value)),
        _ => format!("{} %", of(value)),
    }
}

/// A count with a comma at each thousand.
pub(crate) fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes in two digits: 71MiB, 3.4KiB.
pub(crate) fn size(n: u64) -> String {
    let exact = bytes(n);
    let unit = exact.find(|c: char| c.is_ascii_alphabetic());
    let (number, unit) = exact.split_at(unit.unwrap_or(exact.len()));
    match number.parse::<f64>() {
        Ok(value) if number.contains('.') && value < 9.95 => format!("{value:.1}{unit}"),
        Ok(value) => format!("{value:.0}{unit}"),
        Err(_) => exact,
    }
}

/// Seconds as a stopwatch shows them: 0.23 s, 12.6 s, 340 s.
pub(crate) fn seconds(s: f64) -> String {
    match s {
        ..1.0 => format!("{s:.2} s"),
        ..100.0 => format!("{s:.1} s"),
        _ => format!("{s:.0} s"),
    }
}

/// The clauses of a text that fit into `most` columns. Parentheses are left out if more clauses fit
/// then. A single clause that does not fit is cut.
pub(crate) fn clauses(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.into();
    }
    let (whole, bare) = (whole_clauses(text, most), without_parentheses(text));
    let shorter = whole_clauses(&bare, most);
    let length = |text: &str| text.chars().count();
    let is_more =
        |whole: &String, shorter: &String| length(shorter) > length(&without_parentheses(whole));
    match (whole, shorter) {
        (Some(whole), Some(shorter)) if is_more(&whole, &shorter) => shorter,
        (Some(whole), _) => whole,
        (None, Some(shorter)) => shorter,
        (None, None) => crate::output::text_table::head(text, most),
    }
}

/// A text without its parentheses.
fn without_parentheses(text: &str) -> String {
    let mut depth = 0u32;
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '(' => {
                depth += 1;
                if depth == 1 && out.ends_with(' ') {
                    out.pop();
                }
            }
            ')' => depth = depth.saturating_sub(1),
            c if depth == 0 => out.push(c),
            _ => {}
        }
    }
    out
}

/// The clauses of a text that fit into `most` columns; none if not even the first does.
pub(crate) fn whole_clauses(text: &str, most: usize) -> Option<String> {
    if text.chars().count() <= most {
        return Some(text.into());
    }
    let mut depth = 0i32;
    let (mut strong, mut weak) = (None, None);
    for (at, c) in text.char_indices().take(most + 1) {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            ';' if depth == 0 && text[at + 1..].starts_with(' ') => strong = Some(at),
            ',' | ':' if depth == 0 && text[at + 1..].starts_with(' ') => weak = Some(at),
            _ => {}
        }
    }
    // The end of a sentence is preferred, unless it cuts off more than half.
    let end = match (strong, weak) {
        (Some(strong), Some(weak)) if strong * 2 < weak => Some(weak),
        (strong, weak) => strong.or(weak),
    };
    end.map(|end| text[..end].to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_fine_as_people_need_them() {
        let of = |value, lo, hi| within(value, Some((lo, hi)));
        assert_eq!(of(57.64, 51.6, 63.5), "58 % (52–64)");
        assert_eq!(of(99.9, 98.0, 100.0), "100 % (98–100)");
        assert_eq!(of(7.9, 0.0, 11.2), "7.9 % (0–11)");
        assert_eq!(
            [999, 2350, 1_234_567].map(thousands),
            ["999", "2,350", "1,234,567"]
        );
        assert_eq!(of(3.44, 1.2, 7.8), "3.4 % (1.2–7.8)");
        assert_eq!(of(99.54, 99.5, 99.6), "99.5 % (99.5–99.6)");
        assert_eq!(of(100.0, 98.1, 100.0), "100 % (98–100)");
        assert_eq!(of(0.01, 0.0, 0.4), "below 0.1 %");
        assert_eq!(
            (of(0.0, 0.0, 0.0), within(12.3, None)),
            ("0 %".into(), "12 %".into())
        );
        let sizes = [95, 1331, 46 << 20, 235 << 20, 1 << 30].map(size);
        assert_eq!(sizes, ["95B", "1.3KiB", "46MiB", "235MiB", "1.0GiB"]);
        assert_eq!(
            [0.034, 12.59, 341.2].map(seconds),
            ["0.03 s", "12.6 s", "341 s"]
        );
    }

    #[test]
    fn sentences_end_where_a_clause_ends() {
        let text = "use wide nodes (a B-tree, say), a sorted array, or a pool; 2 MiB pages help";
        assert_eq!(clauses(text, 80), text);
        assert_eq!(
            clauses(text, 60),
            "use wide nodes, a sorted array, or a pool; 2 MiB pages help"
        );
        assert_eq!(
            clauses(text, 50),
            "use wide nodes, a sorted array, or a pool"
        );
        assert_eq!(clauses(text, 31), "use wide nodes, a sorted array");
        assert_eq!(clauses(text, 12), "use wide no…");
        let text = "split the elements: keep what is read in an array of its own (of hot parts)";
        assert_eq!(
            clauses(text, 62),
            "split the elements: keep what is read in an array of its own"
        );
    }
}
