//! Data flow over registers and memory variables, and the class of each load.
//!
//! One forward pass in reverse postorder computes the values of variables, at each point only those
//! that addresses depend on ([`crate::analyze::demand`]). If paths with different values meet, the
//! variable becomes an atom of its own. At a loop's header, each variable that the loop changes
//! becomes a phi. Then the values from the back edges resolve each phi: itself (invariant), itself
//! plus something invariant (induction), or anything else.
//!
//! # Classes
//!
//! After the MemGaze report (section 4.2): **Constant** is a scalar in the frame or at a fixed
//! address (static, thread-local, or one that the global offset table holds). **Strided** is an
//! address affine in an induction variable of the innermost loop in which it varies, with the sum
//! of all steps per iteration as stride; the stride is unknown if a factor is a variable.
//! **Irregular** is the rest, including loads through a pointer that varies in no loop: the
//! report's Constant class has no pointers, and its Strided class needs a loop.
//!
//! Memory behind pointers is assumed to keep some values over stores and calls
//! ([`crate::analyze::reloads`]). No load is Constant by such an assumption.

use crate::analyze::class::Class;
use crate::analyze::demand::{DemandView, Needs};
use crate::analyze::params::MAX_CELLS;
use crate::analyze::reloads::{ARGUMENTS, Memory, Reloads};
use crate::analyze::stack_frame::{
    Effect, REGISTERS, Stack, StackFrame, THREAD_POINTER, cell_group, cell_key, is_frame,
    static_address,
};
use crate::analyze::straight_line;
use crate::analyze::value::{Atom, AtomKind, Val, Values};
use crate::ir::cfg::Cfg;
use crate::ir::loops::{LoopId, Loops, NO_LOOP};
use crate::program::Input;
use crate::util::bit_set::BitRow;
use crate::util::fast_hash::FastMap;
use crate::x86::effects::Facts;
use crate::x86::insn::Insn;
use crate::x86::operands::{
    AccessList, AccessSegment, Accesses, EffectiveAddress, Form, OperandAccess, is_repeated_string,
};
use crate::x86::regs::{CALLER_SAVED, Gpr, RAX, RBP, RDI, RDX, RSI, RSP, RegSet, RegUse, gpr};
use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};
use mgz_annotations_schema::sidecar::{CLASS_CONSTANT, CLASS_IRREGULAR, CLASS_STRIDED};

/// No value, or different values on the paths that meet.
const NO_VALUE: Val = Val::MAX;
/// No path has reached this point.
const NOT_YET: Val = Val::MAX - 1;

/// Values of all addresses, and the resolved phis.
pub struct Flow<'a> {
    pub(crate) values: Values,
    pub(crate) frame: StackFrame,
    /// Base and index of the addresses whose classes are requested, by number of the touch.
    addresses: Vec<[Val; 2]>,
    accesses: &'a AccessList,
    needs: Needs,
    /// Value of each variable that is needed at a block's start. (At a loop's header, the value on
    /// entry.)
    starts: Vec<Val>,
    /// First index in `latched` of the values of all variables at the end of a block with a back
    /// edge.
    latches: FastMap<u32, usize>,
    latched: Vec<Val>,
    pub(crate) resolved: FastMap<Atom, crate::analyze::induction::Phi>,
    /// True for each loop that calls something.
    pub(crate) calls: Vec<bool>,
    /// True if calls may change memory behind pointers.
    pub(crate) strict: bool,
    /// Loads and stores behind pointers.
    pub(crate) memory: Memory,
    /// Facts about loops whose cells are variables, see [`crate::analyze::reloads`].
    pub(crate) reloads: Reloads,
    /// The analysis without cells, which decides which loads are Constant.
    without_cells: Option<Box<Flow<'a>>>,
    pub(crate) loops: &'a Loops,
    input: &'a Input<'a>,
}

struct Walk<'f, 'a> {
    flow: &'f mut Flow<'a>,
    frame: &'f StackFrame,
    needs: &'f Needs,
    graph: &'f Cfg,
    uses: &'f [RegUse],
    /// Values of all variables. (The values of variables that are not needed are arbitrary.)
    state: Vec<Val>,
    /// The last requested instruction of the block, and the stack pointer there.
    stack: Option<(usize, Stack)>,
    block: u32,
    /// Variables in memory that calls may change.
    changed_by_calls: &'f BitRow,
    /// Variables that each loop changes.
    changed: &'f [BitRow],
    thread: Option<usize>,
}

