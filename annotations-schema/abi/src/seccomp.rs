//! Filters of system calls (`seccomp`): the verdict of a program's filter on the runtime's own
//! calls. The runtime asks for it before the program installs a filter, the recorder before it
//! attaches.
//!
//! A filter is a program for the kernel's old packet filter machine. The kernel allows only these
//! few of the machine's instructions.

/// `struct sock_filter`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Instruction {
    /// Operation code.
    pub code: u16,
    /// Number of instructions to jump if a condition holds.
    pub then: u8,
    /// Number of instructions to jump if it does not.
    pub otherwise: u8,
    /// Operand: a constant, offset or jump distance.
    pub k: u32,
}

/// `struct seccomp_data` in words: the call's number, the architecture, the instruction's address,
/// six arguments.
pub type Data = [u32; 16];

/// AUDIT_ARCH_X86_64.
const ARCHITECTURE: u32 = 0xc000_003e;

/// A system call of this process, as filters see it.
pub fn call(number: usize, arguments: [usize; 3]) -> Data {
    let mut data = [0; 16];
    (data[0], data[1]) = (number as u32, ARCHITECTURE);
    for (i, argument) in arguments.into_iter().enumerate() {
        (data[4 + 2 * i], data[5 + 2 * i]) = (argument as u32, (argument as u64 >> 32) as u32);
    }
    data
}

const ACTION: u32 = 0xffff_0000;

/// True if a filter allows a call.
pub fn allows(filter: &[Instruction], data: &Data) -> bool {
    const ALLOW: u32 = 0x7fff_0000;
    const LOG: u32 = 0x7ffc_0000;
    decide(filter, data).is_some_and(|answer| matches!(answer & ACTION, ALLOW | LOG))
}

/// True if a filter makes a call fail, without another effect.
pub fn fails(filter: &[Instruction], data: &Data) -> bool {
    const ERRNO: u32 = 0x0005_0000;
    decide(filter, data).is_some_and(|answer| answer & ACTION == ERRNO)
}

/// A filter's result. `None` if the kernel would not accept the filter.
pub fn decide(filter: &[Instruction], data: &Data) -> Option<u32> {
    let (mut a, mut x, mut memory) = (0u32, 0u32, [0u32; 16]);
    let mut at = 0usize;
    loop {
        let Instruction {
            code,
            then,
            otherwise,
            k,
        } = *filter.get(at)?;
        at += 1;
        let operand = if code & 8 != 0 { x } else { k };
        match code {
            // Loads: from the data, its length, a constant, from memory.
            0x20 => a = *data.get(k as usize / 4).filter(|_| k % 4 == 0)?,
            0x80 => a = size_of::<Data>() as u32,
            0x81 => x = size_of::<Data>() as u32,
            0x00 => a = k,
            0x01 => x = k,
            0x60 => a = *memory.get(k as usize)?,
            0x61 => x = *memory.get(k as usize)?,
            0x02 => *memory.get_mut(k as usize)? = a,
            0x03 => *memory.get_mut(k as usize)? = x,
            // Arithmetic.
            0x04 | 0x0c => a = a.wrapping_add(operand),
            0x14 | 0x1c => a = a.wrapping_sub(operand),
            0x24 | 0x2c => a = a.wrapping_mul(operand),
            0x34 | 0x3c => a = a.checked_div(operand)?,
            0x44 | 0x4c => a |= operand,
            0x54 | 0x5c => a &= operand,
            0x64 | 0x6c => a = a.checked_shl(operand).unwrap_or(0),
            0x74 | 0x7c => a = a.checked_shr(operand).unwrap_or(0),
            0x84 => a = a.wrapping_neg(),
            0xa4 | 0xac => a ^= operand,
            0x07 => x = a,
            0x87 => a = x,
            // Jumps, all of them forward.
            0x05 => at = at.checked_add(k as usize)?,
            0x15 | 0x1d | 0x25 | 0x2d | 0x35 | 0x3d | 0x45 | 0x4d => {
                let holds = match code & 0xf0 {
                    0x10 => a == operand,
                    0x20 => a > operand,
                    0x30 => a >= operand,
                    _ => a & operand != 0,
                };
                at += usize::from(if holds { then } else { otherwise });
            }
            0x06 => return Some(k),
            0x16 => return Some(a),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOW: u32 = 0x7fff_0000;
    const KILL: u32 = 0x8000_0000;

    fn instruction(code: u16, k: u32, then: u8, otherwise: u8) -> Instruction {
        Instruction {
            code,
            then,
            otherwise,
            k,
        }
    }

    #[test]
    fn filters_are_followed() {
        // The filter allows this architecture's read, and futex with an even second argument.
        let filter = [
            instruction(0x20, 4, 0, 0),
            instruction(0x15, 0xc000_003e, 0, 6),
            instruction(0x20, 0, 0, 0),
            instruction(0x15, 0, 3, 0),
            instruction(0x15, 202, 0, 3),
            instruction(0x20, 24, 0, 0),
            instruction(0x45, 1, 1, 0),
            instruction(0x06, ALLOW, 0, 0),
            instruction(0x06, KILL, 0, 0),
        ];
        assert!(allows(&filter, &call(0, [1, 2, 3])));
        assert!(allows(&filter, &call(202, [7, 128, 0])));
        assert!(!allows(&filter, &call(202, [7, 129, 0])));
        assert!(!allows(&filter, &call(186, [0; 3])));
        let mut other = call(0, [0; 3]);
        other[1] = 0x4000_0003;
        assert!(!allows(&filter, &other));
    }

    #[test]
    fn numbers_are_computed() {
        // ((number + 3) * 2 computed with memory and x) ^ 6
        let filter = [
            instruction(0x20, 0, 0, 0),
            instruction(0x04, 3, 0, 0),
            instruction(0x02, 5, 0, 0),
            instruction(0x61, 5, 0, 0),
            instruction(0x0c, 0, 0, 0),
            instruction(0xa4, 6, 0, 0),
            instruction(0x16, 0, 0, 0),
        ];
        assert_eq!(decide(&filter, &call(4, [0; 3])), Some(14 ^ 6));
    }

    #[test]
    fn what_is_no_filter_allows_nothing() {
        for filter in [
            &[][..],
            &[instruction(0x20, 0, 0, 0)],
            &[instruction(0x05, u32::MAX, 0, 0)],
            &[instruction(0x20, 3, 0, 0)],
            &[instruction(0xff, 0, 0, 0)],
        ] {
            assert!(!allows(filter, &call(0, [0; 3])));
        }
    }
}
