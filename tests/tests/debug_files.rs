//! Names, lines and inlining when the debug information is outside the file.

use mgz_tests::session::{self, analysis_json, record_program};
use mgz_tests::tools::{self, LIMIT};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const HEADER: &str = "static inline long step(long *t, long i) {\n  long x = t[(i * 7) & 1023];\n  return x + t[i & 1023];\n}\n";
const FIRST: &str = "#include \"step.h\"\n#include <stdio.h>\nlong other(long *, long);\nstatic long t[1024];\nint main(void) {\n  long s = 0;\n  for (int i = 0; i < 1024; i++)\n    t[i] = i;\n  for (long i = 0; i < 5000; i++)\n    s += step(t, i * 3);\n  printf(\"%ld\\n\", s + other(t, 5000));\n  return 0;\n}\n";
const SECOND: &str = "#include \"step.h\"\nlong other(long *t, long n) {\n  long s = 0;\n  for (long i = 0; i < n; i++)\n    s += step(t, i);\n  return s;\n}\n";

fn run(dir: &Path, command: &[&str]) {
    tools::succeed(
        Command::new(command[0])
            .args(&command[1..])
            .current_dir(dir),
        LIMIT,
    )
    .unwrap();
}

fn build(dir: &Path, name: &str, flags: &[&str]) -> PathBuf {
    for (name, text) in [("step.h", HEADER), ("first.c", FIRST), ("second.c", SECOND)] {
        std::fs::write(dir.join(name), text).unwrap();
    }
    let mut command = vec!["gcc", "-O2", "-g"];
    command.extend(flags);
    command.extend(["first.c", "second.c", "-o", name]);
    run(dir, &command);
    dir.join(name)
}

/// Functions with loads, and lines as `line|function|inlined into`, without folders; also returns
/// the messages of the tool.
fn names(dir: &Path, program: &Path) -> (Vec<String>, Vec<String>, String) {
    let app = session::instrument(program, "soft", &[]).unwrap();
    let said = tools::succeed(
        tools::tool("mgz-instrument")
            .args(["--backend", "soft", "--for", "ring", "-o"])
            .arg(dir.join("said.inst"))
            .arg(program),
        LIMIT,
    )
    .unwrap();
    let trace = dir.join("trace");
    let _ = std::fs::remove_dir_all(&trace);
    record_program(&["--mode", "full"], &trace, &app.path, &[]);
    let report = analysis_json(&trace, &[]);
    let many = |row: &&Value| row["A"].as_f64().unwrap() > 1000.0;
    let text = |v: &Value| v.as_str().unwrap_or("").to_owned();
    let short = |path: String| path.rsplit('/').next().unwrap().to_owned();
    let functions = report["functions"].as_array().unwrap();
    let mut functions: Vec<String> = functions
        .iter()
        .filter(many)
        .map(|f| text(&f["function"]))
        .collect();
    functions.sort();
    let lines = report["lines"].as_array().unwrap();
    let mut lines: Vec<String> = lines
        .iter()
        .filter(many)
        .map(|l| {
            let into: Vec<String> = l["inlined_into"]
                .as_array()
                .into_iter()
                .flatten()
                .map(text)
                .collect();
            format!(
                "{}:{}|{}|{}",
                short(text(&l["file"])),
                l["line"],
                text(&l["function"]),
                into.join(", ")
            )
        })
        .collect();
    lines.sort();
    (functions, lines, String::from_utf8(said.stdout).unwrap())
}

fn there(tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").output().is_ok();
    if !found {
        eprintln!("SKIPPED: {tool} is not installed");
    }
    found
}

