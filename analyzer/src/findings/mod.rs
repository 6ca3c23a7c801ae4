//! Ranked findings: each tells where memory is slow, why, and what to try.
//!
//! Mechanisms are told apart by rows of windows ([`windows`]) and by the static analysis of
//! addresses ([`mechanisms`]). Load instructions of one mechanism, function and loop make one
//! finding ([`cause`]). Its cost is the share of the time that its code takes, times the share of
//! this that its misses cost. A cheap one is dropped. `docs/reference/findings.md` has the
//! definitions.

pub mod caches;
mod cause;
mod conflicts;
mod context;
pub mod fields;
mod fusion;
pub mod mechanisms;
mod objects;
mod params;
mod paths;
mod places;
mod sharing;
mod sites;
mod users;
pub mod windows;
mod working_set;

use crate::data::call_paths::CallPaths;
use crate::data::code_map::CodeMap;
use crate::data::object_map::Resolver;
use crate::engine::EngineOutcome;
use crate::estimate::time_shares::{TimeShare, TimeShares};
use crate::misses::{Misses, Predicted};
use caches::Caches;
use cause::{Cause, causes};
use context::Context;
use fields::Fields;
use mechanisms::Layout;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use windows::Window;

/// A finding.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Finding {
    /// Mechanism, see `docs/reference/findings.md`.
    pub kind: &'static str,
    /// Title of the mechanism.
    pub title: String,
    /// Estimated cost in percent of the time (or of the loads). Findings are ranked by it.
    pub score: f64,
    /// Share of the time of the code that the finding is in.
    #[serde(flatten)]
    pub time: TimeShare,
    /// Share of the loads in percent. Windows by time give the share of the recorded loads.
    #[serde(rename = "A_pct")]
    pub loads: f64,
    /// Function of the user's code.
    pub function: String,
    /// File with the function's machine code.
    pub module: String,
    /// Source file.
    pub file: String,
    /// Line; 0 if unknown.
    pub line: u32,
    /// Other lines of the same cause: `file:line`.
    pub also: Vec<String>,
    /// Object with most of the loads. Empty if unknown.
    pub object: String,
    /// Call path of the object's allocation, from the user's frame on.
    pub allocated: String,
    /// Most frequent call path of the function, outermost first, among windows that began there.
    /// Empty if no window did, or if call paths were not recorded.
    pub path: Vec<String>,
    /// Share of that path among these windows, in percent.
    pub path_pct: Option<f64>,
    /// Estimated bytes that the loads go through.
    pub working_set: u64,
    /// Predicted misses of the loads, without the curve. None if misses are not predicted.
    pub misses: Option<Misses>,
    /// Observation, with the numbers that support it.
    pub finding: String,
    /// Remedies to try.
    pub advice: String,
    /// The layout that the advice asks for.
    #[serde(skip)]
    pub layout: Option<Layout>,
    /// True if `score` is an upper bound of the cost.
    #[serde(skip)]
    pub is_upper_bound: bool,
}

/// The findings of an analysis, as documents have them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FindingList {
    /// The most important first.
    pub list: Vec<Finding>,
    /// The reason if there are none.
    pub none: String,
}

impl Serialize for FindingList {
    /// Writes `findings` and `no_finding`, and the names of version 0.1 beside them (`diagnoses`,
    /// `no_diagnosis`), which will be removed in version 0.3.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(4))?;
        for key in ["findings", "diagnoses"] {
            map.serialize_entry(key, &self.list)?;
        }
        for key in ["no_finding", "no_diagnosis"] {
            map.serialize_entry(key, &self.none)?;
        }
        map.end()
    }
}

/// Findings, with remarks on what is missing.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Most costly first.
    pub list: Vec<Finding>,
    /// Text to show if there are no findings.
    pub none: String,
    /// By object: the fields of its elements that are loaded.
    pub fields: BTreeMap<u32, Fields>,
    /// A kind of data that the trace lacks and that would allow further findings.
    pub lacks: Option<String>,
}

