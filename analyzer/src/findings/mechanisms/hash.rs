//! Look-ups in a table at a place that is computed from a key, or random places: the key is in the table itself.

use crate::findings::caches::Overlap;
use crate::findings::cause::Cause;
use crate::findings::context::Context;
use crate::findings::mechanisms::{Claim, Rule, Told, cold, huge_pages, over};
use crate::findings::sites::SiteFacts;
use mgz_annotations_schema::sidecar::Origin;

pub(super) const RULE: Rule = Rule {
    kind: "hash_table",
    name: "look-ups at computed places",
    claims,
    tell,
};

fn claims(context: &Context, facts: &SiteFacts) -> Option<Claim> {
    let hashed = matches!(context.root(facts.site).0, Origin::Hash);
    (hashed && facts.near(64) < 0.8).then(|| Claim::new(Overlap::Some))
}

fn tell(context: &Context, cause: &Cause) -> Told {
    Told {
        finding: format!(
            "each load is at a place that is computed from a key, without an order that a prefetcher could follow; {}, {}",
            cold(cause),
            over(context, cause)
        ),
        advice: format!(
            "make the table smaller (smaller keys, values kept elsewhere, a filter in front of it), or sort or batch the keys and prefetch the places ahead{}",
            huge_pages(cause)
        ),
    }
}
