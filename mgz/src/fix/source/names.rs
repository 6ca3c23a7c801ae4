//! Names in a C source: variables with their types, and constants.

use crate::fix::source::loops::{Loop, declarations};
use crate::fix::source::token::{Kind, SourceFile};
use std::ops::Range;

/// Words of integer types whose sums do not depend on the order.
pub const INTEGERS: [&str; 20] = [
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
    "u_int",
];
/// Words of floating types.
pub const FLOATS: [&str; 2] = ["float", "double"];

/// The common type of all declarations of a name in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// True if the element is an integer.
    pub is_integer: bool,
    /// True if the element is an integer or a floating number.
    pub is_number: bool,
    /// Levels of pointers.
    pub pointers: usize,
    /// Dimensions of the array.
    pub dimensions: usize,
}

/// True if the file has a `#define` of the name.
pub fn is_macro(file: &SourceFile, name: &str) -> bool {
    definitions(file, name).next().is_some()
}

fn definitions<'a>(file: &'a SourceFile, name: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_name = move |n: &usize| {
        file.tokens[*n].in_directive
            && file.word(*n) == name
            && matches!(file.word(n.wrapping_sub(1)), "define" | "undef")
    };
    (0..file.tokens.len()).filter(is_name)
}

/// True if a name is the same integer in the whole file: by a `#define`, or in an enumeration.
pub fn is_constant(file: &SourceFile, name: &str) -> bool {
    let mut found = definitions(file, name);
    match (found.next(), found.next()) {
        (Some(at), None) => {
            let is_end = file
                .tokens
                .get(at + 2)
                .is_none_or(|t| !t.in_directive || file.word(at + 2) == "#");
            is_integer_literal(file, at + 1) && is_end && declarations(file, name).is_empty()
        }
        (None, _) => {
            let place = enumerator(file, name);
            place.is_some()
                && declarations(file, name).is_empty()
                && !has_hidden_declaration(file, name, place)
        }
        _ => false,
    }
}

/// The token of a name in an enumeration.
fn enumerator(file: &SourceFile, name: &str) -> Option<usize> {
    (0..file.tokens.len()).find_map(|at| {
        let open = at + if file.is_word(at + 1) { 2 } else { 1 };
        let is_list = file.word(at) == "enum" && file.word(open) == "{";
        let close = is_list.then(|| file.closing(open))??;
        (open + 1..close).find(|&n| file.word(n) == name && matches!(file.word(n - 1), "{" | ","))
    })
}

/// True for an integer literal.
pub fn is_integer_literal(file: &SourceFile, at: usize) -> bool {
    let is_number = file.tokens.get(at).is_some_and(|t| t.kind == Kind::Number);
    let word = file.word(at).to_ascii_lowercase();
    let signs: &[char] = match word.starts_with("0x") {
        true => &['.', 'p'],
        false => &['.', 'e', 'p', 'f'],
    };
    is_number && !word.contains(signs)
}

/// The variable of a name at a token, if all declarations of the name in the file have the same
/// type, and one of them is in scope. `None` if anything is uncertain.
pub fn variable(file: &SourceFile, name: &str, at: usize) -> Option<Variable> {
    if is_macro(file, name) || has_hidden_declaration(file, name, None) {
        return None;
    }
    let found = declarations(file, name);
    let mut all = found.iter().map(|(n, words)| read(file, *n, words));
    let first = all.next()??;
    let is_same = all.all(|v| v == Some(first));
    let is_here = found.iter().any(|d| is_in_scope(file, d.0, at));
    (is_same && is_here).then_some(first)
}

fn read(file: &SourceFile, at: usize, words: &[String]) -> Option<Variable> {
    let pointers = words.iter().filter(|w| *w == "*").count();
    let of_type = words.iter().filter(|w| *w != "*").map(String::as_str);
    let of_type: Vec<&str> = of_type.collect();
    if of_type.iter().any(|w| is_macro(file, w) || *w == "typedef") {
        return None;
    }
    let is_integer = of_type.iter().all(|w| INTEGERS.contains(w));
    let is_number = of_type
        .iter()
        .all(|w| INTEGERS.contains(w) || FLOATS.contains(w));
    let mut end = at + 1;
    let mut dimensions = 0;
    while file.word(end) == "[" {
        end = file.closing(end)? + 1;
        dimensions += 1;
    }
    // An array parameter is a pointer.
    let is_parameter = matches!(file.word(end), ")" | ",") && dimensions > 0;
    let is_end = matches!(file.word(end), ";" | "=" | "," | ")");
    (is_end && !is_parameter).then_some(Variable {
        is_integer,
        is_number,
        pointers,
        dimensions,
    })
}

