//! Matching of entries of two builds: by name, then by similarity.
//!
//! Functions match by name, then without suffixes of compilers, then without parameters and template
//! arguments if that leaves one candidate on each side. If a file then has functions without a
//! partner on both sides, they match by the offsets of their lines. Lines match inside matched
//! functions: the distance by which most of them have moved is found first, then the rest by their
//! order between those. If one file of a function has another name, its lines match too. Loops match
//! by depth and line, objects by name, kind and type, and allocation sites also without their line,
//! and without their file if that leaves one candidate on each side.

use crate::compare::entries::{Entry, EntryKind, RunEntries};
use crate::output::names::allocation;
use crate::util::elided::elided;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Functions whose sets of line offsets agree in at least this part are one function with two
/// names. Source: Chosen.
const MIN_COMMON_OFFSETS: f64 = 0.5;

/// Indices of the partners in the other run, by kind and index in the first one.
pub type Partners = BTreeMap<EntryKind, Vec<Option<usize>>>;

/// The name without suffixes of compiler-made copies (`.isra.0`, `.constprop.0`) and without Rust's
/// hash.
pub fn plain_name(name: &str) -> &str {
    let mut name = name;
    loop {
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let cut = [
            ".isra.",
            ".constprop.",
            ".part.",
            ".cold.",
            ".lto_priv.",
            ".llvm.",
        ]
        .iter()
        .find_map(|mark| stem.strip_suffix(mark))
        .or_else(|| name.strip_suffix(".cold"))
        .or_else(|| {
            let at = name.rfind("::h")?;
            let hash = &name[at + 3..];
            (hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit())).then(|| &name[..at])
        });
        match cut {
            Some(shorter) if !shorter.is_empty() => name = shorter,
            _ => return name,
        }
    }
}

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Pairs entries with equal keys, in their order.
fn pair<K: Eq + std::hash::Hash>(
    base: &[Entry],
    new: &[Entry],
    found: &mut [Option<usize>],
    taken: &mut BTreeSet<usize>,
    key: impl Fn(bool, &Entry) -> Option<K>,
) {
    let mut by_key: HashMap<K, Vec<usize>> = HashMap::new();
    for (at, entry) in new.iter().enumerate().rev() {
        if let Some(key) = (!taken.contains(&at)).then(|| key(false, entry)).flatten() {
            by_key.entry(key).or_default().push(at);
        }
    }
    for (at, entry) in base.iter().enumerate() {
        if found[at].is_some() {
            continue;
        }
        if let Some(partner) = key(true, entry)
            .and_then(|key| by_key.get_mut(&key))
            .and_then(Vec::pop)
        {
            found[at] = Some(partner);
            taken.insert(partner);
        }
    }
}

/// The name without suffixes of compilers, parameters and template arguments.
fn bare_name(name: &str) -> String {
    elided(plain_name(name))
}

/// Steps of leaving out parts of a bare name: nothing, the outermost namespace (another crate), all
/// namespaces between the outermost one and the name (another module).
const NAMESPACE_STEPS: [fn(&str) -> String; 3] = [
    |bare| bare.to_owned(),
    |bare| {
        bare.split_once("::")
            .map_or(bare, |parts| parts.1)
            .to_owned()
    },
    |bare| match (bare.split_once("::"), bare.rsplit_once("::")) {
        (Some((outer, _)), Some((_, name))) => format!("{outer}::{name}"),
        _ => bare.to_owned(),
    },
];

/// Pairs entries whose key is the only one of its kind among the entries without partners, on each
/// side.
fn pair_single<K: Eq + Ord>(
    (base, new): (&[Entry], &[Entry]),
    found: &mut [Option<usize>],
    taken: &mut BTreeSet<usize>,
    key: impl Fn(bool, &Entry) -> Option<K>,
) {
    let mut candidates: BTreeMap<K, [Vec<usize>; 2]> = BTreeMap::new();
    for (at, entry) in base.iter().enumerate() {
        if let Some(key) = key(true, entry).filter(|_| found[at].is_none()) {
            candidates.entry(key).or_default()[0].push(at);
        }
    }
    for (at, entry) in new.iter().enumerate() {
        if let Some(key) = key(false, entry).filter(|_| !taken.contains(&at)) {
            candidates.entry(key).or_default()[1].push(at);
        }
    }
    for [ours, theirs] in candidates.into_values() {
        if let ([at], [partner]) = (&ours[..], &theirs[..]) {
            found[*at] = Some(*partner);
            taken.insert(*partner);
        }
    }
}

