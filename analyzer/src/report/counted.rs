//! Weights of windows from the counts of another run of the same command.

use crate::data::code_map::Target;
use crate::data::counts::AccessCounts;
use crate::estimate::Estimate;
use crate::estimate::raking::{WindowLoads, rake};
use crate::input::counted::{Count, Counted, CountedError};
use crate::input::weights::Weights;
use crate::input::{ColumnSet, Trace, counted};
use mgz_annotations_schema::TraceMode;
use std::collections::BTreeMap;
use std::path::Path;

/// Minimum loads of code that no window has seen for a warning, percent. Source: Chosen.
const MIN_WARNING_PCT: f64 = 1.0;

/// Counts of the given trace, or of the one inside this trace. A trace with its own counts needs
/// none. An error is a sentence for the user.
pub fn find_counts(trace: &Trace, given: Option<&Path>) -> Result<Option<Counted>, String> {
    let own = counted::of_trace(&trace.folder);
    let manifest = &trace.manifest;
    let samples_time_or_loads = manifest.mode == TraceMode::Burst || manifest.triggers_by_time();
    let Some(path) = given.map(Path::to_path_buf).or(own) else {
        return Ok(None);
    };
    if !samples_time_or_loads {
        return match given {
            Some(_) => Err(format!(
                "--weights-from: {}: a trace of mode {} counts its loads itself; leave --weights-from out",
                trace.folder.display(),
                manifest.mode
            )),
            None => Ok(None),
        };
    }
    counted::read_counted(trace, &path)
        .map(Some)
        .map_err(|e: CountedError| e.to_string())
}

/// The weights of a trace's windows, such that functions' loads add up to the counted ones.
pub(crate) fn reweighted(
    trace: &Trace,
    weights: Weights,
    mut counted: Counted,
    warnings: &mut Vec<String>,
) -> Weights {
    let mut windows: BTreeMap<u32, BTreeMap<u32, f64>> = BTreeMap::new();
    let source = trace.source(ColumnSet::default());
    for piece in 0..source.pieces() {
        // The main pass reports unreadable parts.
        for chunk in source.read(&[piece]).into_iter().flatten() {
            let rows = chunk.loads.rows();
            for run in &chunk.runs {
                let loads = windows.entry(run.sample).or_default();
                let rows = rows.slice(run.loads.clone());
                for (&group, &implied) in rows.group.iter().zip(rows.implied) {
                    if let Some(piece) = trace.code.pieces.get(group.piece() as usize) {
                        *loads.entry(piece.function).or_default() += 1.0 + f64::from(implied);
                    }
                }
            }
        }
    }
    let mean = mean_time(&weights);
    let windows: Vec<WindowLoads> = windows
        .into_iter()
        .filter(|(_, loads)| !loads.is_empty())
        .map(|(sample, loads)| WindowLoads {
            sample,
            loads: loads.into_iter().collect(),
            time: match weights.time(sample) {
                0 => mean,
                ns => ns as f64,
            },
        })
        .collect();
    let functions: Vec<f64> = counted.functions().collect();
    let (each, unseen) = rake(&windows, &functions);
    if let Some(from) = &mut counted.from {
        from.unseen_pct = 100.0 * unseen;
        if from.unseen_pct >= MIN_WARNING_PCT {
            warnings.push(format!(
                "{:.1} % of the loads that {} has counted are in functions without windows in this trace; record with a higher --overhead or --rate to see them",
                from.unseen_pct, from.trace
            ));
        }
    }
    let loads: Vec<(u32, f64)> = windows.iter().map(|w| w.sample).zip(each).collect();
    weights.counted_by(counted, &loads)
}

fn mean_time(weights: &Weights) -> f64 {
    let known = weights.times_by_sample().iter().filter(|&&ns| ns > 0);
    let (sum, n) = known.fold((0.0, 0.0), |(sum, n), &ns| (sum + ns as f64, n + 1.0));
    if n > 0.0 { sum / n } else { 1.0 }
}

/// A number as an estimate.
pub(crate) fn estimate(count: Count) -> Estimate {
    let Count { value, lo, hi } = count;
    Estimate { value, lo, hi }
}

/// The loads of the rows of a table.
pub(crate) fn row_estimates(counted: &Counted, target: Target) -> Vec<Option<Estimate>> {
    let rows = counted.rows(target).into_iter();
    rows.map(|count| count.map(estimate)).collect()
}

/// ρ from the counted loads, and its error.
pub(crate) fn sample_ratio(counted: &Counted, recorded: &AccessCounts) -> Option<(f64, f64)> {
    let whole = counted.whole()?;
    let here = (recorded.accesses + recorded.implied) as f64;
    (here > 0.0 && whole.value > 0.0)
        .then(|| ((whole.value / here).max(1.0), whole.hi / whole.value - 1.0))
}
