//! From what samples saw to misses of groups of code and objects, at capacities.
//!
//! A *cell* is the visits of one group of code to one object: visits of a cell are taken as alike. Inside samples distances are known ([`near`](super::near)); beyond, a cell's visits survive for `v`
//! sample lengths with a probability that other samples tell ([`far`](super::far)). Which `v` it takes to fill a cache follows from the same: new lines come at the rate of what survives, over all cells that run beside it.

use crate::misses::far::{Fit, GRID, RADII, grid};
use crate::misses::near::Near;
use crate::misses::sets;
use crate::misses::visit_table::{LATEST, VisitTable, near_of, parts};
use crate::misses::watched::{self, PACE_ENDS, STRIDED};
use crate::stages::line_visits::part;
use crate::util::fast_hash::Mixed;
use rayon::prelude::*;
use std::collections::HashMap;

/// What is added to the interval of a share s: this over s(1 − s), and over s; accesses are not quite as they are taken to be.
const DOUBT: [f64; 2] = [0.1, 0.02];
/// And to that of misses per access: what less than this misses is not told apart.
const FLOOR: f64 = 5e-4;
/// Walks of which samples see this part come back go to and fro, and watches of some tell little of others.
const COMES_BACK: f64 = 0.05;
/// What fills a cache, the time until it is full, and that until a loop is back, are known but for this factor.
const EDGE: f64 = 1.25;
/// Part of the reach of samples from which on reuses tell whether they come at random.
const LATE: f64 = 0.25;
/// Late reuses over those expected, from which on data may be used in bursts, and from which on it is.
const BURSTY: [f64; 2] = [1.5, 2.0];
/// Standard errors in half an interval.
const QUANTILE: f64 = 2.0;
/// Sample lengths after which all that comes again has come.
const FOREVER: f64 = (1u64 << 40) as f64;

/// Misses per access of a group, by capacity.
#[derive(Clone, Debug, Default)]
pub(crate) struct GroupMisses {
    /// Misses per access.
    pub(crate) ratio: Vec<f64>,
    /// By object: part of these.
    pub(crate) objects: Vec<(u32, Vec<f64>)>,
    /// What they would be if all that is doubtful were so in one or the other way.
    pub(crate) least: Vec<f64>,
    pub(crate) most: Vec<f64>,
}

/// One estimate for all groups.
pub(crate) type ByGroup = HashMap<u32, GroupMisses, Mixed>;

/// Shares of misses by capacity: lower ends, estimates, upper ends.
pub(super) type Ends = [Vec<f64>; 3];

/// How long lines are left alone, in words of one estimate.
#[derive(Clone, Copy)]
struct Wait {
    /// Sample lengths.
    v: f64,
    /// The same for what comes back after equal times.
    of_loops: f64,
    /// The part that comes at random, of what is in no lap.
    at_random: f64,
    /// The part of that which comes in long bursts, if any does.
    in_bursts: f64,
    /// Which of the ends of what comes again with the next lap.
    laps: usize,
    /// What watchpoints leave of it.
    watched: f64,
}

/// Data that is used in bursts which are longer than a sample.
#[derive(Clone, Copy, Default)]
struct Bursts {
    /// How many times as often it comes again in them as all samples have it.
    times: f64,
    /// The part of what comes at random that is in bursts which last long.
    part: f64,
}

impl Bursts {
    /// That part at most.
    fn most(self) -> f64 {
        if self.part > 0.0 { 1.0 } else { 0.0 }
    }
}

/// Sample lengths until a cache is full.
#[derive(Clone, Copy)]
struct Times {
    /// As estimated.
    full: f64,
    /// If it took a bit less or more to fill it.
    edges: [f64; 2],
    /// If as little survives as watches leave open.
    latest: f64,
    /// If walks come back as rarely as they may.
    soonest: f64,
}

