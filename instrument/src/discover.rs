//! Pass 1: the functions of a program, and every address inside one that something outside of its own control flow may reach.

use crate::analyze::{Course, recover};
use crate::cfg::Entries;
use crate::disasm::{Body, decode, direct_target, ends_flow, jump_target};
use crate::doubt::{self, Used, is_odd};
use crate::elf::symbols::merge;
use crate::freestanding;
use crate::functions::{FunctionInfo, Input, LeftReason, Options, Program};
use crate::ir::{FunctionId, Insn};
use crate::room::{JUMP, is_call};
use crate::starts::Starts;
use crate::tables::is_indirect_jump;
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register};
use rayon::prelude::*;
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

/// Bytes of what is not understood that are read as instructions from each byte on.
const MOST_BYTES: u64 = 1 << 16;
/// Entries of a table of distances that are looked at.
const MOST_ENTRIES: u64 = 1024;

/// Finds functions and what leads into them.
pub fn discover(input: &Input, options: &Options) -> Program {
    let mut functions = known_functions(input);
    let outside: Vec<Range<u64>> = uncovered(input, &functions).iter().flat_map(|gap| without(gap, &input.objects)).collect();
    let mut scans: Vec<Scan> = functions.par_iter().map(|f| scan_function(input, f)).collect();
    let stray: Vec<Scan> = outside.par_iter().map(|r| scan_stray(input, r)).collect();
    let found = called_functions(input, &outside, &scans);
    if !found.is_empty() {
        let more: Vec<Scan> = found.par_iter().map(|f| scan_function(input, f)).collect();
        scans.extend(more);
        functions.extend(found);
    }
    for (f, scan) in functions.iter_mut().zip(&mut scans) {
        f.left = f.left.or(scan.left);
        f.course = scan.course.take();
    }
    functions.sort_by_key(|f| f.range.start);
    functions.iter_mut().zip(0..).for_each(|(f, n)| f.id = FunctionId(n));
    let data: Vec<Range<u64>> = scans.iter().chain(&stray).flat_map(|s| s.used.iter().cloned()).chain(input.objects.iter().cloned()).collect();
    let starts = Starts::of(functions.iter().map(|f| &f.range));
    let mut program = Program { functions, starts, uses_gs: scans.iter().filter_map(|s| s.gs).min(), aimed: Vec::new(), data };
    name(input, &mut program);
    // Nearly all targets are where functions begin: those are sorted out on all cores.
    let entered: Vec<Entered> = scans.par_iter().map(|scan| entered(&program, scan)).collect();
    for (id, target, way) in entered.into_iter().flatten() {
        enter(&mut program, id, target, way);
    }
    for (s, used) in scans.iter().chain(&stray).flat_map(|s| s.others.iter().map(move |used| (s, used))) {
        // (Where a function ends most addresses are another one's.)
        let at = if program.function_at(used.at).is_some() { used.at } else { used.at.saturating_sub(1) };
        let Some(id) = program.function_at(at) else { continue };
        let f = &mut program.functions[id.0 as usize];
        // What reads at a function's start reads its code (to copy it, say), and so may what steps on from there.
        if (used.read || used.changed) && used.at == f.range.start {
            program.data.push(f.range.clone());
        }
        f.computed |= used.changed || at != f.range.start && (s.jumps || at == used.at && !used.read);
    }
    merge(&mut program.data);
    for &target in scans.iter().chain(&stray).flat_map(|s| &s.ways) {
        if let Some(id) = inside(&program, target) {
            program.functions[id.0 as usize].aimed.push(target);
        }
    }
    // Functions that only calls lead to lie in what else is not understood.
    let across = |&&(from, to): &&(u64, u64)| program.function_at(from) != program.function_at(to);
    let inner: Vec<u64> = stray.iter().flat_map(|s| &s.inner).filter(across).map(|b| b.1).collect();
    let elsewhere = stray.iter().flat_map(|scan| scan.branches.iter().chain(&scan.calls).chain(&scan.taken)).chain(&input.labels).chain(&inner).map(|&t| (t, Way::Doubted));
    for (target, way) in elsewhere.chain(input.symbols.iter().map(|s| (s.addr, Way::Symbol))) {
        if let Some(id) = inside(&program, target) {
            enter(&mut program, id, target, way);
        }
    }
    tables(input, &mut program, scans.iter().chain(&stray).flat_map(|s| s.distances.iter().copied()).collect());
    words(input, &mut program);
    let halves = scans.iter().any(|s| s.halves);
    odd_words(input, &mut program, halves);
    let in_gap = |t: &u64| input.is_code(*t) && program.function_at(*t).is_none();
    let aims = |scan: &Scan| {
        let all = scan.branches.iter().chain(&scan.calls).chain(&scan.doubtful).chain(&scan.taken).chain(&scan.tabled).chain(&scan.strays);
        all.copied().filter(in_gap).chain(scan.used.iter().map(|r| r.start)).collect::<Vec<_>>()
    };
    let mut aimed: Vec<u64> = scans.par_iter().chain(&stray).flat_map_iter(aims).collect();
    aimed.extend(input.symbols.iter().map(|s| s.addr).chain(input.labels.iter().copied()).filter(in_gap));
    aimed.extend(input.objects.iter().map(|o| o.start));
    program.aimed.append(&mut aimed);
    program.aimed.sort_unstable();
    program.aimed.dedup();
    program.functions.par_iter_mut().for_each(|f| finish(f, options, input));
    program
}

