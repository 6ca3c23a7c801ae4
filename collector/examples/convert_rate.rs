//! Measures conversion: `cargo run --release -p mgz-collector --example convert_rate [TRACE
//! [lz4|none|zstd]]`.
//!
//! Without an argument, a made-up trace of 32 Mi records (a loop over two arrays and a gather) is
//! converted; else the given trace, which must have been recorded with `--keep-spill`; with all
//! codecs, or the one named. Rows are written to a temporary folder beside the trace's.

use mgz_abi::slot::Slot;
use mgz_annotations_schema::manifest::{Manifest, Module};
use mgz_annotations_schema::sidecar::{Function, NO_RECORD, NONE, Record, Region, Sidecar, Site};
use mgz_annotations_schema::spill::{SegmentHeader, SpillWriter, ThreadKey};
use mgz_collector::convert::{Compression, ConvertOptions, convert};
use std::path::{Path, PathBuf};
use std::time::Instant;

fn made_up(dir: &Path) -> std::io::Result<Manifest> {
    std::fs::create_dir(dir.join("annotations"))?;
    std::fs::create_dir(dir.join("spill"))?;
    let site = |a: u8, ip: u64| Site {
        ip,
        size: 8,
        class: 1,
        scale: 1,
        a,
        b: NO_RECORD,
        location: NONE,
        ..Site::default()
    };
    let sidecar = Sidecar {
        id: [1; 16],
        functions: vec![Function::default()],
        sites: vec![
            site(0, 0x1000),
            site(1, 0x1004),
            site(1, 0x1008),
            site(2, 0x100c),
        ],
        regions: vec![Region {
            record_count: 3,
            site_count: 4,
            implied_const: 1,
            ..Region::default()
        }],
        records: (0..3)
            .map(|i| Record {
                slots: 1,
                ip: 0x1000 + 4 * i,
                ..Record::default()
            })
            .collect(),
        ..Sidecar::default()
    };
    sidecar
        .write(&dir.join("annotations/a.mgza"))
        .map_err(std::io::Error::other)?;
    let mut writer = SpillWriter::create(
        &dir.join("spill"),
        ThreadKey {
            process: 1,
            thread: 1,
        },
    )?;
    let mut state = 88_172_645_463_325_252u64;
    let chunk = 3 << 14;
    for segment in 0..700u64 {
        let slots: Vec<Slot> = (0..chunk)
            .map(|i| {
                let n = segment * chunk + i;
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let payload = if i % 3 == 2 {
                    0x7f00_0000_0000 + state % (1 << 26)
                } else {
                    0x7e00_0000_0000 + n * 8
                };
                Slot {
                    payload,
                    id: (i % 3) as u32,
                    aux: 0,
                }
            })
            .collect();
        let header = SegmentHeader {
            first_slot: segment * chunk,
            begin_ns: segment * 1000,
            end_ns: segment * 1000 + 900,
            ..SegmentHeader::default()
        };
        writer.write(&header, &slots)?;
    }
    let module = Module {
        sidecar: "annotations/a.mgza".into(),
        sidecar_id: sidecar.id_hex(),
        ..Module::default()
    };
    Ok(Manifest {
        modules: vec![module],
        ..Manifest::default()
    })
}

/// CPU time of this process so far.
fn cpu_seconds() -> f64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the struct lives across the call, which fills it.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let temporary = tempfile::tempdir()?;
    let (dir, manifest): (PathBuf, Manifest) = match std::env::args_os().nth(1) {
        Some(trace) => (
            trace.clone().into(),
            serde_json::from_slice(&std::fs::read(Path::new(&trace).join("manifest.json"))?)?,
        ),
        None => (temporary.path().to_owned(), made_up(temporary.path())?),
    };
    println!(
        "(the second figure is per second of CPU time, over all threads; on a machine that does nothing else, two cores give up to twice as much)"
    );
    let only = std::env::args().nth(2);
    for (name, compression) in [
        ("lz4", Compression::Lz4),
        ("none", Compression::None),
        ("zstd", Compression::Zstd),
    ] {
        if only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        let (start, cpu) = (Instant::now(), cpu_seconds());
        let outcome = convert(
            &dir,
            &manifest,
            &ConvertOptions {
                compression,
                ..ConvertOptions::default()
            },
        )?;
        let seconds = start.elapsed().as_secs_f64();
        let cpu = cpu_seconds() - cpu;
        let rows = outcome.counters.rows as f64;
        println!(
            "{compression:?}: {:.1} M rows in {seconds:.2} s, {:.1} M rows/s ({:.1}), {:.1} bytes/row",
            rows / 1e6,
            rows / seconds / 1e6,
            rows / cpu / 1e6,
            outcome.bytes as f64 / rows
        );
    }
    Ok(())
}
