//! Intel PT recordings, encoded from software traces and from single-stepped programs, then
//! imported and compared with their sources.
//!
//! A software trace has every record in order. Encoded as `ptwrite`s with a matching sidecar and
//! read back, it must give the same rows and the same analysis. Where windows and overflows omit
//! records, the result must be that of a software trace without the same records.

#![allow(missing_docs, reason = "tests")]
#![allow(
    dead_code,
    clippy::too_many_arguments,
    reason = "the encoder is shared with the collector's tests"
)]

#[path = "../../collector/intel-pt/tests/pt/encode.rs"]
mod encode;
#[path = "../../collector/intel-pt/tests/pt/file.rs"]
mod file;

use encode::{Encoder, SmallRandom, Style, Write};
use file::{PerfFile, RecordingKind};
use mgz_abi::slot::{MARK_FIRST, Slot};
use mgz_annotations_schema::Sidecar;
use mgz_annotations_schema::manifest::{MANIFEST, Manifest, SPILL_DIR};
use mgz_annotations_schema::sidecar::{PtWrite, ptwrites};
use mgz_annotations_schema::spill::{self, SegmentHeader, SpillFile, SpillWriter, ThreadKey};
use mgz_tests::compare;
use mgz_tests::events::{EventKind as Seen, StepperEvent};
use mgz_tests::programs::{self, Variant};
use mgz_tests::rows::{self, RecordedRow};
use mgz_tests::session::{self, analysis_json, record_program};
use mgz_tests::tools::{self, LIMIT};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

const PIE: Variant = Variant::O2;
const FIXED: Variant = Variant {
    clang: true,
    opt: "1",
    pie: false,
};
const STYLE: Style = Style {
    psb_every: 1500,
    tsc: true,
    mtc: true,
    cyc: false,
    fup: true,
};

/// A software trace with its slots, and the sidecar that a PT recording of the same would have.
struct Recorded {
    dir: tempfile::TempDir,
    /// The trace folder, with `spill/`.
    trace: PathBuf,
    /// The converted trace.
    converted: PathBuf,
    sidecar: Sidecar,
    annotations: PathBuf,
    manifest: Manifest,
    bias: u64,
    threads: BTreeMap<ThreadKey, Vec<Slot>>,
}

/// Converts a soft sidecar to one for a program whose records are written by `ptwrite`s, located
/// where the ID is stored. The other parts of a record, and records that share a slot, get
/// addresses after all code.
fn as_pt(soft: &Sidecar) -> Sidecar {
    let mut sidecar = soft.clone();
    sidecar.header.flavour = "pt".into();
    let mut next = soft
        .functions
        .iter()
        .map(|f| f.clone_end)
        .max()
        .unwrap_or(0)
        + 64;
    for (record, r) in soft.records.iter().enumerate() {
        sidecar.records[record].slots = r.slots.max(1);
        for part in 0..ptwrites(r.slots.max(1)) {
            let own = part == 0 && r.slots > 0;
            let ip = if own { r.clone_ip } else { next };
            next += 8 * u64::from(!own);
            sidecar.ptwrites.push(PtWrite {
                ip,
                record: record as u32,
                part,
            });
        }
    }
    sidecar.ptwrites.sort_by_key(|p| p.ip);
    sidecar
}

fn copy(from: &Path, to: &Path) {
    tools::succeed(
        std::process::Command::new("cp").arg("-r").arg(from).arg(to),
        LIMIT,
    )
    .unwrap();
}

impl Recorded {
    fn new(name: &str, variant: Variant, args: &[&str]) -> Option<Recorded> {
        let dir = tempfile::tempdir().unwrap();
        let original = programs::build(name, variant, &["-g"], dir.path()).unwrap()?;
        let app = session::instrument(&original, "soft", &[]).unwrap();
        let (trace, converted) = (dir.path().join("soft"), dir.path().join("converted"));
        record_program(&["--mode", "full", "--keep-spill"], &trace, &app.path, args);
        copy(&trace, &converted);
        tools::succeed(
            tools::tool("mgz-record").arg("--recover").arg(&converted),
            LIMIT,
        )
        .unwrap();
        let sidecar = as_pt(&app.sidecar);
        let annotations = dir.path().join("pt.mgza");
        sidecar.write(&annotations).unwrap();
        let manifest: Manifest =
            serde_json::from_slice(&std::fs::read(trace.join(MANIFEST)).unwrap()).unwrap();
        let mut threads: BTreeMap<ThreadKey, Vec<Slot>> = BTreeMap::new();
        let mut slots = Vec::new();
        for (key, path) in spill::list(&trace.join(SPILL_DIR)).unwrap() {
            let file = SpillFile::open(&path).unwrap();
            for segment in file.segments() {
                file.decode(segment, &mut slots).unwrap();
                threads.entry(key).or_default().extend_from_slice(&slots);
            }
        }
        assert!(
            threads.values().map(Vec::len).sum::<usize>() > 100,
            "{name} records too little"
        );
        let bias = manifest.modules[0].bias;
        assert_eq!(manifest.modules.len(), 1);
        assert_eq!(bias == 0, !variant.pie);
        Some(Recorded {
            dir,
            trace,
            converted,
            sidecar,
            annotations,
            manifest,
            bias,
            threads,
        })
    }

