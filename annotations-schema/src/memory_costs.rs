//! Measured latency and bandwidth of a machine's caches and memory.

use serde::{Deserialize, Serialize};

/// With fewer repetitions no spread is given.
pub const MIN_REPETITIONS_OF_SPREAD: u32 = 3;

/// Costs of memory accesses on one machine. `docs/reference/trace.md` has the fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryCosts {
    /// Time of the measurement: RFC 3339, UTC.
    pub measured: String,
    /// The machine is virtual, so other guests add noise.
    pub virtual_machine: bool,
    /// The kernel's setting for transparent huge pages: `always`, `madvise` or `never`. Empty if
    /// unknown.
    pub huge_pages: String,
    /// The caches, first level first, then memory.
    pub levels: Vec<LevelCosts>,
    /// Additional nanoseconds of a load whose page of 4 KiB is not in the TLB, while the page
    /// tables are in caches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_walk_ns: Option<Spread>,
    /// Latencies of larger working sets that would fit into the last cache, the smallest set first.
    /// Other guests of a virtual machine may use most of that cache.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub larger_sets: Vec<SetCosts>,
    /// Other programs ran during the measurement, and left less than half of the last cache. Another
    /// run measures again.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub disturbed: bool,
    /// Sentences on missing or unusual values.
    pub notes: Vec<String>,
}

/// Latency of a working set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SetCosts {
    /// Size of the accessed memory, bytes.
    pub working_set: u64,
    /// Nanoseconds of a load whose address comes from the previous load, in random order, with
    /// pages of 2 MiB if the kernel provides them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<Spread>,
}

/// Costs of loads served by one level.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LevelCosts {
    /// 1 for the first cache; 0 for memory.
    pub level: u32,
    /// Bytes of the cache; 0 for memory.
    pub size: u64,
    /// Size of the accessed memory, bytes.
    pub working_set: u64,
    /// The lines were flushed from all caches before they were accessed.
    pub flushed: bool,
    /// Nanoseconds of a load whose address comes from the previous load, in random order, with
    /// pages of 4 KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<Spread>,
    /// As `latency_ns`, with pages of 2 MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_huge_ns: Option<Spread>,
    /// Memory: the latency over 256 MiB in pages of 4 KiB, whose page tables exceed the caches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub far_ns: Option<Spread>,
    /// Nanoseconds per load of eight such chains in parallel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_ns: Option<Spread>,
    /// Nanoseconds of a load whose address comes from the previous load, from line to line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequential_ns: Option<Spread>,
    /// As `sequential_ns`, from each fourth line to the next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strided_ns: Option<Spread>,
    /// Bytes per nanosecond of independent loads from word to word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth_gbs: Option<Spread>,
}

/// The distribution of a value over repetitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Spread {
    /// Minimum.
    pub min: f64,
    /// Lower quartile.
    pub q1: f64,
    /// Median.
    pub median: f64,
    /// Upper quartile.
    pub q3: f64,
    /// Number of repetitions.
    pub repetitions: u32,
}

impl Spread {
    /// The distribution of some values; `None` without a finite positive one.
    pub fn of(values: &[f64]) -> Option<Spread> {
        let mut sorted: Vec<f64> = (values.iter().copied())
            .filter(|v| v.is_finite() && *v > 0.0)
            .collect();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        let quantile = |part: f64| {
            let place = part * last as f64;
            let (below, above) = (place.floor() as usize, place.ceil() as usize);
            sorted[below] + (sorted[above] - sorted[below]) * (place - place.floor())
        };
        Some(Spread {
            min: sorted[0],
            q1: quantile(0.25),
            median: quantile(0.5),
            q3: quantile(0.75),
            repetitions: sorted.len() as u32,
        })
    }

    /// Minimum, median and upper quartile, if they are finite, positive and in order. `None` with
    /// too few repetitions.
    pub fn ends(&self) -> Option<[f64; 3]> {
        let ends = [self.min, self.median, self.q3];
        let is_good = self.repetitions >= MIN_REPETITIONS_OF_SPREAD
            && ends.iter().all(|e| e.is_finite() && *e > 0.0)
            && ends.is_sorted();
        is_good.then_some(ends)
    }
}

