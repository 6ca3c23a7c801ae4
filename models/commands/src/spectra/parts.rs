//! Other parts for which spectra are counted: objects, functions, intervals of the run.
//!
//! Each access has a tag: the number of an existing combination of object, function and interval.
//! Bands count by tag, so distances are measured only once, and sums over tags are the parts'
//! signatures. Footprints of functions and intervals are sets of blocks of the smallest size, since
//! several of them may touch the same blocks.

use mgz_analyzer::commands::stream::View;
use mgz_analyzer::data::code_map::{CodeMap, Target};
use mgz_analyzer::data::group::Group;
use std::collections::HashMap;

/// Number of a missing function: the row's function is unknown, or functions were not requested.
pub(crate) const NO_FUNCTION: u32 = u32::MAX;
/// Bits of the block number within a leaf of a [`BlockSet`].
const LEAF: u32 = 12;

/// A combination that occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tag {
    pub object: u32,
    pub function: u32,
    pub interval: u32,
}

/// A function, or an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Part {
    Function(u32),
    Interval(u32),
}

/// Blocks by process.
#[derive(Default)]
pub(crate) struct BlockSet {
    leaves: HashMap<(u32, u64), Box<[u64; 1 << (LEAF - 6)]>>,
    last: Option<(u32, u64)>,
}

impl BlockSet {
    #[inline(always)]
    fn add(&mut self, process: u32, block: u64) {
        // Most accesses touch the same block as the previous one.
        if self.last != Some((process, block)) {
            self.last = Some((process, block));
            self.insert(process, block);
        }
    }

    fn insert(&mut self, process: u32, block: u64) {
        let leaf = self
            .leaves
            .entry((process, block >> LEAF))
            .or_insert_with(|| Box::new([0; 1 << (LEAF - 6)]));
        let at = (block & ((1 << LEAF) - 1)) as usize;
        leaf[at / 64] |= 1 << (at % 64);
    }

    /// Number of blocks of `1 << larger` times the size that contain one of these.
    pub fn count(&self, larger: u32) -> u64 {
        let mut keys: Vec<&(u32, u64)> = self.leaves.keys().collect();
        keys.sort_unstable();
        let mut last = None;
        let mut count = 0;
        for &key in keys {
            for (word, &bits) in self.leaves[&key].iter().enumerate() {
                let mut bits = bits;
                while bits != 0 {
                    let at = (word as u64) * 64 + u64::from(bits.trailing_zeros());
                    bits &= bits - 1;
                    let block = Some((key.0, (key.1 << LEAF | at) >> larger));
                    count += u64::from(last != block);
                    last = block;
                }
            }
        }
        count
    }
}

/// Tags of accesses, and blocks touched by functions and intervals.
#[derive(Default)]
pub(crate) struct Parts {
    functions: bool,
    intervals: u32,
    shift: u32,
    tags: Vec<Tag>,
    numbers: HashMap<Tag, u32>,
    last: Option<(Tag, u32)>,
    touched: HashMap<Part, BlockSet>,
}

/// Position of a segment in its thread's run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentPlace {
    pub process: u32,
    /// Number of the thread's rows before the segment.
    pub before: u64,
    /// Number of rows of the segment.
    pub rows: u64,
    /// Number of rows of the thread; 0 if unknown.
    pub all: u64,
}

impl Parts {
    /// Parts without accesses. `shift` is log2 of the smallest block size.
    pub fn new(functions: bool, intervals: u32, shift: u32) -> Parts {
        Parts {
            functions,
            intervals,
            shift,
            ..Parts::default()
        }
    }

