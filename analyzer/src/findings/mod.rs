//! Ranked findings: each names code with slow memory accesses, the reason, and a remedy to try.
//!
//! Mechanisms are distinguished by rows of windows ([`windows`]) and by the static analysis of
//! addresses ([`mechanisms`]). Load instructions of one mechanism, function and loop make one
//! finding ([`cause`]). Its cost is the share of the time that its code takes, times the part of
//! this share that its predicted misses cost ([`prices`]). Cheap findings are dropped.
//! `docs/reference/findings.md` has the definitions.

pub(crate) mod cause;
mod conflicts;
pub(crate) mod contended_lines;
pub(crate) mod context;
pub mod fields;
mod fusion;
pub(crate) mod gains;
pub mod mechanisms;
mod objects;
pub(crate) mod params;
mod paths;
mod places;
mod prices;
mod region_time;
pub(crate) mod saved_time;
mod seen;
mod sharing;
pub(crate) mod sites;
pub(crate) mod spared;
pub(crate) mod store_traffic;
mod time_account;
pub(crate) mod unrolled;
pub(crate) mod users;
mod visits;
mod waiting;
pub mod windows;

use crate::data::call_paths::CallPaths;
use crate::data::code_map::{CodeMap, LineName};
use crate::data::object_map::Resolver;
use crate::data::samples::Waited;
use crate::engine::EngineOutcome;
use crate::estimate::time_shares::{TimeShare, TimeShares};
use crate::misses::{Hierarchy, LatencySource, Misses, Predicted};
use cause::{Cause, causes};
pub use context::Observed;
use context::{Context, MeasuredTime};
use fields::Fields;
use mechanisms::{Layout, Remedy};
use mgz_annotations_schema::ProgramChange;
use mgz_annotations_schema::manifest::Manifest;
pub use objects::AllocationSite;
pub use saved_time::Gain;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use waiting::WaitingShare;
use windows::Window;

/// A finding.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Finding {
    /// Mechanism, see `docs/reference/findings.md`.
    pub kind: &'static str,
    /// Title of the mechanism.
    pub title: String,
    /// Estimated cost in percent of the time (or of the loads). Findings are ranked by it; vague
    /// costs count half.
    pub score: f64,
    /// Lower end of the score's interval, from that of the predicted misses.
    pub score_lo: f64,
    /// Upper end.
    pub score_hi: f64,
    /// Source of the latencies that the score was computed with. None without such a prediction.
    pub latencies: Option<LatencySource>,
    /// Share of the time of the code that the finding is in.
    #[serde(flatten)]
    pub time: TimeShare,
    /// Share of the time in which the interrupts of triggers occurred right after loads of the
    /// cause.
    #[serde(flatten)]
    pub waiting: WaitingShare,
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
    /// Other lines of the same cause.
    pub also: Vec<SourceLine>,
    /// Link-time addresses in `module` of the load instructions that cost most, in hex, the most
    /// costly first.
    pub load_addresses: Vec<String>,
    /// Object with most of the loads. Empty if unknown.
    pub object: String,
    /// Bytes of its largest block; 0 if unknown.
    #[serde(skip)]
    pub object_bytes: u64,
    /// Call path of the object's allocation, from the user's frame on.
    pub allocated: String,
    /// Allocation sites of its heap blocks with known return addresses, most loads first.
    pub allocation_sites: Vec<AllocationSite>,
    /// Most frequent call path of the function, outermost first, among windows that began there.
    /// Empty if no window did, or if call paths were not recorded.
    pub path: Vec<String>,
    /// Share of that path among these windows, in percent.
    pub path_pct: Option<f64>,
    /// Predicted misses of the loads, without the curve. None if misses are not predicted.
    pub misses: Option<Misses>,
    /// Observation, with the numbers that support it.
    pub finding: Observation,
    /// Remedies to try.
    pub advice: String,
    /// The remedy whose gain is predicted, as `mgz what-if` takes it. Empty if there is none.
    pub remedy: String,
    /// Predicted share of the run's time that the remedy would save, in percent.
    #[serde(flatten)]
    pub saved: Gain,
    /// Changes of the finished program that `mgz fix` tries.
    pub program_changes: Vec<ProgramChange>,
    /// The layout that the advice asks for.
    #[serde(skip)]
    pub layout: Option<Layout>,
    /// True if `score` is an upper bound of the cost.
    #[serde(skip)]
    pub is_upper_bound: bool,
}

