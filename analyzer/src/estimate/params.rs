//! Constants of the estimates for the unsampled part of a run.
//!
//! A doc comment says what a constant decides, its unit, and its source. Shares, ratios and factors
//! have no unit. `docs/design/footprint-estimation.md` explains the models.

use crate::data::memory_units::LINE_SHIFT;

// Intervals.

/// If none of n windows has seen an event, it has a share of at most this over n, with 95 %
/// confidence. Source: the rule of three, (1 − 3/n)^n ≈ 0.05.
pub(crate) const UNSEEN_EVENTS_AT_95_PCT: f64 = 3.0;
/// A jackknife needs at least this many replicates with samples. Source: Chosen.
pub(super) const MIN_REPLICATES_FOR_JACKKNIFE: f64 = 4.0;
/// An interval is too wide to act on if its ends differ by more than this factor. Source: Chosen.
pub(super) const MAX_RATIO_OF_INTERVAL_ENDS: f64 = 2.0;

// Recapture: evidence.

/// Without a coincidence, one would have this share of the blocks that a sample alone has seen.
/// Source: Chosen.
pub(super) const CLUSTER_SHARE_WITHOUT_COINCIDENCE: f64 = 0.5;
/// The unevenness of use is at most this. At this value, the blocks that are seen once have equally
/// many of each order of magnitude of use. Beyond it, nearly all of the estimate would be blocks
/// much rarer than any that was seen, and samples say nothing about those. Source: Chosen.
pub(super) const MAX_UNEVENNESS_OF_USE: f64 = 1.0;
/// The error of the unevenness assumes at least this many coincidences. Source: Chosen.
pub(super) const MIN_COINCIDENCES_IN_ERROR: f64 = 0.5;
/// A side of a cut has at least this many samples' singletons when both sides are compared. Source:
/// Chosen.
pub(super) const MIN_SAMPLES_OF_SINGLETONS: f64 = 0.5;

// Recapture: strata.

/// Strata are divided at most this often. Source: Chosen.
pub(super) const MAX_DIVISIONS_OF_STRATUM: u32 = 10;
/// A stratum is divided if it has at least this many blocks. Source: Chosen.
pub(super) const MIN_BLOCKS_TO_DIVIDE: usize = 16;
/// A stratum may be cut at this many places: the widest gap and equally spaced ones. The number is
/// even, so that the middle is one of them. Source: Chosen.
pub(super) const CUT_PLACES_OF_STRATUM: usize = 8;
/// Two strata differ if the ratios of their doubletons to singletons do by more than this many
/// standard deviations. Source: Chosen.
pub(super) const MAX_DEVIATIONS_OF_LIKE_STRATA: f64 = 4.2;
/// Two strata that count as alike may differ from this many standard deviations on. Source: Chosen.
pub(super) const MIN_DEVIATIONS_OF_DOUBT: f64 = 2.5;
/// Two strata that count as different may be alike up to this many standard deviations. Source:
/// Chosen.
pub(super) const MAX_DEVIATIONS_OF_DOUBT: f64 = 7.0;
/// Strata that were divided less often than this are cut in the middle even if the sides are alike.
/// Source: Chosen.
pub(super) const MAX_DIVISIONS_BEFORE_EVEN_CUT: u32 = 4;
/// Such a cut needs more than this many singletons. Source: Chosen.
pub(super) const MIN_SINGLETONS_FOR_EVEN_CUT: f64 = 64.0;

// Recapture: room in memory.

/// A line has 2 to the power of this many addresses, a page as many lines, and so on. Source:
/// Chosen, as the 64 bytes of a line.
pub(super) const BLOCKS_PER_LINE_LOG2: u32 = LINE_SHIFT;

// Rows of tables.

/// A set of pairs of row and sample has at most this many bits. More pairs are kept as a list.
/// Source: Chosen.
pub(super) const MAX_BITS_OF_SAMPLE_PAIRS: usize = 1 << 28;
/// A line or loop has a part of its function's loads if at least this share of the function's
/// windows has loads of it. Source: Chosen.
pub(super) const MIN_WINDOW_SHARE_OF_PART: f64 = 0.95;

