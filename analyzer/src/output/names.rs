//! Names in tables: short, and different where they mean different things.

use crate::output::text::head;
use crate::views::objects::ObjectRow;
use std::collections::HashMap;

/// Operators whose names have brackets of templates or parameters, longer ones first.
const OPERATORS: [&str; 12] = [
    "<=>", "<<=", ">>=", "->*", "()", "<<", ">>", "<=", ">=", "->", "<", ">",
];

/// A function's name, shortened. If it is too long, first template arguments are left out, then the
/// function's parameters.
pub(crate) fn function(name: &str, most: usize) -> String {
    let fits = |text: &str| text.chars().count() <= most;
    if fits(name) {
        return name.into();
    }
    let without = collapsed(name, false);
    if fits(&without) {
        return without;
    }
    head(&collapsed(name, true), most)
}

/// A name without what stands in its angle brackets, and in its parentheses.
fn collapsed(name: &str, parentheses: bool) -> String {
    let mut out = String::new();
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        let operator = out
            .ends_with("operator")
            .then(|| OPERATORS.iter().find(|o| rest.starts_with(**o)))
            .flatten();
        if let Some(operator) = operator {
            out.push_str(operator);
            rest = &rest[operator.len()..];
            continue;
        }
        let inside = match c {
            '<' => closing(rest, '<', '>'),
            '(' if parentheses && !rest.starts_with("(anonymous") => closing(rest, '(', ')'),
            _ => None,
        };
        match inside {
            // Nothing, or less than what would stand for it.
            Some(end) if end > 3 => {
                out.push(c);
                out.push('…');
                out.push_str(&rest[end - 1..end]);
                rest = &rest[end..];
            }
            Some(end) => {
                out.push_str(&rest[..end]);
                rest = &rest[end..];
            }
            None => {
                out.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    out
}

/// Index behind the bracket that closes the one at the start.
fn closing(text: &str, open: char, close: char) -> Option<usize> {
    let mut depth = 0usize;
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        if c == open {
            depth += 1;
        } else if c == close && before != '-' {
            depth -= 1;
            if depth == 0 {
                return Some(at + 1);
            }
        }
        before = c;
    }
    None
}

/// Names of the objects of a table. Objects with equal names get a distinction: their module, the
/// caller of their allocation, or a number.
pub(crate) fn objects(rows: &[ObjectRow], most: usize) -> Vec<String> {
    let mut names: Vec<String> = rows.iter().map(|o| head(&o.object, most)).collect();
    let suffixes: [&dyn Fn(&ObjectRow) -> String; 3] =
        [&|o| o.module.clone(), &|o| o.of_type.clone(), &|o| {
            o.stack.get(1).cloned().unwrap_or_default()
        }];
    for suffix in suffixes {
        for group in same(&names) {
            let texts: Vec<String> = group.iter().map(|&at| suffix(&rows[at])).collect();
            if texts.iter().all(|t| *t == texts[0]) {
                continue;
            }
            for (&at, text) in group.iter().zip(&texts).filter(|(_, t)| !t.is_empty()) {
                names[at] = format!("{} [{}]", names[at], head(text, 24));
            }
        }
    }
    for group in same(&names) {
        for (number, &at) in group.iter().enumerate() {
            names[at] = format!("{} #{}", names[at], number + 1);
        }
    }
    names
}

/// Rows whose names are the same.
fn same(names: &[String]) -> Vec<Vec<usize>> {
    let mut of_name: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, name) in names.iter().enumerate() {
        of_name.entry(name).or_default().push(at);
    }
    let several = of_name.into_values().filter(|rows| rows.len() > 1);
    several.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_of_templates_are_left_out_first() {
        let name = "std::_Rb_tree<std::string, std::pair<int const, long>, std::less<int> >::_M_insert(int, std::string const&)";
        assert_eq!(
            function(name, 60),
            "std::_Rb_tree<…>::_M_insert(int, std::string const&)"
        );
        assert_eq!(function(name, 40), "std::_Rb_tree<…>::_M_insert(…)");
        assert_eq!(function(name, 20), "std::_Rb_tree<…>::_…");
        assert_eq!(function("short<int>()", 40), "short<int>()");
        assert_eq!(
            function(
                "bool std::operator< <char, std::char_traits<char> >(A<int>)",
                30
            ),
            "bool std::operator< <…>(A<…>)"
        );
        assert_eq!(
            function(
                "main::{lambda()#1}::operator()(std::vector<int, std::allocator<int> >) const",
                50
            ),
            "main::{lambda()#1}::operator()(…) const"
        );
    }

    #[test]
    fn objects_that_look_the_same_are_told_apart() {
        let object = |name: &str, module: &str, stack: &[&str]| ObjectRow {
            object: name.into(),
            module: module.into(),
            stack: stack.iter().map(|s| (*s).to_string()).collect(),
            ..ObjectRow::default()
        };
        let rows = [
            object("table", "a", &[]),
            object("table", "b", &[]),
            object("new", "", &["new", "first"]),
            object("new", "", &["new", "second"]),
            object("count", "a", &[]),
            object("count", "a", &[]),
            object("other", "a", &[]),
        ];
        assert_eq!(
            objects(&rows, 48),
            [
                "table [a]",
                "table [b]",
                "new [first]",
                "new [second]",
                "count #1",
                "count #2",
                "other"
            ]
        );
    }
}
