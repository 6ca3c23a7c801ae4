//! Bad input gives one clear error that names the file, the cause and the remedy, has its own exit
//! status, and destroys nothing.

use mgz_tests::programs::{self, Variant};
use mgz_tests::session::{self, Instrumented, record_command, record_program};
use mgz_tests::tools::{self, LIMIT};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const PLAIN: Variant = Variant::O1;

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Checks a refusal: status, nothing on stdout, and an error that contains all of `words`.
fn refused(what: &str, command: &mut Command, statuses: &[i32], words: &[&str]) {
    let output = tools::run_limited(command, LIMIT).unwrap();
    let stderr = text(&output);
    assert!(
        statuses.contains(&tools::code(&output)),
        "{what}: status {} ({statuses:?} expected); stderr: {stderr}",
        tools::code(&output)
    );
    assert!(
        output.stdout.is_empty(),
        "{what}: stdout is {:?}",
        String::from_utf8_lossy(&output.stdout)
    );
    assert!(!stderr.contains("panicked"), "{what}: {stderr}");
    let lines = stderr.lines().filter(|l| !l.trim().is_empty()).count();
    // A usage error also shows the usage.
    let most = if tools::code(&output) == 2 || stderr.contains("Usage:") {
        10
    } else {
        4
    };
    assert!(
        (1..=most).contains(&lines),
        "{what}: one error expected: {stderr}"
    );
    for word in words {
        assert!(
            stderr.contains(word),
            "{what}: {word:?} is not in: {stderr}"
        );
    }
}

fn app(dir: &Path) -> Option<Instrumented> {
    let original = programs::build("loops", PLAIN, &[], dir).unwrap()?;
    Some(session::instrument(&original, "soft", &[]).unwrap())
}

fn name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

#[test]
fn what_cannot_be_instrumented() {
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = app(dir.path()) else { return };
    let good = std::fs::read(&app.original).unwrap();
    let out = dir.path().join("out");
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let edit = |name: &str, at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        file(name, &bytes)
    };
    let instrument = |path: &Path| {
        let mut command = tools::tool("mgz-instrument");
        command.arg("-o").arg(&out).arg(path);
        command
    };
    let cases: Vec<(&str, PathBuf)> = vec![
        ("an empty file", file("empty", b"")),
        ("a script", file("script.sh", b"#!/bin/sh\necho hello\n")),
        ("a 32-bit ELF", edit("elf32", 4, 1)),
        ("a big-endian ELF", edit("elfbig", 5, 2)),
        ("an ARM ELF", edit("elfarm", 18, 183)),
        ("an ELF cut in its header", file("cut40", &good[..40])),
        (
            "an ELF cut in its program headers",
            file("cut100", &good[..100]),
        ),
        (
            "an ELF cut in the middle",
            file("cuthalf", &good[..good.len() / 2]),
        ),
        ("an already instrumented ELF", app.path.clone()),
    ];
    std::fs::write(&out, "precious").unwrap();
    for (what, path) in &cases {
        refused(what, &mut instrument(path), &[1, 3], &[name(path)]);
        assert_eq!(
            std::fs::read(&out).unwrap(),
            b"precious",
            "{what}: the output was touched"
        );
        assert!(
            !dir.path().join("out.mgza").exists(),
            "{what}: a sidecar was left behind"
        );
    }
    refused(
        "an already instrumented ELF",
        &mut instrument(&app.path),
        &[3],
        &["already"],
    );
    refused(
        "an ARM ELF",
        &mut instrument(&dir.path().join("elfarm")),
        &[3],
        &["x86-64"],
    );
    refused(
        "a missing file",
        &mut instrument(&dir.path().join("nothing")),
        &[1],
        &["nothing"],
    );
    refused(
        "a folder",
        &mut instrument(dir.path()),
        &[1, 3],
        &[name(dir.path())],
    );
    refused("no argument", &mut tools::tool("mgz-instrument"), &[2], &[]);
    refused(
        "an unknown option",
        tools::tool("mgz-instrument")
            .arg("--frobnicate")
            .arg(&app.original),
        &[2],
        &["frobnicate"],
    );
    refused(
        "a bad pattern",
        tools::tool("mgz-instrument")
            .args(["--functions", "a("])
            .arg(&app.original),
        &[1, 2],
        &["a("],
    );
    // A file in place of a folder: not even root can write there.
    let inside = app.original.join("out");
    refused(
        "an unwritable folder",
        tools::tool("mgz-instrument")
            .arg("-o")
            .arg(&inside)
            .arg(&app.original),
        &[1],
        &[name(&app.original)],
    );
    let missing = dir.path().join("missing/folder/out");
    refused(
        "a missing folder",
        tools::tool("mgz-instrument")
            .arg("-o")
            .arg(&missing)
            .arg(&app.original),
        &[1],
        &["missing/folder"],
    );
    refused(
        "the input as the output",
        tools::tool("mgz-instrument")
            .arg("-o")
            .arg(&app.original)
            .arg(&app.original),
        &[1, 2],
        &["loops"],
    );
    assert_eq!(
        std::fs::read(&app.original).unwrap(),
        good,
        "the input was touched"
    );
}

