//! Dominators and natural loops.
//!
//! Every root of the graph is a child of a virtual root. Irreducible cycles are no loops here; what they change
//! is treated as unknown by [`crate::dataflow`].

use crate::cfg::Graph;

/// Number of a loop in [`Loops::all`].
pub type LoopId = u32;
/// No loop.
pub const NO_LOOP: LoopId = u32::MAX;

/// A natural loop; several back edges to one header make one loop.
#[derive(Clone, Debug)]
pub struct Loop {
    /// Header block.
    pub header: u32,
    /// Enclosing loop or [`NO_LOOP`].
    pub parent: LoopId,
    /// Blocks with a back edge.
    pub latches: Vec<u32>,
}

/// All loops of a function.
#[derive(Clone, Debug, Default)]
pub struct Loops {
    /// Inner loops come before the loops that enclose them.
    pub all: Vec<Loop>,
    /// Innermost loop of each block.
    pub of_block: Vec<LoopId>,
    /// Blocks in reverse postorder; unreachable ones are missing.
    pub order: Vec<u32>,
    /// Position in `order`, `u32::MAX` if unreachable.
    pub position: Vec<u32>,
}

impl Loops {
    /// Finds them.
    pub fn find(graph: &Graph) -> Loops {
        let n = graph.blocks.len();
        let order = reverse_postorder(graph);
        let mut position = vec![u32::MAX; n];
        order.iter().enumerate().for_each(|(i, &b)| position[b as usize] = i as u32);
        let mut loops = Loops { all: Vec::new(), of_block: vec![NO_LOOP; n], order, position };
        // Without a way back there is no loop, as in half of all functions.
        let goes_back = |(at, &b): (usize, &u32)| graph.blocks[b as usize].succs.iter().any(|s| loops.position[s.0 as usize] <= at as u32);
        if !loops.order.iter().enumerate().any(goes_back) {
            return loops;
        }
        let idom = dominators(graph, &loops.order, &loops.position);
        for at in (0..loops.order.len()).rev() {
            let header = loops.order[at];
            let latches: Vec<u32> = graph.blocks[header as usize]
                .preds
                .iter()
                .map(|p| p.0)
                .filter(|&p| loops.position[p as usize] != u32::MAX && dominates(&idom, at as u32, loops.position[p as usize]))
                .collect();
            if !latches.is_empty() {
                loops.add(graph, header, latches);
            }
        }
        loops
    }

    /// Whether block `b` is in loop `l`.
    pub fn contains(&self, l: LoopId, b: u32) -> bool {
        self.is_inside(self.of_block[b as usize], l)
    }

    /// Whether loop `inner` is `outer` or nested in it.
    pub fn is_inside(&self, inner: LoopId, outer: LoopId) -> bool {
        let mut at = inner;
        while at != NO_LOOP {
            if at == outer {
                return true;
            }
            at = self.all[at as usize].parent;
        }
        false
    }

    /// Collects the body backwards from the latches. Inner loops are there already, since headers come in
    /// reverse order.
    fn add(&mut self, graph: &Graph, header: u32, latches: Vec<u32>) {
        let id = self.all.len() as LoopId;
        self.all.push(Loop { header, parent: NO_LOOP, latches: latches.clone() });
        let mut work = latches;
        while let Some(b) = work.pop() {
            if self.position[b as usize] == u32::MAX {
                continue;
            }
            let mut inner = self.of_block[b as usize];
            if inner == NO_LOOP {
                self.of_block[b as usize] = id;
                if b != header {
                    work.extend(graph.blocks[b as usize].preds.iter().map(|p| p.0));
                }
                continue;
            }
            while inner != id && self.all[inner as usize].parent != NO_LOOP {
                inner = self.all[inner as usize].parent;
            }
            if inner != id {
                self.all[inner as usize].parent = id;
                let inner_header = self.all[inner as usize].header;
                work.extend(graph.blocks[inner_header as usize].preds.iter().map(|p| p.0));
            }
        }
        // The header of a loop that consists of an inner loop's blocks only.
        if self.of_block[header as usize] == NO_LOOP {
            self.of_block[header as usize] = id;
        }
    }
}

