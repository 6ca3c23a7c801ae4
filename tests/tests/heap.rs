//! `mgz-record --heap` attributes loads to the allocation site of their block.
//!
//! The program prints the number of loads of each site's block. Sites are distinguished by
//! function, line and lifetime, even if two of them got the same address.

use mgz_tests::programs::{self, Variant};
use mgz_tests::session::{self, analysis_json, record_command, record_program, recorded_run};
use mgz_tests::tools::{self, LIMIT};
use object::{Object, ObjectSymbol};
use serde_json::Value;
use std::path::Path;

/// Number of loads of one walk, as in the program.
const WALK: f64 = 4096.0 * 300.0;

fn site<'a>(report: &'a Value, function: &str) -> &'a Value {
    let all = report["objects"].as_array().expect("objects");
    let of = |o: &&Value| {
        o["kind"] == "heap"
            && o["object"]
                .as_str()
                .is_some_and(|n| n.starts_with(function))
    };
    all.iter()
        .filter(of)
        .max_by(|a, b| {
            a["A"]
                .as_f64()
                .unwrap_or(0.0)
                .total_cmp(&b["A"].as_f64().unwrap_or(0.0))
        })
        .unwrap_or_else(|| panic!("no heap object of {function} in {all:#?}"))
}

/// Returns whether an object's innermost return address is in a function of the original file,
/// regardless of the name of the instrumented file.
fn returns_into(object: &Value, original: &Path, function: &str) -> bool {
    let bytes = std::fs::read(original).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let symbol = file.symbols().find(|s| s.name() == Ok(function)).unwrap();
    let stacks = object["return_addresses"].as_array().unwrap();
    let is_inside = |stack: &Value| {
        let innermost = stack.as_str()?.split(" < ").next()?;
        let (module, offset) = innermost.split_once("+0x")?;
        let call = u64::from_str_radix(offset, 16).ok()? - 1;
        let range = symbol.address()..symbol.address() + symbol.size();
        let name = original.file_name()?.to_str()?;
        Some(module == name && range.contains(&call))
    };
    !stacks.is_empty() && stacks.iter().all(|stack| is_inside(stack) == Some(true))
}

#[test]
fn blocks_are_counted_by_allocation_site_though_addresses_are_used_again() {
    for opt in ["0", "2"] {
        let dir = tempfile::tempdir().unwrap();
        let variant = Variant {
            clang: false,
            opt,
            pie: true,
        };
        let Some(original) = programs::build(
            "blocks",
            variant,
            &["-g", "-fno-inline", "-fno-optimize-sibling-calls"],
            dir.path(),
        )
        .unwrap() else {
            return;
        };
        let app = session::instrument(&original, "soft", &[]).unwrap().path;
        let trace = dir.path().join("trace");
        let output = record_program(&["--mode", "full", "--heap=all"], &trace, &app, &[]);
        let same = String::from_utf8_lossy(&output.stdout) == "same address\n";
        let report = analysis_json(&trace, &["--objects"]);
        assert!(
            same,
            "the allocator did not use the address again: the test says nothing"
        );
        for (function, walks) in [
            ("first_site", 2.0),
            ("second_site", 2.0),
            ("thread_site", 2.0),
            ("grown_site", 1.0),
        ] {
            let object = site(&report, function);
            assert_eq!(
                object["A"].as_f64(),
                Some(walks * WALK),
                "-O{opt} {function}"
            );
            assert!(
                object["object"].as_str().unwrap().contains("blocks.c:"),
                "{object}"
            );
            let stack: Vec<&str> = object["stack"]
                .as_array()
                .unwrap()
                .iter()
                .filter_map(Value::as_str)
                .collect();
            assert!(stack.iter().any(|s| s.starts_with(function)), "{stack:?}");
            assert!(returns_into(object, &original, function), "{object}");
            let outer = if function == "thread_site" {
                "thread_site"
            } else {
                "main"
            };
            assert!(
                stack.iter().any(|s| s.starts_with(outer)),
                "-O{opt} {function}: {stack:?}"
            );
        }
        assert_eq!(site(&report, "thread_site")["instances"], 2);
    }
}

