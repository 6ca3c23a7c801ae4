//! Pass 2: one function from bytes to [`crate::plan::planned_function::Function`].

use crate::analyze::dataflow::Flow;
use crate::analyze::liveness::Effects;
use crate::analyze::{dead_flags, liveness, unread_values};
use crate::common::prefetch::Outcome;
use crate::common::skip_reason::LeftReason;
use crate::discover::code_or_data;
use crate::discover::code_or_data::Jumps;
use crate::discover::recover::{
    calls_itself_inside, is_blind, landings, recover, recover_again, settle, table,
};
use crate::discover::scanner::pads_of;
use crate::ir::cfg::{Cfg, Entries};
use crate::ir::jump_table::{IndirectJumpFacts, JumpTable};
use crate::ir::loops::Loops;
use crate::ir::{BlockId, FunctionId};
use crate::patch::faulting::Care;
use crate::patch::space;
use crate::patch::space::FunctionCode;
use crate::plan::count_only::{self, Free};
use crate::plan::cursor::{Residencies, View};
use crate::plan::function_plan::FunctionPlan;
use crate::plan::planned_function::{Function, Patching, SpecialCalls};
use crate::plan::types::Insertion;
use crate::plan::{copies, cursor, origin, plan_function};
use crate::prefetch;
use crate::program::fixed_memory::FaultPolicy;
use crate::program::linkage::linkage_load;
use crate::program::{FunctionInfo, Input, InstrumentOptions, Program, sanitizers, syscalls};
use crate::util::ranges::overlaps;
use crate::x86::decode::{Body, CodeSource};
use crate::x86::effects::Facts;
use crate::x86::flow::is_call;
use crate::x86::insn::{Insn, InsnId};
use iced_x86::{FlowControl, InstructionInfoFactory};
use mgz_abi::module_note::{FLAVOUR_PT, FLAVOUR_SOFT};
use mgz_elf::symbols::merge_ranges;

/// Analyses a function that pass 1 did not leave. The outcomes are those of loads to be prefetched.
pub fn analyze_for_prefetch(
    input: &Input,
    program: &Program,
    id: FunctionId,
    options: &InstrumentOptions,
    faults: &FaultPolicy,
) -> Result<(Function, Vec<Outcome>), LeftReason> {
    let mut outcomes = Vec::new();
    let function = analyze_with(input, program, id, options, faults, &mut outcomes)?;
    Ok((function, outcomes))
}

/// Analyses a function that pass 1 did not leave.
pub fn analyze(
    input: &Input,
    program: &Program,
    id: FunctionId,
    options: &InstrumentOptions,
    faults: &FaultPolicy,
) -> Result<Function, LeftReason> {
    analyze_with(input, program, id, options, faults, &mut Vec::new())
}

fn analyze_with(
    input: &Input,
    program: &Program,
    id: FunctionId,
    options: &InstrumentOptions,
    faults: &FaultPolicy,
    outcomes: &mut Vec<Outcome>,
) -> Result<Function, LeftReason> {
    let mut pass = FunctionPass::begin(input, program, id, options, faults)?;
    let body = pass.decode()?;
    let mut flow = pass.recover(body)?;
    let hooks = pass.hooks(&flow)?;
    let facts = pass.facts(&flow);
    pass.give_up_tables(&mut flow, &facts);
    let loops = Loops::find(&flow.graph);
    pass.find_free_registers(&mut flow, &facts, &loops);
    let loads = Flow::solve(input, &flow.graph, &loops, &facts, options.stores);
    let patching = pass.patching(&mut flow, &facts);
    let plan = pass.plan(&flow, &facts, loads, &loops, outcomes);
    Ok(pass.assemble(flow, hooks, facts, loops, patching, plan))
}

/// Number of times that control flow is recovered. If a function's start has no room for a jump,
/// its later entries are known only after the first recovery.
const RECOVERY_ROUNDS: usize = 2;

/// The analysis of one function, step by step.
struct FunctionPass<'p, 'a> {
    input: &'p Input<'a>,
    program: &'p Program,
    info: &'p FunctionInfo,
    options: &'p InstrumentOptions,
    faults: &'p FaultPolicy,
    /// Addresses at which control enters from elsewhere.
    entries: Entries,
    source: CodeSource<'p>,
    factory: InstructionInfoFactory,
    /// True if it is not selected, and processed only for its system calls.
    unselected: bool,
    /// True if a handler may continue at any instruction, and no mechanism leads it around jumps.
    anywhere: bool,
    /// See [`Patching::aimed`].
    aimed: Vec<u64>,
}

