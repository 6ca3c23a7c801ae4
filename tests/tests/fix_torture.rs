//! Programs with prefetches at all possible positions and with all heap blocks placed: their output
//! does not change.

use mgz_fix_library::{ANY_MODULE, Action, Frame, Plan, SitePolicy, shared_object};
use mgz_tests::programs::{self, Variant};
use mgz_tests::session;
use mgz_tests::tools::{self, LIMIT};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

const ACTIONS: [Action; 2] = [
    Action::HugePool(0),
    Action::Pad {
        align: 128,
        offset: 64,
    },
];

/// The program with all prefetches, which must be run with a library that places all blocks. Also
/// returns the number of prefetches.
fn fixed(program: &Path, action: Action) -> (PathBuf, usize) {
    let plan = Plan {
        sites: vec![SitePolicy {
            frames: vec![Frame {
                module: ANY_MODULE.into(),
                offset: 0,
            }],
            action,
        }],
        static_huge: true,
    };
    std::fs::write(program.with_extension("so"), shared_object(&plan).unwrap()).unwrap();
    let prefetched = program.with_extension("prefetched");
    let mut command = tools::tool("mgz-instrument");
    command
        .args(["--prefetch", "all", "--format", "json", "--force", "-o"])
        .args([&prefetched, program]);
    let done = tools::succeed(&mut command, LIMIT).unwrap();
    let report: Value = serde_json::from_slice(&done.stdout).unwrap();
    let output = program.with_extension("fixed");
    let name = program.with_extension("so");
    let name = name.file_name().unwrap().to_string_lossy();
    let mut command = tools::tool("mgz-instrument");
    command
        .args(["--needed", &format!("$ORIGIN/{name}"), "--force", "-o"])
        .args([&output, &prefetched]);
    tools::succeed(&mut command, LIMIT).unwrap();
    (output, report["placed"].as_array().unwrap().len())
}

#[test]
fn programs_that_check_themselves_are_unchanged() {
    let mut placed = 0;
    for (name, arguments) in [
        ("prefetches", &[][..]),
        ("prefetched_throws", &[]),
        ("prefetched_signals", &[]),
        ("maps", &[]),
        ("sorts", &[]),
        ("placed/blocks", &["4", "20000", "100000"]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("placed")).unwrap();
        let variant = Variant::O2;
        let extra: &[&str] = match name {
            "placed/blocks" => &["-fno-builtin", "-D_GNU_SOURCE", "-pthread"],
            _ => &[],
        };
        let Some(program) = programs::build(name, variant, extra, dir.path()).unwrap() else {
            continue;
        };
        let run = |file: &Path| {
            let mut command = Command::new(file);
            tools::run_limited(command.args(arguments), LIMIT).unwrap()
        };
        let expected = run(&program);
        for action in ACTIONS {
            let (fixed, count) = fixed(&program, action);
            placed += count;
            let what = format!("{name} {action:?}");
            session::same_result(&what, &expected, &run(&fixed)).unwrap();
        }
    }
    assert!(placed > 50, "{placed}");
}

#[test]
fn programs_of_the_system_are_unchanged() {
    let input = mgz_tests::inputs::mixed_data(100_000, 7);
    const SQL: &str = "create table t(a,b); with recursive c(x) as (select 1 union all select x+1 from c where x<5000) insert into t select x, x*7919%1009 from c; create index i on t(b); select b,count(*),sum(a) from t group by b order by 3 desc limit 20;";
    const PERL: &str =
        "my %h; $h{$_*7919%10007}++ for 1..20000; print map {qq($_:$h{$_})} sort keys %h";
    for (program, arguments) in [
        ("/usr/bin/xz", &["-3", "-c"][..]),
        ("/usr/bin/sort", &["--parallel=3", "-k2"]),
        ("/usr/bin/perl", &["-e", PERL]),
        ("/usr/bin/sqlite3", &[":memory:", SQL]),
    ] {
        if !Path::new(program).exists() {
            tools::skip(&format!("{program} is not installed"));
            continue;
        }
        let dir = tempfile::tempdir().unwrap();
        let copy = dir.path().join("program");
        std::fs::copy(program, &copy).unwrap();
        let run = |file: &Path| {
            let mut command = Command::new(file);
            command.args(arguments).env("LC_ALL", "C");
            command.env("PERL_HASH_SEED", "0");
            tools::run_with(&mut command, Some(&input), LIMIT).unwrap()
        };
        let expected = run(&copy);
        for action in ACTIONS {
            let (fixed, _) = fixed(&copy, action);
            let what = format!("{program} {action:?}");
            session::same_result(&what, &expected, &run(&fixed)).unwrap();
        }
    }
}
