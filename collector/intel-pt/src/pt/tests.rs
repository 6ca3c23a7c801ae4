//! Recordings from transcripts, read back by the importer and by perf; and the parts that need no
//! PT, on the real kernel.

use crate::import::dump::{RawReport, raw_bytes};
use crate::pt::capture::{Capture, Finished};
use crate::pt::open::{OpenError, Sizes, open};
use crate::pt::plan::{Keep, Machine, Request, Role, Timing, Trigger};
use crate::pt::run::{Ended, Job, RunError, run};
use encode::{Encoder, SmallRandom, Style, Write, writes};
use mgz_annotations_schema::ProgramStatus;
use mgz_annotations_schema::lock::locked;
use mgz_perf::attr::{Attr, TYPE_SOFTWARE};
use mgz_perf::kernel_fake::{Fake, PT, ScriptEvent, machine, pair};
use mgz_perf::kernel_linux::Linux;
use mgz_perf::records::kind;
use mgz_perf_data::records::Records;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

#[allow(dead_code, missing_docs, reason = "made for other tests")]
#[path = "../../tests/pt/encode.rs"]
pub(crate) mod encode;
#[path = "../../tests/pt/sidecars.rs"]
pub(crate) mod sidecars;

pub(crate) const PID: u32 = 77;
pub(crate) const STYLE: Style = Style {
    psb_every: 2000,
    tsc: true,
    mtc: false,
    cyc: false,
    fup: true,
};
/// As in [`encode`]: perf's clock runs at half the TSC's rate.
pub(crate) fn ns(tsc: u64) -> u64 {
    tsc / 2
}

/// Bytes of rings.
pub(crate) const fn rings(data: usize, aux: usize) -> Sizes {
    Sizes { data, aux }
}

/// Data of Intel PT that a thread of the program has written.
pub(crate) fn trace_data(cpu: u32, bytes: Vec<u8>, tid: u32, time: u64) -> ScriptEvent {
    ScriptEvent::Pt {
        cpu,
        bytes,
        pid: PID,
        tid,
        time,
    }
}

pub(crate) fn words(list: &[u64]) -> Vec<u8> {
    list.iter().flat_map(|w| w.to_le_bytes()).collect()
}

pub(crate) fn windows(bytes: u32) -> Request {
    Request {
        keep: Keep::Windows {
            bytes,
            trigger: Trigger::Loads(1000),
            pause: false,
        },
        timing: Timing::default(),
        filter: String::new(),
        guests: false,
        stacks: false,
    }
}

pub(crate) fn everything() -> Request {
    Request {
        keep: Keep::Everything,
        timing: Timing::default(),
        filter: String::new(),
        guests: false,
        stacks: false,
    }
}

pub(crate) fn mmap(cpu: u32, start: u64, path: &str, time: u64) -> ScriptEvent {
    let mut body = words(&[pair(PID, PID), start, 0x10_0000, 0, 0, 0, 0, pair(5, 2)]);
    body.extend_from_slice(path.as_bytes());
    body.resize((body.len() + 1).next_multiple_of(8), 0);
    ScriptEvent::Track {
        cpu,
        kind: kind::MMAP2,
        misc: 2,
        body,
        pid: PID,
        tid: PID,
        time,
    }
}

pub(crate) fn comm(cpu: u32, tid: u32, time: u64) -> ScriptEvent {
    let body = [words(&[pair(PID, tid)]), b"program\0".to_vec()].concat();
    ScriptEvent::Track {
        cpu,
        kind: kind::COMM,
        misc: if tid == PID { 1 << 13 } else { 0 },
        body,
        pid: PID,
        tid,
        time,
    }
}

pub(crate) fn switch_in(cpu: u32, tid: u32, time: u64) -> ScriptEvent {
    ScriptEvent::Track {
        cpu,
        kind: kind::SWITCH,
        misc: 2,
        body: Vec::new(),
        pid: PID,
        tid,
        time,
    }
}

/// The start of a program with one thread on each CPU.
pub(crate) fn beginning(threads: u32) -> Vec<ScriptEvent> {
    let mut steps = vec![
        comm(0, PID, 1),
        mmap(0, 0x5555_5555_0000, "/nowhere/program", 2),
    ];
    for thread in 0..threads {
        // A second name of the first thread would be another exec, which unmaps the program.
        if thread > 0 {
            steps.push(comm(thread, PID + thread, 3));
        }
        steps.push(switch_in(thread, PID + thread, 4));
    }
    steps.push(ScriptEvent::Wake);
    steps
}

