//! Programs that read their own code as data. They find the original's bytes in every form that can
//! run; the other forms are declined or refused.

use mgz_tests::forms::{self, FormOutcome};
use mgz_tests::programs::{self, Variant};
use mgz_tests::tools::{self, LIMIT};
use std::path::{Path, PathBuf};

const PLAIN: Variant = Variant::O2;
const FIXED: Variant = Variant::CLANG_FIXED;
const OTHER: Variant = Variant {
    clang: true,
    opt: "2",
    pie: false,
};
const PLAINEST: Variant = Variant {
    clang: false,
    opt: "0",
    pie: true,
};
const PLAINER: Variant = Variant::O1;
const VARIANTS: [Variant; 4] = [PLAIN, FIXED, OTHER, PLAINEST];

/// Builds one of the variants of `readers.c`.
fn build(way: &str, variant: Variant, extra: &[&str], dir: &Path) -> Option<PathBuf> {
    build_of("readers", way, variant, extra, dir)
}

fn build_of(
    name: &str,
    way: &str,
    variant: Variant,
    extra: &[&str],
    dir: &Path,
) -> Option<PathBuf> {
    let define = format!("-DWAY={way}");
    programs::build(name, variant, &[&[&*define], extra].concat(), dir).unwrap()
}

/// The program reads most of its code. Forms that change code are declined or refused, with the
/// remedy, and `burst` behaves like the original.
fn served_by_burst_alone(way: &str) {
    for variant in VARIANTS {
        only_burst(("readers", way), variant, true, "reads_code");
    }
}

fn only_burst((name, way): (&str, &str), variant: Variant, static_too: bool, field: &str) {
    let dir = tempfile::tempdir().unwrap();
    let build = |extra| build_of(name, way, variant, extra, dir.path());
    let Some(program) = build(&[]) else {
        return;
    };
    let outcomes = forms::run_all(&program, &[], None, |form, report| {
        assert!(!report[field].is_null(), "{way} {variant} {form}");
    });
    for (form, outcome) in outcomes.unwrap() {
        let fits = match (&*form, &outcome) {
            ("pt" | "soft", FormOutcome::Declined(why)) => {
                why.contains("its own code") && why.contains("--for burst")
            }
            ("burst full" | "burst ring", FormOutcome::Refused(why)) => {
                why.contains("--mode burst")
            }
            ("burst bare" | "burst burst", outcome) => *outcome == FormOutcome::Same,
            _ => false,
        };
        assert!(fits, "{way} {variant} {form}: {outcome:?}");
    }
    // The runtime also writes into a static executable in burst mode.
    if !static_too {
        return;
    }
    let Some(program) = build(&["-static"]) else {
        return;
    };
    for (form, outcome) in forms::run_all(&program, &[], None, |_, _| ()).unwrap() {
        assert!(
            matches!(&outcome, FormOutcome::Declined(why) if why.contains("link it dynamically")),
            "{way} {variant} -static {form}: {outcome:?}"
        );
    }
}

/// Only a part without entry jumps is read, so every form behaves like the original.
fn served_by_all(way: &str) {
    served_by_all_of(way, &VARIANTS, &[&[], &["-static"]]);
}

fn served_by_all_of(way: &str, variants: &[Variant], kinds: &[&[&str]]) {
    for &variant in variants {
        for &extra in kinds {
            let dir = tempfile::tempdir().unwrap();
            let Some(program) = build(way, variant, extra, dir.path()) else {
                return;
            };
            forms::all_same(&program, &[], None, |form, report| {
                assert!(
                    report.get("reads_code").is_none(),
                    "{way} {variant} {extra:?} {form}"
                );
                let functions = &report["functions"];
                assert!(
                    functions["instrumented"].as_u64() > Some(8),
                    "{way} {variant} {form}: {functions}"
                );
            });
        }
    }
}

#[test]
fn between_symbols_of_the_linker() {
    served_by_burst_alone("BOUNDS");
}

#[test]
fn by_a_function_that_is_given_the_bounds() {
    served_by_burst_alone("HELPER");
}

#[test]
fn between_bounds_in_a_table() {
    served_by_burst_alone("TABLE");
}

#[test]
fn by_the_segments_that_the_loader_tells() {
    served_by_burst_alone("SEGMENTS");
}

#[test]
fn by_the_program_headers_in_memory() {
    served_by_burst_alone("HEADERS");
}

#[test]
fn a_section() {
    served_by_all("SECTION");
}

#[test]
fn one_function() {
    served_by_all("FUNCTION");
}

#[test]
fn a_function_that_is_copied_and_run() {
    served_by_all("COPY");
}

