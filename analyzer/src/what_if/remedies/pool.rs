//! Pool: nodes are placed one after the other in the order in which windows first visit them.

use crate::findings::gains::Costs;
use crate::util::fast_hash::Mixed;
use crate::what_if::element::{Node, Nodes, nodes};
use crate::what_if::memory::NewMemory;
use crate::what_if::remedy::{Kind, Load, Remedy, Spec, Target};
use crate::what_if::target::objects_named;
use mgz_annotations_schema::lock::locked;
use std::collections::HashMap;
use std::sync::Mutex;

pub(crate) const POOL: Kind = Kind {
    name: "pool",
    target: Target::Object,
    by: "",
    make,
};

/// Address space of one pool. It only takes addresses, not memory.
const POOL_BYTES: u64 = 1 << 36;
/// Alignment of nodes.
const NODE_ALIGNMENT: u64 = 8;

/// The pool of a process.
struct Taken {
    /// New first address by the old one.
    places: HashMap<u64, u64, Mixed>,
    /// 4096 nodes of 16 bytes, in an order without consecutive neighbours.
    next: u64,
    end: u64,
}

struct Pool {
    nodes: Nodes,
    taken: Mutex<HashMap<u32, Taken, Mixed>>,
}

fn make(costs: &Costs, spec: &Spec) -> Result<Box<dyn Remedy>, String> {
    let found = objects_named(costs, &spec.target)?;
    Ok(Box::new(Pool::new(nodes(costs, &found, &spec.target)?)))
}

impl Pool {
    fn new(nodes: Nodes) -> Pool {
        Pool {
            nodes,
            taken: Mutex::default(),
        }
    }
}

impl Remedy for Pool {
    fn apply(&self, process: u32, loads: &mut [Load], memory: &NewMemory) {
        let mut taken = locked(&self.taken);
        for load in loads {
            let Some(node) = Node::of(load, &self.nodes) else {
                continue;
            };
            let pool = taken.entry(process).or_insert_with(|| {
                let start = memory.take(load.object, POOL_BYTES, 0);
                Taken {
                    places: HashMap::default(),
                    next: start.unwrap_or(0),
                    end: start.map_or(0, |s| s + POOL_BYTES),
                }
            });
            let bytes = node.bytes.next_multiple_of(NODE_ALIGNMENT);
            if pool.next + bytes > pool.end {
                continue;
            }
            let next = &mut pool.next;
            let start = *pool.places.entry(node.start).or_insert_with(|| {
                *next += bytes;
                *next - bytes
            });
            load.address = start + node.offset;
            (load.start, load.bytes) = (start, node.bytes);
        }
    }

    fn limits(&self) -> Vec<String> {
        vec![
            "The order of nodes is that of the first window that visits them; a program that visits them in several orders gains less.".into(),
            "Time to build the pool is left out.".into(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::what_if::simulated::{block, line_misses, moved};

    #[test]
    fn nodes_in_order_of_visit_share_lines() {
        // 4096 nodes of 16 bytes, in an order without neighbours.
        let order = || (0..4096u64).map(|i| i * 1021 % 4096 * 16);
        let walk = block(order().chain(order()), 4096 * 16);
        let remedy = Pool::new([(1, 16)].into());
        let after = moved(&remedy, &walk);
        assert_eq!(
            (line_misses(&walk, 64), line_misses(&after, 64)),
            (8192, 2048)
        );
        assert_eq!(after[0], after[4096]);
    }

    #[test]
    fn blocks_are_nodes_too() {
        let mut walk = block((0..1000u64).map(|i| i * 7919 % 1000 * 4096), 0);
        for load in &mut walk {
            (load.start, load.bytes) = (load.address, 24);
            load.address += 8;
        }
        let remedy = Pool::new([(1, 0)].into());
        let after = moved(&remedy, &walk);
        assert_eq!(after[1].address - after[0].address, 24);
        assert_eq!(line_misses(&after, 64), 375);
    }
}
