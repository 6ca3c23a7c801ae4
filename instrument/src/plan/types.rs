//! Types that describe the records of a function.

use crate::analyze::class::Class;
use crate::x86::encode::Encoded;
use crate::x86::insn::InsnId;
use crate::x86::operands::OperandAccess;
use crate::x86::regs::Gpr;
use mgz_annotations_schema::sidecar::{NO_RECORD, SiteFlags, SiteKind, reason};
use smallvec::SmallVec;

/// Kind of payload of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// A register.
    Reg(Gpr),
    /// The effective address of the memory operand of the instruction [`RecordPlan::of`] (segment
    /// base included for fs: it is read from `fs:[0]`; a vector index is left out).
    Address,
    /// No payload: the id alone identifies the load (static address). PT: any register.
    Nothing,
    /// Eight bytes of a vector register: index or mask of a gather, see
    /// [`mgz_annotations_schema::sidecar::Gather`]. Two such records, the lower and the higher half
    /// of sixteen bytes, follow one another.
    Half(VectorHalf),
    /// A mask register, likewise.
    Mask(u8),
    /// No payload and no slot: the region's counter is incremented ([`mgz_abi::counters`]).
    Count {
        /// True if flags are dead.
        flags: bool,
    },
}

/// Eight bytes of a vector register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VectorHalf {
    /// Hardware number.
    pub vector: u8,
    /// Length of the register, bytes.
    pub bytes: u8,
    /// Number of the eight-byte part, lowest first.
    pub half: u8,
}

/// One record of a region.
#[derive(Clone, Copy, Debug)]
pub struct RecordPlan {
    /// The probe comes before this instruction…
    pub at: InsnId,
    /// …or directly after it (only for the count of a `repe`/`repne` string instruction, which ends
    /// its region).
    pub after: bool,
    /// The instruction whose operand it describes: the same one, or a later one whose registers are
    /// already known here.
    pub of: InsnId,
    /// Its payload.
    pub payload: Payload,
    /// True if it shares the slot of the previous record, which is not a second one.
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
    pub kind: SiteKind,
    /// `SiteFlags`.
    pub flags: u8,
    /// `reason::*`.
    pub reason: u8,
    /// Bytes per access (per element for strings and gathers).
    pub size: u32,
    /// Stride in bytes if `STRIDE_KNOWN`.
    pub stride: i64,
    /// [`Origin`](mgz_annotations_schema::sidecar::Origin) of the address.
    pub origin: u8,
    /// The load whose value gives the address.
    pub origin_insn: Option<InsnId>,
    /// Record inside the region or `NO_RECORD`.
    pub a: u8,
    /// Record inside the region or `NO_RECORD`.
    pub b: u8,
    /// Factor of `b`.
    pub scale: u8,
    /// Displacement in the formula.
    pub disp: i64,
}

impl SitePlan {
    /// A site whose address is not recorded yet.
    pub fn of(insn: InsnId, access: &OperandAccess, class: Class, store: bool) -> SitePlan {
        let mut site = SitePlan {
            insn,
            class: class.class,
            kind: SiteKind::Plain,
            flags: 0,
            reason: reason::NONE,
            size: access.size,
            stride: class.stride.unwrap_or(0),
            origin: 0,
            origin_insn: None,
            a: NO_RECORD,
            b: NO_RECORD,
            scale: 1,
            disp: 0,
        };
        if class.stride.is_some() {
            site.flags |= SiteFlags::STRIDE_KNOWN;
        }
        if store {
            site.flags |= SiteFlags::STORE;
        }
        if access.read && access.write {
            site.flags |= SiteFlags::RMW;
        }
        site
    }
}

/// A piece of a basic block, see `mgz_annotations_schema::abi`: its records are committed together,
/// right after the last one. Most regions have few records, which need no allocation.
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

/// Code inserted in front of an instruction, without records.
#[derive(Clone, Debug)]
pub struct Insertion {
    /// The instruction. Jumps to it execute the code first.
    pub at: InsnId,
    /// The code.
    pub pieces: Vec<Piece>,
}

/// One instruction of an [`Insertion`].
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// Its bytes.
    pub code: Encoded,
    /// Offset of a RIP-relative displacement, and its target address.
    pub target: Option<(u8, u64)>,
}

/// Counts of implicit stack reads and other loads that are reported separately.
#[derive(Clone, Copy, Debug, Default)]
pub struct ImplicitLoads {
    /// `pop`, `popf`.
    pub pops: u64,
    /// `ret`.
    pub rets: u64,
    /// `leave`.
    pub leaves: u64,
}
