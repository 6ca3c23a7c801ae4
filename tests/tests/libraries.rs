//! A library with the features that break rewriters of libraries (`beyond.cpp`), and a program that
//! crosses the boundary between the two by every mechanism (`border.cpp`). The library is linked
//! and rewritten by `--libs`, and opened, closed and reopened while another thread runs. Output and
//! status must be those of the original in every mode of the soft flavour and in the PT flavour,
//! and traces must have rows of the library's functions.
//!
//! Each variant compiles the two differently. `MGZ_TESTS=full` uses all of them, otherwise the
//! first few are used. `MGZ_WAY=2` selects one by its number.

use mgz_annotations_schema::sidecar::{NONE, Sidecar};
use mgz_tests::forms;
use mgz_tests::programs;
use mgz_tests::rows::{self, Trace};
use mgz_tests::session::{instrument_as as instrument, record_command, same_result};
use mgz_tests::tools::{self, LIMIT};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const LIBRARY: &str = "libbeyond.so.1";

/// Compiler, arguments for the program, arguments for the library.
type Way = (
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
);

const WAYS: &[Way] = &[
    ("g++", &["-O2"], &["-O2"]),
    // Descriptors instead of calls for thread-local storage, no room between functions, and a
    // program with copies of the library's data that it uses.
    (
        "g++",
        &["-O2", "-fno-pie", "-no-pie"],
        &["-O2", "-mtls-dialect=gnu2", "-falign-functions=1"],
    ),
    (
        "clang++",
        &["-O0", "-fno-pie", "-no-pie"],
        &["-Os", "-falign-functions=1"],
    ),
    (
        "g++",
        &["-O3", "-s"],
        &["-O3", "-fno-plt", "-Wl,-z,now", "-s"],
    ),
    // The following ones are used only in the full matrix.
    ("g++", &["-O0"], &["-O0"]),
    (
        "g++",
        &["-O1"],
        &[
            "-Os",
            "-mtls-dialect=gnu2",
            "-Wl,-Bsymbolic-functions",
            "-fno-semantic-interposition",
        ],
    ),
    (
        "g++",
        &["-O0", "-fuse-ld=gold"],
        &[
            "-O1",
            "-fuse-ld=gold",
            "-ffunction-sections",
            "-Wl,--icf=all",
            "-s",
        ],
    ),
    (
        "g++",
        &["-O2", "-fcf-protection=full"],
        &["-O2", "-fcf-protection=full", "-Wl,-z,now"],
    ),
    (
        "g++",
        &["-O2"],
        &["-O2", "-static-libgcc", "-static-libstdc++"],
    ),
    (
        "g++",
        &["-O2", "-fno-plt", "-Wl,-z,now"],
        &[
            "-O3",
            "-fomit-frame-pointer",
            "-Wl,-z,pack-relative-relocs",
            "-Wl,-z,noseparate-code",
        ],
    ),
    ("clang++", &["-O0", "-fno-pie", "-no-pie"], &["-O0"]),
    (
        "clang++",
        &["-O3", "-fuse-ld=lld"],
        &["-O3", "-fuse-ld=lld"],
    ),
    (
        "clang++",
        &["-Os", "-fuse-ld=mold"],
        &["-O2", "-fuse-ld=mold", "-s"],
    ),
    (
        "clang++",
        &["-O1"],
        &[
            "-O1",
            "-fno-plt",
            "-fuse-ld=lld",
            "-Wl,-z,separate-code",
            "-Wl,--icf=all",
        ],
    ),
];

fn ways() -> Vec<(usize, Way)> {
    let only: Option<usize> = std::env::var("MGZ_WAY").ok().and_then(|n| n.parse().ok());
    let all = WAYS.iter().copied().enumerate();
    match only {
        Some(n) => all.filter(|(i, _)| *i == n).collect(),
        None if tools::full_matrix() => all.collect(),
        None => all.take(4).collect(),
    }
}

