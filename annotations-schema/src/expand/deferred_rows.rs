//! Rows in a compact form: only the data from records is stored; the other columns follow from the
//! tables.
//!
//! Expansion processes the records of a thread sequentially, so all work that can be done later or
//! in another thread is deferred: a row has 16 bytes here instead of 58, and its columns are
//! computed by the code that needs them, in any order and in pieces that fit into the cache.

use crate::expand::lookup::{Plain, Tables};
use crate::expand::pass::Pass;
use crate::expand::{Limit, RowBatch};
use crate::row_stream::RowCode;
use mgz_abi::slot::Slot;
use std::ops::Range;

/// Maximum number of records, and of rows, of a pass that is expanded without loops of variable
/// length: most passes have few, and their number is unpredictable for branch prediction.
pub(crate) const FEW_RECORDS: usize = 4;

/// Rows in order, by thread.
#[derive(Clone, Debug, Default)]
pub struct Staged {
    /// The rows. Reserved items behind `len` have no meaning.
    items: Vec<Item>,
    len: usize,
    /// (row, bytes) of rows whose size differs from the site's.
    sizes: Vec<(usize, u32)>,
    /// (row, implied loads) of rows whose number differs from that of a whole pass; the last entry
    /// of a row counts.
    implied: Vec<(usize, u16)>,
    /// (end, module): the module of the rows from the previous end up to this one.
    modules: Vec<(usize, u16)>,
    /// Module of the rows behind the last end.
    current: u16,
    stretches: Vec<Stretch>,
    /// (end, clock): the clock of the rows from the previous end up to this one.
    clocks: Vec<(usize, Clock)>,
}

/// A row.
#[derive(Clone, Copy, Debug, Default)]
struct Item {
    address: u64,
    /// Index in [`Tables::rows`].
    row: u32,
    /// Index of the pass's first slot in the segment.
    slot: u32,
}

/// Rows of one segment.
#[derive(Clone, Debug)]
struct Stretch {
    end: usize,
    /// Sequence number of the first row.
    seq: u64,
    sample: u32,
}

/// The load to which a row belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Index into the manifest's modules.
    pub module: u16,
    /// Site number in the module's sidecar.
    pub site: u32,
    /// A store.
    pub store: bool,
    /// Number of Constant loads that this row represents besides itself.
    pub implied_const: u16,
}

/// Known numbers of instructions, by row of the tables, with their module. They stay valid while
/// tables grow at their end.
#[derive(Debug, Default)]
pub struct CodeNumbers(Vec<(u16, u32)>);

/// Times at which the slots of a segment, or of a part of it, were written, evenly spaced from its
/// begin to its end. They are fixed-point numbers, which are faster than floating-point ones.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    /// First slot.
    first: u32,
    begin: u64,
    span: u64,
    /// Nanoseconds per slot, times 2^`shift`, rounded up. Whole numbers stay whole, and no time is
    /// later than that of a later slot.
    step: u64,
    pub(crate) shift: u32,
}

impl Clock {
    /// The clock between a slot with its time and the end of the part with its time.
    pub(crate) fn between((first, begin): (usize, u64), (end, end_ns): (usize, u64)) -> Clock {
        // Limited to a signed number, so that one bit is free for the rounding.
        let span = end_ns.saturating_sub(begin).min(i64::MAX as u64);
        let shift = span.leading_zeros() - 1;
        let slots = end.saturating_sub(first).max(1);
        let step = (u128::from(span) << shift).div_ceil(slots as u128) as u64;
        Clock {
            first: first as u32,
            begin,
            span,
            step,
            shift,
        }
    }

    /// A clock that gives the time `at` to all slots.
    pub(crate) fn stopped(at: u64) -> Clock {
        Clock {
            first: 0,
            begin: at,
            span: 0,
            step: 0,
            shift: 0,
        }
    }

    /// The time of a slot of this part, or of its end.
    #[inline]
    pub(crate) fn at(&self, slot: u32) -> u64 {
        let slot = u64::from(slot.saturating_sub(self.first));
        self.begin + (slot.wrapping_mul(self.step) >> self.shift).min(self.span)
    }
}

