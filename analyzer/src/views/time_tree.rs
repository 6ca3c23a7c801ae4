//! The execution interval tree.
//!
//! The root is the whole run. Its samples, in the order of their start times, are divided into at
//! most [`MAX_CHILDREN`] intervals with the same number of samples. The hot child with the worst
//! locality is divided again, down to one sample. Below that, the sample's accesses are divided
//! into sub-windows, and the last one lists its functions and loops. The first level is counted in
//! the pass over the whole run ([`First`]). Each other level costs a pass over the rows of the
//! divided node, which are an eighth of those of the level above.
//!
//! Nodes of several samples count footprints over the union of their samples (`F_hat` is the
//! estimate for the interval); D is that of their samples. In a sub-window everything, D included,
//! is counted only inside the sub-window, and is exact.
//!
//! A child is *hot* if it has at least half the loads of the average child. The path follows the
//! hot child with the greatest footprint growth ΔF, then the greatest mean D.

use crate::data::code_map::CodeMap;
use crate::data::counts::{AccessCounts, Metrics};
use crate::data::group::Group;
use crate::data::histogram::Histogram;
use crate::data::log_histogram::Bin;
use crate::data::samples::SampleInfo;
use crate::engine::{BucketOutcome, Collect, EngineOptions, EngineOutcome, analyse};
use crate::estimate::row_estimates::{Hats, RegionEstimator};
use crate::estimate::sample_shares::Shares;
use crate::estimate::time_shares::TimeShare;
use crate::estimate::{Design, Grouped, Kinds};
use crate::input::selection;
use crate::input::selection::{CachedSource, Chosen, Extent};
use crate::input::source::ChunkSource;
use crate::stages::footprint::GroupCount;
use crate::stages::incidence::Incidence;
use crate::stages::reuse::by_page::NO_COLUMN;
use crate::stages::strides::StrideShare;
use crate::util::fast_hash::Mixed;
use crate::views::context::{Basis, STRIDES};
use crate::views::sample_order::by_time;
use crate::views::{
    ByCode, FunctionPart, LoopPart, bucket_counts, heat_map, top_functions, top_loops, whole_counts,
};
use serde::Serialize;
use std::collections::HashMap;

/// Maximum number of children per node. Source: Chosen.
pub const MAX_CHILDREN: usize = 8;
/// Minimum number of loads of a sub-window. Source: Chosen.
const MIN_LOADS: u64 = 64;
/// Maximum number of functions, and of loops, listed per node of the path.
const FUNCTIONS: usize = 10;

/// Kind of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeKind {
    /// The whole run.
    #[default]
    Run,
    /// Several samples.
    Interval,
    /// One sample.
    Sample,
    /// Part of a sample.
    Window,
}

/// A node of the tree.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Node {
    /// Indices of the children on the path from the root, e.g. `0.3.2`; empty for the root.
    pub id: String,
    /// Kind of the node.
    pub kind: NodeKind,
    /// Number of samples (1 for sub-windows).
    pub samples: u64,
    /// Start of the first sample, `time_ns`; for sub-windows, the start of their sample.
    pub from_ns: u64,
    /// End of the last sample.
    pub to_ns: u64,
    /// Process, if all samples belong to one.
    pub process: Option<u32>,
    /// Thread, if all samples belong to one.
    pub thread: Option<u32>,
    /// Sample number, for samples and sub-windows.
    pub sample: Option<u32>,
    /// First load of a sub-window inside its sample.
    pub first_load: Option<u64>,
    /// Share of the time, if windows are triggered by time.
    #[serde(flatten)]
    pub time: TimeShare,
    /// Share of the run's recorded and implied loads, percent; unknown if windows are triggered by
    /// time.
    #[serde(rename = "A_pct")]
    pub share: Option<f64>,
    /// Metrics.
    #[serde(flatten)]
    pub metrics: Metrics,
    /// Histogram of D.
    #[serde(rename = "D_hist")]
    pub distances: Vec<Bin>,
    /// Estimates for the interval, for nodes of several samples.
    #[serde(flatten)]
    pub hats: Hats,
    /// The most frequent strides of its loads, estimated.
    #[serde(rename = "strides_hat")]
    pub strides: Vec<StrideShare>,
    /// True if F and D are exact for the node (inside one sample). False if F is counted over
    /// samples with gaps.
    pub exact: bool,
    /// True if the node has enough loads to be divided.
    pub hot: bool,
    /// True if the node is on the path to the worst interval.
    pub on_path: bool,
    /// Functions with the most loads; only for nodes on the path.
    pub functions: Vec<FunctionPart>,
    /// Loops with the most loads; only for nodes on the path.
    pub loops: Vec<LoopPart>,
    /// Parts, in time order; only for nodes on the path.
    pub children: Vec<Node>,
}

