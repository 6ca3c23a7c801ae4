//! What instrumented code, the runtime and the recorder must agree on, byte for byte.
//!
//! This file is compiled twice: into this crate, and (by `#[path]`) into the runtime, which has no
//! standard library and no dependencies. It therefore uses `core` only and holds plain constants and
//! `repr(C)` structs.
//!
//! # The software probe
//!
//! The `%gs` base of every recording thread points at a control page. Its first words are:
//!
//! | offset | content |
//! |---|---|
//! | [`GS_CURSOR`] | cursor: address of the next free slot. Rings live below 4 GiB, so the upper half is always zero and 32-bit operations on it are exact |
//! | [`GS_SPILL`] … | [`SPILL_SLOTS`] 8-byte places where a probe keeps a register that it borrows |
//!
//! A *region* is a straight piece of a basic block with no call, system call or repeated string
//! instruction inside. Its records lie at `cursor + 16*i` for the i-th slot of the region; two records may share a slot ([`ID_PAIR`]). The cursor is
//! advanced once, right after the region's last record is written (*commit*). Until then the slots
//! before the probe are *in flight*; [`ProbeState`] says how many there are, which register holds the
//! slot base, and where borrowed registers were saved, for every instruction boundary of the clone.
//! In loops a register may be advanced instead, and memory follows where control leaves ([`STATE_LATE`]).
//! No probe touches flags, the stack or the red zone.
//!
//! # Translated clones
//!
//! In files with [`FEATURE_TRANSLATED`] the stack holds original return addresses only, so that control may pass from
//! original code to the clone and back at any instruction. A call pushes the original return address and jumps; a return
//! jumps through [`GS_RETURN`], indirect calls and jumps go through [`GS_CALL`] and [`GS_JUMP`], and the runtime's code behind these
//! finds the clone of where control goes. Only where a call leaves for code without a clone does the runtime replace the
//! return address, by that of the `call gs:[GS_BACK]` that stands behind each call.
//!
//! # Full rings
//!
//! A store to a slot may hit the guard page behind the ring. The runtime's SIGSEGV handler then hands
//! the full part on, and *rebases* the region: the new base is chosen so that the faulting slot comes
//! first in the new ring (`base = start - 16*slots_done`), and the store is run again.

/// Offset of the cursor from the `%gs` base, bytes.
pub const GS_CURSOR: u32 = 0;
/// Offset of the first spill place from the `%gs` base, bytes. Places are 8 bytes apart.
pub const GS_SPILL: u32 = 8;
/// Number of spill places.
pub const SPILL_SLOTS: usize = 8;
/// Spill place of rax while translated code computes where control goes.
pub const PLACE_RAX: u8 = 4;
/// Spill place that hands the original address where control goes to [`GS_CALL`] and [`GS_JUMP`].
pub const PLACE_TARGET: u8 = 5;
/// Offset of the address of the runtime's code that stands for `ret` in translated clones: the original return address is
/// on the stack.
pub const GS_RETURN: u32 = 72;
/// Offset of the address of the runtime's code that goes on at the original address in [`PLACE_TARGET`]; the original
/// return address was just pushed.
pub const GS_CALL: u32 = 80;
/// As [`GS_CALL`], for jumps.
pub const GS_JUMP: u32 = 88;
/// Offset of the address of the runtime's code that is called where control comes back into a translated clone from code that
/// has none. What follows the call is the clone of the original return point.
pub const GS_BACK: u32 = 96;
/// Offset of the address of the hook in front of system calls: `lea rcx, [call]; jmp gs:[GS_HOOK_BEFORE]`. In executables without a loader the
/// runtime learns of threads, children, signal handlers and masks by hooks around system calls.
pub const GS_HOOK_BEFORE: u32 = 104;
/// Offset of the address of the hook behind system calls: `lea rcx, [next]; jmp gs:[GS_HOOK_AFTER]`.
pub const GS_HOOK_AFTER: u32 = 112;
/// System calls that need hooks: rt_sigaction, rt_sigprocmask, clone, fork, vfork, execve, sigaltstack, execveat, clone3.
pub const HOOKED_CALLS: [u32; 9] = [13, 14, 56, 57, 58, 59, 131, 322, 435];
/// First word of the description of the runtime's image.
pub const STATIC_MAGIC: u64 = 0x3154_4154_535a_474d;
/// Where that description lies in the shared memory's file: magic, then file offset, length, entry point and relocation list of the image, 8 bytes
/// each.
pub const STATIC_AT: u32 = 216;
/// Environment variable in which an executable without a loader finds the shared memory's path.
pub const STATIC_ENV: &[u8; 12] = b"MGZ_RUNTIME=";
/// Size of one slot, bytes.
pub const SLOT_BYTES: usize = 16;
/// Offset of the payload inside a slot.
pub const SLOT_PAYLOAD: usize = 0;
/// Offset of the second payload in a slot that two records share ([`ID_PAIR`]). Eight bytes are written there, after the first payload, at the same place or behind
/// some instructions ([`STATE_HALF`]), and before the id: of each payload the low 48 bits stay.
pub const SLOT_SECOND: usize = 6;
/// Offset of the record id inside a slot: the last four bytes, which are written last.
pub const SLOT_ID: usize = 12;
/// Set in the id of a slot that the record with this id shares with the next one. User addresses have no more than 47 bits, and sums of
/// registers are addresses modulo 2⁴⁸.
pub const ID_PAIR: u32 = 1 << 31;
/// Bits of a payload in a slot that two records share.
pub const PAIR_BITS: u32 = 48;
/// Record ids of modules are below this: with [`ID_PAIR`] they must not be markers.
pub const ID_LIMIT: u32 = MARK_FIRST & !ID_PAIR;
/// Upper bound of the slots of one region, so that a ring can be sized to hold a region. (It has up to twice as many records, where two share a slot.)
pub const MAX_REGION_SLOTS: usize = 64;

