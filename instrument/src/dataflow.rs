//! Data flow over registers and memory variables, and the class of each load.
//!
//! One forward pass in reverse postorder gives every variable a value at every point. Where paths with different values meet,
//! the variable becomes an atom of its own; at a loop's header, what the loop changes becomes a phi. Then each phi is resolved by what
//! the back edges bring: itself (invariant), itself plus something invariant (induction), or anything else.
//!
//! # Classes
//!
//! After the report: **Constant** is a scalar in the frame or at a fixed address (static, thread-local, or one that the global offset table
//! holds). **Strided** is an address affine in an induction variable of the innermost loop in which it varies, with the sum of all steps per
//! iteration as stride; the stride is not known if a factor is a variable. **Irregular** is the rest, loads through a pointer that varies in no
//! loop included: the report's Constant class has no pointers, and its Strided class needs a loop.

use crate::cfg::Graph;
use crate::frame::{Frame, Stack, THREAD_POINTER, is_frame, static_address};
use crate::functions::Input;
use crate::hash::FastMap;
use crate::ir::{Gpr, Insn, RegSet};
use crate::loops::{LoopId, Loops, NO_LOOP};
use crate::operands::{Access, AccessList, Accesses, Form, Place, Segment, is_repeated_string};
use crate::plan::Class;
use crate::regs::{CALLER_SAVED, RAX, RBP, RDX, RSP, RegUse, gpr};
use crate::values::{Atom, Kind, Val, Values};
use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};
use mgz_annotations_schema::sidecar::{CLASS_CONSTANT, CLASS_IRREGULAR, CLASS_STRIDED};

/// Variables × blocks beyond which memory is not followed.
const MAX_CELLS: usize = 1 << 23;
const NO_VALUE: Val = Val::MAX;

/// Values of all addresses, and what phis turned out to be.
pub struct Flow<'a> {
    pub(crate) values: Values,
    pub(crate) frame: Frame,
    /// Per instruction: addresses of its accesses.
    addresses: Vec<[Val; 2]>,
    /// Per loop: values with which its header is entered.
    pub(crate) at_entry: Vec<Option<Vec<Val>>>,
    /// Values that back edges bring, by block.
    pub(crate) at_latch: FastMap<u32, Vec<Val>>,
    pub(crate) resolved: FastMap<Atom, crate::induction::Phi>,
    /// Per loop: it calls something.
    pub(crate) calls: Vec<bool>,
    /// Addresses stored to, per loop.
    pub(crate) stores: FastMap<(LoopId, Val), ()>,
    pub(crate) loops: &'a Loops,
    input: &'a Input<'a>,
}

struct Walk<'f, 'a> {
    flow: &'f mut Flow<'a>,
    state: Vec<Val>,
    stack: Stack,
    block: u32,
    accesses: &'f AccessList,
    /// Variables in memory that calls may change.
    changed_by_calls: &'f [usize],
}

