//! The execution interval tree.
//!
//! The root is the whole run. Its samples, in the order of their start times, are divided into at most
//! [`FANOUT`] intervals of equally many samples; the hottest child with the worst locality is divided
//! again, down to one sample; below that the sample's accesses are divided into sub-windows, and the last
//! one lists its functions. Each level costs one pass over the rows of the node that is divided, so the
//! whole tree costs little more than one pass over the trace.
//!
//! Nodes of several samples count footprints over the union of their samples (`F_hat` is the estimate
//! for the interval); D is that of their samples. In a sub-window everything, D included, is counted
//! inside the sub-window alone, and exact.
//!
//! A child is *hot* if it has at least half the loads of the average child; of the hot ones the path goes to
//! the one with the greatest footprint growth ΔF, then the greatest mean D.

use super::{FunctionPart, bucket_counts, heat, top_functions};
use crate::code::CodeMap;
use crate::engine::{Aids, Options, SampleInfo, Source, analyse, analyse_with};
use crate::estimate::{Blocks, Design, Estimate, footprint};
use crate::incidence::Incidence;
use crate::metrics::{Counts, Metrics};
use crate::mix::Mixed;
use crate::rows::Chunk;
use serde::Serialize;
use std::collections::{HashMap, HashSet};

/// Children per node, at most.
pub const FANOUT: usize = 8;
/// Sub-windows get no smaller than this, in loads.
const SMALLEST: u64 = 64;
/// Functions listed per node of the path.
const FUNCTIONS: usize = 10;

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The whole run.
    Run,
    /// Several samples.
    Interval,
    /// One sample.
    Sample,
    /// Part of a sample.
    Window,
}

/// A node of the tree.
#[derive(Clone, Debug, Serialize)]
pub struct Node {
    /// Numbers of the children on the way from the root, e.g. `0.3.2`; the root is empty.
    pub id: String,
    /// What it is.
    pub kind: Kind,
    /// Number of samples (1 for sub-windows).
    pub samples: u64,
    /// Start of the first sample, `time_ns`. For sub-windows: of their sample.
    pub from_ns: u64,
    /// End of the last sample.
    pub to_ns: u64,
    /// Process, if all samples are of one.
    pub process: Option<u32>,
    /// Thread, if all samples are of one.
    pub thread: Option<u32>,
    /// Sample number, for samples and sub-windows.
    pub sample: Option<u32>,
    /// First load of a sub-window inside its sample.
    pub first_load: Option<u64>,
    /// Share of the run's recorded and implied loads, percent.
    #[serde(rename = "A_pct")]
    pub share: Option<f64>,
    /// Metrics.
    #[serde(flatten)]
    pub metrics: Metrics,
    /// Estimate of the footprint of the interval, for nodes of several samples.
    #[serde(rename = "F_hat")]
    pub footprint_estimate: Option<f64>,
    /// Ends of its 95 % interval.
    #[serde(rename = "F_lo")]
    pub footprint_lo: Option<f64>,
    /// See `F_lo`.
    #[serde(rename = "F_hi")]
    pub footprint_hi: Option<f64>,
    /// Whether F and D are exact for the node (inside one sample) or F is counted over samples with gaps.
    pub exact: bool,
    /// Whether it has enough loads to be zoomed into.
    pub hot: bool,
    /// Whether the path to the worst interval goes through it.
    pub on_path: bool,
    /// Functions with the most loads: for nodes on the path.
    pub functions: Vec<FunctionPart>,
    /// Parts, in time order: for nodes on the path.
    pub children: Vec<Node>,
}

/// The tree.
#[derive(Clone, Debug, Serialize)]
pub struct TimeZoom {
    /// Children per node, at most.
    pub fanout: usize,
    /// Ids of the nodes on the path, from the root's child to the hottest interval with the worst locality.
    pub path: Vec<String>,
    /// The whole run.
    pub root: Node,
}

/// Part of the run that a node stands for: samples, or a range of loads of one sample.
#[derive(Clone, Debug)]
pub(super) enum Extent {
    Samples(Vec<usize>),
    Loads(usize, std::ops::Range<u64>),
    /// Parts of several samples.
    Parts(Vec<(usize, std::ops::Range<u64>)>),
}

