//! Wider nodes: a node has the elements of several lines, so that a list or tree has fewer nodes.

use crate::data::memory_units::LINE_BYTES;
use crate::findings::cause::Cause;
use crate::findings::context::Context;
use crate::findings::gains::Costs;
use crate::findings::spared::ALL_LEFT;
use crate::misses::Range;
use crate::util::fast_hash::Mixed;
use crate::what_if::element::nodes;
use crate::what_if::memory::NewMemory;
use crate::what_if::remedy::{Kind, Load, Remedy, Spec, Target};
use crate::what_if::target::{objects_meant, sites};
use std::collections::HashMap;

pub(crate) const WIDER_NODES: Kind = Kind {
    name: "wider-nodes",
    target: Target::Object,
    by: "",
    make,
};

/// Lines of a wide node. Source: Chosen, as processors fetch lines next to those that they need.
const LINES_OF_NODE: f64 = 4.0;
/// Share of a latency that a further line of the same node delays. Source: Chosen, as for
/// prefetched lines.
const WAIT_FOR_NEXT_LINE: f64 = 0.1;
/// Bytes of a pointer.
const POINTER_BYTES: f64 = 8.0;
/// More left waits than this are no gain. Source: Chosen.
const MAX_LEFT: f64 = 0.95;

struct WiderNodes {
    /// By load instruction: the part of its waits that is left.
    left: HashMap<u32, Range, Mixed>,
}

fn make(costs: &Costs, spec: &Spec) -> Result<Box<dyn Remedy>, String> {
    let context = &costs.context;
    let objects = objects_of(costs, &spec.target)?;
    let nodes = nodes(costs, &objects, &spec.target)?;
    let main = |cause: &Cause| {
        let of = cause.objects.iter().find(|o| nodes.contains_key(&o.0));
        of.map(|o| o.0)
    };
    let bytes = |object: u32| match nodes.get(&object) {
        Some(0) | None => context.objects.and_then(|o| o.largest(object)),
        element => element.copied(),
    };
    let chases = costs.causes.iter().filter(|c| c.rule.is_chained);
    let known: Vec<(&Cause, Range)> = chases
        .filter_map(|cause| {
            let bytes = bytes(main(cause)?)? as f64;
            match cause.rule.kind {
                "list" => Some((cause, left_of_list(bytes, lines_of_visit(context, cause)))),
                "tree" => Some((cause, left_of_tree(bytes, key_bytes(context, cause)))),
                _ => None,
            }
        })
        .collect();
    if known.is_empty() {
        return Err(format!(
            "{}: no load goes from node to node of a list or down a tree there",
            spec.target
        ));
    }
    let gaining = known.into_iter().filter(|k| k.1[1] < MAX_LEFT);
    let left: HashMap<u32, Range, Mixed> = gaining
        .flat_map(|(cause, left)| cause.sites.iter().map(move |&site| (site, left)))
        .collect();
    match left.is_empty() {
        true => Err(format!(
            "{}: its nodes have several lines already, so wider ones save nothing",
            spec.target
        )),
        false => Ok(Box::new(WiderNodes { left })),
    }
}

/// The named objects, or those that the named code reads.
fn objects_of(costs: &Costs, target: &str) -> Result<Vec<u32>, String> {
    objects_meant(costs, target).or_else(|why| {
        let found = sites(costs, target).map_err(|_| why)?;
        let mut objects: Vec<u32> = found.iter().map(|f| f.main_object()).collect();
        objects.sort_unstable();
        objects.dedup();
        Ok(objects)
    })
}

/// Mean number of new lines that a visit to a node reads.
fn lines_of_visit(context: &Context, cause: &Cause) -> f64 {
    let (mut visits, mut firsts) = (0u64, 0u64);
    for (window, at) in context.places_of(&cause.sites) {
        let row = &context.windows[window as usize].rows[at as usize];
        // A load instruction that comes again is at the next node.
        visits += u64::from(cause.sites.first() == Some(&row.site));
        firsts += u64::from(row.first);
    }
    (firsts as f64 / visits.max(1) as f64).clamp(f64::MIN_POSITIVE, 1.0)
}