    /// The `ptwrite`s that write these slots, each with the number of the slot whose record it
    /// completes.
    fn writes(&self, slots: &[Slot], first_tsc: u64) -> Vec<Write> {
        let first = self.sidecar.header.id_first;
        let places: HashMap<(u32, u32), u64> = self
            .sidecar
            .ptwrites
            .iter()
            .map(|p| ((p.record, p.part), p.ip))
            .collect();
        let mut out = Vec::new();
        let mut rest = slots;
        let mut tsc = first_tsc;
        while let Some(head) = rest.first() {
            assert!(head.id < MARK_FIRST, "signals have no ptwrite");
            let record = head.id - first;
            let count = self.sidecar.records[record as usize].slots as usize;
            let mut payloads = vec![head.payload];
            for raw in &rest[1..count] {
                payloads.extend([raw.payload, u64::from(raw.id) | u64::from(raw.aux) << 32]);
            }
            for (part, payload) in (0..).zip(payloads) {
                tsc += 13;
                out.push(Write {
                    ip: places[&(record, part)].wrapping_add(self.bias),
                    payload,
                    tsc,
                });
            }
            rest = &rest[count..];
        }
        out
    }

    /// A file with the events that precede PT data: names and mappings at the program's addresses.
    fn file(&self, kind: RecordingKind, buffers: u32) -> PerfFile {
        let mut file = PerfFile::new(kind, buffers, (true, true, false));
        let processes: std::collections::BTreeSet<u32> =
            self.threads.keys().map(|k| k.process).collect();
        let path = self.sidecar.header.output.clone();
        for process in processes {
            file.comm(process, process, 1);
            let base = self.bias + self.sidecar.header.base;
            // The clone's part of the file, as the loader maps it, preceded by another part.
            let from = self
                .sidecar
                .functions
                .iter()
                .map(|f| f.clone_start)
                .filter(|&a| a > 0)
                .min()
                .unwrap()
                & !0xfff;
            let to = self.sidecar.ptwrites.iter().map(|p| p.ip).max().unwrap() + 1;
            file.map(
                process,
                0x7f00_0000_0000,
                0x1000,
                0,
                "/usr/lib/other.so",
                None,
                2,
            );
            file.map(
                process,
                base,
                from - self.sidecar.header.base,
                0,
                &path,
                None,
                2,
            );
            file.map(
                process,
                from + self.bias,
                to - from,
                from - self.sidecar.header.base,
                &path,
                None,
                3,
            );
        }
        for key in self.threads.keys().filter(|k| k.process != k.thread) {
            file.comm(key.process, key.thread, 4);
        }
        file
    }

    fn import(&self, bytes: &[u8], name: &str) -> (PathBuf, rows::Trace) {
        import(
            bytes,
            &self.dir.path().join(name),
            &["--annotations", self.annotations.to_str().unwrap()],
        )
    }

    /// Rows of a software trace that has these stretches of slots, each without internal gaps.
    fn expected(&self, name: &str, stretches: &BTreeMap<ThreadKey, Vec<Vec<Slot>>>) -> rows::Trace {
        let folder = self.dir.path().join(name);
        copy(&self.trace, &folder);
        std::fs::remove_dir_all(folder.join(SPILL_DIR)).unwrap();
        std::fs::create_dir(folder.join(SPILL_DIR)).unwrap();
        for (key, list) in stretches {
            let mut writer = SpillWriter::create(&folder.join(SPILL_DIR), *key).unwrap();
            let mut first_slot = 0;
            for slots in list {
                first_slot += 1;
                writer
                    .write(
                        &SegmentHeader {
                            first_slot,
                            ..SegmentHeader::default()
                        },
                        slots,
                    )
                    .unwrap();
                first_slot += slots.len() as u64;
            }
            writer.finish().unwrap();
        }
        tools::succeed(
            tools::tool("mgz-record").arg("--recover").arg(&folder),
            LIMIT,
        )
        .unwrap();
        rows::read_trace(&folder).unwrap()
    }
}

