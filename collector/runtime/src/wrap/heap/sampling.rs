//! Sampling of heap blocks: a Poisson process by bytes chooses the blocks that are logged.
//!
//! A thread counts down the bytes that it allocates; a block that takes the counter to zero or
//! below is logged, and the next distance is drawn from an exponential distribution. So a block of
//! s bytes is logged with probability 1 − exp(−s / mean), independent of earlier blocks, and
//! represents the inverse of that number of blocks. The mean is that of the draw. The next draw may
//! use a different mean, since that depends only on the past: it grows with the allocated bytes, or
//! a budget decides it ([`pace`](super::pace)).
//!
//! Addresses of logged blocks are kept in a table, since only their ends are logged. Most calls of
//! `free` are of other blocks; a byte in a small filter distinguishes them.

use super::params::{
    FILTER_BYTES_LOG2, LOGGED_BLOCKS_BEFORE_GROWTH_LOG2, MAX_PROBES, MIN_MEAN_BYTES,
};
use core::cell::Cell;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering};

/// A thread's counter. The stubs in front of the allocator change its first word.
#[repr(C, align(16))]
#[derive(Debug, Default)]
pub struct Left {
    /// Bytes to the next block that is logged.
    pub bytes: Cell<i64>,
    /// Mean of the draw; 0 before the first one.
    mean: Cell<u64>,
}

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

/// Seeds the generator, so that each process has a different sequence.
pub fn seed(with: u64) {
    RANDOM.fetch_add(with.wrapping_mul(0xbf58_476d_1ce4_e5b9), Ordering::Relaxed);
}

/// −ln of a number that is uniform in (0, 1), made of random bits.
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

/// The mean without a budget.
pub fn growing_mean() -> u64 {
    (BYTES.load(Ordering::Relaxed) >> LOGGED_BLOCKS_BEFORE_GROWTH_LOG2).max(MIN_MEAN_BYTES)
}

fn distance(mean: u64) -> i64 {
    (exponential(random()) * mean as f64) as i64 + 1
}

/// 1 − exp(−x).
fn complement_of_exp(x: f64) -> f64 {
    // For larger exponents the result rounds to 1 in 32 bits.
    const CERTAIN_EXPONENT: f64 = 17.5;
    const HALVINGS: i32 = 6;
    let series = |x: f64| {
        let inner = 1.0 - x / 4.0 * (1.0 - x / 5.0 * (1.0 - x / 6.0 * (1.0 - x / 7.0)));
        x * (1.0 - x / 2.0 * (1.0 - x / 3.0 * inner))
    };
    if x >= CERTAIN_EXPONENT {
        return 1.0;
    }
    if x <= 0.25 {
        return series(x);
    }
    let mut exp = 1.0 - series(x / f64::from(1 << HALVINGS));
    for _ in 0..HALVINGS {
        exp *= exp;
    }
    1.0 - exp
}

/// Number of blocks that a block of `bytes` represents, drawn with a mean.
fn stands_for(bytes: usize, mean: u64) -> f32 {
    (1.0 / complement_of_exp(bytes as f64 / mean.max(1) as f64)) as f32
}

/// Block that a thread logs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Taken {
    /// Number of blocks that it represents.
    pub weight: f32,
    /// Number of allocated bytes that it represents, since the last logged block.
    pub mean: u64,
}

/// Handles a block of `bytes` that takes the thread's counter to zero or below. Returns the block
/// if it is to be logged. `mean`: that of the next draw.
pub fn take(left: &Left, bytes: usize, mean: u64) -> Option<Taken> {
    let mut drawn = left.mean.replace(mean);
    if drawn == 0 {
        drawn = mean;
        let first = distance(mean);
        if first > bytes as i64 {
            left.bytes.set(first - bytes as i64);
            return None;
        }
    }
    left.bytes.set(distance(mean));
    // A block of zero bytes has no loads.
    if bytes == 0 {
        return None;
    }
    BYTES.fetch_add(drawn, Ordering::Relaxed);
    Some(Taken {
        weight: stands_for(bytes, drawn),
        mean: drawn,
    })
}

/// Number of blocks that a logged block of `bytes` represents, if it was drawn with `mean`.
#[cold]
pub fn weight(bytes: usize, mean: u64) -> f32 {
    match bytes {
        0 => 1.0,
        _ => stands_for(bytes, mean),
    }
}

/// An entry whose address was removed.
const REMOVED: u64 = 1;
/// Entries of the filter keep this value once they have reached it.
const PERMANENT_COUNT: u8 = u8::MAX;

/// Filter: number of logged blocks by bits 4 to 19 of their addresses. Neighbors share a cache
/// line. The stubs read it.
pub static KNOWN: [AtomicU8; 1 << FILTER_BYTES_LOG2] =
    [const { AtomicU8::new(0) }; 1 << FILTER_BYTES_LOG2];
/// The table of addresses of logged blocks, or null.
static TABLE: AtomicPtr<AtomicU64> = AtomicPtr::new(core::ptr::null_mut());
/// Number of its entries, a power of two.
static PLACES: AtomicUsize = AtomicUsize::new(0);

/// Keeps addresses in this memory.
///
/// # Safety
/// `memory` must have `places` zero words, a power of two, which are used for nothing else for the
/// life of the process.
pub unsafe fn keep_in(memory: *mut u64, places: usize) {
    PLACES.store(places, Ordering::Relaxed);
    TABLE.store(memory.cast(), Ordering::Release);
}

