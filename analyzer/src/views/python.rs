//! Functions and lines of Python, with the windows that began in them.
//!
//! The interpreter runs all Python code by the same machine code, so the tables by machine code do
//! not distinguish its lines. A window counts for the line of the innermost Python frame where it
//! began. All its loads count there, as in the table of call paths.

use crate::data::call_paths::CallPaths;
use crate::data::code_map::CodeMap;
use crate::data::group::AccessClass;
use crate::data::memory_units::CacheLine;
use crate::data::samples::SampleInfo;
use crate::estimate::time_shares::{TimeShare, TimeShares};
use crate::findings::windows::Window;
use crate::util::fast_hash::Mixed;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Maximum number of rows of each table. Source: Chosen.
const MAX_ROWS: usize = 1000;

/// The tables of Python.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PythonTables {
    /// Windows that began below a Python frame.
    pub windows: u64,
    /// By function, the one with the most time first.
    pub functions: Vec<PythonRow>,
    /// By line.
    pub lines: Vec<PythonRow>,
    /// By line of the user's own code: windows that began in a library count for the line that
    /// called it. Those without such a line count as in `lines`.
    pub own_lines: Vec<PythonRow>,
}

/// A function or line of Python.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PythonRow {
    /// Function.
    pub function: String,
    /// Source file.
    pub file: String,
    /// Line; 0 for a function, and if it is unknown.
    pub line: u32,
    /// True for the user's own code.
    pub own: bool,
    /// Share of the time of the windows that began in it, if windows are triggered by time.
    #[serde(flatten)]
    pub time: TimeShare,
    /// Share of the windows that began in it or in Python functions that it called, percent of the
    /// time, or else of the loads.
    pub with_calls_pct: Option<f64>,
    /// Share of the recorded loads of these windows, percent.
    #[serde(rename = "A_pct")]
    pub share: f64,
    /// Windows that began in it.
    pub windows: u64,
    /// Their recorded loads.
    #[serde(rename = "A")]
    pub loads: u64,
    /// Share of irregular loads among the inspected ones, percent.
    #[serde(rename = "A_irr_pct")]
    pub irregular: Option<f64>,
    /// Distinct lines of 64 bytes; only if all rows were inspected.
    #[serde(rename = "F_64")]
    pub lines64: Option<u64>,
    /// The function of machine code with the most of these loads.
    pub machine_function: String,
}

/// A position in Python code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Place<'a> {
    function: &'a str,
    file: &'a str,
    line: u32,
}

/// The positions of a call, its innermost frame first.
fn places(paths: &CallPaths, leaf: u32) -> Vec<Place<'_>> {
    let mut line = 0;
    let mut out = Vec::new();
    for number in paths.outwards(leaf) {
        let call = &paths.calls[number as usize];
        if call.python {
            out.push(Place {
                function: &call.function,
                file: &call.file,
                line,
            });
        }
        line = call.call_line;
    }
    out
}

/// Sums of a row.
#[derive(Default)]
struct Sums {
    windows: u64,
    loads: u64,
    loads_with_calls: u64,
    seen: u64,
    irregular: u64,
    lines64: HashSet<(u32, CacheLine), Mixed>,
    functions: BTreeMap<u32, u64>,
}

/// The tables; none if no window began below a Python frame. `times` is given if windows are
/// triggered by time.
pub fn python_tables(
    paths: &CallPaths,
    samples: &[SampleInfo],
    times: Option<&TimeShares>,
    code: &CodeMap,
    rows: &[Window],
) -> Option<PythonTables> {
    let by_leaf: HashMap<u32, Vec<Place>, Mixed> = (samples.iter())
        .map(|sample| paths.of(sample.sample))
        .collect::<BTreeSet<u32>>()
        .into_iter()
        .map(|leaf| (leaf, places(paths, leaf)))
        .filter(|(_, places)| !places.is_empty())
        .collect();
    if by_leaf.is_empty() {
        return None;
    }
    let of = Of {
        paths,
        samples,
        times,
        code,
        rows,
        by_leaf,
    };
    let has = |s: &&SampleInfo| s.loads > 0 && of.by_leaf.contains_key(&paths.of(s.sample));
    Some(PythonTables {
        windows: samples.iter().filter(has).count() as u64,
        functions: of.table(|place| Place { line: 0, ..place }, innermost),
        lines: of.table(|place| place, innermost),
        own_lines: of.table(|place| place, innermost_own),
    })
}

