//! Miss ratio of fully associative LRU caches of all sizes, from reuse distances (Mattson et al.
//! 1970): an access with D distinct blocks in between hits if and only if the cache holds more than
//! D blocks.

use crate::histogram::Bin;

/// Miss ratio by cache size.
pub struct MissRatio {
    /// Steps: first value of a bin, number of values from there on (first touches included), and
    /// number per unit of value inside the bin.
    steps: Vec<(f64, f64, f64)>,
    cold: f64,
    total: f64,
}

impl MissRatio {
    /// From distances (bins ascending), first touches, and accesses that always hit (implied
    /// loads).
    pub fn new(bins: impl DoubleEndedIterator<Item = Bin>, cold: f64, hits: f64) -> MissRatio {
        let mut beyond = cold;
        let mut steps = Vec::new();
        for bin in bins.rev() {
            let width = bin.to - bin.from;
            steps.push((bin.to, beyond, 0.0));
            beyond += bin.count;
            steps.push((bin.from, beyond, bin.count / width));
        }
        steps.reverse();
        MissRatio {
            steps,
            cold,
            total: beyond + hits,
        }
    }

    /// Misses in a cache of `blocks` blocks. Values are assumed to be evenly spread inside a bin.
    pub fn misses(&self, blocks: f64) -> f64 {
        let next = self.steps.partition_point(|s| s.0 <= blocks);
        match next.checked_sub(1) {
            None => self.steps.first().map_or(self.cold, |s| s.1),
            Some(at) => {
                let (from, beyond, fall) = self.steps[at];
                beyond - fall * (blocks - from)
            }
        }
    }

    /// Share of the accesses that miss; 0 if there are none.
    pub fn ratio(&self, blocks: f64) -> f64 {
        if self.total > 0.0 {
            self.misses(blocks) / self.total
        } else {
            0.0
        }
    }

    /// The curve: the ratio at sizes 1, 2, 4, … blocks, `per_octave` points in each doubling, until
    /// only first touches miss.
    pub fn curve(&self, per_octave: u32) -> Vec<(u64, f64)> {
        let end = self.steps.last().map_or(1.0, |s| s.0).max(1.0);
        let mut out: Vec<(u64, f64)> = Vec::new();
        for step in 0.. {
            let size = (f64::from(step) / f64::from(per_octave.max(1)))
                .exp2()
                .round();
            if out.last().is_none_or(|l| l.0 != size as u64) {
                out.push((size as u64, self.ratio(size)));
            }
            if size >= end {
                return out;
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::{Fine, TRACE_BITS};
    use proptest::prelude::*;

    #[test]
    fn the_example_of_barai_figure_1() {
        // a b a c b d d a: half are compulsory misses; with cache size 3, 13% more are capacity
        // misses.
        let mut fine = Fine::new(TRACE_BITS);
        [1, 2, 0, 3].into_iter().for_each(|d| fine.add(d));
        let ratio = MissRatio::new(fine.bins(), 4.0, 0.0);
        assert_eq!(ratio.ratio(4.0), 0.5);
        assert_eq!(ratio.ratio(3.0), 0.625);
        assert_eq!(
            (ratio.ratio(0.0), ratio.ratio(1.0), ratio.ratio(2.0)),
            (1.0, 0.875, 0.75)
        );
        assert_eq!(ratio.curve(1), [(1, 0.875), (2, 0.75), (4, 0.5)]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn agrees_with_an_lru_cache(trace in prop::collection::vec(0u64..40, 1..300), size in 1usize..45) {
            let mut stack: Vec<u64> = Vec::new();
            let mut fine = Fine::new(TRACE_BITS);
            let (mut misses, mut cold) = (0u32, 0u32);
            let mut cache: Vec<u64> = Vec::new();
            for block in &trace {
                match cache.iter().position(|b| b == block) {
                    Some(at) => { cache.remove(at); }
                    None => misses += 1,
                }
                cache.insert(0, *block);
                cache.truncate(size);
                match stack.iter().rposition(|b| b == block) {
                    Some(at) => { fine.add((stack.len() - 1 - at) as u64); stack.remove(at); }
                    None => cold += 1,
                }
                stack.push(*block);
            }
            let ratio = MissRatio::new(fine.bins(), f64::from(cold), 0.0);
            prop_assert!((ratio.misses(size as f64) - f64::from(misses)).abs() < 1e-9);
        }
    }
}
