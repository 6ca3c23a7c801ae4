//! Compares reuse distances with an independent implementation on traces of a million accesses: the
//! method of Bennett and Kruskal (1975), a tree of sums over the time of each block's last access.
//! It shares nothing with the engine: it has another table, no slots, and no compaction.

use mgz_models::reuse::{ReuseEngine, ReuseSink};
use std::collections::HashMap;

/// Binary indexed tree of counts over times.
struct Sums(Vec<i32>);

impl Sums {
    fn add(&mut self, at: usize, value: i32) {
        let mut at = at + 1;
        while at < self.0.len() {
            self.0[at] += value;
            at += at & at.wrapping_neg();
        }
    }

    /// Sum of the counts at times below `end`.
    fn below(&self, end: usize) -> i64 {
        let (mut at, mut sum) = (end, 0);
        while at > 0 {
            sum += i64::from(self.0[at]);
            at &= at - 1;
        }
        sum
    }
}

/// Distance and interval of each access, to one block each; `None` for first touches.
fn independent(blocks: &[u64]) -> Vec<Option<(u64, u64)>> {
    let mut sums = Sums(vec![0; blocks.len() + 1]);
    let mut last: HashMap<u64, usize> = HashMap::new();
    let mut live = 0i64;
    blocks
        .iter()
        .enumerate()
        .map(|(now, &block)| {
            let before = last.insert(block, now);
            let told = before.map(|p| {
                sums.add(p, -1);
                live -= 1;
                ((live - sums.below(p)) as u64, (now - p) as u64)
            });
            sums.add(now, 1);
            live += 1;
            told
        })
        .collect()
}

#[derive(Default)]
struct Log(Vec<Option<(u64, u64)>>);

impl ReuseSink for Log {
    fn first(&mut self, _: u64, _: u64, _: u32) {
        self.0.push(None);
    }
    fn reuse(&mut self, _: u64, _: u64, _: u32, distance: u64, interval: u64) {
        self.0.push(Some((distance, interval)));
    }
    fn done(&mut self, _: u64, _: u32) {}
}

#[test]
fn distances_of_a_million_accesses_are_those_of_an_independent_implementation() {
    let mut state = 11u64;
    let mut random = move |n: u64| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) % n
    };
    let n = 1_000_000u64;
    let mut engine = ReuseEngine::new(6);
    for kind in 0..4 {
        let blocks: Vec<u64> = (0..n)
            .map(|i| match kind {
                // Few blocks, many blocks, a loop among random accesses, and phases.
                0 => random(1000),
                1 => random(300_000),
                2 => {
                    let bits = random(18);
                    if i % 3 == 0 {
                        (1 << 30) | (i % 50_000)
                    } else {
                        random(1 << bits)
                    }
                }
                _ => (i / 200_000) << 20 | random(5000 << (i / 200_000)),
            })
            .collect();
        let address: Vec<u64> = blocks.iter().map(|b| b * 64 + 8).collect();
        let (size, tag) = (vec![8u32; blocks.len()], vec![0u32; blocks.len()]);
        let mut log = Log::default();
        engine.begin();
        for from in (0..blocks.len()).step_by(77_777) {
            let part = from..(from + 77_777).min(blocks.len());
            engine.run(
                &address[part.clone()],
                &size[part.clone()],
                &tag[part],
                &mut log,
            );
        }
        let expected = independent(&blocks);
        let differs = log.0.iter().zip(&expected).position(|(a, b)| a != b);
        assert_eq!(
            (log.0.len(), differs),
            (expected.len(), None),
            "kind {kind}"
        );
    }
}
