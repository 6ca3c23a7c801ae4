//! Look-ups in a table at a position that is computed from a key, or at random. The key is stored
//! in the table itself.

use crate::findings::cause::Cause;
use crate::findings::context::Context;
use crate::findings::mechanisms::{APART, Remedy, Rule, Told, huge_pages, misses};
use crate::findings::sites::SiteFacts;
use mgz_annotations_schema::ProgramChange;
use mgz_annotations_schema::sidecar::Origin;

pub(super) const HASH_RULE: Rule = Rule {
    kind: "hash_table",
    name: "look-ups at computed places, as in a hash table",
    claims,
    tell,
    python: "look up less: smaller keys (integers instead of strings or tuples), each key once; or sort both sides and let NumPy look up all keys at once (np.searchsorted, np.isin)",
    remedy: Remedy::OfCode("prefetch"),
    changes: &[ProgramChange::HugePages, ProgramChange::PrefetchAuto],
    ..Rule::PLAIN
};

/// Names in the code of well-known tables with open addressing.
const TABLES: [&str; 6] = [
    "raw_hash_set",
    "flat_hash_map",
    "robin_hood",
    "unordered_dense",
    "dense_hashtable",
    "F14Table",
];
/// Generic parameters of Rust's tables. Their functions have common names.
const RUST: [&str; 3] = [
    "hashbrown::map::equivalent_key",
    "hashbrown::map::make_hasher",
    "hashbrown::rustc_entry",
];

fn claims(context: &Context, facts: &SiteFacts) -> Option<i64> {
    // These tables find positions by groups of tags, which look like an index, or by calls that
    // hash.
    let is_known = || context.is_named(facts, &TABLES) || context.is_made_with(facts, &RUST);
    let hashed = matches!(context.root(facts.site).0, Origin::Hash) || is_known();
    (hashed && !facts.is_in_order() && !facts.is_in_sequence()).then_some(APART)
}

fn tell(context: &Context, cause: &Cause) -> Told {
    Told {
        mechanism: "each load is at a place that is computed from a key, without an order that a prefetcher could follow".into(),
        evidence: misses(context, cause),
        advice: format!(
            "make the table smaller (smaller keys, values kept elsewhere, a filter in front of it), or sort or batch the keys and prefetch the places ahead{}",
            huge_pages(context, cause)
        ),
        layout: None,
    }
}
