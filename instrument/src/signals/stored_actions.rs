//! Actions that functions write to objects which the search does not track: statics, and objects
//! behind pointers.
//!
//! Such an object may also receive the previous action and be installed again later, so that it
//! seems to have no writer.

use crate::program::{FunctionInfo, Input, Program};
use crate::signals::{FLAGS, SA_SIGINFO};
use crate::x86::regs::{RegSet, gpr, reg_use, registers};
use iced_x86::{
    Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register,
};
use rayon::prelude::*;
use std::ops::Range;

/// All bits that the flags of an action may have: SA_NOCLDSTOP to SA_SIGINFO, SA_UNSUPPORTED and
/// SA_EXPOSE_TAGBITS, SA_RESTORER to SA_RESETHAND.
const ALL_FLAGS: u64 = 0xdc00_0c07;

/// Maximum bytes of code between the two stores. Stores farther apart belong to different objects.
/// Source: Chosen.
const MAX_CODE_BYTES_BETWEEN: u64 = 256;

/// A store of a handler, and one of flags with SA_SIGINFO at the right distance from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Built {
    /// Address of the instruction that writes the flags.
    pub at: u64,
    /// Address of the action, if it is a static.
    pub action: Option<u64>,
}

/// Finds all of them in a file. Instructions are read in order. Register values are unknown, except
/// that two stores based on the same register go to the same object.
pub fn find_built_actions(input: &Input, program: &Program) -> Vec<Built> {
    let in_function = |f: &FunctionInfo| {
        input
            .slice(&f.range)
            .filter(|bytes| may_set_siginfo(bytes))
            .map_or_else(Vec::new, |bytes| in_function(input, bytes, &f.range))
    };
    program
        .functions
        .par_iter()
        .flat_map_iter(in_function)
        .collect()
}

/// True if any of these bytes may begin the opcode, operands and constant of an instruction that
/// [`sets_siginfo`] in memory. Few functions have such bytes, so few functions are decoded.
fn may_set_siginfo(bytes: &[u8]) -> bool {
    /// `mov` and `or`, which differ in the ModRM field, with a constant of four bytes; `or` with
    /// one byte.
    const OPCODES: [u8; 3] = [0xc7, 0x81, 0x83];
    const SHORT_OPCODE: u8 = 0x83;
    memchr::memchr3_iter(OPCODES[0], OPCODES[1], OPCODES[2], bytes).any(|at| {
        let Some(&modrm) = bytes.get(at + 1) else {
            return false;
        };
        if modrm >> 6 == 3 || modrm >> 3 & 7 > 1 {
            return false;
        }
        let has_sib = modrm & 7 == 4;
        let base = if has_sib {
            bytes.get(at + 2).map_or(0, |sib| sib & 7)
        } else {
            modrm & 7
        };
        let distance = match modrm >> 6 {
            0 if base == 5 => 4,
            0 => 0,
            1 => 1,
            _ => 4,
        };
        let constant = bytes
            .get(at + 2 + usize::from(has_sib) + distance..)
            .unwrap_or(&[]);
        let value = if bytes[at] == SHORT_OPCODE {
            constant.first().map(|&b| b as i8 as u64)
        } else {
            constant
                .first_chunk()
                .map(|b| u32::from_le_bytes(*b).into())
        };
        value.is_some_and(has_siginfo)
    })
}

