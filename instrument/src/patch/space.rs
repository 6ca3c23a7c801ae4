//! Room for entry jumps after short blocks.
//!
//! A jump from the original into the clone takes five bytes, and `xor %eax,%eax; ret` has three.
//! Compilers align functions to 16 bytes, so most short ones are followed by filler that is never
//! executed; the jump may cover it as well.

use crate::ir::cfg::Cfg;
use crate::ir::loops::{Loops, NO_LOOP};
use crate::ir::{Block, BlockId};
use crate::patch::faulting::Care;
use crate::program::{FunctionInfo, Input, Program};
use crate::util::ranges::overlaps;
use crate::x86::flow::{JUMP, goes_elsewhere, is_call, is_padding, is_trap};
use crate::x86::insn::{Insn, InsnId};
use iced_x86::{Decoder, DecoderOptions, Mnemonic};
use std::ops::Range;

/// Blocks shorter than [`JUMP`] after which control goes elsewhere, and the number of filler bytes
/// after them (at most [`JUMP`]). Bytes that anything refers to are no filler. Sorted.
pub fn behind(
    input: &Input,
    program: &Program,
    info: &FunctionInfo,
    graph: &Cfg,
) -> Vec<(BlockId, u8)> {
    let mut found = Vec::new();
    for (i, block) in graph.blocks.iter().enumerate() {
        let (first, last) = (
            &graph.insns[block.insns.start as usize],
            &graph.insns[block.insns.end as usize - 1],
        );
        let wanted = i == 0 || block.external_entry;
        // (An `endbr64` stays before the jump.)
        if !wanted
            || last.end() - first.ip >= 2 * JUMP
            || !goes_elsewhere(last.flow)
            || last.is_overlapped()
        {
            continue;
        }
        let end = last.end();
        let next = graph
            .blocks
            .get(i + 1)
            .map_or(u64::MAX, |next| graph.insns[next.insns.start as usize].ip);
        let limit = limit(input, program, info, end).min(next);
        // (Zeros before an address that is referred to may be read by a negative offset from it.)
        let is_data = program.aimed.binary_search(&limit).is_ok()
            && input.bytes_at(end).is_some_and(|b| b[0] == 0);
        let room = if is_data {
            0
        } else {
            filler(input, end, limit).min(JUMP)
        };
        if room > 0 {
            found.push((BlockId(i as u32), room as u8));
        }
    }
    found
}

/// Upper limit of the bytes after a function's instruction that ends at `end`: the start of another
/// function or section, or of anything that is referred to.
fn limit(input: &Input, program: &Program, info: &FunctionInfo, end: u64) -> u64 {
    let section = input
        .exec_ranges
        .iter()
        .find(|r| r.contains(&info.range.start))
        .map_or(end, |r| r.end);
    let next = program
        .functions
        .get(info.id.0 as usize + 1)
        .map_or(u64::MAX, |f| f.range.start);
    let aimed = program.aimed[program.aimed.partition_point(|&a| a < end)..]
        .first()
        .copied()
        .unwrap_or(u64::MAX);
    section.min(next).min(aimed).max(end)
}

/// Number of filler bytes from `at` on: all up to `limit`, or none. The first bytes of a table may
/// look like filler, and code may read them through an address before the table.
fn filler(input: &Input, at: u64, limit: u64) -> u64 {
    let Some(bytes) = input.bytes_at(at) else {
        return 0;
    };
    let bytes = &bytes[..bytes.len().min((limit - at) as usize)];
    let mut decoder = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE);
    while decoder.can_decode() {
        let rest = &bytes[decoder.position()..];
        let inst = decoder.decode();
        if (inst.is_invalid() || !is_padding(&inst)) && !rest.iter().all(|&b| b == 0) {
            // (An instruction cut off by the limit is filler if its beginning is.)
            let cut = inst.is_invalid()
                && rest.iter().all(|b| {
                    matches!(
                        b,
                        0x66 | 0x2e | 0x0f | 0x1f | 0x84 | 0x80 | 0x44 | 0x40 | 0x00 | 0x90
                    )
                });
            if !cut {
                return 0;
            }
            break;
        }
    }
    bytes.len() as u64
}

