//! Executables without a loader, for the soft flavour: the system calls that get hooks, and the
//! entry point that starts the runtime.
//!
//! The file on disk still runs like the original: the entry point searches for one environment
//! variable, and continues at the original entry if it is missing.

use crate::ir::cfg::Cfg;
use crate::program::{Input, Program, uncovered};
use crate::x86::decode::{decode_function, sweep};
use crate::x86::flow::direct_target;
use crate::x86::insn::{Insn, InsnId};
use crate::x86::regs::RAX;
use iced_x86::{InstructionInfoFactory, Mnemonic, OpAccess, OpKind};
use mgz_abi::module_note::{STATIC_AT, STATIC_ENV, STATIC_MAGIC};
use mgz_abi::probe::{HOOKED_CALLS, OPENING_CALLS, handler_saved};
use std::ops::Range;

/// The system calls of a function that get hooks.
pub fn hooks(graph: &Cfg) -> Vec<InsnId> {
    let in_block = |b: &crate::ir::Block| {
        let insns = &graph.insns[b.insns.start as usize..b.insns.end as usize];
        let first = b.insns.start;
        (0..insns.len())
            .filter(move |&i| needs_hook(insns, i) || opens_file(insns, i))
            .map(move |i| InsnId(first + i as u32))
    };
    graph.blocks.iter().flat_map(in_block).collect()
}

/// True if the runtime may have to observe the system call at `at`. `insns` has the instructions
/// before it, in the order of their addresses.
fn needs_hook(insns: &[Insn], at: usize) -> bool {
    insns[at].inst.mnemonic() == Mnemonic::Syscall
        && number(&insns[..at]).is_none_or(|n| HOOKED_CALLS.contains(&n))
}

/// True if the system call at `at` opens a file. It gets a hook if possible, but the hook is not
/// required.
fn opens_file(insns: &[Insn], at: usize) -> bool {
    insns[at].inst.mnemonic() == Mnemonic::Syscall
        && number(&insns[..at]).is_some_and(|n| OPENING_CALLS.contains(&n))
}

/// The number of the system call after these instructions, if they set it.
fn number(before: &[Insn]) -> Option<u32> {
    let mut factory = InstructionInfoFactory::new();
    for insn in before.iter().rev().take(12) {
        let inst = &insn.inst;
        if inst.mnemonic() == Mnemonic::Mov
            && inst.op0_register().full_register() == iced_x86::Register::RAX
            && inst.op0_register().size() >= 4
        {
            return inst.try_immediate(1).ok().map(|n| n as u32);
        }
        let cleared = inst.mnemonic() == Mnemonic::Xor
            && inst.op_count() == 2
            && inst.op1_kind() == OpKind::Register
            && inst.op0_register() == inst.op1_register();
        if cleared && inst.op0_register() == iced_x86::Register::EAX {
            return Some(0);
        }
        let writes = |r: &iced_x86::UsedRegister| {
            !matches!(
                r.access(),
                OpAccess::Read | OpAccess::CondRead | OpAccess::None
            ) && crate::x86::regs::gpr(r.register()) == Some(RAX)
        };
        if inst.flow_control() != iced_x86::FlowControl::Next
            || factory.info(inst).used_registers().iter().any(writes)
        {
            return None;
        }
    }
    None
}

/// The first system call that would need a hook in a function that is not re-emitted.
pub fn unseen(input: &Input, program: &Program, left: &[bool]) -> Option<u64> {
    let left = program
        .functions
        .iter()
        .zip(left)
        .filter(|(_, left)| **left)
        .map(|(f, _)| &f.range);
    let known = left
        .filter_map(|range| first_call(input.slice(range)?, range.start))
        .next();
    known.or_else(|| {
        uncovered(input, &program.functions)
            .iter()
            .filter_map(|gap| stray_call(input, gap))
            .next()
    })
}

/// True if code begins with a system call, or with an instruction that sets its number and then the
/// call.
pub fn begins_with_call(code: &[u8]) -> bool {
    let call = [0x0f, 0x05];
    code.starts_with(&call)
        || code.first() == Some(&0xb8) && code[1..].get(4..6) == Some(&call)
        || code.starts_with(&[0x48, 0xc7, 0xc0]) && code.get(7..9) == Some(&call)
}

