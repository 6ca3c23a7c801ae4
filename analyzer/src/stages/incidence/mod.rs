//! Incidence of addresses in samples, from which the unseen footprint is estimated.
//!
//! There is one mark per (address, code group, sample). To limit memory, only the addresses of some
//! pages are kept once there are too many marks: pages whose number hashes to a multiple of
//! `2^level` (spatial sampling). All marks of a page are kept or none, so the counts of samples per
//! address, line and page stay exact for these pages. If there are few pages, a part of them would
//! not be representative. Then the marks of some samples are kept instead: samples whose number
//! hashes to a multiple of `2^thinned`.
//!
//! The best combination of both is known only at the end. So all marks that may be needed are
//! collected, and some of them are [chosen](Incidence::fold) at the end. The result does not depend
//! on the distribution of marks to workers, see [`thin`].

pub(crate) mod thin;

pub use thin::SAMPLE_RANK_PERIOD;

use crate::data::group::Group;
use crate::data::rows::ColumnSlices;
use crate::interner::KEYS_PER_BATCH;
use crate::util::fast_hash::Mixed;
use mgz_models::util::hash::spread;
use std::collections::HashSet;
use thin::{MAX_LEVELS, more_than, page_has, rank_needed, rank_of_sample};

/// Maximum number of distinct marks that are collected.
const LIMIT: usize = 1 << 21;
/// Up to this number of marks, a list grows by doubling. Source: Chosen.
const MAX_FREELY_GROWING_MARKS: usize = 1 << 16;
/// Entries of the small cache that drops repetitions. Source: Chosen.
const FRONT_ENTRIES: usize = 1 << 12;
/// The fact that a group loaded an address in a sample.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub struct Mark {
    /// Start address.
    pub address: u64,
    /// Sample.
    pub sample: u32,
    /// See [`crate::data::code_map`].
    pub group: Group,
}

/// The marks: those of a level while they are collected, then the chosen ones.
#[derive(Clone)]
pub struct Incidence {
    /// By address space.
    spaces: Vec<Vec<Mark>>,
    front: Vec<(Mark, u32)>,
    /// Minimum sum of the ranks of page and sample of a kept mark.
    both: u32,
    /// Minimum ranks of pages and of samples, once they are chosen.
    level: u32,
    thinned: u32,
    used: usize,
    /// Number of marks of samples that were interrupted by other samples. Each may be a duplicate.
    doubtful: usize,
    /// Address spaces and samples seen so far.
    met: HashSet<(u32, u32), Mixed>,
    /// The last of these, and true if other samples came between its rows.
    last: Option<(u32, u32)>,
    again: bool,
    /// Maximum number of distinct marks.
    limit: usize,
    /// Number of marks at which some are dropped.
    room: usize,
    /// One more than the greatest sample, once marks are sorted.
    end: u32,
}

impl Default for Incidence {
    fn default() -> Incidence {
        Incidence::new(LIMIT)
    }
}

/// True if two marks with their address spaces differ. It uses no branch for each part.
#[inline(always)]
fn differ((a, of_a): &(Mark, u32), (b, of_b): &(Mark, u32)) -> bool {
    a.address ^ b.address
        | u64::from(a.sample ^ b.sample | a.group.raw() ^ b.group.raw() | of_a ^ of_b)
        != 0
}

impl Incidence {
    /// Starts without marks. At most `limit` are left at the end.
    pub fn new(limit: usize) -> Incidence {
        Incidence {
            spaces: Vec::new(),
            front: Vec::new(),
            both: 0,
            level: 0,
            thinned: 0,
            used: 0,
            doubtful: 0,
            met: HashSet::default(),
            last: None,
            again: false,
            limit,
            room: limit.saturating_add(limit / 4),
            end: 0,
        }
    }

