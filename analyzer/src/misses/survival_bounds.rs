//! Survival of lines after their late visits: the estimate, and the alternatives that bound it.
//!
//! A late visit is the first touch of a line in a sample, beyond the reach of samples (see
//! [`reuse_distance`](super::reuse_distance)). Its line survives `v` sample lengths if no access
//! touches it for that time.

use crate::data::group::{AccessClass, Group};
use crate::misses::params;
use crate::misses::reuse_distance::Near;
use crate::misses::survival_curve::{Fit, grid};
use crate::misses::visit_table::{VisitTable, near_of};
use crate::misses::watched_reuses::{self, Unit};
use crate::stages::line_visits::part;
use crate::util::fast_hash::Mixed;
use std::collections::HashMap;

/// One set of assumptions from which survival is computed.
#[derive(Clone, Copy)]
pub(super) struct Wait {
    /// Sample lengths since the visit.
    pub(super) v: f64,
    /// The same time for lines that return after equal times.
    pub(super) of_loops: f64,
    /// Share of the visits outside of laps that return at random.
    pub(super) at_random: f64,
    /// Share of those that belong to bursts longer than a sample.
    pub(super) in_bursts: f64,
    /// Index into `Lap::again`: lower end, estimate or upper end.
    pub(super) laps: usize,
    /// Share of the coincidences of samples that are returns.
    pub(super) returns: f64,
    /// Factor by which watchpoints lower the survival.
    pub(super) watched: f64,
}

/// Use of data in bursts that are longer than a sample.
#[derive(Clone, Copy, Default)]
pub(super) struct Bursts {
    /// Rate of reuse within a burst over the mean rate of all samples.
    pub(super) times: f64,
    /// Share of the random visits that belong to such bursts.
    pub(super) part: f64,
}

impl Bursts {
    /// The largest possible share.
    pub(super) fn most(self) -> f64 {
        if self.part > 0.0 { 1.0 } else { 0.0 }
    }
}

/// An estimate from all replicates, or from all but one.
pub(super) struct Estimate<'t, 'a> {
    pub(super) table: &'t VisitTable<'a>,
    pub(super) without: Option<usize>,
    pub(super) nears: HashMap<Group, Near, Mixed>,
    /// By cell.
    pub(super) fits: Vec<Fit>,
    /// Late visits by group.
    pub(super) late: HashMap<Group, f64, Mixed>,
    /// By cell: the sum of its shares over all samples, and the same sum weighted by each sample's
    /// lines.
    pub(super) sums: Vec<(f64, f64)>,
    /// By cell: rate of new lines from each other cell in its samples, weighted by the cell's own
    /// visits.
    pub(super) beside: Vec<HashMap<u32, f64, Mixed>>,
    /// By cell: lower end, estimate and upper end of the share of its visits that return at random.
    pub(super) at_random: Vec<[f64; 3]>,
    /// By cell: lower end, estimate and upper end of the share of the coincidences that are
    /// returns.
    pub(super) returns: Vec<[f64; 3]>,
    /// By group: see [`Estimate::find_bursts`].
    pub(super) bursts: HashMap<Group, Bursts, Mixed>,
    /// By cell: factors by which watchpoints change its survival, along the grid. Empty if they
    /// give no estimate.
    pub(super) watched: Vec<Vec<[f64; 3]>>,
    /// By cell: the error of the time of watches, as a factor.
    pub(super) pace_ends: Vec<f64>,
    /// By cell: a lower bound from watches, along the grid, for the survival of its code's late
    /// visits, and the cell's share of these visits.
    pub(super) floors: Vec<(Vec<f64>, f64)>,
}

