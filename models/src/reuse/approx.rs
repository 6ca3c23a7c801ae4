//! Approximate reuse distance of a stream of accesses: a [`ScaleTree`] behind the same interface as
//! the exact [`crate::reuse::ReuseEngine`]. Intervals are exact; distances are within the tree's
//! bound.

use crate::reuse::last_access::Times;
use crate::reuse::scale_tree::{Bound, ScaleTree};
use crate::reuse::sink::ReuseSink;

/// Accesses between the prefetch of a table line and its use. Source: Chosen.
const PREFETCH_DISTANCE: usize = 24;
/// Blocks between the prefetch of a table line and its use inside an access to several blocks.
const AHEAD_INSIDE: u64 = 64;

/// See the module's text.
pub struct ApproxEngine {
    shift: u32,
    times: Times,
    tree: ScaleTree,
    /// Time of the next access; the sample began at time 1.
    now: u64,
}

impl ApproxEngine {
    /// An engine for blocks of `1 << shift` bytes.
    pub fn new(shift: u32, bound: Bound) -> ApproxEngine {
        ApproxEngine {
            shift: shift.min(63),
            times: Times::new(),
            tree: ScaleTree::new(bound, 1),
            now: 1,
        }
    }

    /// Starts a sample: nothing has been touched yet.
    pub fn begin(&mut self) {
        self.times.clear();
        self.now = 1;
        self.tree.begin(1);
    }

    /// Number of distinct blocks touched in this sample.
    pub fn blocks(&self) -> u64 {
        self.tree.blocks()
    }

    /// The maximum number of nodes that the tree has had.
    pub fn most_nodes(&self) -> usize {
        self.tree.most_nodes()
    }