/// Kinds of files that are declined, recognised by their characteristics.
#[test]
fn what_is_declined() {
    let dir = tempfile::tempdir().unwrap();
    let Some(original) = programs::build("loops", PLAIN, &[], dir.path()).unwrap() else {
        return;
    };
    let good = std::fs::read(&original).unwrap();
    let out = dir.path().join("out");
    let source = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let compile = |name: &str, flags: &[&str], source: &Path| {
        let path = dir.path().join(name);
        programs::compile(source, &path, &[&["-w", "-O1"], flags].concat());
        path
    };
    let edited = |name: &str, at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    // Go's linker leaves these sections in every program, stripped or not.
    let with_section = |name: &str, section: &str| {
        let (path, content) = (dir.path().join(name), source("content", "go1.21"));
        let mut argument = std::ffi::OsString::from(format!("{section}="));
        argument.push(&content);
        tools::succeed(
            Command::new("objcopy")
                .arg("--add-section")
                .arg(argument)
                .arg(&original)
                .arg(&path),
            LIMIT,
        )
        .unwrap();
        path
    };
    let plain = source("plain.c", "int main(void) { return 0; }");
    let v8 = source(
        "v8.c",
        "const char v8_Default_embedded_blob_code_[4] = {1}; int main(void) { return 0; }",
    );
    let ocaml = source(
        "ocaml.c",
        "void *caml_frametable[2]; int main(void) { return 0; }",
    );
    let cases: [(&str, PathBuf, &[&str]); 10] = [
        ("a 32-bit ELF", edited("elf32", 4, 1), &["32-bit", "-m64"]),
        ("an ARM ELF", edited("elfarm", 18, 40), &["ARM", "x86-64"]),
        (
            "a 64-bit ARM ELF",
            edited("elfarm64", 18, 183),
            &["64-bit ARM", "x86-64"],
        ),
        (
            "a core dump",
            edited("core", 16, 4),
            &["core dump", "the program that dumped it"],
        ),
        (
            "a relocatable file",
            compile("object.o", &["-c"], &plain),
            &["relocatable", "link it"],
        ),
        (
            "a Go program",
            with_section("go1", ".go.buildinfo"),
            &["Go program", "return addresses"],
        ),
        (
            "a Go program by its table",
            with_section("go2", ".gopclntab"),
            &["Go program", "return addresses"],
        ),
        (
            "an OCaml program",
            compile("ocaml", &[], &ocaml),
            &["OCaml program", "return addresses"],
        ),
        (
            "a program with V8",
            compile("v8", &[], &v8),
            &["V8", "addresses"],
        ),
        (
            "a script",
            source("script", "#!/bin/sh\n"),
            &["not an ELF", "x86-64"],
        ),
    ];
    for backend in ["soft", "pt"] {
        for (what, path, words) in &cases {
            let mut all = vec![name(path)];
            all.extend(*words);
            refused(
                what,
                tools::tool("mgz-instrument")
                    .args(["--backend", backend, "-o"])
                    .arg(&out)
                    .arg(path),
                &[3],
                &all,
            );
            assert!(!out.exists(), "{what}: a file was left behind");
        }
    }
}

