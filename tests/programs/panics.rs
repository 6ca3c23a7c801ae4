//! Rust: panics that are caught, trait objects, hash maps, slices, threads, bounds checks.
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::panic::{self, AssertUnwindSafe};

struct Guard<'a>(&'a std::cell::Cell<u64>, u64);
impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get().wrapping_mul(31) + self.1);
    }
}

trait Shape {
    fn area(&self) -> u64;
}
struct Square(u64);
struct Slab(u64, u64);
impl Shape for Square {
    fn area(&self) -> u64 {
        self.0 * self.0
    }
}
impl Shape for Slab {
    fn area(&self) -> u64 {
        self.0 * self.1
    }
}

#[inline(never)]
fn pick(values: &[u64], at: usize, log: &std::cell::Cell<u64>) -> u64 {
    let _guard = Guard(log, at as u64);
    assert!(at % 5 != 4, "a multiple");
    values[at * 3]
}

#[inline(never)]
fn fold(values: &[u64]) -> u64 {
    values.chunks(7).map(|c| c.iter().rev().fold(1u64, |a, v| a.wrapping_mul(33) ^ v)).fold(0, u64::wrapping_add)
}

fn main() {
    panic::set_hook(Box::new(|_| {}));
    let values: Vec<u64> = (0..60).map(|i: u64| i.wrapping_mul(0x9e37_79b9) >> 3).collect();
    let log = std::cell::Cell::new(1u64);
    let mut sum = 0u64;
    for at in 0..30 {
        match panic::catch_unwind(AssertUnwindSafe(|| pick(&values, at, &log))) {
            Ok(v) => sum = sum.wrapping_add(v),
            Err(_) => sum = sum.wrapping_mul(3),
        }
    }
    let shapes: Vec<Box<dyn Shape>> = (0..20).map(|i| if i % 3 == 0 { Box::new(Square(i)) as Box<dyn Shape> } else { Box::new(Slab(i, i + 1)) }).collect();
    let area: u64 = shapes.iter().map(|s| s.area()).sum();
    // Without the random keys of the default, so that every run probes the same buckets.
    let mut counts: HashMap<u64, u64, BuildHasherDefault<DefaultHasher>> = HashMap::default();
    for v in &values {
        *counts.entry(v % 17).or_default() += v;
    }
    let mut keys: Vec<_> = counts.into_iter().collect();
    keys.sort_unstable();
    let folded = keys.iter().fold(0u64, |a, (k, v)| a.wrapping_mul(31).wrapping_add(k ^ v));
    let joined: u64 = (0..3u64).map(|t| {
        let part: Vec<u64> = values.iter().skip(t as usize).step_by(3).copied().collect();
        std::thread::spawn(move || fold(&part)).join().unwrap_or(0)
    }).fold(0, u64::wrapping_add);
    println!("panics {:016x} {area} {folded:x} {joined:x} {:x}", sum, log.get());
}