fn import(bytes: &[u8], to: &Path, extra: &[&str]) -> (PathBuf, rows::Trace) {
    let file = to.with_extension("data");
    std::fs::write(&file, bytes).unwrap();
    let output = tools::succeed(
        tools::tool("mgz-record")
            .args(["--import"])
            .arg(&file)
            .arg("-o")
            .arg(to)
            .args(extra),
        LIMIT,
    )
    .unwrap();
    println!("{}", String::from_utf8_lossy(&output.stderr));
    (to.to_owned(), rows::read_trace(to).unwrap())
}

fn assert_same(got: &rows::Trace, expected: &rows::Trace, what: &str) {
    let keys = |t: &rows::Trace| t.threads.keys().copied().collect::<Vec<_>>();
    assert_eq!(keys(got), keys(expected), "{what}: threads");
    for (key, rows) in &expected.threads {
        let mine = &got.threads[key];
        if let Some(at) = rows.iter().zip(mine).position(|(a, b)| a != b) {
            panic!(
                "{what}: thread {key:?} differs at row {at} of {}: {:x?} instead of {:x?}",
                rows.len(),
                mine[at],
                rows[at]
            );
        }
        assert_eq!(mine.len(), rows.len(), "{what}: rows of thread {key:?}");
    }
    assert_eq!(
        got.manifest.totals.implied_const, expected.manifest.totals.implied_const,
        "{what}"
    );
}

/// The analysis without its information on the recording itself and on times. An import has no
/// information on the caches.
fn analysis(trace: &Path) -> serde_json::Value {
    let output = tools::succeed(
        tools::tool("mgz-analyze")
            .arg(trace)
            .args(["--format", "json", "--caches", "zen3"]),
        LIMIT,
    )
    .unwrap();
    let mut report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    report.as_object_mut().unwrap().remove("warnings");
    let summary = report["summary"].as_object_mut().unwrap();
    summary.remove("trace");
    summary.remove("rho_source");
    // The recorder notes names of processes and threads, which an import does not have.
    for table in ["processes", "threads"] {
        for row in report[table].as_array_mut().into_iter().flatten() {
            row.as_object_mut().unwrap().remove("name");
        }
    }
    report
}

fn assert_same_analysis(got: &Path, expected: &Path, what: &str) {
    let (got, expected) = (analysis(got), analysis(expected));
    for (key, value) in expected.as_object().unwrap() {
        assert!(
            got[key] == *value,
            "{what}: {key} is\n{}\nand not\n{value}",
            got[key]
        );
    }
}

#[test]
fn a_full_trace_comes_back_whole() {
    for (name, variant, form) in [
        ("hash", PIE, "file"),
        ("loops", FIXED, "pipe"),
        ("gathers", PIE, "compressed"),
        ("parallel", PIE, "file"),
    ] {
        let args = if name == "parallel" {
            &["5000"][..]
        } else {
            &[]
        };
        let Some(recorded) = Recorded::new(name, variant, args) else {
            continue;
        };
        let what = format!("{name} {variant} {form}");
        let mut file = recorded.file(RecordingKind::PerThread, recorded.threads.len() as u32);
        let mut random = SmallRandom(1);
        for (buffer, (key, slots)) in recorded.threads.iter().enumerate() {
            let mut encoder = Encoder::new(STYLE);
            recorded
                .writes(slots, 1_000_000)
                .into_iter()
                .for_each(|w| encoder.write(w));
            encoder.pad(3);
            let mut at = 0;
            while at < encoder.bytes.len() {
                let to = (at + 1 + random.below(200_000) as usize).min(encoder.bytes.len());
                file.auxtrace(
                    &encoder.bytes[at..to],
                    at as u64,
                    buffer as u32,
                    key.thread,
                    u32::MAX,
                );
                at = to;
            }
        }
        file.round();
        let bytes = match form {
            "pipe" => file.finish_pipe(),
            "compressed" => file.finish_compressed(),
            _ => file.finish(),
        };
        let (folder, got) = recorded.import(&bytes, "imported");
        let expected = rows::read_trace(&recorded.converted).unwrap();
        assert_same(&got, &expected, &what);
        let totals = &got.manifest.totals;
        assert_eq!(
            (totals.loads_executed, got.manifest.state.as_str()),
            (expected.manifest.totals.loads_executed, "complete"),
            "{what}: {:?}",
            got.manifest
        );
        assert_eq!(
            (got.manifest.mode.as_str(), got.manifest.backend.as_str()),
            ("full", "pt")
        );
        assert_same_analysis(&folder, &recorded.converted, &what);
    }
}

