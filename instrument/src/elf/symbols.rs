//! Symbol tables.

use super::read::{Elf, SYM, Section};
use super::bytes;
use object::elf;

/// A symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// Name; lossy if it is not UTF-8.
    pub name: std::borrow::Cow<'a, str>,
    /// `STT_*`.
    pub kind: u8,
    /// Section index.
    pub section: u16,
    /// Value: an address in executables and shared objects.
    pub value: u64,
    /// Size in bytes.
    pub size: u64,
}

/// Symbols of one table.
pub fn table<'a>(elf: &Elf<'a>, section: &Section) -> Vec<Symbol<'a>> {
    let (Some(data), Some(strings)) = (elf.section_bytes(section), elf.sections.get(section.link as usize).and_then(|s| elf.section_bytes(s))) else {
        return Vec::new();
    };
    let symbol = |s: &[u8]| {
        Some(Symbol {
            name: String::from_utf8_lossy(bytes::text(strings, bytes::u32(s, 0)? as usize)?),
            kind: bytes::u8(s, 4)? & 15,
            section: bytes::u16(s, 6)?,
            value: bytes::u64(s, 8)?,
            size: bytes::u64(s, 16)?,
        })
    };
    data.chunks_exact(SYM).filter_map(symbol).collect()
}

/// Defined function symbols of both tables, as `(name, address, size)`.
pub fn functions(elf: &Elf) -> Vec<(String, u64, u64)> {
    let mut found = Vec::new();
    for section in &elf.sections {
        if section.kind != elf::SHT_SYMTAB.0 && section.kind != elf::SHT_DYNSYM.0 {
            continue;
        }
        for s in table(elf, section) {
            let function = s.kind == elf::STT_FUNC.0 || s.kind == elf::STT_GNU_IFUNC.0;
            if function && s.section != 0 && s.value != 0 && !s.name.is_empty() {
                found.push((s.name.into_owned(), s.value, s.size));
            }
        }
    }
    found.sort();
    found.dedup();
    found
}

/// Whether any symbol's name fits.
pub fn any(elf: &Elf, fits: impl Fn(&str) -> bool) -> bool {
    let tables = elf.sections.iter().filter(|s| s.kind == elf::SHT_SYMTAB.0 || s.kind == elf::SHT_DYNSYM.0);
    tables.flat_map(|s| table(elf, s)).any(|s| fits(&s.name))
}
