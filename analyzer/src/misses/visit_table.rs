//! What samples tell of misses, by cell: one group of code and one object, whose visits are taken as alike.

use crate::data::samples::SampleInfo;
use crate::misses::crowded::{self, Crowded, LateVisit};
use crate::misses::far::{Far, RADII};
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
/// Laps over so many times the lines that samples reach are long.
const LONG: f64 = 1.1;

/// A group of code and an object.
pub(crate) type Key = (u32, u32);

/// What is estimated from.
pub(crate) struct VisitTable<'a> {
    pub(super) lines: &'a LineVisits,
    pub(super) cells: Vec<(Key, Far)>,
    /// Cells of each sample, and late visits.
    pub(super) beside: Vec<Vec<(u32, f64)>>,
    /// Lines of each sample.
    pub(super) distinct: Vec<f64>,
    /// By cell: visits in sequence, all.
    sequence: Vec<(f64, f64)>,
    /// By group: the distance up to which samples are trusted.
    pub(super) reach: HashMap<u32, u64, Mixed>,
    /// By cell: walks that come back.
    pub(super) laps: Vec<Vec<Lap>>,
    pub(super) caches: [Sets; LEVELS],
    pub(super) crowded: Crowded,
    pub(super) groups: Vec<u32>,
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
}

/// Accesses of a group in all replicates but one.
pub(super) fn parts(lines: &LineVisits, group: u32, without: Option<usize>) -> Vec<&GroupLines> {
    (0..PARTS)
        .filter(|&p| Some(p) != without)
        .filter_map(|p| lines.groups.get(&(group, p as u32)))
        .collect()
}

/// Distances of a group, by all replicates but one.
pub(super) fn near_of(lines: &LineVisits, group: u32, without: Option<usize>) -> Near {
    Near::new(parts(lines, group, without).iter().copied())
}
