//! Spill files: the recorder writes them while the program runs. Afterwards it converts them to
//! Parquet. The analyzer can also read them directly.
//!
//! The recorder must keep up with a program that writes hundreds of millions of records a second,
//! so the encoding has no branches on the data and suits wide registers. It is also compact: the
//! ids of a loop repeat and its payloads advance by strides, and a slot with both predicted needs
//! no byte of its own.
//!
//! Guarantees: lossless for any slots (raw slots included, no table of record shapes is needed);
//! every segment can be decoded without the others; a torn tail (killed recorder, full disk) is
//! detected and never decoded as data; reading never panics.
//!
//! # Format (version 5, all numbers little-endian)
//!
//! One file per thread, `spill/PROCESS-THREAD-N.spill` (N counts reuses of the ids), is a 24-byte
//! file header and then segments.
//!
//! | offset | file header |
//! |---|---|
//! | 0 | `MGZSPILL` |
//! | 8 | version u32 |
//! | 12 | length of this header u32 |
//! | 16 | process u32 |
//! | 20 | thread u32 |
//!
//! | offset | segment header, 80 bytes (up to version 3: 72) |
//! |---|---|
//! | 0 | `MGZS` |
//! | 4 | kind u8 (0 full, 1 window) |
//! | 5 | cause u8 ([`cause`]) |
//! | 6 | bits u8: log2 of the number of predictor entries, 4 to 16 |
//! | 7 | zero |
//! | 8 | slots u32 |
//! | 12 | length of the control stream u32 |
//! | 16 | length of the data stream u32 |
//! | 20 | length of the aux stream u32 |
//! | 24 | first slot u64 |
//! | 32 | begin u64, ns |
//! | 40 | end u64, ns |
//! | 48 | check u64, see below |
//! | 56 | windows of `burst`: pace u64 ([`SpeedMeasurement`]): records in bits 0–31, nanoseconds in bits 32–60, kind in bits 61–63; else zero |
//! | 64 | length of the id stream u32 |
//! | 68 | slots of the ring that they were in u32, see [`SegmentHeader::written`]; zero (always in version 2): as many |
//! | 72 | windows of `burst`: period u64, see [`SegmentHeader::period`]; else zero |
//!
//! The streams follow: control, ids, data, aux. The predictor is an array of 2^bits entries {last,
//! stride, next}, all zero at a segment's start; the entry of a slot is the one numbered by the low
//! bits of its id. A slot's predicted id is `next` of the previous slot's entry (entry 0 for the
//! first slot), its predicted payload is `last + stride` of its own entry. Afterwards `next` of the
//! previous entry becomes the id, `stride` becomes payload − last, and `last` the payload.
//!
//! *Control*: four bits per slot, 16 slots to a u64 word (first slot lowest), 64 words to a block.
//! A block is a u64 bitmap of its words that are not zero (first word lowest), then those words.
//! Bit 3 of a slot's four: the id was not predicted. Bits 0–2: 0 if the payload was predicted, else
//! the length of the stored part: 1, 2, 3, 4, 5, 6 or 8 bytes for 1–7.
//!
//! *Ids*: per slot whose id was not predicted, the id less that of the previous slot (0 for the
//! first), i16. If that is −32768 or 32767, the difference may be larger, and the id follows, u32.
//!
//! *Data*: per slot whose payload was not predicted, payload − last, sign-extended from the stored
//! length. Eight zero bytes end the stream.
//!
//! *Aux*: for each slot whose `aux` is not zero the number of slots since the last such slot (or
//! the segment's start) as LEB128, then aux as u32.
//!
//! *Check*: four lanes start with the constants 1, 2, 3, 4; 8-byte words of header (check as zero)
//! and streams (each padded with zeros to a multiple of 8) go to the lanes in turn, starting with
//! lane 0 for each of the five parts: lane = ((lane ^ word) · 0x9e3779b97f4a7c15 mod 2^64), rotated
//! left by 29. The check is the lanes folded in the same way, from 0.