fn blank(range: Range<u64>) -> FunctionInfo {
    FunctionInfo {
        id: FunctionId(0),
        range,
        name: String::new(),
        left: None,
        exact: true,
        unwind: None,
        branched: Vec::new(),
        called: Vec::new(),
        taken: Vec::new(),
        doubted: Vec::new(),
        words: Vec::new(),
        aimed: Vec::new(),
        computed: false,
        course: None,
    }
}

/// Functions by unwind entries, then by symbols outside of those. Sorted.
fn known_functions(input: &Input) -> Vec<FunctionInfo> {
    let mut functions: Vec<FunctionInfo> = Vec::with_capacity(input.unwind.len());
    for (i, u) in input.unwind.iter().enumerate() {
        if u.range.is_empty() || !input.exec_ranges.iter().any(|r| r.start <= u.range.start && u.range.end <= r.end) {
            continue;
        }
        let mut f = blank(u.range.clone());
        f.unwind = Some(i as u32);
        f.left = (!u.understood).then_some(LeftReason::Unwind);
        functions.push(f);
    }
    functions.sort_by_key(|f| (f.range.start, f.range.end));
    functions.dedup_by(|f, last| {
        let overlaps = f.range.start < last.range.end;
        if overlaps {
            last.range.end = last.range.end.max(f.range.end);
            last.left = Some(LeftReason::OverlapsOther);
        }
        overlaps
    });
    let mut merged = functions;
    let mut starts: Vec<(u64, u64)> = input.symbols.iter().map(|s| (s.addr, s.size)).collect();
    starts.sort_unstable_by_key(|s| (s.0, std::cmp::Reverse(s.1)));
    starts.dedup_by_key(|s| s.0);
    let covered = |at: u64| {
        let next = merged.partition_point(|f| f.range.start <= at);
        next > 0 && merged[next - 1].range.contains(&at)
    };
    starts.retain(|s| input.is_code(s.0) && !covered(s.0));
    let mut extra: Vec<FunctionInfo> = Vec::new();
    for (i, &(start, size)) in starts.iter().enumerate() {
        if extra.last().is_some_and(|f| f.range.contains(&start)) {
            continue;
        }
        let limit = limit_after(input, &merged, start, starts.get(i + 1).map(|s| s.0).filter(|_| size == 0));
        let end = if size == 0 { limit } else { start.saturating_add(size).min(limit) };
        let mut f = blank(start..end);
        f.exact = size != 0;
        if !f.range.is_empty() {
            extra.push(f);
        }
    }
    merged.extend(extra);
    merged.sort_by_key(|f| f.range.start);
    merged
}

/// Where a function that starts at `start` must end at the latest.
fn limit_after(input: &Input, functions: &[FunctionInfo], start: u64, next_start: Option<u64>) -> u64 {
    let section = input.exec_ranges.iter().find(|r| r.contains(&start)).map_or(start, |r| r.end);
    let next = functions.partition_point(|f| f.range.start <= start);
    let next = functions.get(next).map_or(u64::MAX, |f| f.range.start);
    section.min(next).min(next_start.unwrap_or(u64::MAX))
}

/// Parts of the executable ranges in no function.
pub(crate) fn uncovered(input: &Input, functions: &[FunctionInfo]) -> Vec<Range<u64>> {
    let mut gaps = Vec::new();
    for exec in &input.exec_ranges {
        let mut at = exec.start;
        let first = functions.partition_point(|f| f.range.end <= exec.start);
        for f in functions[first..].iter().take_while(|f| f.range.start < exec.end) {
            if f.range.start > at {
                gaps.push(at..f.range.start);
            }
            at = at.max(f.range.end);
        }
        if at < exec.end {
            gaps.push(at..exec.end);
        }
    }
    gaps
}

