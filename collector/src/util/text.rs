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

/// Splits a text into words like a shell: quotes keep blanks together, a backslash keeps the next
/// character. `None` if a quote is not closed.
pub(crate) fn shell_words(text: &str) -> Option<Vec<String>> {
    let (mut all, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match (c, quote) {
            (c, Some(q)) if c == q => quote = None,
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            ('\\', None | Some('"')) => word.get_or_insert_default().extend(rest.next()),
            (c, None) if c.is_whitespace() => all.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    all.extend(word);
    quote.is_none().then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_a_shell() {
        let parted = |text| shell_words(text).map(|w| w.join("|"));
        assert_eq!(parted(""), Some(String::new()));
        assert_eq!(parted(" --all  --rows 3 "), Some("--all|--rows|3".into()));
        assert_eq!(
            parted(r#"--function 'a b' "c \" d"\ e ''"#),
            Some(r#"--function|a b|c " d e|"#.into())
        );
        assert_eq!(parted("'a"), None);
    }
}