mod encode;
mod read;
#[cfg(test)]
mod tests;
mod write;

use mgz_abi::slot::Slot;
use read::u32_at;
pub use read::{SpillFile, SpillReader, StoredSegment, decode_alone};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
pub use write::{EncodedSegment, SpillWriter};

/// Version of the format.
pub const SPILL_VERSION: u32 = 5;
/// Oldest supported version, in which each record had its own slot.
const MIN_VERSION: u32 = 2;
/// Ending of spill file names.
pub const SPILL_EXTENSION: &str = "spill";

const FILE_MAGIC: &[u8; 8] = b"MGZSPILL";
const FILE_HEADER: usize = 24;
const SEGMENT_MAGIC: &[u8; 4] = b"MGZS";
const SEGMENT_HEADER: usize = 80;

/// Bytes of a segment header in a file of this version.
fn segment_header(version: u32) -> usize {
    const WITHOUT_PERIOD: usize = 72;
    if version < 4 {
        WITHOUT_PERIOD
    } else {
        SEGMENT_HEADER
    }
}
/// Slots per control block.
const BLOCK: usize = 1024;
/// Slots per control word.
const GROUP: usize = 16;
/// Zero bytes at the end of the data stream, so that readers may load eight bytes anywhere in it.
const DATA_PADDING: usize = 8;
/// Maximum size of a slot in the data stream, and in the id stream, bytes.
const MAX_SLOT_BYTES: usize = 8;
const IDS_LENGTH: usize = 6;
/// Bounds of `bits`.
const BITS: std::ops::RangeInclusive<u8> = 4..=16;
/// Upper bound of the slots of one segment; longer input is refused.
pub const MAX_SEGMENT_SLOTS: usize = 1 << 28;

/// Reasons why a segment is shorter than requested ([`SegmentHeader::cause`]). Those of the runtime
/// are `CAUSE_…` of [`mgz_abi::shared_memory`].
pub mod cause {
    use mgz_abi::shared_memory::{CAUSE_END_OF_THREAD, CAUSE_PHASE, CAUSE_WHOLE};

    /// A whole window, or a full chunk.
    pub const WHOLE: u8 = CAUSE_WHOLE as u8;
    /// The thread ended.
    pub const END_OF_THREAD: u8 = CAUSE_END_OF_THREAD as u8;
    /// The process ended by `exit` or `_exit`.
    pub const END_OF_PROCESS: u8 = 2;
    /// The process was replaced by `exec`.
    pub const EXEC: u8 = 3;
    /// The process was killed by a signal; the ring was read afterwards.
    pub const KILLED: u8 = 4;
    /// The recorder was stopped before the program ended.
    pub const RECORDER_STOPPED: u8 = 5;
    /// The trace reached its size limit, or the disk was full.
    pub const NO_SPACE: u8 = 6;
    /// A recorded phase ended.
    pub const PHASE: u8 = CAUSE_PHASE as u8;
    /// Names in the manifest (`totals.truncated_windows`), by number.
    pub const NAMES: [&str; 15] = [
        "whole",
        "end_of_thread",
        "end_of_process",
        "exec",
        "killed",
        "recorder_stopped",
        "no_space",
        "given_up",
        "flushed",
        "signal",
        "outside",
        "returned",
        "callback",
        "no_clone",
        "phase",
    ];

    /// The name of a cause.
    pub fn name(cause: u8) -> &'static str {
        NAMES.get(cause as usize).copied().unwrap_or("unknown")
    }
}

/// A measurement of the speed of a thread's code after its *previous* window (`burst`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpeedMeasurement {
    /// One of [`pace`].
    pub kind: u8,
    /// Number of records.
    pub records: u32,
    /// Duration, nanoseconds, at most 2²⁹ − 1.
    pub ns: u32,
}

/// Kinds of [`SpeedMeasurement`].
pub mod pace {
    use mgz_abi::shared_memory::{PACE_LAP, PACE_LAP_NEAR, PACE_WATCHED, PACE_WATCHED_NEAR};

