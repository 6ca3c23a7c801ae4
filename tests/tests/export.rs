//! `mgz export` and `mgz import`: each format contains the numbers of `mgz-analyze`, and exported
//! accesses are unchanged after the import.

use flate2::read::GzDecoder;
use mgz_abi::leb128;
use mgz_tests::programs;
use mgz_tests::protobuf::{fields, inside, number, packed};
use mgz_tests::session::{instrument, record_program};
use mgz_tests::tools::{self, LIMIT, code};
use serde_json::Value;
use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Two threads, a heap block, a function that is inlined, and a table whose lines are read in
/// random order.
const PROGRAM: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
long table[1 << 15];
static inline __attribute__((always_inline)) long inner(const long *from, long n) {
    long sum = 0;
    for (long i = 0; i < n; i++)
        sum += from[(i * 7919) & ((1 << 15) - 1)];
    return sum;
}
__attribute__((noinline)) long outer(long n) { return inner(table, n); }
__attribute__((noinline)) long heap(const int *block, long n) {
    long sum = 0;
    for (long i = 0; i < n; i++)
        sum += block[i];
    return sum;
}
static void *other(void *block) { return (void *)heap(block, 3000); }
int main(int argc, char **argv) {
    int *block = calloc(4096, sizeof *block);
    long sum = outer(20000) + heap(block, 4096);
    if (argc > 1) {
        pthread_t thread;
        pthread_create(&thread, NULL, other, block);
        void *more;
        pthread_join(thread, &more);
        sum += (long)more;
    }
    printf("%ld %s\n", sum, argv[0] ? "" : "x");
    return 0;
}
"#;

struct TestFolder {
    dir: tempfile::TempDir,
}

impl TestFolder {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn build(&self) -> PathBuf {
        programs::compile_text(PROGRAM, &self.path("app"), &["-O1", "-g", "-pthread"]);
        instrument(&self.path("app"), "soft", &[]).unwrap().path
    }

    fn record(&self, name: &str, options: &[&str], app: &Path, arguments: &[&str]) {
        record_program(options, &self.path(name), app, arguments);
    }

    fn mgz(&self, arguments: &[&str]) -> Output {
        tools::run_limited(
            tools::tool("mgz")
                .args(arguments)
                .current_dir(self.dir.path()),
            LIMIT,
        )
        .unwrap()
    }

