//! Prefetchers: lines that are loaded ahead of demand.
//!
//! No prefetcher crosses the 4 KiB page of the access that triggers it.

use crate::util::memory_units::Page;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// The prefetchers of a level. They see the accesses that reach the level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prefetch {
    /// A miss, and the first use of a prefetched line, load the following line.
    pub next_line: bool,
    /// If an instruction has moved by the same distance twice in a row, its next line is
    /// prefetched: the line at that distance, or, if that is the same line, the next one in that
    /// direction.
    pub stride: bool,
}

impl Prefetch {
    /// Names, as in a specification.
    pub fn names(self) -> String {
        match (self.next_line, self.stride) {
            (true, true) => "next-line+stride",
            (true, false) => "next-line",
            (false, true) => "stride",
            (false, false) => "",
        }
        .into()
    }
}

/// True if two addresses are in one page.
pub(crate) fn same_page(a: u64, b: u64) -> bool {
    Page::of(a) == Page::of(b)
}

/// Last accesses of an instruction.
#[derive(Clone, Copy, Default)]
struct Walk {
    last: u64,
    stride: i64,
    /// Accesses seen, up to 2.
    seen: u8,
    steady: bool,
}

/// Number of an unknown instruction, from which nothing is learned.
pub const NO_INSTRUCTION: u32 = u32::MAX;

/// Instructions below this number have entries in an array; others are looked up. Source: Chosen.
const MAX_DENSE_INSTRUCTIONS: usize = 1 << 20;

/// Walk of each instruction through memory. Their number is not limited.
#[derive(Default)]
pub struct Strides {
    walks: Vec<Walk>,
    others: HashMap<u32, Walk>,
}

impl Strides {
    /// Predicted next address of an instruction, if its last two strides were equal and not zero.
    pub fn next(&self, instruction: u32) -> Option<u64> {
        self.step(instruction).map(|(_, next)| next)
    }

    /// Last address of an instruction, and its predicted next address.
    fn step(&self, instruction: u32) -> Option<(u64, u64)> {
        let at = instruction as usize;
        let walk = if at < MAX_DENSE_INSTRUCTIONS {
            self.walks.get(at)?
        } else {
            self.others.get(&instruction)?
        };
        walk.steady
            .then(|| (walk.last, walk.last.wrapping_add_signed(walk.stride)))
    }

    /// Records an access of the instruction.
    #[inline]
    pub fn learn(&mut self, instruction: u32, address: u64) {
        let at = instruction as usize;
        if at >= self.walks.len() && at < MAX_DENSE_INSTRUCTIONS {
            self.walks.resize(at + 1, Walk::default());
        }
        let walk = match self.walks.get_mut(at) {
            Some(walk) => walk,
            None if instruction == NO_INSTRUCTION => return,
            None => self.others.entry(instruction).or_default(),
        };
        let stride = address.wrapping_sub(walk.last) as i64;
        walk.steady = walk.seen == 2 && stride == walk.stride && stride != 0;
        if walk.seen > 0 {
            walk.stride = stride;
        }
        walk.seen = (walk.seen + 1).min(2);
        walk.last = address;
    }

    /// An address in the line to prefetch after an access.
    #[inline]
    pub(crate) fn target(&self, instruction: u32, address: u64, line: u64) -> Option<u64> {
        let next = self.next(instruction)?;
        let shift = line.trailing_zeros();
        let target = if next >> shift != address >> shift {
            next
        } else if next > address {
            address.wrapping_add(line)
        } else {
            address.wrapping_sub(line)
        };
        same_page(target, address).then_some(target)
    }
}

/// Number of recent misses kept by [`Foresight`].
const RECENT_MISSES: usize = 16;

/// Determines for each miss if a prefetcher would have foreseen it.
pub struct Foresight {
    strides: Strides,
    recent: [u64; RECENT_MISSES],
    at: usize,
    shift: u32,
}

/// Which prefetchers would have foreseen a miss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Foreseen {
    /// The instruction's last two strides were equal, and the next one leads to this line, in the
    /// same page.
    pub stride: bool,
    /// The previous line is one of the last sixteen that were missed, in the same page.
    pub next_line: bool,
}

impl Foresight {
    /// For lines of `line` bytes.
    pub fn new(line: u64) -> Foresight {
        Foresight {
            strides: Strides::default(),
            recent: [u64::MAX; RECENT_MISSES],
            at: 0,
            shift: line.trailing_zeros(),
        }
    }

    /// Records an access of an instruction. If it missed, returns which prefetchers would have
    /// foreseen it.
    #[inline]
    pub fn access(&mut self, instruction: u32, address: u64, missed: bool) -> Foreseen {
        let mut foreseen = Foreseen::default();
        if missed {
            let block = address >> self.shift;
            foreseen.stride = self
                .strides
                .step(instruction)
                .is_some_and(|(last, next)| next >> self.shift == block && same_page(last, next));
            foreseen.next_line = block
                .checked_sub(1)
                .is_some_and(|b| self.recent.contains(&b) && same_page(b << self.shift, address));
            self.recent[self.at] = block;
            self.at = (self.at + 1) % RECENT_MISSES;
        }
        self.strides.learn(instruction, address);
        foreseen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_equal_strides_are_a_walk() {
        let mut strides = Strides::default();
        for (address, next) in [
            (100, None),
            (116, None),
            (132, Some(148)),
            (148, Some(164)),
            (150, None),
            (150, None),
            (150, None),
            (140, None),
            (130, Some(120)),
        ] {
            strides.learn(3, address);
            assert_eq!(strides.next(3), next, "{address}");
        }
        assert_eq!((strides.next(2), strides.next(9)), (None, None));
    }

    #[test]
    fn prefetches_stay_in_the_page() {
        let mut strides = Strides::default();
        (0..4).for_each(|i| strides.learn(0, 4096 - 64 + i * 8));
        // Short strides lead to the next line, here to one of the next page.
        assert_eq!(strides.target(0, 4096 - 40, 64), None);
        (0..4).for_each(|i| strides.learn(1, 512 - i * 8));
        assert_eq!(strides.target(1, 488, 64), Some(488 - 64));
        (0..4).for_each(|i| strides.learn(2, i * 200));
        assert_eq!(strides.target(2, 600, 64), Some(800));
    }

    #[test]
    fn misses_are_foreseen_by_stride_or_by_the_line_before() {
        let mut foresight = Foresight::new(64);
        let seen: Vec<(bool, bool)> = [(0, 0), (0, 128), (0, 256), (0, 384), (1, 448), (1, 9000)]
            .into_iter()
            // Even strides, but each leads to another page.
            .chain((0..4).map(|i| (2, 1 << 20 | i << 14)))
            .map(|(ip, address)| foresight.access(ip, address, true))
            .map(|f| (f.stride, f.next_line))
            .collect();
        assert_eq!(
            seen,
            [
                (false, false),
                (false, false),
                (false, false),
                (true, false),
                (false, true),
                (false, false),
                (false, false),
                (false, false),
                (false, false),
                (false, false)
            ]
        );
    }
}
