//! Sizes of cache lines and pages of x86-64.

/// Bytes of a cache line.
pub const LINE_BYTES: u64 = 64;
/// Log2 of the bytes of a cache line.
pub const LINE_SHIFT: u32 = LINE_BYTES.ilog2();
/// Bytes of a small page.
pub const PAGE_BYTES: u64 = 4096;
/// Log2 of the bytes of a small page.
pub const PAGE_SHIFT: u32 = PAGE_BYTES.ilog2();
