//! A running process, as `/proc` shows it: its memory, its modules, and obstacles to attaching.

use crate::soft::attach::Refused;
use crate::soft::static_image::Flat;
use crate::target::proc_stat::ProcStat;
use mgz_abi::shared_memory::PAGE_SIZE;
use mgz_perf::proc_maps;
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, elf};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const AT_PHDR: u64 = 3;
const AT_PHNUM: u64 = 5;
const AT_HWCAP2: u64 = 26;
const AT_SYSINFO_EHDR: u64 = 33;
/// Longest list of modules; a longer one is damaged.
const MAX_MODULES: usize = 4096;
/// Longest path.
const MAX_PATH: usize = 4096;

/// A process's memory. Writing ignores the protection of pages, as in debuggers; pages that are
/// shared with a file are copied first.
pub struct Memory(File);

impl Memory {
    /// Opens the memory of a process that this one may trace.
    pub fn open(pid: i32) -> io::Result<Memory> {
        File::options()
            .read(true)
            .write(true)
            .open(format!("/proc/{pid}/mem"))
            .map(Memory)
    }

    /// Reads all of `into`.
    pub fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(into, at)
    }

    /// Writes all of `bytes`.
    pub fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, at)
    }

    /// Reads a word.
    pub fn word(&self, at: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.read(at, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Reads a string up to its zero.
    fn string(&self, at: u64) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        while text.len() < MAX_PATH {
            let mut piece = [0u8; 64];
            // A read must not cross the page's end, since the page may be the last one.
            let room = (PAGE_SIZE - (at as usize + text.len()) % PAGE_SIZE).min(64);
            self.read(at + text.len() as u64, &mut piece[..room])?;
            match piece[..room].iter().position(|&b| b == 0) {
                Some(end) => {
                    text.extend_from_slice(&piece[..end]);
                    return Ok(text);
                }
                None => text.extend_from_slice(&piece[..room]),
            }
        }
        Err(io::ErrorKind::InvalidData.into())
    }
}

/// A module in the loader's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Run-time address minus link-time address.
    pub bias: u64,
    /// Its file; the executable's too.
    pub path: PathBuf,
    /// Address of its program headers.
    pub phdr: u64,
    /// Their number.
    pub phnum: u64,
    /// True if the loader's list has no name for it.
    pub is_program: bool,
}

/// A process, with the facts that the kernel has given it about itself.
pub struct Process {
    /// Its id.
    pub pid: i32,
    /// Its memory.
    pub memory: Memory,
    auxiliary: BTreeMap<u64, u64>,
    program: PathBuf,
    /// Address of the loader's `r_debug`.
    pub debug: u64,
}

/// A field of `/proc/PID/status`.
pub(crate) fn status(pid: i32, field: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    text.lines().find_map(|line| {
        line.strip_prefix(field)?
            .strip_prefix(':')
            .map(|v| v.trim().to_owned())
    })
}

/// Names of the process's namespaces that differ from this one's, where that matters.
pub(crate) fn other_namespaces(pid: i32) -> Vec<&'static str> {
    let of = |who: &str, kind: &str| std::fs::read_link(format!("/proc/{who}/ns/{kind}")).ok();
    ["pid", "mnt", "user"]
        .into_iter()
        .filter(|kind| {
            let theirs = of(&pid.to_string(), kind);
            // A namespace that cannot be read does not count; attaching will show.
            theirs.is_some() && theirs != of("self", kind)
        })
        .collect()
}

/// Advice for a process that lives in other namespaces (a container): empty if it does not.
pub fn way_in(pid: i32) -> String {
    let others = other_namespaces(pid);
    if others.is_empty() {
        return String::new();
    }
    let names: Vec<&str> = others
        .iter()
        .map(|kind| match *kind {
            "pid" => "process",
            "mnt" => "mount",
            _ => "user",
        })
        .collect();
    let inner = inner_id(pid);
    format!(
        "it runs in another {} namespace (a container, perhaps), which mgz-record may not enter: run it as root, or as the user who started the container; or put mgz-record there and run `docker exec`, `podman exec` or `kubectl exec` with `mgz-record --attach {inner}`",
        names.join(" and ")
    )
}

