//! Expansion of slots to rows: the loads and addresses that follow from the recorded payloads.
//!
//! It is pure: slots in, rows out; no files, no clocks. It must keep up with conversion (tens of
//! millions of rows a second on a core), so everything that depends only on a record is precomputed
//! ([`Tables`]), and a region with adjacent records takes a fast path.
//!
//! # Rules
//!
//! - A *pass* through a region gives the rows of its sites in program order.
//! - A pass stays open until the next record shows that it is over, because a signal may split it:
//!   loads before the interrupted instruction come before the handler's, the others after its
//!   return. A handler that changed the context (`MARK_CUT`) ends the pass at the interrupted
//!   instruction.
//! - A pass whose first records are missing (a window's first) gives the rows with complete
//!   records; the others are counted as *torn*.
//! - A pass that ends early (a window's last, a gap) gives only rows that precede the first missing
//!   record; the others are counted as *cut*.
//! - Implied Constant loads go to the pass's first row; if it has none (e.g. a string instruction
//!   that ran zero times), to the next row of the same sample, so that their number stays correct.
//!   Those without a row before the sample ends are counted. In a torn or cut pass, only implied
//!   loads between its first and last recorded point count, and those of earlier blocks that belong
//!   to it only if its first record exists.
//! - Ids without a module are counted, never guessed.
//!
//! `seq` counts the rows of a thread in `full`. In windows it is 65,536 × the index of the window's
//! first slot among all slots of the thread, plus the row's number in the window, so that it shows
//! order and gaps. `sample` is one number per window; in `full` one per thread and gap-free
//! stretch. `time_ns` is interpolated by slot between the segment's ends and the times of the marks
//! in it (`MARK_TIME`): rows before a mark have earlier times, those after it do not.

pub(crate) mod deferred_rows;
pub(crate) mod lookup;
pub(crate) mod module_placement;
mod pass;
#[cfg(test)]
mod tests;

pub use crate::expand::deferred_rows::{CodeNumbers, Load, Staged};
pub use crate::expand::lookup::Tables;
pub use crate::expand::module_placement::ModuleMap;

use crate::expand::deferred_rows::{Clock, FEW_RECORDS};
use crate::spill::{SegmentHeader, SegmentKind};
use mgz_abi::slot::{
    MARK_CUT, MARK_FIRST, MARK_REPEAT, MARK_SIGNAL_ENTER, MARK_SIGNAL_RETURN, MARK_TIME, Slot,
};
use pass::{Limit, Pass};
use std::ops::RangeInclusive;

/// Rows as columns, as in [`crate::manifest::COLUMNS`] without `process` and `thread`. All have the
/// same length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowBatch {
    /// Order within the thread.
    pub seq: Vec<u64>,
    /// Sample number.
    pub sample: Vec<u32>,
    /// CLOCK_MONOTONIC, ns.
    pub time_ns: Vec<u64>,
    /// Index into the manifest's modules.
    pub module: Vec<u16>,
    /// Link-time address of the original instruction.
    pub ip: Vec<u64>,
    /// Site number in the module's sidecar.
    pub site: Vec<u32>,
    /// Load address.
    pub address: Vec<u64>,
    /// Sizes, bytes.
    pub size: Vec<u32>,
    /// `CLASS_*`.
    pub class: Vec<u8>,
    /// True for a store.
    pub store: Vec<bool>,
    /// Number of Constant loads that each row represents besides itself.
    pub implied_const: Vec<u16>,
}

impl RowBatch {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.address.len()
    }

    /// True if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.address.is_empty()
    }

    /// Removes all rows and keeps the memory.
    pub fn clear(&mut self) {
        self.seq.clear();
        self.sample.clear();
        self.time_ns.clear();
        self.module.clear();
        self.ip.clear();
        self.site.clear();
        self.address.clear();
        self.size.clear();
        self.class.clear();
        self.store.clear();
        self.implied_const.clear();
    }
}

