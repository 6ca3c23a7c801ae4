//! Entry jumps. A module's jumps are written when it is loaded, and some are removed while the
//! program runs.
//!
//! A handler that sees an address of the original may read the instruction there and continue
//! behind it. In files with handlers that may do so at a faulting instruction, only the jumps in
//! [`ModuleNote::covers`] cover instructions that can fault. Such a jump is removed for good before
//! any handler sees an address under it. From then on code without a clone enters the original
//! there, and its loads are not recorded (`count::ENTRIES_TAKEN_BACK`).
//!
//! Other threads may be about to execute the jump. Its bytes lie in one aligned word of eight
//! bytes, and one store replaces the word. A fetch sees the word before or after the store (AMD's
//! manual guarantees this for aligned quadwords, and just-in-time compilers rely on it), and both
//! are correct, since the clone does not change. No thread executes from inside the jump: a thread
//! that a handler sends there continues in the clone as long as the jump is in place
//! ([`Patches::stands_before`]). Other bytes in the word are stored unchanged. A lock keeps other
//! threads from writing to the code.
//!
//! The code itself shows whether a jump is in place. So there is no separate state that could
//! differ in a forked child or in one that shares its creator's memory.
//!
//! If the kernel refuses to change the page (too many mappings; in executables without a loader
//! also a seccomp filter that the runtime has not seen), the jump stays. A handler then still sees
//! the original's address and may continue anywhere, but reads the jump's bytes there.

use crate::record::thread_ring::exclusively;
use crate::sys::program_headers::ProgramHeader;
use crate::sys::syscall::map;
use crate::sys::{process, syscall};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use mgz_abi::module_note::{Cover, ModuleNote, Patch};
use mgz_abi::shared_memory::{PAGE_SIZE, count};

/// Bytes of a jump.
const JUMP: u64 = 5;

/// Held by the thread that changes code that may be running.
static LOCK: AtomicU32 = AtomicU32::new(0);
/// State of the permission to take jumps back: [`CAN_TAKE_BACK`], [`GIVING_UP`], [`GIVEN_UP`].
static STATE: AtomicU32 = AtomicU32::new(CAN_TAKE_BACK);
const CAN_TAKE_BACK: u32 = 0;
/// All removable jumps are being removed for the last time, and none is written any more.
const GIVING_UP: u32 = 1;
/// Jumps can no longer be removed.
const GIVEN_UP: u32 = 2;

/// In a new child: no other thread holds the lock. (A page that another thread had made writable
/// stays writable.)
pub fn unlock_patches() {
    LOCK.store(0, Ordering::Relaxed);
}

/// Removes all removable jumps now and writes no more of them, because the program is about to
/// forbid the system calls that remove jumps.
pub fn give_up() {
    crate::record::phases::give_up();
    if STATE.load(Ordering::SeqCst) == GIVEN_UP {
        return;
    }
    STATE.store(GIVING_UP, Ordering::SeqCst);
    crate::record::modules::take_all_back();
    // (The lock waits for threads that are still removing jumps.)
    exclusively(&LOCK, || STATE.store(GIVEN_UP, Ordering::SeqCst));
}

/// True if the process may have begun with a filter of system calls. Such a filter could end the
/// process for an unexpected call.
fn may_be_filtered() -> bool {
    const UNFILTERED: u32 = 1;
    const FILTERED: u32 = 2;
    static KNOWN: AtomicU32 = AtomicU32::new(0);
    if KNOWN.load(Ordering::Relaxed) == 0 {
        KNOWN.store(
            if has_no_filter() {
                UNFILTERED
            } else {
                FILTERED
            },
            Ordering::Relaxed,
        );
    }
    KNOWN.load(Ordering::Relaxed) == FILTERED
}

fn has_no_filter() -> bool {
    const NO_FILTER_LINE: &[u8] = b"\nSeccomp:\t0\n";
    let mut text = [0u8; 4096];
    let fd = syscall::open_file(c"/proc/self/status".as_ptr().cast(), false);
    if fd < 0 {
        return false;
    }
    let read = syscall::pread(fd, &mut text, 0);
    syscall::close(fd);
    text.get(..read.max(0) as usize).is_some_and(|text| {
        text.windows(NO_FILTER_LINE.len())
            .any(|w| w == NO_FILTER_LINE)
    })
}

/// True if the kernel allows execution of memory that was written to, as code with jumps requires.
/// The test uses a page of its own.
pub fn can_be_executed() -> bool {
    // SAFETY: new memory, which nobody else knows.
    unsafe {
        let Ok(page) = syscall::new_memory(PAGE_SIZE) else {
            return false;
        };
        let done = syscall::mprotect(page, PAGE_SIZE, map::READ | map::EXEC) == 0;
        syscall::munmap(page, PAGE_SIZE);
        done
    }
}

