//! Recordings with several events, files of one origin, machines, or files of perf; and damaged
//! recordings.

use super::encode::{Encoder, SmallRandom, Style, Write, writes};
use super::file::{self, PerfFile, RecordingKind, words_as_bytes};
use super::sidecars::sidecar;
use super::{ALL, by_thread, ends, ours, readable, row, stream};
use mgz_annotations_schema::Sidecar;
use mgz_annotations_schema::manifest::{MANIFEST, Manifest};
use mgz_collector::options::args::Cli;
use mgz_intel_pt::import::dump::{WITHOUT_PTW, raw};
use mgz_intel_pt::import::{self, account};
use mgz_perf_data::{PerfDataError, Session};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub const PLAIN_STYLE: Style = Style {
    mtc: false,
    cyc: false,
    ..ALL
};
pub const BASE: u64 = 0x5555_5555_0000;

/// A damaged stream loses only the damaged events, whichever bytes of the following PSB the cut
/// packet includes.
#[test]
fn a_cut_packet_in_each_window_costs_one_pair() {
    let mut random = SmallRandom(61);
    for style in [
        PLAIN_STYLE,
        ALL,
        Style {
            psb_every: 400,
            ..PLAIN_STYLE
        },
    ] {
        let mut file = PerfFile::new(RecordingKind::Samples, 1, (true, style.mtc, style.cyc));
        file.comm(1000, 1000, 1);
        let (mut truth, mut cuts) = (0, 0);
        let mut tsc = 1_000_000;
        for window in 0..200u64 {
            let mut encoder = Encoder::new(style);
            for write in writes(&mut random, 300, tsc) {
                encoder.write(write);
                tsc = write.tsc;
            }
            // The bytes before the second PSB are dropped.
            let psb = encoder.boundaries[1];
            let last = *encoder.places.iter().rfind(|p| p.end <= psb).unwrap();
            let gone = 1 + random.below((last.end - last.start) as u64) as usize;
            let mut bytes = encoder.bytes.clone();
            bytes.drain(psb - gone..psb);
            let whole = gone == last.end - last.start && psb == last.end;
            cuts += u64::from(!whole);
            truth += encoder.places.len();
            truth -= encoder
                .places
                .iter()
                .filter(|p| p.end > psb - gone && p.end <= psb)
                .count();
            file.sample(&bytes, 0, 1000, 1000, tsc + window, 0);
        }
        let (rows, report) = ours(&file.finish());
        let lost = truth.abs_diff(rows.len());
        assert!(lost <= 2, "{} rows of {truth}, {style:?}", rows.len());
        let bad = report.totals.loss.bad_packets;
        assert!(bad <= cuts && bad > cuts / 2, "{bad} of {cuts}");
    }
}

/// A cut packet between the parts of a full trace, which begin at PSBs, is damage, as inside a
/// part.
#[test]
fn a_packet_cut_off_by_a_psb_is_damage_wherever_a_part_ends() {
    let mut random = SmallRandom(62);
    // Parts have one megabyte; each PSB except the first follows a cut packet.
    let mut encoder = Encoder::new(Style {
        psb_every: usize::MAX,
        ..PLAIN_STYLE
    });
    let mut tsc = 1000;
    let mut count = 0;
    for _ in 0..40 {
        encoder.psb(tsc);
        for write in writes(&mut random, 12_000, tsc) {
            encoder.write(write);
            tsc = write.tsc;
        }
        count += 12_000;
        encoder.bytes.extend_from_slice(&[0x02, 0xb2, 1, 2, 3]);
    }
    let mut file = PerfFile::new(RecordingKind::PerThread, 1, (true, false, false));
    file.auxtrace(&encoder.bytes, 0, 0, 1000, u32::MAX);
    let (rows, report) = ours(&file.finish());
    assert!(encoder.bytes.len() > 4 << 20);
    let loss = report.totals.loss;
    assert_eq!(rows.len(), count);
    assert_eq!(
        (loss.bad_packets, loss.bad_bytes, loss.cut_bytes),
        (39, 39 * 5, 5)
    );
}