/// The tree.
#[derive(Clone, Debug, Serialize)]
pub struct TimeZoom {
    /// Maximum number of children per node.
    pub fanout: usize,
    /// Ids of the nodes on the path, from the root's child to the hottest interval with the worst
    /// locality.
    pub path: Vec<String>,
    /// The whole run.
    pub root: Node,
}

/// The requested path down the tree.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Look {
    /// Indices of children on the path down. After them the path continues to the worst children.
    pub node: Vec<usize>,
}

impl Look {
    /// Reads a node's id: `0.3.2`.
    pub fn path(id: &str) -> Result<Vec<usize>, String> {
        let number = |part: &str| part.parse::<usize>().ok().filter(|&n| n < MAX_CHILDREN);
        id.split('.')
            .map(number)
            .collect::<Option<Vec<usize>>>()
            .ok_or_else(|| format!("{id:?} is not the id of a node; ids look like 0.3.2"))
    }
}

/// Divides `n` items into at most [`MAX_CHILDREN`] ranges of nearly equal length.
fn cut(n: u64) -> Vec<std::ops::Range<u64>> {
    let parts = n.min(MAX_CHILDREN as u64);
    (0..parts)
        .map(|i| i * n / parts..(i + 1) * n / parts)
        .collect()
}

impl Extent {
    fn divide(&self, samples: &[SampleInfo]) -> Vec<Extent> {
        match self {
            Extent::Samples(list) if list.len() > 1 => cut(list.len() as u64)
                .into_iter()
                .map(|r| Extent::Samples(list[r.start as usize..r.end as usize].to_vec()))
                .collect(),
            Extent::Samples(list) => match list.first() {
                Some(&sample) => Extent::Loads(sample, 0..samples[sample].loads).divide(samples),
                None => Vec::new(),
            },
            Extent::Loads(sample, range) => {
                let length = range.end - range.start;
                if length < MIN_LOADS * 2 {
                    return Vec::new();
                }
                let parts = (length / MIN_LOADS).min(MAX_CHILDREN as u64);
                let at = |i: u64| {
                    range.start + (u128::from(length) * u128::from(i) / u128::from(parts)) as u64
                };
                (0..parts)
                    .map(|i| Extent::Loads(*sample, at(i)..at(i + 1)))
                    .collect()
            }
            Extent::Parts(_) => Vec::new(),
        }
    }
}

/// Flags the sample numbers of some samples.
fn numbers(samples: &[SampleInfo], list: &[usize]) -> Vec<bool> {
    let mut all = vec![
        false;
        list.iter()
            .map(|&s| samples[s].sample as usize + 1)
            .max()
            .unwrap_or(0)
    ];
    list.iter()
        .for_each(|&s| all[samples[s].sample as usize] = true);
    all
}

/// Addresses that the samples of each extent have seen.
fn seen(
    marks: &Incidence,
    shares: Option<&Shares>,
    samples: &[SampleInfo],
    extents: &[Extent],
) -> Grouped {
    let places: Vec<u32> = (0..extents.len() as u32).collect();
    let mut of_sample: HashMap<u32, usize, Mixed> = HashMap::default();
    for (place, extent) in extents.iter().enumerate() {
        // Parts of one sample are exact and need no estimates.
        if let Extent::Samples(list) = extent {
            of_sample.extend(list.iter().map(|&s| (samples[s].sample, place)));
        }
    }
    Grouped::by_mark(marks, shares, |_, mark| {
        of_sample
            .get(&mark.sample)
            .map_or(&[], |&place| std::slice::from_ref(&places[place]))
    })
}

/// Counts of a part of the run.
#[derive(Clone, Debug, Default)]
pub struct IntervalCounts {
    counts: AccessCounts,
    distances: Histogram,
    /// Counts by group of code.
    groups: Vec<GroupCount>,
}

