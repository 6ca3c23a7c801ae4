//! Irregular loads that no other mechanism claims.

use crate::findings::cause::Cause;
use crate::findings::context::Context;
use crate::findings::mechanisms::{APART, Nodes, PYTHON_OBJECTS, Rule, Told, huge_pages, misses};
use mgz_annotations_schema::ProgramChange;

pub(super) const IRREGULAR_RULE: Rule = Rule {
    kind: "irregular",
    name: "addresses without an order",
    claims: |_, _| Some(APART),
    tell,
    python: PYTHON_OBJECTS,
    nodes: Nodes::Joined,
    changes: &[ProgramChange::HugePages, ProgramChange::PrefetchAuto],
    ..Rule::PLAIN
};

fn tell(context: &Context, cause: &Cause) -> Told {
    let runs = |&site: &u32| context.sites.get(&site)?.short_runs();
    let order = match cause.sites.first().and_then(runs) {
        Some(rows) => format!(
            "a few loads, about {rows:.0}, go one after the other, and the next ones are elsewhere, so that no prefetcher gets ahead"
        ),
        None => "no step from one address to the next repeats".into(),
    };
    Told {
        mechanism: order,
        evidence: misses(context, cause),
        advice: format!(
            "bring what is used one after the other together in memory, or use it in the order of its addresses{}",
            huge_pages(context, cause)
        ),
        layout: None,
    }
}
