//! Dominators and natural loops.
//!
//! Every root of the graph is a child of a virtual root. Irreducible cycles are no loops here;
//! [`crate::analyze::dataflow`] treats the variables that they change as unknown.

use crate::ir::cfg::Cfg;

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
    /// Finds the loops of a graph.
    pub fn find(graph: &Cfg) -> Loops {
        let (order, position, mut back) = reverse_postorder(graph);
        let mut loops = Loops {
            all: Vec::new(),
            of_block: vec![NO_LOOP; graph.blocks.len()],
            order,
            position,
        };
        // Without a back edge there is no loop, as in half of all functions.
        if back.is_empty() {
            return loops;
        }
        back.iter_mut()
            .for_each(|b| *b = loops.position[*b as usize]);
        back.sort_unstable();
        back.dedup();
        let idom = dominators(graph, &loops.order, &loops.position, &back);
        for at in back.into_iter().rev() {
            let header = loops.order[at as usize];
            let latches: Vec<u32> = graph.blocks[header as usize]
                .preds
                .iter()
                .map(|p| p.0)
                .filter(|&p| {
                    loops.position[p as usize] != u32::MAX
                        && dominates(&idom, at, loops.position[p as usize])
                })
                .collect();
            if !latches.is_empty() {
                loops.add(graph, header, latches);
            }
        }
        loops
    }

    /// True if block `b` is in loop `l`.
    pub fn contains(&self, l: LoopId, b: u32) -> bool {
        self.is_inside(self.of_block[b as usize], l)
    }

    /// The block in which paths to a block meet: the one before the loop, if it is a loop's header.
    pub fn meeting_place(&self, b: u32) -> u32 {
        match self.all.get(self.of_block[b as usize] as usize) {
            Some(l) if l.header == b => self.all.get(l.parent as usize).map_or(0, |o| o.header),
            _ => b,
        }
    }

    /// True if loop `inner` is `outer` or nested in it.
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

    /// Collects the body backwards from the latches. Inner loops are already known, since headers
    /// come in reverse order.
    fn add(&mut self, graph: &Cfg, header: u32, latches: Vec<u32>) {
        let id = self.all.len() as LoopId;
        self.all.push(Loop {
            header,
            parent: NO_LOOP,
            latches: latches.clone(),
        });
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
                work.extend(
                    graph.blocks[inner_header as usize]
                        .preds
                        .iter()
                        .map(|p| p.0),
                );
            }
        }
        // The header of a loop that otherwise consists of an inner loop's blocks.
        if self.of_block[header as usize] == NO_LOOP {
            self.of_block[header as usize] = id;
        }
    }
}

/// Blocks in reverse postorder, the position of each in it, and the targets of back edges (one
/// entry per branch).
fn reverse_postorder(graph: &Cfg) -> (Vec<u32>, Vec<u32>, Vec<u32>) {
    const NEW: u32 = u32::MAX;
    const OPEN: u32 = u32::MAX - 1;
    let n = graph.blocks.len();
    // Until all blocks are found, positions count from the end.
    let (mut order, mut position, mut back) = (Vec::with_capacity(n), vec![NEW; n], Vec::new());
    let mut stack: Vec<(u32, u32)> = Vec::with_capacity(n.min(32));
    let roots = (0..n).rev().filter(|&b| graph.roots[b]);
    for root in roots {
        if position[root] != NEW {
            continue;
        }
        position[root] = OPEN;
        stack.push((root as u32, 0));
        while let Some(top) = stack.last_mut() {
            let succs = &graph.blocks[top.0 as usize].succs;
            match succs.get(top.1 as usize) {
                Some(s) => {
                    top.1 += 1;
                    match position[s.0 as usize] {
                        NEW => {
                            position[s.0 as usize] = OPEN;
                            stack.push((s.0, 0));
                        }
                        OPEN => back.push(s.0),
                        _ => {}
                    }
                }
                None => {
                    position[top.0 as usize] = order.len() as u32;
                    order.push(top.0);
                    stack.pop();
                }
            }
        }
    }
    order.reverse();
    order
        .iter()
        .zip(0..)
        .for_each(|(&b, at)| position[b as usize] = at);
    (order, position, back)
}

const ROOT: u32 = u32::MAX;
const UNKNOWN: u32 = u32::MAX - 1;

