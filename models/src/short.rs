//! Exact reuse distance as long as a sample is short: all state in the first-level cache, no branch on whether a block is new.
//!
//! Rows come in batches, and each batch goes through three loops: blocks get numbers (the only loop that looks for something), distances
//! are counted, the sink is told. So a branch that nobody can foresee costs one loop, not all. Touches take slots; a bitmap marks the
//! slots that are the last of their block. Each word of the bitmap has the number of marks before it, which is one vector to change when a
//! mark goes: a distance is one counter and one word. Slots are never renumbered: when they are used up, [`crate::reuse`] goes on
//! with what it takes over from here.

use crate::reuse::{ReuseSink, spread};

/// Slots, at most; numbers of blocks and slots fit into 16 bits.
pub(crate) const SLOTS: usize = 4096;
const WORDS: usize = SLOTS / 64;
/// Words whose counters are one vector.
const FEW: usize = 16;
/// Rows of a batch.
const BATCH: usize = 256;
/// Places of the table of blocks.
const TABLE: usize = 2 * SLOTS;
/// Blocks of one access, at most.
const WIDE: u64 = 64;
/// In place of a row: not touched yet.
const NEVER: u16 = u16::MAX;

/// A block that was touched.
#[derive(Clone, Copy)]
pub(crate) struct Line {
    pub(crate) block: u64,
    /// Its last touch.
    pub(crate) slot: u16,
    /// The last slot of the access that this touch was part of.
    pub(crate) end: u16,
    /// The row of that access.
    pub(crate) row: u16,
    /// Its place in the table.
    at: u16,
}

/// See the module's text.
pub(crate) struct Short {
    shift: u32,
    /// Slots that may be used.
    slots: usize,
    /// Number of a block, plus one; 0 is free.
    table: Box<[u16; TABLE]>,
    lines: Vec<Line>,
    words: [u64; WORDS],
    /// Marks before each word that has been begun.
    before: [u16; WORDS],
    next: usize,
    live: u32,
    rows: usize,
}

/// What the second loop leaves to the third.
struct Told {
    line: [u16; BATCH],
    distance: [u32; BATCH],
    /// [`NEVER`]: a first touch.
    last: [u16; BATCH],
}

impl Short {
    pub(crate) fn new(shift: u32, slots: usize) -> Short {
        Short {
            shift,
            slots: slots.min(SLOTS),
            table: Box::new([0; TABLE]),
            lines: Vec::new(),
            words: [0; WORDS],
            before: [0; WORDS],
            next: 0,
            live: 0,
            rows: 0,
        }
    }

    /// Starts a sample.
    pub(crate) fn begin(&mut self) {
        if self.lines.len() < TABLE / 16 {
            self.lines.iter().for_each(|l| self.table[l.at as usize] = 0);
        } else {
            self.table.fill(0);
        }
        self.lines.clear();
        (self.next, self.live, self.rows) = (0, 0, 0);
    }

    /// Blocks of the sample.
    pub(crate) fn blocks(&self) -> u64 {
        u64::from(self.live)
    }

    /// Slots in use.
    pub(crate) fn used(&self) -> u32 {
        self.next as u32
    }

    /// What is known of all blocks.
    pub(crate) fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// Feeds accesses in order; returns how many. The others, if any, do not fit.
    #[inline(always)]
    pub(crate) fn run<S: ReuseSink>(&mut self, address: &[u64], size: &[u32], tag: &[u32], sink: &mut S) -> usize {
        let mut told = Told { line: [0; BATCH], distance: [0; BATCH], last: [0; BATCH] };
        let mut from = 0;
        while from < address.len() {
            let room = BATCH.min(self.slots - self.next);
            let most = (from + room).min(address.len());
            let to = from + self.narrow(&address[from..most], &size[from..most]);
            if from < to {
                self.number(&address[from..to], &mut told);
                self.count(to - from, &mut told);
                self.tell(&tag[from..to], &told, sink);
                from = to;
            } else if room == 0 || !self.wide(address[from], size[from], tag[from], sink) {
                return from;
            } else {
                from += 1;
            }
        }
        from
    }

    #[inline(always)]
    fn touched(&self, address: u64, size: u32) -> (u64, u64) {
        (address >> self.shift, address.saturating_add(u64::from(size.max(1)) - 1) >> self.shift)
    }

    /// How many accesses from the first one on touch one block each.
    #[inline(always)]
    fn narrow(&self, address: &[u64], size: &[u32]) -> usize {
        let crosses = |(&address, &size): (&u64, &u32)| {
            let (first, last) = self.touched(address, size);
            first != last
        };
        // Mostly all do: no branch for each.
        if !address.iter().zip(size).fold(false, |any, access| any | crosses(access)) {
            return address.len();
        }
        address.iter().zip(size).position(crosses).unwrap_or(address.len())
    }

