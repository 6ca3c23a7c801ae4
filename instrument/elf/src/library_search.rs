//! The loader's search for libraries.
//!
//! The search follows ld.so: `DT_RPATH` of the requesting file, then of the files that led to it,
//! up to the program (if a file has a `DT_RUNPATH`, neither its `DT_RPATH` nor those of others are
//! used); `LD_LIBRARY_PATH`; `DT_RUNPATH`; the loader's cache; the default folders. Files are
//! visited breadth first, and a name that was searched for once is not searched for again. A
//! library opened while the program runs (`dlopen`) is searched for in the same way, for the file
//! that opens it.

use crate::bytes;
use crate::dynamic::Dynamic;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const CACHE: &str = "/etc/ld.so.cache";
const CONFIGURATION: &str = "/etc/ld.so.conf";

/// Folders that the loader searches last.
const DEFAULT_FOLDERS: [&str; 6] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
];

/// Maximum depth of files that include files.
const INCLUDES: u32 = 4;

/// Folders that are searched for every file.
pub struct Search {
    /// Folders of `LD_LIBRARY_PATH`.
    environment: Vec<PathBuf>,
    /// The loader's cache: files by name, in its order.
    cache: HashMap<Vec<u8>, Vec<PathBuf>>,
    /// The default folders; without a cache, the folders of its configuration come before them.
    system: Vec<PathBuf>,
}

/// A file that asks for libraries.
#[derive(Clone, Debug)]
pub struct Requester {
    path: PathBuf,
    /// Its dynamic section, which names the libraries that it needs.
    pub dynamic: Dynamic,
    /// Folders of the `DT_RPATH`s of the files that led to it, the nearest first.
    inherited: Vec<PathBuf>,
}

/// A library that a program needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundLibrary {
    /// The name by which it is requested.
    pub name: Vec<u8>,
    /// Its path; `None` if it was not found.
    pub path: Option<PathBuf>,
    /// The first library that requests it, if that one has a search path of its own that comes
    /// first.
    pub searched_by: Option<Vec<u8>>,
}

/// A library that some file of a program finds by name, to open it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Openable {
    /// The names by which it is found.
    pub names: Vec<Vec<u8>>,
    /// Libraries that find it, and have a search path of their own that comes first.
    pub searched_by: Vec<Vec<u8>>,
}

/// True if a library belongs to the C library, the loader, or their stubs.
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

impl Requester {
    /// The requester for a program or a preloaded library. `None` if it is no x86-64 ELF file.
    pub fn program(path: &Path) -> Option<Requester> {
        Some(Requester::new(path, Dynamic::read(path)?, Vec::new()))
    }

    /// True if it searches for a library elsewhere before the program's search path. A `DT_RUNPATH`
    /// disables that path, and a `DT_RPATH` comes before it.
    fn has_own_path(&self, name: &[u8]) -> bool {
        let holds = |folder: &PathBuf| folder.join(OsStr::from_bytes(name)).exists();
        self.dynamic.runpath.is_some() || self.rpath().iter().any(holds)
    }

    fn new(path: &Path, dynamic: Dynamic, inherited: Vec<PathBuf>) -> Requester {
        Requester {
            path: path.to_owned(),
            dynamic,
            inherited,
        }
    }

    /// Folders of its own `DT_RPATH`, which a `DT_RUNPATH` disables.
    fn rpath(&self) -> Vec<PathBuf> {
        match (&self.dynamic.rpath, &self.dynamic.runpath) {
            (Some(list), None) => expand(list, &self.path),
            _ => Vec::new(),
        }
    }

    /// The folders that its libraries inherit.
    fn bequeathed(&self) -> Vec<PathBuf> {
        let mut folders = self.rpath();
        folders.extend(self.inherited.iter().cloned());
        folders
    }
}

impl Search {
    /// The loader's search for programs that are started in this environment.
    pub fn from_environment() -> Search {
        let list = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let environment = match list.is_empty() {
            true => Vec::new(),
            false => folders(list.as_bytes(), b":;"),
        };
        let cache = std::fs::read(CACHE)
            .ok()
            .and_then(|data| parse_cache(&data));
        let mut system = Vec::new();
        if cache.is_none() {
            read_configuration(Path::new(CONFIGURATION), &mut system, 0);
        }
        system.extend(DEFAULT_FOLDERS.iter().map(PathBuf::from));
        Search {
            environment,
            cache: cache.unwrap_or_default(),
            system,
        }
    }

