//! A recorded program behaves (output, status, processes, threads, signals) as it does without mgz,
//! and the trace matches the run.

use mgz_annotations_schema::sidecar::SiteKind;
use mgz_tests::programs::{self, Variant};
use mgz_tests::rows::{self, RecordedRow, Trace};
use mgz_tests::session::{self, record_command, record_program, recorded_run, same_result};
use mgz_tests::tools::{self, LIMIT};
use std::path::{Path, PathBuf};
use std::process::Command;

const PLAIN: Variant = Variant::O2;
const FIXED: Variant = Variant::CLANG_FIXED;

fn build(name: &str, variant: Variant, dir: &Path) -> Option<PathBuf> {
    programs::build(name, variant, &[], dir).unwrap()
}

/// Checks that totals agree with rows and that rows are in order.
fn consistent(trace: &Trace) {
    let totals = &trace.manifest.totals;
    let rows: Vec<&RecordedRow> = trace.threads.values().flatten().collect();
    assert_eq!(totals.rows, rows.len() as u64);
    let implied: u64 = rows.iter().map(|r| u64::from(r.implied_const)).sum();
    assert_eq!(totals.implied_const, implied);
    if trace.manifest.mode.has_all_loads() {
        assert_eq!(totals.loads_executed, Some(totals.rows + implied));
        assert_eq!(
            totals.records_executed, totals.records_kept,
            "full keeps every record"
        );
    }
    for ((process, thread), rows) in &trace.threads {
        assert!(
            rows.windows(2)
                .all(|w| w[0].seq < w[1].seq && w[0].sample <= w[1].sample),
            "rows of {process}/{thread} are not in order"
        );
    }
}

/// Runs a program natively and recorded in both modes; returns the traces (full, ring).
fn run(name: &str, variant: Variant, args: &[&str]) -> Option<(Trace, Trace)> {
    let dir = tempfile::tempdir().unwrap();
    let original = build(name, variant, dir.path())?;
    let app = session::instrument(&original, "soft", &[]).unwrap();
    let expected = tools::run_limited(Command::new(&original).args(args), LIMIT).unwrap();
    let mut traces = Vec::new();
    for options in [
        &["--mode", "full"][..],
        &["--mode", "ring", "--period", "5000", "--window", "500"],
    ] {
        let trace = dir.path().join(options[1]);
        let got = recorded_run(options, &trace, &app.path, args);
        same_result(
            &format!("{name} {args:?} {variant} {}", options[1]),
            &expected,
            &got,
        )
        .unwrap();
        let trace = rows::read_trace(&trace).unwrap();
        assert!(trace.rows() > 0, "{name} {args:?} {}: no rows", options[1]);
        consistent(&trace);
        traces.push(trace);
    }
    let ring = traces.pop()?;
    Some((traces.pop()?, ring))
}

#[test]
fn ends_of_all_kinds() {
    for variant in [PLAIN, FIXED] {
        for (how, status) in [
            ("return", "exit 40"),
            ("exit", "exit 41"),
            ("_exit", "exit 42"),
            ("raw", "exit 43"),
            ("thread", "exit 44"),
            ("pthread_exit", "exit 0"),
            ("abort", "signal 6"),
            ("kill", "signal 9"),
            ("term", "signal 15"),
            ("segv", "signal 11"),
            ("load-segv", "signal 11"),
            ("trap", "signal 4"),
        ] {
            let Some((full, ring)) = run("ends", variant, &[how]) else {
                return;
            };
            assert_eq!(full.manifest.program_status.to_string(), status, "{how}");
            assert_eq!(ring.manifest.program_status.to_string(), status, "{how}");
            assert_eq!(
                full.manifest.state.as_str(),
                "complete",
                "{how}: {:?}",
                full.manifest.problems
            );
        }
    }
}

