//! System calls that change thread state which the soft backend needs, made by the instruction or
//! by a function of the C library. `arch_prctl(ARCH_SET_GS, …)` sets the `%gs` base,
//! `prctl(PR_SET_SYSCALL_USER_DISPATCH, …)` redirects system calls to the program, and
//! `ptrace(PTRACE_PEEKTEXT, …)` and similar requests access the memory of another process.
//!
//! A file that sets the base need not have a `%gs` prefix: generated code or a library may use the
//! base. A caller that passes another known operation is ignored (all programs set `%fs` in this
//! way). A caller that passes an unknown value counts as setting `%gs` if the function also has the
//! numbers, or makes no other call of this name. For `prctl`, which has many operations, the
//! function must have the operation's number.

use crate::program::section_bounds::KnownFunction;
use crate::program::{Input, Program};
use crate::x86::decode::CodeSource;
use crate::x86::flow::direct_target;
use crate::x86::insn::Insn;
use iced_x86::{FlowControl, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};
use std::collections::BTreeSet;

/// A system call that is looked for.
pub struct WantedCall {
    /// Its number.
    number: u64,
    /// Values of its first argument that count.
    operations: &'static [u64],
    /// The function of the C library that makes it.
    function: KnownFunction,
    /// True if an unknown argument counts as one of these.
    is_usual: bool,
}

/// `arch_prctl(ARCH_SET_GS, …)`.
pub const SETS_GS: WantedCall = WantedCall {
    number: 158,
    operations: &[0x1001],
    function: KnownFunction::SetsBases,
    is_usual: true,
};
/// `prctl(PR_SET_SYSCALL_USER_DISPATCH, …)`.
pub const DISPATCHES_CALLS: WantedCall = WantedCall {
    number: 157,
    operations: &[59],
    function: KnownFunction::SetsProcess,
    is_usual: false,
};

/// `ptrace` with `PTRACE_PEEKTEXT`, `PTRACE_PEEKDATA`, `PTRACE_POKETEXT` or `PTRACE_POKEDATA`.
pub const REACHES_INTO_TRACED: WantedCall = WantedCall {
    number: 101,
    operations: &[1, 2, 4, 5],
    function: KnownFunction::Traces,
    is_usual: true,
};

const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// Source: Chosen.
const MAX_INSTRUCTIONS_BEFORE_CALL: usize = 16;

/// Value that an instruction gives to the wanted register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Given {
    /// This number.
    Number(u64),
    /// A value that another instruction has computed, or that a caller has passed.
    Unknown,
}

/// The first instruction of the file that makes such a call, if found.
pub fn find_state_call(input: &Input, program: &Program, wanted: &WantedCall) -> Option<u64> {
    let by_name = |name: KnownFunction| {
        let functions = input.bounds.functions.iter();
        let places = functions.filter(move |(_, known)| **known == name);
        places.map(|(at, _)| *at).collect::<BTreeSet<u64>>()
    };
    let (generic, own) = (by_name(KnownFunction::AnyCall), by_name(wanted.function));
    let is_kernels = |at: u64| generic.contains(&at) || own.contains(&at);
    let mut functions = BTreeSet::new();
    for range in &input.exec_ranges {
        let code = input.slice(range).unwrap_or(&[]);
        let mut places: Vec<usize> = memchr::memmem::find_iter(code, &SYSCALL).collect();
        if !(generic.is_empty() && own.is_empty()) {
            places.extend(calls(code, range.start, is_kernels));
        }
        let within = places
            .into_iter()
            .filter_map(|at| program.function_at(range.start + at as u64));
        functions.extend(within);
    }
    // (Such a function gets the operation from its callers, so these are examined.)
    let told = |start: &u64| generic.contains(start) || own.contains(start);
    functions.into_iter().find_map(|id| {
        let range = &program.function(id).range;
        if told(&range.start) {
            return None;
        }
        let bytes = input.slice(range)?;
        let source = CodeSource {
            bytes,
            base: range.start,
            entries: Vec::new(),
        };
        let body = source.decode().ok()?;
        sets(&body.insns, wanted, |at| {
            if generic.contains(&at) {
                Some(KnownFunction::AnyCall)
            } else {
                own.contains(&at).then_some(wanted.function)
            }
        })
    })
}

