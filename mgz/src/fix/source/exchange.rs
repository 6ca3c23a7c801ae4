//! Exchange of two loops, one of which is all that the other one does.
//!
//! The order of the bodies must not matter. That is so if each statement adds to an integer, or sets
//! an element of an array of its own for each pair of counters, and nothing else is changed.

use crate::fix::candidates::place;
use crate::fix::source::edit::{Edit, Edits};
use crate::fix::source::finding::{Finding, Made, Means};
use crate::fix::source::loops::{Loop, declarations, subscripts};
use crate::fix::source::token::{Kind, SourceFile};
use std::ops::Range;

/// Types whose sums do not depend on the order.
const INTEGERS: [&str; 23] = [
    "int",
    "long",
    "short",
    "char",
    "unsigned",
    "signed",
    "size_t",
    "ssize_t",
    "ptrdiff_t",
    "int8_t",
    "int16_t",
    "int32_t",
    "int64_t",
    "uint8_t",
    "uint16_t",
    "uint32_t",
    "uint64_t",
    "uintptr_t",
    "intptr_t",
    "std",
    "::",
    "bool",
    "_Bool",
];
/// Words of statements that do more than compute.
const JUMPS: [&str; 16] = [
    "break", "continue", "goto", "return", "for", "while", "if", "do", "switch", "case", "asm",
    "new", "delete", "throw", "co_await", "co_yield",
];

/// Exchanged loops for a walk along columns.
pub fn made(means: &mut Means, finding: &Finding) -> Option<Made> {
    if !matches!(finding.kind(), "column" | "pages") || finding.cause.line == 0 {
        return None;
    }
    let remedy = format!("exchange-loops of {}", place(&finding.cause));
    let file = match means.sources.get(&finding.file()) {
        Ok(file) => file,
        Err(why) => return Some(Made::patch(remedy.clone(), remedy, Err(why))),
    };
    let mut made = Made::patch(remedy.clone(), remedy, exchanged(file, finding.cause.line));
    made.recipe = format!(
        "let the loop over the columns at {} be the inner one\n",
        place(&finding.cause)
    );
    Some(made)
}

/// The edits that exchange the two innermost loops around a line, or the reason why there are none.
fn exchanged(file: &SourceFile, line: u32) -> Result<Edits, String> {
    let around = Loop::around(file, line);
    let [.., outer, inner] = &around[..] else {
        return Err("no two simple loops are around the line: counters declared in the loop, a bound with <, and ++".into());
    };
    if outer.inner(file) != (inner.keyword..inner.body.end) {
        return Err("the outer loop does more than the inner one".into());
    }
    let whole = outer.keyword.saturating_sub(1)..inner.body.end;
    if whole.clone().any(|n| file.tokens[n].in_directive) {
        return Err("preprocessor lines are in the loops or in front of them".into());
    }
    for (own, other) in [(outer, inner), (inner, outer)] {
        let depends = |range: &Range<usize>| Loop::has(file, range, &other.counter);
        if depends(&own.first) || depends(&own.bound) {
            return Err("the bounds of one loop depend on the other one".into());
        }
    }
    if outer.counter == inner.counter {
        return Err("both loops have one counter".into());
    }
    Body { file, outer, inner }.check()?;
    let header = |l: &Loop| {
        let (first, last) = (file.tokens[l.header.start], file.tokens[l.header.end - 1]);
        first.start..last.end
    };
    let (a, b) = (header(outer), header(inner));
    let edit = |at: &Range<usize>, by: &Range<usize>| Edit {
        file: file.path.clone(),
        start: at.start,
        end: at.end,
        text: file.text[by.clone()].to_owned(),
    };
    Edits::new([edit(&a, &b), edit(&b, &a)]).ok_or_else(|| "the loops overlap".into())
}

/// The body of two loops.
struct Body<'a> {
    file: &'a SourceFile,
    outer: &'a Loop,
    inner: &'a Loop,
}

