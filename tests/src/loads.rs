//! The reference's rules: the bytes that an instruction reads through its explicit memory operands,
//! given the registers right before it.
//!
//! The rules deliberately use no code of the rewriter and follow the instruction set manual:
//!
//! - every explicit memory source counts, also of read-modify-write, compare, push, call and jump;
//!   masked vector loads count with the full size of their operand;
//! - `pop`, `ret`, `leave`, `popf` read the stack implicitly and do not count;
//! - `lea`, `nop`, prefetches and cache control read nothing;
//! - a string instruction reads as many elements as it processed; a gather one element per active
//!   lane.

use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

/// Registers of a stopped thread at one moment.
pub trait RegisterState {
    /// Full value of a general purpose register, by hardware number.
    fn gpr(&self, number: usize) -> u64;
    /// Base of `fs` (`false`) or `gs` (`true`).
    fn segment_base(&self, gs: bool) -> u64;
    /// The 64 bytes of vector register zmm`number`.
    fn vector(&mut self, number: usize) -> [u8; 64];
    /// Mask register k`number`.
    fn mask(&mut self, number: usize) -> u64;
}

/// One read of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub size: u64,
}

/// The kind of an instruction's reads of memory.
#[derive(Clone, Debug)]
pub enum Reads {
    /// No read.
    None,
    /// One explicit operand of this size.
    Plain(u64),
    /// `bt` and related instructions with the bit number in a register; operand size, bytes.
    BitString(u64),
    /// `xlat`.
    Xlat,
    /// A call or jump to an entry of a linkage table, which reads this word.
    Linkage(u64),
    /// Gather with this lane size.
    Gather(u64),
    /// String instruction.
    String {
        /// Bytes per element.
        element: u64,
        /// Reads through rsi.
        rsi: bool,
        /// Reads through rdi.
        rdi: bool,
        /// Has a repeat prefix.
        repeated: bool,
    },
}

/// Target of a direct call or jump, which may be an entry of a linkage table.
pub fn branches_to(insn: &Instruction) -> Option<u64> {
    let direct = insn.is_call_near() || insn.is_jmp_short_or_near();
    direct.then(|| insn.near_branch_target())
}

/// The word through which the linkage table's entry at `address` jumps, from its bytes.
pub fn linkage_word(bytes: &[u8], address: u64) -> Option<u64> {
    let mut at = 0;
    if bytes.starts_with(&[0xf3, 0x0f, 0x1e, 0xfa]) {
        at = 4;
    }
    if bytes.get(at) == Some(&0xf2) {
        at += 1;
    }
    if bytes.get(at..at + 2)? != [0xff, 0x25] {
        return None;
    }
    let distance = i32::from_le_bytes(bytes.get(at + 2..at + 6)?.try_into().ok()?);
    Some(address.wrapping_add_signed(at as i64 + 6 + i64::from(distance)))
}

fn reads_memory(access: OpAccess) -> bool {
    matches!(
        access,
        OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite
    )
}

/// Classifies an instruction.
pub fn classify(insn: &Instruction, factory: &mut InstructionInfoFactory) -> Reads {
    use Mnemonic as M;
    match insn.mnemonic() {
        M::Lea
        | M::Nop
        | M::Prefetch
        | M::Prefetchw
        | M::Prefetchwt1
        | M::Prefetchnta
        | M::Prefetcht0
        | M::Prefetcht1
        | M::Prefetcht2 => {
            return Reads::None;
        }
        M::Clflush | M::Clflushopt | M::Clwb | M::Cldemote => return Reads::None,
        M::Xlatb => return Reads::Xlat,
        _ => {}
    }
    let info = factory.info(insn);
    let access = |i: u32| match i {
        0 => info.op0_access(),
        1 => info.op1_access(),
        2 => info.op2_access(),
        3 => info.op3_access(),
        _ => info.op4_access(),
    };
    let element = insn.memory_size().size() as u64;
    let (mut rsi, mut rdi) = (false, false);
    for i in 0..insn.op_count() {
        if !reads_memory(access(i)) {
            continue;
        }
        match insn.op_kind(i) {
            OpKind::MemorySegRSI | OpKind::MemorySegESI => rsi = true,
            OpKind::MemoryESRDI | OpKind::MemoryESEDI => rdi = true,
            OpKind::Memory => {
                if insn.is_vsib() {
                    return Reads::Gather(element);
                }
                let bits = matches!(insn.mnemonic(), M::Bt | M::Bts | M::Btr | M::Btc);
                if bits && insn.op1_kind() == OpKind::Register {
                    return Reads::BitString(element);
                }
                if insn.is_broadcast() {
                    return Reads::Plain(insn.memory_size().element_size() as u64);
                }
                return Reads::Plain(element);
            }
            _ => {}
        }
    }
    if rsi || rdi {
        let repeated = insn.has_rep_prefix() || insn.has_repe_prefix() || insn.has_repne_prefix();
        return Reads::String {
            element,
            rsi,
            rdi,
            repeated,
        };
    }
    Reads::None
}

