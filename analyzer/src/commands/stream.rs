//! A trace as a stream of accesses: thread after thread, sample after sample, in order.

use crate::data::chunk::Chunk;
use crate::data::group::Group;
use crate::data::rows::{ColumnSlices, Run};
use crate::input::source::ChunkSource;

/// Least number of rows that are decoded ahead: a row group of the recorder. Two batches exist at a
/// time, with 22 bytes per row. The consumer is slower than one decoder, so more batches would only
/// wait.
const BATCH_ROWS: u64 = 1 << 18;

/// Consecutive accesses of one sample of one thread.
pub struct AccessSegment<'a> {
    /// Thread, sample, times.
    pub run: &'a Run,
    /// Loads.
    pub loads: ColumnSlices<'a>,
    /// Stores.
    pub stores: ColumnSlices<'a>,
    before: &'a [u32],
    /// Times of loads and stores in the order of the trace; empty if they were not requested.
    time: &'a [u64],
    /// False if the segment continues the sample of the previous one.
    pub starts: bool,
}

/// Columns of accesses. Those of a trace have groups; models may tag accesses with other numbers.
#[derive(Clone, Debug)]
pub struct Accesses<T = Group> {
    /// Start address.
    pub address: Vec<u64>,
    /// Bytes.
    pub size: Vec<u32>,
    /// Line piece and class, or a tag.
    pub group: Vec<T>,
}

/// Borrowed columns of accesses.
#[derive(Clone, Copy)]
pub struct View<'a, T = Group> {
    /// Start address.
    pub address: &'a [u64],
    /// Bytes.
    pub size: &'a [u32],
    /// Line piece and class, or a tag.
    pub group: &'a [T],
}

impl<'a, T> View<'a, T> {
    /// Number of accesses.
    pub fn len(&self) -> usize {
        self.address.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.address.is_empty()
    }

    /// Some of them.
    pub fn slice(&self, range: std::ops::Range<usize>) -> View<'a, T> {
        View {
            address: &self.address[range.clone()],
            size: &self.size[range.clone()],
            group: &self.group[range],
        }
    }
}

impl<'a> View<'a> {
    /// These accesses with the groups as tags.
    pub fn tagged(self) -> View<'a, u32> {
        View {
            address: self.address,
            size: self.size,
            group: Group::raw_slice(self.group),
        }
    }
}

impl<T> Default for Accesses<T> {
    fn default() -> Accesses<T> {
        Accesses {
            address: Vec::new(),
            size: Vec::new(),
            group: Vec::new(),
        }
    }
}

impl<T: Copy> Accesses<T> {
    /// The columns.
    pub fn view(&self) -> View<'_, T> {
        View {
            address: &self.address,
            size: &self.size,
            group: &self.group,
        }
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.address.clear();
        self.size.clear();
        self.group.clear();
    }

    /// Appends.
    pub fn extend(&mut self, more: View<'_, T>) {
        self.address.extend_from_slice(more.address);
        self.size.extend_from_slice(more.size);
        self.group.extend_from_slice(more.group);
    }
}

impl<'a> AccessSegment<'a> {
    /// The loads, or with `stores` loads and stores in program order (which uses `buffer`).
    pub fn accesses<'b>(&'b self, stores: bool, buffer: &'b mut Accesses) -> View<'b> {
        let loads = View {
            address: self.loads.address,
            size: self.loads.size,
            group: self.loads.group,
        };
        if !stores || self.stores.is_empty() {
            return loads;
        }
        buffer.clear();
        let base = self.run.loads.start as u32;
        let mut done = 0;
        for (i, &before) in self.before.iter().enumerate() {
            let upto = (before.saturating_sub(base) as usize).clamp(done, loads.len());
            buffer.extend(loads.slice(done..upto));
            done = upto;
            buffer.address.push(self.stores.address[i]);
            buffer.size.push(self.stores.size[i]);
            buffer.group.push(self.stores.group[i]);
        }
        buffer.extend(loads.slice(done..loads.len()));
        buffer.view()
    }

