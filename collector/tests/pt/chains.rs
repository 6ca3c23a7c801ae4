//! Call chains of samples as paths of windows. The chains are those of a real program, which follows
//! its frame pointers as the kernel does; around them is a recording that the tests make.

use super::encode::{Encoder, Write};
use super::file::{CALLCHAIN, Kind, PerfFile, USER};
use super::has_perf;
use super::mixed::{BASE, PLAIN, put, sidecar, trace};
use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use arrow_array::{Array, RecordBatch};
use mgz_annotations_schema::manifest::{CALL_PATHS, CallPaths, WINDOW_PATHS};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
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
    printf("chain %lx", here);
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
int main(void) {
    char line[4096];
    outer();
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
            .args(["-fno-optimize-sibling-calls", "-o"])
            .args([&path, &source])
            .status();
        assert!(built.expect("a C compiler").success());
        let output = Command::new(&path).output().expect("it runs");
        let text = String::from_utf8(output.stdout).expect("text");
        let hex = |s: &str| u64::from_str_radix(s, 16).expect("hexadecimal");
        let chains: Vec<Vec<u64>> = (text.lines())
            .filter_map(|l| l.strip_prefix("chain "))
            .map(|l| l.split(' ').map(hex).collect())
            .collect();
        let map = |line: &str| {
            let f: Vec<_> = line.split_whitespace().collect();
            let (start, end) = f[0].split_once('-').expect("a range");
            let path = f.get(5).map_or("//anon", |path| path);
            (hex(start), hex(end), hex(f[2]), path.to_owned())
        };
        let maps = text.lines().filter_map(|l| l.strip_prefix("map ")).map(map);
        Ran {
            chains: chains.try_into().expect("two"),
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
        // (The entry's file offset is its address in files as small as this.)
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
    let mut file = PerfFile::new(Kind::Samples, 1, (true, false, false));
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
    let mut encoder = Encoder::new(PLAIN);
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
fn sample(file: &mut PerfFile, number: u64, chain: &[u64]) {
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
        .and_then(|b| b.build())
        .expect("a table");
    reader.next().map(|batch| batch.expect("rows"))
}

/// A call: function, line of the call, inlined.
type Call = (String, u32, bool);

/// What the trace says of a recording: what its manifest tells, and the calls of each window from
/// the inside out.
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
    sample(&mut file, 1, &user(inlined));
    let kernel = [KERNEL, 0xffff_ffff_8100_0000, 0xffff_ffff_8100_0010];
    sample(&mut file, 2, &[&kernel[..], &user(plain)].concat());
    let whole = [&user(&plain[..4])[..], &[ran.behind_start()]].concat();
    sample(&mut file, 3, &whole);
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
    assert_eq!(names(&found[2])[..3], ["leaf", "outer", "main"]);
    assert_eq!(names(&found[2]).last(), Some(&"_start"));
    assert_eq!(told.state, "recorded");
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
    // Behind no call, in no file, in the kernel.
    sample(&mut file, 1, &with(2, chain[2] + 1));
    sample(&mut file, 2, &with(2, 0x1234_5678));
    sample(&mut file, 3, &with(2, 0xffff_8000_0000_0000));
    // Of the kernel alone; of a virtual machine; nothing.
    sample(&mut file, 4, &[KERNEL, 0xffff_ffff_8100_0000]);
    sample(&mut file, 5, &[-2560i64 as u64, chain[0], chain[1]]);
    sample(&mut file, 6, &[USER]);
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
    sample(&mut other, 1, &chain);
    let dir = tempfile::tempdir().expect("a folder");
    let (told, found) = paths(&other, dir.path());
    assert_eq!((told.unknown, told.absent), (1, 1));
    assert!(found[0].is_empty(), "{found:?}");

    let mut gone = recording(&ran, None);
    sample(&mut gone, 1, &chain);
    std::fs::remove_file(&ran.path).expect("removed");
    let dir = tempfile::tempdir().expect("a folder");
    let (told, _) = paths(&gone, dir.path());
    assert_eq!((told.unknown, told.absent), (1, 1));
    drop(ran.dir);
}

/// The instrumented file is not here, but its sidecar is.
#[test]
fn the_sidecar_names_functions_where_it_is_all_there_is() {
    let ran = Ran::new();
    let mut file = recording(&ran, None);
    sample(
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
    assert!(functions.contains(&"outer"));
}

/// What two windows share is one sample, which ends in the second.
#[test]
fn a_sample_of_several_windows_has_the_path_of_the_last() {
    let ran = Ran::new();
    let mut file = recording(&ran, None);
    let mut encoder = Encoder::new(PLAIN);
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
    // Of another thread the chain would be, whose records these are not.
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
    sample(&mut file, 1, &user(&ran.chains[0]));
    let dir = tempfile::tempdir().expect("a folder");
    let (told, found) = paths(&file, dir.path());
    assert_eq!((told, found), (CallPaths::default(), Vec::new()));
}