/// Bytes of the smallest loads of a descent, as its keys may be.
fn key_bytes(context: &Context, cause: &Cause) -> f64 {
    let sizes = cause.sites.iter().filter_map(|s| context.sites.get(s));
    f64::from(sizes.map(|f| f.size).min().unwrap_or(8).clamp(4, 64))
}

/// The part of the waits that is left if a list's nodes of `bytes` share wide nodes. `lines`: new
/// lines per visit now. Most is left if a wide node has one line.
fn left_of_list(bytes: f64, lines: f64) -> Range {
    let element = (bytes - POINTER_BYTES).max(1.0);
    let elements = |lines: f64| ((lines * LINE_BYTES as f64 - POINTER_BYTES) / element).max(1.0);
    let wait = 1.0 + (LINES_OF_NODE - 1.0) * WAIT_FOR_NEXT_LINE;
    let [least, value, most] = [
        1.0 / elements(LINES_OF_NODE),
        wait / elements(LINES_OF_NODE),
        1.0 / elements(1.0),
    ];
    sorted([least, value, most.max(value)].map(|part| part / lines))
}

/// The part of the waits that is left if a binary tree's nodes of `bytes` have many keys. At best,
/// keys of `key` bytes are apart from pointers and values. At worst, a wide node has one line.
fn left_of_tree(bytes: f64, key: f64) -> Range {
    let entry = (bytes - POINTER_BYTES).max(2.0 * POINTER_BYTES);
    let levels = |lines: f64, entry: f64| (1.0 + lines * LINE_BYTES as f64 / entry).log2();
    sorted([
        1.0 / levels(LINES_OF_NODE, key),
        1.0 / levels(LINES_OF_NODE, entry),
        1.0 / levels(1.0, entry),
    ])
}

/// Parts of at most 1.
fn sorted(parts: Range) -> Range {
    let [least, value, most] = parts.map(|part| part.min(1.0));
    [least.min(value), value, most.max(value)]
}

impl Remedy for WiderNodes {
    fn apply(&self, _process: u32, _loads: &mut [Load], _memory: &NewMemory) {}

    fn moves(&self) -> bool {
        false
    }

    fn left(&self, site: u32) -> Range {
        self.left.get(&site).copied().unwrap_or(ALL_LEFT)
    }

    fn limits(&self) -> Vec<String> {
        vec![
            "A wide node has four lines, of which the first is waited for; the lower end has nodes of one line.".into(),
            "Caches hold as large a part of the nodes as before, and insertions take the same time.".into(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::what_if::simulated::{block, moved};

    #[test]
    fn small_elements_share_a_node_and_large_ones_do_not() {
        let [least, value, most] = left_of_list(16.0, 1.0);
        assert!((most - 1.0 / 7.0).abs() < 1e-9, "{most}");
        assert!(least < value && value < most && value < 0.05, "{value}");
        assert_eq!(left_of_list(512.0, 1.0)[1], 1.0);
        // Nodes that lie next to each other share lines already.
        assert!(left_of_list(16.0, 0.25)[1] > 3.9 * value);
    }

    #[test]
    fn a_tree_has_fewer_levels() {
        let [least, value, most] = left_of_tree(32.0, 8.0);
        assert!((least - 1.0 / 33f64.log2()).abs() < 1e-9, "{least}");
        assert!(
            least < value && value < most && most < 1.0,
            "{value} {most}"
        );
        assert_eq!(left_of_tree(1000.0, 8.0)[1], 1.0);
    }

    #[test]
    fn addresses_stay() {
        let walk = block((0..100).map(|i| i * 16), 1600);
        let remedy = WiderNodes {
            left: [(1, [0.1, 0.2, 0.3])].into_iter().collect(),
        };
        assert_eq!(moved(&remedy, &walk), walk);
        assert_eq!(
            (remedy.left(1), remedy.left(2)),
            ([0.1, 0.2, 0.3], ALL_LEFT)
        );
    }
}
