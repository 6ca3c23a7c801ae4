//! Constants of patches of sources.

/// Unchanged lines around a change in a diff. Source: Convention.
pub const CONTEXT_LINES: usize = 3;
/// Larger sources are not read, bytes. Source: Chosen; generated tables, not code.
pub const MAX_SOURCE_BYTES: u64 = 8 << 20;
/// Larger debug information is not searched for structures, bytes. Source: Chosen; some seconds.
pub const MAX_DEBUG_BYTES: u64 = 256 << 20;
/// Longest chain of types that is followed. Source: Chosen; damaged debug information may have
/// cycles.
pub const MAX_TYPE_DEPTH: usize = 16;
/// Bytes of a cache line. Source: x86-64 processors.
pub const LINE_BYTES: u64 = 64;
/// Alignment of heap blocks, bytes. Source: glibc's `malloc` on x86-64.
pub const HEAP_ALIGNMENT: u64 = 16;
/// A field is hot if its share of the loads is at least this part of the hottest one's. Source: The
/// same as for `hot-cold` of `mgz what-if`.
pub const MIN_SHARE_OF_HOTTEST: f64 = 0.2;
/// A new order of fields must save this share of the lines with the hot fields of an element.
/// Source: Chosen; a smaller gain is not measurable.
pub const MIN_SAVED_LINES: f64 = 0.05;
/// Iterations from a prefetch to its load. Source: The first distance of prefetches in finished
/// programs.
pub const PREFETCH_DISTANCE: u32 = 16;
/// Heap blocks with fewer bytes have no huge pages. Source: One page of 2 MiB on x86-64.
pub const HUGE_PAGE_BYTES: u64 = 2 << 20;
/// Larger trees are not copied, bytes. Source: Chosen, for temporary folders in memory.
pub const MAX_TREE_BYTES: u64 = 4 << 30;
/// Number of lines shown of a failed build. Source: Chosen.
pub const BUILD_LINES: usize = 5;
