//! The first screen of twenty real programs, as `mgz run` shows it, compared with the text in
//! `../screens/NAME.txt`. `MGZ_UPDATE=1 cargo test --release -p mgz-analyze --test integration
//! screens` rewrites the texts; review the diff like code. `benches/run screens` has recorded the
//! traces, `../screens/NAME.tar.zst`.

use clap::Parser;
use mgz_analyze::Cli;
use mgz_analyzer::input::Trace;
use mgz_analyzer::output::paint::Paint;
use mgz_analyzer::output::screen::screen;
use mgz_analyzer::output::text_table::Style;
use mgz_analyzer::report::build::examine;
use mgz_analyzer::report::questions::Questions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const WIDTH: u16 = 100;
/// Lines of a terminal, without those that `mgz run` prints itself.
const TERMINAL_LINES: usize = 21;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/screens")
}

/// Names of the kept traces.
fn kept() -> Vec<String> {
    let files = std::fs::read_dir(folder()).unwrap();
    let mut names: Vec<String> = files
        .filter_map(|f| {
            Some(
                f.unwrap()
                    .file_name()
                    .to_str()?
                    .strip_suffix(".tar.zst")?
                    .into(),
            )
        })
        .collect();
    names.sort();
    names
}

/// Unpacks a trace into a folder.
pub(crate) fn unpack(name: &str, into: &Path) {
    let packed = std::fs::File::open(folder().join(format!("{name}.tar.zst"))).unwrap();
    let bytes = zstd::decode_all(packed).unwrap();
    let mut tar = Command::new("tar")
        .args(["xf", "-", "-C"])
        .arg(into)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    tar.stdin.take().unwrap().write_all(&bytes).unwrap();
    assert!(tar.wait().unwrap().success());
}

/// The screen that `mgz run` shows of a trace.
fn screen_of(trace: &Path) -> String {
    let words = [Path::new("mgz-analyze"), "--report-data=x".as_ref(), trace];
    let cli = Cli::try_parse_from(words).unwrap();
    let questions = Questions {
        detail: cli.analysis.detail(),
        ..cli.analysis.questions().unwrap()
    };
    let trace = Trace::open(trace, true).unwrap();
    let (analysis, damage) = examine(&trace, &questions, &|_| ()).unwrap();
    assert_eq!(damage, Vec::<String>::new());
    let style = Style {
        width: Some(WIDTH),
        rows: cli.analysis.rows,
        misses: false,
        call_paths: false,
        by_path: false,
        paint: Paint::default(),
    };
    screen(&analysis, style, true)
}

#[test]
fn screens_are_as_they_were_read() {
    let names = kept();
    assert_eq!(names.len(), 20);
    let mut changed = Vec::new();
    for name in &names {
        let dir = tempfile::tempdir().unwrap();
        unpack(name, dir.path());
        let now = screen_of(dir.path());
        assert!(now.lines().count() <= TERMINAL_LINES, "{name}:\n{now}");
        assert!(
            now.lines().all(|l| l.chars().count() <= usize::from(WIDTH)),
            "{name}:\n{now}"
        );
        let file = folder().join(format!("{name}.txt"));
        if std::env::var_os("MGZ_UPDATE").is_some() {
            std::fs::write(&file, &now).unwrap();
        }
        let then = std::fs::read_to_string(&file).unwrap_or_default();
        if then != now {
            changed.push(format!("{name}, before:\n{then}\n{name}, now:\n{now}"));
        }
    }
    assert!(
        changed.is_empty(),
        "{}\nMGZ_UPDATE=1 writes the screens anew",
        changed.join("\n")
    );
}
