//! The memory that the recorder and the traced processes share: one sparse file (a memfd), mapped
//! by both.
//!
//! This crate is compiled twice: for the recorder, and by `collector/build.rs` without the standard
//! library for the runtime. So this file uses `core` only.
//!
//! ```text
//! 0                     Header (settings, counters, module table)
//! HEADER_BYTES          thread slot 0: Control page | [ring mode: the ring's physical pages] | CHUNKS chunks
//! HEADER_BYTES + stride thread slot 1: …
//! ```
//!
//! The recorder creates the file, writes the settings and never changes them. A process claims a
//! thread slot by changing [`Control::state`] from STATE_FREE to STATE_LIVE, and maps its pages
//! into low memory. From then on one thread writes it: a queue of chunks with the thread as the
//! only producer ([`Control::published`]) and the recorder as the only consumer
//! ([`Control::drained`]). If a thread dies, the unpublished slots in its ring are read from
//! `cursor` and `base` afterwards, by the process that changes the state from STATE_LIVE to
//! STATE_CLOSING.
//!
//! The traced program can overwrite all of this memory, so the recorder checks every number it
//! reads.

use crate::phases::{BOUNDARIES, Phases};
use core::cell::Cell;
use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// First word of the file.
pub const MAGIC: u64 = 0x3152_4553_5a47_4d00;
/// Version of this layout; runtime and recorder are always from one build.
pub const VERSION: u32 = 11;
/// Page size.
pub const PAGE_SIZE: usize = 4096;
/// Bytes of a line of the processor's caches.
pub const CACHE_LINE: usize = 64;
/// Number of thread slots in the file.
pub const MAX_THREADS: usize = 2048;
/// Rows of the module table: the maximum number of modules that can wait for the recorder.
pub const MAX_MODULES: usize = 1024;
/// Length of a path in the module table, with its terminating zero.
pub const PATH_BYTES: usize = 1024;
/// Number of chunks of a thread's queue; in `burst` there may be more, see [`Header::places`].
pub const CHUNKS: usize = 4;
/// Entries of a thread's queue: the maximum number of chunks that can wait for the recorder.
pub const QUEUE: usize = 24;
/// Environment variable with the path of this memory.
pub const ENV_NAME: &str = "MGZ_RUNTIME";
/// Environment variable with the runtime's path, and behind a colon the value of `LD_PRELOAD`
/// before the recorder changed it, if there was one.
pub const PRELOAD_NAME: &str = "MGZ_PRELOAD";

/// Position of the runtime in a list of preloaded libraries. It comes last, because replacements of
/// the C library's functions in the others call the next library, which must be the runtime. But it
/// comes before the C library, if the list contains that.
pub fn place_in_preload(list: &[u8]) -> usize {
    let mut start = 0;
    for part in list.split(|b| b": ".contains(b)) {
        if is_c_library(part) {
            return start;
        }
        start += part.len() + 1;
    }
    list.len()
}

/// True if a library is the runtime of a sanitizer that replaces the allocator.
pub fn is_sanitizer(name: &[u8]) -> bool {
    const STEMS: [&[u8]; 9] = [
        b"libasan.so",
        b"libtsan.so",
        b"liblsan.so",
        b"libhwasan.so",
        b"libclang_rt.asan",
        b"libclang_rt.tsan",
        b"libclang_rt.msan",
        b"libclang_rt.lsan",
        b"libclang_rt.hwasan",
    ];
    let name = name.rsplit(|&b| b == b'/').next().unwrap_or(name);
    STEMS.iter().any(|stem| name.starts_with(stem))
}

/// True if a library is the runtime of any sanitizer.
pub fn is_any_sanitizer(name: &[u8]) -> bool {
    const OTHER_STEMS: [&[u8]; 2] = [b"libubsan.so", b"libclang_rt."];
    let file = name.rsplit(|&b| b == b'/').next().unwrap_or(name);
    is_sanitizer(name) || OTHER_STEMS.iter().any(|stem| file.starts_with(stem))
}

/// True for a path or name of the C library, or of one of the libraries into which older versions
/// were split.
pub fn is_c_library(path: &[u8]) -> bool {
    const STEMS: [&[u8]; 9] = [
        b"libc.so.",
        b"libpthread.so.",
        b"libdl.so.",
        b"librt.so.",
        b"libutil.so.",
        b"libanl.so.",
        b"libc.musl-",
        b"ld-linux",
        b"ld-musl",
    ];
    let name = path.rsplit(|&b| b == b'/').next().unwrap_or(path);
    STEMS.iter().any(|stem| name.starts_with(stem))
}

/// [`Header::mode`]: install nothing; for the single-step reference.
pub const MODE_OFF: u32 = 0;
/// [`Header::mode`]: keep every record.
pub const MODE_FULL: u32 = 1;
/// [`Header::mode`]: keep the last `window` records of each `period`.
pub const MODE_RING: u32 = 2;
/// [`Header::mode`]: the original runs; triggers move threads into the clone for `window` records.
pub const MODE_BURST: u32 = 3;
/// [`Header::mode`]: as `MODE_FULL`; the recorder counts records and keeps none.
pub const MODE_COUNT: u32 = 4;

