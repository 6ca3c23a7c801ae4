//! Jump tables, by slicing back from the indirect jump.
//!
//! The chain of blocks that lead to the jump without other predecessors is executed symbolically.
//! Where paths meet and no bound is found yet, each path is tried, and all must agree. The jump's
//! target then reads as `load8(T + 8·i)` or `A + sext(load4(T + 4·i))`, and the conditional
//! branches on the chain bound `i`. A table is *certain* if such a bound exists and each entry
//! inside it is an instruction of the same function. Any other table gives only suspected targets.
//!
//! A compare of the low 32 bits bounds a 64-bit index: if upper bits were set, the original would
//! read gigabytes away from its table. A compare of the low 8 or 16 bits bounds a wider index if
//! there is no other bound.

use crate::discover::symbolic_values::{Id, Machine, Value};
use crate::ir::cfg::Cfg;
use crate::ir::jump_table::{IndirectJumpFacts, TableForm};
use crate::program::Input;
use crate::util::fast_hash::{FastHasher, FastMap};
use crate::x86::effects;
use crate::x86::insn::Insn;
use crate::x86::regs::{CALLER_SAVED, Gpr, RegSet, RegUse, gpr};
use iced_x86::{ConditionCode, FlowControl, InstructionInfoFactory, Mnemonic, OpKind};
use std::hash::{Hash, Hasher};
use std::ops::Range;

/// Maximum number of blocks examined before the jump's own.
const CHAIN: usize = 12;
/// Maximum number of paths tried for one jump.
const PATHS: u32 = 64;
/// Predecessors of a block with more predecessors than this are not examined.
const MAX_WAYS: usize = 8;
/// Maximum number of entries of a table.
const MAX_ENTRIES: u64 = 1 << 16;
/// Maximum number of entries read if the bound is unknown.
const MAX_GUESSES: u64 = 1024;

/// True if `inst` is an indirect near jump.
pub fn is_indirect_jump(insn: &Insn) -> bool {
    insn.flow == FlowControl::IndirectBranch
}

/// Examines every indirect jump of the graph. `hopeful`: paths to a jump that are unreachable in
/// the current graph are ignored. The cases of a switch in a loop close the loop, so its back edge
/// is reachable only once the table is found. A table found in this way must be found again in the
/// graph that has its targets.
pub fn find_jump_tables(
    graph: &Cfg,
    range: &Range<u64>,
    input: &Input,
    factory: &mut InstructionInfoFactory,
    hopeful: bool,
    known: &mut Known,
) -> Vec<IndirectJumpFacts> {
    known.begin(graph);
    let mut found = Vec::new();
    let mut constants = None;
    for (b, block) in graph.blocks.iter().enumerate() {
        if !is_indirect_jump(&graph.insns[block.insns.end as usize - 1]) {
            continue;
        }
        let here = examine(
            graph,
            b,
            range,
            input,
            factory,
            View {
                constants: None,
                hopeful: false,
            },
            known,
        );
        if here.as_ref().is_some_and(|f| f.certain) {
            found.extend(here);
            continue;
        }
        // The table's address may have been loaded long before.
        let constants = constants
            .get_or_insert_with(|| Constants::find(graph, input, known.uses(graph, factory)));
        found.extend(
            examine(
                graph,
                b,
                range,
                input,
                factory,
                View {
                    constants: Some(constants),
                    hopeful,
                },
                known,
            )
            .or(here),
        );
    }
    found
}

/// Registers that hold the same address on every path to a block. Other constants are left out:
/// while the jump's targets are unknown, paths are missing, and the first value of an index would
/// look constant.
struct Constants {
    at_block: Vec<Option<[Option<u64>; 16]>>,
    /// True if control reaches the end of the block (false after a call that does not return).
    passed: Vec<bool>,
}

