//! Call chains of samples as paths of windows. The chains are those of a real program, which
//! follows its frame pointers as the kernel does, in recordings that the tests make.

use super::encode::{Encoder, SmallRandom, Write};
use super::file::{CALLCHAIN, PerfFile, RecordingKind, STACKS, USER};
use super::has_perf;
use super::mixed::{BASE, PLAIN_STYLE, put, trace};
use super::sidecars::sidecar;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use arrow_array::{Array, RecordBatch};
use mgz_annotations_schema::PathRecording;
use mgz_annotations_schema::manifest::{CALL_PATHS, CallPaths, MANIFEST, Manifest, WINDOW_PATHS};
use mgz_annotations_schema::spill::ThreadKey;
use mgz_collector::options::args::Cli;
use mgz_intel_pt::import::modules::{Annotations, Modules};
use mgz_intel_pt::import::paths::of_stretches;
use mgz_intel_pt::import::threads::Stretch;
use mgz_perf::records::kind;
use mgz_perf_data::callchain::{CallChain, UserStack};
use mgz_perf_data::header::layout;
use mgz_perf_data::records::Records;
use mgz_perf_data::session::AuxWindow;
use mgz_perf_data::{Session, sample};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

const PID: u32 = 1000;
const KERNEL: u64 = -128i64 as u64;

const PROGRAM: &str = r#"
#include <stdint.h>
#include <stdio.h>
#include <string.h>
volatile int count;
__attribute__((noinline)) void leaf(void) {
    uintptr_t here;
    __asm__ volatile("leaq 0(%%rip), %0" : "=r"(here));
    printf("stack %lx %lx %lx", (uintptr_t)__builtin_frame_address(0), (uintptr_t)__builtin_frame_address(0), here);
    uintptr_t *top = __builtin_frame_address(0);
    for (int n = 0; n < 96; n++) printf(" %lx", top[n]);
    printf("\nchain %lx", here);
    for (uintptr_t *frame = __builtin_frame_address(0);;) {
        uintptr_t *next = (uintptr_t *)frame[0];
        printf(" %lx", frame[1]);
        if (next <= frame || next - frame > 1 << 16) break;
        frame = next;
    }
    printf("\n");
}
static inline __attribute__((always_inline)) void step(void) {
    leaf();
    count++;
}
__attribute__((noinline)) void outer(void) {
    step();
    leaf();
    count++;
}
__attribute__((noinline)) void spin(long n) {
    __asm__ volatile("" : : "r"(__builtin_frame_address(0)));
    for (long i = 0; i < n; i++) count += i;
}
__attribute__((noinline, optimize("omit-frame-pointer"))) void leaf_spin(long n) {
    for (long i = 0; i < n; i++) count += i;
}
__attribute__((noinline)) void busy(void) {
    spin(300000000);
    leaf_spin(300000000);
    count++;
}
int main(int argc, char **argv) {
    static char line[4096];
    outer();
    if (argc > 1) busy();
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps))
        if (strstr(line, " r-xp ")) printf("map %s", line);
    return 0;
}
"#;

/// A program that has run.
struct Ran {
    /// Its two chains: from a call that was inlined into `outer`, and from `outer` itself.
    chains: [Vec<u64>; 2],
    /// For each chain: bp, sp and ip, followed by the stack.
    stacks: [Vec<u64>; 2],
    /// Executable mappings: start, end, offset, path.
    maps: Vec<(u64, u64, u64, String)>,
    path: PathBuf,
    dir: tempfile::TempDir,
}

impl Ran {
    fn new() -> Ran {
        let dir = tempfile::tempdir().expect("a folder");
        let (source, path) = (dir.path().join("chain.c"), dir.path().join("chain"));
        std::fs::write(&source, PROGRAM).expect("written");
        let built = Command::new("cc")
            .args(["-g", "-O1", "-fno-omit-frame-pointer", "-Wl,--build-id"])
            .args(["-fno-optimize-sibling-calls"])
            .arg("-o")
            .args([&path, &source])
            .status();
        assert!(built.expect("a C compiler").success());
        let output = Command::new(&path).output().expect("it runs");
        let text = String::from_utf8(output.stdout).expect("text");
        let hex = |s: &str| u64::from_str_radix(s, 16).expect("hexadecimal");
        let numbers = |what: &str| -> [Vec<u64>; 2] {
            let lines = text.lines().filter_map(|l| l.strip_prefix(what));
            let list: Vec<Vec<u64>> = lines.map(|l| l.split(' ').map(hex).collect()).collect();
            list.try_into().expect("two")
        };
        let map = |line: &str| {
            let f: Vec<_> = line.split_whitespace().collect();
            let (start, end) = f[0].split_once('-').expect("a range");
            let path = f.get(5).map_or("//anon", |path| path);
            (hex(start), hex(end), hex(f[2]), path.to_owned())
        };
        let maps = text.lines().filter_map(|l| l.strip_prefix("map ")).map(map);
        Ran {
            chains: numbers("chain "),
            stacks: numbers("stack "),
            maps: maps.collect(),
            path,
            dir,
        }
    }