/// Modules of the new run by those of the base: by name, then the remaining ones with the most
/// weight on each side.
fn modules(base: &[Entry], new: &[Entry]) -> HashMap<String, String> {
    let weights = |entries: &[Entry]| {
        let mut all: BTreeMap<String, f64> = BTreeMap::new();
        for entry in entries {
            *all.entry(entry.module.clone()).or_default() += entry.weight;
        }
        all
    };
    let (ours, theirs) = (weights(base), weights(new));
    let mut map: HashMap<String, String> = ours
        .keys()
        .filter(|m| theirs.contains_key(*m))
        .map(|m| (m.clone(), m.clone()))
        .collect();
    let left = |all: &BTreeMap<String, f64>, others: &BTreeMap<String, f64>| {
        let mut left: Vec<(String, f64)> = all
            .iter()
            .filter(|(m, _)| !others.contains_key(*m))
            .map(|(m, w)| (m.clone(), *w))
            .collect();
        left.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        left
    };
    let pairs = left(&ours, &theirs).into_iter().zip(left(&theirs, &ours));
    map.extend(pairs.map(|((ours, _), (theirs, _))| (ours, theirs)));
    map
}

/// Lines of functions: file and line, by number of the function's entry.
fn lines_of(run: &RunEntries) -> HashMap<(String, String), Vec<(String, u32)>> {
    let mut lines: HashMap<(String, String), Vec<(String, u32)>> = HashMap::new();
    for line in run.tables.get(&EntryKind::Line).into_iter().flatten() {
        if line.line > 0 {
            let key = (line.module.clone(), line.name.clone());
            let at = (base(&line.file).to_string(), line.line);
            lines.entry(key).or_default().push(at);
        }
    }
    for list in lines.values_mut() {
        list.sort();
        list.dedup();
    }
    lines
}

/// Finds functions that were renamed: functions in files of the same name with similar line
/// offsets.
fn renamed(
    (base, new): (&RunEntries, &RunEntries),
    (ours, theirs): (&[Entry], &[Entry]),
    found: &mut [Option<usize>],
    taken: &mut BTreeSet<usize>,
) {
    let (base_lines, new_lines) = (lines_of(base), lines_of(new));
    let shape = |lines: &HashMap<(String, String), Vec<(String, u32)>>, entry: &Entry| {
        let lines = lines.get(&(entry.module.clone(), entry.name.clone()))?;
        let (file, first) = lines.first()?.clone();
        let offsets: BTreeSet<u32> = lines
            .iter()
            .filter(|l| l.0 == file)
            .map(|l| l.1 - first)
            .collect();
        Some((file, offsets, first))
    };
    let mut candidates = Vec::new();
    for (at, entry) in ours
        .iter()
        .enumerate()
        .filter(|(at, _)| found[*at].is_none())
    {
        let Some((file, offsets, line)) = shape(&base_lines, entry) else {
            continue;
        };
        for (other, theirs) in theirs
            .iter()
            .enumerate()
            .filter(|(o, _)| !taken.contains(o))
        {
            let Some((their_file, their_offsets, their_line)) = shape(&new_lines, theirs) else {
                continue;
            };
            let both = offsets.intersection(&their_offsets).count() as f64;
            let alike = both / offsets.union(&their_offsets).count().max(1) as f64;
            if file == their_file && alike >= MIN_COMMON_OFFSETS {
                let near = line.abs_diff(their_line);
                candidates.push((alike, near, at, other));
            }
        }
    }
    candidates.sort_by(|a, b| {
        b.0.total_cmp(&a.0)
            .then((a.1, a.2, a.3).cmp(&(b.1, b.2, b.3)))
    });
    for (_, _, at, other) in candidates {
        if found[at].is_none() && taken.insert(other) {
            found[at] = Some(other);
        }
    }
}

