//! Loads by instruction, compared with Valgrind's lackey: `mgz-record --count` counts the
//! executions of each load, and lackey prints each access after its instruction. The numbers agree
//! exactly in every instrumented function, including reads of linkage tables.
//!
//! Some accesses count as loads for only one of the two tools. They are compared as follows:
//!
//! - `pop`, `ret` and `leave` read the stack implicitly. Lackey includes these reads; the test
//!   excludes them by the kind of instruction (`mgz_tests::loads`, which shares no code with the
//!   rewriter).
//! - An instruction that lackey shows as several reads (locked ones, wide ones in parts) is one
//!   load per execution.
//! - String instructions with a prefix and gathers are one row, or one per lane. They are not
//!   compared.
//! - Constant loads that another record represents are counted under another load of their region,
//!   so the test compares sums by function.
//! - Lackey attributes the load of a linkage table's entry to the entry; mgz attributes it to the
//!   calls of the entry or to another load of the call's region. The test counts each as a load of
//!   the calling function, which lackey's preceding instruction identifies.
//! - The head of a table has two loads, before the loader at a first call. The test prints them.
//! - Loads in code that the rewriter did not instrument are not counted; these programs have no
//!   such code.

use arrow_array::cast::AsArray;
use arrow_array::types::{UInt32Type, UInt64Type};
use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic};
use mgz_annotations_schema::Sidecar;
use mgz_annotations_schema::manifest::COUNTS;
use mgz_tests::loads::{Reads, branches_to, classify, linkage_word};
use mgz_tests::session;
use mgz_tests::tools::{self, LIMIT};
use mgz_tests::{programs, rows};
use object::{Object, ObjectSection};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::collections::{BTreeMap, HashMap};
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Executed loads by the instruction's link-time address.
type Loads = BTreeMap<u64, u64>;

/// Code of a file.
struct Code {
    sections: Vec<(u64, Vec<u8>)>,
    /// Linkage tables.
    linkage: Vec<(u64, u64)>,
}

/// Length in bytes of the head of a lazily bound table.
const HEAD: u64 = 16;

impl Code {
    fn read(path: &Path) -> Code {
        let data = std::fs::read(path).unwrap();
        let file = object::File::parse(&*data).unwrap();
        let code = file
            .sections()
            .filter(|s| s.kind() == object::SectionKind::Text);
        let sections = code.map(|s| (s.address(), s.data().unwrap().to_vec()));
        let tables = file.sections().filter(|s| {
            s.name()
                .is_ok_and(|n| n.starts_with(".plt") || n.starts_with(".iplt"))
        });
        let linkage = tables.map(|s| (s.address(), s.address() + s.size()));
        Code {
            sections: sections.collect(),
            linkage: linkage.collect(),
        }
    }

    fn bytes(&self, ip: u64) -> Option<&[u8]> {
        let within = |s: &&(u64, Vec<u8>)| (s.0..s.0 + s.1.len() as u64).contains(&ip);
        let (start, bytes) = self.sections.iter().find(within)?;
        bytes.get((ip - start) as usize..)
    }

    fn instruction(&self, ip: u64) -> Option<Instruction> {
        let bytes = self.bytes(ip)?;
        let insn = Decoder::with_ip(64, bytes, ip, DecoderOptions::NONE).decode();
        (!insn.is_invalid()).then_some(insn)
    }

    fn is_linkage(&self, ip: u64) -> bool {
        self.linkage.iter().any(|&(a, b)| (a..b).contains(&ip))
    }

    /// Returns whether an address is in the head of a table. A head begins with a push, entries do
    /// not.
    fn is_head(&self, ip: u64) -> bool {
        let table = self.linkage.iter().find(|&&(a, b)| (a..b).contains(&ip));
        table.is_some_and(|&(start, _)| {
            let first = self.instruction(start);
            ip < start + HEAD && first.is_some_and(|i| i.mnemonic() == Mnemonic::Push)
        })
    }

