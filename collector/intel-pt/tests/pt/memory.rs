//! Memory samples of PEBS, IBS and SPE become rows of `measured.parquet`.

use super::memory_file::{
    HIT, LOAD, MemoryFile, PERIOD, PHYS_ADDR, STORE, Values, WEIGHT, WEIGHT_STRUCT, source,
};
use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{UInt32Type, UInt64Type};
use clap::Parser;
use mgz_annotations_schema::manifest::{MANIFEST, MEASURED, Manifest};
use mgz_collector::options::args::Cli;
use mgz_intel_pt::import;
use object::{Object, ObjectSegment, ObjectSymbol};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::path::{Path, PathBuf};

const PROGRAM: &str = "
long table[1024];
static inline __attribute__((always_inline)) long one(long i) { long v = ((volatile long *)table)[i]; return v * 3 + (v >> 2); }
__attribute__((noinline)) long sum(long n) {
    long s = 0;
    for (long i = 0; i < n; i++)
        s += one(i);
    return s;
}
int main(int n, char **v) { (void)v; return (int)sum(n); }
";

/// A program that was mapped at `bias`.
struct Program {
    path: PathBuf,
    bias: u64,
    /// Run-time addresses of `sum` and of `table`.
    sum: u64,
    table: u64,
}

/// Compiles the program; `None` without a compiler.
fn program(dir: &Path) -> Option<Program> {
    let (source, path) = (dir.join("a.c"), dir.join("a"));
    std::fs::write(&source, PROGRAM).expect("written");
    let mut cc = std::process::Command::new("cc");
    let cc = cc
        .args(["-g", "-O1", "-pie", "-fPIE", "-o"])
        .arg(&path)
        .arg(&source);
    if !cc.status().is_ok_and(|s| s.success()) {
        eprintln!("SKIPPED: cc cannot compile");
        return None;
    }
    let bytes = std::fs::read(&path).expect("read");
    let file = object::File::parse(&bytes[..]).expect("an ELF file");
    let bias = 0x5555_0000_0000;
    let symbol = |name: &str| {
        let found = file.symbols().find(|s| s.name() == Ok(name));
        found.expect("a symbol").address() + bias
    };
    Some(Program {
        sum: symbol("sum"),
        table: symbol("table"),
        path: path.clone(),
        bias,
    })
}

impl Program {
    /// Maps the program's code and some memory.
    fn map(&self, file: &mut MemoryFile) {
        let bytes = std::fs::read(&self.path).expect("read");
        let parsed = object::File::parse(&bytes[..]).expect("an ELF file");
        let link = self.sum - self.bias;
        let code = parsed
            .segments()
            .find(|s| (s.address()..s.address() + s.size()).contains(&link));
        let code = code.expect("code");
        let (offset, length) = code.file_range();
        let start = self.bias + code.address();
        file.map(start, length, offset, self.path.to_str().expect("text"));
        file.map(0x7000_0000, 0x10_0000, 0, "//anon");
        file.map(0x6000_0000, 0x1000, 0, "[heap]");
    }
}

struct Imported {
    manifest: Manifest,
    table: RecordBatch,
}

impl Imported {
    fn of(dir: &Path, file: &[u8]) -> Imported {
        let (input, output) = (dir.join("perf.data"), dir.join("trace"));
        std::fs::write(&input, file).expect("written");
        let (import, folder) = (input.display().to_string(), output.display().to_string());
        let cli = Cli::parse_from(["mgz-record", "--force", "--import", &import, "-o", &folder]);
        assert_eq!(import::run(&cli, &input).map_err(|e| e.message), Ok(0));
        let text = std::fs::read(output.join(MANIFEST)).expect("a manifest");
        let file = std::fs::File::open(output.join(MEASURED)).expect("a table");
        let mut reader = ParquetRecordBatchReaderBuilder::try_new(file)
            .and_then(|b| b.build())
            .expect("a table");
        Imported {
            manifest: serde_json::from_slice(&text).expect("a manifest"),
            table: reader.next().expect("rows").expect("rows"),
        }
    }

