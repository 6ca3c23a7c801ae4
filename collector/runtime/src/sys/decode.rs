//! Decoding of machine code: stores of probes, system calls, and padding.

/// A probe's store: the register that holds the slot base, and the slot; see [`decode_store`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store {
    /// Hardware register number.
    pub base: u8,
    /// Slot number inside the region.
    pub slot: u8,
}

/// Length of the instruction at the start of `code`, if it is a call through a register or memory.
pub fn pointer_call(code: &[u8]) -> Option<usize> {
    let prefixes = code
        .iter()
        .take_while(|b| matches!(b, 0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf2 | 0xf3))
        .count();
    let rex = usize::from(code.get(prefixes)? & 0xf0 == 0x40);
    let [0xff, modrm, rest @ ..] = &code[prefixes + rex..] else {
        return None;
    };
    if modrm >> 3 & 7 != 2 {
        return None;
    }
    let (mode, rm) = (modrm >> 6, modrm & 7);
    let index = usize::from(mode != 3 && rm == 4);
    let absolute = mode == 0 && (rm == 5 || rm == 4 && rest.first()? & 7 == 5);
    let distance = match mode {
        1 => 1,
        2 => 4,
        _ if absolute => 4,
        _ => 0,
    };
    Some(prefixes + rex + 2 + index + distance)
}

/// Decodes the store instructions of probes: `mov [r+disp], reg`, `mov dword [r+disp], imm32`, and
/// vector stores with VEX and EVEX prefixes. The slot follows from the displacement.
pub fn decode_store(code: &[u8; 16]) -> Option<Store> {
    let mut at = 0;
    let mut extend_base = 0u8;
    let mut disp8_scale = 1i32;
    match code[0] {
        0x62 => {
            // EVEX: inverted B is bit 5 of the second byte; the displacement is scaled by the
            // vector length.
            extend_base = (!code[1] >> 5 & 1) << 3;
            disp8_scale = 16 << (code[3] >> 5 & 3);
            at += 4;
        }
        0xc5 => at += 2,
        0xc4 => {
            extend_base = (!code[1] >> 5 & 1) << 3;
            at += 3;
        }
        first => {
            if first == 0x66 || first == 0xf3 {
                at += 1;
            }
            if code[at] & 0xf0 == 0x40 {
                extend_base = (code[at] & 1) << 3;
                at += 1;
            }
            if code[at] == 0x0f {
                at += 1;
            }
        }
    }
    at += 1; // the opcode
    let modrm = *code.get(at)?;
    let (mode, rm) = (modrm >> 6, modrm & 7);
    if mode == 3 || (mode == 0 && rm == 5) {
        return None;
    }
    at += 1;
    let mut base = rm;
    if rm == 4 {
        let sib = *code.get(at)?;
        if sib >> 3 & 7 != 4 {
            return None;
        }
        base = sib & 7;
        at += 1;
    }
    let disp = match mode {
        0 => 0,
        1 => i32::from(*code.get(at)? as i8) * disp8_scale,
        _ => i32::from_le_bytes([
            *code.get(at)?,
            *code.get(at + 1)?,
            *code.get(at + 2)?,
            *code.get(at + 3)?,
        ]),
    };
    let slot = u8::try_from(disp / 16).ok()?;
    Some(Store {
        base: base | extend_base,
        slot,
    })
}

/// The number that a probe's `mov dword [r+disp], imm32` stores.
pub fn stored_id(code: &[u8]) -> Option<u32> {
    let opcode = code.iter().find(|&&byte| byte & 0xf0 != 0x40)?;
    let value = code.last_chunk::<4>().filter(|_| *opcode == 0xc7)?;
    Some(u32::from_le_bytes(*value))
}

/// A system call whose number is set right before, see [`numbered_call`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberedCall {
    /// Bytes that a jump may overwrite: whole instructions, at least five bytes.
    pub room: usize,
    /// Bytes before the system call.
    pub before: usize,
}

/// Longest distance from the instruction that sets the number to the system call, bytes.
const MAX_BYTES_BEFORE_CALL: usize = 48;

/// Decodes code that sets the number of a system call, one of `numbers`, and makes it without a
/// branch, by instructions that can be moved: C libraries and inline assembly. The jump replaces a
/// single instruction if possible, so that no branch can lead to its middle.
pub fn numbered_call(code: &[u8], numbers: &[u32]) -> Option<NumberedCall> {
    let number = |at: usize| {
        let bytes = code.get(at..at + 4)?;
        Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    };
    let set = match *code {
        // mov eax, imm32; mov rax, imm32; xor eax, eax and mov al, imm8 (musl)
        [0xb8, ..] if numbers.contains(&number(1)?) => 5,
        [0x48, 0xc7, 0xc0, ..] if numbers.contains(&number(3)?) => 7,
        [0x31, 0xc0, 0xb0, n, ..] if numbers.contains(&n.into()) => 4,
        _ => return None,
    };
    let (mut at, mut room) = (set, set);
    loop {
        let rest = code.get(at..)?;
        if rest.starts_with(&[0x0f, 0x05]) {
            return (room >= 5).then_some(NumberedCall { room, before: at });
        }
        at += movable(rest)?;
        if room < 5 {
            room = at;
        }
        if at > MAX_BYTES_BEFORE_CALL {
            return None;
        }
    }
}

