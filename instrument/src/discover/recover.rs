//! Recovers a function's control-flow graph: its jump tables, and the possible targets of its
//! jumps.

use crate::discover::jump_tables;
use crate::discover::jump_tables::{Known, is_indirect_jump};
use crate::ir::cfg::{Cfg, Entries, KnownJump};
use crate::ir::jump_table::{Course, IndirectJumpFacts, JumpTable};
use crate::ir::live_registers::temporaries;
use crate::program::{FunctionInfo, Input};
use crate::x86::decode::{Body, CodeSource};
use crate::x86::effects;
use crate::x86::insn::{Insn, InsnId};
use crate::x86::regs::{RegSet, RegUse, gpr};
use iced_x86::{Decoder, DecoderOptions, FlowControl, InstructionInfoFactory, Mnemonic};
use mgz_elf::symbols::merge_ranges;
use std::ops::Range;

pub(crate) fn table(t: &IndirectJumpFacts) -> JumpTable {
    JumpTable {
        load: InsnId(t.load as u32),
        jump: InsnId(t.jump as u32),
        table: t.table,
        form: t.form,
        targets: t.targets.clone(),
    }
}

/// Cfg and jump tables of a function.
pub struct Recovery {
    /// The graph.
    pub graph: Cfg,
    /// Its jump tables.
    pub found: Vec<IndirectJumpFacts>,
    /// Record of the search, for [`recover_again`].
    pub course: Option<Course>,
}

/// The result of [`recover`] for a function for which it ran earlier, when only landing pads were
/// known as entries. The search for tables is the slowest part. Returns the instructions if the
/// entries known now would have changed the search.
pub fn recover_again(
    course: &Course,
    body: Body,
    range: &Range<u64>,
    entries: &Entries,
    words: &[(u64, u64)],
) -> Result<(Cfg, Vec<IndirectJumpFacts>), Body> {
    let explained = |spans: &Vec<Range<u64>>| words.iter().all(|w| is_in(spans, w.0));
    let same = course.insns == body.insns.len()
        && entries.called.is_empty()
        && entries.outside.is_empty()
        && entries.suspected.is_empty();
    if !same || !course.spans.iter().all(explained) {
        return Err(body);
    }
    // (The earlier search had no unresolved jump, and data words that hold targets add none.)
    Ok((
        Cfg::build(body, range, entries, &course.jumps),
        course.found.clone(),
    ))
}

