//! Names for addresses in files: symbols first, otherwise the function starts of the unwind table.

use crate::demangle::readable;
use crate::headers;
use goblin::elf::program_header::{PT_GNU_EH_FRAME, PT_LOAD};
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};
use std::collections::BTreeMap;
use std::path::Path;

/// A function as `mgz-instrument` knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    /// Name for people.
    pub readable: String,
    /// Names as in the file; several for one address. Empty if there is no symbol.
    pub symbols: Vec<String>,
}

/// The symbols at one address.
#[derive(Default)]
struct Function {
    /// End of the largest symbol with a size; 0 if none has one.
    end: u64,
    /// End of the section, where a symbol without a size ends at the latest.
    section_end: u64,
    names: Vec<String>,
}

impl Function {
    /// End of the addresses that the names stand for.
    fn end(&self) -> u64 {
        if self.end > 0 {
            self.end
        } else {
            self.section_end
        }
    }
}

/// Function starts of a file.
#[derive(Default)]
pub struct Symbols {
    /// (file offset, address, length) of the loadable segments.
    segments: Vec<(u64, u64, u64)>,
    /// By address.
    functions: BTreeMap<u64, Function>,
    /// Starts from the unwind table.
    starts: Vec<u64>,
}

impl Symbols {
    /// Reads a file. The result is empty if it cannot be read.
    pub fn read(path: &Path) -> Symbols {
        let Ok(file) = std::fs::File::open(path) else {
            return Symbols::default();
        };
        // SAFETY: the map is private and read-only; a concurrent truncation of the file by another
        // process could fault, as for every program that maps its input.
        let Ok(data) = (unsafe { memmap2::Mmap::map(&file) }) else {
            return Symbols::default();
        };
        Symbols::parse(&data).unwrap_or_default()
    }

    fn parse(data: &[u8]) -> Option<Symbols> {
        let mut out = Symbols::default();
        for header in &headers::read_program_headers(data)? {
            match header.p_type {
                PT_LOAD => {
                    let (offset, address) = (header.p_offset, header.p_vaddr);
                    out.segments.push((offset, address, header.p_filesz));
                }
                PT_GNU_EH_FRAME => {
                    let table = headers::content(data, header)?;
                    out.starts = unwind_starts(table, header.p_vaddr).unwrap_or_default();
                }
                _ => {}
            }
        }
        let file = object::File::parse(data).ok()?;
        for symbol in file.symbols().chain(file.dynamic_symbols()) {
            if symbol.kind() != SymbolKind::Text || symbol.is_undefined() || symbol.address() == 0 {
                continue;
            }
            let Ok(name) = symbol.name() else { continue };
            let entry = out.functions.entry(symbol.address()).or_default();
            if symbol.size() > 0 {
                let end = symbol.address().saturating_add(symbol.size());
                entry.end = entry.end.max(end);
            }
            let section = symbol
                .section_index()
                .and_then(|index| file.section_by_index(index).ok());
            if let Some(section) = section {
                entry.section_end = section.address().saturating_add(section.size());
            }
            if !name.is_empty() && !entry.names.iter().any(|n| n == name) {
                entry.names.push(name.to_owned());
            }
        }
        Some(out)
    }

    /// The link-time address of a file offset.
    pub fn address(&self, offset: u64) -> Option<u64> {
        let (from, address, _) = self
            .segments
            .iter()
            .find(|s| offset.wrapping_sub(s.0) < s.2)?;
        Some(offset - from + address)
    }

    /// The function at a file offset: its start and names.
    pub fn name(&self, offset: u64) -> Name {
        let Some(ip) = self.address(offset) else {
            return Name {
                readable: format!("[{offset:x}]"),
                symbols: Vec::new(),
            };
        };
        self.name_at(ip)
    }

