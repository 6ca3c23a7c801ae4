//! Which samples have seen which addresses: what estimates of the unseen footprint are made of.
//!
//! Kept is one mark per (address, code group, sample). To bound memory, only the addresses of some pages are kept
//! once there are too many marks: those whose page number hashes to a multiple of `2^level` (spatial sampling; all marks of a page are
//! kept or none, so that the counts of samples per address, line and page stay exact for the pages that are kept). Where there are few
//! pages, some of them would tell little of the others: then the marks of some samples are kept instead, those whose number hashes to a multiple of `2^thinned`.

use crate::mix::Mixed;
use crate::names::{KEY_BITS, Names, TOGETHER};
use crate::reuse::spread;
use crate::rows::Rows;
use std::collections::HashSet;

/// Marks of one worker, at most.
const LIMIT: usize = 1 << 20;
/// Marks of a list that grows as it likes.
const GROWING: usize = 1 << 16;
/// Entries of the small cache that drops repetitions.
const FRONT: usize = 1 << 12;
/// Log2 of the bytes of a page.
const PAGE: u32 = 12;
/// Of fewer pages than this none is dropped: a mean over the half of so many is known to a hundredth or two.
const MANY: usize = 4096;
/// Fewer samples than this are not thinned: there are not enough of them to tell what the others have seen.
const SAMPLES: usize = 64;

/// An address was loaded by a group in a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// Start address.
    pub address: u64,
    /// Sample.
    pub sample: u32,
    /// See [`crate::code`].
    pub group: u32,
}

/// The marks.
#[derive(Clone)]
pub struct Incidence {
    /// By address space.
    spaces: Vec<Vec<Mark>>,
    front: Vec<(Mark, u32)>,
    level: u32,
    thinned: u32,
    used: usize,
    limit: usize,
    /// One more than the greatest sample, once marks are sorted.
    end: u32,
}

impl Default for Incidence {
    fn default() -> Incidence {
        Incidence::new(LIMIT)
    }
}

#[inline(always)]
fn kept(address: u64, level: u32) -> bool {
    // The lowest bits of the product depend on few bits of the page: take from the middle.
    (spread(address >> PAGE) >> 20) & ((1 << level) - 1) == 0
}

/// Whether two marks of address spaces differ, without a branch for each part.
#[inline(always)]
fn differ((a, of_a): &(Mark, u32), (b, of_b): &(Mark, u32)) -> bool {
    a.address ^ b.address | u64::from(a.sample ^ b.sample | a.group ^ b.group | of_a ^ of_b) != 0
}

/// Samples whose numbers differ by a multiple of this are kept or dropped together.
pub const ALIKE: u32 = 1 << 16;

/// Whether the marks of a sample are kept.
#[inline(always)]
fn kept_sample(sample: u32, thinned: u32) -> bool {
    (spread(u64::from(sample % ALIKE) + 1) >> 20) & ((1 << thinned) - 1) == 0
}

impl Incidence {
    /// No marks yet, and at most about `limit` later.
    pub fn new(limit: usize) -> Incidence {
        Incidence { spaces: Vec::new(), front: Vec::new(), level: 0, thinned: 0, used: 0, limit, end: 0 }
    }

    /// Adds rows of one sample.
    pub fn add(&mut self, rows: &Rows<'_>, space: u32, sample: u32) {
        if !kept_sample(sample, self.thinned) {
            return;
        }
        const NOTHING: Mark = Mark { address: u64::MAX, group: u32::MAX, sample: u32::MAX };
        if self.front.is_empty() {
            self.front = vec![(NOTHING, u32::MAX); FRONT];
        }
        if self.spaces.len() <= space as usize {
            self.spaces.resize(space as usize + 1, Vec::new());
        }
        let marks = &mut self.spaces[space as usize];
        // Where there are many there will mostly be as many as there may be: a list that grew to that would leave its former selves behind.
        if marks.len() + rows.len() > marks.capacity().max(GROWING) {
            marks.reserve_exact((self.limit.min(LIMIT) + rows.len()).saturating_sub(marks.len()).max(marks.len()));
        }
        let before = marks.len();
        let level = self.level;
        let (Some(front), len) = (self.front.first_chunk_mut::<FRONT>(), rows.len()) else { return };
        let (mut list, mut new) = ([0u16; TOGETHER], [NOTHING; TOGETHER]);
        for (address, group) in rows.address[..len].chunks(TOGETHER).zip(rows.group[..len].chunks(TOGETHER)) {
            // Nobody can foresee what is kept, nor what is new: there is no branch on either. What is not on a list is written where the next one that is will be.
            let (mut listed, mut added) = (0, 0);
            for (at, &address) in address.iter().enumerate() {
                list[listed % TOGETHER] = at as u16;
                listed += usize::from(kept(address, level));
            }
            for &at in &list[..listed.min(TOGETHER)] {
                let mark = Mark { address: address[at as usize], group: group[at as usize], sample };
                let front = &mut front[(spread(mark.address ^ u64::from(mark.group) << 48) >> (64 - FRONT.trailing_zeros())) as usize % FRONT];
                new[added % TOGETHER] = mark;
                added += usize::from(differ(front, &(mark, space)));
                *front = (mark, space);
            }
            marks.extend_from_slice(&new[..added.min(TOGETHER)]);
        }
        self.used += marks.len() - before;
        if self.used > self.limit {
            self.compact();
        }
    }

