//! Exact reuse distance and reuse interval of a stream of accesses.
//!
//! Definitions. Access `i` touches every block that its bytes overlap. If access `p < i` is the
//! last before `i` that touched block `b`, then at `i` block `b` has reuse distance D = number of
//! distinct blocks touched by the accesses strictly between `p` and `i` (other than `b`, which none
//! of them touches), and reuse interval `i - p`. So an immediate reuse has D = 0 and interval 1,
//! even if an access straddles blocks. A first touch has neither.
//!
//! Method. Samples begin in [`crate::reuse::short`], which has all its state in the first-level
//! cache. Longer ones continue in [`crate::reuse::long`]. Starting a sample costs almost nothing.

pub mod approx;
pub(crate) mod last_access;
pub(crate) mod long;
pub(crate) mod prefix;
pub(crate) mod rank;
pub mod scale_tree;
pub(crate) mod short;
pub(crate) mod sink;

pub use crate::reuse::sink::{NOT_TOUCHED, Narrow, ReuseSink};

use crate::reuse::long::Long;
#[cfg(target_arch = "x86_64")]
use crate::reuse::short::{Counters, Plain, Short, Vectors};
use crate::reuse::sink::SLOTS;

/// The state between accesses of one sample. Reusable: [`ReuseEngine::begin`] starts the next
/// sample.
pub struct ReuseEngine {
    short: Short,
    /// True while the sample is in `short` and no part of it is in `long`.
    is_short: bool,
    long: Long,
}

impl ReuseEngine {
    /// An engine for blocks of `1 << shift` bytes.
    pub fn new(shift: u32) -> ReuseEngine {
        ReuseEngine::with_limits(shift, 1 << 30, SLOTS)
    }

    fn with_limits(shift: u32, horizon: u64, short: usize) -> ReuseEngine {
        let shift = shift.min(63);
        ReuseEngine {
            short: Short::new(shift, short),
            is_short: true,
            long: Long::new(shift, horizon),
        }
    }

    /// Starts a sample: nothing has been touched yet.
    pub fn begin(&mut self) {
        self.short.begin();
        self.long.begin(std::mem::replace(&mut self.is_short, true));
    }

    /// Number of distinct blocks touched in this sample.
    pub fn blocks(&self) -> u64 {
        if self.is_short {
            self.short.blocks()
        } else {
            self.long.blocks()
        }
    }

