//! Numbers of a set of sampled loads.

use crate::input::measured::{MeasuredLoad, ServedBy};
use crate::measured::{MeasuredLoads, MeasuredMisses, NodeShare, ServedShare};
use crate::misses::Range;
use mgz_models::statistics::distributions::student_widening;
use mgz_models::statistics::{NORMAL_QUANTILE_OF_95_PCT, wilson_interval};
use std::collections::BTreeMap;

/// Sums of weights, of their squares, and numbers of samples.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sum {
    weight: f64,
    squares: f64,
    pub(crate) samples: u64,
}

impl Sum {
    fn add(&mut self, weight: f64) {
        self.weight += weight;
        self.squares += weight * weight;
        self.samples += 1;
    }

    fn merge(&mut self, other: Sum) {
        self.weight += other.weight;
        self.squares += other.squares;
        self.samples += other.samples;
    }

    /// Number of samples of equal weight with the same evidence.
    fn effective(self) -> f64 {
        self.weight * self.weight / self.squares
    }

    /// Share of a part in this whole, 0 to 1, with its interval; `None` if the whole is empty.
    pub(crate) fn share(self, part: Sum) -> Option<Range> {
        (self.weight > 0.0).then(|| {
            let p = (part.weight / self.weight).clamp(0.0, 1.0);
            let (lo, hi) = wilson_interval(p, self.effective(), NORMAL_QUANTILE_OF_95_PCT);
            [lo.clamp(0.0, p), p, hi.clamp(p, 1.0)]
        })
    }
}

/// A share as percent.
pub(crate) fn percent(range: Range) -> Range {
    range.map(|end| 100.0 * end)
}

/// Minimum number of latencies for a mean: fewer may all be hits.
const LEAST_LATENCIES: u64 = 10;

/// Sums over a set of loads.
#[derive(Clone, Debug, Default)]
pub(crate) struct SampleSums {
    pub(crate) all: Sum,
    served: BTreeMap<ServedBy, Sum>,
    /// For each flag: sums over loads with the flag, and over all with a known flag.
    tlb_miss: [Sum; 2],
    hitm: [Sum; 2],
    remote: [Sum; 2],
    nodes: BTreeMap<u32, Sum>,
    latencies: Sum,
    latency: f64,
    latency_squares: f64,
}

fn add_flag(sums: &mut [Sum; 2], flag: Option<bool>, weight: f64) {
    if let Some(flag) = flag {
        sums[1].add(weight);
        if flag {
            sums[0].add(weight);
        }
    }
}

impl SampleSums {
    /// Adds a load.
    pub(crate) fn add(&mut self, load: &MeasuredLoad, weight: f64) {
        self.all.add(weight);
        self.served.entry(load.served).or_default().add(weight);
        add_flag(&mut self.tlb_miss, load.tlb_miss, weight);
        add_flag(&mut self.hitm, load.hitm, weight);
        add_flag(&mut self.remote, load.remote, weight);
        if let Some(node) = load.node {
            self.nodes.entry(node).or_default().add(weight);
        }
        if let Some(cycles) = load.latency {
            let cycles = f64::from(cycles);
            self.latencies.add(weight);
            self.latency += weight * cycles;
            self.latency_squares += weight * cycles * cycles;
        }
    }

    /// Mean latency with its interval.
    fn mean_latency(&self) -> Option<Range> {
        let sum = self.latencies;
        // A few samples do not show the spread of the others.
        if sum.samples < LEAST_LATENCIES {
            return None;
        }
        let mean = self.latency / sum.weight;
        // Very unequal weights leave few effective samples.
        let freedom = (sum.effective() - 1.0).max(1e-3);
        let variance = (self.latency_squares / sum.weight - mean * mean).max(0.0);
        let quantile = NORMAL_QUANTILE_OF_95_PCT * student_widening(freedom);
        let half = quantile * (variance / freedom).sqrt();
        Some([(mean - half).max(0.0), mean, mean + half])
    }

    /// Misses of a level per load.
    pub(crate) fn misses(&self, level: u8) -> Option<Range> {
        let (mut missed, mut open) = (Sum::default(), Sum::default());
        for (served, &sum) in &self.served {
            match served.missed(level) {
                Some(true) => missed.merge(sum),
                Some(false) => {}
                None => open.merge(sum),
            }
        }
        let mut at_most = missed;
        at_most.merge(open);
        let (least, most) = (self.all.share(missed)?, self.all.share(at_most)?);
        // The value leaves out loads whose level is unknown.
        let known = self.all.weight - open.weight;
        let value = match known > 0.0 {
            true => missed.weight / known,
            false => (least[1] + most[1]) / 2.0,
        };
        Some([least[0], value.clamp(least[1], most[1]), most[2]])
    }