    fn texts(&self, name: &str) -> Vec<Option<String>> {
        let column = self.table.column_by_name(name).expect("a column");
        let texts = column.as_string::<i32>();
        texts.iter().map(|t| t.map(str::to_owned)).collect()
    }

    fn levels(&self) -> Vec<String> {
        self.texts("level").into_iter().flatten().collect()
    }

    fn longs(&self, name: &str) -> Vec<Option<u64>> {
        let column = self.table.column_by_name(name).expect("a column");
        match column.as_primitive_opt::<UInt32Type>() {
            Some(words) => words.iter().map(|w| w.map(u64::from)).collect(),
            None => column.as_primitive::<UInt64Type>().iter().collect(),
        }
    }

    fn drawn(&self) -> Vec<(String, u64)> {
        let measured = self.manifest.measured.as_ref().expect("memory samples");
        let events = measured.events.iter();
        events.map(|e| (e.drawn.to_string(), e.samples)).collect()
    }
}

fn some(list: &[&str]) -> Vec<Option<String>> {
    list.iter().map(|t| Some((*t).to_owned())).collect()
}

#[test]
fn samples_of_pebs_have_code_data_level_latency_and_node() {
    let dir = tempfile::tempdir().expect("a folder");
    let Some(program) = program(dir.path()) else {
        return;
    };
    let mut file = MemoryFile::default();
    let more = PERIOD | WEIGHT_STRUCT | PHYS_ADDR;
    let loads = file.event(4, [0x1cd, 30], more, "cpu/mem-loads,ldlat=30/P");
    let stores = file.event(4, [0x82d0, 0], more, "cpu/mem-stores/P");
    file.pmu(4, "cpu");
    // Two nodes of blocks of 1 MiB.
    file.nodes(&[1, 1 << 20, 2, 0, 64, 64, 0b0011, 1, 64, 64, 0b1100]);
    program.map(&mut file);
    let values = Values {
        ip: program.sum + 4,
        time: 100,
        address: program.table + 16,
        period: 1000,
        weight: 7 << 32 | 210,
        source: source(LOAD, HIT | 0x80, 13, 0, 2, 0x1a),
        physical: 0x10_0040,
        kernel: false,
    };
    file.sample(loads, values);
    let remote = Values {
        time: 101,
        address: 0x7000_0008,
        source: source(LOAD, HIT | 0x400, 3, 1, 0x10, 0x14),
        physical: 0x20_0040,
        ..values
    };
    file.sample(loads, remote);
    let store = Values {
        time: 102,
        address: 0x6000_0010,
        weight: 0,
        source: source(STORE, HIT | 0x8, 15, 0, 1, 1),
        physical: 0,
        ..values
    };
    file.sample(stores, store);
    let kernel = Values {
        time: 103,
        ip: 0xffff_ffff_8100_0000,
        address: 0xffff_8880_0000_0000,
        source: source(LOAD, 1, 7, 0, 1, 1),
        kernel: true,
        ..values
    };
    file.sample(loads, kernel);
    let got = Imported::of(dir.path(), &file.finish());
    assert_eq!(got.levels(), ["memory", "remote cache", "L1", "unknown"]);
    assert_eq!(
        got.texts("function"),
        some(&["sum", "sum", "sum", "[kernel]"])
    );
    let of_code = |name: &str| got.texts(name)[0].clone();
    assert!(of_code("module").is_some_and(|m| m.ends_with("/a")));
    let objects = got.texts("object");
    assert_eq!(objects[0].as_deref(), Some("table"));
    assert_eq!(objects[1].as_deref(), Some("0x70000000"));
    assert_eq!(
        (objects[2].as_deref(), &objects[3]),
        (Some("[heap]"), &None)
    );
    let kinds = got.texts("object_kind");
    assert_eq!(kinds[..3], some(&["global", "anonymous", "heap"]));
    assert_eq!(
        got.longs("latency"),
        [Some(210), Some(210), None, Some(210)]
    );
    assert_eq!(got.longs("node"), [Some(0), Some(1), None, Some(0)]);
    assert_eq!(got.longs("physical")[2], None);
    assert_eq!(got.texts("snoop")[1].as_deref(), Some("hitm"));
    assert_eq!(got.texts("tlb")[1].as_deref(), Some("L2 miss"));
    assert_eq!(
        got.drawn(),
        [
            ("loads of 30 cycles or more".into(), 3),
            ("stores".into(), 1)
        ]
    );
    let measured = got.manifest.measured.clone().expect("memory samples");
    assert_eq!(
        (
            measured.samples,
            measured.loads,
            measured.stores,
            measured.unknown_level
        ),
        (4, 3, 1, 1)
    );
    assert_eq!(
        (got.manifest.backend.as_str(), got.manifest.totals.rows),
        ("perf", 0)
    );
}

