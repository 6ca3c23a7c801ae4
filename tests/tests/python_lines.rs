//! `mgz run` with a script of Python: the tables and call paths contain functions and lines of the
//! script.

use mgz_tests::tools::{self, LIMIT, code};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

/// `gather` reads a list in a random order. `sorted` of the standard library calls `key` from C.
const SCRIPT: &str = r#"
import random

def gather(table, order):
    total = 0
    for at in order:
        total += table[at] & 3
    return total

def key(at):
    return at ^ 0x5555

def main():
    random.seed(7)
    table = [n * 1000 for n in range(600_000)]
    order = list(range(len(table)))
    random.shuffle(order)
    total = sum(gather(table, order) for _ in range(12))
    return total + len(sorted(order, key=key))

print(main())
"#;

/// Lines of `gather`'s loop, and the line of its call.
const LOOP: [u64; 2] = [6, 7];
const CALL: u64 = 18;

fn run(folder: &Path, mut command: Command) -> Output {
    command
        .current_dir(folder)
        .env("XDG_CACHE_HOME", folder.join("cache"))
        .env("MGZ_NO_MEASURE", "1");
    tools::run_limited(&mut command, LIMIT).unwrap()
}

/// The analysis of a run of the script, and the text that the run printed.
fn analysis(python: &str) -> Option<(Value, String)> {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("hot.py");
    std::fs::write(&script, SCRIPT).unwrap();
    let mut plain = Command::new(python);
    plain.arg("hot.py");
    let plain = run(folder.path(), plain);
    if code(&plain) != 0 {
        return None;
    }
    let mut recorded = tools::tool("mgz");
    recorded.args(["run", "-o", "out", "--", python, "hot.py"]);
    let recorded = run(folder.path(), recorded);
    let said = String::from_utf8_lossy(&recorded.stderr).into_owned();
    assert_eq!(code(&recorded), 0, "{said}");
    assert_eq!(recorded.stdout, plain.stdout, "{said}");
    let mut analyzer = tools::tool("mgz-analyze");
    analyzer.args(["out/trace", "--format", "json"]);
    let found = run(folder.path(), analyzer);
    assert_eq!(
        code(&found),
        0,
        "{}",
        String::from_utf8_lossy(&found.stderr)
    );
    Some((serde_json::from_slice(&found.stdout).unwrap(), said))
}

fn is_in_script(row: &Value) -> bool {
    row["file"]
        .as_str()
        .is_some_and(|file| file.ends_with("/hot.py"))
}

#[test]
fn functions_and_lines_of_a_script_are_named() {
    if !tools::have("python3") {
        tools::skip("no Python");
        return;
    }
    let Some((found, said)) = analysis("python3") else {
        tools::skip("Python does not run");
        return;
    };
    let tables = &found["python"];
    assert!(tables.is_object(), "no window has Python frames: {said}");
    let lines = tables["lines"].as_array().unwrap();
    let first = &lines[0];
    assert_eq!(first["function"], "gather", "{lines:#?}");
    assert!(is_in_script(first), "{first}");
    assert!(LOOP.contains(&first["line"].as_u64().unwrap()), "{first}");
    assert_eq!(first["own"], true);
    let functions = tables["functions"].as_array().unwrap();
    assert_eq!(functions[0]["function"], "gather");
    let with_calls = |name: &str| {
        let row = functions.iter().find(|row| row["function"] == name);
        row.and_then(|row| row["with_calls_pct"].as_f64())
            .unwrap_or(0.0)
    };
    assert!(with_calls("main") > with_calls("gather"), "{functions:#?}");
    // `gather` is called by a generator in `main`, with its line.
    let calls = found["call_paths"]["calls"].as_array().unwrap();
    let call = |row: &Value| {
        (
            row["python"] == true,
            row["function"].clone(),
            row["call_line"].clone(),
        )
    };
    let gather = (true, Value::from("gather"), Value::from(CALL));
    assert!(calls.iter().any(|row| call(row) == gather), "{calls:#?}");
    // A function that C code of the interpreter calls has its Python caller on the call path.
    let key = calls.iter().find(|row| row["function"] == "key");
    if let Some(key) = key {
        let caller = calls.iter().find(|row| row["id"] == key["parent"]);
        assert_eq!(caller.unwrap()["function"], "main", "{calls:#?}");
    }
    // Findings are at the script's lines, not at those of the interpreter.
    if let Some(finding) = found["findings"].as_array().unwrap().first() {
        assert!(is_in_script(finding), "{finding}");
    }
    assert!(said.contains("Hottest Python lines"), "{said}");
}
