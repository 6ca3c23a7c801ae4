//! From slots to rows: what the recorded payloads say about loads and their addresses.
//!
//! Pure: slots in, rows out; no files, no clocks. It must keep up with conversion (tens of millions of
//! rows a second on a core), so everything that depends on a record alone is laid out beforehand
//! ([`Tables`]), and a region whose records lie together takes a short path.
//!
//! # Rules
//!
//! - A *pass* through a region gives the rows of its sites in program order.
//! - A pass stays open until the next record shows that it is over, because a signal may split it:
//!   loads before the interrupted instruction come before the handler's, the others after its return.
//!   A handler that changed the context (`MARK_CUT`) ends the pass at the interrupted instruction.
//! - A pass whose first records are missing (a window's first) gives the rows whose records are there;
//!   the others are counted as *torn*.
//! - A pass that ends early (a window's last, a gap) gives only rows that precede the first missing
//!   record; the others are counted as *cut*.
//! - Implied Constant loads go to the pass's first row; if it has none (e.g. a string instruction that
//!   ran zero times), to the next row of the same sample, so that their number stays right. Those that
//!   find no row before the sample ends are counted. Only implied loads that lie between a pass's
//!   first and last recorded point count where the pass is torn or cut.
//! - Ids that no module has are counted, never guessed at.
//!
//! `seq` counts the rows of a thread in `full`. In windows it is 65,536 × the index of the window's
//! first slot among all slots of the thread, plus the row's number in the window, so that it shows order
//! and gaps. `sample` is one number per window; in `full` one per thread and gap-free stretch. `time_ns` is
//! interpolated between the segment's ends by slot.

mod pass;
mod placement;
mod tables;
#[cfg(test)]
mod tests;

pub use placement::ModuleMap;
pub use tables::Tables;

use crate::abi::{MARK_CUT, MARK_FIRST, MARK_SIGNAL_ENTER, MARK_SIGNAL_RETURN, Slot};
use crate::spill::{SegmentHeader, SegmentKind};
use pass::Pass;

/// Rows as columns, as in [`crate::trace::COLUMNS`] without `process` and `thread`. All have the same length.
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
    /// Bytes.
    pub size: Vec<u32>,
    /// `CLASS_*`.
    pub class: Vec<u8>,
    /// A store.
    pub store: Vec<bool>,
    /// Constant loads that this row stands for besides itself.
    pub implied_const: Vec<u16>,
}

impl RowBatch {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.address.len()
    }

    /// Whether there are no rows.
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

/// What expansion met, over everything that an [`Expander`] was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Slots read.
    pub slots: u64,
    /// Records read (markers and raw slots are none).
    pub records: u64,
    /// Rows made.
    pub rows: u64,
    /// Implied Constant loads on those rows.
    pub implied: u64,
    /// Implied Constant loads that found no row.
    pub implied_unplaced: u64,
    /// Loads whose payload lies before their sample's start.
    pub torn: u64,
    /// Loads given up because their pass ended early.
    pub cut: u64,
    /// Slots with an id that no module has.
    pub unknown: u64,
    /// Samples.
    pub samples: u64,
}

impl Counters {
    /// Adds another's counts.
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

/// A module as one process has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Which of the sidecars given to [`Tables::new`].
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

/// Interrupted passes that are remembered; handlers left by `longjmp` leave theirs behind for good.
const MAX_SUSPENDED: usize = 256;

/// Turns one thread's segments into rows.
pub struct Expander<'a> {
    tables: &'a Tables,
    bounds: Vec<Bound>,
    /// The placement that was used last.
    current: usize,
    open: Option<Pass>,
    suspended: Vec<Suspended>,
    /// Implied loads that wait for a row.
    pending_implied: u64,
    counters: Counters,
    /// A sample is going on.
    started: bool,
    /// At the sample's start the first slots may be raw ones whose head is missing.
    at_start: bool,
    sample: u32,
    seq: u64,
    /// Smallest value that `seq` may take next, over all samples of this thread.
    seq_floor: u64,
    /// Where a segment must begin to continue the last.
    next_slot: u64,
    /// End of the segment before.
    last_time: u64,
    /// Buffers of passes that ended.
    spare: Vec<Vec<Slot>>,
    /// Rows of the segment in work, before their columns are filled in.
    staged: Staged,
}

