//! `mgz export --to lld-order`: a linker takes the file without a warning, and hot symbols become
//! neighbours.

use mgz_tests::session::{instrument, record_command};
use mgz_tests::tools::{self, LIMIT};
use std::path::Path;
use std::process::Command;

/// A hot function calls `twist`. Functions that do not run are between the two, and so is a variable
/// between those that both read. Two files have a local function of one name.
const PROGRAM: &str = r#"
#include <stdio.h>
#define APART __attribute__((noinline))
extern long other(long n);
unsigned first[512];
char gap[1 << 16];
extern unsigned second[512];
APART unsigned twist(unsigned at) { return first[at & 511] * 3 + second[at & 511]; }
APART static long mix(long n) { return n * 7 + gap[n & 65535]; }
APART long cold_a(long n) { for (long i = 0; i < n; i++) gap[i & 65535]++; return n; }
APART long cold_b(long n) { fprintf(stderr, "%ld\n", n); return n + gap[3]; }
APART long hot(long n) {
    unsigned at = 1;
    for (long i = 0; i < n; i++)
        at += twist(at) + first[i & 511];
    return at;
}
int main(int argc, char **argv) {
    for (int i = 0; i < 512; i++)
        first[i] = second[511 - i] = i;
    if (argc > 5)
        cold_b(cold_a(argc));
    printf("%ld\n", hot(60000) + mix(argc) + other(argc));
    return 0;
}
"#;

const OTHER: &str = r#"
unsigned second[512];
static long seen[64];
__attribute__((noinline)) static long mix(long n) { return seen[n & 63] + 1; }
__attribute__((noinline)) long other(long n) { seen[n & 63] = n; return mix(n); }
"#;

fn clang(dir: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("clang");
    command.args(arguments).current_dir(dir);
    let output = tools::run_limited(&mut command, LIMIT).unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    said
}

/// Names of the symbols of a file, by address.
fn symbols(file: &Path) -> Vec<String> {
    use object::{Object, ObjectSymbol};
    let data = std::fs::read(file).unwrap();
    let file = object::File::parse(&*data).unwrap();
    let defined = file.symbols().filter(|s| s.is_definition() && s.size() > 0);
    let mut all: Vec<(u64, String)> = defined
        .map(|s| (s.address(), s.name().unwrap().to_owned()))
        .collect();
    all.sort();
    all.into_iter().map(|(_, name)| name).collect()
}

/// Places between two symbols.
fn apart(symbols: &[String], one: &str, other: &str) -> usize {
    let place = |name: &str| symbols.iter().position(|s| s == name).unwrap();
    place(one).abs_diff(place(other))
}

#[test]
fn a_linker_places_hot_symbols_together() {
    if !tools::have("clang") || !tools::have("ld.lld") {
        tools::skip("clang or ld.lld is not installed");
        return;
    }
    for flags in [&["-fPIE", "-pie"][..], &["-fno-pie", "-no-pie"]] {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        std::fs::write(dir.join("app.c"), PROGRAM).unwrap();
        std::fs::write(dir.join("other.c"), OTHER).unwrap();
        let sections = [
            "-O1",
            "-ffunction-sections",
            "-fdata-sections",
            flags[0],
            "-c",
        ];
        clang(dir, &[&sections[..], &["app.c", "other.c"]].concat());
        let link = |more: &[&str]| {
            let begin = ["-fuse-ld=lld", flags[1]];
            clang(dir, &[&begin[..], more, &["app.o", "other.o"]].concat())
        };
        link(&["-o", "app"]);
        let before = symbols(&dir.join("app"));
        assert!(apart(&before, "hot", "twist") > 1, "{before:?}");
        assert!(apart(&before, "first", "second") > 1, "{before:?}");
        let recorded = instrument(&dir.join("app"), "soft", &[]).unwrap();
        let mode = ["--mode", "ring", "--period", "3001", "--window", "500"];
        let trace = dir.join("trace");
        let mut command = record_command(&mode, &trace, &recorded.path, &[]);
        tools::succeed(&mut command, LIMIT).unwrap();
        let mut export = tools::tool("mgz");
        export
            .args(["export", "trace", "--to", "lld-order", "-o", "order"])
            .current_dir(dir);
        tools::succeed(&mut export, LIMIT).unwrap();
        let order = std::fs::read_to_string(dir.join("order")).unwrap();
        let names: Vec<&str> = order.lines().collect();
        let hot = names.iter().position(|n| *n == "hot").unwrap();
        assert!(names.contains(&"twist") && hot <= 2, "{order}");
        assert!(
            !names.contains(&"cold_a") && !names.contains(&"stderr"),
            "{order}"
        );
        let said = link(&["-Wl,--symbol-ordering-file=order", "-o", "ordered"]);
        assert!(!said.contains("warning"), "{said}\n{order}");
        let after = symbols(&dir.join("ordered"));
        assert_eq!(apart(&after, "hot", "twist"), 1, "{after:?}");
        assert_eq!(apart(&after, "first", "second"), 1, "{after:?}");
    }
}
