//! Misses of rows, summed from those of groups of code.

use crate::data::group::Group;
use crate::data::memory_units::LINE_BYTES;
use crate::engine::EngineOutcome;
use crate::estimate::Estimate;
use crate::misses::cell_misses::ByGroup;
use crate::misses::load_weights::{self, Factors, LoadWeights, Part};
use crate::misses::pace_bias::SpeedFactors;
use crate::misses::params;
use crate::misses::predictor::Watches;
use crate::misses::visit_table::VisitTable;
use crate::misses::watched_reuses::WatchedReuses;
use crate::misses::{CurvePoint, Hierarchy, LevelMisses, Misses, Range, caches};
use crate::stages::line_visits::{LineVisits, PARTS, part};
use crate::util::fast_hash::Mixed;
use mgz_annotations_schema::manifest::Cache;
use mgz_models::statistics::jackknife_variance;
use std::collections::{BTreeMap, HashMap};

/// Loads of a group by replicate, each with its weight: recorded loads (`accesses`), and these
/// together with the loads that they imply.
#[derive(Clone, Debug, Default)]
pub(super) struct Weighed {
    pub(super) accesses: [f64; PARTS],
    pub(super) loads: [f64; PARTS],
}

/// Misses per access of a group or of a part of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Ratios {
    pub(super) value: Vec<f64>,
    pub(super) least: Vec<f64>,
    pub(super) most: Vec<f64>,
    /// One estimate for each replicate left out.
    pub(super) without: Vec<Vec<f64>>,
}

/// Misses of all groups, at the cache levels and along the curve.
#[derive(Clone, Debug, Default)]
pub struct Predicted {
    /// Caches of the prediction.
    pub hierarchy: Hierarchy,
    pub(super) groups: HashMap<Group, (Weighed, Ratios), Mixed>,
    /// Each object's part of the misses of each group.
    objects: HashMap<u32, Vec<(Group, Ratios)>, Mixed>,
    /// Errors of the weights by group.
    weight_errors: HashMap<Group, WeightError, Mixed>,
    /// Late visits in sequence, and all late visits, by group and by object.
    sequences: HashMap<Group, (f64, f64), Mixed>,
    of_objects: HashMap<u32, (f64, f64), Mixed>,
    /// Sums of the whole run.
    whole: Sum,
    /// By function of the whole run, in the order of [`Sum::functions`].
    whole_factors: Vec<Factors>,
    pub(super) exact: bool,
    /// Number of points of the curve; zero if it is not requested.
    curve: u32,
    /// Contribution of the watchpoints.
    watched: Option<WatchedReuses>,
}

/// Misses at all capacities, and loads, summed over groups.
#[derive(Clone, Debug, Default)]
struct Sum {
    value: Vec<f64>,
    least: Vec<f64>,
    most: Vec<f64>,
    without: Vec<Vec<f64>>,
    loads: f64,
    loads_without: [f64; PARTS],
    /// By function, since the weights of all its windows have one common error.
    functions: BTreeMap<u32, Part>,
    sequence: f64,
    late: f64,
}

/// A group's function, and the error of the weight of its loads.
type WeightError = (u32, f64);

fn add(to: &mut Vec<f64>, of: &[f64], times: f64) {
    to.resize(to.len().max(of.len()), 0.0);
    to.iter_mut().zip(of).for_each(|(a, b)| *a += b * times);
}

impl Sum {
    fn ratios(&mut self, weighed: &Weighed, ratios: &Ratios, (function, error): WeightError) {
        let all: f64 = weighed.accesses.iter().sum();
        let part = self.functions.entry(function).or_default();
        add(&mut part.misses, &ratios.value, all);
        part.error = part.error.max(error);
        add(&mut self.value, &ratios.value, all);
        add(&mut self.least, &ratios.least, all);
        add(&mut self.most, &ratios.most, all);
        self.without
            .resize(ratios.without.len().max(self.without.len()), Vec::new());
        for (at, (sum, of)) in self.without.iter_mut().zip(&ratios.without).enumerate() {
            add(sum, of, all - weighed.accesses[at]);
        }
    }

    fn loads(&mut self, weighed: &Weighed, (function, error): WeightError) {
        let all: f64 = weighed.loads.iter().sum();
        let part = self.functions.entry(function).or_default();
        part.loads += all;
        part.error = part.error.max(error);
        self.loads += all;
        for (sum, of) in self.loads_without.iter_mut().zip(&weighed.loads) {
            *sum += all - of;
        }
    }

