//! The clock without a system call: the kernel maps a small shared object into each process
//! (`vdso(7)`), whose `__vdso_clock_gettime` reads it in a fraction of the time.
//!
//! The function is found through the object's section headers. If anything is missing, the system
//! call is used.

use core::sync::atomic::{AtomicUsize, Ordering};

/// Address of `__vdso_clock_gettime`, or 0.
static CLOCK: AtomicUsize = AtomicUsize::new(0);

const NAME: &[u8] = b"__vdso_clock_gettime\0";
const CLOCK_MONOTONIC: i32 = 1;

/// Looks up the function.
///
/// # Safety
/// `image` must be what the kernel says in `AT_SYSINFO_EHDR`, or 0.
pub unsafe fn init(image: usize) {
    if image == 0 {
        return;
    }
    // SAFETY: the caller's contract.
    if let Some(address) = unsafe { find(image) } {
        CLOCK.store(address, Ordering::Relaxed);
    }
}

/// Switches to the system call for good.
pub fn forget_vdso() {
    CLOCK.store(0, Ordering::Relaxed);
}

/// Finds the function in an ELF image that is mapped with the layout of its file.
///
/// # Safety
/// `image` must be a complete image.
unsafe fn find(image: usize) -> Option<usize> {
    const SECTION_BYTES: usize = 64;
    const SYMBOL_BYTES: usize = 24;
    const SHT_DYNSYM: u32 = 11;
    const PT_LOAD: u32 = 1;
    // SAFETY: the caller's contract; the offsets are the image's own.
    unsafe {
        let half = |at: usize| usize::from((at as *const u16).read_unaligned());
        let word = |at: usize| (at as *const u32).read_unaligned();
        let long = |at: usize| (at as *const u64).read_unaligned() as usize;
        // Elf64_Ehdr: e_phoff 32, e_shoff 40, e_phentsize 54, e_phnum 56, e_shnum 60.
        let (phoff, shoff, phnum, shnum) = (
            long(image + 32),
            long(image + 40),
            half(image + 56),
            half(image + 60),
        );
        if shoff == 0 {
            return None;
        }
        let load = (0..phnum)
            .map(|i| image + phoff + 56 * i)
            .find(|&h| word(h) == PT_LOAD)?;
        // Elf64_Phdr: p_offset 8, p_vaddr 16.
        let bias = (image + long(load + 8)).wrapping_sub(long(load + 16));
        let section = |i: usize| image + shoff + SECTION_BYTES * i;
        // Elf64_Shdr: sh_type 4, sh_offset 24, sh_size 32, sh_link 40.
        let symbols = (0..shnum)
            .map(section)
            .find(|&s| word(s + 4) == SHT_DYNSYM)?;
        let names = image + long(section(word(symbols + 40) as usize) + 24);
        let (first, count) = (
            image + long(symbols + 24),
            long(symbols + 32) / SYMBOL_BYTES,
        );
        for symbol in (0..count).map(|i| first + SYMBOL_BYTES * i) {
            // Elf64_Sym: st_name 0, st_shndx 6, st_value 8.
            let name = (names + word(symbol) as usize) as *const u8;
            let same = NAME
                .iter()
                .enumerate()
                .all(|(i, &b)| name.add(i).read() == b);
            if same && half(symbol + 6) != 0 {
                return Some(bias.wrapping_add(long(symbol + 8)));
            }
        }
        None
    }
}

/// Reads CLOCK_MONOTONIC as seconds and nanoseconds. Returns false if there is no such function.
pub fn monotonic(time: &mut [u64; 2]) -> bool {
    let address = CLOCK.load(Ordering::Relaxed);
    if address == 0 {
        return false;
    }
    // SAFETY: the kernel's function, with the type that it has in C.
    let clock: extern "C" fn(i32, *mut [u64; 2]) -> i32 = unsafe { core::mem::transmute(address) };
    clock(CLOCK_MONOTONIC, time) == 0
}
