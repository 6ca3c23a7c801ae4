//! Sums of the reuse stage: by group, by replicate, by window size, by block.
//!
//! *Replicates*: samples are dealt to [`REPLICATES`] classes by their number. Sums by group and replicate are what
//! error bars are made of ([`crate::estimate`]): leaving one class of samples out after the other shows how much a
//! result depends on which samples happened to be taken. They add up over any set of groups, so that rows of
//! functions, lines and the whole get intervals from the same sums.

use crate::histogram::Histogram;
use crate::input::weights::{UNIT, Weights};
use crate::metrics::LogHistogram;
use crate::objects::Resolver;
use crate::reuse::{ReuseEngine, ReuseSink};
use crate::rows::Rows;
use crate::windows::Levels;
use crate::zoom::regions::{HeatRegions, HeatSums};
use crate::zoom::sums::ZoomSums;
use std::sync::Arc;

/// Largest window of the reuse metrics: `1 << REUSE_LEVELS` accesses.
pub const REUSE_LEVELS: usize = 40;
/// Classes of samples.
pub const REPLICATES: usize = 32;

/// The replicate of a sample.
#[inline(always)]
pub fn replicate(sample: u32) -> usize {
    // Samples are numbered in the order of time: a multiplicative hash keeps periods of the program out.
    (sample.wrapping_mul(0x9e37_79b9) >> (32 - REPLICATES.trailing_zeros())) as usize
}

/// Reuse counts of one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupReuse {
    /// Touches that are reuses.
    pub reuses: u64,
    /// First touches.
    pub firsts: u64,
    /// Sum of D.
    pub distance: u64,
    /// Greatest D.
    pub distance_max: u64,
    /// Sum of intervals.
    pub interval: u64,
}

impl GroupReuse {
    /// Adds another one.
    #[inline(always)]
    pub fn merge(&mut self, other: &GroupReuse) {
        self.reuses += other.reuses;
        self.firsts += other.firsts;
        self.distance += other.distance;
        self.distance_max = self.distance_max.max(other.distance_max);
        self.interval += other.interval;
    }
}

/// Sums over the samples of one replicate, of one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepSums {
    /// Touches.
    pub touches: u64,
    /// Touches that are reuses.
    pub reuses: u64,
    /// Sum of D.
    pub distance: u64,
    /// Samples in which the group has touches.
    pub samples: u64,
    /// Touches, each as many times as its sample's weight ([`crate::input::weights`]).
    pub weighted: u64,
}

impl RepSums {
    /// Adds another one.
    pub fn merge(&mut self, other: &RepSums) {
        self.touches += other.touches;
        self.reuses += other.reuses;
        self.distance += other.distance;
        self.samples += other.samples;
        self.weighted += other.weighted;
    }
}

/// Reuse inside samples, summed.
pub struct ReuseTotals {
    /// By group.
    pub groups: Vec<GroupReuse>,
    /// By group and replicate.
    pub replicates: Vec<Option<Box<[RepSums; REPLICATES]>>>,
    /// Samples of each replicate.
    pub samples: [u64; REPLICATES],
    /// D by group.
    pub distances: Vec<Histogram>,
    /// Intervals.
    pub intervals: LogHistogram,
    /// By window size: number of reuses, sum of D.
    pub levels: Levels<2>,
    /// What the zooms and objects need, if asked for.
    pub zoom: Option<Box<ZoomSums>>,
    /// By region and column, if asked for.
    pub heat: HeatSums,
}

impl ReuseTotals {
    pub(crate) fn new(zoom: Option<ZoomSums>) -> ReuseTotals {
        ReuseTotals {
            groups: Vec::new(),
            replicates: Vec::new(),
            samples: [0; REPLICATES],
            distances: Vec::new(),
            intervals: LogHistogram::default(),
            levels: Levels::new(REUSE_LEVELS),
            zoom: zoom.map(Box::new),
            heat: HeatSums::default(),
        }
    }

    /// Makes room for groups below `groups`.
    pub(crate) fn reserve(&mut self, groups: usize) {
        if self.groups.len() < groups {
            self.groups.resize(groups, GroupReuse::default());
            self.replicates.resize(groups, None);
            self.distances.resize(groups, Histogram::default());
        }
    }

