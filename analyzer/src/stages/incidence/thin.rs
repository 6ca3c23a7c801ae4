//! Which marks are kept where there are too many.
//!
//! A page has a *rank* by its hash: half of all pages have at least 1, a quarter at least 2, and so on; samples have ranks as well. At *level* n those marks are kept whose
//! page and sample have ranks that sum up to n at least. So there are, for each k of 0 to n, all marks of the pages of rank k that samples of rank n − k have made: from a part of the pages and a part of the samples,
//! whose sizes can be chosen at the end, when it is known how many pages and samples there are. It is 1 + n/2 times as much as one choice.
//!
//! Workers see other marks each time, and what they drop is gone. But whether a mark is kept follows from the mark and the level alone, and the level is the least at which there are not more than so many *different*
//! marks. What a worker has seen is part of what all have seen, so that its level is never above that of the whole, however marks are dealt to workers.

use crate::stages::incidence::Mark;
use mgz_models::util::hash::spread;

/// Samples whose numbers differ by a multiple of this have the same rank.
pub const ALIKE: u32 = 1 << 16;
/// Log2 of the bytes of a page.
const PAGE: u32 = 12;
/// Ranks of pages and of samples, at most.
const MOST_PAGE: u32 = 40;
const MOST_SAMPLE: u32 = 12;
/// Levels, at most: beyond this nothing would be kept.
pub(crate) const MOST: u32 = MOST_PAGE + MOST_SAMPLE;
/// Bits for each mark that is counted.
const BITS: usize = 16;
/// Places for pages of one rank, by which they are counted.
const PLACES: usize = 1 << 13;
/// So many pages are enough, if there are as many: a mean over them is known to a hundredth or two. Some share places.
const MANY: usize = 1800;
/// So many samples are enough to tell what the others have seen.
const SAMPLES: usize = 32;

/// A hash of a page. The lowest bits of the product depend on few bits of the page: take from the middle.
#[inline(always)]
fn hash(address: u64) -> u64 {
    spread((address >> PAGE) + 1) >> 20
}

/// Whether a page has a rank of at least this, which is at most [`MOST_PAGE`].
#[inline(always)]
pub(crate) fn page_has(address: u64, rank: u32) -> bool {
    hash(address) & ((1 << rank) - 1) == 0
}

/// The rank of a sample.
#[inline(always)]
pub(crate) fn rank_of_sample(sample: u32) -> u32 {
    (spread(u64::from(sample % ALIKE) + 1) >> 20)
        .trailing_zeros()
        .min(MOST_SAMPLE)
}

/// The rank that pages must have for marks of a sample to be kept at a level.
#[inline(always)]
pub(crate) fn rank_needed(sample: u32, level: u32) -> u32 {
    level.saturating_sub(rank_of_sample(sample)).min(MOST_PAGE)
}

/// Whether there are more different marks than `most` for certain, as long as all of a sample stand together: those have a bit each, and count if that was not set. Not many of them do not count.
pub(crate) fn more_than(most: usize, spaces: &[Vec<Mark>]) -> bool {
    let mut count = 0;
    let mut seen = Vec::new();
    for marks in spaces
        .iter()
        .flat_map(|marks| marks.chunk_by(|a, b| a.sample == b.sample))
    {
        // Mostly it stays in the first-level cache.
        let bits = (marks.len() * BITS).next_power_of_two().max(64);
        seen.clear();
        seen.resize(bits / 64, 0u64);
        for mark in marks {
            let bit = (spread(mark.address ^ u64::from(mark.group) << 48)
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

/// Which pages and samples are best kept of the marks of a level: the ranks that they must have, which sum up to the level. As few pages as are enough, since of these all that samples have in
/// common is kept, but of a share of the samples the square of that share; but more if there were too few samples otherwise.
pub(crate) fn choose(spaces: &[Vec<Mark>], level: u32) -> (u32, u32) {
    // By rank of a page and by a hash of it: one more than the greatest rank of a sample that has seen it.
    let ranks = level.min(MOST_PAGE) as usize;
    let mut pages = vec![0u8; (ranks + 1) * PLACES];
    let mut samples = vec![false; ALIKE as usize];
    for (space, mark) in (0..)
        .zip(spaces)
        .flat_map(|(space, marks)| marks.iter().map(move |m| (space, m)))
    {
        let hash = hash(mark.address);
        let rank = (hash.trailing_zeros() as usize).min(ranks);
        let place = &mut pages[rank * PLACES
            + (spread(hash ^ space << 60) >> (64 - PLACES.trailing_zeros())) as usize];
        *place = (*place).max(1 + rank_of_sample(mark.sample) as u8);
        samples[(mark.sample % ALIKE) as usize] = true;
    }
    let mut of_rank = [0; MOST_SAMPLE as usize + 1];
    (0..ALIKE)
        .filter(|&s| samples[s as usize])
        .for_each(|s| of_rank[rank_of_sample(s) as usize] += 1);
    let samples = |page: u32| of_rank.iter().skip((level - page) as usize).sum::<usize>();
    let pages = |page: u32| {
        pages[page as usize * PLACES..]
            .iter()
            .filter(|&&p| u32::from(p) > level - page)
            .count()
    };
    let most = level.min(MOST_PAGE);
    let enough_pages = (0..=most)
        .rev()
        .find(|&page| pages(page) >= MANY)
        .unwrap_or(0);
    let enough_samples = (0..=most).find(|&page| samples(page) >= SAMPLES);
    // Where there are few of both, some of each.
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
