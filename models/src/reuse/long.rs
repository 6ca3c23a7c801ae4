//! Exact reuse distance of samples that are not short ([`crate::reuse::short`]): of any length and
//! any number of blocks.
//!
//! Each touch takes the next *slot*. A hash table leads from a block to its last slot. A bitmap
//! ([`Rank`]) marks the last slot of each block. D is the number of marked slots after the block's
//! old slot, which is counted in a few cache lines. When the slots run out, the marked ones (one
//! per block) are renumbered. There are four times as many slots as blocks, so this is rare.
//!
//! Rows are processed in batches, in three loops: blocks are looked up and take their slots,
//! distances are counted, and the sink receives the results. So an unpredictable branch delays one
//! loop, not all of them. Each loop prefetches for the next one, because accesses outside the cache
//! would be too slow without it. First touches and repetitions of the previous access need no
//! count. The second loop runs over a list of the others.

use crate::joined::Joined;
use crate::reuse::rank::Rank;
use crate::reuse::short::Line;
use crate::reuse::sink::ReuseSink;
use crate::util::hash::spread;

/// Source: Chosen.
const ROWS_PER_BATCH: usize = 64;
/// Smallest number of slots.
const MIN_SLOTS: usize = 4096;
/// Above `MORE_SLOTS` slots, the bitmap needs another level of counters. Then there are at least
/// `MANY_SLOTS` slots, whose counters stay in the first-level cache.
const MORE_SLOTS: usize = 1 << 14;
const MANY_SLOTS: usize = 1 << 17;
/// A missing index.
const NO_INDEX: usize = usize::MAX;
/// Maximum number of blocks of an access that are processed together. Accesses have at most 4 GiB,
/// so this divides only accesses in blocks below 64 bytes.
pub(crate) const MAX_TOGETHER: u64 = 1 << 26;
/// Blocks between the prefetch of a table line and its use, inside an access. Source: Chosen.
const PREFETCH_DISTANCE: u64 = 64;
/// Smallest number of table entries.
const MIN_TABLE: usize = 2048;
/// Interval of a first touch.
const NO_INTERVAL: u64 = u64::MAX;

#[derive(Clone, Copy)]
struct Entry {
    block: u64,
    slot: u32,
    /// Low half of the tick of the last access.
    tick: u32,
}

/// Data passed from one loop to the next.
struct Batch {
    block: [u64; ROWS_PER_BATCH],
    distance: [u32; ROWS_PER_BATCH],
    /// [`NO_INTERVAL`] for a first touch.
    interval: [u64; ROWS_PER_BATCH],
    /// Rows whose distance has to be counted: index, previous slot of the block, and number of
    /// blocks at that time.
    list: [(u32, u32, u32); ROWS_PER_BATCH],
    listed: usize,
}

/// The state between accesses of one sample.
pub(crate) struct Long {
    shift: u32,
    table: Vec<Entry>,
    table_shift: u32,
    used: usize,
    rank: Rank,
    /// Blocks of the sample.
    live: u32,
    /// Slots whose successor belongs to the same access.
    joined: Joined,
    next_slot: u32,
    /// Index in the table of the previously accessed block. [`NO_INDEX`] if that access touched
    /// several blocks, or if there was none.
    last_at: usize,
    /// Number of the current access since the engine was created, from 1.
    tick: u64,
    begin: u64,
    cleared: u64,
    /// Entries older than `horizon` ticks, which would alias in 32 bits.
    ancient: std::collections::HashMap<u64, (u32, u64)>,
    horizon: u64,
    swept: u64,
}

impl Long {
    pub(crate) fn new(shift: u32, horizon: u64) -> Long {
        Long {
            shift,
            table: vec![
                Entry {
                    block: 0,
                    slot: 0,
                    tick: 0
                };
                MIN_TABLE
            ],
            table_shift: 64 - MIN_TABLE.trailing_zeros(),
            used: 0,
            rank: Rank::new(MIN_SLOTS),
            live: 0,
            joined: Joined::default(),
            next_slot: 0,
            last_at: NO_INDEX,
            tick: 1,
            begin: 1,
            cleared: 1,
            ancient: std::collections::HashMap::new(),
            horizon,
            swept: 1,
        }
    }