/// A slot as it lies in a ring.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingSlot {
    /// What the probe saw; of a slot that two records share the low 48 bits, and 16 bits of the second payload.
    pub payload: u64,
    /// The other 32 bits of the second payload; in markers as [`Slot::aux`]; else left as it was.
    pub aux: u32,
    /// As [`Slot::id`], perhaps with [`ID_PAIR`].
    pub id: u32,
}

/// What a payload was, by its low [`PAIR_BITS`] bits.
const fn extended(bits: u64) -> u64 {
    ((bits << (64 - PAIR_BITS)) as i64 >> (64 - PAIR_BITS)) as u64
}

impl RingSlot {
    /// Whether two records share it.
    #[inline(always)]
    pub const fn is_pair(&self) -> bool {
        self.id & ID_PAIR != 0 && self.id < MARK_FIRST
    }

    /// The first record's payload.
    #[inline(always)]
    pub const fn first(&self) -> u64 {
        if self.is_pair() {
            extended(self.payload)
        } else {
            self.payload
        }
    }

    /// The first record's payload, if two share the slot, whether or not the second and the id are there yet.
    #[inline(always)]
    pub const fn short(&self) -> u64 {
        extended(self.payload)
    }

    /// The second record's payload, if two share the slot.
    #[inline(always)]
    pub const fn second(&self) -> u64 {
        extended(self.payload >> PAIR_BITS | (self.aux as u64) << (64 - PAIR_BITS))
    }
}

/// One record, or one marker: what a slot of a ring holds, or half of that.
///
/// Records of several slots (PT flavour only) have `payload` and `id` in the first; the others are 16 raw
/// bytes each.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// What the probe saw: a register or an effective address.
    pub payload: u64,
    /// [`ModuleNote::id_first`] plus the module's record number, or one of the `MARK_*` ids.
    pub id: u32,
    /// Zero in records; the signal number in [`MARK_SIGNAL_ENTER`].
    pub aux: u32,
}

/// Ids from here on are markers that the runtime writes; modules never use them.
pub const MARK_FIRST: u32 = 0xffff_ff00;
/// A handler of the program starts. Payload: address (run time) of the original instruction that was
/// interrupted, i.e. the next to run. `aux`: see [`mark_aux`]. The slots of a region in flight stand before it.
pub const MARK_SIGNAL_ENTER: u32 = MARK_FIRST;
/// The handler returned and the interrupted region goes on where it was. Payload: that of the
/// [`MARK_SIGNAL_ENTER`] it belongs to (handlers between them were left by a jump), or 0 for the last.
pub const MARK_SIGNAL_RETURN: u32 = MARK_FIRST + 1;
/// The region in flight was given up (context changed by the handler, thread killed). Payload as in
/// [`MARK_SIGNAL_ENTER`] that it answers; if it answers none (a thread was killed), where the thread was.
pub const MARK_CUT: u32 = MARK_FIRST + 2;

/// The next record is one that stands before already, or whose payload is not known: it is to be left out. (A slot that two records share is completed
/// after a handler that came between the two, or by a thread that came into the clone there.)
pub const MARK_REPEAT: u32 = MARK_FIRST + 3;

/// `aux` of [`MARK_SIGNAL_ENTER`] and [`MARK_CUT`]: the signal number in the low 7 bits; above them the
/// low 25 bits of the *link-time clone* address that was interrupted, or 0 if the thread was not in a
/// clone. The clone address tells whether a record at the interrupted instruction was already written.
pub const fn mark_aux(signal: u32, clone_ip: u64) -> u32 {
    (signal & 0x7f) | (clone_ip as u32) << 7
}

