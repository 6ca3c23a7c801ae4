//! Constants of the rules for findings.
//!
//! A doc comment says what a constant decides, its unit, and its source. Shares, ratios and factors
//! have no unit. The constants serve to rank causes and are round numbers
//! (`docs/decisions/0053-mechanisms-from-data-flow.md`). `docs/reference/findings.md` lists those
//! that users may notice.

// Report: which causes become findings.

/// A report has at most this many findings. Source: Chosen.
pub(super) const MAX_FINDINGS_IN_REPORT: usize = 8;
/// A finding costs at least this much, in percent of the time. Source: Chosen.
pub(super) const MIN_COST_OF_FINDING_PCT: f64 = 2.0;
/// A finding has at least this many rows. Source: Chosen.
pub(super) const MIN_ROWS_FOR_FINDING: u64 = 64;
/// Nothing is found in fewer windows than this. Source: Chosen.
pub(super) const MIN_WINDOWS_FOR_FINDING: usize = 8;
/// A finding names at most this many other lines of its cause. Source: Chosen.
pub(super) const MAX_OTHER_LINES_OF_FINDING: usize = 6;
/// A working set must exceed this many bytes if the cache level of the rule is unknown. Source:
/// Chosen.
pub(super) const DEFAULT_CACHE_BYTES_TO_EXCEED: u64 = 1 << 20;

// Rows that are read.

/// At most this many rows are read from a trace. Source: Chosen.
pub(super) const MAX_ROWS_READ: u64 = 1 << 20;
/// A trace with more rows than this multiple of [`MAX_ROWS_READ`] is read in chosen pieces. Source:
/// Chosen.
pub(super) const READ_LIMITS_BEFORE_CHOOSING_PIECES: u64 = 2;
/// At most this many pieces of a long trace are read. Source: Chosen.
pub(super) const MAX_PIECES_READ: usize = 64;
/// A window has at most this many rows. Longer samples are cut. Source: Chosen.
pub(super) const MAX_ROWS_OF_WINDOW: usize = 1000;

// Caches and cycles.

/// The levels of common machines: name, bytes, ways, and cycles of a load that hits. They apply if
/// the machine's caches are unknown. The cycles always apply. Source: Chosen.
pub(super) const COMMON_CACHE_LEVELS: [(&str, u64, u64, f64); 3] = [
    ("L1", 32 << 10, 8, 4.0),
    ("L2", 1 << 20, 16, 14.0),
    ("L3", 32 << 20, 16, 50.0),
];
/// A load from memory takes this many cycles on common machines. Source: Chosen.
pub(super) const MEMORY_CYCLES: f64 = 220.0;
/// This share of a latency delays the program if each load waits for the one before. Source:
/// Chosen.
pub(super) const FELT_LATENCY_SHARE_IN_CHASE: f64 = 1.0;
/// This share of a latency delays the program if several loads overlap. Source: Chosen.
pub(super) const FELT_LATENCY_SHARE_OVERLAPPING: f64 = 0.25;
/// This share of a latency delays the program if a prefetcher is ahead. Source: Chosen.
pub(super) const FELT_LATENCY_SHARE_PREFETCHED: f64 = 0.08;
/// A load that hits takes this many cycles, other work included. Source: Chosen.
pub(super) const CYCLES_OF_HITTING_LOAD: f64 = 1.5;
/// A page walk after a TLB miss takes this many cycles. Source: Chosen.
pub(super) const CYCLES_OF_PAGE_WALK: f64 = 30.0;
/// The TLB of common machines covers this many bytes with pages of 4 KiB. Source: Chosen, as 2048
/// entries.
pub(super) const TLB_REACH_BYTES: u64 = 2048 * 4096;

// Steps of load instructions.