    /// The number of a block; it gets one if it has none.
    #[inline(always)]
    fn line(&mut self, block: u64) -> u16 {
        let mut at = (spread(block) >> (64 - TABLE.trailing_zeros())) as usize;
        loop {
            let known = self.table[at % TABLE];
            if known == 0 {
                self.lines.push(Line { block, slot: 0, end: 0, row: NEVER, at: (at % TABLE) as u16 });
                self.table[at % TABLE] = self.lines.len() as u16;
                return self.lines.len() as u16 - 1;
            }
            if self.lines[known as usize - 1].block == block {
                return known - 1;
            }
            at += 1;
        }
    }

    #[inline(always)]
    fn number(&mut self, address: &[u64], told: &mut Told) {
        for (&address, line) in address.iter().zip(&mut told.line) {
            *line = self.line(address >> self.shift);
        }
    }

    /// The number of marked slots behind `end`.
    #[inline(always)]
    fn above(&self, end: u16) -> u32 {
        let word = end as usize / 64 % WORDS;
        let upto = !0u64 >> (63 - end % 64);
        self.live.wrapping_sub(u32::from(self.before[word])).wrapping_sub((self.words[word] & upto).count_ones())
    }

    /// Takes the mark from a slot, if there is one.
    #[inline(always)]
    fn unmark(&mut self, slot: u16, marked: bool) {
        let word = slot as usize / 64 % WORDS;
        self.words[word] &= !(u64::from(marked) << (slot % 64));
        // Nothing stands behind the last word.
        let word = if marked { word as u16 } else { WORDS as u16 };
        let few = if self.next <= FEW * 64 { FEW } else { WORDS };
        if few == FEW {
            (0..FEW).for_each(|k| self.before[k] = self.before[k].wrapping_sub(u16::from(k as u16 > word)));
        } else {
            (0..WORDS).for_each(|k| self.before[k] = self.before[k].wrapping_sub(u16::from(k as u16 > word)));
        }
        self.live -= u32::from(marked);
    }

    /// Marks the next slot.
    #[inline(always)]
    fn mark(&mut self) -> u16 {
        let slot = self.next;
        let word = slot / 64 % WORDS;
        if slot.is_multiple_of(64) {
            self.before[word] = self.live as u16;
            self.words[word] = 0;
        }
        self.words[word] |= 1 << (slot % 64);
        self.live += 1;
        self.next += 1;
        slot as u16
    }

    /// The distances of rows that touch one block each.
    #[inline(always)]
    fn count(&mut self, rows: usize, told: &mut Told) {
        for i in 0..rows.min(BATCH) {
            let number = told.line[i] as usize;
            let Line { slot, end, row, .. } = self.lines[number];
            told.last[i] = row;
            told.distance[i] = self.above(end);
            self.unmark(slot, row != NEVER);
            let new = self.mark();
            let line = &mut self.lines[number];
            (line.slot, line.end, line.row) = (new, new, (self.rows + i) as u16);
        }
    }

    #[inline(always)]
    fn tell<S: ReuseSink>(&mut self, tag: &[u32], told: &Told, sink: &mut S) {
        for (i, &tag) in tag.iter().enumerate().take(BATCH) {
            let row = (self.rows + i) as u64;
            let block = self.lines[told.line[i] as usize].block;
            let first = told.last[i] == NEVER;
            sink.touch(row, block, tag, first, u64::from(told.distance[i]), row.wrapping_sub(u64::from(told.last[i])));
            sink.done(row, tag);
        }
        self.rows += tag.len();
    }

    /// An access to several blocks: none of them stands between another and itself. Whether it fits.
    #[inline(never)]
    fn wide<S: ReuseSink>(&mut self, address: u64, size: u32, tag: u32, sink: &mut S) -> bool {
        let (first, last) = self.touched(address, size);
        if last - first >= WIDE || self.next + (last - first) as usize >= self.slots {
            return false;
        }
        let mut lines = [0u16; WIDE as usize];
        let lines = &mut lines[..(last - first) as usize + 1];
        let row = self.rows as u64;
        for (block, number) in (first..=last).zip(lines.iter_mut()) {
            *number = self.line(block);
            let line = self.lines[*number as usize];
            sink.touch(row, block, tag, line.row == NEVER, u64::from(self.above(line.end)), row.wrapping_sub(u64::from(line.row)));
        }
        let end = (self.next + lines.len() - 1) as u16;
        for &mut number in lines {
            let Line { slot, row: before, .. } = self.lines[number as usize];
            self.unmark(slot, before != NEVER);
            let new = self.mark();
            let line = &mut self.lines[number as usize];
            (line.slot, line.end, line.row) = (new, end, row as u16);
        }
        sink.done(row, tag);
        self.rows += 1;
        true
    }
}
