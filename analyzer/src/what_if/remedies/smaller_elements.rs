//! Smaller elements: all addresses of an object move towards its begin by a factor.

use crate::findings::gains::Costs;
use crate::what_if::memory::NewMemory;
use crate::what_if::remedy::{Kind, Load, Remedy, Spec, Target};
use crate::what_if::target::objects_named;

pub(crate) const SMALLER_ELEMENTS: Kind = Kind {
    name: "smaller-elements",
    target: Target::Object,
    by: "the factor, 2 if it is not given",
    make,
};

/// Factor if none is given: half the size, as 4 bytes instead of 8.
const USUAL_FACTOR: u64 = 2;

struct SmallerElements {
    objects: Vec<u32>,
    factor: u64,
}

fn make(costs: &Costs, spec: &Spec) -> Result<Box<dyn Remedy>, String> {
    let factor = spec.by.unwrap_or(USUAL_FACTOR);
    if !(2..=64).contains(&factor) {
        return Err(format!("{}: the factor is 2 to 64", spec.text()));
    }
    Ok(Box::new(SmallerElements {
        objects: objects_named(costs, &spec.target)?,
        factor,
    }))
}

impl Remedy for SmallerElements {
    fn apply(&self, _process: u32, loads: &mut [Load], _memory: &NewMemory) {
        let moved = loads.iter_mut();
        for load in moved.filter(|l| l.bytes > 0 && self.objects.contains(&l.object)) {
            load.address = load.start + load.offset() / self.factor;
        }
    }

    fn limits(&self) -> Vec<String> {
        vec![
            "The number of loads stays; vector loads of smaller elements may need fewer.".into(),
            "Blocks stay where they are, so many small blocks do not come closer to each other."
                .into(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::what_if::simulated::{BLOCK, block, line_misses, moved};

    #[test]
    fn a_walk_over_half_the_bytes_has_half_the_misses() {
        let remedy = SmallerElements {
            objects: vec![1],
            factor: 2,
        };
        let mut walk = block((0..8192).map(|i| i * 8), 1 << 16);
        // A load of another object is not moved.
        walk[0].object = 2;
        let after = moved(&remedy, &walk);
        assert_eq!(after[0], walk[0]);
        assert_eq!(after[100].address, BLOCK + 400);
        assert_eq!(
            (line_misses(&walk, 64), line_misses(&after, 64)),
            (1024, 512)
        );
    }
}