/// A function's code, and the result of [`behind`].
#[derive(Clone, Copy)]
pub struct FunctionCode<'a> {
    /// Sorted by address.
    pub insns: &'a [Insn],
    /// Sorted by address.
    pub blocks: &'a [Block],
    /// See [`behind`].
    pub room: &'a [(BlockId, u8)],
    /// See [`Patching::data`](crate::plan::planned_function::Patching::data).
    pub data: &'a [Range<u64>],
    /// See [`Patching::aimed`](crate::plan::planned_function::Patching::aimed).
    pub aimed: &'a [u64],
}

impl FunctionCode<'_> {
    /// True if a trap precedes an instruction, since its handler may read the bytes after it.
    pub fn is_behind_trap(&self, insn: usize) -> bool {
        insn.checked_sub(1)
            .map(|before| &self.insns[before])
            .is_some_and(|before| is_trap(&before.inst) && before.next() == self.insns[insn].ip)
    }

    /// True if a jump at `ip` would cover no data, and no possible jump target except at its first
    /// byte.
    pub fn is_free(&self, ip: u64) -> bool {
        let aimed = self.aimed.get(self.aimed.partition_point(|&a| a <= ip));
        !overlaps(self.data, &(ip..ip + JUMP)) && aimed.is_none_or(|&a| a >= ip + JUMP)
    }
}

/// True if a jump may be written over instruction `first` and the instructions after it. Then no
/// branch can lead between its bytes, and no earlier instruction reaches into them. The
/// instructions are in one block and the filler after it. If `beyond` is true, they may continue
/// into blocks that control enters only from the block before. No call returns into the jump, since
/// its return address may be the original's.
pub fn fits(code: FunctionCode, first: InsnId, beyond: bool) -> bool {
    let first = first.0 as usize;
    let (insn, end) = (&code.insns[first], code.insns[first].ip + JUMP);
    if !code.is_free(insn.ip) {
        return false;
    }
    if first > 0 && code.insns[first - 1].next() > insn.ip || code.is_behind_trap(first) {
        return false;
    }
    let mut covered = code.insns[first..].iter().take_while(|i| i.ip < end);
    if covered.any(|i| is_call(i.flow) && i.next() < end) {
        return false;
    }
    let mut block = code
        .blocks
        .partition_point(|b| b.insns.start as usize <= first)
        - 1;
    loop {
        let behind = code.blocks[block].insns.end as usize;
        let last = &code.insns[behind - 1];
        if last.end() >= end {
            return true;
        }
        if let Ok(i) = code.room.binary_search_by_key(&(block as u32), |r| r.0.0) {
            return last.end() + u64::from(code.room[i].1) >= end;
        }
        let only = [BlockId(block as u32)];
        let follows = |next: &&Block| {
            next.preds[..] == only
                && !next.external_entry
                && code.insns[next.insns.start as usize].ip == last.next()
        };
        if !beyond || last.is_overlapped() || code.blocks.get(block + 1).filter(follows).is_none() {
            return false;
        }
        block += 1;
    }
}

/// Maximum number of blocks from a function's start on that are searched for a later entry into the
/// clone. Source: Chosen.
const MAX_BLOCKS_SEARCHED: usize = 16;

