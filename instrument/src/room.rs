//! Room for entry jumps behind short blocks.
//!
//! A jump from the original into the clone takes five bytes, and `xor %eax,%eax; ret` has three. Compilers begin functions at multiples of 16, so
//! that most short ones have filler behind them which no one runs; the jump may cover that as well.

use crate::cfg::Graph;
use crate::disasm::{ends_flow, is_padding};
use crate::functions::{FunctionInfo, Input, Program};
use crate::ir::BlockId;
use iced_x86::{Decoder, DecoderOptions};

/// Bytes of a near jump.
pub const JUMP: u64 = 5;

/// Blocks of less than [`JUMP`] bytes at whose end control goes elsewhere, and how many bytes of nothing but filler follow (at most
/// [`JUMP`]). What anything refers to is no filler. Sorted.
pub fn behind(input: &Input, program: &Program, info: &FunctionInfo, graph: &Graph) -> Vec<(BlockId, u8)> {
    let mut found = Vec::new();
    for (i, block) in graph.blocks.iter().enumerate() {
        let (first, last) = (&graph.insns[block.insns.start as usize], &graph.insns[block.insns.end as usize - 1]);
        let wanted = i == 0 || block.external_entry;
        // (An `endbr64` stays before the jump.)
        if !wanted || last.end() - first.ip >= 2 * JUMP || !ends_flow(&last.inst) || last.is_overlapped() {
            continue;
        }
        let end = last.end();
        let limit = match graph.blocks.get(i + 1) {
            Some(next) => graph.insns[next.insns.start as usize].ip,
            None => limit(input, program, info, end),
        };
        let room = filler(input, end, limit.min(end + JUMP));
        if room > 0 {
            found.push((BlockId(i as u32), room as u8));
        }
    }
    found
}

/// Where what is behind a function's last instruction ends at the latest.
fn limit(input: &Input, program: &Program, info: &FunctionInfo, end: u64) -> u64 {
    let section = input.exec_ranges.iter().find(|r| r.contains(&info.range.start)).map_or(end, |r| r.end);
    let next = program.functions.get(info.id.0 as usize + 1).map_or(u64::MAX, |f| f.range.start);
    let aimed = program.aimed[program.aimed.partition_point(|&a| a < end)..].first().copied().unwrap_or(u64::MAX);
    section.min(next).min(aimed).max(end)
}