/// [`Header::trigger_kind`]: a `perf_event` clock of CPU time in user space.
pub const TRIGGER_EVENT: u32 = 1;
/// [`Header::trigger_kind`]: a POSIX timer of CPU time.
pub const TRIGGER_TIMER: u32 = 2;
/// [`Header::trigger_kind`]: a `perf_event` counter of loads in user space.
pub const TRIGGER_LOADS: u32 = 3;
/// [`Header::trigger_type`] and [`Header::trigger_config`] of CPU time: PERF_TYPE_SOFTWARE,
/// PERF_COUNT_SW_TASK_CLOCK.
pub const CPU_TIME: (u32, u64) = (1, 1);

/// Thread slot: free.
pub const STATE_FREE: u32 = 0;
/// Thread slot: a thread records (or has died without notice).
pub const STATE_LIVE: u32 = 1;
/// Thread slot: the data of a dead thread is being published.
pub const STATE_CLOSING: u32 = 2;

/// A cause in [`ChunkInfo::cause`], as in spill files: a whole window, or a full chunk.
pub const CAUSE_WHOLE: u32 = 0;
/// The thread ended.
pub const CAUSE_END_OF_THREAD: u32 = 1;
/// Burst: a signal arrived that the program handles.
pub const CAUSE_SIGNAL: u32 = 9;
/// Burst: the thread stayed too long in code without a clone, or did not return from it as
/// expected.
pub const CAUSE_OUTSIDE: u32 = 10;
/// Burst: the thread returned to code without a clone.
pub const CAUSE_RETURNED: u32 = 11;
/// Burst: code without a clone might have called code that has one.
pub const CAUSE_CALLBACK: u32 = 12;
/// Burst: the thread entered code of an instrumented file that has no clone.
pub const CAUSE_NO_CLONE: u32 = 13;
/// A recorded phase ended ([`crate::phases`]).
pub const CAUSE_PHASE: u32 = 14;

/// Kind of a [`pace`]: the original code executed this many records until a watchpoint was hit.
pub const PACE_WATCHED: u32 = 1;
/// As [`PACE_WATCHED`] over few records: shows the cost of the measurement.
pub const PACE_WATCHED_NEAR: u32 = 2;
/// Kind of a [`pace`]: the clone wrote this many records.
pub const PACE_LAP: u32 = 3;
/// As [`PACE_LAP`] over few records.
pub const PACE_LAP_NEAR: u32 = 4;

