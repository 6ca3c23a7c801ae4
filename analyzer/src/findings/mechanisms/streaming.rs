//! Walks in order through more than the caches hold.

use crate::findings::cause::Cause;
use crate::findings::context::Context;
use crate::findings::mechanisms::{APART, Rule, Told, misses};
use crate::findings::params;
use crate::findings::sites::SiteFacts;
use mgz_annotations_schema::ProgramChange;

pub(crate) const STREAMING_RULE: Rule = Rule {
    kind: "streaming",
    name: "streaming through memory",
    claims,
    tell,
    python: "read the data less often: join operations (out=, in-place operators, numexpr or Numba), work in blocks that fit a cache, or use a smaller dtype",
    changes: &[ProgramChange::PrefetchStrided],
    ..Rule::PLAIN
};

fn claims(context: &Context, facts: &SiteFacts) -> Option<i64> {
    // A prefetcher gains nothing in short runs.
    if facts.short_runs().is_some() {
        return None;
    }
    let walks = facts.is_in_sequence()
        || facts.share_of_steps_within(params::MAX_STEP_BYTES_OF_STREAM)
            >= params::MIN_SHARE_OF_STREAM_STEPS
        || context.walks(facts.site);
    (walks && facts.has_steps_for_pattern()).then_some(APART)
}

fn tell(context: &Context, cause: &Cause) -> Told {
    let per_line = 1.0 / cause.first_touch_share().max(1e-3);
    let main = cause.sites.first().and_then(|s| context.sites.get(s));
    let order = match main.is_some_and(SiteFacts::takes_turns) {
        true => "several parts of memory are read in order and in turn",
        false => "memory is read in order",
    };
    Told {
        mechanism: format!(
            "{order}, {per_line:.0} loads a line",
        ),
        evidence: misses(context, cause),
        advice: "do more with the data while it is in a cache: join this loop with the one that makes or uses the same data, work in blocks, or make the elements smaller".into(),
        layout: None,
    }
}
