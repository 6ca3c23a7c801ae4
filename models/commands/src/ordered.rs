//! Rows of a trace in the order of their recorded times, as a stream. One stretch of rows per
//! thread is in memory.

use mgz_analyzer::data::chunk::Chunk;
use mgz_analyzer::data::group::{AccessClass, Group};
use mgz_analyzer::data::rows::Run;
use mgz_analyzer::input::source::ChunkSource;
use mgz_analyzer::util::due::Due;
use mgz_annotations_schema::row_stream::Batch;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// Consecutive rows of a sample of a thread, loads and, if requested, stores, in program order.
#[derive(Debug, Default)]
pub struct Stretch {
    /// System process id.
    pub process: u32,
    /// System thread id.
    pub thread: u32,
    /// Start address.
    pub address: Vec<u64>,
    /// Bytes.
    pub size: Vec<u32>,
    /// Line piece and class.
    pub group: Vec<Group>,
    /// Instruction in the whole trace; `u32::MAX` if unknown.
    pub site: Vec<u32>,
    /// Implied Constant loads.
    pub implied: Vec<u16>,
    /// Time of each row, if all are known; else empty.
    time: Vec<u64>,
    /// Times of the first and the last row, for estimates of the others.
    first_time: u64,
    last_time: u64,
}

impl Stretch {
    fn len(&self) -> usize {
        self.address.len()
    }

    /// The time of a row. Unknown times are interpolated evenly between those of the first and the
    /// last row.
    pub fn time(&self, row: usize) -> f64 {
        if let Some(&time) = self.time.get(row) {
            return time as f64;
        }
        let steps = self.len().saturating_sub(1).max(1) as f64;
        let span = self.last_time.saturating_sub(self.first_time) as f64;
        self.first_time as f64 + span * (row as f64 / steps)
    }

    /// Takes rows without times, and drops stores unless requested. Returns the old buffers for
    /// reuse.
    pub(crate) fn take(&mut self, mut rows: Batch, stores: bool) -> Batch {
        if !stores {
            rows.drop_stores();
        }
        (self.process, self.thread) = (rows.process, rows.thread);
        std::mem::swap(&mut self.address, &mut rows.address);
        std::mem::swap(&mut self.size, &mut rows.size);
        std::mem::swap(&mut self.implied, &mut rows.implied);
        let class = |&store: &bool| match store {
            true => Group::new(0, AccessClass::Store),
            false => Group::new(0, AccessClass::Constant),
        };
        self.group.clear();
        self.group.extend(rows.store.iter().map(class));
        self.site.resize(self.address.len(), u32::MAX);
        rows
    }

    /// Reads a run of a chunk.
    fn read(&mut self, chunk: &Chunk, run: &Run, stores: bool) {
        *self = Stretch {
            process: run.process,
            thread: run.thread,
            first_time: run.first_time,
            last_time: run.last_time,
            ..std::mem::take(self)
        };
        self.address.clear();
        self.size.clear();
        self.group.clear();
        self.site.clear();
        self.implied.clear();
        self.time.clear();
        let before = chunk.loads_before.get(run.stores.clone());
        let mut done = run.loads.start;
        for (store, &loads) in run.stores.clone().zip(before.unwrap_or_default()) {
            let upto = (loads as usize).clamp(done, run.loads.end);
            if stores {
                self.extend(&chunk.loads, done..upto);
                self.extend(&chunk.stores, store..store + 1);
            }
            self.times(chunk, done + store..upto + store + usize::from(stores));
            done = upto;
        }
        if !stores {
            self.extend(&chunk.loads, run.loads.clone());
        } else {
            self.extend(&chunk.loads, done..run.loads.end);
        }
        self.times(chunk, done + run.stores.end..run.loads.end + run.stores.end);
    }

    /// Times of rows, which are numbered in the order of the trace.
    fn times(&mut self, chunk: &Chunk, rows: Range<usize>) {
        let known = chunk.time.get(rows).unwrap_or_default();
        self.time.extend_from_slice(known);
    }

    fn extend(&mut self, from: &mgz_analyzer::data::rows::RowColumns, range: Range<usize>) {
        let rows = from.rows().slice(range.clone());
        self.address.extend_from_slice(rows.address);
        self.size.extend_from_slice(rows.size);
        self.group.extend_from_slice(rows.group);
        self.implied.extend_from_slice(rows.implied);
        self.site.extend_from_slice(from.sites(range));
        // If instructions were not read, they are unknown.
        self.site.resize(self.address.len(), u32::MAX);
    }
}

/// The rows of a thread: pieces with their runs, in order.
type Places = VecDeque<(usize, Range<usize>)>;

/// The threads of a trace, and the positions of their rows.
pub struct Ordered<'a> {
    source: &'a dyn ChunkSource,
    threads: Vec<((u32, u32), Places)>,
    /// The process of the row that ran first.
    pub first_process: u32,
    /// Descriptions of unreadable parts.
    pub damage: Vec<String>,
}

