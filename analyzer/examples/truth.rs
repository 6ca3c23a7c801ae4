//! Counts a trace by plain definitions, without the engines: `truth TRACE [WINDOWS [PERIOD SEEDS]]`
//! prints JSON with the mean F, F_str and F_irr of windows of powers of two up to the whole run. By
//! function it prints the whole F, F_str and F_irr and, for each of WINDOWS (numbers separated by
//! commas), their means per window of that many loads of the run. `benches/run validate` compares
//! estimates from samples with it.
//!
//! `brief` counts addresses whose accesses all lie within 2^12, 2^13, … loads: samples that far
//! apart may miss them all.
//!
//! With PERIOD and SEEDS, it also prints the analyses of that many samplings of the trace: one
//! window (of the first size) at a random place of each period, as from a trigger that is
//! independent of the program.

use mgz_analyzer::data::chunk::Chunk;
use mgz_analyzer::data::group::Group;
use mgz_analyzer::data::rows::{RowColumns, Run};
use mgz_analyzer::engine::{Collect, EngineOptions, analyse};
use mgz_analyzer::estimate::row_estimates::Estimator;
use mgz_analyzer::input::source::ChunkSource;
use mgz_analyzer::input::{ColumnSet, Trace};
use mgz_analyzer::report::build;
use mgz_analyzer::util::fast_hash::Mixed;
use std::collections::HashMap;

/// All loads of a trace.
#[derive(Default)]
struct Loads {
    address: Vec<u64>,
    size: Vec<u32>,
    group: Vec<Group>,
    implied: Vec<u16>,
}

/// Some windows of them.
struct Sampled<'a> {
    loads: &'a Loads,
    starts: Vec<usize>,
    window: usize,
}

impl ChunkSource for Sampled<'_> {
    fn pieces(&self) -> usize {
        1
    }

    fn piece_rows(&self, _piece: usize) -> u64 {
        (self.starts.len() * self.window) as u64
    }

    fn read(&self, pieces: &[usize]) -> Vec<Result<Chunk, (String, u64)>> {
        fn pick<T: Copy>(from: &[T], starts: &[usize], window: usize) -> Vec<T> {
            starts
                .iter()
                .flat_map(|&s| from[s..s + window].iter().copied())
                .collect()
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
        pieces
            .iter()
            .map(|_| {
                Ok(Chunk {
                    loads: columns(),
                    runs: self.starts.iter().enumerate().map(run).collect(),
                    ..Chunk::default()
                })
            })
            .collect()
    }
}

/// The analysis of one sampling.
fn sampling(
    trace: &Trace,
    loads: &Loads,
    window: usize,
    period: usize,
    seed: u64,
) -> serde_json::Value {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = |n: u64| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) % n
    };
    let starts = (0..loads.address.len() / period)
        .map(|p| p * period + random((period - window + 1) as u64) as usize)
        .collect();
    let source = Sampled {
        loads,
        starts,
        window,
    };
    let outcome = analyse(
        &source,
        EngineOptions {
            samples: true,
            incidence: Collect::ForEstimates,
            ..EngineOptions::new(6)
        },
        &|_| (),
    );
    let mut manifest = trace.manifest.clone();
    manifest.mode = mgz_annotations_schema::TraceMode::Ring;
    manifest.totals.loads_executed =
        Some(loads.address.len() as u64 + loads.implied.iter().map(|&i| u64::from(i)).sum::<u64>());
    serde_json::to_value(build(
        &manifest,
        &trace.code,
        &outcome,
        64,
        Estimator::Recapture,
        Vec::new(),
    ))
    .expect("plain data")
}

/// F, F_str, F_irr.
type Three = [u64; 3];

#[derive(Default)]
struct Counter {
    /// Index plus one of the last and of the first access by address; 0 for none. For all loads and
    /// for those of classes 1 and 2.
    last: HashMap<u64, (Three, Three), Mixed>,
}

impl Counter {
    /// Index plus one of the previous access; 0 if there is none. For all loads, Strided and
    /// Irregular ones; `None` if the class does not apply.
    fn step(&mut self, address: u64, class: u32, now: u64) -> [Option<u64>; 3] {
        let (last, first) = self.last.entry(address).or_default();
        for kind in [0, class as usize] {
            if kind < 3 && first[kind] == 0 {
                first[kind] = now + 1;
            }
        }
        let mut before = [Some(last[0]), None, None];
        last[0] = now + 1;
        if class == 1 || class == 2 {
            before[class as usize] = Some(last[class as usize]);
            last[class as usize] = now + 1;
        }
        before
    }
}

impl Counter {
    /// Number of addresses whose accesses all lie within `span` loads.
    fn brief(&self, span: u64) -> Three {
        let mut brief = [0; 3];
        for (last, first) in self.last.values() {
            for kind in 0..3 {
                brief[kind] += u64::from(first[kind] > 0 && last[kind] - first[kind] < span);
            }
        }
        brief
    }
}

