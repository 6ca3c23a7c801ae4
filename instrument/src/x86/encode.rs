//! The few instructions that probes are made of, encoded by hand.
//!
//! None of them writes flags. Registers are hardware numbers ([`Gpr`]); cursor arithmetic is 32
//! bits wide because rings lie below 4 GiB (see [`mgz_abi`]).

use crate::util::byte_buf::ByteBuf;
use crate::x86::regs::Gpr;

/// A memory operand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mem {
    /// `fs:` prefix.
    pub fs: bool,
    /// Address-size prefix: the sum is truncated to 32 bits.
    pub addr32: bool,
    /// Base register.
    pub base: Option<Gpr>,
    /// Index register and its factor (1, 2, 4, 8).
    pub index: Option<(Gpr, u8)>,
    /// Displacement.
    pub disp: i32,
}

impl Mem {
    /// `[base + disp]`.
    pub fn base(base: Gpr, disp: i32) -> Mem {
        Mem {
            base: Some(base),
            disp,
            ..Mem::default()
        }
    }

    /// True if the operand reads `r`.
    pub fn uses(&self, r: Gpr) -> bool {
        self.base == Some(r) || self.index.is_some_and(|(i, _)| i == r)
    }
}

/// An instruction, or a part of one: its bytes, the first lowest, then zeros, and the number of
/// bytes in the highest byte. It fits into two registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Encoded(u128);

impl Encoded {
    const LEN: u32 = 120;

    /// The first `len` bytes; the others are zero.
    #[inline]
    fn new(bytes: u128, len: u8) -> Encoded {
        Encoded(bytes | u128::from(len) << Encoded::LEN)
    }

    /// These bytes, at most fifteen.
    #[inline]
    pub fn of(bytes: &[u8]) -> Encoded {
        bytes
            .iter()
            .fold(Encoded::default(), |code, &byte| code.with(byte))
    }

    /// Number of bytes.
    #[inline]
    pub fn size(self) -> u8 {
        (self.0 >> Encoded::LEN) as u8
    }

    /// Appends another instruction; both together have at most fifteen bytes.
    #[must_use]
    pub fn then(self, next: Encoded) -> Encoded {
        let bytes = next.0 & !(0xff << Encoded::LEN);
        Encoded(self.0 + (bytes << (8 * self.size())) + (u128::from(next.size()) << Encoded::LEN))
    }

    /// Appends more bytes.
    #[must_use]
    pub fn with_all(self, bytes: &[u8]) -> Encoded {
        bytes.iter().fold(self, |code, &byte| code.with(byte))
    }

    /// Appends another byte.
    #[inline]
    #[must_use]
    pub fn with(self, byte: u8) -> Encoded {
        Encoded(self.0 + (u128::from(byte) << (8 * self.size())) + (1 << Encoded::LEN))
    }

    /// Appends four bytes.
    #[inline]
    #[must_use]
    pub fn with32(self, value: u32) -> Encoded {
        Encoded(self.0 + (u128::from(value) << (8 * self.size())) + (4 << Encoded::LEN))
    }

    /// Appends the bytes to code.
    #[inline]
    pub fn append(self, out: &mut ByteBuf) {
        out.put(self.0, self.size());
    }
}

/// The REX prefix without the bits of a memory operand. 0x40 has no effect.
#[inline]
fn rex(wide: bool, reg: u8) -> u8 {
    0x40 | u8::from(wide) << 3 | reg >> 3 << 2
}

/// `REX opcode modrm…` for `[base + disp]`. `reg` is the register field (or opcode extension).
#[inline]
fn encode_base(wide: bool, opcode: u8, reg: u8, base: Gpr, disp: i32) -> Encoded {
    let low = base.0 & 7;
    // Most operands need no SIB, and a displacement of at most one byte.
    if low == 4 || i8::try_from(disp).is_err() {
        return encode(wide, opcode, reg, &Mem::base(base, disp));
    }
    let rex = rex(wide, reg) | base.0 >> 3;
    // (With rbp or r13 as base, the encoding without displacement means another operand.)
    let has_disp = disp != 0 || low == 5;
    let modrm = u8::from(has_disp) << 6 | (reg & 7) << 3 | low;
    let bytes = u32::from_le_bytes([rex, opcode, modrm, disp as u8]);
    let has_rex = rex != 0x40;
    Encoded::new(
        (if has_rex { bytes } else { bytes >> 8 }).into(),
        2 + u8::from(has_rex) + u8::from(has_disp),
    )
}

