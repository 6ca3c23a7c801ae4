//! Rows from `spill/*.spill`: what the recorder wrote while the program ran, expanded while they
//! are read.
//!
//! Windows are independent of each other: a piece is a group of them. A `full` file is one stream,
//! in which a pass through a region may span segments. Its pieces have to be expanded in order, and
//! the expander is kept between calls. If a piece does not follow the last one, the file is
//! expanded from its start.

use crate::data::chunk::Chunk;
use crate::data::code_map::CodeMap;
use crate::input::parquet::Decoded;
use crate::input::source::ChunkSource;
use mgz_annotations_schema::expand::{Counters, Expander, ModuleMap, Placement, RowBatch, Tables};
use mgz_annotations_schema::lock::locked;
use mgz_annotations_schema::manifest::Manifest;
use mgz_annotations_schema::sidecar::{Sidecar, SidecarError};
use mgz_annotations_schema::spill;
use mgz_annotations_schema::spill::{SegmentKind, SpillFile, ThreadKey};
use rayon::prelude::*;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Slots per piece.
const PIECE_SLOTS: u64 = 1 << 19;

/// An opened spill file.
struct Opened {
    key: ThreadKey,
    path: PathBuf,
    file: SpillFile,
    /// Number of the first sample.
    first_sample: u32,
    /// True if all segments are windows.
    windows: bool,
}

/// Some segments of a file.
#[derive(Clone, Debug)]
struct SegmentRange {
    file: usize,
    segments: std::ops::Range<usize>,
    slots: u64,
    /// Number of its first sample.
    sample: u32,
}

/// The spill folder of a trace.
pub(crate) struct Spill {
    tables: Tables,
    modules: ModuleMap,
    files: Vec<Opened>,
    pieces: Vec<SegmentRange>,
}

impl Spill {
    /// Opens all files. Those that cannot be read are named in `damage`.
    pub(crate) fn open(
        folder: &Path,
        manifest: &Manifest,
        sidecars: &BTreeMap<String, Sidecar>,
        damage: &mut Vec<String>,
    ) -> Result<Spill, SidecarError> {
        let tables = Tables::new(sidecars.values())?;
        let numbers: HashMap<&str, usize> = sidecars
            .keys()
            .enumerate()
            .map(|(i, id)| (id.as_str(), i))
            .collect();
        let modules = ModuleMap::new(&manifest.modules, |module| {
            numbers.get(module.sidecar_id.as_str()).copied()
        });
        let mut opened = Spill {
            tables,
            modules,
            files: Vec::new(),
            pieces: Vec::new(),
        };
        let mut sample = 0u32;
        for (key, path) in spill::list(folder)? {
            match SpillFile::open(&path) {
                Err(error) => {
                    damage.push(format!("{}: {error}; the file is skipped", path.display()))
                }
                Ok(file) if file.key() != key && !file.segments().is_empty() => {
                    damage.push(format!(
                        "{}: it belongs to another thread than its name says; the file is skipped",
                        path.display()
                    ));
                }
                Ok(file) => {
                    if file.truncated() {
                        damage.push(format!("{}: it ends inside a segment (the recorder was killed, or the disk was full); what precedes is analysed", path.display()));
                    }
                    if let Some(offset) = file.bad_tail() {
                        damage.push(format!(
                            "{}: damaged at offset {offset}; what follows is skipped",
                            path.display()
                        ));
                    }
                    sample = opened.add(key, path, file, sample);
                }
            }
        }
        Ok(opened)
    }

