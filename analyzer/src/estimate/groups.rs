//! From marks to blocks: by function, line or class, at the granularity of addresses, lines or
//! pages.

use crate::data::detail::Detail;
use crate::data::group::{AccessClass, Group};
use crate::data::memory_units::CacheLine;
use crate::estimate::recapture::Listed;
use crate::estimate::sample_shares::{EVEN_SHARE, Shares};
use crate::estimate::{Block, Design};
use crate::stages::incidence::{Incidence, Mark};
use crate::util::fast_hash::Mixed;
use rayon::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;

/// Number of a block in an address space. Blocks of different spaces have different numbers for
/// addresses below 2^56.
fn number(space: usize, address: u64, shift: u32) -> u64 {
    (space as u64) << 56 ^ address >> shift
}

/// The cache line that an address is in, both as numbers of blocks.
fn line_of(number: u64) -> u64 {
    const SPACE: u64 = 0xff << 56;
    number & SPACE | CacheLine::of(number & !SPACE).number()
}

/// A sighting of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct BlockSighting {
    number: u64,
    sample: u32,
    irregular: bool,
}

/// An address that a target has seen in a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Sighting {
    number: u64,
    sample: u32,
    /// By class of load: one bit for each class that touched the address.
    classes: u32,
}

/// Bits of [`Sighting::classes`].
const STRIDED: u32 = 1 << AccessClass::Strided as u32;
const IRREGULAR: u32 = 1 << AccessClass::Irregular as u32;

/// Counts the distinct samples of each block without sorting: for each sample it stores the last
/// block that was seen in it.
#[derive(Clone)]
struct Distinct {
    /// By sample, for sample numbers without large gaps.
    dense: Vec<u32>,
    sparse: HashMap<u32, u32, Mixed>,
    turn: u32,
}

impl Distinct {
    fn new(incidence: &Incidence) -> Distinct {
        let marks: usize = incidence.spaces().iter().map(Vec::len).sum();
        Distinct {
            dense: vec![0; (incidence.samples_end() as usize).min(marks * 4 + 1024)],
            sparse: HashMap::default(),
            turn: 0,
        }
    }

    /// Begins the next block.
    fn begin(&mut self) {
        // The number cannot overflow, since there are fewer blocks than marks. If it did, all marks
        // would be cleared.
        self.turn = self.turn.checked_add(1).unwrap_or_else(|| {
            self.dense.fill(0);
            self.sparse.clear();
            1
        });
    }

    /// True if the block has not been seen in this sample yet.
    #[inline(always)]
    fn is_new(&mut self, sample: u32) -> bool {
        let turn = self.turn;
        match self.dense.get_mut(sample as usize) {
            Some(met) => std::mem::replace(met, turn) != turn,
            None => self.sparse.insert(sample, turn) != Some(turn),
        }
    }
}

/// The field [`Block::stands`] of a block whose first sample is this one.
#[inline(always)]
fn stands(sample: u32, shares: Option<&Shares>) -> u32 {
    shares.map_or(EVEN_SHARE, |shares| shares.relative(sample))
}

/// Appends sightings of addresses to blocks. They must be in the order of numbers and samples.
#[inline(always)]
fn append(
    blocks: &mut Vec<Block>,
    last: &mut u32,
    one: &Sighting,
    irregular: bool,
    shares: Option<&Shares>,
) {
    match blocks.last_mut().filter(|b| b.number == one.number) {
        Some(block) => {
            block.irregular |= irregular;
            if *last != one.sample {
                if block.samples == 1 {
                    block.first[1] = one.sample;
                }
                block.samples += 1;
            }
        }
        None => blocks.push(Block {
            number: one.number,
            samples: 1,
            first: [one.sample, 0],
            irregular,
            stands: stands(one.sample, shares),
        }),
    }
    *last = one.sample;
}

/// Sums over the addresses that samples have seen. Each is weighted by the loads that a row of its
/// sample represents. The mean footprint per window is computed from these sums.
fn weighted(list: &[Sighting], shares: &Shares) -> Sightings {
    let mut sums = Sightings::default();
    for same in list.chunk_by(|a, b| (a.number, a.sample) == (b.number, b.sample)) {
        let classes = same.iter().fold(0, |classes, s| classes | s.classes);
        let weight = shares.weight(same[0].sample);
        sums.all += weight;
        sums.strided += if classes & STRIDED != 0 { weight } else { 0.0 };
        sums.irregular += if classes & IRREGULAR != 0 {
            weight
        } else {
            0.0
        };
    }
    sums
}