/// Counters of the runtime, see [`Header::counters`].
pub mod count {
    /// Threads that found no free thread slot, or no low memory for their ring.
    pub const THREADS_WITHOUT_RING: usize = 0;
    /// Times that a thread used a ring that it does not own.
    pub const FOREIGN_THREADS: usize = 1;
    /// Signals that interrupted a probe whose state could not be found.
    pub const LOST_STATES: usize = 2;
    /// Threads that gave up because the recorder was gone or stopped the recording.
    pub const STOPPED: usize = 3;
    /// Modules that could not be reported to the recorder because it did not read its table in
    /// time.
    pub const MODULES_UNTOLD: usize = 4;
    /// Handlers that changed their context: the current region was cut.
    pub const CUT_REGIONS: usize = 5;
    /// Burst: signals received.
    pub const TRIGGERS: usize = 6;
    /// Burst: windows begun.
    pub const WINDOWS: usize = 7;
    /// Burst: signals outside of instrumented code, or during a system call.
    pub const TRIGGERS_OUTSIDE: usize = 8;
    /// Burst: signals that found a window open.
    pub const TRIGGERS_BUSY: usize = 9;
    /// Burst: windows that ended before their first record.
    pub const EMPTY_WINDOWS: usize = 10;
    /// Burst: threads that got no trigger.
    pub const THREADS_WITHOUT_TRIGGER: usize = 11;
    /// Burst: signals without room for a window, since the recorder was late.
    pub const TRIGGERS_NO_ROOM: usize = 12;
    /// Burst: times that the rate of a thread's triggers was halved, since they left the program no
    /// time.
    pub const TRIGGERS_SLOWED: usize = 13;
    /// Threads and programs that are not recorded because of a request of the program (a filter of
    /// system calls, another user).
    pub const FORBIDDEN: usize = 14;
    /// Entry jumps that were taken back (or not written) because handlers read the code under them.
    pub const ENTRIES_TAKEN_BACK: usize = 15;
    /// Programs in which the runtime started, with or without instrumentation.
    pub const PROGRAMS: usize = 16;
    /// System calls that make threads or programs but could not be intercepted, since their code
    /// could not be changed.
    pub const CALLS_UNSEEN: usize = 17;
    /// Threads that have set the `%gs` base themselves.
    pub const GS_TAKEN: usize = 18;
    /// Burst: signals outside of the recorded phases ([`crate::phases`]).
    pub const TRIGGERS_OUTSIDE_PHASES: usize = 19;
    /// Processes that opened their memory as a file (`/proc/self/mem`) in a way that may show or
    /// change recorded code.
    pub const MEMORY_OPENED: usize = 20;
    /// Jumps and calls from clones to an instruction of a cloned function at which the clone cannot
    /// be entered: the original continued there, unrecorded (`full`, `ring`, `count`).
    pub const JUMPS_UNSEEN: usize = 21;
    /// Threads whose system calls are dispatched to the program.
    pub const CALLS_DISPATCHED: usize = 22;
    /// Steps of the trap flag that the program has seen in clones.
    pub const STEPS_IN_CLONES: usize = 23;
    /// Number of counters.
    pub const NUMBER: usize = 32;
    /// Names for the manifest's `triggers`.
    pub const TRIGGER_NAMES: [(usize, &str); 9] = [
        (TRIGGERS, "came"),
        (WINDOWS, "windows"),
        (TRIGGERS_OUTSIDE, "outside"),
        (TRIGGERS_BUSY, "busy"),
        (TRIGGERS_NO_ROOM, "no_room"),
        (EMPTY_WINDOWS, "empty"),
        (THREADS_WITHOUT_TRIGGER, "threads_without"),
        (TRIGGERS_SLOWED, "slowed"),
        (TRIGGERS_OUTSIDE_PHASES, "outside_phases"),
    ];
    /// Names for the manifest's `dropped`.
    pub const NAMES: [(usize, &str); 13] = [
        (THREADS_WITHOUT_RING, "threads_without_ring"),
        (FOREIGN_THREADS, "foreign_threads"),
        (LOST_STATES, "lost_probe_states"),
        (STOPPED, "threads_stopped"),
        (MODULES_UNTOLD, "modules_untold"),
        (CUT_REGIONS, "cut_regions"),
        (FORBIDDEN, "forbidden"),
        (ENTRIES_TAKEN_BACK, "entries_taken_back"),
        (GS_TAKEN, "gs_base_taken"),
        (MEMORY_OPENED, "memory_opened"),
        (JUMPS_UNSEEN, "jumps_unseen"),
        (CALLS_DISPATCHED, "calls_dispatched"),
        (STEPS_IN_CLONES, "steps_in_clones"),
    ];
}

