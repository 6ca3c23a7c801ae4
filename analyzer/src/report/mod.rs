//! The result of an analysis, as it stands in JSON (`docs/reference/analysis-json.md`).

pub mod build;
pub mod counted;
mod functions;
mod lines;
mod loops;
mod rows;
mod summary;
mod sums;
pub(crate) mod threads;
mod windows;

pub use functions::FunctionRow;
pub use lines::LineRow;
pub use loops::LoopRow;
pub use rows::Loads;
pub(crate) use summary::sample_ratio;
pub use summary::{Doubtful, StoreFootprint, Summary, TraceInfo};
pub use threads::{ProcessRow, ThreadRow};
pub use windows::WindowRow;

use crate::data::code_map::{CLASS_STORE, CodeMap, Target};
use crate::data::counts::Counts;
use crate::data::detail::Detail;
use crate::engine::Outcome;
use crate::estimate::growth_tables;
use crate::estimate::growth_tables::WholeSightings;
use crate::estimate::part_loads::part_loads;
use crate::estimate::row_estimates::{Estimator, RegionEstimator, maker, samples_seen, see_rows};
use crate::estimate::sample_shares::Shares;
use crate::estimate::time_shares::{TimeShare, TimeShares};
use crate::estimate::{Design, Estimate, measured};
use crate::findings::FindingList;
use crate::input::weights::Weights;
use crate::misses::Predicted;
use crate::report::rows::{ByTime, Facts};
use crate::report::sums::{BY_CODE, CodeSums, all_rows};
use crate::stages::observed_class;
use crate::views::ByCode;
use crate::views::objects::Bounds;
use mgz_annotations_schema::manifest::Manifest;
use rayon::prelude::*;
use serde::Serialize;

/// `format` of the JSON.
pub const FORMAT: &str = "mgz-analysis";
/// `version` of the JSON. Additions keep it.
pub const VERSION: u32 = 1;

/// The whole result.
#[derive(Clone, Debug, Serialize)]
pub struct Analysis {
    /// [`FORMAT`].
    pub format: &'static str,
    /// [`VERSION`].
    pub version: u32,
    /// Part of the trace that the rest refers to; none for the whole trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<crate::filter::FilterRow>,
    /// The whole trace.
    pub summary: Summary,
    /// By process.
    pub processes: Vec<ProcessRow>,
    /// By thread.
    pub threads: Vec<ThreadRow>,
    /// By function, most accesses first.
    pub functions: Vec<FunctionRow>,
    /// By source line, most accesses first.
    pub lines: Vec<LineRow>,
    /// By loop, most accesses first.
    pub loops: Vec<LoopRow>,
    /// By window size, ascending.
    pub windows: Vec<WindowRow>,
    /// For a sampled trace: footprint against window size, from inside a sample to the whole run.
    pub growth: Vec<crate::estimate::growth_tables::GrowthRow>,
    /// For a sampled trace: reuse of pages between samples.
    pub inter_sample: Option<crate::estimate::growth_tables::InterSample>,
    /// Data objects, most loads first; with `--zoom` or `--objects`, if the trace has any.
    pub objects: Vec<crate::views::objects::ObjectRow>,
    /// By way of whom windows began.
    pub call_paths: crate::views::call_paths::CallPathTable,
    /// With `--by-path`: tables by way of whom the program came to loads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_path: Option<Vec<crate::views::by_path::ByPathRow>>,
    /// Findings, or the reason why there are none.
    #[serde(flatten)]
    pub findings: FindingList,
    /// With `--zoom`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heat_map: Option<crate::views::heat_map::HeatMap>,
    /// With `--zoom`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_zoom: Option<crate::views::time_tree::TimeZoom>,
    /// With `--zoom`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location_zoom: Option<crate::views::location::LocationZoom>,
    /// Sentences about what is missing or doubtful.
    pub warnings: Vec<String>,
}

