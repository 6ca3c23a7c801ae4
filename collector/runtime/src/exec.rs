//! `exec`: the runtime's settings go on to every program that can take them, through the environment of the call, so that an instrumented program is recorded whoever starts it:
//! a shell, `env`, `make`, `mpirun`. A program without instrumentation takes them out of its environment again before it sees that, and is left alone
//! ([`process::fall_asleep`]). Programs that cannot take them get the environment as it is, and the recorder is told.
//!
//! The new environment lies on the stack of the caller: a child that shares its parent's memory (`vfork`, `posix_spawn`) would leave anything else behind there.

use crate::abi;
use crate::next::{environ, fail, next};
use crate::process;
use crate::seal;
use crate::shared::{MODULE_32_BIT, MODULE_PRIVILEGED, PATH_BYTES, count};
use crate::sys::{self, map, nr};
use core::arch::naked_asm;
use core::sync::atomic::Ordering;

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

/// What is about to be executed, as far as that matters here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    /// Instrumented, by software.
    Instrumented,
    /// Something that may start others.
    Plain,
    /// The loader keeps the runtime out of it.
    Privileged,
    /// Its loader would complain about the runtime on the program's standard error.
    Foreign,
    /// Nothing that can be looked at.
    Unknown,
}

/// Interpreters of interpreters that the kernel goes through.
const DEPTH: usize = 5;

/// Looks at what a descriptor leads to, and closes it.
fn look(fd: isize, depth: usize) -> Target {
    if fd < 0 {
        return Target::Unknown;
    }
    let target = look_into(fd, depth);
    sys::close(fd);
    target
}

fn look_into(fd: isize, depth: usize) -> Target {
    let mut start = [0u8; 256];
    let read = sys::pread(fd, &mut start, 0).max(0) as usize;
    let start = &start[..read.min(255)];
    if let Some(line) = start.strip_prefix(b"#!") {
        let line = line.split(|&b| b == b'\n').next().unwrap_or(&[]);
        let mut words = line
            .split(|b| matches!(b, b' ' | b'\t' | 0))
            .filter(|w| !w.is_empty());
        let mut path = [0u8; 256];
        let Some(interpreter) = words.next().filter(|_| depth < DEPTH) else {
            return Target::Unknown;
        };
        path[..interpreter.len()].copy_from_slice(interpreter);
        return look(sys::open_quietly(path.as_ptr()), depth + 1);
    }
    const CLASS_64: u8 = 2;
    const X86_64: u8 = 62;
    match start {
        [0x7f, b'E', b'L', b'F', class, _, rest @ ..] => {
            if *class != CLASS_64 || rest.get(12) != Some(&X86_64) {
                Target::Foreign
            } else if gains_privileges(fd) {
                Target::Privileged
            } else if read_note(fd) {
                Target::Instrumented
            } else {
                Target::Plain
            }
        }
        _ => Target::Unknown,
    }
}

/// Whether a program gets other rights by being executed: then the kernel says so to the loader (`AT_SECURE`), which ignores what is preloaded.
fn gains_privileges(fd: isize) -> bool {
    const GETUID: usize = 102;
    const GETGID: usize = 104;
    const FGETXATTR: usize = 193;
    // SAFETY: no memory is involved.
    let (uid, gid) = unsafe {
        (
            sys::call(GETUID, 0, 0, 0, 0, 0, 0) as u32,
            sys::call(GETGID, 0, 0, 0, 0, 0, 0) as u32,
        )
    };
    let name = c"security.capability".as_ptr() as usize;
    // SAFETY: the name lives across the call; nothing is written.
    let capable = uid != 0 && unsafe { sys::call(FGETXATTR, fd as usize, name, 0, 0, 0, 0) } > 0;
    let Some((mode, owner, group)) = sys::owner(fd) else {
        return false;
    };
    const SET_GID: u32 = 0o2010;
    capable || mode & 0o4000 != 0 && owner != uid || mode & SET_GID == SET_GID && group != gid
}

/// [`follow`], for wrappers: the C library's own system call does it where that is met, unless the environment is too long for the stack.
fn follow_here(list: Strings, open: impl FnOnce() -> isize) -> bool {
    let later = crate::call_sites::are_met() && length(list) <= MANY;
    !later && follow(open)
}