/// A process's id in its own namespace, the innermost one.
pub(crate) fn inner_id(pid: i32) -> i32 {
    status(pid, "NSpid")
        .and_then(|ids| ids.split_whitespace().last()?.parse().ok())
        .unwrap_or(pid)
}

impl Process {
    /// Examines a process. An obstacle to attaching is an error with the remedy.
    pub fn open(pid: i32) -> Result<Process, Refused> {
        let no = |why: &str| Err(Refused(format!("process {pid}: {why}")));
        if pid == std::process::id() as i32 {
            return no("that is mgz-record itself");
        }
        let Some(group) = status(pid, "Tgid") else {
            return no("there is no such process");
        };
        if group != pid.to_string() {
            return no(&format!(
                "it is a thread; give its process, --attach {group}"
            ));
        }
        // In another namespace, thread ids differ, so rings could not be matched to threads.
        if other_namespaces(pid).contains(&"pid") {
            return no(&way_in(pid));
        }
        if status(pid, "State").is_some_and(|s| s.starts_with(['Z', 'X'])) {
            return no("it has ended");
        }
        if status(pid, "State").is_some_and(|s| s.starts_with(['T', 't'])) {
            return no(
                "it is stopped; let it go on first (kill -CONT), or end the debugger that holds it",
            );
        }
        const TRAP: u32 = 1 << (libc::SIGTRAP - 1);
        if status(pid, "SigIgn")
            .and_then(|s| u64::from_str_radix(&s, 16).ok())
            .is_some_and(|set| set & u64::from(TRAP) != 0)
        {
            return no(
                "it ignores SIGTRAP, which attaching needs; start it under mgz-record instead",
            );
        }
        let program = std::fs::read_link(format!("/proc/{pid}/exe"));
        let memory = Memory::open(pid).and_then(|m| Ok((m, program?)));
        let (memory, program) = memory.map_err(|error| {
            let elsewhere = way_in(pid);
            let why = match error.kind() {
                io::ErrorKind::PermissionDenied if !elsewhere.is_empty() => {
                    format!("it may not be traced: {elsewhere}")
                }
                io::ErrorKind::PermissionDenied => {
                    "it may not be traced (remedy: the same user, and kernel.yama.ptrace_scope=0; or CAP_SYS_PTRACE)".to_owned()
                }
                _ => format!("its memory cannot be opened: {error}"),
            };
            Refused(format!("process {pid}: {why}"))
        })?;
        let auxiliary = std::fs::read(format!("/proc/{pid}/auxv")).unwrap_or_default();
        let word = |b: &[u8]| u64::from_le_bytes(b.try_into().unwrap_or_default());
        let auxiliary: BTreeMap<u64, u64> = auxiliary
            .chunks_exact(16)
            .map(|e| (word(&e[..8]), word(&e[8..])))
            .collect();
        let mut process = Process {
            pid,
            memory,
            auxiliary,
            program,
            debug: 0,
        };
        process.debug = match process.find_debug() {
            Some(debug) => debug,
            None => {
                return no(
                    "it has no dynamic loader, or has not begun yet; static programs can be recorded from their start only (mgz-record -- PROGRAM)",
                );
            }
        };
        Ok(process)
    }

    fn told(&self, what: u64) -> u64 {
        self.auxiliary.get(&what).copied().unwrap_or(0)
    }

    /// AT_HWCAP2.
    pub fn hwcap2(&self) -> u64 {
        self.told(AT_HWCAP2)
    }

    /// AT_SYSINFO_EHDR.
    pub fn vdso(&self) -> u64 {
        self.told(AT_SYSINFO_EHDR)
    }

    /// The executable's load bias and the address of its dynamic section.
    fn program_dynamic(&self) -> Option<(u64, u64)> {
        let (phdr, count) = (self.told(AT_PHDR), self.told(AT_PHNUM));
        let (mut bias, mut dynamic) = (0, None);
        for k in 0..count.min(64) {
            let header = phdr + 56 * k;
            let kind = self.memory.word(header).ok()? as u32;
            let address = self.memory.word(header + 16).ok()?;
            match kind {
                kind if kind == elf::PT_PHDR.0 => bias = phdr.wrapping_sub(address),
                kind if kind == elf::PT_DYNAMIC.0 => dynamic = Some(address),
                _ => {}
            }
        }
        Some((bias, dynamic?.wrapping_add(bias)))
    }

