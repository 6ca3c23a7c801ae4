//! Destination of a call's result: the instructions behind the call are followed along one path.
//!
//! The result is in `rax`. The walk knows its copies: registers and variables on the stack. Such a
//! copy may be a variable in debug information, or memory behind a pointer of a known type. Then
//! its type tells the type of the result's target.

use crate::objects::heap::scope::{Scope, Variable, VariablePlace, first_argument, is_constructor};
use crate::objects::types::Types;
use gimli::{BaseAddresses, EhFrame, EndianSlice, LittleEndian, UnitOffset, UnwindSection};
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register,
};
use object::{Object, ObjectSection, ObjectSymbol, ObjectSymbolTable, RelocationTarget};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Source: Chosen.
const MAX_INSTRUCTIONS_AFTER_CALL: usize = 64;
/// Source: Chosen.
const MAX_INSTRUCTIONS_BEFORE_CALL: usize = 20_000;
/// Bytes of a linkage table's entry. Source: psABI; `.plt` and `.plt.sec` have entries of 16 bytes.
const MAX_STUB_BYTES: u64 = 16;
/// Number of jumps that are followed.
const JUMPS: usize = 4;

/// Destination of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Goes {
    /// Into a variable or a field, by which it points to a type.
    To {
        /// The type.
        of: UnitOffset,
        /// The variable or field.
        kept_in: String,
    },
    /// It becomes an object of this class.
    Named(String),
    /// To the caller.
    Back,
    /// Unknown.
    Somewhere,
}

/// Functions of the C library that return their first argument.
const RETURN_FIRST_ARGUMENT: [&str; 5] = ["memset", "memcpy", "memmove", "strcpy", "strncpy"];

/// In this range of addresses, the frame's base is a register plus an offset.
type FrameRule = (u64, u64, u16, i64);

/// A file's code.
pub(crate) struct FileCode<'f> {
    file: &'f object::File<'f>,
    /// Data symbols by address: end and name.
    data: BTreeMap<u64, (u64, String)>,
    /// Words with the addresses of functions that return their first argument.
    return_first_argument: HashSet<u64>,
}

impl<'f> FileCode<'f> {
    /// `separate`: the file with the symbols that were stripped.
    pub(crate) fn new(
        file: &'f object::File<'f>,
        separate: Option<&'f object::File<'f>>,
    ) -> FileCode<'f> {
        let symbols = file.symbols().chain(file.dynamic_symbols());
        let symbols = symbols.chain(separate.into_iter().flat_map(|f| f.symbols()));
        let data = symbols
            .filter(|s| s.kind() == object::SymbolKind::Data && !s.is_undefined() && s.size() > 0);
        let named = data.filter_map(|s| {
            let end = s.address().saturating_add(s.size());
            Some((s.address(), (end, s.name().ok()?.to_owned())))
        });
        FileCode {
            file,
            data: named.collect(),
            return_first_argument: words_of(file, &RETURN_FIRST_ARGUMENT),
        }
    }

    /// True if a call or jump leads to a function that returns its first argument, by a linkage table
    /// or by the word of its address.
    fn returns_first_argument(&self, call: &Instruction) -> bool {
        let word = |i: &Instruction| {
            let is_word = i.op0_kind() == OpKind::Memory && i.is_ip_rel_memory_operand();
            is_word.then(|| i.memory_displacement64())
        };
        let of_stub = || {
            let target = call.near_branch_target();
            let stub = self.bytes(target, target.saturating_add(MAX_STUB_BYTES))?;
            let code = Decoder::with_ip(64, stub, target, DecoderOptions::NONE);
            let jump = code
                .into_iter()
                .find(|i| i.mnemonic() != Mnemonic::Endbr64)?;
            word(&jump).filter(|_| jump.is_jmp_near_indirect())
        };
        let word = match call.is_call_near() || call.is_jmp_short_or_near() {
            true => of_stub(),
            false => word(call),
        };
        word.is_some_and(|word| self.return_first_argument.contains(&word))
    }

    /// Address and name of the data symbol that an address lies in.
    fn data_at(&self, address: u64) -> Option<(u64, &str)> {
        let (&begin, (end, name)) = self.data.range(..=address).next_back()?;
        (address < *end).then_some((begin, name.as_str()))
    }

    fn bytes(&self, from: u64, to: u64) -> Option<&'f [u8]> {
        let inside = |s: &object::Section<'f, 'f>| {
            s.kind() == object::SectionKind::Text
                && s.address() <= from
                && from < s.address().saturating_add(s.size())
        };
        let section = self.file.sections().find(inside)?;
        let end = to.min(section.address().saturating_add(section.size()));
        let data = section.data().ok()?;
        data.get((from - section.address()) as usize..(end - section.address()) as usize)
    }

    /// Rules that give the frame's base, for the function at an address.
    fn frame_rules(&self, at: u64) -> Vec<FrameRule> {
        let mut rules = Vec::new();
        let Some(section) = self.file.section_by_name(".eh_frame") else {
            return rules;
        };
        let Ok(data) = section.data() else {
            return rules;
        };
        let frame = EhFrame::from(EndianSlice::new(data, LittleEndian));
        let mut bases = BaseAddresses::default().set_eh_frame(section.address());
        for (name, set) in [
            (".text", BaseAddresses::set_text as fn(_, u64) -> _),
            (".got", BaseAddresses::set_got),
        ] {
            if let Some(section) = self.file.section_by_name(name) {
                bases = set(bases, section.address());
            }
        }
        let cie = |frame: &EhFrame<_>, bases: &_, offset| frame.cie_from_offset(bases, offset);
        let Ok(entry) = frame.fde_for_address(&bases, at, cie) else {
            return rules;
        };
        let mut context = gimli::UnwindContext::new();
        if let Ok(mut table) = entry.rows(&frame, &bases, &mut context) {
            while let Ok(Some(row)) = table.next_row() {
                if let gimli::CfaRule::RegisterAndOffset { register, offset } = row.cfa() {
                    rules.push((row.start_address(), row.end_address(), register.0, *offset));
                }
            }
        }
        rules
    }
}