impl<'a> Flow<'a> {
    /// Runs the pass. `stores`: also classifies stores.
    pub fn solve(
        input: &'a Input<'a>,
        graph: &Cfg,
        loops: &'a Loops,
        facts: &'a Facts,
        stores: bool,
    ) -> Flow<'a> {
        let Facts { uses, accesses, .. } = facts;
        if !accesses.iter().any(|a| a.asks(stores))
            || straight_line::are_all(input, graph, loops, uses, accesses, stores)
        {
            return Flow::new(input, loops, accesses);
        }
        Flow::solve_with(input, graph, loops, facts, stores, Needs::find)
    }

    /// Solves once, and again with cells behind pointers as variables if that helps.
    fn solve_with(
        input: &'a Input<'a>,
        graph: &Cfg,
        loops: &'a Loops,
        facts: &'a Facts,
        stores: bool,
        needs: fn(&DemandView) -> Needs,
    ) -> Flow<'a> {
        let frame = StackFrame::find(graph, loops, facts, stores);
        let mut flow = Flow::solve_in(input, graph, loops, facts, frame, Reloads::default(), needs);
        let Some(reloads) = flow.find_cells() else {
            return flow;
        };
        let solve = |reloads: Reloads| {
            let mut frame = flow.frame.clone();
            frame.add_cells(&reloads.touches);
            Flow::solve_in(input, graph, loops, facts, frame, reloads, needs)
        };
        let mut again = solve(reloads);
        // More loads are needed once cells are followed.
        if let Some(reloads) = again.reloads.with_more() {
            again = solve(reloads);
        }
        again.without_cells = Some(Box::new(flow));
        again
    }

    /// A flow without known addresses: all of them are Irregular unless their form is fixed.
    fn new(input: &'a Input<'a>, loops: &'a Loops, accesses: &'a AccessList) -> Flow<'a> {
        Flow {
            values: Values::default(),
            frame: StackFrame::default(),
            addresses: Vec::new(),
            accesses,
            needs: Needs::default(),
            starts: Vec::new(),
            latches: FastMap::default(),
            latched: Vec::new(),
            resolved: FastMap::default(),
            calls: vec![false; loops.all.len()],
            strict: false,
            memory: Memory::default(),
            reloads: Reloads::default(),
            without_cells: None,
            loops,
            input,
        }
    }

    fn solve_in(
        input: &'a Input<'a>,
        graph: &Cfg,
        loops: &'a Loops,
        facts: &'a Facts,
        mut frame: StackFrame,
        reloads: Reloads,
        needs: fn(&DemandView) -> Needs,
    ) -> Flow<'a> {
        let uses = &facts.uses;
        let mut flow = Flow::new(input, loops, &facts.accesses);
        if frame.variables().saturating_mul(graph.blocks.len()) > MAX_CELLS {
            frame.drop_variables();
        }
        let mut changed_by_calls = BitRow::new(frame.variables());
        (REGISTERS..frame.variables())
            .filter(|&v| call_changes(&frame, v))
            .for_each(|v| changed_by_calls.set(v));
        let mut changed = flow.changed_in_loops(graph, &frame, &changed_by_calls);
        for v in (REGISTERS..frame.variables()).filter(|_| !reloads.is_empty()) {
            if frame.key(v).and_then(cell_group).is_some() {
                let rows = changed.iter_mut().zip(&flow.calls);
                rows.filter(|row| *row.1).for_each(|row| row.0.set(v));
            }
        }
        for (l, key) in reloads.lost.keys() {
            frame
                .variable(*key)
                .into_iter()
                .for_each(|v| changed[*l as usize].set(v));
        }
        let thread = frame.variable(THREAD_POINTER);
        let needs = needs(&DemandView {
            input,
            graph,
            loops,
            uses,
            frame: &frame,
            thread,
            changed_by_calls: &changed_by_calls,
            has_cells: !reloads.is_empty(),
        });
        flow.reloads = reloads;
        flow.values = Values::with_room(needs.made.count());
        flow.addresses = vec![[NO_VALUE; 2]; frame.touches.len()];
        flow.starts = vec![NOT_YET; needs.total()];
        let state = vec![flow.values.atom(AtomKind::Frame); frame.variables()];
        let mut walk = Walk {
            flow: &mut flow,
            frame: &frame,
            needs: &needs,
            graph,
            uses,
            state,
            stack: None,
            block: 0,
            changed_by_calls: &changed_by_calls,
            changed: &changed,
            thread,
        };
        loops.order.iter().for_each(|&b| walk.block(b));
        (flow.frame, flow.needs) = (frame, needs);
        flow
    }

    /// Variables that each loop changes in a way that matters.
    fn changed_in_loops(
        &mut self,
        graph: &Cfg,
        frame: &StackFrame,
        changed_by_calls: &BitRow,
    ) -> Vec<BitRow> {
        let mut changed = vec![BitRow::new(frame.variables()); self.loops.all.len()];
        if changed.is_empty() {
            return changed;
        }
        for &b in &self.loops.order {
            let l = self.loops.of_block[b as usize];
            if l == NO_LOOP {
                continue;
            }
            let (row, makes) = (&mut changed[l as usize], &frame.makes[b as usize]);
            row.add_low(makes.registers.0);
            if makes.calls {
                self.calls[l as usize] = true;
                row.add(changed_by_calls);
            }
            if !makes.memory {
                continue;
            }
            let insns = &graph.blocks[b as usize].insns;
            for i in (insns.start as usize..insns.end as usize)
                .filter(|&i| frame.steps[i].effect != Effect::None)
            {
                for touch in frame
                    .touches_of(i)
                    .iter()
                    .filter(|t| t.write && t.has_key())
                {
                    frame.touched(touch, |v| row.set(v));
                }
            }
        }
        for l in 0..changed.len() {
            let parent = self.loops.all[l].parent;
            if parent != NO_LOOP {
                self.calls[parent as usize] |= self.calls[l];
                let (inner, outer) = changed.split_at_mut(parent as usize);
                outer[0].add(&inner[l]);
            }
        }
        changed
    }

    /// The value on entry to a loop, of a variable that its header needs.
    pub(crate) fn at_entry(&self, l: LoopId, var: usize) -> Val {
        let header = self.loops.all[l as usize].header as usize;
        self.starts[self.needs.place(header, var)]
    }

    /// The value on the back edge of a block, of a variable that the header needs.
    pub(crate) fn at_latch(&self, latch: u32, var: usize) -> Option<Val> {
        self.latches
            .get(&latch)
            .map(|&first| self.latched[first + var])
    }

    /// The class of access `n` of instruction `insn`, which is in `block`.
    pub fn classify(
        &mut self,
        block: usize,
        insn: usize,
        n: usize,
        access: &OperandAccess,
    ) -> Class {
        if let Some(flow) = &mut self.without_cells {
            let class = flow.classify(block, insn, n, access);
            if class.class == CLASS_CONSTANT {
                return class;
            }
        }
        let irregular = Class {
            class: CLASS_IRREGULAR,
            stride: None,
        };
        match &access.form {
            Form::Repeated { .. } => {
                return Class {
                    class: CLASS_STRIDED,
                    stride: Some(i64::from(access.size)),
                };
            }
            Form::Plain(p) if p.is_constant() => {
                return Class {
                    class: CLASS_CONSTANT,
                    stride: None,
                };
            }
            Form::Plain(_) | Form::Step { .. } => {}
            Form::Gather { .. } | Form::Bits { .. } | Form::Table | Form::Unknown => {
                return irregular;
            }
        }
        let Some(v) = self.value_of(block, insn, n, access) else {
            return irregular;
        };
        let innermost = self.loops.of_block[block];
        // Most addresses are one atom, and most atoms are not regular.
        let plain = self
            .values
            .as_atom(v)
            .is_some_and(|atom| match self.values.kind(atom) {
                AtomKind::Opaque { .. } => true,
                AtomKind::Load { .. } | AtomKind::Pure { .. } | AtomKind::Product { .. } => {
                    innermost == NO_LOOP
                }
                AtomKind::Entry(_) | AtomKind::Frame | AtomKind::Phi { .. } => false,
            });
        if plain {
            return irregular;
        }
        let v = self.normal(v);
        if self.is_fixed(v) {
            // A cell's content may be fixed only by assumption.
            let class = if self.without_cells.is_some() {
                CLASS_IRREGULAR
            } else {
                CLASS_CONSTANT
            };
            return Class {
                class,
                stride: None,
            };
        }
        self.stride_class(v, innermost).unwrap_or(irregular)
    }

    /// The value of an address without its constant part, which does not affect the class.
    pub(crate) fn value_of(
        &mut self,
        block: usize,
        insn: usize,
        n: usize,
        access: &OperandAccess,
    ) -> Option<Val> {
        // Unreachable code has no recorded values.
        let touch = self
            .frame
            .steps
            .get(insn)
            .filter(|step| step.effect != Effect::None)
            .map(|step| step.of_access(n));
        let [base, index] = touch
            .and_then(|t| self.addresses.get(t))
            .copied()
            .unwrap_or([NO_VALUE; 2]);
        match (base, index, &access.form) {
            (NO_VALUE, NO_VALUE, _) => None,
            (_, NO_VALUE, _) => Some(base),
            (NO_VALUE, _, Form::Plain(p)) => {
                let scale = i64::from(p.scale);
                Some(self.values.times(block as u32, index, scale))
            }
            (_, _, Form::Plain(p)) => {
                let scale = i64::from(p.scale);
                Some(self.values.plus(block as u32, base, index, scale))
            }
            _ => None,
        }
    }

    /// True if a variable's value at the function's entry is static and not fixed, so that calls
    /// might change it.
    pub(crate) fn is_shared(&self, var: u32) -> bool {
        self.frame.key(var as usize).is_some_and(|key| {
            !is_frame(key)
                && key != THREAD_POINTER
                && !static_address(key).is_some_and(|a| self.input.is_got(a))
        })
    }

    /// True for a frame offset, a static address, or an address from a table of fixed addresses,
    /// plus a constant.
    fn is_fixed(&self, v: Val) -> bool {
        match self.values.sum(v).terms() {
            [] => true,
            [(atom, 1)] => match self.values.kind(*atom) {
                AtomKind::Frame => true,
                AtomKind::Entry(var) => {
                    let key = self.frame.key(*var as usize);
                    key.is_some_and(|key| {
                        key == THREAD_POINTER
                            || static_address(key).is_some_and(|a| self.input.is_got(a))
                    })
                }
                _ => false,
            },
            _ => false,
        }
    }
}

