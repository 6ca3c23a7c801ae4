//! The few instructions that probes are made of, encoded by hand.
//!
//! None of them writes flags. Registers are hardware numbers ([`Gpr`]); cursor arithmetic is 32 bits wide
//! because rings lie below 4 GiB (see `mgz_annotations_schema::abi`).

use crate::ir::Gpr;

/// A memory operand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mem {
    /// `gs:` prefix.
    pub gs: bool,
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
        Mem { base: Some(base), disp, ..Mem::default() }
    }

    /// `gs:[disp]`.
    pub fn gs(disp: u32) -> Mem {
        Mem { gs: true, disp: disp as i32, ..Mem::default() }
    }

    /// Whether the operand reads `r`.
    pub fn uses(&self, r: Gpr) -> bool {
        self.base == Some(r) || self.index.is_some_and(|(i, _)| i == r)
    }
}

/// The first bytes of an instruction, eight at most, which are appended at once.
#[derive(Default)]
struct Head {
    /// The first is the lowest.
    bytes: u64,
    len: usize,
}

impl Head {
    #[inline]
    fn push(&mut self, byte: u8) {
        self.bytes |= u64::from(byte) << (8 * self.len);
        self.len += 1;
    }

    fn append(&self, out: &mut Vec<u8>) {
        append(out, self.bytes.to_le_bytes(), self.len);
    }
}

/// Appends the first `len` of these bytes.
fn append<const N: usize>(out: &mut Vec<u8>, bytes: [u8; N], len: usize) {
    let end = out.len() + len;
    out.extend_from_slice(&bytes);
    out.truncate(end);
}

/// `[prefixes] REX opcode modrm…`. `reg` is the register field (or opcode extension).
#[inline]
fn encode(out: &mut Vec<u8>, wide: bool, opcode: u8, reg: u8, mem: &Mem) {
    let rex = 0x40 | u8::from(wide) << 3 | u8::from(reg >= 8) << 2;
    match *mem {
        // Nearly all are one of these two.
        Mem { gs: false, fs: false, addr32: false, base: Some(base), index: None, disp: disp @ -128..=127 } if base.0 & 7 != 4 => {
            encode_near(out, rex, opcode, reg, base, disp as u8);
        }
        Mem { gs: true, fs: false, addr32: false, base: None, index: None, disp } => encode_gs(out, rex, opcode, reg, disp),
        _ => encode_any(out, rex, opcode, reg, mem),
    }
}

/// The same for a base register that needs no SIB and a displacement of one byte at most.
#[inline(never)]
fn encode_near(out: &mut Vec<u8>, rex: u8, opcode: u8, reg: u8, base: Gpr, disp: u8) {
    let rex = rex | base.0 >> 3;
    let low = base.0 & 7;
    // (A base without displacement has the encoding of another operand if it is rbp or r13.)
    let has_disp = disp != 0 || low == 5;
    let modrm = u8::from(has_disp) << 6 | (reg & 7) << 3 | low;
    let bytes = u32::from_le_bytes([rex, opcode, modrm, disp]);
    // Without the first if it says nothing.
    let has_rex = rex != 0x40;
    append(out, if has_rex { bytes } else { bytes >> 8 }.to_le_bytes(), 2 + usize::from(has_rex) + usize::from(has_disp));
}

/// The same for `gs:[disp]`.
#[inline(never)]
fn encode_gs(out: &mut Vec<u8>, rex: u8, opcode: u8, reg: u8, disp: i32) {
    let modrm = (reg & 7) << 3 | 4;
    let [a, b, c, d] = disp.to_le_bytes();
    if rex == 0x40 {
        out.extend_from_slice(&[0x65, opcode, modrm, 0x25, a, b, c, d]);
    } else {
        out.extend_from_slice(&[0x65, rex, opcode, modrm, 0x25, a, b, c, d]);
    }
}