/// Words that get the addresses of imported functions.
fn words_of(file: &object::File<'_>, functions: &[&str]) -> HashSet<u64> {
    let (Some(symbols), Some(relocations)) =
        (file.dynamic_symbol_table(), file.dynamic_relocations())
    else {
        return HashSet::new();
    };
    let is_of = |target: RelocationTarget| {
        let RelocationTarget::Symbol(symbol) = target else {
            return false;
        };
        let symbol = symbols.symbol_by_index(symbol);
        symbol.is_ok_and(|s| s.name().is_ok_and(|name| functions.contains(&name)))
    };
    let of_functions = relocations.filter(|(_, r)| is_of(r.target()));
    of_functions.map(|(word, _)| word).collect()
}

/// A register's number in debug information.
fn number(register: Register) -> Option<u16> {
    const ORDER: [Register; 16] = [
        Register::RAX,
        Register::RDX,
        Register::RCX,
        Register::RBX,
        Register::RSI,
        Register::RDI,
        Register::RBP,
        Register::RSP,
        Register::R8,
        Register::R9,
        Register::R10,
        Register::R11,
        Register::R12,
        Register::R13,
        Register::R14,
        Register::R15,
    ];
    let whole = register.full_register();
    ORDER.iter().position(|&r| r == whole).map(|n| n as u16)
}

const RAX: u16 = 0;
const RSP: u16 = 7;
/// `rax`, `rdx`, `rcx`, `rsi`, `rdi`, `r8` to `r11`: a call may change them.
const CHANGED_BY_CALLS: [u16; 9] = [0, 1, 2, 4, 5, 8, 9, 10, 11];
const FIRST_ARGUMENT: u16 = 5;

/// A place on the stack: register and distance, or distance from the frame's base.
type Slot = (Option<u16>, i64);

/// Known content of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    /// An address at this offset in a value of a type.
    Into(UnitOffset, i64),
    /// A number.
    Number(u64),
}

struct Walk<'w, 'd, 'a, 'f> {
    types: &'w Types<'d, 'a>,
    scope: &'w Scope,
    code: &'w FileCode<'f>,
    rules: Vec<FrameRule>,
    infos: InstructionInfoFactory,
    known: HashMap<u16, Value>,
    /// Registers and places on the stack with the result.
    registers: HashSet<u16>,
    slots: HashSet<Slot>,
    /// Callees of this unit, read at the first lookup.
    callees: Option<HashMap<u64, UnitOffset>>,
    best: Option<(u8, Goes)>,
}

