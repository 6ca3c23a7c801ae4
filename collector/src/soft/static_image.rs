//! The runtime for executables without a loader: one piece of memory, with a list of words to which
//! its address is added.
//!
//! `mgz-instrument` gives such executables an entry point that maps this piece, puts the address in
//! and jumps to `mgz_enter` ([`STATIC_AT`](mgz_abi::module_note::STATIC_AT),
//! `runtime/src/enter/static_exe.rs`).

use anyhow::{Context, Result, bail, ensure};
use mgz_abi::shared_memory::PAGE_SIZE;
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol, RelocationFlags, RelocationTarget, elf};

/// The runtime's image in one piece.
pub struct Flat {
    /// The memory; the list of relocations is at its end.
    pub bytes: Vec<u8>,
    /// Offset of `mgz_enter`.
    pub entry: u64,
    /// Offset of the relocations: a count, then that number of offsets, 32 bits each.
    pub relocations: u64,
    /// The code.
    pub text: std::ops::Range<u64>,
    /// The part of the code that a running process fills: `mgz_room`.
    pub room: std::ops::Range<u64>,
}

impl Flat {
    /// The words to which the image's address is to be added: offset and value.
    pub fn places(&self) -> Vec<(u64, u64)> {
        let list = &self.bytes[self.relocations as usize..];
        let number =
            |at: usize| u32::from_le_bytes([list[at], list[at + 1], list[at + 2], list[at + 3]]);
        let places = (1..=number(0) as usize).map(|k| number(4 * k) as usize);
        places
            .map(|at| {
                (
                    at as u64,
                    u64::from_le_bytes(self.bytes[at..at + 8].try_into().unwrap_or_default()),
                )
            })
            .collect()
    }
}

/// Lays a shared object out as a loader would, with all references inside of it resolved. Weak
/// references to symbols that it does not define are null, as they would be in a program without
/// libraries.
pub fn flatten(object: &[u8]) -> Result<Flat> {
    let file = ElfFile64::<Endianness>::parse(object)?;
    let endian = file.endian();
    let mut bytes = Vec::new();
    let mut text = 0..0;
    for segment in file.elf_header().program_headers(endian, object)? {
        if segment.p_type(endian) != elf::PT_LOAD {
            continue;
        }
        let (at, size) = (
            segment.p_vaddr(endian) as usize,
            segment.p_memsz(endian) as usize,
        );
        let content = segment
            .data(endian, object)
            .ok()
            .context("a segment outside of the file")?;
        bytes.resize(bytes.len().max((at + size).next_multiple_of(PAGE_SIZE)), 0);
        bytes[at..at + content.len()].copy_from_slice(content);
        if segment.p_flags(endian).0 & elf::PF_X.0 != 0 {
            ensure!(text.is_empty(), "two segments of code");
            text = at as u64 & !(PAGE_SIZE as u64 - 1)
                ..((at + size).next_multiple_of(PAGE_SIZE)) as u64;
        }
    }
    let mut places: Vec<u32> = Vec::new();
    for (at, relocation) in file
        .dynamic_relocations()
        .context("no dynamic relocations")?
    {
        let RelocationFlags::Elf { r_type } = relocation.flags() else {
            bail!("a relocation that is not ELF's")
        };
        let value = match (r_type, relocation.target()) {
            (elf::R_X86_64_RELATIVE, _) => Some(relocation.addend() as u64),
            (
                elf::R_X86_64_64 | elf::R_X86_64_GLOB_DAT | elf::R_X86_64_JUMP_SLOT,
                RelocationTarget::Symbol(index),
            ) => {
                let symbol = file.dynamic_symbol_table().context("no dynamic symbols")?;
                let symbol = object::ObjectSymbolTable::symbol_by_index(&symbol, index)?;
                (!symbol.is_undefined())
                    .then(|| symbol.address().wrapping_add(relocation.addend() as u64))
            }
            other => bail!("a relocation of type {other:?}"),
        };
        let field = bytes
            .get_mut(at as usize..at as usize + 8)
            .context("a relocation outside of the segments")?;
        field.copy_from_slice(&value.unwrap_or(0).to_le_bytes());
        if value.is_some() {
            places.push(at as u32);
        }
    }
    let symbol = |name: &str| {
        file.dynamic_symbols()
            .find(|s| s.name() == Ok(name))
            .with_context(|| format!("no {name}"))
    };
    let entry = symbol("mgz_enter")?.address();
    let room = symbol("mgz_room")?;
    let room = room.address()..room.address() + room.size();
    anyhow::ensure!(
        text.start <= room.start && room.end <= text.end,
        "mgz_room is not among the code"
    );
    let relocations = bytes.len() as u64;
    bytes.extend_from_slice(&(places.len() as u32).to_le_bytes());
    places
        .iter()
        .for_each(|p| bytes.extend_from_slice(&p.to_le_bytes()));
    bytes.resize(bytes.len().next_multiple_of(PAGE_SIZE), 0);
    Ok(Flat {
        bytes,
        entry,
        relocations,
        text,
        room,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runtime_is_laid_out_as_a_loader_would() {
        let flat = flatten(crate::soft::runtime_image::RUNTIME).unwrap();
        assert!(flat.text.contains(&flat.entry) && flat.bytes.len().is_multiple_of(PAGE_SIZE));
        let word =
            |at: usize| u32::from_le_bytes(flat.bytes[at..at + 4].try_into().unwrap()) as usize;
        let count = word(flat.relocations as usize);
        assert!(count > 10);
        for i in 1..=count {
            let place = word(flat.relocations as usize + 4 * i);
            let value = u64::from_le_bytes(flat.bytes[place..place + 8].try_into().unwrap());
            assert!(
                value < flat.relocations,
                "{value:#x} at {place:#x} is not an offset"
            );
        }
    }
}