    /// Cuts a file into pieces; returns the number of the next file's first sample.
    fn add(&mut self, key: ThreadKey, path: PathBuf, file: SpillFile, first_sample: u32) -> u32 {
        let number = self.files.len();
        let windows = file
            .segments()
            .iter()
            .all(|s| s.header.kind == SegmentKind::Window);
        let mut sample = first_sample;
        let mut follows = None;
        let mut piece = SegmentRange {
            file: number,
            segments: 0..0,
            slots: 0,
            sample,
        };
        for (i, segment) in file.segments().iter().enumerate() {
            let header = &segment.header;
            if piece.slots >= PIECE_SLOTS {
                self.pieces.push(std::mem::replace(
                    &mut piece,
                    SegmentRange {
                        file: number,
                        segments: i..i,
                        slots: 0,
                        sample,
                    },
                ));
            }
            if header.kind == SegmentKind::Window || follows != Some(header.first_slot) {
                sample = sample.wrapping_add(1);
            }
            follows = (header.kind == SegmentKind::Full)
                .then(|| header.first_slot.wrapping_add(header.written()));
            piece.segments.end = i + 1;
            piece.slots += u64::from(header.slots);
        }
        if !piece.segments.is_empty() {
            self.pieces.push(piece);
        }
        self.files.push(Opened {
            key,
            path,
            file,
            first_sample,
            windows,
        });
        sample
    }
}

/// A `full` file that is being expanded.
struct Stream<'a> {
    expander: Expander<'a>,
    placements: Vec<Placement>,
    /// Index into [`Spill::pieces`] of the next piece.
    next: usize,
    sample: u32,
}

/// Reads the pieces of a spill folder.
pub(crate) struct SpillSource<'a> {
    spill: &'a Spill,
    code: &'a CodeMap,
    streams: Mutex<HashMap<usize, Stream<'a>>>,
    /// Counts of the expansion: by file for streams, by piece for windows, so that repeated reading
    /// counts once.
    met: Mutex<HashMap<(bool, usize), Counters>>,
}

impl<'a> SpillSource<'a> {
    pub(crate) fn new(spill: &'a Spill, code: &'a CodeMap) -> SpillSource<'a> {
        SpillSource {
            spill,
            code,
            streams: Mutex::default(),
            met: Mutex::default(),
        }
    }

    fn note(&self, key: (bool, usize), counters: &Counters) {
        let mut met = locked(&self.met);
        let seen = met.entry(key).or_default();
        if counters.slots >= seen.slots {
            *seen = *counters;
        }
    }

    fn stream(&self, file: usize) -> Stream<'a> {
        let opened = &self.spill.files[file];
        let mut placements = Vec::new();
        self.spill
            .modules
            .at(opened.key.process, u64::MAX, &mut placements);
        let expander = Expander::new(&self.spill.tables, &placements);
        let next = self.spill.pieces.partition_point(|p| p.file < file);
        Stream {
            expander,
            placements,
            next,
            sample: opened.first_sample,
        }
    }

    /// Expands the segments of a piece. `damage` gets the damaged ones, with the number of lost
    /// slots.
    fn expand(
        &self,
        piece: &SegmentRange,
        stream: &mut Stream<'a>,
        damage: &mut Vec<(String, u64)>,
    ) -> RowBatch {
        let opened = &self.spill.files[piece.file];
        let (mut slots, mut now, mut rows) = (Vec::new(), Vec::new(), RowBatch::default());
        for segment in opened
            .file
            .segments()
            .get(piece.segments.clone())
            .unwrap_or_default()
        {
            if let Err(error) = opened.file.decode(segment, &mut slots) {
                let lost = u64::from(segment.header.slots);
                damage.push((
                    format!(
                        "{}: {error}; {lost} records are skipped, record again if they matter",
                        opened.path.display()
                    ),
                    lost,
                ));
                continue;
            }
            self.spill
                .modules
                .at(opened.key.process, segment.header.end_ns, &mut now);
            if now != stream.placements {
                stream.expander.place(&now);
                stream.placements.clone_from(&now);
            }
            stream
                .expander
                .segment(&segment.header, &slots, &mut stream.sample, &mut rows);
        }
        if piece.segments.end == opened.file.segments().len() {
            stream.expander.finish(&mut rows);
        }
        rows
    }

    fn chunk(&self, piece: &SegmentRange, rows: RowBatch, damage: Vec<(String, u64)>) -> Chunk {
        let key = self.spill.files[piece.file].key;
        let mut chunk = Decoded::from_rows(key.process, key.thread, rows).into_chunk(self.code);
        // Numbers start again for a second thread with the same ids.
        chunk.ordered = true;
        chunk.lost = damage.iter().map(|d| d.1).sum();
        chunk.damage = damage.into_iter().map(|d| d.0).collect();
        chunk
    }

    /// A piece of windows.
    fn windows(&self, number: usize, piece: &SegmentRange) -> Chunk {
        let mut stream = self.stream(piece.file);
        stream.sample = piece.sample;
        let mut damage = Vec::new();
        let mut rows = self.expand(piece, &mut stream, &mut damage);
        stream.expander.finish(&mut rows);
        self.note((false, number), stream.expander.counters());
        self.chunk(piece, rows, damage)
    }

    /// Pieces of one `full` file, ascending.
    fn full(&self, file: usize, numbers: &[usize]) -> Vec<Chunk> {
        let kept = locked(&self.streams).remove(&file);
        let mut stream = kept
            .filter(|s| numbers.first().is_some_and(|&n| s.next <= n))
            .unwrap_or_else(|| self.stream(file));
        let mut chunks = Vec::new();
        for &number in numbers {
            loop {
                let piece = &self.spill.pieces[stream.next];
                let mut damage = Vec::new();
                let rows = self.expand(piece, &mut stream, &mut damage);
                let read = stream.next;
                stream.next += 1;
                if read == number {
                    chunks.push(self.chunk(piece, rows, damage));
                    break;
                }
            }
        }
        self.note((true, file), stream.expander.counters());
        locked(&self.streams).insert(file, stream);
        chunks
    }
}