/// Positions of bytes that look like a call or jump to one of these, directly or through a word.
fn calls(
    code: &[u8],
    start: u64,
    leads: impl Fn(u64) -> bool + Copy,
) -> impl Iterator<Item = usize> {
    let target = move |at: usize| {
        let field = mgz_elf::bytes::u32(code, at)?;
        Some((start + at as u64 + 4).wrapping_add_signed((field as i32).into()))
    };
    let direct =
        memchr::memchr2_iter(0xe8, 0xe9, code).filter(move |at| target(at + 1).is_some_and(leads));
    let through = memchr::memchr_iter(0xff, code).filter(move |at| {
        matches!(code.get(at + 1), Some(0x15 | 0x25)) && target(at + 2).is_some_and(leads)
    });
    direct.chain(through)
}

/// The first instruction of a function that makes the call.
fn sets(
    insns: &[Insn],
    wanted: &WantedCall,
    known: impl Fn(u64) -> Option<KnownFunction>,
) -> Option<u64> {
    use Register::{RAX, RDI, RSI};
    let holds = |number: u64| {
        insns.iter().any(|i| {
            (0..i.inst.op_count()).any(|op| i.inst.try_immediate(op).is_ok_and(|n| n == number))
        })
    };
    // An unknown value may come from a variable of the function.
    let fits = |given: Given, numbers: &[u64], unknown: bool| match given {
        Given::Number(n) => numbers.contains(&n),
        Given::Unknown => unknown,
    };
    let holds_operation = wanted.operations.iter().any(|&operation| holds(operation));
    let all = holds_operation && holds(wanted.number);
    let operation = |given: Given, number: Given| {
        let unknown = if wanted.is_usual {
            number != Given::Unknown || all
        } else {
            holds_operation
        };
        fits(given, wanted.operations, unknown)
    };
    let is_set = |(n, insn): (usize, &Insn)| {
        let before = &insns[..n];
        if insn.inst.mnemonic() == Mnemonic::Syscall {
            let number = given(before, RAX);
            return fits(number, &[wanted.number], all) && operation(given(before, RDI), number);
        }
        let through = (insn.inst.is_ip_rel_memory_operand()
            && insn.inst.flow_control() != FlowControl::Next)
            .then(|| insn.inst.ip_rel_memory_address());
        match direct_target(&insn.inst).or(through).and_then(&known) {
            Some(KnownFunction::AnyCall) => {
                let number = given(before, RDI);
                fits(number, &[wanted.number], all) && operation(given(before, RSI), number)
            }
            Some(name) if name == wanted.function => {
                operation(given(before, RDI), Given::Number(wanted.number))
            }
            _ => false,
        }
    };
    insns
        .iter()
        .enumerate()
        .find(|&(n, insn)| is_set((n, insn)))
        .map(|(_, insn)| insn.ip)
}