    fn find_debug(&self) -> Option<u64> {
        const DT_DEBUG: u64 = 21;
        let (_, mut entry) = self.program_dynamic()?;
        loop {
            match self.memory.word(entry).ok()? {
                0 => return None,
                DT_DEBUG => return self.memory.word(entry + 8).ok().filter(|&d| d != 0),
                _ => entry += 16,
            }
        }
    }

    /// True if the loader's list is consistent: no thread is just changing it.
    pub fn is_consistent(&self) -> bool {
        self.memory
            .word(self.debug + 24)
            .is_ok_and(|state| state as u32 == 0)
    }

    /// The loader's list, as far as its modules have files.
    pub fn modules(&self) -> io::Result<Vec<Module>> {
        let mut found = Vec::new();
        let mut at = self.memory.word(self.debug + 8)?;
        for _ in 0..MAX_MODULES {
            if at == 0 {
                break;
            }
            let mut bias = self.memory.word(at)?;
            let name = self.memory.string(self.memory.word(at + 8)?)?;
            let is_program = found.is_empty();
            at = self.memory.word(at + 24)?;
            if is_program {
                bias = self.program_dynamic().map_or(bias, |(b, _)| b);
                found.push(Module {
                    bias,
                    path: self.program.clone(),
                    phdr: self.told(AT_PHDR),
                    phnum: self.told(AT_PHNUM),
                    is_program,
                });
                continue;
            }
            let mut header = [0u8; 64];
            if !name.starts_with(b"/")
                || self.memory.read(bias, &mut header).is_err()
                || !header.starts_with(b"\x7fELF")
            {
                continue;
            }
            let half = |at: usize| u64::from(u16::from_le_bytes([header[at], header[at + 1]]));
            let offset = u64::from_le_bytes(header[32..40].try_into().unwrap_or_default());
            let path = PathBuf::from(std::ffi::OsString::from_vec(name));
            found.push(Module {
                bias,
                path,
                phdr: bias.wrapping_add(offset),
                phnum: half(56),
                is_program,
            });
        }
        Ok(found)
    }

    /// The path by which this process reaches the other one's file `path`.
    pub fn path(&self, path: &Path) -> PathBuf {
        match path == self.program {
            true => format!("/proc/{}/exe", self.pid).into(),
            false => format!("/proc/{}/root{}", self.pid, path.display()).into(),
        }
    }

    /// A file as the process sees it.
    pub fn file(&self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(self.path(path))
    }

    /// Its memory map, for [`proc_maps::lines`].
    pub fn maps(&self) -> io::Result<String> {
        proc_maps::read_process_maps(self.pid as u32)
    }

    /// Address of an image of the runtime that an earlier recording has left in the process. One of
    /// another version is an error.
    pub fn image(&self, flat: &Flat) -> Result<Option<u64>, Refused> {
        let maps = self.maps().map_err(|e| {
            Refused(format!(
                "process {}: its memory map cannot be read: {e}",
                self.pid
            ))
        })?;
        if proc_maps::lines(&maps).any(|m| m.name.starts_with("/memfd:mgz-runtime")) {
            return Err(Refused(format!(
                "process {}: it was started by mgz-record, and cannot be attached to",
                self.pid
            )));
        }
        let Some(code) = proc_maps::lines(&maps)
            .filter(|m| m.name.starts_with("/memfd:mgz-arena") && m.is_executable())
            .last()
        else {
            return Ok(None);
        };
        let mut text = vec![0; (flat.text.end - flat.text.start) as usize];
        let read = self.memory.read(code.start, &mut text).is_ok();
        let mut wanted = flat.bytes[flat.text.start as usize..flat.text.end as usize].to_vec();
        // The process may have changed this part since, so it is left out.
        for text in [&mut text, &mut wanted] {
            text[(flat.room.start - flat.text.start) as usize
                ..(flat.room.end - flat.text.start) as usize]
                .fill(0);
        }
        let same = read && text == wanted;
        if !same {
            return Err(Refused(format!(
                "process {}: another version of mgz-record was attached to it; restart the program, or use that version",
                self.pid
            )));
        }
        Ok(Some(code.start - flat.text.start))
    }