impl<'a> Flow<'a> {
    /// Runs the pass.
    pub fn solve(input: &'a Input<'a>, graph: &Graph, loops: &'a Loops, uses: &[RegUse], accesses: &AccessList) -> Flow<'a> {
        let mut frame = Frame::find(graph, &loops.order, uses, accesses);
        if (frame.keys.len() + 16).saturating_mul(graph.blocks.len()) > MAX_CELLS {
            frame.drop_variables();
        }
        let mut flow = Flow {
            values: Values::with_room(graph.insns.len()),
            frame,
            addresses: vec![[NO_VALUE; 2]; graph.insns.len()],
            at_entry: vec![None; loops.all.len()],
            at_latch: FastMap::default(),
            resolved: FastMap::default(),
            calls: vec![false; loops.all.len()],
            stores: FastMap::default(),
            loops,
            input,
        };
        let changed = flow.changed_in_loops(graph, uses, accesses);
        flow.values.atom(Kind::Frame);
        flow.walk(graph, uses, accesses, &changed);
        flow
    }

    fn variables(&self) -> usize {
        16 + self.frame.keys.len()
    }

    /// Per loop, a bit per variable that it changes.
    fn changed_in_loops(&mut self, graph: &Graph, uses: &[RegUse], accesses: &AccessList) -> Vec<Vec<u64>> {
        let words = self.variables().div_ceil(64);
        let mut changed = vec![vec![0u64; words]; self.loops.all.len()];
        for &b in &self.loops.order {
            let l = self.loops.of_block[b as usize];
            let Some(mut stack) = self.frame.at_block[b as usize].filter(|_| l != NO_LOOP) else { continue };
            let bits = &mut changed[l as usize];
            let mut set = |v: usize| bits[v / 64] |= 1 << (v % 64);
            let range = graph.blocks[b as usize].insns.clone();
            for i in range.start as usize..range.end as usize {
                let insn = &graph.insns[i];
                uses[i].clobber.iter().for_each(|r| set(usize::from(r.0)));
                if is_call(insn) {
                    self.calls[l as usize] = true;
                    CALLER_SAVED.iter().for_each(|r| set(usize::from(r.0)));
                    (0..self.frame.keys.len()).filter(|&v| call_changes(&self.frame, self.input, v)).for_each(|v| set(16 + v));
                }
                for access in accesses[i].iter().filter(|a| a.write) {
                    if let Some(key) = key_of(&stack, access) {
                        self.frame.touched(key, access.size).for_each(|v| set(16 + v));
                    }
                }
                if insn.inst.mnemonic() == Mnemonic::Push {
                    self.frame.touched(stack.rsp - 8, 8).for_each(|v| set(16 + v));
                }
                stack.advance(insn, &uses[i]);
            }
        }
        for l in 0..changed.len() {
            let parent = self.loops.all[l].parent;
            if parent != NO_LOOP {
                self.calls[parent as usize] |= self.calls[l];
                let (inner, outer) = changed.split_at_mut(parent as usize);
                outer[0].iter_mut().zip(&inner[l]).for_each(|(o, i)| *o |= i);
            }
        }
        changed
    }

    fn walk(&mut self, graph: &Graph, uses: &[RegUse], accesses: &AccessList, changed: &[Vec<u64>]) {
        let mut out: Vec<Option<Vec<Val>>> = vec![None; graph.blocks.len()];
        let mut waiting: Vec<u32> = graph.blocks.iter().map(|b| b.succs.len() as u32).collect();
        let loops = self.loops;
        let changed_by_calls: Vec<usize> = (0..self.frame.keys.len()).filter(|&v| call_changes(&self.frame, self.input, v)).map(|v| 16 + v).collect();
        // Memory of values that are not needed any more.
        let mut spare: Vec<Vec<Val>> = Vec::new();
        let mut is_latch = vec![false; graph.blocks.len()];
        loops.all.iter().flat_map(|l| &l.latches).for_each(|&b| is_latch[b as usize] = true);
        for &b in &loops.order {
            let l = loops.of_block[b as usize];
            let header_of = (l != NO_LOOP && loops.all[l as usize].header == b).then_some(l);
            // A predecessor's values are dropped after their last use, latches excepted.
            let mut last = |p: u32| {
                let left = &mut waiting[p as usize];
                *left = left.saturating_sub(1);
                *left == 0 && !is_latch[p as usize]
            };
            let state = self.enter(graph, b, header_of, &mut out, changed, &mut spare, &mut last);
            let stack = self.frame.at_block[b as usize].unwrap_or(Stack::ENTRY);
            let mut walk = Walk { flow: self, state, stack, block: b, accesses, changed_by_calls: &changed_by_calls };
            let range = graph.blocks[b as usize].insns.clone();
            for i in range.start as usize..range.end as usize {
                walk.instruction(i, &graph.insns[i], &uses[i]);
                walk.stack.advance(&graph.insns[i], &uses[i]);
            }
            let state = walk.state;
            if graph.blocks[b as usize].succs.is_empty() {
                spare.push(state);
            } else {
                out[b as usize] = Some(state);
            }
        }
        for &latch in loops.all.iter().flat_map(|l| &l.latches) {
            if let Some(state) = out[latch as usize].take() {
                self.at_latch.insert(latch, state);
            }
        }
    }

    /// Values at a block's start. `last` is told of each use of a predecessor's values, and says whether it was the last.
    #[allow(clippy::too_many_arguments, reason = "one caller; the parts of its state")]
    fn enter(
        &mut self,
        graph: &Graph,
        b: u32,
        header_of: Option<LoopId>,
        out: &mut [Option<Vec<Val>>],
        changed: &[Vec<u64>],
        spare: &mut Vec<Vec<Val>>,
        last: &mut dyn FnMut(u32) -> bool,
    ) -> Vec<Val> {
        let n = self.variables();
        let latches = header_of.map_or(&[][..], |l| &self.loops.all[l as usize].latches[..]);
        let is_entry = b == 0;
        let mut state: Vec<Val> = Vec::new();
        let (mut first, mut met) = (true, false);
        let mut lost = graph.roots[b as usize] && !is_entry;
        for p in &graph.blocks[b as usize].preds {
            let done = last(p.0);
            let from = &mut out[p.0 as usize];
            if !latches.contains(&p.0) && self.loops.position[p.0 as usize] != u32::MAX {
                match from {
                    None => lost = true,
                    Some(from) if first => {
                        state = match done {
                            true => std::mem::take(from),
                            false => {
                                let mut copy = spare.pop().unwrap_or_default();
                                copy.clone_from(from);
                                copy
                            }
                        };
                        first = false;
                    }
                    Some(from) => {
                        met = true;
                        for (mine, &theirs) in state.iter_mut().zip(&*from) {
                            *mine = if *mine == theirs { theirs } else { NO_VALUE };
                        }
                    }
                }
            }
            if done {
                spare.extend(from.take().filter(|left| left.capacity() != 0));
            }
        }
        if first || lost {
            state = vec![NO_VALUE; n];
        }
        // What a single block leaves has values.
        if first || lost || met || is_entry {
            for (v, mine) in state.iter_mut().enumerate() {
                if is_entry && (first || lost) {
                    *mine = self.values.atom(Kind::Entry(v as u32));
                } else if *mine == NO_VALUE || is_entry {
                    *mine = self.values.opaque(b);
                }
            }
        }
        if let Some(l) = header_of {
            self.at_entry[l as usize] = Some(state.clone());
            for (v, mine) in state.iter_mut().enumerate() {
                if changed[l as usize][v / 64] >> (v % 64) & 1 == 1 {
                    *mine = self.values.atom(Kind::Phi { of: l, var: v as u32 });
                }
            }
        }
        state
    }

    /// The class of access `n` of instruction `insn`, which is in `block`.
    pub fn classify(&mut self, block: usize, insn: usize, n: usize, access: &Access) -> Class {
        let irregular = Class { class: CLASS_IRREGULAR, stride: None };
        match &access.form {
            Form::Repeated { .. } => return Class { class: CLASS_STRIDED, stride: Some(i64::from(access.size)) },
            Form::Plain(p) if p.base.is_none() && p.index.is_none() && p.segment != Segment::Gs => {
                return Class { class: CLASS_CONSTANT, stride: None };
            }
            Form::Plain(p) if p.base == Some(RSP) && p.index.is_none() => return Class { class: CLASS_CONSTANT, stride: None },
            Form::Plain(_) | Form::Step { .. } => {}
            _ => return irregular,
        }
        let v = self.addresses[insn].get(n).copied().unwrap_or(NO_VALUE);
        if v == NO_VALUE {
            return irregular;
        }
        let v = self.normal(v);
        if self.is_fixed(v) {
            return Class { class: CLASS_CONSTANT, stride: None };
        }
        self.stride_class(v, self.loops.of_block[block]).unwrap_or(irregular)
    }

    /// Frame offset, static address, or one that a table of fixed addresses holds, plus a constant.
    fn is_fixed(&self, v: Val) -> bool {
        match self.values.sum(v).terms() {
            [] => true,
            [(atom, 1)] => match self.values.kind(*atom) {
                Kind::Frame => true,
                Kind::Entry(var) if *var >= 16 => {
                    let key = self.frame.keys[*var as usize - 16];
                    key == THREAD_POINTER || static_address(key).is_some_and(|a| self.input.is_got(a))
                }
                _ => false,
            },
            _ => false,
        }
    }
}

fn is_call(insn: &Insn) -> bool {
    matches!(insn.flow, FlowControl::Call | FlowControl::IndirectCall)
}

fn key_of(stack: &Stack, access: &Access) -> Option<i64> {
    match &access.form {
        Form::Plain(place) => stack.key(place),
        _ => None,
    }
}

/// Whether a call may change the variable.
fn call_changes(frame: &Frame, input: &Input, v: usize) -> bool {
    let key = frame.keys[v];
    if is_frame(key) {
        return frame.escaped[v];
    }
    key != THREAD_POINTER && !static_address(key).is_some_and(|a| input.is_got(a))
}

impl Walk<'_, '_> {
    fn frame_value(&mut self, offset: i64) -> Val {
        // The frame is atom 0.
        let base = self.flow.values.of_atom(0);
        self.flow.values.offset(base, offset)
    }

