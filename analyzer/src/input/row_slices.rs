//! Rows of a complete trace in the order of their times, a few at a time, with only the columns
//! that a cache simulation needs.
//!
//! A row group has a quarter of a million rows. As whole columns, together with the next group,
//! they take ten times the memory of most simulations. Here, columns stay compressed. For each
//! thread one page per column is unpacked, and rows are produced in slices that stay in the
//! processor's caches.

use crate::input::number::Number;
use crate::input::parquet::RowGroup;
use crate::input::plain_column::{PagedNumbers, PagedTimes};
use crate::input::run_length::Steps;
use crate::input::{Data, Trace, quietly};
use crate::util::due::Due;
use arrow_buffer::ScalarBuffer;
use mgz_annotations_schema::row_stream::Batch;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::ops::Range;
use std::sync::mpsc::sync_channel;

/// Rows of a slice. Source: Chosen.
const ROWS_PER_SLICE: usize = 1 << 13;
/// Total number of ready rows over all threads; each thread has at least [`MIN_READY_ROWS`].
/// Source: Chosen.
const MAX_READY_ROWS: usize = 1 << 16;
/// Source: Chosen.
const MIN_READY_ROWS: usize = 1 << 9;
/// A thread is read at once if its row group has other threads and it has less than one in this
/// many of the rows. Its rows take less memory than the columns, and the group is read once for all
/// its threads. Source: Chosen.
const GROUP_SHARE_DIVISOR: usize = 4;
/// Maximum number of slices in the queue: they keep the consumer busy while the next page is
/// unpacked. Source: Chosen.
const MAX_WAITING_SLICES: usize = 4;

/// Row groups and ranges with a thread's rows.
type Places<'a> = VecDeque<(&'a RowGroup, Range<usize>)>;

/// The rows of a trace.
pub struct RowSlices<'a> {
    threads: BTreeMap<(u32, u32), Places<'a>>,
    /// Descriptions of unreadable parts.
    pub damage: Vec<String>,
}

/// Rows in their order.
#[derive(Default)]
pub struct Slice {
    /// Their columns. `runs` has the thread of each.
    pub rows: Batch,
    /// Index of the thread, and the end of its rows in `rows`.
    pub runs: Vec<(usize, usize)>,
    /// Rows that were decoded for this slice. Some may be left for the next slice.
    pub read: u64,
}