/// What of `range` is in none of `holes`, which are sorted.
fn without(range: &Range<u64>, holes: &[Range<u64>]) -> Vec<Range<u64>> {
    let (mut parts, mut at) = (Vec::new(), range.start);
    for hole in &holes[holes.partition_point(|h| h.end <= range.start)..] {
        if hole.start >= range.end {
            break;
        }
        if at < hole.start {
            parts.push(at..hole.start);
        }
        at = at.max(hole.end);
    }
    if at < range.end {
        parts.push(at..range.end);
    }
    parts
}

/// Functions that only calls (and the entry point) lead to. And, where system calls are looked for, the rest of functions whose unwind data ends right before
/// the call that makes a thread, since nothing can be unwound there. Calls count where control is seen to come: elsewhere there may be data that look like them.
fn called_functions(input: &Input, outside: &[Range<u64>], scans: &[Scan]) -> Vec<FunctionInfo> {
    let gaps = Starts::of(outside.iter());
    let gap_of = |at: u64| gaps.find(at).map(|gap| &outside[gap]);
    let in_gap = |s: &Scan| s.calls.iter().copied().filter(|&at| gap_of(at).is_some()).collect::<Vec<_>>();
    let mut starts: Vec<u64> = scans.par_iter().flat_map_iter(in_gap).collect();
    if input.entry != 0 {
        starts.push(input.entry);
    }
    if input.hook_calls {
        starts.extend(outside.iter().map(|gap| gap.start).filter(|&at| input.bytes_at(at).is_some_and(freestanding::begins_with_call)));
    }
    starts.retain(|&at| gap_of(at).is_some());
    if !starts.is_empty() {
        // What these refer to may be data behind a call that does not return.
        let mut refer: HashSet<u64> = scans.iter().flat_map(|s| s.taken.iter().copied().chain(s.used.iter().map(|u| u.start))).collect();
        let (_, seen) = follow_calls(input, &gap_of, &starts, &refer);
        refer.extend(seen);
        starts.extend(follow_calls(input, &gap_of, &starts, &refer).0);
    }
    // Hand-written functions without unwind data are known by their addresses alone. They are what these call, if all of it is code to the last byte.
    let taken = scans.iter().flat_map(|s| &s.taken).chain(input.relative_targets.iter().map(|t| &t.1)).copied();
    let mut work: Vec<(u64, bool)> = taken.filter(|&at| gap_of(at).is_some()).map(|at| (at, false)).collect();
    work.sort_unstable();
    work.dedup();
    let mut called: HashSet<u64> = starts.iter().copied().collect();
    while let Some((at, is_called)) = work.pop() {
        let Some(calls) = clean_calls(input, &gap_of, at) else { continue };
        if is_called {
            starts.push(at);
        }
        for call in calls {
            if called.insert(call) {
                work.push((call, true));
            }
        }
    }
    starts.sort_unstable();
    starts.dedup();
    let mut found = Vec::new();
    for (i, &start) in starts.iter().enumerate() {
        let Some(gap) = gap_of(start) else { continue };
        let end = starts.get(i + 1).copied().unwrap_or(u64::MAX).min(gap.end);
        let mut f = blank(start..end);
        f.exact = false;
        found.push(f);
    }
    found
}

/// Follows control outside of functions: what is called there, and what is referred to. `refer`: where nothing is followed behind a call.
fn follow_calls<'g>(input: &Input, gap_of: &impl Fn(u64) -> Option<&'g Range<u64>>, starts: &[u64], refer: &HashSet<u64>) -> (Vec<u64>, Vec<u64>) {
    let (mut calls, mut referred) = (Vec::new(), Vec::new());
    let (mut work, mut seen) = (starts.to_vec(), HashSet::new());
    while let Some(from) = work.pop() {
        let Some(bytes) = gap_of(from).and_then(|gap| input.slice(&(from..gap.end))) else { continue };
        let mut decoder = Decoder::with_ip(64, bytes, from, DecoderOptions::NONE);
        while decoder.can_decode() && seen.insert(decoder.ip()) {
            let inst = decoder.decode();
            if inst.is_invalid() {
                break;
            }
            if let Some(target) = direct_target(&inst) {
                if inst.is_call_near() && gap_of(target).is_some() {
                    calls.push(target);
                }
                work.push(target);
            }
            if inst.is_ip_rel_memory_operand() {
                referred.push(inst.ip_rel_memory_address());
            }
            if ends_flow(&inst) || is_call(inst.flow_control()) && refer.contains(&inst.next_ip()) {
                break;
            }
        }
    }
    (calls, referred)
}

