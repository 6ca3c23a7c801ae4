//! Recording a process that runs already from an instrumented binary: `--attach PID`.
//!
//! The instrumented file holds the clone, so the process lacks only the runtime, which is otherwise
//! a preloaded library. The runtime is the image that executables without a loader map
//! ([`crate::soft::static_image`]). The process itself maps and starts it while all of its threads
//! are stopped for some milliseconds (`runtime/src/enter/attach.rs` has the other half). Its
//! wrappers of the C library's functions are put into the global offset tables of all modules, then
//! and whenever a module is loaded.
//!
//! Nothing is unmapped at the end: triggers end by themselves, and the rest stays idle.

pub(crate) mod filters;
pub(crate) mod handover;
pub(crate) mod process;
pub(crate) mod threads;

use crate::program::modules::Instrumented;
use crate::program::note::instrumented_note;
use crate::soft::runtime_image::{RUNTIME, RuntimeImage};
use crate::soft::shared_memory::SharedMemory;
use crate::soft::static_image::{Flat, flatten};
use crate::target::ptrace_call::user_registers;
use handover::Caller;
use mgz_abi::module_note::{FEATURE_OWN_ALLOCATOR, FEATURE_SANITIZER_INSIDE, FEATURE_TRANSLATED};
use mgz_abi::shared_memory::{
    Attachment, BEHIND_WRAPPERS, ENV_NAME, LoadedModule, MAX_FUNCTIONS, PAGE_SIZE, attached,
    name_hash,
};
use mgz_perf::proc_maps;
use object::{Object, ObjectSymbol};
use process::{Module, Process};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;
use threads::{Borrowed, StoppedThreads};

/// Why a process cannot be attached to, with the remedy.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// Functions and data of the C library that the runtime needs beside [`BEHIND_WRAPPERS`].
const CALLED: [&str; 3] = ["__errno_location", "dl_iterate_phdr", "environ"];
const _: () = assert!(BEHIND_WRAPPERS.len() + CALLED.len() <= MAX_FUNCTIONS);

/// Maximum number of attempts to stop all threads where they can be attached to. Source: Chosen.
const MAX_ATTEMPTS: usize = 100;
/// Time between attempts. Source: Chosen.
const ATTEMPT_INTERVAL: Duration = Duration::from_millis(2);
/// Bytes of the stack and of the runtime's arguments, in the process.
const SCRATCH: u64 = 512 << 10;
/// Ticks during which the tables of a new module are checked, since it is in the loader's list
/// before it is linked. Source: Chosen.
const TICKS_OF_NEW_MODULE: u32 = 50;

/// A process that could be attached to.
pub struct Candidate {
    process: Process,
    /// Its instrumented modules.
    pub instrumented: Vec<Instrumented>,
}

impl Candidate {
    /// Examines a process without changing it.
    pub fn new(pid: i32) -> Result<Candidate, Refused> {
        let process = Process::open(pid)?;
        let modules = modules_of(&process)?;
        let mut instrumented = Vec::new();
        for module in &modules {
            let Ok(Some(note)) = instrumented_note(&process.path(&module.path)) else {
                continue;
            };
            let mut found = crate::program::modules::recordable(&module.path, note)
                .map_err(|e| Refused(e.to_string()))?;
            found.path.clone_from(&module.path);
            instrumented.push(found);
        }
        if instrumented.is_empty() {
            let name = modules
                .first()
                .map_or_else(String::new, |m| m.path.display().to_string());
            return Err(Refused(format!(
                "process {pid} ({name}): neither its executable nor a library of it is instrumented; run `mgz-instrument` on it and start the instrumented file, which costs nothing until somebody attaches"
            )));
        }
        if let Some(direct) = instrumented
            .iter()
            .find(|m| m.note.features & FEATURE_TRANSLATED == 0)
        {
            return Err(Refused(format!(
                "{}: not instrumented for burst mode; run `mgz-instrument --for burst` on the original and start that",
                direct.path.display()
            )));
        }
        const SANITIZED_ALLOCATOR: u32 = FEATURE_SANITIZER_INSIDE | FEATURE_OWN_ALLOCATOR;
        if let Some(inside) = instrumented
            .iter()
            .find(|m| m.note.features & SANITIZED_ALLOCATOR == SANITIZED_ALLOCATOR)
        {
            // The other runtime has the addresses of the functions that ours would replace, and
            // removes its threads' alternate stacks.
            return Err(Refused(format!(
                "{}: a sanitizer's runtime is part of it, which cannot learn of the recorder once it runs; record the program from its start, or link that runtime as a shared library (clang -shared-libsan)",
                inside.path.display()
            )));
        }
        Ok(Candidate {
            process,
            instrumented,
        })
    }

