//! Positions of the stack pointer and the frame pointer, and memory that forms separate variables.
//!
//! This is used for classes only, never for safety. Offsets count from the stack pointer at the
//! function's entry. An aligned stack pointer, or one moved by an unknown amount, starts a new
//! region far away, so that slots of both regions have different keys.

use crate::ir::cfg::Cfg;
use crate::ir::loops::Loops;
use crate::util::bit_set::Bits;
use crate::x86::effects::Facts;
use crate::x86::insn::Insn;
use crate::x86::operands::{
    AccessList, AccessSegment, Accesses, EffectiveAddress, Form, OperandAccess,
};
use crate::x86::regs::{CALLER_SAVED, Gpr, RBP, RSP, RegSet, RegUse, gpr64};
use iced_x86::{Code, FlowControl, Mnemonic, OpKind, Register};

/// Offset of rsp and, where it is a frame pointer, of rbp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stack {
    /// rsp minus rsp at entry.
    pub rsp: i64,
    /// rbp minus rsp at entry.
    pub rbp: Option<i64>,
}

/// Keys of static addresses start here.
const STATIC: i64 = 1 << 60;
/// Keys of fs-relative ones.
const THREAD: i64 = 1 << 61;
/// Keys of cells behind pointers.
const CELL: i64 = 1 << 62;
/// Bits of their displacements.
const CELL_SHIFT: u32 = 36;
/// Distances of new regions.
const ALIGNED_DISTANCE: i64 = 1 << 32;
const MOVED_DISTANCE: i64 = 1 << 40;

/// Number of variables that are registers; those in memory have higher numbers.
pub const REGISTERS: usize = 16;

/// Both pointers.
const STACK: RegSet = RegSet(1 << RSP.0 | 1 << RBP.0);

/// Key of fs:0, which holds the thread pointer.
pub const THREAD_POINTER: i64 = THREAD;

/// The static address that a key stands for.
pub fn static_address(key: i64) -> Option<u64> {
    (STATIC..THREAD)
        .contains(&key)
        .then(|| (key - STATIC) as u64)
}

/// The key of a static address.
pub fn static_key(address: i64) -> i64 {
    STATIC.wrapping_add(address & (STATIC - 1))
}

/// The key of a cell behind the pointer with number `group`, see [`crate::analyze::reloads`].
pub fn cell_key(group: usize, displacement: i64) -> Option<i64> {
    let groups = (1 << (62 - CELL_SHIFT)) - 1;
    let fits = group < groups && displacement.unsigned_abs() < 1 << (CELL_SHIFT - 2);
    fits.then(|| CELL + ((group as i64) << CELL_SHIFT) + (1 << (CELL_SHIFT - 1)) + displacement)
}

/// The number of the pointer of a cell.
pub fn cell_group(key: i64) -> Option<i64> {
    (key >= CELL).then_some((key - CELL) >> CELL_SHIFT)
}

/// True if a key belongs to the frame.
pub fn is_frame(key: i64) -> bool {
    key < STATIC / 2
}

impl Stack {
    /// The state at the function's entry.
    pub const ENTRY: Stack = Stack { rsp: 0, rbp: None };

    /// Key of a memory operand: its offset in the frame, or its address; `None` if it is neither.
    pub fn key(&self, place: &EffectiveAddress) -> Option<i64> {
        if place.index.is_some() || place.addr32 {
            return None;
        }
        match (place.segment, place.base) {
            (AccessSegment::Flat, None) => Some(static_key(place.disp)),
            (AccessSegment::Fs, None) => Some(THREAD.wrapping_add(place.disp)),
            (AccessSegment::Flat, Some(RSP)) => Some(self.rsp.wrapping_add(place.disp)),
            (AccessSegment::Flat, Some(RBP)) => self.rbp.map(|rbp| rbp.wrapping_add(place.disp)),
            _ => None,
        }
    }

