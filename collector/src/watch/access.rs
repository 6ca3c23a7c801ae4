//! Memory that an instruction is about to access, from its bytes and the registers before it.

use iced_x86::{
    Code, Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    Register, UsedMemory,
};

/// General registers, and the other parts of addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15: in the order of their encoding.
    pub general: [u64; 16],
    /// Instruction pointer.
    pub rip: u64,
    /// Base of fs.
    pub fs: u64,
    /// Base of gs.
    pub gs: u64,
}

/// One read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryAccess {
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// True if memory is read.
    pub read: bool,
    /// True if memory is written.
    pub written: bool,
    /// True for the stack accesses of `push`, `pop`, `call`, `ret` and similar instructions, which
    /// have no memory operand for them.
    pub implicit: bool,
}

impl MemoryAccess {
    /// True if the access touches a byte of the range.
    pub fn touches(&self, address: u64, bytes: u64) -> bool {
        let last = |from: u64, bytes: u64| from.saturating_add(bytes.max(1) - 1);
        self.address <= last(address, bytes) && address <= last(self.address, self.size)
    }
}

/// An instruction that is about to run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NextInsn {
    /// The accesses that it will make. Conditional accesses (`cmov`, masked vectors) count as if
    /// they happened, as they do in the processor's counters.
    pub accesses: Vec<MemoryAccess>,
    /// True if it must not be single-stepped: it enters the kernel, or reads or sets the trap flag.
    pub opaque: bool,
    /// True if it accesses memory by indices in vector registers, which are not read here.
    pub gathers: bool,
}

/// Reads instructions.
pub struct AccessReader {
    pub(crate) info: InstructionInfoFactory,
}

impl Default for AccessReader {
    fn default() -> AccessReader {
        AccessReader {
            info: InstructionInfoFactory::new(),
        }
    }
}

impl AccessReader {
    /// Decodes the instruction in `bytes` and predicts its accesses. Unknown bytes are opaque.
    pub fn step(&mut self, bytes: &[u8], registers: &Registers) -> NextInsn {
        let mut decoder = Decoder::with_ip(64, bytes, registers.rip, DecoderOptions::NONE);
        let insn = decoder.decode();
        if insn.is_invalid() {
            return NextInsn {
                opaque: true,
                ..NextInsn::default()
            };
        }
        let mut step = NextInsn {
            opaque: opaque(&insn),
            ..NextInsn::default()
        };
        let repeated = insn.has_rep_prefix() || insn.has_repne_prefix();
        if repeated && insn.is_string_instruction() && registers.general[1] == 0 {
            return step;
        }
        step.accesses = accesses(&mut self.info, &insn, registers);
        step.gathers = insn.is_vsib() && insn.memory_index().is_vector_register();
        step
    }
}

/// The accesses of an instruction with these registers. Gathers are left out.
pub(crate) fn accesses(
    info: &mut InstructionInfoFactory,
    insn: &Instruction,
    registers: &Registers,
) -> Vec<MemoryAccess> {
    let named = (0..insn.op_count()).any(|op| insn.op_kind(op) == iced_x86::OpKind::Memory)
        || insn.is_string_instruction();
    info.info(insn)
        .used_memory()
        .iter()
        .filter_map(|memory| access(insn, memory, registers, named))
        .collect()
}

fn access(
    insn: &Instruction,
    memory: &UsedMemory,
    registers: &Registers,
    named: bool,
) -> Option<MemoryAccess> {
    let (read, written) = match memory.access() {
        OpAccess::Read | OpAccess::CondRead => (true, false),
        OpAccess::Write | OpAccess::CondWrite => (false, true),
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
        _ => return None,
    };
    // Vector indices (gathers) are in registers that are not read here.
    if memory.index().is_vector_register() {
        return None;
    }
    let size = match memory.memory_size().size() as u64 {
        // For repeated string instructions, a step is one iteration.
        0 if insn.is_string_instruction() => insn.memory_size().size() as u64,
        // Saved states (`xsave`) have at least the legacy part.
        0 => 512,
        size => size,
    };
    let address = memory.virtual_address(0, |register, _, _| value(register, registers))?;
    let stack = memory.base() == Register::RSP && insn.is_stack_instruction();
    // `push [rax]` reads the memory that it names, and writes to the stack.
    let implicit = stack
        && (!named
            || (written && insn.memory_base() != Register::RSP)
            || (!written
                && insn.memory_base() != Register::RSP
                && insn.mnemonic() == Mnemonic::Pop));
    Some(MemoryAccess {
        address,
        size,
        read,
        written,
        implicit,
    })
}

fn value(register: Register, registers: &Registers) -> Option<u64> {
    let full = register.full_register();
    match full {
        Register::FS => Some(registers.fs),
        Register::GS => Some(registers.gs),
        Register::CS | Register::DS | Register::ES | Register::SS => Some(0),
        _ if full.is_gpr64() => {
            let value = registers.general[full.number()];
            Some(if register.is_gpr32() {
                value & 0xffff_ffff
            } else {
                value
            })
        }
        _ => None,
    }
}