    /// The file that the loader uses for a name, with its dynamic section. Like the loader, the
    /// search skips files of other machines.
    fn open(&self, name: &[u8], by: &Requester) -> Option<(PathBuf, Dynamic)> {
        let open = |path: PathBuf| {
            let dynamic = path.is_file().then(|| Dynamic::read(&path))??;
            Some((path, dynamic))
        };
        if name.contains(&b'/') {
            return open(expand_one(name, &by.path));
        }
        let runpath = by.dynamic.runpath.as_deref();
        let rpath = match runpath {
            Some(_) => Vec::new(),
            None => by.bequeathed(),
        };
        let runpath = runpath.map_or_else(Vec::new, |list| expand(list, &by.path));
        let file = OsStr::from_bytes(name);
        let told = rpath.iter().chain(&self.environment).chain(&runpath);
        let cached = self.cache.get(name).into_iter().flatten().cloned();
        told.map(|dir| dir.join(file))
            .chain(cached)
            .chain(self.system.iter().map(|dir| dir.join(file)))
            .find_map(open)
    }

    /// The file that the loader uses for a name.
    pub fn find(&self, name: &[u8], by: &Requester) -> Option<PathBuf> {
        Some(self.open(name, by)?.0)
    }

    /// All libraries of a program, in the loader's order. Libraries that `enter` rejects are left
    /// out, together with those that only they need.
    pub fn closure(&self, program: &Path, enter: impl Fn(&[u8]) -> bool) -> Vec<FoundLibrary> {
        self.walk(program, enter).0
    }

    /// The libraries, and all files of the program that may open libraries, by name. The program's
    /// name is empty.
    fn walk(
        &self,
        program: &Path,
        enter: impl Fn(&[u8]) -> bool,
    ) -> (Vec<FoundLibrary>, Vec<(Vec<u8>, Requester)>) {
        let mut libraries = Vec::new();
        let mut searched: HashSet<Vec<u8>> = HashSet::new();
        let first = Requester::program(program).map(|by| (Vec::new(), by));
        let mut queue: VecDeque<(Vec<u8>, Requester)> = first.into_iter().collect();
        let mut visited = Vec::new();
        while let Some((own_name, by)) = queue.pop_front() {
            for name in by.dynamic.needed.iter().filter(|name| enter(name)) {
                if !searched.insert(name.clone()) {
                    continue;
                }
                let found = self.open(name, &by);
                libraries.push(FoundLibrary {
                    name: name.clone(),
                    path: found.as_ref().map(|f| f.0.clone()),
                    searched_by: (!own_name.is_empty() && by.has_own_path(name))
                        .then(|| own_name.clone()),
                });
                queue.extend(found.map(|(path, dynamic)| {
                    let library = Requester::new(&path, dynamic, by.bequeathed());
                    (name.clone(), library)
                }));
            }
            visited.push((own_name, by));
        }
        (libraries, visited)
    }

    /// Finds the names by which a program (or library), or a library that it needs, finds a file.
    /// `None` if there are none: the file can be opened only by its path.
    pub fn openable(&self, file: &Path, program: &Path) -> Option<Openable> {
        let real = std::fs::canonicalize(file).ok()?;
        let mut found = Openable::default();
        let names = names_of(&real, file);
        for (own_name, by) in self.walk(program, |_| true).1 {
            let finds = |name: &&Vec<u8>| {
                let path = self.find(name, &by);
                path.and_then(|path| std::fs::canonicalize(path).ok()) == Some(real.clone())
            };
            let known: Vec<&Vec<u8>> = names.iter().filter(finds).collect();
            if !own_name.is_empty() && known.iter().any(|name| by.has_own_path(name)) {
                found.searched_by.push(own_name);
            }
            for name in known {
                if !found.names.contains(name) {
                    found.names.push(name.clone());
                }
            }
        }
        (!found.names.is_empty()).then_some(found)
    }

    /// The file that a program, or else one of the libraries that it needs, finds by a name.
    pub fn find_for(&self, name: &[u8], program: &Path) -> Option<PathBuf> {
        let visited = self.walk(program, |_| true).1;
        visited.iter().find_map(|(_, by)| self.find(name, by))
    }
}

/// Possible names of a file for the loader: its own, and those of links to it beside it. `given`:
/// another path of the file.
fn names_of(real: &Path, given: &Path) -> Vec<Vec<u8>> {
    let own = [given, real].into_iter().filter_map(Path::file_name);
    let mut names: Vec<Vec<u8>> = own.map(|name| name.as_bytes().to_vec()).collect();
    let beside = [given.parent(), real.parent()];
    for entry in beside
        .into_iter()
        .flatten()
        .filter_map(|folder| std::fs::read_dir(folder).ok())
        .flatten()
        .flatten()
    {
        let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
        if is_link && std::fs::canonicalize(entry.path()).is_ok_and(|path| path == real) {
            names.push(entry.file_name().as_bytes().to_vec());
        }
    }
    names.sort();
    names.dedup();
    names
}

/// The folders in a list; an empty name is the current one.
fn folders(list: &[u8], separators: &[u8]) -> Vec<PathBuf> {
    list.split(|b| separators.contains(b))
        .map(|f| PathBuf::from(OsStr::from_bytes(if f.is_empty() { b"." } else { f })))
        .collect()
}