    /// Returns whether a call or jump reads through a linkage table.
    fn calls_by_table(&self, insn: &Instruction) -> bool {
        let entry = branches_to(insn).filter(|&to| self.is_linkage(to));
        entry.is_some_and(|entry| {
            self.bytes(entry)
                .is_some_and(|b| linkage_word(b, entry).is_some())
        })
    }
}

/// Loads that both tools have: by instruction, and those of linkage tables by the calling
/// instruction.
#[derive(Default)]
struct Seen {
    loads: Loads,
    /// Those that are loads of tables.
    by_table: u64,
    /// Loads of heads of tables.
    binding: u64,
}

/// The load address of a file, from the loader's log of a run.
fn base(log: &Path, name: &str) -> u64 {
    let folder = log.parent().unwrap();
    let start = log.file_name().unwrap().to_str().unwrap().to_owned();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(&start) {
            continue;
        }
        let text = std::fs::read_to_string(entry.path()).unwrap();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if line.contains(name) && line.contains("generating link map") {
                let place = lines.next().unwrap();
                let (_, rest) = place.split_once("base: 0x").unwrap();
                let digits = rest.split_whitespace().next().unwrap();
                return u64::from_str_radix(digits, 16).unwrap();
            }
        }
    }
    panic!("the loader does not tell of {name}");
}

/// Address of a file in the memory of a run under valgrind.
enum Mapped<'a> {
    At(u64),
    /// A library of this name; the loader logs its address.
    Library(&'a str),
}

/// Loads of a file according to lackey.
fn by_lackey(program: &Path, args: &[&str], file: &Path, mapped: Mapped, dir: &Path) -> Seen {
    let (log, loader) = (dir.join("lackey.log"), dir.join("loader"));
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=lackey", "--trace-mem=yes"])
        .arg(format!("--log-file={}", log.display()))
        .arg(program)
        .args(args);
    if let Mapped::Library(_) = mapped {
        command
            .env("LD_DEBUG", "files")
            .env("LD_DEBUG_OUTPUT", &loader);
    }
    tools::succeed(&mut command, LIMIT).unwrap();
    let base = match mapped {
        Mapped::At(base) => base,
        Mapped::Library(name) => base(&loader, name),
    };
    let code = Code::read(file);
    let mut seen = Seen::default();
    // The number of reads of each instruction, with the last preceding instruction outside the
    // tables.
    let mut executed: HashMap<(u64, u64), u64> = HashMap::new();
    let (mut current, mut caller, mut counted) = (0, 0, true);
    for line in std::io::BufReader::new(std::fs::File::open(&log).unwrap()).lines() {
        let Ok(line) = line else { continue };
        let Some((kind, rest)) = line.split_at_checked(3) else {
            continue;
        };
        let Some((address, _)) = rest.split_once(',') else {
            continue;
        };
        match kind {
            "I  " => {
                let address = u64::from_str_radix(address.trim(), 16).unwrap_or(0);
                current = address.wrapping_sub(base);
                if !code.is_linkage(current) {
                    caller = current;
                }
                counted = false;
            }
            " L " | " M " if !counted => {
                counted = true;
                *executed.entry((current, caller)).or_default() += 1;
            }
            _ => {}
        }
    }
    std::fs::remove_file(&log).unwrap();
    let mut factory = InstructionInfoFactory::new();
    for ((ip, caller), n) in executed {
        let Some(insn) = code.instruction(ip) else {
            continue;
        };
        if code.is_head(ip) {
            seen.binding += n;
        } else if code.is_linkage(ip) {
            if insn.is_jmp_near_indirect() {
                seen.by_table += n;
                *seen.loads.entry(caller).or_default() += n;
            }
        } else if compared(&classify(&insn, &mut factory)) {
            *seen.loads.entry(ip).or_default() += n;
        }
    }
    seen
}

