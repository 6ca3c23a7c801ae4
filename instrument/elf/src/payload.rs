//! Data that a file carries apart from its ELF content: an archive, an image or a bundle that the
//! program finds in its own file.
//!
//! Programs find it in several ways: from the file's end, from the end of the ELF content (by
//! section or program headers), or at a known offset. The rewritten file serves all of them:
//! everything keeps its offset, and a copy of the payload is at the very end, directly after the
//! ELF content there.

use crate::bytes;
use crate::image::{EHDR, Elf, PHDR, SHDR, Section};
use object::elf;
use std::collections::BTreeSet;
use std::ops::Range;

/// A payload of the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    /// Bytes of the input that are copied: they reach to its end.
    pub range: Range<u64>,
    /// The section that holds it, if it is not after the ELF content.
    pub section: Option<String>,
    /// True if it begins where the last segment ends in the file.
    pub follows_segments: bool,
}

/// Sections without addresses that compilers, linkers and `strip` leave: no program searches for
/// them from the file's end.
const DISPENSABLE_SECTIONS: [&str; 21] = [
    ".comment",
    ".debug",
    ".zdebug",
    ".gnu",
    ".note",
    ".stab",
    ".gdb_index",
    ".llvm",
    ".ctf",
    ".BTF",
    ".SUNW",
    ".annobin",
    ".rustc",
    ".deplibs",
    ".mdebug",
    ".line",
    ".strtab",
    ".shstrtab",
    ".symtab",
    ".rel",
    ".mgz",
];

/// The end of the parts that headers, segments and sections describe. Parts beyond the file, from a
/// damaged header, do not count.
pub fn end(elf: &Elf) -> u64 {
    let sections = elf.sections.iter().filter_map(in_file);
    segments_end(elf)
        .into_iter()
        .chain(sections.map(|s| s.end))
        .chain(tables(elf))
        .filter(|&end| end <= elf.data.len() as u64)
        .max()
        .unwrap_or(0)
}

/// End of the last segment in the file.
fn segments_end(elf: &Elf) -> Option<u64> {
    let ends = elf
        .segments
        .iter()
        .filter(|s| s.filesz > 0 && s.kind != elf::PT_NULL.0);
    ends.filter_map(|s| s.offset.checked_add(s.filesz))
        .filter(|&end| end <= elf.data.len() as u64)
        .max()
}

/// Ends of the file header and of both header tables.
fn tables(elf: &Elf) -> [u64; 3] {
    let at = |place| bytes::u64(elf.data, place).unwrap_or(0);
    let behind =
        |start: u64, count: usize, size: usize| start.saturating_add((count * size) as u64);
    [
        EHDR as u64,
        behind(at(32), elf.segments.len(), PHDR),
        behind(at(40), elf.sections.len(), SHDR),
    ]
}

/// The bytes of a section in the file.
fn in_file(section: &Section) -> Option<Range<u64>> {
    let has_bytes =
        section.kind != elf::SHT_NOBITS.0 && section.kind != elf::SHT_NULL.0 && section.size > 0;
    let end = section
        .offset
        .checked_add(section.size)
        .filter(|_| has_bytes)?;
    Some(section.offset..end)
}

/// True if a section was added to the finished file (with `objcopy --add-section`, say).
fn is_added(section: &Section) -> bool {
    section.kind == elf::SHT_PROGBITS.0
        && !section.is_alloc()
        && !DISPENSABLE_SECTIONS
            .iter()
            .any(|known| section.name.starts_with(known))
}

/// The payload of a file. Zeros do not count, since they are padding.
pub fn find_payload(elf: &Elf) -> Option<Payload> {
    let len = elf.data.len() as u64;
    let (end, segments) = (end(elf), segments_end(elf).unwrap_or(0));
    if elf.data[end as usize..].iter().any(|&b| b != 0) {
        return Some(Payload {
            range: end..len,
            section: None,
            follows_segments: segments == end,
        });
    }
    let added = elf
        .sections
        .iter()
        .filter(|s| is_added(s))
        .filter_map(|s| Some((in_file(s)?, s)));
    let (range, section) = added
        .filter(|(range, _)| range.start >= segments && range.end <= len)
        .min_by_key(|(range, _)| range.start)?;
    Some(Payload {
        range: range.start..len,
        section: Some(section.name.clone()),
        follows_segments: false,
    })
}