    /// The function at a link-time address: its start and names.
    pub fn name_at(&self, ip: u64) -> Name {
        let start = self
            .starts
            .partition_point(|&s| s <= ip)
            .checked_sub(1)
            .map(|i| self.starts[i]);
        let symbol = self.functions.range(..=ip).next_back();
        if let Some((&at, function)) = symbol
            && start.is_none_or(|s| s <= at)
            && ip < function.end()
            && let Some(first) = function.names.first()
        {
            return Name {
                readable: readable(first),
                symbols: function.names.clone(),
            };
        }
        let at = start.unwrap_or(ip);
        Name {
            readable: unnamed(at),
            symbols: Vec::new(),
        }
    }
}

/// Name of a function without a symbol, by its first address as linked. The analyzer names it alike.
pub fn unnamed(address: u64) -> String {
    format!("[{address:#x}]")
}

/// Function starts from `.eh_frame_hdr`, in the encoding that all linkers use (a sorted table of
/// 4-byte offsets from the header).
fn unwind_starts(header: &[u8], address: u64) -> Option<Vec<u64>> {
    const DATAREL_SDATA4: u8 = 0x3b;
    const UDATA4: u8 = 0x03;
    let [1, pointer, UDATA4, DATAREL_SDATA4, rest @ ..] = header else {
        return None;
    };
    let pointer_bytes = match pointer & 0x0f {
        0x03 | 0x0b => 4,
        0x04 | 0x0c | 0x00 => 8,
        _ => return None,
    };
    let rest = rest.get(pointer_bytes..)?;
    let (count, table) = rest.split_at_checked(4)?;
    let count = u32::from_le_bytes(count.try_into().ok()?) as usize;
    let entries = table.chunks_exact(8).take(count);
    let mut starts: Vec<u64> = entries
        .map(|e| {
            address.wrapping_add_signed(i64::from(i32::from_le_bytes([e[0], e[1], e[2], e[3]])))
        })
        .collect();
    starts.sort_unstable();
    Some(starts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_function_is_found_by_symbol_and_by_unwind_table() {
        let symbols = Symbols::read(Path::new("/proc/self/exe"));
        let (&address, function) = symbols
            .functions
            .iter()
            .find(|(_, f)| (f.names.iter()).any(|n| readable(n).ends_with("::unwind_starts")))
            .expect("a symbol");
        let &(offset, start, _) = symbols
            .segments
            .iter()
            .find(|s| address.wrapping_sub(s.1) < s.2)
            .unwrap();
        let place = address - start + offset;
        let name = symbols.name(place + 1);
        assert_eq!(name.symbols, function.names);
        assert!(name.readable.ends_with("unwind_starts"), "{name:?}");
        let stripped = Symbols {
            functions: BTreeMap::new(),
            ..symbols
        };
        assert_eq!(stripped.name(place + 1).readable, unnamed(address));
    }

    /// `_fini` of C start files has no size. Nothing behind its section has its name.
    #[test]
    fn a_symbol_without_size_ends_with_its_section() {
        let symbols = Symbols::read(Path::new("/proc/self/exe"));
        let (&address, fini) = symbols
            .functions
            .iter()
            .find(|(_, f)| f.names.iter().any(|n| n == "_fini"))
            .expect("a symbol");
        assert_eq!(fini.end, 0, "its size");
        let without_tables = Symbols {
            starts: Vec::new(),
            ..symbols
        };
        assert_eq!(without_tables.name_at(address + 1).readable, "_fini");
        let end = without_tables.functions[&address].end();
        for behind in [end, end + 0x10_0000] {
            let name = without_tables.name_at(behind);
            assert_eq!(name.symbols, [] as [String; 0], "{behind:x}");
        }
    }

    #[test]
    fn damaged_unwind_tables_are_refused_or_read_in_part() {
        assert_eq!(unwind_starts(&[], 0), None);
        assert_eq!(unwind_starts(&[1, 0x1b, 3, 0x3b], 0), None);
        assert_eq!(
            unwind_starts(
                &[
                    1, 0x1b, 3, 0x3b, 0, 0, 0, 0, 9, 0, 0, 0, 0xf0, 0xff, 0xff, 0xff, 0, 0, 0, 0
                ],
                0x100
            ),
            Some(vec![0xf0])
        );
    }
}