impl IntervalCounts {
    fn new(bucket: &BucketOutcome, code: &CodeMap) -> IntervalCounts {
        IntervalCounts::of_whole(whole_counts(bucket, code), bucket)
    }

    /// Counts of a bucket, if they are known.
    pub fn of_whole(counts: AccessCounts, bucket: &BucketOutcome) -> IntervalCounts {
        IntervalCounts {
            counts,
            distances: bucket.reuse.all_distances(),
            groups: bucket.counts.clone(),
        }
    }

    /// Groups of loads, and their rows and implied loads.
    fn loads(&self) -> impl Iterator<Item = (Group, &GroupCount)> {
        let counts = self.groups.iter().enumerate();
        counts
            .map(|(at, count)| (Group::from_index(at), count))
            .filter(|(group, count)| !group.is_store() && count.rows > 0)
    }
}

/// Data that describes nodes.
struct Describer<'a> {
    samples: &'a [SampleInfo],
    basis: &'a Basis<'a>,
    /// Loads of the run, with implied ones.
    all: u64,
}

impl Describer<'_> {
    /// Estimates for a part of the run with these samples.
    fn hats(&self, list: &[usize], part: &IntervalCounts, seen: Option<&Kinds>) -> Hats {
        let basis = self.basis;
        // Resonance of the sampling period with the program also affects parts of the run.
        let marked = list
            .iter()
            .filter_map(|&s| self.samples.get(s))
            .map(|s| s.sample)
            .filter(|&s| basis.incidence.has(s));
        let windows = basis.shares.as_ref().map(|shares| shares.windows(marked));
        let design = basis.places.design.map(|d| Design {
            samples: list.len() as u64,
            windows,
            ..d
        });
        let executed = basis.executed(part.loads().map(|(group, c)| (group, c.rows + c.implied)));
        RegionEstimator {
            design,
            ..basis.places
        }
        .make(seen, basis.incidence.scale(), &part.counts, executed, None)
    }

    /// Describes an extent. `seen` has the blocks that its samples have seen.
    fn node(
        &self,
        id: String,
        extent: &Extent,
        part: &IntervalCounts,
        seen: Option<&Kinds>,
    ) -> Node {
        let Describer {
            samples,
            basis,
            all,
        } = *self;
        let counts = &part.counts;
        let list = &extent.samples()[..];
        let infos = || list.iter().filter_map(|&s| samples.get(s));
        let common = |of: fn(&SampleInfo) -> u32| {
            let mut values = infos().map(of);
            let first = values.next()?;
            values.all(|v| v == first).then_some(first)
        };
        let (kind, exact) = match extent {
            Extent::Loads(..) => (NodeKind::Window, true),
            Extent::Parts(_) => (NodeKind::Interval, false),
            Extent::Samples(list) if list.len() == 1 => (NodeKind::Sample, true),
            Extent::Samples(_) if id.is_empty() => (NodeKind::Run, false),
            Extent::Samples(_) => (NodeKind::Interval, false),
        };
        let hats = if exact {
            Hats::default()
        } else {
            self.hats(list, part, seen)
        };
        // A window's time belongs to the load that it counts for, so the time of a part of a window
        // is unknown.
        let time = basis.times.as_ref().map(|times| match extent {
            Extent::Samples(_) => {
                let inside = numbers(samples, list);
                let has = |sample| inside.get(sample as usize).copied().unwrap_or(false);
                times.of_spots(|sample, _| has(sample))
            }
            _ => TimeShare::default(),
        });
        let hats = match time {
            Some(time) if !exact => hats.marked_by(time),
            _ => hats,
        };
        Node {
            kind: if id.is_empty() { NodeKind::Run } else { kind },
            id,
            samples: list.len() as u64,
            from_ns: infos().map(|s| s.first_time).min().unwrap_or(0),
            to_ns: infos().map(|s| s.last_time).max().unwrap_or(0),
            process: common(|s| s.process),
            thread: if common(|s| s.process).is_some() {
                common(|s| s.thread)
            } else {
                None
            },
            sample: if list.len() == 1 {
                common(|s| s.sample)
            } else {
                None
            },
            first_load: if let Extent::Loads(_, range) = extent {
                Some(range.start)
            } else {
                None
            },
            time: time.unwrap_or_default(),
            share: (all > 0 && time.is_none())
                .then(|| (counts.accesses + counts.implied) as f64 * 100.0 / all as f64),
            metrics: counts.metrics().with_distances(&part.distances),
            distances: part.distances.coarse().bins(),
            hats,
            strides: basis
                .strides
                .of(part.loads().map(|(group, c)| (group, c.rows)), STRIDES),
            exact,
            hot: false,
            on_path: false,
            functions: Vec::new(),
            loops: Vec::new(),
            children: Vec::new(),
        }
    }
}

