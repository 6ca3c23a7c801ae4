//! Effects of an instruction: its reads and writes, computed without iced in simple cases.
//!
//! iced finds them from tables for all instructions, which takes longer than decoding. Most
//! instructions of compilers are among a few hundred, which use their operands in one of a few
//! ways, and perhaps the stack, and nothing else. Their registers are combined by masks, without
//! branches. The test compares the results with iced's.

use crate::x86::flow::taken;
use crate::x86::insn::Insn;
use crate::x86::operand_info::Operands;
use crate::x86::operands::{AccessList, accesses, own_destination, plain_access};
use crate::x86::regs::{
    GPR_SET_OF, GPR_SET_OF_WHOLE, Gpr, RAX, RBP, RDX, RSP, RegSet, RegUse, reg_use, registers,
};
use iced_x86::{
    Code, FlowControl, Instruction, InstructionInfo, InstructionInfoFactory, OpAccess, Register,
};

/// Facts about each instruction of a function, computed once.
pub struct Facts {
    /// Effect of each instruction on registers. `or r, -1` and `and r, 0` count as constants
    /// ([`RegUse::without_idle_read`]).
    pub uses: Vec<RegUse>,
    /// Instructions with such constants, and their literal effects on registers.
    idle: Vec<(u32, RegUse)>,
    /// Explicit accesses of each instruction.
    pub accesses: AccessList,
    /// The register that may hold the address of its access ([`own_destination`]), if requested.
    pub own: Vec<Option<Gpr>>,
    /// Indices of the instructions that take the address of the function's start ([`taken`]), in
    /// order.
    pub takers: Vec<u32>,
}

impl Facts {
    /// Computes the facts of a function that begins at `start`. `owned`: [`Facts::own`] is
    /// requested.
    pub fn of(
        insns: &[Insn],
        start: u64,
        owned: bool,
        factory: &mut InstructionInfoFactory,
    ) -> Facts {
        let n = insns.len();
        let mut facts = Facts {
            uses: Vec::new(),
            idle: Vec::new(),
            accesses: AccessList::none(n),
            own: vec![None; n],
            takers: Vec::new(),
        };
        let mut uses = vec![RegUse::default(); n];
        for (i, (insn, uses)) in insns.iter().zip(&mut uses).enumerate() {
            let inst = &insn.inst;
            let Some(plain) = plain(inst) else {
                *uses = facts.ask(i, inst, start, owned, factory);
                continue;
            };
            *uses = plain.uses;
            if plain.way.is_rare() {
                facts.note(i, inst, start, uses);
            }
            if let Some(access) = plain_access(inst, &plain) {
                facts.accesses.set(i, access);
                if owned {
                    facts.own[i] = own_destination(inst, &plain);
                }
            }
        }
        Facts { uses, ..facts }
    }

    /// Effect on registers of an instruction that is not plain. Also adds its other facts.
    #[cold]
    fn ask(
        &mut self,
        i: usize,
        inst: &Instruction,
        start: u64,
        owned: bool,
        factory: &mut InstructionInfoFactory,
    ) -> RegUse {
        let info = registers(factory, inst);
        let list = accesses(inst, info);
        if owned && !list.is_empty() {
            self.own[i] = own_destination(inst, info);
        }
        self.accesses.set_all(i, &list);
        self.takers
            .extend(taken(inst).filter(|t| t.0 == start).map(|_| i as u32));
        reg_use(info)
    }

    /// Adds the other facts of an instruction that may be a constant or take an address. If it is a
    /// constant, its effect on registers is changed.
    fn note(&mut self, i: usize, inst: &Instruction, start: u64, uses: &mut RegUse) {
        let constant = uses.without_idle_read(inst);
        if constant != *uses {
            self.idle
                .push((i as u32, std::mem::replace(uses, constant)));
        }
        self.takers
            .extend(taken(inst).filter(|t| t.0 == start).map(|_| i as u32));
    }

    /// Literal effect of each instruction on registers.
    pub fn into_uses(mut self) -> Vec<RegUse> {
        for (i, uses) in self.idle {
            self.uses[i as usize] = uses;
        }
        self.uses
    }
}

/// True if an instruction with this control flow is known to continue at the next one, and has no
/// effects besides those of its operands: see [`Insn::simple`](crate::x86::insn::Insn::simple).
#[inline]
pub fn is_simple(inst: &Instruction, flow: FlowControl) -> bool {
    flow == FlowControl::Next && !matches!(KINDS[inst.code() as usize % CODES], Kind::Other)
}

impl Operands for InstructionInfo {
    fn op_access(&self, op: u32) -> OpAccess {
        InstructionInfo::op_access(self, op)
    }
}

/// The effects of an instruction of at most three operands (without constants).
#[derive(Clone, Copy, Debug)]
pub struct Plain {
    /// Effect on registers, in the form of [`reg_use`].
    pub uses: RegUse,
    way: &'static Way,
}

impl Operands for Plain {
    #[inline]
    fn op_access(&self, op: u32) -> OpAccess {
        self.way
            .access
            .get(op as usize)
            .copied()
            .unwrap_or(OpAccess::None)
    }
}

/// Effect of an instruction on registers, in the form of [`reg_use`].
pub fn uses(factory: &mut InstructionInfoFactory, inst: &Instruction) -> RegUse {
    plain(inst).map_or_else(|| reg_use(registers(factory, inst)), |plain| plain.uses)
}

