//! Files that contain more than an ELF file. Programs find everything in their rewritten file that
//! they find in the original, at every location that they search.

use mgz_abi::shared_memory::PAGE_SIZE;
use mgz_tests::forms::{self, FormOutcome};
use mgz_tests::programs::{self, Variant};
use mgz_tests::tools::{self, LIMIT};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const PLAIN: Variant = Variant::O2;
const FIXED: Variant = Variant::CLANG_FIXED;

/// Variants of linking.
const LINKED: [(Variant, &[&str]); 4] = [
    (PLAIN, &[]),
    (FIXED, &[]),
    (PLAIN, &["-static-pie"]),
    (FIXED, &["-static"]),
];

/// Bytes that resemble no other content.
fn body(len: usize) -> Vec<u8> {
    let mut state = 1u32;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// The bytes to append to a file of `at` bytes so that the program finds them by this method.
fn payload(way: &str, at: usize) -> Vec<u8> {
    let body = body(9_001);
    let long = |n: usize| (n as u64).to_le_bytes();
    let with_trailer = |before: Vec<u8>| {
        let start = at + before.len();
        [
            &before[..],
            &body,
            b"PAYLOAD!",
            &long(body.len()),
            &long(start),
        ]
        .concat()
    };
    match way {
        "end" | "absolute" => with_trailer(Vec::new()),
        "mapped" | "mapped-end" => with_trailer(vec![0; at.wrapping_neg() % PAGE_SIZE]),
        "scan" => [b"BUNDLED:", &long(body.len())[..], &body].concat(),
        "zip" => archive(&body, 0),
        "zip-absolute" => archive(&body, at),
        _ => [&long(body.len())[..], &body].concat(),
    }
}

/// A ZIP archive of one stored file, with offsets relative to `base`.
fn archive(data: &[u8], base: usize) -> Vec<u8> {
    let name = b"table";
    let short = |n: usize| (n as u16).to_le_bytes();
    let word = |n: usize| (n as u32).to_le_bytes();
    let common = [
        &short(0)[..], // flags
        &short(0),     // stored
        &word(0),      // time
        &word(0),      // checksum
        &word(data.len()),
        &word(data.len()),
        &short(name.len()),
        &short(0),
    ]
    .concat();
    let entry = [&b"PK\x03\x04"[..], &short(10), &common, name, data].concat();
    let directory = [
        &b"PK\x01\x02"[..],
        &short(10),
        &short(10),
        &common,
        &[0; 10],
        &word(base),
        name,
    ]
    .concat();
    let end = [
        &b"PK\x05\x06"[..],
        &[0; 4],
        &short(1),
        &short(1),
        &word(directory.len()),
        &word(base + entry.len()),
        &short(0),
    ]
    .concat();
    [entry, directory, end].concat()
}

/// Builds the program that looks for its payload.
fn build(linked: (Variant, &[&str]), extra: &[&str], dir: &Path) -> Option<PathBuf> {
    programs::build("payloads", linked.0, &[linked.1, extra].concat(), dir).unwrap()
}

fn executable(path: &Path, bytes: &[u8]) {
    std::fs::write(path, []).unwrap();
    std::fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    tools::write_program(path, bytes).unwrap();
}

/// Removes the section headers, and the bytes after the segments.
fn without_sections(file: &mut Vec<u8>) {
    let long = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap()) as usize;
    let count = usize::from(u16::from_le_bytes([file[56], file[57]]));
    let end = (0..count)
        .map(|n| long(32) + 56 * n)
        .map(|header| long(header + 8) + long(header + 32))
        .max()
        .unwrap();
    file.truncate(end);
    file[40..48].fill(0);
    file[58..64].fill(0);
}

/// Checks that the report lists the payload as found and repeated.
fn reported(way: &str, len: usize, offset: usize) -> impl FnMut(&str, &serde_json::Value) {
    // (Offsets in the second copy are relative to that copy.)
    let moves = way == "zip-absolute";
    move |form, report| {
        let payload = &report["payload"];
        assert_eq!(payload["bytes"], len, "{form}: {payload}");
        assert_eq!(payload["offset"], offset, "{form}");
        let again = payload["repeated_at"].as_u64().unwrap() as usize;
        let written = std::fs::read(report["output"].as_str().unwrap()).unwrap();
        assert_eq!(written.len(), again + len, "{form}: it comes last");
        let same = written[again..] == written[offset..offset + len];
        assert!(same != moves, "{form}");
    }
}

/// Appends the payload for this method and runs all forms.
fn find(program: &Path, way: &str) {
    let mut file = std::fs::read(program).unwrap();
    let offset = file.len();
    let payload = payload(way, offset);
    file.extend_from_slice(&payload);
    let bundle = program.with_extension(way);
    executable(&bundle, &file);
    let found = tools::succeed(Command::new(&bundle).arg(way), LIMIT).unwrap();
    assert!(
        found.stdout.starts_with(&way.as_bytes()[..3]),
        "the original finds it: {found:?}"
    );
    forms::all_same(&bundle, &[way], None, reported(way, payload.len(), offset));
}

