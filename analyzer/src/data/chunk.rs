//! Pieces of a trace in memory.

use crate::data::rows::{RowColumns, Run};
use crate::data::samples::{Beginning, Waited};
use arrow_buffer::ScalarBuffer;

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
