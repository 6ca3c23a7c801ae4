//! Programs that set the `%gs` base by a system call, without any instruction that uses it. Files
//! in which this is visible are declined; if a library does it, recording ends before anything can
//! fail.

use mgz_tests::forms::{self, FormOutcome};
use mgz_tests::programs::{self, Variant};
use mgz_tests::session::{self, recorded_run};
use mgz_tests::tools::{self, LIMIT};
use std::path::Path;
use std::process::Command;

const VARIANTS: [Variant; 3] = [
    Variant::O2,
    Variant::CLANG_FIXED,
    Variant {
        clang: false,
        opt: "0",
        pie: true,
    },
];

fn declined(way: &str) {
    for variant in VARIANTS {
        for extra in [&[][..], &["-static"]] {
            let dir = tempfile::tempdir().unwrap();
            let define = format!("-D{way}");
            let arguments = [&[&*define], extra].concat();
            let Some(program) =
                programs::build("segments", variant, &arguments, dir.path()).unwrap()
            else {
                return;
            };
            for (form, outcome) in forms::run_all(&program, &[], None, |_, _| ()).unwrap() {
                let fits = match &outcome {
                    FormOutcome::Same => form.starts_with("pt"),
                    // (`syscall` in the file itself may install handlers.)
                    FormOutcome::Declined(why) if form == "pt" => {
                        extra.contains(&"-static") && why.contains("may install a handler")
                    }
                    FormOutcome::Declined(why) => {
                        why.contains("gs segment itself (in main, at")
                            && why.contains("--backend pt")
                    }
                    _ => false,
                };
                assert!(fits, "{way} {variant} {extra:?} {form}: {outcome:?}");
            }
        }
    }
}

#[test]
fn by_syscall() {
    declined("CALL");
}

#[test]
fn by_a_function_of_its_own() {
    declined("FUNCTION");
}

#[test]
fn by_the_instruction() {
    declined("INSTRUCTION");
}

/// Programs that request another operation are recorded, and never see a base that they did not
/// set.
#[test]
fn other_operations() {
    for variant in VARIANTS {
        let dir = tempfile::tempdir().unwrap();
        let Some(program) = programs::build("segments", variant, &[], dir.path()).unwrap() else {
            return;
        };
        forms::all_same(&program, &[], None, |_, _| ());
    }
}

/// A library without instrumentation, and system call numbers that cannot be seen in the code.
#[test]
fn by_a_library() {
    let dir = tempfile::tempdir().unwrap();
    let source = programs::source("segments");
    let compile = |arguments: &[&str], out: &Path| {
        programs::compile(&source, out, &[&["-O1", "-w"], arguments].concat());
    };
    let folder = dir.path().display().to_string();
    compile(
        &["-DLIBRARY", "-shared", "-fPIC"],
        &dir.path().join("libsegments.so"),
    );
    let original = dir.path().join("host");
    let (search, run) = (format!("-L{folder}"), format!("-Wl,-rpath,{folder}"));
    compile(&["-DHOST", &search, "-lsegments", &run], &original);
    for form in ["ring", "burst"] {
        let out = dir.path().join(form);
        tools::succeed(
            tools::tool("mgz-instrument")
                .args(["--backend", "soft", "--for", form, "-o"])
                .arg(&out)
                .arg(&original),
            LIMIT,
        )
        .unwrap();
        for arguments in [&["158", "0x1001"][..], &["0x1001"], &[]] {
            let expected =
                tools::run_limited(Command::new(&original).args(arguments), LIMIT).unwrap();
            assert!(String::from_utf8_lossy(&expected.stdout).contains(" 77 "));
            for mode in ["full", "ring", "burst"] {
                if mode == "burst" && form == "ring" {
                    continue;
                }
                let what = format!("--for {form} {mode} {arguments:?}");
                let trace = dir
                    .path()
                    .join(format!("{form}-{mode}-{}", arguments.len()));
                let got = recorded_run(&["--mode", mode], &trace, &out, arguments);
                let said = String::from_utf8_lossy(&got.stderr);
                assert!(said.contains("set the %gs base"), "{what}: {said}");
                if mode == "burst" {
                    session::same_result(&what, &expected, &got).unwrap();
                } else {
                    assert_eq!(got.status.code(), Some(125), "{what}: {said}");
                    assert!(said.contains("--mode burst"), "{what}: {said}");
                }
            }
        }
    }
}