/// Pairs of line numbers, both ascending. First, the shift that pairs most of them is used (the
/// smallest among equal ones). Then the rest is paired in order, if both sides have the same number
/// between two pairs.
pub fn align(base: &[u32], new: &[u32]) -> Vec<(u32, u32)> {
    let theirs: BTreeSet<u32> = new.iter().copied().collect();
    let mut votes: BTreeMap<i64, usize> = BTreeMap::new();
    for &a in base {
        for &b in new {
            *votes.entry(i64::from(b) - i64::from(a)).or_default() += 1;
        }
    }
    let shift = votes
        .iter()
        .max_by_key(|(shift, votes)| (**votes, std::cmp::Reverse(shift.unsigned_abs())))
        .map_or(0, |(&shift, _)| shift);
    let moved = |a: u32| u32::try_from(i64::from(a) + shift).ok();
    let anchors: Vec<(u32, u32)> = base
        .iter()
        .filter_map(|&a| moved(a).filter(|b| theirs.contains(b)).map(|b| (a, b)))
        .collect();
    let mut pairs = anchors.clone();
    let ends = |at: usize| {
        let before = at.checked_sub(1).map_or((0, 0), |i| anchors[i]);
        let after = anchors.get(at).copied().unwrap_or((u32::MAX, u32::MAX));
        (before, after)
    };
    for gap in 0..=anchors.len() {
        let (before, after) = ends(gap);
        let ours: Vec<u32> = base
            .iter()
            .copied()
            .filter(|&a| a > before.0 && a < after.0)
            .collect();
        let theirs: Vec<u32> = new
            .iter()
            .copied()
            .filter(|&b| b > before.1 && b < after.1)
            .collect();
        if ours.len() == theirs.len() {
            pairs.extend(ours.into_iter().zip(theirs));
        }
    }
    pairs.sort_unstable();
    pairs
}

/// A matched function: numbers it the same on both sides.
type Homes = (
    HashMap<(String, String), usize>,
    HashMap<(String, String), usize>,
);

/// Numbers functions the same on both sides. This includes inlined ones, which are missing in the
/// table of functions.
fn homes(
    base: &RunEntries,
    new: &RunEntries,
    functions: &[Option<usize>],
    modules: &HashMap<String, String>,
) -> Homes {
    let (mut ours, mut theirs) = (HashMap::new(), HashMap::new());
    let empty = Vec::new();
    let table =
        |run: &'_ RunEntries, kind: EntryKind| run.tables.get(&kind).cloned().unwrap_or_default();
    let new_functions = new.tables.get(&EntryKind::Function).unwrap_or(&empty);
    for (at, entry) in table(base, EntryKind::Function).iter().enumerate() {
        ours.insert((entry.module.clone(), entry.name.clone()), at);
        if let Some(other) = functions[at].and_then(|o| new_functions.get(o)) {
            theirs.insert((other.module.clone(), other.name.clone()), at);
        }
    }
    // Functions of lines and loops that have no partner yet.
    let only_inlined = |run: &RunEntries, known: &HashMap<(String, String), usize>| {
        let lines = [EntryKind::Line, EntryKind::Loop].map(|kind| table(run, kind));
        let keys = lines.into_iter().flatten().map(|e| (e.module, e.name));
        let keys: BTreeSet<(String, String)> =
            keys.filter(|key| !known.contains_key(key)).collect();
        let entry = |(module, name)| Entry {
            module,
            name,
            ..Entry::default()
        };
        keys.into_iter().map(entry).collect::<Vec<Entry>>()
    };
    let (inlined, others) = (only_inlined(base, &ours), only_inlined(new, &theirs));
    let mut found = vec![None; inlined.len()];
    let mut taken = BTreeSet::new();
    let module = |is_base: bool, entry: &Entry| match is_base {
        true => modules.get(&entry.module).cloned(),
        false => Some(entry.module.clone()),
    };
    pair(&inlined, &others, &mut found, &mut taken, |b, e| {
        Some((module(b, e)?, e.name.clone()))
    });
    for step in NAMESPACE_STEPS {
        pair_single((&inlined, &others), &mut found, &mut taken, |b, e| {
            Some((module(b, e)?, step(&bare_name(&e.name))))
        });
    }
    for ((entry, partner), number) in inlined.into_iter().zip(found).zip(functions.len()..) {
        ours.insert((entry.module, entry.name), number);
        if let Some(other) = partner.map(|at: usize| &others[at]) {
            theirs.insert((other.module.clone(), other.name.clone()), number);
        }
    }
    (ours, theirs)
}

/// Lines or loops by function, file and depth.
type Places = BTreeMap<(usize, String, u32), Vec<usize>>;