impl<'t, 'a> Estimate<'t, 'a> {
    pub(super) fn new(
        table: &'t VisitTable<'a>,
        without: Option<usize>,
        units: &[Unit],
    ) -> Estimate<'t, 'a> {
        let near = |&group: &Group| {
            let mut near = near_of(table.lines, group, without);
            // A replicate has its own counts, but the reach of all data.
            near.reach = table.reach.get(&group).copied().unwrap_or(near.reach);
            (group, near)
        };
        let mut late: HashMap<Group, f64, Mixed> = HashMap::default();
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
            returns: table.returns_of_cells(without),
            bursts: HashMap::default(),
            watched: vec![Vec::new(); table.cells.len()],
            pace_ends: vec![params::PACE_INTERVAL_FACTOR; table.cells.len()],
            floors: vec![(Vec::new(), 1.0); table.cells.len()],
        };
        estimate.look_beside();
        estimate.at_random = (0..table.cells.len())
            .map(|cell| estimate.part_at_random(cell))
            .collect();
        estimate.bursts = estimate.find_bursts();
        for unit in units {
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

    pub(super) fn near_of(&self, cell: usize) -> &Near {
        &self.nears[&self.table.cells[cell].0.0]
    }

    /// New lines of a sample that one late visit of each cell represents.
    fn stands_for(&self) -> Vec<f64> {
        let mut accesses: HashMap<Group, f64, Mixed> = HashMap::default();
        let samples = self.table.lines.samples.iter();
        for of in samples.filter(|s| Some(part(s.sample)) != self.without) {
            *accesses.entry(of.group).or_default() += f64::from(of.accesses);
        }
        let of_cell = |cell: usize| {
            let (near, group) = (self.near_of(cell), self.table.cells[cell].0.0);
            let accesses = accesses.get(&group).copied().unwrap_or(0.0);
            accesses * near.far(f64::INFINITY) / self.late[&group].max(1.0)
        };
        (0..self.table.cells.len()).map(of_cell).collect()
    }

    /// Sums up, for each cell, the lines of its samples and the late visits of the other cells
    /// there.
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
}

impl Estimate<'_, '_> {
    /// Mean survival of the late visits of some cells, and its error due to the model.
    pub(super) fn mean(&self, v: f64, cells: &[u32]) -> (f64, f64) {
        let edge = params::FILL_UNCERTAINTY_FACTOR;
        let (mut sums, mut all) = ([0.0; 3], 0.0);
        for &cell in cells {
            let cell = cell as usize;
            let visits = self.table.cells[cell].1.visits(self.without);
            let of = |wait: Wait| self.survive(cell, &self.fits[cell], wait);
            // The model alone assumes no long bursts. Watches are compared with it to find them.
            let plain = Wait {
                in_bursts: 0.0,
                ..self.plain(cell, v)
            };
            let value = of(plain);
            let (mut least, mut most) = (value, value);
            for wait in self.doubtful(cell, plain, [v / edge, v * edge]) {
                let survives = of(wait);
                (least, most) = (least.min(survives), most.max(survives));
            }
            (sums.iter_mut().zip([least, value, most])).for_each(|(s, x)| *s += visits * x);
            all += visits;
        }
        let [least, value, most] = sums.map(|s| s / f64::max(all, 1.0));
        (value, (most - least) / 2.0)
    }

    /// The most likely assumptions.
    pub(super) fn plain(&self, cell: usize, v: f64) -> Wait {
        let returns = self.returns[cell][1];
        Wait {
            v,
            of_loops: v,
            at_random: self.at_random[cell][1],
            // Episodes that samples see end are no bursts that outlast a sample.
            in_bursts: self.bursts_of(cell).part * returns,
            laps: 1,
            returns,
            watched: 1.0,
        }
    }

    /// Alternatives to the most likely assumptions. `edges`: the earliest and the latest time at
    /// which a loop may just fit into the cache.
    pub(super) fn doubtful(
        &self,
        cell: usize,
        plain: Wait,
        edges: [f64; 2],
    ) -> impl Iterator<Item = Wait> {
        let has_laps = !self.table.laps[cell].is_empty();
        let bursts = self.bursts_of(cell);
        let both = |v| Wait {
            v,
            of_loops: v,
            ..plain
        };
        let forever = params::SAMPLE_LENGTHS_UNTIL_ALL_REUSE;
        let just_fits = (plain.v < forever && edges[1] >= forever).then(|| both(forever));
        let does_not = (plain.v >= forever && edges[0] < forever).then(|| both(edges[0]));
        ([0, 2].into_iter())
            .map(move |end| self.at_random[cell][end])
            .filter(move |&end| end != plain.at_random)
            .map(move |at_random| Wait { at_random, ..plain })
            .chain(
                ([0, 2].into_iter())
                    .map(move |end| self.returns[cell][end])
                    .filter(move |&end| end != plain.returns)
                    .map(move |returns| Wait { returns, ..plain }),
            )
            .chain(
                (has_laps.then_some([0, 2]).into_iter().flatten())
                    .map(move |laps| Wait { laps, ..plain }),
            )
            .chain(
                (bursts.part > 0.0 && plain.in_bursts > 0.0)
                    .then_some([0.0, 1.0])
                    .into_iter()
                    .flatten()
                    .map(move |in_bursts| Wait { in_bursts, ..plain }),
            )
            // All data, or none of it, may just fit into the cache.
            .chain(just_fits)
            .chain(does_not)
            // A loop may just fit into the cache or not.
            .chain(edges.map(|of_loops| Wait { of_loops, ..plain }))
    }