fn innermost<'p, 'a>(places: &'p [Place<'a>]) -> Option<&'p Place<'a>> {
    places.first()
}

fn innermost_own<'p, 'a>(places: &'p [Place<'a>]) -> Option<&'p Place<'a>> {
    places.iter().find(|p| is_own(p.file)).or(places.first())
}

/// True if a source file of Python is the user's own.
fn is_own(file: &str) -> bool {
    !mgz_annotations_schema::sources::is_system(file) && !file.starts_with('<')
}

/// Input data of the tables.
struct Of<'a> {
    paths: &'a CallPaths,
    samples: &'a [SampleInfo],
    times: Option<&'a TimeShares>,
    code: &'a CodeMap,
    rows: &'a [Window],
    /// Python positions by the call in which a window began.
    by_leaf: HashMap<u32, Vec<Place<'a>>, Mixed>,
}

impl<'a> Of<'a> {
    fn places(&self, sample: u32) -> &[Place<'a>] {
        self.by_leaf
            .get(&self.paths.of(sample))
            .map_or(&[], Vec::as_slice)
    }

    /// `counts`: the place that a window counts for, among those of the call in which it began.
    fn table(
        &self,
        key: impl Fn(Place<'a>) -> Place<'a>,
        counts: for<'p> fn(&'p [Place<'a>]) -> Option<&'p Place<'a>>,
    ) -> Vec<PythonRow> {
        let all = self.by_leaf.values().flatten().map(|&place| key(place));
        let list: Vec<Place> = all.collect::<BTreeSet<_>>().into_iter().collect();
        let numbers: HashMap<Place, usize, Mixed> = list.iter().copied().zip(0..).collect();
        let number = |place: &Place<'a>| numbers.get(&key(*place)).copied();
        let inner = |sample: u32| counts(self.places(sample)).and_then(number);
        let with_calls = |sample: u32| -> Vec<usize> {
            let found: BTreeSet<usize> = self.places(sample).iter().filter_map(number).collect();
            found.into_iter().collect()
        };
        let mut sums: Vec<Sums> = list.iter().map(|_| Sums::default()).collect();
        let mut all_loads = 0;
        for sample in self.samples.iter().filter(|s| s.loads > 0) {
            all_loads += sample.loads;
            if let Some(row) = inner(sample.sample) {
                sums[row].windows += 1;
                sums[row].loads += sample.loads;
            }
            for row in with_calls(sample.sample) {
                sums[row].loads_with_calls += sample.loads;
            }
        }
        for window in self.rows {
            if let Some(row) = inner(window.sample) {
                self.look_at(window, &mut sums[row]);
            }
        }
        let by_rows =
            |of: &dyn Fn(u32) -> Vec<usize>| self.times.map(|t| t.by_rows(list.len(), of));
        let time = by_rows(&|sample| inner(sample).into_iter().collect());
        let total = by_rows(&with_calls);
        let percent = |part: u64| part as f64 * 100.0 / all_loads.max(1) as f64;
        let row = |(at, (place, sums)): (usize, (&Place, &Sums))| PythonRow {
            function: place.function.into(),
            file: place.file.into(),
            line: place.line,
            own: is_own(place.file),
            time: time.as_ref().map(|t| t[at]).unwrap_or_default(),
            with_calls_pct: match &total {
                Some(total) => total[at].value,
                None => Some(percent(sums.loads_with_calls)),
            },
            share: percent(sums.loads),
            windows: sums.windows,
            loads: sums.loads,
            irregular: (sums.seen > 0).then(|| sums.irregular as f64 * 100.0 / sums.seen as f64),
            lines64: (sums.seen == sums.loads).then_some(sums.lines64.len() as u64),
            machine_function: self.most(sums),
        };
        let mut out: Vec<PythonRow> = list.iter().zip(&sums).enumerate().map(row).collect();
        let weight = |r: &PythonRow| r.time.value.unwrap_or(r.share);
        out.sort_by(|a, b| {
            let with_calls = |r: &PythonRow| r.with_calls_pct.unwrap_or(0.0);
            weight(b)
                .total_cmp(&weight(a))
                .then(with_calls(b).total_cmp(&with_calls(a)))
        });
        out.truncate(MAX_ROWS);
        out
    }

    fn look_at(&self, window: &Window, sums: &mut Sums) {
        for load in &window.rows {
            sums.seen += 1;
            sums.irregular += u64::from(load.group.class() == AccessClass::Irregular);
            let line = CacheLine::of(load.address);
            sums.lines64.insert((window.process, line));
            if let Some(piece) = self.code.pieces.get(load.group.piece() as usize) {
                *sums.functions.entry(piece.function).or_default() += 1;
            }
        }
    }

    /// The function of machine code with the most loads.
    fn most(&self, sums: &Sums) -> String {
        let most = sums
            .functions
            .iter()
            .max_by_key(|(at, loads)| (**loads, Reverse(**at)));
        most.and_then(|(&at, _)| self.code.functions.get(at as usize))
            .map_or_else(String::new, |f| f.function.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::call_paths::Call;

    fn call(parent: u32, function: &str, call_line: u32, python: bool) -> Call {
        Call {
            parent,
            function: function.into(),
            module: "/m".into(),
            file: if python {
                "/train.py".into()
            } else {
                String::new()
            },
            call_line,
            python,
            ..Call::default()
        }
    }

    #[test]
    fn windows_count_for_the_line_of_the_innermost_frame() {
        let paths = CallPaths {
            calls: vec![
                Call::default(),
                call(0, "<module>", 0, true),
                call(1, "step", 9, true),
                call(2, "loop", 41, false),
                call(1, "loop", 10, false),
                call(0, "main", 0, false),
            ],
            of_sample: vec![3, 3, 4, 5, 0],
        };
        let sample = |sample| SampleInfo {
            process: 1,
            thread: 1,
            sample,
            loads: 10,
            begin: None,
            first_time: 0,
            last_time: 0,
            parts: Vec::new(),
        };
        let samples: Vec<SampleInfo> = (0..5).map(sample).collect();
        let code = CodeMap::default();
        let found = python_tables(&paths, &samples, None, &code, &[]).unwrap();
        assert_eq!(found.windows, 3);
        let rows = |rows: &[PythonRow]| -> Vec<_> {
            let row = |r: &PythonRow| (r.function.clone(), r.line, r.loads, r.with_calls_pct);
            rows.iter().map(row).collect()
        };
        assert_eq!(
            rows(&found.lines),
            [
                ("step".into(), 41, 20, Some(40.0)),
                ("<module>".into(), 10, 10, Some(20.0)),
                ("<module>".into(), 9, 0, Some(40.0)),
            ]
        );
        assert_eq!(
            rows(&found.functions),
            [
                ("step".into(), 0, 20, Some(40.0)),
                ("<module>".into(), 0, 10, Some(60.0)),
            ]
        );
        let rows = |rows: &[PythonRow]| -> Vec<_> {
            let row = |r: &PythonRow| (r.function.clone(), r.line, r.loads);
            rows.iter().filter(|r| r.loads > 0).map(row).collect()
        };
        let mut paths = paths;
        "/usr/lib/python3.11/step.py".clone_into(&mut paths.calls[2].file);
        let found = python_tables(&paths, &samples, None, &code, &[]).unwrap();
        // `step` is a library's here, which line 9 calls.
        assert_eq!(
            rows(&found.own_lines),
            [("<module>".into(), 9, 20), ("<module>".into(), 10, 10)]
        );
        let none = python_tables(&paths, &samples[3..], None, &code, &[]);
        assert!(none.is_none());
    }
}