    /// The address behind the call in the function that the program begins in.
    fn behind_start(&self) -> u64 {
        let own = self.path.to_str().expect("text");
        let map = self.maps.iter().find(|m| m.3 == own).expect("mapped");
        let bytes = std::fs::read(&self.path).expect("there");
        // (In a file as small as this, the entry's file offset is its address.)
        let entry = u64::from_le_bytes(bytes[24..32].try_into().expect("8 bytes"));
        let code = &bytes[entry as usize..][..64];
        let call = code
            .windows(2)
            .position(|w| w == [0xff, 0x15])
            .expect("a call");
        map.0 - map.2 + entry + call as u64 + 6
    }
}

/// A recording of the program's process, which also has a file `/x/app` with a sidecar.
fn recording(ran: &Ran, build_id: Option<&[u8]>) -> PerfFile {
    let mut file = PerfFile::new(RecordingKind::Samples, 1, (true, false, false));
    file.extra = CALLCHAIN;
    file.comm(PID, PID, 1);
    file.mmap(PID, BASE, 0x1000, "/x/app", 2);
    for (start, end, offset, path) in &ran.maps {
        let build_id = build_id.filter(|_| ran.path == Path::new(path));
        file.map(PID, *start, end - start, *offset, path, build_id, 3);
    }
    file
}

fn window(first: u64) -> Vec<u8> {
    let mut encoder = Encoder::new(PLAIN_STYLE);
    for n in 0..4 {
        encoder.write(Write {
            ip: BASE + 24 * n,
            payload: (first << 20) + n,
            tsc: 1000 * first + 10 * n,
        });
    }
    encoder.bytes
}

/// Adds a window whose sample has a chain.
fn add(file: &mut PerfFile, number: u64, chain: &[u64]) {
    file.chain = chain.to_vec();
    let ip = chain.iter().copied().find(|&a| a < 1 << 47).unwrap_or(BASE);
    file.sample(&window(number), ip, PID, PID, 1000 * number + 100, 0);
}

fn user(chain: &[u64]) -> Vec<u64> {
    [&[USER], chain].concat()
}

fn table(folder: &Path, name: &str) -> Option<RecordBatch> {
    let file = std::fs::File::open(folder.join(name)).ok()?;
    let mut reader = ParquetRecordBatchReaderBuilder::try_new(file)
        .and_then(|b| b.with_batch_size(1 << 20).build())
        .expect("a table");
    reader.next().map(|batch| batch.expect("rows"))
}

/// A call: function, line of the call, inlined.
type Call = (String, u32, bool);

/// Call paths of a recording: the manifest's entry, and the calls of each window from the inside
/// out.
fn paths(file: &PerfFile, dir: &Path) -> (CallPaths, Vec<Vec<Call>>) {
    let known = put(dir, &[sidecar("/b/app", "", 0, 8, 100)]);
    let manifest = trace(&file.finish(), dir, &[&known[0]]).expect("imported");
    let folder = dir.join("trace");
    let Some(windows) = table(&folder, WINDOW_PATHS) else {
        return (manifest.call_paths, Vec::new());
    };
    let calls = table(&folder, CALL_PATHS).expect("calls");
    let column = |name: &str| calls.column_by_name(name).expect("a column").clone();
    let (functions, parents, lines, inlined) = (
        column("function"),
        column("parent"),
        column("call_line"),
        column("inlined"),
    );
    let number =
        |array: &dyn Array, at: u32| array.as_primitive::<UInt32Type>().value(at as usize - 1);
    let path = |mut at: u32| {
        let mut out = Vec::new();
        while at != 0 {
            let row = at as usize - 1;
            let function = functions.as_string::<i32>().value(row).to_owned();
            out.push((
                function,
                number(&lines, at),
                inlined.as_boolean().value(row),
            ));
            at = number(&parents, at);
        }
        out
    };
    let of_windows = windows.column_by_name("path").expect("a column");
    let of_windows = of_windows.as_primitive::<UInt32Type>().values();
    assert_eq!(of_windows.len() as u64, manifest.totals.samples);
    (
        manifest.call_paths,
        of_windows.iter().map(|&p| path(p)).collect(),
    )
}

