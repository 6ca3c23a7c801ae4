//! Effects of an instruction on the general purpose registers.
//!
//! A 32- or 64-bit write replaces the whole register; 8- and 16-bit writes and conditional ones
//! keep (part of) the old value, so they clobber without killing. Facts come from iced, including
//! conditional accesses; registers that an operating system or an unknown callee may read are added
//! by [`crate::analyze::liveness`].

use iced_x86::{
    Instruction, InstructionInfo, InstructionInfoFactory, InstructionInfoOptions, Mnemonic,
    OpAccess, OpKind, Register,
};

/// rax.
pub const RAX: Gpr = Gpr(0);
/// rcx.
pub const RCX: Gpr = Gpr(1);
/// rdx.
pub const RDX: Gpr = Gpr(2);
/// rbx.
pub const RBX: Gpr = Gpr(3);
/// rsp.
pub const RSP: Gpr = Gpr(4);
/// rbp.
pub const RBP: Gpr = Gpr(5);
/// rsi.
pub const RSI: Gpr = Gpr(6);
/// rdi.
pub const RDI: Gpr = Gpr(7);
/// r10.
pub const R10: Gpr = Gpr(10);
/// r11.
pub const R11: Gpr = Gpr(11);

/// Every register.
pub const ALL: RegSet = RegSet(0xffff);
/// rax, rcx, rdx, rsi, rdi, r8–r11.
pub const CALLER_SAVED: RegSet = RegSet(0x0fc7);
/// rbx, r12–r15 (rsp and rbp are in neither of the two sets).
pub const CALLEE_SAVED_BUT_RBP: RegSet = RegSet(0xf008);

/// The general purpose register that contains `register`.
#[inline]
pub fn gpr(register: Register) -> Option<Gpr> {
    let number = NUMBERS[register as usize % NUMBERS.len()];
    (number != NO_NUMBER).then_some(Gpr(number))
}

/// The register, if `register` is a 64-bit general purpose register.
#[inline]
pub fn gpr64(register: Register) -> Option<Gpr> {
    register
        .is_gpr64()
        .then(|| Gpr((register as usize - Register::RAX as usize) as u8))
}

/// Numbers of general purpose registers by iced's register number. A part of a register has that
/// register's number.
static NUMBERS: [u8; 256] = {
    let mut numbers = [NO_NUMBER; 256];
    let mut n = 0;
    while n < numbers.len() {
        if let Some(r) = numbered(n) {
            numbers[n] = r.0;
        }
        n += 1;
    }
    numbers
};
/// Not a general purpose register.
const NO_NUMBER: u8 = u8::MAX;

/// The register with iced's number `register`, computed from iced's order.
const fn numbered(register: usize) -> Option<Gpr> {
    // iced's order is: al … bl, ah … bh, spl … dil, r8b …, and then sixteen of each size.
    match register {
        n if n < AL => None,
        n if n < AX => Some(Gpr(if n < AL + 4 { n - AL } else { n - AL - 4 } as u8)),
        n if n <= R15 => Some(Gpr(((n - AX) % 16) as u8)),
        _ => None,
    }
}

const AL: usize = Register::AL as usize;
const AX: usize = Register::AX as usize;
const EAX: usize = Register::EAX as usize;
const R15: usize = Register::R15 as usize;

/// By iced's register number: the set of the general purpose register that contains it. The set is
/// empty for all others.
pub static GPR_SET_OF: [u16; 256] = gpr_sets(0);
/// [`GPR_SET_OF`], but empty for all but 32- and 64-bit registers.
pub static GPR_SET_OF_WHOLE: [u16; 256] = gpr_sets(EAX);

const fn gpr_sets(from: usize) -> [u16; 256] {
    let mut sets = [0; 256];
    let mut n = from;
    while n <= R15 {
        if let Some(r) = numbered(n) {
            sets[n] = 1 << r.0;
        }
        n += 1;
    }
    sets
}

/// Registers read, wholly replaced, and changed in any way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegUse {
    /// Registers that are read, including address registers.
    pub read: RegSet,
    /// Registers that are always replaced as a whole.
    pub kill: RegSet,
    /// Registers that may change.
    pub clobber: RegSet,
}

/// iced's facts about an instruction's registers and operands, without its list of memory accesses,
/// which takes longest.
pub fn registers<'f>(
    factory: &'f mut InstructionInfoFactory,
    inst: &Instruction,
) -> &'f InstructionInfo {
    factory.info_options(inst, InstructionInfoOptions::NO_MEMORY_USAGE)
}

/// Combines iced's list of used registers.
pub fn reg_use(info: &InstructionInfo) -> RegUse {
    let mut u = RegUse::default();
    for used in info.used_registers() {
        let register = used.register();
        let Some(r) = gpr(register) else { continue };
        let (read, write, sure) = match used.access() {
            OpAccess::None | OpAccess::NoMemAccess => (false, false, false),
            OpAccess::Read | OpAccess::CondRead => (true, false, false),
            OpAccess::Write => (false, true, true),
            OpAccess::CondWrite => (false, true, false),
            OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true, false),
        };
        if read {
            u.read = u.read.with(r);
        }
        if write {
            u.clobber = u.clobber.with(r);
        }
        if sure && (register.is_gpr64() || register.is_gpr32()) {
            u.kill = u.kill.with(r);
        }
    }
    u.kill = RegSet(u.kill.0 & !u.read.0);
    u
}

