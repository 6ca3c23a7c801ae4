//! GDB's interface for just-in-time compilers: `__jit_debug_descriptor`, a list of ELF files in the
//! process's memory.
//!
//! Each entry is an object file whose sections have the addresses of their code. The list is polled
//! while the process lives. It has no times: an entry is valid from the poll before the one that
//! found it, until a poll no longer finds it.

use crate::{GeneratedBlock, GeneratedName, NameSource};
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};
use std::collections::{BTreeMap, BTreeSet};

/// Symbol of the list's head.
pub const DESCRIPTOR: &str = "__jit_debug_descriptor";
/// Version of the interface.
const VERSION: u32 = 1;
/// Maximum number of entries read from a list. Source: Chosen.
const MAX_ENTRIES: usize = 1 << 16;
/// Maximum size of an ELF file in memory, bytes. Source: Chosen.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// Maximum number of bytes read in one poll, so that it does not take long. Source: Chosen.
const MAX_LOOK_BYTES: u64 = 256 << 20;

/// The memory of a process.
pub trait ProcessMemory {
    /// Fills `into` from an address on; false if not all of it can be read.
    fn read(&self, address: u64, into: &mut [u8]) -> bool;
}

/// An ELF file in the process's memory: its address and size.
type MemoryFile = (u64, u64);

/// The list of a process over several polls.
#[derive(Clone, Debug, Default)]
pub struct GdbList {
    present: BTreeMap<MemoryFile, Vec<usize>>,
    blocks: Vec<GeneratedBlock>,
    /// CLOCK_MONOTONIC of the last poll.
    last_look: u64,
}

impl GdbList {
    /// Reads the list whose head is at an address.
    pub fn look(&mut self, memory: &dyn ProcessMemory, descriptor: u64, now_ns: u64) {
        // If the list cannot be read, the known entries stay.
        let Some(files) = files(memory, descriptor) else {
            return;
        };
        let gone: Vec<MemoryFile> = (self.present.keys())
            .filter(|file| !files.contains(file))
            .copied()
            .collect();
        for file in gone {
            for at in self.present.remove(&file).unwrap_or_default() {
                self.blocks[at].end_ns = now_ns;
            }
        }
        let mut budget = MAX_LOOK_BYTES;
        for file in files {
            if self.present.contains_key(&file) || file.1 > budget {
                continue;
            }
            budget -= file.1;
            let mut bytes = vec![0; file.1 as usize];
            if !memory.read(file.0, &mut bytes) {
                continue;
            }
            let first = self.blocks.len();
            self.blocks
                .extend(functions(&bytes).into_iter().map(|block| GeneratedBlock {
                    begin_ns: self.last_look,
                    ..block
                }));
            self.present
                .insert(file, (first..self.blocks.len()).collect());
        }
        self.last_look = now_ns;
    }

    /// The functions of all polls.
    pub fn blocks(self) -> Vec<GeneratedBlock> {
        self.blocks
    }
}