/// Start of the shared memory.
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u32,
    /// `MODE_*`.
    pub mode: u32,
    /// Process id of the recorder.
    pub recorder: u32,
    /// The recorder sets this to 1 to end recording (disk full, size limit).
    pub stop: AtomicU32,
    /// Records between the ends of successive windows.
    pub period: u64,
    /// Records in a window.
    pub window: u64,
    /// Bytes of a chunk, a multiple of [`PAGE_SIZE`]. In ring mode at least `window` slots.
    pub chunk_bytes: u64,
    /// Ring mode: bytes of the ring's physical memory, a power of two of at least two windows;
    /// else 0.
    pub ring_bytes: u64,
    /// Bytes of a thread slot in the file.
    pub stride: u64,
    /// Burst: average number of [`Header::trigger_config`] events of a thread between two triggers:
    /// nanoseconds of CPU time, or loads.
    pub trigger_period: u64,
    /// Burst: number of the signal that triggers send.
    pub signal: u32,
    /// Burst: `TRIGGER_*` of the last thread that began.
    pub trigger_kind: AtomicU32,
    /// Futex: incremented whenever a thread publishes a chunk or a module is reported.
    pub doorbell: AtomicU32,
    /// Number of rows of `modules` that were claimed.
    pub module_count: AtomicU32,
    /// See [`count`].
    pub counters: [AtomicU64; FIRST_COUNTERS],
    /// The runtime for executables without a loader.
    pub image: StaticImage,
    /// Number of chunks in a thread slot, at most [`QUEUE`]: [`CHUNKS`], and in `burst` more and
    /// smaller ones, so that the recorder needs to poll less often. A thread maps those behind the
    /// first four only when it needs them.
    pub places: u32,
    /// Burst: the event counted between triggers, as `type` of `struct perf_event_attr`.
    pub trigger_type: u32,
    /// Burst: the event's `config`.
    pub trigger_config: u64,
    /// Burst: nanoseconds from one tick of the kernel to the next, if windows are begun by timers,
    /// which the kernel checks at ticks; 0 if by events.
    pub trigger_tick: u64,
    /// Modules in the order in which they were loaded.
    pub modules: [ModuleRow; MAX_MODULES],
    /// Burst: entries of `elsewhere` that were claimed: entry k replaces entry k −
    /// [`ELSEWHERE_ENTRIES`], even if that was not read.
    pub elsewhere_count: AtomicU64,
    /// Burst: triggers that found a thread in code without a clone.
    pub elsewhere: [ElsewhereEntry; ELSEWHERE_ENTRIES],
    /// Burst: sum of the periods of all triggers.
    pub periods: AtomicU64,
    /// Burst: sum of the periods of triggers at which no window can begin.
    pub periods_outside: AtomicU64,
    /// Rows of `modules` that the recorder has read: row k replaces row k − [`MAX_MODULES`].
    pub modules_read: AtomicU32,
    /// Number of thread slots tried so far; modulo [`MAX_THREADS`], the next one to try.
    pub next_slot: AtomicU64,
    /// Path of the log of heap blocks ([`crate::heap_log`]), zero-terminated; empty if none is
    /// kept. Written before any process starts.
    pub heap_path: [u8; 64],
    /// The counters behind those of `counters`, see [`Header::counter`].
    pub more_counters: [AtomicU64; count::NUMBER - FIRST_COUNTERS],
    /// Folder of the trace's sidecars, named by their identities in hex, zero-terminated: used for
    /// copies of files that the program has made itself, which have no sidecar beside them. Empty
    /// if there is none.
    pub sidecars: [u8; PATH_BYTES],
    /// Number of the recorder's namespace of process ids (`/proc/self/ns/pid`); 0 if unknown. Ids
    /// from another namespace cannot be assigned to processes.
    pub process_namespace: u64,
    /// Rows of `stacks` that were claimed: row k replaces row k − [`STACK_ROWS`], even if that was
    /// not read.
    pub stack_count: AtomicU64,
    /// Stacks of threads when they begin.
    pub stacks: [StackRow; STACK_ROWS],
    /// Burst: millionths of the program's CPU time that recording may take; 0: triggers come at
    /// `trigger_period`.
    pub budget_share: u64,
    /// Burst: nanoseconds that recording may take in the first half second.
    pub budget_least: u64,
    /// Burst: nanoseconds that a trigger by the event clock costs a thread by itself.
    pub trigger_toll: u64,
    /// Burst: cost of a window's signals, nanoseconds: entry and return, for the trigger and for
    /// the fault.
    pub signal_ns: u64,
    /// Burst: CPU time of all threads, measured by their triggers, nanoseconds.
    pub cpu: AtomicU64,
    /// Burst: part of `cpu` that recording took, nanoseconds.
    pub spent: AtomicU64,
    /// Burst: average cost of recent windows without their triggers, nanoseconds.
    pub window_ns: AtomicU64,
    /// Stacks at the start of windows.
    pub stack_log: crate::stack_log::StackLog,
    /// Parts of the run that are recorded.
    pub phases: Phases,
    /// `MODE_COUNT`: offset of the first [area of counters](crate::counters) in the file; else 0.
    pub counters_at: u64,
}

/// Rows of [`Header::stacks`]: more threads than can begin between two polls of the recorder.
pub const STACK_ROWS: usize = 4096;

/// A thread's stack.
#[repr(C)]
pub struct StackRow {
    /// Number of the row + 1 once it is complete; 0 while it is written.
    pub ready: AtomicU64,
    /// System process id.
    pub pid: AtomicU32,
    /// System thread id.
    pub tid: AtomicU32,
    /// An address in the stack, near its top if the thread has just begun.
    pub at: AtomicU64,
    /// The thread's `%fs` base. The C library keeps the thread's own data there, at the top of the
    /// memory that holds the stack.
    pub thread_area: AtomicU64,
    /// Lowest address, if the program has provided the memory; else 0.
    pub low: AtomicU64,
    /// Requested length, bytes; 0 if unknown.
    pub bytes: AtomicU64,
    /// CLOCK_MONOTONIC when the thread began.
    pub begin_ns: AtomicU64,
}

/// Length of [`Header::counters`], whose following fields must keep their offsets.
const FIRST_COUNTERS: usize = 16;

impl Header {
    /// One of [`count`].
    pub fn counter(&self, what: usize) -> &AtomicU64 {
        match what.checked_sub(FIRST_COUNTERS) {
            None => &self.counters[what],
            Some(rest) => &self.more_counters[rest % (count::NUMBER - FIRST_COUNTERS)],
        }
    }
}

/// Length of [`Header::elsewhere`]: on most machines more than the triggers between two polls of
/// the recorder. Missed entries are not needed, since the others are a sample of them.
pub const ELSEWHERE_ENTRIES: usize = 1024;

/// A trigger that found a thread in code without a clone.
#[repr(C)]
pub struct ElsewhereEntry {
    /// Number of the entry + 1 once it is complete; 0 while it is written.
    pub ready: AtomicU64,
    /// Address of the next instruction.
    pub address: AtomicU64,
    /// The trigger's period.
    pub period: AtomicU64,
    /// CLOCK_MONOTONIC, ns.
    pub time_ns: AtomicU64,
    /// System process id.
    pub process: AtomicU64,
}

