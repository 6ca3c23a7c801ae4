//! Constants of the prediction of cache misses.
//!
//! A doc comment says what a constant decides, its unit, and its source. Shares, ratios and factors
//! have no unit. `docs/design/miss-prediction.md`, `docs/design/miss-intervals.md` and
//! `docs/design/watched-reuses.md` explain the models.

use crate::data::memory_units::{LINE_BYTES, WORD_BYTES};

// Intervals.

/// The rule of three applies to watches as it does to windows.
pub(super) use crate::estimate::params::UNSEEN_EVENTS_AT_95_PCT;

/// Half a 95 % interval has this many standard errors. Source: Chosen, as the normal distribution's
/// 1.96, rounded.
pub(super) const STANDARD_ERRORS_IN_HALF_INTERVAL: f64 = 2.0;
/// Half an interval has this many standard errors of the jackknife over eight replicates. Source:
/// the 97.5 % quantile of Student's distribution with seven degrees of freedom.
pub(super) const STUDENT_QUANTILE_OF_REPLICATES: f64 = 2.36;
/// Half an interval is at least this wide, in misses per access. Source: Chosen.
pub(super) const MIN_HALF_INTERVAL_OF_MISSES: f64 = 5e-4;
/// The interval of a share s grows by s(1 − s) times this, for accesses that deviate from the
/// model. Source: Chosen.
pub(super) const MODEL_DOUBT_PER_VARIANCE: f64 = 0.1;
/// The interval of a share s grows by s times this, for the same reason. Source: Chosen.
pub(super) const MODEL_DOUBT_PER_SHARE: f64 = 0.02;
/// The number of lines that fill a cache, the time until it is full, and the time until a loop
/// returns are uncertain by this factor. Source: Chosen.
pub(super) const FILL_UNCERTAINTY_FACTOR: f64 = 1.3;
/// The number of lines that crowded sets evict has this relative error. Source: Chosen.
pub(super) const CROWDED_SETS_ERROR: f64 = 0.15;

// Page walks.

/// Entries of the first and of the second level of the TLB for data. Source: recent processors have
/// 64 to 96, and 1,536 to 3,072.
pub(super) const ENTRIES_OF_TLB: [u64; 2] = [64, 2048];
/// Ways of both levels. Source: Chosen, since many processors have 4 to 16.
pub(super) const WAYS_OF_TLB: u64 = 16;
/// Nanoseconds of a hit in the second level of the TLB, with the ends of their interval. Source:
/// Chosen, as 7 to 9 cycles.
pub(super) const NS_OF_FIRST_TLB_MISS: [f64; 3] = [1.0, 2.5, 4.0];
/// Nanoseconds of a page walk if they were not measured. Source: Chosen, from tables in caches to
/// those in memory in a virtual machine.
pub(super) const NS_OF_PAGE_WALK: [f64; 3] = [8.0, 25.0, 100.0];

// Reuse distances inside samples.

/// The reach of samples is the largest distance d such that this share of the accesses has at least
/// d lines of their sample before them. A sample's distances are used up to it. Source: Chosen.
pub(super) const MIN_ACCESS_SHARE_AT_REACH: f64 = 0.4;
/// Beyond the reach, rows are counted up to the largest number r such that this share of the
/// accesses has at least r rows of their sample before them. Source: Chosen.
pub(super) const MIN_ACCESS_SHARE_BEYOND_REACH: f64 = 0.2;
/// Late reuses have a distance of at least this many lines. Source: Chosen.
pub(super) const MIN_LATE_REUSE_LINES: u64 = 2;
/// The latest reuses are those beyond this share of the reach. Source: Chosen, as the last quarter.
pub(super) const LATEST_REUSES_REACH_SHARE: f64 = 0.75;
/// Reuses beyond this share of the reach distinguish random use from loops. Source: Chosen.
pub(super) const LATE_REUSES_REACH_SHARE: f64 = 0.25;

// Cells of late visits.

/// At most this many cells are kept separate. Rarer ones are merged. Source: Chosen.
pub(super) const MAX_CELLS_KEPT_APART: usize = 1500;
/// At most this many cells of a sample are related to each other. Source: Chosen.
pub(super) const MAX_RELATED_CELLS_OF_SAMPLE: usize = 24;

// Laps of walks.

/// A lap is kept if it is longer than this multiple of the reach of samples. Source: Chosen.
pub(super) const MIN_LAP_OVER_REACH: f64 = 1.1;
/// The length of a lap has this relative error, because other code runs in between. Source: Chosen.
pub(super) const LAP_LENGTH_ERROR: f64 = 0.25;
/// A walk goes back and forth if at least this share of its visits returns inside samples. A
/// watched word then has little information on other words. Source: Chosen.
pub(super) const MIN_RETURN_SHARE_OF_TO_AND_FRO: f64 = 0.05;

// Survival by coincidences of samples.

