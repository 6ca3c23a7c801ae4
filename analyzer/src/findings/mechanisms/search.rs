//! Binary search: each step halves a range, and its address depends on the load before.

use crate::findings::caches::Overlap;
use crate::findings::cause::Cause;
use crate::findings::context::Context;
use crate::findings::mechanisms::{Claim, Rule, Told, cold, over};
use crate::findings::sites::SiteFacts;
use mgz_annotations_schema::sidecar::Origin;

pub(super) const RULE: Rule = Rule {
    kind: "binary_search",
    name: "binary search",
    claims,
    tell,
    // A search visits most places seldom. Recapture only sees the frequent ones.
    needs_extent: |_| true,
    ..Rule::PLAIN
};

const NAMES: [&str; 5] = [
    "lower_bound",
    "upper_bound",
    "binary_search",
    "equal_range",
    "bsearch",
];

fn claims(context: &Context, facts: &SiteFacts) -> Option<Claim> {
    let searches = context.root(facts.site).0 == Origin::Search
        || context.is_named(facts, &NAMES) && !facts.is_in_order();
    searches.then(|| Claim::new(Overlap::None))
}

fn tell(context: &Context, cause: &Cause) -> Told {
    Told {
        finding: format!(
            "each step of the search is a jump by half of what is left; {}, {}",
            cold(cause),
            over(context, cause)
        ),
        advice: "lay the keys out as the search visits them (Eytzinger order or a static B-tree with a line of keys per node), keep keys apart from values, or search several keys at a time".into(),
        layout: None,
    }
}