/// An observation. Files and texts have it as one sentence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// The mechanism.
    pub mechanism: String,
    /// Numbers that support it; may be empty.
    pub evidence: String,
}

impl std::fmt::Display for Observation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.mechanism)?;
        match self.evidence.as_str() {
            "" => Ok(()),
            evidence => write!(f, "; {evidence}"),
        }
    }
}

impl Serialize for Observation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A line of source code. Files have it as `file:line`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceLine {
    /// Source file.
    pub file: String,
    /// Line.
    pub line: u32,
}

impl std::fmt::Display for SourceLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

impl Serialize for SourceLine {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Finding {
    /// True if the score was computed with latencies that were measured on the machine.
    pub(crate) fn has_measured_latencies(&self) -> bool {
        self.latencies == Some(LatencySource::Measured)
    }

    /// True if the ends of the cost's interval differ by much.
    pub(crate) fn is_vague(&self) -> bool {
        self.score_hi > params::MAX_RATIO_OF_KNOWN_ENDS * self.score_lo
    }

    /// Findings are ranked by this: the score, of which a part counts if it is vague or an upper
    /// bound.
    fn rank(&self) -> f64 {
        match self.is_vague() || self.is_upper_bound {
            true => self.score * params::WEIGHT_OF_VAGUE_COST,
            false => self.score,
        }
    }
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
    /// Writes `findings` and `no_finding`, and also under the names of version 0.1 (`diagnoses`,
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

/// Findings, with remarks on missing data.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Most costly first.
    pub list: Vec<Finding>,
    /// Text to show if there are no findings.
    pub none: String,
    /// By object: the fields of its elements that are loaded.
    pub fields: BTreeMap<u32, Fields>,
    /// A kind of data that the trace lacks. It would allow further findings.
    pub lacks: Option<String>,
}

/// Data that findings were made from. The gains of their remedies are predicted from it.
pub(crate) struct FindingBasis<'a> {
    pub(crate) context: Context<'a>,
    /// The most costly first.
    pub(crate) causes: Vec<Cause>,
    /// The misses that `context` has.
    pub(crate) predicted: Option<&'a Predicted>,
}

/// Finds everything. `waited` is the load right before each window's trigger.
pub(crate) fn find_findings<'a>(
    code: &'a CodeMap,
    (objects, paths): (Option<&'a Resolver>, Option<&'a CallPaths>),
    (windows, observed, waited): (&'a [Window], Observed<'a>, &Waited),
    (outcome, predicted): (&'a EngineOutcome, Option<&'a Predicted>),
    manifest: &Manifest,
    hierarchy: Hierarchy,
) -> (Findings, Option<FindingBasis<'a>>) {
    let count = count_windows(windows);
    let by_time = manifest.triggers_by_time();
    let measured = MeasuredTime {
        times: by_time.then(|| TimeShares::new(outcome, code)),
        weights: outcome.weights.as_deref(),
        waited: waited.clone(),
    };
    let context = Context::new(
        code,
        (objects, paths),
        (windows, observed),
        (hierarchy, predicted),
        measured,
    );
    let fields = fields::of_objects(&context);
    if count < params::MIN_WINDOWS_FOR_FINDING {
        let findings = Findings {
            none: too_few(count, manifest.mode.has_all_loads()),
            fields,
            ..Findings::default()
        };
        return (findings, None);
    }
    let causes = causes(&context);
    let (mut list, kept, doubt) = findings_of_causes(&context, &causes);
    fusion::join(&kept, &mut list);
    // Misses due to conflicts have no other cause.
    let conflicts = conflicts::find_conflicts(&context, outcome);
    let place = |f: &Finding| (f.function.clone(), f.file.clone(), f.line);
    list.retain(|f| conflicts.iter().all(|c| place(c) != place(f)));
    list.extend(conflicts);
    list.extend(sharing::find_sharing(&context));
    list.sort_by(|a, b| {
        b.rank()
            .total_cmp(&a.rank())
            .then_with(|| (a.kind, &a.file, a.line).cmp(&(b.kind, &b.file, b.line)))
    });
    drop_contradictions(&mut list);
    list.truncate(params::MAX_FINDINGS_IN_REPORT);
    let none = match list.is_empty() {
        true => format!(
            "nothing: in {} no code is known to lose {} % of its time to loads that miss the L1 cache{}{}",
            windows_in_words(count, outcome.samples.len()),
            params::MIN_COST_OF_FINDING_PCT,
            doubt_in_words(doubt),
            sharing::unseen(&context)
        ),
        false => String::new(),
    };
    let findings = Findings {
        list,
        none,
        fields,
        lacks: sharing::suspected(&context),
    };
    let basis = FindingBasis {
        context,
        causes,
        predicted,
    };
    (findings, Some(basis))
}

