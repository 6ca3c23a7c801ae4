//! A load's class.

use crate::ir::cfg::Graph;
use crate::plan::affine::{Differences, Known, Registers, at_starts};
use crate::plan::cursor::Stays;
use crate::plan::types::{
    GatherPlan, ImplicitLoads, Payload, RecordPlan, RegionPlan, SitePlan, VectorHalf,
};
use crate::program::Options;
use crate::x86::effects::Facts;
use crate::x86::insn::{Insn, InsnId};
use crate::x86::operands::{
    Access, AccessList, Accesses, COUNT, Form, Place, Segment, is_repeated_string,
};
use crate::x86::regs::{Gpr, RAX, RBX, RSP, RegSet, RegUse};
use iced_x86::{Code, FlowControl, Instruction, Mnemonic, Register};
use mgz_annotations_schema::sidecar::{CLASS_CONSTANT, NO_RECORD, SiteFlags, SiteKind, reason};
use smallvec::SmallVec;

/// Class of one access, from data flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// `CLASS_*`.
    pub class: u8,
    /// Stride in bytes, if it is a known constant.
    pub stride: Option<i64>,
}
