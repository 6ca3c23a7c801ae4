//! Pack: bytes that no load reads are removed from elements.

use crate::findings::gains::Costs;
use crate::what_if::element::layouts;
use crate::what_if::memory::NewMemory;
use crate::what_if::remedies::reorder::FieldOrder;
use crate::what_if::remedy::{Kind, Load, Remedy, Spec, Target};
use crate::what_if::target::objects_named;
use std::collections::BTreeMap;

pub(crate) const PACK: Kind = Kind {
    name: "pack",
    target: Target::Object,
    by: "",
    make,
};

struct Pack {
    orders: BTreeMap<u32, FieldOrder>,
}

fn make(costs: &Costs, spec: &Spec) -> Result<Box<dyn Remedy>, String> {
    let found = objects_named(costs, &spec.target)?;
    let mut orders = FieldOrder::of(layouts(costs, &found, &spec.target)?);
    orders.retain(|_, order| order.is_smaller());
    match orders.is_empty() {
        true => Err(format!(
            "{}: loads read all bytes of the elements, so there is nothing to leave out",
            spec.target
        )),
        false => Ok(Box::new(Pack { orders })),
    }
}

impl Remedy for Pack {
    fn apply(&self, _process: u32, loads: &mut [Load], _memory: &NewMemory) {
        for load in loads {
            let order = self.orders.get(&load.object);
            if let Some((order, (place, offset))) = order.and_then(|o| Some((o, o.place(load)?))) {
                load.address = place.first + place.index * order.bytes + offset;
            }
        }
    }

    fn limits(&self) -> Vec<String> {
        vec![
            "All fields that no window has loads of move elsewhere, and so do gaps.".into(),
            "Blocks of one element stay as they are; hot-cold and pool are for these.".into(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::what_if::element::fields;
    use crate::what_if::simulated::{block, line_misses, moved};

    #[test]
    fn elements_without_unused_bytes_have_fewer_lines() {
        // 12 of 48 bytes are read.
        let layout = fields(48, &[(0, 8, 10), (40, 4, 10)]);
        let orders = FieldOrder::of([(1, layout)].into());
        assert!(orders[&1].is_smaller());
        let remedy = Pack { orders };
        let both = (0..4096u64).flat_map(|i| [i * 48, i * 48 + 40]);
        let walk = block(both, 4096 * 48);
        let after = moved(&remedy, &walk);
        // 16 bytes each, as the 8 bytes are aligned.
        assert_eq!(
            (line_misses(&walk, 64), line_misses(&after, 64)),
            (3072, 1024)
        );
    }
}
