//! What an instruction reads and writes, without asking iced where the answer is plain.
//!
//! iced finds it from tables for any instruction there is, which takes longer than decoding does. Nine of ten instructions of compilers are one of
//! a few dozen, which use their operands in one of four ways, and perhaps the stack, and nothing else. The test compares the answers with iced's.

use crate::ir::RegSet;
use crate::regs::{RSP, RegUse, gpr, reg_use, registers};
use iced_x86::{Code, Instruction, InstructionInfo, InstructionInfoFactory, OpAccess, OpKind};

/// How an instruction uses its operands.
pub trait Operands {
    /// What it does to the operand with this number.
    fn op_access(&self, op: u32) -> OpAccess;
}

impl Operands for InstructionInfo {
    fn op_access(&self, op: u32) -> OpAccess {
        InstructionInfo::op_access(self, op)
    }
}

/// The answer for an instruction of at most two operands.
#[derive(Clone, Copy, Debug)]
pub struct Plain {
    /// What it does to registers, as [`reg_use`](crate::regs::reg_use) has it.
    pub uses: RegUse,
    access: [OpAccess; 2],
}

impl Operands for Plain {
    fn op_access(&self, op: u32) -> OpAccess {
        self.access.get(op as usize).copied().unwrap_or(OpAccess::None)
    }
}

/// The answer, if the instruction is one of the plain ones.
pub fn plain(inst: &Instruction) -> Option<Plain> {
    use OpAccess::{NoMemAccess, None as Unused, Read, ReadWrite, Write};
    let mut uses = RegUse::default();
    let access = match KINDS[inst.code() as usize % CODES]? {
        Kind::Moves => [Write, Read],
        Kind::Address => [Write, NoMemAccess],
        Kind::Compares => [Read, Read],
        // With one register twice, some of these read nothing.
        Kind::Changes if inst.op0_kind() == OpKind::Register && inst.op1_kind() == OpKind::Register && inst.op0_register() == inst.op1_register() => return None,
        Kind::Changes => [ReadWrite, Read],
        Kind::Jumps => [Read, Unused],
        Kind::Stack(access) => {
            (uses.read, uses.clobber) = (uses.read.with(RSP), uses.clobber.with(RSP));
            [access, Unused]
        }
    };
    for (op, access) in (0..).zip(access) {
        match inst.op_kind(op) {
            OpKind::Register => {
                let register = inst.op_register(op);
                let Some(r) = gpr(register) else { continue };
                if access != Write {
                    uses.read = uses.read.with(r);
                }
                if access != Read {
                    uses.clobber = uses.clobber.with(r);
                }
                if access == Write && (register.is_gpr64() || register.is_gpr32()) {
                    uses.kill = uses.kill.with(r);
                }
            }
            OpKind::Memory => {
                let address = [inst.memory_base(), inst.memory_index()];
                uses.read = address.into_iter().filter_map(gpr).fold(uses.read, RegSet::with);
            }
            _ => {}
        }
    }
    uses.kill = RegSet(uses.kill.0 & !uses.read.0);
    Some(Plain { uses, access })
}

/// What any instruction does to registers.
pub fn uses(factory: &mut InstructionInfoFactory, inst: &Instruction) -> RegUse {
    plain(inst).map_or_else(|| reg_use(registers(factory, inst)), |plain| plain.uses)
}

/// How plain instructions use their operands.
#[derive(Clone, Copy)]
enum Kind {
    /// The second becomes the first.
    Moves,
    /// The second's address becomes the first.
    Address,
    /// Both are read.
    Compares,
    /// The first is changed, the second read.
    Changes,
    /// Where to is written in the instruction.
    Jumps,
    /// They have one operand at most, and move the stack pointer.
    Stack(OpAccess),
}