impl<'a> Ordered<'a> {
    /// Finds the pieces with rows of each thread.
    pub fn new(source: &'a dyn ChunkSource) -> Ordered<'a> {
        let mut threads: BTreeMap<(u32, u32), Places> = BTreeMap::new();
        let mut damage = Vec::new();
        let mut first = (u64::MAX, 0);
        for piece in 0..source.pieces() {
            for read in source.runs(&[piece]) {
                match read {
                    Ok(chunk) => {
                        for (at, run) in chunk.runs.iter().enumerate() {
                            if run.first_time < first.0 || first.0 == u64::MAX {
                                first = (run.first_time, run.process);
                            }
                            let places = threads.entry((run.process, run.thread)).or_default();
                            match places.back_mut() {
                                Some((p, runs)) if *p == piece && runs.end == at => runs.end += 1,
                                _ => places.push_back((piece, at..at + 1)),
                            }
                        }
                    }
                    Err((sentence, _)) => damage.push(sentence),
                }
            }
        }
        Ordered {
            source,
            threads: threads.into_iter().collect(),
            first_process: first.1,
            damage,
        }
    }

    /// Process and thread of each, by index.
    pub fn threads(&self) -> Vec<(u32, u32)> {
        self.threads.iter().map(|t| t.0).collect()
    }

    /// Passes all rows to `each`, with the index of their thread. Consecutive rows are passed
    /// together.
    pub fn visit(
        &mut self,
        stores: bool,
        progress: &(dyn Fn(u64) + Sync),
        each: &mut (dyn FnMut(usize, &Stretch, Range<usize>) + Send),
    ) {
        if let [(_, places)] = &mut self.threads[..] {
            let places = std::mem::take(places);
            return self.one_thread(&places, stores, progress, each);
        }
        let mut pieces = Pieces {
            source: self.source,
            recent: VecDeque::new(),
            damage: Vec::new(),
        };
        let mut cursors: Vec<Cursor> = self
            .threads
            .iter_mut()
            .map(|(_, places)| Cursor {
                places: std::mem::take(places),
                ..Cursor::default()
            })
            .collect();
        let mut waiting: BinaryHeap<Reverse<Due>> = BinaryHeap::new();
        for (thread, cursor) in cursors.iter_mut().enumerate() {
            if cursor.advance(&mut pieces, stores) {
                waiting.push(Reverse(Due(cursor.stretch.time(0), thread)));
            }
        }
        while let Some(Reverse(Due(_, thread))) = waiting.pop() {
            let limit = waiting.peek().map_or(f64::INFINITY, |w| w.0.0);
            let cursor = &mut cursors[thread];
            // The thread that is due continues until another one is due.
            loop {
                let (from, length) = (cursor.at, cursor.stretch.len());
                let mut to = from + 1;
                while to < length && cursor.stretch.time(to) <= limit {
                    to += 1;
                }
                each(thread, &cursor.stretch, from..to);
                progress((to - from) as u64);
                cursor.at = to;
                if to == length && !cursor.advance(&mut pieces, stores) {
                    break;
                }
                let due = cursor.stretch.time(cursor.at);
                if due > limit {
                    waiting.push(Reverse(Due(due, thread)));
                    break;
                }
            }
        }
        self.damage.append(&mut pieces.damage);
    }

    /// The next piece is read while one is processed.
    fn one_thread(
        &mut self,
        places: &Places,
        stores: bool,
        progress: &(dyn Fn(u64) + Sync),
        each: &mut (dyn FnMut(usize, &Stretch, Range<usize>) + Send),
    ) {
        let source = self.source;
        let read = |at: usize| places.get(at).map(|p| source.read(&[p.0]));
        let mut stretch = Stretch::default();
        let mut next = read(0);
        for at in 0..places.len() {
            let now = next.take().unwrap_or_default();
            let damage = &mut self.damage;
            let (following, ()) = rayon::join(
                || read(at + 1),
                || {
                    for chunk in now {
                        match chunk {
                            Ok(mut chunk) => {
                                damage.append(&mut chunk.damage);
                                for run in &chunk.runs {
                                    stretch.read(&chunk, run, stores);
                                    each(0, &stretch, 0..stretch.len());
                                    progress(stretch.len() as u64);
                                }
                            }
                            Err((sentence, _)) => damage.push(sentence),
                        }
                    }
                },
            );
            next = following;
        }
    }
}

/// The pieces that were read last, since threads with few rows share pieces.
struct Pieces<'a> {
    source: &'a dyn ChunkSource,
    recent: VecDeque<(usize, Arc<Chunk>)>,
    damage: Vec<String>,
}

impl Pieces<'_> {
    fn get(&mut self, piece: usize) -> Arc<Chunk> {
        if let Some((_, chunk)) = self.recent.iter().find(|r| r.0 == piece) {
            return chunk.clone();
        }
        let mut chunk = Chunk::default();
        for read in self.source.read(&[piece]) {
            match read {
                Ok(mut read) => {
                    self.damage.append(&mut read.damage);
                    chunk = read;
                }
                Err((sentence, _)) => self.damage.push(sentence),
            }
        }
        let chunk = Arc::new(chunk);
        if self.recent.len() == 2 {
            self.recent.pop_front();
        }
        self.recent.push_back((piece, chunk.clone()));
        chunk
    }
}

/// Position of a thread.
#[derive(Default)]
struct Cursor {
    places: Places,
    stretch: Stretch,
    at: usize,
}

impl Cursor {
    /// Advances to the next stretch that has rows.
    fn advance(&mut self, pieces: &mut Pieces<'_>, stores: bool) -> bool {
        self.at = 0;
        while let Some((piece, runs)) = self.places.front_mut() {
            let (piece, run) = (*piece, runs.next());
            let Some(run) = run else {
                self.places.pop_front();
                continue;
            };
            let chunk = pieces.get(piece);
            // A piece that has become unreadable has no runs.
            if let Some(run) = chunk.runs.get(run) {
                self.stretch.read(&chunk, run, stores);
                if self.stretch.len() > 0 {
                    return true;
                }
            }
        }
        self.stretch = Stretch::default();
        false
    }
}
