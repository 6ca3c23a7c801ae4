//! Numbers for people.

/// A count with a decimal prefix: 999, 1.23K, 45.6M.
pub fn count(n: u64) -> String {
    scaled(n as f64, 1000.0, &["", "K", "M", "G", "T", "P", "E"])
}

/// A count with its noun.
pub fn counted(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(n), if n == 1 { one } else { many })
}

/// A count that may be a fraction.
pub fn number(x: Option<f64>) -> String {
    // A value close to zero has no sign.
    match x.map(|x| if x.abs() < 1e-12 { 0.0 } else { x }) {
        None => "–".into(),
        Some(x) if !x.is_finite() => "–".into(),
        Some(x) if x == x.trunc() && x.abs() < 1000.0 => format!("{x:.0}"),
        Some(x) if x.abs() < 0.001 => format!("{x:.1e}"),
        Some(x) if x.abs() < 10.0 => format!("{x:.3}"),
        Some(x) if x.abs() < 1000.0 => format!("{x:.1}"),
        Some(x) => scaled(x, 1000.0, &["", "K", "M", "G", "T", "P", "E"]),
    }
}

/// Bytes with a binary prefix.
pub fn bytes(n: u64) -> String {
    scaled(
        n as f64,
        1024.0,
        &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"],
    )
}

/// A percentage.
pub fn percent(x: Option<f64>) -> String {
    match x {
        None => "–".into(),
        Some(x) => format!("{:.1}", (x * 10.0).round() / 10.0 + 0.0),
    }
}

fn scaled(x: f64, step: f64, units: &[&str]) -> String {
    let mut x = x;
    let mut unit = 0;
    // 999.5 and more would be shown as 1000 of a unit.
    while x >= step - 0.5 && unit + 1 < units.len() {
        x /= step;
        unit += 1;
    }
    if unit == 0 {
        return format!("{x:.0}{}", units[0]);
    }
    let digits = if x < 9.995 {
        2
    } else if x < 99.95 {
        1
    } else {
        0
    };
    format!("{x:.digits$}{}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1000), "1.00K");
        assert_eq!(count(12_345), "12.3K");
        assert_eq!(count(999_999), "1.00M");
        assert_eq!(count(u64::MAX), "18.4E");
        assert_eq!(bytes(64), "64B");
        assert_eq!(bytes(1536), "1.50KiB");
        assert_eq!(number(None), "–");
        assert_eq!(number(Some(0.25)), "0.250");
        assert_eq!(number(Some(3.0)), "3");
        assert_eq!(number(Some(123_456.0)), "123K");
        assert_eq!(percent(Some(66.67)), "66.7");
        assert_eq!(
            (
                number(Some(-0.0)),
                number(Some(-1e-17)),
                percent(Some(-0.04))
            ),
            ("0".into(), "0".into(), "0.0".into())
        );
        assert_eq!(counted(1, "address", "addresses"), "1 address");
        assert_eq!(counted(1200, "address", "addresses"), "1.20K addresses");
    }
}
