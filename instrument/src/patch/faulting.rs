//! Instructions that can fail, in files whose handlers may look at failures.

use crate::program::fixed_memory::Own;
use crate::x86::flow::{JUMP, ends_flow};
use iced_x86::{ConditionCode, Instruction, Mnemonic, OpKind};
use mgz_abi::module_note::Cover;

/// True if an instruction can fail. The end of the stack (pushes, calls) and a jump to unmapped
/// memory do not count.
pub fn may_fail(inst: &Instruction, own: &Own) -> bool {
    use Mnemonic::*;
    let harmless = |o: u32| match inst.op_kind(o) {
        OpKind::Register => inst.op_register(o).is_gpr(),
        OpKind::Memory => own.has(inst),
        kind => is_branch(kind) || inst.try_immediate(o).is_ok(),
    };
    match inst.mnemonic() {
        Lea | Nop | Endbr64 => return false,
        // Vectors are moved or cleared, whatever their content.
        Pxor | Xorps | Xorpd | Vpxor | Vxorps | Vxorpd | Movaps | Movapd | Movdqa | Movdqu
        | Movups | Movupd | Movd | Movq
            if (0..inst.op_count()).all(|o| inst.op_kind(o) == OpKind::Register) =>
        {
            return false;
        }
        _ => {}
    }
    if !(0..inst.op_count()).all(harmless) {
        return true;
    }
    match inst.mnemonic() {
        Push | Pop | Leave | Call | Ret => false,
        Mov | Movzx | Movsx | Movsxd | Add | Sub | Adc | Sbb | And | Or | Xor | Not | Neg | Inc
        | Dec | Cmp | Test | Shl | Shr | Sar | Rol | Ror | Shld | Shrd | Mul | Imul | Bt | Bts
        | Btr | Btc | Bsf | Bsr | Bswap | Xchg | Cdq | Cqo | Cdqe | Cwde | Cwd | Cbw | Jmp
        | Clc | Stc | Cmc | Cld | Std => false,
        // Conditional jumps, moves and byte stores.
        _ => inst.condition_code() == ConditionCode::None,
    }
}

fn is_branch(kind: OpKind) -> bool {
    matches!(
        kind,
        OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64
    )
}

/// True if an entry jump at `at`, the start of `insns`, would cover an instruction that can fail. A
/// handler may read that instruction's bytes, and execution after it may continue inside of the
/// jump.
pub fn covers_risk(insns: impl IntoIterator<Item = Instruction>, at: u64, own: &Own) -> bool {
    let mut ended = false;
    // (After the end of control flow there is filler.)
    insns
        .into_iter()
        .take_while(|inst| inst.ip() < at + JUMP && !std::mem::replace(&mut ended, ends_flow(inst)))
        .any(|inst| may_fail(&inst, own))
}

/// Rules for entry jumps in a file whose handlers may look at faults.
#[derive(Clone, Copy, Debug)]
pub struct Care<'a> {
    /// Memory in which no access fails.
    pub own: &'a Own,
    /// True if the runtime takes a jump back before a handler sees the code under it. This holds in
    /// the soft flavour if no other code changes the code or its protection ([`Own::stays`]; so
    /// never in static executables).
    pub taken_back: bool,
}

