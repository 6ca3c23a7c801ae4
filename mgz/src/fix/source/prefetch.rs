//! A `__builtin_prefetch` line before a load whose address is known some iterations ahead.

use crate::fix::candidates::place_text;
use crate::fix::source::edit::{Edit, Edits};
use crate::fix::source::finding::{Finding, Made, Means};
use crate::fix::source::loops::{Loop, declarations, statement_end, subscripts};
use crate::fix::source::names::{
    doubt_of_loops, has_known_bounds, is_constant, is_integer_literal, is_kept, is_macro, variable,
};
use crate::fix::source::params::PREFETCH_DISTANCE;
use crate::fix::source::token::{Kind, SourceFile};
use std::ops::Range;

/// Proposes a prefetch for loads whose addresses are known ahead.
pub fn propose_prefetch(means: &mut Means, finding: &Finding) -> Option<Made> {
    let is_known_ahead = matches!(
        finding.kind(),
        "gather" | "scattered" | "hash_table" | "column" | "strided" | "pages" | "irregular"
    );
    if !is_known_ahead || finding.cause.line == 0 {
        return None;
    }
    let remedy = format!("prefetch of {}", place_text(&finding.cause));
    let edits = match (means.info.is_not_c(), means.sources.get(&finding.file())) {
        (None, Ok(file)) => prefetched(file, finding.cause.line),
        (Some(why), _) | (None, Err(why)) => Err(why),
    };
    let mut made = Made::patch(remedy.clone(), remedy, edits);
    made.recipe = format!(
        "call __builtin_prefetch some {PREFETCH_DISTANCE} iterations ahead of {}\n",
        place_text(&finding.cause)
    );
    Some(made)
}

/// The line, or the reason why there is none.
fn prefetched(file: &SourceFile, line: u32) -> Result<Edits, String> {
    let around = Loop::around(file, line);
    let inner = around.last().ok_or(
        "no simple loop is around the line: a counter declared in the loop, a bound with <, and ++",
    )?;
    let body = inner.inner(file);
    check(file, inner, &body)?;
    let statement = statement_at(file, &body, line)
        .ok_or("the load is not in a statement of the loop by itself")?;
    let is_outermost = |at: &usize| {
        let brackets = |sign| {
            (statement.start..*at)
                .filter(|&n| file.word(n) == sign)
                .count()
        };
        brackets("[") == brackets("]")
    };
    let mut found: Vec<Range<usize>> = (statement.clone())
        .filter(is_outermost)
        .filter_map(|at| access(file, inner, at))
        .collect();
    // The longest access has the load whose address is known last.
    found.sort_by_key(|r| std::cmp::Reverse(r.len()));
    let access = (found.first())
        .ok_or("the load is no element of an array whose number is known from the counter")?;
    let at = file.tokens[statement.start].start;
    if file.text[file.line_start(at)..at].trim() != "" {
        return Err("the statement begins in the middle of a line".into());
    }
    let address = ahead(file, access, &inner.counter);
    let bound = file.text
        [file.tokens[inner.bound.start].start..file.tokens[inner.bound.end - 1].end]
        .to_owned();
    let bound = if inner.bound.len() > 1 {
        format!("({bound})")
    } else {
        bound
    };
    let text = format!(
        "{}if ({bound} - {} > {PREFETCH_DISTANCE}) __builtin_prefetch(&{address});\n",
        file.indent(at),
        inner.counter
    );
    let start = file.line_start(at);
    let mut edits = vec![Edit {
        file: file.path.clone(),
        start,
        end: start,
        text,
    }];
    if file.word(inner.body.start) != "{" {
        edits.extend(braces(file, inner));
    }
    Edits::new(edits).ok_or_else(|| "the changes overlap".into())
}

/// Refuses loops that may end early or skip the load, or that change the counter otherwise.
fn check(file: &SourceFile, inner: &Loop, body: &Range<usize>) -> Result<(), String> {
    if let Some(why) = doubt_of_loops(file) {
        return Err(why);
    }
    for at in inner.keyword..body.end {
        let word = file.word(at);
        if file.tokens[at].in_directive {
            return Err("preprocessor lines are in the loop".into());
        }
        if matches!(
            word,
            "break" | "return" | "goto" | "throw" | "continue" | "switch" | "while" | "do"
        ) {
            return Err(format!(
                "the loop may end early by `{word}`, and the elements ahead may not exist"
            ));
        }
        let is_name = file.is_word(at);
        let is_call =
            is_name && file.word(at + 1) == "(" && !matches!(word, "for" | "if" | "sizeof")
                || matches!(word, ")" | "]") && file.word(at + 1) == "(";
        if is_call {
            return Err(format!(
                "the loop calls {word}, which may end the program, and the elements ahead may not exist"
            ));
        }
        if is_name && is_macro(file, word) && !is_constant(file, word) {
            return Err(format!("the loop has {word}, which a macro makes"));
        }
    }
    if !has_known_bounds(file, inner) {
        return Err("a bound is neither a number nor an integer variable of the function, declared by itself".into());
    }
    for at in body.clone().filter(|&n| file.word(n) == inner.counter) {
        let is_changed = matches!(file.word(at + 1), "=" | "++" | "--")
            || file.word(at + 1).len() >= 2
                && file.word(at + 1).ends_with('=')
                && !matches!(file.word(at + 1), "==" | "<=" | ">=" | "!=")
            || matches!(file.word(at - 1), "++" | "--" | "&");
        if is_changed {
            return Err("the body may change the counter".into());
        }
    }
    Ok(())
}