const MOVES: &[Code] = &{ use Code::*; [
    Mov_rm8_r8, Mov_rm16_r16, Mov_rm32_r32, Mov_rm64_r64, Mov_r8_rm8, Mov_r16_rm16, Mov_r32_rm32, Mov_r64_rm64, Mov_r8_imm8, Mov_r16_imm16, Mov_r32_imm32,
    Mov_r64_imm64, Mov_rm8_imm8, Mov_rm16_imm16, Mov_rm32_imm32, Mov_rm64_imm32, Movzx_r32_rm8, Movzx_r64_rm8, Movzx_r32_rm16, Movzx_r64_rm16, Movsx_r32_rm8,
    Movsx_r64_rm8, Movsx_r32_rm16, Movsx_r64_rm16, Movsxd_r32_rm32, Movsxd_r64_rm32, Movups_xmm_xmmm128, Movups_xmmm128_xmm, Movaps_xmm_xmmm128,
    Movaps_xmmm128_xmm, Movdqa_xmm_xmmm128, Movdqa_xmmm128_xmm, Movdqu_xmm_xmmm128, Movdqu_xmmm128_xmm,
] };
const COMPARES: &[Code] = &{ use Code::*; [
    Cmp_rm8_r8, Cmp_rm16_r16, Cmp_rm32_r32, Cmp_rm64_r64, Cmp_r8_rm8, Cmp_r16_rm16, Cmp_r32_rm32, Cmp_r64_rm64, Cmp_AL_imm8, Cmp_AX_imm16, Cmp_EAX_imm32,
    Cmp_RAX_imm32, Cmp_rm8_imm8, Cmp_rm16_imm16, Cmp_rm32_imm32, Cmp_rm64_imm32, Cmp_rm16_imm8, Cmp_rm32_imm8, Cmp_rm64_imm8, Test_rm8_r8, Test_rm16_r16,
    Test_rm32_r32, Test_rm64_r64, Test_AL_imm8, Test_AX_imm16, Test_EAX_imm32, Test_RAX_imm32, Test_rm8_imm8, Test_rm16_imm16, Test_rm32_imm32,
    Test_rm64_imm32,
] };
const CHANGES: &[Code] = &{ use Code::*; [
    Add_rm8_r8, Add_rm16_r16, Add_rm32_r32, Add_rm64_r64, Add_r8_rm8, Add_r16_rm16, Add_r32_rm32, Add_r64_rm64, Add_AL_imm8, Add_AX_imm16, Add_EAX_imm32,
    Add_RAX_imm32, Add_rm8_imm8, Add_rm16_imm16, Add_rm32_imm32, Add_rm64_imm32, Add_rm16_imm8, Add_rm32_imm8, Add_rm64_imm8, Or_rm8_r8, Or_rm16_r16,
    Or_rm32_r32, Or_rm64_r64, Or_r8_rm8, Or_r16_rm16, Or_r32_rm32, Or_r64_rm64, Or_AL_imm8, Or_AX_imm16, Or_EAX_imm32, Or_RAX_imm32, Or_rm8_imm8,
    Or_rm16_imm16, Or_rm32_imm32, Or_rm64_imm32, Or_rm16_imm8, Or_rm32_imm8, Or_rm64_imm8, And_rm8_r8, And_rm16_r16, And_rm32_r32, And_rm64_r64, And_r8_rm8,
    And_r16_rm16, And_r32_rm32, And_r64_rm64, And_AL_imm8, And_AX_imm16, And_EAX_imm32, And_RAX_imm32, And_rm8_imm8, And_rm16_imm16, And_rm32_imm32,
    And_rm64_imm32, And_rm16_imm8, And_rm32_imm8, And_rm64_imm8, Sub_rm8_r8, Sub_rm16_r16, Sub_rm32_r32, Sub_rm64_r64, Sub_r8_rm8, Sub_r16_rm16,
    Sub_r32_rm32, Sub_r64_rm64, Sub_AL_imm8, Sub_AX_imm16, Sub_EAX_imm32, Sub_RAX_imm32, Sub_rm8_imm8, Sub_rm16_imm16, Sub_rm32_imm32, Sub_rm64_imm32,
    Sub_rm16_imm8, Sub_rm32_imm8, Sub_rm64_imm8, Xor_rm8_r8, Xor_rm16_r16, Xor_rm32_r32, Xor_rm64_r64, Xor_r8_rm8, Xor_r16_rm16, Xor_r32_rm32, Xor_r64_rm64,
    Xor_AL_imm8, Xor_AX_imm16, Xor_EAX_imm32, Xor_RAX_imm32, Xor_rm8_imm8, Xor_rm16_imm16, Xor_rm32_imm32, Xor_rm64_imm32, Xor_rm16_imm8, Xor_rm32_imm8,
    Xor_rm64_imm8,
] };
const ADDRESS: &[Code] = &[Code::Lea_r32_m, Code::Lea_r64_m];
const JUMPS: &[Code] = &[Code::Jmp_rel8_64, Code::Jmp_rel32_64];