/// As `encode_base`, for `gs:[disp]`.
#[inline]
fn encode_gs(wide: bool, opcode: u8, reg: u8, disp: u32) -> Encoded {
    const GS: u8 = 0x65;
    let rex = rex(wide, reg);
    let rest =
        u64::from(opcode) | u64::from((reg & 7) << 3 | 4) << 8 | 0x25 << 16 | u64::from(disp) << 24;
    if rex == 0x40 {
        Encoded::new((u64::from(GS) | rest << 8).into(), 8)
    } else {
        Encoded::new(
            u128::from(GS) | u128::from(rex) << 8 | u128::from(rest) << 16,
            9,
        )
    }
}

/// As `encode_base`, for all other operands.
#[inline(never)]
fn encode(wide: bool, opcode: u8, reg: u8, mem: &Mem) -> Encoded {
    let mut head = Encoded::default();
    if mem.fs {
        head = head.with(0x64);
    }
    if mem.addr32 {
        head = head.with(0x67);
    }
    let high = |r: Option<Gpr>| r.is_some_and(|r| r.0 >= 8);
    let index = mem.index.map(|(r, _)| r);
    let rex = rex(wide, reg) | u8::from(high(index)) << 1 | u8::from(high(mem.base));
    if rex != 0x40 {
        head = head.with(rex);
    }
    modrm(head.with(opcode), reg, mem)
}

/// ModRM, SIB and displacement for `mem` after `head`, which has the prefixes and the opcode.
pub fn modrm(head: Encoded, reg: u8, mem: &Mem) -> Encoded {
    let field = (reg & 7) << 3;
    let scale = match mem.index {
        Some((_, 8)) => 3,
        Some((_, 4)) => 2,
        Some((_, 2)) => 1,
        _ => 0u8,
    } << 6;
    let index = mem.index.map_or(4, |(r, _)| r.0 & 7) << 3;
    let Some(base) = mem.base else {
        return head
            .with(field | 4)
            .with(scale | index | 5)
            .with32(mem.disp as u32);
    };
    let low = base.0 & 7;
    let mode = match mem.disp {
        0 if low != 5 => 0x00,
        -128..=127 => 0x40,
        _ => 0x80,
    };
    let head = if mem.index.is_some() || low == 4 {
        head.with(mode | field | 4).with(scale | index | low)
    } else {
        head.with(mode | field | low)
    };
    match mode {
        0x00 => head,
        0x40 => head.with(mem.disp as u8),
        _ => head.with32(mem.disp as u32),
    }
}

/// `op reg, gs:[rip + 0]` for a load (`8b`) or store (`89`): one byte shorter than the absolute
/// form, for code whose address is fixed. The displacement is at the end.
pub fn gs_rip(wide: bool, opcode: u8, reg: Gpr) -> Encoded {
    let head = Encoded::default().with(0x65);
    let rex = rex(wide, reg.0);
    let head = if rex == 0x40 { head } else { head.with(rex) };
    head.with(opcode).with((reg.0 & 7) << 3 | 5).with32(0)
}

/// `mov reg, gs:[offset]` (opcode `8b`) or `mov gs:[offset], reg` (`89`) of 4 or 8 bytes.
#[inline]
pub fn mov_gs(wide: bool, opcode: u8, reg: Gpr, offset: u32) -> Encoded {
    encode_gs(wide, opcode, reg.0, offset)
}

/// `mov reg64, [mem]`
pub fn load64(reg: Gpr, mem: &Mem) -> Encoded {
    encode(true, 0x8b, reg.0, mem)
}

/// `mov [base + disp], reg64`
#[inline]
pub fn store64(base: Gpr, disp: i32, reg: Gpr) -> Encoded {
    encode_base(true, 0x89, reg.0, base, disp)
}