/// One estimate from all replicates but one.
struct Estimate<'t, 'a> {
    table: &'t VisitTable<'a>,
    without: Option<usize>,
    nears: HashMap<u32, Near, Mixed>,
    /// By cell.
    fits: Vec<Fit>,
    /// By group: late visits.
    late: HashMap<u32, f64, Mixed>,
    /// By cell: weights of its samples, and the same times their lines.
    sums: Vec<(f64, f64)>,
    /// By cell: new lines of the cells that run beside it, by its weights.
    beside: Vec<HashMap<u32, f64, Mixed>>,
    /// By cell: how much of its visits comes at random, and how surely.
    at_random: Vec<[f64; 3]>,
    /// By group: see [`Estimate::find_bursts`].
    bursts: HashMap<u32, Bursts, Mixed>,
    /// By cell: what watchpoints make of its survival, along the grid; empty if nothing.
    watched: Vec<Vec<[f64; 3]>>,
    /// By cell: by what factor the time of watches may be off.
    pace_ends: Vec<f64>,
    /// By cell: what is left of the late visits of its code at least, by watches along the grid; and its part of these.
    floors: Vec<(Vec<f64>, f64)>,
}

impl VisitTable<'_> {
    /// Misses of all groups at capacities in lines, by all replicates but one.
    /// `levels`: of which of the caches the first of the capacities are.
    pub(crate) fn estimate(
        &self,
        capacities: &[f64],
        levels: &[usize],
        without: Option<usize>,
    ) -> ByGroup {
        let estimate = Estimate::new(self, without);
        let curves = estimate.curves();
        let is_doubtful = !self.units.is_empty() || estimate.bursts.values().any(|b| b.part > 0.0);
        let least = (without.is_none() && is_doubtful).then(|| estimate.least_curves());
        // What comes back less often than walks seem to fills caches sooner.
        let most = (without.is_none() && self.laps.iter().any(|laps| !laps.is_empty()))
            .then(|| estimate.by_cell(|cell, v| estimate.fewest_laps(cell, v)));
        let far: Vec<Ends> = (0..self.cells.len())
            .into_par_iter()
            .map(|cell| {
                let [filled, latest, soonest] = [Some(&curves), least.as_ref(), most.as_ref()]
                    .map(|curves| Some(estimate.filled(cell, curves?, capacities)));
                let filled = filled.unwrap_or_default();
                let times = |at: usize| Times {
                    full: filled[at][0],
                    edges: [filled[at][1], filled[at][2]],
                    latest: (latest.as_ref()).map_or(filled[at][0], |l| l[at][0].max(filled[at][0])),
                    soonest: (soonest.as_ref()).map_or(filled[at][0], |s| s[at][0].min(filled[at][0])),
                };
                let times: Vec<Times> = (0..capacities.len()).map(times).collect();
                estimate.far(cell, &times, capacities, levels)
            })
            .collect();
        let mut all = estimate.near(capacities);
        let mut mixed = estimate.mixed(&far, &mut all);
        if let Some(0) = levels.first() {
            self.first_level(without, &mut all, &mut mixed);
        }
        for (group, [least, middle, most]) in mixed {
            let Some(all) = all.get_mut(&group) else {
                continue;
            };
            let scaled = |of: &mut Vec<f64>, by: Vec<f64>| {
                of.iter_mut().zip(by).for_each(|(a, b)| *a *= b);
            };
            scaled(&mut all.least, least);
            scaled(&mut all.ratio, middle);
            scaled(&mut all.most, most);
        }
        for of in all.values_mut() {
            let (least, most) = (of.least.iter_mut(), of.most.iter_mut());
            least.for_each(|e| *e = (*e - FLOOR).max(0.0));
            most.for_each(|e| *e = (*e + FLOOR).min(1.0));
        }
        self.conflicts(levels, without, &mut all);
        all
    }
}