    /// Its command line.
    pub fn command(&self) -> Vec<String> {
        self.process.command()
    }
}

fn modules_of(process: &Process) -> Result<Vec<Module>, Refused> {
    process.modules().map_err(|e| {
        Refused(format!(
            "process {}: the loader's list of modules cannot be read: {e}",
            process.pid
        ))
    })
}

/// A process that is being recorded.
pub struct Attached {
    process: Process,
    /// Run-time addresses of the wrappers, by the name of the wrapped function.
    wrappers: BTreeMap<String, u64>,
    /// Modules whose tables lead to the wrappers, and entries of recent modules with the ticks
    /// during which they are checked.
    known: Vec<Module>,
    fresh: Vec<(Vec<(String, u64)>, u32)>,
    image: Image,
    /// Threads that were once found without a ring.
    suspects: BTreeSet<i32>,
    /// Threads that cannot be recorded.
    refused: BTreeSet<i32>,
    handle: OwnedFd,
    cpu_before: u64,
    cpu_now: u64,
    /// Sentences for the user.
    pub problems: Vec<String>,
}

/// The runtime in the process.
#[derive(Clone, Copy)]
struct Image {
    base: u64,
    length: u64,
    /// Offset of `mgz_attach_thread`.
    attach_thread: u64,
}

/// Why a stop failed.
enum Failed {
    /// A thread is at a point where it cannot be attached to.
    Busy,
    Refused(Refused),
}

impl From<Refused> for Failed {
    fn from(refused: Refused) -> Failed {
        Failed::Refused(refused)
    }
}

/// Attaches to a process: its threads are sampled from now on.
pub fn attach_to_process(
    candidate: Candidate,
    shared: &SharedMemory,
    runtime: &RuntimeImage,
    signal: u32,
) -> Result<Attached, Refused> {
    let process = candidate.process;
    let pid = process.pid;
    let flat =
        flatten(RUNTIME).map_err(|e| Refused(format!("the runtime cannot be laid out: {e:#}")))?;
    // SAFETY: integers only; the descriptor is new.
    let handle = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if handle < 0 {
        return Err(Refused(format!(
            "process {pid}: {}",
            io::Error::last_os_error()
        )));
    }
    // SAFETY: just opened, and owned by no one else.
    let handle = unsafe { OwnedFd::from_raw_fd(handle as i32) };
    for _ in 0..MAX_ATTEMPTS {
        let modules = modules_of(&process)?;
        let wanted: Vec<&str> = BEHIND_WRAPPERS
            .iter()
            .filter_map(|n| n.to_str().ok())
            .chain(CALLED)
            .collect();
        let functions = process::definitions(&process, &modules, &wanted);
        let held = StoppedThreads::all(pid)?;
        let cpu = process.cpu_ticks().unwrap_or(0);
        let stop = Stop {
            request: Request {
                process: &process,
                modules: &modules,
                functions: &functions,
                shared,
                runtime,
            },
            held: &held,
            handle: &handle,
            flat: &flat,
            signal,
        };
        match stop.take_in() {
            Ok((image, problems)) => {
                let mut wrappers = wrappers(image.base)?;
                for name in stood_in_for(&process, &modules) {
                    wrappers.remove(&name);
                }
                let mut attached = Attached {
                    process,
                    wrappers,
                    known: Vec::new(),
                    fresh: Vec::new(),
                    image,
                    suspects: BTreeSet::new(),
                    refused: BTreeSet::new(),
                    handle,
                    cpu_before: cpu,
                    cpu_now: cpu,
                    problems,
                };
                // The tables must change before the threads go on.
                attached.link(&modules);
                drop(held);
                return Ok(attached);
            }
            Err(Failed::Busy) => {}
            Err(Failed::Refused(refused)) => return Err(refused),
        }
        drop(held);
        std::thread::sleep(ATTEMPT_INTERVAL);
    }
    Err(Refused(format!(
        "process {pid}: its threads never stopped where the recorder can attach to them (perhaps it loads libraries all the time); try again"
    )))
}

/// Run-time addresses of the functions that the runtime wraps.
fn wrappers(base: u64) -> Result<BTreeMap<String, u64>, Refused> {
    let file = object::File::parse(RUNTIME).map_err(|e| Refused(e.to_string()))?;
    let names = file
        .dynamic_symbols()
        .filter(|s| s.is_definition())
        .filter_map(|s| Some((s.name().ok()?.to_owned(), base + s.address())));
    Ok(names
        .filter(|(name, _)| !name.starts_with("mgz_"))
        .collect())
}

