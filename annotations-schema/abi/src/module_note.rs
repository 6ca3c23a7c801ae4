//! Data of instrumented files for the runtime: note, patches, prelude of the sidecar, static
//! executables.

/// First word of the description of the runtime's image.
pub const STATIC_MAGIC: u64 = 0x3154_4154_535a_474d;
/// Offset of that description in the shared memory's file: magic, then file offset, length, entry
/// point and relocation list of the image, 8 bytes each.
pub const STATIC_AT: u32 = 216;
/// Environment variable in which an executable without a loader finds the shared memory's path.
pub const STATIC_ENV: &[u8; 12] = b"MGZ_RUNTIME=";

/// ELF note name that marks an instrumented file (with the terminating zero).
pub const NOTE_NAME: &[u8; 4] = b"mgz\0";
/// ELF note type whose descriptor is a [`ModuleNote`].
pub const NOTE_MODULE: u32 = 1;
/// Version of [`ModuleNote`] and of the probe ABI.
pub const ABI_VERSION: u32 = 10;
/// Flavour: records are written through `%gs`.
pub const FLAVOUR_SOFT: u32 = 1;
/// Flavour: records are `ptwrite` packets.
pub const FLAVOUR_PT: u32 = 2;

/// Descriptor of the note in an instrumented file; it is mapped with the clone. All addresses are
/// link-time virtual addresses; add the module's load bias.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModuleNote {
    /// [`ABI_VERSION`].
    pub version: u32,
    /// [`FLAVOUR_SOFT`] or [`FLAVOUR_PT`].
    pub flavour: u32,
    /// First record id of this module. Modules have disjoint ranges below
    /// [`ID_LIMIT`](crate::slot::ID_LIMIT), chosen by the file's hash (or consecutively for files
    /// instrumented together).
    pub id_first: u32,
    /// Number of record ids.
    pub id_count: u32,
    /// The clone's code.
    pub clone_start: u64,
    /// End (exclusive) of the clone's code.
    pub clone_end: u64,
    /// Array of [`Patch`]. In the soft flavour the runtime installs them before the module's
    /// constructors run; in the PT flavour they are in the file already.
    pub patches: u64,
    /// Number of patches.
    pub patch_count: u64,
    /// Zero-terminated path of the sidecar, or 0 for the module's path plus `.mgza`.
    pub sidecar_path: u64,
    /// Same as [`Prelude::id`] in the sidecar that belongs to this file.
    pub sidecar_id: [u8; 16],
    /// `FEATURE_*` bits.
    pub features: u32,
    /// Length of the last part of the clone's code, with the jumps from translated clones to
    /// addresses without a clone, bytes.
    pub thunk_bytes: u32,
    /// Array of addresses (32 bits each) of the original's system calls that have hooks in the
    /// clone (executables without a loader). In `burst`, where the original runs, the runtime puts
    /// [`TRAP`](crate::probe::TRAP) there and moves threads that hit it into the clone.
    pub calls: u64,
    /// Number of these.
    pub call_count: u64,
    /// Code through which the runtime calls the program's signal handlers
    /// ([`HANDLER_CALL`](crate::probe::HANDLER_CALL)), or 0: only executables without a loader
    /// have it.
    pub handlers: u64,
    /// Array of [`Cover`] (soft flavour).
    pub covers: u64,
    /// Number of these.
    pub cover_count: u64,
    /// Zero-terminated list of needed libraries, separated by colons, or 0. The loader must place
    /// them before the runtime, since they replace functions of the C library as it does
    /// ([`WRAPPED`]), or come before others that do.
    pub before: u64,
    /// Array of [`Marker`](crate::phases::Marker) (soft flavour), by address.
    pub markers: u64,
    /// Number of these.
    pub marker_count: u64,
    /// Translated clones of the soft flavour: array of [`ModuleNote::id_count`] signed numbers of
    /// 32 bits, by record: payload plus number is the address of the last load that follows from
    /// this record alone; or [`NO_DISPLACEMENT`]. In other files 0.
    pub displacements: u64,
}

/// In [`ModuleNote::displacements`]: the record alone gives no load's address.
pub const NO_DISPLACEMENT: i32 = i32::MIN;