/// The code without a finding whose cost may be highest, and that cost in percent.
type Doubt<'a> = (f64, Option<&'a LineName>);

/// Findings of causes that cost enough, with these causes.
fn findings_of_causes<'c>(
    context: &Context,
    causes: &'c [Cause],
) -> (Vec<Finding>, Vec<&'c Cause>, Doubt<'c>) {
    let mut list: Vec<Finding> = Vec::new();
    let mut kept: Vec<&Cause> = Vec::new();
    let mut doubt = (0.0, None);
    for cause in causes {
        if cause.rule.is_good || cause.rows < params::MIN_ROWS_FOR_FINDING {
            continue;
        }
        let cost = Cost::of(context, cause);
        let score = cost.score;
        if !cost.is_worth_a_finding() {
            if score[2] > doubt.0 {
                doubt = (score[2], Some(&cause.line));
            }
            continue;
        }
        list.push(finding(context, cause, cost));
        kept.push(cause);
    }
    (list, kept, doubt)
}

/// The cost of a cause: its score, and its shares of time, loads and measured waits in percent.
pub(crate) struct Cost {
    /// Estimate with the ends of its interval.
    pub(crate) score: [f64; 3],
    time: TimeShare,
    loads: f64,
    waiting: WaitingShare,
}

impl Cost {
    /// Computes the cost of a cause.
    pub(crate) fn of(context: &Context, cause: &Cause) -> Cost {
        let times = context.times.as_ref();
        let all_rows: u64 = context.sites.values().map(|s| s.rows).sum();
        let region = |piece: u32| cause.regions.contains(&context.users.region(piece));
        let shares = match time_share(times, region) {
            time @ TimeShare { value: Some(_), .. } => time.ends(),
            _ => [region_share(context, &cause.regions, all_rows); 3],
        };
        let time = time_share(times, |piece| context.users.is_in(piece, &cause.inner));
        let loads = cause.rows as f64 * 100.0 / all_rows.max(1) as f64;
        // A loop cannot lose more time than it takes, or than interrupts were seen at its loads.
        let most = time.value.unwrap_or(f64::INFINITY);
        let waiting = context.waiting(&cause.sites);
        let waits = waiting.ends();
        let score =
            std::array::from_fn(|end| (shares[end] * cause.lost[end]).min(most).min(waits[end]));
        Cost {
            score,
            time,
            loads,
            waiting,
        }
    }

    /// True if a cause with this cost is a finding.
    pub(crate) fn is_worth_a_finding(&self) -> bool {
        self.score[1] >= params::MIN_COST_OF_FINDING_PCT
    }
}

