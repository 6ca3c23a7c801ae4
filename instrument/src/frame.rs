//! Where the stack pointer and the frame pointer stand, and which memory is a variable of its own.
//!
//! For classes only, never for safety. Offsets count from the stack pointer at the function's entry. An aligned stack pointer, or
//! one moved by an unknown amount, starts a new region far away, so that slots on both sides are told apart.

use crate::cfg::Graph;
use crate::ir::{Gpr, Insn};
use crate::operands::{AccessList, Form, Place, Segment};
use crate::regs::{RBP, RSP, RegUse, gpr64};
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
/// How far a new region is away.
const ALIGNED: i64 = 1 << 32;
const MOVED: i64 = 1 << 40;

/// Key of fs:0, which holds the thread pointer.
pub const THREAD_POINTER: i64 = THREAD;

/// The static address that a key stands for.
pub fn static_address(key: i64) -> Option<u64> {
    (STATIC..THREAD).contains(&key).then(|| (key - STATIC) as u64)
}

/// Whether a key is in the frame.
pub fn is_frame(key: i64) -> bool {
    key < STATIC / 2
}

impl Stack {
    /// At the function's entry.
    pub const ENTRY: Stack = Stack { rsp: 0, rbp: None };

    /// Key of a place: its offset in the frame, or its address; `None` if it is neither.
    pub fn key(&self, place: &Place) -> Option<i64> {
        if place.index.is_some() || place.addr32 {
            return None;
        }
        match (place.segment, place.base) {
            (Segment::Flat, None) => Some(STATIC.wrapping_add(place.disp & (STATIC - 1))),
            (Segment::Fs, None) => Some(THREAD.wrapping_add(place.disp)),
            (Segment::Flat, Some(RSP)) => Some(self.rsp.wrapping_add(place.disp)),
            (Segment::Flat, Some(RBP)) => self.rbp.map(|rbp| rbp.wrapping_add(place.disp)),
            _ => None,
        }
    }

    /// Offset of a register.
    pub fn offset(&self, r: Gpr) -> Option<i64> {
        match r {
            RSP => Some(self.rsp),
            RBP => self.rbp,
            _ => None,
        }
    }

    /// After the instruction.
    #[inline]
    pub fn advance(&mut self, insn: &Insn, u: &RegUse) {
        if u.clobber.contains(RSP) || u.clobber.contains(RBP) {
            self.step(insn, u);
        }
    }

    /// After an instruction that writes one of both registers.
    fn step(&mut self, insn: &Insn, u: &RegUse) {
        let inst = &insn.inst;
        let target = if inst.op0_kind() == OpKind::Register { gpr64(inst.op0_register()) } else { None };
        let before = *self;
        let immediate = |sign: i64| inst.try_immediate(1).ok().map(|c| (c as i64).wrapping_mul(sign));
        match inst.mnemonic() {
            _ if matches!(inst.flow_control(), FlowControl::Call | FlowControl::IndirectCall) => return,
            Mnemonic::Leave => {
                self.rsp = self.rbp.map_or(self.rsp - MOVED, |b| b + 8);
                self.rbp = None;
                return;
            }
            Mnemonic::Push | Mnemonic::Pop | Mnemonic::Pushfq | Mnemonic::Popfq if target != Some(RSP) => {
                self.rsp = self.rsp.wrapping_add(i64::from(inst.stack_pointer_increment()));
            }
            _ if u.clobber.contains(RSP) && target == Some(RSP) => {
                let known = match inst.mnemonic() {
                    Mnemonic::Add => immediate(1).map(|c| before.rsp.wrapping_add(c)),
                    Mnemonic::Sub => immediate(-1).map(|c| before.rsp.wrapping_add(c)),
                    Mnemonic::And => Some(before.rsp.wrapping_sub(ALIGNED)),
                    _ => before.source(insn),
                };
                self.rsp = known.unwrap_or(before.rsp.wrapping_sub(MOVED));
            }
            _ => {}
        }
        if u.clobber.contains(RBP) {
            self.rbp = if target == Some(RBP) { before.source(insn) } else { None };
        }
    }