/// Wrappers that know the effect of the function that they replace and do not call it, and that are
/// dispensable: the next trigger notices a handler that was set without the runtime. (Masks and
/// alternate stacks must be seen.)
const DISPENSABLE_WRAPPERS: [&str; 13] = [
    "sigaction",
    "__sigaction",
    "signal",
    "bsd_signal",
    "__bsd_signal",
    "sysv_signal",
    "__sysv_signal",
    "sigset",
    "sigignore",
    "siginterrupt",
    "sigpause",
    "vfork",
    "__vfork",
];

/// Those of them that a library of the program defines as well.
fn stood_in_for(process: &Process, modules: &[Module]) -> Vec<String> {
    let is_c_library = |module: &&Module| {
        let name = module.path.file_name().unwrap_or_default();
        mgz_abi::shared_memory::is_c_library(name.as_bytes())
    };
    let own = modules.iter().take_while(|module| !is_c_library(module));
    let own: Vec<Module> = own.cloned().collect();
    process::definitions(process, &own, &DISPENSABLE_WRAPPERS)
        .into_keys()
        .collect()
}

/// Address in the image of a function that the recorder calls.
fn entry(name: &str) -> Result<u64, Refused> {
    let file = object::File::parse(RUNTIME).map_err(|e| Refused(e.to_string()))?;
    let found = file
        .dynamic_symbols()
        .find(|s| s.name() == Ok(name))
        .map(|s| s.address());
    found.ok_or_else(|| Refused(format!("the runtime has no {name}")))
}

/// True if a stopped thread is at a point at which its registers may be replaced and its `%gs`
/// changed.
fn is_free(process: &Process, thread: i32, clones: &[(u64, u64)]) -> bool {
    let Ok(r) = user_registers(thread) else {
        return false;
    };
    if clones
        .iter()
        .any(|&(start, end)| (start..end).contains(&r.rip))
    {
        return false;
    }
    // A restartable sequence would not be restarted.
    let sequence = threads::rseq(thread)
        .and_then(|at| process.memory.word(at + 8).ok())
        .unwrap_or(0);
    if sequence == 0 {
        return true;
    }
    match (
        process.memory.word(sequence + 8),
        process.memory.word(sequence + 16),
    ) {
        (Ok(start), Ok(length)) => r.rip.wrapping_sub(start) >= length,
        _ => false,
    }
}

/// Error for a refusal of the runtime, or `None` if it did not refuse.
fn refusal(pid: i32, result: u64) -> Option<Refused> {
    let why = match result as usize {
        attached::DONE => return None,
        attached::NO_MEMORY => "it has no memory below 4 GiB left for the recorder's",
        attached::SHADOW_STACK => {
            "it has a shadow stack, which moved code would violate; start it with GLIBC_TUNABLES=glibc.cpu.hwcaps=-SHSTK"
        }
        attached::GS_USED => "it uses the %gs register, where records would go",
        attached::NO_RING => "there is no room for a thread's ring",
        _ => "the runtime failed in it",
    };
    Some(Refused(format!("process {pid}: {why}")))
}

/// A stop of all threads during which a process is attached to.
struct Stop<'a> {
    request: Request<'a>,
    held: &'a StoppedThreads,
    /// The process.
    handle: &'a OwnedFd,
    flat: &'a Flat,
    signal: u32,
}

