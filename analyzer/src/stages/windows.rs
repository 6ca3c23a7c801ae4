//! Metrics by window size.
//!
//! A sample is divided into consecutive windows of W = 16, 32, 64, … accesses, aligned at its
//! start; only whole windows count. Footprint, captures and survivals of *all* sizes are computed
//! in one pass with one table look-up per access. If the last access to the same address was `p`
//! and this one is `i`, they are in the same window of size `2^j` if and only if `i` and `p` agree
//! above bit `j`, that is, from level `j = bit length of (i xor p)` on. So each access adds one to
//! a counter of one level, and counters are carried upwards when windows end, as in a binary
//! counter ([`Levels`]).
//!
//! F = accesses − accesses whose address was seen before in the same window. C = accesses that are
//! the second to their address in the window. S = F − C. F_str and F_irr are the same by class.
//!
//! Means over the windows of the *run* weight each window by its sample
//! ([`crate::input::weights`]), if samples have weights.

use crate::data::group::{AccessClass, Group};
use crate::data::rows::ColumnSlices;
use crate::interner::{DenseNames, KEY_BITS, KEYS_PER_BATCH, MAX_NUMBERS};
use crate::prefetch;
use std::collections::HashMap;
use std::hint::select_unpredictable;

/// Smallest window: `1 << MIN_LEVEL` accesses.
pub const MIN_LEVEL: usize = 4;
/// Largest window of the footprint metrics: `1 << MAX_LEVEL` accesses.
pub const MAX_LEVEL: usize = 16;

/// Bit length of `i xor p`, at least [`MIN_LEVEL`]: the smallest level at which both share a
/// window.
#[inline(always)]
pub(crate) fn level(i: u64, p: u64) -> usize {
    ((64 - (i ^ p).leading_zeros()) as usize).max(MIN_LEVEL)
}

/// Counters by level that are carried upwards as windows end. There are `N` counters per level.
/// They may be negative temporarily, so arithmetic wraps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Levels<const N: usize> {
    /// Counts inside the current window of each level.
    open: Vec<[u64; N]>,
    /// Counts of finished windows.
    totals: Vec<[u64; N]>,
}

impl<const N: usize> Levels<N> {
    /// Empty counters of the levels `MIN_LEVEL..=top`.
    pub fn new(top: usize) -> Levels<N> {
        Levels {
            open: vec![[0; N]; top + 2],
            totals: vec![[0; N]; top + 1],
        }
    }

    /// Adds to a counter from `level` on; levels above the top are ignored.
    #[inline(always)]
    pub fn add(&mut self, level: usize, counter: usize, value: u64) {
        if let Some(open) = self.open.get_mut(level) {
            open[counter] = open[counter].wrapping_add(value);
        }
    }

    /// Adds to all counters from `level` on.
    #[inline(always)]
    pub fn add_all(&mut self, level: usize, values: [u64; N]) {
        if let Some(open) = self.open.get_mut(level) {
            open.iter_mut()
                .zip(values)
                .for_each(|(counter, value)| *counter = counter.wrapping_add(value));
        }
    }

    /// Completes the access with sample-relative number `index`.
    #[inline(always)]
    pub fn done(&mut self, index: u64) {
        if (index + 1).is_multiple_of(1 << MIN_LEVEL) {
            self.carry(index + 1, MIN_LEVEL);
        }
    }

    /// Number of accesses from `index` on, at most `most`, that [`Levels::add_together`] can
    /// process at once. They are a window, or part of the smallest one.
    #[inline(always)]
    pub(crate) fn together(index: u64, most: usize) -> usize {
        let rows = 1
            << (most | 1)
                .ilog2()
                .min((index | 1 << MAX_TOGETHER).trailing_zeros());
        if rows >= MIN_WINDOW {
            rows
        } else {
            most.min(MIN_WINDOW - index as usize % MIN_WINDOW)
        }
    }

    /// Counts accesses that [belong together](Levels::together). `sums` returns the amounts to add
    /// from a level on. Levels are below 16.
    #[inline(always)]
    pub(crate) fn add_together(
        &mut self,
        index: u64,
        rows: usize,
        sums: impl Fn(usize) -> [u64; N],
    ) {
        let end = index + rows as u64;
        let mut inside = [0; N];
        let mut next = MIN_LEVEL;
        if rows >= MIN_WINDOW && rows.is_power_of_two() && index.is_multiple_of(rows as u64) {
            next = rows.ilog2() as usize + 1;
            for level in MIN_LEVEL..next {
                inside
                    .iter_mut()
                    .zip(sums(level))
                    .for_each(|(all, value)| *all += value);
                let windows = &mut self.totals[level];
                windows
                    .iter_mut()
                    .zip(inside)
                    .for_each(|(sum, value)| *sum = sum.wrapping_add(value));
            }
        }
        self.add_all(next, inside);
        (next..16).for_each(|level| self.add_all(level, sums(level)));
        if end.is_multiple_of(MIN_WINDOW as u64) {
            self.carry(end, next);
        }
    }