#[derive(Default)]
struct Function {
    counter: Counter,
    loads: u64,
    implied: u64,
    whole: Three,
    /// New addresses in windows of the run, by window size.
    windows: Vec<Three>,
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let folder = arguments.get(1).expect("usage: truth TRACE [WINDOWS]");
    let sizes: Vec<u64> = arguments.get(2).map_or(vec![1000], |w| {
        w.split(',')
            .map(|w| w.parse().expect("numbers of loads"))
            .collect()
    });
    let trace = Trace::open(std::path::Path::new(folder), true).expect("a trace");
    let source = trace.source(ColumnSet::default());
    let code = &trace.code;
    // New addresses by window size. Only whole windows count, so the last open windows are
    // subtracted at the end.
    let mut all = Counter::default();
    let mut whole = [0u64; 3];
    let mut sums = vec![[0u64; 3]; 64];
    let mut open = vec![[0u64; 3]; 64];
    let mut functions: HashMap<u32, Function, Mixed> = HashMap::default();
    let seeds: u64 = arguments
        .get(4)
        .map_or(0, |s| s.parse().expect("a number of samplings"));
    let mut loads = Loads::default();
    let mut n = 0u64;
    let mut thread = None;
    for piece in 0..source.pieces() {
        let chunk = source
            .read(&[piece])
            .pop()
            .expect("one piece")
            .unwrap_or_else(|e| panic!("{}", e.0));
        let rows = chunk.loads.rows();
        for run in &chunk.runs {
            assert!(
                thread.is_none_or(|t| t == (run.process, run.thread)),
                "windows are those of one thread"
            );
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
            for (kind, before) in all
                .step(address, group.class() as u32, n)
                .into_iter()
                .enumerate()
            {
                let Some(before) = before else { continue };
                whole[kind] += u64::from(before == 0);
                for (level, open) in open.iter_mut().enumerate() {
                    if before == 0 || (before - 1) >> level != n >> level {
                        open[kind] += 1;
                    } else {
                        break;
                    }
                }
            }
            let entry = functions
                .entry(code.pieces[group.piece() as usize].function)
                .or_default();
            entry.loads += 1;
            entry.implied += u64::from(rows.implied[i]);
            entry.windows.resize(sizes.len(), [0; 3]);
            for (kind, before) in entry
                .counter
                .step(address, group.class() as u32, n)
                .into_iter()
                .enumerate()
            {
                let Some(before) = before else { continue };
                entry.whole[kind] += u64::from(before == 0);
                for (&size, new) in sizes.iter().zip(&mut entry.windows) {
                    new[kind] += u64::from(before == 0 || (before - 1) / size != n / size);
                }
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
    // For each span, the addresses whose accesses all lie within it are counted.
    let spans: Vec<u64> = (12..24).map(|level| 1 << level).collect();
    let three = |of: Three, per: f64| serde_json::json!({"F": of[0] as f64 / per, "F_str": of[1] as f64 / per, "F_irr": of[2] as f64 / per});
    let windows: Vec<serde_json::Value> = (4..64)
        .map(|level| (level, n >> level))
        .filter(|&(_, count)| count > 0)
        .map(|(level, count)| {
            let mut row = three(sums[level], count as f64);
            row["W"] = (1u64 << level).into();
            row
        })
        .collect();
    let implied: u64 = functions.values().map(|f| f.implied).sum();
    let functions: Vec<serde_json::Value> = functions
        .into_iter()
        .map(|(number, f)| {
            let mut row = three(f.whole, 1.0);
            row["function"] = code.functions[number as usize].function.as_str().into();
            row["A"] = f.loads.into();
            row["A_const"] = f.implied.into();
            row["brief"] = spans
                .iter()
                .map(|&span| three(f.counter.brief(span), 1.0))
                .collect();
            let by_size = sizes
                .iter()
                .zip(&f.windows)
                .map(|(size, &new)| (size.to_string(), three(new, n as f64 / *size as f64)));
            row["per_window"] = serde_json::Value::Object(by_size.collect());
            row
        })
        .collect();
    let period: usize = arguments
        .get(3)
        .map_or(20_000, |p| p.parse().expect("a number of loads"));
    let samplings: Vec<serde_json::Value> = (1..=seeds)
        .map(|seed| sampling(&trace, &loads, sizes[0] as usize, period, seed))
        .collect();
    let mut document = three(whole, 1.0);
    document["A"] = n.into();
    document["A_const"] = implied.into();
    document["brief"] = spans
        .iter()
        .map(|&span| three(all.brief(span), 1.0))
        .collect();
    document["spans"] = spans.into();
    document["windows"] = windows.into();
    document["functions"] = functions.into();
    document["samplings"] = samplings.into();
    println!("{document}");
}
