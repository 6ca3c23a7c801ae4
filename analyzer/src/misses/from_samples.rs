//! The part of an estimate of survival that samples tell, without watchpoints.

use crate::data::group::Group;
use crate::misses::params;
use crate::misses::reuse_distance::Near;
use crate::misses::survival_curve::Fit;
use crate::misses::visit_table::{VisitTable, near_of};
use crate::stages::line_visits::part;
use crate::util::fast_hash::Mixed;
use std::collections::HashMap;

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

/// See the module's text. All replicates, or all but one.
pub(super) struct FromSamples {
    without: Option<usize>,
    pub(super) nears: HashMap<Group, Near, Mixed>,
    /// By cell.
    pub(super) fits: Vec<Fit>,
    /// Late visits by group.
    pub(super) late: HashMap<Group, f64, Mixed>,
    /// By cell: the sum of its weights over all samples, and the same sum weighted by each sample's
    /// lines.
    pub(super) sums: Vec<(f64, f64)>,
    /// By cell: new lines that the cells beside it bring in, weighted by the cell's own visits.
    pub(super) beside: Vec<Vec<(u32, f64)>>,
    /// By cell: lower end, estimate and upper end of the share of its visits that return at random.
    pub(super) at_random: Vec<[f64; 3]>,
    /// By cell: lower end, estimate and upper end of the share of the coincidences that are
    /// returns.
    pub(super) returns: Vec<[f64; 3]>,
    /// By group: see [`FromSamples::find_bursts`].
    pub(super) bursts: HashMap<Group, Bursts, Mixed>,
}

impl FromSamples {
    pub(super) fn new(table: &VisitTable<'_>, without: Option<usize>) -> FromSamples {
        let near = |&group: &Group| {
            let mut near = near_of(table.lines, group, without);
            // A replicate has its own counts, but the reach of all data.
            near.reach = table.reach.get(&group).copied().unwrap_or(near.reach);
            (group, near)
        };
        let nears = match without {
            None => table.nears.clone(),
            Some(_) => table.groups.iter().map(near).collect(),
        };
        let mut late: HashMap<Group, f64, Mixed> = HashMap::default();
        for ((group, _), far) in &table.cells {
            *late.entry(*group).or_default() += far.visits(without);
        }
        let fits = table.cells.iter().map(|c| c.1.fit(c.1.radius(), without));
        let mut found = FromSamples {
            without,
            nears,
            fits: fits.collect(),
            late,
            sums: vec![(0.0, 0.0); table.cells.len()],
            beside: Vec::new(),
            at_random: Vec::new(),
            returns: table.returns_of_cells(without),
            bursts: HashMap::default(),
        };
        found.look_beside(table);
        found.at_random = (0..table.cells.len())
            .map(|cell| found.part_at_random(table, cell))
            .collect();
        found.bursts = found.find_bursts(table);
        found.nears.values_mut().for_each(Near::settle);
        found
    }

    pub(super) fn near_of(&self, table: &VisitTable<'_>, cell: usize) -> &Near {
        &self.nears[&table.cells[cell].0.0]
    }

    /// New lines of a sample that one late visit of each cell represents.
    fn stands_for(&self, table: &VisitTable<'_>) -> Vec<f64> {
        let mut accesses: HashMap<Group, f64, Mixed> = HashMap::default();
        let samples = table.lines.samples.iter();
        for of in samples.filter(|s| Some(part(s.sample)) != self.without) {
            *accesses.entry(of.group).or_default() += f64::from(of.accesses);
        }
        let of_cell = |cell: usize| {
            let (near, group) = (self.near_of(table, cell), table.cells[cell].0.0);
            let accesses = accesses.get(&group).copied().unwrap_or(0.0);
            accesses * near.far(f64::INFINITY) / self.late[&group].max(1.0)
        };
        (0..table.cells.len()).map(of_cell).collect()
    }

    /// Sums up, for each cell, the lines of its samples and the late visits of the cells beside it.
    fn look_beside(&mut self, table: &VisitTable<'_>) {
        let stands_for = self.stands_for(table);
        let mut beside: Vec<HashMap<u32, f64, Mixed>> = vec![HashMap::default(); table.cells.len()];
        for (sample, cells) in table.beside.iter().enumerate() {
            if Some(part(sample as u32)) == self.without {
                continue;
            }
            let lines = table.distinct[sample];
            for &(cell, weight) in cells {
                let sum = &mut self.sums[cell as usize];
                *sum = (sum.0 + weight, sum.1 + weight * lines);
                let beside = &mut beside[cell as usize];
                for &(other, count) in cells {
                    *beside.entry(other).or_default() +=
                        weight * count * stands_for[other as usize];
                }
            }
        }
        self.beside = (beside.into_iter())
            .map(|beside| beside.into_iter().collect())
            .collect();
    }

    /// Share of the visits that return at random: lower end, estimate, upper end. Random visits
    /// return just before the reach as often as their rate says. Loops do not return there.
    fn part_at_random(&self, table: &VisitTable<'_>, cell: usize) -> [f64; 3] {
        let of_sample = self.sums[cell].1 / self.sums[cell].0.max(1.0);
        let of_line = self.fits[cell].rate() / of_sample.max(1.0);
        let from = |part: f64| {
            let (reuses, lines) = self.near_of(table, cell).late_reuses(part);
            let expected = of_line * lines;
            if expected <= 0.0 {
                return [0.0, 1.0, 1.0];
            }
            let off = params::STANDARD_ERRORS_IN_HALF_INTERVAL * (reuses + 1.0).sqrt();
            [reuses - off, reuses, reuses + off].map(|r| (r / expected).clamp(0.0, 1.0))
        };
        // Reuse at one of the two distances does not imply reuse at the other.
        let [least, value, most] = from(params::LATE_REUSES_REACH_SHARE);
        let last = from(params::LATEST_REUSES_REACH_SHARE);
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
    fn find_bursts(&self, table: &VisitTable<'_>) -> HashMap<Group, Bursts, Mixed> {
        let mut sums: HashMap<Group, (f64, f64), Mixed> = HashMap::default();
        for (cell, fit) in self.fits.iter().enumerate() {
            let of_sample = self.sums[cell].1 / self.sums[cell].0.max(1.0);
            let visits = table.cells[cell].1.visits(self.without);
            let sum = sums.entry(table.cells[cell].0.0).or_default();
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
}