/// Control flow, and its consequences for jumps.
struct ControlFlow {
    graph: Cfg,
    found: Vec<IndirectJumpFacts>,
    /// See [`Patching::room`].
    room: Vec<(BlockId, u8)>,
    /// By block: true if it is certain to be code.
    sure: Vec<bool>,
    jumps: Jumps,
}

/// Parts of the recording plan that are made last.
struct Recording {
    tables: Vec<JumpTable>,
    residencies: Residencies,
    plan: FunctionPlan,
    insertions: Vec<Insertion>,
}

impl<'p, 'a> FunctionPass<'p, 'a> {
    /// Collects the addresses at which control enters the function.
    fn begin(
        input: &'p Input<'a>,
        program: &'p Program,
        id: FunctionId,
        options: &'p InstrumentOptions,
        faults: &'p FaultPolicy,
    ) -> Result<Self, LeftReason> {
        let info = program.function(id);
        // Code that is not selected may still have system calls that need hooks.
        let unselected = info.left == Some(LeftReason::NotSelected) && input.hook_calls;
        if let Some(reason) = info.left.filter(|_| !unselected) {
            return Err(reason);
        }
        let bytes = input.slice(&info.range).ok_or(LeftReason::NoBytes)?;
        let pads = pads_of(input, info);
        let overlapping = pads.windows(2).any(|p| p[1].0.start < p[0].0.end);
        if overlapping || pads.iter().any(|p| !info.range.contains(&p.1)) {
            return Err(LeftReason::Unwind);
        }
        let inner = info.inner();
        let entries = Entries {
            called: inner.called.clone(),
            outside: inner.branched.clone(),
            pads,
            suspected: info.suspected(),
        };
        let entered = entries.called.iter().chain(&entries.outside).copied();
        let source = CodeSource {
            bytes,
            base: info.range.start,
            entries: entered.chain(entries.pads.iter().map(|p| p.1)).collect(),
        };
        let mut aimed = [&inner.doubted[..], &inner.aimed].concat();
        aimed.sort_unstable();
        Ok(FunctionPass {
            input,
            program,
            info,
            options,
            faults,
            entries,
            source,
            factory: InstructionInfoFactory::new(),
            unselected,
            anywhere: faults.shows_faults && options.flavour == FLAVOUR_PT,
            aimed,
        })
    }

    /// The instructions, if all can be moved.
    fn decode(&self) -> Result<Body, LeftReason> {
        let range = &self.info.range;
        let body = self.source.decode()?;
        if body.insns.iter().any(|i| calls_itself_inside(i, range)) {
            return Err(LeftReason::Unsupported(
                "calls into its own middle, so it may compute with its return address",
            ));
        }
        let relocated = self.input.relocated_in(range);
        let is_changed = |i: &Insn| relocated.iter().any(|&at| at < i.next() && i.ip < at + 8);
        if !relocated.is_empty() && body.insns.iter().any(is_changed) {
            return Err(LeftReason::Unsupported(
                "the loader changes its instructions (text relocations)",
            ));
        }
        Ok(body)
    }

    /// Recovers control flow, and adds entries where an entry jump has room.
    fn recover(&mut self, body: Body) -> Result<ControlFlow, LeftReason> {
        let mut flow = self.control_flow(body)?;
        for _ in 1..RECOVERY_ROUNDS {
            let later = self.later_entries(&flow);
            if later.is_empty() {
                break;
            }
            self.entries.outside.extend(later);
            self.entries.outside.sort_unstable();
            self.entries.outside.dedup();
            flow = self.control_flow(self.source.decode()?)?;
        }
        Ok(flow)
    }

