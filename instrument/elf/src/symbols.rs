//! Symbol tables.

use crate::bytes;
use crate::image::{Elf, SYM, Section, dt};
use object::elf;
use std::borrow::Cow;
use std::ops::Range;

/// A symbol.
#[derive(Clone, Copy, Debug)]
pub struct Symbol<'a> {
    /// The table of names from this symbol's name on, ending with a zero.
    text: &'a [u8],
    /// `STT_*`.
    pub kind: u8,
    /// Section index.
    pub section: u16,
    /// Value: an address in executables and shared objects.
    pub value: u64,
    /// Size in bytes.
    pub size: u64,
}

impl<'a> Symbol<'a> {
    /// Name; lossy if it is not UTF-8.
    pub fn name(&self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.bytes())
    }

    /// The name's bytes.
    fn bytes(&self) -> &'a [u8] {
        bytes::text(self.text, 0).unwrap_or(&[])
    }

    /// True if the name is empty.
    fn is_nameless(&self) -> bool {
        self.text.first() == Some(&0)
    }
}

/// Symbols of one table.
pub fn symbols_of_table<'a>(elf: &Elf<'a>, section: &Section) -> Vec<Symbol<'a>> {
    let (Some(data), Some(strings)) = (
        elf.section_bytes(section),
        elf.sections
            .get(section.link as usize)
            .and_then(|s| elf.section_bytes(s)),
    ) else {
        return Vec::new();
    };
    read(data, strings)
}

fn read<'a>(data: &'a [u8], strings: &'a [u8]) -> Vec<Symbol<'a>> {
    // Cut after the last zero, so that every name ends.
    let strings = &strings[..memchr::memrchr(0, strings).map_or(0, |last| last + 1)];
    let symbol = |s: &[u8]| {
        Some(Symbol {
            text: strings
                .get(bytes::u32(s, 0)? as usize..)
                .filter(|text| !text.is_empty())?,
            kind: bytes::u8(s, 4)? & 15,
            section: bytes::u16(s, 6)?,
            value: bytes::u64(s, 8)?,
            size: bytes::u64(s, 16)?,
        })
    };
    data.chunks_exact(SYM).filter_map(symbol).collect()
}

/// All symbols: those of both tables or, in a file without section headers, those that the loader
/// finds.
fn all<'a>(elf: &Elf<'a>) -> Vec<Symbol<'a>> {
    of_tables(elf, |kind| {
        kind == elf::SHT_SYMTAB.0 || kind == elf::SHT_DYNSYM.0
    })
}

/// Symbols that other files may refer to.
fn exported<'a>(elf: &Elf<'a>) -> Vec<Symbol<'a>> {
    of_tables(elf, |kind| kind == elf::SHT_DYNSYM.0)
}

fn of_tables<'a>(elf: &Elf<'a>, wanted: impl Fn(u32) -> bool) -> Vec<Symbol<'a>> {
    match elf.sections.is_empty() {
        true => dynamic(elf).unwrap_or_default(),
        false => elf
            .sections
            .iter()
            .filter(|s| wanted(s.kind))
            .flat_map(|s| symbols_of_table(elf, s))
            .collect(),
    }
}

/// The dynamic symbols by the loader's tables. Only the hash table gives their number.
fn dynamic<'a>(elf: &Elf<'a>) -> Option<Vec<Symbol<'a>>> {
    let at = |tag| elf.at(elf.dynamic_value(dt(tag))?);
    let (data, strings) = (at(elf::DT_SYMTAB)?, at(elf::DT_STRTAB)?);
    let count = match at(elf::DT_HASH) {
        Some(table) => bytes::u32(table, 4)? as usize,
        None => gnu_count(at(elf::DT_GNU_HASH)?)?,
    };
    Some(read(
        &data[..data.len().min(count.checked_mul(SYM)?)],
        strings,
    ))
}

/// Number of symbols in a GNU hash table, with the undefined ones before them: one more than the
/// last number in its chains.
fn gnu_count(table: &[u8]) -> Option<usize> {
    let word = |n: usize| bytes::u32(table, n.checked_mul(4)?);
    let (buckets, first, bloom) = (word(0)? as usize, word(1)? as usize, word(2)? as usize);
    let start = bloom.checked_mul(2)?.checked_add(4)?;
    let chains = start.checked_add(buckets)?;
    let mut last = table
        .get(start * 4..chains.checked_mul(4)?)?
        .chunks_exact(4)
        .filter_map(|b| bytes::u32(b, 0))
        .max()? as usize;
    if last < first {
        // No symbol is defined.
        return Some(first);
    }
    // The low bit of a hash ends its chain.
    while word(chains.checked_add(last.checked_sub(first)?)?)? & 1 == 0 {
        last += 1;
    }
    Some(last + 1)
}

