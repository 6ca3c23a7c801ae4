//! Sightings by windows of several samples: sums over all aligned windows of 1, 2, 4, … samples.

use crate::estimate::curve_order::Order;

/// Windows of 2, 4, … up to this power of two of samples.
pub(crate) const LEVELS: usize = 33;

/// Blocks in aligned windows of 1, 2, 4, … samples, summed over all such windows: the numbers of
/// blocks seen at all, by exactly one sample, by exactly two, by exactly three. They are stored as
/// differences from one level to the next, so that the time per sighting does not depend on the
/// number of levels.
pub(crate) struct Together {
    seen: [i64; LEVELS + 1],
    singles: [i64; LEVELS + 1],
    pairs: [i64; LEVELS + 1],
    triples: [i64; LEVELS + 1],
}

impl Together {
    pub(crate) fn new() -> Together {
        Together {
            seen: [0; LEVELS + 1],
            singles: [0; LEVELS + 1],
            pairs: [0; LEVELS + 1],
            triples: [0; LEVELS + 1],
        }
    }

    /// Adds the samples that have seen a block: thread and number there, sorted. Incomplete windows
    /// do not count.
    pub(crate) fn add(&mut self, places: &[(u32, u32)], lengths: &[u32]) {
        // The first level at which both samples are in the same window: above the highest bit in
        // which their numbers differ.
        let apart = |a: Option<&(u32, u32)>, b: Option<&(u32, u32)>| match (a, b) {
            (Some(a), Some(b)) if a.0 == b.0 => (32 - (a.1 ^ b.1).leading_zeros()) as usize,
            _ => LEVELS,
        };
        for (at, place) in places.iter().enumerate() {
            // The first level with an incomplete last window, found in the same way from the number
            // after the last sample.
            let whole = (32 - (place.1 ^ lengths[place.0 as usize]).leading_zeros()) as usize;
            let before = apart(at.checked_sub(1).map(|b| &places[b]), Some(place));
            let after = apart(Some(place), places.get(at + 1));
            let later = apart(places.get(at + 1), places.get(at + 2));
            let last = apart(places.get(at + 2), places.get(at + 3));
            let first = before.min(whole);
            add(&mut self.seen, 0, first);
            add(&mut self.singles, 0, first.min(after));
            add(&mut self.pairs, after, first.min(later));
            add(&mut self.triples, after.max(later), first.min(last));
        }
    }

    /// Seen blocks, singles, pairs and triples in windows of `1 << level` samples, for each level.
    pub(crate) fn levels(&self) -> impl Iterator<Item = [f64; 4]> + '_ {
        let mut sums = [0i64; 4];
        (0..LEVELS).map(move |level| {
            for (sum, steps) in
                sums.iter_mut()
                    .zip([&self.seen, &self.singles, &self.pairs, &self.triples])
            {
                *sum += steps[level];
            }
            sums.map(|s| s as f64)
        })
    }
}

/// Like [`Together`], but each window is weighted by the loads that its samples represent.
pub(crate) struct Weighed {
    pub(crate) levels: Vec<[f64; 4]>,
}

impl Weighed {
    pub(crate) fn add(&mut self, places: &[(u32, u32)], order: &Order) {
        for (level, sums) in self.levels.iter_mut().enumerate() {
            for same in places.chunk_by(|a, b| (a.0, a.1 >> level) == (b.0, b.1 >> level)) {
                let (thread, window) = (same[0].0, same[0].1 >> level);
                if window < order.lengths[thread as usize] >> level {
                    let weight = order.weight(thread, window, level);
                    sums[0] += weight;
                    sums[1] += if same.len() == 1 { weight } else { 0.0 };
                    sums[2] += if same.len() == 2 { weight } else { 0.0 };
                    sums[3] += if same.len() == 3 { weight } else { 0.0 };
                }
            }
        }
    }
}

/// Adds one to the levels `from..to`.
fn add(steps: &mut [i64; LEVELS + 1], from: usize, to: usize) {
    if from < to {
        steps[from] += 1;
        steps[to] -= 1;
    }
}

/// Remembers the samples that were seen since the last [`Once::begin`].
pub(crate) struct Once {
    /// Number of the first sample of each thread.
    starts: Vec<usize>,
    met: Vec<u32>,
    turn: u32,
}

impl Once {
    pub(crate) fn new(lengths: &[u32]) -> Once {
        let mut all = 0;
        let mut starts = Vec::with_capacity(lengths.len());
        for &length in lengths {
            starts.push(all);
            all += length as usize;
        }
        Once {
            starts,
            met: vec![0; all],
            turn: 0,
        }
    }

    pub(crate) fn begin(&mut self) {
        // The number does not overflow: there are at most `MAX_STRATA_OF_CURVE` times
        // `MAX_PARTS_OF_STRATUM` groups.
        self.turn += 1;
    }

    /// True for the first sighting in a sample of a thread.
    #[inline(always)]
    pub(crate) fn is_new(&mut self, (thread, number): (u32, u32)) -> bool {
        let met = &mut self.met[self.starts[thread as usize] + number as usize];
        std::mem::replace(met, self.turn) != self.turn
    }
}

/// The relative variance of the total weight of the samples that see a stratum (`touched`). There
/// is one sample per period, so it is half the changes between neighbours.
pub(crate) fn varies(touched: &[u64], order: &Order) -> f64 {
    if !order.is_weighed() {
        return changes(touched, &order.lengths) / 2.0 / (touched.len().max(1) as f64).powi(2);
    }
    let weight = |t: u64| order.weight((t >> 32) as u32, t as u32, 0);
    let squares: f64 = touched
        .iter()
        .enumerate()
        .map(|(at, &t)| ends(touched, at, &order.lengths) * weight(t).powi(2))
        .sum();
    squares
        / 2.0
        / touched
            .iter()
            .map(|&t| weight(t))
            .sum::<f64>()
            .powi(2)
            .max(1e-300)
}

/// Number of pairs of neighbouring samples of which only one is `touched`. `touched` is sorted and
/// has the thread in the upper bits, the sample's number in the lower bits.
fn changes(touched: &[u64], lengths: &[u32]) -> f64 {
    (0..touched.len())
        .map(|at| ends(touched, at, lengths))
        .sum()
}

/// Number of neighbours of a `touched` sample, before and after it, that are not `touched`.
fn ends(touched: &[u64], at: usize, lengths: &[u32]) -> f64 {
    let t = touched[at];
    let is = |i: Option<usize>, wanted: u64| i.and_then(|i| touched.get(i)) == Some(&wanted);
    let begins = t as u32 > 0 && !is(at.checked_sub(1), t.wrapping_sub(1));
    let ends = (t as u32) + 1 < lengths[(t >> 32) as usize] && !is(Some(at + 1), t + 1);
    f64::from(u32::from(begins) + u32::from(ends))
}
