//! What analysis hands to emission: a function as instructions, blocks, jump tables and a recording plan.
//!
//! Analysis (`functions`, `disasm`, `cfg`, `tables`, `liveness`, `loops`, `dataflow`, `plan`) decides
//! *what* is recorded *where*; emission (`emit`, `layout`, `elf`) decides *how* and never looks at
//! semantics beyond what is written here.

use crate::room::{Code, JUMP, fits};
use iced_x86::{FlowControl, Instruction, Mnemonic};
use smallvec::SmallVec;
use std::ops::Range;

/// Index into [`Function::insns`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InsnId(pub u32);

/// Index into [`Function::blocks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

/// Index into [`Program::functions`](crate::functions::Program).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionId(pub u32);

/// A general purpose register by hardware number: rax 0, rcx 1, rdx 2, rbx 3, rsp 4, rbp 5, rsi 6,
/// rdi 7, r8…r15.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gpr(pub u8);

/// A set of general purpose registers, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RegSet(pub u16);

impl RegSet {
    /// No register.
    pub const EMPTY: RegSet = RegSet(0);
    /// Whether `r` is in the set.
    pub fn contains(self, r: Gpr) -> bool {
        self.0 >> r.0 & 1 == 1
    }
    /// The set with `r`.
    #[must_use]
    pub fn with(self, r: Gpr) -> RegSet {
        RegSet(self.0 | 1 << r.0)
    }
    /// The set without `r`.
    #[must_use]
    pub fn without(self, r: Gpr) -> RegSet {
        RegSet(self.0 & !(1 << r.0))
    }
    /// Members, lowest number first.
    pub fn iter(self) -> impl Iterator<Item = Gpr> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let lowest = (left != 0).then(|| Gpr(left.trailing_zeros() as u8));
            left &= left.wrapping_sub(1);
            lowest
        })
    }
}

/// A decoded instruction at its original place.
#[derive(Clone, Copy, Debug)]
pub struct Insn {
    /// Link-time address.
    pub ip: u64,
    /// Bytes up to where the next instruction may begin. The encoding is longer than that (and another instruction begins inside
    /// of it) where a branch goes behind the first prefixes: see [`Insn::is_overlapped`].
    pub len: u8,
    /// The decoded form's flow control, which is asked for at every turn.
    pub flow: FlowControl,
    /// It computes, or reads and writes memory, and goes on to the next: no branch, call, string instruction, none that changes a segment's base
    /// or is overlapped. Rare ones are not known to be so. See [`is_simple`](crate::facts::is_simple).
    pub simple: bool,
    /// Decoded form (its own IP is `ip`).
    pub inst: Instruction,
    /// Registers that a probe standing right before this instruction may overwrite: their values are
    /// dead there, on every path, exceptions and IPA register allocation included. Never rsp.
    pub dead: RegSet,
    /// Those of `dead` that an instruction with accesses itself overwrites, and that a probe may overwrite before it even if it faults; see
    /// [`crate::consumed`].
    pub own: RegSet,
}

impl Insn {
    /// Address behind [`Insn::len`].
    pub fn end(&self) -> u64 {
        self.ip + u64::from(self.len)
    }

    /// Where control goes on if the instruction does not branch.
    pub fn next(&self) -> u64 {
        self.inst.next_ip()
    }

    /// The target of a direct near branch or call.
    #[inline]
    pub fn direct_target(&self) -> Option<u64> {
        if self.flow == FlowControl::Next {
            None
        } else {
            crate::disasm::direct_target(&self.inst)
        }
    }

    /// Whether control cannot go on to the next instruction.
    #[inline]
    pub fn ends_flow(&self) -> bool {
        match self.flow {
            FlowControl::Next => self.inst.code() == iced_x86::Code::Hlt,
            FlowControl::UnconditionalBranch
            | FlowControl::IndirectBranch
            | FlowControl::Return
            | FlowControl::Exception => true,
            _ => false,
        }
    }

    /// Whether the next instruction is this one without its first prefixes (`je 1f; lock; 1: cmpxchg …`). Both end at the same
    /// address; control never runs from one into the other.
    pub fn is_overlapped(&self) -> bool {
        usize::from(self.len) < self.inst.len()
    }
}

/// Blocks. Most have few neighbours, which then take no memory of their own.
pub type BlockIds = SmallVec<[BlockId; 4]>;

/// A basic block: instructions that follow each other in memory. Control may enter only at the first.
#[derive(Clone, Debug)]
pub struct Block {
    /// Its instructions.
    pub insns: Range<u32>,
    /// Blocks of this function that may follow (fall-through, branch, jump table, landing pads of its calls).
    pub succs: BlockIds,
    /// Blocks of this function that may precede.
    pub preds: BlockIds,
    /// Entered from outside the function, by a table that was not understood, or by the unwinder.
    pub external_entry: bool,
}