/// Immediate dominators by position in reverse postorder. `u32::MAX` is the virtual root, and any
/// block before the first target of a back edge. `back`: positions of these targets, sorted.
/// Dominators before the first target, or after the last back edge, are not needed.
fn dominators(graph: &Cfg, order: &[u32], position: &[u32], back: &[u32]) -> Vec<u32> {
    let mut idom = vec![UNKNOWN; order.len()];
    let sources = back
        .iter()
        .flat_map(|&at| &graph.blocks[order[at as usize] as usize].preds)
        .map(|p| position[p.0 as usize]);
    let (first, last) = (
        back[0],
        sources.filter(|&at| at != u32::MAX).max().unwrap_or(0) as usize,
    );
    let dominator = |at: usize, idom: &[u32]| dominator(graph, order[at], position, first, idom);
    for at in first as usize..=last {
        idom[at] = dominator(at, &idom);
    }
    // All other blocks had their predecessors computed before them.
    let is_final = |idom: &[u32]| {
        back.iter()
            .all(|&at| dominator(at as usize, idom) == idom[at as usize])
    };
    let mut changed = !is_final(&idom);
    while changed {
        changed = false;
        for at in first as usize..=last {
            let new = dominator(at, &idom);
            changed |= std::mem::replace(&mut idom[at], new) != new;
        }
    }
    idom
}

/// The immediate dominator of a block, as far as those of its predecessors are known. Blocks before
/// `first` count as the virtual root.
fn dominator(graph: &Cfg, b: u32, position: &[u32], first: u32, idom: &[u32]) -> u32 {
    if graph.roots[b as usize] {
        return ROOT;
    }
    let mut new = UNKNOWN;
    for p in &graph.blocks[b as usize].preds {
        let p = position[p.0 as usize];
        if p < first {
            return ROOT;
        }
        if p != u32::MAX && idom[p as usize] != UNKNOWN {
            new = if new == UNKNOWN {
                p
            } else {
                intersect(idom, new, p)
            };
        }
    }
    new
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

    fn graph(edges: &[(u32, u32)], roots: &[u32], n: usize) -> Cfg {
        let mut g = Cfg::default();
        for b in 0..n as u32 {
            g.blocks.push(Block {
                insns: b..b + 1,
                succs: Default::default(),
                preds: Default::default(),
                external_entry: false,
            });
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
        let l = Loops::find(&graph(
            &[(0, 1), (1, 2), (2, 2), (2, 3), (3, 1), (3, 4)],
            &[0],
            5,
        ));
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
        let l = Loops::find(&graph(
            &[(0, 1), (1, 2), (1, 3), (2, 1), (3, 1), (3, 4)],
            &[0],
            5,
        ));
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
    fn a_way_back_makes_a_loop_if_its_start_is_not_reached_without_its_end() {
        let mut random = 1u64;
        let mut below = |n: u32| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as u32 % n
        };
        let mut loops = 0;
        for _ in 0..20_000 {
            let n = 1 + below(10);
            let mut edges: Vec<(u32, u32)> = (0..below(2 * n) + 1)
                .map(|_| (below(n), below(n)))
                .collect();
            edges.extend((1..n).filter(|_| below(4) > 0).map(|b| (b - 1, b)));
            edges.sort_unstable();
            edges.dedup();
            let roots: Vec<u32> = (0..n).filter(|&b| b == 0 || below(12) == 0).collect();
            let reached = |without: u32| {
                let mut seen: Vec<bool> =
                    (0..n).map(|b| b != without && roots.contains(&b)).collect();
                for _ in 0..n {
                    edges
                        .iter()
                        .filter(|e| e.1 != without)
                        .for_each(|e| seen[e.1 as usize] |= seen[e.0 as usize]);
                }
                seen
            };
            let all = reached(u32::MAX);
            let latches = |h: u32| {
                edges
                    .iter()
                    .filter(|e| e.1 == h && all[e.0 as usize] && !reached(h)[e.0 as usize])
                    .map(|e| e.0)
                    .collect::<Vec<_>>()
            };
            let expected: Vec<(u32, Vec<u32>)> = (0..n)
                .map(|h| (h, latches(h)))
                .filter(|l| !l.1.is_empty())
                .collect();
            let mut found: Vec<(u32, Vec<u32>)> = Loops::find(&graph(&edges, &roots, n as usize))
                .all
                .into_iter()
                .map(|l| (l.header, l.latches))
                .collect();
            found.sort_unstable();
            assert_eq!(found, expected, "{edges:?} {roots:?}");
            loops += found.len();
        }
        assert!(loops > 10_000, "{loops}");
    }

    #[test]
    fn unreachable_blocks_are_in_no_loop() {
        let l = Loops::find(&graph(&[(0, 1), (2, 3), (3, 2)], &[0], 4));
        assert!(l.all.is_empty());
        assert_eq!(l.position[2], u32::MAX);
    }
}
