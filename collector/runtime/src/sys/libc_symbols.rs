//! What stands behind the runtime's wrappers: the definitions that come after it in the loader's
//! order, found at the start of the program.
//!
//! Later it would be noticed: `dlsym` waits for a thread that loads a library, which may itself
//! wait for the caller; it takes away what `dlerror` would say; and wrappers are called where
//! little is allowed, as in handlers. Nor is `dlsym` itself asked, or any other function by its
//! name alone: the executable or a library before the runtime may have one of its own that is not
//! ready yet (those of sanitizers are not before their own start). The loader's list of modules
//! tells the same.

use core::arch::{asm, global_asm};
use core::ffi::CStr;
use core::sync::atomic::{AtomicUsize, Ordering};
use mgz_abi::shared_memory::{BEHIND_WRAPPERS, MAX_FUNCTIONS, name_hash};

// Weak, so that the loader starts the program even where they do not exist.
global_asm!(
    ".weak dlsym",
    ".weak environ",
    ".weak _r_debug",
    ".weak __libc_stack_end",
    ".hidden _DYNAMIC"
);

/// The address of a weak symbol, or 0.
macro_rules! weak {
    ($name:literal) => {{
        let address: usize;
        // SAFETY: reads the symbol's entry in the global offset table.
        unsafe { asm!(concat!("mov {}, qword ptr [rip + ", $name, "@GOTPCREL]"), out(reg) address, options(nostack, readonly, preserves_flags)) };
        address
    }};
}

type Iterate = unsafe extern "C" fn(
    extern "C" fn(*const crate::record::modules::PhdrInfo, usize, *mut u8) -> i32,
    *mut u8,
) -> i32;

/// The C library's `dl_iterate_phdr`.
pub fn dl_iterate_phdr() -> Option<Iterate> {
    static FOUND: AtomicUsize = AtomicUsize::new(0);
    let address = find(&FOUND, c"dl_iterate_phdr");
    // SAFETY: the symbol's type.
    (address != 0).then(|| unsafe { core::mem::transmute::<usize, Iterate>(address) })
}

/// The program's `environ`.
pub fn environ() -> *const *const u8 {
    let address = match weak!("environ") {
        0 => told(b"environ"),
        linked => linked,
    };
    if address == 0 {
        return crate::sys::environment::environment();
    }
    // SAFETY: the symbol's type.
    unsafe { *(address as *const *const *const u8) }
}

/// The environment where the kernel has put it, if the loader tells where that is (glibc's does).
pub fn first_environment() -> *mut *mut u8 {
    let end = weak!("__libc_stack_end");
    if end == 0 {
        return core::ptr::null_mut();
    }
    // SAFETY: the loader's variable: null or the address of the argument count, which the
    // arguments, a null pointer and the environment follow.
    unsafe {
        let stack = *(end as *const *const usize);
        if stack.is_null() {
            return core::ptr::null_mut();
        }
        stack.add(2 + *stack) as *mut *mut u8
    }
}

/// Sets the C library's errno and returns −1.
pub fn fail(errno: isize) -> i32 {
    static FOUND: AtomicUsize = AtomicUsize::new(0);
    let address = find(&FOUND, c"__errno_location");
    if address != 0 {
        // SAFETY: the function's type; it returns the address of the calling thread's errno.
        unsafe {
            *core::mem::transmute::<usize, extern "C" fn() -> *mut i32>(address)() = errno as i32
        };
    }
    -1
}

/// Where the recorder has put the runtime into a running process, nothing is linked; it has looked
/// these up: hash of the name, address.
static mut FUNCTIONS: [[u64; 2]; MAX_FUNCTIONS] = [[0; 2]; MAX_FUNCTIONS];

/// Takes the recorder's list over.
pub fn know(functions: &[[u64; 2]; MAX_FUNCTIONS]) {
    // SAFETY: nothing else runs.
    unsafe { FUNCTIONS = *functions };
}

/// The address that the recorder has given for a function, or 0.
fn told(name: &[u8]) -> usize {
    // SAFETY: written once before any use.
    let list = unsafe { &*(&raw const FUNCTIONS) };
    let hash = name_hash(name);
    list.iter()
        .find(|f| f[0] == hash)
        .map_or(0, |f| f[1] as usize)
}

/// The definition of `name` (zero-terminated) that comes after this library, or 0.
pub fn find(cache: &AtomicUsize, name: &CStr) -> usize {
    let known = cache.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let told = told(name.to_bytes());
    if told != 0 {
        cache.store(told, Ordering::Relaxed);
        return told;
    }
    let found = match first_module() {
        Some(first) => first_behind(first, name.to_bytes()),
        None => by_dlsym(name),
    };
    cache.store(found, Ordering::Relaxed);
    found
}

