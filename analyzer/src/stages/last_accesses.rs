//! The last access of each line in a sample, and the number of lines touched since.
//!
//! Consecutive accesses of one line are one *stay*. Lines are ordered by their last stays: one bit
//! for each stay that is the last one of its line, with sums over words and blocks of bits.

use crate::data::memory_units::CacheLine;
use mgz_models::util::hash::spread;

/// Initial number of entries of the table.
const FIRST_ENTRIES: usize = 1 << 9;
/// Log2 of the stays in a word.
const WORD_LOG2: u32 = 6;
/// Log2 of the words in a block.
const BLOCK_LOG2: u32 = 6;

/// A line in the table.
#[derive(Clone, Copy, Default)]
struct Entry {
    /// Its number plus one; 0 if the entry is free.
    line: u64,
    /// Position of its last access.
    at: u32,
    /// Number of its last stay.
    stay: u32,
}

/// See the module's text. Accesses are identified by their positions in the sample.
#[derive(Clone, Default)]
pub(super) struct LastAccesses {
    /// A hash table with open addressing.
    table: Vec<Entry>,
    /// Entry of the last access.
    recent: usize,
    /// Number of stays.
    stays: u32,
    /// Number of lines whose last stay it is, by stay, by word, and by block.
    last: Vec<u64>,
    of_words: Vec<u8>,
    of_blocks: Vec<u32>,
    lines: u64,
}

/// Place of a line in the table.
pub(super) struct LinePlace {
    slot: usize,
    stay: u32,
    /// Position of the line's last access, if there was any.
    pub(super) before: Option<usize>,
}

impl LastAccesses {
    /// Begins a sample of at most `n` accesses.
    pub(super) fn begin(&mut self, n: usize) {
        // The previous sample probably had about as many lines.
        let entries = self.table.len().min((4 * n).next_power_of_two());
        self.table.clear();
        self.table
            .resize(entries.max(FIRST_ENTRIES), Entry::default());
        let words = (n >> WORD_LOG2) + 1;
        self.last.clear();
        self.last.resize(words, 0);
        self.of_words.clear();
        self.of_words.resize(words, 0);
        self.of_blocks.clear();
        self.of_blocks.resize((words >> BLOCK_LOG2) + 1, 0);
        (self.recent, self.stays, self.lines) = (0, 0, 0);
    }

    /// Number of lines that were touched.
    pub(super) fn lines(&self) -> u64 {
        self.lines
    }

    /// Finds a line.
    #[inline(always)]
    pub(super) fn find(&self, line: CacheLine) -> LinePlace {
        let slot = self.slot(line.number() + 1);
        let entry = &self.table[slot];
        LinePlace {
            slot,
            stay: entry.stay,
            before: (entry.line != 0).then_some(entry.at as usize),
        }
    }

    /// The entry of a line, or a free one for it. `line` is its number plus one.
    #[inline(always)]
    fn slot(&self, line: u64) -> usize {
        let mask = self.table.len() - 1;
        let mut slot = spread(line - 1) as usize >> 20 & mask;
        while self.table[slot].line != 0 && self.table[slot].line != line {
            slot = (slot + 1) & mask;
        }
        slot
    }

    /// Number of lines whose last access came after that of another line.
    #[inline(always)]
    pub(super) fn since(&self, of: &LinePlace) -> u64 {
        let word = (of.stay >> WORD_LOG2) as usize;
        let block = word >> BLOCK_LOG2;
        let end = ((block + 1) << BLOCK_LOG2).min(self.of_words.len());
        // Two shifts, since the word may have no later stay.
        let later = self.last[word] >> (of.stay % u64::BITS) >> 1;
        let of_words = self.of_words[word + 1..end].iter().map(|&n| u64::from(n));
        let of_blocks = self.of_blocks[block + 1..].iter().map(|&n| u64::from(n));
        u64::from(later.count_ones()) + of_words.sum::<u64>() + of_blocks.sum::<u64>()
    }

    /// Adds an access of the line that was accessed last.
    #[inline(always)]
    pub(super) fn stay(&mut self, at: usize) {
        self.table[self.recent].at = at as u32;
    }

    /// Adds an access of another line, whose place [`LastAccesses::find`] returned.
    #[inline(always)]
    pub(super) fn put(&mut self, place: LinePlace, line: CacheLine, at: usize) {
        let mut slot = place.slot;
        match place.before {
            Some(_) => self.flip(place.stay, u32::MAX),
            None => {
                self.lines += 1;
                if 4 * self.lines as usize > self.table.len() {
                    self.grow();
                    slot = self.slot(line.number() + 1);
                }
            }
        }
        self.flip(self.stays, 1);
        self.table[slot] = Entry {
            line: line.number() + 1,
            at: at as u32,
            stay: self.stays,
        };
        self.recent = slot;
        self.stays += 1;
    }

    /// Flips the bit of a stay, and changes its sums by one.
    #[inline(always)]
    fn flip(&mut self, stay: u32, by: u32) {
        let word = (stay >> WORD_LOG2) as usize;
        self.last[word] ^= 1 << (stay % u64::BITS);
        self.of_words[word] = self.of_words[word].wrapping_add(by as u8);
        let of_block = &mut self.of_blocks[word >> BLOCK_LOG2];
        *of_block = of_block.wrapping_add(by);
    }

    #[cold]
    fn grow(&mut self) {
        let larger = vec![Entry::default(); 2 * self.table.len()];
        let entries = std::mem::replace(&mut self.table, larger);
        for entry in entries.into_iter().filter(|e| e.line != 0) {
            let slot = self.slot(entry.line);
            self.table[slot] = entry;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares positions and numbers of later lines with those from a list of touched lines, most
    /// recent last. The sample has several blocks of stays.
    #[test]
    fn lines_are_ordered_by_their_last_accesses() {
        let (mut state, n) = (7u64, 20_000);
        let mut found = LastAccesses::default();
        for most in [3, 90, 6000] {
            found.begin(n);
            let mut list: Vec<(CacheLine, usize)> = Vec::new();
            let mut last = None;
            for at in 0..n {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
                let line = CacheLine::from_number((state >> 33) % most);
                let place = found.find(line);
                let known = list.iter().position(|l| l.0 == line);
                assert_eq!(place.before, known.map(|k| list[k].1));
                if let Some(known) = known {
                    assert_eq!(found.since(&place), (list.len() - 1 - known) as u64);
                    list.remove(known);
                }
                match last == Some(line) {
                    true => found.stay(at),
                    false => found.put(place, line, at),
                }
                list.push((line, at));
                assert_eq!(found.lines(), list.len() as u64);
                last = Some(line);
            }
        }
    }
}