/// The same for all operands. `rex` is without what they add to it.
#[inline(never)]
fn encode_any(out: &mut Vec<u8>, rex: u8, opcode: u8, reg: u8, mem: &Mem) {
    let mut head = Head::default();
    if mem.gs {
        head.push(0x65);
    }
    if mem.fs {
        head.push(0x64);
    }
    if mem.addr32 {
        head.push(0x67);
    }
    let high = |r: Option<Gpr>| r.is_some_and(|r| r.0 >= 8);
    let index = mem.index.map(|(r, _)| r);
    let rex = rex | u8::from(high(index)) << 1 | u8::from(high(mem.base));
    if rex != 0x40 {
        head.push(rex);
    }
    head.push(opcode);
    operand(out, head, reg, mem);
}

/// ModRM, SIB and displacement for `mem`. Prefixes are the caller's.
pub fn modrm(out: &mut Vec<u8>, reg: u8, mem: &Mem) {
    operand(out, Head::default(), reg, mem);
}

/// The same behind `head`.
fn operand(out: &mut Vec<u8>, mut head: Head, reg: u8, mem: &Mem) {
    let field = (reg & 7) << 3;
    let scale = match mem.index {
        Some((_, 8)) => 3,
        Some((_, 4)) => 2,
        Some((_, 2)) => 1,
        _ => 0u8,
    } << 6;
    let index = mem.index.map_or(4, |(r, _)| r.0 & 7) << 3;
    let disp = mem.disp.to_le_bytes();
    let Some(base) = mem.base else {
        head.push(field | 4);
        head.push(scale | index | 5);
        head.append(out);
        out.extend_from_slice(&disp);
        return;
    };
    let low = base.0 & 7;
    let (mode, len) = match mem.disp {
        0 if low != 5 => (0x00, 0),
        -128..=127 => (0x40, 1),
        _ => (0x80, 4),
    };
    if mem.index.is_some() || low == 4 {
        head.push(mode | field | 4);
        head.push(scale | index | low);
    } else {
        head.push(mode | field | low);
    }
    head.append(out);
    append(out, disp, len);
}

/// `op reg, gs:[rip + 0]` for a load (`8b`) or store (`89`): one byte shorter than the absolute form, for code
/// whose address is fixed. Returns the offset of the displacement in `out`.
pub fn gs_rip(out: &mut Vec<u8>, wide: bool, opcode: u8, reg: Gpr) -> usize {
    out.push(0x65);
    let rex = 0x40 | u8::from(wide) << 3 | u8::from(reg.0 >= 8) << 2;
    if rex != 0x40 {
        out.push(rex);
    }
    out.extend_from_slice(&[opcode, (reg.0 & 7) << 3 | 5, 0, 0, 0, 0]);
    out.len() - 4
}

/// `mov reg, [mem]` (opcode `8b`) or `mov [mem], reg` (`89`) of 4 or 8 bytes.
#[inline]
pub fn mov(out: &mut Vec<u8>, wide: bool, opcode: u8, reg: Gpr, mem: &Mem) {
    encode(out, wide, opcode, reg.0, mem);
}

/// `mov reg64, [mem]`
#[inline]
pub fn load64(out: &mut Vec<u8>, reg: Gpr, mem: &Mem) {
    encode(out, true, 0x8b, reg.0, mem);
}

/// `mov [mem], reg64`
#[inline]
pub fn store64(out: &mut Vec<u8>, mem: &Mem, reg: Gpr) {
    encode(out, true, 0x89, reg.0, mem);
}

/// `mov dword [mem], value`; returns the offset of the immediate in `out`.
#[inline]
pub fn store_imm32(out: &mut Vec<u8>, mem: &Mem, value: u32) -> usize {
    encode(out, false, 0xc7, 0, mem);
    out.extend_from_slice(&value.to_le_bytes());
    out.len() - 4
}

/// `lea reg32, [mem]`
#[inline]
pub fn lea32(out: &mut Vec<u8>, reg: Gpr, mem: &Mem) {
    encode(out, false, 0x8d, reg.0, mem);
}