/// Location of the runtime's image in this memory, for executables without a loader. Their entry
/// point reads it from the file (`STATIC_*` in [`crate::module_note`]).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct StaticImage {
    /// [`STATIC_MAGIC`](crate::module_note::STATIC_MAGIC).
    pub magic: u64,
    /// Offset in the file, a multiple of [`PAGE_SIZE`].
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// Offset of `mgz_enter` in the image.
    pub entry: u64,
    /// Offset of the list of relocations in the image: a 32-bit count, then this many offsets of
    /// words to which the image's address is to be added.
    pub relocations: u64,
    /// The code, offsets in the image.
    pub text_start: u64,
    /// See `text_start`.
    pub text_end: u64,
}

/// Message of the recorder to the runtime when it is inserted into a running process (`attach`).
#[repr(C)]
pub struct Attachment {
    /// `MGZ_RUNTIME=` and the path of the shared memory, for programs that the process executes,
    /// zero-terminated.
    pub shared_entry: [u8; 256],
    /// Path of the runtime's shared object, for the same programs, zero-terminated.
    pub own_path: [u8; 256],
    /// Address of a mapping of all the shared memory.
    pub shared: u64,
    /// Its length.
    pub shared_bytes: u64,
    /// AT_HWCAP2.
    pub hwcap2: u64,
    /// AT_SYSINFO_EHDR.
    pub vdso: u64,
    /// Address of the loader's `r_debug`.
    pub debug: u64,
    /// Address of the array of [`LoadedModule`]s.
    pub modules: u64,
    /// Their number.
    pub module_count: u64,
    /// The C library's functions: [`name_hash`] and address; 0 ends the list.
    pub functions: [[u64; 2]; MAX_FUNCTIONS],
}

/// Maximum number of functions in [`Attachment::functions`].
pub const MAX_FUNCTIONS: usize = 96;

/// Functions of the C library that the runtime wraps, and a few more that it calls. Not all
/// libraries have all of them.
pub const BEHIND_WRAPPERS: [&CStr; 85] = [
    c"_Fork",
    c"__bsd_signal",
    c"__longjmp_chk",
    c"__open64_2",
    c"__open_2",
    c"__openat64_2",
    c"__openat_2",
    c"__rseq_offset",
    c"__sigaction",
    c"__sysv_signal",
    c"__xpg_sigpause",
    c"_longjmp",
    c"aio_fsync",
    c"aio_fsync64",
    c"aio_read",
    c"aio_read64",
    c"aio_write",
    c"aio_write64",
    c"arch_prctl",
    c"bsd_signal",
    c"clone",
    c"close",
    c"close_range",
    c"closefrom",
    c"daemon",
    c"epoll_pwait",
    c"epoll_pwait2",
    c"execl",
    c"execle",
    c"execlp",
    c"execv",
    c"execve",
    c"execvp",
    c"execvpe",
    c"fexecve",
    c"fileno",
    c"fopen",
    c"fopen64",
    c"fork",
    c"forkpty",
    c"getaddrinfo_a",
    c"lio_listio",
    c"lio_listio64",
    c"longjmp",
    c"mlockall",
    c"mq_notify",
    c"open",
    c"open64",
    c"openat",
    c"openat64",
    c"posix_spawn",
    c"posix_spawnp",
    c"ppoll",
    c"prctl",
    c"pselect",
    c"pthread_attr_getstack",
    c"pthread_attr_getstacksize",
    c"pthread_attr_init",
    c"pthread_cancel",
    c"pthread_create",
    c"pthread_detach",
    c"pthread_setcanceltype",
    c"pthread_sigmask",
    c"setcontext",
    c"sigaction",
    c"sigaltstack",
    c"sigblock",
    c"siggetmask",
    c"sighold",
    c"sigignore",
    c"siginterrupt",
    c"siglongjmp",
    c"signal",
    c"sigpause",
    c"sigprocmask",
    c"sigrelse",
    c"sigset",
    c"sigsetmask",
    c"sigsuspend",
    c"swapcontext",
    c"syscall",
    c"sysv_signal",
    c"thrd_create",
    c"timer_create",
    c"vfork",
];

/// A module of a process that is already running.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LoadedModule {
    /// Run-time address minus link-time address.
    pub bias: u64,
    /// Address of its program headers.
    pub phdr: u64,
    /// Their number.
    pub phnum: u64,
    /// Address of its path, zero-terminated.
    pub name: u64,
}

/// Results of the functions of `attach`.
pub mod attached {
    /// All is set up.
    pub const DONE: usize = 0;
    /// The shared memory cannot be opened or mapped.
    pub const NO_MEMORY: usize = 1;
    /// The thread has a shadow stack.
    pub const SHADOW_STACK: usize = 2;
    /// The program uses `%gs`.
    pub const GS_USED: usize = 3;
    /// There is no room for the thread's ring.
    pub const NO_RING: usize = 4;
}

