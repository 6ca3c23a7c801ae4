//! Programs of Go and OCaml, whose runtimes walk stacks by return addresses, have the same output in
//! `burst` as alone, at rates at which windows are open at every kind of moment. Other modes and
//! programs that nobody has tried are declined.
//!
//! `MGZ_REPEAT=100` repeats the runs.

use mgz_tests::programs::sources;
use mgz_tests::session::{
    analysis_json, instrument_as, record_command, record_program, same_result,
};
use mgz_tests::tools::{self, LIMIT};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Options of recordings: short windows as often as possible, and long ones.
const OFTEN: [&[&str]; 3] = [
    &["--mode", "burst", "--rate", "20000", "--window", "16"],
    &["--mode", "burst", "--rate", "20000", "--window", "2000"],
    &["--mode", "burst", "--rate", "2000"],
];

fn repetitions() -> usize {
    std::env::var("MGZ_REPEAT").map_or(1, |n| n.parse().unwrap())
}

/// Programs of Go, and true if they contain C code.
const GO: [(&str, bool); 14] = [
    ("pingpong", false),
    ("stacks", false),
    ("preempt", false),
    ("collect", false),
    ("panics", false),
    ("callers", false),
    ("callers", true),
    ("loopback", false),
    ("signals", false),
    ("sorting", false),
    ("threads", false),
    ("edges", false),
    ("edges", true),
    ("calls_c", true),
];

/// True if a program is installed and its version contains one of these.
fn says(program: &str, argument: &str, versions: &[&str]) -> bool {
    let said = Command::new(program).arg(argument).output();
    said.is_ok_and(|said| {
        let said = String::from_utf8_lossy(&said.stdout);
        versions.iter().any(|version| said.contains(version))
    })
}