/// Value of a general purpose register operand of any width, zero-extended.
pub fn register(reg: Register, state: &dyn RegisterState) -> u64 {
    if reg == Register::None {
        return 0;
    }
    let high = matches!(
        reg,
        Register::AH | Register::CH | Register::DH | Register::BH
    );
    let value = state.gpr(reg.full_register().number());
    match (reg.size(), high) {
        (1, true) => value >> 8 & 0xff,
        (1, false) => value & 0xff,
        (2, _) => value & 0xffff,
        (4, _) => value & 0xffff_ffff,
        _ => value,
    }
}

fn segment(insn: &Instruction, state: &dyn RegisterState) -> u64 {
    match insn.memory_segment() {
        Register::FS => state.segment_base(false),
        Register::GS => state.segment_base(true),
        _ => 0,
    }
}

/// Base plus displacement (with `rip` resolved by the decoder), without index and segment.
fn base(insn: &Instruction, state: &dyn RegisterState) -> u64 {
    match insn.memory_base() {
        // The decoder already gives the absolute address.
        Register::RIP | Register::EIP | Register::None => insn.memory_displacement64(),
        reg => register(reg, state).wrapping_add(insn.memory_displacement64()),
    }
}

/// Effective address of the explicit operand of any instruction except a gather.
pub fn effective(insn: &Instruction, state: &dyn RegisterState) -> u64 {
    let scaled =
        register(insn.memory_index(), state).wrapping_mul(u64::from(insn.memory_index_scale()));
    let mut offset = base(insn, state).wrapping_add(scaled);
    let short = |r: Register| r != Register::None && r.size() == 4;
    if short(insn.memory_base()) || short(insn.memory_index()) {
        offset &= 0xffff_ffff;
    }
    offset.wrapping_add(segment(insn, state))
}

fn lane(bytes: &[u8; 64], size: usize, i: usize) -> i64 {
    let mut raw = [0u8; 8];
    raw[..size].copy_from_slice(&bytes[i * size..(i + 1) * size]);
    let value = i64::from_le_bytes(raw);
    if size == 4 {
        i64::from(value as i32)
    } else {
        value
    }
}

fn gather(insn: &Instruction, size: u64, state: &mut dyn RegisterState, out: &mut Vec<Read>) {
    let index_size = if insn.is_vsib64() { 8 } else { 4 };
    let target = insn.op0_register();
    let lanes = (insn.memory_index().size() / index_size).min(target.size() / size as usize);
    let start = base(insn, state).wrapping_add(segment(insn, state));
    let index = state.vector(insn.memory_index().number());
    let k = insn.op_mask();
    let active: u64 = if k != Register::None {
        state.mask(k.number())
    } else {
        let mask = state.vector(insn.op2_register().number());
        (0..lanes)
            .filter(|i| mask[(i + 1) * size as usize - 1] & 0x80 != 0)
            .fold(0, |bits, i| bits | 1 << i)
    };
    for i in (0..lanes).filter(|i| active >> i & 1 == 1) {
        let offset =
            (lane(&index, index_size, i) as u64).wrapping_mul(u64::from(insn.memory_index_scale()));
        out.push(Read {
            address: start.wrapping_add(offset),
            size,
        });
    }
}