/// Compiles a source. Returns `None`, with a message, if this machine lacks a required tool.
fn compile(
    compiler: &str,
    source: &str,
    flags: &[&str],
    more: &[&str],
    dir: &Path,
    out: &str,
) -> Option<PathBuf> {
    let linker = flags
        .iter()
        .find_map(|f| f.strip_prefix("-fuse-ld="))
        .map(|l| {
            if l == "mold" {
                l.to_owned()
            } else {
                format!("ld.{l}")
            }
        });
    for program in [Some(compiler.to_owned()), linker].into_iter().flatten() {
        if !tools::have(&program) {
            tools::skip(&format!(
                "{program} is not installed, so {source} was not tested with it"
            ));
            return None;
        }
    }
    let mut command = Command::new(compiler);
    command
        .current_dir(dir)
        .args(["-std=c++20", "-w", "-pthread"])
        .args(flags)
        .arg("-o")
        .arg(out)
        .arg(programs::source(source))
        .args(more);
    tools::succeed(&mut command, LIMIT).unwrap();
    Some(dir.join(out))
}

fn library(way: Way, dir: &Path) -> Option<PathBuf> {
    compile(
        way.0,
        "beyond",
        way.2,
        &["-shared", "-fPIC", &format!("-Wl,-soname,{LIBRARY}")],
        dir,
        LIBRARY,
    )
}

/// Reads a file's sidecar and checks that all functions are instrumented.
fn sidecar(file: &Path, form: &str, way: Way) -> Sidecar {
    let sidecar = Sidecar::read(&PathBuf::from(format!("{}.mgza", file.display()))).unwrap();
    let left: Vec<_> = sidecar
        .functions
        .iter()
        .filter(|f| f.left != NONE)
        .map(|f| (sidecar.string(f.name), sidecar.string(f.left)))
        .collect();
    assert!(left.is_empty(), "{way:?} {form}: {left:?}");
    sidecar
}

/// Describes what is wrong with a trace. It must have rows of the library's functions if the
/// library is recorded completely and has names (the names of exported functions cannot be
/// stripped).
fn lacking(trace: &Trace, library: &Sidecar, whole: bool) -> Option<String> {
    let Some(module) = trace.module(&library.id_hex()) else {
        return Some("the library is not in the manifest".into());
    };
    let seen: BTreeSet<u64> = trace
        .threads
        .values()
        .flatten()
        .filter(|r| r.module == module)
        .map(|r| r.ip)
        .collect();
    let functions: Vec<_> = library
        .functions
        .iter()
        .filter(|f| seen.range(f.start..f.end).next().is_some())
        .map(|f| library.string(f.name))
        .collect();
    if functions.is_empty() {
        return Some("no row is of the library".into());
    }
    let named = |n: &str| {
        library
            .functions
            .iter()
            .any(|f| f.left == NONE && library.string(f.name).contains(n))
    };
    // One function for each path into the library and back: the linker's tables, the resolver's
    // choice, threads, unwinding, virtual functions, callbacks.
    let expected = [
        "walk",
        "by_product",
        "crowd",
        "thrower",
        "passes",
        "shelters",
        "again",
        "plain",
        "ask_all",
        "ascending",
        "sum_of",
        "Tally",
        "Square",
        "Hollow",
    ];
    let missing: Vec<&&str> = expected
        .iter()
        .filter(|e| named(e) && !functions.iter().any(|f| f.contains(**e)))
        .collect();
    (whole && !missing.is_empty())
        .then(|| format!("no row is of {missing:?}, only of {functions:?}"))
}

/// Runs an instrumented program without a recorder, and recorded in each mode of its form.
struct Runs<'a> {
    what: String,
    dir: &'a Path,
    program: &'a Path,
    /// Arguments after the number of rounds.
    args: &'a [&'a str],
    library: Option<Sidecar>,
    /// Numbers of rounds of the original, with the output of each; bursts use the longer one.
    expected: &'a [(&'static str, Output)],
}