/// Finds a number or text in the ELF content that equals the payload's offset or the file's length:
/// its address and that number. A program that has these may read up to the end of the file, or
/// compare its length. `immediates`: the numbers in the code, with their addresses.
pub fn known_offset(
    elf: &Elf,
    payload: &Payload,
    immediates: impl IntoIterator<Item = (u64, u64)>,
) -> Option<(u64, u64)> {
    let numbers = [payload.range.start, payload.range.end];
    let in_code = immediates
        .into_iter()
        .find(|(_, number)| numbers.contains(number));
    in_code.or_else(|| {
        let relocated: BTreeSet<u64> = elf.relocations().iter().map(|r| r.at).collect();
        let mut data = data(elf);
        data.find_map(|(addr, content, writable)| {
            let long = content.chunks_exact(8).zip((addr..).step_by(8));
            let long = long.map(|(word, at)| (at, bytes::u64(word, 0).unwrap_or(0)));
            // Short words are common in tables of constants, but rare in variables.
            let variables = if writable { content } else { &[] };
            let short = variables.chunks_exact(4).zip((addr..).step_by(4));
            let short = short.map(|(word, at)| (at, bytes::u32(word, 0).unwrap_or(0).into()));
            let as_text = || {
                let written = |number| Some((addr + text_of(content, number)? as u64, number));
                numbers.into_iter().find_map(written)
            };
            long.chain(short)
                .find(|(at, number)| numbers.contains(number) && !relocated.contains(at))
                .or_else(as_text)
        })
    })
}

/// Position of a number as text, decimal or hexadecimal. A tool that appends a payload may write
/// the number into a reserved field. Short numbers occur by chance.
fn text_of(content: &[u8], number: u64) -> Option<usize> {
    /// Source: Chosen.
    const MIN_TEXT_BYTES: usize = 4;
    let forms = [
        (format!("{number}"), false),
        (format!("{number:x}"), true),
        (format!("{number:X}"), true),
    ];
    let alone = |at: usize, len: usize, hex: bool| {
        let is_digit = |b: &u8| b.is_ascii_digit() || hex && b.is_ascii_hexdigit();
        // (Leading zeros do not change the number.)
        let before = content[..at].iter().rev().find(|b| **b != b'0');
        !before.is_some_and(is_digit) && !content.get(at + len).is_some_and(is_digit)
    };
    forms.iter().find_map(|(text, hex)| {
        let found = memchr::memmem::find_iter(content, text);
        let mut found = found.filter(|&at| alone(at, text.len(), *hex));
        found.next().filter(|_| text.len() >= MIN_TEXT_BYTES)
    })
}

