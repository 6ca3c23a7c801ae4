//! Behavior of kernels and processors known from sources and errata, each in a transcript.

use crate::import::account;
use crate::import::dump::RawReport;
use crate::pt::open::{Sizes, open};
use crate::pt::plan::{Keep, Machine, Request, Role, Trigger};
use crate::pt::tests::encode::{Encoder, SmallRandom, writes};
use crate::pt::tests::{
    PID, STYLE, beginning, everything, ns, ours, replay, rings, row, switch_in, trace_data, windows,
};
use crate::pt::trace_tests::import;
use mgz_perf::attr::{Attr, flag};
use mgz_perf::kernel_fake::{Fake, OVERLAY, ScriptEvent, machine};
use mgz_perf::records::bits;
use mgz_perf_data::{Session, events};

const SIZES: Sizes = rings(16384, 16384);

/// A stream that begins with a PSB, of `count` `ptwrite`s.
fn part(random: &mut SmallRandom, count: usize, tsc: u64) -> Encoder {
    let mut encoder = Encoder::new(STYLE);
    encoder.psb(tsc);
    for write in writes(random, count, tsc) {
        encoder.write(write);
    }
    // Whole words, so that no rest stays in the area.
    encoder.pad(encoder.bytes.len().next_multiple_of(8) - encoder.bytes.len());
    encoder
}

fn assert_rows(file: &[u8], truth: &[(u64, u64)]) -> RawReport {
    let (rows, report) = ours(file);
    let rows = rows.get(&PID).map_or(&[][..], Vec::as_slice);
    let at = rows.iter().zip(truth).position(|(a, b)| a != b);
    assert!(
        at.is_none() && rows.len() == truth.len(),
        "{} rows instead of {}, the first difference at {at:?}",
        rows.len(),
        truth.len()
    );
    report
}

fn pt(bytes: &[u8], time: u64) -> ScriptEvent {
    trace_data(0, bytes.to_vec(), PID, time)
}

fn sample(time: u64) -> ScriptEvent {
    ScriptEvent::Sample {
        cpu: 0,
        ip: 1,
        pid: PID,
        tid: PID,
        time,
    }
}

/// For each unit of a recording: true if it follows a loss.
fn behind_losses(file: &[u8]) -> Vec<bool> {
    let session = Session::read(file).unwrap();
    let mut out = Vec::new();
    events::for_each_unit(&session, &[], &|events| events, &mut |unit| {
        out.push(!unit.continues);
        Ok(())
    })
    .unwrap();
    out
}

/// The area is full to the last byte when the thread leaves. When it comes back the kernel finds no
/// room, turns PT off, and writes no record that reports that.
#[test]
fn pt_that_stopped_without_a_word_runs_again_after_the_area_was_emptied() {
    let mut random = SmallRandom(31);
    let mut fake = Fake::new(machine("0", &[("cpu", 4, "")]));
    fake.script = beginning(1).into();
    let mut first = part(&mut random, 3000, 1_000_000);
    first.bytes.truncate(16384);
    let second = part(&mut random, 200, 2_000_000);
    let last = part(&mut random, 300, 3_000_000);
    fake.script.extend([
        pt(&first.bytes, ns(1_000_000)),
        // None of this is recorded.
        pt(&second.bytes, ns(2_000_000)),
        ScriptEvent::Wake,
        pt(&last.bytes, ns(3_000_000)),
        ScriptEvent::Wake,
    ]);
    let (finished, file) = replay(&mut fake, &everything(), SIZES, None);
    let kept = first.places.iter().filter(|p| p.end <= 16384);
    let truth: Vec<_> = kept.chain(&last.places).map(|p| row(&p.write)).collect();
    let report = assert_rows(&file, &truth);
    // Data that may be missing is counted, and nothing is joined across it.
    assert_eq!(
        (finished.tally.truncated, report.file.aux_truncated),
        (1, 1)
    );
    assert_eq!(behind_losses(&file).last(), Some(&true));
}

