//! Rare operations, each tested once: masks in handlers and in calls that wait, functions of older
//! systems, processes that share memory, limits. Each recorded program runs as it does without mgz.

use mgz_tests::forms;
use mgz_tests::programs::{self, Variant};
use mgz_tests::session::{self, record_command, recorded_run, same_result};
use mgz_tests::tools::{self, LIMIT};
use std::path::Path;
use std::process::Command;

const PLAIN: Variant = Variant::O1;
const MODES: [&[&str]; 3] = [
    &["--mode", "full"],
    &["--mode", "ring", "--period", "5000", "--window", "500"],
    &["--mode", "burst", "--rate", "1000"],
];

/// Runs a case without mgz and in all modes; `check` gets each trace.
fn same(name: &str, extra: &[&str], cases: &[&str], check: impl Fn(&str, &Path, &str)) {
    let dir = tempfile::tempdir().unwrap();
    let Some(original) = programs::build(name, PLAIN, extra, dir.path()).unwrap() else {
        return;
    };
    let flavours = ["ring", "burst"]
        .map(|mode| session::instrument(&original, "soft", &["--for", mode]).unwrap());
    // Another user must be able to execute it.
    tools::succeed(Command::new("chmod").arg("755").arg(dir.path()), LIMIT).unwrap();
    for case in cases {
        let expected = tools::run_limited(Command::new(&original).arg(case), LIMIT).unwrap();
        for options in MODES {
            let app = &flavours[usize::from(options[1] == "burst")];
            let trace = dir.path().join(format!("{case}-{}", options[1]));
            let got = recorded_run(options, &trace, &app.path, &[case]);
            same_result(&format!("{name} {case} {}", options[1]), &expected, &got).unwrap();
            let said = String::from_utf8_lossy(&got.stderr).into_owned();
            assert!(!said.contains("ld.so"), "{case}: {said}");
            check(case, &trace, &said);
        }
    }
}

/// The recorder adds variables to the environment and the runtime removes them again. That must
/// leave no gap before the auxiliary vector.
#[test]
fn the_auxiliary_vector_is_behind_the_environment() {
    for flags in [&[][..], &["-static"], &["-static-pie"]] {
        same("vector", flags, &["a"], |_, _, _| {});
    }
}

#[test]
fn handlers_that_fail() {
    same(
        "masks",
        &[],
        &[
            "nested",
            "nested-on-a-stack",
            "nested-allowed",
            "fault-in-another",
        ],
        |_, _, _| {},
    );
}

#[test]
fn handlers_that_are_left() {
    same(
        "masks",
        &[],
        &["jumps", "jump-without-a-mask", "context", "full-context"],
        |_, _, _| {},
    );
}

/// Entry jumps over loads are removed before a handler reads these loads, also in a program under a
/// seccomp filter.
#[test]
fn handlers_that_carry_out_loads() {
    same(
        "repairs",
        &[],
        &["", "fork", "borrow", "filter", "sealed"],
        |case, trace, said| {
            let installed = !trace.to_string_lossy().ends_with("burst");
            assert_eq!(
                said.contains("entries taken back"),
                installed,
                "{case}: {said}"
            );
        },
    );
}

/// Code whose protection the program changes is left unchanged.
#[test]
fn code_that_is_taken_away_and_given_back() {
    same(
        "guarded",
        &[],
        &["open", "closed", "none"],
        |case, _, said| assert!(!said.contains("entries taken back"), "{case}: {said}"),
    );
}

#[test]
fn masks_of_calls_that_wait() {
    same(
        "masks",
        &[],
        &["waits", "later", "interrupts"],
        |_, _, _| {},
    );
}

#[test]
fn functions_of_older_systems() {
    same("masks", &[], &["old-functions"], |_, _, _| {});
}

#[test]
fn processes_that_share_memory() {
    same(
        "offspring",
        &["-lrt"],
        &["beside", "instead", "refused"],
        |case, _, said| {
            assert_eq!(
                said.contains("10 threads without ring"),
                case == "beside",
                "{case}: {said}"
            );
        },
    );
}

