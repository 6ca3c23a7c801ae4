//! The result of an analysis, as it stands in JSON (`docs/analysis-json.md`).

use crate::code::{CodeMap, Target};
use crate::engine::{BucketOutcome, Outcome};
use crate::estimate::Design;
use crate::growth::Seen;
use crate::hats::{Estimator, Hats, Maker, Places, samples_seen};
use crate::histogram::Histogram;
use crate::metrics::{Bin, Counts, Metrics};
use crate::shares::Shares;
use crate::windows::{MAX_LEVEL, MIN_LEVEL};
use crate::zoom::ByCode;
use mgz_annotations_schema::trace::Manifest;
use rayon::prelude::*;
use serde::Serialize;
use std::collections::BTreeMap;

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
    pub growth: Vec<crate::growth::GrowthRow>,
    /// Of a sampled trace: reuse of pages between samples.
    pub inter_sample: Option<crate::growth::InterSample>,
    /// Data objects, most loads first; with `--zoom` or `--objects`, if the trace has any.
    pub objects: Vec<crate::objects::ObjectRow>,
    /// What the numbers say, the most important first.
    pub diagnoses: Vec<crate::diagnose::Diagnosis>,
    /// With `--zoom`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heat_map: Option<crate::zoom::heat::HeatMap>,
    /// With `--zoom`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_zoom: Option<crate::zoom::time::TimeZoom>,
    /// With `--zoom`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location_zoom: Option<crate::zoom::location::LocationZoom>,
    /// Sentences about what is missing or doubtful.
    pub warnings: Vec<String>,
}

/// Facts about the recording.
#[derive(Clone, Debug, Serialize)]
pub struct TraceInfo {
    /// The traced command line.
    pub command: Vec<String>,
    /// Start of the run.
    pub started: String,
    /// `soft` or `pt`.
    pub backend: String,
    /// `full`, `ring` or `burst`.
    pub mode: String,
    /// State of the trace.
    pub state: String,
    /// How the program ended.
    pub program_status: String,
    /// Of what `period` and `window` are numbers.
    pub unit: String,
    /// Records per period; 0 in `full`.
    pub period: u64,
    /// Records per window; 0 in `full`.
    pub window: u64,
    /// Wall-clock time of the run, seconds.
    pub wall_seconds: f64,
    /// Records that probes wrote.
    pub records_executed: u64,
    /// Records that were kept.
    pub records_kept: u64,
    /// Loads executed, if the recorder knows.
    pub loads_executed: Option<u64>,
    /// The same as the recorder's estimate.
    #[serde(rename = "loads_executed_hat")]
    pub loads_executed_estimate: Option<f64>,
    /// Relative half-width of its 95 % interval, where the recorder tells (`burst`).
    pub loads_executed_error: Option<f64>,
    /// Lost data by cause.
    pub dropped: BTreeMap<String, u64>,
    /// Short windows by cause.
    pub truncated_windows: BTreeMap<String, u64>,
}

/// The whole trace.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The recording.
    pub trace: TraceInfo,
    /// Bytes of a block of D.
    pub block: u64,
    /// Rows that were analysed, loads and stores.
    pub rows: u64,
    /// Samples.
    pub samples: u64,
    /// Load rows of the shortest sample.
    pub sample_min: u64,
    /// Load rows per sample.
    pub sample_mean: Option<f64>,
    /// Load rows of the longest sample.
    pub sample_max: u64,
    /// Processes.
    pub processes: u64,
    /// Threads.
    pub threads: u64,
    /// The loads.
    #[serde(flatten)]
    pub metrics: Metrics,
    /// Sample ratio: executed over recorded loads.
    pub rho: Option<f64>,
    /// What `rho` was computed from.
    pub rho_source: &'static str,
    /// Name of the estimator of `F_hat`.
    pub estimator: &'static str,
    /// Estimates for the whole run.
    #[serde(flatten)]
    pub hats: Hats,
    /// Bytes per address times `F_hat`.
    #[serde(rename = "F_bytes_hat")]
    pub bytes_estimate: Option<f64>,
    /// Histogram of D.
    #[serde(rename = "D_hist")]
    pub distances: Vec<Bin>,
    /// Histogram of the reuse interval.
    #[serde(rename = "interval_hist")]
    pub intervals: Vec<Bin>,
    /// Footprint of the stores, if any were recorded.
    pub store_footprint: Option<StoreFootprint>,
    /// Rows that could not be attributed or read.
    pub doubtful: Doubtful,
}