    /// Drops pages until there is room. (Repetitions that the small cache has let through are few; sorting them out here would cost more.)
    #[cold]
    fn compact(&mut self) {
        while self.used > self.limit && self.level < 40 {
            if self.thinned < 12 && !self.has_many(MANY, |m| m.address >> PAGE) && self.has_many(SAMPLES, |m| m.sample.into()) {
                self.thinned += 1;
            } else {
                self.level += 1;
            }
            self.thin();
        }
    }

    /// Whether there are so many different values among the marks.
    fn has_many(&self, many: usize, of: impl Fn(&Mark) -> u64) -> bool {
        let (mut names, mut numbers, mut odd) = (Names::new(), [0; TOGETHER], HashSet::<u64, Mixed>::default());
        let mut before = 0;
        self.spaces.iter().any(|marks| {
            let found = marks.chunks(TOGETHER).any(|some| {
                if some.iter().fold(0, |any, m| any | of(m)) >> KEY_BITS == 0 {
                    names.number(some.iter().map(&of), &mut numbers);
                } else {
                    // Among them are some that cannot have a number.
                    for value in some.iter().map(&of) {
                        if value >> KEY_BITS == 0 {
                            names.number(std::iter::once(value), &mut numbers);
                        } else {
                            odd.insert(value);
                        }
                    }
                }
                before + names.len() + odd.len() >= many
            });
            before += names.len() + odd.len();
            names.clear();
            odd.clear();
            found
        })
    }

    fn thin(&mut self) {
        let (level, thinned) = (self.level, self.thinned);
        let keep = |marks: &mut Vec<Mark>| {
            // As good as random: no branch on it.
            let mut to = 0;
            for at in 0..marks.len() {
                let mark = marks[at];
                marks[to] = mark;
                to += usize::from(kept(mark.address, level) & kept_sample(mark.sample, thinned));
            }
            marks.truncate(to);
        };
        if level + thinned > 0 {
            self.spaces.iter_mut().for_each(keep);
        }
        self.used = self.spaces.iter().map(Vec::len).sum();
    }

    fn sort(&mut self) {
        use rayon::prelude::*;
        for marks in &mut self.spaces {
            if !marks.is_sorted() && !sort_packed(marks) {
                marks.par_sort_unstable();
            }
            marks.dedup();
        }
        self.used = self.spaces.iter().map(Vec::len).sum();
        self.end = self.spaces.iter().flatten().map(|m| m.sample.saturating_add(1)).max().unwrap_or(0);
    }