fn names(path: &[Call]) -> Vec<&str> {
    path.iter().map(|c| c.0.as_str()).collect()
}

/// The line of the program's source with this text.
fn line(text: &str, nth: usize) -> u32 {
    let found = PROGRAM.lines().enumerate().filter(|l| l.1.trim() == text);
    found.map(|l| l.0 as u32 + 1).nth(nth).expect("a line")
}

#[test]
fn windows_have_the_call_chains_of_their_samples() {
    let ran = Ran::new();
    let mut file = recording(&ran, None);
    let [inlined, plain] = &ran.chains;
    add(&mut file, 1, &user(inlined));
    let kernel = [KERNEL, 0xffff_ffff_8100_0000, 0xffff_ffff_8100_0010];
    add(&mut file, 2, &[&kernel[..], &user(plain)].concat());
    let whole = [&user(&plain[..3])[..], &[ran.behind_start()]].concat();
    add(&mut file, 3, &whole);
    let dir = tempfile::tempdir().expect("a folder");
    let (told, found) = paths(&file, dir.path());

    let start = names(&found[0]);
    assert_eq!(start[..4], ["leaf", "step", "outer", "main"], "{found:?}");
    let at = |path: &[Call], n: usize| (path[n].1, path[n].2);
    assert_eq!(at(&found[0], 0), (line("leaf();", 0), false));
    assert_eq!(at(&found[0], 1), (line("step();", 0), true));
    assert_eq!(at(&found[0], 2), (line("outer();", 0), false));
    assert_eq!(names(&found[1])[..3], ["leaf", "outer", "main"]);
    assert_eq!(at(&found[1], 0), (line("leaf();", 1), false));
    assert_eq!(names(&found[2]), ["leaf", "outer", "main", "_start"]);
    assert_eq!(told.state, PathRecording::Recorded);
    assert_eq!(
        (told.whole, told.partial, told.unknown),
        (1, 2, 0),
        "{told:?}"
    );

    // perf names the same functions.
    if !has_perf() {
        return;
    }
    let data = dir.path().join("again.perf.data");
    std::fs::write(&data, file.finish()).expect("written");
    let output = Command::new("perf")
        .args([
            "script",
            "--no-inline",
            "--no-itrace",
            "-f",
            "-F",
            "ip,sym",
            "-i",
        ])
        .arg(&data)
        .output()
        .expect("perf");
    let text = String::from_utf8_lossy(&output.stdout);
    let theirs: Vec<Vec<&str>> = text
        .split("\n\n")
        .map(|s| {
            let rows = s.lines().filter_map(|l| l.split_whitespace().nth(1));
            rows.filter(|name| !name.starts_with('[')).collect()
        })
        .filter(|names: &Vec<&str>| !names.is_empty())
        .collect();
    assert_eq!(theirs.len(), 3, "{text}");
    for (ours, theirs) in found.iter().zip(theirs) {
        let ours: Vec<&str> = ours
            .iter()
            .filter(|c| !c.2 && !c.0.starts_with('['))
            .map(|c| c.0.as_str())
            .collect();
        assert!(
            ours.len() >= 3 && theirs.starts_with(&ours[..3]),
            "{ours:?} {theirs:?}"
        );
    }
}