/// Builds the graph and finds its jump tables. Data words that point into the function are
/// suspected entries, unless they belong to a table that was found. Finding it may depend on the
/// entries, so this is repeated until stable. `source`: decodes the instructions in `body` again.
pub fn recover(
    input: &Input,
    body: Body,
    source: &CodeSource,
    range: &Range<u64>,
    entries: &Entries,
    words: &[(u64, u64)],
    factory: &mut InstructionInfoFactory,
) -> Recovery {
    let with_words = |explained: &dyn Fn(u64) -> bool| {
        let mut e = entries.clone();
        e.suspected
            .extend(words.iter().filter(|w| !explained(w.0)).map(|w| w.1));
        e.suspected.sort_unstable();
        e.suspected.dedup();
        e
    };
    if !body.insns.iter().any(is_indirect_jump) {
        return Recovery {
            graph: Cfg::build(body, range, &with_words(&|_| false), &[]),
            found: Vec::new(),
            course: None,
        };
    }
    let (places, count) = (body.places.clone(), body.insns.len());
    // With words, more entries come and go, and each change takes a new graph. Without them, most
    // graphs derive from the one before.
    let spare = if words.is_empty() {
        None
    } else {
        Some(body.clone())
    };
    let mut whole = Some(body);
    let mut body = || {
        whole
            .take()
            .or_else(|| spare.clone())
            .or_else(|| source.decode().ok())
            .unwrap_or_default()
    };
    let mut known = Known::default();
    for hopeful in [true, false] {
        let (mut jumps, mut current) = (Vec::new(), with_words(&|_| true));
        let mut course = Vec::new();
        let mut last: Option<Cfg> = None;
        for _ in 0..MAX_ROUNDS {
            let graph = last
                .take()
                .and_then(|last| last.with_jumps(&places, range, &current, &jumps))
                .unwrap_or_else(|| Cfg::build(body(), range, &current, &jumps));
            let found =
                jump_tables::find_jump_tables(&graph, range, input, factory, hopeful, &mut known);
            let new_jumps = known_jumps(&graph, range, &found);
            let mut spans: Vec<Range<u64>> = found
                .iter()
                .filter(|t| t.certain)
                .map(IndirectJumpFacts::span)
                .collect();
            merge_ranges(&mut spans);
            let new = with_words(&|at| is_in(&spans, at));
            course.push(spans);
            if new.suspected == current.suspected && new_jumps == jumps {
                // A path that no jump reaches counts as dead only if all indirect jumps are
                // resolved.
                if hopeful && is_blind(&graph, |t| t.certain, &found, !words.is_empty(), factory) {
                    break;
                }
                let course = hopeful.then(|| Course {
                    insns: count,
                    found: found.clone(),
                    jumps,
                    spans: course,
                });
                return Recovery {
                    graph,
                    found,
                    course,
                };
            }
            if new.suspected == current.suspected && only_adds(&new_jumps, &jumps) {
                last = Some(graph);
            }
            (jumps, current) = (new_jumps, new);
        }
    }
    // Without a stable state, no table is trusted.
    let all = with_words(&|_| false);
    let graph = Cfg::build(body(), range, &all, &[]);
    let mut found = jump_tables::find_jump_tables(&graph, range, input, factory, false, &mut known);
    found
        .iter_mut()
        .for_each(|t| (t.certain, t.copyable) = (false, false));
    let jumps = known_jumps(&graph, range, &found);
    Recovery {
        graph: Cfg::build(body(), range, &all, &jumps),
        found,
        course: None,
    }
}

/// True if an address is in one of some ranges. The ranges are sorted and do not overlap.
pub(crate) fn is_in(ranges: &[Range<u64>], at: u64) -> bool {
    ranges
        .get(ranges.partition_point(|r| r.end <= at))
        .is_some_and(|r| r.start <= at)
}

/// True if jumps have at least the targets that they had before.
pub(crate) fn only_adds(jumps: &[KnownJump], before: &[KnownJump]) -> bool {
    let has = |old: &KnownJump| {
        jumps
            .binary_search_by_key(&old.ip, |j| j.ip)
            .is_ok_and(|n| {
                old.targets
                    .iter()
                    .all(|t| jumps[n].targets.binary_search(t).is_ok())
            })
    };
    before.iter().all(has)
}

pub(crate) fn known_jumps(
    graph: &Cfg,
    range: &Range<u64>,
    found: &[IndirectJumpFacts],
) -> Vec<KnownJump> {
    let jump = |t: &IndirectJumpFacts| {
        let mut targets: Vec<u64> = t
            .targets
            .iter()
            .copied()
            .filter(|a| range.contains(a))
            .collect();
        targets.sort_unstable();
        targets.dedup();
        KnownJump {
            ip: graph.insns[t.jump].ip,
            targets,
            closed: t.copyable && t.closed,
        }
    };
    found.iter().map(jump).collect()
}

/// Gives up copies of tables whose loaded entry is live after the jump.
pub(crate) fn settle(
    input: &Input,
    graph: &mut Cfg,
    uses: &[RegUse],
    found: &mut [IndirectJumpFacts],
    factory: &mut InstructionInfoFactory,
) {
    if !found
        .iter()
        .any(|t| t.copyable && t.tainted != RegSet::EMPTY)
    {
        return;
    }
    let live = temporaries(graph, uses);
    for t in found
        .iter_mut()
        .filter(|t| t.copyable && t.tainted != RegSet::EMPTY)
    {
        let block = graph.block_of(t.jump);
        let after = graph.blocks[block]
            .succs
            .iter()
            .fold(0, |l, s| l | live[s.0 as usize].0);
        let outside = t.targets.iter().filter(|a| graph.block_at(**a).is_none());
        if after & t.tainted.0 != 0
            || outside
                .clone()
                .any(|&a| read_at(input, a, t.tainted, factory))
        {
            t.copyable = false;
            graph.exits[block].leaves = true;
        }
    }
}

