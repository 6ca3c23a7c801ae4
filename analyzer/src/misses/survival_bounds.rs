//! Survival of lines after their late visits: the estimate, and the alternatives that bound it.
//!
//! A late visit is the first touch of a line in a sample, beyond the reach of samples (see
//! [`reuse_distance`](super::reuse_distance)). Its line survives `v` sample lengths if no access
//! touches it for that time.

use crate::data::group::AccessClass;
use crate::misses::from_samples::{Bursts, FromSamples};
use crate::misses::params;
use crate::misses::predictor::Watches;
use crate::misses::reuse_distance::Near;
use crate::misses::survival_curve::{Fit, grid};
use crate::misses::visit_table::VisitTable;
use crate::misses::watched_reuses;
use crate::stages::line_visits::PARTS;
use std::sync::{Arc, OnceLock};

/// One set of assumptions from which survival is computed.
#[derive(Clone, Copy)]
pub(super) struct Wait {
    /// Sample lengths since the visit.
    pub(super) v: f64,
    /// Sample lengths since the visit, for lines that return after equal times.
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

/// An estimate from all replicates, or from all but one.
pub(super) struct Estimate<'t, 'a> {
    pub(super) table: &'t VisitTable<'a>,
    pub(super) without: Option<usize>,
    pub(super) samples: Arc<FromSamples>,
    pub(super) watches: Arc<FromWatches>,
}

/// The part of an estimate that watchpoints tell.
pub(super) struct FromWatches {
    /// By cell: factors by which watchpoints change its survival, along the grid. Empty if they
    /// give no estimate.
    pub(super) watched: Vec<Arc<Vec<[f64; 3]>>>,
    /// By cell: the error of the time of watches, as a factor.
    pub(super) pace_ends: Vec<f64>,
    /// By cell: a lower bound from watches, along the grid, for the survival of its code's late
    /// visits, and the cell's share of these visits.
    pub(super) floors: Vec<(Arc<Vec<f64>>, f64)>,
}

impl FromWatches {
    /// Nothing, for so many cells.
    fn nothing(cells: usize) -> FromWatches {
        FromWatches {
            watched: vec![Arc::default(); cells],
            pace_ends: vec![params::PACE_INTERVAL_FACTOR; cells],
            floors: vec![(Arc::default(), 1.0); cells],
        }
    }
}

/// Survival of cells along the grid. It does not depend on capacities.
pub(super) struct Curves {
    /// The estimate.
    pub(super) middle: Vec<Vec<f64>>,
    /// As low as watches allow, if there are any, or bursts.
    pub(super) least: Option<Vec<Vec<f64>>>,
    /// With walks that return as rarely as possible, if there are any, or bursts.
    pub(super) most: Option<Vec<Vec<f64>>>,
}

/// Parts of estimates that predictions for several capacities share: from all replicates, then
/// without one each.
#[derive(Default)]
pub(super) struct SharedParts {
    samples: [OnceLock<Arc<FromSamples>>; PARTS + 1],
    watches: [OnceLock<Arc<FromWatches>>; PARTS + 1],
    curves: [OnceLock<Arc<Curves>>; PARTS + 1],
}

impl<'t, 'a> Estimate<'t, 'a> {
    pub(super) fn new(
        table: &'t VisitTable<'a>,
        without: Option<usize>,
        watches: Watches,
    ) -> Estimate<'t, 'a> {
        let at = number_of(without);
        let samples = || Arc::new(FromSamples::new(table, without));
        let mut estimate = Estimate {
            table,
            without,
            samples: table.shared.samples[at].get_or_init(samples).clone(),
            watches: Arc::new(FromWatches::nothing(table.cells.len())),
        };
        if watches == Watches::Used {
            let found = || Arc::new(estimate.watched_parts());
            estimate.watches = table.shared.watches[at].get_or_init(found).clone();
        }
        estimate
    }

    fn watched_parts(&self) -> FromWatches {
        let mut found = FromWatches::nothing(self.table.cells.len());
        for unit in &self.table.units {
            if unit.walks && self.without.is_some() {
                continue;
            }
            if unit.walks {
                let floors = Arc::new(unit.floors(self.without));
                for &(cell, part) in &unit.tells {
                    found.floors[cell as usize] = (floors.clone(), part);
                }
                continue;
            }
            let factors = Arc::new(unit.factors(self.without, |v, cells| self.mean(v, cells)));
            for &(cell, _) in &unit.tells {
                found.pace_ends[cell as usize] = unit.pace_ends();
                found.watched[cell as usize] = factors.clone();
            }
        }
        found
    }