impl Care<'_> {
    /// True if a jump at `at` may cover any instruction.
    pub fn takes_back(&self, at: u64) -> bool {
        self.taken_back && Cover::fits(at)
    }

    /// True if there may be a jump at `at`, the start of `insns`.
    pub fn allows(&self, insns: impl IntoIterator<Item = Instruction>, at: u64) -> bool {
        self.takes_back(at) || !covers_risk(insns, at, self.own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    fn decode(bytes: &[u8]) -> Instruction {
        Decoder::with_ip(64, bytes, 0x1000, DecoderOptions::NONE).decode()
    }

    fn covers(bytes: &[u8]) -> bool {
        covers_risk(
            Decoder::with_ip(64, bytes, 0x1000, DecoderOptions::NONE).iter(),
            0x1000,
            &Own::default(),
        )
    }

    #[test]
    fn what_may_fail_is_known() {
        let any: [&[u8]; 10] = [
            &[0x8b, 0x07],             // mov eax, [rdi]
            &[0x48, 0xa5],             // movsq
            &[0xf7, 0xf9],             // idiv ecx
            &[0x0f, 0x0b],             // ud2
            &[0xcc],                   // int3
            &[0xff, 0x30],             // push [rax]
            &[0xff, 0x25, 0, 0, 0, 0], // jmp [rip]
            &[0xf2, 0x0f, 0x58, 0xc1], // addsd xmm0, xmm1
            &[0xd8, 0xc1],             // fadd st, st(1)
            &[0x0f, 0x31],             // rdtsc
        ];
        let none: [&[u8]; 11] = [
            // The end of the stack, and jumps to unmapped memory.
            &[0x53],
            &[0xc3],
            &[0xe8, 0, 0, 0, 0],
            &[0xff, 0xd0],
            &[0x48, 0x8d, 0x07],       // lea rax, [rdi]
            &[0x0f, 0x1f, 0x44, 0, 0], // nop [rax + rax]
            &[0x83, 0xc0, 5],          // add eax, 5
            &[0x0f, 0x94, 0xc0],       // sete al
            &[0x74, 2],                // je
            &[0x66, 0x0f, 0xef, 0xc0], // pxor xmm0, xmm0
            &[0xf3, 0x0f, 0x1e, 0xfa], // endbr64
        ];
        assert!(
            any.iter().all(|b| may_fail(&decode(b), &Own::default())),
            "{:?}",
            any.iter()
                .map(|b| may_fail(&decode(b), &Own::default()))
                .collect::<Vec<_>>()
        );
        assert!(
            !none.iter().any(|b| may_fail(&decode(b), &Own::default())),
            "{:?}",
            none.iter()
                .map(|b| may_fail(&decode(b), &Own::default()))
                .collect::<Vec<_>>()
        );
    }

    #[test]
    fn the_files_own_memory_is_there() {
        let own = Own {
            readable: vec![0x1000..0x2000, 0x3000..0x3010],
            writable: vec![0x3008..0x3010],
        };
        let fails = |bytes: &[u8]| may_fail(&decode(bytes), &own);
        // mov eax, [rip + distance]
        assert!(!fails(&[0x8b, 0x05, 0, 0, 0, 0]));
        assert!(!fails(&[0x8b, 0x05, 6, 0x20, 0, 0]), "the last four bytes");
        assert!(fails(&[0x8b, 0x05, 7, 0x20, 0, 0]), "one is not there");
        assert!(fails(&[0x64, 0x8b, 0x04, 0x25, 0, 0x10, 0, 0]), "by fs");
        // mov [rip + distance], eax
        assert!(
            !fails(&[0x89, 0x05, 2, 0x20, 0, 0]) && fails(&[0x89, 0x05, 0xfa, 0x1f, 0, 0]),
            "only the end can be written"
        );
        // cmp [rip + distance], eax; add the same
        assert!(!fails(&[0x39, 0x05, 0xfa, 0x1f, 0, 0]) && fails(&[0x01, 0x05, 0xfa, 0x1f, 0, 0]));
        // idiv dword [rip]
        assert!(fails(&[0xf7, 0x3d, 0, 0, 0, 0]));
    }

    #[test]
    fn entry_jumps_may_not_cover_what_may_fail() {
        let load = [0x8b, 0x07]; // mov eax, [rdi]
        let long = [0x8b, 0x87, 1, 2, 3, 4]; // mov eax, [rdi + distance]
        let add = [0x83, 0xc0, 5];
        let pushes = [0x55, 0x41, 0x57, 0x41, 0x56];
        assert!(
            covers(&[&load[..], &add, &add].concat()),
            "who goes on behind it would do so inside of the jump"
        );
        assert!(covers(&[&add[..], &load, &add].concat()));
        assert!(covers(&long), "a handler may look at its bytes");
        assert!(covers(&[&add[..], &long].concat()));
        assert!(!covers(&[&add[..], &add, &load].concat()));
        assert!(!covers(&pushes));
    }

    #[test]
    fn what_can_be_taken_back_lies_in_one_word() {
        let own = Own::default();
        let allowed = |taken_back, at: u64, bytes: &[u8]| {
            Care {
                own: &own,
                taken_back,
            }
            .allows(
                Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).iter(),
                at,
            )
        };
        let (load, add) = (
            [0x48, 0x8b, 0x07, 0x48, 0x8b, 0x0f],
            [0x83, 0xc0, 5, 0x83, 0xc0, 5],
        );
        assert_eq!(
            (0x1000..0x1010)
                .filter(|&at| allowed(true, at, &load))
                .collect::<Vec<_>>(),
            [
                0x1000, 0x1001, 0x1002, 0x1003, 0x1008, 0x1009, 0x100a, 0x100b
            ]
        );
        assert!((0x1000..0x1010).all(|at| allowed(true, at, &add)
            && allowed(false, at, &add)
            && !allowed(false, at, &load)));
    }
}
