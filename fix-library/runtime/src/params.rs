//! Constants of the library's memory.
//!
//! A doc comment says what a constant decides, its unit, and its source.

/// Size of a chunk of a pool, and of the unit that distinguishes the library's blocks from others,
/// bytes. Source: a large page of x86-64.
pub(crate) const CHUNK: usize = 2 << 20;
/// Largest block of a pool, bytes. Larger ones contain a page boundary anyway. Source: Chosen.
pub(crate) const LARGEST_POOLED: usize = 32 << 10;
/// Smallest block in bytes that gets large pages, or a place among the nodes. Source: Chosen, as half
/// of a large page.
pub(crate) const SMALLEST_LARGE: usize = 1 << 20;
/// Largest alignment in bytes of a block in a pool. Source: a page of x86-64.
pub(crate) const LARGEST_ALIGNMENT: usize = 4096;
/// Number of parts of a pool that threads use in parallel. Source: Chosen.
pub(crate) const SHARDS: usize = 16;
/// A chunk's free blocks of a class are sorted by address after this many were freed. Sorting reads
/// the chunk's marks, which takes 4 µs, or 16 ns for each of these blocks. Source: Chosen.
pub(crate) const SORTED_FROM: u16 = 256;
/// Attempts to take a lock before the thread sleeps. Locks are typically held for 20 ns. Source:
/// Chosen.
pub(crate) const ATTEMPTS: u32 = 64;
/// Freed large blocks that are kept for the next allocation. Source: Chosen.
pub(crate) const KEPT_REGIONS: usize = 8;
/// Maximum size of all kept large blocks, bytes. Source: Chosen, as twice the size up to which
/// glibc keeps freed blocks.
pub(crate) const KEPT_BYTES: usize = 64 << 20;
/// Address space above the library's memory that the kernel fills later, bytes. Source: Chosen.
pub(crate) const ROOM_TO_GROW: usize = 64 << 30;
/// Return addresses that are remembered, a power of two. Source: Chosen, as 64 KiB.
pub(crate) const REMEMBERED: usize = 8192;
/// Number of stack words in which outer frames are searched. Source: Chosen, as wrappers of
/// allocators have small frames.
pub(crate) const SEARCHED_WORDS: usize = 64;
