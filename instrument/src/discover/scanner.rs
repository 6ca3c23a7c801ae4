//! References from one piece of code, decoded or not.

use crate::common::skip_reason::LeftReason;
use crate::discover::code_or_data::Used;
use crate::discover::flag_writes::{is_context_flags, may_change_context, sets_flags};
use crate::discover::jump_tables::is_indirect_jump;
use crate::discover::recover::recover;
use crate::discover::{code_or_data, self_reads};
use crate::ir::cfg::Entries;
use crate::ir::jump_table::Course;
use crate::program::{FunctionInfo, Input};
use crate::x86::decode::{Body, CodeSource};
use crate::x86::flow::{JUMP, direct_target, ends_flow, is_call, is_padding, jump_target};
use crate::x86::insn::Insn;
use crate::x86::length_decoder::{Skimmed, WINDOW, What, bare_len, four, skim, window};
use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic,
    OpKind, Register,
};
use rayon::prelude::*;
use std::ops::Range;

/// Maximum bytes of undecoded code that are read as instructions from each byte on.
pub const MAX_BYTES: u64 = 1 << 16;

/// Source: Chosen.
const MIN_BYTES_OF_SLOW_FUNCTION: u64 = 1 << 14;

/// References from one piece of code.
#[derive(Default)]
pub struct Scan {
    pub range: Range<u64>,
    pub left: Option<LeftReason>,
    pub branches: Vec<u64>,
    pub calls: Vec<u64>,
    pub taken: Vec<u64>,
    /// True if it has an indirect jump whose targets are unknown.
    pub jumps: bool,
    /// True if it has an indirect jump to an address of four bytes in memory.
    pub halves: bool,
    pub rare: Option<Box<Rare>>,
}

/// Facts that apply to few pieces of code.
#[derive(Default)]
pub struct Rare {
    /// Targets of branches and calls in code that control is not known to reach, which may be data.
    pub doubtful: Vec<u64>,
    /// Addresses of other functions that the code takes.
    pub others: Vec<Used>,
    /// Addresses outside of code with a possible first entry of a table of distances into code.
    pub distances: Vec<u64>,
    /// Possible targets of branches in code that is not decoded. A branch may begin at any byte
    /// there.
    pub ways: Vec<u64>,
    /// Branches inside of undecoded code: source and target.
    pub inner: Vec<(u64, u64)>,
    /// Targets outside of the function in its jump tables.
    pub tabled: Vec<u64>,
    /// Data in text.
    pub used: Vec<Range<u64>>,
    /// Targets outside of the function after the end of tables of unknown length.
    pub strays: Vec<u64>,
    pub gs: Option<u64>,
    pub sets_flags: Option<u64>,
    pub changes_context: Option<u64>,
    pub course: Option<Box<Course>>,
    /// True if it takes an address that is a bound of code, of a table of functions, or inside
    /// itself, and may read there.
    pub takes_bound: bool,
}

impl Scan {
    /// Its facts that apply to few pieces of code.
    pub fn rare(&self) -> &Rare {
        static NOTHING: Rare = Rare {
            doubtful: Vec::new(),
            others: Vec::new(),
            distances: Vec::new(),
            ways: Vec::new(),
            inner: Vec::new(),
            tabled: Vec::new(),
            used: Vec::new(),
            strays: Vec::new(),
            gs: None,
            sets_flags: None,
            changes_context: None,
            course: None,
            takes_bound: false,
        };
        self.rare.as_deref().unwrap_or(&NOTHING)
    }

