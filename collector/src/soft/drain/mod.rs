//! Writes the chunks and windows that traced threads publish to the spill folder, and completes the
//! counts of dead threads.
//!
//! The difficulty has three parts. In `full` the program waits for the recorder, so several workers
//! encode chunks of one thread at a time, directly from the shared memory, yet in order
//! ([`queue`]). A thread may die at any instruction (`kill -9`), so its unpublished slots are found
//! from its last numbers. Any of these numbers may be invalid.
//!
//! Guarantees: no input makes the recorder crash, read out of bounds or wait for ever; a record is
//! written at most once; records that cannot be kept are counted. When the disk is full the queue
//! is still emptied, so that the program continues.

pub mod count;
pub(crate) mod leftover;
mod parts;
pub(crate) mod queue;
#[cfg(test)]
pub(crate) mod tests;

use crate::convert::online::Online;
use crate::soft::shared_memory::{SLOT, SharedMemory, ThreadSlot};
use crate::target::thread_alive::{Owner, owner_state};
use count::{CountTable, Counter, CountsByProcess};
use leftover::Rest;
use mgz_abi::shared_memory::Snapshot;
use mgz_abi::shared_memory::{
    ChunkInfo, MAX_THREADS, MODE_RING, STATE_CLOSING, STATE_FREE, STATE_LIVE,
};
use mgz_annotations_schema::lock::locked;
use mgz_annotations_schema::spill::{
    EncodedSegment, SegmentHeader, SegmentKind, SpeedMeasurement, SpillWriter, ThreadKey, cause,
};
use queue::{Intake, Outlet, Queue, Ticket};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Maximum number of reads of a ring that is still being written. Source: Chosen.
const MAX_READS: usize = 5;

/// Counts of the slots that a thread wrote and of those that were kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadSeen {
    /// System process id.
    pub process: u32,
    /// System thread id.
    pub thread: u32,
    /// Slots that its probes wrote.
    pub slots_executed: u64,
    /// Slots in its spill files.
    pub slots_kept: u64,
    /// Segments in its spill files.
    pub segments: u64,
}

/// One thread's output to a spill file, from its first chunk to its end.
pub(crate) struct Stream {
    key: ThreadKey,
    writer: Option<SpillWriter>,
    /// Slots that the thread is known to have written.
    executed: u64,
    /// Lowest possible number of the next chunk's first slot.
    next: u64,
    last_cause: u8,
    kept: u64,
    segments: u64,
    /// `full`: numbers that were left out between phases.
    skipped: u64,
    lost: bool,
    /// True if its records go to an analysis at once.
    online: bool,
}

impl Stream {
    /// True if a chunk continues this stream. Otherwise another thread has the same ids.
    fn goes_on(&self, info: &ChunkInfo) -> bool {
        let ended = matches!(
            self.last_cause,
            cause::END_OF_THREAD | cause::END_OF_PROCESS | cause::KILLED
        );
        self.key == key(info) && info.first_slot >= self.next && !ended
    }
}

/// A chunk that the caller may read.
struct Claim<'a> {
    slot: ThreadSlot<'a>,
    ticket: Ticket<'a>,
    /// Number of chunks drained including it.
    drained: u64,
    /// Its owner's description of it, if that is plausible.
    info: Option<ChunkInfo>,
    /// True if more chunks wait behind it.
    more: bool,
    returned: bool,
}

impl Claim<'_> {
    /// Returns the chunk's place once all earlier ones have been returned. The chunk may not be
    /// read afterwards. The outlet is the caller's until the claim is dropped.
    fn give_back(&mut self) -> MutexGuard<'_, Outlet> {
        self.returned = true;
        let outlet = self.ticket.outlet();
        self.slot.set_drained(self.drained);
        outlet
    }
}

/// This also runs when a worker panics, so that the chunk's owner does not wait for ever.
impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if !self.returned {
            drop(self.give_back());
        }
    }
}

/// Counts that end up in the manifest.
#[derive(Default)]
struct Books {
    threads: BTreeMap<ThreadKey, ThreadSeen>,
    dropped: BTreeMap<&'static str, u64>,
    truncated: BTreeMap<&'static str, u64>,
    problems: Vec<String>,
}