    /// Starts a sample. `idle` is true if the engine was not used since the last start.
    pub(crate) fn begin(&mut self, idle: bool) {
        self.begin = self.tick;
        self.last_at = NO_INDEX;
        if idle {
            return;
        }
        if self.table.len() > MIN_TABLE && self.used * 32 < self.table.len() {
            // After a large sample, the tables shrink so that small ones stay in the cache.
            self.rank = Rank::new(MIN_SLOTS);
            self.table
                .truncate((self.used * 4).next_power_of_two().max(MIN_TABLE));
            self.table.shrink_to_fit();
            self.table_shift = 64 - self.table.len().trailing_zeros();
        } else {
            self.rank.reset(self.next_slot as usize);
        }
        self.joined = Joined::default();
        self.next_slot = 0;
        self.used = 0;
        self.live = 0;
        self.ancient.clear();
    }

    /// Skips accesses of the sample that another engine has processed.
    pub(crate) fn skip(&mut self, accesses: usize) {
        self.tick += accesses as u64;
    }

    /// Takes over the state of a short sample: its blocks, and the number of used slots.
    #[cold]
    pub(crate) fn take_over(&mut self, lines: &[Line], slots: u32) {
        self.swept = self.begin;
        if self.tick - self.cleared >= self.horizon / 2 {
            self.table.fill(Entry {
                block: 0,
                slot: 0,
                tick: (self.begin as u32).wrapping_sub(1),
            });
            self.cleared = self.begin;
        }
        // Slots are assigned without gaps. Slots that are no longer the last of a block are
        // cleared.
        let mut marked = vec![false; slots as usize];
        lines.iter().for_each(|l| marked[l.slot as usize] = true);
        self.reserve(marked.len().max(lines.len()));
        (0..slots)
            .filter(|&slot| !marked[slot as usize])
            .for_each(|slot| self.rank.clear(slot));
        self.next_slot = slots;
        self.live = lines.len() as u32;
        for line in lines.iter().filter(|l| l.slot != l.end) {
            self.joined
                .join(line.slot.into(), line.end.into(), self.rank.capacity());
        }
        for line in lines {
            let tick = self.begin + u64::from(line.row);
            if self.tick - tick > self.horizon / 2 {
                self.ancient.insert(line.block, (line.slot.into(), tick));
                continue;
            }
            let (at, _) = self.find(line.block, self.tick);
            self.table[at] = Entry {
                block: line.block,
                slot: line.slot.into(),
                tick: tick as u32,
            };
            self.used += 1;
        }
        self.swept = self.tick;
    }

    /// Number of distinct blocks touched in this sample.
    pub(crate) fn blocks(&self) -> u64 {
        self.live.into()
    }

    /// Processes accesses in order.
    #[inline(always)]
    pub(crate) fn run<S: ReuseSink>(
        &mut self,
        address: &[u64],
        size: &[u32],
        tag: &[u32],
        sink: &mut S,
    ) {
        let len = address.len();
        let mut batch = Batch {
            block: [0; ROWS_PER_BATCH],
            distance: [0; ROWS_PER_BATCH],
            interval: [0; ROWS_PER_BATCH],
            list: [(0, 0, 0); ROWS_PER_BATCH],
            listed: 0,
        };
        address
            .iter()
            .take(ROWS_PER_BATCH)
            .for_each(|&a| self.prefetch(a));
        let mut from = 0;
        while from < len {
            self.reserve(ROWS_PER_BATCH);
            // No entry may become too old for 32-bit ticks before the next sweep.
            let due = (self.swept + (self.horizon / 2).max(1) - self.tick) as usize;
            let most = len.min(from + ROWS_PER_BATCH.min(due));
            let rows = self.narrow(&address[from..most], &size[from..most]);
            if rows > 0 {
                self.look_up(&address[from..from + rows], &mut batch);
                self.count(
                    &address
                        [(from + ROWS_PER_BATCH).min(len)..(from + ROWS_PER_BATCH + rows).min(len)],
                    &mut batch,
                );
                let row = self.tick - self.begin;
                for (i, &tag) in tag[from..from + rows]
                    .iter()
                    .enumerate()
                    .take(ROWS_PER_BATCH)
                {
                    let row = row + i as u64;
                    sink.touch(
                        row,
                        batch.block[i],
                        tag,
                        batch.interval[i] == NO_INTERVAL,
                        batch.distance[i].into(),
                        batch.interval[i],
                    );
                    sink.done(row, tag);
                }
                self.tick += rows as u64;
                from += rows;
            } else {
                if let Some(&ahead) = address.get(from + ROWS_PER_BATCH) {
                    self.prefetch(ahead);
                }
                self.touch_many(address[from], size[from], tag[from], sink);
                self.tick += 1;
                from += 1;
            }
        }
    }

