//! Functions behind the runtime's wrappers: the definitions that come after it in the loader's
//! order, found at the start of the program.
//!
//! A later look-up would have side effects: `dlsym` waits for a thread that loads a library, which
//! may itself wait for the caller; it clears the text of `dlerror`; and wrappers are also called
//! where little is allowed, as in handlers. Neither `dlsym` nor any other function is called by
//! name: the executable or a library before the runtime may define one that is not ready yet (those
//! of sanitizers are not before their own start). So the loader's list of modules is searched.

use crate::sys::loader_list;
use crate::sys::program_headers::PhdrInfo;
use core::arch::global_asm;
use core::ffi::CStr;
use core::sync::atomic::{AtomicUsize, Ordering};
use mgz_abi::shared_memory::{BEHIND_WRAPPERS, MAX_FUNCTIONS, name_hash};

// The runtime names no symbol of another module: the program might define it.
global_asm!(".hidden _DYNAMIC");

type Iterate =
    unsafe extern "C" fn(extern "C" fn(*const PhdrInfo, usize, *mut u8) -> i32, *mut u8) -> i32;

/// The C library's `dl_iterate_phdr`.
pub fn dl_iterate_phdr() -> Option<Iterate> {
    static FOUND: AtomicUsize = AtomicUsize::new(0);
    let address = find_in_library(&FOUND, c"dl_iterate_phdr");
    // SAFETY: the symbol's type.
    (address != 0).then(|| unsafe { core::mem::transmute::<usize, Iterate>(address) })
}

/// The program's environment, as the C library finds it.
pub fn environ() -> *const *const u8 {
    static FOUND: AtomicUsize = AtomicUsize::new(0);
    let mut address = FOUND.load(Ordering::Relaxed);
    if address == 0 && !crate::sys::environment::is_static() {
        address = match told(b"environ") {
            0 => loader_list::first_of_all(b"__environ"),
            told => told,
        };
        FOUND.store(address, Ordering::Relaxed);
    }
    if address == 0 {
        return crate::sys::environment::environment();
    }
    // SAFETY: the symbol's type.
    unsafe { *(address as *const *const *const u8) }
}

/// The environment where the kernel has put it, if the loader has a variable with its address
/// (glibc's has).
pub fn first_environment() -> *mut *mut u8 {
    let end = loader_list::of_loader(c"__libc_stack_end");
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
    let address = find_in_library(&FOUND, c"__errno_location");
    if address != 0 {
        // SAFETY: the function's type; it returns the address of the calling thread's errno.
        unsafe {
            *core::mem::transmute::<usize, extern "C" fn() -> *mut i32>(address)() = errno as i32
        };
    }
    -1
}

/// Functions that the recorder has looked up for a runtime in a running process, which the loader
/// has not linked: hash of the name, address.
static mut FUNCTIONS: [[u64; 2]; MAX_FUNCTIONS] = [[0; 2]; MAX_FUNCTIONS];

/// Stores the recorder's list.
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

/// Looks up a definition once and caches the address. (Wrappers call this on stacks that may be
/// small.)
#[inline]
fn find_once(cache: &AtomicUsize, name: &CStr, look: fn(&[u8]) -> usize) -> usize {
    match cache.load(Ordering::Relaxed) {
        0 => look_up(cache, name, look),
        known => known,
    }
}

#[cold]
#[inline(never)]
fn look_up(cache: &AtomicUsize, name: &CStr, look: fn(&[u8]) -> usize) -> usize {
    let found = match told(name.to_bytes()) {
        0 => look(name.to_bytes()),
        told => told,
    };
    cache.store(found, Ordering::Relaxed);
    found
}

/// The definition of `name` that comes after this library, or 0: the one that a caller of the
/// wrapper would have called.
pub fn next_definition(cache: &AtomicUsize, name: &CStr) -> usize {
    find_once(cache, name, loader_list::first_behind)
}

fn in_library_or_behind(name: &[u8]) -> usize {
    match loader_list::of_c_library(name) {
        0 => loader_list::first_behind(name),
        found => found,
    }
}

/// The definition of `name` in the C library itself, or 0. Wrappers call it in place of the C
/// library's internal call, and the runtime for itself. (If no module is known to be the C library,
/// the next definition.)
pub fn find_in_library(cache: &AtomicUsize, name: &CStr) -> usize {
    find_once(cache, name, in_library_or_behind)
}

/// The next definitions of [`BEHIND_WRAPPERS`].
static FOUND: [AtomicUsize; BEHIND_WRAPPERS.len()] =
    [const { AtomicUsize::new(0) }; BEHIND_WRAPPERS.len()];

/// Index of a function in [`BEHIND_WRAPPERS`].
pub const fn place_behind_wrappers(name: &CStr) -> usize {
    loader_list::place_in(&BEHIND_WRAPPERS, name)
}

/// The next definition of the function at an index of [`BEHIND_WRAPPERS`], or 0.
pub fn behind(place: usize) -> usize {
    next_definition(&FOUND[place], BEHIND_WRAPPERS[place])
}

/// The C library's own definitions of [`BEHIND_WRAPPERS`].
static IN_LIBRARY: [AtomicUsize; BEHIND_WRAPPERS.len()] =
    [const { AtomicUsize::new(0) }; BEHIND_WRAPPERS.len()];

/// The C library's own definition of the function at an index of [`BEHIND_WRAPPERS`], or 0.
pub fn in_library(place: usize) -> usize {
    find_in_library(&IN_LIBRARY[place], BEHIND_WRAPPERS[place])
}

/// The next definition of the function at an index of [`BEHIND_WRAPPERS`], if it is not the C
/// library's own: a library of the program replaces the function, and must be called.
pub fn stand_in(place: usize) -> Option<usize> {
    let next = behind(place);
    (next != 0 && next != in_library(place)).then_some(next)
}

/// Looks up all functions. To be called once, before any code of the program runs.
pub fn find_all() {
    for place in 0..FOUND.len() {
        behind(place);
        in_library(place);
    }
    environ();
}

/// The next definition of a function, as a function pointer of the given type, or `None`.
macro_rules! next {
    ($name:literal, $ty:ty) => {{
        const PLACE: usize = $crate::sys::libc_symbols::place_behind_wrappers($name);
        let address = $crate::sys::libc_symbols::behind(PLACE);
        // SAFETY: the symbol's documented type.
        (address != 0).then(|| unsafe { core::mem::transmute::<usize, $ty>(address) })
    }};
}
pub(crate) use next;

/// The C library's own definition of a function, as [`next`].
macro_rules! library {
    ($name:literal, $ty:ty) => {{
        const PLACE: usize = $crate::sys::libc_symbols::place_behind_wrappers($name);
        let address = $crate::sys::libc_symbols::in_library(PLACE);
        // SAFETY: the symbol's documented type.
        (address != 0).then(|| unsafe { core::mem::transmute::<usize, $ty>(address) })
    }};
}
pub(crate) use library;