    /// By function.
    fn factors(&self) -> Vec<Factors> {
        self.functions.values().map(Part::factors).collect()
    }
}

/// All capacities in bytes: first those of the levels, then those of the curve.
pub(super) fn sizes(caches: &[Cache], curve: u32) -> Vec<u64> {
    caches
        .iter()
        .map(|c| c.size)
        .chain((0..curve).map(|at| LINE_BYTES << at))
        .collect()
}

impl Predicted {
    /// Starts without misses. `watched` is the contribution of the watchpoints.
    pub(super) fn of_loads(hierarchy: Hierarchy, watched: Option<WatchedReuses>) -> Predicted {
        Predicted {
            hierarchy,
            watched,
            ..Predicted::default()
        }
    }

    /// These loads with their misses. `estimates` and `slower` are those of
    /// [`Predicted::add_estimates`]. `curve` is the number of points of the curve.
    pub(super) fn with_misses(
        &self,
        estimates: Vec<ByGroup>,
        slower: &SpeedFactors,
        (curve, watches): (u32, Watches),
    ) -> Option<Predicted> {
        let mut predicted = Predicted {
            curve,
            watched: self.watched.filter(|_| watches == Watches::Used),
            ..self.clone()
        };
        predicted.add_estimates(estimates, slower)?;
        predicted.whole();
        Some(predicted)
    }

    /// Adds the loads of groups, with the errors of their weights.
    pub(super) fn weigh(
        &mut self,
        lines: &LineVisits,
        weights: &LoadWeights,
        function: impl Fn(Group) -> u32,
    ) {
        // By group: loads, and the sum of loads times the error of their weight.
        let mut errors: HashMap<Group, (f64, f64), Mixed> = HashMap::default();
        for of in &lines.samples {
            let ((weight, error), at) = (weights.of(of.sample), part(of.sample));
            let sums = errors.entry(of.group).or_default();
            let here = weight * f64::from(of.accesses + of.implied);
            *sums = (sums.0 + here, sums.1 + here * error);
            let weighed = &mut self.groups.entry(of.group).or_default().0;
            weighed.accesses[at] += weight * f64::from(of.accesses);
            weighed.loads[at] += here;
        }
        self.weight_errors = errors
            .into_iter()
            .map(|(group, (all, error))| {
                let error = error / all.max(f64::MIN_POSITIVE);
                (group, (function(group), error))
            })
            .collect();
    }

    /// Adds the misses of groups and of their objects. `estimates` has the estimate from all
    /// samples, then those without each replicate. `slower` comes from
    /// [`crate::misses::pace_bias::speed_factors`].
    fn add_estimates(&mut self, estimates: Vec<ByGroup>, slower: &SpeedFactors) -> Option<()> {
        let mut estimates = estimates.into_iter();
        // Floating-point sums depend on the order.
        let mut value: Vec<_> = estimates.next()?.into_iter().collect();
        value.sort_unstable_by_key(|v| v.0);
        let replicates: Vec<ByGroup> = estimates.collect();
        for (group, of) in value {
            let [less, likely, greatest] = slower.get(&group).copied().unwrap_or([1.0; 3]);
            let scale = |ratios: &[f64]| ratios.iter().map(|r| r * likely).collect::<Vec<f64>>();
            for (object, value) in of.objects {
                let without = |r: &ByGroup| {
                    let of = r.get(&group)?.objects.iter().find(|o| o.0 == object)?;
                    Some(scale(&of.1))
                };
                let value = scale(&value);
                let ratios = Ratios {
                    without: replicates
                        .iter()
                        .map(|r| without(r).unwrap_or_else(|| value.clone()))
                        .collect(),
                    least: scaled(&value, &of.least, &of.ratio),
                    most: scaled(&value, &of.most, &of.ratio),
                    value,
                };
                let list = self.objects.entry(object).or_default();
                list.push((group, ratios));
            }
            let ratios = Ratios {
                without: replicates
                    .iter()
                    .map(|r| r.get(&group).map_or_else(Vec::new, |g| scale(&g.ratio)))
                    .collect(),
                least: (of.least.iter().zip(&of.ratio))
                    .map(|(least, ratio)| (likely * least).min(less * ratio))
                    .collect(),
                value: scale(&of.ratio),
                most: (of.most.iter().zip(&of.ratio))
                    .map(|(most, ratio)| (likely * most).max(greatest * ratio))
                    .collect(),
            };
            if let Some(entry) = self.groups.get_mut(&group) {
                entry.1 = ratios;
            }
        }
        Some(())
    }

