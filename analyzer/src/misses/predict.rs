//! From what samples saw to misses of groups of code and objects, at capacities.
//!
//! A *cell* is the visits of one group of code to one object: visits of a cell are taken as alike. Inside samples distances are known ([`near`](super::near)); beyond, a cell's visits survive for `v`
//! sample lengths with a probability that other samples tell ([`far`](super::far)). Which `v` it takes to fill a cache follows from the same: new lines come at the rate of what survives, over all cells that run beside it.

use crate::data::samples::SampleInfo;
use crate::misses::crowded::{self, Crowded, LateVisit};
use crate::misses::far::{Far, Fit, GRID, RADII, grid};
use crate::misses::laps::{self, Lap};
use crate::misses::near::Near;
use crate::stages::line_visits::{GroupLines, LineVisits, PARTS, Visit, part};
use crate::stages::set_conflicts::{LEVELS, Sets};
use crate::util::fast_hash::Mixed;
use rayon::prelude::*;
use std::collections::HashMap;

/// Cells at most; visits of a group beyond are one.
const CELLS: usize = 1500;
/// Cells of a sample that are seen beside each other.
const BESIDE: usize = 24;

/// What is added to the interval of a share s: this over s(1 − s), and over s; accesses are not quite as they are taken to be.
const DOUBT: [f64; 2] = [0.1, 0.02];
/// The time until a cache is full, and that until a loop is back, are known but for this factor.
const EDGE: f64 = 1.25;
/// Laps over so many times the lines that samples reach are long.
const LONG: f64 = 1.1;
/// And to that of misses per access: what less than this misses is not told apart.
const FLOOR: f64 = 5e-4;
/// Class of groups whose addresses come in even steps.
const STRIDED: u32 = 1;

/// A group of code and an object.
pub(crate) type Key = (u32, u32);

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

/// What is estimated from.
pub(crate) struct VisitTable<'a> {
    lines: &'a LineVisits,
    cells: Vec<(Key, Far)>,
    /// Cells of each sample, and late visits.
    beside: Vec<Vec<(u32, f64)>>,
    /// Lines of each sample.
    distinct: Vec<f64>,
    /// By cell: visits in sequence, all.
    sequence: Vec<(f64, f64)>,
    /// By group: the distance up to which samples are trusted.
    reach: HashMap<u32, u64, Mixed>,
    /// By cell: walks that come back.
    laps: Vec<Vec<Lap>>,
    caches: [Sets; LEVELS],
    crowded: Crowded,
    groups: Vec<u32>,
}

/// Order of samples: thread, number there; and how many it has.
fn order(samples: &[SampleInfo], by_process: bool) -> (HashMap<u32, (u32, u32), Mixed>, Vec<u32>) {
    let mut all: Vec<&SampleInfo> = samples.iter().filter(|s| s.loads > 0).collect();
    let thread = |s: &SampleInfo| (s.process, if by_process { 0 } else { s.thread });
    all.sort_by_key(|s| (thread(s), s.first_time, s.sample));
    let (mut order, mut lengths) = (HashMap::default(), Vec::new());
    for same in all.chunk_by(|a, b| thread(a) == thread(b)) {
        for (at, sample) in same.iter().enumerate() {
            order.insert(sample.sample, (lengths.len() as u32, at as u32));
        }
        lengths.push(same.len() as u32);
    }
    (order, lengths)
}

