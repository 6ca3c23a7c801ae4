//! Which heap blocks are logged: large ones all, and of the others as many as a Poisson process by
//! bytes meets.
//!
//! A thread counts down the bytes that it allocates; a block that takes the counter below zero is
//! logged, and the next distance is drawn from an exponential distribution. So a block of s bytes
//! is logged with probability 1 − exp(−s / mean), independent of earlier blocks, and stands for the
//! inverse of that. The mean grows with the allocated bytes, so that long runs have some hundred
//! thousand blocks and not more.
//!
//! Addresses of logged blocks are kept in a table, since only their ends are logged. Most calls of
//! `free` are of other blocks; a byte in a small filter tells them apart.

use core::arch::asm;
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU64, Ordering};

/// Blocks from this size on are all logged.
pub const LARGE: usize = 4096;
/// Bytes from one logged block to the next, on average, at first.
const MEAN: u64 = 16 << 10;
/// Log2 of the logged blocks after which the mean begins to grow.
const MANY: u32 = 16;

/// Bytes to the next block that is logged: of threads that share a place, together.
#[repr(align(64))]
struct Left {
    bytes: AtomicI64,
    /// The first distance was drawn.
    ready: AtomicBool,
}

/// Log2 of the places.
const PLACES: u32 = 8;
static LEFT: [Left; 1 << PLACES] = [const {
    Left {
        bytes: AtomicI64::new(0),
        ready: AtomicBool::new(false),
    }
}; 1 << PLACES];
/// Sum of the means of the blocks that were logged: about the number of allocated bytes.
static BYTES: AtomicU64 = AtomicU64::new(0);
/// State of the generator, shared by all threads: races only make it less regular.
static RANDOM: AtomicU64 = AtomicU64::new(0);

fn random() -> u64 {
    // splitmix64 (Steele, Lea and Flood 2014).
    let mut x = RANDOM
        .fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed)
        .wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// Begins a sequence of its own.
pub fn seed(with: u64) {
    RANDOM.fetch_add(with.wrapping_mul(0xbf58_476d_1ce4_e5b9), Ordering::Relaxed);
}

/// −ln of a number that is even in (0, 1), drawn by its bits.
fn exponential(bits: u64) -> f64 {
    const LN_2: f64 = core::f64::consts::LN_2;
    let bits = bits | 1;
    let zeros = bits.leading_zeros();
    // In [1, 2): ln by the series of the inverse hyperbolic tangent.
    let mantissa = 1.0 + ((bits << zeros) << 1) as f64 / 18_446_744_073_709_551_616.0;
    let t = (mantissa - 1.0) / (mantissa + 1.0);
    let s = t * t;
    let ln = 2.0 * t * (1.0 + s * (1.0 / 3.0 + s * (0.2 + s * (1.0 / 7.0 + s / 9.0))));
    (f64::from(zeros) + 1.0) * LN_2 - ln
}

fn mean() -> u64 {
    (BYTES.load(Ordering::Relaxed) >> MANY).max(MEAN)
}

fn distance(mean: u64) -> i64 {
    (exponential(random()) * mean as f64) as i64 + 1
}

/// Probability that a block of so many bytes, fewer than [`LARGE`], is logged: 1 − exp(−x).
fn probability(bytes: usize, mean: u64) -> f64 {
    let x = bytes as f64 / mean as f64;
    x * (1.0 - x / 2.0 * (1.0 - x / 3.0 * (1.0 - x / 4.0 * (1.0 - x / 5.0))))
}

/// Counter of the calling thread.
#[inline(always)]
fn left() -> &'static Left {
    let thread: u64;
    // SAFETY: the first word of a thread's own area holds the area's address (System V ABI), and is
    // there before anything is allocated.
    unsafe {
        asm!("mov {}, fs:[0]", out(reg) thread, options(nostack, readonly, preserves_flags));
    }
    &LEFT[(thread.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - PLACES)) as usize]
}

/// Number of blocks that a block of so many bytes stands for, or `None` if it is not logged.
#[inline(always)]
pub fn sample_block(bytes: usize) -> Option<f32> {
    if bytes >= LARGE {
        return Some(1.0);
    }
    let left = left();
    let before = left.bytes.fetch_sub(bytes as i64, Ordering::Relaxed);
    if before > bytes as i64 {
        return None;
    }
    take_slowly(left, bytes)
}

#[cold]
#[inline(never)]
fn take_slowly(left: &Left, bytes: usize) -> Option<f32> {
    let mean = mean();
    if !left.ready.swap(true, Ordering::Relaxed) {
        let first = distance(mean);
        if first > bytes as i64 {
            left.bytes.store(first - bytes as i64, Ordering::Relaxed);
            return None;
        }
    }
    left.bytes.store(distance(mean), Ordering::Relaxed);
    // A block of no bytes has no loads.
    if bytes == 0 {
        return None;
    }
    BYTES.fetch_add(mean, Ordering::Relaxed);
    Some((1.0 / probability(bytes, mean)) as f32)
}

/// Number of blocks that a logged block of so many bytes stands for.
#[cold]
pub fn weight(bytes: usize) -> f32 {
    match bytes {
        0 | LARGE.. => 1.0,
        _ => (1.0 / probability(bytes, mean())) as f32,
    }
}

/// Log2 of the places of the filter, a byte each, and of the table, an address each.
const FILTER: u32 = 16;
const TABLE: u32 = 20;
/// Bytes of both.
pub const MEMORY: usize = (1 << FILTER) + (8 << TABLE);
/// Places that an address may have.
const PROBES: usize = 64;
/// A place whose address was taken out.
const GONE: u64 = 1;
/// Entries of the filter stay there once they have got so far.
const STAYS: u8 = u8::MAX;

