//! The command to run: a program, or a script with its interpreter.

use anyhow::{Context, bail};
use mgz_collector::program::path_search::resolve;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The file that is executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The ELF file of the program, or of the script's interpreter.
    pub file: PathBuf,
    /// Arguments before the user's: those of the first line of a script, and the script.
    pub first: Vec<OsString>,
    /// The script, if it is one.
    pub script: Option<PathBuf>,
    /// The shim through which the program was found, if there is one.
    pub shim: Option<PathBuf>,
}

/// Maximum number of scripts whose interpreter is a script. Source: Chosen.
const MAX_SCRIPT_DEPTH: usize = 4;

impl Program {
    /// Finds a program by its name, as a shell does. A shim of pyenv is replaced by the program
    /// that it would execute.
    pub fn find(name: &OsStr) -> anyhow::Result<Program> {
        let found = located(name)?;
        let (file, shim) = match behind_shim(&found) {
            Some(file) => (file, Some(found)),
            None => (found, None),
        };
        let mut program = Program {
            file,
            first: Vec::new(),
            script: None,
            shim,
        };
        for _ in 0..MAX_SCRIPT_DEPTH {
            let Some(line) = first_line(&program.file)? else {
                return Ok(program);
            };
            let (interpreter, argument) = interpreter(&line)
                .with_context(|| format!("{}: first line", program.file.display()))?;
            let mut first: Vec<OsString> = argument.into_iter().collect();
            first.push(program.file.clone().into());
            first.append(&mut program.first);
            program = Program {
                script: program.script.or(Some(program.file)),
                file: interpreter,
                first,
                shim: program.shim,
            };
        }
        bail!(
            "{}: its interpreter is a script of a script of a script",
            program.file.display()
        )
    }

    /// Name for messages and folders.
    pub fn name(&self) -> String {
        let given = self.shim.as_deref().or(self.script.as_deref());
        let path = given.unwrap_or(&self.file);
        path.file_name()
            .unwrap_or(path.as_os_str())
            .to_string_lossy()
            .into_owned()
    }
}

fn located(name: &OsStr) -> anyhow::Result<PathBuf> {
    Ok(resolve(name, std::env::var_os("PATH").as_deref())?)
}

/// The program that a shim of pyenv (or of rbenv and similar tools) would execute, according to its
/// manager. `None` if the file is not such a shim, or if the manager does not answer.
fn behind_shim(file: &Path) -> Option<PathBuf> {
    let mut head = Vec::new();
    std::fs::File::open(file)
        .and_then(|f| f.take(4096).read_to_end(&mut head))
        .ok()?;
    let text = head.strip_prefix(b"#!").map(String::from_utf8_lossy)?;
    let call = text
        .lines()
        .find(|line| line.contains("\" exec \"$program\""))?;
    let manager = call.trim().strip_prefix("exec \"")?.split('"').next()?;
    let name = file.file_name()?;
    let told = Command::new(manager).arg("which").arg(name).output().ok()?;
    let path = String::from_utf8(told.stdout).ok()?;
    let path = PathBuf::from(path.trim_end());
    (told.status.success() && path.is_absolute() && path != file).then_some(path)
}

/// Text after `#!`, if the file begins with that.
fn first_line(file: &Path) -> anyhow::Result<Option<Vec<u8>>> {
    let mut head = Vec::new();
    std::fs::File::open(file)
        .and_then(|f| f.take(4096).read_to_end(&mut head))
        .with_context(|| format!("{}: cannot be read", file.display()))?;
    let Some(rest) = head.strip_prefix(b"#!") else {
        return Ok(None);
    };
    let line = rest.split(|&b| b == b'\n').next().unwrap_or_default();
    Ok(Some(line.trim_ascii().to_vec()))
}