/// Addresses of functions that select the target of an indirect function.
pub fn resolvers(elf: &Elf) -> Vec<u64> {
    all(elf)
        .into_iter()
        .filter(|s| s.kind == elf::STT_GNU_IFUNC.0 && s.section != 0 && s.value != 0)
        .map(|s| s.value)
        .collect()
}

/// Defined function symbols of both tables, as `(name, address, size)`, by address and name.
pub fn functions<'a>(elf: &Elf<'a>) -> Vec<(Cow<'a, str>, u64, u64)> {
    let is_function = |s: &Symbol| s.kind == elf::STT_FUNC.0 || s.kind == elf::STT_GNU_IFUNC.0;
    let defined = all(elf)
        .into_iter()
        .filter(|s| is_function(s) && s.section != 0 && s.value != 0 && !s.is_nameless());
    let mut found: Vec<(u64, Cow<str>, u64)> =
        defined.map(|s| (s.value, s.name(), s.size)).collect();
    found.sort_unstable();
    found.dedup();
    found
        .into_iter()
        .map(|(addr, name, size)| (name, addr, size))
        .collect()
}

/// Facts from other symbols about code. First, addresses without a type that other files may refer
/// to. (References from this file to its own labels show in the code and in relocations.) Second,
/// the ranges of data. Both are sorted.
pub fn others(elf: &Elf, in_code: impl Fn(u64) -> bool) -> (Vec<u64>, Vec<Range<u64>>) {
    let is = |s: &Symbol, kind: elf::SymbolType| {
        s.kind == kind.0 && s.section != 0 && s.section != elf::SHN_ABS.0 && in_code(s.value)
    };
    let mut labels: Vec<u64> = exported(elf)
        .iter()
        .filter(|s| is(s, elf::STT_NOTYPE))
        .map(|s| s.value)
        .collect();
    let data = all(elf).into_iter().filter(|s| is(s, elf::STT_OBJECT));
    let mut objects: Vec<Range<u64>> = data
        .map(|s| s.value..s.value.saturating_add(s.size.max(1)))
        .collect();
    labels.sort_unstable();
    labels.dedup();
    merge_ranges(&mut objects);
    (labels, objects)
}

/// Sorts ranges and merges those that overlap.
pub fn merge_ranges(ranges: &mut Vec<Range<u64>>) {
    ranges.sort_unstable_by_key(|r| r.start);
    ranges.dedup_by(|next, last| {
        let overlaps = next.start < last.end;
        if overlaps {
            last.end = last.end.max(next.end);
        }
        overlaps
    });
}

/// True if the name of any symbol fits.
pub fn any(elf: &Elf, fits: impl Fn(&[u8]) -> bool) -> bool {
    all(elf).into_iter().any(|s| fits(s.bytes()))
}

/// True if the name of any symbol that other files may refer to fits.
pub fn any_exported(elf: &Elf, fits: impl Fn(&[u8]) -> bool) -> bool {
    exported(elf)
        .into_iter()
        .any(|s| s.section != 0 && fits(s.bytes()))
}

/// True if the name of any symbol that the file imports fits.
pub fn any_imported(elf: &Elf, fits: impl Fn(&[u8]) -> bool) -> bool {
    exported(elf)
        .into_iter()
        .any(|s| s.section == 0 && fits(s.bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loader_s_symbols_are_those_of_the_section() {
        let data = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let elf = Elf::parse(&data).unwrap();
        let section = elf
            .sections
            .iter()
            .find(|s| s.kind == elf::SHT_DYNSYM.0)
            .unwrap();
        let expected = symbols_of_table(&elf, section);
        let mut bare = data.clone();
        bare[40..48].fill(0);
        bare[58..64].fill(0);
        let bare = Elf::parse(&bare).unwrap();
        let got = all(&bare);
        assert!(
            got.len() > 10 && got.len() <= expected.len(),
            "{} of {}",
            got.len(),
            expected.len()
        );
        let fields = |s: &Symbol| (s.name().into_owned(), s.kind, s.section, s.value, s.size);
        assert!(
            got.iter()
                .map(fields)
                .eq(expected[..got.len()].iter().map(fields))
        );
        // The hash table has all defined symbols.
        assert!(expected[got.len()..].iter().all(|s| s.section == 0));
    }
}
