//! Exact reuse distance of short samples: all state fits into the first-level cache, and no branch
//! depends on the novelty of a block.
//!
//! Rows are processed in batches, in four loops: blocks get numbers (the only loop that searches,
//! see [`crate::util::interner`]) and slots, distances of reuses are counted, and the sink receives
//! the results. So an unpredictable branch delays one loop, not all of them. Touches take slots. A
//! bitmap marks the last slot of each block. Slots count as marked before they are assigned, so
//! assigning one changes nothing. Each word of the bitmap has a counter of the marks before it, and
//! all counters fit into one vector, which changes when a mark is removed. A distance needs one
//! counter and one word. Slots are never renumbered: when they are used up, [`crate::reuse`]
//! continues from this state.

use crate::reuse::sink::{NOT_TOUCHED, Narrow, ReuseSink, SLOTS};
use crate::util::interner::{DenseNames, KEY_BITS, KEYS_PER_BATCH};

const WORDS: usize = SLOTS / 64;
/// Number of words whose counters fit into one vector.
const WORDS_PER_VECTOR: usize = 16;
const ROWS_PER_BATCH: usize = KEYS_PER_BATCH;
/// Source: Chosen.
const MAX_ACCESS_BLOCKS: u64 = 64;

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
}

/// The numbers of marks before each word, while rows are counted.
pub(crate) trait Counters: Copy {
    /// Loads the first `WORDS_PER_VECTOR` counters if `few`, else all.
    fn load(before: &[u16; WORDS], few: bool) -> Self;
    /// The counter of a word.
    fn get(&self, word: usize, few: bool) -> u16;
    /// Removes a mark from a word: decreases the counters after it.
    fn lower_behind(&mut self, word: usize, few: bool);
    /// Stores the counters to memory.
    fn store(&self, before: &mut [u16; WORDS], few: bool);
}

/// Counters for any CPU.
#[derive(Clone, Copy)]
pub(crate) struct Plain([u16; WORDS]);

impl Counters for Plain {
    #[inline(always)]
    fn load(before: &[u16; WORDS], _few: bool) -> Plain {
        Plain(*before)
    }
    #[inline(always)]
    fn get(&self, word: usize, _few: bool) -> u16 {
        self.0[word % WORDS]
    }
    #[inline(always)]
    fn lower_behind(&mut self, word: usize, few: bool) {
        if few {
            (0..WORDS_PER_VECTOR)
                .for_each(|k| self.0[k] = self.0[k].wrapping_sub(u16::from(k > word)));
        } else {
            (0..WORDS).for_each(|k| self.0[k] = self.0[k].wrapping_sub(u16::from(k > word)));
        }
    }
    #[inline(always)]
    fn store(&self, before: &mut [u16; WORDS], few: bool) {
        let upto = if few { WORDS_PER_VECTOR } else { WORDS };
        before[..upto].copy_from_slice(&self.0[..upto]);
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) use modern::Vectors;

#[cfg(target_arch = "x86_64")]
mod modern {
    use super::{Counters, WORDS, WORDS_PER_VECTOR};
    use std::arch::x86_64::*;

    /// Counters in AVX2 registers, so that a row does not wait for the stores of the previous one.
    /// Look-ups use a copy in memory.
    ///
    /// Only code that runs after a check for AVX2 may create one ([`Counters::load`]): all its
    /// methods use it.
    #[derive(Clone, Copy)]
    pub(crate) struct Vectors {
        lanes: [__m256i; WORDS / WORDS_PER_VECTOR],
        copy: [u16; WORDS],
    }

    /// Indices of the words of one vector.
    const NUMBERS: [i16; WORDS_PER_VECTOR] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