impl<'t, 'a> Estimate<'t, 'a> {
    fn new(table: &'t VisitTable<'a>, without: Option<usize>) -> Estimate<'t, 'a> {
        let near = |&group: &u32| {
            let mut near = near_of(table.lines, group, without);
            // Replicates differ by what they have seen, not by what they trust.
            near.reach = table.reach.get(&group).copied().unwrap_or(near.reach);
            (group, near)
        };
        let mut late: HashMap<u32, f64, Mixed> = HashMap::default();
        for ((group, _), far) in &table.cells {
            *late.entry(*group).or_default() += far.visits(without);
        }
        let fits = table.cells.iter().map(|c| c.1.fit(c.1.radius(), without));
        let mut estimate = Estimate {
            table,
            without,
            nears: table.groups.iter().map(near).collect(),
            fits: fits.collect(),
            late,
            sums: vec![(0.0, 0.0); table.cells.len()],
            beside: vec![HashMap::default(); table.cells.len()],
            at_random: Vec::new(),
            bursts: HashMap::default(),
            watched: vec![Vec::new(); table.cells.len()],
            pace_ends: vec![PACE_ENDS; table.cells.len()],
            floors: vec![(Vec::new(), 1.0); table.cells.len()],
        };
        estimate.look_beside();
        estimate.at_random = (0..table.cells.len())
            .map(|cell| estimate.part_at_random(cell))
            .collect();
        estimate.bursts = estimate.find_bursts();
        for unit in &table.units {
            if unit.walks && without.is_some() {
                continue;
            }
            if unit.walks {
                let floors = unit.floors(without);
                for &(cell, part) in &unit.tells {
                    estimate.floors[cell as usize] = (floors.clone(), part);
                }
                continue;
            }
            let factors = unit.factors(without, |v, cells| estimate.mean(v, cells));
            for &(cell, _) in &unit.tells {
                estimate.pace_ends[cell as usize] = unit.pace_ends();
                estimate.watched[cell as usize].clone_from(&factors);
            }
        }
        estimate
    }

    /// The part of late visits of some cells whose lines are left alone for so long, and its error by what the model does not tell.
    fn mean(&self, v: f64, cells: &[u32]) -> (f64, f64) {
        let (mut sums, mut all) = ([0.0; 3], 0.0);
        for &cell in cells {
            let cell = cell as usize;
            let visits = self.table.cells[cell].1.visits(self.without);
            let of = |wait: Wait| self.survive(cell, &self.fits[cell], wait);
            // Whether there are long bursts, watches tell.
            let plain = Wait {
                in_bursts: 0.0,
                ..self.plain(cell, v)
            };
            let value = of(plain);
            let (mut least, mut most) = (value, value);
            for wait in self.doubtful(cell, plain, [v / EDGE, v * EDGE]) {
                let survives = of(wait);
                (least, most) = (least.min(survives), most.max(survives));
            }
            (sums.iter_mut().zip([least, value, most])).for_each(|(s, x)| *s += visits * x);
            all += visits;
        }
        let [least, value, most] = sums.map(|s| s / f64::max(all, 1.0));
        (value, (most - least) / 2.0)
    }

    /// What is taken as so.
    fn plain(&self, cell: usize, v: f64) -> Wait {
        Wait {
            v,
            of_loops: v,
            at_random: self.at_random[cell][1],
            in_bursts: self.bursts_of(cell).part,
            laps: 1,
            watched: 1.0,
        }
    }

    /// What may be so instead. `edges`: when a loop may just fit at the earliest, and at the latest.
    fn doubtful(
        &self,
        cell: usize,
        plain: Wait,
        edges: [f64; 2],
    ) -> impl Iterator<Item = Wait> {
        let has_laps = !self.table.laps[cell].is_empty();
        let bursts = self.bursts_of(cell);
        ([0, 2].into_iter())
            .map(move |end| self.at_random[cell][end])
            .filter(move |&end| end != plain.at_random)
            .map(move |at_random| Wait { at_random, ..plain })
            .chain(
                (has_laps.then_some([0, 2]).into_iter().flatten())
                    .map(move |laps| Wait { laps, ..plain }),
            )
            .chain(
                (bursts.part > 0.0 && plain.in_bursts > 0.0)
                    .then_some([0.0, 1.0]).into_iter().flatten()
                    .map(move |in_bursts| Wait { in_bursts, ..plain }),
            )
            // Whether a loop just fits, nobody can tell.
            .chain(edges.map(|of_loops| Wait { of_loops, ..plain }))
    }