/// Follows the result of a call that ends behind `call`.
pub(crate) fn follow(types: &Types<'_, '_>, scope: &Scope, code: &FileCode<'_>, call: u64) -> Goes {
    let (begin, end) = scope.code;
    if !(begin..end).contains(&call) {
        return Goes::Somewhere;
    }
    let Some(bytes) = code.bytes(begin, end) else {
        return Goes::Somewhere;
    };
    let mut walk = Walk {
        types,
        scope,
        code,
        rules: code.frame_rules(call),
        infos: InstructionInfoFactory::new(),
        known: HashMap::new(),
        registers: HashSet::new(),
        slots: HashSet::new(),
        callees: None,
        best: None,
    };
    let before: Vec<Instruction> = Decoder::with_ip(64, bytes, begin, DecoderOptions::NONE)
        .into_iter()
        .take_while(|i| i.ip() <= call)
        .take(MAX_INSTRUCTIONS_BEFORE_CALL)
        .collect();
    if before.last().is_none_or(|i| i.next_ip() != call + 1) {
        return Goes::Somewhere;
    }
    let targets: HashSet<u64> = before
        .iter()
        .filter(|i| i.is_jcc_short_or_near() || i.is_jmp_short_or_near())
        .map(Instruction::near_branch_target)
        .collect();
    for instruction in &before {
        if targets.contains(&instruction.ip()) {
            walk.known.clear();
        }
        walk.step(instruction);
        if instruction.flow_control() == FlowControl::UnconditionalBranch {
            walk.known.clear();
        }
    }
    walk.registers.insert(RAX);
    walk.after(bytes, call + 1);
    walk.best.map_or(Goes::Somewhere, |b| b.1)
}

impl Walk<'_, '_, '_, '_> {
    fn after(&mut self, bytes: &[u8], from: u64) {
        let (begin, end) = self.scope.code;
        let (mut at, mut jumps) = (from, 0);
        for _ in 0..MAX_INSTRUCTIONS_AFTER_CALL {
            if !(begin..end).contains(&at) || self.registers.is_empty() && self.slots.is_empty() {
                return;
            }
            let rest = &bytes[(at - begin) as usize..];
            let instruction = Decoder::with_ip(64, rest, at, DecoderOptions::NONE).decode();
            if instruction.is_invalid() {
                return;
            }
            self.look_at_variables(at);
            let is_tail_call = instruction.is_jmp_short_or_near()
                && self.registers.contains(&FIRST_ARGUMENT)
                && self.code.returns_first_argument(&instruction);
            if is_tail_call {
                self.registers.insert(RAX);
            }
            if is_tail_call || instruction.flow_control() == FlowControl::Return {
                self.comes_back();
                return;
            }
            self.step(&instruction);
            at = instruction.next_ip();
            if instruction.is_jmp_short_or_near() {
                jumps += 1;
                at = instruction.near_branch_target();
                if jumps > JUMPS {
                    return;
                }
            } else if instruction.flow_control() == FlowControl::IndirectBranch {
                return;
            }
        }
    }

    /// The function returns.
    fn comes_back(&mut self) {
        // (A function without a result leaves whatever it had there.)
        let returns = self.scope.returns;
        if let Some(returns) = returns.filter(|_| self.registers.contains(&RAX)) {
            match self.types.pointee(returns) {
                Some(of) => self.kept(of, String::new()),
                None => self.found(KEPT_SOMEWHERE, Goes::Back),
            }
        }
    }

    fn found(&mut self, rank: u8, goes: Goes) {
        // The last table of virtual functions counts, since bases come first.
        if self
            .best
            .as_ref()
            .is_none_or(|b| b.0 < rank || rank == MADE_VIRTUAL_OBJECT)
        {
            self.best = Some((rank, goes));
        }
    }

    fn goes(&mut self, rank: u8, of: UnitOffset, kept_in: String) {
        self.found(rank, Goes::To { of, kept_in });
    }

    /// The result is kept in a variable or field. One of bytes may be that of an allocator.
    fn kept(&mut self, of: UnitOffset, name: String) {
        let rank = match self.types.is_byte(of) {
            true => KEPT_AS_BYTES,
            false => KEPT_SOMEWHERE,
        };
        self.goes(rank, of, name);
    }