#[test]
fn an_uncaught_exception() {
    for variant in [PLAIN, FIXED] {
        if let Some((full, _)) = run("uncaught", variant, &[]) {
            assert_eq!(full.manifest.program_status.to_string(), "signal 6");
        }
    }
}

#[test]
fn processes() {
    for variant in [PLAIN, FIXED] {
        let Some((full, _)) = run("forks", variant, &[]) else {
            return;
        };
        let processes: std::collections::BTreeSet<u32> = full.threads.keys().map(|k| k.0).collect();
        // The parent, three forks, three that execute the program again, and the one that is
        // killed. Code between vfork and its end is not recorded.
        assert_eq!(processes.len(), 8, "{processes:?}");
    }
}

#[test]
fn threads_at_the_same_time() {
    for variant in [PLAIN, FIXED] {
        let Some((full, _)) = run("parallel", variant, &["3000"]) else {
            return;
        };
        assert_eq!(full.threads.len(), 55, "main, four and fifty threads");
        let busy = full
            .threads
            .values()
            .filter(|rows| rows.len() > 3000)
            .count();
        assert!(busy >= 4, "{busy}");
    }
}

#[test]
fn asynchronous_signals() {
    for variant in [PLAIN, FIXED] {
        run("alarms", variant, &[]);
    }
}

#[test]
fn signals_and_faults() {
    for variant in [PLAIN, FIXED] {
        run("signals", variant, &[]);
        run("faults", variant, &[]);
    }
}

#[test]
fn unwinding() {
    for variant in [PLAIN, FIXED] {
        run("backtraces", variant, &[]);
        run("throws", variant, &[]);
        run("jumps", variant, &[]);
    }
    run("panics", PLAIN, &[]);
}

#[test]
fn windows_are_pieces_of_the_whole() {
    let dir = tempfile::tempdir().unwrap();
    let Some(original) = build("hash", PLAIN, dir.path()) else {
        return;
    };
    let app = session::instrument(&original, "soft", &[]).unwrap();
    let record = |options: &[&str], name: &str| {
        let trace = dir.path().join(name);
        record_program(options, &trace, &app.path, &[]);
        rows::read_trace(&trace).unwrap()
    };
    let full = record(&["--mode", "full", "--no-aslr"], "full");
    let options = [
        "--mode",
        "ring",
        "--no-aslr",
        "--period",
        "1000",
        "--window",
        "100",
    ];
    let (ring, again) = (record(&options, "ring"), record(&options, "again"));
    let plain = |rows: &[RecordedRow]| -> Vec<(u64, u64, u32)> {
        rows.iter().map(|r| (r.ip, r.address, r.size)).collect()
    };
    let all = plain(full.first_thread());
    let kept = ring.first_thread();
    assert_eq!(
        plain(kept),
        plain(again.first_thread()),
        "ring is reproducible"
    );
    let records = full.manifest.totals.records_executed;
    assert_eq!(
        ring.manifest.totals.records_executed, records,
        "ring counts the records exactly"
    );
    let expected = records.div_ceil(1000);
    assert!(
        ring.manifest.totals.samples.abs_diff(expected) <= 1,
        "{} samples of {records} records",
        ring.manifest.totals.samples
    );
    let mut from = 0;
    for window in kept.chunk_by(|a, b| a.sample == b.sample) {
        let window = plain(window);
        let at = all[from..].windows(window.len()).position(|w| w == window);
        let Some(at) = at else {
            panic!(
                "a window of {} rows is not in the full trace after row {from}: {:x?}…",
                window.len(),
                &window[..window.len().min(4)]
            )
        };
        from += at + window.len();
    }
}