#[test]
fn pieces_without_a_ptwrite_are_counted_and_a_recording_without_ptw_says_so() {
    let mut file = PerfFile::new(RecordingKind::PerThread, 1, (true, false, false));
    let mut encoder = Encoder::new(PLAIN_STYLE);
    encoder.psb(10);
    let empty = encoder.bytes.len();
    encoder.write(Write {
        ip: 0x40_1000,
        payload: 1,
        tsc: 20,
    });
    file.auxtrace(&encoder.bytes[..empty], 0, 0, 1000, u32::MAX);
    file.auxtrace(&encoder.bytes[empty..], empty as u64, 0, 1000, u32::MAX);
    let (rows, report) = ours(&file.finish());
    assert_eq!(rows.len(), 1);
    assert_eq!((report.totals.samples, report.totals.empty_samples), (2, 1));
    let text = report.to_string();
    assert!(
        text.starts_with("1 ptwrites in 2 pieces (") && text.contains("; 1 pieces without"),
        "{text}"
    );
    assert!(!text.contains("ptw`"), "{text}");

    // Branches only, in samples and in a full trace.
    let branches = |kind| {
        let mut file = PerfFile::new(kind, 1, (true, false, false));
        file.without_ptw = true;
        file.comm(1000, 1000, 1);
        let mut encoder = Encoder::new(PLAIN_STYLE);
        for tsc in [10, 20, 30] {
            encoder.psb(tsc);
            encoder.bytes.extend_from_slice(&[0x06, 0x2d, 0x34, 0x12]);
        }
        match kind {
            RecordingKind::Samples => {
                (0..3).for_each(|n| file.sample(&encoder.bytes, 0, 1000, 1000, n, 0))
            }
            _ => file.auxtrace(&encoder.bytes, 0, 0, 1000, u32::MAX),
        }
        file.finish()
    };
    for (kind, samples, unit) in [
        (RecordingKind::Samples, 3, "samples"),
        (RecordingKind::PerThread, 1, "pieces"),
    ] {
        let bytes = branches(kind);
        let (rows, report) = ours(&bytes);
        assert!(rows.is_empty());
        assert_eq!(
            (report.totals.samples, report.totals.empty_samples),
            (samples, samples)
        );
        let text = report.to_string();
        assert!(text.contains(WITHOUT_PTW), "{text}");
        assert!(
            text.starts_with(&format!("0 ptwrites in {samples} {unit}")),
            "{text}"
        );
        let dir = tempfile::tempdir().unwrap();
        let error = trace(&bytes, dir.path(), &[]).unwrap_err();
        assert!(error.contains(WITHOUT_PTW), "{error}");
        assert!(!dir.path().join("trace").exists());
    }
}

#[test]
fn files_of_the_first_version_are_named_as_such() {
    for magic in [b"PERFFILE", b"ELIFFREP"] {
        let mut bytes = PerfFile::new(RecordingKind::Samples, 1, (true, false, false)).finish();
        bytes[..8].copy_from_slice(magic);
        let error = Session::read(&bytes).unwrap_err();
        assert!(matches!(error, PerfDataError::OldVersion), "{error}");
        assert!(error.to_string().contains("version 1"), "{error}");
    }
    let error = Session::read(b"PERFFILE").unwrap_err();
    assert!(matches!(error, PerfDataError::OldVersion));
}

/// Imports bytes as the command line would. Returns the manifest, or the error message.
pub fn trace(bytes: &[u8], dir: &Path, annotations: &[&Path]) -> Result<Manifest, String> {
    let (file, trace) = (dir.join("perf.data"), dir.join("trace"));
    std::fs::write(&file, bytes).expect("written");
    let mut words = vec![
        "mgz-record".as_ref(),
        "--import".as_ref(),
        file.as_os_str(),
        "--force".as_ref(),
        "-o".as_ref(),
        trace.as_os_str(),
    ];
    if !annotations.is_empty() {
        words.push("--annotations".as_ref());
        words.extend(annotations.iter().map(|path| path.as_os_str()));
    }
    let cli = <Cli as clap::Parser>::try_parse_from(words).expect("options");
    import::run(&cli, &file).map_err(|failure| failure.message)?;
    let manifest = std::fs::read(trace.join(MANIFEST)).expect("a manifest");
    Ok(serde_json::from_slice(&manifest).expect("whole"))
}

/// Writes sidecars. Returns their paths.
pub fn put(dir: &Path, list: &[Sidecar]) -> Vec<PathBuf> {
    let path = |(n, sidecar): (usize, &Sidecar)| {
        let path = dir.join(format!("{n}.mgza"));
        sidecar.write(&path).expect("written");
        path
    };
    list.iter().enumerate().map(path).collect()
}

/// A full trace by process: for each (process, mapped file, address) `count` `ptwrite`s at `shift +
/// 24 n` in it.
fn processes(list: &[(u32, &str, u64, u64)], build_id: Option<&[u8]>) -> PerfFile {
    let mut file = PerfFile::new(
        RecordingKind::PerThread,
        list.len() as u32,
        (true, false, false),
    );
    for &(pid, path, base, _) in list {
        file.comm(pid, pid, 1);
        file.map(pid, base, 0x1000, 0, path, build_id, 2);
    }
    for (buffer, &(pid, _, base, shift)) in (0..).zip(list) {
        file.start(pid, pid, 3, u32::MAX, buffer);
        let mut encoder = Encoder::new(PLAIN_STYLE);
        for n in 0..200 {
            encoder.write(Write {
                ip: base + shift + n % 64 * 24,
                payload: 0x1000 * u64::from(pid) + n,
                tsc: 100 + n,
            });
        }
        file.aux(
            0,
            encoder.bytes.len() as u64,
            0,
            pid,
            pid,
            1_000_000,
            0,
            buffer,
        );
        file.auxtrace(&encoder.bytes, 0, buffer, pid, u32::MAX);
    }
    file.round();
    file
}