    /// Adds late visits in sequence, and all late visits.
    pub(super) fn add_sequences(&mut self, table: &VisitTable<'_>) {
        for ((group, object), part, all) in table.sequences() {
            for sums in [
                self.sequences.entry(group).or_default(),
                self.of_objects.entry(object).or_default(),
            ] {
                sums.0 += part;
                sums.1 += all;
            }
        }
    }

    /// These loads with other misses, without objects, curves and intervals.
    pub(super) fn with_groups(
        &self,
        groups: HashMap<Group, (Weighed, Ratios), Mixed>,
    ) -> Predicted {
        Predicted {
            hierarchy: self.hierarchy.clone(),
            groups,
            sequences: self.sequences.clone(),
            exact: true,
            ..Predicted::default()
        }
    }

    /// Counts the misses of a complete trace from its reuse distances in lines.
    pub fn exact(outcome: &EngineOutcome, hierarchy: Hierarchy) -> Option<Predicted> {
        let bucket = outcome.buckets.first()?;
        let sizes = sizes(&hierarchy.caches, params::POINTS_OF_MISS_CURVE);
        let mut predicted = Predicted {
            hierarchy,
            curve: params::POINTS_OF_MISS_CURVE,
            exact: true,
            ..Predicted::default()
        };
        for (group, counts) in bucket.counts.iter().enumerate() {
            if Group::from_index(group).is_store() || counts.rows == 0 {
                continue;
            }
            let touches = bucket.reuse.groups.get(group).copied().unwrap_or_default();
            let all = (touches.reuses + touches.firsts).max(1) as f64;
            let distances = bucket.reuse.distances.get(group);
            let ratio = |&size: &u64| {
                let far = distances.map_or(0.0, |d| d.at_least(size / LINE_BYTES));
                (touches.firsts as f64 + far) / all
            };
            let value: Vec<f64> = sizes.iter().map(ratio).collect();
            let mut weighed = Weighed::default();
            weighed.accesses[0] = counts.rows as f64;
            weighed.loads[0] = (counts.rows + counts.implied) as f64;
            let ratios = Ratios {
                least: value.clone(),
                most: value.clone(),
                value,
                without: Vec::new(),
            };
            predicted
                .groups
                .insert(Group::from_index(group), (weighed, ratios));
        }
        predicted.whole();
        (predicted.whole.loads > 0.0).then_some(predicted)
    }

    fn whole(&mut self) {
        let mut groups: Vec<Group> = self.groups.keys().copied().collect();
        groups.sort_unstable();
        self.whole = self.sum(groups.into_iter());
        self.whole_factors = self.whole.factors();
    }

    fn sum(&self, groups: impl Iterator<Item = Group>) -> Sum {
        let mut sum = Sum::default();
        for group in groups {
            let Some((weighed, ratios)) = self.groups.get(&group) else {
                continue;
            };
            sum.ratios(weighed, ratios, self.weight_error(group));
            sum.loads(weighed, self.weight_error(group));
            let &(sequence, late) = self.sequences.get(&group).unwrap_or(&(0.0, 0.0));
            sum.sequence += sequence;
            sum.late += late;
        }
        sum
    }

    fn weight_error(&self, group: Group) -> WeightError {
        self.weight_errors.get(&group).copied().unwrap_or_default()
    }

    /// Misses of the whole run.
    pub fn of_whole(&self) -> Option<Misses> {
        let watched = self.watched;
        self.row(&self.whole).map(|row| Misses { watched, ..row })
    }

    /// Misses of a row that consists of these groups.
    pub fn of_groups(&self, groups: impl Iterator<Item = Group>) -> Option<Misses> {
        self.row(&self.sum(groups))
    }

    /// Misses per recorded access of a group, first at the cache levels. Empty if unknown.
    pub fn per_access(&self, group: Group) -> &[f64] {
        self.groups.get(&group).map_or(&[][..], |g| &g.1.value)
    }