    /// Processes accesses in order, as [`crate::reuse::ReuseEngine::run`].
    pub fn run<S: ReuseSink>(&mut self, address: &[u64], size: &[u32], tag: &[u32], sink: &mut S) {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2")
            && std::arch::is_x86_feature_detected!("lzcnt")
            && std::arch::is_x86_feature_detected!("bmi2")
        {
            // SAFETY: the CPU supports every feature for which the function is compiled, as was
            // just checked.
            return unsafe { self.run_modern(address, size, tag, sink) };
        }
        self.run_any(address, size, tag, sink);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,lzcnt,bmi1,bmi2,popcnt")]
    fn run_modern<S: ReuseSink>(
        &mut self,
        address: &[u64],
        size: &[u32],
        tag: &[u32],
        sink: &mut S,
    ) {
        self.run_any(address, size, tag, sink);
    }

    #[inline(always)]
    fn run_any<S: ReuseSink>(&mut self, address: &[u64], size: &[u32], tag: &[u32], sink: &mut S) {
        let len = address.len().min(size.len()).min(tag.len());
        for i in 0..len {
            if let Some(&ahead) = address.get(i + PREFETCH_DISTANCE) {
                self.times.prefetch(ahead >> self.shift);
            }
            let first = address[i] >> self.shift;
            let last = address[i].saturating_add(u64::from(size[i].max(1)) - 1) >> self.shift;
            let row = self.now - 1;
            if first == last {
                self.touch_one(row, first, tag[i], sink);
            } else {
                self.touch_many(row, first, last, tag[i], sink);
            }
            sink.done(row, tag[i]);
        }
    }

    #[inline(always)]
    fn touch_one<S: ReuseSink>(&mut self, row: u64, block: u64, tag: u32, sink: &mut S) {
        let time = self.times.swap(block, self.now);
        if time == 0 {
            sink.first(row, block, tag);
        } else {
            let distance = self.tree.take(time);
            sink.reuse(row, block, tag, distance, self.now - time);
        }
        self.tree.push(1);
        self.now += 1;
    }

    /// An access to several blocks: first all distances, then all updates, so that its blocks do
    /// not count between each other.
    #[inline(never)]
    fn touch_many<S: ReuseSink>(
        &mut self,
        row: u64,
        first: u64,
        last: u64,
        tag: u32,
        sink: &mut S,
    ) {
        // Blocks with the same previous access share their distance.
        let mut known = (0, 0);
        for block in first..=last {
            self.times.prefetch(block.saturating_add(AHEAD_INSIDE));
            let time = self.times.get(block);
            if time == 0 {
                sink.first(row, block, tag);
                continue;
            }
            if known.0 != time {
                known = (time, self.tree.distance(time));
            }
            sink.reuse(row, block, tag, known.1, self.now - time);
        }
        for block in first..=last {
            self.times.prefetch(block.saturating_add(AHEAD_INSIDE));
            let time = self.times.swap(block, self.now);
            if time != 0 {
                self.tree.take(time);
            }
        }
        self.tree.push(last - first + 1);
        self.now += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reuse::tests::{Hurried, by_definition, by_last_touches, large_and_small};
    use proptest::prelude::*;

    /// Row, block, tag, and distance and interval of a reuse.
    type Touch = (u64, u64, u32, Option<(u64, u64)>);

    #[derive(Default)]
    struct Log(Vec<Touch>);

    impl ReuseSink for Log {
        fn first(&mut self, row: u64, block: u64, tag: u32) {
            self.0.push((row, block, tag, None));
        }
        fn reuse(&mut self, row: u64, block: u64, tag: u32, distance: u64, interval: u64) {
            self.0.push((row, block, tag, Some((distance, interval))));
        }
        fn done(&mut self, _row: u64, _tag: u32) {}
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn agrees_with_the_definition_within_the_bound(
            accesses in prop::collection::vec((0u64..4096, prop_oneof![9 => 1u32..9, 1 => 0u32..400]), 0..150),
            shift in prop_oneof![Just(6u32), Just(3), Just(0)], e in 0.01f64..0.5,
        ) {
            let mut engine = ApproxEngine::new(shift, Bound::Relative(e));
            let address: Vec<u64> = accesses.iter().map(|a| a.0).collect();
            let size: Vec<u32> = accesses.iter().map(|a| a.1).collect();
            let tag: Vec<u32> = (0..accesses.len() as u32).collect();
            for _ in 0..2 {
                engine.begin();
                let mut log = Log::default();
                engine.run(&address, &size, &tag, &mut log);
                let want = by_definition(&accesses, shift);
                prop_assert_eq!(log.0.len(), want.len());
                for (got, want) in log.0.iter().zip(&want) {
                    prop_assert_eq!((got.0, got.1, got.2), (want.0, want.1, want.2));
                    match (got.3, want.3) {
                        (None, None) => {}
                        (Some((d, t)), Some((exact, interval))) => {
                            prop_assert_eq!(t, interval);
                            prop_assert!(d <= exact && (exact - d) as f64 <= e * exact as f64 + 1e-9);
                        }
                        _ => prop_assert!(false, "{:?} {:?}", got, want),
                    }
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        /// Rows, intervals and the bound are also right if an access has more than 65,536 blocks.
        #[test]
        fn accesses_to_very_many_blocks_agree_with_the_definition_within_the_bound(
            accesses in large_and_small(), shift in prop_oneof![Just(0u32), Just(3), Just(6)], e in 0.01f64..0.5,
        ) {
            let mut engine = ApproxEngine::new(shift, Bound::Relative(e));
            let (address, size): (Vec<u64>, Vec<u32>) = accesses.iter().copied().unzip();
            let tag: Vec<u32> = (0..accesses.len() as u32).collect();
            engine.begin();
            let mut log = Log::default();
            engine.run(&address, &size, &tag, &mut log);
            let want = by_last_touches(&accesses, shift);
            prop_assert_eq!(log.0.len(), want.len());
            for (got, want) in log.0.iter().zip(&want) {
                prop_assert_eq!((got.0, got.1, got.2, got.3.map(|r| r.1)), (want.0, want.1, want.2, want.3.map(|r| r.1)));
                if let (Some((d, _)), Some((exact, _))) = (got.3, want.3) {
                    prop_assert!(d <= exact && (exact - d) as f64 <= e * exact as f64 + 1e-9, "{:?} {:?}", got, want);
                }
            }
        }
    }

    #[test]
    fn accesses_of_64_mib_take_linear_time() {
        let lines = (64u64 << 20) / 64;
        let mut sink = Hurried::new();
        let mut engine = ApproxEngine::new(6, Bound::Relative(0.01));
        engine.begin();
        engine.run(&[1 << 40; 4], &[64 << 20; 4], &[0; 4], &mut sink);
        assert_eq!(
            (sink.firsts, sink.reuses, sink.distance),
            (lines, 3 * lines, 0)
        );
    }
}