impl Constants {
    fn find(graph: &Cfg, input: &Input, uses: &[RegUse]) -> Constants {
        let mut at_block: Vec<Option<[Option<u64>; 16]>> = graph
            .blocks
            .iter()
            .map(|b| b.external_entry.then_some([None; 16]))
            .collect();
        let mut passed = vec![false; at_block.len()];
        let mut work: Vec<usize> = (0..at_block.len())
            .rev()
            .filter(|&b| graph.blocks[b].external_entry)
            .collect();
        while let Some(b) = work.pop() {
            let Some(mut state) = at_block[b] else {
                continue;
            };
            let range = graph.blocks[b].insns.clone();
            if range
                .clone()
                .any(|i| ends_there(input, &graph.insns[i as usize]))
            {
                continue;
            }
            for i in range.start as usize..range.end as usize {
                constant_step(&graph.insns[i], &uses[i], &mut state);
            }
            passed[b] = true;
            for s in &graph.blocks[b].succs {
                let to = &mut at_block[s.0 as usize];
                let merged = match to {
                    None => state,
                    Some(old) => std::array::from_fn(|r| old[r].filter(|_| old[r] == state[r])),
                };
                if *to != Some(merged) {
                    *to = Some(merged);
                    work.push(s.0 as usize);
                }
            }
        }
        // (In a file linked at zero, small numbers are addresses of its headers.)
        let address = |c: &u64| *c >= 0x1000 && input.segment_at(*c).is_some();
        at_block
            .iter_mut()
            .flatten()
            .flatten()
            .for_each(|c| *c = c.filter(address));
        Constants { at_block, passed }
    }
}

/// True if the instruction calls a function that does not return.
fn ends_there(input: &Input, insn: &Insn) -> bool {
    match insn.flow {
        FlowControl::Call => crate::x86::flow::direct_target(&insn.inst)
            .is_some_and(|t| input.no_return.contains(&t)),
        FlowControl::IndirectCall if insn.inst.is_ip_rel_memory_operand() => {
            input.no_return.contains(&insn.inst.ip_rel_memory_address())
        }
        _ => false,
    }
}

fn constant_step(insn: &Insn, u: &RegUse, state: &mut [Option<u64>; 16]) {
    let inst = &insn.inst;
    if matches!(
        inst.flow_control(),
        FlowControl::Call | FlowControl::IndirectCall
    ) {
        CALLER_SAVED
            .iter()
            .for_each(|r| state[usize::from(r.0)] = None);
        return;
    }
    let register = inst.op0_register();
    let whole = register.is_gpr64() || register.is_gpr32();
    let new = match inst.mnemonic() {
        _ if inst.op0_kind() != OpKind::Register || !whole => None,
        Mnemonic::Lea if inst.is_ip_rel_memory_operand() && register.is_gpr64() => {
            Some(inst.ip_rel_memory_address())
        }
        Mnemonic::Mov => match inst.op1_kind() {
            OpKind::Register if register.is_gpr64() => {
                gpr(inst.op1_register()).and_then(|r| state[usize::from(r.0)])
            }
            OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64 => {
                inst.try_immediate(1).ok()
            }
            _ => None,
        },
        _ => None,
    };
    for r in u.clobber.iter() {
        state[usize::from(r.0)] = if gpr(register) == Some(r) { new } else { None };
    }
}

/// `upper[id] ≤ bound`.
type Bounds = Vec<(Id, u64)>;

fn examine(
    graph: &Cfg,
    b: usize,
    range: &Range<u64>,
    input: &Input,
    factory: &mut InstructionInfoFactory,
    view: View,
    known: &mut Known,
) -> Option<IndirectJumpFacts> {
    let jump = graph.blocks[b].insns.end as usize - 1;
    let answer = known.get(graph, view, jump).unwrap_or_else(|| {
        let mut search = Search {
            graph,
            factory,
            view,
            jump,
            budget: PATHS,
            seen: vec![b],
        };
        let answer = search.explore(&mut vec![b]);
        let seen = search.seen;
        known.note(graph, view, jump, seen, answer);
        answer
    });
    let (shape, count) = answer?;
    let contents = known.contents(graph, range, input, shape, count);
    Some(table_of(
        graph,
        input,
        jump,
        &shape,
        contents,
        factory,
        graph.blocks[b].insns.start as usize,
    ))
}

/// Inputs of a search besides the code and its blocks.
#[derive(Clone, Copy)]
struct View<'s> {
    constants: Option<&'s Constants>,
    /// See [`find_jump_tables`].
    hopeful: bool,
}