#[test]
fn what_cannot_be_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = app(dir.path()) else { return };
    let trace = dir.path().join("trace");
    let record = |program: &Path| record_command(&["--mode", "ring"], &trace, program, &[]);
    refused(
        "no instrumentation",
        &mut record(&app.original),
        &[125],
        &["loops", "mgz-instrument"],
    );
    refused(
        "no such program",
        &mut record(&dir.path().join("nothing")),
        &[127],
        &["nothing"],
    );
    refused(
        "not executable",
        &mut record(&dir.path().join("loops.soft.mgza")),
        &[126],
        &["loops.soft.mgza"],
    );
    refused(
        "a folder",
        &mut record(dir.path()),
        &[126],
        &[name(dir.path())],
    );
    refused("no program", &mut tools::tool("mgz-record"), &[2, 125], &[]);
    refused(
        "an unknown option",
        tools::tool("mgz-record").args(["--frobnicate", "--", "true"]),
        &[2, 125],
        &["frobnicate"],
    );
    refused(
        "a window above the period",
        &mut record_command(
            &["--mode", "ring", "--period", "10", "--window", "100"],
            &trace,
            &app.path,
            &[],
        ),
        &[2, 125],
        &["window"],
    );
    assert!(!trace.exists(), "a refused run left a trace folder");

    let inside = app.original.join("trace");
    refused(
        "an unwritable folder",
        &mut record_command(&["--mode", "ring"], &inside, &app.path, &[]),
        &[125],
        &["loops"],
    );

    // Existing folders.
    std::fs::create_dir(&trace).unwrap();
    std::fs::write(trace.join("thesis.txt"), "years of work").unwrap();
    for force in [&[][..], &["--force"]] {
        let options: Vec<&str> = ["--mode", "ring"].iter().chain(force).copied().collect();
        refused(
            "a folder that is not ours",
            &mut record_command(&options, &trace, &app.path, &[]),
            &[125],
            &["trace"],
        );
        assert_eq!(
            std::fs::read(trace.join("thesis.txt")).unwrap(),
            b"years of work"
        );
    }
    std::fs::write(trace.join("manifest.json"), "{\"name\": \"a web app\"}").unwrap();
    refused(
        "a manifest that is not ours",
        &mut record_command(&["--mode", "ring", "--force"], &trace, &app.path, &[]),
        &[125],
        &["trace"],
    );
    assert_eq!(
        std::fs::read(trace.join("thesis.txt")).unwrap(),
        b"years of work"
    );
    let ours = dir.path().join("ours");
    record_program(&["--mode", "ring"], &ours, &app.path, &[]);
    let manifest = std::fs::read(ours.join("manifest.json")).unwrap();
    refused(
        "a trace that exists",
        &mut record_command(&["--mode", "ring"], &ours, &app.path, &[]),
        &[125],
        &["ours", "--force"],
    );
    assert_eq!(std::fs::read(ours.join("manifest.json")).unwrap(), manifest);
    record_program(&["--mode", "ring", "--force"], &ours, &app.path, &[]);

    // Sidecars.
    let sidecar = dir.path().join("loops.soft.mgza");
    let bytes = std::fs::read(&sidecar).unwrap();
    let trace = dir.path().join("trace2");
    let record = || record_command(&["--mode", "ring"], &trace, &app.path, &[]);
    let mut other = bytes.clone();
    other[8] ^= 0xff;
    let mut newer = bytes.clone();
    newer[4] = 99;
    for (what, bytes) in [
        ("a sidecar of another build", &other[..]),
        ("a sidecar of another version", &newer),
        ("half a sidecar", &bytes[..bytes.len() / 2]),
        ("no sidecar at all", b"hello"),
    ] {
        std::fs::write(&sidecar, bytes).unwrap();
        refused(what, &mut record(), &[125], &["loops.soft.mgza"]);
    }
    std::fs::remove_file(&sidecar).unwrap();
    refused(
        "a missing sidecar",
        &mut record(),
        &[125],
        &["loops.soft.mgza"],
    );
    assert!(!trace.exists(), "a refused run left a trace folder");
}

