//! Accesses per second of the stages, on synthetic streams: `cargo run --release --example
//! bench_reuse -- [ACCESSES [STREAM [STAGE]]]` selects streams and stages by the begin of their
//! names. Each line is the best of five runs on one core, in CPU time, so that other load on the
//! machine disturbs less. Memory of one run is reused by the next: the cost of new memory depends
//! on the machine, and belongs to whole analyses.

use mgz_analyzer::data::group::Group;
use mgz_analyzer::data::rows::ColumnSlices;
use mgz_analyzer::reuse::{ReuseEngine, ReuseSink};
use mgz_analyzer::stages::footprint::Footprints;
use mgz_analyzer::stages::windows::WindowEngine;

/// Counts in exact bins below 64 Ki and log bins above.
struct Histogram {
    exact: Vec<u64>,
    logarithmic: [u64; 65],
    firsts: u64,
}

impl ReuseSink for Histogram {
    #[inline(always)]
    fn first(&mut self, _row: u64, _block: u64, _tag: u32) {
        self.firsts += 1;
    }
    #[inline(always)]
    fn reuse(&mut self, _row: u64, _block: u64, _tag: u32, distance: u64, _interval: u64) {
        match self.exact.get_mut(distance as usize) {
            Some(bin) => *bin += 1,
            None => self.logarithmic[64 - distance.leading_zeros() as usize] += 1,
        }
    }
    #[inline(always)]
    fn touch(
        &mut self,
        _row: u64,
        _block: u64,
        _tag: u32,
        first: bool,
        distance: u64,
        _interval: u64,
    ) {
        self.firsts += u64::from(first);
        let distance = if first { 0 } else { distance };
        match self.exact.get_mut(distance as usize) {
            Some(bin) => *bin += u64::from(!first),
            None => self.logarithmic[64 - distance.leading_zeros() as usize] += 1,
        }
    }
    #[inline(always)]
    fn done(&mut self, _row: u64, _tag: u32) {}
}

/// CPU time of this thread, seconds.
fn cpu_time() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call writes one `timespec`, which it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn best(accesses: usize, mut run: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let start = cpu_time();
        run();
        best = best.min(cpu_time() - start);
    }
    accesses as f64 / best / 1e6
}

fn main() {
    // As mgz-analyze does: otherwise each run would return its memory to the system. SAFETY:
    // `mallopt` takes plain numbers, and no other thread runs yet.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 32 << 20);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 1 << 30);
    }
    let n: usize = std::env::args()
        .nth(1)
        .and_then(|a| a.parse().ok())
        .unwrap_or(10_000_000);
    let mut state = 1u64;
    let mut random = move || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        state >> 33
    };
    let blocks = 1u64 << 20;
    let uniform = |r: u64| r % blocks;
    let zipf = |r: u64| {
        ((blocks as f64).powf(r as f64 / (1u64 << 31) as f64) as u64).wrapping_mul(0x9e37_79b9)
            % blocks
    };
    let streams: Vec<(&str, Vec<u64>)> = vec![
        (
            "windows of 1000, Zipf",
            (0..n).map(|_| zipf(random())).collect(),
        ),
        (
            "Zipf, 1 Mi blocks",
            (0..n).map(|_| zipf(random())).collect(),
        ),
        (
            "cyclic, 1 Mi blocks",
            (0..n).map(|i| i as u64 % blocks).collect(),
        ),
        (
            "random, 1 Mi blocks",
            (0..n).map(|_| uniform(random())).collect(),
        ),
        (
            "random, 10 Mi blocks",
            (0..n).map(|_| random() % (10 << 20)).collect(),
        ),
    ];
    let chosen = |at: usize, name: &str| {
        std::env::args()
            .nth(at)
            .is_none_or(|a| name.starts_with(&a))
    };
    let measured = |stage: &str, run: &mut dyn FnMut()| {
        if chosen(3, stage) {
            best(n, run)
        } else {
            f64::NAN
        }
    };
    println!(
        "{:<24}{:>12}{:>12}{:>12}   M accesses/s",
        "", "D", "windows", "footprint"
    );
    for (name, stream) in streams.iter().filter(|s| chosen(2, s.0)) {
        let address: Vec<u64> = stream.iter().map(|b| b * 64 + 0x7f00_0000_0000).collect();
        let (size, group, implied) = (vec![8u32; n], vec![Group::from_raw(5); n], vec![0u16; n]);
        let window = if name.starts_with("windows") { 1000 } else { n };
        let rows = ColumnSlices {
            address: &address,
            size: &size,
            group: &group,
            implied: &implied,
        };
        let mut engine = ReuseEngine::new(6);
        let mut histogram = Histogram {
            exact: vec![0; 1 << 16],
            logarithmic: [0; 65],
            firsts: 0,
        };
        let distance = measured("D", &mut || {
            for from in (0..n).step_by(window) {
                let to = (from + window).min(n);
                engine.begin();
                engine.run(
                    &address[from..to],
                    &size[from..to],
                    Group::raw_slice(&group[from..to]),
                    &mut histogram,
                );
            }
        });
        let mut windows = WindowEngine::new();
        let by_size = measured("windows", &mut || {
            for from in (0..n).step_by(window) {
                windows.begin(None);
                windows.run(&rows.slice(from..from + window));
            }
        });
        let footprint = measured("footprint", &mut || Footprints::default().add(&rows, 0));
        println!("{name:<24}{distance:>12.1}{by_size:>12.1}{footprint:>12.1}");
        let counted = if distance.is_nan() { 0 } else { n as u64 * 5 };
        assert_eq!(
            histogram.exact.iter().sum::<u64>()
                + histogram.logarithmic.iter().sum::<u64>()
                + histogram.firsts,
            counted
        );
    }
}
