//! Names in tables: short, and distinct for distinct things.

use crate::output::text_table::head;
use crate::util::elided::elided;
use crate::views::object_row::ObjectRow;
use std::collections::HashMap;

/// A function's name, without template arguments and parameters. If that is too long, the outer
/// namespaces are left out.
pub(crate) fn short_function(name: &str, most: usize) -> String {
    let short = elided(name);
    if short.chars().count() <= most {
        return short;
    }
    let inner = short
        .match_indices("::")
        .map(|(at, _)| format!("…{}", &short[at..]));
    let mut shorter = inner.filter(|text| text.chars().count() <= most);
    match shorter.next() {
        Some(text) => text,
        None => head(short.rsplit("::").next().unwrap_or(&short), most),
    }
}

/// The last part of a function's name.
pub(crate) fn last_part(name: &str) -> String {
    let short = elided(name);
    short.rsplit("::").next().unwrap_or(&short).to_string()
}

/// The file name of a module. Extension modules of Python have their name in Python, without the
/// version and the platform.
pub(crate) fn module(path: &str) -> &str {
    let file = path.rsplit('/').next().unwrap_or(path);
    let tags = [".cpython-", ".abi3.so", ".pypy"];
    let end = tags.iter().filter_map(|tag| file.find(tag)).min();
    end.map_or(file, |end| &file[..end])
}

/// The name of an object in at most `most` columns. For a heap block these are its allocating
/// function as in the table of functions, the place, and the type if there is room: `build
/// list.cpp:12 (struct node)`. For a file in memory it is the last part of its path.
pub(crate) fn object(name: &str, most: usize) -> String {
    let length = |text: &str| text.chars().count();
    if name.starts_with('/') {
        let last = name.rsplit('/').next().unwrap_or(name);
        return head(&format!("file {last}"), most);
    }
    let (function, place) = allocation(name).unwrap_or(("", name));
    let whole = match function {
        "" => place.to_string(),
        _ => format!("{}{place}", elided(function)),
    };
    if length(&whole) <= most {
        return whole;
    }
    let place = place.split(" (").next().unwrap_or(place);
    match (function, most.checked_sub(length(place))) {
        ("", _) | (_, None) => head(place.trim_start(), most),
        (_, Some(room)) => format!("{}{place}", self::short_function(function, room)),
    }
}

/// The function and ` FILE:LINE…` of the name of an allocation.
pub(crate) fn allocation(name: &str) -> Option<(&str, &str)> {
    let is_place = |text: &str| {
        let (file, line) = text.split_once(':').unwrap_or_default();
        file.contains('.') && !file.contains(' ') && line.starts_with(|c: char| c.is_ascii_digit())
    };
    let mut blanks = name.match_indices(' ').map(|(at, _)| at);
    let at = blanks.find(|&at| is_place(&name[at + 1..]))?;
    Some(name.split_at(at))
}

/// Names of the objects of a table. Objects with equal names get a distinction: their module, the
/// caller of their allocation, or a number.
pub(crate) fn object_names(rows: &[ObjectRow], most: usize) -> Vec<String> {
    let name = |o: &ObjectRow| match o.object.starts_with('/') {
        true => object(&o.object, most),
        false => head(&o.object, most),
    };
    let mut names: Vec<String> = rows.iter().map(name).collect();
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

/// Indices of rows with the same name, by name.
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
    fn extension_modules_have_their_name_in_python() {
        assert_eq!(module("/x/_a.cpython-311-x86_64-linux-gnu.so"), "_a");
        assert_eq!(module("/x/_rust.abi3.so"), "_rust");
        assert_eq!(module("/lib/libz.so.1"), "libz.so.1");
    }

    #[test]
    fn the_end_of_a_name_stays() {
        let name = "std::_Rb_tree<std::string, std::pair<int const, long>, std::less<int> >::_M_insert(int, std::string const&)";
        assert_eq!(short_function(name, 60), "std::_Rb_tree<…>::_M_insert");
        assert_eq!(short_function(name, 26), "…::_Rb_tree<…>::_M_insert");
        assert_eq!(short_function(name, 16), "…::_M_insert");
        assert_eq!(short_function(name, 8), "_M_inse…");
        assert_eq!(short_function("short", 40), "short");
    }

    #[test]
    fn names_of_objects_end_where_a_part_ends() {
        let name = "void fill<int>(std::vector<int>&) main.cpp:12 (struct node)";
        assert_eq!(super::object(name, 60), "fill<…> main.cpp:12 (struct node)");
        assert_eq!(super::object(name, 25), "fill<…> main.cpp:12");
        assert_eq!(
            super::object("build(unsigned long) list.cpp:27", 60),
            "build list.cpp:27"
        );
        let name = "owned::main::{{closure}} owned.rs:71 (struct Node)";
        assert_eq!(
            super::object(name, 45),
            "owned::main::{{closure}} owned.rs:71"
        );
        assert_eq!(super::object(name, 30), "…::{{closure}} owned.rs:71");
        assert_eq!(super::object("/cache/4f0/gzip", 30), "file gzip");
        assert_eq!(
            super::object("nodes (struct node[8])", 30),
            "nodes (struct node[8])"
        );
        assert_eq!(super::object("nodes (struct node[8])", 10), "nodes");
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
            object_names(&rows, 48),
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
        let mut typed = [object("new", "", &[]), object("new", "", &[])];
        (typed[0].of_type, typed[1].of_type) = ("node".into(), "leaf".into());
        assert_eq!(object_names(&typed, 48), ["new [node]", "new [leaf]"]);
        let file = object("/home/me/.cache/mgz/4f0a/libpython3.11.so.1.0", "", &[]);
        assert_eq!(object_names(&[file], 48), ["file libpython3.11.so.1.0"]);
    }
}