/// The lists of a target from its sightings, which are in order of numbers and samples.
fn kinds(list: &[Sighting], distinct: &mut Distinct, shares: Option<&Shares>) -> Kinds {
    distinct.begin();
    let samples = list.iter().filter(|s| distinct.is_new(s.sample)).count() as u64;
    // The exact capacity is allocated: growing lists would take twice the memory.
    let mut all = Vec::with_capacity(distinct_of(list, |n| n));
    let mut last = 0;
    list.iter().for_each(|one| {
        append(
            &mut all,
            &mut last,
            one,
            one.classes & IRREGULAR != 0,
            shares,
        )
    });
    // The addresses touched by one class of loads. Most code has only one class.
    let of_class = |class: u32| {
        if list.iter().all(|one| one.classes == class) {
            return None;
        }
        let (mut blocks, mut last) = (Vec::new(), 0);
        list.iter()
            .filter(|one| one.classes & class != 0)
            .for_each(|one| append(&mut blocks, &mut last, one, class == IRREGULAR, shares));
        Some(Listed::from(blocks))
    };
    let mut kinds = Kinds {
        all: all.into(),
        strided: of_class(STRIDED),
        irregular: of_class(IRREGULAR),
        lines: lines(list, distinct, shares),
        samples,
        sightings: Sightings::default(),
    };
    let count = |list: &Listed| {
        list.blocks
            .iter()
            .map(|b| u64::from(b.samples))
            .sum::<u64>() as f64
    };
    kinds.sightings = match shares {
        Some(shares) => weighted(list, shares),
        None => Sightings {
            all: count(&kinds.all),
            strided: count(kinds.strided()),
            irregular: count(kinds.irregular()),
        },
    };
    kinds
}

/// Number of distinct numbers in sorted sightings.
fn distinct_of(list: &[Sighting], number: fn(u64) -> u64) -> usize {
    let again = (list.windows(2)).filter(|pair| number(pair[0].number) == number(pair[1].number));
    list.len() - again.count()
}

/// Lines of memory of a target, from its sightings.
fn lines(list: &[Sighting], distinct: &mut Distinct, shares: Option<&Shares>) -> Listed {
    let mut lines = Vec::with_capacity(distinct_of(list, line_of));
    for same in list.chunk_by(|a, b| line_of(a.number) == line_of(b.number)) {
        distinct.begin();
        let (mut samples, mut first) = (0, [u32::MAX; 2]);
        for one in same.iter().filter(|s| distinct.is_new(s.sample)) {
            samples += 1;
            first = [
                first[0].min(one.sample),
                first[1].min(one.sample.max(first[0])),
            ];
        }
        let irregular = same.iter().any(|s| s.classes & IRREGULAR != 0);
        let second = if samples > 1 { first[1] } else { 0 };
        lines.push(Block {
            number: line_of(same[0].number),
            samples,
            first: [first[0], second],
            irregular,
            stands: stands(first[0], shares),
        });
    }
    lines.into()
}

/// Addresses that samples have seen, summed over samples. Each counts for the loads that the rows
/// of its sample represent ([`Shares`]), or for one if all samples are alike.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sightings {
    /// Addresses.
    pub all: f64,
    /// Addresses of Strided loads.
    pub strided: f64,
    /// Addresses of Irregular loads.
    pub irregular: f64,
}

/// The lists of blocks of one target.
#[derive(Clone, Debug, Default)]
pub struct Kinds {
    /// Addresses.
    pub all: Listed,
    /// Those of Strided and of Irregular loads; none if all loads are of that class.
    strided: Option<Listed>,
    irregular: Option<Listed>,
    /// Lines of 64 bytes.
    pub lines: Listed,
    /// Samples that have seen any of them.
    pub samples: u64,
    /// Sightings of all samples.
    pub sightings: Sightings,
}

impl Kinds {
    /// Addresses of Strided loads.
    pub fn strided(&self) -> &Listed {
        self.strided.as_ref().unwrap_or(&self.all)
    }