/// FNV-1a of a function's name.
pub const fn name_hash(name: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    let mut i = 0;
    while i < name.len() {
        hash = (hash ^ name[i] as u64).wrapping_mul(0x100_0000_01b3);
        i += 1;
    }
    hash
}

const _: () = assert!(
    core::mem::offset_of!(Header, image) == 216
        && core::mem::offset_of!(Control, system_hooks) == 104
        && core::mem::offset_of!(Control, counters) == crate::counters::GS_COUNTERS as usize,
    "abi::STATIC_AT, abi::GS_HOOK_BEFORE, abi::GS_COUNTERS"
);

/// Bytes before the first thread slot.
pub const HEADER_BYTES: usize = size_of::<Header>().next_multiple_of(PAGE_SIZE);

/// [`ModuleRow::result`]: instrumented, patches installed (or, in `off`, deliberately not).
pub const MODULE_OK: u32 = 0;
/// [`ModuleRow::result`]: made by another version of mgz.
pub const MODULE_VERSION: u32 = 1;
/// [`ModuleRow::result`]: PT flavour, which this backend cannot record.
pub const MODULE_FLAVOUR: u32 = 2;
/// [`ModuleRow::result`]: the sidecar could not be opened.
pub const MODULE_NO_SIDECAR: u32 = 3;
/// [`ModuleRow::result`]: the sidecar belongs to another file.
pub const MODULE_OTHER_SIDECAR: u32 = 4;
/// [`ModuleRow::result`]: its record ids overlap with those of another module.
pub const MODULE_OVERLAP: u32 = 5;
/// [`ModuleRow::result`]: burst, and its calls are not translated.
pub const MODULE_NOT_TRANSLATED: u32 = 7;
/// [`ModuleRow::result`]: the process has more modules than the runtime can keep.
pub const MODULE_TOO_MANY: u32 = 8;
/// [`ModuleRow::result`]: its code could not be changed, or its patch table is damaged.
pub const MODULE_UNPATCHED: u32 = 6;
/// [`ModuleRow::result`]: it reads its own code, which must not change.
pub const MODULE_READS_CODE: u32 = 14;

/// [`ModuleRow::result`]: not a module, but the path of an executed program without
/// instrumentation, which is not recorded
pub const MODULE_PLAIN: u32 = 9;
/// [`ModuleRow::result`]: an executed program that gains privileges, so that the loader does not
/// load the runtime; neither it nor the programs that it starts are recorded.
pub const MODULE_PRIVILEGED: u32 = 10;
/// [`ModuleRow::result`]: an executed 32-bit program; neither it nor the programs that it starts
/// are recorded.
pub const MODULE_32_BIT: u32 = 11;
/// [`ModuleRow::result`]: a thread that began before the module was loaded has SIGSEGV blocked, and
/// could not be made to unblock it.
pub const MODULE_LATE: u32 = 12;
/// [`ModuleRow::result`]: the process has a shadow stack.
pub const MODULE_SHADOW_STACK: u32 = 13;

/// [`ModuleRow::result`]: its records only count, and the mode is not `count`.
pub const MODULE_COUNTS: u32 = 15;

/// [`ModuleRow::result`]: the process has not enough address space for counters.
pub const MODULE_NO_COUNTERS: u32 = 16;

/// [`ModuleRow::result`]: the program uses a state of its threads that works only in `burst`.
pub const MODULE_BURST_ONLY: u32 = 17;

/// All results, of modules and of programs.
pub const MODULE_RESULTS: [u32; 18] = [
    MODULE_OK,
    MODULE_VERSION,
    MODULE_FLAVOUR,
    MODULE_NO_SIDECAR,
    MODULE_OTHER_SIDECAR,
    MODULE_OVERLAP,
    MODULE_UNPATCHED,
    MODULE_NOT_TRANSLATED,
    MODULE_TOO_MANY,
    MODULE_PLAIN,
    MODULE_PRIVILEGED,
    MODULE_32_BIT,
    MODULE_LATE,
    MODULE_SHADOW_STACK,
    MODULE_READS_CODE,
    MODULE_COUNTS,
    MODULE_NO_COUNTERS,
    MODULE_BURST_ONLY,
];
// Each result has a different number.
const _: () = {
    let mut i = 0;
    while i < MODULE_RESULTS.len() {
        assert!(MODULE_RESULTS[i] == i as u32);
        i += 1;
    }
};

/// Set in [`ModuleRow::ready`]: the recorder does not read the row, and its process must write
/// another one if it still lives.
pub const ROW_SKIPPED: u32 = 1 << 31;

