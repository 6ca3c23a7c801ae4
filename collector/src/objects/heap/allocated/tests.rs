//! Programs whose calls of an allocator have known types.

use super::*;
use iced_x86::{Decoder, DecoderOptions};
use object::{Object, ObjectSection, ObjectSymbol};
use std::process::Command;

/// The allocations that the calls of a function are found to make: the calling function, the type,
/// and the variable or field that keeps it.
fn told(program: &Path, allocator: &str) -> Vec<(String, String, String)> {
    let data = std::fs::read(program).unwrap();
    let file = object::File::parse(&*data).unwrap();
    let named = |name: &str| {
        let symbol = file.symbols().find(|s| s.name() == Ok(name));
        symbol.map(|s| s.address())
    };
    let target = named(allocator).expect("the allocator");
    let section = file.section_by_name(".text").unwrap();
    let code = section.data().unwrap();
    let calls: BTreeSet<u64> = Decoder::with_ip(64, code, section.address(), DecoderOptions::NONE)
        .into_iter()
        .filter(|i| i.is_call_near() && i.near_branch_target() == target)
        .map(|i| i.next_ip() - 1)
        .collect();
    let function = |address: u64| {
        let inside =
            |s: &object::Symbol<'_, '_>| s.address() <= address && address < s.address() + s.size();
        let symbol = file.symbols().find(inside);
        readable(symbol.and_then(|s| s.name().ok()).unwrap_or_default())
    };
    let mut found: Vec<(String, String, String)> = of_calls(program, &calls)
        .into_iter()
        .map(|(call, told)| match told {
            Told { returned: true, .. } => (function(call), "[returned]".into(), String::new()),
            Told { allocated, .. } => {
                let allocated = allocated.unwrap_or_default();
                (function(call), allocated.of_type, allocated.kept_in)
            }
        })
        .collect();
    found.sort();
    found
}

fn compile(
    compiler: &[&str],
    name: &str,
    source: &str,
) -> Option<(tempfile::TempDir, std::path::PathBuf)> {
    let dir = tempfile::tempdir().unwrap();
    let (path, program) = (dir.path().join(name), dir.path().join("program"));
    std::fs::write(&path, source).unwrap();
    let mut command = Command::new(compiler[0]);
    command
        .args(&compiler[1..])
        .arg("-g")
        .arg("-o")
        .arg(&program)
        .arg(&path);
    if !command.status().is_ok_and(|s| s.success()) {
        eprintln!(
            "SKIPPED: {} cannot compile with debug information",
            compiler[0]
        );
        return None;
    }
    Some((dir, program))
}

const C: &str = "
#include <stdlib.h>
struct node { struct node *next; int key; };
struct table { struct node **rows; double *sums; };
typedef struct { int x, y; } point;
struct node *first;
static char pool[1 << 16], *free_pool = pool;
__attribute__((noinline)) void *take(unsigned long n) { char *p = free_pool; free_pool += n; return p; }
__attribute__((noinline)) void *checked(unsigned long n) { void *p = take(n); if (!p) abort(); return p; }
__attribute__((noinline)) void use(void *a, void *b) { *(char *)a = *(char *)b; }
__attribute__((noinline)) struct node *make(int key) { struct node *n = take(sizeof *n); n->key = key; n->next = 0; return n; }
__attribute__((noinline)) void extend(struct node *n) { n->next = take(sizeof *n); n->next->key = n->key; }
__attribute__((noinline)) void rows(struct table *t, int i) { t->rows = take(800); t->rows[i] = 0; }
__attribute__((noinline)) void cell(struct table *t, int i) { t->rows[i] = take(16); }
__attribute__((noinline)) void two(int n) { double *a = take(n), *b = take(n); a[0] = b[0] = n; use(a, b); }
__attribute__((noinline)) void whole(void) { first = take(16); }
__attribute__((noinline)) int points(int n) { point *all = take(n * sizeof *all); all[n - 1].x = n; use(all, all); return all[0].y; }
int main(int argc, char **argv) {
    struct table t = { 0, checked(64) };
    whole(); rows(&t, argc); cell(&t, argc); extend(make(argc)); two(argc);
    return points(argc) + t.rows[argc]->key + first->key;
}
";

