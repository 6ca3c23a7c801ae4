//! The loader's list of modules and their symbols, found without linking to any name, since a
//! program may define any name itself.
//!
//! The loader calls the runtime's constructor, so the return address gives the loader's address;
//! before that the kernel gives it. The loader's own symbols give the address of the list.

use crate::sys::syscall;
use core::arch::asm;
use core::ffi::CStr;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of a page. (Not that of `mgz_abi`, since the library of `mgz fix` includes only this
/// file.)
const PAGE_SIZE: usize = 4096;

/// Entry of the loader's list for debuggers (`struct link_map`).
#[repr(C)]
pub(crate) struct LoadedModule {
    pub(crate) bias: usize,
    pub(crate) name: *const u8,
    pub(crate) dynamic: *const [u64; 2],
    pub(crate) next: *const LoadedModule,
}

/// Address of the loader, or 0 while it is unknown.
static LOADER: AtomicUsize = AtomicUsize::new(0);

/// Stores that code at `inside` is the loader's.
pub(crate) fn know_loader(inside: usize) {
    /// Source: Chosen.
    const MAX_LOADER_BYTES: usize = 16 << 20;
    let pages = (0..MAX_LOADER_BYTES / PAGE_SIZE)
        .map(|n| (inside & !(PAGE_SIZE - 1)).wrapping_sub(n * PAGE_SIZE));
    let found = pages
        .take_while(|&page| syscall::is_readable(page, 8))
        // SAFETY: checked above.
        .find(|&page| unsafe { *(page as *const [u8; 4]) } == *b"\x7fELF");
    if let Some(base) = found {
        LOADER.store(base, Ordering::Relaxed);
    }
}

/// Address of the loader, or 0.
fn loader() -> usize {
    let known = LOADER.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let told = told_loader();
    LOADER.store(told, Ordering::Relaxed);
    told
}

/// Address of the loader according to the kernel, or 0 without one.
fn told_loader() -> usize {
    const AT_BASE: u64 = 7;
    /// Maximum number of entries read; the kernel has some 24.
    const ENTRIES: usize = 64;
    let fd = syscall::open_file(c"/proc/self/auxv".as_ptr().cast(), false);
    if fd < 0 {
        return 0;
    }
    let mut bytes = [0u8; 16 * ENTRIES];
    let read = syscall::pread(fd, &mut bytes, 0).max(0) as usize;
    syscall::close(fd);
    let (words, _) = bytes[..read.min(bytes.len())].as_chunks::<8>();
    let (entries, _) = words.as_chunks::<2>();
    let entry = entries
        .iter()
        .find(|entry| u64::from_le_bytes(entry[0]) == AT_BASE);
    entry.map_or(0, |entry| u64::from_le_bytes(entry[1]) as usize)
}

/// Reads a word of the process.
///
/// # Safety
/// It must be mapped.
unsafe fn read_word(at: usize) -> usize {
    // SAFETY: the caller's contract.
    unsafe { (at as *const usize).read_unaligned() }
}

/// The loader's symbols.
fn loader_symbols() -> Option<ModuleSymbols> {
    const PHOFF: usize = 32;
    const PHNUM: usize = 56;
    const PT_DYNAMIC: u32 = 2;
    const HEADER: usize = 56;
    const VADDR: usize = 16;
    let base = loader();
    if base == 0 {
        return None;
    }
    // SAFETY: the loader begins with its ELF header, and its program headers are mapped.
    let dynamic = unsafe {
        let count = *((base + PHNUM) as *const u16);
        let first = base + read_word(base + PHOFF);
        let header = (0..usize::from(count))
            .map(|i| first + i * HEADER)
            .find(|&at| *(at as *const u32) == PT_DYNAMIC)?;
        base + read_word(header + VADDR)
    };
    ModuleSymbols::of(&LoadedModule {
        bias: base,
        name: core::ptr::null(),
        dynamic: dynamic as *const [u64; 2],
        next: core::ptr::null(),
    })
}

/// A variable or function of the loader itself, or 0.
pub(crate) fn of_loader(name: &CStr) -> usize {
    loader_symbols()
        .and_then(|symbols| symbols.definition(name.to_bytes()))
        .unwrap_or(0)
}

/// Address of the loader's `struct r_debug`, [`NO_DEBUG`] if there is none, or 0 while it is unknown.
static DEBUG: AtomicUsize = AtomicUsize::new(0);
const NO_DEBUG: usize = 1;

/// Stores the address of the loader's `struct r_debug`.
pub(crate) fn know_debug(address: usize) {
    DEBUG.store(address, Ordering::Relaxed);
}

/// The loader's `struct r_debug`, or 0.
fn loader_debug() -> usize {
    let known = DEBUG.load(Ordering::Relaxed);
    if known != 0 {
        return known & !NO_DEBUG;
    }
    // glibc has the structure itself, musl its address.
    let debug = match (of_loader(c"_r_debug"), of_loader(c"_dl_debug_addr")) {
        (0, 0) => 0,
        // SAFETY: musl's variable.
        (0, at) => unsafe { read_word(at) },
        (debug, _) => debug,
    };
    DEBUG.store(debug.max(NO_DEBUG), Ordering::Relaxed);
    debug
}

/// The loader's modules, in its order: those loaded at the program's start come first. None if the
/// list is not available.
pub(crate) fn modules() -> impl Iterator<Item = &'static LoadedModule> {
    const MAP: usize = 8;
    let debug = loader_debug();
    // SAFETY: the loader's `struct r_debug`, which lives as long as the process; so does the part
    // of the list that is read here.
    let first = (debug != 0)
        .then(|| unsafe { (*((debug + MAP) as *const *const LoadedModule)).as_ref() })
        .flatten();
    // SAFETY: as above.
    core::iter::successors(first, |module| unsafe { module.next.as_ref() })
}

