//! Constants of the sample of heap blocks and of the budget of logging.
//!
//! A doc comment says what a constant decides, its unit, and its source.

// Sample.
/// Blocks of at least this many bytes are all logged, unless a budget decides. Source: Chosen.
#[cfg(not(test))]
pub(super) const MIN_ALWAYS_LOGGED_BYTES: usize = 4096;
/// This many bytes lie between two logged blocks on average, at first and at least. Source: Chosen.
pub(super) const MIN_MEAN_BYTES: u64 = 16 << 10;
/// The mean begins to grow after 2 to the power of this many logged blocks. Source: Chosen.
pub(super) const LOGGED_BLOCKS_BEFORE_GROWTH_LOG2: u32 = 16;
/// The filter has 2 to the power of this many bytes. Source: the stubs, which take 16 bits of an
/// address.
pub(super) const FILTER_BYTES_LOG2: u32 = 16;
/// An address may be in one of this many entries of the table of logged blocks. Source: Chosen.
pub(super) const MAX_PROBES: usize = 64;

// Budget.
/// Logging may take this time before the program has used any CPU time. Source: Chosen.
pub(super) const FIRST_BUDGET_NS: u64 = 4_000_000;
/// Logging may take this many millionths of the CPU time. Source: Chosen.
pub(super) const CPU_SHARE_PPM: u64 = 2_500;
/// Unspent or overspent budget is made up for over at least this CPU time. Source: Chosen.
pub(super) const MIN_TIME_OF_CORRECTION_NS: u64 = 50_000_000;
/// It is made up for over the CPU time so far divided by this, if that is longer. Source: Chosen.
pub(super) const TIME_SHARE_OF_CORRECTION: u64 = 4;
/// This share of the budget, as a power of one half, is spent even if the budget is exhausted.
/// Source: Chosen.
pub(super) const EXHAUSTED_SHARE_LOG2: u32 = 4;
/// A logged block costs this much outside of allocation calls: its end is logged too, and the
/// recorder unwinds its stack. Source: Chosen.
pub(super) const COST_ELSEWHERE_NS: u64 = 1_500;
/// The allocation rate is estimated from this CPU time on. Source: Chosen.
pub(super) const MIN_CPU_TIME_OF_RATE_NS: u64 = 1_000_000;
/// The mean is at most this many bytes. Source: Chosen.
pub(super) const MAX_MEAN_BYTES: u64 = 1 << 34;
