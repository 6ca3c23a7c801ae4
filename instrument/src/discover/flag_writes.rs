//! Functions that write bits of the flags register which no comparison sets: the trap flag, by
//! which a program single-steps itself, and the alignment check.
//!
//! Only `popf` and `iret` set them. Their operand is followed back to its origin. Flags that
//! `pushf` saved shortly before are harmless if these bits are unchanged. An unknown value may have
//! both bits.

use crate::common::skip_reason::LeftReason;
use crate::discover::self_reads::WRITTEN;
use crate::program::{Input, Program};
use crate::x86::decode::sweep;
use crate::x86::insn::Insn;
use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

const TRAP: u64 = 1 << 8;
/// The alignment check.
const ALIGNMENT: u64 = 1 << 18;
const BOTH: u64 = TRAP | ALIGNMENT;
/// All valid bits of the flags. A number with other bits is no flags value.
const FLAGS: u64 = 0x3f_7fd7;
/// Source: Chosen.
const MAX_INSTRUCTIONS_BACK: usize = 64;

/// Flags that the functions of a file may set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlagWrites {
    /// Address at which the trap flag may be set.
    pub steps: Option<u64>,
    /// Address at which the alignment check may be set.
    pub alignment: Option<u64>,
}

/// Offset of the flags in the third argument of a handler (`ucontext_t`).
const CONTEXT_FLAGS: u64 = 176;

/// True if an offset may be that of these flags, or of their second byte.
pub fn is_context_flags(distance: u64) -> bool {
    distance.wrapping_sub(CONTEXT_FLAGS) <= 1
}

/// True if an instruction may be part of a change of the flags in a handler's context.
pub fn may_change_context(inst: &Instruction) -> bool {
    is_context_flags(inst.memory_displacement64())
        && inst.memory_base().is_gpr64()
        && inst.memory_index() == Register::None
        && matches!(
            inst.mnemonic(),
            Mnemonic::Or | Mnemonic::Bts | Mnemonic::Mov
        )
        && (0..inst.op_count()).any(|o| inst.op_kind(o) == OpKind::Memory)
}

/// Address at which a function sets the trap flag in the context that it gets as a handler.
fn sets_in_context(insns: &[Insn]) -> Option<u64> {
    let mut factory = InstructionInfoFactory::new();
    // Places of the context's address, and registers loaded with the context's flags.
    let mut contexts = vec![Place::Register(Register::RDX)];
    let mut flags: Vec<Register> = Vec::new();
    for insn in insns {
        let inst = &insn.inst;
        let in_context = |by: u64| {
            contexts.contains(&Place::Register(inst.memory_base()))
                && inst.memory_displacement64() == CONTEXT_FLAGS + by
                && inst.memory_index() == Register::None
        };
        let number = inst.try_immediate(1).ok();
        let is_memory = inst.op0_kind() == OpKind::Memory;
        let sets = |shift: u64| match (inst.mnemonic(), number) {
            (Mnemonic::Or, Some(n)) => (n << shift) & TRAP != 0,
            (Mnemonic::Bts, Some(n)) => n + shift == 8,
            _ => false,
        };
        let high = part_of(inst, Place::Register(inst.op0_register().full_register()));
        if is_memory && (in_context(0) && sets(0) || in_context(1) && sets(8))
            || inst.op0_kind() == OpKind::Register
                && flags.contains(&inst.op0_register().full_register())
                && sets(high.unwrap_or(0))
        {
            return Some(inst.ip());
        }
        let copied = match (inst.mnemonic(), source(inst, 1)) {
            (Mnemonic::Mov, Source::Place(from)) if contexts.contains(&from) => Some(true),
            (Mnemonic::Mov, _) if !is_memory && in_context(0) => Some(false),
            (Mnemonic::Mov, Source::Place(Place::Register(from))) if flags.contains(&from) => {
                Some(false)
            }
            _ => None,
        };
        let Source::Place(to) = source(inst, 0) else {
            continue;
        };
        let is_write = factory.info(inst).op0_access() != OpAccess::Read;
        let keeps = matches!(inst.mnemonic(), Mnemonic::And | Mnemonic::Or);
        if is_write && !keeps {
            contexts.retain(|place| *place != to);
            flags.retain(|register| Place::Register(*register) != to);
        }
        match (copied, to) {
            (Some(true), to) => contexts.push(to),
            (Some(false), Place::Register(register)) => flags.push(register),
            _ => {}
        }
    }
    None
}

