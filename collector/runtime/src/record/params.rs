//! Constants of triggers, of the budget, and of the measurements behind windows.
//!
//! A doc comment says what a constant decides, its unit, and its source. Times are in nanoseconds
//! of CPU time. `docs/design/burst.md`, `docs/design/speed-estimation.md` and
//! `docs/design/reuse-pairs.md` explain the designs.

// Triggers.
/// This many signals come at one period. Setting a period costs as much as half a sample, since
/// the kernel programs its timer twice. Source: Chosen.
pub(super) const SIGNALS_PER_PERIOD: u32 = 8;
/// A thread counts as making no progress if this many signals in a row find it at one address.
/// Source: Chosen.
pub(super) const SIGNALS_WITHOUT_PROGRESS: u16 = 16;
/// The period while recording waits for its phase. Source: Chosen, as 100 ticks a second.
pub(super) const PERIOD_WHILE_WAITING_NS: u64 = 10_000_000;
/// A period is at most the requested one times 2 to the power of this. Source: Chosen.
pub(super) const MAX_PERIOD_LOG2: u8 = 10;
/// After this many renewals of a period without trouble, half of the period is tried. Source:
/// Chosen.
pub(super) const RENEWALS_UNTIL_SHORTER_PERIOD: u8 = 8;
/// Queued signals are handled for at most this time, which is enough for hundreds. Source: Chosen.
pub(super) const MAX_TIME_OF_QUEUED_SIGNALS_NS: u64 = 200_000;

// Budget.
/// The guaranteed part of the budget is spent evenly over this time. Source: Chosen, as the
/// shortest run that is to have a full set of windows.
pub(super) const GUARANTEED_TIME_NS: u64 = 500_000_000;
/// Unspent or overspent budget is made up for over at least this time. Source: Chosen.
pub(super) const MIN_TIME_OF_CORRECTION_NS: u64 = 50_000_000;
/// It is made up for over the CPU time so far divided by this, if that is longer. Source:
/// Chosen.
pub(super) const TIME_SHARE_OF_CORRECTION: u64 = 4;
/// Windows are at least this far apart. Source: Chosen.
pub(super) const MIN_WINDOW_DISTANCE_NS: u64 = 400_000;
/// Windows are at most this far apart. Source: Chosen.
pub(super) const MAX_WINDOW_DISTANCE_NS: u64 = 200_000_000;
/// This share of the budget, as a power of one half, is spent even if the budget is exhausted,
/// so that every phase has windows. Source: Chosen.
pub(super) const EXHAUSTED_SHARE_LOG2: u32 = 4;
/// A timer's signal costs this much at a tick that happens anyway, in addition to the shared
/// header's `signal_ns`. Source: Chosen.
pub(super) const SIGNAL_COST_AT_TICK_NS: u64 = 500;
/// Recording adds at most this to a record, in a clone with cold caches. Source: Chosen.
pub(super) const MAX_ADDED_NS_PER_RECORD: u64 = 30;
/// A copy of a stack takes at most this time. If one took longer, the thread was not running for
/// part of it. Source: Chosen.
pub(super) const MAX_COPY_NS: u64 = 20_000;
/// A window changes the learned cost of windows by this share of the difference, as a power of
/// one half. Source: Chosen.
pub(super) const WINDOW_COST_WEIGHT_LOG2: u32 = 3;

// Windows.
/// A window ends if the thread stays in code without a clone for longer than this. Source:
/// Chosen.
pub(super) const MAX_STAY_NS: u64 = 200_000;
/// At most this many bytes of a window's memory are prefetched, since a processor keeps few
/// requests in flight. Source: Chosen.
pub(super) const MAX_PREFETCHED_BYTES: u64 = 16 << 10;

