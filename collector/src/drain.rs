//! Takes what traced threads publish and writes it to the spill folder; closes the books of threads that died.
//!
//! What makes this hard: in `full` the program waits for us, so a chunk is copied out and its place given
//! back before it is encoded; order must hold within a thread, so one worker at a time handles a thread
//! slot (its mutex); a thread may die at any instruction (`kill -9`), so what it left unpublished is
//! found from its last numbers; and any of these numbers may be nonsense.
//!
//! Guarantees: no input makes the recorder crash, read out of bounds or wait for ever; a record is written
//! at most once; what cannot be kept is counted. When the disk is full the queue is still emptied, so that
//! the program goes on.

use crate::arena::{Arena, SLOT, Snapshot, ThreadSlot};
use crate::liveness::{Owner, owner};
use crate::shared::{CLOSING, ChunkInfo, FREE, LIVE, MAX_THREADS, MODE_RING};
use mgz_annotations_schema::abi::Slot;
use mgz_annotations_schema::spill::{Pace, SegmentHeader, SegmentKind, SpillWriter, ThreadKey, cause};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

mod rest;
use rest::Rest;

/// How often a ring that is still being written is read again.
const ATTEMPTS: usize = 5;

/// What a thread wrote and what was kept of it.
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

/// One thread's way into a spill file, from its first chunk to its end.
struct Stream {
    key: ThreadKey,
    writer: Option<SpillWriter>,
    /// Slots that the thread is known to have written.
    executed: u64,
    /// Number of the slot that the next chunk begins with, at least.
    next: u64,
    last_cause: u8,
    kept: u64,
    segments: u64,
    lost: bool,
}

impl Stream {
    /// Whether a chunk goes on with this stream; else the ids were taken over by another thread.
    fn goes_on(&self, info: &ChunkInfo) -> bool {
        let ended = matches!(self.last_cause, cause::END_OF_THREAD | cause::END_OF_PROCESS | cause::KILLED);
        self.key == key(info) && info.first_slot >= self.next && !ended
    }
}

/// The recorder's knowledge of one thread slot.
#[derive(Default)]
struct Queue {
    drained: u64,
    stream: Option<Stream>,
    /// The thread that was found dead when this slot was looked at last, with its position.
    suspect: Option<(u32, u32, u64, u64)>,
    /// Closed for good although its owner may live.
    abandoned: bool,
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
    /// What was lost, by cause.
    pub dropped: BTreeMap<String, u64>,
    /// Segments that are shorter than asked, by cause.
    pub truncated: BTreeMap<String, u64>,
    /// Sentences for the user.
    pub problems: Vec<String>,
    /// Bytes written.
    pub bytes: u64,
    /// When the last segment had been written.
    pub last_write: Option<Instant>,
}

/// A process whose end the recorder knows first-hand.
#[derive(Clone, Copy, Debug)]
pub struct KnownProcess {
    /// Its id.
    pub pid: u32,
    /// The cause for what its threads left behind; `None` while it runs.
    pub ended: Option<u8>,
}

/// Empties the queues of an arena into a spill folder. Shared by all workers.
pub struct Drainer<'a> {
    arena: &'a Arena,
    dir: PathBuf,
    max_bytes: Option<u64>,
    queues: Vec<Mutex<Queue>>,
    books: Mutex<Books>,
    bytes: AtomicU64,
    kept: AtomicU64,
    last_write: Mutex<Option<Instant>>,
    full: AtomicBool,
}

fn key(info: &ChunkInfo) -> ThreadKey {
    ThreadKey { process: info.pid, thread: info.tid }
}