    /// Passes the touches of an instruction to `tell`; they have no places yet.
    fn touches(&self, effect: Effect, list: &Accesses, stores: bool, mut tell: impl FnMut(Touch)) {
        match effect {
            Effect::Push => tell(Touch {
                key: self.rsp.wrapping_sub(8),
                at: 0,
                ..Touch::top(false, true)
            }),
            Effect::Pop => tell(Touch {
                key: self.rsp,
                at: 0,
                ..Touch::top(true, false)
            }),
            _ => {}
        }
        for access in list.iter() {
            let touch = Touch::of(access, stores);
            let key = if let Form::Plain(place) = &access.form {
                self.key(place)
            } else {
                None
            };
            tell(key.map_or(touch, |key| Touch {
                key,
                at: 0,
                ..touch
            }));
        }
    }

    /// Key of the variable in the frame whose address an instruction takes.
    #[inline]
    pub fn taken(&self, insn: &Insn) -> Option<i64> {
        let takes = matches!(
            insn.inst.code(),
            Code::Lea_r16_m | Code::Lea_r32_m | Code::Lea_r64_m
        );
        if !takes || !gpr64(insn.inst.memory_base()).is_some_and(|base| STACK.contains(base)) {
            return None;
        }
        crate::x86::operands::place_of(&insn.inst).and_then(|place| self.key(&place))
    }

    /// Offset in a register.
    pub fn offset(&self, r: Gpr) -> Option<i64> {
        match r {
            RSP => Some(self.rsp),
            RBP => self.rbp,
            _ => None,
        }
    }

    /// The state after the instruction.
    #[inline]
    pub fn advance(&mut self, insn: &Insn, u: &RegUse) {
        if u.clobber.contains(RSP) || u.clobber.contains(RBP) {
            self.step(insn, u);
        }
    }

    /// The state after an instruction that writes one of both registers.
    fn step(&mut self, insn: &Insn, u: &RegUse) {
        let inst = &insn.inst;
        let target = if inst.op0_kind() == OpKind::Register {
            gpr64(inst.op0_register())
        } else {
            None
        };
        let before = *self;
        let immediate = |sign: i64| {
            inst.try_immediate(1)
                .ok()
                .map(|c| (c as i64).wrapping_mul(sign))
        };
        match inst.mnemonic() {
            _ if matches!(
                inst.flow_control(),
                FlowControl::Call | FlowControl::IndirectCall
            ) =>
            {
                return;
            }
            Mnemonic::Leave => {
                self.rsp = self.rbp.map_or(self.rsp - MOVED_DISTANCE, |b| b + 8);
                self.rbp = None;
                return;
            }
            Mnemonic::Push | Mnemonic::Pop | Mnemonic::Pushfq | Mnemonic::Popfq
                if target != Some(RSP) =>
            {
                self.rsp = self
                    .rsp
                    .wrapping_add(i64::from(inst.stack_pointer_increment()));
            }
            _ if u.clobber.contains(RSP) && target == Some(RSP) => {
                let known = match inst.mnemonic() {
                    Mnemonic::Add => immediate(1).map(|c| before.rsp.wrapping_add(c)),
                    Mnemonic::Sub => immediate(-1).map(|c| before.rsp.wrapping_add(c)),
                    Mnemonic::And => Some(before.rsp.wrapping_sub(ALIGNED_DISTANCE)),
                    _ => before.source(insn),
                };
                self.rsp = known.unwrap_or(before.rsp.wrapping_sub(MOVED_DISTANCE));
            }
            _ => {}
        }
        if u.clobber.contains(RBP) {
            self.rbp = if target == Some(RBP) {
                before.source(insn)
            } else {
                None
            };
        }
    }

    /// Offset of what `mov r, r` or `lea r, [r+c]` computes.
    fn source(&self, insn: &Insn) -> Option<i64> {
        let inst = &insn.inst;
        match inst.mnemonic() {
            Mnemonic::Mov if inst.op1_kind() == OpKind::Register => {
                self.offset(gpr64(inst.op1_register())?)
            }
            Mnemonic::Lea if inst.memory_index() == Register::None => {
                let base = self.offset(gpr64(inst.memory_base())?)?;
                Some(base.wrapping_add(inst.memory_displacement64() as i64))
            }
            _ => None,
        }
    }
}