/// By process: number of rows, and the path of their module.
fn modules_of(manifest: &Manifest) -> BTreeMap<u32, (u64, Vec<(String, String)>)> {
    let mut out: BTreeMap<u32, (u64, Vec<(String, String)>)> = BTreeMap::new();
    for thread in &manifest.threads {
        out.entry(thread.process).or_default().0 += thread.rows;
    }
    for module in &manifest.modules {
        for load in &module.loads {
            out.entry(load.process)
                .or_default()
                .1
                .push((module.path.clone(), module.sidecar_id.clone()));
        }
    }
    out
}

const ID: [u8; 20] = [0xa7; 20];

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// One original, instrumented in two ways: the build id is the same, the addresses of `ptwrite`s
/// are not.
#[test]
fn files_of_one_original_have_each_their_own_sidecar() {
    let id = hex(&ID);
    for (paths, outputs, known) in [
        // Distinguished by their names, or by the folders above equal names, in either order.
        (
            ["/x/app.one", "/x/app.two"],
            ["/b/app.one", "/b/app.two"],
            true,
        ),
        (["/x/1/app", "/x/2/app"], ["/b/1/app", "/b/2/app"], true),
        (["/x/app.one", "/x/app.two"], ["app.one", "app.two"], true),
        // Not distinguishable.
        (["/x/app", "/y/app"], ["/b/app", "/c/app"], false),
        (["/x/p", "/y/q"], ["/b/app.one", "/c/app.two"], false),
    ] {
        let dir = tempfile::tempdir().expect("a folder");
        let first = sidecar(outputs[0], &id, 0, 8, 100);
        // Their record numbers may overlap, since no process has both.
        let second = sidecar(outputs[1], &id, 8, 16, 120);
        let ids = [first.id_hex(), second.id_hex()];
        let files = put(dir.path(), &[first, second]);
        let list = [
            (1000, paths[0], BASE, 0),
            (1001, paths[1], BASE + 0x1_0000, 8),
        ];
        let bytes = processes(&list, Some(&ID)).finish();
        for given in [[&*files[0], &*files[1]], [&*files[1], &*files[0]]] {
            let done = trace(&bytes, dir.path(), &given);
            if !known {
                let error = done.unwrap_err();
                assert!(
                    error.contains("both describe a file with the build id of"),
                    "{error}"
                );
                continue;
            }
            let manifest = done.unwrap();
            let found = modules_of(&manifest);
            for (process, path, id) in [(1000, paths[0], &ids[0]), (1001, paths[1], &ids[1])] {
                assert_eq!(
                    found[&process],
                    (200, vec![(path.to_owned(), id.clone())]),
                    "{paths:?}"
                );
            }
            assert_eq!(manifest.totals.dropped, BTreeMap::new());
        }
        // With only one of the sidecars, the other file's `ptwrite`s belong to none, not to the
        // given one.
        if known {
            let manifest = trace(&bytes, dir.path(), &[&files[0]]).unwrap();
            assert_eq!(manifest.totals.rows, 200);
            assert_eq!(manifest.totals.dropped["unresolved_ips"], 200);
        }
    }
}

/// Overlapping record numbers in one process cannot be distinguished, even if it executes one file
/// after the other.
#[test]
fn one_process_with_both_files_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let id = hex(&ID);
    let list = [
        sidecar("/x/app.one", &id, 0, 8, 100),
        sidecar("/x/app.two", &id, 8, 16, 120),
        sidecar("/x/app.two", &id, 8, 16, 1000),
    ];
    let files = put(dir.path(), &list);
    let both = [
        (1000, "/x/app.one", BASE, 0),
        (1000, "/x/app.two", BASE + 0x1_0000, 8),
    ];
    let bytes = processes(&both, Some(&ID)).finish();
    let error = trace(&bytes, dir.path(), &[&files[0], &files[1]]).unwrap_err();
    assert!(error.contains("record numbers overlap"), "{error}");
    let manifest = trace(&bytes, dir.path(), &[&files[0], &files[2]]).unwrap();
    assert_eq!(manifest.totals.rows, 400);
    assert_eq!(manifest.modules.len(), 2);
}

/// The original program, or a copy of the instrumented one, shares only the build id with it.
#[test]
fn a_renamed_file_is_known_by_its_build_id() {
    let dir = tempfile::tempdir().expect("a folder");
    let files = put(dir.path(), &[sidecar("/x/app.one", &hex(&ID), 0, 8, 100)]);
    let bytes = processes(&[(1000, "/y/renamed", BASE, 0)], Some(&ID)).finish();
    let manifest = trace(&bytes, dir.path(), &[&files[0]]).unwrap();
    assert_eq!((manifest.totals.rows, manifest.modules.len()), (200, 1));
    assert_eq!(manifest.modules[0].path, "/y/renamed");
}

