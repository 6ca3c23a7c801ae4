//! Golden dumps: what the rewriter makes of small inputs, from control flow to unwind rows, compared
//! as text. A change of behaviour shows as a diff of `golden/*.snap`; after review it is accepted by
//! `INSTA_UPDATE=always cargo test --release --workspace --test golden`.
//!
//! The inputs are assembly, so that no compiler's version matters. They are linked without start
//! files: into shared libraries, and `start.s` into a static executable.

use mgz_abi::module_note::{FLAVOUR_PT, FLAVOUR_SOFT};
use mgz_instrument::dump::dump;
use mgz_instrument::program::Options;
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
        _ => &["-shared"],
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

/// The two texts, the second only where it differs: one line for each function that does not.
fn both(soft: &str, pt: &str) -> String {
    let parts = |text: &str| -> Vec<String> {
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

fn check(name: &str, options: fn(u32) -> Options) {
    let data = linked(name);
    let one = |flavour| {
        dump(&data, &options(flavour)).unwrap_or_else(|refusal| format!("refused: {refusal}\n"))
    };
    let source = std::fs::read_to_string(folder().join(name).with_extension("s")).unwrap();
    let text = format!("{source}\n{}", both(&one(FLAVOUR_SOFT), &one(FLAVOUR_PT)));
    let mut settings = insta::Settings::new();
    settings.set_snapshot_path(folder());
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

macro_rules! golden {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            check(stringify!($name), Options::new);
        })*

        /// Each input has its test, and each test its input and its snapshot.
        #[test]
        fn all_inputs_are_tested() {
            let mut expected = vec!["stores", $(stringify!($name)),*];
            expected.sort_unstable();
            for kind in ["s", "snap"] {
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
    check("stores", |flavour| Options {
        stores: true,
        ..Options::new(flavour)
    });
}