/// Effect of an instruction besides its changes of registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    #[default]
    None,
    /// It accesses memory.
    Accesses,
    /// `push`; it may read memory as well.
    Push,
    /// `pop`; it may write memory as well.
    Pop,
    /// A call or a system call; it may read memory as well.
    Call,
    /// A string instruction.
    String,
}

/// See [`StackFrame::steps`].
#[derive(Clone, Copy, Debug, Default)]
pub struct InsnEffect {
    /// Effect of the instruction.
    pub effect: Effect,
    /// Number of its [`Touch`]es: the stack's top (`push` and `pop` only), then one per access.
    count: u8,
    /// Registers that it may change.
    pub clobber: RegSet,
    /// Number of its first touch.
    first: u32,
}

impl InsnEffect {
    /// Number of its first touch.
    pub fn first(self) -> usize {
        self.first as usize
    }

    /// Number of the touch of the access with number `n`.
    pub fn of_access(self, n: usize) -> usize {
        self.first as usize + usize::from(matches!(self.effect, Effect::Push | Effect::Pop)) + n
    }
}

/// An access as data flow sees it, or the effect of `push` or `pop` on the top of the stack.
#[derive(Clone, Copy, Debug)]
pub struct Touch {
    /// Its key, if it has one.
    key: i64,
    /// Number of variables with lower keys; [`Touch::NO_PLACE`] if there is no key.
    at: u32,
    /// Bytes.
    size: u32,
    /// The address's base, or the pointer of a string instruction.
    pub base: Option<Gpr>,
    /// Its index.
    pub index: Option<Gpr>,
    /// True if the address includes the thread pointer.
    pub thread: bool,
    /// True if the address has the form [`Form::Plain`].
    pub plain: bool,
    /// True if it reads.
    pub read: bool,
    /// True if it writes.
    pub write: bool,
    /// True if the address's class is requested.
    pub asked: bool,
    /// True if the address's class is requested, or it determines the loaded value.
    pub address: bool,
    /// True if all of it is one variable, which has the key.
    variable: bool,
    /// True if it may overlap other variables, or only a part of one.
    shared: bool,
}

impl Touch {
    const NO_PLACE: u32 = u32::MAX;

    /// A touch of the top of the stack.
    fn top(read: bool, write: bool) -> Touch {
        let at = Touch::NO_PLACE;
        Touch {
            key: 0,
            at,
            size: 8,
            base: None,
            index: None,
            thread: false,
            plain: false,
            read,
            write,
            asked: false,
            address: false,
            variable: false,
            shared: false,
        }
    }

    /// The touch of an access. `stores`: the classes of stores are requested too.
    fn of(access: &OperandAccess, stores: bool) -> Touch {
        let (plain, base, index, thread) = match &access.form {
            Form::Plain(p) => (true, p.base, p.index, p.segment == AccessSegment::Fs),
            Form::Step { pointer } => (false, Some(*pointer), None, false),
            _ => (false, None, None, false),
        };
        let (
            OperandAccess {
                read, write, size, ..
            },
            asked,
        ) = (*access, access.asks(stores));
        Touch {
            size,
            base,
            index,
            thread,
            plain,
            asked,
            address: asked,
            ..Touch::top(read, write)
        }
    }

    /// Registers in the address, without the stack pointer.
    pub fn registers(&self) -> RegSet {
        self.base
            .into_iter()
            .chain(self.index)
            .fold(RegSet::EMPTY, RegSet::with)
            .without(RSP)
    }

    /// True if the touch has a key: in the frame, static, or thread-local.
    pub fn has_key(&self) -> bool {
        self.at != Touch::NO_PLACE
    }

    /// True if the touch forms a variable. Other touches only overlap variables.
    fn makes_variable(&self) -> bool {
        self.plain && self.size <= 8
    }

