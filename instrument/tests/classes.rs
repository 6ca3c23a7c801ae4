//! The hand-checked class table: files under `classes/` whose comments give the classes of the
//! loads in a line.
//!
//! Without optimisation, the loads of a marked line that are not Constant must be exactly those
//! listed. With optimisation, they must be some of those (an optimiser may keep values in
//! registers, but must not change classes). Classes in parentheses may appear only with
//! optimisation (a first iteration before the loop).

use addr2line::Loader;
use mgz_abi::module_note::FLAVOUR_SOFT;
use mgz_annotations_schema::sidecar::{CLASS_CONSTANT, CLASS_STRIDED, SiteFlags};
use mgz_elf::Elf;
use mgz_instrument::discover::scan::discover;
use mgz_instrument::ir::FunctionId;
use mgz_instrument::pipeline::analysis_input::analysis_input;
use mgz_instrument::pipeline::function_pass::analyze;
use mgz_instrument::program::InstrumentOptions;
use mgz_instrument::program::fixed_memory::FaultPolicy;
use mgz_instrument::unwind::Tables;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Classes by source line.
type ByLine = BTreeMap<u32, BTreeSet<String>>;

/// Expectation that one source line states.
struct Expected {
    line: u32,
    /// True if it holds without optimisation.
    plain: bool,
    /// True if it holds with optimisation.
    optimised: bool,
    classes: BTreeSet<String>,
    /// Classes that may appear with optimisation.
    optional: BTreeSet<String>,
}

fn expected(source: &str) -> Vec<Expected> {
    let mut all = Vec::new();
    for (i, line) in source.lines().enumerate() {
        let Some(at) = line.find("/*=") else { continue };
        let text = line[at + 3..].split("*/").next().unwrap();
        let (plain, optimised, text) = match text.split_at(1) {
            ("0", text) => (true, false, text),
            ("2", text) => (false, true, text),
            _ => (true, true, text),
        };
        let (always, optional) = text.split_once('(').unwrap_or((text, ""));
        let list = |t: &str| -> BTreeSet<String> {
            t.trim_end_matches([' ', ')'])
                .split(',')
                .map(|c| c.trim().to_string())
                .filter(|c| c != "constant" && !c.is_empty())
                .collect()
        };
        all.push(Expected {
            line: i as u32 + 1,
            plain,
            optimised,
            classes: list(always),
            optional: list(optional),
        });
    }
    all
}

fn classes(binary: &Path, file: &str) -> ByLine {
    let data = std::fs::read(binary).unwrap();
    let elf = Elf::parse(&data).unwrap();
    let tables = Tables::read(&elf).unwrap();
    let input = analysis_input(&elf, &tables);
    let options = InstrumentOptions::new(FLAVOUR_SOFT);
    let program = discover(&input, &options);
    let lines = Loader::new(binary).unwrap();
    let mut found = ByLine::new();
    for f in &program.functions {
        let Ok(function) = analyze(
            &input,
            &program,
            FunctionId(f.id.0),
            &options,
            &FaultPolicy::default(),
        ) else {
            continue;
        };
        for site in function.plan.regions.iter().flat_map(|r| &r.sites) {
            let location = lines.find_location(function.insn(site.insn).ip).unwrap();
            let Some(location) = location.filter(|l| l.file.is_some_and(|f| f.ends_with(file)))
            else {
                continue;
            };
            let text = match site.class {
                CLASS_CONSTANT => continue,
                CLASS_STRIDED if site.flags & SiteFlags::STRIDE_KNOWN != 0 => {
                    format!("strided {}", site.stride)
                }
                CLASS_STRIDED => "strided ?".to_string(),
                _ => "irregular".to_string(),
            };
            found
                .entry(location.line.unwrap_or(0))
                .or_default()
                .insert(text);
        }
    }
    found
}

