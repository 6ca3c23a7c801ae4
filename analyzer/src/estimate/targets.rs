//! From marks to blocks: by function, line or class, at the granularity of addresses, lines or pages.

use super::footprint::{Stratum, strata, together};
use super::{Block, Design, Estimate};
use crate::incidence::{Incidence, Mark};
use rayon::prelude::*;
use std::sync::OnceLock;

/// Number of a block in an address space: blocks of different spaces never share one for addresses below 2^56.
fn number(space: usize, address: u64, shift: u32) -> u64 {
    (space as u64) << 56 ^ address >> shift
}

/// The line of 64 bytes that an address is in, both as numbers.
fn line_of(number: u64) -> u64 {
    const SPACE: u64 = 0xff << 56;
    number & SPACE | (number & !SPACE) >> 6
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

/// An address that a target has seen in a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Sighting {
    number: u64,
    sample: u32,
    /// One bit for each class of load.
    classes: u32,
}

/// Bits of [`Sighting::classes`].
const STRIDED: u32 = 1 << 1;
const IRREGULAR: u32 = 1 << 2;

/// Puts sightings whose numbers ascend in the order of samples as well, each once.
fn settle_classes(list: &mut Vec<Sighting>) {
    list.chunk_by_mut(|a, b| a.number == b.number).filter(|same| same.len() > 1).for_each(<[Sighting]>::sort_unstable);
    list.dedup_by(|later, kept| {
        let same = (later.number, later.sample) == (kept.number, kept.sample);
        kept.classes |= if same { later.classes } else { 0 };
        same
    });
}

/// The blocks of the sightings with one of `classes`.
fn blocks(list: &[Sighting], classes: u32) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for one in list.iter().filter(|s| s.classes & classes != 0) {
        let irregular = one.classes & classes & IRREGULAR != 0;
        match blocks.last_mut().filter(|b| b.number == one.number) {
            Some(block) => {
                if block.samples == 1 {
                    block.first[1] = one.sample;
                }
                block.samples += 1;
                block.irregular |= irregular;
            }
            None => blocks.push(Block { number: one.number, samples: 1, first: [one.sample, 0], irregular }),
        }
    }
    blocks
}

/// What one target has seen. All lists are sorted by number.
#[derive(Clone, Debug, Default)]
pub struct Kinds {
    /// Addresses.
    pub all: Vec<Block>,
    /// Addresses of Strided loads.
    pub strided: Vec<Block>,
    /// Addresses of Irregular loads.
    pub irregular: Vec<Block>,
    /// Lines of 64 bytes.
    pub lines: Vec<Block>,
}

/// Blocks by target.
pub struct Grouped {
    /// By target.
    kinds: Vec<Kinds>,
}

impl Grouped {
    /// Groups marks. `targets` gives the targets of a code group.
    pub fn new<'a>(incidence: &Incidence, targets: impl Fn(u32) -> &'a [u32] + Sync) -> Grouped {
        let mut seen: Vec<Vec<Sighting>> = Vec::new();
        for (space, marks) in incidence.spaces().iter().enumerate() {
            for mark in marks {
                let one = Sighting { number: number(space, mark.address, 0), sample: mark.sample, classes: 1 << (mark.group & 3) };
                for &target in targets(mark.group) {
                    if seen.len() <= target as usize {
                        seen.resize(target as usize + 1, Vec::new());
                    }
                    seen[target as usize].push(one);
                }
            }
        }
        // Marks come in the order of addresses, but for addresses that another space's number makes greater.
        let kinds = seen.into_par_iter().map(|mut list| {
            if !list.is_sorted_by_key(|s| s.number) {
                list.par_sort_unstable();
            }
            settle_classes(&mut list);
            let all = blocks(&list, u32::MAX);
            let (strided, irregular) = (blocks(&list, STRIDED), blocks(&list, IRREGULAR));
            list.iter_mut().for_each(|s| s.number = line_of(s.number));
            settle_classes(&mut list);
            Kinds { all, strided, irregular, lines: blocks(&list, u32::MAX) }
        });
        Grouped { kinds: kinds.collect() }
    }

    /// Blocks of a target.
    pub fn of(&self, target: u32) -> Option<&Kinds> {
        self.kinds.get(target as usize)
    }
}

/// Blocks with all samples that have seen them.
pub struct Blocks {
    /// What [`super::footprint`] takes, sorted by number.
    pub blocks: Vec<Block>,
    samples: Vec<u32>,
    ends: Vec<usize>,
    strata: OnceLock<Vec<Stratum>>,
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
        let mut out = Blocks { blocks: Vec::new(), samples: all.iter().map(|a| a.sample).collect(), ends: Vec::new(), strata: OnceLock::new() };
        let mut at = 0;
        for same in all.chunk_by(|a, b| a.number == b.number) {
            at += same.len();
            out.blocks.push(block(same));
            out.ends.push(at);
        }
        out
    }

    /// Their strata, divided once. All calls are for samples taken alike.
    pub(super) fn strata(&self, design: Design) -> &[Stratum] {
        self.strata.get_or_init(|| strata(&self.blocks, design))
    }

    /// As [`super::footprint()`].
    pub fn footprint(&self, design: Design, scale: f64, observed: u64) -> Estimate {
        if design.complete() || self.blocks.is_empty() {
            return Estimate::exact(observed as f64);
        }
        together(self.strata(design), scale, observed)
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
        let rows: Vec<[u32; 2]> = (0..3).map(|row| [row, 3]).collect();
        // Each group counts in a row of its own and in one for all.
        let grouped = Grouped::new(&incidence, |group| &rows[group as usize / 4]);
        let of = |row: u32| grouped.of(row).cloned().unwrap_or_default();
        assert_eq!(of(1).lines, [Block { number: 1, samples: 2, first: [0, 1], irregular: false }, Block { number: 1 << 56 | 1, samples: 1, first: [2, 0], irregular: false }]);
        assert_eq!(of(2).lines, [Block { number: 1, samples: 1, first: [1, 0], irregular: false }, Block { number: 2, samples: 1, first: [2, 0], irregular: false }]);
        assert!(of(0).lines.is_empty() && grouped.of(4).is_none());
        let address = |number, samples, first| Block { number, samples, first, irregular: false };
        assert_eq!(of(3).all, [address(64, 1, [0, 0]), address(72, 1, [1, 0]), address(128, 1, [2, 0]), address(1 << 56 | 64, 1, [2, 0])]);
        assert_eq!(of(3).strided, of(3).all);
        assert!(of(3).irregular.is_empty());
        let all = Blocks::new(&incidence, 6, |_| true);
        assert_eq!(all.blocks.len(), 3);
        assert_eq!((all.samples(0), all.samples(1), all.samples(2)), (&[0u32, 1][..], &[2u32][..], &[2u32][..]));
    }
}
