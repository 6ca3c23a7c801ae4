//! Gains of the remedies of findings.

use crate::findings::cause::causes as causes_of;
use crate::findings::gains::{Changed, Costs, Saved, limited};
use crate::findings::windows::Window;
use crate::findings::{Finding, FindingBasis, Gain};
use crate::misses::{Predicted, Range};
use crate::what_if::remedy::Spec;
use crate::what_if::replay::{Plan, Replayed};
use std::collections::{BTreeMap, HashSet};

/// Number of remedies of findings that are predicted. Each needs a replay. Source: Chosen, so that
/// the analysis takes less than twice the time.
const MAX_REPLAYS: usize = 1;
/// Minimum cost of a finding whose gain is predicted, in percent of the time. Source: Chosen.
const MIN_COST_PCT: f64 = 5.0;

/// True if the gain of a finding's remedy should be predicted.
fn is_wanted(finding: &Finding) -> bool {
    !finding.remedy.is_empty() && finding.score >= MIN_COST_PCT
}

/// Predicts the gains of the remedies of the most costly findings. `basis` has the data of the
/// findings. `unwatched` predicts misses without watched reuses, if there are any.
pub(crate) fn add_gains(
    replayed: &Replayed,
    unwatched: Option<&(dyn Fn() -> Option<Predicted> + Sync)>,
    windows: &[Window],
    basis: FindingBasis<'_>,
    findings: &mut [Finding],
) {
    if !findings.iter().any(is_wanted) {
        return;
    }
    // Watched reuses are left out on both sides.
    let (pages, unwatched) = rayon::join(
        || replayed.count_pages(None),
        || unwatched.map(|predict| predict()),
    );
    let pages = pages.as_ref();
    let (context, causes) = (basis.context, basis.causes);
    let (before, known) = match (&unwatched, basis.predicted) {
        (Some(Some(before)), _) => {
            let context = context.with_misses(before);
            let causes = causes_of(&context);
            (before, (context, causes))
        }
        (None, Some(before)) => (before, (context, causes)),
        (Some(None), _) | (None, None) => return,
    };
    let costs = Costs::of(known, (before, pages));
    let mut known: BTreeMap<String, Option<Range>> = BTreeMap::new();
    let wanted = findings.iter().filter(|f| is_wanted(f));
    for remedy in wanted.map(|f| f.remedy.clone()) {
        if known.len() < MAX_REPLAYS && !known.contains_key(&remedy) {
            let saved = saved(replayed, (&costs, before, pages), windows, &remedy);
            let within = |saved: Saved| match saved.spared > 0.0 {
                true => saved.time,
                false => limited(saved.time, costs_of(findings, &costs, &saved)),
            };
            known.insert(remedy, saved.map(within));
        }
    }
    for finding in findings.iter_mut().filter(|f| is_wanted(f)) {
        let saved = known.get(&finding.remedy).copied().flatten();
        finding.saved = saved.map(Gain::of).unwrap_or_default();
    }
}

/// Cost of all findings in the functions that gain, with its interval.
fn costs_of(findings: &[Finding], costs: &Costs, saved: &Saved) -> Range {
    let gaining: HashSet<&str> = (saved.causes.iter())
        .filter(|change| change.saved > 0.0)
        .map(|change| costs.causes[change.cause].line.function.as_str())
        .collect();
    let in_them = findings
        .iter()
        .filter(|f| gaining.contains(f.function.as_str()));
    let mut sum = [0.0; 3];
    for finding in in_them {
        let ends = [finding.score_lo, finding.score, finding.score_hi];
        sum.iter_mut().zip(ends).for_each(|(all, end)| *all += end);
    }
    sum.map(|pct: f64| pct.min(100.0))
}

/// The time that a remedy saves; None if its target is unsuitable.
fn saved(
    replayed: &Replayed,
    (costs, before, pages): (&Costs, &Predicted, Option<&Predicted>),
    windows: &[Window],
    remedy: &str,
) -> Option<Saved> {
    let spec = Spec::parse(remedy).ok()?;
    let plan = Plan::of((spec.kind().ok()?.make)(costs, &spec).ok()?);
    // A remedy may place data in the order of first use, so the rows are moved before the windows.
    let after = match plan.moves() {
        true => Some(replayed.count(Some(&plan)).1?),
        false => None,
    };
    let (moved, pages_after) = rayon::join(
        || (plan.moves()).then(|| plan.windows(windows, replayed.objects)),
        || {
            (plan.changes_pages())
                .then(|| replayed.count_pages(Some(&plan)))
                .flatten()
        },
    );
    let windows = moved.as_deref().unwrap_or(windows);
    let predicted = after.as_ref().unwrap_or(before);
    Some(costs.saved(&Changed {
        windows,
        predicted,
        pages: pages_after.as_ref().or(pages),
        is_prefetched: &|site| plan.prefetches(site),
        is_sorted: &|site| plan.sorts(site),
        has_other_pages: plan.mixes_pages(),
        left: &|site| plan.left(site),
        spared: plan.spared(),
    }))
}
