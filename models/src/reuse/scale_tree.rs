//! Approximate reuse distance in logarithmic space: the scale tree of Zhong, Shen and Ding (2009),
//! section 2.
//!
//! A node stands for a range of time and has the number of blocks last accessed in it. The distance
//! of a reuse is estimated as the number of blocks in the nodes after the one with the last access.
//! This is never too large, and too small by at most the node's size − 1. From time to time
//! neighbours are merged up to a *capacity* that keeps the error within the bound:
//!
//! - relative bound e (`Bound::Relative`): capacity ⌊d·e/(1−e)⌋ + 1, where d is the number of
//!   blocks after the node. At most about 4·log N / −log(1−e) nodes, besides a constant.
//! - absolute bound b beyond a cut-off c (`Bound::Absolute`): capacity 1 up to c blocks after the
//!   node, then b + 1. At most about 4·(N/b + c) nodes, besides a constant.
//!
//! The paper keeps the nodes in a balanced tree. Here they are in one array, in order of time
//! ([`Prefix`] sums sizes with one read per level). This is possible because nodes are only added
//! at the end and merged all at once. The node of a time after the last merge is found without a
//! search, since each access adds one node. Older ones are found by a table over the logarithm of
//! age, whose entries span few nodes.

use crate::reuse::prefix::Prefix;

/// Bound of the error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// 0 ≤ (actual − approximate) / actual ≤ e, with 0 < e < 1.
    Relative(f64),
    /// 0 ≤ actual − approximate ≤ `error` beyond distance `exact`; exact up to there.
    Absolute {
        /// The bound b.
        error: u64,
        /// The cut-off c.
        exact: u64,
    },
}

/// Minimum number of nodes for merging.
const MIN_NODES: usize = 1024;
/// Bits of the mantissa in the table over age.
const FINDER_BITS: u32 = 5;

/// See the module's text.
pub struct ScaleTree {
    bound: Bound,
    /// Time of the last access in each node, ascending.
    ends: Vec<u64>,
    sizes: Prefix,
    /// Nodes below this have been merged; from there on there is one node per time.
    merged: usize,
    /// Time of the first node that was not merged.
    merged_time: u64,
    /// First node that can contain an age, by the logarithm of the age before `merged_time`.
    finder: Vec<u32>,
    limit: usize,
    greatest: usize,
    scratch: Vec<(u64, u64)>,
}

/// Index of an age in the finder, as in [`crate::histogram::Fine`].
#[inline(always)]
fn age_index(age: u64) -> usize {
    let shift = (64 - age.leading_zeros()).saturating_sub(FINDER_BITS + 1);
    ((shift as usize) << FINDER_BITS) + (age >> shift) as usize
}

/// Greatest age of an index.
fn age_last(index: usize) -> u64 {
    let shift = (index >> FINDER_BITS).saturating_sub(1);
    let first = (index - (shift << FINDER_BITS)) as u64;
    (first << shift).saturating_add((1 << shift) - 1)
}

impl ScaleTree {
    /// An empty tree whose first access is at time `start`.
    pub fn new(bound: Bound, start: u64) -> ScaleTree {
        let mut tree = ScaleTree {
            bound,
            ends: Vec::new(),
            sizes: Prefix::new(),
            merged: 0,
            merged_time: start,
            finder: Vec::new(),
            limit: MIN_NODES,
            greatest: 0,
            scratch: Vec::new(),
        };
        tree.begin(start);
        tree
    }

    /// Removes everything; the next access is at time `start`.
    pub fn begin(&mut self, start: u64) {
        self.ends.clear();
        self.sizes.clear();
        self.merged = 0;
        self.merged_time = start;
        self.limit = MIN_NODES;
    }

    /// Number of blocks accessed so far.
    pub fn blocks(&self) -> u64 {
        self.sizes.total()
    }

    /// Number of nodes now.
    pub fn nodes(&self) -> usize {
        self.ends.len()
    }

    /// The maximum number of nodes that the tree has had.
    pub fn most_nodes(&self) -> usize {
        self.greatest.max(self.ends.len())
    }