/// A linker can make build ids of any length (`--build-id=0x…`, `fast`, `uuid`); records hold up to
/// 20 bytes.
#[test]
fn build_ids_of_any_length_name_their_files() {
    let long: Vec<u8> = (1..=32).collect();
    for length in [8, 16, 20, 32] {
        let own = hex(&long[..length]);
        let in_record = &long[..length.min(20)];
        let padded: Vec<u8> = in_record.iter().copied().chain([0; 20]).take(20).collect();
        let dir = tempfile::tempdir().expect("a folder");
        // The names do not distinguish the files.
        let files = put(
            dir.path(),
            &[
                sidecar("/b/other", "ffffffffffffffff", 0, 24, 1000),
                sidecar("/b/app", &own, 0, 8, 100),
            ],
        );
        let list = [(1000, "/x/renamed", BASE, 0)];
        let build_id = |misc: u16, size: u8| {
            let mut body = u32::MAX.to_le_bytes().to_vec();
            body.extend_from_slice(&padded);
            body.extend_from_slice(&[size, 0, 0, 0]);
            body.extend_from_slice(b"/x/renamed\0\0\0\0\0\0");
            (2 | misc, body)
        };
        // In the mapping; in a record with the length; in one of older perf, without the length.
        for form in [
            None,
            Some(build_id(1 << 15, in_record.len() as u8)),
            Some(build_id(0, 0)),
        ] {
            let mut file = processes(
                &list,
                if form.is_none() {
                    Some(in_record)
                } else {
                    None
                },
            );
            let what = format!("{length} bytes, {form:?}");
            if let Some((misc, body)) = form {
                file.record(67, misc, &body);
            }
            let manifest = trace(&file.finish(), dir.path(), &[&files[0], &files[1]]).expect(&what);
            assert_eq!(manifest.totals.rows, 200, "{what}");
            assert_eq!(manifest.modules[0].build_id, own, "{what}");
        }
        // An id with the same beginning belongs to another file.
        let mut other = padded.clone();
        other[7] ^= 1;
        let bytes = processes(&list, Some(&other)).finish();
        let error = trace(&bytes, dir.path(), &[&files[0], &files[1]]).unwrap_err();
        assert!(error.contains("are of other files"), "{error}");
    }
}

/// A second sampling event, with ids of its own.
const SECOND_EVENT: u64 = 250;

fn sampling(pmu: u32, period: u64, sample_type: u64) -> Vec<u8> {
    let flags = 1 << 1 | 1 << 5 | 1 << 6 | 1 << 18;
    file::attr(pmu, 0x81d0, period, sample_type, flags, 8192)
}

const IDENTITY: u64 = file::IP | file::TID | file::TIME | file::CPU | file::IDENTIFIER;

/// A sample of the second event.
fn second_sample(file: &mut PerfFile, cpu: u32, tid: u32, tsc: u64, fields: &[u64], aux: &[u8]) {
    let mut body = words_as_bytes(&[
        SECOND_EVENT + u64::from(cpu),
        0,
        file::pair(1000, tid),
        file::ns(tsc),
        u64::from(cpu),
    ]);
    body.extend(words_as_bytes(fields));
    let length = aux.len().next_multiple_of(8);
    body.extend(words_as_bytes(&[length as u64]));
    body.extend_from_slice(aux);
    body.resize(body.len() + length - aux.len(), 0);
    file.record(9, 2, &body);
}