/// Registers whose values a call loses.
pub fn lost_in_call(insn: &Insn, input: &Input) -> RegSet {
    // A compiler that knows the callee may keep values in registers that the callee does not
    // change. Otherwise, these registers are written before they are read. rax and rdx may be
    // results.
    let known = insn.flow == FlowControl::Call
        && !crate::x86::flow::direct_target(&insn.inst).is_none_or(|t| input.is_plt(t));
    if known {
        RegSet::EMPTY.with(RAX).with(RDX)
    } else {
        CALLER_SAVED
    }
}

/// True if a call may change the variable. Static variables and cells are assumed to stay, see
/// [`crate::analyze::reloads`].
fn call_changes(frame: &StackFrame, v: usize) -> bool {
    frame.key(v).is_some_and(is_frame) && frame.is_escaped(v)
}

impl Walk<'_, '_> {
    /// Processes a block.
    fn block(&mut self, b: u32) {
        self.block = b;
        self.enter();
        self.stack = None;
        let (insns, needs) = (&self.graph.blocks[b as usize].insns, self.needs);
        for i in needs.marks.within(insns.start as usize..insns.end as usize) {
            self.ask(i);
            // A second load from the same address has the same value. The value gets its number at
            // the first load.
            if needs.made.get(i) || needs.loads[b as usize] {
                self.instruction(i);
            }
        }
        self.leave();
    }

