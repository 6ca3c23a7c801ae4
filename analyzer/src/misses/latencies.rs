//! Additional time of a load that misses a level: measured on the machine of the trace, or assumed.

use crate::data::memory_units::LINE_BYTES;
use crate::misses::{Range, params};
use mgz_annotations_schema::manifest::Cache;
use mgz_annotations_schema::memory_costs::MemoryCosts;
use serde::Serialize;

/// Source of latencies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LatencySource {
    /// Latencies of common machines. Their error is unknown.
    #[default]
    Assumed,
    /// Measured on the machine, with an interval.
    Measured,
}

/// Caches to predict misses for, and the time that a miss takes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hierarchy {
    /// First level first.
    pub caches: Vec<Cache>,
    /// Bytes of the last cache by the processor, if measurements show that less is left.
    processor_size: Option<u64>,
    /// By level: additional nanoseconds of a load that misses it.
    waits: Vec<Range>,
    source: LatencySource,
    /// Measured share of a latency that remains if eight loads overlap.
    overlap: Option<f64>,
    /// By level: additional nanoseconds of a load that misses it if its line was prefetched; in a
    /// walk from line to line, and in one with longer steps. Empty if not measured.
    prefetched: Vec<[f64; 2]>,
    /// Nanoseconds per line that is read from memory at full bandwidth, if measured.
    line_ns: Option<f64>,
}

/// Misses of the TLB, predicted like those of caches whose lines are pages.
pub(crate) fn tlb(costs: Option<&MemoryCosts>) -> Hierarchy {
    let level = |(level, entries): (u32, u64)| Cache {
        level,
        size: entries * LINE_BYTES,
        ways: params::WAYS_OF_TLB,
        line: LINE_BYTES,
        shared_by: 1,
    };
    let entries = params::ENTRIES_OF_TLB;
    let walk = costs.and_then(MemoryCosts::page_walk);
    Hierarchy {
        caches: (1..).zip(entries).map(level).collect(),
        processor_size: None,
        waits: vec![
            params::NS_OF_FIRST_TLB_MISS,
            walk.unwrap_or(params::NS_OF_PAGE_WALK),
        ],
        source: match walk {
            Some(_) => LatencySource::Measured,
            None => LatencySource::Assumed,
        },
        overlap: costs.and_then(MemoryCosts::overlap),
        prefetched: Vec::new(),
        line_ns: None,
    }
}

impl Hierarchy {
    /// Caches with the measured costs of the machine, if these are complete and belong to the same
    /// caches.
    pub fn new(caches: Vec<Cache>, costs: Option<&MemoryCosts>) -> Hierarchy {
        match costs.and_then(|costs| measured(&caches, costs)) {
            Some(waits) => {
                let held = costs.and_then(MemoryCosts::held_by_last_cache);
                let mut hierarchy = Hierarchy {
                    prefetched: (costs.and_then(|costs| prefetched(&caches, costs)))
                        .unwrap_or_default(),
                    caches,
                    processor_size: None,
                    waits,
                    source: LatencySource::Measured,
                    overlap: costs.and_then(MemoryCosts::overlap),
                    line_ns: costs.and_then(line_ns),
                };
                if let Some(held) = held {
                    hierarchy.share_last_cache(held);
                }
                hierarchy
            }
            None => Hierarchy {
                waits: (0..caches.len())
                    .map(|level| [assumed(level, caches.len()); 3])
                    .collect(),
                caches,
                processor_size: None,
                source: LatencySource::Assumed,
                overlap: None,
                prefetched: Vec::new(),
                line_ns: None,
            },
        }
    }

    /// Limits the last cache to the `held` bytes that other guests of the machine leave. The limit
    /// varies with time, so loads that reach this cache may take as long as from memory.
    fn share_last_cache(&mut self, held: u64) {
        let Some(last) = self.caches.len().checked_sub(1) else {
            return;
        };
        let set = self.caches[last].ways * self.caches[last].line;
        self.processor_size = Some(self.caches[last].size);
        self.caches[last].size = held.max(set) / set.max(1) * set;
        let beyond = self.waits[last][1];
        self.waits[last][0] = 0.0;
        if let Some(before) = last.checked_sub(1) {
            self.waits[before][2] += beyond;
        }
    }

    /// Bytes of a cache by the processor, if measurements show that less is left. Level 0 is the
    /// first.
    pub(crate) fn processor_size(&self, level: usize) -> Option<u64> {
        let is_last = level + 1 == self.caches.len();
        self.processor_size.filter(|_| is_last)
    }

    /// Share of a latency that remains if several loads overlap, as measured on the machine.
    pub(crate) fn overlap(&self) -> Option<f64> {
        self.overlap
    }

    /// Additional nanoseconds of a load that misses a level, with the ends of the interval. Level 0
    /// is the first. Assumed ones have no interval.
    pub fn wait_ns(&self, level: usize) -> Range {
        self.waits.get(level).copied().unwrap_or_default()
    }

    /// Additional nanoseconds of a load that misses a level if a prefetcher has fetched its line; in
    /// a walk from line to line, and in one with longer steps. None if not measured.
    pub(crate) fn prefetched_ns(&self, level: usize) -> Option<[f64; 2]> {
        self.prefetched.get(level).copied()
    }

    /// Nanoseconds per line that is read from memory at full bandwidth. None if not measured.
    pub(crate) fn line_ns(&self) -> Option<f64> {
        self.line_ns
    }

