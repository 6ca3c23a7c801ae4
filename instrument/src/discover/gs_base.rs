//! Functions that set the `%gs` base for themselves and restore it.
//!
//! The base belongs to the soft backend. A function may stay unchanged if it reads the base with
//! `rdgsbase`, sets another, uses that and restores the first, all in one straight run of
//! instructions. No clone's code runs in between if there are no signal handlers, and the value
//! that it read is used for nothing else.

use crate::discover::scanner::uses_gs;
use crate::ir::FunctionId;
use crate::program::imports::Imports;
use crate::program::{Input, Program};
use crate::x86::decode::sweep;
use crate::x86::flow::direct_target;
use iced_x86::{
    FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};
use mgz_elf::Elf;
use mgz_elf::image::dt;
use object::elf;

/// Functions that a program needs to install signal handlers, or to load code that may do so.
const INSTALLERS: [&str; 17] = [
    "sigaction",
    "__sigaction",
    "signal",
    "__signal",
    "bsd_signal",
    "sysv_signal",
    "__sysv_signal",
    "ssignal",
    "gsignal",
    "sigset",
    "sigvec",
    "syscall",
    "dlsym",
    "dlvsym",
    "dlopen",
    "dlmopen",
    "profil",
];
/// Libraries that install no handlers by themselves.
const LIBRARIES_WITHOUT_OWN_BASE: [&str; 6] = [
    "libc.so.6",
    "libm.so.6",
    "libgcc_s.so.1",
    "libstdc++.so.6",
    "libpthread.so.0",
    "ld-linux-x86-64.so.2",
];
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// True if a file is the executable of a program without signal handlers, by the file and the
/// libraries that it needs.
pub fn has_no_handlers(elf: &Elf, input: &Input) -> bool {
    let imports = Imports::read(elf, input);
    let installs = |name: &String| INSTALLERS.contains(&name.as_str());
    let named = imports.slots.values().chain(&imports.taken).any(installs);
    let calls_kernel = input.exec_ranges.iter().any(|range| {
        let code = input.slice(range).unwrap_or(&[]);
        memchr::memmem::find(code, &SYSCALL).is_some()
    });
    let needed = elf.dynamic_strings(dt(elf::DT_NEEDED));
    elf.interpreter().is_some()
        && !named
        && !calls_kernel
        && needed
            .iter()
            .all(|name| LIBRARIES_WITHOUT_OWN_BASE.contains(&name.as_str()))
}

/// True if a function restores the base wherever it sets it, and uses only the base that it set.
pub fn puts_back(input: &Input, program: &Program, function: FunctionId) -> bool {
    let info = program.function(function);
    let inner = info.inner();
    let is_entered = [
        &inner.branched,
        &inner.called,
        &inner.taken,
        &inner.doubted,
        &inner.aimed,
    ]
    .iter()
    .any(|list| !list.is_empty())
        || !inner.words.is_empty()
        || info.computed;
    let body = input
        .slice(&info.range)
        .and_then(|bytes| sweep(bytes, info.range.start));
    body.is_some_and(|body| {
        let all: Vec<Instruction> = body.insns.iter().map(|i| i.inst).collect();
        !is_entered && all_put_back(&all)
    })
}

/// As `puts_back`, for a list of instructions.
fn all_put_back(all: &[Instruction]) -> bool {
    let jumps_anywhere = all.iter().any(|i| {
        i.flow_control() == FlowControl::IndirectBranch || i.mnemonic() == Mnemonic::Syscall
    });
    let targets: Vec<u64> = all.iter().filter_map(direct_target).collect();
    let mut at = 0;
    while let Some(first) = (at..all.len()).find(|&n| uses_gs(&all[n])) {
        match end_of(&all[first..], &targets) {
            Some(len) => at = first + len,
            None => return false,
        }
    }
    !jumps_anywhere
}

/// Length of a run that begins with a read of the base and ends with its restoration. No trace of
/// the value may remain after the run.
fn end_of(run: &[Instruction], targets: &[u64]) -> Option<usize> {
    let mut factory = InstructionInfoFactory::new();
    let first = run.first()?;
    let saved = first.op0_register();
    if first.mnemonic() != Mnemonic::Rdgsbase || saved.size() != 8 || saved == Register::RSP {
        return None;
    }
    let mut own = false;
    let mut end = None;
    for (n, inst) in run.iter().enumerate().skip(1) {
        let writes_base = inst.mnemonic() == Mnemonic::Wrgsbase;
        if inst.flow_control() != FlowControl::Next || targets.contains(&inst.ip()) {
            return None;
        }
        if writes_base && inst.op0_register() == saved {
            end = Some(n + 1);
            break;
        }
        if touches(&mut factory, inst, saved).is_some() {
            return None;
        }
        let sets = writes_base && inst.op0_register().size() == 8;
        let in_memory = (0..inst.op_count()).any(|o| inst.op_kind(o) == OpKind::Memory);
        match uses_gs(inst) {
            true if sets => own = true,
            true if own && in_memory && inst.op0_register() != Register::GS => {}
            true => return None,
            false => {}
        }
    }
    let end = end?;
    // Other code must not see the base that was read.
    for inst in run.get(end..)? {
        if uses_gs(inst) {
            return None;
        }
        match touches(&mut factory, inst, saved) {
            Some(true) => return Some(end),
            Some(false) => return None,
            None => {}
        }
        match inst.flow_control() {
            FlowControl::Next => {}
            FlowControl::Return if is_lost_at_return(saved) => return Some(end),
            _ => return None,
        }
    }
    None
}