/// `mov dword [base + disp], value`; the immediate is at the end.
#[inline]
pub fn store_imm32(base: Gpr, disp: i32, value: u32) -> Encoded {
    encode_base(false, 0xc7, 0, base, disp).with32(value)
}

/// `lea reg32, [base + disp]`
#[inline]
pub fn lea32(reg: Gpr, base: Gpr, disp: i32) -> Encoded {
    encode_base(false, 0x8d, reg.0, base, disp)
}

/// `mov to, from` of 32 bits.
pub fn move32(to: Gpr, from: Gpr) -> Encoded {
    let rex = (to.0 >> 3) << 2 | from.0 >> 3;
    let head = if rex == 0 {
        Encoded::default()
    } else {
        Encoded::default().with(0x40 | rex)
    };
    head.with(0x8b).with(0xc0 | (to.0 & 7) << 3 | from.0 & 7)
}

/// `mov to, from`
pub fn move64(to: Gpr, from: Gpr) -> Encoded {
    let rex = 0x48 | (to.0 >> 3) << 2 | from.0 >> 3;
    Encoded::of(&[rex, 0x8b, 0xc0 | (to.0 & 7) << 3 | from.0 & 7])
}

/// `inc qword [mem]`
pub fn inc64(mem: &Mem) -> Encoded {
    encode(true, 0xff, 0, mem)
}

/// `lea reg64, [mem]`; with `addr32` the upper half becomes zero.
pub fn lea64(reg: Gpr, mem: &Mem) -> Encoded {
    encode(true, 0x8d, reg.0, mem)
}

/// `lea reg64, [rip + 0]`; the displacement is at the end.
pub fn lea_rip(reg: Gpr) -> Encoded {
    Encoded::of(&[rex(true, reg.0), 0x8d, (reg.0 & 7) << 3 | 5, 0, 0, 0, 0])
}

/// `ptwrite reg64`
#[inline]
pub fn ptwrite(reg: Gpr) -> Encoded {
    Encoded::of(&[
        0xf3,
        0x48 | u8::from(reg.0 >= 8),
        0x0f,
        0xae,
        0xe0 | reg.0 & 7,
    ])
}

/// `ptwrite eax`: the shortest one, for records without a payload.
#[inline]
pub fn ptwrite_any() -> Encoded {
    Encoded::of(&[0xf3, 0x0f, 0xae, 0xe0])
}

/// `vmovdqu [mem], v` of 16, 32 or 64 bytes; EVEX where the register or width needs it. `mem` is a
/// base register and a displacement.
pub fn store_vector(mem: &Mem, vector: u8, bytes: u16) -> Encoded {
    let b = u8::from(mem.base.is_some_and(|b| b.0 >= 8));
    if bytes == 64 || vector >= 16 {
        // EVEX.F3.0F.W1 7F: vmovdqu64. A disp8 would be scaled by the vector length: use disp32.
        let length = match bytes {
            64 => 2,
            32 => 1,
            _ => 0u8,
        };
        let p0 = (!(vector >> 3) & 1) << 7 | 0x40 | (1 - b) << 5 | (!(vector >> 4) & 1) << 4 | 1;
        far(
            Encoded::of(&[0x62, p0, 0xfe, length << 5 | 0x08, 0x7f]),
            vector & 7,
            mem,
        )
    } else {
        // VEX.F3.0F 7F, three-byte form: vmovdqu.
        let p0 = (!(vector >> 3) & 1) << 7 | 0x40 | (1 - b) << 5 | 1;
        modrm(
            Encoded::of(&[0xc4, p0, 0x78 | u8::from(bytes == 32) << 2 | 2, 0x7f]),
            vector & 7,
            mem,
        )
    }
}

/// Stores the sixteen bytes of a vector register of 32 or 64 bytes that have this number
/// (`vextracti128`, `vextracti32x4`).
pub fn store_part(mem: &Mem, vector: u8, bytes: u8, part: u8) -> Encoded {
    let b = u8::from(mem.base.is_some_and(|b| b.0 >= 8));
    let p0 = (!(vector >> 3) & 1) << 7 | 0x40 | (1 - b) << 5 | 3;
    let head = if bytes == 64 || vector >= 16 {
        // EVEX.66.0F3A.W0 39.
        let length = if bytes == 64 { 2 } else { 1u8 };
        Encoded::of(&[
            0x62,
            p0 | (!(vector >> 4) & 1) << 4,
            0x7d,
            length << 5 | 0x08,
            0x39,
        ])
    } else {
        // VEX.256.66.0F3A.W0 39.
        Encoded::of(&[0xc4, p0, 0x7d, 0x39])
    };
    far(head, vector & 7, mem).with(part)
}

