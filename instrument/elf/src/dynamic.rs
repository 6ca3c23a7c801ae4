//! Facts from a file for the loader: its dynamic section and its loader's name.

use crate::{bytes, headers};
use goblin::elf::ProgramHeader;
use goblin::elf::dynamic::{DT_NEEDED, DT_RPATH, DT_RUNPATH, DT_STRSZ, DT_STRTAB};
use goblin::elf::program_header::{PT_INTERP, PT_LOAD};
use object::{Object, ObjectSymbol};
use std::path::Path;

/// Facts from a file for the loader.
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
    // SAFETY: the map is private and read-only; a concurrent truncation of the file by another
    // process could fault, as for every program that maps its input.
    unsafe { memmap2::Mmap::map(&file) }.ok()
}

/// File bytes from a link-time address to the end of its segment.
fn at_address<'a>(data: &'a [u8], segments: &[ProgramHeader], address: u64) -> Option<&'a [u8]> {
    let holds =
        |s: &&ProgramHeader| s.p_type == PT_LOAD && address.wrapping_sub(s.p_vaddr) < s.p_filesz;
    let segment = segments.iter().find(holds)?;
    let skip = address - segment.p_vaddr;
    let offset = segment.p_offset.checked_add(skip)?;
    bytes::range(data, offset, segment.p_filesz - skip)
}

/// A string without its zero; up to the end if there is no zero.
fn string(data: &[u8]) -> Vec<u8> {
    let end = memchr::memchr(0, data).unwrap_or(data.len());
    data[..end].to_vec()
}

/// The zero-terminated string at a link-time address of a file.
pub fn string_at(path: &Path, address: u64) -> Option<Vec<u8>> {
    let data = map(path)?;
    let content = at_address(&data, &headers::read_program_headers(&data)?, address)?;
    Some(bytes::text(content, 0)?.to_vec())
}

/// True if a library exports a definition of a symbol whose name fits.
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
    /// Reads it; `None` if the file is no x86-64 ELF file.
    pub fn read(path: &Path) -> Option<Dynamic> {
        Self::parse(&map(path)?)
    }

    fn parse(data: &[u8]) -> Option<Dynamic> {
        let segments = headers::read_program_headers(data)?;
        let mut out = Dynamic::default();
        if let Some(segment) = segments.iter().rfind(|s| s.p_type == PT_INTERP) {
            out.interpreter = Some(string(headers::content(data, segment)?));
        }
        let entries = headers::dynamic(data, &segments);
        let value = |tag| entries.iter().find(|e| e.0 == tag).map(|e| e.1);
        let (Some(table), Some(size)) = (value(DT_STRTAB), value(DT_STRSZ)) else {
            return Some(out);
        };
        let strings = at_address(data, &segments, table)?;
        let strings = strings
            .get(..usize::try_from(size).ok()?)
            .unwrap_or(strings);
        let text = |at: u64| Some(string(strings.get(usize::try_from(at).ok()?..)?));
        for &(tag, at) in &entries {
            match tag {
                DT_NEEDED => out.needed.extend(text(at)),
                DT_RPATH => out.rpath = text(at),
                DT_RUNPATH => out.runpath = text(at),
                _ => {}
            }
        }
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
