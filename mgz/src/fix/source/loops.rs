//! Simple `for` loops: a counter that is declared in the loop, a bound, and a step of one.

use crate::fix::source::token::{Kind, SourceFile};
use std::ops::Range;

/// A loop. Ranges are of tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loop {
    /// The word `for`.
    pub keyword: usize,
    /// The parentheses.
    pub header: Range<usize>,
    /// Name of the counter.
    pub counter: String,
    /// The first value.
    pub first: Range<usize>,
    /// The bound that the counter stays below.
    pub bound: Range<usize>,
    /// The body: a statement or a block with its braces.
    pub body: Range<usize>,
}

impl Loop {
    /// The loop that begins at a token. `None` if it is not a simple one.
    pub fn parse(file: &SourceFile, keyword: usize) -> Option<Loop> {
        if file.word(keyword) != "for" || file.word(keyword + 1) != "(" {
            return None;
        }
        let open = keyword + 1;
        let close = file.closing(open)?;
        let semicolons: Vec<usize> = (open..close).filter(|&n| file.word(n) == ";").collect();
        let [one, two] = semicolons[..] else {
            return None;
        };
        let equals = (open..one).find(|&n| file.word(n) == "=")?;
        // A type comes before the counter.
        let is_declared = equals >= open + 3 && (open + 1..equals).all(|n| file.is_word(n));
        let counter = file.word(equals - 1);
        let is_upward = match close - two {
            3 => {
                let step = [file.word(two + 1), file.word(two + 2)];
                step == [counter, "++"] || step == ["++", counter]
            }
            _ => false,
        };
        let compares = file.word(one + 1) == counter && file.word(one + 2) == "<";
        let header = open..close + 1;
        let has_directive = header.clone().any(|n| file.tokens[n].in_directive);
        if !is_declared || !is_upward || !compares || has_directive {
            return None;
        }
        let body = close + 1..statement_end(file, close + 1)?;
        let found = Loop {
            keyword,
            header,
            counter: counter.to_owned(),
            first: equals + 1..one,
            bound: one + 3..two,
            body,
        };
        let is_plain = is_plain(file, &found.first) && is_plain(file, &found.bound);
        is_plain.then_some(found)
    }

    /// The simple loops around a line, the outermost first.
    pub fn around(file: &SourceFile, line: u32) -> Vec<Loop> {
        let is_around = |l: &Loop| {
            let last = file.line(l.body.end - 1);
            (file.line(l.body.start)..=last).contains(&line)
        };
        (0..file.tokens.len())
            .filter_map(|at| Loop::parse(file, at))
            .filter(is_around)
            .collect()
    }

    /// Tokens between the braces of the body, or of its only statement.
    pub fn inner(&self, file: &SourceFile) -> Range<usize> {
        match file.word(self.body.start) {
            "{" => self.body.start + 1..self.body.end - 1,
            _ => self.body.clone(),
        }
    }

    /// True if a word is in a range of tokens.
    pub fn has(file: &SourceFile, range: &Range<usize>, word: &str) -> bool {
        range.clone().any(|n| file.word(n) == word)
    }
}

/// True for sums and products of names and numbers: nothing is called, changed or loaded.
fn is_plain(file: &SourceFile, range: &Range<usize>) -> bool {
    let is_known = |n: usize| match file.tokens[n].kind {
        Kind::Word => file.word(n + 1) != "(" && !matches!(file.word(n), "sizeof" | "new"),
        Kind::Number => true,
        Kind::Sign => matches!(file.word(n), "+" | "-" | "*" | "/" | "(" | ")"),
        Kind::Literal => false,
    };
    !range.is_empty() && range.clone().all(is_known)
}

