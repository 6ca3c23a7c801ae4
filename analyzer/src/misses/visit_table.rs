//! Table of late visits by cell, from which misses are estimated. A cell is one group of code and
//! one object. Its visits are treated as alike.

use crate::data::group::Group;
use crate::data::memory_units::CacheLine;
use crate::data::object_map::Recent;
use crate::data::reuse_pairs::WatchEnd;
use crate::data::samples::SampleInfo;
use crate::misses::crowded_sets::{self, Crowded, LateVisit};
use crate::misses::line_returns::{self, Coincidences, ReturnsOfVisit};
use crate::misses::params;
use crate::misses::reuse_distance::Near;
use crate::misses::sample_places::{Threads, samples_of_threads};
use crate::misses::survival_bounds::SharedParts;
use crate::misses::survival_curve::Far;
use crate::misses::walk_laps::{self, Lap};
use crate::misses::watch_survival::LineOverWord;
use crate::misses::watched_reuses::{self, CellVisits, Code, InSamples, ObjectWatch, Unit, Watch};
use crate::stages::line_visits::{GroupLines, LineVisits, PARTS, Visit, part};
use crate::stages::set_conflicts::{LEVELS, Sets};
use crate::util::fast_hash::Mixed;
use crate::util::radix;
use rayon::prelude::*;
use std::collections::HashMap;

/// A group of code and an object.
pub(crate) type Key = (Group, u32);

/// Data of the samples on which estimates are based.
pub(crate) struct VisitTable<'a> {
    pub(super) lines: &'a LineVisits,
    pub(super) cells: Vec<(Key, Far)>,
    /// By sample: its cells, with the number of late visits.
    pub(super) beside: Vec<Vec<(u32, f64)>>,
    /// By sample: number of lines.
    pub(super) distinct: Vec<f64>,
    /// By cell: visits in sequence, and all visits.
    sequence: Vec<(f64, f64)>,
    /// By group: distances inside samples, of all replicates.
    pub(super) nears: HashMap<Group, Near, Mixed>,
    /// By cell: coincidences of its late visits with visits of other samples.
    pub(super) coincidences: Vec<Coincidences>,
    /// Returns that visits represent, by group.
    pub(super) returns: HashMap<Group, ReturnsOfVisit, Mixed>,
    /// By group: reach of the samples.
    pub(super) reach: HashMap<Group, u64, Mixed>,
    /// Walks that return, by cell.
    pub(super) laps: Vec<Vec<Lap>>,
    pub(super) caches: [Sets; LEVELS],
    pub(super) crowded: Crowded,
    pub(super) groups: Vec<Group>,
    /// Watches, grouped by the code that they apply to.
    pub(super) units: Vec<Unit>,
    /// Number of watches in these units.
    pub(super) used: u64,
    pub(super) shared: SharedParts,
}

/// Number of visits whose objects one thread finds. Source: Chosen, since answers are cached by
/// thread.
const MIN_VISITS_OF_TASK: usize = 1 << 13;

/// A visit in the form that is sorted: line, address space, thread, place of the sample in the
/// thread, cell.
type Ordered = (CacheLine, u32, u32, u32, Late);

/// The cell of a visit, with one bit for visits in sequence.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Late(u32);

impl Late {
    /// The visit is inside the reach, so it is not late.
    const NOT_LATE: u32 = u32::MAX >> 1;
    /// The visit's cell is too rare to be kept separate.
    const RARE_CELL: u32 = Late::NOT_LATE - 1;

    fn new(cell: u32, sequence: bool) -> Late {
        Late(cell << 1 | u32::from(sequence))
    }

    /// The cell of a late visit. The outer option is none if the visit is not late, the inner one
    /// if its cell is too rare to be kept separate.
    fn cell(self) -> Option<Option<u32>> {
        match self.0 >> 1 {
            Late::NOT_LATE => None,
            Late::RARE_CELL => Some(None),
            cell => Some(Some(cell)),
        }
    }

    fn sequence(self) -> bool {
        self.0 & 1 == 1
    }
}

/// For each of the [`params::SEARCH_RADII`]: the number of samples near a sample, and the number of
/// those that saw a line.
type SeenNearby = [(usize, usize); params::SEARCH_RADII.len()];

