//! Libraries: where the loader would find them, and how a rewritten program finds the rewritten ones.
//!
//! The search follows ld.so: the requesting file's `DT_RPATH` (unless it has a `DT_RUNPATH`), those of the
//! files that led to it, `LD_LIBRARY_PATH`, `DT_RUNPATH`, the loader's cache, the default folders. Like
//! ld.so it visits files breadth first, and a name that was found once is not searched for again.

use crate::common::io::Content;
use crate::program::sanitizers::is_runtime_library;
use mgz_abi::module_note::WRAPPED;
use mgz_elf::image::{Elf, dt};
use mgz_elf::{Refusal, bytes, symbols};
use object::elf;
use std::collections::{HashMap, HashSet, VecDeque};
use std::path::{Path, PathBuf};

/// A change of the dynamic section.
#[derive(Debug)]
pub struct Change {
    /// The new dynamic string table.
    pub strings: Vec<u8>,
    /// File offsets and bytes to be overwritten.
    pub overwrite: Vec<(u64, Vec<u8>)>,
    /// A dynamic array that replaces the old one, which has no room for another entry. It must be writable.
    pub dynamic: Option<Vec<u8>>,
}

/// The search path of a file that will lie elsewhere: `first`, then what it has, with `$ORIGIN` replaced by the
/// folder that it means now.
pub fn joined_path(elf: &Elf, first: &str, file: &Path) -> String {
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
    let mut path = first.to_owned();
    for part in old
        .iter()
        .flat_map(|s| s.split(':'))
        .filter(|s| !s.is_empty())
    {
        path.push(':');
        path.push_str(
            &part
                .replace("${ORIGIN}", &origin)
                .replace("$ORIGIN", &origin),
        );
    }
    path
}

/// Makes `path` the library search path, as `DT_RPATH` (which, other than `DT_RUNPATH`, holds for the libraries'
/// own needs as well). The string table, grown by the path, will lie at `strings_at`.
pub fn search_path(elf: &Elf, path: &str, strings_at: u64) -> Result<Change, Refusal> {
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
    // A DT_NULL must remain behind the last entry.
    let spare = (elf.dynamic.len() + 1 < capacity).then_some(elf.dynamic.len());
    let slot = runpath.or(rpath).or(spare);

    let mut strings = old.to_vec();
    let text_at = strings.len() as u64;
    strings.extend_from_slice(path.as_bytes());
    strings.push(0);
    let mut entries = elf.dynamic.clone();
    entries[strtab].1 = strings_at;
    entries[strsz].1 = strings.len() as u64;
    let own = (dt(elf::DT_RPATH), text_at);
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
        return Ok(Change {
            strings,
            overwrite: vec![(table_at, bytes)],
            dynamic: None,
        });
    }
    bytes.extend_from_slice(&[0; SIZE]);
    Ok(Change {
        strings,
        overwrite: Vec::new(),
        dynamic: Some(bytes),
    })
}

/// A library that a program needs.
#[derive(Clone, Debug)]
pub struct Library {
    /// The name that it is asked for by.
    pub name: String,
    /// Where it was found.
    pub path: PathBuf,
    /// Bytes of code in it.
    pub text_bytes: u64,
    /// Whether it belongs to the C library or is the loader.
    pub is_c_library: bool,
}

/// All libraries of a program, and the names that were not found.
#[derive(Clone, Debug, Default)]
pub struct Libraries {
    /// Found, in the loader's order.
    pub found: Vec<Library>,
    /// Not found.
    pub missing: Vec<String>,
}

/// Whether a library belongs to the C library, the loader, or their stubs.
pub fn is_c_library(name: &str) -> bool {
    const STEMS: [&str; 12] = [
        "libc.so",
        "libm.so",
        "libmvec.so",
        "libpthread.so",
        "libdl.so",
        "librt.so",
        "libutil.so",
        "libresolv.so",
        "libnsl.so",
        "libanl.so",
        "ld-linux",
        "linux-vdso",
    ];
    STEMS.iter().any(|s| name.starts_with(s))
        || name.starts_with("libnss_")
        || name.starts_with("ld-musl")
        || name.starts_with("libc.musl-")
}

/// Libraries that an executable needs and that must come before the software backend's runtime: up to the last that stands in for a function which the runtime stands in
/// for as well ([`WRAPPED`]), in the loader's order. What comes behind the C library stands in for nothing.
pub fn before_runtime(data: &[u8], path: &Path) -> Vec<String> {
    let Some(elf) = Elf::parse(data).ok().filter(|e| e.interpreter().is_some()) else {
        return Vec::new();
    };
    let mut needed = elf.dynamic_strings(dt(elf::DT_NEEDED));
    let c_library = needed.iter().position(|name| is_c_library(name));
    needed.truncate(c_library.unwrap_or(needed.len()));
    // Most programs need nothing else.
    if needed.iter().all(|name| stands_in_for_nothing(name)) {
        return Vec::new();
    }
    let cache = read_cache(Path::new("/etc/ld.so.cache"));
    let folders = node(&elf, path, Vec::new()).folders(&environment()).0;
    let stands_in = |name: &String| {
        is_runtime_library(name)
            || !stands_in_for_nothing(name)
                && locate(name, &folders, &cache).is_some_and(|(_, library)| {
                    Elf::parse(library.bytes()).is_ok_and(|library| {
                        symbols::any_exported(&library, |name| {
                            WRAPPED.iter().any(|w| w.as_bytes() == name)
                        })
                    })
                })
    };
    let last = needed.iter().rposition(stands_in);
    needed.truncate(last.map_or(0, |last| last + 1));
    needed
}

/// Libraries of compilers, which define nothing of the C library's.
fn stands_in_for_nothing(name: &str) -> bool {
    ["libstdc++.so.", "libgcc_s.so.", "libm.so.", "libgomp.so."]
        .iter()
        .any(|stem| name.starts_with(stem))
}

