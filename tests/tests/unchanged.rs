//! Stripped and optimised system programs give the same output and the same status when they are
//! instrumented. The soft flavour runs under `mgz-record` in both modes; PT runs natively (or, on a
//! CPU without `ptwrite`, as a copy in which each `ptwrite` is a NOP).

use mgz_tests::{inputs, nop, tools};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(400);

/// One run of a program.
#[derive(Clone, Default)]
struct Work {
    args: Vec<String>,
    stdin: Option<Vec<u8>>,
}

impl Work {
    fn new(args: &[&str]) -> Work {
        Work {
            args: args.iter().map(|a| (*a).to_owned()).collect(),
            stdin: None,
        }
    }

    fn with_input(args: &[&str], input: Vec<u8>) -> Work {
        Work {
            stdin: Some(input),
            ..Work::new(args)
        }
    }
}

fn run(mut command: Command, work: &Work, dir: &Path) -> Output {
    command
        .args(&work.args)
        .current_dir(dir)
        .env("PYTHONHASHSEED", "0")
        .env("PERL_HASH_SEED", "0")
        .env("LC_ALL", "C");
    tools::run_with(&mut command, work.stdin.as_deref(), LIMIT).unwrap()
}

fn same(what: &str, work: &Work, expected: &Output, got: &Output) {
    let args = format!("{:.100}", work.args.join(" "));
    let stderr = String::from_utf8_lossy(&got.stderr);
    assert_eq!(
        tools::code(got),
        tools::code(expected),
        "{what} {args}: status; stderr: {stderr}"
    );
    if got.stdout != expected.stdout {
        let at = got
            .stdout
            .iter()
            .zip(&expected.stdout)
            .position(|(a, b)| a != b);
        panic!(
            "{what} {args}: {} bytes instead of {}, first difference at {at:?}; stderr: {stderr}",
            got.stdout.len(),
            expected.stdout.len()
        );
    }
}

fn instrument(program: &Path, flavour: &str, libs: &str, dir: &Path) -> PathBuf {
    let out = dir.join(format!("app.{flavour}"));
    let mut command = tools::tool("mgz-instrument");
    command
        .args(["--backend", flavour, "--for", "ring", "-o"])
        .arg(&out);
    if !libs.is_empty() {
        command.arg(format!("--libs={libs}"));
    }
    tools::succeed(command.arg(program), LIMIT).unwrap();
    out
}

/// Runs `large` natively (PT) and in `ring`, and `small` in `full`.
fn check(program: &str, libs: &str, large: &[Work], small: &[Work]) {
    if !Path::new(program).exists() {
        tools::skip(&format!("{program} is not installed"));
        return;
    }
    let work_dir = tempfile::tempdir().unwrap();
    let dir = work_dir.path();
    std::fs::write(dir.join("data"), inputs::mixed_data(2 << 20, 8)).unwrap();
    let expect = |all: &[Work]| -> Vec<Output> {
        all.iter()
            .map(|w| run(Command::new(program), w, dir))
            .collect()
    };
    let (large_expected, small_expected) = (expect(large), expect(small));

    let soft = instrument(Path::new(program), "soft", libs, dir);
    for (mode, all, expected) in [
        ("full", small, &small_expected),
        ("ring", small, &small_expected),
        ("ring", large, &large_expected),
    ] {
        for (i, (work, expected)) in all.iter().zip(expected).enumerate() {
            let trace = dir.join(format!("trace.{mode}.{i}"));
            let mut command = tools::tool("mgz-record");
            command
                .args(["--mode", mode, "--force", "-o"])
                .arg(&trace)
                .arg("--")
                .arg(&soft);
            let got = run(command, work, dir);
            same(&format!("soft {mode} {program}"), work, expected, &got);
            let manifest: serde_json::Value =
                serde_json::from_slice(&std::fs::read(trace.join("manifest.json")).unwrap())
                    .unwrap();
            let executed = manifest["totals"]["records_executed"].as_u64().unwrap_or(0);
            assert!(
                executed > 1000,
                "soft {mode} {program}: only {executed} records, so the original ran"
            );
            std::fs::remove_dir_all(&trace).unwrap();
        }
    }

    let pt = instrument(Path::new(program), "pt", libs, dir);
    if !nop::executes_ptwrite() {
        let mut files = vec![pt.clone()];
        if let Ok(entries) = std::fs::read_dir(dir.join("app.pt.libs")) {
            files.extend(
                entries
                    .map(|e| e.unwrap().path())
                    .filter(|p| p.extension().is_none_or(|e| e != "mgza")),
            );
        }
        let count: usize = files
            .iter()
            .filter(|f| !f.is_symlink())
            .map(|f| nop::replace(f).unwrap())
            .sum();
        tools::skip(&format!(
            "ptwrite is illegal on this CPU: the pt flavour of {program} ran with its {count} ptwrites as NOPs"
        ));
    }
    for (work, expected) in large
        .iter()
        .zip(&large_expected)
        .chain(small.iter().zip(&small_expected))
    {
        same(
            &format!("pt {program}"),
            work,
            expected,
            &run(Command::new(&pt), work, dir),
        );
    }
}

