//! Gains of the remedies of findings.

use crate::data::call_paths::CallPaths;
use crate::engine::EngineOutcome;
use crate::findings::gains::{Changed, Costs};
use crate::findings::windows::Window;
use crate::findings::{Finding, Gain, Looked};
use crate::misses::{Predicted, Range};
use crate::what_if::remedy::Spec;
use crate::what_if::replay::{Plan, Replayed};
use std::collections::BTreeMap;

/// So many remedies of findings are predicted: each needs a replay. Source: Chosen, so that the
/// analysis takes less than twice the time.
const MAX_REPLAYS: usize = 1;
/// A finding with a gain costs at least this much, in percent of the time. Source: Chosen.
const MIN_COST_PCT: f64 = 5.0;

/// True if the gain of a finding's remedy is to be predicted.
fn is_wanted(finding: &Finding) -> bool {
    !finding.remedy.is_empty() && finding.score >= MIN_COST_PCT
}

/// Predicts the gains of the remedies of the most costly findings. `looked`: the data that the
/// findings were made of.
pub(crate) fn add_gains(
    replayed: &Replayed,
    (outcome, paths): (&EngineOutcome, Option<&CallPaths>),
    windows: &[Window],
    looked: Looked<'_>,
    findings: &mut [Finding],
) {
    if !findings.iter().any(is_wanted) {
        return;
    }
    let again;
    let (costs, before) = match (outcome.pairs.is_some(), looked.predicted) {
        (false, Some(predicted)) => {
            let known = (looked.context, looked.causes);
            let times = looked.times.as_ref();
            (Costs::of(known, times, predicted), predicted)
        }
        // Watched reuses are left out on both sides.
        _ => {
            let Some(predicted) = replayed.predict(outcome, None) else {
                return;
            };
            again = predicted;
            let costs = Costs::new(
                &replayed.trace.code,
                (replayed.objects, paths),
                windows,
                (outcome, &again),
                replayed.trace.manifest.triggers_by_time(),
            );
            (costs, &again)
        }
    };
    let mut known: BTreeMap<String, Option<Range>> = BTreeMap::new();
    for finding in findings.iter_mut().filter(|f| is_wanted(f)) {
        if known.len() == MAX_REPLAYS && !known.contains_key(&finding.remedy) {
            continue;
        }
        let saved = *(known.entry(finding.remedy.clone()))
            .or_insert_with_key(|remedy| saved(replayed, (&costs, before), windows, remedy));
        finding.saved = saved.map(Gain::of).unwrap_or_default();
    }
}

/// The time that a remedy saves; None if its target is not what it needs.
fn saved(
    replayed: &Replayed,
    (costs, before): (&Costs, &Predicted),
    windows: &[Window],
    remedy: &str,
) -> Option<Range> {
    let spec = Spec::parse(remedy).ok()?;
    let plan = Plan::of((spec.kind().ok()?.make)(costs, &spec).ok()?);
    let moved = match plan.moves() {
        true => {
            let (after, windows) = rayon::join(
                || replayed.count(Some(&plan)).1,
                || plan.windows(windows, replayed.objects),
            );
            Some((windows, after?))
        }
        false => None,
    };
    let (windows, predicted) =
        (moved.as_ref()).map_or((windows, before), |(windows, after)| (&windows[..], after));
    let saved = costs.saved(&Changed {
        windows,
        predicted,
        is_prefetched: &|site| plan.prefetches(site),
    });
    Some(saved.time)
}