/// The final counts.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Threads, by process and thread id.
    pub threads: Vec<ThreadSeen>,
    /// Losses, by cause.
    pub dropped: BTreeMap<String, u64>,
    /// Segments that are shorter than asked, by cause.
    pub truncated: BTreeMap<String, u64>,
    /// Sentences for the user.
    pub problems: Vec<String>,
    /// With [`Settings::count`](crate::soft::shared_memory::Settings::count): how often records
    /// were written.
    pub counts: CountsByProcess,
    /// Bytes written.
    pub bytes: u64,
    /// When the last segment had been written.
    pub last_write: Option<Instant>,
}

/// A process whose end the recorder observes itself.
#[derive(Clone, Copy, Debug)]
pub struct KnownProcess {
    /// Its id.
    pub pid: u32,
    /// The cause for slots that its threads left; `None` while it runs.
    pub ended: Option<u8>,
}

/// Empties the queues of the shared memory into a spill folder. Shared by all workers.
pub struct Drainer<'a> {
    shared: &'a SharedMemory,
    dir: PathBuf,
    max_bytes: Option<u64>,
    queues: Vec<Queue>,
    books: Mutex<Books>,
    counter: Option<Counter>,
    bytes: AtomicU64,
    kept: AtomicU64,
    last_write: Mutex<Option<Instant>>,
    full: AtomicBool,
    online: Option<Arc<Online>>,
}

fn key(info: &ChunkInfo) -> ThreadKey {
    ThreadKey {
        process: info.pid,
        thread: info.tid,
    }
}

impl<'a> Drainer<'a> {
    /// A drainer that writes nothing before the first chunk. `max_bytes` bounds the spill folder,
    /// to within a chunk per worker.
    pub fn new(shared: &'a SharedMemory, dir: &Path, max_bytes: Option<u64>) -> Self {
        Drainer {
            shared,
            dir: dir.to_owned(),
            max_bytes,
            queues: (0..MAX_THREADS).map(|_| Queue::default()).collect(),
            books: Mutex::default(),
            counter: shared.settings().counts().then(Counter::default),
            bytes: AtomicU64::new(0),
            kept: AtomicU64::new(0),
            last_write: Mutex::new(None),
            full: AtomicBool::new(false),
            online: None,
        }
    }

    /// Gives the records of the first thread to an analysis, as long as there is no second one.
    pub fn feeding(mut self, online: Option<Arc<Online>>) -> Self {
        self.online = online;
        self
    }

    /// So many rows of the module table have been read and reported.
    pub fn modules_told(&self, rows: usize) {
        if let Some(online) = &self.online {
            online.told(rows);
        }
    }

    /// Slots kept and bytes written so far.
    pub fn progress(&self) -> (u64, u64) {
        (
            self.kept.load(Ordering::Relaxed),
            self.bytes.load(Ordering::Relaxed),
        )
    }

    fn is_ring(&self) -> bool {
        self.shared.settings().mode == MODE_RING
    }

    fn count(&self, what: &'static str, by: u64) {
        *locked(&self.books).dropped.entry(what).or_default() += by;
    }

    /// Numbers of the thread slots that have something to drain.
    pub fn ready(&self, out: &mut Vec<usize>) {
        out.clear();
        out.extend((0..self.shared.slots_tried()).filter(|&index| {
            let queue = &self.queues[index];
            self.shared.slot(index).published() != queue.claimed.load(Ordering::Relaxed)
                && !queue.closing.load(Ordering::Relaxed)
        }));
    }

    /// Takes a chunk out of a queue, if there is one, and writes it. Returns true if there was one.
    /// It is encoded in `segment`; `more` is called before that if others wait behind it.
    pub fn drain(&self, index: usize, segment: &mut EncodedSegment, more: impl FnOnce()) -> bool {
        let Some(claim) = self.claim(index, &mut locked(&self.queues[index].intake)) else {
            return false;
        };
        if claim.more {
            more();
        }
        self.take(claim, segment);
        true
    }

