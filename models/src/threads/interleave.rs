//! Interleavings of several threads' accesses into one order, for concurrent reuse profiles and
//! shared caches.

use crate::util::random::SplitMix;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Order of the threads' accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Turns {
    /// One access of each thread in turn; threads that have ended are left out.
    RoundRobin,
    /// All threads end together: a thread with twice the accesses has two turns for one.
    Proportional,
    /// Each next access is by a random thread, with probability proportional to its remaining
    /// accesses.
    Random {
        /// Equal seeds give equal orders.
        seed: u64,
    },
    /// `length` accesses of each thread in turn (a scheduler that runs threads one after another on
    /// one core).
    Chunks {
        /// Accesses of a turn.
        length: u64,
    },
    /// One thread after the other.
    Sequential,
    /// More threads than cores: one access in turn of each thread that has a core. After `slice`
    /// accesses, a thread gives its core to the one that has waited longest.
    Cores {
        /// Threads that run at once.
        cores: u64,
        /// Accesses until another thread gets the core.
        slice: u64,
    },
}

/// Calls `next(thread)` once for each access, in the order of the interleaving; `lengths` has the
/// number of accesses of each thread.
pub fn interleave(lengths: &[u64], turns: Turns, mut next: impl FnMut(usize)) {
    let mut left = lengths.to_vec();
    match turns {
        Turns::RoundRobin => chunks(&mut left, 1, &mut next),
        Turns::Chunks { length } => chunks(&mut left, length.max(1), &mut next),
        Turns::Sequential => chunks(&mut left, u64::MAX, &mut next),
        Turns::Cores { cores, slice } => on_cores(&mut left, cores, slice.max(1), &mut next),
        Turns::Proportional => {
            // The thread whose next access is due first is selected: access i of n is due at (i +
            // ½) / n.
            let mut done = vec![0u64; lengths.len()];
            let due = |thread: usize, i: u64| (i as f64 + 0.5) / lengths[thread] as f64;
            let mut heap: std::collections::BinaryHeap<(
                std::cmp::Reverse<Due>,
                std::cmp::Reverse<usize>,
            )> = (0..lengths.len())
                .filter(|&t| lengths[t] > 0)
                .map(|t| (std::cmp::Reverse(Due(due(t, 0))), std::cmp::Reverse(t)))
                .collect();
            while let Some((_, std::cmp::Reverse(thread))) = heap.pop() {
                next(thread);
                done[thread] += 1;
                if done[thread] < lengths[thread] {
                    heap.push((
                        std::cmp::Reverse(Due(due(thread, done[thread]))),
                        std::cmp::Reverse(thread),
                    ));
                }
            }
        }
        Turns::Random { seed } => {
            let mut random = SplitMix::new(seed);
            let mut sums = FenwickTree::new(&left);
            for total in (1..=left.iter().sum()).rev() {
                next(sums.take(random.below(total)));
            }
        }
    }
}

/// A time with a total order.
#[derive(PartialEq)]
struct Due(f64);

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Due) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// Threads on fewer cores. A thread that has ended leaves its core to the next one.
fn on_cores(left: &mut [u64], cores: u64, slice: u64, next: &mut impl FnMut(usize)) {
    let mut waiting: VecDeque<usize> = (0..left.len()).filter(|&t| left[t] > 0).collect();
    // Threads that have a core, each with the remaining accesses of its slice.
    let mut running: Vec<(usize, u64)> = Vec::new();
    loop {
        while (running.len() as u64) < cores.max(1) {
            let Some(thread) = waiting.pop_front() else {
                break;
            };
            running.push((thread, slice));
        }
        if running.is_empty() {
            return;
        }
        for (thread, slice_left) in &mut running {
            next(*thread);
            left[*thread] -= 1;
            *slice_left -= 1;
            if left[*thread] == 0 || *slice_left > 0 {
                continue;
            }
            waiting.push_back(*thread);
            if let Some(other) = waiting.pop_front() {
                (*thread, *slice_left) = (other, slice);
            }
        }
        running.retain(|&(thread, _)| left[thread] > 0);
    }
}

fn chunks(left: &mut [u64], length: u64, next: &mut impl FnMut(usize)) {
    // Threads that have ended are removed, since one thread may have nearly all accesses.
    let mut active: Vec<usize> = (0..left.len()).filter(|&t| left[t] > 0).collect();
    while !active.is_empty() {
        active.retain(|&thread| {
            let now = left[thread].min(length);
            (0..now).for_each(|_| next(thread));
            left[thread] -= now;
            left[thread] > 0
        });
    }
}

/// An array of numbers with sums over ranges of powers of two (a Fenwick tree).
struct FenwickTree(Vec<u64>);

impl FenwickTree {
    fn new(numbers: &[u64]) -> FenwickTree {
        let mut tree = vec![0; numbers.len() + 1];
        for (at, &n) in numbers.iter().enumerate() {
            let at = at + 1;
            tree[at] += n;
            let above = at + (at & at.wrapping_neg());
            if above < tree.len() {
                tree[above] += tree[at];
            }
        }
        FenwickTree(tree)
    }