#[test]
fn at_the_end_of_the_file() {
    for linked in LINKED {
        let dir = tempfile::tempdir().unwrap();
        if let Some(program) = build(linked, &[], dir.path()) {
            find(&program, "end");
            find(&program, "mapped-end");
        }
    }
}

#[test]
fn at_an_offset_that_the_payload_names() {
    for linked in LINKED {
        let dir = tempfile::tempdir().unwrap();
        if let Some(program) = build(linked, &[], dir.path()) {
            find(&program, "absolute");
            find(&program, "mapped");
        }
    }
}

#[test]
fn behind_the_section_headers() {
    for linked in LINKED {
        let dir = tempfile::tempdir().unwrap();
        if let Some(program) = build(linked, &[], dir.path()) {
            find(&program, "sections");
            find(&program, "rest");
        }
    }
}

#[test]
fn behind_the_segments_of_a_file_without_sections() {
    for linked in LINKED {
        let dir = tempfile::tempdir().unwrap();
        if let Some(program) = build(linked, &[], dir.path()) {
            let mut file = std::fs::read(&program).unwrap();
            without_sections(&mut file);
            executable(&program, &file);
            find(&program, "segments");
            find(&program, "rest-segments");
            find(&program, "end");
        }
    }
}

#[test]
fn archives_with_offsets_of_both_kinds() {
    for linked in LINKED {
        let dir = tempfile::tempdir().unwrap();
        if let Some(program) = build(linked, &[], dir.path()) {
            find(&program, "zip");
            find(&program, "zip-absolute");
            find(&program, "scan");
        }
    }
}