/// The files of a list.
fn files(memory: &dyn ProcessMemory, descriptor: u64) -> Option<BTreeSet<MemoryFile>> {
    // version, action; the entry of the action; the first entry
    let mut head = [0; 24];
    if !memory.read(descriptor, &mut head) {
        return None;
    }
    let version = u32::from_le_bytes(head[..4].try_into().ok()?);
    if version != VERSION {
        return None;
    }
    let word = |bytes: &[u8], at: usize| {
        let bytes = bytes.get(at..at + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    };
    let mut at = word(&head, 16)?;
    let (mut files, mut seen) = (BTreeSet::new(), BTreeSet::new());
    while at != 0 && seen.len() < MAX_ENTRIES && seen.insert(at) {
        // next, previous; address and size of the file
        let mut entry = [0; 32];
        if !memory.read(at, &mut entry) {
            break;
        }
        let (address, size) = (word(&entry, 16)?, word(&entry, 24)?);
        if size > 0 && size <= MAX_FILE_BYTES {
            files.insert((address, size));
        }
        at = word(&entry, 0)?;
    }
    Some(files)
}

/// The functions of an ELF file whose sections have their addresses in memory.
pub fn functions(bytes: &[u8]) -> Vec<GeneratedBlock> {
    let Ok(file) = object::File::parse(bytes) else {
        return Vec::new();
    };
    let is_relocatable = file.kind() == object::ObjectKind::Relocatable;
    let mut blocks = Vec::new();
    for symbol in file.symbols() {
        if symbol.kind() != SymbolKind::Text || symbol.is_undefined() || symbol.size() == 0 {
            continue;
        }
        let section = (symbol.section_index()).and_then(|index| file.section_by_index(index).ok());
        let base = match (is_relocatable, section) {
            (true, Some(section)) if section.address() != 0 => section.address(),
            // The section's address in memory is not known.
            (true, _) => continue,
            (false, _) => 0,
        };
        let Ok(text) = symbol.name_bytes() else {
            continue;
        };
        let name = GeneratedName::of_text(&String::from_utf8_lossy(text), NameSource::Gdb);
        let start = base.wrapping_add(symbol.address());
        let Some(end) = start.checked_add(symbol.size()) else {
            continue;
        };
        if name.function.is_empty() {
            continue;
        }
        blocks.push(GeneratedBlock {
            start,
            end,
            begin_ns: 0,
            end_ns: u64::MAX,
            name,
        });
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::write::{Object as Made, Symbol, SymbolSection};
    use object::{Architecture, BinaryFormat, Endianness, SymbolFlags, SymbolScope};

    struct Pieces(Vec<(u64, Vec<u8>)>);

    impl ProcessMemory for Pieces {
        fn read(&self, address: u64, into: &mut [u8]) -> bool {
            let found = self.0.iter().find_map(|(start, bytes)| {
                let at = address.checked_sub(*start)? as usize;
                bytes.get(at..at + into.len())
            });
            found.map(|bytes| into.copy_from_slice(bytes)).is_some()
        }
    }

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    /// An object file with one function at an offset of a section at an address.
    fn file(name: &str, section: u64, offset: u64) -> Vec<u8> {
        let mut made = Made::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
        let text = made.section_id(object::write::StandardSection::Text);
        made.append_section_data(text, &[0x90; 64], 16);
        made.add_symbol(Symbol {
            name: name.into(),
            value: offset,
            size: 16,
            kind: SymbolKind::Text,
            scope: SymbolScope::Linkage,
            weak: false,
            section: SymbolSection::Section(text),
            flags: SymbolFlags::None,
        });
        let mut bytes = made.write().unwrap();
        // A compiler writes the address of the section.
        let at = |b: &[u8], at: usize| u64::from_le_bytes(b[at..at + 8].try_into().unwrap());
        let headers = at(&bytes, 0x28) as usize;
        let index = {
            let parsed = object::File::parse(&bytes[..]).unwrap();
            parsed.section_by_name(".text").unwrap().index().0
        };
        let field = headers + index * 64 + 0x10;
        bytes[field..field + 8].copy_from_slice(&section.to_le_bytes());
        bytes
    }

    fn memory(files: &[&[u8]]) -> Pieces {
        let mut pieces = vec![(
            0x100,
            words(&[1, 0, if files.is_empty() { 0 } else { 0x1000 }]),
        )];
        for (number, bytes) in (1..).zip(files) {
            let next = if number < files.len() as u64 {
                (number + 1) << 12
            } else {
                0
            };
            let place = number << 20;
            pieces.push((number << 12, words(&[next, 0, place, bytes.len() as u64])));
            pieces.push((place, bytes.to_vec()));
        }
        Pieces(pieces)
    }

    #[test]
    fn functions_are_known_while_their_file_is_listed() {
        let (one, two) = (file("one", 0x7000, 0), file("two", 0x8000, 32));
        let mut list = GdbList::default();
        list.look(&memory(&[&one]), 0x100, 10);
        list.look(&memory(&[&one, &two]), 0x100, 20);
        list.look(&memory(&[&one]), 0x100, 30);
        // A failed read of the list ends no entry.
        list.look(&Pieces(Vec::new()), 0x100, 40);
        let found: Vec<_> = list
            .blocks()
            .into_iter()
            .map(|b| (b.name.function, b.start, b.end, b.begin_ns, b.end_ns))
            .collect();
        assert_eq!(
            found,
            [("one".to_owned(), 0x7000, 0x7010, 0, u64::MAX)]
                .into_iter()
                .chain([("two".to_owned(), 0x8020, 0x8030, 10, 30)])
                .collect::<Vec<_>>()
        );
    }

    #[test]
    fn lists_that_never_end_are_left() {
        let mut pieces = memory(&[]).0;
        pieces[0].1 = words(&[1, 0, 0x1000]);
        pieces.push((0x1000, words(&[0x1000, 0, 0x5000, 8])));
        let mut list = GdbList::default();
        list.look(&Pieces(pieces), 0x100, 1);
        assert!(list.blocks().is_empty());
        assert!(functions(b"no ELF file").is_empty());
    }
}
