//! Constants of the rules for findings.
//!
//! A doc comment says what a constant decides, its unit, and its source. Shares, ratios and factors
//! have no unit. The constants serve to rank causes and are round numbers
//! (`docs/decisions/0053-mechanisms-from-data-flow.md`). `docs/reference/findings.md` lists those
//! that users may notice.

use crate::data::memory_units::{LINE_BYTES, PAGE_BYTES};

// Report: which causes become findings.

/// A report has at most this many findings. Source: Chosen.
pub(super) const MAX_FINDINGS_IN_REPORT: usize = 8;
/// A finding costs at least this much, in percent of the time. Source: Chosen.
pub(super) const MIN_COST_OF_FINDING_PCT: f64 = 2.0;
/// If there is no finding, code that may lose this much is named, in percent of the time. Source:
/// Chosen.
pub(super) const MIN_COST_OF_DOUBT_PCT: f64 = 10.0;
/// A finding has at least this many rows. Source: Chosen.
pub(super) const MIN_ROWS_FOR_FINDING: u64 = 64;
/// Fewer windows than this give no findings. Source: Chosen.
pub(crate) const MIN_WINDOWS_FOR_FINDING: usize = 8;
/// A finding names at most this many other lines of its cause. Source: Chosen.
pub(super) const MAX_OTHER_LINES_OF_FINDING: usize = 6;

// Rows that are read.

/// At most this many rows are read from a trace. Source: Chosen.
pub(super) const MAX_ROWS_READ: u64 = 1 << 20;
/// A trace with more rows than this multiple of [`MAX_ROWS_READ`] is read in selected pieces.
/// Source: Chosen.
pub(super) const READ_LIMITS_BEFORE_CHOOSING_PIECES: u64 = 2;
/// At most this many pieces of a long trace are read. Source: Chosen.
pub(super) const MAX_PIECES_READ: usize = 64;
/// A window has at most this many rows. Longer samples are cut. Source: Chosen.
pub(super) const MAX_ROWS_OF_WINDOW: usize = 1000;

// Prices.

/// This share of a latency delays the program if each load waits for the previous one, with the
/// ends of its interval. The ends are used if latencies are measured. Source: Chosen; the lower
/// ends of this and the next one are from `benches/run knees`, where branch prediction lets binary
/// searches overlap.
pub(super) const EXPOSED_LATENCY_SHARE_IN_CHASE: [f64; 3] = [0.2, 1.0, 1.0];
/// This share of a latency delays the program if several loads overlap. Source: Chosen.
pub(super) const EXPOSED_LATENCY_SHARE_OVERLAPPING: [f64; 3] = [0.02, 0.25, 0.5];
/// This share of a latency delays the program if a prefetcher has fetched the line, unless it was
/// measured. Source: Chosen.
pub(super) const EXPOSED_LATENCY_SHARE_PREFETCHED: [f64; 3] = [0.04, 0.08, 0.16];
/// Software prefetches leave this part of the waits of loads that overlap. Source: `benches/run
/// gain`; cores fetch some 24 lines at a time, and measured overlap is that of 8.
pub(super) const PART_LEFT_BY_SOFTWARE_PREFETCH: f64 = 1.0 / 3.0;
/// A line that a prefetcher has fetched from a cache delays the program by this share of its latency
/// at least. Source: Chosen; chains of loads that measure it hide shorter waits behind hits.
pub(super) const MIN_EXPOSED_LATENCY_SHARE_PREFETCHED: f64 = 0.01;
/// Prefetchers of processors do not follow longer steps, in bytes. Source: Intel's optimization
/// manual, section on hardware prefetching: prefetchers stay inside a page of 4 KiB.
pub(super) const MAX_STEP_OF_PREFETCHER: u64 = PAGE_BYTES / 2;
/// A load that hits takes this many nanoseconds, other work included. Source: `benches/run gain`, in
/// which programs without misses take 0.1 to 0.4.
pub(super) const NS_OF_HITTING_LOAD: f64 = 0.3;
/// The price of a miss is wrong by a factor between these. Source: Chosen, as latencies of caches
/// and the overlap of loads differ by that much among machines and loops.
pub(super) const FACTORS_OF_UNSURE_PRICE: [f64; 2] = [0.5, 2.0];
/// A predicted gain is wrong by at most about this much, in percent of the time. It covers overlap
/// and other effects that replays do not show. Source: `benches/run gain --set open`, in which 40 %
/// of the errors are above 10 points and 15 % above 40.
pub(super) const GAIN_ERROR_PCT: f64 = 35.0;
/// The time of other work is uncertain by this factor if latencies are measured. Source: Chosen.
pub(super) const OTHER_WORK_FACTOR: f64 = 2.0;

