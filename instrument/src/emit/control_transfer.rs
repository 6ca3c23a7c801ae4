//! Calls, returns and indirect jumps of translated clones.
//!
//! In a translated clone the stack holds original return addresses, so that a thread may leave the
//! clone at any instruction. What a call, a return or an indirect jump finds is therefore an
//! original address, and the runtime's code behind `gs:` goes on at its clone. See [`mgz_abi`],
//! "Translated clones".
//!
//! Nothing here touches flags, and nothing below the stack pointer is written but what the original
//! instruction would have overwritten.

use crate::emit::emitter::{Emitter, MOV_LOAD, MOV_STORE};
use crate::emit::{EmitError, FixupKind};
use crate::plan::cursor::cheapest;
use crate::util::byte_buf::Bytes;
use crate::x86::encode;
use crate::x86::insn::Insn;
use crate::x86::regs::Gpr;
use iced_x86::{FlowControl, Mnemonic};
use mgz_abi::address_map::{STATE_BACK, STATE_PUSHED};
use mgz_abi::probe::{GS_BACK, GS_CALL, GS_JUMP, GS_RETURN, GS_SPILL, PLACE_RAX, PLACE_TARGET};

const RAX: Gpr = Gpr(0);
const RSP: Gpr = Gpr(4);

impl Emitter<'_> {
    /// Emits the instruction if it hands control to an address that is not known here, or is a
    /// call. Returns whether it did.
    pub(crate) fn transfer(&mut self, insn: &Insn) -> Result<bool, EmitError> {
        let inst = &insn.inst;
        match (inst.flow_control(), inst.mnemonic()) {
            (FlowControl::Return, Mnemonic::Ret) if inst.op_count() == 0 => {
                self.sink.put(insn.len, encode::jump_gs(GS_RETURN));
            }
            (FlowControl::Call, Mnemonic::Call) if inst.is_call_near() => {
                self.push_return(insn);
                let target = inst.near_branch_target();
                self.sink
                    .put_open(insn.len, encode::jmp32(), FixupKind::Call(target));
                self.back(insn);
            }
            (FlowControl::IndirectCall, Mnemonic::Call) if inst.is_call_near_indirect() => {
                let (register, borrowed) = self.target(insn)?;
                self.address_and_push(insn, register);
                if borrowed {
                    self.give_back(register, PLACE_RAX);
                }
                self.sink.put(insn.len, encode::jump_gs(GS_CALL));
                self.back(insn);
            }
            (FlowControl::IndirectBranch, Mnemonic::Jmp) if inst.is_jmp_near_indirect() => {
                if self
                    .function
                    .tables
                    .iter()
                    .any(|t| self.function.insn(t.jump).ip == insn.ip)
                {
                    return Ok(false);
                }
                let (register, borrowed) = self.target(insn)?;
                if borrowed {
                    self.give_back(register, PLACE_RAX);
                }
                self.sink.put(insn.len, encode::jump_gs(GS_JUMP));
            }
            // `ret n`, far transfers and returns from interrupts: no compiler makes them.
            (FlowControl::Return | FlowControl::IndirectCall | FlowControl::IndirectBranch, _) => {
                return Err(EmitError::Encoding);
            }
            (FlowControl::Call, Mnemonic::Call) => return Err(EmitError::Encoding),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Pushes the original address behind a call.
    fn push_return(&mut self, insn: &Insn) {
        let next = insn.next();
        if self.fixed
            && let Ok(next) = i32::try_from(next)
        {
            self.sink.inserted(encode::push_imm32(next));
            self.sink.state(|s| s.with(STATE_PUSHED));
            return;
        }
        let (register, borrowed) = self.free_register(insn);
        self.address_and_push(insn, register);
        if borrowed {
            self.give_back(register, PLACE_RAX);
        }
    }

    /// A register for addresses: one that nobody reads behind the call (r11 where it goes through
    /// the linkage table, one that the function saves), else rax, which is saved. Returns whether
    /// it is.
    fn free_register(&mut self, insn: &Insn) -> (Gpr, bool) {
        match cheapest(insn.dead.without(RSP)) {
            Some(register) => (register, false),
            None => {
                self.borrow(RAX, PLACE_RAX);
                (RAX, true)
            }
        }
    }

    /// Pushes the original address behind a call. The register is free.
    fn address_and_push(&mut self, insn: &Insn, register: Gpr) {
        let next = insn.next();
        self.sink
            .put_open(0, encode::lea_rip(register), FixupKind::Original(next));
        self.sink.inserted(encode::push(register));
        self.sink.state(|s| s.with(STATE_PUSHED));
    }

    /// Puts the address that an indirect call or jump goes to into its place. Returns the register
    /// that it was in, and whether that is saved.
    fn target(&mut self, insn: &Insn) -> Result<(Gpr, bool), EmitError> {
        let raw = self.raw(insn)?.to_vec();
        let prefixes = raw
            .iter()
            .take_while(|b| matches!(b, 0x66 | 0x67 | 0xf2 | 0x3e | 0x64))
            .count();
        let rex = raw.get(prefixes).copied().filter(|b| b & 0xf0 == 0x40);
        // Calls of the thread-local storage's resolver have 66 before REX.W, which says nothing
        // then. Alone, processors disagree on it.
        if raw[..prefixes].contains(&0x66) && rex.is_none_or(|rex| rex & 8 == 0) {
            return Err(EmitError::Encoding);
        }
        let at = prefixes + usize::from(rex.is_some());
        let &[0xff, modrm, ref rest @ ..] = &raw[at..] else {
            return Err(EmitError::Encoding);
        };
        let mut load: Vec<u8> = raw[..prefixes]
            .iter()
            .copied()
            .filter(|b| matches!(b, 0x67 | 0x64))
            .collect();
        let (register, borrowed) = self.free_register(insn);
        load.extend_from_slice(&[
            0x48 | rex.unwrap_or(0) & 3 | (register.0 >> 3) << 2,
            0x8b,
            modrm & 0xc7 | (register.0 & 7) << 3,
        ]);
        load.extend_from_slice(rest);
        if insn.inst.is_ip_rel_memory_operand() {
            let target = insn.inst.ip_rel_memory_address();
            if modrm & 0xc7 != 5 || rest.len() != 4 {
                return Err(EmitError::Encoding);
            }
            self.sink.insn(
                0,
                &load,
                Some((load.len() - 4, FixupKind::Original(target))),
            );
        } else {
            self.sink.insn(0, &load, None);
        }
        self.sink.inserted(encode::mov_gs(
            true,
            MOV_STORE,
            register,
            GS_SPILL + 8 * u32::from(PLACE_TARGET),
        ));
        Ok((register, borrowed))
    }

    /// Where code without a clone comes back from a call, if it does.
    fn back(&mut self, call: &Insn) {
        let quits = &self.function.calls.quits;
        if !quits.is_empty()
            && let Some(id) = self.function.insn_at(call.ip)
            && quits.binary_search(&id).is_ok()
        {
            self.sink.state(|s| s.without(!0));
            return;
        }
        self.sink.state(|s| s.without(!0).with(STATE_BACK));
        self.sink.inserted(encode::call_gs(GS_BACK));
        self.sink.state(|s| s.without(!0));
    }
}

/// Bytes of [`thunk`].
pub const THUNK_BYTES: usize = 48;

/// The way from a clone to `target`, which has none; `at` is the address of the thunk. `None` if it
/// is out of reach.
pub fn thunk(at: u64, target: u64, call: bool) -> Option<Vec<u8>> {
    let mut out = Bytes::with_room(THUNK_BYTES);
    let place = |n: u8| GS_SPILL + 8 * u32::from(n);
    encode::mov_gs(true, MOV_STORE, RAX, place(PLACE_RAX)).append(&mut out);
    encode::lea_rip(RAX).append(&mut out);
    let field = out.count() - 4;
    let distance = i32::try_from(target.wrapping_sub(at + out.count() as u64) as i64).ok()?;
    out.as_mut_slice()[field..].copy_from_slice(&distance.to_le_bytes());
    encode::mov_gs(true, MOV_STORE, RAX, place(PLACE_TARGET)).append(&mut out);
    encode::mov_gs(true, MOV_LOAD, RAX, place(PLACE_RAX)).append(&mut out);
    encode::jump_gs(if call { GS_CALL } else { GS_JUMP }).append(&mut out);
    let mut out = out.as_slice().to_vec();
    out.resize(THUNK_BYTES, 0xcc);
    Some(out)
}
