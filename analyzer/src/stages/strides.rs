//! Observed strides: differences between consecutive addresses of one load instruction inside a
//! sample.
//!
//! Differences from −512 to 512 bytes are counted individually, and greater ones by sign and power
//! of two. Counts are exact and merge by addition.

use crate::data::group::Group;
use crate::stages::observed_class::FarSteps;
use crate::stages::stride_bins::{BIN_BITS, FAR_BINS, FIRST_FAR_BIN, MAX_EXACT_STEP, bin, range};
use crate::util::fast_hash::Mixed;
use mgz_models::util::hash::spread;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// Sites below this number count greater differences in a plain array, since there are few bins and
/// code with such strides mostly uses many of them.
const FAR_SITES: usize = 1 << 12;
/// Site number of rows with unknown site.
pub const NO_SITE: u32 = u32::MAX;

/// Strides in a table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stride {
    /// Smallest difference, bytes.
    pub from: i64,
    /// Greatest difference.
    pub to: i64,
    /// Number of occurrences.
    pub count: u64,
    /// Share of all differences, percent.
    pub pct: f64,
}

/// The last access of a site.
#[derive(Clone, Copy, Default)]
struct Last {
    address: u64,
    /// Difference to the previous access; 0 if unknown.
    step: i64,
    sample: u32,
}

/// The state between accesses, and the counts.
#[derive(Clone, Default)]
pub struct Strides {
    /// By site.
    last: Vec<Last>,
    /// Number of the sample, from 1.
    sample: u32,
    /// Entries: the key (site and bin, plus one) in the upper bits and the count in the lower ones.
    /// A count is never 0; a free entry is 0.
    table: Vec<u64>,
    used: usize,
    /// Counts that do not fit into entries.
    carried: HashMap<u64, u64, Mixed>,
    /// Greater differences by site and bin. Empty while there are none.
    far: Vec<u32>,
    /// Greater differences that equal the previous one.
    repeated: FarSteps,
}

/// Bits of an entry that hold its count. (Those of a key are 44: sites have 32.)
const COUNT_BITS: u32 = 20;
const MAX_COUNT: u64 = (1 << COUNT_BITS) - 1;
/// Rows that pass through each of the loops at a time. Source: Chosen.
const ROWS_PER_BATCH: usize = 256;
/// Tables of at least this size do not stay in the first-level cache.
const LARGE_TABLE_PLACES: usize = 1 << 12;

/// Data passed from the first loop to the others.
struct FirstPass {
    difference: [i64; ROWS_PER_BATCH],
    /// True if the site had an earlier access in this sample.
    known: [bool; ROWS_PER_BATCH],
}

/// Differences, listed by the table that counts them. The table is unpredictable, so there is no
/// branch on it: each is written to the next place of a list, and the list grows only if the
/// difference belongs to it.
struct Found {
    keys: [u64; ROWS_PER_BATCH],
    of_table: usize,
    places: [u32; ROWS_PER_BATCH],
    of_far: usize,
}

impl Found {
    /// Lists differences. (Work that does not depend on earlier rows comes first, so that the
    /// compiler vectorises it.)
    #[inline(always)]
    fn list(&mut self, seen: &FirstPass, site: &[u32]) {
        let len = site.len().min(ROWS_PER_BATCH);
        let (mut keys, mut places, mut is_far) = (
            [0u64; ROWS_PER_BATCH],
            [0u32; ROWS_PER_BATCH],
            [false; ROWS_PER_BATCH],
        );
        for i in 0..len {
            let (site, bin) = (site[i], bin(seen.difference[i]));
            keys[i] = key(site, bin);
            places[i] = site
                .wrapping_mul(FAR_BINS as u32)
                .wrapping_add(bin.wrapping_sub(FIRST_FAR_BIN));
            is_far[i] = (bin >= FIRST_FAR_BIN) & (site < FAR_SITES as u32);
        }
        let (mut of_table, mut of_far) = (0, 0);
        for i in 0..len {
            self.keys[of_table % ROWS_PER_BATCH] = keys[i];
            of_table += usize::from(seen.known[i] & !is_far[i]);
            self.places[of_far % ROWS_PER_BATCH] = places[i];
            of_far += usize::from(seen.known[i] & is_far[i]);
        }
        (self.of_table, self.of_far) = (of_table, of_far);
    }
}

