//! Lines of 64 bytes that samples visit. Cache misses are predicted from them.
//!
//! For each access, by group of code, the number of distinct lines that the sample has touched
//! since the line's last access is counted (its *distance*). If the sample has not touched the line
//! before, the access is *censored*: its distance is greater than the number of lines touched so
//! far, which is counted instead. First touches themselves are kept as *visits*: the line, the
//! sample and the code. If there are many visits, only those of some lines are kept, selected by a
//! hash of the line. So all samples that saw a kept line are known.

use crate::data::group::Group;
use crate::data::memory_units::{CacheLine, WORD_BYTES};
use crate::data::reuse_pairs::ReusePair;
use crate::data::rows::ColumnSlices;
use crate::stages::last_accesses::LastAccesses;
use crate::stages::set_conflicts::{Conflicts, LEVELS, Sets, touch};
use crate::stages::walks::Walks;
use crate::util::fast_hash::Mixed;
use mgz_models::util::hash::spread;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Replicates of samples, for the errors of estimates.
pub const PARTS: usize = 8;
/// Consecutive samples of one replicate, because consecutive samples vary together. Source: Chosen.
const SAMPLES_PER_RUN: u32 = 4;
/// Approximate maximum number of visits that are kept.
const LIMIT: usize = 3 << 20;
/// Lines within which steps of equal size count as a sequence. Source: Chosen.
const MAX_SEQUENCE_LINES: u64 = 64;
/// Number of other lines after which a reuse belongs to another pass over the line. Source: Chosen.
const MAX_LINES_IN_PASS: u64 = 32;

/// Values below this have a bin each.
const EXACT_VALUES: u64 = 32;
/// Log2 of the bins per octave above.
const SUB: u32 = 4;

/// The bin of a distance.
pub fn bin(value: u64) -> usize {
    if value < EXACT_VALUES {
        return value as usize;
    }
    let top = 63 - value.leading_zeros();
    (EXACT_VALUES as usize)
        + ((top - 5) as usize) * (1 << SUB)
        + ((value >> (top - SUB)) as usize & ((1 << SUB) - 1))
}

/// The least value of a bin.
pub fn bin_start(bin: usize) -> u64 {
    if bin < EXACT_VALUES as usize {
        return bin as u64;
    }
    let rest = bin - EXACT_VALUES as usize;
    let (top, sub) = ((rest >> SUB) + 5, (rest & ((1 << SUB) - 1)) as u64);
    ((1 << SUB) + sub) << (top as u32 - SUB)
}

/// The replicate of a sample.
pub fn part(sample: u32) -> usize {
    (sample / SAMPLES_PER_RUN) as usize % PARTS
}

/// Counts by bin.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bins(pub Vec<u32>);

impl Bins {
    fn add(&mut self, value: u64) {
        self.add_to(bin(value));
    }

    /// Counts in a bin.
    fn add_to(&mut self, at: usize) {
        if self.0.len() <= at {
            self.0.resize(at + 1, 0);
        }
        self.0[at] += 1;
    }

    fn merge(&mut self, other: &Bins) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a += b);
    }
}

/// Accesses of a group in a replicate.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupLines {
    /// Distances.
    pub known: Bins,
    /// For first touches: number of lines that the sample had touched before.
    pub censored: Bins,
    /// For all accesses: number of lines that the sample had touched before.
    pub before: Bins,
    /// Rows between reuses; rows of the sample before first touches; rows before any access.
    pub times: [Bins; 3],
    /// By bin of the last histogram: lines that the sample had touched, summed over all accesses.
    pub lines: Vec<u64>,
    /// The first three, for lines in the same set of the first-level cache.
    pub in_set: [Bins; 3],
    /// Reuses after at least `MAX_LINES_IN_PASS` other lines.
    pub again: u32,
    /// Number of these that access the same word as the last access.
    pub same_word: u32,
    /// Accesses in the second halves of samples.
    pub late: u32,
    /// By level: number of these whose line was evicted because the sample had filled its set.
    pub conflicts: [u32; LEVELS],
    /// First touches in the second halves of samples.
    pub late_firsts: u32,
    /// By level: number of these in a set that the sample had filled.
    pub full: [u32; LEVELS],
}

