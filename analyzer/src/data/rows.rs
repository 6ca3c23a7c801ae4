//! Rows in memory: columns as slices, and the borders of samples.

use crate::data::group::Group;
use crate::data::memory_units::LINE_BYTES;
use crate::data::samples::{Beginning, Waited};
use arrow_buffer::ScalarBuffer;

/// Borrowed columns of rows, all of one length.
#[derive(Clone, Copy, Debug)]
pub struct ColumnSlices<'a> {
    /// Start address.
    pub address: &'a [u64],
    /// Bytes.
    pub size: &'a [u32],
    /// Line piece and class.
    pub group: &'a [Group],
    /// Implied Constant loads.
    pub implied: &'a [u16],
}

impl<'a> ColumnSlices<'a> {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.address
            .len()
            .min(self.size.len())
            .min(self.group.len())
            .min(self.implied.len())
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Prefetches these rows, as far as they exist.
    #[inline(always)]
    pub(crate) fn expect(&self, range: std::ops::Range<usize>) {
        let ColumnSlices {
            address,
            size,
            group,
            implied,
        } = self.slice(range);
        expect(address);
        expect(size);
        expect(group);
        expect(implied);
    }

    /// Some of the rows; the range is limited to existing ones.
    pub fn slice(&self, range: std::ops::Range<usize>) -> ColumnSlices<'a> {
        let end = range.end.min(self.len());
        let range = range.start.min(end)..end;
        ColumnSlices {
            address: &self.address[range.clone()],
            size: &self.size[range.clone()],
            group: &self.group[range.clone()],
            implied: &self.implied[range],
        }
    }
}

/// Prefetches values that will be read. If several columns are read in turn, the processor detects
/// the pattern late.
#[inline(always)]
fn expect<T>(values: &[T]) {
    values
        .iter()
        .step_by(LINE_BYTES as usize / size_of::<T>())
        .for_each(crate::prefetch);
}

/// Owned columns of rows.
#[derive(Clone, Default)]
pub struct RowColumns {
    /// Start address.
    pub address: ScalarBuffer<u64>,
    /// Bytes.
    pub size: ScalarBuffer<u32>,
    /// Line piece and class.
    pub group: Vec<Group>,
    /// Implied Constant loads.
    pub implied: ScalarBuffer<u16>,
    /// Number of the load instruction in the whole trace, see
    /// [`crate::data::code_map::CodeMap::site`]; empty if not requested.
    pub site: ScalarBuffer<u32>,
}

impl RowColumns {
    /// The instructions of some rows; empty if they are not known.
    pub fn sites(&self, range: std::ops::Range<usize>) -> &[u32] {
        self.site.get(range).unwrap_or_default()
    }

    /// The rows.
    pub fn rows(&self) -> ColumnSlices<'_> {
        ColumnSlices {
            address: &self.address,
            size: &self.size,
            group: &self.group,
            implied: &self.implied,
        }
    }
}

/// Consecutive rows of one sample of one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// System process id.
    pub process: u32,
    /// System thread id.
    pub thread: u32,
    /// Sample number.
    pub sample: u32,
    /// Bucket of its results, see [`crate::engine::EngineOutcome::buckets`].
    pub bucket: u32,
    /// Column of the heat map that it belongs to, if there is a heat map.
    pub column: u32,
    /// Range of load rows in the chunk.
    pub loads: std::ops::Range<usize>,
    /// Range of store rows in the chunk.
    pub stores: std::ops::Range<usize>,
    /// `seq` of the first row.
    pub first_seq: u64,
    /// `seq` of the last row.
    pub last_seq: u64,
    /// `time_ns` of the first row.
    pub first_time: u64,
    /// `time_ns` of the last row.
    pub last_time: u64,
}

impl Run {
    /// True if `next` continues the same sample.
    pub fn same_sample(&self, next: &Run) -> bool {
        (self.process, self.thread, self.sample, self.bucket)
            == (next.process, next.thread, next.sample, next.bucket)
    }
}

/// A piece of a trace: consecutive rows, with loads and stores in separate columns.
#[derive(Clone, Default)]
pub struct Chunk {
    /// Loads.
    pub loads: RowColumns,
    /// Stores.
    pub stores: RowColumns,
    /// Number of the chunk's loads before each store.
    pub loads_before: Vec<u32>,
    /// `time_ns` of loads and stores in the order of the trace; empty if not requested.
    pub time: ScalarBuffer<u64>,
    /// Number of the piece of the trace.
    pub piece: usize,
    /// Samples, in order.
    pub runs: Vec<Run>,
    /// The load that each sample's thread had waited for, as far as known.
    pub waited: Waited,
    /// Begin of each of `runs`, if rows were left out; otherwise empty.
    pub begins: Vec<Option<Beginning>>,
    /// True if rows before this chunk could not be read: its first sample does not continue the
    /// last one.
    pub gap_before: bool,
    /// Descriptions of unreadable parts of this piece, and the number of their rows or records.
    pub damage: Vec<String>,
    /// See `damage`.
    pub lost: u64,
    /// False if `seq` may be compared across chunks.
    pub ordered: bool,
    /// Rows whose `seq` does not ascend within their thread.
    pub out_of_order: u64,
    /// Rows whose site is missing in the sidecar, or whose module has no sidecar.
    pub unknown_site: u64,
    /// Rows whose module is missing in the manifest.
    pub unknown_module: u64,
    /// Rows with an unknown class.
    pub unknown_class: u64,
}

impl Chunk {
    /// `time_ns` of some loads; empty if times were not requested.
    pub(crate) fn load_times(&self, loads: std::ops::Range<usize>) -> ScalarBuffer<u64> {
        if self.time.len() != self.loads.address.len() + self.stores.address.len() {
            return ScalarBuffer::default();
        }
        if self.loads_before.is_empty() {
            return self.time.slice(loads.start, loads.len());
        }
        let before = |&n: &u32| n as usize <= loads.start;
        let mut stores = self.loads_before.partition_point(before);
        let times = loads.map(|load| {
            let rest = self.loads_before[stores..].iter();
            stores += rest.take_while(|&&n| n as usize <= load).count();
            self.time[load + stores]
        });
        times.collect::<Vec<_>>().into()
    }

    /// Begin of a run.
    pub(crate) fn begin(&self, run: usize) -> Option<Beginning> {
        match self.begins.get(run) {
            Some(begin) => *begin,
            None => {
                let run = self.runs.get(run)?;
                let places = (&self.waited, run.sample);
                Beginning::of(&self.loads, run.loads.clone(), places)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_have_times_of_their_own_between_stores() {
        let columns = |rows: usize| RowColumns {
            address: vec![0; rows].into(),
            ..RowColumns::default()
        };
        // The trace has a store, load, load, two stores, load.
        let mut chunk = Chunk {
            loads: columns(3),
            stores: columns(3),
            loads_before: vec![0, 2, 2],
            time: vec![10, 11, 12, 13, 14, 15].into(),
            ..Chunk::default()
        };
        let times = |chunk: &Chunk, rows| chunk.load_times(rows).to_vec();
        assert_eq!(times(&chunk, 0..3), [11, 12, 15]);
        assert_eq!(times(&chunk, 1..2), [12]);
        assert_eq!(times(&chunk, 2..3), [15]);
        (chunk.stores, chunk.loads_before) = (columns(0), Vec::new());
        assert_eq!(times(&chunk, 0..3), [0; 0]);
        chunk.time = vec![11, 12, 15].into();
        assert_eq!(times(&chunk, 1..3), [12, 15]);
    }
}