/// What code outside of functions calls there, if all that control reaches from `from` is code that compilers and people write.
fn clean_calls<'g>(input: &Input, gap_of: &impl Fn(u64) -> Option<&'g Range<u64>>, from: u64) -> Option<Vec<u64>> {
    let (mut calls, mut work, mut seen) = (Vec::new(), vec![from], BTreeMap::new());
    while let Some(from) = work.pop() {
        let bytes = input.slice(&(from..gap_of(from)?.end))?;
        let mut decoder = Decoder::with_ip(64, bytes, from, DecoderOptions::NONE);
        loop {
            if seen.contains_key(&decoder.ip()) {
                break;
            }
            let inst = decoder.decode();
            let zeros = inst.code() == Code::Add_rm8_r8 && inst.op0_kind() == OpKind::Memory;
            if inst.is_invalid() || zeros || is_odd(&inst) || seen.len() as u64 > MOST_BYTES {
                return None;
            }
            seen.insert(inst.ip(), inst.next_ip());
            if let Some(target) = direct_target(&inst) {
                let is_inside = gap_of(target).is_some();
                if target == inst.next_ip() && inst.is_call_near() || !is_inside && !input.is_code(target) && !input.is_plt(target) {
                    return None;
                }
                if is_inside {
                    if inst.is_call_near() { &mut calls } else { &mut work }.push(target);
                }
            }
            if ends_flow(&inst) {
                break;
            }
        }
    }
    let is_apart = seen.iter().zip(seen.keys().skip(1)).all(|((_, end), next)| end <= next);
    is_apart.then_some(calls)
}

/// What one piece of code refers to.
#[derive(Default)]
struct Scan {
    range: Range<u64>,
    left: Option<LeftReason>,
    branches: Vec<u64>,
    calls: Vec<u64>,
    /// Branches and calls by what control is not seen to reach: there may be data.
    doubtful: Vec<u64>,
    taken: Vec<u64>,
    /// Those of other functions.
    others: Vec<Used>,
    /// Outside of code, what looks like the first of a table of distances into code.
    distances: Vec<u64>,
    /// Of what is not understood: where a branch may lead, whatever byte it begins at.
    ways: Vec<u64>,
    /// Of that: branches inside of it, from where and where to.
    inner: Vec<(u64, u64)>,
    /// It has an indirect jump whose targets are not known…
    jumps: bool,
    /// …or one to an address of four bytes in memory.
    halves: bool,
    /// Outside of the function, in its jump tables.
    tabled: Vec<u64>,
    /// Data in text.
    used: Vec<Range<u64>>,
    /// Outside of the function, behind tables of unknown length.
    strays: Vec<u64>,
    gs: Option<u64>,
    course: Option<Box<Course>>,
}

impl Scan {
    /// `reached`: control is seen to come there.
    fn note(&mut self, input: &Input, range: &Range<u64>, inst: &Instruction, reached: bool) {
        if let Some(target) = direct_target(inst) {
            if jump_target(inst).is_none() {
                if inst.mnemonic() == Mnemonic::Xbegin {
                    self.left = Some(LeftReason::Transaction);
                }
                if reached { &mut self.calls } else { &mut self.doubtful }.push(target);
            } else if !range.contains(&target) {
                if reached { &mut self.branches } else { &mut self.doubtful }.push(target);
            }
        }
        if inst.is_ip_rel_memory_operand() {
            self.refer(input, inst, inst.ip_rel_memory_address());
        } else if !input.pie {
            self.note_immediate(input, inst);
            let at = inst.memory_displacement64();
            if at > 0xffff && (0..inst.op_count()).any(|o| inst.op_kind(o) == OpKind::Memory) {
                self.refer(input, inst, at);
            }
        }
        let takes = doubt::taken(inst);
        if let Some((at, _)) = takes.filter(|t| (!input.pie || inst.is_ip_rel_memory_operand()) && !input.is_code(t.0) && distance(input, t.0, 0).is_some()) {
            self.distances.push(at);
        }
        let is_other = |at: u64| !range.contains(&at) && input.is_code(at) && !input.is_object(at) && (!input.pie || inst.is_ip_rel_memory_operand());
        let taken = takes.or_else(|| doubt::read(inst).and_then(|(at, whole)| Some((input.word(at)?, whole))));
        if let Some((at, whole)) = taken.filter(|t| is_other(t.0)) {
            self.others.push(doubt::used(inst, at, whole, input.bytes_at(inst.next_ip()).unwrap_or(&[])));
        }
        if uses_gs(inst) {
            self.gs.get_or_insert(inst.ip());
        }
    }