/// More than there are: iced has fewer than five thousand.
const CODES: usize = 1 << 13;

/// By code: a look here is quicker than a branch by some two hundred cases.
static KINDS: [Option<Kind>; CODES] = {
    let mut kinds = [const { None }; CODES];
    let lists = [(MOVES, Kind::Moves), (COMPARES, Kind::Compares), (CHANGES, Kind::Changes), (ADDRESS, Kind::Address), (JUMPS, Kind::Jumps)];
    let mut n = 0;
    while n < lists.len() {
        let mut i = 0;
        while i < lists[n].0.len() {
            kinds[lists[n].0[i] as usize] = Some(lists[n].1);
            i += 1;
        }
        n += 1;
    }
    // Conditional ones stand in a row, short and near.
    let mut code = Code::Jo_rel8_16 as usize;
    while code <= Code::Jg_rel8_64 as usize {
        kinds[code] = Some(Kind::Jumps);
        code += 1;
    }
    let mut code = Code::Jo_rel16 as usize;
    while code <= Code::Jg_rel32_64 as usize {
        kinds[code] = Some(Kind::Jumps);
        code += 1;
    }
    kinds[Code::Push_r64 as usize] = Some(Kind::Stack(OpAccess::Read));
    kinds[Code::Call_rel32_64 as usize] = Some(Kind::Stack(OpAccess::Read));
    kinds[Code::Pop_r64 as usize] = Some(Kind::Stack(OpAccess::Write));
    kinds[Code::Retnq as usize] = Some(Kind::Stack(OpAccess::None));
    kinds
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operands::{accesses, own_destination};
    use iced_x86::{Decoder, DecoderOptions};

    /// Every opcode of one and two bytes with every ModRM byte, behind every prefix that changes what an operand is, and some.
    #[test]
    fn what_is_plain_is_as_iced_says() {
        let prefixes: Vec<Vec<u8>> = [vec![]].into_iter().chain((0x40..0x50).chain([0x66, 0x67, 0xf0, 0xf2, 0xf3, 0x64, 0x65]).map(|p| vec![p])).chain([vec![0x66, 0x48], vec![0x67, 0x4f]]).collect();
        let mut factory = InstructionInfoFactory::new();
        let mut plain_ones = std::collections::HashSet::new();
        for prefix in &prefixes {
            for (escape, opcode) in (0..=255).map(|o| (&[][..], o)).chain((0..=255).map(|o| (&[0x0f][..], o))) {
                for modrm in 0..=255 {
                    // As SIB byte, too, without and with index.
                    for behind in [0x24, 0xcd] {
                        let bytes = [prefix, escape, &[opcode, modrm, behind, 1, 2, 3, 0, 5, 6, 7, 8, 9]].concat();
                        let inst = Decoder::with_ip(64, &bytes, 0x1000, DecoderOptions::NONE).decode();
                        let Some(plain) = plain(&inst) else { continue };
                        plain_ones.insert(inst.code());
                        let info = registers(&mut factory, &inst);
                        assert_eq!(plain.uses, reg_use(info), "{bytes:02x?}");
                        assert_eq!(accesses(&inst, &plain), accesses(&inst, info), "{bytes:02x?}");
                        let has_access = accesses(&inst, info).iter().next().is_some();
                        assert!(!has_access || own_destination(&inst, &plain) == own_destination(&inst, info), "{bytes:02x?}");
                    }
                }
            }
        }
        assert!(plain_ones.len() > 160, "{}", plain_ones.len());
    }
}
