//! Files in which the kernel shows a process's memory: `/proc/self/maps`, `smaps` and `mem`.
//!
//! Some programs walk through their own mappings: to look for pointers, to save everything, to
//! write to every word and restore it. The runtime's memory is not part of the program. A program
//! that opens the list of mappings gets a list in which that memory is reserved, as a file in
//! memory. The program's own mappings are shown as they are at that moment.
//!
//! A program that opens its memory as a file for writing may change code without its clone. So in
//! `burst` recording ends then; in the other modes, files that visibly do so are not recorded
//! (`count::MEMORY_OPENED`).
//!
//! The files are replaced when they are opened: in wrappers of the C library's functions, and in
//! system calls of other code ([`crate::wrap::call_sites`], [`crate::wrap::raw_syscalls`]). System
//! calls of the C library itself are not intercepted: a thread may be cancelled there, and must be
//! in code that can be unwound. If anything fails, the program gets the kernel's file.

use crate::record::{thread_ring, window};
use crate::sys::errno::ENOSYS;
use crate::sys::libc_symbols::{fail, next};
use crate::sys::mapping_list::MappingList;
use crate::sys::seccomp_state::is_filtered;
use crate::sys::syscall::{is_readable, link_of_descriptor, nr};
use crate::sys::{own_memory, process, rseq_area, syscall};
use core::arch::naked_asm;
use mgz_abi::shared_memory::{MODE_BURST, PAGE_SIZE, count};

const O_CLOEXEC: usize = 0o2_000_000;
const O_ACCMODE: usize = 3;
/// The file is opened only as a path.
const O_PATH: usize = 0o10_000_000;
/// Source: Chosen.
const MAX_PATH_BYTES: usize = 128;

/// Kind of file that a path may lead to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Mappings,
    Memory,
}

/// A system call that opens a file, with its arguments. `None`: the caller must make the call;
/// otherwise its result.
pub fn open_by_number(number: usize, arguments: [usize; 4]) -> Option<isize> {
    let [a, b, c, d] = arguments;
    let path = if number == nr::OPEN { a } else { b };
    kind_of_path(path)?;
    let flags = match number {
        nr::OPEN => b,
        nr::OPENAT => c,
        // (The first word of `struct open_how`.) SAFETY: checked before.
        _ => is_readable(c, 8).then(|| unsafe { (c as *const usize).read_unaligned() })?,
    };
    // SAFETY: the caller's arguments, for the kernel to check.
    let fd = unsafe { syscall::call(number, a, b, c, d, 0, 0) };
    opened(fd, path, flags);
    Some(fd)
}

/// Handles an opened file: replaces the file behind the program's descriptor if necessary.
fn opened(fd: isize, path: usize, flags: usize) {
    if fd < 0 || flags & O_PATH != 0 || !is_own(fd, path) {
        return;
    }
    match kind_of_path(path) {
        Some(Kind::Mappings) => {
            rseq_area::take_back();
            show_mappings(fd, flags);
        }
        Some(Kind::Memory) => memory_opened(flags),
        None => {}
    }
}

/// Kind of file that a path may lead to, if the runtime checks it.
fn kind_of_path(path: usize) -> Option<Kind> {
    if is_filtered() || process::header().is_none() {
        return None;
    }
    kind_of(last_part(path)?.as_ref())
}

/// A function of the C library that opens files: the last step is a jump to it, so that a thread
/// that is cancelled in the function has no frame of the runtime. `$path` is the register with the
/// path.
macro_rules! opener {
    ($name:ident, $text:literal, $path:literal, $shown:ident, $type:ty, $which:ident) => {
        /// # Safety
        /// As the C function.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                "push rdi", "push rsi", "push rdx", "push rcx", "push r8",
                concat!("mov rdi, ", $path),
                "call {which}",
                "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
                "jmp rax",
                which = sym $which)
        }

        extern "C" fn $which(path: usize) -> usize {
            // SAFETY: the caller's arguments, as the C function takes them.
            unsafe extern "C" fn shown(a: usize, b: usize, c: usize, d: usize) -> usize {
                let Some(real) = next!($text, $type) else {
                    return missing();
                };
                // SAFETY: as above.
                unsafe { $shown(real, [a, b, c, d]) }
            }
            if kind_of_path(path).is_some() {
                return shown as *const () as usize;
            }
            next!($text, $type).map_or(missing as *const () as usize, |real| real as usize)
        }
    };
}