    /// D of all groups together.
    pub fn all_distances(&self) -> Histogram {
        let mut all = Histogram::default();
        self.distances.iter().for_each(|d| all.merge(d));
        all
    }

    /// Adds what another one has.
    pub fn merge(&mut self, other: ReuseTotals) {
        self.reserve(other.groups.len());
        for (mine, theirs) in self.groups.iter_mut().zip(&other.groups) {
            mine.merge(theirs);
        }
        for (mine, theirs) in self.replicates.iter_mut().zip(&other.replicates) {
            if let Some(theirs) = theirs {
                let mine = mine.get_or_insert_default();
                mine.iter_mut().zip(theirs.iter()).for_each(|(a, b)| a.merge(b));
            }
        }
        self.samples.iter_mut().zip(other.samples).for_each(|(a, b)| *a += b);
        for (mine, theirs) in self.distances.iter_mut().zip(&other.distances) {
            mine.merge(theirs);
        }
        self.intervals.merge(&other.intervals);
        self.levels.merge(&other.levels);
        self.heat.merge(&other.heat);
        match (&mut self.zoom, other.zoom) {
            (Some(mine), Some(theirs)) => mine.merge(*theirs),
            (None, theirs) => self.zoom = theirs,
            _ => {}
        }
    }
}

/// What a group did in the current sample.
#[derive(Clone, Default)]
struct Scratch {
    reuse: GroupReuse,
    distances: Histogram,
    /// Whether it is among those that the sample has touched.
    touched: bool,
    /// Whether it is among the open ones.
    open: bool,
}

/// A reuse whose group is still to be told: what a group has is often not in the cache, and there is more work until it is.
#[derive(Clone, Copy, Default)]
struct Late {
    tag: u32,
    /// Of the histogram.
    bin: u32,
    distance: u64,
    interval: u64,
}

/// Groups between the prefetch of their totals and their use.
const AHEAD: usize = 8;
/// Touches that are told together.
const LATE: usize = 64;

/// The touches that wait. Nobody can foresee which are the first of their block, but there is less to be done for these: so they have a list of their own.
/// What is not on a list is written where the next one that is will be.
struct Waiting {
    reuses: [Late; LATE],
    reused: usize,
    firsts: [u32; LATE],
    first: usize,
}

impl Waiting {
    #[inline(always)]
    fn add(&mut self, tag: u32, first: bool, distance: u64, interval: u64) {
        self.reuses[self.reused % LATE] = Late { tag, bin: Histogram::bin(distance) as u32, distance, interval };
        self.firsts[self.first % LATE] = tag;
        self.reused += usize::from(!first);
        self.first += usize::from(first);
    }

    /// Whether there is no room for more.
    #[inline(always)]
    fn is_full(&self) -> bool {
        self.reused + self.first == LATE
    }

    /// Tells the groups. First everything is fetched that will be changed.
    #[inline(always)]
    fn settle(&mut self, groups: &mut [Scratch], touched: &mut Vec<u32>, intervals: &mut LogHistogram) {
        let reuses = &self.reuses[..std::mem::take(&mut self.reused).min(LATE)];
        let firsts = &self.firsts[..std::mem::take(&mut self.first).min(LATE)];
        reuses.iter().map(|r| r.tag).chain(firsts.iter().copied()).for_each(|tag| crate::prefetch(&groups[tag as usize]));
        reuses.iter().for_each(|r| groups[r.tag as usize].distances.prefetch(r.bin as usize));
        let mut touch = |scratch: &mut Scratch, tag: u32| {
            if !std::mem::replace(&mut scratch.touched, true) {
                touched.push(tag);
            }
        };
        for &tag in firsts {
            let scratch = &mut groups[tag as usize];
            touch(scratch, tag);
            scratch.reuse.firsts += 1;
        }
        for &Late { tag, bin, distance, interval } in reuses {
            let scratch = &mut groups[tag as usize];
            touch(scratch, tag);
            scratch.reuse.merge(&GroupReuse { reuses: 1, firsts: 0, distance, distance_max: distance, interval });
            scratch.distances.add_to_bin(bin as usize);
            intervals.add(interval);
        }
    }
}

