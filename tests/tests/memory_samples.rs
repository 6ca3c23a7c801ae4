//! Memory samples of perf.data files, from the import to the tables.

use mgz_tests::tools;
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// The recorder writes columns that the analyzer can read.
#[test]
fn imported_memory_samples_are_shown() {
    let dir = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let trace = dir.path().join("trace");
    let mut import = tools::tool("mgz-record");
    import
        .arg("--import")
        .arg(root.join("fuzz/seeds/perfdata/memory"))
        .arg("-o")
        .arg(&trace);
    tools::succeed(&mut import, LIMIT).unwrap();
    let mut analyze = tools::tool("mgz-analyze");
    analyze.arg(&trace).args(["--format", "json"]);
    let output = tools::succeed(&mut analyze, LIMIT).unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["measured"]["samples"], 6, "{report:#}");
    assert!(
        !report["measured"]["levels"].as_array().unwrap().is_empty(),
        "{report:#}"
    );
}

/// Environment variable that names the folder of third-party recordings.
const RECORDINGS: &str = "MGZ_PERF_DATA";

/// A sample of a load or store: address (0 is unknown), instruction, latency in cycles, level.
type Access = (u64, u64, u64, String);

/// Samples of a recording as `perf script` prints them; `None` if perf cannot read the file, or is
/// not installed.
fn by_perf(file: &Path) -> Option<Vec<Access>> {
    let mut perf = std::process::Command::new("perf");
    perf.args(["script", "-f", "-F", "ip,addr,weight,data_src", "-i"]);
    let output = tools::run_limited(perf.arg(file), LIMIT).ok()?;
    if !output.status.success() {
        return None;
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let access = |line: &str| {
        let (before, words) = line.split_once("|OP ")?;
        let is_access = words.starts_with("LOAD") || words.starts_with("STORE");
        let level = words.split_once("|LVL ")?.1.split_once('|')?.0.trim();
        let mut ends = words.split_whitespace().rev();
        let ip = u64::from_str_radix(ends.next()?, 16).ok()?;
        let latency = ends.next()?.parse().ok()?;
        let address = u64::from_str_radix(before.split_whitespace().next()?, 16).ok()?;
        is_access.then(|| (address, ip, latency, level_of(level)))
    };
    Some(text.lines().filter_map(access).collect())
}

/// Converts perf's name of a level, such as `L3 or L3 hit`, to that of `measured.parquet`; returns
/// perf's name unchanged if it is not a plain one.
fn level_of(words: &str) -> String {
    let plain = words.strip_suffix(" hit").unwrap_or(words);
    let plain = match plain.split_once(" or ") {
        Some((one, other)) if one == other => one,
        _ => plain,
    };
    let known = match plain {
        "L1" | "L2" | "L3" | "L4" => plain,
        "LFB/MAB" | "LFB" => "fill buffer",
        "RAM" | "Local RAM" => "memory",
        "Remote RAM (1 hop)" | "Remote RAM (2 hops)" => "remote memory",
        "Uncached" => "uncached",
        _ => words,
    };
    known.to_owned()
}

/// Samples of the imported trace.
fn by_mgz(trace: &Path) -> Vec<Access> {
    let sql = "SELECT address, ip, latency, level FROM memory_samples WHERE operation IN ('load', 'store')";
    let mut query = tools::tool("mgz-analyze");
    query
        .arg("query")
        .arg(trace)
        .args([sql, "--format", "json"]);
    let output = tools::succeed(&mut query, LIMIT).unwrap();
    let rows: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    let access = |row: &serde_json::Value| {
        let number = |name: &str| row[name].as_i64().unwrap_or(0) as u64;
        let level = row["level"].as_str().unwrap_or_default().to_owned();
        (number("address"), number("ip"), number("latency"), level)
    };
    rows.iter().map(access).collect()
}

/// Recordings of other processors, which are not stored in this repository: every file in the
/// folder that MGZ_PERF_DATA names. Each is imported, and its samples must be those that `perf
/// script` prints. Such files are in the test data of other projects:
///
/// ```text
/// src/quipper/testdata/perf.data.weight_struct of google/perf_data_converter (Intel, --ldlat 64)
/// perf.data and perf.data.old of forks of intel/numatop (Intel Xeon E5, perf 4.4)
/// ```
#[test]
#[ignore = "needs recordings that are not kept here: MGZ_PERF_DATA=FOLDER"]
fn recordings_of_others_have_the_samples_that_perf_prints() {
    let Some(folder) = std::env::var_os(RECORDINGS) else {
        panic!("{RECORDINGS} is not set to a folder with perf.data files");
    };
    let dir = tempfile::tempdir().unwrap();
    let mut compared = 0;
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().path());
    for file in files.filter(|file| file.is_file()) {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let trace = dir.path().join(&name);
        let mut import = tools::tool("mgz-record");
        import.arg("--import").arg(&file).arg("-o").arg(&trace);
        let output = tools::run_limited(&mut import, LIMIT).unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let perf = by_perf(&file);
        if !trace.join("measured.parquet").exists() {
            // Refused with a reason; perf finds no accesses either.
            assert!(said.contains("memory samples"), "{name}: {said}");
            assert!(perf.is_none_or(|p| p.is_empty()), "{name}: {said}");
            println!("{name}: no memory samples");
            continue;
        }
        let mut own = by_mgz(&trace);
        own.sort();
        match perf {
            None => println!("{name}: {} samples; perf cannot read the file", own.len()),
            Some(mut perf) => {
                perf.sort();
                assert_eq!(own, perf, "{name}");
                println!("{name}: {} samples, as perf prints them", own.len());
                compared += 1;
            }
        }
    }
    assert!(compared > 0, "no recording could be compared");
}