/// Stores of sixteen bytes that extended from a ring's last slot into the page behind it used to be
/// repeated forever.
#[test]
fn vectors_at_the_end_of_a_ring() {
    let dir = tempfile::tempdir().unwrap();
    let Some(original) = build("gathers", Variant { opt: "2", ..PLAIN }, dir.path()) else {
        return;
    };
    let expected = tools::succeed(Command::new(&original).arg("3000"), LIMIT).unwrap();
    for form in ["ring", "burst"] {
        let app = session::instrument(&original, "soft", &["--for", form]).unwrap();
        let known: std::collections::HashSet<(u64, u64)> = {
            let trace = dir.path().join(format!("full-{form}"));
            record_program(&["--mode", "full", "--no-aslr"], &trace, &app.path, &["1"]);
            rows::read_trace(&trace)
                .unwrap()
                .first_thread()
                .iter()
                .filter(|r| r.class != 0)
                .map(|r| (r.ip, r.address))
                .collect()
        };
        for (period, window) in [("997", "50"), ("1001", "100"), ("64", "7")] {
            let trace = dir.path().join(format!("{form}-{period}"));
            let options = [
                "--mode",
                "ring",
                "--no-aslr",
                "--period",
                period,
                "--window",
                window,
            ];
            let got = recorded_run(&options, &trace, &app.path, &["3000"]);
            same_result("gathers", &expected, &got).unwrap();
            let trace = rows::read_trace(&trace).unwrap();
            let gathered: Vec<&RecordedRow> = trace
                .first_thread()
                .iter()
                .filter(|r| app.sidecar.sites[r.site as usize].kind == SiteKind::Gather as u8)
                .collect();
            assert!(
                trace.manifest.totals.samples > 100 && gathered.len() > 300,
                "{} samples, {} lanes",
                trace.manifest.totals.samples,
                gathered.len()
            );
            let invented = gathered
                .iter()
                .filter(|r| !known.contains(&(r.ip, r.address)))
                .count();
            assert_eq!(
                invented, 0,
                "{form}, period {period}: addresses that no run reads"
            );
        }
    }
}

#[test]
fn a_library_opened_at_run_time() {
    let dir = tempfile::tempdir().unwrap();
    let plugin = dir.path().join("libplugin.so");
    let shared = ["-O2", "-w", "-shared", "-fPIC"];
    programs::compile(&programs::source("plugin"), &plugin, &shared);
    let loader = dir.path().join("loader");
    programs::compile(&programs::source("loader"), &loader, &["-O2", "-w", "-ldl"]);
    let (app, library) = (
        session::instrument(&loader, "soft", &[]).unwrap(),
        session::instrument(&plugin, "soft", &[]).unwrap(),
    );
    let expected = tools::succeed(Command::new(&loader).arg(&plugin), LIMIT).unwrap();
    let trace = dir.path().join("trace");
    let got = recorded_run(
        &["--mode", "full"],
        &trace,
        &app.path,
        &[library.path.to_str().unwrap()],
    );
    same_result("loader", &expected, &got).unwrap();
    let trace = rows::read_trace(&trace).unwrap();
    let module = trace
        .module(&library.sidecar.id_hex())
        .expect("the library is in the manifest");
    let rows = trace
        .threads
        .values()
        .flatten()
        .filter(|r| r.module == module)
        .count();
    assert!(rows >= 3 * 50, "{rows} rows of the library");

    // A program whose code cannot be changed runs unchanged.
    let options = ["--mode", "full", "--force"];
    let got = recorded_run(
        &options,
        &dir.path().join("trace"),
        &app.path,
        &[library.path.to_str().unwrap(), "sealed"],
    );
    same_result("sealed loader", &expected, &got).unwrap();

    // The file as an earlier version would have made it, with a shorter note.
    let mut older = std::fs::read(&library.path).unwrap();
    let note = |b: &[u8]| {
        b[..4] == 4u32.to_le_bytes() && b[8..12] == 1u32.to_le_bytes() && b[12..] == *b"mgz\0"
    };
    let at = older.windows(16).position(note).expect("a note");
    let number = |b: &[u8], at: usize| u64::from_le_bytes(*b[at..].first_chunk().unwrap());
    // The program header that points to the note.
    let headers = (0..usize::from(older[56])).map(|n| number(&older, 32) as usize + n * 56);
    let header = headers
        .into_iter()
        .find(|&h| older[h] == 4 && number(&older, h + 8) == at as u64)
        .expect("a header of the note");
    for (at, less) in [
        (at + 4, 16),
        (at + 16, 1),
        (header + 32, 16),
        (header + 40, 16),
    ] {
        let word: &mut [u8; 4] = older[at..].first_chunk_mut().unwrap();
        *word = (u32::from_le_bytes(*word) - less).to_le_bytes();
    }
    let old = dir.path().join("libolder.so");
    std::fs::write(&old, older).unwrap();
    let got = recorded_run(
        &options,
        &dir.path().join("trace"),
        &app.path,
        &[old.to_str().unwrap()],
    );
    same_result("loader of an older library", &expected, &got).unwrap();
    let said = String::from_utf8_lossy(&got.stderr);
    assert!(said.contains("another version of mgz"), "{said}");
}