/// Returns whether each execution counts as one load for both tools.
fn compared(reads: &Reads) -> bool {
    match reads {
        Reads::Plain(_) | Reads::BitString(_) | Reads::Xlat => true,
        Reads::String { repeated, .. } => !repeated,
        Reads::None | Reads::Linkage(_) | Reads::Gather(_) => false,
    }
}

/// Loads of a sidecar's file according to `mgz-record --count`.
fn by_count(trace: &Path, original: &Path, sidecar: &Sidecar) -> Seen {
    let module = rows::read_trace(trace).unwrap().module(&sidecar.id_hex());
    let module = module.expect("the file is in the manifest");
    let code = Code::read(original);
    let mut seen = Seen::default();
    let mut factory = InstructionInfoFactory::new();
    let file = std::fs::File::open(trace.join(COUNTS)).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(file)
        .unwrap()
        .build();
    for batch in reader.unwrap() {
        let batch = batch.unwrap();
        let column = |name: &str| batch.column_by_name(name).unwrap();
        let modules = column("module").as_primitive::<UInt32Type>();
        let sites = column("site").as_primitive::<UInt32Type>();
        let loads = column("loads").as_primitive::<UInt64Type>();
        for i in 0..batch.num_rows() {
            if modules.value(i) != u32::from(module) || loads.value(i) == 0 {
                continue;
            }
            let ip = sidecar.sites[sites.value(i) as usize].ip;
            let insn = code.instruction(ip).unwrap();
            if code.calls_by_table(&insn) || compared(&classify(&insn, &mut factory)) {
                *seen.loads.entry(ip).or_default() += loads.value(i);
            }
        }
    }
    seen
}

/// Sums of a comparison.
#[derive(Debug, Default)]
struct Compared {
    /// Loads that both tools have.
    same: u64,
    /// Lackey's loads of linkage tables, and those of the heads of tables.
    by_table: u64,
    binding: u64,
    /// Loads in code that was not instrumented.
    alone: u64,
    /// Functions with different numbers of loads: name, lackey's number, ours.
    other: Vec<(String, u64, u64)>,
}

fn compare(theirs: &Seen, ours: &Seen, sidecar: &Sidecar) -> Compared {
    let function = |ip: &u64| {
        let before = sidecar.functions.partition_point(|f| f.start <= *ip);
        before
            .checked_sub(1)
            .filter(|&f| *ip < sidecar.functions[f].end)
    };
    let mut sums: BTreeMap<Option<usize>, [u64; 2]> = BTreeMap::new();
    for (which, seen) in [theirs, ours].into_iter().enumerate() {
        for (ip, n) in &seen.loads {
            sums.entry(function(ip)).or_default()[which] += n;
        }
    }
    let mut all = Compared {
        by_table: theirs.by_table,
        binding: theirs.binding,
        ..Compared::default()
    };
    for (number, [there, here]) in sums {
        let function = number.map(|f| &sidecar.functions[f]);
        if function.is_none_or(|f| f.clone_start == 0) && here == 0 {
            all.alone += there;
            continue;
        }
        all.same += there.min(here);
        if there != here {
            let name = function.map_or("", |f| sidecar.string(f.name));
            let place = function.map_or(0, |f| f.start);
            all.other.push((format!("{name} {place:#x}"), there, here));
        }
    }
    all
}

fn have_valgrind() -> bool {
    let have = tools::have("valgrind");
    if !have {
        tools::skip("valgrind is not installed");
    }
    have
}

fn count(app: &Path, args: &[&str], dir: &Path) -> PathBuf {
    let trace = dir.join("counts");
    let options = ["--count", "--force", "--no-aslr"];
    tools::succeed(
        &mut session::record_command(&options, &trace, app, args),
        LIMIT,
    )
    .unwrap();
    trace
}

/// Compares a program that is built with these flags.
fn of_program(name: &str, flags: &str) -> Option<(Compared, Sidecar)> {
    of_kind(name, &[flags], "ring")
}