/// Additional addresses at which a function's original may enter the clone, if its start has no
/// room for a jump. They are the first possible instructions on each path from the start. They are
/// outside of loops, since a loop's probes would have to expect control from outside in each
/// iteration. The addresses are sorted; there are none if there is room. `sure`: by block, see
/// [`crate::discover::code_or_data::sure`]. `doubted`: there may be data, and an address after a
/// call may be data if the call never returns. `care`: handlers may look at the code under a jump.
/// `anywhere`: as [`Patching::anywhere`](crate::plan::planned_function::Patching::anywhere).
pub fn later(
    code: FunctionCode,
    graph: &Cfg,
    sure: &[bool],
    doubted: bool,
    care: Option<Care>,
    anywhere: bool,
) -> Vec<u64> {
    let start = u32::from(
        code.insns[0].inst.mnemonic() == Mnemonic::Endbr64 && code.blocks[0].insns.end > 1,
    );
    let good = |first: u32| {
        let insns = &code.insns[first as usize..];
        let whole = first == start || !anywhere || u64::from(insns[0].len) >= JUMP;
        whole
            && fits(code, InsnId(first), true)
            && care.is_none_or(|care| care.allows(insns.iter().map(|i| i.inst), insns[0].ip))
    };
    if good(start) {
        return Vec::new();
    }
    let loops = Loops::find(graph);
    let may_end = |i: u32| doubted && is_call(code.insns[i as usize].flow);
    let mut found = Vec::new();
    let mut ways = vec![0];
    let mut next = 0;
    while let Some(&b) = ways.get(next) {
        next += 1;
        let block = &code.blocks[b];
        let from = if b == 0 { start + 1 } else { block.insns.start };
        let is_loop = loops.of_block[b] != NO_LOOP;
        let is_data = |i: u32| {
            overlaps(
                code.data,
                &(code.insns[i as usize].ip..code.insns[i as usize].end()),
            )
        };
        let ends = |i: u32| is_data(i) || i > block.insns.start && may_end(i - 1);
        // Control does not reach code after data, since a call before the data never returned.
        match (from..block.insns.end).find(|&i| ends(i) || !is_loop && good(i)) {
            Some(i) if ends(i) => {}
            Some(i) => found.push(code.insns[i as usize].ip),
            None if may_end(block.insns.end - 1) => {}
            None => {
                for s in &block.succs {
                    let s = s.0 as usize;
                    if ways.len() < MAX_BLOCKS_SEARCHED && sure[s] && !ways.contains(&s) {
                        ways.push(s);
                    }
                }
            }
        }
    }
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discover::scan::discover;
    use crate::ir::FunctionId;
    use crate::pipeline::function_pass::analyze;
    use crate::plan::planned_function::Function;
    use crate::program::fixed_memory::FaultPolicy;
    use crate::program::{FuncSymbol, InstrumentOptions, SegmentBytes};
    use crate::unwind::UnwindRange;
    use mgz_abi::module_note::{FLAVOUR_PT, FLAVOUR_SOFT};

    const START: u64 = 0x1000;

    /// The first of two functions: `code` up to `end`, then the rest of `code`, then the second
    /// function `second`.
    /// Offsets of the blocks that are entered by jumps.
    fn patches(f: &Function) -> Vec<u64> {
        let entered = f.cfg.blocks.iter().filter(|b| b.external_entry);
        let starts = entered.map(|b| f.cfg.insns[b.insns.start as usize].ip - START);
        starts.collect()
    }

    fn first(code: &[u8], end: usize, second: &[u8], change: impl FnOnce(&mut Input)) -> Function {
        let faults = FaultPolicy::default();
        of_flavour(FLAVOUR_SOFT, code, end, second, &faults, change)
    }

    fn of_flavour(
        flavour: u32,
        code: &[u8],
        end: usize,
        second: &[u8],
        faults: &FaultPolicy,
        change: impl FnOnce(&mut Input),
    ) -> Function {
        let bytes = [code, second].concat();
        let next = START + code.len() as u64;
        let range = START..START + bytes.len() as u64;
        let unwind = |range| UnwindRange {
            range,
            landing_pads: Vec::new(),
            understood: true,
        };
        let mut input = Input {
            segments: vec![SegmentBytes {
                vaddr: START,
                bytes: &bytes,
                writable: false,
                executable: true,
            }],
            exec_ranges: vec![range.clone()],
            unwind: vec![unwind(START..START + end as u64), unwind(next..range.end)],
            pie: true,
            ..Input::default()
        };
        change(&mut input);
        let options = InstrumentOptions::new(flavour);
        let program = discover(&input, &options);
        analyze(&input, &program, FunctionId(0), &options, faults).unwrap()
    }

    /// `xor eax, eax; ret`, then a no-operation of 13 bytes.
    const ZERO: [u8; 16] = [
        0x31, 0xc0, 0xc3, 0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0x90, 0x90,
    ];
    const RET: &[u8] = &[0x48, 0x8b, 0x07, 0xc3];

    fn fits(f: &Function) -> bool {
        f.may_patch(InsnId(0))
    }

    #[test]
    fn filler_behind_a_short_function_has_room() {
        assert!(fits(&first(&ZERO, 3, RET, |_| ())));
        // mov eax, ecx; ret; int3 …
        assert!(fits(&first(
            &[0x89, 0xc8, 0xc3, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc],
            3,
            RET,
            |_| ()
        )));
        // endbr64 first: the jump comes after it.
        let code = [&[0xf3, 0x0f, 0x1e, 0xfa][..], &ZERO[..12]].concat();
        assert!(first(&code, 7, RET, |_| ()).may_patch(InsnId(1)));
    }

    #[test]
    fn not_where_the_next_function_begins() {
        assert!(!fits(&first(&ZERO[..3], 3, RET, |_| ())));
        assert!(!fits(&first(&[0x31, 0xc0, 0xc3, 0x90], 3, RET, |_| ())));
        assert!(fits(&first(
            &[0x31, 0xc0, 0xc3, 0x66, 0x90],
            3,
            RET,
            |_| ()
        )));
    }

    #[test]
    fn nor_over_other_bytes() {
        let mut code = ZERO;
        code[4] = 0x48;
        code[3] = 0x01;
        assert!(!fits(&first(&code, 3, RET, |_| ())));
        // Control continues into the filler: call [rax]; nop …
        assert!(!fits(&first(
            &[0xff, 0x10, 0x90, 0x90, 0x90, 0x90, 0x90],
            2,
            RET,
            |_| ()
        )));
        // A handler may continue there: xor eax, eax; ud2; int3 …, and with hlt.
        assert!(!fits(&first(
            &[0x31, 0xc0, 0x0f, 0x0b, 0xcc, 0xcc, 0xcc, 0xcc],
            4,
            RET,
            |_| ()
        )));
        assert!(!fits(&first(
            &[0x31, 0xc0, 0xf4, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc],
            3,
            RET,
            |_| ()
        )));
    }

    #[test]
    fn nor_where_a_call_would_return_into_the_jump() {
        // call rsi; add eax, 5; ret: with an original return address on the stack (from a
        // translated clone), the callee returns to the original.
        assert!(!fits(&first(
            &[0xff, 0xd6, 0x83, 0xc0, 5, 0xc3],
            6,
            RET,
            |_| ()
        )));
        // push rax; call rsi; pop rcx; ret
        assert!(!fits(&first(
            &[0x50, 0xff, 0xd6, 0x59, 0xc3],
            5,
            RET,
            |_| ()
        )));
        // The jump ends where the call ends: add eax, 5; call rsi; ret
        assert!(fits(&first(
            &[0x83, 0xc0, 5, 0xff, 0xd6, 0xc3],
            6,
            RET,
            |_| ()
        )));
    }

    #[test]
    fn nor_over_what_anything_refers_to() {
        let at = START + 4;
        let code = [&[0x31, 0xc0, 0xc3][..], &[0x90; 13][..]].concat();
        assert!(fits(&first(&code, 3, RET, |_| ())));
        assert!(!fits(&first(&code, 3, RET, |i| i.symbols.push(
            FuncSymbol {
                name: "here".into(),
                addr: at,
                size: 0
            }
        ))));
        assert!(!fits(&first(&code, 3, RET, |i| i
            .relative_targets
            .push((0x9000, at)))));
        // Code of the second function: lea rax, [rip - 19]; mov rax, [rip - 19]; jmp -14.
        for second in [
            &[0x48, 0x8d, 0x05, 0xed, 0xff, 0xff, 0xff, 0xc3][..],
            &[0x48, 0x8b, 0x05, 0xed, 0xff, 0xff, 0xff, 0xc3],
            &[0xeb, 0xf2],
        ] {
            assert!(!fits(&first(&code, 3, second, |_| ())), "{second:x?}");
        }
        assert!(
            !fits(&first(&code, 3, RET, |i| i.labels.push(at))),
            "a label"
        );
        assert!(
            !fits(&first(&code, 3, RET, |i| i.objects.push(at..at + 4))),
            "data"
        );
        // The same inside of a function: xor eax, eax; ret; nop …; then a block that the second
        // jumps to (jmp -14).
        let code = [
            &[0x31, 0xc0, 0xc3][..],
            &[0x90; 7][..],
            &[0x48, 0x8b, 0x07, 0x48, 0x8b, 0x07, 0xc3][..],
        ]
        .concat();
        let second = [0xeb, 0xf7];
        assert!(fits(&first(&code, 17, &second, |_| ())));
        assert!(
            !fits(&first(&code, 17, &second, |i| i.labels.push(at))),
            "a label"
        );
        assert!(
            !fits(&first(&code, 17, &second, |i| i.objects.push(at..at + 4))),
            "data"
        );
        // mov rax, [rip - 20]
        assert!(
            !fits(&first(
                &code,
                17,
                &[0x48, 0x8b, 0x05, 0xec, 0xff, 0xff, 0xff, 0xc3],
                |_| ()
            )),
            "data that code reads"
        );
    }

    #[test]
    fn nothing_is_written_where_there_may_be_data() {
        let patched = |code: &[u8], change: fn(&mut Input)| -> Vec<u64> {
            let f = first(code, code.len(), RET, change);
            let wanted = f
                .cfg
                .blocks
                .iter()
                .filter(|b| b.external_entry)
                .map(|b| f.cfg.insns[b.insns.start as usize].ip);
            wanted
                .filter(|&at| !f.is_data(at))
                .map(|at| at - START)
                .collect()
        };
        // lea rax, [rip + 8]; mov rax, [rax + rdi*8]; add rax, rsi; ret, and data that look like
        // mov rax, 0; ret
        let code = [
            0x48, 0x8d, 0x05, 8, 0, 0, 0, 0x48, 0x8b, 0x04, 0xf8, 0x48, 0x01, 0xf0, 0xc3, 0x48,
            0xc7, 0xc0, 0, 0, 0, 0, 0xc3,
        ];
        assert_eq!(patched(&code, |_| ()), [0]);
        assert_eq!(patched(&code, |i| i.labels.push(START + 15)), [0]);
        // lea rdx, [rip + 9]; mov [rsp - 16], rdx; jmp [rsp - 16]; mov rax, 0; ret: the address is
        // for a jump,
        let code = [
            0x48, 0x8d, 0x15, 9, 0, 0, 0, 0x48, 0x89, 0x54, 0x24, 0xf0, 0xff, 0x64, 0x24, 0xf0,
            0x48, 0xc7, 0xc0, 0, 0, 0, 0, 0xc3,
        ];
        assert_eq!(patched(&code, |_| ()), [0, 16]);
        // but not if it is read from first: mov ecx, [rdx].
        let code = [
            0x48, 0x8d, 0x15, 11, 0, 0, 0, 0x8b, 0x0a, 0x48, 0x89, 0x54, 0x24, 0xf0, 0xff, 0x64,
            0x24, 0xf0, 0x48, 0xc7, 0xc0, 0, 0, 0, 0, 0xc3,
        ];
        assert_eq!(patched(&code, |_| ()), [0]);
        // A data word with its address may be for a read,
        let code = [
            0x48, 0x8d, 0x05, 8, 0, 0, 0, 0x48, 0x8b, 0x04, 0xf8, 0x48, 0x01, 0xf0, 0xc3, 0x48,
            0xc7, 0xc0, 0, 0, 0, 0, 0xc3,
        ];
        assert_eq!(
            patched(&code, |i| i.relative_targets.push((0x9000, START + 15))),
            [0]
        );
        // or for a jump, where there is one (lea rax, [rip + 8]; mov rax, [rax + rdi*8]; add eax,
        // esi; jmp rax), unless a symbol marks it as data.
        let code = [
            0x48, 0x8d, 0x05, 8, 0, 0, 0, 0x48, 0x8b, 0x04, 0xf8, 0x01, 0xf0, 0xff, 0xe0, 0x48,
            0xc7, 0xc0, 0, 0, 0, 0, 0xc3,
        ];
        assert_eq!(
            patched(&code, |i| i.relative_targets.push((0x9000, START + 15))),
            [0, 15]
        );
        assert_eq!(
            patched(&code, |i| (
                i.relative_targets.push((0x9000, START + 15)),
                i.objects.push(START + 15..START + 23)
            )
                .0),
            [0]
        );
        // The bytes after a call may be data: call rsi; mov rax, 0; ret, read by lea rax, [rip -
        // 14].
        let code = [
            0x48, 0x8d, 0x05, 2, 0, 0, 0, 0xff, 0xd6, 0x48, 0xc7, 0xc0, 0, 0, 0, 0, 0xc3,
        ];
        assert_eq!(patched(&code, |_| ()), [0]);
    }

    #[test]
    fn a_function_is_not_entered_later_behind_data() {
        // xor edi, edi; syscall; a constant that looks like mov rax, 0; nop; ret. The second
        // function reads it: mov rax, [rip - 16].
        let code = [
            0x31, 0xff, 0x0f, 0x05, 0x48, 0xc7, 0xc0, 0, 0, 0, 0, 0x90, 0xc3,
        ];
        assert_eq!(
            patches(&first(&code, 13, RET, |_| ())),
            [0, 4],
            "nobody reads it"
        );
        let reads = [0x48, 0x8b, 0x05, 0xf0, 0xff, 0xff, 0xff, 0xc3];
        let f = first(&code, 13, &reads, |_| ());
        assert_eq!(
            (patches(&f), f.may_patch(InsnId(0)), f.is_data(START + 11)),
            (vec![0], false, true)
        );
        assert_eq!(
            patches(&first(&code, 13, RET, |i| i
                .objects
                .push(START + 4..START + 12))),
            [0]
        );
    }

    #[test]
    fn the_first_bytes_of_a_table_are_no_filler() {
        // xor eax, eax; ret, then 90 90 cc 90 90, 1, 2
        let code = [0x31, 0xc0, 0xc3, 0x90, 0x90, 0xcc, 0x90, 0x90, 1, 2, 3, 4];
        assert!(!fits(&first(&code, 3, RET, |_| ())));
        assert!(fits(&first(&code[..8], 3, RET, |_| ())));
        // Zeros before an address that is referred to are no filler: xor eax, eax; ret; 0, 0, 0, 0;
        // 5, with lea rax, [rip - 15]
        let code = [0x31, 0xc0, 0xc3, 0, 0, 0, 0, 5, 0, 0, 0];
        assert!(!fits(&first(
            &code,
            3,
            &[0x48, 0x8d, 0x05, 0xf5, 0xff, 0xff, 0xff, 0xc3],
            |_| ()
        )));
        assert!(fits(&first(&code[..7], 3, RET, |_| ())));
    }

    #[test]
    fn a_jump_covers_blocks_that_only_the_one_before_leads_to() {
        // test edi, edi; je +4; mov rax, [rdi]; ret; xor eax, eax; ret
        let code = [
            0x85, 0xff, 0x74, 0x04, 0x48, 0x8b, 0x07, 0xc3, 0x31, 0xc0, 0xc3, 0x90, 0x90, 0x90,
            0x90, 0x90,
        ];
        assert!(fits(&first(&code, 11, RET, |_| ())));
        // The second function jumps to the address after the branch: jmp -14.
        assert!(!fits(&first(&code, 11, &[0xeb, 0xf2], |_| ())));
        // A loop begins there: xor eax, eax; inc eax; dec edi; jne -6; ret
        assert!(!fits(&first(
            &[
                0x31, 0xc0, 0xff, 0xc0, 0xff, 0xcf, 0x75, 0xfa, 0xc3, 0x90, 0x90
            ],
            9,
            RET,
            |_| ()
        )));
        // A call would return into the jump: jrcxz +2; call rax; ret
        assert!(!fits(&first(
            &[0xe3, 0x02, 0xff, 0xd0, 0xc3, 0x90, 0x90],
            5,
            RET,
            |_| ()
        )));
    }

    #[test]
    fn a_function_whose_start_has_no_room_is_entered_later() {
        // A loop begins behind xor eax, eax (no room before it): inc eax; dec edi; jne -6; then mov
        // rax, [rsi]; mov rcx, [rdi]; ret
        let code = [
            0x31, 0xc0, 0xff, 0xc0, 0xff, 0xcf, 0x75, 0xfa, 0x48, 0x8b, 0x06, 0x48, 0x8b, 0x0f,
            0xc3,
        ];
        let f = first(&code, 15, RET, |_| ());
        assert_eq!((fits(&f), patches(&f)), (false, vec![0, 8]));
        let shows = FaultPolicy {
            shows_faults: true,
            ..FaultPolicy::default()
        };
        let shown = |flavour, code: &[u8]| {
            let mut faults = shows.clone();
            faults.own.readable = vec![0..1];
            patches(&of_flavour(flavour, code, code.len(), RET, &faults, |_| ()))
        };
        // Handlers look at loads: mov rax, [rdi]; mov ecx, 1; ret. They do not look at mov eax, 2;
        // …
        let code = [0x48, 0x8b, 0x07, 0xb9, 1, 0, 0, 0, 0xc3];
        assert_eq!(shown(FLAVOUR_PT, &code), [0, 3]);
        assert_eq!(patches(&first(&code, 9, RET, |_| ())), [0]);
        // The runtime can take back a jump within one word; after an endbr64 it cannot.
        let behind = |code: &[u8]| [&[0xf3, 0x0f, 0x1e, 0xfa], code].concat();
        assert_eq!(
            (
                shown(FLAVOUR_SOFT, &code),
                shown(FLAVOUR_SOFT, &behind(&code))
            ),
            (vec![0], vec![0, 7])
        );
        assert_eq!(
            patches(&of_flavour(FLAVOUR_SOFT, &code, 9, RET, &shows, |_| ())),
            [0, 3],
            "the file may change its code"
        );
        let code = [0xb8, 2, 0, 0, 0, 0x48, 0x8b, 0x07, 0xb9, 1, 0, 0, 0, 0xc3];
        assert_eq!(shown(FLAVOUR_PT, &code), [0]);
        // Both paths: mov rax, [rdi]; je +9; mov rcx, [rsi]; mov edx, 1; ret; mov ecx, 1; ret
        let code = [
            0x48, 0x8b, 0x07, 0x74, 0x09, 0x48, 0x8b, 0x0e, 0xba, 1, 0, 0, 0, 0xc3, 0xb9, 1, 0, 0,
            0, 0xc3,
        ];
        assert_eq!(
            (shown(FLAVOUR_PT, &code), shown(FLAVOUR_SOFT, &code)),
            (vec![0, 8, 14], vec![0])
        );
        // Handlers may continue anywhere: mov rax, [rdi]; mov ecx, eax; xor edx, edx; inc ecx; mov
        // esi, 1; ret
        let code = [
            0x48, 0x8b, 0x07, 0x89, 0xc1, 0x31, 0xd2, 0xff, 0xc1, 0xbe, 1, 0, 0, 0, 0xc3,
        ];
        assert_eq!(shown(FLAVOUR_SOFT, &behind(&code)), [0, 7]);
        let f = of_flavour(FLAVOUR_PT, &code, 15, RET, &shows, |_| ());
        assert_eq!(patches(&f), [0, 9], "a jump over one instruction only");
        assert!(
            f.may_patch(f.insn_at(START + 9).unwrap())
                && !f.may_patch(f.insn_at(START + 3).unwrap())
        );
    }
}