/// Linux before 6.13: an area that fills up from empty before the driver checks it is reported as
/// empty.
#[test]
fn a_full_area_that_is_told_as_empty_is_a_loss_from_the_first_byte() {
    let mut random = SmallRandom(32);
    let mut fake = Fake::new(machine("0", &[("cpu", 4, "")]));
    fake.fills_at_once = true;
    fake.script = beginning(1).into();
    let lost = part(&mut random, 3000, 1_000_000);
    let kept = [
        part(&mut random, 300, 2_000_000),
        part(&mut random, 300, 4_000_000),
    ];
    fake.script.extend([
        pt(&lost.bytes, ns(1_000_000)),
        ScriptEvent::Wake,
        pt(&kept[0].bytes, ns(2_000_000)),
        ScriptEvent::Wake,
        pt(&lost.bytes, ns(3_000_000)),
        pt(&lost.bytes, ns(3_500_000)),
        ScriptEvent::Wake,
        pt(&kept[1].bytes, ns(4_000_000)),
        ScriptEvent::Wake,
    ]);
    let (finished, file) = replay(&mut fake, &everything(), SIZES, None);
    let mut truth: Vec<_> = kept[0].places.iter().map(|p| row(&p.write)).collect();
    truth.extend(kept[1].places.iter().map(|p| row(&p.write)));
    let report = assert_rows(&file, &truth);
    assert_eq!(
        (finished.tally.truncated, report.file.aux_truncated),
        (2, 2)
    );
    assert_eq!(behind_losses(&file), [true, true]);
    let text = report.to_string();
    assert!(text.contains("2 of these times no size was told"), "{text}");
}

/// The kernel moves a flight recorder's head too, whenever its thread leaves the CPU. There is no
/// data to fetch.
#[test]
fn a_flight_recorder_is_not_emptied_though_its_head_moves() {
    let mut random = SmallRandom(33);
    let mut fake = Fake::new(machine("0", &[("cpu", 4, "")]));
    fake.script = beginning(1).into();
    let mut truth = Vec::new();
    for n in 1..40u64 {
        let part = part(&mut random, 150, n * 1_000_000);
        truth.extend(part.places.iter().map(|p| row(&p.write)));
        let time = ns(n * 1_000_000 + 500_000);
        fake.script.extend([
            pt(&part.bytes, time),
            sample(time + 1),
            ScriptEvent::Out {
                cpu: 0,
                pid: PID,
                tid: PID,
                time: time + 2,
            },
            switch_in(0, PID, time + 3),
            ScriptEvent::Wake,
        ]);
    }
    let (finished, file) = replay(&mut fake, &windows(8192), SIZES, None);
    assert_eq!(finished.tally.aux_bytes, 0);
    let session = Session::read(&file).unwrap();
    assert_eq!((session.windows.len(), session.full.len()), (39, 0));
    assert_rows(&file, &truth);
}