    /// All marks of several, each once, sorted by address, sample, group in each address space.
    pub fn fold(parts: Vec<Incidence>) -> Incidence {
        let level = parts.iter().map(|p| p.level).max().unwrap_or(0);
        let thinned = parts.iter().map(|p| p.thinned).max().unwrap_or(0);
        let mut all = Incidence { level, thinned, ..Incidence::default() };
        for part in parts {
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
        all.thin();
        all.sort();
        all.compact();
        all
    }

    /// Marks by address space, sorted after [`Incidence::fold`].
    pub fn spaces(&self) -> &[Vec<Mark>] {
        &self.spaces
    }

    /// Of how many pages one was kept.
    pub fn scale(&self) -> f64 {
        (1u64 << self.level) as f64
    }

    /// Log2 of [`Incidence::scale`].
    pub fn level(&self) -> u32 {
        self.level
    }

    /// Log2 of the number of samples of which the marks of one are kept.
    pub fn thinned(&self) -> u32 {
        self.thinned
    }

    /// Whether the marks of a sample are kept, if it has any.
    pub fn has(&self, sample: u32) -> bool {
        kept_sample(sample, self.thinned)
    }

    /// The marks of the samples that `keep` has.
    pub fn of_samples(&self, keep: &[bool]) -> Incidence {
        let kept = |marks: &Vec<Mark>| marks.iter().filter(|m| keep.get(m.sample as usize).copied().unwrap_or(false)).copied().collect();
        Incidence::from_parts(self.spaces.iter().map(kept).collect(), self.level, self.thinned)
    }

    /// One more than the greatest sample at most, after [`Incidence::fold`].
    pub fn samples_end(&self) -> u32 {
        self.end
    }

    /// Marks that were stored before.
    pub fn from_parts(spaces: Vec<Vec<Mark>>, level: u32, thinned: u32) -> Incidence {
        let mut all = Incidence { spaces, level, thinned, ..Incidence::default() };
        all.sort();
        all
    }
}

/// Sorts marks as single numbers, which is several times as fast, if the bits in which they differ fit into one. Whether they did.
fn sort_packed(marks: &mut [Mark]) -> bool {
    let Some(least) = marks.iter().map(|m| m.address).min() else { return true };
    let (address, group, sample) = marks.iter().fold((0, 0, 0), |(a, g, s), m| (a | (m.address - least), g | m.group, s | m.sample));
    let bits = |any: u64| 64 - any.leading_zeros();
    let (of_group, of_sample) = (bits(group.into()), bits(sample.into()));
    if bits(address) + of_group + of_sample > 64 {
        return false;
    }
    let low = of_group + of_sample;
    let mut packed: Vec<u64> = marks.iter().map(|m| ((m.address - least).checked_shl(low).unwrap_or(0)) | u64::from(m.sample) << of_group | u64::from(m.group)).collect();
    crate::radix::sort(&mut packed, |&p| p);
    for (mark, p) in marks.iter_mut().zip(packed) {
        *mark = Mark {
            address: least + p.checked_shr(low).unwrap_or(0),
            sample: (p >> of_group & ((1 << of_sample) - 1)) as u32,
            group: (p & ((1 << of_group) - 1)) as u32,
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
            incidence.add(&Rows { address: &[address], size: &[8], group: &[group], implied: &[0] }, 0, sample);
        }
        incidence
    }

    #[test]
    fn each_mark_is_kept_once_and_parts_fold_to_the_whole() {
        let mut random = 1u64;
        let accesses: Vec<(u64, u32, u32)> = (0..20_000u32)
            .map(|i| {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                ((random >> 40) % 3000 * 8, (random >> 33) as u32 % 3, i / 1000)
            })
            .collect();
        let mut expected: Vec<Mark> = accesses.iter().map(|&(address, group, sample)| Mark { address, group, sample }).collect();
        expected.sort();
        expected.dedup();
        let whole = Incidence::fold(vec![fed(usize::MAX, &accesses)]);
        assert_eq!(whole.spaces(), std::slice::from_ref(&expected));
        let (a, b) = accesses.split_at(7777);
        assert_eq!(Incidence::fold(vec![fed(usize::MAX, a), fed(usize::MAX, b)]).spaces(), [expected]);
    }

    #[test]
    fn of_few_pages_all_are_kept_and_samples_are_dropped() {
        // Eight pages, again and again: half of them would tell the footprint of a sample to no better than a third.
        let accesses: Vec<(u64, u32, u32)> = (0..400_000u64).map(|i| (i * 512 % (8 << 12), 1 + (i % 64 / 8 == 0) as u32, (i / 1000) as u32)).collect();
        let thin = Incidence::fold(vec![fed(10_000, &accesses)]);
        assert!(thin.level() == 0 && thin.thinned() > 0);
        let marks = &thin.spaces()[0];
        let mut samples: Vec<u32> = marks.iter().map(|m| m.sample).collect();
        samples.sort_unstable();
        samples.dedup();
        assert_eq!(marks.len(), 64 * samples.len(), "samples are kept whole");
        assert!(samples.iter().all(|&s| thin.has(s)) && (0..400).filter(|&s| thin.has(s)).count() == samples.len());
        assert!(samples.len() > 20 && marks.len() <= 10_000, "{}", samples.len());
    }

    #[test]
    fn different_values_are_counted_by_address_space() {
        let mut incidence = Incidence::new(usize::MAX);
        // The same pages in two processes, again and again; of each third one the address is one that no number is for, as it may be in a damaged trace.
        for i in 0..2000u64 {
            let address = (i % 300) << 12 | u64::from(i % 3 == 0) << 63;
            incidence.add(&Rows { address: &[address], size: &[8], group: &[1], implied: &[0] }, (i / 1000) as u32, i as u32);
        }
        let pages = |m: &Mark| m.address >> PAGE << 7;
        assert!(incidence.has_many(600, pages) && !incidence.has_many(601, pages));
        assert!(incidence.has_many(2000, |m| m.sample.into()) && !incidence.has_many(2001, |m| m.sample.into()));
    }

    #[test]
    fn few_pages_are_kept_whole_when_there_are_too_many_marks() {
        let accesses: Vec<(u64, u32, u32)> = (0..400_000u64).map(|i| (i * 512, 1, (i / 1000) as u32)).collect();
        let thin = Incidence::fold(vec![fed(100_000, &accesses)]);
        assert!(thin.level() > 0 && thin.thinned() == 0);
        let marks = &thin.spaces()[0];
        assert!(marks.len() <= 100_000 && marks.len() > 20_000, "{}", marks.len());
        // Eight addresses a page: all or none.
        assert!(marks.chunk_by(|a, b| a.address >> 12 == b.address >> 12).all(|page| page.len() == 8));
        let estimate = marks.len() as f64 * thin.scale();
        assert!((estimate / 400_000.0 - 1.0).abs() < 0.15, "{estimate}");
    }
}
