//! The memory that recorder and traced processes share, from the recorder's side.
//!
//! The difficulty: the other side is a foreign process that runs at full speed, may die anywhere
//! and may overwrite all of it. So this module is the only one that touches the mapping. It makes
//! no references to plain fields in it (only to atomics), reads numbers with volatile accesses,
//! copies records out before any code reads them, and checks every range against the sizes that the
//! recorder itself has chosen, never against numbers from the mapping. The file is sealed, so that
//! no process can shrink it under the mapping.

pub mod counters;
pub mod phases;
#[cfg(test)]
pub(crate) mod producer;
pub mod stacks;

use crate::machine::trigger::WindowTrigger;
use crate::objects::stacks::StackSeen;
use crate::soft::runtime_image::RUNTIME;
use crate::soft::shared_memory::counters::Area;
use crate::soft::static_image::flatten;
use crate::util::futex::{futex_wait, futex_wake};
use crate::util::memfd::{fd_path, memfd, seal};
use mgz_abi::counters::area_offset;
use mgz_abi::module_note::STATIC_MAGIC;
use mgz_abi::shared_memory::{
    CACHE_LINE, CHUNKS, ChunkInfo, Control, ELSEWHERE_ENTRIES, HEADER_BYTES, Header, MAGIC,
    MAX_MODULES, MAX_THREADS, MODE_BURST, MODE_COUNT, MODE_FULL, MODE_OFF, MODE_RING, PAGE_SIZE,
    PATH_BYTES, QUEUE, RING_OFFSET, ROW_SKIPPED, STACK_ROWS, Snapshot, StaticImage, VERSION,
    chunk_offset, slot_offset, stride,
};
use mgz_abi::slot::{RingSlot, SLOT_ID, Slot};
use mgz_annotations_schema::ring::unpack;
use mgz_perf::code_samples::{CodeSample, CodeSamples};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Bytes of a record slot.
pub const SLOT: u64 = 16;
/// Longest window, records: rings lie in the 2 GiB of low memory, and every thread has one.
pub const MAX_WINDOW: u64 = 1 << 20;
/// Bytes of a chunk in `full`. Handing one over costs nothing beside filling it, and it stays in
/// the caches on its way from program to recorder.
const FULL_CHUNK: u64 = 256 << 10;
/// Bytes of windows that may wait for the recorder in `burst`, or four windows if these are larger.
const BURST_QUEUE: u64 = 512 << 10;
/// Least physical size of a ring, bytes.
const MIN_RING: u64 = 256 << 10;

/// Settings for the traced processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `MODE_*`.
    pub mode: u32,
    /// Records from window end to window end; 0 outside `ring`.
    pub period: u64,
    /// Records in a window; 0 outside `ring`.
    pub window: u64,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// Bytes of a ring; 0 outside `ring`.
    pub ring_bytes: u64,
    /// Chunks that a thread slot has room for.
    pub places: usize,
    /// Source of windows; `None` outside `burst`.
    pub trigger: Option<WindowTrigger>,
    /// Number of the trigger's signal; 0 outside `burst`.
    pub signal: u32,
}

impl Settings {
    /// Nothing is recorded; the layout is that of `full`.
    pub fn off() -> Settings {
        Settings {
            mode: MODE_OFF,
            ..Settings::full()
        }
    }

    /// Every record is kept.
    pub fn full() -> Settings {
        Settings {
            mode: MODE_FULL,
            period: 0,
            window: 0,
            chunk_bytes: FULL_CHUNK,
            ring_bytes: 0,
            places: CHUNKS,
            trigger: None,
            signal: 0,
        }
    }

    /// Every record is counted, and none is kept.
    pub fn count() -> Settings {
        Settings {
            mode: MODE_COUNT,
            ..Settings::full()
        }
    }

    /// The last `window` records of each `period` are kept. `None` if the numbers are inconsistent.
    pub fn ring(period: u64, window: u64) -> Option<Settings> {
        if window == 0 || window > MAX_WINDOW || period < window {
            return None;
        }
        let bytes = window * SLOT;
        Some(Settings {
            mode: MODE_RING,
            period,
            window,
            chunk_bytes: bytes.next_multiple_of(PAGE_SIZE as u64),
            ring_bytes: (4 * bytes).max(MIN_RING).next_power_of_two(),
            places: CHUNKS,
            trigger: None,
            signal: 0,
        })
    }

