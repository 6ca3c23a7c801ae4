//! Rows that findings use: all windows, or pieces of a long trace, in memory.
//!
//! Findings need details of a few loads that no table counts, such as the bytes of an element that
//! are read. So they read some of the rows a second time: at most [`params::MAX_ROWS_READ`], from
//! all over the run.

use crate::data::chunk::Chunk;
use crate::data::group::Group;
use crate::data::memory_units::CacheLine;
use crate::data::object_map::{Recent, Resolver};
use crate::data::rows::Run;
use crate::findings::params;
use crate::input::source::ChunkSource;
use crate::util::fast_hash::Mixed;
use rayon::prelude::*;
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

/// A load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Address.
    pub address: u64,
    /// Number of the load instruction in the whole trace.
    pub site: u32,
    /// Code and class, see [`crate::data::code_map`].
    pub group: Group,
    /// Bytes.
    pub size: u32,
    /// Object; 0 if unknown.
    pub object: u32,
    /// Offset from the begin of the object's element, or of the object if elements are unknown.
    /// [`NO_OFFSET`] if the offset is unknown.
    pub into: u32,
    /// True if the row is the first of its window in its line of 64 bytes.
    pub first: bool,
}

/// Unknown offset, see [`Row::into`].
pub const NO_OFFSET: u32 = u32::MAX;

/// A store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreRow {
    /// Address.
    pub address: u64,
    /// Code and class.
    pub group: Group,
    /// Bytes.
    pub size: u32,
    /// Object.
    pub object: u32,
}

/// Consecutive rows.
#[derive(Clone, Debug, Default)]
pub struct Window {
    /// Process.
    pub process: u32,
    /// Thread.
    pub thread: u32,
    /// Number of the window's sample.
    pub sample: u32,
    /// Time of the window, on the clock of objects.
    pub time: u64,
    /// Loads.
    pub rows: Vec<Row>,
    /// Stores.
    pub stores: Vec<StoreRow>,
}

/// Reads windows from all over a trace.
pub fn read(source: &dyn ChunkSource, objects: Option<&Resolver>) -> Vec<Window> {
    let all: u64 = (0..source.pieces()).map(|p| source.piece_rows(p)).sum();
    let pieces = chosen(source, all);
    let rows: u64 = pieces.iter().map(|&p| source.piece_rows(p)).sum();
    // One in `every` windows is kept.
    let every = rows.div_ceil(params::MAX_ROWS_READ).max(1) as usize;
    let mut cutter = Cutter {
        every,
        ..Cutter::default()
    };
    // One piece at a time: a piece of a long trace takes tens of megabytes.
    for piece in pieces {
        for chunk in source.read(&[piece]).into_iter().flatten() {
            cutter.cut(&chunk);
        }
    }
    let mut windows = cutter.finish();
    (windows.par_iter_mut()).for_each_init(
        <(Recent, Lines)>::default,
        |(recent, lines), window| {
            complete(window, objects, recent, lines);
        },
    );
    windows
}

/// Selects pieces from all over the trace.
fn chosen(source: &dyn ChunkSource, all: u64) -> Vec<usize> {
    let pieces = source.pieces();
    let wanted = if all <= params::READ_LIMITS_BEFORE_CHOOSING_PIECES * params::MAX_ROWS_READ {
        pieces
    } else {
        pieces.min(params::MAX_PIECES_READ)
    };
    (0..wanted).map(|n| n * pieces / wanted.max(1)).collect()
}

/// Process, thread and sample of a stream of rows.
type Stream = (u32, u32, u32);

/// Cuts streams of rows into windows of [`params::MAX_ROWS_OF_WINDOW`] rows, across the ends of
/// chunks.
#[derive(Default)]
struct Cutter {
    /// In each stream, one in this many windows is kept.
    every: usize,
    /// By stream: index of the window that is being filled, and its number of loads.
    filled: BTreeMap<Stream, (usize, usize)>,
    /// Windows by stream and index.
    windows: BTreeMap<(Stream, usize), Window>,
}

impl Cutter {
    fn cut(&mut self, chunk: &Chunk) {
        let all = chunk.loads.rows();
        let stores = chunk.stores.rows();
        let stored = |at: Range<usize>| {
            (at.start.min(stores.len())..at.end.min(stores.len())).map(|at| StoreRow {
                address: stores.address[at],
                group: stores.group[at],
                size: stores.size[at],
                object: 0,
            })
        };
        for run in &chunk.runs {
            let stream = (run.process, run.thread, run.sample);
            // Streams start at different offsets, so that some short streams are kept.
            let offset = run.sample as usize;
            let (mut number, mut loads) = self.filled.get(&stream).copied().unwrap_or_default();
            let sites = chunk.loads.sites(run.loads.clone());
            let mut from = run.loads.start;
            let mut next_store = run.stores.start;
            let end = run.loads.end.min(all.len());
            while from < end {
                if loads == params::MAX_ROWS_OF_WINDOW {
                    (number, loads) = (number + 1, 0);
                }
                let to = (from + params::MAX_ROWS_OF_WINDOW - loads).min(end);
                let last = to == end;
                let before = |at: usize| {
                    let before = chunk.loads_before.get(at);
                    before.is_some_and(|&n| (n as usize) < to)
                };
                let mut end_store = next_store;
                while end_store < run.stores.end && (last || before(end_store)) {
                    end_store += 1;
                }
                if (number + offset).is_multiple_of(self.every) {
                    let window = self
                        .windows
                        .entry((stream, number))
                        .or_insert_with(|| begin(run));
                    window.rows.extend((from..to).map(|at| Row {
                        address: all.address[at],
                        site: sites.get(at - run.loads.start).copied().unwrap_or(u32::MAX),
                        group: all.group[at],
                        size: all.size[at],
                        object: 0,
                        into: NO_OFFSET,
                        ..Row::default()
                    }));
                    window.stores.extend(stored(next_store..end_store));
                }
                next_store = end_store;
                loads += to - from;
                from = to;
            }
            // The rest of the stream has stores only.
            if next_store < run.stores.end && (number + offset).is_multiple_of(self.every) {
                let window = self
                    .windows
                    .entry((stream, number))
                    .or_insert_with(|| begin(run));
                window.stores.extend(stored(next_store..run.stores.end));
            }
            self.filled.insert(stream, (number, loads));
        }
    }

    fn finish(self) -> Vec<Window> {
        self.windows.into_values().collect()
    }
}

fn begin(run: &Run) -> Window {
    Window {
        process: run.process,
        thread: run.thread,
        sample: run.sample,
        time: run.first_time,
        ..Window::default()
    }
}

/// Lines of a window.
type Lines = HashSet<CacheLine, Mixed>;

/// Finds objects, and the first row in each line and page.
fn complete(
    window: &mut Window,
    objects: Option<&Resolver>,
    recent: &mut Recent,
    lines: &mut Lines,
) {
    lines.clear();
    let (process, time) = (window.process, window.time);
    for row in &mut window.rows {
        row.first = lines.insert(CacheLine::of(row.address));
    }
    let Some(objects) = objects else { return };
    for row in &mut window.rows {
        let (object, into) = objects.find_element(recent, process, row.address, time);
        row.object = object;
        row.into = u32::try_from(into).unwrap_or(NO_OFFSET);
    }
    for store in &mut window.stores {
        store.object = objects.find_recent(recent, process, store.address, time);
    }
}
