//! The table of call paths: a tree of calls, with the windows that began in each.
//!
//! A window counts for the call in which it began, and for all its callers. All its loads are
//! counted there, including those of functions that it reached later.

use crate::data::call_paths::{Call, CallPaths};
use crate::data::memory_units::CacheLine;
use crate::data::samples::SampleInfo;
use crate::estimate::time_shares::{TimeShare, TimeShares};
use crate::findings::windows::Window;
use crate::util::fast_hash::Mixed;
use mgz_annotations_schema::PathRecording;
use mgz_annotations_schema::manifest;
use serde::Serialize;
use std::collections::{HashMap, HashSet};

/// Source: Chosen.
const MAX_ROWS: usize = 1000;
/// A call with a smaller part of the windows has no row, as a part of 1. Source: Chosen.
const MIN_WINDOW_SHARE: f64 = 0.001;

/// Call paths of the trace.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CallPathTable {
    /// `recorded`, `off` or `unknown`.
    pub state: String,
    /// Samples with all callers known up to the thread's first function.
    pub whole: u64,
    /// Samples with unknown outer callers.
    pub partial: u64,
    /// Samples without any known call.
    pub unknown: u64,
    /// Calls in too few windows to have a row.
    pub left_out: u64,
    /// The tree: callers come before the functions that they call, and the most important first.
    pub calls: Vec<CallPathRow>,
}

/// A function with one path of callers.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CallPathRow {
    /// Id of the call.
    pub id: u64,
    /// Id of the caller; 0 for a thread's first function.
    pub parent: u64,
    /// Number of callers above it; 0 for a thread's first function.
    pub depth: u64,
    /// Function.
    pub function: String,
    /// File of the code.
    pub module: String,
    /// Source file of the function; empty if unknown.
    pub file: String,
    /// Source file of the call.
    pub call_file: String,
    /// Line of the call; 0 if unknown.
    pub call_line: u32,
    /// True if the function was inlined there.
    pub inlined: bool,
    /// True for a function of Python.
    pub python: bool,
    /// True for the user's own code.
    pub own: bool,
    /// Share of the time of the windows that began in it or in a function that it called.
    #[serde(flatten)]
    pub time: TimeShare,
    /// Share of the time, or else of the loads, of the windows that began in the function itself,
    /// percent.
    pub self_pct: Option<f64>,
    /// Share of the recorded loads of these windows, percent.
    #[serde(rename = "A_pct")]
    pub share: f64,
    /// Windows that began in it or in a function that it called.
    pub windows: u64,
    /// Their recorded loads.
    #[serde(rename = "A")]
    pub loads: u64,
    /// Distinct addresses of these loads; only on request, and if all rows could be read.
    #[serde(rename = "F")]
    pub footprint: Option<u64>,
    /// Distinct lines of 64 bytes.
    #[serde(rename = "F_64")]
    pub lines64: Option<u64>,
    /// Distinct addresses per load.
    #[serde(rename = "dF")]
    pub growth: Option<f64>,
}

/// A table without paths.
pub fn without(told: &manifest::CallPaths, samples: u64) -> CallPathTable {
    CallPathTable {
        state: if told.state == PathRecording::Off {
            "off"
        } else {
            "unknown"
        }
        .into(),
        unknown: samples,
        ..CallPathTable::default()
    }
}

/// Sums of a call.
#[derive(Clone, Copy, Default)]
struct Sum {
    windows: u64,
    loads: u64,
    /// Loads of windows that began in the function itself.
    own: u64,
}

/// Sums of all calls.
struct CallSums {
    calls: Vec<Sum>,
    all: Sum,
    /// Windows whose path is known, at least in part.
    known: Sum,
    /// Number of these with unknown outermost callers.
    partial: u64,
}

impl CallSums {
    fn new(paths: &CallPaths, samples: &[SampleInfo]) -> CallSums {
        let mut sums = vec![Sum::default(); paths.calls.len()];
        let (mut all, mut known) = (Sum::default(), Sum::default());
        let mut partial = 0;
        for sample in samples.iter().filter(|s| s.loads > 0) {
            all.windows += 1;
            all.loads += sample.loads;
            let leaf = paths.of(sample.sample);
            if leaf == 0 {
                continue;
            }
            known.windows += 1;
            sums[leaf as usize].own += sample.loads;
            let mut last = 0;
            for call in paths.outwards(leaf) {
                let sum = &mut sums[call as usize];
                sum.windows += 1;
                sum.loads += sample.loads;
                last = call;
            }
            // (The placeholder for unknown callers has no file.)
            partial += u64::from(paths.calls[last as usize].module.is_empty());
        }
        CallSums {
            calls: sums,
            all,
            known,
            partial,
        }
    }
}