    fn rare_mut(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// True if the code refers to anything.
    pub fn tells(&self) -> bool {
        self.rare.is_some()
            || !(self.branches.is_empty() && self.calls.is_empty() && self.taken.is_empty())
    }

    /// Notes the references of an instruction. `reached`: control is known to reach it.
    fn note(&mut self, input: &Input, range: &Range<u64>, inst: &Instruction, reached: bool) {
        if let Some(target) = direct_target(inst) {
            if inst.mnemonic() == Mnemonic::Xbegin {
                self.left = Some(LeftReason::Transaction);
            }
            self.note_target(range, target, jump_target(inst).is_some(), reached);
        }
        self.note_operands(input, range, inst);
    }

    /// Notes the target of a jump or call.
    fn note_target(&mut self, range: &Range<u64>, target: u64, is_jump: bool, reached: bool) {
        if !is_jump {
            if reached {
                &mut self.calls
            } else {
                &mut self.rare_mut().doubtful
            }
            .push(target);
        } else if !range.contains(&target) {
            if reached {
                &mut self.branches
            } else {
                &mut self.rare_mut().doubtful
            }
            .push(target);
        }
    }

    /// Notes an instruction's references besides targets.
    fn note_operands(&mut self, input: &Input, range: &Range<u64>, inst: &Instruction) {
        if inst.is_ip_rel_memory_operand() {
            self.refer(input, inst, inst.ip_rel_memory_address());
        } else if !input.pie {
            self.note_immediate(input, inst);
            let at = inst.memory_displacement64();
            if at > 0xffff && (0..inst.op_count()).any(|o| inst.op_kind(o) == OpKind::Memory) {
                self.refer(input, inst, at);
            }
        }
        let takes = crate::x86::flow::taken(inst);
        if let Some((at, _)) = takes.filter(|t| {
            (!input.pie || inst.is_ip_rel_memory_operand())
                && !input.is_code(t.0)
                && distance(input, t.0, 0).is_some()
        }) {
            self.rare_mut().distances.push(at);
        }
        let is_other = |at: u64| {
            !range.contains(&at)
                && input.is_code(at)
                && !input.is_object(at)
                && (!input.pie || inst.is_ip_rel_memory_operand())
        };
        let (words, is_whole) = match (takes, code_or_data::read(inst)) {
            (None, Some(read)) => read,
            _ => (0..0, false),
        };
        let read = words.step_by(8).filter_map(|at| input.word(at));
        let taken = takes.into_iter().chain(read.map(|at| (at, is_whole)));
        for (at, whole) in taken.filter(|t| is_other(t.0)) {
            self.rare_mut().others.push(code_or_data::used(
                inst,
                at,
                whole,
                input.bytes_at(inst.next_ip()).unwrap_or(&[]),
            ));
        }
        if self_reads::numbers(input, inst).any(|at| input.bounds.contains(at)) {
            self.rare_mut().takes_bound = true;
        }
        // Tables of functions are read for calls, and the function's own addresses for jumps,
        // unless code reads the bytes there.
        let may_be_read = |(at, whole): (u64, bool)| {
            let behind = input.bytes_at(inst.next_ip()).unwrap_or(&[]);
            let used = code_or_data::used(inst, at, whole, behind);
            used.read || used.changed || used.kept
        };
        let is_table = |at: u64| !input.is_code(at) && self_reads::is_table(input, at);
        let is_own = |at: u64| range.contains(&at) && at != range.start && !input.is_object(at);
        let is_fixed = !input.pie || inst.is_ip_rel_memory_operand();
        let taken = takes.filter(|t| is_fixed && (is_own(t.0) || is_table(t.0)));
        // (At fixed addresses, an instruction may encode the table's address and load from it.)
        let loaded = || {
            let is_load = inst.mnemonic() == Mnemonic::Mov
                && inst.op0_register().is_gpr64()
                && inst.op1_kind() == OpKind::Memory
                && inst.memory_base() == Register::None
                && inst.memory_index() != Register::None;
            let at = inst.memory_displacement64();
            (is_load && !input.pie && is_table(at)).then_some((at, true))
        };
        if taken.or_else(loaded).is_some_and(may_be_read) {
            self.rare_mut().takes_bound = true;
        }
        if uses_gs(inst) {
            self.rare_mut().gs.get_or_insert(inst.ip());
        }
        if sets_flags(inst) {
            self.rare_mut().sets_flags.get_or_insert(inst.ip());
        }
        if may_change_context(inst) {
            self.rare_mut().changes_context.get_or_insert(inst.ip());
        }
    }

    fn refer(&mut self, input: &Input, inst: &Instruction, at: u64) {
        if !input.is_code(at) || inst.mnemonic() == Mnemonic::Nop {
            return;
        }
        match inst.mnemonic() {
            Mnemonic::Lea => self.taken.push(at),
            _ => self
                .rare_mut()
                .used
                .push(at..at.saturating_add(inst.memory_size().size().max(1) as u64)),
        }
    }

    fn note_immediate(&mut self, input: &Input, inst: &Instruction) {
        // Only the last operand can be wide enough.
        let Some(last) = inst.op_count().checked_sub(1) else {
            return;
        };
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

/// True if an instruction reads or writes the base, or writes the selector, which may change the
/// base. (The selector is 0 in 64-bit processes, also when the base is set. So a read of it gives
/// the usual value.)
fn handles_gs(inst: &Instruction) -> bool {
    let special = matches!(
        inst.mnemonic(),
        Mnemonic::Wrgsbase | Mnemonic::Rdgsbase | Mnemonic::Swapgs | Mnemonic::Lgs
    );
    let sets = inst.op0_kind() == OpKind::Register && inst.op0_register() == Register::GS;
    special || sets && inst.mnemonic() != Mnemonic::Push
}

/// True if an instruction depends on the base, or changes it.
pub(crate) fn uses_gs(inst: &Instruction) -> bool {
    let takes_address_only = matches!(
        inst.mnemonic(),
        Mnemonic::Lea
            | Mnemonic::Nop
            | Mnemonic::Prefetch
            | Mnemonic::Prefetchw
            | Mnemonic::Prefetchwt1
            | Mnemonic::Prefetchnta
            | Mnemonic::Prefetcht0
            | Mnemonic::Prefetcht1
            | Mnemonic::Prefetcht2
    );
    let memory = inst.segment_prefix() == Register::GS
        && !takes_address_only
        && (0..inst.op_count()).any(|o| is_segmented(inst.op_kind(o)));
    handles_gs(inst) || memory
}

fn is_segmented(kind: OpKind) -> bool {
    matches!(
        kind,
        OpKind::Memory
            | OpKind::MemorySegSI
            | OpKind::MemorySegESI
            | OpKind::MemorySegRSI
            | OpKind::MemorySegDI
            | OpKind::MemorySegEDI
            | OpKind::MemorySegRDI
    )
}

/// Finds the references of functions.
pub struct Scanner<'a> {
    input: &'a Input<'a>,
    /// Range of all code.
    code: Range<u64>,
    /// Range of the whole file, code included.
    all: Range<u64>,
}

/// An instruction that is a call, or after which control may not continue at the next one.
#[derive(Clone, Copy, Debug)]
struct Turn {
    /// Address of the next one.
    next: u64,
    /// Target of a direct jump or call.
    target: Option<u64>,
    is_jump: bool,
    is_call: bool,
    /// True if control cannot continue at the next one.
    ends: bool,
}

/// Instructions of one function from end to end, as [`skim`] finds them.
#[derive(Debug, Default)]
pub struct Skim {
    /// By byte: 0, or, where an instruction begins, one more than the number of turns before it.
    starts: Vec<u32>,
    turns: Vec<Turn>,
    /// Addresses in the function that memory operands have as displacement.
    referred: Vec<u64>,
    /// True if it has an indirect jump.
    jumps: bool,
    /// True for each turn that control is known to reach.
    reached: Vec<bool>,
}

impl Skim {
    fn clear(&mut self, bytes: usize) {
        self.starts.clear();
        self.starts.resize(bytes, 0);
        self.turns.clear();
        self.referred.clear();
        self.jumps = false;
    }

    /// Notes the properties of a decoded instruction.
    fn meet(&mut self, inst: &Instruction, range: &Range<u64>) {
        let target = direct_target(inst);
        let turn = Turn {
            next: inst.next_ip(),
            target,
            is_jump: jump_target(inst).is_some(),
            is_call: is_call(inst.flow_control()),
            ends: ends_flow(inst),
        };
        if target.is_some() || turn.is_call || turn.ends {
            self.turns.push(turn);
        }
        self.jumps |= inst.flow_control() == FlowControl::IndirectBranch;
        if inst.is_ip_rel_memory_operand() && range.contains(&inst.ip_rel_memory_address()) {
            self.referred.push(inst.ip_rel_memory_address());
        }
    }

    /// Marks the turns that control is known to reach, as [`reached`] does. `entries`: the starting
    /// points.
    fn reach(&mut self, range: &Range<u64>, entries: impl Iterator<Item = u64>) {
        self.reached.clear();
        self.reached.resize(self.turns.len(), self.jumps);
        if self.jumps {
            return;
        }
        let (turns, starts, reached) = (&self.turns, &self.starts, &mut self.reached);
        // Between two turns, control passes from each instruction to the next.
        let from = |at: u64| starts[(at - range.start) as usize].saturating_sub(1) as usize;
        let mut work: Vec<usize> = entries.filter(|at| range.contains(at)).map(from).collect();
        while let Some(first) = work.pop() {
            for (turn, seen) in turns[first..].iter().zip(&mut reached[first..]) {
                if std::mem::replace(seen, true) {
                    break;
                }
                work.extend(turn.target.filter(|t| range.contains(t)).map(from));
                if turn.ends || turn.is_call && self.referred.contains(&turn.next) {
                    break;
                }
            }
        }
    }
}

impl<'a> Scanner<'a> {
    /// A scanner for one file.
    pub fn of(input: &'a Input<'a>) -> Scanner<'a> {
        let around = |ranges: &mut dyn Iterator<Item = Range<u64>>| {
            ranges
                .reduce(|a, b| a.start.min(b.start)..a.end.max(b.end))
                .unwrap_or(0..0)
        };
        let code = around(&mut input.exec_ranges.iter().cloned());
        let segments = input
            .segments
            .iter()
            .map(|s| s.vaddr..s.vaddr.saturating_add(s.bytes.len() as u64));
        let all = around(&mut segments.chain([code.clone()]).filter(|r| !r.is_empty()));
        Scanner { input, code, all }
    }

    /// True if an address is in code, or is a bound of code.
    fn is_near(&self, at: u64) -> bool {
        self.code.contains(&at) || self.input.bounds.is_near(at)
    }

    /// True if no negative number is an address. Numbers of one byte are then skipped.
    fn is_low(&self) -> bool {
        self.all.end <= i64::MAX as u64
    }

    /// Scans all functions.
    pub fn scan_all(&self, functions: &[FunctionInfo]) -> Vec<Scan> {
        // There is room for functions found by calls, since moving all scans would take longer.
        let mut scans: Vec<Scan> = Vec::with_capacity(functions.len() + functions.len() / 4);
        let is_large = |f: &FunctionInfo| f.range.end - f.range.start >= MIN_BYTES_OF_SLOW_FUNCTION;
        // Large functions come first: otherwise all cores could wait for a large one at the end.
        let (large, ()) = rayon::join(
            || {
                functions
                    .par_iter()
                    .enumerate()
                    .filter(|(_, f)| is_large(f))
                    .map(|(n, f)| (n, self.scan(f, &mut Skim::default())))
                    .collect::<Vec<_>>()
            },
            || {
                scans.par_extend(functions.par_iter().map_init(Skim::default, |skim, f| {
                    if is_large(f) {
                        Scan::default()
                    } else {
                        self.scan(f, skim)
                    }
                }))
            },
        );
        large.into_iter().for_each(|(n, scan)| scans[n] = scan);
        scans
    }

    /// Finds the references from one function.
    pub fn scan(&self, f: &FunctionInfo, skim: &mut Skim) -> Scan {
        let input = self.input;
        let mut scan = Scan {
            range: f.range.clone(),
            left: f.left,
            ..Scan::default()
        };
        let Some(bytes) = input.slice(&f.range) else {
            scan.left = Some(LeftReason::NoBytes);
            return scan;
        };
        let pads = f
            .unwind
            .map_or(&[][..], |u| &input.unwind[u as usize].landing_pads);
        if self.skim(bytes, &f.range, pads, skim, &mut scan) {
            if skim.jumps {
                let source = CodeSource {
                    bytes,
                    base: f.range.start,
                    entries: pads.iter().map(|p| p.1).collect(),
                };
                if let Ok(body) = source.decode() {
                    scan.halves = jumps_by_halves(&body.insns);
                    outside_tables(input, f, body, &source, &mut scan);
                }
            }
            return scan;
        }
        self.scan_whole(f, bytes, pads)
    }

    /// Notes a function's references if it consists of instructions from its first byte to its
    /// last, and all jumps and landing pads lead to instructions. The result is that of
    /// [`Scanner::scan_whole`], but instructions without references, which are nearly all, are not
    /// decoded. False for other functions.
    fn skim(
        &self,
        bytes: &[u8],
        range: &Range<u64>,
        pads: &[(Range<u64>, u64)],
        found: &mut Skim,
        scan: &mut Scan,
    ) -> bool {
        if !self.is_low() {
            return false;
        }
        found.clear(bytes.len());
        let mut decoder = Decoder::with_ip(64, bytes, range.start, DecoderOptions::NONE);
        let mut decode_at = |offset: usize| {
            decoder.set_ip(range.start + offset as u64);
            decoder.set_position(offset).ok().map(|()| decoder.decode())
        };
        let (mut at, mut last, mut tail) = (0, None, [0; WINDOW]);
        while at < bytes.len() {
            let window = window(bytes, at, &mut tail);
            let number = found.turns.len() as u32 + 1;
            let mut next = at + bare_len(window);
            if next > at && next <= bytes.len() {
                found.starts[at] = number;
                (last, at) = (Some(at), next);
                continue;
            }
            let skimmed = skim(window);
            next = at + usize::from(skimmed.len);
            if !skimmed.is_bare() {
                let end = range.start + next as u64;
                let to_decode = match skimmed.what {
                    What::Plain => self.may_tell(window, &skimmed, end, range),
                    What::Unknown => true,
                    what => {
                        let target = (what != What::Return)
                            .then(|| end.wrapping_add_signed(skimmed.distance.into()));
                        let (is_jump, ends) = (
                            matches!(what, What::Jump | What::Branch),
                            matches!(what, What::Jump | What::Return),
                        );
                        found.turns.push(Turn {
                            next: end,
                            target,
                            is_jump,
                            is_call: what == What::Call,
                            ends,
                        });
                        false
                    }
                };
                if to_decode {
                    if bytes[at] == 0 && bytes[at..].iter().all(|&b| b == 0) {
                        // The definition of filler is that of `x86::decode::sweep`.
                        let before = last.and_then(&mut decode_at);
                        if before.is_none_or(|i| {
                            ends_flow(&i) || is_padding(&i) || is_call(i.flow_control())
                        }) {
                            break;
                        }
                    }
                    let Some(inst) = decode_at(at).filter(|i| !i.is_invalid()) else {
                        return false;
                    };
                    next = at + inst.len();
                    found.meet(&inst, range);
                    if inst.mnemonic() == Mnemonic::Xbegin {
                        scan.left = Some(LeftReason::Transaction);
                    }
                    scan.note_operands(self.input, range, &inst);
                }
            }
            if next > bytes.len() {
                return false;
            }
            found.starts[at] = number;
            (last, at) = (Some(at), next);
        }
        let targets = found
            .turns
            .iter()
            .filter_map(|t| t.target)
            .chain(pads.iter().map(|p| p.1))
            .chain([range.start]);
        if !targets
            .into_iter()
            .all(|at| !range.contains(&at) || found.starts[(at - range.start) as usize] != 0)
        {
            return false;
        }
        found.reach(range, pads.iter().map(|p| p.1).chain([range.start]));
        for (turn, &reached) in found.turns.iter().zip(&found.reached) {
            if let Some(target) = turn.target {
                scan.note_target(range, target, turn.is_jump, reached);
            }
        }
        true
    }

    /// True if an instruction that [`skim`] has seen may have references for
    /// [`Scan::note_operands`] or [`Skim::referred`]. `next`: the instruction's end.
    fn may_tell(
        &self,
        window: &[u8; WINDOW],
        skimmed: &Skimmed,
        next: u64,
        range: &Range<u64>,
    ) -> bool {
        let input = self.input;
        let number = |at: u8| four(window, at.into()) as i32 as u64;
        let leads_on = |at: u64| {
            self.all.contains(&at)
                && (distance(input, at, 0).is_some() || self_reads::is_table(input, at))
        };
        if skimmed.displacement != 0 {
            let displacement = number(skimmed.displacement);
            if skimmed.ip_relative {
                let at = next.wrapping_add(displacement);
                let is_near = self.is_near(at) || range.contains(&at);
                let is_near_word = |at| {
                    let word = input.bounds.word(at).or_else(|| input.word(at));
                    word.is_some_and(|w| self.is_near(w))
                };
                let mut words = (0..skimmed.loaded_words()).map(|n| at.wrapping_add(8 * n));
                return is_near
                    || skimmed.constant != 0
                    || skimmed.takes_address() && leads_on(at)
                    || words.any(is_near_word);
            }
            if is_context_flags(displacement) {
                return true;
            }
            let is_word =
                skimmed.no_base && (skimmed.takes_address() || skimmed.loaded_words() > 0);
            if !input.pie
                && (self.is_near(displacement) || is_word && self.all.contains(&displacement))
            {
                return true;
            }
        }
        if input.pie || skimmed.constant == 0 {
            return false;
        }
        let constant = number(skimmed.constant);
        // The sign may be extended or not.
        [constant, constant & u64::from(u32::MAX)]
            .iter()
            .any(|&c| self.is_near(c) || skimmed.takes_constant() && leads_on(c))
    }

    /// Does the work of [`Scanner::scan`] for any function.
    fn scan_whole(&self, f: &FunctionInfo, bytes: &[u8], pads: &[(Range<u64>, u64)]) -> Scan {
        let input = self.input;
        let mut scan = Scan {
            range: f.range.clone(),
            left: f.left,
            ..Scan::default()
        };
        let source = CodeSource {
            bytes,
            base: f.range.start,
            entries: pads.iter().map(|p| p.1).collect(),
        };
        match source.decode() {
            Ok(body) => {
                let reached = reached(&body, &f.range, &source.entries);
                body.insns
                    .iter()
                    .zip(&reached)
                    .for_each(|(i, &reached)| scan.note(input, &f.range, &i.inst, reached));
                let ways: Vec<u64> = holes(&body.insns, &f.range)
                    .into_iter()
                    .flat_map(|hole| branches_anywhere(input, hole))
                    .map(|b| b.2)
                    .collect();
                if !ways.is_empty() {
                    scan.rare_mut().ways = ways;
                }
                if body.insns.iter().any(is_indirect_jump) {
                    scan.halves = jumps_by_halves(&body.insns);
                    outside_tables(input, f, body, &source, &mut scan);
                }
            }
            Err(reason) => {
                let mut stray = self.scan_stray(&f.range);
                stray.range = f.range.clone();
                stray.left = scan.left.or(Some(reason));
                return stray;
            }
        }
        scan
    }

    /// Best effort on bytes that may not be code: decodes in a row, one byte further after each
    /// failure. Data in between may hide branches.
    pub fn scan_stray(&self, range: &Range<u64>) -> Scan {
        let input = self.input;
        let mut scan = Scan::default();
        let Some(bytes) = input.slice(range) else {
            return scan;
        };
        let mut decoder = Decoder::with_ip(64, bytes, range.start, DecoderOptions::NONE);
        let (mut at, mut tail) = (0, [0; WINDOW]);
        while at < bytes.len() {
            let window = window(bytes, at, &mut tail);
            let (skimmed, ip) = (skim(window), range.start + at as u64);
            let next = at + usize::from(skimmed.len);
            if skimmed.what == What::Plain
                && next <= bytes.len()
                && self.is_low()
                && !self.may_tell(window, &skimmed, range.start + next as u64, range)
            {
                at = next;
                continue;
            }
            decoder.set_ip(ip);
            if decoder.set_position(at).is_err() {
                break;
            }
            let inst = decoder.decode();
            at += if inst.is_invalid() { 1 } else { inst.len() };
            if !inst.is_invalid() {
                scan.note(input, range, &inst, true);
                if let Some(target) = direct_target(&inst).filter(|t| range.contains(t)) {
                    scan.rare_mut().inner.push((ip, target));
                }
            }
        }
        if range.end - range.start <= MAX_BYTES {
            for (at, len, target) in branches_anywhere(input, range.clone()) {
                if !range.contains(&target) {
                    scan.rare_mut().ways.push(target);
                } else if len >= JUMP {
                    // (Short branches occur in any data.)
                    scan.rare_mut().inner.push((at, target));
                }
            }
        }
        scan.left = None;
        if let Some(rare) = &mut scan.rare {
            rare.gs = None;
        }
        scan
    }
}

/// Per instruction: true if control is known to reach it. All are true if an indirect jump has
/// unknown targets.
fn reached(body: &Body, range: &Range<u64>, pads: &[u64]) -> Vec<bool> {
    let Body { insns, places, .. } = body;
    if insns.iter().any(is_indirect_jump) {
        return vec![true; insns.len()];
    }
    let refers = insns
        .iter()
        .filter(|i| i.inst.is_ip_rel_memory_operand())
        .map(|i| i.inst.ip_rel_memory_address());
    let referred: Vec<u64> = refers.filter(|at| range.contains(at)).collect();
    let mut seen = vec![false; insns.len()];
    let mut work: Vec<usize> = pads
        .iter()
        .chain([&range.start])
        .filter_map(|&at| places.get(at))
        .collect();
    while let Some(first) = work.pop() {
        let mut at = Some(first);
        while let Some(i) = at.filter(|&i| !std::mem::replace(&mut seen[i], true)) {
            let insn = &insns[i];
            if insn.flow == FlowControl::Next
                && insns.get(i + 1).is_some_and(|next| next.ip == insn.next())
                && insn.inst.code() != Code::Hlt
            {
                at = Some(i + 1);
                continue;
            }
            work.extend(direct_target(&insn.inst).and_then(|t| places.get(t)));
            let goes_on =
                !(ends_flow(&insn.inst) || is_call(insn.flow) && referred.contains(&insn.next()));
            at = if goes_on {
                places.get(insn.next())
            } else {
                None
            };
        }
    }
    seen
}

/// True if an indirect jump goes to four bytes that were loaded shortly before.
fn jumps_by_halves(insns: &[Insn]) -> bool {
    let loads = |i: &Insn| {
        i.inst.mnemonic() == Mnemonic::Mov
            && i.inst.op0_register().is_gpr32()
            && i.inst.op1_kind() == OpKind::Memory
    };
    let mut jumps = insns
        .iter()
        .enumerate()
        .filter(|(_, i)| is_indirect_jump(i) && i.inst.op0_kind() == OpKind::Register);
    jumps.any(|(n, jump)| {
        let sets = |i: &&Insn| {
            i.inst.op0_kind() == OpKind::Register
                && i.inst.op0_register().full_register() == jump.inst.op0_register()
        };
        insns[n.saturating_sub(16)..n]
            .iter()
            .rev()
            .find(sets)
            .is_some_and(loads)
    })
}

/// Jump table targets in other functions (cold parts).
fn outside_tables(
    input: &Input,
    f: &FunctionInfo,
    body: Body,
    source: &CodeSource,
    scan: &mut Scan,
) {
    let entries = Entries {
        pads: pads_of(input, f),
        ..Entries::default()
    };
    let mut factory = InstructionInfoFactory::new();
    let all = recover(input, body, source, &f.range, &entries, &[], &mut factory);
    scan.jumps =
        all.graph.insns.iter().enumerate().any(|(n, i)| {
            is_indirect_jump(i) && !all.found.iter().any(|t| t.jump == n && t.certain)
        });
    let rare = scan.rare_mut();
    rare.course = all.course.map(Box::new);
    for table in all.found {
        rare.tabled
            .extend(table.targets.iter().filter(|t| !f.range.contains(t)));
        rare.strays
            .extend(table.strays.iter().filter(|t| !f.range.contains(t)));
    }
}

/// Landing pads of a function, sorted by call range.
pub(crate) fn pads_of(input: &Input, f: &FunctionInfo) -> Vec<(Range<u64>, u64)> {
    let mut pads = f.unwind.map_or(Vec::new(), |u| {
        input.unwind[u as usize].landing_pads.clone()
    });
    pads.sort_by_key(|p| (p.0.start, p.0.end));
    pads
}

/// Bytes of a function that are not in its instructions.
fn holes(insns: &[Insn], range: &Range<u64>) -> Vec<Range<u64>> {
    let mut found = Vec::new();
    let mut end = range.start;
    let mut until = |end: u64, start: u64| {
        if start > end && start - end <= MAX_BYTES {
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

/// Branches and calls that begin at any byte of `range`: address, length and target.
fn branches_anywhere(input: &Input, range: Range<u64>) -> Vec<(u64, u64, u64)> {
    let bytes = input
        .slice(&range)
        .filter(|bytes| may_branch(bytes))
        .unwrap_or(&[]);
    let (mut found, mut tail) = (Vec::new(), [0; WINDOW]);
    let mut decoder = Decoder::with_ip(64, bytes, range.start, DecoderOptions::NONE);
    for at in 0..bytes.len() {
        let skimmed = skim(window(bytes, at, &mut tail));
        if skimmed.what == What::Plain && at + usize::from(skimmed.len) <= bytes.len() {
            continue;
        }
        decoder.set_ip(range.start + at as u64);
        if decoder.set_position(at).is_err() {
            break;
        }
        let inst = decoder.decode();
        found.extend(
            direct_target(&inst)
                .filter(|_| !inst.is_invalid())
                .map(|target| (inst.ip(), inst.len() as u64, target)),
        );
    }
    found
}

/// True if any of these bytes may be the opcode of a direct branch or call. Filler has no such
/// byte.
fn may_branch(bytes: &[u8]) -> bool {
    let mut before = 0;
    bytes.iter().any(|&byte| {
        let pair = (std::mem::replace(&mut before, byte), byte);
        matches!(pair, (0x0f, 0x80..=0x8f) | (0xc7, 0xf8) | (_, 0x70..=0x7f | 0xe0..=0xe3 | 0xe8 | 0xe9 | 0xeb))
    })
}

/// Target of entry `i` of a table of distances, if the target is code.
pub fn distance(input: &Input, table: u64, i: u64) -> Option<u64> {
    let bytes = input
        .bytes_at(table.checked_add(i * 4)?)?
        .first_chunk::<4>()?;
    Some(table.wrapping_add(i32::from_le_bytes(*bytes) as u64)).filter(|&t| input.is_code(t))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discover::function_ranges::known_functions;

    /// Compares on this program's own functions, as position-independent and as fixed code.
    #[test]
    fn what_is_not_decoded_tells_nothing() {
        let data = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let elf = mgz_elf::Elf::parse(&data).unwrap();
        let unwind = crate::unwind::Tables::read(&elf).unwrap();
        let input = crate::pipeline::analysis_input::analysis_input(&elf, &unwind);
        let functions = known_functions(&input);
        for pie in [true, false] {
            let input = Input {
                pie,
                ..input.clone()
            };
            let scanner = Scanner::of(&input);
            let skimmed: usize = functions
                .par_iter()
                .step_by(3)
                .map_init(Skim::default, |skim, f| compare(&scanner, f, skim))
                .sum();
            assert!(
                skimmed > functions.len() / 4,
                "{skimmed} of {}",
                functions.len()
            );
        }
    }

    /// Asserts that a skim of a function has the same result as a full decode. Returns 1 if it was
    /// skimmed, otherwise 0.
    fn compare(scanner: &Scanner, f: &FunctionInfo, skim: &mut Skim) -> usize {
        let input = scanner.input;
        let bytes = input.slice(&f.range).unwrap();
        let pads = f
            .unwind
            .map_or(&[][..], |u| &input.unwind[u as usize].landing_pads);
        let is_skimmed = scanner.skim(bytes, &f.range, pads, skim, &mut Scan::default());
        let (scan, whole) = (scanner.scan(f, skim), scanner.scan_whole(f, bytes, pads));
        let lists = |s: &Scan| {
            [
                &s.branches,
                &s.calls,
                &s.rare().doubtful,
                &s.taken,
                &s.rare().distances,
                &s.rare().ways,
                &s.rare().tabled,
                &s.rare().strays,
            ]
            .map(Vec::clone)
        };
        assert_eq!(lists(&scan), lists(&whole), "{:x?}", f.range);
        let others = |s: &Scan| {
            s.rare()
                .others
                .iter()
                .map(|u| (u.at, u.changed, u.read))
                .collect::<Vec<_>>()
        };
        let rest = |s: &Scan| {
            (
                s.left,
                s.rare().inner.clone(),
                s.jumps,
                s.halves,
                s.rare().used.clone(),
                s.rare().gs,
                s.rare().course.is_some(),
            )
        };
        assert_eq!(
            (others(&scan), rest(&scan)),
            (others(&whole), rest(&whole)),
            "{:x?}",
            f.range
        );
        usize::from(is_skimmed)
    }

    /// Compares on short functions of random pieces, in a file in which all addresses are in code.
    #[test]
    fn so_with_any_bytes() {
        let (mut random, mut skimmed) = (1u64, 0);
        let mut number = || {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 40) as usize
        };
        // Turns, filler, nearby addresses, and numbers that look like addresses.
        let pieces: [&[u8]; 24] = [
            &[0xe8, 1, 0, 0, 0],
            &[0xe8, 0, 0, 1, 0],
            &[0xeb, 1],
            &[0x74, 2],
            &[0x75, 0xf8],
            &[0x0f, 0x85, 4, 0, 0, 0],
            &[0xe9, 0, 0, 1, 0],
            &[0xc3],
            &[0xff, 0xd0],
            &[0xff, 0xe0],
            &[0xf4],
            &[0x0f, 0x0b],
            &[0xcc],
            &[0x90],
            &[0],
            &[0xf0, 0x0f, 0xb1, 0x0f],
            &[0x48, 0x8d, 5, 3, 0, 0, 0],
            &[0x48, 0x8d, 5, 0, 0, 1, 0],
            &[0x48, 0x8b, 5, 0, 0x10, 0, 0],
            &[0xbf, 8, 0x10, 0x40, 0],
            &[0xc7, 0xf8, 2, 0, 0, 0],
            &[0x65, 0x48, 0x8b, 4, 0x25, 0, 0, 0, 0],
            &[0x8b, 4, 0xc5, 0, 0x10, 0x40, 0],
            &[0x83, 0xc0, 1],
        ];
        for n in 0..60_000 {
            let mut code: Vec<u8> = Vec::new();
            for _ in 0..number() % 12 + 1 {
                code.extend_from_slice(pieces[number() % pieces.len()]);
                code.extend((number() % 32 == 0).then_some(number() as u8));
            }
            code.resize(code.len() + [0, 0, 3, 17][number() % 4], 0);
            let range = 0x40_1000..0x40_1000 + code.len() as u64;
            code.resize(0x2000, 0x10);
            let segment = crate::program::SegmentBytes {
                vaddr: 0x40_1000,
                bytes: &code,
                writable: false,
                executable: true,
            };
            let pads = vec![(range.clone(), range.start + number() as u64 % 16)]
                .into_iter()
                .filter(|_| n % 8 == 0)
                .collect();
            let unwind = vec![crate::unwind::UnwindRange {
                range: range.clone(),
                landing_pads: pads,
                understood: true,
            }];
            let input = Input {
                exec_ranges: vec![0x40_0000..0x60_0000],
                segments: vec![segment],
                unwind,
                pie: n % 2 == 0,
                relative_targets: vec![(0x40_2010, 0x40_1003)],
                ..Input::default()
            };
            let f = known_functions(&input).remove(0);
            skimmed += compare(&Scanner::of(&input), &f, &mut Skim::default());
        }
        assert!(skimmed > 10_000, "{skimmed}");
    }
}
