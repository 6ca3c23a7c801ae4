//! A partial result as stored in a file: plain tables, checked when they are read.
//!
//! The file holds [`PARTIAL_MAGIC`], then zstd of [`Stored`] in the
//! [postcard](https://postcard.jamesmunns.com/wire-format) format.

use super::Partial;
use crate::data::code_map::{CodeMap, FunctionName, LineName, LinePiece, LoopName};
use crate::data::group::Group;
use crate::data::histogram::Histogram;
use crate::data::log_histogram::LogHistogram;
use crate::data::reuse_counts::GroupReuse;
use crate::data::samples::{Beginning, NO_LOAD, SampleInfo};
use crate::engine::{BucketOutcome, Census, EngineOutcome};
use crate::input::weights::Weights;
use crate::stages::fetches::Fetched;
use crate::stages::footprint::packed_entry::Maps;
use crate::stages::footprint::{Entry, FootprintSet, GroupCount, Key};
use crate::stages::incidence::{Incidence, Mark};
use crate::stages::reuse::{REPLICATES, RepSums, ReuseTotals};
use crate::stages::windows::{Levels, WindowEngine};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Read, Write};
use std::sync::Arc;

/// The first bytes of a file of this version.
pub(super) const PARTIAL_MAGIC: &[u8; 8] = b"MGZPARTA";
/// Maximum unpacked bytes of a file; more is damage.
const MAX_BYTES: u64 = 1 << 34;
/// Maximum number of bins of a histogram of distances; [`Histogram`] has fewer.
const MAX_DISTANCE_BINS: usize = 1024;
/// Bound of the number of a bin of strides; [`crate::stages::observed_class`] has fewer.
const MAX_STRIDE_BINS: u32 = 2048;

/// The content of a file.
#[derive(Serialize, Deserialize)]
pub(super) struct Stored {
    /// JSON, because fields of the manifest may be absent.
    manifest: String,
    functions: Vec<FunctionName>,
    lines: Vec<LineName>,
    loops: Vec<LoopName>,
    pieces: Vec<LinePiece>,
    block: u64,
    warnings: Vec<String>,
    damage: Vec<String>,
    /// Process of each address space.
    spaces: Vec<u32>,
    footprint: Vec<(Key, Maps)>,
    counts: Vec<GroupCount>,
    reuse: StoredReuse,
    windows: [Vec<[u64; 8]>; 2],
    fetches: Vec<Fetched>,
    weights: Option<StoredWeights>,
    /// Line piece, bin, count.
    strides: Vec<(u32, u32, u64)>,
    /// Level of the marks.
    gathered: u32,
    /// By address space.
    marks: Vec<Vec<Mark>>,
    samples: Vec<SampleInfo>,
    census: Census,
}

#[derive(Serialize, Deserialize)]
struct StoredReuse {
    /// By group.
    groups: Vec<GroupReuse>,
    /// Group, and its sums.
    replicates: Vec<(Group, [RepSums; REPLICATES])>,
    samples: [u64; REPLICATES],
    /// Group, and counts by bin.
    distances: Vec<(Group, Vec<u64>)>,
    intervals: Vec<u64>,
    levels: Vec<[u64; 2]>,
}

/// One entry for each sample.
#[derive(Serialize, Deserialize)]
struct StoredWeights {
    by_sample: Vec<u64>,
    executed: Vec<Option<(f64, f64)>>,
    times: Vec<u64>,
    durations: Vec<u64>,
}