/// ModRM and SIB of `[base + disp32]`, since some encodings would scale a one-byte displacement.
fn far(head: Encoded, reg: u8, mem: &Mem) -> Encoded {
    let low = mem.base.map_or(5, |r| r.0 & 7);
    let head = head.with(0x80 | (reg & 7) << 3 | low);
    let head = if low == 4 { head.with(0x24) } else { head };
    head.with32(mem.disp as u32)
}

/// `kmovw reg32, mask`
pub fn kmovw(reg: Gpr, mask: u8) -> Encoded {
    let field = (reg.0 & 7) << 3;
    Encoded::of(&[
        0xc5,
        if reg.0 >= 8 { 0x78 } else { 0xf8 },
        0x93,
        0xc0 | field | mask & 7,
    ])
}

/// `jmp rel32` to be resolved later; the displacement is at the end.
#[inline]
pub fn jmp32() -> Encoded {
    Encoded::of(&[0xe9, 0, 0, 0, 0])
}

/// `push reg64`
pub fn push(reg: Gpr) -> Encoded {
    let head = if reg.0 >= 8 {
        Encoded::default().with(0x41)
    } else {
        Encoded::default()
    };
    head.with(0x50 | reg.0 & 7)
}

/// `push imm32`
pub fn push_imm32(value: i32) -> Encoded {
    Encoded::default().with(0x68).with32(value as u32)
}

/// `jmp [gs:offset]`
pub fn jump_gs(offset: u32) -> Encoded {
    encode_gs(false, 0xff, 4, offset)
}

/// `call [gs:offset]`
pub fn call_gs(offset: u32) -> Encoded {
    encode_gs(false, 0xff, 2, offset)
}

/// A multi-byte no-operation of 1 to 9 bytes.
pub fn nop(len: usize) -> &'static [u8] {
    const NOPS: [&[u8]; 10] = [
        &[],
        &[0x90],
        &[0x66, 0x90],
        &[0x0f, 0x1f, 0x00],
        &[0x0f, 0x1f, 0x40, 0x00],
        &[0x0f, 0x1f, 0x44, 0x00, 0x00],
        &[0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00],
        &[0x0f, 0x1f, 0x80, 0x00, 0x00, 0x00, 0x00],
        &[0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00],
        &[0x66, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00],
    ];
    NOPS[len.min(9)]
}

/// Offset of the ModRM byte of an instruction that has one, found from its bytes: prefixes, REX,
/// VEX, EVEX, XOP and opcode maps are skipped.
pub fn modrm_offset(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    while matches!(
        bytes.get(at)?,
        0x66 | 0x67 | 0xf0 | 0xf2 | 0xf3 | 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65
    ) {
        at += 1;
    }
    let modrm = match *bytes.get(at)? {
        0xc5 => at + 3,
        0xc4 => at + 4,
        0x62 => at + 5,
        0x8f if bytes.get(at + 1)? & 0x1f >= 8 => at + 4,
        first => {
            if first & 0xf0 == 0x40 {
                at += 1;
            }
            match bytes.get(at)? {
                0x0f => match bytes.get(at + 1)? {
                    0x38 | 0x3a => at + 3,
                    _ => at + 2,
                },
                _ => at + 1,
            }
        }
    };
    bytes.get(modrm).map(|_| modrm)
}

