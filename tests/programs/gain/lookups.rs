//! Pairs in Rust: look-ups in batches, records, narrow columns, false sharing.

use std::env;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

const COUNT: usize = 1 << 20;

/// Random numbers by xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 as u128 * n as u128) >> 64) as usize
    }
}

/// Terms that documents look up, in the order of the text or in batches by place in the table.
#[inline(never)]
fn score_terms(weights: &[f32], terms: &[u32]) -> f64 {
    let mut sum = 0.0;
    for &term in terms {
        sum += f64::from(weights[term as usize]);
    }
    sum
}

fn terms(after: bool, rounds: u64) -> f64 {
    let mut random = Random(31);
    let weights: Vec<f32> = (0..8 * COUNT).map(|i| (i % 16) as f32).collect();
    let mut terms: Vec<u32> = (0..COUNT).map(|_| random.below(8 * COUNT) as u32).collect();
    if after {
        terms.sort_by_key(|term| term >> 14);
    }
    (0..rounds).map(|_| score_terms(black_box(&weights), &terms)).sum()
}

#[derive(Clone, Copy)]
struct Trade {
    price: f64,
    volume: f64,
    buyer: u64,
    seller: u64,
    time: u64,
    venue: [u64; 3],
}

/// Prices and volumes of trades, or of columns.
#[inline(never)]
fn turnover(trades: &[Trade]) -> f64 {
    trades.iter().map(|t| t.price * t.volume).sum()
}

#[inline(never)]
fn turnover_of_columns(prices: &[f64], volumes: &[f64]) -> f64 {
    prices.iter().zip(volumes).map(|(p, v)| p * v).sum()
}

fn trades(after: bool, rounds: u64) -> f64 {
    let of = |i: usize| Trade {
        price: (i % 10) as f64,
        volume: (i % 7) as f64,
        buyer: 1,
        seller: 2,
        time: i as u64,
        venue: [0; 3],
    };
    let trades: Vec<Trade> = (0..COUNT / 2).map(of).collect();
    let prices: Vec<f64> = trades.iter().map(|t| t.price).collect();
    let volumes: Vec<f64> = trades.iter().map(|t| t.volume).collect();
    let last = trades[5];
    black_box((last.buyer, last.seller, last.time, last.venue));
    let one = |_| match after {
        true => turnover_of_columns(black_box(&prices), &volumes),
        false => turnover(black_box(&trades)),
    };
    (0..rounds).map(one).sum()
}

/// Components of vectors at random indices in three arrays, or side by side.
#[inline(never)]
fn lengths(x: &[f32], y: &[f32], z: &[f32], order: &[u32]) -> f64 {
    let mut sum = 0.0;
    for &i in order {
        let i = i as usize;
        sum += f64::from(x[i] * x[i] + y[i] * y[i] + z[i] * z[i]);
    }
    sum
}

#[inline(never)]
fn lengths_of_points(points: &[[f32; 4]], order: &[u32]) -> f64 {
    let mut sum = 0.0;
    for &i in order {
        let [x, y, z, _] = points[i as usize];
        sum += f64::from(x * x + y * y + z * z);
    }
    sum
}

fn points(after: bool, rounds: u64) -> f64 {
    let mut random = Random(47);
    let order: Vec<u32> = (0..COUNT).map(|_| random.below(4 * COUNT) as u32).collect();
    let x: Vec<f32> = (0..4 * COUNT).map(|i| (i % 5) as f32).collect();
    let (y, z) = (x.clone(), x.clone());
    let points: Vec<[f32; 4]> = x.iter().map(|&x| [x, x, x, 0.0]).collect();
    let one = |_| match after {
        true => lengths_of_points(black_box(&points), &order),
        false => lengths(black_box(&x), &y, &z, &order),
    };
    (0..rounds).map(one).sum()
}

#[repr(align(128))]
struct Alone(AtomicU64);

/// Counters of two workers in one line, or a line each.
fn workers(after: bool, rounds: u64) -> f64 {
    let together = [AtomicU64::new(0), AtomicU64::new(0)];
    let apart = [Alone(AtomicU64::new(0)), Alone(AtomicU64::new(0))];
    thread::scope(|scope| {
        for worker in 0..2 {
            let counter = if after { &apart[worker].0 } else { &together[worker] };
            scope.spawn(move || {
                for _ in 0..rounds {
                    counter.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let all = together.iter().chain(apart.iter().map(|a| &a.0));
    all.map(|c| c.load(Ordering::Relaxed)).sum::<u64>() as f64
}

type Pair = (&'static str, fn(bool, u64) -> f64, u64);

const PAIRS: [Pair; 4] = [
    ("terms", terms, 250),
    ("trades", trades, 1000),
    ("points", points, 100),
    ("workers", workers, 100_000_000),
];

fn main() {
    let arguments: Vec<String> = env::args().collect();
    let found = PAIRS.iter().find(|p| arguments.len() > 2 && p.0 == arguments[1]);
    let Some(&(_, run, rounds)) = found else {
        std::process::exit(2);
    };
    let rounds = arguments.get(3).and_then(|r| r.parse().ok()).unwrap_or(rounds);
    println!("{:e}", run(arguments[2] == "after", rounds));
}
