//! Jump tables: the load of an indirect jump's target, and the record of how it was found.

use crate::ir::cfg::KnownJump;
use crate::x86::insn::InsnId;
use crate::x86::regs::RegSet;
use std::hash::Hash;
use std::ops::Range;

/// A jump table whose bound is certain. The clone reads a table of its own: emission copies it with
/// clone targets and changes only the displacement of the instruction that loads the entry.
#[derive(Clone, Debug)]
pub struct JumpTable {
    /// The instruction that loads the entry: `movslq (table,i,4)`, `mov table(,i,8)`,
    /// `jmp *table(,i,8)`.
    pub load: InsnId,
    /// The indirect jump.
    pub jump: InsnId,
    /// Link-time address of the original's first entry.
    pub table: u64,
    /// Encoding of the entries.
    pub form: TableForm,
    /// Original targets, one per entry, in order; each is a block of this function or lies in
    /// another one (the clone's entry is then that address in the other's clone, or the original
    /// address if there is none).
    pub targets: Vec<u64>,
}

/// Entry encoding of a [`JumpTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TableForm {
    /// 4 bytes, signed; target = `anchor` + entry (the anchor is the address that the code adds,
    /// usually the table itself). The clone's entries are clone target − anchor.
    Relative {
        /// Address that the code adds to the entry.
        anchor: u64,
    },
    /// 8-byte absolute addresses that no dynamic relocation touches (non-PIE).
    Absolute8,
}

/// Known facts about an indirect jump.
#[derive(Clone, Debug)]
pub struct IndirectJumpFacts {
    /// Index of the jump among the graph's instructions.
    pub jump: usize,
    /// Index of the instruction that loads the entry.
    pub load: usize,
    /// Address of the first entry.
    pub table: u64,
    /// Encoding.
    pub form: TableForm,
    /// Every target, in order, duplicates included. For a table without a certain end: the targets
    /// in this function, if the data at the table's address are entries.
    pub targets: Vec<u64>,
    /// Targets outside of this function, for a table without a certain end. Most belong to the
    /// tables after it.
    pub strays: Vec<u64>,
    /// The bound is certain and every target is an instruction of this function or code of another.
    pub certain: bool,
    /// All targets are in this function.
    pub closed: bool,
    /// True if it is certain and the clone may have a copy: read-only, not relocated, no other use
    /// of the entry inside the block.
    pub copyable: bool,
    /// Registers that hold a value made from the entry when the jump executes.
    pub tainted: RegSet,
}

impl IndirectJumpFacts {
    /// Bytes of the table.
    pub fn span(&self) -> Range<u64> {
        let width = if self.form == TableForm::Absolute8 {
            8
        } else {
            4
        };
        self.table..self.table.saturating_add(self.targets.len() as u64 * width)
    }
}

/// Record of the search for a function's jump tables.
#[derive(Clone, Debug)]
pub struct Course {
    /// Number of instructions.
    pub(crate) insns: usize,
    pub(crate) found: Vec<IndirectJumpFacts>,
    pub(crate) jumps: Vec<KnownJump>,
    /// Per round: the tables with certain bounds. Sorted, without overlaps.
    pub(crate) spans: Vec<Vec<Range<u64>>>,
}
