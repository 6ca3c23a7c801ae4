//! Selection of marks if there are too many.
//!
//! A page has a *rank* by its hash: half of all pages have at least 1, a quarter at least 2, and so
//! on. Samples have ranks as well. At *level* n, a mark is kept if the ranks of its page and its
//! sample add up to at least n. So for each k from 0 to n, there are all marks of pages of rank k
//! in samples of rank n − k: a part of the pages and a part of the samples. The sizes of these
//! parts can be chosen at the end, when the numbers of pages and samples are known. This takes 1 +
//! n/2 times as much memory as a single choice.
//!
//! Workers see different marks each time, and dropped marks are lost. But only the mark and the
//! level decide if a mark is kept, and the level is the least one with at most the limit of
//! *distinct* marks. A worker has seen only a part of all marks, so its level never exceeds that of
//! the whole, for any distribution of marks to workers.

use crate::data::memory_units::Page;
use crate::stages::incidence::Mark;
use mgz_models::util::hash::spread;

/// Samples whose numbers differ by a multiple of this have the same rank.
pub const SAMPLE_RANK_PERIOD: u32 = 1 << 16;
/// Maximum rank of a page.
const MAX_PAGE_RANK: u32 = 40;
/// Maximum rank of a sample.
const MAX_SAMPLE_RANK: u32 = 12;
/// Maximum number of levels: beyond this nothing would be kept.
pub(crate) const MAX_LEVELS: u32 = MAX_PAGE_RANK + MAX_SAMPLE_RANK;
/// Size of the bit map, in bits per counted mark.
const BITS: usize = 16;
/// Slots of the table that counts the pages of one rank.
const RANK_PLACES: usize = 1 << 13;
/// Number of pages that is enough, if there are as many: a mean over them has an error of one or
/// two percent. (Some pages share slots.)
const ENOUGH_PAGES: usize = 1800;
/// Number of samples that is enough to represent the others. Source: Chosen.
const ENOUGH_SAMPLES: usize = 32;

/// A hash of a page. It uses the middle bits of the product, since the lowest ones depend on few
/// bits of the page.
#[inline(always)]
fn hash(address: u64) -> u64 {
    spread(Page::of(address).number() + 1) >> 20
}

/// True if a page has at least this rank, which is at most [`MAX_PAGE_RANK`].
#[inline(always)]
pub(crate) fn page_has(address: u64, rank: u32) -> bool {
    hash(address) & ((1 << rank) - 1) == 0
}

/// The rank of a sample.
#[inline(always)]
pub(crate) fn rank_of_sample(sample: u32) -> u32 {
    (spread(u64::from(sample % SAMPLE_RANK_PERIOD) + 1) >> 20)
        .trailing_zeros()
        .min(MAX_SAMPLE_RANK)
}

/// The rank that pages must have for marks of a sample to be kept at a level.
#[inline(always)]
pub(crate) fn rank_needed(sample: u32, level: u32) -> u32 {
    level
        .saturating_sub(rank_of_sample(sample))
        .min(MAX_PAGE_RANK)
}

/// True if there are certainly more distinct marks than `most`, provided that all marks of a sample
/// are adjacent. Each mark sets a bit, and counts if the bit was not set. A few marks share bits
/// and do not count.
pub(crate) fn more_than(most: usize, spaces: &[Vec<Mark>]) -> bool {
    let mut count = 0;
    let mut seen = Vec::new();
    for marks in spaces
        .iter()
        .flat_map(|marks| marks.chunk_by(|a, b| a.sample == b.sample))
    {
        // This mostly fits into the first-level cache.
        let bits = (marks.len() * BITS).next_power_of_two().max(64);
        seen.clear();
        seen.resize(bits / 64, 0u64);
        for mark in marks {
            let bit = (spread(mark.address ^ u64::from(mark.group.raw()) << 48)
                >> (64 - bits.trailing_zeros())) as usize;
            let word = &mut seen[bit / 64];
            count += usize::from(*word >> (bit % 64) & 1 == 0);
            *word |= 1 << (bit % 64);
        }
        if count > most {
            return true;
        }
    }
    false
}

/// Best ranks of pages and samples for the marks of a level. The ranks sum up to the level. The
/// minimum number of pages is chosen: a kept page keeps all marks that samples share, but if only a
/// share of the samples is kept, only the square of that share remains. More pages are chosen if
/// there would be too few samples.
pub(crate) fn choose(spaces: &[Vec<Mark>], level: u32) -> (u32, u32) {
    // By rank of a page and a hash of it: one more than the greatest rank of the samples that saw
    // it.
    let ranks = level.min(MAX_PAGE_RANK) as usize;
    let mut pages = vec![0u8; (ranks + 1) * RANK_PLACES];
    let mut samples = vec![false; SAMPLE_RANK_PERIOD as usize];
    for (space, mark) in (0..)
        .zip(spaces)
        .flat_map(|(space, marks)| marks.iter().map(move |m| (space, m)))
    {
        let hash = hash(mark.address);
        let rank = (hash.trailing_zeros() as usize).min(ranks);
        let place = &mut pages[rank * RANK_PLACES
            + (spread(hash ^ space << 60) >> (64 - RANK_PLACES.trailing_zeros())) as usize];
        *place = (*place).max(1 + rank_of_sample(mark.sample) as u8);
        samples[(mark.sample % SAMPLE_RANK_PERIOD) as usize] = true;
    }
    let mut of_rank = [0; MAX_SAMPLE_RANK as usize + 1];
    (0..SAMPLE_RANK_PERIOD)
        .filter(|&s| samples[s as usize])
        .for_each(|s| of_rank[rank_of_sample(s) as usize] += 1);
    let samples = |page: u32| of_rank.iter().skip((level - page) as usize).sum::<usize>();
    let pages = |page: u32| {
        pages[page as usize * RANK_PLACES..]
            .iter()
            .filter(|&&p| u32::from(p) > level - page)
            .count()
    };
    let most = level.min(MAX_PAGE_RANK);
    let enough_pages = (0..=most)
        .rev()
        .find(|&page| pages(page) >= ENOUGH_PAGES)
        .unwrap_or(0);
    let enough_samples = (0..=most).find(|&page| samples(page) >= ENOUGH_SAMPLES);
    // If there are few of both, a part of each is chosen.
    let page = enough_samples.map_or_else(
        || {
            (0..=most)
                .rev()
                .max_by_key(|&page| pages(page) * samples(page))
                .unwrap_or(0)
        },
        |page| page.max(enough_pages),
    );
    (page, level - page)
}
