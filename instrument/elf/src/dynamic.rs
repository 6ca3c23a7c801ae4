//! The dynamic section of a file, and the search for a library.

use object::elf::{
    DT_NEEDED, DT_RPATH, DT_RUNPATH, DT_STRSZ, DT_STRTAB, FileHeader64, PT_DYNAMIC, PT_INTERP,
    PT_LOAD,
};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol, ReadRef};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

type Header = FileHeader64<Endianness>;

/// What the loader is told by a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dynamic {
    /// Libraries by name.
    pub needed: Vec<Vec<u8>>,
    /// DT_RPATH, unexpanded.
    pub rpath: Option<Vec<u8>>,
    /// DT_RUNPATH, unexpanded.
    pub runpath: Option<Vec<u8>>,
    /// The dynamic loader; `None` for libraries and static programs.
    pub interpreter: Option<Vec<u8>>,
}

fn map(path: &Path) -> Option<memmap2::Mmap> {
    let file = std::fs::File::open(path).ok()?;
    // SAFETY: the map is private and read-only; a concurrent truncation of the file by another process
    // could fault, as for every program that maps its input.
    unsafe { memmap2::Mmap::map(&file).ok() }
}

/// File bytes from a link-time address to the end of its segment.
fn at_address(data: &[u8], address: u64) -> Option<&[u8]> {
    let header = Header::parse(data).ok()?;
    let endian = header.endian().ok()?;
    for segment in header.program_headers(endian, data).ok()? {
        if segment.p_type(endian) == PT_LOAD {
            let skip = address.wrapping_sub(segment.p_vaddr(endian));
            if skip < segment.p_filesz(endian) {
                let offset = segment.p_offset(endian).checked_add(skip)?;
                return data
                    .read_bytes_at(offset, segment.p_filesz(endian) - skip)
                    .ok();
            }
        }
    }
    None
}

/// The zero-terminated string at a link-time address of a file.
pub fn string_at(path: &Path, address: u64) -> Option<Vec<u8>> {
    let data = map(path)?;
    let bytes = at_address(&data, address)?;
    let length = bytes.iter().position(|&b| b == 0)?;
    Some(bytes[..length].to_vec())
}

/// Whether a library defines a symbol whose name fits, for others.
pub fn defines(path: &Path, fits: impl Fn(&str) -> bool) -> bool {
    let Some(data) = map(path) else {
        return false;
    };
    object::File::parse(&*data).is_ok_and(|file| {
        file.dynamic_symbols()
            .any(|s| s.is_definition() && s.name().is_ok_and(&fits))
    })
}

impl Dynamic {
    /// Reads it; `None` if the file is no 64-bit ELF.
    pub fn read(path: &Path) -> Option<Dynamic> {
        Self::parse(&map(path)?)
    }

    fn parse(data: &[u8]) -> Option<Dynamic> {
        let header = Header::parse(data).ok()?;
        let endian = header.endian().ok()?;
        let mut out = Dynamic::default();
        let mut entries = Vec::new();
        for segment in header.program_headers(endian, data).ok()? {
            match segment.p_type(endian) {
                PT_INTERP => {
                    let name = segment.data(endian, data).ok()?;
                    out.interpreter = Some(name.split(|&b| b == 0).next()?.to_vec());
                }
                PT_DYNAMIC => entries = segment.dynamic(endian, data).ok()??.to_vec(),
                _ => {}
            }
        }
        let value = |tag| {
            entries
                .iter()
                .find(|e| e.tag(endian) == tag)
                .map(|e| e.d_val(endian))
        };
        let (Some(table), Some(size)) = (value(DT_STRTAB), value(DT_STRSZ)) else {
            return Some(out);
        };
        let strings = at_address(data, table)?;
        let strings = strings
            .get(..usize::try_from(size).ok()?)
            .unwrap_or(strings);
        let string = |offset: u64| {
            strings
                .get(usize::try_from(offset).ok()?..)?
                .split(|&b| b == 0)
                .next()
                .map(<[u8]>::to_vec)
        };
        for entry in &entries {
            match entry.tag(endian) {
                DT_NEEDED => out.needed.extend(string(entry.d_val(endian))),
                DT_RPATH => out.rpath = string(entry.d_val(endian)),
                DT_RUNPATH => out.runpath = string(entry.d_val(endian)),
                _ => {}
            }
        }
        Some(out)
    }

    /// Folders of DT_RPATH for what this file (at `path`) needs, `inherited` from its loaders behind
    /// its own. A file with DT_RUNPATH has none.
    pub fn search_path(&self, path: &Path, inherited: Vec<PathBuf>) -> Vec<PathBuf> {
        if self.runpath.is_some() {
            return Vec::new();
        }
        let mut out = self
            .rpath
            .as_deref()
            .map_or_else(Vec::new, |list| expand(list, path));
        out.extend(inherited);
        out
    }
}