    /// Processes accesses in order. The slices have one element per access; a `size` of 0 counts as
    /// 1.
    pub fn run<S: ReuseSink>(&mut self, address: &[u64], size: &[u32], tag: &[u32], sink: &mut S) {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("popcnt")
            && std::arch::is_x86_feature_detected!("avx2")
            && std::arch::is_x86_feature_detected!("bmi1")
            && std::arch::is_x86_feature_detected!("bmi2")
            && std::arch::is_x86_feature_detected!("lzcnt")
        {
            if std::arch::is_x86_feature_detected!("avx512f")
                && std::arch::is_x86_feature_detected!("avx512bw")
                && std::arch::is_x86_feature_detected!("avx512vl")
                && std::arch::is_x86_feature_detected!("avx512vpopcntdq")
            {
                // SAFETY: the CPU supports every feature for which the function is compiled, as was
                // just checked.
                return unsafe { self.run_wide(address, size, tag, sink) };
            }
            // SAFETY: the CPU supports every feature for which the function is compiled, as was
            // just checked.
            return unsafe { self.run_modern(address, size, tag, sink) };
        }
        self.run_any::<Plain, S>(address, size, tag, sink);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(
        enable = "popcnt,avx2,bmi1,bmi2,lzcnt,avx512f,avx512bw,avx512vl,avx512vpopcntdq"
    )]
    fn run_wide<S: ReuseSink>(&mut self, address: &[u64], size: &[u32], tag: &[u32], sink: &mut S) {
        self.run_any::<Vectors, S>(address, size, tag, sink);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "popcnt,avx2,bmi1,bmi2,lzcnt")]
    fn run_modern<S: ReuseSink>(
        &mut self,
        address: &[u64],
        size: &[u32],
        tag: &[u32],
        sink: &mut S,
    ) {
        self.run_any::<Vectors, S>(address, size, tag, sink);
    }

    #[inline(always)]
    fn run_any<C: Counters, S: ReuseSink>(
        &mut self,
        address: &[u64],
        size: &[u32],
        tag: &[u32],
        sink: &mut S,
    ) {
        let len = address.len().min(size.len()).min(tag.len());
        let (address, size, tag) = (&address[..len], &size[..len], &tag[..len]);
        let mut done = 0;
        if self.is_short {
            done = self.short.run::<C, S>(address, size, tag, sink);
            self.long.skip(done);
            if done == len {
                return;
            }
            self.is_short = false;
            self.long.take_over(&self.short.lines(), self.short.used());
        }
        self.long
            .run(&address[done..], &size[done..], &tag[done..], sink);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{HashMap, HashSet};

    /// Calls of a sink, in order: row, block, tag, and distance and interval of a reuse.
    type Told = Vec<(u64, u64, u32, Option<(u64, u64)>)>;

    #[derive(Default)]
    struct Log {
        told: Told,
        done: u64,
    }

    impl ReuseSink for Log {
        fn first(&mut self, row: u64, block: u64, tag: u32) {
            self.told.push((row, block, tag, None));
        }
        fn reuse(&mut self, row: u64, block: u64, tag: u32, distance: u64, interval: u64) {
            self.told
                .push((row, block, tag, Some((distance, interval))));
        }
        fn done(&mut self, row: u64, _tag: u32) {
            assert_eq!(row, self.done);
            self.done += 1;
        }
    }

    /// The definition, word for word.
    pub(crate) fn by_definition(accesses: &[(u64, u32)], shift: u32) -> Told {
        let blocks = |&(address, size): &(u64, u32)| {
            let last = address.saturating_add(u64::from(size.max(1)) - 1);
            (address >> shift)..=(last >> shift)
        };
        let mut told = Vec::new();
        for (i, access) in accesses.iter().enumerate() {
            for block in blocks(access) {
                let previous = (0..i)
                    .rev()
                    .find(|&p| blocks(&accesses[p]).contains(&block));
                let reuse = previous.map(|p| {
                    let between: HashSet<u64> =
                        accesses[p + 1..i].iter().flat_map(blocks).collect();
                    (between.len() as u64, (i - p) as u64)
                });
                told.push((i as u64, block, i as u32, reuse));
            }
        }
        told
    }

    /// The result of [`by_definition`], for accesses to many blocks. The time is linear in the number
    /// of touches times the number of accesses.
    pub(crate) fn by_last_touches(accesses: &[(u64, u32)], shift: u32) -> Told {
        let mut last: HashMap<u64, usize> = HashMap::new();
        // Number of blocks whose last touch is by each access.
        let mut blocks_of = vec![0u64; accesses.len()];
        let mut told = Vec::new();
        for (i, &(address, size)) in accesses.iter().enumerate() {
            let end = address.saturating_add(u64::from(size.max(1)) - 1);
            let mut behind = vec![0; i + 1];
            for p in (0..i).rev() {
                behind[p] = behind[p + 1] + blocks_of[p];
            }
            let touched = (address >> shift)..=(end >> shift);
            for block in touched.clone() {
                let before = last.get(&block);
                told.push((
                    i as u64,
                    block,
                    i as u32,
                    before.map(|&p| (behind[p + 1], (i - p) as u64)),
                ));
            }
            for block in touched {
                if let Some(p) = last.insert(block, i) {
                    blocks_of[p] -= 1;
                }
                blocks_of[i] += 1;
            }
        }
        told
    }

    /// Accesses of up to a quarter of a million bytes at unaligned addresses that overlap each
    /// other, and small ones between them.
    pub(crate) fn large_and_small() -> impl Strategy<Value = Vec<(u64, u32)>> {
        let large = (0u64..300_000, 1u32..250_000);
        // Begin and end of a large access, and addresses between them: small accesses divide it.
        let small = (
            prop_oneof![0u64..600_000, (0u64..9).prop_map(|k| k * 65_536)],
            1u32..40,
        );
        let middle = (0u64..600_000, 40u32..9000);
        prop::collection::vec(prop_oneof![2 => large, 6 => small, 2 => middle], 1..60)
    }

    fn measured(engine: &mut ReuseEngine, accesses: &[(u64, u32)], cuts: usize) -> Told {
        let address: Vec<u64> = accesses.iter().map(|a| a.0).collect();
        let size: Vec<u32> = accesses.iter().map(|a| a.1).collect();
        let tag: Vec<u32> = (0..accesses.len() as u32).collect();
        let mut log = Log::default();
        engine.begin();
        let step = (accesses.len() / (cuts + 1)).max(1);
        let mut at = 0;
        while at < accesses.len() {
            let end = (at + step).min(accesses.len());
            engine.run(&address[at..end], &size[at..end], &tag[at..end], &mut log);
            at = end;
        }
        log.told
    }

    /// D of each access of a sequence of letters, one block each; `None` for first touches.
    fn letters(text: &str) -> Vec<Option<(u64, u64)>> {
        let accesses: Vec<(u64, u32)> = text.bytes().map(|b| (u64::from(b) * 64, 8)).collect();
        measured(&mut ReuseEngine::new(6), &accesses, 0)
            .into_iter()
            .map(|t| t.3)
            .collect()
    }

    #[test]
    fn example_of_rdx() {
        // "a1, b1, c1, b2, a2: the reuse distance of a at a2 is 2", its time reuse is 4.
        assert_eq!(
            letters("abcba"),
            [None, None, None, Some((1, 2)), Some((2, 4))]
        );
    }

    #[test]
    fn example_of_barai_figure_1() {
        let distances: Vec<Option<u64>> =
            letters("abacbdda").iter().map(|r| r.map(|r| r.0)).collect();
        assert_eq!(
            distances,
            [None, None, Some(1), None, Some(2), None, Some(0), Some(3)]
        );
    }

    #[test]
    fn the_measures_of_zhong_figure_1() {
        // Distances of a b c a a c b, their locality signature, and the misses of caches of all
        // sizes. Three of seven accesses are first touches.
        let distances: Vec<Option<u64>> =
            letters("abcaacb").iter().map(|r| r.map(|r| r.0)).collect();
        assert_eq!(
            distances,
            [None, None, None, Some(2), Some(0), Some(1), Some(2)]
        );
        let mut fine = crate::histogram::Fine::new(crate::histogram::TRACE_BITS);
        distances.iter().flatten().for_each(|&d| fine.add(d));
        let signature: Vec<(f64, f64)> = fine.bins().map(|b| (b.from, b.count / 4.0)).collect();
        assert_eq!(signature, [(0.0, 0.25), (1.0, 0.25), (2.0, 0.5)]);
        let misses = crate::miss_ratio::MissRatio::new(fine.bins(), 3.0, 0.0);
        assert_eq!(
            [0.0, 1.0, 2.0, 3.0, 4.0].map(|size| misses.misses(size)),
            [7.0, 6.0, 5.0, 3.0, 3.0]
        );
    }

    #[test]
    fn example_of_zhong_figure_2() {
        // Twelve accesses to seven data; "the reuse distance between two b's", at times 4 and 12,
        // "is 5".
        let told = letters("dacbccgefafb");
        assert_eq!(told.iter().filter(|t| t.is_none()).count(), 7);
        assert_eq!(told[11], Some((5, 8)));
        let distances: Vec<Option<u64>> = told.iter().map(|r| r.map(|r| r.0)).collect();
        assert_eq!(
            distances[4..],
            [
                Some(1),
                Some(0),
                None,
                None,
                None,
                Some(5),
                Some(1),
                Some(5)
            ]
        );
    }

    #[test]
    fn example_of_cabrera_figure_1_at_two_granularities() {
        // "The second time [a] is encountered, its reuse distance is calculated to be 2, and the
        // reuse distance is 0 when it [is] seen for the third time." If a, b and c share a page,
        // all distances are 0 at page size. On separate pages they stay the same.
        let at = |spread: u64, bits: u32| -> Vec<Option<u64>> {
            let accesses: Vec<(u64, u32)> = "abcaa"
                .bytes()
                .map(|b| (0x10_0000 + u64::from(b - b'a') * spread, 8))
                .collect();
            measured(&mut ReuseEngine::new(bits), &accesses, 0)
                .into_iter()
                .map(|t| t.3.map(|t| t.0))
                .collect()
        };
        assert_eq!(at(64, 6), [None, None, None, Some(2), Some(0)]);
        assert_eq!(at(64, 12), [None, Some(0), Some(0), Some(0), Some(0)]);
        assert_eq!(at(4096, 12), [None, None, None, Some(2), Some(0)]);
    }

    #[test]
    fn an_immediate_reuse_has_distance_0_and_interval_1() {
        assert_eq!(letters("aaa"), [None, Some((0, 1)), Some((0, 1))]);
    }

    #[test]
    fn an_access_across_two_blocks_touches_both_and_neither_stands_between_the_other() {
        let told = measured(
            &mut ReuseEngine::new(6),
            &[(60, 8), (60, 8), (64, 8), (0, 1)],
            0,
        );
        assert_eq!(
            told.iter().map(|t| (t.0, t.1, t.3)).collect::<Vec<_>>(),
            [
                (0, 0, None),
                (0, 1, None),
                (1, 0, Some((0, 1))),
                (1, 1, Some((0, 1))),
                (2, 1, Some((0, 1))),
                (3, 0, Some((1, 2))),
            ]
        );
    }

    #[test]
    fn cyclic_access_to_n_blocks_has_distance_n_minus_1_through_many_compactions() {
        let n = 5000u64;
        let accesses: Vec<(u64, u32)> = (0..n * 7).map(|i| (i % n * 64, 8)).collect();
        let told = measured(&mut ReuseEngine::new(6), &accesses, 3);
        for (i, t) in told.iter().enumerate() {
            assert_eq!(t.3, (i as u64 >= n).then_some((n - 1, n)), "access {i}");
        }
    }

    #[test]
    fn addresses_at_the_end_of_the_address_space_are_fine() {
        let told = measured(
            &mut ReuseEngine::new(6),
            &[(u64::MAX, 8), (u64::MAX - 1, u32::MAX), (0, 0)],
            0,
        );
        assert_eq!(told.len(), 3);
        assert_eq!(told[1].3, Some((0, 1)));
        measured(
            &mut ReuseEngine::new(0),
            &[(u64::MAX, 1), (u64::MAX - 3, 8)],
            0,
        );
    }

    #[test]
    fn a_large_sample_leaves_nothing_to_the_next_one() {
        let mut engine = ReuseEngine::new(6);
        let large: Vec<(u64, u32)> = (0..300_000).map(|i| (i * 64, 8)).collect();
        assert!(
            measured(&mut engine, &large, 0)
                .iter()
                .all(|t| t.3.is_none())
        );
        for _ in 0..3 {
            let small: Vec<(u64, u32)> = (0..100).map(|i| (i % 50 * 64, 8)).collect();
            assert_eq!(measured(&mut engine, &small, 0), by_definition(&small, 6));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn agrees_with_the_definition(
            accesses in prop::collection::vec((0u64..4096, prop_oneof![9 => 1u32..9, 1 => 0u32..200]), 0..100),
            shift in prop_oneof![Just(6u32), Just(0), Just(3), Just(12)],
            cuts in 0usize..4,
            // Samples that stay short, that become long, and that are long from the start.
            short in prop_oneof![Just(SLOTS), 1usize..120, Just(0)],
        ) {
            let mut engine = ReuseEngine::with_limits(shift, 1 << 30, short);
            prop_assert_eq!(measured(&mut engine, &accesses, cuts), by_definition(&accesses, shift));
            // Repeated with the used engine.
            prop_assert_eq!(measured(&mut engine, &accesses, 0), by_definition(&accesses, shift));
        }

    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn agrees_across_compactions(
            seed: u64, blocks in 1u64..1500, long in prop::collection::vec(0usize..9000, 0..6), short in 0usize..SLOTS + 1,
        ) {
            let mut state = seed;
            let mut accesses: Vec<(u64, u32)> = (0..9000).map(|_| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                ((state >> 33) % blocks * 64 + (state >> 20) % 64, 8)
            }).collect();
            for at in long {
                accesses[at].1 = 1000;
            }
            let told = measured(&mut ReuseEngine::with_limits(6, 1 << 30, short), &accesses, 1);
            // The definition is quadratic, so an LRU stack gives the distances instead.
            let mut stack: Vec<(u64, u64)> = Vec::new();
            let mut told = told.into_iter();
            for (i, &(address, size)) in accesses.iter().enumerate() {
                let touched = (address >> 6)..=((address + u64::from(size) - 1) >> 6);
                let before = stack.clone();
                for block in touched.clone() {
                    let got = told.next().unwrap();
                    let want = before.iter().rev().find(|e| e.0 == block).map(|e| {
                        (before.iter().filter(|o| o.1 > e.1).count() as u64, i as u64 - e.1)
                    });
                    prop_assert_eq!((got.0, got.1, got.3), (i as u64, block, want));
                }
                stack.retain(|e| !touched.contains(&e.0));
                stack.extend(touched.map(|b| (b, i as u64)));
            }
        }

    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn intervals_stay_exact_beyond_the_horizon_of_the_table(
            accesses in prop::collection::vec((0u64..1500, 1u32..80), 0..400),
            horizon in 4u64..64,
        ) {
            let mut engine = ReuseEngine::with_limits(6, horizon, 0);
            for _ in 0..2 {
                prop_assert_eq!(measured(&mut engine, &accesses, 2), by_definition(&accesses, 6));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn linear_brute_force_agrees_with_the_definition(accesses in prop::collection::vec((0u64..500, 0u32..300), 0..40), shift in 0u32..7) {
            prop_assert_eq!(by_last_touches(&accesses, shift), by_definition(&accesses, shift));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// The definition also holds if an access has more than 65,536 blocks: none of them counts
        /// between another and itself.
        #[test]
        fn accesses_to_very_many_blocks_agree_with_the_definition(
            accesses in large_and_small(), shift in prop_oneof![Just(0u32), Just(3), Just(6), Just(12)],
            cuts in 0usize..4, horizon in prop_oneof![Just(1u64 << 30), 4u64..40],
        ) {
            let mut engine = ReuseEngine::with_limits(shift, horizon, SLOTS);
            let want = by_last_touches(&accesses, shift);
            for cuts in [cuts, 0] {
                // `prop_assert_eq` is not used, because it would print millions of touches.
                let got = measured(&mut engine, &accesses, cuts);
                prop_assert_eq!(got.len(), want.len());
                if let Some((got, want)) = got.iter().zip(&want).find(|(got, want)| got != want) {
                    prop_assert_eq!(got, want);
                }
            }
        }
    }

    /// Sums of a sink's calls. It fails if they take too long.
    pub(crate) struct Hurried {
        pub(crate) firsts: u64,
        pub(crate) reuses: u64,
        pub(crate) distance: u64,
        pub(crate) until: std::time::Instant,
    }

    impl Hurried {
        pub(crate) fn new() -> Hurried {
            Hurried {
                firsts: 0,
                reuses: 0,
                distance: 0,
                until: std::time::Instant::now() + std::time::Duration::from_secs(60),
            }
        }
    }

    impl ReuseSink for Hurried {
        fn first(&mut self, _row: u64, _block: u64, _tag: u32) {
            self.firsts += 1;
        }
        fn reuse(&mut self, _row: u64, _block: u64, _tag: u32, distance: u64, _interval: u64) {
            self.reuses += 1;
            self.distance += distance;
            if self.reuses.is_multiple_of(4096) {
                assert!(
                    std::time::Instant::now() < self.until,
                    "too slow: {} reuses in a minute",
                    self.reuses
                );
            }
        }
        fn done(&mut self, _row: u64, _tag: u32) {}
    }

    /// One instruction copies 64 MiB repeatedly. The time is linear in its bytes. (One more block
    /// takes some nanoseconds. One such step per block of the access would take years.)
    #[test]
    fn accesses_of_64_mib_take_linear_time() {
        const BYTES: u32 = 64 << 20;
        let lines = u64::from(BYTES) / 64;
        let from = 0x7f00_0000_0000u64;
        let copies: Vec<(u64, u32)> = (0..4)
            .flat_map(|_| [(from, BYTES), (from + (1 << 30), BYTES)])
            .collect();
        let (address, size): (Vec<u64>, Vec<u32>) = copies.into_iter().unzip();
        let mut sink = Hurried::new();
        ReuseEngine::new(6).run(&address, &size, &[0; 8], &mut sink);
        assert_eq!((sink.firsts, sink.reuses), (2 * lines, 6 * lines));
        // All of the other block range is accessed between two reads of one.
        assert_eq!(sink.distance, 6 * lines * lines);
    }
}
