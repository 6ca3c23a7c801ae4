//! Headers, sections, symbols, relocations and notes of an input file.

use crate::{PAGE_SIZE, Refusal, bytes, headers};
use goblin::elf::ProgramHeader;
use object::elf;
use std::collections::BTreeMap;
use std::ops::Range;

/// Size of a program header.
pub const PHDR: usize = 56;
/// Size of a section header.
pub const SHDR: usize = 64;
/// Size of the file header.
pub const EHDR: usize = 64;
/// `R_X86_64_64`.
pub const R_64: u32 = 1;
/// `R_X86_64_RELATIVE`.
pub const R_RELATIVE: u32 = 8;
/// `R_X86_64_IRELATIVE`.
pub const R_IRELATIVE: u32 = 37;
/// Size of a symbol.
pub const SYM: usize = 24;

/// A program header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramSegment {
    /// `PT_*`.
    pub kind: u32,
    /// `PF_*`.
    pub flags: u32,
    /// File offset.
    pub offset: u64,
    /// Link-time address.
    pub vaddr: u64,
    /// Physical address (unused).
    pub paddr: u64,
    /// Bytes in the file.
    pub filesz: u64,
    /// Bytes in memory.
    pub memsz: u64,
    /// Alignment.
    pub align: u64,
}

impl From<&ProgramHeader> for ProgramSegment {
    fn from(header: &ProgramHeader) -> ProgramSegment {
        ProgramSegment {
            kind: header.p_type,
            flags: header.p_flags,
            offset: header.p_offset,
            vaddr: header.p_vaddr,
            paddr: header.p_paddr,
            filesz: header.p_filesz,
            memsz: header.p_memsz,
            align: header.p_align,
        }
    }
}

/// A section header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// Name; lossy if it is not UTF-8.
    pub name: String,
    /// Offset of the name in the section name table.
    pub name_at: u32,
    /// `SHT_*`.
    pub kind: u32,
    /// `SHF_*`.
    pub flags: u64,
    /// Link-time address.
    pub addr: u64,
    /// File offset.
    pub offset: u64,
    /// Size in bytes.
    pub size: u64,
    /// Index of a related section.
    pub link: u32,
    /// Extra information.
    pub info: u32,
    /// Alignment.
    pub align: u64,
    /// Size of one entry.
    pub entsize: u64,
}

impl Section {
    /// Addresses that the section covers at run time.
    pub fn range(&self) -> Range<u64> {
        self.addr..self.addr.saturating_add(self.size)
    }

    /// True if it is part of the memory image.
    pub fn is_alloc(&self) -> bool {
        self.flags & elf::SHF_ALLOC.0 != 0
    }
}

// Marks of runtimes in files without symbols. They are written backwards, so that this program does
// not contain them. Go's is the start of its build information; OCaml's and V8's are names that
// these look up at run time.
const MARK_GO: &[u8] = b":fnidliub oG \xff";
const MARK_OCAML: &[u8] = b"\0MARAPNURLMAC";
const MARK_BYTECODE: &[u8] = b"elif elbatucexe edocetyb a ton si";
const MARK_V8: &[u8] = b"\0enilopmarTyrtnEreterpretnI";

/// A runtime that finds pointers on stacks by tables of return addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManagedRuntime {
    /// That of Go.
    Go,
    /// That of OCaml's native code.
    OCaml,
}

/// A relocation that the loader applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relocation {
    /// Address of the word.
    pub at: u64,
    /// `R_X86_64_*`.
    pub kind: u32,
    /// Number of the dynamic symbol that it refers to, or 0.
    pub symbol: u32,
    /// Addend.
    pub addend: u64,
}

/// A checked view of an x86-64 ELF executable or shared object.
#[derive(Clone, Debug)]
pub struct Elf<'a> {
    /// The whole file.
    pub data: &'a [u8],
    /// `ET_EXEC` or `ET_DYN`.
    pub kind: u16,
    /// Entry point.
    pub entry: u64,
    /// Program headers.
    pub segments: Vec<ProgramSegment>,
    /// Section headers, the null section included; empty if the file has none.
    pub sections: Vec<Section>,
    /// Index of the section name table.
    pub names: u32,
    /// `.dynamic` entries before the first `DT_NULL`.
    pub dynamic: Vec<(u64, u64)>,
    /// File offset of the dynamic array and the number of entries that fit, `DT_NULL`s included.
    pub dynamic_at: Option<(u64, usize)>,
}