    /// Number of the variable that it accesses.
    pub fn variable(&self) -> Option<usize> {
        self.variable.then_some(REGISTERS + self.at as usize)
    }

    /// Finds its place among the variables.
    fn place(&mut self, at: usize, keys: &[i64], sizes: &[u8]) {
        self.at = at as u32;
        self.variable = keys.get(at) == Some(&self.key);
        let before = at > 0 && keys[at - 1].saturating_add(8) > self.key;
        let behind = keys
            .get(at + usize::from(self.variable))
            .is_some_and(|&k| k < self.end());
        self.shared =
            before || behind || self.variable && (sizes[at] == 0 || self.end() <= self.key);
        self.find_address();
    }

    /// If a load reads no variable, its address determines the loaded value.
    fn find_address(&mut self) {
        self.address |= self.read && self.makes_variable() && !self.variable;
    }

    fn end(&self) -> i64 {
        self.key.saturating_add(i64::from(self.size.max(1)))
    }
}

/// Changes made by a block, and its requests for addresses.
#[derive(Clone, Copy, Debug, Default)]
pub struct Makes {
    /// Registers that it may change.
    pub registers: RegSet,
    /// True if it may change some variable in memory.
    pub memory: bool,
    /// True if it calls something.
    pub calls: bool,
    /// True if it has an address whose value is needed: for a class, for a loaded value, or for a
    /// store that hits no variable.
    pub asks: bool,
}

impl Makes {
    /// Adds an instruction's effect, without its touches.
    fn add(&mut self, effect: Effect) {
        if effect == Effect::Call {
            self.registers.0 |= CALLER_SAVED.0;
            (self.memory, self.calls) = (true, true);
        }
    }

    fn add_touch(&mut self, touch: &Touch) {
        self.memory |= touch.write && touch.has_key();
        self.asks |= touch.address || touch.write && !touch.has_key();
    }
}

/// Stack state at block starts, and the variables in memory.
#[derive(Clone, Debug, Default)]
pub struct StackFrame {
    /// Per block; `None` if unreachable.
    pub at_block: Vec<Option<Stack>>,
    /// Sorted keys of the memory variables.
    keys: Vec<i64>,
    /// Per key: the widest access, bytes.
    sizes: Vec<u8>,
    /// Per key of the frame: true if its address is taken, so that calls and unknown stores may
    /// change it.
    escaped: Vec<bool>,
    /// Effect of each instruction on memory.
    pub steps: Vec<InsnEffect>,
    /// Changes and requests of each block.
    pub makes: Vec<Makes>,
    /// Instructions that write the stack pointer or the frame pointer.
    pub moves: Bits,
    /// Touches of all instructions.
    pub touches: Vec<Touch>,
}