fn in_function(input: &Input, bytes: &[u8], range: &Range<u64>) -> Vec<Built> {
    let (mut handlers, mut flags) = (Vec::new(), Vec::new());
    let mut has_frame = false;
    // Registers that hold no handler: the last write was an address of data or a number, or a
    // computed value.
    let mut others = RegSet::EMPTY;
    let mut factory = InstructionInfoFactory::new();
    for inst in &mut Decoder::with_ip(64, bytes, range.start, DecoderOptions::NONE) {
        let is_other = |value: u64| !input.is_code(value);
        let stored_other = match inst.op1_kind() {
            OpKind::Register => gpr(inst.op1_register()).is_some_and(|r| others.contains(r)),
            _ => inst.try_immediate(1).is_ok_and(is_other),
        };
        let set = reg_use(registers(&mut factory, &inst)).clobber;
        others.0 &= !set.0;
        let puts_other = match inst.mnemonic() {
            Mnemonic::Lea if inst.is_ip_rel_memory_operand() => {
                is_other(inst.ip_rel_memory_address())
            }
            Mnemonic::Mov => inst.try_immediate(1).is_ok_and(is_other),
            Mnemonic::Call => true,
            Mnemonic::Lea
            | Mnemonic::Add
            | Mnemonic::Sub
            | Mnemonic::And
            | Mnemonic::Or
            | Mnemonic::Xor
            | Mnemonic::Shl
            | Mnemonic::Shr => true,
            _ => false,
        };
        if puts_other && inst.op0_kind() != OpKind::Memory {
            others.0 |= set.0;
        }
        has_frame |= inst.mnemonic() == Mnemonic::Mov
            && inst.op0_register() == Register::RBP
            && inst.op1_register() == Register::RSP;
        let base = inst.memory_base();
        // Stores to the frame are tracked elsewhere.
        if inst.op0_kind() != OpKind::Memory
            || inst.memory_index() != Register::None
            || base == Register::RSP
            || base == Register::RBP && has_frame
        {
            continue;
        }
        let to = (base, inst.memory_displacement64());
        match inst.memory_size().size() {
            8 if inst.mnemonic() == Mnemonic::Mov && !stored_other => {
                handlers.push((inst.ip(), to))
            }
            4 | 8 if sets_siginfo(&inst) => flags.push((inst.ip(), to)),
            _ => {}
        }
    }
    let of_flags = |&(at, (base, distance)): &(u64, (Register, u64))| {
        let action = distance.wrapping_add_signed(-FLAGS);
        let found = handlers
            .iter()
            .any(|&(ip, to)| to == (base, action) && ip.abs_diff(at) <= MAX_CODE_BYTES_BETWEEN);
        found.then_some(Built {
            at,
            action: (base == Register::RIP).then_some(action),
        })
    };
    flags.iter().filter_map(of_flags).collect()
}

fn sets_siginfo(inst: &Instruction) -> bool {
    let is_one = matches!(inst.mnemonic(), Mnemonic::Mov | Mnemonic::Or) && inst.op_count() == 2;
    is_one && inst.try_immediate(1).is_ok_and(has_siginfo)
}

/// True if a constant may be flags of an action, SA_SIGINFO among them.
fn has_siginfo(value: u64) -> bool {
    value & 0xffff_ffff & !ALL_FLAGS == 0 && value & SA_SIGINFO != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_sets_flags_in_memory_is_seen_by_its_bytes() {
        let prefixes: [&[u8]; 8] = [
            &[],
            &[0x48],
            &[0x4f],
            &[0x67],
            &[0x64],
            &[0xf0],
            &[0xf2, 0x41],
            &[0x66],
        ];
        let mut setting = 0;
        for prefix in prefixes {
            for opcode in 0..=255 {
                for modrm in 0..=255 {
                    for (sib, constant) in [(0x24, 4), (0xe5, 4), (0x25, 6), (0x24, 0)] {
                        for distance in 0..8 {
                            // The constant follows displacements of all lengths.
                            let mut bytes = [
                                prefix,
                                &[opcode, modrm, sib],
                                &[1; 7][..distance],
                                &[constant, 0, 0, 8, 9, 9, 9, 9, 9],
                            ]
                            .concat();
                            let inst =
                                Decoder::with_ip(64, &bytes, 0x1000, DecoderOptions::NONE).decode();
                            bytes.truncate(inst.len());
                            let sets = inst.op0_kind() == OpKind::Memory
                                && matches!(inst.memory_size().size(), 4 | 8)
                                && sets_siginfo(&inst);
                            assert!(!sets || may_set_siginfo(&bytes), "{bytes:02x?}");
                            setting += u32::from(sets);
                        }
                    }
                }
            }
        }
        assert!(setting > 500, "{setting}");
        assert!(
            !may_set_siginfo(&[0xc7, 0x40, 0x88, 0x08, 0, 0, 0])
                && !may_set_siginfo(&[0xc7])
                && !may_set_siginfo(&[0x83, 0x0c])
        );
    }
}