/// Footprint of the stores.
#[derive(Clone, Debug, Serialize)]
pub struct StoreFootprint {
    /// Rows.
    pub rows: u64,
    /// Distinct start addresses.
    #[serde(rename = "F")]
    pub footprint: u64,
    /// Distinct 64-byte lines.
    #[serde(rename = "F_64")]
    pub lines64: u64,
    /// Distinct bytes.
    #[serde(rename = "F_bytes")]
    pub bytes: u64,
}

/// Rows that could not be attributed or read.
#[derive(Clone, Debug, Serialize)]
pub struct Doubtful {
    /// Rows whose `seq` does not ascend within their thread.
    pub out_of_order: u64,
    /// Rows whose site the sidecar does not have.
    pub unknown_site: u64,
    /// Rows whose module the manifest does not have.
    pub unknown_module: u64,
    /// Rows whose class is not known (counted as Irregular).
    pub unknown_class: u64,
    /// Rows in damaged row groups, skipped.
    pub unread: u64,
}

/// A function.
#[derive(Clone, Debug, Serialize)]
pub struct FunctionRow {
    /// Name.
    pub function: String,
    /// Module.
    pub module: String,
    /// Share of the recorded and implied loads, percent; in traces of `burst` of the executed ones, estimated.
    #[serde(rename = "A_pct")]
    pub share: Option<f64>,
    /// Metrics.
    #[serde(flatten)]
    pub metrics: Metrics,
    /// Estimates for the whole run.
    #[serde(flatten)]
    pub hats: Hats,
    /// Histogram of D.
    #[serde(rename = "D_hist")]
    pub distances: Vec<Bin>,
    /// The most frequent strides of its load instructions.
    pub strides: Vec<crate::strides::Stride>,
}

/// A source line.
#[derive(Clone, Debug, Serialize)]
pub struct LineRow {
    /// Innermost function.
    pub function: String,
    /// Module.
    pub module: String,
    /// Source file.
    pub file: String,
    /// Line; 0 if unknown.
    pub line: u32,
    /// Where it was inlined, hottest first; each is `caller at file:line`, from the inside out.
    pub inlined_into: Vec<String>,
    /// Share of the recorded and implied loads, percent; in traces of `burst` of the executed ones, estimated.
    #[serde(rename = "A_pct")]
    pub share: Option<f64>,
    /// Metrics.
    #[serde(flatten)]
    pub metrics: Metrics,
    /// Estimates for the whole run.
    #[serde(flatten)]
    pub hats: Hats,
    /// Histogram of D.
    #[serde(rename = "D_hist")]
    pub distances: Vec<Bin>,
    /// The most frequent strides of its load instructions.
    pub strides: Vec<crate::strides::Stride>,
}

/// A loop of the machine code, with the loops inside it.
#[derive(Clone, Debug, Serialize)]
pub struct LoopRow {
    /// Function that it is in.
    pub function: String,
    /// Module.
    pub module: String,
    /// Source file of the branch back to its head; empty if unknown.
    pub file: String,
    /// Line of that; 0 if unknown.
    pub line: u32,
    /// Where that code was inlined: `caller at file:line`, from the inside out.
    pub inlined_into: String,
    /// Link-time address of its head, hexadecimal.
    pub address: String,
    /// That of the loop around it.
    pub outer: Option<String>,
    /// 1 for an outermost loop.
    pub depth: u32,
    /// Share of the recorded and implied loads, percent; in traces of `burst` of the executed ones, estimated.
    #[serde(rename = "A_pct")]
    pub share: Option<f64>,
    /// Metrics.
    #[serde(flatten)]
    pub metrics: Metrics,
    /// Estimates for the whole run.
    #[serde(flatten)]
    pub hats: Hats,
    /// Histogram of D.
    #[serde(rename = "D_hist")]
    pub distances: Vec<Bin>,
    /// The most frequent strides of its load instructions.
    pub strides: Vec<crate::strides::Stride>,
}