/// A system call in bytes outside of functions, if its number is certain, since the bytes may be
/// data.
fn stray_call(input: &Input, gap: &Range<u64>) -> Option<u64> {
    let bytes = input.slice(gap)?;
    let mut calls = (0..bytes.len()).filter(|&i| bytes[i..].starts_with(&[0x0f, 0x05]));
    calls
        .find(|&i| set_just_before(&bytes[..i]).is_some_and(|n| HOOKED_CALLS.contains(&n)))
        .map(|i| gap.start + i as u64)
}

/// The first system call in a function's bytes that would need a hook.
fn first_call(bytes: &[u8], base: u64) -> Option<u64> {
    let calls = (0..bytes.len()).filter(|&i| bytes[i..].starts_with(&[0x0f, 0x05]));
    let mut unclear = calls
        .filter(|&i| set_just_before(&bytes[..i]).is_none_or(|n| HOOKED_CALLS.contains(&n)))
        .peekable();
    unclear.peek()?;
    let mut places = unclear.map(|i| base + i as u64);
    match decode_function(bytes, base, &[]) {
        // Bytes inside an instruction, perhaps part of an address, are no system call: a jump to
        // them would have made them an instruction.
        Ok(body) => places.find(|&at| match body.index_of(at) {
            Some(i) => needs_hook(&body.insns, i),
            None => body
                .insns
                .iter()
                .all(|i| !(i.ip + 1..i.inst.next_ip()).contains(&at)),
        }),
        Err(_) => places.find(|&at| !lies_inside(bytes, base, at)),
    }
}

/// True if an address is inside an instruction and is no jump target, in code that consists of
/// instructions from end to end. (Jumps past a `lock` prefix make functions that cannot be
/// analysed, although their instructions decode.)
fn lies_inside(bytes: &[u8], base: u64, at: u64) -> bool {
    sweep(bytes, base).is_some_and(|body| {
        body.index_of(at).is_none()
            && body
                .insns
                .iter()
                .all(|i| direct_target(&i.inst) != Some(at))
    })
}

/// The number that the last instruction of these bytes puts into rax. The unwind data of the C
/// library's return from signal handlers begins in the middle of an instruction, so only this finds
/// its number.
fn set_just_before(bytes: &[u8]) -> Option<u32> {
    let number = || bytes.last_chunk::<4>().map(|n| u32::from_le_bytes(*n));
    let head = &bytes[..bytes.len().saturating_sub(4)];
    if head.ends_with(&[0x48, 0xc7, 0xc0]) || head.ends_with(&[0xb8]) {
        number()
    } else {
        None
    }
}

/// Unwind instructions for [`mgz_abi::probe::HANDLER_CALL`]: the caller is the interrupted code,
/// with registers where the kernel saved them.
pub fn handler_frame() -> Vec<u8> {
    /// DWARF's numbers of the registers counted by `handler_saved`.
    const SAVED: [u8; 17] = [8, 9, 10, 11, 12, 13, 14, 15, 5, 4, 6, 3, 1, 0, 2, 7, 16];
    const RSP: usize = 15;
    const DEF_CFA_EXPRESSION: u8 = 0x0f;
    const EXPRESSION: u8 = 0x10;
    /// `DW_OP_breg7` (rsp plus an offset), `DW_OP_deref`.
    const BREG_RSP: u8 = 0x77;
    const DEREF: u8 = 0x06;
    // A signed LEB128 number in exactly two bytes.
    const { assert!(handler_saved(16) < 0x2000) };
    let place = |n| {
        [
            BREG_RSP,
            handler_saved(n) as u8 | 0x80,
            (handler_saved(n) >> 7) as u8,
        ]
    };
    let mut out = vec![DEF_CFA_EXPRESSION, 4];
    out.extend_from_slice(&place(RSP));
    out.push(DEREF);
    for (n, register) in SAVED.into_iter().enumerate() {
        out.extend_from_slice(&[EXPRESSION, register, 3]);
        out.extend_from_slice(&place(n));
    }
    out
}

/// Bytes of [`entry`]'s code.
pub const ENTRY_BYTES: usize = 320;

