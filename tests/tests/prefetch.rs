//! `mgz-instrument --prefetch`: the new file runs by itself, gives the same output, contains the
//! prefetches listed in the report, and never reads addresses that the program does not read.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use mgz_tests::programs::{self, Variant};
use mgz_tests::session;
use mgz_tests::tools::{self, LIMIT};
use object::{Object, ObjectSection, ObjectSymbol};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

fn variants() -> Vec<Variant> {
    let mut all = Vec::new();
    for clang in [false, true] {
        for (n, opt) in ["1", "2", "3"].into_iter().enumerate() {
            all.push(Variant {
                clang,
                opt,
                pie: (n % 2 == 0) != clang,
            });
        }
    }
    all
}

/// Inserts prefetches into a program.
fn fix(program: &Path, plan: &str) -> (PathBuf, Value) {
    let out = program.with_extension("fixed");
    let mut command = tools::tool("mgz-instrument");
    command
        .args(["--prefetch", plan, "--format", "json", "-o"])
        .arg(&out)
        .arg(program);
    let done = tools::succeed(&mut command, LIMIT).unwrap();
    (out, serde_json::from_slice(&done.stdout).unwrap())
}

/// Writes a plan with these loads.
fn plan(dir: &Path, loads: &[(u64, &str, u32)], build_id: Option<&str>) -> String {
    let loads: Vec<Value> = loads
        .iter()
        .map(|(address, kind, distance)| {
            json!({"address": format!("{address:#x}"), "kind": kind, "distance": distance})
        })
        .collect();
    let mut plan = json!({"version": 1, "loads": loads});
    if let Some(id) = build_id {
        plan["build_id"] = id.into();
    }
    let path = dir.join("plan.json");
    std::fs::write(&path, plan.to_string()).unwrap();
    path.display().to_string()
}

/// The instructions of a function.
fn code(program: &Path, function: &str) -> Vec<Instruction> {
    let bytes = std::fs::read(program).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let symbol = file
        .symbols()
        .find(|s| s.name() == Ok(function))
        .unwrap_or_else(|| panic!("no symbol {function}"));
    let section = file
        .sections()
        .find(|s| (s.address()..s.address() + s.size()).contains(&symbol.address()))
        .unwrap();
    let data = section
        .data_range(symbol.address(), symbol.size())
        .unwrap()
        .unwrap();
    let decoder = Decoder::with_ip(64, data, symbol.address(), DecoderOptions::NONE);
    decoder.into_iter().collect()
}

fn prefetches(program: &Path, function: &str) -> usize {
    let is_prefetch = |i: &&Instruction| i.mnemonic() == Mnemonic::Prefetcht0;
    code(program, &format!("{function}.mgz"))
        .iter()
        .filter(is_prefetch)
        .count()
}

/// Addresses of the loads of a function that read neither the frame nor fixed addresses.
fn loads(program: &Path, function: &str) -> Vec<u64> {
    let reads = |i: &&Instruction| {
        let memory = (0..i.op_count()).any(|n| i.op_kind(n) == OpKind::Memory);
        let written = i.op0_kind() == OpKind::Memory
            && !matches!(i.mnemonic(), Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Add);
        memory
            && !written
            && i.flow_control() == FlowControl::Next
            && !matches!(i.mnemonic(), Mnemonic::Lea | Mnemonic::Nop)
            && !matches!(i.memory_base(), Register::RSP | Register::RIP)
    };
    let all = code(program, function);
    all.iter().filter(reads).map(Instruction::ip).collect()
}

fn rows<'a>(report: &'a Value, list: &str, function: &str) -> Vec<&'a Value> {
    let all = report[list].as_array().unwrap();
    all.iter().filter(|r| r["function"] == function).collect()
}

fn same(original: &Path, fixed: &Path, what: &str) {
    let expected = tools::run_limited(&mut Command::new(original), LIMIT).unwrap();
    let got = tools::run_limited(&mut Command::new(fixed), LIMIT).unwrap();
    session::same_result(what, &expected, &got).unwrap();
    assert!(expected.status.success(), "{what}");
}