// Measured time per row (`time_account.rs`).

/// Standard deviation of the logarithm of waits that overlap, over the predicted ones. Source:
/// `benches/run gain`.
pub(super) const EXPOSED_WAIT_DEVIATION: f64 = 0.9;
/// Standard deviation of the logarithm of the time of other work, over
/// [`NS_OF_HITTING_LOAD`]. Source: `benches/run gain`; mispredicted branches take ten times as long.
pub(super) const OTHER_WORK_DEVIATION: f64 = 1.0;
/// The interval of a predicted miss ratio is this many times wider at most, for its part of the
/// deviation of waits. Source: Chosen.
pub(super) const MAX_RATIO_OF_MISS_ENDS: f64 = 1000.0;
/// Least standard deviation of the logarithm of a measured time per row. Source: Chosen.
pub(super) const MIN_PACE_DEVIATION: f64 = 0.1;
/// Priors are summed at this many steps on each side. Source: Chosen.
pub(super) const GRID_HALF: i32 = 12;
/// Length of a step in standard deviations. Source: Chosen: 3 in all.
pub(super) const GRID_STEP: f64 = 0.25;
/// A number is known if the upper end of its interval is at most this multiple of the lower end.
/// Source: Chosen.
pub(super) const MAX_RATIO_OF_KNOWN_ENDS: f64 = 3.0;
/// Findings are ranked by their cost. A vague cost counts by this factor. Source: Chosen: a firm
/// finding comes before a vague one of up to twice its cost.
pub(super) const WEIGHT_OF_VAGUE_COST: f64 = 0.5;
/// The TLB of common machines covers this many bytes with pages of 4 KiB. Source: Chosen, as 2048
/// entries.
pub(super) const TLB_REACH_BYTES: u64 = 2048 * PAGE_BYTES;

// Steps of load instructions.

/// At most this many different steps are kept for a load instruction. Source: Chosen.
pub(super) const MAX_STEPS_KEPT_PER_LOAD: usize = 48;
/// A pattern of steps counts from this many steps on. Source: Chosen.
pub(super) const MIN_STEPS_FOR_PATTERN: u64 = 8;
/// The most frequent step is regular if it has at least this share of the steps. Source: Chosen.
pub(super) const MIN_SHARE_OF_REGULAR_STEP: f64 = 0.6;
/// Loads are in order if most steps are at most this many bytes. Source: Chosen, as the length of a
/// line.
pub(super) const MAX_STEP_BYTES_IN_ORDER: u64 = LINE_BYTES;
/// Loads are in order if at least this share of the steps is short. Source: Chosen.
pub(super) const MIN_SHARE_OF_STEPS_IN_ORDER: f64 = 0.8;
/// A load stays at its address if more than this share of the steps is zero. Source: Chosen.
pub(super) const MIN_SHARE_OF_STEPS_IN_PLACE: f64 = 0.9;
/// A load instruction or cause is frequent if it has at least one in this many rows. Source:
/// Chosen.
pub(super) const ROWS_PER_FREQUENT_ROW: u64 = 300;

// Alternating walks, stacks, and descents.

/// A sequence is recognised with at least this many first touches. Source: Chosen.
pub(super) const MIN_FIRST_TOUCHES_OF_SEQUENCE: u64 = 16;
/// Walks alternate if fewer steps than this share stay in their walk. Source: Chosen.
pub(super) const MAX_SHARE_OF_SHORT_STEPS_IN_TURNS: f64 = 0.5;
/// At least this share of the steps at the top of a stack goes back by one element. Source: Chosen.
pub(super) const MIN_SHARE_OF_POPS: f64 = 0.3;
/// At least this share of the steps at the top of a stack does not go back. Source: Chosen.
pub(super) const MIN_SHARE_OF_PUSHES: f64 = 0.05;
/// A step is twice the previous one if their ratio is in this range. Source: Chosen.
pub(super) const RATIO_OF_DOUBLED_STEP: std::ops::Range<f64> = 1.8..2.25;
/// Steps double or halve if at least this share of them does. Random steps have 8 %. Source:
/// Chosen.
pub(super) const MIN_SHARE_OF_STEPS_BY_RATIO: f64 = 0.4;

