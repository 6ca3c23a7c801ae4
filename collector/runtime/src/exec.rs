//! `exec`: an instrumented program that a recorded one starts is recorded as well; every other program gets the
//! environment as its parent sees it, without a trace of the runtime.

use crate::abi;
use crate::next::{environ, fail, next};
use crate::process;
use crate::shared::count;
use crate::sys::{self, map};
use core::arch::naked_asm;

/// Silences the trigger while `exec` is tried: the new program must not meet its signal.
struct Quiet(Option<crate::thread::Ring>);

impl Quiet {
    fn new() -> Quiet {
        // The child of a vfork has its parent's settings, and no trigger.
        let own = crate::thread::current().filter(|r| sys::gs() == r.address);
        Quiet(own.filter(|&r| crate::trigger::quiet(r)))
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if let Some(ring) = self.0 {
            crate::trigger::arm(ring);
        }
    }
}

type Strings = *const *const u8;

/// Entries of an environment or argument list.
fn length(list: Strings) -> usize {
    let mut n = 0;
    // SAFETY: lists end with a null pointer.
    while !list.is_null() && unsafe { !(*list.add(n)).is_null() } {
        n += 1;
    }
    n
}

/// An environment with the runtime in it, in memory of its own that lives until `exec` (or a failed exec: unmapped).
struct Environment {
    list: Strings,
    memory: usize,
    bytes: usize,
}

impl Drop for Environment {
    fn drop(&mut self) {
        if self.memory != 0 {
            // SAFETY: made by `with_runtime`, used by nobody else.
            unsafe { sys::munmap(self.memory, self.bytes) };
        }
    }
}

/// The environment to pass on to a program: with the runtime if the program is instrumented.
fn environment_for(instrumented: bool, list: Strings) -> Environment {
    let unchanged = Environment {
        list,
        memory: 0,
        bytes: 0,
    };
    if !instrumented || process::own_path().is_empty() || !process::is_recorded() {
        return unchanged;
    }
    if !process::can_reach_recorder() {
        // The loader would complain on the program's standard error.
        process::count(count::FORBIDDEN, 1);
        return unchanged;
    }
    let n = length(list);
    // SAFETY: entries below n are strings.
    let entry = |i: usize| unsafe { process::c_bytes(*list.add(i)) };
    let preload = (0..n).find(|&i| process::value_of(entry(i), b"LD_PRELOAD").is_some());
    let old = preload.map_or(&b""[..], |i| {
        process::value_of(entry(i), b"LD_PRELOAD").unwrap_or(b"")
    });
    let (own, shared) = (process::own_path(), process::shared_entry());
    let text = b"LD_PRELOAD=".len() + own.len() + 1 + old.len() + 1 + shared.len() + 1;
    let bytes = (n + 3) * 8 + text;
    // SAFETY: a new mapping.
    let Ok(memory) = (unsafe {
        sys::mmap(
            0,
            bytes,
            map::READ | map::WRITE,
            map::PRIVATE | map::ANONYMOUS,
            -1,
            0,
        )
    }) else {
        return unchanged;
    };
    let pointers = memory as *mut *const u8;
    let mut at = memory + (n + 3) * 8;
    let mut put = |parts: &[&[u8]]| {
        let start = at;
        for part in parts {
            // SAFETY: `bytes` was computed for exactly these parts.
            unsafe { core::ptr::copy_nonoverlapping(part.as_ptr(), at as *mut u8, part.len()) };
            at += part.len();
        }
        at += 1; // the mapping is zero
        start as *const u8
    };
    let joint: &[u8] = if old.is_empty() { b"" } else { b":" };
    let first = put(&[b"LD_PRELOAD=", own, joint, old]);
    let second = put(&[shared]);
    let mut k = 0;
    // SAFETY: n + 3 pointers fit.
    unsafe {
        for i in (0..n).filter(|&i| Some(i) != preload) {
            *pointers.add(k) = *list.add(i);
            k += 1;
        }
        *pointers.add(k) = first;
        *pointers.add(k + 1) = second;
    }
    Environment {
        list: pointers.cast(),
        memory,
        bytes,
    }
}