/// The reuse stage of one sample.
pub(crate) struct SampleReuse {
    engine: ReuseEngine,
    levels: Levels<2>,
    intervals: LogHistogram,
    /// By group; those that the sample has not touched are zero.
    groups: Vec<Scratch>,
    touched: Vec<u32>,
    /// Empty between two calls.
    waiting: Waiting,
    /// Groups with distances that are not in the totals yet: these need not be told apart by sample.
    open: Vec<u32>,
    sample: u32,
    /// Rows of the sample so far.
    rows: u64,
    started: bool,
    /// Part of the run that the last rows were in, and the first row of the sample in it.
    part: (u32, u64),
    weights: Option<Arc<Weights>>,
}

impl SampleReuse {
    pub(crate) fn new(shift: u32, weights: Option<Arc<Weights>>) -> SampleReuse {
        SampleReuse {
            weights,
            engine: ReuseEngine::new(shift),
            levels: Levels::new(REUSE_LEVELS),
            intervals: LogHistogram::default(),
            groups: Vec::new(),
            touched: Vec::new(),
            waiting: Waiting { reuses: [Late::default(); LATE], reused: 0, firsts: [0; LATE], first: 0 },
            open: Vec::new(),
            sample: 0,
            rows: 0,
            started: false,
            part: (u32::MAX, 0),
        }
    }

    /// Starts a sample; the one before counts.
    pub(crate) fn begin(&mut self, sample: u32, totals: &mut ReuseTotals) {
        self.flush(totals);
        self.engine.begin();
        self.levels.begin();
        self.sample = sample;
        self.rows = 0;
        self.part = (u32::MAX, 0);
        self.started = true;
    }

    /// Feeds the next rows of the sample.
    pub(crate) fn run(&mut self, rows: &Rows<'_>, place: &Place, totals: &mut ReuseTotals) {
        let groups = 1 + rows.group.iter().fold(0, |most, &g| most.max(g)) as usize;
        if self.groups.len() < groups {
            self.groups.resize(groups, Scratch::default());
        }
        let (groups, touched) = (&mut self.groups[..], &mut self.touched);
        let (levels, intervals, waiting) = (&mut self.levels, &mut self.intervals, &mut self.waiting);
        let before = self.rows;
        match (&mut totals.zoom, &place.heat) {
            (Some(zoom), _) => {
                if self.part.0 != place.part {
                    self.part = (place.part, before);
                }
                let extra = zoom.sink(rows, place, groups.len(), before, self.part.1);
                self.engine.run(rows.address, rows.size, rows.group, &mut Sink { groups, touched, levels, intervals, waiting, extra });
            }
            (None, Some(heat)) => {
                let extra = HeatSink { regions: heat.of(place.process), heat, sums: &mut totals.heat, column: place.column, started: None };
                self.engine.run(rows.address, rows.size, rows.group, &mut Sink { groups, touched, levels, intervals, waiting, extra });
            }
            (None, None) => self.engine.run(rows.address, rows.size, rows.group, &mut Sink { groups, touched, levels, intervals, waiting, extra: () }),
        }
        self.waiting.settle(&mut self.groups, &mut self.touched, &mut self.intervals);
        self.rows += rows.len() as u64;
    }

    /// Adds what the sample had to the totals.
    fn flush(&mut self, totals: &mut ReuseTotals) {
        if !self.started {
            return;
        }
        self.started = false;
        totals.reserve(self.groups.len());
        let class = replicate(self.sample);
        totals.samples[class] += 1;
        let weight = self.weights.as_ref().map_or(UNIT, |w| w.of(self.sample));
        for at in 0..self.touched.len() {
            let group = self.touched[at] as usize;
            if let Some(&ahead) = self.touched.get(at + AHEAD) {
                crate::prefetch(&totals.groups[ahead as usize]);
                if let Some(replicates) = &totals.replicates[ahead as usize] {
                    crate::prefetch(&replicates[class]);
                }
            }
            let Scratch { reuse, open, touched, .. } = &mut self.groups[group];
            if reuse.reuses > 0 && !std::mem::replace(open, true) {
                self.open.push(group as u32);
            }
            totals.groups[group].merge(reuse);
            totals.replicates[group].get_or_insert_default()[class].merge(&RepSums {
                touches: reuse.reuses + reuse.firsts,
                reuses: reuse.reuses,
                distance: reuse.distance,
                samples: 1,
                weighted: (reuse.reuses + reuse.firsts).saturating_mul(weight),
            });
            *reuse = GroupReuse::default();
            *touched = false;
        }
        self.touched.clear();
    }

