//! Tests of a whole live recording: kernel (a transcript), capture, import, trace.

use crate::pt::plan::Request;
use crate::pt::tests::encode::{Encoder, SmallRandom, Write, writes};
use crate::pt::tests::sidecars::sidecar;
use crate::pt::tests::{
    PID, STYLE, beginning, everything, ns, readable, replay, rings, steps_of, trace_data, windows,
};
use arrow_array::cast::AsArray;
use arrow_array::types::{UInt32Type, UInt64Type};
use clap::Parser;
use mgz_annotations_schema::PathRecording;
use mgz_annotations_schema::manifest::{MANIFEST, Manifest, SAMPLES_DIR};
use mgz_collector::options::args::Cli;
use mgz_perf::kernel_fake::{Fake, ScriptEvent, machine};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::collections::BTreeMap;
use std::path::Path;

/// Address at which the transcripts' program is mapped.
const BASE: u64 = 0x5555_5555_0000;

/// `(ip, address)` by thread, from the trace's columns.
pub(crate) type Rows = BTreeMap<u32, Vec<(u64, u64)>>;

fn rows(trace: &Path) -> Rows {
    let mut paths: Vec<_> = std::fs::read_dir(trace.join(SAMPLES_DIR))
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    paths.sort();
    let mut out = Rows::new();
    for path in paths {
        for batch in ParquetRecordBatchReaderBuilder::try_new(std::fs::File::open(&path).unwrap())
            .unwrap()
            .build()
            .unwrap()
        {
            let batch = batch.unwrap();
            let column = |name: &str| batch.column_by_name(name).unwrap().clone();
            let (thread, ip, address) = (column("thread"), column("ip"), column("address"));
            let u64s = |c: &arrow_array::ArrayRef| c.as_primitive::<UInt64Type>().values().to_vec();
            for ((thread, ip), address) in thread
                .as_primitive::<UInt32Type>()
                .values()
                .iter()
                .zip(u64s(&ip))
                .zip(u64s(&address))
            {
                out.entry(*thread).or_default().push((ip, address));
            }
        }
    }
    out
}

/// The events that the trace must have. Adds the number of events without a sidecar to `unknown`.
fn expected(events: &[(u64, u64)], unknown: &mut u64) -> Vec<(u64, u64)> {
    let known = |ip: u64| (BASE..BASE + 64 * 24).contains(&ip);
    *unknown += events.iter().filter(|e| !known(e.0)).count() as u64;
    events
        .iter()
        .filter(|e| known(e.0))
        .map(|e| (e.0 - BASE, e.1.wrapping_add(8)))
        .collect()
}

/// Imports a capture as the command line would.
pub(crate) fn import(capture: &[u8], dir: &Path) -> (Rows, Manifest) {
    let (file, annotations, trace) = (
        dir.join("perf.data"),
        dir.join("program.mgza"),
        dir.join("trace"),
    );
    std::fs::write(&file, capture).unwrap();
    sidecar("/nowhere/program", "", 0, 8, 0)
        .write(&annotations)
        .unwrap();
    let words = [
        "mgz-record".as_ref(),
        "--import".as_ref(),
        file.as_os_str(),
        "--annotations".as_ref(),
        annotations.as_os_str(),
        "-o".as_ref(),
        trace.as_os_str(),
    ];
    let cli = Cli::try_parse_from(words).unwrap();
    assert_eq!(
        crate::import::run(&cli, &file).map_err(|e| e.message),
        Ok(0)
    );
    (
        rows(&trace),
        serde_json::from_slice(&std::fs::read(trace.join(MANIFEST)).unwrap()).unwrap(),
    )
}

fn encoded(random: &mut SmallRandom, cpu: u32) -> Encoder {
    let mut encoder = Encoder::new(STYLE);
    for write in writes(random, 20_000, 1_000_000) {
        // Threads write at different addresses, so that a record in the wrong thread would be
        // detected.
        encoder.write(Write {
            payload: write.payload ^ u64::from(cpu) << 40,
            ..write
        });
    }
    encoder
}

#[test]
fn a_full_capture_becomes_a_trace_of_every_record() {
    let mut random = SmallRandom(21);
    let mut fake = Fake::new(machine("0-1", &[("cpu", 4, "")]));
    let (mut truth, mut unknown, mut steps) = (Rows::new(), 0, Vec::new());
    for cpu in 0..2 {
        let encoder = encoded(&mut random, cpu);
        let events: Vec<_> = encoder
            .places
            .iter()
            .map(|p| (p.write.ip, p.write.payload))
            .collect();
        truth.insert(PID + cpu, expected(&events, &mut unknown));
        steps.extend(steps_of(&encoder, cpu, |at| 901 + at % 97));
    }
    steps.sort_by_key(|s| s.0);
    fake.script = beginning(2).into();
    fake.script.extend(
        steps
            .into_iter()
            .flat_map(|(_, step)| [step, ScriptEvent::Wake]),
    );
    let (finished, file) = replay(&mut fake, &everything(), rings(4096, 16384), None);
    assert_eq!((finished.tally.lost, finished.tally.truncated), (0, 0));
    let dir = tempfile::tempdir().unwrap();
    let (got, manifest) = import(&file, dir.path());
    assert!(unknown > 500);
    assert_eq!(manifest.totals.dropped["unresolved_ips"], unknown);
    assert_eq!(
        (manifest.mode.as_str(), manifest.backend.as_str()),
        ("full", "pt")
    );
    assert!(
        got == truth,
        "{:?} rows, {:?} expected",
        got.values().map(Vec::len).collect::<Vec<_>>(),
        truth.values().map(Vec::len).collect::<Vec<_>>()
    );
}

