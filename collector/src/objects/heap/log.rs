//! The ring that traced processes write allocator events to, seen from the recorder. See
//! [`mgz_abi::heap_log`].

use crate::python::RowChange;
use crate::util::futex::futex_wait;
use crate::util::memfd::{fd_path, memfd, seal};
use mgz_abi::heap_log::{
    BUDGET, FILE_BYTES, HEAP_PYTHON_FRAMES, Head, HeapEvent, MAGIC, STACK, UNIT, UNITS, offset, tag,
};
use mgz_abi::python_frames::PythonFrame;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A record that is claimed but not complete is skipped after this time. Source: Chosen.
const MAX_WAIT_FOR_WRITER: Duration = Duration::from_secs(1);

/// The mapped file.
pub struct Log {
    fd: OwnedFd,
    base: NonNull<u8>,
    units: u64,
}

/// Spending of the budget of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapSpent {
    /// Blocks that were logged.
    pub blocks: u64,
    /// Number of allocating calls that the logged blocks represent.
    pub calls: u64,
    /// Nanoseconds that logging took.
    pub ns: u64,
}

/// Units of the ring in use. With a budget, few blocks are logged between two looks of the
/// recorder.
fn units(which: u32) -> u64 {
    if which == BUDGET {
        1 << 15
    } else {
        UNITS as u64
    }
}

// SAFETY: shared memory that other processes change anyway; all access is by atomics and volatile
// reads.
unsafe impl Send for Log {}
// SAFETY: as above; only one reader moves the tail.
unsafe impl Sync for Log {}

impl Log {
    /// Makes the file and maps it. `which`: blocks that are logged, one of [`mgz_abi::heap_log`].
    /// `marks`: events are marked in the record streams of their threads.
    pub fn new(which: u32, marks: bool) -> io::Result<Log> {
        let fd = memfd(c"mgz-heap")?;
        // SAFETY: integer calls on our own descriptor, and a new mapping of a file of this length.
        let base = unsafe {
            if libc::ftruncate(fd.as_raw_fd(), FILE_BYTES as i64) != 0 {
                return Err(io::Error::last_os_error());
            }
            libc::mmap(
                std::ptr::null_mut(),
                FILE_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                fd.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        seal(
            &fd,
            libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL,
        )?;
        let base = NonNull::new(base.cast::<u8>()).expect("mmap gives no null without MAP_FIXED");
        // SAFETY: the first word of the fresh mapping, which no other code accesses yet.
        unsafe {
            let head = base.as_ptr().cast::<Head>();
            (*head).which = which.into();
            (*head).units = units(which).into();
            (*head).marks = u32::from(marks).into();
            (*head).magic = MAGIC;
        }
        Ok(Log {
            fd,
            base,
            units: units(which),
        })
    }

    /// The path by which traced processes open it.
    pub fn path(&self) -> String {
        fd_path(&self.fd)
    }

    fn head(&self) -> *const Head {
        self.base.as_ptr().cast()
    }

    /// Tells processes where they keep their Python frames.
    pub fn set_python(&self, changes: &[RowChange]) {
        // SAFETY: atomics in the mapping.
        let table = unsafe { &(*self.head()).python };
        for change in changes {
            table.set(change.row, change.pid, change.layout.as_ref());
        }
    }

    /// Number of events that writers gave up.
    pub fn dropped(&self) -> u64 {
        // SAFETY: an atomic in the mapping.
        unsafe { &(*self.head()).dropped }.load(Ordering::Relaxed)
    }

    /// `BUDGET`: the account.
    pub fn spent(&self) -> HeapSpent {
        // SAFETY: atomics in the mapping.
        let head = unsafe { &*self.head() };
        HeapSpent {
            blocks: head.blocks.load(Ordering::Relaxed),
            calls: head.calls.load(Ordering::Relaxed),
            ns: head.spent.load(Ordering::Relaxed),
        }
    }

    /// Waits until a process begins, at most for `patience`.
    pub fn wait(&self, patience: Duration) {
        // SAFETY: an atomic in the mapping.
        let bell = unsafe { &(*self.head()).bell };
        let seen = bell.load(Ordering::Acquire);
        // A process may have begun since the reader has looked.
        // SAFETY: as above.
        let head = unsafe { &*self.head() };
        if head.head.load(Ordering::Acquire) == head.tail.load(Ordering::Acquire) {
            futex_wait(bell, seen, patience);
        } else {
            std::thread::sleep(Duration::from_micros(200).min(patience));
        }
    }

    /// Ends the log: nothing more is to be written.
    pub fn close(&self) {
        // SAFETY: an atomic in the mapping.
        unsafe { &(*self.head()).over }.store(1, Ordering::Release);
    }

    /// A reader from the first unread record on; one at a time.
    pub fn reader(&self) -> HeapLogReader<'_> {
        HeapLogReader {
            log: self,
            at: 0,
            next: 0,
            lost: 0,
            stuck: None,
            stack: vec![0; STACK / 8],
            python: Vec::new(),
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which no reader outlives.
        unsafe { libc::munmap(self.base.as_ptr().cast(), FILE_BYTES) };
    }
}

/// An event.
#[derive(Debug)]
pub struct HeapLogRecord<'a> {
    /// See [`HeapEvent::kind`].
    pub kind: u32,
    /// Process.
    pub pid: u32,
    /// CLOCK_MONOTONIC.
    pub ns: u64,
    /// The block.
    pub address: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Stack pointer: address of the first word of `stack`.
    pub sp: u64,
    /// Frame pointer.
    pub bp: u64,
    /// Number of blocks that it stands for.
    pub weight: f32,
    /// The stack's top, in words.
    pub stack: &'a [u64],
    /// The innermost Python frames.
    pub python: &'a [PythonFrame],
}

/// Reads the records in order.
pub struct HeapLogReader<'a> {
    log: &'a Log,
    /// Position of the last record read, and that of the next one.
    at: u64,
    next: u64,
    lost: u64,
    /// Time since which the record at `at` is incomplete.
    stuck: Option<Instant>,
    stack: Vec<u64>,
    python: Vec<PythonFrame>,
}

