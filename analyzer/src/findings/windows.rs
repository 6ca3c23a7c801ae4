//! The rows that findings look at: those of all windows, or pieces of a long trace, in memory.
//!
//! Findings ask things of a few loads that no table counts, such as which bytes of an element are read. So they read some of the rows
//! once more: as many as fit [`MOST_ROWS`], from all over the run.

use crate::data::object_map::{Recent, Resolver};
use crate::data::rows::{Chunk, Run};
use crate::input::source::Source;
use crate::util::fast_hash::Mixed;
use rayon::prelude::*;
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

/// Rows that are looked at, at most.
const MOST_ROWS: u64 = 1 << 20;
/// Rows of a window; longer samples are cut.
const WINDOW: usize = 1000;
/// Pieces that are read of a trace at most.
const MOST_PIECES: usize = 64;

/// A load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Address.
    pub address: u64,
    /// Number of the load instruction in the whole trace.
    pub site: u32,
    /// Code and class, see [`crate::data::code_map`].
    pub group: u32,
    /// Bytes.
    pub size: u32,
    /// Object; 0 if it is not known.
    pub object: u32,
    /// Bytes from the begin of its element, or of its object where elements are not known; [`NOWHERE`] if that is not known.
    pub into: u32,
    /// The first of its window in its line of 64 bytes.
    pub first: bool,
    /// The same in its page of 4 KiB.
    pub first_in_page: bool,
}

/// See [`Row::into`].
pub const NOWHERE: u32 = u32::MAX;

/// A store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreRow {
    /// Address.
    pub address: u64,
    /// Code and class.
    pub group: u32,
    /// Bytes.
    pub size: u32,
    /// Object.
    pub object: u32,
}

/// Rows that follow one another.
#[derive(Clone, Debug, Default)]
pub struct Window {
    /// Process.
    pub process: u32,
    /// Thread.
    pub thread: u32,
    /// Number of its sample.
    pub sample: u32,
    /// When it was, on the clock of objects.
    pub time: u64,
    /// Loads.
    pub rows: Vec<Row>,
    /// Stores.
    pub stores: Vec<StoreRow>,
}

/// Reads windows from all over a trace.
pub fn read(source: &dyn Source, objects: Option<&Resolver>) -> Vec<Window> {
    let all: u64 = (0..source.pieces()).map(|p| source.piece_rows(p)).sum();
    let pieces = chosen(source, all);
    let rows: u64 = pieces.iter().map(|&p| source.piece_rows(p)).sum();
    // Of what is read every so many windows are kept.
    let every = rows.div_ceil(MOST_ROWS).max(1) as usize;
    let mut cutter = Cutter {
        every,
        ..Cutter::default()
    };
    // One at a time: a piece of a long trace takes tens of megabytes.
    for piece in pieces {
        for chunk in source.read(&[piece]).into_iter().flatten() {
            cutter.cut(&chunk);
        }
    }
    let mut windows = cutter.finish();
    (windows.par_iter_mut()).for_each_init(Recent::default, |recent, window| {
        complete(window, objects, recent);
    });
    windows
}

/// Pieces from all over the trace.
fn chosen(source: &dyn Source, all: u64) -> Vec<usize> {
    let pieces = source.pieces();
    let wanted = if all <= 2 * MOST_ROWS {
        pieces
    } else {
        pieces.min(MOST_PIECES)
    };
    (0..wanted).map(|n| n * pieces / wanted.max(1)).collect()
}

/// The stream that rows belong to: process, thread, sample.
type Stream = (u32, u32, u32);

/// Cuts streams of rows into windows of [`WINDOW`] rows, wherever chunks end.
#[derive(Default)]
struct Cutter {
    /// Of the windows of each stream every so many are kept.
    every: usize,
    /// By stream: number of its window that is being filled, and the loads in it.
    filled: BTreeMap<Stream, (usize, usize)>,
    /// By stream and number.
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
            // Where a stream begins is different from one to the next, so that short ones are kept too.
            let offset = run.sample as usize;
            let (mut number, mut loads) = self.filled.get(&stream).copied().unwrap_or_default();
            let sites = chunk.loads.sites(run.loads.clone());
            let mut from = run.loads.start;
            let mut next_store = run.stores.start;
            let end = run.loads.end.min(all.len());
            while from < end {
                if loads == WINDOW {
                    (number, loads) = (number + 1, 0);
                }
                let to = (from + WINDOW - loads).min(end);
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
                        into: NOWHERE,
                        ..Row::default()
                    }));
                    window.stores.extend(stored(next_store..end_store));
                }
                next_store = end_store;
                loads += to - from;
                from = to;
            }
            // A part of a stream without loads.
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

/// Objects, and which rows are the first in their line and page.
fn complete(window: &mut Window, objects: Option<&Resolver>, recent: &mut Recent) {
    let mut lines: HashSet<u64, Mixed> = HashSet::default();
    let mut pages: HashSet<u64, Mixed> = HashSet::default();
    let (process, time) = (window.process, window.time);
    for row in &mut window.rows {
        row.first = lines.insert(row.address >> 6);
        // Who is not the first in its line is none in its page.
        row.first_in_page = row.first && pages.insert(row.address >> 12);
    }
    let Some(objects) = objects else { return };
    for row in &mut window.rows {
        let (object, into) = objects.find_element(recent, process, row.address, time);
        row.object = object;
        row.into = u32::try_from(into).unwrap_or(NOWHERE);
    }
    for store in &mut window.stores {
        store.object = objects.find_recent(recent, process, store.address, time);
    }
}