impl Stored {
    pub(super) fn of(partial: &Partial) -> std::io::Result<Stored> {
        let (code, found) = (&partial.code, &partial.outcome);
        let bucket = &found.buckets[0];
        let site_pieces = code.site_pieces();
        let strides = found
            .strides
            .iter()
            .filter_map(|&(site, bin, count)| Some((*site_pieces.get(site as usize)?, bin, count)));
        let footprint = bucket.footprint.entries().into_iter();
        Ok(Stored {
            manifest: serde_json::to_string(&partial.manifest)?,
            functions: code.functions.clone(),
            lines: code.lines.clone(),
            loops: code.loops.clone(),
            pieces: code.pieces.clone(),
            block: partial.block,
            warnings: partial.warnings.clone(),
            damage: found.damage.clone(),
            spaces: found.spaces.clone(),
            footprint: footprint.map(|e| (e.key(), *e.maps())).collect(),
            counts: bucket.counts.clone(),
            reuse: StoredReuse::of(&bucket.reuse),
            windows: found
                .windows
                .levels()
                .map(|levels| levels.totals().to_vec()),
            fetches: found.fetches.clone(),
            weights: found.weights.as_deref().map(StoredWeights::of),
            strides: strides.collect(),
            gathered: found.incidence.gathered(),
            marks: found.incidence.spaces().to_vec(),
            samples: found.samples.clone(),
            census: found.census.clone(),
        })
    }

    pub(super) fn write(&self, file: impl Write) -> std::io::Result<()> {
        let mut packed = zstd::Encoder::new(file, 1)?;
        postcard::to_io(self, &mut packed).map_err(std::io::Error::other)?;
        packed.finish()?.flush()
    }

    pub(super) fn read(file: impl BufRead) -> Result<Stored, String> {
        let mut bytes = Vec::new();
        zstd::Decoder::with_buffer(file)
            .and_then(|unpacked| unpacked.take(MAX_BYTES).read_to_end(&mut bytes))
            .map_err(|e| e.to_string())?;
        postcard::from_bytes(&bytes).map_err(|e| e.to_string())
    }

    /// Checks every index, so that all are in range for readers of the result.
    pub(super) fn check(&self) -> Result<(), String> {
        let code_is_named = self.pieces.iter().all(|p| {
            (p.function as usize) < self.functions.len()
                && (p.line as usize) < self.lines.len()
                && p.loops.iter().all(|&l| (l as usize) < self.loops.len())
        });
        let in_function = |l: &LoopName| (l.function as usize) < self.functions.len();
        if !code_is_named || !self.loops.iter().all(in_function) {
            return Err("a piece of code has no name".into());
        }
        let groups = Group::count(self.pieces.len());
        let is_group = |group: Group| group.index() < groups;
        let by_group = [
            self.counts.len(),
            self.reuse.groups.len(),
            self.fetches.len(),
        ];
        let begins_in_code = |b: &Beginning| {
            is_group(b.first.group) && (b.before.group == NO_LOAD || is_group(b.before.group))
        };
        let known = by_group.iter().all(|&length| length <= groups)
            && self.footprint.iter().all(|(key, _)| is_group(key.group))
            && self.reuse.replicates.iter().all(|(g, _)| is_group(*g))
            && self.reuse.distances.iter().all(|(g, _)| is_group(*g))
            && self.marks.iter().flatten().all(|m| is_group(m.group))
            && self
                .samples
                .iter()
                .flat_map(|s| &s.begin)
                .all(begins_in_code)
            && self
                .strides
                .iter()
                .all(|&(piece, ..)| (piece as usize) < self.pieces.len());
        if !known {
            return Err("it counts code that it does not name".into());
        }
        let spaces = self.spaces.len();
        if self.marks.len() > spaces
            || self
                .footprint
                .iter()
                .any(|(key, _)| key.space as usize >= spaces)
        {
            return Err("it has addresses of a process that it does not name".into());
        }
        let distances = self.reuse.distances.iter();
        if distances
            .clone()
            .any(|(_, bins)| bins.len() > MAX_DISTANCE_BINS)
            || self
                .strides
                .iter()
                .any(|&(_, bin, _)| bin >= MAX_STRIDE_BINS)
        {
            return Err("a histogram in it has too many bins".into());
        }
        let complete = |w: &StoredWeights| {
            let each = [w.executed.len(), w.times.len(), w.durations.len()];
            each.iter().all(|&len| len == w.by_sample.len())
        };
        if !self.weights.iter().all(complete) {
            return Err("the weights have the wrong length".into());
        }
        Ok(())
    }