#[test]
fn loops_run_the_same_with_prefetches_wherever_one_can_be() {
    for variant in variants() {
        let dir = tempfile::tempdir().unwrap();
        let Some(program) = programs::build("prefetches", variant, &[], dir.path()).unwrap() else {
            continue;
        };
        let (fixed, report) = fix(&program, "all");
        same(&program, &fixed, &format!("{variant}"));
        // The tails of unrolled loops and vector code differ; each function has at least one.
        for (function, kind) in [
            ("gather_shorts", "gather"),
            ("gather_ints", "gather"),
            ("gather_longs", "gather"),
            ("gather_backward", "gather"),
            ("gather_records", "gather"),
            ("histogram", "gather"),
            ("probe", "gather"),
            ("computed", "gather"),
            ("streams", "gather"),
            ("clamped", "gather"),
            ("queued", "gather"),
            ("rows", "strided"),
            ("column", "strided"),
        ] {
            let placed = rows(&report, "placed", function);
            assert!(
                placed.iter().any(|r| r["kind"] == kind),
                "{variant} {function}: {placed:?}"
            );
            assert!(prefetches(&fixed, function) > 0, "{variant} {function}");
        }
        assert!(rows(&report, "placed", "search").is_empty(), "{variant}");
        assert!(!fixed.with_extension("fixed.mgza").exists());
    }
}

#[test]
fn each_load_of_a_plan_is_placed_or_refused() {
    for variant in variants() {
        let dir = tempfile::tempdir().unwrap();
        let Some(program) = programs::build("prefetches", variant, &[], dir.path()).unwrap() else {
            continue;
        };
        let functions = ["gather_ints", "list", "search", "column"];
        let mut named: Vec<(u64, &str, u32)> = Vec::new();
        for function in functions {
            named.extend(loads(&program, function).iter().map(|&at| (at, "auto", 8)));
        }
        named.push((1, "gather", 4));
        let (fixed, report) = fix(&program, &plan(dir.path(), &named, None));
        same(&program, &fixed, &format!("{variant}"));
        let count = |list: &str| report[list].as_array().unwrap().len();
        assert_eq!(count("placed") + count("refused"), named.len(), "{variant}");
        let list = rows(&report, "placed", "list");
        assert!(
            list.iter()
                .any(|r| r["kind"] == "list" && r["distance"] == 1),
            "{variant} {report:#}"
        );
        let gather = rows(&report, "placed", "gather_ints");
        assert!(gather.iter().any(|r| r["kind"] == "gather"), "{variant}");
        assert!(gather.iter().all(|r| r["distance"] == 8), "{variant}");
        let search = rows(&report, "refused", "search");
        assert!(rows(&report, "placed", "search").is_empty(), "{variant}");
        let carried = |r: &&Value| {
            r["reason"]
                .as_str()
                .unwrap()
                .contains("from the one before")
        };
        assert!(search.iter().any(carried), "{variant} {search:?}");
        let nowhere = &rows(&report, "refused", "")[0]["reason"];
        assert_eq!(nowhere, "the address is in no function of this file");
        // Functions without a load of the plan have no clone.
        let bytes = std::fs::read(&fixed).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let clones = file
            .symbols()
            .filter_map(|s| s.name().ok()?.strip_suffix(".mgz"));
        for clone in clones {
            assert!(functions.contains(&clone), "{variant} {clone}");
        }
    }
}

#[test]
fn plans_for_other_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let variant = Variant::O2;
    let id = ["-Wl,--build-id=0x0123456789abcdef"];
    let Some(program) = programs::build("prefetches", variant, &id, dir.path()).unwrap() else {
        return;
    };
    let at = loads(&program, "gather_ints");
    let attempt = |content: &str| {
        let path = dir.path().join("other.json");
        std::fs::write(&path, content).unwrap();
        let mut command = tools::tool("mgz-instrument");
        command.arg("--prefetch").arg(&path).arg(&program);
        let done = tools::run_limited(&mut command, LIMIT).unwrap();
        (
            tools::code(&done),
            String::from_utf8_lossy(&done.stderr).into_owned(),
        )
    };
    let named = [(at[0], "auto", 16)];
    let right = plan(dir.path(), &named, Some("0123456789ABCDEF"));
    let (_, report) = fix(&program, &right);
    assert_eq!(report["placed"].as_array().unwrap().len(), 1);
    let wrong = std::fs::read_to_string(plan(dir.path(), &named, Some("ff"))).unwrap();
    let (status, why) = attempt(&wrong);
    assert!(
        status == 1 && why.contains("another build") && why.contains("0123456789abcdef"),
        "{status} {why}"
    );
    for (content, expected) in [
        ("{", "no plan of prefetches"),
        ("{\"version\": 2, \"loads\": []}", "version 2"),
        (
            "{\"version\": 1, \"loads\": [{\"address\": \"12\"}]}",
            "no address",
        ),
        (
            "{\"version\": 1, \"loads\": [{\"address\": \"0x12\", \"distance\": 0}]}",
            "is 0",
        ),
    ] {
        let (status, why) = attempt(content);
        assert!(status == 2 && why.contains(expected), "{status} {why}");
    }
}