    /// The approximate distance of a block whose last access was at time `last`.
    #[inline(always)]
    pub fn distance(&self, last: u64) -> u64 {
        self.sizes.behind(self.node(last))
    }

    /// As `distance`, and removes the block from its node, since it is accessed again now.
    #[inline(always)]
    pub fn take(&mut self, last: u64) -> u64 {
        let node = self.node(last);
        self.sizes.take(node)
    }

    /// Adds the access at the next time, which touched `blocks` blocks. Times are consecutive.
    #[inline(always)]
    pub fn push(&mut self, blocks: u64) {
        let time = self.merged_time + (self.ends.len() - self.merged) as u64;
        self.ends.push(time);
        self.sizes.push(blocks);
        if self.ends.len() >= self.limit {
            self.merge();
        }
    }

    /// The node whose range contains a time.
    #[inline(always)]
    fn node(&self, time: u64) -> usize {
        if time >= self.merged_time {
            return self.merged + (time - self.merged_time) as usize;
        }
        let index = age_index(self.merged_time - time);
        let mut from = self.finder[index] as usize;
        let to = self.finder[index - 1] as usize;
        if to - from > 8 {
            return from + self.ends[from..=to].partition_point(|&end| end < time);
        }
        while self.ends[from] < time {
            from += 1;
        }
        from
    }

    /// Capacity of a node with `behind` blocks after it.
    fn capacity(&self, behind: u64) -> u64 {
        match self.bound {
            Bound::Relative(e) => (behind as f64 * (e / (1.0 - e))) as u64 + 1,
            Bound::Absolute { exact, .. } if behind < exact => 1,
            Bound::Absolute { error, .. } => error + 1,
        }
    }

    /// Merges neighbours as far as their capacity allows (the paper's figure 4).
    #[cold]
    fn merge(&mut self) {
        self.greatest = self.greatest.max(self.ends.len());
        let next_time = self.merged_time + (self.ends.len() - self.merged) as u64;
        let mut nodes = std::mem::take(&mut self.scratch);
        nodes.clear();
        let mut behind = 0;
        let mut capacity = self.capacity(0);
        let (mut end, mut size) = (0, 0);
        for at in (0..self.ends.len()).rev() {
            let more = self.sizes.size(at);
            if size + more <= capacity {
                if size == 0 {
                    end = self.ends[at];
                }
                size += more;
                continue;
            }
            if size > 0 {
                nodes.push((end, size));
                behind += size;
                capacity = self.capacity(behind);
            }
            (end, size) = (self.ends[at], more);
        }
        if size > 0 {
            nodes.push((end, size));
        }
        self.ends.clear();
        self.sizes.clear();
        for &(end, size) in nodes.iter().rev() {
            self.ends.push(end);
            self.sizes.push(size);
        }
        self.scratch = nodes;
        self.merged = self.ends.len();
        self.merged_time = next_time;
        self.build_finder();
        let by_bound = match self.bound {
            Bound::Relative(e) => {
                (4.0 * (self.blocks().max(1) as f64).ln() / -(1.0 - e).ln()) as usize + 4
            }
            Bound::Absolute { .. } => 2 * self.merged,
        };
        self.limit = by_bound.max(self.merged + MIN_NODES / 2).max(MIN_NODES);
    }

