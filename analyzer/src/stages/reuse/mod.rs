//! Sums of the reuse stage: by group, by replicate, by window size, by block.
//!
//! *Replicates*: samples are divided into [`REPLICATES`] classes by their number. Error bars are
//! computed from sums by group and replicate ([`crate::estimate`]): leaving out one class of
//! samples at a time shows the dependence of a result on the choice of samples. The sums add up
//! over any set of groups, so rows of functions, lines and the whole get intervals from the same
//! sums.

pub mod by_page;
pub mod by_region;
pub mod extra;

use crate::data::group::Group;
use crate::data::histogram::Histogram;
use crate::data::log_histogram::LogHistogram;
use crate::data::reuse_counts::GroupReuse;
use crate::data::rows::ColumnSlices;
use crate::input::weights::{UNIT, Weights};
use crate::reuse::{NOT_TOUCHED, Narrow, ReuseEngine, ReuseSink};
use crate::stages::reuse::by_page::ZoomSums;
use crate::stages::reuse::by_region::{HeatRegions, HeatSums};
use crate::stages::reuse::extra::{Extra, SampleOrigin};
use crate::stages::windows::Levels;
use std::sync::Arc;

/// Largest window of the reuse metrics: `1 << REUSE_LEVELS` accesses.
pub const REUSE_LEVELS: usize = 40;
/// Classes of samples.
pub const REPLICATES: usize = 32;

/// The replicate of a sample.
#[inline(always)]
pub fn replicate(sample: u32) -> usize {
    // Samples are numbered in the order of time. A multiplicative hash avoids resonance with
    // periods of the program.
    (sample.wrapping_mul(0x9e37_79b9) >> (32 - REPLICATES.trailing_zeros())) as usize
}