#[test]
fn results_point_to_what_they_are_kept_in() {
    for opt in ["-O0", "-O2"] {
        for compiler in ["gcc", "clang"] {
            let Some((_dir, program)) = compile(&[compiler, opt], "a.c", C) else {
                continue;
            };
            let found = told(&program, "take");
            let found: Vec<[&str; 3]> = (found.iter())
                .map(|f| [f.0.as_str(), f.1.as_str(), f.2.as_str()])
                .collect();
            let wanted = [
                ["cell", "struct node", ""],
                ["checked", "[returned]", ""],
                ["extend", "struct node", "next"],
                ["make", "struct node", "n"],
                ["points", "point", "all"],
                ["rows", "struct node*", "rows"],
                ["two", "double", "a"],
                ["two", "double", "b"],
                ["whole", "struct node", "first"],
            ];
            // The table's pointer, loaded again in optimised code, has no type there.
            let is_told = |f: &&[&str; 3]| opt == "-O0" || f[0] != "cell";
            let told: Vec<_> = found.iter().filter(is_told).collect();
            let wanted: Vec<_> = wanted.iter().filter(is_told).collect();
            assert_eq!(told, wanted, "{compiler} {opt}");
        }
    }
}

const CPP: &str = "
#include <cstdlib>
#include <list>
#include <map>
#include <memory>
#include <new>
#include <unordered_map>
#include <vector>
__attribute__((noinline)) void *operator new(std::size_t n) { return std::malloc(n); }
void operator delete(void *p) noexcept { std::free(p); }
void operator delete(void *p, std::size_t) noexcept { std::free(p); }
struct item { long key; double weight; };
struct shape { virtual ~shape() {} virtual double area() { return 0; } };
struct circle : shape { double r; explicit circle(double r) : r(r) {} double area() override { return r; } };
struct plain { int a, b; };
shape *kept; plain *flat;
__attribute__((noinline)) void shapes(double r) { kept = new circle(r); }
__attribute__((noinline)) void plains(int r) { flat = new plain{r, r}; }
__attribute__((noinline)) void lists(std::list<item> &l) { l.push_back({1, 2}); }
__attribute__((noinline)) void vectors(std::vector<item> &v) { v.push_back({1, 2}); }
__attribute__((noinline)) void trees(std::map<long, item> &m) { m.emplace(1, item{1, 2}); }
__attribute__((noinline)) void tables(std::unordered_map<long, item> &t) { t.emplace(1, item{1, 2}); }
int main() {
    std::list<item> l; std::vector<item> v; std::map<long, item> m; std::unordered_map<long, item> t;
    shapes(2); plains(3); lists(l); vectors(v); trees(m); tables(t);
    return kept->area() + flat->a + v.size() + t.size();
}
";

#[test]
fn containers_and_constructors_tell_what_they_allocate() {
    for opt in ["-O0", "-O2"] {
        let Some((_dir, program)) = compile(&["g++", opt], "a.cpp", CPP) else {
            continue;
        };
        let found = told(&program, "_Znwm");
        let has = |of_type: &str| found.iter().any(|f| f.1.starts_with(of_type));
        // Optimised code may store the table of virtual functions together with a field, in a
        // vector register, which is not followed.
        let is_plain = opt == "-O0";
        assert!(!is_plain || has("struct circle"), "{opt}: {found:#?}");
        for of_type in [
            "struct plain",
            "struct item",
            "struct _List_node<item>",
            "struct _Rb_tree_node<",
            "struct _Hash_node<",
            "struct _Hash_node_base*",
        ] {
            assert!(has(of_type), "{opt}: no {of_type} in {found:#?}");
        }
        let all = found.iter().all(|f| !f.1.is_empty());
        assert!(all || !is_plain, "{opt}: {found:#?}");
    }
}

