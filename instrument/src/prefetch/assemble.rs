//! Assembles the instructions of one prefetch.

use crate::plan::types::Piece;
use crate::prefetch::Reason;
use crate::x86::encode::Encoded;
use crate::x86::regs::{Gpr, RegSet, gpr};
use iced_x86::{Code, Encoder, Instruction, MemoryOperand, Register};

/// Code of one prefetch under construction. It may contain a conditional jump to its end.
#[derive(Default)]
pub struct Assembly {
    pieces: Vec<Piece>,
    /// Number of the piece after which the jump stands, and its condition.
    jump: Option<(usize, Condition)>,
}

/// Condition of the jump to the end.
#[derive(Clone, Copy)]
pub enum Condition {
    /// Unsigned, `cmp a, b`: a > b.
    Above,
    /// Unsigned, `cmp a, b`: a < b.
    Below,
}

/// The 64-bit register.
pub fn wide(r: Gpr) -> Register {
    Register::RAX + u32::from(r.0)
}

/// The 32-bit register.
pub fn half(r: Gpr) -> Register {
    Register::EAX + u32::from(r.0)
}

/// The part of register `r` with the size of `like`. `None` for ah to dh, which only some registers
/// have.
pub fn sized(like: Register, r: Gpr) -> Option<Register> {
    let number = u32::from(r.0);
    if like.is_gpr64() {
        Some(wide(r))
    } else if like.is_gpr32() {
        Some(half(r))
    } else if like.is_gpr16() {
        Some(Register::AX + number)
    } else if matches!(
        like,
        Register::AH | Register::BH | Register::CH | Register::DH
    ) || !like.is_gpr8()
    {
        None
    } else if number < 4 {
        Some(Register::AL + number)
    } else {
        Some(Register::SPL + (number - 4))
    }
}

/// The registers of an instruction's memory operand.
pub fn address_registers(inst: &Instruction) -> RegSet {
    let registers = [inst.memory_base(), inst.memory_index()];
    let registers = registers.into_iter().filter_map(gpr);
    registers.fold(RegSet::EMPTY, RegSet::with)
}

/// The memory operand of an instruction.
pub fn operand(inst: &Instruction) -> MemoryOperand {
    MemoryOperand::new(
        inst.memory_base(),
        inst.memory_index(),
        inst.memory_index_scale(),
        inst.memory_displacement64() as i64,
        inst.memory_displ_size(),
        false,
        inst.segment_prefix(),
    )
}

/// The operand with `bytes` added to its displacement.
pub fn moved(mut operand: MemoryOperand, bytes: i64) -> Result<MemoryOperand, Reason> {
    let sum = operand.displacement.checked_add(bytes);
    let sum = sum.filter(|s| i32::try_from(*s).is_ok());
    operand.displacement = sum.ok_or_else(|| {
        Reason::from("the distance in bytes does not fit the instruction's displacement of 32 bits")
    })?;
    let narrow = operand.base.is_gpr32() || operand.index.is_gpr32();
    operand.displ_size = match i8::try_from(operand.displacement) {
        _ if operand.base == Register::None => {
            if narrow {
                4
            } else {
                8
            }
        }
        Ok(0) => 0,
        Ok(_) => 1,
        Err(_) if narrow => 4,
        Err(_) => 8,
    };
    Ok(operand)
}

/// The operand with register `from` replaced by `to`.
pub fn renamed(mut operand: MemoryOperand, from: Gpr, to: Gpr) -> MemoryOperand {
    for register in [&mut operand.base, &mut operand.index] {
        if gpr(*register) == Some(from)
            && let Some(new) = sized(*register, to)
        {
            *register = new;
        }
    }
    operand
}

impl Assembly {
    /// Appends an instruction. RIP-relative operands keep their targets.
    pub fn put(&mut self, inst: &Instruction) -> Result<(), Reason> {
        let mut encoder = Encoder::new(64);
        let failed = |_| Reason::from("an instruction of its address cannot be encoded again");
        // (At its own address, the instruction can encode its displacement.)
        encoder.encode(inst, inst.ip()).map_err(failed)?;
        let offsets = encoder.get_constant_offsets();
        let target = inst.is_ip_rel_memory_operand().then(|| {
            (
                offsets.displacement_offset() as u8,
                inst.ip_rel_memory_address(),
            )
        });
        self.pieces.push(Piece {
            code: Encoded::of(&encoder.take_buffer()),
            target,
        });
        Ok(())
    }

    fn make(&mut self, inst: Result<Instruction, iced_x86::IcedError>) -> Result<(), Reason> {
        self.put(&inst.map_err(|_| Reason::from("its address has a form that no prefetch has"))?)
    }

    /// `prefetcht0 operand`.
    pub fn prefetch(&mut self, operand: MemoryOperand) -> Result<(), Reason> {
        self.make(Instruction::with1(Code::Prefetcht0_m8, operand))
    }

    /// `lea to, operand`.
    pub fn lea(&mut self, to: Gpr, operand: MemoryOperand) -> Result<(), Reason> {
        self.make(Instruction::with2(Code::Lea_r64_m, wide(to), operand))
    }

    /// `mov to, operand` of eight bytes.
    pub fn load(&mut self, to: Gpr, operand: MemoryOperand) -> Result<(), Reason> {
        self.make(Instruction::with2(Code::Mov_r64_rm64, wide(to), operand))
    }

    /// `mov to, from`.
    pub fn copy(&mut self, to: Gpr, from: Gpr) -> Result<(), Reason> {
        self.make(Instruction::with2(Code::Mov_r64_rm64, wide(to), wide(from)))
    }

    /// Jumps to the end unless the `bytes` bytes from `operand` + `from` on are on the page at
    /// which `operand` points. Uses `scratch` and the flags.
    pub fn stay_on_page(
        &mut self,
        scratch: Gpr,
        operand: MemoryOperand,
        from: i64,
        bytes: i64,
    ) -> Result<(), Reason> {
        use super::params::PAGE;
        let page = (PAGE - 1) as i32;
        let part = half(scratch);
        self.make(Instruction::with2(Code::Lea_r32_m, part, operand))?;
        self.make(Instruction::with2(Code::And_rm32_imm32, part, page))?;
        let (limit, condition) = if from >= 0 {
            (PAGE - from - bytes, Condition::Above)
        } else {
            (-from, Condition::Below)
        };
        self.make(Instruction::with2(Code::Cmp_rm32_imm32, part, limit as i32))?;
        self.jump = Some((self.pieces.len(), condition));
        Ok(())
    }

    /// All pieces.
    pub fn finish(mut self) -> Result<Vec<Piece>, Reason> {
        if let Some((at, condition)) = self.jump {
            let behind = self.pieces[at..].iter();
            let distance: u32 = behind.map(|p| u32::from(p.code.size())).sum();
            let (short, long) = match condition {
                Condition::Above => (0x77, 0x87),
                Condition::Below => (0x72, 0x82),
            };
            let code = match i8::try_from(distance) {
                Ok(near) => Encoded::of(&[short, near as u8]),
                Err(_) => Encoded::of(&[0x0f, long]).with32(distance),
            };
            self.pieces.insert(at, Piece { code, target: None });
        }
        Ok(self.pieces)
    }
}
