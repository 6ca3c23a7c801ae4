//! Which general purpose registers a probe may overwrite.
//!
//! Backward liveness, exact inside the function and careful at its borders:
//!
//! - a call reads everything (arguments may be passed in any register) and kills nothing (a compiler that knows the callee may keep values
//!   in registers that it leaves alone), except that a call through a linkage table cannot pass anything in r11, and that no r11 outlives
//!   the call of an imported function;
//! - leaving for code that is not followed (unresolved jumps, tail calls, falling off the end) reads everything, and so do
//!   system calls, interrupts and undefined instructions;
//! - `ret` reads everything but the caller-saved registers that the function itself writes, rax and rdx excepted: a caller
//!   that knows this function may rely on the others. A call of an imported function, whose code no compiler has seen, counts as writing
//!   all caller-saved registers (with the one exception of profiling, where compilers rely on nothing);
//! - a landing pad's live registers are live throughout the blocks that its call ranges touch.
//!
//! A register is offered only if the function writes it, it is not rsp or rbp, and it is caller-saved or saved by a `push` here.
//! A function whose extent is a guess, or that has several callable entries, offers none.

use crate::cfg::Graph;
use crate::disasm::direct_target;
use crate::functions::Input;
use crate::ir::{Insn, RegSet};
use crate::regs::{ALL, CALLEE_SAVED, CALLER_SAVED, R11, RAX, RBP, RDX, RSP, RegUse, gpr};
use iced_x86::{Code, FlowControl, Mnemonic, OpKind, Register};

/// The result.
#[derive(Clone, Debug)]
pub struct Liveness {
    /// Live at each block's start.
    pub live_in: Vec<RegSet>,
    /// Registers that may be offered where they are dead.
    pub allowed: RegSet,
    at_return: RegSet,
    /// Per instruction: what it reads and what it overwrites for certain.
    effects: Vec<(u16, u16)>,
}

/// What the instruction reads for the purpose of liveness.
fn reads(input: &Input, insn: &Insn, u: &RegUse) -> RegSet {
    match insn.flow {
        FlowControl::Call | FlowControl::IndirectCall => {
            if through_linkage(input, insn) { ALL.without(R11) } else { ALL }
        }
        FlowControl::Interrupt | FlowControl::Exception | FlowControl::XbeginXabortXend => ALL,
        _ if insn.inst.code() == Code::Hlt => ALL,
        _ => u.read,
    }
}

fn through_linkage(input: &Input, insn: &Insn) -> bool {
    match insn.flow {
        FlowControl::Call => direct_target(&insn.inst).is_some_and(|t| input.is_plt(t)),
        _ => insn.inst.is_ip_rel_memory_operand() && input.is_got(insn.inst.ip_rel_memory_address()),
    }
}

/// Whether the instruction calls a function that is not in this file, and returns. (Code that was written by hand may leave registers alone on all ways but those that end there.)
fn calls_import(input: &Input, insn: &Insn) -> bool {
    let through = match insn.flow {
        FlowControl::Call => direct_target(&insn.inst),
        FlowControl::IndirectCall if insn.inst.is_ip_rel_memory_operand() => Some(insn.inst.ip_rel_memory_address()),
        _ => None,
    };
    through.is_some_and(|at| input.imported.contains(&at) && !input.no_return.contains(&at))
}

/// What the instruction overwrites for certain.
fn kills(input: &Input, insn: &Insn, u: &RegUse) -> u16 {
    if calls_import(input, insn) { u.kill.with(R11).0 } else { u.kill.0 }
}

/// Solves liveness. `uses` is per instruction; `trusted`: the function's extent is known and it has one callable entry.
pub fn solve(input: &Input, graph: &Graph, uses: &[RegUse], trusted: bool) -> Liveness {
    let reachable = graph.reachable();
    let mut written = 0;
    let mut saved = 0;
    for (b, block) in graph.blocks.iter().enumerate().filter(|(b, _)| reachable[*b]) {
        let _ = b;
        for i in block.insns.start as usize..block.insns.end as usize {
            written |= uses[i].clobber.0;
            let inst = &graph.insns[i].inst;
            if calls_import(input, &graph.insns[i]) {
                written |= CALLER_SAVED.0;
            }
            if uses[i].clobber.contains(RSP) && inst.mnemonic() == Mnemonic::Push && inst.op0_kind() == OpKind::Register {
                saved |= gpr(inst.op0_register()).map_or(0, |r| 1 << r.0);
            }
        }
    }
    let own = if trusted { CALLER_SAVED.0 & written } else { 0 };
    let at_return = RegSet(ALL.0 & !(own & !RegSet::EMPTY.with(RAX).with(RDX).0));
    let allowed = if trusted { RegSet((own | CALLEE_SAVED.0 & written & saved) & !RegSet::EMPTY.with(RSP).with(RBP).0) } else { RegSet::EMPTY };

    let effects: Vec<(u16, u16)> = graph.insns.iter().zip(uses).map(|(insn, u)| (reads(input, insn, u).0, kills(input, insn, u))).collect();
    let mut gen_kill: Vec<(u16, u16)> = Vec::with_capacity(graph.blocks.len());
    for block in &graph.blocks {
        let (mut read, mut kill) = (0u16, 0u16);
        for &(r, k) in effects[block.insns.start as usize..block.insns.end as usize].iter().rev() {
            read = read & !k | r;
            kill |= k;
        }
        gen_kill.push((read, kill));
    }
    let mut live = Liveness { live_in: Vec::new(), allowed, at_return, effects };
    live.live_in = backward(graph, &gen_kill, |b, live_in| RegSet(live.out(graph, b, live_in).0), |b, live_in| pads(graph, b, live_in));
    live
}