/// The table. `times` is given if windows are triggered by time.
pub fn call_path_table(
    told: &manifest::CallPaths,
    paths: &CallPaths,
    samples: &[SampleInfo],
    times: Option<&TimeShares>,
    rows: Option<&[Window]>,
) -> CallPathTable {
    let CallSums {
        calls: sums,
        all,
        known,
        partial,
    } = CallSums::new(paths, samples);
    let seen = sums.iter().filter(|s| s.windows > 0).count();
    let kept = kept(&sums, all.windows);
    let numbers: HashMap<u32, usize, Mixed> = kept.iter().copied().zip(0..).collect();
    let inclusive = |sample: u32| -> Vec<usize> {
        paths
            .outwards(paths.of(sample))
            .filter_map(|call| numbers.get(&call).copied())
            .collect()
    };
    let shares = times.map(|t| t.by_rows(kept.len(), inclusive));
    let alone = times.map(|t| {
        t.by_rows(kept.len(), |sample| {
            numbers
                .get(&paths.of(sample))
                .copied()
                .into_iter()
                .collect()
        })
    });
    let footprints = rows.and_then(|rows| footprints(paths, &numbers, rows, all.loads));
    let row = |at: usize, call: u32| {
        let Call {
            parent,
            function,
            module,
            file,
            call_file,
            call_line,
            inlined,
            python,
        } = paths.calls[call as usize].clone();
        let sum = sums[call as usize];
        let (footprint, lines64) = match &footprints {
            Some(of) => (Some(of[at].0), Some(of[at].1)),
            None => (None, None),
        };
        CallPathRow {
            id: call.into(),
            parent: parent.into(),
            depth: paths.outwards(call).count() as u64 - 1,
            own: paths.calls[call as usize].is_own(),
            function,
            module,
            file,
            call_file,
            call_line,
            inlined,
            python,
            time: shares.as_ref().map(|s| s[at]).unwrap_or_default(),
            self_pct: match &alone {
                Some(alone) => alone[at].value,
                None => Some(sum.own as f64 * 100.0 / all.loads.max(1) as f64),
            },
            share: sum.loads as f64 * 100.0 / all.loads.max(1) as f64,
            windows: sum.windows,
            loads: sum.loads,
            footprint,
            lines64,
            growth: footprint.map(|f| f as f64 / sum.loads.max(1) as f64),
        }
    };
    let rows: Vec<CallPathRow> = kept
        .iter()
        .zip(0..)
        .map(|(&call, at)| row(at, call))
        .collect();
    CallPathTable {
        state: if told.state.as_str().is_empty() {
            "recorded".into()
        } else {
            told.state.to_string()
        },
        whole: known.windows - partial,
        partial,
        unknown: all.windows - known.windows,
        left_out: (seen - rows.len()) as u64,
        calls: in_order(rows),
    }
}

/// The calls that have rows: those with most windows. A caller has at least the windows of its
/// callees, so each row has its caller's row.
fn kept(sums: &[Sum], windows: u64) -> Vec<u32> {
    let enough = |s: &Sum| s.windows as f64 >= MIN_WINDOW_SHARE * windows as f64 && s.windows > 0;
    let mut kept: Vec<u32> = (0..sums.len() as u32)
        .filter(|&call| enough(&sums[call as usize]))
        .collect();
    // Among equal calls, callers come first; they have smaller numbers.
    kept.sort_by_key(|&call| (std::cmp::Reverse(sums[call as usize].windows), call));
    kept.truncate(MAX_ROWS);
    kept
}

/// Depth first, the most important of a caller's calls first.
fn in_order(rows: Vec<CallPathRow>) -> Vec<CallPathRow> {
    let weight = |r: &CallPathRow| r.time.value.unwrap_or(r.share);
    let mut below: HashMap<u64, Vec<CallPathRow>> = HashMap::new();
    for row in rows {
        below.entry(row.parent).or_default().push(row);
    }
    for list in below.values_mut() {
        // The list is consumed from its end.
        list.sort_by(|a, b| weight(a).total_cmp(&weight(b)).then(b.id.cmp(&a.id)));
    }
    let mut out = Vec::new();
    let mut todo = below.remove(&0).unwrap_or_default();
    while let Some(row) = todo.pop() {
        todo.extend(below.remove(&row.id).unwrap_or_default());
        out.push(row);
    }
    out
}

