//! Pass 2: one function from bytes to [`ir::Function`].

use crate::consumed;
use crate::cfg::{Entries, Graph, KnownJump};
use crate::dataflow::Flow;
use crate::disasm::{decode, direct_target};
use crate::discover::pads_of;
use crate::freestanding;
use crate::functions::{FunctionInfo, Input, LeftReason, Options, Program};
use crate::ir::{Function, FunctionId, Insn, InsnId, JumpTable, RegSet};
use crate::liveness::{Liveness, solve, temporaries};
use crate::loops::Loops;
use crate::operands::{Accesses, accesses};
use crate::plan::plan;
use crate::regs::{RegUse, gpr, reg_use, registers};
use crate::stay::{self, Stays, View};
use crate::tables::{self, Found, is_indirect_jump};
use iced_x86::{Decoder, DecoderOptions, FlowControl, InstructionInfoFactory, Mnemonic};
use mgz_annotations_schema::abi::FLAVOUR_SOFT;
use std::ops::Range;

/// Rounds until tables and data words that point into the function explain each other.
const ROUNDS: usize = 8;
/// Instructions of another function that are looked at.
const OUTSIDE_LOOK: usize = 32;

/// Analyses a function that pass 1 did not leave.
pub fn analyze(input: &Input, program: &Program, id: FunctionId, options: &Options) -> Result<Function, LeftReason> {
    let info = program.function(id);
    // Not selected code may still have system calls in it that need hooks.
    let unselected = info.left == Some(LeftReason::NotSelected) && input.hook_calls;
    if let Some(reason) = info.left.filter(|_| !unselected) {
        return Err(reason);
    }
    let bytes = input.slice(&info.range).ok_or(LeftReason::NoBytes)?;
    let pads = pads_of(input, info);
    if pads.iter().zip(pads.iter().skip(1)).any(|(p, q)| q.0.start < p.0.end) || pads.iter().any(|p| !info.range.contains(&p.1)) {
        return Err(LeftReason::Unwind);
    }
    let entries = Entries { called: info.called.clone(), outside: info.branched.clone(), pads, suspected: info.taken.clone() };
    let mut certain: Vec<u64> = entries.called.iter().chain(&entries.outside).copied().collect();
    certain.extend(entries.pads.iter().map(|p| p.1));
    let body = decode(bytes, info.range.start, &certain)?;
    if body.insns.iter().any(|i| calls_itself_inside(i, &info.range)) {
        return Err(LeftReason::Unsupported("calls into its own middle, so it may compute with its return address"));
    }
    let mut factory = InstructionInfoFactory::new();
    let (mut graph, mut found) = recover(input, &body.insns, &info.range, &entries, &info.words, &mut factory);
    drop(body);
    if graph.blocks.is_empty() || graph.insns[0].ip != info.range.start {
        return Err(LeftReason::Undecodable);
    }
    let hooks: Vec<InsnId> = match input.hook_calls {
        true => freestanding::hooks(&graph),
        false => Vec::new(),
    };
    if unselected && hooks.is_empty() {
        return Err(LeftReason::NotSelected);
    }
    // Asking for an instruction's facts is dear, so that it is done once for both.
    let (mut uses, mut reached) = (Vec::with_capacity(graph.insns.len()), Vec::with_capacity(graph.insns.len()));
    for insn in &graph.insns {
        let info = registers(&mut factory, &insn.inst);
        uses.push(reg_use(info).without_idle_read(&insn.inst));
        reached.push(accesses(&insn.inst, info));
    }
    let trusted = info.exact && info.called.is_empty();
    let live = settle(input, &mut graph, &uses, &mut found, trusted, &mut factory);
    live.mark(input, &mut graph, &uses);
    consumed::mark(&mut graph, &uses);
    let loops = Loops::find(&graph);
    let accesses: Vec<Accesses> = reached;
    let mut flow = Flow::solve(input, &graph, &loops, &uses, &accesses);
    let landings = landings(&graph, &entries, info, &found);
    for &at in &landings {
        if let Some(b) = graph.block_at(at) {
            graph.blocks[b.0 as usize].external_entry = true;
        }
    }
    let blind = is_blind(&graph, |t| !t.targets.is_empty(), &found, !info.words.is_empty(), &mut factory);
    let tables: Vec<JumpTable> = found.iter().filter(|t| t.copyable).map(table).collect();
    let stays = if options.flavour == FLAVOUR_SOFT && !unselected {
        stay::find(&View { insns: &graph.insns, blocks: &graph.blocks, tables: &tables, uses: &uses, accesses: &accesses, stores: options.stores })
    } else {
        Stays::default()
    };
    let mut plan = plan(&graph, &uses, &accesses, options, &stays, &mut factory, |insn, n, access| flow.classify(&graph, insn, n, access));
    if unselected {
        plan = crate::plan::Plan::default();
    }
    Ok(Function {
        id,
        range: info.range.clone(),
        hooks,
        tables,
        insns: graph.insns,
        blocks: graph.blocks,
        blind,
        landings,
        regions: plan.regions,
        gathers: plan.gathers,
        implicit: plan.implicit,
        stays,
        loops,
    })
}