/// The effects, if the instruction is a plain one.
#[inline]
pub fn plain(inst: &Instruction) -> Option<Plain> {
    let mut way = &WAYS[KINDS[inst.code() as usize % CODES] as usize];
    let (first, second) = (inst.op0_register(), inst.op1_register());
    if way.flags != 0 {
        if way.flags & UNKNOWN != 0 {
            return None;
        }
        // (Memory operands and constants have no register here.)
        if way.flags & SAME_CANCELS != 0 && first == second && first != Register::None {
            way = &CLEARS;
        }
    }
    let bits = |register: Register| GPR_SET_OF[register as usize % GPR_SET_OF.len()];
    let (target, whole) = (
        bits(first),
        GPR_SET_OF_WHOLE[first as usize % GPR_SET_OF_WHOLE.len()],
    );
    let address = (bits(inst.memory_base()) | bits(inst.memory_index())) & way.address;
    let read = target & way.reads[0]
        | bits(second) & way.reads[1]
        | bits(inst.op2_register()) & way.reads[2]
        | address
        | way.implied.read.0;
    let uses = RegUse {
        read: RegSet(read),
        kill: RegSet((whole & way.replaces | way.implied.kill.0) & !read),
        clobber: RegSet(target & way.changes | way.implied.clobber.0),
    };
    Some(Plain { uses, way })
}

/// Use of operands by a kind of instruction. Each mask has all registers or none.
#[derive(Debug)]
struct Way {
    access: [OpAccess; 3],
    /// Per operand: all registers if the operand is read when it is a register.
    reads: [u16; 3],
    /// All registers if the first operand is written.
    changes: u16,
    /// All registers if the first operand is always written, and a register of 32 or 64 bits keeps
    /// nothing of its old value.
    replaces: u16,
    /// All registers if address registers are read.
    address: u16,
    /// Registers that are no operands.
    implied: RegUse,
    flags: u8,
}

/// The instruction is not plain.
const UNKNOWN: u8 = 1;
/// If one register is both operands, nothing is read.
const SAME_CANCELS: u8 = 2;
/// If the constant has a specific value, nothing is read.
const MASKS: u8 = 4;
/// A constant or an address in memory may be an address in the code.
const TAKES_ADDRESS: u8 = 8;

impl Way {
    /// The way for operands with this access.
    const fn of(access: [OpAccess; 3]) -> Way {
        let [first, second, third] = access;
        Way {
            access,
            reads: [
                mask(is_read(first)),
                mask(is_read(second)),
                mask(is_read(third)),
            ],
            changes: mask(is_written(first)),
            replaces: mask(matches!(first, OpAccess::Write)),
            address: u16::MAX,
            implied: NO_USE,
            flags: 0,
        }
    }

    /// Adds these implied registers.
    const fn and(self, read: u16, kill: u16, clobber: u16) -> Way {
        Way {
            implied: RegUse {
                read: RegSet(read),
                kill: RegSet(kill),
                clobber: RegSet(clobber),
            },
            ..self
        }
    }

    const fn with(self, flags: u8) -> Way {
        Way { flags, ..self }
    }

    /// True if the operands alone do not decide.
    #[inline]
    fn is_rare(&self) -> bool {
        self.flags & (MASKS | TAKES_ADDRESS) != 0
    }
}

const NO_USE: RegUse = RegUse {
    read: RegSet::EMPTY,
    kill: RegSet::EMPTY,
    clobber: RegSet::EMPTY,
};

const fn mask(all: bool) -> u16 {
    if all { u16::MAX } else { 0 }
}

const fn is_read(access: OpAccess) -> bool {
    matches!(
        access,
        OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite
    )
}

const fn is_written(access: OpAccess) -> bool {
    matches!(
        access,
        OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
    )
}

/// Effect of an instruction with [`SAME_CANCELS`] on a register that is both operands.
static CLEARS: Way = Way::of([OpAccess::Write, OpAccess::None, OpAccess::None]);

/// Use of operands by plain instructions: an index into [`WAYS`].
#[derive(Clone, Copy)]
enum Kind {
    /// The instruction is not plain.
    Other,
    /// The second is copied or converted to the first.
    Moves,
    /// A constant, which may be an address, is copied to the first.
    Loads,
    /// The second's address is copied to the first.
    Address,
    /// All are read.
    Compares,
    /// The first is changed, the second (if any) read.
    Changes,
    /// The first is changed by a constant, which may be an address.
    Adds,
    /// The first is changed, the second read; if both are one register, it is cleared.
    Cancels,
    /// The first is changed by a constant that may leave nothing of it.
    Masks,
    /// The second is copied to the first, or the first stays.
    Chooses,
    /// The first is computed from the others.
    Makes,
    /// The first is changed, using the others.
    Fuses,
    /// The target is in the instruction, or in its operand.
    Jumps,
    /// Operands are not used.
    Idles,
    /// A value is pushed onto the stack.
    Pushes,
    /// A constant, which may be an address, is pushed onto the stack.
    PushesConstant,
    /// A value is popped from the stack.
    Pops,
    /// The target is popped from the stack.
    Returns,
    /// The frame pointer is copied to the stack pointer, and popped from the stack.
    Leaves,
    /// The accumulator is extended in place.
    Extends,
    /// The accumulator's sign fills rdx.
    Signs,
}

/// The way of each [`Kind`].
static WAYS: [Way; Kind::Signs as usize + 1] = {
    use OpAccess::{CondWrite, NoMemAccess, None as Unused, Read, ReadWrite, Write};
    let stack = 1 << RSP.0;
    [
        Way::of([Unused; 3]).with(UNKNOWN),
        Way::of([Write, Read, Unused]),
        Way::of([Write, Read, Unused]).with(TAKES_ADDRESS),
        Way::of([Write, NoMemAccess, Unused]).with(TAKES_ADDRESS),
        Way::of([Read, Read, Unused]),
        Way::of([ReadWrite, Read, Unused]),
        Way::of([ReadWrite, Read, Unused]).with(TAKES_ADDRESS),
        Way::of([ReadWrite, Read, Unused]).with(SAME_CANCELS),
        Way::of([ReadWrite, Read, Unused]).with(MASKS),
        Way::of([CondWrite, Read, Unused]),
        Way::of([Write, Read, Read]),
        Way::of([ReadWrite, Read, Read]),
        Way::of([Read, Unused, Unused]),
        Way {
            address: 0,
            ..Way::of([Unused; 3])
        },
        Way::of([Read, Unused, Unused]).and(stack, 0, stack),
        Way::of([Read, Unused, Unused])
            .and(stack, 0, stack)
            .with(TAKES_ADDRESS),
        Way::of([Write, Unused, Unused]).and(stack, 0, stack),
        Way::of([Unused; 3]).and(stack, 0, stack),
        Way::of([Unused; 3]).and(1 << RBP.0, stack, stack | 1 << RBP.0),
        Way::of([Unused; 3]).and(1 << RAX.0, 0, 1 << RAX.0),
        Way::of([Unused; 3]).and(1 << RAX.0, 1 << RDX.0, 1 << RDX.0),
    ]
};