#[test]
fn virtual_machines_are_left_out_where_the_kernel_can() {
    let flags = |fake: &Fake| {
        let all: Vec<_> = fake
            .events
            .iter()
            .map(|e| e.attr.flags & flag::EXCLUDE_GUEST != 0)
            .collect();
        assert!(!all.is_empty());
        all.iter()
            .all(|&set| set)
            .then_some(true)
            .or_else(|| all.iter().all(|&set| !set).then_some(false))
    };
    let paused = Request {
        keep: Keep::Windows {
            bytes: 8192,
            trigger: Trigger::Loads(1_000_000),
            pause: true,
        },
        ..windows(8192)
    };
    type Refusal = fn(&Attr) -> Option<i32>;
    let guest: Refusal = |attr| (attr.flags & flag::EXCLUDE_GUEST != 0).then_some(libc::EINVAL);
    let action: Refusal = |attr| (attr.aux_action != 0).then_some(libc::EINVAL);
    let either: Refusal = |attr| {
        (attr.flags & flag::EXCLUDE_GUEST != 0 || attr.aux_action != 0).then_some(libc::EINVAL)
    };
    // Newer kernels refuse events that do not exclude guests.
    let needed: Refusal =
        |attr| (attr.flags & flag::EXCLUDE_GUEST == 0).then_some(libc::EOPNOTSUPP);
    for (refuse, guests_left_out, pauses) in [
        ((|_| None) as Refusal, true, true),
        (guest, false, true),
        (action, true, false),
        (either, false, false),
        (needed, true, true),
    ] {
        let mut fake = Fake::new(machine("0-1", &[("cpu", 4, "")]));
        fake.refuse = Box::new(move |attr, _| refuse(attr));
        let found = Machine::read(&fake).unwrap();
        let opened = open(&mut fake, &found, &paused, PID, SIZES).unwrap();
        let has_pause = opened.plan.events.iter().any(|e| e.role == Role::Pause);
        assert_eq!((flags(&fake), has_pause), (Some(guests_left_out), pauses));
        assert_eq!(opened.plan.notes, Vec::<String>::new());
    }
}

/// A kernel without memory for call chains, or without support for them, still records.
#[test]
fn what_refuses_call_chains_records_without_them() {
    let request = Request {
        stacks: true,
        ..windows(8192)
    };
    for errno in [0, libc::EINVAL, libc::ENOMEM, libc::EOVERFLOW] {
        let mut fake = Fake::new(machine("0-1", &[("cpu", 4, "")]));
        fake.refuse = Box::new(move |attr, _| {
            (attr.sample_type & bits::CALLCHAIN != 0 && errno != 0).then_some(errno)
        });
        let found = Machine::read(&fake).unwrap();
        let opened = open(&mut fake, &found, &request, PID, SIZES).unwrap();
        let sample = opened.plan.events.iter().find(|e| e.role == Role::Sample);
        let attr = sample.unwrap().attr;
        assert_eq!(attr.sample_type & bits::CALLCHAIN != 0, errno == 0);
        assert_ne!(attr.flags & flag::EXCLUDE_GUEST, 0, "{errno}");
        assert_eq!(attr.kind, 4, "loads, not the clock");
        let told = opened.plan.notes.iter().any(|n| n.contains("call chains"));
        assert_eq!(told, errno != 0, "{:?}", opened.plan.notes);
    }
}

