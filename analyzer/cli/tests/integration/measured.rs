//! Memory samples next to predicted misses, through the command: `--measured` and the tables of
//! `mgz-analyze query`.

use crate::analyze;
use crate::common::{SampleRow, manifest, sidecar, write_columns, write_trace};
use arrow_array::{ArrayRef, BooleanArray, StringArray, UInt32Array, UInt64Array};
use mgz_annotations_schema::manifest::MEASURED;
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;

const KERNEL: u64 = 0xffff_8880_0000_1000;

/// Every load of `main`, line 10, touches a new cache line, so that all miss.
fn trace(folder: &Path) {
    let sidecar = sidecar(16);
    let rows = (0..5000u64).map(|seq| SampleRow {
        process: 7,
        thread: 8,
        seq,
        time_ns: seq * 10,
        address: 0x10000 + 64 * seq,
        size: 8,
        class: 1,
        ip: 0x1000,
        ..SampleRow::default()
    });
    let rows: Vec<SampleRow> = rows.collect();
    write_trace(folder, &manifest("full", &sidecar), &sidecar, &[rows], 1000);
}

/// 1,000 sampled loads of the same line that hit the first-level cache, one of the kernel, one
/// store.
fn samples(folder: &Path) {
    const ROWS: usize = 1002;
    let is_main = |row: usize| row != 1000;
    let text = |of: &dyn Fn(usize) -> Option<&'static str>| -> ArrayRef {
        Arc::new((0..ROWS).map(of).collect::<StringArray>())
    };
    let of_main = |name: &'static str| text(&|row| is_main(row).then_some(name));
    let words = |of: &dyn Fn(usize) -> Option<u32>| -> ArrayRef {
        Arc::new((0..ROWS).map(of).collect::<UInt32Array>())
    };
    let longs = |of: &dyn Fn(usize) -> Option<u64>| -> ArrayRef {
        Arc::new((0..ROWS).map(of).collect::<UInt64Array>())
    };
    let kind = |row: usize| Some(["load", "store"][usize::from(row == 1001)]);
    let address = |row: usize| Some([0x10000, KERNEL][usize::from(row == 1000)]);
    let columns: Vec<(&str, ArrayRef)> = vec![
        (
            "module",
            text(&|row| Some(["[kernel]", "/bin/app"][usize::from(is_main(row))])),
        ),
        (
            "function",
            text(&|row| Some(["[kernel]", "main"][usize::from(is_main(row))])),
        ),
        ("inlined", text(&|_| None)),
        ("file", of_main("app.c")),
        ("line", words(&|row| is_main(row).then_some(10))),
        ("address", longs(&address)),
        ("object", text(&|_| Some("table"))),
        ("object_kind", text(&|_| Some("global"))),
        ("object_module", text(&|_| Some("app"))),
        ("operation", text(&kind)),
        (
            "level",
            text(&|row| Some(["memory", "L1"][usize::from(is_main(row))])),
        ),
        (
            "latency",
            words(&|row| Some(if is_main(row) { 5 } else { 300 })),
        ),
        ("tlb", text(&|_| Some("L1 hit"))),
        ("snoop", text(&|_| None)),
        (
            "remote",
            Arc::new(BooleanArray::from(vec![None::<bool>; ROWS])),
        ),
        ("node", words(&|row| Some(u32::from(is_main(row))))),
        ("period", longs(&|_| Some(100))),
        ("drawn", text(&|_| Some("loads"))),
    ];
    write_columns(&folder.join(MEASURED), columns);
}

fn ask(arguments: &[&str], sql: &str) -> Vec<Value> {
    let all = [&["query", "--format", "json"], arguments, &[sql]].concat();
    let output = analyze(&all);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{sql}: {message}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn sql_has_measured_beside_predicted_misses_and_the_samples_themselves() {
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (app, both, other) = (place("app"), place("both"), place("other"));
    for folder in [&app, &both, &other] {
        trace(Path::new(folder));
    }
    samples(Path::new(&both));
    samples(Path::new(&other));

    // The trace's own samples and those of another run give the same result.
    for of in [&[both.as_str()][..], &[&app, "--measured", &other]] {
        let lines = ask(
            of,
            "SELECT line, miss_ratio, predicted, differs FROM measured WHERE kind = 'line' AND level = 'L1' ORDER BY row_samples DESC",
        );
        assert_eq!(
            (&lines[0]["line"], &lines[0]["miss_ratio"]),
            (&10.into(), &0.0.into())
        );
        assert_eq!(
            (&lines[0]["predicted"], &lines[0]["differs"]),
            (&1.0.into(), &1.into())
        );
        // The kernel is not in the trace.
        assert_eq!(
            (&lines[1]["line"], &lines[1]["predicted"]),
            (&0.into(), &Value::Null)
        );
        let nodes = ask(
            of,
            "SELECT object, node, level, count(*) AS n, avg(latency) AS cycles, min(address) AS least FROM memory_samples WHERE operation = 'load' GROUP BY object, node, level ORDER BY node",
        );
        let found = nodes.iter().map(|r| (&r["node"], &r["n"], &r["cycles"]));
        let found: Vec<_> = found
            .map(|(a, b, c)| (a.as_i64(), b.as_i64(), c.as_f64()))
            .collect();
        assert_eq!(
            found,
            [
                (Some(0), Some(1), Some(300.0)),
                (Some(1), Some(1000), Some(5.0))
            ]
        );
        // Addresses keep all 64 bits.
        assert_eq!(nodes[0]["least"], KERNEL as i64);
    }

    for table in ["measured", "memory_samples"] {
        let output = analyze(&["query", &app, &format!("SELECT * FROM {table}")]);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(
            message.contains("the trace has no memory samples"),
            "{message}"
        );
    }
    // The table `growth` has a column `measured`, which needs no memory samples.
    let growth = ask(&[&app], "SELECT count(measured) AS n FROM growth");
    assert!(growth[0]["n"].is_number(), "{growth:?}");
}