fn opaque(insn: &Instruction) -> bool {
    let code = insn.code();
    matches!(
        insn.mnemonic(),
        Mnemonic::Syscall
            | Mnemonic::Sysenter
            | Mnemonic::Int
            | Mnemonic::Int1
            | Mnemonic::Int3
            | Mnemonic::Into
            | Mnemonic::Ud2
            | Mnemonic::Hlt
            | Mnemonic::Pushf
            | Mnemonic::Pushfd
            | Mnemonic::Pushfq
            | Mnemonic::Popf
            | Mnemonic::Popfd
            | Mnemonic::Popfq
            | Mnemonic::Iret
            | Mnemonic::Iretd
            | Mnemonic::Iretq
            | Mnemonic::Xbegin
    ) || code == Code::INVALID
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(bytes: &[u8], change: impl Fn(&mut Registers)) -> Vec<(u64, u64, bool, bool, bool)> {
        let mut registers = Registers {
            rip: 0x1000,
            ..Registers::default()
        };
        change(&mut registers);
        let step = AccessReader::default().step(bytes, &registers);
        step.accesses
            .iter()
            .map(|a| (a.address, a.size, a.read, a.written, a.implicit))
            .collect()
    }

    #[test]
    fn addresses_by_the_manual() {
        // mov rax, [rbx+rcx*8+0x10]
        assert_eq!(
            step(&[0x48, 0x8b, 0x44, 0xcb, 0x10], |r| {
                r.general[3] = 0x5000;
                r.general[1] = 2
            }),
            [(0x5020, 8, true, false, false)]
        );
        // mov [rip+0x100], eax: six bytes.
        assert_eq!(
            step(&[0x89, 0x05, 0x00, 0x01, 0, 0], |_| ()),
            [(0x1106, 4, false, true, false)]
        );
        // add dword [rsp+4], 1
        assert_eq!(
            step(&[0x83, 0x44, 0x24, 0x04, 0x01], |r| r.general[4] = 0x7000),
            [(0x7004, 4, true, true, false)]
        );
        // mov rax, fs:[0x28]
        assert_eq!(
            step(&[0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0], |r| r.fs =
                0x9000),
            [(0x9028, 8, true, false, false)]
        );
        // lea and nop [rax] access nothing.
        assert_eq!(step(&[0x48, 0x8d, 0x04, 0x0b], |_| ()), []);
        assert_eq!(step(&[0x0f, 0x1f, 0x00], |_| ()), []);
        // mov eax, [eax+4] with a 32-bit address.
        assert_eq!(
            step(&[0x67, 0x8b, 0x40, 0x04], |r| r.general[0] =
                0xffff_0000_1000),
            [(0x1004, 4, true, false, false)]
        );
    }

    #[test]
    fn the_stack_is_implicit_unless_it_is_named() {
        let at = |r: &mut Registers| {
            r.general[4] = 0x7000;
            r.general[0] = 0x5000
        };
        assert_eq!(
            step(&[0x50], at),
            [(0x6ff8, 8, false, true, true)],
            "push rax"
        );
        assert_eq!(step(&[0xc3], at), [(0x7000, 8, true, false, true)], "ret");
        let mut push = step(&[0xff, 0x30], at);
        push.sort_unstable();
        assert_eq!(
            push,
            [
                (0x5000, 8, true, false, false),
                (0x6ff8, 8, false, true, true)
            ],
            "push qword [rax]"
        );
        let mut call = step(&[0xff, 0x10], at);
        call.sort_unstable();
        assert_eq!(
            call,
            [
                (0x5000, 8, true, false, false),
                (0x6ff8, 8, false, true, true)
            ],
            "call [rax]"
        );
        let mut pop = step(&[0x8f, 0x00], at);
        pop.sort_unstable();
        assert_eq!(
            pop,
            [
                (0x5000, 8, false, true, false),
                (0x7000, 8, true, false, true)
            ],
            "pop qword [rax]"
        );
    }

    #[test]
    fn repeated_strings_go_one_round_at_a_time() {
        let at = |count: u64| {
            move |r: &mut Registers| {
                r.general[1] = count;
                r.general[6] = 0x100;
                r.general[7] = 0x200
            }
        };
        let mut copy = step(&[0xf3, 0xa4], at(9));
        copy.sort_unstable();
        assert_eq!(
            copy,
            [
                (0x100, 1, true, false, false),
                (0x200, 1, false, true, false)
            ]
        );
        assert_eq!(step(&[0xf3, 0xa4], at(0)), []);
    }

    #[test]
    fn what_must_not_be_stepped() {
        let opaque = |bytes: &[u8]| {
            AccessReader::default()
                .step(bytes, &Registers::default())
                .opaque
        };
        for bytes in [
            &[0x0f, 0x05][..],
            &[0x9c],
            &[0x9d],
            &[0xcd, 0x80],
            &[0xcc],
            &[0x06],
            &[],
        ] {
            assert!(opaque(bytes), "{bytes:x?}");
        }
        assert!(!opaque(&[0x90]));
    }

    #[test]
    fn ranges_touch_where_they_share_a_byte() {
        let access = MemoryAccess {
            address: 0x10,
            size: 4,
            read: true,
            written: false,
            implicit: false,
        };
        assert!(access.touches(0x10, 8) && access.touches(0x13, 1) && access.touches(0xc, 5));
        assert!(!access.touches(0x14, 8) && !access.touches(0x8, 8));
        assert!(
            MemoryAccess {
                address: u64::MAX,
                ..access
            }
            .touches(u64::MAX - 7, 8)
        );
    }
}
