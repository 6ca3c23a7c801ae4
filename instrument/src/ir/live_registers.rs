//! Backward data flow of registers over a graph.

use crate::ir::cfg::Cfg;
use crate::x86::regs::{ALL, CALLER_SAVED, RAX, RDX, RegSet, RegUse};
use iced_x86::FlowControl;

/// Registers that one or several instructions read before they overwrite them, and registers that
/// they always overwrite.
#[derive(Clone, Copy, Default)]
pub(crate) struct Effect {
    pub(crate) read: u16,
    pub(crate) kill: u16,
}

impl Effect {
    pub(crate) fn then(self, next: Effect) -> Effect {
        Effect {
            read: self.read | next.read & !self.kill,
            kill: self.kill | next.kill,
        }
    }

    /// Registers that are live before, if `live` are live after.
    pub(crate) fn before(self, live: u16) -> u16 {
        live & !self.kill | self.read
    }
}

/// Registers that an instruction reads before they are written, per block. This is for a value with
/// a single use, made by a compiler (a jump table's entry). Such a value is not passed to calls and
/// not returned unchanged (functions without a result leave any value in rax), and calls preserve
/// no caller-saved register.
pub fn temporaries(graph: &Cfg, uses: &[RegUse]) -> Vec<RegSet> {
    let summary = |block: &crate::ir::Block| {
        let insns = block.insns.start as usize..block.insns.end as usize;
        graph.insns[insns.clone()].iter().zip(&uses[insns]).fold(
            Effect::default(),
            |sum, (insn, u)| {
                let call = matches!(insn.flow, FlowControl::Call | FlowControl::IndirectCall);
                sum.then(Effect {
                    read: u.read.0,
                    kill: if call { CALLER_SAVED.0 } else { u.kill.0 },
                })
            },
        )
    };
    let blocks: Vec<Effect> = graph.blocks.iter().map(summary).collect();
    let leave = |block: usize| {
        let exit = graph.exits[block];
        if exit.leaves || exit.returns {
            ALL.0 & !CALLER_SAVED.0
        } else {
            0
        }
    };
    backward(graph, &blocks, leave)
        .0
        .into_iter()
        .map(RegSet)
        .collect()
}

/// Registers live at each block's start and end. `leave`: those live where control leaves the
/// function.
pub(crate) fn backward(
    graph: &Cfg,
    effects: &[Effect],
    leave: impl Fn(usize) -> u16,
) -> (Vec<u16>, Vec<u16>) {
    let n = graph.blocks.len();
    let (mut live_in, mut live_out) = (vec![0; n], vec![0; n]);
    let mut queued = vec![false; n];
    let mut work: Vec<u32> = Vec::new();
    // First all blocks in reverse order, then those with successors before them, until nothing
    // changes.
    let mut left = n;
    loop {
        let Some(b) = left
            .checked_sub(1)
            .or_else(|| work.pop().map(|b| b as usize))
        else {
            return (live_in, live_out);
        };
        left = left.min(b);
        queued[b] = false;
        live_out[b] = graph.blocks[b]
            .succs
            .iter()
            .fold(leave(b), |live, s| live | live_in[s.0 as usize]);
        let new = effects[b].before(live_out[b]) | pads(graph, b, &live_in);
        if new != live_in[b] {
            live_in[b] = new;
            for p in &graph.blocks[b].preds {
                if p.0 as usize >= left && !std::mem::replace(&mut queued[p.0 as usize], true) {
                    work.push(p.0);
                }
            }
        }
    }
}

/// Registers that are live because an exception may lead from block `b` to a landing pad.
pub(crate) fn pads(graph: &Cfg, b: usize, live_in: &[u16]) -> u16 {
    if graph.pads.is_empty() {
        return 0;
    }
    let from = graph.pads.partition_point(|p| (p.0.0 as usize) < b);
    let pads = graph.pads[from..]
        .iter()
        .take_while(|p| p.0.0 as usize == b);
    let live = pads.fold(0, |live, p| live | live_in[p.1.0 as usize]);
    live & !RegSet::EMPTY.with(RAX).with(RDX).0
}