    /// Addresses of Irregular loads.
    pub fn irregular(&self) -> &Listed {
        self.irregular.as_ref().unwrap_or(&self.all)
    }

    /// Drops everything that estimates do not need.
    fn settle(&mut self, design: Design) {
        let Kinds {
            all,
            strided,
            irregular,
            lines,
            ..
        } = self;
        [Some(all), strided.as_mut(), irregular.as_mut(), Some(lines)]
            .into_iter()
            .flatten()
            .for_each(|list| list.settle(design));
    }
}

/// Blocks by target.
pub struct Grouped {
    kinds: Arc<Vec<Kinds>>,
    /// Index into `kinds` by target; [`NO_PLACE`] without sightings. `None` if the index is the
    /// target's number.
    places: Option<Vec<u32>>,
}

const NO_PLACE: u32 = u32::MAX;

/// Numbers of marks, in ascending order. The marks of all address spaces are counted through. (There
/// are far fewer than 2^32, see [`Incidence`].)
type MarkNumbers = Vec<u32>;

/// Makes the sightings of each target, sorts them if necessary, and returns the results of `of`.
fn kinds_of(
    seen: Vec<MarkNumbers>,
    incidence: &Incidence,
    of: impl Fn(&[Sighting], &mut Distinct) -> Kinds + Sync,
) -> Vec<Kinds> {
    // Marks are in order of addresses and samples. Only numbers that include an address space may
    // break the order.
    let kinds = seen.into_par_iter().map_init(
        || (Distinct::new(incidence), Vec::new()),
        |(distinct, list), numbers| {
            write_sightings(incidence, &numbers, list);
            if !list.is_sorted_by_key(|s| s.number) {
                list.par_sort_unstable();
            }
            of(list, distinct)
        },
    );
    kinds.collect()
}

/// Writes the sightings of marks to `list`.
fn write_sightings(incidence: &Incidence, numbers: &[u32], list: &mut Vec<Sighting>) {
    list.clear();
    list.reserve_exact(numbers.len());
    let mut numbers = numbers.iter().map(|&number| number as usize).peekable();
    let mut begin = 0;
    for (space, marks) in incidence.spaces().iter().enumerate() {
        let end = begin + marks.len();
        while let Some(number) = numbers.next_if(|&number| number < end) {
            list.push(sighting(space, &marks[number - begin]));
        }
        begin = end;
    }
}

/// The sighting of a mark.
#[inline(always)]
fn sighting(space: usize, mark: &Mark) -> Sighting {
    Sighting {
        number: number(space, mark.address, 0),
        sample: mark.sample,
        classes: 1 << mark.group.class() as u32,
    }
}

/// The lists to which the marks of each code group are appended.
struct Lists {
    /// Lists of all groups one after the other, and the first of each group.
    all: Vec<u32>,
    starts: Vec<u32>,
}

impl Lists {
    /// The lists of each group.
    fn new(lists: &[Vec<u32>], keep: impl Fn(u32) -> bool) -> Lists {
        let mut out = Lists {
            all: Vec::new(),
            starts: vec![0],
        };
        for of_group in lists {
            out.all
                .extend(of_group.iter().copied().filter(|&list| keep(list)));
            out.starts.push(out.all.len() as u32);
        }
        out
    }

    #[inline(always)]
    fn of(&self, group: Group) -> &[u32] {
        &self.all[self.starts[group.index()] as usize..self.starts[group.index() + 1] as usize]
    }
}

