//! The trace contains every load that instrumented functions execute, in order, with its address.
//!
//! Each program is compiled by gcc and clang at several levels, with and without PIE
//! (`MGZ_TESTS=full`: all twelve variants; otherwise a selection that differs from program to
//! program). `mgz_tests::compare` describes the comparison.

use mgz_annotations_schema::sidecar::Function;
use mgz_tests::programs::{self, Variant};
use mgz_tests::rows::{self, RecordedRow};
use mgz_tests::session::{self, SessionOptions};
use mgz_tests::tools;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

fn check(name: &str, args: &[&str], options: SessionOptions) {
    let mut failures = Vec::new();
    let mut variants = programs::variants(name);
    if ["f90", "rs"]
        .iter()
        .any(|e| programs::source(name).extension().is_some_and(|x| x == *e))
    {
        variants.retain(|v| !v.clang);
        if variants.is_empty() {
            variants.push(Variant::O2);
        }
    }
    let only = std::env::var("MGZ_VARIANT").ok();
    for variant in variants {
        if only.as_ref().is_some_and(|o| *o != variant.to_string()) {
            continue;
        }
        let dir = tempfile::tempdir().unwrap();
        let built = match programs::build(name, variant, &[], dir.path()) {
            Ok(Some(path)) => path,
            Ok(None) => continue,
            Err(error) => panic!("{error:#}"),
        };
        let mut outcome = |flavour: &str, result: anyhow::Result<mgz_tests::compare::Summary>| {
            match result {
                Ok(s) => println!(
                    "{name} {variant} {flavour}: {} loads = {} rows + {} implied + {} not recorded + {} lost",
                    s.loads, s.rows, s.implied, s.unrecorded, s.lost
                ),
                Err(error) => failures.push(format!("{name} {variant} {flavour}: {error:#}")),
            }
        };
        outcome(
            "soft",
            session::soft_addresses(dir.path(), &built, args, options).map(|(s, _)| s),
        );
        if !options.soft_only {
            outcome(
                "pt",
                session::pt_addresses(dir.path(), &built, args, options),
            );
        }
        if std::env::var_os("MGZ_KEEP").is_some() {
            println!("kept in {}", dir.keep().display());
        }
    }
    tools::no_failures(&failures);
}

macro_rules! programs {
    ($($name:ident)*) => { $( #[test] fn $name() { check(stringify!($name), &[], SessionOptions::default()); } )* };
}

programs! {
    loops chase hash recurse switches throws threads simd gathers strings jumps signals stack calls bignum x87 bits forms
    arrays retries
}

/// Retried and abandoned loads. Where a handler changes the registers, the thread continues in the
/// original code up to the next call. Another test covers the result of that case. The same applies
/// to the PT flavour, where this happens after each fault. Functions that begin with an instruction
/// that may fault have no jump into the clone.
#[test]
fn faults() {
    check(
        "faults",
        &["keep-registers"],
        SessionOptions {
            lossy: true,
            soft_only: true,
            ..SessionOptions::default()
        },
    );
}

/// Excludes the jump tables that mgz does not understand and whose cases therefore run in original
/// code: unsigned distances from a base other than the table, distances of one or two bytes, and
/// subtracted distances.
#[test]
fn tables() {
    check(
        "tables",
        &[],
        SessionOptions {
            instrument: &[
                "--exclude",
                "^(image_base|image_masked|bytes|words|backwards)$",
            ],
            ..SessionOptions::default()
        },
    );
}

/// The targets of a computed goto and functions of three bytes that are called through pointers may
/// have no room for a jump into the clone.
#[test]
fn code_that_cannot_be_patched() {
    for name in ["goto", "objects"] {
        check(
            name,
            &[],
            SessionOptions {
                lossy: true,
                ..SessionOptions::default()
            },
        );
    }
}

/// The standard library's unwinder is part of the executable and reads the clone's unwind tables,
/// whereas the original's reads the original tables, so only the program's own functions can be
/// compared.
#[test]
fn panics() {
    check(
        "panics",
        &[],
        SessionOptions {
            instrument: &["--functions", "panics"],
            ..SessionOptions::default()
        },
    );
}

/// A handler that interrupts a probe between the stores of one record used to overwrite the part
/// already written.
#[test]
fn records_that_handlers_interrupt_are_whole() {
    let dir = tempfile::tempdir().unwrap();
    for variant in programs::variants("ticking") {
        let Some(original) = programs::build("ticking", variant, &["-g"], dir.path()).unwrap()
        else {
            continue;
        };
        for form in ["ring", "burst"] {
            let app = session::instrument(&original, "soft", &["--for", form]).unwrap();
            let function = |name: &str| {
                let mut functions = app.sidecar.functions.iter();
                let function = functions.find(|f| app.sidecar.string(f.name) == name);
                function.expect("the function has a symbol")
            };
            let loads = |name: &str, args: &[&str]| {
                let trace = dir.path().join(format!("{name}-{variant}-{form}"));
                let expected = tools::succeed(Command::new(&original).args(args), LIMIT).unwrap();
                let got = tools::run_limited(
                    &mut session::record_command(
                        &["--mode", "full", "--no-aslr"],
                        &trace,
                        &app.path,
                        args,
                    ),
                    LIMIT,
                )
                .unwrap();
                session::same_result("ticking", &expected, &got).unwrap();
                let rows = rows::read_trace(&trace).unwrap();
                let of = |function: &Function| {
                    let inside = |r: &&RecordedRow| (function.start..function.end).contains(&r.ip);
                    let rows = rows.first_thread().iter().filter(inside);
                    rows.map(|r| (r.ip, r.address)).collect::<Vec<_>>()
                };
                (of(function("walked")), of(function("tick")).len())
            };
            let ((ticking, ticks), (plain, none)) =
                (loads("ticking", &["s"]), loads("plain", &["p"]));
            assert!(plain.len() > 300_000, "{} loads", plain.len());
            // The faster the machine, the fewer ticks come.
            assert!(
                ticks > 50 && none == 0,
                "{ticks} and {none} loads of the handler"
            );
            let differing = ticking.iter().zip(&plain).filter(|(a, b)| a != b).count();
            assert!(
                ticking.len() == plain.len() && differing == 0,
                "{variant} {form}: {} loads instead of {}, {differing} others",
                ticking.len(),
                plain.len()
            );
        }
    }
}