    /// Finds variables that are in registers or places on the stack with the result.
    fn look_at_variables(&mut self, at: u64) {
        let holds = |place: VariablePlace| match place {
            VariablePlace::Register(r) => self.registers.contains(&r),
            VariablePlace::Frame(by) => self.slots.contains(&(None, by)),
            VariablePlace::Based(register, by) => self.slots.contains(&self.slot(at, register, by)),
        };
        let here = |v: &&Variable| {
            (v.places.iter()).any(|&(from, to, place)| from <= at && at < to && holds(place))
        };
        let found: Vec<(bool, UnitOffset, String)> = (self.scope.variables.iter())
            .filter(here)
            .filter_map(|v| Some((v.is_made, self.types.pointee(v.of)?, v.name.clone())))
            .collect();
        for (is_made, of, name) in found {
            match is_made {
                true => self.goes(MADE_OBJECT, of, String::new()),
                false if name == "this" => {}
                false => self.kept(of, name),
            }
        }
    }

    /// Place on the stack of an operand.
    fn slot(&self, at: u64, base: u16, distance: i64) -> Slot {
        let rule = self.rules.iter().find(|r| r.0 <= at && at < r.1);
        match rule {
            Some(&(_, _, register, by)) if register == base => (None, distance - by),
            _ => (Some(base), distance),
        }
    }

    /// For a memory operand: the type of the value around it, the offset into the value, and the
    /// variable.
    fn memory(&self, instruction: &Instruction) -> Option<(UnitOffset, i64, String)> {
        let distance = instruction.memory_displacement64();
        if instruction.is_ip_rel_memory_operand()
            || instruction.memory_base() == Register::None
                && instruction.memory_index() == Register::None
        {
            return self.global(instruction.memory_displacement64());
        }
        let base = number(instruction.memory_base())?;
        let distance = distance as i64;
        if let Some(&Value::Into(of, by)) = self.known.get(&base) {
            return Some((of, by.checked_add(distance)?, String::new()));
        }
        let pointer = self.scope.variables.iter().find(|v| {
            let here =
                |p: &&(u64, u64, VariablePlace)| p.0 <= instruction.ip() && instruction.ip() < p.1;
            (v.places.iter().filter(here))
                .any(|p| matches!(p.2, VariablePlace::Register(r) if r == base))
        });
        if let Some(of) = pointer.and_then(|v| self.types.pointee(v.of)) {
            return Some((of, distance, String::new()));
        }
        if instruction.memory_index() != Register::None {
            return None;
        }
        let slot = self.slot(instruction.ip(), base, distance);
        let mut found = None;
        for variable in &self.scope.variables {
            for &(from, to, place) in &variable.places {
                if !(from <= instruction.ip() && instruction.ip() < to) {
                    continue;
                }
                let begin = match place {
                    VariablePlace::Frame(by) => (None, by),
                    VariablePlace::Based(register, by) => self.slot(instruction.ip(), register, by),
                    VariablePlace::Register(_) => continue,
                };
                let into = slot.1.checked_sub(begin.1)?;
                let bytes = self.types.bytes(variable.of).unwrap_or(8) as i64;
                if slot.0 == begin.0 && (0..bytes).contains(&into) {
                    found = Some((variable.of, into, variable.name.clone()));
                }
            }
        }
        found
    }

    /// As `memory`, for a global variable.
    fn global(&self, address: u64) -> Option<(UnitOffset, i64, String)> {
        let (begin, symbol) = self.code.data_at(address)?;
        let wanted = mgz_elf::demangle::readable(symbol);
        let wanted = wanted.rsplit("::").next().unwrap_or(&wanted).to_owned();
        // Variables of functions have a number behind their names.
        let wanted = wanted.split('.').next().unwrap_or(&wanted);
        let mut found = None;
        let mut entries = self.types.unit.entries();
        while let Ok(Some(entry)) = entries.next_dfs() {
            if entry.tag() != gimli::DW_TAG_variable {
                continue;
            }
            if self.types.name_of_instance(entry.offset()).as_deref() == Some(wanted) {
                found = self.types.type_of_instance(entry.offset());
                if found.is_some() {
                    break;
                }
            }
        }
        let into = (address - begin) as i64;
        let bytes = |of| match self.types.element_elsewhere(of) {
            // Its first word is the address of the elements.
            Some(_) => 8,
            None => self.types.bytes(of).unwrap_or(0) as i64,
        };
        found
            .filter(|&of| into < bytes(of))
            .map(|of| (of, into, wanted.to_owned()))
    }

    /// The pointer's type and name of the memory that an operand names.
    fn pointer_in(&self, instruction: &Instruction) -> Option<(UnitOffset, String)> {
        let (of, into, variable) = self.memory(instruction)?;
        let bytes = self.types.bytes(of).filter(|&b| b > 0)?;
        // All elements of an array have the same type.
        let (of, field) = self
            .types
            .inside(of, into.rem_euclid(i64::try_from(bytes).ok()?) as u64)?;
        let name = match (variable.as_str(), field.as_str()) {
            ("", field) => field.to_owned(),
            (variable, "") => variable.to_owned(),
            (variable, field) => format!("{variable}.{field}"),
        };
        Some((of, name))
    }

