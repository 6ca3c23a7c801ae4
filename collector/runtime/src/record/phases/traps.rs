//! Traps at the instructions where a phase begins or ends: at markers for as long as the process
//! lives, at functions until one of them is entered.
//!
//! A trap is [`TRAP`] in the place of an instruction's first byte, in the original and in the
//! clone. A marker's instruction does nothing, so a thread that hits it continues behind it. At a
//! function's entry the original byte is restored; other threads that execute it see the byte
//! before or after the store.

use crate::record::entry_patches::Patches;
use crate::record::modules;
use crate::sys::program_headers::ProgramHeader;
use crate::sys::syscall;
use crate::sys::syscall::map;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use mgz_abi::module_note::{FEATURE_READS_CODE, ModuleNote};
use mgz_abi::phases::{Marker, Phases};
use mgz_abi::probe::TRAP;
use mgz_abi::shared_memory::{Header, MODE_BURST, PAGE_SIZE};

/// Kind of a trap: `START`, `STOP`, or this.
pub const FUNCTION: u8 = 3;

struct Trap {
    address: AtomicU64,
    /// Kind of the trap; bytes of the instruction; its first byte; and the page's protection.
    about: AtomicU32,
}

/// Traps of one process. Source: Chosen.
const MAX_TRAPS: usize = 4096;
static TRAPS: [Trap; MAX_TRAPS] = [const {
    Trap {
        address: AtomicU64::new(0),
        about: AtomicU32::new(0),
    }
}; MAX_TRAPS];
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn traps() -> &'static [Trap] {
    &TRAPS[..COUNT.load(Ordering::Acquire).min(MAX_TRAPS)]
}

/// Kind of the trap at an address, and the length of the instruction there. The trap may have been
/// taken back.
pub fn at(address: u64) -> Option<(u8, u8)> {
    // The last trap wins, in case a module was loaded at the address of an earlier one.
    let found = traps()
        .iter()
        .rev()
        .find(|t| t.address.load(Ordering::Relaxed) == address)?;
    let about = found.about.load(Ordering::Relaxed).to_le_bytes();
    Some((about[0], about[1]))
}

/// Writes a trap. If the page does not stay executable, no thread may be executing it.
///
/// # Safety
/// `address` must be that of an instruction of a loaded module's code.
unsafe fn put(address: u64, what: u8, length: u8, protection: usize) -> bool {
    let number = COUNT.load(Ordering::Relaxed);
    let Some(trap) = TRAPS.get(number) else {
        return false;
    };
    let page = address as usize & !(PAGE_SIZE - 1);
    // The page gets the same protection as for a later removal, so that a kernel that refuses it
    // does so now.
    let open = map::READ | map::WRITE | map::EXEC;
    // SAFETY: the caller's contract; the page's protection is restored.
    unsafe {
        if syscall::mprotect(page, PAGE_SIZE, open) != 0 {
            return false;
        }
        let place = AtomicU8::from_ptr(address as *mut u8);
        let byte = place.load(Ordering::Relaxed);
        trap.address.store(address, Ordering::Relaxed);
        trap.about.store(
            u32::from_le_bytes([what, length, byte, protection as u8]),
            Ordering::Relaxed,
        );
        COUNT.store(number + 1, Ordering::Release);
        place.store(TRAP, Ordering::Release);
        syscall::mprotect(page, PAGE_SIZE, protection);
    }
    true
}

/// Restores the bytes at all functions' entries. The caller holds the lock of phases.
pub fn take_functions_back() {
    for trap in traps() {
        let [what, _, byte, protection] = trap.about.load(Ordering::Relaxed).to_le_bytes();
        let address = trap.address.load(Ordering::Relaxed);
        // (Its module may be gone.)
        if what != FUNCTION || !syscall::is_readable(address as usize, 1) {
            continue;
        }
        let page = address as usize & !(PAGE_SIZE - 1);
        // SAFETY: the byte is readable, and it is replaced only if it is a trap.
        unsafe {
            let place = AtomicU8::from_ptr(address as *mut u8);
            if place.load(Ordering::Relaxed) != TRAP {
                continue;
            }
            syscall::mprotect(page, PAGE_SIZE, map::READ | map::WRITE | map::EXEC);
            place.store(byte, Ordering::Release);
            syscall::mprotect(page, PAGE_SIZE, protection.into());
        }
    }
}

/// Location of a module.
pub struct LoadedModule<'a> {
    /// Run-time address minus link-time address.
    pub bias: u64,
    /// Its program headers.
    pub headers: &'a [ProgramHeader],
    /// Its note.
    pub note: &'a ModuleNote,
    /// Its entry jumps.
    pub patches: &'a Patches,
}

impl LoadedModule<'_> {
    /// The protection of original code at a link-time address; `None` if the address is not code.
    fn protection(&self, at: u64) -> Option<usize> {
        const PF_W: u32 = 2;
        let segment = self
            .headers
            .iter()
            .find(|h| h.is_code() && at >= h.vaddr && at < h.vaddr + h.filesz)?;
        let writable = if segment.flags & PF_W != 0 {
            map::WRITE
        } else {
            0
        };
        Some(map::READ | map::EXEC | writable)
    }

    /// Writes a trap at an instruction of the original and at its clone. Returns true if all
    /// necessary traps are in place.
    fn put(&self, header: &Header, at: u64, what: u8, length: u8) -> bool {
        let address = self.bias + at;
        let Some(protection) = self.protection(at) else {
            return false;
        };
        let burst = header.mode == MODE_BURST;
        let clone = modules::first_clone_instruction(address).map(|(clone, _)| clone);
        let jumped_over = !burst && self.patches.cover_byte(at);
        // A marker is copied unchanged, with no probe in front of it. (The original may already be
        // covered by an entry jump.)
        let same = |clone: &u64| {
            // SAFETY: the instruction and its copy.
            let bytes = |from: u64| unsafe {
                core::slice::from_raw_parts(from as *const u8, length.into())
            };
            let nop = matches!(bytes(*clone), [0x90] | [0x0f, 0x1f, ..] | [0x66, ..]);
            what == FUNCTION || nop && (jumped_over || bytes(address) == bytes(*clone))
        };
        let in_clone = clone
            .filter(same)
            // SAFETY: an instruction of the module's clone.
            .is_some_and(|clone| unsafe { put(clone, what, length, map::READ | map::EXEC) });
        let reads_code = self.note.features & FEATURE_READS_CODE != 0;
        // SAFETY: an instruction of the module's code.
        let in_original =
            !reads_code && !jumped_over && unsafe { put(address, what, length, protection) };
        if burst || clone.is_none() {
            in_original
        } else {
            in_clone
        }
    }
}

/// Writes the traps at a new module's markers. Returns how many failed.
pub fn at_markers(header: &Header, place: &LoadedModule, markers: &[Marker]) -> u64 {
    let left = markers
        .iter()
        .filter(|m| !place.put(header, m.at.into(), m.what, m.length));
    left.count() as u64
}

/// As `at_markers`, for the functions that the recorder has found in the module.
pub fn at_functions(header: &Header, place: &LoadedModule, phases: &Phases) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = place.note.sidecar_id;
    let sidecar = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    let rows = phases.function_count.load(Ordering::Acquire) as usize;
    let left = phases
        .functions
        .iter()
        .take(rows)
        .filter(|row| row.sidecar.load(Ordering::Relaxed) == sidecar)
        .filter(|row| !place.put(header, row.at.load(Ordering::Relaxed), FUNCTION, 1));
    left.count() as u64
}
