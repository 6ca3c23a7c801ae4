//! Interleave: arrays that are read at one index become one array of structures.

use crate::data::object_map::Recent;
use crate::findings::gains::Costs;
use crate::util::fast_hash::Mixed;
use crate::what_if::memory::NewMemory;
use crate::what_if::remedy::{Kind, Load, Remedy, Spec, Target};
use crate::what_if::replay::load;
use crate::what_if::target::objects_named;
use mgz_annotations_schema::lock::locked;
use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

pub(crate) const INTERLEAVE: Kind = Kind {
    name: "interleave",
    target: Target::Object,
    by: "",
    make,
};

/// An array that becomes a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Array {
    /// Bytes of an element.
    element: u64,
    /// Number of elements.
    count: u64,
    /// Bytes from the begin of the structure.
    offset: u64,
}

struct Interleave {
    /// By process and first address.
    arrays: BTreeMap<(u32, u64), Array>,
    /// Bytes of the structure.
    stride: u64,
    /// The new array of each process.
    taken: Mutex<HashMap<u32, u64, Mixed>>,
}

fn make(costs: &Costs, spec: &Spec) -> Result<Box<dyn Remedy>, String> {
    let found = objects_named(costs, &spec.target)?;
    let context = &costs.context;
    // By process and first address: bytes of the block, and number of loads by size.
    let mut blocks: BTreeMap<(u32, u64), (u64, BTreeMap<u64, u64>)> = BTreeMap::new();
    let mut recent = Recent::default();
    for window in context.windows {
        for row in &window.rows {
            let place = (window.process, row.address, window.time);
            let load = load(context.objects, &mut recent, place, row.site);
            if !found.contains(&load.object) || load.bytes == 0 {
                continue;
            }
            let size = context
                .sites
                .get(&row.site)
                .map_or(0, |f| u64::from(f.size));
            let block = blocks.entry((window.process, load.start)).or_default();
            block.0 = load.bytes;
            *block.1.entry(size.max(1)).or_default() += 1;
        }
    }
    let arrays = blocks.into_iter().map(|(place, (bytes, sizes))| {
        let most = sizes.into_iter().max_by_key(|&(size, n)| (n, size));
        let element = most.map_or(1, |m| m.0);
        (place, (element, bytes / element))
    });
    Interleave::new(arrays.collect())
        .map(|remedy| Box::new(remedy) as Box<dyn Remedy>)
        .ok_or_else(|| {
            format!(
                "{}: there are no two arrays of one length to interleave; name several objects by a common part of their names or types, and record with mgz run --heap",
                spec.target
            )
        })
}

impl Interleave {
    /// Joins the arrays (bytes and number of elements) of the most frequent length. None if there
    /// are fewer than two.
    fn new(found: BTreeMap<(u32, u64), (u64, u64)>) -> Option<Interleave> {
        let mut lengths: BTreeMap<(u32, u64), u64> = BTreeMap::new();
        for (&(process, _), &(_, count)) in &found {
            *lengths.entry((process, count)).or_default() += 1;
        }
        let (&(_, length), &arrays) = lengths.iter().max_by_key(|&(l, n)| (n, l.1))?;
        if arrays < 2 {
            return None;
        }
        let (mut joined, mut ends) = (BTreeMap::new(), BTreeMap::new());
        for (place, (element, count)) in found.into_iter().filter(|f| f.1.1 == length) {
            let end: &mut u64 = ends.entry(place.0).or_default();
            let offset = end.next_multiple_of(element);
            *end = offset + element;
            let array = Array {
                element,
                count,
                offset,
            };
            joined.insert(place, array);
        }
        let widest = joined.values().map(|a| a.element).max()?;
        let stride = ends.into_values().max()?.next_multiple_of(widest);
        Some(Interleave {
            arrays: joined,
            stride,
            taken: Mutex::default(),
        })
    }
}

impl Remedy for Interleave {
    fn apply(&self, process: u32, loads: &mut [Load], memory: &NewMemory) {
        let mut taken = locked(&self.taken);
        for load in loads {
            let Some(array) = self.arrays.get(&(process, load.start)) else {
                continue;
            };
            let (index, into) = (load.offset() / array.element, load.offset() % array.element);
            if index >= array.count {
                continue;
            }
            let bytes = array.count * self.stride;
            let start = *taken
                .entry(process)
                .or_insert_with(|| memory.take(load.object, bytes, 0).unwrap_or(load.start));
            load.address = start + index * self.stride + array.offset + into;
            (load.start, load.bytes) = (start, bytes);
        }
    }

    fn limits(&self) -> Vec<String> {
        vec![
            "All arrays of the name that have one length are joined.".into(),
            "Vector instructions that the old layout allows are kept.".into(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::what_if::simulated::{line_misses, moved};

    #[test]
    fn words_at_one_index_share_a_line() {
        let starts = [0x10_0000_u64, 0x20_0000, 0x30_0000];
        let walk: Vec<Load> = (0..1000u64)
            .flat_map(|i| starts.map(|start| (start, i * 617 % 1000 * 8)))
            .map(|(start, offset)| Load {
                address: start + offset,
                site: 1,
                object: 1,
                start,
                bytes: 8000,
            })
            .collect();
        let found = starts.iter().map(|&s| ((1, s), (8, 1000))).collect();
        let remedy = Interleave::new(found).unwrap();
        assert_eq!(remedy.stride, 24);
        let after = moved(&remedy, &walk);
        assert_eq!(after[1].address - after[0].address, 8);
        assert!(2 * line_misses(&after, 8) < line_misses(&walk, 8));
        let one = [((1, 7), (8, 1000)), ((1, 9), (8, 999))].into();
        assert!(Interleave::new(one).is_none());
    }
}