/// Registers that an instruction reads before they are written, per block, for a value that a compiler made for a single use (a jump table's
/// entry): nobody passes it to a call or returns it without touching it (functions without a result leave anything in rax), and calls keep no
/// caller-saved register.
pub fn temporaries(graph: &Graph, uses: &[RegUse]) -> Vec<RegSet> {
    let summary = |block: &crate::ir::Block| {
        let (mut read, mut kill) = (0u16, 0u16);
        for i in (block.insns.start as usize..block.insns.end as usize).rev() {
            let call = matches!(graph.insns[i].flow, FlowControl::Call | FlowControl::IndirectCall);
            let (r, k) = if call { (uses[i].read.0, CALLER_SAVED.0) } else { (uses[i].read.0, uses[i].kill.0) };
            read = read & !k | r;
            kill |= k;
        }
        (read, kill)
    };
    let gen_kill: Vec<(u16, u16)> = graph.blocks.iter().map(summary).collect();
    let out = |b: usize, live_in: &[RegSet]| {
        let exit = graph.exits[b];
        let mut live = if exit.leaves { ALL.0 & !CALLER_SAVED.0 } else { 0 };
        if exit.returns {
            live |= ALL.0 & !CALLER_SAVED.0;
        }
        RegSet(graph.blocks[b].succs.iter().fold(live, |l, s| l | live_in[s.0 as usize].0))
    };
    backward(graph, &gen_kill, out, |b, live_in| pads(graph, b, live_in))
}

fn backward(
    graph: &Graph,
    gen_kill: &[(u16, u16)],
    out: impl Fn(usize, &[RegSet]) -> RegSet,
    extra: impl Fn(usize, &[RegSet]) -> RegSet,
) -> Vec<RegSet> {
    let mut live_in = vec![RegSet::EMPTY; graph.blocks.len()];
    let mut queued = vec![true; graph.blocks.len()];
    let mut work: Vec<usize> = (0..graph.blocks.len()).collect();
    while let Some(b) = work.pop() {
        queued[b] = false;
        let (read, kill) = gen_kill[b];
        let new = RegSet(read | out(b, &live_in).0 & !kill | extra(b, &live_in).0);
        if new != live_in[b] {
            live_in[b] = new;
            for p in &graph.blocks[b].preds {
                if !std::mem::replace(&mut queued[p.0 as usize], true) {
                    work.push(p.0 as usize);
                }
            }
        }
    }
    live_in
}

/// Live because an exception may lead from block `b` to a landing pad.
fn pads(graph: &Graph, b: usize, live_in: &[RegSet]) -> RegSet {
    let from = graph.pads.partition_point(|p| (p.0.0 as usize) < b);
    let pads = graph.pads[from..].iter().take_while(|p| p.0.0 as usize == b);
    let live = pads.fold(0, |live, p| live | live_in[p.1.0 as usize].0);
    RegSet(live & !RegSet::EMPTY.with(RAX).with(RDX).0)
}

impl Liveness {
    /// Live at the end of block `b`.
    pub fn live_out(&self, graph: &Graph, b: usize) -> RegSet {
        self.out(graph, b, &self.live_in)
    }

    fn out(&self, graph: &Graph, b: usize, live_in: &[RegSet]) -> RegSet {
        let mut live = if graph.exits[b].leaves { ALL.0 } else { 0 };
        if graph.exits[b].returns {
            live |= self.at_return.0;
        }
        for s in &graph.blocks[b].succs {
            live |= live_in[s.0 as usize].0;
        }
        RegSet(live)
    }

    /// Writes [`Insn::dead`] of every instruction.
    pub fn mark(&self, graph: &mut Graph) {
        for b in 0..graph.blocks.len() {
            let pads = pads(graph, b, &self.live_in);
            let mut live = self.live_out(graph, b).0;
            let range = graph.blocks[b].insns.clone();
            for i in (range.start as usize..range.end as usize).rev() {
                let (read, kill) = self.effects[i];
                live = live & !kill | read | pads.0;
                graph.insns[i].dead = RegSet(self.allowed.0 & !live);
            }
        }
    }
}

