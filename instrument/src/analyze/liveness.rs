//! Which general purpose registers a probe may overwrite.
//!
//! Backward liveness, exact inside the function and conservative at its borders:
//!
//! - a call reads everything (arguments may be passed in any register) and kills nothing (a
//!   compiler that knows the callee may keep values in registers that it leaves alone), except that
//!   nothing is passed in r11 to a function that follows the ABI or is bound at its first call, and
//!   that no r11 outlives such a call;
//! - leaving for code that is not followed (unresolved jumps, tail calls, falling off the end)
//!   reads everything, and so do system calls, interrupts and undefined instructions;
//! - `ret` reads everything but the caller-saved registers that are lost to the function's callers
//!   ([`crate::analyze::preserved`]), rax, rdx and what may be another result excepted;
//! - a landing pad's live registers are live throughout the blocks that its call ranges touch.
//!
//! A register is offered only if it is caller-saved, or saved by a `push` here and written, and
//! neither rsp nor rbp. A function whose extent is a guess, or that has several callable entries,
//! offers none (and is skipped).

use crate::analyze::imported_calls::imported;
use crate::analyze::preserved;
use crate::analyze::unread_values::Transfer;
use crate::ir::cfg::{Cfg, Exit};
use crate::ir::live_registers::{Effect, backward, pads};
use crate::ir::loops::Loops;
use crate::program::{Import, Input};
use crate::x86::flow::direct_target;
use crate::x86::insn::Insn;
use crate::x86::regs::{ALL, CALLEE_SAVED_BUT_RBP, CALLER_SAVED, R11, RSP, RegSet, RegUse};
use iced_x86::{Code, FlowControl, Mnemonic, OpKind};

/// True if a call goes through a linkage table.
pub(crate) fn through_linkage(input: &Input, insn: &Insn) -> bool {
    match insn.flow {
        FlowControl::Call => direct_target(&insn.inst).is_some_and(|t| input.is_plt(t)),
        _ => {
            insn.inst.is_ip_rel_memory_operand() && input.is_got(insn.inst.ip_rel_memory_address())
        }
    }
}

/// Effects of a function's instructions, for this pass and for [`crate::analyze::unread_values`].
pub struct Effects {
    insns: Vec<Effect>,
    blocks: Vec<Effect>,
    /// Effects by block.
    pub steps: Vec<Transfer>,
    /// Registers that reachable code writes.
    written: u16,
    /// Callee-saved registers that it pushes.
    saved: u16,
}

impl Effects {
    /// The effects of a function. `graph` is its code, `loops` are its loops, and `uses` is per
    /// instruction.
    pub fn of(input: &Input, graph: &Cfg, loops: &Loops, uses: &[RegUse]) -> Effects {
        // In nearly all functions, all blocks are reachable from the entries.
        let n = graph.blocks.len();
        let reachable = if loops.order.len() == n {
            None
        } else {
            Some(graph.reachable())
        };
        let mut all = Effects {
            insns: Vec::new(),
            blocks: Vec::with_capacity(n),
            steps: Vec::with_capacity(n),
            written: 0,
            saved: 0,
        };
        let mut effects = vec![Effect::default(); graph.insns.len()];
        for (b, block) in graph.blocks.iter().enumerate() {
            let (mut sum, mut step) = (Effect::default(), Transfer::NO_EFFECT);
            let (mut written, mut saved) = (0, 0);
            let range = block.insns.start as usize..block.insns.end as usize;
            for ((insn, u), effect) in graph.insns[range.clone()]
                .iter()
                .zip(&uses[range.clone()])
                .zip(&mut effects[range])
            {
                *effect = Effect {
                    read: u.read.0,
                    kill: u.kill.0,
                };
                written |= u.clobber.0;
                if insn.simple || insn.flow == FlowControl::Next && insn.inst.code() != Code::Hlt {
                    step = step.then(Transfer::of(FlowControl::Next, u));
                    if u.clobber.contains(RSP)
                        && insn.inst.mnemonic() == Mnemonic::Push
                        && insn.inst.op0_kind() == OpKind::Register
                    {
                        saved |= u.read.0 & CALLEE_SAVED_BUT_RBP.0;
                    }
                } else {
                    step = step.then(Transfer::of(insn.flow, u));
                    outside(input, insn, effect);
                }
                sum = sum.then(*effect);
            }
            all.blocks.push(sum);
            all.steps.push(step);
            if reachable.as_ref().is_none_or(|r| r[b]) {
                (all.written, all.saved) = (all.written | written, all.saved | saved);
            }
        }
        Effects {
            insns: effects,
            ..all
        }
    }
}

