//! Targets of remedies by their names.

use crate::data::code_map::LineName;
use crate::data::object_map::{Object, UNKNOWN};
use crate::filter::shortened;
use crate::findings::cause::Cause;
use crate::findings::context::Context;
use crate::findings::gains::Costs;
use crate::findings::mechanisms::title;
use crate::findings::sites::SiteFacts;
use crate::findings::users::function_of;
use crate::util::elided::elided;
use crate::what_if::nearest::nearest;
use crate::what_if::remedy::Target;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Minimum part of an object's heap blocks that were logged, if a remedy moves them. Source: Chosen:
/// the remedy leaves the other blocks where they are.
const MIN_LOGGED_PART: f64 = 0.9;

/// An object with loads in windows.
struct Known<'a> {
    number: u32,
    object: &'a Object,
    rows: u64,
}

impl Known<'_> {
    /// For example `make a.cpp:4 (Row)`.
    fn typed(&self) -> String {
        match self.object.of_type.as_str() {
            "" => self.object.name.clone(),
            of_type => format!("{} ({of_type})", self.object.name),
        }
    }

    /// True if `name` is the whole name, with or without the type.
    fn is_called(&self, name: &str) -> bool {
        let object = self.object;
        object.name == name || format!("{} ({})", object.name, object.of_type) == name
    }

    /// True if `name` is the whole type, with or without its namespaces and template arguments.
    fn is_of_type(&self, name: &str) -> bool {
        let whole = bare_type(&self.object.of_type);
        let modules = whole.strip_suffix(&bare_type(name));
        let is_whole = modules.is_some_and(|m| m.is_empty() || m.ends_with("::"));
        !name.is_empty() && (self.object.of_type == name || is_whole)
    }
}

/// A type without the word of its kind and without template arguments.
fn bare_type(of_type: &str) -> String {
    let words = ["struct ", "class ", "union "];
    let named = words
        .iter()
        .fold(of_type, |text, word| text.trim_start_matches(word));
    elided(named).replace("<…>", "")
}

/// The objects with loads in windows, most loads first.
fn known_objects<'a>(costs: &'a Costs, name: &str) -> Result<Vec<Known<'a>>, String> {
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
    let known = rows.into_iter().filter_map(|(number, rows)| {
        let object = resolver.objects.get(number as usize)?;
        Some(Known {
            number,
            object,
            rows,
        })
    });
    let mut known: Vec<Known> = known.collect();
    known.sort_by_key(|k| (std::cmp::Reverse(k.rows), k.number));
    Ok(known)
}

/// The objects that a name means: those with exactly this name (with or without type), else those of
/// exactly this type, else those whose name or whose type contains it, if it is one name or type.
fn meant<'a>(known: &'a [Known<'a>], name: &str) -> Result<Vec<&'a Known<'a>>, String> {
    let those = |is_meant: &dyn Fn(&Known) -> bool| -> Vec<&'a Known<'a>> {
        known.iter().filter(|k| is_meant(k)).collect()
    };
    let exact = [
        those(&|k| k.is_called(name)),
        // Blocks of several allocation sites may have one type.
        those(&|k| k.is_of_type(name)),
    ];
    if let Some(found) = exact.into_iter().find(|found| !found.is_empty()) {
        return Ok(found);
    }
    let distinct = |texts: Vec<&str>| texts.into_iter().collect::<BTreeSet<&str>>().len();
    let of_name = those(&|k| k.object.name.contains(name));
    let of_type = those(&|k| k.object.of_type.contains(name));
    let (found, kinds) = match of_name.is_empty() {
        false => {
            let names = of_name.iter().map(|k| k.object.name.as_str()).collect();
            (of_name, distinct(names))
        }
        true => {
            let types = of_type.iter().map(|k| k.object.of_type.as_str()).collect();
            (of_type, distinct(types))
        }
    };
    match kinds {
        1 => Ok(found),
        0 => {
            let names = known.iter().map(|k| k.typed());
            Err(format!(
                "no object {name:?} has loads in the windows; the nearest names of objects with loads: {}",
                shortened(nearest(name, names).into_iter())
            ))
        }
        _ => Err(format!(
            "{name:?} may be {}; write more of the name",
            shortened(found.iter().map(|k| k.typed()))
        )),
    }
}

/// The objects of a name with loads in windows. An error if the recording knows only a sample of
/// their heap blocks, as a remedy would move all of them.
pub(crate) fn objects_named(costs: &Costs, name: &str) -> Result<Vec<u32>, String> {
    let known = known_objects(costs, name)?;
    let found = meant(&known, name)?;
    let samples = costs.context.objects.map(|resolver| &resolver.samples);
    let is_part = |k: &&&Known| {
        let seen = samples.and_then(|samples| samples.get(&k.number));
        seen.is_some_and(|seen| seen.bytes < MIN_LOGGED_PART * seen.stand_for)
    };
    match found.iter().find(is_part) {
        Some(part) => Err(format!(
            "{}: not known: the recording has only a sample of its heap blocks, and the remedy moves all; record all with mgz run --heap=all, then ask again",
            part.typed()
        )),
        None => Ok(found.iter().map(|k| k.number).collect()),
    }
}