#[inline(always)]
fn key(site: u32, bin: u32) -> u64 {
    (u64::from(site) << BIN_BITS | u64::from(bin)) + 1
}

impl Strides {
    /// Starts a sample.
    pub fn begin(&mut self) {
        self.sample = self.sample.wrapping_add(1);
        if self.sample == 0 {
            self.last.fill(Last::default());
            self.sample = 1;
        }
    }

    /// Adds accesses in order. Sites at or above `sites` are left out.
    pub fn run(&mut self, address: &[u64], site: &[u32], sites: u32) {
        if self.last.len() < sites as usize {
            self.last.resize(sites as usize, Last::default());
        }
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("bmi1")
            && std::arch::is_x86_feature_detected!("bmi2")
            && std::arch::is_x86_feature_detected!("lzcnt")
        {
            if std::arch::is_x86_feature_detected!("avx512f")
                && std::arch::is_x86_feature_detected!("avx512bw")
                && std::arch::is_x86_feature_detected!("avx512cd")
                && std::arch::is_x86_feature_detected!("avx512dq")
                && std::arch::is_x86_feature_detected!("avx512vl")
            {
                // SAFETY: the CPU supports every feature for which the function is compiled, as was
                // just checked.
                return unsafe { self.run_wide(address, site) };
            }
            // SAFETY: the CPU supports every feature for which the function is compiled, as was
            // just checked.
            return unsafe { self.run_modern(address, site) };
        }
        self.run_any(address, site);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "bmi1,bmi2,lzcnt,avx2,avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]
    fn run_wide(&mut self, address: &[u64], site: &[u32]) {
        self.run_any(address, site);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "bmi1,bmi2,lzcnt")]
    fn run_modern(&mut self, address: &[u64], site: &[u32]) {
        self.run_any(address, site);
    }

    #[inline(always)]
    fn run_any(&mut self, address: &[u64], site: &[u32]) {
        let mut found = Found {
            keys: [0; ROWS_PER_BATCH],
            of_table: 0,
            places: [0; ROWS_PER_BATCH],
            of_far: 0,
        };
        let mut seen = FirstPass {
            difference: [0; ROWS_PER_BATCH],
            known: [false; ROWS_PER_BATCH],
        };
        for (address, site) in address
            .chunks(ROWS_PER_BATCH)
            .zip(site.chunks(ROWS_PER_BATCH))
        {
            self.look(address, site, &mut seen);
            found.list(&seen, site);
            if found.of_far > 0 {
                self.count_far(&found.places[..found.of_far.min(ROWS_PER_BATCH)]);
            }
            self.count(&found.keys[..found.of_table.min(ROWS_PER_BATCH)]);
        }
    }

    /// Finds the differences of addresses.
    #[inline(always)]
    fn look(&mut self, address: &[u64], site: &[u32], seen: &mut FirstPass) {
        let sample = self.sample.max(1);
        let rows = address
            .iter()
            .zip(site)
            .zip(seen.difference.iter_mut().zip(&mut seen.known));
        for ((&address, &site), (difference, known)) in rows {
            *known = false;
            let Some(last) = self.last.get_mut(site as usize) else {
                continue;
            };
            let before = *last;
            *difference = address.wrapping_sub(before.address) as i64;
            *known = before.sample == sample;
            let step = if *known { *difference } else { 0 };
            *last = Last {
                address,
                step,
                sample,
            };
            if step == before.step && step.unsigned_abs() > MAX_EXACT_STEP as u64 {
                self.repeated.add(site, step);
            }
        }
    }

    #[inline(always)]
    fn count_far(&mut self, places: &[u32]) {
        let sites = self.last.len().min(FAR_SITES);
        if self.far.len() < sites * FAR_BINS {
            self.far.resize(sites * FAR_BINS, 0);
        }
        for &place in places {
            let count = &mut self.far[place as usize];
            match count.checked_add(1) {
                Some(sum) => *count = sum,
                None => self.carry_far(place),
            }
        }
    }

