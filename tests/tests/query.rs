//! `mgz query`: SQL results equal those of the analysis.

use mgz_tests::programs;
use mgz_tests::session::{instrument, record_program};
use mgz_tests::tools::{self, LIMIT, code};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Output;

const PROGRAM: &str = r#"
#include <stdio.h>
long table[10000];
__attribute__((noinline)) long walk(long n) {
    long sum = 0;
    for (long i = 0; i < n; i++)
        sum += table[i];
    return sum;
}
int main(void) {
    printf("%ld\n", walk(10000) + walk(5000));
    return 0;
}
"#;

fn query(folder: &Path, arguments: &[&str]) -> Output {
    tools::run_limited(
        tools::tool("mgz")
            .arg("query")
            .args(arguments)
            .current_dir(folder),
        LIMIT,
    )
    .unwrap()
}

#[test]
fn sql_finds_what_the_analysis_says() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| -> PathBuf { dir.path().join(name) };
    programs::compile_text(PROGRAM, &path("app"), &["-O1", "-g"]);
    let app = instrument(&path("app"), "soft", &[]).unwrap().path;
    record_program(&["--mode", "full"], &path("full"), &app, &[]);
    let ring = ["--mode", "ring", "--period", "1009", "--window", "100"];
    record_program(&ring, &path("ring"), &app, &[]);

    for trace in ["full", "ring"] {
        let analysis = tools::succeed(
            tools::tool("mgz-analyze")
                .arg(path(trace))
                .args(["--format", "json"]),
            LIMIT,
        )
        .unwrap();
        let analysis: Value = serde_json::from_slice(&analysis.stdout).unwrap();
        let ask = |sql: &str| -> Vec<Value> {
            let output = query(dir.path(), &[trace, sql, "--format", "json"]);
            let message = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(code(&output), 0, "{sql}: {message}");
            match serde_json::from_slice(&output.stdout).unwrap() {
                Value::Array(rows) => rows,
                other => panic!("{other}"),
            }
        };
        // The same from the table and from the rows.
        let row = analysis["functions"]
            .as_array()
            .unwrap()
            .iter()
            .find(|f| f["function"] == "walk")
            .unwrap();
        let walk = ask("SELECT A, F, dF FROM functions WHERE function = 'walk'");
        assert_eq!(
            (&walk[0]["A"], &walk[0]["F"], &walk[0]["dF"]),
            (&row["A"], &row["F"], &row["dF"])
        );
        let rows = ask(
            "SELECT function, count(*) AS A, count(DISTINCT process || ' ' || address) AS F, sum(implied_const) AS A_const FROM rows WHERE store = 0 GROUP BY function ORDER BY A DESC",
        );
        for found in &rows {
            let functions = analysis["functions"].as_array().unwrap();
            let row = functions
                .iter()
                .find(|f| f["function"] == found["function"])
                .unwrap();
            for key in ["A", "F", "A_const"] {
                assert_eq!(found[key], row[key], "{found} {trace}");
            }
        }
        assert_eq!(
            rows.len(),
            analysis["functions"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|f| f["A"] != 0)
                .count()
        );
        let lines = ask(
            "SELECT file, line, count(*) AS A FROM rows GROUP BY file, line ORDER BY A DESC LIMIT 1",
        );
        let line = &analysis["lines"][0];
        assert_eq!(
            (&lines[0]["line"], &lines[0]["A"]),
            (&line["line"], &line["A"])
        );
        let objects =
            ask("SELECT object, count(*) AS A FROM rows WHERE object = 'table' GROUP BY object");
        assert_eq!(objects[0]["A"], row["A"]);
        let samples = ask("SELECT count(*) AS samples, sum(A) AS A FROM samples");
        assert_eq!(samples[0]["samples"], analysis["summary"]["samples"]);
        assert_eq!(samples[0]["A"], analysis["summary"]["A"]);
        let windows = ask("SELECT W FROM windows ORDER BY W");
        assert_eq!(windows.len(), analysis["windows"].as_array().unwrap().len());
        let joined = ask(
            "SELECT f.function, r.n FROM functions f JOIN (SELECT function, count(*) AS n FROM rows GROUP BY function) r USING (function) WHERE f.A != r.n",
        );
        assert!(joined.is_empty(), "{joined:?}");
        if trace == "full" {
            let steps = ask(
                "SELECT max(step) AS step FROM (SELECT address - lag(address) OVER (ORDER BY seq) AS step FROM rows WHERE function = 'walk')",
            );
            assert_eq!(steps[0]["step"], 8);
        }
    }

    let sql = "SELECT function, A, dF FROM functions ORDER BY A DESC";
    let text = |arguments: &[&str]| String::from_utf8(query(dir.path(), arguments).stdout).unwrap();
    let table = text(&["full", sql]);
    assert!(
        table.lines().next().unwrap().contains("function"),
        "{table}"
    );
    assert!(table.lines().nth(1).unwrap().contains("walk"), "{table}");
    let csv = text(&["full", sql, "--format", "csv"]);
    assert!(csv.starts_with("function,A,dF\nwalk,15000,"), "{csv}");
    let done = query(
        dir.path(),
        &["full", sql, "--format", "parquet", "-o", "out.parquet"],
    );
    assert_eq!(code(&done), 0, "{}", String::from_utf8_lossy(&done.stderr));
    let bytes = std::fs::read(path("out.parquet")).unwrap();
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));

    for (arguments, word) in [
        (&["full", "SELECT nothing FROM functions"][..], "nothing"),
        (&["full", "DROP TABLE functions"], "only queries"),
        (
            &["full", "SELECT 1 FROM functions", "--format", "parquet"],
            "give a file",
        ),
        (&["nowhere", "SELECT 1"], "nowhere"),
    ] {
        let output = query(dir.path(), arguments);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(code(&output), 1, "{message}");
        assert!(message.contains(word), "{message}");
    }
}
