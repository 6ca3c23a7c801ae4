//! When caches are full, and what has come back by then.

use crate::misses::alone::{EDGE, Estimate, FOREVER, Wait};
use crate::misses::far::{GRID, grid};
use crate::misses::watched;

/// What is added to the interval of a share s: this over s(1 − s), and over s; accesses are not quite as they are taken to be.
const DOUBT: [f64; 2] = [0.1, 0.02];

/// Sample lengths until a cache is full.
#[derive(Clone, Copy)]
pub(super) struct Times {
    /// As estimated.
    pub(super) full: f64,
    /// If it took a bit less or more to fill it.
    pub(super) edges: [f64; 2],
    /// If as little survives as watches leave open.
    pub(super) latest: f64,
    /// If walks come back as rarely as they may.
    pub(super) soonest: f64,
}

impl Estimate<'_, '_> {
    /// Sample lengths from a visit of a cell on until caches of these capacities are full: as estimated, and if they took a bit less or more.
    pub(super) fn filled(
        &self,
        cell: usize,
        curves: &[Vec<f64>],
        capacities: &[f64],
    ) -> Vec<[f64; 3]> {
        let base = self.near_of(cell).reach as f64;
        let weight = self.sums[cell].0.max(f64::MIN_POSITIVE);
        // (-0, as sums of floating-point numbers begin.)
        let mut rates = [-0.0; GRID];
        for (&other, &rate) in &self.beside[cell] {
            let curve = &curves[other as usize];
            (rates.iter_mut().zip(curve)).for_each(|(sum, lines)| *sum += rate * lines);
        }
        rates.iter_mut().for_each(|rate| *rate /= weight);
        let mut steps = Vec::with_capacity(GRID);
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
            // It never is: all that comes again finds its line.
            f64::INFINITY
        };
        let around = |&capacity: &f64| {
            let [v, less, more] = [capacity, capacity / EDGE, capacity * EDGE].map(at);
            [v, less.min(v / EDGE), more.max(v * EDGE)].map(|v| v.min(FOREVER))
        };
        capacities.iter().map(around).collect()
    }

    /// What misses a cache that is full at these times, and ends of its interval by all that is not known for sure.
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
        let at = |v: f64| watched::between(&self.watched[cell], v);
        let watched = at(v)[1];
        if self.without.is_some() {
            // Of replicates only the values are compared.
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
            for at_random in self.at_random[cell] {
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
        // How long it takes to fill a cache is known from what watches say as well, whose time is off by as much.
        let at_latest = |watched: f64| {
            misses(Wait {
                watched,
                in_bursts: self.bursts_of(cell).most(),
                ..self.plain(cell, latest)
            }) - doubt
        };
        let pace = self.pace_ends[cell];
        let lowest = at(latest * pace)[0];
        let ends = if lowest >= 1.0 {
            let later = if latest > v { at_latest(1.0) } else { least };
            [least.min(later), value, most]
        } else {
            let value = misses(Wait { watched, ..plain });
            // At the most that watches leave.
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

/// By how much a share may be off.
pub(super) fn doubt_of(share: f64) -> f64 {
    DOUBT[0] * share * (1.0 - share) + DOUBT[1] * share
}
