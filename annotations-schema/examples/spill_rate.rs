//! Measures how many slots a second (of CPU time, writing the file included) one core encodes and
//! decodes: `cargo run --release -p mgz-annotations-schema --example spill_rate`.

use mgz_abi::slot::Slot;
use mgz_annotations_schema::spill::{SegmentHeader, SpillFile, SpillWriter, ThreadKey};

const CHUNK: usize = 1 << 16;
const CHUNKS: usize = 256;

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// The patterns, from easy to hard for the predictor.
fn pattern(name: &str) -> Vec<Slot> {
    let mut state = 88_172_645_463_325_252;
    let slot = |id: u32, payload: u64| Slot {
        payload,
        id,
        aux: 0,
    };
    (0..CHUNK as u64)
        .map(|i| match name {
            "one strided load" => slot(5000, 0x7f00_0000_0000 + 8 * i),
            "three strided loads" => slot(5000 + (i % 3) as u32, 0x7f00_0000_0000 + 8 * i),
            "gather over 64 MiB" => match i % 2 {
                0 => slot(5000, 0x7f00_0000_0000 + 4 * i),
                _ => slot(5001, 0x7e00_0000_0000 + random(&mut state) % (1 << 26)),
            },
            "branchy, 4000 sites" => slot(
                5000 + (random(&mut state) % 4000) as u32,
                0x5555_0000_0000 + random(&mut state) % (1 << 16),
            ),
            _ => slot(random(&mut state) as u32, random(&mut state)),
        })
        .collect()
}

/// CPU time of this (single-threaded) process, so that other load on the machine does not count.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    text.split(' ')
        .next()
        .and_then(|ns| ns.parse::<f64>().ok())
        .unwrap_or(f64::NAN)
        / 1e9
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    println!(
        "{:<22} {:>12} {:>12} {:>12}",
        "pattern", "encode M/s", "decode M/s", "bytes/slot"
    );
    for name in [
        "one strided load",
        "three strided loads",
        "gather over 64 MiB",
        "branchy, 4000 sites",
        "random ids, payloads",
    ] {
        let slots = pattern(name);
        let mut writer = SpillWriter::create(dir.path(), ThreadKey::default())?;
        let header = SegmentHeader::default();
        writer.write(&header, &slots)?;
        let start = cpu_seconds();
        for _ in 1..CHUNKS {
            writer.write(&header, &slots)?;
        }
        let written = cpu_seconds() - start;
        let path = writer.path().to_owned();
        let bytes = writer.finish()?;
        let file = SpillFile::open(&path)?;
        let mut out = Vec::new();
        let start = cpu_seconds();
        for segment in file.segments() {
            file.decode(segment, &mut out)?;
            assert_eq!(out.len(), CHUNK);
        }
        let read = cpu_seconds() - start;
        let all = (CHUNK * CHUNKS) as f64;
        println!(
            "{name:<22} {:>12.0} {:>12.0} {:>12.2}",
            all / written / 1e6,
            all / read / 1e6,
            bytes as f64 / all
        );
        std::fs::remove_file(path)?;
    }
    Ok(())
}