/// The statement of a body in a line. `None` if other statements contain it.
fn statement_at(file: &SourceFile, body: &Range<usize>, line: u32) -> Option<Range<usize>> {
    let mut at = body.start;
    while at < body.end {
        let end = statement_end(file, at)?;
        let lines = file.line(at)..=file.line(end - 1);
        if lines.contains(&line) {
            let is_simple = !matches!(
                file.word(at),
                "for" | "while" | "if" | "do" | "switch" | "{" | "case" | "default"
            );
            let is_certain = !(at..end).any(|n| matches!(file.word(n), "?" | "&&" | "||"));
            return (is_simple && is_certain).then_some(at..end);
        }
        at = end;
    }
    None
}

/// The access that begins with a name: `table[index[i]].key`. `None` unless its element follows
/// from the counter without side effects.
fn access(file: &SourceFile, inner: &Loop, name: usize) -> Option<Range<usize>> {
    let is_start = file.is_word(name)
        && name > 0
        && !matches!(file.word(name - 1), "." | "->" | "::")
        && file.word(name + 1) == "[";
    let parts = subscripts(file, name);
    let last = parts.last().filter(|_| is_start)?;
    let whole = name..last.end + 1;
    if !Loop::has(file, &whole, &inner.counter) {
        return None;
    }
    // A second subscript may dereference an invalid pointer.
    let is_one = parts.len() == 1 && is_array(file, inner, name, false);
    (is_one && is_number(file, inner, last, true)).then_some(whole)
}

/// True for an array, or a pointer to the elements, that does not change in a loop.
fn is_array(file: &SourceFile, inner: &Loop, at: usize, is_index: bool) -> bool {
    let name = file.word(at);
    let is_kept = inner.body.clone().all(|n| {
        file.word(n) != name
            || file.word(n + 1) == "[" && !matches!(file.word(n - 1), "++" | "--" | "&")
    });
    let is_hidden = declarations(file, name)
        .iter()
        .any(|d| inner.body.contains(&d.0));
    match variable(file, name, inner.keyword) {
        Some(v) => {
            v.pointers + v.dimensions == 1 && (v.is_integer || !is_index) && is_kept && !is_hidden
        }
        None => false,
    }
}

/// True for an expression that is known ahead: sums, products and bits of the counter, constants,
/// integers that the loop does not change, and at most one level of elements of arrays.
fn is_number(file: &SourceFile, inner: &Loop, range: &Range<usize>, may_load: bool) -> bool {
    let mut at = range.start;
    while at < range.end {
        let word = file.word(at);
        let is_load = file.word(at + 1) == "[";
        let is_known = match file.tokens[at].kind {
            Kind::Number => is_integer_literal(file, at),
            Kind::Literal => false,
            Kind::Word if word == inner.counter || is_constant(file, word) => !is_load,
            Kind::Word if is_load => {
                let parts = subscripts(file, at);
                let [part] = &parts[..] else {
                    return false;
                };
                let is_known = may_load
                    && is_array(file, inner, at, true)
                    && is_linear(file, part)
                    && is_number(file, inner, part, false);
                at = part.end;
                is_known
            }
            Kind::Word => {
                let found = variable(file, word, inner.keyword);
                is_kept(file, &inner.body, word)
                    && found.is_some_and(|v| v.is_integer && v.pointers + v.dimensions == 0)
                    && !(declarations(file, word).iter()).any(|d| inner.body.contains(&d.0))
            }
            Kind::Sign => {
                let is_operand = at > range.start
                    && (file.word(at - 1) == ")"
                        || file.word(at - 1) == "]"
                        || file.tokens[at - 1].kind != Kind::Sign);
                matches!(word, "(" | ")" | "~")
                    || is_operand && matches!(word, "+" | "-" | "*" | "&" | "|" | "^" | "<<" | ">>")
            }
        };
        if !is_known {
            return false;
        }
        at += 1;
    }
    !range.is_empty()
}

/// True for sums and products: the number of an element that is loaded ahead must increase with the
/// counter.
fn is_linear(file: &SourceFile, range: &Range<usize>) -> bool {
    range.clone().all(|n| {
        file.tokens[n].kind != Kind::Sign || matches!(file.word(n), "+" | "-" | "*" | "(" | ")")
    })
}