type Function = unsafe extern "C" fn(usize, usize, usize, usize) -> usize;
opener!(open, c"open", "rdi", by_path, Function, which_open);
opener!(open64, c"open64", "rdi", by_path, Function, which_open64);
opener!(
    __open_2,
    c"__open_2",
    "rdi",
    by_path,
    Function,
    which_open_2
);
opener!(
    __open64_2,
    c"__open64_2",
    "rdi",
    by_path,
    Function,
    which_open64_2
);
opener!(openat, c"openat", "rsi", in_folder, Function, which_openat);
opener!(
    openat64,
    c"openat64",
    "rsi",
    in_folder,
    Function,
    which_openat64
);
opener!(
    __openat_2,
    c"__openat_2",
    "rsi",
    in_folder,
    Function,
    which_openat_2
);
opener!(
    __openat64_2,
    c"__openat64_2",
    "rsi",
    in_folder,
    Function,
    which_openat64_2
);
opener!(fopen, c"fopen", "rdi", as_stream, Function, which_fopen);
opener!(
    fopen64,
    c"fopen64",
    "rdi",
    as_stream,
    Function,
    which_fopen64
);

extern "C" fn missing() -> usize {
    fail(ENOSYS) as isize as usize
}

/// `open` and similar functions.
///
/// # Safety
/// `real` must be such a function, with these arguments.
unsafe fn by_path(real: Function, [a, b, c, d]: [usize; 4]) -> usize {
    // SAFETY: the caller's contract.
    let fd = unsafe { real(a, b, c, d) };
    opened(fd as i32 as isize, a, b as u32 as usize);
    fd
}

/// `openat` and similar functions.
///
/// # Safety
/// As above.
unsafe fn in_folder(real: Function, [a, b, c, d]: [usize; 4]) -> usize {
    // SAFETY: the caller's contract.
    let fd = unsafe { real(a, b, c, d) };
    opened(fd as i32 as isize, b, c as u32 as usize);
    fd
}

/// `fopen` and similar functions. Nothing has been read yet when the file is replaced.
///
/// # Safety
/// As above.
unsafe fn as_stream(real: Function, [a, b, c, d]: [usize; 4]) -> usize {
    const O_RDWR: usize = 2;
    // SAFETY: the caller's contract.
    let stream = unsafe { real(a, b, c, d) };
    let fileno = next!(c"fileno", unsafe extern "C" fn(usize) -> i32);
    if let Some(fileno) = fileno.filter(|_| stream != 0) {
        // SAFETY: a zero-terminated string, which the function has just read.
        let mode = unsafe { process::c_bytes(b as *const u8) };
        let has = |wanted: &[u8]| mode.iter().any(|c| wanted.contains(c));
        let flags = if has(b"e") { O_CLOEXEC } else { 0 } | if has(b"+wa") { O_RDWR } else { 0 };
        // SAFETY: a stream that was just opened.
        opened(unsafe { fileno(stream) } as isize, a, flags);
    }
    stream
}

/// The end of a path, if it can be read and is short.
fn last_part(path: usize) -> Option<LastPart> {
    let mut found = LastPart {
        bytes: [0; 8],
        length: 0,
    };
    if path == 0 || !is_readable(path, 1) {
        return None;
    }
    for at in path..path + MAX_PATH_BYTES {
        if at.is_multiple_of(PAGE_SIZE) && at != path && !is_readable(at, 1) {
            return None;
        }
        // SAFETY: checked before, for the whole page.
        match unsafe { (at as *const u8).read() } {
            0 => return Some(found),
            b'/' => found.length = 0,
            byte => {
                if let Some(place) = found.bytes.get_mut(found.length) {
                    *place = byte;
                }
                found.length += 1;
            }
        }
    }
    None
}

struct LastPart {
    bytes: [u8; 8],
    length: usize,
}

impl AsRef<[u8]> for LastPart {
    fn as_ref(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(&[])
    }
}

fn kind_of(name: &[u8]) -> Option<Kind> {
    match name {
        b"maps" | b"smaps" => Some(Kind::Mappings),
        b"mem" => Some(Kind::Memory),
        _ => None,
    }
}