/// The first definition of a name behind this module, or 0.
pub(crate) fn first_behind(name: &[u8]) -> usize {
    let own: usize;
    // SAFETY: computes an address.
    unsafe {
        asm!("lea {}, [rip + _DYNAMIC]", out(reg) own, options(nostack, nomem, preserves_flags))
    };
    modules()
        .skip_while(|module| module.dynamic as usize != own)
        .skip(1)
        .find_map(|module| ModuleSymbols::of(module)?.definition(name))
        .unwrap_or(0)
}

/// The first definition of a name among all modules, or 0.
pub(crate) fn first_of_all(name: &[u8]) -> usize {
    modules()
        .find_map(|module| ModuleSymbols::of(module)?.definition(name))
        .unwrap_or(0)
}

/// The definition of a name in the C library itself, whichever other modules have one; 0 if there
/// is none.
pub(crate) fn of_c_library(name: &[u8]) -> usize {
    /// The parts of glibc that hold functions for the runtime; musl is its own loader.
    const NAMES: [&CStr; 5] = [
        c"libc.so.6",
        c"libpthread.so.0",
        c"librt.so.1",
        c"libdl.so.2",
        c"ld-linux-x86-64.so.2",
    ];
    modules()
        .find_map(|module| {
            let symbols = ModuleSymbols::of(module)?;
            let belongs = module.bias != 0 && module.bias == loader() || symbols.is_called(&NAMES);
            belongs.then(|| symbols.definition(name)).flatten()
        })
        .unwrap_or(0)
}

/// An entry of a symbol table.
#[repr(C)]
struct ModuleSymbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

/// The dynamic symbols of a module.
pub(crate) struct ModuleSymbols {
    bias: usize,
    name: Option<usize>,
    strings: usize,
    symbols: usize,
    versions: usize,
    gnu_hash: usize,
    hash: usize,
}

impl ModuleSymbols {
    pub(crate) fn of(module: &LoadedModule) -> Option<ModuleSymbols> {
        let mut out = ModuleSymbols {
            bias: module.bias,
            name: None,
            strings: 0,
            symbols: 0,
            versions: 0,
            gnu_hash: 0,
            hash: 0,
        };
        let mut entry = module.dynamic;
        if entry.is_null() {
            return None;
        }
        const DT_SONAME: u64 = 14;
        loop {
            // SAFETY: the module's dynamic section, which ends with a zero tag.
            let [tag, value] = unsafe { *entry };
            let field = match tag {
                0 => break,
                4 => &mut out.hash,
                5 => &mut out.strings,
                6 => &mut out.symbols,
                0x6fff_fef5 => &mut out.gnu_hash,
                0x6fff_fff0 => &mut out.versions,
                DT_SONAME => {
                    out.name = Some(value as usize);
                    entry = entry.wrapping_add(1);
                    continue;
                }
                _ => {
                    entry = entry.wrapping_add(1);
                    continue;
                }
            };
            // Some loaders add the bias to the address in place, some do not.
            let value = value as usize;
            *field = if value < module.bias {
                value + module.bias
            } else {
                value
            };
            entry = entry.wrapping_add(1);
        }
        (out.strings != 0 && out.symbols != 0).then_some(out)
    }

    /// True if the module's own name is one of these.
    fn is_called(&self, names: &[&CStr]) -> bool {
        self.soname()
            .is_some_and(|name| names.iter().any(|known| known.to_bytes() == name))
    }

