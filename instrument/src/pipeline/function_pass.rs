//! Pass 2: one function from bytes to [`crate::plan::planned_function::Function`].

use crate::analyze::dataflow::Flow;
use crate::analyze::liveness::Effects;
use crate::analyze::{liveness, unread_values};
use crate::common::skip_reason::LeftReason;
use crate::discover::code_or_data;
use crate::discover::code_or_data::Jumps;
use crate::discover::recover::{
    calls_itself_inside, is_blind, landings, recover, recover_again, settle, table,
};
use crate::discover::scan::pads_of;
use crate::ir::FunctionId;
use crate::ir::cfg::{Entries, Graph};
use crate::ir::jump_table::JumpTable;
use crate::ir::loops::Loops;
use crate::patch::faulting::Care;
use crate::patch::space;
use crate::patch::space::Code;
use crate::plan::cursor::{Stays, View};
use crate::plan::planned_function::Function;
use crate::plan::{cursor, plan};
use crate::program::{Input, Options, Program, sanitizers, syscalls};
use crate::x86::decode::Source;
use crate::x86::effects::Facts;
use crate::x86::insn::InsnId;
use iced_x86::InstructionInfoFactory;
use mgz_abi::module_note::{FLAVOUR_PT, FLAVOUR_SOFT};
use mgz_elf::symbols::merge;
use std::ops::Range;