/// Functions of the C library that the runtime replaces. A library that replaces them as well must
/// come before the runtime, so that its next definition is the runtime's.
pub const WRAPPED: [&str; 68] = [
    "_Fork",
    "__bsd_signal",
    "__longjmp_chk",
    "__sigaction",
    "__sysv_signal",
    "__vfork",
    "__xpg_sigpause",
    "_longjmp",
    "aio_fsync",
    "aio_fsync64",
    "aio_read",
    "aio_read64",
    "aio_write",
    "aio_write64",
    "arch_prctl",
    "bsd_signal",
    "clone",
    "close",
    "close_range",
    "closefrom",
    "daemon",
    "epoll_pwait",
    "epoll_pwait2",
    "execl",
    "execle",
    "execlp",
    "execv",
    "execve",
    "execvp",
    "execvpe",
    "fexecve",
    "fork",
    "forkpty",
    "getaddrinfo_a",
    "lio_listio",
    "lio_listio64",
    "longjmp",
    "mq_notify",
    "posix_spawn",
    "posix_spawnp",
    "ppoll",
    "prctl",
    "pselect",
    "pthread_create",
    "pthread_setcanceltype",
    "pthread_sigmask",
    "setcontext",
    "sigaction",
    "sigaltstack",
    "sigblock",
    "siggetmask",
    "sighold",
    "sigignore",
    "siginterrupt",
    "siglongjmp",
    "signal",
    "sigpause",
    "sigprocmask",
    "sigrelse",
    "sigset",
    "sigsetmask",
    "sigsuspend",
    "swapcontext",
    "syscall",
    "sysv_signal",
    "thrd_create",
    "timer_create",
    "vfork",
];

/// [`ModuleNote::features`]: the clone's calls and returns are translated, so that it can be
/// entered and left at any instruction (`burst`).
pub const FEATURE_TRANSLATED: u32 = 1;
/// [`ModuleNote::features`]: the module reads its own code as data, so the original must not
/// change: no entry jumps are installed, and it can be recorded only in `burst`.
pub const FEATURE_READS_CODE: u32 = 2;
/// [`ModuleNote::features`]: a sanitizer's runtime, which the file needs or holds, replaces the
/// allocator, and no library may come before it.
pub const FEATURE_OWN_ALLOCATOR: u32 = 4;
/// [`ModuleNote::features`]: such a runtime is part of the file itself.
pub const FEATURE_SANITIZER_INSIDE: u32 = 8;
/// [`ModuleNote::features`]: its records have no payload and only count executions: it can be
/// recorded only in `count`.
pub const FEATURE_COUNTS: u32 = 16;

/// [`ModuleNote::features`]: the program single-steps itself, checks the alignment of its accesses,
/// or has its system calls dispatched to itself. No clone may run in that state, so the program can
/// be recorded in `burst` only.
pub const FEATURE_BURST_ONLY: u32 = 32;
/// [`ModuleNote::features`]: calls of `memcpy` and similar functions in other files are recorded.
pub const FEATURE_COPIES: u32 = 64;

/// A five-byte `jmp rel32` from original code into the clone. Link-time addresses (below 4 GiB).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    /// Address of the first byte to overwrite.
    pub at: u32,
    /// Jump target in the clone.
    pub to: u32,
}

/// Original bytes under a [`Patch`] that covers an instruction which may fault, in a file whose
/// handlers may inspect them. The runtime removes the patch before it shows a handler an address
/// there. Sorted by `at`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cover {
    /// [`Patch::at`].
    pub at: u32,
    /// The original's bytes.
    pub bytes: [u8; 5],
    /// Zero.
    pub unused: [u8; 3],
}

impl Cover {
    /// True if a patch at an address can be removed while other threads run: its bytes lie in one
    /// aligned word of eight bytes, which a single store replaces.
    pub const fn fits(at: u64) -> bool {
        at % 8 + 5 <= 8
    }
}

/// First four bytes of a sidecar.
pub const SIDECAR_MAGIC: [u8; 4] = *b"MGZA";
/// Version of the sidecar format.
pub const SIDECAR_VERSION: u32 = 1;

/// The first bytes of a sidecar, so that the runtime can find the address map without reading JSON.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prelude {
    /// [`SIDECAR_MAGIC`].
    pub magic: [u8; 4],
    /// [`SIDECAR_VERSION`].
    pub version: u32,
    /// Random-looking identity: hash of the input and of the options.
    pub id: [u8; 16],
    /// Length of the JSON header that follows this struct, bytes.
    pub header_len: u64,
    /// File offset of the address map (8-byte aligned, uncompressed), see
    /// [`MapHeader`](crate::address_map::MapHeader).
    pub map_offset: u64,
    /// Length of the address map, bytes.
    pub map_len: u64,
}