    /// Adds rows of one sample.
    pub fn add(&mut self, rows: &ColumnSlices<'_>, space: u32, sample: u32) {
        const NO_MARK: Mark = Mark {
            address: u64::MAX,
            group: Group::from_raw(u32::MAX),
            sample: u32::MAX,
        };
        if self.front.is_empty() {
            self.front = vec![(NO_MARK, u32::MAX); FRONT_ENTRIES];
        }
        if self.spaces.len() <= space as usize {
            self.spaces.resize(space as usize + 1, Vec::new());
        }
        if self.last != Some((space, sample)) {
            self.last = Some((space, sample));
            self.again = !self.met.insert((space, sample));
        }
        let marks = &mut self.spaces[space as usize];
        // A list that is already long will mostly reach the limit. Growing it in steps would leave
        // unused memory behind.
        if marks.len() + rows.len() > marks.capacity().max(MAX_FREELY_GROWING_MARKS) {
            marks.reserve_exact(
                (self.room.min(LIMIT + LIMIT / 4) + rows.len())
                    .saturating_sub(marks.len())
                    .max(marks.len()),
            );
        }
        let before = marks.len();
        let needed = rank_needed(sample, self.both);
        let (Some(front), len) = (self.front.first_chunk_mut::<FRONT_ENTRIES>(), rows.len()) else {
            return;
        };
        let (mut list, mut new) = ([0u16; KEYS_PER_BATCH], [NO_MARK; KEYS_PER_BATCH]);
        for (address, group) in rows.address[..len]
            .chunks(KEYS_PER_BATCH)
            .zip(rows.group[..len].chunks(KEYS_PER_BATCH))
        {
            // Neither the kept marks nor the new ones are predictable, so there is no branch on
            // either. Each mark is written to the next place of a list, and the list grows only if
            // the mark belongs to it.
            let (mut listed, mut added) = (0, 0);
            for (at, &address) in address.iter().enumerate() {
                list[listed % KEYS_PER_BATCH] = at as u16;
                listed += usize::from(page_has(address, needed));
            }
            for &at in &list[..listed.min(KEYS_PER_BATCH)] {
                let mark = Mark {
                    address: address[at as usize],
                    group: group[at as usize],
                    sample,
                };
                let front = &mut front[(spread(mark.address ^ u64::from(mark.group.raw()) << 48)
                    >> (64 - FRONT_ENTRIES.trailing_zeros()))
                    as usize
                    % FRONT_ENTRIES];
                new[added % KEYS_PER_BATCH] = mark;
                added += usize::from(differ(front, &(mark, space)));
                *front = (mark, space);
            }
            marks.extend_from_slice(&new[..added.min(KEYS_PER_BATCH)]);
        }
        let added = marks.len() - before;
        self.used += added;
        self.doubtful += if self.again { added } else { 0 };
        if self.used > self.room {
            self.compact();
        }
    }

    /// Drops marks if there are too many.
    #[cold]
    fn compact(&mut self) {
        if self.has_too_many() {
            self.raise();
        } else {
            self.sort();
            // Marks of the current sample may have been dropped.
            self.last = None;
            self.raise_exactly();
        }
        self.room = self
            .used
            .saturating_add(self.limit / 2)
            .max(self.limit.saturating_add(self.limit / 4));
    }

    /// True if there are certainly too many marks.
    fn has_too_many(&self) -> bool {
        self.used > self.limit
            && self.both < MAX_LEVELS
            && more_than(self.limit.saturating_add(self.doubtful), &self.spaces)
    }

    /// Raises the level by one.
    fn raise(&mut self) {
        self.both += 1;
        self.thin();
    }

    /// Raises the level until the marks fit the limit. The marks must be distinct.
    fn raise_exactly(&mut self) {
        while self.used > self.limit && self.both < MAX_LEVELS {
            self.raise();
        }
    }

    /// Drops marks below the level.
    fn thin(&mut self) {
        let level = self.both;
        // Marks of one sample are mostly adjacent.
        let (mut sample, mut needed) = (0, rank_needed(0, level));
        self.retain(|m| {
            if m.sample != sample {
                (sample, needed) = (m.sample, rank_needed(m.sample, level));
            }
            page_has(m.address, needed)
        });
    }

    #[inline(always)]
    fn retain(&mut self, mut keep: impl FnMut(&Mark) -> bool) {
        for marks in &mut self.spaces {
            // The result is nearly random, so there is no branch on it.
            let mut to = 0;
            for at in 0..marks.len() {
                let mark = marks[at];
                marks[to] = mark;
                to += usize::from(keep(&mark));
            }
            marks.truncate(to);
        }
        self.count();
    }

    fn count(&mut self) {
        self.used = self.spaces.iter().map(Vec::len).sum();
    }

    /// Sorts marks and removes duplicates.
    fn sort(&mut self) {
        use rayon::prelude::*;
        for marks in &mut self.spaces {
            if !marks.is_sorted() && !sort_packed(marks) {
                marks.par_sort_unstable();
            }
            marks.dedup();
        }
        self.doubtful = 0;
        self.count();
    }

