//! Origin of a load's address: the value of another load, or a kind of computation.
//!
//! Classes show if an address is affine. Origins distinguish those that are not: a pointer chase
//! loads its own next address, a gather takes an index from another load, a hash table's slot is
//! mixed from a key, and a binary search halves a range. Findings use origins to distinguish
//! mechanisms, and nothing else depends on them. Other addresses are [`Origin::Unknown`].
//!
//! Each address is followed backwards through the instructions that made it, over registers and
//! variables in the frame, up to loads from elsewhere. Loads whose addresses depend on each other
//! in a cycle are a chase. A call is passed from its result to its arguments, for accessors that
//! were not inlined. A function that calls itself also gets its arguments from these calls.

use crate::analyze::dataflow::Flow;
use crate::analyze::stack_frame::{Effect, StackFrame, cell_group};
use crate::ir::cfg::Cfg;
use crate::ir::loops::Loops;
use crate::plan::function_plan::FunctionPlan;
use crate::plan::types::SitePlan;
use crate::util::fast_hash::FastMap;
use crate::x86::effects::Facts;
use crate::x86::insn::InsnId;
use crate::x86::operands::Form;
use crate::x86::regs::{CALLER_SAVED, Gpr, RAX, RBP, RBX, RCX, RDI, RDX, RSI, RSP, gpr};
use iced_x86::{FlowControl, Mnemonic, OpKind};
use mgz_annotations_schema::sidecar::{CLASS_IRREGULAR, CLASS_STRIDED, Origin, SiteFlags};
use std::cell::RefCell;

/// Maximum number of instructions that make up one address. Source: Chosen.
const MAX_NODES: usize = 64;
/// Maximum number of instructions visited for one address. Source: Chosen.
const MAX_STEPS_PER_ADDRESS: usize = 3000;
/// Maximum number of instructions visited in a function, per instruction of it. Source: Chosen.
const MAX_STEPS_PER_INSTRUCTION: usize = 40;
/// Maximum number of loads followed in a function.
const LOADS: usize = 4096;
/// Greatest factor that is the size of an element, not part of a hash. Source: Chosen.
const MAX_ELEMENT_BYTES: u64 = 1 << 12;

/// True if a factor mixes, like the factors of hashes and random number generators. These are
/// large, and odd so that no bit is lost. Rows of arrays may be as large, but mostly have an even
/// number of bytes.
fn mixes(factor: u64) -> bool {
    factor > MAX_ELEMENT_BYTES && factor & 1 == 1
}

/// Operations applied to a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Marks(u8);

impl Marks {
    /// Scaled, or added to a varying value: it is an index.
    const INDEX: Marks = Marks(1);
    /// Mixed, as in hashes and random numbers.
    const MIX: Marks = Marks(2);
    /// Halved.
    const HALF: Marks = Marks(4);
    /// One of two values, selected by a comparison.
    const SELECT: Marks = Marks(8);
    /// Passed through a call.
    const CALL: Marks = Marks(16);
    /// Masked.
    const MASK: Marks = Marks(32);

    fn has(self, other: Marks) -> bool {
        self.0 & other.0 != 0
    }

    fn with(self, other: Marks) -> Marks {
        Marks(self.0 | other.0)
    }
}

/// A part of a value.
struct Node {
    /// The instruction; `None` for the function's entry.
    insn: Option<u32>,
    /// Operations that it applies to its inputs.
    marks: Marks,
    /// True if it loads from elsewhere, which ends the search.
    load: bool,
    inputs: Vec<u32>,
}

/// Parts that make up one address.
#[derive(Default)]
struct Slice {
    /// Loads, and the operations on their values.
    loads: Vec<(u32, Marks)>,
    /// Operations on all paths, outside of cycles and inside.
    marks: Marks,
    circle: Marks,
    has_circle: bool,
    /// Instructions in cycles that halve.
    halved: Vec<u32>,
    known: bool,
}

