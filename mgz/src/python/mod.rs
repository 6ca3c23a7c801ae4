//! Instrumentation of CPython's extension modules when a program imports them. Python opens modules
//! by their paths.
//!
//! `mgz run` makes Python read its own `sitecustomize` ([`HOOK`]) first. Before a module is opened,
//! the hook requests its instrumented form over a pipe, and lets Python open that file instead.
//! Everything that the program can see of a module stays unchanged. A thread here answers, from the
//! same cache as for programs. Modules that cannot be instrumented, or that might notice their
//! other location ([`crate::elsewhere`]), are opened unchanged.

mod pipe;

use crate::instrumented::{Module, Modules};
use anyhow::Context;
use pipe::Requests;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

/// The code that Python reads first.
const HOOK: &str = include_str!("sitecustomize.py");
/// Its file name.
const HOOK_FILE: &str = "sitecustomize.py";
/// Folders that Python searches first.
const PATH_VARIABLE: &str = "PYTHONPATH";

/// True for an interpreter of Python, such as `python3.11`.
pub fn is_python(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let rest = name.strip_prefix("python");
    rest.is_some_and(|version| version.chars().all(|c| c.is_ascii_digit() || c == '.'))
}

/// The option of Python that prevents it from reading [`HOOK`], if it is among the arguments.
pub fn ignores_hook<'a>(mut arguments: impl Iterator<Item = &'a OsString>) -> Option<char> {
    while let Some(argument) = arguments.next() {
        let argument = argument.to_string_lossy();
        let flags = argument.strip_prefix('-').filter(|f| !f.is_empty())?;
        if flags.starts_with('-') {
            if flags == "-check-hash-based-pycs" {
                arguments.next();
            }
            continue;
        }
        let mut flags = flags.chars();
        while let Some(flag) = flags.next() {
            match flag {
                'S' | 'E' | 'I' => return Some(flag),
                // Later arguments are for the program.
                'c' | 'm' => return None,
                // The rest is its value, or the next argument.
                'W' | 'X' => {
                    if flags.next().is_none() {
                        arguments.next();
                    }
                    break;
                }
                _ => {}
            }
        }
    }
    None
}

/// The answering thread, and the folder of the pipes.
pub struct Hook {
    /// Removed at the end.
    _folder: tempfile::TempDir,
    /// The previous `PYTHONPATH`.
    old: Option<OsString>,
    requests: Requests,
    thread: JoinHandle<Answers>,
}

/// Answers by the module's file.
type Answers = BTreeMap<PathBuf, Module>;

impl Hook {
    /// Starts the answering thread, and makes programs that are started from now on use it.
    pub fn start() -> anyhow::Result<Hook> {
        let folder = tempfile::Builder::new()
            .prefix("mgz-python-")
            .tempdir()
            .context("cannot make a folder for Python's modules")?;
        // In the form in which Python has it in its search path.
        let path = std::fs::canonicalize(folder.path())?;
        let old = std::env::var_os(PATH_VARIABLE);
        let hook = path.join(HOOK_FILE);
        let text = format!(
            "FOLDER = {}\nOLD = {}\n{HOOK}",
            literal(path.as_os_str()),
            old.as_deref().map_or("None".into(), literal)
        );
        std::fs::write(&hook, text).with_context(|| format!("{}: cannot write", hook.display()))?;
        let requests = Requests::new(&path.join("request"))?;
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
        let mut list = path.into_os_string();
        // An empty list is ignored; followed by a colon, it would mean the current folder.
        if let Some(old) = old.as_deref().filter(|old| !old.is_empty()) {
            list.push(":");
            list.push(old);
        }
        // The variable is set here and not only for the child, whose variables would be sorted.
        // SAFETY: the thread above reads variables only for a request, and there is none yet.
        unsafe { std::env::set_var(PATH_VARIABLE, list) };
        Ok(Hook {
            _folder: folder,
            old,
            requests,
            thread,
        })
    }

    /// Stops answering. Returns a message if modules were loaded.
    pub fn end(self) -> Option<String> {
        self.requests.end();
        let answers = self.thread.join();
        // SAFETY: no other thread is running.
        unsafe {
            match &self.old {
                Some(old) => std::env::set_var(PATH_VARIABLE, old),
                None => std::env::remove_var(PATH_VARIABLE),
            }
        }
        said(&answers.ok()?)
    }
}

/// A literal of bytes in Python.
fn literal(text: &OsStr) -> String {
    let bytes = text.as_encoded_bytes().iter();
    let escaped: String = bytes.map(|b| format!("\\x{b:02x}")).collect();
    format!("b\"{escaped}\"")
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
            ("-W ignore -S app.py", Some('S')),
            ("-W ignore app.py -S", None),
            ("-XS app.py", None),
            ("--check-hash-based-pycs never -E x", Some('E')),
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
