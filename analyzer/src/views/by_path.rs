//! The tables by call path: the callers of the loads of each function, line, loop and object.
//!
//! A window's loads count for the path where it began. If that path contains the function of a
//! load, its part up to the function is the load's path. Otherwise the window reached the function
//! later, by an unknown path.

use crate::data::call_paths::CallPaths;
use crate::data::code_map::{CodeMap, Target};
use crate::data::group::Group;
use crate::data::object_map::Resolver;
use crate::estimate::time_shares::{TimeShare, TimeShares};
use crate::findings::windows::Window;
use crate::util::fast_hash::Mixed;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

/// Maximum number of rows of a table that are divided.
const MAX_ROWS: usize = 50;
/// Maximum number of paths of a row.
const MAX_PATHS: usize = 8;
/// A path with a smaller part of a row's loads is left out, percent. Source: Chosen.
const MIN_SHARE_PCT: f64 = 1.0;

/// A row of a table: the part with one call path.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ByPathRow {
    /// `function`, `line`, `loop` or `object`.
    pub kind: String,
    /// Function; empty for objects.
    pub function: String,
    /// Module.
    pub module: String,
    /// Source file; empty if there is none.
    pub file: String,
    /// Line; 0 if there is none.
    pub line: u32,
    /// Object.
    pub object: String,
    /// Id of the last call of the path in the table of call paths; 0 if no path is known.
    pub id: u64,
    /// The calls, from the outside in.
    pub path: Vec<String>,
    /// True if the window reached the code later. Then `path` is the path where the window began.
    pub later: bool,
    /// Share of the time, if windows are triggered by time.
    #[serde(flatten)]
    pub time: TimeShare,
    /// Its loads in the inspected rows.
    #[serde(rename = "A")]
    pub loads: u64,
    /// Their share of the row's loads, percent.
    #[serde(rename = "A_pct")]
    pub share: f64,
    /// Windows that have such loads.
    pub windows: u64,
}

/// Divided rows: code by target, or objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Kind {
    Function,
    Line,
    Loop,
    Object,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Function => "function",
            Kind::Line => "line",
            Kind::Loop => "loop",
            Kind::Object => "object",
        }
    }
}

const CODE: [(Kind, Target); 3] = [
    (Kind::Function, Target::Function),
    (Kind::Line, Target::Line),
    (Kind::Loop, Target::Loop),
];

/// A path: its last call, and true if the window continued from there to other code.
type Way = (u32, bool);

struct Divider<'a> {
    code: &'a CodeMap,
    paths: &'a CallPaths,
    /// The path by call and function.
    ways: HashMap<(u32, u32), Way, Mixed>,
}

impl Divider<'_> {
    fn way(&mut self, leaf: u32, group: Group) -> Way {
        let Some(piece) = self.code.pieces.get(group.piece() as usize) else {
            return (leaf, true);
        };
        let (code, paths) = (self.code, self.paths);
        *self.ways.entry((leaf, piece.function)).or_insert_with(|| {
            let name = code.functions.get(piece.function as usize);
            let found = name.and_then(|f| paths.find(leaf, &f.function));
            found.map_or((leaf, leaf != 0), |call| (call, false))
        })
    }

    /// Rows that a load counts for.
    fn keys(&self, group: Group, object: u32) -> Vec<(Kind, u32)> {
        let mut keys = Vec::new();
        for (kind, target) in CODE {
            let rows = self.code.targets(target, group).iter();
            keys.extend(rows.map(|&row| (kind, row)));
        }
        if object != 0 {
            keys.push((Kind::Object, object));
        }
        keys
    }
}

