//! Golden dump: packets, records and rows of a small perf.data, compared as text. A change of
//! behaviour shows as a diff of `../golden/*.snap`; after review it is accepted by
//! `INSTA_UPDATE=always cargo test --release --workspace --test pt rows_of_perf_data`.

use super::encode::{Encoder, Write};
use super::file::{PerfFile, RecordingKind};
use super::mixed::{BASE, PLAIN_STYLE, put};
use super::sidecars::sidecar;
use mgz_annotations_schema::Sidecar;
use mgz_annotations_schema::expand::{Expander, Placement, RowBatch, Tables};
use mgz_annotations_schema::spill::SpillReader;
use mgz_intel_pt::import::dump::{packets, raw_bytes};
use mgz_intel_pt::import::modules::Modules;
use mgz_intel_pt::import::spill;
use mgz_perf_data::Session;
use std::fmt::Write as _;
use std::path::Path;

const ID_FIRST: u32 = 100;
const PROCESS: u32 = 1000;

/// A window with a `ptwrite` at each of these addresses of the program; payloads count up from
/// `first`.
fn window(places: &[u64], first: u64, tsc: u64) -> Vec<u8> {
    let mut encoder = Encoder::new(PLAIN_STYLE);
    for (n, place) in (0..).zip(places) {
        encoder.write(Write {
            ip: BASE + place,
            payload: first + n,
            tsc: tsc + 10 * n,
        });
    }
    encoder.bytes
}

/// Two threads of one process. The sidecar has `ptwrite`s at multiples of 24; one is at another
/// address, and the last packet of another window is cut.
fn recording() -> Vec<u8> {
    let mut file = PerfFile::new(RecordingKind::Samples, 1, (true, false, false));
    file.comm(PROCESS, PROCESS, 1);
    file.comm(PROCESS, PROCESS + 1, 2);
    file.mmap(PROCESS, BASE, 0x1000, "/x/app", 3);
    let whole = window(&[0, 24, 48], 0x10_0000, 1000);
    file.sample(&whole, BASE, PROCESS, PROCESS, 1100, 0);
    let elsewhere = window(&[72, 0x800, 96], 0x20_0000, 1200);
    file.sample(&elsewhere, BASE, PROCESS, PROCESS + 1, 1300, 0);
    let mut cut = window(&[0, 24, 48], 0x30_0000, 1400);
    cut.truncate(cut.len() - 3);
    file.sample(&cut, BASE, PROCESS, PROCESS, 1500, 0);
    file.finish()
}

/// The records of a thread's spill file, and their rows.
fn thread(out: &mut String, path: &Path, sidecar: &Sidecar, bias: u64) {
    let tables = Tables::new([sidecar]).expect("one sidecar");
    let placement = Placement {
        sidecar: 0,
        module: 0,
        bias,
    };
    let mut expander = Expander::new(&tables, &[placement]);
    let (mut reader, mut slots) = (SpillReader::open(path).expect("a spill file"), Vec::new());
    let (mut rows, mut sample) = (RowBatch::default(), 0);
    let name = path.file_name().expect("a name").to_string_lossy();
    let _ = writeln!(out, "records of {name}");
    while let Some(header) = reader.next(&mut slots).expect("whole") {
        let _ = writeln!(
            out,
            "  {:?} from {} to {} ns",
            header.kind, header.begin_ns, header.end_ns
        );
        for slot in &slots {
            let record = slot.id - ID_FIRST;
            let _ = writeln!(out, "    record {record} payload {:#x}", slot.payload);
        }
        expander.segment(&header, &slots, &mut sample, &mut rows);
    }
    expander.finish(&mut rows);
    let _ = writeln!(out, "rows of {name}");
    for n in 0..rows.len() {
        let _ = writeln!(
            out,
            "  seq {} sample {} time {} ip {:#x} site {} address {:#x} size {} class {}",
            rows.seq[n],
            rows.sample[n],
            rows.time_ns[n],
            rows.ip[n],
            rows.site[n],
            rows.address[n],
            rows.size[n],
            rows.class[n],
        );
    }
    let _ = writeln!(out, "{:#?}", expander.counters());
}

#[test]
fn rows_of_perf_data() {
    let (bytes, dir) = (recording(), tempfile::tempdir().expect("a folder"));
    let path = dir.path().join("perf.data");
    std::fs::write(&path, &bytes).expect("written");
    let mut out = b"packets\n".to_vec();
    packets(&path, &mut out).expect("a whole file");
    out.extend_from_slice(b"ptwrites\n");
    raw_bytes(&bytes, &mut out).expect("a whole file");
    let mut out = String::from_utf8(out).expect("text");

    let known = sidecar("/b/app", "", 0, 8, ID_FIRST);
    let files = put(dir.path(), std::slice::from_ref(&known));
    let session = Session::read(&bytes).expect("a whole file");
    let modules = Modules::find(&session, &files).expect("its module");
    let spilled = dir.path().join("spill");
    std::fs::create_dir(&spilled).expect("a folder");
    let outcome = spill(&session, &modules, &spilled).map_err(|failure| failure.message);
    let outcome = outcome.expect("imported");
    let placed = modules.placed(0).expect("the mapping's sidecar");
    let mut paths: Vec<_> = std::fs::read_dir(&spilled)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    for path in paths {
        thread(&mut out, &path, &known, placed.bias);
    }
    let _ = writeln!(
        out,
        "of no sidecar {}, without address {}\n{:#?}",
        outcome.unresolved, outcome.without_ip, outcome.totals
    );

    let mut settings = insta::Settings::new();
    settings.set_snapshot_path(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!("rows_of_perf_data", out));
}