/// When the slots of a segment were written, evenly from its begin to its end: in fixed-point numbers, which are cheaper than
/// floating-point ones and do not round.
struct Clock {
    begin: u64,
    span: u64,
    /// Nanoseconds per slot, times 2^`shift`, rounded up: what is a whole number stays one, and no time is behind that of a later slot.
    step: u64,
    shift: u32,
}

impl Clock {
    fn new(header: &SegmentHeader, slots: usize) -> Clock {
        // As a signed number, so that one bit is free for what rounding adds.
        let span = header.end_ns.saturating_sub(header.begin_ns).min(i64::MAX as u64);
        let shift = span.leading_zeros() - 1;
        let step = (u128::from(span) << shift).div_ceil(slots.max(1) as u128) as u64;
        Clock { begin: header.begin_ns, span, step, shift }
    }

    /// The time of a slot of this segment, or of its end.
    #[inline]
    fn at(&self, slot: u32) -> u64 {
        self.begin + (u64::from(slot).wrapping_mul(self.step) >> self.shift).min(self.span)
    }
}

/// Appends `count` values: the first of `four`, or all of `more`. Most passes have few rows, and as many as no branch predictor knows.
#[inline(always)]
fn extend<T: Copy, I: Iterator<Item = T>>(to: &mut Vec<T>, four: [T; 4], count: usize, more: impl FnOnce() -> I) {
    if count <= four.len() {
        let end = to.len() + count;
        to.extend_from_slice(&four);
        to.truncate(end);
    } else {
        to.extend(more());
    }
}

/// What is known of each row while slots are read; the rest comes from the tables afterwards.
#[derive(Default)]
struct Staged {
    row: Vec<u32>,
    slot: Vec<u32>,
    module: Vec<u16>,
    /// (row, size) where the size is not the site's.
    sizes: Vec<(usize, u32)>,
}