/// Which part of the run to look at, and which way down.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Look {
    /// Only samples that end after this time, nanoseconds after the first sample's start.
    pub from_ns: Option<u64>,
    /// Only samples that start before this time.
    pub to_ns: Option<u64>,
    /// Numbers of children on the way down; behind them the way goes to the worst.
    pub node: Vec<usize>,
}

impl Look {
    /// Reads a node's id: `0.3.2`.
    pub fn path(id: &str) -> Result<Vec<usize>, String> {
        let number = |part: &str| part.parse::<usize>().ok().filter(|&n| n < FANOUT);
        id.split('.').map(number).collect::<Option<Vec<usize>>>().ok_or_else(|| format!("{id:?} is not the id of a node; ids look like 0.3.2"))
    }
}

/// Samples with loads in the range to look at, by start time.
pub(super) fn by_time(samples: &[SampleInfo], look: &Look) -> Vec<usize> {
    let begin = samples.iter().filter(|s| s.loads > 0).map(|s| s.first_time).min().unwrap_or(0);
    let inside = |s: &SampleInfo| {
        look.from_ns.is_none_or(|from| s.last_time - begin.min(s.last_time) >= from) && look.to_ns.is_none_or(|to| s.first_time - begin.min(s.first_time) <= to)
    };
    let mut order: Vec<usize> = (0..samples.len()).filter(|&s| samples[s].loads > 0 && inside(&samples[s])).collect();
    order.sort_by_key(|&s| (samples[s].first_time, s));
    order
}

/// Cuts `n` things into at most [`FANOUT`] runs of nearly equal length.
fn cut(n: u64) -> Vec<std::ops::Range<u64>> {
    let parts = n.min(FANOUT as u64);
    (0..parts).map(|i| i * n / parts..(i + 1) * n / parts).collect()
}

impl Extent {
    /// The samples that it has something of.
    pub(super) fn samples(&self) -> Vec<usize> {
        match self {
            Extent::Samples(list) => list.clone(),
            Extent::Loads(sample, _) => vec![*sample],
            Extent::Parts(parts) => parts.iter().map(|p| p.0).collect(),
        }
    }

    fn divide(&self, samples: &[SampleInfo]) -> Vec<Extent> {
        match self {
            Extent::Samples(list) if list.len() > 1 => {
                cut(list.len() as u64).into_iter().map(|r| Extent::Samples(list[r.start as usize..r.end as usize].to_vec())).collect()
            }
            Extent::Samples(list) => match list.first() {
                Some(&sample) => Extent::Loads(sample, 0..samples[sample].loads).divide(samples),
                None => Vec::new(),
            },
            Extent::Loads(sample, range) => {
                let length = range.end - range.start;
                if length < SMALLEST * 2 {
                    return Vec::new();
                }
                let parts = (length / SMALLEST).min(FANOUT as u64);
                let at = |i: u64| range.start + (u128::from(length) * u128::from(i) / u128::from(parts)) as u64;
                (0..parts).map(|i| Extent::Loads(*sample, at(i)..at(i + 1))).collect()
            }
            Extent::Parts(_) => Vec::new(),
        }
    }
}

/// The rows of some extents: those of extent k are in bucket k.
pub(super) struct Chosen<'a> {
    source: &'a dyn Source,
    pieces: Vec<usize>,
    /// By sample identity: its buckets and columns, as (loads of the sample, bucket, column), ascending.
    wanted: HashMap<(u32, u32, u32), Wanted>,
}

/// What is wanted of one sample.
struct Wanted {
    /// Loads of the sample that lie before each of its pieces.
    before: HashMap<usize, u64>,
    /// Loads of the whole sample.
    loads: u64,
    ranges: Vec<(std::ops::Range<u64>, u32, u32)>,
}