    /// Offset of what `mov r, r` or `lea r, [r+c]` computes.
    fn source(&self, insn: &Insn) -> Option<i64> {
        let inst = &insn.inst;
        match inst.mnemonic() {
            Mnemonic::Mov if inst.op1_kind() == OpKind::Register => self.offset(gpr64(inst.op1_register())?),
            Mnemonic::Lea if inst.memory_index() == Register::None => {
                let base = self.offset(gpr64(inst.memory_base())?)?;
                Some(base.wrapping_add(inst.memory_displacement64() as i64))
            }
            _ => None,
        }
    }
}

/// Stack state at block starts, and the variables in memory.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    /// Per block; `None` if unreachable.
    pub at_block: Vec<Option<Stack>>,
    /// Sorted keys of the memory variables.
    pub keys: Vec<i64>,
    /// Per key: the widest access, bytes.
    pub sizes: Vec<u8>,
    /// Per key: its address is taken, so that calls and unknown stores may change it.
    pub escaped: Vec<bool>,
}

impl Frame {
    /// Follows the stack pointer and lists the variables. `order`: blocks in reverse postorder.
    pub fn find(graph: &Graph, order: &[u32], uses: &[RegUse], accesses: &AccessList) -> Frame {
        let mut frame = Frame { at_block: vec![None; graph.blocks.len()], ..Frame::default() };
        let mut taken: Vec<i64> = Vec::new();
        let mut sized: Vec<(i64, u8)> = Vec::new();
        for &b in order {
            let mut stack = *frame.at_block[b as usize].get_or_insert(Stack::ENTRY);
            let range = graph.blocks[b as usize].insns.clone();
            for i in range.start as usize..range.end as usize {
                let insn = &graph.insns[i];
                for access in accesses[i].iter() {
                    if let Form::Plain(place) = &access.form
                        && access.size <= 8
                    {
                        sized.extend(stack.key(place).map(|k| (k, access.size as u8)));
                    }
                }
                if matches!(insn.inst.code(), Code::Lea_r16_m | Code::Lea_r32_m | Code::Lea_r64_m)
                    && let Some(place) = crate::operands::place_of(&insn.inst)
                {
                    taken.extend(stack.key(&place));
                }
                stack.advance(insn, &uses[i]);
            }
            for s in &graph.blocks[b as usize].succs {
                match &mut frame.at_block[s.0 as usize] {
                    Some(old) if old.rbp != stack.rbp => old.rbp = None,
                    Some(_) => {}
                    none => *none = Some(stack),
                }
            }
        }
        sized.sort_unstable_by_key(|s| (s.0, std::cmp::Reverse(s.1)));
        sized.dedup_by_key(|s| s.0);
        (frame.keys, frame.sizes) = sized.into_iter().unzip();
        taken.sort_unstable();
        frame.escaped = frame.keys.iter().map(|k| taken.binary_search(k).is_ok()).collect();
        frame
    }

    /// Forgets all variables (functions too large to follow them).
    pub fn drop_variables(&mut self) {
        self.keys.clear();
        self.sizes.clear();
        self.escaped.clear();
    }

    /// Number of the variable with this key.
    pub fn variable(&self, key: i64) -> Option<usize> {
        self.keys.binary_search(&key).ok()
    }

    /// Variables that a write of `size` bytes at `key` touches.
    pub fn touched(&self, key: i64, size: u32) -> impl Iterator<Item = usize> + use<'_> {
        let from = self.keys.partition_point(|&k| k <= key.saturating_sub(8));
        let to = self.keys.partition_point(|&k| k < key.saturating_add(i64::from(size.max(1))));
        (from..to.max(from)).filter(move |&v| self.keys[v].saturating_add(i64::from(self.sizes[v])) > key)
    }
}
