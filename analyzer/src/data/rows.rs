//! Rows in memory: columns as slices, and the borders of samples.

use crate::data::group::Group;
use crate::data::memory_units::LINE_BYTES;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::chunk::Chunk;

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