/// The objects of a name with loads in windows, even if only a sample of their blocks is known.
pub(crate) fn objects_meant(costs: &Costs, name: &str) -> Result<Vec<u32>, String> {
    let known = known_objects(costs, name)?;
    Ok(meant(&known, name)?.iter().map(|k| k.number).collect())
}

/// A short name for the objects of a name: that of their type, if no other object has this type.
pub(crate) fn short_name(costs: &Costs, name: &str) -> String {
    let known = known_objects(costs, name).unwrap_or_default();
    let numbers = |name: &str| -> Vec<u32> {
        let found = meant(&known, name).unwrap_or_default();
        found.iter().map(|k| k.number).collect()
    };
    let own = numbers(name);
    let found = meant(&known, name).unwrap_or_default();
    let of_type = found.first().map(|k| bare_type(&k.object.of_type));
    match of_type.filter(|of_type| !of_type.is_empty() && numbers(of_type) == own) {
        Some(of_type) => of_type,
        None => name.to_owned(),
    }
}

/// A line of code with loads in windows.
struct LineLoads {
    line: LineName,
    rows: u64,
}

/// The user's lines of some load instructions, most loads first.
fn lines_of(costs: &Costs, sites: &[&SiteFacts]) -> Vec<LineLoads> {
    let mut rows: HashMap<LineName, u64> = HashMap::new();
    for facts in sites {
        let line = costs.context.users.line(facts.group.piece());
        *rows.entry(line).or_default() += facts.rows;
    }
    let mut lines: Vec<LineLoads> = (rows.into_iter())
        .map(|(line, rows)| LineLoads { line, rows })
        .collect();
    lines.sort_by(|a, b| {
        let key = |p: &LineLoads| (p.line.function.clone(), p.line.file.clone(), p.line.line);
        b.rows.cmp(&a.rows).then_with(|| key(a).cmp(&key(b)))
    });
    lines
}

/// Load instructions of a source line (`FILE:LINE`) or of a function, with most rows first. A line
/// stands for all loads of a cause that is placed there.
pub(crate) fn sites<'a>(costs: &'a Costs, name: &str) -> Result<Vec<&'a SiteFacts>, String> {
    let context = &costs.context;
    let mut functions: BTreeSet<String> = BTreeSet::new();
    let mut is_meant = |line: &LineName| {
        let is_named = is_function(&line.function, name);
        if is_named {
            functions.insert(line.function.clone());
        }
        is_named || is_place(line, name)
    };
    let placed = costs.causes.iter().filter(|c| is_place(&c.line, name));
    let of_causes: HashSet<u32> = placed.flat_map(|c| c.sites.iter().copied()).collect();
    let mut all: Vec<&SiteFacts> = context.sites.values().collect();
    all.sort_unstable_by_key(|f| (std::cmp::Reverse(f.rows), f.site));
    let found: Vec<&SiteFacts> = (all.iter())
        .filter(|facts| {
            let lines = lines_at(context, facts.group.piece());
            let meant: Vec<bool> = lines.iter().map(&mut is_meant).collect();
            of_causes.contains(&facts.site) || meant.contains(&true)
        })
        .copied()
        .collect();
    if functions.len() > 1 && !functions.contains(name) {
        return Err(format!(
            "{name:?} may be {}; write more of the name",
            shortened(functions.into_iter())
        ));
    }
    if !found.is_empty() {
        return Ok(found);
    }
    let costly = costs.causes.iter().map(|c| place(&c.line));
    let there = lines_of(costs, &all);
    let names = there
        .iter()
        .flat_map(|p| [place(&p.line), elided(&p.line.function)]);
    Err(format!(
        "no load of the windows is at {name:?}; write FILE:LINE or a function; the nearest names are {}; costly lines are {}",
        shortened(nearest(name, names).into_iter()),
        shortened(costly)
    ))
}

/// The cause of a load instruction, if each of its loads waits for the one before.
pub(crate) fn chain_of<'a>(costs: &'a Costs, site: u32) -> Option<&'a Cause> {
    let cause = costs.causes.iter().find(|c| c.sites.contains(&site))?;
    cause.rule.is_chained.then_some(cause)
}