/// Makes the result.
pub fn build(
    manifest: &Manifest,
    code: &CodeMap,
    outcome: &Outcome,
    block: u64,
    estimator: Estimator,
    warnings: Vec<String>,
) -> Analysis {
    build_with_code(
        manifest,
        code,
        outcome,
        (block, estimator, Detail::All),
        (&Bounds::default(), None),
        warnings,
    )
    .analysis
}

/// The result, and what else is to be made of the same counts.
pub struct Built {
    /// The tables.
    pub analysis: Analysis,
    /// Counts of the whole.
    pub whole: Counts,
    /// Counts by code.
    pub by_code: ByCode,
    /// Method of estimates.
    pub places: RegionEstimator,
    /// The windows, where they come by time.
    pub times: Option<TimeShares>,
}

/// Design of the sampling. `weights`: the error of the samples' weights, unless all have the same.
fn design(rho: f64, outcome: &Outcome, shares: Option<&Shares>, weights: Option<f64>) -> Design {
    Design::new(rho, outcome.census.samples)
        .weighted(weights)
        .keeping(growth_tables::kept(outcome))
        .standing_for(shares.map(|s| s.windows(growth_tables::marked(outcome))))
}

/// That samples are in step with the program, every `lag`th.
fn in_step(manifest: &Manifest, lag: usize) -> String {
    format!(
        "the samples are in step with the program: every {lag}th sample sees nearly the same addresses, so that other parts of its loops are never seen, and estimates of footprints are lower bounds; record again with another --period (a prime number that is no divisor of the loop, such as {})",
        if manifest.period.is_multiple_of(17_389) {
            19_181
        } else {
            17_389
        }
    )
}

/// Shares of time for the rows of a table. The speed of code is measured by function. `seen`:
/// samples that saw each row of the tables in [`BY_CODE`].
fn by_time(
    times: &TimeShares,
    outcome: &Outcome,
    code: &CodeMap,
    target: Target,
    seen: &[Vec<u64>],
) -> ByTime {
    let shares = times.by_code(code, target);
    let Some(weights) = outcome.weights.as_deref() else {
        return ByTime {
            shares,
            executed: Vec::new(),
        };
    };
    let of_rows = |target: Target| -> Vec<Option<Estimate>> {
        times
            .windows_by_code(code, target)
            .iter()
            .zip(times.by_code(code, target))
            .map(|(windows, share)| match target {
                // All of the time is the whole's, however few windows there are.
                Target::Whole => measured(windows, weights, TimeShare::ALL),
                _ => measured(windows, weights, share),
            })
            .collect()
    };
    let executed = match target {
        Target::Function | Target::Whole => of_rows(target),
        Target::Line | Target::Loop => {
            let at = |wanted| BY_CODE.iter().position(|&t| t == wanted).unwrap_or(0);
            let seen = (&seen[at(Target::Function)][..], &seen[at(target)][..]);
            let functions = of_rows(Target::Function);
            part_loads(&outcome.buckets[0], code, target, &functions, seen)
        }
    };
    ByTime { shares, executed }
}