impl HeapLogReader<'_> {
    /// Number of events skipped because their writer did not complete them.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Frees the place of the last record for writers.
    pub fn done(&mut self) {
        self.at = self.next;
        // SAFETY: an atomic in the mapping.
        unsafe { &(*self.log.head()).tail }.store(self.at, Ordering::Release);
    }

    /// The next record. `last`: no process writes any more, so an incomplete record is not waited
    /// for.
    pub fn next(&mut self, last: bool) -> Option<HeapLogRecord<'_>> {
        loop {
            // SAFETY: an atomic in the mapping.
            let head = unsafe { &(*self.log.head()).head }.load(Ordering::Acquire);
            if self.at >= head || head - self.at > 2 * UNITS as u64 {
                return None;
            }
            let event = self.unit(self.at).cast::<HeapEvent>();
            // SAFETY: a unit in the mapping; its first word is an atomic.
            if unsafe { &(*event).tag }.load(Ordering::Acquire) == tag(self.at) {
                break;
            }
            let since = *self.stuck.get_or_insert_with(Instant::now);
            if !last && since.elapsed() < MAX_WAIT_FOR_WRITER {
                return None;
            }
            // An event counts once, however many units it has.
            self.lost += u64::from(self.next == self.at);
            self.at += 1;
            // SAFETY: as above.
            unsafe { &(*self.log.head()).tail }.store(self.at, Ordering::Release);
        }
        self.stuck = None;
        let event = self.unit(self.at).cast::<HeapEvent>();
        // SAFETY: a unit in the mapping. Every bit pattern is a value of these fields; they may
        // change while they are read, so each is read once.
        let (kind, pid, ns, address, bytes, sp, bp, length, python, weight) = unsafe {
            (
                (&raw const (*event).kind).read_volatile(),
                (&raw const (*event).pid).read_volatile(),
                (&raw const (*event).ns).read_volatile(),
                (&raw const (*event).address).read_volatile(),
                (&raw const (*event).bytes).read_volatile(),
                (&raw const (*event).sp).read_volatile(),
                (&raw const (*event).bp).read_volatile(),
                usize::from((&raw const (*event).stack).read_volatile()),
                usize::from((&raw const (*event).python).read_volatile()),
                f32::from_bits((&raw const (*event).weight).read_volatile()),
            )
        };
        let words = length.min(STACK) / 8;
        for word in 0..words {
            let unit = self.unit(self.at + 1 + (word * 8 / UNIT) as u64);
            // SAFETY: as above; the word lies in the unit.
            self.stack[word] = unsafe { unit.add(word * 8 % UNIT).cast::<u64>().read_volatile() };
        }
        let behind = self.at + 1 + (words * 8).div_ceil(UNIT) as u64;
        self.python.clear();
        let frames = self.unit(behind).cast::<PythonFrame>();
        for frame in 0..python.min(HEAP_PYTHON_FRAMES) {
            // SAFETY: as above; the frame lies in the unit.
            self.python
                .push(unsafe { frames.add(frame).read_volatile() });
        }
        self.next = behind + u64::from(python > 0);
        Some(HeapLogRecord {
            kind,
            pid,
            ns,
            address,
            bytes,
            sp,
            bp,
            weight,
            python: &self.python,
            stack: &self.stack[..words],
        })
    }

    fn unit(&self, position: u64) -> *mut u8 {
        // SAFETY: `offset` stays below the file's length for every position.
        unsafe { self.log.base.as_ptr().add(offset(position, self.log.units)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mgz_abi::heap_log::{ALLOC, FREE};

    /// Writes a record as the runtime does; without `complete`, as if its writer had died.
    fn write(log: &Log, kind: u32, address: u64, stack: &[u64], complete: bool) {
        let units = 1 + (stack.len() * 8).div_ceil(UNIT) as u64;
        // SAFETY: the test's own mapping.
        unsafe {
            let at = (*log.head()).head.fetch_add(units, Ordering::Relaxed);
            let event = log
                .base
                .as_ptr()
                .add(offset(at, log.units))
                .cast::<HeapEvent>();
            (*event).kind = kind;
            (*event).pid = 7;
            (*event).ns = address + 1;
            (*event).address = address;
            (*event).stack = (stack.len() * 8) as u16;
            for (i, &word) in stack.iter().enumerate() {
                log.base
                    .as_ptr()
                    .add(offset(at + 1 + (i * 8 / UNIT) as u64, log.units) + i * 8 % UNIT)
                    .cast::<u64>()
                    .write(word);
            }
            if complete {
                (*event).tag.store(tag(at), Ordering::Release);
            }
        }
    }

    #[test]
    fn records_come_out_in_order_over_many_laps_and_unfinished_ones_are_counted() {
        let log = Log::new(mgz_abi::heap_log::ALL, false).unwrap();
        let mut reader = log.reader();
        let mut state = 1u64;
        for round in 0..60_000u64 {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let stack: Vec<u64> = (0..(state >> 33) % 129).map(|i| round ^ i).collect();
            write(
                &log,
                if round % 3 == 0 { FREE } else { ALLOC },
                round,
                &stack,
                true,
            );
            let record = reader.next(false).expect("a record");
            assert_eq!((record.address, record.stack), (round, &stack[..]));
            assert_eq!(record.ns, round + 1);
            reader.done();
            assert!(reader.next(false).is_none());
        }
        write(&log, ALLOC, 1, &[1; 40], false);
        write(&log, ALLOC, 2, &[2; 40], true);
        assert!(
            reader.next(false).is_none(),
            "its writer may yet complete it"
        );
        assert_eq!(reader.next(true).map(|r| r.address), Some(2));
        reader.done();
        assert_eq!(reader.lost(), 1);
    }
}