impl View<'_> {
    /// True if control may go from the end of block `b` to a jump.
    fn reaches(self, b: usize) -> bool {
        !self.hopeful || self.constants.is_none_or(|c| c.passed[b])
    }

    fn presets(self, b: usize) -> Option<[Option<u64>; 16]> {
        self.constants.and_then(|c| c.at_block[b])
    }

    /// Fingerprint of all properties of a block that a search uses.
    fn print(self, graph: &Cfg, b: usize) -> u64 {
        let block = &graph.blocks[b];
        let (first, last) = (
            &graph.insns[block.insns.start as usize],
            &graph.insns[block.insns.end as usize - 1],
        );
        let mut hasher = FastHasher::default();
        (
            first.ip,
            last.ip,
            block.insns.start,
            block.insns.end,
            block.external_entry,
            block.preds.len(),
        )
            .hash(&mut hasher);
        for p in &block.preds {
            (
                graph.blocks[p.0 as usize].insns.start,
                self.reaches(p.0 as usize),
            )
                .hash(&mut hasher);
        }
        // (A block without known constants counts like one where constants are not tracked.)
        if let Some(presets) = self.presets(b).filter(|p| p.iter().any(Option::is_some)) {
            presets.hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// A table and the number of its entries, if a bound was found.
type Answer = Option<(Shape, Option<u64>)>;

/// Results of the searches in one function, for later rounds. Most blocks stay the same from round
/// to round, and a jump whose table has no bound is expensive.
#[derive(Debug, Default)]
pub struct Known {
    /// [`Cfg::dropped`] of the graph that the results belong to.
    dropped: u64,
    /// By instruction, computed on demand.
    uses: Vec<RegUse>,
    /// By jump.
    answers: FastMap<u32, Vec<(Vec<(u32, u64)>, Answer)>>,
    /// Contents of tables.
    contents: FastMap<(Shape, Option<u64>), Contents>,
}

impl Known {
    /// Drops the results if other filler was dropped from the graph. Instruction numbers change
    /// then, and a table's target may be in the dropped filler.
    fn begin(&mut self, graph: &Cfg) {
        if self.dropped != graph.dropped {
            *self = Known {
                dropped: graph.dropped,
                ..Known::default()
            };
        }
    }

    fn uses(&mut self, graph: &Cfg, factory: &mut InstructionInfoFactory) -> &[RegUse] {
        if self.uses.is_empty() {
            self.uses = graph
                .insns
                .iter()
                .map(|i| effects::uses(factory, &i.inst))
                .collect();
        }
        &self.uses
    }

    fn contents(
        &mut self,
        graph: &Cfg,
        range: &Range<u64>,
        input: &Input,
        shape: Shape,
        count: Option<u64>,
    ) -> Contents {
        self.contents
            .entry((shape, count))
            .or_insert_with(|| Contents::read(graph, range, input, &shape, count))
            .clone()
    }

    /// The answer of an earlier search that saw the same blocks.
    fn get(&self, graph: &Cfg, view: View, jump: usize) -> Option<Answer> {
        let same = |&(first, print): &(u32, u64)| {
            let b = graph.blocks.binary_search_by_key(&first, |b| b.insns.start);
            b.is_ok_and(|b| view.print(graph, b) == print)
        };
        self.answers
            .get(&(jump as u32))?
            .iter()
            .rev()
            .find(|a| a.0.iter().all(same))
            .map(|a| a.1)
    }

    fn note(&mut self, graph: &Cfg, view: View, jump: usize, mut seen: Vec<usize>, answer: Answer) {
        seen.sort_unstable();
        seen.dedup();
        let met = seen
            .into_iter()
            .map(|b| (graph.blocks[b].insns.start, view.print(graph, b)))
            .collect();
        self.answers
            .entry(jump as u32)
            .or_default()
            .push((met, answer));
    }
}

/// Looks for a table and its bound on every path that leads to a jump, as far back as needed.
struct Search<'s> {
    graph: &'s Cfg,
    factory: &'s mut InstructionInfoFactory,
    view: View<'s>,
    jump: usize,
    budget: u32,
    /// Blocks examined.
    seen: Vec<usize>,
}

impl Search<'_> {
    /// `chain`: blocks of a path that ends at the jump, last one first. Returns the table and, if
    /// all paths into the chain bound the index, the number of entries.
    fn explore(&mut self, chain: &mut Vec<usize>) -> Answer {
        let added = self.extend(chain);
        self.seen.extend_from_slice(&chain[chain.len() - added..]);
        let result = self.decide(chain);
        chain.truncate(chain.len() - added);
        result
    }

    /// Adds predecessors as long as there is only one. Returns their number.
    fn extend(&self, chain: &mut Vec<usize>) -> usize {
        let before = chain.len();
        while let Some(&top) = chain.last()
            && chain.len() < CHAIN
            && !self.graph.blocks[top].external_entry
            && let [pred] = self.graph.blocks[top].preds[..]
            && !chain.contains(&(pred.0 as usize))
        {
            chain.push(pred.0 as usize);
        }
        chain.len() - before
    }

    fn decide(&mut self, chain: &mut Vec<usize>) -> Answer {
        self.budget = self.budget.checked_sub(1)?;
        let here = self.run(chain);
        // An index of one byte bounds the table as well, but an earlier compare may give a smaller
        // bound.
        if let Some((_, Some(count))) = here
            && count != 1 << 8
            && count != 1 << 16
        {
            return here;
        }
        let graph = self.graph;
        let top = *chain.last()?;
        let preds: Vec<usize> = graph.blocks[top]
            .preds
            .iter()
            .map(|p| p.0 as usize)
            .filter(|&p| self.view.reaches(p))
            .collect();
        let one = preds.len() == 1 && graph.blocks[top].preds.len() > 1;
        if graph.blocks[top].external_entry
            || chain.len() >= CHAIN
            || preds.len() < 2 && !one
            || preds.len() > MAX_WAYS
        {
            return here;
        }
        let mut all: Option<(Shape, Option<u64>)> = None;
        for pred in preds {
            if chain.contains(&pred) {
                return here;
            }
            chain.push(pred);
            self.seen.push(pred);
            let way = self.explore(chain);
            chain.pop();
            // A path without a better bound decides: no other path makes the bound smaller.
            if way == here {
                return here;
            }
            let Some((shape, Some(count))) = way else {
                return here;
            };
            all = match all {
                None => Some((shape, Some(count))),
                Some((first, most)) if first == shape => Some((first, most.max(Some(count)))),
                Some(_) => return here,
            };
        }
        all
    }

    /// Executes one path.
    fn run(&mut self, chain: &[usize]) -> Answer {
        let graph = self.graph;
        let mut machine = Machine::new();
        let mut bounds = Bounds::new();
        let presets = chain.last().and_then(|&top| self.view.presets(top));
        for (r, c) in presets.iter().flatten().enumerate() {
            if let Some(c) = c {
                machine.preset(Gpr(r as u8), *c);
            }
        }
        for (i, &block) in chain.iter().enumerate().rev() {
            let insns = graph.blocks[block].insns.clone();
            for at in insns.start as usize..insns.end as usize {
                if at != self.jump {
                    machine.step(at, &graph.insns[at], self.factory);
                }
            }
            if i > 0 {
                learn(
                    graph,
                    insns.end as usize - 1,
                    chain[i - 1],
                    &mut machine,
                    &mut bounds,
                );
            }
        }
        let target = target_of(&mut machine, &graph.insns[self.jump], self.jump)?;
        let (shape, index) = table_shape(&mut machine, target, &graph.insns, self.jump)?;
        let (shape, index) = from_least(&machine, &bounds, shape, index);
        let count = bound(&machine, &bounds, index)
            .and_then(|k| k.checked_add(1))
            .filter(|&k| k <= MAX_ENTRIES);
        Some((shape, count))
    }
}

