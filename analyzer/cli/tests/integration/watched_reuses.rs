//! Predicted misses of a trace whose watchpoints caught reuses after samples, compared with an
//! exact simulation.

use crate::common::{
    SampleRow, TestRandom, manifest, sidecar, write_columns, write_lives, write_trace,
};
use arrow_array::{ArrayRef, BooleanArray, Float64Array, StringArray, UInt32Array, UInt64Array};
use mgz_annotations_schema::manifest::{REUSE_PAIRS, WINDOWS};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

/// Loads of a sample.
const SAMPLE: u64 = 500;
const SAMPLE_PERIOD: u64 = 50_000;
const SAMPLE_COUNT: u64 = 300;
/// Loads between changes of the table's active part; half of them touch that part.
const BURST: u64 = 20_000;
const PART_ROWS: u64 = 2_000;
/// Lines of the table and of the heap.
const TABLE: u64 = 1 << 18;
const HEAP: u64 = 1 << 17;
const BASE: u64 = 0x1000_0000;
/// Lines of the simulated caches.
const CACHES: [usize; 2] = [1 << 13, 1 << 16];

/// A program that loads from a table and a heap.
struct Program {
    random: TestRandom,
    first: u64,
    at: u64,
}

impl Program {
    /// The word of the next load, and true if it is in the table. For a while a random part of the
    /// table is used, then another one. The whole heap is used all the time.
    fn next(&mut self) -> (u64, bool) {
        if self.at.is_multiple_of(BURST) {
            self.first = self.random.below(TABLE - PART_ROWS);
        }
        self.at += 1;
        let in_table = self.random.below(2) == 0;
        let line = match in_table {
            true => self.first + self.random.below(PART_ROWS),
            false => TABLE + self.random.below(HEAP),
        };
        (BASE + line * 64 + line * 7 % 8 * 8, in_table)
    }
}

/// Least recently used lines: for each line the previous and the next line.
struct Lru {
    links: Vec<(u32, u32)>,
    inside: Vec<bool>,
    lines: usize,
    most: usize,
}

impl Lru {
    fn new(most: usize) -> Lru {
        let lines = (TABLE + HEAP) as usize;
        Lru {
            // The last one is the head of the ring.
            links: vec![(lines as u32, lines as u32); lines + 1],
            inside: vec![false; lines],
            lines: 0,
            most,
        }
    }

    fn take_out(&mut self, line: usize) {
        let (before, behind) = self.links[line];
        self.links[before as usize].1 = behind;
        self.links[behind as usize].0 = before;
    }

    /// Touches a line. True for a miss.
    fn touch(&mut self, line: usize) -> bool {
        let (head, had) = (self.inside.len(), self.inside[line]);
        if had {
            self.take_out(line);
        } else {
            self.inside[line] = true;
            self.lines += 1;
        }
        let first = self.links[head].1;
        self.links[line] = (head as u32, first);
        self.links[first as usize].0 = line as u32;
        self.links[head].1 = line as u32;
        if self.lines > self.most {
            let last = self.links[head].0 as usize;
            self.take_out(last);
            self.inside[last] = false;
            self.lines -= 1;
        }
        !had
    }
}

struct Watch {
    sample: u32,
    address: u64,
    from: u64,
    /// When it ended, and whether a load of the table ended it; `None` if it was given up.
    end: Option<(u64, Option<bool>)>,
}

/// Loads from the table have site 1 (`main`), loads from the heap site 9 (`helper`).
fn site(in_table: bool) -> u32 {
    if in_table { 1 } else { 9 }
}