impl StackFrame {
    /// Follows the stack pointer and lists the variables. `stores`: the classes of stores are
    /// requested too.
    pub fn find(graph: &Cfg, loops: &Loops, facts: &Facts, stores: bool) -> StackFrame {
        let n = graph.insns.len();
        let Facts { uses, accesses, .. } = facts;
        let blocks = graph.blocks.len();
        let mut frame = StackFrame {
            at_block: vec![None; blocks],
            steps: vec![InsnEffect::default(); n],
            makes: vec![Makes::default(); blocks],
            moves: Bits::new(n),
            ..StackFrame::default()
        };
        frame.touches.reserve(n / 2);
        let mut taken: Vec<i64> = Vec::new();
        // Keys, and the touches that have them.
        let mut keyed: Vec<(i64, u32)> = Vec::with_capacity(n / 4);
        // Blocks that were visited with a stack state that did not hold later.
        let mut stale: Vec<u32> = Vec::new();
        for &b in &loops.order {
            let mut stack = *frame.at_block[b as usize].get_or_insert(Stack::ENTRY);
            let mut makes = Makes::default();
            let range = graph.blocks[b as usize].insns.clone();
            let insns = range.start as usize..range.end as usize;
            for (((insn, u), step), i) in graph.insns[insns.clone()]
                .iter()
                .zip(&uses[insns.clone()])
                .zip(&mut frame.steps[insns.clone()])
                .zip(insns)
            {
                step.clobber = u.clobber;
                makes.registers.0 |= u.clobber.0;
                let moves = u.clobber.0 & STACK.0 != 0;
                let list = &accesses[i];
                if moves || !list.is_empty() || !insn.simple && is_call(insn) {
                    let touches = &mut frame.touches;
                    (step.effect, step.first) = (effect(insn, list, moves), touches.len() as u32);
                    makes.add(step.effect);
                    stack.touches(step.effect, list, stores, |mut touch| {
                        if touch.has_key() {
                            keyed.push((touch.key, touches.len() as u32));
                        } else {
                            touch.find_address();
                        }
                        makes.add_touch(&touch);
                        touches.push(touch);
                        step.count += 1;
                    });
                }
                if step.effect == Effect::None {
                    taken.extend(stack.taken(insn));
                }
                if moves {
                    frame.moves.set(i);
                    stack.step(insn, u);
                }
            }
            frame.makes[b as usize] = makes;
            for s in &graph.blocks[b as usize].succs {
                match &mut frame.at_block[s.0 as usize] {
                    Some(old) if old.rbp != stack.rbp => {
                        if old.rbp.is_some()
                            && loops.position[s.0 as usize] <= loops.position[b as usize]
                        {
                            stale.push(s.0);
                        }
                        old.rbp = None;
                    }
                    Some(_) => {}
                    none => *none = Some(stack),
                }
            }
        }
        frame.number(keyed);
        taken.sort_unstable();
        frame.escaped = frame
            .keys
            .iter()
            .map(|k| taken.binary_search(k).is_ok())
            .collect();
        stale
            .into_iter()
            .for_each(|b| frame.note_again(b as usize, graph, uses, accesses, stores));
        frame
    }

    /// Lists the variables, and finds the place of each touch among them.
    fn number(&mut self, mut keyed: Vec<(i64, u32)>) {
        keyed.sort_unstable_by_key(|k| k.0);
        for same in keyed.chunk_by(|a, b| a.0 == b.0) {
            let widest = same
                .iter()
                .map(|k| &self.touches[k.1 as usize])
                .filter(|t| t.makes_variable())
                .map(|t| t.size)
                .max();
            if let Some(size) = widest {
                self.keys.push(same[0].0);
                self.sizes.push(size as u8);
            }
        }
        let mut at = 0;
        for (key, touch) in keyed {
            at += usize::from(self.keys.get(at).is_some_and(|&k| k < key));
            self.touches[touch as usize].place(at, &self.keys, &self.sizes);
        }
    }

    /// Repeats a block's touches with the final stack state at its start.
    fn note_again(
        &mut self,
        b: usize,
        graph: &Cfg,
        uses: &[RegUse],
        accesses: &AccessList,
        stores: bool,
    ) {
        self.makes[b].asks = true;
        let mut stack = self.at_block[b].unwrap_or(Stack::ENTRY);
        for i in graph.blocks[b].insns.start as usize..graph.blocks[b].insns.end as usize {
            let mut number = self.steps[i].first as usize;
            stack.touches(self.steps[i].effect, &accesses[i], stores, |mut touch| {
                if touch.has_key() {
                    touch.place(
                        self.keys.partition_point(|&k| k < touch.key),
                        &self.keys,
                        &self.sizes,
                    );
                } else {
                    touch.find_address();
                }
                self.touches[number] = touch;
                number += 1;
            });
            stack.advance(&graph.insns[i], &uses[i]);
        }
    }