    /// Share of the visits that return at random: lower end, estimate, upper end. Random visits
    /// return just before the reach as often as their rate predicts. Loops do not return there.
    pub(super) fn part_at_random(&self, cell: usize) -> [f64; 3] {
        let of_sample = self.sums[cell].1 / self.sums[cell].0.max(1.0);
        let of_line = self.fits[cell].rate() / of_sample.max(1.0);
        let from = |part: f64| {
            let (reuses, lines) = self.near_of(cell).late_reuses(part);
            let expected = of_line * lines;
            if expected <= 0.0 {
                return [0.0, 1.0, 1.0];
            }
            let off = params::STANDARD_ERRORS_IN_HALF_INTERVAL * (reuses + 1.0).sqrt();
            [reuses - off, reuses, reuses + off].map(|r| (r / expected).clamp(0.0, 1.0))
        };
        // Reuse at one of the two distances does not imply reuse at the other.
        let ([least, value, most], last) = (
            from(params::LATE_REUSES_REACH_SHARE),
            from(params::LATEST_REUSES_REACH_SHARE),
        );
        // Late reuses inside an episode do not tell how the episode itself returns.
        let has_episodes = self.returns[cell][2] < params::MAX_RETURN_SHARE_OF_EPISODES;
        let least = if has_episodes {
            0.0
        } else {
            least.min(last[0])
        };
        [least, value, most.max(last[2])]
    }

    /// Compares late reuses just before the reach of samples with those that the mean rate
    /// predicts. A surplus means that data is used in bursts which outlast a sample. Their length
    /// is unknown: it lies between slightly more than a sample and the gap between two samples.
    pub(super) fn find_bursts(&self) -> HashMap<Group, Bursts, Mixed> {
        let mut sums: HashMap<Group, (f64, f64), Mixed> = HashMap::default();
        for (cell, fit) in self.fits.iter().enumerate() {
            let of_sample = self.sums[cell].1 / self.sums[cell].0.max(1.0);
            let visits = self.table.cells[cell].1.visits(self.without);
            let sum = sums.entry(self.table.cells[cell].0.0).or_default();
            *sum = (
                sum.0 + visits,
                sum.1 + visits * fit.hazard() / of_sample.max(1.0),
            );
        }
        let of_group = |(group, (visits, hazards)): (Group, (f64, f64))| {
            let (reuses, lines) = self.nears[&group].late_reuses(params::LATEST_REUSES_REACH_SHARE);
            let expected = hazards / visits.max(1.0) * lines;
            let least = (reuses - params::STANDARD_ERRORS_IN_HALF_INTERVAL * (reuses + 1.0).sqrt())
                / expected;
            // Bursts may be short or long, so half of the visits are counted as in bursts.
            let certain = params::MIN_REUSE_RATIO_OF_CERTAIN_BURSTS;
            let surely = (least - params::MIN_REUSE_RATIO_OF_BURSTS)
                / (certain - params::MIN_REUSE_RATIO_OF_BURSTS);
            let bursts = Bursts {
                times: reuses / expected,
                part: surely.clamp(0.0, 1.0) * params::VISIT_SHARE_OF_CERTAIN_BURSTS,
            };
            (
                group,
                if expected > 0.0 {
                    bursts
                } else {
                    Bursts::default()
                },
            )
        };
        sums.into_iter().map(of_group).collect()
    }

    pub(super) fn bursts_of(&self, cell: usize) -> Bursts {
        let of = self.bursts.get(&self.table.cells[cell].0.0);
        of.copied().unwrap_or_default()
    }