/// A reader without knowledge of the bytes before the archive finds every offset correct.
#[test]
fn archives_are_whole() {
    const CHECK: &str = "import sys, zipfile\nz = zipfile.ZipFile(sys.argv[1])\nassert z.testzip() is None\nfor i in z.infolist():\n    assert open(sys.argv[1], 'rb').read()[i.header_offset:][:4] == b'PK\\3\\4'\nprint(z.start_dir, z.infolist()[0].header_offset)";
    if !tools::have("zip") || !tools::have("unzip") || !tools::have("python3") {
        tools::skip(
            "zip, unzip or python3 is not installed, so archives of others were not tested",
        );
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = build(LINKED[0], &[], dir.path()) else {
        return;
    };
    for name in ["one", "two"] {
        std::fs::write(dir.path().join(name), body(3_000)).unwrap();
    }
    let mut zip = Command::new("zip");
    zip.args(["-q", "archive.zip", "one", "two"]);
    tools::succeed(zip.current_dir(dir.path()), LIMIT).unwrap();
    let archive = std::fs::read(dir.path().join("archive.zip")).unwrap();
    let bundle = dir.path().join("bundle");
    executable(
        &bundle,
        &[std::fs::read(&program).unwrap(), archive].concat(),
    );
    tools::succeed(Command::new("zip").args(["-q", "-A"]).arg(&bundle), LIMIT).unwrap();
    forms::all_same(&bundle, &["no"], None, |form, report| {
        let out = report["output"].as_str().unwrap();
        tools::succeed(Command::new("unzip").args(["-tqq", out]), LIMIT).unwrap();
        let checked = tools::succeed(Command::new("python3").args(["-c", CHECK, out]), LIMIT);
        let said = String::from_utf8(checked.unwrap().stdout).unwrap();
        let first = said.split_whitespace().nth(1).unwrap().to_owned();
        assert_eq!(
            report["payload"]["repeated_at"].to_string(),
            first,
            "{form}"
        );
    });
}

#[test]
fn in_a_section_that_was_added() {
    if !tools::have("objcopy") {
        tools::skip("objcopy is not installed, so sections that it adds were not tested");
        return;
    }
    for linked in LINKED {
        let dir = tempfile::tempdir().unwrap();
        let Some(program) = build(linked, &[], dir.path()) else {
            return;
        };
        let (bundle, content) = (dir.path().join("bundle"), dir.path().join("content"));
        // The end of an archive in its own section is also found from the file's end.
        std::fs::write(&content, archive(&body(9_001), 0)).unwrap();
        let mut objcopy = Command::new("objcopy");
        let add = format!(".bundle={}", content.display());
        objcopy
            .args(["--add-section", &add])
            .arg(&program)
            .arg(&bundle);
        tools::succeed(&mut objcopy, LIMIT).unwrap();
        for way in ["section", "zip"] {
            forms::all_same(&bundle, &[way], None, |form, report| {
                assert_eq!(report["payload"]["section"], ".bundle", "{form}");
            });
        }
    }
}

#[test]
fn of_libraries() {
    let dir = tempfile::tempdir().unwrap();
    let options = ["-shared", "-fPIC", "-DLIBRARY", "-Wl,-soname,libbundle.so"];
    let Some(library) = build((PLAIN, &options), &[], dir.path()) else {
        return;
    };
    let named = dir.path().join("libbundle.so");
    let mut file = std::fs::read(&library).unwrap();
    file.extend_from_slice(&payload("end", file.len()));
    std::fs::write(&named, &file).unwrap();
    let (host, path) = (["-DHOST"], format!("-Wl,-rpath,{}", dir.path().display()));
    let more = ["-Wl,--no-as-needed", named.to_str().unwrap(), &path];
    let Some(program) = build((PLAIN, &host), &more, dir.path()) else {
        return;
    };
    forms::all_same(&program, &["end"], Some("libbundle"), |form, report| {
        let library = &report["libraries"]["instrumented"][0];
        assert!(library["payload"]["bytes"].as_u64() > Some(9_000), "{form}");
    });
}

/// A program that knows the offset of its payload may read to the end of the file, which is further
/// away now.
#[test]
fn at_an_offset_that_the_program_knows() {
    for linked in LINKED {
        let dir = tempfile::tempdir().unwrap();
        let Some(program) = build(linked, &[], dir.path()) else {
            return;
        };
        let len = std::fs::metadata(&program).unwrap().len();
        let stub = format!("-DSTUB={len}");
        let program = build(linked, &[&stub], dir.path()).unwrap();
        assert_eq!(std::fs::metadata(&program).unwrap().len(), len);
        let file = [std::fs::read(&program).unwrap(), payload("rest", 0)].concat();
        let bundle = dir.path().join("bundle");
        executable(&bundle, &file);
        for (form, outcome) in forms::run_all(&bundle, &["fixed"], None, |_, _| ()).unwrap() {
            let FormOutcome::Declined(why) = outcome else {
                panic!("{form}: {outcome:?}");
            };
            assert!(why.contains("the offset at which it begins"), "{why}");
        }
    }
}

/// The same, written into the file as text: by an installer that fills in a reserved field.
#[test]
fn at_an_offset_that_the_program_knows_as_text() {
    const PLACE: &[u8] = b"@@OFFSET-OF-THE-REST@@";
    for linked in LINKED {
        let dir = tempfile::tempdir().unwrap();
        let Some(program) = build(linked, &[], dir.path()) else {
            return;
        };
        let mut file = std::fs::read(&program).unwrap();
        let place = file.windows(PLACE.len()).position(|w| w == PLACE).unwrap();
        let len = file.len();
        let rest = payload("rest", 0);
        for text in [
            format!("{len}"),
            format!("{len:022}"),
            format!("{:#x}", len + rest.len()),
        ] {
            file.truncate(len);
            file[place..place + PLACE.len()].fill(0);
            file[place..place + text.len()].copy_from_slice(text.as_bytes());
            file.extend_from_slice(&rest);
            let bundle = dir.path().join("bundle");
            executable(&bundle, &file);
            let found = tools::succeed(Command::new(&bundle).arg("text"), LIMIT).unwrap();
            assert!(found.stdout.starts_with(b"text"), "{found:?}");
            for (form, outcome) in forms::run_all(&bundle, &["text"], None, |_, _| ()).unwrap() {
                let FormOutcome::Declined(why) = outcome else {
                    panic!("{text} {form}: {outcome:?}");
                };
                assert!(why.contains("it carries a payload"), "{why}");
            }
        }
    }
}

#[test]
fn what_is_no_payload() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = build(LINKED[0], &["-g"], dir.path()) else {
        return;
    };
    let mut padded = std::fs::read(&program).unwrap();
    padded.resize(padded.len().next_multiple_of(PAGE_SIZE) + PAGE_SIZE, 0);
    let with_zeros = dir.path().join("padded");
    executable(&with_zeros, &padded);
    let none = |form: &str, report: &serde_json::Value| {
        assert!(report.get("payload").is_none(), "{form}: {report}");
    };
    forms::all_same(&program, &[], None, none);
    forms::all_same(&with_zeros, &[], None, none);
    if tools::have("objcopy") {
        // Split as Debian does with its programs.
        let (debug, split) = (dir.path().join("debug"), dir.path().join("split"));
        let mut keep = Command::new("objcopy");
        keep.arg("--only-keep-debug").arg(&program).arg(&debug);
        tools::succeed(&mut keep, LIMIT).unwrap();
        let mut strip = Command::new("objcopy");
        let link = format!("--add-gnu-debuglink={}", debug.display());
        strip.args(["--strip-all", &link]).arg(&program).arg(&split);
        tools::succeed(&mut strip, LIMIT).unwrap();
        forms::all_same(&split, &[], None, none);
    }
}
