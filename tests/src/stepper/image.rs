//! Watched files, and the originals of their instructions.

use anyhow::Result;
use iced_x86::{Decoder, DecoderOptions, Instruction};

/// A watched file.
pub(crate) struct Image {
    /// `(file offset, file size, vaddr)` of the executable segments.
    pub segments: Vec<(u64, u64, u64)>,
    /// Linkage tables: link-time addresses of begin and end.
    pub linkage: Vec<(u64, u64)>,
    /// The file before instrumentation.
    pub original: Vec<u8>,
    /// Its executable segments.
    pub original_segments: Vec<(u64, u64, u64)>,
}

/// The executable segments of an ELF file: `(file offset, file size, vaddr)`.
pub(crate) fn segments(bytes: &[u8]) -> Result<Vec<(u64, u64, u64)>> {
    use object::read::elf::{FileHeader, ProgramHeader};
    let header = object::elf::FileHeader64::<object::Endianness>::parse(bytes)?;
    let e = header.endian()?;
    let all = header.program_headers(e, bytes)?;
    Ok(all
        .iter()
        .filter(|p| {
            p.p_type(e) == object::elf::PT_LOAD
                && p.p_flags(e) & object::elf::PF_X == object::elf::PF_X
        })
        .map(|p| (p.p_offset(e), p.p_filesz(e), p.p_vaddr(e)))
        .collect())
}

/// The linkage tables of an ELF file, by the names of sections.
pub(crate) fn linkage(bytes: &[u8]) -> Vec<(u64, u64)> {
    use object::{Object, ObjectSection};
    let Ok(file) = object::File::parse(bytes) else {
        return Vec::new();
    };
    let named = |n: &str| n.starts_with(".plt") || n.starts_with(".iplt");
    file.sections()
        .filter(|s| s.name().is_ok_and(named))
        .map(|s| (s.address(), s.address() + s.size()))
        .collect()
}

/// The original instruction in the file before instrumentation.
pub(crate) fn original(image: &Image, at: u64, bias: u64) -> Option<Instruction> {
    let (offset, size, vaddr) = image
        .original_segments
        .iter()
        .copied()
        .find(|s| at >= s.2 && at < s.2 + s.1)?;
    let start = offset + (at - vaddr);
    let bytes = image
        .original
        .get(start as usize..(offset + size).min(start + 15) as usize)?;
    Some(Decoder::with_ip(64, bytes, at + bias, DecoderOptions::NONE).decode())
}

/// True if two instructions read memory through the same registers in the same way.
pub(crate) fn same_form(a: &Instruction, b: &Instruction) -> bool {
    a.code() == b.code()
        && a.memory_base() == b.memory_base()
        && a.memory_index() == b.memory_index()
        && a.memory_index_scale() == b.memory_index_scale()
        && a.memory_segment() == b.memory_segment()
}
