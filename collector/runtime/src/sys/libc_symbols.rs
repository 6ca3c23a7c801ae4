//! The C library's own versions of the functions that the runtime wraps, found at the start of the program.
//!
//! Later it would be noticed: `dlsym` waits for a thread that loads a library, which may itself wait for the caller; it takes away what `dlerror` would say; and wrappers are
//! called where little is allowed, as in handlers.

use core::arch::{asm, global_asm};
use core::ffi::CStr;
use core::sync::atomic::{AtomicUsize, Ordering};
use mgz_abi::shared_memory::{BEHIND_WRAPPERS, MAX_FUNCTIONS, name_hash};

// Weak, so that the loader starts the program even where they do not exist.
global_asm!(
    ".weak dlsym",
    ".weak __errno_location",
    ".weak dl_iterate_phdr",
    ".weak environ"
);

/// The address of a weak symbol, or 0.
macro_rules! weak {
    ($name:literal) => {{
        let address: usize;
        // SAFETY: reads the symbol's entry in the global offset table.
        unsafe { asm!(concat!("mov {}, qword ptr [rip + ", $name, "@GOTPCREL]"), out(reg) address, options(nostack, readonly, preserves_flags)) };
        if address == 0 { told($name.as_bytes()) } else { address }
    }};
}

type Iterate = unsafe extern "C" fn(
    extern "C" fn(*const crate::record::modules::PhdrInfo, usize, *mut u8) -> i32,
    *mut u8,
) -> i32;

/// The C library's `dl_iterate_phdr`.
pub fn dl_iterate_phdr() -> Option<Iterate> {
    let address = weak!("dl_iterate_phdr");
    // SAFETY: the symbol's type.
    (address != 0).then(|| unsafe { core::mem::transmute::<usize, Iterate>(address) })
}

/// The program's `environ`.
pub fn environ() -> *const *const u8 {
    let address = weak!("environ");
    if address == 0 {
        return crate::wrap::raw_syscalls::environment();
    }
    // SAFETY: the symbol's type.
    unsafe { *(address as *const *const *const u8) }
}

/// Sets the C library's errno and returns −1.
pub fn fail(errno: isize) -> i32 {
    let address = weak!("__errno_location");
    if address != 0 {
        // SAFETY: the function's type; it returns the address of the calling thread's errno.
        unsafe {
            *core::mem::transmute::<usize, extern "C" fn() -> *mut i32>(address)() = errno as i32
        };
    }
    -1
}

/// Where the recorder has put the runtime into a running process, nothing is linked; it has looked these up: hash of the name, address.
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
    const RTLD_NEXT: usize = usize::MAX;
    let known = cache.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let told = told(name.to_bytes());
    if told != 0 {
        cache.store(told, Ordering::Relaxed);
        return told;
    }
    let dlsym = weak!("dlsym");
    if dlsym == 0 {
        return 0;
    }
    // SAFETY: the function's type.
    let found = unsafe {
        core::mem::transmute::<usize, extern "C" fn(usize, *const u8) -> usize>(dlsym)(
            RTLD_NEXT,
            name.as_ptr().cast(),
        )
    };
    cache.store(found, Ordering::Relaxed);
    found
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