    fn find_end(&mut self) {
        self.end = self
            .spaces
            .iter()
            .flatten()
            .map(|m| m.sample.saturating_add(1))
            .max()
            .unwrap_or(0);
    }

    /// Joins the marks of several workers as if one had collected them all. The result is not
    /// sorted.
    fn join(parts: Vec<Incidence>) -> Incidence {
        let most = |of: fn(&Incidence) -> usize| parts.iter().map(of).max();
        let mut all = Incidence::new(most(|p| p.limit).unwrap_or(LIMIT));
        all.both = most(|p| p.both as usize).unwrap_or(0) as u32;
        let mut shared: HashSet<(u32, u32), Mixed> = HashSet::default();
        for part in &parts {
            shared.extend(part.met.iter().filter(|m| !all.met.insert(**m)));
        }
        for part in parts {
            all.doubtful += part.doubtful;
            if all.spaces.len() < part.spaces.len() {
                all.spaces.resize(part.spaces.len(), Vec::new());
            }
            for (mine, theirs) in all.spaces.iter_mut().zip(part.spaces) {
                if mine.is_empty() {
                    *mine = theirs;
                } else {
                    mine.extend(theirs);
                }
            }
        }
        for (space, marks) in (0..).zip(&all.spaces) {
            let of_sample = marks.chunk_by(|a, b| a.sample == b.sample);
            all.doubtful += of_sample
                .filter(|s| shared.contains(&(space, s[0].sample)))
                .map(<[Mark]>::len)
                .sum::<usize>();
        }
        all.thin();
        while all.has_too_many() {
            all.raise();
        }
        if all.used > all.limit {
            all.sort();
            all.raise_exactly();
        }
        all
    }

    /// Merges the marks of several workers; other parts may still follow. The marks are distinct
    /// and sorted by address, sample and group in each address space.
    pub fn gather(parts: Vec<Incidence>) -> Incidence {
        let mut all = Incidence::join(parts);
        all.sort();
        all.find_end();
        all
    }

    /// Merges the marks of all workers, and chooses those to keep. They are sorted in the same way.
    pub fn fold(parts: Vec<Incidence>) -> Incidence {
        let mut all = Incidence::join(parts);
        if all.both > 0 {
            (all.level, all.thinned) = thin::choose(&all.spaces, all.both);
            let (level, thinned) = (all.level, all.thinned);
            all.retain(|m| page_has(m.address, level) & (rank_of_sample(m.sample) >= thinned));
        }
        all.sort();
        all.find_end();
        all
    }

    /// Marks by address space, sorted after [`Incidence::fold`].
    pub fn spaces(&self) -> &[Vec<Mark>] {
        &self.spaces
    }

    /// Number of pages that each kept page represents.
    pub fn scale(&self) -> f64 {
        (1u64 << self.level) as f64
    }

    /// Log2 of [`Incidence::scale`].
    pub fn level(&self) -> u32 {
        self.level
    }

    /// Log2 of the number of samples of which one keeps its marks.
    pub fn thinned(&self) -> u32 {
        self.thinned
    }

    /// True if the marks of a sample were kept, should it have any.
    pub fn has(&self, sample: u32) -> bool {
        rank_of_sample(sample) >= self.thinned
    }

    /// The marks of the samples that `keep` selects.
    pub fn of_samples(&self, keep: &[bool]) -> Incidence {
        let kept = |marks: &Vec<Mark>| {
            marks
                .iter()
                .filter(|m| keep.get(m.sample as usize).copied().unwrap_or(false))
                .copied()
                .collect()
        };
        let mut some = Incidence {
            spaces: self.spaces.iter().map(kept).collect(),
            both: self.both,
            level: self.level,
            thinned: self.thinned,
            ..Incidence::new(self.limit)
        };
        some.count();
        some.find_end();
        some
    }

    /// The level of the marks that were [gathered](Incidence::gather).
    pub fn gathered(&self) -> u32 {
        self.both
    }

    /// Upper bound of all sample numbers, exclusive, after [`Incidence::fold`].
    pub fn samples_end(&self) -> u32 {
        self.end
    }

    /// Marks that were gathered before, and their level.
    pub fn from_parts(spaces: Vec<Vec<Mark>>, gathered: u32) -> Incidence {
        let mut all = Incidence {
            spaces,
            both: gathered.min(MAX_LEVELS),
            ..Incidence::default()
        };
        all.sort();
        all.find_end();
        all
    }
}