impl<'a> Elf<'a> {
    /// Parses a file and refuses files that cannot be instrumented.
    pub fn parse(data: &'a [u8]) -> Result<Elf<'a>, Refusal> {
        if data.get(..4) != Some(&elf::ELFMAG[..]) {
            return Err(Refusal::declined(
                "not an ELF file; mgz instruments x86-64 Linux executables and shared libraries",
            ));
        }
        let cut = || {
            Refusal::failed("truncated ELF file (its header is cut off); get a complete copy of it")
        };
        if bytes::u8(data, 4).ok_or_else(cut)? != elf::ELFCLASS64.0 {
            return Err(Refusal::declined(
                "a 32-bit ELF file; mgz instruments x86-64 files only: build the program with -m64",
            ));
        }
        if bytes::u8(data, 5).ok_or_else(cut)? != elf::ELFDATA2LSB.0 {
            return Err(Refusal::declined(
                "a big-endian ELF file; mgz instruments x86-64 files only",
            ));
        }
        let machine = bytes::u16(data, 18).ok_or_else(cut)?;
        if machine != elf::EM_X86_64.0 {
            return Err(Refusal::declined(format!(
                "an ELF file for {}; mgz instruments x86-64 files only",
                machine_name(machine)
            )));
        }
        if data.len() < EHDR {
            return Err(cut());
        }
        crate::upx::check_mark(data)?;
        let kind = bytes::u16(data, 16).ok_or_else(cut)?;
        match kind {
            k if k == elf::ET_EXEC.0 || k == elf::ET_DYN.0 => {}
            k if k == elf::ET_REL.0 => {
                return Err(Refusal::declined(
                    "a relocatable object file; link it and instrument the executable or shared library",
                ));
            }
            k if k == elf::ET_CORE.0 => {
                return Err(Refusal::declined(
                    "a core dump; instrument the program that dumped it",
                ));
            }
            k => {
                return Err(Refusal::declined(format!(
                    "an ELF file of unknown type {k}; mgz instruments executables and shared libraries"
                )));
            }
        }
        let mut this = Elf {
            data,
            kind,
            entry: bytes::u64(data, 24).ok_or_else(cut)?,
            segments: Vec::new(),
            sections: Vec::new(),
            names: 0,
            dynamic: Vec::new(),
            dynamic_at: None,
        };
        let headers = this.read_segments()?;
        this.read_sections()?;
        this.read_dynamic(&headers);
        Ok(this)
    }

    fn read_segments(&mut self) -> Result<Vec<ProgramHeader>, Refusal> {
        let truncated = |what: &str| {
            Refusal::failed(format!(
                "truncated or damaged ELF file ({what} lies beyond its end); get a complete copy of it"
            ))
        };
        let data = self.data;
        let at = bytes::u64(data, 32).unwrap_or(0);
        let count = bytes::u16(data, 56).unwrap_or(0);
        if count == 0xffff {
            return Err(Refusal::declined("too many program headers"));
        }
        if bytes::u16(data, 54) != Some(PHDR as u16) && count > 0 {
            return Err(Refusal::failed(
                "damaged ELF file (program headers of an unknown size)",
            ));
        }
        let table = bytes::range(data, at, u64::from(count) * PHDR as u64)
            .ok_or_else(|| truncated("the program header table"))?;
        let headers = headers::in_table(table, count.into())
            .ok_or_else(|| truncated("the program header table"))?;
        self.segments = headers.iter().map(ProgramSegment::from).collect();
        let mut end = 0;
        for s in self.segments.iter().filter(|s| s.kind == elf::PT_LOAD.0) {
            if s.filesz > 0 && bytes::range(data, s.offset, s.filesz).is_none() {
                return Err(truncated("a segment"));
            }
            let limit = s.vaddr.checked_add(s.memsz).filter(|_| s.memsz >= s.filesz);
            let Some(limit) = limit else {
                return Err(Refusal::failed(
                    "damaged ELF file (a segment is larger in the file than in memory)",
                ));
            };
            if s.vaddr < end {
                return Err(Refusal::declined(
                    "its segments overlap or are not in order of their addresses",
                ));
            }
            if s.vaddr % PAGE_SIZE != s.offset % PAGE_SIZE {
                return Err(Refusal::failed(
                    "damaged ELF file (a segment is not aligned to its place in the file)",
                ));
            }
            end = limit;
        }
        if end == 0 {
            return Err(Refusal::declined(
                "it has no loadable segment (a separate debug file?); instrument the program itself",
            ));
        }
        Ok(headers)
    }

    fn read_sections(&mut self) -> Result<(), Refusal> {
        let data = self.data;
        let at = bytes::u64(data, 40).unwrap_or(0);
        let mut count = u64::from(bytes::u16(data, 60).unwrap_or(0));
        let mut names = u32::from(bytes::u16(data, 62).unwrap_or(0));
        if at == 0 {
            return Ok(());
        }
        let lost = || {
            Refusal::failed(
                "truncated ELF file (the section headers lie beyond its end); get a complete copy, or remove them with sstrip or `strip --strip-section-headers`",
            )
        };
        let first = bytes::range(data, at, SHDR as u64).ok_or_else(lost)?;
        if count == 0 {
            count = bytes::u64(first, 32).unwrap_or(0);
        }
        if names == 0xffff {
            names = bytes::u32(first, 40).unwrap_or(0);
        }
        let table = count
            .checked_mul(SHDR as u64)
            .and_then(|len| bytes::range(data, at, len))
            .ok_or_else(lost)?;
        if bytes::u16(data, 58) != Some(SHDR as u16) {
            return Err(Refusal::failed(
                "damaged ELF file (section headers of an unknown size)",
            ));
        }
        for h in table.chunks_exact(SHDR) {
            let word = |at| bytes::u32(h, at).unwrap_or(0);
            let long = |at| bytes::u64(h, at).unwrap_or(0);
            self.sections.push(Section {
                name: String::new(),
                name_at: word(0),
                kind: word(4),
                flags: long(8),
                addr: long(16),
                offset: long(24),
                size: long(32),
                link: word(40),
                info: word(44),
                align: long(48),
                entsize: long(56),
            });
        }
        self.names = names;
        let strings = self
            .sections
            .get(names as usize)
            .and_then(|s| self.section_bytes(s))
            .unwrap_or(&[]);
        for s in &mut self.sections {
            s.name =
                String::from_utf8_lossy(bytes::text(strings, s.name_at as usize).unwrap_or(b""))
                    .into_owned();
        }
        Ok(())
    }

    fn read_dynamic(&mut self, headers: &[ProgramHeader]) {
        let Some(segment) = self.segments.iter().find(|s| s.kind == elf::PT_DYNAMIC.0) else {
            return;
        };
        let Some(table) = bytes::range(self.data, segment.offset, segment.filesz) else {
            return;
        };
        self.dynamic_at = Some((segment.offset, table.len() / 16));
        self.dynamic = headers::dynamic(self.data, headers);
    }

    /// Content of a section in the file.
    pub fn section_bytes(&self, section: &Section) -> Option<&'a [u8]> {
        if section.kind == elf::SHT_NOBITS.0 {
            return None;
        }
        bytes::range(self.data, section.offset, section.size)
    }

