//! Memory of a file in which accesses do not fail, so that no handler looks at them.

use crate::program::fixed_memory::Own;
use crate::program::imports::Imports;
use crate::program::{Input, Program};
use iced_x86::{Decoder, DecoderOptions, Mnemonic};
use mgz_elf::Elf;
use object::elf;
use std::ops::Range;

/// All of a file's memory; none if the file may make it inaccessible: through functions of other
/// files that change the protection of existing memory, or through system calls of its own. (Calls
/// that map other memory over it are not considered, nor are such calls by other files.)
pub fn own_file_memory(elf: &Elf, input: &Input, program: &Program) -> Own {
    const TAKERS: [&str; 6] = [
        "mprotect",
        "pkey_mprotect",
        "mremap",
        "remap_file_pages",
        "shmat",
        "syscall",
    ];
    let imports = Imports::read(elf, input);
    let mut names = imports
        .slots
        .values()
        .chain(&imports.taken)
        .map(String::as_str);
    if elf.is_static_executable()
        || names.any(|n| TAKERS.contains(&n))
        || program
            .functions
            .iter()
            .any(|f| has_system_call(input, &f.range))
    {
        return Own::default();
    }
    let all = |flag: u32| {
        elf.loads()
            .filter(move |s| s.flags & flag != 0)
            .map(|s| s.vaddr..s.vaddr.saturating_add(s.memsz))
    };
    let fixed: Vec<Range<u64>> = elf
        .segments
        .iter()
        .filter(|s| s.kind == elf::PT_GNU_RELRO.0)
        .map(|s| s.vaddr..s.vaddr.saturating_add(s.memsz))
        .collect();
    let mut writable = Vec::new();
    for segment in all(elf::PF_W.0) {
        let behind = fixed
            .iter()
            .filter(|f| segment.contains(&f.start))
            .map(|f| f.end)
            .max()
            .unwrap_or(segment.start);
        writable.push(behind.min(segment.end)..segment.end);
    }
    Own {
        readable: all(elf::PF_R.0).collect(),
        writable,
    }
}

/// True if a function makes a system call.
fn has_system_call(input: &Input, range: &Range<u64>) -> bool {
    let Some(bytes) = input.slice(range) else {
        return true;
    };
    let may = |b: &[u8]| matches!(b, [0x0f, 0x05 | 0x34] | [0xcd, 0x80]);
    bytes.windows(2).any(may)
        && Decoder::with_ip(64, bytes, range.start, DecoderOptions::NONE)
            .iter()
            .any(|i| {
                i.is_invalid()
                    || matches!(
                        i.mnemonic(),
                        Mnemonic::Syscall | Mnemonic::Sysenter | Mnemonic::Int
                    )
            })
}