    fn carry(&mut self, accesses: u64, from: usize) {
        let whole = (accesses.trailing_zeros() as usize).min(self.totals.len() - 1);
        for level in from..=whole {
            let open = std::mem::replace(&mut self.open[level], [0; N]);
            for (k, value) in open.into_iter().enumerate() {
                self.totals[level][k] = self.totals[level][k].wrapping_add(value);
                self.open[level + 1][k] = self.open[level + 1][k].wrapping_add(value);
            }
        }
    }

    /// Starts a sample: unfinished windows are dropped.
    pub fn begin(&mut self) {
        self.open.fill([0; N]);
    }

    /// Counters of the finished windows, by level.
    pub fn totals(&self) -> &[[u64; N]] {
        &self.totals
    }

    /// Counters of finished windows that were stored before.
    pub fn from_totals(totals: Vec<[u64; N]>) -> Levels<N> {
        Levels {
            open: vec![[0; N]; totals.len() + 1],
            totals,
        }
    }

    /// Counters of the finished windows of a level.
    pub fn total(&self, level: usize) -> [u64; N] {
        self.totals.get(level).copied().unwrap_or([0; N])
    }

    /// Adds the finished windows of `other`.
    pub fn merge(&mut self, other: &Levels<N>) {
        for (mine, theirs) in self.totals.iter_mut().zip(&other.totals) {
            for (a, b) in mine.iter_mut().zip(theirs) {
                *a = a.wrapping_add(*b);
            }
        }
    }
}

/// Accesses of the smallest window.
const MIN_WINDOW: usize = 1 << MIN_LEVEL;
/// Log2 of the maximum number of accesses that [`Levels`] process together.
const MAX_TOGETHER: u32 = 8;
/// Level of the windows whose accesses are counted together, if all their rows are in the slice.
const BLOCK_LEVEL: usize = 6;
/// Accesses of such a window.
const BLOCK: usize = 1 << BLOCK_LEVEL;
/// With more addresses than this, their entries are prefetched. Source: Chosen.
const MANY_ADDRESSES: usize = 1 << 11;

/// Counters per level, as they are stored; those for Irregular come after those for Strided.
const WINDOWS: usize = 0;
const IMPLIED: usize = 1;
const ROWS_STR: usize = 2;
const AGAIN_COUNTER: usize = 4;
const AGAIN_STR: usize = 5;
const SECOND_COUNTER: usize = 7;

/// Counters by level during a sample. There is one for each bit length of 32-bit numbers, so no
/// index has to be checked. Those above the top are never read. `OPEN_ROWS` and `OPEN_CLASS` are
/// unused themselves; the two counters after each are those of Strided and of Irregular loads.
type Open = [[u64; 16]; 33];
const OPEN_ROWS: usize = 2;
const OPEN_CLASS: usize = 5;
const OPEN_AGAIN: usize = 8;
/// Not adjacent to `OPEN_AGAIN`. Otherwise the compiler would add to both with one vector
/// instruction, whose load would have to wait until a store to one of them has reached the cache.
const OPEN_SECOND: usize = 11;
/// Indices of the stored counters among the open ones.
const STORED_COUNTERS: [usize; 8] = [
    WINDOWS,
    IMPLIED,
    OPEN_ROWS + 1,
    OPEN_ROWS + 2,
    OPEN_AGAIN,
    OPEN_CLASS + 1,
    OPEN_CLASS + 2,
    OPEN_SECOND,
];

/// Sums over the whole windows of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowSums {
    /// Number of windows.
    pub windows: u64,
    /// Accesses in them.
    pub accesses: u64,
    /// Implied Constant loads in them.
    pub implied: u64,
    /// Sum of F.
    pub footprint: u64,
    /// Sum of F_str.
    pub strided: u64,
    /// Sum of F_irr.
    pub irregular: u64,
    /// Sum of C.
    pub captures: u64,
}

/// The accesses to an address of the current epoch.
#[derive(Clone, Copy)]
struct LastAccess {
    /// Numbers in the epoch of the last access, the last Strided one, and the last Irregular one.
    last: [u32; 3],
    /// Level of the last access and the previous one.
    level: u32,
}