    fn read(&mut self, r: Gpr) -> Val {
        match self.stack.offset(r) {
            Some(offset) => self.frame_value(offset),
            None => self.state[usize::from(r.0)],
        }
    }

    fn address(&mut self, place: &Place) -> Val {
        let mut v = match place.base {
            Some(base) => {
                let base = self.read(base);
                self.flow.values.offset(base, place.disp)
            }
            None => self.flow.values.constant(place.disp),
        };
        if let Some(index) = place.index {
            let index = self.read(index);
            v = self.flow.values.plus(self.block, v, index, i64::from(place.scale));
        }
        if place.segment == Segment::Fs {
            let thread = match self.flow.frame.variable(THREAD_POINTER) {
                Some(var) => self.state[16 + var],
                None => self.flow.values.of_atom(0),
            };
            v = self.flow.values.plus(self.block, v, thread, 1);
        }
        v
    }

    /// Content of the memory that an access reads, whose address is known already.
    fn load(&mut self, access: &Access, address: Val) -> Option<Val> {
        let Form::Plain(place) = &access.form else { return None };
        if let Some(var) = self.stack.key(place).and_then(|k| self.flow.frame.variable(k)) {
            return Some(self.state[16 + var]);
        }
        Some(self.flow.values.load(self.block, address))
    }