    /// Appends the times of the accesses that [`AccessSegment::accesses`] gives. Times that were
    /// not read are spread evenly between those of the first and the last row.
    pub fn times(&self, stores: bool, out: &mut Vec<u64>) {
        let rows = self.loads.len() + if stores { self.stores.len() } else { 0 };
        if self.time.len() != self.loads.len() + self.stores.len() {
            let span = u128::from(self.run.last_time.saturating_sub(self.run.first_time));
            let steps = rows.saturating_sub(1).max(1) as u128;
            let part = |i: usize| (span * i as u128 / steps) as u64;
            out.extend((0..rows).map(|i| self.run.first_time + part(i)));
        } else if stores || self.stores.is_empty() {
            out.extend_from_slice(self.time);
        } else {
            let base = self.run.loads.start;
            let mut done = 0;
            for (i, &before) in self.before.iter().enumerate() {
                let upto = (before as usize).saturating_sub(base);
                let upto = upto.clamp(done, self.loads.len());
                out.extend_from_slice(&self.time[done + i..upto + i]);
                done = upto;
            }
            out.extend_from_slice(&self.time[done + self.before.len()..]);
        }
    }

    /// Loads that the segment's rows imply but do not record: scalars at constant addresses.
    pub fn implied(&self) -> u64 {
        self.loads
            .implied
            .iter()
            .chain(self.stores.implied)
            .map(|&n| u64::from(n))
            .sum()
    }
}

/// The segments of a chunk, in order.
pub fn segments<'a>(chunk: &'a Chunk, last: &mut Option<Run>) -> Vec<AccessSegment<'a>> {
    let (loads, stores) = (chunk.loads.rows(), chunk.stores.rows());
    if chunk.gap_before {
        *last = None;
    }
    let mut out = Vec::with_capacity(chunk.runs.len());
    for run in &chunk.runs {
        let starts = !last.as_ref().is_some_and(|l| l.same_sample(run));
        let before = chunk
            .loads_before
            .get(run.stores.clone())
            .unwrap_or_default();
        let from = run.loads.start + run.stores.start;
        let time = chunk.time.get(from..run.loads.end + run.stores.end);
        out.push(AccessSegment {
            run,
            loads: loads.slice(run.loads.clone()),
            stores: stores.slice(run.stores.clone()),
            before,
            time: time.unwrap_or_default(),
            starts,
        });
        *last = Some(run.clone());
    }
    out
}

/// Passes all segments of a trace to `visit`, in order; the next pieces are decoded in parallel.
/// Returns descriptions of unreadable parts. A sample never continues across a gap.
pub fn visit(
    source: &dyn ChunkSource,
    progress: &(dyn Fn(u64) + Sync),
    visit: &mut (dyn FnMut(&AccessSegment<'_>) + Send),
) -> Vec<String> {
    let mut damage = Vec::new();
    let mut next = 0;
    let mut last: Option<Run> = None;
    let mut batch = read(source, &mut next);
    while !batch.is_empty() {
        let (following, ()) = rayon::join(
            || read(source, &mut next),
            || {
                for piece in batch {
                    match piece {
                        Ok(mut chunk) => {
                            damage.append(&mut chunk.damage);
                            for segment in segments(&chunk, &mut last) {
                                visit(&segment);
                                progress((segment.loads.len() + segment.stores.len()) as u64);
                            }
                        }
                        Err((text, _)) => {
                            damage.push(text);
                            last = None;
                        }
                    }
                }
            },
        );
        batch = following;
    }
    damage
}

fn read(source: &dyn ChunkSource, next: &mut usize) -> Vec<Result<Chunk, (String, u64)>> {
    let first = *next;
    let mut rows = 0;
    while *next < source.pieces() && rows < BATCH_ROWS {
        rows += source.piece_rows(*next).max(1);
        *next += 1;
    }
    source.read(&(first..*next).collect::<Vec<_>>())
}