impl GroupLines {
    fn merge(&mut self, other: &GroupLines) {
        self.known.merge(&other.known);
        self.censored.merge(&other.censored);
        self.before.merge(&other.before);
        for (mine, theirs) in self.in_set.iter_mut().zip(&other.in_set) {
            mine.merge(theirs);
        }
        for (mine, theirs) in self.times.iter_mut().zip(&other.times) {
            mine.merge(theirs);
        }
        self.lines
            .resize(self.lines.len().max(other.lines.len()), 0);
        (self.lines.iter_mut().zip(&other.lines)).for_each(|(mine, theirs)| *mine += theirs);
        self.again += other.again;
        self.same_word += other.same_word;
        self.late += other.late;
        self.late_firsts += other.late_firsts;
        let theirs = other.conflicts.iter().chain(&other.full);
        let mine = self.conflicts.iter_mut().chain(&mut self.full);
        mine.zip(theirs).for_each(|(mine, theirs)| *mine += theirs);
    }
}

/// The first touch of a line in a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visit {
    /// The line.
    pub line: CacheLine,
    /// Sample.
    pub sample: u32,
    /// Address space.
    pub space: u32,
    /// Group of the load.
    pub group: Group,
    /// Number of lines that the sample had touched before.
    pub before: u16,
    /// The byte of the line at which the first load began. Objects may begin anywhere in a line.
    pub byte: u8,
    /// True if the visit follows the order of memory: a neighbour was touched before, or the step
    /// equals that of the last visits.
    pub sequence: bool,
}

impl Visit {
    /// The first address that was loaded.
    pub fn address(&self) -> u64 {
        self.line.address() | u64::from(self.byte)
    }

    /// Offset of an address in its line.
    pub fn byte_of(address: u64) -> u8 {
        CacheLine::offset(address) as u8
    }
}

/// Accesses of a group in a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleGroup {
    /// Sample.
    pub sample: u32,
    /// Group.
    pub group: Group,
    /// Recorded loads.
    pub accesses: u32,
    /// Loads that they imply.
    pub implied: u32,
}

/// The last use of a line in a sample, whose word was watched after the sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WatchedUse {
    /// Number of the watch.
    pub pair: u32,
    /// Address space.
    pub space: u32,
    /// Group of the load that used it.
    pub group: Group,
    /// Part of the sample's rows after the use.
    pub rest: f32,
    /// Lines touched in that part.
    pub after: u32,
}

/// See the module's text.
#[derive(Clone, Default)]
pub struct LineVisits {
    /// By group and replicate.
    pub groups: HashMap<(Group, u32), GroupLines, Mixed>,
    /// First touches.
    pub visits: Vec<Visit>,
    /// Accesses of each group in each sample.
    pub samples: Vec<SampleGroup>,
    /// The visits of one line in 2 to the power of this are kept.
    pub level: u32,
    /// Walks that return.
    pub walks: Walks,
    /// Uses of watched words. Watches that contradict the rows are left out.
    pub watched: Vec<WatchedUse>,
    work: Work,
}

/// State of the current sample.
#[derive(Clone, Default)]
struct Work {
    skipped: bool,
    last: LastAccesses,
    /// By set of the first-level cache: lines in the order of their last accesses.
    in_set: Vec<Vec<CacheLine>>,
    /// The set of the last access.
    last_set: usize,
    /// Rows of the sample.
    address: Vec<u64>,
    group: Vec<Group>,
    implied: Vec<u16>,
    /// Instructions, if all are known.
    site: Vec<u32>,
    /// True for the first row in each line.
    first: Vec<bool>,
    /// The groups of the sample.
    local: Vec<GroupInSample>,
    /// Index of each group in `local`.
    places: HashMap<Group, usize, Mixed>,
    caches: [Sets; LEVELS],
    conflicts: Conflicts,
    /// Words that are watched after the sample: number of the watch, and address.
    pairs: Vec<(u32, u64)>,
    sample: u32,
    space: u32,
}

