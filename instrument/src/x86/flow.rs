//! Control flow of instructions, and recognition of filler between functions.

use iced_x86::{Code, FlowControl, Instruction, Mnemonic, OpKind, Register};

/// True if a handler of the signal that an instruction raises sees the address after it.
pub fn is_trap(inst: &Instruction) -> bool {
    matches!(
        inst.mnemonic(),
        Mnemonic::Int3 | Mnemonic::Int1 | Mnemonic::Int
    )
}

/// The target of a direct near branch or call.
pub fn direct_target(inst: &Instruction) -> Option<u64> {
    use iced_x86::OpKind;
    match inst.op_kind(0) {
        OpKind::NearBranch64 | OpKind::NearBranch32 | OpKind::NearBranch16 => {
            Some(inst.near_branch_target())
        }
        _ => None,
    }
}

/// The target of a direct jump: conditional or not, including `loop` and `jrcxz`, but no call.
pub fn jump_target(inst: &Instruction) -> Option<u64> {
    match inst.flow_control() {
        FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => direct_target(inst),
        _ => None,
    }
}

/// True if control cannot continue at the next instruction.
pub fn ends_flow(inst: &Instruction) -> bool {
    matches!(
        inst.flow_control(),
        FlowControl::UnconditionalBranch
            | FlowControl::IndirectBranch
            | FlowControl::Return
            | FlowControl::Exception
    ) || inst.code() == Code::Hlt
}

/// True for filler between functions and blocks.
pub fn is_padding(inst: &Instruction) -> bool {
    matches!(inst.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
        || matches!(
            inst.code(),
            Code::Xchg_r16_AX | Code::Xchg_r32_EAX | Code::Xchg_r64_RAX
        ) && inst.op0_register() == inst.op1_register()
        || inst.mnemonic() == Mnemonic::Lea
            && inst.op0_register() == inst.memory_base()
            && inst.memory_index() == iced_x86::Register::None
            && inst.memory_displacement64() == 0
            && inst.op0_register().is_gpr64()
}

/// Bytes of a near jump.
pub const JUMP: u64 = 5;

/// True if control always continues elsewhere. (Handlers of faults may continue after instructions
/// that only fail.)
pub(crate) fn goes_elsewhere(flow: FlowControl) -> bool {
    matches!(
        flow,
        FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Return
    )
}

/// True for a call or a system call: control returns to the next instruction, or never.
pub fn is_call(flow: FlowControl) -> bool {
    matches!(flow, FlowControl::Call | FlowControl::IndirectCall)
}

/// The code address that an instruction takes, if any, and true if it takes the address itself and
/// not a sum with it.
#[inline]
pub fn taken(inst: &Instruction) -> Option<(u64, bool)> {
    if TAKERS[inst.code() as usize % TAKERS.len()] {
        taken_by(inst)
    } else {
        None
    }
}

pub(crate) fn taken_by(inst: &Instruction) -> Option<(u64, bool)> {
    if inst.mnemonic() == Mnemonic::Lea {
        let fixed = matches!(
            inst.memory_base(),
            Register::RIP | Register::EIP | Register::None
        );
        return fixed.then(|| {
            (
                inst.memory_displacement64(),
                inst.memory_index() == Register::None,
            )
        });
    }
    let source = inst.op_count().checked_sub(1)?;
    let value = match inst.op_kind(source) {
        OpKind::Immediate32 => u64::from(inst.immediate32()),
        OpKind::Immediate32to64 => inst.immediate32to64() as u64,
        OpKind::Immediate64 => inst.immediate64(),
        _ => return None,
    };
    match inst.mnemonic() {
        Mnemonic::Mov | Mnemonic::Push => Some((value, true)),
        // (The comparison's other operand does not matter.)
        Mnemonic::Add | Mnemonic::Sub => Some((value, false)),
        _ => None,
    }
}

/// By instruction code: true if [`taken`] may find an address, which is rare. (The size is an upper
/// bound of iced's codes.)
pub(crate) static TAKERS: [bool; 1 << 13] = {
    use Code::*;
    let takers = [
        Lea_r16_m,
        Lea_r32_m,
        Lea_r64_m,
        Mov_rm32_imm32,
        Mov_rm64_imm32,
        Mov_r32_imm32,
        Mov_r64_imm64,
        Pushq_imm32,
        Add_rm32_imm32,
        Add_rm64_imm32,
        Add_EAX_imm32,
        Add_RAX_imm32,
        Sub_rm32_imm32,
        Sub_rm64_imm32,
        Sub_EAX_imm32,
        Sub_RAX_imm32,
    ];
    let mut table = [false; 1 << 13];
    let mut n = 0;
    while n < takers.len() {
        table[takers[n] as usize] = true;
        n += 1;
    }
    table
};