impl<'a> Expander<'a> {
    /// An expander for one thread, whose process has these modules. Where id ranges of modules overlap
    /// the earlier placement wins.
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
            spare: Vec::new(),
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
                self.bounds.push(Bound { first: ids.first, count: ids.count, records: ids.records, module: p.module, bias: p.bias });
            }
        }
        self.current = 0;
    }

    /// What was met so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Rows of the next sample get `seq` values above those of this thread so far; call it where a new
    /// thread takes over the ids of one that ended. Returns the floor to start from.
    pub fn seq_floor(&self) -> u64 {
        self.seq_floor
    }

    /// Sets the smallest `seq`, see [`Expander::seq_floor`].
    pub fn set_seq_floor(&mut self, floor: u64) {
        self.seq_floor = floor;
    }

    /// Appends the rows of the thread's next segment to `out`. `next_sample` is the number that a new
    /// sample takes; it is counted up. The last pass of a `full` segment stays open for the next one.
    pub fn segment(&mut self, header: &SegmentHeader, slots: &[Slot], next_sample: &mut u32, out: &mut RowBatch) {
        let continues = self.started && header.kind == SegmentKind::Full && header.first_slot == self.next_slot;
        if !continues {
            self.finish(out);
            self.start(header, next_sample);
        }
        self.next_slot = header.first_slot.wrapping_add(slots.len() as u64);
        self.slots(slots, out);
        self.fill(Some((header, slots.len())), out);
        self.last_time = header.end_ns;
        if header.kind == SegmentKind::Window {
            self.finish(out);
        }
    }

    /// Ends the sample: what is open is closed. To be called after a thread's last segment.
    pub fn finish(&mut self, out: &mut RowBatch) {
        if !self.started {
            return;
        }
        if let Some(pass) = self.open.take() {
            self.close(pass, 0, out);
        }
        while let Some(suspended) = self.suspended.pop() {
            self.abandon(suspended.pass);
        }
        self.fill(None, out);
        self.counters.implied_unplaced += std::mem::take(&mut self.pending_implied);
        self.started = false;
    }

    fn start(&mut self, header: &SegmentHeader, next_sample: &mut u32) {
        self.started = true;
        // A thread's very first slot is a head.
        self.at_start = header.first_slot > 0;
        self.sample = *next_sample;
        *next_sample = next_sample.wrapping_add(1);
        self.counters.samples += 1;
        self.seq = match header.kind {
            SegmentKind::Full => self.seq_floor,
            SegmentKind::Window => header.first_slot.saturating_mul(1 << 16).max(self.seq_floor),
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
        let found = self.bounds.iter().position(|b| id.wrapping_sub(b.first) < b.count)?;
        self.current = found;
        let bound = &self.bounds[found];
        Some((found, bound.records + (id - bound.first)))
    }

    fn slots(&mut self, slots: &[Slot], out: &mut RowBatch) {
        self.counters.slots += slots.len() as u64;
        let tables = self.tables;
        let mut i = 0;
        if self.at_start && tables.has_raw {
            i = self.first_head(slots);
            self.counters.torn += i as u64;
        }
        self.at_start &= slots.is_empty();
        while let Some(slot) = slots.get(i) {
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
                // The slot behind must be seen, since a marker there could split the pass.
                let whole = slots.get(i..i + n + 1).is_some_and(|pass| {
                    pass[n].id < MARK_FIRST && pass[1..n].iter().zip(1..).all(|(s, k)| s.id == slot.id.wrapping_add(k))
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

    /// The rows of a whole pass over a region of plain sites and one-slot records.
    #[inline]
    fn short(&mut self, pass: &[Slot], bound: usize, region: &tables::Region, at: usize, out: &mut RowBatch) {
        let rows = &self.tables.rows[region.rows.start as usize..region.rows.end as usize];
        let Bound { bias, module, .. } = self.bounds[bound];
        if rows.is_empty() {
            self.pending_implied += u64::from(region.implied);
            return;
        }
        let first = out.address.len();
        let payload = |record: u8| pass.get(usize::from(record)).map_or(0, |s| s.payload);
        out.address.extend(rows.iter().map(|row| row.plain(payload(row.a), payload(row.b), bias)));
        let start = region.rows.start;
        extend(&mut self.staged.row, [start, start.wrapping_add(1), start.wrapping_add(2), start.wrapping_add(3)], rows.len(), || region.rows.clone());
        extend(&mut self.staged.slot, [at as u32; 4], rows.len(), || std::iter::repeat_n(at as u32, rows.len()));
        extend(&mut self.staged.module, [module; 4], rows.len(), || std::iter::repeat_n(module, rows.len()));
        extend(&mut out.implied_const, [0; 4], rows.len(), || std::iter::repeat_n(0, rows.len()));
        let implied = self.pending_implied + u64::from(region.implied);
        if implied != 0 {
            self.place_implied(first, implied, out);
        }
    }

    /// Puts implied loads on rows from `first` on; what does not fit waits for the next row.
    fn place_implied(&mut self, first: usize, mut implied: u64, out: &mut RowBatch) {
        for value in &mut out.implied_const[first..] {
            let room = u64::from(u16::MAX - *value).min(implied);
            *value += room as u16;
            implied -= room;
            self.counters.implied += room;
            if implied == 0 {
                break;
            }
        }
        self.pending_implied = implied;
    }

    /// A slot that is no record of a module: a marker, or unknown.
    fn other(&mut self, slot: &Slot, at: usize, out: &mut RowBatch) {
        match slot.id {
            MARK_SIGNAL_ENTER => {
                let pass = self.open.take().and_then(|mut pass| match pass.interrupted_at(self.tables, slot) {
                    Some(limit) => {
                        self.emit(&mut pass, limit, at, out);
                        Some(pass)
                    }
                    None => {
                        self.close(pass, at, out);
                        None
                    }
                });
                if self.suspended.len() == MAX_SUSPENDED {
                    let oldest = self.suspended.remove(0);
                    self.abandon(oldest.pass);
                }
                self.suspended.push(Suspended { at: slot.payload, pass });
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
            _ => {
                if let Some(pass) = self.open.take() {
                    self.close(pass, at, out);
                }
                self.counters.unknown += 1;
            }
        }
    }

    /// Takes the suspended pass number `index`; those above it were left by a jump.
    fn resume(&mut self, index: usize) -> Option<Pass> {
        while self.suspended.len() > index + 1 {
            let left = self.suspended.pop().and_then(|s| s.pass);
            self.abandon(left);
        }
        self.suspended.pop().and_then(|s| s.pass)
    }

    /// Counts what a pass can no longer give.
    fn abandon(&mut self, pass: Option<Pass>) {
        if let Some(pass) = pass {
            self.counters.cut += pass.rows_left(self.tables);
            self.spare.push(pass.into_buffer());
        }
    }

    /// Ends a pass normally: all that its records allow.
    fn close(&mut self, mut pass: Pass, at: usize, out: &mut RowBatch) {
        let limit = pass.limit(self.tables);
        self.emit(&mut pass, limit, at, out);
        self.abandon(Some(pass));
    }

    /// Emits the rows of `pass` that lie before `limit` and were not emitted yet.
    fn emit(&mut self, pass: &mut Pass, limit: pass::Limit, at: usize, out: &mut RowBatch) {
        let first = out.address.len();
        let implied = pass.take_implied(self.tables, limit);
        let start = self.staged.row.len();
        let staged = &mut self.staged;
        self.counters.torn += pass.rows(self.tables, limit, |row, address, size| {
            if let Some(size) = size {
                staged.sizes.push((out.address.len(), size));
            }
            staged.row.push(row);
            out.address.push(address);
        });
        let added = self.staged.row.len() - start;
        self.staged.slot.extend(std::iter::repeat_n(at as u32, added));
        self.staged.module.extend(std::iter::repeat_n(pass.module, added));
        out.implied_const.resize(first + added, 0);
        self.pending_implied += implied;
        if added > 0 && self.pending_implied > 0 {
            let implied = self.pending_implied;
            self.place_implied(first, implied, out);
        }
    }

    /// Fills the columns that follow from the tables, for all rows staged. `segment` is the one in work and
    /// the number of its slots; without it the last row's time is repeated.
    fn fill(&mut self, segment: Option<(&SegmentHeader, usize)>, out: &mut RowBatch) {
        let staged = &mut self.staged;
        let n = staged.row.len();
        if n == 0 {
            return;
        }
        let first = out.address.len() - n;
        let rows = &self.tables.rows[..];
        out.site.extend(staged.row.iter().map(|&r| rows[r as usize].site));
        out.ip.extend(staged.row.iter().map(|&r| rows[r as usize].ip));
        out.size.extend(staged.row.iter().map(|&r| rows[r as usize].size));
        out.class.extend(staged.row.iter().map(|&r| rows[r as usize].class));
        out.store.extend(staged.row.iter().map(|&r| rows[r as usize].store));
        out.module.extend_from_slice(&staged.module);
        out.sample.resize(first + n, self.sample);
        out.seq.extend(self.seq..self.seq + n as u64);
        match segment {
            Some((header, slots)) => {
                let clock = Clock::new(header, slots);
                out.time_ns.extend(staged.slot.iter().map(|&slot| clock.at(slot)));
            }
            None => {
                out.time_ns.resize(first + n, self.last_time);
            }
        }
        for &(row, size) in &staged.sizes {
            out.size[row] = size;
        }
        self.seq += n as u64;
        self.seq_floor = self.seq_floor.max(self.seq);
        self.counters.rows += n as u64;
        staged.row.clear();
        staged.slot.clear();
        staged.module.clear();
        staged.sizes.clear();
    }

    /// How many raw slots, whose head is missing, a sample begins with: the fewest after which the slots
    /// make sense as records. If there is no such number, those with unknown ids.
    fn first_head(&mut self, slots: &[Slot]) -> usize {
        let most = slots.len().min(crate::abi::MAX_REGION_SLOTS);
        let sensible = (0..most).find(|&k| self.makes_sense(&slots[k..]));
        sensible.or_else(|| (0..most).find(|&k| self.find(slots[k].id).is_some())).unwrap_or(most)
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
            let Some((bound, record)) = self.find(slot.id) else { return false };
            let bias = self.bounds[bound].bias;
            let info = self.tables.records[record as usize];
            let follows = match before {
                None => true,
                Some((region, index)) => info.index == 0 || (info.region == region && info.index == index + 1),
            };
            if !follows {
                return false;
            }
            before = Some((info.region, info.index));
            at += 1;
            for _ in 1..info.slots {
                let Some(raw) = slots.get(at) else { break };
                if matches!(raw.id, MARK_SIGNAL_ENTER | MARK_CUT) && raw.payload == info.point.ip.wrapping_add(bias) {
                    return true;
                }
                at += 1;
            }
        }
        at > 0
    }
}