/// A line is sought among this many samples to either side. The last entry means all samples.
/// Source: Chosen.
pub(super) const SEARCH_RADII: [usize; 5] = [2, 8, 32, 128, usize::MAX];
/// A radius is judged from at least this many coincidences. Source: Chosen.
pub(super) const MIN_COINCIDENCES_FOR_RADIUS: f64 = 40.0;
/// The rate of nearby visits is lowered by this many standard errors before it is compared. Source:
/// Chosen.
pub(super) const NEARBY_RATE_STANDARD_ERRORS: f64 = 2.0;
/// Distant visits are as frequent as nearby ones if the ratio of the rates is at least this.
/// Source: Chosen.
pub(super) const MIN_STEADY_RATE_RATIO: f64 = 0.8;
/// Lines are used in episodes if at most this share of the coincidences are returns. Source:
/// Chosen; random visits have 0.95 to 1.
pub(super) const MAX_RETURN_SHARE_OF_EPISODES: f64 = 0.8;
/// The variance of the rates of lines, divided by the mean squared, is at most this. Source:
/// Chosen.
pub(super) const MAX_RATE_SPREAD: f64 = 50.0;
/// The variance of the rates of lines of loops, whose iterations vary in length, divided by the
/// mean squared, is at least this. Source: Chosen.
pub(super) const MIN_RATE_SPREAD_OF_LOOPS: f64 = 0.01;
/// Survival is tabulated at this many times per doubling. Source: Chosen.
pub(super) const GRID_POINTS_PER_DOUBLING: f64 = 2.0;
/// The first of these times is 2 to the power of this, in sample lengths. Source: Chosen.
pub(super) const GRID_START_LOG2: f64 = -4.0;
/// Every line that is used again has been used after this many sample lengths. Source: Chosen.
pub(super) const SAMPLE_LENGTHS_UNTIL_ALL_REUSE: f64 = (1u64 << 40) as f64;

// Bursts that are longer than a sample.

/// Data may be used in bursts if the ratio of the late reuses to the expected ones is at least
/// this. Programs without bursts have ratios of 1.0 to 1.1
/// (`docs/decisions/0069-bursts-between-their-ends.md`). Source: Chosen.
pub(super) const MIN_REUSE_RATIO_OF_BURSTS: f64 = 1.4;
/// At this ratio, data is certainly used in bursts. Source: Chosen.
pub(super) const MIN_REUSE_RATIO_OF_CERTAIN_BURSTS: f64 = 1.8;
/// This share of the random visits counts as in bursts if there certainly are bursts. Source:
/// Chosen, as halfway between the shortest and the longest bursts.
pub(super) const VISIT_SHARE_OF_CERTAIN_BURSTS: f64 = 0.5;

// Crowded sets.

/// A set is considered if it has at least this many visits. Source: Chosen.
pub(super) const MIN_VISITS_OF_CROWDED_SET: u32 = 32;
/// A set is considered if it has this many times the visits of the mean set. Source: Chosen.
pub(super) const MIN_VISITS_OVER_MEAN_SET: f64 = 2.0;
/// A set is crowded if it fills this many times as fast as the mean set. Source: Chosen.
pub(super) const MIN_FILL_SPEED_OVER_MEAN_SET: f64 = 1.5;
/// All threads together have at most this many sets. Larger caches are skipped. Source: Chosen.
pub(super) const MAX_SETS_OF_ALL_THREADS: usize = 1 << 22;

// Weights and speed of windows.

/// The logarithm of a weight has half a 95 % interval of this width if the pace of the window's own
/// code is unknown: a factor of ten. Source: Chosen
/// (`docs/decisions/0074-weights-of-functions-are-off-together.md`).
pub(super) const UNKNOWN_PACE_LOG_ERROR: f64 = std::f64::consts::LN_10;
/// Upper bound of the time of a load in a window of new lines, as a multiple of the time in a
/// window of known lines of the same function. It is used if durations of windows do not show the
/// ratio. Source: Chosen; half and double change no figure of `benches/run sensitivity`.
pub(super) const MAX_TIME_OF_NEW_LINES: f64 = 2.0;
/// The likely value of the same ratio. Source: Chosen, as the square root.
pub(super) const LIKELY_TIME_OF_NEW_LINES: f64 = std::f64::consts::SQRT_2;
/// A window counts as slowest at this quantile of the windows' shares of new lines. Source: Chosen.
pub(super) const QUANTILE_OF_SLOWEST_WINDOW: f64 = 0.95;
/// Standard deviation of the logarithm of that ratio among functions: a factor of two. A ratio that
/// is measured with a large error is pulled towards the likely one. Source: Chosen; half of it
/// raises the mean error in `benches/run sensitivity` by 0.6 points, double changes it by 0.01.
pub(super) const LOG_DEVIATION_OF_NEW_LINES: f64 = std::f64::consts::LN_2;
/// Durations of windows show the time of new lines if a function has at least this many windows.
/// Source: Chosen.
pub(super) const MIN_WINDOWS_OF_PACE: usize = 24;
/// Its error is computed by leaving out one of this many runs of windows. Source: Chosen.
pub(super) const PARTS_OF_PACE_JACKKNIFE: usize = 8;
/// Two windows are compared if their shares of new lines differ by this. Source: Chosen.
pub(super) const MIN_DIFFERENCE_OF_NEW_LINES: f64 = 0.25;
/// The slope needs at least this many pairs of windows. Source: Chosen.
pub(super) const MIN_PAIRS_OF_SLOPE: usize = 12;
/// Maximum number of pairs of windows that are compared, approximately; it limits time. Source:
/// Chosen.
pub(super) const MAX_PAIRS_OF_SLOPE: usize = 4096;
/// Recording hides a part of the time of misses, or adds its own misses: the slope is wrong by at
/// most this factor. Source: Chosen; 3 raises the mean error in `benches/run sensitivity` by 0.4
/// points.
pub(super) const SLOPE_FACTOR_ERROR: f64 = 1.5;
/// Upper bound of the measured time of a load in a window of new lines, as a multiple of that with
/// known lines. Source: Chosen.
pub(super) const MAX_SLOW_DOWN: f64 = 50.0;
/// Halvings of the interval in which the time of a load is searched. Source: Chosen; the result is
/// then exact to a billionth.
pub(super) const STEPS_OF_BISECTION: u32 = 30;