/// Follows addresses of a function.
struct Walk<'f> {
    graph: &'f Cfg,
    facts: &'f Facts,
    frame: &'f StackFrame,
    loops: &'f Loops,
    /// Block of each instruction.
    block: Vec<u32>,
    /// Loads with a class: true for Strided.
    strided: FastMap<u32, bool>,
    /// Instructions that call the function itself.
    self_calls: Vec<u32>,
    arguments: &'static ArgumentRegisters,
    budget: usize,
    /// Number of the current search for definitions, and per block the last search that reached it.
    seen: RefCell<(u32, Vec<u32>)>,
}

/// Registers of the arguments that matter most.
pub struct ArgumentRegisters {
    /// Those that a function which calls itself passes on.
    of_self_calls: &'static [Gpr],
    /// Those of accessors that were not inlined.
    of_accessors: &'static [Gpr],
}

/// The convention of C.
const OF_C: ArgumentRegisters = ArgumentRegisters {
    of_self_calls: &[RDI, RSI, RDX, RCX],
    of_accessors: &[RDI, RSI],
};
/// The conventions of Go and OCaml, which begin with `rax` and `rbx`.
const OF_GO_AND_OCAML: ArgumentRegisters = ArgumentRegisters {
    of_self_calls: &[RAX, RBX, RCX, RDI, RSI],
    of_accessors: &[RAX, RBX],
};

impl ArgumentRegisters {
    /// Those of C, or those of compilers whose runtimes walk stacks.
    pub fn of(walks_stacks: bool) -> &'static ArgumentRegisters {
        match walks_stacks {
            true => &OF_GO_AND_OCAML,
            false => &OF_C,
        }
    }
}

/// Sets the origins of a plan's loads.
pub fn mark(
    plan: &mut FunctionPlan,
    flow: &mut Flow,
    graph: &Cfg,
    facts: &Facts,
    loops: &Loops,
    arguments: &'static ArgumentRegisters,
) {
    let block = blocks(graph);
    if loops.all.len() > 1 {
        mark_columns(plan, flow, facts, &block);
    }
    let strided = (plan.regions.iter().flat_map(|r| &r.sites))
        .map(|s| (s.insn.0, s.class == CLASS_STRIDED))
        .collect();
    let is_asked = |s: &SitePlan| s.class == CLASS_IRREGULAR && s.flags & SiteFlags::STORE == 0;
    let asked: Vec<u32> = (plan.regions.iter().flat_map(|r| &r.sites))
        .filter(|s| is_asked(s))
        .map(|s| s.insn.0)
        .collect();
    if asked.is_empty() || asked.len() > LOADS {
        return;
    }
    let own;
    let frame = if flow.frame.steps.len() == graph.insns.len() {
        &flow.frame
    } else {
        own = StackFrame::find(graph, loops, facts, false);
        &own
    };
    let mut walk = Walk::new(graph, facts, frame, loops, block, strided);
    walk.arguments = arguments;
    let found = walk.all(&asked);
    let sites = plan.regions.iter_mut().flat_map(|r| &mut r.sites);
    for site in sites.filter(|s| is_asked(s)) {
        if let Some(&(origin, from)) = found.get(&site.insn.0) {
            site.origin = origin as u8;
            site.origin_insn = from.map(InsnId);
        }
    }
}

/// Marks strided loads along a column: the outer loop moves them by less than the inner one.
fn mark_columns(plan: &mut FunctionPlan, flow: &mut Flow, facts: &Facts, block: &[u32]) {
    for site in plan.regions.iter_mut().flat_map(|r| &mut r.sites) {
        if site.class != CLASS_STRIDED || site.flags & SiteFlags::STORE != 0 {
            continue;
        }
        let insn = site.insn.0 as usize;
        let list = &facts.accesses[insn];
        let access = list.iter().enumerate().find(|(_, a)| a.read);
        if let Some((n, access)) = access
            && matches!(access.form, Form::Plain(_))
            && let Some(outer) = flow.outer_step(block[insn] as usize, insn, n, access)
        {
            let inner = (site.flags & SiteFlags::STRIDE_KNOWN != 0).then_some(site.stride);
            let is_column = match (inner.map(i64::unsigned_abs), outer.map(i64::unsigned_abs)) {
                (_, Some(0)) => false,
                (Some(inner), Some(outer)) => outer <= 64 && inner >= 2 * outer,
                (Some(inner), None) => inner > 64,
                // The recorded rows will show which step is longer.
                (None, outer) => outer.is_none_or(|outer| outer <= 64),
            };
            if is_column {
                site.origin = Origin::Column as u8;
            }
        }
    }
}