impl Stop<'_> {
    fn take_in(&self) -> Result<(Image, Vec<String>), Failed> {
        let process = self.request.process;
        let earlier = self.earlier_image()?;
        filters::check(process.pid, &self.held.threads)?;
        let instruction = find_system_call(process).ok_or_else(|| {
            Refused(format!(
                "process {}: it has no vDSO, which is needed to make system calls in it",
                process.pid
            ))
        })?;
        let mut first = Borrowed::new(self.held.threads[0])
            .map_err(|e| self.no("its registers cannot be read", e))?;
        let protection = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
        let scratch = first
            .system_call(
                instruction,
                libc::SYS_mmap,
                [0, SCRATCH, protection, flags, u64::MAX, 0],
            )
            .map_err(|e| self.no("it cannot map memory", e))?;
        let mut caller = Caller {
            thread: &mut first,
            instruction,
            scratch,
            memory: &process.memory,
        };
        let shared = self.request.shared;
        let fd = caller
            .give(self.handle, shared)
            .map_err(|e| self.no("it cannot be given the recorder's memory", e))?;
        let mapped = map_whole(&mut caller, fd, shared.length())
            .map_err(|e| self.no("it cannot map the recorder's memory", e))
            .and_then(|whole| match earlier {
                Some(base) => Ok((whole, base)),
                None => Ok((whole, self.map_image(&mut caller, fd)?)),
            });
        caller.close(fd);
        let (whole, base) = mapped?;
        let image = self.start(&mut first, (base, whole), scratch)?;
        drop(first);
        let problems = self.take_threads(image, scratch + SCRATCH - 64);
        if let Ok(mut first) = Borrowed::new(self.held.threads[0]) {
            let _ = first.system_call(
                instruction,
                libc::SYS_munmap,
                [scratch, SCRATCH, 0, 0, 0, 0],
            );
        }
        Ok((image, problems?))
    }

    fn no(&self, what: &str, error: io::Error) -> Refused {
        let pid = self.request.process.pid;
        Refused(format!("process {pid}: {what}: {error}"))
    }

    /// The image that an earlier recorder left, if there is one. The error means that the process
    /// cannot be attached to now.
    fn earlier_image(&self) -> Result<Option<u64>, Failed> {
        let Request {
            process, modules, ..
        } = self.request;
        if !process.is_consistent() || modules_of(process)? != modules {
            return Err(Failed::Busy);
        }
        let earlier = process.image(self.flat)?;
        let mut clones: Vec<(u64, u64)> = earlier
            .iter()
            .map(|&base| (base, base + self.flat.bytes.len() as u64))
            .collect();
        for module in modules {
            if let Ok(Some(note)) = instrumented_note(&process.path(&module.path)) {
                clones.push((
                    note.clone_start.wrapping_add(module.bias),
                    note.clone_end.wrapping_add(module.bias),
                ));
            }
        }
        let mut threads = self.held.threads.iter();
        if !threads.all(|&t| is_free(process, t, &clones)) {
            return Err(Failed::Busy);
        }
        Ok(earlier)
    }

    /// Starts the runtime at `base`, with the recorder's memory at `whole`.
    fn start(
        &self,
        first: &mut Borrowed,
        (base, whole): (u64, u64),
        scratch: u64,
    ) -> Result<Image, Refused> {
        let image = Image {
            base,
            length: self.flat.bytes.len() as u64,
            attach_thread: entry("mgz_attach_thread")?,
        };
        let request = self
            .request
            .write(scratch, whole)
            .map_err(|e| self.no("its memory cannot be written", e))?;
        let result = first
            .call(
                base + entry("mgz_attach")?,
                [request, 0],
                scratch + SCRATCH - 64,
            )
            .map_err(|e| self.no("the runtime could not be started", e))?;
        match refusal(self.request.process.pid, result) {
            Some(refused) => Err(refused),
            None => Ok(image),
        }
    }

    /// Maps the runtime's image from the recorder's memory, whose descriptor in the process is
    /// `fd`, and adds its address at its relocations.
    fn map_image(&self, caller: &mut Caller, fd: u64) -> Result<u64, Refused> {
        let (flat, offset) = (self.flat, self.request.shared.image_offset());
        let (protection, private) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE as u64);
        let length = flat.bytes.len() as u64;
        let arguments = [0, length, protection as u64, private, fd, offset];
        let base = caller
            .call(libc::SYS_mmap, arguments)
            .map_err(|e| self.no("it cannot map the runtime", e))?;
        for (place, value) in flat.places() {
            caller
                .memory
                .write(base + place, &(base + value).to_le_bytes())
                .map_err(|e| self.no("its memory cannot be written", e))?;
        }
        let executable = (libc::PROT_READ | libc::PROT_EXEC) as u64;
        let (start, bytes) = (base + flat.text.start, flat.text.end - flat.text.start);
        caller
            .call(libc::SYS_mprotect, [start, bytes, executable, 0, 0, 0])
            .map_err(|e| self.no("it cannot make the runtime executable", e))?;
        Ok(base)
    }

    /// Lets all threads set up their rings. The result names those that are not recorded; if none
    /// is recorded, it is an error.
    fn take_threads(&self, image: Image, stack: u64) -> Result<Vec<String>, Refused> {
        let mut problems = Vec::new();
        let mut taken = 0;
        for &thread in &self.held.threads {
            match take_thread(image, thread, stack, self.signal) {
                Ok(0) => taken += 1,
                Ok(result) => problems.extend(
                    refusal(self.request.process.pid, result)
                        .map(|r| format!("thread {thread} is not recorded: {r}")),
                ),
                Err(error) => problems.push(format!("thread {thread} is not recorded: {error}")),
            }
        }
        match problems.first() {
            Some(problem) if taken == 0 => Err(Refused(problem.clone())),
            _ => Ok(problems),
        }
    }
}

