//! Names of allocation sites: function, file and line of each call, from the innermost on.

use crate::objects::heap::unwind::Frame;
use addr2line::Loader;
use mgz_elf::demangle::readable;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// An allocation site.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site {
    /// The call that asked for memory: the innermost that is no part of an allocator or of a
    /// standard library.
    pub name: String,
    /// All calls, from the inside out, joined by ` < `.
    pub stack: String,
}

/// Functions between the program and the allocator.
fn is_plumbing(function: &str) -> bool {
    const STARTS: [&str; 17] = [
        "operator new",
        "std::",
        "__gnu_cxx::",
        "void std::",
        "alloc::",
        "core::",
        "<alloc::",
        "<core::",
        "__rust_",
        "__rustc",
        "__rdl_",
        "hashbrown::",
        "<hashbrown::",
        "malloc",
        "calloc",
        "realloc",
        "g_malloc",
    ];
    const WHOLE: [&str; 8] = [
        "xmalloc",
        "xcalloc",
        "xrealloc",
        "xstrdup",
        "strdup",
        "__strdup",
        "posix_memalign",
        "aligned_alloc",
    ];
    STARTS.iter().any(|s| function.starts_with(s)) || WHOLE.contains(&function)
}

/// Looks names up, each address once.
pub struct Names<'a> {
    /// From the address in a clone to that of the original.
    original: &'a dyn Fn(&Path, u64) -> Option<u64>,
    loaders: HashMap<PathBuf, Option<Loader>>,
    known: HashMap<Frame, Vec<(String, String)>>,
}

impl<'a> Names<'a> {
    /// `original` translates addresses in clones, as linked.
    pub fn new(original: &'a dyn Fn(&Path, u64) -> Option<u64>) -> Names<'a> {
        Names {
            original,
            loaders: HashMap::new(),
            known: HashMap::new(),
        }
    }

    /// Names a call stack.
    pub fn site(&mut self, frames: &[Frame]) -> Site {
        let calls: Vec<(String, String)> = frames.iter().flat_map(|f| self.calls(f)).collect();
        let text = |(function, place): &(String, String)| {
            if place.is_empty() {
                function.clone()
            } else {
                format!("{function} {place}")
            }
        };
        let site = calls.iter().find(|c| !is_plumbing(&c.0)).or(calls.first());
        Site {
            name: site.map_or_else(|| "[unknown call]".to_owned(), text),
            stack: calls.iter().map(text).collect::<Vec<_>>().join(" < "),
        }
    }

    /// Function and place of a call, and of those that it was inlined into.
    fn calls(&mut self, frame: &Frame) -> Vec<(String, String)> {
        if let Some(known) = self.known.get(frame) {
            return known.clone();
        }
        let found = self.look_up(frame);
        self.known.insert(frame.clone(), found.clone());
        found
    }

    fn look_up(&mut self, frame: &Frame) -> Vec<(String, String)> {
        let file = frame.file.as_path();
        let module = file
            .file_name()
            .map_or_else(|| "?".to_owned(), |n| n.to_string_lossy().into_owned());
        // Sites of calls lie before the address that the map knows: that of the next instruction.
        let address = (self.original)(file, frame.address + 1).map_or(frame.address, |a| a - 1);
        let unknown = vec![(format!("{module}+{address:#x}"), String::new())];
        let loader = self
            .loaders
            .entry(file.to_owned())
            .or_insert_with(|| Loader::new(file).ok());
        let Some(loader) = loader else { return unknown };
        let mut calls = Vec::new();
        if let Ok(mut frames) = loader.find_frames(address) {
            while let Ok(Some(frame)) = frames.next() {
                let Some(function) = frame.function.as_ref() else {
                    continue;
                };
                let name = function
                    .raw_name()
                    .map_or_else(|_| String::new(), |n| readable(&n));
                let place = frame
                    .location
                    .as_ref()
                    .and_then(|l| Some((l.file?, l.line?)));
                calls.push((
                    plain(&name),
                    place.map_or_else(String::new, |(file, line)| {
                        format!("{}:{line}", file.rsplit('/').next().unwrap_or(file))
                    }),
                ));
            }
        }
        if calls.is_empty() {
            match loader.find_symbol(address) {
                Some(symbol) => calls.push((plain(&readable(symbol)), String::new())),
                None => return unknown,
            }
        }
        calls
    }
}

/// Rust's hashes and versions of symbols say nothing to people.
pub(crate) fn plain(name: &str) -> String {
    let name = name.split('@').next().unwrap_or(name);
    match name.rfind("::h") {
        Some(at)
            if name.len() == at + 19 && name[at + 3..].bytes().all(|b| b.is_ascii_hexdigit()) =>
        {
            name[..at].to_owned()
        }
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_site_is_the_call_that_the_programmer_wrote() {
        for (function, plumbing) in [
            ("operator new(unsigned long)", true),
            ("std::vector<int>::push_back", true),
            ("main", false),
            ("alloc::raw_vec::finish_grow", true),
            ("make_table", false),
            ("xmalloc", true),
        ] {
            assert_eq!(is_plumbing(function), plumbing, "{function}");
        }
        assert_eq!(plain("demo::run::h0123456789abcdef"), "demo::run");
        assert_eq!(plain("free@@GLIBC_2.2.5"), "free");
    }

    #[test]
    fn frames_of_this_program_have_names() {
        let file = std::sync::Arc::new(std::env::current_exe().unwrap());
        let loader = Loader::new(&*file).unwrap();
        // An address without code is a number.
        let original = |_: &Path, _: u64| None;
        let mut names = Names::new(&original);
        let nowhere = names.site(&[Frame {
            file: file.clone(),
            address: 1 << 60,
        }]);
        assert!(nowhere.name.ends_with("+0x1000000000000000"), "{nowhere:?}");
        assert_eq!(names.site(&[]).name, "[unknown call]");
        drop(loader);
    }
}