/// Blocks of several sites use one address in turn, thousands of times in a chunk of the record
/// stream. The stream contains the events of blocks, so each load is attributed to the block that
/// existed at that time.
#[test]
fn loads_count_for_the_block_that_was_there_however_short_it_lived() {
    const TURNS: u64 = 20_000;
    let dir = tempfile::tempdir().unwrap();
    for (opt, threads, signals) in [("0", 1, None), ("2", 3, None), ("2", 1, Some("200"))] {
        let variant = Variant {
            clang: false,
            opt,
            pie: true,
        };
        let flags = ["-g", "-pthread", "-fno-optimize-sibling-calls"];
        let Some(original) = programs::build("reused", variant, &flags, dir.path()).unwrap() else {
            return;
        };
        let app = session::instrument(&original, "soft", &[]).unwrap().path;
        let trace = dir.path().join("trace");
        let others = (threads - 1).to_string();
        let options = ["--mode", "full", "--heap=all", "--force"];
        let mut command = record_command(&options, &trace, &app, &[&others]);
        let output = tools::succeed(command.args(signals), LIMIT).unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            said.starts_with("same 20000 "),
            "the allocator did not use the address again: {said}"
        );
        let report = analysis_json(&trace, &["--objects"]);
        // A handler that interrupts the allocator's wrapper at any point loses no record.
        let came = said
            .rsplit_once(' ')
            .and_then(|s| s.1.trim().parse::<u64>().ok());
        let all = report["objects"].as_array().unwrap();
        let table = all.iter().find(|o| o["object"] == "table");
        let read = table.and_then(|o| o["A"].as_u64()).unwrap_or(0);
        assert_eq!(Some(read), came.map(|n| 8 * n), "{said}: {table:?}");
        assert!(signals.is_none() || read > 0, "no signal came");
        // Eight words are read three times, five times and once. The grown block is that of `turns`.
        for (function, words) in [("first_site", 24), ("second_site", 40), ("turns", 8)] {
            // The first thread has different callers from the others.
            let sum = |column: &str| -> u64 {
                let of_site = all.iter().filter(|o| {
                    o["kind"] == "heap" && o["object"].as_str().unwrap_or("").starts_with(function)
                });
                of_site.filter_map(|o| o[column].as_u64()).sum()
            };
            assert_eq!(
                (sum("A"), sum("instances")),
                (words * TURNS * threads, TURNS * threads),
                "-O{opt} {threads} threads, {function}: {all:#?}"
            );
        }
    }
}

/// Without the option nothing is replaced; with it the program behaves the same.
#[test]
fn the_program_does_the_same_with_and_without_a_log() {
    let dir = tempfile::tempdir().unwrap();
    let variant = Variant::O2;
    for (name, heap) in [
        ("forks", "--heap=all"),
        ("objects", "--heap"),
        ("threads", "--heap=all"),
        ("forks", "--heap"),
        ("forks", "--heap=budget"),
        ("objects", "--heap=budget"),
        ("threads", "--heap=budget"),
    ] {
        let Ok(Some(original)) = programs::build(name, variant, &[], dir.path()) else {
            continue;
        };
        let app = session::instrument(&original, "soft", &[]).unwrap().path;
        let trace = dir.path().join(format!("{name}.trace"));
        let expected =
            tools::run_limited(&mut std::process::Command::new(&original), LIMIT).unwrap();
        let got = recorded_run(&["--mode", "ring", "--force", heap], &trace, &app, &[]);
        session::same_result(name, &expected, &got).unwrap();
    }
}

/// Compiles `pool.c` as a library and as the program that uses it.
fn pool(dir: &std::path::Path, flags: &[&str]) -> std::path::PathBuf {
    let source = programs::source("pool");
    let (library, program) = (dir.join("libpool.so"), dir.join("pool"));
    programs::compile(&source, &library, &["-O1", "-g", "-shared", "-fPIC"]);
    let mut compile = std::process::Command::new("gcc");
    compile
        .args(["-O1", "-g", "-DUSER", "-fno-inline", "-o"])
        .arg(&program)
        .args(flags)
        .arg(&source);
    if flags.is_empty() {
        compile
            .arg("-L")
            .arg(dir)
            .args(["-lpool", "-Wl,-rpath"])
            .arg(dir);
    }
    tools::succeed(&mut compile, LIMIT).unwrap();
    program
}