fn go() -> Option<Command> {
    if !says("go", "version", &["go1.18", "go1.19"]) {
        tools::skip("Go 1.18 or 1.19 is not installed");
        return None;
    }
    let mut command = Command::new("go");
    // The test's folder is in no module, and there is no network.
    command
        .current_dir(sources().join("go"))
        .envs([("GO111MODULE", "off"), ("GOFLAGS", "")])
        // The tests share the compiled standard library.
        .env("GOCACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("go"));
    Some(command)
}

/// `go build`. `None`: not installed.
fn built(name: &str, has_c: bool, more: &[&str], dir: &Path) -> Option<PathBuf> {
    let out = dir.join(format!("{name}{}", if has_c { "-c" } else { "" }));
    let mut command = go()?;
    command.arg("build").args(more);
    if has_c {
        if !tools::have("gcc") {
            tools::skip("gcc is not installed");
            return None;
        }
        command
            .env("CGO_ENABLED", "1")
            .arg("-ldflags=-linkmode=external");
    } else {
        command.env("CGO_ENABLED", "0");
    }
    command.arg("-o").arg(&out).arg(format!("{name}.go"));
    tools::succeed(&mut command, LIMIT).unwrap();
    Some(out)
}

/// The differences between runs of the original and recorded ones.
fn differences(what: &str, program: &Path, args: &[&str], inside: &Path) -> Vec<String> {
    let expected = run(Command::new(program).args(args), inside);
    let rewritten = instrument_as(program, "burst", &[]);
    let trace = program.with_extension("trace");
    let mut wrong = Vec::new();
    for options in OFTEN {
        for _ in 0..repetitions() {
            let options = [options, &["--force"]].concat();
            let mut command = record_command(&options, &trace, &rewritten, args);
            let got = run(&mut command, inside);
            let what = format!("{what} {options:?}");
            wrong.extend(
                same_result(&what, &expected, &got)
                    .err()
                    .map(|e| e.to_string()),
            );
            let _ = std::fs::remove_dir_all(&trace);
        }
    }
    wrong
}

fn run(command: &mut Command, inside: &Path) -> std::process::Output {
    tools::run_limited(command.current_dir(inside), LIMIT).unwrap()
}

#[test]
fn go_programs_do_what_they_do_alone() {
    let dir = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    for (name, has_c) in GO {
        let Some(program) = built(name, has_c, &[], dir.path()) else {
            continue;
        };
        wrong.extend(differences(name, &program, &[], dir.path()));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn go_s_own_tests_pass() {
    let dir = tempfile::tempdir().unwrap();
    let packages = ["sort", "container/heap", "sync", "bytes"];
    for package in packages {
        let Some(mut command) = go() else {
            return;
        };
        let root = command.args(["env", "GOROOT"]).output().unwrap().stdout;
        let folder = Path::new(String::from_utf8(root).unwrap().trim())
            .join("src")
            .join(package);
        let program = dir.path().join(package.replace('/', "_"));
        let mut command = go().unwrap();
        command
            .env("CGO_ENABLED", "0")
            .args(["test", "-c", "-o"])
            .arg(&program)
            .arg(package);
        if !tools::run_limited(&mut command, LIMIT)
            .unwrap()
            .status
            .success()
        {
            tools::skip(&format!("the tests of {package} are not installed"));
            continue;
        }
        let rewritten = instrument_as(&program, "burst", &[]);
        for options in OFTEN {
            let options = [options, &["--force"]].concat();
            let trace = dir.path().join("trace");
            let mut command = record_command(&options, &trace, &rewritten, &["-test.short"]);
            let got = run(&mut command, &folder);
            let text = String::from_utf8_lossy(&got.stdout);
            assert!(
                got.status.success() && text.lines().any(|line| line == "PASS"),
                "{package} {options:?}: {text}{}",
                String::from_utf8_lossy(&got.stderr)
            );
            std::fs::remove_dir_all(&trace).unwrap();
        }
    }
}

#[test]
fn other_go_programs_and_modes_are_declined() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = built("sorting", false, &[], dir.path()) else {
        return;
    };
    let stripped = dir.path().join("stripped");
    std::fs::copy(&program, &stripped).unwrap();
    tools::succeed(Command::new("strip").arg(&stripped), LIMIT).unwrap();
    let out = dir.path().join("out");
    for (file, options, why) in [
        (&program, &["--for", "ring"][..], "--for burst"),
        (&program, &["--for", "count"][..], "--for burst"),
        (&program, &["--backend", "pt"][..], "--for burst"),
        (&stripped, &["--for", "burst"][..], "no symbols"),
    ] {
        let mut command = tools::tool("mgz-instrument");
        let got = tools::run_limited(command.args(options).arg("-o").arg(&out).arg(file), LIMIT);
        let got = got.unwrap();
        let said = String::from_utf8_lossy(&got.stderr);
        assert!(
            tools::code(&got) == 3 && said.contains("a Go program") && said.contains(why),
            "{options:?}: {said}"
        );
    }
    let rewritten = instrument_as(&program, "burst", &[]);
    for mode in ["full", "ring", "count"] {
        let mut command = record_command(&["--mode", mode], &out, &rewritten, &[]);
        let got = tools::run_limited(&mut command, LIMIT).unwrap();
        let said = String::from_utf8_lossy(&got.stderr);
        assert!(
            tools::code(&got) == 125 && said.contains("--mode burst"),
            "{mode}: {said}"
        );
    }
}

/// The call paths of a recording, functions from the outside in with the number of windows; and the
/// parts of the windows with whole, partial and unknown paths.
fn call_paths(trace: &Path) -> (Vec<(Vec<String>, u64)>, [u64; 3]) {
    let report = analysis_json(trace, &["--call-paths"]);
    let table = &report["call_paths"];
    let rows = table["calls"].as_array().unwrap();
    let path = |at: &Value| {
        let mut path = Vec::new();
        let mut next = Some(at);
        while let Some(call) = next {
            path.insert(0, call["function"].as_str().unwrap().to_string());
            next = rows.iter().find(|row| row["id"] == call["parent"]);
        }
        (path, at["windows"].as_u64().unwrap())
    };
    let parts = ["whole", "partial", "unknown"].map(|key| table[key].as_u64().unwrap());
    (rows.iter().map(path).collect(), parts)
}

/// A function without a frame leaves no trace behind the frame pointer.
#[test]
fn callers_of_functions_without_frames_are_known() {
    let dir = tempfile::tempdir().unwrap();
    for (name, has_c, flags) in [
        ("leaf", false, &[][..]),
        ("leaf", false, &["-ldflags=-w"]),
        ("leaf_c", true, &[]),
    ] {
        let Some(program) = built(name, has_c, flags, dir.path()) else {
            continue;
        };
        let rewritten = instrument_as(&program, "burst", &[]);
        let trace = dir.path().join("trace");
        record_program(&["--force", "--rate", "1000"], &trace, &rewritten, &[]);
        let (paths, [whole, partial, unknown]) = call_paths(&trace);
        let windows = |end: &[&str]| {
            let fits = |path: &&(Vec<String>, u64)| {
                let names: Vec<&str> = path.0.iter().map(String::as_str).collect();
                names.ends_with(end)
            };
            paths.iter().filter(fits).map(|path| path.1).sum::<u64>()
        };
        let often = windows(&["runtime.main", "main.main", "main.often", "main.leaf"]);
        let seldom = windows(&["runtime.main", "main.main", "main.seldom", "main.leaf"]);
        let what = format!("{name} {flags:?}: {often} {seldom} {paths:#?}");
        assert!(often > seldom && seldom > 0, "{what}");
        assert_eq!(windows(&["main.main", "main.leaf"]), 0, "{what}");
        if flags.is_empty() {
            let objects = analysis_json(&trace, &[])["objects"].take();
            let data = objects.as_array().unwrap().iter();
            let mut data = data.filter(|object| object["object"] == "main.data");
            let of_type = data.next().map(|object| object["type"].clone());
            assert_eq!(of_type, Some("uint64[65536]".into()), "{name}: {objects}");
        }
        let all = whole + partial + unknown;
        assert!(
            all >= 50 && whole * 100 >= all * 95,
            "{whole} of {all}: {what}"
        );
    }
}

/// The last symbol of a program with C code, `_fini`, has no size. Addresses behind it lie in data, and
/// are found on stacks if frames have wrong sizes.
#[test]
fn nothing_is_called_by_the_last_symbol() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = built("calls_c", true, &[], dir.path()) else {
        return;
    };
    let rewritten = instrument_as(&program, "burst", &[]);
    let trace = dir.path().join("trace");
    record_program(&["--force", "--rate", "5000"], &trace, &rewritten, &[]);
    let (paths, _) = call_paths(&trace);
    assert!(paths.len() > 10, "{paths:#?}");
    let names = paths.iter().flat_map(|path| &path.0);
    assert!(names.clone().all(|name| name != "_fini"), "{paths:#?}");
}

#[test]
fn mgz_run_says_why_a_go_program_is_not_recorded_in_full() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = built("sorting", false, &[], dir.path()) else {
        return;
    };
    let mut command = tools::tool("mgz");
    command
        .args(["run", "--no-open", "--full", "-o", "out", "--"])
        .arg(&program)
        .env("XDG_CACHE_HOME", dir.path().join("cache"));
    let got = run(&mut command, dir.path());
    let said = String::from_utf8_lossy(&got.stderr);
    assert!(
        tools::code(&got) == 125
            && said.contains("it is a Go program")
            && said.contains("`mgz run --overhead=20% -- ")
            && !said.contains("mgz-record")
            && !said.contains("--mode"),
        "{said}"
    );
}