/// Sums over the samples of one replicate, of one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RepSums {
    /// Touches.
    pub touches: u64,
    /// Touches that are reuses.
    pub reuses: u64,
    /// Sum of D.
    pub distance: u64,
    /// Samples in which the group has touches.
    pub samples: u64,
    /// Touches, weighted by the weight of the sample ([`crate::input::weights`]).
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
    /// Counts for the zooms and objects, if they are requested.
    pub zoom: Option<Box<ZoomSums>>,
    /// Counts by region and column, if requested.
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

    /// Allocates space for groups below `groups`.
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

    /// Adds the sums of `other`.
    pub fn merge(&mut self, other: ReuseTotals) {
        self.reserve(other.groups.len());
        for (mine, theirs) in self.groups.iter_mut().zip(&other.groups) {
            mine.merge(theirs);
        }
        for (mine, theirs) in self.replicates.iter_mut().zip(&other.replicates) {
            if let Some(theirs) = theirs {
                let mine = mine.get_or_insert_default();
                mine.iter_mut()
                    .zip(theirs.iter())
                    .for_each(|(a, b)| a.merge(b));
            }
        }
        self.samples
            .iter_mut()
            .zip(other.samples)
            .for_each(|(a, b)| *a += b);
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

/// Counts of a group in the current sample, and in earlier ones that were not added to the totals
/// yet. They are in one cache line, since they change together.
#[repr(align(64))]
#[derive(Clone, Default)]
struct Scratch {
    /// Counts in the sample: touches, reuses among them, and their sum of D.
    touches: u64,
    reuses: u64,
    distance: u64,
    /// Sums without this sample, except for the greatest D and intervals, which include it.
    all: GroupReuse,
}

impl Scratch {
    /// Counts a reuse. It must also be counted as a touch.
    #[inline(always)]
    fn reuse(&mut self, distance: u64, interval: u64) {
        self.reuses += 1;
        self.distance += distance;
        self.all.distance_max = self.all.distance_max.max(distance);
        self.all.interval += interval;
    }
}

/// Groups that a sample has touched, each once. The first touch of a group is unpredictable, so
/// there is no branch on it.
#[derive(Default)]
struct Touched {
    /// Has room for one more than the number of groups.
    list: Vec<u32>,
    len: usize,
}

impl Touched {
    /// Counts touches by groups.
    #[inline(always)]
    fn touch(&mut self, groups: &mut [Scratch], tags: impl Iterator<Item = u32>) {
        // Local copies: otherwise the compiler would load and store the length for each touch,
        // since the groups might alias it.
        let (list, mut len) = (&mut self.list[..], self.len);
        for tag in tags {
            let scratch = &mut groups[tag as usize];
            list[len] = tag;
            len += usize::from(scratch.touches == 0);
            scratch.touches += 1;
        }
        self.len = len;
    }
}

/// A delayed update of a group's counts. The counts are often not in the cache, so other work is
/// done while they are prefetched.
#[derive(Clone, Copy, Default)]
struct Late {
    tag: u32,
    /// Bin of the histogram.
    bin: u32,
    distance: u64,
    interval: u64,
}

/// Groups between the prefetch of their totals and their use. Source: Chosen.
const PREFETCH_DISTANCE: usize = 8;
/// Source: Chosen.
const TOUCHES_PER_BATCH: usize = 64;

/// The waiting touches. The first touch of a block is unpredictable, but needs less work, so first
/// touches have a separate list. Each touch is written to the next place of a list, and the list
/// grows only if the touch belongs to it.
struct Waiting {
    reuses: [Late; TOUCHES_PER_BATCH],
    reused: usize,
    firsts: [u32; TOUCHES_PER_BATCH],
    first: usize,
}

impl Waiting {
    #[inline(always)]
    fn add(&mut self, tag: u32, first: bool, distance: u64, interval: u64) {
        self.reuses[self.reused % TOUCHES_PER_BATCH] = Late {
            tag,
            bin: Histogram::bin(distance) as u32,
            distance,
            interval,
        };
        self.firsts[self.first % TOUCHES_PER_BATCH] = tag;
        self.reused += usize::from(!first);
        self.first += usize::from(first);
    }

    /// True if the lists are full.
    #[inline(always)]
    fn is_full(&self) -> bool {
        self.reused + self.first == TOUCHES_PER_BATCH
    }

    /// Adds the touches to their groups. All cache lines to be changed are prefetched first.
    #[inline(always)]
    fn settle(&mut self, groups: &mut Groups, intervals: &mut LogHistogram) {
        let Groups {
            scratch,
            distances,
            touched,
        } = groups;
        let reuses = &self.reuses[..std::mem::take(&mut self.reused).min(TOUCHES_PER_BATCH)];
        let firsts = &self.firsts[..std::mem::take(&mut self.first).min(TOUCHES_PER_BATCH)];
        reuses
            .iter()
            .map(|r| r.tag)
            .chain(firsts.iter().copied())
            .for_each(|tag| crate::prefetch(&scratch[tag as usize]));
        reuses
            .iter()
            .for_each(|r| distances[r.tag as usize].prefetch(r.bin as usize));
        touched.touch(
            scratch,
            firsts.iter().copied().chain(reuses.iter().map(|r| r.tag)),
        );
        for &Late {
            tag,
            bin,
            distance,
            interval,
        } in reuses
        {
            scratch[tag as usize].reuse(distance, interval);
            distances[tag as usize].add_to_bin(bin as usize);
            intervals.add(interval);
        }
    }
}

/// Counts of a sample by group.
#[derive(Default)]
struct Groups {
    scratch: Vec<Scratch>,
    /// D by group, of all samples that are not in the totals yet.
    distances: Vec<Histogram>,
    touched: Touched,
}

impl Groups {
    /// Allocates space for groups below `groups`.
    fn reserve(&mut self, groups: usize) {
        if self.scratch.len() < groups {
            self.scratch.resize(groups, Scratch::default());
            self.distances.resize(groups, Histogram::default());
            self.touched.list.resize(groups + 1, 0);
        }
    }
}

/// The reuse stage of one sample.
pub(crate) struct SampleReuse {
    engine: ReuseEngine,
    levels: Levels<2>,
    intervals: LogHistogram,
    groups: Groups,
    /// Empty between calls.
    waiting: Waiting,
    /// Numbers of the blocks touched by the rows of the last call, as long as each touches only
    /// one.
    blocks: Vec<u16>,
    /// Groups with counts that are not in the totals yet.
    open: Vec<u32>,
    sample: u32,
    /// Rows of the sample so far.
    rows: u64,
    started: bool,
    /// Part of the run that contains the last rows, and the first row of the sample in it.
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
            groups: Groups::default(),
            waiting: Waiting {
                reuses: [Late::default(); TOUCHES_PER_BATCH],
                reused: 0,
                firsts: [0; TOUCHES_PER_BATCH],
                first: 0,
            },
            blocks: Vec::new(),
            open: Vec::new(),
            sample: 0,
            rows: 0,
            started: false,
            part: (u32::MAX, 0),
        }
    }

    /// Starts a sample. The previous one is added to the totals.
    pub(crate) fn begin(&mut self, sample: u32, totals: &mut ReuseTotals) {
        self.flush(totals);
        self.engine.begin();
        self.levels.begin();
        self.sample = sample;
        self.rows = 0;
        self.part = (u32::MAX, 0);
        self.started = true;
    }

    /// Adds the next rows of the sample.
    pub(crate) fn run(
        &mut self,
        rows: &ColumnSlices<'_>,
        place: &SampleOrigin,
        totals: &mut ReuseTotals,
    ) {
        self.groups
            .reserve(1 + rows.group.iter().fold(0, |most, g| most.max(g.raw())) as usize);
        self.blocks.clear();
        let before = self.rows;
        match (&mut totals.zoom, &place.heat) {
            (Some(zoom), _) => {
                if self.part.0 != place.part {
                    self.part = (place.part, before);
                }
                let groups = self.groups.scratch.len();
                let extra = zoom.sink(rows, place, groups, before, self.part.1);
                self.count(rows, extra);
            }
            (None, Some(heat)) => {
                let extra = HeatSink {
                    regions: heat.of(place.process),
                    heat,
                    sums: &mut totals.heat,
                    column: place.column,
                    started: None,
                };
                self.count(rows, extra);
            }
            (None, None) => self.count(rows, ()),
        }
        self.waiting.settle(&mut self.groups, &mut self.intervals);
        self.rows += rows.len() as u64;
    }

    /// Counts the reuses of rows.
    fn count<E: Extra>(&mut self, rows: &ColumnSlices<'_>, extra: E) {
        let mut sink = Sink {
            groups: &mut self.groups,
            levels: &mut self.levels,
            intervals: &mut self.intervals,
            waiting: &mut self.waiting,
            blocks: &mut self.blocks,
            extra,
        };
        let groups = Group::raw_slice(rows.group);
        self.engine.run(rows.address, rows.size, groups, &mut sink);
    }

    /// Numbers of the touched blocks, if the rows of the last call are all rows of the sample and
    /// each touches only one block.
    pub(crate) fn blocks(&self, rows: usize) -> Option<&[u16]> {
        Some(&self.blocks[..]).filter(|blocks| blocks.len() == rows && self.rows == rows as u64)
    }

    /// Adds the sample's counts to the totals.
    fn flush(&mut self, totals: &mut ReuseTotals) {
        if !self.started {
            return;
        }
        self.started = false;
        let Groups {
            scratch, touched, ..
        } = &mut self.groups;
        totals.reserve(scratch.len());
        let class = replicate(self.sample);
        totals.samples[class] += 1;
        let weight = self.weights.as_ref().map_or(UNIT, |w| w.of(self.sample));
        let touched = &touched.list[..std::mem::take(&mut touched.len)];
        for (at, &group) in touched.iter().enumerate() {
            if let Some(&ahead) = touched.get(at + PREFETCH_DISTANCE)
                && let Some(replicates) = &totals.replicates[ahead as usize]
            {
                crate::prefetch(&replicates[class]);
            }
            let Scratch {
                touches,
                reuses,
                distance,
                all,
            } = &mut scratch[group as usize];
            if all.reuses + all.firsts == 0 {
                self.open.push(group);
            }
            let [touches, reuses, distance] = [touches, reuses, distance].map(std::mem::take);
            all.reuses += reuses;
            all.firsts += touches - reuses;
            all.distance += distance;
            let weighted = touches.saturating_mul(weight);
            totals.replicates[group as usize].get_or_insert_default()[class].merge(&RepSums {
                touches,
                reuses,
                distance,
                samples: 1,
                weighted,
            });
        }
    }

    /// Completes the samples so far: all their counts are added to the totals.
    pub(crate) fn finish(&mut self, totals: &mut ReuseTotals) {
        self.flush(totals);
        for group in self.open.drain(..) {
            let group = group as usize;
            totals.groups[group].merge(&std::mem::take(&mut self.groups.scratch[group].all));
            totals.distances[group].take(&mut self.groups.distances[group]);
        }
        totals.intervals.merge(&self.intervals);
        self.intervals = LogHistogram::default();
        totals.levels.merge(&self.levels);
        self.levels = Levels::new(REUSE_LEVELS);
    }
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
        // There are few regions, sorted by address. Counting those that begin before the block
        // needs no unpredictable branch.
        let behind = self
            .regions
            .iter()
            .map(|r| usize::from(r.0 <= block))
            .sum::<usize>();
        if let Some(&(_, last, region)) = behind.checked_sub(1).and_then(|at| self.regions.get(at))
            && block <= last
        {
            self.sums.add(
                (region * self.heat.columns() + self.column) as usize,
                starts,
                touch,
            );
        }
    }
}