    impl Vectors {
        #[inline(always)]
        fn keep(&mut self, vector: usize) {
            let to = &mut self.copy[vector * WORDS_PER_VECTOR..][..WORDS_PER_VECTOR];
            // SAFETY: the slice has 32 bytes; for AVX2 see `Vectors`.
            unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), self.lanes[vector]) }
        }
    }

    impl Counters for Vectors {
        #[inline(always)]
        fn load(before: &[u16; WORDS], _few: bool) -> Vectors {
            let lanes = |vector: usize| {
                let from = &before[vector * WORDS_PER_VECTOR..][..WORDS_PER_VECTOR];
                // SAFETY: the slice has 32 bytes; for AVX2 see `Vectors`.
                unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
            };
            Vectors {
                lanes: std::array::from_fn(lanes),
                copy: *before,
            }
        }
        #[inline(always)]
        fn get(&self, word: usize, few: bool) -> u16 {
            self.copy[if few {
                word % WORDS_PER_VECTOR
            } else {
                word % WORDS
            }]
        }
        #[inline(always)]
        fn lower_behind(&mut self, word: usize, few: bool) {
            for vector in 0..if few { 1 } else { WORDS / WORDS_PER_VECTOR } {
                // SAFETY: for AVX2 see `Vectors`.
                unsafe {
                    let numbers = _mm256_loadu_si256(NUMBERS.as_ptr().cast());
                    let word = _mm256_set1_epi16(word as i16 - (vector * WORDS_PER_VECTOR) as i16);
                    // The comparison yields -1 for greater indices.
                    self.lanes[vector] =
                        _mm256_add_epi16(self.lanes[vector], _mm256_cmpgt_epi16(numbers, word));
                }
                self.keep(vector);
            }
        }
        #[inline(always)]
        fn store(&self, before: &mut [u16; WORDS], few: bool) {
            let upto = if few { WORDS_PER_VECTOR } else { WORDS };
            before[..upto].copy_from_slice(&self.copy[..upto]);
        }
    }
}

/// See the module's text.
pub(crate) struct Short {
    shift: u32,
    /// Number of usable slots.
    slots: usize,
    /// Numbers of blocks.
    names: DenseNames,
    /// Last slot of each block by number.
    last: Box<[u16; SLOTS]>,
    words: [u64; WORDS],
    /// Marks before each word.
    before: [u16; WORDS],
    /// By slot: the last slot of its access, and its row. Empty until an access touches several
    /// blocks: until then slots are rows.
    accesses: Vec<(u16, u16)>,
    next: usize,
    live: u32,
    rows: usize,
}

/// Data passed from the second loop to the third.
struct Told {
    line: [u32; ROWS_PER_BATCH],
    distance: [u32; ROWS_PER_BATCH],
    /// [`NOT_TOUCHED`] for a first touch.
    last: [u16; ROWS_PER_BATCH],
    /// The previous slot; set only if slots are not rows.
    slot: [u16; ROWS_PER_BATCH],
    /// Indices of the rows that are not first touches, and their number.
    list: [u16; ROWS_PER_BATCH],
    listed: usize,
}

impl Short {
    pub(crate) fn new(shift: u32, slots: usize) -> Short {
        let mut short = Short {
            shift,
            slots: slots.min(SLOTS),
            names: DenseNames::new(),
            last: Box::new([NOT_TOUCHED; SLOTS]),
            words: [0; WORDS],
            before: [0; WORDS],
            accesses: Vec::new(),
            next: 0,
            live: 0,
            rows: 0,
        };
        short.begin();
        short
    }