    /// Follows one instruction.
    fn step(&mut self, i: &Instruction) {
        let flow = i.flow_control();
        if matches!(flow, FlowControl::Call | FlowControl::IndirectCall) {
            if self.registers.contains(&FIRST_ARGUMENT) && i.is_call_near() {
                self.passed_to(i.near_branch_target());
            }
            let is_back =
                self.registers.contains(&FIRST_ARGUMENT) && self.code.returns_first_argument(i);
            for register in CHANGED_BY_CALLS {
                self.registers.remove(&register);
                self.known.remove(&register);
            }
            if is_back {
                self.registers.insert(RAX);
            }
            return;
        }
        let is_wide = |op: u32| i.op_kind(op) == OpKind::Register && i.op_register(op).is_gpr64();
        match i.mnemonic() {
            Mnemonic::Mov if is_wide(0) && is_wide(1) => {
                let (to, from) = (number(i.op0_register()), number(i.op1_register()));
                if let (Some(to), Some(from)) = (to, from) {
                    let value = self.known.get(&from).copied();
                    let held = self.registers.contains(&from);
                    self.set(to, value, held);
                }
            }
            Mnemonic::Mov if is_wide(0) && i.op1_kind() == OpKind::Memory => {
                let held = self.stack_slot(i).is_some_and(|s| self.slots.contains(&s));
                let value = self
                    .pointer_in(i)
                    .and_then(|(of, _)| self.types.pointee(of))
                    .map(|of| Value::Into(of, 0));
                if let Some(to) = number(i.op0_register()) {
                    self.set(to, value, held);
                }
            }
            Mnemonic::Mov if i.op0_kind() == OpKind::Memory && is_wide(1) => {
                let from = number(i.op1_register());
                let held = from.is_some_and(|f| self.registers.contains(&f));
                self.stored(i, from.and_then(|f| self.known.get(&f).copied()), held);
            }
            Mnemonic::Mov
                if i.op0_kind() == OpKind::Memory && i.op1_kind() == OpKind::Immediate32to64 =>
            {
                self.stored(i, Some(Value::Number(i.immediate(1))), false);
            }
            Mnemonic::Mov
                if i.op0_kind() == OpKind::Register && i.op1_kind() == OpKind::Immediate32 =>
            {
                if let Some(to) = number(i.op0_register()) {
                    self.set(to, Some(Value::Number(u64::from(i.immediate32()))), false);
                }
            }
            Mnemonic::Lea if is_wide(0) => {
                let value = if i.is_ip_rel_memory_operand() {
                    Some(Value::Number(i.memory_displacement64()))
                } else {
                    self.memory(i).map(|(of, by, _)| Value::Into(of, by))
                };
                if let Some(to) = number(i.op0_register()) {
                    self.set(to, value, false);
                }
            }
            Mnemonic::Add if is_wide(0) => {
                let Some(to) = number(i.op0_register()) else {
                    return;
                };
                let value = if is_wide(1) {
                    // One of the two registers is an address, the other an index.
                    let into = |r: Option<u16>| match r.and_then(|r| self.known.get(&r)) {
                        Some(&Value::Into(of, by)) => Some(Value::Into(of, by)),
                        _ => None,
                    };
                    into(Some(to)).or_else(|| into(number(i.op1_register())))
                } else {
                    let by = i.try_immediate(1).ok().map(|v| v as i64);
                    match (self.known.get(&to), by) {
                        (Some(&Value::Into(of, at)), Some(by)) => {
                            at.checked_add(by).map(|at| Value::Into(of, at))
                        }
                        _ => None,
                    }
                };
                self.set(to, value, false);
            }
            Mnemonic::Push => {
                // The stack pointer changes with it, so known values relative to it become unknown.
                self.slots.retain(|s| s.0 != Some(RSP));
            }
            _ => self.clobber(i),
        }
    }

    fn clobber(&mut self, i: &Instruction) {
        let changed: Vec<u16> = self
            .infos
            .info(i)
            .used_registers()
            .iter()
            .filter(|r| {
                !matches!(
                    r.access(),
                    OpAccess::Read | OpAccess::CondRead | OpAccess::None
                )
            })
            .filter_map(|r| number(r.register()))
            .collect();
        for register in changed {
            self.set(register, None, false);
        }
    }