/// Counters of many touches. Each has several copies, so that a touch does not wait for the store
/// of the previous one.
const COPIES: usize = 4;

/// Counts many touches.
#[inline(always)]
fn count_narrow(
    groups: &mut Groups,
    levels: &mut Levels<2>,
    intervals: &mut LogHistogram,
    touches: &Narrow<'_>,
) {
    let Narrow {
        row,
        tag,
        last,
        distance,
        mut again,
        ..
    } = *touches;
    let Groups {
        scratch,
        distances,
        touched,
    } = groups;
    touched.touch(scratch, tag.iter().copied());
    let mut by_interval = [[0u32; 16]; COPIES];
    let mut from = 0;
    while from < tag.len() {
        let begin = row + from as u64;
        let rows = Levels::<2>::together(begin, tag.len() - from);
        let (these, behind) =
            again.split_at(again.partition_point(|&i| usize::from(i) < from + rows));
        // By level: number of reuses and sum of D in one word.
        let mut sums = [[0u64; 16]; COPIES];
        for (at, &i) in these.iter().enumerate() {
            let i = i as usize;
            let (row, tag, last, distance) = (
                row as u32 + i as u32,
                tag[i] as usize,
                u32::from(last[i]),
                distance[i],
            );
            let interval = row - last;
            scratch[tag].reuse(distance.into(), interval.into());
            distances[tag].add_to_bin(Histogram::bin(distance.into()));
            by_interval[at % COPIES][(32 - interval.leading_zeros()) as usize % 16] += 1;
            sums[at % COPIES][crate::stages::windows::level(row.into(), last.into()) % 16] +=
                1 << 32 | u64::from(distance);
        }
        levels.add_together(begin, rows, |level| {
            let sum = sums.iter().map(|s| s[level % 16]).sum::<u64>();
            [sum >> 32, sum & u64::from(u32::MAX)]
        });
        (again, from) = (behind, from + rows);
    }
    for bits in 0..16 {
        // The smallest value with this number of bits.
        intervals.add_many(
            1 << bits >> 1,
            by_interval
                .iter()
                .map(|counts| u64::from(counts[bits]))
                .sum(),
        );
    }
}