/// How many bytes from `at` on are filler; an instruction of it that begins before `limit` counts up to there.
fn filler(input: &Input, at: u64, limit: u64) -> u64 {
    let Some(bytes) = input.bytes_at(at) else { return 0 };
    let mut decoder = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE);
    let mut end = at;
    while end < limit && decoder.can_decode() {
        let inst = decoder.decode();
        if inst.is_invalid() || !is_padding(&inst) {
            break;
        }
        end = inst.next_ip();
    }
    end.min(limit) - at
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::analyze;
    use crate::discover::discover;
    use crate::functions::{FuncSymbol, Options, SegmentBytes};
    use crate::ir::{Function, FunctionId, InsnId, UnwindRange};
    use mgz_annotations_schema::abi::FLAVOUR_SOFT;

    const START: u64 = 0x1000;

    /// The first of two functions: `code` up to `end`, then what else is in it up to the second, which is `second`.
    fn first(code: &[u8], end: usize, second: &[u8], change: impl FnOnce(&mut Input)) -> Function {
        let bytes = [code, second].concat();
        let next = START + code.len() as u64;
        let range = START..START + bytes.len() as u64;
        let unwind = |range| UnwindRange { range, landing_pads: Vec::new(), understood: true };
        let mut input = Input {
            segments: vec![SegmentBytes { vaddr: START, bytes: &bytes, writable: false, executable: true }],
            exec_ranges: vec![range.clone()],
            unwind: vec![unwind(START..START + end as u64), unwind(next..range.end)],
            pie: true,
            ..Input::default()
        };
        change(&mut input);
        let options = Options::new(FLAVOUR_SOFT);
        analyze(&input, &discover(&input, &options), FunctionId(0), &options).unwrap()
    }

    /// `xor eax, eax; ret`, then a no-operation of 13 bytes.
    const ZERO: [u8; 16] = [0x31, 0xc0, 0xc3, 0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0x90, 0x90];
    const RET: &[u8] = &[0x48, 0x8b, 0x07, 0xc3];

    fn fits(f: &Function) -> bool {
        f.may_patch(InsnId(0))
    }

    #[test]
    fn filler_behind_a_short_function_has_room() {
        assert!(fits(&first(&ZERO, 3, RET, |_| ())));
        // mov eax, ecx; ret; int3 …
        assert!(fits(&first(&[0x89, 0xc8, 0xc3, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc], 3, RET, |_| ())));
        // endbr64 first: the jump stands behind it.
        let code = [&[0xf3, 0x0f, 0x1e, 0xfa][..], &ZERO[..12]].concat();
        assert!(first(&code, 7, RET, |_| ()).may_patch(InsnId(1)));
    }

    #[test]
    fn not_where_the_next_function_begins() {
        assert!(!fits(&first(&ZERO[..3], 3, RET, |_| ())));
        assert!(!fits(&first(&[0x31, 0xc0, 0xc3, 0x90], 3, RET, |_| ())));
        assert!(fits(&first(&[0x31, 0xc0, 0xc3, 0x66, 0x90], 3, RET, |_| ())));
    }

    #[test]
    fn nor_over_other_bytes() {
        let mut code = ZERO;
        code[4] = 0x48;
        code[3] = 0x01;
        assert!(!fits(&first(&code, 3, RET, |_| ())));
        // Control runs on into the filler: call [rax]; nop …
        assert!(!fits(&first(&[0xff, 0x10, 0x90, 0x90, 0x90, 0x90, 0x90], 2, RET, |_| ())));
    }

    #[test]
    fn nor_over_what_anything_refers_to() {
        let at = START + 4;
        let code = [&[0x31, 0xc0, 0xc3][..], &[0x90; 13][..]].concat();
        assert!(fits(&first(&code, 3, RET, |_| ())));
        assert!(!fits(&first(&code, 3, RET, |i| i.symbols.push(FuncSymbol { name: "here".into(), addr: at, size: 0 }))));
        assert!(!fits(&first(&code, 3, RET, |i| i.relative_targets.push((0x9000, at)))));
        // Of the second function: lea rax, [rip - 19]; mov rax, [rip - 19]; jmp -14.
        for second in [&[0x48, 0x8d, 0x05, 0xed, 0xff, 0xff, 0xff, 0xc3][..], &[0x48, 0x8b, 0x05, 0xed, 0xff, 0xff, 0xff, 0xc3], &[0xeb, 0xf2]] {
            assert!(!fits(&first(&code, 3, second, |_| ())), "{second:x?}");
        }
    }

    #[test]
    fn a_jump_covers_blocks_that_only_the_one_before_leads_to() {
        // test edi, edi; je +4; mov rax, [rdi]; ret; xor eax, eax; ret
        let code = [0x85, 0xff, 0x74, 0x04, 0x48, 0x8b, 0x07, 0xc3, 0x31, 0xc0, 0xc3, 0x90, 0x90, 0x90, 0x90, 0x90];
        assert!(fits(&first(&code, 11, RET, |_| ())));
        // The second function jumps behind the branch: jmp -14.
        assert!(!fits(&first(&code, 11, &[0xeb, 0xf2], |_| ())));
        // A loop begins there: xor eax, eax; inc eax; dec edi; jne -6; ret
        assert!(!fits(&first(&[0x31, 0xc0, 0xff, 0xc0, 0xff, 0xcf, 0x75, 0xfa, 0xc3, 0x90, 0x90], 9, RET, |_| ())));
        // A call would return into the jump: jrcxz +2; call rax; ret
        assert!(!fits(&first(&[0xe3, 0x02, 0xff, 0xd0, 0xc3, 0x90, 0x90], 5, RET, |_| ())));
    }
}