/// The layout of newer tables begins with another word.
#[test]
fn programs_of_other_versions_of_go_are_declined() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = built("sorting", false, &[], dir.path()) else {
        return;
    };
    let mut data = std::fs::read(&program).unwrap();
    const TABLE: [u8; 8] = [0xf0, 0xff, 0xff, 0xff, 0, 0, 1, 8];
    let places = data.windows(TABLE.len()).enumerate();
    let places: Vec<usize> = places
        .filter(|(_, bytes)| *bytes == TABLE)
        .map(|(at, _)| at)
        .collect();
    assert!(!places.is_empty());
    places.iter().for_each(|&at| data[at] = 0xf1);
    let newer = dir.path().join("newer");
    tools::write_program(&newer, &data).unwrap();
    let mut command = tools::tool("mgz-instrument");
    command.arg("-o").arg(dir.path().join("out")).arg(&newer);
    let got = tools::run_limited(&mut command, LIMIT).unwrap();
    let said = String::from_utf8_lossy(&got.stderr);
    assert!(
        tools::code(&got) == 3
            && said.contains("it was built by go1.1")
            && said.contains("known: that of Go 1.18 and 1.19"),
        "{said}"
    );
}

/// Programs of OCaml, and the libraries that they need.
const OCAML: [(&str, &[&str]); 5] = [
    ("trees", &[]),
    ("exceptions", &[]),
    ("tables", &[]),
    ("handlers", &["unix.cmxa"]),
    ("threads", &["-I", "+threads", "unix.cmxa", "threads.cmxa"]),
];

#[test]
fn ocaml_programs_do_what_they_do_alone() {
    if !says("ocamlopt", "-version", &["4."]) {
        return tools::skip("OCaml 4 is not installed");
    }
    let dir = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    for (name, libraries) in OCAML {
        let source = format!("{name}.ml");
        std::fs::copy(
            sources().join("ocaml").join(&source),
            dir.path().join(&source),
        )
        .unwrap();
        let mut command = Command::new("ocamlopt");
        command
            .current_dir(dir.path())
            .arg("-g")
            .args(libraries)
            .args(["-o", name])
            .arg(&source);
        tools::succeed(&mut command, LIMIT).unwrap();
        wrong.extend(differences(name, &dir.path().join(name), &[], dir.path()));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