/// Whether a program that is executed now gets the runtime. `path` opens it; the recorder is told of what cannot be followed.
fn follow(open: impl FnOnce() -> isize) -> bool {
    if process::own_path().is_empty() {
        return false;
    }
    if !process::is_recorded() {
        // There the recorder's id means nothing.
        if process::recorder()
            .filter(|h| h.stop.load(Ordering::Relaxed) == 0 && !seal::is_filtered())
            .is_some_and(process::is_elsewhere)
        {
            process::count(count::FORBIDDEN, 1);
        }
        return false;
    }
    if !seal::may_set_up() {
        process::count(count::FORBIDDEN, 1);
        return false;
    }
    // The program may be no file at all: opening a pipe would wait for its other end.
    let fd = open();
    if fd < 0 {
        return false;
    }
    let target = look_into(fd, 0);
    let mut name = [0u8; PATH_BYTES];
    crate::modules::path_of_descriptor(fd, &mut name);
    sys::close(fd);
    let unfollowed = match target {
        Target::Privileged => MODULE_PRIVILEGED,
        Target::Foreign => MODULE_32_BIT,
        _ if process::can_reach_recorder() => return true,
        Target::Instrumented => {
            // The loader would complain on the program's standard error.
            process::count(count::FORBIDDEN, 1);
            return false;
        }
        _ => return false,
    };
    crate::modules::tell_program(unfollowed, &name);
    false
}

/// Most entries of an environment for which there is room on the stack.
const FEW: usize = 120;
const MANY: usize = 1020;
/// Bytes of text for which there is room there.
const TEXT: usize = 768;

/// Calls `exec` with an environment in which the runtime's settings are, if the program is to be followed.
fn with_environment<R>(follow: bool, list: Strings, exec: impl FnOnce(Strings) -> R) -> R {
    if !follow {
        return exec(list);
    }
    let n = length(list);
    // SAFETY: entries below n are strings.
    let entry = |i: usize| unsafe { process::c_bytes(*list.add(i)) };
    let known =
        |i: usize| process::value_of(entry(i), crate::shared::ENV_NAME.as_bytes()).is_some();
    // Who came by a wrapper has it already, and a recorder that is recorded knows what it does.
    if (0..n).any(known) {
        return exec(list);
    }
    let preload = (0..n).find(|&i| process::value_of(entry(i), b"LD_PRELOAD").is_some());
    let old = preload.map_or(&b""[..], |i| {
        process::value_of(entry(i), b"LD_PRELOAD").unwrap_or(b"")
    });
    let made = Made {
        list,
        n,
        preload,
        old,
    };
    let text = b"LD_PRELOAD=".len() + process::own_path().len() + 1 + old.len() + 1;
    match n {
        ..=FEW if text <= TEXT => on_stack::<{ FEW + 4 }, R>(&made, exec),
        ..=MANY if text <= TEXT => on_stack::<{ MANY + 4 }, R>(&made, exec),
        _ => elsewhere(&made, text, exec),
    }
}

/// What a new environment is made of.
struct Made<'a> {
    list: Strings,
    n: usize,
    preload: Option<usize>,
    old: &'a [u8],
}

impl Made<'_> {
    /// Writes pointers and the text of the one entry that is new.
    ///
    /// # Safety
    /// There must be room for `n` + 3 pointers and the text.
    unsafe fn write(&self, pointers: *mut *const u8, text: *mut u8) {
        let joint: &[u8] = if self.old.is_empty() { b"" } else { b":" };
        let mut at = 0;
        for part in [b"LD_PRELOAD=", process::own_path(), joint, self.old, b"\0"] {
            // SAFETY: the caller's contract.
            unsafe { core::ptr::copy_nonoverlapping(part.as_ptr(), text.add(at), part.len()) };
            at += part.len();
        }
        let mut k = 0;
        // SAFETY: as above.
        unsafe {
            for i in (0..self.n).filter(|&i| Some(i) != self.preload) {
                *pointers.add(k) = *self.list.add(i);
                k += 1;
            }
            *pointers.add(k) = text;
            *pointers.add(k + 1) = process::shared_entry().as_ptr();
            *pointers.add(k + 2) = core::ptr::null();
        }
    }
}

#[inline(never)]
fn on_stack<const N: usize, R>(made: &Made, exec: impl FnOnce(Strings) -> R) -> R {
    let mut pointers = [const { core::mem::MaybeUninit::<*const u8>::uninit() }; N];
    let mut text = [const { core::mem::MaybeUninit::<u8>::uninit() }; TEXT];
    // SAFETY: both are large enough, as the caller has seen.
    unsafe {
        made.write(pointers.as_mut_ptr().cast(), text.as_mut_ptr().cast());
    }
    exec(pointers.as_ptr().cast())
}

