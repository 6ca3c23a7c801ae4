//! Calls of `memcpy` and similar functions are recorded at the caller's line (`mgz-instrument
//! --copies`), with their bytes.

use mgz_tests::programs;
use mgz_tests::session::{self, recorded_run};
use mgz_tests::tools::{self, LIMIT};
use std::collections::BTreeMap;
use std::process::Command;

const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
enum { BYTES = 1 << 20, TIMES = 50 };
int main(int argc, char **argv)
{
    char *from = malloc(BYTES), *to = malloc(BYTES);
    memset(from, argc, BYTES);
    long sum = 0;
    for (int i = 0; i < TIMES; i++) {
        memcpy(to, from, BYTES - i * argc);
        memmove(to + argc, to, 1000 * argc);
        memcpy(to, from, argc - 1);
        from[i] = to[argc * i];
        sum += to[i * 5];
    }
    printf("%ld\n", sum);
    return 0;
}
"#;

#[test]
fn copies_are_rows_of_their_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let original = dir.path().join("copy");
    programs::compile_text(PROGRAM, &original, &["-O1", "-g"]);
    let expected = tools::run_limited(&mut Command::new(&original), LIMIT).unwrap();
    for (options, copies) in [
        (&[][..], 0),
        (&["--copies"], 1),
        (&["--copies", "--stores"], 1),
    ] {
        let app = session::instrument(&original, "soft", options)
            .unwrap()
            .path;
        let trace = dir.path().join("trace");
        let got = recorded_run(&["--mode", "full", "--force"], &trace, &app, &[]);
        session::same_result("copy", &expected, &got).unwrap();
        let list = dir.path().join("list");
        tools::succeed(
            tools::tool("mgz-analyze")
                .args(["export", "--to", "lackey", "-o"])
                .arg(&list)
                .arg(&trace),
            LIMIT,
        )
        .unwrap();
        let mut sizes: BTreeMap<(char, u64), u64> = BTreeMap::new();
        for line in std::fs::read_to_string(&list).unwrap().lines() {
            let kind = line.trim_start().chars().next();
            if let Some((kind, size)) = kind.zip(line.rsplit_once(',')) {
                *sizes
                    .entry((kind, size.1.trim().parse().unwrap()))
                    .or_default() += 1;
            }
        }
        let of = |kind, size| sizes.get(&(kind, size)).copied().unwrap_or(0);
        for i in 0..50 {
            assert_eq!(of('L', (1 << 20) - i), copies, "{options:?} {i}: {sizes:?}");
        }
        assert_eq!(of('L', 1000), 50 * copies, "{options:?}: {sizes:?}");
        let manifest = std::fs::read_to_string(trace.join("manifest.json")).unwrap();
        let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
        let files = manifest["coverage"]["files"].as_array().unwrap();
        let misses_copies = files
            .iter()
            .any(|f| f["reads_for"].to_string().contains("\"memcpy\""));
        assert_eq!(misses_copies, copies == 0, "{files:?}");
        // A copy of zero bytes reads nothing.
        assert_eq!(of('L', 0), 0);
        if options.contains(&"--stores") {
            // The copies and the bytes that memset has written.
            assert_eq!(of('S', 1 << 20), 2, "{sizes:?}");
            assert_eq!(of('S', 1000), 50, "{sizes:?}");
        }
    }
}