    fn store(&mut self, access: &Access, value: Option<Val>) {
        let Form::Plain(place) = &access.form else { return };
        match self.stack.key(place) {
            Some(key) => self.store_variable(key, access.size, value),
            None => {
                let address = self.address(place);
                let mut l = self.flow.loops.of_block[self.block as usize];
                while l != NO_LOOP {
                    self.flow.stores.insert((l, address), ());
                    l = self.flow.loops.all[l as usize].parent;
                }
            }
        }
    }

    fn store_variable(&mut self, key: i64, size: u32, value: Option<Val>) {
        let Flow { values, frame, .. } = &mut *self.flow;
        for v in frame.touched(key, size) {
            self.state[16 + v] = match value {
                Some(value) if frame.keys[v] == key => value,
                _ => values.opaque(self.block),
            };
        }
    }

    fn opaque(&mut self) -> Val {
        self.flow.values.opaque(self.block)
    }

    /// Value of an operand.
    fn operand(&mut self, i: usize, inst: &Instruction, op: u32) -> Option<Val> {
        match inst.op_kind(op) {
            OpKind::Register => {
                let register = inst.op_register(op);
                if matches!(register, Register::AH | Register::BH | Register::CH | Register::DH) {
                    return None;
                }
                gpr(register).map(|r| self.read(r))
            }
            OpKind::Memory => {
                let accesses = self.accesses;
                let (n, access) = accesses[i].iter().enumerate().find(|(_, a)| a.read)?;
                self.load(access, self.flow.addresses[i][n.min(1)])
            }
            _ => inst.try_immediate(op).ok().map(|c| self.flow.values.constant(c as i64)),
        }
    }

    fn instruction(&mut self, i: usize, insn: &Insn, u: &RegUse) {
        let inst = &insn.inst;
        let accesses = self.accesses;
        let list = &accesses[i];
        // Comparisons and branches leave everything as it is.
        if u.clobber == RegSet::EMPTY && list.is_empty() && !is_call(insn) {
            return;
        }
        for (n, access) in list.iter().enumerate() {
            self.flow.addresses[i][n.min(1)] = match &access.form {
                Form::Plain(place) => self.address(place),
                Form::Step { pointer } => self.read(*pointer),
                _ => NO_VALUE,
            };
        }
        if is_call(insn) {
            return self.call(inst);
        }
        if inst.is_string_instruction() {
            return self.string(inst, list, u);
        }
        let result = self.result(i, inst, u);
        // Stores come last: operands are read before.
        match inst.mnemonic() {
            Mnemonic::Push => {
                let key = self.stack.rsp - 8;
                let value = self.operand(i, inst, 0);
                self.store_variable(key, 8, value);
            }
            _ => {
                for access in list.iter().filter(|a| a.write) {
                    let value = if inst.op0_kind() == OpKind::Memory { result } else { None };
                    self.store(access, value);
                }
            }
        }
        let target = if inst.op0_kind() == OpKind::Register && inst.op_count() > 0 { gpr(inst.op0_register()) } else { None };
        let whole = inst.op0_register().is_gpr32() || inst.op0_register().is_gpr64();
        for r in u.clobber.iter() {
            let new = match result {
                Some(v) if target == Some(r) && whole => v,
                Some(v) if matches!(inst.mnemonic(), Mnemonic::Cdqe | Mnemonic::Cwde) && r == RAX => v,
                Some(v) if matches!(inst.mnemonic(), Mnemonic::Cdq | Mnemonic::Cqo) && r == RDX => v,
                _ => self.opaque(),
            };
            self.state[usize::from(r.0)] = new;
        }
    }

