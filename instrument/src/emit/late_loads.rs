//! Loads that the original executes before it reaches an entry jump.
//!
//! Clones call clones, and translate pointers. But code without a clone calls the original. If its
//! start has no room for an entry jump, the original runs unrecorded up to the first one. Such
//! functions are reported, so that no trace claims to have all of their loads.

use crate::ir::BlockId;
use crate::plan::planned_function::Function;
use crate::x86::insn::{Insn, InsnId};
use iced_x86::FlowControl;
use mgz_annotations_schema::sidecar::SiteFlags;

/// True if the original may execute a load after control enters and before an entry jump.
/// `patches`: sorted addresses of the entry jumps. `by_pointers`: calls and jumps of clones through
/// pointers lead into the original (PT flavour). Otherwise only code without a clone does.
pub fn has_late_loads(function: &Function, patches: &[u64], by_pointers: bool) -> bool {
    let cfg = &function.cfg;
    let mut ways = vec![BlockId(0)];
    if by_pointers && cfg.insns.iter().any(|i| is_open(function, i)) {
        let landings = function.patching.landings.iter();
        ways.extend(landings.filter_map(|&at| function.block_at(at)));
        if function.patching.blind && has_loads(function) {
            return true;
        }
    }
    let mut seen = vec![false; cfg.blocks.len()];
    let mut loads: Option<Vec<InsnId>> = None;
    while let Some(BlockId(b)) = ways.pop() {
        if std::mem::replace(&mut seen[b as usize], true) {
            continue;
        }
        let block = &cfg.blocks[b as usize];
        let mut entered = false;
        for i in block.insns.clone() {
            let insn = &cfg.insns[i as usize];
            if patches.binary_search(&insn.ip).is_ok() {
                entered = true;
                break;
            }
            let loads = loads.get_or_insert_with(|| loads_of(function));
            if loads.binary_search(&InsnId(i)).is_ok() {
                return true;
            }
            // The code that runs there is unknown.
            let leaves = matches!(
                insn.flow,
                FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch
            ) && insn
                .direct_target()
                .is_none_or(|to| function.insn_at(to).is_none());
            if leaves || is_open(function, insn) && !function.patching.landings.is_empty() {
                return true;
            }
        }
        if !entered {
            ways.extend_from_slice(&block.succs);
        }
    }
    false
}

/// True if the instruction is an indirect jump whose table has no copy.
fn is_open(function: &Function, insn: &Insn) -> bool {
    let mut tables = function.tables.iter();
    insn.flow == FlowControl::IndirectBranch && !tables.any(|t| function.insn(t.jump).ip == insn.ip)
}

fn has_loads(function: &Function) -> bool {
    !loads_of(function).is_empty()
}

/// Instructions that load, in order.
fn loads_of(function: &Function) -> Vec<InsnId> {
    let sites = function.plan.regions.iter().flat_map(|r| &r.sites);
    let loads = sites.filter(|s| s.flags & SiteFlags::STORE == 0);
    let mut loads: Vec<InsnId> = loads.map(|s| s.insn).collect();
    loads.sort_unstable();
    loads.dedup();
    loads
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discover::scan::discover;
    use crate::ir::FunctionId;
    use crate::pipeline::function_pass::analyze;
    use crate::program::fixed_memory::FaultPolicy;
    use crate::program::{FuncSymbol, Input, InstrumentOptions, SegmentBytes};
    use mgz_abi::module_note::FLAVOUR_SOFT;

    const START: u64 = 0x1000;

    fn late(code: &[u8], patches: &[u64], by_pointers: bool) -> bool {
        let range = START..START + code.len() as u64;
        let input = Input {
            segments: vec![SegmentBytes {
                vaddr: START,
                bytes: code,
                writable: false,
                executable: true,
            }],
            exec_ranges: vec![range],
            symbols: vec![FuncSymbol {
                name: "f".into(),
                addr: START,
                size: code.len() as u64,
            }],
            ..Input::default()
        };
        let options = InstrumentOptions::new(FLAVOUR_SOFT);
        let program = discover(&input, &options);
        let faults = FaultPolicy::default();
        let f = analyze(&input, &program, FunctionId(0), &options, &faults).unwrap();
        has_late_loads(&f, patches, by_pointers)
    }

    #[test]
    fn loads_before_the_first_entry_jump_are_late() {
        // mov eax, [rdi]; ret
        let load = [0x8b, 0x07, 0xc3];
        assert!(late(&load, &[], false));
        assert!(!late(&load, &[START], false));
        // xor eax, eax; ret: there is no load.
        assert!(!late(&[0x31, 0xc0, 0xc3], &[], false));
        // test edi, edi; je 1007; mov eax, [rsi]; ret; mov eax, [rdx]; ret: a load on both paths.
        let ways = [0x85, 0xff, 0x74, 0x03, 0x8b, 0x06, 0xc3, 0x8b, 0x02, 0xc3];
        assert!(late(&ways, &[START + 4], false));
        assert!(!late(&ways, &[START + 4, START + 7], false));
        // A jump to other code may have any effect: jmp 2000
        assert!(late(&[0xe9, 0xfb, 0x0f, 0, 0], &[], false));
    }

    #[test]
    fn where_pointers_lead_into_the_original_any_load_is_late() {
        // mov eax, [rdi]; jmp rsi
        let code = [0x8b, 0x07, 0xff, 0xe6];
        assert!(late(&code, &[START], true));
        assert!(!late(&code, &[START], false));
    }
}