    /// Sets the values of variables that are needed at the block's start.
    fn enter(&mut self) {
        let b = self.block as usize;
        let mut at = self.needs.of_block(b);
        if at.is_empty() {
            return;
        }
        let Flow {
            loops,
            values,
            starts,
            reloads,
            ..
        } = &mut *self.flow;
        let here = loops.position[b];
        let l = loops.of_block[b];
        let header = (l != NO_LOOP)
            .then(|| &loops.all[l as usize])
            .filter(|l| l.header == self.block);
        let is_entry = b == 0;
        // Paths from outside, or paths back that form no loop.
        let lost = self.graph.roots[b] && !is_entry
            || self.graph.blocks[b].preds.iter().any(|p| {
                let there = loops.position[p.0 as usize];
                there >= here
                    && there != u32::MAX
                    && !header.is_some_and(|l| l.latches.contains(&p.0))
            });
        self.needs.variables.each(b, |v| {
            let Some(value) = at.next().map(|at| &mut starts[at]) else {
                return;
            };
            let unknown = lost || *value == NOT_YET;
            if is_entry && unknown {
                *value = values.atom(AtomKind::Entry(v as u32));
            } else if unknown || is_entry {
                *value = values.opaque(self.block);
            }
            self.state[v] = *value;
        });
        if header.is_some() {
            let changed = &self.changed[l as usize];
            let frame = self.frame;
            self.needs.variables.each(b, |v| {
                if changed.get(v) {
                    // Each iteration may refer to another cell.
                    let lost = frame.key(v).is_some_and(|key| reloads.is_lost(l, key));
                    self.state[v] = if lost {
                        values.opaque(self.block)
                    } else {
                        values.atom(AtomKind::Phi {
                            of: l,
                            var: v as u32,
                        })
                    };
                }
            });
        }
    }

    /// Passes the values on to the blocks that may follow.
    fn leave(&mut self) {
        let Flow {
            loops,
            values,
            starts,
            latches,
            latched,
            ..
        } = &mut *self.flow;
        let here = loops.position[self.block as usize];
        let mut goes_back = false;
        for s in &self.graph.blocks[self.block as usize].succs {
            let mut at = self.needs.of_block(s.0 as usize);
            if at.is_empty() {
                continue;
            }
            if loops.position[s.0 as usize] <= here {
                goes_back = true;
                continue;
            }
            self.needs.variables.each(s.0 as usize, |v| {
                let Some(value) = at.next().map(|at| &mut starts[at]) else {
                    return;
                };
                let here = self.state[v];
                *value = match *value {
                    NOT_YET => here,
                    before if before == here => here,
                    before => values.meeting(loops.meeting_place(s.0), [before, here]),
                };
            });
        }
        if goes_back {
            latches.insert(self.block, latched.len());
            latched.extend_from_slice(&self.state);
        }
    }

    /// Position of the stack pointer at an instruction of the block.
    fn stack(&mut self, at: usize) -> Stack {
        let (from, mut stack) = self.stack.unwrap_or_else(|| {
            let start = self.graph.blocks[self.block as usize].insns.start as usize;
            (
                start,
                self.frame.at_block[self.block as usize].unwrap_or(Stack::ENTRY),
            )
        });
        for i in self.frame.moves.within(from..at) {
            stack.advance(&self.graph.insns[i], &self.uses[i]);
        }
        self.stack = Some((at, stack));
        stack
    }

    fn frame_value(&mut self, offset: i64) -> Val {
        // The frame is atom 0.
        let base = self.flow.values.of_atom(0);
        self.flow.values.offset(base, offset)
    }

    fn read(&mut self, i: usize, r: Gpr) -> Val {
        let offset = if r == RSP || r == RBP {
            self.stack(i).offset(r)
        } else {
            None
        };
        match offset {
            Some(offset) => self.frame_value(offset),
            None => self.state[usize::from(r.0)],
        }
    }

    /// Stores the values of an instruction's address registers.
    fn ask(&mut self, i: usize) {
        let step = self.frame.steps[i];
        for (touch, t) in self
            .frame
            .touches_of(i)
            .iter()
            .zip(step.first()..)
            .filter(|(touch, _)| touch.asked)
        {
            self.flow.addresses[t] = match self.flow.accesses[i]
                .get(t - step.of_access(0))
                .map(|a| &a.form)
            {
                Some(Form::Plain(place)) if touch.thread => [self.address(i, place), NO_VALUE],
                _ => [touch.base, touch.index].map(|r| r.map_or(NO_VALUE, |r| self.read(i, r))),
            };
        }
    }

    fn address(&mut self, i: usize, place: &EffectiveAddress) -> Val {
        let mut v = match place.base {
            Some(base) => {
                let base = self.read(i, base);
                self.flow.values.offset(base, place.disp)
            }
            None => self.flow.values.constant(place.disp),
        };
        if let Some(index) = place.index {
            let index = self.read(i, index);
            v = self
                .flow
                .values
                .plus(self.block, v, index, i64::from(place.scale));
        }
        if place.segment == AccessSegment::Fs {
            let thread = match self.thread {
                Some(var) => self.state[var],
                None => self.flow.values.of_atom(0),
            };
            v = self.flow.values.plus(self.block, v, thread, 1);
        }
        v
    }