/// The same in memory of its own, given back if `exec` fails.
#[inline(never)]
fn elsewhere<R>(made: &Made, text: usize, exec: impl FnOnce(Strings) -> R) -> R {
    let pointers = (made.n + 3) * 8;
    // SAFETY: a new mapping.
    let Ok(memory) = (unsafe {
        sys::mmap(
            0,
            pointers + text,
            map::READ | map::WRITE,
            map::PRIVATE | map::ANONYMOUS,
            -1,
            0,
        )
    }) else {
        process::count(count::FORBIDDEN, 1);
        return exec(made.list);
    };
    // SAFETY: the mapping has room for both.
    unsafe { made.write(memory as *mut *const u8, (memory + pointers) as *mut u8) };
    let result = exec(memory as Strings);
    // SAFETY: made above.
    unsafe { sys::munmap(memory, pointers + text) };
    result
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

/// No such file.
const NOT_FOUND: isize = -2;

/// The system call, with the runtime's settings in the environment. Returns −errno, if at all.
///
/// # Safety
/// As the system call: the lists must be valid, or the kernel says that they are not.
pub unsafe fn system_execve(path: *const u8, argv: Strings, envp: Strings) -> isize {
    let follow = is_list(envp) && follow(|| sys::open_quietly(path));
    let _quiet = Quiet::new();
    with_environment(follow, envp, |envp| {
        // SAFETY: the caller's arguments.
        unsafe {
            sys::call(
                nr::EXECVE,
                path as usize,
                argv as usize,
                envp as usize,
                0,
                0,
                0,
            )
        }
    })
}

/// As [`system_execve`].
///
/// # Safety
/// As the system call.
pub unsafe fn system_execveat(
    dir: i32,
    path: *const u8,
    argv: Strings,
    envp: Strings,
    flags: usize,
) -> isize {
    let follow = is_list(envp) && follow(|| sys::open_at(dir, path, flags));
    let _quiet = Quiet::new();
    with_environment(follow, envp, |envp| {
        // SAFETY: the caller's arguments.
        unsafe {
            sys::call(
                nr::EXECVEAT,
                dir as isize as usize,
                path as usize,
                argv as usize,
                envp as usize,
                flags,
                0,
            )
        }
    })
}

/// Whether there is a list of strings that can be looked at.
fn is_list(list: Strings) -> bool {
    list.is_null() || sys::is_readable(list as usize, 8)
}

/// Opens what `execvp` would execute.
fn open_in_path(file: *const u8) -> isize {
    // SAFETY: a zero-terminated name, as the C functions demand.
    let name = unsafe { process::c_bytes(file) };
    if name.contains(&b'/') || name.is_empty() {
        return sys::open_quietly(file);
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
            return sys::open_quietly(full.as_ptr());
        }
    }
    NOT_FOUND
}

const ENOSYS: isize = 38;

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(path: *const u8, argv: Strings, envp: Strings) -> i32 {
    let Some(real) = next!(
        c"execve",
        unsafe extern "C" fn(*const u8, Strings, Strings) -> i32
    ) else {
        return fail(ENOSYS);
    };
    let follow = follow_here(envp, || sys::open_quietly(path));
    let _quiet = Quiet::new();
    // SAFETY: the caller's arguments.
    with_environment(follow, envp, |envp| unsafe { real(path, argv, envp) })
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
    let Some(real) = next!(
        c"execvpe",
        unsafe extern "C" fn(*const u8, Strings, Strings) -> i32
    ) else {
        return fail(ENOSYS);
    };
    let follow = follow_here(envp, || open_in_path(file));
    let _quiet = Quiet::new();
    // SAFETY: the caller's arguments.
    with_environment(follow, envp, |envp| unsafe { real(file, argv, envp) })
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
    let Some(real) = next!(
        c"fexecve",
        unsafe extern "C" fn(i32, Strings, Strings) -> i32
    ) else {
        return fail(ENOSYS);
    };
    let follow = follow_here(envp, || {
        sys::open_at(fd, c"".as_ptr().cast(), sys::EMPTY_PATH)
    });
    let _quiet = Quiet::new();
    // SAFETY: the caller's arguments.
    with_environment(follow, envp, |envp| unsafe { real(fd, argv, envp) })
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
    let Some(real) = next!(c"posix_spawn", Spawn) else {
        return ENOSYS as i32;
    };
    let follow = follow_here(envp, || sys::open_quietly(path));
    // SAFETY: the caller's arguments.
    with_environment(follow, envp, |envp| unsafe {
        real(pid, path, actions, attributes, argv, envp)
    })
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
    let Some(real) = next!(c"posix_spawnp", Spawn) else {
        return ENOSYS as i32;
    };
    let follow = follow_here(envp, || open_in_path(file));
    // SAFETY: the caller's arguments.
    with_environment(follow, envp, |envp| unsafe {
        real(pid, file, actions, attributes, argv, envp)
    })
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