impl Runs<'_> {
    fn all(&self, form: &str, wrong: &mut Vec<String>) {
        let (short, long) = (&self.expected[0], &self.expected[1]);
        let [bare, full, ring] = [
            ("bare", &[][..], short),
            ("full", &["--mode", "full"], short),
            (
                "ring",
                &["--mode", "ring", "--period", "5000", "--window", "500"],
                short,
            ),
        ];
        let bursts = [
            ("burst", &["--mode", "burst", "--rate", "1000"][..], long),
            (
                "bursts",
                &["--mode", "burst", "--rate", "10000", "--window", "16"],
                long,
            ),
        ];
        let runs = match form {
            "pt" => vec![bare],
            "burst" => [&[bare, full, ring][..], &bursts].concat(),
            _ => vec![bare, full, ring],
        };
        for (run, options, (rounds, expected)) in runs {
            let trace = self.dir.join("trace");
            let args = [&[*rounds][..], self.args].concat();
            let got = match options {
                [] => tools::run_limited(Command::new(self.program).args(&args), LIMIT),
                _ => tools::run_limited(
                    &mut record_command(
                        &[options, &["--force"]].concat(),
                        &trace,
                        self.program,
                        &args,
                    ),
                    LIMIT,
                ),
            };
            let what = format!("{} {form} {run}", self.what);
            if let Err(why) = got.and_then(|got| same_result(&what, expected, &got)) {
                wrong.push(format!("{why:#}"));
            } else if let (Some(library), true) =
                (&self.library, ["full", "ring", "bursts"].contains(&run))
            {
                let trace = rows::read_trace(&trace).unwrap();
                wrong.extend(
                    lacking(&trace, library, run == "full").map(|why| format!("{what}: {why}")),
                );
            }
        }
    }
}

/// Output of the original for two numbers of rounds.
fn originals(program: &Path, args: &[&str]) -> Vec<(&'static str, Output)> {
    ["3", "100"]
        .map(|rounds| {
            (
                rounds,
                tools::run_limited(Command::new(program).arg(rounds).args(args), LIMIT).unwrap(),
            )
        })
        .into()
}

#[test]
fn linked() {
    let mut wrong = Vec::new();
    for (number, way) in ways() {
        let dir = tempfile::tempdir().unwrap();
        let Some(original) = library(way, dir.path()) else {
            continue;
        };
        let Some(program) = compile(
            way.0,
            "border",
            way.1,
            &[original.to_str().unwrap(), "-Wl,-rpath,$ORIGIN"],
            dir.path(),
            "linked",
        ) else {
            continue;
        };
        let expected = originals(&program, &[]);
        assert!(
            expected[0].1.stdout.ends_with(b"at exit 13\n"),
            "{}",
            String::from_utf8_lossy(&expected[0].1.stdout)
        );
        for form in ["ring", "burst", "pt"] {
            // Also with the C++ library, so that exceptions are thrown and caught in clones of it.
            let libs = if number == 0 || tools::full_matrix() {
                &["--libs=libbeyond.so.1", "--libs"][..]
            } else {
                &["--libs=libbeyond.so.1"]
            };
            for libs in libs {
                let out = instrument(&program, form, &[libs]);
                let library = (form != "pt").then(|| {
                    sidecar(
                        &PathBuf::from(format!("{}.libs/{LIBRARY}", out.display())),
                        form,
                        way,
                    )
                });
                Runs {
                    what: format!("{number}: {way:?} {libs}"),
                    dir: dir.path(),
                    program: &out,
                    args: &[],
                    library,
                    expected: &expected,
                }
                .all(form, &mut wrong);
            }
        }
    }
    tools::no_failures(&wrong);
}