    fn refer(&mut self, input: &Input, inst: &Instruction, at: u64) {
        if !input.is_code(at) || inst.mnemonic() == Mnemonic::Nop {
            return;
        }
        match inst.mnemonic() {
            Mnemonic::Lea => self.taken.push(at),
            _ => self.used.push(at..at.saturating_add(inst.memory_size().size().max(1) as u64)),
        }
    }

    fn note_immediate(&mut self, input: &Input, inst: &Instruction) {
        // The last operand is the only one that can be wide enough.
        let Some(last) = inst.op_count().checked_sub(1) else { return };
        let value = match inst.op_kind(last) {
            OpKind::Immediate32 => u64::from(inst.immediate32()),
            OpKind::Immediate32to64 => inst.immediate32to64() as u64,
            OpKind::Immediate64 => inst.immediate64(),
            _ => return,
        };
        if value > 0xffff && input.is_code(value) {
            self.taken.push(value);
        }
    }
}

/// Whether an instruction may have something that [`Scan::note`] asks for: most have not, which is seen at once.
fn tells(insn: &Insn, pie: bool) -> bool {
    let inst = &insn.inst;
    let kinds = [inst.op0_kind(), inst.op1_kind(), inst.op2_kind(), inst.op3_kind()];
    let is_plain = |kind: &OpKind| {
        use OpKind::*;
        matches!(kind, Register | Memory | Immediate8 | Immediate8_2nd | Immediate8to16 | Immediate8to32 | Immediate8to64 | Immediate16)
    };
    if insn.flow != FlowControl::Next || !kinds.iter().all(is_plain) || handles_gs(inst) {
        return true;
    }
    let fixed = || matches!(inst.memory_base(), Register::RIP | Register::EIP | Register::None);
    kinds.contains(&OpKind::Memory) && (fixed() || inst.segment_prefix() == Register::GS || !pie && inst.memory_displacement64() > 0xffff)
}

/// Whether an instruction reads or writes the register itself.
fn handles_gs(inst: &Instruction) -> bool {
    let special = matches!(inst.mnemonic(), Mnemonic::Wrgsbase | Mnemonic::Rdgsbase | Mnemonic::Swapgs | Mnemonic::Lgs);
    let register = inst.op0_kind() == OpKind::Register && inst.op0_register() == Register::GS || inst.op1_kind() == OpKind::Register && inst.op1_register() == Register::GS;
    special || register
}

fn uses_gs(inst: &Instruction) -> bool {
    let memory = inst.segment_prefix() == Register::GS
        && !matches!(inst.mnemonic(), Mnemonic::Lea | Mnemonic::Nop)
        && (0..inst.op_count()).any(|o| is_segmented(inst.op_kind(o)));
    handles_gs(inst) || memory
}

fn is_segmented(kind: OpKind) -> bool {
    matches!(
        kind,
        OpKind::Memory | OpKind::MemorySegSI | OpKind::MemorySegESI | OpKind::MemorySegRSI | OpKind::MemorySegDI | OpKind::MemorySegEDI | OpKind::MemorySegRDI
    )
}

fn scan_function(input: &Input, f: &FunctionInfo) -> Scan {
    let mut scan = Scan { range: f.range.clone(), left: f.left, ..Scan::default() };
    let Some(bytes) = input.slice(&f.range) else {
        scan.left = Some(LeftReason::NoBytes);
        return scan;
    };
    let pads = f.unwind.map_or(&[][..], |u| &input.unwind[u as usize].landing_pads);
    let entries: Vec<u64> = pads.iter().map(|p| p.1).collect();
    match decode(bytes, f.range.start, &entries) {
        Ok(body) => {
            let reached = reached(&body, &f.range, &entries);
            let telling = body.insns.iter().zip(&reached).filter(|(i, _)| tells(i, input.pie));
            telling.for_each(|(i, &reached)| scan.note(input, &f.range, &i.inst, reached));
            scan.ways = holes(&body.insns, &f.range).into_iter().flat_map(|hole| branches_anywhere(input, hole)).map(|b| b.1).collect();
            if body.insns.iter().any(is_indirect_jump) {
                scan.halves = jumps_by_halves(&body.insns);
                outside_tables(input, f, body, &mut scan);
            }
        }
        Err(reason) => {
            let mut stray = scan_stray(input, &f.range);
            stray.range = f.range.clone();
            stray.left = scan.left.or(Some(reason));
            stray.gs = None;
            return stray;
        }
    }
    scan
}