#[test]
fn a_function_that_is_patched() {
    served_by_all("POKE");
}

#[test]
fn the_first_byte_of_functions() {
    served_by_all("BYTE");
}

#[test]
fn functions_of_a_table() {
    served_by_all("FUNCTIONS");
}

/// An object with a function's address may be filled by moves of 16 or 32 bytes.
fn served_with_vectors(way: &str) {
    served_by_all(way);
    if std::arch::is_x86_feature_detected!("avx2") {
        served_by_all_of(way, &[PLAIN, OTHER], &[&["-mavx2"]]);
    }
}

#[test]
fn a_function_with_a_hook() {
    served_with_vectors("HOOK");
}

#[test]
fn a_function_with_a_hook_that_others_have_seen() {
    served_with_vectors("SHOWN");
}

#[test]
fn a_function_that_is_patched_after_a_plain_system_call() {
    // (The pt backend declines static ones: any of its system calls may install a handler.)
    served_by_all_of("RAW", &VARIANTS, &[&[]]);
}

/// The code is neither written nor read as a range, so all functions have clones.
fn left_none(way: &str) {
    for variant in VARIANTS {
        let dir = tempfile::tempdir().unwrap();
        let Some(program) = build(way, variant, &[], dir.path()) else {
            return;
        };
        forms::all_same(&program, &[], None, |form, report| {
            let reasons = report["functions"].to_string();
            assert!(
                !reasons.contains("its bytes are written"),
                "{way} {variant} {form}: {reasons}"
            );
            assert!(report.get("reads_code").is_none(), "{way} {variant} {form}");
        });
    }
}

#[test]
fn functions_that_are_handed_on_to_be_called() {
    left_none("PASSED");
}

#[test]
fn a_word_that_is_a_function_or_a_buffer() {
    left_none("UNION");
}

#[test]
fn a_word_of_data_that_is_a_function_first() {
    left_none("LAZY");
}

#[test]
fn words_of_the_frame_that_held_functions_before() {
    left_none("REUSED");
}

#[test]
fn a_function_that_the_frame_holds() {
    served_by_all("HELD");
}

#[test]
fn behind_a_label_of_its_own() {
    served_by_all("LABEL");
}

/// Reads at addresses from a file cannot be traced; the report names the code where they may begin.
#[test]
fn who_opens_the_list_of_mappings_is_named() {
    for variant in VARIANTS {
        let dir = tempfile::tempdir().unwrap();
        let Some(program) = build("MAPS", variant, &[], dir.path()) else {
            return;
        };
        forms::all_same(&program, &[], None, |form, report| {
            assert!(report["opens_maps"].is_u64(), "{variant} {form}: {report}");
        });
        let said = tools::succeed(
            tools::tool("mgz-instrument")
                .args(["--backend", "soft", "-o"])
                .arg(dir.path().join("said"))
                .arg(&program),
            LIMIT,
        )
        .unwrap();
        let said = String::from_utf8(said.stdout).unwrap();
        assert!(said.contains("/proc/self/maps is opened at"), "{said}");
        let other = build("FUNCTION", variant, &[], dir.path()).unwrap();
        forms::all_same(&other, &[], None, |form, report| {
            assert!(report.get("opens_maps").is_none(), "{variant} {form}");
        });
    }
}

#[test]
fn own_memory_as_a_file() {
    for (way, variant) in [
        ("PATH", PLAIN),
        ("FORMAT", FIXED),
        ("FOLDER", OTHER),
        ("WRITE", PLAINEST),
    ] {
        only_burst(("own_memory", way), variant, way == "PATH", "opens_memory");
    }
}

#[test]
fn own_memory_by_system_calls() {
    for (way, variant) in [("CALL", PLAIN), ("CHILD", FIXED)] {
        only_burst(("own_memory", way), variant, false, "opens_memory");
    }
}

#[test]
fn shared_memory_in_the_place_of_code() {
    for variant in [PLAIN, FIXED] {
        let dir = tempfile::tempdir().unwrap();
        let Some(program) = build_of("own_memory", "ALIAS", variant, &[], dir.path()) else {
            return;
        };
        forms::all_same(&program, &[], None, |_, _| ());
    }
}

/// A program that reads all writable memory, or fills it and restores it, finds no data of the
/// runtime there.
#[test]
fn all_mappings() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = build_of("mappings", "0", PLAINER, &["-pthread"], dir.path()) else {
        return;
    };
    for arguments in ["f r m", "o w m", "a r t", "n w h", "i w m"] {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        forms::all_same(&program, &arguments, None, |_, _| ());
    }
}