/// At most this many different steps are kept for a load instruction. Source: Chosen.
pub(super) const MAX_STEPS_KEPT_PER_LOAD: usize = 48;
/// A pattern of steps counts from this many steps on. Source: Chosen.
pub(super) const MIN_STEPS_FOR_PATTERN: u64 = 8;
/// The most frequent step is regular if it has at least this share of the steps. Source: Chosen.
pub(super) const MIN_SHARE_OF_REGULAR_STEP: f64 = 0.6;
/// Loads are in order if most steps are at most this many bytes. Source: Chosen, as the length of a
/// line.
pub(super) const MAX_STEP_BYTES_IN_ORDER: u64 = 64;
/// Loads are in order if at least this share of the steps is short. Source: Chosen.
pub(super) const MIN_SHARE_OF_STEPS_IN_ORDER: f64 = 0.8;
/// A load stays at its address if more than this share of the steps is zero. Source: Chosen.
pub(super) const MIN_SHARE_OF_STEPS_IN_PLACE: f64 = 0.9;
/// A load instruction or cause is frequent if it has at least one in this many rows. Source:
/// Chosen.
pub(super) const ROWS_PER_FREQUENT_ROW: u64 = 300;

// Walks that return.

/// A step back by at least this many bytes may end a walk through a block. Source: Chosen, as the
/// size of a page.
pub(super) const MIN_RETURN_BYTES: i64 = 4096;
/// A walk returns if its main step back comes at least this many times. Source: Chosen.
pub(super) const MIN_RETURNS_OF_WALK: u64 = 4;
/// The main step back of such a walk has at least this share of its steps back, in percent. Source:
/// Chosen.
pub(super) const MIN_SHARE_OF_RETURN_STEP_PCT: u64 = 60;
/// A walk returns if the distance moved since the last return, over the step back, is in this
/// range. Source: Chosen.
pub(super) const MOVED_OVER_RETURN_STEP: std::ops::Range<f64> = 0.7..1.4;

// Short runs between jumps.

/// A longer step than this many bytes is a jump. Source: Chosen.
pub(super) const MAX_STEP_BYTES_IN_RUN: u64 = 1024;
/// A prefetcher has recognised a run after this many bytes and fetches ahead. Source: Chosen.
pub(super) const PREFETCHED_RUN_BYTES: f64 = 192.0;
/// Short runs are looked for from this many steps on. Source: Chosen.
pub(super) const MIN_STEPS_FOR_SHORT_RUNS: u64 = 64;
/// Short runs have a share of jumps in this range. Source: Chosen.
pub(super) const JUMP_SHARE_OF_SHORT_RUNS: std::ops::RangeInclusive<f64> = 1.0 / 64.0..=0.5;
/// Jumps have a pattern if one of them has at least this share of the jumps. Source: Chosen.
pub(super) const MIN_SHARE_OF_JUMP_WITH_PATTERN: f64 = 0.5;

// Working sets.

/// Addresses at least this many bytes apart lie in different blocks, unless the object has larger
/// blocks. The limit applies to unknown objects and to objects with many blocks. Source: Chosen.
pub(super) const MIN_BYTES_BETWEEN_BLOCKS: u64 = 256 << 20;
/// Visits are unequal if the lower bound of the lines exceeds this multiple of the estimate for
/// equally likely lines. Source: Chosen.
pub(super) const MIN_RATIO_OF_UNEQUAL_VISITS: f64 = 1.3;
/// Recapture is used if at least this share of the lines was seen again. Source: Chosen.
pub(super) const MIN_REPEATED_SHARE_FOR_RECAPTURE: f64 = 0.1;

// Causes.

/// A first touch weighs as many rows as this when lines and loads of a cause are ranked. Source:
/// Chosen.
pub(super) const ROWS_PER_FIRST_TOUCH_IN_RANK: u64 = 16;
/// A load reads a node if a load of the chase comes within this many rows. Source: Chosen.
pub(super) const MAX_ROWS_TO_CHASE: usize = 8;
/// A load reads a node if a load of the chase is less than this many bytes away. Source: Chosen.
pub(super) const MAX_BYTES_TO_CHASE: u64 = 128;
/// A load joins a chase if it reads nodes in at least this share of its rows, in percent. Source:
/// Chosen.
pub(super) const MIN_ROWS_NEAR_CHASE_PCT: u64 = 60;
/// The origin of an address is followed through at most this many pointers. Source: Chosen.
pub(super) const MAX_POINTERS_TO_ORIGIN: usize = 8;