/// Offset of the end of the memory operand whose ModRM byte is at `at`.
pub fn operand_end(bytes: &[u8], at: usize) -> Option<usize> {
    let modrm = *bytes.get(at)?;
    let sib = if modrm & 7 == 4 && modrm < 0xc0 {
        Some(*bytes.get(at + 1)?)
    } else {
        None
    };
    let disp = match modrm >> 6 {
        0 if modrm & 7 == 5 || sib.is_some_and(|s| s & 7 == 5) => 4,
        1 => 1,
        2 => 4,
        _ => 0,
    };
    let end = at + 1 + usize::from(sib.is_some()) + disp;
    (end <= bytes.len()).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, Formatter, GasFormatter};

    /// The bytes as text, by an independent decoder.
    fn text(bytes: &[u8]) -> String {
        let mut decoder = Decoder::with_ip(64, bytes, 0x1000, DecoderOptions::NONE);
        let mut formatter = GasFormatter::new();
        let mut out = Vec::new();
        while decoder.can_decode() {
            let inst = decoder.decode();
            let mut line = String::new();
            formatter.format(&inst, &mut line);
            out.push(line);
        }
        out.join("; ")
    }

    fn asm(code: &[Encoded]) -> String {
        let mut out = ByteBuf::default();
        code.iter().for_each(|c| c.append(&mut out));
        text(out.as_slice())
    }

    const NAMES: [&str; 16] = [
        "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12",
        "r13", "r14", "r15",
    ];

    #[test]
    fn every_base_and_index_register_is_encoded() {
        for base in 0..16u8 {
            for index in (0..16u8).filter(|&i| i != 4) {
                for (disp, shown) in [(0, ""), (16, "0x10"), (-128, "-0x80"), (0x12345, "0x12345")]
                {
                    let mem = Mem {
                        base: Some(Gpr(base)),
                        index: Some((Gpr(index), 4)),
                        disp,
                        ..Mem::default()
                    };
                    let got = asm(&[lea64(Gpr(15 - base), &mem)]);
                    let name = |r: u8| NAMES[r as usize];
                    assert_eq!(
                        got,
                        format!(
                            "lea {shown}(%{},%{},4),%{}",
                            name(base),
                            name(index),
                            name(15 - base)
                        )
                    );
                }
            }
            let got = asm(&[store64(Gpr(base), 0, Gpr(3))]);
            assert_eq!(got, format!("mov %rbx,(%{})", NAMES[base as usize]));
            let got = asm(&[ptwrite(Gpr(base))]);
            assert_eq!(got, format!("ptwrite %{}", NAMES[base as usize]));
        }
    }

    #[test]
    fn frequent_operands_are_encoded_as_all_others() {
        for reg in 0..16u8 {
            for wide in [false, true] {
                for (base, disp) in (0..16u8)
                    .flat_map(|base| [0, 8, -128, 127, 128, -129].map(|disp| (Gpr(base), disp)))
                {
                    assert_eq!(
                        encode_base(wide, 0x89, reg, base, disp),
                        encode(wide, 0x89, reg, &Mem::base(base, disp)),
                        "{base:?} {disp}"
                    );
                }
            }
        }
    }

    #[test]
    fn probe_instructions_read_as_meant() {
        assert_eq!(asm(&[mov_gs(false, 0x8b, Gpr(0), 0)]), "mov %gs:0,%eax");
        assert_eq!(asm(&[mov_gs(true, 0x89, Gpr(9), 8)]), "mov %r9,%gs:8");
        assert_eq!(asm(&[store_imm32(Gpr(12), 24, 0)]), "movl $0,0x18(%r12)");
        assert_eq!(asm(&[lea32(Gpr(2), Gpr(2), 32)]), "lea 0x20(%rdx),%edx");
        assert_eq!(
            asm(&[load64(
                Gpr(1),
                &Mem {
                    fs: true,
                    ..Mem::default()
                }
            )]),
            "mov %fs:0,%rcx"
        );
        assert_eq!(
            asm(&[lea64(
                Gpr(1),
                &Mem {
                    addr32: true,
                    ..Mem::base(Gpr(1), 1)
                }
            )]),
            "lea 1(%ecx),%rcx"
        );
        assert_eq!(asm(&[ptwrite_any()]), "ptwrite %eax");
        assert_eq!(asm(&[gs_rip(false, 0x8b, Gpr(0))]), "mov %gs:0x1007,%eax");
        assert_eq!(asm(&[gs_rip(true, 0x89, Gpr(9))]), "mov %r9,%gs:0x1008");
        assert_eq!(asm(&[kmovw(Gpr(10), 3)]), "kmovw %k3,%r10d");
        assert_eq!(asm(&[lea_rip(Gpr(8))]), "lea 0x1007,%r8");
        assert_eq!(asm(&[jump_gs(72)]), "jmpq *%gs:0x48");
        assert_eq!(asm(&[call_gs(96)]), "callq *%gs:0x60");
        assert_eq!(asm(&[push(Gpr(3)), push(Gpr(11))]), "push %rbx; push %r11");
    }

    #[test]
    fn instructions_stand_behind_each_other() {
        for r in (0..16u8).map(Gpr) {
            let all = [
                store64(r, 0, Gpr(7)),
                store_imm32(r, 12, 0x1234_5678),
                lea32(r, r, 16),
                mov_gs(false, 0x89, r, 8),
            ];
            let joined = [all[0].then(all[1]), all[2].then(all[3])];
            assert_eq!(asm(&joined), asm(&all));
            assert_eq!(
                joined.map(Encoded::size),
                [all[0].size() + all[1].size(), all[2].size() + all[3].size()]
            );
            assert!(joined.iter().all(|code| code.size() <= 15));
        }
    }

    #[test]
    fn vector_stores_pick_the_right_encoding() {
        let mem = Mem::base(Gpr(1), 16);
        assert_eq!(
            asm(&[store_vector(&mem, 5, 16)]),
            "vmovdqu %xmm5,0x10(%rcx)"
        );
        assert_eq!(
            asm(&[store_vector(&mem, 13, 32)]),
            "vmovdqu %ymm13,0x10(%rcx)"
        );
        assert_eq!(
            asm(&[store_vector(&mem, 7, 64)]),
            "vmovdqu64 %zmm7,0x10(%rcx)"
        );
        assert_eq!(
            asm(&[store_vector(&Mem::base(Gpr(12), 16), 29, 16)]),
            "vmovdqu64 %xmm29,0x10(%r12)"
        );
        assert_eq!(
            asm(&[store_vector(&Mem::base(Gpr(13), 0), 17, 32)]),
            "vmovdqu64 %ymm17,(%r13)"
        );
        assert_eq!(
            asm(&[store_part(&mem, 5, 32, 1)]),
            "vextracti128 $1,%ymm5,0x10(%rcx)"
        );
        assert_eq!(
            asm(&[store_part(&Mem::base(Gpr(12), 8), 13, 32, 1)]),
            "vextracti128 $1,%ymm13,8(%r12)"
        );
        assert_eq!(
            asm(&[store_part(&Mem::base(Gpr(9), 24), 18, 32, 1)]),
            "vextracti32x4 $1,%ymm18,0x18(%r9)"
        );
        assert_eq!(
            asm(&[store_part(&mem, 30, 64, 3)]),
            "vextracti32x4 $3,%zmm30,0x10(%rcx)"
        );
    }

    #[test]
    fn modrm_is_found_behind_all_prefixes() {
        let cases: [(&[u8], usize); 8] = [
            (&[0x8b, 0x05, 0, 0, 0, 0], 1),
            (&[0x66, 0x41, 0x8b, 0x05, 0, 0, 0, 0], 3),
            (&[0xf3, 0x0f, 0x10, 0x05, 0, 0, 0, 0], 3),
            (&[0x66, 0x0f, 0x38, 0x00, 0x05, 0, 0, 0, 0], 4),
            (&[0xc5, 0xf8, 0x10, 0x05, 0, 0, 0, 0], 3),
            (&[0xc4, 0xe2, 0x7d, 0x18, 0x05, 0, 0, 0, 0], 4),
            (&[0x62, 0xf1, 0x7c, 0x48, 0x10, 0x05, 0, 0, 0, 0], 5),
            (&[0x8f, 0x05, 0, 0, 0, 0], 1),
        ];
        for (bytes, at) in cases {
            assert_eq!(modrm_offset(bytes), Some(at), "{bytes:02x?}");
        }
        assert_eq!(modrm_offset(&[0x66]), None);
        assert_eq!(modrm_offset(&[]), None);
    }
}