#[test]
fn chains_end_before_what_is_no_call_and_say_so() {
    let ran = Ran::new();
    let mut file = recording(&ran, None);
    let chain = &ran.chains[1];
    let with = |at: usize, address: u64| {
        let mut chain = chain.clone();
        chain[at] = address;
        user(&chain)
    };
    // Addresses not behind a call, not in a file, and in the kernel.
    add(&mut file, 1, &with(2, chain[2] + 1));
    add(&mut file, 2, &with(2, 0x1234_5678));
    add(&mut file, 3, &with(2, 0xffff_8000_0000_0000));
    // Chains of the kernel alone, of a virtual machine, and empty ones.
    add(&mut file, 4, &[KERNEL, 0xffff_ffff_8100_0000]);
    add(&mut file, 5, &[-2560i64 as u64, chain[0], chain[1]]);
    add(&mut file, 6, &[USER]);
    let dir = tempfile::tempdir().expect("a folder");
    let (told, found) = paths(&file, dir.path());
    for path in &found[..3] {
        assert_eq!(names(path), ["leaf", "outer", "[callers unknown]"]);
    }
    assert!(found[3..].iter().all(Vec::is_empty));
    assert_eq!((told.whole, told.partial, told.unknown), (0, 3, 3));
    assert_eq!((told.odd, told.absent), (3, 0));
}

#[test]
fn files_that_are_not_here_or_are_others_are_not_asked() {
    let ran = Ran::new();
    let chain = user(&ran.chains[1]);
    let mut other = recording(&ran, Some(&[7; 20]));
    add(&mut other, 1, &chain);
    let dir = tempfile::tempdir().expect("a folder");
    let (told, found) = paths(&other, dir.path());
    assert_eq!((told.unknown, told.absent), (1, 1));
    assert!(found[0].is_empty(), "{found:?}");

    let mut gone = recording(&ran, None);
    add(&mut gone, 1, &chain);
    std::fs::remove_file(&ran.path).expect("removed");
    let dir = tempfile::tempdir().expect("a folder");
    let (told, _) = paths(&gone, dir.path());
    assert_eq!((told.unknown, told.absent), (1, 1));
    drop(ran.dir);
}

/// The instrumented file does not exist, but its sidecar does.
#[test]
fn the_sidecar_names_functions_where_it_is_all_there_is() {
    let ran = Ran::new();
    let mut file = recording(&ran, None);
    add(
        &mut file,
        1,
        &user(&[&[BASE + 0x20], &ran.chains[1][1..]].concat()),
    );
    let dir = tempfile::tempdir().expect("a folder");
    let mut known = sidecar("/b/app", "", 0, 8, 100);
    known.strings = vec!["_ZN3app6kernelEi".into()];
    known.functions[0].name = 0;
    known.functions[0].end = 0x800;
    let path = dir.path().join("known.mgza");
    known.write(&path).expect("written");
    let manifest = trace(&file.finish(), dir.path(), &[&path]).expect("imported");
    assert_eq!(manifest.call_paths.partial, 1);
    let calls = table(&dir.path().join("trace"), CALL_PATHS).expect("calls");
    let functions = calls.column_by_name("function").expect("names");
    let functions: Vec<_> = functions.as_string::<i32>().iter().flatten().collect();
    assert_eq!(functions.last(), Some(&"app::kernel(int)"), "{functions:?}");
    // Without the file it is unknown if the function has a frame that the chain can follow.
    assert_eq!(functions[functions.len() - 2], "[callers unknown]");
    assert!(functions.contains(&"outer"));
}

/// Two windows share a stretch, which ends in the second.
#[test]
fn a_sample_of_several_windows_has_the_path_of_the_last() {
    let ran = Ran::new();
    let mut file = recording(&ran, None);
    let mut encoder = Encoder::new(PLAIN_STYLE);
    for n in 0..400 {
        encoder.write(Write {
            ip: BASE + 24 * (n % 64),
            payload: n,
            tsc: 1000 + 10 * n,
        });
    }
    let cut = encoder.places[300].end;
    for (end, chain) in [(cut, &ran.chains[0]), (encoder.bytes.len(), &ran.chains[1])] {
        file.chain = user(chain);
        file.sample(
            &encoder.bytes[..end],
            chain[0],
            PID,
            PID,
            9000 + end as u64,
            0,
        );
    }
    let dir = tempfile::tempdir().expect("a folder");
    let (told, found) = paths(&file, dir.path());
    assert_eq!(found.len(), 1);
    assert_eq!(names(&found[0])[..3], ["leaf", "outer", "main"]);
    assert_eq!(told.partial, 1);
}