    fn near_of(&self, cell: usize) -> &Near {
        &self.nears[&self.table.cells[cell].0.0]
    }

    /// New lines of a cell that each of its late visits stands for, in a sample.
    fn stands_for(&self) -> Vec<f64> {
        let mut accesses: HashMap<u32, f64, Mixed> = HashMap::default();
        let samples = self.table.lines.samples.iter();
        for of in samples.filter(|s| Some(part(s.sample)) != self.without) {
            *accesses.entry(of.group).or_default() += f64::from(of.accesses);
        }
        let of_cell = |cell: usize| {
            let (near, group) = (self.near_of(cell), self.table.cells[cell].0.0);
            let accesses = accesses.get(&group).copied().unwrap_or(0.0);
            accesses * near.at_least(near.reach as f64) / self.late[&group].max(1.0)
        };
        (0..self.table.cells.len()).map(of_cell).collect()
    }

    /// What runs beside each cell: lines of a sample, and late visits of other cells.
    fn look_beside(&mut self) {
        let stands_for = self.stands_for();
        for (sample, cells) in self.table.beside.iter().enumerate() {
            if Some(part(sample as u32)) == self.without {
                continue;
            }
            let lines = self.table.distinct[sample];
            for &(cell, weight) in cells {
                let sum = &mut self.sums[cell as usize];
                *sum = (sum.0 + weight, sum.1 + weight * lines);
                let beside = &mut self.beside[cell as usize];
                for &(other, count) in cells {
                    *beside.entry(other).or_default() +=
                        weight * count * stands_for[other as usize];
                }
            }
        }
    }

    /// Visits at random come again just before the reach of samples, others do not.
    fn part_at_random(&self, cell: usize) -> [f64; 3] {
        let (reuses, lines) = self.near_of(cell).late_reuses(LATE);
        let of_sample = self.sums[cell].1 / self.sums[cell].0.max(1.0);
        let expected = self.fits[cell].rate() / of_sample.max(1.0) * lines;
        if expected <= 0.0 {
            return [0.0, 1.0, 1.0];
        }
        let off = QUANTILE * (reuses + 1.0).sqrt();
        [reuses - off, reuses, reuses + off].map(|r| (r / expected).clamp(0.0, 1.0))
    }

    /// How many times as often lines of a group come again just before the reach of samples as all samples have it that they do. Then data
    /// is used in bursts, which last for longer than a sample, by at least a bit or at most for as long as lies between two.
    fn find_bursts(&self) -> HashMap<u32, Bursts, Mixed> {
        let mut sums: HashMap<u32, (f64, f64), Mixed> = HashMap::default();
        for (cell, fit) in self.fits.iter().enumerate() {
            let of_sample = self.sums[cell].1 / self.sums[cell].0.max(1.0);
            let visits = self.table.cells[cell].1.visits(self.without);
            let sum = sums.entry(self.table.cells[cell].0.0).or_default();
            *sum = (sum.0 + visits, sum.1 + visits * fit.hazard() / of_sample.max(1.0));
        }
        let of_group = |(group, (visits, hazards)): (u32, (f64, f64))| {
            let (reuses, lines) = self.nears[&group].late_reuses(LATEST);
            let expected = hazards / visits.max(1.0) * lines;
            let least = (reuses - QUANTILE * (reuses + 1.0).sqrt()) / expected;
            // How long they last, nobody can tell.
            let surely = (least - BURSTY[0]) / (BURSTY[1] - BURSTY[0]);
            let bursts = Bursts {
                times: reuses / expected,
                part: surely.clamp(0.0, 1.0) / 2.0,
            };
            (group, if expected > 0.0 { bursts } else { Bursts::default() })
        };
        sums.into_iter().map(of_group).collect()
    }

    fn bursts_of(&self, cell: usize) -> Bursts {
        let of = self.bursts.get(&self.table.cells[cell].0.0);
        of.copied().unwrap_or_default()
    }