fn compressor(program: &str, libs: &str, level: &str, megabytes: usize) {
    let pack = |data: &[u8]| {
        let mut command = Command::new(program);
        tools::run_with(command.args([level, "-c"]), Some(data), LIMIT)
            .unwrap()
            .stdout
    };
    let (large, small) = (
        inputs::mixed_data(megabytes << 20, 1),
        inputs::mixed_data(60_000, 2),
    );
    let (packed, small_packed) = (pack(&large), pack(&small));
    let mut torn = packed.clone();
    torn.truncate(packed.len() / 2);
    let large = [
        Work::with_input(&[level, "-c"], large),
        Work::with_input(&["-dc"], packed),
        Work::with_input(&["-dc"], torn),
    ];
    let small = [
        Work::with_input(&[level, "-c"], small),
        Work::with_input(&["-dc"], small_packed),
    ];
    check(program, libs, &large, &small);
}

#[test]
fn gzip() {
    compressor("/usr/bin/gzip", "", "-6", 24);
}

#[test]
fn bzip2() {
    compressor("/usr/bin/bzip2", "libbz2.so.1.0", "-5", 16);
}

#[test]
fn xz_with_liblzma() {
    compressor("/usr/bin/xz", "liblzma.so.5", "-1", 20);
}

#[test]
fn sqlite3_with_its_library() {
    let sql = |rows| Work::with_input(&["-batch", ":memory:"], inputs::sql(rows).into_bytes());
    check(
        "/usr/bin/sqlite3",
        "libsqlite3.so.0",
        &[sql(40_000)],
        &[sql(60)],
    );
}

#[test]
fn perl() {
    let script = |n: &str| Work::new(&["-e", inputs::PERL, n]);
    let small = "my %h; $h{$_ % 7} .= $_ for 1 .. 200; my $n = () = join('', map { $h{$_} } sort keys %h) =~ /1(\\d)2/g; \
                 eval { die [1, 2] }; print \"$n @{$@}\\n\"; exit 3";
    check(
        "/usr/bin/perl",
        "",
        &[script("40")],
        &[Work::new(&["-e", small])],
    );
}

#[test]
fn python() {
    let script = |n: &str| Work::new(&["-c", inputs::PYTHON, n]);
    let small = "import sys\nd = {}\nfor i in range(500):\n    try:\n        d[i % 17] = d.get(i % 17, 1) * (i + 1)\n        if i % 9 == 4: raise KeyError(i)\n    \
                 except KeyError as e:\n        d['x'] = str(e)\nprint(sum(v for v in d.values() if isinstance(v, int)) % 1000003, d['x'])\nsys.exit(4)";
    check(
        "/usr/bin/python3.11",
        "",
        &[script("12")],
        &[Work::new(&["-I", "-S", "-c", small])],
    );
}