/// Leaves functions that write these bits unchanged, so that only original code writes them.
/// Returns the bits that they may set. `has_handlers`: the program may have signal handlers.
pub fn leave(input: &Input, program: &mut Program, has_handlers: bool) -> FlagWrites {
    let mut found = FlagWrites::default();
    let mut left = Vec::new();
    for &at in &program.sets_flags {
        let Some(id) = program.function_at(at) else {
            continue;
        };
        let range = &program.function(id).range;
        let body = input
            .slice(range)
            .and_then(|bytes| sweep(bytes, range.start));
        // Bytes that do not decode, or that the program writes first (decrypts), are ignored.
        let is_written = program.function(id).left == Some(WRITTEN);
        let Some(body) = body.filter(|_| !is_written) else {
            left.push(id);
            continue;
        };
        let Some(bits) = bits(&body.insns) else {
            continue;
        };
        left.push(id);
        if bits & TRAP != 0 {
            found.steps.get_or_insert(at);
        }
        if bits & ALIGNMENT != 0 {
            found.alignment.get_or_insert(at);
        }
    }
    let in_context = program.changes_context.iter().filter(|_| has_handlers);
    let stepper = in_context
        .filter_map(|&at| {
            let range = &program.function(program.function_at(at)?).range;
            let body = sweep(input.slice(range)?, range.start)?;
            sets_in_context(&body.insns)
        })
        .next();
    found.steps = found.steps.or(stepper);
    for id in left {
        program.functions[id.0 as usize]
            .left
            .get_or_insert(LeftReason::SetsFlags);
    }
    found
}

/// True if an instruction sets all flags from memory.
pub fn sets_flags(inst: &Instruction) -> bool {
    matches!(
        inst.mnemonic(),
        Mnemonic::Popf | Mnemonic::Popfd | Mnemonic::Popfq
    ) || returns_as_from_interrupt(inst)
}

/// True for `iret` of 64-bit code, which pops two words before the flags.
fn returns_as_from_interrupt(inst: &Instruction) -> bool {
    inst.mnemonic() == Mnemonic::Iretq
}

fn saves_flags(inst: &Instruction) -> bool {
    matches!(
        inst.mnemonic(),
        Mnemonic::Pushf | Mnemonic::Pushfd | Mnemonic::Pushfq
    )
}

/// The subset of the two bits that a function may set. `None`: it changes neither.
fn bits(insns: &[Insn]) -> Option<u64> {
    let writers = (0..insns.len()).filter(|&n| sets_flags(&insns[n].inst));
    let mut all = None;
    for at in writers {
        let distance = 16 * i64::from(returns_as_from_interrupt(&insns[at].inst));
        if let Some(bits) = taken(&insns[..at], distance) {
            all = Some(all.unwrap_or(0) | bits);
        }
    }
    all
}

/// Place of the value during the search backwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In a register.
    Register(Register),
    /// In memory, by base and distance.
    Memory(Register, i64),
}

/// Bits that the next instruction may set, which takes the flags at this distance from the stack
/// pointer. `None`: it restores saved flags.
fn taken(before: &[Insn], distance: i64) -> Option<u64> {
    let mut place = Place::Memory(Register::RSP, distance);
    let mut factory = InstructionInfoFactory::new();
    let (mut bits, mut changed) = (0, false);
    for insn in before.iter().rev().take(MAX_INSTRUCTIONS_BACK) {
        let inst = &insn.inst;
        let top = place == Place::Memory(Register::RSP, 0);
        if top && saves_flags(inst) {
            return changed.then_some(bits);
        }
        if top && inst.mnemonic() == Mnemonic::Push {
            match source(inst, 0) {
                Source::Place(from) => place = from,
                Source::Number(n) => return Some(bits | n & BOTH),
                Source::Unknown => return Some(BOTH),
            }
            continue;
        }
        if let Place::Register(register) = place
            && inst.mnemonic() == Mnemonic::Pop
            && inst.op0_register().full_register() == register
        {
            place = Place::Memory(Register::RSP, 0);
            continue;
        }
        let Some(shift) = part_of(inst, place) else {
            if is_on_stack(place) && sets_stack(&mut factory, inst) {
                return saved_somewhere(before);
            }
            // Pushes and pops in between move the stack pointer.
            place = moved(inst, place);
            if overwrites(&mut factory, inst, place) {
                return Some(BOTH);
            }
            continue;
        };
        let number = inst.try_immediate(1).ok();
        match (inst.mnemonic(), number) {
            (Mnemonic::Mov, Some(n)) if shift == 0 && inst.op0_register().size() != 1 => {
                let is_flags = n & !FLAGS == 0;
                return Some(bits | if is_flags { n & BOTH } else { BOTH });
            }
            (Mnemonic::Mov, None) => match source(inst, 1) {
                Source::Place(from) => place = from,
                _ => return Some(BOTH),
            },
            (Mnemonic::Or | Mnemonic::Xor | Mnemonic::Add, Some(n)) => {
                changed |= (n << shift) & BOTH != 0;
                bits |= (n << shift) & BOTH;
            }
            (Mnemonic::And, Some(n)) => changed |= (!n << shift) & BOTH != 0,
            (Mnemonic::Bts | Mnemonic::Btc, Some(n)) => {
                changed |= (1 << (n + shift)) & BOTH != 0;
                bits |= (1 << (n + shift)) & BOTH;
            }
            (Mnemonic::Btr, Some(n)) => changed |= (1 << (n + shift)) & BOTH != 0,
            (Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Bt | Mnemonic::Push, _) => {}
            _ => return Some(BOTH),
        }
    }
    if is_on_stack(place) && !changed {
        return saved_somewhere(before);
    }
    Some(BOTH)
}

