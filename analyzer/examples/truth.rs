//! Counts a trace by plain definitions, without the engines: `truth TRACE [WINDOW [PERIOD SEEDS]]` prints JSON with the mean F, F_str and F_irr of
//! windows of powers of two up to the whole run, and by function the whole F, F_str and F_irr and, with WINDOW, their means per window of so many loads of
//! the run. For `scripts/validate`: what estimates from samples are compared with comes from here.
//!
//! With PERIOD and SEEDS also the analyses of that many samplings of the trace: one window at a random place of each period, as a trigger that
//! knows nothing of the program gives them.

use mgz_analyzer::engine::{Options, Source, analyse};
use mgz_analyzer::hats::Estimator;
use mgz_analyzer::input::{ColumnSet, Trace};
use mgz_analyzer::report::build;
use mgz_analyzer::rows::{Chunk, RowColumns, Run};
use std::collections::HashMap;

/// All loads of a trace.
#[derive(Default)]
struct Loads {
    address: Vec<u64>,
    size: Vec<u32>,
    group: Vec<u32>,
    implied: Vec<u16>,
}

/// Some windows of them.
struct Sampled<'a> {
    loads: &'a Loads,
    starts: Vec<usize>,
    window: usize,
}

impl Source for Sampled<'_> {
    fn pieces(&self) -> usize {
        1
    }

    fn piece_rows(&self, _piece: usize) -> u64 {
        (self.starts.len() * self.window) as u64
    }

    fn read(&self, pieces: &[usize]) -> Vec<Result<Chunk, (String, u64)>> {
        fn pick<T: Copy>(from: &[T], starts: &[usize], window: usize) -> Vec<T> {
            starts.iter().flat_map(|&s| from[s..s + window].iter().copied()).collect()
        }
        let columns = || RowColumns {
            address: pick(&self.loads.address, &self.starts, self.window).into(),
            size: pick(&self.loads.size, &self.starts, self.window).into(),
            group: pick(&self.loads.group, &self.starts, self.window),
            implied: pick(&self.loads.implied, &self.starts, self.window).into(),
            site: Vec::new().into(),
        };
        let run = |(sample, &start): (usize, &usize)| Run {
            process: 1,
            thread: 1,
            sample: sample as u32,
            bucket: 0,
                column: 0,
            loads: sample * self.window..(sample + 1) * self.window,
            stores: 0..0,
            first_seq: start as u64,
            last_seq: (start + self.window) as u64,
            first_time: start as u64,
            last_time: (start + self.window) as u64,
        };
        pieces.iter().map(|_| Ok(Chunk { loads: columns(), runs: self.starts.iter().enumerate().map(run).collect(), ..Chunk::default() })).collect()
    }
}

/// The analysis of one sampling.
fn sampling(trace: &Trace, loads: &Loads, window: usize, period: usize, seed: u64) -> serde_json::Value {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = |n: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % n
    };
    let starts = (0..loads.address.len() / period).map(|p| p * period + random((period - window + 1) as u64) as usize).collect();
    let source = Sampled { loads, starts, window };
    let outcome = analyse(&source, Options { samples: true, incidence: true, ..Options::new(6) }, &|_| ());
    let mut manifest = trace.manifest.clone();
    manifest.mode = "ring".into();
    manifest.totals.loads_executed = Some(loads.address.len() as u64 + loads.implied.iter().map(|&i| u64::from(i)).sum::<u64>());
    serde_json::to_value(build(&manifest, &trace.code, &outcome, 64, Estimator::Recapture, Vec::new())).expect("plain data")
}

/// F, F_str, F_irr.
type Three = [f64; 3];

#[derive(Default)]
struct Counter {
    /// Last access by address, of all loads and of those of class 1 and 2.
    last: HashMap<(u32, u64), [u64; 3]>,
}