    /// The hash keeps most neighbouring blocks adjacent, so that they share a cache line of the
    /// table.
    #[inline(always)]
    fn home(&self, block: u64) -> usize {
        const SIDE: u64 = 64 / size_of::<Entry>() as u64;
        let group = (spread(block / SIDE) >> self.table_shift) & !(SIDE - 1);
        (group | (block % SIDE)) as usize & (self.table.len() - 1)
    }

    #[inline(always)]
    fn prefetch(&self, address: u64) {
        self.prefetch_block(address >> self.shift);
    }

    #[inline(always)]
    fn prefetch_block(&self, block: u64) {
        crate::prefetch(&self.table[self.home(block)]);
    }

    /// Number of leading accesses that touch one block each.
    #[inline(always)]
    fn narrow(&self, address: &[u64], size: &[u32]) -> usize {
        let crosses = |(&address, &size): (&u64, &u32)| {
            (address ^ address.wrapping_add(u64::from(size.max(1)) - 1)) >> self.shift
        };
        // Mostly no access crosses blocks, so there is no branch for each.
        if address
            .iter()
            .zip(size)
            .fold(0, |any, access| any | crosses(access))
            == 0
        {
            return address.len();
        }
        address
            .iter()
            .zip(size)
            .position(|access| crosses(access) != 0)
            .unwrap_or(address.len())
    }

    /// Greatest age, in ticks, of the current sample's entries in the table.
    #[inline(always)]
    fn span(&self, tick: u64) -> u32 {
        (tick - self.begin).min(self.horizon) as u32
    }