#[test]
fn events_that_take_samples_have_each_their_own_period() {
    let mut random = SmallRandom(63);
    let encoder = stream(&mut random, PLAIN_STYLE, 3_000, false);
    let windows: Vec<_> = ends(&encoder.places, 2_000)
        .iter()
        .map(|p| (p.end.saturating_sub(2_500)..p.end, p.write.tsc))
        .collect();
    let make = |second: Vec<u8>, fields: &dyn Fn(usize) -> Vec<u64>| {
        let mut file = PerfFile::new(RecordingKind::Samples, 2, (true, false, false));
        file.more
            .push((second, vec![SECOND_EVENT, SECOND_EVENT + 1]));
        file.comm(1000, 1000, 1);
        for (n, (window, tsc)) in windows.iter().enumerate() {
            let bytes = &encoder.bytes[window.clone()];
            if n % 3 == 0 {
                file.sample(bytes, 0, 1000, 1000, *tsc, 0);
            } else {
                second_sample(&mut file, 1, 1001, *tsc, &fields(n), bytes);
            }
        }
        file
    };
    let (first, second) = (
        windows.len().div_ceil(3),
        windows.len() - windows.len().div_ceil(3),
    );
    let counted = |file: &PerfFile| {
        let mut all = Vec::new();
        for bytes in [file.finish(), file.finish_pipe(), file.finish_compressed()] {
            let session = Session::read(&bytes).expect("whole");
            assert_eq!(session.loss.unknown_ids + session.loss.bad_records, 0);
            assert_eq!(session.windows.len(), windows.len());
            assert_eq!(
                session
                    .sampling
                    .iter()
                    .map(|s| s.windows)
                    .collect::<Vec<_>>(),
                [first as u64, second as u64]
            );
            let manifest = account::begin_import(&session);
            all.push((
                account::executed(&session),
                manifest.trigger,
                manifest.period,
                manifest.trigger_why,
            ));
        }
        assert!(all.windows(2).all(|w| w[0] == w[1]), "{all:?}");
        all.remove(0)
    };
    // One event per core PMU, with fixed periods, which need not be in the samples.
    let (executed, trigger, period, why) =
        counted(&make(sampling(10, 7_000, IDENTITY | file::AUX), &|_| {
            Vec::new()
        }));
    assert_eq!(executed, Some((first * 1000 + second * 7000) as f64));
    assert_eq!((trigger.as_str(), period), ("loads", 0));
    assert_eq!(
        why,
        format!("{first} samples every 1,000 loads, {second} samples every 7,000 loads")
    );
    // The same period.
    let same = counted(&make(sampling(10, 1_000, IDENTITY | file::AUX), &|_| {
        Vec::new()
    }));
    assert_eq!(same.0, Some(windows.len() as f64 * 1000.0));
    assert_eq!((same.2, same.3.as_str()), (1000, ""));
    // A changing period, which is in each sample.
    let with_period = sampling(10, 5_000, IDENTITY | file::PERIOD | file::AUX);
    let changing = counted(&make(with_period, &|n| {
        vec![if n < 10 { 5_000 } else { 20_000 }]
    }));
    let long = (0..windows.len())
        .filter(|n| n % 3 != 0 && *n >= 10)
        .count();
    assert_eq!(
        changing.0,
        Some((first * 1000 + (second - long) * 5_000 + long * 20_000) as f64)
    );
    assert!(
        changing.3.contains("every 5,000 to 20,000 loads"),
        "{}",
        changing.3
    );
    // With a clock and a counter, the number of executed loads is unknown.
    let mut clock = sampling(1, 1_000_000, IDENTITY | file::AUX);
    clock[8..16].fill(0);
    let mixed = counted(&make(clock, &|_| Vec::new()));
    assert_eq!((mixed.0, mixed.1.as_str()), (None, "mixed"));
    assert!(mixed.3.contains("every 1.00M ns"), "{}", mixed.3);
}

/// Equally named fields differ in length by event: branches with an index or counters, registers.
#[test]
fn events_that_differ_in_branches_or_registers_are_told_apart() {
    const BRANCHES: u64 = 1 << 11;
    const USER: u64 = 1 << 12;
    const INTERRUPTED: u64 = 1 << 18;
    let encoder = stream(&mut SmallRandom(64), PLAIN_STYLE, 100, false);
    let common = IDENTITY | file::PERIOD | file::AUX;
    // Bit of the field; offset and value of the second event's attribute; content of the field in
    // its samples.
    for (bit, at, asked, fields) in [
        (BRANCHES, 72, 1u64 << 17, vec![1, 9, 1, 2, 3]),
        (BRANCHES, 72, 1 << 19, vec![1, 1, 2, 3, 7]),
        (USER, 80, 0b111_0000, vec![2, 1, 2, 3]),
        (INTERRUPTED, 96, 0b1_1111, vec![2, 1, 2, 3, 4, 5]),
    ] {
        let mut second = sampling(10, 7_000, common | bit);
        second[at..at + 8].copy_from_slice(&asked.to_le_bytes());
        let mut file = PerfFile::new(RecordingKind::Samples, 2, (true, false, false));
        // The first event has the same fields, of another length.
        file.extra = bit;
        file.more
            .push((second, vec![SECOND_EVENT, SECOND_EVENT + 1]));
        file.comm(1000, 1000, 1);
        file.comm(1000, 1001, 1);
        file.sample(&encoder.bytes, 0, 1000, 1000, 10_000_000, 0);
        let fields = [&[7_000], &fields[..]].concat();
        second_sample(&mut file, 1, 1001, 10_000_001, &fields, &encoder.bytes);
        for bytes in [file.finish(), file.finish_pipe()] {
            let (rows, report) = ours(&bytes);
            let what = format!("{bit:#x} {asked:#x}: {:?}", report.file);
            let rows = by_thread(&rows);
            assert_eq!(rows.len(), 2, "{what}");
            for tid in [1000, 1001] {
                let truth: Vec<_> = encoder.places.iter().map(|p| row(tid, &p.write)).collect();
                assert_eq!(rows[&tid], truth, "{what}");
            }
            let loss = report.file;
            assert_eq!(
                loss.bad_records + loss.odd_samples + loss.unknown_ids,
                0,
                "{what}"
            );
        }
    }
}

