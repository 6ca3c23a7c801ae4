//! The result of an analysis, as it stands in JSON (`docs/reference/analysis-json.md`).

pub mod build;
pub mod diagnose;
mod rows;
mod summary;
mod windows;

pub use rows::{FunctionRow, LineRow, Loads, LoopRow};
pub(crate) use summary::sample_ratio;
pub use summary::{Doubtful, StoreFootprint, Summary, TraceInfo};
pub use windows::WindowRow;

use crate::data::code_map::{CodeMap, Target};
use crate::data::counts::Counts;
use crate::data::histogram::Histogram;
use crate::engine::Outcome;
use crate::engine::outcome::group_counts;
use crate::estimate::Design;
use crate::estimate::growth_tables::Seen;
use crate::estimate::row_estimates::{Estimator, Hats, Places, makers, samples_seen};
use crate::estimate::sample_shares::Shares;
use crate::stages::observed_class::{self, ObservedRow};
use crate::views::ByCode;
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
    /// The whole trace.
    pub summary: Summary,
    /// By function, most accesses first.
    pub functions: Vec<FunctionRow>,
    /// By source line, most accesses first.
    pub lines: Vec<LineRow>,
    /// By loop, most accesses first.
    pub loops: Vec<LoopRow>,
    /// By window size, ascending.
    pub windows: Vec<WindowRow>,
    /// Of a sampled trace: footprint against window size from inside a sample to the whole run.
    pub growth: Vec<crate::estimate::growth_tables::GrowthRow>,
    /// Of a sampled trace: reuse of pages between samples.
    pub inter_sample: Option<crate::estimate::growth_tables::InterSample>,
    /// Data objects, most loads first; with `--zoom` or `--objects`, if the trace has any.
    pub objects: Vec<crate::views::objects::ObjectRow>,
    /// What the numbers say, the most important first.
    pub diagnoses: Vec<crate::report::diagnose::Diagnosis>,
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

/// The tables that have rows by code.
const BY_CODE: [Target; 3] = [Target::Function, Target::Line, Target::Loop];

/// Strides by function, by line, by loop.
fn strides(outcome: &Outcome, code: &CodeMap) -> [Vec<Vec<(u32, u64)>>; 3] {
    let mut by = BY_CODE.map(|target| vec![Vec::new(); code.rows(target)]);
    for &(site, bin, count) in &outcome.strides {
        let Some(&piece) = code.site_pieces().get(site as usize) else {
            continue;
        };
        for (target, rows) in BY_CODE.into_iter().zip(&mut by) {
            code.targets(target, piece * 4)
                .iter()
                .for_each(|&row| rows[row as usize].push((bin, count)));
        }
    }
    by
}

/// Strides shown per row.
const STRIDES: usize = 4;

/// Makes the result.
pub fn build(
    manifest: &Manifest,
    code: &CodeMap,
    outcome: &Outcome,
    block: u64,
    estimator: Estimator,
    warnings: Vec<String>,
) -> Analysis {
    build_with_code(manifest, code, outcome, block, estimator, warnings).analysis
}

/// The result, and what else is to be made of the same counts.
pub struct Built {
    /// The tables.
    pub analysis: Analysis,
    /// Counts of the whole.
    pub whole: Counts,
    /// Counts by code.
    pub by_code: ByCode,
    /// How estimates are made.
    pub places: Places,
}