/// A worker that panicked has already lost its chunk; the others go on.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a> Drainer<'a> {
    /// Nothing is written before the first chunk. `max_bytes` bounds the spill folder, to within a chunk per
    /// worker.
    pub fn new(arena: &'a Arena, dir: &Path, max_bytes: Option<u64>) -> Self {
        Drainer {
            arena,
            dir: dir.to_owned(),
            max_bytes,
            queues: (0..MAX_THREADS).map(|_| Mutex::default()).collect(),
            books: Mutex::default(),
            bytes: AtomicU64::new(0),
            kept: AtomicU64::new(0),
            last_write: Mutex::new(None),
            full: AtomicBool::new(false),
        }
    }

    /// Slots kept and bytes written so far.
    pub fn progress(&self) -> (u64, u64) {
        (self.kept.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    fn is_ring(&self) -> bool {
        self.arena.settings().mode == MODE_RING
    }

    fn count(&self, what: &'static str, by: u64) {
        *lock(&self.books).dropped.entry(what).or_default() += by;
    }

    /// Numbers of the thread slots that have something to drain.
    pub fn ready(&self, out: &mut Vec<usize>) {
        out.clear();
        out.extend((0..self.arena.slots_tried()).filter(|&i| {
            let slot = self.arena.slot(i);
            // A queue that is locked is being drained.
            slot.published() != 0 && self.queues[i].try_lock().is_ok_and(|q| q.drained != slot.published())
        }));
    }

    /// Empties one queue unless another worker does so already. Returns the number of chunks taken.
    pub fn drain(&self, index: usize, buffer: &mut Vec<Slot>) -> u64 {
        match self.queues[index].try_lock() {
            Ok(mut queue) => self.empty(index, &mut queue, buffer),
            Err(_) => 0,
        }
    }

    fn empty(&self, index: usize, queue: &mut Queue, buffer: &mut Vec<Slot>) -> u64 {
        let slot = self.arena.slot(index);
        let mut taken = 0;
        // At most what fits into the queue, so that a fast thread does not keep a worker for itself.
        let places = self.arena.settings().places as u64;
        while taken < places {
            let published = slot.published();
            let pending = published.wrapping_sub(queue.drained);
            if pending == 0 {
                break;
            }
            if pending > places {
                self.count("damaged_chunks", 1);
                queue.drained = published;
                slot.set_drained(published);
                break;
            }
            let info = slot.chunk(queue.drained);
            let good = rest::plausible(&info) && slot.copy_chunk(info.place as usize, info.offset.into(), info.slots.into(), buffer);
            if good && !self.is_ring() {
                slot.clear(info.place as usize, info.offset.into());
            }
            queue.drained = queue.drained.wrapping_add(1);
            slot.set_drained(queue.drained);
            taken += 1;
            if good { self.keep(queue, &info, buffer) } else { self.count("damaged_chunks", 1) }
        }
        taken
    }

    /// Writes the records of a chunk to its thread's spill file. All counts are of slots.
    fn keep(&self, queue: &mut Queue, info: &ChunkInfo, slots: &[Slot]) {
        if queue.stream.as_ref().is_some_and(|s| !s.goes_on(info)) {
            self.finish(queue);
        }
        let stream = queue.stream.get_or_insert_with(|| Stream {
            key: key(info),
            writer: None,
            executed: 0,
            next: 0,
            last_cause: cause::WHOLE,
            kept: 0,
            segments: 0,
            lost: false,
        });
        let end = info.first_slot + u64::from(info.slots);
        stream.executed = stream.executed.max(info.executed).max(end);
        stream.next = end;
        stream.last_cause = info.cause as u8;
        if slots.is_empty() {
            return;
        }
        if self.full.load(Ordering::Relaxed) {
            stream.lost = true;
            self.count("no_space", info.slots.into());
            return;
        }
        let header = SegmentHeader {
            kind: if self.arena.settings().windows() { SegmentKind::Window } else { SegmentKind::Full },
            first_slot: info.first_slot,
            begin_ns: info.begin_ns.min(info.end_ns),
            end_ns: info.end_ns,
            cause: info.cause as u8,
            slots: slots.len() as u32,
            ring_slots: info.slots,
            pace: Pace::from_word(info.pace),
        };
        match self.write(stream, &header, slots) {
            Ok(()) => {
                // In `full`, the last chunk of a thread is shorter than a chunk, and nothing is missing.
                let ended = matches!(header.cause, cause::END_OF_THREAD | cause::END_OF_PROCESS | cause::EXEC);
                let windows = self.arena.settings().windows();
                // In `full`, threads that were abandoned are counted there, whether or not they leave a last segment.
                if header.cause != cause::WHOLE && (windows || !ended && header.cause != cause::RECORDER_STOPPED) {
                    *lock(&self.books).truncated.entry(cause::name(header.cause)).or_default() += 1;
                }
            }
            Err(error) => {
                stream.lost = true;
                self.count("no_space", info.slots.into());
                self.give_up(format!(
                    "recording ended early: {}: {error}; the program went on unrecorded (remedy: free space there, or record with --mode ring or a larger --period)",
                    self.dir.display()
                ));
            }
        }
    }

    fn write(&self, stream: &mut Stream, header: &SegmentHeader, slots: &[Slot]) -> std::io::Result<()> {
        let mut bytes = 0;
        let writer = match &mut stream.writer {
            Some(writer) => writer,
            none => {
                let writer = SpillWriter::create(&self.dir, stream.key)?;
                bytes += writer.bytes();
                none.insert(writer)
            }
        };
        bytes += writer.write(header, slots)?;
        stream.kept += header.written();
        stream.segments += 1;
        *lock(&self.last_write) = Some(Instant::now());
        self.kept.fetch_add(header.written(), Ordering::Relaxed);
        let total = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if let Some(limit) = self.max_bytes.filter(|&limit| total >= limit) {
            self.give_up(format!(
                "recording ended early: the size limit of {limit} bytes was reached; the program went on unrecorded (remedy: a larger --max-size, --mode ring, or a larger --period)"
            ));
        }
        Ok(())
    }

    /// Writes nothing from now on.
    fn give_up(&self, sentence: String) {
        if !self.full.swap(true, Ordering::Relaxed) {
            self.arena.stop();
            lock(&self.books).problems.push(sentence);
        }
    }

    /// Ends a queue's stream and enters it in the books.
    fn finish(&self, queue: &mut Queue) {
        let Some(stream) = queue.stream.take() else { return };
        let mut books = lock(&self.books);
        let ThreadKey { process, thread } = stream.key;
        let seen = books.threads.entry(stream.key).or_insert(ThreadSeen { process, thread, ..ThreadSeen::default() });
        seen.slots_executed += stream.executed;
        seen.slots_kept += stream.kept;
        seen.segments += stream.segments;
        if stream.lost {
            *books.truncated.entry(cause::name(cause::NO_SPACE)).or_default() += 1;
        }
    }

    /// Looks at all thread slots and closes those whose owners are dead. Returns how many have living owners.
    pub fn sweep(&self, known: &KnownProcess, buffer: &mut Vec<Slot>) -> usize {
        let mut living = 0;
        let mut seen: HashMap<(u32, u32), (usize, u64)> = HashMap::new();
        for index in 0..self.arena.slots_tried() {
            let slot = self.arena.slot(index);
            let state = slot.state();
            if state != LIVE && state != CLOSING {
                continue;
            }
            let mut queue = lock(&self.queues[index]);
            if queue.abandoned {
                continue;
            }
            let Snapshot { pid, tid, base, slots_before, begin_ns, .. } = slot.snapshot();
            let verdict = self.verdict(&queue, known, state, (pid, tid, base, slots_before));
            queue.suspect = (verdict == Verdict::Suspect).then_some((pid, tid, base, slots_before));
            match verdict {
                Verdict::Dead(cause) => {
                    // The owner's process may be closing it itself (state CLOSING) and have died over it.
                    if slot.change_state(state, CLOSING) {
                        self.close(index, &mut queue, cause, buffer);
                        slot.reset();
                        queue.drained = 0;
                        slot.change_state(CLOSING, FREE);
                    }
                }
                Verdict::Suspect => living += 1,
                Verdict::Alive => {
                    living += 1;
                    if pid == 0 || state != LIVE {
                        continue;
                    }
                    // A thread has one ring. If there are two, it has executed another program and the older is left over.
                    let older = match seen.insert((pid, tid), (index, begin_ns)) {
                        Some((other, began)) if began > begin_ns => {
                            seen.insert((pid, tid), (other, began));
                            Some(index)
                        }
                        Some((other, _)) => Some(other),
                        None => None,
                    };
                    if let Some(older) = older {
                        drop(queue);
                        living -= usize::from(self.close_replaced(older, (pid, tid), buffer));
                    }
                }
            }
        }
        living
    }

    fn verdict(&self, queue: &Queue, known: &KnownProcess, state: u32, position: (u32, u32, u64, u64)) -> Verdict {
        let (pid, tid, ..) = position;
        if let Some(cause) = known.ended.filter(|_| pid == known.pid) {
            return Verdict::Dead(cause);
        }
        match owner(pid, tid) {
            Owner::Alive => Verdict::Alive,
            // How it ended is only known once it has been waited for.
            Owner::ProcessGone if pid == known.pid => Verdict::Alive,
            Owner::ProcessGone => Verdict::Dead(cause::END_OF_PROCESS),
            // Its process may be handing the ring to a new thread just now: then the numbers change.
            Owner::ThreadGone if state == LIVE && queue.suspect == Some(position) => Verdict::Dead(cause::END_OF_THREAD),
            Owner::ThreadGone => Verdict::Suspect,
        }
    }

    /// Closes the ring that a thread had before it executed another program.
    fn close_replaced(&self, index: usize, owner: (u32, u32), buffer: &mut Vec<Slot>) -> bool {
        let slot = self.arena.slot(index);
        let mut queue = lock(&self.queues[index]);
        let Snapshot { pid, tid, .. } = slot.snapshot();
        if (pid, tid) != owner || !slot.change_state(LIVE, CLOSING) {
            return false;
        }
        self.close(index, &mut queue, cause::EXEC, buffer);
        slot.reset();
        queue.drained = 0;
        slot.change_state(CLOSING, FREE);
        true
    }

    /// Takes what the threads have recorded so far, although they go on. Returns how many there were.
    pub fn abandon(&self, buffer: &mut Vec<Slot>) -> u64 {
        let mut threads = 0;
        for index in 0..self.arena.slots_tried() {
            let slot = self.arena.slot(index);
            let mut queue = lock(&self.queues[index]);
            if queue.abandoned || !matches!(slot.state(), LIVE | CLOSING) {
                continue;
            }
            slot.change_state(LIVE, CLOSING);
            self.close(index, &mut queue, cause::RECORDER_STOPPED, buffer);
            queue.abandoned = true;
            threads += 1;
        }
        // Of windows, each that was cut has been counted.
        if threads > 0 && !self.arena.settings().windows() {
            *lock(&self.books).truncated.entry(cause::name(cause::RECORDER_STOPPED)).or_default() += threads;
        }
        threads
    }

    /// Drains the rest of a queue and what its thread has not published, and ends its stream.
    fn close(&self, index: usize, queue: &mut Queue, cause: u8, buffer: &mut Vec<Slot>) {
        let slot = self.arena.slot(index);
        let mut settled = false;
        for _ in 0..ATTEMPTS {
            while self.empty(index, queue, buffer) > 0 {}
            let numbers = slot.snapshot();
            let owner = ThreadKey { process: numbers.pid, thread: numbers.tid };
            let known = queue.stream.as_ref().filter(|s| s.key == owner).map_or(0, |s| s.executed);
            settled = self.take_rest(slot, queue, &numbers, known, cause, buffer);
            if settled {
                break;
            }
        }
        if !settled {
            self.count("unreadable_rings", 1);
        }
        // Whoever gets this slot next is not to find them behind its own.
        if !self.is_ring()
            && let Rest::Chunk { place, offset, .. } = rest::unpublished(self.arena.settings(), &slot.snapshot(), 0)
        {
            slot.clear(place, offset);
        }
        self.finish(queue);
    }

    /// Keeps what a thread has not published. Returns false if it went on meanwhile or its numbers are nonsense.
    fn take_rest(&self, slot: ThreadSlot<'_>, queue: &mut Queue, numbers: &Snapshot, known: u64, cause: u8, buffer: &mut Vec<Slot>) -> bool {
        // A loop advances the cursor in a register; what memory does not know of yet is found where it lies.
        let found = match rest::unpublished(self.arena.settings(), numbers, known) {
            Rest::Chunk { place, offset, slots } => match slots + slot.written_from(place, offset + slots * SLOT) {
                0 => Rest::Nothing,
                slots => Rest::Chunk { place, offset, slots },
            },
            found => found,
        };
        let (copied, slots) = match found {
            Rest::Nonsense => (false, 0),
            Rest::Nothing => {
                // Laps that were not the last of a period leave no window, but they ran.
                if self.is_ring() && numbers.slots_before > known && numbers.cursor >= numbers.base {
                    self.keep(queue, &rest::describe(self.arena.settings(), numbers, cause, 0), &[]);
                }
                return true;
            }
            Rest::Chunk { place, offset, slots } => (slot.copy_chunk(place, offset, slots, buffer), slots),
            Rest::Window { end, slots } => (slot.copy_ring(end, slots, buffer), slots),
        };
        if !copied {
            return false;
        }
        let after = slot.snapshot();
        let moved = after.cursor.wrapping_sub(numbers.cursor);
        let overwritten = self.is_ring() && moved.saturating_add(slots * SLOT) > self.arena.settings().ring_bytes;
        if overwritten || (Snapshot { cursor: numbers.cursor, ..after }) != *numbers {
            return false;
        }
        self.keep(queue, &rest::describe(self.arena.settings(), numbers, cause, slots), buffer);
        true
    }

    /// Ends all streams and gives the counts.
    pub fn tally(self) -> Tally {
        for queue in &self.queues {
            self.finish(&mut lock(queue));
        }
        let books = self.books.into_inner().unwrap_or_else(PoisonError::into_inner);
        let named = |map: BTreeMap<&'static str, u64>| map.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
        Tally {
            threads: books.threads.into_values().collect(),
            dropped: named(books.dropped),
            truncated: named(books.truncated),
            problems: books.problems,
            bytes: self.bytes.into_inner(),
            last_write: self.last_write.into_inner().unwrap_or_else(PoisonError::into_inner),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Alive,
    Suspect,
    Dead(u8),
}

#[cfg(test)]
mod tests;