fn is_on_stack(place: Place) -> bool {
    matches!(place, Place::Memory(Register::RSP, _))
}

/// True if an instruction sets the stack pointer in another way than a push, a pop or an
/// allocation.
fn sets_stack(factory: &mut InstructionInfoFactory, inst: &Instruction) -> bool {
    let makes_room =
        matches!(inst.mnemonic(), Mnemonic::Add | Mnemonic::Sub) && inst.try_immediate(1).is_ok();
    let writes = |used: &iced_x86::UsedRegister| {
        used.register() == Register::RSP
            && !matches!(
                used.access(),
                OpAccess::Read | OpAccess::CondRead | OpAccess::None
            )
    };
    !makes_room
        && !inst.is_stack_instruction()
        && factory.info(inst).used_registers().iter().any(writes)
}

/// Bits that may come from a stack that was restored as a whole. `None`: flags were saved in it,
/// and no instruction sets one of the bits.
fn saved_somewhere(before: &[Insn]) -> Option<u64> {
    let changes = |inst: &Instruction| {
        let number = inst.try_immediate(1).unwrap_or(0);
        let is_second_byte = matches!(
            inst.op0_register(),
            Register::AH | Register::BH | Register::CH | Register::DH
        );
        match inst.mnemonic() {
            Mnemonic::Or | Mnemonic::Xor if is_second_byte => (number << 8) & BOTH != 0,
            Mnemonic::Or | Mnemonic::Xor => number & !FLAGS == 0 && number & BOTH != 0,
            Mnemonic::Bts | Mnemonic::Btc => (1u64 << (number & 63)) & BOTH != 0,
            _ => false,
        }
    };
    let saves = before.iter().any(|i| saves_flags(&i.inst));
    let is_harmless = saves && !before.iter().any(|i| changes(&i.inst));
    (!is_harmless).then_some(BOTH)
}

/// Kind of an operand.
enum Source {
    Place(Place),
    Number(u64),
    Unknown,
}

fn source(inst: &Instruction, operand: u32) -> Source {
    match inst.op_kind(operand) {
        OpKind::Register => {
            Source::Place(Place::Register(inst.op_register(operand).full_register()))
        }
        OpKind::Memory if inst.memory_index() == Register::None => Source::Place(Place::Memory(
            inst.memory_base(),
            inst.memory_displacement64() as i64,
        )),
        OpKind::Memory => Source::Unknown,
        _ => inst
            .try_immediate(operand)
            .map_or(Source::Unknown, Source::Number),
    }
}

/// If an instruction's first operand is the place or a part of it: the part's first bit.
fn part_of(inst: &Instruction, place: Place) -> Option<u64> {
    /// Bit position of a register's second byte.
    const HIGH_BYTE_SHIFT: u64 = 8;
    match (place, inst.op0_kind()) {
        (Place::Register(register), OpKind::Register) => {
            let given = inst.op0_register();
            let high = [Register::AH, Register::BH, Register::CH, Register::DH];
            (given.full_register() == register).then_some(if high.contains(&given) {
                HIGH_BYTE_SHIFT
            } else {
                0
            })
        }
        (Place::Memory(base, at), OpKind::Memory) => {
            let distance = (inst.memory_displacement64() as i64).wrapping_sub(at);
            let same = inst.memory_base() == base && inst.memory_index() == Register::None;
            (same && (0..8).contains(&distance)).then_some(distance as u64 * 8)
        }
        _ => None,
    }
}

