//! At least 99% of the loads that an instrumented file executes are recorded or implied, counted by the single-step reference over all of the file's
//! code: functions that are left alone and code that is in no function count as lost. Apart from that are the jumps of the linker's tables (`.plt`), which
//! have no clones; they are shown. And sharing payloads loses nothing: a trace with one record for each load has the
//! same rows.

use mgz_annotations_schema::sidecar::{NONE, Sidecar, SiteFlags};
use mgz_tests::events::{Event, Kind, Watch};
use mgz_tests::programs::{self, Variant};
use mgz_tests::rows::{self, Row, Trace};
use mgz_tests::session::{self, Instrumented, record_command, step};
use mgz_tests::tools::{self, LIMIT};
use object::{Object, ObjectSection};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

const BUILT: Variant = Variant { clang: false, opt: "2", pie: true };

/// Executable segments of a file, link-time.
fn code(path: &Path) -> Vec<(u64, u64)> {
    let data = std::fs::read(path).unwrap();
    let file = ElfFile64::<object::Endianness>::parse(&*data).unwrap();
    let endian = file.endian();
    let headers = file.elf_header().program_headers(endian, &*data).unwrap().iter();
    headers.filter(|h| h.p_type(endian) == object::elf::PT_LOAD && h.p_flags(endian).0 & 1 != 0).map(|h| (h.p_vaddr(endian), h.p_vaddr(endian) + h.p_memsz(endian))).collect()
}

/// Sections of the linker's own jumps.
fn linkage(path: &Path) -> Vec<(u64, u64)> {
    let data = std::fs::read(path).unwrap();
    let file = object::File::parse(&*data).unwrap();
    file.sections().filter(|s| s.name().is_ok_and(|n| n.starts_with(".plt"))).map(|s| (s.address(), s.address() + s.size())).collect()
}

const LINKAGE: &str = "jumps of linkage tables";

/// Loads of a run by what became of them.
#[derive(Default)]
struct Coverage {
    loads: u64,
    recorded: u64,
    implied: u64,
    /// By reason.
    lost: BTreeMap<String, u64>,
}

impl Coverage {
    fn share(&self) -> f64 {
        let linkage = self.lost.get(LINKAGE).copied().unwrap_or(0);
        (self.recorded + self.implied) as f64 / (self.loads - linkage).max(1) as f64
    }

    fn report(&self, name: &str) {
        println!("{name}: {} loads, {:.2}% recorded, {:.2}% implied", self.loads, 100.0 * self.recorded as f64 / self.loads as f64, 100.0 * self.implied as f64 / self.loads as f64);
        for (why, n) in &self.lost {
            println!("    {:.3}% {why}", 100.0 * *n as f64 / self.loads as f64);
        }
    }
}

/// What would have to be in the trace, and why the rest is not; then what is. `stray`: so many loads may differ between the two runs.
fn measure(app: &Instrumented, args: &[&str], input: Option<&[u8]>, dir: &Path, stray: i64) -> Coverage {
    let watch = Watch { path: app.path.clone(), ranges: code(&app.original).into_iter().map(|(a, b)| (a, b, false)).collect(), ..Watch::default() };
    let file = dir.join("input");
    std::fs::write(&file, input.unwrap_or_default()).unwrap();
    let mut all: Vec<&str> = args.to_vec();
    let path = file.display().to_string();
    if input.is_some() {
        all.push(&path);
    }
    // What two runs must have in common.
    let fixed = [("PERL_HASH_SEED", "0"), ("PERL_PERTURB_KEYS", "0"), ("PYTHONHASHSEED", "0"), ("PYTHONDONTWRITEBYTECODE", "1")];
    let mut off = record_command(&["--mode", "off", "--no-aslr"], &dir.join("trace.ref"), &app.path, &all);
    off.envs(fixed);
    let (_, events) = step(dir, &watch, &app.path, &[], &off).unwrap();
    let trace = dir.join("trace.got");
    tools::run(record_command(&["--mode", "full", "--no-aslr"], &trace, &app.path, &all).envs(fixed), LIMIT).unwrap();
    count(&app.sidecar, &linkage(&app.original), &events, &rows::read(&trace).unwrap(), stray)
}