    /// The samples so far are complete: their finished windows count.
    pub(crate) fn finish(&mut self, totals: &mut ReuseTotals) {
        self.flush(totals);
        for group in self.open.drain(..) {
            let scratch = &mut self.groups[group as usize];
            totals.distances[group as usize].take(&mut scratch.distances);
            scratch.open = false;
        }
        totals.intervals.merge(&self.intervals);
        self.intervals = LogHistogram::default();
        totals.levels.merge(&self.levels);
        self.levels = Levels::new(REUSE_LEVELS);
    }
}

/// Where and when rows happened: for counts by unit.
pub(crate) struct Place {
    /// Address space.
    pub(crate) space: u32,
    /// System process id.
    pub(crate) process: u32,
    /// Tells objects apart that share a page; none if no objects are known.
    pub(crate) objects: Option<Arc<Resolver>>,
    /// `time_ns` of the first row, and nanoseconds per row.
    pub(crate) clock: (u64, f64),
    /// Regions of a heat map; none if no map is made.
    pub(crate) heat: Option<Arc<HeatRegions>>,
    /// Column of the heat map.
    pub(crate) column: u32,
    /// Part of the run, where parts are counted.
    pub(crate) part: u32,
}

/// What is done with a touch besides the sums.
pub(crate) trait Extra {
    /// `touch`: one touch of a block by a row of the sample.
    fn touch(&mut self, row: u64, block: u64, tag: u32, touch: &GroupReuse);
}

impl Extra for () {
    #[inline(always)]
    fn touch(&mut self, _row: u64, _block: u64, _tag: u32, _touch: &GroupReuse) {}
}

struct HeatSink<'a> {
    heat: &'a HeatRegions,
    regions: &'a [(u64, u64, u32)],
    sums: &'a mut HeatSums,
    column: u32,
    started: Option<u64>,
}

impl Extra for HeatSink<'_> {
    #[inline(always)]
    fn touch(&mut self, row: u64, block: u64, _tag: u32, touch: &GroupReuse) {
        let starts = u64::from(self.started != Some(row));
        self.started = Some(row);
        // Few regions, by address: counting them takes no branch that could be mispredicted.
        let behind = self.regions.iter().map(|r| usize::from(r.0 <= block)).sum::<usize>();
        if let Some(&(_, last, region)) = behind.checked_sub(1).and_then(|at| self.regions.get(at))
            && block <= last
        {
            self.sums.add((region * self.heat.columns() + self.column) as usize, starts, touch);
        }
    }
}

struct Sink<'a, E> {
    groups: &'a mut [Scratch],
    touched: &'a mut Vec<u32>,
    levels: &'a mut Levels<2>,
    intervals: &'a mut LogHistogram,
    waiting: &'a mut Waiting,
    extra: E,
}

impl<E: Extra> ReuseSink for Sink<'_, E> {
    fn first(&mut self, row: u64, block: u64, tag: u32) {
        self.touch(row, block, tag, true, 0, 0);
    }

    fn reuse(&mut self, row: u64, block: u64, tag: u32, distance: u64, interval: u64) {
        self.touch(row, block, tag, false, distance, interval);
    }

    /// Nobody can foresee which touches are the first: there is no branch on it.
    #[inline(always)]
    fn touch(&mut self, row: u64, block: u64, tag: u32, first: bool, distance: u64, interval: u64) {
        let again = u64::from(!first);
        let (distance, interval) = if first { (0, 0) } else { (distance, interval) };
        let one = GroupReuse { reuses: again, firsts: 1 - again, distance, distance_max: distance, interval };
        self.waiting.add(tag, first, distance, interval);
        if self.waiting.is_full() {
            self.waiting.settle(self.groups, self.touched, self.intervals);
        }
        let level = crate::windows::level(row, row.wrapping_sub(interval));
        self.levels.add_all(level, [again, distance]);
        self.extra.touch(row, block, tag, &one);
    }

    #[inline(always)]
    fn done(&mut self, row: u64, _tag: u32) {
        self.levels.done(row);
    }
}