/// Analyses a function that pass 1 did not leave.
pub fn analyze(
    input: &Input,
    program: &Program,
    id: FunctionId,
    options: &Options,
) -> Result<Function, LeftReason> {
    let info = program.function(id);
    // Not selected code may still have system calls in it that need hooks.
    let unselected = info.left == Some(LeftReason::NotSelected) && input.hook_calls;
    if let Some(reason) = info.left.filter(|_| !unselected) {
        return Err(reason);
    }
    let bytes = input.slice(&info.range).ok_or(LeftReason::NoBytes)?;
    let pads = pads_of(input, info);
    if pads
        .iter()
        .zip(pads.iter().skip(1))
        .any(|(p, q)| q.0.start < p.0.end)
        || pads.iter().any(|p| !info.range.contains(&p.1))
    {
        return Err(LeftReason::Unwind);
    }
    let mut entries = Entries {
        called: info.inner().called.clone(),
        outside: info.inner().branched.clone(),
        pads,
        suspected: info.suspected(),
    };
    let mut certain: Vec<u64> = entries
        .called
        .iter()
        .chain(&entries.outside)
        .copied()
        .collect();
    certain.extend(entries.pads.iter().map(|p| p.1));
    let source = Source {
        bytes,
        base: info.range.start,
        entries: certain,
    };
    let body = source.decode()?;
    if body
        .insns
        .iter()
        .any(|i| calls_itself_inside(i, &info.range))
    {
        return Err(LeftReason::Unsupported(
            "calls into its own middle, so it may compute with its return address",
        ));
    }
    let relocated = input.relocated_in(&info.range);
    if !relocated.is_empty()
        && body
            .insns
            .iter()
            .any(|i| relocated.iter().any(|&at| at < i.next() && i.ip < at + 8))
    {
        return Err(LeftReason::Unsupported(
            "the loader changes its instructions (text relocations)",
        ));
    }
    let mut factory = InstructionInfoFactory::new();
    let again = match &info.course {
        Some(course) => recover_again(course, body, &info.range, &entries, &info.inner().words),
        None => Err(body),
    };
    let (mut graph, mut found) = again.unwrap_or_else(|body| {
        let all = recover(
            input,
            body,
            &source,
            &info.range,
            &entries,
            &info.inner().words,
            &mut factory,
        );
        (all.graph, all.found)
    });
    if graph.blocks.is_empty() || graph.insns[0].ip != info.range.start {
        return Err(LeftReason::Undecodable);
    }
    let mut room = space::behind(input, program, info, &graph);
    let anywhere = input.shows_faults && options.flavour == FLAVOUR_PT;
    let mut aimed = [&info.inner().doubted[..], &info.inner().aimed].concat();
    aimed.sort_unstable();
    let mut data = program.data_in(&info.range).to_vec();
    let sure_blocks = |graph: &Graph, data: &[Range<u64>], factory: &mut InstructionInfoFactory| {
        let jumps = Jumps::of(graph, factory);
        (
            code_or_data::sure(graph, info, &entries.pads, data, &jumps, factory),
            jumps,
        )
    };
    let (mut sure, mut jumps) = sure_blocks(&graph, &data, &mut factory);
    let code = Code {
        insns: &graph.insns,
        blocks: &graph.blocks,
        room: &room,
        data: &data,
        aimed: &aimed,
    };
    let doubted =
        !info.inner().doubted.is_empty() || !info.inner().words.is_empty() || !data.is_empty();
    let taken_back = options.flavour == FLAVOUR_SOFT && input.own.stays();
    let care = input.shows_faults.then_some(Care {
        own: &input.own,
        taken_back,
    });
    let later = space::later(code, &graph, &sure, doubted, care, anywhere);
    if !later.is_empty() {
        entries.outside.extend(later);
        entries.outside.sort_unstable();
        entries.outside.dedup();
        let again = recover(
            input,
            source.decode()?,
            &source,
            &info.range,
            &entries,
            &info.inner().words,
            &mut factory,
        );
        (graph, found) = (again.graph, again.found);
        room = space::behind(input, program, info, &graph);
        (sure, jumps) = sure_blocks(&graph, &data, &mut factory);
    }
    let hooks: Vec<InsnId> = match input.hook_calls {
        true => syscalls::hooks(&graph),
        false => Vec::new(),
    };
    if unselected && hooks.is_empty() {
        return Err(LeftReason::NotSelected);
    }
    // Where handlers may go on anywhere, with any register, none may be lost. (Soft probes borrow one for an address.)
    let owned = options.flavour == FLAVOUR_PT && !input.shows_faults;
    let facts = Facts::of(&graph.insns, info.range.start, owned, &mut factory);
    let (uses, accesses) = (&facts.uses[..], &facts.accesses);
    settle(input, &mut graph, uses, &mut found, &mut factory);
    let loops = Loops::find(&graph);
    if !input.shows_faults && info.exact && info.inner().called.is_empty() {
        let effects = Effects::of(input, &graph, &loops, uses);
        if liveness::mark(input, &mut graph, &effects, uses) {
            unread_values::mark(&mut graph, &effects.steps, uses, accesses);
        }
    }
    let mut flow = Flow::solve(input, &graph, &loops, &facts, options.stores);
    let mut landings = landings(&graph, &entries, info, &found);
    let computes = info.computed || jumps.compute(&graph, info, &found, &data, &mut factory);
    let blind_start =
        info.computed || code_or_data::computes_from(&graph, &facts.takers, &mut factory);
    let unsure = graph.blocks.iter().zip(&sure).filter(|(_, sure)| !**sure);
    data.extend(unsure.map(|(b, _)| {
        graph.insns[b.insns.start as usize].ip..graph.insns[b.insns.end as usize - 1].end()
    }));
    merge(&mut data);
    landings.retain(|at| !crate::util::ranges::overlaps(&data, &(*at..at + 1)));
    for &at in &landings {
        if let Some(b) = graph.block_at(at) {
            graph.blocks[b.0 as usize].external_entry = true;
        }
    }
    let blind = computes
        || blind_start
        || is_blind(
            &graph,
            |t| !t.targets.is_empty(),
            &found,
            !info.inner().words.is_empty(),
            &mut factory,
        );
    let tables: Vec<JumpTable> = found.iter().filter(|t| t.copyable).map(table).collect();
    let stays = if options.flavour == FLAVOUR_SOFT && !unselected {
        cursor::find(&View {
            insns: &graph.insns,
            blocks: &graph.blocks,
            tables: &tables,
            uses,
            accesses,
            stores: options.stores,
        })
    } else {
        Stays::default()
    };
    let mut plan = plan(&graph, &facts, options, &stays, |block, insn, n, access| {
        flow.classify(block, insn, n, access)
    });
    if unselected {
        plan = crate::plan::Plan::default();
    }
    let (returned_to, quits) = if input.shows_returns {
        sanitizers::calls(input, program, &graph.insns)
    } else {
        Default::default()
    };
    Ok(Function {
        id,
        range: info.range.clone(),
        hooks,
        returned_to,
        quits,
        tables,
        insns: graph.insns,
        places: graph.places,
        uses: facts.into_uses(),
        blocks: graph.blocks,
        blind,
        blind_start,
        anywhere,
        landings,
        data,
        aimed,
        room,
        regions: plan.regions,
        gathers: plan.gathers,
        implicit: plan.implicit,
        stays,
        loops,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discover::recover::{recover, recover_again};
    use crate::ir::jump_table::Found;
    use crate::program::SegmentBytes;
    use crate::x86::decode::Body;
    use crate::x86::decode::make;
    use iced_x86::{Decoder, DecoderOptions};

    #[test]
    fn tables_are_found_again_only_if_nothing_new_enters() {
        // cmp edi, 1; ja 1018; mov eax, edi; jmp [2000 + rax*8]; ret; ret; ret. Three words, one too many for the table.
        let code = [
            0x83, 0xff, 0x01, 0x77, 0x0b, 0x89, 0xf8, 0xff, 0x24, 0xc5, 0x00, 0x20, 0, 0, 0xc3,
            0xc3, 0xc3,
        ];
        let range = 0x1000..0x1000 + code.len() as u64;
        let words: Vec<(u64, u64)> = vec![(0x2000, 0x100e), (0x2008, 0x100f), (0x2010, 0x1010)];
        let table: Vec<u8> = words.iter().flat_map(|w| w.1.to_le_bytes()).collect();
        let segment = |vaddr, bytes, executable| SegmentBytes {
            vaddr,
            bytes,
            writable: false,
            executable,
        };
        let input = Input {
            segments: vec![
                segment(0x1000, &code[..], true),
                segment(0x2000, &table[..], false),
            ],
            exec_ranges: vec![range.clone()],
            ..Input::default()
        };
        let source = Source {
            bytes: &code,
            base: 0x1000,
            entries: Vec::new(),
        };
        let body = source.decode().unwrap();
        let mut factory = InstructionInfoFactory::new();
        let bare = Entries::default();
        let course = recover(
            &input,
            body.clone(),
            &source,
            &range,
            &bare,
            &[],
            &mut factory,
        )
        .course
        .expect("the table has a bound");
        let targets = |found: &[Found]| found.iter().map(|f| f.targets.clone()).collect::<Vec<_>>();
        assert_eq!(targets(&course.found), [[0x100e, 0x100f]]);
        let shape = |graph: &Graph| {
            graph
                .blocks
                .iter()
                .map(|b| {
                    (
                        graph.insns[b.insns.start as usize].ip,
                        b.succs.clone(),
                        b.external_entry,
                    )
                })
                .collect::<Vec<_>>()
        };
        let entered = Entries {
            suspected: vec![0x1005],
            ..Entries::default()
        };
        for (entries, words, same) in [
            (&bare, &words[..0], true),
            (&bare, &words[..2], true),
            (&bare, &words[..], false),
            (&entered, &words[..2], false),
        ] {
            let whole = recover(
                &input,
                body.clone(),
                &source,
                &range,
                entries,
                words,
                &mut factory,
            );
            let again = recover_again(&course, body.clone(), &range, entries, words);
            assert_eq!(again.is_ok(), same, "{} words", words.len());
            if let Ok((graph, found)) = again {
                assert_eq!(
                    (shape(&graph), targets(&found)),
                    (shape(&whole.graph), targets(&whole.found))
                );
            }
        }
        assert!(
            recover_again(
                &course,
                Body::of(body.insns[1..].to_vec()),
                &range,
                &bare,
                &[]
            )
            .is_err(),
            "other instructions"
        );
    }

    #[test]
    fn instructions_that_the_loader_changes_stay() {
        // mov rax, imm64; ret; two bytes of nothing
        let code = [0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8, 0xc3, 0xcc, 0xcc];
        let range = 0x1000..0x1000 + code.len() as u64;
        for (at, stays) in [
            (0x0ff8, false),
            (0x0ff9, true),
            (0x1002, true),
            (0x100a, true),
            (0x100d, false),
        ] {
            let input = Input {
                segments: vec![SegmentBytes {
                    vaddr: 0x1000,
                    bytes: &code,
                    writable: false,
                    executable: true,
                }],
                exec_ranges: vec![range.clone()],
                symbols: vec![crate::program::FuncSymbol {
                    name: "f".into(),
                    addr: 0x1000,
                    size: 13,
                }],
                relocated: vec![0x900, at, 0x2000],
                pie: true,
                ..Input::default()
            };
            let options = Options::new(FLAVOUR_PT);
            let program = crate::discover::scan::discover(&input, &options);
            assert_eq!(
                analyze(&input, &program, FunctionId(0), &options).is_err(),
                stays,
                "{at:#x}"
            );
        }
    }

    #[test]
    fn only_functions_of_known_extent_offer_registers_and_none_where_handlers_look() {
        // mov rcx, [rdi]; mov rax, [rcx]; ret
        let code = [0x48, 0x8b, 0x0f, 0x48, 0x8b, 0x01, 0xc3];
        let dead = |size, shows_faults| {
            let input = Input {
                segments: vec![SegmentBytes {
                    vaddr: 0x1000,
                    bytes: &code,
                    writable: false,
                    executable: true,
                }],
                exec_ranges: vec![0x1000..0x1007],
                symbols: vec![crate::program::FuncSymbol {
                    name: "f".into(),
                    addr: 0x1000,
                    size,
                }],
                shows_faults,
                ..Input::default()
            };
            let options = Options::new(FLAVOUR_SOFT);
            let program = crate::discover::scan::discover(&input, &options);
            let function = analyze(&input, &program, FunctionId(0), &options).unwrap();
            function.insns.iter().map(|i| i.dead.0).collect::<Vec<_>>()
        };
        assert_eq!(dead(7, false), [0b11, 0b01, 0b10]);
        assert_eq!(dead(0, false), [0; 3], "where it ends is a guess");
        assert_eq!(dead(7, true), [0; 3]);
    }

    #[test]
    fn a_call_for_the_return_address_is_seen() {
        let insn =
            |bytes: &[u8]| make(Decoder::with_ip(64, bytes, 0x1010, DecoderOptions::NONE).decode());
        let range = 0x1000..0x1020;
        assert!(
            calls_itself_inside(&insn(&[0xe8, 0, 0, 0, 0]), &range),
            "call to the next instruction"
        );
        assert!(
            !calls_itself_inside(&insn(&[0xe8, 0xeb, 0xff, 0xff, 0xff]), &range),
            "recursion"
        );
        assert!(
            !calls_itself_inside(&insn(&[0xe8, 0, 1, 0, 0]), &range),
            "another function"
        );
    }
}