impl RegUse {
    /// Treats `or r, -1` and `and r, 0` as constants, independent of the register's old value.
    #[must_use]
    pub fn without_idle_read(mut self, inst: &Instruction) -> RegUse {
        let register = inst.op0_register();
        let constant = match inst.mnemonic() {
            Mnemonic::Or => u64::MAX,
            Mnemonic::And => 0,
            _ => return self,
        };
        let mask = if register.is_gpr32() {
            u64::from(u32::MAX)
        } else {
            u64::MAX
        };
        let whole =
            inst.op0_kind() == OpKind::Register && (register.is_gpr64() || register.is_gpr32());
        let immediate = !matches!(inst.op1_kind(), OpKind::Register | OpKind::Memory);
        if whole
            && immediate
            && inst
                .try_immediate(1)
                .is_ok_and(|c| c & mask == constant & mask)
            && let Some(r) = gpr(register)
        {
            self.read = self.read.without(r);
            self.kill = self.kill.with(r);
        }
        self
    }
}

/// A general purpose register by hardware number: rax 0, rcx 1, rdx 2, rbx 3, rsp 4, rbp 5, rsi 6,
/// rdi 7, r8…r15.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gpr(pub u8);

/// A set of general purpose registers, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RegSet(pub u16);

impl RegSet {
    /// No register.
    pub const EMPTY: RegSet = RegSet(0);
    /// True if `r` is in the set.
    pub fn contains(self, r: Gpr) -> bool {
        self.0 >> r.0 & 1 == 1
    }
    /// The set with `r`.
    #[must_use]
    pub fn with(self, r: Gpr) -> RegSet {
        RegSet(self.0 | 1 << r.0)
    }
    /// The set without `r`.
    #[must_use]
    pub fn without(self, r: Gpr) -> RegSet {
        RegSet(self.0 & !(1 << r.0))
    }
    /// Members, lowest number first.
    pub fn iter(self) -> impl Iterator<Item = Gpr> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let lowest = (left != 0).then(|| Gpr(left.trailing_zeros() as u8));
            left &= left.wrapping_sub(1);
            lowest
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

    fn uses(bytes: &[u8]) -> RegUse {
        let inst = Decoder::with_ip(64, bytes, 0x1000, DecoderOptions::NONE).decode();
        assert!(!inst.is_invalid());
        reg_use(InstructionInfoFactory::new().info(&inst))
    }

    #[test]
    fn registers_have_the_numbers_that_iced_gives_them() {
        for register in Register::values() {
            assert_eq!(
                gpr(register),
                register
                    .is_gpr()
                    .then(|| Gpr(register.full_register().number() as u8)),
                "{register:?}"
            );
            assert_eq!(
                gpr64(register),
                register.is_gpr64().then(|| Gpr(register.number() as u8)),
                "{register:?}"
            );
            let set = gpr(register).map_or(0, |r| 1 << r.0);
            let whole = if register.is_gpr32() || register.is_gpr64() {
                set
            } else {
                0
            };
            assert_eq!(
                (
                    GPR_SET_OF[register as usize],
                    GPR_SET_OF_WHOLE[register as usize],
                ),
                (set, whole),
                "{register:?}"
            );
        }
    }

    #[test]
    fn a_32_bit_write_replaces_the_whole_register() {
        let u = uses(&[0x89, 0xd8]); // mov eax, ebx
        assert_eq!(
            (u.read, u.kill, u.clobber),
            (RegSet(1 << 3), RegSet(1), RegSet(1))
        );
    }

    #[test]
    fn an_8_bit_write_keeps_the_rest() {
        let u = uses(&[0xb0, 0x05]); // mov al, 5
        assert_eq!((u.kill, u.clobber), (RegSet(0), RegSet(1)));
    }

    #[test]
    fn a_conditional_move_keeps_the_old_value() {
        let u = uses(&[0x48, 0x0f, 0x44, 0xc3]); // cmove rax, rbx
        assert_eq!(u.kill, RegSet(0));
        assert!(u.clobber.contains(RAX));
        assert!(u.read.contains(RBX));
    }

    #[test]
    fn a_repeated_string_instruction_may_do_nothing() {
        let u = uses(&[0xf3, 0xa4]); // rep movsb
        assert_eq!(u.kill, RegSet(0));
        assert_eq!(u.read.0 & 0xc2, 0xc2);
    }

    #[test]
    fn a_constant_by_or_and_does_not_read() {
        let plain = |bytes: &[u8]| {
            let inst = Decoder::with_ip(64, bytes, 0x1000, DecoderOptions::NONE).decode();
            let u = uses(bytes).without_idle_read(&inst);
            (u.read.0, u.kill.0)
        };
        assert_eq!(plain(&[0x48, 0x83, 0xc8, 0xff]), (0, 1), "or rax, -1");
        assert_eq!(plain(&[0x83, 0xc9, 0xff]), (0, 2), "or ecx, -1");
        assert_eq!(plain(&[0x83, 0xe2, 0x00]), (0, 4), "and edx, 0");
        assert_eq!(plain(&[0x48, 0x83, 0xc8, 0x7f]), (1, 0), "or rax, 127");
        assert_eq!(plain(&[0x0c, 0xff]), (1, 0), "or al, -1");
        assert_eq!(plain(&[0x83, 0xe2, 0xff]), (4, 0), "and edx, -1");
        assert_eq!(plain(&[0x48, 0x09, 0xc0]), (1, 0), "or rax, rax");
    }

    #[test]
    fn zero_extension_of_a_byte_kills_the_target() {
        let u = uses(&[0x0f, 0xb6, 0xc8]); // movzx ecx, al
        assert_eq!((u.read, u.kill), (RegSet(1), RegSet(2)));
    }
}