/// Counts the samples near each of a thread's visits to a line. The visits must be passed in order.
struct Nearby<'a> {
    visits: &'a [Ordered],
    /// Number of samples of the thread.
    length: usize,
    /// For each radius: the range of visits within it.
    ends: [(usize, usize); params::SEARCH_RADII.len()],
}

impl<'a> Nearby<'a> {
    fn new(visits: &'a [Ordered], length: usize) -> Nearby<'a> {
        Nearby {
            visits,
            length,
            ends: [(0, 0); params::SEARCH_RADII.len()],
        }
    }

    fn of(&mut self, place: usize) -> SeenNearby {
        let visits = self.visits;
        let mut seen = [(0, 0); params::SEARCH_RADII.len()];
        for ((radius, ends), seen) in params::SEARCH_RADII
            .iter()
            .zip(&mut self.ends)
            .zip(&mut seen)
        {
            let first = place.saturating_sub(*radius);
            let last = place.saturating_add(*radius).min(self.length - 1);
            while (visits[ends.0].3 as usize) < first {
                ends.0 += 1;
            }
            while ends.1 < visits.len() && visits[ends.1].3 as usize <= last {
                ends.1 += 1;
            }
            // A line has at most one visit in each sample.
            *seen = (last - first, ends.1 - ends.0 - 1);
        }
        seen
    }
}

/// Converts the length of watches to sample lengths by time.
struct WatchTiming<'t> {
    reach: &'t HashMap<Group, u64, Mixed>,
    threads: &'t Threads,
    /// By sample: number of samples of its own thread.
    own: HashMap<u32, f64, Mixed>,
    code: &'t dyn Fn(Group) -> Code,
}

impl WatchTiming<'_> {
    /// A watch with its object and its length in sample lengths.
    fn of(&self, watch: &Watch, object: impl FnOnce() -> u32) -> Option<ObjectWatch> {
        let (thread, _) = self.threads.place(watch.used.sample)?;
        // If the table merges threads, samples of all of them fall into the same time.
        let samples = self.threads.samples[thread as usize].len() as f64;
        let times = samples / self.own.get(&watch.used.sample)?;
        let reach = self.reach.get(&watch.used.group).copied().unwrap_or(0) as f64;
        // Survival starts at the reach.
        let beyond = watch.rest * (1.0 - reach / watch.after.max(1.0)).max(0.0);
        Some(ObjectWatch {
            part: part(watch.used.sample),
            object: object(),
            beyond: times * beyond,
            length: times * watch.length,
            otherwise: matches!(watch.end, WatchEnd::Other),
            by: match watch.end {
                WatchEnd::Load(group) => Some((self.code)(group)),
                WatchEnd::Other | WatchEnd::GivenUp => None,
            },
        })
    }
}

/// The cells of visits that are late; none for others.
fn late_keys(
    lines: &LineVisits,
    reach: &HashMap<Group, u64, Mixed>,
    object: &(impl Fn(&Visit, &mut Recent) -> u32 + Sync),
) -> Vec<Option<Key>> {
    let is_late = |v: &Visit| u64::from(v.before) >= reach.get(&v.group).copied().unwrap_or(0);
    lines
        .visits
        .par_iter()
        .with_min_len(MIN_VISITS_OF_TASK)
        .map_init(Recent::default, |recent, v| {
            is_late(v).then(|| (v.group, object(v, recent)))
        })
        .collect()
}

/// Counts each key. Equal keys mostly follow one another.
fn frequencies(keys: impl Iterator<Item = Key>) -> HashMap<Key, u32, Mixed> {
    let mut frequency: HashMap<Key, u32, Mixed> = HashMap::default();
    let mut last: Option<(Key, u32)> = None;
    for key in keys {
        match &mut last {
            Some((same, count)) if *same == key => *count += 1,
            _ => {
                if let Some((before, count)) = last.replace((key, 1)) {
                    *frequency.entry(before).or_default() += count;
                }
            }
        }
    }
    if let Some((key, count)) = last {
        *frequency.entry(key).or_default() += count;
    }
    frequency
}

/// The most frequent cells, which are kept separate.
fn most_frequent(keys: &[Option<Key>]) -> Vec<Key> {
    let mut frequent: Vec<(Key, u32)> =
        (frequencies(keys.iter().flatten().copied()).into_iter()).collect();
    frequent.sort_unstable_by_key(|&(key, count)| (std::cmp::Reverse(count), key));
    frequent.truncate(params::MAX_CELLS_KEPT_APART);
    frequent.into_iter().map(|(key, _)| key).collect()
}