/// True for each hot child, and the child on the path: the hot one with the greatest ΔF, then the
/// greatest mean D.
fn worst(children: &[&AccessCounts]) -> (Vec<bool>, Option<usize>) {
    let loads = |c: &AccessCounts| c.accesses + c.implied;
    let all: u64 = children.iter().map(|&c| loads(c)).sum();
    let is_hot = |c: &AccessCounts| {
        loads(c) > 0 && u128::from(loads(c)) * 2 * children.len() as u128 >= u128::from(all)
    };
    let hot: Vec<bool> = children.iter().map(|&c| is_hot(c)).collect();
    let metrics: Vec<Metrics> = children.iter().map(|c| c.metrics()).collect();
    let key = |m: &Metrics| (m.growth.unwrap_or(0.0), m.badness().unwrap_or(0.0));
    let worst = (0..children.len()).filter(|&i| hot[i]).max_by(|&a, &b| {
        let (x, y) = (key(&metrics[a]), key(&metrics[b]));
        // The earliest of equal children.
        x.0.total_cmp(&y.0)
            .then(x.1.total_cmp(&y.1))
            .then(b.cmp(&a))
    });
    (hot, worst)
}

/// Counts of the children of a node.
struct Level {
    extents: Vec<Extent>,
    parts: Vec<IntervalCounts>,
    hot: Vec<bool>,
    /// The next child on the path, and its code.
    next: Option<(usize, ByCode)>,
}

impl Level {
    /// Builds the level from the buckets of the children. `way` is the requested child.
    fn new(
        extents: Vec<Extent>,
        buckets: &[BucketOutcome],
        code: &CodeMap,
        way: Option<usize>,
    ) -> Level {
        let parts: Vec<IntervalCounts> = (0..extents.len())
            .map(|k| {
                buckets
                    .get(k)
                    .map(|b| IntervalCounts::new(b, code))
                    .unwrap_or_default()
            })
            .collect();
        let (hot, worst) = worst(&parts.iter().map(|p| &p.counts).collect::<Vec<_>>());
        let next = way
            .map(|k| k.min(extents.len().saturating_sub(1)))
            .or(worst);
        let by_code = |k: usize| {
            buckets
                .get(k)
                .map(|b| bucket_counts(b, code).1)
                .unwrap_or_default()
        };
        Level {
            extents,
            parts,
            hot,
            next: next.map(|k| (k, by_code(k))),
        }
    }
}

/// The first level of the tree, which is counted in the pass over the whole run.
pub struct First {
    samples: Vec<SampleInfo>,
    root: Extent,
    extents: Vec<Extent>,
    columns: Vec<Extent>,
    way: Option<usize>,
}

impl First {
    /// Lists the samples of a trace and divides them.
    pub fn new(source: &dyn ChunkSource, look: &Look) -> First {
        let samples = selection::list(source);
        let order = by_time(&samples);
        let columns = heat_map::columns(&samples, &order);
        let root = Extent::Samples(order);
        let extents = root.divide(&samples);
        First {
            root,
            extents,
            columns,
            way: look.node.first().copied(),
            samples,
        }
    }

