//! Order in which a chase visits nodes. It distinguishes lists, trees and chains if the data flow
//! of one function does not.

use crate::data::memory_units::CacheLine;
use crate::findings::context::Context;
use crate::findings::params;
use crate::findings::sites::SiteFacts;
use crate::util::fast_hash::Mixed;
use mgz_annotations_schema::sidecar::Origin;
use std::collections::{BTreeMap, HashMap};

/// True if a load takes addresses of nodes from a stack of nodes to visit. `from` is the load from
/// the stack. (A walk through an array of pointers never goes back.)
pub(super) fn come_from_stack(context: &Context, facts: &SiteFacts, from: u32) -> bool {
    let stack = context.sites.get(&from);
    stack.is_some_and(SiteFacts::is_stack) && !facts.is_in_order() && !facts.is_in_sequence()
}

/// True if one of several links leads to most of the nodes: a list of siblings, each with its own
/// children. `link` is one of the links.
pub(super) fn follow_one_link(context: &Context, link: u32) -> bool {
    let part = |site: u32| {
        let facts = context.sites.get(&site)?;
        Some((
            context.users.region(facts.group.piece()).0,
            facts.main_object(),
        ))
    };
    let own = part(link);
    let is_link = |s: &u32| context.origin(*s).0 == Origin::Tree && part(*s) == own;
    let links: Vec<u32> = context.sites.keys().copied().filter(is_link).collect();
    // By link: the number of nodes that were visited next.
    let mut next: BTreeMap<u32, u64> = BTreeMap::new();
    for of_window in context.places_of(&links).chunk_by(|a, b| a.0 == b.0) {
        let rows = &context.windows[of_window[0].0 as usize].rows;
        for pair in of_window.windows(2) {
            let [last, row] = [pair[0], pair[1]].map(|place| &rows[place.1 as usize]);
            if last.address.abs_diff(row.address) >= params::MAX_BYTES_TO_CHASE {
                *next.entry(last.site).or_default() += 1;
            }
        }
    }
    let all: u64 = next.values().sum();
    let most = next.values().max().copied().unwrap_or(0) as f64;
    // If a comparison selects one of two loaded links, the link loaded last seems to be the only
    // one.
    all > 0 && params::SHARE_OF_MAIN_LINK.contains(&(most / all as f64))
}

/// True if a chase with one link descends a tree: it reads several children of a node in sequence,
/// or it passes through the same first nodes repeatedly.
pub(super) fn descend(context: &Context, link: u32) -> bool {
    let Some(facts) = context.sites.get(&link) else {
        return false;
    };
    let beside = facts.step_share(i64::from(facts.size));
    if params::SHARE_OF_CHILD_STEPS.contains(&beside) {
        return true;
    }
    let windows = visited_lines(addresses(context, link));
    let has_root = |lines: &&VisitedLines| {
        let (most, mean) = most_and_mean(lines);
        most >= params::MIN_VISITS_OF_ROOT_OVER_MEAN * mean
    };
    2 * windows.iter().filter(has_root).count() > windows.len()
}

/// True if a load begins at the same place again and again, as the searches of an array begin in
/// its middle. A walk over all nodes of a tree visits its root once.
pub(super) fn begin_again(context: &Context, site: u32) -> bool {
    have_middle(&visited_lines(addresses(context, site)))
}