    fn build_finder(&mut self) {
        let oldest = self.ends.first().map_or(0, |_| self.merged_time);
        let indices = age_index(oldest) + 1;
        self.finder.clear();
        self.finder.resize(indices, 0);
        let mut node = 0;
        for index in (0..indices).rev() {
            let time = self.merged_time.saturating_sub(age_last(index));
            while node + 1 < self.ends.len() && self.ends[node] < time {
                node += 1;
            }
            self.finder[index] = node as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    /// Processes blocks, one per access. Returns (exact, approximate) for each reuse, the exact one
    /// from an LRU stack.
    fn compare(blocks: &[u64], bound: Bound) -> (Vec<(u64, u64)>, ScaleTree) {
        let mut tree = ScaleTree::new(bound, 1);
        let mut last: HashMap<u64, u64> = HashMap::new();
        let mut stack: Vec<u64> = Vec::new();
        let mut out = Vec::new();
        for (i, &block) in blocks.iter().enumerate() {
            if let Some(before) = last.insert(block, i as u64 + 1) {
                let at = stack.iter().rposition(|&b| b == block).unwrap();
                let seen = tree.distance(before);
                assert_eq!(tree.take(before), seen);
                out.push(((stack.len() - 1 - at) as u64, seen));
                stack.remove(at);
            }
            stack.push(block);
            tree.push(1);
            assert_eq!(tree.blocks(), stack.len() as u64);
        }
        (out, tree)
    }

    fn within(bound: Bound, exact: u64, approximate: u64) -> bool {
        approximate <= exact
            && match bound {
                Bound::Relative(e) => (exact - approximate) as f64 <= e * exact as f64 + 1e-9,
                Bound::Absolute { exact: cut, .. } if exact < cut => exact == approximate,
                Bound::Absolute { error, .. } => exact - approximate <= error,
            }
    }

    #[test]
    fn zhong_figure_2d() {
        // The last accesses d1 b4 c6 g7 e8 a10 f11 in three nodes of sizes 4, 2 and 1: the distance
        // of b at time 12 is estimated as 3, "60% of the actual" 5.
        let mut tree = ScaleTree::new(Bound::Relative(2.0 / 3.0), 1);
        for (end, size) in [(7, 4), (10, 2), (11, 1)] {
            tree.ends.push(end);
            tree.sizes.push(size);
        }
        tree.merged = 3;
        tree.merged_time = 12;
        tree.build_finder();
        assert_eq!(tree.distance(4), 3);
        assert_eq!(tree.distance(8), 1);
        assert_eq!(tree.distance(11), 0);
        assert_eq!(tree.take(4), 3);
        assert_eq!(tree.blocks(), 6);
        tree.push(1);
        assert_eq!(
            (tree.distance(12), tree.distance(11), tree.distance(1)),
            (0, 1, 4)
        );
    }

    #[test]
    fn space_is_logarithmic_for_a_relative_and_linear_for_an_absolute_bound() {
        let n = 200_000u64;
        let blocks: Vec<u64> = (0..2 * n).map(|i| i % n).collect();
        let run = |bound| {
            let mut tree = ScaleTree::new(bound, 1);
            for (i, &b) in blocks.iter().enumerate() {
                let i = i as u64;
                if i >= n {
                    let d = tree.take(b + 1);
                    assert!(within(bound, n - 1, d), "{d} at {i}");
                }
                tree.push(1);
            }
            tree.most_nodes()
        };
        let logs = |e: f64| 4.0 * (n as f64).ln() / -(1.0 - e).ln() + 4.0;
        assert!((run(Bound::Relative(0.01)) as f64) <= logs(0.01) + 1.0);
        assert!((run(Bound::Relative(0.1)) as f64) <= logs(0.1).max(2048.0));
        assert!(
            run(Bound::Absolute {
                error: 1000,
                exact: 0
            }) <= 2 * MIN_NODES
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn errors_stay_within_the_bound(
            seed: u64, blocks in 1u64..2500, skew in 1u32..4, length in 1usize..6000,
            bound in prop_oneof![
                (0.001f64..0.7).prop_map(Bound::Relative),
                (0u64..300, prop_oneof![Just(0u64), 1u64..500]).prop_map(|(error, exact)| Bound::Absolute { error, exact }),
            ],
        ) {
            let mut state = seed;
            let trace: Vec<u64> = (0..length).map(|_| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let unit = (state >> 11) as f64 / (1u64 << 53) as f64;
                (unit.powi(skew as i32) * blocks as f64) as u64
            }).collect();
            let (pairs, tree) = compare(&trace, bound);
            for (exact, approximate) in pairs {
                prop_assert!(within(bound, exact, approximate), "{exact} {approximate} {bound:?}");
            }
            prop_assert!(tree.nodes() <= tree.most_nodes());
        }
    }
}
