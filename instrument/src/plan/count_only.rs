//! `--for count`: a counter per region.
//!
//! Every load of a region runs as often as the region does. So one record replaces the region's
//! records: it adds to a counter in memory ([`mgz_abi::counters`]). A region is straight-line code,
//! so the record may be anywhere in it. It is placed where flags and registers are free.

use crate::plan::cursor::Residencies;
use crate::plan::ends_region;
use crate::plan::function_plan::FunctionPlan;
use crate::plan::types::{Payload, RecordPlan, RegionPlan};
use crate::x86::insn::{Insn, InsnId};
use crate::x86::operands::is_repeated_string;
use crate::x86::regs::{RSP, RegUse};
use mgz_annotations_schema::sidecar::{NO_RECORD, SiteFlags, SiteKind};

/// Resources that counters may use, per instruction.
pub(crate) struct Free<'a> {
    pub(crate) insns: &'a [Insn],
    pub(crate) uses: &'a [RegUse],
    /// True if flags are dead before an instruction; empty if unknown.
    pub(crate) flags: &'a [bool],
    pub(crate) residencies: &'a Residencies,
}

impl Free<'_> {
    fn flags(&self, at: usize) -> bool {
        self.flags.get(at).is_some_and(|&dead| dead)
    }

    /// Registers that a probe may use before an instruction.
    fn registers(&self, at: usize) -> u32 {
        let insn = &self.insns[at];
        let free = insn.dead.0 & !self.uses[at].clobber.0 | insn.own.0;
        let resident = self
            .residencies
            .starts()
            .partition_point(|&s| s as usize <= at);
        let resident = resident
            .checked_sub(1)
            .is_some_and(|piece| self.residencies.of(piece).is_some());
        (free & !(1 << RSP.0)).count_ones() + u32::from(resident)
    }

    /// Cost of a counter before an instruction, from the number of registers that must be borrowed.
    fn price(&self, at: usize) -> u32 {
        let wanted = if self.flags(at) { 1 } else { 2 };
        let borrowed = u32::saturating_sub(wanted, self.registers(at));
        // Borrowing a register costs a store and a load, and a second one two moves.
        2 * borrowed + wanted
    }
}

/// Replaces the records of a plan by counters. `blocks`: first instructions of the blocks,
/// ascending.
pub(crate) fn reduce(plan: &mut FunctionPlan, free: &Free, blocks: &[u32]) {
    plan.counts = true;
    let mut least = 0;
    for region in &mut plan.regions {
        if !region.records.is_empty() {
            least = reduce_region(region, free, blocks, least);
        }
    }
}

/// Replaces a region's records. `least`: position of the previous region's counter. Returns the
/// position of this region's.
fn reduce_region(region: &mut RegionPlan, free: &Free, blocks: &[u32], least: usize) -> usize {
    let sites = || region.sites.iter().map(|s| s.insn.0 as usize);
    let last = sites().max().unwrap_or(least);
    let known = region.records.iter().filter(|r| !r.after);
    let known = known.map(|r| r.at.0 as usize).min();
    let mut first = known.unwrap_or(last).min(last);
    // The straight-line code begins earlier.
    let block = blocks.partition_point(|&start| start as usize <= first);
    let start = block.checked_sub(1).map_or(0, |b| blocks[b] as usize);
    while first > start.max(least) && !ends(&free.insns[first - 1]) {
        first -= 1;
    }
    // If several positions have the same cost, the last is taken, since registers become free after
    // their last reads.
    let at = (first.max(least)..=last.max(least))
        .rev()
        .min_by_key(|&at| free.price(at))
        .unwrap_or(last);
    let id = InsnId(at as u32);
    region.records.clear();
    region.records.push(RecordPlan {
        at: id,
        after: false,
        of: id,
        payload: Payload::Count {
            flags: free.flags(at),
        },
        second: false,
    });
    for site in &mut region.sites {
        (site.a, site.b, site.scale, site.disp) = (NO_RECORD, NO_RECORD, 0, 0);
        if site.kind != SiteKind::Gather {
            site.kind = SiteKind::Plain;
        }
        site.flags &= !(SiteFlags::STATIC | SiteFlags::ADDR32 | SiteFlags::INDEX64);
    }
    at
}

/// True if a region ends after an instruction.
fn ends(insn: &Insn) -> bool {
    !insn.simple && ends_region(insn) || is_repeated_string(&insn.inst)
}