    /// Finds the number to which position `at` of their sum belongs, and decreases it by one.
    fn take(&mut self, mut at: u64) -> usize {
        let len = self.0.len();
        let (mut before, mut step) = (0, len.next_power_of_two() / 2);
        while step > 0 {
            match self.0.get(before + step) {
                Some(&sum) if sum <= at => {
                    before += step;
                    at -= sum;
                }
                // The number is in this range.
                Some(_) => self.0[before + step] -= 1,
                None => {}
            }
            step /= 2;
        }
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reuse::{ReuseEngine, ReuseSink};
    use proptest::prelude::*;

    proptest! {
        /// Agrees with lists that are searched from the start.
        #[test]
        fn places_in_sums_are_found_and_taken(mut numbers in prop::collection::vec(0u64..5, 1..40), seed: u64) {
            let mut sums = FenwickTree::new(&numbers);
            let mut random = SplitMix::new(seed);
            for total in (1..=numbers.iter().sum::<u64>()).rev() {
                let at = random.below(total);
                let mut behind = 0;
                let want = numbers.iter().position(|&n| { behind += n; at < behind }).unwrap();
                prop_assert_eq!(sums.take(at), want);
                numbers[want] -= 1;
            }
        }

        #[test]
        fn turns_of_several_accesses_leave_out_who_has_ended(lengths in prop::collection::vec(0u64..30, 0..6), length in 1u64..9) {
            let mut got = Vec::new();
            interleave(&lengths, Turns::Chunks { length }, |t| got.push(t));
            let mut left = lengths.clone();
            let mut want = Vec::new();
            while left.iter().any(|&n| n > 0) {
                for (thread, n) in left.iter_mut().enumerate() {
                    let now = (*n).min(length);
                    want.extend(std::iter::repeat_n(thread, now as usize));
                    *n -= now;
                }
            }
            prop_assert_eq!(got, want);
        }
    }

    #[test]
    fn more_threads_than_cores_share_them_by_slices() {
        let order = |lengths: &[u64], cores, slice| {
            let mut order = Vec::new();
            interleave(lengths, Turns::Cores { cores, slice }, |t| order.push(t));
            order
        };
        // Threads 0 and 1 run for two accesses, then 2 and 0, then 1 and 2.
        assert_eq!(order(&[3, 3, 3], 2, 2), [0, 1, 0, 1, 2, 0, 2, 1, 2]);
        // Slices longer than threads: each thread runs to its end, two at a time.
        assert_eq!(order(&[2, 1, 3], 2, 100), [0, 1, 0, 2, 2, 2]);
        // With a core for each thread, it is round-robin.
        assert_eq!(order(&[2, 1, 3], 3, 1), [0, 1, 2, 0, 2, 2]);
        assert_eq!(order(&[2, 0, 1], 0, 0), [0, 2, 0]);
    }

    #[derive(Default)]
    struct Distances(Vec<Option<u64>>);

    impl ReuseSink for Distances {
        fn first(&mut self, _: u64, _: u64, _: u32) {
            self.0.push(None);
        }
        fn reuse(&mut self, _: u64, _: u64, _: u32, distance: u64, _: u64) {
            self.0.push(Some(distance));
        }
        fn done(&mut self, _: u64, _: u32) {}
    }

    fn distances(letters: &str) -> Vec<Option<u64>> {
        let address: Vec<u64> = letters.bytes().map(|b| u64::from(b) * 64).collect();
        let mut sink = Distances::default();
        ReuseEngine::new(6).run(
            &address,
            &vec![8; address.len()],
            &vec![0; address.len()],
            &mut sink,
        );
        sink.0
    }

    #[test]
    fn barai_figure_2() {
        // Times 1 to 10; core 1: a at 1, b at 3, a at 4, e at 5, d at 8, a at 9, b at 10; core 2: c
        // at 2, d at 6, b at 7. As the text counts: "For access of a at time 4 CRD is 2
        // where its D is 1" (dilation).
        let both = distances("acbaedbdab");
        let alone = distances("abaedab");
        assert_eq!((both[3], alone[2]), (Some(2), Some(1)));
        // "data sharing": d at time 8 is found from the other core's access at time 6, alone it is
        // a first touch.
        assert_eq!((both[7], alone[4]), (Some(1), None));
        // a again, at time 9: e, d, b and d are between, and d counts once (overlap). The paper's
        // text has this access at time 8 with CRD 2, which does not fit its own table.
        assert_eq!((both[8], alone[5]), (Some(3), Some(2)));
        // b: the other core's b at time 7 intercepts: only d and a between, alone a e d a.
        assert_eq!((both[9], alone[6]), (Some(2), Some(3)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn each_access_has_its_turn(lengths in prop::collection::vec(0u64..50, 0..6), seed: u64, length in 1u64..9) {
            for turns in [Turns::RoundRobin, Turns::Proportional, Turns::Random { seed }, Turns::Chunks { length }, Turns::Sequential, Turns::Cores { cores: 2, slice: length }] {
                let mut seen = vec![0u64; lengths.len()];
                let mut order = Vec::new();
                interleave(&lengths, turns, |t| { seen[t] += 1; order.push(t); });
                prop_assert_eq!(&seen, &lengths);
                if turns == Turns::Proportional {
                    // After a part of all accesses, each thread has had that part of its accesses,
                    // within one and a half accesses.
                    let total = order.len() as f64;
                    let mut had = vec![0.0f64; lengths.len()];
                    for (i, &t) in order.iter().enumerate() {
                        had[t] += 1.0;
                        let part = (i as f64 + 1.0) / total;
                        for (t, &n) in lengths.iter().enumerate() {
                            prop_assert!((had[t] - part * n as f64).abs() <= 1.0 + lengths.len() as f64 / 2.0);
                        }
                    }
                }
            }
        }
    }
}