/// Replays a transcript. Returns the recorder's counts and the file.
pub(crate) fn replay(
    fake: &mut Fake,
    request: &Request,
    sizes: Sizes,
    limit: Option<u64>,
) -> (Finished, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("perf.data");
    let machine = Machine::read(fake).unwrap();
    let opened = open(fake, &machine, request, PID, sizes).unwrap();
    let mut capture = Capture::begin(
        fake,
        opened,
        machine.pt.as_ref(),
        &request.filter,
        PID,
        &path,
        limit,
    )
    .unwrap();
    while capture.wait(Duration::ZERO).unwrap() {
        capture.round();
        // The file is readable at any moment.
        let so_far = std::fs::read(&path).unwrap();
        assert!(!mgz_perf_data::header::layout(&so_far).unwrap().incomplete);
    }
    let finished = capture.finish(vec!["program".into()]);
    (finished, std::fs::read(&path).unwrap())
}

pub(crate) type Rows = BTreeMap<u32, Vec<(u64, u64)>>;

/// Rows read by the importer: `(ip, payload)` by thread.
pub(crate) fn ours(file: &[u8]) -> (Rows, RawReport) {
    let mut out = Vec::new();
    let report = raw_bytes(file, &mut out).unwrap();
    let hex = |s: &str| u64::from_str_radix(s.strip_prefix("0x").unwrap(), 16).unwrap();
    let mut rows = Rows::new();
    for line in String::from_utf8(out).unwrap().lines().skip(1) {
        let f: Vec<_> = line.split('\t').collect();
        rows.entry(f[2].parse().unwrap())
            .or_default()
            .push((hex(f[3]), hex(f[4])));
    }
    (rows, report)
}