#[test]
fn what_cannot_be_analyzed() {
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = app(dir.path()) else { return };
    let good = dir.path().join("good");
    record_program(&["--mode", "full"], &good, &app.path, &[]);
    let analyze = |path: &Path| {
        let mut command = tools::tool("mgz-analyze");
        command.arg(path);
        command
    };
    assert!(
        tools::succeed(&mut analyze(&good), LIMIT)
            .unwrap()
            .stdout
            .len()
            > 200
    );
    let copy = |name: &str| {
        let to = dir.path().join(name);
        tools::succeed(Command::new("cp").arg("-r").arg(&good).arg(&to), LIMIT).unwrap();
        to
    };
    refused(
        "a missing folder",
        &mut analyze(&dir.path().join("nothing")),
        &[1],
        &["nothing"],
    );
    refused(
        "a folder that is no trace",
        &mut analyze(dir.path()),
        &[1],
        &["manifest.json"],
    );
    refused("a file", &mut analyze(&app.path), &[1], &["loops.soft"]);
    refused(
        "an unknown option",
        analyze(&good).arg("--frobnicate"),
        &[2],
        &["frobnicate"],
    );
    refused(
        "an unknown format",
        analyze(&good).args(["--format", "docx"]),
        &[2],
        &["docx"],
    );
    refused(
        "parquet without a folder",
        analyze(&good).args(["--format", "parquet"]),
        &[1, 2],
        &["-o"],
    );

    let broken = copy("manifest-cut");
    let manifest = std::fs::read(good.join("manifest.json")).unwrap();
    std::fs::write(
        broken.join("manifest.json"),
        &manifest[..manifest.len() / 2],
    )
    .unwrap();
    refused(
        "half a manifest",
        &mut analyze(&broken),
        &[1],
        &["manifest.json"],
    );

    let broken = copy("version");
    let mut value: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
    value["version"] = 99.into();
    std::fs::write(broken.join("manifest.json"), value.to_string()).unwrap();
    refused(
        "an unknown format version",
        &mut analyze(&broken),
        &[1],
        &["99", "version"],
    );

    let broken = copy("foreign");
    std::fs::write(
        broken.join("manifest.json"),
        "{\"format\": \"something else\", \"version\": 1}",
    )
    .unwrap();
    refused(
        "another program's manifest",
        &mut analyze(&broken),
        &[1],
        &["manifest.json"],
    );

    let part = |dir: &Path| {
        let mut all: Vec<PathBuf> = std::fs::read_dir(dir.join("samples"))
            .unwrap()
            .map(|e| e.unwrap().path())
            .collect();
        all.sort();
        all[0].clone()
    };
    let bytes = std::fs::read(part(&good)).unwrap();
    let noise: Vec<u8> = bytes
        .iter()
        .enumerate()
        .map(|(i, b)| if i > 8 { b ^ 0x5a } else { *b })
        .collect();
    for (what, bytes) in [
        ("half a part", &bytes[..bytes.len() / 2]),
        ("an empty part", b""),
        ("noise", &noise),
    ] {
        let broken = copy(&what.replace(' ', "-"));
        std::fs::write(part(&broken), bytes).unwrap();
        // The intact part is analysed; the exit status and a warning report that some of the trace
        // is missing.
        let output = tools::run_limited(&mut analyze(&broken), LIMIT).unwrap();
        let stderr = text(&output);
        assert_eq!(tools::code(&output), 1, "{what}: {stderr}");
        assert!(
            stderr.contains(name(&part(&broken))) && !stderr.contains("panicked"),
            "{what}: {stderr}"
        );
    }

    // Sidecars only add names and details of classes. Without them there must be a warning or an
    // error, but no panic.
    let broken = copy("no-sidecars");
    std::fs::remove_dir_all(broken.join("annotations")).unwrap();
    let output = tools::run_limited(&mut analyze(&broken), LIMIT).unwrap();
    assert!(
        [0, 1].contains(&tools::code(&output)) && text(&output).contains(".mgza"),
        "{}",
        text(&output)
    );

    // An existing folder that contains other files.
    let reports = dir.path().join("reports");
    std::fs::create_dir(&reports).unwrap();
    std::fs::write(reports.join("thesis.txt"), "years of work").unwrap();
    let _ = tools::run_limited(
        analyze(&good).args(["--format", "csv", "-o"]).arg(&reports),
        LIMIT,
    )
    .unwrap();
    assert_eq!(
        std::fs::read(reports.join("thesis.txt")).unwrap(),
        b"years of work"
    );
    assert_eq!(
        std::fs::read(good.join("manifest.json")).unwrap(),
        manifest,
        "analysis changed the trace"
    );
}

#[test]
fn a_closed_pipe_is_quiet() {
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = app(dir.path()) else { return };
    let trace = dir.path().join("trace");
    record_program(&["--mode", "ring"], &trace, &app.path, &[]);
    let script = format!(
        "{} {} --format json | head -c 10",
        tools::binary("mgz-analyze").display(),
        trace.display()
    );
    let output = tools::run_limited(Command::new("sh").arg("-c").arg(script), LIMIT).unwrap();
    assert_eq!(output.stdout.len(), 10);
    assert_eq!(text(&output), "");
}

/// `--quiet` prints nothing on success and only the error on failure.
#[test]
fn quiet_instrumentation_prints_errors_alone() {
    let dir = tempfile::tempdir().unwrap();
    let run = |input: &str| {
        let mut command = tools::tool("mgz-instrument");
        command.arg("-q").arg("-o").arg(dir.path().join("out"));
        tools::run_limited(command.arg(input), LIMIT).unwrap()
    };
    let well = run("/bin/true");
    assert_eq!(well.status.code(), Some(0));
    assert!(well.stdout.is_empty() && well.stderr.is_empty());
    let badly = run("/etc/passwd");
    assert_ne!(badly.status.code(), Some(0));
    assert!(badly.stdout.is_empty() && !badly.stderr.is_empty());
}
