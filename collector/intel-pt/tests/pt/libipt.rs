//! libipt as a second reader: packets of arbitrary bytes, and events of encoded streams.
//!
//! The driver `libipt.c` is compiled when a test needs it; without a C compiler and libipt-dev the
//! tests say so and are skipped. `MGZ_LIBIPT_CFLAGS` adds flags, to compare with a newer libipt
//! than Debian's (`-DNEW_PACKETS -I… -L…`). `MGZ_PT_ROUNDS` multiplies the amount of work.

use super::encode::{Encoder, SmallRandom, Style, writes};
use super::{ALL, stream, words};
use mgz_pt::packet::{Packet, decode};
use mgz_pt::{ClockSettings, Ptwrites};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

fn rounds() -> u64 {
    std::env::var("MGZ_PT_ROUNDS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(1)
}

/// The compiled driver; `None` if it cannot be compiled.
fn driver() -> Option<(tempfile::TempDir, PathBuf)> {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("libipt");
    let flags = std::env::var("MGZ_LIBIPT_CFLAGS").unwrap_or_default();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pt/libipt.c");
    let status = Command::new("cc")
        .args(["-O2", "-o"])
        .arg(&path)
        .arg(source)
        .args(flags.split_whitespace())
        .arg("-lipt")
        .stderr(Stdio::piped())
        .output();
    if status.is_ok_and(|o| o.status.success()) {
        return Some((dir, path));
    }
    eprintln!(
        "SKIPPED: libipt-dev and a C compiler are needed, so libipt's reading is not compared"
    );
    None
}

fn run(driver: &std::path::Path, mode: &str, streams: &[Vec<u8>]) -> String {
    let mut child = Command::new(driver)
        .arg(mode)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    let mut input = child.stdin.take().expect("piped");
    let output = std::thread::scope(|scope| {
        scope.spawn(move || {
            for stream in streams {
                input
                    .write_all(&(stream.len() as u32).to_le_bytes())
                    .expect("written");
                input.write_all(stream).expect("written");
            }
        });
        child.wait_with_output().expect("ends")
    });
    assert!(output.status.success());
    String::from_utf8(output.stdout).expect("text")
}

fn newest() -> bool {
    std::env::var("MGZ_LIBIPT_CFLAGS").is_ok_and(|flags| flags.contains("NEW_PACKETS"))
}

/// Bytes that are mostly packets.
pub fn noise(random: &mut SmallRandom) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..random.below(40) {
        match random.below(6) {
            0 => bytes.push(random.next() as u8),
            1 => bytes.extend_from_slice(&[0x02, random.next() as u8]),
            2 => bytes.push(
                [0x1d, 0x0d, 0x11, 0x01][random.below(4) as usize] | (random.next() as u8 & 0xe0),
            ),
            3 => {
                let known = [
                    0x82, 0x23, 0x03, 0xa3, 0x43, 0xc8, 0x83, 0xf3, 0x73, 0xc3, 0xc2, 0x22, 0xa2,
                    0x62, 0xe2, 0x12, 0x32, 0x92, 0xb2, 0x13, 0x53,
                ];
                bytes.extend_from_slice(&[0x02, known[random.below(known.len() as u64) as usize]]);
            }
            4 => bytes
                .push([0x19, 0x59, 0x99, 0xd9, 0x00, 0x03, 0x07, 0xff][random.below(8) as usize]),
            _ => bytes.extend_from_slice(&mgz_pt::packet::PSB[..=random.below(15) as usize]),
        }
        for _ in 0..random.below(10) {
            bytes.push(if random.below(3) == 0 {
                0
            } else {
                random.next() as u8
            });
        }
    }
    bytes
}

#[test]
fn packets_of_arbitrary_bytes_are_those_that_libipt_sees() {
    let Some((_dir, driver)) = driver() else {
        return;
    };
    let seed = if rounds() > 1 {
        std::process::id().into()
    } else {
        11
    };
    let mut random = SmallRandom(seed);
    for round in 0..rounds() {
        let streams: Vec<_> = (0..20_000).map(|_| noise(&mut random)).collect();
        let text = run(&driver, "packets", &streams);
        let mut lines = text.lines();
        for stream in &streams {
            let (mine, known) = words::packets(stream, newest());
            let mut theirs = Vec::new();
            for line in lines.by_ref() {
                theirs.push(line);
                if line.contains(" end ") {
                    break;
                }
            }
            let compared = mine.len();
            for (mine, their) in mine.iter().zip(&theirs) {
                assert_eq!(mine, their, "seed {seed} round {round} {stream:02x?}");
            }
            assert!(
                !known || compared == theirs.len(),
                "seed {seed} round {round} {stream:02x?}\n{mine:?}\n{theirs:?}"
            );
        }
    }
}

fn hash(bytes: &[u8]) -> (u64, u64) {
    let mix = |hash: u64, word: u64| {
        let hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^ hash >> 32
    };
    let (mut count, mut value) = (0, 0);
    for event in Ptwrites::new(bytes, ClockSettings::default()) {
        count += 1;
        value = mix(mix(value, event.ip.unwrap_or(0)), event.payload);
    }
    (count, value)
}

