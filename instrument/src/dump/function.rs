//! A function after analysis: blocks, loads with their classes, the recording plan.

use crate::dump::instruction_text::text;
use crate::ir::{Block, BlockId};
use crate::plan::planned_function::Function;
use crate::plan::types::{Payload, RecordPlan, RegionPlan, SitePlan};
use crate::x86::regs::{Gpr, RegSet};
use iced_x86::Register;
use mgz_annotations_schema::sidecar::{
    CLASS_CONSTANT, CLASS_STRIDED, NO_RECORD, SiteFlags, reason,
};
use std::fmt::Write;

/// The name of a general purpose register.
pub(super) fn register(number: u8) -> String {
    let all = Register::RAX as u32..=Register::R15 as u32;
    let found = Register::values()
        .find(|r| all.contains(&(*r as u32)) && r.number() == usize::from(number));
    found.map_or_else(
        || format!("r?{number}"),
        |r| format!("{r:?}").to_lowercase(),
    )
}

fn registers(set: RegSet) -> String {
    let names: Vec<String> = set.iter().map(|Gpr(n)| register(n)).collect();
    names.join(",")
}

fn blocks(ids: &[BlockId]) -> String {
    let numbers: Vec<String> = ids.iter().map(|b| b.0.to_string()).collect();
    numbers.join(" ")
}

fn class(site: &SitePlan) -> String {
    match site.class {
        CLASS_CONSTANT => "constant".into(),
        CLASS_STRIDED if site.flags & SiteFlags::STRIDE_KNOWN != 0 => {
            format!("strided by {}", site.stride)
        }
        CLASS_STRIDED => "strided by an unknown number".into(),
        _ => "irregular".into(),
    }
}

fn payload(function: &Function, record: &RecordPlan) -> String {
    match record.payload {
        Payload::Reg(Gpr(n)) => register(n),
        Payload::Address => format!("address of {:#x}", function.insn(record.of).ip),
        Payload::Nothing => "nothing".into(),
        Payload::Half(h) => format!("bytes {} of vector {}", h.half * 8, h.vector),
        Payload::Mask(n) => format!("mask {n}"),
        Payload::Count { flags: true } => "counter".into(),
        Payload::Count { flags: false } => "counter, flags kept".into(),
    }
}

/// Formula of a load's address from the records.
fn formula(site: &SitePlan) -> String {
    if site.flags & SiteFlags::IMPLIED != 0 {
        return "implied".into();
    }
    if site.flags & SiteFlags::UNRECORDED != 0 {
        let why = reason::NAMES.get(usize::from(site.reason)).copied();
        return format!("not recorded ({})", why.unwrap_or("?"));
    }
    let mut text = format!("{:?}", site.kind);
    for (number, factor) in [(site.a, 1), (site.b, site.scale)] {
        if number != NO_RECORD {
            let _ = write!(text, " record {number}");
            if factor > 1 {
                let _ = write!(text, " * {factor}");
            }
        }
    }
    if site.disp != 0 {
        let _ = write!(text, " {:+}", site.disp);
    }
    text
}

fn block(out: &mut String, function: &Function, number: usize, block: &Block) {
    let _ = write!(out, "  block {number}, next: {}", blocks(&block.succs));
    let entered = if block.external_entry {
        "; entered from elsewhere"
    } else {
        ""
    };
    let _ = writeln!(out, "{entered}");
    for i in block.insns.clone() {
        let insn = &function.cfg.insns[i as usize];
        let free = match insn.dead {
            RegSet::EMPTY => String::new(),
            set => format!("free {}", registers(set)),
        };
        let line = format!("    {:6x}  {:44} {free}", insn.ip, text(&insn.inst));
        let _ = writeln!(out, "{}", line.trim_end());
    }
}

fn region(out: &mut String, function: &Function, number: usize, region: &RegionPlan) {
    let _ = writeln!(out, "  region {number}");
    for (n, record) in region.records.iter().enumerate() {
        let _ = writeln!(
            out,
            "    record {n} {} {:#x}: {}{}",
            if record.after { "behind" } else { "before" },
            function.insn(record.at).ip,
            payload(function, record),
            if record.second {
                ", in the slot of the one before"
            } else {
                ""
            }
        );
    }
    for site in &region.sites {
        let _ = writeln!(
            out,
            "    {} at {:#x}: {}, {} bytes, {}",
            if site.flags & SiteFlags::STORE != 0 {
                "store"
            } else {
                "load"
            },
            function.insn(site.insn).ip,
            class(site),
            site.size,
            formula(site)
        );
    }
}

/// Appends a function with its plan.
pub fn dump_function(out: &mut String, function: &Function) {
    for (number, b) in function.cfg.blocks.iter().enumerate() {
        block(out, function, number, b);
    }
    for table in &function.tables {
        let targets: Vec<String> = table.targets.iter().map(|t| format!("{t:#x}")).collect();
        let _ = writeln!(
            out,
            "  jump table at {:#x} for {:#x}: {}",
            table.table,
            function.insn(table.jump).ip,
            targets.join(" ")
        );
    }
    let patching = &function.patching;
    if !patching.landings.is_empty() {
        let _ = writeln!(out, "  indirect jumps may lead to {:x?}", patching.landings);
    }
    if patching.blind {
        *out += "  an indirect jump may lead anywhere\n";
    }
    for (number, r) in function.plan.regions.iter().enumerate() {
        region(out, function, number, r);
    }
    for gather in &function.plan.gathers {
        let _ = writeln!(
            out,
            "  gather at {:#x}: {} lanes, index of {} bytes, mask elements of {}",
            function.insn(gather.insn).ip,
            gather.lanes,
            gather.index_bytes,
            gather.mask_bytes
        );
    }
    let counts = &function.plan.implicit;
    if counts.pops + counts.rets + counts.leaves > 0 {
        let _ = writeln!(
            out,
            "  implicit stack reads: {} pop, {} ret, {} leave",
            counts.pops, counts.rets, counts.leaves
        );
    }
}