    /// By object: nanoseconds that some groups wait for their misses there.
    pub fn waits_by_object(&self, groups: &[Group]) -> HashMap<u32, f64, Mixed> {
        let mut waits: HashMap<u32, f64, Mixed> = HashMap::default();
        let levels = self.hierarchy.caches.len();
        for (&object, list) in &self.objects {
            for (group, ratios) in list.iter().filter(|l| groups.contains(&l.0)) {
                let all: f64 = self
                    .groups
                    .get(group)
                    .map_or(0.0, |g| g.0.accesses.iter().sum());
                let of_levels = ratios.value.iter().take(levels).enumerate();
                let wait: f64 = of_levels
                    .map(|(at, r)| r * self.hierarchy.wait_ns(at)[1])
                    .sum();
                *waits.entry(object).or_default() += all * wait;
            }
        }
        waits
    }

    /// Misses of an object. `loads`: by group, the object's loads; `all`: all loads of a group.
    pub fn of_object(
        &self,
        object: u32,
        loads: impl Iterator<Item = (Group, u64)>,
        all: impl Fn(Group) -> u64,
    ) -> Option<Misses> {
        let mut sum = Sum::default();
        // Floating-point sums depend on the order.
        let mut loads: Vec<(Group, u64)> = loads.collect();
        loads.sort_unstable_by_key(|l| l.0);
        for (group, some) in loads {
            let Some((weighed, _)) = self.groups.get(&group) else {
                continue;
            };
            let share = (some as f64 / all(group).max(1) as f64).min(1.0);
            let part = Weighed {
                accesses: weighed.accesses,
                loads: weighed.loads.map(|l| l * share),
            };
            sum.loads(&part, self.weight_error(group));
        }
        for (group, ratios) in self.objects.get(&object).into_iter().flatten() {
            if let Some((weighed, _)) = self.groups.get(group) {
                sum.ratios(weighed, ratios, self.weight_error(*group));
            }
        }
        if sum.value.is_empty() {
            // The samples have no late visit to the object.
            return None;
        }
        let &(sequence, late) = self.of_objects.get(&object).unwrap_or(&(0.0, 0.0));
        (sum.sequence, sum.late) = (sequence, late);
        self.row(&sum)
    }

    fn row(&self, sum: &Sum) -> Option<Misses> {
        if sum.loads <= 0.0 || sum.value.is_empty() {
            return None;
        }
        let prefetchable = (sum.late > 0.0).then(|| sum.sequence / sum.late);
        let factors = match self.exact {
            true => Vec::new(),
            false => sum.factors(),
        };
        let levels: Vec<LevelMisses> = (0..self.hierarchy.caches.len())
            .map(|at| LevelMisses {
                level: caches::name(&self.hierarchy.caches[at]),
                size: self.hierarchy.caches[at].size,
                processor_size: self.hierarchy.processor_size(at),
                ratio: Some(self.ratio((sum, &factors), at)),
                share: self.share(sum, at),
                count: None,
                prefetchable,
            })
            .collect();
        let curve = (0..self.curve as usize)
            .filter(|_| sum.loads >= params::MIN_LOAD_SHARE_FOR_CURVE * self.whole.loads)
            .map(|at| CurvePoint {
                size: LINE_BYTES << at,
                ratio: self.ratio((sum, &factors), self.hierarchy.caches.len() + at),
            })
            .collect();
        Some(Misses {
            stall_ns: stall(&levels, &self.hierarchy),
            levels,
            memory_bound_pct: None,
            curve,
            watched: None,
        })
    }

    fn ratio(&self, (sum, factors): (&Sum, &[Factors]), at: usize) -> Range {
        let value = sum.value[at] / sum.loads;
        if self.exact {
            return [value; 3];
        }
        let without = (0..sum.without.len()).filter(|&r| sum.loads_without[r] > 0.0);
        let of = without
            .filter_map(|r| Some(sum.without[r].get(at)? / sum.loads_without[r]))
            .collect::<Vec<f64>>();
        let half = replicate_spread(&of);
        let (less, more) = (
            value - sum.least[at] / sum.loads,
            sum.most[at] / sum.loads - value,
        );
        let parts = (sum.functions.values().zip(factors)).map(|(part, factors)| {
            let misses = part.misses.get(at).copied().unwrap_or(0.0);
            (misses, part.loads, *factors)
        });
        let (down, up) = load_weights::spread(sum.value[at], sum.loads, parts);
        ends(
            value,
            half.hypot(less).hypot(down),
            half.hypot(more).hypot(up),
        )
    }