/// A group of code in the current sample.
#[derive(Clone, Default)]
struct GroupInSample {
    group: Group,
    /// Its counts, moved here while they grow.
    counts: GroupLines,
    /// Its last new line, and the step to that line.
    line: CacheLine,
    step: i64,
    /// Loads of the group.
    accesses: u32,
    implied: u32,
}

impl Work {
    /// Counts an access of a group. Returns the visit if the access is the first one of its line.
    /// `last` is the line of the previous access.
    fn access(&mut self, at: usize, of: &mut GroupInSample, last: CacheLine) -> Option<Visit> {
        let line = CacheLine::of(self.address[at]);
        let distinct = self.last.lines();
        let late = u32::from(2 * at >= self.address.len());
        let counts = &mut of.counts;
        let (lines, time) = (bin(distinct), bin(at as u64));
        counts.before.add_to(lines);
        counts.late += late;
        counts.times[2].add_to(time);
        if counts.lines.len() <= time {
            counts.lines.resize(time + 1, 0);
        }
        counts.lines[time] += distinct;
        if line == last {
            counts.times[0].add(1);
            counts.known.add_to(0);
            counts.in_set[2].add(self.in_set[self.last_set].len() as u64);
            counts.in_set[0].add_to(0);
            self.first.push(false);
            self.last.stay(at);
            return None;
        }
        let place = self.last.find(line);
        let is_new = place.before.is_none();
        self.first.push(is_new);
        let sets = Sets {
            sets: self.in_set.len() as u32,
            ..Sets::default()
        };
        self.last_set = sets.of(line) as usize;
        let in_set = &mut self.in_set[self.last_set];
        counts.in_set[2].add(in_set.len() as u64);
        let others = touch(in_set, line, is_new);
        counts.in_set[usize::from(is_new)].add(others as u64);
        let visit = match place.before {
            Some(before) => {
                counts.times[0].add((at - before) as u64);
                let since = self.last.since(&place);
                counts.known.add(since);
                if since >= MAX_LINES_IN_PASS {
                    counts.again += 1;
                    let last_word = self.address[before] / WORD_BYTES;
                    counts.same_word += u32::from(self.address[at] / WORD_BYTES == last_word);
                }
                None
            }
            None => {
                counts.censored.add_to(lines);
                counts.times[1].add_to(time);
                counts.late_firsts += late;
                Some(self.visit(at, of))
            }
        };
        self.last.put(place, line, at);
        visit
    }

    /// The first touch of a line.
    fn visit(&self, at: usize, of: &mut GroupInSample) -> Visit {
        let line = CacheLine::of(self.address[at]);
        let step = line.since(of.line);
        let has = |line: CacheLine| self.last.find(line).before.is_some();
        let sequence = has(line.at(1))
            || has(line.at(-1))
            || step == of.step && step.unsigned_abs() <= MAX_SEQUENCE_LINES;
        (of.line, of.step) = (line, step);
        Visit {
            line,
            sample: self.sample,
            space: self.space,
            group: self.group[at],
            before: self.last.lines().min(u64::from(u16::MAX)) as u16,
            byte: Visit::byte_of(self.address[at]),
            sequence,
        }
    }

    /// Counts conflicts in the sets of the other levels.
    fn count_conflicts(&mut self, local: &mut [GroupInSample]) {
        let (address, groups, places) = (&self.address, &self.group, &self.places);
        self.conflicts.of_sample(
            &self.caches,
            address.len(),
            |row| CacheLine::of(address[row]),
            &self.first,
            |row, level, again| {
                if let Some(of) = places.get(&groups[row]).and_then(|&at| local.get_mut(at)) {
                    match again {
                        true => of.counts.conflicts[level] += 1,
                        false => of.counts.full[level] += 1,
                    }
                }
            },
        );
    }
}

fn kept(line: CacheLine, space: u32, level: u32) -> bool {
    spread(line.number() ^ u64::from(space) << 58).leading_zeros() >= level
}

