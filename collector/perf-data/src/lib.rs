//! A reader and writer of the files of `perf record`, for Intel PT recordings and memory samples.
//!
//! What makes this hard: files come from many kernels and versions of perf, the layout of records
//! is in attributes that may come later than the records (pipe form), and PT data has three forms:
//! inside samples (AUX area sampling), as one long stream for each CPU or thread (full trace), and
//! as snapshots that overlap. Files are untrusted input, so every length and offset is checked.
//!
//! * [`header`]: file header and event attributes.
//! * [`records`]: sequences of records, decompressed if necessary.
//! * [`sample`]: the fields of samples and of the identity that other records carry.
//! * [`memory`]: samples of memory accesses, with the level that served each.
//! * [`callchain`]: the user part of a sample's call chain.
//! * [`session`]: one pass over a file: PT data, clocks, threads, mappings.
//! * [`mapping`]: the history of mapped files, by process and time.
//! * [`overlap`]: the common part of two windows of a stream.
//! * [`events`]: `ptwrite`s of a session, in parallel.
//! * [`writer`]: writing such a file during a recording.
//!
//! A recording is one file, or (`perf record --threads`) a folder with one that has the header and
//! one for each thread of perf.
//!
//! Guarantees: no file makes the reader panic or read out of bounds; unreadable parts are counted
//! and reported; memory stays near the size of the file. Not supported: big-endian files (PT is x86
//! only).

pub mod callchain;
pub mod events;
pub mod header;
pub mod mapping;
pub mod memory;
pub mod overlap;
pub mod records;
pub mod sample;
pub mod session;
pub mod writer;

pub use session::Session;

/// Errors that concern a file as a whole.
#[derive(Debug, thiserror::Error)]
pub enum PerfDataError {
    /// The file cannot be read.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The file is not a perf.data file.
    #[error("this is not a perf.data file")]
    NotPerfData,
    /// The first version of the format.
    #[error(
        "this perf.data file has version 1 of the format, of perf before Linux 3.5; Intel PT came later, so record again with a newer perf"
    )]
    OldVersion,
    /// The folder is not a recording of perf.
    #[error("this folder is not what `perf record --threads` writes: it holds no file `data`")]
    NotPerfDataFolder,
    /// The file has another byte order than x86.
    #[error("this perf.data file comes from a big-endian machine; Intel PT exists on x86 only")]
    ByteOrder,
    /// The file is truncated or contradictory before its first record.
    #[error("this perf.data file is damaged: {0}")]
    Damaged(String),
    /// The file has no Intel PT data.
    #[error(
        "this perf.data file holds no Intel PT data; record with -e intel_pt/ptw,fup_on_ptw,branch=0/u"
    )]
    NoIntelPt,
    /// The file has no data of which a trace can be made.
    #[error(
        "this perf.data file holds neither Intel PT data nor memory samples; record with -e intel_pt/ptw,fup_on_ptw,branch=0/u, or with `perf mem record`"
    )]
    NothingToImport,
}

/// `N` bytes at `at`.
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// Little-endian number at `at`.
pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_le_bytes)
}

/// Little-endian number at `at`.
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}

/// Little-endian number at `at`.
pub fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(u64::from_le_bytes)
}

/// Zero-terminated text (or up to the end).
pub fn zero_terminated_text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
