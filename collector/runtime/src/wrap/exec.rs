//! `exec`: the runtime's settings are passed to every program that can use them, through the
//! environment of the call. So an instrumented program is recorded whichever program starts it: a
//! shell, `env`, `make`, `mpirun`. In a program without instrumentation the runtime removes them
//! from the environment before the program's code runs, and does nothing else
//! ([`process::fall_asleep`]). Programs that cannot use them get the environment unchanged, and are
//! reported to the recorder.
//!
//! The new environment is on the stack of the caller: a child that shares its parent's memory
//! (`vfork`, `posix_spawn`) would leave any other memory behind there.

use crate::sys::errno::{ENOENT, ENOMEM, ENOSYS};
use crate::sys::libc_symbols::{behind, environ, fail, library, next, place_behind_wrappers};
use crate::sys::syscall::nr;
use crate::sys::{process, syscall};
use crate::wrap::raw_syscalls::SavedRegisters;
use core::arch::naked_asm;
use core::sync::atomic::Ordering;
use mgz_abi::shared_memory::{
    MODULE_32_BIT, MODULE_PRIVILEGED, PATH_BYTES, PRELOAD_NAME, count, is_sanitizer,
};

/// Silences the trigger while `exec` is tried: the new program must not receive its signal.
struct Quiet(Option<crate::record::thread_ring::Ring>);