    fn control_flow(&mut self, body: Body) -> Result<ControlFlow, LeftReason> {
        let (info, words) = (self.info, &self.info.inner().words[..]);
        let again = match &info.course {
            Some(course) => recover_again(course, body, &info.range, &self.entries, words),
            None => Err(body),
        };
        let (graph, found) = again.unwrap_or_else(|body| {
            let all = recover(
                self.input,
                body,
                &self.source,
                &info.range,
                &self.entries,
                words,
                &mut self.factory,
            );
            (all.graph, all.found)
        });
        if graph.blocks.is_empty() || graph.insns[0].ip != info.range.start {
            return Err(LeftReason::Undecodable);
        }
        let jumps = Jumps::of(&graph, &mut self.factory);
        let data = self.program.data_in(&info.range);
        let pads = &self.entries.pads;
        Ok(ControlFlow {
            room: space::behind(self.input, self.program, info, &graph),
            sure: code_or_data::sure(&graph, info, pads, data, &jumps, &mut self.factory),
            graph,
            found,
            jumps,
        })
    }

    /// Further entries of the clone, if the function's start has no room for a jump.
    fn later_entries(&self, flow: &ControlFlow) -> Vec<u64> {
        let inner = self.info.inner();
        let data = self.program.data_in(&self.info.range);
        let code = FunctionCode {
            insns: &flow.graph.insns,
            blocks: &flow.graph.blocks,
            room: &flow.room,
            data,
            aimed: &self.aimed,
        };
        let doubted = !inner.doubted.is_empty() || !inner.words.is_empty() || !data.is_empty();
        let own = &self.faults.own;
        let care = self.faults.shows_faults.then_some(Care {
            own,
            taken_back: self.options.flavour == FLAVOUR_SOFT && own.stays(),
        });
        space::later(code, &flow.graph, &flow.sure, doubted, care, self.anywhere)
    }

    /// The system calls that get hooks.
    fn hooks(&self, flow: &ControlFlow) -> Result<Vec<InsnId>, LeftReason> {
        let hooks = match self.input.hook_calls {
            true => syscalls::hooks(&flow.graph),
            false => Vec::new(),
        };
        match self.unselected && hooks.is_empty() {
            true => Err(LeftReason::NotSelected),
            false => Ok(hooks),
        }
    }

    /// Effects of each instruction.
    fn facts(&mut self, flow: &ControlFlow) -> Facts {
        // If handlers may continue anywhere, with any register, no register may be lost. (Soft
        // probes borrow one for an address.)
        let owned = self.options.flavour == FLAVOUR_PT && !self.faults.shows_faults;
        let (start, insns) = (self.info.range.start, &flow.graph.insns);
        let mut facts = Facts::of(insns, start, owned, &mut self.factory);
        let by_linkage = |(i, insn): (usize, &Insn)| Some((i, linkage_load(self.input, insn)?));
        facts
            .accesses
            .add(insns.iter().enumerate().filter_map(by_linkage));
        facts
    }

    /// Gives up copies of jump tables that the code may use differently.
    fn give_up_tables(&mut self, flow: &mut ControlFlow, facts: &Facts) {
        let (graph, found) = (&mut flow.graph, &mut flow.found);
        settle(self.input, graph, &facts.uses, found, &mut self.factory);
    }

    /// True if probes may overwrite dead registers.
    fn overwrites(&self) -> bool {
        let info = self.info;
        !self.input.walks_stacks
            && !self.faults.shows_faults
            && info.exact
            && info.inner().called.is_empty()
    }

    /// Finds registers that probes may overwrite, if the function's extent is known and handlers do
    /// not look.
    fn find_free_registers(&self, flow: &mut ControlFlow, facts: &Facts, loops: &Loops) {
        if !self.overwrites() {
            return;
        }
        let (graph, uses) = (&mut flow.graph, &facts.uses[..]);
        let effects = Effects::of(self.input, graph, loops, uses);
        if liveness::mark(self.input, graph, &effects, uses) {
            unread_values::mark(graph, &effects.steps, uses, &facts.accesses);
        }
    }

