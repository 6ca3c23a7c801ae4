//! Code of a region's records: the choice of registers for the cursor and the addresses.
//!
//! In the soft flavour a region is cut into [`Hold`]s: runs of records that share one cursor
//! register. A register that is dead over the whole run is free. Any other is saved to a `%gs`
//! place and restored after the run, and no original instruction in between may access it.
//!
//! A register that the next instruction writes is used only if it is one of [`Insn::own`]: if that
//! instruction faults, the program's handler may need the old value.

use crate::emit::EmitError;
use crate::plan::cursor::cheapest;
use crate::plan::planned_function::Function;
use crate::plan::types::{Payload, RecordPlan};
use crate::x86::encode::Mem;
use crate::x86::insn::Insn;
use crate::x86::regs::{Gpr, RegSet, RegUse};
use iced_x86::{FlowControl, Instruction, Mnemonic, Register};

/// Hardware number of the 64-bit register that contains `register`, if it is a general purpose one.
pub fn gpr(register: Register) -> Option<Gpr> {
    register
        .is_gpr()
        .then(|| Gpr(register.full_register().number() as u8))
}

/// A run of records with one cursor register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// First record.
    pub first: usize,
    /// Last record.
    pub last: usize,
    /// The register.
    pub reg: Gpr,
    /// True if it is borrowed: it is saved first and restored at the end.
    pub spilled: bool,
    /// True if it is a residency's register, which already holds the cursor and keeps it.
    pub resident: bool,
    /// True if the cursor is stored in memory only where control leaves the residency.
    pub late: bool,
}

/// The explicit memory operand of an instruction as a probe may compute it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// Registers and displacement. `fs` is set if the segment base is to be added. The vector index
    /// of a gather is left out.
    pub mem: Mem,
    /// The absolute target of a RIP-relative operand.
    pub target: Option<u64>,
}

/// The memory operand of `inst`, if a probe can compute its address.
pub fn operand(inst: &Instruction) -> Option<Operand> {
    let fs = match inst.segment_prefix() {
        Register::GS => return None,
        prefix => prefix == Register::FS,
    };
    if inst.is_ip_rel_memory_operand() {
        let wide = inst.memory_base() == Register::RIP && !fs;
        return wide.then(|| Operand {
            mem: Mem::default(),
            target: Some(inst.ip_rel_memory_address()),
        });
    }
    let (base, index) = (inst.memory_base(), inst.memory_index());
    let index = if index.is_vector_register() {
        Register::None
    } else {
        index
    };
    let narrow = |r: Register| r.is_gpr32();
    let addr32 = narrow(base)
        || narrow(index)
        || (base == Register::None && index == Register::None && inst.memory_displ_size() == 4);
    let disp = inst.memory_displacement64();
    let disp = if addr32 {
        disp as u32 as i32
    } else {
        i32::try_from(disp as i64).ok()?
    };
    if addr32 && fs {
        return None;
    }
    let mut mem = Mem {
        fs,
        addr32,
        base: gpr(base),
        index: gpr(index).map(|r| (r, inst.memory_index_scale() as u8)),
        disp,
    };
    if inst.mnemonic() == Mnemonic::Pop && mem.base == Some(Gpr(4)) {
        // The address is computed after rsp has been incremented.
        mem.disp = mem.disp.checked_add(inst.memory_size().size() as i32)?;
    }
    Some(Operand { mem, target: None })
}

/// Registers that the payload itself reads.
fn payload_reads(insn: &Insn, payload: Payload) -> RegSet {
    let mut set = RegSet::EMPTY;
    match payload {
        Payload::Reg(r) => set = set.with(r),
        Payload::Address => {
            for r in [insn.inst.memory_base(), insn.inst.memory_index()]
                .into_iter()
                .filter_map(gpr)
            {
                set = set.with(r);
            }
        }
        Payload::Nothing | Payload::Half(_) | Payload::Mask(_) | Payload::Count { .. } => {}
    }
    set
}

/// Everything but rsp.
const BORROWABLE: RegSet = RegSet(!(1 << 4));

struct Planner<'a> {
    function: &'a Function,
    records: &'a [RecordPlan],
    /// The register that holds the cursor when the region begins.
    kept: Option<Gpr>,
}