/// All whole windows of one size. Footprints are means per window of the run: each recorded one counts for the loads that its sample's stand for.
#[derive(Clone, Debug, Serialize)]
pub struct WindowRow {
    /// Accesses per window.
    #[serde(rename = "W")]
    pub size: u64,
    /// Number of whole windows.
    pub windows: u64,
    /// Accesses in them.
    #[serde(rename = "A")]
    pub accesses: u64,
    /// Implied Constant loads in them.
    #[serde(rename = "A_const")]
    pub implied: u64,
    /// Percent.
    #[serde(rename = "A_const_pct")]
    pub implied_pct: Option<f64>,
    /// 1 + A_const/A.
    pub kappa: Option<f64>,
    /// Mean F of a window.
    #[serde(rename = "F")]
    pub footprint: Option<f64>,
    /// Mean F_str.
    #[serde(rename = "F_str")]
    pub strided: Option<f64>,
    /// Mean F_irr.
    #[serde(rename = "F_irr")]
    pub irregular: Option<f64>,
    /// Sum of F over sum of κA.
    #[serde(rename = "dF")]
    pub growth: Option<f64>,
    /// Percent.
    #[serde(rename = "dF_str_pct")]
    pub growth_strided_pct: Option<f64>,
    /// Percent.
    #[serde(rename = "dF_irr_pct")]
    pub growth_irregular_pct: Option<f64>,
    /// Mean C.
    #[serde(rename = "C")]
    pub captures: Option<f64>,
    /// Mean S.
    #[serde(rename = "S")]
    pub survivals: Option<f64>,
    /// Reuses with both accesses inside a window.
    pub reuses: u64,
    /// Mean D of those.
    #[serde(rename = "D_mean")]
    pub distance_mean: Option<f64>,
}

/// ρ, and what it was computed from.
pub(crate) fn sample_ratio(manifest: &Manifest, counts: &Counts, stores: u64) -> (Option<f64>, &'static str) {
    let recorded = (counts.accesses + counts.implied) as f64;
    if recorded == 0.0 {
        return (None, "nothing recorded");
    }
    let totals = &manifest.totals;
    // The recorder's numbers count rows of stores as well: compare like with like.
    let observed = recorded + stores as f64;
    if let Some(executed) = totals.loads_executed {
        return ((executed as f64 >= observed).then(|| executed as f64 / observed).or(Some(1.0)), "loads_executed");
    }
    if let Some(executed) = totals.loads_executed_estimate.filter(|e| e.is_finite() && *e >= observed) {
        return (Some(executed / observed), "loads_executed_estimate");
    }
    if totals.records_kept > 0 && totals.records_executed >= totals.records_kept {
        return (Some(totals.records_executed as f64 / totals.records_kept as f64), "records");
    }
    if manifest.mode == "full" {
        return (Some(1.0), "mode full");
    }
    (None, "unknown")
}

/// Counts of each group, from the stages.
pub(crate) fn group_counts(outcome: &BucketOutcome, group: usize) -> Counts {
    let rows = outcome.counts.get(group).copied().unwrap_or_default();
    let reuse = outcome.reuse.groups.get(group).copied().unwrap_or_default();
    let store = group as u32 & 3 == crate::code::CLASS_STORE;
    Counts {
        accesses: if store { 0 } else { rows.rows },
        stores: if store { rows.rows } else { 0 },
        implied: rows.implied,
        reuses: reuse.reuses,
        first_touches: reuse.firsts,
        distance_sum: reuse.distance,
        distance_max: reuse.distance_max,
        interval_sum: reuse.interval,
        ..Counts::default()
    }
}

/// The tables that have rows by code.
const BY_CODE: [Target; 3] = [Target::Function, Target::Line, Target::Loop];

