//! Comparison of the output of two runs.

use crate::fix::workload::{Ran, STREAMS, status_in_words};
use anyhow::Context;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

/// The method of comparing outputs.
pub enum Comparison {
    /// Byte by byte.
    Exact,
    /// By a command of the user, which gets both folders.
    Command(String),
}

impl Comparison {
    /// Description of the difference between two runs; `None` if there is none.
    pub fn difference(&self, one: &Ran, other: &Ran) -> anyhow::Result<Option<String>> {
        if one.status != other.status {
            return Ok(Some(format!(
                "one run ends with {}, another with {}",
                status_in_words(one.status),
                status_in_words(other.status)
            )));
        }
        let (a, b) = (one.output.path(), other.output.path());
        match self {
            Comparison::Exact => different_file(a, b),
            Comparison::Command(command) => rejected(command, a, b),
        }
    }
}

/// Runs the user's command.
fn rejected(command: &str, a: &Path, b: &Path) -> anyhow::Result<Option<String>> {
    let status = Command::new("sh")
        .arg("-c")
        .arg(format!("{command} \"$@\""))
        .arg("sh")
        .args([a, b])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .context("sh cannot be executed for --check")?;
    Ok((!status.success()).then(|| format!("--check ends with {}", status_in_words(status))))
}

/// The first file that differs between two folders.
fn different_file(a: &Path, b: &Path) -> anyhow::Result<Option<String>> {
    let names = |folder: &Path| -> anyhow::Result<BTreeSet<OsString>> {
        let entries = std::fs::read_dir(folder)
            .with_context(|| format!("{}: cannot be read", folder.display()))?;
        entries.map(|e| Ok(e?.file_name())).collect()
    };
    let (of_a, of_b) = (names(a)?, names(b)?);
    for name in of_a.union(&of_b) {
        let (a, b) = (a.join(name), b.join(name));
        let is_same = match (a.is_dir(), b.is_dir()) {
            (true, true) => different_file(&a, &b)?.is_none(),
            (false, false) => is_same_file(&a, &b),
            _ => false,
        };
        if !is_same {
            let name = name.to_string_lossy();
            let told = match STREAMS.contains(&&*name) {
                true => format!("the {name} of two runs is different"),
                false => format!("{name} of two runs is different"),
            };
            return Ok(Some(told));
        }
    }
    Ok(None)
}

/// Number of bytes compared at a time.
const CHUNK: usize = 1 << 16;

fn is_same_file(a: &Path, b: &Path) -> bool {
    let (Ok(mut a), Ok(mut b)) = (File::open(a), File::open(b)) else {
        return false;
    };
    let size = |file: &File| file.metadata().map(|m| m.len()).ok();
    if size(&a) != size(&b) {
        return false;
    }
    let (mut of_a, mut of_b) = (vec![0; CHUNK], vec![0; CHUNK]);
    loop {
        let Ok(length) = a.read(&mut of_a) else {
            return false;
        };
        if length == 0 {
            return true;
        }
        if b.read_exact(&mut of_b[..length]).is_err() || of_a[..length] != of_b[..length] {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    fn ran(out: &str, err: &str, status: i32) -> Ran {
        let output = tempfile::tempdir().unwrap();
        std::fs::write(output.path().join("stdout"), out).unwrap();
        std::fs::write(output.path().join("stderr"), err).unwrap();
        Ran {
            seconds: 1.0,
            cpu_seconds: 1.0,
            status: ExitStatus::from_raw(status),
            output,
        }
    }

    #[test]
    fn streams_and_status_are_compared_apart() {
        let exact = Comparison::Exact;
        let told = |a: &Ran, b: &Ran| exact.difference(a, b).unwrap();
        let one = ran("a", "b", 0);
        assert_eq!(told(&one, &ran("a", "b", 0)), None);
        assert!(told(&one, &ran("b", "a", 0)).unwrap().contains("stderr"));
        assert!(told(&one, &ran("a ", "b", 0)).unwrap().contains("stdout"));
        let failed = told(&one, &ran("a", "b", 11)).unwrap();
        assert!(failed.contains("status 0") && failed.contains("signal 11"));
    }

    #[test]
    fn files_and_folders_are_compared() {
        let (one, other) = (ran("", "", 0), ran("", "", 0));
        let put = |ran: &Ran, text: &str| {
            let folder = ran.output.path().join("file0-out");
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("x"), text).unwrap();
        };
        let told = || Comparison::Exact.difference(&one, &other).unwrap();
        put(&one, "1");
        assert!(told().unwrap().contains("file0-out"));
        put(&other, "1");
        assert_eq!(told(), None);
        put(&other, "2");
        assert!(told().is_some());
    }

    #[test]
    fn a_command_gets_both_folders() {
        let (one, other) = (ran("1", "x", 0), ran("1", "y", 0));
        let told = |command: &str| {
            let check = Comparison::Command(command.into());
            check.difference(&one, &other).unwrap()
        };
        assert_eq!(told("f() { cmp $1/stdout $2/stdout; }; f"), None);
        assert!(told("diff -r").unwrap().contains("--check"));
    }
}