fn count(sidecar: &Sidecar, linkage: &[(u64, u64)], events: &[Event], trace: &Trace, stray: i64) -> Coverage {
    let mut coverage = Coverage::default();
    let module = trace.module(&sidecar.id_hex()).unwrap();
    // Of one instruction all accesses share a fate.
    let sites: HashMap<u64, u8> = sidecar.sites.iter().filter(|s| s.flags & SiteFlags::STORE == 0).map(|s| (s.ip, s.flags)).collect();
    let mut expected: HashMap<u64, i64> = HashMap::new();
    let mut may_be_implied = 0i64;
    for event in events.iter().filter(|e| e.kind == Kind::Original) {
        coverage.loads += 1;
        let function = sidecar.functions.iter().find(|f| (f.start..f.end).contains(&event.ip));
        let why = match (function, sites.get(&event.ip)) {
            (None, _) if linkage.iter().any(|r| (r.0..r.1).contains(&event.ip)) => Some(LINKAGE.to_owned()),
            (None, _) => Some("in no function".to_owned()),
            (Some(f), _) if f.left != NONE => Some(format!("function left: {}", sidecar.string(f.left))),
            (_, None) => Some("not understood as code".to_owned()),
            (_, Some(flags)) if flags & SiteFlags::UNRECORDED != 0 => Some("the probe has no form for it".to_owned()),
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
    let own = trace.threads.values().flatten().filter(|r| r.module == module && !r.store);
    for row in own {
        coverage.recorded += 1;
        coverage.implied += u64::from(row.implied_const);
        *expected.entry(row.ip).or_default() -= 1;
    }
    let unseen: i64 = expected.values_mut().filter(|n| **n < 0).map(|n| -std::mem::take(n)).sum();
    assert!(unseen <= stray, "{unseen} rows of loads that the reference has not seen");
    coverage.recorded -= unseen as u64;
    let original = expected.values().sum::<i64>() + may_be_implied - coverage.implied as i64;
    if original != 0 {
        coverage.lost.insert("ran in original code".into(), u64::try_from(original).expect("no more implied loads than were executed"));
    }
    assert_eq!(coverage.loads, coverage.recorded + coverage.implied + coverage.lost.values().sum::<u64>());
    coverage
}

#[test]
fn nearly_every_executed_load_is_in_the_trace() {
    let mut low = Vec::new();
    let mut judge = |name: &str, coverage: Coverage| {
        coverage.report(name);
        let least = if name == "goto" { 0.9 } else { 0.99 };
        if coverage.share() < least {
            low.push(format!("{name}: {:.2}%: {:?}", 100.0 * coverage.share(), coverage.lost));
        }
    };
    // Blocks that a computed goto leads to may be too short for a jump into the clone.
    for name in ["loops", "hash", "switches", "goto", "throws", "objects", "calls", "recurse", "bignum", "gathers"] {
        let dir = tempfile::tempdir().unwrap();
        let Some(original) = programs::build(name, BUILT, &[], dir.path()).unwrap() else { continue };
        let app = session::instrument(&original, "soft", &[]).unwrap();
        judge(name, measure(&app, &[], None, dir.path(), 0));
    }
    let text: Vec<u8> = mgz_tests::inputs::mixed_data(12_000, 5).iter().map(|b| if *b == 0 { b'0' } else { *b }).collect();
    let mut real: Vec<(&str, &[&str], bool)> = vec![("/usr/bin/gzip", &["-c"], true), ("/usr/bin/mawk", &["{ n += NF; w[$1]++ } END { print n, length(w) }"], true)];
    if tools::full_matrix() {
        real.push(("/usr/bin/bzip2", &["-c"], true));
        real.push(("/usr/bin/perl", &["-e", "for (1..500) { $h{$_ % 7} .= $_; push @a, sqrt $_ } print join ',', sort { $a <=> $b } @a, map { length } values %h"], false));
    }
    for (program, args, input) in real {
        if !Path::new(program).exists() {
            tools::skip(&format!("{program} is not installed"));
            continue;
        }
        let dir = tempfile::tempdir().unwrap();
        let name = Path::new(program).file_name().unwrap();
        std::fs::copy(program, dir.path().join(name)).unwrap();
        let app = session::instrument(&dir.path().join(name), "soft", &[]).unwrap();
        judge(program, measure(&app, args, input.then_some(&text[..]), dir.path(), 0));
    }
    assert!(low.is_empty(), "{}", low.join("\n"));
}

/// The C library is in the same file, and its allocator branches behind `lock` prefixes: without these functions this is 90% and less.
#[test]
fn so_it_is_in_static_executables() {
    for name in ["chase", "hash"] {
        let dir = tempfile::tempdir().unwrap();
        let Some(original) = programs::build(name, Variant { pie: false, ..BUILT }, &["-static"], dir.path()).unwrap() else { continue };
        let app = session::instrument(&original, "soft", &[]).unwrap();
        // The start-up code walks through the environment, which has a variable more when the program is recorded.
        let coverage = measure(&app, &[], None, dir.path(), 300);
        coverage.report(&format!("{name}, static"));
        assert!(coverage.share() >= 0.99, "{name}: {:.2}%: {:?}", 100.0 * coverage.share(), coverage.lost);
    }
}

/// Instruction, size and address of each row, by thread in order of start. Addresses of the heap count from its start: it lies behind the file's last segment, which
/// is longer with more records.
fn plain(trace: &Trace) -> Vec<Vec<(u64, u32, u64, u16)>> {
    let row = |r: &Row| (r.ip, r.size, r.address, r.implied_const);
    trace.threads.values().map(|rows| rows.iter().map(row).collect()).collect()
}

#[test]
fn sharing_payloads_loses_nothing() {
    let mut saved = 0;
    for name in ["loops", "chase", "hash", "switches", "throws", "recurse", "gathers", "bits", "forms", "threads", "stack"] {
        let dir = tempfile::tempdir().unwrap();
        let Some(original) = programs::build(name, BUILT, &[], dir.path()).unwrap() else { continue };
        let record = |flags: &[&str], folder: &str| {
            let dir = dir.path().join(folder);
            std::fs::create_dir(&dir).unwrap();
            std::fs::copy(&original, dir.join(name)).unwrap();
            let app = session::instrument(&dir.join(name), "soft", flags).unwrap();
            tools::succeed(&mut record_command(&["--mode", "full", "--no-aslr"], &dir.join("trace"), &app.path, &[]), LIMIT).unwrap();
            rows::read(&dir.join("trace")).unwrap()
        };
        let (shared, naive) = (record(&[], "shared"), record(&["--naive"], "naive_"));
        saved += naive.manifest.totals.records_executed - shared.manifest.totals.records_executed;
        let (a, b) = (plain(&shared), plain(&naive));
        assert_eq!(a.len(), b.len(), "{name}: threads");
        let mut shifts = BTreeMap::new();
        for (a, b) in a.iter().zip(&b) {
            let constant = |rows: &[(u64, u32, u64, u16)]| rows.iter().map(|r| u64::from(r.3)).sum::<u64>();
            assert_eq!(a.len() as u64 + constant(a), b.len() as u64 + constant(b), "{name}: loads");
            // The naive trace has each implied load as a row of its own or on another row; rows are compared.
            let mut rest = b.iter();
            for (i, row) in a.iter().enumerate() {
                let Some(same) = rest.find(|r| (r.0, r.1) == (row.0, row.1)) else { panic!("{name}: row {i} ({row:x?}) is not in the naive trace") };
                *shifts.entry(same.2.wrapping_sub(row.2) as i64).or_insert(0u64) += 1;
            }
        }
        assert!(shifts.len() <= 2 && shifts.keys().all(|s| *s == 0 || s % 4096 == 0), "{name}: addresses differ by {shifts:?}");
    }
    assert!(saved > 1000, "nothing was shared");
}