impl<'a> VisitTable<'a> {
    /// Collects what is known of each cell. `caches`: first level first; `object`: whose a visited line is.
    pub(crate) fn new(
        lines: &'a LineVisits,
        samples: &[SampleInfo],
        caches: &[Sets; LEVELS],
        by_process: bool,
        object: impl Fn(&Visit) -> u32 + Sync,
    ) -> VisitTable<'a> {
        let mut groups: Vec<u32> = lines.groups.keys().map(|k| k.0).collect();
        groups.sort_unstable();
        groups.dedup();
        let reach: HashMap<u32, u64, Mixed> = groups
            .iter()
            .map(|&g| (g, near_of(lines, g, None).reach))
            .collect();
        let (order, lengths) = order(samples, by_process);
        // By line, in the order of samples.
        let mut visits: Vec<(u64, u32, u32, u32, u32)> = lines
            .visits
            .par_iter()
            .enumerate()
            .filter_map(|(number, v)| {
                let &(thread, at) = order.get(&v.sample)?;
                Some((v.line, v.space, thread, at, number as u32))
            })
            .collect();
        visits.par_sort_unstable();
        // Which cell each late visit is of; the most frequent ones stay apart.
        let is_late = |v: &Visit| u64::from(v.before) >= reach.get(&v.group).copied().unwrap_or(0);
        let keys: Vec<Option<Key>> = lines
            .visits
            .par_iter()
            .map(|v| is_late(v).then(|| (v.group, object(v))))
            .collect();
        let mut frequency: HashMap<Key, u32, Mixed> = HashMap::default();
        for key in keys.iter().flatten() {
            *frequency.entry(*key).or_default() += 1;
        }
        let mut frequent: Vec<(Key, u32)> = frequency.into_iter().collect();
        frequent.sort_unstable_by_key(|&(key, count)| (std::cmp::Reverse(count), key));
        frequent.truncate(CELLS);
        let mut numbers: HashMap<Key, u32, Mixed> = HashMap::default();
        let mut cells: Vec<(Key, Far)> = Vec::new();
        for (key, _) in frequent {
            numbers.insert(key, cells.len() as u32);
            cells.push((key, Far::default()));
        }
        let mut sequence = vec![(0.0, 0.0); cells.len()];
        let end = samples.iter().map(|s| s.sample + 1).max().unwrap_or(0) as usize;
        let mut beside: Vec<Vec<(u32, f64)>> = vec![Vec::new(); end];
        let mut distinct = vec![0.0; end];
        let scale = (1u64 << lines.level) as f64;
        for visit in &lines.visits {
            if let Some(of_sample) = distinct.get_mut(visit.sample as usize) {
                *of_sample += scale;
            }
        }
        let mut late: Vec<LateVisit> = Vec::new();
        for same in visits.chunk_by(|a, b| (a.0, a.1, a.2) == (b.0, b.1, b.2)) {
            let length = lengths[same[0].2 as usize] as usize;
            let mut ends = [(0usize, 0usize); RADII.len()];
            for &(.., place, number) in same {
                let visit = &lines.visits[number as usize];
                let mut seen = [(0, 0); RADII.len()];
                for ((radius, ends), seen) in RADII.iter().zip(&mut ends).zip(&mut seen) {
                    let first = (place as usize).saturating_sub(*radius);
                    let last = (place as usize).saturating_add(*radius).min(length - 1);
                    while (same[ends.0].3 as usize) < first {
                        ends.0 += 1;
                    }
                    while ends.1 < same.len() && same[ends.1].3 as usize <= last {
                        ends.1 += 1;
                    }
                    // Samples are one visit each: several groups of one sample are not there twice.
                    *seen = (last - first, ends.1 - ends.0 - 1);
                }
                let Some(key) = keys[number as usize] else {
                    continue;
                };
                let cell = numbers.get(&key).copied();
                late.push(LateVisit {
                    line: visit.line,
                    part: part(visit.sample),
                    thread: same[0].2,
                    samples: length,
                    met: seen[RADII.len() - 1].1 + 1,
                    cell,
                });
                let Some(cell) = cell else {
                    continue;
                };
                let cell = cell as usize;
                cells[cell].1.add(part(visit.sample), &seen);
                sequence[cell].0 += f64::from(u8::from(visit.sequence));
                sequence[cell].1 += 1.0;
                let of_sample = &mut beside[visit.sample as usize];
                match of_sample.iter_mut().find(|c| c.0 == cell as u32) {
                    Some(there) => there.1 += 1.0,
                    None => of_sample.push((cell as u32, 1.0)),
                }
            }
        }
        for of_sample in &mut beside {
            of_sample.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            of_sample.truncate(BESIDE);
        }
        let mut laps = laps::of_cells(&lines.walks, &numbers, object);
        let mut sums = vec![(0.0, 0.0); cells.len()];
        for (of_sample, lines) in beside.iter().zip(&distinct) {
            for &(cell, weight) in of_sample {
                let sum = &mut sums[cell as usize];
                *sum = (sum.0 + weight, sum.1 + weight * lines);
            }
        }
        // Laps that samples see from end to end are known already.
        for (cell, laps) in laps.iter_mut().enumerate() {
            let of_sample = sums[cell].1 / f64::max(sums[cell].0, 1.0);
            let reach = reach.get(&cells[cell].0.0).copied().unwrap_or(0) as f64;
            laps.retain(|lap| lap.samples * of_sample > LONG * reach);
        }
        let crowded = crowded::find(lines, caches, &late, cells.len());
        VisitTable {
            lines,
            cells,
            beside,
            distinct,
            sequence,
            reach,
            laps,
            caches: *caches,
            crowded,
            groups,
        }
    }

    /// Share of the late visits of a group, and of an object, that come in sequence.
    pub(crate) fn sequences(&self) -> impl Iterator<Item = (Key, f64, f64)> + '_ {
        self.cells
            .iter()
            .zip(&self.sequence)
            .map(|((key, _), &(part, all))| (*key, part, all))
    }

    /// Misses of all groups at capacities in lines, by all replicates but one.
    /// `levels`: of which of the caches the first of the capacities are.
    pub(crate) fn estimate(
        &self,
        capacities: &[f64],
        levels: &[usize],
        without: Option<usize>,
    ) -> ByGroup {
        let nears: HashMap<u32, Near, Mixed> = self
            .groups
            .iter()
            .map(|&g| {
                let mut near = near_of(self.lines, g, without);
                // Replicates differ by what they have seen, not by what they trust.
                near.reach = self.reach.get(&g).copied().unwrap_or(near.reach);
                (g, near)
            })
            .collect();
        let mut accesses: HashMap<u32, f64, Mixed> = HashMap::default();
        let kept = |sample: u32| Some(part(sample)) != without;
        for of in self.lines.samples.iter().filter(|s| kept(s.sample)) {
            *accesses.entry(of.group).or_default() += f64::from(of.accesses);
        }
        let fits: Vec<Fit> = self
            .cells
            .iter()
            .map(|(_, far)| far.fit(far.radius(), without))
            .collect();
        let mut late: HashMap<u32, f64, Mixed> = HashMap::default();
        for ((key, _), (_, far)) in self.cells.iter().zip(&self.cells) {
            *late.entry(key.0).or_default() += far.visits(without);
        }
        // New lines of a cell that each of its late visits stands for, in a sample.
        let stands_for: Vec<f64> = self
            .cells
            .iter()
            .map(|((group, _), _)| {
                let near = &nears[group];
                accesses.get(group).copied().unwrap_or(0.0) * near.at_least(near.reach as f64)
                    / late[group].max(1.0)
            })
            .collect();
        // What runs beside each cell: lines of a sample, and late visits of other cells.
        let mut beside: Vec<HashMap<u32, f64, Mixed>> = vec![HashMap::default(); self.cells.len()];
        let mut sums = vec![(0.0, 0.0); self.cells.len()];
        for (sample, cells) in self.beside.iter().enumerate() {
            if !kept(sample as u32) || cells.is_empty() {
                continue;
            }
            let lines = self.distinct[sample];
            for &(cell, weight) in cells {
                let sum = &mut sums[cell as usize];
                sum.0 += weight;
                sum.1 += weight * lines;
                for &(other, count) in cells {
                    *beside[cell as usize].entry(other).or_default() +=
                        weight * count * stands_for[other as usize];
                }
            }
        }
        // How much of a cell's visits comes at random, and how surely.
        let at_random: Vec<[f64; 3]> = (0..self.cells.len())
            .map(|cell| {
                let near = &nears[&self.cells[cell].0.0];
                let (reuses, lines) = near.late_reuses();
                let of_sample = sums[cell].1 / sums[cell].0.max(1.0);
                let expected = fits[cell].rate() / of_sample.max(1.0) * lines;
                if expected <= 0.0 {
                    return [0.0, 1.0, 1.0];
                }
                let off = 2.0 * (reuses + 1.0).sqrt();
                [
                    ((reuses - off) / expected).clamp(0.0, 1.0),
                    (reuses / expected).clamp(0.0, 1.0),
                    ((reuses + off) / expected).clamp(0.0, 1.0),
                ]
            })
            .collect();
        // `which` of the ends of what comes again with the next lap.
        let survive = |cell: usize, fit: &Fit, [v, edge]: [f64; 2], share: f64, which: usize| {
            let laps = || self.laps[cell].iter();
            let again: f64 = laps().map(|l| l.part * l.again[which]).sum();
            let waits = laps().map(|l| l.waits(v, which)).sum::<f64>();
            // Other samples count visits of all laps: those that laps leave come as much more rarely.
            let v = v * (1.0 - again);
            let other = share * fit.at_random(v) + (1.0 - share) * fit.in_loops(v * edge);
            waits + (1.0 - again) * other
        };
        let curves: Vec<Vec<f64>> = (0..self.cells.len())
            .map(|cell| {
                grid()
                    .map(|v| survive(cell, &fits[cell], [v, 1.0], at_random[cell][1], 1))
                    .collect()
            })
            .collect();
        // Sample lengths until a cache of each capacity is full.
        let filled = |cell: usize| -> Vec<f64> {
            let near = &nears[&self.cells[cell].0.0];
            let base = near.reach as f64;
            let weight = sums[cell].0.max(f64::MIN_POSITIVE);
            let rates: Vec<f64> = (0..GRID)
                .map(|at| {
                    let of = beside[cell].iter();
                    of.map(|(&other, &rate)| rate * curves[other as usize][at])
                        .sum::<f64>()
                        / weight
                })
                .collect();
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
            capacities.iter().map(|&c| at(c)).collect()
        };
        let mut all: ByGroup = HashMap::default();
        let blank = vec![0.0; capacities.len()];
        for &group in &self.groups {
            let near = &nears[&group];
            let known = |c: f64| near.at_least(c.min(near.reach as f64));
            let ratio: Vec<f64> = capacities.iter().map(|&c| known(c)).collect();
            let doubt = |sign: f64| {
                let of = ratio.iter().map(|&r| r + sign * doubt_of(r));
                of.collect::<Vec<f64>>()
            };
            all.insert(
                group,
                GroupMisses {
                    least: doubt(-1.0),
                    most: doubt(1.0),
                    ratio,
                    objects: Vec::new(),
                },
            );
        }
        let far: Vec<[Vec<f64>; 3]> = (0..self.cells.len())
            .into_par_iter()
            .map(|cell| {
                let reach = nears[&self.cells[cell].0.0].reach as f64;
                let filled = filled(cell);
                let near_parts = parts(self.lines, self.cells[cell].0.0, without);
                let mut ends: [Vec<f64>; 3] = Default::default();
                for (at, (&capacity, &v)) in capacities.iter().zip(&filled).enumerate() {
                    if capacity <= reach {
                        ends.iter_mut().for_each(|e| e.push(1.0));
                        continue;
                    }
                    let v = v.min(2f64.powi(40));
                    let level = levels.get(at);
                    let crowd = level.and_then(|&l| self.crowded[l].get(cell)?.as_ref());
                    let rest = crowd.map(|c| c.rest.fit(RADII.len() - 1, without));
                    // Of those that come late, some find their set filled by the sample alone.
                    let full = level.map_or(0.0, |&l| full(&near_parts, l));
                    let survive = |share: f64, which: usize, edge: f64| {
                        let of = |fit| survive(cell, fit, [v, edge], share, which);
                        let survives = match (crowd, &rest) {
                            (Some(crowd), Some(rest)) => {
                                crowd.survives + (1.0 - crowd.part).max(0.0) * of(rest)
                            }
                            _ => of(&fits[cell]),
                        };
                        full + (1.0 - full) * survives
                    };
                    let [_, share, _] = at_random[cell];
                    let of = at_random[cell].map(|share| survive(share, 1, 1.0));
                    let of_laps = [0, 2].map(|end| survive(share, end, 1.0));
                    // Whether a loop just fits, nobody can tell.
                    let of_edges = [1.0 / EDGE, EDGE].map(|edge| survive(share, 1, edge));
                    let all = || of.into_iter().chain(of_laps).chain(of_edges);
                    // Neither is quite true.
                    let doubt = doubt_of(of[1]);
                    let mut of = [
                        all().fold(1.0, f64::min) - doubt,
                        of[1],
                        all().fold(0.0, f64::max) + doubt,
                    ];
                    // Loops over arrays come in nests: what was swept as a whole may have been swept in parts,
                    // each many times, between two samples.
                    let group = self.cells[cell].0.0;
                    if group & 3 == STRIDED
                        && fits[cell].evidence > 0.0
                        && self.laps[cell].is_empty()
                    {
                        of[0] = of[0].min(share * fits[cell].at_random(v));
                    }
                    ends.iter_mut()
                        .zip(of)
                        .for_each(|(e, x)| e.push(x.clamp(0.0, 1.0)));
                }
                ends
            })
            .collect();
        let mut mixed: HashMap<u32, [Vec<f64>; 3], Mixed> = HashMap::default();
        for (((group, object), cell), ends) in self.cells.iter().zip(&far) {
            let share = cell.visits(without) / late[group].max(1.0);
            let of = mixed
                .entry(*group)
                .or_insert_with(|| [blank.clone(), blank.clone(), blank.clone()]);
            for (sum, end) in of.iter_mut().zip(ends) {
                sum.iter_mut().zip(end).for_each(|(s, e)| *s += share * e);
            }
            let near = &all[group].ratio;
            let part: Vec<f64> = near
                .iter()
                .zip(&ends[1])
                .map(|(n, e)| n * share * e)
                .collect();
            if let Some(all) = all.get_mut(group) {
                all.objects.push((*object, part));
            }
        }
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
            all.least
                .iter_mut()
                .for_each(|e| *e = (*e - FLOOR).max(0.0));
            all.most.iter_mut().for_each(|e| *e = (*e + FLOOR).min(1.0));
        }
        self.conflicts(levels, without, &mut all);
        all
    }
}

