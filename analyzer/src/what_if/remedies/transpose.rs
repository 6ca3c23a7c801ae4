//! Transpose: rows and columns of an array are exchanged.

use crate::findings::gains::Costs;
use crate::what_if::memory::NewMemory;
use crate::what_if::remedy::{Kind, Load, Remedy, Spec, Target};
use crate::what_if::rows_of_array::Shape;
use crate::what_if::target::objects_named;
use std::collections::BTreeMap;

pub(crate) const TRANSPOSE: Kind = Kind {
    name: "transpose",
    target: Target::Object,
    by: "bytes of a row, if no walk shows it",
    make,
};

struct Transpose {
    shapes: BTreeMap<u32, Shape>,
}

/// Shapes of some objects. An error if none is known.
pub(super) fn shapes(costs: &Costs, spec: &Spec) -> Result<BTreeMap<u32, Shape>, String> {
    let mut shapes = BTreeMap::new();
    for object in objects_named(costs, &spec.target)? {
        let sites = || (costs.context.sites.values()).filter(|f| f.objects.contains_key(&object));
        let element = sites().max_by_key(|f| (f.rows, f.site)).map(|f| f.size);
        let given = spec.by.zip(element).map(|(row, element)| Shape {
            row,
            element: u64::from(element.max(1)),
        });
        let shape = given.or_else(|| Shape::seen(&costs.context, sites()));
        shapes.extend(shape.map(|shape| (object, shape)));
    }
    match shapes.is_empty() {
        true => Err(format!(
            "{}: the bytes of a row are not known, as no walk goes along a column; write them behind the name: '{} by 32K'",
            spec.target,
            spec.text()
        )),
        false => Ok(shapes),
    }
}

fn make(costs: &Costs, spec: &Spec) -> Result<Box<dyn Remedy>, String> {
    Ok(Box::new(Transpose {
        shapes: shapes(costs, spec)?,
    }))
}

impl Remedy for Transpose {
    fn apply(&self, _process: u32, loads: &mut [Load], _memory: &NewMemory) {
        for load in loads {
            let shape = self.shapes.get(&load.object);
            if let Some(address) = shape.and_then(|s| s.by_columns(load)) {
                load.address = address;
            }
        }
    }

    fn limits(&self) -> Vec<String> {
        vec!["All code finds the new layout; walks along rows become walks along columns.".into()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::what_if::simulated::{block, line_misses, moved};

    #[test]
    fn a_walk_along_columns_becomes_sequential() {
        let walk = (0..64u64).flat_map(|column| (0..256).map(move |row| row * 1024 + column * 8));
        let walk = block(walk, 256 * 1024);
        let shape = Shape {
            row: 1024,
            element: 8,
        };
        let remedy = Transpose {
            shapes: [(1, shape)].into(),
        };
        let after = moved(&remedy, &walk);
        assert_eq!(
            (line_misses(&walk, 64), line_misses(&after, 64)),
            (64 * 256, 64 * 256 / 8)
        );
    }
}