macro_rules! from_table {
    ($($(#[$doc:meta])* $name:ident: $type:ty),*) => {
        $($(#[$doc])*
        pub fn $name(&self, tables: &Tables, rows: Range<usize>, out: &mut Vec<$type>) {
            out.extend(self.items[rows].iter().map(|item| tables.rows[item.row as usize].$name));
        })*
    };
}

/// Columns of some of the rows, appended to `out`. The tables must be those of the expander that
/// has made the rows.
impl Staged {
    from_table! {
        /// Link-time addresses of the original instructions.
        ip: u64,
        /// Site numbers in their modules' sidecars.
        site: u32,
        /// `CLASS_*`.
        class: u8,
        /// True if the rows are stores.
        store: bool
    }

    /// Sizes, bytes.
    pub fn size(&self, tables: &Tables, rows: Range<usize>, out: &mut Vec<u32>) {
        let first = out.len();
        out.extend(
            self.items[rows.clone()]
                .iter()
                .map(|item| tables.rows[item.row as usize].size),
        );
        amend(&self.sizes, rows, &mut out[first..]);
    }

    /// Indexes into the manifest's modules.
    pub fn module(&self, rows: Range<usize>, out: &mut Vec<u16>) {
        runs(
            &self.modules,
            rows,
            |run| run.0,
            |part, &(_, module)| out.resize(out.len() + part.len(), module),
        );
    }

    /// Sample numbers.
    pub fn sample(&self, rows: Range<usize>, out: &mut Vec<u32>) {
        runs(
            &self.stretches,
            rows,
            |run| run.end,
            |part, stretch| out.resize(out.len() + part.len(), stretch.sample),
        );
    }

    /// Order within their threads.
    pub fn seq(&self, rows: Range<usize>, out: &mut Vec<u64>) {
        let begin = |at: usize| self.stretches[..at].last().map_or(0, |before| before.end);
        let mut at = self
            .stretches
            .partition_point(|stretch| stretch.end <= rows.start);
        runs(
            &self.stretches,
            rows,
            |run| run.end,
            |part, stretch| {
                let first = stretch.seq + (part.start - begin(at)) as u64;
                at += 1;
                out.extend(first..first + part.len() as u64);
            },
        );
    }

    /// The module of all these rows, if it is the same.
    pub fn same_module(&self, rows: &Range<usize>) -> Option<u16> {
        let first = self.modules.partition_point(|run| run.0 <= rows.start);
        let &(end, module) = self.modules.get(first)?;
        (end >= rows.end).then_some(module)
    }

    /// The sample of all these rows, if it is the same.
    pub fn same_sample(&self, rows: &Range<usize>) -> Option<u32> {
        let first = self
            .stretches
            .partition_point(|stretch| stretch.end <= rows.start);
        let sample = self.stretches.get(first)?.sample;
        let other = self.stretches[first..]
            .iter()
            .take_while(|stretch| stretch.sample == sample)
            .last()?;
        (other.end >= rows.end).then_some(sample)
    }

    /// `seq` of the first of these rows, if it increases by one from row to row.
    pub fn counting_seq(&self, rows: &Range<usize>) -> Option<u64> {
        let first = self
            .stretches
            .partition_point(|stretch| stretch.end <= rows.start);
        let begin = |at: usize| self.stretches[..at].last().map_or(0, |before| before.end);
        let seq = |at: usize, row: usize| self.stretches[at].seq + (row - begin(at)) as u64;
        let counts_on = |at: &usize| seq(at - 1, begin(*at)) == self.stretches[*at].seq;
        let last = first
            + self
                .stretches
                .get(first..)?
                .partition_point(|stretch| stretch.end < rows.end);
        (last < self.stretches.len() && (first + 1..=last).all(|at| counts_on(&at)))
            .then(|| seq(first, rows.start))
    }

    /// CLOCK_MONOTONIC, ns.
    pub fn time_ns(&self, rows: Range<usize>, out: &mut Vec<u64>) {
        runs(
            &self.clocks,
            rows,
            |run| run.0,
            |part, (_, clock)| out.extend(self.items[part].iter().map(|item| clock.at(item.slot))),
        );
    }

    /// Load addresses.
    pub fn address(&self, rows: Range<usize>, out: &mut Vec<u64>) {
        out.extend(self.items[rows].iter().map(|item| item.address));
    }

    /// Numbers of Constant loads that the rows represent besides themselves.
    pub fn implied_const(&self, tables: &Tables, rows: Range<usize>, out: &mut Vec<u16>) {
        let first = out.len();
        out.extend(
            self.items[rows.clone()]
                .iter()
                .map(|item| tables.rows[item.row as usize].implied),
        );
        amend(&self.implied, rows, &mut out[first..]);
    }

    /// Calls `each` for these rows in order, with the data that identifies the loads.
    pub fn loads(&self, tables: &Tables, rows: Range<usize>, mut each: impl FnMut(Load)) {
        let mut implied = Vec::with_capacity(rows.len());
        self.implied_const(tables, rows.clone(), &mut implied);
        let mut implied = implied.into_iter();
        runs(
            &self.modules,
            rows,
            |run| run.0,
            |part, &(_, module)| {
                for (item, implied_const) in self.items[part].iter().zip(&mut implied) {
                    let row = &tables.rows[item.row as usize];
                    each(Load {
                        module,
                        site: row.site,
                        store: row.store,
                        implied_const,
                    });
                }
            },
        );
    }

    /// Number of stores among these rows.
    pub fn stores(&self, tables: &Tables, rows: Range<usize>) -> u64 {
        let items = self.items[rows].iter();
        items
            .map(|item| u64::from(tables.rows[item.row as usize].store))
            .sum()
    }

    /// Code numbers of rows. `number` assigns a number to an instruction; it is called once for
    /// each that is not in `known`.
    pub fn code(
        &self,
        tables: &Tables,
        rows: Range<usize>,
        known: &mut CodeNumbers,
        mut number: impl FnMut(RowCode) -> u32,
        out: &mut Vec<u32>,
    ) {
        known.0.resize(tables.rows.len(), (0, u32::MAX));
        runs(
            &self.modules,
            rows,
            |run| run.0,
            |part, &(_, module)| {
                out.extend(self.items[part].iter().map(|item| {
                    let found = &mut known.0[item.row as usize];
                    // The same row may belong to two modules, since a file may be loaded twice.
                    if found.0 != module || found.1 == u32::MAX {
                        let row = &tables.rows[item.row as usize];
                        let number = number(RowCode {
                            module,
                            site: row.site,
                            class: row.class,
                            store: row.store,
                        });
                        *found = (module, number);
                    }
                    found.1
                }));
            },
        );
    }

    /// The sample of a row, and the first later row of another sample.
    pub fn rest_of_sample(&self, row: usize) -> (u32, usize) {
        let first = self.stretches.partition_point(|stretch| stretch.end <= row);
        let rest = &self.stretches[first.min(self.stretches.len())..];
        let sample = rest.first().map_or(0, |stretch| stretch.sample);
        let same = rest.iter().take_while(|stretch| stretch.sample == sample);
        (sample, same.last().map_or(self.len, |last| last.end))
    }

    /// The sample of a row.
    pub fn sample_of(&self, row: usize) -> Option<u32> {
        self.stretches
            .get(self.stretches.partition_point(|stretch| stretch.end <= row))
            .map(|stretch| stretch.sample)
    }

    /// Appends all columns of all rows.
    pub(crate) fn fill(&self, tables: &Tables, out: &mut RowBatch) {
        let all = 0..self.len;
        self.seq(all.clone(), &mut out.seq);
        self.sample(all.clone(), &mut out.sample);
        self.time_ns(all.clone(), &mut out.time_ns);
        self.module(all.clone(), &mut out.module);
        self.ip(tables, all.clone(), &mut out.ip);
        self.site(tables, all.clone(), &mut out.site);
        self.size(tables, all.clone(), &mut out.size);
        self.class(tables, all.clone(), &mut out.class);
        self.store(tables, all.clone(), &mut out.store);
        self.address(all.clone(), &mut out.address);
        self.implied_const(tables, all, &mut out.implied_const);
    }
}

/// Replaces values of a column. `column`: the values of `rows`.
fn amend<T: Copy>(values: &[(usize, T)], rows: Range<usize>, column: &mut [T]) {
    let from = values.partition_point(|&(row, _)| row < rows.start);
    for &(row, value) in values[from..]
        .iter()
        .take_while(|&&(row, _)| row < rows.end)
    {
        column[row - rows.start] = value;
    }
}

/// Calls `each` for each run that overlaps with `rows`, with the part of `rows` in it.
fn runs<T>(
    all: &[T],
    rows: Range<usize>,
    end: impl Fn(&T) -> usize,
    mut each: impl FnMut(Range<usize>, &T),
) {
    let first = all.partition_point(|run| end(run) <= rows.start);
    let mut at = rows.start;
    for run in &all[first..] {
        if at >= rows.end {
            break;
        }
        let part = at..end(run).min(rows.end);
        at = part.end;
        each(part, run);
    }
}

impl Staged {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Removes all rows and keeps the memory.
    pub fn clear(&mut self) {
        self.len = 0;
        self.sizes.clear();
        self.implied.clear();
        self.modules.clear();
        self.stretches.clear();
        self.clocks.clear();
    }

    /// Makes room for [`FEW_RECORDS`] rows behind the last.
    #[inline(always)]
    fn reserve(&mut self) {
        if self.len + FEW_RECORDS > self.items.len() {
            self.grow();
        }
    }

    #[cold]
    fn grow(&mut self) {
        self.items
            .resize((2 * self.items.len()).max(1024), Item::default());
    }

    /// Appends a whole pass over `rows` plain sites, at most [`FEW_RECORDS`], from number `first`
    /// of the tables on. `pass`: the slots from the pass's first on; `slot`: the number of that
    /// slot.
    #[inline(always)]
    pub(crate) fn few(
        &mut self,
        pass: &[Slot; FEW_RECORDS + 1],
        plain: &[Plain; FEW_RECORDS],
        first: u32,
        rows: usize,
        bias: u64,
        slot: u32,
    ) {
        self.reserve();
        let Some(to) = self
            .items
            .get_mut(self.len..)
            .and_then(|rest| rest.first_chunk_mut::<FEW_RECORDS>())
        else {
            return;
        };
        let item = |k: usize| Item {
            address: plain[k].address(pass, bias),
            row: first.wrapping_add(k as u32),
            slot,
        };
        to[0] = item(0);
        if rows > 1 {
            to[1] = item(1);
            if rows > 2 {
                (to[2], to[3]) = (item(2), item(3));
            }
        }
        self.len += rows;
    }

    /// Like [`Staged::few`], for any number of sites.
    pub(crate) fn many(
        &mut self,
        pass: &[Slot],
        tables: &Tables,
        rows: Range<u32>,
        bias: u64,
        slot: u32,
    ) {
        let payload = |record: u8| pass.get(usize::from(record)).map_or(0, |s| s.payload);
        for (number, row) in rows
            .clone()
            .zip(&tables.rows[rows.start as usize..rows.end as usize])
        {
            self.push(Item {
                address: row.plain(payload(row.a), payload(row.b), bias),
                row: number,
                slot,
            });
        }
    }

    /// Appends the rows of `pass` that lie before `limit` and were not emitted yet; returns how
    /// many could not be emitted.
    pub(crate) fn part(
        &mut self,
        pass: &mut Pass,
        tables: &Tables,
        limit: Limit,
        slot: u32,
    ) -> u64 {
        pass.rows(tables, limit, |row, address, size| {
            if let Some(size) = size {
                self.sizes.push((self.len, size));
            }
            self.push(Item { address, row, slot });
        })
    }

    fn push(&mut self, item: Item) {
        self.reserve();
        self.items[self.len] = item;
        self.len += 1;
    }

    /// Assigns implied loads to rows from `first` on. Returns the number that does not fit.
    pub(crate) fn imply(&mut self, tables: &Tables, first: usize, mut implied: u64) -> u64 {
        for (at, item) in self.items[..self.len].iter().enumerate().skip(first) {
            let value = implied.min(u64::from(u16::MAX)) as u16;
            if value != tables.rows[item.row as usize].implied {
                self.implied.push((at, value));
            }
            implied -= u64::from(value);
        }
        implied
    }

    /// Sets the module of the rows that are appended from here on.
    #[inline(always)]
    pub(crate) fn of_module(&mut self, module: u16) {
        if module != self.current {
            self.end_module();
            self.current = module;
        }
    }

    fn end_module(&mut self) {
        let end = self.modules.last().map_or(0, |last| last.0);
        match self.modules.last_mut() {
            Some(last) if last.1 == self.current => last.0 = self.len,
            _ if end < self.len => self.modules.push((self.len, self.current)),
            _ => {}
        }
    }

    /// Sets the clock of the rows that have none yet.
    pub(crate) fn clock(&mut self, clock: Clock) {
        if self.clocks.last().map_or(0, |before| before.0) < self.len {
            self.clocks.push((self.len, clock));
        }
    }

    /// Makes a stretch of the rows that belong to none yet. Returns their number. To be called
    /// before anything is read.
    pub(crate) fn stretch(&mut self, sample: u32, seq: u64, clock: Clock) -> u64 {
        self.end_module();
        self.clock(clock);
        let begin = self.stretches.last().map_or(0, |before| before.end);
        if begin < self.len {
            self.stretches.push(Stretch {
                end: self.len,
                seq,
                sample,
            });
        }
        (self.len - begin) as u64
    }
}
