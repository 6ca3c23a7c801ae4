//! Summary of the whole trace, as in JSON.

use crate::data::counts::{AccessCounts, Metrics};
use crate::data::log_histogram::Bin;
use crate::engine::EngineOutcome;
use crate::estimate::row_estimates::{Estimator, Hats};
use crate::input::counted::WeightsFrom;
use crate::misses::Misses;
use mgz_annotations_schema::coverage;
use mgz_annotations_schema::coverage::Coverage;
use mgz_annotations_schema::manifest::{Cache, Manifest};
use mgz_annotations_schema::{ProgramStatus, SamplingUnit, TraceBackend, TraceMode, TraceState};
use serde::Serialize;
use std::collections::BTreeMap;

/// Facts about the recording.
#[derive(Clone, Debug, Serialize)]
pub struct TraceInfo {
    /// The traced command line.
    pub command: Vec<String>,
    /// Start of the run.
    pub started: String,
    /// `soft` or `pt`.
    pub backend: TraceBackend,
    /// `full`, `ring` or `burst`.
    pub mode: TraceMode,
    /// State of the trace.
    pub state: TraceState,
    /// End of the program.
    pub program_status: ProgramStatus,
    /// Unit of `period` and `window`.
    pub unit: SamplingUnit,
    /// True if windows are triggered by time: each represents the same time, and shares are of
    /// time.
    pub by_time: bool,
    /// Records per period; 0 in `full`.
    pub period: u64,
    /// Records per window; 0 in `full`.
    pub window: u64,
    /// Wall-clock time of the run, seconds.
    pub wall_seconds: f64,
    /// Caches for which misses are predicted, first level first.
    pub caches: Vec<Cache>,
    /// Records that probes wrote.
    pub records_executed: u64,
    /// Records that were kept.
    pub records_kept: u64,
    /// Loads executed, if the recorder counted them.
    pub loads_executed: Option<u64>,
    /// Loads executed, as the recorder estimates them.
    #[serde(rename = "loads_executed_hat")]
    pub loads_executed_estimate: Option<f64>,
    /// Relative half-width of its 95 % interval, if the recorder gives it (`burst`).
    pub loads_executed_error: Option<f64>,
    /// The trace in which the loads were counted, if it is another one (`--weights-from`).
    pub weights_from: Option<WeightsFrom>,
    /// Lost data by cause.
    pub dropped: BTreeMap<String, u64>,
    /// Short windows by cause.
    pub truncated_windows: BTreeMap<String, u64>,
    /// Code that ran, and the part of it that was recorded.
    pub coverage: Coverage,
    /// Sentences on the coverage, and the reason if there are no samples.
    pub not_recorded: Vec<String>,
    /// The sentences for a screen, which shows shares of the time as numbers.
    #[serde(skip)]
    pub for_screen: Vec<String>,
    /// The argument of `--libs` that would include the most important missing code.
    pub missing_libraries: Vec<String>,
    /// Reason why heap blocks of this program cannot be logged. Empty if they can.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub heap_impossible: String,
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
    /// Classes that were observed.
    #[serde(flatten)]
    pub observed: crate::stages::observed_class::ObservedRow,
    /// Sample ratio: executed over recorded loads.
    pub rho: Option<f64>,
    /// Source of `rho`.
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
    /// Predicted cache misses.
    pub misses: Option<Misses>,
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
    /// Rows whose site is missing in the sidecar.
    pub unknown_site: u64,
    /// Rows whose module is missing in the manifest.
    pub unknown_module: u64,
    /// Rows whose class is not known (counted as Irregular).
    pub unknown_class: u64,
    /// Rows in damaged row groups, skipped.
    pub unread: u64,
}

impl Summary {
    /// Replaces the recorder's estimate of the loads by the counts of another run.
    pub(crate) fn weighted_by(&mut self, from: Option<WeightsFrom>) {
        let trace = &mut self.trace;
        trace.weights_from = from;
        trace.loads_executed = None;
        trace.loads_executed_estimate = self.hats.accesses;
        let ends = self.hats.accesses.zip(self.hats.accesses_hi);
        trace.loads_executed_error = ends.map(|(value, hi)| hi / value - 1.0);
    }
}