    /// Content of the memory that an instruction reads.
    fn load(&mut self, i: usize) -> Option<Val> {
        let step = self.frame.steps[i];
        let (access, t) = self.flow.accesses[i]
            .iter()
            .zip(step.of_access(0)..)
            .find(|(a, _)| a.read)?;
        let Form::Plain(place) = &access.form else {
            return None;
        };
        let touch = &self.frame.touches[t];
        match touch.variable() {
            Some(var) => {
                self.note_object(i, place, var);
                Some(self.state[var])
            }
            None => {
                let address = self.address(i, place);
                let l = self.flow.loops.of_block[self.block as usize];
                if l != NO_LOOP {
                    self.flow.memory.load(t, l, address);
                    self.note_cell(t, address);
                }
                let Flow { values, .. } = &mut *self.flow;
                // In a loop, all loads of the address have the same value.
                Some(values.load(
                    self.block,
                    if l == NO_LOOP { self.block } else { !l },
                    address,
                ))
            }
        }
    }

    /// Stores which object a cell belongs to.
    fn note_object(&mut self, i: usize, place: &EffectiveAddress, var: usize) {
        if !self.flow.reloads.is_empty()
            && let Some(group) = self.frame.key(var).and_then(cell_group)
        {
            let address = self.address(i, place);
            let object = self.object(address);
            self.flow.reloads.objects.insert(object, group);
        }
    }

    /// Notes that a load reads a cell after all.
    fn note_cell(&mut self, t: usize, address: Val) {
        if self.flow.reloads.is_empty() {
            return;
        }
        let object = self.object(address);
        if let Some(&group) = self.flow.reloads.objects.get(&object)
            && let Some(key) = cell_key(group as usize, self.flow.values.sum(address).constant)
            && self.frame.variable(key).is_some()
        {
            self.flow.reloads.more.push((t as u32, key));
        }
    }

    fn store(&mut self, i: usize, access: &OperandAccess, t: usize, value: Option<Val>) {
        let Form::Plain(place) = &access.form else {
            return;
        };
        if self.frame.touches[t].has_key() {
            if let Some(var) = self.frame.touches[t].variable() {
                self.note_object(i, place, var);
            }
            return self.store_variable(t, value);
        }
        let l = self.flow.loops.of_block[self.block as usize];
        if l == NO_LOOP {
            return;
        }
        let address = self.address(i, place);
        let Flow {
            memory,
            values,
            loops,
            ..
        } = &mut *self.flow;
        memory.store(t, l, address, access.size, values, loops);
    }

    fn store_variable(&mut self, t: usize, value: Option<Val>) {
        let touch = &self.frame.touches[t];
        self.frame.touched(touch, |v| {
            self.state[v] = match value {
                Some(value) if touch.variable() == Some(v) => {
                    // Others may store there, too, so the loaded value is fixed only by assumption.
                    let shared =
                        !self.frame.key(v).is_some_and(is_frame) || self.frame.is_escaped(v);
                    if shared && self.flow.is_fixed(value) {
                        self.flow.values.atom(AtomKind::Pure {
                            block: self.block,
                            inputs: [value; 2],
                        })
                    } else {
                        value
                    }
                }
                _ => self.flow.values.opaque(self.block),
            };
        });
    }

    fn opaque(&mut self) -> Val {
        self.flow.values.opaque(self.block)
    }

    /// Value of an operand.
    fn operand(&mut self, i: usize, inst: &Instruction, op: u32) -> Option<Val> {
        match inst.op_kind(op) {
            OpKind::Register => {
                let register = inst.op_register(op);
                if matches!(
                    register,
                    Register::AH | Register::BH | Register::CH | Register::DH
                ) {
                    return None;
                }
                gpr(register).map(|r| self.read(i, r))
            }
            OpKind::Memory => self.load(i),
            _ => inst
                .try_immediate(op)
                .ok()
                .map(|c| self.flow.values.constant(c as i64)),
        }
    }

    fn instruction(&mut self, i: usize) {
        let (insn, u) = (&self.graph.insns[i], &self.uses[i]);
        let inst = &insn.inst;
        let list = &self.flow.accesses[i];
        let step = self.frame.steps[i];
        match step.effect {
            Effect::Call => return self.call(insn),
            Effect::String => return self.string(inst, list, u),
            Effect::None | Effect::Accesses | Effect::Push | Effect::Pop => {}
        }
        let result = self.result(i, inst, u);
        // Stores come last, since operands are read before.
        if step.effect == Effect::Push {
            let value = self.operand(i, inst, 0);
            self.store_variable(step.first(), value);
        } else {
            for (access, t) in list
                .iter()
                .zip(step.of_access(0)..)
                .filter(|(a, _)| a.write)
            {
                let value = if inst.op0_kind() == OpKind::Memory {
                    result
                } else {
                    None
                };
                self.store(i, access, t, value);
            }
        }
        let target = if inst.op0_kind() == OpKind::Register && inst.op_count() > 0 {
            gpr(inst.op0_register())
        } else {
            None
        };
        let whole = inst.op0_register().is_gpr32() || inst.op0_register().is_gpr64();
        for r in u.clobber.iter() {
            let new = match result {
                Some(v) if target == Some(r) && whole => v,
                Some(v)
                    if matches!(inst.mnemonic(), Mnemonic::Cdqe | Mnemonic::Cwde) && r == RAX =>
                {
                    v
                }
                Some(v) if matches!(inst.mnemonic(), Mnemonic::Cdq | Mnemonic::Cqo) && r == RDX => {
                    v
                }
                _ => self.opaque(),
            };
            self.state[usize::from(r.0)] = new;
        }
    }