/// Per instruction: whether control is seen to come there. Where an indirect jump may lead anywhere, all are.
fn reached(body: &Body, range: &Range<u64>, pads: &[u64]) -> Vec<bool> {
    let Body { insns, places } = body;
    if insns.iter().any(is_indirect_jump) {
        return vec![true; insns.len()];
    }
    let refers = insns.iter().filter(|i| i.inst.is_ip_rel_memory_operand()).map(|i| i.inst.ip_rel_memory_address());
    let referred: Vec<u64> = refers.filter(|at| range.contains(at)).collect();
    let mut seen = vec![false; insns.len()];
    let mut work: Vec<usize> = pads.iter().chain([&range.start]).filter_map(|&at| places.get(at)).collect();
    while let Some(first) = work.pop() {
        let mut at = Some(first);
        while let Some(i) = at.filter(|&i| !std::mem::replace(&mut seen[i], true)) {
            let insn = &insns[i];
            if insn.flow == FlowControl::Next && insns.get(i + 1).is_some_and(|next| next.ip == insn.next()) && insn.inst.code() != Code::Hlt {
                at = Some(i + 1);
                continue;
            }
            work.extend(direct_target(&insn.inst).and_then(|t| places.get(t)));
            let goes_on = !ends_flow(&insn.inst) && !(is_call(insn.flow) && referred.contains(&insn.next()));
            at = if goes_on { places.get(insn.next()) } else { None };
        }
    }
    seen
}

/// Whether an indirect jump goes to four bytes that were loaded shortly before.
fn jumps_by_halves(insns: &[Insn]) -> bool {
    let loads = |i: &Insn| i.inst.mnemonic() == Mnemonic::Mov && i.inst.op0_register().is_gpr32() && i.inst.op1_kind() == OpKind::Memory;
    let mut jumps = insns.iter().enumerate().filter(|(_, i)| is_indirect_jump(i) && i.inst.op0_kind() == OpKind::Register);
    jumps.any(|(n, jump)| {
        let sets = |i: &&Insn| i.inst.op0_kind() == OpKind::Register && i.inst.op0_register().full_register() == jump.inst.op0_register();
        insns[n.saturating_sub(16)..n].iter().rev().find(sets).is_some_and(loads)
    })
}

/// Jump table targets in other functions (cold parts).
fn outside_tables(input: &Input, f: &FunctionInfo, body: Body, scan: &mut Scan) {
    let entries = Entries { pads: pads_of(input, f), ..Entries::default() };
    let mut factory = InstructionInfoFactory::new();
    let all = recover(input, body, &f.range, &entries, &[], &mut factory);
    scan.course = all.course.map(Box::new);
    scan.jumps = all.graph.insns.iter().enumerate().any(|(n, i)| is_indirect_jump(i) && !all.found.iter().any(|t| t.jump == n && t.certain));
    for table in all.found {
        scan.tabled.extend(table.targets.iter().filter(|t| !f.range.contains(t)));
        scan.strays.extend(table.strays.iter().filter(|t| !f.range.contains(t)));
    }
}

/// Landing pads of a function, sorted by call range.
pub(crate) fn pads_of(input: &Input, f: &FunctionInfo) -> Vec<(Range<u64>, u64)> {
    let mut pads = f.unwind.map_or(Vec::new(), |u| input.unwind[u as usize].landing_pads.clone());
    pads.sort_by_key(|p| (p.0.start, p.0.end));
    pads
}

/// Best effort on bytes that may not be code: decodes in a row, one byte further after each failure. If data are in between, that may miss what branches there
/// lead to.
fn scan_stray(input: &Input, range: &Range<u64>) -> Scan {
    let mut scan = Scan::default();
    let Some(bytes) = input.slice(range) else { return scan };
    let mut decoder = Decoder::with_ip(64, bytes, range.start, DecoderOptions::NONE);
    while decoder.can_decode() {
        let at = decoder.position();
        let inst = decoder.decode();
        if inst.is_invalid() {
            decoder.set_ip(range.start + at as u64 + 1);
            if decoder.set_position(at + 1).is_err() {
                break;
            }
        } else {
            scan.note(input, range, &inst, true);
            scan.inner.extend(direct_target(&inst).filter(|t| range.contains(t)).map(|t| (inst.ip(), t)));
        }
    }
    if range.end - range.start <= MOST_BYTES {
        for (inst, t) in branches_anywhere(input, range.clone()) {
            if !range.contains(&t) {
                scan.ways.push(t);
            } else if inst.len() as u64 >= JUMP {
                // (Short ones are in any data.)
                scan.inner.push((inst.ip(), t));
            }
        }
    }
    scan.left = None;
    scan.gs = None;
    scan
}