/// As [`build()`].
pub fn build_with_code(
    manifest: &Manifest,
    code: &CodeMap,
    outcome: &Outcome,
    (block, estimator, detail): (u64, Estimator, Detail),
    (bounds, predicted): (&Bounds, Option<&Predicted>),
    mut warnings: Vec<String>,
) -> Built {
    let rows = all_rows(outcome, code);
    let counted = outcome.weights.as_deref().and_then(Weights::counted);
    let by_count = counted.and_then(|c| counted::sample_ratio(c, &rows));
    let (rho, rho_source) = match by_count {
        Some((rho, _)) => (Some(rho), "weights_from"),
        None => sample_ratio(manifest, &rows, rows.stores),
    };
    let shares = Shares::new(outcome);
    let times = manifest
        .triggers_by_time()
        .then(|| TimeShares::new(outcome, code));
    let see = || {
        rho.filter(|&r| r > 1.0 + 1e-9)
            .map(|_| WholeSightings::new(outcome, shares.as_ref(), detail))
    };
    let (folded, seen) = rayon::join(|| outcome.buckets[0].footprint.fold(code), see);
    let sums = CodeSums::new(outcome, code, folded);
    let classes = detail.is_all().then(|| {
        observed_class::ByCode::new(
            &outcome.strides,
            &outcome.far_steps,
            code,
            &outcome.buckets[0].footprint,
        )
    });
    let weights = by_count.map(|c| c.1).or(summary::executed_error(manifest));
    let design = rho.map(|rho| design(rho, outcome, shares.as_ref(), weights));
    let places = RegionEstimator {
        design,
        estimator,
        resonant: false,
    };
    let resonance = || {
        seen.as_ref()
            .and_then(|s| growth_tables::resonance(outcome, s))
    };
    // A screen has no loops.
    let kinds = if detail.is_all() { 3 } else { 2 };
    let seen_by_code = || {
        BY_CODE[..kinds]
            .par_iter()
            .map(|&target| samples_seen(outcome, code, target))
            .collect::<Vec<_>>()
    };
    let maker_of = |target| maker(outcome, code, target, places, shares.as_ref(), detail);
    let makers = || {
        rayon::join(
            || maker_of(Target::Whole),
            || BY_CODE[..kinds].par_iter().map(|&t| maker_of(t)).collect(),
        )
    };
    let ((resonance, seen_by_code), (of_whole, makers)): (_, (_, Vec<_>)) =
        rayon::join(|| rayon::join(resonance, seen_by_code), makers);
    warnings.extend(resonance.map(|lag| in_step(manifest, lag as usize)));
    let places = RegionEstimator {
        resonant: resonance.is_some(),
        ..places
    };
    let time_of = |target| {
        times
            .as_ref()
            .map(|times| by_time(times, outcome, code, target, &seen_by_code))
    };
    let whole_time = time_of(Target::Whole);
    let executed = match counted {
        Some(counted) => Some(counted.whole().map(counted::estimate)),
        None => whole_time
            .as_ref()
            .map(|t| t.executed.first().copied().flatten()),
    };
    let accesses = of_whole.accesses(0, &sums.whole, executed);
    let mut facts: Vec<Facts> = (makers.into_iter().enumerate())
        .map(|(kind, maker)| Facts {
            sums: &sums.tables[kind],
            seen: &seen_by_code[kind],
            maker: maker.in_step(places.resonant),
            by_time: time_of(BY_CODE[kind]),
            counted: counted.map(|c| counted::rows(c, BY_CODE[kind])),
            bounds: Some(&bounds.by_code[kind][..]).filter(|b| !b.is_empty()),
            all: sums.whole.accesses + sums.whole.implied,
            of_whole: accesses.filter(|&a| a > 0.0 && (weights.is_some() || whole_time.is_some())),
            observed: (0..sums.tables[kind].counts.len())
                .filter_map(|row| Some(classes.as_ref()?.row(BY_CODE[kind], row)))
                .collect(),
            misses: predicted.filter(|_| detail.is_all()).map(|predicted| {
                let mut groups = vec![Vec::new(); sums.tables[kind].counts.len()];
                for group in (0..code.pieces.len() as u32 * 4).filter(|g| g & 3 != CLASS_STORE) {
                    let rows = code.targets(BY_CODE[kind], group);
                    rows.iter()
                        .for_each(|&row| groups[row as usize].push(group));
                }
                (predicted, groups, manifest.recorded_cpu_seconds() * 1e9)
            }),
            detail,
        })
        .collect();
    let tie = |kind: usize, row: usize| match BY_CODE[kind] {
        // Among equal loops, the outer one is first.
        Target::Loop => code.loops[row].depth,
        _ => 0,
    };
    let orders: Vec<Vec<usize>> = (facts.iter().enumerate())
        .map(|(kind, facts)| rows::order(facts, |row| tie(kind, row)))
        .collect();
    // Code without lines is listed among the functions.
    let may_stand = |kind: usize, row: usize| match BY_CODE[kind] {
        Target::Line => code.lines[row].line > 0,
        _ => true,
    };
    let shown: Vec<_> = (facts.iter().zip(&orders).enumerate())
        .map(|(kind, (facts, order))| {
            let shown = rows::shown(facts, order, |row| may_stand(kind, row));
            (BY_CODE[kind], shown)
        })
        .collect();
    let divide = || {
        seen.as_ref()
            .zip(design)
            .map(|(seen, design)| seen.divide(design, detail))
    };
    let (_, grouped) = rayon::join(divide, || {
        see_rows(outcome, code, places, shares.as_ref(), &shown, detail)
    });
    let mut grouped = grouped.into_iter();
    facts
        .iter_mut()
        .for_each(|facts| facts.maker.see_rows(grouped.next()));
    let of_whole = of_whole.in_step(places.resonant).seeing_whole(
        outcome,
        seen.as_ref().filter(|_| places.needs_blocks().is_some()),
    );
    let tables = || match &seen {
        Some(seen) if detail.is_all() => {
            growth_tables::tables(outcome, rho, seen, shares.as_ref().zip(weights))
        }
        _ => Default::default(),
    };
    let ((growth, inter_sample), hats) = rayon::join(tables, || {
        of_whole.make(
            0,
            &sums.whole,
            outcome.census.samples,
            executed,
            bounds.whole,
        )
    });
    let hats = match &whole_time {
        // All of the time is the whole's, however few windows there are.
        Some(_) => hats.marked_by(TimeShare::ALL),
        None => hats,
    };
    let table = |kind: usize| Some((facts.get(kind)?, &orders[kind][..]));
    let functions = table(0).map(|of| functions::function_rows(code, of));
    let lines = table(1).map(|of| lines::line_rows(code, of, &sums.chains));
    let loops = table(2).map(|of| loops::loop_rows(code, of));
    summary::doubts(outcome, &mut warnings);
    let mut summary = summary::summary(
        manifest,
        outcome,
        (&sums.whole, &sums.stores),
        hats,
        (rho, rho_source),
        (block, estimator),
    );
    if let Some(counted) = counted {
        summary.weighted_by(counted.from.clone());
    }
    summary.observed =
        (classes.as_ref()).map_or_else(Default::default, |c| c.row(Target::Whole, 0));
    if let Some(predicted) = predicted {
        summary.trace.caches = predicted.caches.clone();
        let ns = manifest.recorded_cpu_seconds() * 1e9;
        let spent = Some([ns; 3]).filter(|_| manifest.triggers_by_time() && ns > 0.0);
        summary.misses = predicted
            .of_whole()
            .map(|of| of.of_run(summary.hats.executed(), spent));
    }
    // Fetches are counted for the whole run only. Its parts have none, and neither have rows of the
    // whole that are compared with them.
    let bare = |counts: Vec<Counts>| -> Vec<Counts> {
        counts.iter().map(Counts::without_fetches).collect()
    };
    let [functions_counts, _, loops_counts] = sums.tables.map(|table| bare(table.counts));
    Built {
        analysis: Analysis {
            format: FORMAT,
            version: VERSION,
            filter: None,
            summary,
            processes: Vec::new(),
            threads: Vec::new(),
            functions: functions.unwrap_or_default(),
            lines: lines.unwrap_or_default(),
            loops: loops.unwrap_or_default(),
            windows: windows::window_rows(outcome),
            growth,
            inter_sample,
            objects: Vec::new(),
            call_paths: crate::views::call_paths::without(
                &manifest.call_paths,
                outcome.census.samples,
            ),
            by_path: None,
            findings: FindingList::default(),
            heat_map: None,
            time_zoom: None,
            location_zoom: None,
            warnings,
        },
        whole: sums.whole.without_fetches(),
        by_code: ByCode {
            functions: functions_counts,
            loops: loops_counts,
        },
        places,
        times,
    }
}