impl Grouped {
    /// Groups the marks of samples with this design, for targets of several kinds. Each of
    /// `targets` gives the targets of a code group. The result keeps only the part that estimates
    /// need, because the lists are much larger. Targets with the same code are estimated once; most
    /// functions without known lines are such. A screen needs only the lines of memory.
    pub fn several<I: Iterator<Item = u32>, F: Fn(Group) -> I>(
        incidence: &Incidence,
        shares: Option<&Shares>,
        design: Design,
        targets: &[F],
        detail: Detail,
    ) -> Vec<Grouped> {
        let mut marks: Vec<usize> = Vec::new();
        for mark in incidence.spaces().iter().flatten() {
            if marks.len() <= mark.group.index() {
                marks.resize(mark.group.index() + 1, 0);
            }
            marks[mark.group.index()] += 1;
        }
        let mut lists: HashMap<Vec<Group>, u32> = HashMap::new();
        let (mut sizes, mut of_group): (Vec<usize>, Vec<Vec<u32>>) =
            (Vec::new(), vec![Vec::new(); marks.len()]);
        let mut place = |groups: Vec<Group>| {
            if groups.is_empty() {
                return NO_PLACE;
            }
            let list = lists.entry(groups).or_insert_with_key(|groups| {
                let list = sizes.len() as u32;
                sizes.push(groups.iter().map(|&g| marks[g.index()]).sum());
                groups.iter().for_each(|&g| of_group[g.index()].push(list));
                list
            });
            *list
        };
        let places_of = |targets: &F| -> Vec<u32> {
            let mut groups: Vec<Vec<Group>> = Vec::new();
            for group in (0..marks.len())
                .map(Group::from_index)
                .filter(|g| marks[g.index()] > 0)
            {
                for target in targets(group) {
                    if groups.len() <= target as usize {
                        groups.resize(target as usize + 1, Vec::new());
                    }
                    groups[target as usize].push(group);
                }
            }
            groups.into_iter().map(&mut place).collect()
        };
        let places: Vec<Vec<u32>> = targets.iter().map(places_of).collect();
        // Lists are distributed over the threads so that each gets about the same number of marks.
        let mut order: Vec<u32> = (0..sizes.len() as u32).collect();
        order.sort_by_key(|&list| std::cmp::Reverse(sizes[list as usize]));
        let mut shares_of = vec![0usize; rayon::current_num_threads().max(1)];
        let mut thread_of = vec![0; sizes.len()];
        for list in order {
            let thread = (0..shares_of.len())
                .min_by_key(|&thread| shares_of[thread])
                .unwrap_or(0);
            thread_of[list as usize] = thread;
            shares_of[thread] += sizes[list as usize];
        }
        let fill = |thread: usize| {
            let lists = Lists::new(&of_group, |list| thread_of[list as usize] == thread);
            let room = |(list, &size): (usize, &usize)| {
                Vec::with_capacity(if thread_of[list] == thread { size } else { 0 })
            };
            let mut seen: Vec<MarkNumbers> = sizes.iter().enumerate().map(room).collect();
            for (number, mark) in (0..).zip(incidence.spaces().iter().flatten()) {
                lists
                    .of(mark.group)
                    .iter()
                    .for_each(|&list| seen[list as usize].push(number));
            }
            seen
        };
        let mut filled: Vec<Vec<MarkNumbers>> =
            (0..shares_of.len()).into_par_iter().map(fill).collect();
        let seen = thread_of
            .iter()
            .enumerate()
            .map(|(list, &thread)| std::mem::take(&mut filled[thread][list]))
            .collect();
        let kinds = Arc::new(kinds_of(seen, incidence, |list, distinct| {
            let mut kinds = match detail {
                Detail::All => kinds(list, distinct, shares),
                Detail::Screen(_) => Kinds {
                    lines: lines(list, distinct, shares),
                    ..Kinds::default()
                },
            };
            kinds.settle(design);
            kinds
        }));
        places
            .into_iter()
            .map(|places| Grouped {
                kinds: kinds.clone(),
                places: Some(places),
            })
            .collect()
    }

    /// Groups marks. `targets` gives the targets of a mark in an address space.
    pub fn by_mark<'a>(
        incidence: &Incidence,
        shares: Option<&Shares>,
        mut targets: impl FnMut(u32, &Mark) -> &'a [u32],
    ) -> Grouped {
        let mut seen: Vec<MarkNumbers> = Vec::new();
        let mut numbers = 0..;
        for (space, marks) in incidence.spaces().iter().enumerate() {
            for (mark, number) in marks.iter().zip(numbers.by_ref()) {
                for &target in targets(space as u32, mark) {
                    if seen.len() <= target as usize {
                        seen.resize(target as usize + 1, Vec::new());
                    }
                    seen[target as usize].push(number);
                }
            }
        }
        Grouped {
            kinds: Arc::new(kinds_of(seen, incidence, |list, distinct| {
                kinds(list, distinct, shares)
            })),
            places: None,
        }
    }

    /// Blocks of a target.
    pub fn of(&self, target: u32) -> Option<&Kinds> {
        let place = match &self.places {
            Some(places) => *places.get(target as usize)?,
            None => target,
        };
        self.kinds.get(place as usize)
    }
}

