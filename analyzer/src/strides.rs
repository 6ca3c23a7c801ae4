//! Strides that were observed: differences between consecutive addresses of one load instruction inside a sample.
//!
//! Counted are differences from −512 to 512 bytes each by itself, greater ones by sign and power of two. Counts are exact and merge by addition.

use crate::reuse::spread;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// Differences up to this are counted each by itself.
const EXACT: i64 = 512;
/// First bin of the greater ones, and how many of these there are.
const FAR: u32 = 2 * EXACT as u32 + 1;
const FAR_BINS: usize = 128;
/// Greater differences of sites below this have their counts in a plain array: there are few bins, and code with such strides mostly has many of them.
const FAR_SITES: usize = 1 << 12;
/// Bits of a key that hold the bin.
const BIN_BITS: u32 = 11;
/// Rows whose site is not known.
pub const NO_SITE: u32 = u32::MAX;

/// Number of the bin of a difference.
#[inline(always)]
fn bin(difference: i64) -> u32 {
    if (-EXACT..=EXACT).contains(&difference) {
        return (difference + EXACT) as u32;
    }
    let octave = difference.unsigned_abs().ilog2();
    FAR + octave * 2 + u32::from(difference < 0)
}

/// Smallest and greatest difference of a bin.
fn range(bin: u32) -> (i64, i64) {
    if bin <= 2 * EXACT as u32 {
        let value = i64::from(bin) - EXACT;
        return (value, value);
    }
    let rest = bin - FAR;
    let octave = (rest / 2).min(63);
    let from = (1u64 << octave).max(EXACT as u64 + 1);
    let to = if octave >= 63 { u64::MAX } else { (2u64 << octave) - 1 };
    let clip = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    if rest % 2 == 1 { (-clip(to), -clip(from)) } else { (clip(from), clip(to)) }
}

/// Strides in a table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stride {
    /// Smallest difference, bytes.
    pub from: i64,
    /// Greatest difference.
    pub to: i64,
    /// How often.
    pub count: u64,
    /// Share of all differences, percent.
    pub pct: f64,
}

#[derive(Clone, Copy, Default)]
struct Last {
    address: u64,
    sample: u32,
    /// Bin of the last difference, and how often in a row it came.
    bin: u32,
    run: u32,
}

/// The state between accesses, and the counts.
#[derive(Clone, Default)]
pub struct Strides {
    /// By site.
    last: Vec<Last>,
    /// Sites whose runs are not in the table yet.
    open: Vec<u32>,
    /// Number of the sample, from 1.
    sample: u32,
    /// Key (site and bin, plus one) and count.
    table: Vec<(u64, u64)>,
    used: usize,
    /// Counts on their way to the table: their places are being fetched.
    pending: Vec<(u64, u64)>,
    /// By site and greater bin. Empty as long as there is none.
    far: Vec<u32>,
}

/// Counts that wait for their places.
const PENDING: usize = 64;

impl Strides {
    /// Starts a sample.
    pub fn begin(&mut self) {
        self.flush();
        self.sample = self.sample.wrapping_add(1);
        if self.sample == 0 {
            self.last.fill(Last::default());
            self.sample = 1;
        }
    }

    /// Feeds accesses in order. Sites at or above `sites` are left out.
    pub fn run(&mut self, address: &[u64], site: &[u32], sites: u32) {
        if self.last.len() < sites as usize {
            self.last.resize(sites as usize, Last::default());
        }
        let sample = self.sample.max(1);
        for (&address, &site) in address.iter().zip(site) {
            let Some(last) = self.last.get_mut(site as usize) else { continue };
            if last.sample != sample {
                *last = Last { address, sample, bin: 0, run: 0 };
                continue;
            }
            let bin = bin(address.wrapping_sub(last.address) as i64);
            last.address = address;
            if last.run > 0 && bin == last.bin && last.run < u32::MAX {
                last.run += 1;
                continue;
            }
            let (old, run) = (last.bin, last.run);
            (last.bin, last.run) = (bin, 1);
            if run > 0 {
                self.count(site, old, u64::from(run));
            } else {
                self.open.push(site);
            }
        }
    }

