//! Instructions that can be repeated to compute an address. They change one register or only the
//! flags, read registers and constants, and cannot fail.

use crate::x86::regs::{Gpr, RSP, RegSet, gpr};
use iced_x86::{Code, ConditionCode, Instruction, Mnemonic, OpKind, Register};

/// An instruction that can be executed again with other registers.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// The instruction, in a form in which all its registers are operands.
    pub inst: Instruction,
    /// The register that it writes. If it only sets flags, the stack pointer, which no operation
    /// writes.
    pub to: Gpr,
    /// Registers whose values it reads, without the address registers of a load.
    pub reads: RegSet,
    /// True if it reads the old value of `to`.
    pub updates: bool,
    /// True if it loads.
    pub loads: bool,
    /// True if it changes flags.
    pub flags: bool,
    /// True if it reads flags.
    pub reads_flags: bool,
}

impl Operation {
    /// True if it only sets flags.
    pub fn is_test(&self) -> bool {
        self.to == RSP
    }

    /// The operation for an instruction that compares registers and constants.
    fn test(inst: &Instruction) -> Option<Operation> {
        let mut reads = RegSet::EMPTY;
        for n in 0..inst.op_count() {
            match inst.op_kind(n) {
                OpKind::Register => {
                    let register = inst.op_register(n);
                    super::assemble::sized(register, RSP)?;
                    reads = reads.with(gpr(register).filter(|r| *r != RSP)?);
                }
                OpKind::Memory => return None,
                _ => {}
            }
        }
        Some(Operation {
            inst: *inst,
            to: RSP,
            reads,
            updates: false,
            loads: false,
            flags: true,
            reads_flags: false,
        })
    }

    /// The operation of an instruction, if it is one.
    pub fn of(inst: &Instruction) -> Option<Operation> {
        let mut inst = *inst;
        inst.set_code(with_any_register(inst.code()));
        if matches!(inst.mnemonic(), Mnemonic::Test | Mnemonic::Cmp) {
            return Operation::test(&inst);
        }
        if inst.mnemonic() == Mnemonic::Cdqe {
            let ip = inst.ip();
            inst = Instruction::with2(Code::Movsxd_r64_rm32, Register::RAX, Register::EAX).ok()?;
            inst.set_ip(ip);
        }
        let updates = is_update(&inst)?;
        let count = inst.op_count();
        if count == 0 || inst.op0_kind() != OpKind::Register || inst.has_lock_prefix() {
            return None;
        }
        let whole = inst.op0_register().is_gpr64() || inst.op0_register().is_gpr32();
        let to = gpr(inst.op0_register()).filter(|to| whole && *to != RSP)?;
        let is_lea = inst.mnemonic() == Mnemonic::Lea;
        let mut all = Operation {
            inst,
            to,
            reads: RegSet::EMPTY,
            updates,
            loads: false,
            flags: inst.rflags_modified() != 0,
            reads_flags: is_conditional_move(&inst),
        };
        if is_zero(&inst) {
            all.updates = false;
            return Some(all);
        }
        if updates {
            all.reads = all.reads.with(to);
        }
        for n in 1..count {
            match inst.op_kind(n) {
                OpKind::Register => {
                    let register = inst.op_register(n);
                    super::assemble::sized(register, to)?;
                    all.reads = all.reads.with(gpr(register)?);
                }
                OpKind::Memory if is_lea => {
                    let registers = super::assemble::address_registers(&inst);
                    all.reads = RegSet(all.reads.0 | registers.0);
                }
                // The processor loads even if the condition is false, and the program's pointer may
                // be invalid then.
                OpKind::Memory if all.reads_flags => return None,
                OpKind::Memory => all.loads = true,
                _ => {}
            }
        }
        let shifts = matches!(
            inst.mnemonic(),
            Mnemonic::Shl
                | Mnemonic::Sal
                | Mnemonic::Shr
                | Mnemonic::Sar
                | Mnemonic::Rol
                | Mnemonic::Ror
        );
        // (The count of such a shift can only be in cl.)
        (!shifts || inst.op1_kind() != OpKind::Register).then_some(all)
    }
}

/// `xor r, r` and `sub r, r`.
fn is_zero(inst: &Instruction) -> bool {
    matches!(inst.mnemonic(), Mnemonic::Xor | Mnemonic::Sub)
        && inst.op1_kind() == OpKind::Register
        && inst.op0_register() == inst.op1_register()
}

/// The form for any register, of a short form for the accumulator and a constant.
fn with_any_register(code: Code) -> Code {
    match code {
        Code::Add_EAX_imm32 => Code::Add_rm32_imm32,
        Code::Add_RAX_imm32 => Code::Add_rm64_imm32,
        Code::And_EAX_imm32 => Code::And_rm32_imm32,
        Code::And_RAX_imm32 => Code::And_rm64_imm32,
        Code::Cmp_AL_imm8 => Code::Cmp_rm8_imm8,
        Code::Cmp_EAX_imm32 => Code::Cmp_rm32_imm32,
        Code::Cmp_RAX_imm32 => Code::Cmp_rm64_imm32,
        Code::Or_EAX_imm32 => Code::Or_rm32_imm32,
        Code::Or_RAX_imm32 => Code::Or_rm64_imm32,
        Code::Sub_EAX_imm32 => Code::Sub_rm32_imm32,
        Code::Sub_RAX_imm32 => Code::Sub_rm64_imm32,
        Code::Test_AL_imm8 => Code::Test_rm8_imm8,
        Code::Test_EAX_imm32 => Code::Test_rm32_imm32,
        Code::Test_RAX_imm32 => Code::Test_rm64_imm32,
        Code::Xor_EAX_imm32 => Code::Xor_rm32_imm32,
        Code::Xor_RAX_imm32 => Code::Xor_rm64_imm32,
        other => other,
    }
}

fn is_conditional_move(inst: &Instruction) -> bool {
    inst.condition_code() != ConditionCode::None && inst.op_count() == 2
}

/// True for an instruction that reads its destination, false for one that does not, and `None` if
/// it is no operation.
fn is_update(inst: &Instruction) -> Option<bool> {
    match inst.mnemonic() {
        _ if is_conditional_move(inst) => Some(true),
        Mnemonic::Mov
        | Mnemonic::Movzx
        | Mnemonic::Movsx
        | Mnemonic::Movsxd
        | Mnemonic::Lea
        | Mnemonic::Shlx
        | Mnemonic::Shrx
        | Mnemonic::Sarx
        | Mnemonic::Rorx
        | Mnemonic::Andn
        | Mnemonic::Popcnt => Some(false),
        Mnemonic::Imul if inst.op_count() == 3 => Some(false),
        Mnemonic::Imul if inst.op_count() == 2 => Some(true),
        Mnemonic::Add
        | Mnemonic::Sub
        | Mnemonic::And
        | Mnemonic::Or
        | Mnemonic::Xor
        | Mnemonic::Shl
        | Mnemonic::Sal
        | Mnemonic::Shr
        | Mnemonic::Sar
        | Mnemonic::Rol
        | Mnemonic::Ror
        | Mnemonic::Neg
        | Mnemonic::Not
        | Mnemonic::Inc
        | Mnemonic::Dec
        | Mnemonic::Bswap
        | Mnemonic::Crc32 => Some(true),
        _ => None,
    }
}
