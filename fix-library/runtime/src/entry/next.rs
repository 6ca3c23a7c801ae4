//! The next allocator's functions.

use super::start;
use crate::sys::loader_list;
use core::ffi::CStr;
use core::sync::atomic::{AtomicUsize, Ordering};

/// The replaced functions. Those from [`OPERATORS`] on are C++'s.
pub(super) const NAMES: [&CStr; 34] = [
    c"malloc",
    c"calloc",
    c"realloc",
    c"free",
    c"posix_memalign",
    c"aligned_alloc",
    c"memalign",
    c"valloc",
    c"pvalloc",
    c"reallocarray",
    c"malloc_usable_size",
    c"cfree",
    c"free_sized",
    c"free_aligned_sized",
    c"_Znwm",
    c"_Znam",
    c"_ZnwmRKSt9nothrow_t",
    c"_ZnamRKSt9nothrow_t",
    c"_ZnwmSt11align_val_t",
    c"_ZnamSt11align_val_t",
    c"_ZnwmSt11align_val_tRKSt9nothrow_t",
    c"_ZnamSt11align_val_tRKSt9nothrow_t",
    c"_ZdlPv",
    c"_ZdaPv",
    c"_ZdlPvm",
    c"_ZdaPvm",
    c"_ZdlPvRKSt9nothrow_t",
    c"_ZdaPvRKSt9nothrow_t",
    c"_ZdlPvSt11align_val_t",
    c"_ZdaPvSt11align_val_t",
    c"_ZdlPvmSt11align_val_t",
    c"_ZdaPvmSt11align_val_t",
    c"_ZdlPvSt11align_val_tRKSt9nothrow_t",
    c"_ZdaPvSt11align_val_tRKSt9nothrow_t",
];
/// Index of the first function of C++.
pub(super) const OPERATORS: usize = place(c"_Znwm");
/// Functions that every C library has.
pub(super) const REQUIRED: [usize; 4] = [
    place(c"malloc"),
    place(c"calloc"),
    place(c"realloc"),
    place(c"free"),
];

/// The next definitions, or 0.
pub(super) static NEXT: [AtomicUsize; NAMES.len()] = [const { AtomicUsize::new(0) }; NAMES.len()];

/// Index of a function in [`NAMES`].
pub(super) const fn place(name: &CStr) -> usize {
    loader_list::place_in(&NAMES, name)
}

/// Looks up all of them, among the modules that are loaded at the start.
pub(super) fn find_all() {
    for (next, name) in NEXT.iter().zip(NAMES) {
        let mut found = loader_list::first_behind(name.to_bytes());
        if found == 0 && is_plain_free(name) {
            found = NEXT[place(c"free")].load(Ordering::Relaxed);
        }
        next.store(found, Ordering::Relaxed);
    }
}

/// True for functions that do the same as `free`, which some C libraries lack.
fn is_plain_free(name: &CStr) -> bool {
    let at = place(name);
    (place(c"cfree")..=place(c"free_aligned_sized")).contains(&at)
}

/// Makes sure that the next definition of a function of C++ is known, even if its library was
/// loaded later.
pub(super) fn find_operator(at: usize) {
    if NEXT[at].load(Ordering::Relaxed) != 0 {
        return;
    }
    let found = match start::search_loaded(NAMES[at]) {
        0 => replacement(at),
        found => found,
    };
    NEXT[at].store(found, Ordering::Relaxed);
}

/// A replacement for a function of C++ in a process without a C++ library.
fn replacement(at: usize) -> usize {
    let like = if at >= place(c"_ZdlPv") {
        c"free"
    } else if at >= place(c"_ZnwmSt11align_val_t") {
        return super::operators::aligned_new as *const () as usize;
    } else {
        c"malloc"
    };
    NEXT[place(like)].load(Ordering::Relaxed)
}

/// The next definition as a function pointer of the given type, or `None`.
macro_rules! next {
    ($name:literal, $ty:ty) => {{
        const PLACE: usize = $crate::entry::next::place($name);
        let address = $crate::entry::next::NEXT[PLACE].load(core::sync::atomic::Ordering::Relaxed);
        // SAFETY: the symbol's documented type.
        (address != 0).then(|| unsafe { core::mem::transmute::<usize, $ty>(address) })
    }};
}
pub(super) use next;