/// Splits a search path and replaces `$ORIGIN`, `$LIB` and `$PLATFORM`.
fn expand(list: &[u8], file: &Path) -> Vec<PathBuf> {
    let real = std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let origin = real
        .parent()
        .unwrap_or(Path::new("/"))
        .as_os_str()
        .as_bytes()
        .to_vec();
    let text = |list: &[u8]| {
        let mut out = Vec::new();
        let mut rest = list;
        'next: while let Some((&first, tail)) = rest.split_first() {
            let names: [(&[u8], &[u8]); 6] = [
                (b"$ORIGIN", &origin),
                (b"${ORIGIN}", &origin),
                (b"$LIB", b"lib/x86_64-linux-gnu"),
                (b"${LIB}", b"lib/x86_64-linux-gnu"),
                (b"$PLATFORM", b"x86_64"),
                (b"${PLATFORM}", b"x86_64"),
            ];
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
        out
    };
    let folders = list.split(|&b| b == b':').map(text);
    folders
        .map(|f| PathBuf::from(OsStr::from_bytes(if f.is_empty() { b"." } else { &f })))
        .collect()
}

/// Where libraries are looked for besides the paths in the files.
pub struct Finder {
    environment: Vec<PathBuf>,
    system: Vec<PathBuf>,
}

impl Finder {
    /// `LD_LIBRARY_PATH`, ld.so.conf and the default folders.
    pub fn from_environment() -> Finder {
        let environment = std::env::var_os("LD_LIBRARY_PATH").map_or_else(Vec::new, |list| {
            let text = list.as_bytes();
            let parts = text
                .split(|&b| b == b':' || b == b';')
                .filter(|_| !text.is_empty());
            parts
                .map(|p| PathBuf::from(OsStr::from_bytes(if p.is_empty() { b"." } else { p })))
                .collect()
        });
        let mut system = Vec::new();
        read_conf(Path::new("/etc/ld.so.conf"), &mut system, 0);
        for dir in [
            "/lib/x86_64-linux-gnu",
            "/usr/lib/x86_64-linux-gnu",
            "/lib64",
            "/usr/lib64",
            "/lib",
            "/usr/lib",
        ] {
            system.push(dir.into());
        }
        Finder {
            environment,
            system,
        }
    }

    /// The file for a needed name.
    pub fn find(
        &self,
        name: &OsStr,
        by: &Dynamic,
        by_path: &Path,
        rpath: &[PathBuf],
    ) -> Option<PathBuf> {
        if name.as_bytes().contains(&b'/') {
            let path = expand(name.as_bytes(), by_path).into_iter().next()?;
            return path.is_file().then_some(path);
        }
        let runpath = by
            .runpath
            .as_deref()
            .map_or_else(Vec::new, |list| expand(list, by_path));
        let dirs = rpath
            .iter()
            .chain(&self.environment)
            .chain(&runpath)
            .chain(&self.system);
        dirs.map(|dir| dir.join(name))
            .find(|path| path.is_file() && Dynamic::read(path).is_some())
    }
}

/// Folders in a configuration file of the loader, with its includes.
fn read_conf(path: &Path, out: &mut Vec<PathBuf>, depth: u32) {
    let Ok(text) = std::fs::read_to_string(path) else {
        return;
    };
    for line in text
        .lines()
        .map(|l| l.split('#').next().unwrap_or("").trim())
        .filter(|l| !l.is_empty())
    {
        match line.strip_prefix("include") {
            Some(pattern) if pattern.starts_with(char::is_whitespace) && depth < 4 => {
                // In practice always `FOLDER/*.conf`.
                let pattern = Path::new(pattern.trim());
                let (Some(dir), Some(name)) = (
                    pattern.parent(),
                    pattern.file_name().and_then(OsStr::to_str),
                ) else {
                    continue;
                };
                let Ok(entries) = std::fs::read_dir(dir) else {
                    continue;
                };
                let suffix = name.strip_prefix('*').unwrap_or(name);
                let mut files: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
                files.retain(|f| {
                    f.file_name()
                        .and_then(OsStr::to_str)
                        .is_some_and(|n| n.ends_with(suffix))
                });
                files.sort();
                files.iter().for_each(|f| read_conf(f, out, depth + 1));
            }
            _ if line.starts_with('/') => out.push(PathBuf::from(line)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let own = Dynamic {
            rpath: Some(b"/a".to_vec()),
            ..Dynamic::default()
        };
        assert_eq!(
            own.search_path(&file, vec!["/b".into()]),
            [Path::new("/a"), Path::new("/b")]
        );
        let newer = Dynamic {
            runpath: Some(b"/c".to_vec()),
            ..own
        };
        assert!(newer.search_path(&file, vec!["/b".into()]).is_empty());
    }

    #[test]
    fn a_program_tells_its_loader_and_libraries() {
        let data = map(Path::new("/proc/self/exe")).unwrap();
        let dynamic = Dynamic::parse(&data).unwrap();
        assert!(dynamic.interpreter.is_some());
        assert!(
            dynamic.needed.iter().any(|n| n.starts_with(b"libc.so")),
            "{dynamic:?}"
        );
        for length in (0..data.len()).step_by(4099).chain(0..200) {
            let _ = Dynamic::parse(&data[..length]);
        }
    }
}