/// `mov to, from` of 32 bits.
pub fn move32(out: &mut Vec<u8>, to: Gpr, from: Gpr) {
    let rex = (to.0 >> 3) << 2 | from.0 >> 3;
    if rex != 0 {
        out.push(0x40 | rex);
    }
    out.extend_from_slice(&[0x8b, 0xc0 | (to.0 & 7) << 3 | from.0 & 7]);
}

/// `lea reg64, [mem]`; with `addr32` the upper half becomes zero.
pub fn lea64(out: &mut Vec<u8>, reg: Gpr, mem: &Mem) {
    encode(out, true, 0x8d, reg.0, mem);
}

/// `lea reg64, [rip + 0]`; returns the offset of the displacement in `out`.
pub fn lea_rip(out: &mut Vec<u8>, reg: Gpr) -> usize {
    out.extend_from_slice(&[0x48 | u8::from(reg.0 >= 8) << 2, 0x8d, (reg.0 & 7) << 3 | 5, 0, 0, 0, 0]);
    out.len() - 4
}

/// `ptwrite reg64`
pub fn ptwrite(out: &mut Vec<u8>, reg: Gpr) {
    out.extend_from_slice(&[0xf3, 0x48 | u8::from(reg.0 >= 8), 0x0f, 0xae, 0xe0 | reg.0 & 7]);
}

/// `ptwrite eax`: the shortest one, for records whose payload says nothing.
pub fn ptwrite_any(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0xf3, 0x0f, 0xae, 0xe0]);
}

/// `vmovdqu [mem], v` of 16, 32 or 64 bytes; EVEX where the register or width needs it. `mem` is a base
/// register and a displacement.
pub fn store_vector(out: &mut Vec<u8>, mem: &Mem, vector: u8, bytes: u16) {
    let b = u8::from(mem.base.is_some_and(|b| b.0 >= 8));
    if bytes == 64 || vector >= 16 {
        // EVEX.F3.0F.W1 7F: vmovdqu64. A disp8 would be scaled by the vector length: use disp32.
        let length = match bytes {
            64 => 2,
            32 => 1,
            _ => 0u8,
        };
        let p0 = (!(vector >> 3) & 1) << 7 | 0x40 | (1 - b) << 5 | (!(vector >> 4) & 1) << 4 | 1;
        out.extend_from_slice(&[0x62, p0, 0xfe, length << 5 | 0x08, 0x7f]);
        far(out, vector & 7, mem);
    } else {
        // VEX.F3.0F 7F, three-byte form: vmovdqu.
        let p0 = (!(vector >> 3) & 1) << 7 | 0x40 | (1 - b) << 5 | 1;
        out.extend_from_slice(&[0xc4, p0, 0x78 | u8::from(bytes == 32) << 2 | 2, 0x7f]);
        modrm(out, vector & 7, mem);
    }
}

/// Stores the sixteen bytes of a vector register of 32 or 64 bytes that have this number (`vextracti128`, `vextracti32x4`).
pub fn store_part(out: &mut Vec<u8>, mem: &Mem, vector: u8, bytes: u8, part: u8) {
    let b = u8::from(mem.base.is_some_and(|b| b.0 >= 8));
    let p0 = (!(vector >> 3) & 1) << 7 | 0x40 | (1 - b) << 5 | 3;
    if bytes == 64 || vector >= 16 {
        // EVEX.66.0F3A.W0 39.
        let length = if bytes == 64 { 2 } else { 1u8 };
        out.extend_from_slice(&[0x62, p0 | (!(vector >> 4) & 1) << 4, 0x7d, length << 5 | 0x08, 0x39]);
    } else {
        // VEX.256.66.0F3A.W0 39.
        out.extend_from_slice(&[0xc4, p0, 0x7d, 0x39]);
    }
    far(out, vector & 7, mem);
    out.push(part);
}