/// Sorts visits by line, then in the order of samples. `keys` has the cells of late visits,
/// `numbers` those that are kept separate.
fn sorted(
    lines: &LineVisits,
    keys: &[Option<Key>],
    numbers: &HashMap<Key, u32, Mixed>,
    threads: &Threads,
) -> Vec<Ordered> {
    let ordered = |(v, key): (&Visit, &Option<Key>)| -> Option<Ordered> {
        let (thread, at) = threads.place(v.sample)?;
        let cell = key.map_or(Late::NOT_LATE, |key| {
            numbers.get(&key).copied().unwrap_or(Late::RARE_CELL)
        });
        Some((v.line, v.space, thread, at, Late::new(cell, v.sequence)))
    };
    let visits = lines.visits.par_iter().zip(keys);
    let mut visits: Vec<Ordered> = visits.filter_map(ordered).collect();
    // Stable sorts, the least significant part first.
    radix::sort(&mut visits, |v| u64::from(v.2) << 32 | u64::from(v.3));
    radix::sort(&mut visits, |v| u64::from(v.1));
    radix::sort(&mut visits, |v| v.0.number());
    // Few visits are sorted by comparison, which does not keep their order, and a sample may occur
    // twice.
    if !visits.is_sorted() {
        visits.par_sort_unstable();
    }
    visits
}

