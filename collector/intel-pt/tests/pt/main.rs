//! PT recordings that the tests make themselves, read by us and by `perf script`.
//!
//! The encoder knows the written events, so both readers are compared with them and with each
//! other. Parts that need `perf` say so and are skipped where it is absent.

#![allow(missing_docs, reason = "tests")]
#![allow(clippy::too_many_arguments, reason = "records have many fields")]

mod chains;
mod encode;
mod file;
mod forms;
mod golden;
mod libipt;
mod memory;
mod memory_file;
mod mixed;
mod sidecars;
mod words;

use encode::{Encoder, PacketSpan, SmallRandom, Style, Write, writes};
use file::{PerfFile, RecordingKind};
use mgz_intel_pt::import::dump::{RawReport, raw_bytes};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A row of either reader: thread, IP, payload.
type Row = (u32, u64, u64);

const ALL: Style = Style {
    psb_every: 1500,
    tsc: true,
    mtc: true,
    cyc: true,
    fup: true,
};

const TSC_ALONE: Style = Style {
    mtc: false,
    cyc: false,
    ..ALL
};

fn ours(file: &[u8]) -> (Vec<(u32, u64, Row)>, RawReport) {
    let mut out = Vec::new();
    let report = raw_bytes(file, &mut out).expect("a whole file");
    let text = String::from_utf8(out).expect("text");
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("sample\ttime_ns\ttid\tip\tpayload"));
    let hex =
        |s: &str| u64::from_str_radix(s.strip_prefix("0x").expect("0x"), 16).expect("hexadecimal");
    let rows = lines.map(|line| {
        let f: Vec<_> = line.split('\t').collect();
        let number = |n: usize| f[n].parse::<u64>().expect("a number");
        (
            number(0) as u32,
            number(1),
            (number(2) as u32, hex(f[3]), hex(f[4])),
        )
    });
    (rows.collect(), report)
}

fn has_perf() -> bool {
    let found = std::process::Command::new("perf")
        .arg("--version")
        .output()
        .is_ok_and(|o| o.status.success());
    if !found {
        eprintln!("SKIPPED: perf is not installed, so its reading is not compared");
    }
    found
}

/// Rows of `perf script --itrace=w` with their times, by thread. `None` without perf.
fn perf(file: &[u8]) -> Option<BTreeMap<u32, Vec<(u64, Row)>>> {
    if !has_perf() {
        return None;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("perf.data");
    std::fs::write(&path, file).expect("written");
    Some(perf_file(&path))
}

fn perf_file(path: &Path) -> BTreeMap<u32, Vec<(u64, Row)>> {
    let output = std::process::Command::new("perf")
        .args([
            "script",
            "--itrace=w",
            "--ns",
            "-F",
            "tid,time,event,synth,ip",
            "-f",
            "-i",
        ])
        .arg(path)
        .output()
        .expect("perf runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let mut rows: BTreeMap<u32, Vec<(u64, Row)>> = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Some((head, tail)) = line.split_once("ptwrite:") else {
            continue;
        };
        let mut head = head.split_whitespace();
        let tid: u32 = head.next().expect("thread").parse().unwrap_or(u32::MAX);
        let time = head.next().map_or(0, |t| {
            t.trim_end_matches(':')
                .replace('.', "")
                .parse()
                .unwrap_or(0)
        });
        let tokens: Vec<_> = tail.split_whitespace().collect();
        assert!(tokens[0] == "IP:" && tokens[2] == "payload:", "{line}");
        let hex = |s: &str| u64::from_str_radix(s.trim_start_matches("0x"), 16).unwrap_or(0);
        // perf prints a symbol for some files. It is unknown here, since there is no program.
        let last = tokens
            .iter()
            .rposition(|t| *t != "[unknown]")
            .expect("the IP");
        let ip = hex(tokens[last]);
        rows.entry(tid)
            .or_default()
            .push((time, (tid, ip, hex(tokens[3]))));
    }
    rows
}

fn row(tid: u32, write: &Write) -> Row {
    (tid, write.ip, write.payload)
}