#[test]
fn debug_information_in_other_files_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let whole = build(dir, "whole", &[]);
    let (functions, lines, said) = names(dir, &whole);
    assert_eq!(functions, ["main", "other"]);
    assert!(
        lines
            .iter()
            .any(|l| l.starts_with("step.h:2|step|main at first.c:10")
                || l.starts_with("step.h:3|step|main at first.c:10")),
        "{lines:?}"
    );
    assert!(!said.contains("debug info"), "{said}");
    let same = |program: &Path| {
        let got = names(dir, program);
        assert_eq!((&got.0, &got.1), (&functions, &lines), "{}", got.2);
        got.2
    };

    for flags in [&["-gsplit-dwarf"][..], &["-gdwarf-4", "-gsplit-dwarf"]] {
        same(&build(dir, "split", flags));
    }
    // The same, packed into one file, and then without that file.
    if there("llvm-dwp") {
        for flags in [&["-gsplit-dwarf"][..], &["-gdwarf-4", "-gsplit-dwarf"]] {
            let packed = build(dir, "packed", flags);
            run(dir, &["llvm-dwp", "-e", "packed", "-o", "packed.dwp"]);
            let parts = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
            let parts = parts.filter(|p| p.extension() == Some("dwo".as_ref()));
            let removed = parts.map(|p| std::fs::remove_file(p).unwrap()).count();
            assert!(removed >= 2, "{removed}");
            same(&packed);
            std::fs::remove_file(dir.join("packed.dwp")).unwrap();
            let got = names(dir, &packed);
            assert!(got.1.iter().all(|l| !l.contains("|step|")), "{got:?}");
        }
    }

    // Stripped, with a link to the stripped part; then without that file.
    let linked = dir.join("linked");
    std::fs::copy(&whole, &linked).unwrap();
    run(
        dir,
        &["objcopy", "--only-keep-debug", "linked", "linked.debug"],
    );
    run(dir, &["strip", "linked"]);
    run(
        dir,
        &["objcopy", "--add-gnu-debuglink=linked.debug", "linked"],
    );
    let said = same(&linked);
    assert!(
        said.contains("debug info  from ") && said.contains("linked.debug"),
        "{said}"
    );
    // Debug information of another build is rejected.
    let other = build(dir, "other", &["-DX", "-O1"]);
    std::fs::copy(other, dir.join("linked.debug")).unwrap();
    let got = names(dir, &linked);
    assert!(
        got.2.contains("is of another build") && got.1.iter().all(|l| !l.contains("step")),
        "{got:?}"
    );
    std::fs::remove_file(dir.join("linked.debug")).unwrap();
    let got = names(dir, &linked);
    assert!(
        got.2.contains("in linked.debug, which is not there"),
        "{got:?}"
    );

    if there("xz") {
        let mini = dir.join("mini");
        std::fs::copy(&whole, &mini).unwrap();
        run(dir, &["strip", "--strip-debug", "-o", "symbols", "whole"]);
        run(dir, &["objcopy", "--only-keep-debug", "symbols", "names"]);
        run(dir, &["xz", "-k", "names"]);
        run(dir, &["strip", "mini"]);
        run(
            dir,
            &[
                "objcopy",
                "--add-section",
                ".gnu_debugdata=names.xz",
                "mini",
            ],
        );
        assert_eq!(names(dir, &mini).0, functions);
    }

    if there("dwz") {
        let shared = dir.join("shared");
        std::fs::copy(&whole, &shared).unwrap();
        std::fs::copy(&whole, dir.join("twin")).unwrap();
        run(dir, &["dwz", "-m", "common", "shared", "twin"]);
        let said = same(&shared);
        assert!(said.contains("shared with other files, from "), "{said}");
        // Nothing is invented if the shared part is missing.
        std::fs::remove_file(dir.join("common")).unwrap();
        let got = names(dir, &shared);
        assert!(got.2.contains("common, which is not there"), "{}", got.2);
        assert!(got.1.iter().all(|l| !l.contains(" at ")), "{:?}", got.1);
    }
}

#[test]
fn servers_are_asked_for_debug_information_where_the_user_allows_it() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let program = build(dir, "program", &["-Wl,--build-id"]);
    run(dir, &["objcopy", "--only-keep-debug", "program", "fetched"]);
    run(dir, &["strip", "program"]);
    let finder = |text: &str| {
        let path = dir.join("debuginfod-find");
        let _ = std::fs::remove_file(&path);
        tools::write_program(&path, text.as_bytes()).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    };
    let path = format!("{}:{}", dir.display(), std::env::var("PATH").unwrap());
    let said = |urls: &str, options: &[&str]| {
        let mut command = tools::tool("mgz-instrument");
        command
            .env("PATH", &path)
            .env("DEBUGINFOD_URLS", urls)
            .args(options)
            .args(["--backend", "soft", "-o"])
            .arg(dir.join("program.inst"))
            .arg(&program);
        let output = tools::succeed(&mut command, LIMIT).unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    finder(&format!(
        "#!/bin/sh\necho \"$@\" >> {0}/asked\necho {0}/fetched\n",
        dir.display()
    ));
    let url = "http://localhost:1";
    assert!(!said(url, &[]).contains("debug info"));
    assert!(!dir.join("asked").exists(), "nobody has allowed it");
    let found = said(url, &["--debuginfod"]);
    let from = format!("debug info  from {}", dir.join("fetched").display());
    assert!(found.contains(&from), "{found}");
    let asked = std::fs::read_to_string(dir.join("asked")).unwrap();
    assert!(asked.starts_with("debuginfo "), "{asked}");
    assert_eq!(asked.trim().len(), "debuginfo ".len() + 40, "{asked}");
    // A file from a server is checked like a file on the disk.
    build(dir, "other", &["-DX", "-O1", "-Wl,--build-id"]);
    std::fs::rename(dir.join("other"), dir.join("fetched")).unwrap();
    let found = said(url, &["--debuginfod"]);
    assert!(found.contains("is of another build"), "{found}");
    finder("#!/bin/sh\necho 'Server query failed: No such file' >&2\nexit 1\n");
    let found = said(url, &["--debuginfod"]);
    assert!(
        found.contains("on no server: debuginfod-find: Server query failed"),
        "{found}"
    );
    let found = said("", &["--debuginfod"]);
    assert!(found.contains("DEBUGINFOD_URLS names none"), "{found}");
}