impl<'a> Chosen<'a> {
    /// `extents`, each with the bucket and the column that its rows go to.
    pub(super) fn new<'e>(source: &'a dyn Source, samples: &[SampleInfo], extents: impl Iterator<Item = (&'e Extent, u32, u32)>) -> Chosen<'a> {
        let mut pieces = Vec::new();
        let mut wanted: HashMap<(u32, u32, u32), Wanted> = HashMap::new();
        let mut want = |number: usize, range: std::ops::Range<u64>, bucket: u32, column: u32| {
            let sample = &samples[number];
            let mut first = 0;
            for &(piece, loads) in &sample.parts {
                // At the borders there may be stores that belong to a load of the range.
                if range.start <= first + loads && range.end >= first {
                    pieces.push(piece);
                }
                first += loads;
            }
            let entry = wanted.entry((sample.process, sample.thread, sample.sample)).or_insert_with(|| {
                let mut sum = 0;
                let mut before = HashMap::new();
                for &(piece, loads) in &sample.parts {
                    // A sample that is interrupted inside one piece counts from its first rows there.
                    before.entry(piece).or_insert(sum);
                    sum += loads;
                }
                Wanted { before, loads: sum, ranges: Vec::new() }
            });
            entry.ranges.push((range, bucket, column));
        };
        for (extent, bucket, column) in extents {
            match extent {
                Extent::Samples(list) => list.iter().for_each(|&s| want(s, 0..u64::MAX, bucket, column)),
                Extent::Loads(sample, range) => want(*sample, range.clone(), bucket, column),
                Extent::Parts(parts) => parts.iter().filter(|p| !p.1.is_empty()).for_each(|(s, r)| want(*s, r.clone(), bucket, column)),
            }
        }
        pieces.sort_unstable();
        pieces.dedup();
        Chosen { source, pieces, wanted }
    }
}

impl Source for Chosen<'_> {
    fn pieces(&self) -> usize {
        self.pieces.len()
    }

    fn piece_rows(&self, piece: usize) -> u64 {
        self.pieces.get(piece).map_or(0, |&p| self.source.piece_rows(p))
    }

    fn read(&self, pieces: &[usize]) -> Vec<Result<Chunk, (String, u64)>> {
        let numbers: Vec<usize> = pieces.iter().filter_map(|&p| self.pieces.get(p)).copied().collect();
        let chunks = self.source.read(&numbers);
        chunks.into_iter().zip(numbers).map(|(read, number)| read.map(|chunk| self.choose(chunk, number))).collect()
    }
}

impl Chosen<'_> {
    /// Keeps the wanted rows of a piece.
    fn choose(&self, mut chunk: Chunk, number: usize) -> Chunk {
        let mut runs = Vec::new();
        for run in std::mem::take(&mut chunk.runs) {
            let Some(wanted) = self.wanted.get(&(run.process, run.thread, run.sample)) else { continue };
            let first = wanted.before.get(&number).copied().unwrap_or(0);
            let length = run.loads.len() as u64;
            let before = chunk.loads_before.get(run.stores.clone()).unwrap_or_default();
            for (range, bucket, column) in &wanted.ranges {
                // Loads of the sample → loads of the run.
                let from = range.start.saturating_sub(first).min(length);
                let to = range.end.saturating_sub(first).min(length);
                // A store belongs to the load that follows it, or to the last one of the sample.
                let store = |load: u64| {
                    let load = (run.loads.start as u64).saturating_add(load.saturating_sub(first));
                    run.stores.start + before.partition_point(|&b| u64::from(b) < load)
                };
                let first_store = if range.start <= first { run.stores.start } else { store(range.start) };
                let end_store = if range.end >= wanted.loads { run.stores.end } else if range.end <= first { run.stores.start } else { store(range.end) };
                if from >= to && first_store >= end_store {
                    continue;
                }
                let mut part = run.clone();
                part.loads = run.loads.start + from as usize..run.loads.start + to.max(from) as usize;
                part.stores = first_store..end_store.max(first_store);
                (part.bucket, part.column) = (*bucket, *column);
                runs.push(part);
            }
        }
        chunk.runs = runs;
        chunk
    }
}

/// The footprint of the interval that samples stand for.
fn estimated(marks: &Incidence, samples: &[SampleInfo], list: &[usize], counts: &Counts, rho: f64) -> Estimate {
    let chosen: HashSet<u32, Mixed> = list.iter().map(|&s| samples[s].sample).collect();
    let blocks = Blocks::chosen(marks, 0, |m| chosen.contains(&m.sample));
    footprint(&blocks.blocks, Design::new(rho, list.len() as u64), marks.scale(), counts.footprint)
}