/// A module that a process loaded.
#[repr(C)]
pub struct ModuleRow {
    /// Once the row is complete, the number of rows written here so far, including this one; with
    /// [`ROW_SKIPPED`] if the recorder has given up waiting for it.
    pub ready: AtomicU32,
    /// `MODULE_*`.
    pub result: u32,
    /// Process id.
    pub pid: u32,
    /// First record id.
    pub id_first: u32,
    /// Number of record ids.
    pub id_count: u32,
    /// Zero.
    pub reserved: u32,
    /// Load bias.
    pub bias: u64,
    /// Identity of the sidecar.
    pub sidecar_id: [u8; 16],
    /// Path, zero-terminated.
    pub path: [u8; PATH_BYTES],
    /// Path of the sidecar, zero-terminated.
    pub sidecar: [u8; PATH_BYTES],
}

/// The control page of a thread: `%gs` points here.
///
/// Fields are cells or atomic, since more than one reference may be alive: in a function of the
/// runtime, and in a signal handler that has interrupted it. The recorder, another process, reads
/// cells by [`Snapshot::read`] and writes none.
#[repr(C)]
pub struct Control {
    /// Address of the next free slot ([`GS_CURSOR`](crate::probe::GS_CURSOR)). Written by probes.
    pub cursor: Cell<u64>,
    /// Spill slots ([`GS_SPILL`](crate::probe::GS_SPILL)). Written by probes.
    pub spill: [Cell<u64>; 8],
    /// Jump targets of translated clones ([`GS_RETURN`](crate::probe::GS_RETURN) and the next
    /// three).
    pub hooks: Cell<[u64; 4]>,
    /// Addresses of the hooks around system calls
    /// ([`GS_HOOK_BEFORE`](crate::probe::GS_HOOK_BEFORE),
    /// [`GS_HOOK_AFTER`](crate::probe::GS_HOOK_AFTER)).
    pub system_hooks: Cell<[u64; 2]>,
    /// Address of the middle of the thread's [area of counters](crate::counters)
    /// ([`GS_COUNTERS`](crate::counters::GS_COUNTERS)).
    pub counters: Cell<u64>,
    /// Registers of the thread while a hook runs: rax, rcx, flags, target, rsp, rdx, rbx, rbp, rsi,
    /// rdi, r8–r15.
    pub hold: [Cell<u64>; 18],
    /// The hook that is outside of its fast path now, or 0.
    pub in_hook: Cell<u64>,
    /// End of the stack of hooks.
    pub hook_top: Cell<u64>,
    /// Address of this page in its process.
    pub self_addr: Cell<u64>,
    /// STATE_FREE, STATE_LIVE or STATE_CLOSING.
    pub state: AtomicU32,
    /// Number of this thread slot.
    pub index: Cell<u32>,
    /// System process id of the owner.
    pub pid: Cell<u32>,
    /// System thread id of the owner.
    pub tid: Cell<u32>,
    /// Address of the first slot written since the last chunk or lap began.
    pub base: Cell<u64>,
    /// Address behind the last slot that fits: the guard page.
    pub guard: Cell<u64>,
    /// Ring mode: address where the mirrored ring begins; the physical offset of an address is
    /// `(address - ring_start) % ring_bytes`.
    pub ring_start: Cell<u64>,
    /// Number of slots that the owner had written when `base` was set.
    pub slots_before: Cell<u64>,
    /// Ring mode: slots since the end of the last window that were written before `base`.
    pub period_before: Cell<u64>,
    /// CLOCK_MONOTONIC when the chunk or the period began.
    pub begin_ns: Cell<u64>,
    /// Chunks published so far. Entry k % [`QUEUE`] describes chunk k.
    pub published: AtomicU64,
    /// Futex: chunks drained so far (modulo 2³²).
    pub drained: AtomicU32,
    /// `full` and `ring`: 1 if the chunk or lap was begun outside of the recorded phases.
    pub outside: Cell<u32>,
    /// `burst`: number of the chunk that the open window will become. After its publication this is
    /// not yet the number of the next chunk.
    pub filling: Cell<u64>,
    /// Ring mode: slots from the end of the last window to the end of the next.
    pub stretch: Cell<u64>,
    /// Ring mode: windows since the stream began.
    pub windows: Cell<u64>,
    /// Ring mode: position of the last window in its period, slots.
    pub late: Cell<u64>,
    /// `full` and `ring`: number of `boundaries`; if more than [`BOUNDARIES`], some were lost.
    /// Written by any thread of the process.
    pub boundary_count: AtomicU32,
    /// Zero.
    pub reserved: u32,
    /// `full` and `ring`: positions in the chunk or lap at which the process was switched on or
    /// off, see [`pieces`](crate::phases::phase_pieces).
    pub boundaries: [AtomicU32; BOUNDARIES],
    /// The queue.
    pub chunks: [Cell<ChunkInfo>; QUEUE],
}