    /// No measurement.
    pub const NONE: u8 = 0;
    /// The original code ran until a watchpoint was hit, this many records later.
    pub const WATCHED: u8 = PACE_WATCHED as u8;
    /// As [`WATCHED`] over few records: shows the cost of the measurement.
    pub const WATCHED_NEAR: u8 = PACE_WATCHED_NEAR as u8;
    /// The instrumented code ran for this many records.
    pub const LAP: u8 = PACE_LAP as u8;
    /// As [`LAP`] over few records: shows the cost of the measurement.
    pub const LAP_NEAR: u8 = PACE_LAP_NEAR as u8;
}

impl SpeedMeasurement {
    const MAX_NS: u32 = (1 << 29) - 1;

    fn word(self) -> u64 {
        u64::from(self.records)
            | u64::from(self.ns.min(Self::MAX_NS)) << 32
            | u64::from(self.kind & 7) << 61
    }

    /// Reads a measurement from the word in a segment's header.
    pub fn from_word(word: u64) -> SpeedMeasurement {
        SpeedMeasurement {
            kind: (word >> 61) as u8,
            records: word as u32,
            ns: (word >> 32) as u32 & Self::MAX_NS,
        }
    }
}

/// The thread of a spill file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadKey {
    /// System process id.
    pub process: u32,
    /// System thread id.
    pub thread: u32,
}

/// Kinds of segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SegmentKind {
    /// A chunk of a `full` recording: it continues the previous segment.
    #[default]
    Full,
    /// A separate window.
    Window,
}

/// Data of a segment besides its slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Kind of the segment.
    pub kind: SegmentKind,
    /// Index of its first slot among all slots that the thread's probes wrote, kept or not.
    pub first_slot: u64,
    /// Approximate CLOCK_MONOTONIC of the first slot, ns.
    pub begin_ns: u64,
    /// Approximate CLOCK_MONOTONIC of the last slot, ns.
    pub end_ns: u64,
    /// One of [`cause`].
    pub cause: u8,
    /// Number of slots: of records, markers and raw data. The writer sets it to the number of the
    /// given slots.
    pub slots: u32,
    /// Number of slots of the ring, in which two records may share one; 0: equal to `slots`.
    pub ring_slots: u32,
    /// Speed of the code after the thread's previous window.
    pub pace: SpeedMeasurement,
    /// Windows of `burst`: the average distance between triggers at the time of this window,
    /// nanoseconds of the thread's CPU time or loads; 0 if unknown.
    pub period: u64,
}

impl SegmentHeader {
    /// Number of slots that the probes wrote for the segment. Positions (`first_slot`), periods and
    /// counts of records use these slots.
    pub fn written(&self) -> u64 {
        u64::from(if self.ring_slots == 0 {
            self.slots
        } else {
            self.ring_slots
        })
    }
}

/// Errors of a spill file.
#[derive(Debug, thiserror::Error)]
pub enum SpillError {
    /// The file could not be read.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The file is not a spill file.
    #[error("not an mgz spill file (it does not begin with MGZSPILL)")]
    NotASpill,
    /// Written by another version.
    #[error(
        "spill format version {found} is not supported (this mgz reads versions {MIN_VERSION} to {SPILL_VERSION})"
    )]
    Version {
        /// Version in the file.
        found: u32,
    },
    /// A segment's content does not match its header.
    #[error("damaged spill file: the segment at offset {offset} {what}")]
    Damaged {
        /// File offset of the segment.
        offset: u64,
        /// The damage.
        what: &'static str,
    },
}

/// The check value of the module's documentation.
#[derive(Clone, Copy)]
struct Check([u64; 4]);

impl Check {
    const K: u64 = 0x9e37_79b9_7f4a_7c15;

    fn new() -> Check {
        Check([1, 2, 3, 4])
    }

    fn step(lane: u64, word: u64) -> u64 {
        (lane ^ word).wrapping_mul(Self::K).rotate_left(29)
    }

