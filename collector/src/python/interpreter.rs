//! The interpreter of CPython in a file.

use crate::python::memory::Memory;
use crate::python::version::{self, DEBUG_WORDS, Layout};
use mgz_abi::shared_memory::PAGE_SIZE;
use object::elf::PT_LOAD;
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{LittleEndian, Object, ObjectSymbol};
use std::collections::HashMap;
use std::path::Path;

/// Symbols that are looked for.
const RUNTIME: &str = "_PyRuntime";
const CODE_TYPE: &str = "PyCode_Type";
/// Since 3.11.
const VERSION: &str = "Py_Version";
/// Functions that came with 3.10 and with 3.9.
const SINCE: [(&str, u8); 2] = [("PyModule_AddObjectRef", 10), ("PyFrame_GetCode", 9)];

/// A file that contains the interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterpreterFile {
    /// Version 3.minor.
    pub minor: u8,
    /// `_PyRuntime`, as linked.
    pub runtime: u64,
    /// `PyCode_Type`, as linked.
    pub code_type: u64,
    /// Page of the first segment, as linked.
    pub base: u64,
}

impl InterpreterFile {
    /// Reads a file. `None` if it has no interpreter.
    pub fn read(path: &Path) -> Option<InterpreterFile> {
        let file = std::fs::File::open(path).ok()?;
        // SAFETY: the map is private and read-only; a concurrent truncation of the file by another
        // process could fault, as for every program that maps its input.
        let data = unsafe { memmap2::Mmap::map(&file) }.ok()?;
        InterpreterFile::parse(&data)
    }

    fn parse(data: &[u8]) -> Option<InterpreterFile> {
        let elf = ElfFile64::<LittleEndian>::parse(data).ok()?;
        let wanted = [RUNTIME, CODE_TYPE, VERSION, SINCE[0].0, SINCE[1].0];
        let found: HashMap<&str, u64> = elf
            .dynamic_symbols()
            .filter(|symbol| !symbol.is_undefined())
            .filter_map(|symbol| Some((symbol.name().ok()?, symbol.address())))
            .filter(|(name, _)| wanted.contains(name))
            .collect();
        let (&runtime, &code_type) = (found.get(RUNTIME)?, found.get(CODE_TYPE)?);
        let endian = LittleEndian;
        let loads = || {
            let segments = elf.elf_program_headers().iter();
            segments.filter(|s| s.p_type(endian) == PT_LOAD)
        };
        let constant = |address: u64| {
            let segment = loads().find(|s| {
                (s.p_vaddr(endian)..s.p_vaddr(endian).saturating_add(s.p_filesz(endian)))
                    .contains(&address)
            })?;
            let bytes = segment.data(endian, data).ok()?;
            mgz_elf::bytes::u64(bytes, (address - segment.p_vaddr(endian)) as usize)
        };
        let minor = match found.get(VERSION) {
            // Major and minor version are the two highest of four bytes.
            Some(&at) => match constant(at)? {
                version if version >> 24 == 3 => (version >> 16) as u8,
                _ => return None,
            },
            None => SINCE.iter().find(|(name, _)| found.contains_key(name))?.1,
        };
        let base = loads().map(|s| s.p_vaddr(endian)).min()? & !(PAGE_SIZE as u64 - 1);
        Some(InterpreterFile {
            minor,
            runtime,
            code_type,
            base,
        })
    }

    /// The layout in a process that has mapped the file at an address, and the address of
    /// `PyCode_Type` there. `None` if the version is unknown.
    pub fn layout(&self, start: u64, memory: &dyn Memory) -> Option<(Layout, u64)> {
        let bias = start.wrapping_sub(self.base);
        let runtime = self.runtime.wrapping_add(bias);
        let mut layout = match version::table(self.minor) {
            Some(layout) => layout,
            None => {
                let mut bytes = [0; DEBUG_WORDS * 8];
                if !memory.read(runtime, &mut bytes) {
                    return None;
                }
                let mut words = [0; DEBUG_WORDS];
                for (word, eight) in words.iter_mut().zip(bytes.chunks_exact(8)) {
                    *word = mgz_elf::bytes::u64(eight, 0)?;
                }
                version::described(&words)?
            }
        };
        layout.frames.interpreters = layout.frames.interpreters.wrapping_add(runtime);
        Some((layout, self.code_type.wrapping_add(bias)))
    }
}