impl<'a> VisitTable<'a> {
    /// Builds the table. `caches` begins with the first level. `watches` come from
    /// [`watched_reuses::timed`]. `code` returns the code of a group, `object` the object of a
    /// visited line.
    pub(crate) fn new(
        lines: &'a LineVisits,
        samples: &[SampleInfo],
        caches: &[Sets; LEVELS],
        by_process: bool,
        (watches, code): (&[Watch], &dyn Fn(Group) -> Code),
        object: impl Fn(&Visit, &mut Recent) -> u32 + Sync,
    ) -> VisitTable<'a> {
        let mut groups: Vec<Group> = lines.groups.keys().map(|k| k.0).collect();
        groups.sort_unstable();
        groups.dedup();
        let nears: HashMap<Group, Near, Mixed> = groups
            .iter()
            .map(|&g| (g, near_of(lines, g, None)))
            .collect();
        let reach: HashMap<Group, u64, Mixed> =
            groups.iter().map(|&g| (g, nears[&g].reach)).collect();
        let threads = Threads::new(samples, by_process);
        let keys = late_keys(lines, &reach, &object);
        let kept = most_frequent(&keys);
        let numbers: HashMap<Key, u32, Mixed> = kept.iter().copied().zip(0..).collect();
        let mut table = VisitTable {
            lines,
            sequence: vec![(0.0, 0.0); kept.len()],
            cells: kept.into_iter().map(|key| (key, Far::default())).collect(),
            beside: vec![Vec::new(); threads.end()],
            distinct: vec![0.0; threads.end()],
            nears,
            coincidences: vec![Coincidences::default(); numbers.len()],
            returns: line_returns::returns_of_visits(lines, &keys),
            reach,
            laps: Vec::new(),
            caches: *caches,
            crowded: Crowded::default(),
            groups,
            units: Vec::new(),
            used: 0,
            shared: SharedParts::default(),
        };
        table.count_lines();
        let number_of_late = keys.iter().flatten().count();
        let visits = sorted(lines, &keys, &numbers, &threads);
        drop(keys);
        let late = table.add_visits(&visits, number_of_late, &threads);
        drop(visits);
        let late_of_cells = late_of(&table.beside, table.cells.len());
        for of_sample in &mut table.beside {
            of_sample.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            of_sample.truncate(params::MAX_RELATED_CELLS_OF_SAMPLE);
        }
        let timing = WatchTiming {
            reach: &table.reach,
            threads: &threads,
            own: samples_of_threads(samples),
            code,
        };
        let mut recent = Recent::default();
        let watched: Vec<ObjectWatch> = watches
            .iter()
            .filter_map(|watch| timing.of(watch, || object(&watch.used, &mut recent)))
            .collect();
        table.add_watches(code, &late_of_cells, &watched);
        table.add_laps(walk_laps::of_cells(&lines.walks, &numbers, object));
        table.crowded = crowded_sets::find_crowded_sets(lines, caches, &late, table.cells.len());
        table
    }

    /// Counts the lines of each sample.
    fn count_lines(&mut self) {
        let scale = (1u64 << self.lines.level) as f64;
        for visit in &self.lines.visits {
            if let Some(of_sample) = self.distinct.get_mut(visit.sample as usize) {
                *of_sample += scale;
            }
        }
    }

    /// Adds the late visits to their cells and samples, and lists them. `visits` are sorted; `most`:
    /// number of late ones at most.
    fn add_visits(&mut self, visits: &[Ordered], most: usize, threads: &Threads) -> Vec<LateVisit> {
        let mut late: Vec<LateVisit> = Vec::with_capacity(most);
        for same in visits.chunk_by(|a, b| (a.0, a.1, a.2) == (b.0, b.1, b.2)) {
            let thread = same[0].2;
            let samples = &threads.samples[thread as usize];
            let mut nearby = Nearby::new(same, samples.len());
            let of_late = || same.iter().filter_map(|visit| visit.4.cell());
            let returns: f64 = of_late().map(|cell| self.returns_of(cell)).sum();
            let late_visits = of_late().count();
            for &(line, .., place, late_visit) in same {
                let Some(cell) = late_visit.cell() else {
                    continue;
                };
                let sample = samples[place as usize];
                let seen = nearby.of(place as usize);
                if let Some(cell) = cell {
                    let (met, others) = (same.len() - 1, samples.len() - 1);
                    let returns = returns - self.returns_of(Some(cell));
                    let of_cell = &mut self.coincidences[cell as usize];
                    of_cell.add(part(sample), (met, others), late_visits - 1, returns);
                }
                late.push(LateVisit {
                    line,
                    part: part(sample) as u8,
                    thread,
                    samples: samples.len() as u32,
                    met: seen[params::SEARCH_RADII.len() - 1].1 as u32 + 1,
                    cell,
                });
                if let Some(cell) = cell {
                    self.add_visit(cell, sample, late_visit.sequence(), &seen);
                }
            }
        }
        late
    }

    /// Returns that a late visit represents. Visits of rare cells are taken for one return each.
    fn returns_of(&self, cell: Option<u32>) -> f64 {
        let of = cell.and_then(|cell| self.returns.get(&self.cells[cell as usize].0.0));
        of.map_or(1.0, |of| of.late)
    }

    /// Adds a late visit of a cell that is kept separate. `seen` is that of [`Far::add`].
    fn add_visit(&mut self, cell: u32, sample: u32, in_sequence: bool, seen: &SeenNearby) {
        let at = cell as usize;
        self.cells[at].1.add(part(sample), seen);
        self.sequence[at].0 += f64::from(u8::from(in_sequence));
        self.sequence[at].1 += 1.0;
        let of_sample = &mut self.beside[sample as usize];
        match of_sample.iter_mut().find(|c| c.0 == cell) {
            Some(there) => there.1 += 1.0,
            None => of_sample.push((cell, 1.0)),
        }
    }

    /// Groups watches into units. `late` comes from [`late_of`].
    fn add_watches(
        &mut self,
        code: &dyn Fn(Group) -> Code,
        late: &[[f64; PARTS]],
        watched: &[ObjectWatch],
    ) {
        let cell = |((key, _), late): (&(Key, Far), &[f64; PARTS])| CellVisits {
            code: code(key.0),
            object: key.1,
            late: *late,
        };
        let of_cells: Vec<CellVisits> = self.cells.iter().zip(late).map(cell).collect();
        let known = self.in_samples(code);
        let in_samples = |of: Code| {
            known
                .get(&of)
                .copied()
                .unwrap_or_else(|| CodeSums::default().in_samples())
        };
        (self.units, self.used) = watched_reuses::units(&of_cells, watched, &in_samples);
    }

    /// By code: sums of the reuses inside samples over its groups.
    fn in_samples(&self, code: &dyn Fn(Group) -> Code) -> HashMap<Code, InSamples, Mixed> {
        let codes: HashMap<Group, Code, Mixed> = self
            .groups
            .iter()
            .map(|&group| (group, code(group)))
            .collect();
        let mut sums: HashMap<Code, CodeSums, Mixed> = HashMap::default();
        for ((group, _), lines) in &self.lines.groups {
            let of_code = sums.entry(codes[group]).or_default();
            of_code.again += f64::from(lines.again);
            of_code.same_word += f64::from(lines.same_word);
        }
        // Sums of fractions depend on their order.
        for group in self.reach.keys() {
            let of_group = self.nears[group].late_reuses(params::LATEST_REUSES_REACH_SHARE);
            let of_code = sums.entry(codes[group]).or_default();
            of_code.reuses += of_group.0;
            of_code.exposed += of_group.1;
        }
        for of in &self.lines.samples {
            let weight = f64::from(of.accesses);
            let distinct = self.distinct.get(of.sample as usize).copied();
            let of_code = sums
                .entry(
                    codes
                        .get(&of.group)
                        .copied()
                        .unwrap_or_else(|| code(of.group)),
                )
                .or_default();
            of_code.lines += weight * distinct.unwrap_or(0.0);
            of_code.accesses += weight;
        }
        sums.into_iter()
            .map(|(code, sums)| (code, sums.in_samples()))
            .collect()
    }

    /// Adds the walks that return, by cell. Samples contain short laps completely, so the reuses of
    /// these are already counted.
    fn add_laps(&mut self, mut laps: Vec<Vec<Lap>>) {
        let mut sums = vec![(0.0, 0.0); self.cells.len()];
        for (of_sample, lines) in self.beside.iter().zip(&self.distinct) {
            for &(cell, weight) in of_sample {
                let sum = &mut sums[cell as usize];
                *sum = (sum.0 + weight, sum.1 + weight * lines);
            }
        }
        for (cell, laps) in laps.iter_mut().enumerate() {
            let group = self.cells[cell].0.0;
            let of_sample = sums[cell].1 / f64::max(sums[cell].0, 1.0);
            let reach = self.reach.get(&group).copied().unwrap_or(0) as f64;
            laps.retain(|lap| lap.samples * of_sample > params::MIN_LAP_OVER_REACH * reach);
        }
        self.laps = laps;
    }

    /// By cell: lower end, estimate and upper end of the share of its coincidences that are returns.
    pub(super) fn returns_of_cells(&self, without: Option<usize>) -> Vec<[f64; 3]> {
        let of = |((key, _), met): (&(Key, Far), &Coincidences)| {
            let each = self.returns.get(&key.0).copied().unwrap_or_default();
            met.returns(each, without)
        };
        self.cells.iter().zip(&self.coincidences).map(of).collect()
    }

    /// By cell: late visits in sequence, and all late visits.
    pub(crate) fn sequences(&self) -> impl Iterator<Item = (Key, f64, f64)> + '_ {
        self.cells
            .iter()
            .zip(&self.sequence)
            .map(|((key, _), &(part, all))| (*key, part, all))
    }
}