/// Whether `register` is a general purpose register that the set contains.
pub fn holds(set: RegSet, register: Register) -> bool {
    gpr(register).is_some_and(|r| set.contains(r))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::FastSet;
    use crate::cfg::Entries;
    use crate::disasm::decode;
    use crate::regs::reg_use;
    use iced_x86::InstructionInfoFactory;

    /// `dead` before each instruction, as hex masks.
    fn dead(bytes: &[u8], trusted: bool) -> Vec<u16> {
        dead_with(&Input::default(), bytes, trusted)
    }

    fn dead_with(input: &Input, bytes: &[u8], trusted: bool) -> Vec<u16> {
        let body = decode(bytes, 0x100, &[]).unwrap();
        let mut g = Graph::build(body, &(0x100..0x100 + bytes.len() as u64), &Entries::default(), &[]);
        let mut factory = InstructionInfoFactory::new();
        let uses: Vec<RegUse> = g.insns.iter().map(|i| reg_use(factory.info(&i.inst))).collect();
        solve(input, &g, &uses, trusted).mark(&mut g);
        g.insns.iter().map(|i| i.dead.0).collect()
    }

    const MOV_RCX_RDI: [u8; 3] = [0x48, 0x8b, 0x0f]; // mov rcx, [rdi]
    const MOV_RAX_RCX: [u8; 3] = [0x48, 0x8b, 0x01]; // mov rax, [rcx]
    const RET: u8 = 0xc3;

    #[test]
    fn a_register_is_dead_before_it_is_written_and_after_its_last_use() {
        let code = [&MOV_RCX_RDI[..], &MOV_RAX_RCX, &[RET]].concat();
        // rcx dead first (then loaded), rax dead before its own load, rcx dead at ret. rdi: never written here.
        assert_eq!(dead(&code, true), [0b11, 0b01, 0b10]);
    }

    #[test]
    fn a_function_of_unknown_extent_offers_nothing() {
        let code = [&MOV_RCX_RDI[..], &MOV_RAX_RCX, &[RET]].concat();
        assert_eq!(dead(&code, false), [0, 0, 0]);
    }

    #[test]
    fn a_call_reads_everything() {
        // mov rcx,[rdi]; call; mov rax,[rcx]; ret: before the call nothing may go.
        let code = [&MOV_RCX_RDI[..], &[0xe8, 0, 0x10, 0, 0], &MOV_RAX_RCX, &[RET]].concat();
        assert_eq!(dead(&code, true)[1], 0);
        assert_eq!(dead(&code, true)[0], 0b10, "rax is live into the call, rcx is loaded first");
    }

    #[test]
    fn a_call_of_an_import_leaves_no_scratch_register_alone() {
        // xor ecx,ecx; call; mov rcx,[rdi]; ret
        let code = [&[0x31, 0xc9, 0xe8, 0, 0x10, 0, 0][..], &MOV_RCX_RDI, &[RET]].concat();
        let stub = 0x1107;
        let plt = || std::iter::once(0x1100..0x1200).collect::<Vec<_>>();
        let input = Input { plt: plt(), imported: FastSet::from_iter([stub]), ..Input::default() };
        const RCX: u16 = 1 << 1;
        let r11 = 1 << R11.0;
        assert_eq!(dead(&code, true), [RCX, 0, RCX, RCX], "the callee is in the file");
        let linked = Input { imported: Default::default(), plt: plt(), ..Input::default() };
        assert_eq!(dead_with(&linked, &code, true), [RCX, 0, RCX, RCX], "so it may be here");
        let ends = Input { plt: plt(), imported: FastSet::from_iter([stub]), no_return: FastSet::from_iter([stub]), ..Input::default() };
        assert_eq!(dead_with(&ends, &code, true), [RCX, 0, RCX, RCX], "what does not return writes nothing that anybody sees");
        let got = dead_with(&input, &code, true);
        // Behind the call: all but rdi (read), rax, rdx (results) and those that are not caller-saved.
        let scratch = CALLER_SAVED.0 & !RegSet::EMPTY.with(RAX).with(RDX).with(RSP).0;
        assert_eq!(got, [RCX | r11, r11, scratch & !(1 << 7), scratch]);
    }

    #[test]
    fn a_tail_call_reads_everything() {
        let code = [&MOV_RCX_RDI[..], &[0xe9, 0, 0x10, 0, 0]].concat();
        assert_eq!(dead(&code, true), [0b10, 0]);
    }

    #[test]
    fn a_saved_register_is_dead_between_push_and_pop_only() {
        // push rbx; mov rcx,[rdi]; xor ebx,ebx; pop rbx; ret
        let code = [&[0x53][..], &MOV_RCX_RDI, &[0x31, 0xdb, 0x5b, RET]].concat();
        let d = dead(&code, true);
        assert_eq!(d.iter().map(|m| m >> 3 & 1).collect::<Vec<_>>(), [0, 1, 1, 1, 0]);
    }

    #[test]
    fn a_byte_write_keeps_the_register_alive() {
        // mov al, 1 ; ret: rax is read at ret
        assert_eq!(dead(&[0xb0, 1, RET], true), [0, 0]);
    }
}