/// ModRM and SIB of `[base + disp32]`: a displacement of one byte would be scaled in some encodings.
fn far(out: &mut Vec<u8>, reg: u8, mem: &Mem) {
    let low = mem.base.map_or(5, |r| r.0 & 7);
    out.push(0x80 | (reg & 7) << 3 | low);
    if low == 4 {
        out.push(0x24);
    }
    out.extend_from_slice(&mem.disp.to_le_bytes());
}

/// `kmovw reg32, mask`
pub fn kmovw(out: &mut Vec<u8>, reg: Gpr, mask: u8) {
    let field = (reg.0 & 7) << 3;
    out.extend_from_slice(&[0xc5, if reg.0 >= 8 { 0x78 } else { 0xf8 }, 0x93, 0xc0 | field | mask & 7]);
}

/// Jump to be resolved later: `jmp rel32`; returns the offset of the displacement in `out`.
pub fn jmp32(out: &mut Vec<u8>) -> usize {
    out.extend_from_slice(&[0xe9, 0, 0, 0, 0]);
    out.len() - 4
}

/// `push reg64`
pub fn push(out: &mut Vec<u8>, reg: Gpr) {
    if reg.0 >= 8 {
        out.push(0x41);
    }
    out.push(0x50 | reg.0 & 7);
}

/// `jmp [gs:offset]`; returns 0.
pub fn jump_gs(out: &mut Vec<u8>, offset: u32) -> usize {
    encode(out, false, 0xff, 4, &Mem::gs(offset));
    0
}