#[test]
fn the_line_of_inlined_code_is_the_inner_functions() {
    let dir = tempfile::tempdir().expect("a folder");
    let Some(program) = program(dir.path()) else {
        return;
    };
    let mut file = MemoryFile::default();
    let event = file.event(4, [0x1cd, 3], 0, "");
    program.map(&mut file);
    for byte in 0..48 {
        let values = Values {
            ip: program.sum + byte,
            source: source(LOAD, HIT | 0x8, 1, 0, 1, 1),
            ..Values::default()
        };
        file.sample(event, values);
    }
    let got = Imported::of(dir.path(), &file.finish());
    let (inner, lines) = (got.texts("inlined"), got.longs("line"));
    let at = inner.iter().position(|f| f.as_deref() == Some("one"));
    assert_eq!(at.and_then(|at| lines[at]), Some(3));
    // Samples without a period have that of the event.
    assert_eq!(got.longs("period")[0], Some(1000));
    assert_eq!(got.drawn(), [("loads".into(), 48)]);
}

#[test]
fn samples_of_ibs_and_spe() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut file = MemoryFile::default();
    let ops = file.event(11, [1 << 19, 0], PERIOD | WEIGHT, "ibs_op/cnt_ctl=1/");
    file.pmu(11, "ibs_op");
    let values = Values {
        ip: 0x40_1000,
        address: 0x7000_0000,
        period: 250_000,
        ..Values::default()
    };
    for (time, source) in [
        (1, source(1, 1, 15, 0, 1, 1)),
        (2, source(LOAD, HIT | 0x400, 11, 1, 0x10, 0xa)),
        (3, source(LOAD, HIT, 9, 0, 1, 0x14)),
    ] {
        file.sample(
            ops,
            Values {
                time,
                source,
                ..values
            },
        );
    }
    let got = Imported::of(dir.path(), &file.finish());
    assert_eq!(got.levels(), ["remote cache", "CXL memory"]);
    assert_eq!(got.drawn(), [("operations".into(), 2)]);
    assert_eq!(got.texts("function"), [None, None], "no mapping");
    let measured = got.manifest.measured.clone().expect("memory samples");
    assert_eq!((measured.of_no_access, measured.unnamed), (1, 2));
    // SPE: perf makes a sample for each event in a record.
    let mut file = MemoryFile::default();
    file.pmu(9, "arm_spe_0");
    file.event(9, [1, 0], 0, "arm_spe_0//");
    let access = file.event(0, [1, 0], PERIOD | WEIGHT, "l1d-access");
    let memory = file.event(0, [1, 0], PERIOD | WEIGHT, "memory");
    let missed = source(LOAD, 4 | 0x8, 0, 0, 1, 0x22);
    for event in [access, memory] {
        let source = missed;
        file.sample(
            event,
            Values {
                time: 9,
                weight: 33,
                source,
                ..values
            },
        );
    }
    let got = Imported::of(dir.path(), &file.finish());
    assert_eq!(got.levels(), ["past L1"]);
    assert_eq!(got.longs("latency"), [Some(33)]);
    assert_eq!(got.drawn(), [("operations".into(), 1)]);
    assert_eq!(got.manifest.measured.expect("memory samples").repeated, 1);
}

