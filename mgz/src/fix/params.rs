//! Constants of the search for fixes.

/// A fix is kept if it saves more than this share of the program's time. Source: Chosen; a smaller
/// gain is of the size that the layout of code alone may cause.
pub const MIN_GAIN: f64 = 0.01;
/// Probability that an interval of a test misses the ratio, over all looks. Source: Convention.
pub const ERROR: f64 = 0.05;
/// Pairs before the first look. Source: Chosen; with fewer, Student's quantile is too wide to tell
/// gains of 10 % at a noise of 1 %.
pub const FIRST_LOOK: usize = 4;
/// Ratio of the numbers of pairs at consecutive looks. Source: Chosen; each look widens the
/// intervals of all.
pub const LOOK_GROWTH: f64 = 1.5;
/// Share of the pairs that are trimmed at each end. Source: Yuen (1974) and Wilcox, "Introduction
/// to Robust Estimation", advise 20 %.
pub const TRIMMED: f64 = 0.2;
/// Minimum number of pairs for trimming. Source: Chosen; with fewer, the lost degree of freedom
/// costs more than an outlier.
pub const MIN_TRIMMED: usize = 9;

/// Shortest program whose time is compared, in seconds. Source: Chosen; starting a process takes
/// about 1 ms with a spread of the same size.
pub const MIN_SECONDS: f64 = 0.1;
/// A program whose CPU time is more than this multiple of its wall time has threads that run in
/// parallel. Source: Chosen.
pub const PARALLEL: f64 = 1.2;
/// A candidate that takes this many times as long as the original is killed. Source: Chosen.
pub const LIMIT_FACTOR: f64 = 10.0;
/// Additional seconds before it is killed. Source: Chosen, for short programs on busy machines.
pub const LIMIT_SECONDS: f64 = 10.0;

/// Smallest heap block that gets its own kind of pages, bytes. Source: the fix library places
/// blocks of this size and more.
pub const LARGE_BLOCK: u64 = 1 << 20;
/// Largest heap block in bytes that counts as a node. Source: the fix library's pools hold blocks up
/// to this size.
pub const LARGEST_NODE: u64 = 32 << 10;
/// Bytes of a cache line. Source: the architecture.
pub const LINE: u32 = 64;
/// Distance in bytes of blocks that threads write. Source: Intel's manual for optimisation; the second
/// level fetches lines in pairs.
pub const SHARING_UNIT: u32 = 128;
/// Bytes after which the sets of a first-level cache repeat. Source: 64 sets, as on common machines.
pub const SET_UNIT: u32 = 4096;
/// Lines from one block to the next of the first site if blocks are shifted among the sets. Source:
/// Chosen; odd numbers cover all sets.
pub const FIRST_SHIFT_LINES: u32 = 3;

/// Distances at which prefetches are tried, in iterations. Source: Chosen; waits of 10 to 400 ns at
/// loops of 1 to 100 ns. Loops of few iterations, as over the edges of a node, need the short ones.
pub const DISTANCES: [u32; 7] = [2, 4, 8, 16, 32, 64, 128];
/// Index of the initial distance in recipes. Source: Chosen, the middle.
pub const FIRST_DISTANCE: usize = 3;
/// Indices of the distances that are tried first, in this order. All others are neighbors of one of
/// them. Source: Chosen.
pub const COARSE_DISTANCES: [usize; 3] = [FIRST_DISTANCE, 1, 5];
/// Pairs per distance during the search for the best one. Source: Chosen; the deciding test has its
/// own runs.
pub const PAIRS_PER_DISTANCE: usize = 2;
/// A distance is better if it takes this share less time. Source: Chosen, the noise of few pairs.
pub const MIN_BETTER: f64 = 0.01;
