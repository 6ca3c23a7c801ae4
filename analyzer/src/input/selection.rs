//! Selection of rows of a trace: samples, and parts of samples.

use crate::data::chunk::Chunk;
use crate::data::samples::{Beginning, SampleInfo};
use crate::input::source::ChunkSource;
use mgz_annotations_schema::lock::locked;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Mutex;

/// Part of the run: samples, or a range of loads of one sample.
#[derive(Clone, Debug)]
pub(crate) enum Extent {
    /// Whole samples.
    Samples(Vec<usize>),
    /// Loads of one sample.
    Loads(usize, Range<u64>),
    /// Parts of several samples.
    Parts(Vec<(usize, Range<u64>)>),
}

impl Extent {
    /// The samples of which it contains a part.
    pub(crate) fn samples(&self) -> Vec<usize> {
        match self {
            Extent::Samples(list) => list.clone(),
            Extent::Loads(sample, _) => vec![*sample],
            Extent::Parts(parts) => parts.iter().map(|p| p.0).collect(),
        }
    }

    /// Passes each sample with its part of the loads to `give`. A whole sample has an open end.
    pub(crate) fn each(&self, mut give: impl FnMut(usize, Range<u64>)) {
        match self {
            Extent::Samples(list) => list.iter().for_each(|&s| give(s, 0..u64::MAX)),
            Extent::Loads(sample, range) => give(*sample, range.clone()),
            Extent::Parts(parts) => parts
                .iter()
                .filter(|p| !p.1.is_empty())
                .for_each(|(s, r)| give(*s, r.clone())),
        }
    }
}

/// Wanted part of one sample: loads, their bucket and column.
#[derive(Clone, Default)]
struct Wanted {
    /// Loads of the whole sample.
    loads: u64,
    ranges: Vec<(Range<u64>, u32, u32)>,
}

/// The rows of some extents, each run with its bucket and column.
pub(crate) struct Chosen<'a> {
    source: &'a dyn ChunkSource,
    pieces: Vec<usize>,
    /// By piece: the sample of each of its runs, and the loads of that sample before it.
    runs: HashMap<usize, Vec<(usize, u64)>>,
    /// Wanted parts by sample.
    wanted: Vec<Wanted>,
}

impl<'a> Chosen<'a> {
    /// Selects the rows of `extents`, each with the bucket and the column of its rows. With `all`,
    /// all pieces are read, so that they keep their numbers.
    pub(crate) fn new<'e>(
        source: &'a dyn ChunkSource,
        samples: &[SampleInfo],
        extents: impl Iterator<Item = (&'e Extent, u32, u32)>,
        all: bool,
    ) -> Chosen<'a> {
        let mut wanted = vec![Wanted::default(); samples.len()];
        for (extent, bucket, column) in extents {
            extent.each(|sample, range| wanted[sample].ranges.push((range, bucket, column)));
        }
        let mut runs: HashMap<usize, Vec<(usize, u64)>> = HashMap::new();
        for (sample, wanted) in samples.iter().zip(&mut wanted) {
            wanted.loads = sample.loads;
            let mut first = 0;
            for &(piece, loads) in &sample.parts {
                // Stores at the borders of a piece may belong to a load of a range.
                if wanted
                    .ranges
                    .iter()
                    .any(|(range, ..)| range.start <= first + loads && range.end >= first)
                {
                    runs.entry(piece).or_default();
                }
                first += loads;
            }
        }
        for (number, sample) in samples.iter().enumerate() {
            let mut first = 0;
            for &(piece, loads) in &sample.parts {
                if let Some(runs) = runs.get_mut(&piece) {
                    runs.push((number, first));
                }
                first += loads;
            }
        }
        let mut pieces: Vec<usize> = if all {
            (0..source.pieces()).collect()
        } else {
            runs.keys().copied().collect()
        };
        pieces.sort_unstable();
        Chosen {
            source,
            pieces,
            runs,
            wanted,
        }
    }

    /// Numbers of the pieces that are read.
    pub(crate) fn numbers(&self) -> &[usize] {
        &self.pieces
    }

    /// Keeps the wanted rows of a piece.
    fn choose(&self, mut chunk: Chunk, number: usize) -> Chunk {
        let of = self.runs.get(&number).map_or(&[][..], Vec::as_slice);
        let mut runs = Vec::new();
        let begins = std::mem::take(&mut chunk.begins);
        for (at, (run, &(sample, first))) in std::mem::take(&mut chunk.runs)
            .into_iter()
            .zip(of)
            .enumerate()
        {
            let wanted = &self.wanted[sample];
            let length = run.loads.len() as u64;
            let before = chunk
                .loads_before
                .get(run.stores.clone())
                .unwrap_or_default();
            // Time per load, assuming even intervals.
            let step = run.last_time.saturating_sub(run.first_time) as f64
                / length.saturating_sub(1).max(1) as f64;
            for (range, bucket, column) in &wanted.ranges {
                // Loads of the sample → loads of the run.
                let from = range.start.saturating_sub(first).min(length);
                let to = range.end.saturating_sub(first).min(length).max(from);
                // A store belongs to the load that follows it, or to the last one of the sample.
                let store = |load: u64| {
                    let load = (run.loads.start as u64).saturating_add(load.saturating_sub(first));
                    run.stores.start + before.partition_point(|&b| u64::from(b) < load)
                };
                let first_store = if range.start <= first {
                    run.stores.start
                } else {
                    store(range.start)
                };
                let end_store = if range.end >= wanted.loads {
                    run.stores.end
                } else if range.end <= first {
                    run.stores.start
                } else {
                    store(range.end)
                };
                if from >= to && first_store >= end_store {
                    continue;
                }
                let mut part = run.clone();
                part.loads = run.loads.start + from as usize..run.loads.start + to as usize;
                part.stores = first_store..end_store.max(first_store);
                if from > 0 {
                    part.first_time = run.first_time + (from as f64 * step) as u64;
                }
                if to < length {
                    part.last_time = run.first_time + (to.saturating_sub(1) as f64 * step) as u64;
                }
                (part.bucket, part.column) = (*bucket, *column);
                if let Some(&begin) = begins.get(at) {
                    // The begin is known only for the first load of a run.
                    chunk.begins.push(if from == 0 {
                        begin
                    } else {
                        Some(Beginning::NONE)
                    });
                }
                runs.push(part);
            }
        }
        chunk.runs = runs;
        chunk
    }
}