fn table(t: &Found) -> JumpTable {
    JumpTable { load: InsnId(t.load as u32), jump: InsnId(t.jump as u32), table: t.table, form: t.form, targets: t.targets.clone() }
}

/// Builds the graph and finds its jump tables. Data words that point into the function are suspected entries, unless they are
/// entries of a table that was found; whether it is found may depend on that, so this is repeated until stable.
pub fn recover(
    input: &Input,
    insns: &[Insn],
    range: &Range<u64>,
    entries: &Entries,
    words: &[(u64, u64)],
    factory: &mut InstructionInfoFactory,
) -> (Graph, Vec<Found>) {
    let with_words = |explained: &dyn Fn(u64) -> bool| {
        let mut e = entries.clone();
        e.suspected.extend(words.iter().filter(|w| !explained(w.0)).map(|w| w.1));
        e.suspected.sort_unstable();
        e.suspected.dedup();
        e
    };
    if !insns.iter().any(is_indirect_jump) {
        return (Graph::build(insns, range, &with_words(&|_| false), &[]), Vec::new());
    }
    for hopeful in [true, false] {
        let (mut jumps, mut current) = (Vec::new(), with_words(&|_| true));
        for _ in 0..ROUNDS {
            let graph = Graph::build(insns, range, &current, &jumps);
            let found = tables::find(&graph, range, input, factory, hopeful);
            let new_jumps = known_jumps(&graph, range, &found);
            let spans: Vec<Range<u64>> = found.iter().filter(|t| t.certain).map(Found::span).collect();
            let new = with_words(&|at| spans.iter().any(|s| s.contains(&at)));
            if new.suspected == current.suspected && new_jumps == jumps {
                // A way that nothing reaches is none only if no jump leads who knows where.
                if hopeful && is_blind(&graph, |t| t.certain, &found, !words.is_empty(), factory) {
                    break;
                }
                return (graph, found);
            }
            (jumps, current) = (new_jumps, new);
        }
    }
    // No stable state: believe nothing.
    let all = with_words(&|_| false);
    let graph = Graph::build(insns, range, &all, &[]);
    let mut found = tables::find(&graph, range, input, factory, false);
    found.iter_mut().for_each(|t| (t.certain, t.copyable) = (false, false));
    let jumps = known_jumps(&graph, range, &found);
    (Graph::build(insns, range, &all, &jumps), found)
}

fn known_jumps(graph: &Graph, range: &Range<u64>, found: &[Found]) -> Vec<KnownJump> {
    let jump = |t: &Found| {
        let mut targets: Vec<u64> = t.targets.iter().copied().filter(|a| range.contains(a)).collect();
        targets.sort_unstable();
        targets.dedup();
        KnownJump { ip: graph.insns[t.jump].ip, targets, closed: t.copyable && t.closed }
    };
    found.iter().map(jump).collect()
}

/// Whether what a register holds may be used at `at`, code of another function: an explicit read before a write, in the next few
/// instructions. A table's entry is a temporary of the compiler, so that more is not looked for.
fn read_at(input: &Input, at: u64, register: RegSet, factory: &mut InstructionInfoFactory) -> bool {
    let Some(bytes) = input.bytes_at(at) else { return true };
    let mut left = register.0;
    let mut decoder = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE);
    for _ in 0..OUTSIDE_LOOK {
        if left == 0 || !decoder.can_decode() {
            break;
        }
        let inst = decoder.decode();
        let u = reg_use(registers(factory, &inst));
        if inst.is_invalid() || u.read.0 & left != 0 {
            return true;
        }
        left &= !u.kill.0;
        if inst.flow_control() != FlowControl::Next {
            break;
        }
    }
    false
}