    /// The numbers of the set.
    pub(crate) fn numbers(&self) -> MeasuredLoads {
        let flag = |of: [Sum; 2]| of[1].share(of[0]).map(percent);
        let level = |(served, &sum): (&ServedBy, &Sum)| {
            Some(ServedShare {
                level: served.name().into(),
                samples: sum.samples,
                share_pct: percent(self.all.share(sum)?),
            })
        };
        let mut of_nodes = Sum::default();
        self.nodes.values().for_each(|&sum| of_nodes.merge(sum));
        let node = |(&node, &sum): (&u32, &Sum)| {
            Some(NodeShare {
                node,
                samples: sum.samples,
                share_pct: percent(of_nodes.share(sum)?),
            })
        };
        let misses = |level: u8| {
            Some(MeasuredMisses {
                level: format!("L{level}"),
                measured: self.misses(level)?,
                predicted: None,
                differs: None,
            })
        };
        MeasuredLoads {
            samples: self.all.samples,
            levels: self.served.iter().filter_map(level).collect(),
            latency: self.mean_latency(),
            latency_samples: self.latencies.samples,
            tlb_miss_pct: flag(self.tlb_miss),
            hitm_pct: flag(self.hitm),
            remote_pct: flag(self.remote),
            nodes: self.nodes.iter().filter_map(node).collect(),
            misses: (1..=3).filter_map(misses).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(served: ServedBy) -> MeasuredLoad {
        MeasuredLoad {
            code: 0,
            object: 0,
            served,
            latency: None,
            tlb_miss: None,
            hitm: None,
            remote: None,
            node: None,
            period: 1,
        }
    }

    #[test]
    fn a_sample_stands_for_its_period() {
        let mut sums = SampleSums::default();
        (0..50).for_each(|_| sums.add(&load(ServedBy::L1), 3.0));
        (0..50).for_each(|_| sums.add(&load(ServedBy::Memory), 1.0));
        let numbers = sums.numbers();
        let [lo, value, hi] = numbers.levels[0].share_pct;
        assert_eq!(value, 75.0);
        // The interval is that of 80 equal samples.
        assert!(
            (lo - 64.5).abs() < 0.5 && (hi - 83.2).abs() < 0.5,
            "{lo} {hi}"
        );
        assert_eq!(numbers.misses[0].measured[1], 0.25);
        assert_eq!((numbers.latency, numbers.tlb_miss_pct), (None, None));
    }

    #[test]
    fn misses_that_are_not_known_widen_the_interval() {
        let mut sums = SampleSums::default();
        (0..6000).for_each(|_| sums.add(&load(ServedBy::L1), 1.0));
        (0..2000).for_each(|_| sums.add(&load(ServedBy::FillBuffer), 1.0));
        (0..2000).for_each(|_| sums.add(&load(ServedBy::L3), 1.0));
        let [lo, value, hi] = sums.misses(1).unwrap();
        assert!((0.18..0.2).contains(&lo) && (0.4..0.42).contains(&hi));
        assert_eq!(value, 0.25);
        let [lo, _, hi] = sums.misses(3).unwrap();
        assert!(lo == 0.0 && (0.2..0.22).contains(&hi));
    }

    #[test]
    fn latencies_and_nodes_are_of_the_samples_that_tell_them() {
        let mut sums = SampleSums::default();
        for cycles in [Some(100), Some(300), None] {
            let load = MeasuredLoad {
                latency: cycles,
                node: cycles.map(|c| c / 200),
                hitm: Some(cycles.is_none()),
                ..load(ServedBy::Memory)
            };
            (0..100).for_each(|_| sums.add(&load, 1.0));
        }
        let numbers = sums.numbers();
        let [lo, mean, hi] = numbers.latency.unwrap();
        assert_eq!((mean, numbers.latency_samples), (200.0, 200));
        assert!((185.0..188.0).contains(&lo) && (212.0..215.0).contains(&hi));
        let nodes: Vec<_> = numbers.nodes.iter().map(|n| (n.node, n.samples)).collect();
        assert_eq!(nodes, [(0, 100), (1, 100)]);
        assert_eq!(numbers.nodes[0].share_pct[1], 50.0);
        assert!((numbers.hitm_pct.unwrap()[1] - 100.0 / 3.0).abs() < 1e-9);
        // A single latency has no interval.
        let mut one = SampleSums::default();
        let single = MeasuredLoad {
            latency: Some(5),
            ..load(ServedBy::L1)
        };
        one.add(&single, 1.0);
        assert_eq!(
            (one.numbers().latency, one.numbers().latency_samples),
            (None, 1)
        );
        assert_eq!(SampleSums::default().numbers(), MeasuredLoads::default());
    }
}