/// True if the order of marks is that of their numbers. Numbers are addresses with the address
/// space in the upper bits.
fn in_order(incidence: &Incidence) -> bool {
    incidence.spaces().len() <= 1 << 8
        && incidence
            .spaces()
            .iter()
            .flat_map(|marks| marks.last())
            .all(|m| m.address >> 56 == 0)
}

/// The lists of [`Blocks::addresses`] that contain a mark: that of all addresses, and that of its
/// class (if the class has no list, one that is never used).
#[inline(always)]
fn lists_of(mark: &Mark) -> [usize; 2] {
    [0, [3, 1, 2, 3][mark.group.class() as usize]]
}

/// Blocks with all samples that have seen them.
#[derive(Default)]
pub struct Blocks {
    /// The blocks.
    pub listed: Listed,
    samples: Vec<u32>,
    ends: Vec<usize>,
}

impl Blocks {
    /// Addresses of all loads, of Strided ones, of Irregular ones.
    pub fn addresses(incidence: &Incidence, shares: Option<&Shares>) -> [Blocks; 3] {
        if !in_order(incidence) {
            return [
                None,
                Some(AccessClass::Strided),
                Some(AccessClass::Irregular),
            ]
            .map(|class| {
                Blocks::new(incidence, shares, 0, |group| {
                    class.is_none_or(|c| group.class() == c)
                })
            });
        }
        // The exact capacity is allocated: growing lists would take twice the memory.
        let (mut rooms, mut last) = ([(0, 0); 4], [None; 4]);
        for mark in incidence.spaces().iter().flatten() {
            for list in lists_of(mark) {
                let before = last[list].replace((mark.address, mark.sample));
                rooms[list].0 += usize::from(before.is_none_or(|b| b.0 != mark.address));
                rooms[list].1 += usize::from(before != Some((mark.address, mark.sample)));
            }
        }
        // Room for one more per space: the last block of a space may equal the first of the next,
        // but counts separately.
        let spaces = incidence.spaces().len();
        let mut out =
            rooms.map(|(blocks, samples)| Blocks::with_room(blocks + spaces, samples + spaces));
        for (space, marks) in incidence.spaces().iter().enumerate() {
            for mark in marks {
                let number = number(space, mark.address, 0);
                lists_of(mark).into_iter().for_each(|list| {
                    out[list].append(
                        number,
                        mark.sample,
                        mark.group.class() == AccessClass::Irregular,
                        shares,
                    )
                });
            }
        }
        let [all, strided, irregular, _] = out;
        [all, strided, irregular]
    }

    /// Lines of 64 bytes, and pages.
    pub fn lines_and_pages(incidence: &Incidence, shares: Option<&Shares>) -> [Blocks; 2] {
        let lines = Blocks::new(incidence, shares, 6, |_| true);
        let pages = if in_order(incidence) {
            lines.coarser(Distinct::new(incidence), shares)
        } else {
            Blocks::new(incidence, shares, 12, |_| true)
        };
        [lines, pages]
    }

    fn with_room(blocks: usize, samples: usize) -> Blocks {
        Blocks {
            listed: Vec::with_capacity(blocks).into(),
            samples: Vec::with_capacity(samples),
            ends: Vec::with_capacity(blocks),
        }
    }

    /// Appends a sighting. They must be in the order of numbers and samples.
    #[inline(always)]
    fn append(&mut self, number: u64, sample: u32, irregular: bool, shares: Option<&Shares>) {
        match self.listed.blocks.last_mut().filter(|b| b.number == number) {
            Some(block) => {
                block.irregular |= irregular;
                if self.samples.last() == Some(&sample) {
                    return;
                }
                if block.samples == 1 {
                    block.first[1] = sample;
                }
                block.samples += 1;
                self.samples.push(sample);
                if let Some(end) = self.ends.last_mut() {
                    *end += 1;
                }
            }
            None => {
                self.listed.blocks.push(Block {
                    number,
                    samples: 1,
                    first: [sample, 0],
                    irregular,
                    stands: stands(sample, shares),
                });
                self.samples.push(sample);
                self.ends.push(self.samples.len());
            }
        }
    }