/// Like [`of_program`], for a file that is instrumented for these modes.
fn of_kind(name: &str, flags: &[&str], modes: &str) -> Option<(Compared, Sidecar)> {
    let dir = tempfile::tempdir().unwrap();
    let variant = programs::Variant {
        clang: false,
        opt: "2",
        pie: false,
    };
    let original = programs::build(name, variant, flags, dir.path()).unwrap()?;
    let app = session::instrument(&original, "soft", &["--for", modes]).unwrap();
    let trace = count(&app.path, &[], dir.path());
    let ours = by_count(&trace, &original, &app.sidecar);
    let theirs = by_lackey(&original, &[], &original, Mapped::At(0), dir.path());
    let all = compare(&theirs, &ours, &app.sidecar);
    println!("{name} {flags:?} for {modes}: {all:?}");
    Some((all, app.sidecar))
}

#[test]
fn loads_of_programs_are_those_of_lackey() {
    if !have_valgrind() {
        return;
    }
    for name in ["hash", "objects"] {
        let Some((all, _)) = of_program(name, "-no-pie") else {
            continue;
        };
        assert_eq!(all.other, [], "{name}");
        assert!(all.same > 5000 && all.by_table > 500, "{name}: {all:?}");
        // A function of another file is bound once.
        assert!(all.alone == 0 && all.binding < 50, "{name}: {all:?}");
    }
}

/// A static program contains the C library. The program's own functions agree exactly, and so do
/// most of the library's. The exceptions are functions that start the program and handle its
/// environment: environment variables (valgrind adds some), the auxiliary vector (valgrind hides
/// the vdso and its symbols), caches and features of the processor (valgrind's has no AVX-512).
/// These decide which copies of `memcpy`, `strlen` … run, and how often the allocator is called.
#[test]
fn loads_of_a_static_program_are_those_of_lackey() {
    if !have_valgrind() {
        return;
    }
    let (Some((all, _)), Some((_, dynamic))) =
        (of_program("hash", "-static"), of_program("hash", "-no-pie"))
    else {
        return;
    };
    let of_program = |name: &str| {
        let mut own = dynamic.functions.iter().map(|f| dynamic.string(f.name));
        // (The compiler's support functions have these names in both.)
        !name.starts_with('_') && own.any(|own| own == name)
    };
    for (place, there, here) in &all.other {
        let name = place.split_whitespace().next().unwrap_or("");
        assert!(!of_program(name), "{place}: lackey {there}, mgz {here}");
    }
    assert!(all.by_table > 500 && all.alone == 0, "{all:?}");
    let differing: u64 = all.other.iter().map(|(_, a, b)| a.abs_diff(*b)).sum();
    assert!(differing * 3 < all.same, "{all:?}");
}

