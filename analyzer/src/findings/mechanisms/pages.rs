//! Walks in which every step leads to a new page.

use crate::data::memory_units::PAGE_BYTES;
use crate::findings::cause::Cause;
use crate::findings::context::Context;
use crate::findings::mechanisms::{APART, Rule, Told, misses};
use crate::findings::sites::SiteFacts;
use crate::findings::unrolled;
use crate::util::human::bytes;
use mgz_annotations_schema::ProgramChange;

pub(super) const PAGES_RULE: Rule = Rule {
    kind: "pages",
    name: "a new page with each load",
    claims,
    tell,
    python: "walk along the last axis, or copy the part that is read into an array of its own (np.ascontiguousarray)",
    changes: &[ProgramChange::HugePages, ProgramChange::PrefetchStrided],
    ..Rule::PLAIN
};

fn claims(_: &Context, facts: &SiteFacts) -> Option<i64> {
    let step = facts.regular_step()?;
    (step.unsigned_abs() >= PAGE_BYTES && !facts.takes_turns()).then_some(APART)
}

fn tell(context: &Context, cause: &Cause) -> Told {
    let main = cause.sites.first().and_then(|s| context.sites.get(s));
    let step = main.map_or(0, |f| unrolled::row_step(context, f));
    Told {
        mechanism: format!(
            "the loop moves by {} and reaches a new page with each load; the pages cover at least {} of memory",
            bytes(step),
            bytes(context.seen(&cause.sites).extent),
        ),
        evidence: misses(context, cause),
        advice: "put what is used together onto the same pages (a smaller step, or a copy of the field that is read), or use 2 MiB pages (madvise MADV_HUGEPAGE, or an allocator that does)".into(),
        layout: None,
    }
}