/// Adds the bound that the conditional branch `last` implies if control goes to block `next`.
fn learn(graph: &Cfg, last: usize, next: usize, machine: &mut Machine, bounds: &mut Bounds) {
    let insn = &graph.insns[last];
    let Some(compared) = machine.compared else {
        return;
    };
    if insn.flow != FlowControl::ConditionalBranch {
        return;
    }
    let to = graph.insns[graph.blocks[next].insns.start as usize].ip;
    let fall = insn.next();
    let jump = insn.inst.near_branch_target();
    if (to == fall) == (to == jump) {
        return;
    }
    // The relation between left and right operand.
    use ConditionCode::{a, ae, b, be, e, ne};
    let holds = match (insn.inst.condition_code(), to == jump) {
        (a, true) | (be, false) => a,
        (be, true) | (a, false) => be,
        (ae, true) | (b, false) => ae,
        (b, true) | (ae, false) => b,
        (e, true) | (ne, false) => e,
        _ => return,
    };
    let fact = match (
        machine.as_constant(compared.left),
        machine.as_constant(compared.right),
        holds,
    ) {
        (None, Some(k), be | e) => Some((compared.left, k)),
        (None, Some(k), b) => k.checked_sub(1).map(|k| (compared.left, k)),
        (Some(k), None, ae | e) => Some((compared.right, k)),
        (Some(k), None, a) => k.checked_sub(1).map(|k| (compared.right, k)),
        _ => None,
    };
    bounds.extend(fact);
}

