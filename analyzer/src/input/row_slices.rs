//! Rows of the only thread of a trace, a few at a time, and no more of them than a simulation of caches
//! takes.
//!
//! A row group has a quarter of a million rows. Made into whole columns, and the next ones meanwhile,
//! they take ten times the memory of most simulations. Here its pages are unpacked and kept as they are
//! stored; their rows are made in slices that stay in the processor's caches.

use crate::input::parquet::RowGroup;
use crate::input::plain_column::{Number, Unpacked};
use crate::input::{Data, Trace, quietly};
use mgz_annotations_schema::row_stream::Batch;
use polars_arrow::types::NativeType;
use polars_buffer::Buffer;
use std::ops::Range;
use std::sync::mpsc::sync_channel;

/// Rows of a slice.
const SLICE: usize = 1 << 13;
/// Slices that wait to be looked at: while the next row group is unpacked, there is something to do.
const WAITING: usize = 16;

/// The rows of a trace with one thread.
pub(crate) struct RowSlices<'a> {
    groups: Vec<&'a RowGroup>,
    /// Process and thread.
    pub(crate) thread: (u32, u32),
    /// What could not be read.
    pub(crate) damage: Vec<String>,
}

impl<'a> RowSlices<'a> {
    /// Of a trace with one thread whose rows are in Parquet files.
    pub(crate) fn of(trace: &'a Trace) -> Option<RowSlices<'a>> {
        let Data::Parts(all) = &trace.data else {
            return None;
        };
        let mut found = None;
        let (mut groups, mut damage) = (Vec::new(), Vec::new());
        for group in all.iter().filter(|group| group.rows() > 0) {
            let read = || {
                Ok((
                    group.steps::<u32>("process")?,
                    group.steps::<u32>("thread")?,
                ))
            };
            match quietly(read).and_then(|read| read) {
                Ok((process, thread)) => {
                    let one = (process.only()? as u32, thread.only()? as u32);
                    if *found.get_or_insert(one) != one {
                        return None;
                    }
                    groups.push(group);
                }
                Err(cause) => damage.push(group.error(cause).to_string()),
            }
        }
        Some(RowSlices {
            groups,
            thread: found?,
            damage,
        })
    }

    /// How many there are.
    pub(crate) fn rows(&self) -> u64 {
        self.groups.iter().map(|group| group.rows() as u64).sum()
    }

    /// Gives all rows to `each`, which returns the memory to be filled again. They are read by a thread
    /// of its own, unless there shall be one only.
    pub(crate) fn visit(&mut self, each: &mut dyn FnMut(Batch) -> Batch) {
        let (groups, thread) = (&self.groups, self.thread);
        if rayon::current_num_threads() < 2 {
            let mut spare = Batch::default();
            self.damage.extend(read(groups, thread, &mut |fill| {
                let mut batch = std::mem::take(&mut spare);
                fill(&mut batch);
                spare = each(batch);
            }));
            return;
        }
        let (full, batches) = sync_channel::<Batch>(WAITING);
        let (empty, spare) = sync_channel::<Batch>(WAITING + 2);
        let damage = std::thread::scope(|scope| {
            let reader = scope.spawn(move || {
                read(groups, thread, &mut |fill| {
                    let mut batch = spare.try_recv().unwrap_or_default();
                    fill(&mut batch);
                    // It is there until we have ended.
                    let _ = full.send(batch);
                })
            });
            for batch in batches {
                let _ = empty.try_send(each(batch));
            }
            match reader.join() {
                Ok(damage) => damage,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        });
        self.damage.extend(damage);
    }
}

/// Gives what fills a batch with the next rows to `each`, for all rows; returns what could not be read.
fn read(
    groups: &[&RowGroup],
    thread: (u32, u32),
    each: &mut dyn FnMut(&dyn Fn(&mut Batch)),
) -> Vec<String> {
    let mut damage = Vec::new();
    let mut columns = Columns::default();
    for group in groups {
        let filled = quietly(|| columns.fill(group)).and_then(|filled| filled);
        if let Err(cause) = filled {
            damage.push(group.error(cause).skipped());
            continue;
        }
        let rows = group.rows();
        for from in (0..rows).step_by(SLICE) {
            each(&|batch| columns.slice(thread, from..rows.min(from + SLICE), batch));
        }
    }
    damage
}

/// The columns of a row group.
#[derive(Default)]
struct Columns {
    address: Column<u64>,
    size: Column<u32>,
    implied: Column<u16>,
    /// None if no row is a store.
    store: Option<Vec<bool>>,
}

impl Columns {
    fn fill(&mut self, group: &RowGroup) -> Result<(), String> {
        self.address.fill(group, "address")?;
        self.size.fill(group, "size")?;
        self.implied.fill(group, "implied_const")?;
        self.store = group.flags("store")?;
        Ok(())
    }

    fn slice(&self, thread: (u32, u32), rows: Range<usize>, to: &mut Batch) {
        to.clear();
        (to.process, to.thread) = thread;
        self.address.slice(rows.clone(), &mut to.address);
        self.size.slice(rows.clone(), &mut to.size);
        self.implied.slice(rows.clone(), &mut to.implied);
        match &self.store {
            Some(store) => to.store.extend_from_slice(&store[rows]),
            None => to.store.resize(rows.len(), false),
        }
    }
}

/// A column of a row group.
struct Column<T> {
    unpacked: Unpacked,
    /// All values instead, where it is stored in another way than the recorder's.
    values: Option<Buffer<T>>,
}

impl<T> Default for Column<T> {
    fn default() -> Column<T> {
        Column {
            unpacked: Unpacked::default(),
            values: None,
        }
    }
}

impl<T: Number + NativeType> Column<T> {
    fn fill(&mut self, group: &RowGroup, name: &str) -> Result<(), String> {
        let (column, bytes) = group.column(name)?;
        self.values = match self.unpacked.fill::<T>(bytes, column, group.rows()) {
            Some(()) => None,
            None => Some(group.numbers(name)?),
        };
        Ok(())
    }

    fn slice(&self, rows: Range<usize>, to: &mut Vec<T>) {
        match &self.values {
            Some(values) => to.extend_from_slice(&values[rows]),
            None => self.unpacked.values(rows, to),
        }
    }
}
