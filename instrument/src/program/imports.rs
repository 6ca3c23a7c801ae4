//! Imported functions by the words and entries through which code reaches them. The tables are read
//! as the loader reads them, since section headers may be missing.

use crate::program::linkage::entries_around;
use crate::program::{Import, Input};
use crate::util::fast_hash::{FastMap, FastSet};
use crate::x86::flow::direct_target;
use iced_x86::{FlowControl, Instruction};
use mgz_elf::image::{Elf, R_IRELATIVE, dt};
use mgz_elf::versions::Versions;
use object::elf;
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

const R_64: u32 = 1;
const R_GLOB_DAT: u32 = 6;
const R_JUMP_SLOT: u32 = 7;
/// The imported functions of a file.
#[derive(Debug, Default)]
pub struct Imports {
    /// Words of the global offset table.
    pub slots: HashMap<u64, String>,
    /// Entries of linkage tables. In a file without section headers, jumps through a word count as
    /// entries as well.
    pub stubs: HashMap<u64, String>,
    /// Ends of the entries' jumps through a word. Entries of other forms have none.
    pub stub_jumps: Vec<u64>,
    /// Functions whose address is in data, or that have a fixed address in this file.
    pub taken: Vec<String>,
    /// Places in linkage tables that refer to a word without jumping through it, and the function.
    pub strange: Vec<(u64, String)>,
    /// Words of the global offset table with addresses of functions of this file, where the linker
    /// could not make a direct call.
    pub own: HashMap<u64, u64>,
    /// Registers that imported functions may change, as far as known, by words and entries.
    pub conventions: FastMap<u64, Import>,
}

