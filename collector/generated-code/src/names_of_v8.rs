//! V8's names for the code of functions: `JS:*work /app/a.js:3:7` is the optimized code of `work`
//! in line 3 of `/app/a.js`.

use crate::GeneratedName;

/// Kinds of code, as prefixes of names.
const KINDS: [&str; 7] = [
    "LazyCompile:",
    "Function:",
    "Script:",
    "Eval:",
    "JS:",
    "Wasm:",
    "wasm-function:",
];
/// Marks of tiers, and the tiers' names.
const TIERS: [(char, &str); 4] = [
    ('~', "interpreted"),
    ('^', "baseline"),
    ('+', "mid-tier"),
    ('*', "optimized"),
];
/// Name of a function that has none in the source.
const WITHOUT_NAME: &str = "(anonymous)";

/// The parts of a name; `None` if it is not V8's name of a function.
pub fn parse(text: &str) -> Option<GeneratedName> {
    let rest = KINDS.iter().find_map(|kind| text.strip_prefix(kind))?;
    let (tier, rest) = tier(rest);
    let (function, file, line) = place(rest).unwrap_or((rest, "", 0));
    let function = match function.trim() {
        "" => WITHOUT_NAME,
        function => function,
    };
    Some(GeneratedName {
        function: function.to_owned(),
        tier: tier.to_owned(),
        file: file.strip_prefix("file://").unwrap_or(file).to_owned(),
        line,
        ..GeneratedName::default()
    })
}

/// The tier's name, and the text behind its marks. (An apostrophe marks code for one closure.)
fn tier(text: &str) -> (&'static str, &str) {
    let mark = |text: &str| {
        let first = text.chars().next()?;
        Some(TIERS.iter().find(|t| t.0 == first)?.1)
    };
    let Some(name) = mark(text) else {
        return ("", text);
    };
    let rest = &text[1..];
    let rest = rest.strip_prefix('\'').unwrap_or(rest);
    (name, rest)
}

/// Function, file and line of `NAME FILE:LINE:COLUMN`.
fn place(text: &str) -> Option<(&str, &str, u32)> {
    let (rest, column) = text.rsplit_once(':')?;
    let (rest, line) = rest.rsplit_once(':')?;
    column.parse::<u32>().ok()?;
    let line = line.parse().ok()?;
    // A path may have spaces, so it is recognized by its prefix.
    let begin = [" /", " file://", " node:", " http://", " https://"]
        .iter()
        .filter_map(|sign| rest.find(sign))
        .min();
    let (function, file) = match begin {
        Some(at) => (&rest[..at], &rest[at + 1..]),
        None => rest.rsplit_once(' ')?,
    };
    Some((function, file, line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_tier_file_and_line() {
        let of = |text: &str| {
            let name = parse(text)?;
            Some((name.function, name.tier, name.file, name.line))
        };
        let some = |function: &str, tier: &str, file: &str, line| {
            Some((function.to_owned(), tier.to_owned(), file.to_owned(), line))
        };
        assert_eq!(
            of("JS:*work /app/my own/a.js:3:7"),
            some("work", "optimized", "/app/my own/a.js", 3)
        );
        assert_eq!(
            of("LazyCompile:~get size file:///app/a.mjs:12:1"),
            some("get size", "interpreted", "/app/a.mjs", 12)
        );
        assert_eq!(
            of("JS:^ node:internal/timers:8:2"),
            some("(anonymous)", "baseline", "node:internal/timers", 8)
        );
        assert_eq!(
            of("Function:open evalmachine.<anonymous>:1:2"),
            some("open", "", "evalmachine.<anonymous>", 1)
        );
        assert_eq!(of("JS:*plain"), some("plain", "optimized", "", 0));
        assert_eq!(of("Builtin:ArrayMap"), None);
        assert_eq!(of("int Hot.sum(int[])"), None);
    }
}