    /// Puts all runs into the table.
    fn flush(&mut self) {
        for site in std::mem::take(&mut self.open) {
            let last = &mut self.last[site as usize];
            let (bin, run) = (last.bin, std::mem::take(&mut last.run));
            if run > 0 {
                self.count(site, bin, u64::from(run));
            }
        }
    }

    /// Puts everything into the table.
    fn complete(&mut self) {
        self.flush();
        for (at, count) in std::mem::take(&mut self.far).into_iter().enumerate().filter(|c| c.1 > 0) {
            self.count_in_table((at / FAR_BINS) as u32, FAR + (at % FAR_BINS) as u32, count.into());
        }
        self.settle();
    }

    #[inline(always)]
    fn count(&mut self, site: u32, bin: u32, times: u64) {
        if bin >= FAR && (site as usize) < FAR_SITES {
            let count = self.far.get_mut(site as usize * FAR_BINS + (bin - FAR) as usize);
            if let Some(count) = count && let Ok(sum) = u32::try_from(u64::from(*count) + times) {
                *count = sum;
                return;
            }
        }
        self.count_in_table(site, bin, times);
        if self.far.is_empty() && bin >= FAR {
            self.far = vec![0; self.last.len().min(FAR_SITES) * FAR_BINS];
        }
    }

    #[inline(never)]
    fn count_in_table(&mut self, site: u32, bin: u32, times: u64) {
        let key = (u64::from(site) << BIN_BITS | u64::from(bin)) + 1;
        if let Some(place) = self.table.get(self.home(key)) {
            crate::prefetch(place);
        }
        self.pending.push((key, times));
        if self.pending.len() >= PENDING {
            self.settle();
        }
    }

    /// Puts the counts that wait into the table.
    fn settle(&mut self) {
        let mut pending = std::mem::take(&mut self.pending);
        pending.drain(..).for_each(|(key, times)| self.count_key(key, times));
        self.pending = pending;
    }

    #[inline(always)]
    fn home(&self, key: u64) -> usize {
        (spread(key) >> 20) as usize & self.table.len().wrapping_sub(1)
    }

    fn count_key(&mut self, key: u64, times: u64) {
        if self.used * 2 >= self.table.len() {
            let old = std::mem::take(&mut self.table);
            self.table = vec![(0, 0); (old.len() * 2).max(1 << 10)];
            self.used = 0;
            old.into_iter().filter(|e| e.0 != 0).for_each(|(key, times)| self.count_key(key, times));
        }
        let mask = self.table.len() - 1;
        let mut at = self.home(key);
        loop {
            let entry = &mut self.table[at];
            if entry.0 == key {
                entry.1 += times;
                return;
            }
            if entry.0 == 0 {
                *entry = (key, times);
                self.used += 1;
                return;
            }
            at = (at + 1) & mask;
        }
    }

    /// Adds the counts of another one.
    pub fn merge(&mut self, mut other: Strides) {
        other.complete();
        other.table.into_iter().filter(|e| e.0 != 0).for_each(|(key, times)| self.count_key(key, times));
    }

    /// Counts by site and bin: (site, bin, count), sorted.
    pub fn counts(&mut self) -> Vec<(u32, u32, u64)> {
        self.complete();
        let split = |&(key, count): &(u64, u64)| (((key - 1) >> BIN_BITS) as u32, ((key - 1) & ((1 << BIN_BITS) - 1)) as u32, count);
        let mut all: Vec<(u32, u32, u64)> = self.table.iter().filter(|e| e.0 != 0).map(split).collect();
        all.sort_unstable();
        all
    }
}