fn by_place(entries: &[Entry], homes: &HashMap<(String, String), usize>) -> Places {
    let mut places = Places::new();
    for (at, entry) in entries.iter().enumerate() {
        if let Some(&home) = homes.get(&(entry.module.clone(), entry.name.clone())) {
            let key = (home, base(&entry.file).to_string(), entry.depth);
            places.entry(key).or_default().push(at);
        }
    }
    places
}

/// Renames files of the new run: if just one file of a function has no partner on each side, both are
/// the same file.
fn with_moved_files(ours: &Places, theirs: Places) -> Places {
    let files = |places: &Places| {
        let mut files: BTreeMap<usize, BTreeSet<String>> = BTreeMap::new();
        for (home, file, _) in places.keys() {
            files.entry(*home).or_default().insert(file.clone());
        }
        files
    };
    let (before, after) = (files(ours), files(&theirs));
    let moved = |home: usize| {
        let (before, after) = (before.get(&home)?, after.get(&home)?);
        let mut gone = before.difference(after);
        let mut come = after.difference(before);
        match (gone.next(), gone.next(), come.next(), come.next()) {
            (Some(gone), None, Some(come), None) => Some((gone, come)),
            _ => None,
        }
    };
    let place = |(home, file, depth): (usize, String, u32)| match moved(home) {
        Some((gone, come)) if *come == file => (home, gone.clone(), depth),
        _ => (home, file, depth),
    };
    let renamed = theirs.into_iter().map(|(key, list)| (place(key), list));
    renamed.collect()
}

/// The name of an allocation site without the line.
fn without_line(name: &str) -> &str {
    match name.rfind(':') {
        Some(at) if name[at + 1..].bytes().all(|b| b.is_ascii_digit()) && at + 1 < name.len() => {
            &name[..at]
        }
        _ => name,
    }
}

/// Finds the partners of a run's entries in another run.
pub fn partners(base_run: &RunEntries, new_run: &RunEntries) -> Partners {
    let table =
        |run: &RunEntries, kind: EntryKind| run.tables.get(&kind).cloned().unwrap_or_default();
    let mut out = Partners::new();
    out.insert(EntryKind::Run, vec![Some(0)]);
    let (ours, theirs) = (
        table(base_run, EntryKind::Function),
        table(new_run, EntryKind::Function),
    );
    let modules = modules(&ours, &theirs);
    let module = |is_base: bool, entry: &Entry| match is_base {
        true => modules.get(&entry.module).cloned(),
        false => Some(entry.module.clone()),
    };
    let mut found = vec![None; ours.len()];
    let mut taken = BTreeSet::new();
    pair(&ours, &theirs, &mut found, &mut taken, |b, e| {
        Some((module(b, e)?, e.name.clone()))
    });
    pair(&ours, &theirs, &mut found, &mut taken, |b, e| {
        Some((module(b, e)?, plain_name(&e.name).to_string()))
    });
    for step in NAMESPACE_STEPS {
        pair_single((&ours, &theirs), &mut found, &mut taken, |b, e| {
            Some((module(b, e)?, step(&bare_name(&e.name))))
        });
    }
    renamed(
        (base_run, new_run),
        (&ours, &theirs),
        &mut found,
        &mut taken,
    );
    let (base_homes, new_homes) = homes(base_run, new_run, &found, &modules);
    out.insert(EntryKind::Function, found);

    for kind in [EntryKind::Line, EntryKind::Loop] {
        let (ours, theirs) = (table(base_run, kind), table(new_run, kind));
        let at_base = by_place(&ours, &base_homes);
        let at_new = with_moved_files(&at_base, by_place(&theirs, &new_homes));
        out.insert(kind, partners_by_place(&ours, &theirs, &at_base, &at_new));
    }
    let (ours, theirs) = (
        table(base_run, EntryKind::Object),
        table(new_run, EntryKind::Object),
    );
    out.insert(EntryKind::Object, partners_of_objects(&ours, &theirs));
    out
}