/// ELF note name that marks an instrumented file (with the terminating zero).
pub const NOTE_NAME: &[u8; 4] = b"mgz\0";
/// ELF note type whose descriptor is a [`ModuleNote`].
pub const NOTE_MODULE: u32 = 1;
/// Version of [`ModuleNote`] and of the probe ABI.
pub const ABI_VERSION: u32 = 6;
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
    /// First record id of this module. Modules take disjoint ranges below [`ID_LIMIT`], chosen by
    /// the file's hash (or in a row for files instrumented together).
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
    /// Zero-terminated path of the sidecar, or 0: then it is the module's path plus `.mgza`.
    pub sidecar_path: u64,
    /// Same as [`Prelude::id`] in the sidecar that belongs to this file.
    pub sidecar_id: [u8; 16],
    /// `FEATURE_*` bits.
    pub features: u32,
    /// Length of the part at the end of the clone's code that leads from translated clones to addresses without one.
    pub thunk_bytes: u32,
    /// Array of addresses (32 bits each) of the original's system calls that have hooks in the clone (executables without a loader). In `burst`, where the
    /// original runs, the runtime puts [`TRAP`] there and sends threads that come there into the clone.
    pub calls: u64,
    /// Number of these.
    pub call_count: u64,
    /// Code through which the runtime calls the program's signal handlers ([`HANDLER_CALL`]), or 0: only executables without a loader have it.
    pub handlers: u64,
    /// Array of [`Cover`] (soft flavour).
    pub covers: u64,
    /// Number of these.
    pub cover_count: u64,
    /// Zero-terminated list of needed libraries, with colons between, or 0: the loader is to have them before the runtime, since they stand in for functions of the
    /// C library as it does ([`WRAPPED`]), or come before others that do.
    pub before: u64,
}

/// Functions of the C library that the runtime stands in for. A library that does so, too, must come before it, so that the runtime's are what it finds behind its own.
pub const WRAPPED: [&str; 67] = [
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

/// `call [rsp]; jmp [rsp + 8]`: calls a handler of the program, and goes back to the runtime. No loader tells unwinders of the runtime's own code, so its
/// frame belongs to the file, whose unwind tables say that the caller is the interrupted code: its registers lie at [`handler_saved`].
pub const HANDLER_CALL: [u8; 7] = [0xff, 0x14, 0x24, 0xff, 0x64, 0x24, 0x08];
/// Bytes between the stack pointer at [`HANDLER_CALL`] and the kernel's frame of the signal; 8 more than a multiple of 16.
pub const HANDLER_FRAME: usize = 488;

/// Offset from the stack pointer at [`HANDLER_CALL`] to where the kernel has saved a register: r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip (`sigcontext`, behind
/// the return address and 40 bytes of `ucontext`).
pub const fn handler_saved(n: usize) -> usize {
    HANDLER_FRAME + 8 + 40 + 8 * n
}

/// `hlt`, which raises SIGSEGV in user space: a signal that is never blocked where the runtime is.
pub const TRAP: u8 = 0xf4;

/// [`ModuleNote::features`]: the clone's calls and returns are translated, so that it can be entered and left at any
/// instruction (`burst`).
pub const FEATURE_TRANSLATED: u32 = 1;
/// [`ModuleNote::features`]: the module reads its own code as data, so that nothing may be written into the original: no entry jumps are installed, and
/// it can be recorded in `burst` alone.
pub const FEATURE_READS_CODE: u32 = 2;
/// [`ModuleNote::features`]: a sanitizer's runtime, which the file needs or holds, stands in for the allocator and wants nobody before it.
pub const FEATURE_OWN_ALLOCATOR: u32 = 4;
/// [`ModuleNote::features`]: such a runtime is part of the file itself.
pub const FEATURE_SANITIZER_INSIDE: u32 = 8;

/// A five-byte `jmp rel32` from original code into the clone. Link-time addresses (below 4 GiB).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    /// Address of the first byte to overwrite.
    pub at: u32,
    /// Jump target in the clone.
    pub to: u32,
}

/// What stands under a [`Patch`] that covers an instruction which may fail, in a file whose handlers may look at such: the runtime takes the patch back before it shows a
/// handler an address there. Sorted by `at`.
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
    /// Whether a patch at an address can be taken back while other threads run: its bytes lie in one aligned word of eight bytes, which one store replaces.
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
    /// File offset of the address map (8-byte aligned, uncompressed), see [`MapHeader`].
    pub map_offset: u64,
    /// Length of the address map, bytes.
    pub map_len: u64,
}

