//! The C library's own versions of the functions that the runtime wraps, found when they are first needed.

use crate::shared::{MAX_FUNCTIONS, name_hash};
use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicUsize, Ordering};

// Weak, so that the loader starts the program even where they do not exist.
global_asm!(".weak dlsym", ".weak __errno_location", ".weak dl_iterate_phdr", ".weak environ");

/// The address of a weak symbol, or 0.
macro_rules! weak {
    ($name:literal) => {{
        let address: usize;
        // SAFETY: reads the symbol's entry in the global offset table.
        unsafe { asm!(concat!("mov {}, qword ptr [rip + ", $name, "@GOTPCREL]"), out(reg) address, options(nostack, readonly, preserves_flags)) };
        if address == 0 { told($name.as_bytes()) } else { address }
    }};
}

type Iterate = unsafe extern "C" fn(extern "C" fn(*const crate::modules::PhdrInfo, usize, *mut u8) -> i32, *mut u8) -> i32;

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
        return crate::freestanding::environment();
    }
    // SAFETY: the symbol's type.
    unsafe { *(address as *const *const *const u8) }
}

/// Sets the C library's errno and returns −1.
pub fn fail(errno: isize) -> i32 {
    let address = weak!("__errno_location");
    if address != 0 {
        // SAFETY: the function's type; it returns the address of the calling thread's errno.
        unsafe { *core::mem::transmute::<usize, extern "C" fn() -> *mut i32>(address)() = errno as i32 };
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
    list.iter().find(|f| f[0] == hash).map_or(0, |f| f[1] as usize)
}

/// The definition of `name` (zero-terminated) that comes after this library, or 0.
pub fn find(cache: &AtomicUsize, name: &core::ffi::CStr) -> usize {
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
    let found = unsafe { core::mem::transmute::<usize, extern "C" fn(usize, *const u8) -> usize>(dlsym)(RTLD_NEXT, name.as_ptr().cast()) };
    cache.store(found, Ordering::Relaxed);
    found
}

/// The next definition of a function, as a function pointer of the given type, or `None`.
macro_rules! next {
    ($name:literal, $ty:ty) => {{
        static CACHE: core::sync::atomic::AtomicUsize = core::sync::atomic::AtomicUsize::new(0);
        let address = $crate::next::find(&CACHE, $name);
        // SAFETY: the symbol's documented type.
        (address != 0).then(|| unsafe { core::mem::transmute::<usize, $ty>(address) })
    }};
}
pub(crate) use next;