/// What the search needs of one file.
struct Node {
    path: PathBuf,
    needed: Vec<String>,
    rpath: Vec<String>,
    runpath: Vec<String>,
    /// Search paths of the files that led here.
    inherited: Vec<PathBuf>,
}

/// Finds the libraries of the program at `path`, the ones that they need included.
pub fn find(elf: &Elf, path: &Path) -> Libraries {
    let cache = read_cache(Path::new("/etc/ld.so.cache"));
    let environment = environment();
    let mut libraries = Libraries::default();
    let mut seen = HashSet::new();
    let mut queue = VecDeque::from([node(elf, path, Vec::new())]);
    while let Some(node) = queue.pop_front() {
        let (folders, inherited) = node.folders(&environment);
        for name in &node.needed {
            if !seen.insert(name.clone()) {
                continue;
            }
            let Some((path, data)) = locate(name, &folders, &cache) else {
                libraries.missing.push(name.clone());
                continue;
            };
            let Ok(elf) = Elf::parse(data.bytes()) else {
                continue;
            };
            let text_bytes = elf.code_ranges().iter().map(|r| r.end - r.start).sum();
            queue.push_back(self::node(&elf, &path, inherited.clone()));
            libraries.found.push(Library {
                name: name.clone(),
                path,
                text_bytes,
                is_c_library: is_c_library(name),
            });
        }
    }
    libraries
}

impl Node {
    /// The folders in which its libraries are looked for, and those that these inherit.
    fn folders(&self, environment: &[PathBuf]) -> (Vec<PathBuf>, Vec<PathBuf>) {
        let own = expand(&self.rpath, &self.path);
        let mut inherited = self.inherited.clone();
        inherited.extend(own.iter().cloned());
        let mut folders = Vec::new();
        if self.runpath.is_empty() {
            folders.extend(own);
            folders.extend(self.inherited.iter().cloned());
        }
        folders.extend(environment.iter().cloned());
        folders.extend(expand(&self.runpath, &self.path));
        (folders, inherited)
    }
}

/// The folders of `LD_LIBRARY_PATH`.
fn environment() -> Vec<PathBuf> {
    std::env::var_os("LD_LIBRARY_PATH")
        .map(|v| {
            std::env::split_paths(&v)
                .filter(|p| !p.as_os_str().is_empty())
                .collect()
        })
        .unwrap_or_default()
}

fn node(elf: &Elf, path: &Path, inherited: Vec<PathBuf>) -> Node {
    let list = |tag| {
        elf.dynamic_strings(tag)
            .iter()
            .flat_map(|s| s.split(':'))
            .filter(|s| !s.is_empty())
            .map(str::to_owned)
            .collect()
    };
    Node {
        path: std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()),
        needed: elf.dynamic_strings(dt(elf::DT_NEEDED)),
        rpath: list(dt(elf::DT_RPATH)),
        runpath: list(dt(elf::DT_RUNPATH)),
        inherited,
    }
}

/// Replaces `$ORIGIN`, `$LIB` and `$PLATFORM`.
fn expand(folders: &[String], file: &Path) -> Vec<PathBuf> {
    let origin = file
        .parent()
        .map_or_else(|| "/".into(), |p| p.to_string_lossy().into_owned());
    let replace = |text: &str| {
        let mut text = text.to_owned();
        for (name, value) in [
            ("ORIGIN", origin.as_str()),
            ("LIB", "lib/x86_64-linux-gnu"),
            ("PLATFORM", "x86_64"),
        ] {
            text = text
                .replace(&format!("${{{name}}}"), value)
                .replace(&format!("${name}"), value);
        }
        PathBuf::from(text)
    };
    folders.iter().map(|f| replace(f)).collect()
}

/// Folders that the loader searches last.
const DEFAULT_FOLDERS: [&str; 6] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
];

fn locate(
    name: &str,
    folders: &[PathBuf],
    cache: &HashMap<String, Vec<PathBuf>>,
) -> Option<(PathBuf, Content)> {
    let candidates: Vec<PathBuf> = if name.contains('/') {
        vec![PathBuf::from(name)]
    } else {
        let cached = cache.get(name).into_iter().flatten().cloned();
        let defaults = DEFAULT_FOLDERS.iter().map(|f| Path::new(f).join(name));
        folders
            .iter()
            .map(|f| f.join(name))
            .chain(cached)
            .chain(defaults)
            .collect()
    };
    candidates.into_iter().find_map(|path| {
        let data = Content::read(&path).ok()?;
        Elf::parse(data.bytes()).ok()?;
        Some((path, data))
    })
}

/// Parses `/etc/ld.so.cache` (the format since glibc 2.32, and the older one that embeds it): names and paths.
fn read_cache(path: &Path) -> HashMap<String, Vec<PathBuf>> {
    const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
    let mut names: HashMap<String, Vec<PathBuf>> = HashMap::new();
    let Ok(data) = std::fs::read(path) else {
        return names;
    };
    let Some(start) = data.windows(MAGIC.len()).position(|w| w == MAGIC) else {
        return names;
    };
    let data = &data[start..];
    let count = bytes::u32(data, 20).unwrap_or(0) as usize;
    for i in 0..count {
        let at = 48 + i * 24;
        let (Some(key), Some(value)) = (bytes::u32(data, at + 4), bytes::u32(data, at + 8)) else {
            break;
        };
        let text = |at: u32| {
            bytes::text(data, at as usize).map(|t| String::from_utf8_lossy(t).into_owned())
        };
        if let (Some(name), Some(path)) = (text(key), text(value)) {
            names.entry(name).or_default().push(path.into());
        }
    }
    names
}