    /// Index of the entry of `block`, and true if it exists; else the index where it may be
    /// inserted.
    #[inline(always)]
    fn find(&self, block: u64, tick: u64) -> (usize, bool) {
        let mask = self.table.len() - 1;
        let now = tick as u32;
        let span = self.span(tick);
        let mut at = self.home(block);
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

    /// Reserves slots and entries for `n` more touches.
    #[inline(always)]
    fn reserve(&mut self, n: usize) {
        self.reserve_slots(n);
        self.reserve_entries(n);
    }

    /// Reserves slots for `n` more touches.
    #[inline(always)]
    fn reserve_slots(&mut self, n: usize) {
        if self.next_slot as usize + n > self.rank.capacity() {
            self.compact(n);
        }
        if self.tick - self.swept >= self.horizon / 2 {
            self.sweep();
        }
    }

    /// Reserves room for `n` more entries.
    #[inline(always)]
    fn reserve_entries(&mut self, n: usize) {
        if (self.used + n) * 2 > self.table.len() {
            self.grow(n);
        }
    }

    /// First loop: blocks take their slots.
    #[inline(always)]
    fn look_up(&mut self, address: &[u64], batch: &mut Batch) {
        let (mut live, mut next, mut last_at) = (self.live, self.next_slot, self.last_at);
        batch.listed = 0;
        for (i, &address) in address.iter().enumerate().take(ROWS_PER_BATCH) {
            let (block, tick) = (address >> self.shift, self.tick + i as u64);
            batch.block[i] = block;
            batch.distance[i] = 0;
            if let Some(entry) = self.table.get_mut(last_at)
                && entry.block == block
            {
                // The previous access touched only this block, so its slot stays the last one.
                entry.tick = tick as u32;
                batch.interval[i] = 1;
                continue;
            }
            let (at, found) = self.find(block, tick);
            let entry = &mut self.table[at];
            let old = *entry;
            *entry = Entry {
                block,
                slot: next,
                tick: tick as u32,
            };
            next += 1;
            last_at = at;
            if found {
                batch.interval[i] = (tick as u32).wrapping_sub(old.tick).into();
                self.rank.prefetch(old.slot);
                batch.list[batch.listed] = (i as u32, old.slot, live);
                batch.listed += 1;
                continue;
            }
            self.used += 1;
            match self.take_ancient(block) {
                Some((slot, before)) => {
                    batch.interval[i] = tick - before;
                    batch.list[batch.listed] = (i as u32, slot, live);
                    batch.listed += 1;
                }
                None => {
                    batch.interval[i] = NO_INTERVAL;
                    live += 1;
                }
            }
        }
        (self.live, self.next_slot, self.last_at) = (live, next, last_at);
    }

    /// Second loop: counts distances. `ahead` are accesses that will be looked up soon.
    #[inline(always)]
    fn count(&mut self, ahead: &[u64], batch: &mut Batch) {
        let listed = batch.listed.min(ROWS_PER_BATCH);
        for (k, &(i, slot, live)) in batch.list[..listed].iter().enumerate() {
            if let Some(&ahead) = ahead.get(k) {
                self.prefetch(ahead);
            }
            batch.distance[i as usize % ROWS_PER_BATCH] =
                live.wrapping_sub(self.rank.upto(self.joined.end(slot)));
            self.rank.clear(slot);
        }
        ahead.iter().skip(listed).for_each(|&a| self.prefetch(a));
    }

    #[inline(always)]
    fn take_ancient(&mut self, block: u64) -> Option<(u32, u64)> {
        if self.ancient.is_empty() {
            return None;
        }
        self.ancient.remove(&block)
    }

    /// An access to several blocks: first all distances, then all updates, so that the blocks of
    /// one access do not count between each other. The time is linear in the number of blocks.
    /// Accesses to more than [`MAX_TOGETHER`] blocks are processed in portions; then the earlier
    /// portions count as touched before the later ones.
    #[inline(never)]
    fn touch_many<S: ReuseSink>(&mut self, address: u64, size: u32, tag: u32, sink: &mut S) {
        let (first, last) = (
            address >> self.shift,
            address.saturating_add(u64::from(size.max(1)) - 1) >> self.shift,
        );
        let row = self.tick - self.begin;
        self.last_at = NO_INDEX;
        let mut from = first;
        loop {
            let to = last.min(from.saturating_add(MAX_TOGETHER - 1));
            self.touch_portion(row, from, to, tag, sink);
            if to == last {
                break;
            }
            from = to + 1;
        }
        sink.done(row, tag);
    }

    fn touch_portion<S: ReuseSink>(
        &mut self,
        row: u64,
        first: u64,
        last: u64,
        tag: u32,
        sink: &mut S,
    ) {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2")
            && std::arch::is_x86_feature_detected!("popcnt")
            && std::arch::is_x86_feature_detected!("lzcnt")
            && std::arch::is_x86_feature_detected!("bmi2")
        {
            // SAFETY: the CPU supports every feature for which the function is compiled, as was
            // just checked.
            return unsafe { self.touch_portion_modern(row, first, last, tag, sink) };
        }
        self.touch_portion_any(row, first, last, tag, sink);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "popcnt,avx2,bmi1,bmi2,lzcnt")]
    fn touch_portion_modern<S: ReuseSink>(
        &mut self,
        row: u64,
        first: u64,
        last: u64,
        tag: u32,
        sink: &mut S,
    ) {
        self.touch_portion_any(row, first, last, tag, sink);
    }