    /// User and system time so far, in ticks of the kernel's clock.
    pub fn cpu_ticks(&self) -> Option<u64> {
        Some(ProcStat::of_process(self.pid as u32).ok()?.cpu_ticks)
    }

    /// Its command line.
    pub fn command(&self) -> Vec<String> {
        let text = std::fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        text.split(|&b| b == 0)
            .filter(|a| !a.is_empty())
            .map(|a| String::from_utf8_lossy(a).into_owned())
            .collect()
    }
}

/// Addresses of functions that modules define, in the version that programs are linked to. The
/// first module in the list counts.
pub fn definitions(
    process: &Process,
    modules: &[Module],
    wanted: &[&str],
) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for module in modules {
        let Ok(data) = process.file(&module.path) else {
            continue;
        };
        let _ = add_definitions(&data, module.bias, wanted, &mut found);
    }
    found
}

fn add_definitions(
    data: &[u8],
    bias: u64,
    wanted: &[&str],
    found: &mut BTreeMap<String, u64>,
) -> object::Result<()> {
    use object::read::elf::Sym;
    let header = elf::FileHeader64::<Endianness>::parse(data)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, data)?;
    let versions = sections.versions(endian, data)?;
    let symbols = sections.symbols(endian, data, elf::SHT_DYNSYM)?;
    for (index, symbol) in symbols.enumerate() {
        let defined = symbol.st_shndx(endian) != elf::SHN_UNDEF
            && matches!(symbol.st_type(), elf::STT_FUNC | elf::STT_OBJECT);
        let hidden = versions
            .as_ref()
            .is_some_and(|v| v.version_index(endian, index).is_hidden());
        let Ok(name) = std::str::from_utf8(symbol.name(endian, symbols.strings())?) else {
            continue;
        };
        if defined && !hidden && wanted.contains(&name) {
            found
                .entry(name.to_owned())
                .or_insert(bias.wrapping_add(symbol.st_value(endian)));
        }
    }
    Ok(())
}

/// Entries of a module's global offset table that hold addresses of the named functions: name,
/// run-time address of the entry. Read as the loader reads it: files need not have section headers.
pub fn linked(data: &[u8], bias: u64, is_wanted: &dyn Fn(&str) -> bool) -> Vec<(String, u64)> {
    read_linked(data, bias, is_wanted).unwrap_or_default()
}