/// Bytes of a function that are not in its instructions.
fn holes(insns: &[Insn], range: &Range<u64>) -> Vec<Range<u64>> {
    let mut found = Vec::new();
    let mut end = range.start;
    let mut until = |end: u64, start: u64| {
        if start > end && start - end <= MOST_BYTES {
            found.push(end..start);
        }
    };
    for insn in insns {
        until(end, insn.ip);
        end = insn.next();
    }
    until(end, range.end);
    found
}

/// Branches and calls that begin at any byte of `range`, and where they lead.
fn branches_anywhere(input: &Input, range: Range<u64>) -> impl Iterator<Item = (Instruction, u64)> {
    let bytes = input.slice(&range).filter(|b| !b.iter().all(|b| matches!(b, 0 | 0x90 | 0xcc))).unwrap_or(&[]);
    let at = move |i: usize| Decoder::with_ip(64, &bytes[i..], range.start + i as u64, DecoderOptions::NONE).decode();
    (0..bytes.len()).map(at).filter(|i| !i.is_invalid()).filter_map(|i| Some((i, direct_target(&i)?)))
}

#[derive(Clone, Copy)]
enum Way {
    Branch,
    Call,
    Table,
    Doubted,
    Symbol,
}

/// Notes that `target` is reached. A function's first byte needs no note.
fn enter(program: &mut Program, id: FunctionId, target: u64, way: Way) {
    let f = &mut program.functions[id.0 as usize];
    match way {
        Way::Branch => f.branched.push(target),
        Way::Call | Way::Symbol => f.called.push(target),
        Way::Table => f.taken.push(target),
        Way::Doubted => f.doubted.push(target),
    }
}

/// The function that has a target behind its start.
fn inside(program: &Program, target: u64) -> Option<FunctionId> {
    program.function_at(target).filter(|&id| program.function(id).range.start != target)
}

/// Targets inside functions.
type Entered = Vec<(FunctionId, u64, Way)>;

/// What a function's code enters.
fn entered(program: &Program, scan: &Scan) -> Entered {
    let certain = scan.left.is_none();
    let if_certain = |way| if certain { way } else { Way::Doubted };
    // What lies behind the table of unknown length means something only in a part of the same function.
    let parts: Vec<FunctionId> = scan.branches.iter().filter(|_| !scan.strays.is_empty()).filter_map(|&t| program.function_at(t)).collect();
    let near = scan.strays.iter().filter(|t| program.function_at(**t).is_some_and(|id| parts.contains(&id)));
    let by_way = [
        (&scan.branches, if_certain(Way::Branch)),
        (&scan.calls, if_certain(Way::Call)),
        (&scan.doubtful, Way::Doubted),
        (&scan.taken, Way::Doubted),
        (&scan.tabled, Way::Table),
    ];
    let all = by_way.into_iter().flat_map(|(targets, way)| targets.iter().map(move |&t| (t, way))).chain(near.map(|&t| (t, Way::Table)));
    all.filter_map(|(target, way)| Some((inside(program, target)?, target, way))).collect()
}

/// Where entry `i` of a table of distances leads, if that is code.
fn distance(input: &Input, table: u64, i: u64) -> Option<u64> {
    let bytes = input.bytes_at(table.checked_add(i * 4)?)?.first_chunk::<4>()?;
    Some(table.wrapping_add(i32::from_le_bytes(*bytes) as u64)).filter(|&t| input.is_code(t))
}

/// What tables of distances lead to, whoever jumps by them. Each ends where the next begins.
fn tables(input: &Input, program: &mut Program, mut starts: Vec<u64>) {
    starts.sort_unstable();
    starts.dedup();
    let ends = starts.iter().skip(1).copied().chain([u64::MAX]);
    for (&table, end) in starts.iter().zip(ends) {
        let count = ((end - table) / 4).min(MOST_ENTRIES);
        for target in (0..count).map_while(|i| distance(input, table, i)) {
            if let Some(id) = inside(program, target) {
                program.functions[id.0 as usize].aimed.push(target);
            }
        }
    }
}

