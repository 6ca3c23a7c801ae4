//! Subcommands of `mgz-analyze` with a viewer: `--html FILE` makes a report of their result.

use crate::{html, report, signals, tools};
use anyhow::{Context, bail};
use mgz_annotations_schema::tell;
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::Command;

/// Runs the subcommand. Without `--html` it replaces this process.
pub fn run_viewed(name: &'static str, arguments: Vec<OsString>) -> anyhow::Result<i32> {
    let Some((file, mut rest)) = html_of(&arguments)? else {
        let mut all = vec![OsString::from(name)];
        all.extend(arguments);
        return tools::become_tool("mgz-analyze", "mgz", &all);
    };
    let source = name == "compare" && !take(&mut rest, "--no-source");
    let tool = tools::find_tool("mgz-analyze")?;
    let data = tempfile::NamedTempFile::new().context("cannot make a temporary file")?;
    let mut command = Command::new(&tool);
    command.arg0("mgz");
    command.arg(name).arg("--report-data").arg(data.path());
    command.args(rest);
    let status = signals::wait_for(&mut command)
        .with_context(|| format!("{}: cannot be executed", tool.display()))?;
    let code = status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    let bytes = std::fs::read(data.path()).context("the output of mgz-analyze is gone")?;
    if bytes.is_empty() {
        // The subcommand has printed the reason.
        return Ok(if code == 0 { 1 } else { code });
    }
    let mut found: Value = serde_json::from_slice(&bytes)
        .context("mgz-analyze has written no result that can be read")?;
    if source {
        html::add_sources(&mut found);
    }
    report::write_private(&file, &html::page(&[(name, found)])?)?;
    tell!("\nmgz: report: {}", file.display());
    Ok(code)
}

/// The file of `--html FILE` and the other arguments; `None` if there is no such option. Arguments
/// after `--` are names.
fn html_of(arguments: &[OsString]) -> anyhow::Result<Option<(PathBuf, Vec<OsString>)>> {
    let end = arguments.iter().position(|a| a == "--");
    let (options, names) = arguments.split_at(end.unwrap_or(arguments.len()));
    let mut file = None;
    let mut rest = Vec::new();
    let mut words = options.iter();
    while let Some(word) = words.next() {
        if word == "--html" {
            match words.next() {
                Some(given) => file = Some(PathBuf::from(given)),
                None => bail!("--html: no file is given; write --html FILE"),
            }
        } else if let Some(given) = after(word, "--html=") {
            file = Some(PathBuf::from(given));
        } else {
            rest.push(word.clone());
        }
    }
    rest.extend(names.iter().cloned());
    Ok(file.map(|file| (file, rest)))
}

/// Removes an option. True if it was there.
fn take(arguments: &mut Vec<OsString>, option: &str) -> bool {
    let end = arguments.iter().position(|a| a == "--");
    let end = end.unwrap_or(arguments.len());
    let found = arguments[..end].iter().position(|a| a == option);
    found.map(|at| arguments.remove(at)).is_some()
}

/// Text after a prefix.
fn after<'a>(word: &'a OsStr, prefix: &str) -> Option<&'a OsStr> {
    use std::os::unix::ffi::OsStrExt;
    word.as_bytes()
        .strip_prefix(prefix.as_bytes())
        .map(OsStr::from_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_taken_out_and_names_stay() {
        let words = |line: &str| -> Vec<OsString> { line.split(' ').map(OsString::from).collect() };
        let found = |line: &str| html_of(&words(line)).unwrap();
        assert_eq!(found("a -- b --html c"), None);
        for line in ["--html o.html a -- --html", "a --html=o.html -- --html"] {
            assert_eq!(found(line), Some(("o.html".into(), words("a -- --html"))));
        }
        assert!(html_of(&words("a --html")).is_err());
        let mut line = words("a --no-source -- --no-source");
        assert!(take(&mut line, "--no-source") && !take(&mut line, "--no-source"));
        assert_eq!(line, words("a -- --no-source"));
    }
}
