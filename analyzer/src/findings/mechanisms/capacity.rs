//! Data slightly larger than a cache that is read again and again.

use crate::findings::caches::Overlap;
use crate::findings::cause::Cause;
use crate::findings::context::Context;
use crate::findings::mechanisms::{Claim, Rule, Told};
use crate::findings::params;
use crate::findings::sites::SiteFacts;
use crate::util::human::bytes;

pub(super) const RULE: Rule = Rule {
    kind: "capacity",
    name: "working set just above a cache",
    claims,
    tell,
    comes_back: true,
    ..Rule::PLAIN
};

fn claims(context: &Context, facts: &SiteFacts) -> Option<Claim> {
    let step = facts
        .regular()
        .filter(|s| (1..=params::MAX_STEP_BYTES_OF_CAPACITY_WALK).contains(&s.unsigned_abs()))?;
    if facts.firsts < params::MIN_FIRST_TOUCHES_OF_CAPACITY || !context.is_frequent(facts) {
        return None;
    }
    let set = context.working_set(&[facts.site], Some(step));
    let level = context
        .caches
        .missed(set.bytes)
        .filter(|l| l.name != "L1")?;
    (set.bytes as f64 <= params::MAX_CAPACITY_SET_OVER_CACHE * level.bytes as f64)
        .then(|| Claim::new(Overlap::Prefetched))
}

fn tell(context: &Context, cause: &Cause) -> Told {
    let level = context.caches.missed(cause.set.bytes);
    let (name, size) = level.map_or(("cache", 0), |l| (l.name.as_str(), l.bytes));
    Told {
        finding: format!(
            "{} are gone through again and again, a little more than the {} of the {name}: each line is gone before it comes again",
            bytes(cause.set.bytes),
            bytes(size)
        ),
        advice: format!(
            "do more with each part while it is in the {name} (blocks of at most {}), or make the data smaller (narrower types, fields that are not used taken out)",
            bytes(size / 2)
        ),
        layout: None,
    }
}
