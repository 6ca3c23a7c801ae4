//! `mgz`: from a program to a report in one command.

use mgz_tests::programs;
use mgz_tests::tools::{self, LIMIT, code};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

/// A program that walks a table column by column, prints a message, and ends with status 7.
const PROGRAM: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
enum { ROWS = 2048, COLUMNS = 512 };
static double table[ROWS][COLUMNS];
int main(int argc, char **argv) {
    double sum = 0;
    for (int round = 0; round < 60; round++)
        for (int c = 0; c < COLUMNS; c++)
            for (int r = 0; r < ROWS; r++)
                sum += table[r][c];
    printf("%s %g\n", argc > 1 ? argv[1] : "none", sum);
    fflush(stdout);
    if (argc > 1 && !strcmp(argv[1], "killed"))
        raise(SIGTERM);
    return 7;
}
"#;

/// A folder with a program in it.
struct TestFolder {
    dir: tempfile::TempDir,
}

impl TestFolder {
    fn new() -> TestFolder {
        TestFolder {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn program(&self) -> PathBuf {
        let program = self.path("columns");
        programs::compile_text(PROGRAM, &program, &["-O1", "-g"]);
        program
    }

    fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        tools::write_program(&path, text.as_bytes()).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        path
    }

    /// `mgz` in this folder, with a separate cache and no display.
    fn mgz(&self) -> Command {
        let mut command = tools::tool("mgz");
        command
            .current_dir(self.dir.path())
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("MGZ_NO_MEASURE", "1")
            .env_remove("DISPLAY")
            .env_remove("WAYLAND_DISPLAY");
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        tools::run_limited(self.mgz().args(arguments), LIMIT).unwrap()
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn report(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    for part in ["run", "functions", "lines", "objects", "time_zoom"] {
        assert!(text.contains(&format!("id=\"mgz-{part}\">")), "{part}");
    }
    text
}

#[test]
fn a_program_becomes_a_report_and_the_second_run_starts_at_once() {
    let place = TestFolder::new();
    place.program();
    let first = place.run(&["run", "-o", "out", "--", "./columns", "one"]);
    let said = stderr(&first);
    // The status and the output are the program's.
    assert_eq!(code(&first), 7, "{said}");
    assert_eq!(String::from_utf8_lossy(&first.stdout), "one 0\n");
    assert!(said.contains("report: out/report.html"), "{said}");
    assert!(said.contains("columns is instrumented"), "{said}");
    // The output of mgz-analyze, with the command as it was given.
    assert!(said.contains("command   ./columns one\n"), "{said}");
    assert!(said.contains("What is slow about memory"), "{said}");
    assert!(said.contains("columns.c:"), "{said}");
    let file = place.path("out/report.html");
    assert!(report(&file).contains("id=\"mgz-sources\">"));
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // Nothing is left next to the program, and the result is complete.
    let second = place.run(&["run", "-o", "out", "--", "./columns", "two"]);
    let said = stderr(&second);
    assert_eq!(code(&second), 7, "{said}");
    assert!(!said.contains("columns is instrumented"), "{said}");
    let mut names: Vec<String> = std::fs::read_dir(place.path("out"))
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["command.json", "report.html", "trace"]);
    // A changed program counts as a different one.
    let text = PROGRAM.replace("return 7", "return 8");
    programs::compile_text(text, &place.path("columns"), &["-O1", "-g"]);
    let third = place.run(&["run", "-o", "out", "--", "./columns"]);
    assert_eq!(code(&third), 8, "{}", stderr(&third));
    assert!(stderr(&third).contains("columns is instrumented"));
    // The separate steps: the same trace again, without the source.
    let again = place.run(&["report", "out", "--no-source"]);
    assert_eq!(code(&again), 0, "{}", stderr(&again));
    assert_eq!(String::from_utf8_lossy(&again.stdout), "out/report.html\n");
    assert!(!report(&file).contains("id=\"mgz-sources\">"));
}

#[test]
fn reports_are_opened_only_where_somebody_looks() {
    let place = TestFolder::new();
    let program = place.program();
    let tools_folder = place.path("bin");
    std::fs::create_dir(&tools_folder).unwrap();
    place.script("bin/xdg-open", "#!/bin/sh\necho \"$1\" > opened\n");
    let path = std::env::join_paths(
        std::iter::once(tools_folder)
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    )
    .unwrap();
    // A display with output to a pipe, as on a build server with Xvfb.
    let mut command = place.mgz();
    command
        .env("PATH", path)
        .env("DISPLAY", ":0")
        .args(["run", "-o", "out", "--"])
        .arg(program);
    let output = tools::run_limited(&mut command, LIMIT).unwrap();
    assert_eq!(code(&output), 7, "{}", stderr(&output));
    std::thread::sleep(Duration::from_millis(300));
    assert!(!place.path("opened").exists());
}

#[test]
fn the_status_is_the_programs() {
    let place = TestFolder::new();
    place.program();
    let killed = place.run(&["run", "--", "./columns", "killed"]);
    assert_eq!(code(&killed), 128 + libc::SIGTERM, "{}", stderr(&killed));
    assert!(place.path("columns.mgz/report.html").exists());
    let short = place.run(&["run", "-o", "short", "--", "/bin/true"]);
    assert_eq!(code(&short), 0);
    assert!(
        stderr(&short).contains("mgz run --full"),
        "{}",
        stderr(&short)
    );
    let missing = place.run(&["run", "--", "./no-such-program"]);
    assert_eq!(code(&missing), 127);
    assert!(stderr(&missing).contains("not found"));
    let plain = place.path("columns.c");
    let no_program = place.run(&["run", "--", plain.to_str().unwrap()]);
    assert_eq!(code(&no_program), 126, "{}", stderr(&no_program));
    assert_eq!(code(&place.run(&["run"])), 2);
}

#[test]
fn what_cannot_be_instrumented_is_refused_as_the_instrumenter_does() {
    let place = TestFolder::new();
    let file = place.script("broken", "\x7fELF and no more");
    let own = tools::run_limited(tools::tool("mgz-instrument").arg(&file), LIMIT).unwrap();
    let output = place.run(&["run", "-o", "out", "--", "./broken"]);
    assert_eq!(code(&output), code(&own));
    assert_ne!(code(&output), 0);
    let reason = stderr(&own);
    let reason = reason
        .split_once(": ")
        .unwrap()
        .1
        .split_once(": ")
        .unwrap()
        .1;
    assert!(
        stderr(&output).contains(reason.trim()),
        "{} / {reason}",
        stderr(&output)
    );
    assert!(!place.path("out/report.html").exists());
}

#[test]
fn a_shell_over_its_library_is_recorded_with_it() {
    let place = TestFolder::new();
    // The library does the work and has more code than the program.
    let more: String = (0..400)
        .map(|i| format!("long more{i}(long *a) {{ return a[{i}] * {i} + a[1]; }}\n"))
        .collect();
    // Memory that other code may write to is not known to be all zeros.
    let work = PROGRAM
        .replace("int main(", "int work(")
        .replace("static double table", "double table");
    std::fs::write(place.path("work.c"), work + &more).unwrap();
    std::fs::write(
        place.path("shell.c"),
        "int work(int, char **); int main(int c, char **v) { return work(c, v); }",
    )
    .unwrap();
    let cc = |arguments: &[&str]| {
        let mut command = Command::new("cc");
        command.current_dir(place.dir.path()).args(arguments);
        tools::succeed(&mut command, LIMIT).unwrap();
    };
    cc(&[
        "-O1",
        "-g",
        "-shared",
        "-fPIC",
        "-o",
        "libwork.so",
        "work.c",
    ]);
    cc(&[
        "-o",
        "shell",
        "shell.c",
        "-L.",
        "-lwork",
        "-Wl,-rpath,$ORIGIN",
    ]);
    let run = place.run(&["run", "-o", "out", "--", "./shell"]);
    let said = stderr(&run);
    assert_eq!(code(&run), 7, "{said}");
    assert!(
        said.contains("shell has little code of its own: libwork.so is instrumented too (--no-libs leaves it out)"),
        "{said}"
    );
    assert!(said.contains("column-wise walk"), "{said}");
    assert!(said.contains("work.c:"), "{said}");
    // The user may want only the program. Then there are no records, and the advice is given as a
    // command of mgz.
    let alone = place.run(&["run", "--no-libs", "-o", "alone", "--", "./shell"]);
    let said = stderr(&alone);
    assert_eq!(code(&alone), 7, "{said}");
    assert!(!said.contains("little code"), "{said}");
    assert!(said.contains("mgz run --libs=libwork"), "{said}");
    assert!(!said.contains("mgz-record --hot"), "{said}");
}

/// Two threads with counters in one cache line.
const SHARING: &str = r#"
#include <pthread.h>
static volatile long counters[2];
static void *count(void *own) {
    for (long i = 0; i < 60000000; i++)
        ++*(volatile long *)own;
    return 0;
}
int main(void) {
    pthread_t other;
    pthread_create(&other, 0, count, (void *)&counters[1]);
    count((void *)&counters[0]);
    pthread_join(other, 0);
    return 0;
}
"#;

#[test]
fn what_threads_do_to_each_other_needs_stores_and_that_is_said() {
    let place = TestFolder::new();
    std::fs::write(place.path("sharing.c"), SHARING).unwrap();
    let mut cc = Command::new("cc");
    cc.current_dir(place.dir.path());
    cc.args(["-O1", "-g", "-pthread", "-o", "sharing", "sharing.c"]);
    tools::succeed(&mut cc, LIMIT).unwrap();
    let plain = stderr(&place.run(&["run", "-o", "plain", "--", "./sharing"]));
    let words: Vec<&str> = plain.split_whitespace().collect();
    assert!(words.join(" ").contains("`mgz run --stores`"), "{plain}");
    let stores = stderr(&place.run(&["run", "--stores", "-o", "stores", "--", "./sharing"]));
    assert!(stores.contains("false sharing between threads"), "{stores}");
}

#[test]
fn scripts_are_recorded_by_their_interpreter() {
    let place = TestFolder::new();
    place.script(
        "loop.sh",
        "#!/bin/sh -u\ni=0\nwhile [ $i -lt 150000 ]; do i=$((i + 1)); done\necho \"$0 $1 $i\"\nexit 3\n",
    );
    let output = place.run(&["run", "-o", "out", "--", "./loop.sh", "argument"]);
    let said = stderr(&output);
    assert_eq!(code(&output), 3, "{said}");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "./loop.sh argument 150000\n"
    );
    assert!(said.contains("is a script"), "{said}");
    report(&place.path("out/report.html"));
}

#[test]
fn the_single_commands_are_there() {
    let place = TestFolder::new();
    for (name, tool) in [
        ("instrument", "mgz-instrument"),
        ("record", "mgz-record"),
        ("analyze", "mgz-analyze"),
    ] {
        let own = tools::run_limited(tools::tool(tool).arg("--help"), LIMIT).unwrap();
        let output = place.run(&[name, "--help"]);
        assert_eq!(code(&output), 0);
        // Usage lines have the name that was typed.
        let rest = |bytes: &[u8]| -> Vec<String> {
            let text = String::from_utf8_lossy(bytes).into_owned();
            let is_usage =
                |line: &&str| line.starts_with("Usage: ") || line.starts_with("       mgz");
            text.lines()
                .filter(|l| !is_usage(l))
                .map(str::to_owned)
                .collect()
        };
        assert_eq!(rest(&output.stdout), rest(&own.stdout), "{name}");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains(&format!("Usage: mgz {name} ")), "{text}");
    }
    let wrong = place.run(&["compare"]);
    assert_eq!(code(&wrong), 2);
    assert!(
        stderr(&wrong).contains("Usage: mgz compare "),
        "{}",
        stderr(&wrong)
    );
    let doctor = place.run(&["doctor"]);
    let text = String::from_utf8_lossy(&doctor.stdout);
    assert_eq!(code(&doctor), 0, "{text}");
    for part in ["mgz-record", "cache of instrumented programs", "attaching"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    for bad in [&["report", "no-such-trace"][..], &["report", "."]] {
        let output = place.run(bad);
        assert_eq!(code(&output), 1);
        assert!(stderr(&output).contains("manifest.json"));
    }
}

/// Two arrays on the heap, a large one and one of small blocks, and work in the mathematical library.
const HEAP: &str = r#"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
enum { N = 2000000 };
static double *large_site(void) {
    return calloc(N, sizeof(double));
}
int main(int c, char **v) {
    double *a = large_site(), sum = 0;
    for (int round = 0; round < 4; round++)
        for (long i = 0; i < N; i++)
            sum += a[(i * 7919) % N] + pow(fabs(sin(i * 0.001)), 1.7 + round);
    printf("%g\n", sum);
    return 0;
}
"#;

fn heap_program(place: &TestFolder, text: &str, flag: &str) {
    std::fs::write(place.path("heap.c"), text).unwrap();
    let mut cc = Command::new("cc");
    cc.current_dir(place.dir.path()).args([
        "-O1",
        "-g",
        "-fno-inline",
        "-o",
        "heap",
        "heap.c",
        flag,
    ]);
    tools::succeed(&mut cc, LIMIT).unwrap();
}

fn manifest(place: &TestFolder, run: &str) -> serde_json::Value {
    let file = place.path(run).join("trace/manifest.json");
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

#[test]
fn heap_data_have_names_unless_the_allocator_is_to_stay() {
    let place = TestFolder::new();
    heap_program(&place, HEAP, "-lm");
    for (option, is_named) in [("--no-libs", true), ("--no-heap", false)] {
        let run = place.run(&["run", option, "-o", "out", "--", "./heap"]);
        assert_eq!(code(&run), 0, "{}", stderr(&run));
        let log = &manifest(&place, "out")["heap"];
        assert_eq!(log["blocks"] == "budget", is_named, "{log}");
        let query = "SELECT count(*) AS n FROM objects WHERE object LIKE 'large_site%'";
        let found = place.run(&["query", "out/trace", query]);
        let text = String::from_utf8_lossy(&found.stdout).into_owned();
        assert_eq!(text.contains('1'), is_named, "{text} {}", stderr(&found));
    }
}

#[test]
fn a_library_with_much_of_the_time_is_taken_in_by_the_next_run() {
    let place = TestFolder::new();
    heap_program(&place, HEAP, "-lm");
    let run = || {
        let run = place.run(&["run", "-o", "out", "--", "./heap"]);
        assert_eq!(code(&run), 0, "{}", stderr(&run));
        stderr(&run)
    };
    let first = run();
    assert!(
        first.contains("libm.so.6 (") && first.contains("is instrumented too in the next run"),
        "{first}"
    );
    let second = run();
    assert!(
        second.contains("of the time before) is instrumented too (--no-libs leaves it out)"),
        "{second}"
    );
    let modules = manifest(&place, "out")["modules"].to_string();
    assert!(modules.contains("libm.so.6"), "{modules}");
    // The message appears once; the library remains instrumented.
    let third = run();
    assert!(!third.contains("libm.so.6 ("), "{third}");
    let modules = manifest(&place, "out")["modules"].to_string();
    assert!(modules.contains("libm.so.6"), "{modules}");
}

#[test]
fn a_program_that_only_allocates_has_no_log_in_the_next_run() {
    let place = TestFolder::new();
    let program = r#"
#include <stdlib.h>
int main(void) {
    void *volatile keep[64] = {0};
    for (long i = 0; i < 30000000; i++) {
        free(keep[i & 63]);
        keep[i & 63] = malloc(16 + (i & 127));
    }
    return 0;
}
"#;
    heap_program(&place, program, "-O2");
    let first = place.run(&["run", "-o", "out", "--", "./heap"]);
    assert!(!stderr(&first).contains("heap off"), "{}", stderr(&first));
    let log = manifest(&place, "out")["heap"].clone();
    let calls = log["calls"].as_f64().unwrap();
    // A thousand blocks are logged; five times the standard error is allowed.
    assert!((calls / 3e7 - 1.0).abs() < 0.2, "{log}");
    let second = place.run(&["run", "-o", "out", "--", "./heap"]);
    assert!(stderr(&second).contains("heap off"), "{}", stderr(&second));
    assert_eq!(manifest(&place, "out")["heap"]["blocks"], "");
}