/// `call [gs:offset]`
pub fn call_gs(out: &mut Vec<u8>, offset: u32) {
    encode(out, false, 0xff, 2, &Mem::gs(offset));
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

/// Offset of the ModRM byte of an instruction that has one, found from its bytes: prefixes, REX, VEX,
/// EVEX, XOP and opcode maps are skipped.
pub fn modrm_offset(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    while matches!(bytes.get(at)?, 0x66 | 0x67 | 0xf0 | 0xf2 | 0xf3 | 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65) {
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

/// Offset behind the memory operand whose ModRM byte is at `at`.
pub fn operand_end(bytes: &[u8], at: usize) -> Option<usize> {
    let modrm = *bytes.get(at)?;
    let sib = if modrm & 7 == 4 && modrm < 0xc0 { Some(*bytes.get(at + 1)?) } else { None };
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

    /// What a decoder of others' making reads in the bytes.
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

    fn asm(f: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        f(&mut out);
        text(&out)
    }

    const NAMES: [&str; 16] =
        ["rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"];

    #[test]
    fn every_base_and_index_register_is_encoded() {
        for base in 0..16u8 {
            for index in (0..16u8).filter(|&i| i != 4) {
                for (disp, shown) in [(0, ""), (16, "0x10"), (-128, "-0x80"), (0x12345, "0x12345")] {
                    let mem = Mem { base: Some(Gpr(base)), index: Some((Gpr(index), 4)), disp, ..Mem::default() };
                    let got = asm(|o| lea64(o, Gpr(15 - base), &mem));
                    let name = |r: u8| NAMES[r as usize];
                    assert_eq!(got, format!("lea {shown}(%{},%{},4),%{}", name(base), name(index), name(15 - base)));
                }
            }
            let got = asm(|o| store64(o, &Mem::base(Gpr(base), 0), Gpr(3)));
            assert_eq!(got, format!("mov %rbx,(%{})", NAMES[base as usize]));
            let got = asm(|o| ptwrite(o, Gpr(base)));
            assert_eq!(got, format!("ptwrite %{}", NAMES[base as usize]));
        }
    }

    #[test]
    fn frequent_operands_are_encoded_as_all_others() {
        for reg in 0..16u8 {
            for wide in [false, true] {
                let bases = (0..16u8).flat_map(|base| [0, 8, -128, 127, 128, -129].map(|disp| Mem::base(Gpr(base), disp)));
                for mem in bases.chain([Mem::gs(0), Mem::gs(0x48)]) {
                    let (mut fast, mut any) = (Vec::new(), Vec::new());
                    encode(&mut fast, wide, 0x89, reg, &mem);
                    encode_any(&mut any, 0x40 | u8::from(wide) << 3 | u8::from(reg >= 8) << 2, 0x89, reg, &mem);
                    assert_eq!(fast, any, "{mem:?}");
                }
            }
        }
    }

    #[test]
    fn probe_instructions_read_as_meant() {
        assert_eq!(asm(|o| mov(o, false, 0x8b, Gpr(0), &Mem::gs(0))), "mov %gs:0,%eax");
        assert_eq!(asm(|o| mov(o, true, 0x89, Gpr(9), &Mem::gs(8))), "mov %r9,%gs:8");
        assert_eq!(asm(|o| { store_imm32(o, &Mem::base(Gpr(12), 24), 0); }), "movl $0,0x18(%r12)");
        assert_eq!(asm(|o| lea32(o, Gpr(2), &Mem::base(Gpr(2), 32))), "lea 0x20(%rdx),%edx");
        assert_eq!(asm(|o| load64(o, Gpr(1), &Mem { fs: true, ..Mem::default() })), "mov %fs:0,%rcx");
        assert_eq!(asm(|o| lea64(o, Gpr(1), &Mem { addr32: true, ..Mem::base(Gpr(1), 1) })), "lea 1(%ecx),%rcx");
        assert_eq!(asm(ptwrite_any), "ptwrite %eax");
        assert_eq!(asm(|o| { gs_rip(o, false, 0x8b, Gpr(0)); }), "mov %gs:0x1007,%eax");
        assert_eq!(asm(|o| { gs_rip(o, true, 0x89, Gpr(9)); }), "mov %r9,%gs:0x1008");
        assert_eq!(asm(|o| kmovw(o, Gpr(10), 3)), "kmovw %k3,%r10d");
        assert_eq!(asm(|o| { lea_rip(o, Gpr(8)); }), "lea 0x1007,%r8");
        assert_eq!(asm(|o| { jump_gs(o, 72); }), "jmpq *%gs:0x48");
        assert_eq!(asm(|o| call_gs(o, 96)), "callq *%gs:0x60");
        assert_eq!(asm(|o| { push(o, Gpr(3)); push(o, Gpr(11)); }), "push %rbx; push %r11");
    }

    #[test]
    fn vector_stores_pick_the_right_encoding() {
        let mem = Mem::base(Gpr(1), 16);
        assert_eq!(asm(|o| store_vector(o, &mem, 5, 16)), "vmovdqu %xmm5,0x10(%rcx)");
        assert_eq!(asm(|o| store_vector(o, &mem, 13, 32)), "vmovdqu %ymm13,0x10(%rcx)");
        assert_eq!(asm(|o| store_vector(o, &mem, 7, 64)), "vmovdqu64 %zmm7,0x10(%rcx)");
        assert_eq!(asm(|o| store_vector(o, &Mem::base(Gpr(12), 16), 29, 16)), "vmovdqu64 %xmm29,0x10(%r12)");
        assert_eq!(asm(|o| store_vector(o, &Mem::base(Gpr(13), 0), 17, 32)), "vmovdqu64 %ymm17,(%r13)");
        assert_eq!(asm(|o| store_part(o, &mem, 5, 32, 1)), "vextracti128 $1,%ymm5,0x10(%rcx)");
        assert_eq!(asm(|o| store_part(o, &Mem::base(Gpr(12), 8), 13, 32, 1)), "vextracti128 $1,%ymm13,8(%r12)");
        assert_eq!(asm(|o| store_part(o, &Mem::base(Gpr(9), 24), 18, 32, 1)), "vextracti32x4 $1,%ymm18,0x18(%r9)");
        assert_eq!(asm(|o| store_part(o, &mem, 30, 64, 3)), "vextracti32x4 $3,%zmm30,0x10(%rcx)");
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