/// Strides by function, by line, by loop.
fn strides(outcome: &Outcome, code: &CodeMap) -> [Vec<Vec<(u32, u64)>>; 3] {
    let mut by = BY_CODE.map(|target| vec![Vec::new(); code.rows(target)]);
    for &(site, bin, count) in &outcome.strides {
        let Some(&piece) = code.site_pieces().get(site as usize) else { continue };
        for (target, rows) in BY_CODE.into_iter().zip(&mut by) {
            code.targets(target, piece * 4).iter().for_each(|&row| rows[row as usize].push((bin, count)));
        }
    }
    by
}

/// Strides shown per row.
const STRIDES: usize = 4;

/// Makes the result.
pub fn build(manifest: &Manifest, code: &CodeMap, outcome: &Outcome, block: u64, estimator: Estimator, warnings: Vec<String>) -> Analysis {
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

/// As [`build`].
pub fn build_with_code(manifest: &Manifest, code: &CodeMap, outcome: &Outcome, block: u64, estimator: Estimator, mut warnings: Vec<String>) -> Built {
    let bucket = &outcome.buckets[0];
    let folded = bucket.footprint.fold(code);
    let (mut whole, mut counts) = (folded.whole, [folded.functions, folded.lines, folded.loops]);
    let mut distances = BY_CODE.map(|target| vec![Histogram::default(); code.rows(target)]);
    let mut chains: Vec<Vec<(u64, usize)>> = vec![Vec::new(); code.lines.len()];
    for (piece, names) in code.pieces.iter().enumerate() {
        let mut of_piece = Counts::default();
        for class in 0..4 {
            of_piece.add_rows(&group_counts(bucket, piece * 4 + class));
            let Some(group) = bucket.reuse.distances.get(piece * 4 + class) else { continue };
            for (target, rows) in BY_CODE.into_iter().zip(&mut distances) {
                code.targets(target, piece as u32 * 4).iter().for_each(|&row| rows[row as usize].merge(group));
            }
        }
        whole.add_rows(&of_piece);
        for (target, rows) in BY_CODE.into_iter().zip(&mut counts) {
            code.targets(target, piece as u32 * 4).iter().for_each(|&row| rows[row as usize].add_rows(&of_piece));
        }
        if of_piece.accesses + of_piece.stores > 0 && !names.chain.is_empty() {
            chains[names.line as usize].push((of_piece.accesses + of_piece.implied, piece));
        }
    }
    let [functions, lines, loops] = counts;
    let (rho, rho_source) = sample_ratio(manifest, &whole, whole.stores);
    let strides = strides(outcome, code);
    let top = |counts: &[(u32, u64)]| crate::strides::top(counts.iter().copied(), STRIDES);
    let shares = Shares::new(outcome);
    let seen = rho.filter(|&r| r > 1.0 + 1e-9).map(|_| Seen::new(outcome, shares.as_ref()));
    let resonance = seen.as_ref().and_then(|s| crate::growth::resonance(outcome, s));
    if let Some(lag) = resonance {
        warnings.push(format!(
            "the samples are in step with the program: every {lag}th sample sees nearly the same addresses, so that other parts of its loops are never seen, and estimates of footprints are lower bounds; record again with another --period (a prime number that is no divisor of the loop, such as {})",
            if manifest.period.is_multiple_of(17_389) { 19_181 } else { 17_389 }
        ));
    }
    let weights = manifest.totals.loads_executed_error.filter(|_| manifest.totals.loads_executed_estimate.is_some());
    let design = rho.map(|rho| Design::new(rho, outcome.census.samples).weighted(weights).keeping(crate::growth::kept(outcome)));
    let design = design.map(|d| d.standing_for(shares.as_ref().map(|s| s.windows(crate::growth::marked(outcome)))));
    let places = Places { design, estimator, resonant: resonance.is_some() };
    let of_target = |target| (Maker::new(outcome, code, target, places, seen.as_ref(), shares.as_ref()), samples_seen(outcome, code, target));
    let (((of_whole, _), (of_functions, seen_functions)), ((of_lines, seen_lines), (of_loops, seen_loops))) = rayon::join(
        || rayon::join(|| of_target(Target::Whole), || of_target(Target::Function)),
        || rayon::join(|| of_target(Target::Line), || of_target(Target::Loop)),
    );
    let all = whole.accesses + whole.implied;
    let tables = || seen.as_ref().map_or_else(Default::default, |s| crate::growth::tables(outcome, rho, s, shares.as_ref().zip(weights)));
    let ((growth, inter_sample), hats) = rayon::join(tables, || of_whole.make(0, &whole, outcome.census.samples));
    let of_all = hats.accesses.filter(|&a| weights.is_some() && a > 0.0);
    // Of executed loads, as far as samples tell: where these stand for different numbers, by weight.
    let share = |c: &Counts, hats: &Hats| match (of_all, hats.accesses) {
        (Some(all), Some(part)) => Some(part * 100.0 / all),
        _ => (all > 0).then(|| (c.accesses + c.implied) as f64 * 100.0 / all as f64),
    };
    let used = |c: &Counts| c.accesses + c.implied + c.stores > 0;
    let by_heat = |a: &Counts, b: &Counts| (b.accesses + b.implied, b.stores).cmp(&(a.accesses + a.implied, a.stores));

    let mut order: Vec<usize> = (0..functions.len()).filter(|&i| used(&functions[i])).collect();
    order.sort_by(|&a, &b| by_heat(&functions[a], &functions[b]).then_with(|| a.cmp(&b)));
    let mut function_rows: Vec<FunctionRow> = order
        .par_iter()
        .map(|&i| {
            let hats = of_functions.make(i as u32, &functions[i], seen_functions[i]);
            FunctionRow {
                function: code.functions[i].function.clone(),
                module: code.functions[i].module.clone(),
                share: share(&functions[i], &hats),
                metrics: functions[i].metrics().with_distances(&distances[0][i]),
                hats,
                distances: distances[0][i].coarse().bins(),
                strides: top(&strides[0][i]),
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
                inlined_into: chains[i].iter().map(|&(_, piece)| code.pieces[piece].chain.join(" < ")).collect(),
                share: share(&lines[i], &hats),
                metrics: lines[i].metrics().with_distances(&distances[1][i]),
                hats,
                distances: distances[1][i].coarse().bins(),
                strides: top(&strides[1][i]),
            }
        })
        .collect();

    let mut order: Vec<usize> = (0..loops.len()).filter(|&i| used(&loops[i])).collect();
    order.sort_by(|&a, &b| by_heat(&loops[a], &loops[b]).then_with(|| (code.loops[a].depth, a).cmp(&(code.loops[b].depth, b))));
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
                share: share(&loops[i], &hats),
                metrics: loops[i].metrics().with_distances(&distances[2][i]),
                hats,
                distances: distances[2][i].coarse().bins(),
                strides: top(&strides[2][i]),
            }
        })
        .collect();

    if of_all.is_some() {
        let greatest_first = |a: Option<f64>, b: Option<f64>| b.unwrap_or(0.0).total_cmp(&a.unwrap_or(0.0));
        function_rows.sort_by(|a, b| greatest_first(a.share, b.share));
        line_rows.sort_by(|a, b| greatest_first(a.share, b.share));
        loop_rows.sort_by(|a, b| greatest_first(a.share, b.share));
    }

    doubts(outcome, &mut warnings);
    let whole_distances = bucket.reuse.all_distances();
    let totals = &manifest.totals;
    let census = &outcome.census;
    let summary = Summary {
        trace: TraceInfo {
            command: manifest.command.clone(),
            started: manifest.started.clone(),
            backend: manifest.backend.clone(),
            mode: manifest.mode.clone(),
            state: manifest.state.clone(),
            program_status: manifest.program_status.clone(),
            unit: manifest.unit.clone(),
            period: manifest.period,
            window: manifest.window,
            wall_seconds: manifest.wall_seconds,
            records_executed: totals.records_executed,
            records_kept: totals.records_kept,
            loads_executed: totals.loads_executed,
            loads_executed_estimate: totals.loads_executed_estimate,
            loads_executed_error: totals.loads_executed_error,
            dropped: totals.dropped.clone(),
            truncated_windows: totals.truncated_windows.clone(),
        },
        block,
        rows: census.loads + census.stores,
        samples: census.samples,
        sample_min: census.sample_min,
        sample_mean: (census.samples > 0).then(|| census.loads as f64 / census.samples as f64),
        sample_max: census.sample_max,
        processes: census.processes,
        threads: census.threads,
        metrics: whole.metrics().with_distances(&whole_distances),
        rho,
        rho_source,
        estimator: estimator.name(),
        bytes_estimate: hats.footprint.filter(|_| whole.footprint > 0).map(|f| f * whole.bytes as f64 / whole.footprint as f64),
        hats,
        distances: whole_distances.coarse().bins(),
        intervals: bucket.reuse.intervals.bins(),
        store_footprint: (whole.stores > 0).then_some(StoreFootprint {
            rows: whole.stores,
            footprint: folded.stores.footprint,
            lines64: folded.stores.lines64,
            bytes: folded.stores.bytes,
        }),
        doubtful: Doubtful {
            out_of_order: census.out_of_order,
            unknown_site: census.unknown_site,
            unknown_module: census.unknown_module,
            unknown_class: census.unknown_class,
            unread: census.unread,
        },
    };
    let analysis = Analysis {
        format: FORMAT,
        version: VERSION,
        summary,
        functions: function_rows,
        lines: line_rows,
        loops: loop_rows,
        windows: window_rows(outcome),
        growth,
        inter_sample,
        objects: Vec::new(),
        diagnoses: Vec::new(),
        heat_map: None,
        time_zoom: None,
        location_zoom: None,
        warnings,
    };
    Built { analysis, whole, by_code: ByCode { functions, loops }, places }
}

