//! Whether what code takes the address of, inside of a function, is code or data.
//!
//! Hand-written functions have data between their instructions, and some of it looks like instructions. An entry jump over it would change what the
//! program reads. So where nothing else leads, one is written only if the address is seen on its way to a jump.

use crate::cfg::{Entries, Graph};
use crate::functions::FunctionInfo;
use crate::ir::{Insn, RegSet};
use crate::regs::{gpr, reg_use, registers};
use crate::tables::Found;
use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind};

/// Instructions that are looked at behind the one that takes an address.
const LOOK: usize = 32;

/// Block starts to which nothing leads but that code has the address, or that they have a label, and that may be there to be read. Sorted.
pub fn perhaps_data(graph: &Graph, entries: &Entries, info: &FunctionInfo, found: &[Found], factory: &mut InstructionInfoFactory) -> Vec<u64> {
    let is_pad = |at| entries.pads.iter().any(|p| p.1 == at);
    let in_table = |at: &u64| info.words.iter().any(|w| w.1 == *at) || found.iter().any(|t| t.targets.contains(at));
    let is_known = |at: &u64| [&entries.called, &entries.outside, &info.taken].iter().any(|l| l.binary_search(at).is_ok()) || is_pad(*at) || in_table(at);
    let alone = |at: &u64| graph.block_at(*at).is_some_and(|b| graph.blocks[b.0 as usize].preds.is_empty());
    let mut data: Vec<u64> = info.doubted.iter().copied().filter(|at| alone(at) && !is_known(at)).collect();
    if !data.is_empty() && jumps_anywhere(graph) {
        data.retain(|&at| !is_jumped_to(graph, at, factory));
    }
    data
}

/// Whether the function has an indirect jump that may lead to other places than its tables say.
fn jumps_anywhere(graph: &Graph) -> bool {
    graph.blocks.iter().zip(&graph.exits).any(|(block, exit)| exit.leaves && graph.insns[block.insns.end as usize - 1].flow == FlowControl::IndirectBranch)
}

/// Whether the function takes this address, and each time seems to do so for a jump.
fn is_jumped_to(graph: &Graph, at: u64, factory: &mut InstructionInfoFactory) -> bool {
    let takes = |i: &Insn| i.inst.mnemonic() == Mnemonic::Lea && i.inst.is_ip_rel_memory_operand() && i.inst.ip_rel_memory_address() == at;
    let mut places = graph.insns.iter().enumerate().filter(|(_, i)| takes(i)).peekable();
    places.peek().is_some() && places.all(|(n, i)| goes_to_a_jump(&graph.insns[n + 1..], &i.inst, factory))
}

/// Whether the address that `lea` takes is jumped to or put away (for a jump, in a function that has one) before anything is read through it.
fn goes_to_a_jump(behind: &[Insn], lea: &Instruction, factory: &mut InstructionInfoFactory) -> bool {
    let with = |held: RegSet, r| gpr(r).map_or(held, |r| held.with(r));
    let mut held = with(RegSet::EMPTY, lea.op0_register());
    let holds = |held: RegSet, r| gpr(r).is_some_and(|r| held.contains(r));
    for insn in behind.iter().take(LOOK) {
        let inst = &insn.inst;
        if holds(held, inst.memory_base()) || holds(held, inst.memory_index()) {
            return false;
        }
        let source = u32::from(inst.op_count() > 1);
        let moves = inst.op_count() > 0 && inst.op_kind(source) == OpKind::Register && holds(held, inst.op_register(source));
        match (inst.mnemonic(), inst.op0_kind()) {
            (Mnemonic::Push, OpKind::Register) | (Mnemonic::Mov, OpKind::Memory) if moves => return true,
            (Mnemonic::Jmp, OpKind::Register) => return moves,
            _ => {}
        }
        if insn.flow != FlowControl::Next && insn.flow != FlowControl::ConditionalBranch {
            return false;
        }
        held.0 &= !reg_use(registers(factory, inst)).clobber.0;
        if moves && inst.mnemonic() == Mnemonic::Mov {
            held = with(held, inst.op0_register());
        }
        if held == RegSet::EMPTY {
            return false;
        }
    }
    false
}