impl Planner<'_> {
    /// Index of the instruction boundary at which the record stands.
    fn boundary(&self, record: usize) -> usize {
        let r = &self.records[record];
        r.at.0 as usize + usize::from(r.after)
    }

    /// Registers that are dead at a record, and registers that it must not overwrite.
    #[inline]
    fn at(&self, record: usize) -> (RegSet, RegSet) {
        let plan = &self.records[record];
        let insn = self.function.insn(plan.at);
        let busy = payload_reads(self.function.insn(plan.of), plan.payload);
        if plan.after {
            let next = self
                .function
                .cfg
                .insns
                .get(plan.at.0 as usize + 1)
                .filter(|n| n.ip == insn.next());
            return (next.map_or(RegSet::EMPTY, |n| n.dead), busy);
        }
        let written = self.function.uses[plan.at.0 as usize].clobber;
        (RegSet(insn.dead.0 & !written.0 | insn.own.0), busy)
    }

    /// Last record up to which registers of `set` can be held, and these registers. All of `set` is
    /// usable at `first`.
    fn reach(&self, first: usize, mut set: RegSet, spilled: bool) -> (usize, RegSet) {
        let mut last = first;
        while last + 1 < self.records.len() {
            let (from, to) = (self.boundary(last), self.boundary(last + 1));
            let mut next = set;
            for i in from..to {
                let insn = &self.function.cfg.insns[i];
                let uses = &self.function.uses[i];
                next.0 &= !uses.clobber.0;
                if spilled {
                    next.0 &= !uses.read.0;
                } else {
                    next.0 &= insn.dead.0;
                }
            }
            let (dead, busy) = self.at(last + 1);
            next.0 &= !busy.0;
            if !spilled {
                next.0 &= dead.0;
            }
            if next == RegSet::EMPTY {
                break;
            }
            set = next;
            last += 1;
        }
        (last, set)
    }

    /// Register of `set` that stays unread for the longest time from instruction `from` on. A read
    /// of a just restored register waits for the restoration.
    fn calmest(&self, from: usize, set: RegSet) -> Option<Gpr> {
        const MAX_INSTRUCTIONS_AHEAD: usize = 16;
        let mut left = set;
        for RegUse { read, .. } in self
            .function
            .uses
            .iter()
            .skip(from)
            .take(MAX_INSTRUCTIONS_AHEAD)
        {
            if left.0 & !read.0 == 0 {
                break;
            }
            left.0 &= !read.0;
        }
        cheapest(left)
    }

    /// A hold with a dead register. Among those that keep the cursor longest afterwards, it is the
    /// one that already has it, or the cheapest.
    fn pick(&self, first: usize, last: usize, set: RegSet) -> Result<Hold, EmitError> {
        const MAX_INSTRUCTIONS_AHEAD: usize = 32;
        let from = self.boundary(last);
        let mut left = set;
        let uses = &self.function.uses[from.min(self.function.uses.len())..];
        for (insn, uses) in self.function.cfg.insns[from..]
            .iter()
            .zip(uses)
            .take(MAX_INSTRUCTIONS_AHEAD)
        {
            // A single remaining register is chosen in any case.
            if left.0 & left.0.wrapping_sub(1) == 0 {
                break;
            }
            let next = left.0 & !uses.clobber.0;
            if next == 0
                || matches!(
                    insn.flow,
                    FlowControl::Return
                        | FlowControl::UnconditionalBranch
                        | FlowControl::Call
                        | FlowControl::IndirectCall
                )
            {
                break;
            }
            left.0 = next;
        }
        let kept = self.kept.filter(|r| first == 0 && left.contains(*r));
        let reg = kept
            .or_else(|| cheapest(left))
            .ok_or(EmitError::NoRegister)?;
        Ok(Hold {
            first,
            last,
            reg,
            spilled: false,
            resident: false,
            late: false,
        })
    }

    fn hold(&self, first: usize) -> Result<Hold, EmitError> {
        let (dead, busy) = self.at(first);
        let free = RegSet(dead.0 & !busy.0 & BORROWABLE.0);
        let found = match free {
            RegSet::EMPTY => None,
            // Most regions have one record.
            _ if first + 1 == self.records.len() => Some((first, free)),
            _ => Some(self.reach(first, free, false)),
        };
        if let Some((last, set)) = found
            && last + 1 == self.records.len()
        {
            return self.pick(first, last, set);
        }
        // Borrowing a register costs a save and a restore; a new hold costs a load of the cursor.
        let (far, borrowed) = self.reach(first, RegSet(BORROWABLE.0 & !busy.0), true);
        match found {
            Some((last, set)) if last + 2 >= far => self.pick(first, last, set),
            _ => {
                let reg = self
                    .calmest(self.boundary(far), borrowed)
                    .ok_or(EmitError::NoRegister)?;
                Ok(Hold {
                    first,
                    last: far,
                    reg,
                    spilled: true,
                    resident: false,
                    late: false,
                })
            }
        }
    }
}

/// Chooses the cursor registers for a region's records. `kept` holds the cursor before them.
pub fn plan_cursors(
    function: &Function,
    records: &[RecordPlan],
    kept: Option<Gpr>,
    holds: &mut Vec<Hold>,
) -> Result<(), EmitError> {
    let planner = Planner {
        function,
        records,
        kept,
    };
    let mut first = 0;
    while first < records.len() {
        let hold = planner.hold(first)?;
        first = hold.last + 1;
        holds.push(hold);
    }
    Ok(())
}

/// A second register at a record, for an address, and true if it is borrowed. It is not the
/// cursor's, and, if `apart`, not one that the operand reads. `scratch`: a residency's address
/// register, which is always free.
pub fn second(
    function: &Function,
    record: &RecordPlan,
    cursor: Gpr,
    scratch: Option<Gpr>,
    apart: bool,
) -> Result<(Gpr, bool), EmitError> {
    let insn = function.insn(record.at);
    let written = function.uses[record.at.0 as usize].clobber;
    let busy = if apart {
        payload_reads(function.insn(record.of), record.payload)
    } else {
        RegSet::EMPTY
    };
    let free =
        RegSet((insn.dead.0 & !written.0 | insn.own.0) & !busy.0 & BORROWABLE.0).without(cursor);
    if let Some(r) = cheapest(free).or(scratch) {
        return Ok((r, false));
    }
    let any = RegSet(BORROWABLE.0 & !busy.0).without(cursor);
    Ok((cheapest(any).ok_or(EmitError::NoRegister)?, true))
}