/// True if a name may be declared in a form that [`declarations`] does not read. `constant`: its
/// token in an enumeration.
fn has_hidden_declaration(file: &SourceFile, name: &str, constant: Option<usize>) -> bool {
    (0..file.tokens.len()).any(|n| {
        file.word(n) == name
            && n > 0
            && Some(n) != constant
            && (is_behind_comma(file, n) || is_in_brackets(file, n) || is_behind_bracket(file, n))
    })
}

/// True for the second variable of a declaration: `int m, *n`.
fn is_behind_comma(file: &SourceFile, at: usize) -> bool {
    let mut before = at;
    while before > 0 && matches!(file.word(before - 1), "*" | "const" | "restrict" | "(") {
        before -= 1;
    }
    if before == 0 || file.word(before - 1) != "," {
        return false;
    }
    let mut depth = 0i32;
    for n in (0..before).rev() {
        match file.word(n) {
            ";" | "{" | "}" if depth == 0 => return true,
            "(" if depth == 0 => return n > 0 && file.word(n - 1) == "for",
            "[" if depth == 0 => return false,
            "(" | "[" | "{" => depth -= 1,
            ")" | "]" | "}" => depth += 1,
            _ => {}
        }
    }
    true
}

/// True for `(*name` and `int (name`.
fn is_in_brackets(file: &SourceFile, at: usize) -> bool {
    let mut before = at;
    while before > 0 && matches!(file.word(before - 1), "*" | "const" | "restrict") {
        before -= 1;
    }
    let Some(open) = before.checked_sub(1).filter(|&n| file.word(n) == "(") else {
        return false;
    };
    let of_type = open > 0
        && (INTEGERS.contains(&file.word(open - 1)) || FLOATS.contains(&file.word(open - 1)));
    before < at || of_type
}

/// True for `struct { … } name` and `int __attribute__((…)) name`.
fn is_behind_bracket(file: &SourceFile, at: usize) -> bool {
    let mut before = at;
    while before > 0 && matches!(file.word(before - 1), "*" | "const" | "restrict") {
        before -= 1;
    }
    let Some(close) = before.checked_sub(1) else {
        return false;
    };
    let next = file.word(at + 1);
    match file.word(close) {
        "}" => {
            before < at
                || matches!(next, ";" | ",")
                || matches!(next, "=") && file.word(at + 2) == "{"
        }
        ")" => {
            let mut depth = 0i32;
            let open = (0..=close).rev().find(|&n| {
                depth += match file.word(n) {
                    ")" => 1,
                    "(" => -1,
                    _ => 0,
                };
                depth == 0
            });
            let word = open
                .and_then(|n| n.checked_sub(1))
                .map_or("", |n| file.word(n));
            word.contains("attribute") || word.to_ascii_lowercase().contains("alignas")
        }
        _ => false,
    }
}

/// True if a declaration is in scope at a later token: in the file, in a block around it, or as a
/// parameter of the function around it.
fn is_in_scope(file: &SourceFile, declared: usize, at: usize) -> bool {
    let (mut braces, mut parens) = (0i32, 0i32);
    let mut has_body = false;
    for n in declared..at {
        if file.tokens[n].in_directive {
            continue;
        }
        match file.word(n) {
            "{" => {
                braces += 1;
                has_body |= parens < 0;
            }
            "}" => {
                braces -= 1;
                if braces < 0 || parens < 0 && has_body && braces == 0 {
                    return false;
                }
            }
            "(" => parens += 1,
            ")" => parens -= 1,
            ";" if parens < 0 && !has_body => return false,
            _ => {}
        }
    }
    declared < at && (parens >= 0 || has_body)
}

/// True if the bounds of a loop certainly do not change: the upper one is a number, a constant, or
/// an integer that the body does not name, and the first value a number or a constant.
pub fn has_known_bounds(file: &SourceFile, one: &Loop) -> bool {
    let single = |range: &Range<usize>| (range.len() == 1).then_some(range.start);
    let is_fixed = |at: usize| is_integer_literal(file, at) || is_constant(file, file.word(at));
    let is_unchanged = |at: usize| {
        let name = file.word(at);
        variable(file, name, one.keyword)
            .is_some_and(|v| v.is_integer && v.pointers == 0 && v.dimensions == 0)
            && is_local(file, name)
            && is_kept(file, &one.body, name)
            && (0..file.tokens.len())
                .all(|n| file.word(n) != name || file.word(n.max(1) - 1) != "&")
    };
    single(&one.first).is_some_and(is_fixed)
        && single(&one.bound).is_some_and(|at| is_fixed(at) || is_unchanged(at))
}

