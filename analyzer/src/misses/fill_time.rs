//! Times at which caches are full, and the share of lines that were reused by then.

use crate::misses::params;
use crate::misses::survival_bounds::{Estimate, Wait};
use crate::misses::survival_curve::{GRID_POINTS, grid};
use crate::misses::watched_reuses;

/// Sample lengths until a cache is full.
#[derive(Clone, Copy)]
pub(super) struct Times {
    /// The estimate.
    pub(super) full: f64,
    /// The estimate for a slightly smaller and a slightly greater cache.
    pub(super) edges: [f64; 2],
    /// The time if survival is as low as watches permit.
    pub(super) latest: f64,
    /// The time if walks return as seldom as possible.
    pub(super) soonest: f64,
}

impl Estimate<'_, '_> {
    /// Sample lengths from a visit of a cell until caches of some capacities are full: the
    /// estimate, and estimates for slightly smaller and greater caches.
    pub(super) fn filled(
        &self,
        cell: usize,
        curves: &[Vec<f64>],
        capacities: &[f64],
    ) -> Vec<[f64; 3]> {
        let base = self.near_of(cell).reach as f64;
        let weight = self.samples.sums[cell].0.max(f64::MIN_POSITIVE);
        // -0 is the neutral element of floating-point sums.
        let mut rates = [-0.0; GRID_POINTS];
        for &(other, rate) in &self.samples.beside[cell] {
            let curve = &curves[other as usize];
            (rates.iter_mut().zip(curve)).for_each(|(sum, lines)| *sum += rate * lines);
        }
        rates.iter_mut().for_each(|rate| *rate /= weight);
        let mut steps = Vec::with_capacity(GRID_POINTS);
        let (mut lines, mut before, mut rate) = (base, 0.0, rates[0]);
        for (v, next) in grid().zip(&rates) {
            lines += (v - before) * (rate + next) / 2.0;
            (before, rate) = (v, *next);
            steps.push((lines, v));
        }
        let at = |capacity: f64| -> f64 {
            let mut from = (base, 0.0);
            for &(lines, v) in &steps {
                if lines >= capacity {
                    let share = (capacity - from.0) / (lines - from.0).max(1e-9);
                    return from.1 + (v - from.1) * share.clamp(0.0, 1.0);
                }
                from = (lines, v);
            }
            // The cache is never full, so every reuse hits.
            f64::INFINITY
        };
        let around = |&capacity: &f64| {
            let edge = params::FILL_UNCERTAINTY_FACTOR;
            let [v, less, more] = [capacity, capacity / edge, capacity * edge].map(at);
            [v, less.min(v / edge), more.max(v * edge)]
                .map(|v| v.min(params::SAMPLE_LENGTHS_UNTIL_ALL_REUSE))
        };
        capacities.iter().map(around).collect()
    }

    /// Share of a cell's late visits that miss a cache which is full at `times`, with the ends of
    /// its interval.
    pub(super) fn within(
        &self,
        cell: usize,
        times: &Times,
        misses: impl Fn(Wait) -> f64,
    ) -> [f64; 3] {
        let &Times {
            full: v,
            edges,
            latest,
            soonest,
        } = times;
        let plain = self.plain(cell, v);
        let at = |v: f64| watched_reuses::between(&self.watches.watched[cell], v);
        let watched = at(v)[1];
        if self.without.is_some() {
            // Replicates serve only to compare values.
            return [misses(Wait { watched, ..plain }).clamp(0.0, 1.0); 3];
        }
        let value = misses(plain);
        let (mut least, mut most) = (value, value);
        for wait in self.doubtful(cell, plain, edges) {
            let misses = misses(wait);
            (least, most) = (least.min(misses), most.max(misses));
        }
        if soonest < v {
            let seldom = self.seldom(cell, soonest);
            for at_random in self.samples.at_random[cell] {
                most = most.max(misses(Wait {
                    at_random,
                    ..seldom
                }));
            }
        }
        let doubt = doubt_of(value);
        least -= doubt;
        if let Some(left) = self.swept_in_parts(cell, v, latest) {
            least = least.min(left);
        }
        let most = most + doubt;
        // Watches also determine when the cache is full, and their time is uncertain by the same
        // factor.
        let at_latest = |watched: f64| {
            misses(Wait {
                watched,
                in_bursts: self.bursts_of(cell).most(),
                ..self.plain(cell, latest)
            }) - doubt
        };
        let pace = self.watches.pace_ends[cell];
        let lowest = at(latest * pace)[0];
        let ends = if lowest >= 1.0 {
            let later = if latest > v { at_latest(1.0) } else { least };
            [least.min(later), value, most]
        } else {
            let value = misses(Wait { watched, ..plain });
            // The greatest share that watches permit.
            let with = |v: f64, wait: Wait| {
                let watched = at(v / pace)[2].max(at(v)[2]);
                let in_bursts = 0.0;
                misses(Wait {
                    watched,
                    in_bursts,
                    ..wait
                })
            };
            let highest = with(v, plain).max(with(soonest, self.seldom(cell, soonest)));
            let doubt = doubt_of(value);
            let least = at_latest(lowest).min(value - doubt);
            [least, value, (highest.max(value) + doubt).min(most)]
        };
        ends.map(|share| share.clamp(0.0, 1.0))
    }
}

/// Half the interval that deviations from the model contribute to a share.
pub(super) fn doubt_of(share: f64) -> f64 {
    params::MODEL_DOUBT_PER_VARIANCE * share * (1.0 - share) + params::MODEL_DOUBT_PER_SHARE * share
}
