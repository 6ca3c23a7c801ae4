//! Set conflicts inside a sample: reuses that may miss because the sample alone has filled a set of
//! a cache.
//!
//! A cache of 1,024 sets holds all lines of a sample, unless many of them are in one set. Examples
//! are columns of arrays whose rows have a power of two of bytes, binary searches, and headers of
//! aligned blocks.

use crate::data::memory_units::{CacheLine, LINE_BYTES};
use crate::util::fast_hash::Mixed;
use std::collections::HashMap;

/// Greatest number of cache levels.
pub const LEVELS: usize = 4;
/// Maximum number of sets of a level. Source: Chosen.
const MAX_SETS: u32 = 1 << 20;

/// Sets and ways of a cache. Zero sets stand for a missing level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sets {
    /// Number of sets.
    pub sets: u32,
    /// Lines of each set.
    pub ways: u32,
}

impl Sets {
    /// A cache of `bytes` and `ways`, with lines of 64 bytes.
    pub fn new(bytes: u64, ways: u64) -> Sets {
        let sets = (bytes / ways.saturating_mul(LINE_BYTES).max(1)).clamp(1, u64::from(MAX_SETS));
        Sets {
            sets: sets as u32,
            ways: u32::try_from(ways).unwrap_or(u32::MAX),
        }
    }

    /// The set of a line.
    #[inline(always)]
    pub fn of(&self, line: CacheLine) -> u32 {
        // A division would take as long as the other work on a line.
        match self.sets.is_power_of_two() {
            true => line.number() as u32 & (self.sets - 1),
            false => (line.number() % u64::from(self.sets.max(1))) as u32,
        }
    }
}

/// Finds set conflicts, sample by sample.
#[derive(Clone, Default)]
pub struct Conflicts {
    /// By level and set: lines.
    lines: [Vec<u32>; LEVELS],
    /// Sets of the lines.
    sets: Vec<u32>,
    /// By set: its lines in the order of their last accesses.
    recent: HashMap<u32, Vec<CacheLine>, Mixed>,
}

impl Conflicts {
    /// Calls `tell` for each access in the second half of a sample that finds its set of a level
    /// filled by other lines. Its arguments are the number of the row, the number of the level, and
    /// true if the line was used before. `line` returns the line of a row. `first` is true for the
    /// first row in each line.
    pub fn of_sample(
        &mut self,
        caches: &[Sets; LEVELS],
        rows: usize,
        line: impl Fn(usize) -> CacheLine,
        first: &[bool],
        mut tell: impl FnMut(usize, usize, bool),
    ) {
        let new = || (0..rows.min(first.len())).filter(|&row| first[row]);
        // `line_visits.rs` follows the sets of the first level.
        for level in 1..LEVELS {
            let cache = caches[level];
            if cache.sets == 0 {
                continue;
            }
            let lines = &mut self.lines[level];
            lines.resize(cache.sets as usize, 0);
            let mut crowded = false;
            self.sets.clear();
            self.sets.extend(new().map(|row| cache.of(line(row))));
            for &set in &self.sets {
                let of_set = &mut lines[set as usize];
                *of_set += 1;
                crowded |= *of_set > cache.ways;
            }
            if crowded {
                self.recent.clear();
                for row in 0..rows.min(first.len()) {
                    let line = line(row);
                    let set = cache.of(line);
                    if lines[set as usize] <= cache.ways {
                        continue;
                    }
                    let recent = self.recent.entry(set).or_default();
                    let others = touch(recent, line, first[row]);
                    if others >= cache.ways as usize && 2 * row >= rows {
                        tell(row, level, !first[row]);
                    }
                }
            }
            let lines = &mut self.lines[level];
            (self.sets.iter()).for_each(|&set| lines[set as usize] = 0);
        }
    }
}

/// Lines that are compared together in a search. Source: Chosen.
const LINES_PER_STEP: usize = 16;

/// Makes a line the most recent one. Returns the number of other lines touched since its last
/// touch, or for a new line the number of all lines.
pub(crate) fn touch(recent: &mut Vec<CacheLine>, line: CacheLine, is_new: bool) -> usize {
    if !is_new {
        let mut others = 0;
        for lines in recent.rchunks(LINES_PER_STEP) {
            // Without an early exit, several are compared at a time.
            if lines.iter().fold(false, |any, &l| any | (l == line)) {
                others += lines.iter().rev().take_while(|&&l| l != line).count();
                let at = recent.len() - 1 - others;
                recent[at..].rotate_left(1);
                return others;
            }
            others += lines.len();
        }
    }
    recent.push(line);
    recent.len() - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use mgz_models::cache::{Cache, Shape};

    #[test]
    fn lines_are_touched_in_the_order_of_time() {
        let (mut recent, mut list, mut state) = (Vec::new(), Vec::<CacheLine>::new(), 1u64);
        for _ in 0..2000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
            let line = CacheLine::from_number((state >> 40) % 60);
            let place = list.iter().rev().position(|&l| l == line);
            let others = touch(&mut recent, line, place.is_none());
            assert_eq!(others, place.unwrap_or(list.len()));
            list.retain(|&l| l != line);
            list.push(line);
            assert_eq!(recent, list);
        }
    }

    /// Conflicts are misses of a simulated cache on lines that it contained before.
    #[test]
    fn they_are_misses_of_a_cache() {
        let mut state = 3u64;
        let lines: Vec<u64> = (0..2000)
            .map(|at| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
                // Half of them are in one set of 64.
                let random = state >> 40;
                if at % 2 == 0 {
                    random % 9 * 64
                } else {
                    random % 60
                }
            })
            .collect();
        let cache = Sets::new(64 * 64 * 4, 4);
        assert_eq!((cache.sets, cache.ways), (64, 4));
        let shape = Shape::new(64 * 64 * 4, 4, 64).unwrap();
        let mut simulated = Cache::new(&shape);
        let mut seen = std::collections::HashSet::new();
        let (mut first, mut expected) = (Vec::new(), Vec::new());
        for (row, &line) in lines.iter().enumerate() {
            let hit = simulated.access(line);
            first.push(seen.insert(line));
            if !hit && !first[row] && row >= 1000 {
                expected.push(row);
            }
        }
        let mut found = Vec::new();
        let mut conflicts = Conflicts::default();
        let caches = [Sets::default(), Sets::default(), cache, Sets::default()];
        for _ in 0..2 {
            found.clear();
            conflicts.of_sample(
                &caches,
                2000,
                |row| CacheLine::from_number(lines[row]),
                &first,
                |row, level, again| {
                    assert_eq!(level, 2);
                    if again {
                        found.push(row);
                    }
                },
            );
            assert!(found.len() > 200);
            assert_eq!(found, expected);
        }
    }
}
