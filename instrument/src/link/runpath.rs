//! Libraries that a program needs, and the search path by which a rewritten program finds the
//! rewritten ones.

use crate::common::io::Content;
use crate::program::sanitizers::is_runtime_library;
use mgz_abi::module_note::WRAPPED;
use mgz_elf::image::{Elf, dt};
use mgz_elf::library_search::{Requester, Search, is_c_library};
use mgz_elf::{Refusal, symbols};
use object::elf;
use std::path::{Path, PathBuf};

/// A change of the dynamic section.
#[derive(Debug)]
pub struct RunpathChange {
    /// The new dynamic string table.
    pub strings: Vec<u8>,
    /// File offsets and bytes to be overwritten.
    pub overwrite: Vec<(u64, Vec<u8>)>,
    /// A dynamic array that replaces the old one, which has no room for another entry. It must be
    /// writable.
    pub dynamic: Option<Vec<u8>>,
}

/// A library search path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchPath {
    /// Folders, separated by colons.
    pub folders: String,
    /// True if it also applies to the libraries' own needs (`DT_RPATH`, unlike `DT_RUNPATH`).
    pub is_inherited: bool,
}

impl SearchPath {
    /// A path that also applies to the libraries' own needs.
    pub fn inherited(folders: String) -> SearchPath {
        SearchPath {
            folders,
            is_inherited: true,
        }
    }

    /// The search path by which a moved file finds the same libraries as now; none if it does not
    /// name its own folder.
    pub fn kept(elf: &Elf, file: &Path) -> Option<SearchPath> {
        let mut own = elf.dynamic_strings(dt(elf::DT_RUNPATH));
        // The loader uses `DT_RPATH` only without a `DT_RUNPATH`.
        let is_inherited = own.is_empty();
        if is_inherited {
            own = elf.dynamic_strings(dt(elf::DT_RPATH));
        }
        let names_origin = |s: &String| s.contains("$ORIGIN") || s.contains("${ORIGIN}");
        own.iter().any(names_origin).then(|| SearchPath {
            folders: absolute_path(elf, file),
            is_inherited,
        })
    }
}

/// The search path of a moved file: `first`, then its own path, with `$ORIGIN` replaced by its
/// current folder.
pub fn joined_path(elf: &Elf, first: &str, file: &Path) -> String {
    match absolute_path(elf, file) {
        own if own.is_empty() => first.to_owned(),
        own => format!("{first}:{own}"),
    }
}

/// The search path of a file, with `$ORIGIN` replaced by its current folder; empty if it has none.
pub fn absolute_path(elf: &Elf, file: &Path) -> String {
    let runpath = elf.dynamic_strings(dt(elf::DT_RUNPATH));
    let old = if runpath.is_empty() {
        elf.dynamic_strings(dt(elf::DT_RPATH))
    } else {
        runpath
    };
    let file = std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let origin = file
        .parent()
        .map_or_else(|| "/".into(), |p| p.to_string_lossy().into_owned());
    let parts = old.iter().flat_map(|s| s.split(':'));
    let absolute = parts.filter(|s| !s.is_empty()).map(|part| {
        part.replace("${ORIGIN}", &origin)
            .replace("$ORIGIN", &origin)
    });
    absolute.collect::<Vec<String>>().join(":")
}

/// Makes `path` the library search path, instead of the file's own. The string table, grown by the
/// path, will be at `strings_at`.
pub fn search_path(
    elf: &Elf,
    path: &SearchPath,
    strings_at: u64,
) -> Result<RunpathChange, Refusal> {
    let cannot = |why: &str| {
        Refusal::declined(format!(
            "its library search path cannot be changed ({why}); leave out --libs"
        ))
    };
    /// Bytes of one entry.
    const SIZE: usize = 16;
    let (table_at, capacity) = elf
        .dynamic_at
        .ok_or_else(|| cannot("it has no dynamic section"))?;
    let index_of = |tag: u64| elf.dynamic.iter().position(|d| d.0 == tag);
    let strtab = index_of(dt(elf::DT_STRTAB)).ok_or_else(|| cannot("no dynamic strings"))?;
    let strsz = index_of(dt(elf::DT_STRSZ)).ok_or_else(|| cannot("no dynamic strings"))?;
    let size =
        usize::try_from(elf.dynamic[strsz].1).map_err(|_| cannot("dynamic strings are damaged"))?;
    let old = elf
        .at(elf.dynamic[strtab].1)
        .and_then(|b| b.get(..size))
        .ok_or_else(|| cannot("dynamic strings are damaged"))?;

    let (rpath, runpath) = (index_of(dt(elf::DT_RPATH)), index_of(dt(elf::DT_RUNPATH)));
    // A DT_NULL must remain after the last entry.
    let spare = (elf.dynamic.len() + 1 < capacity).then_some(elf.dynamic.len());
    let slot = runpath.or(rpath).or(spare);

    let mut strings = old.to_vec();
    let text_at = strings.len() as u64;
    strings.extend_from_slice(path.folders.as_bytes());
    strings.push(0);
    let mut entries = elf.dynamic.clone();
    entries[strtab].1 = strings_at;
    entries[strsz].1 = strings.len() as u64;
    let tag = if path.is_inherited {
        elf::DT_RPATH
    } else {
        elf::DT_RUNPATH
    };
    let own = (dt(tag), text_at);
    match slot.filter(|&s| s < entries.len()) {
        Some(slot) => entries[slot] = own,
        None => entries.push(own),
    }
    if let (Some(_), Some(rpath)) = (runpath, rpath) {
        entries[rpath] = own;
    }
    let mut bytes: Vec<u8> = entries
        .iter()
        .flat_map(|e| [e.0.to_le_bytes(), e.1.to_le_bytes()])
        .flatten()
        .collect();
    if slot.is_some() {
        return Ok(RunpathChange {
            strings,
            overwrite: vec![(table_at, bytes)],
            dynamic: None,
        });
    }
    bytes.extend_from_slice(&[0; SIZE]);
    Ok(RunpathChange {
        strings,
        overwrite: Vec::new(),
        dynamic: Some(bytes),
    })
}