/// Splits a search path of a file, and replaces `$ORIGIN`, `$LIB` and `$PLATFORM`.
fn expand(list: &[u8], file: &Path) -> Vec<PathBuf> {
    folders(list, b":")
        .iter()
        .map(|folder| expand_one(folder.as_os_str().as_bytes(), file))
        .collect()
}

/// Replaces `$ORIGIN`, `$LIB` and `$PLATFORM` in a path.
fn expand_one(path: &[u8], file: &Path) -> PathBuf {
    let real = std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let origin = real.parent().unwrap_or(Path::new("/")).as_os_str();
    let names: [(&[u8], &[u8]); 6] = [
        (b"$ORIGIN", origin.as_bytes()),
        (b"${ORIGIN}", origin.as_bytes()),
        (b"$LIB", b"lib/x86_64-linux-gnu"),
        (b"${LIB}", b"lib/x86_64-linux-gnu"),
        (b"$PLATFORM", b"x86_64"),
        (b"${PLATFORM}", b"x86_64"),
    ];
    let mut out = Vec::new();
    let mut rest = path;
    'next: while let Some((&first, tail)) = rest.split_first() {
        for (name, value) in names {
            if let Some(behind) = rest.strip_prefix(name) {
                out.extend_from_slice(value);
                rest = behind;
                continue 'next;
            }
        }
        out.push(first);
        rest = tail;
    }
    PathBuf::from(OsStr::from_bytes(&out))
}

/// The files in the loader's cache by name (the format since glibc 2.2, alone or after the old
/// one). `None` if it has another format.
fn parse_cache(data: &[u8]) -> Option<HashMap<Vec<u8>, Vec<PathBuf>>> {
    const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
    /// Bytes of the header and of an entry.
    const HEADER: usize = 48;
    const ENTRY: usize = 24;
    let data = &data[memchr::memmem::find(data, MAGIC)?..];
    let count = bytes::u32(data, MAGIC.len())? as usize;
    let text = |at: u32| bytes::text(data, at as usize);
    let mut files: HashMap<Vec<u8>, Vec<PathBuf>> = HashMap::new();
    for entry in data.get(HEADER..)?.chunks_exact(ENTRY).take(count) {
        let (name, path) = (bytes::u32(entry, 4)?, bytes::u32(entry, 8)?);
        if let (Some(name), Some(path)) = (text(name), text(path)) {
            let path = OsStr::from_bytes(path).into();
            files.entry(name.to_vec()).or_default().push(path);
        }
    }
    Some(files)
}

/// The folders in a configuration file of the loader's cache, with its includes.
fn read_configuration(path: &Path, out: &mut Vec<PathBuf>, depth: u32) {
    let Ok(text) = std::fs::read_to_string(path) else {
        return;
    };
    let lines = text
        .lines()
        .map(|l| l.split('#').next().unwrap_or("").trim());
    for line in lines.filter(|l| !l.is_empty()) {
        match line.strip_prefix("include") {
            Some(pattern) if pattern.starts_with(char::is_whitespace) && depth < INCLUDES => {
                for file in included(Path::new(pattern.trim())) {
                    read_configuration(&file, out, depth + 1);
                }
            }
            _ if line.starts_with('/') => out.push(PathBuf::from(line)),
            _ => {}
        }
    }
}