    /// Starts a sample.
    pub(crate) fn begin(&mut self) {
        self.last[..self.names.len()].fill(NOT_TOUCHED);
        self.names.clear();
        self.words.fill(!0);
        self.before = std::array::from_fn(|word| word as u16 * 64);
        self.accesses.clear();
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

    /// State of all blocks.
    pub(crate) fn lines(&self) -> Vec<Line> {
        let line = |(&block, &slot): (&u64, &u16)| {
            let (end, row) = self
                .accesses
                .get(slot as usize)
                .copied()
                .unwrap_or((slot, slot));
            Line {
                block,
                slot,
                end,
                row,
            }
        };
        self.names
            .keys()
            .iter()
            .zip(&*self.last)
            .map(line)
            .collect()
    }

    /// Processes accesses in order. Returns the number of processed ones; the rest does not fit.
    #[inline(always)]
    pub(crate) fn run<C: Counters, S: ReuseSink>(
        &mut self,
        address: &[u64],
        size: &[u32],
        tag: &[u32],
        sink: &mut S,
    ) -> usize {
        let mut told = Told {
            line: [0; ROWS_PER_BATCH],
            distance: [0; ROWS_PER_BATCH],
            last: [0; ROWS_PER_BATCH],
            slot: [0; ROWS_PER_BATCH],
            list: [0; ROWS_PER_BATCH],
            listed: 0,
        };
        let mut from = 0;
        while from < address.len() {
            let room = ROWS_PER_BATCH.min(self.slots - self.next);
            let most = (from + room).min(address.len());
            let to = from + self.narrow(&address[from..most], &size[from..most]);
            if from < to {
                let shift = self.shift;
                self.names
                    .number(address[from..to].iter().map(|a| a >> shift), &mut told.line);
                let few = self.next + ROWS_PER_BATCH <= WORDS_PER_VECTOR * 64;
                match (self.accesses.is_empty(), few) {
                    (true, true) => self.count::<C, false, true>(to - from, &mut told),
                    (true, false) => self.count::<C, false, false>(to - from, &mut told),
                    (false, true) => self.count::<C, true, true>(to - from, &mut told),
                    (false, false) => self.count::<C, true, false>(to - from, &mut told),
                }
                self.tell(&address[from..to], &tag[from..to], &told, sink);
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
        (
            address >> self.shift,
            address.saturating_add(u64::from(size.max(1)) - 1) >> self.shift,
        )
    }

    /// Number of leading accesses that touch one block each, whose number fits into a key.
    #[inline(always)]
    fn narrow(&self, address: &[u64], size: &[u32]) -> usize {
        let high = (self.shift + KEY_BITS).min(63);
        let not = |(&address, &size): (&u64, &u32)| {
            (address ^ address.wrapping_add(u64::from(size.max(1)) - 1)) >> self.shift
                | address >> high
        };
        // Mostly all do, so there is no branch for each.
        if address
            .iter()
            .zip(size)
            .fold(0, |any, access| any | not(access))
            == 0
        {
            return address.len();
        }
        address
            .iter()
            .zip(size)
            .position(|access| not(access) != 0)
            .unwrap_or(address.len())
    }

    /// The number of marked slots after `end`.
    #[inline(always)]
    fn above(&self, end: u16) -> u32 {
        let word = end as usize / 64 % WORDS;
        let upto = !0u64 >> (63 - end % 64);
        self.live
            .wrapping_sub(u32::from(self.before[word]))
            .wrapping_sub((self.words[word] & upto).count_ones())
    }

    /// Distances of rows that touch one block each. First, slots are assigned. Then the distances
    /// of reuses are counted from a list without first touches.
    #[inline(always)]
    fn count<C: Counters, const JOINED: bool, const FEW_WORDS: bool>(
        &mut self,
        rows: usize,
        told: &mut Told,
    ) {
        let (next, rows) = (self.next, rows.min(ROWS_PER_BATCH));
        if JOINED {
            self.accesses
                .extend((0..rows).map(|i| ((next + i) as u16, (self.rows + i) as u16)));
        }
        // Each row is written to the next place of the list, which grows only for reuses.
        let mut listed = 0usize;
        for i in 0..rows {
            let number = told.line[i] as usize % SLOTS;
            let slot = self.last[number];
            self.last[number] = (next + i) as u16;
            if JOINED {
                told.slot[i] = slot;
            }
            told.last[i] = if JOINED {
                self.accesses.get(slot as usize).map_or(slot, |a| a.1)
            } else {
                slot
            };
            told.distance[i] = 0;
            told.list[listed % ROWS_PER_BATCH] = i as u16;
            listed += usize::from(slot != NOT_TOUCHED);
        }
        told.listed = listed.min(ROWS_PER_BATCH);
        let mut before = C::load(&self.before, FEW_WORDS);
        for earlier in 0..told.listed {
            let i = told.list[earlier] as usize % ROWS_PER_BATCH;
            let slot = if JOINED { told.slot[i] } else { told.last[i] };
            let end = if JOINED {
                self.accesses.get(slot as usize).map_or(slot, |a| a.0)
            } else {
                slot
            };
            let word = end as usize / 64 % WORDS;
            let upto = !0u64 >> (63 - end % 64);
            // Each earlier row touched a new block, except for those on the list.
            let live = self.live + (i - earlier) as u32;
            told.distance[i] = live
                .wrapping_sub(u32::from(before.get(word, FEW_WORDS)))
                .wrapping_sub((self.words[word] & upto).count_ones());
            let word = slot as usize / 64 % WORDS;
            self.words[word] &= !(1 << (slot % 64));
            before.lower_behind(word, FEW_WORDS);
        }
        before.store(&mut self.before, FEW_WORDS);
        if FEW_WORDS {
            // Counters after the vector decrease by the number of removed marks.
            let gone = listed as u16;
            self.before[WORDS_PER_VECTOR..]
                .iter_mut()
                .for_each(|b| *b -= gone);
        }
        (self.live, self.next) = (self.live + (rows - listed) as u32, next + rows);
    }

    #[inline(always)]
    fn tell<S: ReuseSink>(&mut self, address: &[u64], tag: &[u32], told: &Told, sink: &mut S) {
        let rows = tag.len().min(ROWS_PER_BATCH);
        let (block, last, distance, again) = (
            &told.line[..rows],
            &told.last[..rows],
            &told.distance[..rows],
            &told.list[..told.listed],
        );
        sink.narrow(&Narrow {
            row: self.rows as u64,
            address,
            shift: self.shift,
            tag,
            block,
            last,
            distance,
            again,
        });
        self.rows += tag.len();
    }

    /// Processes an access to several blocks. None of its blocks counts between another and itself.
    /// False if it does not fit.
    #[inline(never)]
    fn wide<S: ReuseSink>(&mut self, address: u64, size: u32, tag: u32, sink: &mut S) -> bool {
        let (first, last) = self.touched(address, size);
        let count = (last - first) as usize + 1;
        if last - first >= MAX_ACCESS_BLOCKS
            || last >> KEY_BITS != 0
            || self.next + count > self.slots
        {
            return false;
        }
        if self.accesses.is_empty() {
            self.accesses
                .extend((0..self.next as u16).map(|slot| (slot, slot)));
        }
        let mut numbers = [0; ROWS_PER_BATCH];
        self.names.number(first..=last, &mut numbers);
        let row = self.rows as u64;
        for (block, &number) in (first..=last).zip(&numbers) {
            let slot = self.last[number as usize % SLOTS];
            let (end, before) = self
                .accesses
                .get(slot as usize)
                .copied()
                .unwrap_or((slot, slot));
            sink.touch(
                row,
                block,
                tag,
                slot == NOT_TOUCHED,
                u64::from(self.above(end)),
                row.wrapping_sub(u64::from(before)),
            );
        }
        let end = (self.next + count - 1) as u16;
        for &number in &numbers[..count] {
            let slot = std::mem::replace(&mut self.last[number as usize % SLOTS], self.next as u16);
            if slot == NOT_TOUCHED {
                self.live += 1;
            } else {
                self.words[slot as usize / 64] &= !(1 << (slot % 64));
                self.before[slot as usize / 64 + 1..]
                    .iter_mut()
                    .for_each(|b| *b -= 1);
            }
            self.accesses.push((end, row as u16));
            self.next += 1;
        }
        sink.done(row, tag);
        self.rows += 1;
        true
    }
}