    fn share(&self, sum: &Sum, at: usize) -> Option<Range> {
        let all = *self.whole.value.get(at)?;
        if all <= 0.0 {
            return None;
        }
        let value = (sum.value[at] / all).min(1.0);
        if self.exact {
            return Some([value; 3]);
        }
        let of: Vec<f64> = sum
            .without
            .iter()
            .zip(&self.whole.without)
            .filter_map(|(part, all)| Some(part.get(at)? / all.get(at).filter(|&&a| a > 0.0)?))
            .collect();
        let half = replicate_spread(&of);
        let others = (all - sum.value[at]).max(0.0);
        let among = |misses: f64| misses / (misses + others).max(f64::MIN_POSITIVE);
        let (less, more) = (value - among(sum.least[at]), among(sum.most[at]) - value);
        let misses = |part: Option<&Part>| part.and_then(|p| p.misses.get(at)).copied();
        let whole = self.whole.functions.iter().zip(&self.whole_factors);
        let parts = whole.map(|((function, whole), factors)| {
            let here = misses(sum.functions.get(function)).unwrap_or(0.0);
            (here, misses(Some(whole)).unwrap_or(0.0), *factors)
        });
        let (down, up) = load_weights::spread(sum.value[at].min(all), all, parts);
        Some(ends(
            value,
            half.hypot(less).hypot(down),
            half.hypot(more).hypot(up),
        ))
    }
}

/// Half of the interval, from replicates that leave out one part each (jackknife).
pub(crate) fn replicate_spread(of: &[f64]) -> f64 {
    if of.len() < 2 {
        return f64::INFINITY;
    }
    params::STUDENT_QUANTILE_OF_REPLICATES * jackknife_variance(of).sqrt()
}

/// Scales the end of a group's interval to a part of its misses.
fn scaled(value: &[f64], end: &[f64], of: &[f64]) -> Vec<f64> {
    value
        .iter()
        .zip(end.iter().zip(of))
        .map(|(v, (e, o))| if *o > 0.0 { v * e / o } else { *v })
        .collect()
}

fn ends(value: f64, less: f64, more: f64) -> Range {
    [
        (value - less).max(0.0),
        value,
        (value + more).min(1.0).max(value),
    ]
}

/// Stall time per load: misses times latencies.
fn stall(levels: &[LevelMisses], hierarchy: &Hierarchy) -> Option<Range> {
    let mut all = [0.0; 3];
    for (at, level) in levels.iter().enumerate() {
        let wait = hierarchy.wait_ns(at);
        let left = 1.0 - params::WAIT_SHARE_SAVED_BY_PREFETCH * level.prefetchable.unwrap_or(0.0);
        let ratio = level.ratio?;
        // The errors of misses and latencies are independent.
        let value = ratio[1] * wait[1];
        let off = |end: usize| {
            let (of_ratio, of_wait) = (ratio[end] - ratio[1], wait[end] - wait[1]);
            (of_ratio * wait[1]).hypot(of_wait * ratio[1])
        };
        let ends = [(value - off(0)).max(0.0), value, value + off(2)];
        all.iter_mut().zip(ends).for_each(|(a, e)| *a += e * left);
    }
    Some(all)
}

impl Misses {
    /// Adds counts for the whole run from the row's executed loads and its time.
    pub fn of_run(mut self, loads: Option<Estimate>, time_ns: Option<Range>) -> Misses {
        let Some(loads) = loads.filter(|l| l.value > 0.0) else {
            return self;
        };
        for level in &mut self.levels {
            level.count = level
                .ratio
                .map(|r| times(r, [loads.lo, loads.value, loads.hi]));
        }
        self.memory_bound_pct = self.stall_ns.zip(time_ns).map(|(stall, time)| {
            let waits = times(stall, [loads.lo, loads.value, loads.hi]);
            [
                waits[0] / time[2].max(1.0),
                waits[1] / time[1].max(1.0),
                waits[2] / time[0].max(1.0),
            ]
            .map(|share| (100.0 * share).min(100.0))
        });
        self
    }
}

/// The product of two independent estimates.
fn times(a: Range, b: Range) -> Range {
    let value = a[1] * b[1];
    let relative = |end: f64, middle: f64| {
        if middle > 0.0 {
            (end / middle - 1.0).abs()
        } else {
            0.0
        }
    };
    let (less, more) = (
        relative(a[0], a[1]).hypot(relative(b[0], b[1])),
        relative(a[2], a[1]).hypot(relative(b[2], b[1])),
    );
    [value * (1.0 - less).max(0.0), value, value * (1.0 + more)]
}