    /// Converts the objects of accesses to their tags.
    pub fn tag(
        &mut self,
        code: &CodeMap,
        place: SegmentPlace,
        accesses: View<'_>,
        objects: &mut [u32],
    ) {
        let steps = accesses.len().max(1) as u64;
        let mut sets: [Option<(Part, BlockSet)>; 2] = [None, None];
        for (i, object) in objects.iter_mut().enumerate() {
            let function = if self.functions {
                let targets = |&group: &Group| code.targets(Target::Function, group).first();
                let found = accesses.group.get(i).and_then(targets);
                found.copied().unwrap_or(NO_FUNCTION)
            } else {
                NO_FUNCTION
            };
            let row = place.before + place.rows * i as u64 / steps;
            let interval = if self.intervals > 0 && place.all > 0 {
                let at = u128::from(row) * u128::from(self.intervals) / u128::from(place.all);
                (at as u32).min(self.intervals - 1)
            } else {
                0
            };
            let tag = Tag {
                object: *object,
                function,
                interval,
            };
            *object = match self.last {
                Some((known, number)) if known == tag => number,
                _ => self.number(tag),
            };
            let wanted = [
                self.functions.then_some(Part::Function(function)),
                (self.intervals > 0).then_some(Part::Interval(interval)),
            ];
            let first = accesses.address[i] >> self.shift;
            let end = accesses.address[i].saturating_add(u64::from(accesses.size[i].max(1)) - 1);
            for (slot, part) in sets.iter_mut().zip(wanted) {
                let Some(part) = part else { continue };
                if slot.as_ref().is_none_or(|(held, _)| *held != part) {
                    let next = self.touched.remove(&part).unwrap_or_default();
                    if let Some((held, set)) = slot.replace((part, next)) {
                        self.touched.insert(held, set);
                    }
                }
                if let Some((_, set)) = slot {
                    (first..=end >> self.shift).for_each(|b| set.add(place.process, b));
                }
            }
        }
        self.touched.extend(sets.into_iter().flatten());
    }

    #[cold]
    fn number(&mut self, tag: Tag) -> u32 {
        let next = self.tags.len() as u32;
        let number = *self.numbers.entry(tag).or_insert(next);
        if number == next {
            self.tags.push(tag);
        }
        self.last = Some((tag, number));
        number
    }

    /// True if tags distinguish more than objects.
    pub fn wanted(&self) -> bool {
        self.functions || self.intervals > 0
    }

    /// The object of a tag.
    pub fn object(&self, tag: u32) -> u32 {
        self.tags.get(tag as usize).map_or(tag, |t| t.object)
    }

    /// Functions and intervals, in order, each with its tags and the blocks that it touches.
    pub fn list(&self) -> Vec<(Part, Vec<u32>, &BlockSet)> {
        let mut parts: Vec<(Part, Vec<u32>, &BlockSet)> = self
            .touched
            .iter()
            .map(|(&part, set)| {
                let of = |t: &Tag| match part {
                    Part::Function(f) => t.function == f,
                    Part::Interval(n) => t.interval == n,
                };
                let tags = (0..).zip(&self.tags).filter(|(_, t)| of(t));
                (part, tags.map(|(n, _)| n).collect(), set)
            })
            .collect();
        parts.sort_unstable_by_key(|p| p.0);
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_every_size_are_counted_once() {
        let mut set = BlockSet::default();
        for block in [0, 1, 63, 64, 4095, 4096, 1 << 40, 0, 1] {
            set.add(1, block);
        }
        set.add(2, 0);
        assert_eq!(set.count(0), 8);
        // Blocks by 64: {0..63}, {64}, {4095}, {4096}, {2^40}, and the block of the other process.
        assert_eq!(set.count(6), 6);
        assert_eq!(set.count(12), 4);
        assert_eq!(set.count(63), 2);
    }

    #[test]
    fn parts_have_their_accesses_and_blocks() {
        let mut parts = Parts::new(false, 4, 6);
        let address: Vec<u64> = (0..8).map(|i| i * 64 + 60).collect();
        let view = View {
            address: &address,
            size: &[8; 8],
            group: &[Group::default(); 8],
        };
        let mut objects = vec![5, 5, 5, 5, 6, 6, 6, 6];
        let place = SegmentPlace {
            process: 1,
            before: 0,
            rows: 8,
            all: 8,
        };
        parts.tag(&CodeMap::new(), place, view, &mut objects);
        assert_eq!(objects, [0, 0, 1, 1, 2, 2, 3, 3]);
        assert_eq!([0, 1, 2, 3].map(|t| parts.object(t)), [5, 5, 6, 6]);
        let list = parts.list();
        assert_eq!(list.len(), 4);
        for (n, (part, tags, blocks)) in (0..).zip(&list) {
            assert_eq!((*part, tags.as_slice()), (Part::Interval(n), &[n][..]));
            // Each access reaches into the following block.
            assert_eq!(blocks.count(0), 3);
        }
        assert_eq!(Parts::new(false, 0, 6).object(9), 9);
    }
}