/// ρ, and the source of its value.
pub(crate) fn sample_ratio(
    manifest: &Manifest,
    counts: &AccessCounts,
    stores: u64,
) -> (Option<f64>, &'static str) {
    let recorded = (counts.accesses + counts.implied) as f64;
    if recorded == 0.0 {
        return (None, "nothing recorded");
    }
    let totals = &manifest.totals;
    // If the recorder did not count stores separately, its loads include them.
    let observed = match totals.stores {
        Some(_) => recorded,
        None => recorded + stores as f64,
    };
    if let Some(executed) = totals.loads_executed {
        return (
            (executed as f64 >= observed)
                .then(|| executed as f64 / observed)
                .or(Some(1.0)),
            "loads_executed",
        );
    }
    let estimates = [
        (totals.loads_executed_estimate, "loads_executed_estimate"),
        (totals.loads_executed_assumed, "loads_executed_assumed"),
    ];
    for (estimate, source) in estimates {
        if let Some(executed) = estimate.filter(|e| e.is_finite() && *e >= observed) {
            return (Some(executed / observed), source);
        }
    }
    if totals.records_kept > 0 && totals.records_executed >= totals.records_kept {
        return (
            Some(totals.records_executed as f64 / totals.records_kept as f64),
            "records",
        );
    }
    if manifest.mode.has_all_loads() {
        return (Some(1.0), "mode full");
    }
    (None, "unknown")
}

/// The error of the executed loads for ρ, if the recorder gives it.
pub(crate) fn executed_error(manifest: &Manifest) -> Option<f64> {
    let totals = &manifest.totals;
    match totals.loads_executed_estimate {
        Some(_) => totals.loads_executed_error,
        None => totals
            .loads_executed_assumed
            .and(totals.loads_executed_assumed_error),
    }
}

/// The summary of a trace whose loads and stores have these counts.
pub(crate) fn summary(
    manifest: &Manifest,
    outcome: &EngineOutcome,
    (whole, stores): (&AccessCounts, &AccessCounts),
    hats: Hats,
    (rho, rho_source): (Option<f64>, &'static str),
    (block, estimator): (u64, Estimator),
) -> Summary {
    let whole_distances = outcome.buckets[0].reuse.all_distances();
    let totals = &manifest.totals;
    let census = &outcome.census;
    let by_time = manifest.triggers_by_time();
    // If windows are triggered by time, the recorder's estimate includes code without a measured
    // speed. So it is not used.
    let (estimate, error, rho) = if by_time && totals.loads_executed.is_none() {
        let ends = hats.accesses.zip(hats.accesses_hi);
        let recorded = (whole.accesses + whole.implied).max(1) as f64;
        (
            hats.accesses,
            ends.map(|(value, hi)| hi / value - 1.0),
            hats.accesses.map(|loads| loads / recorded),
        )
    } else {
        let totals = (totals.loads_executed_estimate, totals.loads_executed_error);
        (totals.0, totals.1, rho)
    };
    let lacks = coverage::lacks(manifest);
    Summary {
        trace: TraceInfo {
            command: manifest.command.clone(),
            started: manifest.started.clone(),
            backend: manifest.backend.clone(),
            mode: manifest.mode.clone(),
            state: manifest.state.clone(),
            program_status: manifest.program_status.clone(),
            unit: manifest.unit.clone(),
            by_time,
            period: manifest.period,
            window: manifest.window,
            wall_seconds: manifest.wall_seconds,
            caches: manifest.caches.clone(),
            records_executed: totals.records_executed,
            records_kept: totals.records_kept,
            loads_executed: totals.loads_executed,
            loads_executed_estimate: estimate,
            loads_executed_error: error,
            weights_from: None,
            dropped: totals.dropped.clone(),
            truncated_windows: totals.truncated_windows.clone(),
            coverage: manifest.coverage.clone(),
            not_recorded: Some(&manifest.no_samples)
                .filter(|why| !why.is_empty())
                .cloned()
                .into_iter()
                .chain(manifest.phases.iter().map(|phases| phases.sentence()))
                .chain(lacks.iter().map(|lack| lack.text.clone()))
                .collect(),
            for_screen: (manifest.phases.iter())
                .map(|phases| phases.sentence())
                .chain(coverage::without_share(manifest))
                .collect(),
            missing_libraries: coverage::missing_libraries(&lacks).to_vec(),
            heap_impossible: manifest.heap.impossible.clone(),
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
        bytes_estimate: hats
            .footprint
            .filter(|_| whole.footprint > 0)
            .map(|f| f * whole.bytes as f64 / whole.footprint as f64),
        hats,
        observed: Default::default(),
        misses: None,
        distances: whole_distances.coarse().bins(),
        intervals: outcome.buckets[0].reuse.intervals.bins(),
        store_footprint: (whole.stores > 0).then_some(StoreFootprint {
            rows: whole.stores,
            footprint: stores.footprint,
            lines64: stores.lines64,
            bytes: stores.bytes,
        }),
        doubtful: Doubtful {
            out_of_order: census.out_of_order,
            unknown_site: census.unknown_site,
            unknown_module: census.unknown_module,
            unknown_class: census.unknown_class,
            unread: census.unread,
        },
    }
}

/// Warns of rows that could not be attributed or are missing.
pub(crate) fn doubts(outcome: &EngineOutcome, warnings: &mut Vec<String>) {
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
        warnings.push(format!(
            "{} rows have an unknown class; they are counted as Irregular",
            census.unknown_class
        ));
    }
}
