//! `--for count`: a record per region, without payload.
//!
//! How often a region is executed tells how often each of its loads is. So its records become one
//! that holds nothing: a store of its id, and the cursor advanced. It stands where a register for the
//! cursor costs least.

use crate::plan::Plan;
use crate::plan::types::{Payload, RecordPlan, RegionPlan};
use crate::x86::insn::Insn;
use crate::x86::regs::RegUse;
use mgz_annotations_schema::sidecar::{NO_RECORD, SiteFlags, SiteKind};

/// Reduces a plan. Regions with gathers stay as they are: their sites are described by records.
pub(crate) fn reduce(plan: &mut Plan, insns: &[Insn], uses: &[RegUse]) {
    for region in &mut plan.regions {
        if region.sites.iter().all(|s| s.kind != SiteKind::Gather) {
            reduce_region(region, insns, uses);
        }
    }
}

fn reduce_region(region: &mut RegionPlan, insns: &[Insn], uses: &[RegUse]) {
    let is_free = |record: &&RecordPlan| {
        let at = record.at.0 as usize;
        let insn = &insns[at];
        !record.after && insn.dead.0 & !uses[at].clobber.0 | insn.own.0 != 0
    };
    let before = region.records.iter().find(|r| !r.after);
    let Some(&chosen) = region.records.iter().find(is_free).or(before) else {
        return;
    };
    region.records.clear();
    region.records.push(RecordPlan {
        payload: Payload::Nothing,
        second: false,
        ..chosen
    });
    for site in &mut region.sites {
        (site.a, site.b, site.scale, site.disp) = (NO_RECORD, NO_RECORD, 0, 0);
        site.kind = SiteKind::Plain;
        site.flags &= !(SiteFlags::STATIC | SiteFlags::ADDR32 | SiteFlags::INDEX64);
    }
}