/// Adds the effect of other code to which an instruction leads.
fn outside(input: &Input, insn: &Insn, effect: &mut Effect) {
    match insn.flow {
        FlowControl::ConditionalBranch
        | FlowControl::UnconditionalBranch
        | FlowControl::IndirectBranch
        | FlowControl::Return => {}
        FlowControl::Call | FlowControl::IndirectCall => {
            let import = imported(input, insn);
            let takes_r11 = match import {
                Some(import) => import == Import::Unknown,
                None => !through_linkage(input, insn),
            };
            effect.read = if takes_r11 { ALL.0 } else { ALL.without(R11).0 };
            if matches!(import, Some(Import::Abi | Import::Lazy)) {
                effect.kill |= 1 << R11.0;
            }
        }
        _ => effect.read = ALL.0,
    }
}

/// Sets [`Insn::dead`] of every instruction, for a function whose extent is known and that has one
/// callable entry. True if any register may be offered.
pub fn mark(input: &Input, graph: &mut Cfg, effects: &Effects, uses: &[RegUse]) -> bool {
    let returned = preserved::find_preserved_registers(input, graph, uses, RegSet(effects.saved));
    let allowed = CALLER_SAVED.0 | CALLEE_SAVED_BUT_RBP.0 & effects.written & effects.saved;
    let leave = |block: usize| match graph.exits[block] {
        Exit { leaves: true, .. } => ALL.0,
        Exit { returns: true, .. } => returned.live(block),
        _ => 0,
    };
    let (live_in, live_out) = backward(graph, &effects.blocks, leave);
    for (b, mut live) in live_out.into_iter().enumerate() {
        let pads = pads(graph, b, &live_in);
        let range = graph.blocks[b].insns.start as usize..graph.blocks[b].insns.end as usize;
        for (insn, effect) in graph.insns[range.clone()]
            .iter_mut()
            .zip(&effects.insns[range])
            .rev()
        {
            live = effect.before(live) | pads;
            insn.dead = RegSet(allowed & !live);
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::cfg::Entries;
    use crate::util::fast_hash::{FastMap, FastSet};
    use crate::x86::decode::decode_function;
    use crate::x86::regs::reg_use;
    use iced_x86::InstructionInfoFactory;

    /// `dead` before each instruction, as hex masks.
    fn dead(bytes: &[u8]) -> Vec<u16> {
        dead_with(&Input::default(), bytes)
    }

    fn dead_with(input: &Input, bytes: &[u8]) -> Vec<u16> {
        let body = decode_function(bytes, 0x100, &[]).unwrap();
        let mut g = Cfg::build(
            body,
            &(0x100..0x100 + bytes.len() as u64),
            &Entries::default(),
            &[],
        );
        let mut factory = InstructionInfoFactory::new();
        let uses: Vec<RegUse> = g
            .insns
            .iter()
            .map(|i| reg_use(factory.info(&i.inst)))
            .collect();
        let effects = Effects::of(input, &g, &Loops::find(&g), &uses);
        mark(input, &mut g, &effects, &uses);
        g.insns.iter().map(|i| i.dead.0).collect()
    }

    const MOV_RCX_RDI: [u8; 3] = [0x48, 0x8b, 0x0f]; // mov rcx, [rdi]
    const MOV_RAX_RCX: [u8; 3] = [0x48, 0x8b, 0x01]; // mov rax, [rcx]
    const RET: u8 = 0xc3;

    #[test]
    fn a_register_is_dead_before_it_is_written_and_after_its_last_use() {
        let code = [&MOV_RCX_RDI[..], &MOV_RAX_RCX, &[RET]].concat();
        // rcx is dead first (then loaded), rax is dead before its own load, and rcx is dead at ret.
        // rdi is never written here.
        assert_eq!(dead(&code), [0b11, 0b01, 0b10]);
    }

    #[test]
    fn a_call_reads_everything() {
        // mov rcx,[rdi]; call; mov rax,[rcx]; ret: before the call, no register may be used.
        let code = [
            &MOV_RCX_RDI[..],
            &[0xe8, 0, 0x10, 0, 0],
            &MOV_RAX_RCX,
            &[RET],
        ]
        .concat();
        assert_eq!(dead(&code)[1], 0);
        assert_eq!(
            dead(&code)[0],
            0b10,
            "rax is live into the call, rcx is loaded first"
        );
    }

    const RAX_RCX: u16 = 0b11;
    const R11_BIT: u16 = 1 << 11;
    /// All caller-saved registers except rax, rdx (results) and rdi.
    const SCRATCH: u16 = CALLER_SAVED.0 & !(1 << 0 | 1 << 2 | 1 << 7);
    const STUB: u64 = 0x1107;

    fn with_import(import: Import, no_return: bool) -> Input<'static> {
        Input {
            plt: std::iter::once(0x1100..0x1200).collect(),
            imported: FastMap::from_iter([(STUB, import)]),
            no_return: FastSet::from_iter(no_return.then_some(STUB)),
            ..Input::default()
        }
    }

    #[test]
    fn a_call_of_what_follows_the_abi_leaves_no_scratch_register_alone() {
        // xor ecx,ecx; call; mov rcx,[rdi]; ret
        let code = [&[0x31, 0xc9, 0xe8, 0, 0x10, 0, 0][..], &MOV_RCX_RDI, &[RET]].concat();
        const RCX: u16 = 1 << 1;
        // rcx is unread at the end: it may be a result.
        assert_eq!(dead(&code), [RCX, 0, RCX, 0], "the callee is in the file");
        for no_return in [false, true] {
            let got = dead_with(&with_import(Import::Unknown, no_return), &code);
            assert_eq!(got, [RCX, 0, RCX, 0], "nothing is known of the callee");
        }
        assert_eq!(
            dead_with(&with_import(Import::Abi, true), &code),
            [RCX, 0, RCX, 0],
            "what does not return writes nothing that anybody sees"
        );
        assert_eq!(
            dead_with(&with_import(Import::Abi, false), &code),
            [RCX | R11_BIT, R11_BIT, SCRATCH, SCRATCH & !RCX | 1 << 7]
        );
        // Binding at the first call changes two registers.
        let bound = 1 << 10 | R11_BIT;
        assert_eq!(
            dead_with(&with_import(Import::Lazy, false), &code),
            [RCX | R11_BIT, R11_BIT, RCX | bound, bound]
        );
    }

    #[test]
    fn a_value_that_is_kept_in_a_saved_register_shows_what_a_callee_changes() {
        // push rbx; mov rbx,rdi; call; mov rdi,[rbx]; xor eax,eax; pop rbx; ret
        let code = |kept: &[u8]| {
            let head = [0x53, 0x48, 0x89, 0xfb];
            let call = [0xe8, (STUB - 0x109) as u8, 0x0f, 0, 0];
            assert_eq!(
                0x109 + i64::from(i32::from_le_bytes([call[1], 0x0f, 0, 0])),
                STUB as i64
            );
            [&head[..], &call, kept, &[0x31, 0xc0, 0x5b, RET]].concat()
        };
        let dead = |kept: &[u8]| dead_with(&with_import(Import::Unknown, false), &code(kept))[4];
        // rbx is saved only because the callee changes caller-saved registers. (The argument in rdi
        // excludes `ms_abi`.)
        let all = RAX_RCX | 1 << 6 | 0xf00;
        assert_eq!(dead(&[0x48, 0x8b, 0x3b]) & all, all);
        // mov rcx,[rsi]; mov rdi,[rbx]: rsi is live across the call.
        assert_eq!(dead(&[0x48, 0x8b, 0x0e, 0x48, 0x8b, 0x3b]) & 0xf00, 0);
        // mov rdi,[rax]: no value is kept in rbx.
        assert_eq!(dead(&[0x48, 0x8b, 0x38]) & 0xf00, 0);
    }

    #[test]
    fn a_register_that_is_put_back_is_the_callers() {
        // push rcx; mov rcx,[rdi]; mov rax,[rcx]; pop rcx; mov rdx,[rdi]; ret
        let tail = [0x59, 0x48, 0x8b, 0x17, RET];
        let code = [&[0x51][..], &MOV_RCX_RDI, &MOV_RAX_RCX, &tail].concat();
        let rcx: Vec<u16> = dead(&code).iter().map(|d| d >> 1 & 1).collect();
        assert_eq!(rcx, [0, 1, 0, 1, 0, 0]);
        // The same through another register, a vector register and memory of several kinds; also
        // exchanged.
        for (save, restore) in [
            (&[0x49, 0x89, 0xc8][..], &[0x4c, 0x89, 0xc1][..]),
            (
                &[0x66, 0x48, 0x0f, 0x6e, 0xc1],
                &[0x66, 0x48, 0x0f, 0x7e, 0xc1],
            ),
            (&[0x48, 0x89, 0x4e, 8], &[0x48, 0x8b, 0x4e, 8]),
            (&[0x48, 0x87, 0x4e, 8], &[0x48, 0x87, 0x4e, 8]),
            (&[0x49, 0x87, 0xc8], &[0x4c, 0x87, 0xc1]),
            // lea r8,[rsp-8]; mov [r8],rcx; mov rcx,[rsp-8]
            (
                &[0x4c, 0x8d, 0x44, 0x24, 0xf8, 0x49, 0x89, 0x08],
                &[0x48, 0x8b, 0x4c, 0x24, 0xf8],
            ),
        ] {
            let code = [save, &MOV_RCX_RDI, &MOV_RAX_RCX, restore, &tail[1..]].concat();
            let last = dead(&code);
            assert_eq!(last[last.len() - 2] >> 1 & 1, 0, "{save:x?}");
        }
        // mov [rsi+8],rcx; …; mov rcx,[rsi+16] is something else.
        let code = [
            &[0x48, 0x89, 0x4e, 8][..],
            &MOV_RCX_RDI,
            &MOV_RAX_RCX,
            &[0x48, 0x8b, 0x4e, 16, 0x48, 0x8b, 0x01],
            &tail[1..],
        ]
        .concat();
        let last = dead(&code);
        assert_eq!(last[last.len() - 2] >> 1 & 1, 1);
    }

    #[test]
    fn one_way_that_does_not_put_a_register_back_is_enough() {
        // test edi,edi; je 1f; mov rcx,[rdi]; mov rax,[rcx]; 1: mov rdx,[rdi]; ret
        let code = [
            &[0x85, 0xff, 0x74, 6][..],
            &MOV_RCX_RDI,
            &MOV_RAX_RCX,
            &[0x48, 0x8b, 0x17, RET],
        ]
        .concat();
        assert_eq!(dead(&code)[4] >> 1 & 1, 1);
    }

    #[test]
    fn an_unread_register_may_be_a_result() {
        // mov rcx,[rdi]; mov rax,[rdi]; ret
        let code = [&MOV_RCX_RDI[..], &[0x48, 0x8b, 0x07, RET]].concat();
        assert_eq!(dead(&code)[1], 1, "only rax, which is about to be written");
    }

    #[test]
    fn a_function_that_is_passed_callee_saved_registers_has_its_own_rules() {
        // mov rcx,[rdi]; mov rax,[rcx]; mov rdx,[rdi]; ret; with rbx for rdi.
        let tail = |base: u8| [0x48, 0x8b, 0x10 | base, RET];
        let code = |first: u8| [&[0x48, 0x8b, 0x08 | first][..], &MOV_RAX_RCX, &tail(7)].concat();
        assert_eq!(dead(&code(7))[2] >> 1 & 1, 1);
        assert_eq!(dead(&code(3))[2] >> 1 & 1, 0);
        // sbb ebx,ebx does not depend on ebx.
        let idle = [&[0x53, 0x19, 0xdb][..], &code(7)[..9], &[0x5b, RET]].concat();
        assert_eq!(dead(&idle)[4] >> 1 & 1, 1);
    }

    #[test]
    fn a_tail_call_reads_everything() {
        let code = [&MOV_RCX_RDI[..], &[0xe9, 0, 0x10, 0, 0]].concat();
        assert_eq!(dead(&code), [0b10, 0]);
    }

    #[test]
    fn a_saved_register_is_dead_between_push_and_pop_only() {
        // push rbx; mov rcx,[rdi]; xor ebx,ebx; pop rbx; ret
        let code = [&[0x53][..], &MOV_RCX_RDI, &[0x31, 0xdb, 0x5b, RET]].concat();
        let d = dead(&code);
        assert_eq!(
            d.iter().map(|m| m >> 3 & 1).collect::<Vec<_>>(),
            [0, 1, 1, 1, 0]
        );
    }

    #[test]
    fn a_byte_write_keeps_the_register_alive() {
        // mov al, 1 ; ret: rax is read at ret
        assert_eq!(dead(&[0xb0, 1, RET]), [0, 0]);
    }
}
