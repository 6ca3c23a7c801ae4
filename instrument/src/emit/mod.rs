//! Re-emits one function with its probes.
//!
//! Instructions are copied byte for byte; only RIP-relative displacements, direct branches and the
//! loads of copied jump tables change. References keep their original targets, so function pointers
//! keep their identity; direct branches aim at clones (resolved by [`crate::link::layout`]).
//! Alignment no-operations of the original are dropped, and added again at the starts of loops.
//!
//! The clone has the code of original instructions in the original order. The unwind tables and the
//! address map rely on this order.

pub(crate) mod code_buffer;
pub(crate) mod control_transfer;
mod counters;
pub(crate) mod cursor_edges;
pub(crate) mod emitter;
pub(crate) mod late_loads;
pub(crate) mod packed_fields;
pub mod probe;
mod records;
pub mod relax;
mod rows;
pub(crate) mod syscall_hooks;
#[cfg(test)]
pub(crate) mod tests;

use crate::ir::jump_table::TableForm;
use mgz_abi::address_map::ProbeState;
use mgz_annotations_schema::sidecar::{Gather, Loop, PtWrite, Record, Region, Site};
use std::ops::Range;

pub use crate::emit::code_buffer::key as state_key;
pub use crate::emit::control_transfer::{THUNK_BYTES, thunk};
pub use crate::emit::emitter::emit;
pub use crate::emit::packed_fields::{Fixups, Marks};
pub use crate::emit::rows::displacements;

/// Why a function could not be re-emitted. It is left unchanged then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EmitError {
    /// A probe found no register.
    #[error("no register for a probe")]
    NoRegister,
    /// A probe cannot compute the address, or the plan is inconsistent.
    #[error("record not supported by the emitter")]
    Record,
    /// The bytes do not have the expected form.
    #[error("instruction encoding not understood")]
    Encoding,
    /// The function's bytes are not in the file.
    #[error("no bytes in the file")]
    NoBytes,
}

/// A four-byte field of the clone that depends on the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixup {
    /// Offset of the field in the clone.
    pub at: u32,
    /// Offset of the instruction's end, which RIP-relative values count from.
    pub end: u32,
    /// Kind of the field's value.
    pub kind: FixupKind,
}

/// See [`Fixup`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FixupKind {
    /// Distance to an original address.
    Original(u64),
    /// Distance to the clone of an original address, or to itself if it has no clone.
    Code(u64),
    /// Distance to the target of a call in a translated clone: the clone of an original address, or
    /// the thunk to it.
    Call(u64),
    /// Displacement of a jump-table load: the original's plus the distance from the original table
    /// to the copy.
    Table {
        /// Index into [`Emitted::tables`].
        table: u32,
        /// The original displacement.
        disp: i32,
    },
    /// Record id of the record with this number in the function.
    RecordId(u32),
    /// Displacement of the counter of the record with this number inside the function.
    Counter(u32),
}

/// A jump table to be copied.
#[derive(Clone, Debug)]
pub struct CopiedJumpTable {
    /// Address of the original.
    pub original: u64,
    /// Entry encoding.
    pub form: TableForm,
    /// Original addresses of the targets; some may be in other functions (cold parts).
    pub targets: Vec<u64>,
}

/// The sidecar's rows of one function. Addresses in the clone are offsets, and numbers count within
/// the function.
#[derive(Clone, Debug, Default)]
pub struct SidecarRows {
    /// Sites.
    pub sites: Vec<Site>,
    /// Regions.
    pub regions: Vec<Region>,
    /// Records.
    pub records: Vec<Record>,
    /// `ptwrite`s.
    pub ptwrites: Vec<PtWrite>,
    /// Gathers.
    pub gathers: Vec<Gather>,
    /// Loops.
    pub loops: Vec<Loop>,
}

/// A re-emitted function.
#[derive(Clone, Debug)]
pub struct Emitted {
    /// The original's bytes.
    pub range: Range<u64>,
    /// The clone's code; moved out once only filling in and writing remain.
    pub code: Vec<u8>,
    /// Bytes of it.
    pub len: u32,
    /// Alignment of the clone's address: 16 if loops in it are aligned, else 1, since most
    /// functions are short.
    pub align: u64,
    /// Fields to be filled in.
    pub fixups: Fixups,
    /// Jump tables.
    pub tables: Vec<CopiedJumpTable>,
    /// Offsets of the original's instructions in the clone.
    pub marks: Marks,
    /// Jumps from the original into the clone: `(original address, offset in the clone)`.
    pub patches: Vec<(u64, u32)>,
    /// True if the original executes loads before it reaches one of `patches`
    /// ([`crate::emit::late_loads`]).
    pub late_loads: bool,
    /// Original addresses of system calls with hooks.
    pub calls: Vec<u64>,
    /// Address map stream, with state numbers of `states`.
    pub stream: Vec<u8>,
    /// Probe states used; the first is [`ProbeState::IDLE`].
    pub states: Vec<ProbeState>,
}

/// Bytes of an `endbr64`.
const ENDBR: u64 = 4;

impl Emitted {
    /// Offset in the clone of the original instruction at `address`.
    pub fn clone_of(&self, address: u64) -> Option<u32> {
        let offset = u32::try_from(address.checked_sub(self.range.start)?).ok()?;
        self.marks.entry_at_original(offset)
    }

    /// True if there is an entry jump at the function's start, or after the `endbr64` there.
    pub fn enters_at_start(&self) -> bool {
        let mut entered = self.patches.iter();
        entered.any(|p| p.0 <= self.range.start + ENDBR)
    }

    /// Offset in the clone of the code that belongs to the first instruction at or after `address`;
    /// the clone's end if there is none.
    pub fn clone_from(&self, address: u64) -> u32 {
        let offset = address.saturating_sub(self.range.start);
        self.marks.begin_at_or_after(offset).unwrap_or(self.len)
    }
}