/// Declares [`Snapshot`]: the fields of [`Control`] that the recorder reads together.
macro_rules! snapshot {
    ($($field:ident: $type:ty,)*) => {
        /// A thread slot's numbers at one moment; any of them may be invalid. Each is the field of
        /// [`Control`] with the same name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "Control has the words")]
        pub struct Snapshot {
            $(pub $field: $type,)*
            pub published: u64,
        }

        impl Snapshot {
            /// Reads a control page that its owner may be writing.
            ///
            /// # Safety
            ///
            /// `control` must point at a mapped control page.
            pub unsafe fn read(control: *const Control) -> Snapshot {
                // SAFETY: volatile reads of plain integers in the page, and of an atomic one.
                unsafe {
                    let published = (*control).published.load(Ordering::Acquire);
                    Snapshot {
                        $($field: (&raw const (*control).$field).cast::<$type>().read_volatile(),)*
                        published,
                    }
                }
            }

            /// Sets all of them to zero, as in an unused control page.
            ///
            /// # Safety
            ///
            /// `control` must point at a mapped control page whose owner is gone.
            pub unsafe fn clear(control: *mut Control) {
                // SAFETY: volatile writes of plain integers in the page, and of an atomic one.
                unsafe {
                    $((&raw mut (*control).$field).cast::<$type>().write_volatile(0);)*
                    (*control).published.store(0, Ordering::Release);
                }
            }
        }
    };
}
snapshot! {
    cursor: u64,
    self_addr: u64,
    pid: u32,
    tid: u32,
    base: u64,
    guard: u64,
    ring_start: u64,
    slots_before: u64,
    period_before: u64,
    begin_ns: u64,
    filling: u64,
    outside: u32,
}

impl Control {
    /// All spill slots ([`Control::spill`]).
    pub fn spilled(&self) -> [u64; 8] {
        self.spill.each_ref().map(Cell::get)
    }

    /// Sets all spill slots ([`Control::spill`]).
    pub fn set_spilled(&self, values: [u64; 8]) {
        for (place, value) in self.spill.iter().zip(values) {
            place.set(value);
        }
    }
}

/// One chunk of the queue: in `full` a part of the record stream, in `ring` a window.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ChunkInfo {
    /// System process id of the thread that wrote it.
    pub pid: u32,
    /// System thread id.
    pub tid: u32,
    /// `CAUSE_*`: the reason why it ended.
    pub cause: u16,
    /// Place in the thread slot: k % [`CHUNKS`] for chunk k; in `burst`, the lowest free place.
    pub place: u16,
    /// Number of slots.
    pub slots: u32,
    /// Offset of the first slot from the chunk's start, bytes.
    pub offset: u32,
    /// Burst: encoded period of the triggers at that time, see [`ChunkInfo::period`].
    pub period: u32,
    /// Number of the first slot among all slots of the thread.
    pub first_slot: u64,
    /// Number of slots that the thread had written when this chunk was published.
    pub executed: u64,
    /// CLOCK_MONOTONIC of the first slot. In `ring` an estimate from the rate of the period; in
    /// `burst` earlier than `end_ns` by the time that the thread spent in clones.
    pub begin_ns: u64,
    /// CLOCK_MONOTONIC when it was published.
    pub end_ns: u64,
    /// Burst: speed of the code after the *previous* window, see [`pace`]; 0 if it was not
    /// measured.
    pub pace: u64,
}

impl ChunkInfo {
    /// Burst: average nanoseconds of the thread's CPU time, or loads, between triggers at that
    /// time; 0 if unknown. (Rounded to 24 bits.)
    pub fn period(&self) -> u64 {
        // Longer periods do not occur, unless the program overwrites this memory.
        const MAX_PERIOD: u64 = 1 << 40;
        (f32::from_bits(self.period) as u64).min(MAX_PERIOD)
    }

    /// Period in the form of [`ChunkInfo::period`].
    pub fn period_bits(period: u64) -> u32 {
        (period as f32).to_bits()
    }
}

/// [`ChunkInfo::pace`] of a measurement: `PACE_*` in the highest three bits, nanoseconds in the
/// next 29, records in the lowest 32.
pub const fn pace(kind: u32, records: u32, ns: u64) -> u64 {
    const MAX_NS: u64 = (1 << 29) - 1;
    (kind as u64) << 61 | (if ns < MAX_NS { ns } else { MAX_NS }) << 32 | records as u64
}

/// Offset of a thread slot's control page in the file.
pub const fn slot_offset(index: usize, stride: u64) -> u64 {
    HEADER_BYTES as u64 + index as u64 * stride
}

/// Offset of the ring's physical pages from the control page (ring mode).
pub const RING_OFFSET: u64 = PAGE_SIZE as u64;

/// Offset of chunk place `place` from the control page.
pub const fn chunk_offset(place: usize, ring_bytes: u64, chunk_bytes: u64) -> u64 {
    PAGE_SIZE as u64 + ring_bytes + place as u64 * chunk_bytes
}

/// Bytes of a thread slot with these sizes.
pub const fn stride(places: usize, ring_bytes: u64, chunk_bytes: u64) -> u64 {
    chunk_offset(places, ring_bytes, chunk_bytes)
}

const _: () = assert!(size_of::<Control>() <= PAGE_SIZE);
