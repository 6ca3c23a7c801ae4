//! `exec`: an instrumented program that a recorded one starts is recorded as well; every other program gets the
//! environment as its parent sees it, without a trace of the runtime.

use crate::abi;
use crate::next::{environ, fail, next};
use crate::process;
use crate::shared::{PRELOAD_NAME, count};
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
fn environment_for(instrumented: Option<Instrumented>, list: Strings) -> Environment {
    let unchanged = Environment {
        list,
        memory: 0,
        bytes: 0,
    };
    let Some(program) = instrumented else {
        return unchanged;
    };
    if process::own_path().is_empty() || !process::is_recorded() {
        return unchanged;
    }
    let is_heap = process::header().is_some_and(|h| h.heap_path[0] != 0);
    if !process::can_reach_recorder()
        || is_heap && program.features & abi::FEATURE_OWN_ALLOCATOR != 0
    {
        // The loader would complain on the program's standard error.
        process::count(count::FORBIDDEN, 1);
        return unchanged;
    }
    let n = length(list);
    // SAFETY: entries below n are strings.
    let entry = |i: usize| unsafe { process::c_bytes(*list.add(i)) };
    // The loader takes the last one.
    let preload = (0..n).rfind(|&i| process::value_of(entry(i), b"LD_PRELOAD").is_some());
    let old = preload.and_then(|i| process::value_of(entry(i), b"LD_PRELOAD"));
    let list_before = old.unwrap_or(b"");
    let (own, shared) = (process::own_path(), process::shared_entry());
    let before = program.before();
    // Room for two colons more in the one, and for one in the other.
    let text = b"LD_PRELOAD=".len() + list_before.len() + before.len() + own.len() + 3 + 1;
    let text = text + PRELOAD_NAME.len() + 1 + own.len() + 1 + list_before.len() + 1;
    let text = text + shared.len() + 1;
    let bytes = (n + 4) * 8 + text;
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
    let mut at = memory + (n + 4) * 8;
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
    let joint = |part: &[u8]| -> &'static [u8] { if part.is_empty() { b"" } else { b":" } };
    // As the recorder does it (`child.rs`).
    let (front, back) = list_before.split_at(process::place_among(list_before));
    let before = if is_heap { b"" } else { before };
    let first = put(&[
        b"LD_PRELOAD=",
        front,
        joint(front),
        before,
        joint(before),
        own,
        joint(back),
        back,
    ]);
    let name = PRELOAD_NAME.as_bytes();
    let second = match old {
        Some(old) => put(&[name, b"=", own, b":", old]),
        None => put(&[name, b"=", own]),
    };
    let third = put(&[shared]);
    let mut k = 0;
    // SAFETY: n + 4 pointers fit.
    unsafe {
        for i in 0..n {
            *pointers.add(k) = if Some(i) == preload {
                first
            } else {
                *list.add(i)
            };
            k += 1;
        }
        if preload.is_none() {
            *pointers.add(k) = first;
            k += 1;
        }
        *pointers.add(k) = second;
        *pointers.add(k + 1) = third;
    }
    Environment {
        list: pointers.cast(),
        memory,
        bytes,
    }
}

/// An instrumented executable of the soft flavour.
struct Instrumented {
    /// Its note's `FEATURE_*`.
    features: u32,
    /// Libraries that are to come before the runtime, as `abi::ModuleNote::before` has them; zero-terminated.
    before: [u8; 512],
}

impl Instrumented {
    fn before(&self) -> &[u8] {
        process::until_zero(&self.before)
    }
}

/// What is to be known of a file if it is an instrumented executable of the soft flavour.
fn instrumented(path: *const u8) -> Option<Instrumented> {
    crate::start::early();
    process::header()?;
    // The program may be no file at all: opening a pipe would wait for its other end.
    let fd = sys::open_quietly(path);
    if fd < 0 {
        return None;
    }
    let found = read_note(fd);
    sys::close(fd);
    found
}

fn read_note(fd: isize) -> Option<Instrumented> {
    const PT_LOAD: u64 = 1;
    const PT_NOTE: u64 = 4;
    let mut ehdr = [0u8; 64];
    if sys::pread(fd, &mut ehdr, 0) != 64 || !ehdr.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let word = |b: &[u8], at: usize, n: usize| {
        b[at..at + n]
            .iter()
            .rev()
            .fold(0u64, |v, &x| v << 8 | u64::from(x))
    };
    let (offset, count) = (word(&ehdr, 32, 8), word(&ehdr, 56, 2));
    let header = |i: u64| {
        let mut phdr = [0u8; 56];
        (sys::pread(fd, &mut phdr, offset + i * 56) == 56).then_some(phdr)
    };
    const FIELD: usize = 16 + core::mem::offset_of!(abi::ModuleNote, before);
    let note = (0..count).map_while(header).find_map(|phdr| {
        let mut note = [0u8; FIELD + 8];
        let is_ours = word(&phdr, 0, 4) == PT_NOTE
            && sys::pread(fd, &mut note, word(&phdr, 8, 8)) >= 24
            && note[12..16] == *abi::NOTE_NAME
            && word(&note, 8, 4) == u64::from(abi::NOTE_MODULE)
            && word(&note, 20, 4) == u64::from(abi::FLAVOUR_SOFT);
        is_ours.then_some(note)
    })?;
    const FEATURES: usize = 16 + core::mem::offset_of!(abi::ModuleNote, features);
    let mut found = Instrumented {
        features: word(&note, FEATURES, 4) as u32,
        before: [0; 512],
    };
    // (Older files have a shorter note.)
    let at = if 16 + word(&note, 4, 4) as usize >= FIELD + 8 {
        word(&note, FIELD, 8)
    } else {
        0
    };
    let holder = (0..count).map_while(header).find(|phdr| {
        word(phdr, 0, 4) == PT_LOAD && at.wrapping_sub(word(phdr, 16, 8)) < word(phdr, 32, 8)
    });
    if let Some(phdr) = holder.filter(|_| at != 0) {
        let from = word(&phdr, 8, 8) + at - word(&phdr, 16, 8);
        sys::pread(fd, &mut found.before, from);
        if !found.before.contains(&0) {
            found.before = [0; 512];
        }
    }
    Some(found)
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
fn instrumented_in_path(file: *const u8) -> Option<Instrumented> {
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
    None
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
    let program = process::header().and_then(|_| read_note(fd as isize));
    let environment = environment_for(program, envp);
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
