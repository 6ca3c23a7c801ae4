//! The sidecar's rows of one function.

use crate::emit::relax::{Buffer, Label, Pos};
use crate::emit::{EmitError, SidecarRows};
use crate::ir::loops::NO_LOOP;
use crate::plan::planned_function::Function;
use crate::plan::types::RegionPlan;
use crate::x86::insn::{Insn, InsnId};
use iced_x86::{OpKind, Register};
use mgz_abi::module_note::NO_DISPLACEMENT;
use mgz_annotations_schema::sidecar::{
    Gather, Loop, NO_RECORD, NONE, PtWrite, REG_NONE, REG_RIP, Record, Region, Site, SiteFlags,
    SiteKind,
};

/// Rows of one function. Addresses in the clone are the offsets in `record_at` (per record), in
/// `copy_at` (of instructions that do not start at their labels, in order) and in `ptwrites`.
pub fn sidecar_rows(
    function: &Function,
    record_at: &[Pos],
    copy_at: &[(InsnId, Pos)],
    resolved: &Buffer,
    ptwrites: Vec<PtWrite>,
) -> Result<SidecarRows, EmitError> {
    let count = |of: fn(&RegionPlan) -> usize| function.plan.regions.iter().map(of).sum();
    let mut rows = SidecarRows {
        sites: Vec::with_capacity(count(|r| r.sites.len())),
        regions: Vec::with_capacity(function.plan.regions.len()),
        records: Vec::with_capacity(count(|r| r.records.len())),
        ptwrites,
        gathers: Vec::with_capacity(function.plan.gathers.len()),
        loops: loops(function),
    };
    // Sites come in the order of their instructions, and so do their blocks.
    let (mut block, mut copy_at) = (0, copy_at);
    for (number, region) in function.plan.regions.iter().enumerate() {
        rows.regions.push(Region {
            function: 0,
            first_record: rows.records.len() as u32,
            record_count: region.records.len() as u32,
            first_site: rows.sites.len() as u32,
            site_count: region.sites.len() as u32,
            implied_const: region.implied_const,
        });
        for plan in &region.records {
            let clone_ip = resolved
                .offset(*record_at.get(rows.records.len()).ok_or(EmitError::Record)?)
                .into();
            let ip = function.insn(plan.at).ip;
            rows.records.push(Record {
                region: number as u32,
                slots: u32::from(!plan.second),
                clone_ip,
                ip,
            });
        }
        for plan in &region.sites {
            let insn = function.insn(plan.insn);
            while function
                .cfg
                .blocks
                .get(block)
                .is_some_and(|b| b.insns.end <= plan.insn.0)
            {
                block += 1;
            }
            while copy_at.first().is_some_and(|c| c.0 < plan.insn) {
                copy_at = &copy_at[1..];
            }
            let copy = copy_at
                .first()
                .filter(|c| c.0 == plan.insn)
                .map_or(resolved.place(Label(plan.insn.0)), |c| c.1);
            let mut site = Site {
                function: 0,
                region: number as u32,
                location: NONE,
                in_loop: function
                    .loops
                    .of_block
                    .get(block)
                    .map_or(0, |&l| if l == NO_LOOP { 0 } else { l + 1 }),
                size: plan.size,
                ip: insn.ip,
                clone_ip: resolved.offset(copy).into(),
                disp: plan.disp,
                stride: plan.stride,
                origin: plan.origin,
                class: plan.class,
                kind: plan.kind as u8,
                flags: plan.flags,
                reason: plan.reason,
                a: plan.a,
                b: plan.b,
                scale: plan.scale,
                ..Site::default()
            };
            literals(&mut site, insn, &rows.sites);
            rows.sites.push(site);
            if plan.kind == SiteKind::Gather
                && let Some(g) = function.plan.gathers.iter().find(|g| g.insn == plan.insn)
            {
                rows.gathers.push(Gather {
                    site: rows.sites.len() as u32 - 1,
                    lanes: g.lanes.into(),
                    mask_bytes: g.mask_bytes.into(),
                    index_bytes: g.index_bytes.into(),
                });
            }
        }
    }
    link_origins(function, &mut rows.sites);
    Ok(rows)
}