impl Body<'_> {
    /// The reason why the order of the bodies matters, or may.
    fn check(&self) -> Result<(), String> {
        let file = self.file;
        let range = self.inner.inner(file);
        for at in range.clone() {
            let word = file.word(at);
            if JUMPS.contains(&word) {
                return Err(format!("the body has `{word}`"));
            }
            if file.is_word(at) && file.word(at + 1) == "(" && word != "sizeof" {
                return Err(format!("the body calls {word}"));
            }
            if matches!(
                word,
                "++" | "--" | "&&" | "||" | "?" | "{" | "->*" | "<<=" | ">>="
            ) {
                return Err(format!("the body has `{word}`"));
            }
        }
        for bound in [&self.outer.bound, &self.inner.bound] {
            for at in bound.clone().filter(|&n| file.is_word(n)) {
                if self.is_written(&range, file.word(at)) {
                    return Err("the body changes a bound".into());
                }
            }
        }
        let mut at = range.start;
        while at < range.end {
            let end = (at..range.end).find(|&n| file.word(n) == ";");
            let end = end.ok_or("the body has a statement without a semicolon")?;
            self.statement(at..end, &range)?;
            at = end + 1;
        }
        Ok(())
    }

    /// True if a statement of a range begins with a name.
    fn is_written(&self, range: &Range<usize>, name: &str) -> bool {
        let file = self.file;
        let begins = |n: usize| n == range.start || file.word(n - 1) == ";";
        range.clone().any(|n| begins(n) && file.word(n) == name)
    }

    fn statement(&self, range: Range<usize>, body: &Range<usize>) -> Result<(), String> {
        let file = self.file;
        let signs: Vec<usize> = (range.clone())
            .filter(|&n| {
                let word = file.word(n);
                word.ends_with('=') && !matches!(word, "==" | "!=" | "<=" | ">=")
            })
            .collect();
        let line = file.line(range.start);
        let [sign] = signs[..] else {
            return Err(format!("line {line} is no plain assignment"));
        };
        let name = file.word(range.start);
        if !file.is_word(range.start) {
            return Err(format!(
                "line {line} sets something else than a variable or an element"
            ));
        }
        let value = sign + 1..range.end;
        match sign - range.start {
            1 => self.sum(name, file.word(sign), &value, body),
            _ => self.element(range.start, sign, &value, body),
        }
        .map_err(|why| format!("line {line} {why}"))
    }

    /// `sum += …` of integers.
    fn sum(
        &self,
        name: &str,
        sign: &str,
        value: &Range<usize>,
        body: &Range<usize>,
    ) -> Result<(), String> {
        let file = self.file;
        if !matches!(sign, "+=" | "-=" | "^=" | "|=" | "&=") {
            return Err(format!(
                "sets {name}, whose last value depends on the order"
            ));
        }
        if body.clone().filter(|&n| file.word(n) == name).count() > 1 {
            return Err(format!("changes {name}, which the body uses elsewhere"));
        }
        let words = value.clone().filter(|&n| file.is_word(n));
        let others = words
            .map(|n| file.word(n))
            .filter(|w| *w != self.outer.counter && *w != self.inner.counter);
        for word in others.chain([name]) {
            if !is_integer(file, word) {
                return Err(format!(
                    "adds {word}, which is not known to be an integer: sums of other numbers depend on the order"
                ));
            }
        }
        let is_number = |n: usize| {
            file.tokens[n].kind != Kind::Number || !file.word(n).contains(['.', 'e', 'p'])
        };
        match value.clone().all(is_number) {
            true => Ok(()),
            false => Err("adds numbers that are no integers".into()),
        }
    }

    /// `a[i][j] = …` of arrays.
    fn element(
        &self,
        first: usize,
        sign: usize,
        value: &Range<usize>,
        body: &Range<usize>,
    ) -> Result<(), String> {
        let file = self.file;
        let name = file.word(first);
        let place = subscripts(file, first);
        let counters = [self.outer.counter.as_str(), self.inner.counter.as_str()];
        let is_own = place.len() == 2
            && counters.iter().all(|c| {
                let is_counter = |r: &Range<usize>| r.len() == 1 && file.word(r.start) == *c;
                place.iter().any(is_counter)
            })
            && place.last().is_some_and(|r| r.end + 1 == sign);
        if !is_own {
            return Err(format!(
                "sets {name}, but not one element for each pair of counters"
            ));
        }
        if !is_array(file, name) {
            return Err(format!(
                "sets {name}, which is not known to be an array of its own"
            ));
        }
        let text = |at: usize| -> Vec<String> {
            let words = subscripts(file, at).into_iter().flatten();
            words.map(|n| file.word(n).to_owned()).collect()
        };
        for at in body.clone().filter(|&n| file.word(n) == name) {
            if text(at) != text(first) || subscripts(file, at).len() != 2 {
                return Err(format!(
                    "sets {name}, of which the body reads other elements"
                ));
            }
        }
        for at in value.clone() {
            let word = file.word(at);
            let is_read = file.is_word(at) && file.word(at + 1) == "[";
            if is_read && !is_array(file, word) || matches!(word, "->" | ".") {
                return Err(format!("sets {name} from memory that may be the same"));
            }
            let is_pointer = word == "*"
                && (at == value.start
                    || matches!(file.tokens[at - 1].kind, Kind::Sign)
                        && !matches!(file.word(at - 1), ")" | "]"));
            if is_pointer {
                return Err(format!("sets {name} from memory that may be the same"));
            }
        }
        Ok(())
    }
}

/// True if all declarations of a name in the file are of integers, or of arrays and pointers of
/// them.
fn is_integer(file: &SourceFile, name: &str) -> bool {
    let found = declarations(file, name);
    let is_integer = |words: &Vec<String>| {
        let mut words = words.iter().filter(|w| *w != "*");
        words.all(|w| INTEGERS.contains(&w.as_str()))
    };
    !found.is_empty() && found.iter().all(|d| is_integer(&d.1))
}