fn have_middle(windows: &[VisitedLines]) -> bool {
    let (most, mean) = (windows.iter().map(most_and_mean))
        .fold((0.0, 0.0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
    most >= params::MIN_VISITS_OF_MIDDLE_OVER_MEAN * mean
}

/// Number of visits by line, in one window.
type VisitedLines = HashMap<CacheLine, u64, Mixed>;

/// The addresses of a load, each with its window.
fn addresses(context: &Context, site: u32) -> impl Iterator<Item = (u32, u64)> {
    context
        .rows_of(site)
        .map(|(window, row)| (window, row.address))
}

/// The visited lines by window.
fn visited_lines(addresses: impl Iterator<Item = (u32, u64)>) -> Vec<VisitedLines> {
    let mut by_window: BTreeMap<u32, VisitedLines> = BTreeMap::new();
    for (window, address) in addresses {
        let lines = by_window.entry(window).or_default();
        *lines.entry(CacheLine::of(address)).or_default() += 1;
    }
    by_window.into_values().collect()
}

/// Visits of the line that is visited most, and of an average line.
fn most_and_mean(lines: &VisitedLines) -> (f64, f64) {
    let most = lines.values().max().copied().unwrap_or(0) as f64;
    let mean = lines.values().sum::<u64>() as f64 / lines.len().max(1) as f64;
    (most, mean)
}

/// Functions of allocators. They look up a list of blocks by the block's size, also for each node of a
/// list that is freed.
const ALLOCATORS: [&str; 14] = [
    "malloc",
    "calloc",
    "realloc",
    "free",
    "cfree",
    "_int_malloc",
    "_int_free",
    "_int_free_chunk",
    "_int_free_merge_chunk",
    "operator new",
    "operator delete",
    "__rdl_alloc",
    "__rdl_dealloc",
    "mi_free",
];

/// True if a chain begins after look-ups in a hash table by other code: between two of them the
/// chain continues for some nodes.
pub(super) fn begin_in_table(context: &Context, link: u32) -> bool {
    let is_of_allocator = |site: u32| {
        let facts = context.sites.get(&site);
        facts.is_some_and(|facts| context.is_function(facts, &ALLOCATORS))
    };
    let is_hash = |site: u32| context.origin(site).0 == Origin::Hash && !is_of_allocator(site);
    let (mut rows, mut begins) = (0u64, 0u64);
    for (window, row) in context.places_of(&[link]) {
        let before = &context.windows[window as usize].rows[..row as usize];
        let near = before.iter().rev().take(params::MAX_ROWS_FROM_TABLE);
        rows += 1;
        let mut near = near.take_while(|r| r.site != link);
        begins += u64::from(near.any(|r| is_hash(r.site)));
    }
    let length = rows as f64 / begins.max(1) as f64;
    begins >= params::MIN_STEPS_FOR_PATTERN && params::NODES_OF_CHAIN.contains(&length)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nodes of a tree in the order in which a recursive sum visits them. Children lie before their
    /// parents, so each step to a left child halves the step before.
    fn walk(end: u64, height: u32, visited: &mut Vec<u64>) {
        visited.push(end);
        if height > 1 {
            let below = (1 << (height - 1)) - 1;
            walk(end - 1 - below, height - 1, visited);
            walk(end - 1, height - 1, visited);
        }
    }

    #[test]
    fn searches_begin_again_and_walks_of_trees_do_not() {
        let mut nodes = Vec::new();
        walk(1 << 20, 14, &mut nodes);
        let in_windows = |places: &[u64], bytes: u64| {
            let of_window = |(window, part): (usize, &[u64])| {
                let rows = part.iter().map(|place| (window as u32, place * bytes));
                rows.collect::<Vec<_>>()
            };
            visited_lines(places.chunks(300).enumerate().flat_map(of_window))
        };
        assert!(!have_middle(&in_windows(&nodes, 24)));
        let search = |key: u64| {
            (0..20).map(move |level| {
                let left = 20 - level;
                ((key >> left) << left) + (1 << left) / 2
            })
        };
        let keys = (0..100u64).map(|key| key * 27_113 % (1 << 20));
        let places: Vec<u64> = keys.flat_map(search).collect();
        assert!(have_middle(&in_windows(&places, 8)));
        // A small tree whose nodes are all visited equally often.
        let small: Vec<u64> = (0..20).flat_map(|_| nodes[..16].to_vec()).collect();
        assert!(!have_middle(&in_windows(&small, 64)));
    }
}