    fn part(&mut self, bytes: &[u8]) {
        let mut lanes = self.0;
        let mut chunks = bytes.chunks_exact(32);
        for chunk in &mut chunks {
            for (lane, word) in lanes.iter_mut().zip(chunk.chunks_exact(8)) {
                *lane = Self::step(
                    *lane,
                    u64::from_le_bytes(word.try_into().expect("eight bytes")),
                );
            }
        }
        for (lane, word) in lanes.iter_mut().zip(chunks.remainder().chunks(8)) {
            let mut padded = [0; 8];
            padded[..word.len()].copy_from_slice(word);
            *lane = Self::step(*lane, u64::from_le_bytes(padded));
        }
        self.0 = lanes;
    }

    fn value(self) -> u64 {
        self.0.iter().fold(0, |sum, &lane| Self::step(sum, lane))
    }
}

/// State of the predictor for an id's payloads.
#[derive(Clone, Copy, Default)]
#[repr(C, align(16))]
struct Entry {
    last: u64,
    stride: u64,
}

/// The predictor's entries; `next` is a separate array, so that more entries fit into the
/// first-level cache. There is always at least one.
struct Predictor {
    entries: Vec<Entry>,
    next: Vec<u32>,
}

impl Default for Predictor {
    fn default() -> Self {
        Predictor {
            entries: vec![Entry::default()],
            next: vec![0],
        }
    }
}

impl Predictor {
    /// Resets it to 2^bits empty entries.
    fn clear(&mut self, bits: u8) {
        self.entries.clear();
        self.entries.resize(1 << bits, Entry::default());
        self.next.clear();
        self.next.resize(1 << bits, 0);
    }

    /// Mask that turns ids into entry numbers. Each such number has an entry and a `next`.
    fn mask(&self) -> usize {
        self.entries.len() - 1
    }
}

/// Stored length in bytes by payload code.
const LENGTH: [u8; 8] = [0, 1, 2, 3, 4, 5, 6, 8];

/// The spill files in a folder with their threads, sorted by process, thread and age. A missing
/// folder has none.
pub fn list(dir: &Path) -> std::io::Result<Vec<(ThreadKey, PathBuf)>> {
    let entries = match std::fs::read_dir(dir) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_stem().and_then(|n| n.to_str()).unwrap_or("");
        let mut numbers = name.split('-').map(|part| part.parse::<u32>().ok());
        let (Some(Some(process)), Some(Some(thread)), Some(Some(n)), None) = (
            numbers.next(),
            numbers.next(),
            numbers.next(),
            numbers.next(),
        ) else {
            continue;
        };
        if path.extension().is_some_and(|e| e == SPILL_EXTENSION) {
            files.push((ThreadKey { process, thread }, n, path));
        }
    }
    files.sort();
    // A reused id, and successive programs of a process, have several files. The order of the files
    // may differ from the order of their contents.
    for same in files
        .chunk_by_mut(|a, b| a.0 == b.0)
        .filter(|f| f.len() > 1)
    {
        same.sort_by_cached_key(|(_, n, path)| (begin(path), *n));
    }
    Ok(files
        .into_iter()
        .map(|(key, _, path)| (key, path))
        .collect())
}

/// Begin of the first segment of a file; the largest value if there is none.
fn begin(path: &Path) -> u64 {
    let file = SpillFile::open(path).ok();
    let first = file.as_ref().and_then(|f| f.segments().first());
    first.map_or(u64::MAX, |segment| segment.header.begin_ns)
}

/// The version of a spill file, read without its segments; `None` if the file is not a spill file
/// or is truncated before the version.
pub fn version(path: &Path) -> std::io::Result<Option<u32>> {
    let mut header = Vec::with_capacity(FILE_HEADER);
    File::open(path)?
        .take(FILE_HEADER as u64)
        .read_to_end(&mut header)?;
    Ok((header.starts_with(FILE_MAGIC) && header.len() >= 12).then(|| u32_at(&header, 8)))
}