/// Libraries opened from an instrumented program and from one that is not instrumented.
#[test]
fn opened() {
    let mut wrong = Vec::new();
    for (number, way) in ways() {
        let dir = tempfile::tempdir().unwrap();
        let Some(original) = library(way, dir.path()) else {
            continue;
        };
        let Some(program) = compile(
            way.0,
            "border",
            way.1,
            &["-DOPENED", "-ldl"],
            dir.path(),
            "opened",
        ) else {
            continue;
        };
        let expected = originals(&program, &[original.to_str().unwrap()]);
        assert_eq!(
            String::from_utf8_lossy(&expected[0].1.stdout)
                .matches("closed, gone\n")
                .count(),
            3,
            "the library is closed in between"
        );
        for form in ["ring", "burst", "pt"] {
            let library = instrument(&original, form, &[]);
            for opener in [&program, &instrument(&program, form, &[])] {
                let what = format!(
                    "{number}: {way:?} opened by {}",
                    opener.file_name().unwrap().display()
                );
                let sidecar = (form != "pt").then(|| sidecar(&library, form, way));
                Runs {
                    what,
                    dir: dir.path(),
                    program: opener,
                    args: &[library.to_str().unwrap()],
                    library: sidecar,
                    expected: &expected,
                }
                .all(form, &mut wrong);
            }
        }
    }
    tools::no_failures(&wrong);
}

/// Closing a library discards the other threads' cached targets while they use them. In the past,
/// when more than the keys was erased, threads jumped to address zero. When the keys were erased to
/// zero, a call through a null pointer went to the target of another call.
#[test]
fn closed_while_another_thread_runs() {
    let dir = tempfile::tempdir().unwrap();
    let compile = |source: &str, flags: &[&str], out: &str| {
        let mut command = Command::new("gcc");
        command
            .current_dir(dir.path())
            .args(["-O2", "-w", "-pthread"])
            .args(flags)
            .arg("-o")
            .arg(out)
            .arg(programs::source(source));
        tools::succeed(&mut command, LIMIT).unwrap();
        dir.path().join(out)
    };
    let (program, plugin) = (
        compile("closes", &["-ldl"], "closes"),
        compile("plugin", &["-shared", "-fPIC"], "libplugin.so"),
    );
    let expected = tools::succeed(Command::new(&program).arg(&plugin), LIMIT).unwrap();
    let mut wrong = Vec::new();
    for form in ["ring", "burst"] {
        let (program, plugin) = (
            instrument(&program, form, &[]),
            instrument(&plugin, form, &[]),
        );
        for options in [
            &["--mode", "full"][..],
            &["--mode", "ring"],
            &["--mode", "burst", "--rate", "10000"],
        ] {
            if form == "ring" && options.contains(&"burst") {
                continue;
            }
            for _ in 0..if tools::full_matrix() { 20 } else { 4 } {
                let mut command = record_command(
                    &[options, &["--force"]].concat(),
                    &dir.path().join("trace"),
                    &program,
                    &[plugin.to_str().unwrap()],
                );
                let got = tools::run_limited(&mut command, LIMIT);
                wrong.extend(
                    got.and_then(|got| {
                        same_result(&format!("{form} {options:?}"), &expected, &got)
                    })
                    .err()
                    .map(|why| format!("{why:#}")),
                );
            }
        }
    }
    tools::no_failures(&wrong);
}

/// A library that is needed by its path is not replaced through a search path. It is left
/// unchanged, and a message reports that.
#[test]
fn needed_by_its_path() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let gcc = |arguments: &[&str], out: &Path, source: &str| {
        programs::compile_text(source, out, &[&["-O1"], arguments].concat());
    };
    const LIBRARY: &str = "long t[64]; long f(long n) { long s = 0; for (long i = 0; i < n; i++) s += t[i & 63]; return s; }";
    gcc(&["-shared", "-fPIC"], &at("libpath.so"), LIBRARY);
    gcc(
        &["-shared", "-fPIC", "-Wl,-soname,libname.so"],
        &at("libname.so"),
        &LIBRARY.replace(" f(", " g("),
    );
    let program = at("program");
    let (path, name) = (at("libpath.so"), at("libname.so"));
    let search = format!("-Wl,-rpath,{}", dir.path().display());
    gcc(
        &[path.to_str().unwrap(), name.to_str().unwrap(), &search],
        &program,
        "#include <stdio.h>\nlong f(long), g(long); int main(void) { printf(\"%ld\\n\", f(1000) + g(1000)); return 4; }",
    );
    forms::all_same(&program, &[], Some(""), |form, report| {
        let libraries = &report["libraries"];
        let declined = libraries["declined"][path.to_str().unwrap()].as_str();
        assert!(
            declined.is_some_and(|why| why.contains("needed by its path")),
            "{form}: {libraries}"
        );
        let taken = libraries["instrumented"].as_array().unwrap();
        assert_eq!(taken.len(), 1, "{form}: {libraries}");
    });
}

