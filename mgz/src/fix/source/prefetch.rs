//! A `__builtin_prefetch` line in front of a load whose address is known some iterations ahead.

use crate::fix::candidates::place;
use crate::fix::source::edit::{Edit, Edits};
use crate::fix::source::finding::{Finding, Made, Means};
use crate::fix::source::loops::{Loop, statement_end, subscripts};
use crate::fix::source::params::PREFETCH_DISTANCE;
use crate::fix::source::token::{Kind, SourceFile};
use std::ops::Range;

/// A prefetch for loads whose addresses are known ahead.
pub fn made(means: &mut Means, finding: &Finding) -> Option<Made> {
    let is_known_ahead = matches!(
        finding.kind(),
        "gather" | "scattered" | "hash_table" | "column" | "strided" | "pages" | "irregular"
    );
    if !is_known_ahead || finding.cause.line == 0 {
        return None;
    }
    let remedy = format!("prefetch of {}", place(&finding.cause));
    let edits = match means.sources.get(&finding.file()) {
        Ok(file) => prefetched(file, finding.cause.line),
        Err(why) => Err(why),
    };
    let mut made = Made::patch(remedy.clone(), remedy, edits);
    made.recipe = format!(
        "call __builtin_prefetch some {PREFETCH_DISTANCE} iterations ahead of {}\n",
        place(&finding.cause)
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
    // The longest access has the load that the processor knows last.
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

/// Refuses loops that may end early, or whose counter is not only counted.
fn check(file: &SourceFile, inner: &Loop, body: &Range<usize>) -> Result<(), String> {
    for at in inner.keyword..body.end {
        if file.tokens[at].in_directive {
            return Err("preprocessor lines are in the loop".into());
        }
        if matches!(file.word(at), "break" | "return" | "goto" | "throw") {
            return Err(format!(
                "the loop may end early by `{}`, and the elements ahead may not exist",
                file.word(at)
            ));
        }
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

/// The statement of a body that a line is in. None if other statements contain it.
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

/// The access that begins with a name: `table[index[i]].key`. None unless its element is known from
/// the counter without effects.
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
    let is_plain = |n: usize| match file.tokens[n].kind {
        Kind::Word => file.word(n + 1) != "(" && file.word(n) != "sizeof",
        Kind::Number => true,
        Kind::Literal => false,
        Kind::Sign => {
            matches!(
                file.word(n),
                "+" | "-"
                    | "*"
                    | "/"
                    | "%"
                    | "&"
                    | "|"
                    | "^"
                    | "<<"
                    | ">>"
                    | "("
                    | ")"
                    | "["
                    | "]"
                    | "~"
            )
        }
    };
    // Loads of a number inside of a number would read elements that may not exist yet.
    let depth = |n: &usize| {
        let opens = (whole.start..*n).filter(|&m| file.word(m) == "[").count();
        opens - (whole.start..*n).filter(|&m| file.word(m) == "]").count()
    };
    let deepest = whole.clone().map(|n| depth(&n)).max().unwrap_or(0);
    let names_inside = whole
        .clone()
        .skip(1)
        .filter(|&n| file.word(n + 1) == "[" && file.is_word(n));
    let mut inside = names_inside.flat_map(|n| subscripts(file, n));
    let is_linear = inside.all(|r| {
        r.clone().all(|n| {
            matches!(file.word(n), "+" | "-" | "*" | "(" | ")") || file.tokens[n].kind != Kind::Sign
        })
    });
    let has_deref = whole
        .clone()
        .any(|n| file.word(n) == "*" && matches!(file.word(n - 1), "[" | "(" | "+" | "-" | "*"));
    (whole.clone().all(is_plain) && deepest <= 2 && is_linear && !has_deref).then_some(whole)
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
    // Comments and line ends have no place in a line.
    text.split_whitespace().collect::<Vec<&str>>().join(" ")
}

/// True if a name is all that stands between two brackets.
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
long f(void) {
    for (int i = 0; i < n; i++) {
        long value = table[index[i] & MASK].key;
        sum += value;
    }
}
";
        assert_eq!(
            diff(text, 3).unwrap(),
            "\
--- a/a.c
+++ b/a.c
@@ -1,5 +1,6 @@
 long f(void) {
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
        let text =
            "void f(void) {\n  for (size_t j = 0; j < 2 * n; j++)\n    s += a[j * n + k];\n}\n";
        let found = diff(text, 3).unwrap();
        assert!(
            found.contains(
                "+  for (size_t j = 0; j < 2 * n; j++) {\n+    if ((2 * n) - j > 16) __builtin_prefetch(&a[(j + 16) * n + k]);\n     s += a[j * n + k];\n+  }\n }\n"
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
            ("s += a[f(i)];", "no element"),
            ("s += a[b[c[i]]];", "no element"),
            ("s += a[b[i++]];", "change the counter"),
            ("s += a[k];", "no element"),
            ("s += p->next;", "no element"),
            ("\n#if X\ns += a[i];\n#endif\n", "preprocessor"),
        ] {
            let text = format!("void f(void) {{\nfor (int i = 0; i < n; i++) {{\n{body}\n}}\n}}\n");
            let line = if body.starts_with('\n') { 5 } else { 3 };
            let said = diff(&text, line).unwrap_err();
            assert!(said.contains(why), "{body}: {said}");
        }
        assert!(
            diff("void f(void) {\ns += a[i];\n}\n", 2)
                .unwrap_err()
                .contains("no simple loop")
        );
    }
}
