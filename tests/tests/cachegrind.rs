//! Compares simulated cache levels with another simulator: `mgz-analyze cache` on full traces, and
//! cachegrind.
//!
//! Both run the same file, with data at fixed addresses. These differences are not errors and are
//! handled as follows:
//!
//! - Cachegrind includes the loader and all libraries; mgz covers the program's own code. The
//!   compared numbers are differences between a run with work and a run without.
//! - Cachegrind counts scalars at constant addresses and implicit reads of the stack (`pop`,
//!   `ret`), which have no rows here. They are in a few lines that are used all the time. The test
//!   therefore compares numbers of misses, relative to cachegrind's accesses.
//! - The C library's accesses are not in the trace, so these programs do not call it in their
//!   rounds.
//! - Cachegrind's last level also holds instructions: a few lines, in loops.
//! - An instruction that changes memory is one read in cachegrind; here it is a load followed by a
//!   store that hits.
//! - The stack has another address under valgrind, so its few lines are in other sets.
//!
//! These properties are the same in both: an access across a line's end is one access and misses if
//! one of its lines misses; stores allocate lines and do not write through; LRU is exact; a line
//! evicted from one level stays in the outer levels.

use mgz_tests::programs::{self, Variant};
use mgz_tests::session::{self, record_program};
use mgz_tests::tools::{self, LIMIT};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

const PROGRAMS: [&str; 10] = [
    "stream",
    "column",
    "chase",
    "histogram",
    "crossing",
    "search",
    "sort",
    "tree",
    "product",
    "sieve",
];

/// Misses of loads and stores, first in the first level, then in the last level.
type Misses = [[i64; 2]; 2];

/// Reads, writes and their misses under cachegrind.
fn cachegrind(program: &Path, work: &str) -> ([i64; 2], Misses) {
    let mut command = Command::new("valgrind");
    command
        .args([
            "--tool=cachegrind",
            "--cache-sim=yes",
            "--D1=32768,8,64",
            "--LL=262144,8,64",
            "--cachegrind-out-file=/dev/null",
        ])
        .arg(program)
        .arg(work);
    let output = tools::succeed(&mut command, LIMIT).unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    // ==17== D   refs:      1,078,139  (1,028,287 rd   + 49,852 wr)
    let numbers = |what: [&str; 2]| -> [i64; 2] {
        let line = text
            .lines()
            .find(|l| l.split_whitespace().skip(1).take(2).eq(what))
            .unwrap_or_else(|| panic!("{what:?}: {text}"));
        let both = line.split_once('(').unwrap().1;
        let number = |part: &str| -> i64 {
            let digits: String = part.chars().filter(char::is_ascii_digit).collect();
            digits.parse().unwrap()
        };
        let (read, written) = both.split_once('+').unwrap();
        [number(read), number(written)]
    };
    (
        numbers(["D", "refs:"]),
        [numbers(["D1", "misses:"]), numbers(["LLd", "misses:"])],
    )
}

/// Misses of the same levels as simulated by mgz.
fn simulated(app: &Path, work: &str, dir: &Path) -> Misses {
    let trace = dir.join("trace");
    let options = ["--mode", "full", "--no-aslr", "--force"];
    record_program(&options, &trace, app, &[work]);
    let mut command = tools::tool("mgz-analyze");
    command
        .args(["cache", "--format", "json", "--stores"])
        .args(["--level", "32K:8", "--level", "256K:8"])
        .arg(&trace);
    let output = tools::run_limited(&mut command, LIMIT).unwrap();
    if tools::code(&output) != 0 {
        // Without work a program may make no accesses.
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(work == "0" && said.contains("no accesses"), "{said}");
        return Misses::default();
    }
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    [0, 1].map(|level| {
        let level = &document["levels"][level];
        ["load_misses", "store_misses"].map(|key| level[key].as_i64().unwrap_or(0))
    })
}

#[test]
fn misses_are_those_of_cachegrind() {
    if !tools::have("valgrind") {
        tools::skip("valgrind is not installed");
        return;
    }
    let variant = Variant {
        clang: false,
        opt: "2",
        pie: false,
    };
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("levels")).unwrap();
    let mut worst = 0.0f64;
    for name in PROGRAMS {
        let source = format!("levels/{name}");
        let Some(original) = programs::build(&source, variant, &[], dir.path()).unwrap() else {
            continue;
        };
        let app = session::instrument(&original, "soft", &["--stores"])
            .unwrap()
            .path;
        let ((nothing, before), (all, behind)) =
            (cachegrind(&original, "0"), cachegrind(&original, "3"));
        let (start, end) = (
            simulated(&app, "0", dir.path()),
            simulated(&app, "3", dir.path()),
        );
        for (level, size) in ["32K", "256K"].into_iter().enumerate() {
            for (kind, what) in ["reads", "writes"].into_iter().enumerate() {
                let accesses = all[kind] - nothing[kind];
                let theirs = behind[level][kind] - before[level][kind];
                let ours = end[level][kind] - start[level][kind];
                // For programs with hardly any stores, use at least a tenth of the reads.
                let of = accesses.max((all[0] - nothing[0]) / 10).max(1);
                let points = 100.0 * (ours - theirs) as f64 / of as f64;
                println!(
                    "{name} {size}: {what} {accesses}, misses {ours}, cachegrind {theirs}: {points:+.4} points"
                );
                worst = worst.max(points.abs());
                assert!(
                    points.abs() <= 0.1,
                    "{name} {size} {what}: {ours} misses, cachegrind has {theirs} of {accesses}"
                );
            }
        }
    }
    println!("at most {worst:.4} points apart");
}