#[test]
fn a_library_that_the_program_is_linked_to() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let gcc = |args: &[&str]| {
        let mut command = Command::new("gcc");
        tools::succeed(
            command.current_dir(path).args(["-O2", "-w"]).args(args),
            LIMIT,
        )
        .unwrap();
    };
    let source = |name: &str| programs::source(name).display().to_string();
    gcc(&[
        "-shared",
        "-fPIC",
        "-Wl,-soname,libplugin.so.1",
        "-o",
        "libplugin.so.1",
        &source("plugin"),
    ]);
    gcc(&[
        "-o",
        "linked",
        &source("linked"),
        "./libplugin.so.1",
        "-Wl,-rpath,$ORIGIN",
    ]);
    let expected = tools::succeed(&mut Command::new(path.join("linked")), LIMIT).unwrap();
    for libs in ["--libs", "--libs=libplugin.so.1"] {
        let app = session::instrument(&path.join("linked"), "soft", &[libs]).unwrap();
        assert!(path.join("linked.soft.libs/libplugin.so.1").exists());
        assert!(path.join("linked.soft.libs/libplugin.so.1.mgza").exists());
        same_result(
            "unrecorded",
            &expected,
            &tools::run_limited(&mut Command::new(&app.path), LIMIT).unwrap(),
        )
        .unwrap();
        let trace = path.join("trace");
        let got = recorded_run(&["--mode", "full", "--force"], &trace, &app.path, &[]);
        same_result("recorded", &expected, &got).unwrap();
        let trace = rows::read_trace(&trace).unwrap();
        let mut rows = vec![0; trace.manifest.modules.len()];
        trace
            .threads
            .values()
            .flatten()
            .for_each(|r| rows[usize::from(r.module)] += 1);
        assert!(
            rows.len() == 2 && rows.iter().min() >= Some(&1) && rows.iter().max() >= Some(&80),
            "{rows:?} in {:?}",
            trace.manifest.modules
        );
    }
}

#[test]
fn a_soft_file_runs_as_the_original_does_when_it_is_not_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let Some(original) = build("throws", PLAIN, dir.path()) else {
        return;
    };
    let app = session::instrument(&original, "soft", &[]).unwrap();
    let expected = tools::run_limited(&mut Command::new(&original), LIMIT).unwrap();
    same_result(
        "unrecorded",
        &expected,
        &tools::run_limited(&mut Command::new(&app.path), LIMIT).unwrap(),
    )
    .unwrap();
}

#[test]
fn children_that_are_not_instrumented_do_not_see_the_recorder() {
    let dir = tempfile::tempdir().unwrap();
    let text = "#include <stdlib.h>\n#include <unistd.h>\nint main(void) { int r = system(\"env | sort; ls /proc/self/fd | wc -l\"); return r != 0; }\n";
    let program = dir.path().join("env");
    programs::compile_text(text, &program, &["-O1"]);
    let app = session::instrument(&program, "soft", &[]).unwrap();
    let expected = tools::run_limited(&mut Command::new(&program), LIMIT).unwrap();
    let got = recorded_run(&["--mode", "full"], &dir.path().join("t"), &app.path, &[]);
    same_result("env", &expected, &got).unwrap();
}

