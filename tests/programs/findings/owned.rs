//! Boxes, slices and maps in Rust.
use std::time::{Duration, Instant};

struct Node {
    value: u64,
    next: Option<Box<Node>>,
    _rest: [u64; 6],
}

#[inline(never)]
fn walk(mut at: &Option<Box<Node>>) -> u64 {
    let mut sum = 0;
    while let Some(node) = at { // planted: boxes
        sum += node.value; // planted: boxes
        at = &node.next; // planted: boxes
    }
    sum
}

#[inline(never)]
fn find(keys: &[u64], key: u64) -> usize {
    keys.binary_search(&key).unwrap_or_else(|at| at) // planted: slice_search
}

#[inline(never)]
fn pull(ranks: &[f64], edges: &[u32]) -> f64 {
    let mut sum = 0.0;
    for &e in edges {
        sum += ranks[e as usize]; // planted: slice_gather
    }
    sum
}

#[inline(never)]
fn columns(grid: &[f64], side: usize) -> f64 {
    let mut sum = 0.0;
    for j in 0..side {
        for i in 0..side {
            sum += grid[i * side + j]; // planted: slice_columns
        }
    }
    sum
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn main() {
    let what = std::env::args().nth(1).unwrap_or_default();
    let seconds: f64 = std::env::args().nth(2).and_then(|s| s.parse().ok()).unwrap_or(0.5);
    let mut state = 88172645463325252u64;
    let mut run = |work: &mut dyn FnMut(&mut u64) -> u64| {
        let end = Instant::now() + Duration::from_secs_f64(seconds);
        let mut sum = 0u64;
        while Instant::now() < end {
            sum = sum.wrapping_add(work(&mut state));
        }
        std::hint::black_box(sum);
    };
    match what.as_str() {
        "boxes" | "small_boxes" => {
            let n: usize = if what == "boxes" { 1 << 20 } else { 100 };
            // Boxes are filled in a random order, so neighbors in the list are not neighbors in
            // memory.
            let mut order: Vec<usize> = (0..n).collect();
            let mut seed = 5u64;
            (1..n).rev().for_each(|i| order.swap(i, (random(&mut seed) % (i as u64 + 1)) as usize));
            let mut boxes: Vec<Option<Box<Node>>> = (0..n).map(|i| Some(Box::new(Node { value: i as u64, next: None, _rest: [0; 6] }))).collect();
            let mut head = None;
            for at in order {
                let mut node = boxes[at].take().unwrap();
                node.next = head;
                head = Some(node);
            }
            run(&mut |_| walk(&head));
            std::mem::forget(head);
        }
        "slice_search" => {
            let keys: Vec<u64> = (0..1 << 23).map(|i| i * 3).collect();
            run(&mut |s| (0..1000).map(|_| find(&keys, random(s) % (3 << 23)) as u64).sum());
        }
        "slice_gather" => {
            let ranks = vec![1.0; 1 << 23];
            let edges: Vec<u32> = (0..1 << 23).map(|i: u64| (i.wrapping_mul(0x9e3779b97f4a7c15) >> 41) as u32).collect();
            run(&mut |_| pull(&ranks, &edges) as u64);
        }
        "slice_columns" => {
            let grid = vec![1.0; 4000 * 4000];
            run(&mut |_| columns(&grid, 4000) as u64);
        }
        "small_slice" => {
            let ranks = vec![1.0; 1 << 10];
            let edges: Vec<u32> = (0..1 << 10).map(|i: u32| i * 7 % 1024).collect();
            run(&mut |_| pull(&ranks, &edges) as u64);
        }
        _ => std::process::exit(2),
    }
}
