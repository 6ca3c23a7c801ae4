//! Versions of imported symbols (`DT_VERSYM`, `DT_VERNEED`).

use crate::headers::CONTEXT;
use crate::image::{Elf, dt};
use goblin::elf::SectionHeader;
use goblin::elf::section_header::{SHT_GNU_VERNEED, SHT_GNU_VERSYM};
use goblin::elf::symver::{VERSYM_VERSION, VerneedSection, VersymSection};
use object::elf;
use std::collections::HashMap;

/// A damaged table may have a larger number. Source: Chosen.
const MAX_FILES: u32 = 1 << 16;

/// The versions that a file requires.
#[derive(Default)]
pub struct Versions<'a> {
    /// One number per dynamic symbol.
    of_symbols: Option<VersymSection<'a>>,
    /// File and version by number.
    needed: HashMap<u16, (&'a str, &'a str)>,
}

/// A section header by which goblin finds a table. The loader uses no sections, so goblin gets the
/// table alone.
fn header(kind: u32, table: &[u8]) -> [SectionHeader; 1] {
    [SectionHeader {
        sh_type: kind,
        sh_size: table.len() as u64,
        sh_info: MAX_FILES,
        ..SectionHeader::new()
    }]
}

impl<'a> Versions<'a> {
    /// Reads the versions of a file; none if it has no such tables.
    pub fn read(elf: &Elf<'a>) -> Versions<'a> {
        Self::parse(elf).unwrap_or_default()
    }

    fn parse(elf: &Elf<'a>) -> Option<Versions<'a>> {
        let table = |tag| elf.at(elf.dynamic_value(dt(tag))?);
        let (symbols, files) = (table(elf::DT_VERSYM)?, table(elf::DT_VERNEED)?);
        let headers = header(SHT_GNU_VERSYM, symbols);
        let of_symbols = VersymSection::parse(symbols, &headers, CONTEXT).ok()?;
        let headers = header(SHT_GNU_VERNEED, files);
        let files = VerneedSection::parse(files, &headers, CONTEXT).ok()??;
        let mut needed = HashMap::new();
        let text = |at: usize| elf.dynamic_string(at as u64);
        // The entries after a damaged one are unknown.
        'files: for file in files.iter() {
            let Some(name) = text(file.vn_file) else {
                break;
            };
            for version in file.iter() {
                let Some(version_name) = text(version.vna_name) else {
                    break 'files;
                };
                needed.insert(version.vna_other & VERSYM_VERSION, (name, version_name));
            }
        }
        Some(Versions { of_symbols, needed })
    }

    /// The file and version that a symbol must come from, if any.
    pub fn of(&self, symbol: u32) -> Option<(&'a str, &'a str)> {
        let number = self.of_symbols.as_ref()?.get_at(symbol as usize)?.version();
        self.needed.get(&number).copied()
    }
}