impl Imports {
    /// Reads relocations and linkage tables.
    pub fn read(elf: &Elf, input: &Input) -> Imports {
        let mut imports = Imports::default();
        let versions = Versions::read(elf);
        let abi_alone = needs_only_musl(elf);
        let lazy = !binds_at_start(elf);
        for r in elf.relocations().iter().filter(|r| r.symbol != 0) {
            let Some((name, value)) = elf.undefined_symbol(r.symbol) else {
                continue;
            };
            if value != 0 || r.kind == R_64 {
                imports.taken.push(name.to_owned());
            }
            if matches!(r.kind, R_JUMP_SLOT | R_GLOB_DAT) {
                imports.slots.insert(r.at, name.to_owned());
                let follows_abi =
                    abi_alone || versions.of(r.symbol).is_some_and(is_runtime_library);
                let convention = if follows_abi && !KEEP_REGISTERS.contains(&name) {
                    Import::Abi
                } else if lazy && r.kind == R_JUMP_SLOT {
                    Import::Lazy
                } else {
                    Import::Unknown
                };
                imports.conventions.insert(r.at, convention);
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
        // (A resolver chooses the function for these words.)
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

    /// Finds the entries that read words. `strict`: the range has only entries; elsewhere only
    /// jumps count.
    fn read_stubs(&mut self, input: &Input, range: &Range<u64>, strict: bool) {
        const JUMP: [u8; 2] = [0xff, 0x25];
        let Some(code) = input.slice(range) else {
            return;
        };
        for at in 2..code.len().saturating_sub(3) {
            let is_jump = code[at - 2..at] == JUMP;
            if !is_jump && !strict {
                continue;
            }
            let distance_at = range.start + at as u64;
            let distance = i32::from_le_bytes([code[at], code[at + 1], code[at + 2], code[at + 3]]);
            let slot = (distance_at + 4).wrapping_add_signed(distance.into());
            let Some(name) = self.slots.get(&slot).cloned() else {
                continue;
            };
            let convention = self.conventions.get(&slot).copied();
            let entries = entries_around(input, distance_at);
            if entries.iter().any(|(_, stub)| stub.direct) {
                self.stub_jumps.push(distance_at + 4);
            } else {
                self.strange.push((distance_at, name.clone()));
            }
            for (start, _) in entries {
                self.stubs.insert(start, name.clone());
                self.conventions
                    .extend(convention.map(|convention| (start, convention)));
            }
        }
    }

    /// Words and entries through which functions with matching names are called.
    pub fn reach(&self, fits: impl Fn(&str) -> bool) -> BTreeSet<u64> {
        self.slots
            .iter()
            .chain(&self.stubs)
            .filter(|(_, name)| fits(name))
            .map(|(at, _)| *at)
            .collect()
    }

    /// Words and entries through which functions that do not return are called.
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
        let place = through(inst)?;
        let found = self.stubs.get(&place).or_else(|| self.slots.get(&place));
        found.map(String::as_str)
    }

    /// True if an instruction calls or jumps to an imported function that is known to follow the
    /// ABI.
    pub fn callee_follows_abi(&self, inst: &Instruction) -> bool {
        let convention = through(inst).and_then(|place| self.conventions.get(&place));
        convention == Some(&Import::Abi)
    }
}

/// The entry of a linkage table or the word through which an instruction calls or jumps.
fn through(inst: &Instruction) -> Option<u64> {
    match inst.flow_control() {
        FlowControl::Call | FlowControl::UnconditionalBranch => direct_target(inst),
        FlowControl::IndirectCall | FlowControl::IndirectBranch
            if inst.is_ip_rel_memory_operand() =>
        {
            Some(inst.ip_rel_memory_address())
        }
        _ => None,
    }
}

/// Functions of runtime libraries that preserve registers which the ABI lets them change. Those for
/// profilers come before code that reads its arguments. The function that finds a thread's
/// variables has variants that preserve all registers.
const KEEP_REGISTERS: [&str; 4] = ["mcount", "_mcount", "__fentry__", "__tls_get_addr"];

/// True if a symbol with this file and version is from a runtime library of GNU's compilers or C
/// library. These functions follow the ABI.
fn is_runtime_library((file, version): (&str, &str)) -> bool {
    const FILES: [&str; 15] = [
        "ld-linux-x86-64.so.",
        "libanl.so.",
        "libc.so.",
        "libdl.so.",
        "libgcc_s.so.",
        "libgfortran.so.",
        "libgomp.so.",
        "libm.so.",
        "libpthread.so.",
        "libquadmath.so.",
        "libresolv.so.",
        "librt.so.",
        "libstdc++.so.",
        "libthread_db.so.",
        "libutil.so.",
    ];
    const VERSIONS: [&str; 10] = [
        "CXXABI_",
        "GCC_",
        "GFORTRAN_",
        "GLIBC_",
        "GLIBCXX_",
        "GOACC_",
        "GOMP_",
        "OACC_",
        "OMP_",
        "QUADMATH_",
    ];
    FILES.iter().any(|f| file.starts_with(f)) && VERSIONS.iter().any(|v| version.starts_with(v))
}

/// True if a file is an executable that needs only musl's library, whose symbols have no versions,
/// and those of GNU's compilers. No other file can then define its imports.
fn needs_only_musl(elf: &Elf) -> bool {
    let by_musl = elf.interpreter().is_some_and(|path| {
        path.rsplit('/')
            .next()
            .is_some_and(|n| n.starts_with("ld-musl-"))
    });
    let known = |file: &String| {
        [
            "libc.so",
            "libc.musl-x86_64.so.1",
            "libgcc_s.so.1",
            "libstdc++.so.6",
        ]
        .contains(&file.as_str())
    };
    by_musl && elf.dynamic_strings(dt(elf::DT_NEEDED)).iter().all(known)
}

/// True if the loader binds all functions before the file runs.
fn binds_at_start(elf: &Elf) -> bool {
    let flag = |tag, flag: u64| elf.dynamic_value(dt(tag)).is_some_and(|f| f & flag != 0);
    elf.dynamic_value(dt(elf::DT_BIND_NOW)).is_some()
        || flag(elf::DT_FLAGS, elf::DF_BIND_NOW.0)
        || flag(elf::DT_FLAGS_1, elf::DF_1_NOW.0)
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
    // std::__throw_length_error(char const*) and similar functions.
    let throws = name.strip_prefix("_ZSt").is_some_and(|rest| {
        rest.trim_start_matches(|c: char| c.is_ascii_digit())
            .starts_with("__throw_")
    });
    throws || NAMES.contains(&name)
}