// Short runs between jumps.

/// A longer step than this many bytes is a jump. Source: Chosen.
pub(super) const MAX_STEP_BYTES_IN_RUN: u64 = 1024;
/// A prefetcher has recognised a run after this many bytes and fetches ahead. Source: Chosen.
pub(super) const PREFETCHED_RUN_BYTES: f64 = 192.0;
/// Short runs are sought with at least this many steps. Source: Chosen.
pub(super) const MIN_STEPS_FOR_SHORT_RUNS: u64 = 64;
/// Short runs have a share of jumps in this range. Source: Chosen.
pub(super) const JUMP_SHARE_OF_SHORT_RUNS: std::ops::RangeInclusive<f64> = 1.0 / 64.0..=0.5;
/// Jumps have a pattern if one of them has at least this share of the jumps. Source: Chosen.
pub(super) const MIN_SHARE_OF_JUMP_WITH_PATTERN: f64 = 0.5;

// Causes.

/// A load reads a node if a load of the chase is within this many rows. Source: Chosen.
pub(super) const MAX_ROWS_TO_CHASE: usize = 8;
/// A load reads a node if a load of the chase is less than this many bytes away. Source: Chosen.
pub(super) const MAX_BYTES_TO_CHASE: u64 = 128;
/// A load joins a chase if it reads nodes in at least this share of its rows, in percent. Source:
/// Chosen.
pub(super) const MIN_ROWS_NEAR_CHASE_PCT: u64 = 60;
/// A tree is a list if one link leads to a share of the nodes in this range. A link that leads to
/// all of them is one that a comparison selects. Source: Chosen.
pub(super) const SHARE_OF_MAIN_LINK: std::ops::Range<f64> = 0.75..0.999;
/// Children of a node are read in sequence if steps by one link have a share in this range. Source:
/// Chosen.
pub(super) const SHARE_OF_CHILD_STEPS: std::ops::Range<f64> = 0.2..0.95;
/// The root of a tree is visited at least this many times as often as an average line of its nodes.
/// Source: Chosen.
pub(super) const MIN_VISITS_OF_ROOT_OVER_MEAN: f64 = 8.0;
/// Searches begin in a line that they visit at least this many times as often as an average line.
/// Source: Chosen; three searches of 20 steps in a window have 2.8.
pub(super) const MIN_VISITS_OF_MIDDLE_OVER_MEAN: f64 = 2.0;
/// A chain begins in a hash table if a look-up is among this many rows before it. Source: Chosen.
pub(super) const MAX_ROWS_FROM_TABLE: usize = 64;
/// A chain of a hash table has a mean number of nodes in this range. Source: Chosen.
pub(super) const NODES_OF_CHAIN: std::ops::Range<f64> = 1.3..64.0;
/// The origin of an address is followed through at most this many pointers. Source: Chosen.
pub(super) const MAX_POINTERS_TO_ORIGIN: usize = 8;

// Objects of findings.

/// An object is named if it has at least this share of the rows. Source: Chosen.
pub(super) const MIN_SHARE_OF_NAMED_OBJECT: f64 = 0.3;
/// Blocks that were not logged are estimated from at least this many first touches of logged
/// blocks. Source: Chosen.
pub(super) const MIN_LOGGED_TOUCHES: u64 = 4;
/// An allocation site is listed if its blocks have at least this share of the rows. Source: Chosen.
pub(super) const MIN_SHARE_OF_SITE: f64 = 0.05;
/// A finding lists at most this many allocation sites. Source: Chosen.
pub(super) const MAX_SITES_OF_FINDING: usize = 8;
/// At most this many objects are named together. Source: Chosen.
pub(super) const MAX_OBJECTS_NAMED_TOGETHER: usize = 6;
/// Objects are named together if they have at least this share of the rows. Source: Chosen.
pub(super) const MIN_SHARE_OF_OBJECTS_TOGETHER: f64 = 0.7;

// Fields of elements.

