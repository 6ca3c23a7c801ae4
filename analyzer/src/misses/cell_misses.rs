//! Misses of groups of code and of objects at given capacities.
//!
//! A *cell* holds the visits of one group of code to one object. They are treated as alike.
//! Distances inside samples are known ([`reuse_distance`](super::reuse_distance)). Beyond the
//! reach, other samples give the probability that a cell's visits survive for `v` sample lengths
//! ([`survival_curve`](super::survival_curve)). The time that fills a cache follows from the same
//! survival: the rate of new lines is the sum of the surviving shares of all cells that run in the
//! same samples.

use crate::data::group::Group;
use crate::misses::fill_time::{Times, doubt_of};
use crate::misses::params;
use crate::misses::predictor::Watches;
use crate::misses::set_conflicts;
use crate::misses::survival_bounds::{Estimate, Wait};
use crate::misses::visit_table::{VisitTable, lines_without};
use crate::util::fast_hash::Mixed;
use rayon::prelude::*;
use std::collections::HashMap;

/// Misses per access of a group, by capacity.
#[derive(Clone, Debug, Default)]
pub(crate) struct GroupMisses {
    /// Misses per access.
    pub(crate) ratio: Vec<f64>,
    /// By object: its part of the group's misses.
    pub(crate) objects: Vec<(u32, Vec<f64>)>,
    /// Lower end of the interval from the errors of the model.
    pub(crate) least: Vec<f64>,
    pub(crate) most: Vec<f64>,
}

/// An estimate for all groups.
pub(crate) type ByGroup = HashMap<Group, GroupMisses, Mixed>;

/// Shares of misses by capacity: lower ends, estimates, upper ends.
pub(super) type Ends = [Vec<f64>; 3];

impl VisitTable<'_> {
    /// Misses of all groups at capacities in lines, without one of the replicates. `levels`: cache
    /// levels of the first capacities.
    pub(crate) fn estimate(
        &self,
        capacities: &[f64],
        levels: &[usize],
        without: Option<usize>,
        watches: Watches,
    ) -> ByGroup {
        let units = match watches {
            Watches::Used => &self.units[..],
            Watches::LeftOut => &[],
        };
        let estimate = Estimate::new(self, without, units);
        let curves = estimate.curves();
        let has_bursts = estimate.bursts.values().any(|b| b.part > 0.0);
        let is_doubtful = !units.is_empty() || has_bursts;
        let least = (without.is_none() && is_doubtful).then(|| estimate.least_curves());
        // Caches fill earlier if walks and bursts return less often than estimated.
        let is_seldom = has_bursts
            || self.laps.iter().any(|laps| !laps.is_empty())
            || estimate
                .at_random
                .iter()
                .chain(&estimate.returns)
                .any(|[least, _, most]| least < most);
        let most = (without.is_none() && is_seldom).then(|| estimate.most_curves());
        let far: Vec<Ends> = (0..self.cells.len())
            .into_par_iter()
            .map(|cell| {
                let filled = |curves: &Vec<Vec<f64>>| estimate.filled(cell, curves, capacities);
                let (full, latest) = (filled(&curves), least.as_ref().map(filled));
                let soonest = most.as_ref().map(filled);
                let times = |at: usize| {
                    let [v, early, late] = full[at];
                    Times {
                        full: v,
                        edges: [early, late],
                        latest: latest.as_ref().map_or(v, |times| times[at][0].max(v)),
                        soonest: soonest.as_ref().map_or(v, |times| times[at][0].min(v)),
                    }
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
            least.for_each(|e| *e = (*e - params::MIN_HALF_INTERVAL_OF_MISSES).max(0.0));
            most.for_each(|e| *e = (*e + params::MIN_HALF_INTERVAL_OF_MISSES).min(1.0));
        }
        self.conflicts(levels, without, &mut all);
        all
    }
}

impl Estimate<'_, '_> {
    /// Share of a cell's late visits that miss caches which are full at `times`.
    fn far(&self, cell: usize, times: &[Times], capacities: &[f64], levels: &[usize]) -> Ends {
        let (table, group) = (self.table, self.table.cells[cell].0.0);
        let reach = self.near_of(cell).reach as f64;
        let near = lines_without(table.lines, group, self.without);
        let mut ends: Ends = Default::default();
        for (at, (&capacity, times)) in capacities.iter().zip(times).enumerate() {
            if capacity <= reach {
                ends.iter_mut().for_each(|e| e.push(1.0));
                continue;
            }
            let level = levels.get(at);
            let crowd = level.and_then(|&l| table.crowded[l].get(cell)?.as_ref());
            let rest = crowd.map(|c| c.rest.fit(params::SEARCH_RADII.len() - 1, self.without));
            // Share of late visits whose set is full of lines of the sample itself.
            let full = level.map_or(0.0, |&l| set_conflicts::full(&near, l));
            let misses = |wait: Wait| {
                let survives = match (crowd, &rest) {
                    (Some(crowd), Some(rest)) => {
                        // Data in crowded sets is mostly reused soon.
                        let part = (1.0 - crowd.part).max(0.0);
                        let watched = 1.0 - part * (1.0 - wait.watched);
                        crowd.survives + part * self.survive(cell, rest, Wait { watched, ..wait })
                    }
                    _ => self.survive(cell, &self.fits[cell], wait),
                };
                full + (1.0 - full) * survives
            };
            let of = self.within(cell, times, misses);
            let off = crowd.map_or(0.0, |c| {
                params::CROWDED_SETS_ERROR * (1.0 - full) * (c.part - c.survives).max(0.0)
            });
            let of = [(of[0] - off).max(0.0), of[1], (of[2] + off).min(1.0)];
            ends.iter_mut().zip(of).for_each(|(e, x)| e.push(x));
        }
        ends
    }

    /// Misses of all groups if every late visit missed.
    fn near(&self, capacities: &[f64]) -> ByGroup {
        let of_group = |&group: &Group| {
            let near = &self.nears[&group];
            let known = |&c: &f64| near.far(c);
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

    /// By group: the share of late visits that miss. Each object gets its part of the misses that
    /// `all` has so far.
    fn mixed(&self, far: &[Ends], all: &mut ByGroup) -> HashMap<Group, Ends, Mixed> {
        let mut mixed: HashMap<Group, Ends, Mixed> = HashMap::default();
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