    /// Makes cells variables. `cells`: touches with their keys.
    pub fn add_cells(&mut self, cells: &[(u32, i64)]) {
        let (keys, escaped) = (
            std::mem::take(&mut self.keys),
            std::mem::take(&mut self.escaped),
        );
        self.sizes.clear();
        for &(touch, key) in cells {
            let touch = &mut self.touches[touch as usize];
            (touch.key, touch.at) = (key, 0);
        }
        let keyed = self.touches.iter().zip(0..).filter(|t| t.0.has_key());
        let keyed = keyed.map(|(touch, n)| (touch.key, n)).collect();
        self.number(keyed);
        self.makes.iter_mut().for_each(|makes| makes.memory = true);
        // If the code accesses a place only through pointers, its address counts as taken.
        let is_escaped = |key: &i64| match keys.binary_search(key) {
            Ok(at) => escaped[at],
            Err(_) => is_frame(*key),
        };
        self.escaped = self.keys.iter().map(is_escaped).collect();
    }

    /// Drops all variables (for functions that are too large).
    pub fn drop_variables(&mut self) {
        self.keys.clear();
        self.sizes.clear();
        self.escaped.clear();
        self.makes.iter_mut().for_each(|makes| makes.asks = true);
        self.touches
            .iter_mut()
            .filter(|t| t.has_key())
            .for_each(|t| t.place(0, &[], &[]));
    }

    /// Touches of memory by an instruction.
    #[inline]
    pub fn touches_of(&self, insn: usize) -> &[Touch] {
        let InsnEffect { count, first, .. } = self.steps[insn];
        &self.touches[first as usize..][..usize::from(count)]
    }

    /// Number of variables. Registers are included and come first.
    pub fn variables(&self) -> usize {
        REGISTERS + self.keys.len()
    }

    /// Number of the variable with this key.
    pub fn variable(&self, key: i64) -> Option<usize> {
        self.keys.binary_search(&key).ok().map(|m| REGISTERS + m)
    }

    /// True if calls and unknown stores may change a variable of the frame.
    pub fn is_escaped(&self, v: usize) -> bool {
        v.checked_sub(REGISTERS).is_some_and(|m| self.escaped[m])
    }

    /// The key of a variable in memory.
    pub fn key(&self, v: usize) -> Option<i64> {
        self.keys.get(v.checked_sub(REGISTERS)?).copied()
    }

    /// Passes the numbers of the variables that a write touches to `tell`. The touch must have a
    /// key.
    #[inline]
    pub fn touched(&self, touch: &Touch, mut tell: impl FnMut(usize)) {
        if touch.shared {
            return self.overlaps(touch).for_each(|m| tell(REGISTERS + m));
        }
        touch.variable().into_iter().for_each(tell);
    }

    fn overlaps(&self, touch: &Touch) -> impl Iterator<Item = usize> + use<'_> {
        let (key, end, at) = (touch.key, touch.end(), touch.at as usize);
        let before = self.keys[..at]
            .iter()
            .rev()
            .take_while(|&&k| k > key.saturating_sub(8))
            .count();
        (at - before..self.keys.len())
            .take_while(move |&v| self.keys[v] < end)
            .filter(move |&v| self.keys[v].saturating_add(i64::from(self.sizes[v])) > key)
    }
}

/// Effect of an instruction. `moves`: it writes the stack pointer or the frame pointer.
#[inline]
fn effect(insn: &Insn, list: &Accesses, moves: bool) -> Effect {
    match list.iter().next().map(|a| &a.form) {
        _ if is_call(insn) => Effect::Call,
        _ if moves && insn.inst.mnemonic() == Mnemonic::Push => Effect::Push,
        _ if moves && insn.inst.mnemonic() == Mnemonic::Pop => Effect::Pop,
        None => Effect::None,
        // (Accesses of string instructions have no plain form.)
        Some(Form::Plain(_)) => Effect::Accesses,
        Some(_) if insn.inst.is_string_instruction() => Effect::String,
        Some(_) => Effect::Accesses,
    }
}

/// True if the instruction leaves the function and control returns behind it.
pub fn is_call(insn: &Insn) -> bool {
    matches!(insn.flow, FlowControl::Call | FlowControl::IndirectCall)
}
