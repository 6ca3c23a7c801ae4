//! Programs whose calls of an allocator have known types.

use super::*;
use crate::objects::heap::call_frame::CallFrame;
use crate::objects::heap::names::AddressNames;
use iced_x86::{Decoder, DecoderOptions};
use object::{Object, ObjectSection, ObjectSymbol};
use std::process::Command;

/// The allocations that the calls of a function are found to make: the calling function, the type,
/// and the variable or field that keeps it.
fn told(program: &Path, allocator: &str) -> Vec<(String, String, String)> {
    let data = std::fs::read(program).unwrap();
    let file = object::File::parse(&*data).unwrap();
    let calls = calls_of_function(&file, allocator);
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

/// Addresses of a function.
fn of_function(file: &object::File<'_>, name: &str) -> std::ops::Range<u64> {
    let symbol = file.symbols().find(|s| s.name() == Ok(name));
    let symbol = symbol.unwrap_or_else(|| panic!("no {name}"));
    symbol.address()..symbol.address() + symbol.size()
}

/// The last byte of each call of a function.
fn calls_of_function(file: &object::File<'_>, name: &str) -> BTreeSet<u64> {
    let target = of_function(file, name).start;
    let section = file.section_by_name(".text").unwrap();
    let code = section.data().unwrap();
    Decoder::with_ip(64, code, section.address(), DecoderOptions::NONE)
        .into_iter()
        .filter(|i| i.is_call_near() && i.near_branch_target() == target)
        .map(|i| i.next_ip() - 1)
        .collect()
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
static inline void *zeroed(unsigned long n) { char *p = take(n); if (!p) abort(); return __builtin_memset(p, 0, n); }
__attribute__((noinline)) void *cleared(unsigned long n) { return zeroed(n); }
__attribute__((noinline)) void use(void *a, void *b) { *(char *)a = *(char *)b; }
__attribute__((noinline)) struct node *make(int key) { struct node *n = take(sizeof *n); n->key = key; n->next = 0; return n; }
__attribute__((noinline)) void extend(struct node *n) { n->next = take(sizeof *n); n->next->key = n->key; }
__attribute__((noinline)) void rows(struct table *t, int i) { t->rows = take(800); t->rows[i] = 0; }
__attribute__((noinline)) void cell(struct table *t, int i) { t->rows[i] = take(16); }
__attribute__((noinline)) void two(int n) { double *a = take(n), *b = take(n); a[0] = b[0] = n; use(a, b); }
__attribute__((noinline)) void whole(void) { first = take(16); }
__attribute__((noinline)) int points(int n) { point *all = take(n * sizeof *all); all[n - 1].x = n; use(all, all); return all[0].y; }
__attribute__((noinline)) void spilled(int n) {
    point *p = zeroed(n), *q = zeroed(2 * n);
    struct node *r = zeroed(3 * n);
    __asm__ volatile(\"\" ::: \"rbx\", \"r12\", \"r13\", \"r14\", \"r15\");
    use(p, q); use(q, r); use(r, p);
}
int main(int argc, char **argv) {
    struct table t = { 0, checked(64) };
    spilled(argc); use(cleared(64), argv);
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
                ["cleared", "[returned]", ""],
                ["extend", "struct node", "next"],
                ["make", "struct node", "n"],
                ["points", "point", "all"],
                ["rows", "struct node*", "rows"],
                ["spilled", "point", "p"],
                ["spilled", "point", "q"],
                ["spilled", "struct node", "r"],
                ["two", "double", "a"],
                ["two", "double", "b"],
                ["whole", "struct node", "first"],
            ];
            // The table's pointer, loaded again in optimised code, has no type there. Without
            // optimisation the inlined function is a function.
            let is_told = |f: &&[&str; 3]| match opt {
                "-O0" => !["spilled", "cleared", "zeroed"].contains(&f[0]),
                _ => f[0] != "cell",
            };
            let told: Vec<_> = found.iter().filter(is_told).collect();
            let wanted: Vec<_> = wanted.iter().filter(is_told).collect();
            assert_eq!(told, wanted, "{compiler} {opt}");
        }
    }
}

#[test]
fn sites_are_outside_of_the_users_allocators() {
    for opt in ["-O0", "-O2"] {
        let Some((_dir, program)) = compile(&["gcc", opt], "a.c", C) else {
            continue;
        };
        let data = std::fs::read(&program).unwrap();
        let file = object::File::parse(&*data).unwrap();
        let path = std::sync::Arc::new(program.clone());
        // The first call of `callee` in `caller`.
        let call = |caller: &str, callee: &str| {
            let calls = calls_of_function(&file, callee);
            let inside = of_function(&file, caller);
            let address = calls.range(inside).next();
            CallFrame {
                file: path.clone(),
                address: *address.unwrap_or_else(|| panic!("{opt}: {callee} in {caller}")),
                python: None,
            }
        };
        // Optimised code has no function `zeroed`.
        let allocation = |caller: &str| match opt {
            "-O0" => vec![call("zeroed", "take"), call(caller, "zeroed")],
            _ => vec![call(caller, "take")],
        };
        let mut cleared = allocation("cleared");
        cleared.push(call("main", "cleared"));
        let original = |_: &Path, _: u64| None;
        let named = AddressNames::new(&original).sites(&[allocation("spilled"), cleared]);
        let names: Vec<&str> = named.sites.iter().map(|s| s.name.as_str()).collect();
        assert!(names[0].starts_with("spilled a.c:"), "{opt}: {names:?}");
        assert!(names[1].starts_with("main a.c:"), "{opt}: {names:?}");
    }
}

const FORTRAN: &str = "
module fields
  type cell
    real(8) :: heat
    integer :: kind
  end type
  type(cell), allocatable :: cells(:)
  real(8), allocatable :: sums(:, :)
contains
  subroutine build(n)
    integer, intent(in) :: n
    allocate (cells(n), sums(n, n))
  end subroutine
end module
program main
  use fields
  call build(command_argument_count())
  print *, size(cells), size(sums)
end program
";

#[test]
fn arrays_of_fortran_have_the_type_of_their_elements() {
    for opt in ["-O0", "-O2"] {
        // Only calls of a function in the file itself are looked at, and nothing runs.
        let allocator = "-Wl,--defsym=malloc=MAIN__";
        let Some((_dir, program)) = compile(&["gfortran", opt, allocator], "a.f90", FORTRAN) else {
            continue;
        };
        let found = told(&program, "MAIN__");
        let of_build = found.iter().filter(|f| f.0.ends_with("build"));
        let found: Vec<[&str; 2]> = of_build.map(|f| [f.1.as_str(), f.2.as_str()]).collect();
        let wanted = [["cell", "cells"], ["real(kind=8)", "sums"]];
        assert_eq!(found, wanted, "{opt}");
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