    /// Finds addresses at which jumps may reach the original, and addresses at which a jump may be
    /// written.
    fn patching(&mut self, flow: &mut ControlFlow, facts: &Facts) -> Patching {
        let (info, factory) = (self.info, &mut self.factory);
        let (graph, found) = (&mut flow.graph, &flow.found);
        let mut landings = landings(graph, &self.entries, info, found);
        let mut data = self.program.data_in(&info.range).to_vec();
        let computes = info.computed || flow.jumps.compute(graph, info, found, &data, factory);
        let blind_start =
            info.computed || code_or_data::computes_from(graph, &facts.takers, factory);
        let unsure = graph
            .blocks
            .iter()
            .zip(&flow.sure)
            .filter(|(_, sure)| !**sure);
        data.extend(unsure.map(|(b, _)| {
            graph.insns[b.insns.start as usize].ip..graph.insns[b.insns.end as usize - 1].end()
        }));
        merge_ranges(&mut data);
        landings.retain(|at| !overlaps(&data, &(*at..at + 1)));
        for &at in &landings {
            if let Some(b) = graph.block_at(at) {
                graph.blocks[b.0 as usize].external_entry = true;
            }
        }
        let words = !info.inner().words.is_empty();
        let has_targets = |t: &IndirectJumpFacts| !t.targets.is_empty();
        let blind = computes || blind_start || is_blind(graph, has_targets, found, words, factory);
        if blind {
            // Blocks without known predecessors are targets of such a jump.
            let unreached = graph.blocks.iter_mut().filter(|b| b.preds.is_empty());
            unreached.for_each(|b| b.external_entry = true);
        }
        Patching {
            landings,
            data,
            aimed: std::mem::take(&mut self.aimed),
            room: std::mem::take(&mut flow.room),
            blind,
            blind_start,
            anywhere: self.anywhere,
        }
    }

    /// Plans the records, and the places where a register holds the cursor.
    fn plan(
        &self,
        flow: &ControlFlow,
        facts: &Facts,
        mut loads: Flow,
        loops: &Loops,
        outcomes: &mut Vec<Outcome>,
    ) -> Recording {
        let (graph, options) = (&flow.graph, self.options);
        let copied = flow.found.iter().filter(|t| t.copyable);
        let tables: Vec<JumpTable> = copied.map(table).collect();
        if self.unselected || options.prefetch.is_some() {
            return Recording {
                tables,
                residencies: Residencies::default(),
                plan: FunctionPlan::default(),
                insertions: self.prefetches(graph, facts, &mut loads, loops, outcomes),
            };
        }
        let with_copies = (options.copies)
            .then(|| copies::with_copies(graph, &facts.accesses, &self.input.copiers))
            .flatten();
        let accesses = with_copies.as_ref().unwrap_or(&facts.accesses);
        let residencies = match options.flavour == FLAVOUR_SOFT {
            true => cursor::find_residencies(&View {
                insns: &graph.insns,
                blocks: &graph.blocks,
                tables: &tables,
                uses: &facts.uses,
                accesses,
                stores: options.stores,
                counts: options.counts,
            }),
            false => Residencies::default(),
        };
        let mut plan = plan_function(
            graph,
            facts,
            accesses,
            options,
            &residencies,
            |block, insn, n, access| loads.classify(block, insn, n, access),
        );
        let arguments = origin::ArgumentRegisters::of(self.input.walks_stacks);
        origin::mark(&mut plan, &mut loads, graph, facts, loops, arguments);
        if options.counts {
            self.count(&mut plan, graph, facts, &residencies);
        }
        Recording {
            tables,
            residencies,
            plan,
            insertions: Vec::new(),
        }
    }

    fn prefetches(
        &self,
        graph: &Cfg,
        facts: &Facts,
        loads: &mut Flow,
        loops: &Loops,
        outcomes: &mut Vec<Outcome>,
    ) -> Vec<Insertion> {
        let Some(request) = &self.options.prefetch else {
            return Vec::new();
        };
        let flags = match self.overwrites() {
            true => dead_flags::find_dead_flags(self.input, graph),
            false => Vec::new(),
        };
        let readers = &self.input.return_readers;
        let calls = || graph.insns.iter().any(|i| is_call(i.flow));
        let view = prefetch::view::View {
            graph,
            facts,
            loops,
            flags: &flags,
            shows_returns: (readers.matters && calls()).then_some(&readers.first),
        };
        let (insertions, all) = prefetch::place_prefetches(view, loads, request, &self.info.range);
        *outcomes = all;
        insertions
    }