#[test]
fn threads_that_the_c_library_makes() {
    same(
        "offspring",
        &["-lrt"],
        &["timers", "messages", "transfers", "transfers-again"],
        |_, _, _| {},
    );
}

#[test]
fn children() {
    same(
        "offspring",
        &["-lrt"],
        &["busy-forks", "pipes", "programs", "grandchildren"],
        |case, _, said| {
            assert!(!said.contains("foreign"), "{case}: {said}");
            assert!(case != "programs" || !said.contains("untold"), "{said}");
        },
    );
}

#[test]
fn little_memory() {
    same(
        "offspring",
        &["-lrt"],
        &["little-data", "little-space"],
        |_, _, _| {},
    );
}

#[test]
fn what_the_recorder_may_not_follow_is_counted() {
    same(
        "offspring",
        &["-lrt"],
        &["strict", "other-user"],
        |case, _, said| {
            // SAFETY: the call has no arguments.
            let may = case == "strict" || unsafe { libc::geteuid() } == 0;
            assert_eq!(said.contains("1 forbidden"), may, "{case}: {said}");
        },
    );
}

#[test]
fn what_is_no_filter() {
    same("offspring", &["-lrt"], &["no-filters"], |_, _, said| {
        assert!(!said.contains("forbidden"), "{said}")
    });
}

/// The runtime looks up the functions behind its wrappers before the program runs. It must not do
/// so in a thread that another thread waits for while loading a library, nor between `dlopen` and
/// `dlerror`.
#[test]
fn the_loader_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let compile = |name: &str, options: &[&str], text: &str| {
        let out = dir.path().join(name);
        programs::compile_text(text, &out, &[&["-O1", "-w"], options].concat());
        out
    };
    let library = compile(
        "waits.so",
        &["-shared", "-fPIC", "-pthread"],
        "#include <pthread.h>\n#include <sys/prctl.h>\n#include <unistd.h>\nstatic void *closes(void *unused) { close(-1); prctl(0); return unused; }\n\
        __attribute__((constructor)) static void begin(void) { pthread_t t; pthread_create(&t, 0, closes, 0); pthread_join(t, 0); }\n",
    );
    let program = compile(
        "loads",
        &[],
        "#include <dlfcn.h>\n#include <stdio.h>\n#include <unistd.h>\nstatic volatile unsigned t[64];\n\
        int main(int argc, char **argv) { unsigned s = 0; for (int i = 0; i < 64; i++) s += t[i]; printf(\"%u %d\\n\", s, dlopen(argv[1], RTLD_NOW) != 0);\n\
        dlopen(\"/nowhere\", RTLD_NOW); close(-1); syscall(39); char *said = dlerror(); printf(\"%s\\n\", said ? said : \"nothing\"); return 0; }\n",
    );
    let expected = tools::run_limited(Command::new(&program).arg(&library), LIMIT).unwrap();
    for options in MODES {
        let app = session::instrument(
            &program,
            "soft",
            &[
                "--for",
                if options[1] == "burst" {
                    "burst"
                } else {
                    "ring"
                },
            ],
        )
        .unwrap();
        let got = recorded_run(
            options,
            &dir.path().join(options[1]),
            &app.path,
            &[library.to_str().unwrap()],
        );
        same_result(options[1], &expected, &got).unwrap();
    }
}

/// Daemons close all descriptors; the event that begins windows is one of them.
#[test]
fn programs_that_close_everything_are_sampled() {
    let dir = tempfile::tempdir().unwrap();
    let text = "#define _GNU_SOURCE\n#include <stdio.h>\n#include <string.h>\n#include <sys/resource.h>\n#include <unistd.h>\nstatic volatile unsigned t[4096];\n\
        int main(int argc, char **argv) { struct rlimit l; getrlimit(RLIMIT_NOFILE, &l); if (!strcmp(argv[1], \"range\")) close_range(3, ~0u, 0); else if (!strcmp(argv[1], \"from\")) closefrom(3);\n\
        else for (unsigned i = 3; i < l.rlim_cur && i < 100000; i++) close(i);\n\
        unsigned s = 1; for (int k = 0; k < 60000; k++) for (int i = 0; i < 4096; i++) s += t[(i * 7 + k) & 4095] ^ s << 1; printf(\"%u\\n\", s); return 0; }\n";
    let program = dir.path().join("closing");
    programs::compile_text(text, &program, &["-O1", "-w"]);
    let app = session::instrument(&program, "soft", &["--for", "burst"]).unwrap();
    for way in ["range", "from", "loop"] {
        let expected = tools::run_limited(Command::new(&program).arg(way), LIMIT).unwrap();
        let trace = dir.path().join(way);
        let got = recorded_run(
            &["--mode", "burst", "--rate", "1000"],
            &trace,
            &app.path,
            &[way],
        );
        same_result(way, &expected, &got).unwrap();
        let samples = mgz_tests::rows::read_trace(&trace)
            .unwrap()
            .manifest
            .totals
            .samples;
        assert!(samples > 10, "{way}: {samples} samples");
    }
}

