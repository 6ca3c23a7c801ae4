//! Windows of accesses, and measurements of rows before those of the trace.

use crate::beside;
use crate::reuse::counts::{ReuseHistograms, ReuseTally, Tags};
use crate::reuse::{Engine, ReuseArguments};
use mgz_analyzer::commands::stream::View;
use mgz_analyzer::data::code_map::CodeMap;
use mgz_analyzer::data::group::{AccessClass, Group};
use mgz_analyzer::data::object_map::UNKNOWN;
use mgz_annotations_schema::row_stream::RowCode;
use mgz_models::histogram::PART_BITS;

/// Divides a thread's run into windows, and counts these.
pub(super) struct Windows {
    /// Accesses per window; 0 if the samples are the windows.
    length: u64,
    in_window: u64,
    pub(super) accesses: u64,
    /// Windows or samples.
    pub(super) samples: u64,
    /// Maximum number of tree nodes in finished engines.
    pub(super) nodes: usize,
}

impl Windows {
    /// Empty counts.
    pub(super) fn new(arguments: &ReuseArguments) -> Windows {
        Windows {
            length: arguments.windows.unwrap_or(0),
            in_window: 0,
            accesses: 0,
            samples: 0,
            nodes: 0,
        }
    }

    /// Begins a sample.
    pub(super) fn begin(&mut self, engine: &mut Engine) {
        engine.begin();
        self.samples += 1;
        self.in_window = 0;
    }

    /// Measures the next accesses of the thread that was added last.
    pub(super) fn run(
        &mut self,
        view: View<'_, u32>,
        engine: &mut Engine,
        counts: &mut ReuseHistograms,
    ) {
        self.accesses += view.len() as u64;
        if let Some(thread) = counts.threads.last_mut() {
            thread.2 += view.len() as u64;
        }
        let mut at = 0;
        while at < view.len() {
            if self.length > 0 && self.in_window == self.length {
                self.begin(engine);
            }
            let most = match self.length {
                0 => usize::MAX,
                length => (length - self.in_window) as usize,
            };
            let end = at + most.min(view.len() - at);
            engine.run(view.slice(at..end), counts);
            self.in_window += (end - at) as u64;
            at = end;
        }
    }
}

/// Measurements of rows from standard input, see [`beside`].
pub(super) struct Begun {
    engine: Engine,
    windows: Windows,
    /// Counts by number of the code.
    counts: ReuseHistograms,
    codes: Vec<RowCode>,
    implied: u64,
    /// Sample of the last row.
    sample: u32,
}

impl Begun {
    /// Measures all rows from standard input.
    pub(super) fn take(arguments: &ReuseArguments) -> anyhow::Result<Begun> {
        let mut begun = Begun {
            engine: Engine::of(arguments),
            windows: Windows::new(arguments),
            counts: ReuseHistograms::new(),
            codes: Vec::new(),
            implied: 0,
            sample: 0,
        };
        beside::take_batches(&mut |mut rows| {
            begun.codes.append(&mut rows.codes);
            begun.implied += rows.implied.iter().map(|&n| u64::from(n)).sum::<u64>();
            let threads = &mut begun.counts.threads;
            let first = threads.is_empty();
            if first {
                threads.push((rows.process, rows.thread, 0, ReuseTally::new(PART_BITS)));
            }
            if first || rows.sample != begun.sample {
                begun.sample = rows.sample;
                begun.windows.begin(&mut begun.engine);
            }
            if !arguments.stores {
                rows.drop_stores();
            }
            let view = View {
                address: &rows.address,
                size: &rows.size,
                group: &rows.code,
            };
            begun
                .windows
                .run(view, &mut begun.engine, &mut begun.counts);
            rows
        })?;
        Ok(begun)
    }

    /// Moves the counts into those of the trace, which must be empty, except for the counts of the
    /// thread. `None` if no row came.
    pub(super) fn join(
        mut self,
        code: &CodeMap,
        counts: &mut ReuseHistograms,
        implied: &mut u64,
    ) -> Option<BegunThread> {
        let (process, thread, accesses, tally) = self.counts.threads.pop()?;
        let group = |c: &RowCode| {
            let (pieces, unknown, _) = code.pieces_of(c.module);
            let piece = *pieces.get(c.site as usize).unwrap_or(&unknown);
            let group = match c.store {
                true => Group::new(piece, AccessClass::Store),
                false => Group::of_load(piece, c.class),
            };
            (group, UNKNOWN)
        };
        *implied += self.implied;
        *counts = ReuseHistograms {
            tags: Tags::of(self.codes.iter().map(group).collect()),
            ..self.counts
        };
        Some(BegunThread {
            engine: self.engine,
            windows: self.windows,
            sample: self.sample,
            thread: (process, thread, accesses, tally),
        })
    }
}

/// The thread of the rows from standard input, in the state after these.
pub(super) struct BegunThread {
    engine: Engine,
    windows: Windows,
    /// Its last sample.
    pub(super) sample: u32,
    thread: (u32, u32, u64, ReuseTally),
}

impl BegunThread {
    /// Process and thread.
    pub(super) fn id(&self) -> (u32, u32) {
        (self.thread.0, self.thread.1)
    }

    /// Continues with the rows of this thread in the trace.
    pub(super) fn go_on(
        self,
        engine: &mut Engine,
        windows: &mut Windows,
        counts: &mut ReuseHistograms,
    ) {
        let before = std::mem::replace(engine, self.engine);
        windows.nodes = windows.nodes.max(before.most_nodes());
        windows.in_window = self.windows.in_window;
        windows.accesses += self.windows.accesses;
        windows.samples += self.windows.samples;
        counts.threads.push(self.thread);
    }
}
