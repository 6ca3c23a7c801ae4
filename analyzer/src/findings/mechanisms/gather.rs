//! Gathers: the address of a load is computed from an index loaded from an array.

use crate::findings::cause::Cause;
use crate::findings::context::Context;
use crate::findings::mechanisms::{APART, Layout, Remedy, Rule, Told, huge_pages, misses};
use crate::findings::params;
use crate::findings::sites::SiteFacts;
use mgz_annotations_schema::ProgramChange;
use mgz_annotations_schema::sidecar::Origin;
use std::collections::BTreeMap;

pub(super) const GATHER_RULE: Rule = Rule {
    kind: "gather",
    name: "gather through an index array",
    claims,
    tell,
    python: "sort the indices so that neighbours come one after the other, take a slice instead of indices where that is possible, or use a smaller dtype",
    remedy: Remedy::OfCode("prefetch"),
    changes: &[ProgramChange::HugePages, ProgramChange::PrefetchGather],
    ..Rule::PLAIN
};

fn claims(context: &Context, facts: &SiteFacts) -> Option<i64> {
    let (Origin::Index, Some(_)) = context.root(facts.site) else {
        return None;
    };
    let in_order = facts.is_in_order() && facts.has_steps_for_pattern();
    (!in_order && !facts.is_in_sequence()).then_some(APART)
}

/// Number of objects that are read at the same positions by one index.
fn together(context: &Context, cause: &Cause) -> usize {
    let mut by_index: BTreeMap<u32, Vec<&SiteFacts>> = BTreeMap::new();
    for &site in &cause.sites {
        let Some(facts) = context.sites.get(&site) else {
            continue;
        };
        let (_, Some(from)) = context.origin(site) else {
            continue;
        };
        let others = by_index.entry(from).or_default();
        let is_new = others
            .iter()
            .all(|o| o.main_object() != facts.main_object());
        if facts.first_touch_share() > params::MIN_COLD_SHARE_OF_GATHERED_ARRAY && is_new {
            others.push(facts);
        }
    }
    let alike = |of: &Vec<&SiteFacts>| {
        let (first, others) = of.split_first()?;
        let same = |o: &&&SiteFacts| in_step(context, first.site, o.site);
        Some(1 + others.iter().filter(same).count())
    };
    by_index.values().filter_map(alike).max().unwrap_or(0)
}

/// True if two load instructions follow the same index. Then the ratio of their steps is fixed, as
/// that of their element sizes. Otherwise another index contributes to one of the addresses.
pub(super) fn in_step(context: &Context, one: u32, other: u32) -> bool {
    let mut ratios: BTreeMap<i64, usize> = BTreeMap::new();
    for of_window in (context.places_of(&[one, other])).chunk_by(|a, b| a.0 == b.0) {
        let rows = &context.windows[of_window[0].0 as usize].rows;
        let (mut at, mut before) = (None, None::<(u64, u64)>);
        for row in of_window.iter().map(|place| &rows[place.1 as usize]) {
            if row.site == one {
                at = Some(row.address);
                continue;
            }
            let Some(first) = at.take() else { continue };
            if let Some((a, b)) = before {
                let steps = [(first, a), (row.address, b)].map(|s| s.0.wrapping_sub(s.1) as i64);
                if steps[1] != 0 {
                    let ratio = steps[0] as f64 / steps[1] as f64 * params::STEP_RATIO_RESOLUTION;
                    *ratios.entry(ratio.round() as i64).or_default() += 1;
                }
            }
            before = Some((first, row.address));
        }
    }
    let all: usize = ratios.values().sum();
    let most = ratios.into_values().max().unwrap_or(0);
    all >= params::MIN_STEP_PAIRS_OF_GATHER
        && most as f64 >= params::MIN_SHARE_OF_SAME_STEP_RATIO * all as f64
}

fn tell(context: &Context, cause: &Cause) -> Told {
    let arrays = together(context, cause);
    let mechanism = "the address comes from an index that is loaded from an array".into();
    let evidence = misses(context, cause);
    if arrays > 1 {
        return Told {
            mechanism,
            evidence: format!("{evidence}; {arrays} arrays are read at each index"),
            advice: format!(
                "interleave the arrays (one structure per index), so that one line serves all {arrays} loads{}",
                huge_pages(context, cause)
            ),
            layout: Some(Layout::InterleavedArrays),
        };
    }
    Told {
        mechanism,
        evidence,
        advice: format!(
            "sort or renumber the indices so that neighbours come one after the other, process them in blocks of the target array, make its elements smaller, or prefetch some indices ahead{}",
            huge_pages(context, cause)
        ),
        layout: None,
    }
}