/// Describes an extent.
fn node(id: String, extent: &Extent, samples: &[SampleInfo], counts: &Counts, all: u64, rho: Option<f64>, marks: &Incidence) -> Node {
    let list = &extent.samples()[..];
    let infos = || list.iter().filter_map(|&s| samples.get(s));
    let common = |of: fn(&SampleInfo) -> u32| {
        let mut values = infos().map(of);
        let first = values.next()?;
        values.all(|v| v == first).then_some(first)
    };
    let (kind, exact) = match extent {
        Extent::Loads(..) => (Kind::Window, true),
        Extent::Parts(_) => (Kind::Interval, false),
        Extent::Samples(list) if list.len() == 1 => (Kind::Sample, true),
        Extent::Samples(_) if id.is_empty() => (Kind::Run, false),
        Extent::Samples(_) => (Kind::Interval, false),
    };
    // Without marks (a complete trace) everything has been seen.
    let known = !marks.spaces().iter().all(Vec::is_empty);
    let hat = rho.filter(|_| !exact).map(|rho| if known { estimated(marks, samples, list, counts, rho) } else { Estimate::exact(counts.footprint as f64 * rho) });
    Node {
        kind: if id.is_empty() { Kind::Run } else { kind },
        id,
        samples: list.len() as u64,
        from_ns: infos().map(|s| s.first_time).min().unwrap_or(0),
        to_ns: infos().map(|s| s.last_time).max().unwrap_or(0),
        process: common(|s| s.process),
        thread: if common(|s| s.process).is_some() { common(|s| s.thread) } else { None },
        sample: if list.len() == 1 { common(|s| s.sample) } else { None },
        first_load: if let Extent::Loads(_, range) = extent { Some(range.start) } else { None },
        share: (all > 0).then(|| (counts.accesses + counts.implied) as f64 * 100.0 / all as f64),
        metrics: counts.metrics(),
        footprint_estimate: hat.map(|e| e.value),
        footprint_lo: hat.map(|e| e.lo),
        footprint_hi: hat.map(|e| e.hi),
        exact,
        hot: false,
        on_path: false,
        functions: Vec::new(),
        children: Vec::new(),
    }
}

/// The child that the path goes to: hot, with the greatest ΔF, then the greatest mean D.
fn worst(children: &mut [Node]) -> Option<usize> {
    let loads = |n: &Node| n.metrics.accesses + n.metrics.implied;
    let all: u64 = children.iter().map(loads).sum();
    let count = children.len() as u64;
    for child in children.iter_mut() {
        child.hot = loads(child) > 0 && u128::from(loads(child)) * 2 * u128::from(count) >= u128::from(all);
    }
    let key = |n: &Node| (n.metrics.growth.unwrap_or(0.0), n.metrics.distance_mean.unwrap_or(0.0));
    (0..children.len()).filter(|&i| children[i].hot).max_by(|&a, &b| {
        let (x, y) = (key(&children[a]), key(&children[b]));
        // The earliest of equals.
        x.0.total_cmp(&y.0).then(x.1.total_cmp(&y.1)).then(b.cmp(&a))
    })
}

/// Whether each of the extents is so many columns of a heat map.
fn aligned(extents: &[Extent], columns: &[Extent]) -> bool {
    let per = columns.len() / extents.len().max(1);
    per > 0
        && columns.len() == per * extents.len()
        && extents.iter().zip(columns.chunks(per)).all(|(extent, columns)| match extent {
            Extent::Samples(list) => list.iter().copied().eq(columns.iter().flat_map(Extent::samples)),
            Extent::Loads(sample, range) => {
                let part = |e: &Extent| if let Extent::Parts(parts) = e { parts.first().filter(|p| parts.len() == 1 && p.0 == *sample).map(|p| p.1.clone()) } else { None };
                let parts: Option<Vec<std::ops::Range<u64>>> = columns.iter().map(part).collect();
                parts.is_some_and(|p| p[0].start == range.start && p[per - 1].end == range.end)
            }
            Extent::Parts(_) => false,
        })
}