// Objects of findings.

/// An object is named if it has at least this share of the rows. Source: Chosen.
pub(super) const MIN_SHARE_OF_NAMED_OBJECT: f64 = 0.3;
/// An object smaller than the working set by this factor is not what the loads go through. Source:
/// Chosen.
pub(super) const WORKING_SET_OVER_SMALL_OBJECT: u64 = 16;
/// Blocks that were not logged are estimated from at least this many first touches of logged
/// blocks. Source: Chosen.
pub(super) const MIN_LOGGED_TOUCHES: u64 = 4;
/// At most this many objects are named together. Source: Chosen.
pub(super) const MAX_OBJECTS_NAMED_TOGETHER: usize = 6;
/// Objects are named together if they have at least this share of the rows. Source: Chosen.
pub(super) const MIN_SHARE_OF_OBJECTS_TOGETHER: f64 = 0.7;
/// First touches are used instead of rows from this number on. Source: Chosen.
pub(super) const MIN_FIRST_TOUCHES_FOR_OBJECT: u64 = 32;

// Fields of elements.

/// A longer step than this many bytes is not the size of an element. Source: Chosen.
pub(super) const MAX_ELEMENT_BYTES: u64 = 4096;
/// An element of at most this many bytes has no fields. Source: Chosen, as one word.
pub(super) const MAX_BYTES_WITHOUT_FIELDS: u64 = 8;
/// Fields of an object are listed from this many rows on. Source: Chosen.
pub(super) const MIN_ROWS_FOR_FIELDS: u64 = 16;
/// An object has at most this many fields. Those with the fewest loads are dropped. Source: Chosen.
pub(super) const MAX_FIELDS_OF_OBJECT: usize = 64;

// Rule: copies.

/// An access of at least this many bytes is a copy. No vector register is as large. Source: Chosen.
pub(super) const MIN_BYTES_OF_COPY: u32 = 256;

// Rule: gather.

/// Arrays that are read at one index count if more than this share of their loads is cold. Source:
/// Chosen.
pub(super) const MIN_COLD_SHARE_OF_GATHERED_ARRAY: f64 = 0.2;
/// Two loads are compared by at least this many pairs of steps. Source: Chosen.
pub(super) const MIN_STEP_PAIRS_OF_GATHER: usize = 16;
/// Two loads follow one index if at least this share of the pairs has the same ratio. Source:
/// Chosen.
pub(super) const MIN_SHARE_OF_SAME_STEP_RATIO: f64 = 0.6;
/// Ratios of steps are rounded to one in this many. Source: Chosen.
pub(super) const STEP_RATIO_RESOLUTION: f64 = 64.0;

// Rule: column.

/// A step of at least this many bytes goes to another row rather than to another element. Source:
/// Chosen.
pub(super) const MIN_ROW_BYTES_OF_COLUMN_WALK: u64 = 128;
/// A walk in blocks uses at least this share of the bytes of the lines that it fetches. Source:
/// Chosen.
pub(super) const MIN_USED_SHARE_OF_BLOCKED_WALK: f64 = 0.5;
/// As many blocks as this fit the cache, if the advice is followed. Source: Chosen.
pub(super) const BLOCKS_IN_CACHE: f64 = 2.0;
/// The side of an advised block is at least 2 to the power of this, in elements. Source: Chosen.
pub(super) const MIN_BLOCK_SIDE_LOG2: f64 = 2.0;
/// The side of an advised block has this many elements if no cache is known. Source: Chosen.
pub(super) const DEFAULT_BLOCK_SIDE: u64 = 32;

// Rule: strided.