impl ChunkSource for Chosen<'_> {
    fn pieces(&self) -> usize {
        self.pieces.len()
    }

    fn piece_rows(&self, piece: usize) -> u64 {
        self.pieces
            .get(piece)
            .map_or(0, |&p| self.source.piece_rows(p))
    }

    fn read(&self, pieces: &[usize]) -> Vec<Result<Chunk, (String, u64)>> {
        let numbers: Vec<usize> = pieces
            .iter()
            .filter_map(|&p| self.pieces.get(p))
            .copied()
            .collect();
        let chunks = self.source.read(&numbers);
        chunks
            .into_iter()
            .zip(numbers)
            .map(|(read, number)| read.map(|chunk| self.choose(chunk, number)))
            .collect()
    }
}

/// Source: Chosen.
const MAX_ROWS_IN_MEMORY: u64 = 4 << 20;

/// A source that caches the rows that it has read, as long as they are few. The zoom reads the last
/// pieces several times.
pub(crate) struct CachedSource<'a> {
    source: &'a dyn ChunkSource,
    chunks: Mutex<HashMap<usize, Chunk>>,
}

impl<'a> CachedSource<'a> {
    pub(crate) fn new(source: &'a dyn ChunkSource) -> CachedSource<'a> {
        CachedSource {
            source,
            chunks: Mutex::default(),
        }
    }

    /// Announces that only these pieces will be read: they are cached if they are few.
    pub(crate) fn narrow(&self, pieces: &[usize]) {
        let rows: u64 = pieces.iter().map(|&p| self.source.piece_rows(p)).sum();
        let mut chunks = locked(&self.chunks);
        if rows > MAX_ROWS_IN_MEMORY {
            chunks.clear();
            return;
        }
        chunks.retain(|number, _| pieces.contains(number));
        let missing: Vec<usize> = pieces
            .iter()
            .copied()
            .filter(|p| !chunks.contains_key(p))
            .collect();
        for (number, read) in missing.iter().zip(self.source.read(&missing)) {
            if let Ok(chunk) = read {
                chunks.insert(*number, chunk);
            }
        }
    }
}

impl ChunkSource for CachedSource<'_> {
    fn pieces(&self) -> usize {
        self.source.pieces()
    }

    fn piece_rows(&self, piece: usize) -> u64 {
        self.source.piece_rows(piece)
    }

    fn read(&self, pieces: &[usize]) -> Vec<Result<Chunk, (String, u64)>> {
        let chunks = locked(&self.chunks);
        let known: Option<Vec<Chunk>> = pieces.iter().map(|p| chunks.get(p).cloned()).collect();
        drop(chunks);
        match known {
            Some(known) => known.into_iter().map(Ok).collect(),
            None => self.source.read(pieces),
        }
    }
}

/// The samples of a trace in its order, as the engine lists them, read from small columns.
/// Unreadable pieces are gaps.
pub(crate) fn list(source: &dyn ChunkSource) -> Vec<SampleInfo> {
    let mut samples: Vec<SampleInfo> = Vec::new();
    let mut last: Option<crate::data::rows::Run> = None;
    let mut gap = false;
    let all: Vec<usize> = (0..source.pieces()).collect();
    for pieces in all.chunks(4 * rayon::current_num_threads()) {
        for (&piece, read) in pieces.iter().zip(source.runs(pieces)) {
            let Ok(chunk) = read else {
                gap = true;
                continue;
            };
            gap |= chunk.gap_before;
            for run in chunk.runs {
                let continues = !gap && last.as_ref().is_some_and(|l| l.same_sample(&run));
                SampleInfo::append(&mut samples, &run, None, piece, continues);
                gap = false;
                last = Some(run);
            }
        }
    }
    samples
}