/// Text of an access with the counter some iterations ahead.
fn ahead(file: &SourceFile, access: &Range<usize>, counter: &str) -> String {
    let mut text = String::new();
    let mut at = file.tokens[access.start].start;
    for n in access.clone() {
        let token = file.tokens[n];
        text += &file.text[at..token.start];
        match file.word(n) == counter {
            true if is_alone(file, n) => text += &format!("{counter} + {PREFETCH_DISTANCE}"),
            true => text += &format!("({counter} + {PREFETCH_DISTANCE})"),
            false => text += file.word(n),
        }
        at = token.end;
    }
    // Comments and line ends must not be in a line.
    text.split_whitespace().collect::<Vec<&str>>().join(" ")
}

/// True if a name alone is between two brackets.
fn is_alone(file: &SourceFile, at: usize) -> bool {
    file.word(at - 1) == "[" && file.word(at + 1) == "]"
}

/// Braces around the body of a loop without them.
fn braces(file: &SourceFile, inner: &Loop) -> [Edit; 2] {
    let open = file.tokens[inner.header.end - 1].end;
    let close = file.line_end(file.tokens[inner.body.end - 1].end);
    let indent = file.indent(file.tokens[inner.keyword].start);
    let line_end = if file.text[..close].ends_with('\n') {
        ""
    } else {
        "\n"
    };
    [
        Edit {
            file: file.path.clone(),
            start: open,
            end: open,
            text: " {".into(),
        },
        Edit {
            file: file.path.clone(),
            start: close,
            end: close,
            text: format!("{line_end}{indent}}}\n"),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fix::source::edit::Texts;
    use std::path::Path;

    fn diff(text: &str, line: u32) -> Result<String, String> {
        let path = Path::new("/s/a.c");
        let file = SourceFile::new(path, text.into()).unwrap();
        let edits = prefetched(&file, line)?;
        let texts = Texts::from([(path.to_path_buf(), text.to_owned())]);
        Ok(edits.diff(&texts, Path::new("/s")))
    }

    #[test]
    fn gathers_are_prefetched_inside_of_the_bound() {
        let text = "\
#define MASK 255
struct entry table[256]; const int *index;
long f(int n) {
    for (int i = 0; i < n; i++) {
        long value = table[index[i] & MASK].key;
        sum += value;
    }
}
";
        assert_eq!(
            diff(text, 5).unwrap(),
            "\
--- a/a.c
+++ b/a.c
@@ -2,6 +2,7 @@
 struct entry table[256]; const int *index;
 long f(int n) {
     for (int i = 0; i < n; i++) {
+        if (n - i > 16) __builtin_prefetch(&table[index[i + 16] & MASK]);
         long value = table[index[i] & MASK].key;
         sum += value;
     }
"
        );
    }

    #[test]
    fn a_body_without_braces_gets_them() {
        let text = "void f(double *a, int n, int k) {\n  for (size_t j = 0; j < n; j++)\n    s += a[j * 8 + k]; // \\\n all\n}\n";
        let found = diff(text, 3).unwrap();
        assert!(
            found.contains(
                "+  for (size_t j = 0; j < n; j++) {\n+    if (n - j > 16) __builtin_prefetch(&a[(j + 16) * 8 + k]);\n     s += a[j * 8 + k]; // \\\n  all\n+  }\n }\n"
            ),
            "{found}"
        );
    }

    #[test]
    fn loads_that_are_not_known_ahead_are_refused() {
        for (body, why) in [
            ("if (ok[i]) s += a[b[i]];", "by itself"),
            ("s += ok[i] ? a[b[i]] : 0;", "by itself"),
            ("s += a[b[i]]; if (s) break;", "end early"),
            ("s += a[f(i)];", "calls f"),
            ("s += a[b[i]]; done(i);", "calls done"),
            ("if (i > k) continue; s += a[b[i]];", "`continue`"),
            ("s += a[c[i] + E];", "a macro makes"),
            ("s += rows[i][k];", "no element"),
            ("s += rows[i];", "no element"),
            ("int *row = rows[i]; s += row[i];", "no element"),
            ("s += a[b[i] / k];", "no element"),
            ("s += a[*b + i];", "no element"),
            ("s += a[b[i]]; b++;", "no element"),
            ("s += a[p->k + i];", "no element"),
            ("s += unknown[b[i]];", "no element"),
            ("s += a[b[c[i]]];", "no element"),
            ("s += a[b[i++]];", "change the counter"),
            ("s += a[k];", "no element"),
            ("s += p->next;", "no element"),
            ("\n#if X\ns += a[i];\n#endif\n", "preprocessor"),
        ] {
            let text = format!(
                "#define E rand()\nint **rows; double a[99]; int c[99]; long s;\nvoid f(int n, const int *b, int k) {{\nfor (int i = 0; i < n; i++) {{\n{body}\n}}\n}}\n"
            );
            let line = if body.starts_with('\n') { 7 } else { 5 };
            let said = diff(&text, line).unwrap_err();
            assert!(said.contains(why), "{body}: {said}");
        }
        let global = "int n; int a[9]; long s;\nvoid f(void) {\nfor (int i = 0; i < n; i++)\ns += a[i];\n}\n";
        assert!(diff(global, 4).unwrap_err().contains("a bound is neither"));
        assert!(
            diff("void f(void) {\ns += a[i];\n}\n", 2)
                .unwrap_err()
                .contains("no simple loop")
        );
    }
}
