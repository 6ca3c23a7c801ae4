//! Actions that functions write to objects which the search does not follow: statics, and what pointers lead to.
//!
//! Such an object may also be filled with the action that was in force before, and be put back somewhere; so that nobody seems to have written it.

use super::{FLAGS, SA_SIGINFO};
use crate::functions::{Input, Program};
use crate::ir::RegSet;
use crate::regs::{gpr, reg_use, registers};
use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register};
use rayon::prelude::*;
use std::ops::Range;

/// All bits that the flags of an action may have: SA_NOCLDSTOP to SA_SIGINFO, SA_UNSUPPORTED and SA_EXPOSE_TAGBITS, SA_RESTORER to SA_RESETHAND.
const ALL_FLAGS: u64 = 0xdc00_0c07;

/// Bytes of code between the two stores, at most: others are of objects of other kinds.
const NEAR: u64 = 256;

/// A handler, and flags with SA_SIGINFO at their distance from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Built {
    /// Where the flags are written.
    pub at: u64,
    /// Address of the action, if it is a static.
    pub action: Option<u64>,
}

/// All in a file. Instructions are read one after the other; what registers hold is not known, but that two stores off the same one go to the same object.
pub fn find(input: &Input, program: &Program) -> Vec<Built> {
    program.functions.par_iter().flat_map_iter(|f| input.slice(&f.range).map_or_else(Vec::new, |bytes| in_function(input, bytes, &f.range))).collect()
}

fn in_function(input: &Input, bytes: &[u8], range: &Range<u64>) -> Vec<Built> {
    let (mut handlers, mut flags) = (Vec::new(), Vec::new());
    let mut has_frame = false;
    // Registers in which there is no handler: the last instruction has put an address of data or a number there, or has computed it.
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
            Mnemonic::Lea if inst.is_ip_rel_memory_operand() => is_other(inst.ip_rel_memory_address()),
            Mnemonic::Mov => inst.try_immediate(1).is_ok_and(is_other),
            Mnemonic::Call => true,
            Mnemonic::Lea | Mnemonic::Add | Mnemonic::Sub | Mnemonic::And | Mnemonic::Or | Mnemonic::Xor | Mnemonic::Shl | Mnemonic::Shr => true,
            _ => false,
        };
        if puts_other && inst.op0_kind() != OpKind::Memory {
            others.0 |= set.0;
        }
        has_frame |= inst.mnemonic() == Mnemonic::Mov && inst.op0_register() == Register::RBP && inst.op1_register() == Register::RSP;
        let base = inst.memory_base();
        // What lies in the frame is followed.
        if inst.op0_kind() != OpKind::Memory || inst.memory_index() != Register::None || base == Register::RSP || base == Register::RBP && has_frame {
            continue;
        }
        let to = (base, inst.memory_displacement64());
        match inst.memory_size().size() {
            8 if inst.mnemonic() == Mnemonic::Mov && !stored_other => handlers.push((inst.ip(), to)),
            4 | 8 if sets_siginfo(&inst) => flags.push((inst.ip(), to)),
            _ => {}
        }
    }
    let of_flags = |&(at, (base, distance)): &(u64, (Register, u64))| {
        let action = distance.wrapping_sub_signed(FLAGS);
        let found = handlers.iter().any(|&(ip, to)| to == (base, action) && ip.abs_diff(at) <= NEAR);
        found.then_some(Built { at, action: (base == Register::RIP).then_some(action) })
    };
    flags.iter().filter_map(of_flags).collect()
}

fn sets_siginfo(inst: &Instruction) -> bool {
    let is_one = matches!(inst.mnemonic(), Mnemonic::Mov | Mnemonic::Or) && inst.op_count() == 2;
    is_one && inst.try_immediate(1).is_ok_and(|value| value & 0xffff_ffff & !ALL_FLAGS == 0 && value & SA_SIGINFO != 0)
}