/// Value in a register before a call, by the instructions before it.
fn given(before: &[Insn], register: Register) -> Given {
    let mut factory = InstructionInfoFactory::new();
    for insn in before.iter().rev().take(MAX_INSTRUCTIONS_BEFORE_CALL) {
        let inst = &insn.inst;
        let is_it = inst.op0_kind() == OpKind::Register
            && inst.op0_register().full_register() == register
            && inst.op0_register().size() >= 4;
        if is_it && inst.mnemonic() == Mnemonic::Mov {
            let number = inst.try_immediate(1).map(|n| n & 0xffff_ffff);
            return number.map_or(Given::Unknown, Given::Number);
        }
        let same =
            inst.op1_kind() == OpKind::Register && inst.op0_register() == inst.op1_register();
        if is_it && same && matches!(inst.mnemonic(), Mnemonic::Xor | Mnemonic::Sub) {
            return Given::Number(0);
        }
        let info = factory.info(inst);
        let writes = info.used_registers().iter().any(|r| {
            r.register().full_register() == register
                && !matches!(
                    r.access(),
                    OpAccess::Read | OpAccess::CondRead | OpAccess::None
                )
        });
        if writes || inst.flow_control() != FlowControl::Next {
            break;
        }
    }
    Given::Unknown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::x86::decode::decode_function;

    const AT: u64 = 0x1000;
    /// Targets of calls of `syscall` and `arch_prctl`.
    const ANY: u64 = 0x2000;
    const OWN: u64 = 0x3000;

    fn found(parts: &[&[u8]]) -> Option<u64> {
        let mut code = parts.concat();
        code.push(0xc3);
        let body = decode_function(&code, AT, &[]).unwrap();
        sets(&body.insns, &SETS_GS, |at| match at {
            ANY => Some(KnownFunction::AnyCall),
            OWN => Some(KnownFunction::SetsBases),
            _ => None,
        })
    }

    fn dispatches(parts: &[&[u8]]) -> Option<u64> {
        let code = parts.concat();
        let body = decode_function(&code, AT, &[]).unwrap();
        sets(&body.insns, &DISPATCHES_CALLS, |at| {
            (at == OWN).then_some(KnownFunction::SetsProcess)
        })
    }

    #[test]
    fn calls_that_are_handed_back() {
        const EDI_59: &[u8] = &[0xbf, 59, 0, 0, 0];
        const EDI_22: &[u8] = &[0xbf, 22, 0, 0, 0];
        const EAX_157: &[u8] = &[0xb8, 157, 0, 0, 0];
        const RET: &[u8] = &[0xc3];
        assert_eq!(dispatches(&[EDI_59, &call(5, OWN), RET]), Some(AT + 5));
        assert_eq!(dispatches(&[EDI_59, EAX_157, CALL, RET]), Some(AT + 10));
        assert_eq!(dispatches(&[EDI_22, &call(5, OWN), RET]), None);
        // A caller may pass any value.
        assert_eq!(dispatches(&[&call(0, OWN), RET]), None);
        assert_eq!(dispatches(&[EAX_157, CALL, RET]), None);
    }

    /// A call that is preceded by `behind` bytes.
    fn call(behind: usize, to: u64) -> Vec<u8> {
        let distance = to.wrapping_sub(AT + behind as u64 + 5) as u32;
        [&[0xe8][..], &distance.to_le_bytes()].concat()
    }

    const EAX_158: &[u8] = &[0xb8, 158, 0, 0, 0];
    const EDI_158: &[u8] = &[0xbf, 158, 0, 0, 0];
    const EDI_SET: &[u8] = &[0xbf, 1, 0x10, 0, 0];
    const EDI_FS: &[u8] = &[0xbf, 2, 0x10, 0, 0];
    const ESI_SET: &[u8] = &[0xbe, 1, 0x10, 0, 0];
    const ESI_FS: &[u8] = &[0xbe, 2, 0x10, 0, 0];
    const CALL: &[u8] = &[0x0f, 0x05];
    /// `mov eax, edi`; `mov edx, 0x1001`; `mov edi, edx`.
    const EAX_EDI: &[u8] = &[0x89, 0xf8];
    const EDX_SET: &[u8] = &[0xba, 1, 0x10, 0, 0];
    const EDI_EDX: &[u8] = &[0x89, 0xd7];

    #[test]
    fn the_instruction() {
        assert_eq!(found(&[EAX_158, EDI_SET, CALL]), Some(AT + 10));
        assert_eq!(found(&[EDI_SET, EAX_158, CALL]), Some(AT + 10));
        assert_eq!(found(&[EDI_FS, EAX_158, CALL]), None);
        // The caller passes the value.
        assert_eq!(found(&[EAX_158, CALL]), Some(AT + 5));
        assert_eq!(found(&[EAX_EDI, CALL]), None);
        // The value goes through another register.
        let moved = [EDX_SET, EDI_EDX, EAX_158, CALL];
        assert_eq!(found(&moved), Some(AT + 12));
        // The numbers belong to another call.
        assert_eq!(found(&[&[0xb8, 39, 0, 0, 0], CALL, EDX_SET]), None);
    }

    #[test]
    fn functions_of_the_c_library() {
        let any = |first: &[u8], second: &[u8]| {
            let call = call(first.len() + second.len(), ANY);
            found(&[first, second, &call])
        };
        assert_eq!(any(EDI_158, ESI_SET), Some(AT + 10));
        assert_eq!(any(ESI_SET, EDI_158), Some(AT + 10));
        assert_eq!(any(EDI_158, ESI_FS), None);
        assert_eq!(any(&[0xbf, 39, 0, 0, 0], ESI_SET), None);
        assert_eq!(any(EDI_158, &[]), Some(AT + 5));
        assert_eq!(any(&[], &[]), None);
        let own = |first: &[u8]| found(&[first, &call(first.len(), OWN)]);
        assert_eq!(own(EDI_SET), Some(AT + 5));
        assert_eq!(own(&[]), Some(AT));
        assert_eq!(own(EDI_FS), None);
        assert_eq!(found(&[EDI_SET, &call(5, 0x4000)]), None);
    }
}
