//! Coverage: at least 99% of the loads that an instrumented file executes are recorded or implied.
//! The single-step reference counts them over all code of the file, so functions that mgz does not
//! instrument and code outside functions count as lost. The word that an entry of a linkage table
//! (`.plt`) reads is a load of the call. The code from there into the loader at a first call is
//! counted and shown separately. Sharing payloads loses nothing: a trace with one record for each
//! load has the same rows.

use mgz_annotations_schema::manifest::Manifest;
use mgz_annotations_schema::sidecar::{NONE, Sidecar, SiteFlags};
use mgz_tests::age::oldest_first;
use mgz_tests::events::{EventKind, StepperEvent, WatchedCode};
use mgz_tests::programs::{self, Variant};
use mgz_tests::rows::{self, RecordedRow, Trace};
use mgz_tests::session::{self, Instrumented, record_command, record_program, recorded_run, step};
use mgz_tests::tools::{self, LIMIT};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Object, ObjectSection};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::Command;

const BUILT: Variant = Variant::O2;

/// Executable segments of a file, link-time.
fn code(path: &Path) -> Vec<(u64, u64)> {
    let data = std::fs::read(path).unwrap();
    let file = ElfFile64::<object::Endianness>::parse(&*data).unwrap();
    let endian = file.endian();
    let headers = file
        .elf_header()
        .program_headers(endian, &*data)
        .unwrap()
        .iter();
    headers
        .filter(|h| h.p_type(endian) == object::elf::PT_LOAD && h.p_flags(endian).0 & 1 != 0)
        .map(|h| (h.p_vaddr(endian), h.p_vaddr(endian) + h.p_memsz(endian)))
        .collect()
}

/// Sections of the linker's own jumps.
fn linkage(path: &Path) -> Vec<(u64, u64)> {
    let data = std::fs::read(path).unwrap();
    let file = object::File::parse(&*data).unwrap();
    file.sections()
        .filter(|s| s.name().is_ok_and(|n| n.starts_with(".plt")))
        .map(|s| (s.address(), s.address() + s.size()))
        .collect()
}

/// The head of a lazily bound table: two loads before the loader, once for each function.
const BINDING: &str = "head of a linkage table";
/// Length of the head in bytes.
const HEAD: u64 = 16;

/// Loads of a run by outcome.
#[derive(Default)]
struct Coverage {
    loads: u64,
    recorded: u64,
    implied: u64,
    /// By reason.
    lost: BTreeMap<String, u64>,
    /// Loads that ran in original code, by function and instruction (rows of implied loads left out).
    original: Vec<(i64, String)>,
}

impl Coverage {
    fn share(&self) -> f64 {
        let binding = self.lost.get(BINDING).copied().unwrap_or(0);
        (self.recorded + self.implied) as f64 / (self.loads - binding).max(1) as f64
    }

    fn report(&self, name: &str) {
        println!(
            "{name}: {} loads, {:.2}% recorded, {:.2}% implied",
            self.loads,
            100.0 * self.recorded as f64 / self.loads as f64,
            100.0 * self.implied as f64 / self.loads as f64
        );
        for (why, n) in &self.lost {
            println!("    {:.3}% {why}", 100.0 * *n as f64 / self.loads as f64);
        }
        for (n, place) in self
            .original
            .iter()
            .take(if tools::full_matrix() { 8 } else { 0 })
        {
            println!("        {n} at {place}");
        }
    }
}

/// Measures the loads that should be in the trace, those that are, and the reasons for the rest.
/// The two runs may differ by `stray` loads.
fn measure(
    app: &Instrumented,
    args: &[&str],
    input: Option<&[u8]>,
    dir: &Path,
    stray: i64,
) -> Coverage {
    measure_in(app, app, args, input, dir, stray)
}