/// Two CPUs, between which threads move; the context switches fall anywhere, also inside of regions.
#[test]
fn threads_that_move_between_cpus_come_back_whole() {
    let Some(recorded) = Recorded::new("parallel", PIE, &["3000"]) else {
        return;
    };
    let mut random = SmallRandom(2);
    let mut left: Vec<(ThreadKey, Vec<Write>)> = recorded
        .threads
        .iter()
        .map(|(key, slots)| (*key, recorded.writes(slots, 0)))
        .collect();
    left.iter_mut().for_each(|(_, writes)| writes.reverse());
    let mut file = recorded.file(RecordingKind::PerCpu, 2);
    let mut encoders = [Encoder::new(STYLE), Encoder::new(STYLE)];
    let mut from = [0; 2];
    let mut tsc = 1_000_000;
    let mut turn = 0;
    while !left.is_empty() {
        // The CPUs alternate, so that no thread runs on both at once.
        let cpu = turn % 2;
        turn += 1;
        let n = random.below(left.len() as u64) as usize;
        let (key, writes) = &mut left[n];
        let (key, encoder) = (*key, &mut encoders[cpu]);
        tsc += 4000;
        file.switch(false, key.process, key.thread, tsc, cpu as u32);
        tsc += 1000;
        // The processor writes status packets whenever tracing begins.
        encoder.psb(tsc);
        for _ in 0..random.below(900) {
            let Some(write) = writes.pop() else { break };
            tsc += 20;
            encoder.write(Write { tsc, ..write });
        }
        tsc += 2000;
        file.switch(true, key.process, key.thread, tsc, cpu as u32);
        file.aux(
            from[cpu] as u64,
            (encoder.bytes.len() - from[cpu]) as u64,
            0,
            key.process,
            key.thread,
            tsc,
            cpu as u32,
            cpu as u32,
        );
        from[cpu] = encoder.bytes.len();
        left.retain(|(_, writes)| !writes.is_empty());
    }
    for (cpu, encoder) in encoders.iter().enumerate() {
        file.auxtrace(&encoder.bytes, 0, cpu as u32, u32::MAX, cpu as u32);
    }
    file.round();
    let (folder, got) = recorded.import(&file.finish(), "imported");
    assert_same(
        &got,
        &rows::read_trace(&recorded.converted).unwrap(),
        "two CPUs",
    );
    assert_same_analysis(&folder, &recorded.converted, "two CPUs");
}

/// The content of windows over a thread's stream: contiguous stretches of slots. `slot_of` contains
/// the slot of each event.
fn stretches(
    encoder: &Encoder,
    slot_of: &[usize],
    slots: &[Slot],
    windows: &[std::ops::Range<usize>],
    size: usize,
    every: usize,
) -> Vec<Vec<Slot>> {
    let mut out: Vec<Vec<Slot>> = Vec::new();
    let mut before = None;
    for places in encoder.readable(windows) {
        if every >= size {
            before = None;
        }
        for &slot in &slot_of[places] {
            if before.map(|b: usize| b + 1) != Some(slot) {
                out.push(Vec::new());
            }
            out.last_mut().unwrap().push(slots[slot]);
            before = Some(slot);
        }
    }
    out
}