    fn set(&mut self, register: u16, value: Option<Value>, held: bool) {
        match value {
            Some(value) => self.known.insert(register, value),
            None => self.known.remove(&register),
        };
        if held {
            self.registers.insert(register);
        } else {
            self.registers.remove(&register);
        }
        if register == RSP {
            self.slots.retain(|s| s.0 != Some(RSP));
        }
    }

    fn stack_slot(&self, i: &Instruction) -> Option<Slot> {
        let base = number(i.memory_base())?;
        let is_frame = i.memory_index() == Register::None && matches!(base, 6 | 7);
        is_frame.then(|| self.slot(i.ip(), base, i.memory_displacement64() as i64))
    }

    /// Follows a store of the result, or of another value.
    fn stored(&mut self, i: &Instruction, value: Option<Value>, held: bool) {
        let slot = self.stack_slot(i);
        if !held {
            if let Some(slot) = slot {
                self.slots.remove(&slot);
            }
            let at_begin = number(i.memory_base()).is_some_and(|b| self.registers.contains(&b))
                && i.memory_displacement64() == 0
                && i.memory_index() == Register::None;
            if let (true, Some(Value::Number(address))) = (at_begin, value) {
                self.becomes(address);
            }
            return;
        }
        if let Some((of, 0, name)) = self.memory(i)
            && let Some(element) = self.types.element_elsewhere(of)
        {
            self.kept(element, name);
        } else if let Some((of, name)) = self.pointer_in(i)
            && let Some(of) = self.types.pointee(of)
            && name != "this"
        {
            self.kept(of, name);
        }
        if let Some(slot) = slot {
            self.slots.insert(slot);
        }
    }

    /// A table of virtual functions is stored in the result's first word.
    fn becomes(&mut self, address: u64) {
        let table = self.code.data_at(address);
        let Some(class) = table.and_then(|(_, name)| {
            let readable = mgz_elf::demangle::readable(name);
            let class = readable.strip_prefix("vtable for ").or_else(|| {
                let class = readable.strip_suffix("::{vtable(s)}")?;
                Some(class)
            })?;
            Some(class.to_owned())
        }) else {
            return;
        };
        let plain = class.rsplit("::").next().unwrap_or(&class).to_owned();
        let mut found = None;
        let mut entries = self.types.unit.entries();
        while let Ok(Some(entry)) = entries.next_dfs() {
            let is_class = matches!(
                entry.tag(),
                gimli::DW_TAG_class_type | gimli::DW_TAG_structure_type
            );
            if is_class
                && !entry.has_attr(gimli::DW_AT_declaration)
                && self.types.own_name(entry).as_deref() == Some(&plain)
            {
                found = Some(entry.offset());
                break;
            }
        }
        match found {
            Some(of) => self.goes(MADE_VIRTUAL_OBJECT, of, String::new()),
            None => self.found(MADE_VIRTUAL_OBJECT, Goes::Named(class)),
        }
    }

    /// The result is passed as the first argument of a function.
    fn passed_to(&mut self, address: u64) {
        let types = self.types;
        let callees = self.callees.get_or_insert_with(|| {
            let mut callees = HashMap::new();
            let mut entries = types.unit.entries();
            while let Ok(Some(entry)) = entries.next_dfs() {
                if entry.tag() == gimli::DW_TAG_subprogram
                    && let Some(value) = entry.attr_value(gimli::DW_AT_low_pc)
                    && let Ok(Some(address)) = types.dwarf.attr_address(types.unit, value)
                {
                    callees.insert(address, entry.offset());
                }
            }
            callees
        });
        let Some(&callee) = callees.get(&address) else {
            return;
        };
        let Some(of) = first_argument(types, callee).and_then(|of| types.pointee(of)) else {
            return;
        };
        let rank = if is_constructor(types, callee) {
            MADE_OBJECT
        } else {
            PASSED_ON
        };
        self.goes(rank, of, String::new());
    }
}

/// Strength of a finding, the least first: the result is kept as bytes, is passed to a function, is
/// kept somewhere, becomes an object, or becomes an object with virtual functions.
const KEPT_AS_BYTES: u8 = 0;
const PASSED_ON: u8 = 1;
const KEPT_SOMEWHERE: u8 = 2;
const MADE_OBJECT: u8 = 3;
const MADE_VIRTUAL_OBJECT: u8 = 4;