/// Whether a file is an instrumented executable of the soft flavour.
fn instrumented(path: *const u8) -> bool {
    if process::header().is_none() {
        return false;
    }
    // The program may be no file at all: opening a pipe would wait for its other end.
    let fd = sys::open_quietly(path);
    if fd < 0 {
        return false;
    }
    let found = read_note(fd);
    sys::close(fd);
    found
}

fn read_note(fd: isize) -> bool {
    let mut ehdr = [0u8; 64];
    if sys::pread(fd, &mut ehdr, 0) != 64 || !ehdr.starts_with(b"\x7fELF\x02\x01") {
        return false;
    }
    let word = |b: &[u8], at: usize, n: usize| {
        b[at..at + n]
            .iter()
            .rev()
            .fold(0u64, |v, &x| v << 8 | u64::from(x))
    };
    let (offset, count) = (word(&ehdr, 32, 8), word(&ehdr, 56, 2));
    for i in 0..count {
        let mut phdr = [0u8; 56];
        if sys::pread(fd, &mut phdr, offset + i * 56) != 56 {
            return false;
        }
        const PT_NOTE: u64 = 4;
        if word(&phdr, 0, 4) == PT_NOTE {
            let mut note = [0u8; 24];
            let read = sys::pread(fd, &mut note, word(&phdr, 8, 8));
            if read == 24
                && note[12..16] == *abi::NOTE_NAME
                && word(&note, 8, 4) == u64::from(abi::NOTE_MODULE)
                && word(&note, 20, 4) == u64::from(abi::FLAVOUR_SOFT)
            {
                return true;
            }
        }
    }
    false
}

/// The environment to pass to the system call. It is unmapped after a call that has failed, or in the parent of the child that made it.
///
/// # Safety
/// As for `execve`.
pub unsafe fn environment_of_call(path: *const u8, list: Strings) -> Strings {
    if path.is_null() {
        return list;
    }
    let environment = core::mem::ManuallyDrop::new(environment_for(instrumented(path), list));
    if let Some(ring) = crate::thread::ring_at(sys::gs()).filter(|_| environment.memory != 0) {
        forget_environment(ring);
        ring.private().environment = [environment.memory, environment.bytes];
    }
    environment.list
}

/// Unmaps the environment of the last system call.
pub fn forget_environment(ring: crate::thread::Ring) {
    let [memory, bytes] = core::mem::take(&mut ring.private().environment);
    if memory != 0 {
        // SAFETY: made by `environment_of_call`; the call has returned.
        unsafe { sys::munmap(memory, bytes) };
    }
}