/// By record, the constant that is added to its payload for the address of the last load that needs
/// no other record: [`ModuleNote::displacements`](mgz_abi::module_note::ModuleNote::displacements).
/// One record may stand for several loads, and the last one is the last access to its line.
pub fn displacements(rows: &SidecarRows) -> Vec<i32> {
    let mut all = vec![NO_DISPLACEMENT; rows.records.len()];
    const NOT_ALONE_FLAGS: u8 = SiteFlags::STORE
        | SiteFlags::IMPLIED
        | SiteFlags::UNRECORDED
        | SiteFlags::STATIC
        | SiteFlags::ADDR32;
    let alone = |site: &&Site| {
        site.kind == SiteKind::Plain as u8
            && site.a != NO_RECORD
            && site.b == NO_RECORD
            && site.flags & NOT_ALONE_FLAGS == 0
    };
    for region in &rows.regions {
        let sites = region.first_site..region.first_site + region.site_count;
        for site in rows.sites[sites.start as usize..sites.end as usize]
            .iter()
            .filter(alone)
        {
            let record = region.first_record + u32::from(site.a);
            all[record as usize] = i32::try_from(site.disp).unwrap_or(NO_DISPLACEMENT);
        }
    }
    all
}

/// Stores the origins of addresses: the sites of the load instructions that the plan gives.
fn link_origins(function: &Function, sites: &mut [Site]) {
    let plans = || function.plan.regions.iter().flat_map(|r| &r.sites);
    if plans().all(|p| p.origin_insn.is_none()) {
        return;
    }
    let insns: Vec<u32> = plans().map(|p| p.insn.0).collect();
    for (number, plan) in plans().enumerate() {
        let Some(from) = plan.origin_insn else {
            continue;
        };
        let at = insns.partition_point(|&insn| insn < from.0);
        if insns.get(at) == Some(&from.0) {
            sites[number].origin_site = at as i64 - number as i64;
        }
    }
}

/// The loops of a function, with numbers within the function.
fn loops(function: &Function) -> Vec<Loop> {
    let of = |l: &crate::ir::loops::Loop| Loop {
        function: 0,
        parent: l.parent,
        location: NONE,
        header: function
            .insn(InsnId(function.cfg.blocks[l.header as usize].insns.start))
            .ip,
        // The last back edge in memory is the loop's own; others come from `continue`.
        latch: l
            .latches
            .iter()
            .map(|&b| {
                function
                    .insn(InsnId(function.cfg.blocks[b as usize].insns.end - 1))
                    .ip
            })
            .max()
            .unwrap_or(0),
    };
    function.loops.all.iter().map(of).collect()
}

/// The operand as encoded. For string instructions, which encode none, the pointer register.
/// `before`: the sites so far, some of which may be of the same instruction.
fn literals(site: &mut Site, insn: &Insn, before: &[Site]) {
    let inst = &insn.inst;
    let plain = matches!(inst.memory_base(), Register::None)
        && matches!(inst.memory_index(), Register::None);
    if plain && !inst.op_kinds().any(|k| k == OpKind::Memory) {
        let same = |s: &&Site| s.ip == site.ip && (s.flags ^ site.flags) & SiteFlags::STORE == 0;
        let nth = before.iter().rev().take(4).filter(same).count();
        (
            site.op_base,
            site.op_index,
            site.op_scale,
            site.op_disp,
            site.op_seg,
        ) = crate::x86::operands::literals(insn, site.flags & SiteFlags::STORE != 0, nth);
        return;
    }
    let number = |r: Register| match r {
        Register::None => REG_NONE,
        Register::RIP | Register::EIP => REG_RIP,
        r => r.full_register().number() as u8,
    };
    site.op_seg = match inst.segment_prefix() {
        Register::FS => 1,
        Register::GS => 2,
        _ => 0,
    };
    site.op_base = number(inst.memory_base());
    site.op_index = number(inst.memory_index());
    site.op_scale = inst.memory_index_scale() as u8;
    site.op_disp = inst.memory_displacement64() as i64;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One record gives the addresses of a node's `key`, `left` and `right`; there are also a load
    /// that needs two records, and a store.
    #[test]
    fn the_last_load_of_a_record_is_what_leaves_its_line() {
        let site = |a, b, disp, flags| Site {
            kind: SiteKind::Plain as u8,
            a,
            b,
            disp,
            flags,
            ..Site::default()
        };
        let rows = SidecarRows {
            sites: vec![
                site(0, NO_RECORD, 0, 0),
                site(0, NO_RECORD, 8, 0),
                site(0, NO_RECORD, 16, 0),
                site(0, NO_RECORD, 24, SiteFlags::STORE),
                site(1, 0, 32, 0),
            ],
            regions: vec![Region {
                record_count: 2,
                site_count: 5,
                ..Region::default()
            }],
            records: vec![Record::default(); 2],
            ..SidecarRows::default()
        };
        assert_eq!(displacements(&rows), [16, NO_DISPLACEMENT]);
    }
}