    /// The rows of the trace, with the bucket of their child of the root (the last bucket holds all
    /// others), and with their column of the heat map.
    pub(crate) fn rows<'a>(&self, source: &'a dyn ChunkSource) -> Chosen<'a> {
        let mut cuts: Vec<Vec<(std::ops::Range<u64>, u32, u32)>> =
            vec![Vec::new(); self.samples.len()];
        let mut buckets: Vec<Vec<(std::ops::Range<u64>, u32)>> =
            vec![Vec::new(); self.samples.len()];
        let rest = self.rest();
        let root = std::slice::from_ref(&self.root);
        let extents = if self.extents.is_empty() {
            root
        } else {
            &self.extents
        };
        for (bucket, extent) in extents.iter().enumerate() {
            extent.each(|sample, range| buckets[sample].push((range, bucket as u32)));
        }
        for (column, extent) in self.columns.iter().enumerate() {
            extent.each(|sample, range| cuts[sample].push((range, 0, column as u32)));
        }
        let mut parts: Vec<(Extent, u32, u32)> = Vec::new();
        for (sample, (cuts, mut buckets)) in cuts.iter().zip(buckets).enumerate() {
            let loads = self.samples[sample].loads;
            if buckets.is_empty() {
                buckets.push((0..u64::MAX, rest));
            }
            // The borders of both divisions. The last part is open-ended, for stores after the last
            // load.
            let clip = |range: &std::ops::Range<u64>| {
                if range.end >= loads {
                    range.start..u64::MAX
                } else {
                    range.clone()
                }
            };
            let mut ends: Vec<u64> = buckets
                .iter()
                .map(|b| clip(&b.0).end)
                .chain(cuts.iter().map(|c| clip(&c.0).end))
                .chain([u64::MAX])
                .collect();
            ends.sort_unstable();
            ends.dedup();
            let mut from = 0;
            for end in ends {
                let bucket = buckets
                    .iter()
                    .find(|b| clip(&b.0).contains(&from))
                    .map_or(rest, |b| b.1);
                let column = cuts
                    .iter()
                    .find(|c| clip(&c.0).contains(&from))
                    .map_or(NO_COLUMN, |c| c.2);
                parts.push((Extent::Loads(sample, from..end), bucket, column));
                from = end;
            }
        }
        Chosen::new(
            source,
            &self.samples,
            parts.iter().map(|(e, b, c)| (e, *b, *c)),
            true,
        )
    }

    /// The bucket of loads outside of all extents.
    fn rest(&self) -> u32 {
        self.extents.len().max(1) as u32
    }

    /// Takes the parts of the counts before they are united; `None` if the rows disagree with the
    /// list.
    pub fn take(self, outcome: &EngineOutcome, code: &CodeMap) -> Option<Taken> {
        // Samples in the list lack their begin.
        let bare = |s: &SampleInfo| SampleInfo {
            begin: None,
            ..s.clone()
        };
        if outcome.samples.len() != self.samples.len()
            || (outcome.samples.iter().zip(&self.samples)).any(|(a, b)| bare(a) != bare(b))
        {
            return None;
        }
        Some(Taken {
            level: Level::new(self.extents, &outcome.parts, code, self.way),
        })
    }
}

/// The counts of the first level.
pub struct Taken {
    level: Level,
}

/// Builds the tree. `samples` is the list of all samples, `whole` and `by_code` the counts of the
/// run, `first` the counts of the first level.
#[allow(clippy::too_many_arguments, reason = "the results of the pass before")]
pub fn zoom(
    source: &dyn ChunkSource,
    options: EngineOptions,
    code: &CodeMap,
    samples: &[SampleInfo],
    basis: &Basis<'_>,
    (whole, by_code): (&IntervalCounts, &ByCode),
    look: &Look,
    first: Option<Taken>,
) -> TimeZoom {
    let tree = Tree {
        describer: Describer {
            samples,
            basis,
            all: whole.counts.accesses + whole.counts.implied,
        },
        code,
        options: EngineOptions {
            zoom: None,
            windows: false,
            samples: false,
            incidence: Collect::Nothing,
            ..options
        },
        held: CachedSource::new(source),
    };
    let mut extent = Extent::Samples(by_time(samples));
    let mut root = tree.root(&extent, whole);
    tree.put_on_path(&mut root, whole, by_code);
    let mut level = first.map(|f| f.level);
    // Marks of the divided node. They suffice for its children.
    let mut narrowed: Option<Incidence> = None;
    let mut path = Vec::new();
    let mut at = &mut root;
    let mut way = look.node.iter().copied();
    loop {
        let asked = way.next();
        let level = level.take().unwrap_or_else(|| tree.level(&extent, asked));
        if level.extents.is_empty() {
            break;
        }
        let marks = narrowed.as_ref().unwrap_or(basis.incidence);
        at.children = tree.children(&at.id, &level, marks);
        let Some((next, by_code)) = level.next else {
            break;
        };
        at = &mut at.children[next];
        tree.put_on_path(at, &level.parts[next], &by_code);
        path.push(at.id.clone());
        extent = level.extents[next].clone();
        narrowed = Some(marks.of_samples(&numbers(samples, &extent.samples())));
    }
    TimeZoom {
        fanout: MAX_CHILDREN,
        path,
        root,
    }
}

