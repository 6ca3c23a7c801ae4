//! Orders in which symbols that are used together are neighbours.
//!
//! Functions: call-chain clustering (C3; Ottoni and Maher, "Optimizing Function Placement for
//! Large-Scale Data-Center Applications", CGO 2017). The hottest function comes first. Its cluster is
//! appended to the cluster of the function that calls it most often. Data: the two clusters with the
//! strongest affinity are joined first. In the end, clusters are sorted by heat per byte.

use std::cmp::Reverse;
use std::collections::HashMap;

/// Bytes of a cluster at most: in a larger one, two symbols are on different pages as well. Source: a
/// page of the processor, the limit of C3 for such pages.
const MAX_CLUSTER_BYTES: u64 = 4096;

/// A symbol.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClusterNode {
    /// Size in bytes.
    pub bytes: u64,
    /// Weight of its use.
    pub heat: f64,
}

/// Number of uses of one symbol by, or together with, another: by the indices of both.
pub type Edges = HashMap<(usize, usize), u64>;

/// Clusters of nodes.
struct Clusters<'a> {
    nodes: &'a [ClusterNode],
    /// By node: its cluster.
    of_node: Vec<usize>,
    members: Vec<Vec<usize>>,
    /// By cluster: the sum of its nodes.
    sums: Vec<ClusterNode>,
}

impl<'a> Clusters<'a> {
    fn new(nodes: &'a [ClusterNode]) -> Clusters<'a> {
        Clusters {
            nodes,
            of_node: (0..nodes.len()).collect(),
            members: (0..nodes.len()).map(|n| vec![n]).collect(),
            sums: nodes.to_vec(),
        }
    }

    /// Appends the cluster of a node to that of another, unless they are one or too large.
    fn append(&mut self, node: usize, to: usize) {
        let (from, to) = (self.of_node[node], self.of_node[to]);
        let bytes = self.sums[from].bytes.saturating_add(self.sums[to].bytes);
        if from == to || bytes > MAX_CLUSTER_BYTES {
            return;
        }
        let moved = std::mem::take(&mut self.members[from]);
        for &node in &moved {
            self.of_node[node] = to;
        }
        self.members[to].extend(moved);
        self.sums[to] = ClusterNode {
            bytes,
            heat: self.sums[to].heat + self.sums[from].heat,
        };
    }

    /// The cluster of a node has more heat than that of another.
    fn is_hotter(&self, node: usize, other: usize) -> bool {
        self.sums[self.of_node[node]].heat > self.sums[self.of_node[other]].heat
    }

    /// Nodes, by the heat per byte of their clusters.
    fn by_density(self) -> Vec<usize> {
        let density = |cluster: usize| {
            let sum = self.sums[cluster];
            sum.heat / sum.bytes.max(1) as f64
        };
        let mut order: Vec<usize> = (0..self.nodes.len())
            .filter(|&c| !self.members[c].is_empty())
            .collect();
        order.sort_by(|&a, &b| density(b).total_cmp(&density(a)).then(a.cmp(&b)));
        let members = |cluster: usize| self.members[cluster].iter().copied();
        order.into_iter().flat_map(members).collect()
    }
}

/// Functions in the order of C3. `calls`: by caller and callee.
pub fn by_calls(nodes: &[ClusterNode], calls: &Edges) -> Vec<usize> {
    let mut callers: HashMap<usize, (u64, Reverse<usize>)> = HashMap::new();
    for (&(caller, callee), &weight) in calls {
        if caller != callee {
            let this = (weight, Reverse(caller));
            let best = callers.entry(callee).or_insert(this);
            *best = this.max(*best);
        }
    }
    let mut hottest: Vec<usize> = (0..nodes.len()).collect();
    hottest.sort_by(|&a, &b| nodes[b].heat.total_cmp(&nodes[a].heat).then(a.cmp(&b)));
    let mut clusters = Clusters::new(nodes);
    for node in hottest {
        if let Some((_, Reverse(caller))) = callers.get(&node) {
            clusters.append(node, *caller);
        }
    }
    clusters.by_density()
}

/// Data by affinity. `together`: by two symbols, in any order.
pub fn by_affinity(nodes: &[ClusterNode], together: &Edges) -> Vec<usize> {
    let mut pairs: Vec<(&(usize, usize), &u64)> = together.iter().collect();
    pairs.sort_unstable_by_key(|&(pair, weight)| (Reverse(*weight), *pair));
    let mut clusters = Clusters::new(nodes);
    for (&(a, b), _) in pairs {
        match clusters.is_hotter(b, a) {
            true => clusters.append(a, b),
            false => clusters.append(b, a),
        }
    }
    clusters.by_density()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(bytes: u64, heat: f64) -> ClusterNode {
        ClusterNode { bytes, heat }
    }

    #[test]
    fn functions_follow_their_most_frequent_callers() {
        // 0 calls 1 and 3; 2 is called by 0 rarely and by 3 often.
        let nodes = [
            node(100, 1.0),
            node(100, 40.0),
            node(100, 30.0),
            node(100, 20.0),
        ];
        let calls = Edges::from([((0, 1), 5), ((0, 3), 9), ((0, 2), 1), ((3, 2), 7)]);
        assert_eq!(by_calls(&nodes, &calls), [0, 1, 3, 2]);
    }

    #[test]
    fn clusters_stay_within_a_page_and_dense_ones_come_first() {
        let nodes = [node(4000, 10.0), node(200, 50.0), node(50, 0.0)];
        let calls = Edges::from([((0, 1), 5), ((1, 2), 1)]);
        assert_eq!(by_calls(&nodes, &calls), [1, 2, 0]);
        // Recursion, alone and of two functions.
        let calls = Edges::from([((1, 1), 50), ((1, 2), 1), ((2, 1), 1)]);
        assert_eq!(by_calls(&nodes, &calls), [2, 1, 0]);
    }

    #[test]
    fn data_is_joined_by_affinity() {
        let nodes = [
            node(64, 1.0),
            node(64, 100.0),
            node(64, 2.0),
            node(64, 90.0),
            node(1 << 20, 1000.0),
        ];
        let together = Edges::from([((0, 1), 3), ((2, 3), 9), ((1, 2), 1), ((3, 4), 50)]);
        assert_eq!(
            by_affinity(&nodes[..4], &together_of(&together, 4)),
            [1, 0, 3, 2]
        );
        assert_eq!(by_affinity(&nodes, &together), [1, 0, 3, 2, 4]);
    }

    fn together_of(all: &Edges, below: usize) -> Edges {
        let inside = all.iter().filter(|(pair, _)| pair.1 < below);
        inside.map(|(pair, weight)| (*pair, *weight)).collect()
    }
}
