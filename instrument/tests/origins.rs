//! Origins of addresses in small C functions, compiled with and without optimisation. In each
//! function one load must have the expected origin, and none may have a wrong one.

use mgz_abi::module_note::FLAVOUR_SOFT;
use mgz_annotations_schema::sidecar::{CLASS_CONSTANT, Origin};
use mgz_elf::Elf;
use mgz_instrument::discover::scan::discover;
use mgz_instrument::ir::FunctionId;
use mgz_instrument::pipeline::analysis_input::analysis_input;
use mgz_instrument::pipeline::function_pass::analyze;
use mgz_instrument::program::InstrumentOptions;
use mgz_instrument::program::fixed_memory::FaultPolicy;
use mgz_instrument::unwind::Tables;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

const SOURCE: &str = r"
typedef unsigned long u;
struct list { struct list *next; u value; };
struct tree { struct tree *left, *right; u key; };
extern u table[], keys[]; extern unsigned picks[]; extern struct list *heads[]; extern double grid[512][512];
u walk_list(struct list *p) { u s = 0; for (; p; p = p->next) s += p->value; return s; }
u find_tree(struct tree *t, u key) { while (t && t->key != key) t = key < t->key ? t->left : t->right; return t != 0; }
u sum_tree(struct tree *t) { return t ? t->key + sum_tree(t->left) + sum_tree(t->right) : 0; }
u gather(u n) { u s = 0; for (u i = 0; i < n; i++) s += table[picks[i]]; return s; }
u visit(struct list **p, u n) { u s = 0; for (u i = 0; i < n; i++) s += p[i]->value; return s; }
u chain(u key) { for (struct list *p = heads[key * 0x9e3779b97f4a7c15u >> 50]; p; p = p->next) if (p->value == key) return 1; return 0; }
u open_table(u key) { u at = key * 0x9e3779b97f4a7c15u >> 50; while (table[at] && table[at] != key) at = (at + 1) & 16383; return at; }
u search(u key, u n) { u low = 0, high = n; while (low < high) { u m = low + (high - low) / 2; if (table[m] < key) low = m + 1; else high = m; } return low; }
u after_search(u key, u n, u m) { u low = 0, high = n, s = 0; while (low < high) { u x = low + (high - low) / 2; if (table[x] < key) low = x + 1; else high = x; } for (u i = 0; i < m; i++) s += keys[low * n + picks[i]]; return s; }
double column(void) { double s = 0; for (int j = 0; j < 512; j++) for (int i = 0; i < 512; i++) s += grid[i][j]; return s; }
double row(void) { double s = 0; for (int i = 0; i < 512; i++) for (int j = 0; j < 512; j++) s += grid[i][j]; return s; }
u jump(u at, u n) { while (n--) at = table[at]; return at; }
u table[16384], keys[16384]; unsigned picks[16384]; struct list *heads[16384]; double grid[512][512];
int main(void) { return 0; }
";

/// Origins of the loads of each function that are not Constant.
fn origins(binary: &Path) -> BTreeMap<String, BTreeSet<Origin>> {
    let data = std::fs::read(binary).unwrap();
    let elf = Elf::parse(&data).unwrap();
    let tables = Tables::read(&elf).unwrap();
    let mut input = analysis_input(&elf, &tables);
    input.walks_stacks = elf.managed_runtime().is_some();
    let options = InstrumentOptions::new(FLAVOUR_SOFT);
    let program = discover(&input, &options);
    let mut found: BTreeMap<String, BTreeSet<Origin>> = BTreeMap::new();
    for f in &program.functions {
        let policy = FaultPolicy::default();
        let Ok(function) = analyze(&input, &program, FunctionId(f.id.0), &options, &policy) else {
            continue;
        };
        let sites = function.plan.regions.iter().flat_map(|r| &r.sites);
        let of = found.entry(f.name.clone()).or_default();
        of.extend(
            sites
                .filter(|s| s.class != CLASS_CONSTANT)
                .map(|s| Origin::from_u8(s.origin).unwrap()),
        );
    }
    found
}

#[test]
fn origins_are_those_of_the_source() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("origins.c");
    std::fs::write(&source, SOURCE).unwrap();
    let expected = [
        ("walk_list", Origin::Chain),
        ("find_tree", Origin::Tree),
        ("sum_tree", Origin::Tree),
        ("gather", Origin::Index),
        ("visit", Origin::Pointer),
        ("chain", Origin::Chain),
        ("chain", Origin::Hash),
        ("open_table", Origin::Hash),
        ("search", Origin::Search),
        ("after_search", Origin::Search),
        ("after_search", Origin::Index),
        ("column", Origin::Column),
        ("jump", Origin::Chain),
    ];
    for opt in ["-O0", "-O1", "-O2"] {
        let binary = dir.path().join("origins");
        // (Vectorization and loop interchange would change the program.)
        let options = [opt, "-fno-tree-vectorize", "-fno-loop-interchange"];
        let done = Command::new("gcc")
            .args(options)
            .arg("-o")
            .args([&binary, &source])
            .status()
            .unwrap();
        assert!(done.success());
        let found = origins(&binary);
        for (function, origin) in expected {
            // The outer loop begins where the inner one ends, which the rules do not cover yet.
            if (opt, function) == ("-O2", "column") {
                continue;
            }
            assert!(
                found[function].contains(&origin),
                "{opt} {function}: {origin:?} not in {:?}",
                found[function]
            );
        }
        for (function, origin) in [
            ("row", Origin::Column),
            ("walk_list", Origin::Tree),
            ("search", Origin::Hash),
            ("gather", Origin::Chain),
            ("open_table", Origin::Search),
            ("after_search", Origin::Hash),
        ] {
            assert!(
                !found[function].contains(&origin),
                "{opt} {function}: {origin:?}"
            );
        }
    }
}

const GO_SOURCE: &str = r"
package main

import `os`

type node struct {
	left, right *node
	key         int
}

func sum(n *node) int {
	if n == nil {
		return 0
	}
	return n.key + sum(n.left) + sum(n.right)
}

//go:noinline
func find(n *node, key int) bool {
	for n != nil && n.key != key {
		if key < n.key {
			n = n.left
		} else {
			n = n.right
		}
	}
	return n != nil
}

func main() {
	n := &node{nil, nil, len(os.Args)}
	println(sum(n), find(n, 3))
}
";

/// Go passes the first argument in another register than C.
#[test]
fn recursive_functions_of_go_walk_trees() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("trees.go");
    std::fs::write(&source, GO_SOURCE.replace('`', "\"")).unwrap();
    let binary = dir.path().join("trees");
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go");
    let done = Command::new("go")
        .args(["build", "-o"])
        .args([&binary, &source])
        .envs([
            ("GO111MODULE", "off"),
            ("GOFLAGS", ""),
            ("CGO_ENABLED", "0"),
        ])
        .env("GOCACHE", cache)
        .status();
    if !done.is_ok_and(|status| status.success()) {
        eprintln!("skipped: Go is not installed");
        return;
    }
    let found = origins(&binary);
    for function in ["main.sum", "main.find"] {
        let of = &found[function];
        assert!(of.contains(&Origin::Tree), "{function}: {of:?}");
        assert!(!of.contains(&Origin::Search), "{function}: {of:?}");
    }
}