/// `None` if an instruction does not access a register; true if it only overwrites the register.
fn touches(
    factory: &mut InstructionInfoFactory,
    inst: &Instruction,
    register: Register,
) -> Option<bool> {
    let same = |r: Register| r.full_register() == register;
    if inst.is_stack_instruction() && same(Register::RSP) {
        return Some(false);
    }
    let info = factory.info(inst);
    let used: Vec<_> = info
        .used_registers()
        .iter()
        .filter(|u| same(u.register()))
        .collect();
    let in_address = info
        .used_memory()
        .iter()
        .any(|m| same(m.base()) || same(m.index()));
    let overwrites =
        |u: &&iced_x86::UsedRegister| u.access() == OpAccess::Write && u.register().size() >= 4;
    match used.is_empty() && !in_address {
        true => None,
        false => Some(!in_address && used.iter().all(overwrites)),
    }
}

/// True if no caller reads a register when a function returns.
fn is_lost_at_return(register: Register) -> bool {
    use Register::{R8, R9, R10, R11, RCX, RDI, RSI};
    [RCX, RSI, RDI, R8, R9, R10, R11].contains(&register)
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    fn judge(parts: &[&[u8]]) -> bool {
        let code = parts.concat();
        let all: Vec<_> = Decoder::with_ip(64, &code, 0x1000, DecoderOptions::NONE)
            .into_iter()
            .collect();
        assert!(all.iter().all(|i| !i.is_invalid()), "{code:02x?}");
        all_put_back(&all)
    }

    const READ_RCX: &[u8] = &[0xf3, 0x48, 0x0f, 0xae, 0xc9];
    const READ_RAX: &[u8] = &[0xf3, 0x48, 0x0f, 0xae, 0xc8];
    const WRITE_RCX: &[u8] = &[0xf3, 0x48, 0x0f, 0xae, 0xd9];
    const WRITE_RAX: &[u8] = &[0xf3, 0x48, 0x0f, 0xae, 0xd8];
    const WRITE_RDI: &[u8] = &[0xf3, 0x48, 0x0f, 0xae, 0xdf];
    /// `mov rax, gs:[8]`.
    const LOAD: &[u8] = &[0x65, 0x48, 0x8b, 0x04, 0x25, 8, 0, 0, 0];
    /// `mov gs, eax`.
    const SELECTOR: &[u8] = &[0x8e, 0xe8];
    const CALL: &[u8] = &[0xe8, 0, 1, 0, 0];
    const RET: &[u8] = &[0xc3];
    const NOP: &[u8] = &[0x90];
    /// `jmp` to the next instruction.
    const JUMP: &[u8] = &[0xeb, 0];
    /// `mov rdx, rcx`, `mov rcx, rdi`, `xor eax, eax`.
    const COPY: &[u8] = &[0x48, 0x89, 0xca];
    const OVER: &[u8] = &[0x48, 0x89, 0xf9];
    const ZERO: &[u8] = &[0x31, 0xc0];

    #[test]
    fn what_is_put_back() {
        assert!(judge(&[READ_RCX, WRITE_RDI, LOAD, WRITE_RCX, RET]));
        assert!(judge(&[
            NOP, READ_RCX, NOP, WRITE_RDI, LOAD, LOAD, WRITE_RCX, OVER, CALL, RET
        ]));
        assert!(judge(&[READ_RAX, WRITE_RDI, WRITE_RAX, ZERO, RET]));
        let twice = [READ_RCX, WRITE_RDI, LOAD, WRITE_RCX];
        assert!(judge(&[&twice.concat(), OVER, &twice.concat(), RET]));
    }

    #[test]
    fn what_is_not() {
        // The base is not restored, restored too late, or restored after control left the run.
        assert!(!judge(&[WRITE_RDI, LOAD, RET]));
        assert!(!judge(&[LOAD, RET]));
        assert!(!judge(&[READ_RCX, WRITE_RDI, LOAD, RET]));
        assert!(!judge(&[
            READ_RCX, WRITE_RDI, LOAD, WRITE_RCX, OVER, LOAD, RET
        ]));
        assert!(!judge(&[READ_RCX, WRITE_RDI, CALL, WRITE_RCX, RET]));
        assert!(!judge(&[READ_RCX, WRITE_RDI, JUMP, LOAD, WRITE_RCX, RET]));
        assert!(!judge(&[READ_RCX, WRITE_RDI, SELECTOR, WRITE_RCX, RET]));
        // The run restores another value, or uses the base before it sets another.
        assert!(!judge(&[READ_RCX, WRITE_RDI, OVER, WRITE_RCX, RET]));
        assert!(!judge(&[READ_RCX, LOAD, WRITE_RCX, RET]));
        // The base is visible to other code.
        assert!(!judge(&[READ_RAX, RET]));
        assert!(!judge(&[READ_RAX, WRITE_RDI, WRITE_RAX, RET]));
        assert!(!judge(&[READ_RCX, WRITE_RDI, COPY, WRITE_RCX, RET]));
        assert!(!judge(&[READ_RCX, WRITE_RDI, WRITE_RCX, COPY, RET]));
        assert!(!judge(&[READ_RCX, WRITE_RDI, WRITE_RCX, CALL, RET]));
    }
}