/// An allocator with its own function names, in a library, with sizes and blocks in different
/// arguments.
#[test]
fn blocks_of_an_allocator_that_the_user_names_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let app = session::instrument(&pool(dir.path(), &[]), "soft", &[])
        .unwrap()
        .path;
    let trace = dir.path().join("trace");
    let hooks = [
        "--mode",
        "full",
        "--heap=all",
        "--heap-hook",
        "alloc2=pool_get",
        "--heap-hook",
        "free2=pool_put",
        "--heap-hook",
        "calloc=pool_zero",
    ];
    let output = record_program(&hooks, &trace, &app, &[]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "same address 0\n");
    let report = analysis_json(&trace, &["--objects"]);
    for (function, walks) in [
        ("first_site", 1.0),
        ("second_site", 2.0),
        ("third_site", 2.0 / 3.0),
    ] {
        let object = site(&report, function);
        assert_eq!(object["A"].as_f64(), Some(walks * WALK), "{function}");
        assert_eq!(
            (&object["bytes"], &object["instances"]),
            (&Value::from(32768), &Value::from(1)),
            "{function}"
        );
    }
}

#[test]
fn what_cannot_be_logged_is_refused_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let source = programs::source("pool");
    // The allocator inside the program: both parts in one file.
    let whole = dir.path().join("whole");
    let library = dir.path().join("half.o");
    programs::compile(&source, &library, &["-O1", "-c"]);
    let user = ["-O1", "-DUSER", library.to_str().unwrap()];
    programs::compile(&source, &whole, &user);
    let app = session::instrument(&whole, "soft", &[]).unwrap().path;
    let trace = dir.path().join("trace");
    let refused = |options: &[&str], app: &std::path::Path, says: &[&str]| {
        let output = recorded_run(options, &trace, app, &[]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && says.iter().all(|s| text.contains(s)),
            "{text}"
        );
    };
    refused(
        &["--heap", "--heap-hook", "alloc2=pool_get"],
        &app,
        &["pool_get", "in itself", "shared library"],
    );
    refused(&["--heap", "--heap-hook", "pool_get"], &app, &["KIND=NAME"]);
    refused(&["--heap-hook", "alloc2=pool_get"], &app, &["--heap"]);
    let fixed = dir.path().join("static");
    if tools::run_limited(
        std::process::Command::new("gcc")
            .args(["-O1", "-static", "-DUSER", "-o"])
            .arg(&fixed)
            .arg(&source)
            .arg(&library),
        LIMIT,
    )
    .unwrap()
    .status
    .success()
    {
        let app = session::instrument(&fixed, "soft", &[]).unwrap().path;
        refused(&["--heap"], &app, &["static", "link it dynamically"]);
        // A budget is not a requirement.
        let output = recorded_run(&["--heap=budget"], &trace, &app, &[]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains("heap off (static program)"), "{text}");
    }
}

/// Each thread's stack is a separate object, named after the thread.
#[test]
fn stacks_are_told_apart_by_thread() {
    let dir = tempfile::tempdir().unwrap();
    let variant = Variant::O1;
    let Some(original) = programs::build("stacks", variant, &["-pthread"], dir.path()).unwrap()
    else {
        return;
    };
    let app = session::instrument(&original, "soft", &[]).unwrap().path;
    let trace = dir.path().join("trace");
    record_program(&["--mode", "full"], &trace, &app, &[]);
    let report = analysis_json(&trace, &["--objects"]);
    let manifest: Value =
        serde_json::from_slice(&std::fs::read(trace.join("manifest.json")).unwrap()).unwrap();
    let threads: Vec<u64> = manifest["threads"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|t| t["thread"].as_u64())
        .collect();
    let stacks: Vec<(&str, u64)> = report["objects"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|o| o["kind"] == "stack")
        .filter_map(|o| Some((o["object"].as_str()?, o["A"].as_u64()?)))
        .collect();
    // Each thread walks its own array.
    let walked = |name: &str| {
        stacks
            .iter()
            .filter(|s| s.0 == name && s.1 >= 2048 * 50 && s.1 < 2 * 2048 * 50)
            .count()
    };
    assert_eq!(walked("[stack]"), 1, "{stacks:?}");
    let named = threads
        .iter()
        .map(|t| walked(&format!("[stack of thread {t}]")))
        .sum::<usize>();
    assert_eq!(named, 2, "threads {threads:?}, stacks {stacks:?}");
}