fn run_perf(arguments: &[&str], file: &[u8]) -> Option<String> {
    let found = std::process::Command::new("perf")
        .arg("--version")
        .output()
        .is_ok_and(|o| o.status.success());
    if !found {
        eprintln!("SKIPPED: perf is not installed, so its reading is not compared");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("perf.data");
    std::fs::write(&path, file).unwrap();
    let output = std::process::Command::new("perf")
        .args(arguments)
        .arg("-i")
        .arg(&path)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Rows read by `perf script`: `(ip, payload)` by thread.
fn perf_rows(file: &[u8]) -> Option<Rows> {
    let text = run_perf(
        &[
            "script",
            "--itrace=w",
            "--ns",
            "-F",
            "tid,time,event,synth,ip",
            "-f",
        ],
        file,
    )?;
    let hex = |s: &str| u64::from_str_radix(s.trim_start_matches("0x"), 16).unwrap_or(0);
    let mut rows = Rows::new();
    for line in text.lines() {
        let Some((head, tail)) = line.split_once("ptwrite:") else {
            continue;
        };
        let tid = head
            .split_whitespace()
            .next()
            .unwrap()
            .parse()
            .unwrap_or(u32::MAX);
        let tokens: Vec<_> = tail.split_whitespace().collect();
        let last = tokens.iter().rposition(|t| *t != "[unknown]").unwrap();
        rows.entry(tid)
            .or_default()
            .push((hex(tokens[last]), hex(tokens[3])));
    }
    Some(rows)
}

pub(crate) fn assert_same(left: &Rows, right: &Rows, what: &str) {
    assert_eq!(
        left.keys().collect::<Vec<_>>(),
        right.keys().collect::<Vec<_>>(),
        "{what}: threads"
    );
    for (tid, rows) in left {
        let other = &right[tid];
        let at = rows.iter().zip(other).position(|(a, b)| a != b);
        assert!(
            at.is_none() && rows.len() == other.len(),
            "{what}: thread {tid} differs at {at:?} of {} and {}",
            rows.len(),
            other.len()
        );
    }
}

fn encoded(random: &mut SmallRandom, count: usize) -> Encoder {
    let mut encoder = Encoder::new(STYLE);
    for write in writes(random, count, 1_000_000) {
        encoder.write(write);
    }
    encoder
}

pub(crate) fn row(w: &Write) -> (u64, u64) {
    (w.ip, w.payload)
}

pub(crate) fn steps_of(
    encoder: &Encoder,
    cpu: u32,
    piece: impl Fn(usize) -> usize,
) -> Vec<(u64, ScriptEvent)> {
    let mut at = 0;
    let mut steps = Vec::new();
    while at < encoder.bytes.len() {
        let to = (at + piece(at)).min(encoder.bytes.len());
        let place = encoder
            .places
            .partition_point(|p| p.end <= to)
            .saturating_sub(1);
        let tsc = encoder.places[place].write.tsc;
        steps.push((
            tsc,
            trace_data(cpu, encoder.bytes[at..to].to_vec(), PID + cpu, ns(tsc)),
        ));
        at = to;
    }
    steps
}

#[test]
fn a_full_trace_of_two_cpus_is_complete_though_its_rings_wrap_many_times() {
    let mut random = SmallRandom(11);
    let mut fake = Fake::new(machine("0-1", &[("cpu", 4, "")]));
    let mut steps = Vec::new();
    let mut truth = Rows::new();
    for cpu in 0..2u32 {
        let encoder = encoded(&mut random, 30_000);
        truth.insert(
            PID + cpu,
            encoder.places.iter().map(|p| row(&p.write)).collect(),
        );
        // Pieces of odd lengths, since the kernel's head may be anywhere.
        steps.extend(steps_of(&encoder, cpu, |at| 901 + at % 97));
    }
    steps.sort_by_key(|s| s.0);
    fake.script = beginning(2).into();
    for (number, (_, step)) in steps.into_iter().enumerate() {
        fake.script.push_back(step);
        if number % 3 == 2 {
            fake.script.push_back(ScriptEvent::Wake);
        }
    }
    let sizes = rings(4096, 16384);
    let (finished, file) = replay(&mut fake, &everything(), sizes, None);
    assert_eq!(
        (
            fake.lost,
            finished.tally.lost,
            finished.tally.truncated,
            finished.tally.malformed
        ),
        ((0, 0), 0, 0, 0)
    );
    assert!(
        finished.tally.aux_bytes > 40 * 16384 && finished.tally.records * 64 > 10 * 4096,
        "{:?}",
        finished.tally
    );
    let (rows, report) = ours(&file);
    assert_same(&rows, &truth, "import");
    assert_eq!(
        (
            report.totals.holes,
            report.totals.overlaps,
            report.totals.loss.bad_packets
        ),
        (0, 0, 0)
    );
    assert!(
        !report.file.incomplete && report.file.cut_bytes == 0 && report.file.unknown_ids == 0,
        "{:?}",
        report.file
    );
    if let Some(text) = run_perf(&["report", "-D"], &file) {
        for name in [
            "PERF_RECORD_AUXTRACE ",
            "PERF_RECORD_AUX ",
            "PERF_RECORD_SWITCH",
            "PERF_RECORD_ID_INDEX",
            "PERF_RECORD_TIME_CONV",
            "PERF_RECORD_COMM exec",
        ] {
            assert!(text.contains(name), "perf does not see {name}");
        }
    }
}

/// perf 6.1 loses pairs that lie in two pieces, so it is asked only if pieces end between pairs.
#[test]
fn perf_reads_a_full_trace_as_we_do() {
    let mut random = SmallRandom(12);
    let mut fake = Fake::new(machine("0", &[("cpu", 4, "")]));
    let encoder = encoded(&mut random, 5000);
    let truth: Rows = [(PID, encoder.places.iter().map(|p| row(&p.write)).collect())].into();
    fake.script = beginning(1).into();
    // A single piece, so that neither the recorder's word size nor the area's end splits it.
    fake.script.extend(
        steps_of(&encoder, 0, |_| usize::MAX / 2)
            .into_iter()
            .map(|s| s.1),
    );
    let (finished, file) = replay(&mut fake, &everything(), rings(8192, 256 << 10), None);
    assert_eq!(finished.tally.truncated, 0);
    assert_same(&ours(&file).0, &truth, "import");
    if let Some(rows) = perf_rows(&file) {
        assert_same(&rows, &truth, "perf script");
    }
    if let Some(text) = run_perf(&["evlist", "-v"], &file) {
        assert!(
            text.contains("intel_pt/ptw=1,fup_on_ptw=1,tsc=1,branch=0/u")
                && text.contains("dummy:u"),
            "{text}"
        );
    }
    if let Some(text) = run_perf(&["report", "--header-only"], &file) {
        assert!(
            text.contains("cmdline : program")
                && text.contains("6.1.0-test")
                && text.contains("AUX area data"),
            "{text}"
        );
    }
}

/// The events that can be read from windows: those behind a window's first PSB, each once.
pub(crate) fn readable(encoder: &Encoder, windows: &[std::ops::Range<usize>]) -> Vec<(u64, u64)> {
    let places = encoder.readable(windows).into_iter().flatten();
    places
        .map(|place| row(&encoder.places[place].write))
        .collect()
}

#[test]
fn samples_of_a_hybrid_machine_hold_the_last_bytes_before_them() {
    let mut random = SmallRandom(13);
    let mut fake = Fake::new(machine(
        "0-2",
        &[("cpu_core", 4, "0"), ("cpu_atom", 10, "1-2")],
    ));
    let mut truth = Rows::new();
    let mut steps = Vec::new();
    for cpu in 0..3u32 {
        let encoder = encoded(&mut random, 12_000);
        let mut seen = Vec::new();
        let (mut at, mut end) = (0, 0);
        for place in &encoder.places {
            if place.end >= end + 5000 {
                end = place.end;
                let time = ns(place.write.tsc);
                let tid = PID + cpu;
                steps.push((
                    time,
                    trace_data(cpu, encoder.bytes[at..end].to_vec(), tid, time),
                ));
                steps.push((
                    time + 1,
                    ScriptEvent::Sample {
                        cpu,
                        ip: 0x5555_5555_1000,
                        pid: PID,
                        tid,
                        time: time + 1,
                    },
                ));
                seen.push(end.saturating_sub(8192)..end);
                at = end;
            }
        }
        truth.insert(PID + cpu, readable(&encoder, &seen));
    }
    steps.sort_by_key(|s| s.0);
    fake.script = beginning(3).into();
    for (number, (_, step)) in steps.into_iter().enumerate() {
        fake.script.push_back(step);
        if number % 7 == 6 {
            fake.script.push_back(ScriptEvent::Wake);
        }
    }
    // Not a multiple of a record's size, so that samples lie across the ring's end.
    let (finished, file) = replay(&mut fake, &windows(8192), rings(65536, 16384), None);
    assert_eq!((finished.tally.lost, fake.lost.0), (0, 0));
    assert_eq!(finished.tally.samples, fake.snapshots);
    assert!(finished.tally.samples > 60 && finished.notes.is_empty());
    let (rows, report) = ours(&file);
    assert_same(&rows, &truth, "import");
    assert!(report.totals.overlaps > 0 && report.file.unknown_ids == 0);
    if let Some(rows) = perf_rows(&file) {
        assert_same(&rows, &truth, "perf script");
    }
    let layout = mgz_perf_data::header::layout(&file).unwrap();
    let kinds: Vec<_> = layout
        .events
        .iter()
        .map(|e| (e.attr.pmu, e.ids.len()))
        .collect();
    assert_eq!(kinds, [(PT, 3), (4, 1), (10, 2), (TYPE_SOFTWARE, 3)]);
}

#[test]
fn with_pauses_samples_hold_what_was_traced_between_resuming_and_pausing() {
    let mut random = SmallRandom(15);
    let mut fake = Fake::new(machine("0", &[("cpu", 4, "")]));
    fake.script = beginning(1).into();
    let mut truth = Vec::new();
    let (pid, tid) = (PID, PID);
    let list = writes(&mut random, 6000, 1_000_000);
    for part in list.chunks(300) {
        let mut encoder = Encoder::new(STYLE);
        encoder.psb(part[0].tsc);
        part.iter().for_each(|w| encoder.write(*w));
        truth.extend(part.iter().map(row));
        let time = ns(part[0].tsc);
        let before = ScriptEvent::Sample {
            cpu: 0,
            ip: 1,
            pid,
            tid,
            time,
        };
        // While PT is paused, the program leaves no trace.
        let unseen = ScriptEvent::Pt {
            cpu: 0,
            bytes: vec![0xff; 3000],
            pid,
            tid,
            time,
        };
        let end = ns(part[299].tsc);
        fake.script.extend([
            unseen.clone(),
            before,
            ScriptEvent::Pt {
                cpu: 0,
                bytes: encoder.bytes,
                pid,
                tid,
                time,
            },
            ScriptEvent::Pause {
                cpu: 0,
                pid,
                tid,
                time: end,
            },
            unseen,
            ScriptEvent::Wake,
        ]);
    }
    fake.script.extend([
        ScriptEvent::Sample {
            cpu: 0,
            ip: 1,
            pid,
            tid,
            time: ns(list[5999].tsc) + 1,
        },
        ScriptEvent::Wake,
    ]);
    let request = Request {
        keep: Keep::Windows {
            bytes: 8192,
            trigger: Trigger::Loads(1_000_000),
            pause: true,
        },
        ..windows(8192)
    };
    let (finished, file) = replay(&mut fake, &request, rings(65536, 16384), None);
    assert_eq!((finished.tally.samples, finished.tally.lost), (41, 0));
    let truth: Rows = [(PID, truth)].into();
    let (rows, report) = ours(&file);
    assert_same(&rows, &truth, "import");
    assert_eq!(
        (report.totals.loss.bad_packets, report.file.unknown_ids),
        (0, 0)
    );
    if let Some(rows) = perf_rows(&file) {
        assert_same(&rows, &truth, "perf script");
    }
}

#[test]
fn what_the_kernel_loses_is_counted_alike_by_everyone() {
    let mut fake = Fake::new(machine("0", &[("cpu", 4, "")]));
    fake.script = beginning(1).into();
    for n in 0..200u64 {
        fake.script
            .push_back(trace_data(0, vec![0; 8], PID, 100 + n));
        fake.script.push_back(ScriptEvent::Sample {
            cpu: 0,
            ip: 1,
            pid: PID,
            tid: PID,
            time: 100 + n,
        });
        // The recorder sleeps for a long time now and then.
        if n % 50 == 0 {
            fake.script.push_back(ScriptEvent::Wake);
        }
    }
    // The last loss is reported with the next record.
    fake.script.extend([
        ScriptEvent::Wake,
        switch_in(0, PID, 1000),
        ScriptEvent::Wake,
    ]);
    let (finished, file) = replay(&mut fake, &windows(256), rings(4096, 16384), None);
    assert!(fake.lost.0 > 50, "{:?}", fake.lost);
    assert_eq!(finished.tally.lost, fake.lost.0);
    assert_eq!(finished.tally.samples + finished.tally.lost, 200);
    let (_, report) = ours(&file);
    assert_eq!(report.file.lost_records, fake.lost.0);
    if let Some(text) = run_perf(&["report", "-D"], &file) {
        assert!(
            text.contains("PERF_RECORD_LOST: "),
            "perf does not see the loss"
        );
    }
}

#[test]
fn a_recorder_that_comes_too_late_loses_pt_data_and_says_so() {
    let mut random = SmallRandom(14);
    let mut fake = Fake::new(machine("0", &[("cpu", 4, "")]));
    fake.script = beginning(1).into();
    // Number of bytes, and events, by part.
    let mut parts = Vec::new();
    let mut encoder = Encoder::new(STYLE);
    let list = writes(&mut random, 9000, 1_000_000);
    for (number, part) in list.chunks(3000).enumerate() {
        // Whenever PT is turned on again, it begins with a PSB.
        encoder.bytes.clear();
        encoder.places.clear();
        encoder.psb(part[0].tsc);
        part.iter().for_each(|w| encoder.write(*w));
        let time = ns(part[0].tsc);
        fake.script
            .push_back(trace_data(0, encoder.bytes.clone(), PID, time));
        if number == 1 {
            // This part is written in small pieces, all of which fit.
            let _ = fake.script.pop_back();
            for piece in encoder.bytes.chunks(8000) {
                fake.script
                    .extend([trace_data(0, piece.to_vec(), PID, time), ScriptEvent::Wake]);
            }
        }
        parts.push((encoder.bytes.len() as u64, encoder.places.clone()));
        fake.script.push_back(ScriptEvent::Wake);
        fake.script.push_back(switch_in(0, PID, time + 1));
        fake.script.push_back(ScriptEvent::Wake);
    }
    let (finished, file) = replay(&mut fake, &everything(), rings(8192, 16384), None);
    assert_eq!(finished.tally.truncated, 2);
    // The first part is cut where the area was full, the second is whole, the third is cut again.
    let [(_, first), (_, last)] = fake.cuts[..] else {
        panic!("{:?}", fake.cuts)
    };
    assert_eq!(first, 16384);
    let fits = [first, parts[1].0, last - first - parts[1].0];
    let whole = |(part, fits): (&(u64, Vec<encode::PacketSpan>), u64)| {
        part.1
            .iter()
            .filter(|p| p.end as u64 <= fits)
            .map(|p| row(&p.write))
            .collect::<Vec<_>>()
    };
    let truth: Vec<_> = parts.iter().zip(fits).flat_map(whole).collect();
    let (rows, report) = ours(&file);
    assert_eq!(report.file.aux_truncated, 2);
    assert_same(&rows, &[(PID, truth)].into(), "import");
}

#[test]
fn what_a_kernel_does_not_know_is_given_up_and_told() {
    // An older kernel: no aux_action; a virtual machine: no load event.
    let mut fake = Fake::new(machine("0-1", &[("cpu", 4, "")]));
    fake.refuse = Box::new(|attr, _| {
        if attr.aux_action != 0 {
            Some(libc::EINVAL)
        } else if attr.kind == 4 {
            Some(libc::ENOENT)
        } else {
            None
        }
    });
    let found = Machine::read(&fake).unwrap();
    let request = Request {
        keep: Keep::Windows {
            bytes: 8192,
            trigger: Trigger::Loads(1000),
            pause: true,
        },
        ..windows(8192)
    };
    let opened = open(&mut fake, &found, &request, PID, rings(4096, 16384)).unwrap();
    let roles: Vec<_> = opened
        .plan
        .events
        .iter()
        .map(|e| (e.role, e.attr.kind, e.attr.aux_action))
        .collect();
    assert_eq!(
        roles,
        [
            (Role::Trace, PT, 0),
            (Role::Sample, TYPE_SOFTWARE, 0),
            (Role::Track, TYPE_SOFTWARE, 0)
        ]
    );
    assert_eq!(opened.plan.notes.len(), 1);
    assert!(
        opened.plan.notes[0].contains("does not sample loads"),
        "{:?}",
        opened.plan.notes
    );
    // All events of one CPU share a ring; all except the tracking event are in one group.
    for e in &fake.events {
        assert_eq!(e.pid, PID as i32);
        let leader = fake
            .events
            .iter()
            .position(|l| l.cpu == e.cpu && l.attr.kind == PT)
            .unwrap();
        let (group, output) = (e.group.map(|g| g.0), e.output.map(|o| o.0));
        match (e.attr.kind, e.attr.config) {
            (PT, _) => assert_eq!((group, output), (None, None)),
            (_, mgz_perf::attr::SW_DUMMY) => assert_eq!((group, output), (None, Some(leader))),
            _ => assert_eq!((group, output), (Some(leader), Some(leader))),
        }
    }
}

#[test]
fn a_cpu_that_was_turned_off_is_left_out() {
    let mut fake = Fake::new(machine("0-1", &[("cpu", 4, "")]));
    let found = Machine::read(&fake).unwrap();
    fake.files
        .insert("/sys/devices/system/cpu/online".into(), "0\n".into());
    fake.refuse = Box::new(|_, cpu| (cpu == 1).then_some(libc::ENODEV));
    let opened = open(&mut fake, &found, &windows(8192), PID, rings(4096, 16384)).unwrap();
    assert_eq!(opened.cpus.iter().map(|c| c.cpu).collect::<Vec<_>>(), [0]);
    assert_eq!(opened.plan.notes, ["CPU 1 was turned off"]);
}

#[test]
fn little_memory_makes_smaller_buffers_and_none_is_an_error() {
    let mut fake = Fake::new(machine("0-1", &[("cpu", 4, "")]));
    let found = Machine::read(&fake).unwrap();
    fake.lockable = 2 * (4096 + (256 << 10) + (32 << 10));
    let opened = open(
        &mut fake,
        &found,
        &windows(8192),
        PID,
        rings(256 << 10, 1 << 20),
    )
    .unwrap();
    assert_eq!(opened.sizes, rings(256 << 10, 32 << 10));
    let mut fake = Fake::new(machine("0-1", &[("cpu", 4, "")]));
    fake.lockable = 100_000;
    let error = open(
        &mut fake,
        &found,
        &everything(),
        PID,
        rings(256 << 10, 1 << 20),
    )
    .err()
    .unwrap();
    assert!(
        matches!(&error, OpenError::Memory { .. }) && error.to_string().contains("ulimit -l"),
        "{error}"
    );
}

#[test]
fn refusals_name_the_remedy() {
    let refused = |errno: i32, wrong: fn(&Attr) -> bool| {
        let mut fake = Fake::new(machine("0", &[("cpu", 4, "")]));
        fake.refuse = Box::new(move |attr, _| wrong(attr).then_some(errno));
        let found = Machine::read(&fake).unwrap();
        let error = open(&mut fake, &found, &windows(8192), PID, rings(4096, 16384))
            .err()
            .unwrap();
        assert!(
            fake.closed > 0 && fake.events.is_empty(),
            "nothing stays open"
        );
        error.to_string()
    };
    assert!(refused(libc::EACCES, |_| true).contains("sysctl kernel.perf_event_paranoid=2"));
    assert!(refused(libc::EBUSY, |a| a.kind == PT).contains("another recording"));
    assert!(refused(libc::EMFILE, |_| true).contains("ulimit -n"));
    assert!(refused(libc::ENOSYS, |_| true).contains("seccomp"));
    assert!(refused(libc::EINVAL, |a| a.kind == PT).contains("--probe"));
}

#[test]
fn filters_reach_every_pt_event_and_the_file() {
    let mut fake = Fake::new(machine("0-1", &[("cpu", 4, "")]));
    let filter = "filter 0x1000/0x200@/nowhere/program";
    let request = Request {
        filter: filter.into(),
        ..everything()
    };
    fake.script = beginning(2).into();
    let found = Machine::read(&fake).unwrap();
    let opened = open(&mut fake, &found, &request, PID, rings(4096, 16384)).unwrap();
    drop(opened);
    let set: Vec<_> = fake
        .events
        .iter()
        .filter(|e| e.filter.as_deref() == Some(filter))
        .map(|e| e.attr.kind)
        .collect();
    assert_eq!(set, [PT, PT]);
    let mut fake = Fake::new(machine("0-1", &[("cpu", 4, "")]));
    fake.script = beginning(2).into();
    let (_, file) = replay(&mut fake, &request, rings(4096, 16384), None);
    if let Some(text) = run_perf(&["report", "-D"], &file) {
        assert!(text.contains(filter), "perf sees the filter");
    }
}

#[test]
fn a_bound_on_the_size_ends_the_recording_and_leaves_a_whole_file() {
    let mut fake = Fake::new(machine("0", &[("cpu", 4, "")]));
    fake.script = beginning(1).into();
    for n in 0..100u64 {
        fake.script.extend([
            trace_data(0, vec![0; 4096], PID, 100 + n),
            ScriptEvent::Wake,
        ]);
    }
    let (finished, file) = replay(&mut fake, &everything(), rings(4096, 16384), Some(100_000));
    assert!(
        matches!(finished.stopped, Some(crate::pt::capture::Stopped::Full)),
        "{finished:?}"
    );
    assert!((100_000..110_000).contains(&file.len()), "{}", file.len());
    let (_, report) = ours(&file);
    assert_eq!((report.file.cut_bytes, report.file.incomplete), (0, false));
}

#[test]
fn a_full_disk_ends_the_recording_and_not_the_program() {
    // No file can be made below a file: writing fails like on a full disk, but already at the
    // start.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    std::fs::write(&path, "x").unwrap();
    let mut fake = Fake::new(machine("0", &[("cpu", 4, "")]));
    let found = Machine::read(&fake).unwrap();
    let opened = open(&mut fake, &found, &everything(), PID, rings(4096, 16384)).unwrap();
    assert!(
        Capture::begin(
            &mut fake,
            opened,
            found.pt.as_ref(),
            "",
            PID,
            &path.join("y"),
            None
        )
        .is_err()
    );
    // /dev/full can be opened and refuses every write.
    if Path::new("/dev/full").exists() {
        let mut fake = Fake::new(machine("0", &[("cpu", 4, "")]));
        let opened = open(&mut fake, &found, &everything(), PID, rings(4096, 16384)).unwrap();
        let error = Capture::begin(
            &mut fake,
            opened,
            found.pt.as_ref(),
            "",
            PID,
            Path::new("/dev/full"),
            None,
        )
        .err()
        .unwrap();
        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
    }
}

// The tests from here on run on the real kernel, with its clock in place of PT: everything but AUX
// data is the same.

/// One recording of this process at a time, since signal settings are per process.
static REAL: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// The machine without its PT, if the kernel lets us sample by the clock.
fn real_machine() -> Option<Machine> {
    let mut kernel = Linux::default();
    let machine = Machine {
        pt: None,
        cores: Vec::new(),
        ..Machine::read(&kernel).ok()?
    };
    let opened = open(
        &mut kernel,
        &machine,
        &clock(1_000_003),
        std::process::id(),
        rings(4096, 4096),
    );
    if let Err(error) = opened {
        eprintln!("SKIPPED: {error}");
        return None;
    }
    Some(machine)
}

fn clock(ns: u64) -> Request {
    Request {
        keep: Keep::Windows {
            bytes: 4096,
            trigger: Trigger::Clock(ns),
            pause: false,
        },
        timing: Timing::default(),
        filter: String::new(),
        guests: false,
        stacks: false,
    }
}

fn shell(script: &str, file: &Path) -> Job {
    let argv = ["/bin/sh", "-c", script]
        .map(std::ffi::OsString::from)
        .to_vec();
    Job {
        program: "/bin/sh".into(),
        argv,
        no_aslr: false,
        request: clock(1_000_003),
        file: file.into(),
        limit: None,
        unlimited: false,
    }
}

const BUSY_SCRIPT: &str = "i=0; while [ $i -lt 150000 ]; do i=$((i+1)); done";

fn count(file: &[u8], which: u32) -> usize {
    Records::new(file, mgz_perf_data::header::layout(file).unwrap().data)
        .filter(|r| r.kind == which)
        .count()
}

#[test]
fn the_real_kernels_records_reach_the_file_and_perf() {
    let _one = locked(&REAL);
    let Some(machine) = real_machine() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("perf.data");
    // A child of the program, and another program in it.
    let script = format!("{BUSY_SCRIPT} & {BUSY_SCRIPT}; wait; /bin/true; exit 3");
    let Ended {
        status,
        wall,
        finished,
        events,
        outlived,
    } = run(&mut Linux::default(), &machine, &shell(&script, &path)).unwrap();
    assert_eq!((status, outlived), (ProgramStatus::Exited(3), false));
    assert_eq!(events, ["task-clock/period=1000003/u", "dummy:u"]);
    let tally = &finished.tally;
    assert!(
        tally.samples > 20 && tally.lost == 0 && tally.malformed == 0 && finished.stopped.is_none(),
        "{finished:?}"
    );
    assert!(wall > Duration::from_millis(20));
    let file = std::fs::read(&path).unwrap();
    assert!(file.len() as u64 >= tally.file_bytes);
    assert_eq!(count(&file, kind::SAMPLE) as u64, tally.samples);
    assert!(
        count(&file, kind::FORK) >= 2
            && count(&file, kind::MMAP2) > 4
            && count(&file, kind::BUILD_ID) >= 1
            && count(&file, kind::SWITCH) >= 2
    );
    if let Some(text) = run_perf(&["script", "-F", "comm,pid,tid,time,event,ip,dso"], &file) {
        let lines = text.lines().filter(|l| l.contains("task-clock")).count();
        assert_eq!(lines as u64, tally.samples, "{text}");
        // Samples resolve to files, which only works if the mappings were seen in time.
        let resolved = text
            .lines()
            .filter(|l| l.contains("task-clock") && l.contains("(/"))
            .count();
        assert!(resolved * 10 > lines * 9, "{text}");
    }
    if let Some(text) = run_perf(&["buildid-list"], &file) {
        assert!(text.contains("libc.so"), "{text}");
    }
}

#[test]
fn the_real_kernel_tells_what_did_not_fit_into_a_ring() {
    let _one = locked(&REAL);
    let Some(machine) = real_machine() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("perf.data");
    let mut kernel = Linux::default();
    let job = shell(BUSY_SCRIPT, &path);
    let signals = mgz_collector::target::signals::Signals::install().unwrap();
    let held =
        mgz_collector::target::spawn::hold(&job.program, &job.argv, false, signals.inherited())
            .unwrap();
    let pid = held.pid();
    let opened = open(
        &mut kernel,
        &machine,
        &clock(50_021),
        pid,
        rings(4096, 4096),
    )
    .unwrap();
    let mut capture = Capture::begin(&mut kernel, opened, None, "", pid, &path, None).unwrap();
    let pid = held.release().unwrap() as libc::pid_t;
    // Empties the rings deliberately too seldom: every 100 ms until the program has ended.
    let began = Instant::now();
    // SAFETY: our own child; no status is wanted.
    while unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) } == 0
        && began.elapsed() < Duration::from_secs(60)
    {
        std::thread::sleep(Duration::from_millis(100));
        capture.round();
    }
    let finished = capture.finish(Vec::new());
    assert!(
        finished.tally.lost > 100 && finished.tally.samples > 50,
        "{finished:?}"
    );
    // The kernel accepts a new period while the event runs.
    let longer = finished
        .notes
        .iter()
        .any(|n| n.contains("instead of every"));
    assert!(longer, "{:?}", finished.notes);
    let file = std::fs::read(&path).unwrap();
    let told: u64 = Records::new(&file, mgz_perf_data::header::layout(&file).unwrap().data)
        .filter(|r| r.kind == kind::LOST)
        .filter_map(|r| mgz_perf_data::u64_at(&r.body, 8))
        .sum();
    assert_eq!(told, finished.tally.lost);
    run_perf(&["script"], &file);
}

