//! A program in every form that mgz makes: flavours, options of instrumentation, and modes of
//! recording.

use crate::nop;
use crate::session::{record_command, same_result};
use crate::tools::{self, LIMIT};
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Status of `mgz-instrument`: the file cannot be rewritten safely.
const DECLINED: i32 = 3;
/// Status of `mgz-record`: the program was not run.
const REFUSED: i32 = 125;

/// The result of one form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FormOutcome {
    /// It behaved like the original.
    Same,
    /// `mgz-instrument` declined the file, for this reason.
    Declined(String),
    /// `mgz-record` refused to run it, for this reason.
    Refused(String),
    /// It behaved differently.
    Differs(String),
}

/// The forms: name, arguments for `mgz-instrument`, modes of `mgz-record`.
const FORMS: [(&str, &[&str], &[&str]); 3] = [
    ("pt", &["--backend", "pt"], &[]),
    (
        "soft",
        &["--backend", "soft", "--for", "ring"],
        &["full", "ring"],
    ),
    (
        "burst",
        &["--backend", "soft", "--for", "burst"],
        &["full", "ring", "burst"],
    ),
];

/// Rewrites a program (with `libs`, also its libraries) and runs it without a recorder and in each
/// mode that the form supports. Returns `FORM MODE` with the outcome. `check` receives the JSON
/// report of each form.
pub fn run_all(
    original: &Path,
    args: &[&str],
    libs: Option<&str>,
    mut check: impl FnMut(&str, &serde_json::Value),
) -> Result<Vec<(String, FormOutcome)>> {
    let expected = tools::run_limited(Command::new(original).args(args), LIMIT)?;
    let mut outcomes = Vec::new();
    for (form, options, modes) in FORMS {
        let path = PathBuf::from(format!("{}.{form}", original.display()));
        let mut command = tools::tool("mgz-instrument");
        command
            .args(options)
            .args(["--format", "json", "-o"])
            .arg(&path)
            .args(libs.map(|l| format!("--libs={l}")))
            .arg(original);
        let done = tools::run_limited(&mut command, LIMIT)?;
        let message = |output: &std::process::Output| {
            String::from_utf8_lossy(&output.stderr).trim().to_owned()
        };
        if tools::code(&done) == DECLINED {
            outcomes.push((form.to_owned(), FormOutcome::Declined(message(&done))));
            continue;
        }
        if tools::code(&done) != 0 {
            outcomes.push((form.to_owned(), FormOutcome::Differs(message(&done))));
            continue;
        }
        check(form, &serde_json::from_slice(&done.stdout)?);
        if form == "pt" && !nop::executes_ptwrite() {
            for file in files(&path, libs.is_some()) {
                nop::replace(&file)?;
            }
        }
        let mut run = |mode: &str, command: &mut Command| -> Result<()> {
            let got = tools::run_limited(command, LIMIT)?;
            let outcome = match same_result(mode, &expected, &got) {
                Ok(()) => FormOutcome::Same,
                Err(_) if tools::code(&got) == REFUSED => FormOutcome::Refused(message(&got)),
                Err(error) => FormOutcome::Differs(error.to_string()),
            };
            outcomes.push((format!("{form} {mode}"), outcome));
            Ok(())
        };
        run("bare", Command::new(&path).args(args))?;
        for mode in modes {
            let trace = PathBuf::from(format!("{}.trace", path.display()));
            let options = ["--mode", mode, "--force"];
            run(mode, &mut record_command(&options, &trace, &path, args))?;
        }
    }
    Ok(outcomes)
}

/// A rewritten program and its rewritten libraries.
fn files(program: &Path, libs: bool) -> Vec<PathBuf> {
    let folder = std::fs::read_dir(format!("{}.libs", program.display()));
    let libraries = folder
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| libs && path.extension().is_none_or(|e| e != "mgza") && !path.is_symlink());
    std::iter::once(program.to_owned())
        .chain(libraries)
        .collect()
}

/// Rewrites and runs a program in all forms, each of which must behave like the original.
pub fn all_same(
    original: &Path,
    args: &[&str],
    libs: Option<&str>,
    check: impl FnMut(&str, &serde_json::Value),
) {
    let outcomes = run_all(original, args, libs, check).unwrap();
    let wrong: Vec<_> = outcomes
        .iter()
        .filter(|o| o.1 != FormOutcome::Same)
        .collect();
    assert!(
        wrong.is_empty(),
        "{} {args:?}: {wrong:#?}",
        original.display()
    );
}
