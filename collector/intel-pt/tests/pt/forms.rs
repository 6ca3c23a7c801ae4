//! Forms that perf.data files take: every combination of sample fields, snapshots, losses, and
//! files of the real perf.

use super::encode::{Encoder, SmallRandom, Style, Write, writes};
use super::file::{PerfFile, RecordingKind};
use super::{
    ALL, assert_perf_agrees, assert_same, by_thread, ends, has_perf, ours, readable, row, stream,
};
use mgz_intel_pt::import::dump::Input;
use mgz_perf_data::Session;
use mgz_perf_data::events;
use mgz_perf_data::events::Before;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// Bits of the optional sample fields that the writer supports.
const FIELDS: [u32; 17] = [
    3, 6, 9, 4, 5, 10, 11, 12, 13, 14, 15, 17, 18, 19, 21, 22, 23,
];

#[test]
fn aux_data_is_found_behind_any_combination_of_sample_fields() {
    let mut random = SmallRandom(31);
    let encoder = stream(
        &mut random,
        Style {
            psb_every: 400,
            ..ALL
        },
        300,
        false,
    );
    let ends = ends(&encoder.places, 900);
    let windows: Vec<_> = ends
        .iter()
        .map(|p| p.end.saturating_sub(1600)..p.end)
        .collect();
    let truth: Vec<_> = readable(&encoder, &windows)
        .iter()
        .map(|w| row(1000, w))
        .collect();
    assert!(truth.len() > 200);
    let single = FIELDS.iter().map(|bit| 1u64 << bit);
    let mixed: Vec<u64> = (0..150)
        .map(|_| {
            FIELDS
                .iter()
                .filter(|_| random.below(2) == 0)
                .fold(0, |set, bit| set | 1 << bit)
        })
        .collect();
    for extra in single.chain(mixed) {
        let mut file = PerfFile::new(RecordingKind::Samples, 1, (true, true, true));
        file.extra = extra;
        file.comm(1000, 1000, 1);
        for (place, window) in ends.iter().zip(&windows) {
            file.sample(
                &encoder.bytes[window.clone()],
                0,
                1000,
                1000,
                place.write.tsc + 1,
                0,
            );
        }
        for bytes in [file.finish(), file.finish_pipe()] {
            let (rows, report) = ours(&bytes);
            assert_eq!(
                rows.iter().map(|r| r.2).collect::<Vec<_>>(),
                truth,
                "fields {extra:#x}"
            );
            assert_eq!(
                (
                    report.file.bad_records,
                    report.file.odd_samples,
                    report.file.unknown_ids
                ),
                (0, 0, 0),
                "fields {extra:#x}"
            );
        }
    }
}

#[test]
fn overlapping_snapshots_give_each_event_once() {
    let mut random = SmallRandom(32);
    let style = Style { cyc: false, ..ALL };
    let mut file = PerfFile::new(RecordingKind::PerThread, 2, (true, true, false));
    file.snapshot = true;
    file.comm(1000, 1000, 1);
    let mut truth = BTreeMap::new();
    for buffer in 0..2u32 {
        let tid = 1000 + buffer;
        file.start(1000, tid, 3, u32::MAX, buffer);
        let encoder = stream(&mut random, style, 12_000, true);
        // Two overlapping snapshots, and a separate one.
        let picked: Vec<_> = [2_000, 4_000, 11_000]
            .iter()
            .map(|&n| &encoder.places[n])
            .collect();
        let windows: Vec<_> = picked
            .iter()
            .map(|p| p.end.saturating_sub(40_000)..p.end)
            .collect();
        for window in &windows {
            file.auxtrace(
                &encoder.bytes[window.clone()],
                window.start as u64,
                buffer,
                tid,
                u32::MAX,
            );
        }
        truth.insert(
            tid,
            readable(&encoder, &windows)
                .iter()
                .map(|w| row(tid, w))
                .collect::<Vec<_>>(),
        );
    }
    let bytes = file.finish();
    let (rows, report) = ours(&bytes);
    assert_same(&by_thread(&rows), &truth, "snapshots");
    assert_eq!((report.totals.samples, report.totals.overlaps), (6, 2));
    assert_perf_agrees(&bytes, &truth, "snapshots");
    assert_eq!(ours(&file.finish_compressed()).0, rows);
}