#[inline(always)]
fn filter(block: usize) -> &'static AtomicU8 {
    &KNOWN[block >> 4 & ((1 << FILTER_BYTES_LOG2) - 1)]
}

fn places(table: *mut AtomicU64, block: usize) -> impl Iterator<Item = &'static AtomicU64> {
    let first = ((block >> 4) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
    let mask = PLACES.load(Ordering::Relaxed).wrapping_sub(1);
    (0..MAX_PROBES).map(move |n| {
        let place = (first as usize + n) & mask;
        // SAFETY: inside the memory of `keep_in`.
        unsafe { &*table.add(place) }
    })
}

/// Makes the filter report the block's address as logged for good.
pub fn always_look(block: usize) {
    filter(block).store(PERMANENT_COUNT, Ordering::Relaxed);
}

/// Adds a logged block. Returns false if there is no room for its address.
pub fn insert(block: usize) -> bool {
    let table = TABLE.load(Ordering::Acquire);
    if table.is_null() {
        return false;
    }
    let put = places(table, block).any(|place| {
        let there = place.load(Ordering::Relaxed);
        there <= REMOVED
            && place
                .compare_exchange(there, block as u64, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    });
    if put {
        let _ = filter(block).fetch_update(Ordering::Release, Ordering::Relaxed, |n| {
            (n != PERMANENT_COUNT).then_some(n + 1)
        });
    }
    put
}

/// Removes a block that ends. Returns true if it was logged.
#[inline(always)]
pub fn remove(block: usize) -> bool {
    filter(block).load(Ordering::Relaxed) != 0 && remove_slowly(block)
}

#[inline(never)]
fn remove_slowly(block: usize) -> bool {
    let table = TABLE.load(Ordering::Acquire);
    if table.is_null() {
        return false;
    }
    let found = places(table, block)
        .take_while(|place| place.load(Ordering::Relaxed) != 0)
        .any(|place| {
            place
                .compare_exchange(block as u64, REMOVED, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        });
    if found {
        let _ = filter(block).fetch_update(Ordering::Release, Ordering::Relaxed, |n| {
            (n != PERMANENT_COUNT && n != 0).then(|| n - 1)
        });
    }
    found
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
    fn probabilities_are_exact() {
        for x in [1e-6f64, 0.001, 0.2, 0.25, 0.26, 1.0, 4.0, 17.0, 18.0, 1e6] {
            let exact = -(-x).exp_m1();
            assert!((complement_of_exp(x) / exact - 1.0).abs() < 1e-6, "{x}");
        }
    }

    /// Blocks are allocated until 4000 are logged.
    fn represented(left: &Left, bytes: usize, mean: impl Fn(u64) -> u64) -> (f64, f64, u64) {
        let (mut blocks, mut seen, mut weights, mut means) = (0u64, 0, 0.0, 0);
        while seen < 4000 {
            blocks += 1;
            let now = left.bytes.get() - bytes as i64;
            left.bytes.set(now);
            if now <= 0
                && let Some(taken) = take(left, bytes, mean(seen))
            {
                seen += 1;
                weights += f64::from(taken.weight);
                means += taken.mean;
            }
        }
        (blocks as f64, weights, means)
    }

    #[test]
    fn what_is_logged_stands_for_what_was_allocated() {
        let left = Left::default();
        for bytes in [1usize, 24, 300, 4095] {
            let (blocks, weights, _) = represented(&left, bytes, |_| growing_mean());
            let off = weights / blocks - 1.0;
            assert!(off.abs() < 0.08, "{bytes} bytes: {off}");
        }
    }

    #[test]
    fn the_mean_may_change_at_each_draw() {
        let left = Left::default();
        for bytes in [16usize, 4096, 100_000, 1 << 20] {
            let (blocks, weights, means) = represented(&left, bytes, |n| 1024 << (n % 8));
            let off = weights / blocks - 1.0;
            assert!(off.abs() < 0.12, "{bytes} bytes: {off}");
            if bytes == 16 {
                let off = means as f64 / (blocks * bytes as f64) - 1.0;
                assert!(off.abs() < 0.12, "{bytes} bytes in means: {off}");
            }
        }
    }

    #[test]
    fn ends_are_told_apart() {
        const TABLE_PLACES: usize = 1 << 14;
        let memory: &'static mut [u64] = Box::leak(vec![0; TABLE_PLACES].into_boxed_slice());
        // SAFETY: memory for this alone, which is never freed.
        unsafe { keep_in(memory.as_mut_ptr(), TABLE_PLACES) };
        let block = |n: usize| 0x10_0000 + 16 * n;
        for n in (0..10_000).step_by(10) {
            assert!(insert(block(n)));
        }
        for round in 0..2 {
            for n in 0..10_000 {
                assert_eq!(remove(block(n)), round == 0 && n % 10 == 0, "{n}");
            }
        }
        assert!(insert(block(1)) && remove(block(1)) && !remove(block(1)));
        always_look(block(2));
        assert!(!remove(block(2)) && KNOWN[block(2) >> 4 & 0xffff].load(Ordering::Relaxed) != 0);
        let room = (0..2 * TABLE_PLACES).filter(|n| insert(block(*n))).count();
        assert!(room > TABLE_PLACES / 2 && room <= TABLE_PLACES, "{room}");
    }
}