#[test]
fn without_chains_nothing_is_said_of_paths() {
    let ran = Ran::new();
    let mut file = recording(&ran, None);
    file.extra = 0;
    add(&mut file, 1, &user(&ran.chains[0]));
    let dir = tempfile::tempdir().expect("a folder");
    let (told, found) = paths(&file, dir.path());
    assert_eq!((told, found), (CallPaths::default(), Vec::new()));
}

/// If threads share a processor, a window may hold events of earlier threads.
#[test]
fn records_of_other_threads_in_a_window_have_no_path() {
    let ran = Ran::new();
    let mut file = recording(&ran, None);
    file.comm(PID, PID + 1, 4);
    file.switch(false, PID, PID + 1, 5, 0);
    let mut encoder = Encoder::new(PLAIN_STYLE);
    let mut tsc = 1000;
    for tid in [PID + 1, PID] {
        file.switch(false, PID, tid, tsc, 0);
        encoder.psb(tsc + 100);
        for n in 0..50 {
            encoder.write(Write {
                ip: BASE + 24 * n,
                payload: n,
                tsc: tsc + 200 + n,
            });
        }
        tsc += 100_000;
    }
    file.chain = user(&ran.chains[0]);
    file.sample(&encoder.bytes, ran.chains[0][0], PID, PID, tsc, 0);
    let dir = tempfile::tempdir().expect("a folder");
    let (told, found) = paths(&file, dir.path());
    assert_eq!(found.len(), 2, "{told:?}");
    assert_eq!(names(&found[0])[..2], ["leaf", "step"]);
    assert!(found[1].is_empty());
    assert_eq!((told.partial, told.unknown), (1, 1));
}

#[test]
fn a_chain_longer_than_its_sample_costs_that_sample() {
    let ran = Ran::new();
    let mut file = recording(&ran, None);
    add(&mut file, 1, &user(&ran.chains[0]));
    for (number, length) in [1 << 20, 1 << 61, u64::MAX].into_iter().enumerate() {
        file.chain_length = Some(length);
        add(&mut file, 2 + number as u64, &user(&ran.chains[0]));
    }
    // With too small a length, the following bytes are misread as AUX data and its size.
    file.chain_length = Some(2);
    add(&mut file, 9, &user(&ran.chains[0]));
    let dir = tempfile::tempdir().expect("a folder");
    let (told, found) = paths(&file, dir.path());
    assert_eq!((found.len(), told.partial), (1, 1));
    let session = Session::read(&std::fs::read(dir.path().join("perf.data")).expect("there"))
        .map(|s| (s.windows.len(), s.loss.bad_records))
        .expect("a recording");
    assert_eq!(session, (1, 4));
}