/// The entry jumps of one module.
#[derive(Clone, Copy)]
pub struct Patches {
    bias: u64,
    /// Range of the clones: first link-time address and end.
    clones: (u64, u64),
    /// All jumps, sorted by address.
    all: &'static [Patch],
    /// The bytes under the jumps that can be removed, sorted by address.
    covers: &'static [Cover],
}

impl Patches {
    /// The patches of a module without any.
    pub const NONE: Patches = Patches {
        bias: 0,
        clones: (0, 0),
        all: &[],
        covers: &[],
    };

    /// The tables of a module.
    ///
    /// # Safety
    /// The note must be a loaded module's, and of this version.
    pub unsafe fn of(bias: u64, note: &ModuleNote) -> Patches {
        // SAFETY: both tables are part of the module's own loaded segment, which is looked at only
        // while it is loaded.
        let (all, covers) = unsafe {
            (
                core::slice::from_raw_parts(
                    (bias + note.patches) as *const Patch,
                    note.patch_count as usize,
                ),
                core::slice::from_raw_parts(
                    (bias + note.covers) as *const Cover,
                    note.cover_count as usize,
                ),
            )
        };
        Patches {
            bias,
            clones: (note.clone_start, note.clone_end),
            all,
            covers,
        }
    }

    /// Writes the jumps. No other thread may be running the module's code yet.
    pub fn install(&self, headers: &[ProgramHeader]) -> bool {
        const PF_W: u32 = 2;
        let inside = |p: &Patch, h: &ProgramHeader| {
            u64::from(p.at) >= h.vaddr && u64::from(p.at) + JUMP <= h.vaddr + h.filesz
        };
        let is_code = |h: &&ProgramHeader| h.is_code();
        let valid = |p: &Patch| {
            u64::from(p.to) >= self.clones.0
                && u64::from(p.to) < self.clones.1
                && headers.iter().filter(is_code).any(|h| inside(p, h))
        };
        if !self.all.iter().all(valid) {
            return false;
        }
        if !can_be_executed() {
            return false;
        }
        let may_change = !self.covers.is_empty()
            && STATE.load(Ordering::SeqCst) == CAN_TAKE_BACK
            && !may_be_filtered();
        let mut left_out = 0;
        for segment in headers.iter().filter(is_code) {
            let mine = || self.all.iter().filter(|p| inside(p, segment));
            let (Some(low), Some(high)) = (mine().map(|p| p.at).min(), mine().map(|p| p.at).max())
            else {
                continue;
            };
            let start = (self.bias + u64::from(low)) as usize & !(PAGE_SIZE - 1);
            let end =
                (self.bias + u64::from(high) + JUMP).next_multiple_of(PAGE_SIZE as u64) as usize;
            let kept = map::READ
                | map::EXEC
                | if segment.flags & PF_W != 0 {
                    map::WRITE
                } else {
                    0
                };
            // SAFETY: the module's constructors have not run, so none of this code is executing.
            unsafe {
                // The page gets the same protection as for a later removal, so that a kernel that
                // refuses it does so now.
                let changeable = may_change
                    && syscall::mprotect(start, end - start, map::READ | map::WRITE | map::EXEC)
                        == 0;
                if !changeable && syscall::mprotect(start, end - start, map::READ | map::WRITE) != 0
                {
                    return false;
                }
                for patch in mine() {
                    let at = self.address(patch.at);
                    if self.cover(patch.at).is_some_and(|c| {
                        !changeable
                            || !Cover::fits(at)
                            || (at as *const [u8; JUMP as usize]).read() != c.bytes
                    }) {
                        left_out += 1;
                        continue;
                    }
                    (at as *mut u8).write(0xe9);
                    ((at + 1) as *mut i32).write_unaligned(distance(patch));
                }
                syscall::mprotect(start, end - start, kept);
            }
        }
        process::count(count::ENTRIES_TAKEN_BACK, left_out);
        true
    }

    /// True if the byte of the module's code at a link-time address is covered by a jump.
    pub fn cover_byte(&self, at: u64) -> bool {
        let before = self.all[..self.all.partition_point(|p| u64::from(p.at) <= at)].last();
        before.is_some_and(|p| at < u64::from(p.at) + JUMP)
    }

    /// True if an address of the module's code is behind the first byte of a jump.
    pub fn stands_before(&self, ip: u64) -> bool {
        let at = ip - self.bias;
        let before = self.all[..self.all.partition_point(|p| u64::from(p.at) < at)].last();
        before.is_some_and(|p| at < u64::from(p.at) + JUMP && self.is_there(p))
    }

