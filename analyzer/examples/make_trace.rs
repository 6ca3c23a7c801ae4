//! Writes a synthetic trace: `make_trace DIR ROWS full|ring zipf|stream|random`.

#[path = "../cli/tests/integration/common/mod.rs"]
mod common;

use common::{SampleRow, TestRandom, manifest, sidecar, write_recorded_part};
use parquet::basic::Compression;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, folder, rows, mode, pattern] = arguments.as_slice() else {
        eprintln!("usage: make_trace DIR ROWS full|ring zipf|stream|random");
        std::process::exit(2);
    };
    let folder = std::path::Path::new(folder);
    let rows: u64 = rows.parse().expect("a number of rows");
    let sites = 2000;
    let sidecar = sidecar(sites);
    let mut manifest = manifest(mode, &sidecar);
    let window = if mode == "full" { u64::MAX } else { 1000 };
    if mode == "ring" {
        (manifest.window, manifest.period) = (1000, 1_000_000);
        (
            manifest.totals.records_executed,
            manifest.totals.records_kept,
        ) = (rows * 1000, rows);
    } else {
        manifest.totals.loads_executed = Some(rows);
    }
    common::write_trace(folder, &manifest, &sidecar, &[], 1);
    let mut random = TestRandom(1);
    let blocks = 1_000_000u64;
    let part_rows = 8 << 20;
    let mut part = Vec::new();
    let mut number = 0;
    for i in 0..rows {
        let block = match pattern.as_str() {
            "stream" => i / 8 % blocks,
            "random" => random.below(blocks),
            // Approximates Zipf with exponent 1: log-uniform ranks, scattered.
            _ => {
                (((blocks as f64).powf(random.below(1 << 30) as f64 / (1u64 << 30) as f64) as u64)
                    .wrapping_mul(0x9e3779b97f4a7c15)
                    >> 20)
                    % blocks
            }
        };
        let word = if pattern == "stream" {
            i % 8
        } else {
            random.below(8)
        };
        let site = (block % 50 * 40 + random.below(4)) as u32 % sites;
        part.push(SampleRow {
            process: 1,
            thread: 1,
            seq: i,
            sample: (i / window) as u32,
            time_ns: i / 2,
            module: 0,
            ip: 0x1000 + u64::from(site) * 4,
            site,
            address: 0x7f00_0000_0000 + block * 64 + word * 8,
            size: 8,
            class: 1 + (site % 2) as u8,
            store: false,
            implied_const: (i % 3 == 0) as u16,
        });
        if part.len() == part_rows || i + 1 == rows {
            write_recorded_part(
                &folder.join(format!("samples/part-{number:05}.parquet")),
                &part,
                1 << 18,
                Compression::LZ4_RAW,
            );
            number += 1;
            part.clear();
        }
    }
}