// Weights for counted loads (raking).

/// Raking has at most this many rounds. The sums show any remaining difference. Source: Chosen.
pub(super) const MAX_RAKING_ROUNDS: usize = 400;
/// Raking ends when the logarithms of all ratios are below this. Source: Chosen.
pub(super) const MAX_RAKING_LOG_ERROR: f64 = 1e-4;

// Growth curve.

/// Strata are cut where nothing was touched for at least this many bytes. Smaller gaps may be parts
/// of one object that no sample has seen. Source: Chosen.
pub(super) const MIN_GAP_BYTES_OF_STRATA: u64 = 65_536;
/// Such a gap has at least this many blocks. Source: Chosen.
pub(super) const MIN_GAP_BLOCKS_OF_STRATA: u64 = 2;
/// Gaps have to be wider by this factor if there are too many strata. Source: Chosen.
pub(super) const GAP_GROWTH_FACTOR: u64 = 4;
/// A curve has at most this many strata, parts by use not counted. Source: Chosen.
pub(super) const MAX_STRATA_OF_CURVE: usize = 4096;
/// Blocks that were seen by this many times as many samples are another stratum. Source: Chosen.
pub(super) const SAMPLES_RATIO_OF_PARTS: u32 = 8;
/// A stratum has at most this many such parts. Source: numbers of samples are below 2³², which is
/// less than the 11th power of [`SAMPLES_RATIO_OF_PARTS`].
pub(super) const MAX_PARTS_OF_STRATUM: usize = 11;
/// The growth at the end of samples is measured from windows of at most this share of the longest.
/// Source: Chosen.
pub(super) const MAX_SIZE_SHARE_FOR_GROWTH: f64 = 0.8;
/// A window size counts if at least this share of the samples is as long. Source: Chosen.
pub(super) const MIN_SAMPLE_SHARE_OF_WINDOW_SIZE: f64 = 0.5;
/// The curve is evaluated at this many points for each doubling of an interval. Source: Chosen, so
/// that an interval differs from its point by at most 0.3 percent.
pub(super) const CURVE_POINTS_PER_DOUBLING: f64 = 128.0;

// Resonance of samples with the program.

/// Addresses that return after fewer samples than this are always in use. Source: Chosen.
pub(super) const MIN_RESONANCE_LAG: u32 = 2;
/// Resonance is tested with at least this many samples. Source: Chosen.
pub(super) const MIN_SAMPLES_FOR_RESONANCE: u32 = 16;
/// The run has at least this many times as many samples as the distance of resonant ones. Source:
/// Chosen.
pub(super) const MIN_SAMPLES_OVER_RESONANCE_LAG: f64 = 2.5;
/// Samples are resonant if more than this share of their addresses is seen again at that distance.
/// Source: Chosen.
pub(super) const MIN_REPEATED_SHARE_OF_RESONANCE: f64 = 0.6;

// Shares of time.

/// The windows of a run are divided into at most this many batches. Source: Chosen.
pub(super) const MAX_BATCHES_OF_WINDOWS: usize = 32;
/// A batch has at least this many windows. Source: Chosen.
pub(super) const MIN_WINDOWS_OF_BATCH: usize = 8;
/// The variance between batches needs at least this many. Source: Chosen.
pub(super) const MIN_BATCHES_FOR_VARIANCE: usize = 4;
/// This many batches are merged into one, since phases may be longer than a batch. The widest
/// interval counts. Source: Chosen.
pub(super) const BATCHES_TAKEN_TOGETHER: [usize; 3] = [1, 2, 4];
/// Successive differences are used if at least this many windows are in a row, and as many are not.
/// Fewer windows show too few phase changes. Source: Chosen, since 10 changes give a variance to a
/// factor of 1.6.
pub(super) const MIN_WINDOWS_FOR_DIFFERENCES: usize = 10;