    /// A window of records is kept at each trigger. `None` if the numbers are inconsistent.
    pub fn burst(window: u64, trigger: WindowTrigger, signal: u32) -> Option<Settings> {
        if window == 0 || window > MAX_WINDOW || trigger.period == 0 {
            return None;
        }
        let chunk_bytes = (window * SLOT).next_multiple_of(PAGE_SIZE as u64);
        let places = (BURST_QUEUE / chunk_bytes).clamp(CHUNKS as u64, QUEUE as u64) as usize;
        Some(Settings {
            mode: MODE_BURST,
            period: 0,
            window,
            chunk_bytes,
            ring_bytes: 0,
            places,
            trigger: Some(trigger),
            signal,
        })
    }

    /// True if the recorder counts records and keeps none.
    pub fn counts(&self) -> bool {
        self.mode == MODE_COUNT
    }

    /// True if windows are kept, and not everything.
    pub fn windows(&self) -> bool {
        matches!(self.mode, MODE_RING | MODE_BURST)
    }

    fn stride(&self) -> u64 {
        stride(self.places, self.ring_bytes, self.chunk_bytes)
    }
}

/// The shared file, mapped.
pub struct SharedMemory {
    fd: OwnedFd,
    base: NonNull<u8>,
    length: usize,
    settings: Settings,
    /// Offset of the first thread slot's counters; 0 if there are none.
    counters_at: u64,
}

impl AsRawFd for SharedMemory {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.fd.as_raw_fd()
    }
}

// SAFETY: the mapping stays where it is for the life of the SharedMemory, and all accesses to it
// are atomic, volatile, or copies of ranges whose content is not relied upon.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `new` mapped; no view outlives the SharedMemory (they
        // borrow it).
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.length) };
    }
}

/// Triggers that came in code without a clone.
#[derive(Clone, Debug, Default)]
pub struct Outside {
    /// Triggers that the recorder has seen; the weight of each is its period.
    pub seen: CodeSamples,
    /// Sum of the periods of all triggers, those in clones too.
    pub periods: u64,
    /// Sum of the periods of those that came where no window can begin.
    pub periods_outside: u64,
}

/// A row of the module table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleTableRow {
    /// `MODULE_*`.
    pub result: u32,
    /// Process id.
    pub pid: u32,
    /// First record id.
    pub id_first: u32,
    /// Number of record ids.
    pub id_count: u32,
    /// Load bias.
    pub bias: u64,
    /// Identity of the sidecar.
    pub sidecar_id: [u8; 16],
    /// Path.
    pub path: Vec<u8>,
    /// Path of the sidecar.
    pub sidecar: Vec<u8>,
}