/// Rows by thread, in order.
fn by_thread(rows: &[(u32, u64, Row)]) -> BTreeMap<u32, Vec<Row>> {
    let mut map: BTreeMap<u32, Vec<Row>> = BTreeMap::new();
    for (_, _, row) in rows {
        map.entry(row.0).or_default().push(*row);
    }
    map
}

fn assert_same(ours: &BTreeMap<u32, Vec<Row>>, theirs: &BTreeMap<u32, Vec<Row>>, what: &str) {
    assert_eq!(
        ours.keys().collect::<Vec<_>>(),
        theirs.keys().collect::<Vec<_>>(),
        "{what}: threads"
    );
    for (tid, rows) in ours {
        let other = &theirs[tid];
        if let Some(at) = rows.iter().zip(other).position(|(a, b)| a != b) {
            panic!(
                "{what}: thread {tid} differs at row {at} of {}: {:x?} and {:x?}",
                rows.len(),
                rows[at],
                other[at]
            );
        }
        assert_eq!(rows.len(), other.len(), "{what}: rows of thread {tid}");
    }
}

fn assert_perf_agrees(file: &[u8], mine: &BTreeMap<u32, Vec<Row>>, what: &str) {
    if let Some(theirs) = perf(file) {
        let theirs = theirs
            .into_iter()
            .map(|(tid, rows)| (tid, rows.into_iter().map(|r| r.1).collect()))
            .collect();
        assert_same(mine, &theirs, &format!("{what}, against perf script"));
    }
}

/// A stream of one thread, with overflows now and then.
fn stream(random: &mut SmallRandom, style: Style, count: usize, overflows: bool) -> Encoder {
    let mut encoder = Encoder::new(style);
    for write in writes(random, count, 1_000_000) {
        if overflows && random.below(500) == 0 {
            encoder.overflow(write);
        } else {
            encoder.write(write);
        }
    }
    encoder
}

/// Readable events of windows of a stream, each once: those after the first PSB of a window.
fn readable(encoder: &Encoder, windows: &[std::ops::Range<usize>]) -> Vec<Write> {
    let places = encoder.readable(windows).into_iter().flatten();
    places.map(|place| encoder.places[place].write).collect()
}

/// Ends of packets at about `every` bytes.
fn ends(places: &[PacketSpan], every: usize) -> Vec<&PacketSpan> {
    let mut at = 0;
    let mut out = Vec::new();
    for place in places {
        if place.end >= at + every {
            out.push(place);
            at = place.end;
        }
    }
    out
}

#[test]
fn overlapping_windows_of_several_threads_give_each_event_once() {
    let mut random = SmallRandom(1);
    for (style, every, size, overflows) in [
        (ALL, 4096, 8192, false),
        (ALL, 4096, 8192, true),
        (TSC_ALONE, 3000, 8192, true),
        (
            Style {
                psb_every: 4000,
                ..ALL
            },
            9000,
            8192,
            true,
        ),
        (
            Style {
                psb_every: 300,
                cyc: false,
                ..ALL
            },
            700,
            1408,
            false,
        ),
    ] {
        let what = format!("{style:?}, every {every}, size {size}, overflows {overflows}");
        let mut file = PerfFile::new(RecordingKind::Samples, 3, (style.tsc, style.mtc, style.cyc));
        file.comm(1000, 1000, 1);
        file.mmap(1000, 0x5555_5555_0000, 0x10_0000, "/nowhere/program", 2);
        let mut truth: BTreeMap<u32, Vec<Row>> = BTreeMap::new();
        let mut samples = Vec::new();
        for cpu in 0..3u32 {
            let tid = 1000 + cpu;
            file.comm(1000, tid, 3);
            file.start(1000, tid, 3, cpu, cpu);
            file.switch(false, 1000, tid, 4, cpu);
            let encoder = stream(&mut random, style, 20_000, overflows);
            let ends = ends(&encoder.places, every);
            let windows: Vec<_> = ends
                .iter()
                .map(|p| p.end.saturating_sub(size)..p.end)
                .collect();
            truth.insert(
                tid,
                readable(&encoder, &windows)
                    .iter()
                    .map(|w| row(tid, w))
                    .collect(),
            );
            for (place, window) in ends.iter().zip(windows) {
                samples.push((
                    place.write.tsc + 1,
                    cpu,
                    tid,
                    encoder.bytes[window].to_vec(),
                ));
            }
        }
        samples.sort_by_key(|s| s.0);
        for (tsc, cpu, tid, bytes) in &samples {
            file.sample(bytes, 0x5555_5555_1000, 1000, *tid, *tsc, *cpu);
        }
        file.round();
        let bytes = file.finish();
        let (rows, report) = ours(&bytes);
        assert_same(&by_thread(&rows), &truth, &what);
        assert_eq!(
            report.totals.events,
            truth.values().map(|r| r.len() as u64).sum::<u64>()
        );
        assert_eq!(report.totals.loss.bad_packets, 0, "{what}");
        assert_eq!(report.totals.overlaps > 0, every < size, "{what}");
        assert_eq!(report.totals.loss.overflows > 0, overflows, "{what}");
        assert_perf_agrees(&bytes, &truth, &what);
        for (form, bytes) in [
            ("pipe", file.finish_pipe()),
            ("compressed", file.finish_compressed()),
        ] {
            let (again, second) = ours(&bytes);
            assert_eq!(again, rows, "{what}, {form}");
            assert_eq!(second.file, report.file, "{what}, {form}");
        }
        // perf itself searches for AUX samples before it decompresses, so it finds none in
        // compressed files.
    }
}