    /// Moves a counter of `far` that would overflow to the carried counts.
    #[cold]
    fn carry_far(&mut self, place: u32) {
        let count = std::mem::take(&mut self.far[place as usize]);
        let key = key(
            place / FAR_BINS as u32,
            FIRST_FAR_BIN + place % FAR_BINS as u32,
        );
        *self.carried.entry(key).or_default() += u64::from(count) + 1;
    }

    #[inline(always)]
    fn count(&mut self, keys: &[u64]) {
        self.reserve(keys.len());
        if self.table.len() > LARGE_TABLE_PLACES {
            keys.iter()
                .for_each(|&key| crate::prefetch(&self.table[self.home(key)]));
        }
        for &key in keys {
            let at = self.home(key);
            let entry = self.table[at];
            // The key is the same, and its count can be increased.
            if entry ^ key << COUNT_BITS < MAX_COUNT {
                self.table[at] = entry + 1;
            } else {
                self.add(at, key, 1);
            }
        }
    }

    /// Enlarges the table for `more` keys.
    #[inline(always)]
    fn reserve(&mut self, more: usize) {
        if (self.used + more) * 3 > self.table.len() {
            self.grow(more);
        }
    }

    #[cold]
    fn grow(&mut self, more: usize) {
        let size = ((self.used + more) * 3).next_power_of_two();
        let old = std::mem::replace(&mut self.table, vec![0; size]);
        self.used = 0;
        old.into_iter()
            .filter(|&e| e != 0)
            .for_each(|e| self.add(self.home(e >> COUNT_BITS), e >> COUNT_BITS, e & MAX_COUNT));
    }

    #[inline(always)]
    fn home(&self, key: u64) -> usize {
        (spread(key) >> 20) as usize & self.table.len().wrapping_sub(1)
    }

    /// Counts a key, whose entry is at `at` or later. The table must have a free entry.
    fn add(&mut self, mut at: usize, key: u64, times: u64) {
        let mask = self.table.len() - 1;
        while self.table[at] != 0 && self.table[at] >> COUNT_BITS != key {
            at = (at + 1) & mask;
        }
        let entry = &mut self.table[at];
        self.used += usize::from(*entry == 0);
        let mut sum = (*entry & MAX_COUNT) + times;
        if sum > MAX_COUNT {
            *self.carried.entry(key).or_default() += sum - 1;
            sum = 1;
        }
        *entry = key << COUNT_BITS | sum;
    }

    /// All counts. Keys may occur more than once.
    fn all(&self) -> impl Iterator<Item = (u64, u64)> {
        let table = self
            .table
            .iter()
            .filter(|&&e| e != 0)
            .map(|&e| (e >> COUNT_BITS, e & MAX_COUNT));
        let of_far = |(at, &count): (usize, &u32)| {
            (
                key(
                    (at / FAR_BINS) as u32,
                    FIRST_FAR_BIN + (at % FAR_BINS) as u32,
                ),
                u64::from(count),
            )
        };
        let far = self.far.iter().enumerate().filter(|c| *c.1 > 0).map(of_far);
        table
            .chain(far)
            .chain(self.carried.iter().map(|(&key, &count)| (key, count)))
    }

    /// Adds the counts of another one.
    pub fn merge(&mut self, mut other: Strides) {
        if self.table.is_empty() && self.far.is_empty() && self.carried.is_empty() {
            *self = other;
            return;
        }
        self.repeated.merge(std::mem::take(&mut other.repeated));
        for (key, times) in other.all() {
            self.reserve(1);
            self.add(self.home(key), key, times);
        }
    }

    /// Greater differences that equal the previous one.
    pub fn far_steps(&self) -> &FarSteps {
        &self.repeated
    }

    /// Counts by site and bin: (site, bin, count), sorted.
    pub fn counts(&self) -> Vec<(u32, u32, u64)> {
        let split = |(key, count): (u64, u64)| {
            (
                ((key - 1) >> BIN_BITS) as u32,
                ((key - 1) & ((1 << BIN_BITS) - 1)) as u32,
                count,
            )
        };
        let mut all: Vec<(u32, u32, u64)> = self.all().map(split).collect();
        all.sort_unstable();
        all.dedup_by(|next, kept| {
            let same = (next.0, next.1) == (kept.0, kept.1);
            kept.2 += if same { next.2 } else { 0 };
            same
        });
        all
    }
}