/// Counts of the input and output of an [`Expander`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Slots read.
    pub slots: u64,
    /// Records read (without markers and raw slots).
    pub records: u64,
    /// Rows made.
    pub rows: u64,
    /// Implied Constant loads on those rows.
    pub implied: u64,
    /// Implied Constant loads without a row.
    pub implied_unplaced: u64,
    /// Loads whose payload was written before their sample's start.
    pub torn: u64,
    /// Loads given up because their pass ended early.
    pub cut: u64,
    /// Slots with an id of no module.
    pub unknown: u64,
    /// Number of samples.
    pub samples: u64,
}

impl Counters {
    /// Adds the counts of another expander.
    pub fn add(&mut self, other: &Counters) {
        self.slots += other.slots;
        self.records += other.records;
        self.rows += other.rows;
        self.implied += other.implied;
        self.implied_unplaced += other.implied_unplaced;
        self.torn += other.torn;
        self.cut += other.cut;
        self.unknown += other.unknown;
        self.samples += other.samples;
    }
}

/// A module as loaded by one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Number of the sidecar among those given to [`Tables::new`].
    pub sidecar: usize,
    /// Value of the `module` column.
    pub module: u16,
    /// Load bias.
    pub bias: u64,
}

/// A placement with its id range.
#[derive(Clone, Copy, Debug)]
struct Bound {
    first: u32,
    count: u32,
    /// Index of the sidecar's first record in the tables.
    records: u32,
    module: u16,
    bias: u64,
}

/// A pass that a signal interrupted.
struct Suspended {
    /// Payload of the marker.
    at: u64,
    pass: Option<Pass>,
}

/// Nanoseconds that the time of a mark may be ahead of the clock. A mark with a larger distance to
/// its segment is not the runtime's.
const MARKS_AHEAD: u64 = 1_000_000;

/// Maximum number of interrupted passes kept; those of handlers left by `longjmp` are never
/// resumed.
const MAX_SUSPENDED: usize = 256;

/// Turns one thread's segments into rows.
pub struct Expander<'a> {
    tables: &'a Tables,
    bounds: Vec<Bound>,
    /// The last used placement.
    current: usize,
    open: Option<Pass>,
    suspended: Vec<Suspended>,
    /// Implied loads that wait for a row.
    pending_implied: u64,
    counters: Counters,
    /// A sample has started.
    started: bool,
    /// The sample has just begun: its first slots may be raw ones whose head is missing.
    at_start: bool,
    sample: u32,
    seq: u64,
    /// Smallest next value of `seq`, over all samples of this thread.
    seq_floor: u64,
    /// First slot that a segment must have to continue the last one.
    next_slot: u64,
    /// End time of the previous segment.
    last_time: u64,
    /// A slot of the current segment, and its time: the last mark, or the segment's begin.
    since: (usize, u64),
    /// Valid range of times for marks of the current segment.
    span: RangeInclusive<u64>,
    /// Buffers of passes that ended.
    spare: Vec<Vec<Slot>>,
    /// The next record is a repetition and is skipped.
    repeated: bool,
    /// Rows of the current segment, if all columns are requested.
    staged: Staged,
}

impl<'a> Expander<'a> {
    /// An expander for one thread, whose process has these modules. If id ranges of modules
    /// overlap, the earlier placement wins.
    pub fn new(tables: &'a Tables, placements: &[Placement]) -> Self {
        let mut expander = Expander {
            tables,
            bounds: Vec::new(),
            current: 0,
            open: None,
            suspended: Vec::new(),
            pending_implied: 0,
            counters: Counters::default(),
            started: false,
            at_start: false,
            sample: 0,
            seq: 0,
            seq_floor: 0,
            next_slot: 0,
            last_time: 0,
            since: (0, 0),
            span: 0..=0,
            spare: Vec::new(),
            repeated: false,
            staged: Staged::default(),
        };
        expander.place(placements);
        expander
    }

