//! Loads by instruction beside those of Valgrind's lackey: `mgz-record --count` tells how often each load is executed, lackey prints each
//! access behind its instruction. They agree to the load for every instruction that is instrumented, what linkage tables read included.
//!
//! What is no load to one of both, and how it is compared:
//!
//! - `pop`, `ret` and `leave` read the stack implicitly: lackey has these reads, and they are left out here by the instruction's kind
//!   (`mgz_tests::loads`, which shares nothing with the rewriter).
//! - An instruction that lackey shows as several reads (locked ones, wide ones in parts) is one load for each time it is executed.
//! - String instructions with a prefix and gathers are one row, or one for each lane: they are not compared.
//! - An entry of a linkage table has its load under the entry in lackey, under the calls of the entry here: the sums by entry are compared.
//! - What runs in code that has no site (left alone by the rewriter, or before the recorder's library is there) is told, and is little.

use arrow_array::cast::AsArray;
use arrow_array::types::{UInt32Type, UInt64Type};
use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory};
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
    /// Entries of linkage tables.
    linkage: Vec<(u64, u64)>,
}

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

    /// The word that a call or jump here reads by way of a linkage table.
    fn word(&self, insn: &Instruction) -> Option<u64> {
        let entry = branches_to(insn).filter(|&to| self.is_linkage(to))?;
        linkage_word(self.bytes(entry)?, entry)
    }
}

/// What both have: loads by instruction, and reads of words of linkage tables.
#[derive(Default)]
struct Seen {
    loads: Loads,
    words: Loads,
}

/// Where a file is in a run whose loader told of it.
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

/// What lackey sees of a file. `library`: its name, if it is one and not the program.
fn by_lackey(
    program: &Path,
    args: &[&str],
    file: &Path,
    library: Option<&str>,
    dir: &Path,
) -> Seen {
    let (log, loader) = (dir.join("lackey.log"), dir.join("loader"));
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=lackey", "--trace-mem=yes"])
        .arg(format!("--log-file={}", log.display()))
        .arg(program)
        .args(args);
    if library.is_some() {
        command
            .env("LD_DEBUG", "files")
            .env("LD_DEBUG_OUTPUT", &loader);
    }
    tools::succeed(&mut command, LIMIT).unwrap();
    let base = library.map_or(0, |name| base(&loader, name));
    let code = Code::read(file);
    let mut executed: HashMap<u64, u64> = HashMap::new();
    let (mut current, mut counted) = (0, true);
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
                current = u64::from_str_radix(address.trim(), 16).unwrap_or(0);
                counted = false;
            }
            " L " | " M " if !counted => {
                counted = true;
                *executed.entry(current).or_default() += 1;
            }
            _ => {}
        }
    }
    std::fs::remove_file(&log).unwrap();
    let mut seen = Seen::default();
    let mut factory = InstructionInfoFactory::new();
    for (ip, n) in executed {
        let ip = ip.wrapping_sub(base);
        let Some(insn) = code.instruction(ip) else {
            continue;
        };
        if code.is_linkage(ip) {
            // The jump of an entry; what binds lazily pushes a word of the table's head besides.
            let word = insn
                .is_jmp_near_indirect()
                .then(|| insn.memory_displacement64());
            if let Some(word) = word {
                *seen.words.entry(word).or_default() += n;
            }
        } else if compared(&classify(&insn, &mut factory)) {
            *seen.loads.entry(ip).or_default() += n;
        }
    }
    seen
}

/// Whether each execution is one load to both.
fn compared(reads: &Reads) -> bool {
    match reads {
        Reads::Plain(_) | Reads::BitString(_) | Reads::Xlat => true,
        Reads::String { repeated, .. } => !repeated,
        Reads::None | Reads::Linkage(_) | Reads::Gather(_) => false,
    }
}

/// What `mgz-record --count` tells of the file of a sidecar.
fn by_count(trace: &Path, original: &Path, sidecar: &Sidecar) -> Seen {
    let module = rows::read(trace).unwrap().module(&sidecar.id_hex());
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
            if let Some(word) = code.word(&insn) {
                *seen.words.entry(word).or_default() += loads.value(i);
            } else if compared(&classify(&insn, &mut factory)) {
                *seen.loads.entry(ip).or_default() += loads.value(i);
            }
        }
    }
    seen
}

/// Sums of a comparison.
#[derive(Debug, Default)]
struct Compared {
    same: u64,
    words: u64,
    /// Lackey's loads that are not here, ours that are not there, with their instructions.
    missing: u64,
    more: u64,
    places: Vec<String>,
}

fn compare(theirs: &Seen, ours: &Seen) -> Compared {
    let mut all = Compared::default();
    for (theirs, ours, is_word) in [
        (&theirs.loads, &ours.loads, false),
        (&theirs.words, &ours.words, true),
    ] {
        let mut keys: Vec<&u64> = theirs.keys().chain(ours.keys()).collect();
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            let of = |loads: &Loads| loads.get(key).copied().unwrap_or(0);
            let (there, here) = (of(theirs), of(ours));
            all.same += there.min(here);
            all.words += if is_word { there.min(here) } else { 0 };
            all.missing += there.saturating_sub(here);
            all.more += here.saturating_sub(there);
            if there != here {
                let what = if is_word { "word " } else { "" };
                all.places
                    .push(format!("{what}{key:#x}: lackey {there}, mgz {here}"));
            }
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

#[test]
fn loads_of_programs_are_those_of_lackey() {
    if !have_valgrind() {
        return;
    }
    for (name, flags) in [
        ("strings", "-no-pie"),
        ("maps", "-no-pie"),
        ("loops", "-static"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let variant = programs::Variant {
            clang: false,
            opt: "2",
            pie: false,
        };
        let Some(original) = programs::build(name, variant, &[flags], dir.path()).unwrap() else {
            continue;
        };
        let app = session::instrument(&original, "soft", &[]).unwrap();
        let trace = count(&app.path, &[], dir.path());
        let ours = by_count(&trace, &original, &app.sidecar);
        let theirs = by_lackey(&original, &[], &original, None, dir.path());
        let all = compare(&theirs, &ours);
        println!("{name} {flags}: {all:#?}");
    }
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
    let manifest = rows::read(&trace).unwrap().manifest;
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
        Some("libsqlite3.so"),
        dir.path(),
    );
    let all = compare(&theirs, &ours);
    println!("libsqlite3: {all:#?}");
}
