//! Calls of the C library's `sigaction` in a file, and the conditions under which other code can
//! replace it.

use crate::program::imports::Imports;
use crate::program::{Input, Program};
use crate::signals::{graph, is_installer, is_reference, is_system_call, places};
use crate::x86::flow::direct_target;
use iced_x86::{FlowControl, Instruction, OpKind};
use mgz_elf::Elf;
use std::collections::BTreeSet;

/// The words and uses of `sigaction`, see [`crate::signals::wrapped`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wrapped {
    /// Words that hold the address of the C library's function.
    pub slots: BTreeSet<u64>,
    /// The original's jumps and calls through these words, including those in linkage tables: the
    /// start of the next instruction, and true for a call. Each ends with six bytes: opcode, ModRM,
    /// distance.
    pub uses: BTreeSet<(u64, bool)>,
}

/// Bytes of a jump or call through a word, without prefixes.
pub const THROUGH: u64 = 6;

impl Wrapped {
    /// Adds a jump or call through a word; `None` if it has another form.
    fn add(&mut self, input: &Input, inst: &Instruction, is_call: bool) -> Option<()> {
        let end = inst.next_ip();
        let opcode = input.bytes_at(end - THROUGH)?.get(..2)?;
        if opcode != [0xff, if is_call { 0x15 } else { 0x25 }] || (inst.len() as u64) < THROUGH {
            return None;
        }
        self.uses.insert((end, is_call));
        Some(())
    }
}

/// Finds all uses; `None` if there are none, or some are no calls.
pub fn find_sigaction_calls(elf: &Elf, input: &Input, program: &Program) -> Option<Wrapped> {
    let imports = Imports::read(elf, input);
    if imports.taken.iter().any(|n| is_installer(n)) {
        return None;
    }
    let named = |entry: (&u64, &String)| is_installer(entry.1).then_some(*entry.0);
    let mut wrapped = Wrapped {
        slots: imports.slots.iter().filter_map(named).collect(),
        ..Wrapped::default()
    };
    let stubs: BTreeSet<u64> = imports.stubs.iter().filter_map(named).collect();
    let targets: BTreeSet<u64> = wrapped.slots.union(&stubs).copied().collect();
    // With two names there may be two different functions.
    let names: BTreeSet<&String> = imports.slots.values().filter(|n| is_installer(n)).collect();
    if names.len() != 1 {
        return None;
    }
    for &end in &imports.stub_jumps {
        let distance = input.bytes_at(end - 4)?.first_chunk()?;
        if wrapped
            .slots
            .contains(&end.wrapping_add_signed(i32::from_le_bytes(*distance).into()))
        {
            wrapped.uses.insert((end, false));
        }
    }
    let mut functions = BTreeSet::new();
    for place in places(input, &targets)
        .into_iter()
        .filter(|&p| !is_system_call(input, p))
    {
        match program.function_at(place) {
            Some(function) => {
                functions.insert(function.0 as usize);
            }
            None if is_reference(input, place) => return None,
            None => {}
        }
    }
    for function in functions {
        for insn in &graph(input, program, function)?.insns {
            match use_of(&insn.inst, &wrapped.slots, &stubs, input.pie) {
                Use::None => {}
                Use::Through(is_call) => wrapped.add(input, &insn.inst, is_call)?,
                Use::Other => return None,
            }
        }
    }
    Some(wrapped)
}

enum Use {
    /// No use, or a call or jump to an entry of the linkage table, which counts as one through its
    /// word.
    None,
    /// A jump or (true) a call through a word.
    Through(bool),
    Other,
}

fn use_of(inst: &Instruction, slots: &BTreeSet<u64>, stubs: &BTreeSet<u64>, pie: bool) -> Use {
    if direct_target(inst).is_some() {
        return Use::None;
    }
    let known = |at: u64| slots.contains(&at) || stubs.contains(&at);
    if inst.is_ip_rel_memory_operand() && known(inst.ip_rel_memory_address()) {
        return match inst.flow_control() {
            FlowControl::IndirectCall if slots.contains(&inst.ip_rel_memory_address()) => {
                Use::Through(true)
            }
            FlowControl::IndirectBranch if slots.contains(&inst.ip_rel_memory_address()) => {
                Use::Through(false)
            }
            _ => Use::Other,
        };
    }
    let absolute = |o: u32| match inst.op_kind(o) {
        OpKind::Register => false,
        OpKind::Memory => known(inst.memory_displacement64()),
        _ => inst.try_immediate(o).is_ok_and(known),
    };
    if !pie && (0..inst.op_count()).any(absolute) {
        Use::Other
    } else {
        Use::None
    }
}