impl LineVisits {
    /// Begins a sample, whose conflicts are counted for `caches`. `pairs` are the words that are
    /// watched after it.
    pub fn begin(&mut self, space: u32, sample: u32, caches: &[Sets; LEVELS], pairs: &[ReusePair]) {
        self.work.caches = *caches;
        self.work.pairs.clear();
        (self.work.pairs).extend(pairs.iter().map(|p| (p.number, p.address)));
        self.work
            .in_set
            .resize(caches[0].sets.clamp(1, 4096) as usize, Vec::new());
        self.work.in_set.iter_mut().for_each(Vec::clear);
        (self.work.space, self.work.sample) = (space, sample);
        self.work.skipped = false;
        self.work.address.clear();
        self.work.group.clear();
        self.work.implied.clear();
        self.work.site.clear();
        self.work.first.clear();
    }

    /// Adds further loads of the sample, and their instructions, if they are known.
    pub fn run(&mut self, rows: &ColumnSlices<'_>, sites: &[u32]) {
        let n = rows.len();
        self.work
            .site
            .extend_from_slice(sites.get(..n).unwrap_or_default());
        self.work.address.extend_from_slice(&rows.address[..n]);
        self.work.group.extend_from_slice(&rows.group[..n]);
        self.work.implied.extend_from_slice(&rows.implied[..n]);
    }

    /// Rows of the sample so far; a very large number if it is skipped.
    pub fn pending(&self) -> u64 {
        match self.work.skipped {
            true => u64::from(u32::MAX),
            false => self.work.address.len() as u64,
        }
    }

    /// Leaves the sample out, because it is too long.
    pub fn skip(&mut self) {
        self.work.skipped = true;
        self.work.address.clear();
        self.work.group.clear();
        self.work.implied.clear();
        self.work.site.clear();
    }

    /// Completes the sample.
    pub fn finish(&mut self) {
        let mut work = std::mem::take(&mut self.work);
        self.sample(&mut work);
        let n = work.address.len();
        if work.site.len() == n && work.first.len() == n {
            let row = |at| {
                (
                    work.site[at],
                    work.group[at],
                    work.address[at],
                    work.first[at],
                )
            };
            self.walks
                .sample((work.sample, work.space), (0..n).map(row));
        }
        self.work = work;
        if self.visits.len() > LIMIT + LIMIT / 2 {
            self.thin();
        }
    }

    fn thin(&mut self) {
        while self.visits.len() > LIMIT {
            self.level += 1;
            let level = self.level;
            self.visits.retain(|v| kept(v.line, v.space, level));
        }
    }

    fn sample(&mut self, work: &mut Work) {
        let n = work.address.len();
        if n == 0 {
            return;
        }
        work.last.begin(n);
        let of_part = part(work.sample) as u32;
        let mut local = std::mem::take(&mut work.local);
        let mut last = CacheLine::from_number(u64::MAX);
        let mut place = 0;
        for at in 0..n {
            let group = work.group[at];
            // Consecutive rows mostly belong to one group.
            if local.get(place).is_none_or(|of| of.group != group) {
                place = *work.places.entry(group).or_insert_with(|| {
                    local.push(self.begin_group(group, of_part));
                    local.len() - 1
                });
            }
            let of = &mut local[place];
            of.accesses += 1;
            of.implied += u32::from(work.implied[at]);
            let visit = work.access(at, of, last);
            let is_kept = |v: &Visit| kept(v.line, v.space, self.level);
            self.visits.extend(visit.filter(is_kept));
            last = CacheLine::of(work.address[at]);
        }
        self.check_watches(work);
        work.count_conflicts(&mut local);
        for of in local.drain(..) {
            self.groups.insert((of.group, of_part), of.counts);
            self.samples.push(SampleGroup {
                sample: work.sample,
                group: of.group,
                accesses: of.accesses,
                implied: of.implied,
            });
        }
        work.places.clear();
        work.local = local;
    }

    /// A group without accesses in the sample so far, with its earlier counts.
    fn begin_group(&mut self, group: Group, part: u32) -> GroupInSample {
        let counts = self.groups.get_mut(&(group, part)).map(std::mem::take);
        GroupInSample {
            group,
            counts: counts.unwrap_or_default(),
            ..GroupInSample::default()
        }
    }