/// Upper bound of `id`, if known.
fn bound(machine: &Machine, bounds: &Bounds, id: Id) -> Option<u64> {
    let known = bounds
        .iter()
        .filter(|b| {
            b.0 == id || matches!(*machine.value(b.0), Value::Zext(inner, 32) if inner == id)
        })
        .map(|b| b.1)
        .min();
    let structural = match *machine.value(id) {
        Value::Zext(_, 8) => Some(0xff),
        Value::Zext(_, 16) => Some(0xffff),
        Value::Load(_, 1, ..) => Some(0xff),
        Value::Load(_, 2, ..) => Some(0xffff),
        Value::And(inner, m) => Some(bound(machine, bounds, inner).map_or(m, |k| k.min(m))),
        Value::Shr(inner, k) if k < 64 => bound(machine, bounds, inner).map(|b| b >> k),
        _ => None,
    };
    let through = match *machine.value(id) {
        Value::Zext(inner, bits) => {
            bound(machine, bounds, inner).filter(|&k| bits >= 32 || k < 1 << bits)
        }
        // The signed value equals the unsigned one if the bound has no sign bit.
        Value::Sext(inner, bits) => {
            let as_zext = bounds.iter().filter(
                |b| matches!(*machine.value(b.0), Value::Zext(i, z) if i == inner && z == bits),
            );
            let inner = bound(machine, bounds, inner);
            as_zext
                .map(|b| b.1)
                .chain(inner)
                .min()
                .filter(|&k| bits < 64 && k < 1 << (bits - 1))
        }
        _ => None,
    };
    [known, structural, through]
        .into_iter()
        .flatten()
        .min()
        .or_else(|| narrow(machine, bounds, id))
}

/// A bound by a compare of the low 8 or 16 bits, if there is no other. The compiler knew that the
/// upper bits are zero, or it would have extended the value before using all of it.
fn narrow(machine: &Machine, bounds: &Bounds, id: Id) -> Option<u64> {
    let whole = match *machine.value(id) {
        Value::Zext(inner, 32) => inner,
        _ => id,
    };
    let low = |b: &&(Id, u64)| matches!(*machine.value(b.0), Value::Zext(inner, 8 | 16) if inner == whole);
    bounds.iter().filter(low).map(|b| b.1).min()
}

/// The jump's target address as a value.
fn target_of(machine: &mut Machine, insn: &Insn, jump: usize) -> Option<Id> {
    match insn.inst.op0_kind() {
        OpKind::Register => Some(machine.reg(gpr(insn.inst.op0_register())?)),
        OpKind::Memory => {
            if insn.inst.memory_size().size() != 8
                || insn.inst.segment_prefix() != iced_x86::Register::None
            {
                return None;
            }
            machine.jump_load(&insn.inst, jump)
        }
        _ => None,
    }
}

/// A table without its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Shape {
    load: usize,
    table: u64,
    form: TableForm,
}

/// The table that a jump target comes from, and its index.
fn table_shape(
    machine: &mut Machine,
    target: Id,
    insns: &[Insn],
    jump: usize,
) -> Option<(Shape, Id)> {
    let (anchor, terms) = machine.sum_of(target);
    let [(term, 1)] = terms[..] else { return None };
    let (load, form, width) = match *machine.value(term) {
        Value::Load(_, 8, ..) if anchor == 0 => (term, TableForm::Absolute8, 8),
        Value::Sext(inner, 32) if anchor != 0 => (inner, TableForm::Relative { anchor }, 4),
        _ => return None,
    };
    let Value::Load(address, bytes, insn, _) = *machine.value(load) else {
        return None;
    };
    if u64::from(bytes) != width
        || insn == 0
        || insn as usize - 1 > jump
        || insn as usize > insns.len()
    {
        return None;
    }
    let (table, terms) = machine.sum_of(address);
    let [(index, factor)] = terms[..] else {
        return None;
    };
    (factor == width).then_some((
        Shape {
            load: insn as usize - 1,
            table,
            form,
        },
        index,
    ))
}

