//! Targets of remedies by their names.

use crate::data::code_map::LineName;
use crate::data::object_map::UNKNOWN;
use crate::filter::shortened;
use crate::findings::gains::Costs;
use crate::findings::sites::SiteFacts;
use std::collections::{BTreeMap, HashSet};

/// The objects of a name with loads in windows: those with exactly this name (with or without
/// type), else those whose only name contains it, else those whose name with type contains it.
pub(crate) fn objects_named(costs: &Costs, name: &str) -> Result<Vec<u32>, String> {
    let Some(resolver) = costs.context.objects else {
        return Err(format!(
            "{name}: the trace has no data objects (no objects.parquet); record again with this mgz-record"
        ));
    };
    let mut rows: BTreeMap<u32, u64> = BTreeMap::new();
    for facts in costs.context.sites.values() {
        for (&object, &n) in &facts.objects {
            *rows.entry(object).or_default() += n;
        }
    }
    rows.remove(&UNKNOWN);
    let mut known: Vec<(u32, &str, String)> = rows
        .keys()
        .filter_map(|&number| {
            let object = resolver.objects.get(number as usize)?;
            let typed = format!("{} ({})", object.name, object.of_type);
            Some((number, object.name.as_str(), typed))
        })
        .collect();
    known.sort_by_key(|k| (std::cmp::Reverse(rows[&k.0]), k.0));
    let exact: Vec<u32> = (known.iter())
        .filter(|k| k.1 == name || k.2 == name)
        .map(|k| k.0)
        .collect();
    if !exact.is_empty() {
        return Ok(exact);
    }
    let of_name: Vec<_> = known.iter().filter(|k| k.1.contains(name)).collect();
    if of_name.is_empty() {
        // Blocks of one allocation function have a common name, but distinct types.
        let of_type = known.iter().filter(|k| k.2.contains(name));
        let of_type: Vec<u32> = of_type.map(|k| k.0).collect();
        if !of_type.is_empty() {
            return Ok(of_type);
        }
    }
    let mut names: Vec<&str> = of_name.iter().map(|k| k.1).collect();
    names.sort_unstable();
    names.dedup();
    match names[..] {
        [_] => Ok(of_name.iter().map(|k| k.0).collect()),
        [] => Err(format!(
            "no object {name:?} has loads in the windows; objects with loads: {}",
            shortened(known.iter().map(|k| k.1.to_owned()))
        )),
        _ => Err(format!(
            "{name:?} may be {}; write more of the name",
            shortened(names.iter().map(|&n| n.to_owned()))
        )),
    }
}

/// Load instructions of a source line (`FILE:LINE`) or of a function, with most rows first. A line
/// stands for all loads of a cause that is placed there.
pub(crate) fn sites<'a>(costs: &'a Costs, name: &str) -> Result<Vec<&'a SiteFacts>, String> {
    let context = &costs.context;
    let lines_of = |facts: &SiteFacts| -> Vec<LineName> {
        let piece = facts.group.piece();
        let own = context.code.pieces.get(piece as usize);
        let own = own.and_then(|p| context.code.lines.get(p.line as usize));
        [Some(context.users.line(piece)), own.cloned()]
            .into_iter()
            .flatten()
            .collect()
    };
    let is_meant = |line: &LineName| is_function(&line.function, name) || is_place(line, name);
    let placed = costs.causes.iter().filter(|c| is_place(&c.line, name));
    let of_causes: HashSet<u32> = placed.flat_map(|c| c.sites.iter().copied()).collect();
    let mut found: Vec<&SiteFacts> = (context.sites.values())
        .filter(|facts| of_causes.contains(&facts.site) || lines_of(facts).iter().any(is_meant))
        .collect();
    found.sort_unstable_by_key(|f| (std::cmp::Reverse(f.rows), f.site));
    if !found.is_empty() {
        return Ok(found);
    }
    let there = costs.causes.iter().map(|c| place(&c.line));
    Err(format!(
        "no load of the windows is at {name:?}; write FILE:LINE or a function; costly ones are {}",
        shortened(there)
    ))
}

/// `file.c:10`, without folders.
pub(crate) fn place(line: &LineName) -> String {
    let file = line.file.rsplit('/').next().unwrap_or_default();
    match file {
        "" => line.function.clone(),
        file => format!("{file}:{}", line.line),
    }
}

/// True if `name` is the function, with or without its modules and its arguments.
fn is_function(function: &str, name: &str) -> bool {
    let named = function.replace("(anonymous namespace)::", "");
    let bare = named.split('(').next().unwrap_or_default();
    [function, bare].iter().any(|function| {
        let before = function.strip_suffix(name);
        before.is_some_and(|modules| modules.is_empty() || modules.ends_with("::"))
    })
}

/// True if `name` is the line, with or without folders.
fn is_place(line: &LineName, name: &str) -> bool {
    let Some((file, number)) = name.rsplit_once(':') else {
        return false;
    };
    let before = line.file.strip_suffix(file);
    number.parse() == Ok(line.line)
        && before.is_some_and(|folders| folders.is_empty() || folders.ends_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_named_with_or_without_modules() {
        assert!(is_function("grid::columns", "columns") && is_function("columns", "columns"));
        assert!(!is_function("by_columns", "columns") && !is_function("columns", "grid::columns"));
        assert!(is_function(
            "(anonymous namespace)::probe(Table const&, long)",
            "probe"
        ));
    }

    #[test]
    fn lines_are_named_with_or_without_folders() {
        let line = LineName {
            file: "/a/src/main.c".into(),
            line: 10,
            ..LineName::default()
        };
        let is = |name: &str| is_place(&line, name);
        assert!(is("main.c:10") && is("src/main.c:10") && is("/a/src/main.c:10"));
        assert!(!is("main.c:1") && !is("ain.c:10") && !is("main.c"));
        assert_eq!(place(&line), "main.c:10");
    }
}