/// Writes a trace of the program and its watches. Returns the miss ratios of table and heap, by
/// cache.
fn write(folder: &Path) -> [[f64; 2]; 2] {
    let mut program = Program {
        random: TestRandom(5),
        first: 0,
        at: 0,
    };
    let mut random = TestRandom(77);
    let mut caches = CACHES.map(Lru::new);
    let (mut misses, mut loads) = ([[0.0; 2]; 2], [0.0; 2]);
    let mut rows: Vec<SampleRow> = Vec::new();
    let (mut watches, mut armed): (Vec<Watch>, Vec<usize>) = Default::default();
    for load in 0..SAMPLE_COUNT * SAMPLE_PERIOD {
        let (address, in_table) = program.next();
        let line = ((address - BASE) / 64) as usize;
        loads[usize::from(!in_table)] += 1.0;
        for (cache, misses) in caches.iter_mut().zip(&mut misses) {
            misses[usize::from(!in_table)] += f64::from(u8::from(cache.touch(line)));
        }
        if let Some(place) = armed.iter().position(|&w| watches[w].address == address) {
            watches[armed.remove(place)].end = Some((load, Some(in_table)));
        }
        // Samples begin anywhere in their period, so that bursts do not align with them.
        let sample = load / SAMPLE_PERIOD;
        let offset = sample.wrapping_mul(7_919_777) % (SAMPLE_PERIOD - SAMPLE);
        let place = (load % SAMPLE_PERIOD).wrapping_sub(offset);
        if place < SAMPLE {
            rows.push(SampleRow {
                process: 7,
                thread: 8,
                seq: rows.len() as u64,
                time_ns: 1000 + load,
                sample: sample as u32,
                site: site(in_table),
                address,
                size: 8,
                class: 2,
                ..SampleRow::default()
            });
        }
        if place + 1 == SAMPLE {
            let here = &rows[rows.len() - SAMPLE as usize..];
            let is_alone = |at: usize| {
                !here[at + 1..]
                    .iter()
                    .any(|r| r.address >> 6 == here[at].address >> 6)
            };
            let at = random.below(SAMPLE / 2) as usize;
            if is_alone(at) {
                // The four debug registers are in use: one watch is given up.
                if armed.len() == 4 {
                    let given_up = armed.remove(random.below(4) as usize);
                    watches[given_up].end = Some((load, None));
                }
                armed.push(watches.len());
                watches.push(Watch {
                    sample: sample as u32,
                    address: here[at].address,
                    from: load,
                    end: None,
                });
            }
        }
    }
    let sidecar = sidecar(16);
    let mut manifest = manifest("burst", &sidecar);
    manifest.trigger = "cpu time (software clock)".into();
    write_trace(folder, &manifest, &sidecar, &[rows], 100_000);
    write_lives(
        folder,
        &[
            (BASE, TABLE * 64, 0, u64::MAX, 1, "heap", "table"),
            (BASE + TABLE * 64, HEAP * 64, 0, u64::MAX, 2, "heap", "heap"),
        ],
    );
    let n = SAMPLE_COUNT as usize;
    let floats = |value: f64| Arc::new(Float64Array::from(vec![value; n])) as ArrayRef;
    // A load takes a nanosecond.
    write_columns(
        &folder.join(WINDOWS),
        vec![
            (
                "sample",
                Arc::new(UInt32Array::from_iter_values(0..SAMPLE_COUNT as u32)),
            ),
            ("loads", Arc::new(UInt32Array::from(vec![SAMPLE as u32; n]))),
            ("stands_for", floats(SAMPLE_PERIOD as f64 / SAMPLE as f64)),
            ("stands_for_error", floats(0.2)),
            (
                "ns_per_load_source",
                Arc::new(StringArray::from(vec!["watched"; n])),
            ),
            ("time_ns", floats(SAMPLE_PERIOD as f64)),
        ],
    );
    write_pairs(folder, &watches);
    misses.map(|of| [of[0] / loads[0], of[1] / loads[1]])
}

fn write_pairs(folder: &Path, watches: &[Watch]) {
    let end = |w: &Watch| w.end.unwrap_or((SAMPLE_COUNT * SAMPLE_PERIOD, None));
    let u32s = |of: &dyn Fn(&Watch) -> u32| {
        Arc::new(UInt32Array::from_iter_values(watches.iter().map(of))) as ArrayRef
    };
    let u64s = |of: &dyn Fn(&Watch) -> u64| {
        Arc::new(UInt64Array::from_iter_values(watches.iter().map(of))) as ArrayRef
    };
    let reused: Vec<bool> = watches.iter().map(|w| end(w).1.is_some()).collect();
    write_columns(
        &folder.join(REUSE_PAIRS),
        vec![
            ("sample", u32s(&|w| w.sample)),
            ("address", u64s(&|w| w.address)),
            ("cpu_ns", u64s(&|w| end(w).0 - w.from)),
            ("reused", Arc::new(BooleanArray::from(reused))),
            ("module", u32s(&|w| end(w).1.map_or(u32::MAX, |_| 0))),
            ("site", u32s(&|w| end(w).1.map_or(u32::MAX, site))),
        ],
    );
}

fn run(folder: &Path, words: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_mgz-analyze"))
        .arg(folder)
        .args(["--caches", "L1=32K/8,L2=512K/16,L3=4M/16"])
        .args(words)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!error.contains("panicked"), "{error}");
    output
}