/// Solves liveness, and gives up copies of tables whose loaded entry lives on after the jump.
fn settle(
    input: &Input,
    graph: &mut Graph,
    uses: &[RegUse],
    found: &mut [Found],
    trusted: bool,
    factory: &mut InstructionInfoFactory,
) -> Liveness {
    if found.iter().any(|t| t.copyable && t.tainted != RegSet::EMPTY) {
        let live = temporaries(graph, uses);
        for t in found.iter_mut().filter(|t| t.copyable && t.tainted != RegSet::EMPTY) {
            let block = graph.block_of(t.jump);
            let after = graph.blocks[block].succs.iter().fold(0, |l, s| l | live[s.0 as usize].0);
            let outside = t.targets.iter().filter(|a| graph.block_at(**a).is_none());
            if after & t.tainted.0 != 0 || outside.clone().any(|&a| read_at(input, a, t.tainted, factory)) {
                t.copyable = false;
                graph.exits[block].leaves = true;
            }
        }
    }
    solve(input, graph, uses, trusted)
}

/// Block starts that unresolved indirect jumps may reach.
fn landings(graph: &Graph, entries: &Entries, info: &FunctionInfo, found: &[Found]) -> Vec<u64> {
    let spans: Vec<Range<u64>> = found.iter().filter(|t| t.copyable).map(Found::span).collect();
    let words = info.words.iter().filter(|w| !spans.iter().any(|s| s.contains(&w.0))).map(|w| w.1);
    let tables = found.iter().filter(|t| !t.copyable).flat_map(|t| t.targets.iter().copied());
    let mut all: Vec<u64> = entries.suspected.iter().copied().chain(words).chain(tables).collect();
    all.sort_unstable();
    all.dedup();
    all.retain(|&at| at != info.range.start && graph.block_at(at).is_some());
    all
}

/// Whether there is an indirect jump whose targets nothing is known of, or less than is `enough`. A target that is read from memory whole is
/// known by the word there, where it is inside the function at all; one that is computed comes from a table.
fn is_blind(graph: &Graph, enough: impl Fn(&Found) -> bool, found: &[Found], words: bool, factory: &mut InstructionInfoFactory) -> bool {
    graph.blocks.iter().any(|block| {
        let jump = block.insns.end as usize - 1;
        if !is_indirect_jump(&graph.insns[jump]) || found.iter().any(|t| t.jump == jump && enough(t)) {
            return false;
        }
        let Some(target) = gpr(graph.insns[jump].inst.op0_register()) else { return false };
        let body = &graph.insns[block.insns.start as usize..jump];
        let maker = body.iter().rev().find(|i| reg_use(registers(factory, &i.inst)).clobber.contains(target));
        match maker.map(|i| i.inst.mnemonic()) {
            Some(mnemonic) => !matches!(mnemonic, Mnemonic::Mov | Mnemonic::Pop),
            None => !words,
        }
    })
}

/// Whether the instruction calls an address inside of the function other than its start.
fn calls_itself_inside(insn: &Insn, range: &Range<u64>) -> bool {
    let target = direct_target(&insn.inst).filter(|_| insn.inst.is_call_near());
    target.is_some_and(|t| t != range.start && range.contains(&t))
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    #[test]
    fn a_call_for_the_return_address_is_seen() {
        let insn = |bytes: &[u8]| {
            let inst = Decoder::with_ip(64, bytes, 0x1010, DecoderOptions::NONE).decode();
            Insn { ip: 0x1010, len: inst.len() as u8, inst, dead: RegSet::EMPTY, own: RegSet::EMPTY }
        };
        let range = 0x1000..0x1020;
        assert!(calls_itself_inside(&insn(&[0xe8, 0, 0, 0, 0]), &range), "call to the next instruction");
        assert!(!calls_itself_inside(&insn(&[0xe8, 0xeb, 0xff, 0xff, 0xff]), &range), "recursion");
        assert!(!calls_itself_inside(&insn(&[0xe8, 0, 1, 0, 0]), &range), "another function");
    }
}
