//! Exact reuse distance and reuse interval of a stream of accesses.
//!
//! Definitions. Access `i` touches every block that its bytes overlap. If access `p < i` is the last
//! before `i` that touched block `b`, then at `i` block `b` has reuse distance D = number of distinct
//! blocks touched by the accesses strictly between `p` and `i` (other than `b`, which none of them
//! touches), and reuse interval `i - p`. So an immediate reuse has D = 0 and interval 1, also when an
//! access straddles blocks. A first touch has neither.
//!
//! Method. Each touch takes the next *slot*; a hash table leads from a block to its last slot; a bitmap
//! ([`Rank`]) marks the slots that are the last of some block. D is the number of marked slots behind
//! the block's old slot, one count in a few cache lines. When the slots run out, the marked ones (one
//! per block) are renumbered; slots are four times the blocks, so this is rare. The table's
//! lines are fetched ahead of use, because outside the cache only prefetched accesses are affordable.
//! Starting over costs nothing: entries carry the number of their access, and older ones than the
//! sample's start count as free. Samples begin in [`crate::short`], which is faster as long as they are short.

use crate::rank::Rank;
#[cfg(target_arch = "x86_64")]
use crate::short::Vectors;
use crate::short::{Counters, Plain, SLOTS, Short};

/// Accesses between the prefetch of a table line and its use.
const AHEAD: usize = 24;
/// Smallest number of slots.
const MIN_SLOTS: usize = 4096;
/// Number of slots from which on they are counted in a level more: then at least so many, which stay in the first-level cache.
const MORE_SLOTS: usize = 1 << 14;
const MANY_SLOTS: usize = 1 << 17;
/// In place of an index.
const NOWHERE: usize = usize::MAX;
/// Smallest number of table entries.
const MIN_TABLE: usize = 2048;

/// What an engine tells about each touched block.
pub trait ReuseSink {
    /// Access `row` (counted from the sample's start) touches `block` for the first time. `tag` is what
    /// the caller gave with the access.
    fn first(&mut self, row: u64, block: u64, tag: u32);
    /// Access `row` touches `block` again: distance and interval as defined above.
    fn reuse(&mut self, row: u64, block: u64, tag: u32, distance: u64, interval: u64);
    /// Either of the two; distance and interval of a first touch mean nothing. For sinks that count without branches.
    #[inline(always)]
    fn touch(&mut self, row: u64, block: u64, tag: u32, first: bool, distance: u64, interval: u64) {
        if first { self.first(row, block, tag) } else { self.reuse(row, block, tag, distance, interval) }
    }
    /// All blocks of access `row` are done.
    fn done(&mut self, row: u64, tag: u32);
}

#[derive(Clone, Copy)]
struct Entry {
    block: u64,
    slot: u32,
    /// Low half of the tick of the last access.
    tick: u32,
}

/// What the sink is to be told of a touch.
struct Told {
    first: bool,
    distance: u32,
    interval: u64,
}

/// The state between accesses of one sample. Reusable: [`ReuseEngine::begin`] starts the next sample.
pub struct ReuseEngine {
    shift: u32,
    short: Short,
    /// The sample is still in `short`, and nothing of it is here.
    is_short: bool,
    table: Vec<Entry>,
    table_shift: u32,
    used: usize,
    rank: Rank,
    /// Marks slots whose successor belongs to the same access. Empty as long as no access has straddled.
    joined: Vec<u64>,
    next_slot: u32,
    /// Where the block of the access before is in the table; [`NOWHERE`] if that touched several blocks, or there is none.
    last_at: usize,
    /// Number of the current access over the engine's life, from 1.
    tick: u64,
    begin: u64,
    cleared: u64,
    /// Entries older than `horizon` ticks would alias in 32 bits; they live here.
    ancient: std::collections::HashMap<u64, (u32, u64)>,
    horizon: u64,
    swept: u64,
    touched: Vec<(u64, Option<(u32, u64)>)>,
}

