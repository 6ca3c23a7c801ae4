//! Which instructions may lose the old value of the register that they overwrite.
//!
//! A probe before `mov rax, [rdi]` may use rax, which is dead there. The exception is a load that
//! can fault and whose handler continues after it with the old value: code that reads memory which
//! may be missing puts a default into the register first. No instruction has read such a default
//! when the load runs. Other values were made for a use and are dead after it, since compilers
//! leave no value unread.
//!
//! The analysis is a forward data flow over *fresh* registers, whose value may not have been read
//! since it was made. Arguments are fresh at entries, and results are fresh after calls.

use crate::ir::cfg::Cfg;
use crate::x86::insn::Insn;
use crate::x86::operands::AccessList;
use crate::x86::regs::{ALL, CALLER_SAVED, RAX, RDX, RegSet, RegUse};
use iced_x86::FlowControl;

/// Effect of one or several instructions on the fresh registers: some cease to be fresh, and others
/// become fresh.
#[derive(Clone, Copy)]
pub struct Transfer {
    keeps: u16,
    adds: u16,
}

impl Transfer {
    /// Effect of no instruction.
    pub const NO_EFFECT: Transfer = Transfer {
        keeps: ALL.0,
        adds: 0,
    };

    /// Effect of one instruction.
    #[inline]
    pub fn of(flow: FlowControl, u: &RegUse) -> Transfer {
        match flow {
            FlowControl::Call | FlowControl::IndirectCall => Transfer {
                keeps: !CALLER_SAVED.0,
                adds: RegSet::EMPTY.with(RAX).with(RDX).0,
            },
            FlowControl::Next
            | FlowControl::ConditionalBranch
            | FlowControl::UnconditionalBranch
            | FlowControl::IndirectBranch => Transfer {
                keeps: !u.read.0,
                adds: u.clobber.0 | u.kill.0,
            },
            _ => Transfer {
                keeps: 0,
                adds: ALL.0,
            },
        }
    }

    /// Effect of two transfers, one after the other.
    #[inline]
    pub fn then(self, next: Transfer) -> Transfer {
        Transfer {
            keeps: self.keeps & next.keeps,
            adds: self.adds & next.keeps | next.adds,
        }
    }

    fn from(self, fresh: u16) -> u16 {
        fresh & self.keeps | self.adds
    }
}

/// Sets [`Insn::own`](crate::x86::insn::Insn::own) of the instructions with accesses;
/// [`Insn::dead`](crate::x86::insn::Insn::dead) must be set before. `steps` is per block.
pub fn mark(graph: &mut Cfg, steps: &[Transfer], uses: &[RegUse], accesses: &AccessList) {
    let replaced = |insn: &Insn, u: &RegUse| insn.dead.0 & (u.clobber.0 | u.kill.0) & !u.read.0;
    if accesses
        .insns()
        .iter()
        .all(|&i| replaced(&graph.insns[i as usize], &uses[i as usize]) == 0)
    {
        return;
    }
    let fresh_in = fresh(graph, steps);
    let (mut b, mut at, mut fresh) = (0, 0, fresh_in[0]);
    for &i in accesses.insns() {
        let i = i as usize;
        let replaced = replaced(&graph.insns[i], &uses[i]);
        if replaced == 0 {
            continue;
        }
        while graph.blocks[b].insns.end as usize <= i {
            b += 1;
            (at, fresh) = (graph.blocks[b].insns.start as usize, fresh_in[b]);
        }
        for before in at..i {
            fresh = Transfer::of(graph.insns[before].flow, &uses[before]).from(fresh);
        }
        at = i;
        graph.insns[i].own = RegSet(replaced & !fresh);
    }
}

