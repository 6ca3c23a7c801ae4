//! Calls, returns and indirect jumps of translated clones, and the indirect ones of direct clones.
//!
//! In a translated clone the stack holds original return addresses, so that a thread may leave the
//! clone at any instruction. The target of a call, a return or an indirect jump is therefore an
//! original address, and the runtime's code behind `gs:` continues at its clone. See [`mgz_abi`],
//! "Translated clones".
//!
//! Direct clones push addresses of their own. Their indirect calls and jumps use the same hooks:
//! the pointer is an original address, and without room for an entry jump the original would run
//! there unrecorded.
//!
//! This code changes no flags. Below the stack pointer it writes only bytes that the original
//! instruction would have overwritten.

use crate::emit::emitter::{Emitter, MOV_LOAD, MOV_STORE};
use crate::emit::{EmitError, FixupKind};
use crate::plan::cursor::cheapest;
use crate::util::byte_buf::ByteBuf;
use crate::x86::encode::{self, Encoded};
use crate::x86::insn::Insn;
use crate::x86::regs::Gpr;
use iced_x86::{FlowControl, Mnemonic};
use mgz_abi::address_map::{STATE_BACK, STATE_PUSHED};
use mgz_abi::probe::{GS_BACK, GS_CALL, GS_JUMP, GS_RETURN, GS_SPILL, PLACE_RAX, PLACE_TARGET};

const RAX: Gpr = Gpr(0);
const RSP: Gpr = Gpr(4);

impl Emitter<'_> {
    /// Emits the instruction if it is a call, or passes control to an address that is unknown here.
    /// Returns true if it did.
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
                if self.has_table(insn) {
                    return Ok(false);
                }
                self.hand_over(insn, encode::jump_gs(GS_JUMP))?;
            }
            // `ret n`, far transfers and returns from interrupts are left out, since no compiler
            // emits them.
            (FlowControl::Return | FlowControl::IndirectCall | FlowControl::IndirectBranch, _) => {
                return Err(EmitError::Encoding);
            }
            (FlowControl::Call, Mnemonic::Call) => return Err(EmitError::Encoding),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Emits the instruction of a direct clone if it passes control to an address that is unknown
    /// here. Returns true if it did. An instruction with prefixes on which processors disagree
    /// stays unchanged.
    pub(crate) fn indirect_transfer(&mut self, insn: &Insn) -> Result<bool, EmitError> {
        let inst = &insn.inst;
        let hook = match insn.flow {
            FlowControl::IndirectCall if inst.is_call_near_indirect() => encode::call_gs(GS_CALL),
            FlowControl::IndirectBranch if inst.is_jmp_near_indirect() && !self.has_table(insn) => {
                encode::jump_gs(GS_JUMP)
            }
            _ => return Ok(false),
        };
        let by_linkage = &self.function.calls.by_linkage;
        let id = self.function.insn_at(insn.ip);
        if id.is_some_and(|id| by_linkage.binary_search(&id).is_ok())
            || operand_at(self.raw(insn)?).is_none()
        {
            return Ok(false);
        }
        self.hand_over(insn, hook)?;
        Ok(true)
    }

    /// True if the clone has a copy of the table that the jump takes its target from.
    fn has_table(&self, insn: &Insn) -> bool {
        let mut tables = self.function.tables.iter();
        tables.any(|t| self.function.insn(t.jump).ip == insn.ip)
    }

    /// Passes the target of an indirect call or jump to a hook.
    fn hand_over(&mut self, insn: &Insn, hook: Encoded) -> Result<(), EmitError> {
        let (register, borrowed) = self.target(insn)?;
        if borrowed {
            self.give_back(register, PLACE_RAX);
        }
        self.sink.put(insn.len, hook);
        Ok(())
    }

    /// Pushes the original address after a call.
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

    /// A register for addresses, and true if it is saved. It is one that is dead after the call
    /// (r11 for calls through the linkage table, or one that the function saves). Otherwise it is
    /// rax, which is saved.
    fn free_register(&mut self, insn: &Insn) -> (Gpr, bool) {
        match cheapest(insn.dead.without(RSP)) {
            Some(register) => (register, false),
            None => {
                self.borrow(RAX, PLACE_RAX);
                (RAX, true)
            }
        }
    }

    /// Pushes the original address after a call. The register is free.
    fn address_and_push(&mut self, insn: &Insn, register: Gpr) {
        let next = insn.next();
        self.sink
            .put_open(0, encode::lea_rip(register), FixupKind::Original(next));
        self.sink.inserted(encode::push(register));
        self.sink.state(|s| s.with(STATE_PUSHED));
    }

    /// Stores the target of an indirect call or jump in its spill place. Returns the register that
    /// held it, and true if that register is saved.
    fn target(&mut self, insn: &Insn) -> Result<(Gpr, bool), EmitError> {
        let raw = self.raw(insn)?.to_vec();
        let (prefixes, rex) = operand_at(&raw).ok_or(EmitError::Encoding)?;
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

    /// Emits the code to which a call of code without a clone returns, if it returns.
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

/// Number of prefixes of an indirect call or jump, and its REX prefix. `None` if processors
/// disagree on the instruction's effect. Calls of the thread-local storage's resolver have 66
/// before REX.W. The 66 has no meaning there. Processors disagree only on 66 without REX.W.
fn operand_at(raw: &[u8]) -> Option<(usize, Option<u8>)> {
    let is_prefix = |b: &&u8| matches!(b, 0x66 | 0x67 | 0xf2 | 0x3e | 0x64);
    let prefixes = raw.iter().take_while(is_prefix).count();
    let rex = raw.get(prefixes).copied().filter(|b| b & 0xf0 == 0x40);
    let disputed = raw[..prefixes].contains(&0x66) && rex.is_none_or(|rex| rex & 8 == 0);
    (!disputed).then_some((prefixes, rex))
}

/// Bytes of [`thunk`].
pub const THUNK_BYTES: usize = 48;

/// The jump from a clone to `target`, which has no clone. `at` is the address of the thunk. `None`
/// if it is out of reach.
pub fn thunk(at: u64, target: u64, call: bool) -> Option<Vec<u8>> {
    let mut out = ByteBuf::with_room(THUNK_BYTES);
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