// Measurements of speed.
/// A timed lap has this many records. Source: Chosen.
pub(super) const RECORDS_OF_LAP: u64 = 2048;
/// A lap that shows its own cost has this many records. Fewer are not enough, since the first
/// iterations after a signal are slow. Source: Chosen.
pub(super) const RECORDS_OF_NEAR_LAP: u64 = 256;
/// A near watch, which shows its own cost, is this many records away. Source: Chosen.
pub(super) const RECORDS_OF_NEAR_WATCH: u64 = 512;
/// A watch is about this many records away at first. A watchpoint costs 20 µs in a virtual
/// machine, so the distance must be long, but loops are often short. Source: Chosen.
pub(super) const RECORDS_OF_WATCH: u32 = 16 << 10;
/// The distance is halved at most this often, after each watch that was not hit. Source:
/// Chosen.
pub(super) const MAX_HALVINGS_OF_WATCH: i32 = 3;
/// The distance is doubled at most this often, after each watch that was hit. Source: Chosen.
pub(super) const MAX_DOUBLINGS_OF_WATCH: i8 = 4;
/// A thread's first windows are followed by this many measurements without pauses, so that short
/// runs have some. Source: Chosen.
pub(super) const MEASUREMENTS_AT_ONCE: u32 = 24;
/// A place with fewer measurements than this is measured sooner, since some functions start late
/// and a few measurements are mostly noise. Source: Chosen.
pub(super) const MEASUREMENTS_OF_NEW_PLACE: u16 = 24;
/// Such a place is measured after this many windows. Source: Chosen.
pub(super) const WINDOWS_PER_MEASUREMENT_OF_NEW_PLACE: u32 = 4;
/// Other measurements are this far apart: at most 30 a second. Source: Chosen.
pub(super) const MEASUREMENT_DISTANCE_NS: u64 = 33_000_000;
/// This many places, about one function each, are distinguished. Source: Chosen.
pub(super) const PLACES_OF_THREAD: usize = 64;
/// Code within 2 to the power of this many bytes is one place. Source: Chosen.
pub(super) const BYTES_OF_PLACE_LOG2: u32 = 10;
/// One in this many measurements is near. The number is odd, so that laps and watches take
/// turns in both kinds. Source: Chosen.
pub(super) const MEASUREMENTS_PER_NEAR_ONE: u16 = 3;
/// A watch that takes longer than the first number, plus the second for each record, was hit by
/// another loop. Nanoseconds. Source: Chosen.
pub(super) const MAX_NS_OF_WATCH: [u64; 2] = [100_000, 20];
/// The instruction that hits a watch is at most this many bytes from the end of the window.
/// Source: Chosen.
pub(super) const MAX_BYTES_TO_WATCHED_INSTRUCTION: u64 = 4096;
/// This many records at the end of a window are tried for a stride. Source: Chosen.
pub(super) const RECORDS_TRIED_FOR_STRIDE: usize = 8;
/// An iteration follows another within this many slots. Source: Chosen.
pub(super) const MAX_SLOTS_PER_ITERATION: usize = 400;
/// A stride needs at least this many iterations. Source: Chosen.
pub(super) const MIN_ITERATIONS_OF_STRIDE: u64 = 3;
/// A longer stride is not taken for a loop's. Source: Chosen.
pub(super) const MAX_STRIDE_BYTES: i64 = 4096;

// Watched reuses.
/// A thread has this many watchpoints for reuses. A processor has four: one is for speed, one
/// is left for a debugger. Source: Intel SDM, volume 3, section 18.2.
pub(super) const WATCHES_OF_THREAD: usize = 2;
/// If no watchpoint is free, one request in this many ends an older watch. Source: Chosen.
pub(super) const REQUESTS_PER_ENDED_WATCH: u64 = 4;
/// At most this many records of a window are drawn until one can be watched. Source: Chosen.
pub(super) const MAX_DRAWS_PER_WINDOW: usize = 8;
/// This many bytes below and above the stack pointer are not watched, since the runtime itself
/// reads the stack there. Source: Chosen.
pub(super) const UNWATCHED_STACK_BYTES: [u64; 2] = [4096, 64 << 10];
/// Addresses of programs. Source: the canonical lower half of x86-64 without the first pages.
pub(super) const USER_ADDRESSES: core::ops::Range<u64> = 1 << 16..1 << 47;