/// The table from another first entry. If the least case was subtracted from a 64-bit index
/// before the compare, the entry's address may include the subtraction in the table's address.
fn from_least(machine: &Machine, bounds: &Bounds, shape: Shape, index: Id) -> (Shape, Id) {
    if bounds.iter().any(|b| b.0 == index) {
        return (shape, index);
    }
    let compared = bounds.iter().rev().find_map(|b| match machine.value(b.0) {
        Value::Sum(c, terms) if terms[..] == [(index, 1)] => Some((b.0, *c)),
        _ => None,
    });
    let Some((index, c)) = compared else {
        return (shape, index);
    };
    let width = if shape.form == TableForm::Absolute8 {
        8
    } else {
        4
    };
    (
        Shape {
            table: shape.table.wrapping_sub(c.wrapping_mul(width)),
            ..shape
        },
        index,
    )
}

/// Contents of a table.
#[derive(Clone, Debug)]
struct Contents {
    targets: Vec<u64>,
    strays: Vec<u64>,
    relocated: bool,
    certain: bool,
    closed: bool,
}

impl Contents {
    fn read(
        graph: &Cfg,
        range: &Range<u64>,
        input: &Input,
        shape: &Shape,
        count: Option<u64>,
    ) -> Contents {
        let inside = |t: u64| range.contains(&t) && graph.insn_at(t).is_some();
        let whole = count.and_then(|count| read_whole(input, shape, count, &inside, range));
        let certain = whole.is_some();
        let (targets, strays, relocated) = match whole {
            Some((targets, relocated)) => (targets, Vec::new(), relocated),
            None => guess(input, shape, &inside),
        };
        let closed = targets.iter().all(|t| inside(*t));
        Contents {
            targets,
            strays,
            relocated,
            certain,
            closed,
        }
    }
}

/// The table as its jump uses it.
fn table_of(
    graph: &Cfg,
    input: &Input,
    jump: usize,
    shape: &Shape,
    contents: Contents,
    factory: &mut InstructionInfoFactory,
    block_start: usize,
) -> IndirectJumpFacts {
    let Contents {
        targets,
        strays,
        relocated,
        certain,
        closed,
    } = contents;
    let read_only = input.segment_at(shape.table).is_some_and(|s| !s.writable);
    let tainted = taint(graph, shape.load, jump, block_start, factory);
    IndirectJumpFacts {
        jump,
        load: shape.load,
        table: shape.table,
        form: shape.form,
        certain,
        closed,
        copyable: certain && read_only && !relocated && tainted.is_some() && !targets.is_empty(),
        tainted: tainted.unwrap_or_default(),
        targets,
        strays,
    }
}

/// The targets of `count` entries, and true if relocations make them. `None` if one of them is no
/// target. A target in another function (a cold part) is valid.
fn read_whole(
    input: &Input,
    shape: &Shape,
    count: u64,
    inside: &dyn Fn(u64) -> bool,
    range: &Range<u64>,
) -> Option<(Vec<u64>, bool)> {
    let (mut targets, mut relocated) = (Vec::new(), false);
    for i in 0..count {
        let (target, reloc) = entry(input, shape, i)?;
        if !inside(target) && (range.contains(&target) || !input.is_code(target)) {
            return None;
        }
        relocated |= reloc;
        targets.push(target);
    }
    Some((targets, relocated))
}

/// Candidate entries of a table of unknown length: all up to the first whose target is no code. All
/// entries inside the function count as targets, even after an entry outside, which may be a cold
/// part. A surplus target is harmless; a missing one is not.
fn guess(input: &Input, shape: &Shape, inside: &dyn Fn(u64) -> bool) -> (Vec<u64>, Vec<u64>, bool) {
    let (mut targets, mut strays, mut relocated) = (Vec::new(), Vec::new(), false);
    for i in 0..MAX_GUESSES {
        let Some((target, reloc)) = entry(input, shape, i).filter(|e| input.is_code(e.0)) else {
            break;
        };
        relocated |= reloc;
        if inside(target) {
            &mut targets
        } else {
            &mut strays
        }
        .push(target);
    }
    (targets, strays, relocated)
}