#[test]
fn loads_of_sqlite_under_a_query_are_those_of_lackey() {
    let program = Path::new("/usr/bin/sqlite3");
    if !have_valgrind() {
        return;
    }
    if !program.exists() {
        return tools::skip("sqlite3 is not installed");
    }
    let dir = tempfile::tempdir().unwrap();
    let original = dir.path().join("sqlite3");
    std::fs::copy(program, &original).unwrap();
    let script = dir.path().join("query");
    let query = "create table t(a integer primary key, b text, c real);
with recursive n(i) as (select 1 union all select i+1 from n where i<300) insert into t select i, 'row '||i, i*0.5 from n;
select count(*), sum(c), max(b) from t where a % 3 = 1;
select b from t order by c desc limit 3;
";
    std::fs::write(&script, query).unwrap();
    let read = format!(".read {}", script.display());
    let args = ["-init", "/dev/null", ":memory:", &read];
    let app = session::instrument(&original, "soft", &["--libs=libsqlite3.so.0"]).unwrap();
    let trace = count(&app.path, &args, dir.path());
    let manifest = rows::read_trace(&trace).unwrap().manifest;
    let module = manifest
        .modules
        .iter()
        .find(|m| m.path.contains("libsqlite3"));
    let module = module.expect("the library is in the manifest");
    let sidecar = Sidecar::read(&trace.join(&module.sidecar)).unwrap();
    let library = PathBuf::from(&sidecar.header.input.path);
    let ours = by_count(&trace, &library, &sidecar);
    let theirs = by_lackey(
        &original,
        &args,
        &library,
        Mapped::Library("libsqlite3.so"),
        dir.path(),
    );
    let all = compare(&theirs, &ours, &sidecar);
    println!("libsqlite3: {all:?}");
    // The test leaves out functions without room for a jump that are called through pointers, as
    // the rewriter reports them.
    let unreachable = sidecar.header.report["functions"]["entered_late"]
        .as_u64()
        .unwrap_or(0);
    let known = all.other.iter().all(|(_, there, here)| here < there);
    assert!(known && all.other.len() as u64 <= unreachable, "{all:?}");
    let missing: u64 = all.other.iter().map(|(_, there, here)| there - here).sum();
    assert!(missing * 10_000 < all.same, "{all:?}");
    assert!(all.same > 100_000 && all.by_table > 10_000, "{all:?}");
    assert_eq!(all.alone, 0);
}

/// Direct clones continue in clones for all targets of pointers: labels, cases of a switch, and
/// functions without room for an entry jump.
#[test]
fn loads_behind_pointers_are_those_of_lackey() {
    if !have_valgrind() {
        return;
    }
    for (name, flags, late) in [
        ("entries", &["-falign-functions=1"][..], 2),
        (
            "entries",
            &["-falign-functions=1", "-fcf-protection", "-fno-jump-tables"],
            2,
        ),
        ("resumed", &["-std=c++20"], 0),
    ] {
        for modes in ["ring", "burst"] {
            let Some((all, sidecar)) = of_kind(name, flags, modes) else {
                continue;
            };
            assert_eq!(all.other, [], "{name} {flags:?} for {modes}");
            assert!(all.same > 5000, "{name} {flags:?} for {modes}: {all:?}");
            let report = &sidecar.header.report["not_instrumented"];
            assert_eq!(report["entered_late"], late, "{name} {flags:?} for {modes}");
        }
    }
}

/// Some loads are missing: those of functions that the C library calls in the original code and
/// that have no room for a jump into the clone. The recorder does not claim to have them.
#[test]
fn loads_that_run_unseen_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let variant = programs::Variant {
        clang: false,
        opt: "2",
        pie: false,
    };
    let build = |flags: &[&str]| programs::build("entries", variant, flags, dir.path()).unwrap();
    for (flags, complete) in [
        (&["-DFROM_OUTSIDE", "-falign-functions=1"][..], false),
        (&["-falign-functions=16"], true),
    ] {
        let Some(original) = build(flags) else {
            return;
        };
        for modes in ["ring", "burst"] {
            let app = session::instrument(&original, "soft", &["--for", modes]).unwrap();
            let trace = dir.path().join("trace");
            let options = ["--mode", "full", "--force"];
            let out = session::record_command(&options, &trace, &app.path, &[])
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&out.stderr);
            assert!(out.status.success(), "{said}");
            let last = said.lines().last().unwrap_or("");
            assert_ne!(
                last.contains("not all that were executed"),
                complete,
                "{said}"
            );
            let told = "where calls from other code execute loads before the first entry jump";
            assert_ne!(said.contains(told), complete, "{said}");
            let manifest = rows::read_trace(&trace).unwrap().manifest;
            let late = manifest.modules[0].not_instrumented.entered_late;
            assert_eq!(late > 0, !complete, "{late}");
            let unseen = manifest.totals.dropped.get("jumps_unseen");
            assert_eq!(unseen.copied().unwrap_or(0), 0);
        }
    }
}