/// Registers that are fresh at each block's start.
fn fresh(graph: &Cfg, steps: &[Transfer]) -> Vec<u16> {
    let n = graph.blocks.len();
    let entered = |b: usize| {
        b == 0
            || graph.roots.get(b).copied().unwrap_or(true)
            || graph.blocks[b].external_entry
            || graph.blocks[b].preds.is_empty()
    };
    let mut fresh_in: Vec<u16> = (0..n).map(|b| if entered(b) { ALL.0 } else { 0 }).collect();
    let mut queued = vec![false; n];
    let mut work: Vec<u32> = Vec::new();
    // First all blocks in order, then those with predecessors behind them, until nothing changes.
    let mut first = 0..n;
    while let Some(b) = first.next().or_else(|| work.pop().map(|b| b as usize)) {
        queued[b] = false;
        let out = steps[b].from(fresh_in[b]);
        for s in graph.blocks[b].succs.iter().map(|s| s.0 as usize) {
            if out & !fresh_in[s] != 0 {
                fresh_in[s] |= out;
                if s < first.start && !std::mem::replace(&mut queued[s], true) {
                    work.push(s as u32);
                }
            }
        }
    }
    fresh_in
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::liveness::Effects;
    use crate::ir::cfg::Entries;
    use crate::ir::loops::Loops;
    use crate::program::Input;
    use crate::x86::decode::decode_function;
    use crate::x86::effects::Facts;
    use iced_x86::InstructionInfoFactory;

    /// `own` of each instruction.
    fn own(bytes: &[u8]) -> Vec<u16> {
        let body = decode_function(bytes, 0x100, &[]).unwrap();
        let mut g = Cfg::build(
            body,
            &(0x100..0x100 + bytes.len() as u64),
            &Entries::default(),
            &[],
        );
        let facts = Facts::of(&g.insns, 0x100, false, &mut InstructionInfoFactory::new());
        let effects = Effects::of(&Input::default(), &g, &Loops::find(&g), &facts.uses);
        crate::analyze::liveness::mark(&Input::default(), &mut g, &effects, &facts.uses);
        mark(&mut g, &effects.steps, &facts.uses, &facts.accesses);
        g.insns.iter().map(|i| i.own.0).collect()
    }

    #[test]
    fn a_default_is_kept_and_a_used_value_is_not() {
        // mov eax, esi; mov eax, [rdi]; ret: the shape of a load with a default.
        assert_eq!(own(&[0x89, 0xf0, 0x8b, 0x07, 0xc3])[1], 0);
        // mov rax, [rdi]; mov rcx, [rax]; mov rax, [rcx]; ret: the first rax is read.
        assert_eq!(
            own(&[0x48, 0x8b, 0x07, 0x48, 0x8b, 0x08, 0x48, 0x8b, 0x01, 0xc3]),
            [0, 0, 1, 0]
        );
    }

    #[test]
    fn an_argument_that_nothing_has_read_is_kept() {
        // mov esi, [rdi]; mov eax, esi; ret
        assert_eq!(own(&[0x8b, 0x37, 0x89, 0xf0, 0xc3])[0], 0);
        // mov eax, esi; mov esi, [rdi]; add eax, esi; ret: esi is read.
        assert_eq!(own(&[0x89, 0xf0, 0x8b, 0x37, 0x01, 0xf0, 0xc3])[1], 1 << 6);
    }

    #[test]
    fn one_path_on_which_the_value_is_unread_is_enough() {
        // mov eax, esi; test edi, edi; je +2; add ecx, eax; mov eax, [rdx]; ret
        assert_eq!(
            own(&[
                0x89, 0xf0, 0x85, 0xff, 0x74, 0x02, 0x01, 0xc1, 0x8b, 0x02, 0xc3
            ])[4],
            0
        );
        // The same with the read before the branch.
        assert_eq!(
            own(&[
                0x89, 0xf0, 0x01, 0xc1, 0x85, 0xff, 0x74, 0x02, 0x01, 0xf9, 0x8b, 0x02, 0xc3
            ])[5],
            1
        );
    }

    #[test]
    fn a_result_that_nothing_has_read_is_kept() {
        // call; mov eax, [rbx]; mov ecx, [rbx]; add eax, ecx; ret
        assert_eq!(
            own(&[
                0xe8, 0, 0x10, 0, 0, 0x8b, 0x03, 0x8b, 0x0b, 0x01, 0xc8, 0xc3
            ]),
            [0, 0, 2, 0, 0]
        );
    }
}