impl SharedMemory {
    /// Makes the file and writes the settings.
    pub fn new(settings: Settings) -> io::Result<SharedMemory> {
        let fd = memfd(c"mgz-arena")?;
        let flat = flatten(RUNTIME).map_err(io::Error::other)?;
        let image_at = slot_offset(MAX_THREADS, settings.stride());
        let length = image_at + flat.bytes.len() as u64;
        let too_large = || io::Error::new(io::ErrorKind::InvalidInput, "the rings are too large");
        // Start of the counters. They are not mapped here, since threads use few of them.
        let counters_at = match settings.counts() {
            true => length.next_multiple_of(PAGE_SIZE as u64),
            false => 0,
        };
        let size = match settings.counts() {
            true => area_offset(counters_at, MAX_THREADS + 1),
            false => length,
        };
        let (size, length) = (
            i64::try_from(size).map_err(|_| too_large())?,
            usize::try_from(length).map_err(|_| too_large())?,
        );
        // SAFETY: an integer call on our own descriptor.
        if unsafe { libc::ftruncate(fd.as_raw_fd(), size) } != 0 {
            return Err(io::Error::last_os_error());
        }
        seal(
            &fd,
            libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL,
        )?;
        let (access, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_NORESERVE,
        );
        // SAFETY: a new mapping of a file of this length.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                access,
                flags,
                fd.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast::<u8>()).expect("mmap gives no null without MAP_FIXED");
        let shared = SharedMemory {
            fd,
            base,
            length,
            settings,
            counters_at,
        };
        let header = shared.header();
        // SAFETY: the header lies in the fresh mapping, which no other code accesses yet.
        unsafe {
            (*header).version = VERSION;
            (*header).mode = settings.mode;
            (*header).recorder = std::process::id();
            (*header).process_namespace = process_namespace();
            (*header).period = settings.period;
            (*header).window = settings.window;
            (*header).chunk_bytes = settings.chunk_bytes;
            (*header).ring_bytes = settings.ring_bytes;
            (*header).stride = settings.stride();
            if let Some(trigger) = settings.trigger {
                (*header).trigger_period = trigger.period;
                (*header).trigger_type = trigger.kind;
                (*header).trigger_config = trigger.config;
                (*header).trigger_tick = trigger.tick;
                if let Some(budget) = trigger.budget {
                    (*header).budget_share = budget.share;
                    (*header).budget_least = budget.least;
                }
                (*header).trigger_toll = trigger.costs.toll;
                (*header).signal_ns = trigger.costs.signals;
                (*header).window_ns = trigger.costs.window().into();
            }
            (*header).counters_at = counters_at;
            (*header).signal = settings.signal;
            (*header).places = settings.places as u32;
            (*header).image = StaticImage {
                magic: STATIC_MAGIC,
                offset: image_at,
                length: flat.bytes.len() as u64,
                entry: flat.entry,
                relocations: flat.relocations,
                text_start: flat.text.start,
                text_end: flat.text.end,
            };
            std::ptr::copy_nonoverlapping(
                flat.bytes.as_ptr(),
                base.as_ptr().add(image_at as usize),
                flat.bytes.len(),
            );
            (*header).magic = MAGIC;
        }
        Ok(shared)
    }

    /// Tells traced processes the path of the log of heap blocks. To be called before the first one
    /// starts.
    pub fn set_heap(&self, path: &str) {
        let mut bytes = [0u8; 64];
        // The last byte stays zero.
        let length = path.len().min(bytes.len() - 1);
        bytes[..length].copy_from_slice(&path.as_bytes()[..length]);
        // SAFETY: the field lies in the mapping, and no process has it yet.
        unsafe { (&raw mut (*self.header()).heap_path).write_volatile(bytes) };
    }

    /// Tells traced processes the folder with sidecars of files that they have made copies of. To
    /// be called before the first one starts.
    pub fn set_sidecars(&self, folder: &Path) {
        let mut bytes = [0u8; PATH_BYTES];
        let path = folder.as_os_str().as_bytes();
        if path.len() < bytes.len() {
            bytes[..path.len()].copy_from_slice(path);
            // SAFETY: the field lies in the mapping, and no process has it yet.
            unsafe { (&raw mut (*self.header()).sidecars).write_volatile(bytes) };
        }
    }

    /// The path by which traced processes open this memory.
    pub fn path(&self) -> String {
        fd_path(&self.fd)
    }

    /// Bytes of this memory, without counters.
    pub fn length(&self) -> u64 {
        self.length as u64
    }

    /// Offset of the runtime's image in this memory.
    pub fn image_offset(&self) -> u64 {
        // SAFETY: written once, when the mapping was made.
        unsafe { (*self.header()).image.offset }
    }

    /// CPU time of the traced threads by their triggers, and recording's part, nanoseconds; 0 if
    /// not counted.
    pub fn account(&self) -> (u64, u64) {
        // SAFETY: atomics in the mapping.
        unsafe {
            (
                (*self.header()).cpu.load(Ordering::Relaxed),
                (*self.header()).spent.load(Ordering::Relaxed),
            )
        }
    }

    /// The counters of a thread slot; `None` unless loads are counted.
    pub fn counters(&self, index: usize) -> Option<Area<'_>> {
        assert!(index < MAX_THREADS, "thread slot {index}");
        let start = area_offset(self.counters_at, index);
        (self.counters_at != 0).then(|| Area::new(&self.fd, start))
    }

    /// The settings, as written into the header at the start.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    fn header(&self) -> *mut Header {
        self.base.as_ptr().cast()
    }

    /// Tells all traced threads to end recording.
    pub fn stop(&self) {
        // SAFETY: an atomic in the mapping.
        unsafe { &(*self.header()).stop }.store(1, Ordering::Release);
    }

    /// True if recording was ended.
    pub fn stopped(&self) -> bool {
        // SAFETY: an atomic in the mapping.
        unsafe { &(*self.header()).stop }.load(Ordering::Acquire) != 0
    }

    /// The kind of trigger that threads got, see `Header::trigger_kind`.
    pub fn trigger_kind(&self) -> u32 {
        // SAFETY: an atomic in the mapping.
        unsafe { &(*self.header()).trigger_kind }.load(Ordering::Relaxed)
    }

    /// Value of a counter of the runtime, see `shared_memory::count`.
    pub fn counter(&self, number: usize) -> u64 {
        // SAFETY: atomics in the mapping. (A reference to the whole header would cover fields that
        // other processes change.)
        let (first, rest) =
            unsafe { (&(*self.header()).counters, &(*self.header()).more_counters) };
        first
            .iter()
            .chain(rest)
            .nth(number)
            .map_or(0, |c| c.load(Ordering::Relaxed))
    }

    /// Triggers that hit code without a clone; the recorder has seen some of them.
    pub fn outside(&self, seen: CodeSamples) -> Outside {
        let header = self.header();
        // SAFETY: atomics in the mapping.
        let (all, outside) = unsafe { (&(*header).periods, &(*header).periods_outside) };
        Outside {
            seen,
            periods: all.load(Ordering::Relaxed),
            periods_outside: outside.load(Ordering::Relaxed),
        }
    }

    /// Number of triggers so far that hit code without a clone.
    pub fn elsewhere_claimed(&self) -> u64 {
        // SAFETY: an atomic in the mapping.
        unsafe { &(*self.header()).elsewhere_count }.load(Ordering::Acquire)
    }

    /// A trigger that hit code without a clone, if its entry is complete and not overwritten.
    pub fn elsewhere(&self, number: u64) -> Option<CodeSample> {
        let at = (number % ELSEWHERE_ENTRIES as u64) as usize;
        // SAFETY: the entry lies in the mapping, and consists of atomics.
        let entry = unsafe { &(*self.header()).elsewhere[at] };
        let complete = || entry.ready.load(Ordering::SeqCst) == number + 1;
        if !complete() {
            return None;
        }
        let sample = CodeSample {
            process: entry.process.load(Ordering::Acquire) as u32,
            address: entry.address.load(Ordering::Acquire),
            time_ns: entry.time_ns.load(Ordering::Acquire),
            weight: entry.period.load(Ordering::Acquire),
            in_mapping: false,
        };
        complete().then_some(sample)
    }

    /// Number of thread slots in use so far, from the first on.
    pub fn slots_tried(&self) -> usize {
        // SAFETY: an atomic in the mapping.
        let tried = unsafe { &(*self.header()).next_slot }.load(Ordering::Relaxed);
        usize::try_from(tried)
            .unwrap_or(MAX_THREADS)
            .min(MAX_THREADS)
    }

    fn doorbell_word(&self) -> &AtomicU32 {
        // SAFETY: an atomic in the mapping.
        unsafe { &(*self.header()).doorbell }
    }

    /// The doorbell's value; changes with every chunk that is published.
    pub fn doorbell(&self) -> u32 {
        self.doorbell_word().load(Ordering::Acquire)
    }

    /// Waits until the doorbell's value is not `seen`, at most for `patience`.
    pub fn wait_doorbell(&self, seen: u32, patience: Duration) {
        futex_wait(self.doorbell_word(), seen, patience);
    }

    /// Wakes all waiters at the doorbell.
    pub fn ring_doorbell(&self) {
        self.doorbell_word().fetch_add(1, Ordering::Release);
        futex_wake(self.doorbell_word());
    }

    /// A complete row of the module table, or `None` if there is none at this place yet.
    pub fn module(&self, index: usize) -> Option<ModuleTableRow> {
        let (place, turn) = (index % MAX_MODULES, index / MAX_MODULES + 1);
        // SAFETY: the row lies in the mapping (the place is below the table's length). Only an
        // atomic is referred to; plain fields are copied by volatile reads, and every bit
        // pattern is a value of theirs.
        unsafe {
            let row = &raw mut (*self.header()).modules[place];
            if (*row).ready.load(Ordering::Acquire) as usize != turn {
                return None;
            }
            Some(ModuleTableRow {
                result: (&raw const (*row).result).read_volatile(),
                pid: (&raw const (*row).pid).read_volatile(),
                id_first: (&raw const (*row).id_first).read_volatile(),
                id_count: (&raw const (*row).id_count).read_volatile(),
                bias: (&raw const (*row).bias).read_volatile(),
                sidecar_id: (&raw const (*row).sidecar_id).read_volatile(),
                path: until_zero((&raw const (*row).path).read_volatile()),
                sidecar: until_zero((&raw const (*row).sidecar).read_volatile()),
            })
        }
    }

    /// Rows of the module table that processes have begun to write.
    pub fn modules_claimed(&self) -> usize {
        // SAFETY: the word lies in the mapping, and only this atomic is referred to.
        unsafe { &(*self.header()).module_count }.load(Ordering::Acquire) as usize
    }

    /// Gives up waiting for a row. Returns it if it was completed just now.
    pub fn skip_module(&self, index: usize) -> Option<ModuleTableRow> {
        let (place, turn) = (index % MAX_MODULES, index / MAX_MODULES + 1);
        // SAFETY: the row lies in the mapping, and only this atomic is referred to.
        let ready = unsafe { &(*self.header()).modules[place].ready };
        let _ = ready.fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| {
            (now as usize != turn).then_some(turn as u32 | ROW_SKIPPED)
        });
        self.module(index)
    }

    /// Number of rows of the module table that were read: their places may be reused.
    pub fn modules_read(&self, count: usize) {
        // SAFETY: the word lies in the mapping, and only this atomic is referred to.
        let word = unsafe { &(*self.header()).modules_read };
        if word.swap(count as u32, Ordering::Release) != count as u32 {
            futex_wake(word);
        }
    }

    /// Number of stack rows that threads have begun to write.
    pub fn stacks_claimed(&self) -> u64 {
        // SAFETY: the word lies in the mapping, and only this atomic is referred to.
        unsafe { &(*self.header()).stack_count }.load(Ordering::Acquire)
    }

    /// A row of the threads' stacks; `None` if it is incomplete or overwritten.
    pub fn stack(&self, number: u64) -> Option<StackSeen> {
        // SAFETY: the row lies in the mapping, and consists of atomics.
        let row = unsafe { &(*self.header()).stacks[(number % STACK_ROWS as u64) as usize] };
        let complete = || row.ready.load(Ordering::SeqCst) == number + 1;
        if !complete() {
            return None;
        }
        let seen = StackSeen {
            pid: row.pid.load(Ordering::Acquire),
            tid: row.tid.load(Ordering::Acquire),
            at: row.at.load(Ordering::Acquire),
            thread_area: row.thread_area.load(Ordering::Acquire),
            low: row.low.load(Ordering::Acquire),
            bytes: row.bytes.load(Ordering::Acquire),
            begin_ns: row.begin_ns.load(Ordering::Acquire),
        };
        complete().then_some(seen)
    }

    /// A thread slot. Panics if there is none with this number.
    pub fn slot(&self, index: usize) -> ThreadSlot<'_> {
        assert!(index < MAX_THREADS, "thread slot {index}");
        let offset = slot_offset(index, self.settings.stride()) as usize;
        debug_assert!(
            offset >= HEADER_BYTES && offset + self.settings.stride() as usize <= self.length
        );
        // SAFETY: the file has MAX_THREADS slots of this stride behind the header.
        let start = unsafe { self.base.as_ptr().add(offset) };
        ThreadSlot {
            shared: self,
            start,
        }
    }
}