/// Start of the address map: then `functions` × [`MapFunction`] (sorted by `clone_start`), then
/// `states` × [`ProbeState`], then `stream_len` bytes, then [`MapMark`]s up to the end (sorted by `clone`): places inside functions
/// where reading may begin, so that no lookup walks through a long function.
///
/// # The stream
///
/// Per function, from `clone_start`/`orig_start` on, one byte per clone instruction: low nibble = its
/// length in the clone (1–15), high nibble = length of the original instruction that it stands for (up to where the next one begins), or
/// 0 for an inserted instruction, which belongs to the original instruction that follows (but see [`STATE_PASSED`]). Bytes with a
/// low nibble of 0: `0x00` is followed by a LEB128 state number that holds from the next boundary on
/// (each function starts in state 0); `0xN0` (N > 0) skips N bytes of original code that has no clone.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapHeader {
    /// Number of [`MapFunction`]s.
    pub functions: u32,
    /// Number of [`ProbeState`]s. State 0 is always [`ProbeState::IDLE`].
    pub states: u32,
    /// Length of the stream, bytes.
    pub stream_len: u64,
}

/// One function in the address map. Link-time addresses (below 4 GiB).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapFunction {
    /// First byte of the clone.
    pub clone_start: u32,
    /// End (exclusive) of the clone.
    pub clone_end: u32,
    /// First byte of the original.
    pub orig_start: u32,
    /// Offset of the function's bytes in the stream; they end where `clone_end` is reached.
    pub stream: u32,
}

/// A place inside a function where reading the stream may begin. Link-time addresses (below 4 GiB).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapMark {
    /// Address in the clone.
    pub clone: u32,
    /// Address in the original.
    pub orig: u32,
    /// Offset in the stream.
    pub stream: u32,
    /// State number there.
    pub state: u32,
}

/// "No register" in [`ProbeState`].
pub const NO_REG: u8 = 0xff;

/// [`ProbeState::flags`]: a call has pushed its return address and not yet jumped.
pub const STATE_PUSHED: u8 = 1;
/// [`ProbeState::flags`]: the `call gs:[GS_BACK]` behind a call; control from elsewhere enters behind it.
pub const STATE_BACK: u8 = 2;

/// [`ProbeState::flags`]: the original instruction that follows in the map is the one just done without its first prefixes (`lock`), so that control
/// passes it by: what was inserted here belongs to the instruction behind it.
pub const STATE_PASSED: u8 = 4;

/// [`ProbeState::flags`]: the cursor in memory may be behind the register's: records since control came here are committed when it leaves.
pub const STATE_LATE: u8 = 8;

/// [`ProbeState::flags`]: the slot behind those that are done has the first of two payloads; the second, and the id, follow behind original instructions.
pub const STATE_HALF: u8 = 16;

/// [`ProbeState::flags`]: a `loop`, `loope` or `loopne` that became several instructions has counted and not yet jumped: rcx is one less than before it.
pub const STATE_COUNTED: u8 = 32;

/// What a probe has borrowed and written at one instruction boundary of the clone. Registers are
/// numbered as the hardware does: rax 0, rcx 1, rdx 2, rbx 3, rsp 4, rbp 5, rsi 6, rdi 7, r8…r15.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProbeState {
    /// Slots of the region in flight that are completely written; 0 after the commit.
    pub slots_done: u8,
    /// Register that holds the slot base (plus `16*base_ahead`), or [`NO_REG`].
    pub base_reg: u8,
    /// See `base_reg`: non-zero between the `lea` that advances the register and the commit.
    pub base_ahead: u8,
    /// [`STATE_PUSHED`], [`STATE_BACK`], [`STATE_PASSED`], [`STATE_LATE`], [`STATE_HALF`], [`STATE_COUNTED`].
    pub flags: u8,
    /// Borrowed registers whose true value is in a spill place: `(register, place)`.
    pub saved: [[u8; 2]; 6],
}

impl ProbeState {
    /// No region in flight, nothing borrowed.
    pub const IDLE: ProbeState = ProbeState {
        slots_done: 0,
        base_reg: NO_REG,
        base_ahead: 0,
        flags: 0,
        saved: [[NO_REG, NO_REG]; 6],
    };

    /// As it lies in the file.
    #[inline]
    pub fn bytes(&self) -> [u8; 16] {
        let mut out = [0; 16];
        out[..4].copy_from_slice(&[self.slots_done, self.base_reg, self.base_ahead, self.flags]);
        out[4..].copy_from_slice(self.saved.as_flattened());
        out
    }
}
