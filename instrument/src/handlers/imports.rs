//! Imported functions by the places through which code reaches them.

use crate::elf::read::{Elf, Section};
use crate::elf::{bytes, symbols};
use crate::functions::Input;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};
use std::collections::HashMap;

const R_64: u32 = 1;
const R_GLOB_DAT: u32 = 6;
const R_JUMP_SLOT: u32 = 7;

/// See the module.
#[derive(Debug, Default)]
pub struct Imports {
    /// Words of the global offset table.
    pub slots: HashMap<u64, String>,
    /// Entries of linkage tables.
    pub stubs: HashMap<u64, String>,
    /// Functions whose address data holds, or that have a fixed address of their own in this file.
    pub taken: Vec<String>,
}

impl Imports {
    /// Reads relocations and linkage tables.
    pub fn read(elf: &Elf, input: &Input) -> Imports {
        let mut imports = Imports::default();
        let dynamic = elf.sections.iter().find(|s| s.kind == object::elf::SHT_DYNSYM.0);
        let Some(names) = dynamic.map(|s| symbols::table(elf, s)) else { return imports };
        let relocation = |s: &&Section| s.kind == object::elf::SHT_RELA.0 && s.is_alloc();
        for section in elf.sections.iter().filter(relocation) {
            for r in elf.section_bytes(section).unwrap_or(&[]).chunks_exact(24) {
                let (at, info) = (bytes::u64(r, 0).unwrap_or(0), bytes::u64(r, 8).unwrap_or(0));
                let Some(symbol) = names.get((info >> 32) as usize).filter(|s| s.section == 0 && !s.name.is_empty()) else { continue };
                let name = symbol.name.to_string();
                match info as u32 {
                    R_JUMP_SLOT | R_GLOB_DAT => {
                        imports.slots.insert(at, name);
                    }
                    R_64 => imports.taken.push(name),
                    _ => {}
                }
            }
        }
        imports.taken.extend(names.iter().filter(|s| s.section == 0 && s.value != 0).map(|s| s.name.to_string()));
        for range in elf.ranges_named(".plt") {
            imports.read_stubs(input, &range);
        }
        imports
    }

    /// A stub is its jump's address back to the start of the entry: `endbr64; [bnd] jmp *slot`, or `jmp *slot` alone.
    fn read_stubs(&mut self, input: &Input, range: &std::ops::Range<u64>) {
        let Some(code) = input.slice(range) else { return };
        let mut entry = range.start;
        while entry < range.end {
            let mut decoder = Decoder::with_ip(64, &code[(entry - range.start) as usize..], entry, DecoderOptions::NONE);
            let mut inst = decoder.decode();
            if inst.mnemonic() == iced_x86::Mnemonic::Endbr64 {
                inst = decoder.decode();
            }
            if inst.flow_control() == FlowControl::IndirectBranch
                && inst.is_ip_rel_memory_operand()
                && let Some(name) = self.slots.get(&inst.ip_rel_memory_address())
            {
                self.stubs.insert(entry, name.clone());
            }
            // Entries are aligned to 8 or 16 bytes.
            entry += 8;
        }
    }

    /// Through what functions are called that do not return.
    pub fn no_return(&self) -> std::collections::HashSet<u64> {
        self.slots.iter().chain(&self.stubs).filter(|(_, name)| does_not_return(name)).map(|(at, _)| *at).collect()
    }

    /// The imported function that an instruction calls or jumps to.
    pub fn callee(&self, inst: &Instruction) -> Option<&str> {
        let found = match inst.flow_control() {
            FlowControl::Call | FlowControl::UnconditionalBranch => self.stubs.get(&crate::disasm::direct_target(inst)?),
            FlowControl::IndirectCall | FlowControl::IndirectBranch if inst.is_ip_rel_memory_operand() => self.slots.get(&inst.ip_rel_memory_address()),
            _ => None,
        };
        found.map(String::as_str)
    }
}

/// Functions of the C and C++ libraries that never return to their caller.
fn does_not_return(name: &str) -> bool {
    const NAMES: [&str; 26] = [
        "exit", "_exit", "_Exit", "quick_exit", "abort", "pthread_exit", "thrd_exit", "__stack_chk_fail", "__chk_fail", "__assert_fail", "__assert_perror_fail", "__assert", "longjmp", "_longjmp",
        "siglongjmp", "__longjmp_chk", "err", "errx", "verr", "verrx", "_Unwind_Resume", "__cxa_throw", "__cxa_rethrow", "__cxa_bad_cast", "__cxa_throw_bad_array_new_length", "_ZSt9terminatev",
    ];
    let name = name.split('@').next().unwrap_or(name);
    // std::__throw_length_error(char const*) and its like.
    let throws = name.strip_prefix("_ZSt").is_some_and(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()).starts_with("__throw_"));
    throws || NAMES.contains(&name)
}