    /// Source of the latencies.
    pub fn source(&self) -> LatencySource {
        self.source
    }

    /// True if latencies were measured on the machine of the trace.
    pub fn is_measured(&self) -> bool {
        self.source == LatencySource::Measured
    }
}

fn line_ns(costs: &MemoryCosts) -> Option<f64> {
    let memory = costs.levels.iter().find(|l| l.level == 0)?;
    let bytes_per_ns = memory.bandwidth_gbs.as_ref()?.median;
    (bytes_per_ns > 0.0).then(|| LINE_BYTES as f64 / bytes_per_ns)
}

fn assumed(level: usize, levels: usize) -> f64 {
    let [first, middle, last] = params::WAIT_NS_OF_FIRST_MIDDLE_LAST_LEVEL;
    match level {
        _ if level + 1 == levels => last,
        0 => first,
        _ => middle,
    }
}

/// Differences of the latencies of neighboring levels. None if one is unknown, or if a level is
/// much faster than the previous one.
fn measured(caches: &[Cache], costs: &MemoryCosts) -> Option<Vec<Range>> {
    let of_caches = caches.iter().map(|c| costs.latency(c.level, c.size));
    let latencies: Vec<Range> = of_caches
        .chain([costs.latency(0, 0)])
        .collect::<Option<_>>()?;
    let step = |pair: &[Range]| {
        let [[from_lo, from, from_hi], [to_lo, to, to_hi]] = [pair[0], pair[1]];
        let wait = (to - from).max(0.0);
        let (less, more) = (
            (to - to_lo).hypot(from_hi - from),
            (to_hi - to).hypot(from - from_lo),
        );
        (to >= params::MIN_RATIO_OF_LATENCIES * from).then_some([
            (wait - less).max(0.0),
            wait,
            wait + more,
        ])
    };
    latencies.windows(2).map(step).collect()
}

/// Differences of the times of neighboring levels if lines are prefetched. None if one is unknown.
fn prefetched(caches: &[Cache], costs: &MemoryCosts) -> Option<Vec<[f64; 2]>> {
    let of_caches = caches.iter().map(|c| costs.prefetched(c.level, c.size));
    let times: Vec<[f64; 2]> = of_caches
        .chain([costs.prefetched(0, 0)])
        .collect::<Option<_>>()?;
    let step = |pair: &[[f64; 2]]| {
        let [near, far] = [0, 1].map(|way: usize| (pair[1][way] - pair[0][way]).max(0.0));
        [near, far.max(near)]
    };
    Some(times.windows(2).map(step).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::misses::caches;
    use mgz_annotations_schema::memory_costs::{LevelCosts, SetCosts, Spread};

    fn costs(caches: &[Cache], ns: &[f64]) -> MemoryCosts {
        let places = caches.iter().map(|c| (c.level, c.size)).chain([(0, 0)]);
        let levels = places.zip(ns).map(|((level, size), &ns)| LevelCosts {
            level,
            size,
            latency_ns: Spread::of(&[0.9 * ns, ns, 1.2 * ns]),
            ..LevelCosts::default()
        });
        MemoryCosts {
            levels: levels.collect(),
            ..MemoryCosts::default()
        }
    }

    #[test]
    fn measured_latencies_replace_assumed_ones() {
        let caches = caches::typical();
        let assumed = Hierarchy::new(caches.clone(), None);
        assert_eq!(assumed.wait_ns(0), [3.0; 3]);
        assert_eq!(assumed.wait_ns(2), [80.0; 3]);
        assert_eq!(assumed.wait_ns(3), [0.0; 3]);
        assert!(!assumed.is_measured());
        let of = |ns: &[f64]| Hierarchy::new(caches.clone(), Some(&costs(&caches, ns)));
        let measured = of(&[2.0, 6.0, 50.0, 130.0]);
        assert!(measured.is_measured());
        let [lo, wait, hi] = measured.wait_ns(2);
        assert!(
            (wait - 80.0).abs() < 1e-9 && lo < 70.0 && hi > 90.0,
            "{lo} {wait} {hi}"
        );
        // The last cache is no faster than memory.
        let [lo, wait, hi] = of(&[2.0, 6.0, 125.0, 120.0]).wait_ns(2);
        assert!(lo == 0.0 && wait == 0.0 && hi > 10.0, "{hi}");
        // A level is unknown, or much faster than the previous one.
        assert_eq!(of(&[2.0, 6.0, 50.0]), assumed);
        assert_eq!(of(&[2.0, 60.0, 40.0, 130.0]), assumed);
        // Other guests use most of the last cache.
        let mut shared = costs(&caches, &[2.0, 6.0, 50.0, 130.0]);
        shared.levels[2].working_set = caches[2].size / 16;
        shared.larger_sets = vec![SetCosts {
            working_set: caches[2].size / 4,
            latency_ns: Spread::of(&[120.0; 3]),
        }];
        let left = Hierarchy::new(caches.clone(), Some(&shared));
        assert_eq!(left.caches[2].size, caches[2].size / 8);
        assert!(left.wait_ns(2)[0] == 0.0 && left.wait_ns(1)[2] > 100.0);
        // Measured costs of other caches are not used.
        let others = caches::parse("sapphire-rapids").unwrap();
        let costs = costs(&caches, &[2.0, 6.0, 50.0, 130.0]);
        assert!(!Hierarchy::new(others, Some(&costs)).is_measured());
    }
}