/// Strides of code in a part of memory or of the run. They are not counted for the part. Instead,
/// the strides of each load instruction are weighted by the share of its loads there.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StrideShare {
    /// Smallest difference, bytes.
    pub from: i64,
    /// Greatest difference.
    pub to: i64,
    /// Share of all differences, percent, estimated.
    pub pct: f64,
}

/// Strides by group of code, see [`crate::data::code_map`].
#[derive(Debug, Default)]
pub struct ByGroup {
    /// Loads of the group in the whole trace, and counts by bin.
    groups: HashMap<Group, (u64, Vec<(u32, u64)>)>,
}

impl ByGroup {
    /// `counts` has site, bin and count. `group_of` returns the group of a site, `loads` the number
    /// of a group's loads.
    pub fn new(
        counts: &[(u32, u32, u64)],
        group_of: impl Fn(u32) -> Option<Group>,
        loads: impl Fn(Group) -> u64,
    ) -> ByGroup {
        let mut groups: HashMap<Group, (u64, Vec<(u32, u64)>)> = HashMap::new();
        for &(site, bin, count) in counts {
            if let Some(group) = group_of(site) {
                groups
                    .entry(group)
                    .or_insert_with(|| (loads(group), Vec::new()))
                    .1
                    .push((bin, count));
            }
        }
        ByGroup { groups }
    }

    /// The most frequent strides of a place, at most `most`. `parts` has groups and their numbers
    /// of loads there.
    pub fn of(&self, parts: impl Iterator<Item = (Group, u64)>, most: usize) -> Vec<StrideShare> {
        let mut by_bin: BTreeMap<u32, f64> = BTreeMap::new();
        let mut parts: Vec<(Group, u64)> = parts.collect();
        // Floating-point sums depend on the order.
        parts.sort_unstable();
        for (group, here) in parts {
            let Some((loads, counts)) = self.groups.get(&group) else {
                continue;
            };
            let share = here as f64 / (*loads).max(1) as f64;
            counts
                .iter()
                .for_each(|&(bin, count)| *by_bin.entry(bin).or_default() += count as f64 * share);
        }
        let all: f64 = by_bin.values().sum();
        let mut list: Vec<(u32, f64)> = by_bin.into_iter().filter(|b| b.1 > 0.0).collect();
        list.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        list.truncate(most);
        list.into_iter()
            .map(|(bin, count)| {
                let (from, to) = range(bin);
                StrideShare {
                    from,
                    to,
                    pct: count * 100.0 / all,
                }
            })
            .collect()
    }
}