/// The same where the loader's list of modules is not to be had.
fn by_dlsym(name: &CStr) -> usize {
    const RTLD_NEXT: usize = usize::MAX;
    let dlsym = weak!("dlsym");
    if dlsym == 0 {
        return 0;
    }
    // SAFETY: the function's type.
    unsafe {
        core::mem::transmute::<usize, extern "C" fn(usize, *const u8) -> usize>(dlsym)(
            RTLD_NEXT,
            name.as_ptr().cast(),
        )
    }
}

/// What the loader tells debuggers of a module (`struct link_map`).
#[repr(C)]
struct Loaded {
    bias: usize,
    name: *const u8,
    dynamic: *const [u64; 2],
    next: *const Loaded,
}

/// The first of the loader's modules, in its order: those that it has started the program with come
/// first.
fn first_module() -> Option<&'static Loaded> {
    const MAP: usize = 8;
    let debug = weak!("_r_debug");
    if debug == 0 {
        return None;
    }
    // SAFETY: the loader's `struct r_debug`, which lives as long as the process; so does the list,
    // as far as it is walked here.
    unsafe { (*((debug + MAP) as *const *const Loaded)).as_ref() }
}

/// The first definition of a function behind this module, or 0.
fn first_behind(first: &'static Loaded, name: &[u8]) -> usize {
    let own: usize;
    // SAFETY: computes an address.
    unsafe {
        asm!("lea {}, [rip + _DYNAMIC]", out(reg) own, options(nostack, nomem, preserves_flags))
    };
    // SAFETY: as in `first_module`.
    let modules = core::iter::successors(Some(first), |m| unsafe { m.next.as_ref() });
    modules
        .skip_while(|m| m.dynamic as usize != own)
        .skip(1)
        .find_map(|m| Symbols::of(m)?.function(name))
        .unwrap_or(0)
}

/// An entry of a symbol table.
#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

/// The dynamic symbols of a module.
struct Symbols {
    bias: usize,
    strings: usize,
    symbols: usize,
    versions: usize,
    gnu_hash: usize,
    hash: usize,
}

impl Symbols {
    fn of(module: &Loaded) -> Option<Symbols> {
        let mut out = Symbols {
            bias: module.bias,
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
                _ => {
                    entry = entry.wrapping_add(1);
                    continue;
                }
            };
            // Some loaders add the bias where they find the address, some do not.
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

    /// The address of a function that the module defines for others.
    fn function(&self, name: &[u8]) -> Option<usize> {
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
            // SAFETY: such a symbol's function gives the address, and takes nothing (on x86 it may
            // ask the processor itself).
            return Some(unsafe {
                core::mem::transmute::<usize, extern "C" fn() -> usize>(address)()
            });
        }
        Some(address)
    }

    fn by_gnu_hash(&self, name: &[u8]) -> Option<&'static Symbol> {
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

    fn by_hash(&self, name: &[u8]) -> Option<&'static Symbol> {
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

    /// The symbol at a place of the table, if it defines this name, for everybody and in its
    /// default version.
    fn fitting(&self, index: u32, name: &[u8]) -> Option<&'static Symbol> {
        const HIDDEN: u16 = 1 << 15;
        // SAFETY: places that the module's hash table names.
        unsafe {
            let symbol = &*(self.symbols as *const Symbol).add(index as usize);
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

/// The next definitions of [`BEHIND_WRAPPERS`].
static FOUND: [AtomicUsize; BEHIND_WRAPPERS.len()] =
    [const { AtomicUsize::new(0) }; BEHIND_WRAPPERS.len()];

/// The place of a function in [`BEHIND_WRAPPERS`].
pub const fn place(name: &CStr) -> usize {
    let mut at = 0;
    loop {
        let (known, name) = (BEHIND_WRAPPERS[at].to_bytes(), name.to_bytes());
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

/// The next definition of the function at a place, or 0.
pub fn behind(place: usize) -> usize {
    find(&FOUND[place], BEHIND_WRAPPERS[place])
}

/// Looks them all up. To be called once, before any code of the program runs.
pub fn find_all() {
    for place in 0..FOUND.len() {
        behind(place);
    }
}

/// The next definition of a function, as a function pointer of the given type, or `None`.
macro_rules! next {
    ($name:literal, $ty:ty) => {{
        const PLACE: usize = $crate::sys::libc_symbols::place($name);
        let address = $crate::sys::libc_symbols::behind(PLACE);
        // SAFETY: the symbol's documented type.
        (address != 0).then(|| unsafe { core::mem::transmute::<usize, $ty>(address) })
    }};
}
pub(crate) use next;