fn doubts(outcome: &Outcome, warnings: &mut Vec<String>) {
    let census = &outcome.census;
    if census.loads == 0 {
        warnings.push(if census.stores == 0 {
            "the trace has no samples: no instrumented code ran, it ran too briefly for one window, or the recording broke off; there is nothing to measure".into()
        } else {
            "the trace has stores only: there are no loads to measure".into()
        });
    }
    if census.out_of_order > 0 {
        warnings.push(format!(
            "{} rows are out of order within their thread; reuse around them is doubtful (were the sample files changed or renamed?)",
            census.out_of_order
        ));
    }
    if census.unknown_module > 0 {
        warnings.push(format!("{} rows name a module that the manifest does not have; they are counted under [unknown module]", census.unknown_module));
    }
    if census.unknown_site > 0 {
        warnings.push(format!("{} rows have a site that no sidecar describes; they are counted under [unknown] of their module", census.unknown_site));
    }
    if census.unknown_class > 0 {
        warnings.push(format!("{} rows have an unknown class; they are counted as Irregular", census.unknown_class));
    }
}

fn window_rows(outcome: &Outcome) -> Vec<WindowRow> {
    (MIN_LEVEL..=MAX_LEVEL)
        .filter_map(|level| {
            let sums = outcome.windows.sums(level);
            if sums.windows == 0 {
                return None;
            }
            let of_run = outcome.windows.sums_of_run(level);
            let [reuses, distance] = outcome.buckets[0].reuse.levels.total(level);
            let counts = Counts {
                accesses: sums.accesses,
                implied: sums.implied,
                reuses,
                distance_sum: distance,
                ..Counts::default()
            };
            let metrics = counts.metrics();
            let growth = Counts {
                accesses: of_run.accesses,
                implied: of_run.implied,
                footprint: of_run.footprint,
                strided: of_run.strided,
                irregular: of_run.irregular,
                ..Counts::default()
            };
            let growth = growth.metrics();
            let mean = |sum: u64| Some(sum as f64 / of_run.windows as f64);
            Some(WindowRow {
                size: 1 << level,
                windows: sums.windows,
                accesses: sums.accesses,
                implied: sums.implied,
                implied_pct: metrics.implied_pct,
                kappa: metrics.kappa,
                footprint: mean(of_run.footprint),
                strided: mean(of_run.strided),
                irregular: mean(of_run.irregular),
                growth: growth.growth,
                growth_strided_pct: growth.growth_strided_pct,
                growth_irregular_pct: growth.growth_irregular_pct,
                captures: mean(of_run.captures),
                survivals: mean(of_run.footprint - of_run.captures.min(of_run.footprint)),
                reuses,
                distance_mean: metrics.distance_mean,
            })
        })
        .collect()
}