/// As [`build()`].
pub fn build_with_code(
    manifest: &Manifest,
    code: &CodeMap,
    outcome: &Outcome,
    block: u64,
    estimator: Estimator,
    mut warnings: Vec<String>,
) -> Built {
    let bucket = &outcome.buckets[0];
    let mut rows = Counts::default();
    (0..code.pieces.len() * 4).for_each(|group| rows.add_rows(&group_counts(bucket, group)));
    let (rho, rho_source) = sample_ratio(manifest, &rows, rows.stores);
    let shares = Shares::new(outcome);
    let see = || {
        rho.filter(|&r| r > 1.0 + 1e-9)
            .map(|_| Seen::new(outcome, shares.as_ref()))
    };
    let (folded, seen) = rayon::join(|| bucket.footprint.fold(code), see);
    let (mut whole, mut counts) = (folded.whole, [folded.functions, folded.lines, folded.loops]);
    let mut distances = BY_CODE.map(|target| vec![Histogram::default(); code.rows(target)]);
    let mut chains: Vec<Vec<(u64, usize)>> = vec![Vec::new(); code.lines.len()];
    for (piece, names) in code.pieces.iter().enumerate() {
        let mut of_piece = Counts::default();
        for class in 0..4 {
            of_piece.add_rows(&group_counts(bucket, piece * 4 + class));
            let Some(group) = bucket.reuse.distances.get(piece * 4 + class) else {
                continue;
            };
            for (target, rows) in BY_CODE.into_iter().zip(&mut distances) {
                code.targets(target, piece as u32 * 4)
                    .iter()
                    .for_each(|&row| rows[row as usize].merge(group));
            }
        }
        whole.add_rows(&of_piece);
        for (target, rows) in BY_CODE.into_iter().zip(&mut counts) {
            code.targets(target, piece as u32 * 4)
                .iter()
                .for_each(|&row| rows[row as usize].add_rows(&of_piece));
        }
        if of_piece.accesses + of_piece.stores > 0 && !names.chain.is_empty() {
            chains[names.line as usize].push((of_piece.accesses + of_piece.implied, piece));
        }
    }
    let [functions, lines, loops] = counts;
    let strides = strides(outcome, code);
    let classes = observed_class::ByCode::new(
        &outcome.strides,
        &outcome.far_steps,
        code,
        &bucket.footprint,
    );
    let top = |counts: &[(u32, u64)]| crate::stages::strides::top(counts.iter().copied(), STRIDES);
    let weights = manifest
        .totals
        .loads_executed_error
        .filter(|_| manifest.totals.loads_executed_estimate.is_some());
    let design = rho.map(|rho| {
        Design::new(rho, outcome.census.samples)
            .weighted(weights)
            .keeping(crate::estimate::growth_tables::kept(outcome))
    });
    let design = design.map(|d| {
        d.standing_for(
            shares
                .as_ref()
                .map(|s| s.windows(crate::estimate::growth_tables::marked(outcome))),
        )
    });
    let places = Places {
        design,
        estimator,
        resonant: false,
    };
    let divide = || {
        seen.as_ref()
            .zip(design)
            .map(|(seen, design)| seen.divide(design))
    };
    let resonance = || {
        seen.as_ref()
            .and_then(|s| crate::estimate::growth_tables::resonance(outcome, s))
    };
    let seen_by_code = || {
        BY_CODE
            .into_par_iter()
            .map(|target| samples_seen(outcome, code, target))
            .collect::<Vec<_>>()
    };
    let ((resonance, seen_by_code), (_, makers)) = rayon::join(
        || rayon::join(resonance, seen_by_code),
        || {
            rayon::join(divide, || {
                makers(outcome, code, places, seen.as_ref(), shares.as_ref())
            })
        },
    );
    if let Some(lag) = resonance {
        warnings.push(format!(
            "the samples are in step with the program: every {lag}th sample sees nearly the same addresses, so that other parts of its loops are never seen, and estimates of footprints are lower bounds; record again with another --period (a prime number that is no divisor of the loop, such as {})",
            if manifest.period.is_multiple_of(17_389) { 19_181 } else { 17_389 }
        ));
    }
    let places = Places {
        resonant: resonance.is_some(),
        ..places
    };
    let [of_whole, of_functions, of_lines, of_loops] =
        makers.map(|maker| maker.in_step(places.resonant));
    let [seen_functions, seen_lines, seen_loops] = [0, 1, 2].map(|kind: usize| &seen_by_code[kind]);
    let all = whole.accesses + whole.implied;
    let tables = || {
        seen.as_ref().map_or_else(Default::default, |s| {
            crate::estimate::growth_tables::tables(outcome, rho, s, shares.as_ref().zip(weights))
        })
    };
    let ((growth, inter_sample), hats) =
        rayon::join(tables, || of_whole.make(0, &whole, outcome.census.samples));
    let of_all = hats.accesses.filter(|&a| weights.is_some() && a > 0.0);
    // Of executed loads, as far as samples tell: where these stand for different numbers, by weight.
    let share = |c: &Counts, hats: &Hats| match (of_all, hats.accesses) {
        (Some(all), Some(part)) => Some(part * 100.0 / all),
        _ => (all > 0).then(|| (c.accesses + c.implied) as f64 * 100.0 / all as f64),
    };
    let loads = |counts: &Counts,
                 hats: Hats,
                 observed: ObservedRow,
                 distances: &Histogram,
                 strides: &[(u32, u64)]| Loads {
        share: share(counts, &hats),
        metrics: counts.metrics().with_distances(distances),
        hats,
        observed,
        distances: distances.coarse().bins(),
        strides: top(strides),
    };
    let used = |c: &Counts| c.accesses + c.implied + c.stores > 0;
    let by_heat = |a: &Counts, b: &Counts| {
        (b.accesses + b.implied, b.stores).cmp(&(a.accesses + a.implied, a.stores))
    };

    let mut order: Vec<usize> = (0..functions.len())
        .filter(|&i| used(&functions[i]))
        .collect();
    order.sort_by(|&a, &b| by_heat(&functions[a], &functions[b]).then_with(|| a.cmp(&b)));
    let mut function_rows: Vec<FunctionRow> = order
        .par_iter()
        .map(|&i| {
            let hats = of_functions.make(i as u32, &functions[i], seen_functions[i]);
            FunctionRow {
                function: code.functions[i].function.clone(),
                module: code.functions[i].module.clone(),
                loads: loads(
                    &functions[i],
                    hats,
                    classes.row(Target::Function, i),
                    &distances[0][i],
                    &strides[0][i],
                ),
            }
        })
        .collect();

    let mut order: Vec<usize> = (0..lines.len()).filter(|&i| used(&lines[i])).collect();
    order.sort_by(|&a, &b| by_heat(&lines[a], &lines[b]).then_with(|| a.cmp(&b)));
    for chain in &mut chains {
        chain.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    }
    let mut line_rows: Vec<LineRow> = order
        .par_iter()
        .map(|&i| {
            let name = &code.lines[i];
            let hats = of_lines.make(i as u32, &lines[i], seen_lines[i]);
            LineRow {
                function: name.function.clone(),
                module: name.module.clone(),
                file: name.file.clone(),
                line: name.line,
                inlined_into: chains[i]
                    .iter()
                    .map(|&(_, piece)| code.pieces[piece].chain.join(" < "))
                    .collect(),
                loads: loads(
                    &lines[i],
                    hats,
                    classes.row(Target::Line, i),
                    &distances[1][i],
                    &strides[1][i],
                ),
            }
        })
        .collect();

    let mut order: Vec<usize> = (0..loops.len()).filter(|&i| used(&loops[i])).collect();
    order.sort_by(|&a, &b| {
        by_heat(&loops[a], &loops[b])
            .then_with(|| (code.loops[a].depth, a).cmp(&(code.loops[b].depth, b)))
    });
    let mut loop_rows: Vec<LoopRow> = order
        .par_iter()
        .map(|&i| {
            let name = &code.loops[i];
            let function = &code.functions[name.function as usize];
            let hats = of_loops.make(i as u32, &loops[i], seen_loops[i]);
            LoopRow {
                function: function.function.clone(),
                module: function.module.clone(),
                file: name.file.clone(),
                line: name.line,
                inlined_into: name.chain.join(" < "),
                address: format!("{:#x}", name.header),
                outer: name.outer.map(|at| format!("{at:#x}")),
                depth: name.depth,
                loads: loads(
                    &loops[i],
                    hats,
                    classes.row(Target::Loop, i),
                    &distances[2][i],
                    &strides[2][i],
                ),
            }
        })
        .collect();

    if of_all.is_some() {
        let greatest_first =
            |a: Option<f64>, b: Option<f64>| b.unwrap_or(0.0).total_cmp(&a.unwrap_or(0.0));
        function_rows.sort_by(|a, b| greatest_first(a.loads.share, b.loads.share));
        line_rows.sort_by(|a, b| greatest_first(a.loads.share, b.loads.share));
        loop_rows.sort_by(|a, b| greatest_first(a.loads.share, b.loads.share));
    }

    summary::doubts(outcome, &mut warnings);
    let mut summary = summary::summary(
        manifest,
        outcome,
        (&whole, &folded.stores),
        hats,
        (rho, rho_source),
        (block, estimator),
    );
    summary.observed = classes.row(Target::Whole, 0);
    let analysis = Analysis {
        format: FORMAT,
        version: VERSION,
        summary,
        functions: function_rows,
        lines: line_rows,
        loops: loop_rows,
        windows: windows::window_rows(outcome),
        growth,
        inter_sample,
        objects: Vec::new(),
        diagnoses: Vec::new(),
        heat_map: None,
        time_zoom: None,
        location_zoom: None,
        warnings,
    };
    Built {
        analysis,
        whole,
        by_code: ByCode { functions, loops },
        places,
    }
}