/// Pieces end anywhere, as the kernel's do, also inside packets and PSBs. perf 6.1 loses a pair
/// that is split between two pieces, and the IPs after it up to the next PSB, so it is compared
/// only if pieces end between pairs.
#[test]
fn a_full_trace_of_threads_is_put_together_from_its_pieces() {
    for anywhere in [true, false] {
        let mut random = SmallRandom(2);
        let mut file = PerfFile::new(RecordingKind::PerThread, 2, (true, true, false));
        let style = Style { cyc: false, ..ALL };
        file.comm(1000, 1000, 1);
        let mut truth: BTreeMap<u32, Vec<Row>> = BTreeMap::new();
        let mut pieces = Vec::new();
        for buffer in 0..2u32 {
            let tid = 1000 + buffer;
            file.start(1000, tid, 3, u32::MAX, buffer);
            let mut encoder = stream(&mut random, style, 40_000, true);
            encoder.pad(5);
            truth.insert(
                tid,
                encoder.places.iter().map(|p| row(tid, &p.write)).collect(),
            );
            let mut at = 0;
            while at < encoder.bytes.len() {
                let mut to = (at + 1 + random.below(60_000) as usize).min(encoder.bytes.len());
                if !anywhere {
                    let place = encoder.places.partition_point(|p| p.end < to);
                    to = encoder
                        .places
                        .get(place)
                        .map_or(encoder.bytes.len(), |p| p.end);
                }
                pieces.push((at, buffer, tid, encoder.bytes[at..to].to_vec()));
                at = to;
            }
            file.aux(
                0,
                encoder.bytes.len() as u64,
                0,
                1000,
                tid,
                1_000_000_000,
                0,
                buffer,
            );
        }
        pieces.sort_by_key(|p| (p.0, p.1));
        for (offset, buffer, tid, bytes) in &pieces {
            file.auxtrace(bytes, *offset as u64, *buffer, *tid, u32::MAX);
        }
        file.round();
        let bytes = file.finish();
        let (rows, report) = ours(&bytes);
        assert_same(&by_thread(&rows), &truth, "per thread");
        assert_eq!(report.totals.samples, pieces.len() as u64);
        assert_eq!(report.totals.holes, 0);
        // Each row names the piece in which it ends.
        assert!(
            rows.iter()
                .all(|(sample, ..)| (*sample as usize) < pieces.len())
        );
        assert!(
            rows.iter()
                .map(|r| r.0)
                .collect::<std::collections::BTreeSet<_>>()
                .len()
                > pieces.len() / 2
        );
        if !anywhere {
            assert_perf_agrees(&bytes, &truth, "per thread");
        }
        assert_eq!(by_thread(&ours(&file.finish_pipe()).0), truth);
    }
}

