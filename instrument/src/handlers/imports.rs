//! Imported functions by the places through which code reaches them. All of it is read as the loader reads it: section headers may be missing.

use crate::disasm::direct_target;
use crate::elf::read::{Elf, R_IRELATIVE};
use crate::functions::Input;
use crate::hash::FastSet;
use iced_x86::{FlowControl, Instruction};
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

const R_64: u32 = 1;
const R_GLOB_DAT: u32 = 6;
const R_JUMP_SLOT: u32 = 7;
/// `jmp [rip + distance]`, and what entries of linkage tables may have in front of it: `bnd`; `mov r11d, number`; `endbr64`.
const JUMP: [u8; 2] = [0xff, 0x25];
const BND: u8 = 0xf2;
const NUMBER: [u8; 2] = [0x41, 0xbb];
const NUMBER_LEN: usize = 6;
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// See the module.
#[derive(Debug, Default)]
pub struct Imports {
    /// Words of the global offset table.
    pub slots: HashMap<u64, String>,
    /// Entries of linkage tables. Where a file has no section headers, jumps of the code through a word are taken for entries as well.
    pub stubs: HashMap<u64, String>,
    /// Jumps of these entries through a word: where each ends.
    pub stub_jumps: Vec<u64>,
    /// Functions whose address data holds, or that have a fixed address of their own in this file.
    pub taken: Vec<String>,
    /// Places in linkage tables that refer to a word in a way that is not understood, and the function.
    pub strange: Vec<(u64, String)>,
    /// Words of the global offset table with the addresses of functions of this file: where the linker could not make a call of such a function a direct one.
    pub own: HashMap<u64, u64>,
}

impl Imports {
    /// Reads relocations and linkage tables.
    pub fn read(elf: &Elf, input: &Input) -> Imports {
        let mut imports = Imports::default();
        for r in elf.relocations().iter().filter(|r| r.symbol != 0) {
            let Some((name, value)) = elf.undefined_symbol(r.symbol) else {
                continue;
            };
            if value != 0 || r.kind == R_64 {
                imports.taken.push(name.to_owned());
            }
            if matches!(r.kind, R_JUMP_SLOT | R_GLOB_DAT) {
                imports.slots.insert(r.at, name.to_owned());
            }
        }
        if elf.sections.is_empty() {
            input
                .exec_ranges
                .iter()
                .for_each(|range| imports.read_stubs(input, range, false));
        }
        imports.read_own(elf, input);
        elf.ranges_named(".plt")
            .iter()
            .for_each(|range| imports.read_stubs(input, range, true));
        imports
    }

    fn read_own(&mut self, elf: &Elf, input: &Input) {
        if input.pie {
            self.own = input
                .relative_targets
                .iter()
                .copied()
                .filter(|t| input.is_got(t.0))
                .collect();
        } else {
            let words = input
                .got
                .iter()
                .flat_map(|r| (r.start.next_multiple_of(8)..r.end).step_by(8));
            let content = |at| Some(u64::from_le_bytes(*input.bytes_at(at)?.first_chunk()?));
            self.own = words
                .filter_map(|at| Some((at, content(at)?)))
                .filter(|w| input.is_code(w.1))
                .collect();
        }
        // (Those lead to what a function chooses.)
        for chosen in elf.relocations().iter().filter(|r| r.kind == R_IRELATIVE) {
            self.own.remove(&chosen.at);
        }
    }

    /// The function of this file that an instruction calls or jumps to.
    pub fn own_callee(&self, inst: &Instruction) -> Option<u64> {
        match inst.flow_control() {
            FlowControl::IndirectCall | FlowControl::IndirectBranch
                if inst.is_ip_rel_memory_operand() =>
            {
                self.own.get(&inst.ip_rel_memory_address()).copied()
            }
            _ => direct_target(inst),
        }
    }

    /// Finds the jumps through words, and where the entries around them begin. `strict`: there is nothing else in the range.
    fn read_stubs(&mut self, input: &Input, range: &Range<u64>, strict: bool) {
        let Some(code) = input.slice(range) else {
            return;
        };
        for at in 2..code.len().saturating_sub(3) {
            let is_jump = code[at - 2..at] == JUMP;
            if !is_jump && !strict {
                continue;
            }
            let end = range.start + at as u64 + 4;
            let distance = i32::from_le_bytes([code[at], code[at + 1], code[at + 2], code[at + 3]]);
            let Some(name) = self.slots.get(&end.wrapping_add_signed(distance.into())) else {
                continue;
            };
            if !is_jump {
                self.strange.push((end - 4, name.clone()));
                continue;
            }
            let mut entry = &code[..at - 2];
            entry = entry.strip_suffix(&[BND]).unwrap_or(entry);
            if entry.len() >= NUMBER_LEN && entry[entry.len() - NUMBER_LEN..].starts_with(&NUMBER) {
                entry = &entry[..entry.len() - NUMBER_LEN];
            }
            // Who jumps to what is behind the `endbr64` comes to the same.
            let starts = [
                Some(entry.len()),
                entry.strip_suffix(&ENDBR64).map(<[u8]>::len),
            ];
            self.stubs.extend(
                starts
                    .into_iter()
                    .flatten()
                    .map(|start| (range.start + start as u64, name.clone())),
            );
            self.stub_jumps.push(end);
        }
    }

    /// Through what functions with such names are called.
    pub fn reach(&self, fits: impl Fn(&str) -> bool) -> BTreeSet<u64> {
        self.slots
            .iter()
            .chain(&self.stubs)
            .filter(|(_, name)| fits(name))
            .map(|(at, _)| *at)
            .collect()
    }

    /// Through what functions are called that do not return.
    pub fn no_return(&self) -> FastSet<u64> {
        self.slots
            .iter()
            .chain(&self.stubs)
            .filter(|(_, name)| does_not_return(name))
            .map(|(at, _)| *at)
            .collect()
    }

    /// The imported function that an instruction calls or jumps to.
    pub fn callee(&self, inst: &Instruction) -> Option<&str> {
        let found = match inst.flow_control() {
            FlowControl::Call | FlowControl::UnconditionalBranch => {
                self.stubs.get(&direct_target(inst)?)
            }
            FlowControl::IndirectCall | FlowControl::IndirectBranch
                if inst.is_ip_rel_memory_operand() =>
            {
                self.slots.get(&inst.ip_rel_memory_address())
            }
            _ => None,
        };
        found.map(String::as_str)
    }
}

/// Functions of the C and C++ libraries that never return to their caller.
fn does_not_return(name: &str) -> bool {
    const NAMES: [&str; 26] = [
        "exit",
        "_exit",
        "_Exit",
        "quick_exit",
        "abort",
        "pthread_exit",
        "thrd_exit",
        "__stack_chk_fail",
        "__chk_fail",
        "__assert_fail",
        "__assert_perror_fail",
        "__assert",
        "longjmp",
        "_longjmp",
        "siglongjmp",
        "__longjmp_chk",
        "err",
        "errx",
        "verr",
        "verrx",
        "_Unwind_Resume",
        "__cxa_throw",
        "__cxa_rethrow",
        "__cxa_bad_cast",
        "__cxa_throw_bad_array_new_length",
        "_ZSt9terminatev",
    ];
    let name = name.split('@').next().unwrap_or(name);
    // std::__throw_length_error(char const*) and its like.
    let throws = name.strip_prefix("_ZSt").is_some_and(|rest| {
        rest.trim_start_matches(|c: char| c.is_ascii_digit())
            .starts_with("__throw_")
    });
    throws || NAMES.contains(&name)
}