#[test]
fn mawk() {
    let run = |bytes: usize| {
        Work::with_input(
            &[inputs::AWK],
            inputs::mixed_data(bytes, 5)
                .iter()
                .map(|b| if *b == 0 { b'0' } else { *b })
                .collect(),
        )
    };
    check("/usr/bin/mawk", "", &[run(6 << 20)], &[run(20_000)]);
}

#[test]
fn cc1() {
    let program = "/usr/lib/gcc/x86_64-linux-gnu/12/cc1";
    let dir = tempfile::tempdir().unwrap();
    let source = |functions: u32| {
        let path = dir.path().join(format!("f{functions}.i"));
        std::fs::write(&path, inputs::c_source(functions)).unwrap();
        path.display().to_string()
    };
    let (large, small) = (source(1500), source(3));
    let compile =
        |path: &str, opt: &str| Work::new(&["-quiet", "-fpreprocessed", opt, path, "-o", "-"]);
    check(
        program,
        "",
        &[compile(&large, "-O2")],
        &[compile(&small, "-O1")],
    );
}

/// The rewriter rewrites itself, and the copies rewrite gzip to the same bytes.
#[test]
fn the_rewriter_itself() {
    let dir = tempfile::tempdir().unwrap();
    let program = tools::binary("mgz-instrument");
    let rewrite = |mut command: Command, out: &str| {
        let out = dir.path().join(out);
        tools::succeed(
            command
                .args(["--backend", "soft", "-o"])
                .arg(&out)
                .arg("/usr/bin/gzip"),
            LIMIT,
        )
        .unwrap();
        let bytes = std::fs::read(&out).unwrap();
        // Remove the output so that all runs use one name, because the output may contain its own
        // path.
        std::fs::remove_file(&out).unwrap();
        bytes
    };
    let expected = rewrite(Command::new(&program), "out");
    let soft = instrument(&program, "soft", "", dir.path());
    let mut recorded = tools::tool("mgz-record");
    recorded
        .args(["--mode", "ring", "-o"])
        .arg(dir.path().join("trace"))
        .arg("--")
        .arg(&soft);
    assert!(
        rewrite(recorded, "out") == expected,
        "recorded, it wrote something else"
    );
    let pt = instrument(&program, "pt", "", dir.path());
    if !nop::executes_ptwrite() {
        nop::replace(&pt).unwrap();
    }
    assert!(
        rewrite(Command::new(&pt), "out") == expected,
        "with ptwrites, it wrote something else"
    );
}

/// gdb names the frames of instrumented functions and unwinds through them.
#[test]
fn gdb_backtraces() {
    if !tools::have("gdb") {
        tools::skip("gdb is not installed, so backtraces by gdb were not tested");
        return;
    }
    use mgz_tests::programs::{self, Variant};
    let dir = tempfile::tempdir().unwrap();
    let variant = Variant::O1;
    let Some(program) =
        programs::build("backtraces", variant, &["-fno-inline"], dir.path()).unwrap()
    else {
        return;
    };
    let app = instrument(&program, "pt", "", dir.path());
    if !nop::executes_ptwrite() {
        nop::replace(&app).unwrap();
    }
    let mut command = Command::new("gdb");
    command.args(["-nx", "-batch"]);
    // The third call is in a recursion of depth nine.
    for line in [
        "set confirm off",
        "set breakpoint pending on",
        "break backtrace",
        "ignore 1 2",
        "run",
        "backtrace",
    ] {
        command.args(["-ex", line]);
    }
    let output = tools::succeed(command.arg(&app), LIMIT).unwrap();
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    if text.contains("ptrace:") {
        tools::skip("gdb may not trace here");
        return;
    }
    let frames: Vec<&str> = text.lines().filter(|l| l.starts_with('#')).collect();
    let count = |name: &str| frames.iter().filter(|f| f.contains(name)).count();
    assert_eq!(
        (
            count("backtrace"),
            count("leaf"),
            count("down"),
            count(" in main")
        ),
        (1, 1, 9, 1),
        "{text}"
    );
}