/// The block of each instruction.
fn blocks(graph: &Cfg) -> Vec<u32> {
    let mut block = vec![0; graph.insns.len()];
    for (b, of) in graph.blocks.iter().enumerate() {
        for i in of.insns.clone() {
            block[i as usize] = b as u32;
        }
    }
    block
}

impl<'f> Walk<'f> {
    fn new(
        graph: &'f Cfg,
        facts: &'f Facts,
        frame: &'f StackFrame,
        loops: &'f Loops,
        block: Vec<u32>,
        strided: FastMap<u32, bool>,
    ) -> Walk<'f> {
        let start = graph.insns.first().map_or(0, |i| i.ip);
        let self_calls = (0..graph.insns.len() as u32)
            .filter(|&i| {
                let insn = &graph.insns[i as usize];
                insn.flow == FlowControl::Call && insn.direct_target() == Some(start)
            })
            .collect();
        Walk {
            graph,
            facts,
            frame,
            loops,
            block,
            strided,
            self_calls,
            arguments: &OF_C,
            budget: MAX_STEPS_PER_INSTRUCTION * graph.insns.len() + MAX_STEPS_PER_ADDRESS,
            seen: RefCell::new((0, vec![0; graph.blocks.len()])),
        }
    }

    /// The origins of some loads, by instruction.
    fn all(&mut self, asked: &[u32]) -> FastMap<u32, (Origin, Option<u32>)> {
        let mut slices: FastMap<u32, Slice> = FastMap::default();
        let mut work: Vec<u32> = asked.to_vec();
        while let Some(insn) = work.pop() {
            if slices.contains_key(&insn) || slices.len() >= 2 * LOADS {
                continue;
            }
            let slice = self.slice(insn);
            work.extend(slice.loads.iter().map(|l| l.0));
            slices.insert(insn, slice);
        }
        let chains: FastMap<u32, bool> = slices
            .keys()
            .map(|&load| (load, reaches(&slices, load, load)))
            .collect();
        let is_chain = |load: u32| chains.get(&load) == Some(&true);
        let mut found = FastMap::default();
        for &load in asked {
            if let Some(slice) = slices.get(&load) {
                found.insert(load, self.origin(load, slice, &slices, &is_chain));
            }
        }
        found
    }

    /// Origin of a load's address.
    fn origin(
        &self,
        load: u32,
        slice: &Slice,
        slices: &FastMap<u32, Slice>,
        is_chain: &dyn Fn(u32) -> bool,
    ) -> (Origin, Option<u32>) {
        if is_chain(load) {
            // Loads that the chase passes through, and the load that it begins with.
            let next: Vec<&(u32, Marks)> = (slice.loads.iter())
                .filter(|l| is_chain(l.0) && reaches(slices, l.0, load))
                .collect();
            let head = slice.loads.iter().find(|l| !is_chain(l.0)).map(|l| l.0);
            let chooses = next.len() > 1
                || next.iter().any(|l| l.1.has(Marks::SELECT))
                || slice.marks.has(Marks::SELECT);
            return match chooses {
                true => (Origin::Tree, head),
                false => (Origin::Chain, head),
            };
        }
        // A load at the place found by a search is no step of the search.
        let searches = (slice.halved.iter()).any(|&halves| self.is_in_loop_of(load, halves));
        if searches && !slice.circle.has(Marks::MIX) {
            return (Origin::Search, None);
        }
        let strided = |load: u32| self.strided.get(&load) == Some(&true);
        let rank = |l: &&(u32, Marks)| {
            let (load, marks) = **l;
            let index = marks.has(Marks::INDEX);
            (
                is_chain(load),
                strided(load),
                self.depth(load),
                index,
                std::cmp::Reverse(load),
            )
        };
        match slice.loads.iter().max_by_key(rank) {
            Some(&(from, marks)) if slice.marks.has(Marks::MIX) || marks.has(Marks::MIX) => {
                (Origin::Hash, Some(from))
            }
            Some(&(from, marks)) if marks.has(Marks::INDEX) => (Origin::Index, Some(from)),
            Some(&(from, marks)) if marks.has(Marks::CALL) => (Origin::Index, Some(from)),
            Some(&(from, _)) => (Origin::Pointer, Some(from)),
            None if slice.marks.has(Marks::MIX) => (Origin::Hash, None),
            None if slice.has_circle && slice.circle.has(Marks::MASK) => (Origin::Hash, None),
            None if slice.marks.has(Marks::CALL) => (Origin::Call, None),
            None => (Origin::Unknown, None),
        }
    }

    /// True if an instruction is in the innermost loop of another one. (If the other one is in no
    /// loop, its loop is that of a function that calls itself.)
    fn is_in_loop_of(&self, insn: u32, other: u32) -> bool {
        let innermost = |i: u32| self.loops.of_block[self.block[i as usize] as usize];
        let wanted = innermost(other);
        if self.loops.all.get(wanted as usize).is_none() {
            return true;
        }
        let mut at = innermost(insn);
        while let Some(l) = self.loops.all.get(at as usize) {
            if at == wanted {
                return true;
            }
            at = l.parent;
        }
        false
    }

    /// True if a product has a large constant factor, as in a hash. A product of two varying
    /// numbers is the offset of a row.
    fn is_mixed(&self, inst: &iced_x86::Instruction, insn: u32, steps: &mut usize) -> bool {
        (0..inst.op_count()).any(|op| {
            let register = inst.op_kind(op) == OpKind::Register;
            let gpr = register.then(|| gpr(inst.op_register(op))).flatten();
            gpr.is_some_and(|r| {
                let made = self.definitions(r.0.into(), insn, steps);
                made.into_iter().flatten().any(|at| {
                    let by = &self.graph.insns[at as usize].inst;
                    let constant = || by.try_immediate(1).is_ok_and(mixes);
                    by.mnemonic() == Mnemonic::Mov && constant()
                })
            })
        })
    }

    /// Loops around an instruction.
    fn depth(&self, insn: u32) -> u32 {
        let mut depth = 0;
        let mut at = self.loops.of_block[self.block[insn as usize] as usize];
        while let Some(l) = self.loops.all.get(at as usize) {
            depth += 1;
            at = l.parent;
        }
        depth
    }

    /// Collects the parts that make up an address.
    fn slice(&mut self, insn: u32) -> Slice {
        let mut slice = Slice::default();
        let mut steps = MAX_STEPS_PER_ADDRESS.min(self.budget);
        let before = steps;
        let mut nodes: Vec<Node> = Vec::new();
        let mut numbers: FastMap<(Option<u32>, u32), u32> = FastMap::default();
        let place = (self.facts.accesses[insn as usize].iter())
            .find(|a| a.read)
            .and_then(|a| match &a.form {
                Form::Plain(p) => Some(*p),
                _ => None,
            });
        let Some(place) = place else { return slice };
        let mut roots: Vec<(u32, Marks)> = Vec::new();
        let mut work: Vec<(u32, u32)> = Vec::new();
        let indexed = place.index.is_some() && place.base.is_some();
        for (register, is_index) in [(place.base, false), (place.index, true)] {
            let Some(r) = register.filter(|&r| r != RSP) else {
                continue;
            };
            let marks = if is_index && (indexed || place.scale > 1) {
                Marks::INDEX
            } else {
                Marks::default()
            };
            for node in self.reach(
                r.0.into(),
                insn,
                &mut nodes,
                &mut numbers,
                &mut work,
                &mut steps,
            ) {
                roots.push((node, marks));
            }
        }
        while let Some((node, var)) = work.pop() {
            if nodes.len() > MAX_NODES || steps == 0 {
                break;
            }
            self.expand(node, var, &mut nodes, &mut numbers, &mut work, &mut steps);
        }
        slice.known = nodes.len() <= MAX_NODES && steps > 0;
        self.budget = self.budget.saturating_sub(before - steps);
        summarise(&nodes, &roots, &mut slice);
        slice
    }

    /// The nodes of the values that a variable may hold before an instruction. New nodes are still
    /// to be expanded.
    fn reach(
        &self,
        var: u32,
        before: u32,
        nodes: &mut Vec<Node>,
        numbers: &mut FastMap<(Option<u32>, u32), u32>,
        work: &mut Vec<(u32, u32)>,
        steps: &mut usize,
    ) -> Vec<u32> {
        let mut found = Vec::new();
        for def in self.definitions(var, before, steps) {
            let number = *numbers.entry((def, var)).or_insert_with(|| {
                nodes.push(Node {
                    insn: def,
                    marks: Marks::default(),
                    load: false,
                    inputs: Vec::new(),
                });
                work.push((nodes.len() as u32 - 1, var));
                nodes.len() as u32 - 1
            });
            found.push(number);
        }
        found
    }

    /// Instructions that may define a variable's value before an instruction; `None` for the
    /// function's entry.
    fn definitions(&self, var: u32, before: u32, steps: &mut usize) -> Vec<Option<u32>> {
        let mut found = Vec::new();
        let (search, seen) = &mut *self.seen.borrow_mut();
        *search += 1;
        let mut work = vec![(self.block[before as usize], before)];
        while let Some((b, end)) = work.pop() {
            let start = self.graph.blocks[b as usize].insns.start;
            let mut at = end;
            let mut done = false;
            while at > start && !done {
                at -= 1;
                let Some(left) = steps.checked_sub(1) else {
                    return found;
                };
                *steps = left;
                done = self.defines(at, var);
            }
            if done {
                if !found.contains(&Some(at)) {
                    found.push(Some(at));
                }
                continue;
            }
            if b == 0 && !found.contains(&None) {
                found.push(None);
            }
            for p in &self.graph.blocks[b as usize].preds {
                if std::mem::replace(&mut seen[p.0 as usize], *search) != *search {
                    work.push((p.0, self.graph.blocks[p.0 as usize].insns.end));
                }
            }
        }
        found
    }

    /// True if an instruction gives a variable its value.
    fn defines(&self, insn: u32, var: u32) -> bool {
        let i = insn as usize;
        if var < 16 {
            let call = self.frame.steps[i].effect == Effect::Call;
            let changed = if call {
                CALLER_SAVED
            } else {
                self.facts.uses[i].clobber
            };
            return changed.contains(Gpr(var as u8));
        }
        if self.frame.steps[i].effect == Effect::None {
            return false;
        }
        let touches = self.frame.touches_of(i).iter();
        touches
            .filter(|t| t.write)
            .any(|t| t.variable() == Some(var as usize))
    }

    /// Finds the inputs of a node.
    fn expand(
        &self,
        node: u32,
        var: u32,
        nodes: &mut Vec<Node>,
        numbers: &mut FastMap<(Option<u32>, u32), u32>,
        work: &mut Vec<(u32, u32)>,
        steps: &mut usize,
    ) {
        let Some(insn) = nodes[node as usize].insn else {
            // At the entry, the arguments of recursive calls count, too.
            let passed = self.arguments.of_self_calls;
            if passed.iter().any(|r| u32::from(r.0) == var) {
                for &call in &self.self_calls {
                    let more = self.reach(var, call, nodes, numbers, work, steps);
                    nodes[node as usize].inputs.extend(more);
                }
            }
            return;
        };
        let i = insn as usize;
        let inst = &self.graph.insns[i].inst;
        let step = self.frame.steps[i];
        if step.effect == Effect::Call {
            if var == u32::from(RAX.0) {
                nodes[node as usize].marks = Marks::CALL;
                for r in self.arguments.of_accessors {
                    let more = self.reach(r.0.into(), insn, nodes, numbers, work, steps);
                    nodes[node as usize].inputs.extend(more);
                }
            }
            return;
        }
        let mut marks = marks_of(inst);
        if inst.mnemonic() == Mnemonic::Imul
            && inst.op_count() == 2
            && !self.is_mixed(inst, insn, steps)
        {
            marks = Marks::INDEX;
        }
        let mut variables: Vec<u32> = Vec::new();
        let mut address = Vec::new();
        if step.effect != Effect::None {
            for touch in self.frame.touches_of(i).iter().filter(|t| t.read) {
                // Cells behind pointers are loads, not variables.
                let own = touch.variable().filter(|&v| self.is_own(v));
                match own {
                    Some(v) => variables.push(v as u32),
                    None => nodes[node as usize].load = true,
                }
            }
            for touch in self.frame.touches_of(i) {
                address.extend(touch.base.into_iter().chain(touch.index));
            }
        }
        let zeroes = matches!(inst.mnemonic(), Mnemonic::Xor | Mnemonic::Sub)
            && inst.op_count() == 2
            && inst.op0_kind() == OpKind::Register
            && inst.op1_kind() == OpKind::Register
            && inst.op0_register() == inst.op1_register();
        if zeroes {
            return;
        }
        let frame_based = self.stack_of(insn).is_some();
        let is_move = matches!(
            inst.mnemonic(),
            Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsx | Mnemonic::Movsxd
        );
        for r in self.facts.uses[i].read.iter() {
            // Registers of an address are not part of the loaded value.
            let of_address = address.contains(&r) && (is_move || !reads_register(inst, r));
            if r == RSP || r == RBP && frame_based || of_address {
                continue;
            }
            variables.push(r.0.into());
        }
        if inst.mnemonic() == Mnemonic::Add && variables.len() > 1 {
            marks = marks.with(Marks::INDEX);
        }
        nodes[node as usize].marks = marks;
        for v in variables {
            let more = self.reach(v, insn, nodes, numbers, work, steps);
            nodes[node as usize].inputs.extend(more);
        }
    }

    /// True if a variable in memory is static or the function's own.
    fn is_own(&self, variable: usize) -> bool {
        let key = self.frame.key(variable);
        key.and_then(cell_group).is_none()
    }

    /// The frame pointer's offset in the block, if rbp is one.
    fn stack_of(&self, insn: u32) -> Option<i64> {
        self.frame.at_block[self.block[insn as usize] as usize].and_then(|s| s.rbp)
    }
}