    /// Removes the jumps near `ip`, an address of the module's code or its end that a handler is
    /// about to see.
    pub fn show(&self, ip: u64) {
        if STATE.load(Ordering::SeqCst) == GIVEN_UP {
            return;
        }
        let at = ip - self.bias;
        let begun = &self.covers[..self.covers.partition_point(|c| u64::from(c.at) <= at)];
        // This includes jumps that end at `ip` or one byte behind it: after a trap or a system call
        // (two bytes), handlers look at the bytes before `ip`.
        for cover in begun
            .iter()
            .rev()
            .take_while(|c| at < u64::from(c.at) + JUMP + 2)
        {
            self.take_back(core::slice::from_ref(cover));
        }
    }

    /// Removes all removable jumps.
    pub fn take_all_back(&self) {
        // (Another thread may be unloading the module.)
        if syscall::is_readable(self.covers.as_ptr() as usize, size_of_val(self.covers)) {
            let page = |c: &Cover| self.address(c.at) / PAGE_SIZE as u64;
            self.covers
                .chunk_by(|a, b| page(a) == page(b))
                .for_each(|covers| self.take_back(covers));
        }
    }

    /// Removes jumps that lie in one page.
    fn take_back(&self, covers: &[Cover]) {
        let standing = || {
            covers
                .iter()
                .filter(|c| self.patch(c.at).is_some_and(|p| self.is_there(p)))
        };
        if standing().next().is_none() {
            return;
        }
        exclusively(&LOCK, || {
            let Some(first) = standing().next() else {
                return;
            };
            let page = self.address(first.at) as usize & !(PAGE_SIZE - 1);
            // (The program may have made the page writable and rely on that.)
            let closed = !syscall::is_writable(page);
            let mut taken = 0;
            // SAFETY: code of the module, which stays readable and executable throughout; each
            // store replaces a jump by the old code, see the module's documentation.
            unsafe {
                if closed
                    && syscall::mprotect(page, PAGE_SIZE, map::READ | map::WRITE | map::EXEC) != 0
                {
                    return;
                }
                for cover in standing() {
                    self.put_back(cover);
                    taken += 1;
                }
                if closed {
                    syscall::mprotect(page, PAGE_SIZE, map::READ | map::EXEC);
                }
            }
            process::count(count::ENTRIES_TAKEN_BACK, taken);
        });
    }

    /// Stores the original's bytes.
    ///
    /// # Safety
    /// The code must be writable, the jump must be there, and nobody else may write to its word.
    unsafe fn put_back(&self, cover: &Cover) {
        let at = self.address(cover.at);
        // SAFETY: an aligned word of the module's code; the caller's contract.
        let word = unsafe { AtomicU64::from_ptr((at & !7) as *mut u64) };
        let mut bytes = word.load(Ordering::Relaxed).to_le_bytes();
        // (Jumps that cross a word's end were not written.)
        if let Some(place) = bytes.get_mut((at & 7) as usize..(at & 7) as usize + JUMP as usize) {
            place.copy_from_slice(&cover.bytes);
            word.store(u64::from_le_bytes(bytes), Ordering::Release);
        }
    }

    /// Run-time address of a link-time address.
    fn address(&self, at: u32) -> u64 {
        self.bias + u64::from(at)
    }

    fn cover(&self, at: u32) -> Option<&Cover> {
        self.covers
            .binary_search_by_key(&at, |c| c.at)
            .ok()
            .map(|i| &self.covers[i])
    }

    fn patch(&self, at: u32) -> Option<&Patch> {
        self.all
            .binary_search_by_key(&at, |p| p.at)
            .ok()
            .map(|i| &self.all[i])
    }

    /// True if a jump is in place. A jump that is being taken back may count as either. If the code
    /// cannot be read, the jump counts as absent.
    fn is_there(&self, patch: &Patch) -> bool {
        if self.cover(patch.at).is_none() {
            return true;
        }
        let at = self.address(patch.at);
        // (Once jumps are given up, a seccomp filter may forbid the system call.)
        let readable = STATE.load(Ordering::SeqCst) == GIVEN_UP
            || syscall::is_readable(at as usize, JUMP as usize);
        // SAFETY: the patch was found to lie in the module's code, which is readable.
        readable
            && unsafe {
                (at as *const u8).read_volatile() == 0xe9
                    && ((at + 1) as *const [u8; 4]).read_volatile() == distance(patch).to_le_bytes()
            }
    }
}

/// Displacement of a jump: the number that it adds to the address behind it.
fn distance(patch: &Patch) -> i32 {
    (i64::from(patch.to) - i64::from(patch.at) - JUMP as i64) as i32
}