/// Finds `file` in the program's PATH and tells whether it is instrumented.
fn instrumented_in_path(file: *const u8) -> bool {
    // SAFETY: a zero-terminated name, as the C functions demand.
    let name = unsafe { process::c_bytes(file) };
    if name.contains(&b'/') || name.is_empty() {
        return instrumented(file);
    }
    let list: Strings = environ();
    // SAFETY: entries of the environment are strings.
    let path = (0..length(list))
        .find_map(|i| process::value_of(unsafe { process::c_bytes(*list.add(i)) }, b"PATH"))
        .unwrap_or(b"/bin:/usr/bin");
    for folder in path.split(|&b| b == b':') {
        let mut full = [0u8; 4096];
        let folder = if folder.is_empty() { b"." } else { folder };
        if folder.len() + name.len() + 2 > full.len() {
            continue;
        }
        full[..folder.len()].copy_from_slice(folder);
        full[folder.len()] = b'/';
        full[folder.len() + 1..folder.len() + 1 + name.len()].copy_from_slice(name);
        const ACCESS: usize = 21;
        const X_OK: usize = 1;
        // SAFETY: a zero-terminated path.
        if unsafe { sys::call(ACCESS, full.as_ptr() as usize, X_OK, 0, 0, 0, 0) } == 0 {
            return instrumented(full.as_ptr());
        }
    }
    false
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(path: *const u8, argv: Strings, envp: Strings) -> i32 {
    let environment = environment_for(instrumented(path), envp);
    let _quiet = Quiet::new();
    match next!(
        c"execve",
        unsafe extern "C" fn(*const u8, Strings, Strings) -> i32
    ) {
        // SAFETY: the caller's arguments.
        Some(real) => unsafe { real(path, argv, environment.list) },
        None => fail(38),
    }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: *const u8, argv: Strings) -> i32 {
    // SAFETY: the caller's arguments.
    unsafe { execve(path, argv, environ()) }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvpe(file: *const u8, argv: Strings, envp: Strings) -> i32 {
    let environment = environment_for(instrumented_in_path(file), envp);
    let _quiet = Quiet::new();
    match next!(
        c"execvpe",
        unsafe extern "C" fn(*const u8, Strings, Strings) -> i32
    ) {
        // SAFETY: the caller's arguments.
        Some(real) => unsafe { real(file, argv, environment.list) },
        None => fail(38),
    }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(file: *const u8, argv: Strings) -> i32 {
    // SAFETY: the caller's arguments.
    unsafe { execvpe(file, argv, environ()) }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fexecve(fd: i32, argv: Strings, envp: Strings) -> i32 {
    let environment = environment_for(process::header().is_some() && read_note(fd as isize), envp);
    let _quiet = Quiet::new();
    match next!(
        c"fexecve",
        unsafe extern "C" fn(i32, Strings, Strings) -> i32
    ) {
        // SAFETY: the caller's arguments.
        Some(real) => unsafe { real(fd, argv, environment.list) },
        None => fail(38),
    }
}

type Spawn = unsafe extern "C" fn(usize, *const u8, usize, usize, Strings, Strings) -> i32;

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawn(
    pid: usize,
    path: *const u8,
    actions: usize,
    attributes: usize,
    argv: Strings,
    envp: Strings,
) -> i32 {
    let environment = environment_for(instrumented(path), envp);
    match next!(c"posix_spawn", Spawn) {
        // SAFETY: the caller's arguments.
        Some(real) => unsafe { real(pid, path, actions, attributes, argv, environment.list) },
        None => 38,
    }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawnp(
    pid: usize,
    file: *const u8,
    actions: usize,
    attributes: usize,
    argv: Strings,
    envp: Strings,
) -> i32 {
    let environment = environment_for(instrumented_in_path(file), envp);
    match next!(c"posix_spawnp", Spawn) {
        // SAFETY: the caller's arguments.
        Some(real) => unsafe { real(pid, file, actions, attributes, argv, environment.list) },
        None => 38,
    }
}

/// Gathers the arguments of a variadic exec into an array and calls the plain one. `registers` holds rsi, rdx, rcx,
/// r8, r9; the other arguments lie at `stack`. `kind`: 0 execl, 1 execlp, 2 execle.
unsafe extern "C" fn gather(
    path: *const u8,
    registers: *const [*const u8; 5],
    stack: Strings,
    kind: usize,
) -> i32 {
    // SAFETY: the caller's argument list ends with a null pointer.
    let argument = |i: usize| unsafe {
        if i < 5 {
            (*registers)[i]
        } else {
            *stack.add(i - 5)
        }
    };
    let mut n = 0;
    while !argument(n).is_null() {
        n += 1;
    }
    let bytes = (n + 1) * 8;
    const ENOMEM: isize = 12;
    // SAFETY: a new mapping.
    let Ok(memory) = (unsafe {
        sys::mmap(
            0,
            bytes,
            map::READ | map::WRITE,
            map::PRIVATE | map::ANONYMOUS,
            -1,
            0,
        )
    }) else {
        return fail(ENOMEM);
    };
    let argv = memory as *mut *const u8;
    for i in 0..n {
        // SAFETY: n + 1 pointers fit; the last is null since the mapping is zero.
        unsafe { *argv.add(i) = argument(i) };
    }
    // SAFETY: as the C functions; execle has the environment behind the null pointer.
    let r = unsafe {
        match kind {
            0 => execve(path, argv.cast(), environ()),
            1 => execvpe(path, argv.cast(), environ()),
            _ => execve(path, argv.cast(), argument(n + 1) as Strings),
        }
    };
    // SAFETY: made above; exec has failed.
    unsafe { sys::munmap(memory, bytes) };
    r
}

macro_rules! variadic {
    ($name:ident, $kind:literal) => {
        /// # Safety
        /// As the C function.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                "push r9", "push r8", "push rcx", "push rdx", "push rsi",
                "mov rsi, rsp",
                "lea rdx, [rsp + 48]",
                concat!("mov ecx, ", $kind),
                "call {gather}",
                "add rsp, 40",
                "ret",
                gather = sym gather)
        }
    };
}
variadic!(execl, "0");
variadic!(execlp, "1");
variadic!(execle, "2");
