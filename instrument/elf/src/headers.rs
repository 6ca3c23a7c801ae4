//! Program headers, dynamic entries and notes, as goblin reads them, with checked bounds.

use crate::bytes;
use goblin::container::{Container, Ctx, Endian};
use goblin::elf::dynamic::DT_NULL;
use goblin::elf::header::{EI_CLASS, EI_DATA, ELFCLASS64, ELFDATA2LSB, ELFMAG, EM_X86_64, SELFMAG};
use goblin::elf::note::Nhdr32;
use goblin::elf::{Dynamic, Elf, ProgramHeader};
use scroll::Pread;

/// 64 bits, little-endian.
pub(crate) const CONTEXT: Ctx = Ctx {
    container: Container::Big,
    le: Endian::Little,
};

/// The program headers in `table`, which holds `count` of them.
pub(crate) fn in_table(table: &[u8], count: usize) -> Option<Vec<ProgramHeader>> {
    ProgramHeader::parse(table, 0, count, CONTEXT).ok()
}

/// The program headers of a file that the loader would map; `None` for any other file.
pub(crate) fn read_program_headers(data: &[u8]) -> Option<Vec<ProgramHeader>> {
    let header = Elf::parse_header(data).ok()?;
    let ident = &header.e_ident;
    let fits = ident[..SELFMAG] == *ELFMAG
        && ident[EI_CLASS] == ELFCLASS64
        && ident[EI_DATA] == ELFDATA2LSB
        && header.e_machine == EM_X86_64;
    if !fits {
        return None;
    }
    let at = usize::try_from(header.e_phoff).ok()?;
    ProgramHeader::parse(data, at, header.e_phnum.into(), CONTEXT).ok()
}

/// The content of a segment in the file.
pub(crate) fn content<'a>(data: &'a [u8], header: &ProgramHeader) -> Option<&'a [u8]> {
    bytes::range(data, header.p_offset, header.p_filesz)
}

/// The dynamic entries before the first `DT_NULL`, as `(tag, value)`.
pub(crate) fn dynamic(data: &[u8], headers: &[ProgramHeader]) -> Vec<(u64, u64)> {
    let Ok(Some(dynamic)) = Dynamic::parse(data, headers, CONTEXT) else {
        return Vec::new();
    };
    let entries = dynamic.dyns.iter().map(|d| (d.d_tag, d.d_val));
    entries.take_while(|d| d.0 != DT_NULL).collect()
}

/// The notes of a segment as `(name with its zero, type, descriptor)`. Notes after a damaged one
/// are lost. goblin reads their headers; it would stop at a name that is not UTF-8.
pub fn notes(data: &[u8], align: u64) -> Vec<(&[u8], u32, &[u8])> {
    let align = if align == 8 { 8 } else { 4 };
    let mut notes = Vec::new();
    let mut at = 0usize;
    while let Ok(header) = data.pread_with::<Nhdr32>(at, CONTEXT.le) {
        let name_at = at + size_of::<Nhdr32>();
        let name_end = name_at + header.n_namesz as usize;
        let desc_at = name_end.next_multiple_of(align);
        let desc_end = desc_at + header.n_descsz as usize;
        let (Some(name), Some(desc)) = (data.get(name_at..name_end), data.get(desc_at..desc_end))
        else {
            break;
        };
        notes.push((name, header.n_type, desc));
        at = desc_end.next_multiple_of(align);
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_read_up_to_a_damaged_one() {
        let note = |name: &[u8], kind: u32, desc: &[u8]| {
            let mut out = Vec::new();
            for word in [name.len() as u32, desc.len() as u32, kind] {
                out.extend_from_slice(&word.to_le_bytes());
            }
            out.extend_from_slice(name);
            out.resize(out.len().next_multiple_of(4), 0);
            out.extend_from_slice(desc);
            out.resize(out.len().next_multiple_of(4), 0);
            out
        };
        // A name that is no text, and one without descriptor at the very end.
        let all = [note(b"\xff\xfe\0", 7, b"abc"), note(b"mgz\0", 1, b"")].concat();
        let (first, second): ((&[u8], u32, &[u8]), (&[u8], u32, &[u8])) =
            ((b"\xff\xfe\0", 7, b"abc"), (b"mgz\0", 1, b""));
        assert_eq!(notes(&all, 4), [first, second]);
        for length in 0..all.len() {
            let expected = usize::from(length >= 19);
            assert_eq!(notes(&all[..length], 4).len(), expected, "{length} bytes");
        }
        let endless = note(b"x\0", 1, b"");
        let mut endless = endless.clone();
        endless[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        endless[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(notes(&endless, 8).is_empty());
    }

    #[test]
    fn headers_of_damaged_files_are_none() {
        let data = std::fs::read("/proc/self/exe").unwrap();
        let headers = read_program_headers(&data).unwrap();
        assert!(!dynamic(&data, &headers).is_empty());
        for length in 0..200 {
            let _ = read_program_headers(&data[..length]);
        }
        for (at, value) in [(4, 1), (5, 2), (18, 3), (39, 0xff)] {
            let mut bad = data.clone();
            bad[at] = value;
            assert!(read_program_headers(&bad).is_none(), "byte {at}");
        }
        let wild = [ProgramHeader {
            p_type: goblin::elf::program_header::PT_DYNAMIC,
            p_offset: u64::MAX - 4,
            p_filesz: 1 << 40,
            ..ProgramHeader::new()
        }];
        assert!(dynamic(&data, &wild).is_empty());
        assert!(content(&data, &wild[0]).is_none());
    }
}