    /// The blocks, 64 times as large, that contain these.
    fn coarser(&self, mut distinct: Distinct, shares: Option<&Shares>) -> Blocks {
        let joined = |a: &Block, b: &Block| line_of(a.number) == line_of(b.number);
        let mut out = Blocks::with_room(
            self.listed.blocks.chunk_by(joined).count(),
            self.samples.len(),
        );
        let mut to = 0;
        for same in self.listed.blocks.chunk_by(joined) {
            let from = to;
            to += same.len();
            distinct.begin();
            let samples = &self.samples
                [from.checked_sub(1).map_or(0, |before| self.ends[before])..self.ends[to - 1]];
            out.samples.extend(
                samples
                    .iter()
                    .copied()
                    .filter(|&sample| distinct.is_new(sample)),
            );
            out.close(
                Some(Block {
                    number: line_of(same[0].number),
                    irregular: same.iter().any(|b| b.irregular),
                    ..same[0]
                }),
                shares,
            );
        }
        out
    }

    /// The blocks of the code groups that `wanted` selects.
    pub fn new(
        incidence: &Incidence,
        shares: Option<&Shares>,
        shift: u32,
        wanted: impl Fn(Group) -> bool + Sync,
    ) -> Blocks {
        let seen = |space: usize, m: &Mark| BlockSighting {
            number: number(space, m.address, shift),
            sample: m.sample,
            irregular: m.group.class() == AccessClass::Irregular,
        };
        let all = || {
            incidence
                .spaces()
                .iter()
                .enumerate()
                .flat_map(|(space, marks)| {
                    marks
                        .iter()
                        .filter(|m| wanted(m.group))
                        .map(move |m| seen(space, m))
                })
        };
        if in_order(incidence) {
            return Blocks::collect(all(), Distinct::new(incidence), shares);
        }
        let mut all: Vec<BlockSighting> = all().collect();
        all.par_sort_unstable();
        Blocks::collect(all.into_iter(), Distinct::new(incidence), shares)
    }

    /// From sightings in order of numbers.
    fn collect(
        all: impl Iterator<Item = BlockSighting> + Clone,
        mut distinct: Distinct,
        shares: Option<&Shares>,
    ) -> Blocks {
        let (mut blocks, mut sightings, mut last) = (0, 0, None);
        for one in all.clone() {
            sightings += 1;
            blocks += usize::from(last.replace(one.number) != Some(one.number));
        }
        let mut out = Blocks::with_room(blocks, sightings);
        let mut block: Option<Block> = None;
        for one in all {
            if block.is_none_or(|b| b.number != one.number) {
                out.close(block.take(), shares);
                distinct.begin();
            }
            let block = block.get_or_insert(Block {
                number: one.number,
                samples: 0,
                first: [0; 2],
                irregular: false,
                stands: EVEN_SHARE,
            });
            block.irregular |= one.irregular;
            if distinct.is_new(one.sample) {
                out.samples.push(one.sample);
            }
        }
        out.close(block, shares);
        out
    }

    /// Completes a block, of which all samples are known.
    fn close(&mut self, block: Option<Block>, shares: Option<&Shares>) {
        let Some(block) = block else { return };
        let samples = &mut self.samples[self.ends.last().copied().unwrap_or(0)..];
        if !samples.is_sorted() {
            samples.sort_unstable();
        }
        let first = [samples[0], samples.get(1).copied().unwrap_or(0)];
        self.listed.blocks.push(Block {
            samples: samples.len() as u32,
            first,
            stands: stands(first[0], shares),
            ..block
        });
        self.ends.push(self.samples.len());
    }

    /// Blocks that samples have seen, summed over samples; as [`Sightings`].
    pub fn sightings(&self, shares: Option<&Shares>) -> f64 {
        match shares {
            Some(shares) => self
                .samples
                .iter()
                .map(|&sample| shares.weight(sample))
                .sum(),
            None => self.samples.len() as f64,
        }
    }

    /// Number of blocks that each sample has seen.
    pub fn by_sample(&self) -> HashMap<u32, u32, Mixed> {
        let mut counts: HashMap<u32, u32, Mixed> = HashMap::default();
        self.samples
            .iter()
            .for_each(|&sample| *counts.entry(sample).or_default() += 1);
        counts
    }