    fn call(&mut self, insn: &Insn) {
        if !self.flow.reloads.is_empty() {
            self.pass_objects();
        }
        for r in lost_in_call(insn, self.flow.input).iter() {
            self.state[usize::from(r.0)] = self.opaque();
        }
        self.changed_by_calls
            .each(|v| self.state[v] = self.flow.values.opaque(self.block));
    }

    /// A call may change all cells of the objects passed to it.
    fn pass_objects(&mut self) {
        for r in ARGUMENTS.iter() {
            let value = self.state[usize::from(r.0)];
            let object = self.object(value);
            let Some(&group) = self.flow.reloads.objects.get(&object) else {
                continue;
            };
            for v in REGISTERS..self.frame.variables() {
                if self.frame.key(v).and_then(cell_group) == Some(group) {
                    self.state[v] = self.opaque();
                }
            }
        }
    }

    /// An address without displacement.
    fn object(&mut self, address: Val) -> Val {
        let displacement = self.flow.values.sum(address).constant;
        self.flow
            .values
            .offset(address, displacement.wrapping_neg())
    }

    fn string(&mut self, inst: &Instruction, list: &Accesses, u: &RegUse) {
        // There are two pointers at most.
        let before = [RSI, RDI].map(|r| self.state[usize::from(r.0)]);
        for r in u.clobber.iter() {
            self.state[usize::from(r.0)] = self.opaque();
        }
        if !is_repeated_string(inst) {
            for access in list.iter() {
                if let Form::Step { pointer } = access.form {
                    let size = self.flow.values.constant(i64::from(access.size));
                    let old = before[usize::from(pointer == RDI)];
                    self.state[usize::from(pointer.0)] =
                        self.flow.values.plus(self.block, old, size, 1);
                }
            }
        }
    }

    /// The new value of operand 0 (of rax or rdx for the sign extensions), if it is tracked.
    fn result(&mut self, i: usize, inst: &Instruction, u: &RegUse) -> Option<Val> {
        let b = self.block;
        let count = inst.op_count();
        match inst.mnemonic() {
            Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsx | Mnemonic::Movsxd => {
                self.operand(i, inst, 1)
            }
            Mnemonic::Cdqe | Mnemonic::Cwde => Some(self.read(i, RAX)),
            Mnemonic::Lea => crate::x86::operands::place_of(inst).map(|p| self.address(i, &p)),
            Mnemonic::Pop => {
                let frame = self.frame;
                let var = frame.touches[frame.steps[i].first()].variable()?;
                Some(self.state[var])
            }
            Mnemonic::Xor | Mnemonic::Sub
                if count == 2
                    && inst.op0_kind() == OpKind::Register
                    && inst.op1_kind() == OpKind::Register
                    && inst.op0_register() == inst.op1_register() =>
            {
                Some(self.flow.values.constant(0))
            }
            Mnemonic::Add | Mnemonic::Sub if count == 2 => {
                let (x, y) = (self.operand(i, inst, 0)?, self.operand(i, inst, 1)?);
                let sign = if inst.mnemonic() == Mnemonic::Add {
                    1
                } else {
                    -1
                };
                Some(self.flow.values.plus(b, x, y, sign))
            }
            Mnemonic::Inc | Mnemonic::Dec => {
                let x = self.operand(i, inst, 0)?;
                let one = self.flow.values.constant(1);
                Some(self.flow.values.plus(
                    b,
                    x,
                    one,
                    if inst.mnemonic() == Mnemonic::Inc {
                        1
                    } else {
                        -1
                    },
                ))
            }
            Mnemonic::Neg => {
                let x = self.operand(i, inst, 0)?;
                Some(self.flow.values.times(b, x, -1))
            }
            Mnemonic::Not => {
                let x = self.operand(i, inst, 0)?;
                let c = self.flow.values.constant(-1);
                Some(self.flow.values.plus(b, c, x, -1))
            }
            Mnemonic::Shl | Mnemonic::Sal if inst.op1_kind() != OpKind::Register => {
                let x = self.operand(i, inst, 0)?;
                let shift = inst.try_immediate(1).ok()? & 63;
                Some(
                    self.flow
                        .values
                        .times(b, x, 1i64.wrapping_shl(shift as u32)),
                )
            }
            Mnemonic::Imul if count == 3 => {
                let x = self.operand(i, inst, 1)?;
                let c = inst.try_immediate(2).ok()? as i64;
                Some(self.flow.values.times(b, x, c))
            }
            Mnemonic::Imul if count == 2 => {
                let (x, y) = (self.operand(i, inst, 0)?, self.operand(i, inst, 1)?);
                Some(self.flow.values.product(b, x, y))
            }
            Mnemonic::Cdq | Mnemonic::Cqo => {
                let x = self.read(i, RAX);
                Some(self.flow.values.atom(AtomKind::Pure {
                    block: b,
                    inputs: [x, x],
                }))
            }
            Mnemonic::And
            | Mnemonic::Or
            | Mnemonic::Xor
            | Mnemonic::Shr
            | Mnemonic::Sar
            | Mnemonic::Shl
            | Mnemonic::Sal
            | Mnemonic::Rol
            | Mnemonic::Ror
                if count == 2 =>
            {
                let inputs = [self.operand(i, inst, 0)?, self.operand(i, inst, 1)?];
                Some(self.flow.values.atom(AtomKind::Pure { block: b, inputs }))
            }
            _ => self.pure(i, inst, u),
        }
    }