fn reverse_postorder(graph: &Graph) -> Vec<u32> {
    let mut seen = vec![false; graph.blocks.len()];
    let mut order = Vec::with_capacity(graph.blocks.len());
    let mut stack: Vec<(u32, u32)> = Vec::new();
    let roots = (0..graph.blocks.len()).rev().filter(|&b| graph.roots[b]);
    for root in roots {
        if std::mem::replace(&mut seen[root], true) {
            continue;
        }
        stack.push((root as u32, 0));
        while let Some(top) = stack.last_mut() {
            let succs = &graph.blocks[top.0 as usize].succs;
            match succs.get(top.1 as usize) {
                Some(s) => {
                    top.1 += 1;
                    if !std::mem::replace(&mut seen[s.0 as usize], true) {
                        stack.push((s.0, 0));
                    }
                }
                None => {
                    order.push(top.0);
                    stack.pop();
                }
            }
        }
    }
    order.reverse();
    order
}

/// Immediate dominators by position in reverse postorder; `u32::MAX` is the virtual root.
fn dominators(graph: &Graph, order: &[u32], position: &[u32]) -> Vec<u32> {
    const ROOT: u32 = u32::MAX;
    const UNKNOWN: u32 = u32::MAX - 1;
    let mut idom = vec![UNKNOWN; order.len()];
    let mut changed = true;
    while changed {
        changed = false;
        for (at, &b) in order.iter().enumerate() {
            let block = &graph.blocks[b as usize];
            let mut new = if graph.roots[b as usize] { ROOT } else { UNKNOWN };
            if new == UNKNOWN {
                for p in &block.preds {
                    let p = position[p.0 as usize];
                    if p == u32::MAX || (idom[p as usize] == UNKNOWN) {
                        continue;
                    }
                    new = if new == UNKNOWN { p } else { intersect(&idom, new, p) };
                }
            }
            if idom[at] != new {
                idom[at] = new;
                changed = true;
            }
        }
    }
    idom
}

fn intersect(idom: &[u32], mut a: u32, mut b: u32) -> u32 {
    while a != b {
        if a == u32::MAX || b == u32::MAX {
            return u32::MAX;
        }
        if a > b {
            a = idom[a as usize];
        } else {
            b = idom[b as usize];
        }
    }
    a
}

fn dominates(idom: &[u32], a: u32, mut b: u32) -> bool {
    while b != u32::MAX && b > a {
        b = idom[b as usize];
    }
    a == b
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Block, BlockId};

    fn graph(edges: &[(u32, u32)], roots: &[u32], n: usize) -> Graph {
        let mut g = Graph::default();
        for b in 0..n as u32 {
            g.blocks.push(Block { insns: b..b + 1, succs: Default::default(), preds: Default::default(), external_entry: false });
            g.roots.push(roots.contains(&b));
        }
        for &(a, b) in edges {
            g.blocks[a as usize].succs.push(BlockId(b));
            g.blocks[b as usize].preds.push(BlockId(a));
        }
        g
    }

    #[test]
    fn nested_loops_nest() {
        let l = Loops::find(&graph(&[(0, 1), (1, 2), (2, 2), (2, 3), (3, 1), (3, 4)], &[0], 5));
        assert_eq!(l.all.len(), 2);
        let (inner, outer) = (l.of_block[2], l.of_block[1]);
        assert_eq!(l.all[inner as usize].header, 2);
        assert_eq!(l.all[inner as usize].parent, outer);
        assert_eq!(l.of_block[3], outer);
        assert_eq!((l.of_block[0], l.of_block[4]), (NO_LOOP, NO_LOOP));
        assert!(l.contains(outer, 2) && !l.contains(inner, 3));
    }

    #[test]
    fn two_back_edges_make_one_loop() {
        let l = Loops::find(&graph(&[(0, 1), (1, 2), (1, 3), (2, 1), (3, 1), (3, 4)], &[0], 5));
        assert_eq!(l.all.len(), 1);
        assert_eq!(l.all[0].latches.len(), 2);
    }

    #[test]
    fn a_cycle_with_two_entries_is_no_loop() {
        let l = Loops::find(&graph(&[(0, 1), (0, 2), (1, 2), (2, 1)], &[0], 3));
        assert!(l.all.is_empty());
    }

    #[test]
    fn an_entry_into_the_body_breaks_the_loop() {
        let l = Loops::find(&graph(&[(0, 1), (1, 2), (2, 1)], &[0, 2], 3));
        assert!(l.all.is_empty());
    }

    #[test]
    fn unreachable_blocks_are_in_no_loop() {
        let l = Loops::find(&graph(&[(0, 1), (2, 3), (3, 2)], &[0], 4));
        assert!(l.all.is_empty());
        assert_eq!(l.position[2], u32::MAX);
    }
}