#[test]
fn programs_that_cannot_run_leave_no_file() {
    let _one = locked(&REAL);
    let Some(machine) = real_machine() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("perf.data");
    let job = Job {
        program: "/no/such/program".into(),
        ..shell("", &path)
    };
    let error = run(&mut Linux::default(), &machine, &job).unwrap_err();
    assert!(matches!(error, RunError::NotFound(_)) && error.exit_status() == 127);
    let job = Job {
        program: "/proc/self/status".into(),
        ..shell("", &path)
    };
    assert_eq!(
        run(&mut Linux::default(), &machine, &job)
            .unwrap_err()
            .exit_status(),
        126
    );
    assert!(!path.exists());
}

const CHILD: &str = "MGZ_TEST_LIVE_FILE";

/// Not a test of its own: the recorder process of the next two.
#[test]
fn recorder_process() {
    let Some(file) = std::env::var_os(CHILD) else {
        return;
    };
    let Some(machine) = real_machine() else {
        std::process::exit(77)
    };
    let ended = run(
        &mut Linux::default(),
        &machine,
        &shell("while :; do :; done", Path::new(&file)),
    )
    .unwrap();
    assert_eq!(ended.status, ProgramStatus::Signaled(libc::SIGINT));
}

/// Starts a recorder of an endless program, and sends it a signal once it has written samples.
/// Returns the file and the recorder's status.
fn signalled(signal: libc::c_int) -> Option<(Vec<u8>, std::process::ExitStatus)> {
    use std::os::unix::process::CommandExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("perf.data");
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "live::tests::recorder_process"])
        .env(CHILD, &path)
        .stdout(std::process::Stdio::null())
        .process_group(0);
    // SAFETY: a plain system call. (Shells make background jobs ignore the signal.)
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            Ok(())
        });
    }
    let mut recorder = command.spawn().unwrap();
    let pid = recorder.id() as libc::pid_t;
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(30)
        && std::fs::metadata(&path).map_or(0, |m| m.len()) < 48 << 10
    {
        if recorder.try_wait().unwrap().is_some() {
            return None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    // SAFETY: our own child, not yet waited for.
    unsafe { libc::kill(pid, signal) };
    let status = recorder.wait().unwrap();
    // SAFETY: the group of our own child; the endless program may be left in it.
    unsafe { libc::kill(-pid, libc::SIGKILL) };
    Some((std::fs::read(&path).unwrap(), status))
}

#[test]
fn ctrl_c_completes_the_file() {
    let Some((file, status)) = signalled(libc::SIGINT) else {
        return;
    };
    assert!(status.success(), "{status}");
    let layout = mgz_perf_data::header::layout(&file).unwrap();
    assert!(!layout.incomplete && !layout.build_ids.is_empty());
    assert!(count(&file, kind::SAMPLE) > 20);
}

#[test]
fn a_killed_recorder_leaves_what_it_had_written() {
    let Some((file, status)) = signalled(libc::SIGKILL) else {
        return;
    };
    assert!(!status.success());
    let layout = mgz_perf_data::header::layout(&file).unwrap();
    assert!(!layout.incomplete);
    assert!(count(&file, kind::SAMPLE) > 20);
    if let Some(text) = run_perf(&["script"], &file) {
        assert!(
            text.lines()
                .filter(|l| l.contains("task-clock") || l.contains("sh "))
                .count()
                > 20,
            "{text}"
        );
    }
}