    /// Claims a queue's next chunk.
    fn claim(&self, index: usize, intake: &mut Intake) -> Option<Claim<'_>> {
        let (slot, queue) = (self.shared.slot(index), &self.queues[index]);
        let claimed = queue.claimed.load(Ordering::Relaxed);
        let published = slot.published();
        let waiting = published.wrapping_sub(claimed);
        if waiting == 0 {
            return None;
        }
        if intake.abandoned {
            // The queue's counts are complete: new chunks are discarded, and their owner must not
            // wait.
            queue.claimed.store(published, Ordering::Relaxed);
            slot.set_drained(published);
            return None;
        }
        let damaged = waiting > self.shared.settings().places as u64;
        let drained = if damaged {
            published
        } else {
            claimed.wrapping_add(1)
        };
        let info = Some(slot.chunk(claimed)).filter(|info| !damaged && leftover::plausible(info));
        queue.claimed.store(drained, Ordering::Relaxed);
        Some(Claim {
            slot,
            ticket: queue.ticket(intake),
            drained,
            info,
            more: waiting > 1,
            returned: false,
        })
    }

    /// Reads a chunk, gives its place back and writes its records.
    fn take(&self, mut claim: Claim<'_>, segment: &mut EncodedSegment) {
        let slot = claim.slot;
        if let Some(counter) = &self.counter {
            return self.tell(claim, counter, segment);
        }
        // If nothing more is kept, nothing is encoded.
        let full = self.full.load(Ordering::Relaxed);
        let info = claim.info.take().filter(|info| {
            segment.begin(info.slots as usize);
            slot.read_chunk(
                info.place as usize,
                info.offset.into(),
                info.slots.into(),
                &mut |records| {
                    if !full {
                        segment.push(records)
                    }
                },
            )
        });
        let Some(info) = info else {
            return self.count("damaged_chunks", 1);
        };
        // (For a chunk with parts outside of phases, the owner clears all parts at once.)
        if !self.is_ring() && info.cause != u16::from(cause::PHASE) {
            slot.clear(info.place as usize, info.offset.into());
        }
        let ended = segment.finish(&self.header(&info));
        let mut outlet = claim.give_back();
        self.keep(&mut outlet, &info, ended.map(|_| &*segment));
    }

    /// Counts the records of a chunk and returns its place.
    fn tell(&self, mut claim: Claim<'_>, counter: &Counter, segment: &EncodedSegment) {
        let slot = claim.slot;
        let info = claim.info.take().filter(|info| {
            let mut read = false;
            counter.with(info.pid, |table: &mut CountTable| {
                let (place, slots) = (info.place as usize, info.slots.into());
                read = slot.read_slots(place, info.offset.into(), slots, &mut |slots| {
                    table.add(slots)
                });
            });
            read
        });
        let Some(info) = info else {
            return self.count("damaged_chunks", 1);
        };
        if info.cause != u16::from(cause::PHASE) {
            slot.clear(info.place as usize, info.offset.into());
        }
        let mut outlet = claim.give_back();
        self.keep(&mut outlet, &info, Ok(segment));
    }

    /// Header of a chunk in a spill file, without its number of records.
    fn header(&self, info: &ChunkInfo) -> SegmentHeader {
        SegmentHeader {
            kind: if self.shared.settings().windows() {
                SegmentKind::Window
            } else {
                SegmentKind::Full
            },
            first_slot: info.first_slot,
            begin_ns: info.begin_ns.min(info.end_ns),
            end_ns: info.end_ns,
            cause: info.cause as u8,
            slots: 0,
            ring_slots: info.slots,
            pace: SpeedMeasurement::from_word(info.pace),
            period: info.period(),
        }
    }

    /// Writes the records of a chunk to its thread's spill file. All counts are of slots.
    fn keep(
        &self,
        outlet: &mut Outlet,
        info: &ChunkInfo,
        segment: std::io::Result<&EncodedSegment>,
    ) {
        if outlet.stream.as_ref().is_some_and(|s| !s.goes_on(info)) {
            self.finish(outlet);
        }
        let stream = outlet.stream.get_or_insert_with(|| Stream {
            key: key(info),
            writer: None,
            executed: 0,
            next: 0,
            last_cause: cause::WHOLE,
            kept: 0,
            segments: 0,
            skipped: 0,
            lost: false,
            online: self.online.as_ref().is_some_and(|o| o.begin(key(info))),
        });
        let end = info.first_slot + u64::from(info.slots);
        stream.executed = stream.executed.max(info.executed).max(end);
        // The end of a phase and the beginning of the next leave a gap of at most two. Lost slots
        // leave a larger gap, or are counted elsewhere.
        let gap = info.first_slot.saturating_sub(stream.next);
        if !self.shared.settings().windows() && gap <= 2 {
            stream.skipped += gap;
        }
        stream.next = end;
        stream.last_cause = info.cause as u8;
        if info.slots == 0 || self.counter.is_some() {
            return;
        }
        if self.full.load(Ordering::Relaxed) {
            stream.lost = true;
            self.count("no_space", info.slots.into());
            return;
        }
        match segment.and_then(|segment| self.write(stream, info.slots.into(), segment)) {
            Ok(()) => {
                // In `full`, the last chunk of a thread is shorter without anything missing.
                let cause = info.cause as u8;
                let ended = matches!(
                    cause,
                    cause::END_OF_THREAD | cause::END_OF_PROCESS | cause::EXEC | cause::PHASE
                );
                let windows = self.shared.settings().windows();
                // In `full`, abandoned threads are counted in `abandon`, with or without a last
                // segment.
                if cause != cause::WHOLE && (windows || !ended && cause != cause::RECORDER_STOPPED)
                {
                    *locked(&self.books)
                        .truncated
                        .entry(cause::name(cause))
                        .or_default() += 1;
                }
            }
            Err(error) => {
                stream.lost = true;
                self.count("no_space", info.slots.into());
                if stream.online {
                    return self.give_up(
                        "recording ended early: the analysis, which was to take the records, has ended; the program went on unrecorded"
                            .into(),
                    );
                }
                self.give_up(format!(
                    "recording ended early: {}: {error}; the program went on unrecorded (remedy: free space there, or record with --mode ring or a larger --period)",
                    self.dir.display()
                ));
            }
        }
    }

    fn write(
        &self,
        stream: &mut Stream,
        slots: u64,
        segment: &EncodedSegment,
    ) -> std::io::Result<()> {
        if let Some(online) = self.online.as_ref().filter(|_| stream.online) {
            // Threads that begin from now on have later times than these records.
            stream.online = self.shared.slots_tried() <= 1;
            if !stream.online {
                online.others_began();
            }
        }
        if let Some(online) = self.online.as_ref().filter(|_| stream.online) {
            online.take(self.shared.modules_claimed(), segment)?;
            self.wrote(stream, slots, 0);
            return Ok(());
        }
        let mut bytes = 0;
        let writer = match &mut stream.writer {
            Some(writer) => writer,
            none => {
                let writer = SpillWriter::create(&self.dir, stream.key)?;
                bytes += writer.bytes();
                none.insert(writer)
            }
        };
        bytes += writer.append(segment)?;
        let total = self.wrote(stream, slots, bytes);
        if let Some(limit) = self.max_bytes.filter(|&limit| total >= limit) {
            self.give_up(format!(
                "recording ended early: the size limit of {limit} bytes was reached; the program went on unrecorded (remedy: a larger --max-size, --mode ring, or a larger --period)"
            ));
        }
        Ok(())
    }

    /// Counts a segment that was written; returns the bytes of the spill folder.
    fn wrote(&self, stream: &mut Stream, slots: u64, bytes: u64) -> u64 {
        stream.kept += slots;
        stream.segments += 1;
        *locked(&self.last_write) = Some(Instant::now());
        self.kept.fetch_add(slots, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes
    }

    /// Writes nothing from now on.
    fn give_up(&self, sentence: String) {
        if !self.full.swap(true, Ordering::Relaxed) {
            self.shared.stop();
            locked(&self.books).problems.push(sentence);
        }
    }

    /// Ends a queue's stream and adds its counts to the totals.
    fn finish(&self, outlet: &mut Outlet) {
        let Some(stream) = outlet.stream.take() else {
            return;
        };
        let mut books = locked(&self.books);
        let ThreadKey { process, thread } = stream.key;
        let seen = books.threads.entry(stream.key).or_insert(ThreadSeen {
            process,
            thread,
            ..ThreadSeen::default()
        });
        seen.slots_executed += stream.executed - stream.skipped.min(stream.executed);
        seen.slots_kept += stream.kept;
        seen.segments += stream.segments;
        if stream.lost {
            *books
                .truncated
                .entry(cause::name(cause::NO_SPACE))
                .or_default() += 1;
        }
    }

    /// Looks at all thread slots and closes those whose owners are dead. Returns how many have
    /// living owners.
    pub fn sweep(&self, known: &KnownProcess, segment: &mut EncodedSegment) -> usize {
        let mut living = 0;
        let mut seen: HashMap<(u32, u32), (usize, u64)> = HashMap::new();
        for index in 0..self.shared.slots_tried() {
            let slot = self.shared.slot(index);
            let state = slot.state();
            if state != STATE_LIVE && state != STATE_CLOSING {
                continue;
            }
            let queue = &self.queues[index];
            let mut intake = locked(&queue.intake);
            if intake.abandoned {
                continue;
            }
            let Snapshot {
                pid,
                tid,
                base,
                slots_before,
                begin_ns,
                ..
            } = slot.snapshot();
            let verdict = self.verdict(&intake, known, state, (pid, tid, base, slots_before));
            intake.suspect =
                (verdict == Verdict::Suspect).then_some((pid, tid, base, slots_before));
            match verdict {
                Verdict::Dead(cause) => {
                    // The owner's process may have died while it closed the slot itself
                    // (STATE_CLOSING).
                    if take(slot, state, (pid, tid)) {
                        self.close(index, &mut intake, cause, segment);
                        self.forget(index, slot);
                        slot.change_state(STATE_CLOSING, STATE_FREE);
                    }
                }
                Verdict::Suspect => living += 1,
                Verdict::Alive => {
                    living += 1;
                    // (A thread that has not begun yet is not older than the one that it replaces.)
                    if pid == 0 || begin_ns == 0 || state != STATE_LIVE {
                        continue;
                    }
                    // A thread has one ring. With two, it has executed another program, and the
                    // older ring is left over.
                    let older = match seen.insert((pid, tid), (index, begin_ns)) {
                        Some((other, began)) if began > begin_ns => {
                            seen.insert((pid, tid), (other, began));
                            Some(index)
                        }
                        Some((other, _)) => Some(other),
                        None => None,
                    };
                    if let Some(older) = older {
                        drop(intake);
                        living -= usize::from(self.close_replaced(older, (pid, tid), segment));
                    }
                }
            }
        }
        living
    }

    fn verdict(
        &self,
        intake: &Intake,
        known: &KnownProcess,
        state: u32,
        position: (u32, u32, u64, u64),
    ) -> Verdict {
        let (pid, tid, ..) = position;
        if let Some(cause) = known.ended.filter(|_| pid == known.pid) {
            return Verdict::Dead(cause);
        }
        match owner_state(pid, tid) {
            Owner::Alive => Verdict::Alive,
            // Its kind of end is only known once it has been waited for.
            Owner::ProcessGone if pid == known.pid => Verdict::Alive,
            Owner::ProcessGone => Verdict::Dead(cause::END_OF_PROCESS),
            // Its process may be handing the ring to a new thread. In that case, the numbers
            // change.
            Owner::ThreadGone if state == STATE_LIVE && intake.suspect == Some(position) => {
                Verdict::Dead(cause::END_OF_THREAD)
            }
            Owner::ThreadGone => Verdict::Suspect,
        }
    }

    /// Closes the ring that a thread had before it executed another program.
    fn close_replaced(
        &self,
        index: usize,
        owner: (u32, u32),
        segment: &mut EncodedSegment,
    ) -> bool {
        let slot = self.shared.slot(index);
        let mut intake = locked(&self.queues[index].intake);
        if !take(slot, STATE_LIVE, owner) {
            return false;
        }
        self.close(index, &mut intake, cause::EXEC, segment);
        self.forget(index, slot);
        slot.change_state(STATE_CLOSING, STATE_FREE);
        true
    }

    /// Keeps the records so far of threads that still run. Returns the number of these threads.
    pub fn abandon(&self, segment: &mut EncodedSegment) -> u64 {
        let mut threads = 0;
        for index in 0..self.shared.slots_tried() {
            let slot = self.shared.slot(index);
            let mut intake = locked(&self.queues[index].intake);
            if intake.abandoned || !matches!(slot.state(), STATE_LIVE | STATE_CLOSING) {
                continue;
            }
            slot.change_state(STATE_LIVE, STATE_CLOSING);
            threads += u64::from(leftover::has_begun(&slot.snapshot()));
            self.close(index, &mut intake, cause::RECORDER_STOPPED, segment);
            intake.abandoned = true;
            self.queues[index].closing.store(false, Ordering::Relaxed);
        }
        // Windows that were cut are counted one by one.
        if threads > 0 && !self.shared.settings().windows() {
            *locked(&self.books)
                .truncated
                .entry(cause::name(cause::RECORDER_STOPPED))
                .or_default() += threads;
        }
        threads
    }

    /// Drains the rest of a queue and its thread's unpublished slots, and ends its stream.
    fn close(&self, index: usize, intake: &mut Intake, cause: u8, segment: &mut EncodedSegment) {
        let slot = self.shared.slot(index);
        self.queues[index].closing.store(true, Ordering::Relaxed);
        let mut settled = false;
        for _ in 0..MAX_READS {
            // There are no more, unless the program has overwritten the number of chunks.
            for _ in 0..2 * self.shared.settings().places {
                let Some(claim) = self.claim(index, intake) else {
                    break;
                };
                self.take(claim, segment);
            }
            let mut outlet = self.queues[index].settled(intake);
            let numbers = slot.snapshot();
            let owner = ThreadKey {
                process: numbers.pid,
                thread: numbers.tid,
            };
            let known = outlet
                .stream
                .as_ref()
                .filter(|s| s.key == owner)
                .map_or(0, |s| s.executed);
            settled = self.take_rest(slot, &mut outlet, &numbers, known, cause, segment);
            if settled {
                break;
            }
        }
        if !settled {
            self.count("unreadable_rings", 1);
        }
        // The slot's next owner must not find these ids behind its own.
        if !self.is_ring()
            && let Rest::Chunk { place, offset, .. } =
                leftover::unpublished(self.shared.settings(), &slot.snapshot(), 0)
        {
            slot.clear(place, offset);
        }
        self.take_counters(index, slot, intake, cause, segment);
        self.finish(&mut self.queues[index].settled(intake));
    }

    /// Adds up the counts of a thread in memory.
    fn take_counters(
        &self,
        index: usize,
        slot: ThreadSlot<'_>,
        intake: &Intake,
        cause: u8,
        segment: &EncodedSegment,
    ) {
        let (Some(counter), Some(area)) = (&self.counter, self.shared.counters(index)) else {
            return;
        };
        let numbers = slot.snapshot();
        if numbers.pid == 0 {
            return;
        }
        let mut read = Ok(());
        let mut any = false;
        counter.with(numbers.pid, |table| {
            read = area.read(&mut |id, times| {
                table.add_times(id, times);
                any = true;
            });
        });
        if let Err(error) = read {
            let sentence = format!("counters of a thread cannot be read: {error}");
            locked(&self.books).problems.push(sentence);
            self.count("unreadable_rings", 1);
        }
        if any {
            // A thread that has written no record.
            let info = leftover::describe(self.shared.settings(), &numbers, cause, 0);
            self.keep(&mut self.queues[index].settled(intake), &info, Ok(segment));
        }
    }

    /// Prepares a closed thread slot for its next owner.
    fn forget(&self, index: usize, slot: ThreadSlot<'_>) {
        slot.reset();
        if let Some(area) = self.shared.counters(index) {
            area.clear();
        }
        self.queues[index].claimed.store(0, Ordering::Relaxed);
        self.queues[index].closing.store(false, Ordering::Relaxed);
    }

    /// Keeps the unpublished slots of a thread. Returns false if the thread ran on, or its numbers
    /// are invalid.
    fn take_rest(
        &self,
        slot: ThreadSlot<'_>,
        outlet: &mut Outlet,
        numbers: &Snapshot,
        known: u64,
        cause: u8,
        segment: &mut EncodedSegment,
    ) -> bool {
        // A loop keeps the cursor in a register. So slots behind the cursor in memory are found by
        // their content.
        let found = match leftover::unpublished(self.shared.settings(), numbers, known) {
            Rest::Chunk {
                place,
                offset,
                slots,
            } => match slots + slot.written_from(place, offset + slots * SLOT) {
                0 => Rest::Nothing,
                slots => Rest::Chunk {
                    place,
                    offset,
                    slots,
                },
            },
            found => found,
        };
        if let Some(done) = self.take_parts(slot, outlet, numbers, &found, cause, segment) {
            return done;
        }
        let mut left = Vec::new();
        let (read, slots) = match found {
            Rest::Nonsense => (false, 0),
            Rest::Nothing => {
                // Laps before the last one of a period leave no window, but were executed.
                if self.is_ring() && numbers.slots_before > known && numbers.cursor >= numbers.base
                {
                    self.keep(
                        outlet,
                        &leftover::describe(self.shared.settings(), numbers, cause, 0),
                        Ok(segment),
                    );
                }
                return true;
            }
            Rest::Chunk {
                place,
                offset,
                slots,
            } => {
                let read = if self.counter.is_some() {
                    slot.read_slots(place, offset, slots, &mut |slots| {
                        left.extend_from_slice(slots)
                    })
                } else {
                    segment.begin(slots as usize);
                    slot.read_chunk(place, offset, slots, &mut |records| segment.push(records))
                };
                (read, slots)
            }
            Rest::Window { end, slots } => {
                segment.begin(slots as usize);
                (
                    slot.read_ring(end, slots, &mut |records| segment.push(records)),
                    slots,
                )
            }
        };
        if !read {
            return false;
        }
        let after = slot.snapshot();
        let moved = after.cursor.wrapping_sub(numbers.cursor);
        let overwritten = self.is_ring()
            && moved.saturating_add(slots * SLOT) > self.shared.settings().ring_bytes;
        if overwritten
            || (Snapshot {
                cursor: numbers.cursor,
                ..after
            }) != *numbers
        {
            return false;
        }
        let info = leftover::describe(self.shared.settings(), numbers, cause, slots);
        if let Some(counter) = &self.counter {
            counter.with(info.pid, |table| table.add(&left));
            self.keep(outlet, &info, Ok(segment));
            return true;
        }
        let ended = segment.finish(&self.header(&info));
        self.keep(outlet, &info, ended.map(|_| &*segment));
        true
    }

    /// Ends all streams and gives the counts.
    pub fn tally(self) -> Tally {
        for queue in &self.queues {
            self.finish(&mut queue.settled(&locked(&queue.intake)));
        }
        let books = self
            .books
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let named = |map: BTreeMap<&'static str, u64>| {
            map.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()
        };
        Tally {
            threads: books.threads.into_values().collect(),
            dropped: named(books.dropped),
            truncated: named(books.truncated),
            problems: books.problems,
            counts: self.counter.map(Counter::finish).unwrap_or_default(),
            bytes: self.bytes.into_inner(),
            last_write: self
                .last_write
                .into_inner()
                .unwrap_or_else(PoisonError::into_inner),
        }
    }
}

/// Sets a slot in this state to closing if it still belongs to `owner`. Its process may have handed
/// the slot on since the owner was found dead.
fn take(slot: ThreadSlot<'_>, state: u32, owner: (u32, u32)) -> bool {
    if !slot.change_state(state, STATE_CLOSING) {
        return false;
    }
    let Snapshot { pid, tid, .. } = slot.snapshot();
    let same = (pid, tid) == owner;
    if !same {
        slot.change_state(STATE_CLOSING, state);
    }
    same
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Alive,
    Suspect,
    Dead(u8),
}
