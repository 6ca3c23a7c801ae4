//! Limits of the search for prefetches.

/// Bytes of a page: an early load of an index stays on the page that the program is about to read.
/// Source: the architecture.
pub(super) const PAGE: i64 = 4096;
/// An early load is at most this many bytes ahead. With more, the end of the page would keep most
/// loads from being prefetched. Source: Chosen.
pub(super) const MAX_BYTES_AHEAD: i64 = PAGE / 2;
/// Loads of one line, bytes, share a prefetch. Source: the architecture.
pub(super) const LINE: u64 = 64;
/// An address is computed by at most this many instructions. More would cost as much as the load
/// that they are to hide. Source: Chosen.
pub(super) const MAX_SLICE: usize = 24;
/// The search for the instructions that compute an address goes through at most this many blocks.
/// Source: Chosen.
pub(super) const MAX_BLOCKS: usize = 64;