/// The interpreter and its one argument, as the kernel reads them from the line. `env NAME` is
/// resolved here, because the program that `env` would execute is to be instrumented.
fn interpreter(line: &[u8]) -> anyhow::Result<(PathBuf, Option<OsString>)> {
    let mut words = line.splitn(2, |b| b" \t".contains(b));
    let path = words.next().unwrap_or_default();
    let argument = words.next().map(<[u8]>::trim_ascii).unwrap_or_default();
    if path.is_empty() {
        bail!("names no interpreter");
    }
    let path = PathBuf::from(OsString::from_vec(path.to_vec()));
    if path.file_name() == Some(OsStr::new("env")) {
        let argument = argument.strip_prefix(b"-S").unwrap_or(argument);
        let mut words = argument.trim_ascii().splitn(2, |b| b" \t".contains(b));
        let name = words.next().unwrap_or_default();
        let rest = words.next().map(<[u8]>::trim_ascii).unwrap_or_default();
        if name.is_empty() || name.starts_with(b"-") || name.contains(&b'=') || rest.contains(&b' ')
        {
            bail!(
                "{:?} is more than a name behind env; run the interpreter by itself: mgz run -- INTERPRETER SCRIPT",
                String::from_utf8_lossy(argument)
            );
        }
        let file = located(OsStr::from_bytes(name))?;
        return Ok((file, given(rest)));
    }
    Ok((located(path.as_os_str())?, given(argument)))
}

fn given(argument: &[u8]) -> Option<OsString> {
    (!argument.is_empty()).then(|| OsString::from_vec(argument.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mgz_collector::program::refusal::Refusal;
    use std::os::unix::fs::PermissionsExt;

    fn script(dir: &Path, name: &str, text: &str) -> PathBuf {
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn scripts_name_their_interpreter() {
        let dir = tempfile::tempdir().unwrap();
        let sh = script(dir.path(), "a.sh", "#!/bin/sh -e\necho\n");
        let found = Program::find(sh.as_os_str()).unwrap();
        assert_eq!(found.file, Path::new("/bin/sh"));
        assert_eq!(found.first, [OsStr::new("-e"), sh.as_os_str()]);
        assert_eq!(found.name(), "a.sh");
        let by_env = script(dir.path(), "b", "#! /usr/bin/env sh\n");
        let found = Program::find(by_env.as_os_str()).unwrap();
        assert!(found.file.ends_with("sh") && found.file.is_absolute());
        assert_eq!(found.first, [by_env.as_os_str()]);
    }

    #[test]
    fn a_shim_stands_for_its_program() {
        let dir = tempfile::tempdir().unwrap();
        let manager = dir.path().join("manager");
        let shim = |dir: &Path| {
            let text = format!(
                "#!/usr/bin/env bash\nprogram=\"${{0##*/}}\"\nexec \"{}\" exec \"$program\" \"$@\"\n",
                manager.display()
            );
            script(dir, "tool", &text)
        };
        let path = shim(dir.path());
        // The manager does not answer, so it is an ordinary script.
        let found = Program::find(path.as_os_str()).unwrap();
        assert_eq!(found.script.as_deref(), Some(path.as_path()));
        script(
            dir.path(),
            "manager",
            "#!/bin/sh\n[ \"$1 $2\" = 'which tool' ] && echo /bin/sh\n",
        );
        let found = Program::find(path.as_os_str()).unwrap();
        assert_eq!(
            (found.file.as_path(), found.script.clone()),
            (Path::new("/bin/sh"), None)
        );
        assert_eq!((found.name(), found.shim), ("tool".into(), Some(path)));
    }

    #[test]
    fn a_script_may_be_run_by_a_script() {
        let dir = tempfile::tempdir().unwrap();
        let inner = script(dir.path(), "run", "#!/bin/sh\n");
        let outer = script(dir.path(), "outer", &format!("#!{} -x\n", inner.display()));
        let found = Program::find(outer.as_os_str()).unwrap();
        assert_eq!(found.file, Path::new("/bin/sh"));
        // The kernel appends each interpreter's argument and then the script.
        assert_eq!(
            found.first,
            [inner.as_os_str(), OsStr::new("-x"), outer.as_os_str()]
        );
        assert_eq!(found.name(), "outer");
        let round = script(dir.path(), "round", "");
        std::fs::write(&round, format!("#!{}\n", round.display())).unwrap();
        assert!(Program::find(round.as_os_str()).is_err());
    }

    #[test]
    fn what_is_not_there_is_said() {
        for name in ["./no/such/program", "no-such-program-of-mgz"] {
            let error = Program::find(OsStr::new(name)).unwrap_err();
            let refusal = error.downcast_ref::<Refusal>().unwrap();
            assert_eq!(refusal.status(), 127);
        }
        let dir = tempfile::tempdir().unwrap();
        for line in ["#!\n", "#!/usr/bin/env -i X=1 sh\n"] {
            let path = script(dir.path(), "s", line);
            assert!(Program::find(path.as_os_str()).is_err(), "{line}");
        }
    }
}