/// An address without accesses.
const NO_ACCESSES: LastAccess = LastAccess {
    last: [NO_NUMBER; 3],
    level: 0,
};
/// A missing number. It differs from all numbers of an epoch above the top level.
const NO_NUMBER: u32 = 1 << 20;
/// Bits of an entry of [`Inside`] that hold a number. The other bits identify the sample.
const INSIDE_BITS: u32 = 16;
/// Maximum number of accesses in a sample that uses [`Inside`], and maximum log2 of the bytes of a
/// block. So the table has at most a megabyte.
const MAX_INSIDE: usize = 1 << 12;
const MAX_SHIFT: u32 = 6;

/// Numbers of addresses in samples whose blocks have numbers. No search and no branch is needed.
/// The number of an address is its first access.
#[derive(Default)]
struct Inside {
    /// By block and offset in it.
    places: Vec<u32>,
    /// Number of the sample, from 1.
    sample: u32,
}

impl Inside {
    /// Begins a sample.
    fn begin(&mut self, places: usize) {
        self.sample += 1;
        if self.sample >> (32 - INSIDE_BITS) != 0 {
            self.places.fill(0);
            self.sample = 1;
        }
        if self.places.len() < places {
            self.places.resize(places, 0);
        }
    }

    /// The numbers of addresses. The first one is access `from`.
    #[inline(always)]
    fn number(
        &mut self,
        address: &[u64],
        block: &[u16],
        shift: u32,
        from: usize,
        numbers: &mut [u32; KEYS_PER_BATCH],
    ) {
        let (places, sample) = (&mut self.places[..], self.sample);
        for (row, ((&address, &block), number)) in
            (from..).zip(address.iter().zip(block).zip(numbers))
        {
            let place =
                &mut places[usize::from(block) << shift | address as usize & ((1 << shift) - 1)];
            *number = select_unpredictable(
                *place >> INSIDE_BITS == sample,
                *place & ((1 << INSIDE_BITS) - 1),
                row as u32,
            );
            *place = sample << INSIDE_BITS | *number;
        }
    }
}

/// Index in [`LastAccess::last`] by class. Strided is 1, Irregular 2; Constant loads have no
/// separate columns.
const PLACE: [usize; 4] = [0, 1, 2, 0];
/// The state between accesses of one sample, and the sums over all samples.
pub struct WindowEngine {
    /// Numbers of the epoch's addresses.
    names: DenseNames,
    /// Addresses that are too large for `names`. They are numbered downwards from the greatest
    /// number.
    odd: HashMap<u64, u32>,
    /// Numbers of addresses by block and offset in it, if blocks have numbers.
    inside: Inside,
    /// Last accesses by the number of the address.
    seen: Vec<LastAccess>,
    index: u64,
    /// Counts of unfinished windows.
    open: Box<Open>,
    /// Counts of finished windows, by level up to the top.
    totals: Vec<[u64; 16]>,
    /// Counts of finished windows, weighted by the weights of the samples; empty if no sample has a
    /// weight.
    weighted: Vec<[u64; 16]>,
    /// Weight of the current sample.
    weight: Option<u64>,
}

/// As [`level`], for numbers of an epoch.
#[inline(always)]
fn level_of(now: u32, before: u32) -> u32 {
    32 - (now ^ before | 1 << (MIN_LEVEL - 1)).leading_zeros()
}

/// Levels of the accesses of a block. Updating counters one by one would make each access wait for
/// the previous one. So levels are listed, and vector instructions count the lists.
struct Listed {
    /// Level of an access and the previous one to the same address.
    reuse: [u8; BLOCK],
    /// Level of the previous access and the one before it; 0 if there was none.
    before: [u8; BLOCK],
    /// As `reuse`, for accesses of the same class.
    of_class: [u8; BLOCK],
    class: [u8; BLOCK],
}

/// Number of accesses of a block that satisfy a condition.
#[inline(always)]
fn count(is: impl Fn(usize) -> bool) -> u64 {
    (0..BLOCK).map(|i| u8::from(is(i))).sum::<u8>().into()
}

impl Listed {
    /// Numbers of accesses whose level is at most this: reuses, reuses of addresses that were seen
    /// once in their window, and reuses by Strided and by Irregular loads.
    #[inline(always)]
    fn upto(&self, most: u8) -> [u64; 4] {
        let of_class = |class: u8| count(|i| (self.of_class[i] <= most) & (self.class[i] == class));
        [
            count(|i| self.reuse[i] <= most),
            count(|i| (self.reuse[i] <= most) & (self.before[i] > most)),
            of_class(AccessClass::Strided as u8),
            of_class(AccessClass::Irregular as u8),
        ]
    }
}

