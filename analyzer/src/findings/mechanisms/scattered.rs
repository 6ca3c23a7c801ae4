//! Objects that were allocated one by one and are reached through an array of pointers.

use crate::findings::cause::Cause;
use crate::findings::context::Context;
use crate::findings::mechanisms::{APART, PYTHON_OBJECTS, Remedy, Rule, Told, huge_pages, misses};
use crate::findings::sites::SiteFacts;
use crate::util::human::count;
use mgz_annotations_schema::ProgramChange;
use mgz_annotations_schema::sidecar::Origin;

pub(super) const SCATTERED_RULE: Rule = Rule {
    kind: "scattered",
    name: "objects scattered over memory",
    claims,
    tell,
    python: PYTHON_OBJECTS,
    remedy: Remedy::OfObject("pool"),
    changes: &[
        ProgramChange::HugePages,
        ProgramChange::PoolOfSites,
        ProgramChange::PrefetchAuto,
    ],
    ..Rule::PLAIN
};

fn claims(context: &Context, facts: &SiteFacts) -> Option<i64> {
    let (Origin::Pointer, Some(from)) = context.origin(facts.site) else {
        return None;
    };
    let pointers = context.sites.get(&from)?;
    // An unchanging pointer leads to a single object.
    if pointers.is_in_place() || facts.is_in_order() || facts.is_in_sequence() {
        return None;
    }
    Some(APART)
}

fn tell(context: &Context, cause: &Cause) -> Told {
    let seen = context.seen(&cause.sites);
    let pages = format!("{} lines on {} pages", count(seen.lines), count(seen.pages));
    Told {
        mechanism: format!(
            "loads go through pointers to objects that were allocated one by one: {pages} were seen",
        ),
        evidence: misses(context, cause),
        advice: format!(
            "store the objects themselves in the array instead of pointers to them, or allocate them from one pool in the order of their use{}",
            huge_pages(context, cause)
        ),
        layout: None,
    }
}