/// If tracing began with a sample, a thread that ends before its first sample would never be
/// traced.
#[test]
fn pausing_leaves_the_beginning_of_threads_in() {
    let mut random = SmallRandom(34);
    let mut fake = Fake::new(machine("0", &[("cpu", 4, "")]));
    fake.script = beginning(1).into();
    let first = part(&mut random, 200, 1_000_000);
    let unseen = part(&mut random, 200, 2_000_000);
    let time = ns(3_000_000);
    fake.script.extend([
        pt(&first.bytes, ns(1_000_000)),
        ScriptEvent::Pause {
            cpu: 0,
            pid: PID,
            tid: PID,
            time: ns(1_500_000),
        },
        pt(&unseen.bytes, ns(2_000_000)),
        sample(time),
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
    let (_, file) = replay(&mut fake, &request, SIZES, None);
    let truth: Vec<_> = first.places.iter().map(|p| row(&p.write)).collect();
    let report = assert_rows(&file, &truth);
    assert_eq!(report.totals.samples, 1);
}

/// A kernel that throttles stops sampling until the next tick: a longer period loses less, and each
/// sample includes its period.
#[test]
fn a_throttled_event_gets_a_longer_period_and_samples_keep_their_weight() {
    let mut random = SmallRandom(35);
    let mut fake = Fake::new(machine("0", &[("cpu", 4, "")]));
    fake.fastest = 5000;
    fake.script = beginning(1).into();
    for n in 1..60u64 {
        let part = part(&mut random, 40, n * 1_000_000);
        let time = ns(n * 1_000_000 + 500_000);
        fake.script
            .extend([pt(&part.bytes, time), sample(time + 1), ScriptEvent::Wake]);
    }
    let (finished, file) = replay(&mut fake, &windows(4096), SIZES, None);
    assert!(
        (1..6).contains(&finished.tally.throttled),
        "{} times",
        finished.tally.throttled
    );
    assert!(
        finished
            .notes
            .iter()
            .any(|note| note.contains("1,000") && note.contains("8,000")),
        "{:?}",
        finished.notes
    );
    let session = Session::read(&file).unwrap();
    // 1,000, 2,000 and 4,000 once each; then no more throttling.
    assert_eq!(
        account::executed(&session),
        Some((1000 + 2000 + 4000 + 56 * 8000) as f64)
    );
    assert_eq!(session.loss.throttled, 3);
}

/// A recorder that cannot keep up takes fewer samples, instead of those that happen to fit.
#[test]
fn samples_that_find_no_room_make_the_period_longer() {
    let mut fake = Fake::new(machine("0", &[("cpu", 4, "")]));
    fake.script = beginning(1).into();
    for n in 0..400u64 {
        fake.script.extend([pt(&[0; 64], 100 + n), sample(100 + n)]);
        if n % 100 == 99 {
            fake.script.push_back(ScriptEvent::Wake);
        }
    }
    fake.script
        .extend([switch_in(0, PID, 1000), ScriptEvent::Wake]);
    let sizes = rings(4096, 16384);
    let (finished, _) = replay(&mut fake, &windows(256), sizes, None);
    assert!(finished.tally.lost > 100);
    assert!(
        finished
            .notes
            .iter()
            .any(|note| note.contains("every 1,000")),
        "{:?}",
        finished.notes
    );
}

/// The missing share of the recording is the first message to the user.
#[test]
fn shares_of_what_is_missing_come_first() {
    let mut random = SmallRandom(36);
    let mut fake = Fake::new(machine("0", &[("cpu", 4, "")]));
    fake.script = beginning(1).into();
    for n in 1..=60u64 {
        let mut encoder = Encoder::new(STYLE);
        encoder.psb(n * 1_000_000);
        for (number, write) in writes(&mut random, 40, n * 1_000_000)
            .into_iter()
            .enumerate()
        {
            // In every third window the processor overflows.
            if n % 3 == 0 && number == 20 {
                encoder.overflow(write);
            } else {
                encoder.write(write);
            }
        }
        let time = ns(n * 1_000_000 + 500_000);
        fake.script
            .extend([pt(&encoder.bytes, time), sample(time + 1)]);
        // The recorder sleeps so long that ten samples find no room.
        if n % 2 == 0 && n != 40 {
            fake.script.push_back(ScriptEvent::Wake);
        }
    }
    fake.script
        .extend([switch_in(0, PID, ns(70_000_000)), ScriptEvent::Wake]);
    let sizes = rings(4096, 16384);
    let (finished, file) = replay(&mut fake, &windows(1024), sizes, None);
    let (lost, samples) = (finished.tally.lost, finished.tally.samples);
    assert!(lost > 0 && lost + samples == 60, "{:?}", finished.tally);
    let dir = tempfile::tempdir().unwrap();
    let (_, manifest) = import(&file, dir.path());
    let [first, second, ..] = &manifest.problems[..] else {
        panic!("{:?}", manifest.problems)
    };
    let overflowed = manifest.totals.truncated_windows["overflowed"];
    let share = 100.0 * overflowed as f64 / samples as f64;
    assert!(
        overflowed > 10
            && first.starts_with(&format!(
                "{share:.1}% of the windows ({overflowed} of {samples}) lack records"
            )),
        "{first}"
    );
    let share = 100.0 * lost as f64 / 60.0;
    assert!(
        second.starts_with(&format!(
            "{share:.1}% of samples and other records ({lost} of 60)"
        )),
        "{second}"
    );
}

/// A filter names a file by its inode; programs on overlayfs (containers) are mapped by another
/// one.
#[test]
fn filters_for_files_on_overlayfs_are_refused_where_they_match_nothing() {
    let filter = "filter 0x1000/0x200@/nowhere/program filter 0x10/0x20@/nowhere/library";
    let request = Request {
        filter: filter.into(),
        ..everything()
    };
    for (release, works) in [
        ("6.1.0-test", false),
        ("6.12.54", false),
        ("6.12.55", true),
        ("6.13.9", false),
        ("6.17.4-1-default", false),
        ("6.17.5", true),
        ("6.18.0-rc3", true),
        ("7.0.1", true),
    ] {
        for place in ["/nowhere/program", "/nowhere/library"] {
            let mut fake = Fake::new(machine("0", &[("cpu", 4, "")]));
            fake.files
                .insert("/proc/sys/kernel/osrelease".into(), format!("{release}\n"));
            fake.file_systems.insert(place.into(), OVERLAY);
            let found = Machine::read(&fake).unwrap();
            let opened = open(&mut fake, &found, &request, PID, SIZES);
            match opened {
                Ok(_) => assert!(works, "{release}"),
                Err(error) => {
                    let text = error.to_string();
                    assert!(!works, "{release}: {text}");
                    assert!(
                        text.contains(place)
                            && text.contains("overlayfs")
                            && text.contains("--functions")
                            && text.contains("6.18"),
                        "{text}"
                    );
                    assert!(fake.events.is_empty(), "nothing stays open");
                }
            }
        }
    }
    // On another file system the filter is accepted.
    let mut fake = Fake::new(machine("0", &[("cpu", 4, "")]));
    fake.file_systems.insert("/nowhere/program".into(), 0xef53);
    let found = Machine::read(&fake).unwrap();
    assert!(open(&mut fake, &found, &request, PID, SIZES).is_ok());
}

/// Errata TGL052, ADL037, RPL017: output to one range beyond 4 KiB may be wrong. Kernels from 5.5
/// on use it, and no longer from 6.1 on.
#[test]
fn processors_with_wrong_single_range_output_are_warned_of() {
    let info = |model: u32| {
        format!(
            "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: {model}\nmodel name\t: x\n"
        )
    };
    let notes = |model: u32, release: &str| {
        let mut fake = Fake::new(machine("0", &[("cpu", 4, "")]));
        fake.files.insert("/proc/cpuinfo".into(), info(model));
        fake.files
            .insert("/proc/sys/kernel/osrelease".into(), format!("{release}\n"));
        let found = Machine::read(&fake).unwrap();
        let opened = open(&mut fake, &found, &windows(8192), PID, SIZES).unwrap();
        opened.plan.notes
    };
    for (model, release, erratum) in [
        (0x8c, "5.10.0", "TGL052"),
        (0x8d, "5.10.155-amd64", "TGL052"),
        (0x97, "5.15.0-91-generic", "ADL037"),
        (0x9a, "5.15.79", "ADL037"),
        (0xbe, "5.19.17", "ADL037"),
        (0xb7, "6.0.9", "RPL017"),
        (0xba, "6.0.0", "RPL017"),
    ] {
        let list = notes(model, release);
        assert!(
            list.len() == 1 && list[0].contains(erratum) && list[0].contains(release),
            "{model:#x} {release}: {list:?}"
        );
    }
    for (model, release) in [
        (0x97, "6.1.0"),
        (0x97, "6.0.10"),
        (0x97, "5.15.80"),
        (0x8c, "5.10.156"),
        (0x8c, "5.4.200"),
        (0x7a, "5.15.0"),
        (0xcf, "5.15.0"),
    ] {
        assert_eq!(
            notes(model, release),
            Vec::<String>::new(),
            "{model:#x} {release}"
        );
    }
}