/// Like [`measure`], for a library of the program.
fn measure_in(
    program: &Instrumented,
    app: &Instrumented,
    args: &[&str],
    input: Option<&[u8]>,
    dir: &Path,
    stray: i64,
) -> Coverage {
    let watch = WatchedCode {
        path: app.path.clone(),
        ranges: code(&app.original)
            .into_iter()
            .map(|(a, b)| (a, b, false))
            .collect(),
        ..WatchedCode::default()
    };
    let file = dir.join("input");
    std::fs::write(&file, input.unwrap_or_default()).unwrap();
    let mut all: Vec<&str> = args.to_vec();
    let path = file.display().to_string();
    if input.is_some() {
        all.push(&path);
    }
    // Settings that must be the same in two runs.
    let fixed = [
        ("PERL_HASH_SEED", "0"),
        ("PERL_PERTURB_KEYS", "0"),
        ("PYTHONHASHSEED", "0"),
        ("PYTHONDONTWRITEBYTECODE", "1"),
    ];
    let mut off = record_command(
        &["--mode", "off", "--no-aslr"],
        &dir.join("trace.ref"),
        &program.path,
        &all,
    );
    off.envs(fixed);
    let (_, events) = step(dir, &watch, &program.path, &[], &off).unwrap();
    let trace = dir.join("trace.got");
    tools::run_limited(
        record_command(
            &["--mode", "full", "--no-aslr"],
            &trace,
            &program.path,
            &all,
        )
        .envs(fixed),
        LIMIT,
    )
    .unwrap();
    count(
        &app.sidecar,
        &linkage(&app.original),
        &events,
        &rows::read_trace(&trace).unwrap(),
        stray,
    )
}

fn count(
    sidecar: &Sidecar,
    linkage: &[(u64, u64)],
    events: &[StepperEvent],
    trace: &Trace,
    stray: i64,
) -> Coverage {
    let mut coverage = Coverage::default();
    let module = trace.module(&sidecar.id_hex()).unwrap();
    // All accesses of an instruction have the same outcome.
    let sites: HashMap<u64, u8> = sidecar
        .sites
        .iter()
        .filter(|s| s.flags & SiteFlags::STORE == 0)
        .map(|s| (s.ip, s.flags))
        .collect();
    let mut expected: HashMap<u64, i64> = HashMap::new();
    let mut may_be_implied = 0i64;
    let in_table = |ip: u64| linkage.iter().any(|r| (r.0..r.1).contains(&ip));
    let in_head = |ip: u64| linkage.iter().any(|r| (r.0..r.0 + HEAD).contains(&ip));
    // A direct call of an entry was counted together with the entry's load.
    let mut before: HashMap<(u32, u32), (u64, u64)> = HashMap::new();
    for event in events.iter().filter(|e| e.kind == EventKind::Original) {
        let last = before.insert((event.process, event.thread), (event.ip, event.value));
        if in_table(event.ip) && last.is_some_and(|l| l.1 == event.value && !in_table(l.0)) {
            continue;
        }
        coverage.loads += 1;
        let function = sidecar
            .functions
            .iter()
            .find(|f| (f.start..f.end).contains(&event.ip));
        let why = match (function, sites.get(&event.ip)) {
            (None, _) if in_head(event.ip) => Some(BINDING.to_owned()),
            (None, _) if in_table(event.ip) => Some("entry of a linkage table".to_owned()),
            (None, _) => Some("in no function".to_owned()),
            (Some(f), _) if f.left != NONE => {
                Some(format!("function left: {}", sidecar.string(f.left)))
            }
            (_, None) => Some("not understood as code".to_owned()),
            (_, Some(flags)) if flags & SiteFlags::UNRECORDED != 0 => {
                Some("the probe has no form for it".to_owned())
            }
            (_, Some(flags)) if flags & SiteFlags::IMPLIED != 0 => {
                may_be_implied += 1;
                None
            }
            _ => {
                *expected.entry(event.ip).or_default() += 1;
                None
            }
        };
        if let Some(why) = why {
            *coverage.lost.entry(why).or_default() += 1;
        }
    }
    let own = trace
        .threads
        .values()
        .flatten()
        .filter(|r| r.module == module && !r.store);
    for row in own {
        coverage.recorded += 1;
        coverage.implied += u64::from(row.implied_const);
        *expected.entry(row.ip).or_default() -= 1;
    }
    let unseen: i64 = expected
        .values_mut()
        .filter(|n| **n < 0)
        .map(|n| -std::mem::take(n))
        .sum();
    assert!(
        unseen <= stray,
        "{unseen} rows of loads that the reference has not seen"
    );
    coverage.recorded -= unseen as u64;
    let original = expected.values().sum::<i64>() + may_be_implied - coverage.implied as i64;
    let name = |ip: u64| {
        sidecar
            .functions
            .iter()
            .find(|f| (f.start..f.end).contains(&ip))
            .map_or(String::new(), |f| {
                format!("{} + {:#x}", sidecar.string(f.name), ip - f.start)
            })
    };
    coverage.original = expected
        .iter()
        .filter(|e| *e.1 > 0)
        .map(|(&ip, &n)| (n, format!("{ip:#x} ({})", name(ip))))
        .collect();
    coverage.original.sort_unstable_by(|a, b| b.cmp(a));
    if original != 0 {
        coverage.lost.insert(
            "ran in original code".into(),
            u64::try_from(original).expect("no more implied loads than were executed"),
        );
    }
    assert_eq!(
        coverage.loads,
        coverage.recorded + coverage.implied + coverage.lost.values().sum::<u64>()
    );
    coverage
}