/// True if a range neither changes a variable nor takes its address.
pub fn is_kept(file: &SourceFile, range: &Range<usize>, name: &str) -> bool {
    range.clone().all(|n| {
        let next = file.word(n + 1);
        let is_changed = matches!(next, "++" | "--")
            || next.ends_with('=') && !matches!(next, "==" | "!=" | "<=" | ">=")
            || n > 0 && matches!(file.word(n - 1), "++" | "--" | "&");
        file.word(n) != name || !is_changed
    })
}

/// True if no declaration of a name is outside of functions.
fn is_local(file: &SourceFile, name: &str) -> bool {
    let depth = |at: usize| {
        let signs = (0..at).filter(|&n| !file.tokens[n].in_directive);
        signs.fold(0i32, |depth, n| match file.word(n) {
            "{" | "(" => depth + 1,
            "}" | ")" => depth - 1,
            _ => depth,
        })
    };
    declarations(file, name).iter().all(|d| depth(d.0) > 0)
}

/// The reason why no loop of a file may be changed: C++, or a word by which data or lines may
/// differ from the text.
pub fn doubt_of_loops(file: &SourceFile) -> Option<String> {
    if file.is_cpp() {
        return Some("its source is in C++, which is not understood for sure".into());
    }
    let found = (0..file.tokens.len()).find(|&n| {
        matches!(
            file.word(n),
            "volatile"
                | "_Atomic"
                | "_Pragma"
                | "__LINE__"
                | "asm"
                | "__asm__"
                | "typeof"
                | "__typeof__"
                | "__auto_type"
                | "setjmp"
                | "longjmp"
        )
    });
    found.map(|n| format!("{} has `{}`", file.place(n), file.word(n)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn variables_are_known_by_all_their_declarations() {
        let of = |text: &str| {
            let text =
                format!("{text} void f(long p) {{ int own[3]; HERE; }} void g(void) {{ HERE; }}");
            let file = SourceFile::new(Path::new("a.c"), text).unwrap();
            let at = (0..file.tokens.len())
                .find(|&n| file.word(n) == "HERE")
                .unwrap();
            let last = (0..file.tokens.len())
                .rfind(|&n| file.word(n) == "HERE")
                .unwrap();
            (
                variable(&file, "x", at),
                variable(&file, "p", at).is_some(),
                variable(&file, "p", last).is_some() || variable(&file, "own", last).is_some(),
            )
        };
        let plain = Variable {
            is_integer: true,
            is_number: true,
            pointers: 0,
            dimensions: 0,
        };
        assert_eq!(of("static unsigned long x;"), (Some(plain), true, false));
        let grid = Variable {
            is_integer: false,
            dimensions: 2,
            ..plain
        };
        assert_eq!(of("static double x[3][N];").0, Some(grid));
        for text in [
            "",
            "int x; double x;",
            "int x; void h(void) { double y, x; }",
            "int x; void h(void) { double *y, *x; }",
            "#define x y\nint x;",
            "int h(int x) { return x; }",
            "int h(int x);",
            "int h(int x[3]) { return 1; }",
            "int x[3]; int h(int (*x)[3]) { return 1; }",
            "int x; int h(void) { for (double y = 0, x = 1;;) ; }",
            "int x; int h(void) { double (x); }",
            "int x; int h(void) { struct { int n; } x; }",
            "int x; int h(void) { double __attribute__((unused)) x; }",
            "#define int double\nint x;",
        ] {
            assert_eq!(of(text).0, None, "{text}");
        }
    }

    #[test]
    fn constants_are_numbers() {
        let text = "#define A 3\n#define B rand()\n#define C 2\n#define C 3\n#define D 1E3\nenum { E, F = 1 << 3, H };\nint G, H;";
        let file = SourceFile::new(Path::new("a.c"), text.into()).unwrap();
        let is = ["A", "B", "C", "D", "E", "F", "G", "H"].map(|name| is_constant(&file, name));
        assert_eq!(is, [true, false, false, false, true, true, false, false]);
    }
}