// Watched reuses.

/// An estimate needs at least this many watches, weighted by the code's share of the late visits.
/// Source: Chosen.
pub(super) const MIN_WATCHES_FOR_ESTIMATE: f64 = 10.0;
/// The pace of code has this standard error, as a factor. Source: Chosen
/// (`docs/design/watched-reuses.md`).
pub(super) const PACE_STANDARD_ERROR_FACTOR: f64 = 2.0;
/// The ends of the 95 % interval of the pace are this factor apart from it. Source: the interval
/// has two standard errors to either side.
pub(super) const PACE_INTERVAL_FACTOR: f64 =
    PACE_STANDARD_ERROR_FACTOR * PACE_STANDARD_ERROR_FACTOR;
/// The pace is measured from this share of the code's watches: those that end first. Source:
/// Chosen.
pub(super) const EARLY_WATCHES_FOR_PACE: f64 = 0.25;
/// The pace is measured from at least this many watches and reuses. Source: Chosen.
pub(super) const MIN_EARLY_WATCHES_FOR_PACE: usize = 8;
/// The use of watched words differs from that of late visits by this standard error, as a
/// logarithm. Source: Chosen.
pub(super) const WATCHED_WORDS_LOG_ERROR: f64 = 0.3;
/// A measured pace is rejected if it is off by more than this many standard errors. Source: Chosen.
pub(super) const MAX_PACE_DEVIATION_IN_ERRORS: f64 = 3.0;
/// Watches contradict the model if the survival of words is below its survival of lines by this
/// many standard errors. Source: Chosen.
pub(super) const MIN_ERRORS_TO_CONTRADICT: f64 = 1.0;
/// Watches have full weight if they differ by at least this many standard errors. Source: Chosen.
pub(super) const ERRORS_TO_COUNT_FULLY: f64 = 2.0;

// Lines and words.

/// A line has this many words. Source: the sizes of lines and words.
pub(super) const WORDS_PER_LINE: f64 = (LINE_BYTES / WORD_BYTES) as f64;
/// The ratio of lines to words is estimated from at least this many reuses. Source: Chosen.
pub(super) const MIN_REUSES_FOR_LINE_OVER_WORD: f64 = 20.0;

// Rows of the report.

/// The miss-ratio curve has this many points: powers of two from one line on. Source: Chosen.
pub(super) const POINTS_OF_MISS_CURVE: u32 = 24;
/// A row has a curve if it has at least this share of the run's loads. Source: Chosen.
pub(super) const MIN_LOAD_SHARE_FOR_CURVE: f64 = 0.01;
/// Additional time of a load that misses the first, a middle and the last level on common machines,
/// in nanoseconds. Source: Chosen.
pub(super) const WAIT_NS_OF_FIRST_MIDDLE_LAST_LEVEL: [f64; 3] = [3.0, 10.0, 80.0];
/// Latencies are not used if a level has less than this share of the latency of the level before.
/// Source: Chosen; virtual machines can have a last cache that is as slow as memory.
pub(super) const MIN_RATIO_OF_LATENCIES: f64 = 0.8;
/// A prefetcher saves this share of the additional time for misses in sequence. Source: Chosen.
pub(super) const WAIT_SHARE_SAVED_BY_PREFETCH: f64 = 0.9;
/// These caches are assumed if a trace does not record those of its machine: bytes, ways, and
/// logical CPUs that share the level. Source: Chosen.
pub(super) const COMMON_CACHES: [(u64, u64, u32); 3] =
    [(32 << 10, 8, 1), (1 << 20, 16, 1), (32 << 20, 16, 16)];

/// Misses per load whose interval is wider are not known. Source: Chosen.
pub(super) const MAX_KNOWN_WIDTH: f64 = 0.5;
