//! Extension modules of CPython, which it opens by their paths: they are instrumented when a program imports them.
//!
//! `mgz run` lets Python read a `sitecustomize` of its own ([`HOOK`]) first. That one asks, over a pipe, for the instrumented form of each
//! module before it is opened, and lets Python open that file instead; all that the program can see of a module stays what it was. A
//! thread here answers, out of the same cache as for programs. Modules that cannot be instrumented, or might not find their libraries
//! from elsewhere, are opened as they are.

mod pipe;

use crate::instrumented::{Module, Modules};
use anyhow::Context;
use pipe::Requests;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

/// What Python reads first.
const HOOK: &str = include_str!("sitecustomize.py");
/// How it is called.
const HOOK_FILE: &str = "sitecustomize.py";

/// Whether it is an interpreter of Python: `python3.11`.
pub fn is_python(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let rest = name.strip_prefix("python");
    rest.is_some_and(|version| version.chars().all(|c| c.is_ascii_digit() || c == '.'))
}

/// The option of Python by which it would not read [`HOOK`], if one of its arguments is that.
pub fn ignores_hook<'a>(arguments: impl Iterator<Item = &'a OsString>) -> Option<char> {
    for argument in arguments {
        let argument = argument.to_string_lossy();
        let Some(flags) = argument
            .strip_prefix('-')
            .filter(|f| !f.starts_with('-') && !f.is_empty())
        else {
            // A script, or a long option, behind which only scripts and modules come.
            return None;
        };
        for flag in flags.chars() {
            match flag {
                'S' | 'E' | 'I' => return Some(flag),
                // What follows is for the program, or a value.
                'c' | 'm' => return None,
                'W' | 'X' => break,
                _ => {}
            }
        }
    }
    None
}

/// The thread that answers, and the folder of the pipes.
pub struct Hook {
    folder: tempfile::TempDir,
    requests: Requests,
    thread: JoinHandle<Answers>,
}

/// What was answered: by the module's file.
type Answers = BTreeMap<PathBuf, Module>;

impl Hook {
    /// Begins to answer.
    pub fn start() -> anyhow::Result<Hook> {
        let folder = tempfile::Builder::new()
            .prefix("mgz-python-")
            .tempdir()
            .context("cannot make a folder for Python's modules")?;
        let hook = folder.path().join(HOOK_FILE);
        std::fs::write(&hook, HOOK).with_context(|| format!("{}: cannot write", hook.display()))?;
        let requests = Requests::new(&folder.path().join("request"))?;
        let mut modules = Modules::new()?;
        let asked = requests.reader()?;
        let thread = std::thread::spawn(move || {
            let mut answers = Answers::new();
            pipe::serve(asked, |path| {
                let module = answers
                    .entry(path.to_owned())
                    .or_insert_with(|| modules.prepare(path));
                module.file().map(Path::to_owned)
            });
            answers
        });
        Ok(Hook {
            folder,
            requests,
            thread,
        })
    }

    /// Variables of the program's environment, which the hook takes out again.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        let folder = self.folder.path();
        let old = std::env::var_os("PYTHONPATH");
        let mut path = folder.as_os_str().to_owned();
        if let Some(old) = &old {
            path.push(":");
            path.push(old);
        }
        let kept = old.map(|old| ("MGZ_PYTHONPATH", old));
        let own = [
            ("PYTHONPATH", path),
            ("MGZ_MODULES", folder.as_os_str().to_owned()),
        ];
        own.into_iter().chain(kept).collect()
    }

    /// Stops answering. What is to be said of it, if modules were loaded.
    pub fn end(self) -> Option<String> {
        self.requests.end();
        let answers = self.thread.join().ok()?;
        said(&answers)
    }
}

/// `3 extension modules were instrumented (2 of them out of the cache); left as they are: …`.
fn said(answers: &Answers) -> Option<String> {
    let count = |is: fn(&Module) -> bool| answers.values().filter(|m| is(m)).count();
    let cached = count(|m| matches!(m, Module::Ready { cached: true, .. }));
    let ready = count(|m| m.file().is_some());
    let left: Vec<String> = (answers.iter())
        .filter_map(|(path, module)| match module {
            Module::Left(why) => {
                let name = path.file_name().unwrap_or(OsStr::new("?"));
                Some(format!("{} ({why})", name.to_string_lossy()))
            }
            Module::Ready { .. } => None,
        })
        .collect();
    if answers.is_empty() {
        return None;
    }
    let of_them = match cached {
        0 => String::new(),
        n if n == ready => " (all out of the cache)".into(),
        n => format!(" ({n} out of the cache)"),
    };
    let others = match left.as_slice() {
        [] => String::new(),
        few if few.len() <= 4 => format!("; left as they are: {}", few.join(", ")),
        many => format!(
            "; left as they are: {}, and {} more",
            many[..4].join(", "),
            many.len() - 4
        ),
    };
    let modules = if ready == 1 {
        "module of Python was"
    } else {
        "modules of Python were"
    };
    Some(format!(
        "{ready} extension {modules} instrumented{of_them}{others}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpreters_of_python_are_known_by_name() {
        for (file, is) in [
            ("/usr/bin/python3.11", true),
            ("python", true),
            ("/opt/python-tool", false),
            ("pythonize", false),
            ("/usr/bin/perl", false),
        ] {
            assert_eq!(is_python(Path::new(file)), is, "{file}");
        }
    }

    #[test]
    fn options_that_leave_the_hook_out_are_seen() {
        for (line, found) in [
            ("app.py -S", None),
            ("-u -S app.py", Some('S')),
            ("-uI app.py", Some('I')),
            ("-c E", None),
            ("-Wignore -E x", Some('E')),
            ("-X dev app.py -I", None),
            ("", None),
            ("- -S", None),
            ("--version", None),
        ] {
            let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            assert_eq!(ignores_hook(words.iter()), found, "{line}");
        }
    }

    #[test]
    fn what_became_of_modules_is_said() {
        let mut answers = Answers::new();
        assert_eq!(said(&answers), None);
        let ready = |cached| Module::Ready {
            file: "x".into(),
            cached,
        };
        answers.insert("/a/_json.so".into(), ready(true));
        assert_eq!(
            said(&answers).unwrap(),
            "1 extension module of Python was instrumented (all out of the cache)"
        );
        answers.insert("/a/b.so".into(), ready(false));
        answers.insert("/a/c.so".into(), Module::Left("declined".into()));
        assert_eq!(
            said(&answers).unwrap(),
            "2 extension modules of Python were instrumented (1 out of the cache); left as they are: c.so (declined)"
        );
    }
}