/// Finds the partners of lines or loops. `at_base` and `at_new` are their places.
fn partners_by_place(
    ours: &[Entry],
    theirs: &[Entry],
    at_base: &Places,
    at_new: &Places,
) -> Vec<Option<usize>> {
    let mut found: Vec<Option<usize>> = vec![None; ours.len()];
    for (place, list) in at_base {
        let Some(others) = at_new.get(place) else {
            continue;
        };
        let lines = |entries: &[Entry], list: &[usize]| {
            let mut lines: Vec<u32> = list.iter().map(|&at| entries[at].line).collect();
            lines.sort_unstable();
            lines.dedup();
            lines
        };
        for (a, b) in align(&lines(ours, list), &lines(theirs, others)) {
            // Several in one line are paired by weight.
            let of = |entries: &[Entry], list: &[usize], line: u32| -> Vec<usize> {
                list.iter()
                    .copied()
                    .filter(|&at| entries[at].line == line)
                    .collect()
            };
            for (at, other) in of(ours, list, a).into_iter().zip(of(theirs, others, b)) {
                found[at] = Some(other);
            }
        }
    }
    found
}

/// Finds the partners of objects.
fn partners_of_objects(ours: &[Entry], theirs: &[Entry]) -> Vec<Option<usize>> {
    let mut found = vec![None; ours.len()];
    let mut taken = BTreeSet::new();
    let key = |e: &Entry| (e.name.clone(), e.sort.clone());
    pair(ours, theirs, &mut found, &mut taken, |_, e| {
        Some((key(e), e.chain.clone()))
    });
    pair(ours, theirs, &mut found, &mut taken, |_, e| Some(key(e)));
    pair(ours, theirs, &mut found, &mut taken, |_, e| {
        Some(e.name.clone())
    });
    // Allocation sites that have moved are paired in the order of their lines, if both sides have
    // the same number of them.
    let mut moved: BTreeMap<&str, (Vec<usize>, Vec<usize>)> = BTreeMap::new();
    for (at, entry) in ours
        .iter()
        .enumerate()
        .filter(|(at, _)| found[*at].is_none())
    {
        moved
            .entry(without_line(&entry.name))
            .or_default()
            .0
            .push(at);
    }
    for (at, entry) in theirs
        .iter()
        .enumerate()
        .filter(|(at, _)| !taken.contains(at))
    {
        moved
            .entry(without_line(&entry.name))
            .or_default()
            .1
            .push(at);
    }
    for (a, b) in moved.into_values().filter(|(a, b)| a.len() == b.len()) {
        let by_line = |entries: &[Entry], mut list: Vec<usize>| {
            list.sort_by_key(|&at| line_number(&entries[at].name));
            list
        };
        for (at, other) in by_line(ours, a).into_iter().zip(by_line(theirs, b)) {
            found[at] = Some(other);
            taken.insert(other);
        }
    }
    for with_file in [true, false] {
        for step in NAMESPACE_STEPS {
            pair_single((ours, theirs), &mut found, &mut taken, |_, e| {
                Some(bare_object(&e.name, with_file, step))
            });
        }
    }
    found
}

/// Name of an object without parameters and template arguments, after a step of
/// [`NAMESPACE_STEPS`]. Allocation sites also lose their line, and perhaps their file.
fn bare_object(name: &str, with_file: bool, step: fn(&str) -> String) -> String {
    match allocation(name) {
        Some((function, place)) => {
            let file = if with_file { without_line(place) } else { " " };
            format!("{}{file}", step(&bare_name(function)))
        }
        None => step(&bare_name(name)),
    }
}

