//! Copies by the C library: `memcpy` and similar functions read and write for their caller.
//!
//! The arguments of the call are known in its registers. So the call has the accesses of a string
//! instruction that repeats: a row is a whole block of memory, at the caller's line. Functions
//! whose arguments do not give the number of bytes read (`memcmp`, `strlen`) are left out.

use crate::ir::cfg::Cfg;
use crate::program::copiers::Copier;
use crate::util::fast_hash::FastMap;
use crate::x86::flow::direct_target;
use crate::x86::operands::{AccessList, Accesses, Form, OperandAccess};
use crate::x86::regs::{Gpr, RDI, RDX, RSI};
use iced_x86::{FlowControl, Instruction};
use smallvec::SmallVec;

/// The function that an instruction calls.
fn callee(inst: &Instruction, known: &FastMap<u64, Copier>) -> Option<Copier> {
    let at = match inst.flow_control() {
        FlowControl::Call => direct_target(inst)?,
        FlowControl::IndirectCall if inst.is_ip_rel_memory_operand() => {
            inst.ip_rel_memory_address()
        }
        _ => return None,
    };
    known.get(&at).copied()
}

fn access(pointer: Gpr, write: bool) -> OperandAccess {
    OperandAccess {
        read: !write,
        write,
        size: 1,
        form: Form::Repeated {
            pointer,
            count: RDX,
            until: false,
        },
    }
}

/// The accesses, with those of such calls. `None` if there is no such call.
pub fn with_copies(
    graph: &Cfg,
    accesses: &AccessList,
    known: &FastMap<u64, Copier>,
) -> Option<AccessList> {
    if known.is_empty() {
        return None;
    }
    let calls: Vec<(usize, Copier)> = (graph.insns.iter().enumerate())
        .filter_map(|(i, insn)| Some((i, callee(&insn.inst, known)?)))
        .collect();
    if calls.is_empty() {
        return None;
    }
    let mut all = AccessList::none(graph.insns.len());
    let mut calls = calls.into_iter().peekable();
    for i in 0..graph.insns.len() {
        match calls.next_if(|call| call.0 == i) {
            Some((_, copier)) => all.set_all(i, &of_call(copier, &accesses[i])),
            None => all.set_all(i, &accesses[i]),
        }
    }
    Some(all)
}

/// Accesses of a call. The load of the function's address is its own.
fn of_call(copier: Copier, own: &Accesses) -> SmallVec<[OperandAccess; 3]> {
    let mut list = SmallVec::new();
    if copier == Copier::Copies {
        list.push(access(RSI, false));
    }
    list.push(access(RDI, true));
    list.extend(own.iter().copied().take(1));
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_reads_and_writes_as_many_bytes() {
        let list = of_call(Copier::Copies, &[]);
        assert_eq!(list.len(), 2);
        assert!(list[0].read && !list[0].write && list[1].write && !list[1].read);
        assert!(of_call(Copier::Fills, &[]).iter().all(|a| a.write));
    }
}
