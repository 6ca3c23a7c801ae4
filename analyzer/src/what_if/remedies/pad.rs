//! Pad: each row of an array becomes longer by a line, so that columns use all sets of a cache.

use crate::data::memory_units::LINE_BYTES;
use crate::findings::gains::Costs;
use crate::util::fast_hash::Mixed;
use crate::what_if::memory::NewMemory;
use crate::what_if::remedies::transpose::shapes;
use crate::what_if::remedy::{Kind, Load, Remedy, Spec, Target};
use mgz_annotations_schema::lock::locked;
use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

pub(crate) const PAD: Kind = Kind {
    name: "pad",
    target: Target::Object,
    by: "bytes of a row, if no walk shows it",
    make,
};

/// New begins of blocks, by process and old begin.
type Moved = HashMap<(u32, u64), Option<u64>, Mixed>;

struct Pad {
    /// Bytes of a row, by object.
    rows: BTreeMap<u32, u64>,
    moved: Mutex<Moved>,
}

fn make(costs: &Costs, spec: &Spec) -> Result<Box<dyn Remedy>, String> {
    let shapes = shapes(costs, spec)?;
    Ok(Box::new(Pad::new(
        shapes.into_iter().map(|(o, s)| (o, s.row)).collect(),
    )))
}

impl Pad {
    fn new(rows: BTreeMap<u32, u64>) -> Pad {
        Pad {
            rows,
            moved: Mutex::default(),
        }
    }
}

impl Remedy for Pad {
    fn apply(&self, process: u32, loads: &mut [Load], memory: &NewMemory) {
        let mut moved = locked(&self.moved);
        for load in loads.iter_mut().filter(|l| l.bytes > 0) {
            let Some(&row) = self.rows.get(&load.object) else {
                continue;
            };
            let bytes = load.bytes + load.bytes.div_ceil(row) * LINE_BYTES;
            let start = *(moved.entry((process, load.start)))
                .or_insert_with(|| memory.take(load.object, bytes, load.start));
            if let Some(start) = start {
                let into = load.offset();
                load.address = start + into + into / row * LINE_BYTES;
                (load.start, load.bytes) = (start, bytes);
            }
        }
    }

    fn limits(&self) -> Vec<String> {
        vec!["Lines that threads take from each other are left out.".into()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::what_if::simulated::{block, moved};
    use std::collections::BTreeSet;

    #[test]
    fn columns_of_padded_rows_use_all_sets() {
        let walk = block((0..64u64).map(|row| row * 4096 + 8), 64 * 4096);
        let sets = |loads: &[Load]| {
            let set = |l: &Load| l.address / LINE_BYTES % 64;
            loads.iter().map(set).collect::<BTreeSet<u64>>().len()
        };
        let remedy = Pad::new([(1, 4096)].into());
        let after = moved(&remedy, &walk);
        assert_eq!((sets(&walk), sets(&after)), (1, 64));
        assert_eq!(after[1].offset() - after[0].offset(), 4096 + 64);
    }
}
