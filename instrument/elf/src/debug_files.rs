//! Search for debug information outside of a file.
//!
//! - `.gnu_debuglink` and the build id lead to a file with the sections that were stripped.
//! - `.gnu_debugaltlink` leads to what `dwz -m` has moved out of several files.
//! - Skeleton units (`-gsplit-dwarf`) lead to `.dwo` files, or to one `.dwp` beside the program.
//! - `debuginfod-find`, where the user allows it, fetches files by build id.
//! - `.gnu_debugdata` is a compressed file inside the file, with names of functions alone.
//!
//! A named file that cannot be found is reported: its information is unknown, and is not made up
//! from the rest.

use crate::Elf;
use liblzma::bufread::XzDecoder;
use liblzma::stream::Stream;
use memchr::memmem;
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};
use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Tables of names are small. Larger ones are damaged or malicious. Source: Chosen.
const MAX_NAME_TABLE_BYTES: usize = 1 << 28;
/// Memory of a decoder of xz, bytes. Source: `xz -9` makes files that take 65 MiB.
const MAX_XZ_MEMORY_BYTES: u64 = 1 << 27;
/// Folder where the distributions install debug information.
const INSTALLED: &str = "/usr/lib/debug";

/// Source of source positions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DebugSource {
    /// No source.
    Nothing,
    /// The file's own sections. `whole`: they describe functions and inlining too, not only files
    /// and lines.
    Own {
        /// True if functions and inlining are described too.
        whole: bool,
    },
    /// Several files: one with the sections, and one with parts shared with others.
    Files {
        /// The file itself, or the one that has its debug information.
        main: PathBuf,
        /// The file that holds the parts that `dwz` has moved out.
        supplementary: Option<PathBuf>,
    },
}

/// Result of the search.
#[derive(Clone, Debug)]
pub struct DebugFiles {
    /// Source of source positions.
    pub source: DebugSource,
    /// A separate file with names of functions that the file's own symbols do not have.
    pub symbols: Option<PathBuf>,
    /// Messages for the user about files that were used or are missing.
    pub said: Vec<String>,
}

/// True if a file has sections that give source positions.
fn tells(elf: &Elf) -> bool {
    elf.section(".debug_info").is_some() && elf.section(".debug_line").is_some()
}

/// Looks for the debug information of the file at `path`. `remote`: servers may be asked.
pub fn find_debug_files(elf: &Elf, path: &Path, remote: bool) -> DebugFiles {
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().unwrap_or(Path::new("/"));
    let mut found = DebugFiles {
        source: DebugSource::Nothing,
        symbols: None,
        said: Vec::new(),
    };
    if tells(elf) {
        found.source = with_supplementary(elf, &path, true, remote, &mut found.said);
        return found;
    }
    // Only a name is accepted, no path: an untrusted file must not choose the file to read.
    let link = named(elf, ".gnu_debuglink").filter(|(name, _)| !name.contains('/'));
    let id = elf.build_id();
    if link.is_none() && id.is_empty() {
        return found;
    }
    let mut places: Vec<PathBuf> = by_id(&id).into_iter().collect();
    if let Some((name, _)) = &link {
        places.extend([folder.join(name), folder.join(".debug").join(name)]);
        let below = folder.strip_prefix("/").unwrap_or(folder);
        places.push(Path::new(INSTALLED).join(below).join(name));
    }
    let crc = link.as_ref().and_then(|(_, rest)| {
        let rest = rest.get(rest.len().checked_sub(4)?..)?;
        Some(u32::from_le_bytes(rest.try_into().ok()?))
    });
    let on_disk = places.into_iter().filter(|p| *p != path);
    // The servers are asked only if nothing on the disk matches.
    let fetched = std::iter::once_with(|| remote.then(|| fetch(&id)));
    let mut refused = None;
    let fetched = fetched.flatten().filter_map(|got| match got {
        Ok(place) => Some(place),
        Err(why) => {
            refused = Some(why);
            None
        }
    });
    for place in on_disk.chain(fetched) {
        let Ok(data) = map(&place) else { continue };
        let Ok(other) = Elf::parse(&data) else {
            continue;
        };
        let same = match (id.as_str(), other.build_id()) {
            ("", _) => crc == Some(crc32fast::hash(&data)),
            (id, other) => id == other,
        };
        if !same {
            found
                .said
                .push(format!("{} is of another build: not used", place.display()));
            continue;
        }
        if tells(&other) {
            found.source = with_supplementary(&other, &place, false, remote, &mut found.said);
        }
        found.said.push(format!("from {}", place.display()));
        found.symbols = Some(place);
        return found;
    }
    found.said.extend(refused);
    if let Some((name, _)) = link {
        found.said.push(format!(
            "in {name}, which is not there: names and lines are unknown; put it beside the file, install the package with the debug symbols, or have it fetched with --debuginfod"
        ));
    }
    found
}

/// The source for a file whose sections give positions. `own`: it is the instrumented file itself.
fn with_supplementary(
    elf: &Elf,
    path: &Path,
    own: bool,
    remote: bool,
    said: &mut Vec<String>,
) -> DebugSource {
    let files = |supplementary| DebugSource::Files {
        main: path.to_owned(),
        supplementary,
    };
    let Some((name, id)) = named(elf, ".gnu_debugaltlink") else {
        return if own && !is_split(elf) {
            DebugSource::Own { whole: true }
        } else {
            files(None)
        };
    };
    let id: String = id.iter().map(|b| format!("{b:02x}")).collect();
    let folder = path.parent().unwrap_or(Path::new("/"));
    let places = [folder.join(&name)].into_iter().chain(by_id(&id));
    let fetched = std::iter::once_with(|| remote.then(|| fetch(&id).ok()).flatten()).flatten();
    let is_it = |place: &PathBuf| {
        let data = map(place).ok();
        let other = data.as_deref().and_then(|d| object::File::parse(d).ok());
        let build_id = other.and_then(|f| Some(f.build_id().ok()??.to_vec()));
        build_id.is_some_and(|b| b.iter().map(|b| format!("{b:02x}")).eq(chunks(&id)))
    };
    match places.chain(fetched).find(is_it) {
        Some(place) => {
            said.push(format!("shared with other files, from {}", place.display()));
            files(Some(place))
        }
        None => {
            said.push(format!(
                "shared with other files in {name}, which is not there: functions and inlining of its lines are unknown"
            ));
            match own {
                true => DebugSource::Own { whole: false },
                false => DebugSource::Nothing,
            }
        }
    }
}