impl Quiet {
    fn new() -> Quiet {
        // The child of a vfork has its parent's settings, and no trigger.
        let own = crate::record::thread_ring::current().filter(|r| syscall::gs() == r.address);
        Quiet(own.filter(|&r| crate::record::trigger::quiet(r)))
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if let Some(ring) = self.0 {
            crate::record::trigger::arm(ring);
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

/// Kind of a program that is about to be executed.
enum Target {
    /// Instrumented for software recording.
    Instrumented(Loading),
    /// A program without instrumentation, which may start others.
    Plain(Loading),
    /// The loader does not load the runtime into it.
    Privileged,
    /// Its loader would complain about the runtime on the program's standard error.
    Foreign,
    /// A program that cannot be read.
    Unknown,
}

/// Maximum depth of interpreters of interpreters, as in the kernel.
const MAX_INTERPRETER_DEPTH: usize = 5;

// The C library may execute programs on a stack of a few KiB (musl's `posix_spawn`). So code with
// large frames is in separate functions, whose frames are released before the next one is called.

/// Classifies the file that a descriptor leads to, and closes the descriptor.
fn look(fd: isize, depth: usize) -> Target {
    if fd < 0 {
        return Target::Unknown;
    }
    let target = look_into(fd, depth);
    syscall::close(fd);
    target
}

#[inline(never)]
fn look_into(fd: isize, depth: usize) -> Target {
    let mut start = [0u8; 256];
    let read = syscall::pread(fd, &mut start, 0).max(0) as usize;
    let start = &start[..read.min(255)];
    if let Some(line) = start.strip_prefix(b"#!") {
        let line = line.split(|&b| b == b'\n').next().unwrap_or(&[]);
        let mut words = line
            .split(|b| matches!(b, b' ' | b'\t' | 0))
            .filter(|w| !w.is_empty());
        let mut path = [0u8; 256];
        let Some(interpreter) = words.next().filter(|_| depth < MAX_INTERPRETER_DEPTH) else {
            return Target::Unknown;
        };
        path[..interpreter.len()].copy_from_slice(interpreter);
        return look(syscall::open_quietly(path.as_ptr()), depth + 1);
    }
    const CLASS_64: u8 = 2;
    const X86_64: u8 = 62;
    match start {
        [0x7f, b'E', b'L', b'F', class, _, rest @ ..] => {
            if *class != CLASS_64 || rest.get(12) != Some(&X86_64) {
                Target::Foreign
            } else if gains_privileges(fd) {
                Target::Privileged
            } else if let Some(loading) = read_note(fd) {
                Target::Instrumented(loading)
            } else {
                Target::Plain(read_needed(fd))
            }
        }
        _ => Target::Unknown,
    }
}

/// True if a program gains privileges by being executed. The kernel then tells the loader
/// (`AT_SECURE`), which ignores preloaded libraries.
fn gains_privileges(fd: isize) -> bool {
    // SAFETY: no memory is involved.
    let (uid, gid) = unsafe {
        (
            syscall::call(nr::GETUID, 0, 0, 0, 0, 0, 0) as u32,
            syscall::call(nr::GETGID, 0, 0, 0, 0, 0, 0) as u32,
        )
    };
    let name = c"security.capability".as_ptr() as usize;
    // SAFETY: the name lives across the call; nothing is written.
    let capable =
        uid != 0 && unsafe { syscall::call(nr::FGETXATTR, fd as usize, name, 0, 0, 0, 0) } > 0;
    let Some((mode, owner, group)) = syscall::file_owner(fd) else {
        return false;
    };
    const SET_GID: u32 = 0o2010;
    capable || mode & 0o4000 != 0 && owner != uid || mode & SET_GID == SET_GID && group != gid
}

/// [`follow`], for wrappers: if the C library's own system call is intercepted, that does the work,
/// unless the environment is too long for the stack.
fn follow_here(list: Strings, open: impl FnOnce() -> isize) -> Option<Loading> {
    crate::sys::begin::early();
    let later = crate::wrap::call_sites::are_met() && length(list) <= MANY_ENTRIES;
    if later { None } else { follow(open) }
}

/// Requirements of the program that is about to be executed, or `None` if it does not get the
/// runtime. `open` opens it. Programs that cannot be followed are reported to the recorder.
#[inline(never)]
fn follow(open: impl FnOnce() -> isize) -> Option<Loading> {
    crate::sys::begin::early();
    if process::own_path().is_empty() {
        return None;
    }
    if !process::is_recorded() {
        // In another namespace the recorder's process id is meaningless.
        if process::recorder()
            .filter(|h| {
                h.stop.load(Ordering::Relaxed) == 0 && !crate::sys::seccomp_state::is_filtered()
            })
            .is_some_and(process::is_elsewhere)
        {
            process::count(count::FORBIDDEN, 1);
        }
        return None;
    }
    if !crate::sys::seccomp_state::may_set_up() {
        process::count(count::FORBIDDEN, 1);
        return None;
    }
    // The file is opened only now: it may be a pipe, whose opening would wait for the other end.
    let fd = open();
    if fd < 0 {
        return None;
    }
    let target = look_into(fd, 0);
    match target {
        Target::Privileged => tell_unfollowed(fd, MODULE_PRIVILEGED),
        Target::Foreign => tell_unfollowed(fd, MODULE_32_BIT),
        _ => {}
    }
    syscall::close(fd);
    match target {
        Target::Privileged | Target::Foreign => None,
        Target::Instrumented(loading) => {
            let is_possible = !loading.refuses_heap() && process::can_reach_recorder();
            if !is_possible {
                // The loader would complain on the program's standard error, or a sanitizer's
                // runtime about the libraries before it.
                process::count(count::FORBIDDEN, 1);
            }
            is_possible.then_some(loading)
        }
        Target::Plain(loading) => {
            (!loading.refuses_heap() && process::can_reach_recorder()).then_some(loading)
        }
        Target::Unknown => process::can_reach_recorder().then_some(Loading::default()),
    }
}

/// Reports a program that cannot be followed to the recorder.
#[inline(never)]
fn tell_unfollowed(fd: isize, why: u32) {
    let mut name = [0u8; PATH_BYTES];
    crate::record::modules::path_of_descriptor(fd, &mut name);
    crate::record::modules::tell_program(why, &name);
}

/// Largest number of entries for which a small frame on the stack is used. Source: Chosen.
const FEW_ENTRIES: usize = 120;
/// Largest number of entries for which a large frame is used. Source: Chosen.
const MANY_ENTRIES: usize = 1020;
/// Bytes of text for which these frames have room.
const TEXT: usize = 768;

/// Calls `exec` with an environment that includes the runtime's settings, if the program is to be
/// followed.
fn with_environment<R>(
    follow: Option<Loading>,
    list: Strings,
    exec: impl FnOnce(Strings) -> R,
) -> R {
    let Some(loading) = &follow else {
        return exec(list);
    };
    let Some(made) = Made::of(list, loading) else {
        return exec(list);
    };
    let n = made.n;
    let text = made.text();
    match n {
        ..=FEW_ENTRIES if text <= TEXT => on_stack::<{ FEW_ENTRIES + 5 }, R>(&made, exec),
        ..=MANY_ENTRIES if text <= TEXT => on_stack::<{ MANY_ENTRIES + 5 }, R>(&made, exec),
        _ => elsewhere(&made, text, exec),
    }
}

/// Parts of a new environment.
struct Made<'a> {
    list: Strings,
    n: usize,
    preload: Option<usize>,
    /// Libraries that the program preloads, if any.
    old: Option<&'a [u8]>,
    /// Libraries that are to come before the runtime.
    before: &'a [u8],
}

impl<'a> Made<'a> {
    /// `None` if the environment already has the runtime's settings, from a wrapper or from a
    /// recorder that is itself recorded.
    fn of(list: Strings, loading: &'a Loading) -> Option<Made<'a>> {
        let n = length(list);
        // SAFETY: entries below n are strings.
        let entry = |i: usize| unsafe { process::c_bytes(*list.add(i)) };
        let known = |i: usize| {
            process::value_of(entry(i), mgz_abi::shared_memory::ENV_NAME.as_bytes()).is_some()
        };
        if (0..n).any(known) {
            return None;
        }
        // The loader uses the last one.
        let preload = (0..n).rfind(|&i| process::value_of(entry(i), b"LD_PRELOAD").is_some());
        Some(Made {
            list,
            n,
            preload,
            old: preload.and_then(|i| process::value_of(entry(i), b"LD_PRELOAD")),
            before: if process::logs_heap() {
                &[]
            } else {
                loading.before()
            },
        })
    }

    /// Length in bytes of the text of the new entries.
    fn text(&self) -> usize {
        let list = self.old.unwrap_or(&[]).len();
        let own = process::own_path().len();
        // Three colons at most and a zero; one colon and a zero.
        let first = b"LD_PRELOAD=".len() + list + self.before.len() + own + 4;
        first + PRELOAD_NAME.len() + 1 + own + 1 + list + 1
    }

    /// Writes all pointers and the text of the new entries, as the recorder does
    /// (`collector/src/target/spawn.rs`).
    ///
    /// # Safety
    /// There must be room for `n` + 5 pointers and the text.
    unsafe fn write(&self, pointers: *mut *const u8, text: *mut u8) {
        let list = self.old.unwrap_or(&[]);
        let (front, back) = list.split_at(process::place_among(list));
        let joint = |part: &[u8]| -> &'static [u8] { if part.is_empty() { b"" } else { b":" } };
        let mut at = 0;
        let mut put = |parts: &[&[u8]]| {
            let start = at;
            for part in parts.iter().chain(&[&b"\0"[..]]) {
                // SAFETY: the caller's contract.
                unsafe { core::ptr::copy_nonoverlapping(part.as_ptr(), text.add(at), part.len()) };
                at += part.len();
            }
            text.wrapping_add(start) as *const u8
        };
        let own = process::own_path();
        let first = put(&[
            b"LD_PRELOAD=",
            front,
            joint(front),
            self.before,
            joint(self.before),
            own,
            joint(back),
            back,
        ]);
        let name = PRELOAD_NAME.as_bytes();
        let second = match self.old {
            Some(old) => put(&[name, b"=", own, b":", old]),
            None => put(&[name, b"=", own]),
        };
        let mut k = 0;
        let mut add = |entry| {
            // SAFETY: the caller's contract.
            unsafe { *pointers.add(k) = entry };
            k += 1;
        };
        for i in 0..self.n {
            add(if Some(i) == self.preload {
                first
            } else {
                // SAFETY: entries of the program's list.
                unsafe { *self.list.add(i) }
            });
        }
        if self.preload.is_none() {
            add(first);
            // The runtime removes an even number of entries again.
            add(second);
        }
        add(second);
        add(process::shared_entry().as_ptr());
        add(core::ptr::null());
    }
}

#[inline(never)]
fn on_stack<const N: usize, R>(made: &Made, exec: impl FnOnce(Strings) -> R) -> R {
    let mut pointers = [const { core::mem::MaybeUninit::<*const u8>::uninit() }; N];
    let mut text = [const { core::mem::MaybeUninit::<u8>::uninit() }; TEXT];
    // SAFETY: both are large enough, as the caller has checked.
    unsafe {
        made.write(pointers.as_mut_ptr().cast(), text.as_mut_ptr().cast());
    }
    exec(pointers.as_ptr().cast())
}

/// Like [`on_stack`], in newly mapped memory, which is released if `exec` fails.
#[inline(never)]
fn elsewhere<R>(made: &Made, text: usize, exec: impl FnOnce(Strings) -> R) -> R {
    let pointers = (made.n + 5) * 8;
    let memory = syscall::new_memory(pointers + text).unwrap_or(0);
    if memory == 0 {
        process::count(count::FORBIDDEN, 1);
        return exec(made.list);
    }
    // SAFETY: the mapping has room for both.
    unsafe { made.write(memory as *mut *const u8, (memory + pointers) as *mut u8) };
    let result = exec(memory as Strings);
    // SAFETY: made above.
    unsafe { syscall::munmap(memory, pointers + text) };
    result
}

/// Requirements on how a program is loaded.
struct Loading {
    /// A sanitizer's runtime has its own allocator, and no library may come before it.
    own_allocator: bool,
    /// Libraries that are to come before the runtime, as
    /// `mgz_abi::module_note::ModuleNote::before` has them; zero-terminated.
    before: [u8; 512],
}

impl Default for Loading {
    fn default() -> Loading {
        Loading {
            own_allocator: false,
            before: [0; 512],
        }
    }
}

impl Loading {
    fn before(&self) -> &[u8] {
        process::until_zero(&self.before)
    }

    fn refuses_heap(&self) -> bool {
        self.own_allocator && process::logs_heap()
    }
}

/// A little-endian number of `n` bytes.
fn word(bytes: &[u8], at: usize, n: usize) -> u64 {
    bytes[at..at + n]
        .iter()
        .rev()
        .fold(0, |v, &x| v << 8 | u64::from(x))
}

/// The program headers of an ELF file.
fn headers(fd: isize) -> impl Iterator<Item = [u8; 56]> + Clone {
    let mut ehdr = [0u8; 64];
    let is_elf = syscall::pread(fd, &mut ehdr, 0) == 64 && ehdr.starts_with(b"\x7fELF\x02\x01");
    let (offset, count) = (word(&ehdr, 32, 8), word(&ehdr, 56, 2));
    (0..if is_elf { count } else { 0 }).map_while(move |i| {
        let mut phdr = [0u8; 56];
        let at = offset.wrapping_add(i * 56);
        (syscall::pread(fd, &mut phdr, at) == 56).then_some(phdr)
    })
}

/// The file offset of an address.
fn offset_of(fd: isize, address: u64) -> Option<u64> {
    const PT_LOAD: u64 = 1;
    let holds = |phdr: &[u8; 56]| {
        word(phdr, 0, 4) == PT_LOAD && address.wrapping_sub(word(phdr, 16, 8)) < word(phdr, 32, 8)
    };
    let phdr = headers(fd).find(holds)?;
    Some(word(&phdr, 8, 8).wrapping_add(address - word(&phdr, 16, 8)))
}

/// Requirements in the note of an instrumented program.
#[inline(never)]
fn read_note(fd: isize) -> Option<Loading> {
    const PT_NOTE: u64 = 4;
    const FEATURES: usize = 16 + core::mem::offset_of!(mgz_abi::module_note::ModuleNote, features);
    const FIELD: usize = 16 + core::mem::offset_of!(mgz_abi::module_note::ModuleNote, before);
    let note = headers(fd).find_map(|phdr| {
        let mut note = [0u8; FIELD + 8];
        let is_ours = word(&phdr, 0, 4) == PT_NOTE
            && syscall::pread(fd, &mut note, word(&phdr, 8, 8)) >= 24
            && note[12..16] == *mgz_abi::module_note::NOTE_NAME
            && word(&note, 8, 4) == u64::from(mgz_abi::module_note::NOTE_MODULE)
            && word(&note, 20, 4) == u64::from(mgz_abi::module_note::FLAVOUR_SOFT);
        is_ours.then_some(note)
    })?;
    let features = word(&note, FEATURES, 4) as u32;
    let mut loading = Loading {
        own_allocator: features & mgz_abi::module_note::FEATURE_OWN_ALLOCATOR != 0,
        before: [0; 512],
    };
    // (Older files have a shorter note.)
    let has_field = 16 + word(&note, 4, 4) as usize >= FIELD + 8;
    let at = word(&note, FIELD, 8);
    if has_field
        && at != 0
        && let Some(from) = offset_of(fd, at)
    {
        syscall::pread(fd, &mut loading.before, from);
        if !loading.before.contains(&0) {
            loading.before = [0; 512];
        }
    }
    Some(loading)
}

/// Requirements of any other program: its needed libraries up to the last one that is a sanitizer's
/// runtime, which must be first.
#[inline(never)]
fn read_needed(fd: isize) -> Loading {
    const PT_DYNAMIC: u64 = 2;
    const DT_NEEDED: u64 = 1;
    const DT_STRTAB: u64 = 5;
    /// Maximum number of entries read.
    const ENTRIES: u64 = 64;
    /// Longest name of a library.
    const NAME: usize = 128;
    let mut loading = Loading::default();
    let Some(phdr) = headers(fd).find(|phdr| word(phdr, 0, 4) == PT_DYNAMIC) else {
        return loading;
    };
    let (from, bytes) = (word(&phdr, 8, 8), word(&phdr, 32, 8));
    let entries = (0..ENTRIES.min(bytes / 16)).map_while(|i| {
        let mut entry = [0u8; 16];
        let read = syscall::pread(fd, &mut entry, from.wrapping_add(i * 16));
        (read == 16 && word(&entry, 0, 8) != 0).then(|| (word(&entry, 0, 8), word(&entry, 8, 8)))
    });
    let strings = entries.clone().find(|entry| entry.0 == DT_STRTAB);
    let Some(strings) = strings.and_then(|entry| offset_of(fd, entry.1)) else {
        return loading;
    };
    let (mut end, mut last) = (0, 0);
    let all = &mut loading.before;
    for (_, name_at) in entries.filter(|entry| entry.0 == DT_NEEDED) {
        let joint = usize::from(end != 0);
        let start = end + joint;
        // (A program with that many or that long names is not examined further.)
        let Some(place) = all.get_mut(start..start + NAME) else {
            break;
        };
        place.fill(0);
        syscall::pread(fd, place, strings.wrapping_add(name_at));
        let length = process::until_zero(place).len();
        if length == NAME {
            break;
        }
        all[end..start].fill(b':');
        end = start + length;
        if is_sanitizer(&all[start..end]) {
            loading.own_allocator = true;
            last = end;
        }
    }
    all[last..].fill(0);
    loading
}

/// The system call, with the runtime's settings in the environment. Returns only on failure, with
/// −errno.
///
/// # Safety
/// As the system call: invalid lists are reported by the kernel.
pub unsafe fn system_execve(path: *const u8, argv: Strings, envp: Strings) -> isize {
    let follow = is_list(envp)
        .then(|| follow(|| syscall::open_quietly(path)))
        .flatten();
    let _quiet = Quiet::new();
    with_environment(follow, envp, |envp| {
        // SAFETY: the caller's arguments.
        unsafe {
            syscall::call(
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
    let follow = is_list(envp)
        .then(|| follow(|| syscall::open_at(dir, path, flags)))
        .flatten();
    let _quiet = Quiet::new();
    with_environment(follow, envp, |envp| {
        // SAFETY: the caller's arguments.
        unsafe {
            syscall::call(
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

/// Makes the call of [`system_execve`] or [`system_execveat`] that the program's registers ask for.
///
/// # Safety
/// As the system calls.
pub unsafe fn execute_saved(r: &SavedRegisters) -> isize {
    match r.rax as usize {
        // SAFETY: the caller's contract.
        nr::EXECVEAT => unsafe {
            system_execveat(
                r.rdi as i32,
                r.rsi as *const u8,
                r.rdx as Strings,
                r.r10 as Strings,
                r.r8 as usize,
            )
        },
        // SAFETY: the caller's contract.
        _ => unsafe { system_execve(r.rdi as *const u8, r.rsi as Strings, r.rdx as Strings) },
    }
}

/// Called before a program is executed, with all signals blocked. Changes the call so that the
/// program gets the runtime's settings, and silences the trigger. The call is then made with the
/// program's mask; if it fails, [`has_failed`] undoes this.
pub fn prepare(r: &mut SavedRegisters) {
    let at = r.rax as usize == nr::EXECVEAT;
    let list = (if at { r.r10 } else { r.rdx }) as Strings;
    let follow = is_list(list)
        .then(|| {
            follow(|| {
                if at {
                    syscall::open_at(r.rdi as i32, r.rsi as *const u8, r.r8 as usize)
                } else {
                    syscall::open_quietly(r.rdi as *const u8)
                }
            })
        })
        .flatten();
    let quiet = Quiet::new();
    let was_armed = quiet.0.is_some();
    core::mem::forget(quiet);
    let ring = crate::record::thread_ring::ring_at(syscall::gs());
    let made = follow.as_ref().and_then(|loading| Made::of(list, loading));
    let (mut memory, mut bytes) = (0, 0);
    if let Some(made) = made {
        let pointers = (made.n + 5) * 8;
        bytes = pointers + made.text();
        let place = match ring {
            Some(ring) if bytes <= crate::record::thread_ring::ENVIRONMENT_BYTES => {
                ring.environment_place()
            }
            _ => {
                memory = syscall::new_memory(bytes).unwrap_or(0);
                memory
            }
        };
        if place == 0 {
            process::count(count::FORBIDDEN, 1);
        } else {
            // SAFETY: the memory has room for both.
            unsafe { made.write(place as *mut *const u8, (place + pointers) as *mut u8) };
            *(if at { &mut r.r10 } else { &mut r.rdx }) = place as u64;
        }
    }
    if let Some(ring) = ring {
        ring.private().executing.set((was_armed, memory, bytes));
    }
}

/// Called after a system call: undoes the work of [`prepare`], if an `exec` has failed.
pub fn has_failed() {
    let Some(ring) = crate::record::thread_ring::ring_at(syscall::gs()) else {
        return;
    };
    let (was_armed, memory, bytes) = ring.private().executing.take();
    if memory != 0 {
        // SAFETY: made by `prepare`, and not used any more.
        unsafe { syscall::munmap(memory, bytes) };
    }
    if was_armed {
        crate::record::trigger::arm(ring);
    }
}

/// True if a list is null or its first word is readable.
fn is_list(list: Strings) -> bool {
    list.is_null() || syscall::is_readable(list as usize, 8)
}

/// Opens the file that `execvp` would execute.
fn open_in_path(file: *const u8) -> isize {
    // SAFETY: a zero-terminated name, as the C functions demand.
    let name = unsafe { process::c_bytes(file) };
    if name.contains(&b'/') || name.is_empty() {
        return syscall::open_quietly(file);
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
        const X_OK: usize = 1;
        // SAFETY: a zero-terminated path.
        if unsafe { syscall::call(nr::ACCESS, full.as_ptr() as usize, X_OK, 0, 0, 0, 0) } == 0 {
            return syscall::open_quietly(full.as_ptr());
        }
    }
    -ENOENT
}

/// Function to which a wrapper passes all arguments, if any: the replacement in a library of the
/// program, or the C library's function, if its system call is intercepted.
fn handed_to(place: usize) -> Option<usize> {
    crate::sys::begin::early();
    let next = behind(place);
    let is_library = next == crate::sys::libc_symbols::in_library(place);
    (next != 0 && (crate::wrap::call_sites::are_met() || !is_library)).then_some(next)
}

/// Calls the function of [`handed_to`] with a wrapper's arguments and returns, if there is one.
macro_rules! hand_on {
    ($name:literal, $ty:ty, $($argument:expr),*) => {
        if let Some(to) = handed_to(const { place_behind_wrappers($name) }) {
            // SAFETY: the function's type, and the caller's arguments.
            return unsafe { core::mem::transmute::<usize, $ty>(to)($($argument),*) };
        }
    };
}

type Execute = unsafe extern "C" fn(*const u8, Strings, Strings) -> i32;
type ExecuteHere = unsafe extern "C" fn(*const u8, Strings) -> i32;

/// Executes a program by the C library's own `execve`, as the C library does in its own functions
/// of the same kind: no replacement of `execve` is called there.
///
/// # Safety
/// As the C function.
unsafe fn library_execve(path: *const u8, argv: Strings, envp: Strings) -> i32 {
    let Some(real) = library!(c"execve", Execute) else {
        return fail(ENOSYS);
    };
    let follow = follow_here(envp, || syscall::open_quietly(path));
    let _quiet = Quiet::new();
    // SAFETY: the caller's arguments.
    with_environment(follow, envp, |envp| unsafe { real(path, argv, envp) })
}

/// As [`library_execve`], along `PATH`.
///
/// # Safety
/// As the C function.
unsafe fn library_execvpe(file: *const u8, argv: Strings, envp: Strings) -> i32 {
    let Some(real) = library!(c"execvpe", Execute) else {
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
pub unsafe extern "C" fn execve(path: *const u8, argv: Strings, envp: Strings) -> i32 {
    hand_on!(c"execve", Execute, path, argv, envp);
    // SAFETY: the caller's arguments.
    unsafe { library_execve(path, argv, envp) }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: *const u8, argv: Strings) -> i32 {
    hand_on!(c"execv", ExecuteHere, path, argv);
    // SAFETY: the caller's arguments.
    unsafe { library_execve(path, argv, environ()) }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvpe(file: *const u8, argv: Strings, envp: Strings) -> i32 {
    hand_on!(c"execvpe", Execute, file, argv, envp);
    // SAFETY: the caller's arguments.
    unsafe { library_execvpe(file, argv, envp) }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(file: *const u8, argv: Strings) -> i32 {
    hand_on!(c"execvp", ExecuteHere, file, argv);
    // SAFETY: the caller's arguments.
    unsafe { library_execvpe(file, argv, environ()) }
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
    hand_on!(
        c"fexecve",
        unsafe extern "C" fn(i32, Strings, Strings) -> i32,
        fd,
        argv,
        envp
    );
    let follow = follow_here(envp, || {
        syscall::open_at(fd, c"".as_ptr().cast(), syscall::EMPTY_PATH)
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
    let follow = follow_here(envp, || syscall::open_quietly(path));
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

/// Gathers the arguments of a variadic exec into an array and calls the plain one. `registers`
/// holds rsi, rdx, rcx, r8, r9; the other arguments lie at `stack`. `kind`: 0 execl, 1 execlp, 2
/// execle.
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
    let Ok(memory) = syscall::new_memory(bytes) else {
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
            0 => library_execve(path, argv.cast(), environ()),
            1 => library_execvpe(path, argv.cast(), environ()),
            _ => library_execve(path, argv.cast(), argument(n + 1) as Strings),
        }
    };
    // SAFETY: made above; exec has failed.
    unsafe { syscall::munmap(memory, bytes) };
    r
}

/// [`handed_to`] for the variadic functions, by `kind`; 0: none.
extern "C" fn variadic_handed_to(kind: usize) -> usize {
    let place = match kind {
        0 => const { place_behind_wrappers(c"execl") },
        1 => const { place_behind_wrappers(c"execlp") },
        _ => const { place_behind_wrappers(c"execle") },
    };
    handed_to(place).unwrap_or(0)
}

macro_rules! variadic {
    ($name:ident, $kind:literal) => {
        /// # Safety
        /// As the C function.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                "push r9", "push r8", "push rcx", "push rdx", "push rsi", "push rdi", "sub rsp, 8",
                concat!("mov edi, ", $kind),
                "call {handed_to}",
                "add rsp, 8", "pop rdi",
                "test rax, rax",
                "jne 2f",
                "mov rsi, rsp",
                "lea rdx, [rsp + 48]",
                concat!("mov ecx, ", $kind),
                "call {gather}",
                "add rsp, 40",
                "ret",
                // (No argument is a floating-point number.)
                "2:",
                "pop rsi", "pop rdx", "pop rcx", "pop r8", "pop r9",
                "mov r11, rax",
                "xor eax, eax",
                "jmp r11",
                gather = sym gather, handed_to = sym variadic_handed_to)
        }
    };
}
variadic!(execl, "0");
variadic!(execlp, "1");
variadic!(execle, "2");