    fn call(&mut self, inst: &Instruction) {
        // A compiler that knows the callee may keep values in registers that it leaves alone; if it does not, nobody reads them
        // before they are written. rax and rdx may be results.
        let known = inst.flow_control() == FlowControl::Call && !crate::disasm::direct_target(inst).is_none_or(|t| self.flow.input.is_plt(t));
        let lost = if known { RegSet::EMPTY.with(RAX).with(RDX) } else { CALLER_SAVED };
        for r in lost.iter() {
            self.state[usize::from(r.0)] = self.opaque();
        }
        for &v in self.changed_by_calls {
            self.state[v] = self.opaque();
        }
    }

    fn string(&mut self, inst: &Instruction, list: &Accesses, u: &RegUse) {
        let before = self.state.clone();
        for r in u.clobber.iter() {
            self.state[usize::from(r.0)] = self.opaque();
        }
        if !is_repeated_string(inst) {
            for access in list.iter() {
                if let Form::Step { pointer } = access.form {
                    let size = self.flow.values.constant(i64::from(access.size));
                    let old = before[usize::from(pointer.0)];
                    self.state[usize::from(pointer.0)] = self.flow.values.plus(self.block, old, size, 1);
                }
            }
        }
    }

    /// The new value of operand 0 (of rax or rdx for the sign extensions), if it is followed.
    fn result(&mut self, i: usize, inst: &Instruction, u: &RegUse) -> Option<Val> {
        let b = self.block;
        let count = inst.op_count();
        match inst.mnemonic() {
            Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsx | Mnemonic::Movsxd => self.operand(i, inst, 1),
            Mnemonic::Cdqe | Mnemonic::Cwde => Some(self.read(RAX)),
            Mnemonic::Lea => crate::operands::place_of(inst).map(|p| self.address(&p)),
            Mnemonic::Pop => {
                let var = self.flow.frame.variable(self.stack.rsp)?;
                Some(self.state[16 + var])
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
                let sign = if inst.mnemonic() == Mnemonic::Add { 1 } else { -1 };
                Some(self.flow.values.plus(b, x, y, sign))
            }
            Mnemonic::Inc | Mnemonic::Dec => {
                let x = self.operand(i, inst, 0)?;
                let one = self.flow.values.constant(1);
                Some(self.flow.values.plus(b, x, one, if inst.mnemonic() == Mnemonic::Inc { 1 } else { -1 }))
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
                Some(self.flow.values.times(b, x, 1i64.wrapping_shl(shift as u32)))
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
                let x = self.read(RAX);
                Some(self.flow.values.atom(Kind::Pure { block: b, inputs: [x, x] }))
            }
            Mnemonic::And | Mnemonic::Or | Mnemonic::Xor | Mnemonic::Shr | Mnemonic::Sar | Mnemonic::Shl | Mnemonic::Sal | Mnemonic::Rol | Mnemonic::Ror
                if count == 2 =>
            {
                let inputs = [self.operand(i, inst, 0)?, self.operand(i, inst, 1)?];
                Some(self.flow.values.atom(Kind::Pure { block: b, inputs }))
            }
            _ => self.pure(i, inst, u),
        }
    }

    /// Any instruction that makes one register of at most two.
    fn pure(&mut self, i: usize, inst: &Instruction, u: &RegUse) -> Option<Val> {
        use Mnemonic::{Andn, Bextr, Bswap, Bzhi, Lzcnt, Pdep, Pext, Popcnt, Rorx, Sarx, Shlx, Shrx, Tzcnt};
        let suits = matches!(
            inst.mnemonic(),
            Andn | Bextr | Bswap | Bzhi | Lzcnt | Pdep | Pext | Popcnt | Rorx | Sarx | Shlx | Shrx | Tzcnt
        );
        if !suits || u.clobber.contains(RSP) || u.clobber.contains(RBP) {
            return None;
        }
        let last = inst.op_count() - 1;
        let inputs = [self.operand(i, inst, last.min(1))?, self.operand(i, inst, last)?];
        Some(self.flow.values.atom(Kind::Pure { block: self.block, inputs }))
    }
}