    /// The section with this name.
    pub fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|s| s.name == name)
    }

    /// Loadable segments.
    pub fn loads(&self) -> impl Iterator<Item = &ProgramSegment> {
        self.segments.iter().filter(|s| s.kind == elf::PT_LOAD.0)
    }

    /// File-backed bytes from `addr` to the end of their segment.
    pub fn at(&self, addr: u64) -> Option<&'a [u8]> {
        let s = self
            .loads()
            .find(|s| addr >= s.vaddr && addr - s.vaddr < s.filesz)?;
        bytes::range(
            self.data,
            s.offset + (addr - s.vaddr),
            s.filesz - (addr - s.vaddr),
        )
    }

    /// File offset of the byte at `addr`.
    pub fn file_offset(&self, addr: u64) -> Option<u64> {
        let s = self
            .loads()
            .find(|s| addr >= s.vaddr && addr - s.vaddr < s.filesz)?;
        Some(s.offset + (addr - s.vaddr))
    }

    /// First value of a dynamic tag.
    pub fn dynamic_value(&self, tag: u64) -> Option<u64> {
        self.dynamic.iter().find(|d| d.0 == tag).map(|d| d.1)
    }

    /// A string of the dynamic string table.
    pub fn dynamic_string(&self, at: u64) -> Option<&'a str> {
        let table = self.at(self.dynamic_value(dt(elf::DT_STRTAB))?)?;
        std::str::from_utf8(bytes::text(table, usize::try_from(at).ok()?)?).ok()
    }

    /// The name that others need it by; empty if it has none.
    pub fn soname(&self) -> &'a str {
        self.dynamic_value(dt(elf::DT_SONAME))
            .and_then(|at| self.dynamic_string(at))
            .unwrap_or("")
    }

    /// A dynamic symbol that this file does not define: its name and value. The value is 0, unless
    /// the file has a stub that represents the symbol.
    pub fn undefined_symbol(&self, number: u32) -> Option<(&'a str, u64)> {
        let table = self.at(self.dynamic_value(dt(elf::DT_SYMTAB))?)?;
        let symbol = table
            .get((number as usize).checked_mul(SYM)?..)?
            .get(..SYM)?;
        let name = self.dynamic_string(bytes::u32(symbol, 0)?.into())?;
        (bytes::u16(symbol, 6)? == 0 && !name.is_empty()).then_some((name, bytes::u64(symbol, 8)?))
    }

    /// All strings of one dynamic tag, e.g. `DT_NEEDED`.
    pub fn dynamic_strings(&self, tag: u64) -> Vec<String> {
        let values = self.dynamic.iter().filter(|d| d.0 == tag);
        values
            .filter_map(|d| self.dynamic_string(d.1))
            .map(str::to_owned)
            .collect()
    }

    /// Value of a dynamic symbol that this file defines.
    pub fn defined_symbol(&self, number: u32) -> Option<u64> {
        let table = self.at(self.dynamic_value(dt(elf::DT_SYMTAB))?)?;
        let symbol = table
            .get((number as usize).checked_mul(SYM)?..)?
            .get(..SYM)?;
        let section = bytes::u16(symbol, 6)?;
        if section == 0 || section == elf::SHN_ABS.0 {
            None
        } else {
            bytes::u64(symbol, 8)
        }
    }

    /// True if addresses are relative to a load bias.
    pub fn is_pie(&self) -> bool {
        self.kind == elf::ET_DYN.0
    }

    /// Path of the loader, if the file names one.
    pub fn interpreter(&self) -> Option<String> {
        let s = self.segments.iter().find(|s| s.kind == elf::PT_INTERP.0)?;
        let text = bytes::text(bytes::range(self.data, s.offset, s.filesz)?, 0)?;
        Some(String::from_utf8_lossy(text).into_owned())
    }

    /// True for an executable without a loader (position independent or not).
    pub fn is_static_executable(&self) -> bool {
        if self.interpreter().is_some() {
            return false;
        }
        let pie_flag = self
            .dynamic_value(dt(elf::DT_FLAGS_1))
            .is_some_and(|f| f & elf::DF_1_PIE.0 != 0);
        self.kind == elf::ET_EXEC.0 || pie_flag
    }

    /// All notes as `(name with its zero, type, descriptor)`.
    pub fn notes(&self) -> Vec<(&'a [u8], u32, &'a [u8])> {
        let segments = self.segments.iter().filter(|s| s.kind == elf::PT_NOTE.0);
        segments
            .filter_map(|s| {
                let data = bytes::range(self.data, s.offset, s.filesz)?;
                Some(headers::notes(data, s.align))
            })
            .flatten()
            .collect()
    }

    /// True if a segment holds a mark in its forward form.
    pub fn has(&self, mark: &[u8]) -> bool {
        let text: Vec<u8> = mark.iter().rev().copied().collect();
        let finder = memchr::memmem::Finder::new(&text);
        self.loads().any(|s| {
            self.at(s.vaddr).is_some_and(|data| {
                finder
                    .find(&data[..data.len().min(s.filesz as usize)])
                    .is_some()
            })
        })
    }

    /// GNU build id in hex; empty if there is none.
    pub fn build_id(&self) -> String {
        let notes = self.notes();
        let id = notes
            .iter()
            .find(|n| n.0 == b"GNU\0" && n.1 == elf::NT_GNU_BUILD_ID.0);
        id.map_or_else(String::new, |n| {
            n.2.iter().map(|b| format!("{b:02x}")).collect()
        })
    }

    /// Refuses files that must not be instrumented at all.
    pub fn check_instrumentable(&self) -> Result<(), Refusal> {
        if self.notes().iter().any(|n| {
            n.0 == mgz_abi::module_note::NOTE_NAME && n.1 == mgz_abi::module_note::NOTE_MODULE
        }) {
            return Err(Refusal::declined(
                "already instrumented; instrument the original file",
            ));
        }
        let v8 = |name: &[u8]| {
            name.starts_with(b"v8_Default_embedded_blob_")
                || name == b"_ZNK2v88internal7Isolate18embedded_blob_codeEv"
        };
        // Each search reads the whole file. The searches run in parallel, since other cores are
        // idle at this time.
        let (has_name, has_mark) =
            rayon::join(|| crate::symbols::any(self, v8), || self.has(MARK_V8));
        if has_name || has_mark {
            return Err(Refusal::declined(
                "it contains V8 (as node and Chromium do), which knows its built-in functions by their addresses, and instrumented ones have others",
            ));
        }
        Ok(())
    }

    /// The runtime of the file's code that walks stacks by return addresses, if there is one.
    pub fn managed_runtime(&self) -> Option<ManagedRuntime> {
        let go = |s: &Section| {
            s.name == ".gopclntab" || s.name == ".go.buildinfo" || s.name == ".note.go.buildid"
        };
        let ocaml = |name: &[u8]| {
            name == b"caml_frametable"
                || name == b"caml_system__frametable"
                || name == b"caml_system__code_begin"
        };
        // As in `check_instrumentable`.
        let (has_go, has_ocaml) = rayon::join(
            || {
                self.sections.iter().any(go)
                    || self.notes().iter().any(|n| n.0.starts_with(b"Go\0"))
                    || self.has(MARK_GO)
            },
            // OCaml's bytecode interpreter is a C program.
            || crate::symbols::any(self, ocaml) || self.has(MARK_OCAML) && !self.has(MARK_BYTECODE),
        );
        if has_go {
            Some(ManagedRuntime::Go)
        } else {
            has_ocaml.then_some(ManagedRuntime::OCaml)
        }
    }

    /// Relocations that the loader applies: `DT_RELA`, `DT_JMPREL` and `DT_RELR` (as relative ones,
    /// with the word's content as addend).
    pub fn relocations(&self) -> Vec<Relocation> {
        let mut all = Vec::new();
        let table = |tag, size| Some((self.dynamic_value(tag)?, self.dynamic_value(size)?));
        let rela = table(dt(elf::DT_RELA), dt(elf::DT_RELASZ));
        let jmprel = table(dt(elf::DT_JMPREL), dt(elf::DT_PLTRELSZ));
        for (addr, size) in [rela, jmprel].into_iter().flatten() {
            let Some(bytes) = self
                .at(addr)
                .and_then(|b| b.get(..usize::try_from(size).ok()?.min(b.len())))
            else {
                continue;
            };
            for r in bytes.chunks_exact(24) {
                let long = |at| bytes::u64(r, at).unwrap_or(0);
                all.push(Relocation {
                    at: long(0),
                    kind: long(8) as u32,
                    symbol: (long(8) >> 32) as u32,
                    addend: long(16),
                });
            }
        }
        if let Some((addr, size)) = table(dt(elf::DT_RELR), dt(elf::DT_RELRSZ))
            && let Some(table) = self
                .at(addr)
                .and_then(|b| b.get(..usize::try_from(size).ok()?))
        {
            self.relr(table, &mut all);
        }
        all
    }

    fn relr(&self, table: &[u8], all: &mut Vec<Relocation>) {
        let mut next = 0u64;
        let mut add = |at: u64| {
            let addend = self.at(at).and_then(|b| bytes::u64(b, 0)).unwrap_or(0);
            all.push(Relocation {
                at,
                kind: R_RELATIVE,
                symbol: 0,
                addend,
            });
        };
        for entry in table.chunks_exact(8) {
            let entry = bytes::u64(entry, 0).unwrap_or(0);
            if entry & 1 == 0 {
                add(entry);
                next = entry.wrapping_add(8);
                continue;
            }
            for bit in (1..64u64).filter(|b| entry >> b & 1 == 1) {
                add(next.wrapping_add((bit - 1) * 8));
            }
            next = next.wrapping_add(63 * 8);
        }
    }

    /// Functions that the loader or start-up code calls before and after the program: `DT_INIT`,
    /// `DT_FINI`, and those of the arrays. `word` gives the values of array words with relocations.
    pub fn called_at_both_ends(&self, word: impl Fn(u64) -> Option<u64>) -> Vec<u64> {
        const ARRAYS: [(elf::DynamicTag, elf::DynamicTag, elf::SectionType); 3] = [
            (
                elf::DT_PREINIT_ARRAY,
                elf::DT_PREINIT_ARRAYSZ,
                elf::SHT_PREINIT_ARRAY,
            ),
            (
                elf::DT_INIT_ARRAY,
                elf::DT_INIT_ARRAYSZ,
                elf::SHT_INIT_ARRAY,
            ),
            (
                elf::DT_FINI_ARRAY,
                elf::DT_FINI_ARRAYSZ,
                elf::SHT_FINI_ARRAY,
            ),
        ];
        let mut all: Vec<u64> = [elf::DT_INIT, elf::DT_FINI]
            .into_iter()
            .filter_map(|tag| self.dynamic_value(dt(tag)))
            .collect();
        for (at, size, kind) in ARRAYS {
            let told = self.dynamic_value(dt(at)).zip(self.dynamic_value(dt(size)));
            let told = told.map(|(at, size)| at..at.saturating_add(size));
            let sections = self.sections.iter().filter(|s| s.kind == kind.0);
            for array in told.into_iter().chain(sections.map(Section::range)) {
                // A damaged file may have any size here.
                let bytes = self.at(array.start).map_or(0, <[u8]>::len) as u64;
                let end = array.end.min(array.start.saturating_add(bytes));
                all.extend((array.start..end).step_by(8).filter_map(&word));
            }
        }
        // (Old arrays end in 0 or −1.)
        all.retain(|&at| at != 0 && at != u64::MAX);
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Executable sections without linkage tables; executable segments if there are no
    /// section headers. All lie in file-backed bytes of segments.
    pub fn code_ranges(&self) -> Vec<Range<u64>> {
        let linkage = |s: &Section| s.name.starts_with(".plt") || s.name == ".iplt";
        let code = self.sections.iter().filter(|s| {
            s.is_alloc() && s.flags & elf::SHF_EXECINSTR.0 != 0 && s.kind == elf::SHT_PROGBITS.0
        });
        let mut ranges: Vec<Range<u64>> = code
            .filter(|s| !linkage(s) && s.size > 0)
            .map(Section::range)
            .collect();
        if self.sections.is_empty() {
            let segments = self.loads().filter(|s| s.flags & elf::PF_X.0 != 0);
            ranges = segments.map(|s| s.vaddr..s.vaddr + s.filesz).collect();
        }
        // A damaged section header may have any values.
        ranges.retain(|r| {
            self.at(r.start)
                .is_some_and(|bytes| r.end - r.start <= bytes.len() as u64)
        });
        ranges.sort_by_key(|r| r.start);
        ranges
    }

    /// Addresses of all sections whose name starts with `prefix`.
    pub fn ranges_named(&self, prefix: &str) -> Vec<Range<u64>> {
        self.sections
            .iter()
            .filter(|s| s.is_alloc() && s.name.starts_with(prefix))
            .map(Section::range)
            .collect()
    }

    /// Code that restartable sequences (`__rseq_cs`) name.
    pub fn restartable(&self) -> Vec<u64> {
        let Some(section) = self.section("__rseq_cs") else {
            return Vec::new();
        };
        let relocated: BTreeMap<u64, u64> = self
            .relocations()
            .iter()
            .map(|r| (r.at, r.addend))
            .collect();
        let Some(data) = self.section_bytes(section) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for (i, entry) in data.chunks_exact(32).enumerate() {
            for field in [8u64, 24] {
                let at = section.addr.wrapping_add(i as u64 * 32 + field);
                found.push(
                    relocated
                        .get(&at)
                        .copied()
                        .or(bytes::u64(entry, field as usize))
                        .unwrap_or(0),
                );
            }
        }
        found
    }
}

