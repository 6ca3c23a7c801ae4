//! Simulates caches over a full trace: `miss_truth TRACE SIZE:WAYS…` prints JSON with loads and
//! misses of the run and by line of code, from an exact set-associative simulation with LRU
//! replacement, each cache separately. `benches/run misses` compares predictions from
//! samples with it.

use mgz_analyzer::input::{ColumnSet, Trace};
use mgz_analyzer::util::fast_hash::Mixed;
use mgz_models::cache::{Cache, Shape};
use std::collections::HashMap;

#[derive(Clone, Default)]
struct Counts {
    loads: u64,
    implied: u64,
    misses: Vec<u64>,
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let folder = arguments
        .get(1)
        .expect("usage: miss_truth TRACE SIZE:WAYS…");
    let shapes: Vec<Shape> = arguments[2..]
        .iter()
        .map(|a| {
            let (size, ways) = a.split_once(':').expect("SIZE:WAYS");
            let number = |t: &str| t.parse().expect("a number");
            Shape::new(number(size), number(ways), 64).expect("a cache")
        })
        .collect();
    let trace = Trace::open(std::path::Path::new(folder), true).expect("a trace");
    let source = trace.source(ColumnSet::default());
    let code = &trace.code;
    let mut caches: Vec<Cache> = shapes.iter().map(Cache::new).collect();
    let mut lines: HashMap<u32, Counts, Mixed> = HashMap::default();
    for piece in 0..source.pieces() {
        let chunk = source
            .read(&[piece])
            .pop()
            .expect("one piece")
            .unwrap_or_else(|e| panic!("{}", e.0));
        let rows = chunk.loads.rows();
        for at in 0..rows.len() {
            let line = code.pieces[rows.group[at].piece() as usize].line;
            let counts = lines.entry(line).or_default();
            counts.loads += 1;
            counts.implied += u64::from(rows.implied[at]);
            counts.misses.resize(caches.len(), 0);
            let first = rows.address[at] >> 6;
            let last = (rows.address[at] + u64::from(rows.size[at].max(1)) - 1) >> 6;
            for (cache, misses) in caches.iter_mut().zip(&mut counts.misses) {
                let hits = (first..=last).fold(true, |hits, line| cache.access(line) & hits);
                *misses += u64::from(!hits);
            }
        }
    }
    let rows: Vec<serde_json::Value> = lines
        .iter()
        .map(|(&line, counts)| {
            let name = &code.lines[line as usize];
            serde_json::json!({"function": name.function, "file": name.file, "line": name.line,
                "loads": counts.loads, "implied": counts.implied, "misses": counts.misses})
        })
        .collect();
    println!("{}", serde_json::json!({"lines": rows}));
}