/// True if a register is itself an operand, not only part of an address.
fn reads_register(inst: &iced_x86::Instruction, r: Gpr) -> bool {
    (0..inst.op_count())
        .any(|op| inst.op_kind(op) == OpKind::Register && gpr(inst.op_register(op)) == Some(r))
}

/// Operations that an instruction applies to its inputs.
fn marks_of(inst: &iced_x86::Instruction) -> Marks {
    let immediate = || {
        (0..inst.op_count())
            .rev()
            .find_map(|op| inst.try_immediate(op).ok())
    };
    match inst.mnemonic() {
        Mnemonic::Imul if inst.op_count() == 3 && immediate().is_some_and(|c| !mixes(c)) => {
            Marks::INDEX
        }
        Mnemonic::Imul
        | Mnemonic::Mul
        | Mnemonic::Mulx
        | Mnemonic::Div
        | Mnemonic::Idiv
        | Mnemonic::Xor
        | Mnemonic::Rol
        | Mnemonic::Ror
        | Mnemonic::Rorx
        | Mnemonic::Bswap
        | Mnemonic::Crc32 => Marks::MIX,
        Mnemonic::Shr | Mnemonic::Sar | Mnemonic::Shrx | Mnemonic::Sarx => {
            // Shifts by 31 or 63 extract signs.
            match (inst.op_count() > 1).then(immediate).flatten() {
                Some(31 | 63) => Marks::default(),
                Some(1) | None => Marks::HALF,
                Some(_) => Marks::INDEX,
            }
        }
        Mnemonic::Lea if inst.memory_index() != iced_x86::Register::None => Marks::INDEX,
        Mnemonic::Shl | Mnemonic::Shlx => Marks::INDEX,
        Mnemonic::And => match immediate() {
            // These masks align a value.
            Some(c) if (c as i64) < 0 && (c as i64) > -4096 => Marks::default(),
            _ => Marks::MASK,
        },
        m if is_select(m) => Marks::SELECT,
        _ => Marks::default(),
    }
}