/// Length of an instruction of few common kinds that can be moved and does not branch.
fn movable(code: &[u8]) -> Option<usize> {
    let wide = usize::from(*code.first()? == 0x66);
    let rex = usize::from(code.get(wide)? & 0xf0 == 0x40);
    let at = wide + rex;
    let big = rex == 1 && code[wide] & 8 != 0;
    let immediate = if wide == 1 { 2 } else { 4 };
    let (opcode, rest) = code.get(at..)?.split_first()?;
    let length = match opcode {
        // Arithmetic and moves between registers and memory; lea; movsxd
        0x01
        | 0x03
        | 0x09
        | 0x0b
        | 0x21
        | 0x23
        | 0x29
        | 0x2b
        | 0x31
        | 0x33
        | 0x39
        | 0x3b
        | 0x63
        | 0x85
        | 0x88..=0x8b
        | 0x8d => operand(rest)?,
        0x83 | 0xc6 => operand(rest)? + 1,
        0x81 | 0xc7 => operand(rest)? + immediate,
        0x50..=0x5f | 0x90 => 0,
        0xb0..=0xb7 | 0x6a => 1,
        0xb8..=0xbf if big => 8,
        0xb8..=0xbf => immediate,
        // movzx, movsx, no-operations
        0x0f if matches!(rest.first()?, 0xb6 | 0xb7 | 0xbe | 0xbf | 0x1f) => {
            1 + operand(&rest[1..])?
        }
        _ => return None,
    };
    (at + 1 + length <= code.len()).then_some(at + 1 + length)
}

/// Length of a ModRM byte and the bytes that belong to it, unless it is relative to the
/// instruction's address.
fn operand(code: &[u8]) -> Option<usize> {
    let modrm = *code.first()?;
    let (mode, rm) = (modrm >> 6, modrm & 7);
    let index = usize::from(mode != 3 && rm == 4);
    let distance = match mode {
        0 if rm == 5 => return None,
        0 if rm == 4 && code.get(1)? & 7 == 5 => 4,
        1 => 1,
        2 => 4,
        _ => 0,
    };
    Some(1 + index + distance)
}