/// The files that match an include: in practice always `FOLDER/*.conf`.
fn included(pattern: &Path) -> Vec<PathBuf> {
    let name = pattern.file_name().and_then(OsStr::to_str);
    let (Some(dir), Some(name)) = (pattern.parent(), name) else {
        return Vec::new();
    };
    let suffix = name.strip_prefix('*').unwrap_or(name);
    let fits = |f: &PathBuf| {
        f.file_name()
            .and_then(OsStr::to_str)
            .is_some_and(|n| n.ends_with(suffix))
    };
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|e| e.path()).filter(fits).collect();
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing() -> Search {
        Search {
            environment: Vec::new(),
            cache: HashMap::new(),
            system: Vec::new(),
        }
    }

    fn requester(path: &Path, rpath: &[u8], runpath: &[u8]) -> Requester {
        let list = |list: &[u8]| (!list.is_empty()).then(|| list.to_vec());
        let dynamic = Dynamic {
            rpath: list(rpath),
            runpath: list(runpath),
            ..Dynamic::default()
        };
        Requester::new(path, dynamic, Vec::new())
    }

    #[test]
    fn search_paths_are_expanded() {
        let dir = tempfile::tempdir().unwrap();
        let real = std::fs::canonicalize(dir.path()).unwrap();
        let file = dir.path().join("prog");
        std::fs::write(&file, "").unwrap();
        assert_eq!(
            expand(b"$ORIGIN/prog.libs:/x/${PLATFORM}/y:", &file),
            [real.join("prog.libs"), "/x/x86_64/y".into(), ".".into()]
        );
    }

    #[test]
    fn folders_are_searched_in_the_loader_s_order() {
        let dir = tempfile::tempdir().unwrap();
        let folder = |name: &str| dir.path().join(name);
        let own = std::fs::read("/proc/self/exe").unwrap();
        let all = [
            "rpath",
            "inherited",
            "environment",
            "runpath",
            "cached",
            "system",
        ];
        for name in all {
            std::fs::create_dir(folder(name)).unwrap();
            std::fs::write(folder(name).join("lib.so"), &own[..4096]).unwrap();
        }
        let search = Search {
            environment: vec![folder("environment")],
            cache: [(b"lib.so".to_vec(), vec![folder("cached").join("lib.so")])].into(),
            system: vec![folder("system")],
        };
        let path = |name: &str| folder(name).as_os_str().as_bytes().to_vec();
        let mut old = requester(&folder("prog"), &path("rpath"), b"");
        let mut new = requester(&folder("prog"), &path("rpath"), &path("runpath"));
        old.inherited = vec![folder("inherited")];
        new.inherited = vec![folder("inherited")];
        let order = |by: &Requester| {
            let mut order = Vec::new();
            while let Some(found) = search.find(b"lib.so", by) {
                let holder = found.parent().unwrap().file_name().unwrap();
                order.push(holder.to_str().unwrap().to_owned());
                // A file of another machine: the search continues.
                std::fs::write(&found, "\x7fELF").unwrap();
            }
            for name in all {
                std::fs::write(folder(name).join("lib.so"), &own[..4096]).unwrap();
            }
            order
        };
        assert_eq!(
            order(&old),
            ["rpath", "inherited", "environment", "cached", "system"]
        );
        assert_eq!(order(&new), ["environment", "runpath", "cached", "system"]);
        // Libraries of a file with DT_RUNPATH inherit from the files before it.
        assert_eq!(new.bequeathed(), [folder("inherited")]);
        assert_eq!(old.bequeathed(), [folder("rpath"), folder("inherited")]);
        let named = folder("system").join("lib.so");
        let name = named.as_os_str().as_bytes();
        assert_eq!(nothing().find(name, &old), Some(named.clone()));
        assert_eq!(
            nothing().find(b"lib.so", &requester(&named, b"", b"")),
            None
        );
    }

    #[test]
    fn the_loader_s_cache_is_read_and_damage_does_no_harm() {
        let mut data = b"ld.so-1.7.0 and what else is before".to_vec();
        let start = data.len();
        data.extend_from_slice(b"glibc-ld.so.cache1.1");
        data.extend_from_slice(&2u32.to_le_bytes());
        data.resize(start + 48, 0);
        let strings = 48 + 2 * 24;
        for (name, path) in [(0, 8), (0, 20)] {
            let words = [3, strings + name, strings + path, 0, 0, 0];
            data.extend(words.iter().flat_map(|w: &u32| w.to_le_bytes()));
        }
        data.extend_from_slice(b"libx.so\0/v3/libx.so\0/libx.so\0");
        let cache = parse_cache(&data).unwrap();
        let files = [Path::new("/v3/libx.so"), Path::new("/libx.so")];
        assert_eq!(cache[&b"libx.so"[..]], files);
        for length in 0..data.len() {
            let _ = parse_cache(&data[..length]);
        }
        for at in start..data.len() {
            let mut bad = data.clone();
            bad[at] = 0xff;
            let _ = parse_cache(&bad);
        }
        assert!(parse_cache(b"something else").is_none());
    }

    #[test]
    fn a_configuration_names_folders_and_files() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| dir.path().join(name);
        std::fs::write(file("a.conf"), "/a # a comment\nnone\n").unwrap();
        std::fs::write(file("b.conf"), "# nothing\n/b\n").unwrap();
        std::fs::write(file("c.txt"), "/c\n").unwrap();
        let text = format!("include {}/*.conf\n/last\n", dir.path().display());
        std::fs::write(file("main"), text).unwrap();
        let mut out = Vec::new();
        read_configuration(&file("main"), &mut out, 0);
        assert_eq!(out, [Path::new("/a"), Path::new("/b"), Path::new("/last")]);
    }

    #[test]
    fn the_libraries_of_a_program_are_found() {
        let search = Search::from_environment();
        let all = search.closure(Path::new("/proc/self/exe"), |_| true);
        let c_library = all.iter().find(|l| l.name.starts_with(b"libc.so")).unwrap();
        assert!(c_library.path.is_some(), "{all:?}");
        let none = search.closure(Path::new("/proc/self/exe"), |_| false);
        assert!(none.is_empty());
    }
}
