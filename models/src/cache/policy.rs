//! Choice of the line that a full set evicts.

use serde::{Deserialize, Serialize};

/// A replacement policy. Empty ways are filled first, the lowest one first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// The least recently used line.
    #[default]
    Lru,
    /// The line that was inserted first.
    Fifo,
    /// A random line, by a generator with a fixed seed.
    Random,
    /// The line that a binary tree of bits points to. A use turns the bits on the path from the
    /// root away from the line.
    Plru,
    /// Static re-reference interval prediction with two bits: a new line has 2, a hit sets it to 0,
    /// and the first line with 3 is evicted. If none has 3, all are increased by one.
    Rrip,
}

impl Policy {
    /// Every policy, with its name.
    pub const ALL: [(Policy, &'static str); 5] = [
        (Policy::Lru, "lru"),
        (Policy::Fifo, "fifo"),
        (Policy::Random, "random"),
        (Policy::Plru, "plru"),
        (Policy::Rrip, "rrip"),
    ];

    /// The policy with this name.
    pub fn of(name: &str) -> Option<Policy> {
        Policy::ALL.iter().find(|p| p.1 == name).map(|p| p.0)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        Policy::ALL.iter().find(|p| p.0 == self).map_or("", |p| p.1)
    }

    /// True if lines are stored in the order of eviction rather than by way.
    pub(crate) fn is_ordered(self) -> bool {
        matches!(self, Policy::Lru | Policy::Fifo)
    }
}

/// A set's tree of [`Policy::Plru`], a bit for each inner node; the root is bit 1, the children of
/// `n` are `2n` and `2n + 1`. A bit selects the child with the next victim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tree(pub(crate) u64);

impl Tree {
    /// A use of a way: all bits above it point away from it.
    #[inline]
    pub(crate) fn touch(&mut self, way: usize, ways: usize) {
        let mut node = way + ways;
        while node > 1 {
            let bit = 1u64 << (node / 2);
            if node.is_multiple_of(2) {
                self.0 |= bit;
            } else {
                self.0 &= !bit;
            }
            node /= 2;
        }
    }

    /// The way to evict.
    #[inline]
    pub(crate) fn victim(self, ways: usize) -> usize {
        let mut node = 1;
        while node < ways {
            node = 2 * node + (self.0 >> node & 1) as usize;
        }
        node - ways
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for (policy, name) in Policy::ALL {
            assert_eq!((Policy::of(name), policy.name()), (Some(policy), name));
        }
        assert_eq!(Policy::of("mru"), None);
    }

    #[test]
    fn the_tree_points_at_the_half_that_was_not_used() {
        let mut tree = Tree::default();
        assert_eq!(tree.victim(4), 0);
        tree.touch(0, 4);
        assert_eq!(tree.victim(4), 2);
        tree.touch(2, 4);
        assert_eq!(tree.victim(4), 1);
        tree.touch(1, 4);
        assert_eq!(tree.victim(4), 3);
        // A cache of one way has no choice.
        tree.touch(0, 1);
        assert_eq!(tree.victim(1), 0);
    }
}