#[test]
fn exceptions_pass_through_loops_with_prefetches() {
    for variant in variants() {
        let dir = tempfile::tempdir().unwrap();
        let built = programs::build("prefetched_throws", variant, &[], dir.path()).unwrap();
        let Some(program) = built else { continue };
        let (fixed, report) = fix(&program, "all");
        same(&program, &fixed, &format!("{variant}"));
        let placed = report["placed"].as_array().unwrap();
        for loop_of in ["gather(", "plain("] {
            let is_there = |r: &Value| {
                let name = r["function"].as_str().unwrap();
                // (A call may receive flags, so they are free only where the loop changes them
                // first.)
                let kind = variant.clang && loop_of == "gather(" || r["kind"] == "gather";
                name.starts_with(loop_of) && kind
            };
            assert!(
                placed.iter().any(is_there),
                "{variant} {loop_of} {report:#}"
            );
        }
    }
}

#[test]
fn handlers_walk_the_stack_from_loops_with_prefetches() {
    for variant in variants() {
        let dir = tempfile::tempdir().unwrap();
        let built = programs::build("prefetched_signals", variant, &[], dir.path()).unwrap();
        let Some(program) = built else { continue };
        let (fixed, report) = fix(&program, "all");
        same(&program, &fixed, &format!("{variant}"));
        let is_there = |r: &Value| {
            let name = r["function"].as_str().unwrap();
            name.starts_with("gather") && r["kind"] == "gather"
        };
        let placed = report["placed"].as_array().unwrap();
        assert!(placed.iter().any(is_there), "{variant} {report:#}");
    }
}

/// System programs, their arguments, and their input.
fn system_work() -> Vec<(&'static str, Vec<Vec<&'static str>>)> {
    vec![
        ("/usr/bin/gzip", vec![vec!["-9c"], vec!["-1c"]]),
        ("/usr/bin/bzip2", vec![vec!["-c"]]),
        ("/usr/bin/xz", vec![vec!["-3", "-c"]]),
        ("/usr/bin/sort", vec![vec!["-k2"], vec!["-n"]]),
        ("/usr/bin/sha256sum", vec![vec![]]),
        ("/usr/bin/od", vec![vec!["-x"]]),
        ("/usr/bin/base64", vec![vec![]]),
        ("/usr/bin/wc", vec![vec![]]),
        (
            "/usr/bin/sed",
            vec![vec!["-E", "s/([a-z]+) ([a-z]+)/\\2 \\1/g"]],
        ),
        ("/usr/bin/grep", vec![vec!["-aE", "[a-z]+9"]]),
        (
            "/usr/bin/perl",
            vec![vec![
                "-e",
                "my %h; $h{$_*7919%10007}++ for 1..20000; print map {qq($_:$h{$_})} sort keys %h",
            ]],
        ),
        (
            "/usr/bin/sqlite3",
            vec![vec![
                ":memory:",
                "create table t(a,b); with recursive c(x) as (select 1 union all select x+1 from c where x<3000) insert into t select x, x*7919%1009 from c; create index i on t(b); select b,count(*),sum(a) from t group by b order by 3 desc limit 20;",
            ]],
        ),
    ]
}

#[test]
fn programs_of_the_system_run_the_same_with_prefetches_wherever_one_can_be() {
    let input = mgz_tests::inputs::mixed_data(200_000, 3);
    let mut placed = 0;
    for (program, works) in system_work() {
        if !Path::new(program).exists() {
            tools::skip(&format!("{program} is not installed"));
            continue;
        }
        let dir = tempfile::tempdir().unwrap();
        let copy = dir.path().join("program");
        std::fs::copy(program, &copy).unwrap();
        let (fixed, report) = fix(&copy, "all");
        placed += report["placed"].as_array().unwrap().len();
        for args in works {
            let run = |file: &Path| {
                let mut command = Command::new(file);
                command.args(&args).env("LC_ALL", "C");
                command.env("PERL_HASH_SEED", "0");
                tools::run_with(&mut command, Some(&input), LIMIT).unwrap()
            };
            let (expected, got) = (run(&copy), run(&fixed));
            session::same_result(&format!("{program} {args:?}"), &expected, &got).unwrap();
        }
    }
    assert!(placed > 500, "{placed}");
}
