//! Program headers.

use mgz_elf::Elf;
use object::elf;
use std::fmt::Write;

fn kind(kind: u32) -> String {
    let known = [
        (elf::PT_NULL, "NULL"),
        (elf::PT_LOAD, "LOAD"),
        (elf::PT_DYNAMIC, "DYNAMIC"),
        (elf::PT_INTERP, "INTERP"),
        (elf::PT_NOTE, "NOTE"),
        (elf::PT_PHDR, "PHDR"),
        (elf::PT_TLS, "TLS"),
        (elf::PT_GNU_EH_FRAME, "GNU_EH_FRAME"),
        (elf::PT_GNU_STACK, "GNU_STACK"),
        (elf::PT_GNU_RELRO, "GNU_RELRO"),
        (elf::PT_GNU_PROPERTY, "GNU_PROPERTY"),
    ];
    let name = known.iter().find(|k| k.0.0 == kind);
    name.map_or_else(|| format!("{kind:#x}"), |k| k.1.to_owned())
}

/// Writes a line for each header.
pub(super) fn write_header_lines(out: &mut String, elf: &Elf) {
    for s in &elf.segments {
        let flag = |bit: u32, letter: char| if s.flags & bit != 0 { letter } else { '-' };
        let flags: String = [
            flag(elf::PF_R.0, 'r'),
            flag(elf::PF_W.0, 'w'),
            flag(elf::PF_X.0, 'x'),
        ]
        .iter()
        .collect();
        // (Writing to a string does not fail.)
        let _ = writeln!(
            out,
            "  {:12} {flags} address {:#x} offset {:#x} file {:#x} memory {:#x} align {:#x}",
            kind(s.kind),
            s.vaddr,
            s.offset,
            s.filesz,
            s.memsz,
            s.align
        );
    }
}