fn line_number(name: &str) -> u64 {
    name.rsplit(':')
        .next()
        .and_then(|n| n.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_moved_together_or_in_order() {
        // Three lines were inserted before all others.
        assert_eq!(
            align(&[10, 12, 15], &[13, 15, 18]),
            [(10, 13), (12, 15), (15, 18)]
        );
        // One line was inserted before the last two; nothing moved before them.
        assert_eq!(
            align(&[10, 12, 14, 20, 25], &[10, 12, 14, 23, 28]),
            [(10, 10), (12, 12), (14, 14), (20, 23), (25, 28)]
        );
        // A line is gone. No partner is guessed.
        assert_eq!(align(&[10, 11, 12], &[10, 12]), [(10, 10), (12, 12)]);
        assert_eq!(align(&[], &[1]), []);
    }

    #[test]
    fn names_without_what_compilers_append() {
        for (name, plain) in [
            ("kernel.isra.0", "kernel"),
            ("kernel.constprop.0.isra.12", "kernel"),
            ("kernel._omp_fn.0", "kernel._omp_fn.0"),
            ("main.cold", "main"),
            ("a::b::h0123456789abcdef", "a::b"),
            ("a::hello", "a::hello"),
        ] {
            assert_eq!(plain_name(name), plain);
        }
        for name in [
            "void sum<float>(float const*, int)",
            "void sum<double>(double const*, unsigned long)",
            "double sum<double>(double const*, unsigned long) [clone .constprop.0]",
            "sum<…>",
        ] {
            assert_eq!(bare_name(name), "sum<…>");
        }
    }

    fn entry(name: &str, file: &str, line: u32) -> Entry {
        Entry {
            name: name.into(),
            module: "app".into(),
            file: file.into(),
            line,
            weight: 1.0,
            ..Entry::default()
        }
    }

    fn run(functions: &[&str], lines: &[(&str, u32)], objects: &[&str]) -> RunEntries {
        let mut run = RunEntries::default();
        let functions = functions.iter().map(|n| entry(n, "", 0)).collect();
        run.tables.insert(EntryKind::Function, functions);
        let lines = lines.iter().map(|(n, l)| entry(n, "a.c", *l)).collect();
        run.tables.insert(EntryKind::Line, lines);
        let objects = objects.iter().map(|n| entry(n, "", 0)).collect();
        run.tables.insert(EntryKind::Object, objects);
        run
    }

    #[test]
    fn renamed_functions_and_moved_allocation_sites() {
        let base = run(
            &["main", "walk", "sum"],
            &[
                ("main", 5),
                ("walk", 20),
                ("walk", 22),
                ("walk", 25),
                ("sum", 40),
            ],
            &["main a.c:5", "main a.c:7", "table"],
        );
        let new = run(
            &["sum", "traverse", "main"],
            &[
                ("main", 5),
                ("traverse", 23),
                ("traverse", 25),
                ("traverse", 28),
                ("sum", 43),
            ],
            &["table", "main a.c:9", "main a.c:6"],
        );
        let found = partners(&base, &new);
        assert_eq!(found[&EntryKind::Function], [Some(2), Some(1), Some(0)]);
        assert_eq!(
            found[&EntryKind::Line],
            [Some(0), Some(1), Some(2), Some(3), Some(4)]
        );
        assert_eq!(found[&EntryKind::Object], [Some(2), Some(1), Some(0)]);
    }

    #[test]
    fn parameters_templates_and_files_may_change() {
        let base = run(
            &["f(int)", "f(char)", "g(int)", "void sum<float>(float*)"],
            &[("g(int)", 5), ("g(int)", 7), ("inner<float>(float)", 30)],
            &[
                "build(int) a.c:5",
                "load(int) a.c:9",
                "cache<int>::table",
                "[stack]",
            ],
        );
        let mut new = run(
            &[
                "void sum<double>(double*)",
                "f(long)",
                "g(unsigned long, int)",
            ],
            &[
                ("g(unsigned long, int)", 15),
                ("g(unsigned long, int)", 17),
                ("inner<double>(double)", 40),
            ],
            &[
                "cache<long>::table",
                "load(long) b.c:9",
                "build(long) a.c:7",
                "[stack]",
            ],
        );
        for line in new.tables.get_mut(&EntryKind::Line).unwrap() {
            line.file = "src/moved.c".into();
        }
        let found = partners(&base, &new);
        // It is not known which of the two is now `f(long)`.
        assert_eq!(found[&EntryKind::Function], [None, None, Some(2), Some(0)]);
        assert_eq!(found[&EntryKind::Line], [Some(0), Some(1), Some(2)]);
        assert_eq!(
            found[&EntryKind::Object],
            [Some(2), Some(1), Some(0), Some(3)]
        );
    }

    #[test]
    fn crates_and_modules_may_change() {
        let base = run(
            &["main::look", "main::grid::sum", "a::new", "b::new"],
            &[("main::look", 5), ("main::look", 9)],
            &["main::main main.rs:31"],
        );
        let mut new = run(
            &["main2::look", "main::table::sum", "c::new"],
            &[("main2::look", 6), ("main2::look", 10)],
            &["main2::main main2.rs:30"],
        );
        for line in new.tables.get_mut(&EntryKind::Line).unwrap() {
            line.file = "main2.rs".into();
        }
        let found = partners(&base, &new);
        // It is not known which of the two is now `c::new`.
        assert_eq!(found[&EntryKind::Function], [Some(0), Some(1), None, None]);
        assert_eq!(found[&EntryKind::Line], [Some(0), Some(1)]);
        assert_eq!(found[&EntryKind::Object], [Some(0)]);
    }
}