/// Counts an access, `now` in its epoch, to an address with the state `seen`. New addresses are
/// unpredictable, so there is no branch on them.
#[inline(always)]
fn access(open: &mut Open, seen: &mut LastAccess, class: usize, now: u32) {
    let level = |before: u32| level_of(now, before) as usize;
    let (reuse, of_class, before) = (
        level(seen.last[0]),
        level(seen.last[class]),
        seen.level as usize & 31,
    );
    let nearer = u64::from(reuse < before);
    seen.last[0] = now;
    seen.last[class] = now;
    seen.level = reuse as u32;
    let mut add = |level: usize, counter: usize, value: u64| {
        open[level][counter] = open[level][counter].wrapping_add(value)
    };
    add(reuse, OPEN_AGAIN, 1);
    add(reuse, OPEN_SECOND, nearer);
    add(before, OPEN_SECOND, nearer.wrapping_neg());
    add(of_class, OPEN_CLASS + class, 1);
}

impl Default for WindowEngine {
    fn default() -> WindowEngine {
        WindowEngine::new()
    }
}

impl WindowEngine {
    /// An engine with empty sums.
    pub fn new() -> WindowEngine {
        WindowEngine {
            names: DenseNames::new(),
            odd: HashMap::new(),
            inside: Inside::default(),
            seen: Vec::new(),
            index: 0,
            open: Box::new([[0; 16]; 33]),
            totals: vec![[0; 16]; MAX_LEVEL + 1],
            weighted: Vec::new(),
            weight: None,
        }
    }

    /// Starts a sample. `weight` is the weight of its windows, unless all samples of the trace have
    /// the same.
    pub fn begin(&mut self, weight: Option<u64>) {
        self.weight = weight;
        if weight.is_some() {
            self.weighted.resize(MAX_LEVEL + 1, [0; 16]);
        }
        self.index = 0;
        self.open.fill([0; 16]);
        self.forget();
    }

    /// Starts an epoch.
    fn forget(&mut self) {
        self.names.clear();
        self.odd.clear();
        self.seen.clear();
    }

    /// Adds loads in order.
    pub fn run(&mut self, rows: &ColumnSlices<'_>) {
        self.run_in_blocks(rows, None, 0);
    }

