//! Walks in order through more than the caches hold.

use crate::findings::caches::Overlap;
use crate::findings::cause::Cause;
use crate::findings::context::Context;
use crate::findings::mechanisms::{Claim, Rule, Told, over};
use crate::findings::params;
use crate::findings::sites::SiteFacts;

pub(crate) const RULE: Rule = Rule {
    kind: "streaming",
    name: "streaming through memory",
    claims,
    tell,
    comes_back: true,
    ..Rule::PLAIN
};

fn claims(context: &Context, facts: &SiteFacts) -> Option<Claim> {
    // A prefetcher does not get ahead of short runs.
    if facts.short_runs().is_some() {
        return None;
    }
    let walks = facts.near(params::MAX_STEP_BYTES_OF_STREAM) >= params::MIN_SHARE_OF_STREAM_STEPS
        || context.walks(facts.site);
    (walks && facts.has_steps_for_pattern()).then(|| Claim::new(Overlap::Prefetched))
}

fn tell(context: &Context, cause: &Cause) -> Told {
    let per_line = 1.0 / cause.cold().max(1e-3);
    Told {
        finding: format!(
            "memory is read in order, {per_line:.0} loads a line, {}: nothing is left in a cache when it is read again",
            over(context, cause)
        ),
        advice: "do more with the data while it is in a cache: join this loop with the one that makes or uses the same data, work in blocks, or make the elements smaller".into(),
        layout: None,
    }
}