#[test]
fn what_the_kernel_and_perf_say_is_lost_is_counted() {
    let words = |list: &[u64]| {
        list.iter()
            .flat_map(|w| w.to_le_bytes())
            .collect::<Vec<_>>()
    };
    let mut file = PerfFile::new(RecordingKind::PerThread, 1, (true, false, false));
    file.event(2, 0, &words(&[50, 7]), 1000, 1000, 1, 0, 0);
    file.event(13, 0, &words(&[5]), 1000, 1000, 1, 0, 0);
    file.event(5, 0, &words(&[1, 50, 50]), 1000, 1000, 1, 0, 0);
    file.event(5, 0, &words(&[2, 50, 50]), 1000, 1000, 1, 0, 0);
    file.event(6, 0, &words(&[2, 50, 50]), 1000, 1000, 1, 0, 0);
    file.record(72, 0, &[0; 96]);
    for flags in [1, 2, 4, 5] {
        file.aux(0, 0, flags, 1000, 1000, 2, 0, 0);
    }
    file.record(11, 0, &[0; 4]);
    let mut encoder = Encoder::new(Style {
        mtc: false,
        cyc: false,
        ..ALL
    });
    encoder.write(Write {
        ip: 0x40_1000,
        payload: 1,
        tsc: 10,
    });
    file.auxtrace(&encoder.bytes, 0, 0, 1000, u32::MAX);
    let (rows, report) = ours(&file.finish());
    let loss = report.file;
    assert_eq!(rows.len(), 1);
    assert_eq!(
        (
            loss.lost_records,
            loss.lost_samples,
            loss.throttled,
            loss.noted_errors
        ),
        (7, 5, 2, 1)
    );
    assert_eq!(
        (
            loss.aux_truncated,
            loss.aux_overwritten,
            loss.aux_partial,
            loss.bad_records
        ),
        (2, 1, 2, 1)
    );
}

/// Records after data that the kernel could not store must not be joined with those before.
#[test]
fn a_truncated_part_of_a_full_trace_ends_a_stretch() {
    let mut random = SmallRandom(33);
    let mut encoder = Encoder::new(Style {
        mtc: false,
        cyc: false,
        ..ALL
    });
    let writes = writes(&mut random, 3_000, 1_000_000);
    writes[..1_200].iter().for_each(|w| encoder.write(*w));
    let cut = encoder.bytes.len();
    // The processor writes this when tracing restarts.
    encoder.psb(writes[1_200].tsc);
    writes[1_200..].iter().for_each(|w| encoder.write(*w));
    for flags in [0, 1, 4] {
        let mut file = PerfFile::new(RecordingKind::PerThread, 1, (true, false, false));
        file.aux(0, cut as u64, flags, 1000, 1000, 2, 0, 0);
        file.aux(
            cut as u64,
            (encoder.bytes.len() - cut) as u64,
            0,
            1000,
            1000,
            2,
            0,
            0,
        );
        file.auxtrace(&encoder.bytes, 0, 0, 1000, u32::MAX);
        let bytes = file.finish();
        let session = Session::read(&bytes).expect("whole");
        let (mut count, mut marked) = (0, Vec::new());
        events::for_each_unit(&session, &[], &|events| events, &mut |unit| {
            marked.extend((!unit.continues).then_some(count));
            marked.extend(
                (0..unit.data.len())
                    .filter(|&n| unit.data[n].before == Before::Loss)
                    .map(|n| count + n),
            );
            count += unit.data.len();
            Ok(())
        })
        .expect("no output");
        assert_eq!(
            (count, marked),
            (3_000, if flags == 0 { vec![] } else { vec![1_200] }),
            "flags {flags}"
        );
    }
}

/// Found by fuzzing: positions behind the largest possible offset overflowed.
#[test]
fn a_piece_at_the_end_of_all_offsets_is_read() {
    let mut random = SmallRandom(34);
    let encoder = stream(&mut random, ALL, 50, false);
    for offset in [u64::MAX, u64::MAX - 40] {
        let mut file = PerfFile::new(RecordingKind::PerThread, 1, (true, true, true));
        file.aux(offset, u64::MAX, 1, 1000, 1000, 2, 0, 0);
        file.auxtrace(&encoder.bytes, offset, 0, 1000, u32::MAX);
        file.auxtrace(&encoder.bytes, offset, 0, 1000, u32::MAX);
        let (rows, _) = ours(&file.finish());
        assert!(rows.len() <= 100, "{}", rows.len());
    }
}

/// Runs perf; `None` if it cannot record on this machine.
fn perf(args: &[&str], to: &std::path::Path) -> Option<Vec<u8>> {
    let file = std::fs::File::create(to).expect("a file");
    let pipe = args.contains(&"-");
    let mut command = Command::new("perf");
    command.arg("record").args(args);
    if pipe {
        command.stdout(file);
    } else {
        command
            .arg("-o")
            .arg(to)
            .stdout(std::process::Stdio::null());
    }
    // A shell that runs programs: forks, execs, mappings.
    let output = command
        .args([
            "--",
            "sh",
            "-c",
            "/bin/true; /bin/ls / > /dev/null; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done",
        ])
        .output()
        .expect("perf starts");
    if !output.status.success() {
        eprintln!(
            "SKIPPED: perf record {args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
                .lines()
                .last()
                .unwrap_or("")
        );
        return None;
    }
    Some(std::fs::read(to).expect("readable"))
}

