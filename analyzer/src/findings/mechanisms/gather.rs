//! Gathers: an index that is loaded from an array says where to load.

use crate::findings::caches::Overlap;
use crate::findings::cause::Cause;
use crate::findings::context::Context;
use crate::findings::mechanisms::{Claim, Rule, Told, cold, huge_pages, over};
use crate::findings::sites::SiteFacts;
use mgz_annotations_schema::sidecar::Origin;

pub(super) const RULE: Rule = Rule {
    kind: "gather",
    name: "gather through an index array",
    claims,
    tell,
};

fn claims(context: &Context, facts: &SiteFacts) -> Option<Claim> {
    let (Origin::Index, Some(from)) = context.root(facts.site) else {
        return None;
    };
    if facts.near(64) >= 0.8 && facts.steps() >= 8 {
        return None;
    }
    let _ = from;
    Some(Claim::new(Overlap::Some))
}

/// Objects that are each read as often, with one index.
fn together(context: &Context, cause: &Cause) -> usize {
    let mut by_index: std::collections::BTreeMap<u32, Vec<u32>> = Default::default();
    // What holds the index of another is none of them.
    let indices: Vec<u32> = (context.sites.keys())
        .filter_map(|&site| match context.origin(site) {
            (Origin::Index, from) => from,
            _ => None,
        })
        .collect();
    for &site in cause.sites.iter().filter(|s| !indices.contains(s)) {
        let Some(facts) = context.sites.get(&site) else {
            continue;
        };
        let (_, Some(from)) = context.origin(site) else {
            continue;
        };
        let objects = by_index.entry(from).or_default();
        if facts.cold() > 0.2 && !objects.contains(&facts.object()) {
            objects.push(facts.object());
        }
    }
    by_index.values().map(Vec::len).max().unwrap_or(0)
}

fn tell(context: &Context, cause: &Cause) -> Told {
    let arrays = together(context, cause);
    let finding = format!(
        "an index that is loaded from an array says where to load; {}, {}",
        cold(cause),
        over(context, cause)
    );
    if arrays > 1 {
        return Told {
            finding: format!("{finding}; {arrays} arrays are read at each index"),
            advice: format!(
                "interleave the arrays (one structure per index), so that one line serves all {arrays} loads{}",
                huge_pages(cause)
            ),
        };
    }
    Told {
        finding,
        advice: format!(
            "sort or renumber the indices so that neighbours come one after the other, process them in blocks of the target array, make its elements smaller, or prefetch some indices ahead{}",
            huge_pages(cause)
        ),
    }
}