/// A jump table whose bound is certain. The clone reads a table of its own: emission copies it with
/// clone targets and changes only the displacement of the instruction that loads the entry.
#[derive(Clone, Debug)]
pub struct JumpTable {
    /// The instruction that loads the entry: `movslq (table,i,4)`, `mov table(,i,8)`, `jmp *table(,i,8)`.
    pub load: InsnId,
    /// The indirect jump.
    pub jump: InsnId,
    /// Link-time address of the original's first entry.
    pub table: u64,
    /// How entries are encoded.
    pub form: TableForm,
    /// Original targets, one per entry, in order; each is a block of this function or lies in another one (the clone's entry is then that
    /// address in the other's clone, or the original address if there is none).
    pub targets: Vec<u64>,
}

/// Entry encoding of a [`JumpTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TableForm {
    /// 4 bytes, signed; target = `anchor` + entry (the anchor is the address that the code adds,
    /// usually the table itself). The clone's entries are clone target − anchor.
    Relative {
        /// What the code adds to the entry.
        anchor: u64,
    },
    /// 8-byte absolute addresses that no dynamic relocation touches (non-PIE).
    Absolute8,
}

/// What a record's payload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// A register as it is.
    Reg(Gpr),
    /// The effective address of the memory operand of the instruction [`RecordPlan::of`] (segment
    /// base included for fs: it is read from `fs:[0]`; a vector index is left out).
    Address,
    /// Nothing: the id alone says what ran (static address). PT: any register.
    Nothing,
    /// Eight bytes of a vector register: index or mask of a gather, see [`mgz_annotations_schema::sidecar::Gather`]. Two such records, the lower and the higher
    /// half of sixteen bytes, follow one another.
    Half(VectorHalf),
    /// A mask register, likewise.
    Mask(u8),
}

/// Eight bytes of a vector register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VectorHalf {
    /// Hardware number.
    pub vector: u8,
    /// Length of the register, bytes.
    pub bytes: u8,
    /// Which eight bytes, lowest first.
    pub half: u8,
}

/// One record of a region.
#[derive(Clone, Copy, Debug)]
pub struct RecordPlan {
    /// The probe stands before this instruction…
    pub at: InsnId,
    /// …or right after it (only the count of a `repe`/`repne` string instruction, which ends its region).
    pub after: bool,
    /// The instruction whose operand it is about: the same one, or one behind it whose registers are known here already.
    pub of: InsnId,
    /// What it holds.
    pub payload: Payload,
    /// It shares the slot of the record before it, which is not a second one.
    pub second: bool,
}

/// One load (or store) of a region or outside of any. Fields as in
/// [`mgz_annotations_schema::sidecar::Site`].
#[derive(Clone, Copy, Debug)]
pub struct SitePlan {
    /// The instruction.
    pub insn: InsnId,
    /// `CLASS_*`.
    pub class: u8,
    /// Address formula.
    pub kind: mgz_annotations_schema::sidecar::SiteKind,
    /// `SiteFlags`.
    pub flags: u8,
    /// `reason::*`.
    pub reason: u8,
    /// Bytes per access (per element for strings and gathers).
    pub size: u32,
    /// Stride in bytes if `STRIDE_KNOWN`.
    pub stride: i64,
    /// Record inside the region or `NO_RECORD`.
    pub a: u8,
    /// Record inside the region or `NO_RECORD`.
    pub b: u8,
    /// Factor of `b`.
    pub scale: u8,
    /// Displacement in the formula.
    pub disp: i64,
}

/// A piece of a basic block, see `mgz_annotations_schema::abi`: its records are committed together,
/// right after the last one. Most have few, which then take no memory of their own.
#[derive(Clone, Debug, Default)]
pub struct RegionPlan {
    /// Records in program order. May be empty (then all sites are unrecorded).
    pub records: SmallVec<[RecordPlan; 2]>,
    /// Sites in program order.
    pub sites: SmallVec<[SitePlan; 2]>,
    /// Number of `IMPLIED` sites.
    pub implied_const: u32,
}

/// Slots that the records of a region take.
pub fn slots(records: &[RecordPlan]) -> usize {
    records.iter().filter(|r| !r.second).count()
}

/// Gather geometry for the sidecar.
#[derive(Clone, Copy, Debug)]
pub struct GatherPlan {
    /// The instruction.
    pub insn: InsnId,
    /// Lanes.
    pub lanes: u8,
    /// Bytes per mask element, 0 for a mask register.
    pub mask_bytes: u8,
    /// Bytes of index vector.
    pub index_bytes: u16,
}

/// Counts of implicit stack reads and others that are reported apart.
#[derive(Clone, Copy, Debug, Default)]
pub struct ImplicitLoads {
    /// `pop`, `popf`.
    pub pops: u64,
    /// `ret`.
    pub rets: u64,
    /// `leave`.
    pub leaves: u64,
}