/// A cause in words and numbers.
fn finding(context: &Context, cause: &Cause, cost: Cost) -> Finding {
    let told = mechanisms::told(context, cause);
    let named = objects::named(context, cause);
    let called = paths::most_frequent_path(context, cause);
    Finding {
        kind: cause.rule.kind,
        title: mechanisms::title(cause).into(),
        score: cost.score[1],
        score_lo: cost.score[0],
        score_hi: cost.score[2],
        latencies: Some(context.prices.hierarchy.source()),
        time: cost.time,
        loads: cost.loads,
        waiting: cost.waiting,
        function: cause.line.function.clone(),
        module: cause.line.module.clone(),
        file: cause.line.file.clone(),
        line: cause.line.line,
        also: cause
            .lines
            .iter()
            .filter(|l| l.line > 0)
            .take(params::MAX_OTHER_LINES_OF_FINDING)
            .map(|l| SourceLine {
                file: l.file.clone(),
                line: l.line,
            })
            .collect(),
        load_addresses: load_addresses(context, &cause.line.module, &cause.sites),
        object: named.name.clone(),
        object_bytes: named.bytes,
        allocated: named.allocated,
        allocation_sites: objects::allocation_sites(context, cause),
        path: called.calls,
        path_pct: called.share,
        misses: cause.price.misses.clone(),
        finding: Observation {
            mechanism: told.mechanism,
            evidence: told.evidence,
        },
        advice: told.advice,
        remedy: remedy(cause, &named.name),
        saved: Gain::default(),
        program_changes: cause.rule.changes.to_vec(),
        layout: told.layout,
        is_upper_bound: !context.prices.are_predicted(),
    }
}

/// Name of the object of a cause. Empty if it is unknown.
pub(crate) fn objects_name(context: &Context, cause: &Cause) -> String {
    objects::named(context, cause).name
}

/// Link-time addresses of the load instructions of a module that have a part of the cost, in hex,
/// the most costly first.
fn load_addresses(context: &Context, module: &str, sites: &[u32]) -> Vec<String> {
    let price = |site: u32| context.prices.of_site(site);
    let all: f64 = sites.iter().map(|&s| price(s)).sum();
    let mut costly: Vec<(f64, u64)> = (sites.iter())
        .filter(|&&site| context.code.site_module(site) == Some(module))
        .map(|&site| (price(site), site))
        .filter(|(price, _)| *price >= params::MIN_COST_OF_LOAD * all)
        .filter_map(|(price, site)| Some((price, context.code.site_address(site)?)))
        .collect();
    costly.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    costly.truncate(params::MAX_LOADS_OF_FINDING);
    costly.iter().map(|c| format!("{:#x}", c.1)).collect()
}

/// The remedy of a cause's mechanism, as `mgz what-if` takes it. Empty if there is none.
fn remedy(cause: &Cause, object: &str) -> String {
    match cause.rule.remedy {
        // A line of Python has no prefetches, and its interpreter allocates the objects.
        _ if mechanisms::is_python(&cause.line.file) => String::new(),
        Remedy::OfObject(kind) if !object.is_empty() => format!("{kind} of {object}"),
        Remedy::OfCode(kind) if cause.line.line > 0 => {
            format!("{kind} of {}:{}", cause.line.file, cause.line.line)
        }
        _ => String::new(),
    }
}

/// The reason why so few windows have no findings, and the remedy.
fn too_few(windows: usize, is_whole_run: bool) -> String {
    match is_whole_run {
        true => {
            "too few loads to tell, although all were recorded: give the program more work".into()
        }
        false => format!(
            "too few windows to tell ({windows}): let the program run longer, or record more of it with mgz run --overhead 10% (mgz-record --rate 2000)"
        ),
    }
}

/// Number of windows that findings rest on. Long samples and full traces are read in pieces. If there
/// are few samples, each whole piece counts; the end of a sample that is cut off is no window.
fn count_windows(windows: &[Window]) -> usize {
    let mut samples: Vec<(u32, u32)> = windows.iter().map(|w| (w.thread, w.sample)).collect();
    samples.sort_unstable();
    samples.dedup();
    let is_whole = |w: &&Window| w.rows.len() >= params::MAX_ROWS_OF_WINDOW;
    match samples.len() {
        few if few < params::MIN_WINDOWS_FOR_FINDING => {
            few.max(windows.iter().filter(is_whole).count())
        }
        many => many,
    }
}

/// For example `the 900 windows that were recorded`. Findings use only a part of the windows if
/// there are many, or if some have no loads.
fn windows_in_words(count: usize, recorded: usize) -> String {
    match recorded > count {
        true => format!("{count} of the {recorded} windows, which were analysed,"),
        false => format!("the {count} windows that were recorded"),
    }
}