/// Block starts that unresolved indirect jumps may reach.
pub(crate) fn landings(
    graph: &Cfg,
    entries: &Entries,
    info: &FunctionInfo,
    found: &[IndirectJumpFacts],
) -> Vec<u64> {
    let spans: Vec<Range<u64>> = found
        .iter()
        .filter(|t| t.copyable)
        .map(IndirectJumpFacts::span)
        .collect();
    let words = info
        .inner()
        .words
        .iter()
        .filter(|w| !spans.iter().any(|s| s.contains(&w.0)))
        .map(|w| w.1);
    let tables = found
        .iter()
        .filter(|t| !t.copyable)
        .flat_map(|t| t.targets.iter().copied());
    let mut all: Vec<u64> = entries
        .suspected
        .iter()
        .copied()
        .chain(words)
        .chain(tables)
        .collect();
    all.sort_unstable();
    all.dedup();
    all.retain(|&at| at != info.range.start && graph.block_at(at).is_some());
    all
}

/// True if an indirect jump has unknown targets, or its known facts are not `enough`. A target that
/// is a whole word read from memory is known from the data words, if it is inside the function. A
/// computed target comes from a table.
pub(crate) fn is_blind(
    graph: &Cfg,
    enough: impl Fn(&IndirectJumpFacts) -> bool,
    found: &[IndirectJumpFacts],
    words: bool,
    factory: &mut InstructionInfoFactory,
) -> bool {
    graph.blocks.iter().any(|block| {
        let jump = block.insns.end as usize - 1;
        if !is_indirect_jump(&graph.insns[jump])
            || found.iter().any(|t| t.jump == jump && enough(t))
        {
            return false;
        }
        let Some(target) = gpr(graph.insns[jump].inst.op0_register()) else {
            return false;
        };
        let body = &graph.insns[block.insns.start as usize..jump];
        let maker = body
            .iter()
            .rev()
            .find(|i| effects::uses(factory, &i.inst).clobber.contains(target));
        match maker.map(|i| i.inst.mnemonic()) {
            Some(mnemonic) => !matches!(mnemonic, Mnemonic::Mov | Mnemonic::Pop),
            None => !words,
        }
    })
}

/// True if the instruction calls an address inside of the function other than its start.
pub(crate) fn calls_itself_inside(insn: &Insn, range: &Range<u64>) -> bool {
    let target = if insn.flow == FlowControl::Call {
        insn.direct_target()
    } else {
        None
    };
    target.is_some_and(|t| t != range.start && range.contains(&t))
}

/// Maximum number of rounds until tables and data words that point into the function are
/// consistent. Source: Chosen.
pub(crate) const MAX_ROUNDS: usize = 8;

/// True if code at `at`, in another function, may use the value of a register: it reads the
/// register before a write in the next few instructions. A table's entry is a temporary of the
/// compiler, so the search goes no further.
pub(crate) fn read_at(
    input: &Input,
    at: u64,
    register: RegSet,
    factory: &mut InstructionInfoFactory,
) -> bool {
    let Some(bytes) = input.bytes_at(at) else {
        return true;
    };
    let mut left = register.0;
    let mut decoder = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE);
    for _ in 0..OUTSIDE_LOOK {
        if left == 0 || !decoder.can_decode() {
            break;
        }
        let inst = decoder.decode();
        let u = effects::uses(factory, &inst);
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

/// Maximum number of instructions examined in another function.
pub(crate) const OUTSIDE_LOOK: usize = 32;