    /// Replaces the modules, e.g. because one was loaded or unloaded since the last segment.
    pub fn place(&mut self, placements: &[Placement]) {
        self.bounds.clear();
        for p in placements {
            if let Some(ids) = self.tables.ids(p.sidecar) {
                self.bounds.push(Bound {
                    first: ids.first,
                    count: ids.count,
                    records: ids.records,
                    module: p.module,
                    bias: p.bias,
                });
            }
        }
        self.current = 0;
    }

    /// Continues with other tables, which begin with the content of the present ones and have more
    /// sidecars after it. Call [`Expander::place`] afterwards.
    pub fn with_tables(self, tables: &Tables) -> Expander<'_> {
        Expander {
            tables,
            bounds: self.bounds,
            current: self.current,
            open: self.open,
            suspended: self.suspended,
            pending_implied: self.pending_implied,
            counters: self.counters,
            started: self.started,
            at_start: self.at_start,
            sample: self.sample,
            seq: self.seq,
            seq_floor: self.seq_floor,
            next_slot: self.next_slot,
            last_time: self.last_time,
            since: self.since,
            span: self.span,
            spare: self.spare,
            repeated: self.repeated,
            staged: Staged::default(),
        }
    }

    /// Counts so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Appends the rows of the thread's next segment to `out`. `next_sample`: the number of a new
    /// sample; it is incremented. The last pass of a `full` segment stays open for the next one.
    pub fn segment(
        &mut self,
        header: &SegmentHeader,
        slots: &[Slot],
        next_sample: &mut u32,
        out: &mut RowBatch,
    ) {
        self.whole(out, |expander, staged| {
            expander.stage(header, slots, next_sample, staged)
        });
    }

    /// Ends the sample: open passes are closed. To be called after a thread's last segment.
    pub fn finish(&mut self, out: &mut RowBatch) {
        self.whole(out, |expander, staged| expander.finish_staged(staged));
    }

    /// Appends all columns of the rows that `work` makes.
    fn whole(&mut self, out: &mut RowBatch, work: impl FnOnce(&mut Self, &mut Staged)) {
        let mut staged = std::mem::take(&mut self.staged);
        work(self, &mut staged);
        staged.fill(self.tables, out);
        staged.clear();
        self.staged = staged;
    }

    /// Like [`Expander::segment`], without the columns that can be computed later.
    pub fn stage(
        &mut self,
        header: &SegmentHeader,
        slots: &[Slot],
        next_sample: &mut u32,
        out: &mut Staged,
    ) {
        let continues =
            self.started && header.kind == SegmentKind::Full && header.first_slot == self.next_slot;
        if !continues {
            self.finish_staged(out);
            self.start(header, next_sample);
        }
        let written = if header.ring_slots == 0 {
            slots.len() as u64
        } else {
            header.written()
        };
        self.next_slot = header.first_slot.wrapping_add(written);
        // Times of marks may be a little ahead of the clock, see `heap_log::Head::last_ns`.
        let latest = header.end_ns.saturating_add(MARKS_AHEAD);
        self.span = header.begin_ns..=latest;
        let ahead = self.last_time.saturating_sub(header.begin_ns);
        let before = if continues && ahead <= MARKS_AHEAD {
            ahead
        } else {
            0
        };
        self.since = (0, header.begin_ns + before);
        self.slots(slots, out);
        self.last_time = header.end_ns.max(self.since.1);
        let end = (slots.len(), self.last_time);
        self.stretch(Clock::between(self.since, end), out);
        if header.kind == SegmentKind::Window {
            self.finish_staged(out);
        }
    }

    /// Like [`Expander::finish`], without the columns that can be computed later.
    pub fn finish_staged(&mut self, out: &mut Staged) {
        if !self.started {
            return;
        }
        if let Some(pass) = self.open.take() {
            self.close(pass, 0, out);
        }
        while let Some(suspended) = self.suspended.pop() {
            self.abandon(suspended.pass);
        }
        // No other time is known.
        self.stretch(Clock::stopped(self.last_time), out);
        self.counters.implied_unplaced += std::mem::take(&mut self.pending_implied);
        self.started = false;
    }

    /// Closes the stretch of rows that share a segment's data.
    fn stretch(&mut self, clock: Clock, out: &mut Staged) {
        let rows = out.stretch(self.sample, self.seq, clock);
        self.seq += rows;
        self.seq_floor = self.seq_floor.max(self.seq);
        self.counters.rows += rows;
    }

    fn start(&mut self, header: &SegmentHeader, next_sample: &mut u32) {
        self.started = true;
        // A repetition is skipped only if no slot is missing between the two windows.
        self.repeated &= header.first_slot == self.next_slot;
        // A thread's very first slot is a head.
        self.at_start = header.first_slot > 0;
        self.sample = *next_sample;
        *next_sample = next_sample.wrapping_add(1);
        self.counters.samples += 1;
        self.seq = match header.kind {
            SegmentKind::Full => self.seq_floor,
            SegmentKind::Window => header
                .first_slot
                .saturating_mul(1 << 16)
                .max(self.seq_floor),
        };
    }

    /// The placement and table index of a record id.
    #[inline]
    fn find(&mut self, id: u32) -> Option<(usize, u32)> {
        if let Some(bound) = self.bounds.get(self.current) {
            let local = id.wrapping_sub(bound.first);
            if local < bound.count {
                return Some((self.current, bound.records + local));
            }
        }
        let found = self
            .bounds
            .iter()
            .position(|b| id.wrapping_sub(b.first) < b.count)?;
        self.current = found;
        let bound = &self.bounds[found];
        Some((found, bound.records + (id - bound.first)))
    }

    fn slots(&mut self, slots: &[Slot], out: &mut Staged) {
        self.counters.slots += slots.len() as u64;
        let tables = self.tables;
        let mut i = 0;
        if self.at_start && tables.has_raw {
            i = self.first_head(slots);
            self.counters.torn += i as u64;
        }
        self.at_start &= slots.is_empty();
        loop {
            if self.repeated && slots.get(i).is_some_and(|s| s.id < MARK_FIRST) {
                self.repeated = false;
                i += 1;
            }
            if self.open.is_none() && !self.repeated {
                i = self.few(slots, i, out);
            }
            let Some(slot) = slots.get(i) else { break };
            if let Some(pass) = &mut self.open {
                if pass.wants_raw() && !pass.is_marker_inside(tables, slot) {
                    pass.push_raw(slot);
                    i += 1;
                    continue;
                }
                if pass.next_id == u64::from(slot.id) && pass.raw_left == 0 {
                    pass.push(tables, slot);
                    self.counters.records += 1;
                    i += 1;
                    continue;
                }
            }
            let Some((bound, record)) = self.find(slot.id) else {
                self.other(slot, i, out);
                i += 1;
                continue;
            };
            if let Some(pass) = self.open.take() {
                self.close(pass, i, out);
            }
            let info = tables.records[record as usize];
            let region = &tables.regions[info.region as usize];
            if info.index == 0 && region.short {
                let n = usize::from(region.records);
                // The next slot must be known, since a marker there could split the pass.
                let whole = slots.get(i..i + n + 1).is_some_and(|pass| {
                    pass[n].id < MARK_FIRST
                        && pass[1..n]
                            .iter()
                            .zip(1..)
                            .all(|(s, k)| s.id == slot.id.wrapping_add(k))
                });
                if whole {
                    self.counters.records += n as u64;
                    self.short(&slots[i..i + n], bound, region, i, out);
                    i += n;
                    continue;
                }
            }
            self.counters.records += 1;
            let Bound { bias, module, .. } = self.bounds[bound];
            let buffer = self.spare.pop().unwrap_or_default();
            self.open = Some(Pass::begin(tables, slot, info, module, bias, buffer));
            i += 1;
        }
    }

    /// The rows of whole passes over regions with few records and rows, as long as such passes
    /// follow each other. This is a separate function, so that its variables stay in registers.
    #[inline(never)]
    fn few(&mut self, slots: &[Slot], from: usize, out: &mut Staged) -> usize {
        let mut i = from;
        if self.pending_implied > 0 {
            return i;
        }
        let tables = self.tables;
        let (mut bound, mut implied) = (None, 0);
        // The slot behind a pass must be known, since a marker there could split it.
        while let Some(pass) = slots
            .get(i..)
            .and_then(|rest| rest.first_chunk::<{ FEW_RECORDS + 1 }>())
        {
            let id = pass[0].id;
            let Bound {
                first,
                records,
                bias,
                ..
            } = match bound {
                Some(bound @ Bound { first, count, .. }) if id.wrapping_sub(first) < count => bound,
                _ => {
                    let Some((number, _)) = self.find(id) else {
                        break;
                    };
                    out.of_module(self.bounds[number].module);
                    *bound.insert(self.bounds[number])
                }
            };
            let head = tables.heads[(records + (id - first)) as usize];
            let (records, rows) = (usize::from(head.records), usize::from(head.rows));
            let follows = |k: usize| records <= k || pass[k].id == id.wrapping_add(k as u32);
            if records == 0
                || !follows(1)
                || (records > 2 && !(follows(2) && follows(3)))
                || pass[records % (FEW_RECORDS + 1)].id >= MARK_FIRST
            {
                break;
            }
            let Some(plain) = tables
                .plain
                .get(head.row as usize..)
                .and_then(|rest| rest.first_chunk::<FEW_RECORDS>())
            else {
                break;
            };
            out.few(pass, plain, head.row, rows, bias, i as u32);
            implied += u64::from(head.implied);
            i += records;
        }
        // All slots were records.
        self.counters.records += (i - from) as u64;
        self.counters.implied += implied;
        i
    }

    /// The rows of a whole pass over a region of plain sites and one-slot records.
    #[inline]
    fn short(
        &mut self,
        pass: &[Slot],
        bound: usize,
        region: &crate::expand::lookup::Region,
        at: usize,
        out: &mut Staged,
    ) {
        let Bound { bias, module, .. } = self.bounds[bound];
        let first = out.len();
        out.of_module(module);
        out.many(pass, self.tables, region.rows.clone(), bias, at as u32);
        self.pending_implied += u64::from(region.implied);
        self.place_implied(first, out);
    }

    /// Assigns waiting implied loads to rows from `first` on; the rest waits for the next row.
    fn place_implied(&mut self, first: usize, out: &mut Staged) {
        let waiting = self.pending_implied;
        self.pending_implied = out.imply(self.tables, first, waiting);
        self.counters.implied += waiting - self.pending_implied;
    }

    /// Handles a slot that is not a record of a module: a marker, or unknown.
    fn other(&mut self, slot: &Slot, at: usize, out: &mut Staged) {
        match slot.id {
            MARK_REPEAT => self.repeated = true,
            MARK_SIGNAL_ENTER => {
                let pass = self.open.take().and_then(|mut pass| {
                    match pass.interrupted_at(self.tables, slot) {
                        Some(limit) => {
                            self.emit(&mut pass, limit, at, out);
                            Some(pass)
                        }
                        None => {
                            self.close(pass, at, out);
                            None
                        }
                    }
                });
                if self.suspended.len() == MAX_SUSPENDED {
                    let oldest = self.suspended.remove(0);
                    self.abandon(oldest.pass);
                }
                self.suspended.push(Suspended {
                    at: slot.payload,
                    pass,
                });
            }
            MARK_SIGNAL_RETURN => {
                if let Some(pass) = self.open.take() {
                    self.close(pass, at, out);
                }
                let index = match slot.payload {
                    0 => self.suspended.len().checked_sub(1),
                    at => self.suspended.iter().rposition(|s| s.at == at),
                };
                self.open = index.and_then(|index| self.resume(index));
            }
            MARK_CUT => match self.suspended.iter().rposition(|s| s.at == slot.payload) {
                Some(index) => {
                    if let Some(pass) = self.open.take() {
                        self.close(pass, at, out);
                    }
                    let pass = self.resume(index);
                    self.abandon(pass);
                }
                None => {
                    if let Some(mut pass) = self.open.take() {
                        match pass.interrupted_at(self.tables, slot) {
                            Some(limit) => {
                                self.emit(&mut pass, limit, at, out);
                                self.abandon(Some(pass));
                            }
                            None => self.close(pass, at, out),
                        }
                    }
                }
            },
            MARK_TIME if self.span.contains(&slot.payload) => self.mark(slot.payload, at, out),
            _ => {
                if let Some(pass) = self.open.take() {
                    self.close(pass, at, out);
                }
                self.counters.unknown += 1;
            }
        }
    }

    /// Handles a mark of the time: the rows so far are earlier.
    fn mark(&mut self, time: u64, at: usize, out: &mut Staged) {
        if let Some(pass) = self.open.take() {
            self.close(pass, at.saturating_sub(1), out);
        }
        let (slot, begin) = self.since;
        let begin = begin.min(time.saturating_sub(1));
        out.clock(Clock::between((slot, begin), (at, time)));
        // The later of two marks applies to the rows behind them.
        self.since = (at, time.max(self.since.1));
    }

    /// Takes the suspended pass number `index`; the handlers of those above it were left by a jump.
    fn resume(&mut self, index: usize) -> Option<Pass> {
        while self.suspended.len() > index + 1 {
            let left = self.suspended.pop().and_then(|s| s.pass);
            self.abandon(left);
        }
        self.suspended.pop().and_then(|s| s.pass)
    }

    /// Counts the lost loads of an abandoned pass.
    fn abandon(&mut self, pass: Option<Pass>) {
        if let Some(pass) = pass {
            self.counters.cut += pass.rows_left(self.tables);
            self.spare.push(pass.into_buffer());
        }
    }

    /// Ends a pass normally, with all rows that its records allow.
    fn close(&mut self, mut pass: Pass, at: usize, out: &mut Staged) {
        let limit = pass.limit(self.tables);
        self.emit(&mut pass, limit, at, out);
        self.abandon(Some(pass));
    }

    /// Emits the rows of `pass` that lie before `limit` and were not emitted yet.
    fn emit(&mut self, pass: &mut Pass, limit: Limit, at: usize, out: &mut Staged) {
        let first = out.len();
        self.pending_implied += pass.take_implied(self.tables, limit);
        out.of_module(pass.module);
        self.counters.torn += out.part(pass, self.tables, limit, at as u32);
        self.place_implied(first, out);
    }

    /// Number of leading raw slots whose head is missing: the smallest number after which the slots
    /// are valid records. If there is none, the number of slots with unknown ids.
    fn first_head(&mut self, slots: &[Slot]) -> usize {
        let most = slots.len().min(mgz_abi::slot::MAX_REGION_SLOTS);
        let sensible = (0..most).find(|&k| self.makes_sense(&slots[k..]));
        sensible
            .or_else(|| (0..most).find(|&k| self.find(slots[k].id).is_some()))
            .unwrap_or(most)
    }

    fn makes_sense(&mut self, slots: &[Slot]) -> bool {
        let mut at = 0;
        let mut before: Option<(u32, u8)> = None;
        for _ in 0..8 {
            let Some(slot) = slots.get(at) else { break };
            if slot.id >= MARK_FIRST {
                before = None;
                at += 1;
                continue;
            }
            let Some((bound, record)) = self.find(slot.id) else {
                return false;
            };
            let bias = self.bounds[bound].bias;
            let info = self.tables.records[record as usize];
            let follows = match before {
                None => true,
                Some((region, index)) => {
                    info.index == 0 || (info.region == region && info.index == index + 1)
                }
            };
            if !follows {
                return false;
            }
            before = Some((info.region, info.index));
            at += 1;
            for _ in 1..info.slots {
                let Some(raw) = slots.get(at) else { break };
                if matches!(raw.id, MARK_SIGNAL_ENTER | MARK_CUT)
                    && raw.payload == info.point.ip.wrapping_add(bias)
                {
                    return true;
                }
                at += 1;
            }
        }
        at > 0
    }
}