/// Strides of code in a part of memory or of the run. How often it made each there is not counted: they are those of its load instructions, each weighted by
/// the share of its loads that is there.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StrideShare {
    /// Smallest difference, bytes.
    pub from: i64,
    /// Greatest difference.
    pub to: i64,
    /// Share of all differences, percent, estimated.
    pub pct: f64,
}

/// Strides by group of code, see [`crate::code`].
#[derive(Debug, Default)]
pub struct ByGroup {
    /// Loads of the group in the whole trace, and counts by bin.
    groups: HashMap<u32, (u64, Vec<(u32, u64)>)>,
}

impl ByGroup {
    /// `counts`: site, bin, count. `group_of` gives the group of a site, `loads` that of a group's loads.
    pub fn new(counts: &[(u32, u32, u64)], group_of: impl Fn(u32) -> Option<u32>, loads: impl Fn(u32) -> u64) -> ByGroup {
        let mut groups: HashMap<u32, (u64, Vec<(u32, u64)>)> = HashMap::new();
        for &(site, bin, count) in counts {
            if let Some(group) = group_of(site) {
                groups.entry(group).or_insert_with(|| (loads(group), Vec::new())).1.push((bin, count));
            }
        }
        ByGroup { groups }
    }

    /// The most frequent strides of a place, at most `most`. `parts`: groups and how many loads they have there.
    pub fn of(&self, parts: impl Iterator<Item = (u32, u64)>, most: usize) -> Vec<StrideShare> {
        let mut by_bin: BTreeMap<u32, f64> = BTreeMap::new();
        let mut parts: Vec<(u32, u64)> = parts.collect();
        // Sums of fractions depend on their order.
        parts.sort_unstable();
        for (group, here) in parts {
            let Some((loads, counts)) = self.groups.get(&group) else { continue };
            let share = here as f64 / (*loads).max(1) as f64;
            counts.iter().for_each(|&(bin, count)| *by_bin.entry(bin).or_default() += count as f64 * share);
        }
        let all: f64 = by_bin.values().sum();
        let mut list: Vec<(u32, f64)> = by_bin.into_iter().filter(|b| b.1 > 0.0).collect();
        list.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        list.truncate(most);
        list.into_iter()
            .map(|(bin, count)| {
                let (from, to) = range(bin);
                StrideShare { from, to, pct: count * 100.0 / all }
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
            Stride { from, to, count, pct: count as f64 * 100.0 / all.max(1) as f64 }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_difference_lies_in_its_bin() {
        for d in [0, 1, -1, 8, -512, 512, 513, -513, 1023, 1024, -1024, 1 << 40, i64::MAX, i64::MIN + 1, i64::MIN] {
            let (from, to) = range(bin(d));
            assert!(from <= d.max(-i64::MAX) && d.max(-i64::MAX) <= to, "{d} in {from}..={to}");
            assert!(bin(d) < 1 << BIN_BITS);
        }
        assert_eq!(range(bin(600)), (513, 1023));
    }

    #[test]
    fn strides_of_a_place_are_those_of_its_code_by_the_share_of_its_loads() {
        // Group 4 walks by 8 (site 0) and by 64 (site 1), group 9 is site 2, and site 3 is not known.
        let group_of = |site: u32| [Some(4), Some(4), Some(9), None].get(site as usize).copied().flatten();
        let strides = ByGroup::new(&[(0, bin(8), 30), (1, bin(64), 10), (2, bin(-8), 100), (3, bin(1), 999)], group_of, |group| u64::from(group) * 10);
        let share = |stride: i64, pct: f64| StrideShare { from: stride, to: stride, pct };
        assert_eq!(strides.of([(4, 40), (7, 5)].into_iter(), 4), [share(8, 75.0), share(64, 25.0)]);
        // Half of group 4's loads and a tenth of group 9's: 15, 5 and 10 differences.
        assert_eq!(strides.of([(9, 9), (4, 20)].into_iter(), 2), [share(8, 50.0), share(-8, 100.0 / 3.0)]);
        assert_eq!(strides.of([(7, 5), (4, 0)].into_iter(), 2), []);
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