impl<'a> RowSlices<'a> {
    /// Opens a trace whose rows are in Parquet files.
    pub fn of(trace: &'a Trace) -> Option<RowSlices<'a>> {
        let Data::Parts(all) = &trace.data else {
            return None;
        };
        let mut slices = RowSlices {
            threads: BTreeMap::new(),
            damage: Vec::new(),
        };
        for group in all.iter().filter(|group| group.rows() > 0) {
            let read = || {
                Ok((
                    group.steps::<u32>("process")?,
                    group.steps::<u32>("thread")?,
                ))
            };
            match quietly(read).and_then(|read| read) {
                Ok((process, thread)) => slices.place(group, &process, &thread),
                Err(cause) => slices.damage.push(group.error(cause).skipped()),
            }
        }
        Some(slices)
    }

    /// Records the threads of a group's rows.
    fn place(&mut self, group: &'a RowGroup, process: &Steps, thread: &Steps) {
        let (mut processes, mut threads) = (process.runs(), thread.runs());
        // Values, and the number of rows that still have them. Both columns have as many rows as
        // the group.
        let (mut process, mut thread) = ((0, 0), (0, 0));
        let mut from = 0;
        while from < group.rows() {
            if process.1 == 0 {
                process = processes.next().unwrap_or((0, usize::MAX));
            }
            if thread.1 == 0 {
                thread = threads.next().unwrap_or((0, usize::MAX));
            }
            let rows = process.1.min(thread.1).min(group.rows() - from);
            (process.1, thread.1) = (process.1 - rows, thread.1 - rows);
            let of = (process.0 as u32, thread.0 as u32);
            let places = self.threads.entry(of).or_default();
            places.push_back((group, from..from + rows));
            from += rows;
        }
    }

    /// Process and thread of each, in the order of their numbers.
    pub fn threads(&self) -> Vec<(u32, u32)> {
        self.threads.keys().copied().collect()
    }

    /// Number of rows.
    pub fn rows(&self) -> u64 {
        let places = self.threads.values().flatten();
        places.map(|(_, rows)| rows.len() as u64).sum()
    }

    /// The process of the row that ran first.
    pub fn first_process(&self) -> u32 {
        let first = |(thread, places): (&(u32, u32), &Places<'a>)| {
            let (group, rows) = places.front()?;
            let mut times = Vec::new();
            let read = || Times::open(group)?.values(rows.start..rows.start + 1, &mut times);
            // Damage is reported later, when rows are read.
            quietly(read).and_then(|read| read).ok()?;
            Some((*times.first()?, *thread))
        };
        let found = match self.threads.len() {
            1 => None,
            _ => self.threads.iter().filter_map(first).min(),
        };
        let of = found.map(|(_, thread)| thread);
        of.or_else(|| self.threads.keys().next().copied())
            .map_or(0, |thread| thread.0)
    }

    /// Passes all rows to `each`, which returns the buffer for reuse. `stores` includes stores. A
    /// second thread reads the rows, if there may be two.
    pub fn visit(&mut self, stores: bool, each: &mut dyn FnMut(Slice) -> Slice) {
        let threads = std::mem::take(&mut self.threads);
        if rayon::current_num_threads() < 2 {
            let (mut order, mut slice) = (Order::of(threads, stores), Slice::default());
            while order.fill(&mut slice) {
                slice = each(slice);
            }
            self.damage.append(&mut order.damage);
            return;
        }
        let (full, slices) = sync_channel::<Slice>(MAX_WAITING_SLICES);
        let (empty, spare) = sync_channel::<Slice>(MAX_WAITING_SLICES + 2);
        let damage = std::thread::scope(|scope| {
            let reader = scope.spawn(move || {
                let mut order = Order::of(threads, stores);
                loop {
                    let mut slice = spare.try_recv().unwrap_or_default();
                    // The receiver exists until this thread has ended.
                    if !order.fill(&mut slice) || full.send(slice).is_err() {
                        return order.damage;
                    }
                }
            });
            for slice in slices {
                let _ = empty.try_send(each(slice));
            }
            match reader.join() {
                Ok(damage) => damage,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        });
        self.damage.extend(damage);
    }
}

/// Rows of all threads, merged.
struct Order<'a> {
    cursors: Vec<Cursor<'a>>,
    /// Threads with rows, except for `now`.
    waiting: BinaryHeap<Reverse<Due>>,
    /// The thread whose rows are next.
    now: Option<usize>,
    /// Maximum number of rows that a thread has ready.
    ready: usize,
    stores: bool,
    /// The group of many threads that was read last.
    shared: Option<Shared<'a>>,
    damage: Vec<String>,
}

impl<'a> Order<'a> {
    fn of(threads: BTreeMap<(u32, u32), Places<'a>>, stores: bool) -> Order<'a> {
        let several = threads.len() > 1;
        let ready = (MAX_READY_ROWS / threads.len().max(1)).clamp(MIN_READY_ROWS, ROWS_PER_SLICE);
        let cursors: Vec<Cursor<'a>> = threads
            .into_values()
            .map(|places| Cursor::new(places, several))
            .collect();
        let mut order = Order {
            cursors,
            waiting: BinaryHeap::new(),
            now: None,
            ready,
            stores,
            shared: None,
            damage: Vec::new(),
        };
        for thread in 0..order.cursors.len() {
            if order.advance(thread) {
                let due = order.cursors[thread].due();
                order.waiting.push(Reverse(Due(due, thread)));
            }
        }
        // Dropped, because threads rarely have few rows of another group.
        order.shared = None;
        order.now = order.waiting.pop().map(|due| due.0.1);
        order
    }

    fn advance(&mut self, thread: usize) -> bool {
        let cursor = &mut self.cursors[thread];
        cursor.advance(self.ready, self.stores, &mut self.shared, &mut self.damage)
    }

    /// The next rows; false if there are none.
    fn fill(&mut self, slice: &mut Slice) -> bool {
        slice.rows.clear();
        slice.runs.clear();
        slice.read = 0;
        while let Some(thread) = self.now {
            let limit = self.waiting.peek().map_or(f64::INFINITY, |due| due.0.0);
            let cursor = &mut self.cursors[thread];
            slice.read += std::mem::take(&mut cursor.read);
            // The thread that is due continues until another one is due.
            let whole = cursor.at == 0 && cursor.end <= ROWS_PER_SLICE && slice.rows.is_empty();
            if whole && limit == f64::INFINITY {
                std::mem::swap(&mut slice.rows, &mut cursor.rows);
                cursor.at = slice.rows.len();
                cursor.end = cursor.at;
            } else {
                let upto = cursor
                    .end
                    .min(cursor.at + ROWS_PER_SLICE - slice.rows.len());
                let behind = |&&time: &&u64| time as f64 <= limit;
                let first = cursor.at + 1;
                let more = cursor.time.get(first..upto).unwrap_or_default();
                let to = match limit == f64::INFINITY {
                    true => upto,
                    false => first + more.iter().take_while(behind).count(),
                };
                cursor.copy(to, &mut slice.rows);
            }
            match slice.runs.last_mut() {
                Some(run) if run.0 == thread => run.1 = slice.rows.len(),
                _ => slice.runs.push((thread, slice.rows.len())),
            }
            self.next(thread, limit);
            if slice.rows.len() >= ROWS_PER_SLICE {
                break;
            }
        }
        !slice.runs.is_empty()
    }

    /// Selects the thread of the next rows. `thread` had the last ones. The other threads have none
    /// before `limit`.
    fn next(&mut self, thread: usize, limit: f64) {
        let cursor = &self.cursors[thread];
        if cursor.at == cursor.end && !self.advance(thread) {
            self.now = self.waiting.pop().map(|due| due.0.1);
            return;
        }
        let due = self.cursors[thread].due();
        if due > limit {
            self.waiting.push(Reverse(Due(due, thread)));
            self.now = self.waiting.pop().map(|due| due.0.1);
        }
    }
}

struct Open<'a> {
    group: &'a RowGroup,
    columns: Columns,
    /// Rows that have not been read yet.
    rows: Range<usize>,
}

impl<'a> Open<'a> {
    fn new(group: &'a RowGroup, rows: Range<usize>, timed: bool) -> Result<Open<'a>, String> {
        Ok(Open {
            group,
            columns: quietly(|| Columns::open(group, timed)).and_then(|opened| opened)?,
            rows,
        })
    }

    /// Reads at most `most` of the next rows, with their times if these are needed.
    fn read(&mut self, most: usize, to: &mut Batch, time: &mut Vec<u64>) -> Result<(), String> {
        let part = self.rows.start..self.rows.end.min(self.rows.start + most);
        self.rows.start = part.end;
        quietly(|| self.columns.read(part, to, time)).and_then(|read| read)
    }
}

/// All rows of a group that many threads share.
struct Shared<'a> {
    group: &'a RowGroup,
    rows: Batch,
    time: Vec<u64>,
}

impl<'a> Shared<'a> {
    /// Reads a group, unless it is the last one read. `None` if it is damaged; its parts are then
    /// read one by one.
    fn of<'s>(
        last: &'s mut Option<Shared<'a>>,
        group: &'a RowGroup,
        timed: bool,
    ) -> Option<&'s Shared<'a>> {
        if !last.as_ref().is_some_and(|l| std::ptr::eq(l.group, group)) {
            let mut all = Shared {
                group,
                rows: Batch::default(),
                time: Vec::new(),
            };
            Open::new(group, 0..group.rows(), timed)
                .and_then(|mut open| open.read(group.rows(), &mut all.rows, &mut all.time))
                .ok()?;
            *last = Some(all);
        }
        last.as_ref()
    }