/// Data words that hold an address inside a function.
fn words(input: &Input, program: &mut Program) {
    let mut found: Vec<(u64, u64)> = input.relative_targets.clone();
    if !input.pie {
        let low = input.exec_ranges.iter().map(|r| r.start).min().unwrap_or(0);
        let high = input.exec_ranges.iter().map(|r| r.end).max().unwrap_or(0);
        for segment in &input.segments {
            let skip = (segment.vaddr.wrapping_neg() & 7) as usize;
            let words = segment.bytes.get(skip..).unwrap_or(&[]).par_chunks_exact(8).with_min_len(1 << 12).enumerate();
            found.par_extend(words.filter_map(|(i, chunk)| {
                let value = u64::from_le_bytes(chunk.try_into().ok()?);
                (value >= low && value < high).then_some((segment.vaddr + skip as u64 + i as u64 * 8, value))
            }));
        }
    }
    for (at, target) in found {
        // In code it is no word of a table, perhaps.
        if let Some(id) = inside(program, target).filter(|_| input.is_code(at)) {
            program.functions[id.0 as usize].aimed.push(target);
            continue;
        }
        if input.is_object(target) {
            program.aimed.push(target);
            continue;
        }
        match program.function_at(target) {
            Some(id) => {
                let f = &mut program.functions[id.0 as usize];
                if f.range.start != target {
                    f.words.push((at, target));
                }
            }
            None => program.aimed.push(target),
        }
    }
}

/// Words of an executable at a fixed address that hold an address inside a function, where compilers put none: at any byte, in code as well, and, if `halves` says
/// that something jumps to such, of four bytes.
fn odd_words(input: &Input, program: &mut Program, halves: bool) {
    if input.pie {
        return;
    }
    let low = input.exec_ranges.iter().map(|r| r.start).min().unwrap_or(0);
    let high = input.exec_ranges.iter().map(|r| r.end).max().unwrap_or(0);
    for bytes in input.segments.iter().map(|s| s.bytes) {
        // Nearly no word holds such an address, so that all else is asked of the few that do.
        let word = |number: u64| number.wrapping_sub(low) < high - low;
        let entered = |four: u64| inside(program, four).map(|id| (id, four));
        let found: Vec<(FunctionId, u64)> = match halves {
            true => bytes.par_windows(4).with_min_len(1 << 14).filter_map(|w| Some(u64::from(u32::from_le_bytes(*w.first_chunk()?))).filter(|&n| word(n)).and_then(entered)).collect(),
            false => bytes.par_windows(8).with_min_len(1 << 14).filter_map(|w| Some(u64::from_le_bytes(*w.first_chunk()?)).filter(|&n| word(n) && n >> 32 == 0).and_then(entered)).collect(),
        };
        found.into_iter().for_each(|(id, target)| program.functions[id.0 as usize].aimed.push(target));
    }
}

fn name(input: &Input, program: &mut Program) {
    let mut names: Vec<(u64, &str)> = input.symbols.iter().map(|s| (s.addr, s.name.as_str())).collect();
    names.sort_by_key(|n| n.0);
    for f in &mut program.functions {
        let i = names.partition_point(|n| n.0 < f.range.start);
        if let Some(n) = names.get(i)
            && n.0 == f.range.start
        {
            f.name = n.1.to_string();
        }
    }
}

fn finish(f: &mut FunctionInfo, options: &Options, input: &Input) {
    f.doubted.retain(|&at| !input.is_object(at));
    for list in [&mut f.branched, &mut f.called, &mut f.taken, &mut f.doubted, &mut f.aimed] {
        list.sort_unstable();
        list.dedup();
    }
    f.words.sort_unstable();
    f.words.dedup();
    if !(options.select)(&f.name, f.range.start) {
        f.left = Some(LeftReason::NotSelected);
    } else if let Some((_, reason)) =
        input.excluded.iter().find(|e| e.0.start < f.range.end && f.range.start < e.0.end)
    {
        f.left = Some(*reason);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_passed_over_tells_nothing() {
        // All of it is code, so that whatever could be an address is one.
        let all = Input { exec_ranges: vec![0..1 << 47, 0xffff_8000_0000_0000..u64::MAX], ..Input::default() };
        let (mut random, mut passed) = (1u64, 0);
        for n in 0..400_000 {
            let bytes: [u8; 16] = std::array::from_fn(|_| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (random >> 56) as u8
            });
            let insn = crate::disasm::make(Decoder::with_ip(64, &bytes, 0x40_1000, DecoderOptions::NONE).decode());
            let input = Input { pie: n % 2 == 0, ..all.clone() };
            if insn.inst.is_invalid() || tells(&insn, input.pie) {
                continue;
            }
            passed += 1;
            let mut scan = Scan::default();
            scan.note(&input, &(0x40_1000..0x40_1010), &insn.inst, true);
            let lists = [&scan.branches, &scan.calls, &scan.doubtful, &scan.taken, &scan.distances];
            let is_empty = lists.iter().all(|l| l.is_empty()) && scan.others.is_empty() && scan.used.is_empty() && scan.gs.is_none() && scan.left.is_none();
            assert!(is_empty, "{} {:x?}", insn.inst, &bytes[..insn.inst.len()]);
        }
        assert!(passed > 100_000, "{passed} passed over");
    }
}
