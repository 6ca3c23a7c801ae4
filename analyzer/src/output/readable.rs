//! Numbers and sentences as short as a screen needs them.

use crate::util::human::bytes;

/// A percentage without decimals where they say nothing.
fn digits(pct: f64) -> usize {
    match pct {
        pct if pct <= 0.0 || pct >= 99.95 => 0,
        pct if !(9.95..99.0).contains(&pct) => 1,
        _ => 0,
    }
}

/// `58 % (52–63)`: a percentage with its interval, if it has one.
pub(crate) fn within(value: f64, ends: Option<(f64, f64)>) -> String {
    let places = digits(value);
    let least = 10f64.powi(-(places as i32)) / 2.0;
    match ends {
        _ if value > 0.0 && value < 0.05 => "below 0.1 %".into(),
        Some((lo, hi)) if hi - lo >= least => {
            format!("{value:.places$} % ({lo:.places$}–{hi:.places$})")
        }
        _ => format!("{value:.places$} %"),
    }
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

/// The clauses of a text that fit into so many columns. A single clause that does not fit is
/// cut.
pub(crate) fn clauses(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.into();
    }
    let mut depth = 0i32;
    let (mut strong, mut weak) = (None, None);
    for (column, (at, c)) in text.char_indices().enumerate() {
        if column > most {
            break;
        }
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            ';' | ':' if depth == 0 && text[at + 1..].starts_with(' ') => strong = Some(at),
            ',' if depth == 0 && text[at + 1..].starts_with(' ') => weak = Some(at),
            _ => {}
        }
    }
    // The border of a sentence is the better one, unless little stands before it.
    let end = match (strong, weak) {
        (Some(strong), Some(weak)) if strong * 2 < weak => Some(weak),
        (strong, weak) => strong.or(weak),
    };
    match end {
        Some(end) => text[..end].to_string(),
        None => crate::output::text::head(text, most),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_fine_as_people_need_them() {
        let of = |value, lo, hi| within(value, Some((lo, hi)));
        assert_eq!(of(57.64, 51.6, 63.5), "58 % (52–64)");
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
            "use wide nodes (a B-tree, say), a sorted array, or a pool"
        );
        assert_eq!(clauses(text, 40), "use wide nodes (a B-tree, say)");
        assert_eq!(clauses(text, 12), "use wide no…");
    }
}
