//! Interface from analysis to emission: a function as instructions, blocks, jump tables and a
//! recording plan.
//!
//! Analysis (`discover`, `analyze`, `plan`) decides *what* is recorded *where*; emission (`emit`,
//! `link`) decides *how*, and uses no semantics beyond these types and those in `plan`.

pub mod cfg;
pub mod jump_table;
pub mod live_registers;
pub mod loops;

use smallvec::SmallVec;
use std::ops::Range;

/// Index into `Function::blocks`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

/// Index into [`Program::functions`](crate::program::Program).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionId(pub u32);

/// Blocks. Most blocks have few neighbours, which need no allocation.
pub type BlockIds = SmallVec<[BlockId; 4]>;

/// A basic block: consecutive instructions that control enters only at the first.
#[derive(Clone, Debug)]
pub struct Block {
    /// Its instructions.
    pub insns: Range<u32>,
    /// Blocks of this function that may follow (fall-through, branch, jump table, landing pads of
    /// its calls).
    pub succs: BlockIds,
    /// Blocks of this function that may precede.
    pub preds: BlockIds,
    /// True if it is entered from outside the function, by an unresolved table, or by the unwinder.
    pub external_entry: bool,
}
