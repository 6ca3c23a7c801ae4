//! Mean footprint of windows of any length, from reuse intervals.
//!
//! A window of `w` accesses lacks a block if it lies in a gap of the block: before its first
//! access, between two of its accesses, or after its last one. A gap of `g` accesses without the
//! block contains `g - w + 1` windows (if that is positive). So with `m` blocks and `n` accesses
//! the mean footprint of the `n - w + 1` windows is `m - sum over gaps of (g - w + 1)+ / (n - w +
//! 1)` (Xiang et al. 2011: all windows are counted, none is sampled).

use std::collections::HashMap;

/// Gaps of the blocks of one stream of accesses.
#[derive(Clone, Debug, Default)]
pub struct Footprint {
    last: HashMap<u64, u64>,
    /// Number of gaps by length, except length 0.
    gaps: HashMap<u64, u64>,
    accesses: u64,
}

impl Footprint {
    /// Adds an access to a block.
    pub fn access(&mut self, block: u64) {
        let now = self.accesses;
        let gap = match self.last.insert(block, now) {
            Some(last) => now - last - 1,
            None => now,
        };
        self.accesses += 1;
        if gap > 0 {
            *self.gaps.entry(gap).or_default() += 1;
        }
    }

    /// Distinct blocks.
    pub fn blocks(&self) -> u64 {
        self.last.len() as u64
    }

    /// Accesses.
    pub fn accesses(&self) -> u64 {
        self.accesses
    }

    /// Mean footprints, in blocks, of windows of these lengths, in accesses. None if no window has
    /// that length.
    pub fn means(&self, windows: &[u64]) -> Vec<Option<f64>> {
        let mut gaps = self.gaps.clone();
        for &last in self.last.values() {
            *gaps.entry(self.accesses - 1 - last).or_default() += 1;
        }
        let mut gaps: Vec<(u64, u64)> = gaps.into_iter().collect();
        gaps.sort_unstable();
        // Number and total length of all gaps of at least each length.
        let mut behind = vec![(0_u128, 0_u128); gaps.len() + 1];
        for (at, &(gap, count)) in gaps.iter().enumerate().rev() {
            let (number, length) = behind[at + 1];
            behind[at] = (
                number + u128::from(count),
                length + u128::from(gap) * u128::from(count),
            );
        }
        let mean = |&w: &u64| {
            if w == 0 || w > self.accesses {
                return None;
            }
            let (number, length) = behind[gaps.partition_point(|g| g.0 < w)];
            let without = (length + number - number * u128::from(w)) as f64;
            Some(self.blocks() as f64 - without / (self.accesses - w + 1) as f64)
        };
        windows.iter().map(mean).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn of(blocks: &[u64]) -> Footprint {
        let mut footprint = Footprint::default();
        blocks.iter().for_each(|&b| footprint.access(b));
        footprint
    }

    #[test]
    fn of_nothing_there_are_no_windows() {
        assert_eq!(of(&[]).means(&[0, 1]), [None, None]);
        assert_eq!(of(&[7]).means(&[0, 1, 2]), [None, Some(1.0), None]);
    }

    proptest! {
        #[test]
        fn means_are_those_of_all_windows(blocks in prop::collection::vec(0u64..12, 1..60)) {
            let footprint = of(&blocks);
            for w in 1..=blocks.len() {
                let sums: usize = blocks.windows(w).map(|x| x.iter().collect::<HashSet<_>>().len()).sum();
                let mean = sums as f64 / (blocks.len() - w + 1) as f64;
                let found = footprint.means(&[w as u64])[0].unwrap();
                prop_assert!((found - mean).abs() < 1e-9, "{} {} {}", w, found, mean);
            }
        }
    }
}