/// The filter, and behind it the table; null if there are none.
static KNOWN: AtomicPtr<AtomicU8> = AtomicPtr::new(core::ptr::null_mut());
/// A block had no room in the table: all ends are logged from then on.
static FULL: AtomicBool = AtomicBool::new(false);

/// Keeps addresses in this memory.
///
/// # Safety
/// [`MEMORY`] zero bytes, aligned to 8, for nothing else and for good.
pub unsafe fn keep_in(memory: *mut u8) {
    KNOWN.store(memory.cast(), Ordering::Release);
}

#[inline(always)]
fn hash(block: usize) -> u64 {
    ((block >> 4) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[inline(always)]
fn filter(memory: *mut AtomicU8, hash: u64) -> &'static AtomicU8 {
    // SAFETY: inside the memory of `keep_in`.
    unsafe { &*memory.add((hash >> (64 - FILTER)) as usize) }
}

fn places(memory: *mut AtomicU8, hash: u64) -> impl Iterator<Item = &'static AtomicU64> {
    let first = (hash >> 8) as usize;
    (0..PROBES).map(move |n| {
        let place = (first + n) & ((1 << TABLE) - 1);
        // SAFETY: inside the memory of `keep_in`, behind the filter.
        unsafe { &*memory.add(1 << FILTER).cast::<AtomicU64>().add(place) }
    })
}

/// A block is logged.
pub fn insert(block: usize) {
    let memory = KNOWN.load(Ordering::Acquire);
    if memory.is_null() {
        return FULL.store(true, Ordering::Relaxed);
    }
    let hash = hash(block);
    let put = places(memory, hash).any(|place| {
        let there = place.load(Ordering::Relaxed);
        there <= GONE
            && place
                .compare_exchange(there, block as u64, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    });
    if !put {
        return FULL.store(true, Ordering::Relaxed);
    }
    let _ = filter(memory, hash).fetch_update(Ordering::Release, Ordering::Relaxed, |n| {
        (n != STAYS).then_some(n + 1)
    });
}

/// A block ends: whether that is to be logged.
#[inline(always)]
pub fn remove(block: usize) -> bool {
    let memory = KNOWN.load(Ordering::Relaxed);
    if !memory.is_null() && filter(memory, hash(block)).load(Ordering::Relaxed) == 0 {
        return FULL.load(Ordering::Relaxed);
    }
    remove_slowly(memory, block)
}

#[inline(never)]
fn remove_slowly(memory: *mut AtomicU8, block: usize) -> bool {
    if memory.is_null() {
        return true;
    }
    let hash = hash(block);
    let found = places(memory, hash)
        .take_while(|place| place.load(Ordering::Relaxed) != 0)
        .any(|place| {
            place
                .compare_exchange(block as u64, GONE, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        });
    if found {
        let _ = filter(memory, hash).fetch_update(Ordering::Release, Ordering::Relaxed, |n| {
            (n != STAYS && n != 0).then(|| n - 1)
        });
    }
    found || FULL.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_have_the_mean_and_the_shape_of_an_exponential_distribution() {
        let draws: Vec<f64> = (0..200_000).map(|_| exponential(random())).collect();
        let n = draws.len() as f64;
        let mean = draws.iter().sum::<f64>() / n;
        assert!((mean - 1.0).abs() < 0.02, "{mean}");
        for x in [0.1, 1.0, 3.0] {
            let beyond = draws.iter().filter(|&&d| d > x).count() as f64 / n;
            let expected = (-x).exp();
            assert!((beyond - expected).abs() < 0.01, "{x}: {beyond} {expected}");
        }
        for bits in [0, 1, u64::MAX, 1 << 63, (1 << 63) - 1] {
            let exact = -((bits | 1) as f64 / 2f64.powi(64)).ln();
            assert!((exponential(bits) - exact).abs() < 1e-4, "{bits}");
        }
    }

    #[test]
    fn what_is_logged_stands_for_what_was_allocated() {
        let left = Left {
            bytes: AtomicI64::new(0),
            ready: AtomicBool::new(false),
        };
        for bytes in [1usize, 24, 300, 4095] {
            let (mut blocks, mut seen, mut stands) = (0u64, 0, 0.0);
            while seen < 4000 {
                blocks += 1;
                let before = left.bytes.fetch_sub(bytes as i64, Ordering::Relaxed);
                if before > bytes as i64 {
                    continue;
                }
                if let Some(weight) = take_slowly(&left, bytes) {
                    seen += 1;
                    stands += f64::from(weight);
                }
            }
            let off = stands / blocks as f64 - 1.0;
            assert!(off.abs() < 0.08, "{bytes} bytes: {off}");
        }
        assert_eq!(sample_block(LARGE), Some(1.0));
    }

    #[test]
    fn ends_are_told_apart() {
        let memory: &'static mut [u64] = Box::leak(vec![0; MEMORY / 8].into_boxed_slice());
        // SAFETY: memory of its own, which stays.
        unsafe { keep_in(memory.as_mut_ptr().cast()) };
        let block = |n: usize| 0x10_0000 + 16 * n;
        for n in (0..10_000).step_by(10) {
            insert(block(n));
        }
        for round in 0..2 {
            for n in 0..10_000 {
                assert_eq!(remove(block(n)), round == 0 && n % 10 == 0, "{n}");
            }
        }
        insert(block(1));
        assert!(remove(block(1)) && !remove(block(1)));
    }
}