struct Sink<'a, E> {
    groups: &'a mut Groups,
    levels: &'a mut Levels<2>,
    intervals: &'a mut LogHistogram,
    waiting: &'a mut Waiting,
    blocks: &'a mut Vec<u16>,
    extra: E,
}

impl<E: Extra> ReuseSink for Sink<'_, E> {
    fn first(&mut self, row: u64, block: u64, tag: u32) {
        self.touch(row, block, tag, true, 0, 0);
    }

    fn reuse(&mut self, row: u64, block: u64, tag: u32, distance: u64, interval: u64) {
        self.touch(row, block, tag, false, distance, interval);
    }

    /// First touches are unpredictable, so there is no branch on them.
    #[inline(always)]
    fn touch(&mut self, row: u64, block: u64, tag: u32, first: bool, distance: u64, interval: u64) {
        let again = u64::from(!first);
        let (distance, interval) = if first { (0, 0) } else { (distance, interval) };
        let one = GroupReuse {
            reuses: again,
            firsts: 1 - again,
            distance,
            distance_max: distance,
            interval,
        };
        self.waiting.add(tag, first, distance, interval);
        if self.waiting.is_full() {
            self.waiting.settle(self.groups, self.intervals);
        }
        let level = crate::stages::windows::level(row, row.wrapping_sub(interval));
        self.levels.add_all(level, [again, distance]);
        self.extra.touch(row, block, tag, &one);
    }

    #[inline(always)]
    fn done(&mut self, row: u64, _tag: u32) {
        self.levels.done(row);
    }

    #[inline(always)]
    fn narrow(&mut self, touches: &Narrow<'_>) {
        self.blocks
            .extend(touches.block.iter().map(|&block| block as u16));
        count_narrow(self.groups, self.levels, self.intervals, touches);
        let Narrow {
            row,
            address,
            shift,
            tag,
            last,
            distance,
            ..
        } = *touches;
        for (row, ((&address, &tag), (&last, &distance))) in
            (row..).zip(address.iter().zip(tag).zip(last.iter().zip(distance)))
        {
            let again = u64::from(last != NOT_TOUCHED);
            let (distance, interval) = (u64::from(distance), again * row.wrapping_sub(last.into()));
            self.extra.touch(
                row,
                address >> shift,
                tag,
                &GroupReuse {
                    reuses: again,
                    firsts: 1 - again,
                    distance,
                    distance_max: distance,
                    interval,
                },
            );
        }
    }
}