    /// The result of any other instruction that makes one register from at most two.
    fn pure(&mut self, i: usize, inst: &Instruction, u: &RegUse) -> Option<Val> {
        use Mnemonic::{
            Andn, Bextr, Bswap, Bzhi, Lzcnt, Pdep, Pext, Popcnt, Rorx, Sarx, Shlx, Shrx, Tzcnt,
        };
        let suits = matches!(
            inst.mnemonic(),
            Andn | Bextr
                | Bswap
                | Bzhi
                | Lzcnt
                | Pdep
                | Pext
                | Popcnt
                | Rorx
                | Sarx
                | Shlx
                | Shrx
                | Tzcnt
        );
        if !suits || u.clobber.contains(RSP) || u.clobber.contains(RBP) {
            return None;
        }
        let last = inst.op_count() - 1;
        let inputs = [
            self.operand(i, inst, last.min(1))?,
            self.operand(i, inst, last)?,
        ];
        Some(self.flow.values.atom(AtomKind::Pure {
            block: self.block,
            inputs,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::cfg::Entries;
    use crate::x86::decode::decode_function;
    use iced_x86::InstructionInfoFactory;

    /// Pseudo-random numbers.
    struct Draw(u64);

    impl Draw {
        fn below(&mut self, n: usize) -> usize {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % n
        }

        fn register(&mut self) -> usize {
            [0, 1, 2, 3, 5, 6, 7, 8, 12, 13][self.below(10)]
        }

        fn small(&mut self) -> u8 {
            [0, 4, 8, 12, 16, 0xf8][self.below(6)]
        }

        /// An opcode with a register and a memory operand: in the frame, static, or based on one or
        /// two registers.
        fn memory(&mut self, opcode: &[u8], register: usize) -> Vec<u8> {
            let rex = |base: usize, index: usize| {
                0x48 | (register as u8 >> 3) << 2 | (index as u8 >> 3) << 1 | base as u8 >> 3
            };
            let modrm = |mode: u8, rm: usize| mode << 6 | (register as u8 & 7) << 3 | rm as u8 & 7;
            let (base, index) = (self.register(), self.register());
            match self.below(5) {
                0 => [&[rex(4, 0)], opcode, &[modrm(1, 4), 0x24, self.small()]].concat(),
                1 => [&[rex(5, 0)], opcode, &[modrm(1, 5), self.small()]].concat(),
                2 => [
                    &[rex(0, 0)],
                    opcode,
                    &[modrm(0, 4), 0x25, self.small(), 0x30, 0, 0],
                ]
                .concat(),
                3 => [
                    &[rex(base, index)],
                    opcode,
                    &[
                        modrm(1, 4),
                        (self.below(4) as u8) << 6 | (index as u8 & 7) << 3 | base as u8 & 7,
                        self.small(),
                    ],
                ]
                .concat(),
                _ => [
                    &[rex(base, 4)],
                    opcode,
                    &[modrm(1, 4), 0x20 | base as u8 & 7, self.small()],
                ]
                .concat(),
            }
        }

        fn two(&mut self, opcode: &[u8]) -> Vec<u8> {
            let (r, m) = (self.register() as u8, self.register() as u8);
            [
                &[0x48 | (r >> 3) << 2 | m >> 3],
                opcode,
                &[0xc0 | (r & 7) << 3 | m & 7],
            ]
            .concat()
        }

        fn one(&mut self, opcode: u8, extension: u8, constant: Option<u8>) -> Vec<u8> {
            let m = self.register() as u8;
            [0x48 | m >> 3, opcode, 0xc0 | extension << 3 | m & 7]
                .into_iter()
                .chain(constant)
                .collect()
        }

        fn instruction(&mut self) -> Vec<u8> {
            let r = self.register();
            let constant = Some(self.small());
            let (two, three, four) = (self.below(2), self.below(3), self.below(4));
            match self.below(36) {
                0..=4 => self.memory(&[0x8b], r),
                5..=7 => self.memory(&[0x89], r),
                8 | 9 => self.memory(&[0x8d], r),
                10 => self.memory(&[0x01], r),
                11 => self.memory(&[0x03], r),
                12 => self.memory(&[0x0f, 0xb6], r),
                13 => self.memory(&[0x3b], r),
                14 => self.memory(&[0xff], 6),
                15 => self.memory(&[0x8f], 0),
                16 | 17 => self.two(&[0x89]),
                18 => self.two(&[0x01]),
                19 => self.two(&[0x29]),
                20 => self.two(&[0x31]),
                21 => self.two(&[0x0f, 0xaf]),
                22 | 23 => self.one(0x83, 0, constant),
                24 => self.one(0x83, [1, 4, 5][three], Some([0, 0xff, 7, 0xff][four])),
                25 => self.one(0xc1, 4, Some([3, 9, 10, 60][four])),
                26 => self.one(0xf7, [2, 3][two], None),
                27 => vec![0x50 | self.below(8) as u8],
                28 => vec![0x58 | [0, 1, 2, 3, 5, 6, 7][self.below(7)]],
                29 => [vec![0xe8, 0, 0x10, 0, 0], vec![0xff, 0xd0]][two].clone(),
                30 => [
                    vec![0xa4],
                    vec![0x48, 0xad],
                    vec![0xf3, 0xa4],
                    vec![0x48, 0x98],
                ][four]
                    .clone(),
                31 => vec![0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0],
                32 => vec![0x64, 0x8b, 0x41, 8],
                33 => [self.two(&[0x6b]), vec![[1, 40, 0x7f, 0xff][four]]].concat(),
                34 => [self.memory(&[0xc7], 0), vec![self.small(), 0, 0, 0]].concat(),
                _ => vec![0x48, 0x89, 0xe5],
            }
        }

        /// Random instructions, some of which jump to others.
        fn function(&mut self) -> Vec<u8> {
            let n = 4 + self.below(60);
            let jumps = self.below(8);
            let mut parts: Vec<(Vec<u8>, Option<usize>)> =
                (0..n).map(|_| (self.instruction(), None)).collect();
            for _ in 0..jumps {
                let jump = if self.below(4) == 0 {
                    vec![0xe9]
                } else {
                    vec![0x0f, 0x85]
                };
                let (at, to) = (self.below(n), self.below(n));
                parts[at] = (jump, Some(to));
            }
            parts.push((vec![0xc3], None));
            let starts: Vec<usize> = parts
                .iter()
                .scan(0, |sum, p| {
                    Some(std::mem::replace(
                        sum,
                        *sum + p.0.len() + if p.1.is_some() { 4 } else { 0 },
                    ))
                })
                .collect();
            let mut bytes = Vec::new();
            for (part, to) in parts {
                bytes.extend(part);
                if let Some(to) = to {
                    bytes.extend((starts[to] as i32 - bytes.len() as i32 - 4).to_le_bytes());
                }
            }
            bytes
        }
    }

    struct Code {
        graph: Cfg,
        loops: Loops,
        facts: Facts,
    }

    impl Code {
        fn of(bytes: &[u8]) -> Code {
            let graph = Cfg::build(
                decode_function(bytes, 0x1000, &[]).unwrap(),
                &(0x1000..0x1000 + bytes.len() as u64),
                &Entries::default(),
                &[],
            );
            let facts = Facts::of(
                &graph.insns,
                0x1000,
                false,
                &mut InstructionInfoFactory::new(),
            );
            Code {
                loops: Loops::find(&graph),
                graph,
                facts,
            }
        }

        fn input() -> Input<'static> {
            Input {
                got: vec![0x3004..0x3010],
                ..Input::default()
            }
        }

        /// Number of instructions that the pass visits, and the class of each access.
        fn classes(&self, stores: bool, needs: fn(&DemandView) -> Needs) -> (usize, Vec<Class>) {
            let input = Code::input();
            self.classes_of(
                Flow::solve_with(&input, &self.graph, &self.loops, &self.facts, stores, needs),
                stores,
            )
        }

        fn classes_of(&self, mut flow: Flow, stores: bool) -> (usize, Vec<Class>) {
            let mut classes = Vec::new();
            for (b, block) in self.graph.blocks.iter().enumerate() {
                for i in block.insns.start as usize..block.insns.end as usize {
                    let asked = self.facts.accesses[i]
                        .iter()
                        .enumerate()
                        .filter(|(_, a)| a.read || stores);
                    classes.extend(asked.map(|(n, a)| flow.classify(b, i, n, a)));
                }
            }
            (flow.needs.marks.count(), classes)
        }
    }

    #[test]
    fn what_is_not_needed_changes_no_class() {
        let mut draw = Draw(7);
        let mut seen = [0; 5];
        for _ in 0..6000 {
            let bytes = draw.function();
            let code = Code::of(&bytes);
            for stores in [false, true] {
                let (_, classes) = code.classes(stores, Needs::find);
                assert_eq!(classes, code.classes(stores, Needs::all).1, "{bytes:02x?}");
                let input = Code::input();
                let flow = Flow::solve(&input, &code.graph, &code.loops, &code.facts, stores);
                seen[4] += usize::from(
                    flow.addresses.is_empty() && code.facts.accesses.iter().any(|a| a.asks(stores)),
                );
                assert_eq!(classes, code.classes_of(flow, stores).1, "{bytes:02x?}");
                for class in classes {
                    seen[usize::from(class.class)] += 1;
                    seen[3] += usize::from(class.stride.is_some());
                }
            }
        }
        assert!(seen.iter().all(|&n| n > 500), "{seen:?}");
    }

    #[test]
    fn what_would_take_too_many_turns_is_all_needed() {
        // A loop that loads through the first of n pointers on the stack, and moves each pointer to
        // the slot before it.
        for (n, all) in [(10, false), (100, true)] {
            let mut bytes = vec![0x48, 0x8b, 0x0c, 0x24, 0x48, 0x8b, 0x11];
            for k in 0..n {
                let place = |k: i32| (8 * k).to_le_bytes();
                bytes.extend(
                    [
                        &[0x48, 0x8b, 0x84, 0x24][..],
                        &place(k + 1),
                        &[0x48, 0x89, 0x84, 0x24],
                        &place(k),
                    ]
                    .concat(),
                );
            }
            bytes.extend([0x0f, 0x85]);
            bytes.extend((-(bytes.len() as i32) - 4).to_le_bytes());
            bytes.push(0xc3);
            let code = Code::of(&bytes);
            let (marked, classes) = code.classes(false, Needs::find);
            assert_eq!(
                (marked == code.graph.insns.len(), classes),
                (all, code.classes(false, Needs::all).1)
            );
        }
    }
}