#[test]
fn threads_that_share_a_cpu_are_told_apart() {
    let mut random = SmallRandom(3);
    let style = Style { cyc: false, ..ALL };
    let mut file = PerfFile::new(RecordingKind::PerCpu, 1, (true, true, false));
    file.comm(1000, 1000, 1);
    for tid in [1001, 1002] {
        file.comm(1000, tid, 2);
    }
    let mut truth: BTreeMap<u32, Vec<Row>> = BTreeMap::new();
    let mut encoder = Encoder::new(style);
    let mut tsc = 1_000_000;
    let mut from = 0;
    for turn in 0..60u32 {
        let tid = 1000 + turn % 3;
        tsc += 4000;
        if turn < 3 {
            file.start(1000, tid, tsc, 0, 0);
        }
        file.switch(false, 1000, tid, tsc, 0);
        tsc += 1000;
        encoder.timing(tsc);
        for write in writes(&mut random, 300, tsc) {
            encoder.write(write);
            truth.entry(tid).or_default().push(row(tid, &write));
            tsc = write.tsc;
        }
        tsc += 2000;
        file.switch(true, 1000, tid, tsc, 0);
        file.aux(
            from as u64,
            (encoder.bytes.len() - from) as u64,
            0,
            1000,
            tid,
            tsc,
            0,
            0,
        );
        from = encoder.bytes.len();
    }
    file.auxtrace(&encoder.bytes, 0, 0, u32::MAX, 0);
    file.round();
    let bytes = file.finish();
    let (rows, report) = ours(&bytes);
    assert_same(&by_thread(&rows), &truth, "per CPU");
    assert_eq!(report.totals.torn_by_switch, 0);
    assert_perf_agrees(&bytes, &truth, "per CPU");
}

#[test]
fn a_pair_that_a_context_switch_tears_is_dropped_and_counted() {
    let mut file = PerfFile::new(RecordingKind::PerCpu, 1, (true, false, false));
    let mut encoder = Encoder::new(TSC_ALONE);
    encoder.write(Write {
        ip: 0x40_1000,
        payload: 1,
        tsc: 100,
    });
    let torn = encoder.bytes.len() + 6;
    encoder.write(Write {
        ip: 0x40_1010,
        payload: 2,
        tsc: 200,
    });
    encoder.write(Write {
        ip: 0x40_1020,
        payload: 3,
        tsc: 300,
    });
    file.aux(0, torn as u64, 0, 1000, 1000, 250, 0, 0);
    file.aux(
        torn as u64,
        (encoder.bytes.len() - torn) as u64,
        0,
        1000,
        1001,
        400,
        0,
        0,
    );
    file.auxtrace(&encoder.bytes, 0, 0, u32::MAX, 0);
    let (rows, report) = ours(&file.finish());
    let rows: Vec<_> = rows.iter().map(|r| r.2).collect();
    assert_eq!(rows, [(1000, 0x40_1000, 1), (1001, 0x40_1020, 3)]);
    assert_eq!(report.totals.torn_by_switch, 1);
}

#[test]
fn a_hole_in_a_full_trace_loses_only_what_is_in_it() {
    let mut random = SmallRandom(4);
    let encoder = stream(&mut random, TSC_ALONE, 5_000, false);
    let (left, right) = (encoder.places[2_000].end, encoder.places[2_400].end);
    let mut file = PerfFile::new(RecordingKind::PerThread, 1, (true, false, false));
    file.auxtrace(&encoder.bytes[..left], 0, 0, 1000, u32::MAX);
    file.auxtrace(&encoder.bytes[right..], right as u64, 0, 1000, u32::MAX);
    let (rows, report) = ours(&file.finish());
    let expected = readable(&encoder, &[0..left, right..encoder.bytes.len()]);
    assert_eq!(
        rows.iter().map(|r| r.2).collect::<Vec<_>>(),
        expected.iter().map(|w| row(1000, w)).collect::<Vec<_>>()
    );
    assert_eq!(report.totals.holes, 1);
    assert!(report.totals.loss.before_psb_bytes > 0);
    let lost = (encoder.places.len() - 400 - expected.len()) as u64 - 1;
    assert!(
        report.totals.before_psb_ptwrites.abs_diff(lost) <= 2,
        "{} of {lost}",
        report.totals.before_psb_ptwrites
    );
}