const MOVES: &[Code] = &{
    use Code::*;
    [
        Mov_rm8_r8,
        Mov_rm16_r16,
        Mov_rm32_r32,
        Mov_rm64_r64,
        Mov_r8_rm8,
        Mov_r16_rm16,
        Mov_r32_rm32,
        Mov_r64_rm64,
        Mov_r8_imm8,
        Mov_r16_imm16,
        Mov_rm8_imm8,
        Mov_rm16_imm16,
        Movzx_r32_rm8,
        Movzx_r64_rm8,
        Movzx_r32_rm16,
        Movzx_r64_rm16,
        Movsx_r32_rm8,
        Movsx_r64_rm8,
        Movsx_r32_rm16,
        Movsx_r64_rm16,
        Movsxd_r32_rm32,
        Movsxd_r64_rm32,
        Movups_xmm_xmmm128,
        Movups_xmmm128_xmm,
        Movaps_xmm_xmmm128,
        Movaps_xmmm128_xmm,
        Movdqa_xmm_xmmm128,
        Movdqa_xmmm128_xmm,
        Movdqu_xmm_xmmm128,
        Movdqu_xmmm128_xmm,
        Movapd_xmm_xmmm128,
        Movapd_xmmm128_xmm,
        Movupd_xmm_xmmm128,
        Movupd_xmmm128_xmm,
        Movss_xmm_xmmm32,
        Movss_xmmm32_xmm,
        Movsd_xmm_xmmm64,
        Movsd_xmmm64_xmm,
        Movd_xmm_rm32,
        Movd_rm32_xmm,
        Movq_xmm_rm64,
        Movq_rm64_xmm,
        Movq_xmm_xmmm64,
        Movq_xmmm64_xmm,
        Movhps_xmm_m64,
        Movhps_m64_xmm,
        Movlps_xmm_m64,
        Movlps_m64_xmm,
        Movhpd_xmm_m64,
        Movhpd_m64_xmm,
        Movlpd_xmm_m64,
        Movlpd_m64_xmm,
        Cvtsi2ss_xmm_rm32,
        Cvtsi2ss_xmm_rm64,
        Cvtsi2sd_xmm_rm32,
        Cvtsi2sd_xmm_rm64,
        Cvttss2si_r32_xmmm32,
        Cvttss2si_r64_xmmm32,
        Cvttsd2si_r32_xmmm64,
        Cvttsd2si_r64_xmmm64,
        Cvtps2pd_xmm_xmmm64,
        Cvtpd2ps_xmm_xmmm128,
        Cvtss2sd_xmm_xmmm32,
        Cvtsd2ss_xmm_xmmm64,
        Cvtdq2ps_xmm_xmmm128,
        Cvtdq2pd_xmm_xmmm64,
        Sqrtss_xmm_xmmm32,
        Sqrtsd_xmm_xmmm64,
        Pshufd_xmm_xmmm128_imm8,
        Popcnt_r32_rm32,
        Popcnt_r64_rm64,
        Fst_m32fp,
        Fst_m64fp,
        Fstp_m32fp,
        Fstp_m64fp,
        Fstp_m80fp,
        Fnstcw_m2byte,
        VEX_Vmovaps_xmm_xmmm128,
        VEX_Vmovaps_xmmm128_xmm,
        VEX_Vmovaps_ymm_ymmm256,
        VEX_Vmovaps_ymmm256_ymm,
        VEX_Vmovups_xmm_xmmm128,
        VEX_Vmovups_xmmm128_xmm,
        VEX_Vmovups_ymm_ymmm256,
        VEX_Vmovups_ymmm256_ymm,
        VEX_Vmovapd_xmm_xmmm128,
        VEX_Vmovapd_xmmm128_xmm,
        VEX_Vmovapd_ymm_ymmm256,
        VEX_Vmovapd_ymmm256_ymm,
        VEX_Vmovupd_xmm_xmmm128,
        VEX_Vmovupd_xmmm128_xmm,
        VEX_Vmovupd_ymm_ymmm256,
        VEX_Vmovupd_ymmm256_ymm,
        VEX_Vmovdqa_xmm_xmmm128,
        VEX_Vmovdqa_xmmm128_xmm,
        VEX_Vmovdqa_ymm_ymmm256,
        VEX_Vmovdqa_ymmm256_ymm,
        VEX_Vmovdqu_xmm_xmmm128,
        VEX_Vmovdqu_xmmm128_xmm,
        VEX_Vmovdqu_ymm_ymmm256,
        VEX_Vmovdqu_ymmm256_ymm,
        VEX_Vmovss_xmm_m32,
        VEX_Vmovss_m32_xmm,
        VEX_Vmovsd_xmm_m64,
        VEX_Vmovsd_m64_xmm,
        VEX_Vmovd_xmm_rm32,
        VEX_Vmovd_rm32_xmm,
        VEX_Vmovq_xmm_rm64,
        VEX_Vmovq_rm64_xmm,
        VEX_Vmovq_xmm_xmmm64,
        VEX_Vmovq_xmmm64_xmm,
        VEX_Vmovhps_m64_xmm,
        VEX_Vmovhpd_m64_xmm,
        VEX_Vmovlps_m64_xmm,
        VEX_Vmovlpd_m64_xmm,
        VEX_Vbroadcastss_xmm_m32,
        VEX_Vbroadcastss_ymm_m32,
        VEX_Vbroadcastsd_ymm_m64,
        VEX_Vextractf128_xmmm128_ymm_imm8,
        VEX_Vextracti128_xmmm128_ymm_imm8,
        VEX_Vcvttss2si_r32_xmmm32,
        VEX_Vcvttss2si_r64_xmmm32,
        VEX_Vcvttsd2si_r32_xmmm64,
        VEX_Vcvttsd2si_r64_xmmm64,
        VEX_Vcvtdq2pd_xmm_xmmm64,
        VEX_Vcvtps2pd_xmm_xmmm64,
        VEX_Vpshufd_xmm_xmmm128_imm8,
        VEX_Vpsrldq_xmm_xmm_imm8,
    ]
};
const LOADS: &[Code] = &{
    use Code::*;
    [Mov_r32_imm32, Mov_r64_imm64, Mov_rm32_imm32, Mov_rm64_imm32]
};
const COMPARES: &[Code] = &{
    use Code::*;
    [
        Cmp_rm8_r8,
        Cmp_rm16_r16,
        Cmp_rm32_r32,
        Cmp_rm64_r64,
        Cmp_r8_rm8,
        Cmp_r16_rm16,
        Cmp_r32_rm32,
        Cmp_r64_rm64,
        Cmp_AL_imm8,
        Cmp_AX_imm16,
        Cmp_EAX_imm32,
        Cmp_RAX_imm32,
        Cmp_rm8_imm8,
        Cmp_rm16_imm16,
        Cmp_rm32_imm32,
        Cmp_rm64_imm32,
        Cmp_rm16_imm8,
        Cmp_rm32_imm8,
        Cmp_rm64_imm8,
        Test_rm8_r8,
        Test_rm16_r16,
        Test_rm32_r32,
        Test_rm64_r64,
        Test_AL_imm8,
        Test_AX_imm16,
        Test_EAX_imm32,
        Test_RAX_imm32,
        Test_rm8_imm8,
        Test_rm16_imm16,
        Test_rm32_imm32,
        Test_rm64_imm32,
        Ucomiss_xmm_xmmm32,
        Ucomisd_xmm_xmmm64,
        Comiss_xmm_xmmm32,
        Comisd_xmm_xmmm64,
        VEX_Vucomiss_xmm_xmmm32,
        VEX_Vucomisd_xmm_xmmm64,
        VEX_Vcomiss_xmm_xmmm32,
        VEX_Vcomisd_xmm_xmmm64,
        Bt_rm16_imm8,
        Bt_rm32_imm8,
        Bt_rm64_imm8,
        Fld_m32fp,
        Fld_m64fp,
        Fld_m80fp,
        Fld_sti,
        Fild_m16int,
        Fild_m32int,
        Fild_m64int,
        Fadd_m32fp,
        Fadd_m64fp,
        Fmul_m32fp,
        Fmul_m64fp,
        Fldcw_m2byte,
    ]
};
const CHANGES: &[Code] = &{
    use Code::*;
    [
        Add_rm8_r8,
        Add_rm16_r16,
        Add_rm32_r32,
        Add_rm64_r64,
        Add_r8_rm8,
        Add_r16_rm16,
        Add_r32_rm32,
        Add_r64_rm64,
        Add_AL_imm8,
        Add_AX_imm16,
        Add_rm8_imm8,
        Add_rm16_imm16,
        Add_rm16_imm8,
        Add_rm32_imm8,
        Add_rm64_imm8,
        Or_rm8_r8,
        Or_rm16_r16,
        Or_rm32_r32,
        Or_rm64_r64,
        Or_r8_rm8,
        Or_r16_rm16,
        Or_r32_rm32,
        Or_r64_rm64,
        Or_AL_imm8,
        Or_AX_imm16,
        Or_rm8_imm8,
        Or_rm16_imm16,
        Or_rm16_imm8,
        And_rm8_r8,
        And_rm16_r16,
        And_rm32_r32,
        And_rm64_r64,
        And_r8_rm8,
        And_r16_rm16,
        And_r32_rm32,
        And_r64_rm64,
        And_AL_imm8,
        And_AX_imm16,
        And_rm8_imm8,
        And_rm16_imm16,
        And_rm16_imm8,
        Sub_AL_imm8,
        Sub_AX_imm16,
        Sub_rm8_imm8,
        Sub_rm16_imm16,
        Sub_rm16_imm8,
        Sub_rm32_imm8,
        Sub_rm64_imm8,
        Xor_AL_imm8,
        Xor_AX_imm16,
        Xor_EAX_imm32,
        Xor_RAX_imm32,
        Xor_rm8_imm8,
        Xor_rm16_imm16,
        Xor_rm32_imm32,
        Xor_rm64_imm32,
        Xor_rm16_imm8,
        Xor_rm32_imm8,
        Xor_rm64_imm8,
        Adc_rm8_r8,
        Adc_rm16_r16,
        Adc_rm32_r32,
        Adc_rm64_r64,
        Adc_r8_rm8,
        Adc_r16_rm16,
        Adc_r32_rm32,
        Adc_r64_rm64,
        Adc_AL_imm8,
        Adc_AX_imm16,
        Adc_EAX_imm32,
        Adc_RAX_imm32,
        Adc_rm8_imm8,
        Adc_rm16_imm16,
        Adc_rm32_imm32,
        Adc_rm64_imm32,
        Adc_rm16_imm8,
        Adc_rm32_imm8,
        Adc_rm64_imm8,
        Sbb_rm8_r8,
        Sbb_rm16_r16,
        Sbb_rm32_r32,
        Sbb_rm64_r64,
        Sbb_r8_rm8,
        Sbb_r16_rm16,
        Sbb_r32_rm32,
        Sbb_r64_rm64,
        Sbb_AL_imm8,
        Sbb_AX_imm16,
        Sbb_EAX_imm32,
        Sbb_RAX_imm32,
        Sbb_rm8_imm8,
        Sbb_rm16_imm16,
        Sbb_rm32_imm32,
        Sbb_rm64_imm32,
        Sbb_rm16_imm8,
        Sbb_rm32_imm8,
        Sbb_rm64_imm8,
        Imul_r16_rm16,
        Imul_r32_rm32,
        Imul_r64_rm64,
        Inc_rm8,
        Inc_rm16,
        Inc_rm32,
        Inc_rm64,
        Dec_rm8,
        Dec_rm16,
        Dec_rm32,
        Dec_rm64,
        Not_rm8,
        Not_rm16,
        Not_rm32,
        Not_rm64,
        Neg_rm8,
        Neg_rm16,
        Neg_rm32,
        Neg_rm64,
        Bswap_r32,
        Bswap_r64,
        Addss_xmm_xmmm32,
        Addsd_xmm_xmmm64,
        Addps_xmm_xmmm128,
        Addpd_xmm_xmmm128,
        Subss_xmm_xmmm32,
        Subsd_xmm_xmmm64,
        Subps_xmm_xmmm128,
        Subpd_xmm_xmmm128,
        Mulss_xmm_xmmm32,
        Mulsd_xmm_xmmm64,
        Mulps_xmm_xmmm128,
        Mulpd_xmm_xmmm128,
        Divss_xmm_xmmm32,
        Divsd_xmm_xmmm64,
        Divps_xmm_xmmm128,
        Divpd_xmm_xmmm128,
        Minss_xmm_xmmm32,
        Minsd_xmm_xmmm64,
        Minps_xmm_xmmm128,
        Minpd_xmm_xmmm128,
        Maxss_xmm_xmmm32,
        Maxsd_xmm_xmmm64,
        Maxps_xmm_xmmm128,
        Maxpd_xmm_xmmm128,
        Andps_xmm_xmmm128,
        Andpd_xmm_xmmm128,
        Xorps_xmm_xmmm128,
        Xorpd_xmm_xmmm128,
        Unpcklps_xmm_xmmm128,
        Unpcklpd_xmm_xmmm128,
        Unpckhpd_xmm_xmmm128,
        Pxor_xmm_xmmm128,
        Por_xmm_xmmm128,
        Pand_xmm_xmmm128,
        Paddd_xmm_xmmm128,
        Paddq_xmm_xmmm128,
        Psubd_xmm_xmmm128,
        Psubq_xmm_xmmm128,
        Punpckldq_xmm_xmmm128,
        Punpcklqdq_xmm_xmmm128,
        Punpckhqdq_xmm_xmmm128,
        Pcmpeqb_xmm_xmmm128,
        Pcmpeqd_xmm_xmmm128,
        Shufps_xmm_xmmm128_imm8,
        Shufpd_xmm_xmmm128_imm8,
    ]
};
const ADDS: &[Code] = &{
    use Code::*;
    [
        Add_EAX_imm32,
        Add_RAX_imm32,
        Add_rm32_imm32,
        Add_rm64_imm32,
        Sub_EAX_imm32,
        Sub_RAX_imm32,
        Sub_rm32_imm32,
        Sub_rm64_imm32,
    ]
};
const CLEARED: &[Code] = &{
    use Code::*;
    [
        Sub_rm8_r8,
        Sub_rm16_r16,
        Sub_rm32_r32,
        Sub_rm64_r64,
        Sub_r8_rm8,
        Sub_r16_rm16,
        Sub_r32_rm32,
        Sub_r64_rm64,
        Xor_rm8_r8,
        Xor_rm16_r16,
        Xor_rm32_r32,
        Xor_rm64_r64,
        Xor_r8_rm8,
        Xor_r16_rm16,
        Xor_r32_rm32,
        Xor_r64_rm64,
    ]
};
const MASKED: &[Code] = &{
    use Code::*;
    [
        Or_EAX_imm32,
        Or_RAX_imm32,
        Or_rm32_imm32,
        Or_rm64_imm32,
        Or_rm32_imm8,
        Or_rm64_imm8,
        And_EAX_imm32,
        And_RAX_imm32,
        And_rm32_imm32,
        And_rm64_imm32,
        And_rm32_imm8,
        And_rm64_imm8,
    ]
};
const MAKES: &[Code] = &{
    use Code::*;
    [
        Imul_r16_rm16_imm16,
        Imul_r32_rm32_imm32,
        Imul_r64_rm64_imm32,
        Imul_r16_rm16_imm8,
        Imul_r32_rm32_imm8,
        Imul_r64_rm64_imm8,
        VEX_Vaddss_xmm_xmm_xmmm32,
        VEX_Vaddsd_xmm_xmm_xmmm64,
        VEX_Vaddps_xmm_xmm_xmmm128,
        VEX_Vaddpd_xmm_xmm_xmmm128,
        VEX_Vaddps_ymm_ymm_ymmm256,
        VEX_Vaddpd_ymm_ymm_ymmm256,
        VEX_Vsubss_xmm_xmm_xmmm32,
        VEX_Vsubsd_xmm_xmm_xmmm64,
        VEX_Vsubps_xmm_xmm_xmmm128,
        VEX_Vsubpd_xmm_xmm_xmmm128,
        VEX_Vsubps_ymm_ymm_ymmm256,
        VEX_Vsubpd_ymm_ymm_ymmm256,
        VEX_Vmulss_xmm_xmm_xmmm32,
        VEX_Vmulsd_xmm_xmm_xmmm64,
        VEX_Vmulps_xmm_xmm_xmmm128,
        VEX_Vmulpd_xmm_xmm_xmmm128,
        VEX_Vmulps_ymm_ymm_ymmm256,
        VEX_Vmulpd_ymm_ymm_ymmm256,
        VEX_Vdivss_xmm_xmm_xmmm32,
        VEX_Vdivsd_xmm_xmm_xmmm64,
        VEX_Vdivps_xmm_xmm_xmmm128,
        VEX_Vdivpd_xmm_xmm_xmmm128,
        VEX_Vdivps_ymm_ymm_ymmm256,
        VEX_Vdivpd_ymm_ymm_ymmm256,
        VEX_Vminss_xmm_xmm_xmmm32,
        VEX_Vminsd_xmm_xmm_xmmm64,
        VEX_Vminps_xmm_xmm_xmmm128,
        VEX_Vminpd_xmm_xmm_xmmm128,
        VEX_Vminps_ymm_ymm_ymmm256,
        VEX_Vminpd_ymm_ymm_ymmm256,
        VEX_Vmaxss_xmm_xmm_xmmm32,
        VEX_Vmaxsd_xmm_xmm_xmmm64,
        VEX_Vmaxps_xmm_xmm_xmmm128,
        VEX_Vmaxpd_xmm_xmm_xmmm128,
        VEX_Vmaxps_ymm_ymm_ymmm256,
        VEX_Vmaxpd_ymm_ymm_ymmm256,
        VEX_Vandps_xmm_xmm_xmmm128,
        VEX_Vandps_ymm_ymm_ymmm256,
        VEX_Vandpd_xmm_xmm_xmmm128,
        VEX_Vandpd_ymm_ymm_ymmm256,
        VEX_Vxorps_xmm_xmm_xmmm128,
        VEX_Vxorps_ymm_ymm_ymmm256,
        VEX_Vxorpd_xmm_xmm_xmmm128,
        VEX_Vxorpd_ymm_ymm_ymmm256,
        VEX_Vunpcklps_xmm_xmm_xmmm128,
        VEX_Vunpcklps_ymm_ymm_ymmm256,
        VEX_Vunpcklpd_xmm_xmm_xmmm128,
        VEX_Vunpcklpd_ymm_ymm_ymmm256,
        VEX_Vunpckhps_xmm_xmm_xmmm128,
        VEX_Vunpckhps_ymm_ymm_ymmm256,
        VEX_Vunpckhpd_xmm_xmm_xmmm128,
        VEX_Vunpckhpd_ymm_ymm_ymmm256,
        VEX_Vpxor_xmm_xmm_xmmm128,
        VEX_Vpxor_ymm_ymm_ymmm256,
        VEX_Vpor_xmm_xmm_xmmm128,
        VEX_Vpor_ymm_ymm_ymmm256,
        VEX_Vpand_xmm_xmm_xmmm128,
        VEX_Vpand_ymm_ymm_ymmm256,
        VEX_Vpaddd_xmm_xmm_xmmm128,
        VEX_Vpaddd_ymm_ymm_ymmm256,
        VEX_Vpaddq_xmm_xmm_xmmm128,
        VEX_Vpaddq_ymm_ymm_ymmm256,
        VEX_Vpsubd_xmm_xmm_xmmm128,
        VEX_Vpsubd_ymm_ymm_ymmm256,
        VEX_Vpsubq_xmm_xmm_xmmm128,
        VEX_Vpsubq_ymm_ymm_ymmm256,
        VEX_Vshufps_xmm_xmm_xmmm128_imm8,
        VEX_Vshufps_ymm_ymm_ymmm256_imm8,
        VEX_Vshufpd_xmm_xmm_xmmm128_imm8,
        VEX_Vshufpd_ymm_ymm_ymmm256_imm8,
        VEX_Vmovss_xmm_xmm_xmm,
        VEX_Vmovsd_xmm_xmm_xmm,
        VEX_Vmovhps_xmm_xmm_m64,
        VEX_Vmovhpd_xmm_xmm_m64,
        VEX_Vmovlps_xmm_xmm_m64,
        VEX_Vmovlpd_xmm_xmm_m64,
        VEX_Vcvtsi2ss_xmm_xmm_rm32,
        VEX_Vcvtsi2ss_xmm_xmm_rm64,
        VEX_Vcvtsi2sd_xmm_xmm_rm32,
        VEX_Vcvtsi2sd_xmm_xmm_rm64,
        VEX_Vcvtss2sd_xmm_xmm_xmmm32,
        VEX_Vcvtsd2ss_xmm_xmm_xmmm64,
        VEX_Vsqrtss_xmm_xmm_xmmm32,
        VEX_Vsqrtsd_xmm_xmm_xmmm64,
        VEX_Vinsertf128_ymm_ymm_xmmm128_imm8,
        VEX_Vinserti128_ymm_ymm_xmmm128_imm8,
        VEX_Vperm2f128_ymm_ymm_ymmm256_imm8,
    ]
};
const FUSES: &[Code] = &{
    use Code::*;
    [
        VEX_Vfmadd132ss_xmm_xmm_xmmm32,
        VEX_Vfmadd132sd_xmm_xmm_xmmm64,
        VEX_Vfmadd132ps_xmm_xmm_xmmm128,
        VEX_Vfmadd132pd_xmm_xmm_xmmm128,
        VEX_Vfmadd132ps_ymm_ymm_ymmm256,
        VEX_Vfmadd132pd_ymm_ymm_ymmm256,
        VEX_Vfmadd213ss_xmm_xmm_xmmm32,
        VEX_Vfmadd213sd_xmm_xmm_xmmm64,
        VEX_Vfmadd213ps_xmm_xmm_xmmm128,
        VEX_Vfmadd213pd_xmm_xmm_xmmm128,
        VEX_Vfmadd213ps_ymm_ymm_ymmm256,
        VEX_Vfmadd213pd_ymm_ymm_ymmm256,
        VEX_Vfmadd231ss_xmm_xmm_xmmm32,
        VEX_Vfmadd231sd_xmm_xmm_xmmm64,
        VEX_Vfmadd231ps_xmm_xmm_xmmm128,
        VEX_Vfmadd231pd_xmm_xmm_xmmm128,
        VEX_Vfmadd231ps_ymm_ymm_ymmm256,
        VEX_Vfmadd231pd_ymm_ymm_ymmm256,
        VEX_Vfmsub132ss_xmm_xmm_xmmm32,
        VEX_Vfmsub132sd_xmm_xmm_xmmm64,
        VEX_Vfmsub132ps_xmm_xmm_xmmm128,
        VEX_Vfmsub132pd_xmm_xmm_xmmm128,
        VEX_Vfmsub132ps_ymm_ymm_ymmm256,
        VEX_Vfmsub132pd_ymm_ymm_ymmm256,
        VEX_Vfmsub213ss_xmm_xmm_xmmm32,
        VEX_Vfmsub213sd_xmm_xmm_xmmm64,
        VEX_Vfmsub213ps_xmm_xmm_xmmm128,
        VEX_Vfmsub213pd_xmm_xmm_xmmm128,
        VEX_Vfmsub213ps_ymm_ymm_ymmm256,
        VEX_Vfmsub213pd_ymm_ymm_ymmm256,
        VEX_Vfmsub231ss_xmm_xmm_xmmm32,
        VEX_Vfmsub231sd_xmm_xmm_xmmm64,
        VEX_Vfmsub231ps_xmm_xmm_xmmm128,
        VEX_Vfmsub231pd_xmm_xmm_xmmm128,
        VEX_Vfmsub231ps_ymm_ymm_ymmm256,
        VEX_Vfmsub231pd_ymm_ymm_ymmm256,
        VEX_Vfnmadd132ss_xmm_xmm_xmmm32,
        VEX_Vfnmadd132sd_xmm_xmm_xmmm64,
        VEX_Vfnmadd132ps_xmm_xmm_xmmm128,
        VEX_Vfnmadd132pd_xmm_xmm_xmmm128,
        VEX_Vfnmadd132ps_ymm_ymm_ymmm256,
        VEX_Vfnmadd132pd_ymm_ymm_ymmm256,
        VEX_Vfnmadd213ss_xmm_xmm_xmmm32,
        VEX_Vfnmadd213sd_xmm_xmm_xmmm64,
        VEX_Vfnmadd213ps_xmm_xmm_xmmm128,
        VEX_Vfnmadd213pd_xmm_xmm_xmmm128,
        VEX_Vfnmadd213ps_ymm_ymm_ymmm256,
        VEX_Vfnmadd213pd_ymm_ymm_ymmm256,
        VEX_Vfnmadd231ss_xmm_xmm_xmmm32,
        VEX_Vfnmadd231sd_xmm_xmm_xmmm64,
        VEX_Vfnmadd231ps_xmm_xmm_xmmm128,
        VEX_Vfnmadd231pd_xmm_xmm_xmmm128,
        VEX_Vfnmadd231ps_ymm_ymm_ymmm256,
        VEX_Vfnmadd231pd_ymm_ymm_ymmm256,
        VEX_Vfnmsub132ss_xmm_xmm_xmmm32,
        VEX_Vfnmsub132sd_xmm_xmm_xmmm64,
        VEX_Vfnmsub132ps_xmm_xmm_xmmm128,
        VEX_Vfnmsub132pd_xmm_xmm_xmmm128,
        VEX_Vfnmsub132ps_ymm_ymm_ymmm256,
        VEX_Vfnmsub132pd_ymm_ymm_ymmm256,
        VEX_Vfnmsub213ss_xmm_xmm_xmmm32,
        VEX_Vfnmsub213sd_xmm_xmm_xmmm64,
        VEX_Vfnmsub213ps_xmm_xmm_xmmm128,
        VEX_Vfnmsub213pd_xmm_xmm_xmmm128,
        VEX_Vfnmsub213ps_ymm_ymm_ymmm256,
        VEX_Vfnmsub213pd_ymm_ymm_ymmm256,
        VEX_Vfnmsub231ss_xmm_xmm_xmmm32,
        VEX_Vfnmsub231sd_xmm_xmm_xmmm64,
        VEX_Vfnmsub231ps_xmm_xmm_xmmm128,
        VEX_Vfnmsub231pd_xmm_xmm_xmmm128,
        VEX_Vfnmsub231ps_ymm_ymm_ymmm256,
        VEX_Vfnmsub231pd_ymm_ymm_ymmm256,
    ]
};
const IDLES: &[Code] = &{
    use Code::*;
    [
        Nopw, Nopd, Nopq, Nop_rm16, Nop_rm32, Nop_rm64, Endbr64, Ud2, Int3,
    ]
};
const ADDRESS: &[Code] = &[Code::Lea_r32_m, Code::Lea_r64_m];
const JUMPS: &[Code] = &[Code::Jmp_rel8_64, Code::Jmp_rel32_64, Code::Jmp_rm64];
const PUSHES: &[Code] = &[
    Code::Push_r64,
    Code::Push_rm64,
    Code::Pushq_imm8,
    Code::Call_rel32_64,
    Code::Call_rm64,
];
const SIGNS: &[Code] = &[Code::Cdq, Code::Cqo];