/// Address at which valgrind maps a position-independent program.
const VALGRIND_PIE_BASE: u64 = 0x10_8000;

/// Programs of the system, with work that takes lackey seconds. `{}` stands for a file of text.
const SYSTEM_PROGRAMS: [(&str, &[&str]); 9] = [
    ("/usr/bin/gzip", &["-kfc", "{}"]),
    ("/usr/bin/bzip2", &["-kfc", "{}"]),
    ("/usr/bin/xz", &["-0", "-kfc", "{}"]),
    ("/usr/bin/zstd", &["-qfc", "-T1", "{}"]),
    (
        "/usr/bin/mawk",
        &["{ n += NF; w[$1]++ } END { print n }", "{}"],
    ),
    (
        "/usr/bin/perl",
        &[
            "-ne",
            "$n{$_}++ for split; END { print scalar keys %n }",
            "{}",
        ],
    ),
    (
        "/usr/bin/bash",
        &[
            "-c",
            "for i in {1..300}; do a[i]=$((i * 7)); done; echo ${#a[@]}",
        ],
    ),
    (
        "/usr/bin/luajit",
        &[
            "-joff",
            "-e",
            "local t = {} for i = 1, 9999 do t[i % 97] = i end",
        ],
    ),
    (
        "/usr/bin/python3.11",
        &[
            "-S",
            "-c",
            "print(len({i * 7 % 1009: i for i in range(9999)}))",
        ],
    ),
];

/// Counts of both kinds of files are those of lackey, except for the effects of the environment:
/// the program's name, environment variables, and seeds of hash tables.
#[test]
#[ignore = "takes minutes and needs programs of the system"]
fn loads_of_system_programs_are_those_of_lackey() {
    for (program, args) in SYSTEM_PROGRAMS {
        let dir = tempfile::tempdir().unwrap();
        let text = dir.path().join("text");
        let lines = (0..900u32).map(|n| format!("{} word {}\n", n * n % 7919, n % 13));
        std::fs::write(&text, lines.collect::<String>()).unwrap();
        let text = text.to_str().unwrap();
        let args: Vec<&str> = args
            .iter()
            .map(|a| if *a == "{}" { text } else { a })
            .collect();
        if !Path::new(program).exists() {
            continue;
        }
        let original = dir.path().join(Path::new(program).file_name().unwrap());
        std::fs::copy(program, &original).unwrap();
        let data = std::fs::read(&original).unwrap();
        let is_pie = object::File::parse(&*data).unwrap().kind() == object::ObjectKind::Dynamic;
        let base = if is_pie { VALGRIND_PIE_BASE } else { 0 };
        let theirs = by_lackey(&original, &args, &original, Mapped::At(base), dir.path());
        for modes in ["ring", "burst"] {
            let app = session::instrument(&original, "soft", &["--for", modes]).unwrap();
            let trace = count(&app.path, &args, dir.path());
            let ours = by_count(&trace, &original, &app.sidecar);
            let all = compare(&theirs, &ours, &app.sidecar);
            let manifest = rows::read_trace(&trace).unwrap().manifest;
            let module = &manifest.modules[0];
            println!(
                "{program} for {modes}: {} same, {} in code left alone, {} functions differ, late {}, dropped {:?}",
                all.same,
                all.alone,
                all.other.len(),
                module.not_instrumented.entered_late,
                manifest.totals.dropped,
            );
            for (name, there, here) in &all.other {
                println!("    {name}: lackey {there}, mgz {here}");
            }
            // Valgrind's variables and the seeds of hash tables account for the rest.
            let apart: u64 = all.other.iter().map(|(_, a, b)| a.abs_diff(*b)).sum();
            assert!(
                apart <= all.same / 100 + 20,
                "{program} for {modes}: {all:?}"
            );
            assert!(
                all.alone <= all.same / 1000,
                "{program} for {modes}: {all:?}"
            );
            std::fs::remove_file(&app.path).unwrap();
        }
    }
}