/// Code for the entry point: finds the runtime's variable in the environment, maps its image and
/// jumps to it. `at` is the code's address, `original` the entry point of the input.
pub fn entry(at: u64, original: u64) -> Vec<u8> {
    let mut code = Code {
        bytes: Vec::new(),
        plain: Vec::new(),
        bad: Vec::new(),
    };
    code.find_variable();
    code.map_runtime();
    code.enter_runtime(at, original);
    code.enter_program(at, original);
    debug_assert!(code.bytes.len() <= ENTRY_BYTES);
    code.bytes.resize(ENTRY_BYTES, 0xcc);
    code.bytes
}

struct Code {
    bytes: Vec<u8>,
    /// Fields of branches to the program's own entry.
    plain: Vec<usize>,
    /// Fields of branches to the program's own entry after which the stack pointer must be restored.
    bad: Vec<usize>,
}

impl Code {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn back(&mut self, opcode: u8, to: usize) {
        let distance = to as i64 - (self.bytes.len() as i64 + 2);
        self.put(&[opcode, distance as i8 as u8]);
    }

    fn branch(&mut self, condition: u8, bad: bool) {
        self.put(&[0x0f, condition, 0, 0, 0, 0]);
        let field = self.bytes.len() - 4;
        if bad {
            self.bad.push(field)
        } else {
            self.plain.push(field)
        }
    }

    fn here(&mut self, bad: bool) {
        let fields = std::mem::take(if bad { &mut self.bad } else { &mut self.plain });
        for field in fields {
            let distance = (self.bytes.len() - field - 4) as u32;
            self.bytes[field..field + 4].copy_from_slice(&distance.to_le_bytes());
        }
    }

    /// Searches for the runtime's variable in the environment. Leaves its value, a path, in rdi.
    fn find_variable(&mut self) {
        let name = |from: usize| {
            STATIC_ENV[from..]
                .iter()
                .take(8)
                .rev()
                .fold(0u64, |v, &b| v << 8 | u64::from(b))
        };
        self.put(&[0x48, 0x8b, 0x04, 0x24]); // mov rax, [rsp]
        self.put(&[0x48, 0x8d, 0x7c, 0xc4, 0x10]); // lea rdi, [rsp + 8*rax + 16]: the environment
        let next = self.bytes.len();
        self.put(&[0x48, 0x8b, 0x37]); // mov rsi, [rdi]
        self.put(&[0x48, 0x83, 0xc7, 0x08]); // add rdi, 8
        self.put(&[0x48, 0x85, 0xf6]); // test rsi, rsi
        self.branch(0x84, false); // je plain
        self.put(&[0x48, 0xb8]); // mov rax, the name's first eight bytes
        self.put(&name(0).to_le_bytes());
        self.put(&[0x48, 0x3b, 0x06]); // cmp rax, [rsi]
        self.back(0x75, next); // jne next
        self.put(&[0x81, 0x7e, 0x08]); // cmp dword [rsi + 8], the other four
        self.put(&(name(8) as u32).to_le_bytes());
        self.back(0x75, next); // jne next
        self.put(&[0x48, 0x8d, 0x7e, 0x0c]); // lea rdi, [rsi + 12]: the path
    }