/// perf pads each piece to a whole number of words; offsets do not include the padding.
#[test]
fn filling_at_the_end_of_pieces_is_no_data() {
    let mut random = SmallRandom(40);
    let encoder = stream(&mut random, TSC_ALONE, 20_000, false);
    let mut file = PerfFile::new(RecordingKind::PerThread, 1, (true, false, false));
    file.comm(1000, 1000, 1);
    let mut at = 0;
    while at < encoder.bytes.len() {
        let to = (at + 1 + random.below(9_000) as usize).min(encoder.bytes.len());
        let mut piece = encoder.bytes[at..to].to_vec();
        piece.resize(piece.len().next_multiple_of(8), 0);
        file.auxtrace(&piece, at as u64, 0, 1000, u32::MAX);
        at = to;
    }
    let (rows, report) = ours(&file.finish());
    let truth: Vec<_> = encoder.places.iter().map(|p| row(1000, &p.write)).collect();
    assert_eq!(rows.iter().map(|r| r.2).collect::<Vec<_>>(), truth);
    assert_eq!(
        (
            report.totals.overlaps,
            report.totals.holes,
            report.totals.loss.bad_packets
        ),
        (0, 0, 0)
    );
}

#[test]
fn times_follow_the_clock_to_within_a_packet() {
    let mut random = SmallRandom(5);
    for (style, tolerance) in [
        (ALL, 2),
        (Style { cyc: false, ..ALL }, 330),
        (Style { mtc: false, ..ALL }, 2),
    ] {
        let encoder = stream(&mut random, style, 20_000, false);
        let mut file = PerfFile::new(
            RecordingKind::PerThread,
            1,
            (style.tsc, style.mtc, style.cyc),
        );
        file.auxtrace(&encoder.bytes, 0, 0, 1000, u32::MAX);
        let (rows, _) = ours(&file.finish());
        assert_eq!(rows.len(), encoder.places.len());
        let mut before = 0;
        for ((_, time, _), place) in rows.iter().zip(&encoder.places) {
            let true_time = file::ns(place.write.tsc);
            assert!(
                time.abs_diff(true_time) <= tolerance,
                "{time} for {true_time} with {style:?}"
            );
            assert!(*time >= before);
            before = *time;
        }
    }
}

#[test]
fn without_fups_payloads_come_alone() {
    let mut random = SmallRandom(6);
    let style = Style { fup: false, ..ALL };
    let encoder = stream(&mut random, style, 1_000, false);
    let mut file = PerfFile::new(RecordingKind::PerThread, 1, (true, true, true));
    file.auxtrace(&encoder.bytes, 0, 0, 1000, u32::MAX);
    let (rows, report) = ours(&file.finish());
    assert_eq!(
        rows.iter().map(|r| r.2).collect::<Vec<_>>(),
        encoder
            .places
            .iter()
            .map(|p| (1000, 0, p.write.payload))
            .collect::<Vec<_>>()
    );
    assert_eq!(report.totals.loss.torn, 0);
}

/// Reading a damaged file ends without a panic, regardless of the damage.
#[test]
fn damaged_files_never_panic() {
    let mut random = SmallRandom(7);
    let encoder = stream(&mut random, ALL, 800, true);
    let mut samples = PerfFile::new(RecordingKind::Samples, 1, (true, true, true));
    samples.comm(1000, 1000, 1);
    samples.mmap(1000, 0x5555_5555_0000, 0x10_0000, "/nowhere/program", 2);
    for place in ends(&encoder.places, 1024) {
        samples.sample(
            &encoder.bytes[place.end.saturating_sub(2048)..place.end],
            0,
            1000,
            1000,
            place.write.tsc,
            0,
        );
    }
    let mut full = PerfFile::new(RecordingKind::PerCpu, 1, (true, true, true));
    full.aux(0, encoder.bytes.len() as u64, 0, 1000, 1000, 1, 0, 0);
    full.auxtrace(&encoder.bytes, 0, 0, u32::MAX, 0);
    let files = [
        samples.finish(),
        samples.finish_pipe(),
        samples.finish_compressed(),
        full.finish(),
    ];
    for file in &files {
        for cut in (0..file.len()).step_by(file.len() / 80) {
            let _ = raw_bytes(&file[..cut], &mut std::io::sink());
        }
        for _ in 0..500 {
            let mut damaged = file.clone();
            for _ in 0..=random.below(4) {
                // Often at the start, where the headers are.
                let reach = if random.below(2) == 0 {
                    1200.min(damaged.len())
                } else {
                    damaged.len()
                };
                let at = random.below(reach as u64) as usize;
                damaged[at] = match random.below(3) {
                    0 => 0xff,
                    1 => 0,
                    _ => random.next() as u8,
                };
            }
            let _ = raw_bytes(&damaged, &mut std::io::sink());
        }
    }
}