impl Counter {
    /// Number of the access before, plus one; 0 if there is none. By all, Strided, Irregular; those that do not apply are `None`.
    fn step(&mut self, space: u32, address: u64, class: u32, now: u64) -> [Option<u64>; 3] {
        let last = self.last.entry((space, address)).or_default();
        let mut before = [Some(last[0]), None, None];
        last[0] = now + 1;
        if class == 1 || class == 2 {
            before[class as usize] = Some(last[class as usize]);
            last[class as usize] = now + 1;
        }
        before
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let folder = arguments.get(1).expect("usage: truth TRACE [WINDOW]");
    let window: u64 = arguments.get(2).map_or(1000, |w| w.parse().expect("a number of loads"));
    let trace = Trace::open(std::path::Path::new(folder), true).expect("a trace");
    let source = trace.source(ColumnSet::default());
    let code = &trace.code;
    // New addresses by window size; the window sizes' counts are for whole windows only, so the last open windows are taken off at the end.
    let mut whole = Counter::default();
    let mut by_function: HashMap<u32, Counter> = HashMap::new();
    let mut sums = vec![[0u64; 3]; 64];
    let mut open = vec![[0u64; 3]; 64];
    let mut functions: HashMap<u32, (u64, [u64; 3], [u64; 3], u64)> = HashMap::new();
    let seeds: u64 = arguments.get(4).map_or(0, |s| s.parse().expect("a number of samplings"));
    let mut loads = Loads::default();
    let mut n = 0u64;
    let mut thread = None;
    for piece in 0..source.pieces() {
        let chunk = source.read(&[piece]).pop().expect("one piece").unwrap_or_else(|e| panic!("{}", e.0));
        let rows = chunk.loads.rows();
        for run in &chunk.runs {
            assert!(thread.is_none_or(|t| t == (run.process, run.thread)), "windows are those of one thread");
            thread = Some((run.process, run.thread));
        }
        if seeds > 0 {
            loads.address.extend(rows.address);
            loads.size.extend(rows.size);
            loads.group.extend(rows.group);
            loads.implied.extend(rows.implied);
        }
        for i in 0..rows.len() {
            let (address, group) = (rows.address[i], rows.group[i]);
            for (kind, before) in whole.step(0, address, group & 3, n).into_iter().enumerate() {
                let Some(before) = before else { continue };
                for level in 0..64 {
                    if before == 0 || (before - 1) >> level != n >> level {
                        open[level as usize][kind] += 1;
                    } else {
                        break;
                    }
                }
            }
            let function = code.pieces[group as usize / 4].function;
            let entry = functions.entry(function).or_default();
            entry.0 += 1;
            for (kind, before) in by_function.entry(function).or_default().step(0, address, group & 3, n).into_iter().enumerate() {
                let Some(before) = before else { continue };
                entry.1[kind] += u64::from(before == 0);
                entry.2[kind] += u64::from(before == 0 || (before - 1) / window != n / window);
            }
            n += 1;
            for level in 0..64u32 {
                if n.trailing_zeros() < level {
                    break;
                }
                for kind in 0..3 {
                    sums[level as usize][kind] += std::mem::take(&mut open[level as usize][kind]);
                }
            }
        }
    }
    let windows: Vec<serde_json::Value> = (4..64)
        .map(|level| (level, n >> level))
        .filter(|&(_, count)| count > 0)
        .map(|(level, count)| {
            let mean: Three = sums[level].map(|s| s as f64 / count as f64);
            serde_json::json!({"W": 1u64 << level, "F": mean[0], "F_str": mean[1], "F_irr": mean[2]})
        })
        .collect();
    let functions: Vec<serde_json::Value> = functions
        .into_iter()
        .map(|(f, (loads, all, per_window, _))| {
            serde_json::json!({"function": code.functions[f as usize].function, "A": loads, "F": all[0], "F_str": all[1], "F_irr": all[2],
                "window_F": per_window[0], "window_F_str": per_window[1], "window_F_irr": per_window[2]})
        })
        .collect();
    let period: usize = arguments.get(3).map_or(20_000, |p| p.parse().expect("a number of loads"));
    let samplings: Vec<serde_json::Value> = (1..=seeds).map(|seed| sampling(&trace, &loads, window as usize, period, seed)).collect();
    println!("{}", serde_json::json!({"A": n, "F": whole.last.len(), "windows": windows, "functions": functions, "samplings": samplings}));
}