    #[inline(always)]
    fn touch_portion_any<S: ReuseSink>(
        &mut self,
        row: u64,
        first: u64,
        last: u64,
        tag: u32,
        sink: &mut S,
    ) {
        let count = (last - first + 1) as usize;
        self.reserve_slots(count);
        // Slots of one access share their distance, so it is counted once for consecutive ones.
        let (mut known, mut distance) = (std::ops::RangeInclusive::new(1, 0), 0);
        let mut new = 0;
        for block in first..=last {
            self.prefetch_block(block.saturating_add(PREFETCH_DISTANCE));
            let (at, found) = self.find(block, self.tick);
            let entry = self.table[at];
            let before = if found {
                let age = (self.tick as u32).wrapping_sub(entry.tick);
                Some((entry.slot, self.tick - u64::from(age)))
            } else {
                new += 1;
                self.ancient.get(&block).copied()
            };
            let Some((slot, tick)) = before else {
                sink.first(row, block, tag);
                continue;
            };
            if !known.contains(&slot) {
                let end = self.joined.end(slot);
                known = slot..=end;
                distance = self.live - self.rank.upto(end);
            }
            sink.reuse(row, block, tag, u64::from(distance), self.tick - tick);
        }
        // The number of new entries is known only now: copies within the same data add none.
        self.reserve_entries(new);
        let begin = self.next_slot;
        // The current range of consecutive slots to be cleared.
        let mut gone: Option<(u32, u32)> = None;
        for block in first..=last {
            self.prefetch_block(block.saturating_add(PREFETCH_DISTANCE));
            let (at, found) = self.find(block, self.tick);
            let before = if found {
                Some(self.table[at].slot)
            } else {
                self.used += 1;
                self.take_ancient(block).map(|(slot, _)| slot)
            };
            match (before, gone) {
                (None, _) => self.live += 1,
                (Some(slot), Some((from, to))) if slot == to + 1 => gone = Some((from, slot)),
                (Some(slot), _) => {
                    if let Some((from, to)) = gone.replace((slot, slot)) {
                        self.rank.clear_range(from, to);
                    }
                }
            }
            self.table[at] = Entry {
                block,
                slot: self.next_slot,
                tick: self.tick as u32,
            };
            self.next_slot += 1;
        }
        if let Some((from, to)) = gone {
            self.rank.clear_range(from, to);
        }
        self.joined
            .join(begin, self.next_slot - 1, self.rank.capacity());
    }

    /// Renumbers the live slots in their order and reserves room for `n` more.
    #[inline(always)]
    fn compact(&mut self, n: usize) {
        let live = self.live as usize;
        let slots = (live * 4)
            .max(live + 2 * n)
            .max(MIN_SLOTS)
            .next_power_of_two();
        let slots = if slots > MORE_SLOTS {
            slots.max(MANY_SLOTS)
        } else {
            slots
        };
        if !self.joined.is_empty() {
            self.joined = self
                .joined
                .renumbered(self.next_slot, slots, |old| self.rank.is_set(old));
        }
        let now = self.tick as u32;
        let span = self.span(self.tick);
        let mut list = [0; 256];
        for entries in self.table.chunks_mut(list.len()) {
            let mut count = 0usize;
            for (at, entry) in entries.iter().enumerate() {
                list[count & 255] = at;
                count += usize::from(now.wrapping_sub(entry.tick) <= span);
            }
            let list = &list[..count];
            list.iter()
                .for_each(|&at| self.rank.prefetch(entries[at].slot));
            for &at in list {
                entries[at].slot = self.rank.upto(entries[at].slot) - 1;
            }
        }
        for (slot, _) in self.ancient.values_mut() {
            *slot = self.rank.upto(*slot) - 1;
        }
        if slots == self.rank.capacity() {
            self.rank.reset(self.next_slot as usize);
        } else {
            self.rank = Rank::new(slots);
        }
        self.next_slot = self.live;
    }

    /// Makes the table large enough for `n` more entries.
    #[cold]
    fn grow(&mut self, n: usize) {
        let size = ((self.used + n) * 2).next_power_of_two();
        self.rebuild(size, u64::MAX);
    }

    /// Moves the entries into a table of `size`; those older than `horizon` ticks become ancient.
    fn rebuild(&mut self, size: usize, horizon: u64) {
        let now = self.tick as u32;
        let span = self.span(self.tick);
        let free = Entry {
            block: 0,
            slot: 0,
            tick: now.wrapping_sub(span).wrapping_sub(1),
        };
        let old = std::mem::replace(&mut self.table, crate::large_vec(free, size));
        self.table_shift = 64 - size.trailing_zeros();
        self.used = 0;
        self.last_at = NO_INDEX;
        for entry in old {
            let age = now.wrapping_sub(entry.tick);
            if age > span {
                continue;
            }
            if u64::from(age) > horizon {
                self.ancient
                    .insert(entry.block, (entry.slot, self.tick - u64::from(age)));
                continue;
            }
            let (at, _) = self.find(entry.block, self.tick);
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
