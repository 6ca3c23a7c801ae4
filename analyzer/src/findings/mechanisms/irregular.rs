//! Irregular loads that no other mechanism claims.

use crate::findings::caches::Overlap;
use crate::findings::cause::Cause;
use crate::findings::context::Context;
use crate::findings::mechanisms::{Claim, Nodes, Rule, Told, cold, huge_pages, over};
use crate::findings::params;
use crate::findings::sites::SiteFacts;

pub(super) const RULE: Rule = Rule {
    kind: "irregular",
    name: "addresses without an order",
    claims,
    tell,
    nodes: Nodes::Joined,
    ..Rule::PLAIN
};

/// Loads that mostly hit.
pub(super) const RESIDENT: Rule = Rule {
    kind: "resident",
    name: "loads that hit",
    claims: |_, _| Some(Claim::new(Overlap::Prefetched)),
    tell,
    hits: true,
    ..Rule::PLAIN
};

fn claims(_: &Context, facts: &SiteFacts) -> Option<Claim> {
    (facts.cold() >= params::MIN_COLD_SHARE_OF_IRREGULAR).then(|| Claim::new(Overlap::Some))
}

fn tell(context: &Context, cause: &Cause) -> Told {
    let runs = |&site: &u32| context.sites.get(&site)?.short_runs();
    let order = match cause.sites.first().and_then(runs) {
        Some(rows) => format!(
            "a few loads, about {rows:.0}, go one after the other, and the next ones are elsewhere, so that no prefetcher gets ahead"
        ),
        None => "addresses follow no order".into(),
    };
    Told {
        finding: format!("{order}; {}, {}", cold(cause), over(context, cause)),
        advice: format!(
            "bring what is used one after the other together in memory, or use it in the order of its addresses{}",
            huge_pages(cause)
        ),
        layout: None,
    }
}
