//! Pairs in Rust: boxes, vectors of structures, columns.

use std::env;
use std::hint::black_box;

const COUNT: usize = 1 << 19;
const SIDE: usize = 2048;

/// Random numbers by xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 as u128 * n as u128) >> 64) as usize
    }

    fn shuffled(&mut self, n: usize) -> Vec<u32> {
        let mut order: Vec<u32> = (0..n as u32).collect();
        for i in (1..n).rev() {
            order.swap(i, self.below(i + 1));
        }
        order
    }
}

/// Boxes in random order, or in the order of memory.
#[inline(never)]
fn sum_boxes(boxes: &[Box<[u64; 6]>]) -> u64 {
    boxes.iter().map(|b| b[0]).sum()
}

fn boxes(after: bool, rounds: u64) -> f64 {
    let mut boxes: Vec<Box<[u64; 6]>> = (0..COUNT as u64).map(|i| Box::new([i % 9; 6])).collect();
    let mut random = Random(99);
    for i in (1..COUNT).rev() {
        boxes.swap(i, random.below(i + 1));
    }
    if after {
        boxes.sort_by_key(|b| b.as_ptr() as usize);
    }
    (0..rounds).map(|_| sum_boxes(black_box(&boxes))).sum::<u64>() as f64
}

#[derive(Clone, Copy, Default)]
struct Body {
    position: [f64; 3],
    velocity: [f64; 3],
    mass: f64,
    charge: f64,
}

/// One field of structures, or an array of it.
#[inline(never)]
fn energies(bodies: &[Body], order: &[u32]) -> f64 {
    order.iter().map(|&i| bodies[i as usize].mass).sum()
}

#[inline(never)]
fn energies_split(masses: &[f64], order: &[u32]) -> f64 {
    order.iter().map(|&i| masses[i as usize]).sum()
}

fn bodies(after: bool, rounds: u64) -> f64 {
    let order = Random(77).shuffled(COUNT);
    let of = |i: usize| Body {
        mass: (i % 10) as f64,
        charge: 1.0,
        ..Body::default()
    };
    let bodies: Vec<Body> = (0..COUNT).map(of).collect();
    let masses: Vec<f64> = bodies.iter().map(|b| b.mass).collect();
    black_box((bodies[5].position, bodies[5].velocity, bodies[5].charge));
    let one = |_| match after {
        true => energies_split(black_box(&masses), &order),
        false => energies(black_box(&bodies), &order),
    };
    (0..rounds).map(one).sum()
}

/// Keys and values in two arrays at one index, or in one array of pairs.
#[inline(never)]
fn look_up(keys: &[u64], values: &[u64], order: &[u32]) -> u64 {
    order.iter().map(|&i| keys[i as usize] ^ values[i as usize]).sum()
}

#[inline(never)]
fn look_up_pairs(pairs: &[(u64, u64)], order: &[u32]) -> u64 {
    order.iter().map(|&i| pairs[i as usize].0 ^ pairs[i as usize].1).sum()
}

fn entries(after: bool, rounds: u64) -> f64 {
    let order = Random(55).shuffled(4 * COUNT);
    let keys: Vec<u64> = (0..4 * COUNT as u64).collect();
    let values: Vec<u64> = keys.iter().map(|k| k % 16).collect();
    let pairs: Vec<(u64, u64)> = keys.iter().copied().zip(values.iter().copied()).collect();
    let one = |_| match after {
        true => look_up_pairs(black_box(&pairs), &order),
        false => look_up(black_box(&keys), &values, &order),
    };
    (0..rounds).map(one).sum::<u64>() as f64
}

/// Columns or rows of a grid.
#[inline(never)]
fn columns(grid: &[f32]) -> f64 {
    let mut sum = 0.0;
    for j in 0..SIDE {
        for i in 0..SIDE {
            sum += f64::from(grid[i * SIDE + j]);
        }
    }
    sum
}

#[inline(never)]
fn rows(grid: &[f32]) -> f64 {
    let mut sum = 0.0;
    for i in 0..SIDE {
        for j in 0..SIDE {
            sum += f64::from(grid[i * SIDE + j]);
        }
    }
    sum
}

fn grid(after: bool, rounds: u64) -> f64 {
    let grid: Vec<f32> = (0..SIDE * SIDE).map(|i| (i % 4) as f32).collect();
    let one = |_| match after {
        true => rows(black_box(&grid)),
        false => columns(black_box(&grid)),
    };
    (0..rounds).map(one).sum()
}

/// Breadth-first search over a graph whose vertices are numbered at random, or in the order of
/// their visits.
#[inline(never)]
fn search(first: &[u32], edges: &[u32], visited: &mut [u32], mark: u32) -> u64 {
    let (mut queue, mut sum) = (vec![0u32], 0);
    visited[0] = mark;
    let mut at = 0;
    while at < queue.len() {
        let v = queue[at] as usize;
        at += 1;
        for &to in &edges[first[v] as usize..first[v + 1] as usize] {
            if visited[to as usize] != mark {
                visited[to as usize] = mark;
                queue.push(to);
            }
        }
        sum += 1;
    }
    sum
}

fn graph(after: bool, rounds: u64) -> f64 {
    const GRID: usize = 1024;
    let names: Vec<u32> = match after {
        true => (0..(GRID * GRID) as u32).collect(),
        false => Random(5).shuffled(GRID * GRID),
    };
    let mut of_name = vec![0u32; GRID * GRID];
    for (place, &name) in names.iter().enumerate() {
        of_name[name as usize] = place as u32;
    }
    let (mut first, mut edges) = (vec![0u32], Vec::new());
    for &place in &of_name {
        let (x, y) = (place as usize % GRID, place as usize / GRID);
        let mut near = |x: usize, y: usize| {
            if x < GRID && y < GRID {
                edges.push(names[y * GRID + x]);
            }
        };
        near(x + 1, y);
        near(x.wrapping_sub(1), y);
        near(x, y + 1);
        near(x, y.wrapping_sub(1));
        first.push(edges.len() as u32);
    }
    let mut visited = vec![0u32; GRID * GRID];
    (1..=rounds as u32).map(|mark| search(&first, &edges, &mut visited, mark)).sum::<u64>() as f64
}

type Pair = (&'static str, fn(bool, u64) -> f64, u64);

const PAIRS: [Pair; 5] = [
    ("boxes", boxes, 200),
    ("bodies", bodies, 300),
    ("grid", grid, 60),
    ("entries", entries, 50),
    ("graph", graph, 15),
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
