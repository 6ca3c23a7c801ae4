//! Data slightly larger than a cache that is read repeatedly.

use crate::findings::cause::Cause;
use crate::findings::context::Context;
use crate::findings::mechanisms::{APART, Remedy, Rule, Told, misses};
use crate::findings::params;
use crate::findings::sites::SiteFacts;
use crate::util::human::bytes;
use mgz_annotations_schema::ProgramChange;

pub(super) const CAPACITY_RULE: Rule = Rule {
    kind: "capacity",
    name: "working set just above a cache",
    claims,
    tell,
    python: "work in blocks that fit a cache, or use a smaller dtype",
    remedy: Remedy::OfCode("block"),
    changes: &[ProgramChange::PrefetchStrided],
    ..Rule::PLAIN
};

fn claims(context: &Context, facts: &SiteFacts) -> Option<i64> {
    facts
        .regular_step()
        .filter(|s| (1..=params::MAX_STEP_BYTES_OF_CAPACITY_WALK).contains(&s.unsigned_abs()))?;
    if !context.is_frequent(facts) {
        return None;
    }
    let level = context
        .prices
        .of(&[facts.site], &[facts.group], false)
        .level;
    let cache = context
        .prices
        .hierarchy
        .caches
        .get(level.filter(|l| *l > 0)?)?;
    let seen = context.seen(&[facts.site]);
    let comes_again = seen.again as f64 >= params::MIN_SHARE_OF_LINES_AGAIN * seen.lines as f64;
    (comes_again && is_just_above(seen.extent, cache.size)).then_some(APART)
}

/// True if an extent is greater than a cache, but not by much. An extent that windows have seen is a
/// lower bound. One below the cache's size shows no working set above it.
fn is_just_above(extent: u64, cache: u64) -> bool {
    let most = params::MAX_CAPACITY_EXTENT_OVER_CACHE * cache as f64;
    extent > cache && extent as f64 <= most
}

fn tell(context: &Context, cause: &Cause) -> Told {
    let level = cause.price.level.unwrap_or(0);
    let name = context.prices.name(level);
    let size = context
        .prices
        .hierarchy
        .caches
        .get(level)
        .map_or(0, |c| c.size);
    Told {
        mechanism: format!(
            "{} are read again and again, a little more than the {name} holds",
            bytes(context.seen(&cause.sites).extent),
        ),
        evidence: misses(context, cause),
        advice: format!(
            "do more with each part while it is in the {name} (blocks of at most {}), or make the data smaller (narrower types, fields that are not used taken out)",
            bytes(size / 2)
        ),
        layout: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_working_set_below_the_cache_is_not_just_above_it() {
        const MIB: u64 = 1 << 20;
        assert!(!is_just_above(4 * MIB, 11 * MIB));
        assert!(is_just_above(12 * MIB, 11 * MIB));
        assert!(!is_just_above(40 * MIB, 11 * MIB));
    }
}