#[test]
fn nearly_every_executed_load_is_in_the_trace() {
    let mut low = Vec::new();
    let mut judge = |name: &str, coverage: Coverage| {
        coverage.report(name);
        let least = match name {
            "goto" => 0.9,
            _ => 0.99,
        };
        if coverage.share() < least {
            low.push(format!(
                "{name}: {:.2}%: {:?}",
                100.0 * coverage.share(),
                coverage.lost
            ));
        }
    };
    // The target blocks of a computed goto may be too short for a jump into the clone.
    for name in [
        "loops", "hash", "switches", "goto", "throws", "objects", "calls", "recurse", "bignum",
        "gathers",
    ] {
        let dir = tempfile::tempdir().unwrap();
        let Some(original) = programs::build(name, BUILT, &[], dir.path()).unwrap() else {
            continue;
        };
        let app = session::instrument(&original, "soft", &[]).unwrap();
        judge(name, measure(&app, &[], None, dir.path(), 0));
    }
    let text: Vec<u8> = mgz_tests::inputs::mixed_data(12_000, 5)
        .iter()
        .map(|b| if *b == 0 { b'0' } else { *b })
        .collect();
    let mut real: Vec<(&str, &[&str], bool)> = vec![
        ("/usr/bin/gzip", &["-c"], true),
        (
            "/usr/bin/mawk",
            &["{ n += NF; w[$1]++ } END { print n, length(w) }"],
            true,
        ),
    ];
    if tools::full_matrix() {
        real.push(("/usr/bin/bzip2", &["-c"], true));
        const BASH: &str = "f() { for i in 1 2 3 4 5 6 7 8 9; do x=$((x * 3 + i)); a[i]=${x//7/seven}; done; }; f; f; for i in $1; do f; done; echo ${a[@]}; [[ $x =~ 9 ]] && echo $x | { read y; echo ${#y}; }";
        real.push(("/bin/bash, for little", &["-c", BASH], false));
        real.push(("/bin/bash", &["-c", BASH, "bash", "1 2 3 4 5 6"], false));
        real.push(("/usr/bin/perl", &["-e", "for (1..500) { $h{$_ % 7} .= $_; push @a, sqrt $_ } print join ',', sort { $a <=> $b } @a, map { length } values %h"], false));
    }
    for (run, args, input) in real {
        let program = run.split(',').next().unwrap_or(run);
        if !Path::new(program).exists() {
            tools::skip(&format!("{program} is not installed"));
            continue;
        }
        let dir = tempfile::tempdir().unwrap();
        let name = Path::new(program).file_name().unwrap();
        std::fs::copy(program, dir.path().join(name)).unwrap();
        let app = session::instrument(&dir.path().join(name), "soft", &[]).unwrap();
        judge(
            run,
            measure(&app, args, input.then_some(&text[..]), dir.path(), 0),
        );
    }
    assert!(low.is_empty(), "{}", low.join("\n"));
}