/// All chains of the recording in the repository, compared with `perf script`.
#[test]
fn chains_of_the_real_capture_are_as_perf_shows_them() {
    let packed = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/pt/data/ubench-ptwrite-geminilake.perf.data.zst");
    let packed = std::fs::File::open(packed).expect("part of the repository");
    let file = zstd::decode_all(packed).expect("whole");
    let session = Session::read(&file).expect("a recording");
    assert!(session.windows.len() > 50);
    let ours: Vec<_> = (session.windows.iter())
        .map(|w| w.chain.clone().expect("-g").addresses)
        .collect();
    if !has_perf() {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("perf.data");
    std::fs::write(&path, &file).expect("written");
    assert_eq!(ours, raw_chains(&path));
}

/// The user part of all chains in a recording, as perf dumps them, up to a non-user address.
/// Callers are return addresses minus one.
fn raw_chains(path: &Path) -> Vec<Vec<u64>> {
    let output = Command::new("perf")
        .args(["script", "-D", "-f", "-i"])
        .arg(path)
        .output()
        .expect("perf starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut out: Vec<Vec<u64>> = Vec::new();
    let mut rest = 0;
    for line in text.lines() {
        if let Some((_, count)) = line.split_once("chain: nr:") {
            rest = count.trim().parse().expect("a number");
            out.push(Vec::new());
        } else if rest > 0 {
            rest -= 1;
            let (_, word) = line.rsplit_once(' ').expect("an entry");
            let word = u64::from_str_radix(word, 16).expect("hexadecimal");
            match word {
                USER => {}
                0 | 0x8000_0000_0000_0000.. => rest = 0,
                _ => {
                    let chain = out.last_mut().expect("begun");
                    chain.push(word - u64::from(!chain.is_empty()));
                }
            }
        }
    }
    out
}

/// Call chains by frame pointers and copies of stacks from the real kernel give the same callers
/// and names as perf.
#[test]
fn samples_of_the_real_perf_have_the_callers_that_it_shows() {
    if !has_perf() {
        return;
    }
    let ran = Ran::new();
    let data = ran.dir.path().join("perf.data");
    for call_graph in ["fp", "dwarf,4096"] {
        let output = Command::new("perf")
            .args(["record", "-e", "cpu-clock:u", "-F", "2000", "--call-graph"])
            .args([call_graph, "-o"])
            .arg(&data)
            .arg("--")
            .args([ran.path.as_os_str(), "busy".as_ref()])
            .output()
            .expect("perf starts");
        if !output.status.success() {
            eprintln!(
                "SKIPPED: perf record: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            continue;
        }
        let bytes = std::fs::read(&data).expect("a recording");
        let session = Session::read_any(&[&bytes]).expect("a recording");
        let layout = layout(&bytes).expect("whole");
        let attr = &layout.events[0].attr;
        // The same samples, with PT data.
        let mut file = PerfFile::new(RecordingKind::Samples, 1, (true, false, false));
        let is_copy = call_graph != "fp";
        file.extra = CALLCHAIN | if is_copy { STACKS } else { 0 };
        file.comm(PID, PID, 1);
        file.mmap(PID, BASE, 0x1000, "/x/app", 2);
        for m in session.spaces.mappings() {
            file.map(PID, m.start, m.end - m.start, m.offset, &m.path, None, 3);
        }
        let mut chains = Vec::new();
        for record in Records::new(&bytes, layout.data.clone()) {
            if record.kind != kind::SAMPLE {
                continue;
            }
            let sample = sample::sample(attr, &record.body).expect("a sample");
            let chain = CallChain::of(attr, &sample, &record.body, record.misc).expect("-g");
            let calls = chain.addresses.iter().enumerate();
            let returns: Vec<u64> = calls.map(|(n, a)| a + u64::from(n > 0)).collect();
            chains.push(chain.addresses);
            let stack = UserStack::of(attr, &sample, &record.body);
            assert_eq!(stack.is_some(), is_copy);
            file.stack = stack.map(|s| ([s.bp, s.sp, s.ip], s.words()));
            add(&mut file, chains.len() as u64, &user(&returns));
        }
        assert!(chains.len() > 20, "{}", chains.len());
        let mut theirs = raw_chains(&data);
        theirs.sort();
        chains.sort();
        assert_eq!(chains, theirs);

        let dir = tempfile::tempdir().expect("a folder");
        let (told, found) = paths(&file, dir.path());
        let script = Command::new("perf")
            .args(["script", "--no-inline", "-F", "ip,sym", "-i"])
            .arg(&data)
            .output()
            .expect("perf starts");
        let text = String::from_utf8_lossy(&script.stdout);
        let theirs: Vec<Vec<&str>> = text
            .split("\n\n")
            .map(|s| {
                let names = s.lines().filter_map(|l| l.split_whitespace().nth(1));
                names.collect()
            })
            .filter(|names: &Vec<&str>| !names.is_empty())
            .collect();
        assert_eq!(found.len(), theirs.len());
        let own = ["spin", "leaf_spin", "busy", "main"];
        let shown = |names: &[&str]| {
            let known = names.iter().filter(|n| own.contains(n));
            known.map(|n| n.to_string()).collect::<Vec<_>>()
        };
        let ours: Vec<Vec<String>> = found.iter().map(|path| shown(&names(path))).collect();
        let theirs: Vec<Vec<String>> = theirs.iter().map(|t| shown(t)).collect();
        // (The file orders samples of several processors by processor.)
        let counted = |list: &[Vec<String>]| {
            let mut counts: BTreeMap<Vec<String>, usize> = BTreeMap::new();
            let each = list.iter().cloned();
            each.for_each(|names| *counts.entry(names).or_default() += 1);
            counts
        };
        // (Samples in the C library before a function has set up its frame may differ.)
        let (ours_counted, theirs_counted) = (counted(&ours), counted(&theirs));
        let differing: usize = ours_counted
            .keys()
            .chain(
                theirs_counted
                    .keys()
                    .filter(|k| !ours_counted.contains_key(*k)),
            )
            .map(|path| {
                let count = |of: &BTreeMap<Vec<String>, usize>| of.get(path).copied().unwrap_or(0);
                count(&ours_counted).abs_diff(count(&theirs_counted))
            })
            .sum();
        assert!(
            differing <= 2 * (1 + ours.len() / 500),
            "{call_graph}: {ours_counted:?} and {theirs_counted:?}"
        );
        let full = ours
            .iter()
            .filter(|names| names[..] == ["spin", "busy", "main"]);
        let full = full.count();
        // The function leaves its caller's frame pointer in place, so the chain skips this caller.
        let without = found
            .iter()
            .filter(|path| path.first().is_some_and(|c| c.0 == "leaf_spin"));
        let without: Vec<_> = without.map(|path| names(&path[..3])).collect();
        let expected = match is_copy {
            true => ["leaf_spin", "busy", "main"],
            false => ["leaf_spin", "[callers unknown]", "main"],
        };
        let right = without.iter().filter(|names| names[..] == expected).count();
        assert!(
            right > 20 && right == without.len(),
            "{right} of {}",
            without.len()
        );
        assert!(full > 20, "{full} of {}, {:?}", ours.len(), found.last());
        assert!(told.whole > 20 || !is_copy, "{told:?}");
        eprintln!("{call_graph}: {} samples, {told:?}", found.len());
    }
}

/// A copy of a stack is unwound by the tables of the files, and to the end.
#[test]
fn windows_have_the_callers_that_copies_of_their_stacks_tell() {
    let ran = Ran::new();
    let mut file = recording(&ran, None);
    file.extra = CALLCHAIN | STACKS;
    for (number, stack) in (1..).zip(&ran.stacks) {
        let (registers, stack) = stack.split_at(3);
        let registers = <[u64; 3]>::try_from(registers).expect("three");
        file.stack = Some((registers, stack.to_vec()));
        // As with `--call-graph=dwarf`, the chain has no user code.
        add(&mut file, number, &[USER]);
    }
    // The copy ends inside `outer`'s frame.
    let cut = file.stack.as_mut().expect("set");
    cut.1.truncate(3);
    add(&mut file, 3, &[USER]);
    cut_registers(&mut file);
    add(&mut file, 4, &[USER]);
    // In a file of which only the sidecar exists, which has no unwind table.
    let (registers, stack) = ran.stacks[0].split_at(3);
    file.stack = Some(([registers[0], registers[1], BASE + 0x20], stack.to_vec()));
    add(&mut file, 5, &[USER]);
    let dir = tempfile::tempdir().expect("a folder");
    let (told, found) = paths(&file, dir.path());
    assert_eq!(found[4].len(), 2, "nothing is guessed: {:?}", found[4]);
    assert_eq!(found[4][1].0, "[callers unknown]");
    assert_eq!(names(&found[0])[..4], ["leaf", "step", "outer", "main"]);
    assert_eq!(names(&found[0]).last(), Some(&"_start"));
    assert_eq!(names(&found[1])[..3], ["leaf", "outer", "main"]);
    assert_eq!(names(&found[2]).last(), Some(&"[callers unknown]"));
    assert!(found[3].is_empty());
    assert_eq!(
        (told.whole, told.partial, told.unknown),
        (2, 2, 1),
        "{told:?}"
    );
}

/// Registers that point at no code.
fn cut_registers(file: &mut PerfFile) {
    let (registers, _) = file.stack.as_mut().expect("set");
    *registers = [u64::MAX; 3];
}

#[test]
fn no_stacks_leaves_paths_out_and_says_so() {
    let ran = Ran::new();
    let mut file = recording(&ran, None);
    add(&mut file, 1, &user(&ran.chains[0]));
    let dir = tempfile::tempdir().expect("a folder");
    let data = dir.path().join("perf.data");
    std::fs::write(&data, file.finish()).expect("written");
    let known = put(dir.path(), &[sidecar("/b/app", "", 0, 8, 100)]);
    let folder = dir.path().join("trace");
    let words = ["mgz-record", "--no-stacks", "--import"].map(AsRef::<OsStr>::as_ref);
    let rest = [data.as_ref(), "--annotations".as_ref(), known[0].as_ref()];
    let to = ["-o".as_ref(), folder.as_os_str()];
    let cli = <Cli as clap::Parser>::try_parse_from(words.iter().chain(&rest).chain(&to));
    let done = mgz_intel_pt::import::run(&cli.expect("options"), &data);
    assert_eq!(done.map_err(|e| e.message), Ok(0));
    let manifest = std::fs::read(folder.join(MANIFEST)).expect("a manifest");
    let manifest: Manifest = serde_json::from_slice(&manifest).expect("whole");
    assert_eq!(manifest.call_paths.state, PathRecording::Off);
    assert!(!folder.join(CALL_PATHS).exists() && !folder.join(WINDOW_PATHS).exists());
}

/// Whatever a recording contains, its chains and stacks are finite and name existing calls.
#[test]
fn damaged_recordings_have_paths_or_none() {
    let ran = Ran::new();
    let mut random = SmallRandom(71);
    for extra in [CALLCHAIN, CALLCHAIN | STACKS, CALLCHAIN | 1 << 11] {
        let mut file = recording(&ran, None);
        file.extra = extra;
        for number in 1..4 {
            if extra & STACKS != 0 {
                let (registers, stack) = ran.stacks[0].split_at(3);
                let registers = <[u64; 3]>::try_from(registers).expect("three");
                file.stack = Some((registers, stack.to_vec()));
            }
            add(&mut file, number, &user(&ran.chains[0]));
        }
        let good = file.finish();
        let mut known = 0;
        for round in 0..1000 {
            let mut bytes = good.clone();
            for _ in 0..round % 4 {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.below(256) as u8;
            }
            if round % 5 == 4 {
                bytes.truncate(random.below(bytes.len() as u64) as usize);
            }
            let Ok(session) = Session::read(&bytes) else {
                continue;
            };
            let sidecar = sidecar("/b/app", "", 0, 8, 100);
            let annotations = Annotations::new(Path::new("x.mgza"), &sidecar).expect("of PT");
            let Ok(modules) = Modules::new(&session, vec![annotations], &HashMap::new()) else {
                continue;
            };
            let stretch = |w: &AuxWindow<'_>| {
                let (process, thread) = w.identity.task.unwrap_or((0, 0));
                Stretch {
                    thread: ThreadKey { process, thread },
                    last_segment: 0,
                    window: w.number,
                }
            };
            let stretches: Vec<_> = session.windows.iter().map(stretch).collect();
            if let Some(found) = of_stretches(&session, &modules, &stretches) {
                let nodes = found.tree.nodes.len() as u32;
                assert_eq!(found.windows.len(), stretches.len());
                assert!(found.windows.iter().all(|w| w.node < nodes));
                known += found.windows.iter().filter(|w| w.node > 1).count();
            }
        }
        assert!(known > 500, "{known}");
    }
}

#[test]
#[ignore = "a measurement"]
fn time_of_paths() {
    let ran = Ran::new();
    for (what, extra) in [("chains", CALLCHAIN), ("copies", CALLCHAIN | STACKS)] {
        let mut file = recording(&ran, None);
        file.extra = extra;
        for number in 1..20_000 {
            if extra & STACKS != 0 {
                let (registers, stack) = ran.stacks[number as usize % 2].split_at(3);
                let registers = <[u64; 3]>::try_from(registers).expect("three");
                file.stack = Some((registers, stack.to_vec()));
            }
            add(&mut file, number, &user(&ran.chains[number as usize % 2]));
        }
        let bytes = file.finish();
        let begin = std::time::Instant::now();
        let session = Session::read(&bytes).expect("a recording");
        let read = begin.elapsed();
        let sidecar = sidecar("/b/app", "", 0, 8, 100);
        let annotations = Annotations::new(Path::new("x.mgza"), &sidecar).expect("of PT");
        let modules = Modules::new(&session, vec![annotations], &HashMap::new()).expect("placed");
        let stretch = |w: &AuxWindow<'_>| Stretch {
            thread: ThreadKey {
                process: PID,
                thread: PID,
            },
            last_segment: u64::from(w.number),
            window: w.number,
        };
        let stretches: Vec<_> = session.windows.iter().map(stretch).collect();
        let begin = std::time::Instant::now();
        let found = of_stretches(&session, &modules, &stretches).expect("paths");
        let each = begin.elapsed() / stretches.len() as u32;
        eprintln!(
            "{what}: {each:?} a window of {} (reading took {read:?})",
            found.windows.len()
        );
    }
}
