//! Layout of the kernel's signal frame: registers, mask and extended state.

/// Index into [`Context::registers`] for each hardware register number.
const ORDER: [usize; 16] = [13, 14, 12, 11, 15, 10, 9, 8, 0, 1, 2, 3, 4, 5, 6, 7];
/// Index of rax.
pub const RAX: usize = 13;
/// Index of the stack pointer.
pub const RSP: usize = 15;
/// Index of the instruction pointer.
pub const RIP: usize = 16;
/// Index of the flags.
pub const FLAGS: usize = 17;
/// General registers, rip and flags, which a handler may change.
pub const REGISTERS: usize = 18;

/// `FP_XSTATE_MAGIC1`: more parts follow the legacy part of the extended state.
pub const EXTENDED_MAGIC: u32 = 0x4650_5853;

/// `ucontext_t` as the kernel lays it out.
#[repr(C)]
pub struct Context {
    flags: u64,
    link: u64,
    /// `uc_stack`.
    pub stack: [u64; 3],
    /// r8…r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, eflags, segments, err, trapno,
    /// oldmask, cr2.
    pub registers: [u64; 23],
    /// Address of the extended state, inside the same frame.
    pub extended: u64,
    /// Words that the kernel ignores.
    pub(crate) reserved: [u64; 8],
    /// Signals that were blocked before the handler.
    pub mask: u64,
}

impl Context {
    /// A register by hardware number.
    pub fn register(&mut self, number: u8) -> &mut u64 {
        &mut self.registers[ORDER[number as usize & 15]]
    }
}

/// `siginfo_t`, as far as it is needed.
#[repr(C)]
pub struct Info {
    /// Signal number.
    pub signal: i32,
    /// errno.
    pub errno: i32,
    /// Greater than 0 if the kernel made the signal.
    pub code: i32,
    pad: i32,
    /// Fault address for SIGSEGV.
    pub address: u64,
    /// Descriptor for signals of I/O events, value for timers.
    pub value: u64,
}

/// Length of the frame in bytes, from its first byte (the restorer's address, 8 bytes below the
/// context) to the end of the extended state.
///
/// # Safety
/// `context` must point into a frame that the kernel made.
pub unsafe fn frame_bytes(context: *const Context) -> usize {
    const LEGACY: u64 = 512;
    // SAFETY: the caller's contract.
    let extended = unsafe { (*context).extended };
    let start = context as u64 - 8;
    if extended <= start || extended - start > 1 << 16 {
        return 8 + size_of::<Context>() + 128;
    }
    // SAFETY: the extended state begins with the 512-byte legacy area, whose bytes from 464 on say
    // how long it is.
    let (magic, size) = unsafe {
        (
            *((extended + 464) as *const u32),
            *((extended + 468) as *const u32),
        )
    };
    let size = if magic == EXTENDED_MAGIC {
        u64::from(size)
    } else {
        LEGACY
    };
    (extended + size - start) as usize
}