    /// The result in memory. The tables must have been [checked](Stored::check).
    pub(super) fn into_partial(self) -> Result<Partial, String> {
        let manifest = serde_json::from_str(&self.manifest)
            .map_err(|e| format!("its manifest is no valid JSON ({e})"))?;
        let mut footprint = FootprintSet::default();
        for (key, maps) in self.footprint {
            footprint.add(Entry::new(key, maps));
        }
        let groups = Group::count(self.pieces.len());
        let mut marks = self.marks;
        marks.resize(self.spaces.len(), Vec::new());
        let outcome = EngineOutcome {
            parts: Vec::new(),
            buckets: vec![BucketOutcome {
                footprint,
                counts: self.counts,
                reuse: self.reuse.into_totals(groups),
            }],
            samples: self.samples,
            windows: WindowEngine::from_levels(&self.windows.map(Levels::from_totals)),
            strides: self.strides,
            fetches: self.fetches,
            // Partial results do not distinguish instructions.
            far_steps: Vec::new(),
            incidence: Incidence::from_parts(marks, self.gathered.min(255)),
            unfolded: Vec::new(),
            // Partial results predict no misses, so lines are not stored.
            lines: Default::default(),
            census: self.census,
            weights: self.weights.map(StoredWeights::into_weights),
            pairs: None,
            spaces: self.spaces,
            damage: self.damage,
            spilled: Some(0),
        };
        Ok(Partial {
            manifest,
            code: CodeMap::from_parts(self.functions, self.lines, self.loops, self.pieces),
            outcome,
            block: self.block,
            warnings: self.warnings,
        })
    }
}

impl StoredReuse {
    fn of(reuse: &ReuseTotals) -> StoredReuse {
        let replicates = reuse.replicates.iter().enumerate();
        let distances = reuse.distances.iter().map(Histogram::counts).enumerate();
        StoredReuse {
            groups: reuse.groups.clone(),
            replicates: replicates
                .filter_map(|(at, sums)| Some((Group::from_index(at), **sums.as_ref()?)))
                .collect(),
            samples: reuse.samples,
            distances: distances
                .filter(|(_, counts)| !counts.is_empty())
                .map(|(at, counts)| (Group::from_index(at), counts.to_vec()))
                .collect(),
            intervals: reuse.intervals.counts().to_vec(),
            levels: reuse.levels.totals().to_vec(),
        }
    }

    fn into_totals(self, groups: usize) -> ReuseTotals {
        let mut reuse = ReuseTotals::new(None);
        reuse.reserve(groups);
        reuse.groups[..self.groups.len()].copy_from_slice(&self.groups);
        for (group, sums) in self.replicates {
            reuse.replicates[group.index()] = Some(Box::new(sums));
        }
        for (group, counts) in self.distances {
            reuse.distances[group.index()] = Histogram::from_counts(counts);
        }
        reuse.samples = self.samples;
        reuse.intervals = LogHistogram::from_counts(&self.intervals);
        reuse.levels = Levels::from_totals(self.levels);
        reuse
    }
}

impl StoredWeights {
    fn of(weights: &Weights) -> StoredWeights {
        StoredWeights {
            by_sample: weights.by_sample().to_vec(),
            executed: weights.executed_by_sample().to_vec(),
            times: weights.times_by_sample().to_vec(),
            durations: weights.durations_by_sample().to_vec(),
        }
    }

    fn into_weights(self) -> Arc<Weights> {
        let is_finite = |e: &(f64, f64)| e.0.is_finite() && e.1.is_finite();
        let executed = self.executed.into_iter().map(|e| e.filter(is_finite));
        Arc::new(Weights::from_parts(
            self.by_sample,
            executed.collect(),
            self.times,
            self.durations,
        ))
    }
}
