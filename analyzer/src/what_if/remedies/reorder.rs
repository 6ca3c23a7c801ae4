//! Reorder: the fields with the most loads come first in the element, whose size does not change.

use crate::findings::fields::Fields;
use crate::findings::gains::Costs;
use crate::what_if::element::{Layouts, Place, field_ranges, layouts, part_at};
use crate::what_if::memory::NewMemory;
use crate::what_if::remedy::{Kind, Load, Remedy, Spec, Target};
use crate::what_if::target::objects_named;
use std::collections::BTreeMap;

pub(crate) const REORDER: Kind = Kind {
    name: "reorder",
    target: Target::Object,
    by: "",
    make,
};

/// New order of an element's parts.
pub(super) struct FieldOrder {
    /// Bytes of an element in the old order.
    element: u64,
    parts: Vec<(u64, u64)>,
    /// New offset of each part.
    offsets: Vec<u64>,
    /// Total bytes of the parts, with gaps for alignment.
    pub(super) bytes: u64,
}

impl FieldOrder {
    /// The orders of some layouts.
    pub(super) fn of(layouts: Layouts) -> BTreeMap<u32, FieldOrder> {
        let of = |(object, fields): (u32, Fields)| (object, FieldOrder::new(&fields));
        layouts.into_iter().map(of).collect()
    }

    fn new(fields: &Fields) -> FieldOrder {
        let parts = field_ranges(fields);
        let mut rows = vec![0u64; parts.len()];
        for field in &fields.list {
            if let Some((part, _)) = part_at(&parts, field.offset) {
                rows[part] += field.rows;
            }
        }
        let mut order: Vec<usize> = (0..parts.len()).collect();
        // Among parts with the same number of rows, larger ones come first, so that alignment
        // leaves few gaps.
        order.sort_by_key(|&p| (std::cmp::Reverse((rows[p], parts[p].1)), p));
        let mut offsets = vec![0; parts.len()];
        let mut end = 0u64;
        for part in order {
            let bytes = parts[part].1;
            offsets[part] = end.next_multiple_of(alignment(bytes));
            end = offsets[part] + bytes;
        }
        let widest = parts.iter().map(|p| alignment(p.1)).max().unwrap_or(1);
        FieldOrder {
            element: fields.element,
            parts,
            offsets,
            bytes: end.next_multiple_of(widest),
        }
    }

    /// The position of a load, and its new offset in the element.
    pub(super) fn place(&self, load: &Load) -> Option<(Place, u64)> {
        let place = Place::of(load, self.element)?;
        let (part, into) = part_at(&self.parts, place.offset)?;
        Some((place, self.offsets[part] + into))
    }

    /// True if the new element is smaller.
    pub(super) fn is_smaller(&self) -> bool {
        self.bytes < self.element
    }
}

/// Alignment of a field: the greatest power of two that divides its size, at most 8.
fn alignment(bytes: u64) -> u64 {
    1 << bytes.trailing_zeros().min(3)
}

struct Reorder {
    orders: BTreeMap<u32, FieldOrder>,
}

fn make(costs: &Costs, spec: &Spec) -> Result<Box<dyn Remedy>, String> {
    let found = objects_named(costs, &spec.target)?;
    Ok(Box::new(Reorder {
        orders: FieldOrder::of(layouts(costs, &found, &spec.target)?),
    }))
}

impl Remedy for Reorder {
    fn apply(&self, _process: u32, loads: &mut [Load], _memory: &NewMemory) {
        for load in loads {
            let order = self.orders.get(&load.object);
            let placed = order.and_then(|o| Some((o.place(load)?, o.element)));
            if let Some(((place, offset), element)) = placed.filter(|p| p.0.1 < p.1) {
                load.address = place.first + place.index * element + offset;
            }
        }
    }

    fn limits(&self) -> Vec<String> {
        vec!["Fields are those that the windows have loads of; the others come behind them.".into()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::what_if::element::fields;
    use crate::what_if::simulated::{BLOCK, block, line_misses, moved};

    #[test]
    fn hot_fields_of_two_lines_come_into_one() {
        let layout = fields(128, &[(0, 8, 5), (16, 4, 90), (120, 8, 90)]);
        let remedy = Reorder {
            orders: FieldOrder::of([(1, layout)].into()),
        };
        let pairs = (0..1000u64).flat_map(|i| [i * 128 + 16, i * 128 + 120]);
        let walk = block(pairs, 128_000);
        let after = moved(&remedy, &walk);
        assert_eq!(
            (line_misses(&walk, 64), line_misses(&after, 64)),
            (2000, 1000)
        );
        assert_eq!([after[0].address, after[1].address], [BLOCK + 8, BLOCK]);
    }
}