#[test]
fn programs_that_others_start() {
    let dir = tempfile::tempdir().unwrap();
    let text = "#include <stdio.h>\nint main(int n, char **v) { int s = 0; for (char *c = v[1]; *c; c++) s += *c; printf(\"%d\\n\", s); return s % 100; }\n";
    let program = dir.path().join("sum");
    programs::compile_text(text, &program, &["-O1"]);
    let app = session::instrument(&program, "soft", &[]).unwrap();
    let script = dir.path().join("script");
    tools::write_program(&script, b"#!/bin/sh\n\"$1\" abc; \"$1\" xyz\n").unwrap();
    tools::succeed(Command::new("chmod").arg("+x").arg(&script), LIMIT).unwrap();
    let line = |p: &Path| format!("('{0}' abc;'{0}' xyz)", p.display());
    let shell: [&Path; 2] = ["/bin/sh".as_ref(), &script];
    for starter in shell {
        let arguments = |p: &Path| {
            if starter == script {
                vec![p.display().to_string()]
            } else {
                vec!["-c".to_string(), line(p)]
            }
        };
        let expected =
            tools::run_limited(Command::new(starter).args(arguments(&program)), LIMIT).unwrap();
        let trace = dir
            .path()
            .join(format!("{}.trace", starter.file_name().unwrap().display()));
        let own = arguments(&app.path);
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        let got = recorded_run(&["--mode", "full"], &trace, starter, &own);
        same_result("started by another", &expected, &got).unwrap();
        let trace = rows::read_trace(&trace).unwrap();
        consistent(&trace);
        assert_eq!(trace.threads.len(), 2, "two processes");
    }
}

/// The runtime holds 512 modules; closed modules free their entries.
#[test]
fn a_library_that_is_opened_and_closed_many_times() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let text = "#include <dlfcn.h>\n#include <stdio.h>\nstatic long add(long x) { return x * 2; }\nint main(int argc, char **argv) { int n[40]; long s = 0; for (int i = 0; i < 40; i++) n[i] = i * 7;\n\
        for (int k = 0; k < 700; k++) { void *h = dlopen(argv[1], RTLD_NOW); if (!h) { puts(dlerror()); return 1; }\n\
        long (*f)(const int *, int, long (*)(long)) = (long (*)(const int *, int, long (*)(long)))dlsym(h, \"plugin_sum\"); s += f(n, 40, add); dlclose(h); }\n\
        printf(\"%ld\\n\", s); return 0; }\n";
    std::fs::write(path.join("opens.c"), text).unwrap();
    let gcc = |args: &[&str]| {
        tools::succeed(
            Command::new("gcc")
                .current_dir(path)
                .args(["-O2", "-w"])
                .args(args),
            LIMIT,
        )
        .unwrap()
    };
    gcc(&[
        "-shared",
        "-fPIC",
        "-o",
        "libplugin.so",
        &programs::source("plugin").display().to_string(),
    ]);
    gcc(&["-o", "opens", "opens.c", "-ldl"]);
    let (program, library) = (path.join("opens"), path.join("libplugin.so"));
    let expected = tools::succeed(Command::new(&program).arg(&library), LIMIT).unwrap();
    let (app, library) = (
        session::instrument(&program, "soft", &[]).unwrap(),
        session::instrument(&library, "soft", &[]).unwrap(),
    );
    let trace = path.join("trace");
    let got = recorded_run(
        &["--mode", "full"],
        &trace,
        &app.path,
        &[&library.path.display().to_string()],
    );
    same_result("opened 700 times", &expected, &got).unwrap();
    let trace = rows::read_trace(&trace).unwrap();
    consistent(&trace);
    let calls = trace.threads.values().flatten().count();
    assert!(calls >= 700 * 80, "{calls} rows");
}