    /// Survival of all cells.
    pub(super) fn all_curves(&self, watches: Watches) -> Arc<Curves> {
        let is_shared = watches == Watches::Used || self.table.units.is_empty();
        let curves = || Arc::new(self.computed_curves(watches));
        match is_shared {
            true => self.table.shared.curves[number_of(self.without)]
                .get_or_init(curves)
                .clone(),
            false => curves(),
        }
    }

    fn computed_curves(&self, watches: Watches) -> Curves {
        let bursts = &self.samples.bursts;
        let has_bursts = bursts.values().any(|b| b.part > 0.0);
        let has_units = watches == Watches::Used && !self.table.units.is_empty();
        // Caches fill sooner if walks and bursts return more rarely than estimated.
        let is_seldom = has_bursts
            || self.table.laps.iter().any(|laps| !laps.is_empty())
            || (self.samples.at_random.iter())
                .chain(&self.samples.returns)
                .any(|[least, _, most]| least < most);
        let is_whole = self.without.is_none();
        Curves {
            middle: self.curves(),
            least: (is_whole && (has_units || has_bursts)).then(|| self.least_curves()),
            most: (is_whole && is_seldom).then(|| self.most_curves()),
        }
    }

    pub(super) fn near_of(&self, cell: usize) -> &Near {
        self.samples.near_of(self.table, cell)
    }
}

/// Place among [`SharedParts`].
fn number_of(without: Option<usize>) -> usize {
    without.map_or(0, |part| part + 1)
}

impl Estimate<'_, '_> {
    /// Mean survival of the late visits of some cells, and its error due to the model.
    pub(super) fn mean(&self, v: f64, cells: &[u32]) -> (f64, f64) {
        let edge = params::FILL_UNCERTAINTY_FACTOR;
        let (mut sums, mut all) = ([0.0; 3], 0.0);
        for &cell in cells {
            let cell = cell as usize;
            let visits = self.table.cells[cell].1.visits(self.without);
            let of = |wait: Wait| self.survive(cell, &self.samples.fits[cell], wait);
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
        let returns = self.samples.returns[cell][1];
        Wait {
            v,
            of_loops: v,
            at_random: self.samples.at_random[cell][1],
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
            .map(move |end| self.samples.at_random[cell][end])
            .filter(move |&end| end != plain.at_random)
            .map(move |at_random| Wait { at_random, ..plain })
            .chain(
                ([0, 2].into_iter())
                    .map(move |end| self.samples.returns[cell][end])
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

    pub(super) fn bursts_of(&self, cell: usize) -> Bursts {
        let of = self.samples.bursts.get(&self.table.cells[cell].0.0);
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
            let watched = watched_reuses::between(&self.watches.watched[cell], v)[1];
            let wait = Wait {
                watched,
                ..self.plain(cell, v)
            };
            self.survive(cell, &self.samples.fits[cell], wait)
        })
    }

    /// Lower bound of the survival, as far as watches permit.
    pub(super) fn least_curves(&self) -> Vec<Vec<f64>> {
        self.by_cell(|cell, v| {
            let watched = watched_reuses::between(
                &self.watches.watched[cell],
                v * self.watches.pace_ends[cell],
            )[0];
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
            let watched = watched_reuses::between(&self.watches.watched[cell], v)[1];
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
            self.survive(cell, &self.samples.fits[cell], wait)
        };
        let [least, value, most] = self.samples.at_random[cell];
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
            returns: self.samples.returns[cell][0],
            ..self.plain(cell, v)
        }
    }

    pub(super) fn by_cell(&self, at: impl Fn(usize, f64) -> f64) -> Vec<Vec<f64>> {
        (0..self.samples.fits.len())
            .map(|cell| grid().map(|v| at(cell, v)).collect())
            .collect()
    }

    /// Lower bound of the survival of a strided loop that may be part of a nest. Samples may show
    /// sweeps over the whole array, while between two samples parts of it are swept many times. `v`
    /// and `latest` are the estimated and the latest time at which the cache is full. None if
    /// samples show how the array was swept.
    pub(super) fn swept_in_parts(&self, cell: usize, v: f64, latest: f64) -> Option<f64> {
        let strided = self.table.cells[cell].0.0.class() == AccessClass::Strided;
        if !strided || self.samples.fits[cell].evidence <= 0.0 || !self.table.laps[cell].is_empty()
        {
            return None;
        }
        // Watched words without another access were not swept again, unless the walk goes back and
        // forth.
        let at_random = self.samples.at_random[cell][1];
        let (floors, part) = &self.watches.floors[cell];
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
        Some(alone.max(at_random * self.samples.fits[cell].at_random(v * times)))
    }
}