/// True if all declarations of a name in the file are of arrays: none is of a pointer or a
/// parameter.
fn is_array(file: &SourceFile, name: &str) -> bool {
    let found = declarations(file, name);
    let is_array = |(at, words): &(usize, Vec<String>)| {
        let has_pointer = words.iter().any(|w| w == "*");
        let mut end = *at + 1;
        while file.word(end) == "[" {
            match file.closing(end) {
                Some(close) => end = close + 1,
                None => return false,
            }
        }
        !has_pointer && end > *at + 1 && matches!(file.word(end), ";" | "=")
    };
    !found.is_empty() && found.iter().all(is_array)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fix::source::edit::Texts;
    use std::path::Path;

    fn diff(head: &str, body: &str) -> Result<String, String> {
        let text = format!(
            "{head}\nvoid f(void) {{\n  for (int i = 0; i < 64; i++)\n    for (int j = 0; j < N; j++) {{\n      {body}\n    }}\n}}\n"
        );
        let path = Path::new("/s/a.c");
        let file = SourceFile::new(path, text.clone()).unwrap();
        let line = 5 + head.matches('\n').count() as u32;
        let edits = exchanged(&file, line)?;
        let texts = Texts::from([(path.to_path_buf(), text)]);
        Ok(edits.diff(&texts, Path::new("/s")))
    }

    #[test]
    fn sums_of_integers_and_elements_are_exchanged() {
        let found = diff("long sum; int a[99][64];", "sum += a[j][i];").unwrap();
        assert_eq!(
            found,
            "\
--- a/a.c
+++ b/a.c
@@ -1,7 +1,7 @@
 long sum; int a[99][64];
 void f(void) {
-  for (int i = 0; i < 64; i++)
-    for (int j = 0; j < N; j++) {
+  for (int j = 0; j < N; j++)
+    for (int i = 0; i < 64; i++) {
       sum += a[j][i];
     }
 }
"
        );
        for (head, body) in [
            (
                "double a[9][9]; double b[9][9];",
                "a[j][i] = 2.0 * b[j][i] + b[i][j];",
            ),
            ("double a[9][9];", "a[i][j] += 1.5;"),
            ("unsigned s; const unsigned char *p;", "s ^= p[j * 64 + i];"),
        ] {
            assert!(diff(head, body).is_ok(), "{body}: {:?}", diff(head, body));
        }
    }

    #[test]
    fn bodies_whose_order_matters_are_refused() {
        for (head, body, why) in [
            (
                "double s; double a[9][9];",
                "s += a[j][i];",
                "depend on the order",
            ),
            (
                "int s; double a[9][9];",
                "s += a[j][i];",
                "depend on the order",
            ),
            ("int s;", "s += 0.5;", "no integers"),
            ("int s; int a[9][9];", "s = a[j][i];", "last value"),
            (
                "int s; int a[9][9];",
                "s += a[j][i]; a[i][j] = s;",
                "uses elsewhere",
            ),
            ("int a[9][9];", "a[j][i] = a[i][j];", "other elements"),
            ("int a[9][9];", "a[j][0] = 1;", "each pair"),
            ("int **a;", "a[j][i] = 1;", "array of its own"),
            ("int a[9][9]; int *p;", "a[j][i] = p[i];", "may be the same"),
            ("int a[9][9]; int *p;", "a[j][i] = *p;", "may be the same"),
            ("int s;", "s += g(i);", "calls g"),
            ("int s; int a[9][9];", "if (a[j][i]) s += 1;", "has `if`"),
            ("int s;", "s++;", "has `++`"),
            ("int N; int s;", "N += 1;", "changes a bound"),
            ("int s;", "#pragma omp\n s += 1;", "preprocessor"),
            ("int s;", "*(&s) += i;", "something else"),
            ("", "s += i;", "not known to be an integer"),
        ] {
            let said = diff(head, body).unwrap_err();
            assert!(said.contains(why), "{body}: {said}");
        }
    }

    #[test]
    fn loops_that_do_more_are_refused() {
        let of = |text: &str| {
            let file = SourceFile::new(Path::new("/s/a.c"), text.into()).unwrap();
            exchanged(&file, 3).unwrap_err()
        };
        let text = "int s; int a[9][9];\nfor (int i = 0; i < 9; i++) { int n = 0;\nfor (int j = 0; j < 9; j++) n += a[j][i]; }";
        assert!(of(text).contains("does more"));
        let text = "int s;\nfor (int i = 0; i < 9; i++)\nfor (int j = i; j < 9; j++) s += i;";
        assert!(of(text).contains("depend on the other"));
        assert!(of("int s;\n\nwhile (s) s -= 1;").contains("no two simple loops"));
    }
}