/// The place before an instruction that affects it only through the stack pointer.
fn moved(inst: &Instruction, place: Place) -> Place {
    let Place::Memory(Register::RSP, at) = place else {
        return place;
    };
    let by = match (inst.mnemonic(), inst.op0_register()) {
        (Mnemonic::Add, Register::RSP) => inst.try_immediate(1).map_or(0, |n| n as i64),
        (Mnemonic::Sub, Register::RSP) => inst.try_immediate(1).map_or(0, |n| -(n as i64)),
        _ => i64::from(inst.stack_pointer_increment()),
    };
    Place::Memory(Register::RSP, at.wrapping_add(by))
}

/// True if an instruction writes the place in an unsupported way.
fn overwrites(factory: &mut InstructionInfoFactory, inst: &Instruction, place: Place) -> bool {
    let Place::Register(register) = place else {
        return false;
    };
    factory.info(inst).used_registers().iter().any(|used| {
        used.register().full_register() == register
            && !matches!(
                used.access(),
                OpAccess::Read | OpAccess::CondRead | OpAccess::None
            )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::x86::decode::decode_function;

    fn of(parts: &[&[u8]]) -> Option<u64> {
        let mut code = parts.concat();
        code.push(0xc3);
        bits(&decode_function(&code, 0x1000, &[]).unwrap().insns)
    }

    const SAVE: &[u8] = &[0x9c];
    const SET: &[u8] = &[0x9d];
    const PUSH_RAX: &[u8] = &[0x50];
    const POP_RAX: &[u8] = &[0x58];
    const CLEAR_DIRECTION: &[u8] = &[0xfc];
    /// `or qword ptr [rsp], 0x40000`; `and qword ptr [rsp], ~0x40000`; `or byte ptr [rsp + 1], 1`.
    const CHECK: &[u8] = &[0x48, 0x81, 0x0c, 0x24, 0, 0, 4, 0];
    const NO_CHECK: &[u8] = &[0x48, 0x81, 0x24, 0x24, 0xff, 0xff, 0xfb, 0xff];
    const STEP: &[u8] = &[0x80, 0x4c, 0x24, 1, 1];
    /// `or ah, 1`; `bts eax, 18`; `or eax, edi`; `or eax, 1`.
    const STEP_RAX: &[u8] = &[0x80, 0xcc, 1];
    const CHECK_RAX: &[u8] = &[0x0f, 0xba, 0xe8, 18];
    const GIVEN_RAX: &[u8] = &[0x09, 0xf8];
    const CARRY_RAX: &[u8] = &[0x83, 0xc8, 1];
    /// `mov [rbp - 8], rax`; `or qword ptr [rbp - 8], 0x100`; `mov rax, [rbp - 8]`.
    const KEEP: &[u8] = &[0x48, 0x89, 0x45, 0xf8];
    const STEP_KEPT: &[u8] = &[0x48, 0x81, 0x4d, 0xf8, 0, 1, 0, 0];
    const TAKE: &[u8] = &[0x48, 0x8b, 0x45, 0xf8];

    #[test]
    fn what_is_put_back() {
        assert_eq!(of(&[SAVE, CLEAR_DIRECTION, SET]), None);
        assert_eq!(of(&[SAVE, POP_RAX, CLEAR_DIRECTION, PUSH_RAX, SET]), None);
        assert_eq!(of(&[SAVE, POP_RAX, KEEP, TAKE, PUSH_RAX, SET]), None);
        assert_eq!(of(&[SAVE, POP_RAX, CARRY_RAX, PUSH_RAX, SET]), None);
        assert_eq!(of(&[SAVE, PUSH_RAX, POP_RAX, SET]), None);
        assert_eq!(of(&[PUSH_RAX, POP_RAX]), None);
        // sub rsp, 8; add rsp, 8. The stack is restored as a whole: lea rsp, [rsi + 0x30].
        let room: [&[u8]; 4] = [SAVE, &[0x48, 0x83, 0xec, 8], &[0x48, 0x83, 0xc4, 8], SET];
        assert_eq!(of(&room), None);
        const BACK: &[u8] = &[0x48, 0x8d, 0x66, 0x30];
        assert_eq!(of(&[SAVE, PUSH_RAX, BACK, SET]), None);
        assert_eq!(of(&[SAVE, POP_RAX, STEP_RAX, BACK, SET]), Some(BOTH));
        assert_eq!(of(&[BACK, SET]), Some(BOTH));
    }

    #[test]
    fn what_sets_a_bit() {
        assert_eq!(of(&[SAVE, CHECK, SET]), Some(ALIGNMENT));
        assert_eq!(of(&[SAVE, NO_CHECK, SET]), Some(0));
        assert_eq!(of(&[SAVE, STEP, SET]), Some(TRAP));
        assert_eq!(of(&[SAVE, POP_RAX, STEP_RAX, PUSH_RAX, SET]), Some(TRAP));
        assert_eq!(
            of(&[SAVE, POP_RAX, STEP_RAX, CHECK_RAX, PUSH_RAX, SET]),
            Some(BOTH)
        );
        let kept = [SAVE, POP_RAX, KEEP, STEP_KEPT, TAKE, PUSH_RAX, SET];
        assert_eq!(of(&kept), Some(TRAP));
        // A number: push 0x102.
        assert_eq!(of(&[&[0x68, 2, 1, 0, 0], SET]), Some(TRAP));
        assert_eq!(
            of(&[SAVE, CLEAR_DIRECTION, SET, SAVE, STEP, SET]),
            Some(TRAP)
        );
    }

    #[test]
    fn returns_from_interrupts() {
        const PUSH_RSP: &[u8] = &[0x54];
        const IRETQ: &[u8] = &[0x48, 0xcf];
        // ss and rsp are below the flags, cs and rip above.
        let frame = |flags: &[&[u8]]| {
            let parts = [
                &[PUSH_RAX, PUSH_RSP, SAVE],
                flags,
                &[PUSH_RAX, PUSH_RAX, IRETQ],
            ]
            .concat();
            of(&parts)
        };
        assert_eq!(frame(&[]), None);
        assert_eq!(frame(&[CHECK]), Some(ALIGNMENT));
        assert_eq!(frame(&[STEP]), Some(TRAP));
        assert_eq!(of(&[PUSH_RAX, PUSH_RAX, PUSH_RAX, IRETQ]), Some(BOTH));
    }

    #[test]
    fn handlers() {
        let of = |parts: &[&[u8]]| {
            let mut code = parts.concat();
            code.push(0xc3);
            sets_in_context(&decode_function(&code, 0x1000, &[]).unwrap().insns)
        };
        // or qword ptr [rdx + 0xb0], 0x100; or byte ptr [rdx + 0xb1], 1
        const WHOLE: &[u8] = &[0x48, 0x81, 0x8a, 0xb0, 0, 0, 0, 0, 1, 0, 0];
        const BYTE: &[u8] = &[0x80, 0x8a, 0xb1, 0, 0, 0, 1];
        // mov rax, [rdx + 0xb0]; mov rbx, rdx; mov rax, [rbx + 0xb0]; or ah, 1; xor edx, edx
        const LOAD: &[u8] = &[0x48, 0x8b, 0x82, 0xb0, 0, 0, 0];
        const COPY: &[u8] = &[0x48, 0x89, 0xd3];
        const LOAD_COPY: &[u8] = &[0x48, 0x8b, 0x83, 0xb0, 0, 0, 0];
        const CLEAR: &[u8] = &[0x31, 0xd2];
        // mov [rbp - 8], rdx; mov rcx, [rbp - 8]; or byte ptr [rcx + 0xb1], 1
        const KEPT: &[u8] = &[0x48, 0x89, 0x55, 0xf8];
        const TAKEN: &[u8] = &[0x48, 0x8b, 0x4d, 0xf8];
        const BYTE_TAKEN: &[u8] = &[0x80, 0x89, 0xb1, 0, 0, 0, 1];
        assert!(of(&[WHOLE]).is_some());
        assert!(of(&[BYTE]).is_some());
        assert!(of(&[LOAD, STEP_RAX]).is_some());
        assert!(of(&[COPY, CLEAR, LOAD_COPY, STEP_RAX]).is_some());
        assert!(of(&[KEPT, TAKEN, BYTE_TAKEN]).is_some());
        assert!(of(&[CLEAR, WHOLE]).is_none());
        assert!(of(&[STEP_RAX, LOAD]).is_none());
        assert!(of(&[LOAD_COPY, STEP_RAX]).is_none());
        // Another bit: or qword ptr [rdx + 0xb0], 0x400.
        assert!(of(&[&[0x48, 0x81, 0x8a, 0xb0, 0, 0, 0, 0, 4, 0, 0]]).is_none());
    }

    #[test]
    fn what_is_not_known() {
        assert_eq!(of(&[PUSH_RAX, SET]), Some(BOTH));
        assert_eq!(of(&[SET]), Some(BOTH));
        assert_eq!(of(&[SAVE, POP_RAX, GIVEN_RAX, PUSH_RAX, SET]), Some(BOTH));
        // push qword ptr [rdi]
        assert_eq!(of(&[&[0xff, 0x37], SET]), Some(BOTH));
    }
}