/// The tables. `times` is given if windows are triggered by time.
pub fn tables_by_path(
    code: &CodeMap,
    (objects, paths): (Option<&Resolver>, &CallPaths),
    windows: &[Window],
    times: Option<&TimeShares>,
) -> Vec<ByPathRow> {
    let mut divider = Divider {
        code,
        paths,
        ways: HashMap::default(),
    };
    // By row of a table and path: loads and windows.
    let mut sums: HashMap<(Kind, u32), BTreeMap<Way, (u64, u64)>, Mixed> = HashMap::default();
    for window in windows {
        let leaf = paths.of(window.sample);
        let mut loads: HashMap<(Group, u32), u64, Mixed> = HashMap::default();
        for row in &window.rows {
            *loads.entry((row.group, row.object)).or_default() += 1;
        }
        let mut here: HashMap<((Kind, u32), Way), u64, Mixed> = HashMap::default();
        for ((group, object), n) in loads {
            let way = divider.way(leaf, group);
            for key in divider.keys(group, object) {
                *here.entry((key, way)).or_default() += n;
            }
        }
        for ((key, way), n) in here {
            let sum = sums.entry(key).or_default().entry(way).or_default();
            (sum.0, sum.1) = (sum.0 + n, sum.1 + 1);
        }
    }
    // By window: the rows of the load that it counts for, and that load's path.
    let spots: HashMap<u32, (Vec<(Kind, u32)>, Way), Mixed> = (times.iter())
        .flat_map(|times| times.spots())
        .map(|&(sample, spot)| {
            // (The load's object is unknown here.)
            let keys = divider.keys(spot.group, 0);
            (sample, (keys, divider.way(paths.of(sample), spot.group)))
        })
        .collect();
    let mut out = Vec::new();
    for kind in [Kind::Function, Kind::Line, Kind::Loop, Kind::Object] {
        let mut rows: Vec<(u64, u32)> = (sums.iter())
            .filter(|(key, _)| key.0 == kind)
            .map(|(key, ways)| (ways.values().map(|w| w.0).sum(), key.1))
            .collect();
        rows.sort_unstable_by_key(|&(loads, row)| (Reverse(loads), row));
        for (all, row) in rows.into_iter().take(MAX_ROWS) {
            let mut ways: Vec<(Way, (u64, u64))> = sums[&(kind, row)]
                .iter()
                .map(|(&way, &sum)| (way, sum))
                .collect();
            ways.sort_by_key(|&(way, sum)| (Reverse(sum), way));
            let like = named(kind, row, code, objects);
            for (way, sum) in ways.into_iter().take(MAX_PATHS) {
                let share = sum.0 as f64 * 100.0 / all.max(1) as f64;
                if share < MIN_SHARE_PCT {
                    continue;
                }
                let time = times.map(|times| {
                    times.of_spots(|sample, _| {
                        let spot = spots.get(&sample);
                        spot.is_some_and(|s| s.1 == way && s.0.contains(&(kind, row)))
                    })
                });
                out.push(ByPathRow {
                    id: way.0.into(),
                    path: match way.0 {
                        0 => vec!["[unknown]".into()],
                        call => paths.text(call),
                    },
                    later: way.1,
                    time: time.filter(|_| kind != Kind::Object).unwrap_or_default(),
                    loads: sum.0,
                    share,
                    windows: sum.1,
                    ..like.clone()
                });
            }
        }
    }
    out
}

/// A row's name.
fn named(kind: Kind, row: u32, code: &CodeMap, objects: Option<&Resolver>) -> ByPathRow {
    let at = row as usize;
    let function = |number: u32| code.functions.get(number as usize).cloned();
    let mut named = ByPathRow {
        kind: kind.name().into(),
        ..ByPathRow::default()
    };
    match kind {
        Kind::Function => {
            let of = function(row).unwrap_or_default();
            (named.function, named.module) = (of.function, of.module);
        }
        Kind::Line => {
            let of = code.lines.get(at).cloned().unwrap_or_default();
            (named.function, named.module) = (of.function, of.module);
            (named.file, named.line) = (of.file, of.line);
        }
        Kind::Loop => {
            if let Some(of) = code.loops.get(at) {
                let inside = function(of.function).unwrap_or_default();
                (named.function, named.module) = (inside.function, inside.module);
                (named.file, named.line) = (of.file.clone(), of.line);
            }
        }
        Kind::Object => {
            let of = objects.and_then(|o| o.objects.get(at));
            named.object = of.map_or_else(String::new, |o| o.name.clone());
            named.module = of.map_or_else(String::new, |o| o.module.clone());
        }
    }
    named
}
