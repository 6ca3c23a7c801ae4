//! Metrics against window size.
//!
//! A sample is cut into consecutive windows of W = 16, 32, 64, … accesses, aligned at its start; only
//! whole windows count. Footprint, captures and survivals of *all* sizes come out of one pass with one
//! table lookup per access: if the last access to the same address was `p` and this one is `i`, they lie
//! in the same window of size `2^j` if and only if `i` and `p` agree above bit `j`, that is, from level
//! `j = bit length of (i xor p)` on. So each access adds one to a counter of one level, and counters are
//! carried upwards when windows end, as in a binary counter ([`Levels`]).
//!
//! F = accesses − accesses whose address was seen before in the same window. C = accesses that are the
//! second to their address in the window. S = F − C. F_str and F_irr: the same by class.

use crate::reuse::spread;
use crate::rows::Rows;

/// Smallest window: `1 << MIN_LEVEL` accesses.
pub const MIN_LEVEL: usize = 4;
/// Largest window of the footprint metrics: `1 << MAX_LEVEL` accesses.
pub const MAX_LEVEL: usize = 16;
const AHEAD: usize = 16;

/// Bit length of `i xor p`, at least [`MIN_LEVEL`]: the smallest level at which both share a window.
#[inline(always)]
pub(crate) fn level(i: u64, p: u64) -> usize {
    ((64 - (i ^ p).leading_zeros()) as usize).max(MIN_LEVEL)
}

/// Counters by level that are carried upwards as windows end. `N` counters per level; they may go
/// below zero in between, so arithmetic wraps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Levels<const N: usize> {
    /// Counts inside the current window of each level.
    open: Vec<[u64; N]>,
    /// Counts of finished windows.
    totals: Vec<[u64; N]>,
}

impl<const N: usize> Levels<N> {
    /// Levels `MIN_LEVEL..=top`.
    pub fn new(top: usize) -> Levels<N> {
        Levels { open: vec![[0; N]; top + 2], totals: vec![[0; N]; top + 1] }
    }

    /// Adds to a counter from `level` on; levels above the top are ignored.
    #[inline(always)]
    pub fn add(&mut self, level: usize, counter: usize, value: u64) {
        if let Some(open) = self.open.get_mut(level) {
            open[counter] = open[counter].wrapping_add(value);
        }
    }

    /// Tells that the access with sample-relative number `index` is complete.
    #[inline(always)]
    pub fn done(&mut self, index: u64) {
        if (index + 1).is_multiple_of(1 << MIN_LEVEL) {
            self.carry(index + 1);
        }
    }

