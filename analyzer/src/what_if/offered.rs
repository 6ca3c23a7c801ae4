//! The remedies that can be asked for the findings of a trace.

use crate::data::object_map::is_address;
use crate::findings::cause::Cause;
use crate::findings::gains::Costs;
use crate::findings::mechanisms::{Remedy as OwnRemedy, title};
use crate::findings::{Cost, objects_name};
use crate::what_if::remedies::KINDS;
use crate::what_if::remedy::{Kind, Spec, Target};
use crate::what_if::target::{place, short_name};
use std::collections::BTreeSet;

/// Findings whose remedies are listed. Source: Chosen; each remedy is built once.
const MAX_FINDINGS: usize = 8;

/// A remedy for a finding.
pub(crate) struct Offered {
    /// Title of the mechanism.
    pub(crate) finding: &'static str,
    /// `FILE:LINE`, or the function.
    pub(crate) place: String,
    /// Cost of the finding, percent of the time.
    pub(crate) cost: f64,
    /// The remedy as `--remedy` takes it.
    pub(crate) remedy: String,
    /// The reason why its gain cannot be predicted from this recording. `None` if it can.
    pub(crate) unknown: Option<String>,
}

/// Remedies for the most costly causes, that of the mechanism first. A remedy that cannot be
/// predicted is listed only if it is the mechanism's own.
pub(crate) fn offered(costs: &Costs) -> Vec<Offered> {
    let is_slow = |cause: &&Cause| !cause.rule.is_good;
    let mut slow: Vec<(&Cause, Cost)> = (costs.causes.iter().filter(is_slow))
        .map(|cause| (cause, Cost::of(&costs.context, cause)))
        .filter(|(_, cost)| cost.is_worth_a_finding())
        .collect();
    slow.sort_by(|a, b| b.1.score[1].total_cmp(&a.1.score[1]));
    let mut known: BTreeSet<String> = BTreeSet::new();
    let mut list = Vec::new();
    for (cause, cost) in slow.into_iter().take(MAX_FINDINGS) {
        let own = own(cause);
        let (first, rest): (Vec<&Kind>, Vec<&Kind>) =
            KINDS.iter().partition(|kind| own == Some(kind.name));
        for kind in first.into_iter().chain(rest) {
            let Some(spec) = spec(costs, cause, kind) else {
                continue;
            };
            let unknown = (kind.make)(costs, &spec).err();
            let is_own = own == Some(kind.name);
            if (unknown.is_none() || is_own) && known.insert(spec.text()) {
                list.push(Offered {
                    finding: title(cause),
                    place: place(&cause.line),
                    cost: cost.score[1],
                    remedy: spec.text(),
                    unknown: unknown.map(|why| without_target(&why)),
                });
            }
        }
    }
    list
}

/// A reason without the target that it begins with.
fn without_target(why: &str) -> String {
    let reason = why.split_once(": not known: ").map(|(_, reason)| reason);
    reason.unwrap_or(why).to_owned()
}

/// The kind of the remedy that the mechanism suggests.
fn own(cause: &Cause) -> Option<&'static str> {
    match cause.rule.remedy {
        OwnRemedy::OfObject(kind) | OwnRemedy::OfCode(kind) => Some(kind),
        OwnRemedy::Unknown => None,
    }
}

/// The remedy of a kind for the object or the code of a cause. `None` without a name, and if the kind
/// does not fit.
fn spec(costs: &Costs, cause: &Cause, kind: &Kind) -> Option<Spec> {
    let target = match kind.target {
        Target::Object => {
            let named = objects_name(&costs.context, cause);
            let first = named.split(" and ").next().unwrap_or(&named);
            short_name(costs, first)
        }
        // Each load waits for the one before, so neither their order nor their time can change.
        Target::Code if cause.rule.is_chained => return None,
        Target::Code => place(&cause.line),
    };
    // Memory as a whole has pages, and no elements or nodes.
    let is_memory = target.starts_with('[') || is_address(&target);
    let fits = !target.is_empty() && (!is_memory || kind.name == "huge-pages");
    fits.then(|| Spec {
        kind: kind.name.into(),
        target,
        by: None,
    })
}
