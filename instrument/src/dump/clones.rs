//! A function's clone in the rewritten file: its instructions, unwind rows, exception table, and
//! the jumps that lead into it.

use crate::dump::function::register;
use crate::dump::instruction_text::text;
use crate::unwind::Tables;
use gimli::{BaseAddresses, CieOrFde, EhFrame, LittleEndian, UnwindContext, UnwindSection};
use iced_x86::{Decoder, DecoderOptions};
use mgz_abi::address_map::{AddrMap, NO_REG, ProbeState};
use mgz_abi::module_note::{NOTE_MODULE, NOTE_NAME};
use mgz_annotations_schema::Sidecar;
use mgz_annotations_schema::sidecar::Function as Row;
use mgz_elf::{Elf, bytes};
use std::fmt::Write;

/// State of a probe as text; empty if the probe is idle.
fn state(state: ProbeState) -> String {
    let mut all = Vec::new();
    if state.base_reg != NO_REG {
        all.push(format!("cursor in {}", register(state.base_reg)));
    }
    if state.slots_done != 0 {
        all.push(format!("{} written", state.slots_done));
    }
    if state.base_ahead != 0 {
        all.push(format!("{} ahead", state.base_ahead));
    }
    if state.flags != 0 {
        all.push(format!("flags {:#x}", state.flags));
    }
    let saved = state.saved.iter().filter(|s| s[0] != NO_REG);
    all.extend(saved.map(|s| format!("{} spilled", register(s[0]))));
    all.join(", ")
}

fn instructions(out: &mut String, new: &Elf, sidecar: &Sidecar, row: &Row) -> Option<()> {
    let map = AddrMap::new(&sidecar.map)?;
    let holds = |n: &usize| {
        let function = map.function(*n);
        function.is_some_and(|f| u64::from(f.clone_start) == row.clone_start)
    };
    for step in map.walk((0..map.len()).find(holds)?)? {
        let content = new.at(step.clone)?.get(..step.clone_len.into())?;
        let inst = Decoder::with_ip(64, content, step.clone, DecoderOptions::NONE).decode();
        let origin = match step.orig_len {
            0 => "probe".to_owned(),
            _ => format!("{:x}", step.orig),
        };
        let note = map.state(step.state).map_or_else(String::new, state);
        let line = format!(
            "    {:8x} {origin:>6}  {:44} {note}",
            step.clone,
            text(&inst)
        );
        let _ = writeln!(out, "{}", line.trim_end());
    }
    Some(())
}

fn unwind_rows(out: &mut String, new: &Elf, row: &Row) -> Option<()> {
    let section = new.section(".eh_frame")?;
    let frame = EhFrame::new(new.section_bytes(section)?, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(section.addr);
    let lsdas = Tables::read(new).ok()?.lsdas;
    let mut entries = frame.entries(&bases);
    while let Some(entry) = entries.next().ok()? {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let fde = partial.parse(EhFrame::cie_from_offset).ok()?;
        // One entry may describe the clones of several functions.
        if fde.initial_address() >= row.clone_end || fde.end_address() <= row.clone_start {
            continue;
        }
        let mut context = UnwindContext::new();
        let mut table = fde.rows(&frame, &bases, &mut context).ok()?;
        while let Some(unwind) = table.next_row().ok()? {
            if unwind.start_address() >= row.clone_end || unwind.end_address() <= row.clone_start {
                continue;
            }
            let mut saved: Vec<String> = unwind
                .registers()
                .map(|(register, rule)| {
                    let name = gimli::X86_64::register_name(*register).unwrap_or("?");
                    format!("{name} {rule:?}")
                })
                .collect();
            saved.sort();
            let (from, to) = (unwind.start_address(), unwind.end_address());
            let cfa = format!("{:?}", unwind.cfa());
            let _ = writeln!(out, "    {from:x}..{to:x} {cfa} {}", saved.join(", "));
        }
        if let Some(gimli::Pointer::Direct(at)) = fde.lsda() {
            let _ = writeln!(out, "  exception table of the clone");
            for site in &lsdas.get(&at)?.sites {
                let _ = writeln!(
                    out,
                    "    {:x}..{:x} landing pad {:x} action {}",
                    site.start, site.end, site.pad, site.action
                );
            }
        }
    }
    Some(())
}

/// The jumps from the original into a clone, as `(at, to)`: in the PT flavour those in the file, in
/// the soft flavour those of the table that the runtime writes.
fn entry_jumps(old: &Elf, new: &Elf, row: &Row) -> Option<Vec<(u64, u64)>> {
    let notes = new.notes();
    let note = notes
        .iter()
        .find(|n| n.0 == NOTE_NAME && n.1 == NOTE_MODULE)?;
    let (table, count) = (bytes::u64(note.2, 32)?, bytes::u64(note.2, 40)?);
    let content = new.at(table).unwrap_or(&[]);
    let listed = content
        .chunks_exact(8)
        .take(count as usize)
        .filter_map(|p| Some((bytes::u32(p, 0)?.into(), bytes::u32(p, 4)?.into())));
    let written = (row.start..row.end).filter_map(|at| {
        let jump = new.at(at)?.get(..5)?;
        let differs = old.at(at)?.get(..5)? != jump && jump[0] == 0xe9;
        let to = at.wrapping_add_signed(i64::from(bytes::u32(jump, 1)? as i32)) + 5;
        (differs && (row.clone_start..row.clone_end).contains(&to)).then_some((at, to))
    });
    let mut all: Vec<(u64, u64)> = listed
        .filter(|p: &(u64, u64)| (row.start..row.end).contains(&p.0))
        .chain(written)
        .collect();
    all.sort_unstable();
    all.dedup();
    Some(all)
}

/// Appends the rewritten file's data of a function.
pub(super) fn write_clone_dump(
    out: &mut String,
    old: &Elf,
    new: &Elf,
    sidecar: &Sidecar,
    row: &Row,
) {
    let _ = writeln!(out, "  clone {:#x}..{:#x}", row.clone_start, row.clone_end);
    if instructions(out, new, sidecar, row).is_none() {
        *out += "    (the address map ends early)\n";
    }
    for (at, to) in entry_jumps(old, new, row).unwrap_or_default() {
        let _ = writeln!(out, "  entry jump at {at:#x} to {to:#x}");
    }
    *out += "  unwind rows of the clone\n";
    if unwind_rows(out, new, row).is_none() {
        *out += "    (none that can be read)\n";
    }
}
