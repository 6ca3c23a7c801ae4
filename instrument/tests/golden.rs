//! Golden dumps: the rewriter's results for small inputs, from control flow to unwind rows,
//! compared as text. A change of behaviour shows as a diff of `golden/*.snap`; after review it is
//! accepted by `INSTA_UPDATE=always cargo test --release --workspace --test golden`.
//!
//! The inputs are assembly, so that no compiler's version matters. They are linked without start
//! files: into shared libraries, and `start.s` into a static executable.

use mgz_abi::module_note::{FLAVOUR_PT, FLAVOUR_SOFT};
use mgz_abi::slot::Slot;
use mgz_annotations_schema::expand::{Expander, Placement, RowBatch, Tables};
use mgz_annotations_schema::spill::{
    SegmentHeader, SegmentKind, SpillReader, SpillWriter, ThreadKey,
};
use mgz_instrument::dump::dump;
use mgz_instrument::pipeline::rewrite::rewrite;
use mgz_instrument::pipeline::settings::Settings;
use mgz_instrument::program::InstrumentOptions;
use std::path::{Path, PathBuf};
use std::process::Command;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn run(tool: &str, arguments: &[&str], files: [&Path; 2]) {
    let [output, input] = files;
    let mut command = Command::new(tool);
    let status = command.args(arguments).arg("-o").arg(output).arg(input);
    let status = status.status().expect("binutils are installed");
    assert!(status.success(), "{tool} {}", input.display());
}

/// Assembles and links an input.
fn linked(name: &str) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let (object, binary) = (dir.path().join("o"), dir.path().join("out"));
    let source = folder().join(name).with_extension("s");
    run("as", &["--64"], [&object, &source]);
    let shape: &[&str] = match name {
        "start" => &["-static", "-Ttext-segment=0x400000"],
        _ => &["-shared", "-Bsymbolic"],
    };
    let common = [
        "--build-id=none",
        "--hash-style=gnu",
        "--eh-frame-hdr",
        "-znoseparate-code",
        "-znorelro",
        "-zmax-page-size=4096",
    ];
    run("ld", &[shape, &common].concat(), [&binary, &object]);
    std::fs::read(binary).unwrap()
}

/// The two texts, where the second has only the parts that differ, and one line for each part that
/// does not.
fn both(soft: &str, pt: &str) -> String {
    let parts = |text: &str| -> Vec<String> {
        let text = text.replace("\n  clone ", "\n\n  clone ");
        text.split("\n\n")
            .map(|p| p.trim_end().to_owned())
            .collect()
    };
    let (soft, pt) = (parts(soft), parts(pt));
    let mut out = vec!["==== soft flavour ====".to_owned()];
    out.extend(soft.iter().cloned());
    out.push("==== PT flavour ====".to_owned());
    for (n, part) in pt.iter().enumerate() {
        let head = part.lines().next().unwrap_or("");
        out.push(match soft.get(n) == Some(part) {
            true => format!("{head}: as in the soft flavour"),
            false => part.clone(),
        });
    }
    out.join("\n\n")
}

fn compare(name: &str, text: &str) {
    let mut settings = insta::Settings::new();
    settings.set_snapshot_path(folder());
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

fn check(name: &str, options: fn(u32) -> InstrumentOptions) {
    let data = linked(name);
    let one = |flavour| {
        dump(&data, &options(flavour)).unwrap_or_else(|refusal| format!("refused: {refusal}\n"))
    };
    let source = std::fs::read_to_string(folder().join(name).with_extension("s")).unwrap();
    let text = format!("{source}\n{}", both(&one(FLAVOUR_SOFT), &one(FLAVOUR_PT)));
    compare(name, &text);
}

macro_rules! golden {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            check(stringify!($name), InstrumentOptions::new);
        })*

        /// Checks that each input has its test, and each test its input and its snapshot.
        #[test]
        fn all_inputs_are_tested() {
            let mut expected = vec!["stores", $(stringify!($name)),*];
            let own = expected.len();
            for (kind, more) in [("s", None), ("snap", Some("rows_of_gather"))] {
                expected.truncate(own);
                expected.extend(more);
                expected.sort_unstable();
                let files = std::fs::read_dir(folder()).unwrap().map(|f| f.unwrap().path());
                let mut found: Vec<String> = files
                    .filter(|f| f.extension().is_some_and(|e| e == kind))
                    .map(|f| f.file_stem().unwrap().to_str().unwrap().to_owned())
                    .collect();
                found.sort_unstable();
                assert_eq!(found, expected, "*.{kind}");
            }
        }
    };
}