impl LevelCosts {
    /// `L1`, `memory`.
    pub fn name(&self) -> String {
        match self.level {
            0 => "memory".into(),
            level => format!("L{level}"),
        }
    }
}

/// If the latencies of the last cache and of memory differ by a smaller factor, they do not show
/// which of them serves a working set.
const MIN_RATIO_OF_MEMORY: f64 = 1.3;

impl MemoryCosts {
    /// True if much less of the last cache is left than its size: less than half.
    pub fn has_little_of_last_cache(&self) -> bool {
        let size = self.levels.iter().map(|l| l.size).max().unwrap_or(0);
        self.held_by_last_cache()
            .is_some_and(|held| 2 * held < size)
    }

    /// Size of the working sets that fit into the last cache, if it is less than the cache's size,
    /// bytes. `None` if it is not known to be less.
    pub fn held_by_last_cache(&self) -> Option<u64> {
        let caches = self.levels.iter().filter(|l| l.level > 0);
        let last = caches.max_by_key(|l| l.level)?;
        let memory = self.levels.iter().find(|l| l.level == 0)?;
        let latency = |costs: &LevelCosts| {
            let known = costs.latency_huge_ns.as_ref().or(costs.latency_ns.as_ref());
            known.and_then(Spread::ends).map(|ends| ends[1])
        };
        let (from, to) = (latency(last)?, latency(memory)?);
        if to < MIN_RATIO_OF_MEMORY * from {
            return None;
        }
        let mut held = last.working_set;
        for set in &self.larger_sets {
            let [_, ns, _] = set.latency_ns.as_ref()?.ends()?;
            if ns > (from + to) / 2.0 {
                let between = (held as f64 * set.working_set as f64).sqrt() as u64;
                return Some(between).filter(|&bytes| bytes < last.size);
            }
            held = set.working_set;
        }
        None
    }

    /// Nanoseconds of a page walk, with the ends of its interval: from page tables in caches to
    /// those of 256 MiB.
    pub fn page_walk(&self) -> Option<[f64; 3]> {
        let [near, middle, above] = self.page_walk_ns.as_ref()?.ends()?;
        let memory = self.levels.iter().find(|l| l.level == 0);
        let far = memory.and_then(|m| {
            let far = m.far_ns.as_ref()?.ends()?;
            Some(far[2] - m.latency_huge_ns.as_ref()?.ends()?[1])
        });
        let most = far.unwrap_or(above).max(above);
        Some([near, (middle * most).sqrt(), most])
    }

    /// Remaining share of the memory latency per load if eight loads overlap.
    pub fn overlap(&self) -> Option<f64> {
        let memory = self.levels.iter().find(|l| l.level == 0)?;
        let [alone, eight] = [&memory.latency_ns, &memory.parallel_ns]
            .map(|spread| spread.as_ref().and_then(Spread::ends).map(|ends| ends[1]));
        Some((eight? / alone?).min(1.0))
    }

    /// Nanoseconds of a dependent load that a level serves, with the ends of its interval. `level`:
    /// number of the cache, with its size, or 0 for memory. Pages are the default ones of programs.
    /// The lower end is that of huge pages, without page walks; the upper end of memory includes
    /// walks through page tables in memory.
    pub fn latency(&self, level: u32, size: u64) -> Option<[f64; 3]> {
        let costs = (self.levels.iter()).find(|l| (l.level, l.size) == (level, size))?;
        let [small, huge] =
            [&costs.latency_ns, &costs.latency_huge_ns].map(|l| l.as_ref().and_then(Spread::ends));
        let [lo, value, hi] = match (small, huge) {
            (Some(small), Some(huge)) if self.huge_pages == "always" => {
                [huge[0].min(small[0]), huge[1], huge[2].max(small[2])]
            }
            (Some(small), Some(huge)) => [small[0].min(huge[0]), small[1], small[2]],
            (one, other) => one.or(other)?,
        };
        let far = costs.far_ns.as_ref().and_then(Spread::ends);
        Some([lo, value, far.map_or(hi, |far| hi.max(far[2]))])
    }