/// Events of whole streams. With `MGZ_PT_ROUNDS=50` these are ten million.
#[test]
fn events_of_encoded_streams_are_those_that_libipt_sees() {
    let Some((_dir, driver)) = driver() else {
        return;
    };
    let mut random = SmallRandom(12);
    let mut total = 0;
    for _ in 0..rounds() {
        for style in [
            ALL,
            Style {
                mtc: false,
                cyc: false,
                ..ALL
            },
            Style {
                psb_every: 400,
                ..ALL
            },
        ] {
            // After an overflow libipt waits for a FUP with the address where execution continues,
            // which does not exist without branches. So overflows are checked only against perf and
            // the encoder.
            let streams: Vec<_> = (0..4)
                .map(|_| stream(&mut random, style, 17_000, false).bytes)
                .collect();
            let text = run(&driver, "events", &streams);
            for (stream, line) in streams.iter().zip(text.lines()) {
                let (count, hash) = hash(stream);
                assert_eq!(format!("{count} {hash:016x}"), line);
                assert_eq!(count, 17_000);
                total += count;
            }
        }
    }
    assert_eq!(total, rounds() * 12 * 17_000);
}

/// There is a cut packet before each PSB. libipt searches backwards for the PSB's first byte, and
/// finds all but a few.
#[test]
fn of_damaged_streams_no_less_is_read_than_libipt_reads() {
    let Some((_dir, driver)) = driver() else {
        return;
    };
    let mut random = SmallRandom(14);
    let style = Style {
        mtc: false,
        cyc: false,
        ..ALL
    };
    let mut streams = Vec::new();
    for cut in 1..10 {
        let mut bytes = Vec::new();
        let mut tsc = 1_000_000;
        for _ in 0..200 {
            let mut encoder = Encoder::new(style);
            for write in writes(&mut random, 50, tsc) {
                encoder.write(write);
                tsc = write.tsc;
            }
            bytes.extend_from_slice(&encoder.bytes);
            // A payload of which no part looks like packets.
            bytes.extend_from_slice(&[0x02, 0xb2, 1, 1, 1, 1, 1, 1, 1, 1][..cut]);
        }
        streams.push(bytes);
    }
    let text = run(&driver, "events", &streams);
    let mut theirs = Vec::new();
    for (stream, line) in streams.iter().zip(text.lines()) {
        theirs.push(
            line.split(' ')
                .next()
                .expect("a count")
                .parse::<u64>()
                .expect("a number"),
        );
        assert_eq!(hash(stream).0, 200 * 50);
    }
    eprintln!("of 10,000 ptwrites each libipt reads {theirs:?}");
    assert!(theirs.iter().all(|&count| count <= 200 * 50));
}

/// Nanoseconds of CPU time that this thread has used.
fn cpu_time() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the struct lives across the call.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Compares our speed with that of libipt's packet and event layers, on one core, alternating in
/// one run: `--ignored --nocapture`, release (`benches/run pt` does it). The least CPU time of all
/// turns counts.
#[test]
#[ignore = "a measurement"]
fn speed() {
    let Some((_dir, driver)) = driver() else {
        return;
    };
    let mut random = SmallRandom(13);
    let forms = [
        ("all timing", ALL),
        ("MTC", Style { cyc: false, ..ALL }),
        (
            "TSC only",
            Style {
                mtc: false,
                cyc: false,
                ..ALL
            },
        ),
    ];
    for (name, style) in forms {
        let mut encoder = Encoder::new(style);
        let count = 2_000_000;
        for write in writes(&mut random, count, 1_000_000) {
            encoder.write(write);
        }
        let streams = [encoder.bytes];
        let bytes = &streams[0];
        let theirs = |mode: &str| {
            run(&driver, mode, &streams)
                .lines()
                .last()
                .expect("a time")
                .parse::<f64>()
                .expect("ns")
                / count as f64
        };
        let timed = |work: &dyn Fn() -> u64| {
            let start = cpu_time();
            std::hint::black_box(work());
            (cpu_time() - start) / count as f64
        };
        let mut best = [f64::MAX; 5];
        for _ in 0..7 {
            let packets = timed(&|| {
                let (mut at, mut count) = (0, 0);
                while let Ok((packet, len)) = decode(&bytes[at..], None) {
                    count += u64::from(matches!(packet, Packet::Ptw { .. }));
                    at += len;
                }
                count
            });
            let events = timed(&|| hash(bytes).0);
            let clocked = timed(&|| {
                let settings = ClockSettings {
                    tsc_per_ctc: 80,
                    tsc_per_ctc_divisor: 1,
                    mtc_period: 3,
                    nominal_ratio: 20,
                };
                Ptwrites::new(bytes, settings)
                    .map(|e| e.tsc.unwrap_or(0) ^ e.payload ^ e.ip.unwrap_or(0))
                    .fold(0, |a, b| a ^ b)
            });
            for (best, now) in best.iter_mut().zip([
                packets,
                events,
                clocked,
                theirs("time-packets"),
                theirs("time-events"),
            ]) {
                *best = best.min(now);
            }
        }
        let [packets, events, clocked, their_packets, their_events] = best;
        println!(
            "{name}: {:.1} bytes and ns of CPU time per ptwrite: packets {packets:.2}, libipt {their_packets:.2}: {:.1}x (target 4); events {events:.2}, with time {clocked:.2}, libipt {their_events:.2}: {:.1}x and {:.1}x (target 5)",
            bytes.len() as f64 / count as f64,
            their_packets / packets,
            their_events / events,
            their_events / clocked,
        );
    }
}