/// Counts and describes nodes.
struct Tree<'a> {
    describer: Describer<'a>,
    code: &'a CodeMap,
    options: EngineOptions,
    held: CachedSource<'a>,
}

impl Tree<'_> {
    /// Describes the whole run.
    fn root(&self, extent: &Extent, whole: &IntervalCounts) -> Node {
        let Describer { samples, basis, .. } = self.describer;
        let extents = std::slice::from_ref(extent);
        let seen = seen(basis.incidence, basis.shares.as_ref(), samples, extents);
        let root = self
            .describer
            .node(String::new(), extent, whole, seen.of(0));
        Node {
            hot: self.describer.all > 0,
            ..root
        }
    }

    /// Divides an extent, and counts its children. `asked` is the requested child.
    fn level(&self, extent: &Extent, asked: Option<usize>) -> Level {
        let samples = self.describer.samples;
        let extents = extent.divide(samples);
        let buckets = if extents.is_empty() {
            Vec::new()
        } else {
            let numbered = extents.iter().enumerate().map(|(k, e)| (e, k as u32, 0));
            let chosen = Chosen::new(&self.held, samples, numbered, false);
            self.held.narrow(chosen.numbers());
            analyse(&chosen, self.options, &|_| ()).buckets
        };
        Level::new(extents, &buckets, self.code, asked)
    }

    /// Describes the children of a node. `marks` are those of its samples.
    fn children(&self, parent: &str, level: &Level, marks: &Incidence) -> Vec<Node> {
        let Describer { samples, basis, .. } = self.describer;
        let seen = seen(marks, basis.shares.as_ref(), samples, &level.extents);
        let describe = |(k, (extent, part)): (usize, (&Extent, &IntervalCounts))| {
            let id = if parent.is_empty() {
                k.to_string()
            } else {
                format!("{parent}.{k}")
            };
            Node {
                hot: level.hot[k],
                ..self.describer.node(id, extent, part, seen.of(k as u32))
            }
        };
        let children = level.extents.iter().zip(&level.parts);
        children.enumerate().map(describe).collect()
    }

    /// Puts a node on the path, and lists its code.
    fn put_on_path(&self, node: &mut Node, part: &IntervalCounts, by_code: &ByCode) {
        node.on_path = true;
        node.functions = top_functions(&part.counts, &by_code.functions, self.code, FUNCTIONS);
        node.loops = top_loops(&part.counts, &by_code.loops, self.code, FUNCTIONS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_cover_everything_once() {
        for n in 0..100 {
            let cuts = cut(n);
            assert_eq!(cuts.iter().map(|r| r.end - r.start).sum::<u64>(), n);
            assert!(cuts.windows(2).all(|w| w[0].end == w[1].start));
            assert!(cuts.iter().all(|r| !r.is_empty()));
        }
    }

    #[test]
    fn samples_are_divided_first_and_loads_afterwards() {
        let info = SampleInfo {
            process: 1,
            thread: 1,
            sample: 0,
            loads: 1000,
            begin: None,
            first_time: 0,
            last_time: 1,
            parts: vec![(0, 1000)],
        };
        let samples = vec![info; 20];
        let all = Extent::Samples((0..20).collect());
        let children = all.divide(&samples);
        assert_eq!(children.len(), 8);
        let Extent::Samples(list) = &children[7] else {
            panic!("not samples")
        };
        assert_eq!(list, &[17, 18, 19]);
        let one = Extent::Samples(vec![4]).divide(&samples);
        let Extent::Loads(4, range) = &one[1] else {
            panic!("not loads of sample 4")
        };
        assert_eq!(*range, 125..250);
        assert!(Extent::Loads(4, 0..127).divide(&samples).is_empty());
        assert_eq!(Extent::Loads(4, 0..128).divide(&samples).len(), 2);
    }
}