/// Spreads a block number over 64 bits (the multiplier of Fibonacci hashing).
#[inline(always)]
pub fn spread(key: u64) -> u64 {
    (key ^ (key >> 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl ReuseEngine {
    /// An engine for blocks of `1 << shift` bytes.
    pub fn new(shift: u32) -> ReuseEngine {
        ReuseEngine::with_limits(shift, 1 << 30, SLOTS)
    }

    fn with_limits(shift: u32, horizon: u64, short: usize) -> ReuseEngine {
        ReuseEngine {
            shift: shift.min(63),
            short: Short::new(shift.min(63), short),
            is_short: true,
            table: vec![Entry { block: 0, slot: 0, tick: 0 }; MIN_TABLE],
            table_shift: 64 - MIN_TABLE.trailing_zeros(),
            used: 0,
            rank: Rank::new(MIN_SLOTS),
            joined: Vec::new(),
            next_slot: 0,
            last_at: NOWHERE,
            tick: 1,
            begin: 1,
            cleared: 1,
            ancient: std::collections::HashMap::new(),
            horizon,
            swept: 1,
            touched: Vec::new(),
        }
    }

    /// Starts a sample: nothing has been touched yet.
    pub fn begin(&mut self) {
        self.short.begin();
        self.begin = self.tick;
        self.last_at = NOWHERE;
        if std::mem::replace(&mut self.is_short, true) {
            return;
        }
        self.rank.reset(self.next_slot as usize);
        if self.table.len() > MIN_TABLE && self.used * 32 < self.table.len() {
            // A large sample has gone by; small ones shall stay in the cache.
            self.rank = Rank::new(MIN_SLOTS);
            self.table.truncate((self.used * 4).next_power_of_two().max(MIN_TABLE));
            self.table.shrink_to_fit();
            self.table_shift = 64 - self.table.len().trailing_zeros();
        }
        self.joined = Vec::new();
        self.next_slot = 0;
        self.used = 0;
        self.ancient.clear();
    }

    /// Takes over from the short sample.
    #[cold]
    fn lengthen(&mut self) {
        self.is_short = false;
        self.swept = self.begin;
        if self.tick - self.cleared >= self.horizon / 2 {
            self.table.fill(Entry { block: 0, slot: 0, tick: (self.begin as u32).wrapping_sub(1) });
            self.cleared = self.begin;
        }
        let lines = self.short.lines();
        // Slots are handed out without holes; those that are no longer anybody's last are taken back.
        let mut marked = vec![false; self.short.used() as usize];
        lines.iter().for_each(|l| marked[l.slot as usize] = true);
        self.reserve(marked.len().max(lines.len()));
        (0..marked.len() as u32).for_each(|slot| self.rank.append(slot));
        (0..marked.len() as u32).filter(|&slot| !marked[slot as usize]).for_each(|slot| self.rank.clear(slot));
        self.next_slot = marked.len() as u32;
        if lines.iter().any(|l| l.slot != l.end) {
            self.joined = vec![0; self.rank.capacity() / 64];
            lines.iter().for_each(|l| (l.slot..l.end).for_each(|slot| self.set_joined(slot.into(), true)));
        }
        for line in lines {
            let (at, _) = self.find(line.block);
            self.table[at] = Entry { block: line.block, slot: line.slot.into(), tick: (self.begin + u64::from(line.row)) as u32 };
            self.used += 1;
        }
    }

    /// Number of distinct blocks touched in this sample.
    pub fn blocks(&self) -> u64 {
        if self.is_short { self.short.blocks() } else { u64::from(self.rank.live()) }
    }

    /// Feeds accesses in order. The slices have one element per access; `size` 0 counts as 1.
    pub fn run<S: ReuseSink>(&mut self, address: &[u64], size: &[u32], tag: &[u32], sink: &mut S) {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("popcnt")
            && std::arch::is_x86_feature_detected!("avx2")
            && std::arch::is_x86_feature_detected!("bmi1")
            && std::arch::is_x86_feature_detected!("bmi2")
            && std::arch::is_x86_feature_detected!("lzcnt")
        {
            // SAFETY: the CPU has just been found to have every feature that the function is compiled for.
            return unsafe { self.run_modern(address, size, tag, sink) };
        }
        self.run_any::<Plain, S>(address, size, tag, sink);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "popcnt,avx2,bmi1,bmi2,lzcnt")]
    fn run_modern<S: ReuseSink>(&mut self, address: &[u64], size: &[u32], tag: &[u32], sink: &mut S) {
        self.run_any::<Vectors, S>(address, size, tag, sink);
    }

    #[inline(always)]
    fn run_any<C: Counters, S: ReuseSink>(&mut self, address: &[u64], size: &[u32], tag: &[u32], sink: &mut S) {
        let len = address.len().min(size.len()).min(tag.len());
        let (mut address, mut size, mut tag) = (&address[..len], &size[..len], &tag[..len]);
        if self.is_short {
            let done = self.short.run::<C, S>(address, size, tag, sink);
            self.tick += done as u64;
            if done == len {
                return;
            }
            self.lengthen();
            (address, size, tag) = (&address[done..], &size[done..], &tag[done..]);
        }
        let len = address.len();
        let far = self.table.len() > 1 << 14;
        for i in 0..len {
            if let Some(&ahead) = address.get(i + AHEAD) {
                self.prefetch(ahead >> self.shift);
            }
            if far && let Some(&ahead) = address.get(i + AHEAD / 2) {
                self.prefetch_slot(ahead >> self.shift);
            }
            let first = address[i] >> self.shift;
            let last = address[i].saturating_add(u64::from(size[i].max(1)) - 1) >> self.shift;
            let row = self.tick - self.begin;
            if first == last && self.again(first) {
                sink.touch(row, first, tag[i], false, 0, 1);
            } else if first == last {
                let Told { first: is_first, distance, interval } = self.touch_one(first);
                sink.touch(row, first, tag[i], is_first, distance.into(), interval);
            } else {
                self.touch_many(row, first, last, tag[i], sink);
            }
            sink.done(row, tag[i]);
            self.tick += 1;
        }
    }

    #[inline(always)]
    fn prefetch(&self, block: u64) {
        crate::prefetch(&self.table[(spread(block) >> self.table_shift) as usize]);
    }

    /// The entry has been fetched by now: fetch the bitmap's leaf that it points to.
    #[inline(always)]
    fn prefetch_slot(&self, block: u64) {
        let entry = &self.table[(spread(block) >> self.table_shift) as usize];
        if entry.block == block {
            self.rank.prefetch(entry.slot);
        }
    }

    /// Greatest age, in ticks, of an entry of this sample in the table.
    #[inline(always)]
    fn span(&self) -> u32 {
        (self.tick - self.begin).min(self.horizon) as u32
    }

    /// Index of the entry of `block`, and whether it is one (else it is where it may be put).
    #[inline(always)]
    fn find(&self, block: u64) -> (usize, bool) {
        let mask = self.table.len() - 1;
        let now = self.tick as u32;
        let span = self.span();
        let mut at = (spread(block) >> self.table_shift) as usize & mask;
        loop {
            let entry = &self.table[at];
            if now.wrapping_sub(entry.tick) > span {
                return (at, false);
            }
            if entry.block == block {
                return (at, true);
            }
            at = (at + 1) & mask;
        }
    }

    /// Makes room for `n` more touches.
    #[inline(always)]
    fn reserve(&mut self, n: usize) {
        if self.next_slot as usize + n > self.rank.capacity() {
            self.compact(n);
        }
        if (self.used + n) * 2 > self.table.len() {
            self.grow(n);
        }
        if self.tick - self.swept >= self.horizon / 2 {
            self.sweep();
        }
    }

    /// Whether `block` is all that the access before has touched: then its slot stays the last one.
    #[inline(always)]
    fn again(&mut self, block: u64) -> bool {
        let due = self.tick - self.swept >= self.horizon / 2;
        match self.table.get_mut(self.last_at) {
            Some(entry) if entry.block == block && !due => {
                entry.tick = self.tick as u32;
                true
            }
            _ => false,
        }
    }

    #[inline(always)]
    fn touch_one(&mut self, block: u64) -> Told {
        self.reserve(1);
        let (at, found) = self.find(block);
        let slot = self.next_slot;
        self.next_slot += 1;
        let mut told = Told { first: true, distance: 0, interval: 0 };
        if found {
            let entry = self.table[at];
            let interval = (self.tick as u32).wrapping_sub(entry.tick);
            let distance = self.rank.above(self.access_end(entry.slot), slot);
            self.rank.clear(entry.slot);
            told = Told { first: false, distance, interval: interval.into() };
        } else {
            self.used += 1;
            if let Some((old, tick)) = self.take_ancient(block) {
                let distance = self.rank.above(self.access_end(old), slot);
                self.rank.clear(old);
                told = Told { first: false, distance, interval: self.tick - tick };
            }
        }
        self.rank.append(slot);
        if !self.joined.is_empty() {
            self.set_joined(slot, false);
        }
        self.table[at] = Entry { block, slot, tick: self.tick as u32 };
        self.last_at = at;
        told
    }

    #[inline(always)]
    fn take_ancient(&mut self, block: u64) -> Option<(u32, u64)> {
        if self.ancient.is_empty() {
            return None;
        }
        self.ancient.remove(&block)
    }

    /// An access to several blocks: first all distances, then all updates, so that the blocks of one
    /// access do not stand between each other. Very long accesses are taken in portions; then the
    /// earlier portions count as touched before the later ones.
    #[inline(never)]
    fn touch_many<S: ReuseSink>(&mut self, row: u64, first: u64, last: u64, tag: u32, sink: &mut S) {
        const PORTION: u64 = 1 << 16;
        self.last_at = NOWHERE;
        let mut from = first;
        loop {
            let to = last.min(from.saturating_add(PORTION - 1));
            self.touch_portion(row, from, to, tag, sink);
            if to == last {
                return;
            }
            from = to + 1;
        }
    }

    fn touch_portion<S: ReuseSink>(&mut self, row: u64, first: u64, last: u64, tag: u32, sink: &mut S) {
        let count = (last - first + 1) as usize;
        self.reserve(count);
        let mut touched = std::mem::take(&mut self.touched);
        touched.clear();
        for block in first..=last {
            let (at, found) = self.find(block);
            let entry = self.table[at];
            let before = if found {
                Some((entry.slot, self.tick - u64::from((self.tick as u32).wrapping_sub(entry.tick))))
            } else {
                self.take_ancient(block)
            };
            touched.push((block, before));
        }
        for &(block, before) in &touched {
            match before {
                Some((slot, tick)) => {
                    let distance = self.rank.above(self.access_end(slot), self.next_slot);
                    sink.reuse(row, block, tag, u64::from(distance), self.tick - tick);
                }
                None => sink.first(row, block, tag),
            }
        }
        if self.joined.is_empty() {
            self.joined = vec![0; self.rank.capacity() / 64];
        }
        for &(block, before) in &touched {
            if let Some((slot, _)) = before {
                self.rank.clear(slot);
            }
            let slot = self.next_slot;
            self.next_slot += 1;
            self.rank.append(slot);
            self.set_joined(slot, block != last);
            let (at, found) = self.find(block);
            self.used += usize::from(!found);
            self.table[at] = Entry { block, slot, tick: self.tick as u32 };
        }
        self.touched = touched;
    }

    /// The last slot of the access that `slot` belongs to.
    #[inline(always)]
    fn access_end(&self, slot: u32) -> u32 {
        if self.joined.is_empty() {
            return slot;
        }
        let mut slot = slot;
        while self.joined[slot as usize / 64] >> (slot % 64) & 1 == 1 {
            slot += 1;
        }
        slot
    }

    #[inline(always)]
    fn set_joined(&mut self, slot: u32, joined: bool) {
        let word = &mut self.joined[slot as usize / 64];
        *word = *word & !(1 << (slot % 64)) | u64::from(joined) << (slot % 64);
    }

    /// Renumbers the live slots in their order and makes room for `n` more.
    #[cold]
    fn compact(&mut self, n: usize) {
        let live = self.rank.live();
        let slots = (live as usize * 4).max(live as usize + 2 * n).max(MIN_SLOTS).next_power_of_two();
        let slots = if slots > MORE_SLOTS { slots.max(MANY_SLOTS) } else { slots };
        let mut rank = Rank::new(slots);
        let mut joined = if self.joined.is_empty() { Vec::new() } else { vec![0u64; rank.capacity() / 64] };
        if !joined.is_empty() {
            // A live slot stays joined to the next live one of the same access.
            let mut new = 0u32;
            let mut open = false;
            for old in 0..self.next_slot {
                if self.rank.is_set(old) {
                    if open {
                        joined[(new - 1) as usize / 64] |= 1 << ((new - 1) % 64);
                    }
                    open = true;
                    new += 1;
                }
                open &= self.joined[old as usize / 64] >> (old % 64) & 1 == 1;
            }
        }
        let now = self.tick as u32;
        let span = self.span();
        for entry in &mut self.table {
            if now.wrapping_sub(entry.tick) <= span {
                entry.slot = self.rank.below(entry.slot);
            }
        }
        for (slot, _) in self.ancient.values_mut() {
            *slot = self.rank.below(*slot);
        }
        for slot in 0..live {
            rank.append(slot);
        }
        self.rank = rank;
        self.joined = joined;
        self.next_slot = live;
    }

    /// Makes the table large enough for `n` more entries.
    #[cold]
    fn grow(&mut self, n: usize) {
        let size = ((self.used + n) * 4).next_power_of_two();
        self.rebuild(size, u64::MAX);
    }

    /// Moves the entries into a table of `size`; those older than `horizon` ticks become ancient.
    fn rebuild(&mut self, size: usize, horizon: u64) {
        let now = self.tick as u32;
        let span = self.span();
        let free = Entry { block: 0, slot: 0, tick: now.wrapping_sub(span).wrapping_sub(1) };
        let old = std::mem::replace(&mut self.table, crate::large_vec(free, size));
        self.table_shift = 64 - size.trailing_zeros();
        self.used = 0;
        for entry in old {
            let age = now.wrapping_sub(entry.tick);
            if age > span {
                continue;
            }
            if u64::from(age) > horizon {
                self.ancient.insert(entry.block, (entry.slot, self.tick - u64::from(age)));
                continue;
            }
            let (at, _) = self.find(entry.block);
            self.table[at] = entry;
            self.used += 1;
        }
        self.cleared = self.tick;
    }

    #[cold]
    fn sweep(&mut self) {
        self.rebuild(self.table.len(), self.horizon / 2);
        self.swept = self.tick;
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    /// What a sink is told, in order: row, block, tag, and distance and interval of a reuse.
    type Told = Vec<(u64, u64, u32, Option<(u64, u64)>)>;

    #[derive(Default)]
    struct Log {
        told: Told,
        done: u64,
    }

    impl ReuseSink for Log {
        fn first(&mut self, row: u64, block: u64, tag: u32) {
            self.told.push((row, block, tag, None));
        }
        fn reuse(&mut self, row: u64, block: u64, tag: u32, distance: u64, interval: u64) {
            self.told.push((row, block, tag, Some((distance, interval))));
        }
        fn done(&mut self, row: u64, _tag: u32) {
            assert_eq!(row, self.done);
            self.done += 1;
        }
    }

    /// The definition, word for word.
    pub(crate) fn by_definition(accesses: &[(u64, u32)], shift: u32) -> Told {
        let blocks = |&(address, size): &(u64, u32)| {
            let last = address.saturating_add(u64::from(size.max(1)) - 1);
            (address >> shift)..=(last >> shift)
        };
        let mut told = Vec::new();
        for (i, access) in accesses.iter().enumerate() {
            for block in blocks(access) {
                let previous = (0..i).rev().find(|&p| blocks(&accesses[p]).contains(&block));
                let reuse = previous.map(|p| {
                    let between: HashSet<u64> = accesses[p + 1..i].iter().flat_map(blocks).collect();
                    (between.len() as u64, (i - p) as u64)
                });
                told.push((i as u64, block, i as u32, reuse));
            }
        }
        told
    }

    fn measured(engine: &mut ReuseEngine, accesses: &[(u64, u32)], cuts: usize) -> Told {
        let address: Vec<u64> = accesses.iter().map(|a| a.0).collect();
        let size: Vec<u32> = accesses.iter().map(|a| a.1).collect();
        let tag: Vec<u32> = (0..accesses.len() as u32).collect();
        let mut log = Log::default();
        engine.begin();
        let step = (accesses.len() / (cuts + 1)).max(1);
        let mut at = 0;
        while at < accesses.len() {
            let end = (at + step).min(accesses.len());
            engine.run(&address[at..end], &size[at..end], &tag[at..end], &mut log);
            at = end;
        }
        log.told
    }

    /// D of each access of a sequence of letters, one block each; `None` for first touches.
    fn letters(text: &str) -> Vec<Option<(u64, u64)>> {
        let accesses: Vec<(u64, u32)> = text.bytes().map(|b| (u64::from(b) * 64, 8)).collect();
        measured(&mut ReuseEngine::new(6), &accesses, 0).into_iter().map(|t| t.3).collect()
    }

    #[test]
    fn example_of_rdx() {
        // "a1, b1, c1, b2, a2: the reuse distance of a at a2 is 2", its time reuse is 4.
        assert_eq!(letters("abcba"), [None, None, None, Some((1, 2)), Some((2, 4))]);
    }

    #[test]
    fn example_of_barai_figure_1() {
        let distances: Vec<Option<u64>> = letters("abacbdda").iter().map(|r| r.map(|r| r.0)).collect();
        assert_eq!(distances, [None, None, Some(1), None, Some(2), None, Some(0), Some(3)]);
    }

    #[test]
    fn the_measures_of_zhong_figure_1() {
        // Distances of a b c a a c b, their locality signature, and the misses of caches of all sizes; three of seven are first touches.
        let distances: Vec<Option<u64>> = letters("abcaacb").iter().map(|r| r.map(|r| r.0)).collect();
        assert_eq!(distances, [None, None, None, Some(2), Some(0), Some(1), Some(2)]);
        let mut fine = crate::histogram::Fine::new(crate::histogram::WHOLE);
        distances.iter().flatten().for_each(|&d| fine.add(d));
        let signature: Vec<(f64, f64)> = fine.bins().map(|b| (b.from, b.count / 4.0)).collect();
        assert_eq!(signature, [(0.0, 0.25), (1.0, 0.25), (2.0, 0.5)]);
        let misses = crate::miss_ratio::MissRatio::new(fine.bins(), 3.0, 0.0);
        assert_eq!([0.0, 1.0, 2.0, 3.0, 4.0].map(|size| misses.misses(size)), [7.0, 6.0, 5.0, 3.0, 3.0]);
    }

    #[test]
    fn example_of_zhong_figure_2() {
        // Twelve accesses to seven data; "the reuse distance between two b's", at times 4 and 12, "is 5".
        let told = letters("dacbccgefafb");
        assert_eq!(told.iter().filter(|t| t.is_none()).count(), 7);
        assert_eq!(told[11], Some((5, 8)));
        let distances: Vec<Option<u64>> = told.iter().map(|r| r.map(|r| r.0)).collect();
        assert_eq!(distances[4..], [Some(1), Some(0), None, None, None, Some(5), Some(1), Some(5)]);
    }

    #[test]
    fn example_of_cabrera_figure_1_at_two_granularities() {
        // "The second time [a] is encountered, its reuse distance is calculated to be 2, and the reuse distance is 0 when it [is] seen for the
        // third time." If a, b and c share a page, all distances are 0 at page size; if each has its own, they stay.
        let at = |spread: u64, bits: u32| -> Vec<Option<u64>> {
            let accesses: Vec<(u64, u32)> = "abcaa".bytes().map(|b| (0x10_0000 + u64::from(b - b'a') * spread, 8)).collect();
            measured(&mut ReuseEngine::new(bits), &accesses, 0).into_iter().map(|t| t.3.map(|t| t.0)).collect()
        };
        assert_eq!(at(64, 6), [None, None, None, Some(2), Some(0)]);
        assert_eq!(at(64, 12), [None, Some(0), Some(0), Some(0), Some(0)]);
        assert_eq!(at(4096, 12), [None, None, None, Some(2), Some(0)]);
    }

    #[test]
    fn an_immediate_reuse_has_distance_0_and_interval_1() {
        assert_eq!(letters("aaa"), [None, Some((0, 1)), Some((0, 1))]);
    }

    #[test]
    fn an_access_across_two_blocks_touches_both_and_neither_stands_between_the_other() {
        let told = measured(&mut ReuseEngine::new(6), &[(60, 8), (60, 8), (64, 8), (0, 1)], 0);
        assert_eq!(
            told.iter().map(|t| (t.0, t.1, t.3)).collect::<Vec<_>>(),
            [
                (0, 0, None),
                (0, 1, None),
                (1, 0, Some((0, 1))),
                (1, 1, Some((0, 1))),
                (2, 1, Some((0, 1))),
                (3, 0, Some((1, 2))),
            ]
        );
    }

    #[test]
    fn cyclic_access_to_n_blocks_has_distance_n_minus_1_through_many_compactions() {
        let n = 5000u64;
        let accesses: Vec<(u64, u32)> = (0..n * 7).map(|i| (i % n * 64, 8)).collect();
        let told = measured(&mut ReuseEngine::new(6), &accesses, 3);
        for (i, t) in told.iter().enumerate() {
            assert_eq!(t.3, (i as u64 >= n).then_some((n - 1, n)), "access {i}");
        }
    }

    #[test]
    fn addresses_at_the_end_of_the_address_space_are_fine() {
        let told = measured(&mut ReuseEngine::new(6), &[(u64::MAX, 8), (u64::MAX - 1, u32::MAX), (0, 0)], 0);
        assert_eq!(told.len(), 3);
        assert_eq!(told[1].3, Some((0, 1)));
        measured(&mut ReuseEngine::new(0), &[(u64::MAX, 1), (u64::MAX - 3, 8)], 0);
    }

    #[test]
    fn a_large_sample_leaves_nothing_to_the_next_one() {
        let mut engine = ReuseEngine::new(6);
        let large: Vec<(u64, u32)> = (0..300_000).map(|i| (i * 64, 8)).collect();
        assert!(measured(&mut engine, &large, 0).iter().all(|t| t.3.is_none()));
        for _ in 0..3 {
            let small: Vec<(u64, u32)> = (0..100).map(|i| (i % 50 * 64, 8)).collect();
            assert_eq!(measured(&mut engine, &small, 0), by_definition(&small, 6));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn agrees_with_the_definition(
            accesses in prop::collection::vec((0u64..4096, prop_oneof![9 => 1u32..9, 1 => 0u32..200]), 0..100),
            shift in prop_oneof![Just(6u32), Just(0), Just(3), Just(12)],
            cuts in 0usize..4,
            // A short sample, one that does not stay short, one that is never short.
            short in prop_oneof![Just(SLOTS), 1usize..120, Just(0)],
        ) {
            let mut engine = ReuseEngine::with_limits(shift, 1 << 30, short);
            prop_assert_eq!(measured(&mut engine, &accesses, cuts), by_definition(&accesses, shift));
            // Once more on the used engine.
            prop_assert_eq!(measured(&mut engine, &accesses, 0), by_definition(&accesses, shift));
        }

    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn agrees_across_compactions(
            seed: u64, blocks in 1u64..1500, long in prop::collection::vec(0usize..9000, 0..6), short in 0usize..SLOTS + 1,
        ) {
            let mut state = seed;
            let mut accesses: Vec<(u64, u32)> = (0..9000).map(|_| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                ((state >> 33) % blocks * 64 + (state >> 20) % 64, 8)
            }).collect();
            for at in long {
                accesses[at].1 = 1000;
            }
            let told = measured(&mut ReuseEngine::with_limits(6, 1 << 30, short), &accesses, 1);
            // The definition is quadratic: an LRU stack gives the distances as well.
            let mut stack: Vec<(u64, u64)> = Vec::new();
            let mut told = told.into_iter();
            for (i, &(address, size)) in accesses.iter().enumerate() {
                let touched = (address >> 6)..=((address + u64::from(size) - 1) >> 6);
                let before = stack.clone();
                for block in touched.clone() {
                    let got = told.next().unwrap();
                    let want = before.iter().rev().find(|e| e.0 == block).map(|e| {
                        (before.iter().filter(|o| o.1 > e.1).count() as u64, i as u64 - e.1)
                    });
                    prop_assert_eq!((got.0, got.1, got.3), (i as u64, block, want));
                }
                stack.retain(|e| !touched.contains(&e.0));
                stack.extend(touched.map(|b| (b, i as u64)));
            }
        }

    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn intervals_stay_exact_beyond_the_horizon_of_the_table(
            accesses in prop::collection::vec((0u64..1500, 1u32..80), 0..400),
            horizon in 4u64..64,
        ) {
            let mut engine = ReuseEngine::with_limits(6, horizon, 0);
            for _ in 0..2 {
                prop_assert_eq!(measured(&mut engine, &accesses, 2), by_definition(&accesses, 6));
            }
        }
    }
}