    /// Nanoseconds of a load whose line a prefetcher has fetched from a level: in a walk from line to
    /// line, and in one over each fourth line. The level is named as in [`MemoryCosts::latency`].
    pub fn prefetched(&self, level: u32, size: u64) -> Option<[f64; 2]> {
        let level = (self.levels.iter()).find(|l| (l.level, l.size) == (level, size))?;
        let sequential = level.sequential_ns.as_ref()?.ends()?[1];
        let strided = level.strided_ns.as_ref()?.ends()?[1];
        Some([sequential, strided.max(sequential)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_the_quartiles_of_good_values() {
        let spread = Spread::of(&[4.0, 1.0, f64::NAN, 2.0, 3.0, 5.0, -1.0]).unwrap();
        assert_eq!(
            (spread.min, spread.q1, spread.median, spread.q3),
            (1.0, 2.0, 3.0, 4.0)
        );
        assert_eq!(spread.repetitions, 5);
        assert_eq!(spread.ends(), Some([1.0, 3.0, 4.0]));
        assert_eq!(Spread::of(&[f64::INFINITY, 0.0]), None);
        assert_eq!(Spread::default().ends(), None);
        assert_eq!(Spread::of(&[1.0, 2.0]).unwrap().ends(), None);
    }

    #[test]
    fn other_guests_leave_a_part_of_the_last_cache() {
        let of = |ns: f64| Spread::of(&[ns, ns, ns]);
        let level = |level, size, ns, working_set| LevelCosts {
            level,
            size,
            working_set,
            latency_ns: of(ns),
            ..LevelCosts::default()
        };
        let set = |mib: u64, ns: f64| SetCosts {
            working_set: mib << 20,
            latency_ns: of(ns),
        };
        let mut costs = MemoryCosts {
            levels: vec![
                level(3, 260 << 20, 40.0, 8 << 20),
                level(0, 0, 140.0, 32 << 20),
            ],
            larger_sets: vec![set(16, 50.0), set(64, 120.0)],
            ..MemoryCosts::default()
        };
        assert_eq!(costs.held_by_last_cache(), Some(32 << 20));
        assert!(costs.has_little_of_last_cache());
        costs.levels[0].size = 60 << 20;
        assert!(!costs.has_little_of_last_cache());
        costs.larger_sets.pop();
        assert_eq!(costs.held_by_last_cache(), None);
        costs.larger_sets = vec![set(16, 130.0)];
        costs.levels[0].latency_ns = of(120.0);
        assert_eq!(costs.held_by_last_cache(), None);
    }

    #[test]
    fn page_walks_reach_from_cached_tables_to_far_ones() {
        let of = |ns: f64| Spread::of(&[ns, ns, ns]);
        let mut costs = MemoryCosts {
            levels: vec![LevelCosts {
                latency_ns: of(140.0),
                latency_huge_ns: of(120.0),
                far_ns: of(160.0),
                parallel_ns: of(14.0),
                ..LevelCosts::default()
            }],
            ..MemoryCosts::default()
        };
        assert_eq!(costs.page_walk(), None);
        costs.page_walk_ns = of(10.0);
        assert_eq!(costs.page_walk(), Some([10.0, 20.0, 40.0]));
        assert_eq!(costs.overlap(), Some(0.1));
    }

    #[test]
    fn huge_pages_are_in_the_interval() {
        let of = |min: f64| Spread::of(&[min, min + 1.0, min + 2.0]);
        let mut costs = MemoryCosts {
            levels: vec![LevelCosts {
                level: 3,
                size: 1 << 25,
                latency_ns: of(50.0),
                latency_huge_ns: of(30.0),
                ..LevelCosts::default()
            }],
            ..MemoryCosts::default()
        };
        assert_eq!(costs.latency(3, 1 << 25), Some([30.0, 51.0, 51.5]));
        assert_eq!(costs.latency(3, 1 << 24), None);
        assert_eq!(costs.latency(0, 0), None);
        costs.levels[0].far_ns = of(90.0);
        assert_eq!(costs.latency(3, 1 << 25), Some([30.0, 51.0, 91.5]));
        costs.levels[0].far_ns = None;
        costs.huge_pages = "always".into();
        assert_eq!(costs.latency(3, 1 << 25), Some([30.0, 31.0, 51.5]));
    }
}