    /// Adds the uses of watched words that agree with the rows.
    fn check_watches(&mut self, work: &Work) {
        let n = work.address.len();
        for &(pair, word) in &work.pairs {
            // A watch is wrong if the line's last access was to another word, or if there was none.
            let last = work.last.find(CacheLine::of(word));
            let is_word = |at: &usize| work.address[*at] & !(WORD_BYTES - 1) == word;
            let Some(at) = last.before.filter(is_word) else {
                continue;
            };
            self.watched.push(WatchedUse {
                pair,
                space: work.space,
                group: work.group[at],
                rest: (n - 1 - at) as f32 / n as f32,
                after: work.last.since(&last) as u32,
            });
        }
    }

    /// Sorts the counts by sample and group, since floating-point sums depend on their order.
    pub fn sort(&mut self) {
        self.samples.sort_unstable_by_key(|s| (s.sample, s.group));
        self.watched.sort_unstable_by_key(|w| w.pair);
    }

    /// The visits of several workers together.
    pub fn merged(parts: Vec<LineVisits>) -> LineVisits {
        let visits: usize = parts.iter().map(|part| part.visits.len()).sum();
        let mut parts = parts.into_iter();
        let mut all = LineVisits {
            work: Work::default(),
            ..parts.next().unwrap_or_default()
        };
        // A list that grew as it likes would take twice the memory.
        all.visits.reserve_exact(visits - all.visits.len());
        parts.for_each(|part| all.merge(part));
        all.thin();
        all
    }

    /// Adds the visits of `other`.
    pub fn merge(&mut self, other: LineVisits) {
        for (key, lines) in other.groups {
            match self.groups.entry(key) {
                Entry::Occupied(mut mine) => mine.get_mut().merge(&lines),
                Entry::Vacant(free) => {
                    free.insert(lines);
                }
            }
        }
        self.walks.merge(other.walks);
        self.samples.extend(other.samples);
        self.watched.extend(other.watched);
        self.visits.extend(other.visits);
        if self.level != other.level {
            self.level = self.level.max(other.level);
            let level = self.level;
            self.visits.retain(|v| kept(v.line, v.space, level));
        }
        self.thin();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_hold_what_they_say() {
        for value in (0..5000).chain([1 << 20, (1 << 20) + 70_000, u64::from(u32::MAX)]) {
            let at = bin(value);
            assert!(
                bin_start(at) <= value && value < bin_start(at + 1),
                "{value} in {at}: {} to {}",
                bin_start(at),
                bin_start(at + 1)
            );
        }
    }

    /// Distances, censored ones and visits agree with a list of touched lines, most recent first.
    #[test]
    fn distances_are_those_of_an_lru_list() {
        let mut state = 5u64;
        let address: Vec<u64> = (0..600)
            .map(|_| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
                (state >> 40) % 200 * 64 + (state >> 20) % 64
            })
            .collect();
        let group: Vec<Group> = (0..600).map(|i| Group::from_raw(i % 3)).collect();
        let mut found = LineVisits::default();
        found.begin(0, 3, &[Sets { sets: 1, ways: 8 }; LEVELS], &[]);
        let rows = ColumnSlices {
            address: &address,
            size: &[8; 600],
            group: &group,
            implied: &[0; 600],
        };
        found.run(&rows, &[]);
        found.finish();
        let mut expected: HashMap<Group, GroupLines> = HashMap::new();
        let (mut list, mut visits): (Vec<u64>, Vec<(u64, u16)>) = Default::default();
        let address_of = &address;
        for (row, (address, group)) in address.iter().zip(group).enumerate() {
            let line = address >> 6;
            let address0 = &address_of[..row];
            let of = expected.entry(group).or_default();
            of.in_set[2].add(list.len() as u64);
            of.before.add(list.len() as u64);
            of.late += u32::from(row >= 300);
            of.times[2].add(row as u64);
            let time = bin(row as u64);
            of.lines.resize(of.lines.len().max(time + 1), 0);
            of.lines[time] += list.len() as u64;
            match list.iter().position(|&l| l == line) {
                Some(at) => {
                    of.known.add(at as u64);
                    let before = address0.iter().rposition(|a| a >> 6 == line).unwrap();
                    of.times[0].add((row - before) as u64);
                    if at >= 32 {
                        of.again += 1;
                        of.same_word += u32::from(address0[before] >> 3 == address >> 3);
                    }
                    of.in_set[0].add(at as u64);
                    let driven_out = u32::from(row >= 300 && at >= 8);
                    of.conflicts[1..].iter_mut().for_each(|c| *c += driven_out);
                    list.remove(at);
                }
                None => {
                    of.censored.add(list.len() as u64);
                    of.times[1].add(row as u64);
                    of.late_firsts += u32::from(row >= 300);
                    let full = u32::from(row >= 300 && list.len() >= 8);
                    of.full[1..].iter_mut().for_each(|c| *c += full);
                    of.in_set[1].add(list.len() as u64);
                    visits.push((line, list.len() as u16));
                }
            }
            list.insert(0, line);
        }
        assert_eq!(found.groups.len(), 3);
        for (group, lines) in expected {
            assert_eq!(found.groups[&(group, part(3) as u32)], lines);
        }
        let of_found: Vec<_> = found
            .visits
            .iter()
            .map(|v| (v.line.number(), v.before))
            .collect();
        assert_eq!(of_found, visits);
    }