    /// Adds loads of samples whose blocks of `1 << shift` bytes may have numbers: the blocks in
    /// which accesses begin, below the number of accesses. The rows must be all accesses of the
    /// sample.
    pub(crate) fn run_in_blocks(
        &mut self,
        rows: &ColumnSlices<'_>,
        blocks: Option<&[u16]>,
        shift: u32,
    ) {
        let blocks = blocks
            .filter(|b| {
                b.len() == rows.len()
                    && b.len() <= MAX_INSIDE
                    && shift <= MAX_SHIFT
                    && self.index == 0
            })
            .map(|b| (b, shift));
        if blocks.is_some() {
            self.inside.begin(rows.len() << shift);
            self.seen.resize(rows.len(), NO_ACCESSES);
        }
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2")
            && std::arch::is_x86_feature_detected!("bmi1")
            && std::arch::is_x86_feature_detected!("bmi2")
            && std::arch::is_x86_feature_detected!("lzcnt")
        {
            // SAFETY: the CPU supports every feature for which the function is compiled, as was
            // just checked.
            return unsafe { self.run_modern(rows, blocks) };
        }
        self.run_any(rows, blocks);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
    fn run_modern(&mut self, rows: &ColumnSlices<'_>, blocks: Option<(&[u16], u32)>) {
        self.run_any(rows, blocks);
    }

    #[inline(always)]
    fn run_any(&mut self, rows: &ColumnSlices<'_>, blocks: Option<(&[u16], u32)>) {
        let len = rows.len();
        let (address, group, implied) = (
            &rows.address[..len],
            &rows.group[..len],
            &rows.implied[..len],
        );
        let mut numbers = [0u32; KEYS_PER_BATCH];
        let mut from = 0;
        while from < len {
            let epoch = 1 << MAX_LEVEL;
            let left = epoch - self.index as usize % epoch;
            if left == epoch && self.index > 0 {
                self.forget();
            }
            let to = len.min(from + KEYS_PER_BATCH.min(left));
            match blocks {
                Some((blocks, shift)) => self.inside.number(
                    &address[from..to],
                    &blocks[from..to],
                    shift,
                    from,
                    &mut numbers,
                ),
                None => self.number(&address[from..to], &mut numbers),
            }
            if self.seen.len() > MANY_ADDRESSES {
                numbers[..to - from]
                    .iter()
                    .for_each(|&number| prefetch(&self.seen[number as usize]));
            }
            let mut at = from;
            while at < to {
                if (self.index as usize).is_multiple_of(BLOCK)
                    && let (Some(numbers), Some(group), Some(implied)) = (
                        numbers[at - from..to - from].first_chunk(),
                        group[at..to].first_chunk(),
                        implied[at..to].first_chunk(),
                    )
                {
                    self.block(numbers, group, implied);
                    at += BLOCK;
                    continue;
                }
                // The remaining rows of the smallest window.
                let end = to.min(at + MIN_WINDOW - self.index as usize % MIN_WINDOW);
                self.add_up(&group[at..end], &implied[at..end]);
                // Local copies: otherwise the compiler would load the pointers for each row, since
                // the rows' stores might alias them.
                let (open, seen, index) = (
                    &mut *self.open,
                    &mut self.seen[..],
                    self.index as usize % epoch,
                );
                for (row, (&number, &group)) in numbers[at - from..end - from]
                    .iter()
                    .zip(&group[at..end])
                    .enumerate()
                {
                    access(
                        open,
                        &mut seen[number as usize],
                        PLACE[group.class() as usize],
                        (index + row) as u32,
                    );
                }
                self.index += (end - at) as u64;
                if (self.index as usize).is_multiple_of(MIN_WINDOW) {
                    self.close(MIN_LEVEL);
                }
                at = end;
            }
            from = to;
        }
    }

    /// Counts the accesses of a block. All smaller windows begin and end in it.
    #[inline(always)]
    fn block(&mut self, numbers: &[u32; BLOCK], group: &[Group; BLOCK], implied: &[u16; BLOCK]) {
        let begin = self.index as usize % (1 << MAX_LEVEL);
        let mut listed = Listed {
            reuse: [0; BLOCK],
            before: [0; BLOCK],
            of_class: [0; BLOCK],
            class: [0; BLOCK],
        };
        let seen = &mut self.seen[..];
        for i in 0..BLOCK {
            let (seen, class, now) = (
                &mut seen[numbers[i] as usize],
                PLACE[group[i].class() as usize],
                (begin + i) as u32,
            );
            listed.before[i] = seen.level as u8;
            let [reuse, of_class] = [0, class].map(|at| level_of(now, seen.last[at]));
            (seen.last[0], seen.last[class], seen.level) = (now, now, reuse);
            (listed.reuse[i], listed.of_class[i], listed.class[i]) =
                (reuse as u8, of_class as u8, class as u8);
        }
        let of_class = |class: AccessClass| {
            group
                .iter()
                .map(|g| u64::from(g.class() == class))
                .sum::<u64>()
        };
        let rows = [
            of_class(AccessClass::Strided),
            of_class(AccessClass::Irregular),
            implied.iter().map(|&i| u64::from(i)).sum(),
        ];
        let counters = |[again, second, strided, irregular]: [u64; 4]| {
            let mut counts = [0; 16];
            [
                counts[OPEN_AGAIN],
                counts[OPEN_SECOND],
                counts[OPEN_CLASS + 1],
                counts[OPEN_CLASS + 2],
            ] = [again, second, strided, irregular];
            [
                counts[OPEN_ROWS + 1],
                counts[OPEN_ROWS + 2],
                counts[IMPLIED],
            ] = rows;
            counts
        };
        for level in MIN_LEVEL..=BLOCK_LEVEL {
            self.finish(
                level,
                &counters(listed.upto(level as u8)),
                (BLOCK >> level) as u64,
            );
        }
        // Larger windows count their new accesses separately. None of these windows begins before
        // the epoch.
        let mut known = [0; 4];
        let top = (usize::BITS - (begin + BLOCK - 1).leading_zeros()) as usize;
        for level in BLOCK_LEVEL + 1..=top.clamp(BLOCK_LEVEL + 1, MAX_LEVEL) {
            let upto = listed.upto(level as u8);
            let open = &mut self.open[level];
            let more = [OPEN_AGAIN, OPEN_SECOND, OPEN_CLASS + 1, OPEN_CLASS + 2];
            for ((&counter, upto), known) in more.iter().zip(upto).zip(known) {
                open[counter] = open[counter].wrapping_add(upto.wrapping_sub(known));
            }
            known = upto;
        }
        let open = &mut self.open[BLOCK_LEVEL + 1];
        for (counter, rows) in [OPEN_ROWS + 1, OPEN_ROWS + 2, IMPLIED]
            .into_iter()
            .zip(rows)
        {
            open[counter] = open[counter].wrapping_add(rows);
        }
        self.index += BLOCK as u64;
        self.close(BLOCK_LEVEL + 1);
    }

    /// Counts rows by class, and implied loads.
    #[inline(always)]
    fn add_up(&mut self, group: &[Group], implied: &[u16]) {
        let of_class = |class: AccessClass| {
            group
                .iter()
                .map(|g| u64::from(g.class() == class))
                .sum::<u64>()
        };
        let all: u64 = implied.iter().map(|&i| u64::from(i)).sum();
        let open = &mut self.open[MIN_LEVEL];
        open[OPEN_ROWS + 1] = open[OPEN_ROWS + 1].wrapping_add(of_class(AccessClass::Strided));
        open[OPEN_ROWS + 2] = open[OPEN_ROWS + 2].wrapping_add(of_class(AccessClass::Irregular));
        open[IMPLIED] = open[IMPLIED].wrapping_add(all);
    }

    /// Ends the windows of this and greater levels that end here. Each level counts its own
    /// windows, so their number is not carried.
    #[inline(always)]
    fn close(&mut self, from: usize) {
        let whole = (self.index.trailing_zeros() as usize).min(MAX_LEVEL);
        for level in from..=whole {
            let open = std::mem::take(&mut self.open[level]);
            self.open[level + 1]
                .iter_mut()
                .zip(open)
                .for_each(|(sum, value)| *sum = sum.wrapping_add(value));
            self.finish(level, &open, 1);
        }
    }

    /// Counts finished windows of a level.
    #[inline(always)]
    fn finish(&mut self, level: usize, counts: &[u64; 16], windows: u64) {
        self.totals[level]
            .iter_mut()
            .zip(counts)
            .for_each(|(sum, value)| *sum = sum.wrapping_add(*value));
        self.totals[level][WINDOWS] += windows;
        if let Some(weight) = self.weight {
            // Counts may be negative temporarily: products wrap like sums.
            self.weighted[level]
                .iter_mut()
                .zip(counts)
                .for_each(|(sum, value)| *sum = sum.wrapping_add(value.wrapping_mul(weight)));
            self.weighted[level][WINDOWS] =
                self.weighted[level][WINDOWS].wrapping_add(weight.wrapping_mul(windows));
        }
    }

    /// Numbers of addresses. New addresses get the next number.
    #[inline(always)]
    fn number(&mut self, address: &[u64], numbers: &mut [u32; KEYS_PER_BATCH]) {
        if address.iter().fold(0, |any, a| any | a) >> KEY_BITS == 0 {
            self.names.number(address.iter().copied(), numbers);
        } else {
            self.number_odd(address, numbers);
        }
        if self.seen.len() < self.names.len() {
            self.seen.resize(self.names.len(), NO_ACCESSES);
        }
    }

    #[cold]
    fn number_odd(&mut self, address: &[u64], numbers: &mut [u32; KEYS_PER_BATCH]) {
        // An epoch has no more addresses than there are numbers, so the two ends never meet.
        self.seen.resize(MAX_NUMBERS, NO_ACCESSES);
        let mut one = [0; KEYS_PER_BATCH];
        for (&address, number) in address.iter().zip(numbers) {
            *number = if address >> KEY_BITS == 0 {
                self.names.number(std::iter::once(address), &mut one);
                one[0]
            } else {
                let next = (MAX_NUMBERS - 1 - self.odd.len()) as u32;
                *self.odd.entry(address).or_insert(next)
            };
        }
    }

    /// The counts by level, and the weighted ones (empty if no sample has a weight).
    pub fn levels(&self) -> [Levels<8>; 2] {
        [&self.totals, &self.weighted].map(|totals| {
            Levels::from_totals(
                totals
                    .iter()
                    .map(|t| STORED_COUNTERS.map(|at| t[at]))
                    .collect(),
            )
        })
    }

    /// An engine with counts that were stored before.
    pub fn from_levels([totals, weighted]: &[Levels<8>; 2]) -> WindowEngine {
        let mut engine = WindowEngine::new();
        engine
            .weighted
            .resize(weighted.totals().len().min(MAX_LEVEL + 1), [0; 16]);
        for (into, from) in [
            (&mut engine.totals, totals),
            (&mut engine.weighted, weighted),
        ] {
            for (mine, stored) in into.iter_mut().zip(from.totals()) {
                STORED_COUNTERS
                    .iter()
                    .zip(stored)
                    .for_each(|(&at, &value)| mine[at] = value);
            }
        }
        engine
    }

    /// Sums over the windows of `1 << level` accesses that were recorded.
    pub fn sums(&self, level: usize) -> WindowSums {
        WindowEngine::sums_of(&self.totals, level)
    }

    /// Sums in proportion to those over all windows of the run: their quotients are means over the
    /// run.
    pub fn sums_of_run(&self, level: usize) -> WindowSums {
        let weighted = WindowEngine::sums_of(&self.weighted, level);
        if weighted.windows > 0 {
            weighted
        } else {
            self.sums(level)
        }
    }

    fn sums_of(totals: &[[u64; 16]], level: usize) -> WindowSums {
        let t = totals
            .get(level)
            .map_or([0; 8], |t| STORED_COUNTERS.map(|at| t[at]));
        let accesses = t[WINDOWS].wrapping_shl(level as u32);
        WindowSums {
            windows: t[WINDOWS],
            accesses,
            implied: t[IMPLIED],
            footprint: accesses.wrapping_sub(t[AGAIN_COUNTER]),
            strided: t[ROWS_STR].wrapping_sub(t[AGAIN_STR]),
            irregular: t[ROWS_STR + 1].wrapping_sub(t[AGAIN_STR + 1]),
            captures: t[SECOND_COUNTER],
        }
    }

    /// Drops the weights.
    pub fn forget_weights(&mut self) {
        self.weighted = Vec::new();
    }

    /// Adds the sums of another engine.
    pub fn merge(&mut self, other: &WindowEngine) {
        self.weighted
            .resize(self.weighted.len().max(other.weighted.len()), [0; 16]);
        for (into, from) in [
            (&mut self.totals, &other.totals),
            (&mut self.weighted, &other.weighted),
        ] {
            for (mine, theirs) in into.iter_mut().zip(from) {
                mine.iter_mut()
                    .zip(theirs)
                    .for_each(|(a, b)| *a = a.wrapping_add(*b));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn by_definition(samples: &[Vec<(u64, u32, u16)>], level: usize) -> WindowSums {
        weighted_by_definition(
            &samples.iter().map(|s| (&s[..], 1)).collect::<Vec<_>>(),
            level,
        )
    }

    /// Each window counts with the weight of its sample.
    fn weighted_by_definition(samples: &[(&[(u64, u32, u16)], u64)], level: usize) -> WindowSums {
        let mut sums = WindowSums::default();
        for (window, weight) in samples
            .iter()
            .flat_map(|(s, weight)| s.chunks_exact(1 << level).map(move |w| (w, weight)))
        {
            let mut seen: HashMap<u64, u64> = HashMap::new();
            let mut classes: HashMap<(u64, u32), u64> = HashMap::new();
            for &(address, class, implied) in window {
                *seen.entry(address).or_default() += 1;
                *classes.entry((address, class)).or_default() += 1;
                sums.implied += weight * u64::from(implied);
            }
            sums.windows += weight;
            sums.accesses += weight * window.len() as u64;
            sums.footprint += weight * seen.len() as u64;
            sums.captures += weight * seen.values().filter(|&&n| n > 1).count() as u64;
            sums.strided += weight * classes.keys().filter(|k| k.1 == 1).count() as u64;
            sums.irregular += weight * classes.keys().filter(|k| k.1 == 2).count() as u64;
        }
        sums
    }

    fn measured(engine: &mut WindowEngine, samples: &[Vec<(u64, u32, u16)>], step: usize) {
        for sample in samples {
            engine.begin(None);
            for rows in sample.chunks(step) {
                let address: Vec<u64> = rows.iter().map(|r| r.0).collect();
                let group: Vec<Group> = rows.iter().map(|r| Group::from_raw(40 + r.1)).collect();
                let implied: Vec<u16> = rows.iter().map(|r| r.2).collect();
                engine.run(&ColumnSlices {
                    address: &address,
                    size: &vec![8; rows.len()],
                    group: &group,
                    implied: &implied,
                });
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn every_size_agrees_with_its_definition(
            samples in prop::collection::vec(
                prop::collection::vec((prop_oneof![20 => 0u64..40, 1 => (1u64 << 47) - 2..(1u64 << 47) + 2, 1 => u64::MAX - 3..=u64::MAX], 0u32..3, 0u16..3), 0..200), 0..4),
            step in 1usize..70,
        ) {
            let mut engine = WindowEngine::new();
            measured(&mut engine, &samples, step);
            for level in MIN_LEVEL..=8 {
                prop_assert_eq!(engine.sums(level), by_definition(&samples, level), "level {}", level);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        /// Block numbers do not change the result, for any size of blocks, and after samples with
        /// other numbers.
        #[test]
        fn numbers_of_blocks_change_nothing(
            samples in prop::collection::vec((prop::collection::vec((0u64..300, 0u32..3, 0u16..3), 0..700), any::<bool>()), 0..5), shift in 0u32..9,
        ) {
            let mut engine = WindowEngine::new();
            for (sample, numbered) in &samples {
                engine.begin(None);
                let (address, group, implied): (Vec<u64>, Vec<Group>, Vec<u16>) = (sample.iter().map(|r| r.0).collect(), sample.iter().map(|r| Group::from_raw(r.1)).collect(), sample.iter().map(|r| r.2).collect());
                let mut numbers: HashMap<u64, u16> = HashMap::new();
                let mut number = |block: u64| {
                    let next = numbers.len() as u16;
                    *numbers.entry(block).or_insert(next)
                };
                let blocks: Vec<u16> = address.iter().map(|a| number(a >> shift)).collect();
                let rows = ColumnSlices { address: &address, size: &vec![1; sample.len()], group: &group, implied: &implied };
                engine.run_in_blocks(&rows, numbered.then_some(&blocks[..]), shift);
            }
            let samples: Vec<_> = samples.into_iter().map(|s| s.0).collect();
            for level in MIN_LEVEL..=9 {
                prop_assert_eq!(engine.sums(level), by_definition(&samples, level), "level {}", level);
            }
        }

        /// Accesses that are counted together give the same as separate ones, for any division.
        #[test]
        fn levels_of_many_accesses_are_those_of_each(distances in prop::collection::vec(0u64..2000, 0..2000), cuts in prop::collection::vec(1usize..600, 1..40)) {
            let (mut each, mut together) = (Levels::<1>::new(40), Levels::<1>::new(40));
            let level_of = |index: u64| level(index, index.saturating_sub(distances[index as usize]));
            for index in 0..distances.len() as u64 {
                each.add(level_of(index), 0, distances[index as usize]);
                each.done(index);
            }
            let (mut from, mut cuts) = (0, cuts.into_iter().cycle());
            while from < distances.len() {
                let to = distances.len().min(from + cuts.next().unwrap());
                while from < to {
                    let rows = Levels::<1>::together(from as u64, to - from);
                    let sum = |wanted: usize| (from..from + rows).filter(|&at| level_of(at as u64) == wanted).map(|at| distances[at]).sum();
                    together.add_together(from as u64, rows, |level| [sum(level)]);
                    from += rows;
                }
            }
            prop_assert_eq!(each, together);
        }
    }

    proptest! {
        /// Sums over the windows of the run weight each window by its sample, even if the samples
        /// are divided between two engines.
        #[test]
        fn weighted_sums_agree_with_their_definition(
            samples in prop::collection::vec((prop::collection::vec((0u64..40, 0u32..3, 0u16..3), 0..200), 0u64..1 << 20), 1..6),
            first in 0usize..6,
        ) {
            let mut engines = [WindowEngine::new(), WindowEngine::new()];
            for (number, (sample, weight)) in samples.iter().enumerate() {
                let engine = &mut engines[usize::from(number >= first)];
                engine.begin(Some(*weight));
                let (address, group, implied): (Vec<u64>, Vec<Group>, Vec<u16>) = (sample.iter().map(|r| r.0).collect(), sample.iter().map(|r| Group::from_raw(r.1)).collect(), sample.iter().map(|r| r.2).collect());
                engine.run(&ColumnSlices { address: &address, size: &vec![8; sample.len()], group: &group, implied: &implied });
            }
            let [mut all, rest] = engines;
            all.merge(&rest);
            let all = WindowEngine::from_levels(&all.levels());
            let (plain, weighted): (Vec<_>, Vec<_>) = samples.iter().map(|(s, w)| ((&s[..], 1), (&s[..], *w))).unzip();
            for level in MIN_LEVEL..=8 {
                prop_assert_eq!(all.sums(level), weighted_by_definition(&plain, level));
                let expected = weighted_by_definition(&weighted, level);
                // Without weights, all windows count equally.
                prop_assert_eq!(all.sums_of_run(level), if expected.windows > 0 { expected } else { all.sums(level) }, "level {}", level);
            }
        }
    }

    #[test]
    fn long_samples_agree_across_the_largest_window() {
        let mut state = 7u64;
        let mut row = || {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (
                (state >> 33) % 50_000 * 8,
                (state >> 20) as u32 % 3,
                (state >> 10) as u16 % 2,
            )
        };
        let samples: Vec<Vec<(u64, u32, u16)>> = vec![
            (0..150_000).map(|_| row()).collect(),
            (0..70_000).map(|_| row()).collect(),
        ];
        let mut engine = WindowEngine::new();
        measured(&mut engine, &samples, 9999);
        for level in [4, 9, 15, 16] {
            assert_eq!(
                engine.sums(level),
                by_definition(&samples, level),
                "level {level}"
            );
        }
    }

    #[test]
    fn engines_merge_to_the_sums_of_all_samples() {
        let samples: Vec<Vec<(u64, u32, u16)>> = (0..300)
            .map(|s| (0..40).map(|i| (i * s % 17, 1, 1)).collect())
            .collect();
        let (mut a, mut b) = (WindowEngine::new(), WindowEngine::new());
        measured(&mut a, &samples[..100], 64);
        measured(&mut b, &samples[100..], 64);
        a.merge(&b);
        for level in 4..7 {
            assert_eq!(a.sums(level), by_definition(&samples, level));
        }
    }
}
