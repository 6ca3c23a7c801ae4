//! Use–reuse pairs of burst: the reports of watchpoints on words that windows have accessed match
//! the source.

use arrow_array::cast::AsArray;
use arrow_array::types::{UInt32Type, UInt64Type};
use mgz_annotations_schema::manifest::{ANNOTATIONS_DIR, Manifest, REUSE_PAIRS};
use mgz_annotations_schema::sidecar::Sidecar;
use mgz_tests::programs::{self, Variant};
use mgz_tests::session::{self, record_program};
use mgz_tests::tools::{self, LIMIT};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::path::Path;

const VARIANT: Variant = Variant::O2;
/// Size of the program's table in bytes.
const TABLE: u64 = 1 << 20;
/// Distance in bytes between two words that are read.
const STEP: u64 = 64;

/// A row of the table of pairs.
#[derive(Debug)]
struct Pair {
    address: u64,
    cpu_ns: u64,
    reused: bool,
    load: Option<(u32, u32)>,
}

/// The pairs of a trace, if it has any.
fn pairs(trace: &Path) -> Option<Vec<Pair>> {
    let file = std::fs::File::open(trace.join(REUSE_PAIRS)).ok()?;
    let reader = ParquetRecordBatchReaderBuilder::try_new(file)
        .unwrap()
        .build()
        .unwrap();
    let mut all = Vec::new();
    for batch in reader {
        let batch = batch.unwrap();
        let column = |name: &str| batch.column_by_name(name).unwrap().clone();
        let (address, cpu_ns) = (column("address"), column("cpu_ns"));
        let (reused, module, site) = (column("reused"), column("module"), column("site"));
        for row in 0..batch.num_rows() {
            let module = module.as_primitive::<UInt32Type>().value(row);
            let site = site.as_primitive::<UInt32Type>().value(row);
            all.push(Pair {
                address: address.as_primitive::<UInt64Type>().value(row),
                cpu_ns: cpu_ns.as_primitive::<UInt64Type>().value(row),
                reused: reused.as_boolean().value(row),
                load: (site != u32::MAX).then_some((module, site)),
            });
        }
    }
    Some(all)
}

/// Returns whether processes can use watchpoints on this machine, which is the only requirement of
/// watch mode.
fn has_watchpoints(dir: &Path, program: &Path) -> bool {
    let mut command = tools::tool("mgz-record");
    command
        .args(["--mode", "watch", "-o"])
        .arg(dir.join("probe"))
        .arg("--")
        .args([program.as_os_str(), "loads".as_ref(), "1".as_ref()]);
    let output = tools::run_limited(&mut command, LIMIT).unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    let there = !(tools::code(&output) == 125 && text.contains("this machine"));
    if !there {
        tools::skip(&format!("watchpoints: {text}"));
    }
    there
}

/// Names of the functions of loads that have ended watches.
fn functions(trace: &Path, pairs: &[Pair]) -> Vec<String> {
    let manifest: Manifest =
        serde_json::from_slice(&std::fs::read(trace.join("manifest.json")).unwrap()).unwrap();
    let name = |&(module, site): &(u32, u32)| {
        let module = &manifest.modules[module as usize];
        assert!(module.sidecar.starts_with(ANNOTATIONS_DIR));
        let sidecar = Sidecar::read(&trace.join(&module.sidecar)).unwrap();
        let function = sidecar.sites[site as usize].function as usize;
        let name = sidecar.functions[function].name;
        sidecar.string(name).to_owned()
    };
    pairs
        .iter()
        .filter_map(|p| p.load.as_ref())
        .map(name)
        .collect()
}

#[test]
fn reuses_are_those_of_the_source() {
    let dir = tempfile::tempdir().unwrap();
    let program = programs::build("reuses", VARIANT, &["-g"], dir.path())
        .unwrap()
        .unwrap();
    if !has_watchpoints(dir.path(), &program) {
        return;
    }
    let app = session::instrument_as(&program, "burst", &[]);
    let record = |options: &[&str], args: &[&str]| {
        let trace = dir.path().join(format!("{}-{}", args[0], options.len()));
        let rate = [&["--rate", "1000"], options].concat();
        let output = record_program(&rate, &trace, &app, args);
        let alone = tools::succeed(std::process::Command::new(&program).args(args), LIMIT).unwrap();
        assert_eq!(output.stdout, alone.stdout);
        trace
    };

    // A table that is read in rounds: each word is read again by the same load.
    let trace = record(&[], &["loads", "150000"]);
    let all = pairs(&trace).unwrap();
    let reused: Vec<&Pair> = all.iter().filter(|p| p.reused).collect();
    assert!(reused.len() >= 5, "{} of {}", reused.len(), all.len());
    let by_load = reused.iter().filter(|p| p.load.is_some()).count();
    assert!(
        by_load * 10 >= reused.len() * 9,
        "{by_load} of {}",
        reused.len()
    );
    let names = functions(&trace, &all);
    assert!(names.iter().all(|n| n == "read_all"), "{names:?}");
    let lowest = all.iter().map(|p| p.address).min().unwrap();
    for pair in &all {
        assert!(pair.address - lowest < TABLE, "{pair:?}");
        assert!((pair.address - lowest).is_multiple_of(STEP), "{pair:?}");
    }
    // Two uses of a word are less than a second of CPU time apart.
    assert!(reused.iter().all(|p| p.cpu_ns < 1_000_000_000), "{all:?}");

    // Each word of the table is written before it is read again, so no load ends a watch. (A
    // virtual machine may report a hit some instructions late, after a load.)
    let trace = record(&[], &["stores", "60000"]);
    let all = pairs(&trace).unwrap();
    let reused = all.iter().filter(|p| p.reused).count();
    assert!(reused >= 5, "{}", all.len());
    let names = functions(&trace, &all);
    assert!(names.len() * 10 <= reused, "{names:?} of {reused}");

    // Words that are never accessed again.
    let trace = record(&[], &["never", "4000"]);
    let all = pairs(&trace).unwrap_or_default();
    assert!(all.iter().all(|p| !p.reused), "{all:?}");

    assert!(pairs(&record(&["--no-reuse-pairs"], &["loads", "20000"])).is_none());
    // Windows do not need call paths for reuse pairs.
    let trace = record(&["--no-stacks", "--no-aslr"], &["loads", "150000"]);
    assert!(pairs(&trace).is_some_and(|all| !all.is_empty()));
}