/// A sample that cannot be assigned to an event is omitted and counted.
#[test]
fn samples_of_events_without_ids_are_counted() {
    let mut file = PerfFile::new(RecordingKind::Samples, 1, (true, false, false));
    let encoder = stream(&mut SmallRandom(65), PLAIN_STYLE, 100, false);
    file.sample(&encoder.bytes, 0, 1000, 1000, 10, 0);
    let good = file.finish();
    // An event to which no record can be assigned, since no attribute has an id.
    file.more
        .push((sampling(10, 5, file::IP | file::AUX), vec![SECOND_EVENT]));
    let mut bytes = file.finish();
    for event in 0..3 {
        let at = 104 + 3 * 8 + event * 136 + 24;
        let word = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        bytes[at..at + 8].copy_from_slice(&(word & !file::IDENTIFIER).to_le_bytes());
    }
    assert_eq!(Session::read(&good).unwrap().windows.len(), 1);
    let session = Session::read(&bytes).unwrap();
    assert_eq!(session.windows.len(), 0);
    assert!(session.loss.unknown_ids > 0, "{:?}", session.loss);
}

/// Virtual machines are not supported: neither their mappings nor their samples may be taken for
/// the host's.
#[test]
fn what_is_of_virtual_machines_is_left_out_and_named() {
    let encoder = stream(&mut SmallRandom(66), PLAIN_STYLE, 500, false);
    let mut file = PerfFile::new(RecordingKind::Samples, 1, (true, false, false));
    file.comm(1000, 1000, 1);
    file.mmap(1000, BASE, 0x1000, "/nowhere/program", 2);
    file.sample(&encoder.bytes, 0, 1000, 1000, 20_000_000, 0);
    let without = file.finish();
    // A guest's kernel and a program of a guest, mapped where the host's is; samples taken there.
    let mut mapping = words_as_bytes(&[
        file::pair(1000, 1000),
        BASE,
        0x1000,
        0,
        0,
        0,
        0,
        file::pair(5, 2),
    ]);
    mapping.extend_from_slice(b"/guest/one\0\0\0\0\0\0");
    for misc in [4, 5] {
        file.event(10, misc, &mapping, 1000, 1000, 5, 0, 0);
    }
    let before = file.take_records();
    file.sample(&encoder.bytes, 0, 1000, 1000, 30_000_000, 0);
    let mut sample = file.take_records();
    file.append(&before);
    for misc in [4u16, 5] {
        sample[4..6].copy_from_slice(&misc.to_le_bytes());
        file.append(&sample);
    }
    let (rows, report) = ours(&file.finish());
    assert_eq!(rows, ours(&without).0);
    assert_eq!(
        (report.file.guest_samples, report.file.guest_mappings),
        (2, 2)
    );
    let text = report.to_string();
    assert!(
        text.contains("of virtual machines, left out: 2 samples, 2 mappings"),
        "{text}"
    );
    // The same in the trace's summary.
    let dir = tempfile::tempdir().expect("a folder");
    let files = put(dir.path(), &[sidecar("/nowhere/program", "", 0, 8, 100)]);
    let manifest = trace(&file.finish(), dir.path(), &[&files[0]]).unwrap();
    assert_eq!(manifest.totals.dropped["guest_samples"], 2);
    assert_eq!(manifest.totals.dropped["guest_mappings"], 2);
    assert_eq!(manifest.modules.len(), 1);
    let said = manifest
        .problems
        .iter()
        .any(|p| p.contains("virtual machines"));
    assert!(said, "{:?}", manifest.problems);
}

/// `perf inject --guest-data` merges a guest's recording; the index of ids then shows which ids are
/// the guest's.
#[test]
fn ids_of_virtual_machines_are_known_by_the_index() {
    let encoder = stream(&mut SmallRandom(67), PLAIN_STYLE, 500, false);
    let mut file = PerfFile::new(RecordingKind::Samples, 2, (true, false, false));
    file.more.push((
        sampling(4, 1_000, IDENTITY | file::AUX),
        vec![SECOND_EVENT, SECOND_EVENT + 1],
    ));
    let index = |ids: &[u64], machine: u64| {
        let mut body = vec![ids.len() as u64];
        ids.iter().for_each(|id| body.extend([*id, 0, 0, 1000]));
        ids.iter().for_each(|_| body.extend([machine, 0]));
        words_as_bytes(&body)
    };
    file.record(69, 0, &index(&[file::SAMPLE_ID], 0));
    file.record(
        69,
        0,
        &index(&[SECOND_EVENT, SECOND_EVENT + 1, file::PT_ID + 1], 77),
    );
    file.comm(1000, 1000, 1);
    // A mapping with the guest's id.
    let mut mapping = words_as_bytes(&[
        file::pair(1000, 1000),
        BASE,
        0x1000,
        0,
        0,
        0,
        0,
        file::pair(5, 2),
    ]);
    mapping.extend_from_slice(b"/guest/one\0\0\0\0\0\0");
    file.event(10, 2, &mapping, 1000, 1000, 5, 0, 1);
    file.sample(&encoder.bytes, 0, 1000, 1000, 20_000_000, 0);
    second_sample(&mut file, 1, 1000, 20_000_001, &[], &encoder.bytes);
    let bytes = file.finish();
    let session = Session::read(&bytes).unwrap();
    assert_eq!(
        (session.windows.len(), session.spaces.mappings().len()),
        (1, 0)
    );
    let loss = &session.loss;
    assert_eq!(
        (loss.guest_samples, loss.guest_mappings),
        (1, 1),
        "{loss:?}"
    );
}