#[test]
fn overlapping_windows_of_a_capture_give_each_record_once() {
    let mut random = SmallRandom(22);
    let mut fake = Fake::new(machine(
        "0-2",
        &[("cpu_core", 4, "0"), ("cpu_atom", 10, "1-2")],
    ));
    let (mut truth, mut unknown, mut steps) = (Rows::new(), 0, Vec::new());
    for cpu in 0..3u32 {
        let encoder = encoded(&mut random, cpu);
        let (mut at, mut end, mut seen) = (0, 0, Vec::new());
        for place in encoder.places.iter() {
            if place.end >= end + 5000 {
                end = place.end;
                let (time, tid) = (ns(place.write.tsc), PID + cpu);
                steps.push((
                    time,
                    trace_data(cpu, encoder.bytes[at..end].to_vec(), tid, time),
                ));
                steps.push((
                    time + 1,
                    ScriptEvent::Sample {
                        cpu,
                        ip: BASE + 0x1000,
                        pid: PID,
                        tid,
                        time: time + 1,
                    },
                ));
                seen.push(end.saturating_sub(8192)..end);
                at = end;
            }
        }
        truth.insert(
            PID + cpu,
            expected(&readable(&encoder, &seen), &mut unknown),
        );
    }
    steps.sort_by_key(|s| s.0);
    fake.script = beginning(3).into();
    for (number, (_, step)) in steps.into_iter().enumerate() {
        fake.script.push_back(step);
        if number % 7 == 6 {
            fake.script.push_back(ScriptEvent::Wake);
        }
    }
    let (finished, file) = replay(&mut fake, &windows(8192), rings(65536, 16384), None);
    assert_eq!(finished.tally.lost, 0);
    let dir = tempfile::tempdir().unwrap();
    let (got, manifest) = import(&file, dir.path());
    assert_eq!(manifest.totals.dropped["unresolved_ips"], unknown);
    // Each capture names its trigger.
    assert_eq!(
        (
            manifest.mode.as_str(),
            manifest.trigger.as_str(),
            manifest.period
        ),
        ("samples", "loads", 1000)
    );
    assert!(manifest.totals.truncated_windows["overlapping"] > 0);
    assert!(
        got == truth,
        "{:?} rows, {:?} expected",
        got.values().map(Vec::len).collect::<Vec<_>>(),
        truth.values().map(Vec::len).collect::<Vec<_>>()
    );
}

/// The import makes paths from the call chains that live recording requests from the kernel.
#[test]
fn samples_of_a_capture_have_paths() {
    let mut fake = Fake::new(machine("0-1", &[("cpu", 4, "")]));
    let mut random = SmallRandom(23);
    fake.script = beginning(2).into();
    fake.callers.insert(PID, vec![BASE + 0x105, BASE + 0x205]);
    for cpu in 0..2 {
        let mut encoder = Encoder::new(STYLE);
        for write in writes(&mut random, 200, 1_000_000) {
            encoder.write(write);
        }
        let (time, tid) = (ns(1_500_000) + u64::from(cpu), PID + cpu);
        fake.script.extend([
            trace_data(cpu, encoder.bytes, tid, time),
            ScriptEvent::Sample {
                cpu,
                ip: BASE + 0x1d0,
                pid: PID,
                tid,
                time: time + 1,
            },
            ScriptEvent::Wake,
        ]);
    }
    let sizes = rings(65536, 16384);
    let request = Request {
        stacks: true,
        ..windows(8192)
    };
    let (_, file) = replay(&mut fake, &request, sizes, None);
    let dir = tempfile::tempdir().unwrap();
    let (_, manifest) = import(&file, dir.path());
    let told = &manifest.call_paths;
    assert_eq!(told.state, PathRecording::Recorded);
    assert_eq!(
        (told.whole, told.partial, told.unknown),
        (0, 2, 0),
        "{told:?}"
    );
    // The file does not exist, so its sidecar names the only function: a recursion.
    let session = mgz_perf_data::Session::read(&file).unwrap();
    let chains: Vec<_> = (session.windows.iter())
        .map(|w| {
            (
                w.identity.task.unwrap().1,
                w.chain.clone().unwrap().addresses,
            )
        })
        .collect();
    let callers = vec![BASE + 0x1d0, BASE + 0x104, BASE + 0x204];
    assert_eq!(chains, [(PID, callers), (PID + 1, vec![BASE + 0x1d0])]);
}