/// Lets one thread set up its ring.
fn take_thread(image: Image, thread: i32, stack: u64, signal: u32) -> io::Result<u64> {
    let mut borrowed = Borrowed::new(thread)?;
    let (mask, pointer) = (borrowed.mask(), borrowed.stack());
    let result = borrowed.call(image.base + image.attach_thread, [mask, pointer], stack)?;
    if result as usize == attached::DONE {
        // These signals are never really blocked; the runtime keeps the program's mask.
        borrowed.set_mask(mask & !(1 << (libc::SIGSEGV - 1) | 1 << (signal - 1)));
    }
    Ok(result)
}

/// Maps all of the recorder's memory, whose descriptor in the process is `fd`.
fn map_whole(caller: &mut Caller, fd: u64, length: u64) -> io::Result<u64> {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let flags = (libc::MAP_SHARED | libc::MAP_NORESERVE) as u64;
    caller.call(libc::SYS_mmap, [0, length, protection, flags, fd, 0])
}

/// A system call instruction in the vDSO.
fn find_system_call(process: &Process) -> Option<u64> {
    let maps = process.maps().ok()?;
    let vdso = proc_maps::lines(&maps).find(|m| m.name == "[vdso]")?;
    let mut code = vec![0; (vdso.end - vdso.start) as usize];
    process.memory.read(vdso.start, &mut code).ok()?;
    let at = code.windows(2).position(|w| w == [0x0f, 0x05])?;
    Some(vdso.start + at as u64)
}

/// Facts that are passed to the runtime.
struct Request<'a> {
    process: &'a Process,
    modules: &'a [Module],
    functions: &'a BTreeMap<String, u64>,
    shared: &'a SharedMemory,
    runtime: &'a RuntimeImage,
}

impl Request<'_> {
    /// Writes it into the process, where the recorder's memory is at `whole`; returns its address.
    fn write(&self, at: u64, whole: u64) -> io::Result<u64> {
        let text = |text: &str| {
            let mut bytes = [0u8; 256];
            let length = text.len().min(bytes.len() - 1);
            bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
            bytes
        };
        let mut names = at + (size_of::<Attachment>() as u64).next_multiple_of(PAGE_SIZE as u64);
        let mut list = Vec::new();
        for module in self.modules {
            // The runtime finds the executable's path itself.
            let name = if module.is_program {
                String::new()
            } else {
                module.path.display().to_string()
            };
            self.process
                .memory
                .write(names, &[name.as_bytes(), b"\0"].concat())?;
            list.push(LoadedModule {
                bias: module.bias,
                phdr: module.phdr,
                phnum: module.phnum,
                name: names,
            });
            names += name.len() as u64 + 1;
        }
        let modules = names.next_multiple_of(PAGE_SIZE as u64);
        // Half of the scratch memory is the stack.
        if modules + (list.len() * size_of::<LoadedModule>()) as u64 > at + SCRATCH / 2 {
            return Err(io::Error::other("it has too many modules"));
        }
        let mut functions = [[0; 2]; MAX_FUNCTIONS];
        for (place, (name, &address)) in functions.iter_mut().zip(self.functions) {
            *place = [name_hash(name.as_bytes()), address];
        }
        let request = Attachment {
            shared_entry: text(&format!("{ENV_NAME}={}", self.shared.path())),
            own_path: text(&self.runtime.path()),
            shared: whole,
            shared_bytes: self.shared.length(),
            hwcap2: self.process.hwcap2(),
            vdso: self.process.vdso(),
            debug: self.process.debug,
            modules,
            module_count: list.len() as u64,
            functions,
        };
        self.process.memory.write(modules, plain(&list))?;
        self.process
            .memory
            .write(at, plain(std::slice::from_ref(&request)))?;
        Ok(at)
    }
}

/// Bytes of structures that have no padding.
fn plain<T>(list: &[T]) -> &[u8] {
    // SAFETY: both structures are made of integers only, without gaps.
    unsafe { std::slice::from_raw_parts(list.as_ptr().cast(), size_of_val(list)) }
}