/// A longer step than this many bytes is not the size of an element. Source: Chosen.
pub(super) const MAX_ELEMENT_BYTES: u64 = 4096;
/// An element of at most this many bytes has no fields. Source: Chosen, as one word.
pub(super) const MAX_BYTES_WITHOUT_FIELDS: u64 = 8;
/// Fields of an object are listed if it has at least this many rows. Source: Chosen.
pub(super) const MIN_ROWS_FOR_FIELDS: u64 = 16;
/// An object has at most this many fields. Those with the fewest loads are dropped. Source: Chosen.
pub(super) const MAX_FIELDS_OF_OBJECT: usize = 64;

// Rule: copies.

/// An access of at least this many bytes is a copy. No vector register is as large. Source: Chosen.
pub(super) const MIN_BYTES_OF_COPY: u32 = 256;

// Rule: gather.

/// Arrays that are read at the same index count if more than this share of their loads is cold.
/// Source: Chosen.
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
/// A walk in blocks returns to a line, for bytes that it has not read yet, in at least this share
/// of its visits to lines. Source: Chosen; blocks of 8-byte elements return in 7 of 8 visits.
pub(super) const MIN_RETURNS_OF_BLOCKED_WALK: f64 = 0.5;
/// It visits at least this many other lines in between. Source: Chosen; stencils return after
/// fewer.
pub(super) const MIN_VISITS_BETWEEN_RETURNS: u64 = 16;
/// Columns are distinguished by at least this many windows. Source: Chosen.
pub(super) const MIN_WINDOWS_OF_COLUMNS: usize = 8;
/// At least this share of the windows of a walk by columns begins in a column that no other window
/// begins in. Source: Chosen.
pub(super) const MIN_SHARE_OF_COLUMNS: f64 = 0.25;
/// With the advised block size, this many blocks fit into the cache. Source: Chosen.
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

// Rule: capacity.

/// A walk through its working set has a step of at least 1 and at most this many bytes. Source:
/// Chosen, as the length of a line.
pub(super) const MAX_STEP_BYTES_OF_CAPACITY_WALK: u64 = LINE_BYTES;
/// Memory just above a cache is at most this multiple of it, as far as windows show it. Source:
/// Chosen.
pub(super) const MAX_CAPACITY_EXTENT_OVER_CACHE: f64 = 2.0;
/// Windows see at least this share of the lines again. Source: Chosen.
pub(super) const MIN_SHARE_OF_LINES_AGAIN: f64 = 0.1;

// Rule: streaming.

/// A stream has steps of at most this many bytes, for the most part. Source: Chosen.
pub(super) const MAX_STEP_BYTES_OF_STREAM: u64 = 128;
/// A stream has at least this share of such steps. Source: Chosen.
pub(super) const MIN_SHARE_OF_STREAM_STEPS: f64 = 0.6;

// Text of all mechanisms.

/// Huge pages are advised if the extent exceeds this multiple of [`TLB_REACH_BYTES`]. Source:
/// Chosen.
pub(super) const MIN_EXTENT_OVER_TLB_REACH: u64 = 4;

// Finding: conflicts in sets.

/// Conflicts evict the lines of at least this share of the loads, in the first and in the second
/// level. Source: Chosen.
pub(super) const MIN_SHARE_OF_CONFLICTS: f64 = 0.2;
/// Conflicts are assessed with at least this many loads in second halves of samples. Source:
/// Chosen.
pub(super) const MIN_LOADS_FOR_CONFLICTS: f64 = 64.0;
/// The distances of lines are taken from windows until more than this many were read. Source:
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

/// Nanoseconds of a load of a contended line if no other thread takes it: least, estimate, most.
/// Source: three loads in a cycle; [`NS_OF_HITTING_LOAD`]; atomic instructions of 20 cycles.
pub(super) const NS_OF_LOAD_WITHOUT_CONTENTION: [f64; 3] = [0.1, NS_OF_HITTING_LOAD, 6.0];
/// A load of a contended line waits for at most this many transfers. Source: Chosen, as threads may
/// stand in line.
pub(super) const MAX_TRANSFERS_OF_CONTENDED_LINE: f64 = 10.0;

/// A finding lists the load instructions that have this share of its cost. Source: Chosen.
pub(crate) const MIN_COST_OF_LOAD: f64 = 0.02;
/// Load instructions that a finding lists. Source: Chosen; unrolled loops have up to 16.
pub(crate) const MAX_LOADS_OF_FINDING: usize = 16;
