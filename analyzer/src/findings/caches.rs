//! Cost of loads: the share of first touches that miss each level, and the cycles lost.
//!
//! Windows show which loads are the first in their line. Such a line may still be in a cache. This
//! depends on the memory that the code goes through until it returns to the line, its *working
//! set*. With LRU replacement, a walk through more than a cache holds always misses. Loads at
//! random places miss by the share of the data that has no room. Both are estimated as 1 − size /
//! working set here, which is too low for walks through slightly more than a cache holds.

use crate::data::memory_units::LINE_BYTES;
use crate::findings::params;
use mgz_annotations_schema::manifest::Cache;

/// A level of the memory hierarchy.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    /// Name of the level, such as `L1`.
    pub name: String,
    /// Bytes.
    pub bytes: u64,
    /// Lines per set.
    pub ways: u64,
    /// Cycles of a load that hits this level.
    pub cycles: f64,
}

/// Cache levels and memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Caches {
    /// First level first.
    pub levels: Vec<Level>,
    /// Cycles of a load from memory.
    pub memory: f64,
}

impl Default for Caches {
    /// Sizes and latencies of common machines.
    fn default() -> Caches {
        let level = |(name, bytes, ways, cycles): (&str, u64, u64, f64)| Level {
            name: name.into(),
            bytes,
            ways,
            cycles,
        };
        Caches {
            levels: params::COMMON_CACHE_LEVELS.map(level).into(),
            memory: params::MEMORY_CYCLES,
        }
    }
}

/// The processor's ability to hide a miss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Overlap {
    /// Each load waits for the one before.
    None,
    /// Several loads overlap.
    Some,
    /// A prefetcher fetches the lines ahead.
    Prefetched,
}

impl Overlap {
    /// Share of the latency that delays the program.
    fn felt(self) -> f64 {
        match self {
            Overlap::None => params::FELT_LATENCY_SHARE_IN_CHASE,
            Overlap::Some => params::FELT_LATENCY_SHARE_OVERLAPPING,
            Overlap::Prefetched => params::FELT_LATENCY_SHARE_PREFETCHED,
        }
    }
}

impl Caches {
    /// Caches of the given sizes, with the latencies of common machines.
    pub fn of(machine: &[Cache]) -> Caches {
        let mut caches = Caches::default();
        if machine.is_empty() {
            return caches;
        }
        let cycles: Vec<f64> = caches.levels.iter().map(|l| l.cycles).collect();
        caches.levels = machine
            .iter()
            .enumerate()
            .map(|(at, cache)| Level {
                name: format!("L{}", cache.level),
                bytes: cache.size,
                ways: cache.ways,
                cycles: cycles.get(at).copied().unwrap_or(cycles[cycles.len() - 1]),
            })
            .collect();
        caches
    }

    /// By level: the share of first touches that miss it. `set`: bytes of the working set.
    pub fn misses(&self, set: u64) -> Vec<f64> {
        (self.levels.iter())
            .map(|level| (1.0 - level.bytes as f64 / set.max(1) as f64).max(0.0))
            .collect()
    }

    /// Cycles of a first touch beyond a hit.
    pub fn cycles(&self, set: u64, overlap: Overlap) -> f64 {
        let misses = self.misses(set);
        let costs = (self.levels.iter().skip(1).map(|l| l.cycles)).chain([self.memory]);
        let mut before = 0.0;
        let mut sum = 0.0;
        for (miss, cost) in misses.iter().zip(costs) {
            sum += miss * (cost - before);
            before = cost;
        }
        sum * overlap.felt()
    }

    /// The last level that is smaller than the working set.
    pub fn missed(&self, set: u64) -> Option<&Level> {
        self.levels.iter().rev().find(|l| l.bytes < set)
    }

    /// True if lines that are `step` bytes apart are still cached when all of them have been
    /// loaded: in the first level by its size, in the second by its sets. Steps of a power of two
    /// use few sets.
    pub fn hold(&self, lines: f64, step: i64) -> bool {
        let holds = |level: usize, apart: u64| {
            let bytes = self.level(level).map_or(0, |l| l.bytes);
            lines * apart as f64 <= bytes as f64
        };
        holds(0, LINE_BYTES) && (self.levels.len() < 2 || holds(1, set_apart(step)))
    }

    /// A level by its number; the first is 0.
    pub fn level(&self, number: usize) -> Option<&Level> {
        self.levels.get(number)
    }

    /// Bytes of the last level.
    pub fn last(&self) -> u64 {
        self.levels.last().map_or(0, |l| l.bytes)
    }
}

/// Bytes of a cache that each line of a walk occupies, given that its steps use only some of the
/// sets.
pub fn set_apart(step: i64) -> u64 {
    let power = step.unsigned_abs().trailing_zeros().min(62);
    (1u64 << power).max(LINE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_costs_nothing() {
        let caches = Caches::default();
        assert_eq!(caches.cycles(16 << 10, Overlap::None), 0.0);
        assert!(caches.missed(16 << 10).is_none());
        assert_eq!(caches.missed(2 << 20).unwrap().name, "L2");
        let far = caches.cycles(1 << 30, Overlap::None);
        assert!(far > 200.0 && far < 220.0, "{far}");
        assert!(caches.cycles(1 << 30, Overlap::Prefetched) < 20.0);
    }

    #[test]
    fn steps_of_powers_of_two_have_few_sets() {
        let caches = Caches::default();
        // Steps of 16 KiB use sets of the second level that hold 64 lines together.
        assert!(caches.hold(64.0, 16 << 10) && !caches.hold(65.0, 16 << 10));
        // Other steps use all of its sets. The first level is the limit then.
        assert!(caches.hold(512.0, (16 << 10) + 64) && !caches.hold(513.0, 8008));
        assert_eq!([-24_576, 8, 100].map(set_apart), [8192, 64, 64]);
    }
}