/// The capture of real hardware gives exactly what perf prints, in the same order, sample by
/// sample.
#[test]
fn the_real_capture_reads_as_perf_reads_it() {
    let packed = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/pt/data/ubench-ptwrite-geminilake.perf.data.zst");
    let file = std::fs::File::open(&packed)
        .unwrap_or_else(|e| panic!("{}: part of the repository: {e}", packed.display()));
    let capture = zstd::decode_all(file).expect("whole");
    let (rows, report) = ours(&capture);
    assert_eq!(rows.len(), 85_859);
    let totals = report.totals;
    assert_eq!(
        (totals.samples, totals.empty_samples, totals.events),
        (252, 90, 85_859)
    );
    assert_eq!(
        (
            totals.loss.bad_packets,
            totals.loss.overflows,
            totals.loss.torn
        ),
        (0, 0, 0)
    );
    assert_eq!(
        (totals.loss.before_psb_bytes, totals.before_psb_ptwrites),
        (171_875, 13_011)
    );
    assert_eq!(report.file.aux_overwritten, 2);
    if has_perf() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("perf.data");
        std::fs::write(&path, &capture).expect("written");
        let theirs = perf_file(&path).remove(&19568).expect("its thread");
        assert_eq!(theirs.len(), rows.len());
        for (at, ((_, time, mine), (their_time, their))) in rows.iter().zip(&theirs).enumerate() {
            assert_eq!(mine, their, "row {at}");
            assert!(
                time.abs_diff(*their_time) < 1000,
                "row {at}: {time} and {their_time}"
            );
        }
    }
}

/// A large recording for `benches/run pt`: MGZ_PT_CAPTURE is the folder, MGZ_PT_MIB the size.
/// Makes `full.data`, `samples.data` and their sidecar `bench.mgza`.
#[test]
#[ignore = "makes files for a measurement"]
fn captures() {
    let dir = PathBuf::from(std::env::var_os("MGZ_PT_CAPTURE").expect("MGZ_PT_CAPTURE"));
    let mib: usize = std::env::var("MGZ_PT_MIB").map_or(256, |n| n.parse().expect("a number"));
    let base = 0x5555_5555_0000;
    let sidecar = sidecars::sidecar("/nowhere/program", "", 0, 0, 0);
    sidecar.write(&dir.join("bench.mgza")).expect("written");
    let mut random = SmallRandom(40);
    let style = Style { cyc: false, ..ALL };
    let mut full = PerfFile::new(RecordingKind::PerThread, 1, (true, true, false));
    let mut samples = PerfFile::new(RecordingKind::Samples, 1, (true, true, false));
    for file in [&mut full, &mut samples] {
        file.comm(1000, 1000, 1);
        file.mmap(1000, base, 0x1_0000, "/nowhere/program", 2);
    }
    samples.start(1000, 1000, 3, 0, 0);
    let (mut tsc, mut at) = (1_000_000, 0);
    while at < mib << 20 {
        let mut encoder = Encoder::new(style);
        for write in writes(&mut random, 300_000, tsc) {
            encoder.write(Write {
                ip: base + write.ip % 64 * 24,
                ..write
            });
            tsc = write.tsc;
        }
        full.auxtrace(&encoder.bytes, at as u64, 0, 1000, u32::MAX);
        let mut from = 0;
        for place in ends(&encoder.places, 8192) {
            samples.sample(
                &encoder.bytes[from..place.end],
                0,
                1000,
                1000,
                place.write.tsc + 1,
                0,
            );
            from = place.end;
        }
        at += encoder.bytes.len();
    }
    std::fs::write(dir.join("full.data"), full.finish()).expect("written");
    drop(full);
    std::fs::write(dir.join("samples.data"), samples.finish()).expect("written");
}