    /// Samples that several workers have counted give the same as those of one.
    #[test]
    fn workers_together_have_counted_what_one_would_have() {
        let count = |samples: &[u32]| {
            let mut found = LineVisits::default();
            for &sample in samples {
                let address: Vec<u64> = (0..200u64)
                    .map(|row| (row * row * u64::from(sample + 3)) % 977 * 32)
                    .collect();
                let group: Vec<Group> = (0..200).map(|row| Group::from_raw(row % 3)).collect();
                found.begin(0, sample, &[Sets { sets: 4, ways: 8 }; LEVELS], &[]);
                let rows = ColumnSlices {
                    address: &address,
                    size: &[8; 200],
                    group: &group,
                    implied: &[0; 200],
                };
                found.run(&rows, &[]);
                found.finish();
            }
            found
        };
        let parts = [&[5u32, 0][..], &[], &[9, 40, 1]].map(count);
        let mut whole = count(&[5, 0, 9, 40, 1]);
        let mut merged = LineVisits::merged(parts.to_vec());
        assert!(merged.groups == whole.groups && merged.visits == whole.visits);
        merged.sort();
        whole.sort();
        assert_eq!(merged.samples, whole.samples);
        assert!(LineVisits::merged(Vec::new()).visits.is_empty());
    }

    /// A watch is used if the last row in its line is in its word.
    #[test]
    fn watches_are_checked_by_rows() {
        let address = [0, 64, 128, 8, 192, 66, 256, 320];
        let pair = |number, address| ReusePair {
            number,
            sample: 0,
            address,
            cpu_ns: 5,
            end: crate::data::reuse_pairs::WatchEnd::GivenUp,
        };
        // A later access touches another word of the line; a later access touches part of the word;
        // no later access; the line was not touched; the address is not the first byte of a word.
        let pairs = [
            pair(0, 0),
            pair(1, 64),
            pair(2, 128),
            pair(3, 1 << 40),
            pair(4, 129),
        ];
        let mut found = LineVisits::default();
        found.begin(2, 0, &[Sets { sets: 1, ways: 8 }; LEVELS], &pairs);
        let rows = ColumnSlices {
            address: &address,
            size: &[8; 8],
            group: &[4, 5, 6, 7, 8, 9, 10, 11].map(Group::from_raw),
            implied: &[0; 8],
        };
        found.run(&rows, &[]);
        found.finish();
        let used = |pair, group, rest, after| WatchedUse {
            pair,
            space: 2,
            group: Group::from_raw(group),
            rest,
            after,
        };
        assert_eq!(found.watched, [used(1, 9, 0.25, 2), used(2, 6, 0.625, 5)]);
        // The next sample has no watches.
        found.begin(2, 1, &[Sets { sets: 1, ways: 8 }; LEVELS], &[]);
        found.run(&rows, &[]);
        found.finish();
        assert_eq!(found.watched.len(), 2);
    }
}