/// Only a sample of small blocks is logged, and the interval of each estimate contains the truth.
#[test]
fn a_sample_of_small_blocks_tells_of_all() {
    let dir = tempfile::tempdir().unwrap();
    let variant = Variant::O2;
    let flags = [
        "-g",
        "-pthread",
        "-fno-inline",
        "-fno-optimize-sibling-calls",
    ];
    let Some(original) = programs::build("small", variant, &flags, dir.path()).unwrap() else {
        return;
    };
    let app = session::instrument(&original, "soft", &[]).unwrap().path;
    let expected = tools::run_limited(&mut std::process::Command::new(&original), LIMIT).unwrap();
    let trace = dir.path().join("trace");
    let got = recorded_run(&["--mode", "full", "--heap"], &trace, &app, &[]);
    session::same_result("small", &expected, &got).unwrap();
    let report = analysis_json(&trace, &["--objects"]);
    let loads: f64 = report["objects"]
        .as_array()
        .unwrap()
        .iter()
        .map(|o| o["A"].as_f64().unwrap_or(0.0))
        .sum();
    // Each walk loads twice from a block, and `other->value[0] += i` loads once from those of
    // `seldom_site`. A few hundred blocks are logged: five times the standard error of this number is
    // allowed.
    for (function, blocks, loads_of_block, off) in [
        ("often_site", 200_000.0, 6.0, 0.3),
        ("seldom_site", 50_000.0, 3.0, 0.5),
    ] {
        let object = site(&report, function);
        let sampled = &object["sampled"];
        let number = |name: &str| {
            sampled[name]
                .as_f64()
                .unwrap_or_else(|| panic!("no {name} in {object}"))
        };
        let logged = number("logged");
        assert!((40.0..1500.0).contains(&logged), "{object}");
        let lives = object["instances"].as_f64().unwrap();
        // The child has the same blocks as its parent.
        let off_by = (lives / (2.0 * blocks) - 1.0).abs();
        assert!(off_by < off, "{lives} lives: {object}");
        let truth = 100.0 * blocks * loads_of_block / loads;
        let (low, high) = (number("pct_lo"), number("pct_hi"));
        assert!(low < number("pct") && number("pct") <= high, "{object}");
        // One run in twenty is outside the interval, and hardly any is this far outside.
        assert!(
            0.8 * low < truth && truth < 1.25 * high,
            "{function}: {truth}% of the loads, estimated {object}"
        );
    }
}

/// Nodes, buckets and a vector of one line are objects with types of their own, and two arrays of
/// one line are two objects. Loads are attributed to fields of elements, and functions are divided
/// by their callers.
#[test]
fn blocks_have_types_and_fields() {
    let dir = tempfile::tempdir().unwrap();
    for opt in ["0", "2"] {
        let variant = Variant {
            clang: false,
            opt,
            pie: true,
        };
        let Some(original) = programs::build("elements", variant, &["-g"], dir.path()).unwrap()
        else {
            return;
        };
        let app = session::instrument(&original, "soft", &[]).unwrap().path;
        let trace = dir.path().join(format!("trace{opt}"));
        record_program(&["--mode", "full", "--heap=all"], &trace, &app, &[]);
        let report = analysis_json(&trace, &["--objects"]);
        let heap: Vec<&Value> = (report["objects"].as_array().unwrap().iter())
            .filter(|o| o["kind"] == "heap")
            .collect();
        let text = |o: &Value, key: &str| o[key].as_str().unwrap_or_default().to_owned();
        let all: Vec<(String, String)> = heap
            .iter()
            .map(|o| (text(o, "object"), text(o, "type")))
            .collect();
        let of = |name: &str, of_type: &str| {
            heap.iter()
                .find(|o| text(o, "object").contains(name) && text(o, "type").starts_with(of_type))
        };
        for (name, of_type) in [
            ("build", "struct item"),
            ("build", "struct _Hash_node<"),
            ("build", "struct _Hash_node_base*"),
            ("(left)", "double"),
            ("(right)", "double"),
        ] {
            assert!(
                of(name, of_type).is_some(),
                "-O{opt}: no {name} {of_type} in {all:#?}"
            );
        }
        let fields = |o: &Value| -> Vec<(String, u64, u64)> {
            let fields = o["fields"].as_array().unwrap().iter();
            fields
                .map(|f| {
                    let number = |key: &str| f[key].as_u64().unwrap();
                    (text(f, "field"), number("offset"), number("bytes"))
                })
                .collect()
        };
        let list = heap
            .iter()
            .filter(|o| text(o, "type") == "struct item")
            .max_by_key(|o| o["A"].as_u64())
            .unwrap();
        assert_eq!(list["element_bytes"], 64);
        assert!(
            fields(list).contains(&("weight".into(), 8, 8)),
            "-O{opt}: {list:#}"
        );
        let node = of("build", "struct _Hash_node<").unwrap();
        let names: Vec<String> = fields(node).into_iter().map(|f| f.0).collect();
        assert!(
            names.iter().any(|n| n == "_M_nxt") && names.iter().any(|n| n.ends_with("weight")),
            "-O{opt}: {names:?}"
        );
    }
}