/// Finds everything. `by_time`: windows were taken by time.
pub fn find(
    code: &CodeMap,
    (objects, paths): (Option<&Resolver>, Option<&CallPaths>),
    windows: &[Window],
    (outcome, predicted): (&EngineOutcome, Option<&Predicted>),
    by_time: bool,
    caches: Caches,
) -> Findings {
    let mut samples: Vec<(u32, u32)> = windows.iter().map(|w| (w.thread, w.sample)).collect();
    samples.sort_unstable();
    samples.dedup();
    // Long samples and full traces are read in pieces.
    let count = match samples.len() {
        few if few < params::MIN_WINDOWS_FOR_FINDING => windows.len(),
        many => many,
    };
    let context = Context::new(code, (objects, paths), windows, caches);
    let fields = fields::of_objects(&context);
    if count < params::MIN_WINDOWS_FOR_FINDING {
        return Findings {
            none: format!(
                "too few windows to tell ({count}): let the program run longer, or record more of it with mgz run --overhead 10% (mgz-record --rate 2000)"
            ),
            fields,
            ..Findings::default()
        };
    }
    let causes = causes(&context);
    let times = by_time.then(|| TimeShares::new(outcome, code));
    let all_rows: u64 = context.sites.values().map(|s| s.rows).sum();
    let mut list: Vec<Finding> = Vec::new();
    let mut kept: Vec<&Cause> = Vec::new();
    for cause in &causes {
        if !is_worth(&context, cause) {
            continue;
        }
        let region = |piece: u32| cause.regions.contains(&context.users.region(piece));
        let share = time_share(times.as_ref(), region)
            .value
            .unwrap_or_else(|| region_share(&context, cause, all_rows));
        let time = time_share(times.as_ref(), |piece| {
            context.users.is_in(piece, &cause.inner)
        });
        let loads = cause.rows as f64 * 100.0 / all_rows.max(1) as f64;
        // A loop cannot lose more time than it takes.
        let score = (share * cause.lost).min(time.value.unwrap_or(f64::INFINITY));
        if score < params::MIN_COST_OF_FINDING_PCT {
            continue;
        }
        let cost = Cost { score, time, loads };
        list.push(finding(&context, cause, cost, predicted));
        kept.push(cause);
    }
    fusion::join(&kept, &mut list);
    let conflicts = conflicts::find(&context, outcome, times.as_ref(), &list);
    list.extend(conflicts);
    list.extend(sharing::find(&context));
    list.sort_by(|a, b| {
        b.score
            .total_cmp(&a.score)
            .then_with(|| (a.kind, &a.file, a.line).cmp(&(b.kind, &b.file, b.line)))
    });
    settle(&mut list);
    list.truncate(params::MAX_FINDINGS_IN_REPORT);
    let none = match list.is_empty() {
        true => format!(
            "nothing: in {} no code loses {} % of its time to loads that miss beyond the L1 cache{}",
            looked_at(count, outcome.samples.len()),
            params::MIN_COST_OF_FINDING_PCT,
            sharing::unseen(&context)
        ),
        false => String::new(),
    };
    Findings {
        list,
        none,
        fields,
        lacks: sharing::suspected(&context),
    }
}

/// The cost of a cause: its score, and its shares of time and loads in percent.
struct Cost {
    score: f64,
    time: TimeShare,
    loads: f64,
}

/// A cause in words and numbers.
fn finding(context: &Context, cause: &Cause, cost: Cost, predicted: Option<&Predicted>) -> Finding {
    let told = (cause.rule.tell)(context, cause);
    let named = objects::named(context, cause);
    let called = paths::of(context, cause);
    let place = |l: &crate::data::code_map::LineName| format!("{}:{}", l.file, l.line);
    Finding {
        kind: cause.rule.kind,
        title: mechanisms::title(cause).into(),
        score: cost.score,
        time: cost.time,
        loads: cost.loads,
        function: cause.line.function.clone(),
        module: cause.line.module.clone(),
        file: cause.line.file.clone(),
        line: cause.line.line,
        also: cause
            .lines
            .iter()
            .filter(|l| l.line > 0)
            .take(params::MAX_OTHER_LINES_OF_FINDING)
            .map(place)
            .collect(),
        object: named.name,
        allocated: named.allocated,
        path: called.calls,
        path_pct: called.share,
        working_set: cause.set.bytes,
        misses: predicted.and_then(|p| misses(context, cause, p)),
        finding: told.finding,
        advice: told.advice,
        layout: told.layout,
        is_upper_bound: false,
    }
}