/// A library that a program needs.
#[derive(Clone, Debug)]
pub struct Library {
    /// The name by which it is requested.
    pub name: String,
    /// Path of the library's file.
    pub path: PathBuf,
    /// Bytes of code in it.
    pub text_bytes: u64,
    /// True if it belongs to the C library or is the loader.
    pub is_c_library: bool,
    /// Other names by which it is opened.
    pub other_names: Vec<String>,
    /// Libraries that search for it by a path of their own. They find the rewritten one only if
    /// they are rewritten as well, with that path changed.
    pub searched_by: Vec<String>,
}

impl Library {
    fn new(name: String, path: PathBuf) -> Option<Library> {
        let data = Content::read(&path).ok()?;
        let code = Elf::parse(data.bytes()).ok()?.code_ranges();
        Some(Library {
            is_c_library: is_c_library(&name),
            name,
            path,
            text_bytes: code.iter().map(|r| r.end - r.start).sum(),
            other_names: Vec::new(),
            searched_by: Vec::new(),
        })
    }
}

/// All libraries of a program, and the names that were not found.
#[derive(Clone, Debug, Default)]
pub struct Libraries {
    /// Found, in the loader's order.
    pub found: Vec<Library>,
    /// Not found.
    pub missing: Vec<String>,
}

/// Libraries that an executable needs and that must come before the software backend's runtime: up
/// to the last one that wraps a function which the runtime wraps too ([`WRAPPED`]), in the loader's
/// order. Libraries after the C library wrap nothing.
pub fn before_runtime(data: &[u8], path: &Path) -> Vec<String> {
    let Some(elf) = Elf::parse(data).ok().filter(|e| e.interpreter().is_some()) else {
        return Vec::new();
    };
    let mut needed = elf.dynamic_strings(dt(elf::DT_NEEDED));
    let c_library = needed.iter().position(|name| is_c_library(name));
    needed.truncate(c_library.unwrap_or(needed.len()));
    // Most programs need no other libraries.
    if needed.iter().all(|name| stands_in_for_nothing(name)) {
        return Vec::new();
    }
    let Some(program) = Requester::program(path) else {
        return Vec::new();
    };
    let search = Search::from_environment();
    let replaces = |name: &str| {
        let library = Content::read(&search.find(name.as_bytes(), &program)?).ok()?;
        let library = Elf::parse(library.bytes()).ok()?;
        let wrapped = |name: &[u8]| WRAPPED.iter().any(|w| w.as_bytes() == name);
        Some(symbols::any_exported(&library, wrapped))
    };
    let stands_in = |name: &String| {
        is_runtime_library(name) || !stands_in_for_nothing(name) && replaces(name).unwrap_or(false)
    };
    let last = needed.iter().rposition(stands_in);
    needed.truncate(last.map_or(0, |last| last + 1));
    needed
}

/// True for libraries of compilers, which define no function of the C library.
fn stands_in_for_nothing(name: &str) -> bool {
    ["libstdc++.so.", "libgcc_s.so.", "libm.so.", "libgomp.so."]
        .iter()
        .any(|stem| name.starts_with(stem))
}

/// Finds the libraries of the program at `path`, with those that they need.
pub fn find_libraries(path: &Path) -> Libraries {
    let mut libraries = Libraries::default();
    for found in Search::from_environment().closure(path, |_| true) {
        let name = lossy(&found.name);
        match found.path.and_then(|path| Library::new(name.clone(), path)) {
            Some(library) => libraries.found.push(Library {
                searched_by: found.searched_by.iter().map(|n| lossy(n)).collect(),
                ..library
            }),
            None => libraries.missing.push(name),
        }
    }
    libraries
}

fn lossy(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// A library that the program at `program` does not need but opens: by its path, or by a name that
/// the program or one of its libraries finds. The name may be any name of the file.
pub fn find_opened(asked: &str, program: &Path) -> Result<Library, String> {
    let search = Search::from_environment();
    let file = match asked.contains('/') {
        true => PathBuf::from(asked),
        false => search
            .find_for(asked.as_bytes(), program)
            .ok_or_else(|| "neither the program nor a library that it needs finds it".to_owned())?,
    };
    let Some(openable) = search.openable(&file, program) else {
        return Err(match file.exists() {
            true => "it is found by no name, so that the program opens it by its path: instrument it by itself and put it there".into(),
            false => "there is no such file".into(),
        });
    };
    let mut names: Vec<String> = openable.names.iter().map(|n| lossy(n)).collect();
    let first = names.iter().position(|name| name == asked).unwrap_or(0);
    let name = names.remove(first);
    let library =
        Library::new(name, file).ok_or_else(|| "it cannot be read as an ELF file".to_owned())?;
    Ok(Library {
        other_names: names,
        searched_by: openable.searched_by.iter().map(|n| lossy(n)).collect(),
        ..library
    })
}