/// A function that is understood and may be re-emitted.
#[derive(Clone, Debug)]
pub struct Function {
    /// Its number.
    pub id: FunctionId,
    /// Original bytes, link-time addresses.
    pub range: Range<u64>,
    /// Instructions, sorted by address. Bytes of `range` that are in none (padding, data) have no clone.
    pub insns: Vec<Insn>,
    /// Those by their addresses.
    pub places: crate::disasm::Places,
    /// What each instruction does to registers.
    pub uses: Vec<crate::regs::RegUse>,
    /// Blocks, sorted by address; each instruction is in exactly one.
    pub blocks: Vec<Block>,
    /// System calls that get hooks.
    pub hooks: Vec<InsnId>,
    /// Where calls of code without a clone return to: a jump there lets the return address stay the original's, which is shown ([`crate::sanitizers`]).
    pub returned_to: Vec<InsnId>,
    /// Calls that nobody returns from.
    pub quits: Vec<InsnId>,
    /// Jump tables that the clone gets copies of. Indirect jumps that are in none go to the original
    /// target as computed, see `landings`.
    pub tables: Vec<JumpTable>,
    /// Original addresses (block starts) that an indirect jump may reach outside of `tables`: they want a
    /// patch in the original body that leads into the clone. Emission patches only those where [`Function::may_patch`] holds.
    pub landings: Vec<u64>,
    /// Bytes that are not sure to be code ([`crate::doubt`]): no jump may be written there. Sorted, none overlap.
    pub data: Vec<Range<u64>>,
    /// Sorted addresses that control may come to, or that something refers to, besides those where blocks begin.
    pub aimed: Vec<u64>,
    /// Bytes of filler behind short blocks, by block; see [`crate::room`].
    pub room: Vec<(BlockId, u8)>,
    /// It has an indirect jump of which nothing is known, not even suspected targets, or not all of them. Any instruction may be one.
    pub blind: bool,
    /// Nor is what stands at its start done only once.
    pub blind_start: bool,
    /// A handler may go on at any instruction, and nothing is there to lead it past a jump (PT flavour, see [`crate::faults`]).
    pub anywhere: bool,
    /// Recording plan, in address order.
    pub regions: Vec<RegionPlan>,
    /// Gathers among the sites.
    pub gathers: Vec<GatherPlan>,
    /// Implicit stack reads.
    pub implicit: ImplicitLoads,
    /// Where the soft probes' cursor is in a register (none in the PT flavour).
    pub stays: crate::stay::Stays,
    /// Its loops.
    pub loops: crate::loops::Loops,
}

impl Function {
    /// The instruction with this number.
    pub fn insn(&self, id: InsnId) -> &Insn {
        &self.insns[id.0 as usize]
    }

    /// The instruction that starts at `ip`.
    pub fn insn_at(&self, ip: u64) -> Option<InsnId> {
        self.places.get(ip).map(|i| InsnId(i as u32))
    }

    /// The block that starts at `ip`.
    pub fn block_at(&self, ip: u64) -> Option<BlockId> {
        let found = self
            .blocks
            .binary_search_by_key(&ip, |b| self.insns[b.insns.start as usize].ip);
        found.ok().map(|i| BlockId(i as u32))
    }

    /// Whether a byte is in [`Function::data`].
    pub fn is_data(&self, at: u64) -> bool {
        crate::doubt::overlaps(&self.data, &(at..at + 1))
    }

    /// Whether a 5-byte jump may be written over instruction `first` and those behind it, see [`crate::room::fits`]. Where any instruction may be the target of a
    /// jump, it must cover one instruction only, and no filler. (A function's first bytes are not taken for such a target, but where
    /// somebody computes with the function's address: compilers put what is done once there, before what jumps lead back to.)
    pub fn may_patch(&self, first: InsnId) -> bool {
        let insn = self.insn(first);
        let at_start =
            first.0 == 0 || first.0 == 1 && self.insns[0].inst.mnemonic() == Mnemonic::Endbr64;
        let room = if self.blind { &[][..] } else { &self.room };
        let code = Code {
            insns: &self.insns,
            blocks: &self.blocks,
            room,
            data: &self.data,
            aimed: &self.aimed,
        };
        if self.blind && (self.blind_start || insn.ip != self.range.start)
            || self.anywhere && !at_start
        {
            return u64::from(insn.len) >= JUMP && code.is_free(insn.ip);
        }
        fits(code, first, !self.blind)
    }
}

/// Unwind facts that analysis needs (made by `unwind` from `.eh_frame` and the LSDAs).
#[derive(Clone, Debug)]
pub struct UnwindRange {
    /// Code that the FDE covers.
    pub range: Range<u64>,
    /// `(call range, landing pad)`; empty without LSDA.
    pub landing_pads: Vec<(Range<u64>, u64)>,
    /// False if there is an LSDA that could not be understood, or if this is the code that signal handlers return to: the function must be left alone.
    pub understood: bool,
}
