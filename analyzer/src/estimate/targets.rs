//! From marks to blocks: by function, line or class, at the granularity of addresses, lines or pages.

use super::Block;
use crate::incidence::{Incidence, Mark};
use rayon::prelude::*;

/// Number of a block in an address space: blocks of different spaces never share one for addresses below 2^56.
fn number(space: usize, address: u64, shift: u32) -> u64 {
    (space as u64) << 56 ^ address >> shift
}

/// Blocks by target, each list sorted by number.
pub struct Grouped {
    blocks: Vec<Block>,
    /// Target and where its blocks end.
    ends: Vec<(u32, usize)>,
}

impl Grouped {
    /// Groups marks. `target` gives the target of a code group, if it has one; blocks have `1 << shift` bytes.
    pub fn new(incidence: &Incidence, shift: u32, target: impl Fn(u32) -> Option<u32> + Sync) -> Grouped {
        let mut all: Vec<(u32, u64, u32, bool)> = Vec::new();
        for (space, marks) in incidence.spaces().iter().enumerate() {
            all.extend(marks.iter().filter_map(|m| Some((target(m.group)?, number(space, m.address, shift), m.sample, m.group & 3 == 2))));
        }
        all.par_sort_unstable();
        all.dedup_by(|later, kept| {
            let same = (later.0, later.1, later.2) == (kept.0, kept.1, kept.2);
            kept.3 |= same && later.3;
            same
        });
        let mut grouped = Grouped { blocks: Vec::new(), ends: Vec::new() };
        for same in all.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            let second = same.get(1).map_or(0, |s| s.2);
            grouped.blocks.push(Block { number: same[0].1, samples: same.len() as u32, first: [same[0].2, second], irregular: same.iter().any(|s| s.3) });
            match grouped.ends.last_mut() {
                Some(last) if last.0 == same[0].0 => last.1 = grouped.blocks.len(),
                _ => grouped.ends.push((same[0].0, grouped.blocks.len())),
            }
        }
        grouped
    }

    /// Blocks of a target.
    pub fn of(&self, target: u32) -> &[Block] {
        match self.ends.binary_search_by_key(&target, |e| e.0) {
            Ok(at) => &self.blocks[at.checked_sub(1).map_or(0, |before| self.ends[before].1)..self.ends[at].1],
            Err(_) => &[],
        }
    }
}

/// Blocks with all samples that have seen them.
pub struct Blocks {
    /// What [`super::footprint`] takes, sorted by number.
    pub blocks: Vec<Block>,
    samples: Vec<u32>,
    ends: Vec<usize>,
}

impl Blocks {
    /// The blocks of the code groups that `wanted` chooses.
    pub fn new(incidence: &Incidence, shift: u32, wanted: impl Fn(u32) -> bool + Sync) -> Blocks {
        Blocks::chosen(incidence, shift, |mark| wanted(mark.group))
    }

    /// The blocks of the marks that `wanted` chooses.
    pub fn chosen(incidence: &Incidence, shift: u32, wanted: impl Fn(&Mark) -> bool + Sync) -> Blocks {
        let mut all: Vec<(u64, u32, bool)> = Vec::new();
        for (space, marks) in incidence.spaces().iter().enumerate() {
            all.extend(marks.iter().filter(|m| wanted(m)).map(|m| (number(space, m.address, shift), m.sample, m.group & 3 == 2)));
        }
        all.par_sort_unstable();
        all.dedup_by(|later, kept| {
            let same = (later.0, later.1) == (kept.0, kept.1);
            kept.2 |= same && later.2;
            same
        });
        let mut out = Blocks { blocks: Vec::new(), samples: all.iter().map(|a| a.1).collect(), ends: Vec::new() };
        let mut at = 0;
        for same in all.chunk_by(|a, b| a.0 == b.0) {
            at += same.len();
            let first = [same[0].1, same.get(1).map_or(0, |s| s.1)];
            out.blocks.push(Block { number: same[0].0, samples: same.len() as u32, first, irregular: same.iter().any(|s| s.2) });
            out.ends.push(at);
        }
        out
    }

    /// Samples of block `at`, ascending.
    pub fn samples(&self, at: usize) -> &[u32] {
        &self.samples[at.checked_sub(1).map_or(0, |before| self.ends[before])..self.ends[at]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::Rows;

    #[test]
    fn marks_are_grouped_by_target_and_block() {
        let mut incidence = Incidence::default();
        for (address, group, sample, space) in [(64u64, 5u32, 0u32, 0u32), (72, 5, 1, 0), (72, 9, 1, 0), (64, 5, 0, 0), (64, 5, 2, 1), (128, 9, 2, 0)] {
            incidence.add(&Rows { address: &[address], size: &[8], group: &[group], implied: &[0] }, space, sample);
        }
        let incidence = Incidence::fold(vec![incidence]);
        let lines = Grouped::new(&incidence, 6, |group| Some(group / 4));
        assert_eq!(lines.of(1), [Block { number: 1, samples: 2, first: [0, 1], irregular: false }, Block { number: 1 << 56 | 1, samples: 1, first: [2, 0], irregular: false }]);
        assert_eq!(lines.of(2), [Block { number: 1, samples: 1, first: [1, 0], irregular: false }, Block { number: 2, samples: 1, first: [2, 0], irregular: false }]);
        assert!(lines.of(0).is_empty() && lines.of(3).is_empty());
        let all = Blocks::new(&incidence, 6, |_| true);
        assert_eq!(all.blocks.len(), 3);
        assert_eq!((all.samples(0), all.samples(1), all.samples(2)), (&[0u32, 1][..], &[2u32][..], &[2u32][..]));
    }
}
