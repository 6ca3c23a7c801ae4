//! Constants of the speed of code that is not recorded.
//!
//! A doc comment says what a constant decides, its unit, and its source. Standard deviations are
//! those of logarithms where nothing else is said. Constants that name a comparison come from one
//! by function with two references, the counts of `ring` and native run time, over community
//! detection, page rank, connected components, layers, kernels of `benches/`, gzip, mawk, perl and
//! python3 (0.2 to 10 ns a record). `docs/design/speed-estimation.md` explains the model.

// Laps.
/// Recording adds this many nanoseconds to a record of a lap: mean and standard deviation. It
/// adds 0 where the original waits for memory and 1 to 2.5 elsewhere. Source: the comparison.
pub(super) const ADDED_NS_PER_RECORD: [f64; 2] = [1.5, 0.9];
/// Recording adds at least this many nanoseconds. Source: Chosen.
pub(super) const MIN_ADDED_NS_PER_RECORD: f64 = 0.1;
/// Recording adds this many nanoseconds where a lap goes from one function to another through a
/// hook: with few ways from function to function, and with many. A processor predicts the
/// hook's jump while there are few. Source: the comparison has 4 to 9 and 4 to 60.
pub(super) const ADDED_NS_PER_CHANGE: [f64; 2] = [5.0, 18.0];
/// These numbers of ways count as few and as many. Numbers in between are interpolated. Source:
/// Chosen.
pub(super) const FEW_AND_MANY_WAYS: [f64; 2] = [10.0, 35.0];
/// Standard deviation of the time that changes add. In code that calls all the time, hooks may
/// take nearly all of a lap or a small part of it. Source: the comparison.
pub(super) const CHANGE_LOG_ERROR: f64 = 0.9;
/// The added time grows by this factor times the share of a window's loads that is in new code.
/// Caches do not have that code, and its clone is larger. Source: a compiler, with 150 ns a
/// change where three tenths were new.
pub(super) const ADDED_FACTOR_OF_NEW_CODE: f64 = 10.0;
/// Standard deviation of that, for the same share. Source: Chosen.
pub(super) const NEW_CODE_LOG_ERROR: f64 = 3.0;
/// Standard deviation of the rest of a lap. Recording evicts the program's data, and the code
/// after a window is not quite the window's. Source: the comparison.
pub(super) const LAP_LOG_ERROR: f64 = 0.4;
/// Laps do not count if the time outside of instrumented code, over that inside, is at least
/// this. Recording adds tens of nanoseconds to each call of such code, and windows do not show
/// these calls. Source: Chosen.
pub(super) const MAX_TIME_OUTSIDE_OF_LAPS: f64 = 0.1;
/// A watch takes at most this multiple of the time of a lap. A longer one was hit by another
/// access. Source: Chosen.
pub(super) const MAX_WATCH_OVER_LAP: f64 = 1.1;

// Speeds of functions.
/// Standard deviation of the mean of any number of watches, since the code after a window is
/// not quite the window's. Source: the comparison.
pub(super) const WATCH_LOG_ERROR: f64 = 0.4;
/// A record takes at least this many nanoseconds: a third of a cycle, for three loads a cycle.
/// Source: Chosen.
pub(super) const MIN_NS_PER_RECORD: f64 = 0.1;
/// A record of the original code usually takes this many nanoseconds. This prior counts like
/// one measurement. Source: the median of the comparison.
pub(super) const USUAL_NS_PER_RECORD: f64 = 0.8;
/// A change of functions usually takes this many nanoseconds more in the original: with few
/// ways and with many. Source: the comparison.
pub(super) const USUAL_NS_PER_CHANGE: [f64; 2] = [1.0, 4.0];
/// Standard deviation of the usual time of a record. Source: the comparison.
pub(super) const USUAL_LOG_ERROR: f64 = 1.0;
/// Costs and speeds are computed from each other this many times, which is enough for a
/// thousandth. Source: near measurements have an eighth of the records of others.
pub(super) const ROUNDS_OF_COST_AND_SPEED: usize = 4;
/// A function without measurements is estimated from at least this many functions with some.
/// Source: Chosen.
pub(super) const MIN_FUNCTIONS_MEASURED: usize = 3;
/// The speed of a function without measurements has at least this standard deviation. Source:
/// Chosen.
pub(super) const MIN_LOG_ERROR_OF_UNMEASURED: f64 = 0.3;
/// At least this share of the standard deviation of a function's speed is shared by all
/// functions, since recording adds much the same time in all of them. Source: Chosen.
pub(super) const MIN_SHARED_ERROR: f64 = 0.7;
/// The cost of triggers has this relative error. Source: Chosen, as about a third.
pub(super) const ERROR_OF_TRIGGER_COST: f64 = 0.33;

// Balance of windows.
/// At most this many functions are balanced. Those with the fewest windows are taken together.
/// Source: Chosen.
pub(super) const MAX_BALANCED_FUNCTIONS: usize = 128;
/// The search has at most this many rounds. Six are usual. Source: Chosen.
pub(super) const MAX_ROUNDS_OF_BALANCE: usize = 60;
/// The search ends when no logarithm changes by more than this. Source: Chosen.
pub(super) const MAX_LOG_CHANGE_AT_END: f64 = 1e-6;
/// Balanced speeds are at most this many standard errors from the measured ones (root mean square
/// over the windows). Windows that ask for more do not begin by time alone. Source: Chosen, as the
/// normal distribution's 1.96, rounded.
pub(super) const MAX_BALANCE_SHIFT_IN_ERRORS: f64 = 2.0;
/// This many windows may leave a piece of code without a return, besides chance, because a run
/// begins and ends somewhere. Source: Chosen.
pub(super) const WINDOWS_WITHOUT_RETURN: f64 = 1.0;