/// Variables and constants of the program: addresses, bytes, and true if they can be written.
/// Segments if there are no section headers.
fn data<'e>(elf: &'e Elf) -> impl Iterator<Item = (u64, &'e [u8], bool)> {
    const OF_COMPILER: [&str; 6] = [
        ".eh_frame",
        ".gcc_except_table",
        ".got",
        ".plt",
        ".interp",
        ".hash",
    ];
    let sections = elf.sections.iter().filter(|s| {
        s.is_alloc()
            && s.kind == elf::SHT_PROGBITS.0
            && s.flags & elf::SHF_EXECINSTR.0 == 0
            && !OF_COMPILER.iter().any(|name| s.name.starts_with(name))
    });
    let sections = sections.filter_map(|s| {
        let writable = s.flags & elf::SHF_WRITE.0 != 0;
        Some((s.addr, elf.section_bytes(s)?, writable))
    });
    let segments = elf
        .loads()
        .filter(|s| elf.sections.is_empty() && s.flags & elf::PF_X.0 == 0);
    let segments = segments.filter_map(|s| {
        let content = bytes::range(elf.data, s.offset, s.filesz)?;
        Some((s.vaddr, content, s.flags & elf::PF_W.0 != 0))
    });
    // Words are aligned to their size. A word beyond all addresses is ignored.
    sections
        .chain(segments)
        .filter(|(addr, content, _)| addr.checked_add(content.len() as u64 + 16).is_some())
        .filter_map(|(addr, content, writable)| {
            let skip = addr.wrapping_neg() % 8;
            Some((addr + skip, content.get(skip as usize..)?, writable))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Vec<u8> {
        std::fs::read(std::env::current_exe().unwrap()).unwrap()
    }

    #[test]
    fn what_stands_behind_the_elf_content_is_a_payload() {
        let data = own();
        let elf = Elf::parse(&data).unwrap();
        assert_eq!((find_payload(&elf), end(&elf)), (None, data.len() as u64));
        for (more, found) in [
            (vec![0; 5000], false),
            (b"x".to_vec(), true),
            ([vec![0; 100], vec![7]].concat(), true),
        ] {
            let longer = [&data[..], &more].concat();
            let elf = Elf::parse(&longer).unwrap();
            assert_eq!(end(&elf), data.len() as u64);
            let expected = found.then_some(Payload {
                range: data.len() as u64..longer.len() as u64,
                section: None,
                follows_segments: false,
            });
            assert_eq!(find_payload(&elf), expected);
        }
    }

    #[test]
    fn damaged_headers_hide_no_payload() {
        let mut data = own();
        let len = data.len() as u64;
        let elf = Elf::parse(&data).unwrap();
        let comment = elf
            .sections
            .iter()
            .position(|s| s.name == ".comment")
            .unwrap();
        let header = bytes::u64(&data, 40).unwrap() as usize + comment * SHDR;
        data.extend_from_slice(b"payload");
        for size in [u64::MAX, 1 << 40] {
            data[header + 32..header + 40].copy_from_slice(&size.to_le_bytes());
            let elf = Elf::parse(&data).unwrap();
            assert_eq!(find_payload(&elf).unwrap().range, len..len + 7);
        }
    }

    #[test]
    fn sections_beyond_all_addresses_are_passed_over() {
        let mut data = own();
        data.extend_from_slice(b"payload");
        let elf = Elf::parse(&data).unwrap();
        let payload = find_payload(&elf).unwrap();
        let rodata = elf.sections.iter().position(|s| s.name == ".rodata");
        let header = bytes::u64(&data, 40).unwrap() as usize + rodata.unwrap() * SHDR;
        for addr in [u64::MAX, u64::MAX - 7, u64::MAX - 64] {
            data[header + 16..header + 24].copy_from_slice(&addr.to_le_bytes());
            let elf = Elf::parse(&data).unwrap();
            let _ = known_offset(&elf, &payload, std::iter::empty());
        }
    }

    #[test]
    fn sections_that_were_added_are_payloads() {
        let mut data = own();
        let elf = Elf::parse(&data).unwrap();
        let names = elf.sections[elf.names as usize].offset as usize;
        let comment = elf.section(".comment").unwrap().clone();
        let at = names + comment.name_at as usize;
        data[at..at + 8].copy_from_slice(b".bundle\0");
        let elf = Elf::parse(&data).unwrap();
        let payload = find_payload(&elf).unwrap();
        assert_eq!(payload.section.as_deref(), Some(".bundle"));
        assert_eq!(payload.range, comment.offset..data.len() as u64);
        data[at..at + 8].copy_from_slice(b".debug_\0");
        assert_eq!(find_payload(&Elf::parse(&data).unwrap()), None);
    }

    #[test]
    fn numbers_that_lead_to_a_payload_are_found() {
        let mut data = own();
        let len = data.len() as u64;
        data.extend_from_slice(b"payload");
        let rodata = Elf::parse(&data)
            .unwrap()
            .section(".rodata")
            .unwrap()
            .clone();
        let known = |data: &[u8], immediates: &[(u64, u64)]| {
            let elf = Elf::parse(data).unwrap();
            known_offset(
                &elf,
                &find_payload(&elf).unwrap(),
                immediates.iter().copied(),
            )
        };
        assert_eq!(known(&data, &[(1, len - 1)]), None);
        assert_eq!(known(&data, &[(1, 2), (3, len)]), Some((3, len)));
        assert_eq!(known(&data, &[(5, len + 7)]), Some((5, len + 7)));
        let at = rodata.offset as usize + 64;
        let plain = data.clone();
        data[at..at + 8].copy_from_slice(&len.to_le_bytes());
        assert_eq!(known(&data, &[]), Some((rodata.addr + 64, len)));
        for (before, text, found) in [
            ("offset=", format!("{len}"), true),
            ("@@", format!("{:012}", len + 7), true),
            ("0x", format!("{len:x}"), true),
            ("", format!("{len}0"), false),
            ("1", format!("{len}"), false),
            ("", format!("{}", len + 1), false),
        ] {
            let mut data = plain.clone();
            let text = format!("{before}{text};");
            data[at..at + text.len()].copy_from_slice(text.as_bytes());
            assert_eq!(known(&data, &[]).is_some(), found, "{text}");
        }
    }
}