const RUST: &str = "
use std::collections::HashMap;
#[derive(Clone, Copy, Default)]
pub struct Item { key: u64, weight: f64 }
#[inline(never)]
fn vectors(n: usize) -> Vec<Item> { let mut v = Vec::with_capacity(n); v.push(Item::default()); v }
#[inline(never)]
fn boxes(n: usize) -> Box<[u32; 99]> { Box::new([n as u32; 99]) }
fn main() {
    let n = std::env::args().count();
    let mut table: HashMap<u32, (u16, u16)> = HashMap::new();
    table.insert(n as u32, (1, 2));
    println!(\"{} {} {}\", vectors(n)[0].key, boxes(n)[n], table.len());
}
";

#[test]
fn generics_of_rust_tell_what_they_allocate() {
    // (Without optimisation one function of the library allocates for all.)
    for opt in ["opt-level=3"] {
        let Some((_dir, program)) = compile(
            &[
                "rustc",
                "-C",
                opt,
                "-Crelocation-model=static",
                "-Clink-arg=-no-pie",
            ],
            "a.rs",
            RUST,
        ) else {
            return;
        };
        let data = std::fs::read(&program).unwrap();
        let file = object::File::parse(&*data).unwrap();
        let mut types = BTreeSet::new();
        for symbol in file.symbols() {
            let name = symbol.name().unwrap_or_default();
            if name.contains("__rust_alloc") && !name.contains("zeroed") {
                types.extend(told(&program, name).into_iter().map(|t| t.1));
            }
        }
        for of_type in ["a::Item", "Item", "[u32; 99]"] {
            println!("{opt}: {of_type}: {}", types.contains(of_type));
        }
        assert!(
            types.iter().any(|t| t.ends_with("Item")),
            "{opt}: {types:?}"
        );
    }
}

/// Element types, their sizes and fields, of all calls of a program.
fn layouts_of(program: &Path) -> BTreeSet<(String, u64, String)> {
    let data = std::fs::read(program).unwrap();
    let file = object::File::parse(&*data).unwrap();
    let section = file.section_by_name(".text").unwrap();
    let calls: BTreeSet<u64> = Decoder::with_ip(
        64,
        section.data().unwrap(),
        section.address(),
        DecoderOptions::NONE,
    )
    .into_iter()
    .filter(|i| i.is_call_near())
    .map(|i| i.next_ip() - 1)
    .collect();
    of_calls(program, &calls)
        .into_values()
        .filter_map(|told| told.allocated)
        .map(|a| (a.of_type, a.layout.bytes, a.layout.text()))
        .collect()
}

#[test]
fn fields_of_elements_are_told() {
    let Some((_dir, program)) = compile(&["g++", "-O0"], "a.cpp", CPP) else {
        return;
    };
    let layouts = layouts_of(&program);
    let of = |start: &str| {
        let found = layouts.iter().find(|l| l.0.starts_with(start));
        found.map(|l| (l.1, l.2.as_str()))
    };
    assert_eq!(of("struct item"), Some((16, "0:8:key,8:8:weight")));
    assert_eq!(
        of("struct _List_node<item>"),
        Some((32, "0:8:_M_next,8:8:_M_prev,16:8:key,24:8:weight"))
    );
    assert_eq!(of("struct circle"), Some((16, "0:8:_vptr.shape,8:8:r")));
    // The same from a file apart.
    let debug = program.with_extension("debug");
    let objcopy = |arguments: &[&std::ffi::OsStr]| {
        let done = std::process::Command::new("objcopy")
            .args(arguments)
            .status();
        assert!(done.unwrap().success());
    };
    objcopy(&[
        "--only-keep-debug".as_ref(),
        program.as_ref(),
        debug.as_ref(),
    ]);
    let mut link = std::ffi::OsString::from("--add-gnu-debuglink=");
    link.push(&debug);
    objcopy(&["--strip-all".as_ref(), link.as_ref(), program.as_ref()]);
    assert_eq!(layouts_of(&program), layouts);
    std::fs::remove_file(&debug).unwrap();
    assert_eq!(layouts_of(&program), BTreeSet::new());
}
