//! Binary search: each step halves a range, and its address depends on the load before.

use crate::findings::cause::Cause;
use crate::findings::context::Context;
use crate::findings::mechanisms::{APART, Rule, Told, misses};
use crate::findings::sites::SiteFacts;
use crate::findings::visits;
use mgz_annotations_schema::ProgramChange;
use mgz_annotations_schema::sidecar::Origin;

pub(super) const SEARCH_RULE: Rule = Rule {
    kind: "binary_search",
    name: "binary search",
    claims,
    tell,
    python: "search for all keys at once (np.searchsorted with sorted keys)",
    is_chained: true,
    changes: &[ProgramChange::HugePages],
    ..Rule::PLAIN
};

const NAMES: [&str; 5] = [
    "lower_bound",
    "upper_bound",
    "binary_search",
    "equal_range",
    "bsearch",
];

fn claims(context: &Context, facts: &SiteFacts) -> Option<i64> {
    let searches = context.root(facts.site).0 == Origin::Search
        || facts.halves() && visits::begin_again(context, facts.site)
        || context.is_named(facts, &NAMES) && !facts.is_in_order();
    searches.then_some(APART)
}

fn tell(context: &Context, cause: &Cause) -> Told {
    Told {
        mechanism: "each step of the search jumps by half of the remaining range".into(),
        evidence: misses(context, cause),
        advice: "lay the keys out as the search visits them (Eytzinger order or a static B-tree with a line of keys per node), keep keys apart from values, or search several keys at a time".into(),
        layout: None,
    }
}