/// True if a descriptor leads to a file of this process under `/proc`. `path` is the path that
/// opened it.
fn is_own(fd: isize, path: usize) -> bool {
    const PROC: &[u8] = b"/proc/";
    let by_name = [&b"/proc/self/"[..], b"/proc/thread-self/"]
        .iter()
        .any(|name| {
            // SAFETY: the kernel has just read the path; bytes are read up to the first difference.
            (0..name.len()).all(|i| unsafe { ((path + i) as *const u8).read() } == name[i])
        });
    let mut text = [0u8; 64];
    // SAFETY: a zero-terminated path, and a buffer of that length.
    let length = unsafe {
        syscall::call(
            nr::READLINK,
            link_of_descriptor(fd as i32).as_ptr() as usize,
            text.as_mut_ptr() as usize,
            text.len(),
            0,
            0,
            0,
        )
    };
    let link = text.get(..length.max(0) as usize).unwrap_or(&[]);
    let Some(rest) = link.strip_prefix(PROC) else {
        return false;
    };
    let digits = rest.iter().take_while(|c| c.is_ascii_digit());
    let process = digits.fold(0u32, |n, c| {
        n.wrapping_mul(10).wrapping_add(u32::from(c - b'0'))
    });
    // (The number may also be a thread's id.)
    by_name || process != 0 && syscall::tgkill(syscall::getpid(), process, 0) == 0
}

/// Replaces the kernel's list by one in which the runtime's memory is reserved.
fn show_mappings(fd: isize, flags: usize) {
    const CLOEXEC: usize = 1;
    if is_file_size_limited() {
        return;
    }
    // SAFETY: a zero-terminated name.
    let copy = unsafe {
        syscall::call(
            nr::MEMFD_CREATE,
            c"maps".as_ptr() as usize,
            CLOEXEC,
            0,
            0,
            0,
            0,
        )
    };
    if copy < 0 {
        return;
    }
    if fill(copy, fd) {
        // Opens it again, for reading only and from its beginning.
        let link = link_of_descriptor(copy as i32);
        let shown = syscall::open_file(link.as_ptr(), false);
        if shown >= 0 {
            // SAFETY: integers only; the program has not received the descriptor yet.
            unsafe {
                syscall::call(
                    nr::DUP3,
                    shown as usize,
                    fd as usize,
                    flags & O_CLOEXEC,
                    0,
                    0,
                    0,
                )
            };
            syscall::close(shown);
        }
    }
    syscall::close(copy);
}

/// True if the limit on file sizes is below the largest possible list: writing it would raise
/// SIGXFSZ.
fn is_file_size_limited() -> bool {
    const RLIMIT_FSIZE: usize = 1;
    /// The kernel's limit of 65,530 mappings, with 256 bytes each.
    const LONGEST_LIST: u64 = 16 << 20;
    let mut limits = [0u64; 2];
    // SAFETY: the kernel fills the pair.
    let result = unsafe {
        syscall::call(
            nr::PRLIMIT64,
            0,
            RLIMIT_FSIZE,
            0,
            limits.as_mut_ptr() as usize,
            0,
            0,
        )
    };
    result != 0 || limits[0] < LONGEST_LIST
}

/// Writes the filtered list of `from` to `to`. Returns true if it is complete.
fn fill(to: isize, from: isize) -> bool {
    let mut out = Buffered {
        fd: to,
        bytes: [0; 512],
        length: 0,
        failed: false,
    };
    let mut list = MappingList::new(own_memory::first_in, |part: &[u8]| out.put(part));
    let mut text = [0u8; 512];
    let mut offset = 0;
    loop {
        let read = syscall::pread(from, &mut text, offset);
        let Some(part) = usize::try_from(read).ok().and_then(|n| text.get(..n)) else {
            return false;
        };
        if part.is_empty() {
            break;
        }
        list.take(part);
        offset += part.len() as u64;
    }
    list.finish();
    out.flush();
    !out.failed
}

struct Buffered {
    fd: isize,
    bytes: [u8; 512],
    length: usize,
    failed: bool,
}

impl Buffered {
    fn put(&mut self, part: &[u8]) {
        for &byte in part {
            if self.length == self.bytes.len() {
                self.flush();
            }
            self.bytes[self.length] = byte;
            self.length += 1;
        }
    }

    fn flush(&mut self) {
        let length = core::mem::take(&mut self.length);
        // SAFETY: the bytes lie in the buffer.
        let written = unsafe {
            syscall::call(
                nr::WRITE,
                self.fd as usize,
                self.bytes.as_ptr() as usize,
                length,
                0,
                0,
                0,
            )
        };
        self.failed |= written != length as isize;
    }
}

/// Handles a program that has opened its memory as a file, in which it may read its code or change
/// it.
fn memory_opened(flags: usize) {
    let Some(header) = process::header() else {
        return;
    };
    let burst = header.mode == MODE_BURST;
    if burst && flags & O_ACCMODE == 0 || !own_memory::note_opened() {
        return;
    }
    process::count(count::MEMORY_OPENED, 1);
    let gs = syscall::gs();
    if burst && let Some(ring) = thread_ring::ring_at(gs).filter(|ring| ring.address == gs) {
        window::leave_for_good(ring);
    }
}
