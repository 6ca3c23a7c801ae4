//! Pass 2: one function from bytes to [`ir::Function`].

use crate::cfg::{Entries, Graph, KnownJump};
use crate::consumed;
use crate::dataflow::Flow;
use crate::disasm::{Body, Source};
use crate::discover::pads_of;
use crate::doubt::{self, Jumps};
use crate::elf::symbols::merge;
use crate::facts::{self, Facts};
use crate::freestanding;
use crate::functions::{FunctionInfo, Input, LeftReason, Options, Program};
use crate::ir::{Function, FunctionId, Insn, InsnId, JumpTable, RegSet};
use crate::liveness::{self, Effects, temporaries};
use crate::loops::Loops;
use crate::plan::plan;
use crate::regs::{RegUse, gpr};
use crate::risk::Care;
use crate::room::{self, Code};
use crate::sanitizers;
use crate::stay::{self, Stays, View};
use crate::tables::{self, Found, Known, is_indirect_jump};
use iced_x86::{Decoder, DecoderOptions, FlowControl, InstructionInfoFactory, Mnemonic};
use mgz_annotations_schema::abi::{FLAVOUR_PT, FLAVOUR_SOFT};
use std::ops::Range;

/// Rounds until tables and data words that point into the function explain each other.
const ROUNDS: usize = 8;
/// Instructions of another function that are looked at.
const OUTSIDE_LOOK: usize = 32;

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
    let mut room = room::behind(input, program, info, &graph);
    let anywhere = input.shows_faults && options.flavour == FLAVOUR_PT;
    let mut aimed = [&info.inner().doubted[..], &info.inner().aimed].concat();
    aimed.sort_unstable();
    let mut data = program.data_in(&info.range).to_vec();
    let sure_blocks = |graph: &Graph, data: &[Range<u64>], factory: &mut InstructionInfoFactory| {
        let jumps = Jumps::of(graph, factory);
        (
            doubt::sure(graph, info, &entries.pads, data, &jumps, factory),
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
    let later = room::later(code, &graph, &sure, doubted, care, anywhere);
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
        room = room::behind(input, program, info, &graph);
        (sure, jumps) = sure_blocks(&graph, &data, &mut factory);
    }
    let hooks: Vec<InsnId> = match input.hook_calls {
        true => freestanding::hooks(&graph),
        false => Vec::new(),
    };
    if unselected && hooks.is_empty() {
        return Err(LeftReason::NotSelected);
    }
    // Where handlers may go on anywhere, with any register, none may be lost. (Soft probes borrow one for an address.)
    let owned = options.flavour == FLAVOUR_PT && !input.shows_faults;
    let facts = Facts::of(&graph, info.range.start, owned, &mut factory);
    let (uses, accesses) = (&facts.uses[..], &facts.accesses);
    settle(input, &mut graph, uses, &mut found, &mut factory);
    let loops = Loops::find(&graph);
    if !input.shows_faults && info.exact && info.inner().called.is_empty() {
        let effects = Effects::of(input, &graph, &loops, uses);
        if liveness::mark(input, &mut graph, &effects, uses) {
            consumed::mark(&mut graph, &effects.steps, uses, accesses);
        }
    }
    let mut flow = Flow::solve(input, &graph, &loops, &facts, options.stores);
    let mut landings = landings(&graph, &entries, info, &found);
    let computes = info.computed || jumps.compute(&graph, info, &found, &data, &mut factory);
    let blind_start = info.computed || doubt::computes_from(&graph, &facts.takers, &mut factory);
    let unsure = graph.blocks.iter().zip(&sure).filter(|(_, sure)| !**sure);
    data.extend(unsure.map(|(b, _)| {
        graph.insns[b.insns.start as usize].ip..graph.insns[b.insns.end as usize - 1].end()
    }));
    merge(&mut data);
    landings.retain(|at| !doubt::overlaps(&data, &(*at..at + 1)));
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
        stay::find(&View {
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

fn table(t: &Found) -> JumpTable {
    JumpTable {
        load: InsnId(t.load as u32),
        jump: InsnId(t.jump as u32),
        table: t.table,
        form: t.form,
        targets: t.targets.clone(),
    }
}

/// Graph and jump tables of a function.
pub struct Recovery {
    /// The graph.
    pub graph: Graph,
    /// Its jump tables.
    pub found: Vec<Found>,
    /// What says so to [`recover_again`].
    pub course: Option<Course>,
}

/// How a function's jump tables were found.
#[derive(Clone, Debug)]
pub struct Course {
    /// Number of instructions.
    insns: usize,
    found: Vec<Found>,
    jumps: Vec<KnownJump>,
    /// Per round: the tables whose bounds were certain. Sorted, none overlap.
    spans: Vec<Vec<Range<u64>>>,
}

/// The same as [`recover`], which was asked before when nothing but landing pads was known of what enters the function: looking for tables takes
/// longest of all. Gives the instructions back if what is known now would have changed its course.
pub fn recover_again(
    course: &Course,
    body: Body,
    range: &Range<u64>,
    entries: &Entries,
    words: &[(u64, u64)],
) -> Result<(Graph, Vec<Found>), Body> {
    let explained = |spans: &Vec<Range<u64>>| words.iter().all(|w| is_in(spans, w.0));
    let same = course.insns == body.insns.len()
        && entries.called.is_empty()
        && entries.outside.is_empty()
        && entries.suspected.is_empty();
    if !same || !course.spans.iter().all(explained) {
        return Err(body);
    }
    // (No jump of it was blind, and words that name targets make none so.)
    Ok((
        Graph::build(body, range, entries, &course.jumps),
        course.found.clone(),
    ))
}

/// Builds the graph and finds its jump tables. Data words that point into the function are suspected entries, unless they are
/// entries of a table that was found; whether it is found may depend on that, so this is repeated until stable. `source`: what the instructions in `body` were decoded from.
pub fn recover(
    input: &Input,
    body: Body,
    source: &Source,
    range: &Range<u64>,
    entries: &Entries,
    words: &[(u64, u64)],
    factory: &mut InstructionInfoFactory,
) -> Recovery {
    let with_words = |explained: &dyn Fn(u64) -> bool| {
        let mut e = entries.clone();
        e.suspected
            .extend(words.iter().filter(|w| !explained(w.0)).map(|w| w.1));
        e.suspected.sort_unstable();
        e.suspected.dedup();
        e
    };
    if !body.insns.iter().any(is_indirect_jump) {
        return Recovery {
            graph: Graph::build(body, range, &with_words(&|_| false), &[]),
            found: Vec::new(),
            course: None,
        };
    }
    let (places, count) = (body.places.clone(), body.insns.len());
    // With words, more entries come and go, which takes another graph each time; else most graphs are made of the one before.
    let spare = if words.is_empty() {
        None
    } else {
        Some(body.clone())
    };
    let mut whole = Some(body);
    let mut body = || {
        whole
            .take()
            .or_else(|| spare.clone())
            .or_else(|| source.decode().ok())
            .unwrap_or_default()
    };
    let mut known = Known::default();
    for hopeful in [true, false] {
        let (mut jumps, mut current) = (Vec::new(), with_words(&|_| true));
        let mut course = Vec::new();
        let mut last: Option<Graph> = None;
        for _ in 0..ROUNDS {
            let graph = last
                .take()
                .and_then(|last| last.with_jumps(&places, range, &current, &jumps))
                .unwrap_or_else(|| Graph::build(body(), range, &current, &jumps));
            let found = tables::find(&graph, range, input, factory, hopeful, &mut known);
            let new_jumps = known_jumps(&graph, range, &found);
            let mut spans: Vec<Range<u64>> = found
                .iter()
                .filter(|t| t.certain)
                .map(Found::span)
                .collect();
            merge(&mut spans);
            let new = with_words(&|at| is_in(&spans, at));
            course.push(spans);
            if new.suspected == current.suspected && new_jumps == jumps {
                // A way that nothing reaches is none only if no jump leads who knows where.
                if hopeful && is_blind(&graph, |t| t.certain, &found, !words.is_empty(), factory) {
                    break;
                }
                let course = hopeful.then(|| Course {
                    insns: count,
                    found: found.clone(),
                    jumps,
                    spans: course,
                });
                return Recovery {
                    graph,
                    found,
                    course,
                };
            }
            if new.suspected == current.suspected && only_adds(&new_jumps, &jumps) {
                last = Some(graph);
            }
            (jumps, current) = (new_jumps, new);
        }
    }
    // No stable state: believe nothing.
    let all = with_words(&|_| false);
    let graph = Graph::build(body(), range, &all, &[]);
    let mut found = tables::find(&graph, range, input, factory, false, &mut known);
    found
        .iter_mut()
        .for_each(|t| (t.certain, t.copyable) = (false, false));
    let jumps = known_jumps(&graph, range, &found);
    Recovery {
        graph: Graph::build(body(), range, &all, &jumps),
        found,
        course: None,
    }
}

/// Whether an address is in one of some ranges, which are sorted and do not overlap.
fn is_in(ranges: &[Range<u64>], at: u64) -> bool {
    ranges
        .get(ranges.partition_point(|r| r.end <= at))
        .is_some_and(|r| r.start <= at)
}

/// Whether jumps have at least the targets that they had before.
fn only_adds(jumps: &[KnownJump], before: &[KnownJump]) -> bool {
    let has = |old: &KnownJump| {
        jumps
            .binary_search_by_key(&old.ip, |j| j.ip)
            .is_ok_and(|n| {
                old.targets
                    .iter()
                    .all(|t| jumps[n].targets.binary_search(t).is_ok())
            })
    };
    before.iter().all(has)
}

fn known_jumps(graph: &Graph, range: &Range<u64>, found: &[Found]) -> Vec<KnownJump> {
    let jump = |t: &Found| {
        let mut targets: Vec<u64> = t
            .targets
            .iter()
            .copied()
            .filter(|a| range.contains(a))
            .collect();
        targets.sort_unstable();
        targets.dedup();
        KnownJump {
            ip: graph.insns[t.jump].ip,
            targets,
            closed: t.copyable && t.closed,
        }
    };
    found.iter().map(jump).collect()
}

/// Whether what a register holds may be used at `at`, code of another function: an explicit read before a write, in the next few
/// instructions. A table's entry is a temporary of the compiler, so that more is not looked for.
fn read_at(input: &Input, at: u64, register: RegSet, factory: &mut InstructionInfoFactory) -> bool {
    let Some(bytes) = input.bytes_at(at) else {
        return true;
    };
    let mut left = register.0;
    let mut decoder = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE);
    for _ in 0..OUTSIDE_LOOK {
        if left == 0 || !decoder.can_decode() {
            break;
        }
        let inst = decoder.decode();
        let u = facts::uses(factory, &inst);
        if inst.is_invalid() || u.read.0 & left != 0 {
            return true;
        }
        left &= !u.kill.0;
        if inst.flow_control() != FlowControl::Next {
            break;
        }
    }
    false
}

/// Gives up copies of tables whose loaded entry lives on after the jump.
fn settle(
    input: &Input,
    graph: &mut Graph,
    uses: &[RegUse],
    found: &mut [Found],
    factory: &mut InstructionInfoFactory,
) {
    if !found
        .iter()
        .any(|t| t.copyable && t.tainted != RegSet::EMPTY)
    {
        return;
    }
    let live = temporaries(graph, uses);
    for t in found
        .iter_mut()
        .filter(|t| t.copyable && t.tainted != RegSet::EMPTY)
    {
        let block = graph.block_of(t.jump);
        let after = graph.blocks[block]
            .succs
            .iter()
            .fold(0, |l, s| l | live[s.0 as usize].0);
        let outside = t.targets.iter().filter(|a| graph.block_at(**a).is_none());
        if after & t.tainted.0 != 0
            || outside
                .clone()
                .any(|&a| read_at(input, a, t.tainted, factory))
        {
            t.copyable = false;
            graph.exits[block].leaves = true;
        }
    }
}

/// Block starts that unresolved indirect jumps may reach.
fn landings(graph: &Graph, entries: &Entries, info: &FunctionInfo, found: &[Found]) -> Vec<u64> {
    let spans: Vec<Range<u64>> = found
        .iter()
        .filter(|t| t.copyable)
        .map(Found::span)
        .collect();
    let words = info
        .inner()
        .words
        .iter()
        .filter(|w| !spans.iter().any(|s| s.contains(&w.0)))
        .map(|w| w.1);
    let tables = found
        .iter()
        .filter(|t| !t.copyable)
        .flat_map(|t| t.targets.iter().copied());
    let mut all: Vec<u64> = entries
        .suspected
        .iter()
        .copied()
        .chain(words)
        .chain(tables)
        .collect();
    all.sort_unstable();
    all.dedup();
    all.retain(|&at| at != info.range.start && graph.block_at(at).is_some());
    all
}

/// Whether there is an indirect jump whose targets nothing is known of, or less than is `enough`. A target that is read from memory whole is
/// known by the word there, where it is inside the function at all; one that is computed comes from a table.
fn is_blind(
    graph: &Graph,
    enough: impl Fn(&Found) -> bool,
    found: &[Found],
    words: bool,
    factory: &mut InstructionInfoFactory,
) -> bool {
    graph.blocks.iter().any(|block| {
        let jump = block.insns.end as usize - 1;
        if !is_indirect_jump(&graph.insns[jump])
            || found.iter().any(|t| t.jump == jump && enough(t))
        {
            return false;
        }
        let Some(target) = gpr(graph.insns[jump].inst.op0_register()) else {
            return false;
        };
        let body = &graph.insns[block.insns.start as usize..jump];
        let maker = body
            .iter()
            .rev()
            .find(|i| facts::uses(factory, &i.inst).clobber.contains(target));
        match maker.map(|i| i.inst.mnemonic()) {
            Some(mnemonic) => !matches!(mnemonic, Mnemonic::Mov | Mnemonic::Pop),
            None => !words,
        }
    })
}

/// Whether the instruction calls an address inside of the function other than its start.
fn calls_itself_inside(insn: &Insn, range: &Range<u64>) -> bool {
    let target = if insn.flow == FlowControl::Call {
        insn.direct_target()
    } else {
        None
    };
    target.is_some_and(|t| t != range.start && range.contains(&t))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disasm::make;
    use crate::functions::SegmentBytes;
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
                symbols: vec![crate::functions::FuncSymbol {
                    name: "f".into(),
                    addr: 0x1000,
                    size: 13,
                }],
                relocated: vec![0x900, at, 0x2000],
                pie: true,
                ..Input::default()
            };
            let options = Options::new(FLAVOUR_PT);
            let program = crate::discover::discover(&input, &options);
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
                symbols: vec![crate::functions::FuncSymbol {
                    name: "f".into(),
                    addr: 0x1000,
                    size,
                }],
                shows_faults,
                ..Input::default()
            };
            let options = Options::new(FLAVOUR_SOFT);
            let program = crate::discover::discover(&input, &options);
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