#[test]
fn a_file_of_neither_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut file = MemoryFile::default();
    file.event(1, [0, 0], 0, "cpu-clock");
    let input = dir.path().join("perf.data");
    std::fs::write(&input, file.finish()).expect("written");
    let output = dir.path().join("trace").display().to_string();
    let import = input.display().to_string();
    let cli = Cli::parse_from(["mgz-record", "--import", &import, "-o", &output]);
    let refused = import::run(&cli, &input).map_err(|e| e.message);
    assert!(refused.is_err_and(|m| m.contains("neither Intel PT data nor memory samples")));
}

/// A jitdump file with functions of 16 bytes: time, address, name.
fn jitdump(functions: &[(u64, u64, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    let words = |out: &mut Vec<u8>, list: &[u32]| {
        list.iter().for_each(|w| out.extend(w.to_le_bytes()));
    };
    // Magic, version, size, machine, padding, process, time, flags.
    words(&mut out, &[0x4a69_5444, 1, 40, 62, 0, 1000, 0, 0, 0, 0]);
    for (time, address, name) in functions {
        let size = 56 + name.len() as u32 + 1 + 16;
        words(&mut out, &[0, size]);
        out.extend(time.to_le_bytes());
        words(&mut out, &[1000, 1000]);
        for word in [*address, *address, 16, 0] {
            out.extend(word.to_le_bytes());
        }
        out.extend(name.bytes().chain([0; 17]));
    }
    out
}

/// The name is that of the time of the sample, if the clocks of samples and names are one.
#[test]
fn samples_in_generated_code_have_the_names_of_its_compiler() {
    let dir = tempfile::tempdir().expect("a folder");
    let write = |name: &str, bytes: &[u8]| {
        std::fs::write(dir.path().join(name), bytes).expect("written");
    };
    write("perf-1000.map", b"70000000 10 mapped\n70000100 10 hidden\n");
    let early_and_late = [(50, 0x7000_0100, "early"), (150, 0x7000_0100, "late")];
    write("jit-1000.dump", &jitdump(&early_and_late));
    for (is_monotonic, first) in [(true, "early"), (false, "late")] {
        let mut file = MemoryFile::default();
        let loads = file.event(4, [0x1cd, 30], PERIOD, "cpu/mem-loads,ldlat=30/P");
        if is_monotonic {
            file.monotonic();
        }
        file.map(0x7000_0000, 0x1000, 0, "//anon");
        for (ip, time) in [
            (0x7000_0004, 100),
            (0x7000_0104, 100),
            (0x7000_0104, 200),
            (0x7000_0204, 100),
        ] {
            let values = Values {
                ip,
                time,
                address: 0x6000_0000,
                period: 1000,
                source: source(LOAD, HIT | 8, 1, 0, 1, 0x12),
                ..Values::default()
            };
            file.sample(loads, values);
        }
        let imported = Imported::of(dir.path(), &file.finish());
        let mut names = some(&["mapped", first, "late"]);
        names.push(None);
        assert_eq!(imported.texts("function"), names);
        let modules = imported.texts("module");
        assert_eq!(modules[0].as_deref(), Some("[generated code]"));
        assert_eq!(imported.manifest.measured.expect("samples").unnamed, 1);
    }
}

#[test]
fn generated_code_without_names_is_reported() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut file = MemoryFile::default();
    let loads = file.event(4, [0x1cd, 30], PERIOD, "cpu/mem-loads,ldlat=30/P");
    file.map(0x7000_0000, 0x1000, 0, "//anon");
    let values = Values {
        ip: 0x7000_0004,
        time: 100,
        period: 1000,
        source: source(LOAD, HIT | 8, 1, 0, 1, 0x12),
        ..Values::default()
    };
    file.sample(loads, values);
    let imported = Imported::of(dir.path(), &file.finish());
    let problems = imported.manifest.problems.join("\n");
    assert!(
        problems.contains("1 memory samples are in generated code without names"),
        "{problems}"
    );
    // Nothing is said twice.
    assert!(!problems.contains("has no name"), "{problems}");
}