impl VisitTable<'_> {
    /// Where samples show what becomes of sets of the first-level cache, that counts.
    fn first_level(
        &self,
        without: Option<usize>,
        all: &mut ByGroup,
        far: &mut HashMap<u32, [Vec<f64>; 3], Mixed>,
    ) {
        let ways = u64::from(self.caches[0].ways);
        for (&group, of) in all.iter_mut() {
            let near = Near::in_set(parts(self.lines, group, without).iter().copied());
            if near.reach < ways {
                continue;
            }
            let ratio = near.at_least(ways as f64);
            let mut objects: f64 = of.objects.iter().map(|o| o.1[0]).sum();
            if objects <= 0.0 {
                objects = 1.0;
            }
            for (_, part) in &mut of.objects {
                part[0] *= ratio / objects;
            }
            let doubt = doubt_of(ratio);
            (of.least[0], of.ratio[0], of.most[0]) = (ratio - doubt, ratio, ratio + doubt);
            for end in far.get_mut(&group).into_iter().flatten() {
                end[0] = 1.0;
            }
        }
    }

    /// What comes again inside of a sample, and finds its set filled by others, in levels behind the first.
    fn conflicts(&self, levels: &[usize], without: Option<usize>, all: &mut ByGroup) {
        for (&group, of) in all.iter_mut() {
            let parts = parts(self.lines, group, without);
            let late: f64 = parts.iter().map(|p| f64::from(p.late)).sum();
            for (at, &level) in levels.iter().enumerate() {
                let count: f64 = parts.iter().map(|p| f64::from(p.conflicts[level])).sum();
                if count <= 0.0 {
                    continue;
                }
                let (before, more) = (of.ratio[at], count / late.max(1.0));
                let with = |ratio: f64, more: f64| (ratio + more).min(1.0);
                let doubt = 2.0 * more / count.sqrt();
                of.least[at] = with(of.least[at], (more - doubt).max(0.0));
                of.ratio[at] = with(of.ratio[at], more);
                of.most[at] = with(of.most[at], more + doubt);
                // Which objects they are of, the others tell.
                if before > 0.0 {
                    let times = of.ratio[at] / before;
                    of.objects
                        .iter_mut()
                        .for_each(|(_, part)| part[at] *= times);
                }
            }
        }
    }
}

/// The part of late first touches that find their set filled by what their sample touched before.
fn full(parts: &[&GroupLines], level: usize) -> f64 {
    let sum = |of: fn(&GroupLines, usize) -> u32| {
        parts.iter().map(|p| f64::from(of(p, level))).sum::<f64>()
    };
    sum(|p, l| p.full[l]) / sum(|p, _| p.late_firsts).max(1.0)
}

fn doubt_of(share: f64) -> f64 {
    DOUBT[0] * share * (1.0 - share) + DOUBT[1] * share
}

fn parts(lines: &LineVisits, group: u32, without: Option<usize>) -> Vec<&GroupLines> {
    (0..PARTS)
        .filter(|&p| Some(p) != without)
        .filter_map(|p| lines.groups.get(&(group, p as u32)))
        .collect()
}

/// Distances of a group, by all replicates but one.
fn near_of(lines: &LineVisits, group: u32, without: Option<usize>) -> Near {
    Near::new(parts(lines, group, without).iter().copied())
}