/// Files of the real perf, with all fields that software events can have.
#[test]
fn files_of_the_real_perf_are_read_whole() {
    if !has_perf() {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("perf.data");
    let clock = ["-e", "cpu-clock:u", "-F", "5000"];
    let more: [&[&str]; 10] = [
        &[],
        &["-g"],
        &["--call-graph", "dwarf,1024"],
        &["-d", "--data-page-size", "--code-page-size"],
        &["--user-regs=ip,sp,bx", "-W"],
        &["--switch-events", "--sample-cpu", "--sample-identifier"],
        &["-z"],
        &["-z", "-o", "-"],
        &["-o", "-", "--buildid-mmap"],
        &["-e", "task-clock:u", "-a", "-T", "-s"],
    ];
    let mut read = 0;
    for extra in more {
        let args: Vec<_> = clock.iter().chain(extra).copied().collect();
        let Some(bytes) = perf(&args, &path) else {
            continue;
        };
        let session = Session::read_any(&[&bytes]).expect("a perf.data file");
        let what = format!("{extra:?}: {:?}", session.loss);
        let loss = &session.loss;
        assert!(!loss.incomplete && loss.stopped_at.is_none(), "{what}");
        assert_eq!(
            (
                loss.cut_bytes,
                loss.bad_records,
                loss.odd_samples,
                loss.unknown_ids,
                loss.bad_compressed + loss.bad_sections
            ),
            (0, 0, 0, 0, 0),
            "{what}"
        );
        let script = |args: &[&str]| {
            let output = Command::new("perf")
                .arg("script")
                .args(args)
                .arg("-i")
                .arg(&path)
                .output()
                .expect("perf starts");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let theirs = script(&["-F", "pid"])
            .lines()
            .filter(|l| l.trim().parse::<u32>().is_ok())
            .count() as u64;
        assert_eq!(session.samples, theirs, "samples, {what}");
        let mappings = script(&["--show-mmap-events", "-F", "pid"])
            .lines()
            .filter(|l| l.contains("PERF_RECORD_MMAP"))
            .count();
        assert_eq!(
            session.spaces.mappings().len(),
            mappings,
            "mappings, {what}"
        );
        let ends: BTreeSet<&str> = session
            .spaces
            .mappings()
            .iter()
            .filter_map(|m| m.path.rsplit('/').next())
            .collect();
        assert!(ends.contains("true") || ends.contains("ls"), "{ends:?}");
        assert!(
            !session.host.is_empty()
                && session.command.first().is_some_and(|c| c.ends_with("perf")),
            "{:?} {:?}",
            session.host,
            session.command
        );
        // perf does not collect build ids at the end of pipes and compressed recordings.
        let named = session
            .spaces
            .mappings()
            .iter()
            .filter(|m| m.build_id.is_some() || session.build_ids.contains_key(&m.path))
            .count();
        assert!(
            named > 0
                || !extra.contains(&"--buildid-mmap")
                    && (extra.contains(&"-") || extra.contains(&"-z")),
            "build ids, {what}"
        );
        // perf rewrites its files to add build ids; samples and mappings stay. perf 6.1 cannot read what
        // it makes of pipes.
        let is_pipe = extra.contains(&"-");
        let injected = dir.path().join("injected.data");
        let mut inject = Command::new("perf");
        inject
            .args(["inject", "-b", "-i"])
            .arg(&path)
            .arg("-o")
            .arg(&injected);
        if !is_pipe && inject.output().expect("perf starts").status.success() {
            let bytes = std::fs::read(&injected).expect("readable");
            let again = Session::read_any(&[&bytes]).expect("a perf.data file");
            let what = format!("{what}, injected: {:?}", again.loss);
            assert_eq!(again.samples, session.samples, "{what}");
            let (new, old) = (again.spaces.mappings(), session.spaces.mappings());
            assert_eq!(new.len(), old.len(), "{what}");
            assert_eq!(
                again.loss.bad_records + again.loss.bad_compressed,
                0,
                "{what}"
            );
        }
        read += 1;
    }
    eprintln!("{read} of {} forms of real files", more.len());
}

/// A folder that the real perf writes with a thread for each processor.
#[test]
fn a_folder_of_the_real_perf_is_read_whole() {
    if !has_perf() {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("perf.data");
    let command = ["--threads", "-e", "cpu-clock:u", "-F", "5000", "-a", "-o"];
    let output = Command::new("perf")
        .arg("record")
        .args(command)
        .arg(&folder)
        .args([
            "--",
            "sh",
            "-c",
            "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done",
        ])
        .output()
        .expect("perf starts");
    if !output.status.success() || !folder.is_dir() {
        eprintln!(
            "SKIPPED: perf record --threads: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        return;
    }
    let input = Input::open(&folder).expect("a recording");
    let files = input.files();
    assert!(files.len() > 1);
    let session = Session::read_any(&files).expect("whole");
    let script = Command::new("perf")
        .args(["script", "-F", "pid", "-i"])
        .arg(&folder)
        .output()
        .expect("perf starts");
    let theirs = String::from_utf8_lossy(&script.stdout)
        .lines()
        .filter(|l| l.trim().parse::<u32>().is_ok())
        .count() as u64;
    assert!(theirs > 100, "{theirs} samples");
    assert_eq!(session.samples, theirs, "{:?}", session.loss);
    let loss = &session.loss;
    assert_eq!(
        (
            loss.cut_bytes,
            loss.bad_records,
            loss.unknown_ids,
            loss.bad_sections
        ),
        (0, 0, 0, 0)
    );
}
