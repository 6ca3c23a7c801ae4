//! A function with its plan, ready to be emitted, with the results of each stage in types of their
//! own.

use crate::ir::cfg::Cfg;
use crate::ir::jump_table::JumpTable;
use crate::ir::loops::Loops;
use crate::ir::{BlockId, FunctionId};
use crate::patch::space::{FunctionCode, fits};
use crate::plan::cursor::Residencies;
use crate::plan::function_plan::FunctionPlan;
use crate::plan::types::Insertion;
use crate::x86::flow::JUMP;
use crate::x86::insn::{Insn, InsnId};
use crate::x86::regs::RegUse;
use iced_x86::Mnemonic;
use std::ops::Range;

/// A function that was analysed and may be re-emitted.
#[derive(Clone, Debug)]
pub struct Function {
    /// Its number.
    pub id: FunctionId,
    /// Original bytes, link-time addresses.
    pub range: Range<u64>,
    /// Instructions and blocks. Bytes of `range` that are in no instruction (padding, data) have no
    /// clone.
    pub cfg: Cfg,
    /// Effect of each instruction on registers.
    pub uses: Vec<RegUse>,
    /// Its loops.
    pub loops: Loops,
    /// Calls that the clone handles specially.
    pub calls: SpecialCalls,
    /// Jump tables that the clone gets copies of. Other indirect jumps go to the computed original
    /// target, see `landings`.
    pub tables: Vec<JumpTable>,
    /// Places where the original gets jumps into the clone.
    pub patching: Patching,
    /// Regions and records of the function.
    pub plan: FunctionPlan,
    /// Places where a register holds the soft probes' cursor (none in the PT flavour).
    pub residencies: Residencies,
    /// Prefetches, in order.
    pub insertions: Vec<Insertion>,
}

/// Calls of functions, of the system and of other code that the clone handles specially.
#[derive(Clone, Debug, Default)]
pub struct SpecialCalls {
    /// System calls that get hooks.
    pub hooks: Vec<InsnId>,
    /// Instructions to which calls of code without a clone return. A jump there keeps the return
    /// address the original's, which may be shown ([`crate::program::sanitizers`],
    /// [`crate::program::shown_returns`]).
    pub returned_to: Vec<InsnId>,
    /// Calls and jumps through words that the loader fills in with addresses of imported functions.
    pub by_linkage: Vec<InsnId>,
    /// Calls that never return, or from which control returns to the original.
    pub quits: Vec<InsnId>,
    /// No-operations that mark phases; the clone keeps them.
    pub markers: Vec<InsnId>,
}

/// Addresses in the original that jumps unknown to the clone may reach, and addresses where the
/// original may get a jump into the clone.
#[derive(Clone, Debug, Default)]
pub struct Patching {
    /// Original addresses (block starts) that an indirect jump may reach outside of `tables`. Each
    /// needs a patch in the original body that leads into the clone. Emission patches only those
    /// where [`Function::may_patch`] holds.
    pub landings: Vec<u64>,
    /// Bytes that may be data ([`crate::discover::code_or_data`]), over which no jump may be
    /// written. Sorted, without overlaps.
    pub data: Vec<Range<u64>>,
    /// Sorted addresses, besides block starts, that control may reach or that something refers to.
    pub aimed: Vec<u64>,
    /// Bytes of filler after short blocks, by block; see [`crate::patch::space`].
    pub room: Vec<(BlockId, u8)>,
    /// True if it has an indirect jump with unknown targets. Any instruction may be one.
    pub blind: bool,
    /// True if such a jump may also reach the function's start.
    pub blind_start: bool,
    /// True if a handler may continue at any instruction, and no mechanism leads it around jumps
    /// (PT flavour, see [`crate::link::fault_shim`]).
    pub anywhere: bool,
}

impl Function {
    /// The instruction with this number.
    pub fn insn(&self, id: InsnId) -> &Insn {
        &self.cfg.insns[id.0 as usize]
    }

    /// The instruction that starts at `ip`.
    pub fn insn_at(&self, ip: u64) -> Option<InsnId> {
        self.cfg.insn_at(ip).map(|i| InsnId(i as u32))
    }

    /// The block that starts at `ip`.
    pub fn block_at(&self, ip: u64) -> Option<BlockId> {
        self.cfg.block_at(ip)
    }

    /// True if a byte is in [`Patching::data`].
    pub fn is_data(&self, at: u64) -> bool {
        crate::util::ranges::overlaps(&self.patching.data, &(at..at + 1))
    }

    /// True if a 5-byte jump may be written over instruction `first` and those after it, see
    /// [`crate::patch::space::fits`]. If any instruction may be a jump target, the patch must cover
    /// one instruction only, and no filler. (A function's first bytes count as such a target only
    /// if code computes with the function's address: compilers put one-time work there, before the
    /// targets of backward jumps.)
    pub fn may_patch(&self, first: InsnId) -> bool {
        let insn = self.insn(first);
        let at_start =
            first.0 == 0 || first.0 == 1 && self.cfg.insns[0].inst.mnemonic() == Mnemonic::Endbr64;
        let room = if self.patching.blind {
            &[][..]
        } else {
            &self.patching.room
        };
        let code = FunctionCode {
            insns: &self.cfg.insns,
            blocks: &self.cfg.blocks,
            room,
            data: &self.patching.data,
            aimed: &self.patching.aimed,
        };
        if self.patching.blind && (self.patching.blind_start || insn.ip != self.range.start)
            || self.patching.anywhere && !at_start
        {
            return u64::from(insn.len) >= JUMP
                && code.is_free(insn.ip)
                && !code.is_behind_trap(first.0 as usize);
        }
        fits(code, first, !self.patching.blind)
    }
}