#[test]
fn windows_with_overlaps_and_overflows_give_what_they_hold() {
    for (name, variant, every, size, overflows) in [
        ("hash", PIE, 4096, 8192, false),
        ("hash", FIXED, 4096, 8192, true),
        ("parallel", PIE, 4096, 8192, true),
        ("loops", PIE, 20_000, 8192, true),
        ("chase", PIE, 9_000, 4096, false),
    ] {
        let args = if name == "parallel" {
            &["5000"][..]
        } else {
            &[]
        };
        let Some(recorded) = Recorded::new(name, variant, args) else {
            continue;
        };
        let what = format!("{name} {variant}, every {every}, size {size}, overflows {overflows}");
        let mut random = SmallRandom(3);
        let mut file = recorded.file(RecordingKind::Samples, recorded.threads.len() as u32);
        let mut expected = BTreeMap::new();
        let mut samples = Vec::new();
        let mut lost = 0;
        for (cpu, (key, slots)) in (0u32..).zip(&recorded.threads) {
            file.start(key.process, key.thread, 5, cpu, cpu);
            file.switch(false, key.process, key.thread, 6, cpu);
            let mut encoder = Encoder::new(STYLE);
            let mut slot_of = Vec::new();
            for (slot, write) in recorded.writes(slots, 1_000_000).into_iter().enumerate() {
                if overflows && random.below(700) == 0 {
                    encoder.overflow(write);
                    lost += 1;
                } else {
                    encoder.write(write);
                    slot_of.push(slot);
                }
            }
            let mut at = 0;
            let mut windows = Vec::new();
            for place in &encoder.places {
                if place.end >= at + every {
                    at = place.end;
                    let window = at.saturating_sub(size)..at;
                    samples.push((
                        place.write.tsc + 1,
                        cpu,
                        *key,
                        encoder.bytes[window.clone()].to_vec(),
                    ));
                    windows.push(window);
                }
            }
            expected.insert(
                *key,
                stretches(&encoder, &slot_of, slots, &windows, size, every),
            );
        }
        expected.retain(|_, list: &mut Vec<_>| !list.is_empty());
        samples.sort_by_key(|s| s.0);
        for (tsc, cpu, key, bytes) in &samples {
            file.sample(bytes, 0, key.process, key.thread, *tsc, *cpu);
        }
        file.round();
        let (folder, got) = recorded.import(&file.finish(), "imported");
        let expected = recorded.expected("expected", &expected);
        assert_same(&got, &expected, &what);
        let dropped = &got.manifest.totals.dropped;
        assert_eq!(
            dropped.contains_key("overflows"),
            lost > 0 && got.manifest.state.as_str() == "partial",
            "{what}: {dropped:?}"
        );
        assert_eq!(
            got.manifest
                .totals
                .truncated_windows
                .contains_key("overlapping"),
            every < size,
            "{what}: {:?}",
            got.manifest.totals
        );
        assert_eq!(
            dropped.get("torn_loads"),
            expected.manifest.totals.dropped.get("torn_loads"),
            "{what}"
        );
        assert_eq!(
            dropped.get("cut_loads"),
            expected.manifest.totals.dropped.get("cut_loads"),
            "{what}"
        );
        assert_eq!(
            (
                got.manifest.mode.as_str(),
                got.manifest.trigger.as_str(),
                got.manifest.period
            ),
            ("samples", "loads", 1000)
        );
        assert!(
            !analysis(&folder)["functions"]
                .as_array()
                .unwrap()
                .is_empty()
        );
    }
}

/// Windows whose samples have call chains are divided by them. The instrumented file is gone, so
/// the sidecar supplies the names of functions.
#[test]
fn call_chains_reach_the_analysis() {
    let Some(recorded) = Recorded::new("hash", PIE, &[]) else {
        return;
    };
    let sidecar = &recorded.sidecar;
    let _ = std::fs::remove_file(&sidecar.header.output);
    let mut file = recorded.file(RecordingKind::Samples, 1);
    file.extra = file::CALLCHAIN;
    let (key, slots) = recorded.threads.first_key_value().unwrap();
    file.start(key.process, key.thread, 5, 0, 0);
    file.switch(false, key.process, key.thread, 6, 0);
    let mut encoder = Encoder::new(STYLE);
    for write in recorded.writes(slots, 1_000_000) {
        encoder.write(write);
    }
    let main = sidecar
        .functions
        .iter()
        .find(|f| sidecar.string(f.name) == "main");
    let main = main.unwrap().clone_start + 1 + recorded.bias;
    let (mut at, mut count) = (0, 0);
    let mut inner = std::collections::BTreeSet::new();
    for place in &encoder.places {
        if place.end < at + 9000 {
            continue;
        }
        at = place.end;
        let link = place.write.ip - recorded.bias;
        let is_in = |f: &&mgz_annotations_schema::sidecar::Function| {
            (f.clone_start..f.clone_end).contains(&link)
        };
        let Some(function) = sidecar.functions.iter().find(is_in) else {
            continue;
        };
        inner.insert(sidecar.string(function.name).to_owned());
        file.chain = vec![file::USER, place.write.ip, main];
        let bytes = &encoder.bytes[at - 8192..at];
        file.sample(
            bytes,
            place.write.ip,
            key.process,
            key.thread,
            place.write.tsc + 1,
            0,
        );
        count += 1;
    }
    file.round();
    let (folder, got) = recorded.import(&file.finish(), "imported");
    let told = &got.manifest.call_paths;
    assert!(count > 2, "{count} windows");
    assert_eq!(
        (told.state.as_str(), told.partial, told.unknown),
        ("recorded", got.manifest.totals.samples, 0)
    );
    let report = analysis_json(&folder, &["--by-path", "--caches", "zen3"]);
    let paths = &report["call_paths"];
    assert_eq!(
        (&paths["state"], &paths["partial"]),
        (&"recorded".into(), &told.partial.into())
    );
    let calls = paths["calls"].as_array().unwrap();
    let name = |call: &serde_json::Value| call["function"].as_str().unwrap().to_owned();
    let ends: std::collections::BTreeSet<String> = calls.iter().map(name).collect();
    assert!(
        ends.contains("main") && inner.iter().any(|f| ends.contains(f)),
        "{ends:?} {inner:?}"
    );
    let rows = report["by_path"].as_array().unwrap();
    let by_way_of_main = |row: &serde_json::Value| row["path"].to_string().contains("main");
    assert!(rows.iter().any(by_way_of_main), "{rows:?}");
}