/// True for conditional moves and sets, and for instructions that use the carry.
fn is_select(m: Mnemonic) -> bool {
    use Mnemonic::*;
    matches!(
        m,
        Cmova
            | Cmovae
            | Cmovb
            | Cmovbe
            | Cmove
            | Cmovg
            | Cmovge
            | Cmovl
            | Cmovle
            | Cmovne
            | Cmovno
            | Cmovnp
            | Cmovns
            | Cmovo
            | Cmovp
            | Cmovs
            | Seta
            | Setae
            | Setb
            | Setbe
            | Sete
            | Setg
            | Setge
            | Setl
            | Setle
            | Setne
            | Setno
            | Setnp
            | Setns
            | Seto
            | Setp
            | Sets
            | Sbb
            | Adc
    )
}

/// Collects loads and marks on all paths back from the roots.
fn summarise(nodes: &[Node], roots: &[(u32, Marks)], slice: &mut Slice) {
    let mut best: Vec<Option<Marks>> = vec![None; nodes.len()];
    let mut work: Vec<(u32, Marks)> = roots.to_vec();
    while let Some((node, marks)) = work.pop() {
        let of = &nodes[node as usize];
        let marks = marks.with(of.marks);
        let known = best[node as usize];
        if known.is_some_and(|k| k.with(marks) == k) {
            continue;
        }
        let marks = known.unwrap_or_default().with(marks);
        best[node as usize] = Some(marks);
        if let (true, Some(insn)) = (of.load, of.insn) {
            match slice.loads.iter_mut().find(|l| l.0 == insn) {
                Some(load) => load.1 = load.1.with(marks),
                None => slice.loads.push((insn, marks)),
            }
        }
        work.extend(of.inputs.iter().map(|&input| (input, marks)));
    }
    for (number, node) in nodes.iter().enumerate() {
        slice.marks = slice.marks.with(node.marks);
        if in_circle(nodes, number as u32) {
            slice.has_circle = true;
            slice.circle = slice.circle.with(node.marks);
            if node.marks.has(Marks::HALF) {
                slice.halved.extend(node.insn);
            }
        }
    }
    slice.loads.sort_unstable_by_key(|l| l.0);
}

/// True if a node depends on itself.
fn in_circle(nodes: &[Node], from: u32) -> bool {
    let mut seen = vec![false; nodes.len()];
    let mut work = nodes[from as usize].inputs.clone();
    while let Some(node) = work.pop() {
        if node == from {
            return true;
        }
        if !std::mem::replace(&mut seen[node as usize], true) {
            work.extend(&nodes[node as usize].inputs);
        }
    }
    false
}

/// True if the address of a load depends on the value of another, directly or through further
/// loads.
fn reaches(slices: &FastMap<u32, Slice>, from: u32, to: u32) -> bool {
    let mut seen: Vec<u32> = Vec::new();
    let loads = |load: u32| slices.get(&load).map_or(&[][..], |s| &s.loads);
    let mut work: Vec<u32> = loads(from).iter().map(|l| l.0).collect();
    while let Some(load) = work.pop() {
        if load == to {
            return true;
        }
        if seen.len() < 256 && !seen.contains(&load) {
            seen.push(load);
            work.extend(loads(load).iter().map(|l| l.0));
        }
    }
    false
}