/// A small program loses only the loads around the loader: `.init` and `.fini`, which check for the
/// profiler, and the functions that the loader calls.
#[test]
fn all_that_runs_before_and_after_the_program_is_in_the_trace() {
    let fixed = Variant {
        pie: false,
        ..BUILT
    };
    for (variant, extra) in [
        (BUILT, &[][..]),
        (BUILT, &["-s"]),
        (fixed, &["-Wl,-z,now"]),
        (fixed, &["-s"]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let Some(original) = programs::build("constructors", variant, extra, dir.path()).unwrap()
        else {
            return;
        };
        let app = session::instrument(&original, "soft", &[]).unwrap();
        let coverage = measure(&app, &[], None, dir.path(), 0);
        coverage.report(&format!("constructors {extra:?}"));
        let lost: Vec<_> = coverage.lost.keys().filter(|why| *why != BINDING).collect();
        assert!(lost.is_empty(), "{extra:?}: {:?}", coverage.lost);
    }
}

/// Functions that were not instrumented are in the report and in the trace, and all three tools
/// report them.
#[test]
fn what_is_left_alone_is_said() {
    let dir = tempfile::tempdir().unwrap();
    for (extra, expected) in [(&["-DALONE"][..], 1), (&["-s"], 0)] {
        let Some(original) = programs::build("constructors", BUILT, extra, dir.path()).unwrap()
        else {
            return;
        };
        let out = dir.path().join("constructors.soft");
        let said = tools::succeed(
            tools::tool("mgz-instrument")
                .args(["--backend", "soft", "-o"])
                .arg(&out)
                .arg(&original),
            LIMIT,
        )
        .unwrap();
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(said.contains(&format!("{expected} left")), "{said}");
        let trace = dir.path().join(format!("trace-{expected}"));
        let done = recorded_run(&["--mode", "full"], &trace, &out, &[]);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        let shown =
            tools::succeed(tools::tool("mgz-analyze").arg("--all").arg(&trace), LIMIT).unwrap();
        let shown = format!(
            "{}{}",
            String::from_utf8_lossy(&shown.stdout),
            String::from_utf8_lossy(&shown.stderr)
        );
        const SENTENCE: &str = "neither recorded nor counted: 1 function of constructors";
        for text in [&said, &shown] {
            assert_eq!(text.contains(SENTENCE), expected == 1, "{text}");
        }
        let manifest: Manifest =
            serde_json::from_slice(&std::fs::read(trace.join("manifest.json")).unwrap()).unwrap();
        let left: u64 = manifest
            .modules
            .iter()
            .map(|m| m.not_instrumented.functions)
            .sum();
        assert_eq!(left, expected);
    }
}

/// A function that borrows the base of `%gs` and restores it is not instrumented, if no other code
/// can run in between; the rest of the program is recorded.
#[test]
fn a_function_that_borrows_gs_is_left_alone() {
    const BORROW: &str = "rdgsbase %rcx\\n wrgsbase %rdi\\n mov %gs:8, %rax\\n add %rax, %gs:0\\n wrgsbase %rcx\\n ret";
    const TWICE: &str = "test %rdi, %rdi\\n jz 1f\\n rdgsbase %r8\\n wrgsbase %rdi\\n mov %gs:8, %rax\\n wrgsbase %r8\\n mov %rdi, %r8\\n 1: rdgsbase %rdx\\n wrgsbase %rdi\\n add %gs:0, %rax\\n wrgsbase %rdx\\n xor %edx, %edx\\n ret";
    const KEEPS: &str =
        "wrgsbase %rdi\\n mov %gs:8, %rax\\n xor %ecx, %ecx\\n wrgsbase %rcx\\n ret";
    let dir = tempfile::tempdir().unwrap();
    let auxiliary = std::fs::read("/proc/self/auxv").unwrap();
    let has_fsgsbase = auxiliary
        .chunks_exact(16)
        .any(|pair| pair[..8] == 26u64.to_le_bytes() && pair[8] & 2 != 0);
    for (name, body, handler, taken) in [
        ("borrow", BORROW, "", true),
        ("twice", TWICE, "", true),
        ("keeps", KEEPS, "", false),
        ("handler", BORROW, "signal(10, SIG_IGN);", false),
    ] {
        let original = dir.path().join(name);
        let text = format!(
            "#include <signal.h>\n#include <stdio.h>\n__asm__(\".globl own\\n.type own, @function\\nown:\\n {body}\\n.size own, . - own\\n\");\nlong own(long *); long area[2] = {{5, 6}}; volatile int a[64];\nint main(void) {{ long s = 0; {handler} for (int i = 0; i < 1000; i++) s += own(area) + a[i & 63]; printf(\"%ld\\n\", s + area[0]); return 0; }}\n"
        );
        programs::compile_text(text, &original, &["-O1", "-w"]);
        for form in ["ring", "burst"] {
            let out = dir.path().join(format!("{name}.{form}"));
            let done = tools::run_limited(
                tools::tool("mgz-instrument")
                    .args(["--backend", "soft", "--for", form, "-o"])
                    .arg(&out)
                    .arg(&original),
                LIMIT,
            )
            .unwrap();
            let said = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
            if !taken || form == "burst" {
                assert!(
                    said.contains("gs segment itself (in own, at"),
                    "{name} {form}: {said}"
                );
                assert_eq!(
                    said.contains("use --for ring"),
                    taken,
                    "{name} {form}: {said}"
                );
                continue;
            }
            assert!(
                said.contains("1 left: uses the gs segment"),
                "{name}: {said}"
            );
            if !has_fsgsbase {
                tools::skip("the processor or the kernel has no rdgsbase");
                continue;
            }
            let expected = tools::run_limited(&mut Command::new(&original), LIMIT).unwrap();
            for options in [
                &["--mode", "full"][..],
                &["--mode", "ring", "--period", "300", "--window", "100"],
            ] {
                let trace = dir.path().join(format!("{name}-{}", options[1]));
                let got = recorded_run(options, &trace, &out, &[]);
                session::same_result(name, &expected, &got).unwrap();
                let said = String::from_utf8_lossy(&got.stderr);
                assert!(
                    said.contains("neither recorded nor counted: 1 function of"),
                    "{said}"
                );
                let rows: usize = rows::read_trace(&trace)
                    .unwrap()
                    .threads
                    .values()
                    .map(Vec::len)
                    .sum();
                assert!(rows > 300, "{rows}");
            }
        }
    }
}

/// The selector of `%gs` is 0 regardless of the use of the base, and a prefetch is not a load. A
/// load relative to the base belongs to the program, and the soft backend declines it.
#[test]
fn what_of_gs_the_soft_backend_takes() {
    let dir = tempfile::tempdir().unwrap();
    let program = |name: &str, code: &str| {
        let out = dir.path().join(name);
        let text = format!(
            "#include <stdio.h>\nvolatile long x = 7; int main(void) {{ long r = 1; __asm__ volatile({code} : \"+r\"(r) : \"r\"(&x) : \"memory\"); printf(\"%ld\\n\", r + x); return 0; }}\n"
        );
        programs::compile_text(text, &out, &["-O1"]);
        out
    };
    for (name, code) in [
        ("selector", r#""mov %%gs, %0""#),
        ("short", r#""mov %%gs, %w0""#),
        (
            "pushed",
            r#""sub $128, %%rsp; push %%gs; pop %0; add $128, %%rsp""#,
        ),
        ("prefetch", r#""prefetcht0 %%gs:(%1)""#),
        ("filler", r#""nopw %%gs:(%1)""#),
    ] {
        let original = program(name, code);
        let expected = tools::run_limited(&mut Command::new(&original), LIMIT).unwrap();
        let app = session::instrument(&original, "soft", &[]).unwrap();
        let trace = dir.path().join(format!("trace-{name}"));
        let got = recorded_run(&["--mode", "full"], &trace, &app.path, &[]);
        session::same_result(name, &expected, &got).unwrap();
    }
    for (name, code) in [
        ("load", r#""mov %%gs:(%1), %0""#),
        ("base", r#""rdgsbase %0""#),
        ("cleared", r#""xor %%eax, %%eax; mov %%eax, %%gs""#),
    ] {
        let original = program(name, code);
        let done = tools::run_limited(
            tools::tool("mgz-instrument")
                .args(["--backend", "soft", "-o"])
                .arg(dir.path().join("none"))
                .arg(&original),
            LIMIT,
        )
        .unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(tools::code(&done), 3, "{name}: {said}");
        assert!(said.contains("gs segment itself (in main, at"), "{said}");
    }
}

/// Programs that do their work in a library. Calls arrive through the linker's tables and through
/// pointers, so each function that has no room for a jump at its start affects the result.
#[test]
fn so_it_is_in_libraries() {
    let sql = "CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT, c REAL); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30) INSERT INTO t SELECT i, \
        printf('%05d', (i * 7919) % 1000), i / 7.0 FROM n; CREATE INDEX u ON t(b); SELECT count(*), sum(c), max(b) FROM t WHERE b > '00100'; SELECT group_concat(b) FROM t GROUP BY a % 5; SELECT nothing FROM t;";
    let inputs = tempfile::tempdir().unwrap();
    let image = inputs.path().join("image.ppm").display().to_string();
    let pixels: Vec<String> = (0..24 * 16 * 3)
        .map(|i| (i * i * 7 % 256).to_string())
        .collect();
    std::fs::write(&image, format!("P3 24 16 255\n{}\n", pixels.join(" "))).unwrap();
    let mut real: Vec<(&str, &str, Vec<&str>)> =
        vec![("/usr/bin/sqlite3", "libsqlite3.so.0", vec![":memory:", sql])];
    if tools::full_matrix() {
        real.push((
            "/usr/bin/xz",
            "liblzma.so.5",
            vec!["-c", "-0", "/etc/passwd"],
        ));
        real.push(("/usr/bin/pnmtopng", "libpng16.so.16", vec![&image]));
        real.push(("/usr/bin/pnmtopng", "libnetpbm.so.11", vec![&image]));
        real.push(("/usr/bin/pnmtopng", "libz.so.1", vec![&image]));
    }
    let mut low = Vec::new();
    for (path, library, args) in real {
        if !Path::new(path).exists() {
            tools::skip(&format!("{path} is not installed"));
            continue;
        }
        let dir = tempfile::tempdir().unwrap();
        let copy = dir.path().join(Path::new(path).file_name().unwrap());
        std::fs::copy(path, &copy).unwrap();
        let program = session::instrument(&copy, "soft", &[&format!("--libs={library}")]).unwrap();
        let part = PathBuf::from(format!("{}.libs/{library}", program.path.display()));
        let sidecar = Sidecar::read(&PathBuf::from(format!("{}.mgza", part.display()))).unwrap();
        let app = Instrumented {
            original: part.clone(),
            path: part,
            sidecar,
        };
        // (The reference begins at the program's entry point, and the load in the library's `_init`
        // comes before that.)
        let coverage = measure_in(&program, &app, &args, None, dir.path(), 1);
        coverage.report(library);
        if coverage.share() < 0.99 {
            low.push(format!(
                "{library}: {:.2}%: {:?}",
                100.0 * coverage.share(),
                coverage.lost
            ));
        }
    }
    assert!(low.is_empty(), "{}", low.join("\n"));
}

/// The C library is in the same file, and its allocator has branches to instructions behind their
/// `lock` prefixes. Without these functions, coverage would be 90% or less.
#[test]
fn so_it_is_in_static_executables() {
    for name in ["chase", "hash"] {
        let dir = tempfile::tempdir().unwrap();
        let Some(original) = programs::build(
            name,
            Variant {
                pie: false,
                ..BUILT
            },
            &["-static"],
            dir.path(),
        )
        .unwrap() else {
            continue;
        };
        let app = session::instrument(&original, "soft", &[]).unwrap();
        // The start-up code walks through the environment, which has one more variable when the
        // program is recorded.
        let coverage = measure(&app, &[], None, dir.path(), 300);
        coverage.report(&format!("{name}, static"));
        assert!(
            coverage.share() >= 0.99,
            "{name}: {:.2}%: {:?}",
            100.0 * coverage.share(),
            coverage.lost
        );
    }
}

/// Compares one thread's rows in the shared and in the naive trace. They must be the same rows in
/// the same order, except for rows of the naive trace whose site is implied in the other. The
/// number of these rows plus the loads that the rows of either trace imply must be the same in each
/// function. (Rows do not say which of their function's implied loads they represent: those of a
/// region may be counted with a later region.) Addresses are compared by their distances from each
/// other, because the heap follows the file's last segment, which is longer with more records.
fn same_loads(
    sidecar: &Sidecar,
    shared: &[RecordedRow],
    naive: &[RecordedRow],
    shifts: &mut BTreeMap<i64, u64>,
) -> Result<(), String> {
    let loads = || {
        sidecar
            .sites
            .iter()
            .filter(|s| s.flags & SiteFlags::STORE == 0)
    };
    let recorded: HashSet<u64> = loads()
        .filter(|s| s.flags & SiteFlags::IMPLIED == 0)
        .map(|s| s.ip)
        .collect();
    let implied: HashSet<u64> = loads()
        .filter(|s| s.flags & SiteFlags::IMPLIED != 0)
        .map(|s| s.ip)
        .collect();
    assert!(
        recorded.is_disjoint(&implied),
        "an instruction has implied loads and others"
    );
    let functions: HashMap<u64, u32> = loads()
        .map(|s| (s.ip, sidecar.regions[s.region as usize].function))
        .collect();
    let mut balance: BTreeMap<u32, i64> = BTreeMap::new();
    let mut book = |row: &RecordedRow, loads: i64| match functions.get(&row.ip) {
        Some(f) => {
            let _: () = *balance.entry(*f).or_default() += loads;
            Ok(())
        }
        None => Err(format!("no site of the sidecar is at {:#x}", row.ip)),
    };
    let mut next = shared.iter().enumerate();
    for (i, row) in naive.iter().enumerate() {
        book(row, -i64::from(row.implied_const))?;
        if implied.contains(&row.ip) {
            book(row, -1)?;
            continue;
        }
        let what = |r: &RecordedRow| (r.ip, r.size, r.class, r.store);
        match next.next() {
            Some((_, same)) if what(same) == what(row) => {
                book(same, same.implied_const.into())?;
                *shifts
                    .entry(row.address.wrapping_sub(same.address) as i64)
                    .or_default() += 1;
            }
            other => {
                return Err(format!(
                    "row {i} of the naive trace ({row:x?}) is not the next one of the other ({other:x?})"
                ));
            }
        }
    }
    if let Some((i, row)) = next.next() {
        return Err(format!("row {i} ({row:x?}) is not in the naive trace"));
    }
    let name = |f: u32| sidecar.string(sidecar.functions[f as usize].name);
    let wrong: Vec<String> = balance
        .iter()
        .filter(|b| *b.1 != 0)
        .map(|(f, n)| {
            format!(
                "{n} in {} ({:#x})",
                name(*f),
                sidecar.functions[*f as usize].start
            )
        })
        .collect();
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(format!(
            "implied Constant loads minus those of the naive trace: {}",
            wrong.join(", ")
        ))
    }
}

#[test]
fn sharing_payloads_loses_nothing() {
    let variants = if tools::full_matrix() {
        programs::all_variants()
    } else {
        vec![
            BUILT,
            Variant {
                clang: true,
                ..BUILT
            },
        ]
    };
    let mut wrong = Vec::new();
    for variant in variants {
        let mut saved = 0;
        let names = [
            "loops", "chase", "hash", "switches", "tables", "throws", "recurse", "gathers", "bits",
            "forms", "threads", "stack",
        ];
        for (i, name) in names.into_iter().enumerate() {
            // Without the full matrix, each compiler gets every second program.
            if !tools::full_matrix() && (i % 2 == 1) != variant.clang {
                continue;
            }
            let dir = tempfile::tempdir().unwrap();
            let Some(original) = programs::build(name, variant, &[], dir.path()).unwrap() else {
                continue;
            };
            let record = |flags: &[&str], folder: &str| {
                let dir = dir.path().join(folder);
                std::fs::create_dir(&dir).unwrap();
                std::fs::copy(&original, dir.join(name)).unwrap();
                let app = session::instrument(&dir.join(name), "soft", flags).unwrap();
                record_program(
                    &["--mode", "full", "--no-aslr"],
                    &dir.join("trace"),
                    &app.path,
                    &[],
                );
                (app.sidecar, rows::read_trace(&dir.join("trace")).unwrap())
            };
            // (The paths have the same length, so that the stack is the same.)
            let ((sidecar, shared), (_, naive)) =
                (record(&[], "shared"), record(&["--naive"], "naive_"));
            saved +=
                naive.manifest.totals.records_executed - shared.manifest.totals.records_executed;
            let mut shifts = BTreeMap::new();
            let same = match shared.threads.len() == naive.threads.len() {
                true => oldest_first(&shared.threads)
                    .iter()
                    .zip(oldest_first(&naive.threads))
                    .try_for_each(|(a, b)| same_loads(&sidecar, a.1, b.1, &mut shifts)),
                false => Err(format!(
                    "{} threads, not {}",
                    shared.threads.len(),
                    naive.threads.len()
                )),
            };
            wrong.extend(same.err().map(|why| format!("{name} {variant}: {why}")));
            if shifts.len() > 2 || !shifts.keys().all(|s| *s == 0 || s % 4096 == 0) {
                wrong.push(format!("{name} {variant}: addresses differ by {shifts:?}"));
            }
        }
        if saved <= 1000 {
            wrong.push(format!("{variant}: next to nothing was shared"));
        }
    }
    tools::no_failures(&wrong);
}
