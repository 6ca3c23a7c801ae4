//! Speed of the scale tree: `bench_scale_tree [LARGEST [SMALLEST [BOUNDS [PARTS]]]]`, accesses per
//! second of CPU time; lists are separated by commas, parts are tree, approx, exact and conversion.
//!
//! As in Zhong et al., section 4.1: N blocks are traversed twice with reuse distance N/100, and the
//! last access time is known beforehand ("the hashing step is bypassed"). Then whole engines,
//! including their tables, are measured on the same streams: the approximate one and the exact one.

mod shared;

use mgz_models::histogram::{Fine, Scale, TRACE_BITS};
use mgz_models::reuse::approx::ApproxEngine;
use mgz_models::reuse::scale_tree::{Bound, ScaleTree};
use mgz_models::reuse::{ReuseEngine, ReuseSink};
use mgz_models::sampling::time_to_stack::{TimeBarSpread, convert};
use shared::{Instant, stream};

#[derive(Default)]
struct Sum(u64);

impl ReuseSink for Sum {
    fn first(&mut self, _: u64, _: u64, _: u32) {}
    fn reuse(&mut self, _: u64, _: u64, _: u32, distance: u64, _: u64) {
        self.0 = self.0.wrapping_add(distance);
    }
    fn done(&mut self, _: u64, _: u32) {}
}

fn main() {
    let number = |at: usize, or: u64| {
        std::env::args()
            .nth(at)
            .and_then(|a| a.parse::<f64>().ok())
            .map_or(or, |v| v as u64)
    };
    let listed = |at: usize, what: &str| {
        std::env::args()
            .nth(at)
            .is_none_or(|list| list.split(',').any(|w| w == what))
    };
    let largest = number(1, 100_000_000);
    println!(
        "{:>12} {:>7} {:>10} {:>8} {:>10} {:>10} {:>12} {:>12}",
        "blocks", "bound", "tree M/s", "nodes", "accuracy", "worst", "engine M/s", "exact M/s"
    );
    let mut n = number(2, 100_000);
    while n <= largest {
        for (name, bound) in [
            ("99%", Bound::Relative(0.01)),
            ("99.9%", Bound::Relative(0.001)),
            (
                "b=2048",
                Bound::Absolute {
                    error: 2048,
                    exact: 0,
                },
            ),
        ] {
            if !listed(3, name) {
                continue;
            }
            let step = n / 100;
            let rounds = (20_000_000 / (2 * n)).max(1);
            let mut tree = ScaleTree::new(bound, 1);
            let (mut sum, mut told) = (0u64, None);
            let clock = Instant::now();
            for _ in 0..if listed(4, "tree") { rounds } else { 0 } {
                tree.begin(1);
                told = Some(tree_only(&mut tree, n, step));
            }
            let alone = if listed(4, "tree") {
                (rounds * 2 * n) as f64 / clock.seconds() / 1e6
            } else {
                f64::NAN
            };
            let (sizes, tags) = (vec![8u32; 1 << 16], vec![0u32; 1 << 16]);
            let mut sink = Sum::default();
            // Short streams are repeated, as for samples of a trace.
            let mut engine = ApproxEngine::new(6, bound);
            let approx = engine_speed(n, listed(4, "approx") && fits(n, 14), rounds, |a| {
                if a.is_empty() {
                    return engine.begin();
                }
                engine.run(a, &sizes, &tags, &mut sink);
            });
            drop(engine);
            let mut engine = ReuseEngine::new(6);
            let exact = engine_speed(n, listed(4, "exact") && fits(n, 72), rounds, |a| {
                if a.is_empty() {
                    return engine.begin();
                }
                engine.run(a, &sizes, &tags, &mut sink);
            });
            drop(engine);
            sum = sum.wrapping_add(sink.0);
            // All distances are equal. An estimate above them would break the guarantee.
            let truth = (step - 1) as f64;
            let [mean, worst] = told.map_or([f64::NAN; 2], |t: Told| {
                assert!(
                    t.greatest as f64 <= truth,
                    "{} is more than {truth}",
                    t.greatest
                );
                [
                    t.sum as f64 / (n / step * step) as f64 / truth,
                    t.least as f64 / truth,
                ]
                .map(|share| 100.0 * share)
            });
            println!(
                "{n:>12} {name:>7} {alone:>10.1} {:>8} {mean:>9.3}% {worst:>9.3}% {approx:>12.1} {exact:>12.1}   {:x}",
                tree.most_nodes(),
                sum & 15
            );
        }
        n *= 10;
    }
    if listed(4, "conversion") {
        conversion();
    }
}