/// Sums over the groups of some code.
#[derive(Clone, Copy, Default)]
struct CodeSums {
    again: f64,
    same_word: f64,
    /// Late reuses, and the lines over which each access could have been reused there.
    reuses: f64,
    exposed: f64,
    /// Lines of the samples, weighted by the accesses in them, and these accesses.
    lines: f64,
    accesses: f64,
}

impl CodeSums {
    fn in_samples(self) -> InSamples {
        let lines = self.lines / f64::max(self.accesses, 1.0);
        InSamples {
            times: LineOverWord::new(self.again, self.same_word),
            reuses: self.reuses,
            hazard: self.reuses / f64::max(self.exposed, 1.0) * lines,
        }
    }
}

/// By cell and replicate: sum over the samples of the cell's share of the sample's late visits.
/// `beside` has the cells of each sample and their late visits.
fn late_of(beside: &[Vec<(u32, f64)>], cells: usize) -> Vec<[f64; PARTS]> {
    let mut late = vec![[0.0; PARTS]; cells];
    for (sample, of_sample) in (0..).zip(beside) {
        let all: f64 = of_sample.iter().map(|c| c.1).sum();
        for &(cell, count) in of_sample {
            late[cell as usize][part(sample)] += count / all;
        }
    }
    late
}

/// Counts of a group, without one of the replicates.
pub(super) fn lines_without(
    lines: &LineVisits,
    group: Group,
    without: Option<usize>,
) -> Vec<&GroupLines> {
    (0..PARTS)
        .filter(|&p| Some(p) != without)
        .filter_map(|p| lines.groups.get(&(group, p as u32)))
        .collect()
}

/// Distances of a group, without one of the replicates.
pub(super) fn near_of(lines: &LineVisits, group: Group, without: Option<usize>) -> Near {
    Near::new(lines_without(lines, group, without).iter().copied())
}