    /// Opens the file in rdi and maps the runtime's image. Leaves the image's address in rbx, and
    /// the data read from the file on the stack.
    fn map_runtime(&mut self) {
        self.put(&[0xbe, 0x02, 0x00, 0x08, 0x00]); // mov esi, O_RDWR | O_CLOEXEC
        self.put(&[0xb8, 2, 0, 0, 0, 0x0f, 0x05]); // open
        self.put(&[0x85, 0xc0]); // test eax, eax
        self.branch(0x88, false); // js plain
        self.put(&[0x48, 0x83, 0xec, 0x40]); // sub rsp, 64
        self.put(&[0x89, 0xc7]); // mov edi, eax
        self.put(&[0x48, 0x89, 0xe6]); // mov rsi, rsp
        self.put(&[0xba, 0x28, 0, 0, 0]); // mov edx, 40
        self.put(&[0x41, 0xba]); // mov r10d, STATIC_AT
        self.put(&STATIC_AT.to_le_bytes());
        self.put(&[0xb8, 17, 0, 0, 0, 0x0f, 0x05]); // pread64
        self.put(&[0x41, 0x89, 0xf8]); // mov r8d, edi
        self.put(&[0x31, 0xdb]); // xor ebx, ebx
        self.put(&[0x48, 0xb8]); // mov rax, STATIC_MAGIC
        self.put(&STATIC_MAGIC.to_le_bytes());
        self.put(&[0x48, 0x3b, 0x04, 0x24]); // cmp rax, [rsp]
        let skip = self.bytes.len();
        self.put(&[0x75, 0]); // jne close
        self.put(&[0x31, 0xff]); // xor edi, edi
        self.put(&[0x48, 0x8b, 0x74, 0x24, 0x10]); // mov rsi, [rsp + 16]: length
        self.put(&[0xba, 7, 0, 0, 0]); // mov edx, PROT_READ | PROT_WRITE | PROT_EXEC
        self.put(&[0x41, 0xba, 0x42, 0, 0, 0]); // mov r10d, MAP_PRIVATE | MAP_32BIT
        self.put(&[0x4c, 0x8b, 0x4c, 0x24, 0x08]); // mov r9, [rsp + 8]: offset
        self.put(&[0xb8, 9, 0, 0, 0, 0x0f, 0x05]); // mmap
        self.put(&[0x48, 0x89, 0xc3]); // mov rbx, rax
        self.bytes[skip + 1] = (self.bytes.len() - skip - 2) as u8;
        self.put(&[0x44, 0x89, 0xc7]); // close: mov edi, r8d
        self.put(&[0xb8, 3, 0, 0, 0, 0x0f, 0x05]); // close
        self.put(&[0x48, 0x8d, 0x43, 0xff]); // lea rax, [rbx - 1]
        self.put(&[0x48, 0x3d, 0xfe, 0xef, 0xff, 0xff]); // cmp rax, -4098
        self.branch(0x87, true); // ja bad: 0 or −errno
    }

    /// Jumps to the runtime.
    fn enter_runtime(&mut self, at: u64, original: u64) {
        self.put(&[0x48, 0x8b, 0x44, 0x24, 0x18]); // mov rax, [rsp + 24]: entry
        self.put(&[0x48, 0x8b, 0x4c, 0x24, 0x20]); // mov rcx, [rsp + 32]: relocations
        self.put(&[0x48, 0x83, 0xc4, 0x40]); // add rsp, 64
        self.put(&[0x48, 0x89, 0xe7]); // mov rdi, rsp
        self.put(&[0x48, 0x8d, 0x15]); // lea rdx, [at]
        let here = self.bytes.len() as i32 + 4;
        self.put(&(-here).to_le_bytes());
        self.put(&[0x41, 0xb8]); // mov r8d, at
        self.put(&(at as u32).to_le_bytes());
        self.put(&[0x4c, 0x29, 0xc2]); // sub rdx, r8: the load bias
        self.put(&[0xbe]); // mov esi, original
        self.put(&(original as u32).to_le_bytes());
        self.put(&[0x48, 0x01, 0xd6]); // add rsi, rdx
        self.put(&[0x48, 0x01, 0xd8]); // add rax, rbx
        self.put(&[0xff, 0xe0]); // jmp rax
    }