/// True if bytes behind a `ret` are the no-operations that assemblers align functions with.
pub fn is_padding(mut bytes: &[u8]) -> bool {
    while let Some((&first, rest)) = bytes.split_first() {
        match first {
            0x66 | 0x2e | 0x90 | 0xcc => bytes = rest,
            0x0f => {
                // nop r/m: 0f 1f modrm [sib] [disp]; a cut one at the end counts as well.
                let Some((&0x1f, tail)) = rest.split_first() else {
                    return false;
                };
                let modrm = tail.first().copied().unwrap_or(0);
                let sib = usize::from(modrm & 7 == 4);
                let disp = [0, 1, 4, 0][modrm as usize >> 6];
                bytes = tail.get(1 + sib + disp..).unwrap_or(&[]);
            }
            _ => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(bytes: &[u8]) -> Option<Store> {
        let mut code = [0; 16];
        code[..bytes.len()].copy_from_slice(bytes);
        decode_store(&code)
    }

    #[test]
    fn calls_through_pointers_have_their_lengths() {
        // call rbx; call r11; call [rax]; call [rip+d32]; call [rbp+d8]; call [rax*8+d32]; call
        // [r12]; notrack call rdx; call fs:[rax+d32]
        for code in [
            "ff d3",
            "41 ff d3",
            "ff 10",
            "ff 15 1 2 3 4",
            "ff 55 8",
            "ff 14 c5 1 2 3 4",
            "41 ff 14 24",
            "3e ff d2",
            "64 ff 90 1 2 3 4",
        ] {
            let bytes: Vec<u8> = code
                .split(' ')
                .map(|b| u8::from_str_radix(b, 16).unwrap())
                .collect();
            let followed = [&bytes[..], &[0x90; 8]].concat();
            assert_eq!(pointer_call(&followed), Some(bytes.len()), "{code}");
        }
        // jmp rbx; call rel32; push [rax]; inc eax
        for other in [
            &[0xff, 0xe3, 0x90][..],
            &[0xe8, 0, 0, 0, 0],
            &[0xff, 0x30, 0x90],
            &[0xff, 0xc0, 0x90],
            &[0x41, 0xff],
            &[],
        ] {
            assert_eq!(pointer_call(other), None);
        }
    }

    #[test]
    fn probe_stores_are_understood() {
        // mov [rcx], rax; mov [r9+0x20], rax; mov dword [rdx+0x18], imm; mov dword [r12+0x108], imm
        assert_eq!(store(&[0x48, 0x89, 0x01]), Some(Store { base: 1, slot: 0 }));
        assert_eq!(
            store(&[0x49, 0x89, 0x41, 0x20]),
            Some(Store { base: 9, slot: 2 })
        );
        assert_eq!(
            store(&[0xc7, 0x42, 0x18, 1, 2, 3, 4]),
            Some(Store { base: 2, slot: 1 })
        );
        assert_eq!(
            store(&[0x41, 0xc7, 0x84, 0x24, 8, 1, 0, 0, 1, 2, 3, 4]),
            Some(Store { base: 12, slot: 16 })
        );
        // vmovdqu [rax+0x10], ymm1; vmovdqu64 [rax+0x40], zmm1 (disp8 = 1)
        assert_eq!(
            store(&[0xc5, 0xfe, 0x7f, 0x48, 0x10]),
            Some(Store { base: 0, slot: 1 })
        );
        assert_eq!(
            store(&[0x62, 0xf1, 0xfe, 0x48, 0x7f, 0x48, 0x01]),
            Some(Store { base: 0, slot: 4 })
        );
        assert_eq!(
            store(&[0xf3, 0x41, 0x0f, 0x7f, 0x40, 0x10]),
            Some(Store { base: 8, slot: 1 })
        );
        assert_eq!(store(&[0x48, 0x89, 0x05, 0, 0, 0, 0]), None);
    }

    #[test]
    fn ids_are_read_from_their_stores() {
        assert_eq!(
            stored_id(&[0x41, 0xc7, 0x43, 0x0c, 1, 2, 3, 0x84]),
            Some(0x8403_0201)
        );
        assert_eq!(stored_id(&[0xc7, 0x40, 0x1c, 1, 0, 0, 0]), Some(1));
        assert_eq!(stored_id(&[0x49, 0x89, 0x53, 0x06]), None);
        assert_eq!(stored_id(&[0x65, 0xc7, 0x04, 0x25]), None);
    }

    #[test]
    fn system_calls_are_found_by_their_numbers() {
        let found = |code: &str| {
            let bytes: Vec<u8> = code
                .split(' ')
                .map(|b| u8::from_str_radix(b, 16).unwrap())
                .collect();
            numbered_call(&bytes, &[56, 435]).map(|c| (c.room, c.before))
        };
        // glibc's clone and clone3.
        assert_eq!(found("b8 38 00 00 00 0f 05 48 85 c0"), Some((5, 5)));
        assert_eq!(found("b8 b3 01 00 00 0f 05"), Some((5, 5)));
        assert_eq!(found("48 c7 c0 38 00 00 00 0f 05"), Some((7, 7)));
        // musl's: xor eax,eax; mov al,56; mov r11,rdi; mov rdi,rdx; and rsi,-16; sub rsi,8; mov
        // [rsi],rcx; mov r10,[rsp+8]
        assert_eq!(
            found(
                "31 c0 b0 38 49 89 fb 48 89 d7 48 83 e6 f0 48 83 ee 08 48 89 0e 4c 8b 54 24 08 0f 05"
            ),
            Some((7, 26))
        );
        // Inline assembly: mov eax,56; mov edi,imm; xor edx,edx; xor r10d,r10d; movabs r8,imm64;
        // lea rsi,[rbp-8]
        assert_eq!(
            found(
                "b8 38 00 00 00 bf 11 00 20 01 31 d2 45 31 d2 49 b8 1 2 3 4 5 6 7 8 48 8d 75 f8 0f 05"
            ),
            Some((5, 29))
        );
        for other in [
            "b8 39 00 00 00 0f 05",                      // another number
            "b8 38 00 00 00 c3 0f 05",                   // a return
            "b8 38 00 00 00 74 02 0f 05",                // a branch
            "b8 38 00 00 00 e8 00 00 00 00 0f 05",       // a call
            "b8 38 00 00 00 48 8b 35 10 00 00 00 0f 05", // relative to rip
            "b8 38 00 00 00 48 8d 35 10 00 00 00 0f 05", // the same
            "b8 38 00 00 00",
            "31 c0 b0 38 0f 05", // no room
        ] {
            assert_eq!(found(other), None, "{other}");
        }
    }

    #[test]
    fn only_padding_is_taken_for_padding() {
        assert!(is_padding(&[
            0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0x0f, 0x1f
        ]));
        assert!(is_padding(&[0xcc; 13]));
        assert!(!is_padding(&[0x48, 0x89, 0xe5]));
        assert!(!is_padding(&[0x90, 0x55]));
    }
}