/// Distinct addresses and lines by row; none if only a part of the rows was inspected.
fn footprints(
    paths: &CallPaths,
    numbers: &HashMap<u32, usize, Mixed>,
    windows: &[Window],
    all: u64,
) -> Option<Vec<(u64, u64)>> {
    type Set<T> = HashSet<(u32, T), Mixed>;
    let looked_at: u64 = windows.iter().map(|w| w.rows.len() as u64).sum();
    if looked_at < all {
        return None;
    }
    let mut sets: Vec<(Set<u64>, Set<CacheLine>)> = vec![Default::default(); numbers.len()];
    for window in windows {
        let row = paths
            .outwards(paths.of(window.sample))
            .find_map(|call| numbers.get(&call));
        let Some(&row) = row else { continue };
        let (addresses, lines) = &mut sets[row];
        for load in &window.rows {
            addresses.insert((window.process, load.address));
            lines.insert((window.process, CacheLine::of(load.address)));
        }
    }
    let mut out = vec![(0, 0); sets.len()];
    // A callee has a greater number than its caller.
    let mut calls: Vec<(u32, usize)> = numbers.iter().map(|(&call, &row)| (call, row)).collect();
    calls.sort_unstable_by(|a, b| b.cmp(a));
    for (call, row) in calls {
        let own = std::mem::take(&mut sets[row]);
        out[row] = (own.0.len() as u64, own.1.len() as u64);
        let parent = paths.calls[call as usize].parent;
        if let Some(&above) = numbers.get(&parent) {
            unite(&mut sets[above].0, own.0);
            unite(&mut sets[above].1, own.1);
        }
    }
    Some(out)
}

/// Adds a set to another one. The elements of the smaller set are moved.
fn unite<T: Eq + std::hash::Hash>(into: &mut HashSet<T, Mixed>, mut from: HashSet<T, Mixed>) {
    if from.len() > into.len() {
        std::mem::swap(into, &mut from);
    }
    into.extend(from);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::group::Group;
    use crate::findings::windows::Row;

    fn call(parent: u32, function: &str, module: &str) -> Call {
        Call {
            parent,
            function: function.into(),
            module: module.into(),
            ..Call::default()
        }
    }

    fn sample(sample: u32, loads: u64) -> SampleInfo {
        SampleInfo {
            process: 1,
            thread: 1,
            sample,
            loads,
            begin: None,
            first_time: u64::from(sample),
            last_time: u64::from(sample),
            parts: Vec::new(),
        }
    }

    #[test]
    fn calls_have_what_began_in_them_and_in_what_they_called() {
        let paths = CallPaths {
            calls: vec![
                Call::default(),
                call(0, "[callers unknown]", ""),
                call(0, "main", "/app"),
                call(2, "rare", "/app"),
                call(2, "work", "/app"),
                call(1, "work", "/app"),
            ],
            of_sample: vec![4, 4, 3, 5, 0],
        };
        let samples: Vec<SampleInfo> = (0..5).map(|n| sample(n, 10)).collect();
        let windows: Vec<Window> = (0..5)
            .map(|n| Window {
                process: 1,
                sample: n,
                rows: (0..10)
                    .map(|i| Row {
                        address: 64 * (u64::from(n) / 2) + i,
                        site: 0,
                        group: Group::from_raw(0),
                        size: 1,
                        object: 0,
                        into: crate::findings::windows::NO_OFFSET,
                        first: false,
                    })
                    .collect(),
                ..Window::default()
            })
            .collect();
        let told = manifest::CallPaths::default();
        let found = call_path_table(&told, &paths, &samples, None, Some(&windows));
        assert_eq!((found.whole, found.partial, found.unknown), (3, 1, 1));
        let rows: Vec<_> = found
            .calls
            .iter()
            .map(|r| {
                (
                    r.function.as_str(),
                    r.depth,
                    r.windows,
                    r.loads,
                    r.footprint,
                )
            })
            .collect();
        assert_eq!(
            rows,
            [
                ("main", 0, 3, 30, Some(20)),
                ("work", 1, 2, 20, Some(10)),
                ("rare", 1, 1, 10, Some(10)),
                ("[callers unknown]", 0, 1, 10, Some(10)),
                ("work", 1, 1, 10, Some(10)),
            ]
        );
        assert_eq!(found.calls[0].lines64, Some(2));
        let alone: Vec<f64> = found.calls.iter().filter_map(|r| r.self_pct).collect();
        assert_eq!(alone, [0.0, 40.0, 20.0, 0.0, 20.0]);
        // If some rows were not read, the touched memory is unknown.
        let part = call_path_table(&told, &paths, &samples, None, Some(&windows[1..]));
        assert!(part.calls.iter().all(|r| r.footprint.is_none()));
    }
}
