//! Emulates the last step of a jump through a table before a thread is moved into the clone.
//!
//! Between the read of a jump table and the jump, a register holds the entry of the *original*
//! table. The clone has tables of its own, so entering it there would lead straight back to the
//! original code. So the few instructions up to the jump are emulated here on the interrupted
//! registers, and the clone is entered at the jump's target.

use crate::sys::signal_frame::{Context, RIP};

/// Source: Chosen.
const MAX_INSTRUCTIONS: usize = 16;

/// Effect of an instruction.
enum Act {
    /// No visible effect.
    Nothing,
    /// 64-bit `add`: to, from.
    Add(u8, u8),
    /// Jump to the address in a register.
    Jump(u8),
}

/// Decodes the supported instructions. Returns the effect and the length.
fn decode(code: &[u8]) -> Option<(Act, usize)> {
    let pair = |modrm: u8, reg_ext: u8, rm_ext: u8| {
        (modrm >> 6 == 3).then_some((modrm >> 3 & 7 | reg_ext, modrm & 7 | rm_ext))
    };
    match *code {
        [0xf3, 0x0f, 0x1e, 0xfa, ..] => Some((Act::Nothing, 4)),
        [0xf3, 0x90, ..] => Some((Act::Nothing, 2)),
        [0x90, ..] => Some((Act::Nothing, 1)),
        [rex @ 0x48..=0x4f, op @ (0x01 | 0x03), modrm, ..] if rex & 2 == 0 => {
            let (reg, rm) = pair(modrm, (rex & 4) << 1, (rex & 1) << 3)?;
            let (to, from) = if op == 1 { (rm, reg) } else { (reg, rm) };
            Some((Act::Add(to, from), 3))
        }
        // `notrack` precedes the jumps of programs that are built for shadow stacks.
        [0x3e, ref rest @ ..] => match decode(rest)? {
            (Act::Jump(register), length) => Some((Act::Jump(register), length + 1)),
            _ => None,
        },
        [0x41, 0xff, modrm, ..] if modrm & 0xf8 == 0xe0 => Some((Act::Jump(modrm & 7 | 8), 3)),
        [0xff, modrm, ..] if modrm & 0xf8 == 0xe0 => Some((Act::Jump(modrm & 7), 2)),
        _ => None,
    }
}

/// The flags that `a + b` sets: CF, PF, AF, ZF, SF, OF at their bit positions.
fn flags(a: u64, b: u64) -> u64 {
    let (sum, carry) = a.overflowing_add(b);
    let bit = |set: bool, at: u32| u64::from(set) << at;
    bit(carry, 0)
        | bit((sum as u8).count_ones().is_multiple_of(2), 2)
        | bit((a ^ b ^ sum) & 0x10 != 0, 4)
        | bit(sum == 0, 6)
        | bit(sum >> 63 != 0, 7)
        | bit((a ^ sum) & (b ^ sum) & 1 << 63 != 0, 11)
}

/// If the interrupted instruction and those that follow lead straight to a jump through a register:
/// emulates them. `code` begins at the interrupted instruction.
pub fn carry_out(context: &mut Context, code: &[u8]) {
    const SET_BY_ADD: u64 = 0x8d5;
    let (mut jump, mut at) = (None, 0);
    for _ in 0..MAX_INSTRUCTIONS {
        match code.get(at..).and_then(decode) {
            Some((Act::Jump(register), _)) => {
                jump = Some(register);
                break;
            }
            Some((_, length)) => at += length,
            None => return,
        }
    }
    let Some(register) = jump else { return };
    at = 0;
    while let Some((act, length)) = code.get(at..).and_then(decode) {
        at += length;
        match act {
            Act::Nothing => {}
            Act::Add(to, from) => {
                let (a, b) = (*context.register(to), *context.register(from));
                *context.register(to) = a.wrapping_add(b);
                let word = &mut context.registers[RIP + 1];
                *word = *word & !SET_BY_ADD | flags(a, b);
            }
            Act::Jump(_) => break,
        }
    }
    context.registers[RIP] = *context.register(register);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(registers: &[(u8, u64)]) -> Context {
        // SAFETY: plain old data, for which zero is valid.
        let mut context: Context = unsafe { core::mem::zeroed() };
        for &(register, value) in registers {
            *context.register(register) = value;
        }
        context.registers[RIP] = 0x1000;
        context
    }

    #[test]
    fn additions_up_to_a_jump_are_carried_out() {
        // add rdx, r8; notrack jmp rdx
        let mut c = context(&[(2, (-0x40i64) as u64), (8, 0x2000)]);
        carry_out(&mut c, &[0x4c, 0x01, 0xc2, 0x3e, 0xff, 0xe2]);
        assert_eq!((c.registers[RIP], *c.register(2)), (0x1fc0, 0x1fc0));
        // pause; add r11, [the other way round] r8; jmp r11
        let mut c = context(&[(11, 5), (8, 0x2000)]);
        carry_out(&mut c, &[0xf3, 0x90, 0x4d, 0x03, 0xd8, 0x41, 0xff, 0xe3]);
        assert_eq!(
            (c.registers[RIP], *c.register(11), *c.register(8)),
            (0x2005, 0x2005, 0x2000)
        );
    }

    #[test]
    fn nothing_is_touched_if_no_jump_follows() {
        for code in [
            &[0x4c, 0x01, 0xc2, 0xc3][..],
            &[0x4c, 0x01, 0xc2],
            &[],
            &[0xff, 0x22],
            &[0x4c, 0x01, 0x02, 0xff, 0xe2],
            &[0x01, 0xc2, 0xff, 0xe2],
        ] {
            let mut c = context(&[(2, 7), (8, 9)]);
            carry_out(&mut c, code);
            assert_eq!(
                (c.registers[RIP], *c.register(2), c.registers[RIP + 1]),
                (0x1000, 7, 0),
                "{code:x?}"
            );
        }
    }

    #[test]
    fn flags_are_those_of_the_processor() {
        let mut numbers = vec![
            0u64,
            1,
            15,
            16,
            0x7f,
            0x80,
            u64::MAX,
            1 << 63,
            (1 << 63) - 1,
        ];
        let mut state = 1u64;
        for _ in 0..200 {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            numbers.push(state);
        }
        for &a in &numbers {
            for &b in &numbers {
                let real: u64;
                // SAFETY: registers, flags and a balanced stack.
                unsafe {
                    core::arch::asm!("add {0}, {1}", "pushfq", "pop {2}", inout(reg) a => _, in(reg) b, lateout(reg) real)
                };
                assert_eq!(flags(a, b), real & 0x8d5, "{a:x} + {b:x}");
            }
        }
    }
}