impl Attached {
    /// Process id.
    pub fn pid(&self) -> u32 {
        self.process.pid as u32
    }

    /// A descriptor that can be read from when the process has ended.
    pub fn handle(&self) -> io::Result<File> {
        self.handle.try_clone().map(File::from)
    }

    /// User and system time since recording began.
    pub fn cpu(&self) -> Duration {
        // SAFETY: an integer call.
        let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as f64;
        Duration::from_secs_f64((self.cpu_now - self.cpu_before) as f64 / ticks)
    }

    /// To be called often: attaches to new threads and handles new modules. `threads`: ids of those
    /// that have a ring.
    pub fn tick(&mut self, threads: &dyn Fn(i32) -> bool, signal: u32) {
        self.cpu_now = self
            .process
            .cpu_ticks()
            .unwrap_or(self.cpu_now)
            .max(self.cpu_now);
        if self.process.is_consistent()
            && let Ok(modules) = self.process.modules()
            && modules != self.known
        {
            self.link(&modules);
        }
        for (entries, ticks) in &mut self.fresh {
            lead(&self.process, &self.wrappers, entries);
            *ticks -= 1;
        }
        self.fresh.retain(|(_, ticks)| *ticks > 0);
        let without: BTreeSet<i32> = threads::tasks(self.process.pid)
            .into_iter()
            .filter(|&t| !threads(t) && !self.refused.contains(&t))
            .collect();
        for &thread in without.intersection(&self.suspects.clone()) {
            self.take_late(thread, signal);
        }
        self.suspects = without;
    }

    /// Attaches to a thread that no wrapper has seen.
    fn take_late(&mut self, thread: i32, signal: u32) {
        let Ok(Some(_held)) = StoppedThreads::one(self.process.pid, thread) else {
            return;
        };
        let own = (self.image.base, self.image.base + self.image.length);
        if !is_free(&self.process, thread, &[own]) {
            return;
        }
        let taken = (|| {
            let instruction = find_system_call(&self.process).ok_or(io::ErrorKind::NotFound)?;
            let protection = (libc::PROT_READ | libc::PROT_WRITE) as u64;
            let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
            let scratch = Borrowed::new(thread)?.system_call(
                instruction,
                libc::SYS_mmap,
                [0, SCRATCH, protection, flags, u64::MAX, 0],
            )?;
            let result = take_thread(self.image, thread, scratch + SCRATCH - 64, signal);
            Borrowed::new(thread)?.system_call(
                instruction,
                libc::SYS_munmap,
                [scratch, SCRATCH, 0, 0, 0, 0],
            )?;
            result
        })();
        match taken {
            Ok(0) => {}
            Ok(result) => {
                self.refused.insert(thread);
                self.problems.extend(
                    refusal(self.process.pid, result)
                        .map(|r| format!("thread {thread} is not recorded: {r}")),
                );
            }
            Err(error) => {
                self.refused.insert(thread);
                self.problems
                    .push(format!("thread {thread} is not recorded: {error}"));
            }
        }
    }

    /// Redirects the tables of new modules to the wrappers.
    fn link(&mut self, modules: &[Module]) {
        let new: Vec<Module> = modules
            .iter()
            .filter(|m| !self.known.contains(m))
            .cloned()
            .collect();
        for module in new {
            match self.process.file(&module.path) {
                Ok(data) => {
                    let entries = process::linked(&data, module.bias, &|name| self.wrappers.contains_key(name));
                    lead(&self.process, &self.wrappers, &entries);
                    self.fresh.push((entries, TICKS_OF_NEW_MODULE));
                }
                Err(error) => self.problems.push(format!(
                    "{}: cannot be read any more ({error}): threads and signal handlers that it creates are found late",
                    module.path.display()
                )),
            }
        }
        self.known = modules.to_vec();
    }
}

/// Redirects entries of global offset tables to the wrappers, if the loader has filled them.
fn lead(process: &Process, wrappers: &BTreeMap<String, u64>, entries: &[(String, u64)]) {
    for (name, entry) in entries {
        let Some(&wrapper) = wrappers.get(name) else {
            continue;
        };
        // An entry that is not relocated yet holds no address of this process.
        const MIN_ADDRESS: u64 = 1 << 16;
        let Ok(now) = process.memory.word(*entry) else {
            continue;
        };
        if now != wrapper && now >= MIN_ADDRESS && process.memory.word(now).is_ok() {
            // On failure, the C library's function stays there.
            let _ = process.memory.write(*entry, &wrapper.to_le_bytes());
        }
    }
}
