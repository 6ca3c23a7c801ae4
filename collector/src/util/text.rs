//! Numbers and texts for people.

/// A count for people: exact below 100,000, then three digits with k, M, G, T.
pub fn count(n: f64) -> String {
    scaled(n, 1000.0, &["", "k", "M", "G", "T", "P"])
}

/// A size for people, in powers of 1024.
pub fn bytes(n: u64) -> String {
    if n < 1024 {
        return format!("{n} B");
    }
    let text = scaled(n as f64, 1024.0, &["", "Ki", "Mi", "Gi", "Ti", "Pi"]);
    let split = text
        .find(|c: char| c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    format!("{} {}B", &text[..split], &text[split..])
}

pub(crate) fn scaled(n: f64, base: f64, units: &[&str]) -> String {
    let limit = if base == 1000.0 { 100_000.0 } else { base };
    if n < limit {
        let mut digits = format!("{n:.0}");
        let mut at = digits.len();
        while at > 3 {
            at -= 3;
            digits.insert(at, ',');
        }
        return digits;
    }
    let (mut value, mut unit) = (n, 0);
    while value >= base * 0.9995 && unit + 1 < units.len() {
        value /= base;
        unit += 1;
    }
    let places = if value < 10.0 {
        2
    } else {
        usize::from(value < 100.0)
    };
    format!("{value:.places$}{}", units[unit])
}
