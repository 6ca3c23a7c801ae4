//! Sorted ranges of addresses.

use crate::discover::jump_tables::is_indirect_jump;
use crate::ir::cfg::Graph;
use crate::ir::jump_table::Found;
use crate::program::FunctionInfo;
use crate::x86::decode::make;
use crate::x86::effects;
use crate::x86::flow::{direct_target, is_call, is_padding};
use crate::x86::insn::Insn;
use crate::x86::regs::{RegSet, gpr, registers};
use iced_x86::{
    Code, ConditionCode, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory,
    Mnemonic, OpAccess, OpKind, Register,
};
use std::ops::Range;

/// Whether any byte of `range` is in one of `data`, which is sorted.
pub fn overlaps(data: &[Range<u64>], range: &Range<u64>) -> bool {
    data.get(data.partition_point(|d| d.end <= range.start))
        .is_some_and(|d| d.start < range.end)
}