fn json(folder: &Path) -> Value {
    let output = run(folder, &["--format", "json"]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Miss ratio of a function at a level, with its interval.
fn ratio(analysis: &Value, function: &str, level: usize) -> [f64; 3] {
    let functions = analysis["functions"].as_array().unwrap();
    let of = functions
        .iter()
        .find(|f| f["function"] == function)
        .unwrap();
    let ratio = &of["misses"]["levels"][level]["ratio"];
    [0, 1, 2].map(|at| ratio[at].as_f64().unwrap())
}

#[test]
fn watches_see_bursts_that_samples_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let truth = write(folder);
    let with = json(folder);
    let text = run(folder, &["--misses"]);
    let text = String::from_utf8(text.stdout).unwrap();
    let moved = folder.join("elsewhere");
    std::fs::rename(folder.join(REUSE_PAIRS), &moved).unwrap();
    let without = json(folder);
    let seen = &with["summary"]["misses"]["watched"];
    let of = |key: &str| seen[key].as_u64().unwrap();
    assert!(
        of("pairs") > 200 && of("reused") > 50 && of("used") == of("pairs"),
        "{seen}"
    );
    assert_eq!((of("unusable"), of("windows")), (0, SAMPLE_COUNT));
    assert!(without["summary"]["misses"].get("watched").is_none());
    let said = format!(
        "from 300 windows and {} reuses seen by watchpoints",
        of("reused")
    );
    assert!(text.contains(&said), "{text}");
    for (at, truth) in truth.iter().enumerate() {
        for (function, truth) in ["main", "helper"].into_iter().zip(truth) {
            let [a, b] = [&without, &with].map(|a| ratio(a, function, at + 1));
            println!(
                "{function} {}: {truth:.3}, {a:.3?} without, {b:.3?} with",
                CACHES[at]
            );
            for found in [a, b] {
                assert!(
                    found[0] <= *truth && *truth <= found[2],
                    "{function}: {truth} in {found:?}"
                );
            }
            let wide = a[2] - a[0];
            let [a, b] = [a, b].map(|r| (r[1] - truth).abs());
            match function {
                // Samples show that the table is used in bursts, but not how long these are.
                "main" => assert!(wide > 0.7 && b < 0.2 && b < a, "{a} {wide} {b}"),
                _ => assert!(b < 0.1 && b <= a + 0.03, "{a} {b}"),
            }
        }
    }
    // A filter by time also removes the watches of the removed time.
    std::fs::rename(&moved, folder.join(REUSE_PAIRS)).unwrap();
    let half = run(folder, &["--format", "json", "--to", "0.0075"]);
    let half: Value = serde_json::from_slice(&half.stdout).unwrap();
    let half = &half["summary"]["misses"]["watched"];
    assert!(
        half["pairs"].as_u64().unwrap() < of("pairs") * 3 / 5,
        "{half}"
    );
    // One sample may be cut at the end.
    assert!(half["unusable"].as_u64().unwrap() <= 1, "{half}");
}

/// Watches that contradict the rows, absurd values, and damage.
#[test]
fn what_cannot_be_used_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write(folder);
    let path = folder.join(REUSE_PAIRS);
    let whole = std::fs::read(&path).unwrap();
    let text = || {
        let output = run(folder, &["--misses", "--all"]);
        [output.stdout, output.stderr].map(|t| String::from_utf8(t).unwrap())
    };
    let watch = |sample, address, end| Watch {
        sample,
        address,
        from: 0,
        end,
    };
    write_pairs(
        folder,
        &[
            watch(0, u64::MAX, None),
            watch(u32::MAX, BASE, Some((1 << 60, Some(true)))),
            watch(3, 0, Some((0, None))),
        ],
    );
    let seen = json(folder)["summary"]["misses"]["watched"].clone();
    let numbers = ["pairs", "reused", "unusable", "used"].map(|k| seen[k].as_u64().unwrap());
    assert_eq!(numbers, [3, 0, 3, 0]);
    assert!(
        text()[0].contains("of 3 watchpoints none is used"),
        "{}",
        text()[0]
    );
    write_pairs(folder, &[watch(0, BASE, Some((u64::MAX, None)))]);
    assert!(
        text()[1].contains("reuse_pairs.parquet: damaged"),
        "{}",
        text()[1]
    );
    write_pairs(folder, &[]);
    assert!(!text().concat().contains("watchpoint"));
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    assert!(
        text()[1].contains("without reuses seen by watchpoints"),
        "{}",
        text()[1]
    );
    let mut random = TestRandom(9);
    for _ in 0..12 {
        let mut bytes = whole.clone();
        for _ in 0..4 {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = random.next() as u8;
        }
        std::fs::write(&path, bytes).unwrap();
        text();
    }
}