    fn copy(&self, part: Range<usize>, rows: &mut Batch, time: &mut Vec<u64>) {
        copy(&self.rows, part.clone(), rows);
        time.extend_from_slice(self.time.get(part).unwrap_or_default());
    }
}

/// Appends some rows.
fn copy(from: &Batch, part: Range<usize>, to: &mut Batch) {
    to.address.extend_from_slice(&from.address[part.clone()]);
    to.size.extend_from_slice(&from.size[part.clone()]);
    to.implied.extend_from_slice(&from.implied[part.clone()]);
    to.store.extend_from_slice(&from.store[part]);
}

/// Position of a thread.
struct Cursor<'a> {
    places: Places<'a>,
    open: Option<Open<'a>>,
    /// True if times are needed.
    timed: bool,
    /// Rows that are ready. Those from `at` to `end` are left.
    rows: Batch,
    time: Vec<u64>,
    at: usize,
    end: usize,
    /// Rows that were read and not reported.
    read: u64,
}

impl<'a> Cursor<'a> {
    fn new(places: Places<'a>, timed: bool) -> Cursor<'a> {
        Cursor {
            places,
            open: None,
            timed,
            rows: Batch::default(),
            time: Vec::new(),
            at: 0,
            end: 0,
            read: 0,
        }
    }

    /// Time of the next row. (With a single thread it does not matter.)
    fn due(&self) -> f64 {
        self.time.get(self.at).map_or(0.0, |&time| time as f64)
    }

    /// Makes about `most` of the next rows ready. False if there are none.
    fn advance(
        &mut self,
        most: usize,
        stores: bool,
        shared: &mut Option<Shared<'a>>,
        damage: &mut Vec<String>,
    ) -> bool {
        if self.time.capacity() > 2 * most {
            (self.rows, self.time) = Default::default();
        }
        loop {
            self.rows.clear();
            self.time.clear();
            (self.at, self.end) = (0, 0);
            let Some(open) = &mut self.open else {
                let Some((group, rows)) = self.places.pop_front() else {
                    return false;
                };
                if rows.len() < group.rows() / GROUP_SHARE_DIVISOR
                    && let Some(all) = Shared::of(shared, group, self.timed)
                {
                    self.read += rows.len() as u64;
                    all.copy(rows, &mut self.rows, &mut self.time);
                    if self.leave_loads(stores) {
                        return true;
                    }
                    continue;
                }
                match Open::new(group, rows.clone(), self.timed) {
                    Ok(open) => self.open = Some(open),
                    Err(cause) => damage.push(group.lacks(cause, rows.len()).skipped()),
                }
                continue;
            };
            let left = open.rows.len();
            let read = open.read(most, &mut self.rows, &mut self.time);
            let done = open.rows.is_empty() || read.is_err();
            match read {
                Ok(()) => self.read += self.rows.len() as u64,
                Err(cause) => {
                    damage.push(open.group.lacks(cause, left).skipped());
                    self.rows.clear();
                }
            }
            if done {
                self.open = None;
            }
            if self.leave_loads(stores) {
                return true;
            }
        }
    }

    /// Drops stores unless they are requested. True if rows are ready.
    fn leave_loads(&mut self, stores: bool) -> bool {
        if !stores && self.rows.store.contains(&true) {
            let mut stores = self.rows.store.iter();
            self.time
                .retain(|_| !stores.next().is_some_and(|&store| store));
            self.rows.drop_stores();
        }
        self.end = self.rows.len();
        self.end > 0
    }

    /// Appends the ready rows before row `to`.
    fn copy(&mut self, to: usize, rows: &mut Batch) {
        copy(&self.rows, self.at..to, rows);
        self.at = to;
    }
}

/// The columns of a row group, for rows that ascend.
struct Columns {
    address: Column<u64>,
    size: Column<u32>,
    implied: Column<u16>,
    /// None if no row is a store.
    store: Option<Vec<bool>>,
    time: Option<Times>,
}

impl Columns {
    fn open(group: &RowGroup, timed: bool) -> Result<Columns, String> {
        Ok(Columns {
            address: Column::open(group, "address")?,
            size: Column::open(group, "size")?,
            implied: Column::open(group, "implied_const")?,
            store: group.flags("store")?,
            time: timed.then(|| Times::open(group)).transpose()?,
        })
    }