/// A copy without its sidecar in the same folder. Its records cannot be interpreted, so its
/// original code runs. (In the past its clones ran until the ring was full.)
#[test]
fn a_file_without_its_sidecar_runs_unrecorded() {
    let dir = tempfile::tempdir().unwrap();
    let text = "#include <stdio.h>\nint t[4096];\nint main(void) { unsigned s = 1; for (int i = 0; i < 3000000; i++) s += t[(s * 5 + i) & 4095]; printf(\"%u\\n\", s); return 0; }\n";
    let program = dir.path().join("many");
    programs::compile_text(text, &program, &["-O1"]);
    let expected = tools::run_limited(&mut Command::new(&program), LIMIT).unwrap();
    for (mode, options) in [
        ("ring", ["--for", "ring"]),
        ("full", ["--for", "ring"]),
        ("burst", ["--for", "burst"]),
    ] {
        let app = session::instrument(&program, "soft", &options).unwrap();
        let copy = dir.path().join(format!("copy-{mode}"));
        tools::succeed(Command::new("cp").arg(&app.path).arg(&copy), LIMIT).unwrap();
        let trace = dir.path().join(format!("{mode}.trace"));
        // (The recorder would refuse such a file given by name, and would use the original's
        // sidecar if it had that.)
        let line = format!(
            "cd {}; ./copy-*{mode}; ./copy-*{mode}",
            dir.path().display()
        );
        let got = recorded_run(
            &["--mode", mode],
            &trace,
            "/bin/sh".as_ref(),
            &["-c", &line],
        );
        let twice = [&expected.stdout[..], &expected.stdout].concat();
        assert_eq!(
            (tools::code(&got), String::from_utf8_lossy(&got.stdout)),
            (0, String::from_utf8_lossy(&twice)),
            "{mode}: {}",
            String::from_utf8_lossy(&got.stderr)
        );
        let said = String::from_utf8_lossy(&got.stderr).into_owned();
        assert!(said.contains("its sidecar is missing"), "{mode}: {said}");
        consistent(&rows::read_trace(&trace).unwrap());
    }
}

#[test]
fn standard_streams_are_the_programs_own() {
    let dir = tempfile::tempdir().unwrap();
    let text = "#include <stdio.h>\nint main(void) { int c, n = 0; while ((c = getchar()) != EOF) { putchar(c ^ 1); n++; } fprintf(stderr, \"read %d\\n\", n); return n % 200; }\n";
    let program = dir.path().join("cat");
    programs::compile_text(text, &program, &["-O2"]);
    let app = session::instrument(&program, "soft", &[]).unwrap();
    let input = mgz_tests::inputs::mixed_data(100_123, 3);
    let expected = tools::run_with(&mut Command::new(&program), Some(&input), LIMIT).unwrap();
    let got = tools::run_with(
        &mut record_command(&["--mode", "ring"], &dir.path().join("t"), &app.path, &[]),
        Some(&input),
        LIMIT,
    )
    .unwrap();
    same_result("cat", &expected, &got).unwrap();
    let stderr = String::from_utf8_lossy(&got.stderr).into_owned();
    assert!(stderr.contains("read 100123\n"), "{stderr}");
    assert!(
        stderr
            .lines()
            .any(|l| l.starts_with("mgz-record:") && l.contains("recorded")),
        "the line at the end: {stderr}"
    );
}