    /// The part of late visits whose lines are left alone for so long.
    fn survive(&self, cell: usize, fit: &Fit, wait: Wait) -> f64 {
        let laps = || self.table.laps[cell].iter();
        let again: f64 = laps().map(|l| l.part * l.again[wait.laps]).sum();
        let in_laps = laps().map(|l| l.waits(wait.v, wait.laps)).sum::<f64>();
        // Other samples count visits of all laps: those that laps leave come as much more rarely.
        let v = wait.v * (1.0 - again);
        // Each of the two takes a while, and often none of it is asked for.
        let part = |part: f64, of: &dyn Fn() -> f64| if part == 0.0 { 0.0 } else { part * of() };
        let in_loops = part(1.0 - wait.at_random, &|| fit.in_loops(wait.of_loops * (1.0 - again)));
        let at_random = part(wait.at_random, &|| fit.at_random(v));
        let all = |at_random: f64| in_laps + (1.0 - again) * (at_random + in_loops);
        let survives = all(at_random) * wait.watched;
        if wait.in_bursts == 0.0 {
            return survives;
        }
        let again = fit.at_random(v * self.bursts_of(cell).times);
        let in_bursts = part(wait.at_random, &|| again);
        survives.min(all(at_random + wait.in_bursts * (in_bursts - at_random)))
    }

    /// What survives, by cell and along the grid.
    fn curves(&self) -> Vec<Vec<f64>> {
        self.by_cell(|cell, v| {
            let watched = watched::between(&self.watched[cell], v)[1];
            let wait = Wait {
                watched,
                ..self.plain(cell, v)
            };
            self.survive(cell, &self.fits[cell], wait)
        })
    }

    /// What survives at least, as far as watches tell.
    fn least_curves(&self) -> Vec<Vec<f64>> {
        self.by_cell(|cell, v| {
            let watched = watched::between(&self.watched[cell], v * self.pace_ends[cell])[0];
            let wait = Wait {
                watched,
                in_bursts: self.bursts_of(cell).most(),
                ..self.plain(cell, v)
            };
            let survives = self.survive(cell, &self.fits[cell], wait);
            match self.swept_in_parts(cell, v, v) {
                Some(least) => least.min(survives),
                None => survives,
            }
        })
    }

    /// What survives if walks come back as rarely as they may.
    fn fewest_laps(&self, cell: usize, v: f64) -> f64 {
        let watched = watched::between(&self.watched[cell], v)[1];
        let wait = Wait {
            watched,
            laps: 0,
            ..self.plain(cell, v)
        };
        self.survive(cell, &self.fits[cell], wait)
    }

    fn by_cell(&self, at: impl Fn(usize, f64) -> f64) -> Vec<Vec<f64>> {
        (0..self.fits.len())
            .map(|cell| grid().map(|v| at(cell, v)).collect())
            .collect()
    }

    /// Loops over arrays come in nests: what was swept as a whole may have been swept in parts, each many times, between two samples.
    /// What is left of it then, until the cache is full as estimated, or at the latest; nothing where samples tell how it was.
    fn swept_in_parts(&self, cell: usize, v: f64, latest: f64) -> Option<f64> {
        let strided = self.table.cells[cell].0.0 & 3 == STRIDED;
        if !strided || self.fits[cell].evidence <= 0.0 || !self.table.laps[cell].is_empty() {
            return None;
        }
        // But for what watches saw to be left alone, where samples do not see it come back either.
        let at_random = self.at_random[cell][1];
        let (floors, part) = &self.floors[cell];
        let alone = match at_random < COMES_BACK {
            true => watched::floor_of(floors, *part, latest.max(v) * PACE_ENDS),
            false => 0.0,
        };
        let bursts = self.bursts_of(cell);
        let times = if bursts.part > 0.0 { bursts.times } else { 1.0 };
        Some(alone.max(at_random * self.fits[cell].at_random(v * times)))
    }