/// For example `the 900 windows that were recorded`. Findings come from a part of the windows if
/// there are many, or if some have no loads.
fn looked_at(count: usize, recorded: usize) -> String {
    match recorded > count {
        true => format!("{count} of the {recorded} windows, which were looked at,"),
        false => format!("the {count} windows that were recorded"),
    }
}

/// True if a cause has enough rows and exceeds the first-level cache.
fn is_worth(context: &Context, cause: &Cause) -> bool {
    let level = context.caches.level(cause.rule.beyond_level);
    let beyond = level.map_or(params::DEFAULT_CACHE_BYTES_TO_EXCEED, |l| l.bytes);
    !cause.rule.hits && cause.rows >= params::MIN_ROWS_FOR_FINDING && cause.set.bytes > beyond
}

/// Predicted misses of the loads of a cause.
fn misses(context: &Context, cause: &Cause, predicted: &Predicted) -> Option<Misses> {
    let mut groups: Vec<u32> = (cause.sites.iter())
        .filter_map(|s| Some(context.sites.get(s)?.group))
        .collect();
    groups.sort_unstable();
    groups.dedup();
    let mut misses = predicted.of_groups(groups.into_iter())?;
    misses.curve.clear();
    Some(misses)
}

/// Share of the time of some pieces of code.
fn time_share(times: Option<&TimeShares>, has: impl Fn(u32) -> bool) -> TimeShare {
    times.map_or_else(TimeShare::default, |times| {
        times.of_spots(|_, spot| has(spot.group / 4))
    })
}

/// Share of the recorded loads that lie in a cause's parts of the code, in percent.
fn region_share(context: &Context, cause: &Cause, all: u64) -> f64 {
    let rows: u64 = (context.sites.values())
        .filter(|s| cause.regions.contains(&context.users.region(s.group / 4)))
        .map(|s| s.rows)
        .sum();
    rows as f64 * 100.0 / all.max(1) as f64
}

/// Removes the less costly of two findings that contradict or repeat each other: no object is to be
/// both split and interleaved, and one mechanism on one line is reported once.
fn settle(list: &mut Vec<Finding>) {
    let mut kept: Vec<Finding> = Vec::new();
    for finding in list.drain(..) {
        let contradicts = kept.iter().any(|k| {
            let layouts = k.layout.zip(finding.layout);
            !k.object.is_empty()
                && k.object == finding.object
                && layouts.is_some_and(|(a, b)| a != b)
        });
        let again = kept.iter().any(|k| {
            (k.kind, &k.function, &k.file, k.line)
                == (finding.kind, &finding.function, &finding.file, finding.line)
        });
        if !contradicts && !again {
            kept.push(finding);
        }
    }
    *list = kept;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(kind: &'static str, line: u32, object: &str, layout: Option<Layout>) -> Finding {
        Finding {
            kind,
            line,
            object: object.into(),
            layout,
            ..Finding::default()
        }
    }

    #[test]
    fn one_object_is_not_split_and_interleaved() {
        let split = finding("strided", 3, "a", Some(Layout::SplitElements));
        let join = finding("gather", 9, "a", Some(Layout::InterleavedArrays));
        let other = finding("gather", 9, "b", Some(Layout::InterleavedArrays));
        let mut list = vec![split.clone(), join.clone(), other.clone()];
        settle(&mut list);
        assert_eq!(list, [split, other]);
    }

    #[test]
    fn one_cause_is_said_once() {
        let one = finding("list", 3, "a", None);
        let mut list = vec![one.clone(), finding("list", 3, "b", None)];
        settle(&mut list);
        assert_eq!(list, [one]);
    }
}