    fn carry(&mut self, accesses: u64) {
        let whole = (accesses.trailing_zeros() as usize).min(self.totals.len() - 1);
        for level in MIN_LEVEL..=whole {
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

    /// Finished windows that were stored before.
    pub fn from_totals(totals: Vec<[u64; N]>) -> Levels<N> {
        Levels { open: vec![[0; N]; totals.len() + 1], totals }
    }

    /// Counters of the finished windows of a level.
    pub fn total(&self, level: usize) -> [u64; N] {
        self.totals.get(level).copied().unwrap_or([0; N])
    }

    /// Adds what another one has finished.
    pub fn merge(&mut self, other: &Levels<N>) {
        for (mine, theirs) in self.totals.iter_mut().zip(&other.totals) {
            for (a, b) in mine.iter_mut().zip(theirs) {
                *a = a.wrapping_add(*b);
            }
        }
    }
}

/// Counters per level, as they are stored; those for Irregular stand behind those for Strided.
const WINDOWS: usize = 0;
const IMPLIED: usize = 1;
const ROWS_STR: usize = 2;
const AGAIN: usize = 4;
const AGAIN_STR: usize = 5;
const SECOND: usize = 7;

/// Counters by level while accesses come: as many as there are bit lengths of 32-bit numbers, so that none has to be checked. Those
/// above the top are never looked at. Behind each of these two stand those of Strided and of Irregular, in its own place what nobody asks for.
type Open = [[u64; 16]; 33];
const OPEN_ROWS: usize = 2;
const OPEN_CLASS: usize = 5;
const OPEN_AGAIN: usize = 8;
const OPEN_SECOND: usize = 9;
/// Where the stored counters are among the open ones.
const STORED: [usize; 8] = [WINDOWS, IMPLIED, OPEN_ROWS + 1, OPEN_ROWS + 2, OPEN_AGAIN, OPEN_CLASS + 1, OPEN_CLASS + 2, OPEN_SECOND];

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
struct Seen {
    /// Numbers inside the epoch of the last access, the last Strided one, the last Irregular one.
    last: [u32; 3],
    /// Level of the last access to the one before.
    level: u32,
}

/// Instead of a number in an epoch: differs from all of them above the top level.
const NEVER: u32 = 1 << 20;
/// Place in [`Seen::last`] by class. Strided is 1, Irregular 2; Constant loads have no columns of their own.
const PLACE: [usize; 4] = [0, 1, 2, 0];
/// Bits of a table entry that hold the number of an address, plus one; the others hold the address, all that a user-space program
/// on x86-64 has without five-level paging.
const NUMBER_BITS: u32 = 17;
/// Accesses that are looked up together.
const TOGETHER: usize = 64;

/// The state between accesses of one sample, and the sums over all samples.
pub struct WindowEngine {
    /// Addresses and their numbers; 0 is free.
    table: Vec<u64>,
    shift: u32,
    seen: Vec<Seen>,
    /// By number: the address, and its place in the table.
    addresses: Vec<(u64, u32)>,
    /// There are addresses that a table entry cannot tell apart.
    odd: bool,
    index: u64,
    /// Of the windows that are not finished.
    open: Box<Open>,
    /// Of those that are; by level up to the top.
    totals: Vec<[u64; 16]>,
}

impl Default for WindowEngine {
    fn default() -> WindowEngine {
        WindowEngine::new()
    }
}

impl WindowEngine {
    /// An engine without sums.
    pub fn new() -> WindowEngine {
        let size = 1usize << 11;
        WindowEngine { table: vec![0; size], shift: 64 - size.trailing_zeros(), seen: Vec::new(), addresses: Vec::new(), odd: false, index: 0, open: Box::new([[0; 16]; 33]), totals: vec![[0; 16]; MAX_LEVEL + 1] }
    }

    /// Starts a sample.
    pub fn begin(&mut self) {
        self.index = 0;
        self.open.fill([0; 16]);
        self.forget();
    }

    /// Starts an epoch.
    fn forget(&mut self) {
        if self.seen.len() * 8 < self.table.len() {
            self.addresses.iter().for_each(|a| self.table[a.1 as usize] = 0);
        } else {
            self.table.fill(0);
        }
        self.seen.clear();
        self.addresses.clear();
        self.odd = false;
    }

    /// Feeds load accesses in order.
    pub fn run(&mut self, rows: &Rows<'_>) {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2")
            && std::arch::is_x86_feature_detected!("bmi1")
            && std::arch::is_x86_feature_detected!("bmi2")
            && std::arch::is_x86_feature_detected!("lzcnt")
        {
            // SAFETY: the CPU has just been found to have every feature that the function is compiled for.
            return unsafe { self.run_modern(rows) };
        }
        self.run_any(rows);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
    fn run_modern(&mut self, rows: &Rows<'_>) {
        self.run_any(rows);
    }

    #[inline(always)]
    fn run_any(&mut self, rows: &Rows<'_>) {
        let len = rows.len();
        let (address, group, implied) = (&rows.address[..len], &rows.group[..len], &rows.implied[..len]);
        let mut numbers = [0u32; TOGETHER];
        let mut from = 0;
        while from < len {
            let epoch = 1 << MAX_LEVEL;
            let left = epoch - self.index as usize % epoch;
            if left == epoch && self.index > 0 {
                self.forget();
            }
            let to = len.min(from + TOGETHER.min(left));
            for (at, number) in (from..to).zip(&mut numbers) {
                if let Some(&ahead) = address.get(at + AHEAD) {
                    crate::prefetch(&self.table[(spread(ahead) >> self.shift) as usize]);
                }
                *number = self.number(address[at]);
                crate::prefetch(&self.seen[*number as usize]);
            }
            for (at, number) in (from..to).zip(numbers) {
                self.access(number, PLACE[group[at] as usize & 3], implied[at]);
                if (self.index + 1).is_multiple_of(1 << MIN_LEVEL) {
                    self.close();
                }
                self.index += 1;
            }
            from = to;
        }
    }

    /// Ends the smallest window, and those that end with it. Each level counts its own windows: that count is not carried.
    #[inline(always)]
    fn close(&mut self) {
        let whole = ((self.index + 1).trailing_zeros() as usize).min(MAX_LEVEL);
        for level in MIN_LEVEL..=whole {
            let open = std::mem::replace(&mut self.open[level], [0; 16]);
            for (k, value) in open.into_iter().enumerate() {
                self.totals[level][k] = self.totals[level][k].wrapping_add(value);
                self.open[level + 1][k] = self.open[level + 1][k].wrapping_add(value);
            }
            self.totals[level][WINDOWS] += 1;
        }
    }

    /// The number of an address; it gets one if it has none.
    #[inline(always)]
    fn number(&mut self, address: u64) -> u32 {
        if self.seen.len() * 4 >= self.table.len() {
            self.grow();
        }
        let mask = self.table.len() - 1;
        let mut at = (spread(address) >> self.shift) as usize & mask;
        loop {
            let entry = self.table[at];
            if entry == 0 {
                let number = self.seen.len() as u32;
                self.odd |= address >> (64 - NUMBER_BITS) != 0;
                self.table[at] = address << NUMBER_BITS | u64::from(number + 1);
                self.seen.push(Seen { last: [NEVER; 3], level: 0 });
                self.addresses.push((address, at as u32));
                return number;
            }
            if (entry ^ address << NUMBER_BITS) >> NUMBER_BITS == 0 {
                let number = (entry & ((1 << NUMBER_BITS) - 1)) as u32 - 1;
                if !self.odd && address >> (64 - NUMBER_BITS) == 0 || self.addresses[number as usize].0 == address {
                    return number;
                }
            }
            at = (at + 1) & mask;
        }
    }

    /// Nobody can foresee which addresses are new: there is no branch on it.
    #[inline(always)]
    fn access(&mut self, number: u32, class: usize, implied: u16) {
        let now = (self.index & ((1 << MAX_LEVEL) - 1)) as u32;
        // Bit length, at least MIN_LEVEL: see `level`.
        let level = |before: u32| (32 - (now ^ before | 1 << (MIN_LEVEL - 1)).leading_zeros()) as usize;
        let seen = &mut self.seen[number as usize];
        let (reuse, of_class, before) = (level(seen.last[0]), level(seen.last[class]), seen.level as usize & 31);
        let nearer = u64::from(reuse < before);
        seen.last[0] = now;
        seen.last[class] = now;
        seen.level = reuse as u32;
        let open = &mut *self.open;
        let mut add = |level: usize, counter: usize, value: u64| open[level][counter] = open[level][counter].wrapping_add(value);
        add(reuse, OPEN_AGAIN, 1);
        add(reuse, OPEN_SECOND, nearer);
        add(before, OPEN_SECOND, nearer.wrapping_neg());
        add(of_class, OPEN_CLASS + class, 1);
        add(MIN_LEVEL, OPEN_ROWS + class, 1);
        add(MIN_LEVEL, IMPLIED, u64::from(implied));
    }

    #[cold]
    fn grow(&mut self) {
        let size = self.table.len() * 4;
        self.table = vec![0; size];
        self.shift = 64 - size.trailing_zeros();
        for (number, (address, place)) in self.addresses.iter_mut().enumerate() {
            let mut at = (spread(*address) >> self.shift) as usize & (size - 1);
            while self.table[at] != 0 {
                at = (at + 1) & (size - 1);
            }
            self.table[at] = *address << NUMBER_BITS | (number as u64 + 1);
            *place = at as u32;
        }
    }

    /// The counts by level.
    pub fn levels(&self) -> Levels<8> {
        Levels::from_totals(self.totals.iter().map(|t| STORED.map(|at| t[at])).collect())
    }

    /// Counts that were stored before.
    pub fn from_levels(levels: &Levels<8>) -> WindowEngine {
        let mut engine = WindowEngine::new();
        for (mine, stored) in engine.totals.iter_mut().zip(levels.totals()) {
            STORED.iter().zip(stored).for_each(|(&at, &value)| mine[at] = value);
        }
        engine
    }

    /// Sums over the windows of `1 << level` accesses.
    pub fn sums(&self, level: usize) -> WindowSums {
        let t = self.totals.get(level).map_or([0; 8], |t| STORED.map(|at| t[at]));
        let accesses = t[WINDOWS] << level;
        WindowSums {
            windows: t[WINDOWS],
            accesses,
            implied: t[IMPLIED],
            footprint: accesses.wrapping_sub(t[AGAIN]),
            strided: t[ROWS_STR].wrapping_sub(t[AGAIN_STR]),
            irregular: t[ROWS_STR + 1].wrapping_sub(t[AGAIN_STR + 1]),
            captures: t[SECOND],
        }
    }

    /// Adds the sums of another engine.
    pub fn merge(&mut self, other: &WindowEngine) {
        for (mine, theirs) in self.totals.iter_mut().zip(&other.totals) {
            mine.iter_mut().zip(theirs).for_each(|(a, b)| *a = a.wrapping_add(*b));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn by_definition(samples: &[Vec<(u64, u32, u16)>], level: usize) -> WindowSums {
        let mut sums = WindowSums::default();
        for window in samples.iter().flat_map(|s| s.chunks_exact(1 << level)) {
            let mut seen: HashMap<u64, u64> = HashMap::new();
            let mut classes: HashMap<(u64, u32), u64> = HashMap::new();
            for &(address, class, implied) in window {
                *seen.entry(address).or_default() += 1;
                *classes.entry((address, class)).or_default() += 1;
                sums.implied += u64::from(implied);
            }
            sums.windows += 1;
            sums.accesses += window.len() as u64;
            sums.footprint += seen.len() as u64;
            sums.captures += seen.values().filter(|&&n| n > 1).count() as u64;
            sums.strided += classes.keys().filter(|k| k.1 == 1).count() as u64;
            sums.irregular += classes.keys().filter(|k| k.1 == 2).count() as u64;
        }
        sums
    }

    fn measured(engine: &mut WindowEngine, samples: &[Vec<(u64, u32, u16)>], step: usize) {
        for sample in samples {
            engine.begin();
            for rows in sample.chunks(step) {
                let address: Vec<u64> = rows.iter().map(|r| r.0).collect();
                let group: Vec<u32> = rows.iter().map(|r| 40 + r.1).collect();
                let implied: Vec<u16> = rows.iter().map(|r| r.2).collect();
                engine.run(&Rows { address: &address, size: &vec![8; rows.len()], group: &group, implied: &implied });
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn every_size_agrees_with_its_definition(
            samples in prop::collection::vec(prop::collection::vec((0u64..40, 0u32..3, 0u16..3), 0..200), 0..4),
            step in 1usize..70,
        ) {
            let mut engine = WindowEngine::new();
            measured(&mut engine, &samples, step);
            for level in MIN_LEVEL..=8 {
                prop_assert_eq!(engine.sums(level), by_definition(&samples, level), "level {}", level);
            }
        }
    }

    #[test]
    fn long_samples_agree_across_the_largest_window() {
        let mut state = 7u64;
        let mut row = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((state >> 33) % 50_000 * 8, (state >> 20) as u32 % 3, (state >> 10) as u16 % 2)
        };
        let samples: Vec<Vec<(u64, u32, u16)>> = vec![(0..150_000).map(|_| row()).collect(), (0..70_000).map(|_| row()).collect()];
        let mut engine = WindowEngine::new();
        measured(&mut engine, &samples, 9999);
        for level in [4, 9, 15, 16] {
            assert_eq!(engine.sums(level), by_definition(&samples, level), "level {level}");
        }
    }

    #[test]
    fn engines_merge_to_the_sums_of_all_samples() {
        let samples: Vec<Vec<(u64, u32, u16)>> = (0..300).map(|s| (0..40).map(|i| (i * s % 17, 1, 1)).collect()).collect();
        let (mut a, mut b) = (WindowEngine::new(), WindowEngine::new());
        measured(&mut a, &samples[..100], 64);
        measured(&mut b, &samples[100..], 64);
        a.merge(&b);
        for level in 4..7 {
            assert_eq!(a.sums(level), by_definition(&samples, level));
        }
    }
}