    /// The module's own name.
    pub(crate) fn soname(&self) -> Option<&'static [u8]> {
        let at = self.name?;
        // SAFETY: the module's table of strings, which end with zeros.
        Some(unsafe { crate::sys::process::c_bytes((self.strings + at) as *const u8) })
    }

    /// The address of a function or variable that the module exports.
    pub(crate) fn definition(&self, name: &[u8]) -> Option<usize> {
        let symbol = if self.gnu_hash != 0 {
            self.by_gnu_hash(name)
        } else if self.hash != 0 {
            self.by_hash(name)
        } else {
            None
        }?;
        const IFUNC: u8 = 10;
        let address = self.bias.wrapping_add(symbol.value as usize);
        if symbol.info & 15 == IFUNC {
            // SAFETY: such a symbol's function returns the address and has no arguments (on x86 it
            // may query the processor itself).
            return Some(unsafe {
                core::mem::transmute::<usize, extern "C" fn() -> usize>(address)()
            });
        }
        Some(address)
    }

    fn by_gnu_hash(&self, name: &[u8]) -> Option<&'static ModuleSymbol> {
        let hash = name
            .iter()
            .fold(5381u32, |h, &c| h.wrapping_mul(33).wrapping_add(c.into()));
        // SAFETY: the table's format: four words, a filter of 64-bit words, buckets, and a chain of
        // hashes that ends with one whose lowest bit is set.
        unsafe {
            let [buckets, first, words, shift] = *(self.gnu_hash as *const [u32; 4]);
            let filter = (self.gnu_hash + 16) as *const u64;
            let word = *filter.add(((hash / 64) & (words - 1)) as usize);
            let both = 1u64 << (hash % 64) | 1u64 << ((hash >> shift) % 64);
            if word & both != both || buckets == 0 {
                return None;
            }
            let table = filter.add(words as usize) as *const u32;
            let mut index = *table.add((hash % buckets) as usize);
            if index < first {
                return None;
            }
            let chain = table.add(buckets as usize);
            loop {
                let found = *chain.add((index - first) as usize);
                if (found ^ hash) >> 1 == 0
                    && let Some(symbol) = self.fitting(index, name)
                {
                    return Some(symbol);
                }
                if found & 1 != 0 {
                    return None;
                }
                index += 1;
            }
        }
    }

    fn by_hash(&self, name: &[u8]) -> Option<&'static ModuleSymbol> {
        let hash = name.iter().fold(0u32, |h, &c| {
            let h = (h << 4).wrapping_add(c.into());
            let high = h & 0xf000_0000;
            (h ^ high >> 24) & !high
        });
        // SAFETY: the table's format: the numbers of buckets and of symbols, the buckets, and for
        // each symbol the next of its bucket.
        unsafe {
            let table = self.hash as *const u32;
            let buckets = *table;
            if buckets == 0 {
                return None;
            }
            let mut index = *table.add(2 + (hash % buckets) as usize);
            while index != 0 {
                if let Some(symbol) = self.fitting(index, name) {
                    return Some(symbol);
                }
                index = *table.add(2 + (buckets + index) as usize);
            }
        }
        None
    }

    /// The symbol at an index of the table, if it defines this name for other modules, in its
    /// default version.
    fn fitting(&self, index: u32, name: &[u8]) -> Option<&'static ModuleSymbol> {
        const HIDDEN: u16 = 1 << 15;
        // SAFETY: indices from the module's hash table.
        unsafe {
            let symbol = &*(self.symbols as *const ModuleSymbol).add(index as usize);
            let is_function = matches!(symbol.info & 15, 0..=2 | 10);
            let is_global = matches!(symbol.info >> 4, 1 | 2 | 10);
            // Neither hidden nor internal.
            let is_visible = matches!(symbol.other & 3, 0 | 3);
            if symbol.section == 0 || symbol.value == 0 || !is_function || !is_global || !is_visible
            {
                return None;
            }
            if self.versions != 0
                && *(self.versions as *const u16).add(index as usize) & HIDDEN != 0
            {
                return None;
            }
            let text = (self.strings + symbol.name as usize) as *const u8;
            let same = name.iter().enumerate().all(|(i, &c)| *text.add(i) == c)
                && *text.add(name.len()) == 0;
            same.then_some(symbol)
        }
    }
}

/// Index of a name in a list that contains it.
pub(crate) const fn place_in(names: &[&CStr], name: &CStr) -> usize {
    let mut at = 0;
    loop {
        let (known, name) = (names[at].to_bytes(), name.to_bytes());
        let mut same = 0;
        while same < name.len() && same < known.len() && known[same] == name[same] {
            same += 1;
        }
        if same == name.len() && same == known.len() {
            return at;
        }
        at += 1;
    }
}