    /// Share of a cell's late visits whose lines survive under some assumptions.
    pub(super) fn survive(&self, cell: usize, fit: &Fit, wait: Wait) -> f64 {
        let laps = || self.table.laps[cell].iter();
        let again = laps()
            .map(|l| l.part * l.again[wait.laps])
            .sum::<f64>()
            .min(1.0);
        let in_laps = laps().map(|l| l.waits(wait.v, wait.laps)).sum::<f64>();
        // Other samples also count the visits of laps, and several visits of one episode. The
        // remaining visits are rarer by the same share.
        let rarer = (1.0 - again) * wait.returns;
        let v = wait.v * rarer;
        // Both are slow to compute, and one of the shares is often zero.
        let part = |part: f64, of: &dyn Fn() -> f64| if part == 0.0 { 0.0 } else { part * of() };
        let in_loops = part(1.0 - wait.at_random, &|| {
            fit.in_loops(wait.of_loops * rarer)
        });
        let at_random = part(wait.at_random, &|| fit.at_random(v));
        let all = |at_random: f64| in_laps + (1.0 - again) * (at_random + in_loops);
        let survives = all(at_random) * wait.watched;
        if wait.in_bursts == 0.0 {
            return survives;
        }
        let in_bursts = wait.v * (1.0 - again) * self.bursts_of(cell).times;
        let in_bursts = part(wait.at_random, &|| fit.at_random(in_bursts));
        survives.min(all(at_random + wait.in_bursts * (in_bursts - at_random)))
    }

    /// Estimated survival, by cell and along the grid.
    pub(super) fn curves(&self) -> Vec<Vec<f64>> {
        self.by_cell(|cell, v| {
            let watched = watched_reuses::between(&self.watched[cell], v)[1];
            let wait = Wait {
                watched,
                ..self.plain(cell, v)
            };
            self.survive(cell, &self.fits[cell], wait)
        })
    }

    /// Lower bound of the survival, as far as watches permit.
    pub(super) fn least_curves(&self) -> Vec<Vec<f64>> {
        self.by_cell(|cell, v| {
            let watched = watched_reuses::between(&self.watched[cell], v * self.pace_ends[cell])[0];
            let wait = Wait {
                watched,
                in_bursts: self.bursts_of(cell).most(),
                ..self.plain(cell, v)
            };
            let survives = self.either_way(cell, wait, f64::min);
            match self.swept_in_parts(cell, v, v) {
                Some(least) => least.min(survives),
                None => survives,
            }
        })
    }

    /// Upper bound of the survival: walks return as rarely as possible, and nothing is used in
    /// bursts.
    pub(super) fn most_curves(&self) -> Vec<Vec<f64>> {
        self.by_cell(|cell, v| {
            let watched = watched_reuses::between(&self.watched[cell], v)[1];
            let wait = Wait {
                watched,
                ..self.seldom(cell, v)
            };
            self.either_way(cell, wait, f64::max)
        })
    }

    /// Least or greatest survival over the range of shares of random visits.
    fn either_way(&self, cell: usize, wait: Wait, of: fn(f64, f64) -> f64) -> f64 {
        let survives = |at_random| {
            let wait = Wait { at_random, ..wait };
            self.survive(cell, &self.fits[cell], wait)
        };
        let [least, value, most] = self.at_random[cell];
        let mut found = survives(value);
        for at_random in [least, most].into_iter().filter(|&r| r != value) {
            found = of(found, survives(at_random));
        }
        found
    }

    pub(super) fn seldom(&self, cell: usize, v: f64) -> Wait {
        Wait {
            laps: 0,
            in_bursts: 0.0,
            returns: self.returns[cell][0],
            ..self.plain(cell, v)
        }
    }

    pub(super) fn by_cell(&self, at: impl Fn(usize, f64) -> f64) -> Vec<Vec<f64>> {
        (0..self.fits.len())
            .map(|cell| grid().map(|v| at(cell, v)).collect())
            .collect()
    }

    /// Lower bound of the survival of a strided loop that may be part of a nest. Samples may show
    /// sweeps over the whole array, while between two samples parts of it are swept many times. `v`
    /// and `latest` are the estimated and the latest time at which the cache is full. None if
    /// samples show how the array was swept.
    pub(super) fn swept_in_parts(&self, cell: usize, v: f64, latest: f64) -> Option<f64> {
        let strided = self.table.cells[cell].0.0.class() == AccessClass::Strided;
        if !strided || self.fits[cell].evidence <= 0.0 || !self.table.laps[cell].is_empty() {
            return None;
        }
        // Watched words without another access were not swept again, unless the walk goes back and
        // forth.
        let at_random = self.at_random[cell][1];
        let (floors, part) = &self.floors[cell];
        let alone = match at_random < params::MIN_RETURN_SHARE_OF_TO_AND_FRO {
            true => watched_reuses::floor_of(
                floors,
                *part,
                latest.max(v) * params::PACE_INTERVAL_FACTOR,
            ),
            false => 0.0,
        };
        let bursts = self.bursts_of(cell);
        let times = if bursts.part > 0.0 { bursts.times } else { 1.0 };
        Some(alone.max(at_random * self.fits[cell].at_random(v * times)))
    }
}