/// `perf record --threads` writes a folder.
#[test]
fn a_folder_of_perf_is_read_as_one_recording() {
    let mut random = SmallRandom(68);
    let encoder = stream(&mut random, ALL, 8_000, true);
    let all = ends(&encoder.places, 3_000);
    let mut whole = PerfFile::new(RecordingKind::Samples, 1, (true, true, true));
    let mut header = PerfFile::new(RecordingKind::Samples, 1, (true, true, true));
    for file in [&mut whole, &mut header] {
        file.comm(1000, 1000, 1);
        file.mmap(1000, BASE, 0x10_0000, "/nowhere/program", 2);
        file.start(1000, 1000, 3, 0, 0);
    }
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("perf.data");
    std::fs::create_dir(&folder).unwrap();
    // perf's threads alternate; one of them writes nothing.
    let mut parts = [Vec::new(), Vec::new(), Vec::new()];
    for (n, place) in all.iter().enumerate() {
        let bytes = &encoder.bytes[place.end.saturating_sub(4_000)..place.end];
        let mut part = PerfFile::new(RecordingKind::Samples, 1, (true, true, true));
        for file in [&mut whole, &mut part] {
            file.sample(bytes, 0, 1000, 1000, place.write.tsc + 1, 0);
        }
        // Within a stream the order is kept: one file has the first half, another the second.
        parts[usize::from(n >= all.len() / 2) * 2].extend(part.take_records());
    }
    std::fs::write(folder.join("data"), header.finish()).unwrap();
    for (n, part) in parts.iter().enumerate() {
        std::fs::write(folder.join(format!("data.{n}")), part).unwrap();
    }
    std::fs::write(folder.join("data.txt"), "no part").unwrap();
    std::fs::create_dir(folder.join("kcore_dir")).unwrap();
    let mut out = Vec::new();
    let report = raw(&folder, &mut out).expect("a recording");
    let (rows, expected) = ours(&whole.finish());
    assert_eq!(
        String::from_utf8(out).unwrap().lines().count(),
        rows.len() + 1
    );
    assert_eq!(report, expected);
    let windows: Vec<_> = all
        .iter()
        .map(|p| p.end.saturating_sub(4_000)..p.end)
        .collect();
    assert_eq!(rows.len(), readable(&encoder, &windows).len());
    // A folder of something else.
    let error = raw(dir.path(), &mut std::io::sink()).unwrap_err();
    assert!(matches!(error, PerfDataError::NotPerfDataFolder), "{error}");
}

/// Sections of the header that lie outside the file, overlap everything, or are truncated.
#[test]
fn damaged_sections_are_bounded_and_said() {
    const HOSTNAME: u32 = 3;
    const CMDLINE: u32 = 11;
    const BUILD_ID: u32 = 2;
    let mut file = PerfFile::new(RecordingKind::Samples, 1, (true, true, true));
    let encoder = stream(&mut SmallRandom(69), ALL, 200, false);
    file.sample(&encoder.bytes, 0, 1000, 1000, 20_000_000, 0);
    let plain = file.finish();
    let with = |sections: &[(u32, u64, u64)], tail: &[u8]| {
        let mut bytes = plain.clone();
        let set: u64 = sections.iter().fold(0, |set, s| set | 1 << s.0);
        bytes[72..80].copy_from_slice(&set.to_le_bytes());
        sections
            .iter()
            .for_each(|s| bytes.extend(words_as_bytes(&[s.1, s.2])));
        bytes.extend_from_slice(tail);
        bytes
    };
    let behind = |sections: u64| plain.len() as u64 + 16 * sections;
    let rows = ours(&plain).0;
    let host = b"\x04\0\0\0me\0\0".to_vec();
    let good = with(&[(HOSTNAME, behind(1), 8)], &host);
    assert_eq!(ours(&good).1.file.bad_sections, 0);
    assert_eq!(Session::read(&good).unwrap().host, "me");
    let huge = u64::MAX / 2;
    let mut strings = u32::MAX.to_le_bytes().to_vec();
    strings.resize(64, 0);
    let cases = [
        (with(&[(HOSTNAME, huge, 8)], &[]), 1),
        (with(&[(HOSTNAME, behind(1), huge)], &host), 1),
        (with(&[(HOSTNAME, u64::MAX, u64::MAX)], &[]), 1),
        (
            with(&[(HOSTNAME, behind(1), 8)], b"\xff\xff\xff\x7fme\0\0"),
            1,
        ),
        (with(&[(HOSTNAME, behind(1), 0)], &[]), 1),
        (with(&[(CMDLINE, behind(1), 64)], &strings), 1),
        (with(&[(BUILD_ID, behind(1), 40)], &[0xff; 40]), 1),
        // The table itself ends behind its first entry.
        (
            with(&[(HOSTNAME, behind(1), 8)], &[])[..plain.len() + 10].to_vec(),
            1,
        ),
    ];
    for (n, (bytes, bad)) in cases.iter().enumerate() {
        let (read, report) = ours(bytes);
        assert_eq!(read, rows, "case {n}");
        assert!(
            report.file.bad_sections >= *bad,
            "case {n}: {:?}",
            report.file
        );
        assert!(
            report.to_string().contains("sections of the file's header"),
            "case {n}"
        );
    }
    // Sections behind an unreadable one are read.
    let two = with(
        &[(HOSTNAME, huge, 8), (CMDLINE, behind(2), 12)],
        b"\x01\0\0\0\x04\0\0\0cmd\0",
    );
    assert_eq!(Session::read(&two).unwrap().command, ["cmd"]);
    let dir = tempfile::tempdir().expect("a folder");
    let files = put(dir.path(), &[sidecar("/nowhere/program", "", 0, 8, 100)]);
    file.mmap(1000, BASE, 0x1000, "/nowhere/program", 2);
    let mut bytes = file.finish();
    bytes[72] = 1 << HOSTNAME;
    bytes.extend(words_as_bytes(&[huge, 8]));
    let manifest = trace(&bytes, dir.path(), &[&files[0]]).unwrap();
    assert_eq!(manifest.totals.dropped["bad_sections"], 1);
}