/// Additional bytes of an alternate stack that a handler may use with the runtime, by the function
/// that it calls. The work itself runs on another stack; these bytes are the registers that
/// wrappers and hooks push.
const CALLS_TAKE: [(&str, u64); 5] = [
    ("masks", 224),
    ("acts", 224),
    ("forks", 320),
    ("spawns", 320),
    ("executes", 320),
];
/// Additional bytes for a handler of an executable without a loader: code of the file calls it.
/// (System calls for masks and actions are intercepted on the program's stack there.)
const STATIC_TAKES: u64 = 16;
const STATIC_CHECKED: [&str; 5] = ["plain", "info", "nested", "alarms", "stack"];

/// A handler has as much space on an alternate stack as without the runtime.
#[test]
fn handlers_take_nothing_more_of_an_alternate_stack() {
    for extra in [&["-Wl,-z,now"][..], &["-static"]] {
        let dir = tempfile::tempdir().unwrap();
        let Some(original) = programs::build("altroom", PLAIN, extra, dir.path()).unwrap() else {
            return;
        };
        let run = |command: &mut Command| {
            let output = tools::run_limited(command.current_dir(dir.path()), LIMIT).unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        let expected = run(&mut Command::new(&original));
        for options in MODES {
            let purpose = if options[1] == "burst" {
                "burst"
            } else {
                "ring"
            };
            let app = session::instrument(&original, "soft", &["--for", purpose]).unwrap();
            let trace = dir.path().join(options[1]);
            let got = run(&mut record_command(options, &trace, &app.path, &[]));
            assert_eq!(expected.lines().count(), got.lines().count(), "{got}");
            let is_static = extra == ["-static"];
            for (alone, recorded) in expected.lines().zip(got.lines()) {
                if is_static && !STATIC_CHECKED.iter().any(|what| alone.contains(what)) {
                    continue;
                }
                let most = |line: &str| line.split(' ').nth(1).unwrap().parse::<u64>().unwrap();
                let more = CALLS_TAKE.iter().find(|(call, _)| alone.contains(call));
                let room = more.map_or(0, |(_, bytes)| *bytes)
                    + if is_static { 2 * STATIC_TAKES } else { 0 };
                if alone.contains("-stack") {
                    assert_eq!(alone, recorded);
                } else {
                    assert!(
                        most(recorded) <= most(alone) + room,
                        "{extra:?} {options:?}: {alone}, recorded {recorded}"
                    );
                }
            }
        }
    }
}

/// Counts in restartable sequences are exact: no part of a sequence runs in a clone, regardless of
/// the origin of its descriptor.
#[test]
fn restartable_sequences() {
    let fixed = Variant {
        clang: true,
        pie: false,
        ..PLAIN
    };
    for (way, variant) in [
        ("DATA", PLAIN),
        ("STACK", fixed),
        ("TABLE", PLAIN),
        ("OWN", fixed),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let define = format!("-DWAY={way}");
        let extra = [&*define, "-pthread"];
        let Some(program) = programs::build("restarts", variant, &extra, dir.path()).unwrap()
        else {
            return;
        };
        forms::all_same(&program, &["300000"], None, |form, report| {
            let left = &report["functions"]["left"]["reasons"]["uses restartable sequences"];
            assert!(left.as_u64() > Some(0), "{way} {form}: {report}");
        });
    }
}