/// A library that another library opens by its name and finds through its own search path. The
/// recorder names it by its path, and `--libs` takes that path. `--libs` also takes in the library
/// that opens it, since that one would otherwise find the original.
#[test]
fn opened_through_the_search_path_of_its_caller() {
    const OPENED: &str = "static long t[4096]; long opened(long n) { long s = 0; for (long k = 0; k < n; k++) for (long i = 0; i < 4096; i++) s += t[(i * 7 + s) & 4095] + i; return s; }";
    const CALLER: &str = "#include <dlfcn.h>\nlong caller(long n) { void *h = dlopen(\"libopened.so.1\", RTLD_NOW); return h ? ((long (*)(long))dlsym(h, \"opened\"))(n) : -1; }";
    const MAIN: &str = "#include <stdio.h>\n#include <stdlib.h>\nlong caller(long); int main(int c, char **v) { printf(\"%ld\\n\", caller(atol(v[1]))); return 4; }";
    for tags in ["-Wl,--enable-new-dtags", "-Wl,--disable-new-dtags"] {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for folder in ["callers", "others"] {
            std::fs::create_dir(at(folder)).unwrap();
        }
        let gcc = |arguments: &[&str], out: &Path, source: &str| {
            programs::compile_text(source, out, &[&["-O1"], arguments].concat());
        };
        // Its file name differs from the requested name.
        let opened = at("others/libopened.so.1.2.3");
        gcc(&["-shared", "-fPIC"], &opened, OPENED);
        std::os::unix::fs::symlink("libopened.so.1.2.3", at("others/libopened.so.1")).unwrap();
        let search = [tags, "-Wl,-rpath,$ORIGIN/../others"];
        let caller = at("callers/libcaller.so");
        let shared = ["-shared", "-fPIC", "-Wl,-soname,libcaller.so"];
        gcc(&[&shared[..], &search].concat(), &caller, CALLER);
        let program = at("program");
        let link = [caller.to_str().unwrap(), tags, "-Wl,-rpath,$ORIGIN/callers"];
        gcc(&link, &program, MAIN);

        let record = |recorded: &Path, mode: &[&str], rounds: &str| {
            let expected = tools::run_limited(Command::new(&program).arg(rounds), LIMIT).unwrap();
            assert_eq!(tools::code(&expected), 4);
            let options = [mode, &["--force"]].concat();
            let mut command = record_command(&options, &at("trace"), recorded, &[rounds]);
            let got = tools::run_limited(&mut command, LIMIT).unwrap();
            same_result(&format!("{tags} {mode:?}"), &expected, &got).unwrap();
            String::from_utf8_lossy(&got.stderr).into_owned()
        };
        let alone = instrument(&program, "ring", &[]);
        let said = record(&alone, &["--mode", "ring"], "200000");
        let real = std::fs::canonicalize(&opened).unwrap();
        let option = format!("--libs={}", real.display());
        assert!(said.contains(&format!("`{option}`")), "{tags}: {said}");
        for (form, mode) in [
            ("ring", &["--mode", "ring"][..]),
            ("burst", &["--mode", "burst"]),
        ] {
            for libs in [&option, "--libs=libopened.so.1"] {
                let out = instrument(&program, form, &[libs]);
                record(&out, mode, "20000");
                let manifest = std::fs::read(at("trace/manifest.json")).unwrap();
                let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
                let modules = manifest["modules"].as_array().unwrap();
                let is_there = modules.iter().any(|m| {
                    let path = m["path"].as_str().unwrap_or("");
                    path.contains(".libs/libopened.so")
                });
                assert!(is_there, "{tags} {form} {libs}: {modules:?}");
            }
        }
    }
}