/// A compiler, its options, and true if it optimises.
type Build = (&'static str, &'static [&'static str], bool);

const COMMON: [&str; 4] = ["-g", "-fno-inline", "-fno-builtin", "-w"];
const C: [Build; 7] = [
    ("gcc", &["-O0"], false),
    ("gcc", &["-O0", "-no-pie", "-fno-pie"], false),
    ("clang", &["-O0"], false),
    ("gcc", &["-O1"], true),
    (
        "gcc",
        &["-O2", "-fno-tree-vectorize", "-fno-ipa-icf", "-fno-ipa-cp"],
        true,
    ),
    (
        "clang",
        &[
            "-O2",
            "-fno-vectorize",
            "-fno-slp-vectorize",
            "-fno-unroll-loops",
        ],
        true,
    ),
    (
        "clang",
        &[
            "-O1",
            "-fno-unroll-loops",
            "-fno-vectorize",
            "-fno-slp-vectorize",
            "-fPIC",
        ],
        true,
    ),
];
/// Builds in which repeated loads remain at any optimisation level.
const RELOADS: [Build; 2] = [
    (
        "gcc",
        &[
            "-O3",
            "-fno-tree-vectorize",
            "-fno-ipa-icf",
            "-fno-ipa-cp",
            "-fno-unswitch-loops",
        ],
        true,
    ),
    (
        "clang",
        &[
            "-O3",
            "-fno-vectorize",
            "-fno-slp-vectorize",
            "-fno-unroll-loops",
        ],
        true,
    ),
];
/// (Operators are inlined with optimisation.)
const CXX: [Build; 6] = [
    ("g++", &["-O0", "-g", "-w"], false),
    ("clang++", &["-O0", "-g", "-w"], false),
    ("g++", &["-O2", "-g", "-w", "-fno-tree-vectorize"], true),
    ("g++", &["-O3", "-g", "-w", "-fno-tree-vectorize"], true),
    (
        "clang++",
        &[
            "-O2",
            "-g",
            "-w",
            "-fno-vectorize",
            "-fno-slp-vectorize",
            "-fno-unroll-loops",
        ],
        true,
    ),
    (
        "clang++",
        &[
            "-O3",
            "-g",
            "-w",
            "-fno-vectorize",
            "-fno-slp-vectorize",
            "-fno-unroll-loops",
        ],
        true,
    ),
];
const RUST: [Build; 3] = [
    ("rustc", &["-g", "-Coverflow-checks=off"], false),
    (
        "rustc",
        &[
            "-g",
            "-Copt-level=2",
            "-Cno-vectorize-loops",
            "-Cno-vectorize-slp",
            "-Cllvm-args=-unroll-count=1",
        ],
        true,
    ),
    (
        "rustc",
        &[
            "-g",
            "-Copt-level=3",
            "-Cno-vectorize-loops",
            "-Cno-vectorize-slp",
            "-Cllvm-args=-unroll-count=1",
        ],
        true,
    ),
];

fn check(file: &str, common: &[&str], builds: &[Build]) {
    let source_path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/classes")
        .join(file);
    let source = std::fs::read_to_string(&source_path).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let table = expected(&source);
    assert!(table.len() >= 8, "the table is there");
    let mut wrong = String::new();
    for (n, &(compiler, flags, optimised)) in builds.iter().enumerate() {
        let binary = folder.path().join(format!("t{n}"));
        let status = Command::new(compiler)
            .args(common)
            .args(flags)
            .arg("-o")
            .arg(&binary)
            .arg(&source_path)
            .status();
        assert!(
            status.expect("a compiler").success(),
            "{compiler} {flags:?}"
        );
        let found = classes(&binary, file);
        let none = BTreeSet::new();
        for expected in &table {
            let Expected {
                line,
                classes,
                optional,
                ..
            } = expected;
            let got = found.get(line).unwrap_or(&none);
            let good = if optimised {
                let stray = got
                    .iter()
                    .any(|c| !classes.contains(c) && !optional.contains(c));
                // Moving addresses must be found, whatever else is in the line.
                let moves = |set: &BTreeSet<String>| {
                    set.iter().filter(|c| c.starts_with("strided")).count()
                };
                !expected.optimised
                    || !stray
                        && (classes.is_empty() || !got.is_empty())
                        && (!optional.is_empty() || moves(got) > 0 || moves(classes) == 0)
            } else {
                !expected.plain || got == classes
            };
            if !good {
                wrong += &format!(
                    "{compiler} {flags:?} {file}:{line}: expected {classes:?}, found {got:?}\n"
                );
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn arrays() {
    check("arrays.c", &COMMON, &C);
}

#[test]
fn scalars() {
    check("scalars.c", &COMMON, &C);
}

#[test]
fn reloads() {
    check("reloads.c", &COMMON, &[&C[..], &RELOADS].concat());
}

#[test]
fn containers() {
    check("containers.cpp", &[], &CXX);
}

#[test]
fn slices() {
    check("slices.rs", &[], &RUST);
}
