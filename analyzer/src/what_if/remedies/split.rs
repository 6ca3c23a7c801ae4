//! Split: each field of an array of structures moves to a separate array.

use crate::findings::fields::Fields;
use crate::findings::gains::Costs;
use crate::what_if::element::{Layouts, Place, field_ranges, layouts, part_at};
use crate::what_if::memory::NewMemory;
use crate::what_if::remedy::{Kind, Load, Remedy, Spec, Target};
use crate::what_if::target::objects_named;
use std::collections::BTreeMap;

pub(crate) const SPLIT: Kind = Kind {
    name: "split",
    target: Target::Object,
    by: "",
    make,
};

struct Split {
    /// By object: bytes of an element, and its parts.
    elements: BTreeMap<u32, (u64, Vec<(u64, u64)>)>,
}

fn make(costs: &Costs, spec: &Spec) -> Result<Box<dyn Remedy>, String> {
    let found = objects_named(costs, &spec.target)?;
    Ok(Box::new(Split::new(layouts(costs, &found, &spec.target)?)))
}

impl Split {
    fn new(layouts: Layouts) -> Split {
        let of =
            |(object, fields): (u32, Fields)| (object, (fields.element, field_ranges(&fields)));
        Split {
            elements: layouts.into_iter().map(of).collect(),
        }
    }
}

impl Remedy for Split {
    fn apply(&self, _process: u32, loads: &mut [Load], _memory: &NewMemory) {
        for load in loads {
            let Some((element, parts)) = self.elements.get(&load.object) else {
                continue;
            };
            let Some(place) = Place::of(load, *element) else {
                continue;
            };
            let Some((part, into)) = part_at(parts, place.offset) else {
                continue;
            };
            let (begin, bytes) = parts[part];
            // The arrays are in the old block, one after the other.
            load.address = place.first + begin * place.count + place.index * bytes + into;
        }
    }

    fn limits(&self) -> Vec<String> {
        vec![
            "Fields are those that the windows have loads of.".into(),
            "Blocks of one element stay as they are; hot-cold and pool are for these.".into(),
            "Vector instructions that the new layout allows are left out.".into(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::what_if::element::fields;
    use crate::what_if::simulated::{BLOCK, block, line_misses, moved};

    #[test]
    fn a_walk_through_one_field_reads_only_its_array() {
        let layout = fields(64, &[(0, 8, 10), (24, 8, 10)]);
        let remedy = Split::new([(1, layout)].into());
        // The second field of 4096 structures.
        let walk = block((0..4096).map(|i| i * 64 + 24), 4096 * 64);
        let after = moved(&remedy, &walk);
        assert_eq!(after[0].address, BLOCK + 24 * 4096);
        assert_eq!(after[1].address - after[0].address, 8);
        assert_eq!(
            (line_misses(&walk, 64), line_misses(&after, 64)),
            (4096, 512)
        );
        // Each address of a field moves to a distinct place inside the block.
        let all = block((0..4096 * 8).map(|i| i * 8), 4096 * 64);
        let mut places: Vec<u64> = moved(&remedy, &all)
            .iter()
            .zip(&all)
            .filter(|(new, old)| matches!(old.offset() % 64, 0 | 24) && new.offset() < 4096 * 64)
            .map(|(new, _)| new.address)
            .collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), 2 * 4096);
    }
}