/// Pairs of digits.
fn chunks(id: &str) -> impl Iterator<Item = String> + '_ {
    (0..id.len() / 2).map(|n| id[2 * n..2 * n + 2].to_owned())
}

/// Path where a file of this build id is installed.
fn by_id(id: &str) -> Option<PathBuf> {
    let (first, rest) = id
        .split_at_checked(2)
        .filter(|(_, rest)| !rest.is_empty())?;
    let folder = Path::new(INSTALLED).join(".build-id").join(first);
    Some(folder.join(rest.to_owned() + ".debug"))
}

/// Lets `debuginfod-find` fetch the debug information of a build id into its own cache. `Err` gives
/// the reason of a failure.
fn fetch(id: &str) -> Result<PathBuf, String> {
    const TOOL: &str = "debuginfod-find";
    if id.is_empty() {
        return Err("on no server: the file has no build id".into());
    }
    if std::env::var_os("DEBUGINFOD_URLS").is_none_or(|urls| urls.is_empty()) {
        return Err(format!(
            "not asked of servers: DEBUGINFOD_URLS names none for {TOOL}"
        ));
    }
    let done = std::process::Command::new(TOOL)
        .args(["debuginfo", id])
        .stdin(std::process::Stdio::null())
        .output()
        .map_err(|error| {
            format!("not asked of servers: {TOOL} cannot be run ({error}); install it, in Debian the package debuginfod")
        })?;
    let text = String::from_utf8_lossy(&done.stdout);
    match text.trim() {
        path if done.status.success() && !path.is_empty() => Ok(PathBuf::from(path)),
        _ => {
            let reason = String::from_utf8_lossy(&done.stderr);
            let reason = reason
                .trim()
                .lines()
                .last()
                .unwrap_or("it does not say why")
                .to_owned();
            Err(format!("on no server: {TOOL}: {reason}"))
        }
    }
}

/// The file name in a section, and the bytes behind its zero.
fn named<'a>(elf: &Elf<'a>, section: &str) -> Option<(String, &'a [u8])> {
    let bytes = elf.section_bytes(elf.section(section)?)?;
    let end = memchr::memchr(0, bytes)?;
    let name = std::str::from_utf8(&bytes[..end]).ok()?;
    (!name.is_empty()).then(|| (name.to_owned(), &bytes[end + 1..]))
}

/// True if some units are skeletons, whose contents are in other files. The units name these files.
fn is_split(elf: &Elf) -> bool {
    [".debug_str", ".debug_line_str"].iter().any(|name| {
        contents(elf.data, name).is_some_and(|text| memmem::find(&text, b".dwo\0").is_some())
    })
}

fn contents<'a>(data: &'a [u8], name: &str) -> Option<Cow<'a, [u8]>> {
    let file = object::File::parse(data).ok()?;
    file.section_by_name(name)?.uncompressed_data().ok()
}

/// The separate debug file of the file at `path`, if this machine has one.
pub fn separate(path: &Path) -> Option<memmap2::Mmap> {
    let data = map(path).ok()?;
    let found = find_debug_files(&Elf::parse(&data).ok()?, path, false);
    map(&found.symbols?).ok()
}

fn map(path: &Path) -> std::io::Result<memmap2::Mmap> {
    let file = std::fs::File::open(path)?;
    // SAFETY: private and read-only; a concurrent truncation of the file harms every program that
    // maps it.
    unsafe { memmap2::Mmap::map(&file) }
}

/// Names of functions by start address, from a separate file and from `.gnu_debugdata`.
pub fn names(elf: &Elf, found: &DebugFiles) -> HashMap<u64, String> {
    let mut names = HashMap::new();
    let mut add = |data: &[u8]| {
        let Ok(file) = object::File::parse(data) else {
            return;
        };
        for symbol in file.symbols().chain(file.dynamic_symbols()) {
            if symbol.kind() == SymbolKind::Text
                && !symbol.is_undefined()
                && let Ok(name) = symbol.name()
                && !name.is_empty()
            {
                names
                    .entry(symbol.address())
                    .or_insert_with(|| name.to_owned());
            }
        }
    };
    if let Some(data) = found.symbols.as_deref().and_then(|path| map(path).ok()) {
        add(&data);
    }
    if let Some(section) = elf.section(".gnu_debugdata")
        && let Some(packed) = elf.section_bytes(section)
        && let Some(plain) = unpack(packed)
    {
        add(&plain);
    }
    names
}

/// Unpacked bytes of xz; `None` if they are damaged or too many.
fn unpack(packed: &[u8]) -> Option<Vec<u8>> {
    let decoder = Stream::new_stream_decoder(MAX_XZ_MEMORY_BYTES, 0).ok()?;
    let mut plain = Vec::new();
    XzDecoder::new_stream(packed, decoder)
        .take(MAX_NAME_TABLE_BYTES as u64 + 1)
        .read_to_end(&mut plain)
        .ok()?;
    (plain.len() <= MAX_NAME_TABLE_BYTES).then_some(plain)
}