    fn read(
        &mut self,
        rows: Range<usize>,
        to: &mut Batch,
        time: &mut Vec<u64>,
    ) -> Result<(), String> {
        self.address.values(rows.clone(), &mut to.address)?;
        self.size.values(rows.clone(), &mut to.size)?;
        self.implied.values(rows.clone(), &mut to.implied)?;
        if let Some(times) = &mut self.time {
            times.values(rows.clone(), time)?;
        }
        match &self.store {
            Some(store) => to.store.extend_from_slice(&store[rows]),
            None => to.store.resize(rows.len(), false),
        }
        Ok(())
    }
}

/// A column of a row group.
enum Column<T: Number> {
    Paged(&'static str, PagedNumbers),
    /// All values, if the recorder did not store the column in its usual form.
    Whole(ScalarBuffer<T>),
}

impl<T: Number> Column<T> {
    fn open(group: &RowGroup, name: &'static str) -> Result<Column<T>, String> {
        let (column, bytes) = group.column(name)?;
        Ok(match PagedNumbers::new::<T>(bytes, column, group.rows()) {
            Some(paged) => Column::Paged(name, paged),
            None => Column::Whole(group.numbers(name)?),
        })
    }

    fn values(&mut self, rows: Range<usize>, to: &mut Vec<T>) -> Result<(), String> {
        match self {
            Column::Paged(name, paged) => paged.values(rows, to).ok_or_else(|| damaged(name)),
            Column::Whole(values) => {
                to.extend_from_slice(&values[rows]);
                Ok(())
            }
        }
    }
}

/// Times of a row group.
enum Times {
    Paged(PagedTimes),
    Whole(ScalarBuffer<u64>),
}

impl Times {
    const NAME: &str = "time_ns";

    fn open(group: &RowGroup) -> Result<Times, String> {
        let (column, bytes) = group.column(Times::NAME)?;
        Ok(match PagedTimes::new(bytes, column, group.rows()) {
            Some(paged) => Times::Paged(paged),
            None => Times::Whole(group.numbers(Times::NAME)?),
        })
    }

    fn values(&mut self, rows: Range<usize>, to: &mut Vec<u64>) -> Result<(), String> {
        match self {
            Times::Paged(paged) => paged.values(rows, to).ok_or_else(|| damaged(Times::NAME)),
            Times::Whole(values) => {
                to.extend_from_slice(&values[rows]);
                Ok(())
            }
        }
    }
}

fn damaged(name: &str) -> String {
    format!("column {name:?} is damaged")
}