/// A sentence on load instructions of chases, which a remedy leaves as they are. Empty without any.
pub(crate) fn left_out(costs: &Costs, chained: &[u32]) -> String {
    let causes = chained.iter().filter_map(|&site| chain_of(costs, site));
    let titles: BTreeSet<&str> = causes.map(title).collect();
    match titles.is_empty() {
        true => String::new(),
        false => format!(
            "Only a part of its loads changes: those of a {} wait for the load before, which has their address.",
            titles.into_iter().collect::<Vec<_>>().join(" and a ")
        ),
    }
}

/// Meaning of a target, with the share of the recorded loads of each part.
pub(crate) fn described(costs: &Costs, target: Target, name: &str) -> Result<String, String> {
    let all = costs.context.rows.max(1) as f64;
    let share = |rows: u64| format!("{:.0} % of the loads", 100.0 * rows as f64 / all);
    let parts: Vec<String> = match target {
        Target::Object => {
            let known = known_objects(costs, name)?;
            let found = meant(&known, name)?;
            let part = |k: &&Known| format!("{} {}, {}", k.object.kind, k.typed(), share(k.rows));
            found.iter().map(part).collect()
        }
        Target::Code => {
            let sites = sites(costs, name)?;
            let part = |p: &LineLoads| {
                let function = elided(&p.line.function);
                format!("{function} {}, {}", place(&p.line), share(p.rows))
            };
            lines_of(costs, &sites).iter().map(part).collect()
        }
    };
    let more = parts.len().saturating_sub(MAX_DESCRIBED);
    let mut text = parts[..parts.len() - more].join("; ");
    if more > 0 {
        text.push_str(&format!("; and {more} more"));
    }
    Ok(text)
}

/// Parts of a target that are described. Source: Chosen.
const MAX_DESCRIBED: usize = 4;

/// True if a piece of code is at a source line (`FILE:LINE`) or in a function, itself or by the user's
/// code that it belongs to.
pub(crate) fn is_at(context: &Context, piece: u32, name: &str) -> bool {
    let is_meant = |line: &LineName| is_function(&line.function, name) || is_place(line, name);
    lines_at(context, piece).iter().any(is_meant)
}

/// The line of a piece of code, the user's line that it belongs to, and the function of its machine
/// code, into which the line may be inlined.
fn lines_at(context: &Context, piece: u32) -> Vec<LineName> {
    let own = context.code.pieces.get(piece as usize);
    let own = own.and_then(|p| context.code.lines.get(p.line as usize));
    let user = context.users.line(piece);
    let around = function_of(context.code, piece).map(|function| LineName {
        // A copy of a function that the compiler made has a suffix.
        function: function.split('.').next().unwrap_or(function).to_owned(),
        ..LineName::default()
    });
    let lines = [Some(user), own.cloned(), around];
    lines.into_iter().flatten().collect()
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

    fn object(name: &str, of_type: &str) -> Object {
        Object {
            name: name.into(),
            of_type: of_type.into(),
            ..Object::default()
        }
    }

    /// The names of the objects that a name means.
    fn meaning(objects: &[Object], name: &str) -> Result<Vec<String>, String> {
        let known: Vec<Known> = (1..)
            .zip(objects)
            .map(|(number, object)| Known {
                number,
                object,
                rows: 1,
            })
            .collect();
        meant(&known, name).map(|found| found.iter().map(|k| k.typed()).collect())
    }

    #[test]
    fn a_type_stands_for_all_of_its_blocks_and_for_no_other_type() {
        let objects = [
            object("make a.cpp:4", "app::Row"),
            object("grow a.cpp:9", "app::Row"),
            object("read a.cpp:12", "RowGroup"),
            object("fill b.cpp:3", "std::__detail::_Hash_node<int, false>"),
        ];
        let of = |name: &str| meaning(&objects, name);
        let rows = ["make a.cpp:4 (app::Row)", "grow a.cpp:9 (app::Row)"];
        assert_eq!(of("Row").unwrap(), rows);
        assert_eq!(of("app::Row").unwrap(), rows);
        assert_eq!(of("_Hash_node").unwrap().len(), 1);
        assert_eq!(of("_Hash_node<…>").unwrap().len(), 1);
        assert_eq!(of("make").unwrap(), &rows[..1]);
    }

    #[test]
    fn an_ambiguous_name_has_candidates_and_an_unknown_one_has_near_names() {
        let objects = [
            object("make a.cpp:4", "RowOfInts"),
            object("grow b.cpp:9", "RowGroup"),
            object("particles", "Particle"),
        ];
        let error = |name: &str| meaning(&objects, name).unwrap_err();
        let ambiguous = error("Row");
        assert!(
            ambiguous.contains("make a.cpp:4 (RowOfInts), grow b.cpp:9 (RowGroup)"),
            "{ambiguous}"
        );
        let unknown = error("particels");
        assert!(
            unknown.contains("loads: particles (Particle),"),
            "{unknown}"
        );
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