/// The PT flavour has its jumps in the file, so it must give the same output without a recorder.
#[test]
fn the_pt_flavour_without_a_recorder() {
    use mgz_tests::nop;
    for name in [
        "faults",
        "retries",
        "loops",
        "hash",
        "switches",
        "goto",
        "throws",
        "objects",
        "parallel",
        "signals",
        "jumps",
        "forks",
        "stack",
        "calls",
        "alarms",
        "backtraces",
    ] {
        for variant in [PLAIN, FIXED] {
            let dir = tempfile::tempdir().unwrap();
            let Some(original) = build(name, variant, dir.path()) else {
                continue;
            };
            let out = dir.path().join("app.pt");
            let done = tools::run_limited(
                tools::tool("mgz-instrument")
                    .args(["--backend", "pt", "-o"])
                    .arg(&out)
                    .arg(&original),
                LIMIT,
            )
            .unwrap();
            assert_eq!(
                tools::code(&done),
                0,
                "{name}: {}",
                String::from_utf8_lossy(&done.stderr)
            );
            if !nop::executes_ptwrite() {
                nop::replace(&out).unwrap();
            }
            let expected = tools::run_limited(&mut Command::new(&original), LIMIT).unwrap();
            let got = tools::run_limited(&mut Command::new(&out), LIMIT).unwrap();
            same_result(&format!("{name} {variant}"), &expected, &got).unwrap();
        }
    }
}

/// The same test for static executables: those that start children, because their C library resets
/// the children's handlers, and one with a handler.
#[test]
fn static_executables_of_the_pt_flavour() {
    use mgz_tests::nop;
    let dir = tempfile::tempdir().unwrap();
    let c = "#define _GNU_SOURCE\n#include <setjmp.h>\n#include <signal.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\nstatic sigjmp_buf back; static void *at; static char text[64];\nstatic void failed(int s, siginfo_t *i, void *c) { at = i->si_addr; siglongjmp(back, 1); }\nint main(void) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = failed; a.sa_flags = SA_SIGINFO; sigaction(SIGSEGV, &a, 0); for (int n = 0; n < 3; n++) if (!sigsetjmp(back, 1)) *(volatile int *)(16l << n) = 1; else printf(\"%p\\n\", at); FILE *f = popen(\"echo child\", \"r\"); fgets(text, sizeof text, f); printf(\"%s%d %d\\n\", text, pclose(f), system(\"exit 3\")); return 0; }\n";
    let rust = "fn main() { let o = std::process::Command::new(\"echo\").arg(\"child\").output().unwrap(); let t = std::thread::spawn(move || o.stdout.len()); println!(\"{} {:?}\", t.join().unwrap(), std::process::Command::new(\"false\").status().unwrap()); }\n";
    for (name, source, compiler, options) in [
        ("glibc", c, "gcc", &["-O2", "-static"][..]),
        ("glibc-pie", c, "gcc", &["-O1", "-static-pie"]),
        ("musl", c, "musl-gcc", &["-O2", "-static"]),
        (
            "rust",
            rust,
            "rustc",
            &["-O", "-C", "target-feature=+crt-static"],
        ),
        (
            "rust-musl",
            rust,
            "rustc",
            &["-O", "--target", "x86_64-unknown-linux-musl"],
        ),
    ] {
        let kind = if compiler == "rustc" { "rs" } else { "c" };
        let (file, original) = (
            dir.path()
                .join(format!("{}.{kind}", name.replace('-', "_"))),
            dir.path().join(name),
        );
        std::fs::write(&file, source).unwrap();
        let built = Command::new(compiler)
            .args(options)
            .arg("-o")
            .arg(&original)
            .arg(&file)
            .output();
        if !built.is_ok_and(|b| b.status.success()) {
            tools::skip(&format!("{compiler} makes no {name}"));
            continue;
        }
        let out = dir.path().join(format!("{name}.pt"));
        tools::succeed(
            tools::tool("mgz-instrument")
                .args(["--backend", "pt", "-o"])
                .arg(&out)
                .arg(&original),
            LIMIT,
        )
        .unwrap();
        if !nop::executes_ptwrite() {
            nop::replace(&out).unwrap();
        }
        let expected = tools::run_limited(&mut Command::new(&original), LIMIT).unwrap();
        let got = tools::run_limited(&mut Command::new(&out), LIMIT).unwrap();
        same_result(name, &expected, &got).unwrap();
    }
}
