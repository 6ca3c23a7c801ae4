//! Finds points at which the status flags are dead, so that a probe may change them.
//!
//! At the function's borders the analysis is conservative, as in [`crate::analyze::liveness`]:
//! returns, calls and exits to unknown code keep all flags live. Only a call or jump through a
//! linkage table kills them, since the loader may bind it on the way.

use crate::analyze::liveness::through_linkage;
use crate::ir::cfg::Cfg;
use crate::ir::live_registers::{Effect, backward};
use crate::program::Input;
use crate::x86::insn::Insn;
use iced_x86::{FlowControl, Instruction, Mnemonic, RflagsBits};

/// The status flags, each a bit.
const STATUS: u32 = RflagsBits::OF
    | RflagsBits::SF
    | RflagsBits::ZF
    | RflagsBits::AF
    | RflagsBits::CF
    | RflagsBits::PF;

/// True if an instruction always sets all flags that it changes, for any operands. (Shifts by zero
/// and repeated instructions with count zero leave the flags unchanged.)
fn always_changes(inst: &Instruction) -> bool {
    matches!(
        inst.mnemonic(),
        Mnemonic::Add
            | Mnemonic::Adc
            | Mnemonic::Sub
            | Mnemonic::Sbb
            | Mnemonic::Cmp
            | Mnemonic::Test
            | Mnemonic::And
            | Mnemonic::Or
            | Mnemonic::Xor
            | Mnemonic::Neg
            | Mnemonic::Inc
            | Mnemonic::Dec
            | Mnemonic::Imul
            | Mnemonic::Mul
            | Mnemonic::Xadd
            | Mnemonic::Cmpxchg
            | Mnemonic::Popcnt
            | Mnemonic::Ucomiss
            | Mnemonic::Ucomisd
            | Mnemonic::Comiss
            | Mnemonic::Comisd
            | Mnemonic::Vucomiss
            | Mnemonic::Vucomisd
            | Mnemonic::Vcomiss
            | Mnemonic::Vcomisd
            | Mnemonic::Ptest
            | Mnemonic::Vptest
    )
}

fn effect(input: &Input, insn: &Insn) -> Effect {
    let inst = &insn.inst;
    let of = |bits: u32| (bits & STATUS) as u16;
    match insn.flow {
        FlowControl::Next if inst.mnemonic() != Mnemonic::Hlt => Effect {
            read: of(inst.rflags_read()),
            kill: if always_changes(inst) {
                of(inst.rflags_modified())
            } else {
                0
            },
        },
        FlowControl::ConditionalBranch
        | FlowControl::UnconditionalBranch
        | FlowControl::IndirectBranch
        | FlowControl::Return => Effect {
            read: of(inst.rflags_read()),
            kill: 0,
        },
        FlowControl::Call | FlowControl::IndirectCall if through_linkage(input, insn) => Effect {
            read: 0,
            kill: of(STATUS),
        },
        _ => Effect {
            read: of(STATUS),
            kill: 0,
        },
    }
}

/// Per instruction: whether all flags are dead before it.
pub fn find_dead_flags(input: &Input, graph: &Cfg) -> Vec<bool> {
    let effects: Vec<Effect> = graph.insns.iter().map(|insn| effect(input, insn)).collect();
    let insns = |b: usize| {
        let block = &graph.blocks[b];
        block.insns.start as usize..block.insns.end as usize
    };
    let blocks: Vec<Effect> = (0..graph.blocks.len())
        .map(|b| {
            let all = effects[insns(b)].iter();
            all.fold(Effect::default(), |sum, effect| sum.then(*effect))
        })
        .collect();
    let leave = |block: usize| {
        let exit = graph.exits[block];
        if exit.leaves || exit.returns {
            STATUS as u16
        } else {
            0
        }
    };
    let (_, live_out) = backward(graph, &blocks, leave);
    let mut dead = vec![false; graph.insns.len()];
    for (b, mut live) in live_out.into_iter().enumerate() {
        for i in insns(b).rev() {
            live = effects[i].before(live);
            dead[i] = live == 0;
        }
    }
    dead
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::cfg::Entries;
    use crate::x86::decode::decode_function;

    /// `d` for each instruction before which flags are dead.
    fn dead(bytes: &[u8]) -> String {
        let range = 0x100..0x100 + bytes.len() as u64;
        let body = decode_function(bytes, 0x100, &[]).unwrap();
        let graph = Cfg::build(body, &range, &Entries::default(), &[]);
        let found = find_dead_flags(&Input::default(), &graph);
        found.iter().map(|&d| if d { 'd' } else { '-' }).collect()
    }

    #[test]
    fn flags_are_dead_before_what_changes_all_of_them() {
        // mov eax,[rdi]; test eax,eax; mov ecx,[rsi]; je +2; xor eax,eax; ret
        let code = [
            0x8b, 0x07, 0x85, 0xc0, 0x8b, 0x0e, 0x74, 0x02, 0x31, 0xc0, 0xc3,
        ];
        assert_eq!(dead(&code), "dd--d-");
    }

    #[test]
    fn what_may_leave_flags_alone_kills_none() {
        // shl eax,cl; xor eax,eax; ret
        assert_eq!(dead(&[0xd3, 0xe0, 0x31, 0xc0, 0xc3]), "dd-");
        // mov eax,[rdi]; shl eax,cl; ret: a shift by zero keeps the old flags.
        assert_eq!(dead(&[0x8b, 0x07, 0xd3, 0xe0, 0xc3]), "---");
        // mov eax,[rdi]; inc eax; adc eax,eax; ret: inc leaves the carry flag.
        assert_eq!(dead(&[0x8b, 0x07, 0xff, 0xc0, 0x11, 0xc0, 0xc3]), "----");
        // repe cmpsb; ret. pushfq reads all flags, and lahf does too: a later xor eax,eax changes
        // nothing.
        assert_eq!(dead(&[0xf3, 0xa6, 0xc3]), "--");
        assert_eq!(dead(&[0x9c, 0x31, 0xc0, 0xc3]), "-d-");
        assert_eq!(dead(&[0x9f, 0x31, 0xc0, 0xc3]), "-d-");
        // sete al; xor eax,eax; ret
        assert_eq!(dead(&[0x0f, 0x94, 0xc0, 0x31, 0xc0, 0xc3]), "-d-");
    }

    #[test]
    fn calls_may_be_handed_flags() {
        // xor eax,eax; call elsewhere; xor eax,eax; ret
        assert_eq!(
            dead(&[0x31, 0xc0, 0xe8, 0, 0x10, 0, 0, 0x31, 0xc0, 0xc3]),
            "d-d-"
        );
        // A system call returns flags in r11.
        assert_eq!(dead(&[0x0f, 0x05, 0x31, 0xc0, 0xc3]), "-d-");
    }
}
