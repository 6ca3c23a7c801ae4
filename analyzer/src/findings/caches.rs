//! What a load costs: which share of the loads of some memory miss each level, and the cycles lost.
//!
//! A window tells which loads are the first in their line there. Whether such a line was in a cache from before depends on how much
//! memory the code goes through until it comes back, its *working set*. Under least recently used replacement a walk through more than
//! a cache holds misses always; loads at random places miss by the share that has no room. Both are 1 − size / set here, and nothing
//! is said of sets that are only a little larger.

use mgz_annotations_schema::manifest::Cache;

/// A level of the memory hierarchy.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    /// Its name.
    pub name: String,
    /// Bytes.
    pub bytes: u64,
    /// Lines of a set.
    pub ways: u64,
    /// Cycles that a load takes that finds its line there.
    pub cycles: f64,
}

/// The levels, from the nearest on, and what memory costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Caches {
    /// From the first level on.
    pub levels: Vec<Level>,
    /// Cycles of a load from memory.
    pub memory: f64,
}

impl Default for Caches {
    /// Those of common machines.
    fn default() -> Caches {
        let level = |name: &str, bytes, ways, cycles| Level {
            name: name.into(),
            bytes,
            ways,
            cycles,
        };
        Caches {
            levels: vec![
                level("L1", 32 << 10, 8, 4.0),
                level("L2", 1 << 20, 16, 14.0),
                level("L3", 32 << 20, 16, 50.0),
            ],
            memory: 220.0,
        }
    }
}

/// How well the processor hides that a load misses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Overlap {
    /// Each load waits for the one before.
    None,
    /// Several loads are under way at a time.
    Some,
    /// A prefetcher is ahead.
    Prefetched,
}

impl Overlap {
    /// The part of the latency that is felt.
    fn felt(self) -> f64 {
        match self {
            Overlap::None => 1.0,
            Overlap::Some => 0.25,
            Overlap::Prefetched => 0.08,
        }
    }
}

/// Bytes of the TLB's reach on common machines, for pages of 4 KiB.
pub const TLB_REACH: u64 = 2048 * 4096;

impl Caches {
    /// Caches of these sizes, with the latencies of common machines.
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

    /// The share of first touches that miss a level, by level.
    pub fn misses(&self, set: u64) -> Vec<f64> {
        (self.levels.iter())
            .map(|level| (1.0 - level.bytes as f64 / set.max(1) as f64).max(0.0))
            .collect()
    }

    /// Cycles that a first touch costs beyond a hit.
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

    /// The last level that a set does not fit.
    pub fn missed(&self, set: u64) -> Option<&Level> {
        self.levels.iter().rev().find(|l| l.bytes < set)
    }

    /// Whether so many lines that are a step apart are still in the second level when the last of them was loaded, and in the first as far as its size tells. A step of a power of two comes
    /// to few sets only.
    pub fn hold(&self, lines: f64, step: i64) -> bool {
        let holds = |level: usize, apart: u64| {
            let bytes = self.level(level).map_or(0, |l| l.bytes);
            lines * apart as f64 <= bytes as f64
        };
        holds(0, LINE) && (self.levels.len() < 2 || holds(1, set_apart(step)))
    }

    /// The level.
    pub fn level(&self, number: usize) -> Option<&Level> {
        self.levels.get(number)
    }

    /// The last level's bytes.
    pub fn last(&self) -> u64 {
        self.levels.last().map_or(0, |l| l.bytes)
    }
}

/// Bytes of a line.
const LINE: u64 = 64;

/// Bytes of a cache that each line takes of a walk in such steps: as much as its sets are apart.
pub fn set_apart(step: i64) -> u64 {
    let power = step.unsigned_abs().trailing_zeros().min(62);
    (1u64 << power).max(LINE)
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
        // 64 lines are in the sets of the second level that steps of 16 KiB come to.
        assert!(caches.hold(64.0, 16 << 10) && !caches.hold(65.0, 16 << 10));
        // Others come to all of its sets, and the first level is the limit.
        assert!(caches.hold(512.0, (16 << 10) + 64) && !caches.hold(513.0, 8008));
        assert_eq!([-24_576, 8, 100].map(set_apart), [8192, 64, 64]);
    }
}