/// Upper bound of the number of codes: iced has fewer than five thousand.
const CODES: usize = 1 << 13;

/// The kind by instruction code. A table look-up is faster than a branch with some hundred cases.
static KINDS: [Kind; CODES] = {
    let mut kinds = [Kind::Other; CODES];
    let lists = [
        (MOVES, Kind::Moves),
        (LOADS, Kind::Loads),
        (ADDRESS, Kind::Address),
        (COMPARES, Kind::Compares),
        (CHANGES, Kind::Changes),
        (ADDS, Kind::Adds),
        (CLEARED, Kind::Cancels),
        (MASKED, Kind::Masks),
        (MAKES, Kind::Makes),
        (FUSES, Kind::Fuses),
        (JUMPS, Kind::Jumps),
        (IDLES, Kind::Idles),
        (PUSHES, Kind::Pushes),
        (&[Code::Pushq_imm32], Kind::PushesConstant),
        (&[Code::Pop_r64], Kind::Pops),
        (&[Code::Retnq], Kind::Returns),
        (&[Code::Leaveq], Kind::Leaves),
        (&[Code::Cdqe], Kind::Extends),
        (SIGNS, Kind::Signs),
    ];
    let mut n = 0;
    while n < lists.len() {
        let mut i = 0;
        while i < lists[n].0.len() {
            kinds[lists[n].0[i] as usize] = lists[n].1;
            i += 1;
        }
        n += 1;
    }
    // These are consecutive: conditional jumps, short and near; conditional bytes and moves; shifts
    // and rotations.
    let rows = [
        (Code::Jo_rel8_16, Code::Jg_rel8_64, Kind::Jumps),
        (Code::Jo_rel16, Code::Jg_rel32_64, Kind::Jumps),
        (Code::Seto_rm8, Code::Setg_rm8, Kind::Moves),
        (Code::Cmovo_r16_rm16, Code::Cmovg_r64_rm64, Kind::Chooses),
        (Code::Rol_rm8_imm8, Code::Sar_rm64_imm8, Kind::Changes),
        (Code::Rol_rm8_1, Code::Sar_rm64_1, Kind::Changes),
        (Code::Rol_rm8_CL, Code::Sar_rm64_CL, Kind::Changes),
    ];
    let mut n = 0;
    while n < rows.len() {
        let mut code = rows[n].0 as usize;
        while code <= rows[n].1 as usize {
            kinds[code] = rows[n].2;
            code += 1;
        }
        n += 1;
    }
    // The 32-bit forms clear the upper half even if the condition is false.
    let mut code = Code::Cmovo_r32_rm32 as usize;
    while code <= Code::Cmovg_r32_rm32 as usize {
        kinds[code] = Kind::Changes;
        code += 3;
    }
    kinds
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::cfg::Cfg;
    use crate::ir::cfg::Entries;
    use crate::x86::decode::decode_function;
    use iced_x86::{Decoder, DecoderOptions, Mnemonic};

    /// Tests every opcode of one and two bytes with every ModRM byte, after every prefix that
    /// changes an operand, and some others; and those of AVX.
    #[test]
    fn what_is_plain_is_as_iced_says() {
        let prefixes: Vec<Vec<u8>> = [vec![]]
            .into_iter()
            .chain(
                (0x40..0x50)
                    .chain([0x66, 0x67, 0xf0, 0xf2, 0xf3, 0x64, 0x65])
                    .map(|p| vec![p]),
            )
            .chain([vec![0x66, 0x48], vec![0x67, 0x4f]])
            .collect();
        let legacy = prefixes
            .iter()
            .flat_map(|p| [[&p[..], &[]].concat(), [&p[..], &[0x0f]].concat()]);
        let last = |map: u8| {
            [
                0x69, 0x6d, 0x79, 0x7d, 0x7a, 0x7b, 0x78, 0x7c, 0xe9, 0xed, 0xf9, 0xfd, 0xfa, 0xfb,
            ]
            .map(|l| vec![0xc4, 0xe0 | map, l])
        };
        let avx = (1..=3).flat_map(last);
        let mut factory = InstructionInfoFactory::new();
        let mut plain_ones = std::collections::HashSet::new();
        for prefix in legacy.chain(avx) {
            for opcode in 0..=255 {
                for modrm in 0..=255 {
                    // Also as a SIB byte, without and with index.
                    for behind in [0x24, 0xcd] {
                        let bytes = [
                            &prefix[..],
                            &[opcode, modrm, behind, 1, 2, 3, 0, 5, 6, 7, 8, 9],
                        ]
                        .concat();
                        let inst =
                            Decoder::with_ip(64, &bytes, 0x1000, DecoderOptions::NONE).decode();
                        let Some(plain) = plain(&inst) else { continue };
                        plain_ones.insert(inst.code());
                        let goes_on = inst.flow_control() == FlowControl::Next;
                        let is_special = inst.is_string_instruction()
                            || matches!(
                                inst.mnemonic(),
                                Mnemonic::Hlt | Mnemonic::Wrfsbase | Mnemonic::Wrgsbase
                            );
                        assert_eq!(
                            is_simple(&inst, inst.flow_control()),
                            goes_on && !is_special,
                            "{bytes:02x?}"
                        );
                        let info = registers(&mut factory, &inst);
                        assert_eq!(plain.uses, reg_use(info), "{bytes:02x?}");
                        assert_eq!(
                            accesses(&inst, &plain),
                            accesses(&inst, info),
                            "{bytes:02x?}"
                        );
                        assert_eq!(
                            plain_access(&inst, &plain).as_slice(),
                            &accesses(&inst, info)[..],
                            "{bytes:02x?}"
                        );
                        let has_access = !accesses(&inst, info).is_empty();
                        assert!(
                            !has_access
                                || own_destination(&inst, &plain) == own_destination(&inst, info),
                            "{bytes:02x?}"
                        );
                        assert!(
                            plain.way.is_rare()
                                || plain.uses == plain.uses.without_idle_read(&inst),
                            "{bytes:02x?}"
                        );
                        assert!(
                            plain.way.is_rare() || taken(&inst).is_none(),
                            "{bytes:02x?}"
                        );
                    }
                }
            }
        }
        let all = KINDS.iter().filter(|k| !matches!(k, Kind::Other)).count();
        assert!(
            plain_ones.len() * 10 > all * 9,
            "{} of {all}",
            plain_ones.len()
        );
    }

    #[test]
    fn a_function_has_the_facts_of_its_instructions() {
        // lea rax, [rip - 7]; or ecx, -1; rep movsb; mov eax, [rdi]; ret
        let code = [
            0x48, 0x8d, 0x05, 0xf9, 0xff, 0xff, 0xff, 0x83, 0xc9, 0xff, 0xf3, 0xa4, 0x8b, 0x07,
            0xc3,
        ];
        let graph = Cfg::build(
            decode_function(&code, 0x1000, &[]).unwrap(),
            &(0x1000..0x100f),
            &Entries::default(),
            &[],
        );
        let facts = |owned| {
            Facts::of(
                &graph.insns,
                0x1000,
                owned,
                &mut InstructionInfoFactory::new(),
            )
        };
        let (f, rcx) = (facts(true), RegSet(2));
        assert_eq!(
            (&f.takers[..], f.uses[1].read, f.uses[1].kill),
            (&[0][..], RegSet::EMPTY, rcx)
        );
        assert_eq!(
            (f.accesses.insns(), f.accesses[2].len(), f.accesses[3].len()),
            (&[2, 3][..], 2, 1)
        );
        assert_eq!((f.own[3], facts(false).own[3]), (Some(RAX), None));
        let uses = f.into_uses();
        assert_eq!((uses[1].read, uses[1].kill), (rcx, RegSet::EMPTY));
    }
}
