//! The last access of each line in a sample, and the number of lines touched since.

use crate::data::memory_units::CacheLine;
use mgz_models::util::hash::spread;

/// See the module's text. Accesses are told apart by their positions in the sample.
#[derive(Clone, Default)]
pub(super) struct LastAccesses {
    /// Line plus one (0: free), position of the last access; open addressing.
    table: Vec<(u64, u32)>,
    /// Fenwick tree over positions: lines whose last access is there.
    tree: Vec<u32>,
    lines: u64,
}

/// Place of a line in the table.
pub(super) struct LinePlace {
    slot: usize,
    /// Position of the line's last access, if there was any.
    pub(super) before: Option<usize>,
}

impl LastAccesses {
    /// A sample of `n` accesses begins.
    pub(super) fn begin(&mut self, n: usize) {
        self.table.clear();
        self.table.resize((4 * n).next_power_of_two(), (0, 0));
        self.tree.clear();
        self.tree.resize(n + 1, 0);
        self.lines = 0;
    }

    /// Number of lines that were touched.
    pub(super) fn lines(&self) -> u64 {
        self.lines
    }

    /// Finds a line.
    #[inline(always)]
    pub(super) fn find(&self, line: CacheLine) -> LinePlace {
        let line = line.number();
        let mask = self.table.len() - 1;
        let mut slot = spread(line) as usize >> 20 & mask;
        while self.table[slot].0 != 0 && self.table[slot].0 != line + 1 {
            slot = (slot + 1) & mask;
        }
        let (there, at) = self.table[slot];
        LinePlace {
            slot,
            before: (there != 0).then_some(at as usize),
        }
    }

    /// Number of lines whose last access came after that of another line.
    #[inline(always)]
    pub(super) fn since(&self, before: usize) -> u64 {
        let (mut sum, mut at) = (0, before + 1);
        while at > 0 {
            sum += self.tree[at];
            at &= at - 1;
        }
        self.lines - u64::from(sum)
    }

    /// Adds an access of a line, whose place was found before.
    #[inline(always)]
    pub(super) fn put(&mut self, place: LinePlace, line: CacheLine, at: usize) {
        match place.before {
            Some(before) => self.add(before, -1),
            None => self.lines += 1,
        }
        self.add(at, 1);
        self.table[place.slot] = (line.number() + 1, at as u32);
    }

    #[inline(always)]
    fn add(&mut self, position: usize, by: i32) {
        let mut at = position + 1;
        while at < self.tree.len() {
            self.tree[at] = self.tree[at].wrapping_add_signed(by);
            at += at & at.wrapping_neg();
        }
    }
}