    /// Sample lengths from a visit of a cell on until caches of these capacities are full: as estimated, and if they took a bit less or more.
    fn filled(&self, cell: usize, curves: &[Vec<f64>], capacities: &[f64]) -> Vec<[f64; 3]> {
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

    /// The part of a cell's late visits that misses caches which are full at these times.
    fn far(
        &self,
        cell: usize,
        times: &[Times],
        capacities: &[f64],
        levels: &[usize],
    ) -> Ends {
        let (table, group) = (self.table, self.table.cells[cell].0.0);
        let reach = self.near_of(cell).reach as f64;
        let near = parts(table.lines, group, self.without);
        let mut ends: Ends = Default::default();
        for (at, (&capacity, times)) in capacities.iter().zip(times).enumerate() {
            if capacity <= reach {
                ends.iter_mut().for_each(|e| e.push(1.0));
                continue;
            }
            let level = levels.get(at);
            let crowd = level.and_then(|&l| table.crowded[l].get(cell)?.as_ref());
            let rest = crowd.map(|c| c.rest.fit(RADII.len() - 1, self.without));
            // Of those that come late, some find their set filled by the sample alone.
            let full = level.map_or(0.0, |&l| sets::full(&near, l));
            let misses = |wait: Wait| {
                let of = |fit| self.survive(cell, fit, wait);
                let survives = match (crowd, &rest) {
                    (Some(crowd), Some(rest)) => {
                        crowd.survives + (1.0 - crowd.part).max(0.0) * of(rest)
                    }
                    _ => of(&self.fits[cell]),
                };
                full + (1.0 - full) * survives
            };
            let of = self.within(cell, times, misses);
            ends.iter_mut().zip(of).for_each(|(e, x)| e.push(x));
        }
        ends
    }

    /// What misses a cache that is full at these times, and ends of its interval by all that is not known for sure.
    fn within(&self, cell: usize, times: &Times, misses: impl Fn(Wait) -> f64) -> [f64; 3] {
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
            most = most.max(misses(Wait {
                laps: 0,
                ..self.plain(cell, soonest)
            }));
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
            let with = |watched: f64| misses(Wait { watched, ..plain });
            let (value, highest) = (with(watched), at(v / pace)[2].max(at(v)[2]));
            let doubt = doubt_of(value);
            let least = at_latest(lowest).min(value - doubt);
            [least, value, (with(highest) + doubt).min(most)]
        };
        ends.map(|share| share.clamp(0.0, 1.0))
    }

    /// Misses of all groups, if those of late visits missed whatever the capacity.
    fn near(&self, capacities: &[f64]) -> ByGroup {
        let of_group = |&group: &u32| {
            let near = &self.nears[&group];
            let known = |c: &f64| near.at_least(c.min(near.reach as f64));
            let ratio: Vec<f64> = capacities.iter().map(known).collect();
            let doubt = |sign: f64| {
                let of = ratio.iter().map(|&r| r + sign * doubt_of(r));
                of.collect::<Vec<f64>>()
            };
            let misses = GroupMisses {
                least: doubt(-1.0),
                most: doubt(1.0),
                ratio,
                objects: Vec::new(),
            };
            (group, misses)
        };
        self.table.groups.iter().map(of_group).collect()
    }

    /// By group: the part of its late visits that misses. Objects get their part of what `all` has so far.
    fn mixed(&self, far: &[Ends], all: &mut ByGroup) -> HashMap<u32, Ends, Mixed> {
        let mut mixed: HashMap<u32, Ends, Mixed> = HashMap::default();
        for (((group, object), cell), ends) in self.table.cells.iter().zip(far) {
            let share = cell.visits(self.without) / self.late[group].max(1.0);
            let blank = || vec![0.0; ends[1].len()];
            let of = mixed
                .entry(*group)
                .or_insert_with(|| [blank(), blank(), blank()]);
            for (sum, end) in of.iter_mut().zip(ends) {
                sum.iter_mut().zip(end).for_each(|(s, e)| *s += share * e);
            }
            if let Some(all) = all.get_mut(group) {
                let both = all.ratio.iter().zip(&ends[1]);
                let part = both.map(|(near, end)| near * share * end).collect();
                all.objects.push((*object, part));
            }
        }
        mixed
    }
}

/// By how much a share may be off.
pub(super) fn doubt_of(share: f64) -> f64 {
    DOUBT[0] * share * (1.0 - share) + DOUBT[1] * share
}