fn read_linked(
    data: &[u8],
    bias: u64,
    is_wanted: &dyn Fn(&str) -> bool,
) -> Option<Vec<(String, u64)>> {
    let header = elf::FileHeader64::<Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, data).ok()?;
    let dynamic = segments
        .iter()
        .find_map(|s| s.dynamic(endian, data).ok()?)?;
    let value = |tag: elf::DynamicTag| {
        dynamic
            .iter()
            .find(|d| d.d_tag(endian) == tag)
            .map(|d| d.d_val(endian))
    };
    // Bytes of the file from an address to the end of its segment.
    let loads = || segments.iter().filter(|s| s.p_type(endian) == elf::PT_LOAD);
    let at = |address: u64| {
        let segment = loads().find(|s| {
            (s.p_vaddr(endian)..s.p_vaddr(endian).saturating_add(s.p_filesz(endian)))
                .contains(&address)
        })?;
        segment
            .data(endian, data)
            .ok()?
            .get((address - segment.p_vaddr(endian)) as usize..)
    };
    let (symbols, strings) = (at(value(elf::DT_SYMTAB)?)?, at(value(elf::DT_STRTAB)?)?);
    let symbols =
        object::slice_from_all_bytes::<elf::Sym64<Endianness>>(&symbols[..symbols.len() / 24 * 24])
            .ok()?;
    let name = |number: u32| {
        let text = strings.get(symbols.get(number as usize)?.st_name.get(endian) as usize..)?;
        std::str::from_utf8(&text[..text.iter().position(|&b| b == 0)?]).ok()
    };
    let mut found = Vec::new();
    for (table, size) in [
        (elf::DT_RELA, elf::DT_RELASZ),
        (elf::DT_JMPREL, elf::DT_PLTRELSZ),
    ] {
        let (Some(table), Some(size)) = (value(table).and_then(at), value(size)) else {
            continue;
        };
        let len = table.len().min(usize::try_from(size).unwrap_or(usize::MAX)) / 24 * 24;
        for relocation in
            object::slice_from_all_bytes::<elf::Rela64<Endianness>>(&table[..len]).ok()?
        {
            let kind = matches!(
                relocation.r_type(endian, false),
                elf::R_X86_64_64 | elf::R_X86_64_GLOB_DAT | elf::R_X86_64_JUMP_SLOT
            );
            let Some(name) = name(relocation.r_sym(endian, false)) else {
                continue;
            };
            if kind && relocation.r_addend.get(endian) == 0 && is_wanted(name) {
                found.push((
                    name.to_owned(),
                    bias.wrapping_add(relocation.r_offset.get(endian)),
                ));
            }
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_by_their_default_version() {
        let process = Process::open(std::process::id() as i32).err().unwrap();
        assert!(process.0.contains("itself"), "{}", process.0);
        // This test's own C library, as any process sees it.
        let maps = proc_maps::read_process_maps(std::process::id()).unwrap();
        let libc = proc_maps::lines(&maps)
            .find(|m| m.name.contains("libc.so") || m.name.contains("ld-musl"))
            .unwrap();
        let data = std::fs::read(libc.name).unwrap();
        let mut found = BTreeMap::new();
        add_definitions(
            &data,
            libc.start,
            &["fork", "posix_spawn", "no_such_function"],
            &mut found,
        )
        .unwrap();
        assert_eq!(found.len(), 2);
        // SAFETY: asks for addresses.
        let real = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"posix_spawn".as_ptr()) } as u64;
        assert_eq!(found["posix_spawn"], real);
    }

    /// Compares with `object`'s result from section headers, and repeats the search without section
    /// headers.
    #[test]
    fn entries_for_functions_are_found_without_section_headers() {
        use object::{Object, ObjectSymbol, ObjectSymbolTable, RelocationTarget};
        let mut data = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let got = linked(&data, 0x1000, &|name| {
            name.starts_with("pthread_") || name == "sigaction"
        });
        let file = object::read::elf::ElfFile64::<Endianness>::parse(&*data).unwrap();
        let symbols = file.dynamic_symbol_table().unwrap();
        let name = |target| match target {
            RelocationTarget::Symbol(index) => symbols
                .symbol_by_index(index)
                .unwrap()
                .name()
                .unwrap()
                .to_owned(),
            _ => String::new(),
        };
        let all = file
            .dynamic_relocations()
            .unwrap()
            .map(|(at, r)| (name(r.target()), at + 0x1000));
        let mut expected: Vec<_> = all
            .filter(|r| r.0.starts_with("pthread_") || r.0 == "sigaction")
            .collect();
        expected.sort();
        let sorted = |mut all: Vec<(String, u64)>| {
            all.sort();
            all
        };
        assert_eq!(sorted(got), expected);
        assert!(expected.len() > 3 && expected.iter().any(|r| r.0 == "sigaction"));
        data[40..48].fill(0);
        data[58..64].fill(0);
        assert_eq!(
            sorted(linked(&data, 0x1000, &|name| name.starts_with("pthread_")
                || name == "sigaction")),
            expected
        );
        for len in [0, 64, 1000, data.len() / 2] {
            linked(&data[..len], 0, &|_| true);
        }
    }

    #[test]
    fn what_cannot_be_attached_to_is_said() {
        assert!(
            Process::open(1 << 30)
                .err()
                .unwrap()
                .0
                .contains("no such process")
        );
    }
}