/// Branch records in samples.
const BRANCH_STACK: u64 = 1 << 11;

/// Seeds of the fuzz target: call chains, two sampling events, build ids, virtual machines, sections of the
/// header.
pub fn seeds(encoder: &Encoder) -> Vec<(&'static str, Vec<u8>)> {
    let mut file = PerfFile::new(RecordingKind::Samples, 2, (true, true, true));
    let second = sampling(10, 7_000, IDENTITY | file::PERIOD | file::AUX);
    file.more
        .push((second, vec![SECOND_EVENT, SECOND_EVENT + 1]));
    let mut index = vec![1, SECOND_EVENT + 1, 1, 1, 1001];
    index.extend([77, 0]);
    file.record(69, 0, &words_as_bytes(&index));
    file.comm(1000, 1000, 1);
    file.map(1000, BASE, 0x1000, 0, "/nowhere/program", Some(&ID[..8]), 2);
    for place in ends(&encoder.places, 500) {
        let bytes = &encoder.bytes[place.end.saturating_sub(600)..place.end];
        let tsc = place.write.tsc;
        file.sample(bytes, 0, 1000, 1000, tsc, 0);
        second_sample(&mut file, 0, 1000, tsc, &[9_000], bytes);
        second_sample(&mut file, 1, 1001, tsc, &[9_000], bytes);
    }
    let mut body = u32::MAX.to_le_bytes().to_vec();
    body.extend_from_slice(&ID);
    body.extend_from_slice(&[8, 0, 0, 0]);
    body.extend_from_slice(b"/nowhere/program\0\0\0\0\0\0\0\0");
    file.record(67, 2 | 1 << 15, &body);
    let pipe = file.finish_pipe();
    let mut bytes = file.finish();
    let at = bytes.len() as u64 + 32;
    bytes[72..80].copy_from_slice(&(1u64 << 3 | 1 << 11).to_le_bytes());
    bytes.extend(words_as_bytes(&[at, 8, at + 8, 12]));
    bytes.extend_from_slice(b"\x04\0\0\0me\0\0\x01\0\0\0\x04\0\0\0cmd\0");
    let mut chains = PerfFile::new(RecordingKind::Samples, 1, (true, false, false));
    chains.extra = file::CALLCHAIN | BRANCH_STACK;
    chains.mmap(1000, BASE, 0x1000, "/nowhere/program", 2);
    chains.mmap(1000, BASE + 0x2000, 0x1000, "/proc/self/exe", 2);
    for (n, place) in ends(&encoder.places, 500).into_iter().enumerate() {
        let bytes = &encoder.bytes[place.end.saturating_sub(300)..place.end];
        let kernel = [-128i64 as u64, 0xffff_ffff_8100_0000];
        let user = [file::USER, BASE + 0x10, BASE + 0x2015, BASE + 0x33];
        chains.chain = [&kernel[..n % 2 * 2], &user[..]].concat();
        chains.sample(bytes, BASE, 1000, 1000, place.write.tsc, 0);
    }
    vec![
        ("mixed", bytes),
        ("mixed-pipe", pipe),
        ("chains", chains.finish()),
    ]
}