/// The program as it would be recorded: its clones are stepped, and each `ptwrite` is encoded.
#[test]
fn a_stepped_program_gives_the_loads_that_it_executed() {
    for (name, variant) in [
        ("loops", PIE),
        ("strings", PIE),
        ("switches", FIXED),
        ("threads", PIE),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let Some(original) = programs::build(name, variant, &[], dir.path()).unwrap() else {
            continue;
        };
        let app = session::instrument(&original, "pt", &[]).unwrap();
        let watch = compare::watch_clones(&app.path, &app.original, &app.sidecar);
        let (_, events) = session::step(
            dir.path(),
            &watch,
            &app.path,
            &["--fixed"],
            &std::process::Command::new(&app.path),
        )
        .unwrap();
        let bias = events
            .iter()
            .find(|e| e.kind == Seen::Module)
            .map_or(0, |e| e.value);
        let threads: BTreeMap<(u32, u32), Vec<StepperEvent>> = compare::by_thread(&events)
            .into_iter()
            .filter(|(_, all)| all.iter().any(|e| e.kind == Seen::PtWrite))
            .collect();
        let mut file = PerfFile::new(
            RecordingKind::PerThread,
            threads.len() as u32,
            (true, true, false),
        );
        let path = app.path.to_str().unwrap();
        for (buffer, ((pid, tid), events)) in (0u32..).zip(&threads) {
            file.comm(*pid, *tid, 1);
            file.map(
                *pid,
                bias + app.sidecar.header.base,
                0x1000_0000,
                0,
                path,
                None,
                2,
            );
            let mut encoder = Encoder::new(STYLE);
            let mut tsc = 1_000_000;
            for event in events.iter().filter(|e| e.kind == Seen::PtWrite) {
                tsc += 17;
                encoder.write(Write {
                    ip: event.ip + bias,
                    payload: event.value,
                    tsc,
                });
            }
            file.auxtrace(&encoder.bytes, 0, buffer, *tid, u32::MAX);
        }
        // The sidecar is next to the program, so it need not be named.
        let (_, got) = import(&file.finish(), &dir.path().join("imported"), &[]);
        for (key, events) in &threads {
            let (expected, implied) = compare::recorded(&app.sidecar, events).unwrap();
            let rows = got.threads.get(key).map_or(&[][..], Vec::as_slice);
            let shown: Vec<_> = rows
                .iter()
                .filter(|r| !r.store)
                .map(|r: &RecordedRow| (r.ip, r.address, r.size))
                .collect();
            let differ = shown.iter().zip(&expected).position(|(a, b)| a != b);
            assert!(
                differ.is_none() && shown.len() == expected.len(),
                "{name} {variant} {key:?}: at {differ:?}, {} rows, {} expected",
                shown.len(),
                expected.len()
            );
            assert_eq!(
                rows.iter().map(|r| u64::from(r.implied_const)).sum::<u64>(),
                implied,
                "{name} {variant}"
            );
        }
    }
}
