//! System calls that the runtime must observe, in executables without a loader
//! ([`mgz_abi::probe::GS_HOOK_BEFORE`]).
//!
//! ```text
//! lea rcx, [call]             the kernel overwrites rcx and r11 in any case
//! jmp gs:[GS_HOOK_BEFORE]     comes back to `call`, or, if the runtime has done it, to `next`
//! call: syscall
//! lea rcx, [next]
//! jmp gs:[GS_HOOK_AFTER]      comes back to `next`; a new thread gets its ring there
//! next:
//! ```
//!
//! The runtime relies on a length of 17 bytes between `call` and `next`.

use crate::emit::emitter::Emitter;
use crate::x86::encode;
use crate::x86::encode::Encoded;
use crate::x86::insn::Insn;
use mgz_abi::probe::{GS_HOOK_AFTER, GS_HOOK_BEFORE};

/// Bytes of the jump.
const JUMP: u8 = 8;

impl Emitter<'_> {
    /// Emits a system call with its hooks.
    pub(crate) fn hooked_call(&mut self, insn: &Insn) {
        self.visit(GS_HOOK_BEFORE);
        self.sink.put(insn.len, Encoded::of(&[0x0f, 0x05]));
        self.visit(GS_HOOK_AFTER);
    }

    /// `lea rcx, [address after the jump]` and the jump.
    fn visit(&mut self, hook: u32) {
        self.sink
            .inserted(Encoded::of(&[0x48, 0x8d, 0x0d, JUMP, 0, 0, 0]));
        self.sink.inserted(encode::jump_gs(hook));
    }
}
