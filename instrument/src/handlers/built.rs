//! Actions that functions write to objects which the search does not follow: statics, and what pointers lead to.
//!
//! Such an object may also be filled with the action that was in force before, and be put back somewhere; so that nobody seems to have written it.

use super::{FLAGS, SA_SIGINFO};
use crate::functions::{Input, Program};
use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use rayon::prelude::*;
use std::ops::Range;

/// All bits that the flags of an action may have: SA_NOCLDSTOP to SA_SIGINFO, SA_UNSUPPORTED and SA_EXPOSE_TAGBITS, SA_RESTORER to SA_RESETHAND.
const ALL_FLAGS: u64 = 0xdc00_0c07;

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
    program.functions.par_iter().flat_map_iter(|f| input.slice(&f.range).map_or_else(Vec::new, |bytes| in_function(bytes, &f.range))).collect()
}

fn in_function(bytes: &[u8], range: &Range<u64>) -> Vec<Built> {
    let (mut handlers, mut flags) = (Vec::new(), Vec::new());
    let mut has_frame = false;
    for inst in &mut Decoder::with_ip(64, bytes, range.start, DecoderOptions::NONE) {
        has_frame |= inst.mnemonic() == Mnemonic::Mov && inst.op0_register() == Register::RBP && inst.op1_register() == Register::RSP;
        let base = inst.memory_base();
        // What lies in the frame is followed.
        if inst.op0_kind() != OpKind::Memory || inst.memory_index() != Register::None || base == Register::RSP || base == Register::RBP && has_frame {
            continue;
        }
        let to = (base, inst.memory_displacement64());
        match inst.memory_size().size() {
            8 if inst.mnemonic() == Mnemonic::Mov => handlers.push(to),
            4 | 8 if sets_siginfo(&inst) => flags.push((inst.ip(), to)),
            _ => {}
        }
    }
    let of_flags = |&(at, (base, distance)): &(u64, (Register, u64))| {
        let action = distance.wrapping_sub_signed(FLAGS);
        handlers.contains(&(base, action)).then_some(Built { at, action: (base == Register::RIP).then_some(action) })
    };
    flags.iter().filter_map(of_flags).collect()
}

fn sets_siginfo(inst: &Instruction) -> bool {
    let is_one = matches!(inst.mnemonic(), Mnemonic::Mov | Mnemonic::Or) && inst.op_count() == 2;
    is_one && inst.try_immediate(1).is_ok_and(|value| value & 0xffff_ffff & !ALL_FLAGS == 0 && value & SA_SIGINFO != 0)
}