/// Entry `i` of the table, and true if a relocation makes it.
fn entry(input: &Input, shape: &Shape, i: u64) -> Option<(u64, bool)> {
    match shape.form {
        TableForm::Relative { anchor } => {
            let bytes = input
                .bytes_at(shape.table.checked_add(i.checked_mul(4)?)?)?
                .first_chunk::<4>()?;
            Some((
                anchor.wrapping_add(i32::from_le_bytes(*bytes) as u64),
                false,
            ))
        }
        TableForm::Absolute8 => {
            let at = shape.table.checked_add(i.checked_mul(8)?)?;
            let bytes = input.bytes_at(at)?.first_chunk::<8>()?;
            if let Ok(found) = input.relative_targets.binary_search_by_key(&at, |t| t.0) {
                return Some((input.relative_targets[found].1, true));
            }
            input
                .relocated
                .binary_search(&at)
                .is_err()
                .then(|| (u64::from_le_bytes(*bytes), false))
        }
    }
}

/// Registers that hold a value made from the entry at the jump. `None` if the entry has another
/// use, or is loaded in another block.
fn taint(
    graph: &Cfg,
    load: usize,
    jump: usize,
    block_start: usize,
    factory: &mut InstructionInfoFactory,
) -> Option<RegSet> {
    if load == jump {
        return Some(RegSet::EMPTY);
    }
    if load < block_start || load > jump {
        return None;
    }
    let mut tainted = RegSet::EMPTY.with(gpr(graph.insns[load].inst.op0_register())?);
    for insn in &graph.insns[load + 1..jump] {
        let inst = &insn.inst;
        if matches!(
            inst.flow_control(),
            FlowControl::Call | FlowControl::IndirectCall
        ) {
            return None;
        }
        let u = effects::uses(factory, inst);
        if u.read.0 & tainted.0 == 0 {
            tainted = RegSet(tainted.0 & !u.kill.0);
            continue;
        }
        let plain = matches!(
            inst.mnemonic(),
            Mnemonic::Add | Mnemonic::Mov | Mnemonic::Movsxd | Mnemonic::Cdqe | Mnemonic::Lea
        ) && (inst.op_count() == 0 || inst.op0_kind() == OpKind::Register)
            && (inst.mnemonic() == Mnemonic::Lea
                || (0..inst.op_count()).all(|o| inst.op_kind(o) != OpKind::Memory));
        if !plain {
            return None;
        }
        tainted = RegSet(tainted.0 | u.clobber.0);
    }
    Some(tainted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::cfg::Entries;
    use crate::x86::decode::decode_function;
    use crate::x86::regs::{reg_use, registers};

    #[test]
    fn what_is_known_holds_for_the_same_instructions_only() {
        // jmp rax; nop; mov rax, rcx; jmp rax; nop; mov rax, rbx; jmp rax. An entry into one filler
        // makes it code.
        let code = [
            0xff, 0xe0, 0x90, 0x48, 0x89, 0xc8, 0xff, 0xe0, 0x90, 0x48, 0x89, 0xd8, 0xff, 0xe0,
        ];
        let range = 0x1000..0x1000 + code.len() as u64;
        let body = decode_function(&code, 0x1000, &[]).unwrap();
        let graph = |filler: u64| {
            let mut suspected = vec![0x1003, 0x1009, filler];
            suspected.sort_unstable();
            Cfg::build(
                body.clone(),
                &range,
                &Entries {
                    suspected,
                    ..Entries::default()
                },
                &[],
            )
        };
        let (first, second) = (graph(0x1002), graph(0x1008));
        assert_eq!((first.insns.len(), second.insns.len()), (6, 6));
        let (input, mut factory) = (Input::default(), InstructionInfoFactory::new());
        let mut known = Known::default();
        for graph in [&first, &second, &first] {
            find_jump_tables(graph, &range, &input, &mut factory, false, &mut known);
            let reads: Vec<RegSet> = known
                .uses(graph, &mut factory)
                .iter()
                .map(|u| u.read)
                .collect();
            let expected: Vec<RegSet> = graph
                .insns
                .iter()
                .map(|i| reg_use(registers(&mut factory, &i.inst)).read)
                .collect();
            assert_eq!(reads, expected);
        }
    }
}
