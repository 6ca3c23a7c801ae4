//! Look-ups in a table at a place that is computed from a key, or random places: the key is in the table itself.

use crate::findings::caches::Overlap;
use crate::findings::cause::Cause;
use crate::findings::context::Context;
use crate::findings::mechanisms::{Claim, Rule, Told, cold, huge_pages, over};
use crate::findings::sites::SiteFacts;
use mgz_annotations_schema::sidecar::Origin;

pub(super) const RULE: Rule = Rule {
    kind: "hash_table",
    name: "look-ups at computed places, as in a hash table",
    claims,
    tell,
    ..Rule::PLAIN
};

/// Code of well-known tables with open addressing.
const TABLES: [&str; 6] = [
    "raw_hash_set",
    "flat_hash_map",
    "robin_hood",
    "unordered_dense",
    "dense_hashtable",
    "F14Table",
];
/// The same of Rust's, whose functions have everyday names: what they are made with.
const RUST: [&str; 3] = [
    "hashbrown::map::equivalent_key",
    "hashbrown::map::make_hasher",
    "hashbrown::rustc_entry",
];

fn claims(context: &Context, facts: &SiteFacts) -> Option<Claim> {
    // Their places come from groups of tags that were loaded, as from an index, and from calls that hash.
    let is_known = || context.is_named(facts, &TABLES) || context.is_made_with(facts, &RUST);
    let hashed = matches!(context.root(facts.site).0, Origin::Hash) || is_known();
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
        layout: None,
    }
}