/// Reads of one execution. For a string instruction: of one element, in the order rsi, rdi.
pub fn evaluate(
    insn: &Instruction,
    reads: &Reads,
    state: &mut dyn RegisterState,
    out: &mut Vec<Read>,
) {
    match *reads {
        Reads::None => {}
        Reads::Plain(size) => out.push(Read {
            address: effective(insn, state),
            size,
        }),
        Reads::BitString(size) => {
            let bits = size * 8;
            let raw = register(insn.op1_register(), state);
            let number = match size {
                2 => i64::from(raw as i16),
                4 => i64::from(raw as i32),
                _ => raw as i64,
            };
            let word = number.div_euclid(bits as i64);
            out.push(Read {
                address: effective(insn, state).wrapping_add((word as u64).wrapping_mul(size)),
                size,
            });
        }
        Reads::Xlat => {
            let offset = state.gpr(3).wrapping_add(state.gpr(0) & 0xff);
            out.push(Read {
                address: offset.wrapping_add(segment(insn, state)),
                size: 1,
            });
        }
        Reads::Linkage(address) => out.push(Read { address, size: 8 }),
        Reads::Gather(size) => gather(insn, size, state, out),
        Reads::String {
            element, rsi, rdi, ..
        } => {
            if rsi {
                out.push(Read {
                    address: state.gpr(6).wrapping_add(segment(insn, state)),
                    size: element,
                });
            }
            if rdi {
                out.push(Read {
                    address: state.gpr(7),
                    size: element,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    struct Fixed;
    impl RegisterState for Fixed {
        fn gpr(&self, number: usize) -> u64 {
            0x1000 * (number as u64 + 1)
        }
        fn segment_base(&self, gs: bool) -> u64 {
            if gs { 0x7_0000_0000 } else { 0x5_0000_0000 }
        }
        fn vector(&mut self, number: usize) -> [u8; 64] {
            // Register 1: 32-bit indices 0, -1, 2, -3, …; others: every second lane's top bit set.
            let mut bytes = [0u8; 64];
            for i in 0..16i32 {
                let value = if number == 1 {
                    if i % 2 == 0 { i } else { -i }
                } else if i % 2 == 1 {
                    -1
                } else {
                    0
                };
                bytes[i as usize * 4..][..4].copy_from_slice(&value.to_le_bytes());
            }
            bytes
        }
        fn mask(&mut self, _: usize) -> u64 {
            0b1001
        }
    }

    fn reads(bytes: &[u8]) -> Vec<(u64, u64)> {
        let insn = Decoder::with_ip(64, bytes, 0x40_0000, DecoderOptions::NONE).decode();
        assert_eq!(insn.len(), bytes.len(), "{insn}");
        let kind = classify(&insn, &mut InstructionInfoFactory::new());
        let mut out = Vec::new();
        evaluate(&insn, &kind, &mut Fixed, &mut out);
        out.iter().map(|r| (r.address, r.size)).collect()
    }

    // rax 0x1000, rcx 0x2000, rdx 0x3000, rbx 0x4000, rsp 0x5000, rbp 0x6000, rsi 0x7000, rdi 0x8000.
    #[test]
    fn plain_operands() {
        assert_eq!(
            reads(&[0x8b, 0x44, 0x48, 0x08]),
            [(0x1000 + 2 * 0x2000 + 8, 4)]
        ); // mov eax,[rax+rcx*2+8]
        assert_eq!(reads(&[0x48, 0x8b, 0x05, 0x10, 0, 0, 0]), [(0x40_0017, 8)]); // mov rax,[rip+0x10]
        assert_eq!(reads(&[0x48, 0x01, 0x03]), [(0x4000, 8)]); // add [rbx],rax
        assert_eq!(reads(&[0x48, 0x89, 0x03]), []); // mov [rbx],rax
        assert_eq!(
            reads(&[0x67, 0x8b, 0x44, 0x43, 0xff]),
            [(0x4000 + 2 * 0x1000 - 1, 4)]
        ); // mov eax,[ebx+eax*2-1]
        assert_eq!(
            reads(&[0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0]),
            [(0x5_0000_0028, 8)]
        ); // mov rax,fs:0x28
        assert_eq!(reads(&[0xff, 0x33]), [(0x4000, 8)]); // push [rbx]
        assert_eq!(reads(&[0xff, 0x13]), [(0x4000, 8)]); // call [rbx]
        assert_eq!(reads(&[0xff, 0x23]), [(0x4000, 8)]); // jmp [rbx]
        assert_eq!(reads(&[0x0f, 0x44, 0x03]), [(0x4000, 4)]); // cmove eax,[rbx]
        assert_eq!(reads(&[0xdb, 0x2b]), [(0x4000, 10)]); // fld tword [rbx]
        assert_eq!(reads(&[0xf0, 0x0f, 0xb1, 0x0b]), [(0x4000, 4)]); // lock cmpxchg [rbx],ecx
    }

    #[test]
    fn what_is_no_load() {
        assert_eq!(reads(&[0x58]), []); // pop rax
        assert_eq!(reads(&[0x8f, 0x03]), []); // pop [rbx]
        assert_eq!(reads(&[0xc3]), []); // ret
        assert_eq!(reads(&[0xc9]), []); // leave
        assert_eq!(reads(&[0x9d]), []); // popf
        assert_eq!(reads(&[0x48, 0x8d, 0x03]), []); // lea rax,[rbx]
        assert_eq!(reads(&[0x0f, 0x1f, 0x03]), []); // nop [rbx]
        assert_eq!(reads(&[0x0f, 0x18, 0x0b]), []); // prefetcht0 [rbx]
        assert_eq!(reads(&[0x0f, 0xae, 0x3b]), []); // clflush [rbx]
        assert_eq!(reads(&[0xf3, 0xab]), []); // rep stosd
        assert_eq!(reads(&[0x62, 0xf1, 0x7e, 0x49, 0x7f, 0x03]), []); // vmovdqu32 [rbx]{k1},zmm0
    }

    #[test]
    fn vectors() {
        assert_eq!(reads(&[0x62, 0xf1, 0x7c, 0x48, 0x10, 0x03]), [(0x4000, 64)]); // vmovups zmm0,[rbx]
        assert_eq!(reads(&[0x62, 0xf1, 0x7e, 0xc9, 0x6f, 0x03]), [(0x4000, 64)]); // vmovdqu32 zmm0{k1}{z},[rbx]
        assert_eq!(reads(&[0x62, 0xf1, 0x74, 0x58, 0x58, 0x03]), [(0x4000, 4)]); // vaddps zmm0,zmm1,[rbx]{1to16}
        assert_eq!(reads(&[0xc4, 0xe2, 0x7d, 0x5a, 0x03]), [(0x4000, 16)]); // vbroadcasti128 ymm0,[rbx]
        // vgatherdps xmm0,[rbx+xmm1*4],xmm2: lanes 1 and 3 are active, indices -1 and -3.
        assert_eq!(
            reads(&[0xc4, 0xe2, 0x69, 0x92, 0x04, 0x8b]),
            [(0x4000 - 4, 4), (0x4000 - 12, 4)]
        );
        // vgatherdps zmm0{k1},[rbx+zmm1*4]: lanes 0 and 3.
        assert_eq!(
            reads(&[0x62, 0xf2, 0x7d, 0x49, 0x92, 0x04, 0x8b]),
            [(0x4000, 4), (0x4000 - 12, 4)]
        );
    }

    #[test]
    fn strings_bits_and_tables() {
        assert_eq!(reads(&[0xf3, 0xa4]), [(0x7000, 1)]); // rep movsb
        assert_eq!(reads(&[0x48, 0xa7]), [(0x7000, 8), (0x8000, 8)]); // cmpsq
        assert_eq!(reads(&[0xf2, 0xae]), [(0x8000, 1)]); // repne scasb
        assert_eq!(reads(&[0x0f, 0xa3, 0x03]), [(0x4000 + 0x1000 / 32 * 4, 4)]); // bt [rbx],eax
        assert_eq!(reads(&[0x0f, 0xba, 0x23, 0x05]), [(0x4000, 4)]); // bt dword [rbx],5
        assert_eq!(reads(&[0xd7]), [(0x4000, 1)]); // xlatb with al = 0
    }
}