/// Time to stack distance, over a range of 2^40.
fn conversion() {
    let mut fine = Fine::new(TRACE_BITS);
    let mut x = 1u64;
    for i in 0..5_000_000u64 {
        x = x
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        fine.add(((x >> 24) >> (i % 40)).max(1));
    }
    for (name, bars) in [
        ("all bins", fine.bins().collect::<Vec<_>>()),
        ("log bins", fine.cut(&Scale::Log)),
    ] {
        let clock = Instant::now();
        let got = convert(&bars, 1e5, 1e9, TimeBarSpread::Binomial);
        println!(
            "time to stack, {name}: {} bars up to 2^40, {:.3} s, {} bars out",
            bars.len(),
            clock.seconds(),
            got.len()
        );
    }
}

/// Distances returned by the tree.
#[derive(Clone, Copy)]
struct Told {
    sum: u64,
    least: u64,
    greatest: u64,
}

fn tree_only(tree: &mut ScaleTree, n: u64, step: u64) -> Told {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2")
        && std::arch::is_x86_feature_detected!("bmi2")
        && std::arch::is_x86_feature_detected!("lzcnt")
    {
        // SAFETY: the CPU supports the features, as was just checked.
        return unsafe { tree_modern(tree, n, step) };
    }
    tree_any(tree, n, step)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn tree_modern(tree: &mut ScaleTree, n: u64, step: u64) -> Told {
    tree_any(tree, n, step)
}

#[inline(always)]
fn tree_any(tree: &mut ScaleTree, n: u64, step: u64) -> Told {
    let mut told = Told {
        sum: 0,
        least: u64::MAX,
        greatest: 0,
    };
    let mut now = 1;
    for _ in 0..n / step {
        for _ in 0..step {
            tree.push(1);
            now += 1;
        }
        for _ in 0..step {
            let distance = tree.take(now - step);
            told.sum = told.sum.wrapping_add(distance);
            told.least = told.least.min(distance);
            told.greatest = told.greatest.max(distance);
            tree.push(1);
            now += 1;
        }
    }
    told
}

/// True if this much memory is free.
fn fits(n: u64, bytes: u64) -> bool {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free = text
        .lines()
        .find_map(|l| l.strip_prefix("MemAvailable:"))
        .and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok());
    free.is_none_or(|kib| n * bytes < kib * 1024)
}

/// Million accesses per second. An empty slice starts a new engine. NaN if memory does not suffice.
fn engine_speed(n: u64, fits: bool, rounds: u64, mut run: impl FnMut(&[u64])) -> f64 {
    if !fits {
        return f64::NAN;
    }
    let mut busy = 0.0;
    let mut buffer = Vec::with_capacity(1 << 16);
    for _ in 0..rounds {
        let clock = Instant::now();
        run(&[]);
        busy += clock.seconds();
        let mut blocks = stream(n);
        loop {
            buffer.clear();
            buffer.extend(blocks.by_ref().take(1 << 16).map(|b| b * 64));
            if buffer.is_empty() {
                break;
            }
            let clock = Instant::now();
            run(&buffer);
            busy += clock.seconds();
        }
    }
    (rounds * 2 * n) as f64 / busy / 1e6
}