/// Sorts marks as single numbers, which is several times as fast. False if the bits in which they
/// differ do not fit into one number.
fn sort_packed(marks: &mut [Mark]) -> bool {
    let Some(least) = marks.iter().map(|m| m.address).min() else {
        return true;
    };
    let (address, group, sample) = marks.iter().fold((0, 0, 0), |(a, g, s), m| {
        (a | (m.address - least), g | m.group.raw(), s | m.sample)
    });
    let bits = |any: u64| 64 - any.leading_zeros();
    let (of_group, of_sample) = (bits(group.into()), bits(sample.into()));
    if bits(address) + of_group + of_sample > 64 {
        return false;
    }
    let low = of_group + of_sample;
    let mut packed: Vec<u64> = marks
        .iter()
        .map(|m| {
            ((m.address - least).checked_shl(low).unwrap_or(0))
                | u64::from(m.sample) << of_group
                | u64::from(m.group.raw())
        })
        .collect();
    crate::util::radix::sort(&mut packed, |&p| p);
    for (mark, p) in marks.iter_mut().zip(packed) {
        *mark = Mark {
            address: least + p.checked_shr(low).unwrap_or(0),
            sample: (p >> of_group & ((1 << of_sample) - 1)) as u32,
            group: Group::from_raw((p & ((1 << of_group) - 1)) as u32),
        };
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fed(limit: usize, accesses: &[(u64, u32, u32)]) -> Incidence {
        let mut incidence = Incidence::new(limit);
        for &(address, group, sample) in accesses {
            incidence.add(
                &ColumnSlices {
                    address: &[address],
                    size: &[8],
                    group: &[Group::from_raw(group)],
                    implied: &[0],
                },
                0,
                sample,
            );
        }
        incidence
    }

    #[test]
    fn each_mark_is_kept_once_and_parts_fold_to_the_whole() {
        let mut random = 1u64;
        let accesses: Vec<(u64, u32, u32)> = (0..20_000u32)
            .map(|i| {
                random = random
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                (
                    (random >> 40) % 3000 * 8,
                    (random >> 33) as u32 % 3,
                    i / 1000,
                )
            })
            .collect();
        let mut expected: Vec<Mark> = accesses
            .iter()
            .map(|&(address, group, sample)| Mark {
                address,
                group: Group::from_raw(group),
                sample,
            })
            .collect();
        expected.sort();
        expected.dedup();
        let whole = Incidence::fold(vec![fed(usize::MAX, &accesses)]);
        assert_eq!(whole.spaces(), std::slice::from_ref(&expected));
        let (a, b) = accesses.split_at(7777);
        assert_eq!(
            Incidence::fold(vec![fed(usize::MAX, a), fed(usize::MAX, b)]).spaces(),
            [expected]
        );
    }

    #[test]
    fn of_few_pages_all_are_kept_and_samples_are_dropped() {
        // Eight pages, used repeatedly. Half of them would give the footprint of a sample with an
        // error of a third.
        let accesses: Vec<(u64, u32, u32)> = (0..400_000u64)
            .map(|i| {
                (
                    i * 512 % (8 << 12),
                    1 + (i % 64 / 8 == 0) as u32,
                    (i / 1000) as u32,
                )
            })
            .collect();
        let thin = Incidence::fold(vec![fed(20_000, &accesses)]);
        assert!(thin.level() == 0 && thin.thinned() > 0);
        let marks = &thin.spaces()[0];
        let mut samples: Vec<u32> = marks.iter().map(|m| m.sample).collect();
        samples.sort_unstable();
        samples.dedup();
        assert_eq!(marks.len(), 64 * samples.len(), "samples are kept whole");
        assert!(
            samples.iter().all(|&s| thin.has(s))
                && (0..400).filter(|&s| thin.has(s)).count() == samples.len()
        );
        assert!(
            samples.len() > 20 && marks.len() <= 20_000,
            "{}",
            samples.len()
        );
    }

    /// Distributes marks to some workers at random, in portions of a sample or less.
    fn dealt(
        accesses: &[(u64, u32, u32)],
        workers: usize,
        portion: usize,
        random: &mut impl FnMut(u64) -> u64,
    ) -> Vec<Incidence> {
        let mut all: Vec<Incidence> = (0..workers).map(|_| Incidence::new(3000)).collect();
        let mut portions: Vec<&[(u64, u32, u32)]> = accesses
            .chunk_by(|a, b| a.2 == b.2)
            .flat_map(|sample| sample.chunks(portion))
            .collect();
        // Batches are distributed one after the other.
        for batch in portions.chunks_mut(40) {
            (1..batch.len())
                .rev()
                .for_each(|at| batch.swap(at, random(at as u64 + 1) as usize));
            for some in batch.iter() {
                let (address, group): (Vec<u64>, Vec<Group>) =
                    some.iter().map(|a| (a.0, Group::from_raw(a.1))).unzip();
                let rows = ColumnSlices {
                    address: &address,
                    size: &vec![8; some.len()],
                    group: &group,
                    implied: &vec![0; some.len()],
                };
                all[random(workers as u64) as usize].add(&rows, 0, some[0].2);
            }
        }
        all
    }

    /// Streams, with few pages at first and many at last; a table; few pages; few samples.
    #[test]
    fn what_is_kept_does_not_depend_on_who_met_it() {
        let mut state = 11u64;
        let mut random = |n: u64| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        let cases: [(u64, fn(u64, u64) -> u64); 5] = [
            (200, |i, _| i * 8),
            (200, |_, r| r % (1 << 24)),
            (200, |_, r| r % (1 << 13)),
            (5_000, |i, r| ((i % 3) << 14) + r % 512),
            (60_000, |i, r| i / 8 * 8 + r % 64),
        ];
        let (mut by_pages, mut by_samples) = (0, 0);
        for (case, (sample, address)) in cases.into_iter().enumerate() {
            let accesses: Vec<(u64, u32, u32)> = (0..120_000u64)
                .map(|i| {
                    (
                        address(i, random(1 << 30)),
                        random(2) as u32,
                        (i / sample) as u32,
                    )
                })
                .collect();
            let whole = Incidence::fold(vec![fed(3000, &accesses)]);
            assert!(whole.level() + whole.thinned() > 0, "case {case}");
            by_pages += u32::from(whole.level() > 0);
            by_samples += u32::from(whole.thinned() > 0);
            let gathered = Incidence::gather(vec![fed(3000, &accesses)]);
            for turn in 0..12 {
                let mut parts = dealt(
                    &accesses,
                    1 + turn % 4,
                    [1 << 20, 150][turn / 6],
                    &mut random,
                );
                let levels = |i: &Incidence| (i.both, i.level(), i.thinned(), i.samples_end());
                let same = |a: &Incidence, b: &Incidence| {
                    a.spaces() == b.spaces() && levels(a) == levels(b)
                };
                let folded = Incidence::fold(parts.clone());
                assert!(
                    same(&folded, &whole),
                    "case {case}, turn {turn}: {:?}, not {:?}",
                    levels(&folded),
                    levels(&whole)
                );
                // Merged in pairs, like partial results.
                while let (Some(a), Some(b)) = (parts.pop(), parts.pop()) {
                    parts.insert(0, Incidence::gather(vec![Incidence::gather(vec![b]), a]));
                }
                let all = parts.pop().map(|p| Incidence::gather(vec![p]));
                assert!(
                    all.is_none_or(
                        |all| same(&all, &gathered) && same(&Incidence::fold(vec![all]), &whole)
                    ),
                    "case {case}, turn {turn}"
                );
            }
        }
        assert!(by_pages > 0 && by_samples > 0, "{by_pages}, {by_samples}");
    }

    #[test]
    fn few_pages_are_kept_whole_when_there_are_too_many_marks() {
        let accesses: Vec<(u64, u32, u32)> = (0..400_000u64)
            .map(|i| (i * 512, 1, (i / 1000) as u32))
            .collect();
        let thin = Incidence::fold(vec![fed(100_000, &accesses)]);
        assert!(thin.level() > 0 && thin.thinned() == 0);
        let marks = &thin.spaces()[0];
        assert!(
            marks.len() <= 100_000 && marks.len() > 20_000,
            "{}",
            marks.len()
        );
        // All eight addresses of a page are kept, or none.
        assert!(
            marks
                .chunk_by(|a, b| a.address >> 12 == b.address >> 12)
                .all(|page| page.len() == 8)
        );
        let estimate = marks.len() as f64 * thin.scale();
        assert!((estimate / 400_000.0 - 1.0).abs() < 0.15, "{estimate}");
    }
}