    /// Replaces the records of a plan by counters.
    fn count(
        &self,
        plan: &mut FunctionPlan,
        graph: &Cfg,
        facts: &Facts,
        residencies: &Residencies,
    ) {
        let flags = match self.overwrites() {
            true => dead_flags::find_dead_flags(self.input, graph),
            false => Vec::new(),
        };
        let free = Free {
            insns: &graph.insns,
            uses: &facts.uses,
            flags: &flags,
            residencies,
        };
        let starts: Vec<u32> = graph.blocks.iter().map(|b| b.insns.start).collect();
        count_only::reduce(plan, &free, &starts);
    }

    fn assemble(
        &self,
        flow: ControlFlow,
        hooks: Vec<InsnId>,
        facts: Facts,
        loops: Loops,
        patching: Patching,
        recording: Recording,
    ) -> Function {
        let graph = flow.graph;
        let (returned_to, quits) = match self.input.shows_returns {
            true => sanitizers::calls(self.input, self.program, &graph.insns),
            false => Default::default(),
        };
        let quits = match self.input.walks_stacks {
            true => calls(&graph.insns),
            false => quits,
        };
        let range = &self.info.range;
        let inside = self.input.markers.iter().map(|m| u64::from(m.at));
        let markers = inside
            .filter(|at| range.contains(at))
            .filter_map(|at| graph.insn_at(at))
            .map(|i| InsnId(i as u32))
            .collect();
        let through_import = |(i, insn): (usize, &Insn)| {
            let through = matches!(
                insn.flow,
                FlowControl::IndirectCall | FlowControl::IndirectBranch
            ) && insn.inst.is_ip_rel_memory_operand()
                && (self.input.imported).contains_key(&insn.inst.ip_rel_memory_address());
            through.then_some(InsnId(i as u32))
        };
        let by_linkage = graph.insns.iter().enumerate();
        let by_linkage = by_linkage.filter_map(through_import).collect();
        Function {
            id: self.info.id,
            range: self.info.range.clone(),
            uses: facts.into_uses(),
            loops,
            calls: SpecialCalls {
                hooks,
                returned_to,
                by_linkage,
                quits,
                markers,
            },
            tables: recording.tables,
            cfg: graph,
            patching,
            plan: recording.plan,
            insertions: recording.insertions,
            residencies: recording.residencies,
        }
    }
}

/// All calls.
fn calls(insns: &[Insn]) -> Vec<InsnId> {
    (0..insns.len())
        .filter(|&i| is_call(insns[i].flow))
        .map(|i| InsnId(i as u32))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::SegmentBytes;
    use crate::x86::decode::make_insn;
    use iced_x86::{Decoder, DecoderOptions};

    #[test]
    fn tables_are_found_again_only_if_nothing_new_enters() {
        // cmp edi, 1; ja 1018; mov eax, edi; jmp [2000 + rax*8]; ret; ret; ret. Three words, one
        // too many for the table.
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
        let source = CodeSource {
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
        let targets = |found: &[IndirectJumpFacts]| {
            found.iter().map(|f| f.targets.clone()).collect::<Vec<_>>()
        };
        assert_eq!(targets(&course.found), [[0x100e, 0x100f]]);
        let shape = |graph: &Cfg| {
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
        for (at, residencies) in [
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
            let options = InstrumentOptions::new(FLAVOUR_PT);
            let program = crate::discover::scan::discover(&input, &options);
            assert_eq!(
                analyze(
                    &input,
                    &program,
                    FunctionId(0),
                    &options,
                    &FaultPolicy::default()
                )
                .is_err(),
                residencies,
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
                ..Input::default()
            };
            let faults = FaultPolicy {
                shows_faults,
                ..FaultPolicy::default()
            };
            let options = InstrumentOptions::new(FLAVOUR_SOFT);
            let program = crate::discover::scan::discover(&input, &options);
            let function = analyze(&input, &program, FunctionId(0), &options, &faults).unwrap();
            function
                .cfg
                .insns
                .iter()
                .map(|i| i.dead.0)
                .collect::<Vec<_>>()
        };
        assert_eq!(dead(7, false), [0b11, 0b01, 0b10]);
        assert_eq!(dead(0, false), [0; 3], "where it ends is a guess");
        assert_eq!(dead(7, true), [0; 3]);
    }

    #[test]
    fn a_call_for_the_return_address_is_seen() {
        let insn = |bytes: &[u8]| {
            make_insn(Decoder::with_ip(64, bytes, 0x1010, DecoderOptions::NONE).decode())
        };
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