golden! {
    leaf strided gather switch tail_call throw red_zone string cmov constants unoptimised
    computed_goto avx2_gather read_modify_write call_memory plt start thread_local too_short
}

#[test]
fn stores() {
    check("stores", |flavour| InstrumentOptions {
        stores: true,
        ..InstrumentOptions::new(flavour)
    });
}

/// Expands records to rows: three passes over each region of `gather.s`, written to a spill file,
/// read back and expanded with the sidecar.
#[test]
fn rows_of_gather() {
    const PASSES: u64 = 3;
    const BIAS: u64 = 0x7000_0000;
    const ID_FIRST: u32 = 0x1000;
    let data = linked("gather");
    let settings = Settings {
        id_first: Some(ID_FIRST),
        ..Settings::default()
    };
    let options = InstrumentOptions::new(FLAVOUR_SOFT);
    let done = rewrite(&data, &options, &settings, |_| ()).unwrap();
    let sidecar = done.annotations.sidecar().unwrap();
    let mut slots = Vec::new();
    for region in &sidecar.regions {
        for pass in 0..PASSES {
            for n in 0..region.record_count {
                let record = region.first_record + n;
                slots.push(Slot {
                    payload: 0x10_0000 * u64::from(record + 1) + 8 * pass,
                    id: ID_FIRST + record,
                    aux: 0,
                });
            }
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let key = ThreadKey {
        process: 1,
        thread: 2,
    };
    let mut writer = SpillWriter::create(dir.path(), key).unwrap();
    let header = SegmentHeader {
        kind: SegmentKind::Window,
        begin_ns: 1000,
        end_ns: 1000 + 10 * slots.len() as u64,
        slots: slots.len() as u32,
        ..SegmentHeader::default()
    };
    writer.write(&header, &slots).unwrap();
    let path = writer.path().to_owned();
    writer.finish().unwrap();

    let tables = Tables::new([&sidecar]).unwrap();
    let placement = Placement {
        sidecar: 0,
        module: 0,
        bias: BIAS,
    };
    let mut expander = Expander::new(&tables, &[placement]);
    let (mut reader, mut read) = (SpillReader::open(&path).unwrap(), Vec::new());
    let (mut rows, mut sample) = (RowBatch::default(), 0);
    while let Some(header) = reader.next(&mut read).unwrap() {
        assert_eq!(read, slots);
        expander.segment(&header, &read, &mut sample, &mut rows);
    }
    expander.finish(&mut rows);
    let mut text = String::from("records of three passes over each region\n");
    for slot in &slots {
        text += &format!(
            "  record {} payload {:#x}\n",
            slot.id - ID_FIRST,
            slot.payload
        );
    }
    text += "rows\n";
    for n in 0..rows.len() {
        text += &format!(
            "  seq {} sample {} time {} ip {:#x} site {} address {:#x} size {} class {} implied {}\n",
            rows.seq[n],
            rows.sample[n],
            rows.time_ns[n],
            rows.ip[n],
            rows.site[n],
            rows.address[n],
            rows.size[n],
            rows.class[n],
            rows.implied_const[n]
        );
    }
    text += &format!("{:#?}\n", expander.counters());
    compare("rows_of_gather", &text);
}