/// Builds the tree, and the heat map by the same pass where that can be. `samples` is the list of all samples, `whole` and `functions` the counts of the run.
#[allow(clippy::too_many_arguments, reason = "what the pass before has found, and two plans")]
pub fn zoom(
    source: &dyn Source,
    options: Options,
    code: &CodeMap,
    (samples, marks): (&[SampleInfo], &Incidence),
    (whole, functions): (&Counts, &[Counts]),
    rho: Option<f64>,
    look: &Look,
    mut heat: Option<heat::Plan>,
) -> (TimeZoom, Option<heat::HeatMap>) {
    let mut map = None;
    let all = whole.accesses + whole.implied;
    let mut extent = Extent::Samples(by_time(samples, look));
    let options = Options { blocks: false, windows: false, samples: false, incidence: false, ..options };
    // A part of the run has its own counts.
    let part = (look.from_ns.is_some() || look.to_ns.is_some()).then(|| {
        let chosen = Chosen::new(source, samples, std::iter::once((&extent, 0, 0)));
        analyse(&chosen, options, &|_| ()).buckets.first().map(|b| bucket_counts(b, code)).unwrap_or_default()
    });
    let (whole, functions) = part.as_ref().map_or((whole, functions), |p| (&p.0, &p.1[..]));
    let mut root = node(String::new(), &extent, samples, whole, all, rho, marks);
    root.hot = all > 0;
    root.on_path = true;
    root.functions = top_functions(whole, functions, code, FUNCTIONS);
    let mut path = Vec::new();
    let mut at = &mut root;
    let mut way = look.node.iter();
    loop {
        let extents = extent.divide(samples);
        if extents.is_empty() {
            break;
        }
        let outcome = match heat.take() {
            Some(plan) if aligned(&extents, plan.extents()) => {
                let per = plan.extents().len() / extents.len();
                let parts = plan.extents().iter().enumerate().map(|(c, e)| (e, (c / per) as u32, c as u32));
                let outcome = analyse_with(&Chosen::new(source, samples, parts), options, plan.aids(), &|_| ());
                map = Some(plan.fill(&outcome));
                outcome
            }
            plan => {
                map = map.or_else(|| plan.map(|p| p.count(source, options, samples)));
                analyse_with(&Chosen::new(source, samples, extents.iter().enumerate().map(|(k, e)| (e, k as u32, 0))), options, Aids::default(), &|_| ())
            }
        };
        let counted: Vec<(Counts, Vec<Counts>)> = extents
            .iter()
            .enumerate()
            .map(|(k, _)| outcome.buckets.get(k).map(|b| bucket_counts(b, code)).unwrap_or_default())
            .collect();
        let id = |k: usize| if at.id.is_empty() { k.to_string() } else { format!("{}.{k}", at.id) };
        let mut children: Vec<Node> =
            extents.iter().zip(&counted).enumerate().map(|(k, (e, c))| node(id(k), e, samples, &c.0, all, rho, marks)).collect();
        let worst = worst(&mut children);
        let chosen = way.next().copied().map(|k| k.min(children.len() - 1)).or(worst);
        at.children = children;
        let Some(next) = chosen else { break };
        at = &mut at.children[next];
        at.on_path = true;
        at.functions = top_functions(&counted[next].0, &counted[next].1, code, FUNCTIONS);
        path.push(at.id.clone());
        extent = extents[next].clone();
    }
    // Too little to divide, but for columns.
    let map = map.or_else(|| heat.map(|p| p.count(source, options, samples)));
    (TimeZoom { fanout: FANOUT, path, root }, map)
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
        let info = SampleInfo { process: 1, thread: 1, sample: 0, loads: 1000, first_time: 0, last_time: 1, parts: vec![(0, 1000)] };
        let samples = vec![info; 20];
        let all = Extent::Samples((0..20).collect());
        let children = all.divide(&samples);
        assert_eq!(children.len(), 8);
        let Extent::Samples(list) = &children[7] else { panic!("not samples") };
        assert_eq!(list, &[17, 18, 19]);
        let one = Extent::Samples(vec![4]).divide(&samples);
        let Extent::Loads(4, range) = &one[1] else { panic!("not loads of sample 4") };
        assert_eq!(*range, 125..250);
        assert!(Extent::Loads(4, 0..127).divide(&samples).is_empty());
        assert_eq!(Extent::Loads(4, 0..128).divide(&samples).len(), 2);
    }
}
