//! From marks to blocks: by function, line or class, at the granularity of addresses, lines or pages.

use super::Block;
use crate::incidence::{Incidence, Mark};
use rayon::prelude::*;

/// Number of a block in an address space: blocks of different spaces never share one for addresses below 2^56.
fn number(space: usize, address: u64, shift: u32) -> u64 {
    (space as u64) << 56 ^ address >> shift
}

/// A sighting of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Seen {
    number: u64,
    sample: u32,
    irregular: bool,
}

/// Puts sightings in the order of blocks and samples, each once. Marks come in the order of addresses, so that mostly
/// only the samples of one block have to be sorted.
fn settle(list: &mut Vec<Seen>) {
    if list.is_sorted_by_key(|s| s.number) {
        list.chunk_by_mut(|a, b| a.number == b.number).filter(|same| same.len() > 1).for_each(<[Seen]>::sort_unstable);
    } else {
        list.par_sort_unstable();
    }
    list.dedup_by(|later, kept| {
        let same = (later.number, later.sample) == (kept.number, kept.sample);
        kept.irregular |= same && later.irregular;
        same
    });
}

/// The block that all of these sightings are of.
fn block(same: &[Seen]) -> Block {
    let second = same.get(1).map_or(0, |s| s.sample);
    Block { number: same[0].number, samples: same.len() as u32, first: [same[0].sample, second], irregular: same.iter().any(|s| s.irregular) }
}

/// Blocks by target, each list sorted by number.
pub struct Grouped {
    /// By target.
    blocks: Vec<Vec<Block>>,
}

impl Grouped {
    /// Groups marks. `target` gives the target of a code group, if it has one; blocks have `1 << shift` bytes.
    pub fn new(incidence: &Incidence, shift: u32, target: impl Fn(u32) -> Option<u32> + Sync) -> Grouped {
        let mut seen: Vec<Vec<Seen>> = Vec::new();
        for (space, marks) in incidence.spaces().iter().enumerate() {
            for mark in marks {
                let Some(target) = target(mark.group) else { continue };
                if seen.len() <= target as usize {
                    seen.resize(target as usize + 1, Vec::new());
                }
                let one = Seen { number: number(space, mark.address, shift), sample: mark.sample, irregular: mark.group & 3 == 2 };
                let list = &mut seen[target as usize];
                // A line is often touched several times in a row by one sample.
                if list.last() != Some(&one) {
                    list.push(one);
                }
            }
        }
        let blocks = seen.into_par_iter().map(|mut list| {
            settle(&mut list);
            list.chunk_by(|a, b| a.number == b.number).map(block).collect()
        });
        Grouped { blocks: blocks.collect() }
    }

    /// Blocks of a target.
    pub fn of(&self, target: u32) -> &[Block] {
        self.blocks.get(target as usize).map_or(&[], Vec::as_slice)
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
        let mut all: Vec<Seen> = Vec::new();
        for (space, marks) in incidence.spaces().iter().enumerate() {
            let seen = |m: &Mark| Seen { number: number(space, m.address, shift), sample: m.sample, irregular: m.group & 3 == 2 };
            all.extend(marks.iter().filter(|m| wanted(m)).map(seen));
        }
        settle(&mut all);
        let mut out = Blocks { blocks: Vec::new(), samples: all.iter().map(|a| a.sample).collect(), ends: Vec::new() };
        let mut at = 0;
        for same in all.chunk_by(|a, b| a.number == b.number) {
            at += same.len();
            out.blocks.push(block(same));
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