/// The token behind a statement.
pub fn statement_end(file: &SourceFile, at: usize) -> Option<usize> {
    match file.word(at) {
        "" => None,
        "{" => Some(file.closing(at)? + 1),
        "for" | "while" | "switch" | "if" => {
            let end = statement_end(file, file.closing(at + 1)? + 1)?;
            match (file.word(at), file.word(end)) {
                ("if", "else") => statement_end(file, end + 1),
                _ => Some(end),
            }
        }
        "do" => {
            let end = statement_end(file, at + 1)?;
            statement_end(file, end)
        }
        _ => {
            let mut at = at;
            loop {
                match file.word(at) {
                    "" | "}" => return None,
                    ";" => return Some(at + 1),
                    "(" | "[" | "{" => at = file.closing(at)?,
                    _ => {}
                }
                at += 1;
            }
        }
    }
}

/// Ranges of tokens inside the brackets behind a name.
pub fn subscripts(file: &SourceFile, name: usize) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = name + 1;
    while file.word(at) == "[" {
        let Some(close) = file.closing(at) else {
            break;
        };
        found.push(at + 1..close);
        at = close + 1;
    }
    found
}

/// Declarations of a name: the token of the name, and the words of its type before it.
pub fn declarations(file: &SourceFile, name: &str) -> Vec<(usize, Vec<String>)> {
    const NO_TYPES: [&str; 8] = [
        "return", "case", "goto", "else", "sizeof", "throw", "delete", "new",
    ];
    const QUALIFIERS: [&str; 7] = [
        "const",
        "static",
        "volatile",
        "restrict",
        "__restrict",
        "register",
        "extern",
    ];
    let of = |at: usize| {
        let mut words = Vec::new();
        let mut before = at;
        while before > 0 {
            let word = file.word(before - 1);
            let is_type = file.is_word(before - 1) || matches!(word, "*" | "::");
            if !is_type || NO_TYPES.contains(&word) {
                break;
            }
            if !QUALIFIERS.contains(&word) {
                words.push(word.to_owned());
            }
            before -= 1;
        }
        words.reverse();
        let is_start = before == 0
            || matches!(file.word(before - 1), ";" | "{" | "}" | "(" | ",")
            || file.tokens[before - 1].in_directive != file.tokens[at].in_directive;
        let first_is_name = words.first().is_some_and(|w| w != "*" && w != "::");
        (is_start && first_is_name).then_some((at, words))
    };
    (0..file.tokens.len())
        .filter(|&at| file.word(at) == name)
        .filter_map(of)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn file(text: &str) -> SourceFile {
        SourceFile::new(Path::new("a.c"), text.into()).unwrap()
    }

    #[test]
    fn simple_loops_are_found_around_a_line() {
        let text = "\
for (int i = 0; i < N; i++)
    for (size_t j = 1; j < 2 * M; ++j) {
        if (x) y();
        else z();
    }
";
        let file = file(text);
        let found = Loop::around(&file, 3);
        let counters: Vec<&str> = found.iter().map(|l| l.counter.as_str()).collect();
        assert_eq!(counters, ["i", "j"]);
        assert_eq!(found[0].body.end, file.tokens.len());
        assert!(Loop::around(&file, 9).is_empty());
    }

    #[test]
    fn other_loops_are_not_simple() {
        for text in [
            "for (i = 0; i < n; i++) x();",
            "for (int i = 0; i < f(n); i++) x();",
            "for (int i = 0; i < n; i += 2) x();",
            "for (int i = n; i > 0; i--) x();",
            "for (int i = 0; a[i] < n; i++) x();",
            "for (int i = 0, j = 0; i < n; i++) x();",
            "for (auto &x : all) y();",
            "for (;;) x();",
            "for (int i = 0; i < n; i++) {",
        ] {
            assert_eq!(Loop::parse(&file(text), 0), None, "{text}");
        }
    }

    #[test]
    fn declarations_have_types() {
        let file = file("long a; int f(const unsigned *b) { a = b[0] * a; return a; } struct s c;");
        let types = |name: &str| -> Vec<String> {
            declarations(&file, name)
                .iter()
                .map(|d| d.1.join(" "))
                .collect()
        };
        assert_eq!(types("a"), ["long"]);
        assert_eq!(types("b"), ["unsigned *"]);
        assert_eq!(types("c"), ["struct s"]);
        assert_eq!(types("d"), Vec::<String>::new());
    }
}