fn until_zero(bytes: [u8; PATH_BYTES]) -> Vec<u8> {
    bytes.iter().copied().take_while(|&b| b != 0).collect()
}

/// Number of this process's namespace of process ids; 0 if the kernel does not report it.
fn process_namespace() -> u64 {
    let link = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let text = link.to_string_lossy();
    text.trim_start_matches("pid:[")
        .trim_end_matches(']')
        .parse()
        .unwrap_or(0)
}

/// One thread's part of the file.
#[derive(Clone, Copy)]
pub struct ThreadSlot<'a> {
    shared: &'a SharedMemory,
    start: *mut u8,
}

impl<'a> ThreadSlot<'a> {
    fn control(self) -> *mut Control {
        self.start.cast()
    }

    fn state_word(self) -> &'a AtomicU32 {
        // SAFETY: an atomic in the mapping, which the shared memory keeps.
        unsafe { &(*self.control()).state }
    }

    /// STATE_FREE, STATE_LIVE, STATE_CLOSING, or an invalid value.
    pub fn state(self) -> u32 {
        self.state_word().load(Ordering::Acquire)
    }

    /// Changes the state if it is `from`. Returns true if it was.
    pub fn change_state(self, from: u32, to: u32) -> bool {
        self.state_word()
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Number of chunks published.
    pub fn published(self) -> u64 {
        // SAFETY: an atomic in the mapping.
        unsafe { &(*self.control()).published }.load(Ordering::Acquire)
    }

    /// Tells the owner the number of drained chunks. An owner that waits for a place is woken once
    /// half of them are free. Otherwise it would fill one chunk and wait again, which costs two
    /// thread switches a chunk. Until then there is more to drain, so the owner is never forgotten.
    pub fn set_drained(self, drained: u64) {
        // SAFETY: an atomic in the mapping.
        let word = unsafe { &(*self.control()).drained };
        word.store(drained as u32, Ordering::Release);
        if self.published().wrapping_sub(drained) <= self.shared.settings.places as u64 / 2 {
            futex_wake(word);
        }
    }

    /// Points at which other threads of the process have switched recording on or off in the
    /// stretch that is being written ([`mgz_abi::phases::phase_pieces`]).
    pub fn boundaries(self) -> Vec<u32> {
        // SAFETY: atomics in the mapping.
        let (count, places) = unsafe {
            (
                &(*self.control()).boundary_count,
                &(*self.control()).boundaries,
            )
        };
        let count = (count.load(Ordering::Acquire) as usize).min(places.len());
        places[..count]
            .iter()
            .map(|place| place.load(Ordering::Relaxed))
            .collect()
    }

    /// The owner's numbers.
    pub fn snapshot(self) -> Snapshot {
        // SAFETY: a control page in the mapping, which the shared memory keeps.
        unsafe { Snapshot::read(self.control()) }
    }

    /// The owner's description of the chunk with this number.
    pub fn chunk(self, number: u64) -> ChunkInfo {
        // SAFETY: a volatile read of plain integers in the mapping; the entry is kept in range.
        unsafe {
            (&raw const (*self.control()).chunks[(number % QUEUE as u64) as usize])
                .cast::<ChunkInfo>()
                .read_volatile()
        }
    }

    /// Passes the records of the chunk in a place to `to`, in portions. Returns false, and passes
    /// nothing, if the slots are out of range.
    #[must_use]
    pub fn read_chunk(
        self,
        place: usize,
        offset: u64,
        slots: u64,
        to: &mut impl FnMut(&[Slot]),
    ) -> bool {
        let mut records = Vec::new();
        self.read_slots(place, offset, slots, &mut |slots| {
            records.clear();
            unpack(slots, &mut records);
            to(&records);
        })
    }

    /// Like `read_chunk`, with the raw slots.
    #[must_use]
    pub fn read_slots(
        self,
        place: usize,
        offset: u64,
        slots: u64,
        to: &mut impl FnMut(&[RingSlot]),
    ) -> bool {
        let Settings {
            chunk_bytes,
            ring_bytes,
            places,
            ..
        } = self.shared.settings;
        let fits =
            place < places && slots <= chunk_bytes / SLOT && offset <= chunk_bytes - slots * SLOT;
        if fits {
            self.copy(
                chunk_offset(place, ring_bytes, chunk_bytes) + offset,
                slots,
                to,
            );
        }
        fits
    }

    /// Clears ids in a chunk from an offset on, once its slots were copied, so that
    /// [`ThreadSlot::written_from`] can find what its owner writes there next. (A window may have
    /// written more than it kept.) One id per cache line is enough; most lines are in the caches of
    /// the processor that has just read them.
    pub fn clear(self, place: usize, offset: u64) {
        for id in self.marks(place, offset) {
            // SAFETY: `marks` gives aligned words inside this thread slot; any value may be read or
            // overwritten.
            unsafe { id.write_volatile(0) };
        }
    }

    /// Number of slots written from an offset in a chunk on, rounded to a cache line. Slots are
    /// written in order, so all slots before a written one are written.
    pub fn written_from(self, place: usize, offset: u64) -> u64 {
        // SAFETY: as above.
        let last = self
            .marks(place, offset)
            .filter(|id| unsafe { id.read_volatile() } != 0)
            .last();
        last.map_or(0, |id| {
            let start = chunk_offset(
                place,
                self.shared.settings.ring_bytes,
                self.shared.settings.chunk_bytes,
            ) + offset;
            (id as u64 - self.start as u64 - start) / SLOT + 1
        })
    }

    /// Ids of the slots that begin a cache line, in a chunk from an offset on.
    fn marks(self, place: usize, offset: u64) -> impl Iterator<Item = *mut u32> {
        let Settings {
            chunk_bytes,
            ring_bytes,
            places,
            ..
        } = self.shared.settings;
        let part = if place < places {
            offset.next_multiple_of(CACHE_LINE as u64)..chunk_bytes
        } else {
            0..0
        };
        let start = chunk_offset(place.min(places - 1), ring_bytes, chunk_bytes);
        part.step_by(CACHE_LINE).map(move |at| {
            self.start
                .wrapping_add((start + at) as usize + SLOT_ID)
                .cast()
        })
    }

    /// Passes the records in the `slots` slots that end `end` bytes behind the ring's start (in the
    /// mirrored address space) to `to`, in portions. Returns false, and passes nothing, if the ring
    /// is too small for that.
    #[must_use]
    pub fn read_ring(self, end: u64, slots: u64, to: &mut impl FnMut(&[Slot])) -> bool {
        let ring = self.shared.settings.ring_bytes;
        if slots > ring / SLOT || slots > end / SLOT || !end.is_multiple_of(SLOT) {
            return false;
        }
        let begin = (end - slots * SLOT) % ring;
        let first = slots.min((ring - begin) / SLOT);
        self.read(RING_OFFSET + begin, first, to);
        self.read(RING_OFFSET, slots - first, to);
        true
    }

    /// Passes the records in slots at an offset inside this thread slot.
    fn read(self, offset: u64, slots: u64, to: &mut impl FnMut(&[Slot])) {
        let mut records = Vec::new();
        self.copy(offset, slots, &mut |slots| {
            records.clear();
            unpack(slots, &mut records);
            to(&records);
        });
    }

    /// Passes slots at an offset inside this thread slot.
    fn copy(self, offset: u64, slots: u64, to: &mut impl FnMut(&[RingSlot])) {
        /// Slots that are copied to private memory at a time, so that they and their records stay
        /// in the nearest cache.
        const SLOTS_PER_PIECE: usize = 256;
        assert!(
            offset + slots * SLOT <= self.shared.settings.stride(),
            "copy out of a thread slot"
        );
        let mut from = self.start.wrapping_add(offset as usize);
        let mut piece = [RingSlot::default(); SLOTS_PER_PIECE];
        let mut left = slots as usize;
        while left > 0 {
            let count = left.min(SLOTS_PER_PIECE);
            // SAFETY: the source lies in this thread slot (asserted), the target is ours. Bytes are
            // copied, so alignment does not matter; another process may change them
            // meanwhile, and any bytes are a valid RingSlot.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    from,
                    piece.as_mut_ptr().cast::<u8>(),
                    count * size_of::<RingSlot>(),
                )
            };
            to(&piece[..count]);
            from = from.wrapping_add(count * size_of::<RingSlot>());
            left -= count;
        }
    }

    /// Resets all fields that describe the dead owner to zero. The state is not changed.
    pub fn reset(self) {
        let c = self.control();
        // SAFETY: a control page in the mapping, whose owner is gone.
        unsafe {
            Snapshot::clear(c);
            (*c).drained.store(0, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_the_sizes_that_the_layout_asks_for() {
        let ring = Settings::ring(1_000_000, 1000).unwrap();
        assert_eq!((ring.chunk_bytes, ring.ring_bytes), (16384, 256 << 10));
        let large = Settings::ring(10_000_000, 100_000).unwrap();
        assert_eq!((large.chunk_bytes, large.ring_bytes), (1_601_536, 8 << 20));
        for (period, window) in [(10, 0), (9, 10), (u64::MAX, MAX_WINDOW + 1)] {
            assert_eq!(Settings::ring(period, window), None);
        }
        assert_eq!(Settings::full().chunk_bytes % PAGE_SIZE as u64, 0);
    }

    #[test]
    fn copies_outside_a_chunk_or_ring_are_refused() {
        let shared = SharedMemory::new(Settings::ring(1000, 300).unwrap()).unwrap();
        let Settings {
            chunk_bytes,
            ring_bytes,
            ..
        } = *shared.settings();
        let slot = shared.slot(MAX_THREADS - 1);
        let chunk = |place, offset, slots| {
            let mut out = Vec::new();
            slot.read_chunk(place, offset, slots, &mut |records| {
                out.extend_from_slice(records)
            })
            .then_some(out.len() as u64)
        };
        assert_eq!(
            chunk(CHUNKS - 1, 0, chunk_bytes / SLOT),
            Some(chunk_bytes / SLOT)
        );
        assert_eq!(chunk(0, 1, chunk_bytes / SLOT), None);
        assert_eq!(chunk(0, u64::MAX, 1), None);
        assert_eq!(chunk(0, 0, u64::MAX), None);
        let ring = |end, slots| {
            let mut out = Vec::new();
            slot.read_ring(end, slots, &mut |records| out.extend_from_slice(records))
                .then_some(out.len() as u64)
        };
        assert_eq!(ring(u64::MAX, 1), None);
        assert_eq!(ring(ring_bytes * 2, ring_bytes / SLOT + 1), None);
        assert_eq!(ring(16, 2), None);
        assert_eq!(ring(ring_bytes * 2 + 16, 3), Some(3));
    }

    #[test]
    fn rows_that_nobody_completes_are_skipped() {
        let shared = SharedMemory::new(Settings::full()).unwrap();
        // SAFETY: the rows lie in the mapping, and only atomics are referred to.
        let ready = |place: usize| unsafe { &(*shared.header()).modules[place].ready };
        // The second row at place 3 is never completed. The row that is completed just now is read.
        ready(3).store(1, Ordering::Release);
        assert!(shared.module(3).is_some() && shared.module(MAX_MODULES + 3).is_none());
        assert!(shared.skip_module(MAX_MODULES + 3).is_none());
        // Its process, if it is only slow, finds the row replaced.
        assert!(
            ready(3)
                .compare_exchange(1, 2, Ordering::Release, Ordering::Relaxed)
                .is_err()
        );
        assert!(shared.module(MAX_MODULES + 3).is_none());
        ready(3).store(3, Ordering::Release);
        assert!(
            shared.module(2 * MAX_MODULES + 3).is_some()
                && shared.skip_module(2 * MAX_MODULES + 3).is_some()
        );
    }

    #[test]
    fn what_was_written_since_a_chunk_was_copied_is_found() {
        let shared = SharedMemory::new(Settings::full()).unwrap();
        let slot = shared.slot(0);
        // SAFETY: ids of this test's own shared memory.
        let write = |line: usize| unsafe { slot.marks(1, 0).nth(line).unwrap().write_volatile(7) };
        assert_eq!(slot.written_from(1, 0), 0);
        (0..100).for_each(write);
        assert_eq!(
            (slot.written_from(1, 0), slot.written_from(1, 17 * SLOT)),
            (397, 380)
        );
        slot.clear(1, 2 * CACHE_LINE as u64);
        assert_eq!(
            (
                slot.written_from(1, 0),
                slot.written_from(1, 2 * CACHE_LINE as u64)
            ),
            (5, 0),
            "whatever was said of it, nothing behind is left"
        );
        write(4);
        assert_eq!(slot.written_from(1, 2 * CACHE_LINE as u64), 9);
        assert_eq!(slot.written_from(CHUNKS, 0), 0, "there is no such place");
    }

    #[test]
    fn the_file_cannot_be_shrunk_under_the_recorder() {
        let shared = SharedMemory::new(Settings::full()).unwrap();
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(shared.path())
            .unwrap();
        assert!(file.set_len(0).is_err());
    }

    #[test]
    fn modules_are_seen_when_they_are_ready() {
        let shared = SharedMemory::new(Settings::full()).unwrap();
        assert_eq!(shared.module(0), None);
        producer::tell_module(&shared, 0, b"/bin/app.inst", 0x5555_0000_0000);
        let row = shared.module(0).unwrap();
        assert_eq!(
            (row.path.as_slice(), row.bias, row.pid),
            (&b"/bin/app.inst"[..], 0x5555_0000_0000, 7)
        );
        assert_eq!(shared.module(MAX_MODULES), None);
    }
}