    fn good(&self, arguments: &[&str]) -> Vec<u8> {
        let output = self.mgz(arguments);
        assert_eq!(
            code(&output),
            0,
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        output.stdout
    }

    fn export(&self, trace: &str, to: &str) -> Vec<u8> {
        self.good(&["export", trace, "--to", to])
    }

    fn analysis(&self, trace: &str) -> Value {
        serde_json::from_slice(&self.good(&["analyze", trace, "--format", "json"])).unwrap()
    }
}

/// Loads by function (of the machine code), including implied loads.
fn loads(analysis: &Value) -> HashMap<String, u64> {
    let rows = analysis["functions"].as_array().unwrap();
    let of = |row: &Value| row["A"].as_u64().unwrap() + row["A_const"].as_u64().unwrap();
    rows.iter()
        .map(|row| (row["function"].as_str().unwrap().to_string(), of(row)))
        .filter(|row| row.1 > 0)
        .collect()
}

/// A count by function, taken from the tables.
fn by_function_of(analysis: &Value, key: &str) -> HashMap<String, u64> {
    let rows = analysis["functions"].as_array().unwrap();
    rows.iter()
        .map(|row| {
            let function = row["function"].as_str().unwrap();
            (function.to_string(), row[key].as_u64().unwrap())
        })
        .filter(|row| row.1 > 0)
        .collect()
}

#[test]
fn profiles_have_the_loads_of_the_analysis() {
    let place = TestFolder {
        dir: tempfile::tempdir().unwrap(),
    };
    let app = place.build();
    place.record("full", &["--mode", "full", "--heap"], &app, &["two"]);
    place.record(
        "ring",
        &["--mode", "ring", "--period", "3001", "--window", "500"],
        &app,
        &[],
    );
    for trace in ["full", "ring"] {
        let analysis = place.analysis(trace);
        let by_function = loads(&analysis);
        let all: u64 = by_function.values().sum();
        assert!(all > 1000);
        let reuses = by_function_of(&analysis, "reuses");
        assert!(reuses.values().sum::<u64>() == analysis["summary"]["reuses"]);
        pprof(&place.export(trace, "pprof"), &by_function, &reuses);

        let collapsed = String::from_utf8(place.export(trace, "collapsed")).unwrap();
        let mut found: HashMap<String, u64> = HashMap::new();
        for line in collapsed.lines() {
            let (stack, count) = line.rsplit_once(' ').unwrap();
            let mut inwards = stack.split(';').map(|f| f.split(' ').next().unwrap());
            let function = inwards.rfind(|f| by_function.contains_key(*f)).unwrap();
            *found.entry(function.into()).or_default() += count.parse::<u64>().unwrap();
        }
        assert_eq!(found, by_function, "{collapsed}");
        assert!(collapsed.contains(";outer;inner app.c:"), "{collapsed}");

        let speedscope: Value = serde_json::from_slice(&place.export(trace, "speedscope")).unwrap();
        let profiles = speedscope["profiles"].as_array().unwrap();
        let weights = profiles
            .iter()
            .flat_map(|p| p["weights"].as_array().unwrap());
        assert_eq!(weights.map(|w| w.as_u64().unwrap()).sum::<u64>(), all);

        let firefox: Value = serde_json::from_slice(&place.export(trace, "firefox")).unwrap();
        let threads = firefox["threads"].as_array().unwrap();
        let weights = threads
            .iter()
            .flat_map(|t| t["samples"]["weight"].as_array().unwrap());
        assert_eq!(weights.map(|w| w.as_u64().unwrap()).sum::<u64>(), all);
        for table in ["stackTable", "frameTable", "funcTable"] {
            for (name, column) in threads[0][table].as_object().unwrap() {
                let length = column
                    .as_array()
                    .map_or(threads[0][table]["length"].clone(), |c| c.len().into());
                assert_eq!(length, threads[0][table]["length"], "{table} {name}");
            }
        }

        let perfetto = place.export(trace, "perfetto");
        let mut loads = 0;
        for packet in inside(&fields(&perfetto), 1) {
            for event in inside(&fields(packet), 11) {
                for note in inside(&fields(event), 4) {
                    let note = fields(note);
                    if inside(&note, 10) == [b"loads"] {
                        loads += number(&note, 3).unwrap();
                    }
                }
            }
        }
        assert_eq!(loads, all);

        std::fs::write(
            place.path("callgrind.out"),
            place.export(trace, "callgrind"),
        )
        .unwrap();
        callgrind(&place, &by_function);
        let sarif: Value = serde_json::from_slice(&place.export(trace, "sarif")).unwrap();
        assert_eq!(
            (
                &sarif["version"],
                &sarif["runs"][0]["tool"]["driver"]["name"]
            ),
            (&"2.1.0".into(), &"mgz".into())
        );
    }
    let dhat: Value = serde_json::from_slice(&place.export("full", "dhat")).unwrap();
    let point = dhat["pps"]
        .as_array()
        .unwrap()
        .iter()
        .find(|p| p["tb"] == 16384)
        .unwrap_or_else(|| panic!("{dhat:#}"));
    // Both threads read integers of the block.
    assert_eq!(point["rb"], 4 * (4096 + 3000), "{dhat:#}");
    let none = place.mgz(&["export", "ring", "--to", "dhat"]);
    assert_eq!(code(&none), 1);

    for format in ["lackey", "din", "drmemtrace", "champsim", "ramulator2"] {
        let sampled = place.mgz(&["export", "ring", "--to", format, "-o", "out"]);
        let message = String::from_utf8_lossy(&sampled.stderr).into_owned();
        assert_eq!(code(&sampled), 1, "{message}");
        assert!(message.contains("needs every access"), "{message}");
    }
}

fn pprof(gzip: &[u8], by_function: &HashMap<String, u64>, reuses: &HashMap<String, u64>) {
    let mut bytes = Vec::new();
    GzDecoder::new(gzip).read_to_end(&mut bytes).unwrap();
    let profile = fields(&bytes);
    let texts: Vec<String> = inside(&profile, 6)
        .iter()
        .map(|t| String::from_utf8(t.to_vec()).unwrap())
        .collect();
    let kinds: Vec<&str> = inside(&profile, 1)
        .iter()
        .map(|k| texts[number(&fields(k), 1).unwrap() as usize].as_str())
        .collect();
    assert_eq!(kinds[0], "loads");
    assert!(kinds.contains(&"footprint"));
    let again = kinds.iter().position(|k| *k == "reuses").unwrap();
    let named = |message: &[u8], field: u64| {
        let message = fields(message);
        (
            number(&message, 1).unwrap(),
            texts[number(&message, field).unwrap() as usize].clone(),
        )
    };
    let functions: HashMap<u64, String> = inside(&profile, 5).iter().map(|f| named(f, 2)).collect();
    // The last line of a location is the function that is not inlined.
    let locations: HashMap<u64, String> = inside(&profile, 4)
        .iter()
        .map(|l| {
            let location = fields(l);
            let lines = inside(&location, 4);
            let function = number(&fields(lines.last().unwrap()), 1).unwrap();
            (number(&location, 1).unwrap(), functions[&function].clone())
        })
        .collect();
    let mut found: HashMap<String, u64> = HashMap::new();
    let mut found_reuses: HashMap<String, u64> = HashMap::new();
    let mut labels = Vec::new();
    for sample in inside(&profile, 2) {
        let sample = fields(sample);
        let place = packed(inside(&sample, 1)[0]);
        let values = packed(inside(&sample, 2)[0]);
        *found.entry(locations[&place[0]].clone()).or_default() += values[0];
        let of_function = found_reuses.entry(locations[&place[0]].clone());
        *of_function.or_default() += values[again];
        for label in inside(&sample, 3) {
            let label = fields(label);
            labels.push(texts[number(&label, 1).unwrap() as usize].clone());
        }
    }
    assert_eq!(&found, by_function);
    found_reuses.retain(|_, count| *count > 0);
    assert_eq!(&found_reuses, reuses);
    for key in ["class", "object", "thread", "process"] {
        assert!(labels.iter().any(|l| l == key), "{key}");
    }
    assert!(texts.iter().any(|t| t.contains("do not add up")));
}

/// `callgrind_annotate` prints the exported numbers.
fn callgrind(place: &TestFolder, by_function: &HashMap<String, u64>) {
    if !tools::have("callgrind_annotate") {
        tools::skip("callgrind_annotate is not installed");
        return;
    }
    let mut annotate = Command::new("callgrind_annotate");
    annotate
        .args(["--threshold=100", "--auto=no"])
        .arg(place.path("callgrind.out"));
    let output = tools::succeed(&mut annotate, LIMIT).unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let count = |line: &str| -> u64 {
        let first = line.split_whitespace().next().unwrap();
        first.replace(',', "").parse().unwrap()
    };
    let total = text.lines().find(|l| l.contains("PROGRAM TOTALS")).unwrap();
    assert_eq!(count(total), by_function.values().sum::<u64>(), "{text}");
    let line = text.lines().find(|l| l.contains("app.c:outer")).unwrap();
    assert_eq!(count(line), by_function["outer"], "{text}");
}

/// Stacks and weights of a file for speedscope, the outermost function first.
fn speedscope_stacks(file: &Value) -> Vec<(Vec<String>, f64)> {
    let frames = file["shared"]["frames"].as_array().unwrap();
    let name = |at: &Value| {
        frames[at.as_u64().unwrap() as usize]["name"]
            .as_str()
            .unwrap()
    };
    let mut stacks = Vec::new();
    for profile in file["profiles"].as_array().unwrap() {
        let weights = profile["weights"].as_array().unwrap();
        let samples = profile["samples"].as_array().unwrap();
        for (sample, weight) in samples.iter().zip(weights) {
            let stack = sample.as_array().unwrap().iter().map(|f| name(f).into());
            stacks.push((stack.collect(), weight.as_f64().unwrap()));
        }
    }
    stacks
}

/// Stacks and weights of a file for the Firefox profiler, the outermost function first.
fn firefox_stacks(file: &Value) -> Vec<(Vec<String>, f64)> {
    let mut stacks = Vec::new();
    for thread in file["threads"].as_array().unwrap() {
        let at = |table: &str, column: &str, row: u64| &thread[table][column][row as usize];
        let samples = &thread["samples"];
        let weights = samples["weight"].as_array().unwrap();
        for (sample, weight) in samples["stack"].as_array().unwrap().iter().zip(weights) {
            let (mut stack, mut node) = (Vec::new(), sample.as_u64());
            while let Some(row) = node {
                let frame = at("stackTable", "frame", row).as_u64().unwrap();
                let function = at("frameTable", "func", frame).as_u64().unwrap();
                let name = at("funcTable", "name", function).as_u64().unwrap();
                let name = thread["stringArray"][name as usize].as_str().unwrap();
                stack.insert(0, name.to_string());
                node = at("stackTable", "prefix", row).as_u64();
            }
            stacks.push((stack, weight.as_f64().unwrap()));
        }
    }
    stacks
}

/// Windows of a trace of Perfetto: the slices around each, the outermost first, and its loads.
fn perfetto_windows(bytes: &[u8]) -> Vec<(Vec<String>, u64)> {
    let mut open: HashMap<u64, Vec<String>> = HashMap::new();
    let mut windows = Vec::new();
    for packet in inside(&fields(bytes), 1) {
        for event in inside(&fields(packet), 11) {
            let event = fields(event);
            let slices = open.entry(number(&event, 11).unwrap()).or_default();
            match number(&event, 9).unwrap() {
                1 => {
                    let name = inside(&event, 23)[0].to_vec();
                    slices.push(String::from_utf8(name).unwrap());
                    let notes = inside(&event, 4).into_iter().map(fields);
                    let mut loads = notes.filter(|note| inside(note, 10) == [b"loads"]);
                    let loads = loads.next().and_then(|note| number(&note, 3));
                    windows.extend(loads.map(|loads| (slices.clone(), loads)));
                }
                2 => assert!(slices.pop().is_some()),
                _ => {}
            }
        }
    }
    assert!(open.values().all(Vec::is_empty));
    windows
}

/// Profiles contain the callers of a kernel, which takes three times as long for one of them.
#[test]
fn profiles_have_callers() {
    let place = TestFolder {
        dir: tempfile::tempdir().unwrap(),
    };
    let variant = programs::Variant::O2;
    let built = programs::build("callers", variant, &["-g"], place.dir.path());
    let app = instrument(&built.unwrap().unwrap(), "soft", &["--for", "burst"]).unwrap();
    place.record(
        "burst",
        &["--mode", "burst"],
        &app.path,
        &["split", "400000"],
    );
    let collapsed = String::from_utf8(place.export("burst", "collapsed")).unwrap();
    let of = |caller: &str| -> u64 {
        let stacks = collapsed
            .lines()
            .filter(|l| l.contains(&format!(";main;{caller};kernel")));
        stacks
            .map(|l| l.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap())
            .sum()
    };
    let (often, seldom) = (of("often"), of("seldom"));
    assert!(often > seldom && seldom > 0, "{collapsed}");
    let is_path = |stack: &[String], caller: &str| {
        stack.ends_with(&["main", caller, "kernel"].map(String::from))
    };
    for to in ["speedscope", "firefox"] {
        let file: Value = serde_json::from_slice(&place.export("burst", to)).unwrap();
        let stacks = if to == "firefox" {
            firefox_stacks(&file)
        } else {
            speedscope_stacks(&file)
        };
        for (caller, expected) in [("often", often), ("seldom", seldom)] {
            let found = stacks.iter().filter(|s| is_path(&s.0, caller));
            assert_eq!(
                found.map(|s| s.1).sum::<f64>(),
                expected as f64,
                "{to} {caller}"
            );
        }
    }
    let windows = perfetto_windows(&place.export("burst", "perfetto"));
    let of_windows = |caller: &str| -> u64 {
        let found = windows.iter().filter(|w| is_path(&w.0, caller));
        found.map(|w| w.1).sum()
    };
    assert!(of_windows("often") > of_windows("seldom") && of_windows("seldom") > 0);

    // Stacks can be weighed by time, which is that of the whole run.
    let by_time = ["export", "burst", "--to", "speedscope", "--weight", "time"];
    let file: Value = serde_json::from_slice(&place.good(&by_time)).unwrap();
    assert_eq!(file["profiles"][0]["unit"], "nanoseconds");
    let of_stacks: f64 = speedscope_stacks(&file).iter().map(|s| s.1).sum();
    let run = std::fs::read(place.path("burst/manifest.json")).unwrap();
    let run: Value = serde_json::from_slice(&run).unwrap();
    let seconds = run["cpu_seconds"].as_f64().unwrap();
    assert!(
        (of_stacks / 1e9 / seconds - 1.0).abs() < 0.02,
        "{of_stacks} of {seconds} s"
    );
    let absent = place.mgz(&[
        "export",
        "burst",
        "--to",
        "collapsed",
        "--weight",
        "misses_L1",
    ]);
    let said = String::from_utf8_lossy(&absent.stderr).into_owned();
    assert!(
        code(&absent) == 1 && said.contains("choose loads, time"),
        "{said}"
    );

    std::fs::write(
        place.path("callgrind.out"),
        place.export("burst", "callgrind"),
    )
    .unwrap();
    if tools::have("callgrind_annotate") {
        let mut annotate = Command::new("callgrind_annotate");
        annotate
            .args(["--threshold=100", "--auto=no", "--inclusive=yes"])
            .arg(place.path("callgrind.out"));
        let output = tools::succeed(&mut annotate, LIMIT).unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text
            .lines()
            .find(|l| l.contains("callers.c:often"))
            .unwrap_or_else(|| panic!("{text}"));
        let loads: u64 = line
            .split_whitespace()
            .next()
            .unwrap()
            .replace(',', "")
            .parse()
            .unwrap();
        // The function may have a load of its own.
        assert!(
            (often..=often + often / 1000).contains(&loads),
            "{often}: {text}"
        );
    } else {
        tools::skip("callgrind_annotate is not installed");
    }

    let mut bytes = Vec::new();
    let gzip = place.export("burst", "pprof");
    GzDecoder::new(&gzip[..]).read_to_end(&mut bytes).unwrap();
    let profile = fields(&bytes);
    let deepest = inside(&profile, 2)
        .iter()
        .map(|s| packed(inside(&fields(s), 1)[0]).len())
        .max();
    // kernel, its caller, main and the code that calls main.
    assert!(deepest.unwrap() >= 3, "{deepest:?}");
}

#[test]
fn accesses_go_out_and_come_back() {
    let place = TestFolder {
        dir: tempfile::tempdir().unwrap(),
    };
    let app = place.build();
    place.record("full", &["--mode", "full"], &app, &[]);
    place.record("two", &["--mode", "full"], &app, &["two"]);
    let rows = |trace: &str| place.analysis(trace)["summary"]["A"].as_u64().unwrap();
    let all = rows("full");
    let lines = |to: &str, begin: &str| {
        let text = String::from_utf8(place.export("full", to)).unwrap();
        assert!(text.lines().all(|l| l.starts_with(begin)), "{to}");
        text.lines().count() as u64
    };
    assert_eq!(lines("lackey", " L "), all);
    assert_eq!(lines("din", "0 "), all);
    assert_eq!(lines("ramulator2", "LD 0x"), all);
    assert_eq!(place.export("full", "champsim").len() as u64, all * 64);
    place.good(&["export", "two", "--to", "drmemtrace", "-o", "dr"]);
    place.good(&["export", "full", "--to", "lackey", "-o", "full.lackey"]);
    // `/dev/full` is a disk without room.
    for to in ["lackey", "champsim", "pprof", "collapsed"] {
        let done = place.mgz(&["export", "full", "--to", to, "-o", "/dev/full"]);
        let said = String::from_utf8_lossy(&done.stderr);
        let is_named = said.contains("/dev/full: cannot write: No space left");
        assert!(!done.status.success() && is_named, "{to}: {said}");
    }
    let done = place.mgz(&[
        "export",
        "full",
        "--to",
        "otlp",
        "-o",
        "otlp",
        "--service",
        "",
    ]);
    assert!(!done.status.success() && !place.path("otlp").exists());
    place.good(&["import", "dr", "--from", "drmemtrace", "-o", "back"]);
    repack(&place);
    place.good(&["import", "zip", "--from", "drmemtrace", "-o", "back.zip"]);
    place.good(&[
        "import",
        "full.lackey",
        "--from",
        "lackey",
        "-o",
        "back.lackey",
    ]);
    pack_for_simulators(&place);
    for (file, back) in [
        ("full.champsimtrace.xz", "back.xz"),
        ("full.champsimtrace", "back.champsim"),
        ("full.trc.gz", "back.gem5"),
    ] {
        place.good(&["import", file, "-o", back]);
    }
    for (original, back) in [
        ("two", "back"),
        ("two", "back.zip"),
        ("full", "back.lackey"),
        ("full", "back.xz"),
        ("full", "back.champsim"),
        ("full", "back.gem5"),
    ] {
        let (original, back) = (place.analysis(original), place.analysis(back));
        for key in [
            "A",
            "F",
            "F_64",
            "reuses",
            "first_touches",
            "D_mean",
            "D_hist",
            "interval_hist",
            "threads",
        ] {
            assert_eq!(original["summary"][key], back["summary"][key], "{key}");
        }
    }

    let manifest = std::fs::read(place.path("back.gem5/manifest.json")).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    assert_eq!(manifest["threads"][0]["name"], "cpu.data");
    // Loads whose instructions are not known count as unknown code.
    place.good(&["import", "nowhere.trc", "-o", "back.nowhere"]);
    let unknown = place.analysis("back.nowhere");
    assert_eq!(unknown["functions"][0]["function"], "[unknown]");
    assert_eq!(unknown["summary"]["A"].as_u64(), Some(all));

    // The misses are those of the simulation, for any levels.
    let stores = ["--stores"];
    for (levels, behind) in [
        (&["4K:4", "32K:8"][..], "L1=4K/4,L2=32K/8"),
        (&["4K:4", "32K:8"], "4K:4,32K:8"),
        (
            &["4K:4:plru:stride", "16K:8:rrip:inclusive:next-line"],
            "4K:4:plru:stride,16K:8:rrip:inclusive:next-line",
        ),
        (
            &["4K:4:fifo:128", "2K:2:exclusive:128"],
            "4K:4:fifo:128,2K:2:exclusive:128",
        ),
    ] {
        let line = if behind.contains("128") { 128 } else { 64 };
        for trace in ["full", "two"] {
            let mut command = vec!["analyze", "cache", trace, "--format", "json"];
            command.extend(stores);
            command.extend(levels.iter().flat_map(|l| ["--level", l]));
            let simulated: Value = serde_json::from_slice(&place.good(&command)).unwrap();
            let misses = place.good(&["export", trace, "--to", "din", "--behind", behind]);
            let misses = String::from_utf8(misses).unwrap();
            assert_eq!(
                misses.lines().count() as u64,
                simulated["levels"][1]["misses"].as_u64().unwrap(),
                "{trace} {behind}"
            );
            assert!(
                misses
                    .lines()
                    .all(|l| u64::from_str_radix(&l[2..], 16).unwrap() % line == 0)
            );
        }
    }

    for (arguments, word) in [
        (
            &["import", "full.lackey", "--from", "drmemtrace", "-o", "x1"][..],
            "does not begin",
        ),
        (
            &["import", "app.c", "--from", "lackey", "-o", "x2"],
            "no access",
        ),
        (
            &["import", "full.lackey", "--from", "lackey", "-o", "full"],
            "not empty",
        ),
        (
            &["import", "nowhere", "--from", "lackey", "-o", "x3"],
            "nowhere",
        ),
        (&["import", "app.c", "-o", "x4"], "give --from"),
        (
            &["import", "app.c", "--from", "champsim", "-o", "x5"],
            "no instructions of 64 bytes",
        ),
        (
            &["import", "app.c", "--from", "gem5", "-o", "x6"],
            "does not begin as a packet trace",
        ),
        (
            &["import", "cut.champsimtrace.xz", "-o", "x7"],
            "cannot be read",
        ),
    ] {
        let output = place.mgz(arguments);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(code(&output), 1, "{message}");
        assert!(message.contains(word), "{message}");
    }
}

/// Makes traces of ChampSim and gem5 of the trace `full`: `full.champsimtrace`, the same packed by
/// xz and cut off, `full.trc.gz`, and `nowhere.trc` without addresses of instructions.
fn pack_for_simulators(place: &TestFolder) {
    place.good(&[
        "export",
        "full",
        "--to",
        "champsim",
        "-o",
        "full.champsimtrace",
    ]);
    let records = std::fs::read(place.path("full.champsimtrace")).unwrap();
    let mut xz = Command::new("xz");
    xz.arg("-k").arg(place.path("full.champsimtrace"));
    tools::succeed(&mut xz, LIMIT).unwrap();
    let packed = std::fs::read(place.path("full.champsimtrace.xz")).unwrap();
    std::fs::write(
        place.path("cut.champsimtrace.xz"),
        &packed[..packed.len() / 2],
    )
    .unwrap();
    let number = |bytes: &mut Vec<u8>, field: u8, value: u64| {
        bytes.push(field << 3);
        leb128::encode(value, |byte| bytes.push(byte));
    };
    let bytes_field = |bytes: &mut Vec<u8>, field: u8, value: &[u8]| {
        bytes.push(field << 3 | 2);
        leb128::encode(value.len() as u64, |byte| bytes.push(byte));
        bytes.extend(value);
    };
    let (mut requestor, mut header) = (Vec::new(), Vec::new());
    number(&mut requestor, 1, 5);
    bytes_field(&mut requestor, 2, b"cpu.data");
    bytes_field(&mut header, 1, b"system.monitor");
    number(&mut header, 3, 1_000_000_000_000);
    bytes_field(&mut header, 4, &requestor);
    for (name, knows_code) in [("full.trc", true), ("nowhere.trc", false)] {
        let mut trace = b"gem5".to_vec();
        let mut add = |message: &[u8]| {
            leb128::encode(message.len() as u64, |byte| trace.push(byte));
            trace.extend(message);
        };
        add(&header);
        for (at, record) in records.chunks(64).enumerate() {
            let word = |at: usize| u64::from_le_bytes(record[at..at + 8].try_into().unwrap());
            let mut packet = Vec::new();
            // Tick, read, address, bytes, flags, requestor, instruction.
            for (field, value) in [
                (1, at as u64 * 500),
                (2, 1),
                (3, word(32)),
                (4, 1),
                (5, 0),
                (6, 5),
            ] {
                number(&mut packet, field, value);
            }
            if knows_code {
                number(&mut packet, 7, word(0));
            }
            add(&packet);
        }
        std::fs::write(place.path(name), trace).unwrap();
    }
    let mut gzip = Command::new("gzip");
    gzip.arg(place.path("full.trc"));
    tools::succeed(&mut gzip, LIMIT).unwrap();
}

/// Packs the files of the folder `dr` by zip, in pieces with arbitrary boundaries, as drmemtrace
/// does.
fn repack(place: &TestFolder) {
    const SCRIPT: &str = "
import glob, gzip, os, zipfile
os.mkdir('zip')
for path in glob.glob('dr/trace/*'):
    with open(path, 'rb') as file:
        data = file.read()
    if data[:2] == b'\\x1f\\x8b':
        data = gzip.decompress(data)
    name = os.path.basename(path).split('.trace')[0]
    with zipfile.ZipFile(f'zip/{name}.trace.zip', 'w', zipfile.ZIP_DEFLATED) as packed:
        for at in range(0, len(data), 10007):
            packed.writestr(f'chunk.{at // 10007:04}', data[at : at + 10007])
";
    let mut python = Command::new("python3");
    python.args(["-c", SCRIPT]).current_dir(place.dir.path());
    tools::succeed(&mut python, LIMIT).unwrap();
}

/// An imported trace of valgrind has the reuse distances that a list of recent blocks gives.
#[test]
fn traces_of_lackey_have_the_histogram_of_brute_force() {
    if !tools::have("valgrind") {
        tools::skip("valgrind is not installed");
        return;
    }
    let place = TestFolder {
        dir: tempfile::tempdir().unwrap(),
    };
    let text = "static int a[3000]; int main(void) { int s = 0; for (int k = 0; k < 3; k++) for (int i = 0; i < 3000; i += 5) s += a[(i * 7) % 3000]++; return s & 1; }";
    programs::compile_text(text, &place.path("small"), &["-O1", "-static"]);
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args([
            "--tool=lackey",
            "--trace-mem=yes",
            "--log-file=small.lackey",
            "./small",
        ])
        .current_dir(place.dir.path());
    tools::run_limited(&mut valgrind, LIMIT).unwrap();
    place.good(&[
        "import",
        "small.lackey",
        "--from",
        "lackey",
        "-o",
        "small.trace",
    ]);
    let text = std::fs::read_to_string(place.path("small.lackey")).unwrap();
    // The number of the access that last touched each block.
    let mut last: HashMap<u64, u64> = HashMap::new();
    let (mut bins, mut firsts, mut loads) = (vec![0u64; 65], 0u64, 0u64);
    for line in text
        .lines()
        .filter(|l| l.starts_with(" L ") || l.starts_with(" M "))
    {
        let (address, size) = line[3..].split_once(',').unwrap();
        let address = u64::from_str_radix(address, 16).unwrap();
        let size: u64 = size.trim().parse().unwrap();
        loads += 1;
        // The blocks of one access do not count for each other's distance.
        let blocks: Vec<u64> = (address >> 6..=(address + size - 1) >> 6).collect();
        for block in &blocks {
            match last.get(block) {
                Some(before) => {
                    let distance = last.values().filter(|l| *l > before).count() as u64;
                    bins[(64 - distance.leading_zeros()) as usize] += 1;
                }
                None => firsts += 1,
            }
        }
        for block in blocks {
            last.insert(block, loads);
        }
    }
    let analysis = place.analysis("small.trace");
    let summary = &analysis["summary"];
    assert_eq!(
        (summary["A"].as_u64(), summary["first_touches"].as_u64()),
        (Some(loads), Some(firsts))
    );
    let mut found = vec![0u64; 65];
    for bin in summary["D_hist"].as_array().unwrap() {
        let from = bin["from"].as_u64().unwrap();
        found[(64 - from.leading_zeros()) as usize] = bin["count"].as_u64().unwrap();
    }
    assert_eq!(found, bins);
}