    /// Samples of block `at`, ascending.
    pub fn samples(&self, at: usize) -> &[u32] {
        &self.samples[at.checked_sub(1).map_or(0, |before| self.ends[before])..self.ends[at]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::rows::ColumnSlices;
    use std::collections::{BTreeMap, BTreeSet};

    /// A block that counts like all others.
    fn block(number: u64, samples: u32, first: [u32; 2]) -> Block {
        Block {
            number,
            samples,
            first,
            irregular: false,
            stands: EVEN_SHARE,
        }
    }

    #[test]
    fn marks_are_grouped_by_target_and_block() {
        let mut incidence = Incidence::default();
        for (address, group, sample, space) in [
            (64u64, 5u32, 0u32, 0u32),
            (72, 5, 1, 0),
            (72, 9, 1, 0),
            (64, 5, 0, 0),
            (64, 5, 2, 1),
            (128, 9, 2, 0),
        ] {
            incidence.add(
                &ColumnSlices {
                    address: &[address],
                    size: &[8],
                    group: &[Group::from_raw(group)],
                    implied: &[0],
                },
                space,
                sample,
            );
        }
        let incidence = Incidence::fold(vec![incidence]);
        let rows: Vec<[u32; 2]> = (0..3).map(|row| [row, 3]).collect();
        // Each group counts in its own row and in a common one.
        let grouped = Grouped::by_mark(&incidence, None, |_, mark| {
            &rows[mark.group.piece() as usize]
        });
        let of = |row: u32| grouped.of(row).cloned().unwrap_or_default();
        assert_eq!(
            of(1).lines.blocks,
            [block(1, 2, [0, 1]), block(1 << 56 | 1, 1, [2, 0])]
        );
        assert_eq!(
            of(2).lines.blocks,
            [block(1, 1, [1, 0]), block(2, 1, [2, 0])]
        );
        assert!(of(0).lines.blocks.is_empty() && grouped.of(4).is_none());
        assert_eq!(
            of(3).all.blocks,
            [
                block(64, 1, [0, 0]),
                block(72, 1, [1, 0]),
                block(128, 1, [2, 0]),
                block(1 << 56 | 64, 1, [2, 0])
            ]
        );
        assert_eq!(of(3).strided().blocks, of(3).all.blocks);
        assert!(of(3).irregular().blocks.is_empty());
        let all = Blocks::new(&incidence, None, 6, |_| true);
        assert_eq!(all.listed.blocks.len(), 3);
        assert_eq!(
            (all.samples(0), all.samples(1), all.samples(2)),
            (&[0u32, 1][..], &[2u32][..], &[2u32][..])
        );
    }

    /// Lists built together in one pass over all marks equal those built separately.
    #[test]
    fn lists_that_are_made_together_are_those_that_are_made_one_by_one() {
        let mut state = 3u64;
        let mut random = |n: u64| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        for case in 0..40 {
            let mut incidence = Incidence::default();
            for _ in 0..random(400) {
                // Two spaces with the same addresses, and a few addresses that are too large for a
                // number.
                let address = (random(60) * [8, 64, 1000][case % 3])
                    | (u64::from(case % 7 == 0 && random(9) == 0) << 60);
                let (group, sample, space) =
                    (random(12) as u32, random(9) as u32, random(2) as u32);
                incidence.add(
                    &ColumnSlices {
                        address: &[address],
                        size: &[8],
                        group: &[Group::from_raw(group)],
                        implied: &[0],
                    },
                    space,
                    sample,
                );
            }
            let incidence = Incidence::fold(vec![incidence]);
            let [all, strided, irregular] = Blocks::addresses(&incidence, None);
            let [lines, pages] = Blocks::lines_and_pages(&incidence, None);
            for (found, shift, class) in [
                (all, 0, None),
                (strided, 0, Some(AccessClass::Strided)),
                (irregular, 0, Some(AccessClass::Irregular)),
                (lines, 6, None),
                (pages, 12, None),
            ] {
                let mut expected: BTreeMap<u64, (BTreeSet<u32>, bool)> = BTreeMap::new();
                for (space, marks) in incidence.spaces().iter().enumerate() {
                    for mark in marks
                        .iter()
                        .filter(|m| class.is_none_or(|c| m.group.class() == c))
                    {
                        let block = expected
                            .entry(number(space, mark.address, shift))
                            .or_default();
                        block.0.insert(mark.sample);
                        block.1 |= mark.group.class() == AccessClass::Irregular;
                    }
                }
                assert_eq!(found.listed.blocks.len(), expected.len());
                for (at, (number, (samples, irregular))) in expected.into_iter().enumerate() {
                    let samples: Vec<u32> = samples.into_iter().collect();
                    let first = [samples[0], samples.get(1).copied().unwrap_or(0)];
                    assert_eq!(
                        found.listed.blocks[at],
                        Block {
                            number,
                            samples: samples.len() as u32,
                            first,
                            irregular,
                            stands: EVEN_SHARE
                        }
                    );
                    assert_eq!(found.samples(at), samples);
                }
            }
            // Rows of three kinds, of which some have the same code.
            let kinds: [fn(Group) -> u32; 3] = [
                |group| group.piece(),
                |group| 2 - group.piece(),
                |group| group.raw() / 2,
            ];
            let tables = kinds.map(|row| {
                (0..12)
                    .map(|group| {
                        if group == 7 {
                            vec![]
                        } else {
                            vec![row(Group::from_raw(group)), 9]
                        }
                    })
                    .collect::<Vec<_>>()
            });
            let of_table = tables
                .each_ref()
                .map(|table| move |group: Group| table[group.index()].iter().copied());
            let design = Design::new(10.0, 9);
            let several = Grouped::several(&incidence, None, design, &of_table, Detail::All);
            let of_screen =
                Grouped::several(&incidence, None, design, &of_table, Detail::Screen(9));
            for (all, shown) in several.iter().zip(&of_screen) {
                for row in 0..11 {
                    let lines = |of: &Grouped| {
                        let kinds = of.of(row).cloned().unwrap_or_default();
                        kinds.lines.footprint(design, 1.0, 1)
                    };
                    assert_eq!(lines(all), lines(shown));
                }
            }
            assert!(several[0].kinds.len() <= 10);
            for (table, found) in tables.iter().zip(&several) {
                let alone =
                    Grouped::by_mark(&incidence, None, |_, mark| &table[mark.group.index()]);
                for row in 0..11 {
                    let (mut alone, found) = (
                        alone.of(row).cloned().unwrap_or_default(),
                        found.of(row).cloned().unwrap_or_default(),
                    );
                    alone.settle(design);
                    let of = |kinds: &Kinds| {
                        (
                            kinds.samples,
                            kinds.sightings,
                            [&kinds.all, kinds.strided(), kinds.irregular(), &kinds.lines]
                                .map(|l| l.footprint(design, 1.0, 1)),
                        )
                    };
                    assert_eq!(of(&found), of(&alone), "row {row}");
                }
            }
        }
    }

    /// Lists by class agree with their definition, also if they are not stored because all loads
    /// are of one class.
    #[test]
    fn addresses_are_listed_by_class() {
        let seen = |number: u64, sample: u32, classes: u32| Sighting {
            number,
            sample,
            classes,
        };
        let mixed = [
            seen(8, 0, STRIDED),
            seen(8, 0, IRREGULAR),
            seen(8, 1, STRIDED),
            seen(16, 3, 1),
            seen(24, 2, IRREGULAR),
        ];
        let (strided, irregular) = (
            [seen(8, 1, STRIDED), seen(24, 2, STRIDED)],
            [seen(8, 1, IRREGULAR), seen(8, 4, IRREGULAR)],
        );
        for list in [&mixed[..], &strided, &irregular, &[]] {
            let kinds = kinds(list, &mut Distinct::new(&Incidence::default()), None);
            for (class, found) in [(STRIDED, kinds.strided()), (IRREGULAR, kinds.irregular())] {
                let (mut expected, mut last) = (Vec::new(), 0);
                list.iter()
                    .filter(|s| s.classes == class)
                    .for_each(|s| append(&mut expected, &mut last, s, class == IRREGULAR, None));
                assert_eq!(found.blocks, expected, "class {class} of {list:?}");
            }
            assert_eq!(
                kinds
                    .all
                    .blocks
                    .iter()
                    .map(|b| b.irregular)
                    .collect::<Vec<_>>(),
                kinds
                    .all
                    .blocks
                    .iter()
                    .map(|b| list
                        .iter()
                        .any(|s| s.number == b.number && s.classes == IRREGULAR))
                    .collect::<Vec<_>>()
            );
        }
    }
}