/// At most this many rows of a load instruction are inspected for the bytes that it reads. Source:
/// Chosen.
pub(super) const MAX_ROWS_INSPECTED_FOR_BYTES: usize = 256;
/// A step of at least this many bytes wastes much of a line. Source: Chosen.
pub(super) const MIN_WASTEFUL_STEP_BYTES: u64 = 32;
/// A walk is wasteful if the bytes that it fetches are at least this multiple of those that it
/// reads. Source: Chosen.
pub(super) const MIN_FETCHED_OVER_USED_BYTES: u64 = 2;
/// A prefetcher follows steps of at most this many bytes. Source: Chosen.
pub(super) const MAX_PREFETCHED_STEP_BYTES: u64 = 256;

// Rule: capacity.

/// A walk through its working set has a step of at least 1 and at most this many bytes. Source:
/// Chosen, as the length of a line.
pub(super) const MAX_STEP_BYTES_OF_CAPACITY_WALK: u64 = 64;
/// A working set just above a cache is at most this multiple of it. Source: Chosen.
pub(super) const MAX_CAPACITY_SET_OVER_CACHE: f64 = 2.0;
/// The rule needs at least this many first touches. Source: Chosen.
pub(super) const MIN_FIRST_TOUCHES_OF_CAPACITY: u64 = 32;

// Rule: streaming.

/// A stream has steps of at most this many bytes, for the most part. Source: Chosen.
pub(super) const MAX_STEP_BYTES_OF_STREAM: u64 = 128;
/// A stream has at least this share of such steps. Source: Chosen.
pub(super) const MIN_SHARE_OF_STREAM_STEPS: f64 = 0.6;

// Rule: irregular.

/// Other loads miss if at least this share of them is cold. Source: Chosen.
pub(super) const MIN_COLD_SHARE_OF_IRREGULAR: f64 = 0.1;

// Text of all mechanisms.

/// A working set is told as a multiple of the cache from this ratio on. Source: Chosen, as it is
/// rounded to 2.
pub(super) const MIN_SET_OVER_CACHE_TO_TELL: f64 = 1.95;
/// Lines lie spread over memory if there are at least this many. Source: Chosen.
pub(super) const MIN_LINES_OF_SPREAD: u64 = 64;
/// Lines lie spread if their pages are more than this share of them, in percent. Source: Chosen.
pub(super) const MIN_PAGES_OF_SPREAD_PCT: u64 = 75;
/// Lines lie spread if their extent exceeds this multiple of their bytes. Source: Chosen.
pub(super) const MIN_EXTENT_OVER_BYTES_OF_SPREAD: u64 = 8;
/// Huge pages are advised if the extent exceeds this multiple of [`TLB_REACH_BYTES`]. Source:
/// Chosen.
pub(super) const MIN_EXTENT_OVER_TLB_REACH: u64 = 4;

// Finding: conflicts in sets.

/// Conflicts evict the lines of at least this share of the loads, in the first and in the second
/// level. Source: Chosen.
pub(super) const MIN_SHARE_OF_CONFLICTS: f64 = 0.2;
/// Conflicts are told from at least this many loads in second halves of samples. Source: Chosen.
pub(super) const MIN_LOADS_FOR_CONFLICTS: f64 = 64.0;
/// The distances of lines are taken from windows until there are more than this many. Source:
/// Chosen.
pub(super) const MAX_WINDOWS_FOR_DISTANCES: usize = 8;

// Finding: sharing between threads.

/// Shared lines have at least this share of all rows. Source: Chosen.
pub(super) const MIN_SHARE_OF_SHARED_LINES: f64 = 0.05;
/// The transfer of a line between cores takes this many cycles, relative to one cycle of other work
/// per row. Source: Chosen.
pub(super) const CYCLES_OF_LINE_TRANSFER: f64 = 60.0;
/// A recording of stores is suggested if lines of several threads have at least this share of the
/// loads. Source: Chosen.
pub(super) const MIN_SHARE_OF_SUSPECTED_LINES: f64 = 0.2;
/// A line is shared if other threads than the busiest one have at least one in this many of its
/// rows. Source: Chosen.
pub(super) const ROWS_PER_ROW_OF_OTHER_THREADS: u64 = 10;
