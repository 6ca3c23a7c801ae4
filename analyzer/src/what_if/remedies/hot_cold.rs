//! Hot and cold parts: the fields that loads read often are moved away from the others.

use crate::findings::fields::Fields;
use crate::findings::gains::Costs;
use crate::util::fast_hash::Mixed;
use crate::what_if::element::{Layouts, Node, Nodes, field_ranges, layouts, nodes, part_at};
use crate::what_if::memory::NewMemory;
use crate::what_if::remedy::{Kind, Load, Remedy, Spec, Target};
use crate::what_if::target::objects_named;
use mgz_annotations_schema::lock::locked;
use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

pub(crate) const HOT_COLD: Kind = Kind {
    name: "hot-cold",
    target: Target::Object,
    by: "",
    make,
};

/// A field is hot if it has at least this share of the loads of the hottest field. Source: Chosen.
const MIN_SHARE_OF_HOTTEST: f64 = 0.2;
/// Maximum number of elements of a part. This only takes address space, not memory.
const SLOTS: u64 = 1 << 30;
/// Bytes that an allocator adds to a block, and the unit of its sizes. Source: glibc's malloc.
const HEADER_BYTES: u64 = 8;
const BLOCK_UNIT: u64 = 16;

/// Parts of an element: for each, its begin, bytes, new begin, and whether it is hot.
struct Halves {
    parts: Vec<(u64, u64)>,
    moved: Vec<(u64, bool)>,
    /// Bytes of the cold and of the hot half.
    bytes: [u64; 2],
}

struct HotCold {
    nodes: Nodes,
    halves: BTreeMap<u32, Halves>,
    /// By process and object: first address of the cold and of the hot halves.
    taken: Mutex<HashMap<(u32, u32), Option<[u64; 2]>, Mixed>>,
}

fn make(costs: &Costs, spec: &Spec) -> Result<Box<dyn Remedy>, String> {
    let found = objects_named(costs, &spec.target)?;
    let layouts = layouts(costs, &found, &spec.target)?;
    let mut nodes = nodes(costs, &found, &spec.target)?;
    nodes.retain(|object, _| layouts.contains_key(object));
    Ok(Box::new(HotCold::new(nodes, layouts)))
}

impl HotCold {
    fn new(nodes: Nodes, layouts: Layouts) -> HotCold {
        let of = |(object, fields): (u32, Fields)| (object, Halves::new(&fields));
        HotCold {
            nodes,
            halves: layouts.into_iter().map(of).collect(),
            taken: Mutex::default(),
        }
    }
}

impl Halves {
    fn new(fields: &Fields) -> Halves {
        let parts = field_ranges(fields);
        let mut rows = vec![0u64; parts.len()];
        for field in &fields.list {
            if let Some((part, _)) = part_at(&parts, field.offset) {
                rows[part] += field.rows;
            }
        }
        let most = rows.iter().copied().max().unwrap_or(0) as f64;
        let mut bytes = [0u64; 2];
        let mut moved = Vec::new();
        for (part, rows) in parts.iter().zip(rows) {
            let is_hot = rows as f64 >= MIN_SHARE_OF_HOTTEST * most;
            let end = &mut bytes[usize::from(is_hot)];
            let begin = end.next_multiple_of(1 << part.1.trailing_zeros().min(3));
            moved.push((begin, is_hot));
            *end = begin + part.1;
        }
        // Bytes without loads are cold.
        let unread = fields.element.saturating_sub(bytes[0] + bytes[1]);
        Halves {
            parts,
            moved,
            bytes: [bytes[0] + unread, bytes[1]].map(|b| b.next_multiple_of(8).max(8)),
        }
    }
}

impl Remedy for HotCold {
    fn apply(&self, process: u32, loads: &mut [Load], memory: &NewMemory) {
        let mut taken = locked(&self.taken);
        for load in loads {
            let halves = self.halves.get(&load.object);
            let Some((halves, node)) = halves.zip(Node::of(load, &self.nodes)) else {
                continue;
            };
            let Some((part, into)) = part_at(&halves.parts, node.offset) else {
                continue;
            };
            let starts = *taken.entry((process, load.object)).or_insert_with(|| {
                let [cold, hot] = halves.bytes.map(|b| memory.take(load.object, SLOTS * b, 0));
                Some([cold?, hot?])
            });
            let Some(starts) = starts else { continue };
            let (begin, is_hot) = halves.moved[part];
            let half = usize::from(is_hot);
            // Separate blocks have gaps between them. Elements of an array have none.
            let step = match load.bytes < 2 * node.bytes {
                true => (node.bytes + HEADER_BYTES).next_multiple_of(BLOCK_UNIT),
                false => node.bytes,
            };
            // Elements of an array may begin at any address. Two elements always have different
            // slots.
            let slot = node.start / step % SLOTS;
            let start = starts[half] + slot * halves.bytes[half];
            load.address = start + begin + into;
            (load.start, load.bytes) = (start, halves.bytes[half]);
        }
    }

    fn limits(&self) -> Vec<String> {
        vec![
            "Fields are those that the windows have loads of; the hot ones have at least a fifth of the loads of the hottest.".into(),
            "The index or pointer that leads to the cold part takes no room.".into(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::what_if::element::fields;
    use crate::what_if::simulated::{block, line_misses, moved};

    fn remedy(element: u64) -> HotCold {
        let layout = fields(64, &[(0, 8, 100), (8, 8, 1), (56, 8, 60)]);
        HotCold::new([(1, element)].into(), [(1, layout)].into())
    }

    #[test]
    fn the_hot_half_of_an_array_is_dense() {
        let walk = block((0..4096u64).map(|i| i * 64), 4096 * 64);
        let after = moved(&remedy(64), &walk);
        assert_eq!(
            (line_misses(&walk, 64), line_misses(&after, 64)),
            (4096, 1024)
        );
        let cold = block([8].into_iter(), 4096 * 64);
        let cold = moved(&remedy(64), &cold);
        assert_ne!(cold[0].address.abs_diff(after[0].address) >> 30, 0);
    }

    #[test]
    fn blocks_that_follow_one_another_have_dense_hot_halves() {
        let mut walk = block((0..4096u64).map(|i| i * 80), 64);
        for load in &mut walk {
            load.start = load.address;
        }
        let after = moved(&remedy(64), &walk);
        let misses = line_misses(&after, 64);
        assert!((1024..=1025).contains(&misses), "{misses}");
    }
}