/// A sentence on code without a finding that may lose much time, given the intervals of its misses.
fn doubt_in_words((cost, line): Doubt<'_>) -> String {
    let line = line.filter(|_| cost >= params::MIN_COST_OF_DOUBT_PCT);
    line.map_or_else(String::new, |line| {
        let file = line.file.rsplit('/').next().unwrap_or_default();
        let place = match line.line {
            0 => String::new(),
            number => format!(" ({file}:{number})"),
        };
        format!(
            "; {}{place} may lose up to {cost:.0} %, which more or longer windows would show",
            line.function
        )
    })
}

/// Share of the time of some pieces of code.
fn time_share(times: Option<&TimeShares>, has: impl Fn(u32) -> bool) -> TimeShare {
    times.map_or_else(TimeShare::default, |times| {
        times.of_spots(|_, spot| has(spot.group.piece()))
    })
}

/// Share of the recorded loads in some parts of the code, in percent.
fn region_share(context: &Context, regions: &[(u32, Option<u32>)], all: u64) -> f64 {
    let rows: u64 = (context.sites.values())
        .filter(|s| regions.contains(&context.users.region(s.group.piece())))
        .map(|s| s.rows)
        .sum();
    rows as f64 * 100.0 / all.max(1) as f64
}

/// Removes the less costly of two findings that contradict or repeat each other: no object may be
/// both split and interleaved, and one mechanism on one line is reported once.
fn drop_contradictions(list: &mut Vec<Finding>) {
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

    /// Six samples of 1,300 rows are cut into twelve pieces, and are six windows.
    #[test]
    fn the_ends_of_samples_are_no_windows() {
        let piece = |sample: u32, rows: usize| Window {
            sample,
            rows: vec![windows::Row::default(); rows],
            ..Window::default()
        };
        let cut = |samples: u32, rows: usize| -> Vec<Window> {
            let of = |sample| {
                let whole = (0..rows / 1000).map(move |_| piece(sample, 1000));
                whole.chain((!rows.is_multiple_of(1000)).then(|| piece(sample, rows % 1000)))
            };
            (0..samples).flat_map(of).collect()
        };
        assert_eq!(count_windows(&cut(6, 1300)), 6);
        assert_eq!(count_windows(&cut(6, 300)), 6);
        assert_eq!(count_windows(&cut(1, 40_300)), 40);
        assert_eq!(count_windows(&cut(20, 1300)), 20);
    }

    #[test]
    fn a_vague_cost_does_not_stand_above_a_firm_one_of_similar_size() {
        let of = |line: u32, score: f64, score_lo: f64, score_hi: f64| Finding {
            score,
            score_lo,
            score_hi,
            ..finding("list", line, "", None)
        };
        let vague = of(1, 30.0, 1.0, 60.0);
        let firm = of(2, 25.0, 20.0, 30.0);
        let small = of(3, 5.0, 4.0, 6.0);
        assert!(firm.rank() > vague.rank() && vague.rank() > small.rank());
    }

    #[test]
    fn one_object_is_not_split_and_interleaved() {
        let split = finding("strided", 3, "a", Some(Layout::SplitElements));
        let join = finding("gather", 9, "a", Some(Layout::InterleavedArrays));
        let other = finding("gather", 9, "b", Some(Layout::InterleavedArrays));
        let mut list = vec![split.clone(), join.clone(), other.clone()];
        drop_contradictions(&mut list);
        assert_eq!(list, [split, other]);
    }

    #[test]
    fn code_without_lines_has_no_place() {
        let mut line = LineName {
            function: "ggc_free".into(),
            ..LineName::default()
        };
        let said = doubt_in_words((12.0, Some(&line)));
        assert!(said.starts_with("; ggc_free may lose"), "{said}");
        (line.file, line.line) = ("/s/gc.c".into(), 7);
        let said = doubt_in_words((12.0, Some(&line)));
        assert!(said.starts_with("; ggc_free (gc.c:7) may lose"), "{said}");
    }

    #[test]
    fn whole_runs_cannot_be_recorded_further() {
        assert!(!too_few(1, true).contains("--overhead"));
        assert!(too_few(7, false).contains("(7): let the program run longer"));
    }

    #[test]
    fn one_cause_is_said_once() {
        let one = finding("list", 3, "a", None);
        let mut list = vec![one.clone(), finding("list", 3, "b", None)];
        drop_contradictions(&mut list);
        assert_eq!(list, [one]);
    }
}