/// The most frequent strides of counts by bin, at most `most`.
pub fn top(counts: impl Iterator<Item = (u32, u64)>, most: usize) -> Vec<Stride> {
    let mut by_bin: BTreeMap<u32, u64> = BTreeMap::new();
    counts.for_each(|(bin, count)| *by_bin.entry(bin).or_default() += count);
    let all: u64 = by_bin.values().sum();
    let mut list: Vec<(u32, u64)> = by_bin.into_iter().collect();
    list.sort_by_key(|&(bin, count)| (std::cmp::Reverse(count), bin));
    list.truncate(most);
    list.into_iter()
        .map(|(bin, count)| {
            let (from, to) = range(bin);
            Stride {
                from,
                to,
                count,
                pct: count as f64 * 100.0 / all.max(1) as f64,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_difference_lies_in_its_bin() {
        for d in [
            0,
            1,
            -1,
            8,
            -512,
            512,
            513,
            -513,
            1023,
            1024,
            -1024,
            1 << 40,
            i64::MAX,
            i64::MIN + 1,
            i64::MIN,
        ] {
            let (from, to) = range(bin(d));
            assert!(
                from <= d.max(-i64::MAX) && d.max(-i64::MAX) <= to,
                "{d} in {from}..={to}"
            );
            assert!(bin(d) < 1 << BIN_BITS);
        }
        assert_eq!(range(bin(600)), (513, 1023));
    }

    #[test]
    fn strides_of_a_place_are_those_of_its_code_by_the_share_of_its_loads() {
        // Group 4 walks by 8 (site 0) and by 64 (site 1), group 9 is site 2, and site 3 is not
        // known.
        let group_of = |site: u32| {
            [Some(4), Some(4), Some(9), None]
                .get(site as usize)
                .copied()
                .flatten()
                .map(Group::from_raw)
        };
        let strides = ByGroup::new(
            &[
                (0, bin(8), 30),
                (1, bin(64), 10),
                (2, bin(-8), 100),
                (3, bin(1), 999),
            ],
            group_of,
            |group| u64::from(group.raw()) * 10,
        );
        let of = |loads: [(u32, u64); 2]| {
            loads
                .map(|(group, n)| (Group::from_raw(group), n))
                .into_iter()
        };
        let share = |stride: i64, pct: f64| StrideShare {
            from: stride,
            to: stride,
            pct,
        };
        assert_eq!(
            strides.of(of([(4, 40), (7, 5)]), 4),
            [share(8, 75.0), share(64, 25.0)]
        );
        // Half of group 4's loads and a tenth of group 9's: 15, 5 and 10 differences.
        assert_eq!(
            strides.of(of([(9, 9), (4, 20)]), 2),
            [share(8, 50.0), share(-8, 100.0 / 3.0)]
        );
        assert_eq!(strides.of(of([(7, 5), (4, 0)]), 2), []);
    }

    #[test]
    fn counts_may_be_greater_than_entries_hold() {
        // One site walks, and one jumps by a megabyte each time. Another one also jumps, and its
        // large differences are in the table.
        const SITES: u32 = FAR_SITES as u32 + 7;
        let turns = 3 * (MAX_COUNT + 1) / 2 + 5;
        let mut strides = Strides::default();
        strides.begin();
        for from in (0..turns).step_by(1000) {
            for site in [0, 1, SITES - 1] {
                let step = [8, 1 << 20][usize::from(site > 0)];
                let address: Vec<u64> = (from..turns.min(from + 1000))
                    .map(|turn| turn * step)
                    .collect();
                strides.run(&address, &vec![site; address.len()], SITES);
            }
        }
        // The array's counters are wider. They are set close to overflow.
        let place = FAR_BINS as u32 + bin(1 << 20) - FIRST_FAR_BIN;
        strides.far[place as usize] = u32::MAX - 2;
        strides.run(
            &[0, 1 << 20, 2 << 20, 3 << 20, 4 << 20, 5 << 20],
            &[1; 6],
            SITES,
        );
        let back = bin(((turns - 1) << 20).wrapping_neg() as i64);
        let expected = [
            (0, bin(8), turns - 1),
            (1, bin(1 << 20), u64::from(u32::MAX) + 3),
            (1, back, 1),
            (SITES - 1, bin(1 << 20), turns - 1),
        ];
        assert_eq!(strides.counts(), expected);
        let mut twice = strides.clone();
        twice.merge(strides);
        assert_eq!(
            twice.counts(),
            expected.map(|(site, bin, count)| (site, bin, count * 2))
        );
    }

    proptest! {
        #[test]
        fn counts_agree_with_their_definition(
            samples in prop::collection::vec(prop::collection::vec((0u32..4, prop_oneof![0u64..20, 0u64..1 << 40]), 0..60), 0..6), cut in 1usize..20,
        ) {
            let mut expected: BTreeMap<(u32, u32), u64> = BTreeMap::new();
            for sample in &samples {
                let mut last: BTreeMap<u32, u64> = BTreeMap::new();
                for &(site, address) in sample {
                    if let Some(before) = last.insert(site, address) {
                        *expected.entry((site, bin(address as i64 - before as i64))).or_default() += 1;
                    }
                }
            }
            let expected: Vec<(u32, u32, u64)> = expected.into_iter().map(|((s, b), n)| (s, b, n)).collect();
            let feed = |samples: &[Vec<(u32, u64)>]| {
                let mut strides = Strides::default();
                for sample in samples {
                    strides.begin();
                    for part in sample.chunks(cut) {
                        let (site, address): (Vec<u32>, Vec<u64>) = part.iter().copied().unzip();
                        strides.run(&address, &site, 4);
                    }
                }
                strides
            };
            prop_assert_eq!(feed(&samples).counts(), expected.clone());
            let (a, b) = samples.split_at(samples.len() / 2);
            let mut both = feed(a);
            both.merge(feed(b));
            prop_assert_eq!(both.counts(), expected);
        }
    }
}
