//! A batch of chunks as samples, and the tasks that it is divided into.

use crate::data::chunk::Chunk;
use crate::data::rows::{ColumnSlices, Run};
use crate::engine::{Collect, Driver};
use crate::stages::fetches::Fetches;
use crate::stages::line_visits::LineVisits;
use crate::stages::reuse::SampleReuse;
use crate::stages::strides::Strides;
use crate::stages::windows::WindowEngine;
use mgz_annotations_schema::lock::locked;
use std::sync::Mutex;

/// Samples with at least this many rows are tasks of their own; shorter ones are grouped. Source:
/// Chosen.
const MIN_ROWS_OF_OWN_TASK: usize = 1 << 17;
/// Rows of one footprint task.
const FOOTPRINT_ROWS: usize = 1 << 18;

/// Rows of a sample in one chunk.
pub(crate) struct SampleRows {
    pub(crate) chunk: usize,
    pub(crate) rows: std::ops::Range<usize>,
    /// `time_ns` of the first and last row.
    pub(crate) time: (u64, u64),
    pub(crate) column: u32,
    pub(crate) bucket: u32,
}

impl SampleRows {
    pub(crate) fn of(chunk: usize, run: &Run) -> SampleRows {
        SampleRows {
            chunk,
            rows: run.loads.clone(),
            time: (run.first_time, run.last_time),
            column: run.column,
            bucket: run.bucket,
        }
    }
}

/// Part of a sample inside a batch.
pub(crate) struct Span {
    pub(crate) parts: Vec<SampleRows>,
    pub(crate) rows: usize,
    pub(crate) space: u32,
    /// The sample began in an earlier batch.
    pub(crate) continues: bool,
    /// The sample may continue in the next batch.
    pub(crate) open: bool,
    pub(crate) run: Run,
}

/// A slot through which one task hands a value to another.
pub(crate) struct Slot<T>(Mutex<Option<T>>);

impl<T> Default for Slot<T> {
    fn default() -> Slot<T> {
        Slot(Mutex::new(None))
    }
}

impl<T> Slot<T> {
    pub(crate) fn put(&self, value: T) {
        *locked(&self.0) = Some(value);
    }

    pub(crate) fn take(&self) -> Option<T> {
        locked(&self.0).take()
    }
}

/// The engines of a sample that spans batches.
#[derive(Default)]
pub(crate) struct Handover {
    pub(crate) reuse: Slot<SampleReuse>,
    pub(crate) windows: Slot<WindowEngine>,
    pub(crate) strides: Slot<Strides>,
    pub(crate) fetches: Slot<Fetches>,
    pub(crate) lines: Slot<LineVisits>,
}

/// True if a sample with this many rows is small enough for [`LineVisits`].
pub(crate) fn is_short(rows: u64) -> bool {
    rows < MIN_ROWS_OF_OWN_TASK as u64
}

pub(crate) enum Task<'a> {
    Reuse(&'a Span),
    Windows(&'a Span),
    Short(&'a [Span]),
    Footprint(ColumnSlices<'a>, u32, u32),
}

impl Driver {
    /// The work of a batch, longest first.
    pub(crate) fn tasks<'a>(&self, chunks: &'a [Chunk], spans: &'a [Span]) -> Vec<Task<'a>> {
        let mut tasks = Vec::new();
        let long = |s: &Span| s.rows >= MIN_ROWS_OF_OWN_TASK || s.continues || s.open;
        for span in spans.iter().filter(|s| long(s)) {
            tasks.push(Task::Reuse(span));
        }
        for span in spans.iter().filter(|s| {
            long(s)
                && (self.options.windows
                    || self.options.incidence != Collect::Nothing
                    || self.options.lines.is_some()
                    || s.open)
        }) {
            tasks.push(Task::Windows(span));
        }
        let mut start = 0;
        while start < spans.len() {
            if long(&spans[start]) {
                start += 1;
                continue;
            }
            let mut end = start;
            let mut rows = 0;
            while end < spans.len() && !long(&spans[end]) && rows < MIN_ROWS_OF_OWN_TASK {
                rows += spans[end].rows;
                end += 1;
            }
            tasks.push(Task::Short(&spans[start..end]));
            start = end;
        }
        let counted = if self.options.lines_alone {
            &[]
        } else {
            chunks
        };
        for chunk in counted {
            let mut at = 0;
            while at < chunk.runs.len() {
                // Joins runs of one process and bucket into pieces of about the task size.
                let Run {
                    process, bucket, ..
                } = chunk.runs[at];
                let joins = |a: &Run, b: &Run| {
                    a.loads.end == b.loads.start && a.stores.end == b.stores.start
                };
                let mut end = at + 1;
                while end < chunk.runs.len()
                    && (chunk.runs[end].process, chunk.runs[end].bucket) == (process, bucket)
                    && joins(&chunk.runs[end - 1], &chunk.runs[end])
                {
                    end += 1;
                }
                let space = self.spaces.iter().rposition(|&p| p == process).unwrap_or(0) as u32;
                let loads = chunk.runs[at].loads.start..chunk.runs[end - 1].loads.end;
                let stores = chunk.runs[at].stores.start..chunk.runs[end - 1].stores.end;
                for (rows, range) in [(chunk.loads.rows(), loads), (chunk.stores.rows(), stores)] {
                    let mut from = range.start;
                    while from < range.end {
                        let to = (from + FOOTPRINT_ROWS).min(range.end);
                        tasks.push(Task::Footprint(rows.slice(from..to), space, bucket));
                        from = to;
                    }
                }
                at = end;
            }
        }
        tasks
    }
}