impl ChunkSource for SpillSource<'_> {
    fn pieces(&self) -> usize {
        self.spill.pieces.len()
    }

    fn piece_rows(&self, piece: usize) -> u64 {
        self.spill.pieces.get(piece).map_or(0, |p| p.slots)
    }

    fn read(&self, pieces: &[usize]) -> Vec<Result<Chunk, (String, u64)>> {
        let known: Vec<usize> = pieces
            .iter()
            .copied()
            .filter(|&p| p < self.spill.pieces.len())
            .collect();
        let file = |p: usize| self.spill.pieces[p].file;
        let mut tasks: Vec<&[usize]> = Vec::new();
        for same in known.chunk_by(|&a, &b| file(a) == file(b)) {
            if self.spill.files[file(same[0])].windows {
                tasks.extend(same.chunks(1));
            } else {
                tasks.push(same);
            }
        }
        let read = |numbers: &&[usize]| {
            let first = file(numbers[0]);
            if self.spill.files[first].windows {
                numbers
                    .iter()
                    .map(|&n| self.windows(n, &self.spill.pieces[n]))
                    .collect()
            } else {
                self.full(first, numbers)
            }
        };
        let chunks: Vec<Vec<Chunk>> = tasks.par_iter().with_max_len(1).map(read).collect();
        chunks.into_iter().flatten().map(Ok).collect()
    }

    fn notes(&self) -> Vec<String> {
        let mut sum = Counters::default();
        for counters in locked(&self.met).values() {
            sum.add(counters);
        }
        let mut notes = Vec::new();
        let mut note = |count: u64, text: &str| {
            if count > 0 {
                notes.push(format!("spill: {count} {text}"));
            }
        };
        note(
            sum.torn,
            "loads lie before the start of their sample and are left out",
        );
        note(
            sum.cut,
            "loads lie after a gap in the recording and are left out",
        );
        note(
            sum.unknown,
            "records belong to no traced module and are left out",
        );
        note(
            sum.implied_unplaced,
            "implied Constant loads belong to no recorded load and are left out",
        );
        notes
    }
}
