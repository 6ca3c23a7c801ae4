//! Requests of a page: a part of the run, as the filters of `mgz-analyze`.

use std::ffi::OsString;

/// A part of the run; without any filter, the whole run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Asked {
    options: Vec<(&'static str, String)>,
}

/// Names in the query, and the corresponding options of `mgz-analyze`.
const OPTIONS: [(&str, &str, Kind); 7] = [
    ("from", "--from", Kind::Number),
    ("to", "--to", Kind::Number),
    ("thread", "--thread", Kind::Text),
    ("function", "--function", Kind::Name),
    ("object", "--object", Kind::Name),
    ("addresses", "--addresses", Kind::Text),
    ("block", "--block", Kind::Number),
];

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Number,
    Text,
    /// A complete name, for an option that expects an expression.
    Name,
}

impl Asked {
    /// The options of the command line.
    pub fn arguments(&self) -> impl Iterator<Item = OsString> + '_ {
        let join = |(option, value): &(&str, String)| format!("{option}={value}").into();
        self.options.iter().map(join)
    }
}

/// Parses a query. Also returns the asking page (`tab`).
pub fn parse_query(query: &str) -> Result<(Asked, String), String> {
    let mut asked = Asked::default();
    let mut tab = String::new();
    for pair in query.split('&').filter(|p| !p.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value =
            decoded(value).ok_or_else(|| format!("{name}: is not written as in an address"))?;
        if name == "tab" {
            tab = value.chars().take(64).collect();
            continue;
        }
        let (_, option, kind) = OPTIONS
            .iter()
            .find(|o| o.0 == name)
            .ok_or_else(|| format!("{name}: no such selection"))?;
        if value.is_empty() || value.contains('\0') {
            return Err(format!("{name}: has no value"));
        }
        if *kind == Kind::Number && !value.parse::<f64>().is_ok_and(f64::is_finite) {
            return Err(format!("{name}: {value} is no number"));
        }
        let value = if *kind == Kind::Name {
            format!("^{}$", regex::escape(&value))
        } else {
            value
        };
        asked.options.push((option, value));
    }
    asked.options.sort();
    Ok((asked, tab))
}

/// `%41+b` is `A b`.
fn decoded(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_becomes_options() {
        let (asked, tab) =
            parse_query("from=1.5&tab=x&function=f%3Cint%3E%28a*%29&thread=a+b").unwrap();
        let words: Vec<OsString> = asked.arguments().collect();
        let expected = ["--from=1.5", r"--function=^f<int>\(a\*\)$", "--thread=a b"];
        assert_eq!(words, expected);
        assert_eq!(tab, "x");
        assert_eq!(parse_query("").unwrap().0, Asked::default());
    }

    #[test]
    fn what_is_no_selection_is_refused() {
        for query in [
            "output=x",
            "from=",
            "from=a",
            "from=1e999",
            "thread=%",
            "thread=%ff",
            "thread=%00",
            "--partial=x",
        ] {
            assert!(parse_query(query).is_err(), "{query}");
        }
    }
}
