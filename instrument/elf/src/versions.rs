//! Versions of imported symbols (`DT_VERSYM`, `DT_VERNEED`).

use crate::bytes;
use crate::image::{Elf, dt};
use object::elf;
use std::collections::HashMap;

/// Bit of a symbol's version that hides it; the others are its number.
const NUMBER: u16 = 0x7fff;
/// Bytes of an entry that names a file, and of one that names a version.
const FILE: u64 = 16;
/// Most entries that are read of a damaged file.
const MOST: usize = 1 << 16;

/// The versions that a file asks for.
#[derive(Debug, Default)]
pub struct Versions<'a> {
    /// One number per dynamic symbol.
    of_symbols: &'a [u8],
    /// File and version by number.
    needed: HashMap<u16, (&'a str, &'a str)>,
}

impl<'a> Versions<'a> {
    /// Those of a file; none where it has no such tables.
    pub fn read(elf: &Elf<'a>) -> Versions<'a> {
        let table = |tag| elf.at(elf.dynamic_value(dt(tag))?);
        let (Some(of_symbols), Some(needed)) = (table(elf::DT_VERSYM), table(elf::DT_VERNEED))
        else {
            return Versions::default();
        };
        let mut versions = Versions {
            of_symbols,
            needed: HashMap::new(),
        };
        let mut at = 0;
        for _ in 0..MOST {
            let Some(next) = versions.file(elf, needed, at) else {
                break;
            };
            at += u64::from(next);
        }
        versions
    }

    /// Reads the entry of one file, and gives the distance of the next.
    fn file(&mut self, elf: &Elf<'a>, table: &'a [u8], at: u64) -> Option<u32> {
        let entry = bytes::range(table, at, FILE)?;
        let name = elf.dynamic_string(bytes::u32(entry, 4)?.into())?;
        let mut version_at = at + u64::from(bytes::u32(entry, 8)?);
        for _ in 0..bytes::u16(entry, 2)? {
            let version = bytes::range(table, version_at, FILE)?;
            let text = elf.dynamic_string(bytes::u32(version, 8)?.into())?;
            self.needed
                .insert(bytes::u16(version, 6)? & NUMBER, (name, text));
            version_at += u64::from(bytes::u32(version, 12)?);
        }
        bytes::u32(entry, 12).filter(|&next| next != 0)
    }

    /// The file and version that a symbol must come from, if it is bound to any.
    pub fn of(&self, symbol: u32) -> Option<(&'a str, &'a str)> {
        let number = bytes::u16(self.of_symbols, (symbol as usize).checked_mul(2)?)? & NUMBER;
        self.needed.get(&number).copied()
    }
}