/// A dynamic tag as a number.
pub fn dt(tag: elf::DynamicTag) -> u64 {
    tag.0 as u64
}

fn machine_name(machine: u16) -> String {
    match machine {
        3 => "32-bit x86".into(),
        8 => "MIPS".into(),
        20 | 21 => "PowerPC".into(),
        22 => "S/390".into(),
        40 => "ARM".into(),
        183 => "64-bit ARM".into(),
        243 => "RISC-V".into(),
        258 => "LoongArch".into(),
        other => format!("machine {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_only_what_segments_hold() {
        let data = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let elf = Elf::parse(&data).unwrap();
        let good = elf.code_ranges();
        let text = elf.sections.iter().position(|s| s.name == ".text").unwrap();
        let header = bytes::u64(&data, 40).unwrap() as usize + text * SHDR;
        assert!(good.contains(&elf.sections[text].range()));
        for (addr, size) in [
            (u64::MAX - 8, 100),
            (elf.sections[text].addr, u64::MAX),
            (0x7000_0000_0000, 16),
        ] {
            let mut wild = data.clone();
            wild[header + 16..header + 24].copy_from_slice(&addr.to_le_bytes());
            wild[header + 32..header + 40].copy_from_slice(&size.to_le_bytes());
            let ranges = Elf::parse(&wild).unwrap().code_ranges();
            assert_eq!(ranges.len(), good.len() - 1, "{addr:#x} + {size:#x}");
            assert!(ranges.iter().all(|r| good.contains(r)));
        }
    }

    /// Runtimes that find return addresses in tables are recognized by the marks that they leave in
    /// files with neither symbols nor section headers.
    #[test]
    fn runtimes_are_known_without_symbols() {
        let data = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let elf = Elf::parse(&data).unwrap();
        assert!(
            elf.check_instrumentable().is_ok(),
            "this program holds none of the marks: {:?}",
            elf.check_instrumentable()
        );
        let at = elf.section(".rodata").unwrap().offset as usize;
        assert_eq!(elf.managed_runtime(), None);
        for (mark, runtime) in [
            (MARK_GO, Some(ManagedRuntime::Go)),
            (MARK_OCAML, Some(ManagedRuntime::OCaml)),
            (MARK_V8, None),
        ] {
            let mut marked = data.clone();
            let text: Vec<u8> = mark.iter().rev().copied().collect();
            marked[at..at + text.len()].copy_from_slice(&text);
            // No section headers.
            marked[40..48].fill(0);
            marked[58..64].fill(0);
            let elf = Elf::parse(&marked).unwrap();
            assert_eq!(elf.managed_runtime(), runtime);
            let refused = elf.check_instrumentable().map_err(|r| r.to_string());
            let has_v8 = refused.is_err_and(|r| r.starts_with("it contains V8"));
            assert_eq!(has_v8, mark == MARK_V8);
            if mark == MARK_OCAML {
                let interpreter: Vec<u8> = MARK_BYTECODE.iter().rev().copied().collect();
                marked[at + 64..at + 64 + interpreter.len()].copy_from_slice(&interpreter);
                assert_eq!(Elf::parse(&marked).unwrap().managed_runtime(), None);
            }
        }
    }
}
