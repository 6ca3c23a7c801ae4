//! Exchange of two perfectly nested loops.
//!
//! The order of the bodies must not matter. That is the case if each statement adds to an integer,
//! or sets a different element of an array for each pair of counters, and nothing else is changed.

use crate::fix::candidates::place_text;
use crate::fix::source::edit::{Edit, Edits};
use crate::fix::source::finding::{Finding, Made, Means};
use crate::fix::source::loops::{Loop, subscripts};
use crate::fix::source::names::{
    doubt_of_loops, has_known_bounds, is_constant, is_integer_literal, variable,
};
use crate::fix::source::token::{Kind, SourceFile};
use std::ops::Range;

/// Words of statements that do more than computing.
const JUMPS: [&str; 16] = [
    "break", "continue", "goto", "return", "for", "while", "if", "do", "switch", "case", "asm",
    "new", "delete", "throw", "co_await", "co_yield",
];

/// Exchanges loops that walk along columns.
pub fn propose_exchange(means: &mut Means, finding: &Finding) -> Option<Made> {
    if !matches!(finding.kind(), "column" | "pages") || finding.cause.line == 0 {
        return None;
    }
    let remedy = format!("exchange-loops of {}", place_text(&finding.cause));
    let file = match means.sources.get(&finding.file()) {
        Ok(file) => file,
        Err(why) => return Some(Made::patch(remedy.clone(), remedy, Err(why))),
    };
    let edits = match means.info.is_not_c() {
        Some(why) => Err(why),
        None => exchanged(file, finding.cause.line),
    };
    let mut made = Made::patch(remedy.clone(), remedy, edits);
    made.recipe = format!(
        "let the loop over the columns at {} be the inner one\n",
        place_text(&finding.cause)
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
    if let Some(why) = doubt_of_loops(file) {
        return Err(why);
    }
    if !has_known_bounds(file, outer) || !has_known_bounds(file, inner) {
        return Err("a bound is neither a number nor an integer variable of the function, declared by itself".into());
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
                "++" | "--" | "&&" | "||" | "?" | "{" | "->*" | "<<=" | ">>=" | "->" | "."
            ) {
                return Err(format!("the body has `{word}`"));
            }
        }
        for at in range.clone().filter(|&n| file.is_word(n)) {
            self.is_known(at)?;
        }
        for at in range.clone() {
            let before = file.word(at - 1);
            let is_operand =
                matches!(before, ")" | "]") || !matches!(file.tokens[at - 1].kind, Kind::Sign);
            if matches!(file.word(at), "*" | "&") && !is_operand {
                return Err(format!("the body has `{}` of a pointer", file.word(at)));
            }
            if file.tokens[at].kind == Kind::Literal {
                return Err("the body has a string or character".into());
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

    /// Refuses names other than counters, constants, numbers, and arrays of numbers.
    fn is_known(&self, at: usize) -> Result<(), String> {
        let file = self.file;
        let name = file.word(at);
        let is_counter = name == self.outer.counter || name == self.inner.counter;
        if is_counter || is_constant(file, name) {
            return Ok(());
        }
        let found = variable(file, name, self.outer.keyword);
        let whole = found.filter(|v| {
            v.is_number && v.pointers == 0 && v.dimensions == subscripts(file, at).len()
        });
        match whole {
            Some(_) => Ok(()),
            None => Err(format!(
                "the body uses {name}, which is not known to be a number, or an array of them, of this file"
            )),
        }
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
            _ => self.element(range.start, sign, body),
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
        let is_other = |word: &str| {
            word != self.outer.counter && word != self.inner.counter && !is_constant(file, word)
        };
        let words = value.clone().filter(|&n| file.is_word(n));
        for word in words.map(|n| file.word(n)).chain([name]) {
            let found = variable(file, word, self.outer.keyword);
            if is_other(word) && !found.is_some_and(|v| v.is_integer) {
                return Err(format!(
                    "adds {word}, which is not known to be an integer: sums of other numbers depend on the order"
                ));
            }
        }
        let is_number =
            |n: usize| file.tokens[n].kind != Kind::Number || is_integer_literal(file, n);
        match value.clone().all(is_number) {
            true => Ok(()),
            false => Err("adds numbers that are no integers".into()),
        }
    }

    /// `a[i][j] = …` of arrays.
    fn element(&self, first: usize, sign: usize, body: &Range<usize>) -> Result<(), String> {
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
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fix::source::edit::Texts;
    use std::path::Path;

    fn diff(head: &str, body: &str) -> Result<String, String> {
        let text = format!(
            "{head}\nenum {{ N = 99 }}; void f(int n) {{\n  for (int i = 0; i < 64; i++)\n    for (int j = 0; j < N; j++) {{\n      {body}\n    }}\n}}\n"
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
 enum { N = 99 }; void f(int n) {
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
            ("unsigned s; unsigned char p[9999];", "s ^= p[j * 64 + i];"),
            ("#define K 3\nlong s;", "s += K * i + n;"),
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
            ("int **a;", "a[j][i] = 1;", "not known"),
            ("int a[9][9]; int *p;", "a[j][i] = p[i];", "not known"),
            ("int a[9][9]; int *p;", "a[j][i] = *p;", "not known"),
            ("int a[9][9];", "a[j][i] = *a[j];", "not known"),
            (
                "int a[9][9]; int b[9][9];",
                "a[j][i] = b[i][j] + * & n;",
                "of a pointer",
            ),
            (
                "#define NEXT next()\nint a[9][9];",
                "a[j][i] = NEXT;",
                "not known",
            ),
            (
                "#define R (s = s * 3)\nint s; int a[9][9];",
                "a[j][i] = R;",
                "not known",
            ),
            (
                "#define c a\nint a[9][9]; int c[9][9];",
                "c[j][i] = a[i][j];",
                "not known",
            ),
            (
                "#include \"acc.h\"\nint h(int total) { return total; }",
                "total += i;",
                "not known",
            ),
            ("#include \"acc.h\"\n", "total += i;", "not known"),
            ("volatile int a[9][9]; int s;", "s += a[j][i];", "volatile"),
            ("int s; int a[9][9];", "s += a[j][i] * 1E1;", "no integers"),
            ("int s;", "s += i * 0x1P1;", "no integers"),
            ("#include <stdbool.h>\nbool s;", "s += i;", "not known"),
            ("typedef int num; num s;", "s += i;", "not known"),
            (
                "struct p { int x; }; struct p a[9];",
                "a[j].x = 1;",
                "has `.`",
            ),
            ("int s;", "s += g(i);", "calls g"),
            ("int s; int a[9][9];", "if (a[j][i]) s += 1;", "has `if`"),
            ("int s;", "s++;", "has `++`"),
            ("int s;", "#pragma omp\n s += 1;", "preprocessor"),
            ("int s;", "*(&s) += i;", "of a pointer"),
            ("", "s += i;", "not known"),
        ] {
            let said = diff(head, body).unwrap_err();
            assert!(said.contains(why), "{body}: {said}");
        }
    }

    #[test]
    fn bounds_that_may_change_or_fail_are_refused() {
        let of = |head: &str, parameters: &str, bounds: [&str; 2]| {
            let text = format!(
                "{head}\nlong f({parameters}) {{ long s = 0;\nfor (int i = 0; i < {}; i++)\nfor (int j = 0; j < {}; j++)\ns += a[j][i];\nreturn s; }}\n",
                bounds[0], bounds[1]
            );
            let file = SourceFile::new(Path::new("/s/a.c"), text).unwrap();
            exchanged(&file, 5 + head.matches('\n').count() as u32)
        };
        let head = "static int a[9][9];";
        assert!(of(head, "int m, int n", ["m", "n"]).is_ok());
        assert!(of(head, "int n", ["9", "n"]).is_ok());
        assert!(of("#define M 9\nstatic int a[9][9];", "int n", ["9", "n"]).is_ok());
        for (head, parameters, bounds) in [
            (head, "int m, int n", ["m", "n / m"]),
            (head, "int m, int n", ["m", "n % m"]),
            (head, "int m, int *n", ["m", "*n"]),
            (head, "int m, int *n", ["m", "n"]),
            (head, "double n", ["9", "n"]),
            (head, "int m", ["m", "N"]),
            ("static int a[9][9]; int n;", "int m", ["m", "n"]),
            ("#define n rand()\nstatic int a[9][9];", "int m", ["m", "n"]),
            ("", "int (*a)[9], int n", ["n", "n"]),
            ("", "int a[9][9], int n", ["n", "n"]),
            (head, "int (*a)[9], int n", ["n", "n"]),
            (head, "int m, int n", ["m", "(n)"]),
        ] {
            assert!(
                of(head, parameters, bounds).is_err(),
                "{parameters} {bounds:?}"
            );
        }
        let cpp = "int a[9][9]; int s;\nvoid f() {\nfor (int i = 0; i < 9; i++)\nfor (int j = 0; j < 9; j++)\ns += a[j][i]; }";
        let file = SourceFile::new(Path::new("/s/a.cpp"), cpp.into()).unwrap();
        assert!(exchanged(&file, 5).unwrap_err().contains("C++"));
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