/// The seeds of the fuzz targets `pt_packets` and `perfdata`: `cargo test … --test pt seeds --
/// --ignored` makes them again.
#[test]
#[ignore = "writes into fuzz/seeds"]
fn seeds() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    let put = |target: &str, name: &str, bytes: &[u8]| {
        let folder = folder.join(target);
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join(name), bytes).expect("written");
    };
    let mut random = SmallRandom(20);
    let styles = [
        (
            "all",
            Style {
                psb_every: 300,
                ..ALL
            },
        ),
        (
            "tsc",
            Style {
                psb_every: 300,
                mtc: false,
                cyc: false,
                ..ALL
            },
        ),
        (
            "untimed",
            Style {
                psb_every: 300,
                tsc: false,
                mtc: false,
                cyc: false,
                fup: true,
            },
        ),
        (
            "no-ips",
            Style {
                psb_every: 300,
                fup: false,
                ..ALL
            },
        ),
    ];
    for (name, style) in styles {
        put(
            "pt_packets",
            name,
            &stream(&mut random, style, 60, true).bytes,
        );
    }
    for n in 0..12 {
        let mut bytes = mgz_pt::packet::PSB.to_vec();
        for _ in 0..5 {
            bytes.extend_from_slice(&libipt::noise(&mut random));
        }
        put("pt_packets", &format!("noise-{n}"), &bytes);
    }
    let encoder = stream(
        &mut random,
        Style {
            psb_every: 300,
            ..ALL
        },
        120,
        true,
    );
    let mut samples = PerfFile::new(RecordingKind::Samples, 2, (true, true, true));
    samples.comm(1000, 1000, 1);
    samples.mmap(1000, 0x5555_5555_0000, 0x10_0000, "/nowhere/program", 2);
    samples.start(1000, 1000, 3, 0, 0);
    samples.switch(false, 1000, 1000, 4, 0);
    for place in ends(&encoder.places, 400) {
        samples.sample(
            &encoder.bytes[place.end.saturating_sub(700)..place.end],
            0,
            1000,
            1000,
            place.write.tsc,
            0,
        );
    }
    samples.round();
    let mut threads = PerfFile::new(RecordingKind::PerThread, 2, (true, true, true));
    threads.start(1000, 1001, 3, u32::MAX, 1);
    threads.aux(
        0,
        encoder.bytes.len() as u64,
        5,
        1000,
        1001,
        1_000_000,
        0,
        1,
    );
    let middle = encoder.bytes.len() / 2;
    threads.auxtrace(&encoder.bytes[..middle], 0, 1, 1001, u32::MAX);
    threads.auxtrace(&encoder.bytes[middle..], middle as u64, 1, 1001, u32::MAX);
    let mut cpus = PerfFile::new(RecordingKind::PerCpu, 1, (true, false, false));
    cpus.switch(false, 1000, 1000, 4, 0);
    cpus.switch(true, 1000, 1000, 900_000, 0);
    cpus.aux(0, encoder.bytes.len() as u64, 0, 1000, 1000, 1, 0, 0);
    cpus.auxtrace(&encoder.bytes, 0, 0, u32::MAX, 0);
    for (name, file) in [("samples", samples), ("threads", threads), ("cpus", cpus)] {
        put("perfdata", name, &file.finish());
        put("perfdata", &format!("{name}-pipe"), &file.finish_pipe());
        put(
            "perfdata",
            &format!("{name}-packed"),
            &file.finish_compressed(),
        );
    }
    // Cut packets before PSBs: each of another length.
    let mut cut = Vec::new();
    for (n, write) in writes(&mut random, 12, 1_000).into_iter().enumerate() {
        let mut encoder = Encoder::new(ALL);
        encoder.write(write);
        cut.extend_from_slice(&encoder.bytes);
        cut.extend_from_slice(&[0x02, 0xb2, 0x02, 0x82, 0x02, 0x82, 1, 2, 3, 4][..n.min(10)]);
    }
    put("pt_packets", "cut", &cut);
    for (name, bytes) in mixed::seeds(&encoder) {
        put("perfdata", name, &bytes);
    }
}