    /// Jumps to the program's own entry point, with registers as at the kernel's start of the
    /// program. Branches lead here if there is no runtime.
    fn enter_program(&mut self, at: u64, original: u64) {
        self.here(true);
        self.put(&[0x48, 0x83, 0xc4, 0x40]); // bad: add rsp, 64
        self.here(false);
        for clear in [
            [0x31, 0xc0],
            [0x31, 0xdb],
            [0x31, 0xc9],
            [0x31, 0xd2],
            [0x31, 0xf6],
            [0x31, 0xff],
        ] {
            self.put(&clear); // plain: xor eax, eax and so on, as the kernel leaves them
        }
        for clear in [
            [0x45, 0x31, 0xc0],
            [0x45, 0x31, 0xc9],
            [0x45, 0x31, 0xd2],
            [0x45, 0x31, 0xdb],
        ] {
            self.put(&clear); // xor r8d, r8d to r11d
        }
        self.put(&[0xe9]); // jmp original
        let end = at + self.bytes.len() as u64 + 4;
        self.put(&(original.wrapping_sub(end) as i32).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, FlowControl};

    #[test]
    fn the_entry_point_decodes_and_branches_stay_inside() {
        let (at, original) = (0x48_0000, 0x40_1000);
        let code = entry(at, original);
        let all: Vec<_> = Decoder::with_ip(64, &code, at, DecoderOptions::NONE)
            .into_iter()
            .collect();
        assert!(all.iter().all(|i| !i.is_invalid()));
        let starts: Vec<u64> = all.iter().map(|i| i.ip()).collect();
        let mut left = 0;
        for inst in all.iter().filter(|i| {
            matches!(
                i.flow_control(),
                FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
            )
        }) {
            if inst.near_branch_target() == original {
                left += 1
            } else {
                assert!(starts.contains(&inst.near_branch_target()), "{inst}")
            }
        }
        assert_eq!(left, 1);
        let bias = all.iter().find(|i| i.is_ip_rel_memory_operand()).unwrap();
        assert_eq!(bias.ip_rel_memory_address(), at);
    }

    #[test]
    fn bytes_of_a_call_inside_another_instruction() {
        // je 1f; lock 1: cmpxchg [rdi], eax; lea rdi, [rip + …0f05…]; ret
        let code = [
            0x74, 0x01, 0xf0, 0x0f, 0xb1, 0x07, 0x48, 0x8d, 0x3d, 0x0f, 0x05, 0x0b, 0x00, 0xc3,
        ];
        assert!(lies_inside(&code, 0x1000, 0x1009));
        // A jump leads to these bytes.
        let jumps = [0x74, 0x03, 0x48, 0x8d, 0x3d, 0x0f, 0x05, 0x0b, 0x00, 0xc3];
        assert!(!lies_inside(&jumps, 0x1000, 0x1005));
        assert!(!lies_inside(
            &[0xb8, 13, 0, 0, 0, 0x0f, 0x05, 0xc3],
            0x1000,
            0x1005
        ));
    }

    #[test]
    fn bytes_of_a_call_in_a_function_that_is_left() {
        // xbegin 1f; mov edx, [rip + …0f05…]; 1: ret
        let code = [
            0xc7, 0xf8, 0x06, 0, 0, 0, 0x8b, 0x15, 0x75, 0x0f, 0x05, 0x00, 0xc3,
        ];
        assert_eq!(first_call(&code, 0x1000), None);
        // mov eax, clone; syscall; ret, and the same with any number
        assert_eq!(
            first_call(&[0xb8, 56, 0, 0, 0, 0x0f, 0x05, 0xc3], 0x1000),
            Some(0x1005)
        );
        assert_eq!(
            first_call(&[0x89, 0xf8, 0x0f, 0x05, 0xc3], 0x1000),
            Some(0x1002)
        );
        // The jump leads into the first instruction, to the call: je 1f; mov edx, 1f: syscall; …
        assert_eq!(
            first_call(&[0x74, 0x01, 0xba, 0x0f, 0x05, 0, 0, 0xc3], 0x1000),
            Some(0x1003)
        );
    }

    #[test]
    fn numbers_of_system_calls() {
        let call = |code: &[u8]| {
            let body = decode_function(code, 0x1000, &[]).unwrap();
            let at = body
                .insns
                .iter()
                .position(|i| i.inst.mnemonic() == Mnemonic::Syscall)
                .unwrap();
            number(&body.insns[..at])
        };
        assert_eq!(
            call(&[0xb8, 13, 0, 0, 0, 0x48, 0x89, 0xfe, 0x0f, 0x05, 0xc3]),
            Some(13)
        );
        assert_eq!(
            call(&[0x31, 0xc0, 0x48, 0x89, 0xfe, 0x0f, 0x05, 0xc3]),
            Some(0)
        );
        assert_eq!(call(&[0x48, 0x89, 0xf8, 0x0f, 0x05, 0xc3]), None);
        assert_eq!(
            call(&[0xb8, 13, 0, 0, 0, 0xff, 0xc0, 0x0f, 0x05, 0xc3]),
            None
        );
        assert_eq!(set_just_before(&[0x48, 0xc7, 0xc0, 15, 0, 0, 0]), Some(15));
        assert_eq!(set_just_before(&[0x90, 0x48, 0x89, 0xf8]), None);
        assert!(
            begins_with_call(&[0xb8, 56, 0, 0, 0, 0x0f, 0x05])
                && begins_with_call(&[0x0f, 0x05])
                && !begins_with_call(&[0xb8, 0, 0, 0, 0, 0xc3])
        );
    }
}
